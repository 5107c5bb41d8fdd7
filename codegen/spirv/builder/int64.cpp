#include "codegen/spirv/builder/int64.h"

#include <bit>
#include <functional>
#include <optional>

namespace tessera::spirv::int64 {
namespace {

V high(V a) { return function(a).halves(a)[1]; }
V join(V l, V h) { return function(l).join(l, h); }
V word(V like, uint32_t x) { return like.fn->make(Reg::u32, x); }
V carry(V c) { return spirv::select(c, 1, word(c, 0)); }
V shift_word(V amount) { return amount.reg == Reg::u64 ? low(amount) : amount; }

// f of the low words, and of the high words: taking a pair apart may be instructions.
template <typename F> auto of_lows(const F& f, V a, V b) {
  const V right = low(b);
  return f(low(a), right);
}
template <typename F> auto of_highs(const F& f, V a, V b) {
  const V right = high(b);
  return f(high(a), right);
}
V same_word(V a, V b) { return eq(a, b); }

/// The low and high word of a product of words.
std::array<V, 2> product(V a, V b) {
  Function& f = function(a);
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
  const V moved_in = (u0 >> 1) >> (31 - s), top = (u1 << s) | moved_in, rest = u0 << s;
  const auto digit = [&](V numerator, V next) {  // of the quotient; `next`: the 16 bits below the numerator
    V q = spirv::udiv(numerator, v1), r = numerator - q * v1;
    for (int i = 0; i < 2; ++i) {  // at most two too large
      const V high_q = q >= 65536, low_r = r < 65536, digits = (r << 16) | next;
      const V too_large = (high_q | (q * v0 > digits)) & low_r;
      q = spirv::select(too_large, q - 1, q);
      r = spirv::select(too_large, r + v1, r);
    }
    return q;
  };
  const V q1 = digit(top, rest >> 16), taken = q1 * v, next = rest >> 16;
  const V below = ((top << 16) + next) - taken, q0 = digit(below, rest & 0xffff);
  return (q1 << 16) + q0;
}

V absolute(V a, V negative) { return int64::select(negative, sub(a.fn->make(Reg::u64, 0), a), a); }
V is_negative(V a) { return slt(high(a), 0); }

}  // namespace

V low(V a) { return function(a).halves(a)[0]; }

V add(V a, V b) {
  const V l = of_lows(std::plus<>(), a, b), carried = carry(l < low(a));
  return join(l, of_highs(std::plus<>(), a, b) + carried);
}
V sub(V a, V b) {
  const V borrowed = carry(of_lows(std::less<>(), a, b)), h = of_highs(std::minus<>(), a, b) - borrowed;
  return join(of_lows(std::minus<>(), a, b), h);
}
V mul(V a, V b) {
  // Addresses are multiplied by the sizes of elements.
  if (const auto l = function(a).known_word(low(b)), h = function(a).known_word(high(b));
      l && h && *h == 0 && std::has_single_bit(*l))
    return shift_left(a, word(a, static_cast<uint32_t>(std::countr_zero(*l))));
  const auto [l, h] = of_lows(product, a, b);
  const V low_b = low(b), second = high(a) * low_b, high_b = high(b);
  return join(l, h + (low(a) * high_b + second));
}

V bitwise(spv::Op code, V a, V b) {
  const V h = function(a).emit(code, Reg::u32, {high(a), high(b)});
  return join(function(a).emit(code, Reg::u32, {low(a), low(b)}), h);
}
V complement(V a) {
  const V h = ~high(a);
  return join(~low(a), h);
}

V shift_left(V a, V amount) {
  const V n = shift_word(amount);
  if (const auto known = function(a).known_word(n)) {
    if (*known == 0) return a;
    if (*known >= 32) {
      const V h = *known == 32 ? low(a) : low(a) << (*known - 32);
      return join(word(a, 0), h);
    }
    const V moved_in = low(a) >> (32 - *known), h = (high(a) << *known) | moved_in;
    return join(low(a) << *known, h);
  }
  const V small = n < 32, m = n & 31, l = low(a) << m;
  const V moved_in = (low(a) >> 1) >> (31 - m), h = (high(a) << m) | moved_in, top = spirv::select(small, h, l);
  return join(spirv::select(small, l, 0), top);
}

V shift_right(V a, V amount, bool arithmetic) {
  const V n = shift_word(amount);
  const auto down = [&](V x, V by) { return arithmetic ? sar(x, by) : x >> by; };
  const auto fill = [&] { return arithmetic ? sar(high(a), 31) : word(a, 0); };
  if (const auto known = function(a).known_word(n)) {
    if (*known == 0) return a;
    if (*known >= 32) {
      const V top = fill();
      if (*known == 32) return join(high(a), top);
      const V by = word(a, *known - 32);
      return join(down(high(a), by), top);
    }
    const V by = word(a, *known), h = down(high(a), by), moved_in = high(a) << (32 - *known);
    return join((low(a) >> *known) | moved_in, h);
  }
  const V small = n < 32, m = n & 31, h = down(high(a), m);
  const V moved_in = (high(a) << 1) << (31 - m), l = (low(a) >> m) | moved_in, top = spirv::select(small, h, fill());
  return join(spirv::select(small, l, h), top);
}

V less(V a, V b, bool or_equal) {
  const V below = or_equal ? of_lows(std::less_equal<>(), a, b) : of_lows(std::less<>(), a, b);
  const V tie = of_highs(same_word, a, b) & below;
  return of_highs(std::less<>(), a, b) | tie;
}
V equal(V a, V b) {
  const V highs = of_highs(same_word, a, b);
  return of_lows(same_word, a, b) & highs;
}
V select(V c, V a, V b) {
  const auto chosen = [&](V x, V y) { return spirv::select(c, x, y); };
  const V h = of_highs(chosen, a, b);
  return join(of_lows(chosen, a, b), h);
}

// A divisor of one word takes two steps of 64 by 32 bits. A larger one is normalised: the quotient of the upper words,
// from half of a, is right or one too large, which the remainder shows (Warren, Hacker's Delight, udivdi3).
V divide(V a, V b) {
  const V small = eq(high(b), 0), n = leading_zeros(spirv::select(small, 1, high(b)));
  const V normalised = high(shift_left(b, n)), of_large = spirv::select(small, 0, normalised);
  const V divisor = spirv::select(small, low(b), 0) | of_large;
  const V one_word = spirv::select(small, low(b), 1), upper = spirv::udiv(high(a), one_word);
  const V half = shift_right(a, word(a, 1), false), high_half = high(half), taken = upper * one_word;
  const V u1 = spirv::select(small, high(a) - taken, high_half), low_half = low(half),
          u0 = spirv::select(small, low(a), low_half);
  const V q = divide_words(u1, u0, divisor);
  const V most = word(a, 31), guess = shift_right(shift_left(extend(q, false), n), most, false), g = low(guess);
  const V one = literal(g, 1), none = literal(g, 0), lower = extend(g - spirv::select(eq(g, 0), none, one), false);
  const V remainder = sub(a, mul(lower, b));
  const V large = add(lower, extend(carry(~less(remainder, b, false)), false));
  return int64::select(small, join(q, upper), large);
}

V divide_signed(V a, V b) {
  const V na = is_negative(a), nb = is_negative(b), divisor = absolute(b, nb), q = divide(absolute(a, na), divisor);
  return absolute(q, na ^ nb);
}

V extend(V x, bool is_signed) { return join(x, is_signed ? sar(x, 31) : word(x, 0)); }

V to_float(V a, Reg r, bool is_signed) {
  const V negative = is_signed ? is_negative(a) : V{};
  const V m = is_signed ? absolute(a, negative) : a;
  V x;
  if (r == Reg::f64) {
    const V lower = float_from_uint(low(m), r);
    x = float_from_uint(high(m), r) * 0x1p32 + lower;  // products and terms exact: rounds once
  } else {
    // The upper 32 bits, with a last bit that says whether others are set below: it decides ties as they would.
    const V h = high(m), wide = ne(h, 0), n = spirv::select(wide, highest_bit(h) + 1, 0);
    const V top = low(shift_right(m, n, false)), any = ne(low(m), 0), all = eq(n, 32) & any;
    const V mask = (word(n, 1) << (n & 31)) - 1, lost = ne(low(m) & mask, 0) | all;
    const V power = floating((n + 127) << 23), last = spirv::select(lost, 1, word(n, 0));
    x = float_from_uint(top | last, r) * power;
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

}  // namespace tessera::spirv::int64
