// The reference arithmetic on the values where arithmetic goes wrong. answers_test.cpp compares every op with JAX's
// answers.
#include "engine/ir/reference.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/element.h"

namespace reference_test {
using namespace tessera;
using ir::Opcode;
namespace {
uint64_t f(float x) { return std::bit_cast<uint32_t>(x); }
float as_float(uint64_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b)); }
uint64_t run(Opcode op, DType t, std::initializer_list<uint64_t> o) {
  const std::vector<uint64_t> v(o);
  return reference::eval(op, t, t, v.data());
}
uint64_t convert(DType from, DType to, uint64_t b) { return reference::eval(Opcode::convert, from, to, &b); }
constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
}  // namespace

TEST_CASE("reference: integers are total") {
  CHECK(run(Opcode::add, i8, {127, 1}) == 0x80);
  CHECK(run(Opcode::mul, u16, {65535, 65535}) == 1);
  CHECK(run(Opcode::mul, i64, {uint64_t{1} << 63, 3}) == uint64_t{1} << 63);
  CHECK(run(Opcode::div, i32, {5, 0}) == 0xffffffff);
  CHECK(run(Opcode::div, u8, {5, 0}) == 0xff);
  CHECK(run(Opcode::div, i64, {uint64_t{1} << 63, ~uint64_t{0}}) == uint64_t{1} << 63);
  CHECK(run(Opcode::div, i8, {0xf9, 2}) == 0xfd);  // -7 / 2 = -3
  CHECK(run(Opcode::rem, i32, {5, 0}) == 5);
  CHECK(run(Opcode::rem, i32, {0x80000000, 0xffffffff}) == 0);
  CHECK(run(Opcode::rem, i8, {0xf9, 3}) == 0xff);  // -7 % 3 = -1
  CHECK(run(Opcode::neg, i8, {0x80}) == 0x80);
  CHECK(run(Opcode::abs, i16, {0x8000}) == 0x8000);
  CHECK(run(Opcode::sign, i8, {0xf0}) == 0xff);
  CHECK(run(Opcode::clamp, i32, {5, 3, 2}) == 2);
  CHECK(run(Opcode::not_, u8, {0x0f}) == 0xf0);
  CHECK(run(Opcode::not_, boolean, {1}) == 0);
}

TEST_CASE("reference: shift counts beyond the width") {
  for (uint64_t count : {uint64_t{32}, uint64_t{0xffffffff}, uint64_t{0x80000000}}) {
    CHECK(run(Opcode::shift_left, i32, {5, count}) == 0);
    CHECK(run(Opcode::shift_right_logical, i32, {0xfffffffb, count}) == 0);
    CHECK(run(Opcode::shift_right_arithmetic, i32, {0xfffffffb, count}) == 0xffffffff);
    CHECK(run(Opcode::shift_right_arithmetic, u32, {0xfffffffb, count}) == 0xffffffff);
    CHECK(run(Opcode::shift_right_arithmetic, i32, {5, count}) == 0);
  }
  CHECK(run(Opcode::shift_left, i8, {0xfb, 7}) == 0x80);
  CHECK(run(Opcode::shift_right_logical, i8, {0xfb, 1}) == 125);
  CHECK(run(Opcode::shift_right_arithmetic, u8, {0xfb, 1}) == 253);
}

TEST_CASE("reference: floats choose NaN and the right zero") {
  const uint64_t zero = f(0.0f), minus_zero = f(-0.0f);
  CHECK(run(Opcode::max, f32, {minus_zero, zero}) == zero);
  CHECK(run(Opcode::max, f32, {zero, minus_zero}) == zero);
  CHECK(run(Opcode::min, f32, {minus_zero, zero}) == minus_zero);
  CHECK(run(Opcode::min, f32, {zero, minus_zero}) == minus_zero);
  for (Opcode op : {Opcode::max, Opcode::min}) {
    CHECK(std::isnan(as_float(run(op, f32, {f(kNan), f(1)}))));
    CHECK(std::isnan(as_float(run(op, f32, {f(1), f(kNan)}))));
  }
  CHECK(std::isnan(as_float(run(Opcode::clamp, f32, {f(kNan), f(1), f(2)}))));
  CHECK(std::isnan(as_float(run(Opcode::clamp, f32, {f(0), f(1), f(kNan)}))));
  CHECK(run(Opcode::sign, f32, {minus_zero}) == minus_zero);
  CHECK(std::isnan(as_float(run(Opcode::sign, f32, {f(kNan)}))));
  CHECK(run(Opcode::pow, f32, {f(-2), f(3)}) == f(-8));
  CHECK(run(Opcode::round, f32, {f(-2.5f)}) == f(-3));
  CHECK(run(Opcode::round, f32, {f(0.49999997f)}) == zero);
  CHECK(run(Opcode::round_even, f32, {f(-2.5f)}) == f(-2));
  CHECK(run(Opcode::round_even, f32, {f(-0.5f)}) == minus_zero);
  CHECK(run(Opcode::round_even, f32, {f(3.5f)}) == f(4));
  CHECK(run(Opcode::round_even, f32, {f(1e30f)}) == f(1e30f));
  CHECK(as_float(run(Opcode::sin, f32, {f(1e6f)})) == doctest::Approx(-0.3499935).epsilon(1e-6));
  CHECK(run(Opcode::logistic, f32, {f(-kInf)}) == zero);
  CHECK(run(Opcode::logistic, f32, {f(kInf)}) == f(1));
}

TEST_CASE("reference: nextafter steps through the bits of its dtype") {
  const auto next = [](DType t, uint64_t a, uint64_t b) { return run(Opcode::nextafter, t, {a, b}); };
  CHECK(next(f32, f(1), f(2)) == f(1) + 1);
  CHECK(next(f32, f(1), f(-kInf)) == f(1) - 1);
  CHECK(next(f32, 0, f(1)) == 1);
  CHECK(next(f32, f(-0.0f), f(-1)) == 0x80000001);
  CHECK(next(f32, 0x80000001, f(1)) == f(-0.0f));
  CHECK(next(f32, 0, f(-0.0f)) == f(-0.0f));  // equal: the second
  CHECK(next(f32, f(kInf), f(0)) == 0x7f7fffff);
  CHECK(next(f32, 0x7f7fffff, f(kInf)) == f(kInf));
  CHECK(std::isnan(as_float(next(f32, f(1), f(kNan)))));
  CHECK(next(f16, 0x3c00, 0x4000) == 0x3c01);
  CHECK(next(bf16, 0x0001, 0xbf80) == 0);
  CHECK(next(f64, std::bit_cast<uint64_t>(-1.0), 0) == std::bit_cast<uint64_t>(std::nextafter(-1.0, 0.0)));
}

TEST_CASE("reference: bits are counted and products halved in the width of the dtype") {
  CHECK(run(Opcode::clz, i8, {0}) == 8);
  CHECK(run(Opcode::clz, i8, {0xff}) == 0);
  CHECK(run(Opcode::clz, u64, {1}) == 63);
  CHECK(run(Opcode::population_count, i16, {0xffff}) == 16);
  CHECK(run(Opcode::population_count, u64, {~uint64_t{0}}) == 64);
  CHECK(run(Opcode::mulhi, u32, {0xd2511f53, 0xffffffff}) == 0xd2511f52);
  CHECK(run(Opcode::mulhi, i32, {0xffffffff, 2}) == 0xffffffff);
  CHECK(run(Opcode::mulhi, i8, {0x80, 0x80}) == 0x40);
  CHECK(run(Opcode::mulhi, u64, {~uint64_t{0}, ~uint64_t{0}}) == ~uint64_t{1});
  CHECK(run(Opcode::mulhi, i64, {uint64_t{1} << 63, uint64_t{1} << 63}) == uint64_t{1} << 62);
}

TEST_CASE("reference: erf_inv undoes erf") {
  for (const double y : {-5.0, -2.3, -0.7, -1e-9, 0.0, 0.3, 1.0, 3.1, 5.5}) {
    const uint64_t x = std::bit_cast<uint64_t>(std::erf(y));
    // the rounding of erf(y)
    CHECK(std::bit_cast<double>(run(Opcode::erf_inv, f64, {x})) ==
          doctest::Approx(y).epsilon(y * y < 12 ? 1e-11 : 1e-4));
  }
  CHECK(run(Opcode::erf_inv, f32, {f(-1)}) == f(-kInf));
  CHECK(std::isnan(as_float(run(Opcode::erf_inv, f32, {f(1.0000001f)}))));
}

TEST_CASE("reference: conversions saturate, wrap and round") {
  CHECK(convert(f32, i8, f(kNan)) == 0);
  CHECK(convert(f32, i8, f(-128.9f)) == 0x80);
  CHECK(convert(f32, i8, f(1e30f)) == 0x7f);
  CHECK(convert(f32, u8, f(-0.9f)) == 0);
  CHECK(convert(f32, u64, f(kInf)) == ~uint64_t{0});
  CHECK(convert(f32, i64, f(kInf)) == ~uint64_t{0} >> 1);
  CHECK(convert(f32, i32, f(2147483520.0f)) == 2147483520);
  CHECK(convert(f64, i64, std::bit_cast<uint64_t>(-9.3e18)) == uint64_t{1} << 63);
  CHECK(convert(f32, boolean, f(kNan)) == 1);
  CHECK(convert(f32, boolean, f(-0.0f)) == 0);
  CHECK(convert(i32, i8, 0x1ff) == 0xff);
  CHECK(convert(i8, u64, 0xff) == ~uint64_t{0});
  CHECK(convert(boolean, bf16, 1) == 0x3f80);
  CHECK(convert(i64, f32, (1 << 24) + 1) == f(16777216.0f));
  CHECK(convert(f64, f16, std::bit_cast<uint64_t>(1 + 0x1p-11 + 0x1p-40)) == 0x3c00);  // through f32, as JAX
  CHECK(reference::to_double(u64, ~uint64_t{0}) == 0x1p64);
  CHECK(reference::from_double(f16, 65520.0) == 0x7c00);
}

TEST_CASE("reference: f16 and bf16 round as the bit-exact conversions do") {
  for (uint32_t b = 0; b < 65536; ++b) {
    const uint16_t h = static_cast<uint16_t>(b);
    const float wide = widen_f16(h);
    if (std::isnan(from_f16_bits(h))) {
      REQUIRE(std::isnan(wide));
      continue;
    }
    REQUIRE(std::bit_cast<uint32_t>(wide) == std::bit_cast<uint32_t>(from_f16_bits(h)));
    REQUIRE(round_to_f16(wide) == h);
    // Between neighbours: just below, at and just above the middle.
    const float next = widen_f16(static_cast<uint16_t>(h + 1));
    if (std::isnan(next) || std::isinf(wide)) continue;
    const float middle = (wide + (std::isinf(next) ? std::copysign(65536.0f, wide) : next)) / 2;
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, std::copysign(kInf, wide))})
      REQUIRE(round_to_f16(x) == to_f16_bits(x));
  }
  uint32_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = std::bit_cast<float>(state);
    if (std::isnan(x)) continue;
    REQUIRE(round_to_f16(x) == to_f16_bits(x));
    REQUIRE(round_to_bf16(x) == to_bf16_bits(x));
  }
}

TEST_CASE("reference: arrays and elements agree on every op and dtype") {
  // clang-format off
  const uint64_t special[] = {0, 1, 2, 5, 7, 8, 0x7f, 0x80, 0xff, 0x3c00, 0x7c00, 0x7e00, 0x8000, 0xffff,
    0x3f800000, 0x7f800000, 0x80000000, 0xffffffff,
                              0x3ff0000000000000, 0x7ff0000000000000, 0x8000000000000000, 0xffffffffffffffff};
  // clang-format on
  int defined = 0;
  for (int code = 0; code < ir::kNumOpcodes; ++code) {
    const auto op = static_cast<Opcode>(code);
    if (!ir::is_elementwise(op)) continue;
    for (int ti = 0; ti < kNumDTypes; ++ti)
      for (int ri = 0; ri < kNumDTypes; ++ri) {
        const auto t = static_cast<DType>(ti), r = static_cast<DType>(ri);
        if (ir::info(op).result == ir::ResultRule::same && t != r) continue;
        if (ir::info(op).result == ir::ResultRule::pred && r != boolean) continue;
        const auto array = reference::array_function(op, t, r);
        CHECK((array == nullptr) == (reference::scalar_function(op, t, r) == nullptr));
        if (!array) continue;
        ++defined;
        const int arity = ir::info(op).arity;
        constexpr int kN = 22 * 22;
        std::vector<uint64_t> values[3];
        std::vector<std::byte> memory[3];
        for (int k = 0; k < arity; ++k) {
          const DType kt = op == Opcode::select && k == 0 ? boolean : t;
          memory[k].resize(static_cast<size_t>(kN * size_bytes(kt)));
          for (int i = 0; i < kN; ++i) {
            uint64_t v = special[k == 0 ? i % 22 : k == 1 ? i / 22 : (i * 7 + 3) % 22];
            if (kt == boolean) v &= 1;
            else if (bits(kt) < 64) v &= (uint64_t{1} << bits(kt)) - 1;
            values[k].push_back(v);
            std::memcpy(memory[k].data() + i * size_bytes(kt), &v, static_cast<size_t>(size_bytes(kt)));
          }
        }
        const void* pointers[3] = {memory[0].data(), memory[1].data(), memory[2].data()};
        std::vector<std::byte> out(static_cast<size_t>(kN * size_bytes(r)));
        reference::eval_array(op, t, r, pointers, out.data(), kN);
        for (size_t i = 0; i < kN; ++i) {
          const uint64_t o[3] = {values[0][i], arity > 1 ? values[1][i] : 0, arity > 2 ? values[2][i] : 0};
          const uint64_t expected = reference::eval(op, t, r, o);
          uint64_t got = 0;
          std::memcpy(&got, out.data() + static_cast<int64_t>(i) * size_bytes(r), static_cast<size_t>(size_bytes(r)));
          if (got == expected) continue;
          // Which NaN comes out of an operation on two is the machine's choice.
          INFO(ir::name(op), " ", name(t), " -> ", name(r), " ", o[0], " ", o[1], " ", o[2]);
          REQUIRE(is_float(r));
          REQUIRE((std::isnan(reference::to_double(r, got)) && std::isnan(reference::to_double(r, expected))));
        }
      }
  }
  CHECK(defined > 500);
  CHECK_THROWS_WITH_AS(run(Opcode::sin, i32, {0}), "reference: sin is not defined from i32 to i32", InternalError);
}

TEST_CASE("reference: reductions start from what changes nothing") {
  CHECK(reference::identity(Opcode::add, f32) == 0);
  CHECK(reference::identity(Opcode::mul, bf16) == 0x3f80);
  CHECK(reference::identity(Opcode::max, f16) == 0xfc00);
  CHECK(reference::identity(Opcode::max, f8e4m3fn) == 0xfe);  // -448: no infinities
  CHECK(reference::identity(Opcode::max, f8e5m2) == 0xfc);
  CHECK(reference::identity(Opcode::min, i4) == 7);
  CHECK(reference::identity(Opcode::max, i4) == 8);
  CHECK(reference::identity(Opcode::and_, u4) == 15);
  CHECK(reference::identity(Opcode::max, i8) == 0x80);
  CHECK(reference::identity(Opcode::min, u32) == 0xffffffff);
  CHECK(reference::identity(Opcode::and_, i16) == 0xffff);
  CHECK(reference::identity(Opcode::and_, boolean) == 1);
  CHECK(reference::identity(Opcode::or_, u8) == 0);
  CHECK(ir::combining_op(Opcode::reduce_and) == Opcode::and_);
}

TEST_CASE("reference: select and bitcast move bits, fma multiplies and adds") {
  const uint64_t signalling = 0x7fa00001;
  CHECK(run(Opcode::select, f32, {1, signalling, 0}) == signalling);
  CHECK(run(Opcode::select, f32, {0, signalling, 7}) == 7);
  uint64_t b = signalling;
  CHECK(reference::eval(Opcode::bitcast, f32, i32, &b) == signalling);
  CHECK_THROWS_AS(reference::eval(Opcode::bitcast, f32, i64, &b), InternalError);
  CHECK(run(Opcode::fma, f32, {f(3), f(4), f(-5)}) == f(7));
  CHECK(run(Opcode::fma, f32, {f(1 + 0x1p-23f), f(1 - 0x1p-23f), f(-1)}) == f(-0x1p-46f));
  CHECK(run(Opcode::fma, f16, {0x4200, 0x4400, 0xc500}) == 0x4700);  // 3 * 4 - 5
}

}  // namespace reference_test
