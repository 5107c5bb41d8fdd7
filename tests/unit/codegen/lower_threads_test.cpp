// Kernels of threads on their way to programs: those whose programs have one thread compute what the interpreter
// computes, for every kind of target; the others are refused with the barrier's name and line.
#include "codegen/tile/lower_threads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/front.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/messages.h"
#include "tests/support/parsed.h"

namespace lower_threads_test {
using namespace tessera;
using tessera::test::message, tessera::test::parse;

namespace {
std::string refused(const std::string& text) {
  return message([&] { compile(parse(text), lavapipe_target(), {}); });
}
}  // namespace

TEST_CASE("threads: kernels of one thread are compiled as the interpreter runs them") {
  const std::map<std::string, std::string> refusals = {
      {"gmem_scratch", "gmem_scratch: programs share scratch_types[0], scratch in gmem"},
      {"meeting_again", "meeting_again: its 2 threads wait for each other at scratch_types[1], a barrier"},
      {"counted", "counted: its 2 threads share scratch_types[0]"},
      {"meeting", "meeting: its 2 threads share scratch_types[0]"},
      {"spinning", "spinning: programs wait for each other by scratch_types[0], a semaphore"},
      {"matmul_ring", "matmul_ring: its 2 threads wait for each other at scratch_types[3], a barrier"},
      {"own_tile_in_a_ring", "own_tile_in_a_ring: its 2 threads wait for each other at scratch_types[1], a barrier"},
      {"scan_over_itself", "scan_over_itself: its 2 threads wait for each other at scratch_types[1], a barrier"},
      {"pipeline_specialized", "pipeline_specialized: its 3 threads wait for each other at run_scoped[2], a barrier"},
      {"scoped_and_semaphores",
       "scoped_and_semaphores: its 2 threads wait for each other at run_scoped[1], a barrier"}};
  int compiled = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/tir/threads")) {
    if (entry.path().extension() != ".tir") continue;
    std::ifstream in(entry.path());
    const std::string name = entry.path().stem().string(),
                      text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    CAPTURE(name);
    const ir::Kernel k = ir::parse(text, entry.path().string());
    if (const auto it = refusals.find(name); it != refusals.end()) {
      CHECK(message([&] { compile(k, lavapipe_target(), {}); }).starts_with(it->second));
      continue;
    }
    std::vector<Array> arrays;
    DimValues dims;
    for (const std::string& size : k.dim_names()) dims[size] = 7;
    for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) {
      const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
      Array a(bind_shape(k, i, dims), b.dtype);
      for (int64_t j = 0; j < a.size() && i < k.num_inputs; ++j)
        a.set_element_bits(j, reference::from_double(b.dtype, static_cast<double>((j * 7 + i) % 11 - 5)));
      arrays.push_back(std::move(a));
    }
    const std::vector<Array> inputs(arrays.begin(), arrays.begin() + k.num_inputs);
    const std::vector<Array> wanted = interpret(k, inputs, {.dims = dims});
    for (const Target& target : {lavapipe_target(), gpu_target(), Target::nvidia("sm_90a")}) {
      std::optional<ir::Kernel> lanes;
      CompileOptions options;
      options.dump = [&](std::string_view, const ir::Kernel& now, bool) {
        if (now.level == ir::Level::lane) lanes = now;
      };
      compile(k, target, options);
      REQUIRE(lanes);
      const lane::RunResult got = lane::run(*lanes, arrays, k.num_inputs, dims);
      CHECK(got.reports == std::vector<std::string>{});
      for (size_t o = 0; o < wanted.size(); ++o)
        CHECK(std::equal(wanted[o].bytes(), wanted[o].bytes() + wanted[o].nbytes(), got.outputs[o].bytes()));
    }
    ++compiled;
  }
  CHECK(compiled >= 5);
}

TEST_CASE("threads: barriers go, smem is private scratch, copies are loads and stores, wgmma is a dot") {
  ir::Kernel k = parse(R"(kernel @k
grid (m: 2 parallel, wg: 1 thread)
in f16[100, 32] whole
in f16[32, 16] whole
out f32[128, 16] whole
scratch ref<barrier, i32[1], arrivals 2>
scratch ref<smem, f16[64, 32], tiling [8, 32], swizzle 64>
scratch ref<smem, f16[32, 16]>
scratch ref<accumulator, f32[64, 16]>
body (%a, %b, %o, %full, %as, %bs, %acc) {
  %m = program_id axis 0
  %64 = constant 64 : i32[]
  %row = mul %m, %64
  copy_gmem_to_smem %a[ds(%row, 64), 0:32] to %as[0:64, 0:32] with %full[0]
  copy_gmem_to_smem %b[0:32, 0:16] to %bs[0:32, 0:16] with %full[0]
  barrier_wait %full[0]
  wgmma %as[0:64, 0:32] with %bs[0:32, 0:16] to %acc[0:64, 0:16]
  wgmma_wait count 0
  %sum = load %acc[0:64, 0:16]
  store %o[ds(%row, 64), 0:16], %sum
}
)");
  CHECK(lowering::lower_threads(k));
  CHECK(ir::print(k) == R"(tir 1
kernel @k
grid (m: 2 parallel)
in "operands[0]" f16[100, 32] whole
in "operands[1]" f16[32, 16] whole
out "out_type[0]" f32[128, 16] whole
scratch ref<vmem, f16[64, 32]> private
scratch ref<vmem, f16[32, 16]> private
scratch ref<vmem, f32[64, 16]> private
body (%0: ref<any, f16[100, 32]>, %1: ref<any, f16[32, 16]>, %2: ref<any, f32[128, 16]>, %3: ref<vmem, f16[64, 32]>, %4: ref<vmem, f16[32, 16]>, %5: ref<vmem, f32[64, 16]>) {
  %6 = constant 0.0 : f32[64, 16]
  store %5[0:64, 0:16], %6
  %7 = program_id axis 0 : i32[]
  %8 = constant 64 : i32[]
  %9 = mul %7, %8 : i32[]
  %10 = constant true : bool[64, 32]
  %11 = constant 0.0 : f16[64, 32]
  %12 = load %0[ds(%9, 64), 0:32] mask %10 other %11 : f16[64, 32]
  store %3[0:64, 0:32], %12
  %13 = load %1[0:32, 0:16] : f16[32, 16]
  store %4[0:32, 0:16], %13
  %14 = load %3[0:64, 0:32] : f16[64, 32]
  %15 = load %4[0:32, 0:16] : f16[32, 16]
  %16 = load %5[0:64, 0:16] : f32[64, 16]
  %17 = dot %14, %15 lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 16]
  %18 = add %16, %17 : f32[64, 16]
  store %5[0:64, 0:16], %18
  %19 = load %5[0:64, 0:16] : f32[64, 16]
  store %2[ds(%9, 64), 0:16], %19
}
)");
}

TEST_CASE("threads: what is refused names the barrier or the memory, and the line") {
  const std::string
      one = "one thread, or of threads that share nothing, are compiled, and for nvidia:sm_80 and newer others too; ",
      interpreter = "the interpreter runs the kernel: ts::interpret, or --device interpreter";
  CHECK(refused("kernel @k\ngrid (wg: 2 thread)\nscratch ref<barrier, i32[1]>\nbody (%b) {\n  barrier_arrive %b[0]\n  "
                "barrier_wait %b[0]\n}\n") ==
        "k: its 2 threads wait for each other at scratch_types[0], a barrier that is no barrier of a workgroup\n  at "
        "k.tir:7\n  note: for this target kernels of " +
            one + interpreter);
  CHECK(refused("kernel @k\ngrid (wg: 2 thread)\nscratch ref<smem, i32[2]>\nbody (%s) {\n  %i = program_id axis 0\n  "
                "store %s[%i], %i\n}\n") ==
        "k: its 2 threads share scratch_types[0]\n  at k.tir:7\n  note: for this target kernels of " + one +
            interpreter);
  CHECK(
      refused("kernel @k\ngrid (2 parallel, 1 thread)\nscratch ref<semaphore, i32[]>\nbody (%s) {\n  %i = constant 1 : "
              "i32[]\n  semaphore_signal %s[], %i\n  semaphore_wait %s[], %i\n}\n") ==
      "k: programs wait for each other by scratch_types[0], a semaphore\n  at k.tir:7\n  note: " + interpreter);
  CHECK(refused("kernel @k\ngrid (c: 2 cluster, 1 thread)\nin i32[4] whole\nscratch ref<smem, i32[2]>\nscratch "
                "ref<barrier, i32[]>\nbody (%x, %s, %b) {\n  %c = program_id axis 0\n  copy_gmem_to_smem %x[ds(%c, 2)] "
                "to %s[0:2] with %b[] axes [0]\n  barrier_wait %b[]\n}\n") ==
        "k: the programs of a cluster may bring different parts of operands[0] to each other\n  at k.tir:9\n  note: "
        "without "
        "collective_axes each brings its own; " +
            interpreter);
  CHECK(refused("kernel @k\ngrid (c: 2 cluster, 1 thread)\nout i32[2] whole\nout i32[2] whole\nscratch "
                "ref<cluster_barrier, i32[], axes [0]>\nbody (%x, %o, %b) {\n  %c = program_id axis 0\n  store %x[%c], "
                "%c\n  barrier_arrive %b[]\n  barrier_wait %b[]\n  %v = load %x[0:2]\n  store %o[0:2], %v\n}\n") ==
        "k: programs of a cluster wait for each other at scratch_types[0], which may order what they do to "
        "out_type[0]: store (k.tir:9), and in another load (k.tir:12)\n  at k.tir:10\n  note: " +
            interpreter);
}

TEST_CASE("threads: threads that meet, and clusters whose order or whose copies matter, are refused") {
  const std::string
      interpreter = "the interpreter runs the kernel: ts::interpret, or --device interpreter",
      one =
          "\n  note: for this target kernels of one thread, or of threads that share nothing, are compiled, and for "
          "nvidia:sm_80 and newer others too; " +
          interpreter,
      each = "\n  note: without collective_axes each brings its own; " + interpreter;
  CHECK(refused("kernel @k\ngrid (wg: 2 thread)\nbody () {\n  run_scoped (%s: ref<smem, i32[2]>) {\n  }\n}\n") ==
        "k: its 2 threads meet at a run_scoped of memory that they share\n  at k.tir:5" + one);
  const std::string two = "kernel @k\ngrid (c: 2 cluster, 1 thread)\n";
  const auto ordered = [&](const std::string& before, const std::string& behind) {
    return refused(two +
                   "in i32[2] whole\nout i32[2] whole\nscratch ref<smem, i32[2]>\nscratch ref<cluster_barrier, "
                   "i32[], axes [0]>\nbody (%x, %o, %s, %cb) {\n  %c = program_id axis 0\n  %v = load %x[0:2]\n" +
                   before + "  barrier_arrive %cb[]\n  barrier_wait %cb[]\n" + behind + "}\n");
  };
  const std::string order =
      "k: programs of a cluster wait for each other at scratch_types[1], which may order what they do to out_type[0]: ";
  CHECK(ordered("  store %o[0:2], %v\n", "  copy_smem_to_gmem %s[0:2] to %o[0:2] kind add\n") ==
        order + "store (k.tir:11), and in another copy_smem_to_gmem (k.tir:14)\n  at k.tir:12\n  note: " + interpreter);
  CHECK(ordered("  store %o[0:2], %v\n", "  store %o[0:2], %v\n") ==
        order + "store (k.tir:11), and in another store (k.tir:14)\n  at k.tir:12\n  note: " + interpreter);
  CHECK(ordered("  %i = atomic_rmw %o[0:2], %v kind add\n", "  %j = atomic_rmw %o[0:2], %v kind max\n") ==
        order + "atomic_rmw (k.tir:11), and in another atomic_rmw (k.tir:14)\n  at k.tir:12\n  note: " + interpreter);
  // Additions have no order; elements of their own, and what stands before or behind all barriers, need none.
  CHECK(ordered("  %i = atomic_rmw %o[0:2], %v kind add\n", "  %j = atomic_rmw %o[0:2], %v kind add\n") == "no error");
  CHECK(ordered("  store %o[%c], %c\n", "  store %o[%c], %c\n") == "no error");
  CHECK(ordered("", "  store %o[0:2], %v\n  store %o[0:2], %v\n") == "no error");
  // Places that i32 cannot hold wrap, so that nothing is known of them.
  const auto far = [&](const std::string& factor) {
    const std::string copy = "  copy_smem_to_gmem %s[0:2] to %o[ds(%row, 2)]\n";
    return ordered("  %big = constant 1073741824 : i32[]\n  %n = constant " + factor +
                       " : i32[]\n  %part = mul %c, %big\n  %row = mul %part, %n\n" + copy,
                   copy);
  };
  CHECK(far("1") == "no error");
  CHECK(far("-1") == "no error");
  for (const std::string n : {"2", "-2", "4"})
    CHECK(far(n) ==
          order + "copy_smem_to_gmem (k.tir:15), and in another copy_smem_to_gmem (k.tir:18)\n  at k.tir:16\n  note: " +
              interpreter);
  // Stores that may hang over move, so that programs may meet: where the grid's size comes with the call, and where i32
  // would wrap.
  const auto rows = [&](const std::string& n, const std::string& factor) {
    const std::string store = "  store %o[ds(%row, 2)], %v\n";
    return refused("kernel @k\ngrid (n: " + n +
                   ", c: 2 cluster, 1 thread)\nin i32[2] whole\nout i32[8] whole\nscratch "
                   "ref<cluster_barrier, i32[], axes [1]>\nbody (%x, %o, %cb) {\n  %i = program_id axis 0\n  %c = "
                   "program_id axis 1\n  %v = load %x[0:2]\n  %2 = constant 2 : i32[]\n  %f = constant " +
                   factor + " : i32[]\n  %first = mul %i, %f\n  %own = mul %c, %2\n  %row = add %first, %own\n" +
                   store + "  barrier_arrive %cb[]\n  barrier_wait %cb[]\n" + store + "}\n");
  };
  const std::string meet =
      "k: programs of a cluster wait for each other at scratch_types[0], which may order what they "
      "do to out_type[0]: store (k.tir:16), and in another store (k.tir:19)\n  at k.tir:17\n  note: " +
      interpreter;
  CHECK(rows("2", "4") == "no error");
  CHECK(rows("3", "4") == meet);
  CHECK(rows("m", "4") == meet);
  CHECK(rows("5", "1073741824") == meet);
  const auto copied = [&](const std::string& copy) {
    return refused(two +
                   "in i32[4, 2] whole\nscratch ref<smem, i32[2, 2]>\nscratch ref<smem, i32[1]>\nscratch ref<barrier, "
                   "i32[2]>\nbody (%x, %s, %t, %full) {\n  %c = program_id axis 0\n" +
                   copy + "  barrier_wait %full[0]\n}\n");
  };
  CHECK(copied("  copy_gmem_to_smem %x[0, 0:2] to %s[%c, 0:2] with %full[0] axes [0]\n") ==
        "k: the programs of a cluster may bring elements to different parts of scratch_types[0]\n  at k.tir:10" + each);
  CHECK(copied("  copy_gmem_to_smem %x[0, 0:2] to %s[0, 0:2] with %full[%c] axes [0]\n") ==
        "k: the programs of a cluster may share a copy that arrives at different barriers of scratch_types[2]\n  at "
        "k.tir:10" +
            each);
  CHECK(copied("  store %t[0], %c\n  %row = load %t[0]\n  copy_gmem_to_smem %x[%row, 0:2] to %s[0, 0:2] with %full[0] "
               "axes [0]\n") ==
        "k: the programs of a cluster may bring different parts of operands[0] to each other\n  at k.tir:12" + each);
  CHECK(copied("  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n  %2 = constant 2 : i32[]\n  for %i = %0 to %2 "
               "step %1 {\n    %mine = eq %i, %c\n    if %mine {\n      copy_gmem_to_smem %x[%i, 0:2] to %s[0, 0:2] "
               "with %full[0] axes [0]\n    }\n  }\n") ==
        "k: the programs of a cluster may do a copy that they share in different steps of their control flow: if "
        "(k.tir:15)\n  at k.tir:16" +
            each);
}

TEST_CASE("threads: what programs of a cluster share may come by branches and loops if it is the same in all of them") {
  const auto copied = [](const std::string& before) {
    return refused(
        "kernel @k\ngrid (c: 2 cluster, 1 thread)\nin i32[4, 2] whole\nin i32[4] whole\nscratch ref<smem, i32[2]>\n"
        "scratch ref<barrier, i32[1]>\nbody (%x, %n, %s, %full) {\n  %c = program_id axis 0\n  %0 = constant 0 : "
        "i32[]\n"
        "  %1 = constant 1 : i32[]\n  %a = load %n[0]\n  %p = lt %a, %1\n  %mine = lt %c, %1\n" +
        before + "  copy_gmem_to_smem %x[%row, 0:2] to %s[0:2] with %full[0] axes [0]\n  barrier_wait %full[0]\n}\n");
  };
  const auto differs = [](const std::string& message) {
    return message.starts_with(
        "k: the programs of a cluster may bring different parts of operands[0] to each other\n  at k.tir:");
  };
  const auto chosen = [&](const std::string& by, const std::string& first, const std::string& second) {
    return copied("  %row = if " + by + " { yield " + first + " } else { yield " + second + " }\n");
  };
  CHECK(chosen("%p", "%0", "%a") == "no error");
  CHECK(differs(chosen("%p", "%c", "%a")));
  CHECK(differs(chosen("%p", "%a", "%c")));
  CHECK(differs(chosen("%mine", "%0", "%a")));
  const auto by_case = [&](const std::string& by, const std::string& last) {
    return copied("  %row = switch " + by + " case 0 { yield %0 } case 1 { yield %a } case 2 { yield " + last + " }\n");
  };
  CHECK(by_case("%a", "%1") == "no error");
  CHECK(differs(by_case("%a", "%c")));
  CHECK(differs(by_case("%c", "%1")));
  const auto counted = [&](const std::string& up_to, const std::string& from, const std::string& by) {
    return copied("  %row = for %i = %0 to " + up_to + " step %1 carry (%r = " + from + ") {\n    %more = add %r, " +
                  by + "\n    yield %more\n  }\n");
  };
  CHECK(counted("%a", "%0", "%1") == "no error");
  CHECK(differs(counted("%c", "%0", "%1")));
  CHECK(differs(counted("%a", "%c", "%1")));
  CHECK(differs(counted("%a", "%0", "%c")));
  const auto tested = [&](const std::string& up_to, const std::string& from, const std::string& by) {
    return copied("  %row = while (%i = " + from + ") {\n    %t = lt %i, " + up_to +
                  "\n    yield %t\n  } do (%j) {\n    %more = add %j, " + by + "\n    yield %more\n  }\n");
  };
  CHECK(tested("%a", "%0", "%a") == "no error");
  CHECK(differs(tested("%c", "%0", "%a")));
  CHECK(differs(tested("%a", "%c", "%a")));
  CHECK(differs(tested("%a", "%0", "%c")));
  // In the loop itself: the counter, and what the loop carries.
  const auto inside = [](const std::string& row, const std::string& from, const std::string& by) {
    return refused(
        "kernel @k\ngrid (c: 2 cluster, 1 thread)\nin i32[4, 2] whole\nin i32[4] whole\nscratch ref<smem, i32[2]>\n"
        "scratch ref<barrier, i32[1]>\nbody (%x, %n, %s, %full) {\n  %c = program_id axis 0\n  %0 = constant 0 : "
        "i32[]\n"
        "  %1 = constant 1 : i32[]\n  %a = load %n[0]\n  %last = for %i = %0 to %a step %1 carry (%r = " +
        from + ") {\n    copy_gmem_to_smem %x[" + row +
        ", 0:2] to %s[0:2] with %full[0] axes [0]\n    barrier_wait %full[0]\n    %more = add %r, " + by +
        "\n    yield %more\n  }\n}\n");
  };
  CHECK(inside("%i", "%c", "%c") == "no error");
  CHECK(inside("%r", "%0", "%a") == "no error");
  CHECK(differs(inside("%r", "%c", "%a")));
  CHECK(differs(inside("%r", "%0", "%c")));
  // What the kernel stores to, itself or by an alias, may be what another program has left there.
  const auto loaded = [](const std::string& alias, const std::string& from) {
    return refused("kernel @k\ngrid (c: 2 cluster, 1 thread)\nin i32[4, 2] whole\nin i32[4] whole\nout i32[4] " +
                   alias +
                   "whole\nscratch ref<smem, i32[2]>\nscratch ref<barrier, i32[1]>\nbody (%x, %n, %o, %s, %full) {\n  "
                   "%c = program_id axis 0\n  store %o[%c], %c\n  %row = load " +
                   from +
                   "[0]\n  copy_gmem_to_smem %x[%row, 0:2] to %s[0:2] with %full[0] axes [0]\n  barrier_wait "
                   "%full[0]\n}\n");
  };
  CHECK(loaded("", "%n") == "no error");
  CHECK(differs(loaded("", "%o")));
  CHECK(differs(loaded("alias 1 ", "%n")));
}

}  // namespace lower_threads_test
