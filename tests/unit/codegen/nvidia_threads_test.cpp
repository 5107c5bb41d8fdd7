// Programs of several threads as PTX, on the emulator: what the interpreter computes, in many orders of the threads.
// And that each instruction that orders them is needed: the emulator notices when it is missing.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "codegen/compile.h"
#include "codegen/plan/program_memory.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/emulate/emulate.h"
#include "tests/support/messages.h"
#include "tests/support/parsed.h"
#include "tests/support/sanitizer.h"

namespace nvidia_threads_test {
using namespace tessera;
using tessera::test::message, tessera::test::parse;

namespace {

struct Kernel {
  ir::Kernel k;
  std::vector<Array> arrays, wanted;
};
Kernel with_arrays(ir::Kernel k) {
  Kernel r{std::move(k), {}, {}};
  for (int i = 0; i < static_cast<int>(r.k.blocks.size()); ++i) {
    const ir::BlockMapping& b = r.k.blocks[static_cast<size_t>(i)];
    Array a(bind_shape(r.k, i, {}), b.dtype);
    for (int64_t j = 0; j < a.size() && i < r.k.num_inputs; ++j)
      a.set_element_bits(j, reference::from_double(b.dtype, static_cast<double>((j * 7 + i) % 11 - 5)));
    r.arrays.push_back(std::move(a));
  }
  r.wanted = interpret(r.k, {r.arrays.begin(), r.arrays.begin() + r.k.num_inputs}, {});
  return r;
}
Kernel read(const std::string& name) {
  std::ifstream in("tests/tir/threads/" + name + ".tir");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  REQUIRE_MESSAGE(!text.empty(), "run from the repository's root");
  return with_arrays(ir::parse(text, name + ".tir"));
}
/// What is wrong with the results in one of these orders; empty: nothing.
std::string wrong(const Kernel& r, const Program& p, uint64_t seeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const emulated::Result got = emulated::run(p, r.arrays, {}, {.seed = seed, .max_instructions = int64_t{1} << 22});
    if (!got.fault.empty()) return got.fault;
    if (got.unfinished) return "unfinished";
    for (size_t o = 0; o < r.wanted.size(); ++o)
      if (!std::equal(r.wanted[o].bytes(), r.wanted[o].bytes() + r.wanted[o].nbytes(), got.outputs[o].bytes()))
        return "wrong results";
  }
  return {};
}
std::vector<size_t> places(const std::string& text, const std::string& what) {
  std::vector<size_t> all;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) all.push_back(at);
  return all;
}
/// Without the line that begins with `what`, for each such line behind `behind`: how many of the changes go unnoticed.
std::string unnoticed(const Kernel& r, const Program& p, const std::string& what, const std::string& behind) {
  std::string kept;
  size_t changes = 0;
  for (const size_t mark : places(p.ptx, behind)) {
    const size_t at = p.ptx.find(what, mark);
    if (at == std::string::npos) continue;
    Program changed = p;
    changed.ptx.erase(at, p.ptx.find('\n', at) + 1 - at);
    ++changes;
    if (wrong(r, changed, 12).empty()) kept += p.ptx.substr(at, p.ptx.find('\n', at) + 1 - at);
  }
  return changes == 0 ? "there is none" : kept;
}

}  // namespace

TEST_CASE("nvidia: programs of several threads compute what the interpreter computes, in any order") {
  for (const char* name : {"matmul_ring", "meeting", "meeting_again", "pipeline_specialized"}) {
    CAPTURE(name);
    const Kernel r = read(name);
    for (const char* chip : {"sm_80", "sm_90a"})
      for (const bool general : {false, true}) {
        CAPTURE(chip);
        CAPTURE(general);
        CompileOptions options;
        options.general = general;
        const Program p = compile(r.k, Target::nvidia(chip), options);
        CHECK(p.workgroup_size == 128 * *r.k.grid.back().size.value());
        CHECK(wrong(r, p, test::kSanitized ? 2 : 6) == "");
      }
  }
}

TEST_CASE("nvidia: a missing instruction that orders threads is noticed") {
  // A slot that one thread fills and the other empties; and barriers that begin anew in each step.
  const std::string slots = R"(kernel @ring
grid (wg: 2 thread)
in f32[5, 8] whole
out f32[5, 8] whole
scratch ref<smem, f32[8]>
scratch ref<barrier, i32[1]>
scratch ref<barrier, i32[1]>
body (%x, %o, %s, %full, %empty) {
  %w = program_id axis 0
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %five = constant 5 : i32[]
  %producer = eq %w, %zero
  if %producer {
    for %k = %zero to %five step %one {
      %reused = ge %k, %one
      if %reused {
        barrier_wait %empty[0]
      }
      copy_gmem_to_smem %x[%k, 0:8] to %s[0:8] with %full[0]
    }
  } else {
    for %k = %zero to %five step %one {
      barrier_wait %full[0]
      %v = load %s[0:8]
      store %o[%k, 0:8], %v
      barrier_arrive %empty[0]
    }
  }
}
)";
  const Kernel ring = with_arrays(parse(slots));
  const Kernel meet = with_arrays(parse(R"(kernel @meet
grid (wg: 2 thread)
in f32[5, 8] whole
out f32[5, 8] whole
scratch ref<smem, f32[8]>
scratch ref<barrier, i32[1], arrivals 2>
body (%x, %o, %s, %b) {
  %w = program_id axis 0
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %five = constant 5 : i32[]
  %first = eq %w, %zero
  for %k = %zero to %five step %one {
    if %first {
      %v = load %x[%k, 0:8]
      store %s[0:8], %v
      barrier_arrive %b[0]
      barrier_arrive %b[0]
      barrier_arrive %b[0]
    } else {
      barrier_wait %b[0]
      %t = load %s[0:8]
      store %o[%k, 0:8], %t
    }
    threads_meet %b
  }
}
)"));
  const Program p = compile(ring.k, Target::nvidia("sm_90a"), {}), q = compile(meet.k, Target::nvidia("sm_90a"), {});
  REQUIRE(wrong(ring, p, 12) == "");
  REQUIRE(wrong(meet, q, 12) == "");
  // A wait that does not wait; one for the same phase again; an arrival without the thread's other invocations; none.
  CHECK(unnoticed(ring, p, "  @!", "mbarrier.try_wait") == "");
  CHECK(unnoticed(ring, p, "  mov.b32", "bar.warp.sync") == "");
  CHECK(unnoticed(ring, p, "  bar.sync", "  bar.sync") == "");
  CHECK(unnoticed(ring, p, "  mbarrier.arrive", "  mbarrier.arrive") == "");
  CHECK(unnoticed(ring, p, "  mbarrier.init", "  mbarrier.init") == "");
  std::string large = slots;  // copies that land late
  for (size_t at = large.find('8'); at != std::string::npos; at = large.find('8', at)) large.replace(at, 1, "512");
  const Kernel copies = with_arrays(parse(large));
  const Program c = compile(copies.k, Target::nvidia("sm_90a"), {});
  REQUIRE(places(c.ptx, "cp.async.cg").size() == 1);
  REQUIRE(wrong(copies, c, 12) == "");
  CHECK(unnoticed(copies, c, "  cp.async", "  cp.async") == "");
  CHECK(unnoticed(copies, c, "  @!", "mbarrier.try_wait") == "");
  CHECK(unnoticed(meet, q, "  bar.sync 0;", "  bar.sync 0;") == "");
  CHECK(unnoticed(meet, q, "  mbarrier.init", "  mbarrier.inval") == "");
}

TEST_CASE("nvidia: a program's threads share what of shared memory they have not in common") {
  const auto left = [](int threads) {
    const ir::Kernel k = parse("kernel @k\ngrid (wg: " + std::to_string(threads) +
                               " thread)\nscratch ref<smem, f32[1000]>\nscratch ref<barrier, i32[2]>\nbody (%s, %b) {\n"
                               "  barrier_arrive %b[0]\n  barrier_wait %b[0]\n}\n");
    return lowering::target_of_thread(k, Target::nvidia("sm_90a")).shared_bytes;
  };
  constexpr int64_t kLeft = 232448 - 128 - 4096;  // barriers, and 4000 bytes, in pieces of 128
  CHECK(left(1) == kLeft);
  CHECK(left(2) == kLeft / 2 - 64);
  CHECK(left(3) == kLeft / 3 / 128 * 128);
}

TEST_CASE("nvidia: what threads that run at once cannot do is refused") {
  const auto refused = [](const std::string& text) {
    return message([&] { compile(parse(text), Target::nvidia("sm_90a"), {}); });
  };
  const std::string interpreter = "the interpreter runs the kernel: ts::interpret, or --device interpreter";
  CHECK(refused("kernel @k\ngrid (c: 2 cluster, wg: 2 thread)\nscratch ref<cluster_barrier, i32[], axes [0]>\nbody "
                "(%b) {\n  barrier_arrive %b[]\n  barrier_wait %b[]\n}\n") ==
        "k: its 2 threads wait for those of other programs at scratch_types[0], a ClusterBarrier\n  at k.tir:6\n  "
        "note: programs of a cluster are compiled where each has one thread; " +
            interpreter);
  CHECK(refused("kernel @k\ngrid (wg: 2 thread)\nscratch ref<smem, i32[2]>\nbody (%s) {\n  %i = program_id axis 0\n "
                " %v = atomic_rmw %s[0], %i kind add\n}\n") ==
        "k: its 2 threads update scratch_types[0], which is in smem, by atomic_rmw (k.tir:7)\n  at k.tir:7\n  note: "
        "atomics update gmem; " +
            interpreter);
  CHECK(refused("kernel @k\ngrid (wg: 2 thread)\nscratch ref<smem, f32[300, 200]>\nscratch ref<barrier, i32[3]>\nbody "
                "(%s, %b) {\n  %v = load %s[0, 0:8]\n  store %s[1, 0:8], %v\n  barrier_wait %b[0]\n}\n") ==
        "k: its threads have 240128 bytes of shared memory in common, nvidia:sm_90a has 232448\n  at k.tir:2\n  note: "
        "they are 3 barriers, ref<smem, f32[300, 200]>");
}

}  // namespace nvidia_threads_test
