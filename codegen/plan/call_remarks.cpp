#include "codegen/plan/call_remarks.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "engine/passes/cost.h"

namespace tessera::lowering {

std::optional<int> hinted_workgroup(const ir::Kernel& k, const Target& target) {
  const ir::CompilerParam* warps = k.call.compiler_param("triton", "num_warps");
  if (target.kind == Target::Kind::cpu || (!warps && target.choices.workgroup == 0)) return std::nullopt;
  const int64_t most = target.max_workgroup_size;
  int64_t wanted = target.choices.workgroup;
  if (warps) {
    int64_t n = 1;
    // the verifier has seen that it is a number
    std::from_chars(warps->value.data(), warps->value.data() + warps->value.size(), n);
    wanted = std::clamp<int64_t>(n, 1, most) * 32;
  }
  return static_cast<int>(std::bit_floor(
      static_cast<uint64_t>(std::clamp<int64_t>(wanted, std::min<int64_t>(target.subgroup_size, most), most))));
}

std::string explain_call(const ir::Kernel& k, const Target& target) {
  std::string out = "  cost: " + to_string(k.call.cost_estimate ? *k.call.cost_estimate : estimate_cost(k));
  out += k.call.cost_estimate ? " (given; computed: " + to_string(estimate_cost(k)) + ")\n" : " (computed)\n";
  for (const ir::CompilerParam& p : k.call.compiler_params) {
    out += "  compiler parameter " + p.name + " = " + p.value + " of " + p.backend + ": ";
    if (p.backend != "triton" || p.name != "num_warps") out += "not used\n";
    else if (const auto size = hinted_workgroup(k, target))
      out += "workgroups of " + std::to_string(*size) + " invocations, where a workgroup runs a program\n";
    else out += "not used on CPU drivers\n";
  }
  if (target.choices != ScheduleChoices{}) out += "  tuned: " + to_string(target.choices) + "\n";
  if (!k.call.metadata.empty()) out += "  metadata: " + ir::to_json(k.call.metadata) + "\n";
  return out;
}

}  // namespace tessera::lowering
