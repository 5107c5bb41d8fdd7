// ImageKit: what all images of a Context share, made with its first one: layouts, and the pipelines that turn texels
// into arrays and back (shaders/image_read.comp, image_write.comp). Internal to runtime/. Read next: image.h.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/image/formats.h"
#include "runtime/image/staging.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {

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
  /// Reading has one for all formats of a kind, writing one per format. For images of two dimensions, with layers, or
  /// of three. `any_format`: the device stores to this format by code that does not name it.
  Kernel kernel(Way way, const ImageFormat& format, bool solid, bool any_format);
  VkDescriptorSetLayout set_layout(Way way) const { return sets_[way == Way::read ? 0 : 1]; }
  /// Made with its first user, gone with its last.
  std::shared_ptr<Staging> staging();

 private:
  void release();

  Context& context_;
  VkDescriptorSetLayout sets_[2] = {};  // sampled, storage
  VkPipelineLayout layouts_[3] = {};    // by Way
  std::mutex mutex_;
  std::map<std::string, VkPipeline> pipelines_;  // by name
  std::weak_ptr<Staging> staging_;
};

ImageKit& images_of(Context& context);

}  // namespace tessera::vulkan
