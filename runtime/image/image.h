// The implementation of images: formats, the pipelines that turn texels into arrays and back (shaders/image_read.comp,
// image_write.comp), and the state of a DeviceImage. Kernels access memory by addresses, so an image is read into an
// array before a kernel and written from one after it. Internal to runtime/. Read next: image.cpp,
// record/host_stream.h.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/image/staging.h"
#include "runtime/interop.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {

struct ImageFormat {
  VkFormat format;
  const char* name;
  int channels;
  int kind;             // of its numbers: 0 float, 1 unsigned, 2 signed
  bool normalized8;     // channels of 8 bits between 0 and 1: arrays of u8 hold the bytes
  int packing;          // the shader's number for its texels as bytes; -1: none, it cannot be written
  const char* storage;  // the shader's name for it as a storage image that every device has, or null
  uint32_t bytes;       // of a texel
};
const ImageFormat* find_format(VkFormat format);
std::string format_name(VkFormat format);

/// What all images of a Context share. Made with its first one.
class ImageKit {
 public:
  explicit ImageKit(Context& context);
  ~ImageKit();
  ImageKit(const ImageKit&) = delete;
  ImageKit& operator=(const ImageKit&) = delete;

  enum class Way : uint8_t { read, store, pack };
  struct Kernel {
    VkPipeline pipeline;
    VkPipelineLayout layout;
  };
  /// `any_format`: the device stores to that one by code that does not name it.
  Kernel kernel(Way way, const ImageFormat& format, bool any_format);
  VkDescriptorSetLayout set_layout(Way way) const { return sets_[way == Way::read ? 0 : 1]; }
  /// Made with its first user, gone with its last.
  std::shared_ptr<Staging> staging();

 private:
  void release();

  Context& context_;
  VkDescriptorSetLayout sets_[2] = {};  // sampled, storage
  VkPipelineLayout layouts_[3] = {};    // by Way
  std::mutex mutex_;
  std::map<std::string, VkPipeline> pipelines_;
  std::weak_ptr<Staging> staging_;
};

ImageKit& images_of(Context& context);

class ImageState {
 public:
  ImageState(const Device& device, const ImportedImage& image);
  ~ImageState();  ///< waits for calls of our own that use it
  ImageState(const ImageState&) = delete;
  ImageState& operator=(const ImageState&) = delete;

  /// `where` begins the SpecError. Number of the array's channels.
  int check_shape(const std::string& where, const Shape& shape, DType dtype) const;
  static bool good(ImageLayouts layouts, bool writes);
  void check_layouts(const std::string& where, ImageLayouts layouts, bool writes) const;
  void check_read(const std::string& where) const;
  void check_write(const std::string& where) const;
  bool alike(const ImageState& other, const Shape& shape) const;
  bool packed() const { return packed_; }  // stored by way of its bytes and a copy
  uint64_t packed_bytes() const {
    return uint64_t{4} * ((uint64_t{image.extent.width} * image.extent.height * format->bytes + 3) / 4);
  }
  std::string describe() const;

  // Commands; the caller orders the accesses to the arrays. Between transitions the image is in a layout of ours:
  // enter() and leave().
  void enter(VkCommandBuffer c, bool write, VkImageLayout from) const;
  void leave(VkCommandBuffer c, bool write, VkImageLayout to) const;
  void read(VkCommandBuffer c, const Buffer& to, DType dtype, int channels) const;
  void store(VkCommandBuffer c, const Buffer& from, DType dtype, int channels) const;
  void pack(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, const Buffer& bytes) const;
  void copy(VkCommandBuffer c, const Buffer& bytes) const;

  Device device;
  ImportedImage image;
  const ImageFormat* format;
  uint64_t used_at = 0;  // timeline value of our own last submission with it; guarded by the context's mutex

 private:
  void transition(VkCommandBuffer c, VkImageLayout from, VkImageLayout to, StageMask before, StageMask after) const;
  VkImageLayout own_layout(bool write) const;
  void dispatch(VkCommandBuffer c, const ImageKit::Kernel& kernel, VkDescriptorSet set, std::span<const uint32_t> push,
                uint64_t items) const;
  VkImageView view(VkImageUsageFlags usage) const;
  std::string role(bool write) const { return describe() + (write ? ", to be written" : ", to be read"); }
  std::string failing(const char* call) const { return "DeviceImage: " + describe() + ": " + call; }
  void release();

  bool sampled_ = false, stored_ = false, packed_ = false;
  VkImageAspectFlags aspect_ = VK_IMAGE_ASPECT_COLOR_BIT;
  VkImageView read_view_ = VK_NULL_HANDLE, write_view_ = VK_NULL_HANDLE;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  VkDescriptorSet read_set_ = VK_NULL_HANDLE, write_set_ = VK_NULL_HANDLE;
  ImageKit::Kernel read_ = {}, write_ = {};
};

}  // namespace tessera::vulkan
