// VulkanRunner where no loader can be linked (cross-compiled tests): there is no device.
#include "engine/base/error.h"
#include "tests/support/vulkan_runner.h"

namespace tessera::test {

std::unique_ptr<VulkanRunner> VulkanRunner::open(std::string& why) {
  why = "these tests are built without a Vulkan loader";
  return nullptr;
}
VulkanRunner::~VulkanRunner() = default;
void VulkanRunner::run(const std::vector<uint32_t>&, const Dispatch&) { throw DeviceError("there is no device"); }

}  // namespace tessera::test
