// Control flow and arithmetic that SPIR-V has of its own.
#include "codegen/spirv/emitter.h"

namespace tessera::spirv {

using ir::Opcode;

V Emitter::dot4(V a, bool a_signed, V b, bool b_signed) {
  if (!target_.integer_dot) return Walk::dot4(a, a_signed, b, b_signed);
  m_.capability(spv::CapabilityDotProduct);
  m_.capability(spv::CapabilityDotProductInput4x8BitPacked);
  if (b_signed && !a_signed) std::swap(a, b);  // the signed one is first
  const spv::Op code = a_signed && b_signed ? spv::OpSDot : a_signed || b_signed ? spv::OpSUDot : spv::OpUDot;
  const uint32_t format = spv::PackedVectorFormatPackedVectorFormat4x8Bit;
  return {&f_, m_.op(code, f_.type(Reg::u32), {a.id, b.id, format}), Reg::u32};
}

/// Sums and products of f16 where the device has them.
bool Emitter::emit_half(const ir::Op& op) {
  const bool sum = op.code == Opcode::add || op.code == Opcode::sub, product = op.code == Opcode::mul;
  if (!sum && !product) return false;
  const Id type = f_.type_f16();
  const V a = get(op.operands[0]), b = get(op.operands[1]);
  const std::array<V, 2> of_a = registers_[op.operands[0].index].factors,
                         of_b = registers_[op.operands[1].index].factors;
  Id r = 0;
  if (sum && (of_a[0].id || of_b[0].id)) {
    const auto [x, y] = of_a[0].id ? of_a : of_b;
    Id factor = f_.half(x), other = f_.half(y), addend = f_.half(of_a[0].id ? b : a);
    if (op.code == Opcode::sub) {
      Id& negated = of_a[0].id ? addend : factor;
      negated = m_.op(spv::OpFNegate, type, {negated});
    }
    r = m_.op(spv::OpExtInst, type, {m_.glsl(), GLSLstd450Fma, factor, other, addend});
  } else {
    const Id x = f_.half(a), y = f_.half(b);
    r = m_.op(product ? spv::OpFMul : op.code == Opcode::add ? spv::OpFAdd : spv::OpFSub, type, {x, y});
    m_.decorate(r, spv::DecorationNoContraction);
  }
  set(op.results[0], f_.from_half(r));
  if (product) registers_[op.results[0].index].factors = {a, b};
  return true;
}

// A driver that has cut a loop leaves every later loop after its first iteration, so a loop that must run twice shows
// it. No number in it is a constant, or the driver's compiler could compute its result: they are taken from the
// report's address, which is a multiple of 64, though the driver's compiler cannot assume that.
V Emitter::loops_cut() {
  const V low = to_uint(report_, Reg::u32), rounds = (low & 31) + 2, wanted = ((low >> 1) & 31) + 2;
  const std::vector<V> done = f_.while_loop(
      {f_.make(Reg::u32, 0)}, [&](const std::vector<V>& s) { return s[0] < rounds; },
      [&](const std::vector<V>& s) { return std::vector<V>{s[0] + 1}; });
  return ne(done[0], wanted);
}

void Emitter::emit_switch(const ir::Op& op) {
  const V selector = get(op.operands.at(0));
  const size_t n = op.regions.size();
  std::vector<Id> labels;
  for (size_t i = 0; i < n; ++i) labels.push_back(m_.fresh());
  const Id merge = m_.fresh();
  // Clamped to [0, n - 1]: below 0 is region 0, anything else not listed is the last.
  const V index = select(slt(selector, 0), 0, selector);
  m_.op(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  Words w{index.id, labels.back()};
  for (size_t i = 0; i + 1 < n; ++i) w.insert(w.end(), {static_cast<uint32_t>(i), labels[i]});
  m_.op(spv::OpSwitch, w);
  std::vector<Words> incoming(op.results.size());
  std::vector<Reg> regs(op.results.size());
  for (size_t i = 0; i < n; ++i) {
    f_.begin(labels[i]);
    if (f_.on_block) f_.on_block();
    const std::vector<V> out = region(op.regions[i]);
    for (size_t j = 0; j < incoming.size(); ++j) {
      incoming[j].insert(incoming[j].end(), {out.at(j).id, f_.block});
      regs[j] = out[j].reg;
    }
    f_.branch(merge);
  }
  f_.begin(merge);
  for (size_t j = 0; j < incoming.size(); ++j)
    set(op.results[j], {&f_, m_.op(spv::OpPhi, f_.type(regs[j]), incoming[j]), regs[j]});
  if (f_.on_block) f_.on_block();
}

}  // namespace tessera::spirv
