// tessera_vulkan.h: a bundle's kernels inside a C program that already uses Vulkan: its device, its buffers as arrays,
// its images, its semaphores, calls in its command buffers. The rules of tessera.h for handles and errors hold here.
// This header includes Vulkan's types and calls its functions only through the vkGetInstanceProcAddr that the program
// gives. runtime/record.h says what recording does to the command buffer.
#pragma once
#include <tessera/tessera.h>
#include <vulkan/vulkan_core.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- the device

/// A feature of a device that Tessera needs or uses.
typedef struct tessera_device_feature {
  const char* name;       ///< "bufferDeviceAddress"
  const char* structure;  ///< "VkPhysicalDeviceVulkan12Features", whose member it is
  const char* gives;      ///< one sentence: what Tessera does with it
  VkStructureType type;   ///< of that structure,
  size_t offset;          ///< where the member, a VkBool32, lies
} tessera_device_feature;

/// How many features Tessera needs (`required` 1: every driver of Vulkan 1.3 has them) or uses where a device has them
/// (0); -1 if the host's memory is used up.
TESSERA_API int32_t tessera_device_feature_count(int32_t required);
/// The one at `index`.
TESSERA_API tessera_result tessera_device_feature_at(int32_t required, int32_t index, tessera_device_feature* feature);
/// Sets in the chain that begins at `enable` (a VkDeviceCreateInfo's pNext) all of these features that the chain at
/// `has`, which vkGetPhysicalDeviceFeatures2 has filled, shows. *left_out, which may be NULL: how many of those that
/// `has` shows no structure in `enable` has a member for.
TESSERA_API tessera_result tessera_enable_device_features(const void* has, void* enable, int32_t* left_out);

/// Says to `say` each of these features that the chain at `has` shows, or with NULL each of them, and the chain at
/// `enabled` has not set. `user` is handed on.
TESSERA_API tessera_result tessera_missing_device_features(
    const void* has, const void* enabled, void (*say)(void* user, const tessera_device_feature* feature), void* user);
/// *enabled: 1 if the device has that feature of the list enabled.
TESSERA_API tessera_result tessera_device_feature_enabled(const tessera_device* device, int32_t required, int32_t index,
                                                          int32_t* enabled);
/// How many extensions of a device Tessera uses where they are enabled (it needs none); -1 if the host's memory is used
/// up.
TESSERA_API int32_t tessera_device_extension_count(void);
/// The name of the one at `index` ("VK_EXT_memory_budget"), and in one sentence what Tessera does with it.
TESSERA_API tessera_result tessera_device_extension_at(int32_t index, const char** name, const char** gives);

/// Device memory for one buffer, and the answer: `size` bytes or more from `offset`, a multiple of `alignment`, of
/// memory that has been allocated with VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT and is of one of the types in
/// memory_type_bits; `mapped` is where the host sees the first byte, NULL only where `required` lacks HOST_VISIBLE.
typedef struct tessera_memory_request {
  VkDeviceSize size, alignment;
  uint32_t memory_type_bits;
  VkMemoryPropertyFlags required, preferred;
} tessera_memory_request;
typedef struct tessera_memory_piece {
  VkDeviceMemory memory;
  VkDeviceSize offset, size;
  uint32_t memory_type;
  void* mapped;
  void* user;  ///< the program's own
} tessera_memory_piece;

/// A device that the program has made and keeps: it outlives all that is made of it. Nothing that this points to is
/// kept.
typedef struct tessera_imported_device {
  size_t size;  ///< of this struct
  PFN_vkGetInstanceProcAddr get_instance_proc_addr;
  VkInstance instance;
  VkPhysicalDevice physical_device;
  VkDevice device;
  VkQueue queue;          ///< with compute: what uploads, downloads and tessera_launch() submit to
  uint32_t queue_family;  ///< its family, and that of the command buffers
  uint32_t api_version;   ///< VkApplicationInfo::apiVersion of the instance
  const void* features;   ///< what is enabled: VkDeviceCreateInfo's pNext,
  const VkPhysicalDeviceFeatures* enabled_features;  ///< and pEnabledFeatures
  const char* const* device_extensions;
  const char* const* instance_extensions;
  uint32_t num_device_extensions, num_instance_extensions;
  /// Called around each of our vkQueueSubmit2, with queue_user, on whichever thread submits; both or neither. They call
  /// nothing of Tessera, and whoever holds their mutex calls nothing of it either.
  void (*lock_queue)(void* user);
  void (*unlock_queue)(void* user);
  void* queue_user;
  /// Where all device memory comes from, with memory_user; both or neither. Out of memory is returned
  /// (VK_ERROR_OUT_OF_DEVICE_MEMORY). They are called on any thread and call nothing of Tessera, and whoever holds a
  /// mutex that they take calls nothing of it either.
  VkResult (*allocate_memory)(void* user, const tessera_memory_request* request, tessera_memory_piece* piece);
  void (*free_memory)(void* user, const tessera_memory_piece* piece);
  void* memory_user;
  /// Where the driver's code of all pipelines is kept, or VK_NULL_HANDLE: then in Tessera's own folder. Used on every
  /// thread that compiles, so made without EXTERNALLY_SYNCHRONIZED; it lives as long as the device.
  VkPipelineCache pipeline_cache;
} tessera_imported_device;

/// The program's device as a tessera_device. Of `options` (or NULL) those count that say how to use a device, not
/// which. TESSERA_ERROR_DEVICE, naming what to enable, where it lacks what Tessera needs.
TESSERA_API tessera_result tessera_device_import(const tessera_imported_device* imported,
                                                 const tessera_device_options* options, tessera_device** device);

// ---- buffers

/// A range of a VkBuffer of the program's, which keeps it alive until no call uses the array any more.
typedef struct tessera_imported_buffer {
  VkBuffer buffer;
  VkDeviceSize size;    ///< of the whole buffer
  VkDeviceSize offset;  ///< where the array begins
  /// of the buffer: with SHADER_DEVICE_ADDRESS; TRANSFER_SRC to read the array, TRANSFER_DST to write it
  VkBufferUsageFlags usage;
} tessera_imported_buffer;

/// The range as an array, whose contents and memory are the program's, shared.
TESSERA_API tessera_result tessera_array_import(tessera_device* device, const tessera_imported_buffer* buffer,
                                                tessera_dtype dtype, int32_t rank, const int64_t* shape,
                                                tessera_array** array);

// ---- semaphores

/// Timeline semaphores of the program's, for what goes to the device's own queue: what is called from now on (launches,
/// reads, writes) runs after `semaphore` has reached `value`. Nothing waits here; the program signals it, or
/// tessera_device_wait() and tessera_array_read() would not return.
TESSERA_API tessera_result tessera_semaphore_wait(tessera_device* device, VkSemaphore semaphore, uint64_t value);
/// Sets it to `value` once all calls so far are done.
TESSERA_API tessera_result tessera_semaphore_signal(tessera_device* device, VkSemaphore semaphore, uint64_t value);

// ---- images

/// one level of a VkImage of the program's, and one or several of its layers, to be read and written, or an argument of
/// recorded calls
typedef struct tessera_image tessera_image;

/// Of one sample, in optimal tiling; two-dimensional, if no tessera_image_part says otherwise. The program keeps it
/// alive until no call uses it any more.
typedef struct tessera_imported_image {
  VkImage image;
  /// R, RG, RGBA of 8 bits (UNORM, SNORM, UINT, SINT, SRGB), 16 (UNORM, SNORM, UINT, SINT, SFLOAT) and 32 (UINT, SINT,
  /// SFLOAT), BGRA8, A2B10G10R10, A2R10G10B10, B10G11R11; E5B9G9R9 and depth to be read. runtime/interop.h says what
  /// arrays hold of them.
  VkFormat format;
  VkExtent2D extent;  ///< of that level
  /// of the image: with SAMPLED to be read; STORAGE, or TRANSFER_DST where the device stores nothing of that format,
  /// to be written
  VkImageUsageFlags usage;
  uint32_t mip_level, array_layer;
} tessera_imported_image;

/// What an image is in when commands reach it, and what they leave it in. `before` may be UNDEFINED for an image that
/// is written, all of it.
typedef struct tessera_layouts {
  VkImageLayout before, after;
} tessera_layouts;

/// The image as an argument. TESSERA_ERROR_ARGUMENT where format or usage will not do.
TESSERA_API tessera_result tessera_image_import(tessera_device* device, const tessera_imported_image* imported,
                                                tessera_image** image);
/// Which part of the image, for tessera_image_import_part(). Start with tessera_image_part_defaults(), so that fields
/// of a newer header keep their meaning.
typedef struct tessera_image_part {
  size_t size;       ///< of this struct
  VkImageType type;  ///< VK_IMAGE_TYPE_2D, or 3D: then array_layer and layer_count are 0
  uint32_t depth;    ///< of that level of a 3-D image; otherwise 1
  /// 0: one layer, an array (height, width, channels); n: so many from array_layer on, an array (n, height, width,
  /// channels); VK_REMAINING_ARRAY_LAYERS: the rest of array_layers. All slices of a 3-D image are an array (depth,
  /// height, width, channels).
  uint32_t layer_count;
  uint32_t mip_levels, array_layers;  ///< how many the whole image has; 0: not said, then not checked
} tessera_image_part;
TESSERA_STATIC_ASSERT(sizeof(void*) != 8 || sizeof(tessera_image_part) == 32, "tessera_image_part is part of the ABI");
/// One layer of two dimensions, as tessera_image_import() takes it.
TESSERA_API tessera_image_part tessera_image_part_defaults(void);
/// Several layers, or a 3-D image. `part` may be NULL: the defaults.
TESSERA_API tessera_result tessera_image_import_part(tessera_device* device, const tessera_imported_image* imported,
                                                     const tessera_image_part* part, tessera_image** image);
/// Waits for its reads and writes; the VkImage stays.
TESSERA_API void tessera_image_destroy(tessera_image* image);
/// How many channels a texel has.
TESSERA_API tessera_result tessera_image_channels(const tessera_image* image, int32_t* channels);
/// The texels as a new array (height, width, channels), with layers or slices before these if the image has been
/// imported with any: the first `channels` of them, or with 0 all. Does not wait.
TESSERA_API tessera_result tessera_image_read(const tessera_image* image, tessera_dtype dtype, int32_t channels,
                                              tessera_layouts layouts, tessera_array** array);
/// The array, of such a shape or without the dim of channels, into the image: 0 where it lacks channels, 1 as alpha.
/// Does not wait.
TESSERA_API tessera_result tessera_image_write(tessera_image* image, const tessera_array* array,
                                               tessera_layouts layouts);

// ---- calls in the program's command buffers

/// a kernel with all that its calls need, for as many frames as are in flight; used by one thread at a time
typedef struct tessera_prepared tessera_prepared;
/// records such calls into one command buffer after another; used by one thread at a time
typedef struct tessera_stream tessera_stream;

/// What recorded commands wait for (the dst masks of a VkMemoryBarrier2 before them) and what waits for them (the src
/// masks of one after).
typedef struct tessera_scopes {
  VkPipelineStageFlags2 wait_stages;
  VkAccessFlags2 wait_accesses;
  VkPipelineStageFlags2 signal_stages;
  VkAccessFlags2 signal_accesses;
} tessera_scopes;

/// `sizes`: all run-time sizes of the kernel. Each frame may hold calls_per_frame calls; to begin frame n says that the
/// commands of frame n - frames_in_flight are done.
TESSERA_API tessera_result tessera_kernel_prepare(const tessera_kernel* kernel, int32_t frames_in_flight,
                                                  int32_t calls_per_frame, const tessera_size* sizes, int32_t num_sizes,
                                                  tessera_prepared** prepared);
/// An argument of a kernel, inputs before outputs, that is an image in every recorded call: one of the same format,
/// extent, layers and usage as `like`.
typedef struct tessera_image_argument {
  const tessera_image* like;
  int32_t argument;
} tessera_image_argument;
/// The same with arguments that are images, of the shapes of tessera_image_write()'s arrays.
TESSERA_API tessera_result tessera_kernel_prepare_images(const tessera_kernel* kernel, int32_t frames_in_flight,
                                                         int32_t calls_per_frame, const tessera_size* sizes,
                                                         int32_t num_sizes, const tessera_image_argument* images,
                                                         int32_t num_images, tessera_prepared** prepared);
/// Run-time sizes of the calls that are recorded from now on, each at most what it was prepared for; those that are not
/// named stay. Arrays and images have the shapes of these sizes. Allocates nothing. On an error nothing has changed.
TESSERA_API tessera_result tessera_prepared_resize(tessera_prepared* prepared, const tessera_size* sizes,
                                                   int32_t num_sizes);
/// When no recorded command of it will run any more.
TESSERA_API void tessera_prepared_destroy(tessera_prepared* prepared);

TESSERA_API tessera_result tessera_stream_create(tessera_device* device, tessera_stream** stream);
/// The same, of which tessera_stream_trace() tells when calls ran: the first `timed_calls` of each frame. Each costs
/// two writes of the time. TESSERA_ERROR_DEVICE where the device's queue has no timestamps. It is destroyed when no
/// command that it recorded will run any more.
TESSERA_API tessera_result tessera_stream_create_timed(tessera_device* device, int32_t timed_calls,
                                                       int32_t frames_in_flight, tessera_stream** stream);
TESSERA_API void tessera_stream_destroy(tessera_stream* stream);
/// `commands` is being recorded, outside a render pass. Frames are numbered upwards.
TESSERA_API tessera_result tessera_stream_begin(tessera_stream* stream, VkCommandBuffer commands, uint64_t frame);
/// A call: inputs, then outputs, `count` together, of the dtypes and shapes that the kernel was prepared for. It
/// allocates nothing and waits for nothing. An input for which tessera_array_donate() was called may be changed by it;
/// it stays an array, and later calls do not take it as donated. `scopes` may be NULL. On an error nothing has been
/// recorded.
TESSERA_API tessera_result tessera_stream_record(tessera_stream* stream, tessera_prepared* prepared,
                                                 tessera_array* const* arrays, int32_t count, tessera_scopes* scopes);
/// An array, or an image with the layouts that it comes in and is left in: one of them is NULL.
typedef struct tessera_argument {
  tessera_array* array;
  tessera_image* image;
  tessera_layouts layouts;
} tessera_argument;
/// The same of arrays and images.
TESSERA_API tessera_result tessera_stream_record_arguments(tessera_stream* stream, tessera_prepared* prepared,
                                                           const tessera_argument* arguments, int32_t count,
                                                           tessera_scopes* scopes);
/// A graph of a bundle, for tessera_stream_record_graph(), with all that its calls need for as many frames as are in
/// flight; used by one thread at a time. Each frame may hold calls_per_frame calls of it. Destroy it with
/// tessera_graph_destroy() when no recorded command of it will run any more. `sizes`: values of its run-time sizes, all
/// of them, those of the first calls and the largest of tessera_graph_resize().
TESSERA_API tessera_result tessera_graph_prepare(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                                 int32_t frames_in_flight, int32_t calls_per_frame,
                                                 const tessera_size* sizes, int32_t num_sizes, tessera_graph** graph);
/// Run-time sizes of the calls that are recorded from now on, each at most what the graph was prepared for; those that
/// are not named stay. Allocates nothing. On an error nothing has changed.
TESSERA_API tessera_result tessera_graph_resize(tessera_graph* graph, const tessera_size* sizes, int32_t num_sizes);
/// A call of a prepared graph: inputs, then outputs, `count` together, of the graph's dtypes and shapes; each output an
/// array of its own. An input of rank 0 may be a tessera_scalar_create()'s number. It allocates nothing and waits for
/// nothing. No argument is taken as donated. `scopes` may be NULL. On an error nothing has been recorded.
TESSERA_API tessera_result tessera_stream_record_graph(tessera_stream* stream, tessera_graph* graph,
                                                       tessera_array* const* arrays, int32_t count,
                                                       tessera_scopes* scopes);
/// Of everything since begin. `scopes` may be NULL.
TESSERA_API tessera_result tessera_stream_end(tessera_stream* stream, tessera_scopes* scopes);

/// When a recorded call ran: nanoseconds from the beginning of its frame's first timed call.
typedef struct tessera_timed_call {
  const char* kernel;  ///< valid until the stream's next trace, or its end
  double begin;
  double end;
} tessera_timed_call;
/// The timed calls of a frame that has been submitted and is done, among the last frames_in_flight + 1 that have begun:
/// the first `capacity` of them into `calls`, which may be NULL if that is 0, and their number into `count`.
TESSERA_API tessera_result tessera_stream_trace(tessera_stream* stream, uint64_t frame, tessera_timed_call* calls,
                                                int32_t capacity, int32_t* count);

#ifdef __cplusplus
}  // extern "C"
#endif
