#include "codegen/spirv/pairs.h"

#include <bit>
#include <optional>

namespace tessera::spirv::pairs {
namespace {

V high(V a) { return a.fn->halves(a)[1]; }
V join(V l, V h) { return l.fn->join(l, h); }
V word(V like, uint32_t x) { return like.fn->make(Reg::u32, x); }
V carry(V c) { return spirv::select(c, word(c, 1), word(c, 0)); }
V shift_word(V amount) { return amount.reg == Reg::u64 ? low(amount) : amount; }

/// The low and high word of a product of words.
std::array<V, 2> product(V a, V b) {
  Function& f = *a.fn;
  const Id u = f.type(Reg::u32), both = f.module.op(spv::OpUMulExtended, f.module.type_pair(u, u), {a.id, b.id});
  const auto part = [&](uint32_t i) { return V{&f, f.module.op(spv::OpCompositeExtract, u, {both, i}), Reg::u32}; };
  return {part(0), part(1)};
}

V leading_zeros(V x) {  // of a word that is not 0
  return 31 - highest_bit(x);
}

/// (u1, u0) / v for u1 < v, after Knuth's algorithm D with two digits of 16 bits (as in Warren, Hacker's Delight,
/// divlu).
V divide_words(V u1, V u0, V v) {
  const V s = leading_zeros(v);
  v = v << s;
  const V v1 = v >> 16, v0 = v & 0xffff;
  const V top = (u1 << s) | ((u0 >> 1) >> (31 - s)), rest = u0 << s;
  const auto digit = [&](V numerator, V next) {  // of the quotient; `next`: the 16 bits below the numerator
    V q = spirv::udiv(numerator, v1), r = numerator - q * v1;
    for (int i = 0; i < 2; ++i) {  // at most two too large
      const V high_q = q >= 65536, too_large = (high_q | (q * v0 > ((r << 16) | next))) & (r < 65536);
      q = spirv::select(too_large, q - 1, q);
      r = spirv::select(too_large, r + v1, r);
    }
    return q;
  };
  const V q1 = digit(top, rest >> 16), below = ((top << 16) + (rest >> 16)) - q1 * v, q0 = digit(below, rest & 0xffff);
  return (q1 << 16) + q0;
}

V absolute(V a, V negative) { return choose(negative, sub(a.fn->make(Reg::u64, 0), a), a); }
V is_negative(V a) { return slt(high(a), 0); }

}  // namespace

V low(V a) { return a.fn->halves(a)[0]; }

V add(V a, V b) {
  const V l = low(a) + low(b);
  return join(l, (high(a) + high(b)) + carry(l < low(a)));
}
V sub(V a, V b) { return join(low(a) - low(b), (high(a) - high(b)) - carry(low(a) < low(b))); }
V mul(V a, V b) {
  // Addresses are multiplied by the sizes of elements.
  if (const auto l = a.fn->known_word(low(b)), h = a.fn->known_word(high(b));
      l && h && *h == 0 && std::has_single_bit(*l))
    return shift_left(a, word(a, static_cast<uint32_t>(std::countr_zero(*l))));
  const auto [l, h] = product(low(a), low(b));
  return join(l, h + (low(a) * high(b) + high(a) * low(b)));
}

V bitwise(spv::Op code, V a, V b) {
  return join(a.fn->emit(code, Reg::u32, {low(a), low(b)}), a.fn->emit(code, Reg::u32, {high(a), high(b)}));
}
V complement(V a) { return join(~low(a), ~high(a)); }

V shift_left(V a, V amount) {
  const V n = shift_word(amount);
  if (const auto known = a.fn->known_word(n)) {
    if (*known == 0) return a;
    if (*known >= 32) return join(word(a, 0), *known == 32 ? low(a) : low(a) << (*known - 32));
    return join(low(a) << *known, (high(a) << *known) | (low(a) >> (32 - *known)));
  }
  const V small = n < 32, m = n & 31, l = low(a) << m, h = (high(a) << m) | ((low(a) >> 1) >> (31 - m));
  return join(spirv::select(small, l, 0), spirv::select(small, h, l));
}

V shift_right(V a, V amount, bool arithmetic) {
  const V n = shift_word(amount);
  const auto down = [&](V x, V by) { return arithmetic ? sar(x, by) : x >> by; };
  const auto fill = [&] { return arithmetic ? sar(high(a), 31) : word(a, 0); };
  if (const auto known = a.fn->known_word(n)) {
    if (*known == 0) return a;
    if (*known >= 32) return join(*known == 32 ? high(a) : down(high(a), word(a, *known - 32)), fill());
    return join((low(a) >> *known) | (high(a) << (32 - *known)), down(high(a), word(a, *known)));
  }
  const V small = n < 32, m = n & 31, h = down(high(a), m), l = (low(a) >> m) | ((high(a) << 1) << (31 - m));
  return join(spirv::select(small, l, h), spirv::select(small, h, fill()));
}

V less(V a, V b, bool or_equal) {
  const V below = or_equal ? low(a) <= low(b) : low(a) < low(b);
  return (high(a) < high(b)) | (eq(high(a), high(b)) & below);
}
V equal(V a, V b) { return eq(low(a), low(b)) & eq(high(a), high(b)); }
V choose(V c, V a, V b) { return join(spirv::select(c, low(a), low(b)), spirv::select(c, high(a), high(b))); }

// A divisor of one word takes two steps of 64 by 32 bits. A larger one is normalised: the quotient of the upper words,
// from half of a, is right or one too large, which the remainder shows (Warren, Hacker's Delight, udivdi3).
V divide(V a, V b) {
  const V small = eq(high(b), 0), n = leading_zeros(spirv::select(small, 1, high(b)));
  const V divisor = spirv::select(small, low(b), 0) | spirv::select(small, literal(n, 0), high(shift_left(b, n)));
  const V one_word = spirv::select(small, low(b), 1), upper = spirv::udiv(high(a), one_word);
  const V half = shift_right(a, word(a, 1), false);
  const V u1 = spirv::select(small, high(a) - upper * one_word, high(half)),
          u0 = spirv::select(small, low(a), low(half));
  const V q = divide_words(u1, u0, divisor);
  const V guess = shift_right(shift_left(extend(q, false), n), word(a, 31), false), g = low(guess);
  const V lower = extend(g - spirv::select(eq(g, 0), literal(g, 0), literal(g, 1)), false);
  const V remainder = sub(a, mul(lower, b));
  const V large = add(lower, extend(carry(~less(remainder, b, false)), false));
  return choose(small, join(q, upper), large);
}

V divide_signed(V a, V b) {
  const V na = is_negative(a), nb = is_negative(b), q = divide(absolute(a, na), absolute(b, nb));
  return absolute(q, na ^ nb);
}

V extend(V x, bool is_signed) { return join(x, is_signed ? sar(x, 31) : word(x, 0)); }

V to_float(V a, Reg r, bool is_signed) {
  const V negative = is_signed ? is_negative(a) : V{};
  const V m = is_signed ? absolute(a, negative) : a;
  V x;
  if (r == Reg::f64) {
    x = float_from_uint(high(m), r) * 0x1p32 + float_from_uint(low(m), r);  // products and terms exact: rounds once
  } else {
    // The upper 32 bits, with a last bit that says whether others are set below: it decides ties as they would.
    const V h = high(m), wide = ne(h, 0), n = spirv::select(wide, highest_bit(h) + 1, 0);
    const V top = low(shift_right(m, n, false)),
            lost = ne(low(m) & ((word(n, 1) << (n & 31)) - 1), 0) | (eq(n, 32) & ne(low(m), 0));
    x = float_from_uint(top | spirv::select(lost, word(n, 1), word(n, 0)), r) * floating((n + 127) << 23);
  }
  return is_signed ? spirv::select(negative, -x, x) : x;
}

V from_float(V a, bool is_signed) {
  const V x = is_signed ? abs(a) : a;
  const V h = uint_from_float(x * 0x1p-32, Reg::u32),
          l = uint_from_float(x - float_from_uint(h, a.reg) * 0x1p32, Reg::u32);
  const V r = join(l, h);
  return is_signed ? absolute(r, a < 0.0) : r;
}

}  // namespace tessera::spirv::pairs
