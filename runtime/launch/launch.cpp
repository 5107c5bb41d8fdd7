#include "runtime/launch.h"

#include <algorithm>

#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/launch/one_launch.h"

namespace tessera {

DimValues bind_dims(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs, const DimValues& given) {
  return bind_dims(call_signature(p), inputs, given);
}

std::vector<std::pair<DType, Shape>> output_types(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs,
                                                  const DimValues& given) {
  const CallSignature call = call_signature(p);
  const DimValues dims = bind_dims(call, inputs, given);
  std::vector<std::pair<DType, Shape>> types;
  for (size_t i = inputs.size(); i < p.args.size(); ++i) types.emplace_back(p.args[i].dtype, bind_shape(call, i, dims));
  return types;
}

std::array<uint32_t, 3> fold_workgroups(int64_t count, const std::array<uint32_t, 3>& limits) {
  auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t z = up(count, static_cast<int64_t>(limits[0]) * limits[1]);
  const int64_t y = up(up(count, z), limits[0]);
  const int64_t x = up(up(count, z), y);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

void prepare(const Device& device, const Program& program) { device.context()->pipeline(program); }
PipelineCounts pipeline_counts(const Device& device) {
  return {device.context()->pipelines_made, device.context()->pipelines_from_disk};
}

namespace {
std::vector<DeviceArray> run(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                             const std::vector<DeviceArray>* into, const DimValues& dims) {
  vulkan::Launch call(device, p, inputs);
  call.prepare(into, dims);
  vulkan::Launch* const calls[] = {&call};
  vulkan::Launch::submit(calls, p.name, p.loc);
  return std::move(call.outputs());
}
}  // namespace

std::vector<DeviceArray> launch(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                const DimValues& dims) {
  return run(device, p, inputs, nullptr, dims);
}

std::vector<DeviceArray> launch_into(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                     const std::vector<DeviceArray>& outputs, const DimValues& dims) {
  if (outputs.size() + inputs.size() != p.args.size())
    throw SpecError(p.name + ": gives " + plural(p.args.size() - std::min(p.args.size(), inputs.size()), "output") +
                        " but " + plural_is(outputs.size(), "array") + " given for them",
                    p.loc);
  return run(device, p, inputs, &outputs, dims);
}

}  // namespace tessera
