#include "engine/passes/divisors.h"

#include <algorithm>
#include <bit>

namespace tessera::passes {
using ir::Opcode;

Divisors::Divisors(const ir::Kernel& k) : k_(k) {
  for (uint32_t i = 0; i < k.ops.size(); ++i)
    if (k.ops[i].code == Opcode::for_) loop_of_iv_[k.region(k.ops[i].regions[0]).args[0].index] = i;
}

int64_t Divisors::of(int64_t c) {
  return c == 0 ? kMost : int64_t{1} << std::min(std::countr_zero(static_cast<uint64_t>(c)), 4);
}

int64_t Divisors::of(ir::Value v) {
  const auto [it, added] = known_.try_emplace(v.index, 1);
  if (!added) return it->second;
  const int64_t d = compute(v);
  return known_[v.index] = d;
}

int64_t Divisors::compute(ir::Value v) {
  if (const auto c = ir::constant_int(k_, v)) return of(*c);
  if (const auto it = loop_of_iv_.find(v.index); it != loop_of_iv_.end()) {
    const ir::Op& loop = k_.ops[it->second];
    return std::min(of(loop.operands[0]), of(loop.operands[2]));
  }
  const ir::Op* o = k_.def(v);
  if (!o || o->operands.empty()) return 1;
  const auto is = [&](Opcode c) { return o->code == c; };
  if (is(Opcode::add) || is(Opcode::sub) || is(Opcode::min) || is(Opcode::max) || is(Opcode::rem) || is(Opcode::or_) ||
      is(Opcode::xor_))
    return std::min(of(o->operands[0]), of(o->operands[1]));
  if (is(Opcode::and_)) return std::max(of(o->operands[0]), of(o->operands[1]));
  if (is(Opcode::mul)) return std::min(kMost, of(o->operands[0]) * of(o->operands[1]));
  // those of floats saturate, and a bool of what is not 0 is 1
  if (is(Opcode::convert))
    return is_float(k_.type(o->operands[0]).dtype) || k_.type(v).dtype == DType::boolean ? 1 : of(o->operands[0]);
  if (is(Opcode::select)) return std::min(of(o->operands[1]), of(o->operands[2]));
  if (is(Opcode::shift_left)) {
    const auto c = ir::constant_int(k_, o->operands[1]);
    return c && *c >= 1 ? std::min(kMost, of(o->operands[0]) << std::min<int64_t>(*c, 4)) : 1;
  }
  return 1;
}

}  // namespace tessera::passes
