// run_scoped, semaphores and asynchronous copies: what they compute, what is a race, and exact errors.
#include <doctest/doctest.h>

#include <set>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "tests/support/messages.h"
#include "tests/support/parsed.h"

namespace async_copies_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note, tessera::test::parse;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
using Floats = std::vector<float>;
ts::Array counting(ts::Shape shape) {
  Floats v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  return {std::move(shape), std::move(v)};
}
Floats values(const ts::Array& a) {
  const auto s = a.data<float>();
  return {s.begin(), s.end()};
}
template <class F> ts::PallasCall on_whole(F kernel, std::vector<ts::ScratchShape> scratch = {}) {
  return ts::pallas_call(kernel, {.out_shape = {{{8}, ts::f32}}, .scratch_shapes = std::move(scratch), .name = "k"});
}
}  // namespace

TEST_CASE("async copies: run_scoped gives fresh memory, and what its body returns") {
  const auto call = on_whole([](Ref x, Ref o) {
    Value sum = ts::fori_loop(0, 3, ts::zeros({8}, ts::f32), [&](Value k, Value acc) {
      return ts::run_scoped(
          [&](Ref t, Ref n) {
            t[all] = x[all] + ts::cast(k, ts::f32);
            n[0] = k;
            return Value(acc + t[all]);
          },
          {ts::VMEM({8}, ts::f32), ts::SMEM({1}, ts::i32)});
    });
    const auto results = ts::run_scoped(
        [&](Ref t) {
          t[all] = sum;
          return std::tuple{Value(t[0]), 2};
        },
        {ts::VMEM({8}, ts::f32)});
    const Value a = std::get<0>(results), b = std::get<1>(results);
    ts::when(b == 2, [&] {
      ts::run_scoped(
          [&](Ref t) {
            t[all] = sum;
            o[all] = t[all] + a;
          },
          {ts::VMEM({8}, ts::f32)});
    });
  });
  CHECK(values(ts::interpret(call, counting({8}))) == Floats{6, 9, 12, 15, 18, 21, 24, 27});
  const std::string text = ts::ir::print(call.trace({{{8}, ts::f32}}));
  CHECK(text.find(" = run_scoped (%") != std::string::npos);
  CHECK(text.find(": ref<vmem, f32[8]>, %") != std::string::npos);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  // What an entry leaves, the next does not find.
  const auto stale = on_whole([](Ref, Ref o) {
    o[all] = ts::fori_loop(0, 2, ts::zeros({8}, ts::f32), [&](Value k, Value) {
      return ts::run_scoped(
          [&](Ref t) {
            ts::when(k == 0, [&] { t[all] = 1; });
            return Value(t[all]);
          },
          {ts::VMEM({8}, ts::f32)});
    });
  });
  CHECK(values(ts::interpret(stale, {.uninitialised = ts::Uninitialised::zero}, counting({8}))) == Floats(8, 0));
}

TEST_CASE("async copies: memory spaces by their other names") {
  CHECK(ts::HBM({2}, ts::f32).memory_space == ts::MemorySpace::any);
  CHECK(ts::GMEM({2}, ts::f32).memory_space == ts::MemorySpace::gmem);
  CHECK(ts::MemorySpace::hbm == ts::MemorySpace::any);
  const auto call = on_whole(
      [](Ref x, Ref o, Ref t) {
        t[all] = x[all];
        o[all] = t[all] * 2;
      },
      {ts::ANY({8}, ts::f32)});
  CHECK(values(ts::interpret(call, counting({8}))) == Floats{0, 2, 4, 6, 8, 10, 12, 14});
}

TEST_CASE("async copies: semaphores count") {
  const auto grid = ts::pallas_call(
      [](Ref o, Ref s) {
        ts::semaphore_signal(s[1], 5);
        ts::semaphore_signal(s[ts::program_id(0) * 0 + 1]);
        ts::semaphore_wait(s[1], 2);
        o[all] = ts::cast(ts::semaphore_read(s[1]) * 10 + ts::semaphore_read(s[0]), ts::f32);
        ts::semaphore_wait(s[1], 4, false);
        ts::semaphore_wait(s[1], 4);
      },
      {.out_shape = {{{2}, ts::f32}},
       .grid = {2},
       .out_specs = {{{1}, [](Value i) { return i; }}},
       .scratch_shapes = {ts::SemaphoreType::REGULAR({2})},
       .name = "k"});
  CHECK(values(ts::interpret(grid)) == Floats{40, 40});
}

TEST_CASE("async copies: copies, early and late") {
  const auto call = on_whole(
      [](Ref x, Ref o, Ref t, Ref sem) {
        auto first = ts::make_async_copy(x[{ds(0, 4)}], t[{0, all}], sem[0]);
        auto second = ts::make_async_copy(x[{ds(4, 4)}], t[{1, all}], sem[1]);
        first.start();
        second.start();
        second.wait();
        o[{ds(0, 4)}] = t[{1, all}];
        first.wait();
        ts::sync_copy(t[{0, all}], o[{ds(4, 4)}]);
      },
      {ts::VMEM({2, 4}, ts::f32), ts::SemaphoreType::DMA({2})});
  const Floats swapped{4, 5, 6, 7, 0, 1, 2, 3};
  CHECK(values(ts::interpret(call, counting({8}))) == swapped);
  for (uint64_t seed = 0; seed < 20; ++seed)
    CHECK(values(ts::interpret(call, {.seed = seed, .races = true}, counting({8}))) == swapped);

  // A target is not there before the wait, and a source may be read late: some seed shows either.
  const auto racy = on_whole(
      [](Ref x, Ref o, Ref t, Ref sem) {
        t[all] = ts::zeros({8}, ts::f32);
        const auto copy = ts::async_copy(x, t, sem);
        o[all] = t[all];
        o[all] += 0;
        copy.wait();
      },
      {ts::VMEM({8}, ts::f32), ts::SemaphoreType::DMA()});
  std::set<Floats> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) seen.insert(values(ts::interpret(racy, {.seed = seed}, counting({8}))));
  CHECK(seen == std::set<Floats>{Floats(8, 0), Floats{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(values(ts::interpret(racy, counting({8}))) == Floats(8, 0));
}

TEST_CASE("async copies: clipped copies leave out what is outside of either Ref") {
  const ts::ir::Kernel k = parse(R"(kernel @clip
in i32[2] whole
in f32[8] whole
out f32[8] whole
body (%n, %x, %o) {
  %f = constant -1 : f32[8]
  store %o[0:8], %f
  %i = load %n[0]
  %j = load %n[1]
  run_scoped (%s: ref<dma_semaphore, i32[]>) {
    copy_start %x[ds(%i, 6)] to %o[ds(%j, 6)] with %s[] clip 1
    copy_wait %x[ds(%i, 6)] to %o[ds(%j, 6)] with %s[] clip 1
  }
})");
  const auto run = [&](int32_t i, int32_t j) {
    return values(ts::interpret(k, {ts::Array({2}, std::vector<int32_t>{i, j}), counting({8})})[0]);
  };
  CHECK(run(5, 0) == Floats{5, 6, 7, -1, -1, -1, -1, -1});
  CHECK(run(-2, 1) == Floats{-1, -1, -1, 0, 1, 2, 3, -1});
  CHECK(run(0, 5) == Floats{-1, -1, -1, -1, -1, 0, 1, 2});
  CHECK(run(0, -3) == Floats{3, 4, 5, -1, -1, -1, -1, -1});
  CHECK(run(9, 0) == Floats(8, -1));
  CHECK(run(-100, 0) == Floats(8, -1));
}

TEST_CASE("async copies: races with a copy under way") {
  const auto text = [](const std::string& between) {
    return "kernel @race\ngrid (i: 2)\nin f32[2, 4] whole\nout f32[4] whole\nscratch ref<vmem, f32[4]>\nscratch "
           "ref<vmem, f32[4]>\nscratch ref<dma_semaphore, i32[]>\n"
           "body (%x, %o, %t, %u, %s) {\n"
           "  %f = constant 1 : f32[2]\n  store %u[2:4], %f\n  store %u[0:2], %f\n"
           "  copy_start %u[0:4] to %t[0:4] with %s[]\n" +
           between + "\n  copy_wait %u[0:4] to %t[0:4] with %s[]\n}";
  };
  const auto run = [&](const std::string& between) {
    return message([&] { ts::interpret(parse(text(between)), {counting({2, 4})}, {.races = true}); });
  };
  const std::string started =
      note("that was started at k.tir:13; wait for it first, and for all others that count in its semaphore");
  CHECK(run("  %a = load %u[0:4]") == "no error");
  CHECK(run("  %a = load %t[3]") ==
        "race: race on scratch_shapes[0], element (3,): program (i = 0) loads what a copy under way writes\n  at "
        "k.tir:14" +
            started);
  CHECK(run("  store %t[1:3], %f") ==
        "race: race on scratch_shapes[0], element (1,): program (i = 0) stores to what a copy under way writes\n  at "
        "k.tir:14" +
            started);
  CHECK(run("  store %u[1:3], %f") ==
        "race: race on scratch_shapes[1], element (1,): program (i = 0) stores to what a copy under way reads\n  at "
        "k.tir:14" +
            started);
  CHECK(run("  copy_start %t[0:2] to %u[2:4] with %s[]\n  copy_wait %t[0:2] to %u[2:4] with %s[]") ==
        "race: race on scratch_shapes[0], element (0,): program (i = 0) copies from what a copy under way writes\n  at "
        "k.tir:14" +
            started);
  CHECK(run("  copy_start %x[0, 0:2] to %u[2:4] with %s[]\n  copy_wait %x[0, 0:2] to %u[2:4] with %s[]") ==
        "race: race on scratch_shapes[1], element (2,): program (i = 0) copies to what a copy under way reads\n  at "
        "k.tir:14" +
            started);
  // One wait cannot tell which of two copies is done.
  CHECK(run("  copy_start %x[0, 0:4] to %o[0:4] with %s[]\n  copy_wait %x[0, 0:4] to %o[0:4] with %s[]\n  %a = load "
            "%o[0]") ==
        "race: race on out_specs[0], element (0,): program (i = 0) loads what a copy under way writes\n  at k.tir:16" +
            note("that was started at k.tir:14; wait for it first, and for all others that count in its semaphore"));
}

TEST_CASE("async copies: semaphores that programs in no order share") {
  const ts::ir::Kernel k = parse(R"(kernel @k
grid (2 parallel, 2)
out f32[1] whole
scratch ref<semaphore, i32[2]>
body (%o, %s) {
  %i = program_id axis 0
  %j = program_id axis 1
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  semaphore_signal %s[0], %1
  semaphore_wait %s[0], %1
  %p = eq %i, %0
  %q = eq %j, %1
  %r = and %p, %q
  if %r {
    semaphore_signal %s[1], %1
  }
  %t = gt %i, %j
  if %t {
    semaphore_wait %s[1], %1
  }
}
)");
  CHECK_NOTHROW(ts::interpret(k, {}, {}));
  expect(message([&] { ts::interpret(k, {}, {.races = true}); }),
         "k: race on scratch_shapes[0], element (1,): program (1, 0) loads what program (0, 1) stored\n  at k.tir:21" +
             note("that was at k.tir:17; programs that differ in axis 0 share no scratch"));
}

TEST_CASE("async copies: waits that nothing can satisfy, and what is left at the end") {
  const auto text = [](const std::string& body) {
    return "kernel @left\ngrid (2)\nin f32[4] whole\nout f32[4] whole\nscratch ref<dma_semaphore, i32[2]>\nscratch "
           "ref<semaphore, i32[]>\n"
           "body (%x, %o, %d, %s) {\n  %two = constant 2 : i32[]\n" +
           body + "\n}";
  };
  const auto run = [&](const std::string& body) {
    return message([&] { ts::interpret(parse(text(body)), {counting({4})}); });
  };
  CHECK(run("  semaphore_wait %s[], %two") ==
        "left: semaphore_wait by program (0): waits for 2 in scratch_shapes[1], which holds 0\n  at k.tir:10" +
            note("nothing that is under way can signal it: signal before waiting"));
  CHECK(run("  copy_start %x[0:3] to %o[0:3] with %d[1]\n  copy_wait %x[0:4] to %o[0:4] with %d[1]") ==
        "left: copy_wait by program (0): waits for 16 bytes in scratch_shapes[0][1], which holds 12\n  at k.tir:11" +
            note("no copy that is under way counts there: start() it before, with the same semaphore"));
  CHECK(run("  semaphore_signal %s[], %two") ==
        "left: the semaphore scratch_shapes[1] holds 4 at the end of the kernel\n  at k.tir:2" +
            note("as many signals as waits: a semaphore must be 0 again in the end"));
  CHECK(run("  copy_start %x[0:3] to %o[0:3] with %d[1]") ==
        "left: copy_start by program (0): the copy from in_specs[0] to out_specs[0] is still under way at the end of "
        "the kernel\n  at k.tir:10" +
            note("wait() for every copy before the memory and the semaphore that it uses are gone"));
  CHECK(run("  run_scoped (%t: ref<vmem, f32[4]>) {\n    copy_start %x[0:4] to %t[0:4] with %d[0]\n  }\n  copy_wait "
            "%x[0:4] to %o[0:4] with %d[0]") ==
        "left: copy_start by program (0): the copy from in_specs[0] to run_scoped[0] is still under way at the end of "
        "its run_scoped\n  at k.tir:11" +
            note("wait() for every copy before the memory and the semaphore that it uses are gone"));
  CHECK(run("  run_scoped (%u: ref<semaphore, i32[2, 2]>) {\n    semaphore_signal %u[1, 0], %two\n  }") ==
        "left: the semaphore run_scoped[0][1, 0] holds 2 at the end of its run_scoped\n  at k.tir:2" +
            note("as many signals as waits: a semaphore must be 0 again in the end"));
  // From one program to the next they keep their counts.
  CHECK(run("  %i = program_id axis 0\n  %zero = constant 0 : i32[]\n  %first = eq %i, %zero\n  if %first {\n    "
            "semaphore_signal %s[], %two\n  } else {\n    semaphore_wait %s[], %two\n  }") == "no error");
}

TEST_CASE("async copies: errors while tracing") {
  int line = 0;
  const auto error = [](auto kernel, std::vector<ts::ScratchShape> scratch = {}) {
    return message([&] { on_whole(kernel, scratch).trace({{{8}, ts::f32}}); });
  };
  line = __LINE__ + 1;
  expect(error([](Ref, Ref) { ts::run_scoped([](Ref) {}, {}); }),
         "k: run_scoped: the body takes 1 Ref but there are 0 types" + at(line) +
             note("a body takes one Ref per type: VMEM({8, 128}, ts::f32), SemaphoreType::DMA()"));
  line = __LINE__ + 1;
  expect(error([](Ref, Ref) { ts::run_scoped([](Ref) {}, {ts::VMEM({2, -1}, ts::f32)}); }),
         "k: run_scoped: type 0: shape (2, -1) has a negative size" + at(line));
  line = __LINE__ + 1;
  expect(error([](Ref, Ref) { ts::run_scoped([](Ref) {}, {{{2}, ts::f32, ts::MemorySpace::shared}}); }),
         "k: run_scoped: type 0: memory space shared is not for scratch" + at(line) +
             note("vmem, smem, any and semaphores are"));
  line = __LINE__ + 1;
  expect(message([] { ts::run_scoped([](Ref) {}, {ts::VMEM({2}, ts::f32)}); }),
         "run_scoped: no kernel is being traced" + at(line) + note("call it inside the kernel given to pallas_call"));
  line = __LINE__ + 1;
  expect(error([](Ref x, Ref) { ts::semaphore_signal(x); }),
         "k: semaphore_signal: the Ref to signal is in any, not a semaphore" + at(line) +
             note("SemaphoreType::REGULAR() and DMA() make them, in scratch_shapes and run_scoped"));
  line = __LINE__ + 1;
  expect(error([](Ref, Ref, Ref s) { ts::semaphore_wait(s, 2); }, {ts::SemaphoreType::REGULAR({3})}),
         "k: semaphore_wait: cannot wait for (3,) semaphores at once" + at(line) + note("index one of them: s[i]"));
  line = __LINE__ + 1;
  expect(error([](Ref, Ref, Ref s) { ts::semaphore_signal(s[0], 2); }, {ts::SemaphoreType::DMA({3})}),
         "k: semaphore_signal: cannot signal a DMA semaphore, in which copies alone count" + at(line) +
             note("SemaphoreType::REGULAR() makes one for signals"));
  line = __LINE__ + 1;
  expect(error([](Ref x, Ref o, Ref s) { ts::async_copy(x, o, s); }, {ts::SemaphoreType::REGULAR()}),
         "k: async_copy: the semaphore is a regular one, and copies count in DMA semaphores" + at(line) +
             note("SemaphoreType::DMA() makes one"));
  line = __LINE__ + 1;
  expect(error([](Ref x, Ref o, Ref s) { ts::async_copy(x[{ds(0, 4)}], o, s); }, {ts::SemaphoreType::DMA()}),
         "k: async_copy: the source is (4,) but the target is (8,)" + at(line) +
             note("a copy does not change shapes: index both alike"));
  line = __LINE__ + 1;
  expect(error([](Ref x, Ref, Ref t) { ts::sync_copy(x, t); }, {ts::VMEM({8}, ts::i32)}),
         "k: async_copy: the source holds f32 but the target i32" + at(line) +
             note("a copy does not convert: load, cast() and store"));
  line = __LINE__ + 1;
  expect(error([](Ref, Ref o, Ref s) { o[all] = ts::cast(s[all], ts::f32); }, {ts::SemaphoreType::REGULAR()}),
         "k: load: the ref is a semaphore, ref<semaphore, i32[]>" + at(line) +
             note("semaphores are signalled, waited for and read"));
  line = __LINE__ + 1;
  expect(message([] { ts::SemaphoreType::BARRIER(); }),
         "SemaphoreType::BARRIER: barrier semaphores wait for other devices, and a kernel runs on one" + at(line) +
             note("SemaphoreType::REGULAR() counts signals within a kernel"));
  line = __LINE__ + 1;
  expect(message([] { ts::get_barrier_semaphore(); }),
         "get_barrier_semaphore: barrier semaphores wait for other devices, and a kernel runs on one" + at(line) +
             note("SemaphoreType::REGULAR() counts signals within a kernel"));
  line = __LINE__ + 1;
  expect(error([](Ref x, Ref o, Ref s) { ts::make_async_remote_copy(x, o, s, s, 1); }, {ts::SemaphoreType::DMA()}),
         "make_async_remote_copy: copies go to no other device: a kernel runs on one" + at(line) +
             note("make_async_copy copies on this one"));
  expect(error([](Ref, Ref o) {
           Value v = ts::run_scoped(
               [](Ref t) {
                 t[all] = 1;
                 return Value(t[0]);
               },
               {ts::VMEM({2}, ts::f32)});
           o[0] = v;
         }),
         "no error");
}

TEST_CASE("async copies: exact errors of the text form") {
  const auto error = [](const std::string& body) {
    return message([&] {
      parse(
          "kernel @k\nin f32[4] whole\nout f32[4] whole\nscratch ref<dma_semaphore, i32[2]>\nscratch ref<semaphore, "
          "i32[]>\nbody (%x, %o, %d, %s) {\n  %n = constant 2 : i32[]\n" +
          body + "\n}");
    });
  };
  const auto check = [&](const std::string& body, const std::string& what) {
    const std::string got = error("  " + body);
    CHECK_MESSAGE(got.find(what) != std::string::npos, got);
  };
  check("copy_start %x[0:3] to %o[0:4] with %d[0]", "copy_start: the source is (3,) but the target is (4,)");
  check("copy_start %x[0:4] to %o[0:4] with %s[]",
        "copy_start: the semaphore must be a dma_semaphore but is ref<semaphore, i32[]>");
  check("copy_start %x[0:4] to %d[0:2] with %d[0]",
        "copy_start: the target is a semaphore, ref<dma_semaphore, i32[2]>");
  check("copy_start %x[2:6] to %o[0:4] with %d[0]",
        "copy_start: the source: dim 0: slice of 4 from 2 is out of range for 4 elements");
  check("copy_start %x[0:4, 0] to %o[0:4] with %d[0]", "the index has 2 entries but ref<any, f32[4]> has 1 dim");
  check("copy_start %x[0:4] to %o[0:4] with %d[0:2]",
        "copy_start: the index selects (2,) of the semaphores ref<dma_semaphore, i32[2]>");
  check("semaphore_signal %d[0], %n", "semaphore_signal: the ref is a ref<dma_semaphore, i32[2]>");
  check("semaphore_signal %x[0], %n", "semaphore_signal: the ref must be a semaphore but is ref<any, f32[4]>");
  check("store %s[], %n", "store: the ref is a semaphore, ref<semaphore, i32[]>");
  check("run_scoped (%t: ref<global, f32[4]>) { yield }",
        "run_scoped: region 0 takes ref<global, f32[4]>, no ref to scratch");
  check("run_scoped (%t: ref<semaphore, f32[4]>) { yield }",
        "run_scoped: region 0 takes ref<semaphore, f32[4]>, but semaphores are i32");
}

}  // namespace async_copies_test
