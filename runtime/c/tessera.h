// tessera.h: kernels that `tessera bundle` compiled ahead of time, run on Vulkan devices, from C11 (and C++). The
// library behind it, tessera_c, contains no compiler. Kernels are not written with it: C++ programs do that with
// tessera/tessera.hpp, and run bundles with tessera/runtime.hpp. samples/ahead/normalise.c is a complete program.
//
// Handles are opaque. Each is made by one function and destroyed by its tessera_..._destroy(), which accepts NULL, in
// any order: a handle keeps the other objects that it needs. Functions return TESSERA_OK or an error; after an error
// tessera_last_error() has a sentence, and nothing has been changed or made. No function waits for the device, except
// those that say so, writes of more than 32 MiB, and making arrays while memory is short until calls in flight have
// ended. Any number of threads may call with different handles, and with one device, bundle or kernel; one array is
// used by one thread at a time, and while tessera_device_recover() runs no other thread uses its handle. Graphs are
// available from C++ only (runtime/call/graph.h). Callbacks are called on the thread where the event happens, and must
// not throw. Strings are UTF-8 and end with 0.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <tessera/version.h>

#if defined(_WIN32) && defined(TESSERA_EXPORTS)  // while the library is built; whoever uses it links its import library
#define TESSERA_API __declspec(dllexport)
#elif defined(_WIN32)
#define TESSERA_API
#else
#define TESSERA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#define TESSERA_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define TESSERA_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/// A version as one number, to compare.
#define TESSERA_MAKE_VERSION(major, minor, patch) \
  (((uint32_t)(major) << 22) | ((uint32_t)(minor) << 12) | (uint32_t)(patch))
/// Of this header. version.h has TESSERA_VERSION_MAJOR, _MINOR, _PATCH and the string TESSERA_VERSION.
#define TESSERA_VERSION_NUMBER TESSERA_MAKE_VERSION(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH)

/// What a function came to.
typedef int32_t tessera_result;
enum {
  TESSERA_OK = 0,
  TESSERA_ERROR_ARGUMENT = 1,  ///< what was given does not fit: a NULL, a shape, a dtype, a name that is not there
  TESSERA_ERROR_BUNDLE = 2,    ///< a file that cannot be read, is no bundle, is damaged, or of another version
  TESSERA_ERROR_LIMIT = 3,     ///< the device lacks what the kernel needs
  /// there is no device, Vulkan failed, the device was lost, or a call's results are wrong
  TESSERA_ERROR_DEVICE = 4,
  TESSERA_ERROR_KERNEL = 5,   ///< a check of a kernel failed
  TESSERA_ERROR_STOPPED = 6,  ///< a callback asked to stop
  TESSERA_ERROR_MEMORY = 7,   ///< the host's memory is used up
  TESSERA_ERROR_INTERNAL = 8  ///< a bug of Tessera's
};

/// An array's element type. All take whole bytes: a bool and the 4-bit integers one.
typedef int32_t tessera_dtype;
enum {
  TESSERA_BOOL = 0,
  TESSERA_I4 = 1,
  TESSERA_I8 = 2,
  TESSERA_I16 = 3,
  TESSERA_I32 = 4,
  TESSERA_I64 = 5,
  TESSERA_U4 = 6,
  TESSERA_U8 = 7,
  TESSERA_U16 = 8,
  TESSERA_U32 = 9,
  TESSERA_U64 = 10,
  TESSERA_F8E4M3FN = 11,
  TESSERA_F8E5M2 = 12,
  TESSERA_F16 = 13,
  TESSERA_BF16 = 14,
  TESSERA_F32 = 15,
  TESSERA_F64 = 16
};

struct VkAllocationCallbacks;                  // of vulkan_core.h
typedef struct tessera_device tessera_device;  ///< a Vulkan device
typedef struct tessera_bundle tessera_bundle;  ///< kernels compiled ahead of time
typedef struct tessera_kernel tessera_kernel;  ///< one of them for one device
typedef struct tessera_array tessera_array;    ///< a dense row-major array in a device's memory

// ---- versions and errors

/// The library's version, as TESSERA_MAKE_VERSION makes it.
TESSERA_API uint32_t tessera_version(void);
/// The same as text: "0.1.0".
TESSERA_API const char* tessera_version_string(void);
/// TESSERA_OK if a program that was compiled with the header of version `header` (TESSERA_VERSION_NUMBER) can use this
/// library: same major and minor number.
TESSERA_API tessera_result tessera_check_version(uint32_t header);
/// The sentence of the last error on this thread; "" if there was none. Valid until this thread's next error.
TESSERA_API const char* tessera_last_error(void);
/// "TESSERA_ERROR_DEVICE"; "?" of no result.
TESSERA_API const char* tessera_result_name(tessera_result result);
/// "f32"; NULL of no dtype.
TESSERA_API const char* tessera_dtype_name(tessera_dtype dtype);
/// Bytes of an element; 0 of no dtype.
TESSERA_API size_t tessera_dtype_bytes(tessera_dtype dtype);

// ---- messages that are neither results nor errors: of validation layers, of caches that are damaged

/// How much a message matters.
typedef int32_t tessera_severity;
enum { TESSERA_INFO = 0, TESSERA_WARNING = 1, TESSERA_ERROR = 2 };
/// Takes one, without a line break at its end; one call at a time. It calls nothing of Tessera.
typedef void (*tessera_log_function)(void* user, tessera_severity severity, const char* message);
/// Where they go in this process, instead of stderr; NULL: to stderr again. What has begun to use the function before
/// has ended when this returns.
TESSERA_API tessera_result tessera_set_log(tessera_log_function log, void* user);

// ---- devices

/// What a device is. Texts that are too long are cut.
typedef struct tessera_device_info {
  char name[256];           ///< "llvmpipe (LLVM 15.0.6, 256 bits)"
  char driver[256];         ///< "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"
  char kind[32];            ///< "discrete GPU", "integrated GPU", "virtual GPU", "CPU", "other"
  char api_version[32];     ///< "1.3.230"
  int64_t memory_bytes;     ///< of the largest device-local heap
  int64_t max_array_bytes;  ///< the largest array
  int32_t index;            ///< among all devices
  int32_t usable;           ///< 0: it lacks what Tessera needs
} tessera_device_info;
TESSERA_STATIC_ASSERT(sizeof(tessera_device_info) == 600, "tessera_device_info is part of the ABI");

/// How a device is made. Start with tessera_device_defaults(), so that fields of a newer header keep their meaning.
typedef struct tessera_device_options {
  size_t size;  ///< of this struct
  /// index or part of the name; NULL: TESSERA_DEVICE of the environment, else the best device
  const char* select;
  int32_t validation;       ///< 1: Vulkan's validation layers, whose messages tessera_device_validation() has
  int32_t reserved;         ///< 0
  int64_t memory_limit;     ///< most bytes to hold per heap; 0: what the driver gives
  double watchdog_seconds;  ///< calls that may take longer are cut into slices; 0: never
  /// Takes what kernels print, line by line, on the thread that waits or reads; NULL: stdout. `user` is print_user.
  void (*print)(void* user, const char* line);
  void* print_user;
  /// Takes this device's validation messages, as they come, instead of tessera_set_log()'s or stderr. `user` is
  /// log_user.
  tessera_log_function log;
  void* log_user;
  /// For the host memory of the driver, the loader and the memory allocator; NULL: their own. The struct is copied; its
  /// functions are called until the device and all that is made of it have gone.
  const struct VkAllocationCallbacks* allocation_callbacks;
} tessera_device_options;
TESSERA_STATIC_ASSERT(sizeof(void*) != 8 || sizeof(tessera_device_options) == 80,
                      "tessera_device_options is part of the ABI");

/// The options that NULL stands for.
TESSERA_API tessera_device_options tessera_device_defaults(void);
/// How many devices Vulkan shows. TESSERA_ERROR_DEVICE, saying what to install, if there is no loader or driver.
TESSERA_API tessera_result tessera_device_count(int32_t* count);
/// What the device at `index` is, from 0 to the count - 1, without making it.
TESSERA_API tessera_result tessera_device_info_at(int32_t index, tessera_device_info* info);
/// Makes a device: that of the options, or with NULL the best.
TESSERA_API tessera_result tessera_device_create(const tessera_device_options* options, tessera_device** device);
TESSERA_API void tessera_device_destroy(tessera_device* device);
/// What the device is.
TESSERA_API tessera_result tessera_device_get_info(const tessera_device* device, tessera_device_info* info);
/// Waits until all that was started on it is done. Tells of calls whose results are wrong, and of checks that failed,
/// unless a read has.
TESSERA_API tessera_result tessera_device_wait(tessera_device* device);
/// 1 if the driver has given it up: every use of it and its arrays is then an error, which says what it was running.
TESSERA_API tessera_result tessera_device_lost(const tessera_device* device, int32_t* lost);
/// Opens a lost device anew under this handle. Arrays and kernels of the lost one stay lost: make them again.
TESSERA_API tessera_result tessera_device_recover(tessera_device* device);
/// Bytes that arrays and calls in flight hold.
TESSERA_API tessera_result tessera_device_allocated(const tessera_device* device, int64_t* bytes);
/// Says each message of the validation layers so far to `say`.
TESSERA_API tessera_result tessera_device_validation(const tessera_device* device,
                                                     void (*say)(void* user, const char* message), void* user);

// ---- bundles

/// Reads a bundle from a file.
TESSERA_API tessera_result tessera_bundle_load(const char* path, tessera_bundle** bundle);
/// The same from a copy of `size` bytes; `name` stands in messages.
TESSERA_API tessera_result tessera_bundle_load_memory(const void* bytes, size_t size, const char* name,
                                                      tessera_bundle** bundle);
TESSERA_API void tessera_bundle_destroy(tessera_bundle* bundle);
/// How many kernels it has.
TESSERA_API tessera_result tessera_bundle_kernel_count(const tessera_bundle* bundle, int32_t* count);
/// The name of the kernel at `index`, valid as long as the bundle.
TESSERA_API tessera_result tessera_bundle_kernel_name(const tessera_bundle* bundle, int32_t index, const char** name);
/// How many graphs it has.
TESSERA_API tessera_result tessera_bundle_graph_count(const tessera_bundle* bundle, int32_t* count);
/// The name of the graph at `index`, valid as long as the bundle.
TESSERA_API tessera_result tessera_bundle_graph_name(const tessera_bundle* bundle, int32_t index, const char** name);
/// Reads the file again, and if it has changed takes its kernels from then on (*changed is 1). If it cannot be read or
/// is no good bundle, that is the error, and the bundle goes on as it was. Kernels that were taken before stay what
/// they were: take them again. `changed` may be NULL.
TESSERA_API tessera_result tessera_bundle_reload(tessera_bundle* bundle, int32_t* changed);
/// Makes the driver's pipelines of all kernels on `threads` threads (0: one per core), and waits for that. `progress`,
/// if not NULL, hears of each, one call at a time, on those threads; if it gives anything but 0, no more are begun and
/// the result is TESSERA_ERROR_STOPPED.
TESSERA_API tessera_result tessera_bundle_prewarm(const tessera_bundle* bundle, tessera_device* device, int32_t threads,
                                                  int32_t (*progress)(void* user, int32_t done, int32_t total,
                                                                      const char* kernel),
                                                  void* user);

// ---- kernels

/// An array that a kernel takes or makes. Texts and sizes are valid as long as the kernel.
typedef struct tessera_argument_info {
  const char* name;      ///< as in the kernel's text, else "in0", "out0"
  const char* shape;     ///< "n, 128"
  const int64_t* sizes;  ///< per dim; -1 where it is no fixed number
  tessera_dtype dtype;
  int32_t rank;
  int32_t is_output;
  int32_t alias;  ///< of an output: the input with whose contents it starts; -1: none
} tessera_argument_info;
TESSERA_STATIC_ASSERT(sizeof(void*) != 8 || sizeof(tessera_argument_info) == 40,
                      "tessera_argument_info is part of the ABI");

/// The kernel of that name for the device, by the variant that suits it best.
TESSERA_API tessera_result tessera_kernel_get(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                              tessera_kernel** kernel);
TESSERA_API void tessera_kernel_destroy(tessera_kernel* kernel);
/// "(f32[n, 128], i32[4]) -> (f32[n])", valid as long as the kernel.
TESSERA_API tessera_result tessera_kernel_signature(const tessera_kernel* kernel, const char** signature);
/// For the headers of tessera bundle: TESSERA_ERROR_ARGUMENT with both signatures if the kernel has another one than
/// the header was made for.
TESSERA_API tessera_result tessera_kernel_check(const tessera_kernel* kernel, const char* signature);
/// The target of its variant: "gpu"; valid as long as the kernel.
TESSERA_API tessera_result tessera_kernel_variant(const tessera_kernel* kernel, const char** variant);
/// Why that one: a line for each of its variants, with what it is for, and what the device lacks that it needs; valid
/// as long as the kernel.
TESSERA_API tessera_result tessera_kernel_variants(const tessera_kernel* kernel, const char** text);
/// How many arrays it takes and makes. Either may be NULL.
TESSERA_API tessera_result tessera_kernel_argument_count(const tessera_kernel* kernel, int32_t* inputs,
                                                         int32_t* outputs);
/// The array at `index`: inputs, then outputs.
TESSERA_API tessera_result tessera_kernel_argument(const tessera_kernel* kernel, int32_t index,
                                                   tessera_argument_info* info);

// ---- arrays

/// An array of `rank` dims with a copy of `data`, or with NULL of unspecified contents. `shape` may be NULL if rank is
/// 0.
TESSERA_API tessera_result tessera_array_create(tessera_device* device, tessera_dtype dtype, int32_t rank,
                                                const int64_t* shape, const void* data, tessera_array** array);
TESSERA_API void tessera_array_destroy(tessera_array* array);
/// What it is. Each but the first may be NULL; *shape is valid as long as the array.
TESSERA_API tessera_result tessera_array_get_info(const tessera_array* array, tessera_dtype* dtype, int32_t* rank,
                                                  const int64_t** shape, size_t* bytes);
/// Replaces the contents, for calls made from now on. `bytes` is the array's size.
TESSERA_API tessera_result tessera_array_write(tessera_array* array, const void* data, size_t bytes);
/// Waits for the calls that write it, and copies it to `data`. `bytes` is the array's size.
TESSERA_API tessera_result tessera_array_read(const tessera_array* array, void* data, size_t bytes);
/// The next call that takes it may keep its memory, for the output that is aliased to it, instead of making a copy.
/// After that call every use of it but destroy is an error.
TESSERA_API tessera_result tessera_array_donate(tessera_array* array);
/// Takes that back, for an array that no call has taken since: the next one copies it, as if it had never been donated.
TESSERA_API tessera_result tessera_array_keep(tessera_array* array);

// ---- numbers by value

/// A number for a kernel's argument by value, in the place of an array: tessera_launch() and recordings take its value
/// as it is then. `value`: one element as memory holds it, a float for TESSERA_F32. It needs no device; destroy it with
/// tessera_array_destroy().
TESSERA_API tessera_result tessera_scalar_create(tessera_dtype dtype, const void* value, tessera_array** scalar);
/// Another value, for calls from now on. Allocates nothing.
TESSERA_API tessera_result tessera_scalar_set(tessera_array* scalar, const void* value);
/// *by_value is 1 if the kernel's argument at `index` is a number, and 0 if it is an array.
TESSERA_API tessera_result tessera_kernel_argument_by_value(const tessera_kernel* kernel, int32_t index,
                                                            int32_t* by_value);

// ---- calls

/// A run-time size of a kernel or graph.
typedef struct tessera_size {
  const char* name;
  int64_t value;
} tessera_size;

/// Starts a call. Inputs are arrays, and numbers where the kernel takes them by value. Outputs that are NULL are made,
/// and are then the caller's to destroy; the others are written, must have the right dtype and shape, and be none of
/// the inputs. The counts are those of the kernel. `sizes` may be NULL.
TESSERA_API tessera_result tessera_launch(const tessera_kernel* kernel, tessera_array* const* inputs,
                                          int32_t num_inputs, tessera_array** outputs, int32_t num_outputs,
                                          const tessera_size* sizes, int32_t num_sizes);

// ---- graphs

/// A graph of a bundle on a device: of tessera_graph_load(), to be launched, or of tessera_graph_prepare()
/// (tessera_vulkan.h), to be recorded into command buffers.
typedef struct tessera_graph tessera_graph;
/// The graph of that name for the device, by the variants of its kernels that suit it best. It holds the memory of its
/// intermediate values, so its launches run one after another. `sizes`: the largest values of the graph's run-time
/// sizes that are to come, all of them; a launch has those of its inputs.
TESSERA_API tessera_result tessera_graph_load(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                              const tessera_size* sizes, int32_t num_sizes, tessera_graph** graph);
TESSERA_API void tessera_graph_destroy(tessera_graph* graph);
/// "(f32[8, 128], i32[]) -> (f32[8])", valid as long as the graph.
TESSERA_API tessera_result tessera_graph_signature(const tessera_graph* graph, const char** signature);
/// For the headers of tessera bundle: TESSERA_ERROR_ARGUMENT with both signatures if the graph has another one.
TESSERA_API tessera_result tessera_graph_check(const tessera_graph* graph, const char* signature);
/// Starts a call of a loaded graph. Inputs are arrays, and for those of rank 0 arrays or numbers; no argument is taken
/// as donated. Outputs that are NULL are made, and are then the caller's to destroy; the others are written, must have
/// the right dtype and shape, and be none of the inputs. The counts are those of the graph. Any thread may launch it.
TESSERA_API tessera_result tessera_graph_launch(const tessera_graph* graph, tessera_array* const* inputs,
                                                int32_t num_inputs, tessera_array** outputs, int32_t num_outputs);

#ifdef __cplusplus
}  // extern "C"
#endif
