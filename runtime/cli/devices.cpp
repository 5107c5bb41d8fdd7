#include <cstdio>
#include <iostream>
#include <string_view>

#include "runtime/cli/commands.h"
#include "runtime/cuda.h"
#include "runtime/device.h"

namespace tessera::cli {

namespace {
/// NVIDIA's GPUs, as its own driver shows them. Whether there is one.
bool cuda_devices() {
  std::vector<CudaDeviceInfo> all;
  try {
    all = list_cuda_devices();
  } catch (const DeviceError& e) {  // of that driver, which the others do not need
    std::cout << "  cuda: " << e.what() << "\n";
  }
  const std::optional<int> used = cuda_selected();
  for (const CudaDeviceInfo& d : all) {
    char gib[32];
    std::snprintf(gib, sizeof gib, "%.1f", static_cast<double>(d.memory_bytes) / (1 << 30));
    std::cout << (used == d.index ? "* " : "  ") << "cuda:" << d.index << ": " << d.name << "\n     compute capability "
              << d.major << "." << d.minor << ", CUDA " << d.driver_version / 1000 << "."
              << d.driver_version % 1000 / 10 << ", " << gib << " GiB";
    if (d.lacks.empty()) std::cout << ", code for " << d.target.chip;
    if (d.ends_long_kernels) std::cout << ", ends kernels that take seconds (it drives a display)";
    for (size_t i = 0; i < d.lacks.size(); ++i)
      std::cout << (i ? ", " : "\n     cannot run Tessera: lacks ") << d.lacks[i];
    std::cout << "\n";
  }
  return !all.empty();
}
}  // namespace

void devices() {
  std::vector<DeviceInfo> all;
  try {
    all = list_devices();
  } catch (const DeviceError& e) {
    if (!cuda_devices()) throw;
    std::cout << "no Vulkan device: " << e.what() << "\n";
    return;
  }
  int used = -1;
  std::string why_none;
  try {
    used = find_device().index;
  } catch (const DeviceError& e) {
    if (interpreter_selected()) std::cout << "* interpreter: calls run on the host, as TESSERA_DEVICE says\n";
    else if (!cuda_selected()) why_none = e.what();
  }
  for (const DeviceInfo& d : all) {
    char gib[32];
    std::snprintf(gib, sizeof gib, "%.1f", static_cast<double>(d.memory_bytes) / (1 << 30));
    std::cout << (d.index == used ? "* " : "  ") << d.index << ": " << d.name << "\n     " << d.kind << ", Vulkan "
              << d.api_version << ", " << gib << " GiB";
    if (!d.driver.empty()) std::cout << ", " << d.driver;
    if (d.lacks.empty()) {
      const Target& t = d.target;
      std::cout << "\n     " << t.shared_bytes / 1024 << " KiB shared memory, " << t.max_workgroup_size
                << " invocations, subgroups of " << t.subgroup_size << ", " << t.compute_units
                << (t.kind == Target::Kind::cpu ? " cores" : " compute units")
                << "\n     types beside the 32-bit ones:";
      const std::pair<bool, const char*> features[] = {{t.int8 && t.storage8, " i8"},
                                                       {t.int16 && t.storage16, " i16"},
                                                       {t.int64, " i64"},
                                                       {t.float16 && t.storage16, " f16"},
                                                       {t.float64, " f64"}};
      for (const auto& [has, name] : features)
        if (has) std::cout << name;
    } else {
      for (size_t i = 0; i < d.lacks.size(); ++i)
        std::cout << (i ? ", " : "\n     cannot run Tessera: lacks ") << d.lacks[i];
    }
    std::cout << "\n";
  }
  cuda_devices();
  if (!why_none.empty()) throw DeviceError(why_none);
}

}  // namespace tessera::cli
