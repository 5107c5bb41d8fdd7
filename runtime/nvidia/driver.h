// The functions of NVIDIA's driver (libcuda) that a launcher needs, found in its library at run time. Names, numbers
// and signatures are those of NVIDIA's "CUDA Driver API" reference. Nothing of CUDA's toolkit is included or linked.
// Internal to runtime/. Read next: context.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/error.h"

namespace tessera::cuda {

using Status = int;  // CUresult
using Ordinal = int;
using Address = uint64_t;  // CUdeviceptr
struct ContextHandle;      // what CUcontext and so on point at
struct ModuleHandle;
struct FunctionHandle;
struct StreamHandle;

constexpr Status kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kUnsupportedPtx = 222, kLaunchTimeout = 702;
/// Whether all that is asked of the context from then on fails: a kernel's fault, or one of the GPU itself. Any
/// function may return it, for a kernel that was queued before.
bool ends_context(Status status);

enum class DeviceAttribute : int {
  max_threads_per_block = 1,
  multiprocessor_count = 16,
  kernel_timeout = 17,
  major = 75,
  minor = 76,
  max_shared_per_block_optin = 97,
};
enum class FunctionAttribute : int { max_dynamic_shared_bytes = 8 };
enum class JitOption : int { error_log = 5, error_log_bytes = 6 };
// What cuTensorMapEncodeTiled is told: an element's type; not interleaved, rows of 128 bytes swizzled, brought to the
// L2 cache by 128 bytes, zeros outside.
enum class TensorType : int { u8 = 0, f16 = 6, bf16 = 9 };
constexpr int kTensorPlain = 0, kTensorSwizzle128 = 3, kTensorPromotion128 = 2, kTensorZeros = 0;
constexpr size_t kMostTensorDims = 5;
constexpr unsigned kStreamNonBlocking = 1;
// The list that ends cuLaunchKernel's arguments where these are one block of bytes.
inline void* const kLaunchEnd = nullptr;
inline void* const kLaunchBlock = reinterpret_cast<void*>(1);
inline void* const kLaunchBlockBytes = reinterpret_cast<void*>(2);

// The library's functions: name in the library, arguments. A suffix _v2 is the version with 64-bit addresses.
#define TESSERA_CUDA_FUNCTIONS(X)                                                                              \
  X(cuInit, (unsigned flags))                                                                                  \
  X(cuDriverGetVersion, (int* version))                                                                        \
  X(cuGetErrorName, (Status, const char** text))                                                               \
  X(cuGetErrorString, (Status, const char** text))                                                             \
  X(cuDeviceGetCount, (int* count))                                                                            \
  X(cuDeviceGet, (Ordinal*, int index))                                                                        \
  X(cuDeviceGetName, (char* name, int size, Ordinal))                                                          \
  X(cuDeviceGetAttribute, (int* value, DeviceAttribute, Ordinal))                                              \
  X(cuDeviceTotalMem_v2, (size_t* bytes, Ordinal))                                                             \
  X(cuDevicePrimaryCtxRetain, (ContextHandle**, Ordinal))                                                      \
  X(cuDevicePrimaryCtxRelease_v2, (Ordinal))                                                                   \
  X(cuCtxPushCurrent_v2, (ContextHandle*))                                                                     \
  X(cuCtxPopCurrent_v2, (ContextHandle**))                                                                     \
  X(cuStreamCreate, (StreamHandle**, unsigned flags))                                                          \
  X(cuStreamSynchronize, (StreamHandle*))                                                                      \
  X(cuStreamDestroy_v2, (StreamHandle*))                                                                       \
  X(cuModuleLoadDataEx, (ModuleHandle**, const void* text, unsigned options, JitOption* names, void** values)) \
  X(cuModuleGetFunction, (FunctionHandle**, ModuleHandle*, const char* name))                                  \
  X(cuModuleUnload, (ModuleHandle*))                                                                           \
  X(cuFuncSetAttribute, (FunctionHandle*, FunctionAttribute, int value))                                       \
  X(cuMemAlloc_v2, (Address*, size_t bytes))                                                                   \
  X(cuMemFree_v2, (Address))                                                                                   \
  X(cuMemGetInfo_v2, (size_t* available, size_t* total))                                                       \
  X(cuMemsetD8Async, (Address, unsigned char value, size_t bytes, StreamHandle*))                              \
  X(cuMemcpyHtoDAsync_v2, (Address, const void* from, size_t bytes, StreamHandle*))                            \
  X(cuMemcpyDtoHAsync_v2, (void* to, Address, size_t bytes, StreamHandle*))                                    \
  X(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, StreamHandle*))                             \
  X(cuLaunchKernel,                                                                                            \
    (FunctionHandle*, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,   \
     unsigned block_z, unsigned shared_bytes, StreamHandle*, void** parameters, void** extra))

class Driver {
 public:
  /// The system's library, or the one of this name, which stays open (its threads may outlast us); initialised. Null if
  /// there is none, or no GPU that it drives. Throws DeviceError if it lacks a function, or fails otherwise.
  static std::shared_ptr<const Driver> open(const std::string& library);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Throws a DeviceError: "add_vectors: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". `what` is what is
  /// being done; empty: nothing goes before the function's name.
  void check(Status, const char* function, const std::string& what, Loc loc = {}, const std::string& note = {}) const;
  std::string text(Status) const;  ///< "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"

#define TESSERA_CUDA_POINTER(name, arguments) Status(*name) arguments = nullptr;
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_POINTER)
  /// Null where the driver is older than CUDA 12.
  TESSERA_CUDA_POINTER(cuTensorMapEncodeTiled, (void* map, TensorType, unsigned rank, Address, const uint64_t* sizes,
                                                const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                                int interleaving, int swizzle, int promotion, int outside))
#undef TESSERA_CUDA_POINTER

 private:
  Driver() = default;
};

}  // namespace tessera::cuda
