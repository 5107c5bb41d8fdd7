#include <algorithm>
#include <tessera/tessera.hpp>

#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

struct Product {
  int64_t batch, m, k, n;
  DType dtype;
  bool transposed = false, gelu = false;  // y is [n, k]; the function of the sums plus a row of biases

  std::string name() const {
    std::string s = gelu ? "matmul_gelu_" : transposed ? "matmul_nt_" : "matmul_";
    s += short_name(dtype) + "_";
    if (batch > 1) s += std::to_string(batch) + "x";
    return s + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  }
  std::vector<std::pair<std::string, int64_t>> sizes() const {
    return {{"KIND", kind(dtype)}, {"BATCH", batch}, {"M", m}, {"N", n}, {"K", k}};
  }
  std::string flags() const { return std::string(transposed ? " -DTRANSPOSED" : "") + (gelu ? " -DGELU" : ""); }
};

Value gelu(const Value& x) { return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }

/// A block of results to a program, with the whole of k in one dot.
ir::Kernel kernel_of(const Product& p) {
  const int64_t bm = std::min<int64_t>(128, p.m), bn = std::min<int64_t>(128, p.n);
  const DType sums = p.dtype == i8 ? i32 : f32, result = p.dtype == i8 ? i32 : p.dtype;
  const bool transposed = p.transposed;
  const BlockSpec x{{squeezed, bm, p.k}, [](Value b, Value i, Value) { return Indices{b, i, 0}; }};
  const BlockSpec y = transposed
                          ? BlockSpec{{squeezed, bn, p.k}, [](Value b, Value, Value j) { return Indices{b, j, 0}; }}
                          : BlockSpec{{squeezed, p.k, bn}, [](Value b, Value, Value j) { return Indices{b, 0, j}; }};
  const BlockSpec bias{{bn}, [](Value, Value, Value j) { return Indices{j}; }};
  const BlockSpec o{{squeezed, bm, bn}, [](Value b, Value i, Value j) { return Indices{b, i, j}; }};
  const ShapeDtype xs{{p.batch, p.m, p.k}, p.dtype}, os{{p.batch, p.m, p.n}, result}, bs{{p.n}, p.dtype};
  const ShapeDtype ys{transposed ? std::vector<Extent>{p.batch, p.n, p.k} : std::vector<Extent>{p.batch, p.k, p.n},
                      p.dtype};
  const auto product = [=](const Ref& a, const Ref& b) {
    DotParams params;
    params.preferred_element_type = sums;
    if (transposed) params.lhs_contract = {1}, params.rhs_contract = {1};
    const Value left = a[all], right = b[all];
    return dot(left, right, params);
  };
  const std::vector<GridSize> grid = {p.batch, cdiv(p.m, bm), cdiv(p.n, bn)};
  if (!p.gelu)
    return pallas_call([=](Ref a, Ref b, Ref out) { out[all] = cast(product(a, b), result); },
                       {.out_shape = os, .grid = grid, .in_specs = {x, y}, .out_specs = o, .name = "matmul"})
        .trace({xs, ys});
  return pallas_call(
             [=](Ref a, Ref b, Ref c, Ref out) { out[all] = cast(gelu(product(a, b) + cast(c[all], f32)), result); },
             {.out_shape = os, .grid = grid, .in_specs = {x, y, bias}, .out_specs = o, .name = "matmul_gelu"})
      .trace({xs, ys, bs});
}

/// Without matrix instructions.
Shader plain(const Product& p, bool full) {
  int64_t bm = 128, bn = 128, bk = p.dtype == f32 ? 8 : 16, tm = 8, tn = 8;
  const int64_t piece = 16 / size_bytes(p.dtype);
  if (p.dtype == bf16) bn = 64;        // f32 in shared memory, which has 32 KiB on some chips
  if (p.dtype == i8) bn = 64, tn = 4;  // and two kinds of sums
  if (p.n <= 64) bm = 64, bn = 64, tm = 4, tn = 4, bk = p.dtype == f16 ? 32 : 16;
  if (p.k % piece != 0 || p.n % piece != 0) bm = 64, bn = 64, tm = 4, tn = 4, bk = 16;  // element by element
  if (!full && p.dtype != bf16 && p.dtype != i8) bm = 64, bn = 64, bk = 16, tm = 4, tn = 8;
  const int64_t local = bm / tm * (bn / tn);
  Shader s;
  s.file = "matmul";
  s.defines = macros(p.sizes()) + " " +
              macros({{"BM", bm}, {"BN", bn}, {"BK", bk}, {"TM", tm}, {"TN", tn}, {"LOCAL", local}}) + p.flags();
  s.groups = p.batch * cdiv(p.m, bm) * cdiv(p.n, bn);
  s.local = static_cast<int32_t>(local);
  s.inner = "fma " + std::to_string(bm * bn * bk);
  return s;
}

/// With cooperative matrices of fm x fn x fk; y is turned on its way to shared memory, or kept as it is.
Shader product_by_matrices(const Product& p, bool full, bool k_major, int64_t fm, int64_t fn, int64_t fk) {
  const bool wide = full && p.m * p.n * p.batch >= 2048 * 2048 && p.n >= 128;
  const int64_t tile = full ? (wide ? 64 : 32) : 16, wave = full ? 32 : 8;  // results of a subgroup, each way
  const int64_t bm = 2 * tile, deep = p.dtype == i8 ? 4 : 2, piece = 16 / size_bytes(p.dtype);
  int64_t bk = p.dtype == i8 ? 64 : full ? 32 : 16;
  if (k_major && bm * bk / piece / (4 * wave) % deep != 0) bk *= 2;
  Shader s;
  s.file = "matmul_matrix";
  s.defines = macros(p.sizes()) + " " +
              macros({{"FM", fm},
                      {"FN", fn},
                      {"FK", fk},
                      {"WM", tile / fm},
                      {"WN", tile / fn},
                      {"WAVES_M", 2},
                      {"WAVES_N", 2},
                      {"WAVE", wave},
                      {"BK", bk}}) +
              p.flags() + (k_major ? " -DK_MAJOR" : "");
  s.device_class = "matrix";
  s.groups = p.batch * cdiv(p.m, bm) * cdiv(p.n, bm);
  s.local = static_cast<int32_t>(4 * wave);
  s.inner = "fma " + std::to_string(bm * bm * bk);
  s.note = "matrices of " + std::to_string(fm) + "x" + std::to_string(fn) + "x" + std::to_string(fk) +
           (k_major ? ", y turned in shared memory" : "");
  return s;
}

double product_tolerance(DType t) { return t == f32 ? 1e-5 : t == f16 ? 2e-3 : t == bf16 ? 1e-2 : 0; }

Case matmul(const Product& p, Sizes sizes) {
  const auto work = static_cast<double>(p.batch * p.m * p.k * p.n);
  Case c{p.name(), kernel_of(p), {}, product_tolerance(p.dtype), 2 * work};
  const bool full = sizes == Sizes::full;
  c.shaders.push_back(plain(p, full));
  if (p.dtype == i8) {
    const int64_t tiles = cdiv(p.m, 128) * cdiv(p.n, 128);
    c.shaders.push_back({.file = "matmul_dot4",
                         .defines = macros({{"BATCH", p.batch}, {"M", p.m}, {"N", p.n}, {"K", p.k}}) + p.flags(),
                         .device_class = "dot4",
                         .groups = p.batch * tiles,
                         .inner = "fma " + std::to_string(128 * 128 * 32),
                         .note = "a packed dot product counts as four"});
  }
  if (p.dtype != f16 && p.dtype != i8) return c;
  const int64_t f = full ? 16 : 8;
  for (const bool k_major : {true, false}) {
    // y is turned already; and no chip loads bytes across k well
    if (p.transposed ? k_major : !k_major && p.dtype == i8) continue;
    c.shaders.push_back(product_by_matrices(p, full, k_major, f, f, f));
    if (p.dtype == i8 && full) c.shaders.push_back(product_by_matrices(p, full, k_major, 16, 8, 32));
  }
  return c;
}

/// One row times a matrix [k, n], or [n, k] transposed: f16, sums in f32.
Case gemv(int64_t k, int64_t n, bool transposed) {
  const int64_t block = 64;
  const BlockSpec row{{1, k}, [](Value) { return Indices{0, 0}; }};
  const BlockSpec matrix = transposed ? BlockSpec{{block, k}, [](Value j) { return Indices{j, 0}; }}
                                      : BlockSpec{{k, block}, [](Value j) { return Indices{0, j}; }};
  const ShapeDtype ys{transposed ? std::vector<Extent>{n, k} : std::vector<Extent>{k, n}, f16};
  const ir::Kernel kernel = pallas_call(
                                [=](Ref x, Ref y, Ref o) {
                                  DotParams params;
                                  params.preferred_element_type = f32;
                                  if (transposed) params.lhs_contract = {1}, params.rhs_contract = {1};
                                  const Value left = x[all], right = y[all];
                                  o[all] = cast(dot(left, right, params), f16);
                                },
                                {.out_shape = {{{1, n}, f16}},
                                 .grid = cdiv(n, block),
                                 .in_specs = {row, matrix},
                                 .out_specs = {{{1, block}, [](Value j) { return Indices{0, j}; }}},
                                 .name = "gemv"})
                                .trace({{{1, k}, f16}, ys});
  Shader s;
  if (transposed) {
    s.file = "gemv";
    s.defines = macros({{"KIND", 1}, {"ROWS", n}, {"COLUMNS", k}, {"LOCAL", 128}, {"LANES", 32}});
    s.groups = cdiv(n, 16);
    s.local = 128;
    s.inner = "bytes " + std::to_string(2 * 4 * 128 * 16);
  } else {
    const int64_t local = k < 1000 ? 256 : 512;
    s.file = "column_sum";
    s.defines = macros({{"KIND", 1}, {"ROWS", k}, {"COLUMNS", n}, {"LOCAL", local}}) + " -DWEIGHTED";
    s.groups = cdiv(n, 64);
    s.local = static_cast<int32_t>(local);
    s.inner = "bytes " + std::to_string(4 * local * 16);
  }
  return {std::string("gemv_") + (transposed ? "nt_" : "") + "f16_" + std::to_string(k) + "x" + std::to_string(n),
          kernel,
          {s},
          2e-3,
          2 * static_cast<double>(k * n)};
}

}  // namespace

void products(std::vector<Case>& cases, Sizes sizes) {
  std::vector<Product> all_products;
  if (sizes == Sizes::full) {
    for (const DType t : {f32, f16, bf16, i8}) {
      all_products.push_back({1, 1024, 1024, 1024, t});
      all_products.push_back({1, 4096, 4096, 4096, t});
    }
    for (const DType t : {f32, f16}) {
      all_products.push_back({1, 8192, 4096, 64, t});
      all_products.push_back({16, 512, 512, 512, t});
      all_products.push_back({1, 2048, 2048, 2048, t, true});
      all_products.push_back({1, 1000, 777, 333, t});
      all_products.push_back({1, 4096, 1024, 4096, t, false, true});
    }
    all_products.push_back({1, 2048, 2048, 2048, i8, true});
  } else {
    for (const DType t : {f32, f16, bf16, i8}) {
      all_products.push_back({2, 64, 64, 128, t});
      all_products.push_back({1, 100, 128, 80, t, true});
      if (t == i8) continue;
      all_products.push_back({1, 128, 80, 64, t, false, true});
      all_products.push_back({1, 65, 77, 33, t});
      all_products.push_back({1, 65, 33, 77, t, true});
    }
  }
  for (const Product& p : all_products) cases.push_back(matmul(p, sizes));
  for (const bool transposed : {true, false}) {
    if (sizes == Sizes::full) cases.push_back(gemv(4096, 4096, transposed));
    else cases.push_back(gemv(transposed ? 776 : 301, 192, transposed));
  }
}

}  // namespace tessera::gpu_suite
