#include "runtime/device/choose.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace tessera::vulkan {
namespace {

std::string lower(std::string s) {
  for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

std::string listing(const std::vector<Probe>& probes) {
  std::string s;
  for (const Probe& p : probes) {
    s += "\n  " + std::to_string(p.info.index) + ": " + p.info.name;
    for (size_t i = 0; i < p.info.lacks.size(); ++i) s += (i ? ", " : " (lacks ") + p.info.lacks[i];
    if (!p.info.lacks.empty()) s += ")";
  }
  return s;
}

int rank(const std::string& kind) {
  const char* order[] = {"discrete GPU", "integrated GPU", "virtual GPU", "CPU"};
  return static_cast<int>(std::find(order, order + 4, kind) - order);
}

// Kinds in their order; of CPU drivers side by side one that lets loops run to their end, then the newest of the same
// maker's.
bool better(const Probe& a, const Probe& b) {
  if (rank(a.info.kind) != rank(b.info.kind)) return rank(a.info.kind) < rank(b.info.kind);
  if (a.info.target.kind != Target::Kind::cpu || b.info.target.kind != Target::Kind::cpu) return false;
  const bool cut = a.info.target.max_loop_iterations != 0, other_cut = b.info.target.max_loop_iterations != 0;
  if (cut != other_cut) return other_cut;
  return a.driver.vendor == b.driver.vendor && a.driver.device == b.driver.device &&
         a.driver.version > b.driver.version;
}

/// A part of a device's name, or its index, from what people write: Python's "vulkan" and "vulkan:NAME", and Mesa's
/// driver for the CPU by its own name.
std::string named(const std::string& given) {
  std::string s = lower(given);
  if (s == "vulkan") return "";
  if (s.starts_with("vulkan:")) s.erase(0, 7);
  return s == "lavapipe" ? "llvmpipe" : s;
}

}  // namespace

size_t choose(const std::vector<Probe>& probes, const DeviceOptions& options) {
  const std::string from_environment = options.select.empty() ? device_in_environment() : "";
  const std::string given = options.select.empty() ? from_environment : options.select;
  const std::string wanted = named(given);
  if (!wanted.empty()) {
    const std::string asked = (from_environment.empty() ? "device \"" : "TESSERA_DEVICE=\"") + given + "\"";
    const bool is_index = wanted.size() < 10 &&
                          std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isdigit(c); });
    for (size_t i = 0; i < probes.size(); ++i) {
      const bool fits = is_index ? probes[i].info.index == std::stoi(wanted)
                                 : lower(probes[i].info.name).find(wanted) != std::string::npos;
      if (!fits) continue;
      if (!probes[i].info.lacks.empty())
        throw DeviceError(asked + " cannot run Tessera; the Vulkan devices are:" + listing(probes));
      return i;
    }
    const bool host = from_environment == "interpreter", cuda = wanted == "cuda" || wanted.starts_with("cuda:");
    throw DeviceError(asked +
                      (host   ? " runs calls of host arrays on the host, and"
                       : cuda ? " runs calls of host arrays through NVIDIA's driver, and"
                              : "") +
                      " is none of the Vulkan devices:" + listing(probes));
  }
  size_t best = probes.size();
  for (size_t i = 0; i < probes.size(); ++i)
    if (probes[i].info.lacks.empty() && (best == probes.size() || better(probes[i], probes[best]))) best = i;
  if (best == probes.size())
    throw DeviceError("no Vulkan device can run Tessera:" + listing(probes), {},
                      "update the driver, or set TESSERA_DEVICE=interpreter to run kernels on the host");
  return best;
}

std::vector<Probe> probe_all(const Instance& instance, const std::vector<VkPhysicalDevice>& devices) {
  std::vector<Probe> probes;
  for (VkPhysicalDevice d : devices) probes.push_back(probe(instance, d, static_cast<int>(probes.size())));
  return probes;
}

}  // namespace tessera::vulkan

namespace tessera {

std::string device_in_environment() {
  const char* named = std::getenv("TESSERA_DEVICE");
  return named ? named : "";
}

bool interpreter_selected(std::string_view select) {
  return (select.empty() ? device_in_environment() : select) == "interpreter";
}

std::vector<DeviceInfo> list_devices(const DeviceOptions& options) {
  const vulkan::Instance instance(options.library, vulkan::Validation::off);
  std::vector<DeviceInfo> infos;
  for (vulkan::Probe& p : vulkan::probe_all(instance, instance.physical_devices())) infos.push_back(std::move(p.info));
  return infos;
}

DeviceInfo find_device(const DeviceOptions& options) {
  const vulkan::Instance instance(options.library, vulkan::Validation::off);
  const std::vector<vulkan::Probe> probes = vulkan::probe_all(instance, instance.physical_devices());
  return probes[vulkan::choose(probes, options)].info;
}

}  // namespace tessera
