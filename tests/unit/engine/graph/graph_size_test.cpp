// Graphs that are deep or long: whatever is done with one takes time in proportion. What grows exponentially would
// never end here.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "engine/base/platform.h"
#include "engine/graph/fuse.h"
#include "engine/graph/graph.h"
#include "engine/graph/picture.h"
#include "engine/graph/plan.h"
#include "engine/graph/write.h"

namespace graph_size_test {
using namespace tessera;

namespace {

struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("tessera_graph_size_" + std::to_string(platform::process_id())))
          .string();
  Folder() {
    std::filesystem::create_directories(path);
    for (const auto& [name, op, out] : {std::tuple{"add", "add", "i32[]"}, std::tuple{"less", "lt", "bool[]"}})
      std::ofstream(path + "/" + name + ".tir")
          << "tir 1\nkernel @" << name << "\nin i32[] whole\nin i32[] whole\nout " << out
          << " whole\nbody (%x, %y, %o) {\n  %a = load %x[]\n  %b = load %y[]\n  %c = " << op
          << " %a, %b\n  store %o[], %c\n  yield\n}\n";
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

enum class Kind { count, bounded, endless, choose };

/// %0 + %1 in so many loops or branches, each in the one before.
std::string nested(Kind kind, int depth, int turns) {
  std::string text = "tessera graph 1\nin %0 i32[]\nin %1 i32[]\n", ends;
  int next = 2;
  std::string v = "%0";
  const auto fresh = [&] { return "%" + std::to_string(next++); };
  for (int i = 0; i < depth; ++i) {
    const std::string result = fresh();
    if (kind == Kind::choose) {
      text += result + " = switch %1 : i32[] {\nout " + v + "\n} {\n";
    } else {
      const std::string carry = fresh();
      text += result + " = repeat " +
              (kind == Kind::count     ? std::to_string(turns) + " "
               : kind == Kind::bounded ? "at_most " + std::to_string(turns) + " "
                                       : "") +
              ": i32[] {\ncarry " + carry + " i32[] = " + v + "\n";
      v = carry;
      if (kind != Kind::count) {
        const std::string test = fresh();
        text += test + " = call \"less.tir\"(" + carry + ", %1) : bool[]\nwhile " + test + "\n";
      }
    }
    ends = "out " + result + "\n" + (i > 0 ? "}\n" : "") + ends;
  }
  const std::string innermost = fresh();
  return text + innermost + " = call \"add.tir\"(" + v + ", %1) : i32[]\nout " + innermost + "\n}\n" + ends;
}
int32_t run(const Graph& g, int32_t x, int32_t y) {
  return static_cast<int32_t>(
      interpret(g, {Array({}, std::vector<int32_t>{x}), Array({}, std::vector<int32_t>{y})}).at(0).at(0));
}

}  // namespace

TEST_CASE("graphs: 63 loops or branches in one another are planned, pruned, fused, drawn and written") {
  const Folder folder;
  for (const Kind kind : {Kind::count, Kind::bounded, Kind::endless, Kind::choose})
    for (const int turns : {1, 2}) {
      if (turns == 2 && kind != Kind::count && kind != Kind::bounded) continue;
      CAPTURE(static_cast<int>(kind));
      CAPTURE(turns);
      const Graph g = parse_graph(nested(kind, 63, turns), folder.path);
      const Fused fused = fuse(g);
      for (const bool gates : {false, true}) {
        PlanOptions options;
        options.gates = gates;
        const GraphPlan p = plan(fused.graph, options);
        CHECK(p.commands.size() < 2000);
        CHECK_FALSE(explain(fused.graph, p).empty());
        CHECK_FALSE(dot(fused.graph, p).empty());
      }
      write_graph(g, folder.path + "/written");
      CHECK(read_graph(folder.path + "/written").values.size() == g.values.size());
      // Twice as often at each depth would be 2^63 additions: that is what the graph says, and nothing to be tried.
      if (turns == 1) CHECK(run(fused.graph, 1, 5) == 6);
    }
}

TEST_CASE("graphs: what is dead in 63 loops goes, and what speaks stays") {
  const Folder folder;
  Graph g = parse_graph(nested(Kind::count, 63, 1), folder.path);
  g.body.outputs.clear();
  CHECK(plan(g).dropped == 1);
  CHECK(plan(g).commands.empty());
}

TEST_CASE("graphs: 20,000 loops and branches, one after another") {
  const Folder folder;
  std::string text = "tessera graph 1\nin %0 i32[]\nin %1 i32[]\n", v = "%0";
  for (int i = 0; i < 20000; ++i) {
    const auto name = [&](int k) { return "%" + std::to_string(2 + 3 * i + k); };
    const bool loop = i % 2 == 0;
    text += name(0) + (loop ? " = repeat 1 : i32[] {\ncarry " + name(1) + " i32[] = " + v : " = switch %1 : i32[] {") +
            "\n" + name(2) + " = call \"add.tir\"(" + (loop ? name(1) : v) + ", %1) : i32[]\nout " + name(2) + "\n}\n";
    v = name(0);
  }
  CHECK(run(parse_graph(text + "out " + v + "\n", folder.path), 7, 1) == 20007);
}

}  // namespace graph_size_test
