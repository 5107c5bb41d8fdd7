#include "tests/fuzz/devices.h"

#include <algorithm>
#include <memory>

#include "runtime/call/call.h"
#include "tests/support/judge/judge.h"

namespace tessera::fuzz {
namespace {
constexpr int64_t kRoom[] = {int64_t{64} << 20, 100};  // for prints, in bytes
}  // namespace

std::optional<DeviceChoice> device_choice(const std::string& text) {
  using Kind = DeviceChoice::Kind;
  DeviceChoice c;
  if (text == "none") return c;
  c.kind = text == "vulkan" ? Kind::vulkan : text == "minimum" ? Kind::minimum : text == "gpu" ? Kind::gpu : Kind::none;
  if (c) return c;
  try {
    const std::optional<int> index = cuda_selected(text);
    if (text.empty() || !index) return std::nullopt;
    c.kind = Kind::cuda, c.cuda_index = *index;
  } catch (const DeviceError&) {
    return std::nullopt;
  }
  return c;
}

std::optional<Device>& Devices::vulkan(bool little_room) {
  std::optional<Device>& d = vulkan_[little_room];
  if (d) return d;
  DeviceOptions o;
  o.print = [this](const std::string& line) { printed_.push_back(line); };
  o.print_bytes = kRoom[little_room];
  d.emplace(o);
  return d;
}

std::optional<CudaDevice>& Devices::cuda(bool little_room) {
  std::optional<CudaDevice>& d = cuda_[little_room];
  if (d) return d;
  CudaOptions o;
  o.print = [this](const std::string& line) { printed_.push_back(line); };
  o.print_bytes = kRoom[little_room];
  d.emplace(choice_.cuda_index, o);
  return d;
}

std::string Devices::name() {
  if (choice_.kind != DeviceChoice::Kind::cuda) return vulkan(false)->info().name;
  const CudaDeviceInfo& info = cuda(false)->info();
  return info.name + ", by code for " + info.target.chip;
}

std::vector<Array> Devices::run(const Case& c, const DeviceRun& how, std::vector<std::string>& lines) {
  CompileOptions options;
  options.general = how.general;
  options.strict = how.strict || choice_.kind == DeviceChoice::Kind::minimum;
  printed_.clear();
  std::vector<Array> outputs;
  if (choice_.kind == DeviceChoice::Kind::cuda) {
    outputs = run_on(*cuda(how.little_room), c.kernel, c.inputs, c.dims, options);
  } else {
    Device& device = *vulkan(how.little_room);
    outputs = run(c, device, options, how.optimised);
    device.wait();
  }
  lines = printed_;
  return outputs;
}

std::vector<Array> Devices::run(const Case& c, const Device& device, const CompileOptions& options,
                                bool optimised) const {
  using Kind = DeviceChoice::Kind;
  if (choice_.kind == Kind::vulkan && !optimised) return load(device, c.kernel, options).run(c.inputs, c.dims);
  Target t = choice_.kind == Kind::minimum ? minimum_target() : device.target();
  if (choice_.kind == Kind::gpu) {
    t.kind = Target::Kind::gpu;
    t.dot4_signed = t.dot4_unsigned = t.dot4_mixed = t.integer_dot;  // lavapipe has no instruction for them
  }
  t.max_loop_iterations = device.target().max_loop_iterations;
  Program program = compile(c.kernel, t, options);
  if (optimised) program.spirv = judge::optimised(program.spirv).value_or(program.spirv);
  return CompiledKernel(device, std::make_shared<const Program>(std::move(program))).run(c.inputs, c.dims);
}

bool Devices::lost() const {
  return std::any_of(std::begin(vulkan_), std::end(vulkan_), [](const auto& d) { return d && d->lost(); }) ||
         std::any_of(std::begin(cuda_), std::end(cuda_), [](const auto& d) { return d && d->lost(); });
}

}  // namespace tessera::fuzz
