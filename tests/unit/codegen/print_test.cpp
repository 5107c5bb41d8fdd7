// debug_print and check at lane level: the report's records come to the interpreter's lines, in every form and for
// every target; what finds no room is counted; printing leaves axes parallel.
#include <doctest/doctest.h>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace print_test {
using namespace tessera;

namespace {
using Lines = std::vector<std::string>;
ir::Kernel parse(const std::string& text) {
  ir::Kernel k = ir::parse("tir 1\n" + text, "k.tir");
  ir::check(k);
  return k;
}
Array range(DType t, Shape shape) {
  Array a(std::move(shape), t);
  for (int64_t i = 0; i < a.size(); ++i)
    a.set_element_bits(i, reference::from_double(t, static_cast<double>(i) / (is_float(t) ? 4 : 1)));
  return a;
}
struct Compiled {
  Program program;
  ir::Kernel lanes;
};
Compiled compiled(const ir::Kernel& k, const Target& target, bool general) {
  Compiled c;
  CompileOptions options;
  options.general = general;
  options.dump = [&](std::string_view, const ir::Kernel& now, bool) {
    if (now.level == ir::Level::lane) c.lanes = now;
  };
  c.program = compile(k, target, options);
  return c;
}
std::vector<uint32_t> report(const Compiled& c, const ir::Kernel& k, std::vector<Array> arrays, uint64_t seed,
                             int64_t print_bytes = 1 << 16) {
  for (size_t i = arrays.size(); i < k.blocks.size(); ++i)
    arrays.push_back(range(k.blocks[i].dtype, bind_shape(k, static_cast<int>(i), {})));
  lane::RunOptions run;
  run.seed = seed;
  run.print_bytes = print_bytes;
  run.subgroup_size = 8;
  const lane::RunResult r = lane::run(c.lanes, arrays, k.num_inputs, {}, run);
  for (const std::string& s : r.reports) FAIL_CHECK(s << "\n" << ir::print(c.lanes));
  return r.report_words;
}
std::vector<PrintedLine> lines_of(const Program& p, const std::vector<uint32_t>& words) {
  const uint32_t end = words[words[PrintReport::kDropped] ? PrintReport::kEnd : PrintReport::kUsed];
  return printed_lines(p.prints, {words.begin() + PrintReport::kRecords, words.begin() + PrintReport::kRecords + end});
}
std::vector<Target> targets() {
  Target minimum = minimum_target();
  minimum.int8 = minimum.int16 = minimum.float16 = minimum.float64 = minimum.storage8 = minimum.storage16 = true;
  Target gpu = minimum;
  gpu.name = "gpu";
  gpu.max_workgroup_size = 1024;
  gpu.min_subgroup_size = gpu.max_subgroup_size = gpu.subgroup_size = 8;
  gpu.can_require_subgroup_size = gpu.subgroup_shuffle = gpu.subgroup_arithmetic = true;
  return {lavapipe_target(), minimum, gpu};
}
void same_lines(const ir::Kernel& k, const std::vector<Array>& inputs) {
  Lines wanted;
  interpret(k, inputs, {.print = [&](const std::string& s) { wanted.push_back(s); }});
  REQUIRE(!wanted.empty());
  for (const Target& t : targets())
    for (const bool general : {false, true}) {
      const Compiled c = compiled(k, t, general);
      for (uint64_t seed = 0; seed < 4; ++seed) {
        Lines got;
        for (const PrintedLine& line : lines_of(c.program, report(c, k, inputs, seed))) got.push_back(line.text);
        CHECK_MESSAGE(got == wanted, t.name, general ? " general" : " fast", "\n", ir::print(c.lanes));
      }
    }
}
}  // namespace

TEST_CASE("print: every dtype, tiles and scalars, in loops and branches") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    const std::string d(name(t));
    same_lines(parse("kernel @k\ngrid (3, 2)\nin " + d +
                     "[12, 5] block (4, 5) map (%i, %j) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nout " + d +
                     "[12, 10] block (4, 5) map (%i, %j) { yield %i, %j }\ntext \"{} at {}, {}\"\ntext \"round {:d} of "
                     "{}: {}\"\nbody (%x, %o) {\n  %i = program_id axis 0\n  %j = program_id axis 1\n" +
                     "  %a = load %x[0:4, 0:5]\n  %s = load %x[1, 2]\n  debug_print %a, %s, %i text 0\n  %zero = "
                     "constant 0 : i32[]\n  %one = constant 1 : i32[]\n  %two = constant 2 : i32[]\n" +
                     "  for %k = %zero to %two step %one {\n    %row = load %x[%k, 0:5]\n    %p = lt %k, %i\n    if %p "
                     "{\n      debug_print %k, %j, %row text 1\n    }\n  }\n  store %o[0:4, 0:5], %a\n}\n"),
               {range(t, {12, 5})});
  }
}

TEST_CASE("print: sums, scratch and what is written in between are seen as they were") {
  same_lines(parse(R"(kernel @k
grid (2, 3)
in f32[2, 24] block (1, 24) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out f32[2] block (1) map (%i, %j) { yield %i }
scratch ref<vmem, f32[24]>
text "{} then {}"
body (%x, %o, %s) {
  %j = program_id axis 1
  %zero = constant 0 : i32[]
  %first = eq %j, %zero
  if %first {
    %c = constant 0.0 : f32[24]
    store %s[0:24], %c
  }
  %a = load %x[0, 0:24]
  %before = load %s[0:24]
  %b = add %before, %a
  store %s[0:24], %b
  %sum = reduce_max %b axes [0]
  debug_print %before, %sum text 0
  %w = broadcast %sum dims [] : f32[1]
  store %o[0:1], %w
}
)"),
             {range(DType::f32, {2, 24})});
}

TEST_CASE("print: tiny programs, one per invocation; the axis stays parallel") {
  const ir::Kernel k = parse(
      "kernel @k\ngrid (100)\nin i32[100] block (squeezed) map (%i) { yield %i }\nout i32[100] block (squeezed) map "
      "(%i) { yield %i }\ntext \"{}\"\nbody (%x, %o) {\n  %a = load %x[]\n  debug_print %a text 0\n  store %o[], "
      "%a\n}\n");
  same_lines(k, {range(DType::i32, {100})});
  CHECK(compile(k, lavapipe_target()).explain.find("grid axis 0: parallel, proved") != std::string::npos);
}

TEST_CASE("print: what finds no room is counted") {
  const ir::Kernel k = parse(
      "kernel @k\ngrid (50)\nin i32[50] block (squeezed) map (%i) { yield %i }\nout i32[50] block (squeezed) map (%i) "
      "{ yield %i }\ntext \"{}\"\nbody (%x, %o) {\n  %a = load %x[]\n  debug_print %a text 0\n  store %o[], %a\n}\n");
  const Compiled c = compiled(k, lavapipe_target(), false);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    // four records of five words, and three words
    const std::vector<uint32_t> words = report(c, k, {range(DType::i32, {50})}, seed, 4 * 23);
    CHECK(words[PrintReport::kDropped] == 46);
    CHECK(words[PrintReport::kDroppedWords] == 46 * 5);
    CHECK(words[PrintReport::kDroppedWords + 1] == 0);
    CHECK(words[PrintReport::kDroppedChecks] == 0);
    CHECK(words[PrintReport::kEnd] == 20);
    CHECK(lines_of(c.program, words).size() == 4);
    CHECK(report(c, k, {range(DType::i32, {50})}, seed, 0)[PrintReport::kDropped] == 50);
  }
}

TEST_CASE("print: checks leave a record only where they fail") {
  const ir::Kernel k = parse(
      "kernel @k\ngrid (20)\nin i32[60] block (3) map (%i) { yield %i }\nout i32[60] block (3) map (%i) { yield %i "
      "}\ntext \"{} at {}\"\nbody (%x, %o) {\n  %i = program_id axis 0\n  %a = load %x[0:3]\n  %s = load %x[2]\n  %n = "
      "constant 50 : i32[]\n  %p = lt %s, %n\n  check %p, %a, %i text 0\n  store %o[0:3], %a\n}\n");
  for (const Target& t : targets())
    for (const bool general : {false, true}) {
      const Compiled c = compiled(k, t, general);
      const std::vector<PrintedLine> lines = lines_of(c.program, report(c, k, {range(DType::i32, {60})}, 3));
      REQUIRE(lines.size() == 4);
      CHECK(lines[0].program == 16);
      CHECK(lines[0].text == "[48 49 50] at 16");
      CHECK(c.program.prints[lines[0].print].check);
    }
}

TEST_CASE("print: a line has its limit") {
  const ir::Kernel k = parse(
      "kernel @k\nin i32[300000000] whole\nout i32[1] whole\ntext \"{}\"\nbody (%x, %o) {\n  %a = load "
      "%x[0:300000000]\n  debug_print %a text 0\n  %c = constant 0 : i32[1]\n  store %o[0:1], %c\n}\n");
  std::string message;
  try {
    compile(k, lavapipe_target());
  } catch (const CompileError& e) {
    message = e.what();
  }
  CHECK(message ==
        "k: debug_print: a line of 1200000016 bytes, but at most 1073741824 are printed at once\n  at k.tir:8\n  note: "
        "print a part of it");
}

}  // namespace print_test
