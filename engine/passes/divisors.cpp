#include "engine/passes/divisors.h"

#include <algorithm>
#include <bit>

namespace tessera::passes {
using ir::Opcode;
using Residue = Divisors::Residue;

namespace {
Residue reduced(int64_t divisor, int64_t rest) { return {divisor, rest & (divisor - 1)}; }
// One of the two.
Residue either(const Residue& a, const Residue& b) {
  int64_t divisor = std::min(a.divisor, b.divisor);
  while ((a.rest - b.rest) & (divisor - 1)) divisor /= 2;
  return reduced(divisor, a.rest);
}
}  // namespace

Residue Residue::operator+(const Residue& other) const {
  return reduced(std::min(divisor, other.divisor), rest + other.rest);
}
Residue Residue::operator-(const Residue& other) const {
  return reduced(std::min(divisor, other.divisor), rest - other.rest);
}
Residue Residue::operator*(const Residue& other) const {
  // (d i + r) (e j + s) = d e i j + d i s + e j r + r s
  const int64_t first = divisor * Divisors::of(other.rest), second = other.divisor * Divisors::of(rest);
  return reduced(std::min({kMost, first, second, divisor * other.divisor}), rest * other.rest);
}

Divisors::Divisors(const ir::Kernel& k) : k_(k) {
  for (uint32_t i = 0; i < k.ops.size(); ++i)
    if (k.ops[i].code == Opcode::for_) loop_of_iv_[k.region(k.ops[i].regions[0]).args[0].index] = i;
}

int64_t Divisors::of(int64_t c) {
  return c == 0 ? kMost : int64_t{1} << std::min(std::countr_zero(static_cast<uint64_t>(c)), 4);
}

Residue Divisors::residue(ir::Value v) {
  const auto [it, added] = known_.try_emplace(v.index, Residue{1, 0});
  if (!added) return it->second;
  const Residue r = compute(v);
  return known_[v.index] = r;
}

Residue Divisors::compute(ir::Value v) {
  const Residue any{1, 0};
  if (const auto c = ir::constant_int(k_, v)) return Residue::of(*c);
  if (const auto it = loop_of_iv_.find(v.index); it != loop_of_iv_.end()) {
    const ir::Op& loop = k_.ops[it->second];
    const Residue first = residue(loop.operands[0]);
    return reduced(std::min(first.divisor, of(loop.operands[2])), first.rest);
  }
  const ir::Op* o = k_.def(v);
  if (!o || o->operands.empty()) return any;
  const auto is = [&](Opcode c) { return o->code == c; };
  const auto operand = [&](size_t i) { return residue(o->operands[i]); };
  const auto power = [&](size_t i) { return of(o->operands[i]); };
  if (is(Opcode::add)) {
    const Residue a = operand(0);
    return a + operand(1);
  }
  if (is(Opcode::sub)) {
    const Residue a = operand(0);
    return a - operand(1);
  }
  if (is(Opcode::mul)) {
    const Residue a = operand(0);
    return a * operand(1);
  }
  if (is(Opcode::min) || is(Opcode::max)) return either(operand(0), operand(1));
  if (is(Opcode::select)) return either(operand(1), operand(2));
  if (is(Opcode::rem) || is(Opcode::or_) || is(Opcode::xor_)) return {std::min(power(0), power(1)), 0};
  if (is(Opcode::and_)) return {std::max(power(0), power(1)), 0};
  // those of floats saturate, and a bool of what is not 0 is 1
  if (is(Opcode::convert))
    return is_float(k_.type(o->operands[0]).dtype) || k_.type(v).dtype == DType::boolean ? any : operand(0);
  if (is(Opcode::shift_left)) {
    const auto c = ir::constant_int(k_, o->operands[1]);
    return c && *c >= 1 ? Residue{std::min(kMost, power(0) << std::min<int64_t>(*c, 4)), 0} : any;
  }
  return any;
}

}  // namespace tessera::passes
