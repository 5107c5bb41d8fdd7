#include <algorithm>
#include <tessera/tessera.hpp>

#include "samples/kernels/norm.h"
#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

/// How many invocations a shader gives to a row of which each takes at most 32 elements in registers: all of a
/// workgroup of a power of two, or a part of one of 256.
struct Rows {
  int64_t row_lanes, local, in_group;
  Rows(int64_t columns, DType t, int64_t most_local) {
    const int64_t vec = 16 / size_bytes(t), most = columns <= 8192 ? 16 : 32;
    row_lanes = 32;
    while (row_lanes < most_local && row_lanes * most < columns) row_lanes *= 2;
    while (row_lanes > 8 && row_lanes * vec > columns) row_lanes /= 2;
    local = row_lanes >= 128 ? row_lanes : 128;
    in_group = local / row_lanes;
  }
};

std::string size_name(int64_t m, int64_t n, DType t) {
  return short_name(t) + "_" + std::to_string(m) + "x" + std::to_string(n);
}
double tolerance(DType t) { return t == f32 ? 1e-5 : t == f16 ? 2e-3 : 1e-2; }

Shader over_rows(const std::string& file, int64_t m, int64_t n, DType t) {
  const Rows r(n, t, m < 200 ? 256 : 1024);  // the small ones are for CPUs too
  return {
      .file = file,
      .defines = macros({{"KIND", kind(t)}, {"ROWS", m}, {"COLUMNS", n}, {"LOCAL", r.local}, {"LANES", r.row_lanes}}),
      .groups = cdiv(m, r.in_group),
      .local = static_cast<int32_t>(r.local),
      .note = r.in_group > 1 ? std::to_string(r.in_group) + " rows to a workgroup" : ""};
}

Case softmax(int64_t m, int64_t n, DType t) {
  const int64_t block = n >= 4096 ? 1 : 8;
  const BlockSpec some_rows{{block, n}, [](Value i) { return Indices{i, 0}; }};
  const PallasCall call = pallas_call(
      [t](Ref x_ref, Ref o_ref) {
        Value x = cast(x_ref[all], f32);
        Value e = exp(x - max(x, {.axis = 1, .keepdims = true}));
        o_ref[all] = cast(e / sum(e, {.axis = 1, .keepdims = true}), t);
      },
      {.out_shape = {{{m, n}, t}},
       .grid = cdiv(m, block),
       .in_specs = some_rows,
       .out_specs = some_rows,
       .name = "softmax"});
  return {"softmax_" + size_name(m, n, t), call.trace({{{m, n}, t}}), {over_rows("softmax", m, n, t)}, tolerance(t)};
}

Case layer_norm(int64_t m, int64_t n, DType t) {
  const PallasCall call = kernels::layer_norm(kernels::Type({m, n}, t), kernels::Type({n}, t), kernels::Type({n}, t));
  return {"layer_norm_" + size_name(m, n, t), call.trace(), {over_rows("layer_norm", m, n, t)}, tolerance(t)};
}

Case row_sum(int64_t m, int64_t n, DType t) {
  const int64_t block = n >= 4096 ? 8 : 128;
  const PallasCall call = pallas_call([](Ref x, Ref o) { o[all] = sum(cast(x[all], f32), {.axis = 1}); },
                                      {.out_shape = {{{m}, f32}},
                                       .grid = cdiv(m, block),
                                       .in_specs = {{{block, n}, [](Value i) { return Indices{i, 0}; }}},
                                       .out_specs = {{{block}, [](Value i) { return Indices{i}; }}},
                                       .name = "row_sum"});
  return {"row_sum_" + size_name(m, n, t), call.trace({{{m, n}, t}}), {over_rows("row_sum", m, n, t)}, 1e-5};
}

Case column_sum(int64_t m, int64_t n, DType t) {
  const int64_t block = 128;
  const PallasCall call = pallas_call([](Ref x, Ref o) { o[all] = sum(cast(x[all], f32), {.axis = 0}); },
                                      {.out_shape = {{{n}, f32}},
                                       .grid = cdiv(n, block),
                                       .in_specs = {{{m, block}, [](Value j) { return Indices{0, j}; }}},
                                       .out_specs = {{{block}, [](Value j) { return Indices{j}; }}},
                                       .name = "column_sum"});
  const int64_t across = 8 * 16 / size_bytes(t), local = m < 1000 ? 256 : 512;  // 128 bytes of a row
  return {"column_sum_" + size_name(m, n, t),
          call.trace({{{m, n}, t}}),
          {{.file = "column_sum",
            .defines = macros({{"KIND", kind(t)}, {"ROWS", m}, {"COLUMNS", n}, {"LOCAL", local}}),
            .groups = cdiv(n, across),
            .local = static_cast<int32_t>(local),
            .inner = "bytes " + std::to_string(4 * local * 16)}},
          1e-5};
}

Case cumulated(int64_t m, int64_t n) {
  const BlockSpec row{{1, n}, [](Value i) { return Indices{i, 0}; }};
  const PallasCall call =
      pallas_call([](Ref x, Ref o) { o[all] = cumsum(x[all], {.axis = 1}); },
                  {.out_shape = {{{m, n}, f32}}, .grid = m, .in_specs = row, .out_specs = row, .name = "cumsum"});
  return {
      "cumsum_" + size_name(m, n, f32),
      call.trace({{{m, n}, f32}}),
      {{.file = "cumsum",
        .defines = macros({{"ROWS", m}, {"COLUMNS", n}, {"LOCAL", 256}, {"EACH", std::min<int64_t>(cdiv(n, 1024), 4)}}),
        .groups = m,
        .inner = "bytes " + std::to_string(2 * 4 * std::min<int64_t>(n, 4096))}},
      2e-5};
}

}  // namespace

void rows(std::vector<Case>& cases, Sizes sizes) {
  const bool full = sizes == Sizes::full;
  if (full) {
    for (const auto& [m, n] : {std::pair(2048, 4096), std::pair(16384, 512), std::pair(256, 32768)})
      cases.push_back(softmax(m, n, f32));
    for (const auto& [m, n] : {std::pair(4096, 4096), std::pair(8192, 1024)}) cases.push_back(layer_norm(m, n, f32));
    for (const auto& [m, n] : {std::pair(4096, 4096), std::pair(262144, 64)}) cases.push_back(row_sum(m, n, f32));
    cases.push_back(column_sum(4096, 4096, f32));
    for (const auto& [m, n] : {std::pair(4, 4096), std::pair(4096, 4096), std::pair(256, 65536)})
      cases.push_back(cumulated(m, n));
  } else {
    for (const auto& [m, n] : {std::pair(3, 4096), std::pair(13, 512), std::pair(9, 100)})
      for (const DType t : {f32, f16}) {
        if (n % 8 != 0 && t == f16) continue;
        cases.push_back(softmax(m, n, t));
        cases.push_back(layer_norm(m, n, t));
        cases.push_back(row_sum(m, n, t));
      }
    cases.push_back(softmax(1, 32768, f32));
    cases.push_back(row_sum(130, 64, f32));
    cases.push_back(column_sum(300, 96, f32));
    cases.push_back(column_sum(301, 192, f16));
    for (const auto& [m, n] : {std::pair(2, 4096), std::pair(3, 1024), std::pair(1, 8192)})
      cases.push_back(cumulated(m, n));
  }
  if (!full) return;
  cases.push_back(softmax(2048, 4096, f16));
  cases.push_back(layer_norm(4096, 4096, f16));
  cases.push_back(row_sum(4096, 4096, f16));
  cases.push_back(column_sum(4096, 4096, f16));
}

}  // namespace tessera::gpu_suite
