// VulkanTimer: kernels and hand-written shaders on one Vulkan device, timed by its timestamps around a batch of
// dispatches in one command buffer, a barrier after each: what the host does is in no time, the barrier is. Read next:
// main.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/kernel.h"
#include "runtime/device.h"
#include "runtime/device_array.h"
#include "tests/bench/gpu/time/contender.h"
#include "tests/bench/gpu/time/suite_files.h"

namespace tessera {
struct Program;
}

namespace tessera::bench {

/// The arrays of a kernel on the device: some sets with equal contents, and what outputs begin with.
struct VulkanArrays {
  std::vector<std::vector<DeviceArray>> sets;  // inputs, then outputs; an aliased input is its output
  std::vector<DeviceArray> begin;              // of each output
  size_t num_inputs = 0;
};

class VulkanTimer {
 public:
  explicit VulkanTimer(const DeviceOptions& options);
  const Device& device() const { return device_; }

  /// Ours, as a user gets it, and the pipeline; on any thread.
  std::shared_ptr<const Program> load(const ir::Kernel& kernel) const;
  /// A hand-written shader in its place, and the pipeline; on any thread.
  std::shared_ptr<const Program> load(const Program& ours, const ShaderRow& row) const;

  VulkanArrays arrays(const ir::Kernel& kernel, const std::vector<Array>& inputs, int sets) const;
  std::unique_ptr<Contender> contender(std::shared_ptr<const Program> program, const VulkanArrays& arrays);
  /// Copies from one part of the device's memory to another.
  std::unique_ptr<Contender> copy(int64_t bytes);

 private:
  Device device_;
};

}  // namespace tessera::bench
