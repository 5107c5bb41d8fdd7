#include "codegen/expand/sink.h"

#include <bit>

namespace tessera::expand {

V Sink::make(Reg r, Literal x) {
  switch (r) {
    case Reg::boolean: return boolean(x.integer != 0);
    case Reg::u32: return make_bits(r, static_cast<uint32_t>(x.integer));
    case Reg::u64: return make_bits(r, x.integer);
    case Reg::f32: return make_bits(r, std::bit_cast<uint32_t>(static_cast<float>(x.number)));
    case Reg::f64: return make_bits(r, std::bit_cast<uint64_t>(x.number));
    case Reg::opaque: break;
  }
  return {};
}

std::array<V, 2> Sink::shorts(V word) {
  const V high = word >> 16;
  return {word & 0xffff, high};
}
V Sink::word_of_shorts(V low, V high) {
  const V above = high << 16;
  return (low & 0xffff) | above;
}

V operator+(V a, V b) { return a.fn->apply(Prim::add, a.reg, {a, b}); }
V operator-(V a, V b) { return a.fn->apply(Prim::sub, a.reg, {a, b}); }
V operator*(V a, V b) { return a.fn->apply(Prim::mul, a.reg, {a, b}); }
V operator/(V a, V b) { return a.fn->apply(Prim::div, a.reg, {a, b}); }
V operator-(V a) { return a.fn->apply(Prim::neg, a.reg, {a}); }
V operator&(V a, V b) { return a.fn->apply(Prim::and_, a.reg, {a, b}); }
V operator|(V a, V b) { return a.fn->apply(Prim::or_, a.reg, {a, b}); }
V operator^(V a, V b) { return a.fn->apply(Prim::xor_, a.reg, {a, b}); }
V operator~(V a) { return a.fn->apply(Prim::not_, a.reg, {a}); }
V operator<<(V a, V b) { return a.fn->apply(Prim::shl, a.reg, {a, b}); }
V operator>>(V a, V b) { return a.fn->apply(Prim::shr, a.reg, {a, b}); }
V sar(V a, V b) { return a.fn->apply(Prim::sar, a.reg, {a, b}); }
V operator<(V a, V b) { return a.fn->apply(Prim::lt, Reg::boolean, {a, b}); }
V operator<=(V a, V b) { return a.fn->apply(Prim::le, Reg::boolean, {a, b}); }
V operator>(V a, V b) { return a.fn->apply(Prim::gt, Reg::boolean, {a, b}); }
V operator>=(V a, V b) { return a.fn->apply(Prim::ge, Reg::boolean, {a, b}); }
V eq(V a, V b) { return a.fn->apply(Prim::eq, Reg::boolean, {a, b}); }
V ne(V a, V b) { return a.fn->apply(Prim::ne, Reg::boolean, {a, b}); }
V slt(V a, V b) { return a.fn->apply(Prim::slt, Reg::boolean, {a, b}); }
V sle(V a, V b) { return a.fn->apply(Prim::sle, Reg::boolean, {a, b}); }

V literal(V like, Literal x) { return like.fn->make(like.reg, x); }
V select(V c, V a, V b) { return a.fn->apply(Prim::select, a.reg, {c, a, b}); }
V udiv(V a, V b) { return a.fn->apply(Prim::udiv, a.reg, {a, b}); }
V sdiv(V a, V b) { return a.fn->apply(Prim::sdiv, a.reg, {a, b}); }
V umod(V a, V b) { return a.fn->apply(Prim::umod, a.reg, {a, b}); }
V bits(V a) { return is_float(a.reg) ? a.fn->apply(Prim::to_bits, uint_of(a.reg), {a}) : a; }
V floating(V a) { return is_float(a.reg) ? a : a.fn->apply(Prim::from_bits, float_of(a.reg), {a}); }
V to_uint(V a, Reg r) { return a.reg == r ? a : a.fn->apply(Prim::resize, r, {a}); }
V sign_extend(V a) { return a.fn->apply(Prim::sign_extend, Reg::u64, {a}); }
V sign_extend(V a, int from_bits) {
  return a.fn->apply(Prim::extract_sint, a.reg, {a, a.fn->make(Reg::u32, 0), a.fn->make(Reg::u32, from_bits)});
}
V float_from_uint(V a, Reg r) { return a.fn->apply(Prim::float_from_uint, r, {a}); }
V float_from_sint(V a, Reg r) { return a.fn->apply(Prim::float_from_sint, r, {a}); }
V uint_from_float(V a, Reg r) { return a.fn->apply(Prim::uint_from_float, r, {a}); }
V sint_from_float(V a, Reg r) { return a.fn->apply(Prim::sint_from_float, r, {a}); }
V float_to_float(V a, Reg r) { return a.reg == r ? a : a.fn->apply(Prim::float_to_float, r, {a}); }
V abs(V a) { return a.fn->apply(Prim::abs, a.reg, {a}); }
V floor(V a) { return a.fn->apply(Prim::floor, a.reg, {a}); }
V trunc(V a) { return a.fn->apply(Prim::trunc, a.reg, {a}); }
V round_even(V a) { return a.fn->apply(Prim::round_even, a.reg, {a}); }
V fma(V a, V b, V c) { return a.fn->apply(Prim::fma, a.reg, {a, b, c}); }

V magnitude_bits(V a) { return bits(a) & (layout(a.reg).sign - 1); }
V sign_bit(V a) { return bits(a) & layout(a.reg).sign; }
V is_nan(V a) { return magnitude_bits(a) > layout(a.reg).infinity; }
V is_inf(V a) { return eq(magnitude_bits(a), layout(a.reg).infinity); }
V nan(V like) {
  const Layout l = layout(like.reg);
  return like.fn->make_bits(like.reg, l.infinity | (l.fraction + 1) >> 1);
}
V infinity(V like) { return like.fn->make_bits(like.reg, layout(like.reg).infinity); }
V copy_sign(V magnitude, V sign) {
  const V s = sign_bit(sign);
  return floating(magnitude_bits(magnitude) | s);
}

V highest_bit(V v) {
  const auto msb = [&](V x) { return x.fn->apply(Prim::highest_bit, Reg::u32, {x}); };  // 32 bits only
  if (v.reg == Reg::u32) return msb(v) & 31;
  const V high = to_uint(v >> 32, Reg::u32), low = to_uint(v, Reg::u32);
  const V in_low = msb(low), in_high = msb(high) + 32;
  return select(ne(high, 0), in_high, in_low) & 63;
}

}  // namespace tessera::expand
