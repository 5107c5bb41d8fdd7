// Flash attention against the definition: shapes, dtypes, masks, lengths, and what does not fit.
#include "samples/kernels/flash_attention.h"

#include "tests/kernels/reference_attention.h"
#include "tests/kernels/support.h"

namespace flash_attention_test {
using namespace tessera;

namespace {

struct Sizes {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
};

struct Inputs {
  Array q, k, v;
  Inputs(const Sizes& s, DType t, uint32_t seed)
      : q(test::random({s.batch, s.queries, s.heads, s.head_dim}, t, seed, 2)),
        k(test::random({s.batch, s.keys, s.kv_heads, s.head_dim}, t, seed + 1, 2)),
        v(test::random({s.batch, s.keys, s.kv_heads, s.head_dim}, t, seed + 2)) {}
};

double scale_of(const Sizes& s, const kernels::AttentionParams& p) {
  return p.scale.value_or(1 / std::sqrt(static_cast<double>(s.head_dim)));
}

// f32: roundings of a few hundred products and of 2^x. Narrower: each weight is rounded once before it meets v, which
// is below 1.
test::Check how(DType t, bool gpu) {
  return {.absolute = 2e-5 + (t == f32 ? 0 : std::ldexp(1.0, -float_format(t).mantissa - 1)), .gpu = gpu};
}

void check(const Sizes& s, DType t, const kernels::AttentionParams& p, uint32_t seed, bool gpu = true) {
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.head_dim);
  CAPTURE(name(t));
  CAPTURE(p.causal);
  const Inputs in(s, t, seed);
  const test::AttentionReference r =
      test::attention_reference(in.q, in.k, in.v, scale_of(s, p), p.soft_cap, {.causal = p.causal});
  std::vector<test::Doubles> expected = {r.out};
  if (p.log_sum_exp) expected.push_back(r.log_sum_exp);
  test::check(kernels::flash_attention(in.q, in.k, in.v, p), {in.q, in.k, in.v}, expected, how(t, gpu));
}

}  // namespace

TEST_CASE("flash_attention: shapes, dtypes and masks") {
  const Sizes sizes[] = {{1, 1, 1, 1, 1, 1},    {2, 5, 7, 2, 1, 33}, {1, 64, 64, 2, 2, 64}, {1, 70, 130, 2, 2, 16},
                         {1, 3, 200, 6, 2, 40}, {0, 4, 4, 2, 2, 8},  {1, 0, 4, 2, 2, 8},    {2, 3, 0, 2, 2, 8}};
  uint32_t seed = 1;
  for (const Sizes& s : sizes)
    for (const DType t : {f32, f16, bf16})
      for (const bool causal : {false, true})
        if (t != f16 || s.head_dim % 16 != 0)
          check(s, t, {.causal = causal, .log_sum_exp = t != f16}, seed += 3, s.queries * s.keys < 2000);
}

TEST_CASE("flash_attention: more queries than keys, scale, cap and block sizes") {
  check({1, 40, 9, 1, 1, 8}, f32, {.causal = true, .log_sum_exp = true}, 1);  // the first 31 queries see nothing
  check({1, 33, 50, 2, 1, 24}, f32, {.scale = 0.7, .soft_cap = 1.5}, 2);
  check({1, 33, 50, 2, 1, 24}, f32, {.causal = true, .block_queries = 8, .block_keys = 16}, 3);
  check({1, 40, 300, 1, 1, 8}, f32, {.causal = true, .block_queries = 128, .block_keys = 128}, 4, false);
  check({1, 20, 30, 2, 2, 16}, f32, {.scale = 60}, 5);  // logits of hundreds: the greatest decides, nothing overflows
}

TEST_CASE("flash_attention: lengths of each element of the batch; what lies behind them is never seen") {
  const Sizes s = {6, 21, 37, 4, 2, 16};
  const std::vector<std::pair<int64_t, int64_t>> lengths = {{21, 37}, {1, 1}, {0, 5}, {5, 0}, {20, 33}, {7, 30}};
  for (const DType t : {f32, bf16})
    for (const bool causal : {false, true}) {
      Inputs in(s, t, 11);
      const test::AttentionReference r =
          test::attention_reference(in.q, in.k, in.v, 0.25, {}, {.causal = causal, .lengths = lengths});
      Array counts({2, s.batch}, i32);
      const auto spoil = [&](Array& a, int64_t b, int64_t from) {
        const int64_t row = a.shape()[2] * a.shape()[3], rows = a.shape()[1];
        for (int64_t i = (b * rows + from) * row; i < (b + 1) * rows * row; ++i)
          a.set_element_bits(i, t == f32 ? 0x7fc00000 : 0x7fc0);
      };
      for (int64_t b = 0; b < s.batch; ++b) {
        const auto [nq, nk] = lengths[static_cast<size_t>(b)];
        // more than there are: all
        counts.data<int32_t>()[static_cast<size_t>(b)] = static_cast<int32_t>(b == 0 ? 1000 : nq);
        counts.data<int32_t>()[static_cast<size_t>(s.batch + b)] = static_cast<int32_t>(b == 3 ? -5 : nk);
        spoil(in.q, b, nq);
        spoil(in.k, b, nk);
        spoil(in.v, b, nk);
      }
      test::check(
          kernels::flash_attention(counts, in.q, in.k, in.v, {.causal = causal, .log_sum_exp = true, .block_keys = 16}),
          {counts, in.q, in.k, in.v}, {r.out, r.log_sum_exp}, how(t, true));
    }
}

TEST_CASE("flash_attention: lengths of an empty batch") {
  const Array counts({2, 0}, i32), q({0, 3, 2, 8}, f32);
  test::check(kernels::flash_attention(counts, q, q, q), {counts, q, q, q}, {{}});
}

TEST_CASE("flash_attention: what does not fit") {
  using kernels::Type;
  const Type q({2, 8, 6, 16}, f32), k({2, 9, 3, 16}, f32);
  const auto error = [](const Type& a, const Type& b, const Type& c, const kernels::AttentionParams& p = {}) {
    return test::error_of([&] { kernels::flash_attention(a, b, c, p, {}); });
  };
  CHECK(error({{8, 6, 16}, f32}, k, k) ==
        "flash_attention: q has shape (8, 6, 16), not [batch, queries, heads, head_dim]");
  CHECK(error(q, {{9, 3, 16}, f32}, k) ==
        "flash_attention: k has shape (9, 3, 16), not [batch, keys, heads, head_dim]");
  CHECK(error({{2, 8, 6, 16}, f64}, k, k) == "flash_attention: q is f64, not f32, f16 or bf16");
  CHECK(error(q, {{2, 9, 3, 16}, f16}, k) == "flash_attention: k is f16, not f32");
  CHECK(error(q, k, {{2, 9, 3, 8}, f32}) == "flash_attention: v has shape (2, 9, 3, 8), not (2, 9, 3, 16) = that of k");
  CHECK(error(q, {{3, 9, 3, 16}, f32}, k) == "flash_attention: q has a batch of 2 but k one of 3");
  CHECK(error(q, {{2, 9, 3, 12}, f32}, k) == "flash_attention: heads of k have 12 elements but those of q have 16");
  CHECK(error(q, {{2, 9, 4, 16}, f32}, {{2, 9, 4, 16}, f32}) ==
        "flash_attention: q has 6 heads, which is no multiple of k's 4\n  note: each head of k and v serves as many "
        "heads of q, one after another");
  CHECK(error({{2, 8, 6, 0}, f32}, {{2, 9, 3, 0}, f32}, {{2, 9, 3, 0}, f32}) ==
        "flash_attention: q has shape (2, 8, 6, 0), which has no heads, or heads without elements");
  CHECK(error({{2, 8, 0, 16}, f32}, k, k) ==
        "flash_attention: q has shape (2, 8, 0, 16), which has no heads, or heads without elements");
  CHECK(error(q, k, k, {.soft_cap = -1}) == "flash_attention: the soft cap -1.000000 is not positive");
  CHECK(error(q, k, k, {.block_keys = 0}) == "flash_attention: blocks of 64 queries and 0 keys");
  CHECK(test::error_of([&] { kernels::flash_attention(Type({2, 3}, i32), q, k, k, {}, {}); }) ==
        "flash_attention: lengths has shape (2, 3), not (2, 2) = queries and keys of each element of the batch");
  CHECK(test::error_of([&] { kernels::flash_attention(Type({2, 2}, f32), q, k, k, {}, {}); }) ==
        "flash_attention: lengths is f32, not i32");
}

}  // namespace flash_attention_test
