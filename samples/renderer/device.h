// A Host on whose device Tessera's kernels run, and that device as Tessera's: what the host enables for them, and what
// it says of itself. host.h knows nothing of Tessera.
#pragma once
#include <runtime/interop.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "samples/renderer/host.h"

namespace renderer {

/// With the features and extensions that Tessera needs or uses, `extensions` beside them, and under
/// TESSERA_VALIDATION=1 the validation layers.
inline std::unique_ptr<Host> make_host(HostOptions options, std::vector<const char*> extensions = {}) {
  for (const tessera::DeviceExtension& e : tessera::optional_device_extensions()) extensions.push_back(e.name);
  const char* validation = std::getenv("TESSERA_VALIDATION");
  options.validation = validation && std::string(validation) == "1";
  return std::make_unique<Host>(
      options, [](const void* has, void* enable) { tessera::enable_device_features(has, enable); }, extensions);
}

inline tessera::Device import_device(const Host& host) {
  tessera::ImportedDevice d;
  d.get_instance_proc_addr = vkGetInstanceProcAddr;
  d.instance = host.instance();
  d.api_version = VK_API_VERSION_1_3;
  d.physical_device = host.physical_device();
  d.device = host.device();
  d.queue = host.queue();
  d.queue_family = host.queue_family();
  d.instance_extensions.assign(host.instance_extensions().begin(), host.instance_extensions().end());
  tessera::enabled_by(host.created_with(), d);
  return tessera::Device::import(d);
}

}  // namespace renderer
