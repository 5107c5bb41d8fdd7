// Interop: Tessera inside a program that already uses Vulkan: the features to enable on its device, its device as a
// Device, its buffers as DeviceArrays. This header includes Vulkan's types and calls none of its functions directly:
// all go through the vkGetInstanceProcAddr that the host gives. Only features that the host says are enabled are used:
// the Target follows from them, and no function of an extension that is not listed is looked up. Read next: record.h,
// kernels in the host's command buffers.
#pragma once
#include <vulkan/vulkan_core.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/function.h"
#include "runtime/device.h"
#include "runtime/device_array.h"

namespace tessera {

/// A feature of a device that Tessera needs or uses.
struct DeviceFeature {
  const char* name;       ///< "bufferDeviceAddress"
  const char* structure;  ///< "VkPhysicalDeviceVulkan12Features", whose member it is
  const char* gives;      ///< one sentence: what Tessera does with it
  VkStructureType type;   ///< of that structure,
  size_t offset;          ///< where the member lies
  /// of the structure that has this feature without the others of its version, with the member at `own_offset`;
  /// MAX_ENUM: none
  VkStructureType own_type;
  size_t own_offset;
};
/// What has to be enabled. Every driver of Vulkan 1.3 has all of them.
const std::vector<DeviceFeature>& required_device_features();
/// What makes code shorter or faster, and kernels of some dtypes possible, where the device has it.
const std::vector<DeviceFeature>& optional_device_features();

/// Whether the device has it enabled.
bool is_enabled(const Device& device, const DeviceFeature& feature);
/// Those of the lists that the chain at `has` shows, or with null all of them, and the chain at `enabled` has not set.
std::vector<const DeviceFeature*> missing_device_features(const void* has, const void* enabled);

/// An extension of a device that Tessera uses where it is enabled. None is needed.
struct DeviceExtension {
  const char* name;  ///< "VK_EXT_memory_budget"
  const char* gives;
};
const std::vector<DeviceExtension>& optional_device_extensions();

/// Sets in the chain that begins at `enable` (a VkDeviceCreateInfo's pNext) what required_ and
/// optional_device_features() list and the chain at `has`, which vkGetPhysicalDeviceFeatures2 has filled, shows. Other
/// members stay. Returns the names of those that no structure in `enable` has a member for.
std::vector<std::string> enable_device_features(const void* has, void* enable);

/// Device memory for one buffer, as its VkMemoryRequirements and properties say. A buffer is linear: whoever puts
/// images into the same VkDeviceMemory keeps bufferImageGranularity.
struct MemoryRequest {
  VkDeviceSize size, alignment;
  uint32_t memory_type_bits;        ///< the types that it may be of: they have what is `required`
  VkMemoryPropertyFlags required;   ///< HOST_VISIBLE and HOST_COHERENT for memory that has to be mapped, or none
  VkMemoryPropertyFlags preferred;  ///< DEVICE_LOCAL, HOST_CACHED, also HOST_VISIBLE and HOST_COHERENT
  std::string_view what;            ///< "f32[1024, 1024]", "softmax: the scratch arena of 64 workgroups"
};
/// `size` bytes from `offset` of memory that has been allocated with VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT.
struct MemoryPiece {
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceSize offset = 0, size = 0;
  uint32_t memory_type = 0;
  /// where the host sees the first byte, as long as it is ours; used where HOST_VISIBLE is required or preferred
  void* mapped = nullptr;
  void* user = nullptr;  ///< the pool's own
};
/// An engine's own allocator. Both functions are called on any thread, `free` perhaps with locks of Tessera's held:
/// they call nothing of it, and whoever holds a mutex that they take calls nothing of it either. `free` throws nothing
/// and gets each piece as it was given, when the device is done with it; the last ones when the last handle of the
/// Device goes. Out of memory is returned: then `allocate` is called once more when all calls in flight are done, and
/// what fails throws a DeviceError with a table of what is held.
struct MemoryPool {
  Function<VkResult(const MemoryRequest& request, MemoryPiece& piece)> allocate;
  Function<void(const MemoryPiece& piece)> free;
};

/// A device that the host has made and keeps. It outlives the Device and all that is made of it (arrays, kernels,
/// prepared calls); none of them destroys it, and when the last of them has gone no object of theirs is left.
/// Structures and strings pointed to are read by import() and not kept.
struct ImportedDevice {
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
  VkInstance instance = VK_NULL_HANDLE;
  uint32_t api_version = 0;  ///< VkApplicationInfo::apiVersion of the instance
  VkPhysicalDevice physical_device = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  /// with compute: what uploads, downloads and launch() submit to, and the family of the command buffers of record.h
  VkQueue queue = VK_NULL_HANDLE;
  uint32_t queue_family = 0;
  /// What has been enabled: VkDeviceCreateInfo's pNext (VkPhysicalDeviceFeatures2 and the structures of features;
  /// others are passed over) and pEnabledFeatures.
  const void* features = nullptr;
  const VkPhysicalDeviceFeatures* enabled_features = nullptr;
  std::vector<std::string> device_extensions, instance_extensions;
  /// Called around each vkQueueSubmit2 of ours, from whichever thread submits; a host that uses `queue` from several
  /// threads, or another than Tessera's calls come from, holds in them the mutex that it has for the queue. Without
  /// them the host lets no two threads use the queue at once. They call nothing of Tessera, and whoever holds that
  /// mutex calls nothing of it either. What they throw comes out of the call that submits: with lock_queue it has not
  /// submitted, with unlock_queue it has.
  Function<void()> lock_queue, unlock_queue;
  /// Where all of Tessera's device memory comes from, if it has functions: arrays, arenas, staging, tables and reports.
  /// Only shareable_array() allocates for itself, memory that can be exported. DeviceOptions::memory_limit then has no
  /// meaning.
  MemoryPool memory;
  /// Where the driver's code of all pipelines is kept, if it is given; then Tessera writes none to its own folder. Used
  /// on every thread that compiles, so made without EXTERNALLY_SYNCHRONIZED. The host keeps it as long as the device.
  VkPipelineCache pipeline_cache = VK_NULL_HANDLE;
};

/// Takes extensions and features from what the host has made its device with.
void enabled_by(const VkDeviceCreateInfo& info, ImportedDevice& device);

/// A range of a VkBuffer of the host's, which keeps it alive until no call uses the array any more
/// (DeviceArray::wait_unused(), and its own fences for what is recorded).
struct ImportedBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceSize size = 0;  ///< of the whole buffer, VkBufferCreateInfo::size
  /// VkBufferCreateInfo::usage: with SHADER_DEVICE_ADDRESS; TRANSFER_SRC for download(), TRANSFER_DST for write()
  VkBufferUsageFlags usage = 0;
  VkDeviceSize offset = 0;  ///< where the array begins
};
/// The range as an array: contents and memory are the host's, shared. The buffer belongs to the imported queue's family
/// (or is concurrent). Throws SpecError if the array does not fit or lies badly, if the usage lacks what addresses
/// need, or if a part of the range is an array of this Device already.
DeviceArray import_buffer(const Device& device, const ImportedBuffer& buffer, Shape shape, DType dtype);

/// Memory that another device or process shares by a file descriptor (VK_KHR_external_memory_fd, OPAQUE_FD), of the
/// same driver and GPU.
struct SharedMemory {
  int fd = -1;
  uint64_t size = 0;         ///< VkMemoryAllocateInfo::allocationSize,
  uint32_t memory_type = 0;  ///< and memoryTypeIndex, of whoever allocated it
  /// allocated for one buffer: VkMemoryDedicatedAllocateInfo; then that has the usage of ImportedBuffer's own arrays,
  /// STORAGE_BUFFER, SHADER_DEVICE_ADDRESS and both TRANSFER
  bool dedicated = false;
  uint64_t offset = 0;  ///< where the array begins
};
/// An array in memory that share() can give away. Its contents are unspecified. Throws DeviceError where the extension
/// is not enabled.
DeviceArray shareable_array(const Device& device, Shape shape, DType dtype);
/// A new descriptor of its memory, which the caller closes or hands to import_memory(). Throws SpecError if the array
/// is none of shareable_array()'s.
SharedMemory share(const DeviceArray& array);
/// An array in memory of another owner. On success the descriptor has been closed or is the driver's, otherwise it is
/// still the caller's. Who writes when is the sharers' to agree on.
DeviceArray import_memory(const Device& device, const SharedMemory& memory, Shape shape, DType dtype);

/// One level of a VkImage of the host's, of one sample and in optimal tiling: one layer of it, several layers, or all
/// of a 3-D image's level. The host keeps it alive as it keeps an ImportedBuffer's.
struct ImportedImage {
  VkImage image = VK_NULL_HANDLE;
  /// The image's, or one that its views may have: R, RG and RGBA of 8 bits (UNORM, SNORM, UINT, SINT, SRGB), 16 bits
  /// (UNORM, SNORM, UINT, SINT, SFLOAT) and 32 bits (UINT, SINT, SFLOAT), BGRA8 (as of 8 bits), A2B10G10R10 and
  /// A2R10G10B10 (UNORM, UINT), B10G11R11 UFLOAT. E5B9G9R9 UFLOAT and depth (D16, X8_D24, D32, D16_S8, D24_S8, D32_S8)
  /// are only read. Which of these a device has depends on it.
  VkFormat format = VK_FORMAT_UNDEFINED;
  VkExtent2D extent = {};  ///< of that level
  /// VkImageCreateInfo::usage: SAMPLED to be read; STORAGE, or TRANSFER_DST where the device stores nothing of that
  /// format, to be written
  VkImageUsageFlags usage = 0;
  uint32_t mip_level = 0, array_layer = 0;
  /// 0: the layer array_layer alone, an array without a dim of layers; otherwise so many layers from that one on, in an
  /// array whose first dim they are. VK_REMAINING_ARRAY_LAYERS: the rest of array_layers. The faces of a cube are
  /// layers, in Vulkan's order.
  uint32_t layer_count = 0;
  VkImageType type = VK_IMAGE_TYPE_2D;  ///< or 3D: then array_layer and layer_count are 0
  uint32_t depth = 1;                   ///< of that level of a 3-D image, the array's first dim
  /// How many levels and layers the whole image has; 0: not said, then it is not checked that it has those above.
  uint32_t mip_levels = 0, array_layers = 0;
};
/// What the image is in when commands reach it, and what they leave it in; `before` may be UNDEFINED for an image that
/// is written, all of it.
struct ImageLayouts {
  VkImageLayout before = VK_IMAGE_LAYOUT_UNDEFINED, after = VK_IMAGE_LAYOUT_GENERAL;
};

namespace vulkan {
class ImageState;
}

/// An image as an argument of kernels (record.h), or to be read into arrays and written from them. Its array is
/// (height, width, C), C of its channels in the order red, green, blue, alpha, or (height, width), the first channel
/// alone. Layers, or the slices of a 3-D image, are one more dim before these: (layers, height, width, C), (depth,
/// height, width). What an array lacks is written as 0, and alpha as 1. Normalized and floating-point formats have
/// arrays of f32, f16 and bf16: UNORM from 0 to 1, SNORM from -1 to 1, SRGB linear numbers, as sampling gives them.
/// UNORM and SNORM of 8 and 16 bits also have u8, u16, i8, i16, the stored numbers. UINT has u32, SINT i32, and either
/// integers as wide as its channels. Written numbers are clamped to what the format has, and NaN becomes 0, in UNORM,
/// SNORM, SRGB, UINT and SINT; they go to the nearest that it has, from halfway to the one further from 0, in SRGB on
/// the curve of IEC 61966-2-1. SFLOAT and UFLOAT go to the nearest, from halfway to the even one. Of 16 bits, what is
/// too large is infinity. B10G11R11 has no sign: what is negative, also -infinity, is 0; what is finite and too large
/// is its largest number, 65024, of blue 64512; infinity and NaN stay. This is the same on every device, whether it
/// stores to the format or not. Reading is the device's sampling: how exact its floats are is Vulkan's matter, and
/// SNORM's two least numbers both read as -1. An image with depth and stencil changes its layout as a whole,
/// unless one of the ImageLayouts is one of depth alone. Copies share it; the last one waits for read_image() and
/// write_image() and destroys the views, not the image.
class DeviceImage {
 public:
  /// Makes views and pipelines. Throws SpecError where format, usage, level or layers will not do.
  DeviceImage(const Device& device, const ImportedImage& image);
  const ImportedImage& image() const;
  int channels() const;
  Shape shape() const;  ///< of an array of all its channels

  const std::shared_ptr<vulkan::ImageState>& state() const { return state_; }  ///< for runtime/ itself

 private:
  std::shared_ptr<vulkan::ImageState> state_;
};

/// The texels as a new array, `channels` of each or all; in the order of calls on the Device, without waiting. Throws
/// SpecError.
DeviceArray read_image(const DeviceImage& image, DType dtype, ImageLayouts layouts, int channels = 0);
/// The array into the image, likewise.
void write_image(const DeviceImage& image, const DeviceArray& array, ImageLayouts layouts);

/// Timeline semaphores of the host's, for calls on the Device itself: what is called from now on runs after `semaphore`
/// has reached `value`,
void wait_for(const Device& device, VkSemaphore semaphore, uint64_t value);
/// and this sets it to `value` once all calls so far are done; throws SpecError if it has that value already, or will
/// by an earlier signal() here. Neither waits on the host. The host signals what is waited for: Device::wait() and
/// download() would not return before.
void signal(const Device& device, VkSemaphore semaphore, uint64_t value);

}  // namespace tessera
