// The driver's data for a pipeline, kept on disk (cache_file.h): one file per pipeline and driver. The key is the
// device, its driver's version and UUIDs, and everything that the pipeline is made of; the bytes are VkPipelineCache's
// data, whose header must name this device before the driver gets it. Internal to runtime/. Read next: pipeline.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/device/probe.h"
#include "runtime/device/vulkan.h"

namespace tessera::vulkan {

/// A VkPipelineCache for one pipeline, filled from disk if there is something, and written there if it has grown; or a
/// host's own, which has nothing to do with files. Without a folder, or if the driver will not make one, handle() is
/// null, which vkCreateComputePipelines takes for none.
class PipelineFile {
 public:
  /// `code`: all that the pipeline is made of. `hosts` may be null.
  PipelineFile(const DeviceTable& vk, VkDevice device, const DriverId& driver, const std::string& code,
               VkPipelineCache hosts);
  ~PipelineFile();
  PipelineFile(const PipelineFile&) = delete;
  PipelineFile& operator=(const PipelineFile&) = delete;

  VkPipelineCache handle() const { return hosts_ ? hosts_ : cache_; }
  bool from_disk() const { return found_ > 0; }
  void store();  ///< after the pipeline has been made

  static std::string key(const DriverId& driver, const std::string& code);
  /// Whether data begins with the header of Vulkan's for this driver.
  static bool fits(const std::string& data, const DriverId& driver);

 private:
  const DeviceTable& vk_;
  VkDevice device_;
  std::optional<std::string> folder_;
  std::string key_;
  size_t found_ = 0;  // bytes from disk
  VkPipelineCache cache_ = VK_NULL_HANDLE, hosts_;
};

}  // namespace tessera::vulkan
