// run_scoped, semaphores and copies on their way to lanes: what they become, which counters go, which waits are
// refused, what explain says.
#include "codegen/tile/lower_async.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"
#include "tests/support/parsed.h"

namespace lower_async_test {
using namespace tessera;
using tessera::test::message, tessera::test::parse;

namespace {
std::string expanded(const std::string& text) {
  ir::Kernel k = parse(text);
  std::vector<WaitSite> sites;
  CHECK(lowering::lower_async(k, sites));
  ir::verify(k, "the step");
  return ir::print(k);
}
const std::string kHead =
    "kernel @k\ngrid (4)\nin f32[4, 8] block (1, 8) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nout "
    "f32[4, 8] block (1, 8) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\n";
}  // namespace

TEST_CASE("scopes: their Refs become private scratch, their bodies stand in their place") {
  const std::string text = expanded(kHead + R"(scratch ref<vmem, f32[8]>
body (%x, %o, %t) {
  %r = run_scoped (%a: ref<vmem, f32[8]>) {
    %v = load %x[0, 0:8]
    store %a[0:8], %v
    %w = load %a[0:8]
    yield %w
  }
  store %o[0, 0:8], %r
})");
  CHECK(text.find("scratch ref<vmem, f32[8]>\nscratch ref<vmem, f32[8]> private\n") != std::string::npos);
  CHECK(text.find("run_scoped") == std::string::npos);
  CHECK(ir::print(ir::parse(text)) == text);
}

TEST_CASE("scopes: a copy is a load and a store, and a counter that is not needed goes") {
  const std::string text = kHead + R"(scratch ref<dma_semaphore, i32[2]>
body (%x, %o, %s) {
  run_scoped (%a: ref<vmem, f32[8]>) {
    copy_start %x[0, 0:8] to %a[0:8] with %s[1]
    copy_wait %x[0, 0:8] to %a[0:8] with %s[1]
    %v = load %a[0:8]
    store %o[0, 0:8], %v
  }
})";
  const std::string first = expanded(text);
  CHECK(first.find("copy") == std::string::npos);
  CHECK(first.find("report") != std::string::npos);
  // Balanced within a program, the semaphores are each program's own, and the grid stays parallel.
  CHECK(parallel_axes(parse(text)) == std::vector<bool>{true});
  const Program p = compile(parse(text), lavapipe_target(), {});
  CHECK(p.report_bytes == 0);
  CHECK(
      p.explain.find(
          "  copy from in_specs[0] to run_scoped[0], 32 B, at k.tir:15: done by loads and stores where it starts\n") !=
      std::string::npos);
  CHECK(p.explain.find("  waits: 1, all proved to be satisfied: no semaphore is counted\n") != std::string::npos);
}

TEST_CASE("scopes: explain names the scratch that a copy fills, counted behind the blocks") {
  const Program p = compile(parse(kHead + R"(scratch ref<vmem, f32[4]>
scratch ref<vmem, f32[8]>
scratch ref<dma_semaphore, i32[]>
body (%x, %o, %u, %t, %s) {
  copy_start %x[0, 0:8] to %t[0:8] with %s[]
  copy_wait %x[0, 0:8] to %t[0:8] with %s[]
  %v = load %t[0:8]
  store %o[0, 0:8], %v
})"),
                            lavapipe_target(), {});
  CHECK(p.explain.find("  copy from in_specs[0] to scratch[1], 32 B, at ") != std::string::npos);
}

TEST_CASE("scopes: semaphores that carry their counts keep the programs in order") {
  const std::string text = kHead + R"(scratch ref<semaphore, i32[]>
body (%x, %o, %s) {
  %two = constant 2 : i32[]
  %i = program_id axis 0
  %c = lt %i, %two
  if %c {
    semaphore_signal %s[], %two
  } else {
    semaphore_wait %s[], %two
  }
  %n = semaphore_read %s[]
  %f = convert %n : f32[]
  %b = broadcast %f dims [] : f32[8]
  store %o[0, 0:8], %b
})";
  CHECK(parallel_axes(parse(text)) == std::vector<bool>{false});
  const Program p = compile(parse(text), lavapipe_target(), {});
  CHECK(p.report_bytes == 16);
  CHECK(p.explain.find("  waits: 1, tested at run time\n") != std::string::npos);
}

TEST_CASE("scopes: programs that leave every semaphore as they found it may run at once") {
  const auto alone = [](const std::string& ops) {
    const std::vector<bool> p = parallel_axes(
        parse(kHead +
              "scratch ref<semaphore, i32[2]>\nscratch ref<dma_semaphore, i32[]>\nscratch ref<vmem, f32[1, 8]>\nbody "
              "(%x, %o, %s, %d, %t) {\n  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n"
              "  %2 = constant 2 : i32[]\n  %i = program_id axis 0\n  %c = lt %i, %2\n  %k = rem %i, %2\n" +
              ops + "  %v = load %x[0, 0:8]\n  store %o[0, 0:8], %v\n}\n"));
    return p[0];
  };
  const std::string signal = "semaphore_signal %s[0], %2\n", wait = "semaphore_wait %s[0], %2\n",
                    start = "copy_start %x[0:1, 0:8] to %t[0:1, 0:8] with %d[]\n",
                    ends = "copy_wait %x[0:1, 0:8] to %t[0:1, 0:8] with %d[]\n";
  const auto loop = [](const std::string& ops) { return "for %j = %0 to %2 step %1 {\n" + ops + "}\n"; };
  const auto either = [](const std::string& a, const std::string& b) {
    return "if %c {\n" + a + "} else {\n" + b + "}\n";
  };
  CHECK(alone(""));
  CHECK(alone(signal + wait));
  CHECK_FALSE(alone(signal));
  CHECK_FALSE(alone(signal + "semaphore_wait %s[0], %1\n"));
  CHECK_FALSE(alone(signal + "semaphore_wait %s[1], %2\n"));
  CHECK(alone("semaphore_signal %s[%k], %2\nsemaphore_wait %s[%k], %2\n"));
  CHECK_FALSE(alone("semaphore_signal %s[%k], %2\nsemaphore_wait %s[0], %2\n"));
  // of how much, only constants are followed
  CHECK_FALSE(alone("semaphore_signal %s[0], %i\nsemaphore_wait %s[0], %i\n"));
  CHECK(alone(start + ends));
  CHECK_FALSE(alone(start));
  CHECK(alone(loop(signal + wait)));
  CHECK_FALSE(alone(loop(signal) + "semaphore_wait %s[0], %2\n"));
  CHECK_FALSE(alone(loop("semaphore_signal %s[0], %1\n") + wait));  // iterations are not counted
  CHECK(alone(either(signal, signal) + wait));
  CHECK(alone(signal + either(wait, "semaphore_wait %s[0], %1\nsemaphore_wait %s[0], %1\n")));
  CHECK_FALSE(alone(either(signal, "") + wait));
  CHECK_FALSE(alone(either(signal, "semaphore_signal %s[0], %1\n") + wait));
}

TEST_CASE("scopes: scratch that nobody reads goes with what is stored to it") {
  const auto after = [](const std::string& ops, bool changes) {
    ir::Kernel k = parse(kHead +
                         "scratch ref<vmem, f32[8]>\nscratch ref<vmem, f32[8]> private\nscratch ref<vmem, f32[8]> "
                         "private\nbody (%x, %o, %s, %t, %u) {\n  %v = load %x[0, 0:8]\n" +
                         ops + "}\n");
    const std::string before = ir::print(k);
    CHECK(lowering::drop_unread_scratch(k) == changes);
    CHECK((ir::print(k) != before) == changes);
    ir::verify(k, "the step");
    return k.scratch.size();
  };
  const std::string read_t = "  store %t[0:8], %v\n  %a = load %t[0:8]\n  store %o[0, 0:8], %a\n",
                    read_u = "  store %u[0:8], %v\n  %b = load %u[0:8]\n  store %o[0, 0:8], %b\n";
  CHECK(after(read_t + read_u, false) == 3);
  CHECK(after(read_t + "  store %u[0:8], %v\n", true) == 2);
  CHECK(after("  store %t[0:8], %v\n  store %s[0:8], %v\n" + read_u, true) == 2);
  CHECK(after("  store %s[0:8], %v\n", true) == 1);  // what outlives a program stays
}

TEST_CASE("scopes: a wait that is certain to fail is refused, others report") {
  const std::string never = kHead + R"(body (%x, %o) {
  %one = constant 1 : i32[]
  %two = constant 2 : i32[]
  run_scoped (%s: ref<semaphore, i32[3]>) {
    semaphore_signal %s[1], %one
    semaphore_wait %s[1], %two
  }
})";
  const std::string note =
      "\n  note: nothing that is under way can bring that: signal or start the copy before waiting, on the same "
      "semaphore";
  CHECK(message([&] { compile(parse(never), lavapipe_target(), {}); }) ==
        "k: semaphore_wait: waits for 2 in run_scoped[0][1], which holds 1\n  at k.tir:17" + note);
  const std::string copies = kHead + R"(body (%x, %o) {
  run_scoped (%a: ref<vmem, f32[8]>, %s: ref<dma_semaphore, i32[]>) {
    copy_start %x[0, 0:4] to %a[0:4] with %s[]
    copy_wait %x[0, 0:8] to %a[0:8] with %s[]
  }
})";
  CHECK(message([&] { compile(parse(copies), lavapipe_target(), {}); }) ==
        "k: copy_wait: waits for 32 bytes in run_scoped[1], which holds 16\n  at k.tir:15" + note);
}

TEST_CASE("scopes: where loads take long, copies into a part of scratch are prefetched") {
  const std::string text = R"(kernel @ahead
in f32[64] whole
out f32[64] whole
scratch ref<vmem, f32[2, 8]>
body (%x, %o, %t) {
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %two = constant 2 : i32[]
  %eight = constant 8 : i32[]
  run_scoped (%s: ref<dma_semaphore, i32[2]>) {
    copy_start %x[0:8] to %t[0, 0:8] with %s[0]
    for %k = %zero to %eight step %one {
      %next = add %k, %one
      %more = lt %next, %eight
      %slot = rem %k, %two
      %other = rem %next, %two
      %from = mul %next, %eight
      %to = mul %k, %eight
      if %more {
        copy_start %x[ds(%from, 8)] to %t[%other, 0:8] with %s[%other]
      }
      copy_wait %x[0:8] to %t[%slot, 0:8] with %s[%slot]
      %v = load %t[%slot, 0:8]
      %w = add %v, %v
      store %o[ds(%to, 8)], %w
    }
  }
})";
  Target gpu = lavapipe_target();
  gpu.kind = Target::Kind::gpu;
  const std::string line = "at k.tir:21: prefetched where it starts, stored where it is waited for\n";
  CHECK(compile(parse(text), gpu, {}).explain.find(line) != std::string::npos);
  CHECK(compile(parse(text), lavapipe_target(), {}).explain.find(line) == std::string::npos);
  // What is computed stays the same.
  ir::Kernel k = parse(text), plain = k;
  std::vector<WaitSite> sites;
  lowering::PrefetchedCopies prefetch{64};
  lowering::lower_async(k, sites, &prefetch);
  ir::verify(k, "the step");
  CHECK(prefetch.copies.size() == 2);
  Array x({64}, f32);
  for (int64_t i = 0; i < 64; ++i) x.set_element_bits(i, static_cast<uint64_t>(i) << 20);
  const Array a = interpret(k, {x})[0], b = interpret(plain, {x})[0];
  for (int64_t i = 0; i < 64; ++i) CHECK(a.element_bits(i) == b.element_bits(i));
}

TEST_CASE("scopes: explain says what a pipeline prefetches into registers") {
  std::ifstream file("tests/tir/pipeline_overhang.tir");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  REQUIRE_MESSAGE(!text.empty(), "run from the repository's root");
  const Program p = compile(ir::parse(text, "pipeline_overhang.tir"), lavapipe_target(), {});
  const std::string line =
      "ref<vmem, f32[4, 12]>; in registers; every program's own; its loads are under way until it is used\n";
  const size_t first = p.explain.find(line);
  CHECK_MESSAGE(first != std::string::npos, p.explain);
  CHECK_MESSAGE(p.explain.find(line, first + 1) != std::string::npos, p.explain);
}

TEST_CASE(
    "scopes: explain says of what copies fill that its loads are under way, not of scratch that outlives a program") {
  const std::string text = kHead + R"(scratch ref<vmem, f32[8]>
body (%x, %o, %t) {
  %i = program_id axis 0
  %0 = constant 0 : i32[]
  %first = eq %i, %0
  if %first {
    %v = load %x[0, 0:8]
    store %t[0:8], %v
  }
  %b = load %t[0:8]
  store %o[0, 0:8], %b
})";
  const Program p = compile(parse(text), gpu_target(), {});
  CHECK_MESSAGE(p.explain.find("  scratch[0]: ref<vmem, f32[8]>; in registers\n") != std::string::npos, p.explain);
}

}  // namespace lower_async_test
