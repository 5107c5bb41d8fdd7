// estimate_cost: against what JAX's estimate_cost says of the same functions, and what grids, index maps and control
// flow add to it.
#include "engine/passes/cost.h"

#include <doctest/doctest.h>

#include <fstream>
#include <map>

#include "engine/front.h"
#include "engine/ir/text.h"

namespace cost_test {

namespace ts = tessera;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::CostEstimate cost(const std::string& text) { return ts::estimate_cost(ts::ir::parse(text, "k.tir")); }

template <class F>
ts::CostEstimate cost_of(F kernel, std::vector<ts::ShapeDtype> inputs, ts::ShapeDtype output) {
  return ts::estimate_cost(ts::pallas_call(kernel, {.out_shape = {std::move(output)}}).trace(inputs));
}
std::map<std::string, ts::CostEstimate> kernels() {
  std::map<std::string, ts::CostEstimate> m;
  const ts::ShapeDtype v{{1000}, ts::f32}, b{{7, 33}, ts::bf16}, i{{16, 16}, ts::i32}, w{{8, 128}, ts::f32},
      r{{64}, ts::f32}, t{{32, 8}, ts::f32};
  m["add"] = cost_of([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; }, {w, w}, w);
  m["polynomial"] = cost_of(
      [](Ref x, Ref o) {
        const Value a = x[all];
        o[all] = ((a * a) + a) * a - a;
      },
      {v}, v);
  m["clamped"] = cost_of(
      [](Ref x, Ref y, Ref o) {
        const Value a = x[all], c = y[all];
        o[all] = ts::maximum(ts::minimum(a, c), -a) / c;
      },
      {b, b}, b);
  m["rounded"] = cost_of(
      [](Ref x, Ref o) {
        const Value a = x[all];
        o[all] = ts::floor(a) + ts::ceil(a) + ts::round_even(a);
      },
      {r}, r);
  m["bits"] = cost_of(
      [](Ref x, Ref y, Ref o) {
        const Value a = x[all], c = y[all];
        o[all] = (a & c) | (a ^ ~c);
      },
      {i, i}, i);
  m["transcendentals"] = cost_of(
      [](Ref x, Ref o) {
        const Value a = x[all];
        o[all] = ts::exp(a) * ts::sin(a) + ts::sqrt(a) - ts::logistic(a) * ts::tanh(a);
      },
      {t}, t);
  m["matmul"] = cost_of([](Ref x, Ref y, Ref o) { o[all] = ts::dot(x[all], y[all]); },
                        {{{64, 32}, ts::f32}, {{32, 48}, ts::f32}}, {{64, 48}, ts::f32});
  m["matmul_activation"] = cost_of([](Ref x, Ref y, Ref o) { o[all] = ts::exp(ts::dot(x[all], y[all]) * 2); },
                                   {{{64, 32}, ts::f16}, {{32, 48}, ts::f16}}, {{64, 48}, ts::f16});
  m["batched"] = cost(R"(tir 1
kernel @batched
in f32[4, 8, 16] whole
in f32[4, 16, 24] whole
out f32[4, 8, 24] whole
body (%x, %y, %o) {
  %a = load %x[0:4, 0:8, 0:16]
  %b = load %y[0:4, 0:16, 0:24]
  %c = dot %a, %b lhs_contract [2] rhs_contract [1] lhs_batch [0] rhs_batch [0] : f32[4, 8, 24]
  store %o[0:4, 0:8, 0:24], %c
}
)");
  return m;
}
}  // namespace

TEST_CASE("cost: as JAX estimates it") {
  std::ifstream in("tests/data/cost_estimates.txt");
  std::map<std::string, ts::CostEstimate> ours = kernels();
  size_t n = 0;
  std::string name;
  int64_t flops = 0, transcendentals = 0, bytes = 0;
  for (; in >> name >> flops >> transcendentals >> bytes; ++n) {
    CAPTURE(name);
    REQUIRE(ours.contains(name));
    CHECK(ours[name] == ts::CostEstimate{flops, transcendentals, bytes});
  }
  CHECK(n == ours.size());
}

TEST_CASE("cost: blocks are fetched when their index may have moved, and sizes of the call stay in it") {
  const auto matmul = [](const char* n) {
    return cost("tir 1\nkernel @matmul\ngrid (" + std::string(n) + R"(, 2, 4)
in f32[64, 64] block (16, 16) map (%i, %j, %p) { yield %i, %p }
in f32[64, 64] block (16, 32) map (%i, %j, %p) { yield %p, %j }
out f32[64, 64] block (16, 32) map (%i, %j, %p) { yield %i, %j }
body (%x, %y, %o) {
  %a = load %x[0:16, 0:16]
  %b = load %y[0:16, 0:32]
  %s = load %o[0:16, 0:32]
  %c = dot %a, %b, %s lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[16, 32]
  store %o[0:16, 0:32], %c
}
)");
  };
  // 32 programs of 2 * 16 * 16 * 32 + 512 flops; x and y change with every one of them, o with the first two axes.
  CHECK(matmul("4") == ts::CostEstimate{32 * (16384 + 512), 0, 32 * 1024 + 32 * 2048 + 8 * 2048});
  CHECK(
      to_string(matmul("n")) ==
      "n * 2 * 4 * 16896 flops, 0 transcendentals, 1024 * n * 2 * 4 + 2048 * n * 2 * 4 + 2048 * n * 2 bytes accessed");
}

TEST_CASE("cost: control flow, whole arrays and what is never touched") {
  const std::string head = R"(tir 1
kernel @k
grid (10)
prefetch i32[3] whole
in f32[100] whole
in f32[50] block (5) map (%i, %s: ref<smem, i32[3]>) { yield %i }
in f32[12] block (5) map (%i, %s: ref<smem, i32[3]>) {
  %n = load %s[0]
  yield %n
}
out f32[8] whole
body (%s, %x, %y, %z, %o) {
  %0 = constant 0 : i32[]
  %7 = constant 7 : i32[]
  %2 = constant 2 : i32[]
  %n = load %s[1]
)";
  // Three arrays are not touched; the prefetch operand always is.
  CHECK(cost(head + "}\n") == ts::CostEstimate{0, 0, 12});
  // A loop of four rounds; one of a length from data counts once.
  CHECK(
      cost(head +
           "  for %k = %0 to %7 step %2 {\n    %a = load %x[0:8]\n    %e = exp %a\n    store %o[0:8], %e\n  }\n}\n") ==
      ts::CostEstimate{0, 320, 12 + 10 * 4 * 64});
  CHECK(cost(head + "  for %k = %0 to %n step %2 {\n    %a = load %x[0:8]\n    store %o[0:8], %a\n  }\n}\n") ==
        ts::CostEstimate{0, 0, 12 + 10 * 64});
  // The dearer branch, counter by counter; a block whose index is data is fetched once, for that hangs on no axis.
  CHECK(cost(head + R"(  %p = lt %n, %0
  if %p {
    %a = load %y[0:5]
    %r = reduce_sum %a axes [0]
    store %o[0], %r
  } else {
    %a = load %z[0:5]
    %b = add %a, %a
    %c = mul %b, %b
    store %o[0:5], %c
  }
}
)") == ts::CostEstimate{100, 0, 12 + 10 * 20 + 20 + 200});
  // Arrays of indices take one element each together, not all with all.
  CHECK(cost("tir 1\nkernel @k\nin f32[10, 10] whole\nin i32[4] whole\nout f32[4] whole\nbody (%x, %n, %o) {\n  %i = "
             "load %n[0:4]\n  %a = load %x[%i, %i]\n  store %o[0:4], %a\n}\n") == ts::CostEstimate{0, 0, 3 * 16});
  // What cannot be counted in 63 bits is 2^63 - 1.
  CHECK(cost("tir 1\nkernel @k\ngrid (2147483647, 2147483647, 2147483647)\nout f32[8] whole\nbody (%o) {\n  %a = load "
             "%o[0:8]\n  %b = add %a, %a\n  store %o[0:8], %b\n}\n") == ts::CostEstimate{INT64_MAX, 0, INT64_MAX});
}

TEST_CASE("cost: products of threads and what they copy, of each program") {
  const auto product = [](const std::string& lhs, const std::string& transposed) {
    return cost(
        "tir 1\nkernel @k\ngrid (3, 1 thread)\nin f16[64, 32] whole\nin f16[32, 16] whole\n"
        "out f32[64, 16] whole\nscratch ref<smem, f16[" +
        lhs +
        "], tiling [8, 32], swizzle 64>\n"
        "scratch ref<smem, f16[32, 16]>\nscratch ref<accumulator, f32[64, 16]>\n"
        "scratch ref<barrier, i32[1]>\nbody (%x, %y, %o, %a, %b, %sum, %full) {\n"
        "  copy_gmem_to_smem %y[0:32, 0:16] to %b[0:32, 0:16] with %full[0]\n  barrier_wait %full[0]\n"
        "  wgmma %a[" +
        (lhs == "64, 32" ? "0:64, 0:32" : "0:32, 0:64") + "] with %b[0:32, 0:16] to %sum[0:64, 0:16]" + transposed +
        "\n  wgmma_wait count 0\n"
        "  %v = load %sum[0:64, 0:16]\n  store %o[0:64, 0:16], %v\n}\n");
  };
  // Twice 64 * 16 * 32 for each of three programs; 32 * 16 halves and 64 * 16 floats between arrays and smem.
  const ts::CostEstimate expected{3 * 2 * 64 * 16 * 32, 0, 3 * (32 * 16 * 2 + 64 * 16 * 4)};
  CHECK(product("64, 32", "") == expected);
  CHECK(product("32, 64", " transposed [1, 0]") == expected);
}

}  // namespace cost_test
