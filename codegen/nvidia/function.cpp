#include "codegen/nvidia/function.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "engine/base/error.h"

namespace tessera::nvidia {
namespace {

// By Reg: boolean, u32, u64, f32, f64. From opaque on, a value is several registers of those.
constexpr std::array<const char*, 5> kPrefix = {"%p", "%r", "%d", "%f", "%g"};
constexpr std::array<const char*, 5> kBits = {"pred", "b32", "b64", "f32", "f64"};
// There are no literals of predicates.
constexpr const char *kTrue = "%true", *kFalse = "%false";
const char* of(const std::array<const char*, 5>& t, Reg r) { return t[static_cast<size_t>(r)]; }

std::string number(Reg r, uint64_t bits) {
  char s[24];
  switch (r) {
    case Reg::boolean:
    case Reg::opaque: break;
    case Reg::u32: return std::to_string(static_cast<int32_t>(bits));
    case Reg::u64: return std::to_string(static_cast<int64_t>(bits));
    case Reg::f32: std::snprintf(s, sizeof s, "0f%08X", static_cast<uint32_t>(bits)); return s;
    case Reg::f64: std::snprintf(s, sizeof s, "0d%016llX", static_cast<unsigned long long>(bits)); return s;
  }
  return {};
}

/// "u32", "s64": an integer's type where its sign matters.
std::string integer(Reg r, bool is_signed) { return std::string(is_signed ? "s" : "u") + std::to_string(width(r)); }

}  // namespace

const char* bits_type(Reg r) { return of(kBits, r); }

Reg Function::several(Reg part, uint32_t n) {
  const std::pair type{part, n};
  auto it = std::find(several_.begin(), several_.end(), type);
  if (it == several_.end()) it = several_.insert(it, type);
  return static_cast<Reg>(static_cast<int>(Reg::opaque) + static_cast<int>(it - several_.begin()));
}

V Function::fresh(Reg r) {
  const auto id = static_cast<uint32_t>(names_.size());
  if (r >= Reg::opaque) {
    names_.emplace_back();
    const auto [part, n] = several_.at(static_cast<size_t>(r) - static_cast<size_t>(Reg::opaque));
    std::vector<V> all;
    for (uint32_t i = 0; i < n; ++i) all.push_back(fresh(part));
    parts_[id] = std::move(all);
    return {this, id, r};
  }
  names_.push_back(of(kPrefix, r) + std::to_string(++registers_[static_cast<size_t>(r)]));
  return {this, id, r};
}

std::string Function::half_register() { return "%h" + std::to_string(++halves_); }

V Function::make_bits(Reg r, uint64_t b) {
  if (width(r) == 32) b &= 0xffffffffu;
  V& v = constants_[{r, b}];
  if (!v.id) {
    v = {this, static_cast<uint32_t>(names_.size()), r};
    names_.push_back(r != Reg::boolean ? number(r, b) : b ? kTrue : kFalse);
    bits_[v.id] = b;
  }
  return v;
}

std::string Function::operand(V v) const { return names_[v.id]; }

std::optional<uint64_t> Function::known(V v) const {
  const auto it = bits_.find(v.id);
  return it == bits_.end() ? std::nullopt : std::optional(it->second);
}

std::string Function::in_register(V v) {
  if (v.reg == Reg::boolean || !known(v)) return operand(v);
  const V r = fresh(v.reg);
  move(r, v);
  return operand(r);
}

void Function::line(const std::string& text) { text_ += "  " + text + ";\n"; }

V Function::op(const std::string& code, Reg r, const std::vector<V>& operands) {
  const V v = fresh(r);
  std::string text = code + " " + operand(v);
  for (V o : operands) text += ", " + operand(o);
  line(text);
  return v;
}

void Function::move(V to, V from) {
  if (to.reg >= Reg::opaque) {
    for (size_t i = 0; i < parts(to).size(); ++i) move(parts(to)[i], parts(from)[i]);
    return;
  }
  line(std::string("mov.") + of(kBits, to.reg) + " " + operand(to) + ", " + operand(from));
}

V Function::in_halves(V v, FunctionRef<V(V)> f) {
  const V low = fresh(Reg::u32), high = fresh(Reg::u32), out = fresh(v.reg);
  line("mov.b64 {" + operand(low) + ", " + operand(high) + "}, " + in_register(v));
  const V l = f(low), h = f(high);
  line("mov.b64 " + operand(out) + ", {" + in_register(l) + ", " + in_register(h) + "}");
  return out;
}

// -- control flow

std::string Function::label() { return "$L" + std::to_string(++labels_); }

void Function::place(const std::string& name) {
  text_ += name + ":\n";
  ++block;
}

std::vector<V> Function::if_else(V c, FunctionRef<std::vector<V>()> then_body,
                                 FunctionRef<std::vector<V>()> else_body) {
  const std::string other = label(), end = label();
  line("@!" + in_register(c) + " bra " + other);
  ++block;
  std::vector<V> out;
  for (V v : then_body()) {
    out.push_back(fresh(v.reg));
    move(out.back(), v);
  }
  const size_t then_end = text_.size();
  line("bra " + end);
  place(other);
  const size_t else_begin = text_.size();
  const std::vector<V> values = else_body();
  for (size_t i = 0; i < out.size(); ++i) move(out[i], values[i]);
  if (text_.size() > else_begin) {
    place(end);
  } else {  // nothing to jump over
    text_.resize(then_end);
    place(other);
  }
  return out;
}

void Function::when(V c, FunctionRef<void()> body) {
  const std::string end = label();
  line("@!" + in_register(c) + " bra " + end);
  ++block;
  body();
  place(end);
}

std::vector<V> Function::while_loop(const std::vector<V>& init, FunctionRef<V(const std::vector<V>&)> cond,
                                    FunctionRef<std::vector<V>(const std::vector<V>&)> body) {
  std::vector<V> state;
  for (V v : init) {
    state.push_back(fresh(v.reg));
    move(state.back(), v);
  }
  const std::string head = label(), end = label();
  place(head);
  line("@!" + in_register(cond(state)) + " bra " + end);
  ++block;
  std::vector<V> after = body(state);
  // All at once: what another variable held is kept before that is written.
  for (size_t i = 0; i < after.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (after[i].id == state[j].id && after[j].id != state[j].id) {
        const V kept = fresh(after[i].reg);
        move(kept, after[i]);
        after[i] = kept;
        break;
      }
  for (size_t i = 0; i < after.size(); ++i)
    if (after[i].id != state[i].id) move(state[i], after[i]);
  line("bra " + head);
  place(end);
  return state;
}

// -- arithmetic

namespace {

struct Names {
  const char *flt, *integer, *boolean;
};
std::string named(Reg r, const Names& n) {
  if (r == Reg::boolean) return n.boolean;
  return is_float(r) ? std::string(n.flt) + of(kBits, r)
                     : n.integer + std::string(is_float(r) ? "" : std::to_string(width(r)));
}

std::string compare(const char* flt, const char* integer_code, Reg r) {
  return is_float(r) ? std::string("setp.") + flt + "." + of(kBits, r)
                     : std::string("setp.") + integer_code + std::to_string(width(r));
}

}  // namespace

// ptxas 13.0.88 makes one instruction of min(min(a, -b), c) on chips from sm_90 to sm_103, and of max alike, and
// forgets the minus. This one it keeps.
V Function::negated(V a) {
  const V flipped = op("not.b32", a.reg, {a}), one = make(a.reg, 1);
  return op("add.u32", a.reg, {flipped, one});
}

// Of f32 in relaxed code within 3 ulp, by a reciprocal, whose operand and result must be normal numbers: what several
// quotients have in common ptxas finds. A quotient of at most 1 by divisors beyond 2^126 is no normal number either.
V Function::quotient(Reg r, const std::vector<V>& a) {
  if (!relaxed || r != Reg::f32) return op(std::string("div.rn.") + of(kBits, r), r, a);
  const auto above = known(a[0]);
  if (above == 0x3f800000) return op("rcp.approx.ftz.f32", r, {a[1]});
  if (above && (*above & 0x7fffffff) < 0x3f800000) return op("div.approx.ftz.f32", r, a);
  if (const auto by = known(a[1])) {
    const double divisor = std::bit_cast<float>(static_cast<uint32_t>(*by)), size = std::fabs(divisor);
    if (size >= 0x1p-126 && size <= 0x1p126) return a[0] * (1 / divisor);
  }
  const V size = abs(a[1]), large = size > 0x1p126, small = size < 0x1p-126;
  const V smaller = select(large, literal(a[1], 0.25), 1.0), scale = select(small, 0x1p24, smaller);
  const V part = op("rcp.approx.ftz.f32", r, {a[1] * scale});
  return (a[0] * scale) * part;
}

// e^x = 2^t (1 + d): t is x log2(e) rounded down, and a little less, so that d, what is missing, is never negative. Of
// infinite x it is NaN, which .sat makes zero.
V Function::power_of_e(V x) {
  const V t = op("fma.rm.f32", Reg::f32, {x, make(Reg::f32, 0x1.715476p+0), make(Reg::f32, -0x1p-18)});
  const V high = op("fma.rn.f32", Reg::f32, {t, make(Reg::f32, -0x1.62e43p-1), x});
  const V missing = op("fma.rn.sat.f32", Reg::f32, {t, make(Reg::f32, 0x1.05c61p-29), high});
  const V power = apply(Prim::exp2, Reg::f32, {t});
  return power * (missing + 1.0);
}

V Function::apply(Prim p, Reg r, const std::vector<V>& a) {
  const Reg from = a[0].reg;
  const std::string type = of(kBits, from), to = of(kBits, r);
  const auto same = [&](const Names& n) { return op(named(from, n), r, a); };
  const auto set = [&](const char* flt, const char* integer_code) {
    return op(compare(flt, integer_code, from), r, a);
  };
  const auto shift = [&](const std::string& code) {
    const V amount = to_uint(a[1], Reg::u32);
    return op(code, r, {a[0], amount});
  };
  const auto rounded_to = [&](const char* how) {
    return op(std::string("cvt.") + how + "." + type + "." + type, r, a);
  };
  switch (p) {
    case Prim::add: return same({"add.rn.", "add.u", ""});
    case Prim::sub: return known(a[0]) == 0 && r == Reg::u32 ? negated(a[1]) : same({"sub.rn.", "sub.u", ""});
    case Prim::mul:
      if (r == Reg::u32 && known(a[1]) == 0xffffffff) return negated(a[0]);
      if (r == Reg::u32 && known(a[0]) == 0xffffffff) return negated(a[1]);
      return same({"mul.rn.", "mul.lo.u", ""});
    case Prim::div: return quotient(r, a);
    case Prim::neg: return r == Reg::u32 ? negated(a[0]) : same({"neg.", "neg.s", ""});
    case Prim::and_: return same({"", "and.b", "and.pred"});
    case Prim::or_: return same({"", "or.b", "or.pred"});
    case Prim::xor_: return same({"", "xor.b", "xor.pred"});
    case Prim::not_: return same({"", "not.b", "not.pred"});
    case Prim::shl: return shift("shl." + type);
    case Prim::shr: return shift("shr." + integer(from, false));
    case Prim::sar: return shift("shr." + integer(from, true));
    case Prim::lt: return set("lt", "lt.u");
    case Prim::le: return set("le", "le.u");
    case Prim::gt: return set("gt", "gt.u");
    case Prim::ge: return set("ge", "ge.u");
    case Prim::eq:
      if (from != Reg::boolean) return set("eq", "eq.b");
      return op("not.pred", r, {op("xor.pred", r, a)});
    case Prim::ne: return from == Reg::boolean ? op("xor.pred", r, a) : set("neu", "ne.b");
    case Prim::slt: return set("", "lt.s");
    case Prim::sle: return set("", "le.s");
    case Prim::unordered_lt: return set("ltu", "");
    case Prim::unordered_gt: return set("gtu", "");
    case Prim::select: {
      if (r != Reg::boolean) return op(std::string("selp.") + to, r, {a[1], a[2], a[0]});
      const V yes = a[0] & a[1], no = ~a[0] & a[2];
      return yes | no;
    }
    case Prim::udiv: return op("div." + integer(from, false), r, a);
    case Prim::sdiv: return op("div." + integer(from, true), r, a);
    case Prim::umod: return op("rem." + integer(from, false), r, a);
    case Prim::umul_high: return op("mul.hi.u32", r, a);
    case Prim::smul_high: return op("mul.hi.s32", r, a);
    case Prim::count_bits: return op("popc.b32", r, a);
    case Prim::extract_uint: return op("bfe.u32", r, a);
    case Prim::extract_sint: return op("bfe.s32", r, a);
    case Prim::highest_bit: return op("bfind.u32", r, a);
    case Prim::to_bits:
    case Prim::from_bits: {
      const auto constant = known(a[0]);
      return constant ? make_bits(r, *constant) : op(width(r) == 64 ? "mov.b64" : "mov.b32", r, a);
    }
    case Prim::resize: {
      const auto constant = known(a[0]);
      return constant ? make_bits(r, *constant) : op("cvt." + integer(r, false) + "." + integer(from, false), r, a);
    }
    case Prim::sign_extend: {
      const auto constant = known(a[0]);
      return constant ? make_bits(r, static_cast<uint64_t>(int64_t{static_cast<int32_t>(*constant)}))
                      : op("cvt.s64.s32", r, a);
    }
    case Prim::float_from_uint: return op("cvt.rn." + to + "." + integer(from, false), r, a);
    case Prim::float_from_sint: return op("cvt.rn." + to + "." + integer(from, true), r, a);
    case Prim::uint_from_float: return op("cvt.rzi." + integer(r, false) + "." + type, r, a);
    case Prim::sint_from_float: return op("cvt.rzi." + integer(r, true) + "." + type, r, a);
    case Prim::float_to_float: return op(std::string(r == Reg::f32 ? "cvt.rn." : "cvt.") + to + "." + type, r, a);
    case Prim::abs: return op("abs." + type, r, a);
    case Prim::floor: return rounded_to("rmi");
    case Prim::ceil: return rounded_to("rpi");
    case Prim::trunc: return rounded_to("rzi");
    case Prim::round_even: return rounded_to("rni");
    case Prim::fma: return op("fma.rn." + type, r, a);
    case Prim::sqrt: return op(relaxed && r == Reg::f32 ? "sqrt.approx.ftz.f32" : "sqrt.rn." + type, r, a);
    case Prim::rsqrt:
      if (r == Reg::f32) return op(relaxed ? "rsqrt.approx.ftz.f32" : "rsqrt.approx.f32", r, a);
      return 1.0 / op("sqrt.rn.f64", r, a);
    case Prim::exp2:
      if (r != Reg::f32) break;
      return op("ex2.approx.ftz.f32", r, a);  // of subnormal numbers 1 as well: no code that scales them
    case Prim::max_number: return op("max." + type, r, a);
    case Prim::min_number: return op("min." + type, r, a);
    case Prim::clamp_number: return op("min." + type, r, {op("max." + type, r, {a[0], a[1]}), a[2]});
  }
  throw InternalError("nvidia: a primitive of other registers than it has");
}

std::array<V, 2> Function::product(V a, V b) {
  const V high = op("mul.hi.u32", Reg::u32, {a, b});
  return {op("mul.lo.u32", Reg::u32, {a, b}), high};
}

V Function::row(ir::Opcode code, DType operand, Reg r, const std::vector<V>& a) {
  const Ins ins = kColumns.elementwise[static_cast<size_t>(code)].of(operand);
  const auto typed = [&](const char* name, bool is_signed) {
    return op(std::string(name) + integer(a[0].reg, is_signed), r, a);
  };
  const auto flt = [&](const char* name) { return op(std::string(name) + of(kBits, a[0].reg), r, a); };
  const bool sgn = is_signed_int(operand);
  switch (ins) {
    case Ins::NONE:
      throw InternalError("nvidia: " + std::string(ir::name(code)) + " of dtype " +
                          std::string(tessera::name(operand)));
    case Ins::EXPAND: return {};
    case Ins::add_rn:
    case Ins::add: return apply(Prim::add, r, a);
    case Ins::sub_rn:
    case Ins::sub: return apply(Prim::sub, r, a);
    case Ins::mul_rn:
    case Ins::mul_lo: return apply(Prim::mul, r, a);
    case Ins::div_rn: return apply(Prim::div, r, a);
    case Ins::fma_rn: return apply(Prim::fma, r, a);
    case Ins::sqrt_rn: return apply(Prim::sqrt, r, a);
    case Ins::neg_f:
    case Ins::neg: return apply(Prim::neg, r, a);
    case Ins::abs_f: return apply(Prim::abs, r, a);
    case Ins::max_nan: return a[0].reg == Reg::f64 ? V{} : flt("max.NaN.");
    case Ins::min_nan: return a[0].reg == Reg::f64 ? V{} : flt("min.NaN.");
    case Ins::cvt_rmi: return apply(Prim::floor, r, a);
    case Ins::cvt_rpi: return apply(Prim::ceil, r, a);
    case Ins::cvt_rni: return apply(Prim::round_even, r, a);
    case Ins::abs: return typed("abs.", true);
    case Ins::max: return typed("max.", sgn);
    case Ins::min: return typed("min.", sgn);
    case Ins::and_: return apply(Prim::and_, r, a);
    case Ins::or_: return apply(Prim::or_, r, a);
    case Ins::xor_: return apply(Prim::xor_, r, a);
    case Ins::not_: return apply(Prim::not_, r, a);
    case Ins::setp_eq:
    case Ins::eq_pred: return apply(Prim::eq, r, a);
    case Ins::setp_ne:
    case Ins::setp_neu: return apply(Prim::ne, r, a);
    case Ins::setp_lt: return apply(sgn ? Prim::slt : Prim::lt, r, a);
    case Ins::setp_le: return apply(sgn ? Prim::sle : Prim::le, r, a);
    case Ins::setp_gt: return sgn ? typed("setp.gt.", true) : apply(Prim::gt, r, a);
    case Ins::setp_ge: return sgn ? typed("setp.ge.", true) : apply(Prim::ge, r, a);
    case Ins::selp: return apply(Prim::select, r, a);
  }
  return {};
}

// -- narrow floats

bool Function::converts(DType t) const {
  return t == DType::f16 || t == DType::bf16 || (is_narrow_float(t) && converts_f8_);
}

// The 8-bit formats come in pairs, of which the other is 0, and saturate.
V Function::narrow_bits(V v, DType t) {
  if (const auto known_bits = narrow_.find({v.id, t}); known_bits != narrow_.end()) return known_bits->second;
  const std::string half = half_register();
  if (size_bytes(t) == 1) {
    const bool e4m3 = t == DType::f8e4m3fn;
    line(std::string("cvt.rn.satfinite.") + (e4m3 ? "e4m3x2" : "e5m2x2") + ".f32 " + half + ", 0f00000000, " +
         in_register(v));
    const V r = fresh(Reg::u32);
    line("cvt.u32.u16 " + operand(r) + ", " + half);
    // Halfway beyond the greatest number, which is even in f8e4m3fn and odd in f8e5m2; false for NaN.
    const V size = expand::abs(v), beyond = e4m3 ? size > 464.0 : size >= 61440.0;
    const V special = literal(r, e4m3 ? 0x7f : 0x7c);
    const V sign = sign_bit(v) >> 24;  // of a NaN, too
    return select(beyond, special, r) | sign;
  }
  line(std::string(t == DType::f16 ? "cvt.rn.f16.f32 " : "cvt.rn.bf16.f32 ") + half + ", " + in_register(v));
  const V r = fresh(Reg::u32);
  line("cvt.u32.u16 " + operand(r) + ", " + half);
  return r;
}

V Function::widened(V raw, DType t) {
  if (t == DType::bf16) return floating(raw << 16);
  std::string half = half_register();
  line("cvt.u16.u32 " + half + ", " + in_register(raw));
  if (size_bytes(t) == 1) {
    const V both = fresh(Reg::u32);
    line(std::string("cvt.rn.f16x2.") + (t == DType::f8e4m3fn ? "e4m3x2 " : "e5m2x2 ") + operand(both) + ", " + half);
    half = half_register();
    line("cvt.u16.u32 " + half + ", " + operand(both));
  }
  const V r = fresh(Reg::f32);
  line("cvt.f32.f16 " + operand(r) + ", " + half);
  return r;
}

V Function::rounded(V v, DType t) {
  const V raw = narrow_bits(v, t);
  V r = widened(raw, t);
  if (size_bytes(t) == 1) {
    const V sign = sign_bit(v);  // of a NaN, too
    r = floating(bits(r) | sign);
  }
  narrow_[{r.id, t}] = raw;
  if (size_bytes(t) == 2) wide_[{r.id, t}] = v;
  return r;
}

V Function::rounded_pair(V low, V high, DType t) {
  const auto a = wide_.find({low.id, t}), b = wide_.find({high.id, t});
  if (a == wide_.end() || b == wide_.end()) return {};
  const V word = fresh(Reg::u32);
  line(std::string("cvt.rn.") + (t == DType::f16 ? "f16x2" : "bf16x2") + ".f32 " + operand(word) + ", " +
       in_register(b->second) + ", " + in_register(a->second));
  return word;
}

std::string Function::body() const {
  std::string s;
  const auto declare = [&](const std::string& type, const std::string& prefix, uint32_t n) {
    if (n) s += "  .reg ." + type + " " + prefix + "<" + std::to_string(n + 1) + ">;\n";
  };
  for (size_t i = 0; i < registers_.size(); ++i) declare(kBits[i], kPrefix[i], registers_[i]);
  declare("b16", "%h", halves_);
  for (const auto& [constant, v] : constants_)
    if (constant.first == Reg::boolean)
      s += "  .reg .pred " + operand(v) + ";\n  setp.ne.b32 " + operand(v) + ", " + std::to_string(constant.second) +
           ", 0;\n";
  return s + text_;
}

}  // namespace tessera::nvidia
