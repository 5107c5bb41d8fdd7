// mosaic_gpu::kernel: its forms, what its ops compute under every order of the threads, and what is found where a
// kernel is wrong. tests/tir/threads has kernels as text.
#include <doctest/doctest.h>

#include <string>

#include "engine/front.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/messages.h"

namespace mosaic_gpu_test {

namespace ts = tessera;
namespace mg = tessera::mosaic_gpu;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Array, ts::DType, ts::ds, ts::Indices, ts::Ref, ts::Shape, ts::Value;

namespace {
/// Small integers, so that sums are exact in any order.
Array numbers(Shape shape, DType t, uint64_t seed) {
  Array a(std::move(shape), t);
  for (int64_t i = 0; i < a.size(); ++i)
    a.set_element_bits(i, ts::reference::from_double(
                              t, static_cast<double>((seed + static_cast<uint64_t>(i)) * 2654435761u / 64 % 7) - 3));
  return a;
}
/// a @ b for matrices, in f32.
Array product(const Array& a, const Array& b) {
  const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  std::vector<float> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a.at(i * k + x) * b.at(x * n + j);
      c[static_cast<size_t>(i * n + j)] = static_cast<float>(sum);
    }
  return {{m, n}, c};
}
bool same(const Array& a, const Array& b) {
  if (a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.at(i) != b.at(i)) return false;
  return true;
}
/// In the plain order and in orders of chance, whatever unwritten memory holds; without a race.
void check(const ts::PallasCall& call, const std::vector<Array>& inputs, const Array& wanted) {
  CHECK(same(ts::interpret(call, inputs, {.races = true})[0], wanted));
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    CHECK(
        same(ts::interpret(call, inputs, {.uninitialised = ts::Uninitialised::pattern, .seed = seed, .races = true})[0],
             wanted));
  }
  // The text says the same.
  const ts::ir::Kernel& k = call.trace_for(inputs);
  const std::string text = ts::ir::print(k);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  CHECK(same(ts::interpret(ts::ir::parse(text), inputs)[0], wanted));
}
}  // namespace

TEST_CASE("mosaic_gpu: an elementwise kernel with copies both ways, and windows over the edge") {
  const auto body = [](Ref x, Ref o, Ref tile, Ref barrier) {
    const Value row = mg::axis_index("m") * 64;
    mg::copy_gmem_to_smem(x[{ds(row, 64), all}], tile, barrier);
    mg::barrier_wait(barrier);
    tile[all] = tile[all] * 2.0f + 1.0f;
    mg::commit_smem();
    mg::copy_smem_to_gmem(tile, o[{ds(row, 64), all}]);
    mg::wait_smem_to_gmem(0);
  };
  const Array x = numbers({150, 20}, ts::f32, 3);
  std::vector<float> wanted;
  for (int64_t i = 0; i < x.size(); ++i) wanted.push_back(static_cast<float>(x.at(i) * 2 + 1));
  const mg::KernelParams params{.out_type = {{{150, 20}, ts::f32}},
                                .scratch_types = {mg::SMEM({64, 20}, ts::f32), mg::Barrier{}},
                                .grid = {3},
                                .grid_names = {"m"}};
  check(mg::kernel(body, params), {x}, Array({150, 20}, wanted));
  check(mg::kernel(params)(body), {x}, Array({150, 20}, wanted));  // the decorator
  check(mg::kernel(body, {{{150, 20}, ts::f32}},
                   {.scratch_shapes = params.scratch_types, .grid = {3}, .grid_names = {"m"}}),
        {x}, Array({150, 20}, wanted));  // out_shape by position, and the old names
  const auto interpreted = mg::kernel(body, [&] {
    mg::KernelParams p = params;
    p.interpret = ts::InterpretOptions{.races = true};
    return p;
  }());
  CHECK(interpreted.interpret_options()->races);
}

TEST_CASE("mosaic_gpu: a ring of buffers, one thread that copies and two that compute") {
  constexpr int64_t kSlots = 3, kSteps = 7;
  const auto matmul = mg::kernel(
      [](Ref a, Ref b, Ref o, Ref as, Ref bs, Ref os, Ref full, Ref empty) {
        const Value wg = mg::axis_index("wg"), m = mg::axis_index("m"), n = mg::axis_index("n");
        ts::when(wg == 2, [&] {
          mg::set_max_registers(40, "decrease");
          ts::fori_loop(0, kSteps, [&](Value k) {
            const Value slot = k % kSlots;
            ts::when(k >= kSlots, [&] { mg::barrier_wait(empty[slot]); });
            mg::copy_gmem_to_smem(a[{ds(m * 16, 16), ds(k * 8, 8)}], as[slot], full[slot]);
            mg::copy_gmem_to_smem(b[{ds(k * 8, 8), ds(n * 12, 12)}], bs[slot], full[slot]);
          });
          ts::fori_loop(kSteps - kSlots, kSteps, [&](Value k) { mg::barrier_wait(empty[k % kSlots]); });
        });
        ts::when(wg < 2, [&] {
          mg::set_max_registers(232, "increase");
          const Value sum = ts::fori_loop(0, kSteps, ts::zeros({8, 12}, ts::f32), [&](Value k, Value c) {
            const Value slot = k % kSlots;
            mg::barrier_wait(full[slot]);
            const Value x = as[{slot, ds(wg * 8, 8), all}], y = bs[{slot, all, all}];
            mg::barrier_arrive(empty[slot]);
            return c + ts::dot(x, y);
          });
          os[{ds(wg * 8, 8), all}] = sum;
          mg::commit_smem();
          mg::copy_smem_to_gmem(os[{ds(wg * 8, 8), all}], o[{ds(m * 16 + wg * 8, 8), ds(n * 12, 12)}]);
          mg::wait_smem_to_gmem(0);
        });
      },
      {.out_type = {{{32, 24}, ts::f32}},
       .scratch_types = {mg::SMEM({kSlots, 16, 8}, ts::f32), mg::SMEM({kSlots, 8, 12}, ts::f32),
                         mg::SMEM({16, 12}, ts::f32), mg::Barrier{.num_arrivals = 2, .num_barriers = kSlots},
                         mg::Barrier{.num_arrivals = 2, .num_barriers = kSlots}},
       .grid = {2, 2},
       .grid_names = {"m", "n"},
       .num_threads = 3,
       .thread_name = "wg",
       .kernel_name = "ring"});
  const Array a = numbers({32, 56}, ts::f32, 1), b = numbers({56, 24}, ts::f32, 2);
  check(matmul, {a, b}, product(a, b));
}

TEST_CASE("mosaic_gpu: wgmma with its accumulator, transposed operands and a left operand in registers") {
  const auto make = [](int form) {
    return mg::kernel(
        [form](Ref a, Ref b, Ref o, Ref as, Ref bs, Ref acc, Ref os, Ref barrier) {
          mg::copy_gmem_to_smem(a, as, barrier);
          mg::copy_gmem_to_smem(b, bs, barrier);
          mg::barrier_wait(barrier);
          for (int i = 0; i < 2; ++i) {
            if (form == 0) mg::wgmma(acc, as, bs);
            if (form == 1) mg::wgmma(acc, as, mg::transpose_ref(bs));
            if (form == 2) mg::wgmma(acc, mg::transpose_ref(as), bs);
            if (form == 3) mg::wgmma(acc, Value(as[all]), bs);
          }
          mg::wgmma_wait(1);
          os[all] = acc[all];
          mg::commit_smem();
          mg::copy_smem_to_gmem(os, o);
          mg::wait_smem_to_gmem(0);
        },
        {.out_type = {{{64, 16}, ts::f32}},
         .scratch_types = {mg::SMEM(form == 2 ? Shape{32, 64} : Shape{64, 32}, ts::f16,
                                    {mg::TilingTransform{{8, 32}}, mg::SwizzleTransform{64}}),
                           mg::SMEM(form == 1 ? Shape{16, 32} : Shape{32, 16}, ts::f16), mg::ACC({64, 16}),
                           mg::SMEM({64, 16}, ts::f32), mg::Barrier{.num_arrivals = 2}}});
  };
  const Array a = numbers({64, 32}, ts::f16, 1), b = numbers({32, 16}, ts::f16, 2);
  const auto turned = [](const Array& x) {
    return ts::interpret(ts::pallas_call([](Ref i, Ref o) { o[all] = ts::transpose(i[all], {1, 0}); },
                                         {.out_shape = {{{x.shape()[1], x.shape()[0]}, ts::f16}}}),
                         x)[0];
  };
  Array twice = product(a, b);
  for (float& f : twice.data<float>()) f *= 2;
  check(make(0), {a, b}, twice);
  check(make(1), {a, turned(b)}, twice);
  check(make(2), {turned(a), b}, twice);
  check(make(3), {a, b}, twice);
}

TEST_CASE("mosaic_gpu: a cluster whose programs share their loads, and reuse the memory behind a ClusterBarrier") {
  const auto sums = mg::kernel(
      [](Ref x, Ref o, Ref tile, Ref out, Ref full, Ref empty) {
        const Value i = mg::axis_index("i"), c = mg::axis_index("c");
        const Value total = ts::fori_loop(0, 4, ts::zeros({8}, ts::f32), [&](Value k, Value sum) {
          ts::when(k > 0, [&] { mg::barrier_wait(empty); });
          mg::copy_gmem_to_smem(x[{i, ds(k * 8, 8)}], tile, full, {.collective_axes = {"c"}});
          mg::barrier_wait(full);
          const Value now = tile[all];
          mg::barrier_arrive(empty);
          return sum + now;
        });
        mg::barrier_wait(empty);
        out[all] = total * ts::cast(c + 1, ts::f32);
        mg::commit_smem();
        mg::copy_smem_to_gmem(out, o[{i, c, all}]);
        mg::wait_smem_to_gmem(0);
      },
      {.out_type = {{{3, 2, 8}, ts::f32}},
       .scratch_types = {mg::SMEM({8}, ts::f32), mg::SMEM({8}, ts::f32), mg::Barrier{},
                         mg::ClusterBarrier{.collective_axes = {"c"}}},
       .grid = {3},
       .grid_names = {"i"},
       .cluster = {2},
       .cluster_names = {"c"}});
  const Array x = numbers({3, 32}, ts::f32, 9);
  std::vector<float> wanted;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t j = 0; j < 8; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 4; ++k) sum += x.at(i * 32 + k * 8 + j);
        wanted.push_back(static_cast<float>(sum * static_cast<double>(c + 1)));
      }
  check(sums, {x}, Array({3, 2, 8}, wanted));
}

TEST_CASE("mosaic_gpu: emit_pipeline, with carries, outputs per step and one for all") {
  const auto call = mg::kernel(
      [](Ref x, Ref o, Ref total) {
        const Value i = mg::axis_index("i");
        mg::emit_pipeline(
            [&](const mg::PipelineIndices& at, Ref a, Ref b, Ref s) {
              ts::when(at[0] == 0, [&] { s[all] = ts::zeros({1, 8}, ts::f32); });
              b[all] = a[all] * 2.0f;
              s[all] = s[all] + a[all];
            },
            {.grid = {6},
             .in_specs = {{{1, 8}, [=](Value k) { return Indices{i * 6 + k, 0}; }}},
             .out_specs = {{{1, 8}, [=](Value k) { return Indices{i * 6 + k, 0}; }},
                           {{1, 8}, [](Value) { return Indices{0, 0}; }}},
             .max_concurrent_steps = 3})(x, o, total);
      },
      {.out_type = {{{6, 8}, ts::f32}, {{1, 8}, ts::f32}}, .grid = {1}, .grid_names = {"i"}});
  const Array x = numbers({6, 8}, ts::f32, 4);
  std::vector<float> doubled, sums(8);
  for (int64_t i = 0; i < 48; ++i) {
    doubled.push_back(static_cast<float>(x.at(i) * 2));
    sums[static_cast<size_t>(i % 8)] += static_cast<float>(x.at(i));
  }
  check(call, {x}, Array({6, 8}, doubled));
  CHECK(same(ts::interpret(call, x)[1], Array({1, 8}, sums)));
}

TEST_CASE("mosaic_gpu: an output's index map that uses no point of the grid has one buffer, whatever else it uses") {
  mg::WarpSpecializedParams p{.grid = {4}, .max_concurrent_steps = 2, .wg_axis = "wg", .num_compute_wgs = 1};
  p.in_specs = {{{1, 8}, [](Value k) { return Indices{k, 0}; }}};
  const auto call = mg::kernel(
      [p](Ref x, Ref o) {
        const Value m = mg::axis_index("m");
        mg::WarpSpecializedParams all_steps = p;
        all_steps.out_specs = {{{1, 8}, [=](Value) { return Indices{m, 0}; }}};
        mg::emit_pipeline_warp_specialized(
            [&](const mg::PipelineIndices& at, Ref a, Ref s) {
              ts::when(at[0] == 0, [&] { s[all] = ts::zeros({1, 8}, ts::f32); });
              s[all] = s[all] + a[all];
            },
            all_steps)(x, o);
      },
      {.out_type = {{{2, 8}, ts::f32}}, .grid = {2}, .grid_names = {"m"}, .num_threads = 2, .thread_name = "wg"});
  const Array x = numbers({4, 8}, ts::f32, 3);
  std::vector<float> sums(16);
  for (int64_t i = 0; i < 64; ++i) sums[static_cast<size_t>(i / 32 * 8 + i % 8)] += static_cast<float>(x.at(i % 32));
  check(call, {x}, Array({2, 8}, sums));
}

TEST_CASE("mosaic_gpu: delay_release in pipelines with fewer steps, and Refs of a pipeline that stay in gmem") {
  const auto rows = [](Value k) { return Indices{k, 0}; };
  for (const bool known : {true, false})
    for (const bool specialized : {true, false}) {
      CAPTURE(known);
      CAPTURE(specialized);
      const auto call = mg::kernel(
          [=](Ref x, Ref whole, Ref o) {
            const ts::Operand steps = known ? ts::Operand(1) : ts::Operand(ts::cast(Value(whole[{1, 0}]), ts::i32));
            const auto body = [&](const mg::PipelineIndices&, Ref a, Ref b) {
              b[all] = a[all] + whole[{ds(2, 1), all}];
            };
            const mg::BlockSpec in{.block_shape = {1, 8}, .index_map = rows, .delay_release = 1}, out{{1, 8}, rows};
            if (specialized)
              mg::emit_pipeline_warp_specialized(
                  body,
                  {.grid = {steps}, .in_specs = {in}, .out_specs = {out}, .max_concurrent_steps = 4, .wg_axis = "wg"})(
                  x, o);
            else
              mg::emit_pipeline(
                  body, {.grid = {steps}, .in_specs = {in}, .out_specs = {out}, .max_concurrent_steps = 4})(x, o);
          },
          {.out_type = {{{1, 8}, ts::f32}}, .num_threads = specialized ? 2 : 1, .thread_name = "wg"});
      const Array x = numbers({1, 8}, ts::f32, 3), whole({3, 8}, std::vector<float>(24, 1.0f));
      std::vector<float> wanted;
      for (int64_t i = 0; i < 8; ++i) wanted.push_back(static_cast<float>(x.at(i)) + 1);
      check(call, {x, whole}, Array({1, 8}, wanted));
    }
  const auto gmem = mg::kernel(
      [=](Ref x, Ref o) {
        mg::emit_pipeline(
            [&](const mg::PipelineIndices& at, Ref a, Ref b) { b[all] = a[{ds(1 - at[0], 1), all}]; },
            {.grid = {2},
             .in_specs = {{.block_shape = {1, 8}, .index_map = rows, .memory_space = ts::MemorySpace::gmem}},
             .out_specs = {{{1, 8}, rows}},
             .max_concurrent_steps = 2})(x, o);
      },
      {.out_type = {{{2, 8}, ts::f32}}});
  const Array x = numbers({2, 8}, ts::f32, 5);
  std::vector<float> turned;
  for (int64_t i = 0; i < 16; ++i) turned.push_back(static_cast<float>(x.at((i + 8) % 16)));
  check(gmem, {x}, Array({2, 8}, turned));
}

TEST_CASE("mosaic_gpu: what a semaphore's signal tells goes on to later clusters, and steps behind it do not") {
  const auto text = [](const std::string& behind) {
    return std::string(R"(tir 1
kernel @chain
grid (m: 3 parallel, wg: 1 thread)
in i32[8] whole
out i32[8] whole
out i32[8] whole
scratch ref<semaphore, i32[3]>
body (%x, %o, %p, %sem) {
  %m = program_id axis 0
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %two = constant 2 : i32[]
  %is0 = eq %m, %zero
  %is1 = eq %m, %one
  %is2 = eq %m, %two
  if %is0 {
    %v = load %x[0:8]
    store %o[0:8], %v
    semaphore_signal %sem[0], %one
)") + behind +
           R"(  }
  if %is1 {
    semaphore_wait %sem[0], %one
    semaphore_signal %sem[1], %one
  }
  if %is2 {
    semaphore_wait %sem[1], %one
    %w = load %o[0:8]
    store %p[0:8], %w
  }
}
)";
  };
  const Array x({8}, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(same(ts::interpret(ts::ir::parse(text("")), {x}, {.races = true})[1], x));
  expect(message([&] { ts::interpret(ts::ir::parse(text("    store %o[0:8], %v\n"), "k.tir"), {x}, {.races = true}); }),
         "chain: race on out_type[0], element (0,): thread (m = 2, wg = 0) loads what thread (m = 0, wg = 0) stored\n  "
         "at k.tir:28" +
             note("that was at k.tir:20 (store); nothing orders threads of different clusters"));
}

TEST_CASE("mosaic_gpu: emit_pipeline with wgmma under way across steps") {
  for (const int64_t delay : {0, 1}) {
    const auto matmul = mg::kernel(
        [delay](Ref a, Ref b, Ref o, Ref acc, Ref os) {
          const Value m = mg::axis_index("m"), n = mg::axis_index("n");
          mg::emit_pipeline(
              [&](const mg::PipelineIndices&, Ref x, Ref y) {
                mg::wgmma(acc, x, y);
                mg::wgmma_wait(delay);
              },
              {.grid = {3},
               .in_specs = {{.block_shape = {64, 16},
                             .index_map = [=](Value k) { return Indices{m, k}; },
                             .transforms = {mg::TilingTransform{{8, 16}}, mg::SwizzleTransform{32}},
                             .delay_release = delay},
                            {.block_shape = {16, 8},
                             .index_map = [=](Value k) { return Indices{k, n}; },
                             .delay_release = delay}},
               .max_concurrent_steps = 2})(a, b);
          os[all] = acc[all];
          mg::commit_smem();
          mg::copy_smem_to_gmem(os, o[{ds(m * 64, 64), ds(n * 8, 8)}]);
          mg::wait_smem_to_gmem(0);
        },
        {.out_type = {{{100, 20}, ts::f32}},  // blocks hang over the edge
         .scratch_types = {mg::ACC({64, 8}), mg::SMEM({64, 8}, ts::f32)},
         .grid = {2, 3},
         .grid_names = {"m", "n"}});
    const Array a = numbers({100, 40}, ts::bf16, 1), b = numbers({40, 20}, ts::bf16, 2);
    check(matmul, {a, b}, product(a, b));
  }
}

TEST_CASE("mosaic_gpu: emit_pipeline_warp_specialized, with a compute_context and barriers of the body's own") {
  for (const bool manual : {false, true}) {
    const mg::WarpSpecializedParams params{
        .grid = {5},
        .in_specs = {{{64, 16}, [](Value k) { return Indices{mg::axis_index("m"), k}; }},
                     {{16, 8}, [](Value k) { return Indices{k, 0}; }}},
        .max_concurrent_steps = 2,
        .wg_axis = "wg",
        .num_compute_wgs = 2,
        .manual_consumed_barriers = manual};
    const auto matmul = mg::kernel(
        [=](Ref a, Ref b, Ref o, Ref os) {
          const Value wg = mg::axis_index("wg"), m = mg::axis_index("m");
          const auto step = [=](Ref x, Ref y, Value c) {
            return c + ts::dot(ts::cast(x[{ds(wg * 32, 32), all}], ts::f32), ts::cast(y[all], ts::f32));
          };
          mg::WarpSpecializedParams p = params;
          p.compute_context = [=](const mg::PipelineCallback& pipeline) {
            const Value sum = pipeline({ts::zeros({32, 8}, ts::f32)})[0];
            os[{ds(wg * 32, 32), all}] = sum;
            mg::commit_smem();
            mg::copy_smem_to_gmem(os[{ds(wg * 32, 32), all}], o[{ds(m * 64 + wg * 32, 32), all}]);
            mg::wait_smem_to_gmem(0);
          };
          if (manual)
            mg::emit_pipeline_warp_specialized(
                [=](const mg::PipelineIndices&, Ref x, Ref y, Ref x_read, Ref y_read, Value c) {
                  const Value next = step(x, y, c);
                  mg::barrier_arrive(x_read);
                  mg::barrier_arrive(y_read);
                  return next;
                },
                p)(a, b);
          else
            mg::emit_pipeline_warp_specialized(
                [=](const mg::PipelineIndices&, Ref x, Ref y, Value c) { return step(x, y, c); }, p)(a, b);
        },
        {.out_type = {{{128, 8}, ts::f32}},
         .scratch_types = {mg::SMEM({64, 8}, ts::f32)},
         .grid = {2},
         .grid_names = {"m"},
         .num_threads = 3,
         .thread_name = "wg"});
    const Array a = numbers({128, 80}, ts::f16, 1), b = numbers({80, 8}, ts::f16, 2);
    check(matmul, {a, b}, product(a, b));
  }
}

TEST_CASE("mosaic_gpu: nd_loop deals points in turn, tile by tile if wanted") {
  for (const bool tiled : {false, true}) {
    const auto call = mg::kernel(
        [tiled](Ref o) {
          const Value x = mg::axis_index("x");
          mg::nd_loop({2, 6},
                      {.collective_axes = {"x"}, .tiling = tiled ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{}},
                      [&](const mg::NDLoopInfo& i) {
                        o[{i.index[0], i.index[1]}] = x * 100 + i.local_index * 10 + i.num_local_steps;
                      });
        },
        {.out_type = {{{2, 6}, ts::i32}}, .grid = {5}, .grid_names = {"x"}});
    std::vector<int32_t> wanted(12);
    for (int step = 0; step < 12; ++step) {
      const int row = tiled ? step % 4 / 2 : step / 6, column = tiled ? step / 4 * 2 + step % 2 : step % 6;
      wanted[static_cast<size_t>(row * 6 + column)] = step % 5 * 100 + step / 5 * 10 + (step % 5 < 2 ? 3 : 2);
    }
    check(call, {}, Array({2, 6}, wanted));
  }
  const auto counted = mg::kernel(
      [](Ref o) {
        const Value n = mg::nd_loop({7}, {.collective_axes = {"x", "wg"}}, 0,
                                    [&](const mg::NDLoopInfo& i, Value c) { return c + i.index[0]; });
        o[mg::axis_index({"x", "wg"})] = n;
      },
      {.out_type = {{{4}, ts::i32}}, .grid = {2}, .grid_names = {"x"}, .num_threads = 2, .thread_name = "wg"});
  check(counted, {}, Array({4}, std::vector<int32_t>{0 + 4, 1 + 5, 2 + 6, 3}));
}

TEST_CASE("mosaic_gpu: copies that combine, predicates, groups, semaphores and scoped memory") {
  const auto call = mg::kernel(
      [](Ref x, Ref o, Ref ready) {
        const Value wg = mg::axis_index("wg");
        mg::run_scoped(
            [&](Ref tile, Ref barrier) {
              ts::when(wg == 0, [&] {
                mg::copy_gmem_to_smem(x, tile, barrier);
                mg::barrier_wait(barrier);
                mg::copy_smem_to_gmem(tile, o, {.commit_group = false});
                mg::commit_smem_to_gmem_group();
                mg::wait_smem_to_gmem(0);
                ts::semaphore_signal(ready);
              });
              ts::when(wg == 1, [&] {
                ts::semaphore_wait(ready);
                mg::barrier_wait(barrier);
                mg::copy_gmem_to_smem(x, tile.at({all}), barrier);
                mg::barrier_wait(barrier);
              });
            },
            {mg::SMEM({8}, ts::f32), mg::Barrier{}}, {.collective_axes = {"wg"}});
        mg::run_scoped(
            [&](Ref tile, Ref barrier) {
              ts::when(wg == 1, [&] {
                tile[all] = ts::zeros({8}, ts::f32) + 2.0f;
                mg::commit_smem();
                mg::copy_smem_to_gmem(tile, o, {.predicate = wg == 1, .reduction_op = "add"});
                mg::copy_smem_to_gmem(tile, o, {.predicate = wg == 0, .reduction_op = "add"});
                mg::wait_smem_to_gmem(1, true);
                mg::wait_smem_to_gmem(0);
                mg::barrier_arrive(barrier);
              });
              ts::when(wg == 0, [&] { mg::barrier_wait(barrier); });
            },
            {mg::SMEM({8}, ts::f32), mg::Barrier{}}, {.collective_axes = {"wg"}});
      },
      {.out_type = {{{8}, ts::f32}},
       .scratch_types = {ts::SemaphoreType::REGULAR()},
       .num_threads = 2,
       .thread_name = "wg"});
  const Array x = numbers({8}, ts::f32, 5);
  std::vector<float> wanted;
  for (int64_t i = 0; i < 8; ++i) wanted.push_back(static_cast<float>(x.at(i) + 2));
  check(call, {x}, Array({8}, wanted));
}

}  // namespace mosaic_gpu_test
