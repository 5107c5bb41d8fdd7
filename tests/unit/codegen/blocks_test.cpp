// How block dims and aliases bear on parallel axes, schedules and the argument layout. That the code computes what it
// should: tests/tir, the fuzzer.
#include <doctest/doctest.h>

#include <string>

#include "codegen/compile.h"
#include "codegen/plan/parallel.h"
#include "engine/ir/text.h"

namespace blocks_test {
using namespace tessera;

namespace {
Program program(const std::string& text, bool general = false) {
  CompileOptions options;
  options.general = general;
  return compile(ir::parse("tir 1\n" + text, "k.tir"), lavapipe_target(), options);
}
bool parallel(const std::string& text) { return parallel_axes(ir::parse("tir 1\n" + text)).at(0); }
bool says(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n  " + line + "\n") != std::string::npos;
}

/// o[block] = x[block] + 1, output blocks by `block` at i * step.
std::string output_windows(const std::string& block, int step, const std::string& alias = "") {
  const std::string map =
      " map (%i) {\n  %s = constant " + std::to_string(step) + " : i32[]\n  %a = mul %i, %s\n  yield %a\n}\n";
  return "kernel @windows\ngrid (6)\nin i32[16] block (element(2))" + map + "out i32[16]" + alias + " block (" + block +
         ")" + map + "body (%x, %o) {\n  %a = load %x[0:2]\n  store %o[0:2], %a\n}\n";
}
}  // namespace

TEST_CASE("blocks: overlapping windows of an output are one after another, disjoint ones at once") {
  CHECK(parallel(output_windows("element(2)", 2)));
  CHECK(!parallel(output_windows("element(2)", 1)));
  CHECK(parallel(output_windows("element(4)", 2)));  // only the first two elements of each are stored
  CHECK(parallel(output_windows("element(2, 1, 1)", 2)));
  CHECK(!parallel(output_windows("element(2)", 3)));  // the last ones are clamped to one place
  CHECK(parallel(
      output_windows("bounded(2)", 2).replace(output_windows("bounded(2)", 2).rfind("yield %a"), 8, "yield %a, %s")));
  CHECK(says(program(output_windows("element(2)", 1)).explain,
             "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it"));
}

TEST_CASE("blocks: what a program reads of an aliased input counts against what others store") {
  CHECK(parallel(output_windows("element(2)", 2, " alias 0")));
  const auto with = [](const std::string& load) {
    return "kernel @k\ngrid (4)\nin i32[8] block (2) map (%i) { yield %i }\nin i32[8] whole\nout i32[8] alias 1 block "
           "(2) map (%i) { yield %i }\nbody (%x, %y, %o) {\n  %i = program_id axis 0\n" +
           load + "  store %o[0:2], %a\n}\n";
  };
  CHECK(parallel(with("  %a = load %x[0:2]\n")));
  CHECK(!parallel(with("  %a = load %y[3:5]\n")));
  const std::string text = program(with("  %a = load %y[0:2]\n")).explain;
  CHECK(says(text, "in_specs[1]: i32 (8,) whole; interior, no masks"));
  CHECK(text.find("out_specs[0]: i32 (8,) in blocks (2); starts with in_specs[1]; interior, no masks") !=
        std::string::npos);
}

TEST_CASE("blocks: an aliased input is copied only where it is read after a store") {
  const auto with = [](const std::string& body) {
    return "kernel @k\ngrid (2)\nin i32[8] block (4) map (%i) { yield %i }\nout i32[8] alias 0 block (4) map (%i) { "
           "yield %i }\nbody (%x, %o) {\n" +
           body + "}\n";
  };
  const std::string copied = "copied when a program starts, because it is read after a store to its alias";
  CHECK(program(with("  %a = load %x[0:4]\n  store %o[0:4], %a\n")).explain.find(copied) == std::string::npos);
  CHECK(program(with("  %a = load %x[0:2]\n  store %o[2:4], %a\n  %b = load %x[2:4]\n  store %o[0:2], %b\n"))
            .explain.find(copied) != std::string::npos);
  // In a loop the next iteration's load comes after this one's store; in the other arm of an if it does not.
  const std::string loop =
      "  %0 = constant 0 : i32[]\n  %3 = constant 3 : i32[]\n  %1 = constant 1 : i32[]\n  for %k = %0 to %3 step %1 "
      "carry () {\n    %a = load %x[%k]\n    %n = add %k, %1\n    store %o[%n], %a\n  }\n";
  CHECK(program(with(loop)).explain.find(copied) != std::string::npos);
  const std::string arms =
      "  %i = program_id axis 0\n  %0 = constant 0 : i32[]\n  %p = eq %i, %0\n  if %p {\n    %z = constant 5 : "
      "i32[4]\n    store %o[0:4], %z\n  } else {\n    %a = load %x[0:4]\n    store %o[0:4], %a\n  }\n";
  CHECK(program(with(arms)).explain.find(copied) == std::string::npos);
}

TEST_CASE("blocks: what a Program says of its arguments") {
  const Program p = program(
      "kernel @k\ngrid (2)\nin i32[8] block (4) buffered 3 map (%i) { yield %i }\nin i32[4] whole\nout i32[8] alias 0 "
      "block (4) map (%i) { yield %i }\n"
      "body (%x, %y, %o) {\n  %a = load %x[0:4]\n  %b = load %y[0:4]\n  store %y[0:4], %a\n  store %o[0:4], %b\n}\n");
  REQUIRE(p.args.size() == 3);
  CHECK((p.args[0].alias == -1 && p.args[1].alias == -1 && p.args[2].alias == 0));
  CHECK((!p.args[0].read && !p.args[0].written));  // the code sees the output's memory instead
  CHECK((p.args[1].read && p.args[1].written));
  CHECK((p.args[2].read && p.args[2].written));
  CHECK(p.explain.find("in_specs[1]: i32 (4,) whole; stored to: the call works on a copy; interior, no masks") !=
        std::string::npos);
  CHECK(p.explain.find("; Buffered(3) asked for, no effect: nothing is prefetched on a CPU") != std::string::npos);
}

TEST_CASE("blocks of an array whose size is near what may be, 2^55, and near 2^63") {
  const auto rows = [](const std::string& n) {
    return ir::parse(R"(tir 1
kernel @c
grid (5)
in i32[)" + n + R"(, 3] block (squeezed, 2) map (%i) { yield %i, %i }
out i32[6, 2] block (squeezed, 2) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %o) {
  %v = load %x[0:2]
  store %o[0:2], %v
}
)");
  };
  // sanitizers look for overflow
  for (const Target& target : {lavapipe_target(), gpu_target(), minimum_target()}) {
    CHECK_FALSE(compile(rows("12009599006321322"), target).spirv.empty());
    CHECK_THROWS_WITH_AS(compile(rows("9223372036854775807"), target),
                         "c: in_specs[0]: its array (9223372036854775807, 3) has more than 2^55 elements\n  at "
                         "<text>:4\n  note: no device holds as much",
                         CompileError);
  }
}

}  // namespace blocks_test
