// mosaic_gpu::kernel: exact errors, of parameters, of ops, and of what the interpreter finds: deadlocks, races, waits
// and arrivals that do not fit.
#include <doctest/doctest.h>

#include <string>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace mosaic_gpu_errors_test {

namespace ts = tessera;
namespace mg = tessera::mosaic_gpu;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Array, ts::ds, ts::Ref, ts::Value;

namespace {
/// Two threads that share a tile and a barrier.
template <class F> std::string found(F body) {
  return message([&] {
    const mg::KernelParams params{.out_type = {{{8}, ts::f32}},
                                  .scratch_types = {mg::SMEM({8}, ts::f32), mg::Barrier{}},
                                  .num_threads = 2,
                                  .thread_name = "wg",
                                  .kernel_name = "k"};
    ts::interpret(mg::kernel(body, params), {Array({8}, ts::f32)}, {.races = true});
  });
}
template <class F> void on_thread(int thread, F f) { ts::when(mg::axis_index("wg") == thread, f); }
void nothing(Ref) {}
std::string params(const mg::KernelParams& p, ts::Loc loc) {
  mg::KernelParams named = p;
  named.kernel_name = "k";
  return message([&] { mg::kernel([](Ref r) { nothing(r); }, named, loc); });
}
std::string scratch(const mg::ScratchType& type) {
  return message(
      [&] { mg::kernel([](Ref r) { nothing(r); }, {.scratch_types = {type}, .kernel_name = "k"}).trace({}); });
}
}  // namespace

TEST_CASE("mosaic_gpu errors: deadlocks name every thread, the barrier, its phase and the lines") {
  int line = __LINE__;
  expect(found([](Ref, Ref, Ref, Ref b) { on_thread(0, [&] { mg::barrier_wait(b); }); }),
         "k: deadlock: thread (wg = 0) waits at scratch_types[1][0] for its phase 1, with 0 of 1 arrivals; thread (wg "
         "= 1) has ended" +
             at(line + 1) + note("no thread can go on, and no copy is under way that could arrive"));
  line = __LINE__;
  expect(found([](Ref x, Ref, Ref t, Ref b) {
           on_thread(0, [&] { mg::copy_gmem_to_smem(x, t, b); });
           mg::barrier_wait(b);
           mg::barrier_wait(b);
         }),
         "k: deadlock: thread (wg = 0) waits at scratch_types[1][0] for its phase 2, with 0 of 1 arrivals; thread (wg "
         "= 1) waits at "
         "scratch_types[1][0] for its phase 2, with 0 of 1 arrivals" +
             (", at" + at(line + 4).substr(5)) + at(line + 4) +
             note("no thread can go on, and no copy is under way that could arrive"));
}

TEST_CASE("mosaic_gpu errors: races name the element, both threads and both lines") {
  int line = __LINE__;
  expect(found([](Ref, Ref o, Ref t, Ref) {
           on_thread(0, [&] { t[all] = 1.0f; });
           on_thread(1, [&] { o[all] = t[all]; });
         }),
         "k: race on scratch_types[0], element (0,): thread (wg = 1) loads what thread (wg = 0) stored" + at(line + 3) +
             note("that was at" + at(line + 2).substr(5) + " (store); no barrier in between orders the two threads"));
  line = __LINE__;
  expect(found([](Ref x, Ref o, Ref, Ref) { o[all] = x[all]; }),
         "k: race on out_type[0], element (0,): thread (wg = 1) stores what thread (wg = 0) stored" + at(line + 1) +
             note("that was at" + at(line + 1).substr(5) + " (store); no barrier in between orders the two threads"));
  line = __LINE__;
  expect(found([](Ref x, Ref o, Ref t, Ref b) {
           on_thread(0, [&] {
             mg::copy_gmem_to_smem(x, t, b);
             o[all] = t[all];
           });
         }),
         "k: race on scratch_types[0], element (0,): thread (wg = 0) loads what it had begun to write" + at(line + 4) +
             note("that was at" + at(line + 3).substr(5) +
                  " (copy_gmem_to_smem); no wait in between tells that it has ended"));
  line = __LINE__;
  expect(found([](Ref, Ref o, Ref t, Ref) {
           on_thread(0, [&] {
             t[all] = 1.0f;
             mg::copy_smem_to_gmem(t, o);
             mg::wait_smem_to_gmem(0);
           });
         }),
         "k: copy_smem_to_gmem by thread (wg = 0) reads scratch_types[0], element (0,), whose store by thread (wg = 0) "
         "is not committed" +
             at(line + 4) +
             note("that was at" + at(line + 3).substr(5) +
                  "; commit_smem() between a store to smem and a copy or wgmma that reads it"));
  line = __LINE__;
  expect(message([] {
           const auto k =
               mg::kernel([](Ref o) { o[0] = mg::axis_index("i"); },
                          {.out_type = {{{1}, ts::i32}}, .grid = {2}, .grid_names = {"i"}, .kernel_name = "k"});
           ts::interpret(k, std::vector<Array>{}, {.races = true});
         }),
         "k: race on out_type[0], element (0,): thread (i = 1, 0) stores what thread (i = 0, 0) stored" + at(line + 3) +
             note("that was at" + at(line + 3).substr(5) + " (store); nothing orders threads of different clusters"));
}

TEST_CASE("mosaic_gpu errors: arrivals, phases and copies that do not fit") {
  int line = __LINE__;
  expect(found([](Ref x, Ref, Ref t, Ref b) {
           on_thread(0, [&] {
             mg::copy_gmem_to_smem(x[{ds(0, 4)}], t[{ds(0, 4)}], b);
             mg::copy_gmem_to_smem(x[{ds(4, 4)}], t[{ds(4, 4)}], b);
             mg::barrier_wait(b);
           });
         }),
         "k: copy_gmem_to_smem by thread (wg = 0) arrives at scratch_types[1][0], whose phase 1 has its 1 arrival "
         "already" +
             at(line + 4) +
             note("copies that arrive there are under way: wait for the phase before the next arrival, or raise "
                  "num_arrivals"));
  line = __LINE__;
  expect(
      found([](Ref, Ref, Ref, Ref b) {
        on_thread(0, [&] {
          mg::barrier_arrive(b);
          mg::barrier_arrive(b);
        });
        on_thread(1, [&] { mg::barrier_wait(b); });
      }),
      "k: barrier_wait by thread (wg = 1) for phase 1 of scratch_types[1][0], of which 2 have ended" + at(line + 7) +
          note("a barrier tells a phase from the one before alone: a thread that waits there waits for every phase"));
  line = __LINE__;
  expect(found([](Ref, Ref, Ref, Ref b) { mg::barrier_arrive(b[mg::axis_index("wg")]); }),
         "k: barrier_arrive by thread (wg = 1): barrier 1 of scratch_types[1], which has 1 along dim 0" + at(line + 1) +
             note("barriers are not clamped"));
  line = __LINE__;
  expect(found([](Ref x, Ref, Ref t, Ref b) { on_thread(0, [&] { mg::copy_gmem_to_smem(x, t, b); }); }),
         "k: copy_gmem_to_smem by thread (wg = 0) is still under way at the end of its program" + at(line + 1) +
             note("barrier_wait() for every copy: scratch_types[1][0] has none left"));
  line = __LINE__;
  expect(found([](Ref, Ref o, Ref t, Ref) {
           on_thread(0, [&] {
             t[all] = 1.0f;
             mg::commit_smem();
             mg::copy_smem_to_gmem(t, o);
           });
         }),
         "k: copy_smem_to_gmem by thread (wg = 0) may still read smem at the end of the thread" + at(line + 5) +
             note("wait_smem_to_gmem(0) before the end"));
}

TEST_CASE("mosaic_gpu errors: ops") {
  expect(found([](Ref, Ref, Ref, Ref) { mg::axis_index("q"); }),
         "k: axis_index: there is no axis \"q\"" + at(__LINE__ - 1) + note("the axes are wg"));
  expect(found([](Ref x, Ref, Ref t, Ref b) { mg::copy_gmem_to_smem(t, x, b); }),
         "k: copy_gmem_to_smem: the source is in smem, not in gmem" + at(__LINE__ - 1));
  expect(found([](Ref x, Ref, Ref t, Ref b) { mg::copy_gmem_to_smem(x[{ds(0, 4)}], t, b); }),
         "k: copy_gmem_to_smem: the source is (4,) but the target is (8,)" + at(__LINE__ - 1) +
             note("a copy does not change shapes: index both alike"));
  expect(found([](Ref, Ref, Ref t, Ref) { mg::barrier_arrive(t); }),
         "k: barrier_arrive: the barrier is a Ref in smem" + at(__LINE__ - 1) + note("Barrier{} makes one"));
  expect(found([](Ref, Ref, Ref, Ref b) { const Value v = b[0]; }),
         "k: load: the ref is a barrier, ref<barrier, i32[1]>" + at(__LINE__ - 1) +
             note("threads arrive and wait at barriers"));
  expect(found([](Ref x, Ref, Ref, Ref) { mg::tcgen05_mma(x, x, x); }),
         "k: tcgen05_mma: tcgen05 is Blackwell's, and Tessera has Hopper's wgmma" + at(__LINE__ - 1));
  expect(found([](Ref x, Ref, Ref, Ref) { mg::remote_ref(x, 1); }),
         "k: remote_ref: memory of other devices: a kernel runs on one" + at(__LINE__ - 1));
  expect(found([](Ref, Ref, Ref, Ref) { mg::wait_load_tmem(); }),
         "k: wait_load_tmem: tensor memory is Blackwell's; accumulators are ACC" + at(__LINE__ - 1));
  expect(found([](Ref, Ref, Ref, Ref) { mg::set_max_registers(41, "increase"); }),
         "k: set_max_registers: n is 41, not a multiple of 8 from 24 to 256" + at(__LINE__ - 1));
  expect(found([](Ref, Ref, Ref, Ref) { mg::run_scoped([](Ref) {}, {mg::SMEM({4}, ts::f32)}); }),
         "k: run_scoped: type 0 is ref<smem, f32[4]>, which the 2 threads of a program would share" + at(__LINE__ - 1) +
             note("collective_axes = {thread_name}, where all of them enter; or list it in scratch_types"));
  expect(found([](Ref x, Ref o, Ref, Ref) { ts::sync_copy(x, o); }),
         "k: sync_copy: is not for kernels of mosaic_gpu" + at(__LINE__ - 1) +
             note("mosaic_gpu::copy_gmem_to_smem and copy_smem_to_gmem are"));
  expect(message([] {
           ts::pallas_call([](Ref, Ref) { mg::commit_smem(); }, {.out_shape = {{{8}, ts::f32}}, .name = "k"})
               .trace({{{8}, ts::f32}});
         }),
         "k: commit_smem: stands in a kernel that is not one of mosaic_gpu" + at(__LINE__ - 3) +
             note("mosaic_gpu::kernel makes one"));
}

TEST_CASE("mosaic_gpu errors: parameters") {
  const ts::Loc here = ts::Loc::here();
  const std::string line = at(static_cast<int>(here.line));
  expect(params({.grid = {3}}, here),
         "k: the grid has 1 axis but grid_names has 0" + line + note("a name per axis: axis_index() takes it"));
  expect(params({.num_threads = 3}, here),
         "k: num_threads is given but no thread_name" + line + note("give both or neither"));
  expect(params({.num_threads = 9, .thread_name = "wg"}, here),
         "k: num_threads is 9, not from 1 to 8" + line +
             note("a thread is a warpgroup of 128 invocations, of which a program has at most 1024"));
  expect(params({.cluster = {4, 8}, .cluster_names = {"a", "b"}}, here),
         "k: the cluster (4, 8) has more than 16 programs" + line + note("a cluster has at most so many on sm_90a"));
  expect(params({.cluster = {1, 1, 1, 2}, .cluster_names = {"a", "b", "c", "d"}}, here),
         "k: the cluster has 4 axes" + line + note("a cluster has at most 3"));
  expect(params({.grid = {1}, .grid_names = {"a"}, .cluster = {4}, .cluster_names = {"a"}}, here),
         "k: two axes are called \"a\"" + line +
             note("grid_names, cluster_names and thread_name differ, so that axis_index() finds one axis"));
  expect(
      params({.out_shape = {{{8}, ts::f32}}, .out_type = {{{8}, ts::f32}}}, here),
      "k: out_type and out_shape are given" + line + note("out_shape is the old name of out_type: give one of them"));
  expect(scratch(mg::SMEM({8, 60}, ts::f16, {mg::TilingTransform{{8, 32}}})),
         "k: scratch_types[0]: tiles of (8, 32) do not divide (8, 60)" + at(__LINE__ - 1) +
             note("a tile has at most as many dims as the memory, and divides its last ones; there is one "
                  "TilingTransform"));
  expect(scratch(mg::SMEM({8, 64}, ts::f16, {mg::TilingTransform{{8, 32}}, mg::SwizzleTransform{128}})),
         "k: scratch_types[0]: tiles of (8, 32) have rows of 64 bytes, but the swizzle is over 128" + at(__LINE__ - 1) +
             note("the last dim of a tile fills the swizzle"));
  expect(scratch(mg::ClusterBarrier{.collective_axes = {"c"}}),
         "k: scratch_types[0]: collective_axes: \"c\" is no axis of the cluster" + at(__LINE__ - 1) +
             note("no axis has a name"));
}

TEST_CASE("mosaic_gpu errors: the verifier") {
  const auto problems = [](const std::string& text) {
    return message([&] { ts::ir::check(ts::ir::parse("tir 1\n" + text, "k.tir")); });
  };
  expect(problems("kernel @k\ngrid (2 thread, 3)\nbody () {\n}\n"),
         "k: 1 problem\n  grid axis 1: must come before cluster and thread axes\n    at k.tir:2");
  expect(problems("kernel @k\ngrid (2 cluster)\nbody () {\n}\n"),
         "k: 1 problem\n  k: has cluster axes but no thread axis behind them\n    at k.tir:2");
  expect(problems("kernel @k\nscratch ref<barrier, i32[2], arrivals 2>\nbody (%b) {\n}\n"),
         "k: 1 problem\n  scratch[0]: ref<barrier, i32[2], arrivals 2> belongs to kernels of threads\n    at k.tir:2");
  expect(problems("kernel @k\ngrid (2 thread)\nin f32[8] block (8) map (%i) { yield %i }\nbody (%x) {\n}\n"),
         "k: 1 problem\n  operands[0]: has blocks, and kernels of threads take whole arrays\n    at k.tir:4");
  expect(problems("kernel @k\nbody () {\n  commit_smem\n}\n"),
         "k.tir:4:3: commit_smem: stands in a kernel without threads\n    commit_smem\n    ^\n  note: "
         "mosaic_gpu::kernel makes "
         "one: the last axis of its grid is `thread`");
}

TEST_CASE("mosaic_gpu errors: dtypes that wgmma does not sum") {
  const auto sums = [](const std::string& in, const std::string& sum) {
    return message([&] {
      ts::ir::check(ts::ir::parse("tir 1\nkernel @k\ngrid (1 thread)\nscratch ref<smem, " + in +
                                      "[8, 8]>\nscratch ref<accumulator, " + sum +
                                      "[8, 8]>\nbody (%a, %c) {\n  wgmma %a[0:8, 0:8] with %a[0:8, 0:8] to %c[0:8, "
                                      "0:8]\n}\n",
                                  "k.tir"));
    });
  };
  for (const auto& [in, sum] : std::vector<std::pair<std::string, std::string>>{{"i8", "f32"},
                                                                                {"f16", "i32"},
                                                                                {"f64", "f64"},
                                                                                {"f32", "f64"},
                                                                                {"f32", "f16"},
                                                                                {"bool", "bool"},
                                                                                {"i32", "i8"},
                                                                                {"i32", "i64"},
                                                                                {"u8", "u32"},
                                                                                {"i64", "i64"}})
    expect(sums(in, sum),
           "k.tir:7:3: wgmma: operands of " + in + " cannot be summed in an accumulator of " + sum +
               "\n    wgmma %a[0:8, 0:8] with %a[0:8, 0:8] to %c[0:8, 0:8]\n    ^\n  note: floats up to f32 are summed "
               "in f32, f16 and floats of 8 bits also in f16; integers up to i32 in i32");
  for (const auto& [in, sum] : std::vector<std::pair<std::string, std::string>>{
           {"f16", "f16"}, {"bf16", "f32"}, {"f8e5m2", "f16"}, {"f32", "f32"}, {"i8", "i32"}, {"u8", "i32"}})
    CHECK(sums(in, sum) == "no error");
}

}  // namespace mosaic_gpu_errors_test
