#include "engine/passes/interval.h"

#include <algorithm>

namespace tessera {
namespace {
using ir::Opcode;
using Wide = __int128;
struct Exact {
  Wide lo, hi;
};

Exact all_of(DType t) {
  if (t == DType::boolean) return {0, 1};
  const int n = bits(t);
  return is_unsigned_int(t) ? Exact{0, (Wide{1} << n) - 1} : Exact{-(Wide{1} << (n - 1)), (Wide{1} << (n - 1)) - 1};
}

template <size_t N> Exact hull(const Wide (&corners)[N]) {
  return {*std::min_element(corners, corners + N), *std::max_element(corners, corners + N)};
}

// Sums, differences and products of 64-bit integers fit 127 bits, unless both are u64 beyond i64: then nothing is known
// anyway.
Exact multiply(const Exact& a, const Exact& b) {
  const Wide corners[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  return hull(corners);
}

Exact decided(bool yes, bool no) { return {yes, !no}; }

// Nothing: any value of the result's dtype.
std::optional<Exact> integers(Opcode op, DType t, const Exact& all, const std::vector<Exact>& r) {
  const int width = t == DType::boolean ? 1 : bits(t);
  const Exact a = r[0], b = r.size() > 1 ? r[1] : Exact{};
  // With a default: of an op without a case nothing is known, and its interval is its dtype's.
  switch (op) {
    case Opcode::add: return Exact{a.lo + b.lo, a.hi + b.hi};
    case Opcode::sub: return Exact{a.lo - b.hi, a.hi - b.lo};
    case Opcode::mul: return a.hi > INT64_MAX && b.hi > INT64_MAX ? std::nullopt : std::optional(multiply(a, b));
    case Opcode::neg: return Exact{-a.hi, -a.lo};
    case Opcode::abs: return a.lo >= 0 ? a : Exact{a.hi <= 0 ? -a.hi : 0, std::max(-a.lo, a.hi)};
    case Opcode::sign: return Exact{a.lo < 0 ? -1 : a.lo > 0, a.hi > 0 ? 1 : a.hi < 0 ? -1 : 0};
    case Opcode::max: return Exact{std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Opcode::min: return Exact{std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Opcode::clamp: {  // low, value, high; high wins
      const Exact high = r[2];
      return Exact{std::min(std::max(b.lo, a.lo), high.lo), std::min(std::max(b.hi, a.hi), high.hi)};
    }
    case Opcode::div: {
      if (b.lo < 1) return std::nullopt;
      const Wide corners[] = {a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi};
      return hull(corners);
    }
    case Opcode::rem:  // has the dividend's sign
      if (b.lo < 1) return std::nullopt;
      return Exact{a.lo >= 0 ? 0 : std::max(a.lo, 1 - b.hi), a.hi <= 0 ? 0 : std::min(a.hi, b.hi - 1)};
    case Opcode::not_:
      if (t == DType::boolean) return Exact{1 - a.hi, 1 - a.lo};
      return is_signed_int(t) ? Exact{-a.hi - 1, -a.lo - 1} : Exact{all.hi - a.hi, all.hi - a.lo};
    case Opcode::and_:
      if (a.lo < 0 && b.lo < 0) return std::nullopt;
      return Exact{0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : std::min(a.hi, b.hi)};
    case Opcode::or_:
    case Opcode::xor_: {
      if (a.lo < 0 || b.lo < 0) return std::nullopt;
      Wide top = 1;
      while (top <= std::max(a.hi, b.hi)) top *= 2;
      return Exact{op == Opcode::or_ ? std::max(a.lo, b.lo) : 0, top - 1};
    }
    // Shifts by the width or more, and by less than 0, leave nothing, or the sign.
    case Opcode::shift_left: {
      if (b.lo < 0 || b.hi >= width) return std::nullopt;
      return Exact{a.lo * (Wide{1} << static_cast<int>(a.lo < 0 ? b.hi : b.lo)),
                   a.hi * (Wide{1} << static_cast<int>(a.hi < 0 ? b.lo : b.hi))};
    }
    case Opcode::shift_right_logical:
    case Opcode::shift_right_arithmetic: {
      const bool arithmetic = op == Opcode::shift_right_arithmetic;
      if (arithmetic && is_unsigned_int(t) && a.hi > all.hi / 2) return std::nullopt;  // the top bit fills
      if (a.lo < 0) return arithmetic ? std::optional(Exact{a.lo, std::max<Wide>(a.hi, -1)}) : std::nullopt;
      const bool ordinary = b.lo >= 0 && b.hi < width;
      return Exact{ordinary ? a.lo >> static_cast<int>(b.hi) : 0,
                   b.lo >= 0 && b.lo < width ? a.hi >> static_cast<int>(b.lo) : a.hi};
    }
    case Opcode::clz:
    case Opcode::population_count: return Exact{0, width};
    case Opcode::convert:
      if (t == DType::boolean) return decided(a.lo > 0 || a.hi < 0, a.lo == 0 && a.hi == 0);
      return a;
    case Opcode::eq: return decided(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.hi < b.lo || b.hi < a.lo);
    case Opcode::ne: return decided(a.hi < b.lo || b.hi < a.lo, a.lo == a.hi && b.lo == b.hi && a.lo == b.lo);
    case Opcode::lt: return decided(a.hi < b.lo, a.lo >= b.hi);
    case Opcode::le: return decided(a.hi <= b.lo, a.lo > b.hi);
    case Opcode::gt: return decided(b.hi < a.lo, b.lo >= a.hi);
    case Opcode::ge: return decided(b.hi <= a.lo, b.lo > a.hi);
    case Opcode::select: return Exact{std::min(r[1].lo, r[2].lo), std::max(r[1].hi, r[2].hi)};
    default: return std::nullopt;
  }
}
}  // namespace

Bounds values_of(DType t) { return is_float(t) ? std::nullopt : held(t, all_of(t).lo, all_of(t).hi); }

Bounds held(DType t, __int128 lo, __int128 hi) {
  if (is_float(t)) return std::nullopt;
  Exact e{lo, hi};
  const Exact all = all_of(t);
  if (e.lo < all.lo || e.hi > all.hi) e = all;
  if (e.hi > INT64_MAX) return std::nullopt;
  return Interval{static_cast<int64_t>(e.lo), static_cast<int64_t>(e.hi)};
}

bool never_wraps(ir::Opcode op, DType t, const Bounds& a, const Bounds& b) {
  const Exact all = all_of(t);
  const auto e = integers(op, t, all, {a ? Exact{a->lo, a->hi} : all, b ? Exact{b->lo, b->hi} : all});
  return e && e->lo >= all.lo && e->hi <= all.hi;
}

Bounds result_bounds(ir::Opcode op, DType operand, DType result, const std::vector<Bounds>& operands) {
  if (is_float(result) || is_float(operand)) return values_of(result);
  std::vector<Exact> r;
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType t = op == Opcode::select && i == 0 ? DType::boolean : operand;
    r.push_back(operands[i] ? Exact{operands[i]->lo, operands[i]->hi} : all_of(t));
  }
  const auto e = integers(op, result, all_of(result), r);
  return e ? held(result, e->lo, e->hi) : values_of(result);
}

}  // namespace tessera
