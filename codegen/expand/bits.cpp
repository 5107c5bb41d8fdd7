// Rows that look at the bits of integers, and nextafter, which steps through those of floats.
#include "codegen/expand/convert.h"
#include "codegen/expand/expand.h"

namespace tessera::expand {
namespace {

V upper_half(V a) { return to_uint(a >> 32, Reg::u32); }
V lower_half(V a) { return to_uint(a, Reg::u32); }

/// The upper 64 bits of an unsigned product, from products of 32-bit halves: SPIR-V's own needs no more than 32 bits to
/// be there.
V upper_product(V a, V b) {
  const V mask = literal(a, uint64_t{0xffffffff});
  const V al = a & mask, ah = a >> 32, bl = b & mask, bh = b >> 32;
  const V carried = (al * bl) >> 32, middle = ah * bl + carried;
  const V lower = middle & mask, other = al * bh + lower;
  const V of_other = other >> 32, of_middle = middle >> 32;
  return (ah * bh + of_middle) + of_other;
}

}  // namespace

V mulhi(DType t, V a, V b) {
  const int w = bits(t);
  if (w <= 16) return is_signed_int(t) ? sar(a * b, w) : (a * b) >> w;
  if (w == 64) {
    const V r = upper_product(a, b);
    if (!is_signed_int(t)) return r;
    // As signed numbers a is 2^64 less where its top bit is set.
    const V of_b = sar(b, 63) & a;
    return (r - (sar(a, 63) & b)) - of_b;
  }
  return a.fn->apply(is_signed_int(t) ? Prim::smul_high : Prim::umul_high, Reg::u32, {a, b});
}

V count_leading_zeros(DType t, V a) {
  const int w = bits(t);
  if (w < 32 && is_signed_int(t)) a = a & ((1 << w) - 1);
  const V top = highest_bit(a);
  const V above = (w - 1) - top, all = literal(top, w);
  return to_uint(select(eq(a, 0), all, above), a.reg);
}

V population_count(DType t, V a) {
  const auto count = [&](V v) { return v.fn->apply(Prim::count_bits, Reg::u32, {v}); };
  if (bits(t) == 64) {
    const V lower = count(lower_half(a));
    return to_uint(count(upper_half(a)) + lower, Reg::u64);
  }
  if (bits(t) < 32 && is_signed_int(t)) a = a & ((1 << bits(t)) - 1);
  return count(a);
}

/// Floats lie in the order of their bits as signed magnitudes, so a step is an integer addition; on the bits of the
/// dtype itself.
V nextafter(DType t, V from, V to) {
  const V a = memory_bits(from, t), b = memory_bits(to, t);
  const uint64_t sign = uint64_t{1} << (bits(t) - 1);
  const auto order = [&](V x) {
    const V negated = -(x & (sign - 1));
    return select(ne(x & sign, 0), negated, x);
  };
  const V x = order(a), y = order(b), down = literal(x, -1), up = literal(x, 1), next = x + select(slt(x, y), up, down);
  const V below_zero = -next | sign;
  V r = select(slt(next, 0), below_zero, next);
  const V zero = a & sign;
  r = select(eq(next, 0), zero, r);  // from the least number to the zero of its sign
  r = select(eq(x, y), b, r);
  const V number = from_memory_bits(r, t), undefined = nan(from), nan_to = is_nan(to);
  return select(is_nan(from) | nan_to, undefined, number);
}

}  // namespace tessera::expand
