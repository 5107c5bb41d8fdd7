#include "codegen/spirv/builder/function.h"

#include <algorithm>
#include <bit>
#include <string>

#include "codegen/spirv/builder/instructions.h"
#include "codegen/spirv/builder/int64.h"
#include "engine/base/error.h"

namespace tessera::spirv {

Id Function::declare(Reg r) {
  Id& id = types_.at(static_cast<size_t>(r));
  switch (r) {
    case Reg::boolean: return id = module.type_bool();
    case Reg::u32: return id = module.type_uint(32);
    case Reg::u64: return id = emulates_int64() ? module.type_vector(type(Reg::u32), 2) : module.type_uint(64);
    case Reg::f32: return id = module.type_float(32);
    case Reg::f64: return id = module.type_float(64);
    case Reg::opaque: break;
  }
  return id;
}

Reg Function::opaque(Id of) {
  const auto known = std::find(opaque_.begin(), opaque_.end(), of);
  const auto at = static_cast<size_t>(known - opaque_.begin());
  if (known == opaque_.end()) opaque_.push_back(of);
  return static_cast<Reg>(static_cast<size_t>(Reg::opaque) + at);
}

V Function::make_bits(Reg r, uint64_t b) {
  if (r == Reg::u64 && emulates_int64()) {
    const V low = make_bits(Reg::u32, b & 0xffffffffu), high = make_bits(Reg::u32, b >> 32);
    const V v{this, module.constant_vector(type(r), {low.id, high.id}), r};
    halves_.insert({v.id, {low, high}});
    return v;
  }
  const V v{this, module.constant(type(r), b, width(r)), r};
  if (r == Reg::u32) words_[v.id] = static_cast<uint32_t>(b);
  if (is_float(r) && (b & ~layout(r).sign) == 0) zeros_[v.id] = b != 0;
  if (is_float(r) && (b & ~layout(r).sign) == layout(r).infinity) infinities_[v.id] = (b & layout(r).sign) != 0;
  return v;
}

std::optional<bool> Function::known_zero(V v) const {
  const auto it = zeros_.find(v.id);
  return it == zeros_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<bool> Function::known_infinity(V v) const {
  const auto it = infinities_.find(v.id);
  return it == infinities_.end() ? std::nullopt : std::optional(it->second);
}

// Where the device has integers of 64 bits, a pair is one for a moment, between bit casts.
V Function::join(V low, V high) {
  const Id both = module.op(spv::OpCompositeConstruct, type_words(), {low.id, high.id});
  const V v{this, emulates_int64() ? both : module.op(spv::OpBitcast, type(Reg::u64), {both}), Reg::u64};
  halves_.insert({v.id, {low, high}});
  return v;
}

std::array<V, 2> Function::halves(V pair) {
  if (const auto known = halves_.find(pair.id); known != halves_.end()) return known->second;
  const Id both = emulates_int64() ? pair.id : module.op(spv::OpBitcast, type_words(), {pair.id});
  const auto part = [&](uint32_t i) {
    return V{this, module.op(spv::OpCompositeExtract, type(Reg::u32), {both, i}), Reg::u32};
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

std::vector<V> Function::if_else(V c, FunctionRef<std::vector<V>()> then_body,
                                 FunctionRef<std::vector<V>()> else_body) {
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

void Function::when(V c, FunctionRef<void()> body) {
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

std::vector<V> Function::while_loop(const std::vector<V>& init, FunctionRef<V(const std::vector<V>&)> cond,
                                    FunctionRef<std::vector<V>(const std::vector<V>&)> body) {
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
  // What pays is unrolled already. Some compilers would go on: lavapipe's then takes minutes, and a GPU's code outgrows
  // its cache.
  module.op(spv::OpLoopMerge, {merge, next, spv::LoopControlDontUnrollMask});
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
  return is_float(a.reg) ? function(a).exact(f, a.reg, {a, b}) : function(a).emit(i, a.reg, {a, b});
}
V logic(V a, V b, spv::Op i, spv::Op boolean) {
  return function(a).emit(a.reg == Reg::boolean ? boolean : i, a.reg, {a, b});
}
V compare(V a, V b, spv::Op f, spv::Op i) { return function(a).emit(is_float(a.reg) ? f : i, Reg::boolean, {a, b}); }

}  // namespace

using int64::is_pair;

namespace {

// Where drivers forget signs of zeros, infinities and NaN, they take +0 for a constant that changes nothing when it is
// added, and for what any product with it and any quotient of it is. But -0 + 0 is 0, -1 * 0 is -0 and inf * 0 is NaN:
// there such results are made of bits.
std::optional<bool> mistaken_zero(V v) {
  if (!is_float(v.reg)) return std::nullopt;
  const Target& t = v.fn->target;
  return (v.reg == Reg::f64 ? t.preserve64 : t.preserve32) && !t.forgets_zeros ? std::nullopt
                                                                               : function(v).known_zero(v);
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

namespace {

V add(V a, V b) {
  if (mistaken_zero(b) == false) return plus_zero(a);
  if (mistaken_zero(a) == false) return plus_zero(b);
  return is_pair(a) ? int64::add(a, b) : pick(a, b, spv::OpFAdd, spv::OpIAdd);
}
V sub(V a, V b) {
  if (mistaken_zero(b) == true) return plus_zero(a);
  if (mistaken_zero(a) == false) return plus_zero(-b);
  return is_pair(a) ? int64::sub(a, b) : pick(a, b, spv::OpFSub, spv::OpISub);
}
V mul(V a, V b) {
  if (const auto negative = mistaken_zero(b)) return times_zero(a, *negative);
  if (const auto negative = mistaken_zero(a)) return times_zero(b, *negative);
  return is_pair(a) ? int64::mul(a, b) : pick(a, b, spv::OpFMul, spv::OpIMul);
}
V div(V a, V b) {
  // Compilers may make anything of a division by a constant 0. This is the same, but for which NaN comes out.
  if (const auto zero = function(a).known_zero(b)) return a * (*zero ? -infinity(a) : infinity(a));
  if (const auto negative = mistaken_zero(a)) return zero_by(b, *negative);
  // NVIDIA's (580.159) makes 0 of inf / inf where the divisor is a constant.
  if (const auto negative = function(a).known_infinity(b)) return times_zero(a, *negative);
  return function(a).exact(spv::OpFDiv, a.reg, {a, b});
}

// Mesa's compiler up to 22.3 (all its drivers) takes a sign-extended 32-bit number for never less than a 64-bit
// constant: signed comparisons of 64 bits are unsigned ones of numbers with their sign bits flipped.
V flipped(V a) { return a.reg == Reg::u64 ? a ^ Literal(uint64_t{1} << 63) : a; }
V signed_compare(V a, V b, bool or_equal) {
  if (a.reg != Reg::u64)
    return function(a).emit(or_equal ? spv::OpSLessThanEqual : spv::OpSLessThan, Reg::boolean, {a, b});
  const V end = flipped(b), from = flipped(a);
  return or_equal ? from <= end : from < end;
}

bool divides_by_words(V a) { return is_pair(a) || (a.reg == Reg::u64 && function(a).target.wrong_int64_division); }

V resize(V a, Reg r) {
  if (function(a).emulates_int64()) return r == Reg::u64 ? int64::extend(a, false) : int64::low(a);
  return function(a).emit(spv::OpUConvert, r, {a});
}

}  // namespace

V Function::apply(Prim p, Reg r, const std::vector<V>& operands) {
  const V a = operands[0], b = operands.size() > 1 ? operands[1] : V{};
  const bool pair = is_pair(a), to_pair = r == Reg::u64 && emulates_int64();
  switch (p) {
    case Prim::add: return add(a, b);
    case Prim::sub: return sub(a, b);
    case Prim::mul: return mul(a, b);
    case Prim::div: return div(a, b);
    case Prim::neg:
      return pair ? int64::sub(literal(a, 0), a) : emit(is_float(a.reg) ? spv::OpFNegate : spv::OpSNegate, a.reg, {a});
    case Prim::and_:
      return pair ? int64::bitwise(spv::OpBitwiseAnd, a, b) : logic(a, b, spv::OpBitwiseAnd, spv::OpLogicalAnd);
    case Prim::or_:
      return pair ? int64::bitwise(spv::OpBitwiseOr, a, b) : logic(a, b, spv::OpBitwiseOr, spv::OpLogicalOr);
    case Prim::xor_:
      return pair ? int64::bitwise(spv::OpBitwiseXor, a, b) : logic(a, b, spv::OpBitwiseXor, spv::OpLogicalNotEqual);
    case Prim::not_:
      return pair ? int64::complement(a) : emit(a.reg == Reg::boolean ? spv::OpLogicalNot : spv::OpNot, a.reg, {a});
    case Prim::shl: return pair ? int64::shift_left(a, b) : emit(spv::OpShiftLeftLogical, a.reg, {a, b});
    case Prim::shr: return pair ? int64::shift_right(a, b, false) : emit(spv::OpShiftRightLogical, a.reg, {a, b});
    case Prim::sar: return pair ? int64::shift_right(a, b, true) : emit(spv::OpShiftRightArithmetic, a.reg, {a, b});
    case Prim::lt: return pair ? int64::less(a, b, false) : compare(a, b, spv::OpFOrdLessThan, spv::OpULessThan);
    case Prim::le:
      return pair ? int64::less(a, b, true) : compare(a, b, spv::OpFOrdLessThanEqual, spv::OpULessThanEqual);
    case Prim::gt: return pair ? int64::less(b, a, false) : compare(a, b, spv::OpFOrdGreaterThan, spv::OpUGreaterThan);
    case Prim::ge:
      return pair ? int64::less(b, a, true) : compare(a, b, spv::OpFOrdGreaterThanEqual, spv::OpUGreaterThanEqual);
    case Prim::eq:
      if (pair) return int64::equal(a, b);
      return a.reg == Reg::boolean ? emit(spv::OpLogicalEqual, a.reg, {a, b})
                                   : compare(a, b, spv::OpFOrdEqual, spv::OpIEqual);
    case Prim::ne:
      if (pair) return ~int64::equal(a, b);
      return a.reg == Reg::boolean ? emit(spv::OpLogicalNotEqual, a.reg, {a, b})
                                   : compare(a, b, spv::OpFUnordNotEqual, spv::OpINotEqual);
    case Prim::slt: return signed_compare(a, b, false);
    case Prim::sle: return signed_compare(a, b, true);
    case Prim::unordered_lt: return emit(spv::OpFUnordLessThan, Reg::boolean, {a, b});
    case Prim::unordered_gt: return emit(spv::OpFUnordGreaterThan, Reg::boolean, {a, b});
    case Prim::select:
      return is_pair(b) ? int64::select(a, b, operands[2]) : emit(spv::OpSelect, b.reg, {a, b, operands[2]});
    case Prim::udiv: return divides_by_words(a) ? int64::divide(a, b) : emit(spv::OpUDiv, a.reg, {a, b});
    case Prim::sdiv: return divides_by_words(a) ? int64::divide_signed(a, b) : emit(spv::OpSDiv, a.reg, {a, b});
    case Prim::umod: return divides_by_words(a) ? a - int64::divide(a, b) * b : emit(spv::OpUMod, a.reg, {a, b});
    case Prim::umul_high:
    case Prim::smul_high: {
      const Id u = type(Reg::u32), both = module.op(p == Prim::smul_high ? spv::OpSMulExtended : spv::OpUMulExtended,
                                                    module.type_pair(u, u), {a.id, b.id});
      return {this, module.op(spv::OpCompositeExtract, u, {both, 1}), Reg::u32};
    }
    case Prim::count_bits: return emit(spv::OpBitCount, r, {a});
    case Prim::extract_uint: return emit(spv::OpBitFieldUExtract, r, operands);
    case Prim::extract_sint: return emit(spv::OpBitFieldSExtract, r, operands);
    case Prim::highest_bit: return glsl(GLSLstd450FindUMsb, r, {a});
    case Prim::to_bits:
    case Prim::from_bits: return emit(spv::OpBitcast, r, {a});
    case Prim::resize: return resize(a, r);
    case Prim::sign_extend: return emulates_int64() ? int64::extend(a, true) : emit(spv::OpSConvert, Reg::u64, {a});
    case Prim::float_from_uint: return pair ? int64::to_float(a, r, false) : emit(spv::OpConvertUToF, r, {a});
    case Prim::float_from_sint: return pair ? int64::to_float(a, r, true) : emit(spv::OpConvertSToF, r, {a});
    case Prim::uint_from_float: return to_pair ? int64::from_float(a, false) : emit(spv::OpConvertFToU, r, {a});
    case Prim::sint_from_float: return to_pair ? int64::from_float(a, true) : emit(spv::OpConvertFToS, r, {a});
    case Prim::float_to_float: return emit(spv::OpFConvert, r, {a});
    case Prim::abs: return glsl(GLSLstd450FAbs, r, {a});
    case Prim::floor: return glsl(GLSLstd450Floor, r, {a});
    case Prim::ceil: return glsl(GLSLstd450Ceil, r, {a});
    // Mesa's compiler for CPUs (22.3) takes every f64 from 2^24 on for a whole number in Trunc and RoundEven, as such
    // f32 are; not in Floor. Without AVX-512 RoundEven also takes ties, and what is just beside one, the wrong way.
    case Prim::trunc:
      return a.reg == Reg::f64 ? copy_sign(expand::floor(expand::abs(a)), a) : glsl(GLSLstd450Trunc, r, {a});
    case Prim::round_even: return glsl(GLSLstd450RoundEven, r, {a});
    case Prim::fma:
      if (mistaken_zero(operands[2]) == false) return plus_zero(a * b);
      return mistaken_zero(a) || mistaken_zero(b) ? a * b + operands[2] : glsl(GLSLstd450Fma, r, operands);
    case Prim::sqrt: return glsl(GLSLstd450Sqrt, r, {a});
    case Prim::rsqrt: return glsl(GLSLstd450InverseSqrt, r, {a});
    case Prim::exp2: return glsl(GLSLstd450Exp2, r, {a});
    case Prim::max_number: return glsl(GLSLstd450NMax, r, {a, b});
    case Prim::min_number: return glsl(GLSLstd450NMin, r, {a, b});
    case Prim::clamp_number: return glsl(GLSLstd450NClamp, r, operands);
  }
  return {};
}

std::array<V, 2> Function::product(V a, V b) {
  const Id u = type(Reg::u32), both = module.op(spv::OpUMulExtended, module.type_pair(u, u), {a.id, b.id});
  const V high{this, module.op(spv::OpCompositeExtract, u, {both, 1}), Reg::u32};
  return {V{this, module.op(spv::OpCompositeExtract, u, {both, 0}), Reg::u32}, high};
}

V Function::row(ir::Opcode op, DType operand, Reg result, const std::vector<V>& a) {
  const spv::Op code = kInstructions.elementwise[static_cast<size_t>(op)].of(operand);
  if (code == kNone)
    throw InternalError("spirv: " + std::string(ir::name(op)) + " of dtype " + std::string(tessera::name(operand)));
  return code == kExpand ? V{} : instruction(code, result, a);
}

Id Function::type_f16() {
  module.capability(spv::CapabilityFloat16);
  return module.type_float(16);
}
Id Function::type_u16() {
  module.capability(spv::CapabilityInt16);
  return module.type_uint(16);
}

Id Function::half(V v) {
  const auto known = half_of_.find(v.id);
  return known != half_of_.end() ? known->second : module.op(spv::OpFConvert, type_f16(), {v.id});
}

V Function::from_half(Id h) {
  const V v{this, module.op(spv::OpFConvert, type(Reg::f32), {h}), Reg::f32};
  half_of_[v.id] = h;
  return v;
}

V Function::rounded(V v, DType) {
  const Id h = module.op(spv::OpFConvert, type_f16(), {v.id});
  module.decorate(h, spv::DecorationNoContraction);  // or Mesa 26.1 drops both conversions
  return from_half(h);
}

V Function::narrow_bits(V v, DType) {
  const Id u16 = type_u16(), from = half(v);
  return from_short(module.op(spv::OpBitcast, u16, {from}));
}

V Function::widened(V raw, DType) {
  const Id narrow = short_of(raw);
  const Id h = module.op(spv::OpBitcast, type_f16(), {narrow});
  return from_half(h);
}

V Function::from_short(Id s) {
  const V v{this, module.op(spv::OpUConvert, type(Reg::u32), {s}), Reg::u32};
  short_of_[v.id] = s;
  return v;
}

Id Function::short_of(V word) {
  const auto known = short_of_.find(word.id);
  return known != short_of_.end() ? known->second : module.op(spv::OpUConvert, type_u16(), {word.id});
}

// GPUs have instructions on either half of a register; compilers find them behind vectors of 16-bit integers, not
// behind shifts and masks.
std::array<V, 2> Function::shorts(V word) {
  if (!target.int16) return Sink::shorts(word);
  const Id u16 = type_u16(), both = module.op(spv::OpBitcast, module.type_vector(u16, 2), {word.id});
  const V high = from_short(module.op(spv::OpCompositeExtract, u16, {both, 1}));
  return {from_short(module.op(spv::OpCompositeExtract, u16, {both, 0})), high};
}

V Function::word_of_shorts(V low, V high) {
  const auto a = short_of_.find(low.id), b = short_of_.find(high.id);
  if (a == short_of_.end() || b == short_of_.end()) return Sink::word_of_shorts(low, high);
  const Id both = module.op(spv::OpCompositeConstruct, module.type_vector(type_u16(), 2), {a->second, b->second});
  return {this, module.op(spv::OpBitcast, type(Reg::u32), {both}), Reg::u32};
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
  return function(a[0]).emit(code, result, a);
}

}  // namespace tessera::spirv
