// Rows that look at the bits of integers, and nextafter, which steps through those of floats.
#include "codegen/spirv/elementwise.h"
#include "codegen/spirv/expand.h"

namespace tessera::spirv {
namespace {

V upper_half(V a) { return to_uint(a >> 32, Reg::u32); }
V lower_half(V a) { return to_uint(a, Reg::u32); }

/// The upper 64 bits of an unsigned product, from products of 32-bit halves: SPIR-V's own needs no more than 32 bits to
/// be there.
V upper_product(V a, V b) {
  const V mask = literal(a, uint64_t{0xffffffff});
  const V al = a & mask, ah = a >> 32, bl = b & mask, bh = b >> 32;
  const V middle = ah * bl + ((al * bl) >> 32), other = al * bh + (middle & mask);
  return (ah * bh + (middle >> 32)) + (other >> 32);
}

}  // namespace

V mulhi(DType t, V a, V b) {
  const int w = bits(t);
  if (w <= 16) return is_signed_int(t) ? sar(a * b, w) : (a * b) >> w;
  Function& f = *a.fn;
  if (w == 64) {
    const V r = upper_product(a, b);
    if (!is_signed_int(t)) return r;
    // As signed numbers a is 2^64 less where its top bit is set.
    return (r - (sar(a, 63) & b)) - (sar(b, 63) & a);
  }
  const Id u = f.type(Reg::u32);
  const Id both =
      f.module.op(is_signed_int(t) ? spv::OpSMulExtended : spv::OpUMulExtended, f.module.type_pair(u, u), {a.id, b.id});
  return {&f, f.module.op(spv::OpCompositeExtract, u, {both, 1}), Reg::u32};
}

V count_leading_zeros(DType t, V a) {
  const int w = bits(t);
  if (w < 32 && is_signed_int(t)) a = a & ((1 << w) - 1);
  const V top = highest_bit(a);
  return to_uint(select(eq(a, 0), literal(top, w), (w - 1) - top), a.reg);
}

V population_count(DType t, V a) {
  Function& f = *a.fn;
  const auto count = [&](V v) { return f.emit(spv::OpBitCount, Reg::u32, {v}); };
  if (bits(t) == 64) return to_uint(count(upper_half(a)) + count(lower_half(a)), Reg::u64);
  if (bits(t) < 32 && is_signed_int(t)) a = a & ((1 << bits(t)) - 1);
  return count(a);
}

/// Floats lie in the order of their bits as signed magnitudes, so a step is an integer addition; on the bits of the
/// dtype itself.
V nextafter(DType t, V from, V to) {
  const V a = memory_bits(from, t), b = memory_bits(to, t);
  const uint64_t sign = uint64_t{1} << (bits(t) - 1);
  const auto order = [&](V x) { return select(ne(x & sign, 0), -(x & (sign - 1)), x); };
  const V x = order(a), y = order(b), next = x + select(slt(x, y), literal(x, 1), literal(x, -1));
  V r = select(slt(next, 0), -next | sign, next);
  r = select(eq(next, 0), a & sign, r);  // from the least number to the zero of its sign
  r = select(eq(x, y), b, r);
  return select(is_nan(from) | is_nan(to), nan(from), from_memory_bits(r, t));
}

}  // namespace tessera::spirv
