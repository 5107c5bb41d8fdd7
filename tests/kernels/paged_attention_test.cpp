// Paged attention: pages in a random order against attention to the same keys one after another; parts joined against
// the whole.
#include "samples/kernels/paged_attention.h"

#include <algorithm>

#include "tests/kernels/reference_attention.h"
#include "tests/kernels/support.h"

namespace paged_attention_test {
using namespace tessera;

namespace {

struct Sizes {
  int64_t heads, kv_heads, head_dim, page_size, pages_each;
};

/// Sequences whose pages lie in a pool in a mixed order; what no sequence holds is NaN, and the table's other entries
/// are anything.
struct Paged {
  Array lengths, table, q, k_pages, v_pages, k, v;
  std::vector<std::pair<int64_t, int64_t>> counts;

  Paged(const Sizes& s, DType t, const std::vector<int64_t>& sequence_lengths, uint32_t seed) {
    const auto batch = static_cast<int64_t>(sequence_lengths.size());
    const int64_t used = batch * s.pages_each, pool = used + (used % 7 == 4 ? 4 : 3), most = s.pages_each * s.page_size,
                  row = s.kv_heads * s.head_dim;
    lengths = Array({batch}, i32);
    table = test::random_integers({batch, s.pages_each}, i32, seed, -1000, 1000);
    q = test::random({batch, s.heads, s.head_dim}, t, seed + 1, 2);
    k = test::random({batch, most, s.kv_heads, s.head_dim}, t, seed + 2, 2);
    v = test::random({batch, most, s.kv_heads, s.head_dim}, t, seed + 3);
    k_pages = v_pages = test::random({pool, s.page_size, s.kv_heads, s.head_dim}, t, seed, 0, NAN);
    int64_t page = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = sequence_lengths[static_cast<size_t>(b)];
      counts.emplace_back(1, n);
      lengths.data<int32_t>()[static_cast<size_t>(b)] = static_cast<int32_t>(n);
      for (int64_t i = 0; i < n; ++i) {
        if (i % s.page_size == 0) {
          page = (page + 7) % pool;  // 7 does not divide the pool's size, so every page is another
          table.data<int32_t>()[static_cast<size_t>(b * s.pages_each + i / s.page_size)] = static_cast<int32_t>(page);
        }
        for (int64_t e = 0; e < row; ++e) {
          k_pages.set_element_bits((page * s.page_size + i % s.page_size) * row + e,
                                   k.element_bits((b * most + i) * row + e));
          v_pages.set_element_bits((page * s.page_size + i % s.page_size) * row + e,
                                   v.element_bits((b * most + i) * row + e));
        }
      }
    }
  }
  std::vector<Array> arguments() const { return {lengths, table, q, k_pages, v_pages}; }
  test::Doubles expected(const Sizes& s, std::optional<double> soft_cap = {}) const {
    Array one({q.shape()[0], 1, s.heads, s.head_dim}, q.dtype());
    for (int64_t i = 0; i < q.size(); ++i) one.set_element_bits(i, q.element_bits(i));
    return test::attention_reference(one, k, v, 1 / std::sqrt(static_cast<double>(s.head_dim)), soft_cap,
                                     {.lengths = counts})
        .out;
  }
};

test::Check how(DType t) {
  return {.absolute = 2e-5 + (t == f32 ? 0 : std::ldexp(1.0, -float_format(t).mantissa - 1))};
}

}  // namespace

TEST_CASE("paged_attention: page sizes, heads, lengths and dtypes") {
  uint32_t seed = 1;
  for (const Sizes& s : {Sizes{1, 1, 8, 1, 5}, {4, 2, 16, 4, 9}, {8, 1, 33, 16, 6}, {6, 6, 24, 100, 1}})
    for (const DType t : {f32, f16, bf16}) {
      const int64_t most = s.page_size * s.pages_each;
      const Paged p(s, t, {most, 0, 1, most / 2, std::min<int64_t>(most, s.page_size + 1)}, seed += 4);
      test::check(kernels::paged_attention(p.lengths, p.table, p.q, p.k_pages, p.v_pages), p.arguments(),
                  {p.expected(s)}, how(t));
    }
}

TEST_CASE("paged_attention: lengths beyond the table and below zero, soft cap, an empty batch, no pages at all") {
  const Sizes s = {4, 2, 16, 4, 9};
  Paged p(s, f32, {36, 0}, 5);
  p.lengths.data<int32_t>()[0] = 1 << 30;
  p.lengths.data<int32_t>()[1] = -7;
  test::check(
      kernels::paged_attention(p.lengths, p.table, p.q, p.k_pages, p.v_pages, {.soft_cap = 2, .block_keys = 16}),
      p.arguments(), {p.expected(s, 2)}, how(f32));
  const Paged none(s, f32, {}, 5);
  test::check(kernels::paged_attention(none.lengths, none.table, none.q, none.k_pages, none.v_pages), none.arguments(),
              {{}});
  const Array table({2, 0}, i32);
  test::check(kernels::paged_attention(p.lengths, table, p.q, p.k_pages, p.v_pages),
              {p.lengths, table, p.q, p.k_pages, p.v_pages}, {test::Doubles(static_cast<size_t>(p.q.size()), 0)});
}

TEST_CASE("paged_attention_parts and merge_attention: the same as the whole") {
  const Sizes s = {6, 2, 16, 4, 20};
  for (const int64_t parts : {1, 3, 8})
    for (const DType t : {f32, bf16}) {
      const Paged p(s, t, {80, 0, 1, 37}, 9);
      const PallasCall call =
          kernels::paged_attention_parts(p.lengths, p.table, p.q, p.k_pages, p.v_pages, parts, {.block_keys = 16});
      const Arrays in_parts = interpret(call, p.arguments());
      test::check(call, p.arguments(), {test::doubles(in_parts[0]), test::doubles(in_parts[1])}, how(t));
      test::check(kernels::merge_attention(in_parts[0], in_parts[1], t), {in_parts[0], in_parts[1]}, {p.expected(s)},
                  how(t));
    }
}

TEST_CASE("paged attention: what does not fit") {
  using kernels::Type;
  const Type lengths({2}, i32), table({2, 5}, i32), q({2, 6, 16}, f32), pages({9, 4, 3, 16}, f32);
  const auto error = [](const Type& a, const Type& b, const Type& c, const Type& d,
                        const kernels::PagedAttentionParams& p = {}) {
    return test::error_of([&] { kernels::paged_attention(a, b, c, d, d, p, {}); });
  };
  CHECK(error(lengths, table, {{2, 6, 0}, f32}, {{9, 4, 3, 0}, f32}) ==
        "paged_attention: q has shape (2, 6, 0), which has no heads, or heads without elements");
  CHECK(error(lengths, table, {{2, 0, 16}, f32}, pages) ==
        "paged_attention: q has shape (2, 0, 16), which has no heads, or heads without elements");
  CHECK(error({{3}, i32}, table, q, pages) == "paged_attention: lengths has shape (3,), not (2,) = the batch of q");
  CHECK(error(table, table, q, pages) == "paged_attention: lengths has shape (2, 5), not (2,) = the batch of q");
  CHECK(error(lengths, {{2, 5}, f32}, q, pages) == "paged_attention: table is f32, not i32");
  CHECK(error(lengths, {{5}, i32}, q, pages) ==
        "paged_attention: table has shape (5,), not [batch, pages of a sequence]");
  CHECK(error(lengths, {{3, 5}, i32}, q, pages) == "paged_attention: q has a batch of 2 but table one of 3");
  CHECK(error(lengths, table, {{2, 1, 6, 16}, f32}, pages) ==
        "paged_attention: q has shape (2, 1, 6, 16), not [batch, heads, head_dim]");
  CHECK(error(lengths, table, q, {{4, 3, 16}, f32}) ==
        "paged_attention: k_pages has shape (4, 3, 16), not [pages, page_size, heads, head_dim]");
  CHECK(error(lengths, table, q, {{0, 4, 3, 16}, f32}) ==
        "paged_attention: k_pages has shape (0, 4, 3, 16), which holds no keys");
  CHECK(error(lengths, table, q, {{9, 4, 4, 16}, f32}) ==
        "paged_attention: q has 6 heads, which is no multiple of k's 4\n  note: each head of k and v serves as many "
        "heads of q, one after another");
  CHECK(error(lengths, table, q, pages, {.block_keys = -1}) == "paged_attention: blocks of -1 keys");
  CHECK(test::error_of([&] { kernels::paged_attention_parts(lengths, table, q, pages, pages, 0, {}, {}); }) ==
        "paged_attention_parts: 0 parts");
  CHECK(test::error_of([&] { kernels::merge_attention(Type({2, 3, 4, 8}, f32), Type({2, 3, 5}, f32), f32, {}); }) ==
        "merge_attention: log_sum_exps has shape (2, 3, 5), not (2, 3, 4) = parts, batch and heads of results");
  CHECK(test::error_of([&] { kernels::merge_attention(Type({0, 3, 4, 8}, f32), Type({0, 3, 4}, f32), f32, {}); }) ==
        "merge_attention: results has shape (0, 3, 4, 8), which holds no parts");
}

}  // namespace paged_attention_test
