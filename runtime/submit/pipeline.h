// Pipeline: a Program's code as a Vulkan pipeline of one device. Made once per code and kept as long as the device; see
// Context::pipeline. Internal to runtime/. Read next: launch.h.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "runtime/device/vulkan.h"

namespace tessera::vulkan {

class Context;

class Pipeline {
 public:
  /// The program is within the device's limits. Throws DeviceError if the driver fails.
  Pipeline(Context& context, const Program& program);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  VkPipeline handle() const { return pipeline_; }
  VkPipelineLayout layout() const { return layout_; }

  /// Of what makes a pipeline: some words of the code, push constants and subgroup size.
  static uint64_t hash(const Program& program);
  /// Programs that agree in all of that share one.
  bool is_for(const Program& program) const;
  bool from_disk() const { return from_disk_; }

 private:
  Context& context_;
  std::vector<uint32_t> spirv_;
  uint32_t push_bytes_;
  int32_t subgroup_size_;
  bool from_disk_ = false;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
};

/// Throws CompileError if the program needs more shared memory, push constants or invocations than the device has, or a
/// subgroup size that it cannot give.
void check_limits(const Program& program, const Target& target);

/// Bytes of push constants that the code itself declares: the whole block, or the address of the table that holds it.
uint32_t pushed_bytes(const Program& program);

}  // namespace tessera::vulkan
