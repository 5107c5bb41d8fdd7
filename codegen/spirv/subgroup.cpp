// What lanes of a subgroup tell each other. 64-bit values travel as two 32-bit halves and bool as a word: no
// extended-types feature needed.
#include "codegen/spirv/builder/instructions.h"
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"
#include "engine/ir/reference.h"

namespace tessera::spirv {

using ir::Opcode;

V Emitter::shuffle_word(const ir::Op& op, V v, spv::Op code, V lane) {
  if (!target_.subgroup_shuffle) fail(op, "needs subgroup shuffles, which " + target_.name + " does not have");
  m_.capability(spv::CapabilityGroupNonUniformShuffle);
  const V scope = f_.make(Reg::u32, static_cast<uint32_t>(spv::ScopeSubgroup));
  return f_.emit(code, v.reg, {scope, v, lane});
}

V Emitter::shuffle_any(const ir::Op& op, V v, spv::Op code, V lane) {
  if (v.reg == Reg::boolean) return ne(shuffle_word(op, select(v, 1, f_.make(Reg::u32, 0)), code, lane), 0);
  if (width(v.reg) == 32) return shuffle_word(op, v, code, lane);
  const V b = bits(v);
  const V low = shuffle_word(op, to_uint(b, Reg::u32), code, lane),
          high = shuffle_word(op, to_uint(b >> 32, Reg::u32), code, lane);
  const V upper = to_uint(high, Reg::u64) << 32, joined = to_uint(low, Reg::u64) | upper;
  return v.reg == Reg::f64 ? floating(joined) : joined;
}

V Emitter::shuffle_xor(const ir::Op& op, V v, uint32_t mask) {
  const V by = f_.make(Reg::u32, mask);
  return shuffle_any(op, v, spv::OpGroupNonUniformShuffleXor, by);
}

// One invocation sees what it did itself; a workgroup that is one full subgroup synchronises as that, which costs
// drivers less (lavapipe cuts a shader at a workgroup's barriers, in time that grows with the square of its size).
// A subgroup's own barrier orders its accesses to shared memory, and nothing else; so does a workgroup's where no
// access to a buffer waits for another one (barriers_order_buffers).
void Emitter::emit_barrier(const ir::Op&, bool of_subgroup) {
  if (k_.lane.workgroup_size == 1) return;
  const bool one_subgroup = of_subgroup || k_.lane.subgroup_size == k_.lane.workgroup_size;
  const V scope = f_.make(Reg::u32, static_cast<uint32_t>(one_subgroup ? spv::ScopeSubgroup : spv::ScopeWorkgroup));
  uint32_t orders = spv::MemorySemanticsAcquireReleaseMask | spv::MemorySemanticsWorkgroupMemoryMask |
                    spv::MemorySemanticsMakeAvailableMask | spv::MemorySemanticsMakeVisibleMask;
  if (!of_subgroup && orders_buffers_) orders |= spv::MemorySemanticsUniformMemoryMask;
  const V semantics = f_.make(Reg::u32, orders);
  m_.op(spv::OpControlBarrier, {scope.id, scope.id, semantics.id});
}

void Emitter::emit_reduce(const ir::Op& op) {
  const auto kind = static_cast<Opcode>(op.attr(ir::Attr::kind));
  const DType t = k_.type(op.results.at(0)).dtype;
  const DType inner = is_narrow_float(t) ? DType::f32 : t;  // rounded once, at the end
  V v = get(op.operands.at(0));
  const spv::Op code = kInstructions.group[static_cast<size_t>(kind)].of(t);
  const bool native = code != kNone;
  const bool wide_int = v.reg == Reg::u64;  // would need shaderSubgroupExtendedTypes
  const bool scan = op.code == Opcode::subgroup_scan;
  // On a CPU a ladder of shuffles is cheaper than the driver's reduction.
  const bool ladder = target_.subgroup_shuffle && !scan &&
                      (!target_.subgroup_arithmetic || !native || wide_int || target_.kind == Target::Kind::cpu);
  if (ladder) {
    const int size = k_.lane.subgroup_size;
    const int steps = size > 0 ? size : target_.max_subgroup_size;
    for (int mask = 1; mask < steps; mask *= 2) {
      const V other = shuffle_any(op, v, spv::OpGroupNonUniformShuffleXor, f_.make(Reg::u32, mask));
      const V both = elementwise(kind, inner, inner, {v, other}, {values_of(inner), values_of(inner)});
      v = size > 0 ? both
                   : select(subgroup_size_ > mask, both, v);  // beyond the subgroup there is no invocation to ask
    }
  } else if (target_.subgroup_arithmetic && native && !wide_int) {
    m_.capability(spv::CapabilityGroupNonUniformArithmetic);
    const V scope = f_.make(Reg::u32, static_cast<uint32_t>(spv::ScopeSubgroup));
    const auto how = static_cast<uint32_t>(scan ? spv::GroupOperationExclusiveScan : spv::GroupOperationReduce);
    v = {&f_, m_.op(code, f_.type(v.reg), {scope.id, how, v.id}), v.reg};
    // the identity of 32 bits in the first lane
    if (scan && is_int(t) && size_bytes(t) < 4 && (kind == Opcode::max || kind == Opcode::min))
      v = elementwise(kind, t, t, {v, constant(sink_, t, reference::identity(kind, t))}, {values_of(t), values_of(t)});
  } else {
    fail(op, std::string(ir::name(kind)) + " of " + std::string(tessera::name(t)) + " needs subgroup " +
                 (scan ? "scans" : "shuffles") + ", which " + target_.name + " does not have");
  }
  set(op.results[0], normalize(v, t));
}

}  // namespace tessera::spirv
