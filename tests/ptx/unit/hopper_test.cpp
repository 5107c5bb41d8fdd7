// What sm_90 adds: mbarriers, bulk copies with swizzles, products of warpgroups. A right kernel passes in every order,
// and each small change to it is found.
#include <doctest/doctest.h>

#include <bit>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/ptx/emulator.h"
#include "tests/ptx/numbers.h"
#include "tests/ptx/unit/assembled.h"

namespace hopper_test {
using namespace tessera::ptx;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in, path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
std::string changed(std::string text, const std::string& what, const std::string& into) {
  const size_t at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), into);
}

struct Product {
  Result result;
  bool right = true;
};
Product multiply(const std::string& text, uint64_t seed, TensorMap::Swizzle swizzle = TensorMap::b128,
                 uint32_t steps = 5) {
  const uint32_t k_size = 64 * steps;
  std::vector<uint16_t> a(64 * k_size), b(64 * k_size);
  std::vector<float> out(64 * 64);
  Random r{seed};
  for (auto* m : {&a, &b})
    for (uint16_t& x : *m) x = static_cast<uint16_t>(narrow(Type::f16, static_cast<int>(r.below(9)) - 4, Round::even));
  Launch l;
  l.block[0] = 160, l.dynamic_shared = 32768, l.seed = seed, l.max_instructions = 20000000;
  l.buffers.push_back({.name = "a", .bytes = std::as_writable_bytes(std::span(a)), .may_write = false});
  l.buffers.push_back({.name = "b", .bytes = std::as_writable_bytes(std::span(b)), .may_write = false});
  for (uint32_t k = 0; k < 2; ++k)
    l.tensors.push_back({128 * k,
                         {.buffer = k,
                          .type = Type::f16,
                          .dims = {k_size, 64},
                          .strides = {2 * k_size},
                          .box = {64, 64},
                          .swizzle = swizzle}});
  l.parameters.resize(256);
  l.buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(out)), .initialised = false}).scalar(steps);
  Product p;
  p.result = run(parse(text), l);
  for (uint32_t i = 0; i < 64; ++i)
    for (uint32_t j = 0; j < 64; ++j) {
      double sum = 0;
      for (uint32_t k = 0; k < k_size; ++k)
        sum += widen(Type::f16, a[i * k_size + k]) * widen(Type::f16, b[j * k_size + k]);
      p.right = p.right && out[i * 64 + j] == static_cast<float>(sum);
    }
  return p;
}

}  // namespace

TEST_CASE("a product by TMA and wgmma, and what is wrong with changed ones") {
  const std::string text = read("tests/ptx/kernels/matmul_tma.ptx");
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Product p = multiply(text, seed);
    CHECK_MESSAGE(p.result.ok(), p.result.text);
    CHECK(p.right);
  }
  const auto caught = [&](const std::string& what, const std::string& into, Fault fault, const std::string& says) {
    CAPTURE(what);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Product p = multiply(changed(text, what, into), seed);
      CAPTURE(p.result.text);
      CHECK(static_cast<int>(p.result.fault) == static_cast<int>(fault));
      CHECK(p.result.text.find(says) != std::string::npos);
      if (fault == Fault::none) CHECK_FALSE(p.right);
    }
  };
  // a fault, which one depends on the order, or a wrong result
  const auto noticed = [&](const std::string& what, const std::string& into) {
    CAPTURE(what);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Product p = multiply(changed(text, what, into), seed);
      CHECK_FALSE((p.result.ok() && p.right));
    }
  };
  // a wait that is not there
  caught("@!%p4 bra WAIT_FULL;", "", Fault::race, "nothing orders them");
  noticed("@!%p4 bra WAIT_EMPTY;", "");
  caught("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", Fault::race, "nothing orders them");
  // arrivals and bytes that are too few or too many
  caught("_, [%r12], 16384;", "_, [%r12], 16385;", Fault::deadlock, "waits for 0 of 1 arrivals and 1 bytes");
  noticed("_, [%r12], 16384;", "_, [%r12], 8192;");
  caught("mbarrier.init.shared.b64 [%r5], 4;", "mbarrier.init.shared.b64 [%r5], 5;", Fault::deadlock,
         "waits for 1 of 5 arrivals");
  caught("@!%p6 mbarrier.arrive.shared.b64 _, [%r11];", "", Fault::deadlock, "waits for 4 of 4 arrivals");
  caught("mbarrier.init.shared.b64 [%r4], 1;", "mbarrier.init.shared.b64 [%r4], 2;", Fault::deadlock,
         "waits for 1 of 2 arrivals");
  // a parity
  caught("not.b32 %r9, %r9;", "", Fault::deadlock, "waits for 4 of 4 arrivals");
  // fences
  caught("fence.mbarrier_init.release.cluster;", "", Fault::race,
         "no fence makes that known to the asynchronous proxy");
  caught("bar.sync 0;", "", Fault::undefined, "nobody has made one");
  caught("wgmma.fence.sync.aligned;", "", Fault::undefined, "there is no wgmma.fence since");
  // descriptors: half the stride, another swizzle, the wrong step, the wrong half of the stage
  caught("0x4000004000010000", "0x4000002000010000", Fault::none, "");
  caught("0x4000004000010000", "0x8000004000010000", Fault::none, "");
  caught("add.u64 %d2, %d2, 2;", "add.u64 %d2, %d2, 4;", Fault::none, "");
  caught("add.u64 %d3, %d2, 512;", "add.u64 %d3, %d2, 0;", Fault::none, "");
  caught("add.u64 %d3, %d2, 512;", "add.u64 %d3, %d2, 2048;", Fault::bounds, "shared memory has");
  // fragments and coordinates
  caught("{%c4, %c5};", "{%c5, %c4};", Fault::none, "");
  caught("shl.b32 %r14, %r7, 6;", "shl.b32 %r14, %r7, 5;", Fault::none, "");
  noticed("add.u32 %r16, %r13, 8192;", "add.u32 %r16, %r13, 8448;");
}

namespace {

/// Of 256 words in two blocks, an entry of two buffers.
struct Words {
  Result result;
  std::vector<uint32_t> in, out;
};
Words two_blocks(const std::string& text, uint64_t seed) {
  Words w;
  w.in.resize(256), w.out.resize(256);
  std::iota(w.in.begin(), w.in.end(), 5u);
  Launch l;
  l.block[0] = 128, l.grid[0] = 2, l.seed = seed, l.max_instructions = 10000000;
  l.buffer({.name = "in", .bytes = std::as_writable_bytes(std::span(w.in)), .may_write = false});
  l.buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(w.out)), .initialised = false});
  w.result = run(parse(text), l);
  return w;
}
void found(const std::string& text, const std::string& what, const std::string& into, Fault fault,
           const std::string& says) {
  CAPTURE(what);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Result r = two_blocks(changed(text, what, into), seed).result;
    CAPTURE(r.text);
    CHECK(static_cast<int>(r.fault) == static_cast<int>(fault));
    CHECK(r.text.find(says) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("bulk copies: waits, fences, bytes, bounds") {
  const std::string text = read("tests/ptx/kernels/bulk_double.ptx");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Words w = two_blocks(text, seed);
    CHECK_MESSAGE(w.result.ok(), w.result.text);
    CHECK(w.out[200] == 410);
  }
  const std::string store = "cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 512;";
  found(text, "fence.proxy.async.shared::cta;", "", Fault::race, "its copy reads");
  found(text, "  bar.sync 0;\n  @%p0 bra END;", "  @%p0 bra END;", Fault::race, "nothing orders them");
  found(text, "cp.async.bulk.wait_group.read 0;", "", Fault::undefined, "its block ends before");
  found(text, "cp.async.bulk.commit_group;", "", Fault::undefined, "its block ends before");
  found(text, "@!%p1 bra WAIT;", "", Fault::race, "nothing orders them");
  found(text, "[%r1], [%d1], 512,", "[%r1], [%d1], 496,", Fault::deadlock, "0 of 1 arrivals and 16 bytes");
  found(text, "[%r1], [%d1], 512,", "[%r1], [%d1+16], 512,", Fault::bounds, "byte 528 of in");
  found(text, store, changed(store, "[%r2], 512", "[%r2], 520"), Fault::alignment, "no multiple of 16");
  found(text, "ld.shared.u32 %r7, [%r6];", "ld.shared.u32 %r7, [%r3];", Fault::undefined, "belongs to an mbarrier");
  // fence.mbarrier_init tells the proxy of new mbarriers, and of nothing else
  CHECK(two_blocks(changed(text, "fence.proxy.async;", "fence.mbarrier_init.release.cluster;"), 1).result.ok());
  found(text, "fence.proxy.async.shared::cta;", "fence.mbarrier_init.release.cluster;", Fault::race, "its copy reads");
  // counts
  found(text, "[%r3], 512;", "[%r3], 1048576;", Fault::barrier, "it cannot be 1048576 bytes");
  found(text, "  bar.sync 0;\n  @%p0 bra WAIT;",
        "  bar.sync 0; mbarrier.arrive.shared.b64 _, [%r3], 0;\n  @%p0 bra WAIT;", Fault::barrier,
        "it cannot be 0 arrivals");
  // the source may be written again when it has been read, the destination not before all is done
  const std::string wait = "cp.async.bulk.wait_group.read 0;";
  const std::string again = wait + " st.shared.u32 [%r2], 7;", early = " st.shared.u32 [%r2], 7; " + wait;
  const std::string back = wait + " st.global.u32 [%d2], 7;",
                    late = "cp.async.bulk.wait_group 0; st.global.u32 [%d2], 7;";
  CHECK(two_blocks(changed(text, wait, again), 1).result.ok());
  CHECK(two_blocks(changed(text, wait, late), 1).result.ok());
  found(text, wait, early, Fault::race, "is read by a copy of");
  found(text, wait, back, Fault::race, "is written by a copy of");
  // sums in memory
  const std::string reduce = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d2], [%r2], 512;";
  const std::string sums = changed(changed(text, store, reduce), "add.u64 %d2, %d2, %d0;", "");
  Words w = two_blocks(sums, 3);
  CHECK(w.result.fault == Fault::poison);  // onto memory that nobody has written
}

TEST_CASE("clusters: shared memory of others, their barrier, one copy to all") {
  const std::string text = read("tests/ptx/kernels/cluster_exchange.ptx");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Words w = two_blocks(text, seed);
    CHECK_MESSAGE(w.result.ok(), w.result.text);
    CHECK(w.out[3] == 1003 + 8);
    CHECK(w.out[128 + 3] == 3 + 8);
  }
  found(text, "mov.u16 %h0, 3;", "mov.u16 %h0, 1;", Fault::deadlock, "0 of 1 arrivals and 512 bytes");
  found(text, "mov.u16 %h0, 3;", "mov.u16 %h0, 5;", Fault::bounds, "no block of rank 2");
  found(text, "mapa.shared::cluster.u32 %r10, %r8, %r9;", "mapa.shared::cluster.u32 %r10, %r8, 2;", Fault::bounds,
        "no block of rank 2");
  found(text, "barrier.cluster.wait.acquire.aligned;", "", Fault::race, "nothing orders them");
  found(text, "barrier.cluster.arrive.release.aligned;", "barrier.cluster.arrive.relaxed.aligned;", Fault::race,
        "nothing orders them");
  found(text, "barrier.cluster.wait.aligned;", "", Fault::barrier, "arrives twice");
  found(text, "WAIT:\n", "mapa.shared::cluster.u32 %r3, %r3, %r9;\nWAIT:\n", Fault::undefined,
        "nobody can wait at another block's mbarrier");
  found(text, "WAIT:\n", "mapa.shared::cluster.u32 %r15, %r3, %r9; mbarrier.arrive.shared.b64 %d3, [%r15];\nWAIT:\n",
        Fault::undefined, "gives no state");
}

namespace {

/// out[i] = 16, by products of a warpgroup: A in registers, B in shared memory, all ones. `fill` brings B there.
const std::string kFill = "st.shared.v2.b32 [%r2], {%r10, %r10}; fence.proxy.async.shared::cta;";
const std::string kProduct =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, {%r10, %r11, %r12, %r13}, %d2, %p0, 1, 1, "
    "0;\n";
const std::string kFence = "wgmma.fence.sync.aligned;\n", kCommit = "wgmma.commit_group.sync.aligned;\n",
                  kWait = "wgmma.wait_group.sync.aligned 0;\n";
std::string of_warpgroup(const std::string& body, const std::string& fill = kFill) {
  return ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry ones(.param .u64 in, .param .u64 out)\n"
         ".reqntid 128, 1, 1\n{\n.shared .align 1024 .b8 s[1024];\n.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 "
         "%d<8>; .reg .f32 %c<8>;\n"
         "mov.u32 %r0, %tid.x; shr.u32 %r5, %r0, 5; mov.u32 %r1, s; shl.b32 %r3, %r0, 3; add.u32 %r2, %r1, %r3;\n"
         "mul.wide.u32 %d6, %r0, 8; ld.param.u64 %d5, [in]; add.u64 %d5, %d5, %d6;\n"
         "mov.b32 %r10, 0x3c003c00; mov.b32 %r11, %r10; mov.b32 %r12, %r10; mov.b32 %r13, %r10; setp.ne.b32 %p0, 1, "
         "0;\n"
         "setp.eq.u32 %p1, %r5, 3; mov.f32 %c0, 0f00000000; mov.f32 %c1, %c0; mov.f32 %c2, %c0; mov.f32 %c3, %c0;\n" +
         fill +
         "\nbar.sync 0;\n"
         "shr.u32 %r4, %r1, 4; cvt.u64.u32 %d2, %r4; mov.b64 %d3, 0x800080000; or.b64 %d2, %d2, %d3;\n" +
         body +
         "ld.param.u64 %d4, [out]; mul.wide.u32 %d6, %r0, 4; add.u64 %d4, %d4, %d6; st.global.f32 [%d4], "
         "%c0;\nret;\n}\n";
}
Words ones(const std::string& text, uint64_t seed) {
  Words w;
  w.in.resize(256, 0x3c003c00), w.out.resize(128);
  Launch l;
  l.block[0] = 128, l.seed = seed, l.max_instructions = 10000000;
  l.buffer({.name = "in", .bytes = std::as_writable_bytes(std::span(w.in)), .may_write = false});
  l.buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(w.out)), .initialised = false});
  w.result = run(parse(text), l);
  return w;
}

}  // namespace

TEST_CASE("wgmma: registers under way, warps that go elsewhere, what cp.async brings") {
  const auto gives = [](const std::string& text, float sum) {
    CHECK(assembled(text, "sm_90a"));
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Words w = ones(text, seed);
      CHECK_MESSAGE(w.result.ok(), w.result.text);
      for (const uint32_t x : w.out) CHECK(std::bit_cast<float>(x) == sum);
    }
  };
  const auto refused = [](const std::string& text, Fault fault, const std::string& says) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Result r = ones(text, seed).result;
      CAPTURE(r.text);
      CHECK(static_cast<int>(r.fault) == static_cast<int>(fault));
      CHECK(r.text.find(says) != std::string::npos);
    }
  };
  gives(of_warpgroup(kFence + kProduct + kCommit + kWait), 16);
  gives(of_warpgroup(kFence + kProduct + kProduct + kCommit + kWait), 32);
  // sums that nobody has touched may be added to without another fence; so may new fragments with one
  gives(of_warpgroup(kFence + kProduct + kCommit + kWait + kProduct + kCommit + kWait), 32);
  const std::string halved = "mov.b32 %r10, 0x38003800;\n", sum = "mov.f32 %c0, 0f3f800000;\n";
  gives(of_warpgroup(kFence + kProduct + kCommit + kWait + halved + kFence + kProduct + kCommit + kWait), 28);
  const std::string unfenced = "there is no wgmma.fence since";
  refused(of_warpgroup(kFence + halved + kProduct + kCommit + kWait), Fault::undefined, unfenced);
  refused(of_warpgroup(kFence + sum + kProduct + kCommit + kWait), Fault::undefined, unfenced);
  refused(of_warpgroup(kFence + kProduct + kCommit + kWait + halved + kProduct + kCommit + kWait), Fault::undefined,
          unfenced);
  refused(of_warpgroup(kFence + kProduct + kCommit + halved + kWait), Fault::undefined,
          "a register of A has been written before the product has ended");
  refused(of_warpgroup(kFence + kProduct + kCommit + sum + kWait), Fault::undefined,
          "a register of a product under way has been written");
  // the last warp does something else
  const std::string whole = "the warps of its warpgroup did not all run the same wgmma";
  refused(of_warpgroup(kFence + "@%p1 bra PAST;\n" + kProduct + "PAST:\n" + kCommit + kWait), Fault::divergence, whole);
  refused(of_warpgroup("@%p1 add.u64 %d2, %d2, 8;\n" + kFence + kProduct + kCommit + kWait), Fault::divergence, whole);
  // a descriptor beyond its fields
  refused(of_warpgroup("or.b64 %d2, %d2, 0x4000;\n" + kFence + kProduct + kCommit + kWait), Fault::undefined,
          "bits that mean nothing");
  // cp.async writes through the generic proxy
  const std::string copied = "cp.async.ca.shared.global [%r2], [%d5], 8; cp.async.wait_all;";
  gives(of_warpgroup(kFence + kProduct + kCommit + kWait, copied + "fence.proxy.async.shared::cta;"), 16);
  refused(of_warpgroup(kFence + kProduct + kCommit + kWait, copied), Fault::race, "its copy reads");
  refused(of_warpgroup(kFence + kProduct + kCommit + kWait, "fence.proxy.async.shared::cta;" + copied), Fault::race,
          "its copy reads");
  // shapes of whole numbers
  for (const uint32_t n : {8, 16, 24, 32, 40, 48, 56, 72, 240, 248}) {
    std::string names;
    for (uint32_t k = 0; k < n / 2; ++k) names += (k ? ", %q" : "%q") + std::to_string(k);
    const std::string text = of_warpgroup(".reg .b32 %q<128>; setp.ne.b32 %p0, 1, 1;\n" + kFence +
                                          "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k32.s32.s8.s8 {" +
                                          names + "}, {%r10, %r11, %r12, %r13}, %d2, %p0;\n" + kCommit + kWait);
    bool known = true;
    try {
      check(parse(text), "");
    } catch (const Error&) {
      known = false;
    }
    CAPTURE(n);
    CHECK(known == (n <= 32 || n % 16 == 0));
    if (known) CHECK(assembled(text, "sm_90a"));
  }
}

TEST_CASE("the assembler takes the kernels") {
  for (const char* name : {"matmul_tma", "bulk_double", "cluster_exchange"}) {
    CAPTURE(std::string(name));
    CHECK(assembled(read("tests/ptx/kernels/" + std::string(name) + ".ptx"), "sm_90a"));
  }
}

}  // namespace hopper_test
