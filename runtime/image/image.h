// The implementation of a DeviceImage: views and descriptor sets, the commands that read the image into an array or
// write it from one, and what is said about images that will not do. Kernels access memory by addresses, so an image is
// read into an array before a kernel and written from one after it. Internal to runtime/. Read next: formats.h, kit.h,
// image.cpp, record/host_stream.h.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "runtime/image/formats.h"
#include "runtime/image/kit.h"
#include "runtime/interop.h"

namespace tessera::vulkan {

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
  uint64_t texels() const { return static_cast<uint64_t>(dims_[0] * dims_[1] * dims_[2]); }
  uint64_t packed_bytes() const { return 4 * ((texels() * format->texel_bytes() + 3) / 4); }
  std::string describe() const;
  /// Of an array with its dims but that of channels: ([layers or depth,] height, width).
  std::span<const int64_t> dims() const { return std::span(dims_).last(rank_); }

  // Commands; the caller orders the accesses to the arrays. Between transitions the image is in a layout of ours:
  // enter() and leave(), with the same layouts.
  void enter(VkCommandBuffer c, bool write, ImageLayouts layouts) const;
  void leave(VkCommandBuffer c, bool write, ImageLayouts layouts) const;
  void read(VkCommandBuffer c, const Buffer& to, DType dtype, int channels) const;
  void store(VkCommandBuffer c, const Buffer& from, DType dtype, int channels) const;
  void pack(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, const Buffer& bytes) const;
  void copy(VkCommandBuffer c, const Buffer& bytes) const;

  Device device;
  ImportedImage image;
  const ImageFormat* format;
  uint64_t used_at = 0;  // timeline value of our own last submission with it; guarded by the context's mutex

 private:
  void check_range();
  void find_uses();
  void make_views();
  void make_set(ImageKit::Way way, VkImageView view, VkDescriptorSet& set) const;
  VkFormatFeatureFlags2 features_of(VkFormat format) const;
  std::string possible(VkFormatFeatureFlags2 use) const;
  bool solid() const { return image.type == VK_IMAGE_TYPE_3D; }
  void transition(VkCommandBuffer c, ImageLayouts layouts, VkImageLayout from, VkImageLayout to, StageMask before,
                  StageMask after) const;
  VkImageLayout own_layout(bool write) const;
  void dispatch(VkCommandBuffer c, const ImageKit::Kernel& kernel, VkDescriptorSet set, std::span<const uint32_t> push,
                uint64_t items) const;
  void write(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, VkDeviceAddress bytes,
             uint64_t items) const;
  VkImageView view(VkImageUsageFlags usage) const;
  std::string role(bool write) const { return describe() + (write ? ", to be written" : ", to be read"); }
  std::string failing(const char* call) const { return "DeviceImage: " + describe() + ": " + call; }
  void release();

  int64_t dims_[3] = {1, 0, 0};  // slices, height, width
  size_t rank_ = 2;              // how many of them an array has, from the last on
  uint32_t layers_ = 1;          // of the views
  bool any_format_ = false, sampled_ = false, stored_ = false, packed_ = false;
  VkImageAspectFlags aspect_ = VK_IMAGE_ASPECT_COLOR_BIT;
  VkImageView read_view_ = VK_NULL_HANDLE, write_view_ = VK_NULL_HANDLE;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  VkDescriptorSet read_set_ = VK_NULL_HANDLE, write_set_ = VK_NULL_HANDLE;
  ImageKit::Kernel read_ = {}, write_ = {};
};

}  // namespace tessera::vulkan
