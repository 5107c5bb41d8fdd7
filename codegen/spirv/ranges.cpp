#include "codegen/spirv/ranges.h"

#include <algorithm>

namespace tessera::spirv {

Range full_range(DType t) {
  if (t == DType::boolean) return {0, 1, true};
  if (is_float(t) || t == DType::u64) return {};
  const int n = bits(t);
  if (is_signed_int(t)) return {n == 64 ? INT64_MIN : -(int64_t{1} << (n - 1)), n == 64 ? INT64_MAX : (int64_t{1} << (n - 1)) - 1, true};
  return {0, (int64_t{1} << n) - 1, true};
}

Range range_in(DType t, __int128 lo, __int128 hi) {
  const Range full = full_range(t);
  if (is_float(t)) return full;
  // u64's upper half has no Range, but a range below it does.
  const __int128 least = t == DType::u64 ? 0 : full.lo, greatest = t == DType::u64 ? INT64_MAX : full.hi;
  if (lo < least || hi > greatest) return full;
  return {static_cast<int64_t>(lo), static_cast<int64_t>(hi), true};
}

Range result_range(ir::Opcode op, DType operand, DType result, const std::vector<Range>& r) {
  using ir::Opcode;
  const Range full = full_range(result);
  if (!is_int(result) && result != DType::boolean) return full;
  for (const Range& x : r)
    if (!x.known && op != Opcode::and_ && op != Opcode::min && op != Opcode::rem && op != Opcode::clamp &&
        op != Opcode::clz && op != Opcode::population_count)
      return full;
  const auto wide = [](int64_t x) { return static_cast<__int128>(x); };
  switch (op) {
    case Opcode::add: return range_in(result, wide(r[0].lo) + r[1].lo, wide(r[0].hi) + r[1].hi);
    case Opcode::sub: return range_in(result, wide(r[0].lo) - r[1].hi, wide(r[0].hi) - r[1].lo);
    case Opcode::mul: {
      const __int128 p[] = {wide(r[0].lo) * r[1].lo, wide(r[0].lo) * r[1].hi, wide(r[0].hi) * r[1].lo, wide(r[0].hi) * r[1].hi};
      return range_in(result, *std::min_element(p, p + 4), *std::max_element(p, p + 4));
    }
    case Opcode::div:
      if (r[1].lo <= 0) return full;
      return range_in(result, std::min(wide(r[0].lo) / r[1].lo, wide(r[0].lo) / r[1].hi),
                      std::max(wide(r[0].hi) / r[1].lo, wide(r[0].hi) / r[1].hi));
    case Opcode::rem: {
      if (!r[1].known || r[1].lo <= 0) return full;
      const int64_t most = r[1].hi - 1;
      if (!r[0].known) return result == DType::u64 ? Range{0, most, true} : range_in(result, -wide(most), most);
      return range_in(result, r[0].lo >= 0 ? 0 : std::max(-wide(most), wide(r[0].lo)),
                      r[0].hi <= 0 ? 0 : std::min(wide(most), wide(r[0].hi)));
    }
    case Opcode::max: return range_in(result, std::max(r[0].lo, r[1].lo), std::max(r[0].hi, r[1].hi));
    case Opcode::min:
      if (!r[0].known && !r[1].known) return full;
      if (!r[0].known) return result == DType::u64 && r[1].lo >= 0 ? Range{0, r[1].hi, true} : full;
      if (!r[1].known) return result == DType::u64 && r[0].lo >= 0 ? Range{0, r[0].hi, true} : full;
      return range_in(result, std::min(r[0].lo, r[1].lo), std::min(r[0].hi, r[1].hi));
    case Opcode::clamp:
      if (!r[0].known || !r[2].known) return full;
      return range_in(result, std::min(r[0].lo, r[2].lo), r[2].hi);
    case Opcode::and_:
      if (r[0].nonnegative() && r[1].nonnegative()) return {0, std::min(r[0].hi, r[1].hi), true};
      if (r[0].nonnegative()) return {0, r[0].hi, true};
      if (r[1].nonnegative()) return {0, r[1].hi, true};
      return full;
    case Opcode::shift_left:
      if (!r[1].within(0, 62) || !r[0].nonnegative()) return full;
      return range_in(result, wide(r[0].lo) << r[1].lo, wide(r[0].hi) << r[1].hi);
    case Opcode::shift_right_logical:
    case Opcode::shift_right_arithmetic:
      if (!r[1].within(0, 62) || !r[0].nonnegative()) return full;
      if (op == Opcode::shift_right_arithmetic && is_unsigned_int(result) && r[0].hi >> (bits(result) - 1))
        return full;  // the top bit fills
      return range_in(result, r[0].lo >> r[1].hi, r[0].hi >> r[1].lo);
    case Opcode::clz:
    case Opcode::population_count: return {0, bits(result), true};
    case Opcode::select: return range_in(result, std::min(r[1].lo, r[2].lo), std::max(r[1].hi, r[2].hi));
    case Opcode::convert:
      if ((is_int(operand) || operand == DType::boolean) && is_int(result)) return range_in(result, r[0].lo, r[0].hi);
      return full;
    default: return full;
  }
}

}  // namespace tessera::spirv
