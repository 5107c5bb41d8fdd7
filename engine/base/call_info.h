// CallInfo: what a kernel's caller states besides the computation: metadata, a cost, parameters for compilers. It
// travels with the Kernel through vmap, passes and the text form to the Program and `explain`. A kernel's results do
// not depend on it. Read next: passes/cost.h (a cost computed from the kernel), call/compiler_params.h (how C++
// programs give the parameters).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/extent.h"

namespace tessera {

/// Of one call, all programs together. Sizes that arrive with the call may occur in it.
struct CostEstimate {
  Extent flops = 0, transcendentals = 0, bytes_accessed = 0, remote_bytes_transferred = 0;
  bool operator==(const CostEstimate&) const = default;
};
/// "1024 flops, 8 transcendentals, 64 bytes accessed", and the bytes to other devices if they are not 0.
std::string to_string(const CostEstimate& c);

namespace ir {

/// A parameter for one of Pallas's backends as text: {"triton", "num_warps", "4"}.
struct CompilerParam {
  std::string backend, name, value;
  bool operator==(const CompilerParam&) const = default;
};
/// The backends that have parameters: "mosaic_tpu", "triton", "mosaic_gpu".
const std::vector<std::string_view>& compiler_param_backends();
/// What is wrong with a parameter ("there is no compiler parameter num_wraps of triton: ..."), or nothing.
std::optional<std::string> problem(const CompilerParam& p);

struct CallInfo {
  std::map<std::string, std::string> metadata;
  std::optional<CostEstimate> cost_estimate;   // as given; estimate_cost() computes one
  std::vector<CompilerParam> compiler_params;  // dimension_semantics is in the grid's axes
  bool debug = false;                          // print the kernel after each step; not in the text form

  const CompilerParam* compiler_param(std::string_view backend, std::string_view name) const;
};

/// {"author": "me", "version": "2"}, in the order of the keys, escaped as JSON wants it.
std::string to_json(const std::map<std::string, std::string>& metadata);

}  // namespace ir
}  // namespace tessera
