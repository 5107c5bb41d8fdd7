// What the emulator finds: each thing that a kernel may not do, in a kernel that does it, beside one that does not.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/ptx/emulator.h"

namespace machine_test {
using namespace tessera::ptx;

namespace {

std::string kernel(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out, .param "
         ".u32 n)\n{\n"
         ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<20>; .reg .f32 %f<8>; .reg .b64 %d<12>; .shared .align 16 "
         ".b8 s[512];\n"
         "ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; shl.b32 %r2, "
         "%r1, 2;\n"
         "mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2; mov.u32 %r3, s; add.u32 %r4, %r3, "
         "%r2;\n" +
         body + "\nret;\n}\n";
}

/// On 128 threads; `out` is 128 words, `in` 128 words of 0, 1, 2 ...
struct Run {
  std::vector<uint32_t> in, out;
  Result result;
};
Run run_on(const std::string& body, uint64_t seed, uint32_t threads = 128, uint32_t blocks = 1) {
  Run r;
  r.in.resize(128), r.out.resize(128);
  std::iota(r.in.begin(), r.in.end(), 0u);
  Launch l;
  l.block[0] = threads, l.grid[0] = blocks, l.seed = seed, l.max_instructions = 1000000;
  l.buffer({.name = "in", .bytes = std::as_writable_bytes(std::span(r.in)), .may_write = false})
      .buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(r.out))})
      .scalar(uint32_t{128});
  r.result = run(parse(kernel(body)), l);
  return r;
}
/// The fault that most of the seeds find; a test demands it of every seed.
void finds(const std::string& body, Fault fault, const std::string& text, uint32_t blocks = 1) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Run r = run_on(body, seed, 128, blocks);
    CAPTURE(r.result.text);
    CHECK(static_cast<int>(r.result.fault) == static_cast<int>(fault));
    CHECK(r.result.text.find(text) != std::string::npos);
  }
}
std::vector<uint32_t> gives(const std::string& body) {
  std::vector<uint32_t> first;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Run r = run_on(body, seed);
    CHECK_MESSAGE(r.result.ok(), r.result.text);
    if (seed == 0) first = r.out;
    CHECK(r.out == first);
  }
  return first;
}

const std::string kNeighbour =
    "xor.b32 %r5, %r2, 32; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;";

}  // namespace

TEST_CASE("memory: bounds, alignment, permission") {
  finds("st.global.u32 [%d4+4], %r1;", Fault::bounds, "byte 512 of out (512 bytes");
  finds("st.global.u32 [%d3], %r1;", Fault::bounds, "may not be written");
  finds("st.global.u32 [%d4+2], %r1;", Fault::alignment, "no multiple of 4");
  finds("st.shared.u32 [%r4+512], %r1;", Fault::bounds, "shared memory has 512 bytes");
  finds("mov.u32 %r5, 0; st.shared.u32 [%r5], %r1;", Fault::bounds, "shared address 0x0");
  finds("mov.u64 %d5, 0; ld.global.u32 %r5, [%d5];", Fault::bounds, "no buffer is near");
  const std::vector<uint32_t> out = gives("ld.global.u32 %r5, [%d3]; st.global.u32 [%d4], %r5;");
  CHECK(out[77] == 77);
}

TEST_CASE("shared memory: races and barriers") {
  finds("st.shared.u32 [%r4], %r1;" + kNeighbour, Fault::race, "nothing orders them");
  CHECK(gives("st.shared.u32 [%r4], %r1; bar.sync 0;" + kNeighbour)[3] == 11);
  CHECK(gives("st.shared.u32 [%r4], %r1; barrier.sync 0;" + kNeighbour)[3] == 11);
  // a warp's barrier orders a warp: the neighbour 8 lanes away is in it, the one 64 threads away is not
  CHECK(gives("st.shared.u32 [%r4], %r1; bar.warp.sync 0xffffffff;" + kNeighbour)[3] == 11);
  finds(
      "st.shared.u32 [%r4], %r1; bar.warp.sync 0xffffffff; xor.b32 %r5, %r2, 256; add.u32 %r5, %r5, %r3; ld.shared.u32 "
      "%r6, [%r5]; st.global.u32 [%d4], %r6;",
      Fault::race, "nothing orders them");
  // the next write has to wait for the read before
  finds("st.shared.u32 [%r4], %r1; bar.sync 0;" + kNeighbour + "st.shared.u32 [%r4], 7;", Fault::race,
        "nothing orders them");
}

TEST_CASE("global memory: races between blocks, atomics") {
  finds("st.global.u32 [%d4], %r1;", Fault::race, "is written by", 2);
  CHECK(gives("atom.global.add.u32 %r5, [%d1], 1;")[0] == 128);
  finds("red.global.add.u32 [%d1], 1; ld.global.u32 %r5, [%d1];", Fault::race, "nothing orders them");
  // thread 0 passes a value on by a flag
  const std::string pass =
      "setp.ne.u32 %p1, %r1, 0; @%p1 bra READ; st.global.u32 [%d1+400], 5; RELEASE bra DONE; READ: setp.ne.u32 %p2, "
      "%r1, 64; @%p2 bra DONE;\n"
      "WAIT: ACQUIRE setp.eq.u32 %p3, %r6, 0; @%p3 bra WAIT; ld.global.u32 %r7, [%d1+400]; st.global.u32 [%d1+408], "
      "%r7; DONE:";
  const auto with = [&](const std::string& release, const std::string& acquire) {
    std::string s = pass;
    s.replace(s.find("RELEASE"), 7, release);
    s.replace(s.find("ACQUIRE"), 7, acquire);
    return s;
  };
  CHECK(gives(with("st.release.gpu.global.u32 [%d1+404], 1;", "ld.acquire.gpu.global.u32 %r6, [%d1+404];"))[102] == 5);
  CHECK(gives(with("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d1+404], 1;",
                   "ld.relaxed.gpu.global.u32 %r6, [%d1+404]; fence.acq_rel.gpu;"))[102] == 5);
  finds(with("st.relaxed.gpu.global.u32 [%d1+404], 1;", "ld.acquire.gpu.global.u32 %r6, [%d1+404];"), Fault::race,
        "nothing orders them");
  finds(with("st.release.gpu.global.u32 [%d1+404], 1;", "ld.relaxed.gpu.global.u32 %r6, [%d1+404];"), Fault::race,
        "nothing orders them");
}

TEST_CASE("global memory: scopes, parts of words, constant reads, sums of small floats") {
  // blocks that share a place need a scope of both, and accesses of all of it
  const std::string add = "atom.relaxed.gpu.global.add.u32 %r5, [%d1], 1;";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string s = add;
    return s.replace(s.find(from), from.size(), to);
  };
  for (uint64_t seed = 0; seed < 8; ++seed) CHECK(run_on(add, seed, 128, 2).out[0] == 256);
  CHECK(gives(with("gpu", "cta"))[0] == 128);
  finds(with("gpu", "cta"), Fault::race, "nothing orders them", 2);
  CHECK(gives(add + "ld.relaxed.gpu.global.u32 %r6, [%d1];")[0] == 128);
  finds(add + "ld.relaxed.gpu.global.u16 %r6, [%d1];", Fault::race, "nothing orders them");
  finds(add + "st.relaxed.gpu.global.u8 [%d1+3], 0;", Fault::race, "nothing orders them");
  // what .nc reads nobody writes, not even the reader later
  CHECK(gives("ld.global.nc.u32 %r5, [%d3]; st.global.u32 [%d4], %r5;")[7] == 7);
  finds("ld.global.nc.u32 %r5, [%d4]; add.u32 %r5, %r5, 1; st.global.u32 [%d4], %r5;", Fault::race,
        "which this launch has read by .nc");
  finds("st.global.u32 [%d4], %r1; ld.global.nc.u32 %r5, [%d4];", Fault::race, "which this launch has written");
  // the device's sums of f32 have no subnormal numbers, those of shared memory do
  const std::string once = "setp.ne.u32 %p1, %r1, 0; @%p1 bra DONE; ";
  CHECK(gives(once + "red.global.add.f32 [%d1], 0f00000005; DONE:")[0] == 0);
  CHECK(gives(once + "st.global.u32 [%d1], 0x800000; red.global.add.f32 [%d1], 0f80000001; DONE:")[0] == 0x800000);
  CHECK(gives(once + "st.global.u32 [%d1], 0x800001; red.global.add.f32 [%d1], 0f80800000; DONE:")[0] == 0);
  CHECK(gives(once + "st.shared.u32 [%r3], 2; red.shared.add.f32 [%r3], 0f00000005; ld.shared.u32 %r5, [%r3]; "
                     "st.global.u32 [%d1], %r5; DONE:")[0] == 7);
}

TEST_CASE("poison: unwritten memory") {
  finds("ld.shared.u32 %r5, [%r4]; st.global.u32 [%d4], %r5;", Fault::poison, "byte 0 of out hangs on");
  finds("ld.shared.u32 %r5, [%r4]; setp.eq.u32 %p1, %r5, 0; @%p1 st.global.u32 [%d4], %r1;", Fault::poison,
        "its guard hangs on");
  finds("ld.shared.u32 %r5, [%r4]; mul.wide.u32 %d5, %r5, 4; add.u64 %d5, %d5, %d1; st.global.u32 [%d5], %r1;",
        Fault::poison, "its address hangs on");
  finds("div.u32 %r5, %r1, 0; st.global.u32 [%d4], %r5;", Fault::poison, "hangs on");
  finds("st.global.u32 [%d4], %r9;", Fault::poison, "hangs on");
  // what is discarded does no harm
  CHECK(gives("ld.shared.u32 %r5, [%r4]; and.b32 %r5, %r5, 0; st.global.u32 [%d4], %r5;")[5] == 0);
  CHECK(
      gives(
          "ld.shared.u32 %r5, [%r4]; setp.eq.u32 %p1, %r5, 0; @%p1 bra L; mov.u32 %r6, 3; L: st.global.u32 [%d4], %r1;")
          [5] == 5);
  finds(
      "ld.shared.u32 %r5, [%r4]; mov.u32 %r6, 2; setp.eq.u32 %p1, %r5, 0; @%p1 bra L; mov.u32 %r6, 3; L: st.global.u32 "
      "[%d4], %r6;",
      Fault::poison, "hangs on");
}

TEST_CASE("deadlocks, hangs and divergence have names") {
  finds("setp.eq.u32 %p1, %r1, 0; @%p1 bra SELF; bra.uni END; SELF: bra SELF; END:", Fault::hang, "no end");
  finds("setp.lt.u32 %p1, %r1, 64; @%p1 bar.sync 1, 128;", Fault::deadlock, "barrier 1: 64 of 128 threads have come");
  finds("setp.lt.u32 %p1, %r1, 16; @%p1 bra L; bar.sync 0; bra.uni E; L: bar.sync 0; E:", Fault::deadlock,
        "not all threads of its warp come");
  finds("setp.eq.u32 %p1, %r1, 0; @%p1 bra L; shfl.sync.idx.b32 %r5, %r1, 0, 31, 0xffffffff; L: bar.sync 0;",
        Fault::deadlock, "not all threads of its warp come");
  finds("setp.lt.u32 %p1, %r1, 64; @%p1 bar.sync 1, 96; @!%p1 bar.sync 1, 128;", Fault::barrier, "threads");
  finds("shfl.sync.idx.b32 %r5, %r1, 0, 31, 0xfffffffe;", Fault::divergence, "member mask");
  finds("trap;", Fault::trap, "it traps");
}

TEST_CASE("warps: shuffles, votes, matches, reductions") {
  CHECK(gives("shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xffffffff; st.global.u32 [%d4], %r5;")[6] == 7);
  CHECK(
      gives("shfl.sync.up.b32 %r5|%p1, %r1, 2, 0, 0xffffffff; @!%p1 mov.u32 %r5, 99; st.global.u32 [%d4], %r5;")[33] ==
      99);
  CHECK(gives("shfl.sync.down.b32 %r5, %r1, 1, 31, 0xffffffff; st.global.u32 [%d4], %r5;")[31] == 31);
  CHECK(gives("shfl.sync.idx.b32 %r5, %r1, 3, 0x181f, 0xffffffff; st.global.u32 [%d4], %r5;")[13] ==
        11);  // segments of 8
  CHECK(gives("and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; vote.sync.ballot.b32 %r6, %p1, 0xffffffff; st.global.u32 "
              "[%d4], %r6;")[70] == 0xaaaaaaaa);
  CHECK(gives("and.b32 %r5, %r1, 3; match.any.sync.b32 %r6, %r5, 0xffffffff; st.global.u32 [%d4], %r6;")[1] ==
        0x22222222);
  CHECK(gives("redux.sync.add.s32 %r6, %r1, 0xffffffff; st.global.u32 [%d4], %r6;")[32] == 32 * 32 + 496);
  CHECK(gives("and.b32 %r5, %r1, 7; setp.lt.u32 %p1, %r5, 2; bar.red.popc.u32 %r6, 0, %p1; st.global.u32 [%d4], %r6;")
            [32] == 32);
  // half a warp shuffles by itself
  CHECK(gives("and.b32 %r5, %r1, 16; setp.ne.u32 %p1, %r5, 0; mov.u32 %r6, 0; @%p1 bra L; shfl.sync.bfly.b32 %r6, %r1, "
              "8, 31, 0xffff; L: st.global.u32 [%d4], %r6;")[9] == 1);
  finds(
      "shfl.sync.idx.b32 %r5, %r1, 3, 31, 0xffffffff; and.b32 %r5, %r1, 16; setp.ne.u32 %p1, %r5, 0; @%p1 bra L; "
      "shfl.sync.idx.b32 %r6, %r1, 20, 31, 0xffff;"
      "st.global.u32 [%d4], %r6; L:",
      Fault::poison, "hangs on");
}

TEST_CASE("cp.async: late, and only at the wait") {
  const std::string start = "cp.async.ca.shared.global [%r4], [%d3], 4; cp.async.commit_group;";
  const std::string end = "ld.shared.u32 %r5, [%r4]; st.global.u32 [%d4], %r5;";
  CHECK(gives(start + "cp.async.wait_group 0;" + end)[9] == 9);
  CHECK(gives(start + "cp.async.wait_all;" + end)[9] == 9);
  finds(start + end, Fault::race, "is written by a copy of");
  finds(start + "cp.async.wait_group 1;" + end, Fault::race, "is written by a copy of");
  finds("cp.async.ca.shared.global [%r4], [%d3], 4; cp.async.wait_group 0;" + end, Fault::race,
        "is written by a copy of");
  finds(start + "cp.async.wait_group 0;" + kNeighbour, Fault::race, "nothing orders them");
  CHECK(gives(start + "cp.async.wait_group 0; bar.sync 0;" + kNeighbour)[9] == 1);
  CHECK(gives("cp.async.ca.shared.global [%r4], [%d3], 4, 0; cp.async.wait_all;" + end)[9] == 0);
}

TEST_CASE("texts that are wrong say where") {
  const auto error = [](const std::string& body) -> std::string {
    try {
      check(parse(kernel(body)), "");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(error("frob.u32 %r1, %r2;") == "line 9: the instruction \"frob\" is not known: frob.u32 %r1, %r2");
  CHECK(error("add.u32 %r1, %d1, %r2;") == "line 9: \"%d1\" has 64 bits instead of 32: add.u32 %r1, %d1, %r2");
  CHECK(error("add.u32.frob %r1, %r1, %r2;") == "line 9: \".frob\" is not known here: add.u32.frob %r1, %r1, %r2");
  CHECK(error("add.u32 %q1, %r1, %r2;") == "line 9: \"%q1\" is not declared");
  CHECK(error("bra NOWHERE;") == "line 9: there is no label \"NOWHERE\": bra NOWHERE");
  CHECK(error("add.u32 %r1, %r1") == "line 10: expected \";\" before \"ret\"");
}

}  // namespace machine_test
