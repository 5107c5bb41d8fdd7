#include "codegen/spirv/builder/function.h"

#include <bit>
#include <string>

#include "codegen/spirv/builder/int64.h"
#include "engine/base/error.h"

namespace tessera::spirv {

Id Function::declare(Reg r) {
  Id& id = types_.at(static_cast<size_t>(r));
  switch (r) {
    case Reg::boolean: return id = module.type_bool();
    case Reg::u32: return id = module.type_uint(32);
    case Reg::u64: return id = pairs() ? module.type_vector(type(Reg::u32), 2) : module.type_uint(64);
    case Reg::f32: return id = module.type_float(32);
    case Reg::f64: return id = module.type_float(64);
  }
  return id;
}

V Function::make(Reg r, Literal x) {
  switch (r) {
    case Reg::boolean: return boolean(x.integer != 0);
    case Reg::u32: return make_bits(r, static_cast<uint32_t>(x.integer));
    case Reg::u64: return make_bits(r, x.integer);
    case Reg::f32: return make_bits(r, std::bit_cast<uint32_t>(static_cast<float>(x.number)));
    case Reg::f64: return make_bits(r, std::bit_cast<uint64_t>(x.number));
  }
  return {};
}

V Function::make_bits(Reg r, uint64_t b) {
  if (r == Reg::u64 && pairs()) {
    const V low = make_bits(Reg::u32, b & 0xffffffffu), high = make_bits(Reg::u32, b >> 32);
    const V v{this, module.constant_vector(type(r), {low.id, high.id}), r};
    halves_.insert({v.id, {low, high}});
    return v;
  }
  const V v{this, module.constant(type(r), b, width(r)), r};
  if (r == Reg::u32) words_[v.id] = static_cast<uint32_t>(b);
  if (is_float(r) && (b & ~layout(r).sign) == 0) zeros_[v.id] = b != 0;
  return v;
}

std::optional<bool> Function::known_zero(V v) const {
  const auto it = zeros_.find(v.id);
  return it == zeros_.end() ? std::nullopt : std::optional(it->second);
}

V Function::join(V low, V high) {
  const V v{this, module.op(spv::OpCompositeConstruct, type(Reg::u64), {low.id, high.id}), Reg::u64};
  halves_.insert({v.id, {low, high}});
  return v;
}

std::array<V, 2> Function::halves(V pair) {
  if (const auto known = halves_.find(pair.id); known != halves_.end()) return known->second;
  const auto part = [&](uint32_t i) {
    return V{this, module.op(spv::OpCompositeExtract, type(Reg::u32), {pair.id, i}), Reg::u32};
  };
  const V low = part(0), high = part(1);
  return {low, high};
}

std::optional<uint32_t> Function::known_word(V word) const {
  const auto known = words_.find(word.id);
  return known == words_.end() ? std::nullopt : std::optional(known->second);
}

V Function::emit(spv::Op code, Reg r, const std::vector<V>& operands) {
  Words w;
  for (V v : operands) w.push_back(v.id);
  return {this, module.op(code, type(r), w), r};
}

V Function::exact(spv::Op code, Reg r, const std::vector<V>& operands) {
  const V v = emit(code, r, operands);
  module.decorate(v.id, spv::DecorationNoContraction);
  return v;
}

V Function::glsl(GLSLstd450 code, Reg r, const std::vector<V>& operands) {
  Words w{module.glsl(), static_cast<uint32_t>(code)};
  for (V v : operands) w.push_back(v.id);
  return {this, module.op(spv::OpExtInst, type(r), w), r};
}

void Function::begin(Id label) {
  module.op(spv::OpLabel, {label});
  block = label;
}

std::vector<V> Function::if_else(V c, const std::function<std::vector<V>()>& then_body,
                                 const std::function<std::vector<V>()>& else_body) {
  const Id then_label = module.fresh(), else_label = module.fresh(), merge = module.fresh();
  module.op(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  branch_if(c, then_label, else_label);
  begin(then_label);
  if (on_block) on_block();
  const std::vector<V> a = then_body();
  const Id then_end = block;
  branch(merge);
  begin(else_label);
  if (on_block) on_block();
  const std::vector<V> b = else_body();
  const Id else_end = block;
  branch(merge);
  begin(merge);
  std::vector<V> out;
  for (size_t i = 0; i < a.size(); ++i)
    out.push_back({this, module.op(spv::OpPhi, type(a[i].reg), {a[i].id, then_end, b[i].id, else_end}), a[i].reg});
  if (on_block) on_block();
  return out;
}

void Function::when(V c, const std::function<void()>& body) {
  const Id inside = module.fresh(), merge = module.fresh();
  module.op(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  branch_if(c, inside, merge);
  begin(inside);
  if (on_block) on_block();
  body();
  branch(merge);
  begin(merge);
  if (on_block) on_block();
}

std::vector<V> Function::while_loop(const std::vector<V>& init, const std::function<V(const std::vector<V>&)>& cond,
                                    const std::function<std::vector<V>(const std::vector<V>&)>& body) {
  const Id entry = block, header = module.fresh(), test = module.fresh(), inside = module.fresh(),
           next = module.fresh(), merge = module.fresh();
  branch(header);
  begin(header);
  std::vector<V> state;
  std::vector<size_t> holes;  // where each phi's value from the back edge goes
  for (V v : init) {
    state.push_back({this, module.op(spv::OpPhi, type(v.reg), {v.id, entry, 0, next}), v.reg});
    holes.push_back(module.position() - 2);
  }
  // What pays is unrolled already; lavapipe's compiler would go on, and then take minutes.
  const bool keep = target.kind == Target::Kind::cpu;
  module.op(spv::OpLoopMerge, {merge, next, keep ? spv::LoopControlDontUnrollMask : spv::LoopControlMaskNone});
  branch(test);
  begin(test);
  if (on_block) on_block();
  branch_if(cond(state), inside, merge);
  begin(inside);
  if (on_block) on_block();
  const std::vector<V> after = body(state);
  branch(next);
  begin(next);
  for (size_t i = 0; i < after.size(); ++i) module.patch(holes[i], after[i].id);
  branch(header);
  begin(merge);
  if (on_block) on_block();
  return state;
}

namespace {

V pick(V a, V b, spv::Op f, spv::Op i) {
  if (a.reg != b.reg) throw InternalError("spirv: operands in different registers");
  return is_float(a.reg) ? a.fn->exact(f, a.reg, {a, b}) : a.fn->emit(i, a.reg, {a, b});
}
V logic(V a, V b, spv::Op i, spv::Op boolean) { return a.fn->emit(a.reg == Reg::boolean ? boolean : i, a.reg, {a, b}); }
V compare(V a, V b, spv::Op f, spv::Op i) { return a.fn->emit(is_float(a.reg) ? f : i, Reg::boolean, {a, b}); }

}  // namespace

using pairs::is_pair;

namespace {

// Where drivers forget signs of zeros, infinities and NaN, they take +0 for a constant that changes nothing when it is
// added, and for what any product with it and any quotient of it is. But -0 + 0 is 0, -1 * 0 is -0 and inf * 0 is NaN:
// there such results are made of bits.
std::optional<bool> mistaken_zero(V v) {
  if (!is_float(v.reg)) return std::nullopt;
  const Target& t = v.fn->target;
  return (v.reg == Reg::f64 ? t.preserve64 : t.preserve32) && !t.forgets_zeros ? std::nullopt : v.fn->known_zero(v);
}
V plus_zero(V v) {
  const V zero = literal(v, 0);
  return select(eq(magnitude_bits(v), 0), zero, v);
}
/// A zero with the sign of v, or of -v; NaN where `none`.
V zero_like(V v, bool negative, V none) {
  const Layout l = layout(v.reg);
  const V sign = sign_bit(v), nothing = literal(sign, 0);
  const V magnitude = select(none, l.infinity | uint64_t{1} << (l.mantissa - 1), nothing);
  return floating((negative ? sign ^ literal(sign, l.sign) : sign) | magnitude);
}
V times_zero(V v, bool negative) {
  const V infinite = literal(bits(v), layout(v.reg).infinity);
  return zero_like(v, negative, magnitude_bits(v) >= infinite);
}
V zero_by(V v, bool negative) {
  const V nan_v = is_nan(v);
  return zero_like(v, negative, eq(magnitude_bits(v), 0) | nan_v);
}

}  // namespace

V operator+(V a, V b) {
  if (mistaken_zero(b) == false) return plus_zero(a);
  if (mistaken_zero(a) == false) return plus_zero(b);
  return is_pair(a) ? pairs::add(a, b) : pick(a, b, spv::OpFAdd, spv::OpIAdd);
}
V operator-(V a, V b) {
  if (mistaken_zero(b) == true) return plus_zero(a);
  if (mistaken_zero(a) == false) return plus_zero(-b);
  return is_pair(a) ? pairs::sub(a, b) : pick(a, b, spv::OpFSub, spv::OpISub);
}
V operator*(V a, V b) {
  if (const auto negative = mistaken_zero(b)) return times_zero(a, *negative);
  if (const auto negative = mistaken_zero(a)) return times_zero(b, *negative);
  return is_pair(a) ? pairs::mul(a, b) : pick(a, b, spv::OpFMul, spv::OpIMul);
}
V operator/(V a, V b) {
  // Compilers may make anything of a division by a constant 0. This is the same, but for which NaN comes out.
  if (const auto zero = a.fn->known_zero(b)) return a * (*zero ? -infinity(a) : infinity(a));
  if (const auto negative = mistaken_zero(a)) return zero_by(b, *negative);
  return a.fn->exact(spv::OpFDiv, a.reg, {a, b});
}
V operator-(V a) {
  return is_pair(a) ? pairs::sub(literal(a, 0), a)
                    : a.fn->emit(is_float(a.reg) ? spv::OpFNegate : spv::OpSNegate, a.reg, {a});
}
V operator&(V a, V b) {
  return is_pair(a) ? pairs::bitwise(spv::OpBitwiseAnd, a, b) : logic(a, b, spv::OpBitwiseAnd, spv::OpLogicalAnd);
}
V operator|(V a, V b) {
  return is_pair(a) ? pairs::bitwise(spv::OpBitwiseOr, a, b) : logic(a, b, spv::OpBitwiseOr, spv::OpLogicalOr);
}
V operator^(V a, V b) {
  return is_pair(a) ? pairs::bitwise(spv::OpBitwiseXor, a, b) : logic(a, b, spv::OpBitwiseXor, spv::OpLogicalNotEqual);
}
V operator~(V a) {
  return is_pair(a) ? pairs::complement(a)
                    : a.fn->emit(a.reg == Reg::boolean ? spv::OpLogicalNot : spv::OpNot, a.reg, {a});
}
V operator<<(V a, V b) {
  return is_pair(a) ? pairs::shift_left(a, b) : a.fn->emit(spv::OpShiftLeftLogical, a.reg, {a, b});
}
V operator>>(V a, V b) {
  return is_pair(a) ? pairs::shift_right(a, b, false) : a.fn->emit(spv::OpShiftRightLogical, a.reg, {a, b});
}
V sar(V a, V b) {
  return is_pair(a) ? pairs::shift_right(a, b, true) : a.fn->emit(spv::OpShiftRightArithmetic, a.reg, {a, b});
}
V operator<(V a, V b) {
  return is_pair(a) ? pairs::less(a, b, false) : compare(a, b, spv::OpFOrdLessThan, spv::OpULessThan);
}
V operator<=(V a, V b) {
  return is_pair(a) ? pairs::less(a, b, true) : compare(a, b, spv::OpFOrdLessThanEqual, spv::OpULessThanEqual);
}
V operator>(V a, V b) {
  return is_pair(a) ? pairs::less(b, a, false) : compare(a, b, spv::OpFOrdGreaterThan, spv::OpUGreaterThan);
}
V operator>=(V a, V b) {
  return is_pair(a) ? pairs::less(b, a, true) : compare(a, b, spv::OpFOrdGreaterThanEqual, spv::OpUGreaterThanEqual);
}
V eq(V a, V b) {
  if (is_pair(a)) return pairs::equal(a, b);
  return a.reg == Reg::boolean ? a.fn->emit(spv::OpLogicalEqual, a.reg, {a, b})
                               : compare(a, b, spv::OpFOrdEqual, spv::OpIEqual);
}
V ne(V a, V b) {
  if (is_pair(a)) return ~pairs::equal(a, b);
  return a.reg == Reg::boolean ? a.fn->emit(spv::OpLogicalNotEqual, a.reg, {a, b})
                               : compare(a, b, spv::OpFUnordNotEqual, spv::OpINotEqual);
}
// Mesa's compiler up to 22.3 (all its drivers) takes a sign-extended 32-bit number for never less than a 64-bit
// constant: signed comparisons of 64 bits are unsigned ones of numbers with their sign bits flipped.
static V flipped(V a) { return a.reg == Reg::u64 ? a ^ Literal(uint64_t{1} << 63) : a; }
V slt(V a, V b) {
  if (a.reg != Reg::u64) return a.fn->emit(spv::OpSLessThan, Reg::boolean, {a, b});
  const V end = flipped(b);
  return flipped(a) < end;
}
V sle(V a, V b) {
  if (a.reg != Reg::u64) return a.fn->emit(spv::OpSLessThanEqual, Reg::boolean, {a, b});
  const V most = flipped(b);
  return flipped(a) <= most;
}

V literal(V like, Literal x) { return like.fn->make(like.reg, x); }
V select(V c, V a, V b) { return is_pair(a) ? pairs::choose(c, a, b) : a.fn->emit(spv::OpSelect, a.reg, {c, a, b}); }
V udiv(V a, V b) { return is_pair(a) ? pairs::divide(a, b) : a.fn->emit(spv::OpUDiv, a.reg, {a, b}); }
V sdiv(V a, V b) { return is_pair(a) ? pairs::divide_signed(a, b) : a.fn->emit(spv::OpSDiv, a.reg, {a, b}); }
V umod(V a, V b) { return is_pair(a) ? a - pairs::divide(a, b) * b : a.fn->emit(spv::OpUMod, a.reg, {a, b}); }
V bits(V a) { return is_float(a.reg) ? a.fn->emit(spv::OpBitcast, uint_of(a.reg), {a}) : a; }
V floating(V a) { return is_float(a.reg) ? a : a.fn->emit(spv::OpBitcast, float_of(a.reg), {a}); }
V to_uint(V a, Reg r) {
  if (a.reg == r) return a;
  if (a.fn->pairs()) return r == Reg::u64 ? pairs::extend(a, false) : pairs::low(a);
  return a.fn->emit(spv::OpUConvert, r, {a});
}
V sign_extend(V a) { return a.fn->pairs() ? pairs::extend(a, true) : a.fn->emit(spv::OpSConvert, Reg::u64, {a}); }
V sign_extend(V a, int from_bits) {
  return a.fn->emit(spv::OpBitFieldSExtract, a.reg, {a, a.fn->make(Reg::u32, 0), a.fn->make(Reg::u32, from_bits)});
}
V float_from_uint(V a, Reg r) {
  return is_pair(a) ? pairs::to_float(a, r, false) : a.fn->emit(spv::OpConvertUToF, r, {a});
}
V float_from_sint(V a, Reg r) {
  return is_pair(a) ? pairs::to_float(a, r, true) : a.fn->emit(spv::OpConvertSToF, r, {a});
}
V uint_from_float(V a, Reg r) {
  return r == Reg::u64 && a.fn->pairs() ? pairs::from_float(a, false) : a.fn->emit(spv::OpConvertFToU, r, {a});
}
V sint_from_float(V a, Reg r) {
  return r == Reg::u64 && a.fn->pairs() ? pairs::from_float(a, true) : a.fn->emit(spv::OpConvertFToS, r, {a});
}
V float_to_float(V a, Reg r) { return a.reg == r ? a : a.fn->emit(spv::OpFConvert, r, {a}); }
V abs(V a) { return a.fn->glsl(GLSLstd450FAbs, a.reg, {a}); }
V floor(V a) { return a.fn->glsl(GLSLstd450Floor, a.reg, {a}); }
// Mesa's compiler for CPUs (22.3) takes every f64 from 2^24 on for a whole number in Trunc and RoundEven, as such f32
// are; not in Floor. Without AVX-512 RoundEven also takes ties, and what is just beside one, the wrong way.
V trunc(V a) { return a.reg == Reg::f64 ? copy_sign(floor(abs(a)), a) : a.fn->glsl(GLSLstd450Trunc, a.reg, {a}); }
V round_even(V a) { return a.fn->glsl(GLSLstd450RoundEven, a.reg, {a}); }

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
  Function& f = *v.fn;
  const auto msb = [&](V x) { return f.glsl(GLSLstd450FindUMsb, Reg::u32, {x}); };  // 32 bits only
  if (v.reg == Reg::u32) return msb(v) & 31;
  const V high = to_uint(v >> 32, Reg::u32), low = to_uint(v, Reg::u32);
  const V in_low = msb(low), in_high = msb(high) + 32;
  return select(ne(high, 0), in_high, in_low) & 63;
}

V fma(V a, V b, V c) {
  return mistaken_zero(a) || mistaken_zero(b) ? a * b + c : a.fn->glsl(GLSLstd450Fma, a.reg, {a, b, c});
}

V instruction(spv::Op code, Reg result, const std::vector<V>& a) {
  switch (code) {
    case spv::OpFAdd:
    case spv::OpIAdd: return a[0] + a[1];
    case spv::OpFSub:
    case spv::OpISub: return a[0] - a[1];
    case spv::OpFMul:
    case spv::OpIMul: return a[0] * a[1];
    case spv::OpFNegate:
    case spv::OpSNegate: return -a[0];
    case spv::OpBitwiseAnd: return a[0] & a[1];
    case spv::OpBitwiseOr: return a[0] | a[1];
    case spv::OpBitwiseXor: return a[0] ^ a[1];
    case spv::OpNot: return ~a[0];
    case spv::OpIEqual: return eq(a[0], a[1]);
    case spv::OpINotEqual: return ne(a[0], a[1]);
    case spv::OpULessThan: return a[0] < a[1];
    case spv::OpULessThanEqual: return a[0] <= a[1];
    case spv::OpUGreaterThan: return a[0] > a[1];
    case spv::OpUGreaterThanEqual: return a[0] >= a[1];
    case spv::OpSLessThan: return slt(a[0], a[1]);
    case spv::OpSLessThanEqual: return sle(a[0], a[1]);
    case spv::OpSelect: return select(a[0], a[1], a[2]);
    default: break;
  }
  for (const V& v : a)
    if (is_pair(v))
      throw InternalError("spirv: instruction " + std::to_string(static_cast<int>(code)) +
                          " has no form for 64-bit integers in two words");
  return a[0].fn->emit(code, result, a);
}

}  // namespace tessera::spirv
