// Kernels in C++ that tessera_add_kernels compiles ahead of time: no part of the program that runs them.
#include <tessera/kernels/norm.h>

#include <tessera/ahead.hpp>

#include "strength.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

namespace {

/// strength * x, moved towards y by `amount`, or away from it; of any size.
ts::PallasCall blend() {
  const ts::BlockSpec block = {{64}, [](Value i) { return i; }};
  return ts::pallas_call(
      [](Ref x, Ref y, Ref amount, Ref away, Ref o) {
        const Value by = ts::where(away[all], -amount[all], amount[all]);
        o[all] = kStrength * x[all] + by * (y[all] - x[all]);
      },
      {.out_shape = {{{ts::dim("n")}, ts::f32}},
       .grid = {ts::cdiv(ts::dim("n"), 64)},
       .in_specs = {block, block, ts::by_value(ts::f32), ts::by_value(ts::boolean)},
       .out_specs = {block},
       .name = "blend",
       .in_shape = {{{ts::dim("n")}, ts::f32}, {{ts::dim("n")}, ts::f32}, {{}, ts::f32}, {{}, ts::boolean}}});
}

/// h x w cells that count on from `first`: no input shows h and w.
ts::PallasCall count() {
  return ts::pallas_call(
      [](Ref first, Ref o) {
        const Value row = ts::program_id(0) * 8 + ts::iota(ts::i32, {8, 32}, 0);
        const Value column = ts::program_id(1) * 32 + ts::iota(ts::i32, {8, 32}, 1);
        o[all] = first[all] + row * ts::dim("w") + column;
      },
      {.out_shape = {{{ts::dim("h"), ts::dim("w")}, ts::i32}},
       .grid = {ts::cdiv(ts::dim("h"), 8), ts::cdiv(ts::dim("w"), 32)},
       .in_specs = {ts::by_value(ts::i32)},
       .out_specs = {{{8, 32}, [](Value i, Value j) { return ts::Indices{i, j}; }}},
       .name = "count",
       .in_shape = {{{}, ts::i32}}});
}

}  // namespace

void tessera_kernels(ts::KernelList& kernels) {
  kernels.add(blend(), {"x", "y", "amount", "away", "blended"});
  kernels.add(count(), {"first", "cells"});
  const ts::kernels::Type rows({5, 48}, ts::f32), weight({48}, ts::f32);
  kernels.add(ts::kernels::rms_norm(rows, weight), {"x", "weight", "normed"});
  const auto settle = ts::jit([](ts::Tensor x) {
    const auto half = ts::pallas_call([](Ref from, Ref to) { to[all] = from[all] / 2; },
                                      {.out_shape = {{{40}, ts::f32}}, .name = "half"});
    return ts::fori_loop(0, 3, x, [&](Value, Value v) { return Value(half(v)); });
  });
  kernels.add_graph("settle", settle.trace({{{40}, ts::f32}}), {"x", "settled"});
}
