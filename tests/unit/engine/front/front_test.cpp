// The front end: that tracing records what was written, and that its meaning is right by the interpreter.
#include "engine/front.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/ir/text.h"

// This test has no runtime: it stands in its place, so that calls can be seen to arrive there.
namespace tessera {
static int device_calls = 0;
std::vector<Array> run_on_default_device(const ir::Kernel& kernel, const std::vector<Array>& arguments,
                                         const DimValues&) {
  ++device_calls;
  return interpret(kernel, arguments);
}
}  // namespace tessera

namespace front_test {
namespace ts = tessera;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
ts::Array ramp(ts::Shape shape, double start = 0, double step = 1) {
  std::vector<float> v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(start + step * static_cast<double>(i));
  return {std::move(shape), v};
}
ts::Array ints(ts::Shape shape, int start = 0, int step = 1) {
  std::vector<int32_t> v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = start + step * static_cast<int>(i);
  return {std::move(shape), v};
}
std::vector<double> list(const ts::Array& a) {
  std::vector<double> v;
  for (int64_t i = 0; i < a.size(); ++i) v.push_back(a.at(i));
  return v;
}
using List = std::vector<double>;

/// Runs f once on x, as a kernel with one program whose output is f's result.
template <class F>
ts::Array run(ts::Shape out, ts::DType dtype, const ts::Array& x, F f) {
  return ts::interpret(
      ts::pallas_call([=](Ref a, Ref o) { o[all] = f(a); }, {.out_shape = {{{out.begin(), out.end()}, dtype}}}), x);
}
}  // namespace

TEST_CASE("the tutorial's add kernel") {
  auto add = ts::pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; },
                             {.out_shape = {{{8}, ts::f32}}, .name = "add_vectors"});
  const ts::Array z = ts::interpret(add, ramp({8}), ramp({8}));
  CHECK(z.dtype() == ts::f32);
  CHECK(list(z) == List{0, 2, 4, 6, 8, 10, 12, 14});
}

TEST_CASE("the tutorial's iota, one program per element") {
  auto iota = ts::pallas_call(
      [](Ref o) {
        Value i = ts::program_id(0);
        o[i] = i;
      },
      {.out_shape = {{{8}, ts::i32}}, .grid = {8}});
  CHECK(list(ts::interpret(iota)) == List{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a matmul with a K axis and scratch, as the style guide writes it") {
  const int m = 4, n = 6, k = 8, bm = 2, bn = 3, bk = 4;
  auto matmul = ts::pallas_call(
      [=](Ref a, Ref b, Ref o, Ref acc) {
        ts::when(ts::program_id(2) == 0, [&] { acc[all] = ts::zeros({bm, bn}, ts::f32); });
        acc[all] += ts::dot(a[all], b[all]);
        ts::when(ts::program_id(2) == k / bk - 1, [&] { o[all] = ts::cast(acc[all], ts::f16); });
      },
      {.out_shape = {{{m, n}, ts::f16}},
       .grid = {m / bm, n / bn, k / bk},
       .in_specs = {{{bm, bk}, [](Value i, Value, Value p) { return ts::Indices{i, p}; }},
                    {{bk, bn}, [](Value, Value j, Value p) { return ts::Indices{p, j}; }}},
       .out_specs = {{{bm, bn}, [](Value i, Value j, Value) { return ts::Indices{i, j}; }}},
       .scratch_shapes = {ts::VMEM({bm, bn}, ts::f32)},
       .name = "matmul"});
  const ts::Array x = ramp({m, k}), y = ramp({k, n}, -10);
  const ts::Array z = ts::interpret(matmul, x, y);
  CHECK(z.dtype() == ts::f16);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double want = 0;
      for (int p = 0; p < k; ++p) want += x.at(i * k + p) * y.at(p * n + j);
      CHECK(z.at(i * n + j) == static_cast<float>(ts::half_t(static_cast<float>(want))));
    }
}

TEST_CASE("attention with a running maximum, as the style guide writes it") {
  const int64_t s = 8, d = 4, bq = 4, bk = 2;
  const float scale = 0.5f;
  auto attention = ts::pallas_call(
      [=](Ref q_ref, Ref k_ref, Ref v_ref, Ref o) {
        Value q = q_ref[all];  // [bq, d]
        Value acc0 = ts::zeros({bq, d}), m0 = ts::full({bq, 1}, -INFINITY), l0 = ts::zeros({bq, 1});
        auto [acc, m, l] =
            ts::fori_loop(0, s / bk, std::tuple{acc0, m0, l0}, [&](Value j, Value a, Value before, Value sum) {
              Value k = k_ref[{ds(j * bk, bk), all}];               // [bk, d]
              Value logits = ts::dot(q, ts::transpose(k)) * scale;  // [bq, bk]
              Value now = ts::maximum(before, ts::max(logits, {.axis = 1, .keepdims = true}));
              Value weights = ts::exp(logits - now), shrink = ts::exp(before - now);
              return std::tuple{a * shrink + ts::dot(weights, v_ref[{ds(j * bk, bk), all}]), now,
                                sum * shrink + ts::sum(weights, {.axis = 1, .keepdims = true})};
            });
        o[all] = acc / l;
      },
      {.out_shape = {{{s, d}, ts::f32}},
       .grid = {s / bq},
       .in_specs = {{{bq, d}, [](Value i) { return ts::Indices{i, 0}; }}, ts::no_block_spec, ts::no_block_spec},
       .out_specs = {{{bq, d}, [](Value i) { return ts::Indices{i, 0}; }}},
       .name = "attention"});
  const ts::Array q = ramp({s, d}, -1, 0.1), k = ramp({s, d}, 1, -0.07), v = ramp({s, d});
  const ts::Array got = ts::interpret(attention, q, k, v);
  for (int64_t i = 0; i < s; ++i) {
    List weights, out(static_cast<size_t>(d));
    double total = 0;
    for (int64_t j = 0; j < s; ++j) {
      double logit = 0;
      for (int64_t c = 0; c < d; ++c) logit += q.at(i * d + c) * k.at(j * d + c) * scale;
      weights.push_back(std::exp(logit));
      total += weights.back();
    }
    for (int64_t j = 0; j < s; ++j)
      for (int64_t c = 0; c < d; ++c)
        out[static_cast<size_t>(c)] += weights[static_cast<size_t>(j)] / total * v.at(j * d + c);
    for (int64_t c = 0; c < d; ++c)
      CHECK(got.at(i * d + c) == doctest::Approx(out[static_cast<size_t>(c)]).epsilon(1e-5));
  }
}

TEST_CASE("dtypes of two Values meet as jnp.promote_types says") {
  // From JAX 0.10.2 with jax_enable_x64: row a, column b, jnp.promote_types(a, b); - where it refuses.
  const char* table =
      "bool i4 i8 i16 i32 i64 u4 u8 u16 u32 u64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "i4 i4 - - - - - - - - - - - - - - -\n"
      "i8 - i8 i16 i32 i64 - i16 i32 i64 f64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "i16 - i16 i16 i32 i64 - i16 i32 i64 f64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "i32 - i32 i32 i32 i64 - i32 i32 i64 f64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "i64 - i64 i64 i64 i64 - i64 i64 i64 f64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "u4 - - - - - u4 - - - - - - - - - -\n"
      "u8 - i16 i16 i32 i64 - u8 u16 u32 u64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "u16 - i32 i32 i32 i64 - u16 u16 u32 u64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "u32 - i64 i64 i64 i64 - u32 u32 u32 u64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "u64 - f64 f64 f64 f64 - u64 u64 u64 u64 f8e4m3fn f8e5m2 f16 bf16 f32 f64\n"
      "f8e4m3fn - f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn - f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn - - - - -\n"
      "f8e5m2 - f8e5m2 f8e5m2 f8e5m2 f8e5m2 - f8e5m2 f8e5m2 f8e5m2 f8e5m2 - f8e5m2 - - - -\n"
      "f16 - f16 f16 f16 f16 - f16 f16 f16 f16 - - f16 f32 f32 f64\n"
      "bf16 - bf16 bf16 bf16 bf16 - bf16 bf16 bf16 bf16 - - f32 bf16 f32 f64\n"
      "f32 - f32 f32 f32 f32 - f32 f32 f32 f32 - - f32 f32 f32 f64\n"
      "f64 - f64 f64 f64 f64 - f64 f64 f64 f64 - - f64 f64 f64 f64\n";
  std::istringstream in(table);
  for (int a = 0; a < ts::kNumDTypes; ++a)
    for (int b = 0; b < ts::kNumDTypes; ++b) {
      std::string want;
      in >> want;
      const auto got = ts::promote_types(static_cast<ts::DType>(a), static_cast<ts::DType>(b));
      CHECK((got ? ts::name(*got) : "-") == want);
    }
}

TEST_CASE("numbers adopt the other side's dtype") {
  auto call = ts::pallas_call(
      [](Ref h, Ref i, Ref b, Ref o) {
        CHECK((h[all] + 1).dtype() == ts::f16);
        CHECK((2.5 * h[all]).dtype() == ts::f16);
        CHECK((i[all] + 1).dtype() == ts::u8);
        CHECK((i[all] * 0.5).dtype() == ts::f32);
        CHECK((b[all] + 1).dtype() == ts::i32);
        CHECK((b[all] * 1.0).dtype() == ts::f32);
        CHECK((i[all] + true).dtype() == ts::u8);
        CHECK((b[all] + b[all]).dtype() == ts::boolean);
        CHECK((h[all] < 1).dtype() == ts::boolean);
        CHECK(ts::exp(1).dtype() == ts::f32);
        CHECK(ts::exp(i[all]).dtype() == ts::f32);
        CHECK(ts::floor(i[all]).dtype() == ts::u8);
        CHECK(ts::sum(i[all]).dtype() == ts::u32);
        CHECK(ts::sum(b[all]).dtype() == ts::i32);
        CHECK(ts::sum(h[all]).dtype() == ts::f16);
        CHECK(ts::cumsum(i[all]).dtype() == ts::u8);
        CHECK(ts::cumsum(b[all]).dtype() == ts::i32);
        CHECK(ts::max(b[all]).dtype() == ts::boolean);
        CHECK(ts::argmax(b[all]).dtype() == ts::i32);
        CHECK(ts::full({2}, 3).dtype() == ts::i32);
        CHECK(ts::full({2}, 3, ts::bf16).dtype() == ts::bf16);
        CHECK(ts::where(b[all], 1, 2.0).dtype() == ts::f32);
        CHECK(ts::dot(h[all], h[all], {.preferred_element_type = ts::f32}).dtype() == ts::f32);
        CHECK(ts::dot(h[all], i[all]).dtype() == ts::f16);
        const Value f8 = ts::cast(h[all], ts::f8e4m3fn), i4 = ts::cast(i[all], ts::i4);
        const Value wide = ts::cast(i[all], ts::i32);
        CHECK(ts::dot(h[all], f8, {.preferred_element_type = ts::f32}).dtype() == ts::f32);
        CHECK(ts::dot(i4, f8, {.preferred_element_type = ts::f16}).dtype() == ts::f16);
        CHECK(ts::dot(i4, i[all], {.preferred_element_type = ts::i32}).dtype() == ts::i32);
        CHECK(ts::dot(wide, ts::cast(i[all], ts::u32), {.preferred_element_type = ts::u32}).dtype() == ts::u32);
        o[all] = h[all];
      },
      {.out_shape = {{{3}, ts::f16}}});
  call.trace({{{3}, ts::f16}, {{3}, ts::u8}, {{3}, ts::boolean}});
}

TEST_CASE("dot: operands of two dtypes are converted to the result's, unless one of them holds both") {
  const auto product = [](ts::DType l, ts::DType r, ts::DType result, double left, double right) {
    const auto call = ts::pallas_call(
        [&](Ref x, Ref y, Ref o) {
          const Value a = ts::cast(x[all], l), b = ts::cast(y[all], r);
          o[all] = ts::cast(ts::dot(a, b, {.preferred_element_type = result}), ts::f64);
        },
        {.out_shape = {{{}, ts::f64}}});
    return ts::interpret(call, ts::Array({3}, std::vector<double>(3, left)),
                         ts::Array({3}, std::vector<double>{right, 0, 0}))[0]
        .at(0);
  };
  // JAX 0.10.2's answers, one product each
  CHECK(product(ts::i4, ts::f32, ts::i32, 4, 0.5) == 0);
  CHECK(product(ts::i32, ts::bf16, ts::i32, 257, 1) == 257);
  CHECK(product(ts::i32, ts::f8e4m3fn, ts::i32, 1000, 2) == 2000);
  CHECK(product(ts::i32, ts::f32, ts::i32, 16777217, 1) == 16777217);
  CHECK(product(ts::boolean, ts::f32, ts::i32, 1, 1.75) == 1);
  CHECK(product(ts::bf16, ts::f32, ts::i32, 1.5, 2.5) == 2);
  CHECK(product(ts::i32, ts::f16, ts::bf16, 100000, 1) == 99840);
  CHECK(product(ts::u16, ts::f16, ts::bf16, 65535, 1) == 65536);
  CHECK(product(ts::i16, ts::f8e4m3fn, ts::f8e5m2, 1000, 1) == 1024);
  CHECK(product(ts::i4, ts::u4, ts::f32, 4, 3) == 12);
  CHECK(product(ts::i4, ts::i8, ts::bf16, 4, 100) == 400);
  CHECK(product(ts::i4, ts::i8, ts::i8, 7, 100) == -68);
}

TEST_CASE("products of i64 and u64 as integers keep all bits, although the two promote to f64") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref y, Ref o) { o[all] = ts::dot(x[all], y[all], {.preferred_element_type = ts::i64}); },
      {.out_shape = {{{2}, ts::i64}}});
  const int64_t large = (int64_t{1} << 62) + 1;
  const ts::Arrays r = ts::interpret(call, ts::Array({2, 2}, std::vector<int64_t>{large, 3, -5, 7}),
                                     ts::Array({2}, std::vector<uint64_t>{3, (uint64_t{1} << 63) + 2}));
  const auto sums = r[0].data<int64_t>();
  CHECK(sums[0] == 4611686018427387913);  // 3 (2^62 + 1) + 3 (2^63 + 2) modulo 2^64
  CHECK(sums[1] == 9223372036854775807);  // -15 + 7 (2^63 + 2)
}

TEST_CASE("operators") {
  const ts::Array x = ints({5}, -2);
  const auto check = [&](auto f, List want) {
    CHECK(list(run({5}, ts::i32, x, [&](Ref a) { return ts::cast(f(Value(a[all])), ts::i32); })) == want);
  };
  check([](Value v) { return v + 1; }, {-1, 0, 1, 2, 3});
  check([](Value v) { return 1 - v; }, {3, 2, 1, 0, -1});
  check([](Value v) { return v * v; }, {4, 1, 0, 1, 4});
  check([](Value v) { return v / 2; }, {-1, 0, 0, 0, 1});
  check([](Value v) { return v % 2; }, {0, -1, 0, 1, 0});
  check([](Value v) { return -v; }, {2, 1, 0, -1, -2});
  check([](Value v) { return v == 1; }, {0, 0, 0, 1, 0});
  check([](Value v) { return v != 1; }, {1, 1, 1, 0, 1});
  check([](Value v) { return v < 0; }, {1, 1, 0, 0, 0});
  check([](Value v) { return v <= 0; }, {1, 1, 1, 0, 0});
  check([](Value v) { return 0 < v; }, {0, 0, 0, 1, 1});
  check([](Value v) { return v >= 0; }, {0, 0, 1, 1, 1});
  check([](Value v) { return v & 1; }, {0, 1, 0, 1, 0});
  check([](Value v) { return v | 1; }, {-1, -1, 1, 1, 3});
  check([](Value v) { return v ^ 1; }, {-1, -2, 1, 0, 3});
  check([](Value v) { return ~v; }, {1, 0, -1, -2, -3});
  check([](Value v) { return v << 1; }, {-4, -2, 0, 2, 4});
  check([](Value v) { return v >> 1; }, {-1, -1, 0, 0, 1});
  check([](Value v) { return ts::cast(v, ts::u32) >> 31; }, {1, 1, 0, 0, 0});
  check([](Value v) { return v && v < 2; }, {1, 1, 0, 1, 0});
  check([](Value v) { return v < 0 || v > 1; }, {1, 1, 0, 0, 1});
  check([](Value v) { return !v; }, {0, 0, 1, 0, 0});
  check([](Value v) { return v && true; }, {1, 1, 0, 1, 1});
  check(
      [](Value v) {
        v += 1;
        v *= 2;
        v -= 1;
        v /= 2;
        v %= 3;
        v <<= 2;
        v >>= 1;
        v |= 1;
        v &= 7;
        v ^= 2;
        return v;
      },
      {5, 3, 3, 1, 7});
}

TEST_CASE("functions") {
  const ts::Array x = ramp({4}, -1, 0.75);  // -1, -0.25, 0.5, 1.25
  const auto check = [&](auto f, auto want) {
    const ts::Array got = run({4}, ts::f32, x, [&](Ref a) { return f(Value(a[all])); });
    for (int i = 0; i < 4; ++i) CHECK(got.at(i) == doctest::Approx(want(x.at(i))).epsilon(1e-6));
  };
  check([](Value v) { return ts::exp(v); }, [](double d) { return std::exp(d); });
  check([](Value v) { return ts::exp2(v); }, [](double d) { return std::exp2(d); });
  check([](Value v) { return ts::log(v + 2); }, [](double d) { return std::log(d + 2); });
  check([](Value v) { return ts::log2(v + 2); }, [](double d) { return std::log2(d + 2); });
  check([](Value v) { return ts::sqrt(v + 2); }, [](double d) { return std::sqrt(d + 2); });
  check([](Value v) { return ts::rsqrt(v + 2); }, [](double d) { return 1 / std::sqrt(d + 2); });
  check([](Value v) { return ts::tanh(v); }, [](double d) { return std::tanh(d); });
  check([](Value v) { return ts::sin(v); }, [](double d) { return std::sin(d); });
  check([](Value v) { return ts::cos(v); }, [](double d) { return std::cos(d); });
  check([](Value v) { return ts::erf(v); }, [](double d) { return std::erf(d); });
  check([](Value v) { return ts::logistic(v); }, [](double d) { return 1 / (1 + std::exp(-d)); });
  check([](Value v) { return ts::pow(v + 2, 1.5); }, [](double d) { return std::pow(d + 2, 1.5); });
  check([](Value v) { return ts::pow(v, 3); }, [](double d) { return d * d * d; });
  check([](Value v) { return ts::pow(v, 0); }, [](double) { return 1.0; });
  check([](Value v) { return ts::pow(v, -2); }, [](double d) { return 1 / (d * d); });
  check([](Value v) { return ts::abs(v); }, [](double d) { return std::fabs(d); });
  check([](Value v) { return ts::sign(v); }, [](double d) { return d < 0 ? -1.0 : 1.0; });
  check([](Value v) { return ts::floor(v); }, [](double d) { return std::floor(d); });
  check([](Value v) { return ts::ceil(v); }, [](double d) { return std::ceil(d); });
  check([](Value v) { return ts::round(v); }, [](double d) { return std::round(d); });
  check([](Value v) { return ts::round_even(v); }, [](double d) { return std::nearbyint(d); });
  check([](Value v) { return ts::maximum(v, 0); }, [](double d) { return std::fmax(d, 0); });
  check([](Value v) { return ts::minimum(0, v); }, [](double d) { return std::fmin(d, 0); });
  check([](Value v) { return ts::clamp(-0.5, v, 1); }, [](double d) { return std::fmin(std::fmax(d, -0.5), 1); });
  check([](Value v) { return ts::where(v > 0, v, 7); }, [](double d) { return d > 0 ? d : 7; });
  check([](Value v) { return ts::bitcast(ts::bitcast(v, ts::i32) & 0x7fffffff, ts::f32); },
        [](double d) { return std::fabs(d); });
  check([](Value v) { return ts::cast(ts::is_finite(v), ts::f32); }, [](double) { return 1.0; });
}

TEST_CASE("shapes, products and reductions") {
  const ts::Array x = ramp({2, 3});
  const auto check = [&](ts::Shape shape, ts::DType t, auto f, List want) {
    CHECK(list(run(shape, t, x, [&](Ref a) { return f(Value(a[all])); })) == want);
  };
  check({3, 2}, ts::f32, [](Value v) { return ts::transpose(v); }, {0, 3, 1, 4, 2, 5});
  check({3, 2}, ts::f32, [](Value v) { return ts::transpose(v, {1, -2}); }, {0, 3, 1, 4, 2, 5});
  check({3, 2}, ts::f32, [](Value v) { return ts::reshape(v, {-1, 2}); }, {0, 1, 2, 3, 4, 5});
  check({2, 3}, ts::f32, [](Value v) { return v + ts::reshape(ts::sum(v, {.axis = 1}), {2, 1}); },
        {3, 4, 5, 15, 16, 17});
  check({2, 3}, ts::f32, [](Value v) { return ts::broadcast_to(ts::sum(v, {.axis = -2}), {2, 3}); },
        {3, 5, 7, 3, 5, 7});
  check({1, 2}, ts::f32, [](Value v) { return ts::slice(v, {1, 0}, {2, 3}, {1, 2}); }, {3, 5});
  check({2, 4}, ts::f32, [](Value v) { return ts::concatenate({v, ts::full({2, 1}, 9.0)}, -1); },
        {0, 1, 2, 9, 3, 4, 5, 9});
  check({2, 2}, ts::f32, [](Value v) { return ts::dot(v, ts::transpose(v)); }, {5, 14, 14, 50});
  check({2}, ts::f32, [](Value v) { return ts::dot(v, ts::iota(ts::f32, {3})); }, {5, 14});
  check({3}, ts::f32, [](Value v) { return ts::dot(ts::ones({2}), v); }, {3, 5, 7});
  check({2}, ts::f32,
        [](Value v) {
          return ts::dot(v, v, {.lhs_contract = {1}, .rhs_contract = {-1}, .lhs_batch = {0}, .rhs_batch = {0}});
        },
        {5, 50});
  check({2, 2, 1}, ts::f32,
        [](Value v) { return ts::dot(ts::reshape(ts::concatenate({v, v}), {2, 2, 3}), ts::ones({3, 1})); },
        {3, 12, 3, 12});
  check({}, ts::f32, [](Value v) { return ts::sum(v); }, {15});
  check({1, 1}, ts::f32, [](Value v) { return ts::prod(v + 1, {.keepdims = true}); }, {720});
  check({2, 1}, ts::f32, [](Value v) { return ts::max(v, {.axis = 1, .keepdims = true}); }, {2, 5});
  check({1, 1}, ts::f32, [](Value v) { return ts::min(v, {.axis = {0, 1}, .keepdims = true}); }, {0});
  check({2}, ts::boolean, [](Value v) { return ts::reduce_and(v > 0, {.axis = 1}); }, {0, 1});
  check({2}, ts::boolean, [](Value v) { return ts::reduce_or(v > 4, {.axis = 1}); }, {0, 1});
  check({3}, ts::i32, [](Value v) { return ts::argmax(v, {.axis = 0}); }, {1, 1, 1});
  check({1, 1}, ts::i32, [](Value v) { return ts::argmin(-v, {.keepdims = true}); }, {5});
  check({2, 3}, ts::f32, [](Value v) { return ts::cumsum(v, {.axis = 1}); }, {0, 1, 3, 3, 7, 12});
  check({2, 3}, ts::f32, [](Value v) { return ts::cumsum(v, {.axis = 0, .reverse = true}); }, {3, 5, 7, 3, 4, 5});
  check({2, 3}, ts::i32, [](Value) { return ts::iota(ts::i32, {2, 3}, 1); }, {0, 1, 2, 0, 1, 2});
}

TEST_CASE("indexing") {
  const ts::Array x = ramp({4, 3});
  const auto check = [&](ts::Shape shape, auto f, List want) {
    CHECK(list(run(shape, ts::f32, x, [&](Ref a) { return f(a); })) == want);
  };
  check({3}, [](Ref a) -> Value { return a[1]; }, {3, 4, 5});
  check({3}, [](Ref a) -> Value { return a[-1]; }, {9, 10, 11});
  check({}, [](Ref a) -> Value { return a[{1, -1}]; }, {5});
  check({4}, [](Ref a) -> Value { return a[{all, 0}]; }, {0, 3, 6, 9});
  check({2, 3}, [](Ref a) -> Value { return a[ds(1, 2)]; }, {3, 4, 5, 6, 7, 8});
  check({2, 1}, [](Ref a) -> Value { return a[{ds(0, 2, 3), ds(2, 1)}]; }, {2, 11});
  check({2, 2}, [](Ref a) -> Value { return a[{ts::range(0, 4, 2), ts::range(-2, {})}]; }, {1, 2, 7, 8});
  check({1, 3}, [](Ref a) -> Value { return a[ts::range(3, 100)]; }, {9, 10, 11});
  check({0, 3}, [](Ref a) -> Value { return a[ts::range(3, 1)]; }, {});
  check({2, 3},
        [](Ref a) -> Value {
          Value i = ts::cast(a[{0, 2}], ts::i64);
          return a[ds(i + 1, 2)];
        },
        {6, 7, 8, 9, 10, 11});  // clamped
  check({3},
        [](Ref a) -> Value {
          Value i = ts::cast(a[{0, 1}], ts::u8);
          return a[i];
        },
        {3, 4, 5});
  check({}, [](Ref a) -> Value { return a[{ts::cast(a[{0, 1}], ts::i32), ts::cast(a[{0, 2}], ts::i32)}]; }, {5});
  check({6}, [](Ref a) { return ts::load(a, {ds(0, 6), 0}, {.mask = ts::iota(ts::i32, {6}) < 4, .other = -1}); },
        {0, 3, 6, 9, -1, -1});
}

TEST_CASE("stores, updates and swaps") {
  auto call = ts::pallas_call(
      [](Ref x, Ref o, Ref p, Ref acc) {
        o[all] = 0;
        o[{0, all}] = x[{1, all}];
        o[{1, 0}] = 5;
        o[{1, 0}] += 2;
        o[{1, 0}] *= x[{0, 1}];
        ts::store(o, {1, all}, 9, {.mask = ts::iota(ts::i32, {3}) == 2});
        acc[all] = x[all];
        p[all] = ts::swap(acc, 0, ts::full({3}, 4.0));
        acc[{0, 0}] -= 1;
        p[0] /= 1;
        p[2] = acc[{0, 0}];
      },
      {.out_shape = {{{2, 3}, ts::f32}, {{3}, ts::f32}}, .scratch_shapes = {ts::VMEM({2, 3}, ts::f32)}});
  auto [o, p] = ts::unpack<2>(ts::interpret(call, ramp({2, 3}, 1)));
  CHECK(list(o) == List{4, 5, 6, 14, 0, 9});
  CHECK(list(p) == List{1, 2, 3});
}

TEST_CASE("fori_loop with several carries, one, and none") {
  const ts::Array x = ramp({4}, 1);
  CHECK(list(run({2}, ts::f32, x, [](Ref a) {
          auto [s, q] = ts::fori_loop(0, 4, std::tuple{ts::full({}, 0.0), 1},
                                      [&](Value i, Value total, Value n) { return std::tuple{total + a[i], n * 2}; });
          return ts::concatenate({ts::reshape(s, {1}), ts::cast(ts::reshape(q, {1}), ts::f32)});
        })) == List{10, 16});
  CHECK(list(run({}, ts::f32, x, [](Ref a) {
          return ts::fori_loop(1, 3, 0.0f, [&](Value i, Value t) { return t * 10 + a[i]; });
        })) == List{23});
  CHECK(list(run({}, ts::f32, x, [](Ref a) {
          auto [t] = ts::fori_loop(0, 2, std::tuple{0.0f}, [&](Value i, Value s) { return std::tuple{s + a[i]}; });
          return t;
        })) == List{3});
  auto call = ts::pallas_call([](Ref a, Ref o) { ts::fori_loop(0, 4, [&](Value i) { o[i] = a[3 - i]; }); },
                              {.out_shape = {{{4}, ts::f32}}});
  CHECK(list(ts::interpret(call, x)) == List{4, 3, 2, 1});
}

TEST_CASE("while_loop, cond, switch_ and when") {
  const ts::Array x = ramp({4}, 1);
  CHECK(list(run({}, ts::f32, x, [](Ref a) {
          auto [i, s] = ts::while_loop(
              std::tuple{0, 0.0f}, [&](Value, Value t) { return t < 5; },
              [&](Value k, Value t) { return std::tuple{k + 1, t + a[k]}; });
          return s + ts::cast(i, ts::f32) * 100;
        })) == List{306});
  CHECK(list(run({}, ts::f32, x, [](Ref a) {
          return ts::while_loop(1.0f, [](Value t) { return t < 50; }, [&](Value t) { return t * a[2]; });
        })) == List{81});
  CHECK(list(run({4}, ts::f32, x, [](Ref a) {
          return ts::cond(a[0] > 2, [&] { return a[all] * 2; }, [&] { return Value(a[all]); });
        })) == List{1, 2, 3, 4});
  CHECK(list(run({}, ts::f32, x, [](Ref a) {
          return ts::cond(ts::sum(a[all]) == 10, [&] { return 3; }, [&] { return Value(a[0]); });
        })) == List{3});
  for (int index : {-3, 0, 1, 7})
    CHECK(list(run({}, ts::i32, x,
                   [=](Ref) {
                     return ts::switch_(ts::full({}, index), [] { return 10; }, [] { return 11; }, [] { return 12; });
                   })) == List{index < 0   ? 10.0
                               : index > 2 ? 12.0
                                           : 10.0 + index});
  auto call = ts::pallas_call(
      [](Ref o) {
        o[all] = 0;
        ts::when(true, [&] { o[0] = 1; });
        ts::when(ts::program_id(0) < 0, [&] { o[1] = 1; });
      },
      {.out_shape = {{{2}, ts::i32}}, .grid = 1});
  CHECK(list(ts::interpret(call)) == List{1, 0});
}

TEST_CASE("num_programs, named axes, smem, squeezed dims and blocks over the edge") {
  auto call =
      ts::pallas_call([](Ref x, Ref k, Ref o) { o[all] = x[all] * k[0] + ts::cast(ts::num_programs(1), ts::f32); },
                      {.out_shape = {{{2, 5}, ts::f32}},
                       .grid = {{"row", 2}, {"column", 3}},
                       .in_specs = {{{ts::squeezed, 2}, [](Value i, Value j) { return ts::Indices{i, j}; }},
                                    {.block_shape = {1}, .memory_space = ts::MemorySpace::smem}},
                       .out_specs = {{{std::nullopt, 2}, [](Value i, Value j) { return ts::Indices{i, j}; }}}});
  CHECK(list(ts::interpret(call, ramp({2, 5}), ramp({1}, 10))) == List{3, 13, 23, 33, 43, 53, 63, 73, 83, 93});
}

TEST_CASE("run-time sizes: one traced kernel serves every size") {
  const ts::Extent n = ts::dim("n");
  auto scale =
      ts::pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2; }, {.out_shape = {{{n}, ts::f32}},
                                                                  .grid = ts::cdiv(n, 4),
                                                                  .in_specs = {{{4}, [](Value i) { return i; }}},
                                                                  .out_specs = {{{4}, [](Value i) { return i; }}},
                                                                  .in_shape = {{{n}, ts::f32}}});
  const ts::ir::Kernel* first = &scale.trace();
  for (int size : {1, 4, 9}) {
    const ts::Array x = ramp({size}), z = ts::interpret(scale, x);
    CHECK(z.shape() == ts::Shape{size});
    CHECK(z.at(size - 1) == 2.0 * (size - 1));
    CHECK(&scale.trace_for({x}) == first);
  }
}

TEST_CASE("a kernel is traced once per input shapes and dtypes") {
  int traces = 0;
  auto call = ts::pallas_call(
      [&](Ref x, Ref o) {
        ++traces;
        o[all] = ts::cast(ts::sum(x[all]), ts::f32);
      },
      {.out_shape = {{{}, ts::f32}}, .interpret = true});
  CHECK(list(call(ramp({3}))) == List{3});
  CHECK(list(call(ramp({3}, 1))) == List{6});
  CHECK(traces == 1);
  CHECK(list(call(ints({3}))) == List{3});
  CHECK(list(call(ramp({4}))) == List{6});
  CHECK(traces == 3);
  CHECK(ts::device_calls == 0);
  auto add = ts::pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{2}, ts::f32}}});
  const ts::Array z = add(ramp({2})), w = add(add(ramp({2})));
  CHECK(list(z) == List{1, 2});
  CHECK(list(w) == List{2, 3});
  CHECK(ts::device_calls == 3);
}

TEST_CASE("arrays without elements") {
  auto whole = ts::pallas_call(
      [](Ref x, Ref o) { o[all] = x[all] + 1; },
      {.out_shape = {{{0, 3}, ts::f32}}, .in_specs = {ts::BlockSpec{}}, .out_specs = {ts::BlockSpec{}}});
  CHECK(ts::interpret(whole, ts::Array({0, 3}, ts::f32))[0].shape() == ts::Shape{0, 3});
  auto total = ts::pallas_call([](Ref x, Ref o) { o[all] = ts::sum(x[all]); }, {.out_shape = {{{}, ts::f32}}});
  CHECK(list(ts::interpret(total, ts::Array({0, 3}, ts::f32))) == List{0});
  auto none = ts::pallas_call([](Ref x, Ref o) { o[all] = x[all]; }, {.out_shape = {{{4}, ts::f32}},
                                                                      .grid = {0},
                                                                      .in_specs = {{{2}, [](Value i) { return i; }}},
                                                                      .out_specs = {{{2}, [](Value i) { return i; }}}});
  CHECK(std::isnan(ts::interpret(none, ramp({4}))[0].at(0)));
}

TEST_CASE("a kernel prints as its text form") {
  auto call =
      ts::pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{2}, ts::f32}}, .name = "increment"});
  std::ostringstream out;
  out << call.trace({{{2}, ts::f32}});
  CHECK(out.str() == ts::ir::print(call.trace({{{2}, ts::f32}})));
  CHECK(out.str().find("increment") != std::string::npos);
}

// What must not compile. (The sentences of the static_asserts are seen only in a compiler's output.)
static_assert(!std::is_constructible_v<bool, Value>, "if (v < 3)");
static_assert(!std::is_copy_constructible_v<ts::RefItem> && !std::is_move_constructible_v<ts::RefItem>);
static_assert(std::is_convertible_v<ts::RefItem, Value> && !std::is_convertible_v<ts::RefItem&, Value>,
              "auto v = x[all]; v + 1");
static_assert(!std::is_assignable_v<ts::RefItem&, Value> && std::is_assignable_v<ts::RefItem, Value>);
static_assert(!std::is_convertible_v<double, ts::IndexItem> && !std::is_convertible_v<bool, ts::IndexItem>);

}  // namespace front_test
