// What invocations do together. A subgroup is a warp, all of whose lanes take part: the lane level has these ops in
// uniform control flow and full subgroups alone. 64-bit values travel as two halves and bool as a word.
#include "codegen/nvidia/emitter.h"
#include "engine/base/error.h"

namespace tessera::nvidia {

using ir::Opcode;

void Emitter::emit_barrier(const ir::Op& op, bool of_subgroup) {
  if (k_.lane.workgroup_size == 1) return;
  // What the warps have stored, for wgmma to see behind the barrier.
  if (by_warpgroups_ && !of_subgroup && !op.attr_or(ir::Attr::late, 0)) f_.line("fence.proxy.async.shared::cta");
  if (k_.lane.threads > 1 && !of_subgroup)
    return f_.line("bar.sync " + f_.in_register(barrier_) + ", " + std::to_string(k_.lane.workgroup_size));
  f_.line(of_subgroup || k_.lane.subgroup_size == k_.lane.workgroup_size ? "bar.warp.sync -1" : "bar.sync 0");
}

V Emitter::exchange(const std::string& mode, V v, V lane) {
  if (v.reg == Reg::boolean) return ne(exchange(mode, select(v, 1, f_.make(Reg::u32, 0)), lane), 0);
  if (width(v.reg) == 64) return f_.in_halves(v, [&](V word) { return exchange(mode, word, lane); });
  const V out = f_.fresh(v.reg);
  f_.line("shfl.sync." + mode + ".b32 " + f_.operand(out) + ", " + f_.in_register(v) + ", " + f_.operand(lane) +
          ", 31, -1");
  return out;
}

V Emitter::shuffle(const ir::Op&, V v, V lane) { return exchange("idx", v, lane); }
V Emitter::shuffle_xor(const ir::Op&, V v, uint32_t mask) { return exchange("bfly", v, f_.make(Reg::u32, mask)); }

void Emitter::emit_reduce(const ir::Op& op) {
  if (op.code == Opcode::subgroup_scan) fail(op, "needs subgroup scans, which " + target_.name + " does not have");
  const auto kind = static_cast<Opcode>(op.attr(ir::Attr::kind));
  const DType t = k_.type(op.results.at(0)).dtype;
  const DType inner = is_narrow_float(t) ? DType::f32 : t;  // rounded once, at the end
  V v = get(op.operands.at(0));
  const char* redux = kColumns.redux[static_cast<size_t>(kind)];
  if (redux && v.reg == Reg::u32) {
    const bool ordered = kind == Opcode::max || kind == Opcode::min;
    const std::string type = ordered || kind == Opcode::add ? (is_signed_int(t) ? ".s32 " : ".u32 ") : ".b32 ";
    const V all = f_.fresh(Reg::u32);
    f_.line("redux.sync." + std::string(redux) + type + f_.operand(all) + ", " + f_.in_register(v) + ", -1");
    v = all;
  } else {
    for (uint32_t mask = 1; mask < 32; mask *= 2) {
      const V other = exchange("bfly", v, f_.make(Reg::u32, mask));
      v = elementwise(kind, inner, inner, {v, other}, {values_of(inner), values_of(inner)});
    }
  }
  set(op.results[0], normalize(v, t));
}

}  // namespace tessera::nvidia
