// Parameters for compilers, as Pallas's dataclasses of the same names: ts::CompilerParams for Tessera itself, and one
// struct for each of Pallas's backends, so that a kernel keeps the parameters written for them. Of those, Tessera reads
// dimension_semantics (and the rule that grid axes of Triton's and Mosaic GPU's calls are parallel) and num_warps.
// `tessera explain` lists the others as not used.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/call_info.h"

namespace tessera {

struct CompilerParams {
  /// Per grid axis "parallel" (its programs may run in any order or at once, and share no scratch) or "arbitrary" (in
  /// order).
  std::vector<std::string> dimension_semantics = {};
  /// Sums of floats by atomic_add may take effect in any order, so that programs may run at once: their last bits may
  /// differ from run to run.
  bool allow_float_atomics = false;
};

namespace tpu {
struct CompilerParams {
  std::vector<std::string> dimension_semantics =
      {};  ///< "parallel", "core_parallel", "subcore_parallel" or "arbitrary" per grid axis
  std::optional<std::vector<bool>> allow_input_fusion = std::nullopt;
  std::optional<int64_t> vmem_limit_bytes = std::nullopt;
  std::optional<int64_t> collective_id = std::nullopt;
  std::optional<bool> has_side_effects = std::nullopt;
  std::map<std::string, std::string> flags = {};
  std::optional<int64_t> internal_scratch_in_bytes = std::nullopt;
  std::optional<int64_t> serialization_format = std::nullopt;
  std::optional<bool> disable_bounds_checks = std::nullopt;
  std::optional<bool> disable_semaphore_checks = std::nullopt;
  std::optional<bool> skip_device_barrier = std::nullopt;
  std::optional<bool> allow_collective_id_without_custom_barrier = std::nullopt;
  std::optional<bool> shape_invariant_numerics = std::nullopt;
  std::optional<bool> use_tc_tiling_on_sc = std::nullopt;
  std::optional<bool> needs_layout_passes = std::nullopt;
  std::optional<bool> fuse_transposed_lhs_in_matmul = std::nullopt;
};
}  // namespace tpu

namespace triton {
/// With these, every grid axis is parallel.
struct CompilerParams {
  std::optional<int64_t> num_warps = std::nullopt;  ///< 32 invocations each: on GPUs the size of the workgroups
  std::optional<int64_t> num_stages = std::nullopt;
};
}  // namespace triton

namespace mosaic_gpu {
struct CompilerParams {
  std::optional<bool> approx_math = std::nullopt;
  std::vector<std::string> dimension_semantics =
      {};  ///< "parallel" or "sequential" per grid axis; absent: parallel, all of them
  std::optional<int64_t> max_concurrent_steps = std::nullopt;
  std::optional<int64_t> delay_release = std::nullopt;
  std::optional<bool> unsafe_no_auto_barriers = std::nullopt;
  std::optional<int64_t> reduction_scratch_bytes = std::nullopt;
  std::optional<int64_t> profile_space = std::nullopt;
  std::optional<std::string> profile_dir = std::nullopt;
  std::optional<std::string> profile_trace_scope = std::nullopt;
  std::optional<std::string> lowering_semantics = std::nullopt;
};
}  // namespace mosaic_gpu

/// pallas_call's compiler_params: absent, one struct, or one per backend: {{"triton",
/// ts::triton::CompilerParams{.num_warps = 4}}, ...}, where "vulkan" names Tessera's own. With several a grid axis is
/// parallel if all of them say so, or if Tessera's own do where they are given.
class BackendCompilerParams {
 public:
  using One = std::variant<CompilerParams, tpu::CompilerParams, triton::CompilerParams, mosaic_gpu::CompilerParams>;
  // Defined in the source: inline, they are a seventh of what a program compiles of Tessera's headers. NOLINTBEGIN:
  // implicit on purpose.
  BackendCompilerParams();
  BackendCompilerParams(std::nullopt_t);
  BackendCompilerParams(CompilerParams p);
  BackendCompilerParams(tpu::CompilerParams p);
  BackendCompilerParams(triton::CompilerParams p);
  BackendCompilerParams(mosaic_gpu::CompilerParams p);
  BackendCompilerParams(std::map<std::string, One> p);
  BackendCompilerParams(std::initializer_list<std::pair<const std::string, One>> p);
  // NOLINTEND
  BackendCompilerParams(const BackendCompilerParams&);
  BackendCompilerParams(BackendCompilerParams&&) noexcept;
  BackendCompilerParams& operator=(const BackendCompilerParams&);
  BackendCompilerParams& operator=(BackendCompilerParams&&) noexcept;
  ~BackendCompilerParams();
  const std::vector<std::pair<std::string, One>>& given() const { return given_; }

 private:
  std::vector<std::pair<std::string, One>> given_;
};

namespace spec {
/// What compiler_params come to: parallel axes (empty: none is declared so), and the parameters of Pallas's backends as
/// text.
struct ReadCompilerParams {
  std::vector<bool> parallel;
  std::vector<ir::CompilerParam> others;
  bool allow_float_atomics = false;
};
/// What is wrong, and what to do; pallas_call adds the kernel and the line.
struct CompilerParamsProblem {
  std::string what, note;
};
/// Throws CompilerParamsProblem.
ReadCompilerParams read(const BackendCompilerParams& params, size_t grid_rank);
}  // namespace spec

}  // namespace tessera
