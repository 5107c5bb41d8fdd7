// Grouped matmul against its definition: groups that straddle tiles, are empty, do not fill the rows, or are more than
// fit.
#include "samples/kernels/grouped_matmul.h"

#include "tests/kernels/support.h"

namespace grouped_matmul_test {
using namespace tessera;

namespace {

test::Doubles reference(const Array& sizes, const Array& lhs, const Array& rhs, bool transposed) {
  const int64_t m = lhs.shape()[0], k = lhs.shape()[1], n = rhs.shape()[transposed ? 1 : 2];
  test::Doubles out(static_cast<size_t>(m * n), 0);
  int64_t row = 0;
  for (int64_t g = 0; g < rhs.shape()[0]; ++g)
    for (int64_t i = 0; i < static_cast<int64_t>(sizes.at(g)) && row < m; ++i, ++row)
      for (int64_t c = 0; c < n; ++c)
        for (int64_t j = 0; j < k; ++j)
          out[static_cast<size_t>(row * n + c)] +=
              lhs.at(row * k + j) * rhs.at(transposed ? (g * n + c) * k + j : (g * k + j) * n + c);
  return out;
}

void check(const std::vector<int32_t>& sizes, int64_t m, int64_t k, int64_t n, DType t,
           const kernels::GroupedMatmulParams& params, uint32_t seed, bool gpu = true) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(name(t));
  const auto groups = static_cast<int64_t>(sizes.size());
  const Array s = test::integers(sizes), lhs = test::random({m, k}, t, seed),
              rhs = test::random(params.transpose_rhs ? Shape{groups, n, k} : Shape{groups, k, n}, t, seed + 1);
  test::check(kernels::grouped_matmul(s, lhs, rhs, params), {s, lhs, rhs},
              {reference(s, lhs, rhs, params.transpose_rhs)}, {.absolute = 1e-5, .gpu = gpu, .general = k < 8});
}

}  // namespace

TEST_CASE("grouped_matmul: groups, shapes and dtypes") {
  const std::vector<std::vector<int32_t>> groups = {{30},       {10, 20}, {0, 7, 0, 0, 23, 0}, {1, 1, 1, 1, 1},
                                                    {16, 8, 6}, {0, 0},   {29, 0, 500, 3},     {-4, 12, -1, 6}};
  uint32_t seed = 1;
  for (const auto& sizes : groups) {
    seed += 2;
    check(sizes, 30, 19, 21, seed % 4 == 1 ? f32 : bf16,
          {.transpose_rhs = seed % 8 < 4, .block_rows = 8, .block_columns = 16}, seed);
  }
  check(groups[2], 30, 5, 33, f32, {.transpose_rhs = true}, 400);
  check({40, 1, 90}, 131, 33, 70, f16, {}, 500, false);
  check({40, 1, 90}, 131, 33, 70, f16, {.out_dtype = f32}, 500, false);
  check({3, 4}, 0, 8, 8, f32, {}, 600);
  check({3, 4}, 7, 8, 0, f32, {}, 600);
  check({1, 0}, 1, 1, 1, f32, {}, 600);
  check(std::vector<int32_t>(300, 1), 200, 4, 8, f32, {.block_rows = 16}, 700);  // more groups than rows
  check({2147483647, 2147483647, 5}, 20, 4, 8, f32, {}, 800);
}

TEST_CASE("grouped_matmul: a group's numbers stay with its rows") {
  const Array sizes = test::integers({5, 3}), lhs = test::random({8, 4}, f32, 1);
  Array rhs = test::random({2, 4, 6}, f32, 2);
  for (int64_t i = 24; i < 48; ++i) rhs.data<float>()[static_cast<size_t>(i)] = NAN;
  const Array out = interpret(kernels::grouped_matmul(sizes, lhs, rhs), sizes, lhs, rhs);
  for (int64_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out.at(i)) == (i >= 30));
}

TEST_CASE("grouped_matmul: what does not fit") {
  using kernels::Type;
  const Type sizes({3}, i32), lhs({8, 4}, f32), rhs({3, 4, 6}, f32);
  const auto error = [](const Type& a, const Type& b, const Type& c, const kernels::GroupedMatmulParams& p = {}) {
    return test::error_of([&] { kernels::grouped_matmul(a, b, c, p, {}); });
  };
  CHECK(error({{4}, i32}, lhs, rhs) == "grouped_matmul: group_sizes has shape (4,), not (3,) = the groups of rhs");
  CHECK(error({{3}, i64}, lhs, rhs) == "grouped_matmul: group_sizes is i64, not i32");
  CHECK(error(sizes, {{8, 5}, f32}, rhs) == "grouped_matmul: lhs has 5 columns but matrices of rhs have 4 rows");
  CHECK(error(sizes, lhs, rhs, {.transpose_rhs = true}) ==
        "grouped_matmul: lhs has 4 columns but matrices of rhs have 6 rows");
  CHECK(error(sizes, {{8}, f32}, rhs) == "grouped_matmul: lhs has shape (8,), not [rows, k]");
  CHECK(error(sizes, lhs, {{4, 6}, f32}) == "grouped_matmul: rhs has shape (4, 6), not [groups, k, columns]");
  CHECK(error(sizes, lhs, {{3, 4, 6}, f16}) == "grouped_matmul: rhs is f16, not f32");
  CHECK(error(sizes, {{8, 0}, f32}, {{3, 0, 6}, f32}) ==
        "grouped_matmul: lhs has shape (8, 0): there is nothing to multiply");
  CHECK(error({{0}, i32}, lhs, {{0, 4, 6}, f32}) == "grouped_matmul: there are no groups");
  CHECK(error(sizes, lhs, rhs, {.out_dtype = i32}) == "grouped_matmul: the result is i32, not f32, f16 or bf16");
  CHECK(error(sizes, lhs, rhs, {.block_rows = 0}) == "grouped_matmul: blocks of 0 rows and 64 columns");
}

}  // namespace grouped_matmul_test
