// The interpreter as judge: out-of-bounds accesses, races and program orders, each report with its exact text.
#include <doctest/doctest.h>

#include <string>

#include "engine/front.h"
#include "tests/support/parsed.h"

namespace judge_test {
using namespace tessera;
using tessera::test::parse;
namespace {
template <class F> std::string message(F&& f) {
  try {
    f();
  } catch (const KernelError& e) {
    return e.what();
  }
  return "";
}
InterpretOptions raise() { return {.out_of_bounds = OutOfBounds::raise}; }
InterpretOptions races() { return {.races = true}; }

// A window of 4 of 8 elements that starts where the argument says.
const char* kWindow = R"(kernel @window
in i32[] whole
in f32[8] whole
out f32[4] whole
body (%0: ref<any, i32[]>, %1: ref<any, f32[8]>, %2: ref<any, f32[4]>) {
  %3 = load %0[] : i32[]
  %4 = load %1[ds(%3, 4)] : f32[4]
  store %2[0:4], %4
})";
// The same under a mask that is true in its first two elements.
const char* kMasked = R"(kernel @masked
in i32[] whole
in f32[8] whole
out f32[4] whole
body (%0: ref<any, i32[]>, %1: ref<any, f32[8]>, %2: ref<any, f32[4]>) {
  %3 = load %0[] : i32[]
  %4 = iota axis 0 : i32[4]
  %5 = constant 2 : i32[4]
  %6 = lt %4, %5 : bool[4]
  %7 = load %1[ds(%3, 4)] mask %6 : f32[4]
  store %2[0:4], %7
})";
Array scalar(int32_t v) { return Array(Shape{}, std::vector<int32_t>{v}); }
}  // namespace

TEST_CASE("judge: windows out of bounds") {
  const ir::Kernel k = parse(kWindow);
  const Array x({8}, f32);
  const auto at = [&](int32_t start, const InterpretOptions& o) {
    return message([&] { interpret(k, {scalar(start), x}, o); });
  };
  for (int32_t start : {0, 4, -4, -8}) CHECK(at(start, raise()) == "");
  for (int32_t start : {6, -2, -12}) CHECK(at(start, {}) == "");
  CHECK(at(6, raise()) ==
        "window: load of in_specs[1] by program (): elements 6 to 9 along dim 0, which has 8\n  at k.tir:8\n"
        "  note: unless out-of-bounds accesses raise, the start is moved to 4");
  CHECK(at(-2, raise()) ==
        "window: load of in_specs[1] by program (): elements -2 to 1 along dim 0, which has 8\n  at k.tir:8\n"
        "  note: unless out-of-bounds accesses raise, the start is moved to 4");
  const ir::Kernel masked = parse(kMasked);
  CHECK(message([&] { interpret(masked, {scalar(6), x}, raise()); }) == "");
  CHECK(message([&] { interpret(masked, {scalar(7), x}, raise()); }) ==
        "masked: load of in_specs[1] by program (): element 8 along dim 0, which has 8\n  at k.tir:11\n"
        "  note: its mask is true; unless out-of-bounds accesses raise, it is left alone");
}

TEST_CASE("judge: block indices out of bounds, and overhang which is not") {
  const auto text = [](const std::string& index) {
    return "kernel @blocks\ngrid (i: 3)\nin f32[10] block (4) map (%0) { yield %0 }\nout f32[10] block (4) map (%1) "
           "{\n  %2 = constant 1 : i32[]\n  %3 = " +
           index +
           " %1, %2 : i32[]\n  yield %3 }\nbody (%4: ref<vmem, f32[4]>, %5: ref<vmem, f32[4]>) {\n  %6 = load %4[0:4] "
           ": f32[4]\n  store %5[0:4], %6\n}";
  };
  CHECK(message([&] { interpret(parse(text("mul")), {Array({10}, f32)}, raise()); }) == "");
  CHECK(message([&] { interpret(parse(text("add")), {Array({10}, f32)}, raise()); }) ==
        "blocks: out_specs[0]: in program (i = 2) the index map gives 3 along dim 0, which has 3 blocks\n  at k.tir:5\n"
        "  note: unless out-of-bounds accesses raise, it is clamped to 2");
}

TEST_CASE("judge: races between programs of a parallel axis") {
  // Every program of i adds its block to the same output block.
  const auto text = [](const std::string& semantics) {
    return "kernel @sum\ngrid (i: 3" + semantics +
           ")\nin f32[12] block (4) map (%0) { yield %0 }\nout f32[4] block (4) map (%1) {\n  %2 = constant 0 : "
           "i32[]\n  yield %2 }\n"
           "body (%3: ref<vmem, f32[4]>, %4: ref<vmem, f32[4]>) {\n  %5 = load %3[0:4] : f32[4]\n  %6 = load %4[0:4] : "
           "f32[4]\n  %7 = add %5, %6 : f32[4]\n  store %4[0:4], %7\n}";
  };
  const std::vector<Array> x = {Array({12}, f32)};
  CHECK(message([&] { interpret(parse(text("")), x, races()); }) == "");
  const std::string race =
      "sum: race on out_specs[0], element (0,): program (i = 1) loads what program (i = 0) stored\n  at k.tir:10\n"
      "  note: that was at k.tir:12; nothing orders programs that differ in axis i";
  CHECK(message([&] { interpret(parse(text(" parallel")), x, races()); }) == race);
  CHECK(message([&] { interpret(parse(text(" parallel")), x, {}); }) == "");
  CHECK(message([&] { interpret(parse(text("")), x, {.races = true, .parallel = {true}}); }) == race);
}

TEST_CASE("judge: stores that meet, a load before a store, and overhang that is each program's own") {
  const auto text = [](const std::string& ops) {
    return "kernel @meet\ngrid (i: 2 parallel, 3)\nout f32[6] whole\nbody (%0: ref<any, f32[6]>) {\n  %1 = program_id "
           "axis 0 : i32[]\n  %2 = program_id axis 1 : i32[]\n"
           "  %3 = constant 1 : f32[2]\n" +
           ops + "}";
  };
  CHECK(message([&] { interpret(parse(text("  store %0[ds(%1, 2)], %3\n")), {}, races()); }) ==
        "meet: race on out_specs[0], element (1,): program (i = 1, 0) stores what program (i = 0, 2) stored\n  at "
        "k.tir:9\n"
        "  note: that was at k.tir:9; nothing orders programs that differ in axis i");
  CHECK(message([&] {
          interpret(parse(text("  %4 = load %0[1:3] : f32[2]\n  store %0[ds(%1, 2)], %3\n")), {}, races());
        }) ==
        "meet: race on out_specs[0], element (1,): program (i = 1, 0) loads what program (i = 0, 2) stored\n  at "
        "k.tir:9\n"
        "  note: that was at k.tir:10; nothing orders programs that differ in axis i");
  // Programs that differ in the sequential axis only may meet; each i has elements of its own.
  CHECK(message([&] {
          interpret(parse(text("  %4 = constant 3 : i32[]\n  %5 = mul %1, %4 : i32[]\n  store %0[ds(%5, 2)], %3\n")),
                    {}, races());
        }) == "");
  // A block of 4 of 6: the second one's overhang meets nothing.
  CHECK(message([&] {
          interpret(parse("kernel @edge\ngrid (2 parallel)\nout f32[6] block (4) map (%0) { yield %0 }\nbody (%1: "
                          "ref<vmem, f32[4]>) {\n  %2 = constant 1 : f32[4]\n  store %1[0:4], %2\n"
                          "  %3 = load %1[0:4] : f32[4]\n}"),
                    {}, races());
        }) == "");
}

// Both programs have the block that begins with one position before the array, and ends with three behind it or beyond
// its own bound.
TEST_CASE("judge: races on blocks with padding before and behind the array, by every kind of access") {
  const auto run = [](const std::string& block, const std::string& yields, const std::string& access) {
    return message([&] {
      interpret(parse("kernel @padded\ngrid (2 parallel)\nin i32[3] whole\nout u8[2] block (" + block +
                      ") map (%i) {\n  %z = constant 0 : i32[]\n  %two = constant 2 : i32[]\n  yield " + yields +
                      "\n}\n"
                      "body (%x, %o) {\n  %k = load %x[0:2]\n  %p = load %x[2]\n  %v = constant 1 : u8[2]\n  %one = "
                      "constant 1 : u8[]\n  %on = constant true : bool[2]\n  " +
                      access + "\n}"),
                {Array({3}, std::vector<int32_t>{0, 5, 0})}, races());
    });
  };
  const auto at = [](const std::string& access, const std::string& array, const std::string& start) {
    std::string s = access;
    for (size_t i; (i = s.find('A')) != std::string::npos;) s.replace(i, 1, array);
    for (size_t i; (i = s.find('S')) != std::string::npos;) s.replace(i, 1, start);
    return s;
  };
  const std::string accesses[] = {
      "store %o[A], %v",
      "store %o[A], %v mask %on",
      "addupdate %o[A], %v",
      "%r = swap %o[A], %v",
      "%r = atomic_rmw %o[A], %v kind add\n  %l = load %o[A]",
      "%r = load %o[A]\n  store %o[A], %v",
      "store %o[S], %one",
      "store %o[ds(S, 2, 5)], %v",
      "store %o[ds(S, 2, 5)], %v mask %on",
      "%r = swap %o[ds(S, 2, 5)], %v",
      "%r = atomic_rmw %o[ds(S, 2, 5)], %v mask %on kind max\n  %l = load %o[ds(S, 2, 5)] mask %on"};
  for (const std::string& access : accesses) {
    CAPTURE(access);
    // Positions 0 and 5 are before the array and behind it.
    CHECK(run("element(6, 1, 3)", "%z", at(access, "%k", "%p")) == "");
    // One further, the first is the array's.
    const std::string next =
        "%c = constant 1 : i32[2]\n  %q = add %k, %c\n  %d = constant 1 : i32[]\n  %n = add %p, %d\n  " +
        at(access, "%q", "%n");
    CHECK(run("element(7, 1, 4)", "%z", next).starts_with("padded: race on out_specs[0], element (0,): program (1) "));
    // Of a bounded block from element 0 on the first is the array's at once; of one that begins at its end none is.
    CHECK(run("bounded(6)", "%z, %two", at(access, "%k", "%p"))
              .starts_with("padded: race on out_specs[0], element (0,): program (1) "));
    CHECK(run("bounded(6)", "%two, %z", at(access, "%k", "%p")) == "");
  }
}

TEST_CASE("judge: scratch that goes from one program of a parallel axis to another") {
  const auto text = [](const std::string& first) {
    return "kernel @carry\ngrid (i: 2 parallel, k: 2)\nout f32[2] block (squeezed) map (%0, %1) { yield %0 }\nscratch "
           "ref<vmem, f32[]>\nbody (%2: ref<vmem, f32[]>, %3: ref<vmem, f32[]>) {\n"
           "  %4 = program_id axis 0 : i32[]\n  %5 = program_id axis 1 : i32[]\n  %6 = constant 0 : i32[]\n  %7 = eq " +
           first +
           ", %6 : bool[]\n  %8 = constant 1 : f32[]\n"
           "  if %7 {\n    store %3[], %8\n  }\n  %9 = load %3[] : f32[]\n  %10 = add %9, %8 : f32[]\n  store %3[], "
           "%10\n  store %2[], %10\n}";
  };
  CHECK(message([&] { interpret(parse(text("%5")), {}, races()); }) == "");
  CHECK(message([&] { interpret(parse(text("%4")), {}, races()); }) ==
        "carry: race on scratch_shapes[0], element (): program (i = 1, k = 0) loads what program (i = 0, k = 1) "
        "stored\n  at k.tir:15\n"
        "  note: that was at k.tir:17; programs that differ in axis i share no scratch");
}

TEST_CASE("judge: a seed permutes the programs of parallel axes alone, each coordinate with scratch of its own") {
  // Each program writes how many ran before it within its coordinate of i, and which program ran last at all.
  const ir::Kernel k = parse(R"(kernel @order
grid (i: 8 parallel, k: 3)
out i32[8, 3] block (squeezed, squeezed) map (%0, %1) { yield %0, %1 }
out i32[] whole
scratch ref<vmem, i32[]>
body (%2: ref<vmem, i32[]>, %3: ref<any, i32[]>, %4: ref<vmem, i32[]>) {
  %5 = program_id axis 0 : i32[]
  %6 = program_id axis 1 : i32[]
  %7 = constant 0 : i32[]
  %8 = eq %6, %7 : bool[]
  if %8 {
    store %4[], %7
  }
  %9 = load %4[] : i32[]
  store %2[], %9
  %10 = constant 1 : i32[]
  %11 = add %9, %10 : i32[]
  store %4[], %11
  store %3[], %5
})");
  bool other = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    InterpretOptions o;
    o.seed = seed;
    const std::vector<Array> a = interpret(k, {}, o), b = interpret(k, {}, o);
    for (int64_t i = 0; i < 24; ++i) CHECK(a[0].at(i) == static_cast<double>(i % 3));
    CHECK(a[1].at(0) == b[1].at(0));
    other |= a[1].at(0) != 7;
  }
  CHECK(other);
  CHECK(interpret(k, {})[1].at(0) == 7);
}

TEST_CASE("judge: options of pallas_calls, and what does not fit") {
  const auto call =
      pallas_call([](Ref x, Ref o) { o[all] = x[all] + x[all]; }, {.out_shape = {{{4}, f32}},
                                                                   .grid = {2},
                                                                   .in_specs = {{{2}, [](Value i) { return i; }}},
                                                                   .out_specs = {{{2}, [](Value i) { return i; }}},
                                                                   .name = "twice"});
  const Array x({4}, std::vector<float>{1, 2, 3, 4});
  const Array z =
      interpret(call, {.out_of_bounds = OutOfBounds::raise, .seed = 3, .races = true, .parallel = {true}}, x);
  CHECK(z.at(3) == 8);
  CHECK_THROWS_WITH_AS(interpret(parse(kWindow), {scalar(0), Array({8}, f32)}, {.parallel = {true}}),
                       "window: InterpretOptions::parallel has 1 axes but the grid has 0\n  at k.tir:2", SpecError);
}

}  // namespace judge_test
