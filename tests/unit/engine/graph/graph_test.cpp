#include "engine/graph/graph.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/platform.h"
#include "engine/graph/write.h"

namespace graph_test {
using namespace tessera;

namespace {

std::string elementwise(const std::string& name, const std::string& op, const std::string& dtype,
                        const std::string& out) {
  return "tir 1\nkernel @" + name + "\nin " + dtype + " whole\nin " + dtype + " whole\nout " + out +
         " whole\nbody (%x, %y, %o) {\n  %a = load %x[]\n  %b = load %y[]\n  %c = " + op +
         " %a, %b\n  store %o[], %c\n  yield\n}\n";
}

struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("tessera_graph_text_" + std::to_string(platform::process_id())))
          .string();
  Folder() {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/add.tir") << elementwise("add", "add", "i32[]", "i32[]");
    std::ofstream(path + "/less.tir") << elementwise("less", "lt", "i32[]", "bool[]");
    std::ofstream(path + "/count.tir") << R"(tir 1
kernel @count
grid (n)
in i32[] whole
out i32[] whole
body (%x, %o) {
  %zero = constant 0 : i32[]
  %i = program_id axis 0
  %first = eq %i, %zero
  if %first {
    %a = load %x[]
    store %o[], %a
    yield
  } else {
    yield
  }
  %one = constant 1 : i32[]
  %b = load %o[]
  %c = add %b, %one
  store %o[], %c
  yield
}
)";
    std::ofstream(path + "/sized.tir") << R"(tir 1
kernel @sized
grid (m)
in i32[n] block (1) map (%i) { yield %i }
out i32[n] block (1) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:1]
  store %o[0:1], %a
  yield
}
)";
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

// The sum of %1's elements, doubled while it is less than 100, and the running sums.
const char* kLoops = R"(tessera graph 1
in %0 i32[]
in %1 i32[4]
in %2 i32[]
%3, %4 = repeat 4 reverse : i32[], i32[4] {
  carry %5 i32[] = %0
  slice %6 i32[] = %1
  %7 = call "add.tir"(%5, %6) : i32[]
  out %7
  out %7
}
%8 = repeat : i32[] {
  carry %9 i32[] = %3
  %10 = call "less.tir"(%9, %2) : bool[]
  while %10
  %11 = call "add.tir"(%9, %9) : i32[]
  out %11
}
%12, %13 = switch %0 : i32[], i32[] {
  out %3
  out %8
} {
  %14 = call "add.tir"(%3, %8) : i32[]
  out %14
  out %0
}
out %12
out %13
out %4
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}
Array scalar_of(int32_t v) { return Array({}, std::vector<int32_t>{v}); }

}  // namespace

TEST_CASE("graphs: repeats and switches on the interpreter") {
  const Folder folder;
  const Graph g = parse_graph(kLoops, folder.path);
  CHECK(g.body.steps.size() == 3);
  const Array x({4}, std::vector<int32_t>{1, 2, 3, 4});
  auto run = [&](int32_t start, int32_t limit) {
    const std::vector<Array> out = interpret(g, {scalar_of(start), x, scalar_of(limit)});
    REQUIRE(out.size() == 3);
    std::vector<double> got{out[0].at(0), out[1].at(0)};
    for (int i = 0; i < 4; ++i) got.push_back(out[2].at(i));
    return got;
  };
  CHECK(run(0, 100) == std::vector<double>{10, 160, 10, 9, 7, 4});
  CHECK(run(-5, 100) == std::vector<double>{5, 160, 5, 4, 2, -1});  // an index is clamped
  CHECK(run(1, 3) == std::vector<double>{22, 1, 11, 10, 8, 5});     // the test fails at once
  CHECK(run(7, 17) == std::vector<double>{34, 7, 17, 16, 14, 11});
}

TEST_CASE("graphs: what is read is written as it was") {
  const Folder folder;
  const auto written = [&](const std::string& text) {
    write_graph(parse_graph(text, folder.path), folder.path + "/written");
    std::ifstream in(folder.path + "/written/graph.txt", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(written(kLoops) == kLoops);
  const std::string bounded = replaced(kLoops, "%8 = repeat :", "%8 = repeat at_most 3 :");
  CHECK(written(bounded) == bounded);
  Graph long_loop = parse_graph(kLoops, folder.path);
  std::get<Graph::Step::CountedLoop>(long_loop.body.steps[0].what).count = int64_t{1} << 31;
  try {
    write_graph(long_loop, folder.path + "/written");
    CHECK(false);
  } catch (const SpecError& e) {
    CHECK(std::string(e.what()) ==
          "write_graph: a repeat counts to 2147483648, and at most 2147483647 is possible in a file\n  at " +
              folder.path + "/graph.txt:5");
  }
  const std::string sized =
      "tessera graph 1\nin %0 i32[]\nin %1 i32[]\n%2 = call \"count.tir\"(%0) with n = %1 : i32[]\nout %2\nout %2\n";
  CHECK(written(sized) == sized);
}

TEST_CASE("graphs: a repeat that ends after so many iterations, whatever its test says") {
  const Folder folder;
  for (const int most : {0, 1, 3, 9}) {
    const Graph g = parse_graph(replaced(kLoops, "%8 = repeat :", "%8 = repeat at_most " + std::to_string(most) + " :"),
                                folder.path);
    REQUIRE(g.body.steps[1].while_loop());
    CHECK(g.body.steps[1].while_loop()->at_most == most);
    const std::vector<Array> out =
        interpret(g, {scalar_of(0), Array({4}, std::vector<int32_t>{1, 2, 3, 4}), scalar_of(100)});
    CHECK(out[1].at(0) == std::min(160, 10 << most));
  }
}

TEST_CASE("graphs: a grid's size that is a value") {
  const Folder folder;
  const Graph g = parse_graph(
      "tessera graph 1\nin %0 i32[]\nin %1 i32[]\n%2 = call \"count.tir\"(%0) with n = %1 : i32[]\nout %2\n",
      folder.path);
  CHECK(interpret(g, {scalar_of(5), scalar_of(3)})[0].at(0) == 8);
}

TEST_CASE("graphs: what is wrong with a repeat or switch is said with its line") {
  const Folder folder;
  const std::string at = folder.path + "/graph.txt:";
  auto error = [&](const std::string& from, const std::string& to) {
    try {
      parse_graph(replaced(kLoops, from, to), folder.path);
    } catch (const TraceError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error("repeat 4", "repeat 5") == at + "7: slice: the value is i32[4] but i32[5] is expected");
  CHECK(error("repeat 4", "repeat 3000000000") ==
        at + "5: repeat counts to 3000000000, and at most 2147483647 is possible");
  CHECK(error("repeat 4", "repeat at_most 4 4") == at + "5: a repeat that counts to 4 has no at_most");
  CHECK(error("repeat :", "repeat at_most 3000000000 :") ==
        at + "12: repeat: at_most is 3000000000, and at most 2147483647 is possible");
  CHECK(error("repeat 4 reverse", "repeat reverse") == at + "5: a repeat without a count has no reverse");
  CHECK(error("carry %5 i32[]", "carry %5 f32[]") == at + "6: carry: the value is i32[] but f32[] is expected");
  CHECK(error("slice %6 i32[] = %1", "slice %6 i32[] = %5") == at + "7: %5 is not defined above");
  CHECK(error("slice %6 i32[] = %1", "slice %5 i32[] = %1") == at + "7: %5 is defined a second time");
  CHECK(error("  carry %5 i32[] = %0\n  slice %6 i32[] = %1\n", "  slice %6 i32[] = %1\n  carry %5 i32[] = %0\n") ==
        at + "7: carry comes before slice");
  CHECK(error("  out %7\n  out %7\n", "  out %7\n  out %7\n  out %7\n") ==
        at + "12: the repeat in line 5 has 2 results but its body 3 outs");
  CHECK(error("  out %7\n  out %7\n", "") == at + "9: the repeat in line 5 has 1 carry but its body 0 outs");
  CHECK(error("  out %7\n", "  out %1\n") == at + "11: carry 0 is i32[] but its next value is i32[4]");
  CHECK(error("  out %7\n  out %7\n", "  out %7\n  out %1\n") ==
        at + "11: repeat: result 1 is i32[4, 4] but line 5 says i32[4]");
  CHECK(error("%3, %4 = repeat", "%3 = repeat") == at + "5: repeat has 1 result and 2 types");
  CHECK(error("  carry %9 i32[] = %3", "  carry %9 i32[] = %7") ==
        at + "13: %7 is defined in a body that ends above, or begins here");
  CHECK(error("  carry %9 i32[] = %3", "  slice %9 i32[] = %3") == at + "13: a repeat without a count has no slice");
  CHECK(error("  while %10\n", "") == at + "17: the repeat in line 12 has neither a count nor a while");
  CHECK(error("while %10", "while %9") == at + "15: while: the value is i32[] but bool[] is expected");
  CHECK(error("  while %10\n", "  while %10\n  while %10\n") == at + "16: a repeat has one while");
  CHECK(error("  while %10\n", "  out %9\n  while %10\n") == at + "16: out comes after while");
  CHECK(error("  out %7\n", "  while %7\n") == at + "9: a repeat that counts to 4 has no while");
  CHECK(error("%8 = repeat : i32[]", "%8, %15 = repeat : i32[], i32[]") ==
        at + "18: the repeat in line 12 has 2 results but its body 1 out");
  CHECK(error("  out %11\n", "  out %11\n  out %11\n") ==
        at + "19: the repeat in line 12 has no count, so it stacks nothing, but 1 out beyond its carries");
  CHECK(error("switch %0", "switch %1") == at + "19: switch: the value is i32[4] but i32[] is expected");
  CHECK(error("  out %3\n  out %8\n", "  out %3\n") ==
        at + "21: branch 0 of the switch in line 19 has 1 out but the switch 2 results");
  CHECK(error("  out %14\n  out %0", "  out %14\n  out %1") ==
        at + "26: branch 1 of the switch in line 19: result 1 is i32[4] but line 19 says i32[]");
  CHECK(error("} {", "}") == at + "26: expected in, const, out, or a call, repeat or switch");
  CHECK(error("  out %3\n", "  in %3 i32[]\n") == at + "20: expected a call, repeat, switch, out or }");
  CHECK(error("call \"add.tir\"(%5, %6)", "call \"add.tir\"(%5, %6) with n = %0") == at + "8: add has no size n");
  CHECK(error("i32[4]\nin %2 i32[]", "i32[4]\nin %2 i32[]\n%15 = call \"count.tir\"(%0) : i32[]")
            .starts_with(at + "5: count: "));
  auto call = [&](const std::string& text) {
    return error("in %2 i32[]\n", "in %2 i32[]\nin %15 i64[]\n" + text + "\n");
  };
  CHECK(call("%16 = call \"count.tir\"(%0) with n = %1 : i32[]") ==
        at + "6: count: the size n is i32[4] but i32[] or i64[] is expected");
  CHECK(call("%16 = call \"count.tir\"(%0) with n = %2, n = %15 : i32[]") ==
        at + "6: count: the size n is given twice");
  CHECK(call("%16 = call \"sized.tir\"(%1) with n = %2 : i32[4]") ==
        at + "6: sized: n is a size of an array, and a value may only be one of the grid");
  CHECK(call("%16 = call \"sized.tir\"(%1) with m = %15 : i32[4]") == "");
  std::string deep = "tessera graph 1\nin %0 i32[]\n";
  for (int i = 0; i < 65; ++i) deep += "repeat 1 {\n";
  auto text = [&](const std::string& t) {
    try {
      parse_graph(t, folder.path);
    } catch (const TraceError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(text(deep) == at + "67: bodies lie in one another 65 deep, and at most 64 may");
  CHECK(text("tessera graph 1\nin %0 f32[1048576, 1048577]\n") ==
        at + "2: f32[1048576, 1048577] is beyond 32 dims or 2^40 elements");
  const std::string whole = kLoops;
  CHECK(text(whole.substr(0, whole.find("out %12") - 2)) == at + "25: the body that begins in line 22 has no end");
  for (size_t n = 0; n < whole.size(); ++n) {
    try {
      parse_graph(whole.substr(0, n), folder.path);
    } catch (const Error&) {  // and nothing else
    }
  }
}

}  // namespace graph_test
