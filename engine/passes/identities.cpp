// Exact identities of elementwise ops. Integer ones hold modulo 2^n; float ones keep every bit of results that are not
// NaN, signed zeros included. Constants stand in every element, so what holds for scalars holds for arrays.
#include <algorithm>
#include <bit>

#include "engine/ir/reference.h"
#include "engine/passes/folder.h"

namespace tessera::passes {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;
using Result = std::optional<Value>;

namespace {
uint64_t all_ones(DType t) { return bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1; }
uint64_t evaluate(Opcode c, DType t, uint64_t a, uint64_t b) {
  const uint64_t operands[] = {a, b};
  return reference::eval(c, t, t, operands);
}
/// The comparison that is true where c is false, for operands that are not floats.
std::optional<Opcode> inverse(Opcode c) {
  constexpr std::pair<Opcode, Opcode> kOpposites[] = {
      {Opcode::eq, Opcode::ne}, {Opcode::lt, Opcode::ge}, {Opcode::gt, Opcode::le}};
  for (const auto& [one, other] : kOpposites)
    if (c == one || c == other) return c == one ? other : one;
  return std::nullopt;
}
}  // namespace

Result Folder::elementwise(Op& op, const Type& t) {
  if (const Result v = constant_operands(op, t)) return v;
  if (info(op.code).commutative && op.operands.size() == 2 && bits_of(op.operands[0]) && !bits_of(op.operands[1])) {
    std::swap(op.operands[0], op.operands[1]);
    changed_ = true;
  }
  if (op.code == Opcode::select) return selection(op, t);
  if (op.code == Opcode::convert || op.code == Opcode::bitcast) return conversion(op, t);
  if (is_comparison(op.code)) return comparison(op, t);
  if (is_float(t.dtype)) return floats(op);
  if (op.code == Opcode::div || op.code == Opcode::rem) return division(op, t);
  return integers(op, t);
}

Result Folder::constant_operands(const Op& op, const Type& t) {
  uint64_t operands[3] = {};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const auto b = bits_of(op.operands[i]);
    if (!b) return std::nullopt;
    operands[i] = *b;
  }
  return constant(t, reference::eval(op.code, k_.type(op.operands.back()).dtype, t.dtype, operands), op.loc);
}

Result Folder::integers(Op& op, const Type& t) {
  const DType d = t.dtype;
  const Value a = op.operands[0], b = op.operands.size() > 1 ? op.operands[1] : Value{};
  const auto zero = [&] { return constant(t, 0, op.loc); };
  const auto inner = [&](Value v, Opcode c) -> const Op* {
    const Op* def = k_.def(v);
    return def && def->code == c ? def : nullptr;
  };
  const std::optional<uint64_t> c = b ? bits_of(b) : std::nullopt;
  // (x op c1) op c2 -> x op (c1 op c2)
  if (c && info(op.code).associative && op.code != Opcode::max && op.code != Opcode::min)
    if (const Op* first = inner(a, op.code); first && bits_of(first->operands[1])) {
      const Value x = first->operands[0];
      const uint64_t both = evaluate(op.code, d, *bits_of(first->operands[1]), *c);
      return make(op.code, {x, constant(t, both, op.loc)}, t, op.loc);
    }
  // With a default: an op without a case has no identity here, and stays as it is.
  switch (op.code) {
    case Opcode::add:
      if (c == 0) return a;
      break;
    case Opcode::sub:
      if (a == b) return zero();
      if (c == 0) return a;
      if (c && is_signed_int(d))
        return make(Opcode::add, {a, constant(t, evaluate(Opcode::sub, d, 0, *c), op.loc)}, t, op.loc);
      if (const Op* sum = inner(a, Opcode::add)) {  // (x + y) - x
        if (sum->operands[1] == b) return sum->operands[0];
        if (sum->operands[0] == b) return sum->operands[1];
      }
      break;
    case Opcode::mul:
      if (c == 1) return a;
      if (c == 0) return zero();
      break;
    case Opcode::and_:
      if (a == b || c == all_ones(d)) return a;
      if (c == 0) return zero();
      if (c && std::has_single_bit(*c + 1))
        if (const auto r = ranges_.of(a); d != DType::boolean && r && r->lo >= 0 && static_cast<uint64_t>(r->hi) <= *c)
          return a;
      break;
    case Opcode::or_:
      if (a == b || c == 0) return a;
      if (c == all_ones(d)) return constant(t, all_ones(d), op.loc);
      break;
    case Opcode::xor_:
      if (a == b) return zero();
      if (c == 0) return a;
      if (c == all_ones(d)) return make(Opcode::not_, {a}, t, op.loc);
      break;
    case Opcode::not_:
      if (const Op* first = inner(a, Opcode::not_)) return first->operands[0];
      if (const Op* test = k_.def(a); test && inverse(test->code) && !is_float(k_.type(test->operands[0]).dtype))
        return make(*inverse(test->code), std::vector<Value>(test->operands), t, op.loc);
      break;
    case Opcode::neg:
      if (const Op* first = inner(a, Opcode::neg)) return first->operands[0];
      break;
    case Opcode::abs:
      if (const auto r = ranges_.of(a); r && r->lo >= 0) return a;
      if (is_unsigned_int(d)) return a;
      break;
    case Opcode::shift_left:
    case Opcode::shift_right_logical:
    case Opcode::shift_right_arithmetic:
      if (c == 0) return a;
      if (is(a, 0)) return a;
      if (c && op.code == Opcode::shift_right_logical) {
        if (const Result v = upper_half(op, t)) return v;
        return into_arms(op, t);
      }
      break;
    case Opcode::max:
    case Opcode::min: {
      if (a == b) return a;
      const auto x = ranges_.of(a), y = ranges_.of(b);
      if (x && y && x->lo >= y->hi) return op.code == Opcode::max ? a : b;
      if (x && y && x->hi <= y->lo) return op.code == Opcode::max ? b : a;
      if (d == DType::u64 && c == 0) return op.code == Opcode::max ? a : b;
      break;
    }
    case Opcode::clamp: {
      const auto low = ranges_.of(a), v = ranges_.of(b), high = ranges_.of(op.operands[2]);
      if (low && v && high && low->hi <= v->lo && v->hi <= high->lo) return b;
      break;
    }
    default: break;
  }
  return std::nullopt;
}

/// Integer div and rem, mostly of indices: (x * 8 + y) / 8 and % 8 with 0 <= y < 8 come apart.
Result Folder::division(Op& op, const Type& t) {
  const Value a = op.operands[0], b = op.operands[1];
  const bool is_div = op.code == Opcode::div;
  const auto zero = [&] { return constant(t, 0, op.loc); };
  if (is(b, 1)) return is_div ? a : zero();
  if (!is_div && a == b) return zero();  // 0 % 0 is 0 too
  if (!is_div && is(a, 0)) return a;
  const auto c = ir::constant_int(k_, b);
  const auto r = ranges_.of(a);
  if (!c || *c < 1 || !r || r->lo < 0) return std::nullopt;
  if (r->hi < *c) return is_div ? zero() : a;
  const Op* def = k_.def(a);
  // v is x * n without wrapping, x not negative, n a multiple of c
  const auto multiple = [&](Value v) -> std::optional<int64_t> {
    const Op* m = k_.def(v);
    if (!m || m->code != Opcode::mul) return std::nullopt;
    const auto n = ir::constant_int(k_, m->operands[1]);
    if (!n || *n < 1 || *n % *c || !ranges_.exact(Opcode::mul, m->operands[0], m->operands[1], t.dtype) ||
        ranges_.of(m->operands[0])->lo < 0)
      return std::nullopt;
    return n;
  };
  if (const auto n = multiple(a)) {
    if (!is_div) return zero();
    const Value x = k_.def(a)->operands[0];
    return make(Opcode::mul, {x, constant(t, static_cast<uint64_t>(*n / *c), op.loc)}, t, op.loc);
  }
  if (def && def->code == Opcode::add && ranges_.exact(Opcode::add, def->operands[0], def->operands[1], t.dtype)) {
    for (int side = 0; side < 2; ++side) {
      const Value whole = def->operands[static_cast<size_t>(side)], rest = def->operands[static_cast<size_t>(1 - side)];
      const auto constant_whole = ir::constant_int(k_, whole);
      const auto n =
          constant_whole && *constant_whole >= 0 && *constant_whole % *c == 0 ? constant_whole : multiple(whole);
      if (!n || ranges_.of(rest)->lo < 0) continue;
      if (!is_div) return make(Opcode::rem, {rest, b}, t, op.loc);
      const Value quotient =
          constant_whole
              ? constant(t, static_cast<uint64_t>(*n / *c), op.loc)
              : make(Opcode::mul, {k_.def(whole)->operands[0], constant(t, static_cast<uint64_t>(*n / *c), op.loc)}, t,
                     op.loc);
      const Value remaining = make(Opcode::div, {rest, b}, t, op.loc);
      return make(Opcode::add, {quotient, remaining}, t, op.loc);
    }
  }
  // Index arithmetic of the lane level runs per invocation; at tile level the affine form is worth more than a shift.
  if (k_.level == ir::Level::lane && std::has_single_bit(static_cast<uint64_t>(*c))) {
    if (!is_div) return make(Opcode::and_, {a, constant(t, static_cast<uint64_t>(*c - 1), op.loc)}, t, op.loc);
    return make(Opcode::shift_right_logical,
                {a, constant(t, static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(*c))), op.loc)}, t,
                op.loc);
  }
  return std::nullopt;
}

Result Folder::floats(const Op& op) {
  if (op.operands.size() != 2) return std::nullopt;
  const auto b = bits_of(op.operands[1]);
  if (!b) return std::nullopt;
  const DType t = k_.type(op.operands[0]).dtype;
  const uint64_t one = reference::from_double(t, 1.0), minus_zero = reference::from_double(t, -0.0);
  const bool unchanged = ((op.code == Opcode::mul || op.code == Opcode::div) && b == one) ||
                         (op.code == Opcode::add && b == minus_zero) || (op.code == Opcode::sub && *b == 0);
  return unchanged ? Result(op.operands[0]) : std::nullopt;
}

Result Folder::comparison(const Op& op, const Type& t) {
  const Value a = op.operands[0], b = op.operands[1];
  const DType d = k_.type(a).dtype;
  if (a == b && !is_float(d))
    return constant(t, op.code == Opcode::eq || op.code == Opcode::le || op.code == Opcode::ge, op.loc);
  const bool eq = op.code == Opcode::eq, ne = op.code == Opcode::ne;
  if (d == DType::boolean && (eq || ne))
    if (const auto c = bits_of(b)) return (*c != 0) == eq ? a : make(Opcode::not_, {a}, t, op.loc);
  return std::nullopt;
}

Result Folder::conversion(const Op& op, const Type& t) {
  const Value x = op.operands[0];
  const Type& from = k_.type(x);
  if (from.dtype == t.dtype) return x;
  const Op* first = k_.def(x);
  if (op.code == Opcode::convert && is_int(from.dtype) && is_int(t.dtype) && bits(t.dtype) < bits(from.dtype)) {
    if (const Result low = lower_half(x, bits(t.dtype))) return make(op.code, {*low}, t, op.loc);
    if (const Result v = into_arms(op, t)) return v;
  }
  if (!first || first->code != op.code) return std::nullopt;
  const Value source = first->operands[0];
  const DType a = k_.type(source).dtype, b = from.dtype, c = t.dtype;
  if (op.code == Opcode::bitcast) return make(op.code, {source}, t, op.loc);
  if (is_float(a) || is_float(b) || is_float(c) || b == DType::boolean) return std::nullopt;
  // The middle dtype keeps a's value if it holds all of a's values; then it may be left out. If it only keeps the low
  // bits (which is all that a c of at most its width sees), too.
  const bool a_signed = is_signed_int(a), holds = is_signed_int(b)
                                                      ? bits(b) > bits(a) || (a_signed && bits(b) == bits(a))
                                                      : !a_signed && bits(b) >= bits(a);
  const bool low_bits = bits(b) >= bits(a) && bits(c) <= bits(b);
  if (holds || low_bits) return a == c ? source : make(op.code, {source}, t, op.loc);
  return std::nullopt;
}

/// x of x | (y << n), if `low` bits of it are asked for and n is no less.
Result Folder::lower_half(Value v, int low) {
  const Op* both = k_.def(v);
  if (!both || both->code != Opcode::or_) return std::nullopt;
  for (size_t side = 0; side < 2; ++side) {
    const Op* high = k_.def(both->operands[side]);
    if (!high || high->code != Opcode::shift_left) continue;
    const auto by = bits_of(high->operands[1]);
    if (by && *by >= static_cast<uint64_t>(low) && *by < static_cast<uint64_t>(bits(k_.type(v).dtype)))
      return both->operands[1 - side];
  }
  return std::nullopt;
}

/// (x | (y << n)) >> n is y, if x has n bits and y as many as are left.
Result Folder::upper_half(const Op& op, const Type& t) {
  const Op* both = k_.def(op.operands[0]);
  const uint64_t n = *bits_of(op.operands[1]), width = static_cast<uint64_t>(bits(t.dtype));
  const auto has = [&](Value v, uint64_t most) {  // v has no more bits than that
    const Op* def = k_.def(v);
    if (!def || def->code != Opcode::convert) return false;
    const DType from = k_.type(def->operands[0]).dtype;
    return is_unsigned_int(from) && static_cast<uint64_t>(bits(from)) <= most;
  };
  if (!both || both->code != Opcode::or_ || n >= width) return std::nullopt;
  for (size_t side = 0; side < 2; ++side) {
    const Op* high = k_.def(both->operands[side]);
    if (!high || high->code != Opcode::shift_left || bits_of(high->operands[1]) != n) continue;
    if (has(both->operands[1 - side], n) && has(high->operands[0], width - n)) return high->operands[0];
  }
  return std::nullopt;
}

/// Half of a word that is chosen: a choice of halves, if the words are a constant and two halves, or one that was
/// widened.
Result Folder::into_arms(const Op& op, const Type& t) {
  const Op* chosen = k_.def(op.operands[0]);
  if (!chosen || chosen->code != Opcode::select) return std::nullopt;
  const std::vector<Value> of(chosen->operands);
  for (size_t arm = 1; arm <= 2; ++arm) {
    const Op* word = k_.def(of[3 - arm]);
    if (!bits_of(of[arm]) || !word) continue;
    const bool widened =
        op.code == Opcode::convert && word->code == Opcode::convert && k_.type(word->operands[0]).dtype == t.dtype;
    if (word->code != Opcode::or_ && !widened) continue;
    std::vector<Value> halves = of;
    for (size_t i = 1; i <= 2; ++i) {
      std::vector<Value> operands(op.operands);
      operands[0] = of[i];
      halves[i] = make(op.code, std::move(operands), t, op.loc);
    }
    return make(Opcode::select, std::move(halves), t, op.loc);
  }
  return std::nullopt;
}

Result Folder::selection(const Op& op, const Type& t) {
  const Value p = op.operands[0], a = op.operands[1], b = op.operands[2];
  if (a == b) return a;
  if (const auto c = bits_of(p)) return *c ? a : b;
  if (const Op* flipped = k_.def(p); flipped && flipped->code == Opcode::not_)
    return make(Opcode::select, {flipped->operands[0], b, a}, t, op.loc);
  if (t.dtype == DType::boolean) {
    if (is(a, 1) && is(b, 0)) return p;
    if (is(a, 0) && is(b, 1)) return make(Opcode::not_, {p}, t, op.loc);
    if (is(b, 0)) return make(Opcode::and_, {p, a}, t, op.loc);
    if (is(a, 1)) return make(Opcode::or_, {p, b}, t, op.loc);
  }
  return std::nullopt;
}

}  // namespace tessera::passes
