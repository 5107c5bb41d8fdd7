// launch: one call of a Program on device arrays. It checks and binds the arguments, makes the outputs and records the
// dispatch. It does not wait for the device, except for an open-ended Program (Program::open_ended).
// codegen/program/program.h defines Program.
#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device_array.h"

namespace tessera {

/// Values of the program's run-time sizes: matched from the inputs' shapes, with `given` for those that no input shows
/// (engine/base/bind.h).
DimValues bind_dims(const Program& program, const std::vector<std::pair<DType, Shape>>& inputs,
                    const DimValues& given = {});

/// What a call with such inputs makes.
std::vector<std::pair<DType, Shape>> output_types(const Program& program,
                                                  const std::vector<std::pair<DType, Shape>>& inputs,
                                                  const DimValues& given = {});

/// The outputs, in order. What the program does not write of them is unspecified, or where they are aliased to an input
/// its contents. Inputs are not changed: an aliased one is copied, unless it is donated: launch(device, program,
/// {donate(x)}). Throws SpecError on arguments that do not fit, CompileError if the program exceeds the device's
/// limits, DeviceError if Vulkan fails.
std::vector<DeviceArray> launch(const Device& device, const Program& program, const std::vector<DeviceArray>& inputs,
                                const DimValues& dims = {});

/// The same into arrays of the caller's, which it returns, one per output: of its dtype and shape, and no argument of
/// the call, except that an array without memory (DeviceArray()) stands for the donated argument that the output is
/// aliased to.
std::vector<DeviceArray> launch_into(const Device& device, const Program& program,
                                     const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs,
                                     const DimValues& dims = {});

/// Makes the program's pipeline now rather than at its first launch. Several threads may do so at once.
void prepare(const Device& device, const Program& program);

/// Pipelines that a device has made: by the driver's compiler alone, or from what TESSERA_CACHE held of it.
struct PipelineCounts {
  uint64_t made = 0, from_disk = 0;
};
PipelineCounts pipeline_counts(const Device& device);

/// `count` workgroups over three dimensions of at most `limits`, with as few surplus ones as can be: the product is at
/// least `count`.
std::array<uint32_t, 3> fold_workgroups(int64_t count, const std::array<uint32_t, 3>& limits);

}  // namespace tessera
