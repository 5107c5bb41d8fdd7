// sin, cos and tan: |x| = n pi/2 + r with |r| <= pi/4, then a polynomial. Small x by a four-part pi/2 (Cody and Waite),
// large x by a window of the bits of 2/pi in integer arithmetic (Payne and Hanek).
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"

namespace tessera::expand {
namespace {

// (sin r - r) / r^3 in z = r^2 on [0, 0.6181]; error relative to r: 2^-27.3 and 2^-56.8.
const Table kSin{{-0x1.555546p-3, 0x1.110756p-7, -0x1.994b4p-13},
                 {-0x1.5555555555549p-3, 0x1.111111110f842p-7, -0x1.a01a019c0a2ccp-13, 0x1.71de357100392p-19,
                  -0x1.ae5e60c6771f3p-26, 0x1.5d915e9170782p-33}};
// (cos r - 1 + z / 2) / z^2 on the same interval; error in cos: 2^-31.0 and 2^-59.5.
const Table kCos{{0x1.55554ap-5, -0x1.6c0c82p-10, 0x1.99ff4p-16},
                 {0x1.555555555554cp-5, -0x1.6c16c16c15140p-10, 0x1.a01a019cab755p-16, -0x1.27e4f80533d92p-22,
                  0x1.1ee9e8906b1ddp-29, -0x1.8facd109dc238p-37}};

// The bits of 2/pi after the point, behind 64 zero bits.
constexpr uint32_t kTwoOverPi[] = {0,          0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
                                   0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c,
                                   0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639,
                                   0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f,
                                   0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7,
                                   0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20};

struct Quarter {
  V n, r;  // n (u32) modulo 4 counts
};

/// |x| up to 400 (f32) or 2^20 (f64). The parts of pi/2 have 16 (33) bits, so their products with n, of 8 (20) bits,
/// are exact.
Quarter reduce_small(V a) {
  const V n = round_even(a * 0x1.45f306dc9c883p-1);
  // Fused or not is the same then, for all but the last.
  const auto less = [&](V from, double f32, double f64) {
    const V part = pick(a, f32, f64);
    return a.fn->relaxed ? fma(-n, part, from) : from - n * part;
  };
  V r = less(a, 0x1.921ep+0, 0x1.921fb54400000p+0);
  r = less(r, 0x1.b544p-16, 0x1.0b4611a600000p-34);
  r = less(r, 0x1.0b46p-34, 0x1.3198a2e000000p-69);
  r = less(r, 0x1.1a6262p-54, 0x1.b839a252049c1p-104);
  return {integer_of(n), r};
}

/// Word `index` of the table, for index in [0, count).
V table_word(V index, int first, int count) {
  if (count == 1) return literal(index, kTwoOverPi[first]);
  int half = 1;
  while (2 * half < count) half *= 2;
  const V low = table_word(index, first, half), high = table_word(index, first + half, count - half);
  return select(ne(index & half, 0), high, low);
}

struct Wide {
  V high, low;
};
Wide multiply(V a, V b) {  // u32
  const auto [low, high] = a.fn->product(a, b);
  return {high, low};
}

V carry(V sum, V addend) {
  const V none = literal(sum, 0), one = literal(sum, 1);
  return select(sum < addend, one, none);
}

/// Finite |x| beyond reduce_small. x = m 2^E with m an integer: bits of 2/pi whose product with 2^E is a multiple of 4
/// are left out, the next `kept` words suffice for n modulo 4 and r to full relative precision (no f32 is closer than
/// 2^-30, no f64 closer than 2^-61 to a multiple of pi/2).
Quarter reduce_large(V a) {
  const Layout l = layout(a.reg);
  const bool wide = width(a.reg) == 64;
  const V b = bits(a);
  const V significand = (b & l.fraction) | (l.fraction + 1);
  const V e = to_uint(b >> l.mantissa, Reg::u32) - (l.bias + l.mantissa);
  const V skip = e + 62;  // 64 zero bits, then E - 2 bits of 2/pi; E is at least -32
  const V word = skip >> 5, shift = skip & 31;
  const int words = wide ? 33 : 6, kept = wide ? 6 : 3;  // largest E: 971 or 104
  std::vector<V> window;
  V next = table_word(word, 0, words);
  for (int i = 0; i < kept; ++i) {
    const V here = next;
    next = table_word(word, i + 1, words);
    const V below = (next >> 1) >> (31 - shift);
    window.push_back((here << shift) | below);
  }
  // The low words of significand * window; the highest comes first.
  const V none = literal(shift, 0);
  std::vector<V> p(static_cast<size_t>(kept), none);
  const auto add_at = [&](int i, V v) {  // v into word i, carrying upwards
    for (; i >= 0; --i) {
      V& w = p[static_cast<size_t>(i)];
      w = w + v;
      v = carry(w, v);
    }
  };
  std::vector<V> factor{to_uint(significand, Reg::u32)};
  if (wide) factor.push_back(to_uint(significand >> 32, Reg::u32));
  for (int i = kept - 1; i >= 0; --i) {
    for (int j = 0; j < static_cast<int>(factor.size()); ++j) {
      const int at = i - j;
      if (at < 0) continue;
      const Wide w = multiply(window[static_cast<size_t>(i)], factor[static_cast<size_t>(j)]);
      add_at(at, w.low);
      if (at > 0) add_at(at - 1, w.high);
    }
  }
  // Two bits of n, then the fraction; from one half on it counts from the next n, downwards.
  const auto fraction_word = [&](size_t i) {
    const V below = p[i + 1] >> 30;
    return (p[i] << 2) | below;
  };
  const V top = fraction_word(0), negative = top >> 31;
  const V n = (p[0] >> 30) + negative;
  V fraction, second;
  if (wide) {
    const V below = to_uint(fraction_word(1), Reg::u64);
    fraction = (to_uint(top, Reg::u64) << 32) | below;
    const V last = to_uint(fraction_word(3), Reg::u64);
    second = (to_uint(fraction_word(2), Reg::u64) << 32) | last;
  } else {
    fraction = top;
    second = fraction_word(1);
  }
  const V down = ne(negative, 0);
  fraction = select(down, ~fraction, fraction);  // -1 in the last of many bits is nothing
  second = select(down, ~second, second);
  const int bits_of_word = static_cast<int>(width(a.reg));
  const V leading = (bits_of_word - 1) - highest_bit(fraction), amount = to_uint(leading, b.reg);
  const V moved_in = (second >> 1) >> ((bits_of_word - 1) - amount), aligned = (fraction << amount) | moved_in;
  const V power = power_of_two(-(leading + bits_of_word), a.reg);
  const V r = (float_from_uint(aligned, a.reg) * power) * 0x1.921fb54442d18p+0;
  const V sign = select(down, l.sign, literal(b, 0));
  return {n, floating(bits(r) | sign)};
}

Quarter quarter(V x) {
  const V a = abs(x);
  const V small = a <= pick(x, 400.0, 0x1p20);
  const std::vector<V> q = x.fn->if_else(
      small,
      [&] {
        const Quarter s = reduce_small(a);
        return std::vector<V>{s.n, s.r};
      },
      [&] {
        // Infinities and NaN have the shape of a number too large for the table.
        const V finite = magnitude_bits(x) < layout(x.reg).infinity;
        const Quarter s = reduce_large(select(finite, a, 0x1p100));
        return std::vector<V>{s.n, s.r};
      });
  return {q[0], q[1]};
}

struct Wave {
  V sine, cosine;
};
Wave wave_of(V r) {
  const V z = r * r;
  const V ps = polynomial(z, kSin), sine = fma(r * z, ps, r);
  const V half = z * 0.5, pc = -polynomial(z, kCos);
  return {sine, 1.0 - fma(z * z, pc, half)};
}

V wave(V x, Quarter q) {
  const Wave w = wave_of(q.r);
  const V r = select(ne(q.n & 1, 0), w.cosine, w.sine);
  const V sign = to_uint(q.n & 2, uint_of(x.reg)) << (static_cast<int>(width(x.reg)) - 2);
  return floating(bits(r) ^ sign);
}

}  // namespace

V sin(V x) {
  const V sign = sign_bit(x), r = floating(bits(wave(x, quarter(x))) ^ sign), undefined = nan(x);
  return select(magnitude_bits(x) < layout(x.reg).infinity, r, undefined);
}

V cos(V x) {
  Quarter q = quarter(x);
  q.n = q.n + 1;
  const V undefined = nan(x), r = wave(x, q);
  return select(magnitude_bits(x) < layout(x.reg).infinity, r, undefined);
}

V tan(V x) {
  const Quarter q = quarter(x);
  const Wave w = wave_of(q.r);
  const V odd = ne(q.n & 1, 0);  // a quarter turn on: -cos / sin
  const V sign = sign_bit(x), below = select(odd, w.sine, w.cosine);
  const V r = floating(bits(select(odd, -w.cosine, w.sine) / below) ^ sign), undefined = nan(x);
  return select(magnitude_bits(x) < layout(x.reg).infinity, r, undefined);
}

}  // namespace tessera::expand
