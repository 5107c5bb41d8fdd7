// Arithmetic of every float format, against definitions that are not the emulator's: the nearest of all numbers of a
// narrow format, the host's rounding modes, and errors that the manual allows.
#include "tests/ptx/numbers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/ptx/emulator.h"

namespace numbers_test {
using namespace tessera::ptx;

namespace {

/// What an instruction makes of words: `text` goes from %r1, %r2, %r3 (%h1 and so on are their lower halves) to %r0
/// (%h0).
std::vector<uint32_t> runs(const std::string& text, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b,
                           const std::vector<uint32_t>& c, uint64_t seed = 0, const std::string& target = "sm_90") {
  const std::string kernel =
      ".version 8.4\n.target " + target +
      "\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 o, .param .u32 "
      "n)\n{\n" +
      ".reg .b64 %q<8>; .reg .b32 %r<8>; .reg .b16 %h<8>; .reg .pred %p<4>; .reg .b32 %i<4>;\n"
      "mov.u32 %i0, %ctaid.x; mov.u32 %i1, %ntid.x; mov.u32 %i2, %tid.x; mad.lo.u32 %i0, %i0, %i1, %i2; ld.param.u32 "
      "%i1, [n];\n"
      "setp.ge.u32 %p0, %i0, %i1; @%p0 ret; mul.wide.u32 %q4, %i0, 4;\n"
      "ld.param.u64 %q0, [a]; add.u64 %q0, %q0, %q4; ld.global.u32 %r1, [%q0]; cvt.u16.u32 %h1, %r1;\n"
      "ld.param.u64 %q0, [b]; add.u64 %q0, %q0, %q4; ld.global.u32 %r2, [%q0]; cvt.u16.u32 %h2, %r2;\n"
      "ld.param.u64 %q0, [c]; add.u64 %q0, %q0, %q4; ld.global.u32 %r3, [%q0]; cvt.u16.u32 %h3, %r3;\n"
      "mov.u32 %r0, 0; mov.u16 %h0, 0;\n" +
      text +
      "\ncvt.u32.u16 %r4, %h0; or.b32 %r0, %r0, %r4; ld.param.u64 %q0, [o]; add.u64 %q0, %q0, %q4; st.global.u32 "
      "[%q0], %r0;\nret;\n}\n";
  std::vector<uint32_t> x = a, y = b, z = c, o(a.size());
  Launch l;
  l.seed = seed, l.block[0] = 128, l.grid[0] = static_cast<uint32_t>((a.size() + 127) / 128), l.races = false;
  for (auto* v : {&x, &y, &z, &o}) l.buffer({.name = "words", .bytes = std::as_writable_bytes(std::span(*v))});
  l.scalar(static_cast<uint32_t>(a.size()));
  const Result r = run(parse(kernel), l);
  CHECK_MESSAGE(r.ok(), r.text);
  return o;
}

/// All finite numbers of a format of 16 bits or less, by value; the even one of equals first.
struct Table {
  std::vector<std::pair<double, uint32_t>> numbers;
  explicit Table(Type t) {
    for (uint32_t bits = 0; bits < 1u << width_of(t); ++bits)
      if (std::isfinite(widen(t, bits)) && bits != 1u << (width_of(t) - 1)) numbers.push_back({widen(t, bits), bits});
    std::sort(numbers.begin(), numbers.end());
  }
  double largest() const { return numbers.back().first; }
  /// The nearest number, halfway the even one; x lies within the range.
  uint32_t nearest(long double x) const {
    const auto above =
        std::lower_bound(numbers.begin(), numbers.end(), x, [](const auto& n, long double v) { return n.first < v; });
    if (above == numbers.end()) return numbers.back().second;
    if (above->first == x || above == numbers.begin()) return above->second;
    const auto below = above - 1;
    const long double up = above->first - x, down = x - below->first;
    if (up != down) return up < down ? above->second : below->second;
    return above->second % 2 == 0 ? above->second : below->second;
  }
};

std::vector<uint32_t> random_words(size_t n, uint64_t seed) {
  Random r{seed};
  std::vector<uint32_t> x(n);
  for (uint32_t& w : x) w = static_cast<uint32_t>(r.next());
  return x;
}
float f32(uint32_t x) { return std::bit_cast<float>(x); }

}  // namespace

TEST_CASE("f16 and bf16: sums, products, fma and conversions give the nearest number") {
  const size_t n = 4000;
  const std::vector<uint32_t> a = random_words(n, 1), b = random_words(n, 2), c = random_words(n, 3);
  for (const Type t : {Type::f16, Type::bf16}) {
    const std::string name = t == Type::f16 ? "f16" : "bf16";
    const Table table(t);
    const auto compare = [&](const std::string& text, auto&& exact, bool half_of_f32 = false) {
      CAPTURE(text);
      const std::vector<uint32_t> o = runs(text, a, b, c);
      uint32_t wrong = 0;
      for (size_t k = 0; k < n; ++k) {
        const long double x = half_of_f32
                                  ? exact(static_cast<double>(f32(a[k])), 0.0, 0.0)
                                  : exact(widen(t, a[k] & 0xffff), widen(t, b[k] & 0xffff), widen(t, c[k] & 0xffff));
        if (!std::isfinite(static_cast<double>(x)) || std::fabs(x) > table.largest() || x == 0) continue;
        const uint32_t want = table.nearest(x), got = o[k] & 0xffff;
        wrong += got != want && (want != 0 || (got & 0x7fff) != 0);
      }
      CHECK(wrong == 0);
    };
    compare("add.rn." + name + " %h0, %h1, %h2;",
            [](double x, double y, double) { return static_cast<long double>(x) + y; });
    compare("sub.rn." + name + " %h0, %h1, %h2;",
            [](double x, double y, double) { return static_cast<long double>(x) - y; });
    compare("mul.rn." + name + " %h0, %h1, %h2;",
            [](double x, double y, double) { return static_cast<long double>(x) * y; });
    compare(
        "cvt.rn." + name + ".f32 %h0, %r1;", [](double x, double, double) { return static_cast<long double>(x); },
        true);
    // three terms that are not far apart, so that long double holds the sum
    const std::vector<uint32_t> o = runs("fma.rn." + name + " %h0, %h1, %h2, %h3;", a, b, c);
    uint32_t wrong = 0, tried = 0;
    for (size_t k = 0; k < n; ++k) {
      const double x = widen(t, a[k] & 0xffff), y = widen(t, b[k] & 0xffff), z = widen(t, c[k] & 0xffff);
      const long double exact = static_cast<long double>(x * y) + z;
      if (!std::isfinite(x * y + z) || std::fabs(exact) > table.largest() || exact == 0 || z == 0 || x * y == 0)
        continue;
      if (std::abs(std::ilogb(x * y) - std::ilogb(z)) > 30) continue;
      ++tried;
      wrong += (o[k] & 0xffff) != table.nearest(exact);
    }
    CHECK(wrong == 0);
    CHECK(tried > 300);
  }
  // both halves of a pair
  const std::vector<uint32_t> pair = runs("add.rn.f16x2 %r0, %r1, %r2;", a, b, c),
                              low = runs("add.rn.f16 %h0, %h1, %h2;", a, b, c);
  std::vector<uint32_t> high_a = a, high_b = b;
  for (uint32_t& x : high_a) x >>= 16;
  for (uint32_t& x : high_b) x >>= 16;
  const std::vector<uint32_t> high = runs("add.rn.f16 %h0, %h1, %h2;", high_a, high_b, c);
  for (size_t k = 0; k < n; ++k) CHECK(pair[k] == (low[k] | high[k] << 16));
}

TEST_CASE("8-bit floats: every one there and back, and the nearest number") {
  for (const Type t : {Type::e4m3, Type::e5m2}) {
    const std::string name = t == Type::e4m3 ? "e4m3x2" : "e5m2x2";
    std::vector<uint32_t> all(256);
    std::iota(all.begin(), all.end(), 0u);
    for (uint32_t& x : all) x |= x << 8;
    const std::vector<uint32_t> up = runs("cvt.rn.f16x2." + name + " %r0, %h1;", all, all, all);
    const std::vector<uint32_t> back = runs("cvt.rn.satfinite." + name + ".f16x2 %h0, %r1;", up, up, up);
    for (uint32_t k = 0; k < 256; ++k) {
      if (!std::isfinite(widen(t, k))) continue;
      CHECK((back[k] & 0xff) == k);
      CHECK(widen(Type::f16, up[k] & 0xffff) == widen(t, k));
    }
    const Table table(t);
    std::vector<uint32_t> a = random_words(3000, 5);
    for (size_t k = 0; k < a.size(); ++k)
      a[k] = std::bit_cast<uint32_t>(
          static_cast<float>(table.numbers[k % table.numbers.size()].first * (0.9 + 0.2 * (a[k] >> 8) * 0x1p-24)));
    for (size_t k = 0; k + 1 < table.numbers.size(); ++k)  // halfway
      a.push_back(
          std::bit_cast<uint32_t>(static_cast<float>((table.numbers[k].first + table.numbers[k + 1].first) / 2)));
    std::vector<uint32_t> zero(a.size(), 0);
    const std::vector<uint32_t> o = runs("cvt.rn.satfinite." + name + ".f32 %h0, %r2, %r1;", a, zero, zero);
    for (size_t k = 0; k < a.size(); ++k) {
      const uint32_t want =
                         table.nearest(std::clamp(static_cast<double>(f32(a[k])), -table.largest(), table.largest())),
                     got = o[k] & 0xff;
      CHECK((got == want || (want == 0 && (got & 0x7f) == 0)));
    }
  }
}

TEST_CASE("f32: rounding modes, flushing, saturation") {
  const size_t n = 3000;
  std::vector<uint32_t> a = random_words(n, 6), b = random_words(n, 7), c = random_words(n, 8);
  for (size_t k = 0; k < n; k += 2)
    b[k] = (a[k] & 0xff800000u) + (b[k] & 0x3ffffffu), c[k] = (a[k] & 0xff800000u) ^ (c[k] & 0x80ffffffu);
  const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const char* const names[] = {"rn", "rz", "rm", "rp"};
  const auto compare = [&](const std::string& op, const std::string& rest, auto&& f) {
    for (int m = 0; m < 4; ++m) {
      CAPTURE(op + names[m]);
      const std::vector<uint32_t> o = runs(op + names[m] + rest, a, b, c);
      uint32_t wrong = 0;
      for (size_t k = 0; k < n; ++k) {
        volatile float x = f32(a[k]), y = f32(b[k]), z = f32(c[k]);
        std::fesetround(modes[m]);
        volatile float want = f(x, y, z);
        std::fesetround(FE_TONEAREST);
        const bool same = std::isnan(static_cast<float>(want))
                              ? std::isnan(f32(o[k]))
                              : std::bit_cast<uint32_t>(static_cast<float>(want)) == o[k];
        wrong += !same;
      }
      CHECK(wrong == 0);
    }
  };
  compare("add.", ".f32 %r0, %r1, %r2;",
          [](volatile float& x, volatile float& y, volatile float&) -> float { return x + y; });
  compare("mul.", ".f32 %r0, %r1, %r2;",
          [](volatile float& x, volatile float& y, volatile float&) -> float { return x * y; });
  compare("div.", ".f32 %r0, %r1, %r2;",
          [](volatile float& x, volatile float& y, volatile float&) -> float { return x / y; });
  compare("sqrt.", ".f32 %r0, %r1;", [](volatile float& x, volatile float&, volatile float&) -> float {
    return std::sqrt(static_cast<float>(x));
  });
  compare("fma.", ".f32 %r0, %r1, %r2, %r3;", [](volatile float& x, volatile float& y, volatile float& z) -> float {
    return std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
  });
  compare("cvt.", ".f32.u32 %r0, %r1;", [&](volatile float& x, volatile float&, volatile float&) -> float {
    volatile uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    return static_cast<float>(bits);
  });
  const std::vector<uint32_t> words = {0x00000001, 0x807fffff, 0x3f800000, 0xbf800000,
                                       0x40000000, 0x7fc00000, 0x7f800000, 0x3f000000};
  const std::vector<uint32_t> one(8, 0x3f800000);
  CHECK(runs("mul.ftz.f32 %r0, %r1, %r2;", words, one, one) ==
        std::vector<uint32_t>{0, 0x80000000, 0x3f800000, 0xbf800000, 0x40000000, 0x7fffffff, 0x7f800000, 0x3f000000});
  CHECK(runs("mul.sat.f32 %r0, %r1, %r2;", words, one, one) ==
        std::vector<uint32_t>{1, 0, 0x3f800000, 0, 0x3f800000, 0, 0x3f800000, 0x3f000000});
  CHECK(runs("cvt.rzi.s32.f32 %r0, %r1;", words, one, one) ==
        std::vector<uint32_t>{0, 0, 1, 0xffffffff, 2, 0, 0x7fffffff, 0});
  CHECK(runs("cvt.rzi.u32.f32 %r0, %r1;", words, one, one) == std::vector<uint32_t>{0, 0, 1, 0, 2, 0, 0xffffffff, 0});
  CHECK(runs("max.f32 %r0, %r1, %r2;", words, one, one)[5] == 0x3f800000);
  CHECK(runs("max.NaN.f32 %r0, %r1, %r2;", words, one, one)[5] == 0x7fffffff);
}

TEST_CASE("approximate functions are off, within what the manual allows, and not always by the same") {
  std::vector<uint32_t> a(2000);
  Random r{9};
  for (uint32_t& x : a) x = std::bit_cast<uint32_t>(static_cast<float>(r.below(1u << 24) * 0x1p-20 + 0.01));
  const auto worst = [&](const std::string& op, auto&& f, uint64_t seed) {
    const std::vector<uint32_t> o = runs(op + " %r0, %r1;", a, a, a, seed);
    double most = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      const double want = f(static_cast<double>(f32(a[k])));
      most = std::max(most, std::fabs(f32(o[k]) - want) / std::fabs(want));
    }
    return most;
  };
  CHECK(worst("rcp.approx.f32", [](double x) { return 1 / x; }, 1) < 0x1p-22);
  CHECK(worst("rcp.approx.f32", [](double x) { return 1 / x; }, 1) > 0x1p-24);
  CHECK(worst("ex2.approx.f32", [](double x) { return std::exp2(x); }, 1) < 0x1p-21);
  CHECK(worst("ex2.approx.f32", [](double x) { return std::exp2(x); }, 1) > 0x1p-23);
  CHECK(worst("tanh.approx.f32", [](double x) { return std::tanh(x); }, 1) > 0x1p-12);
  CHECK(runs("ex2.approx.f32 %r0, %r1;", a, a, a, 1) != runs("ex2.approx.f32 %r0, %r1;", a, a, a, 2));
  CHECK(runs("ex2.approx.f32 %r0, %r1;", a, a, a, 1) == runs("ex2.approx.f32 %r0, %r1;", a, a, a, 1));
}

}  // namespace numbers_test
