// emit_pipeline over random grids, block dims of every kind, index maps and buffer counts, against a pallas_call with
// the same grid and specs: on the interpreter, looking for races under random moments of copies, and compiled for a GPU
// that prefetches, in random orders of invocations.
#include <doctest/doctest.h>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/front.h"
#include "engine/ir/text.h"

namespace pipeline_random_test {

namespace ts = tessera;
using ts::all, ts::Ref, ts::Value;

namespace {
struct Random {
  uint64_t state;
  int64_t in(int64_t lo, int64_t hi) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return lo + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(hi - lo + 1));
  }
};

/// One dim: of which kind, and its index as a[0] * i + a[1] * j + b.
struct Dim {
  int64_t kind, extent, size, low, high, a[2], b, slice;
};

ts::BlockSpec spec(const std::vector<Dim>& dims, std::optional<ts::Buffered> buffered) {
  std::vector<ts::BlockDim> block;
  for (const Dim& d : dims) {
    if (d.kind == 0) block.emplace_back(ts::squeezed);
    else if (d.kind == 1) block.emplace_back(ts::Element{d.size, {d.low, d.high}});
    else if (d.kind == 2) block.emplace_back(ts::BoundedSlice{d.size});
    else block.emplace_back(d.size);
  }
  ts::BlockSpec s{ts::BlockShape(block), [dims](Value i, Value j) {
                    std::vector<ts::BlockIndex> index;
                    for (const Dim& d : dims) {
                      const Value at = i * d.a[0] + j * d.a[1] + d.b;
                      if (d.kind == 2) index.emplace_back(ts::ds(at, j + d.slice));
                      else index.emplace_back(at);
                    }
                    return ts::Indices(std::move(index));
                  }};
  s.pipeline_mode = buffered;
  return s;
}
}  // namespace

TEST_CASE("pipelines of random blocks compute what pallas_calls compute") {
  ts::Target gpu = ts::minimum_target();
  gpu.max_workgroup_size = 256;
  gpu.shared_bytes = 32 << 10;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random{seed * 7919};
    CAPTURE(seed);
    const ts::GridSize grid[2] = {random.in(1, 3), random.in(1, 4)};
    std::vector<Dim> dims(static_cast<size_t>(random.in(1, 2)));
    ts::Shape shape;
    for (size_t d = 0; d < dims.size(); ++d) {
      Dim& x = dims[d];
      x = {random.in(d == 0 ? 1 : 0, 5),        random.in(1, 14), random.in(1, 6), random.in(0, 2), random.in(0, 2),
           {random.in(-1, 3), random.in(0, 2)}, random.in(-1, 2), random.in(0, 4)};
      shape.push_back(x.extent);
    }
    const auto body = [](Ref x, Ref o) {
      o[all] = x[all] * 2 + ts::cast(ts::program_id(0) * 3 + ts::program_id(1), ts::f32);
    };
    const ts::ShapeDtypes out{{{shape.begin(), shape.end()}, ts::f32}};
    const auto plain =
        ts::pallas_call([=](Ref x, Ref, Ref o) { body(x, o); }, {.out_shape = out,
                                                                 .grid = {grid[0], grid[1]},
                                                                 .in_specs = {spec(dims, {}), ts::no_block_spec},
                                                                 .out_specs = {spec(dims, {})},
                                                                 .input_output_aliases = {{1, 0}},
                                                                 .name = "plain"});
    const ts::Buffered in_buffers{random.in(1, 4)}, out_buffers{random.in(1, 2)};
    const auto piped = ts::pallas_call(
        [=](Ref x, Ref, Ref o) {
          ts::emit_pipeline(body, {.grid = {*grid[0].size().value(), *grid[1].size().value()},
                                   .in_specs = {spec(dims, in_buffers)},
                                   .out_specs = {spec(dims, out_buffers)}})(x, o);
        },
        {.out_shape = out, .input_output_aliases = {{1, 0}}, .name = "piped"});
    ts::Array x(shape, ts::f32), start(shape, ts::f32);
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i + 1);
      start.data<float>()[static_cast<size_t>(i)] = static_cast<float>(-i);
    }
    const ts::Array wanted = ts::interpret(plain, x, start)[0];
    const auto check = [&](const ts::Array& got, const std::string& what) {
      for (int64_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(got.element_bits(i) == wanted.element_bits(i), what, ": element ", i);
    };
    const ts::ir::Kernel k = piped.trace_for({x, start});
    CAPTURE(ts::ir::print(plain.trace_for({x, start})));
    for (uint64_t order = 0; order < 3; ++order) {
      ts::InterpretOptions o{.races = true};
      if (order) o.seed = order;
      check(ts::interpret(piped, o, x, start)[0], "interpreter, seed " + std::to_string(order));
    }
    for (const bool general : {false, true}) {
      ts::ir::Kernel lanes;
      ts::CompileOptions options;
      options.general = general;
      options.dump = [&](std::string_view, const ts::ir::Kernel& now, bool) {
        if (now.level == ts::ir::Level::lane) lanes = now;
      };
      ts::compile(k, gpu, options);
      for (uint64_t order = 0; order < 2; ++order) {
        ts::lane::RunOptions run;
        run.seed = order;
        run.subgroup_size = gpu.subgroup_size;
        const ts::lane::RunResult r = ts::lane::run(lanes, {x, start, start}, k.num_inputs, {}, run);
        for (const std::string& s : r.reports) FAIL_CHECK(s);
        check(r.outputs[0], general ? "general form" : "fast form");
      }
    }
  }
}

}  // namespace pipeline_random_test
