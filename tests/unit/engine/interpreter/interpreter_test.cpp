// The interpreter: blocks, the grid, memory and control flow, on small kernels in text form. answers_test.cpp compares
// with JAX.
#include "engine/interpreter/interpreter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "engine/ir/builder.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace interpreter_test {
using namespace tessera;
namespace {
std::vector<Array> run(const std::string& text, const std::vector<Array>& inputs, const DimValues& dims = {}) {
  const ir::Kernel k = ir::parse("tir 1\n" + text);
  ir::verify(k, "parsing");
  return interpret(k, inputs, {.dims = dims});
}
template <class T> std::vector<T> values(const Array& a) {
  const auto s = a.data<T>();
  return {s.begin(), s.end()};
}
Array counted(Shape shape) {  // 0, 1, 2, ... as f32
  Array a(std::move(shape), f32);
  const auto s = a.data<float>();
  std::iota(s.begin(), s.end(), 0.0f);
  return a;
}
using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();

// Equal, NaNs too.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}
}  // namespace

TEST_CASE("interpreter: one kernel for every size, blocks beyond the edge") {
  const std::string text = R"(kernel @twice
grid (cdiv(n, 4))
in f32[n, 3] block (4, 2) map (%0) { %1 = constant 0 : i32[]
  yield %0, %1 }
out f32[n, 3] block (4, 2) map (%2) { %3 = constant 0 : i32[]
  yield %2, %3 }
body (%4: ref<vmem, f32[4, 2]>, %5: ref<vmem, f32[4, 2]>) {
  %6 = load %4[0:4, 0:2] : f32[4, 2]
  %7 = add %6, %6 : f32[4, 2]
  store %5[0:4, 0:2], %7
  yield
})";
  for (int64_t n : {0, 1, 3, 4, 5, 9}) {
    const Array x = counted({n, 3});
    const Array y = run(text, {x}).at(0);
    REQUIRE(y.shape() == Shape{n, 3});
    for (int64_t i = 0; i < y.size(); ++i) {
      if (i % 3 == 2) CHECK(std::isnan(y.at(i)));  // no program's block covers it
      else CHECK(y.at(i) == 2 * x.at(i));
    }
  }
}

TEST_CASE("interpreter: overhang is unspecified, and a program's own while it stays on the block") {
  // Two programs on the edge block of o: the first stores to all of it, the second sums what it finds there.
  const std::string text = R"(kernel @edge
grid (2)
in f32[3] block (4) map (%0) { %1 = constant 0 : i32[]
  yield %1 }
out f32[3] block (4) map (%2) { %3 = constant 0 : i32[]
  yield %3 }
out f32[2] whole
body (%4: ref<vmem, f32[4]>, %5: ref<vmem, f32[4]>, %6: ref<any, f32[2]>) {
  %7 = program_id axis 0 : i32[]
  %8 = constant 0 : i32[]
  %9 = eq %7, %8 : bool[]
  if %9 {
    %10 = load %4[0:4] : f32[4]
    %11 = load %4[3] : f32[]
    store %6[0], %11
    %12 = constant 7 : f32[4]
    store %5[0:4], %12
    yield
  } else {
    %13 = load %5[3] : f32[]
    store %6[1], %13
    yield
  }
  yield
})";
  const auto out = run(text, {counted({3})});
  CHECK(values<float>(out[0]) == Floats{7, 7, 7});
  CHECK(same(values<float>(out[1]), {kNan, 7}));
}

TEST_CASE("interpreter: unspecified elements, all alike or each with a value of its own") {
  // x hangs over by two elements. What one read gives is fixed, so a difference of it with itself is 0; two places
  // differ.
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @unspecified
in i32[2] block (4) map () { %0 = constant 0 : i32[]
  yield %0 }
out i32[4] whole
out i32[4] whole
out bool[64] whole
body (%1: ref<vmem, i32[4]>, %2: ref<any, i32[4]>, %3: ref<any, i32[4]>, %4: ref<any, bool[64]>) {
  %5 = load %1[0:4] : i32[4]
  %6 = sub %5, %5 : i32[4]
  store %2[0:4], %6
  %7 = slice %5[2:3] : i32[1]
  %8 = slice %5[3:4] : i32[1]
  %9 = sub %7, %8 : i32[1]
  %10 = broadcast %9 dims [0] : i32[4]
  store %3[0:4], %10
  %11 = constant false : bool[64]
  %12 = load %4[0:64] mask %11 : bool[64]
  %13 = load %4[0:64] mask %11 : bool[64]
  %14 = xor %12, %13 : bool[64]
  store %4[0:64], %14
})");
  // 0 to 3: all alike; from 4 on: by a seed.
  const auto options = [](int fill) {
    constexpr Uninitialised kAlike[] = {Uninitialised::nan, Uninitialised::zero, Uninitialised::large,
                                        Uninitialised::small};
    InterpretOptions o;
    o.uninitialised = fill < 4 ? kAlike[fill] : Uninitialised::pattern;
    if (fill >= 4) o.seed = static_cast<uint64_t>(fill);
    return o;
  };
  const auto out = [&](int fill) { return interpret(k, {Array({2}, std::vector<int32_t>{5, 6})}, options(fill)); };
  for (int fill = 0; fill < 4; ++fill) CHECK(values<int32_t>(out(fill)[1]) == Ints{0, 0, 0, 0});
  for (int fill = 4; fill < 7; ++fill) {
    CHECK(values<int32_t>(out(fill)[0]) == Ints{0, 0, 0, 0});
    CHECK(values<int32_t>(out(fill)[1])[0] != 0);
    CHECK(values<int32_t>(out(fill)[1])[0] != values<int32_t>(out(fill + 1)[1])[0]);
    int64_t ones = 0;
    for (int64_t i = 0; i < 64; ++i) ones += static_cast<int64_t>(out(fill)[2].element_bits(i));
    CHECK(ones > 10);
    CHECK(ones < 54);
  }
}

TEST_CASE("interpreter: leaving an output block writes it back, coming back reads it") {
  // Blocks 0, 1, 0 of an array whose second block hangs over; each program adds 1 to a block that program 0 and 1
  // initialise.
  const std::string text = R"(kernel @back
grid (3)
out i32[3] block (2) map (%0) { %1 = constant 2 : i32[]
  %2 = rem %0, %1 : i32[]
  yield %2 }
body (%3: ref<vmem, i32[2]>) {
  %4 = program_id axis 0 : i32[]
  %5 = constant 2 : i32[]
  %6 = lt %4, %5 : bool[]
  if %6 {
    %7 = broadcast %4 dims [] : i32[2]
    store %3[0:2], %7
    yield
  } else { yield }
  %8 = load %3[0:2] : i32[2]
  %9 = constant 10 : i32[2]
  %10 = add %8, %9 : i32[2]
  store %3[0:2], %10
  yield
})";
  CHECK(values<int32_t>(run(text, {}).at(0)) == Ints{20, 20, 11});
}

TEST_CASE("interpreter: block indices wrap once and are clamped, squeezed dims select one element") {
  const std::string text = R"(kernel @clamped
grid (5)
in i32[2, 3] block (squeezed, 2) map (%0) { %1 = constant 3 : i32[]
  %2 = sub %0, %1 : i32[]
  yield %2, %0 }
out i32[5, 2] block (squeezed, 2) map (%3) { %4 = constant 0 : i32[]
  yield %3, %4 }
body (%5: ref<vmem, i32[2]>, %6: ref<vmem, i32[2]>) {
  %7 = load %5[0:2] : i32[2]
  store %6[0:2], %7
  yield
})";
  const Array x({2, 3}, Ints{0, 1, 2, 3, 4, 5});
  CHECK(values<int32_t>(run(text, {x}).at(0)) == Ints{0, 1, 2, kLeast, 5, kLeast, 2, kLeast, 5, kLeast});
}

TEST_CASE("interpreter: unspecified memory is NaN, the least integer, true") {
  const std::string text = R"(kernel @fresh
grid (1)
out f16[2] whole
out bf16[2] whole
out f64[1] whole
out i8[1] whole
out u16[1] whole
out bool[1] whole
out i64[2] whole
scratch ref<vmem, i64[2]>
body (%0: ref<any, f16[2]>, %1: ref<any, bf16[2]>, %2: ref<any, f64[1]>, %3: ref<any, i8[1]>, %4: ref<any, u16[1]>, %5: ref<any, bool[1]>, %6: ref<any, i64[2]>, %7: ref<vmem, i64[2]>) {
  %8 = load %7[0:2] : i64[2]
  store %6[0:2], %8
  yield
})";
  const auto out = run(text, {});
  CHECK(std::isnan(out[0].at(1)));
  CHECK(std::isnan(out[1].at(1)));
  CHECK(std::isnan(out[2].at(0)));
  CHECK(out[3].at(0) == -128);
  CHECK(out[4].at(0) == 0);
  CHECK(out[5].element_bits(0) == 1);
  CHECK(out[6].element_bits(1) == uint64_t{1} << 63);
}

TEST_CASE("interpreter: scratch persists in grid order, but not across a vmapped axis") {
  const auto text = [](const std::string& axis) {
    return R"(kernel @scan
grid ()" + axis +
           R"(, 3)
out f32[2, 3] block (squeezed, squeezed) map (%0, %1) { yield %0, %1 }
scratch ref<vmem, f32[]>
body (%2: ref<vmem, f32[]>, %3: ref<vmem, f32[]>) {
  %4 = program_id axis )" +
           (axis == "2" ? "1" : "0") + R"( : i32[]
  %5 = constant 1 : i32[]
  %6 = eq %4, %5 : bool[]
  if %6 {
    %7 = constant 5 : f32[]
    store %3[], %7
    yield
  } else { yield }
  %8 = load %3[] : f32[]
  store %2[], %8
  yield
})";
  };
  CHECK(same(values<float>(run(text("2"), {}).at(0)), {kNan, 5, 5, 5, 5, 5}));
  CHECK(same(values<float>(run(text("2 vmapped"), {}).at(0)), {kNan, 5, 5, kNan, 5, 5}));
}

TEST_CASE("interpreter: dynamic starts wrap once and are clamped so that the window fits") {
  const std::string text = R"(kernel @window
grid (12)
in i32[8] whole
out i32[12, 4] block (squeezed, 4) map (%0) { %1 = constant 0 : i32[]
  yield %0, %1 }
body (%2: ref<any, i32[8]>, %3: ref<vmem, i32[4]>) {
  %4 = program_id axis 0 : i32[]
  %5 = constant 10 : i32[]
  %6 = sub %4, %5 : i32[]
  %7 = constant 2 : i32[]
  %8 = mul %6, %7 : i32[]
  %9 = load %2[ds(%8, 2)] : i32[2]
  %10 = load %2[%8] : i32[]
  store %3[0:2], %9
  store %3[2], %10
  store %3[3], %8
  yield
})";
  const Array x({8}, Ints{0, 1, 2, 3, 4, 5, 6, 7});
  const auto out = values<int32_t>(run(text, {x}).at(0));
  for (int i = 0; i < 12; ++i) {
    const int start = 2 * (i - 10), wrapped = start < 0 ? start + 8 : start;
    const int window = std::clamp(wrapped, 0, 8 - 2), at = std::clamp(wrapped, 0, 7);
    CHECK(std::vector<int32_t>(out.begin() + 4 * i, out.begin() + 4 * i + 4) == Ints{window, window + 1, at, start});
  }
}

TEST_CASE("interpreter: with a mask nothing shifts, and lanes are tested") {
  const std::string text = R"(kernel @masked
grid (3)
in i32[5] whole
in bool[4] whole
out i32[5] whole
out i32[3, 2, 4] block (squeezed, 2, 4) map (%0) { %1 = constant 0 : i32[]
  yield %0, %1, %1 }
body (%2: ref<any, i32[5]>, %3: ref<any, bool[4]>, %4: ref<any, i32[5]>, %5: ref<vmem, i32[2, 4]>) {
  %6 = program_id axis 0 : i32[]
  %7 = constant 4 : i32[]
  %8 = mul %6, %7 : i32[]
  %9 = constant 2 : i32[]
  %10 = sub %8, %9 : i32[]
  %11 = load %3[0:4] : bool[4]
  %12 = constant -1 : i32[4]
  %13 = load %2[ds(%10, 4)] mask %11 other %12 : i32[4]
  %14 = load %2[ds(%10, 4)] mask %11 : i32[4]
  store %5[0, 0:4], %13
  store %5[1, 0:4], %14
  store %4[ds(%10, 4)], %13 mask %11
  yield
})";
  const Array x({5}, Ints{10, 11, 12, 13, 14});
  const Array mask({4}, std::vector<bool>{true, true, true, false});
  const auto out = run(text, {x, mask});
  CHECK(values<int32_t>(out[0]) == Ints{10, kLeast, 12, 13, 14});  // starts -2, 2, 6
  CHECK(values<int32_t>(out[1]) == Ints{-1, -1, 10,     -1, kLeast, kLeast, 10, kLeast, 12,     13,     14,    -1, 12,
                                        13, 14, kLeast, -1, -1,     -1,     -1, kLeast, kLeast, kLeast, kLeast});
}

TEST_CASE("interpreter: swap returns what was there") {
  const std::string text = R"(kernel @swapped
grid (1)
in f32[4] whole
out f32[4] whole
out f32[4] whole
body (%0: ref<any, f32[4]>, %1: ref<any, f32[4]>, %2: ref<any, f32[4]>) {
  %3 = load %0[0:4] : f32[4]
  store %1[0:4], %3
  %4 = constant 9 : f32[2]
  %5 = swap %1[1:4:2], %4 : f32[2]
  store %2[0:2], %5
  %6 = iota axis 0 : i32[2]
  %7 = constant 0 : i32[2]
  %8 = eq %6, %7 : bool[2]
  %9 = constant 5 : f32[2]
  %10 = swap %1[2:4], %4 mask %8 other %9 : f32[2]
  store %2[2:4], %10
  yield
})";
  const auto out = run(text, {counted({4})});
  CHECK(values<float>(out[0]) == Floats{0, 9, 9, 9});
  CHECK(values<float>(out[1]) == Floats{1, 3, 2, 5});
}

TEST_CASE("interpreter: loops carry values, even when they trade places") {
  const std::string text = R"(kernel @loops
grid (1)
in i32[] whole
out i32[6] whole
body (%0: ref<any, i32[]>, %1: ref<any, i32[6]>) {
  %2 = load %0[] : i32[]
  %3 = constant 0 : i32[]
  %4 = constant 1 : i32[]
  %5 = constant 3 : i32[]
  %6, %7, %8 = for %9 = %3 to %2 step %4 carry (%10 = %3: i32[], %11 = %4: i32[], %12 = %5: i32[]) {
    %13 = reshape %10 : i32[]
    yield %11, %12, %13
  }
  store %1[0], %6
  store %1[1], %7
  store %1[2], %8
  %14, %15 = while (%16 = %2: i32[], %17 = %3: i32[]) {
    %18 = gt %16, %3 : bool[]
    yield %18
  } do (%19: i32[], %20: i32[]) {
    %21 = sub %19, %4 : i32[]
    %22 = add %20, %19 : i32[]
    yield %21, %22
  }
  store %1[3], %15
  %23 = switch %2 case 0 { yield %5 } case 1 { yield %4 } case 2 { %24 = add %5, %5 : i32[]
  yield %24 }
  store %1[4], %23
  %25 = for %26 = %2 to %3 step %4 carry (%27 = %5: i32[]) {
    yield %26
  }
  store %1[5], %25
  yield
})";
  const auto with = [&](int32_t n) { return values<int32_t>(run(text, {Array(Shape{}, Ints{n})}).at(0)); };
  CHECK(with(0) == Ints{0, 1, 3, 0, 3, 3});
  CHECK(with(1) == Ints{1, 3, 0, 1, 1, 3});
  CHECK(with(5) == Ints{3, 0, 1, 15, 6, 3});
  CHECK(with(-4) == Ints{0, 1, 3, 0, 3, -1});
}

TEST_CASE("interpreter: structured ops on odd shapes") {
  const std::string text = R"(kernel @shapes
grid (1)
in f32[2, 3, 5] whole
out f32[5, 3, 2] whole
out f32[2, 2, 2] whole
out f32[3] whole
out i32[2, 5] whole
out f32[2, 3, 5] whole
out f32[5, 2, 2] whole
out f32[4, 5] whole
out i32[3, 5] whole
body (%0: ref<any, f32[2, 3, 5]>, %1: ref<any, f32[5, 3, 2]>, %2: ref<any, f32[2, 2, 2]>, %3: ref<any, f32[3]>, %4: ref<any, i32[2, 5]>, %5: ref<any, f32[2, 3, 5]>, %6: ref<any, f32[5, 2, 2]>, %7: ref<any, f32[4, 5]>, %8: ref<any, i32[3, 5]>) {
  %9 = load %0[0:2, 0:3, 0:5] : f32[2, 3, 5]
  %10 = transpose %9 perm [2, 1, 0] : f32[5, 3, 2]
  store %1[0:5, 0:3, 0:2], %10
  %11 = slice %9 start [0, 1, 0] limit [2, 3, 5] stride [1, 1, 4] : f32[2, 2, 2]
  store %2[0:2, 0:2, 0:2], %11
  %12 = reduce_sum %9 axes [0, 2] : f32[3]
  store %3[0:3], %12
  %13 = argmax %9 axis 1 : i32[2, 5]
  store %4[0:2, 0:5], %13
  %14 = cumsum %9 axis 1 reverse 1 : f32[2, 3, 5]
  store %5[0:2, 0:3, 0:5], %14
  %15 = dot %9, %9 lhs_contract [1] rhs_contract [1] lhs_batch [2] rhs_batch [2] : f32[5, 2, 2]
  store %6[0:5, 0:2, 0:2], %15
  %16 = reshape %9 : f32[6, 5]
  %17 = slice %16 start [0, 0] limit [1, 5] stride [1, 1] : f32[1, 5]
  %18 = slice %16 start [3, 0] limit [6, 5] stride [1, 1] : f32[3, 5]
  %19 = concatenate %17, %18 axis 0 : f32[4, 5]
  store %7[0:4, 0:5], %19
  %20 = iota axis 0 : i32[3, 5]
  store %8[0:3, 0:5], %20
  yield
})";
  const Array x = counted({2, 3, 5});
  const auto out = run(text, {x});
  const auto at = [](int i, int j, int l) { return static_cast<float>(i * 15 + j * 5 + l); };
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int l = 0; l < 5; ++l) {
        CHECK(out[0].at(l * 6 + j * 2 + i) == at(i, j, l));
        if (j > 0 && l % 4 == 0) CHECK(out[1].at(i * 4 + (j - 1) * 2 + l / 4) == at(i, j, l));
        float sum = 0;
        for (int jj = j; jj < 3; ++jj) sum += at(i, jj, l);
        CHECK(out[4].at(i * 15 + j * 5 + l) == sum);
        CHECK(out[3].at(i * 5 + l) == 2);
        CHECK(out[7].at(j * 5 + l) == j);
      }
  CHECK(values<float>(out[2]) == Floats{95, 145, 195});
  for (int l = 0; l < 5; ++l)
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 2; ++b)
        CHECK(out[5].at(l * 4 + a * 2 + b) ==
              at(a, 0, l) * at(b, 0, l) + at(a, 1, l) * at(b, 1, l) + at(a, 2, l) * at(b, 2, l));
  CHECK(values<float>(out[6]) == Floats{0, 1, 2, 3, 4, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
}

TEST_CASE("interpreter: zero-size arrays and empty reductions") {
  const std::string text = R"(kernel @none
grid (1)
in f32[0, 3] whole
out f32[3] whole
out f32[3] whole
out f32[2, 2] whole
out f32[0, 3] whole
body (%0: ref<any, f32[0, 3]>, %1: ref<any, f32[3]>, %2: ref<any, f32[3]>, %3: ref<any, f32[2, 2]>, %4: ref<any, f32[0, 3]>) {
  %5 = load %0[0:0, 0:3] : f32[0, 3]
  %6 = reduce_sum %5 axes [0] : f32[3]
  store %1[0:3], %6
  %7 = reduce_max %5 axes [0] : f32[3]
  store %2[0:3], %7
  %8 = constant 1 : f32[2, 0]
  %9 = dot %8, %8 lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[2, 2]
  store %3[0:2, 0:2], %9
  %10 = exp %5 : f32[0, 3]
  store %4[0:0, 0:3], %10
  yield
})";
  const auto out = run(text, {Array({0, 3}, f32)});
  CHECK(values<float>(out[0]) == Floats{0, 0, 0});
  CHECK(values<float>(out[1]) == Floats{-INFINITY, -INFINITY, -INFINITY});
  CHECK(values<float>(out[2]) == Floats{0, 0, 0, 0});
  CHECK(out[3].size() == 0);
}

TEST_CASE("interpreter: an empty grid leaves outputs unspecified, a rank 0 grid runs once") {
  const auto text = [](const std::string& grid, const std::string& args) {
    return "kernel @g\ngrid (" + grid + ")\nout f32[2] block (2) map (" + args +
           ") { %1 = constant 0 : i32[]\n  yield %1 }\n" +
           "body (%2: ref<vmem, f32[2]>) {\n  %3 = constant 1 : f32[2]\n  store %2[0:2], %3\n  yield\n}";
  };
  CHECK(same(values<float>(run(text("0", "%0"), {}).at(0)), {kNan, kNan}));
  CHECK(values<float>(run(text("", ""), {}).at(0)) == Floats{1, 1});
}

TEST_CASE("interpreter: products accumulate in the dtypes they should") {
  const auto dot = [](const std::string& t, const std::string& r) {
    return "kernel @d\ngrid (1)\nin " + t + "[300] whole\nout " + r + "[] whole\nbody (%0: ref<any, " + t +
           "[300]>, %1: ref<any, " + r + "[]>) {\n  %2 = load %0[0:300] : " + t +
           "[300]\n  %3 = dot %2, %2 lhs_contract [0] rhs_contract [0] lhs_batch [] rhs_batch [] : " + r +
           "[]\n  store %1[], %3\n  yield\n}";
  };
  CHECK(run(dot("i8", "i8"), {Array({300}, std::vector<int8_t>(300, 3))}).at(0).at(0) ==
        static_cast<int8_t>(2700 % 256));
  CHECK(run(dot("i8", "i32"), {Array({300}, std::vector<int8_t>(300, 100))}).at(0).at(0) == 3000000);
  CHECK(run(dot("u16", "u16"), {Array({300}, std::vector<uint16_t>(300, 65535))}).at(0).at(0) == 300);
  // 2048 + 9 would round to 2056 in f16
  CHECK(run(dot("f16", "f16"), {Array({300}, std::vector<half_t>(300, half_t(3)))}).at(0).at(0) == 2700);
  CHECK(run(dot("bf16", "f32"), {Array({300}, std::vector<bfloat16_t>(300, bfloat16_t(3)))}).at(0).at(0) == 2700);
  CHECK(run(dot("f32", "f64"), {Array({300}, std::vector<float>(300, 1 + 0x1p-23f))}).at(0).at(0) ==
        doctest::Approx(300 * (1 + 0x1p-23) * (1 + 0x1p-23)).epsilon(1e-13));
}

TEST_CASE("interpreter: large products equal a plain triple loop") {
  // Odd sizes around the register tile of 4 rows and 12 or 6 columns.
  for (const auto& [m, k, n] : {std::array<int, 3>{1, 64, 1}, {5, 33, 13}, {4, 128, 12}, {17, 19, 40}}) {
    const auto s = [](int v) { return std::to_string(v); };
    for (const char* t : {"f32", "f64", "i32", "u8"}) {
      const std::string type = t;
      const std::string a = type + "[" + s(m) + ", " + s(k) + "]", b = type + "[" + s(n) + ", " + s(k) + "]",
                        c = type + "[" + s(m) + ", " + s(n) + "]";
      const std::string text =
          "kernel @mm\ngrid (1)\nin " + a + " whole\nin " + b + " whole\nout " + c + " whole\nbody (%0: ref<any, " + a +
          ">, %1: ref<any, " + b + ">, %2: ref<any, " + c + ">) {\n  %3 = load %0[0:" + s(m) + ", 0:" + s(k) +
          "] : " + a + "\n  %4 = load %1[0:" + s(n) + ", 0:" + s(k) + "] : " + b +
          "\n  %5 = dot %3, %4 lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : " + c +
          "\n  store %2[0:" + s(m) + ", 0:" + s(n) + "], %5\n  yield\n}";
      const DType dtype = *dtype_from_name(type);
      Array x({m, k}, dtype), y({n, k}, dtype);
      for (int64_t i = 0; i < x.size(); ++i)
        x.set_element_bits(i, reference::from_double(dtype, static_cast<double>(i * 7 % 11) - (type == "u8" ? 0 : 5)));
      for (int64_t i = 0; i < y.size(); ++i)
        y.set_element_bits(i, reference::from_double(dtype, static_cast<double>(i * 5 % 13) - (type == "u8" ? 0 : 6)));
      const Array z = run(text, {x, y}).at(0);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int p = 0; p < k; ++p) sum += x.at(i * k + p) * y.at(j * k + p);
          REQUIRE(z.at(i * n + j) == (type == "u8" ? std::fmod(sum, 256.0) : sum));
        }
    }
  }
}

TEST_CASE("interpreter: buffers of dead values are reused without harm") {
  // x is used inside a loop after other values have come and gone; y is made before and used after; constants are
  // shared by all programs.
  const std::string text = R"(kernel @lives
grid (2)
in f32[64] whole
out f32[2, 64] block (squeezed, 64) map (%0) { %1 = constant 0 : i32[]
  yield %0, %1 }
body (%2: ref<any, f32[64]>, %3: ref<vmem, f32[64]>) {
  %4 = load %2[0:64] : f32[64]
  %5 = add %4, %4 : f32[64]
  %6 = mul %5, %5 : f32[64]
  %7 = constant 1 : f32[64]
  %8 = constant 0 : i32[]
  %9 = constant 3 : i32[]
  %10 = constant 1 : i32[]
  %11 = for %12 = %8 to %9 step %10 carry (%13 = %7: f32[64]) {
    %14 = add %13, %4 : f32[64]
    %15 = neg %14 : f32[64]
    %16 = reshape %15 : f32[8, 8]
    %17 = transpose %16 perm [1, 0] : f32[8, 8]
    %18 = transpose %17 perm [1, 0] : f32[8, 8]
    %19 = reshape %18 : f32[64]
    %20 = neg %19 : f32[64]
    yield %20
  }
  %21 = add %11, %6 : f32[64]
  %22 = sub %21, %7 : f32[64]
  store %3[0:64], %22
  yield
})";
  const auto out = values<float>(run(text, {counted({64})}).at(0));
  for (int i = 0; i < 128; ++i) {
    const float x = static_cast<float>(i % 64);
    CHECK(out[static_cast<size_t>(i)] == 3 * x + 4 * x * x);
  }
}

TEST_CASE("interpreter: thousands of scalar programs are quick") {
  const std::string text = R"(kernel @iota
grid (4096)
out i32[4096] whole
body (%0: ref<any, i32[4096]>) {
  %1 = program_id axis 0 : i32[]
  store %0[%1], %1
  yield
})";
  const auto start = std::chrono::steady_clock::now();
  const Array out = run(text, {}).at(0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  for (int i = 0; i < 4096; ++i) REQUIRE(out.data<int32_t>()[static_cast<size_t>(i)] == i);
  MESSAGE("4096 scalar programs took ", took.count(), " ms");
}

TEST_CASE("interpreter: arguments that do not fit") {
  const std::string text = R"(kernel @fits
grid (cdiv(n, 4), m)
in f32[n, 8] block (4, 8) map (%0, %1) { yield %0, %1 }
in i32[n] block (4) map (%2, %3) { yield %2 }
out f32[n - 2, m] block (1, 1) map (%4, %5) { yield %4, %5 }
body (%6: ref<vmem, f32[4, 8]>, %7: ref<vmem, i32[4]>, %8: ref<vmem, f32[1, 1]>) {
  yield
})";
  const auto refuses = [&](const std::vector<Array>& inputs, const DimValues& dims, const std::string& message) {
    std::string got;
    try {
      run(text, inputs, dims);
    } catch (const SpecError& e) {
      got = e.what();
    }
    if (const auto at = got.find("\n  at <text>:"); at != std::string::npos)
      got.erase(at, got.find('\n', at + 1) == std::string::npos ? std::string::npos : got.find('\n', at + 1) - at);
    CHECK(got == message);
  };
  const Array x({5, 8}, f32), y({5}, i32);
  CHECK(run(text, {x, y}, {{"m", 2}}).at(0).shape() == Shape{3, 2});
  refuses({x}, {}, "fits: takes 2 arguments but 1 was given");
  refuses({x, Array({5}, f32)}, {}, "fits: argument 1: dtype is f32 but the kernel takes i32");
  refuses({Array({5, 8, 1}, f32), y}, {},
          "fits: argument 0: shape (5, 8, 1) has 3 dims but the kernel takes (n, 8) with 2");
  refuses({Array({5, 7}, f32), y}, {}, "fits: argument 0: shape is (5, 7) but the kernel takes (n, 8)");
  refuses({x, Array({6}, i32)}, {{"m", 1}},
          "fits: argument 1: shape (6,) has n = 6 but argument 0 has n = 5\n  note: the kernel takes (n,) here; equal "
          "names are equal sizes");
  refuses({x, y}, {{"n", 4}},
          "fits: argument 0: shape (5, 8) has n = 5 but the call gives n = 4\n  note: the kernel takes (n, 8) here; "
          "equal names are equal sizes");
  refuses({x, y}, {},
          "fits: out_specs[0]: no value for the size \"m\" in m\n  note: a size is taken from an argument whose shape "
          "names it alone, or given with the call");
  refuses({x, y}, {{"q", 1}},
          "fits: a size \"q\" was given but the kernel has none of that name\n  note: its sizes are n, m");
  refuses({x, y}, {{"m", -1}}, "fits: the size m was given as -1\n  note: sizes must not be negative");
  refuses({Array({1, 8}, f32), Array({1}, i32)}, {{"m", 1}},
          "fits: out_specs[0]: array shape (n - 2, m) is (-1, 1) for n = 1, m = 1\n  note: sizes must not be negative");
  refuses({x, y}, {{"m", int64_t{1} << 31}},
          "fits: grid axis 1 is 2147483648, from m for m = 2147483648\n  note: program ids are i32, so a grid axis has "
          "at most 2147483647 programs");
  ir::Kernel lowered = ir::parse("tir 1\n" + text);
  lowered.level = ir::Level::lane;
  lowered.loc = {};
  CHECK_THROWS_WITH_AS(interpret(lowered, {x, y}),
                       "fits: the interpreter runs tile-level kernels, and this one is lowered", SpecError);
}

TEST_CASE("interpreter: extents that are expressions, and grids that go negative") {
  const auto text = [](const std::string& grid) {
    return "kernel @e\ngrid (" + grid +
           ")\nin f32[n] block (1) map (%0) { yield %0 }\nin f32[n * 2] block (1) map (%1) { yield %1 }\nout f32[n] "
           "block (1) map (%2) { yield %2 }\n" +
           "body (%3: ref<vmem, f32[1]>, %4: ref<vmem, f32[1]>, %5: ref<vmem, f32[1]>) {\n  yield\n}";
  };
  ir::Kernel k = ir::parse("tir 1\n" + text("n"));
  for (auto& b : k.blocks) b.loc = {};
  k.loc = {};
  CHECK(interpret(k, {Array({3}, f32), Array({6}, f32)}).at(0).size() == 3);
  CHECK_THROWS_WITH_AS(interpret(k, {Array({3}, f32), Array({5}, f32)}),
                       "e: argument 1: shape is (5,) but the kernel takes (n * 2,), which is (6,) for n = 3",
                       SpecError);
  k.grid[0].size = dim("n") - 4;
  CHECK_THROWS_WITH_AS(interpret(k, {Array({3}, f32), Array({6}, f32)}),
                       "e: grid axis 0 is -1, from n - 4 for n = 3\n  note: grid sizes must not be negative",
                       SpecError);
  k.grid[0].size = cdiv(dim("n"), dim("n") - 3);
  CHECK_THROWS_WITH_AS(
      interpret(k, {Array({3}, f32), Array({6}, f32)}),
      "e: grid axis 0: cdiv(n, n - 3) for n = 3: size expression divides 3 by 0\n  note: divisors must be positive",
      SpecError);
}

TEST_CASE("interpreter: a loop whose step is not positive, and regions nested too deep, are errors") {
  const std::string text = R"(kernel @step
grid (1)
in i32[] whole
body (%0: ref<any, i32[]>) {
  %1 = load %0[] : i32[]
  %2 = constant 0 : i32[]
  for %3 = %2 to %1 step %1 { yield }
  yield
})";
  CHECK_THROWS_AS(run(text, {Array(Shape{}, Ints{0})}), SpecError);
  ir::Kernel k = ir::parse("tir 1\n" + text);
  k.loc = {};
  for (ir::Op& op : k.ops) op.loc = {};
  CHECK_THROWS_WITH_AS(interpret(k, {Array(Shape{}, Ints{-2})}), "for: the step must be positive but is -2", SpecError);
  for (const int depth : {100, 2000}) {
    k = {};
    k.name = "deep";
    ir::Builder b(k);
    k.num_inputs = 0;
    k.body = b.new_region({});
    b.set_region(k.body);
    const ir::Value yes = b.constant(boolean, 1);
    const std::function<void(int)> nest = [&](int left) {
      if (left) b.when(yes, [&] { nest(left - 1); });
    };
    nest(depth);
    b.set_region(k.body);
    b.yield({});
    if (depth == 100) CHECK(interpret(k, {}).empty());
    else CHECK_THROWS_WITH_AS(interpret(k, {}), "deep: control flow is nested more than 500 deep", SpecError);
  }
}

namespace {
// A random kernel over i32[8] values: arithmetic, reshapes, loads and stores, loops whose carries may trade places,
// conditionals. With `keep`, every region ends by storing all its values elsewhere, so that no buffer can be reused
// before the region's end.
struct RandomKernel {
  ir::Kernel k;
  ir::Builder b{k};
  uint32_t state;
  bool keep;
  ir::Value data, scratch, dump;
  const ir::Type vector = ir::Type::array(i32, {8});

  uint32_t pick(uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
  }
  ir::Value any(const std::vector<ir::Value>& v) { return v[pick(static_cast<uint32_t>(v.size()))]; }
  void store(ir::Value ref, ir::Value v) {
    ir::Op op{.code = ir::Opcode::store, .operands = {ref, v}};
    op.index = {ir::Index::all(8)};
    b.append(std::move(op));
  }
  ir::Value load(ir::Value ref) {
    ir::Op op{.code = ir::Opcode::load, .operands = {ref}};
    op.index = {ir::Index::all(8)};
    return b.one(std::move(op));
  }
  std::vector<ir::Value> region(std::vector<ir::Value> values, int depth, size_t results) {
    const size_t outer = values.size();
    const uint32_t ops = 3 + pick(8);
    for (uint32_t i = 0; i < ops; ++i) {
      switch (pick(depth > 0 ? 10 : 7)) {
        case 0: values.push_back(load(pick(2) ? data : scratch)); break;
        case 1: store(scratch, any(values)); break;
        case 2: {
          ir::Op op{.code = ir::Opcode::reshape, .operands = {any(values)}};
          const ir::Value square = b.one(std::move(op), ir::Type::array(i32, {2, 4}));
          ir::Op back{.code = ir::Opcode::reshape, .operands = {square}};
          values.push_back(b.one(std::move(back), vector));
          break;
        }
        case 3:
        case 4:
        case 5: {
          constexpr ir::Opcode kOps[] = {ir::Opcode::add, ir::Opcode::sub, ir::Opcode::mul, ir::Opcode::xor_};
          const ir::Value x = any(values), y = any(values);
          values.push_back(b.elementwise(kOps[pick(4)], {x, y}));
          break;
        }
        case 6: values.push_back(b.constant_int(i32, static_cast<int>(pick(5)), {8})); break;
        case 7:
        case 8: {
          std::vector<ir::Value> init;
          for (uint32_t c = 0; c < 1 + pick(3); ++c) init.push_back(any(values));
          const ir::Value zero = b.constant_int(i32, 0), count = b.constant_int(i32, static_cast<int>(pick(4))),
                          one = b.constant_int(i32, 1);
          const auto out = b.for_loop(zero, count, one, init, [&](ir::Value, const std::vector<ir::Value>& carries) {
            std::vector<ir::Value> inside = values;
            inside.insert(inside.end(), carries.begin(), carries.end());
            if (pick(3) == 0) return std::vector<ir::Value>(carries.rbegin(), carries.rend());
            return region(inside, depth - 1, carries.size());
          });
          values.insert(values.end(), out.begin(), out.end());
          break;
        }
        default: {
          const ir::Value yes = b.constant(boolean, pick(2));
          const auto out = b.if_else(
              yes, [&] { return region(values, depth - 1, 2); }, [&] { return region(values, depth - 1, 2); });
          values.insert(values.end(), out.begin(), out.end());
        }
      }
    }
    std::vector<ir::Value> out;
    for (size_t i = 0; i < results; ++i) out.push_back(any(values));
    if (keep)
      for (size_t i = outer; i < values.size(); ++i) store(dump, values[i]);
    return out;
  }
  RandomKernel(uint32_t seed, bool keep_values) : state(seed), keep(keep_values) {
    const ir::Type ref = ir::Type::ref(i32, {8}, ir::MemorySpace::any);
    for (const char* origin : {"in", "out", "dump"}) {
      ir::BlockMapping m;
      m.origin = origin;
      m.dtype = i32;
      m.array_shape = {8};
      m.what = ir::BlockMapping::Whole{};
      k.blocks.push_back(m);
    }
    k.num_inputs = 1;
    k.grid = {{2, "", false, false}};
    k.scratch = {ref};
    k.body = b.new_region({ref, ref, ref, ref});
    b.set_region(k.body);
    data = b.arg(k.body, 0);
    dump = b.arg(k.body, 2);
    scratch = b.arg(k.body, 3);
    const auto out = region({load(data)}, 3, 2);
    store(b.arg(k.body, 1), b.elementwise(ir::Opcode::add, {out[0], out[1]}));
    b.yield({});
  }
};
}  // namespace

TEST_CASE("interpreter: reusing buffers never changes a result") {
  const Array x({8}, Ints{3, -1, 4, 1, -5, 9, 2, 6});
  for (uint32_t seed = 0; seed < 400; ++seed) {
    INFO("seed ", seed);
    const RandomKernel plain(seed, false), kept(seed, true);
    REQUIRE(values<int32_t>(interpret(plain.k, {x}).at(0)) == values<int32_t>(interpret(kept.k, {x}).at(0)));
  }
}

}  // namespace interpreter_test
