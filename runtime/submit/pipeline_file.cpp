#include "runtime/submit/pipeline_file.h"

#include <cstdio>
#include <cstring>

#include "runtime/device/names.h"
#include "runtime/submit/cache_file.h"

namespace tessera::vulkan {
namespace {
constexpr const char* kKind = "pipeline";
// VkPipelineCacheHeaderVersionOne: its size, version, vendor and device, 4 bytes each, and the UUID
constexpr size_t kHeader = 16 + VK_UUID_SIZE;

std::string hex(const uint8_t (&uuid)[VK_UUID_SIZE]) {
  std::string s;
  for (uint8_t b : uuid) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", b);
    s += digits;
  }
  return s;
}
}  // namespace

std::string PipelineFile::key(const DriverId& d, const std::string& code) {
  std::string k = d.name + "\n";
  for (uint32_t v : {d.vendor, d.device, d.version, d.api}) k += std::to_string(v) + " ";
  return k + hex(d.cache_uuid) + " " + hex(d.driver_uuid) + "\n" + code;
}

bool PipelineFile::fits(const std::string& data, const DriverId& d) {
  if (data.size() < kHeader) return false;
  uint32_t head[4];
  std::memcpy(head, data.data(), sizeof head);
  return head[0] >= kHeader && head[0] <= data.size() && head[1] == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
         head[2] == d.vendor && head[3] == d.device &&
         std::memcmp(data.data() + sizeof head, d.cache_uuid, VK_UUID_SIZE) == 0;
}

PipelineFile::PipelineFile(const DeviceTable& vk, VkDevice device, const DriverId& driver, const std::string& code,
                           VkPipelineCache hosts)
    : vk_(vk), device_(device), hosts_(hosts) {
  if (!hosts_) folder_ = cache_file::folder();
  if (!folder_) return;
  key_ = key(driver, code);
  std::optional<std::string> data = cache_file::read(*folder_, kKind, key_);
  if (data && !fits(*data, driver)) {
    cache_file::say_broken(cache_file::path(*folder_, kKind, key_));
    data.reset();
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  if (data) {
    info.initialDataSize = data->size();
    info.pInitialData = data->data();
    if (vk_.vkCreatePipelineCache(device_, &info, vk_.host, &cache_) >= 0) {
      found_ = data->size();
      name_object(vk_, device_, cache_, "Tessera's cache of one pipeline");
      return;
    }
    info.initialDataSize = 0;
    info.pInitialData = nullptr;
  }
  if (vk_.vkCreatePipelineCache(device_, &info, vk_.host, &cache_) < 0) cache_ = VK_NULL_HANDLE;  // then without
  name_object(vk_, device_, cache_, "Tessera's cache of one pipeline");
}

PipelineFile::~PipelineFile() {
  if (cache_) vk_.vkDestroyPipelineCache(device_, cache_, vk_.host);
}

void PipelineFile::store() {
  if (!cache_) return;
  size_t size = 0;
  if (vk_.vkGetPipelineCacheData(device_, cache_, &size, nullptr) < 0 || size == 0 || size == found_) return;
  std::string data(size, '\0');
  // VK_INCOMPLETE: half of it is of no use
  if (vk_.vkGetPipelineCacheData(device_, cache_, &size, data.data()) != VK_SUCCESS) return;
  data.resize(size);
  cache_file::write(*folder_, kKind, key_, data, "kernels are compiled in every process");
}

}  // namespace tessera::vulkan
