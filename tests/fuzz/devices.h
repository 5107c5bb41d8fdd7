// The device of --device: a Vulkan device, or an NVIDIA GPU through NVIDIA's own driver. Each is made when it is first
// needed, for a driver must not be touched before a fork (workers.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "runtime/cuda.h"
#include "runtime/device.h"
#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

/// What --device says.
struct DeviceChoice {
  // minimum, gpu: the Vulkan device, by code for the least that Vulkan promises, or that takes it for a GPU
  enum class Kind { none, vulkan, minimum, gpu, cuda } kind = Kind::none;
  int cuda_index = 0;
  explicit operator bool() const { return kind != Kind::none; }
};
/// None if there is no such choice.
std::optional<DeviceChoice> device_choice(const std::string& text);

/// How a case is compiled for it, and run.
struct DeviceRun {
  bool general = false, strict = false;
  bool optimised = false;    // after spirv-opt
  bool little_room = false;  // for what it prints; else there is much
};

class Devices {
 public:
  explicit Devices(const DeviceChoice& choice) : choice_(choice) {}
  Devices(const Devices&) = delete;

  std::string name();
  /// The outputs of a case; `lines` receives what it prints.
  std::vector<Array> run(const Case& c, const DeviceRun& how, std::vector<std::string>& lines);
  /// The driver has given the device up: nothing more runs on it in this process.
  bool lost() const;

 private:
  std::optional<Device>& vulkan(bool little_room);
  std::optional<CudaDevice>& cuda(bool little_room);
  std::vector<Array> run(const Case& c, const Device& device, const CompileOptions& options, bool optimised) const;

  DeviceChoice choice_;
  std::optional<Device> vulkan_[2];  // by little_room
  std::optional<CudaDevice> cuda_[2];
  std::vector<std::string> printed_;
};

}  // namespace tessera::fuzz
