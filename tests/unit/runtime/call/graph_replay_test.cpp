// Graphs as they run on a device: planned, recorded once, replayed with other arguments; and random graphs against the
// interpreter.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/graph/plan.h"
#include "runtime/call/graph.h"
#include "tests/unit/runtime/support.h"

namespace graph_replay_test {
using namespace tessera;
using namespace tessera::test;

namespace {

std::string binary(const std::string& name, const std::string& alias, const std::string& first) {
  const auto block = [](const std::string& more) { return " f32[8]" + more + " block (4) map (%i) { yield %i }\n"; };
  return "tir 1\nkernel @" + name + "\ngrid (2)\nin" + block("") + "in" + block("") + "out" + block(alias) +
         "body (%x, %y, %o) {\n  %a = load " + first +
         "[0:4]\n  %b = load %y[0:4]\n  %h = constant 0.5 : f32[4]\n  %c = add %a, %b\n  %d = mul %c, %h\n  store "
         "%o[0:4], %d\n  yield\n}\n";
}
struct Folder {
  std::string path = (temporary_path("replay")).string();
  Folder() {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/mean.tir") << binary("mean", "", "%x");
    std::ofstream(path + "/onto.tir") << binary("onto", " alias 0", "%o");  // its output starts as its first input
    std::ofstream(path + "/index.tir") << "tir 1\nkernel @index\nin f32[8] whole\nout i32[] whole\nbody (%x, %o) {\n  "
                                          "%a = load %x[3]\n  %b = convert %a : i32[]\n  store %o[], %b\n  yield\n}\n";
    std::ofstream(path + "/less.tir") << "tir 1\nkernel @less\nin i32[] whole\nin i32[] whole\nout bool[] whole\nbody "
                                         "(%x, %y, %o) {\n  %a = load %x[]\n  %b = load %y[]\n  %c = lt %a, %b\n"
                                         "  store %o[], %c\n  yield\n}\n";
    std::ofstream(path + "/next.tir") << "tir 1\nkernel @next\nin i32[] whole\nout i32[] whole\nbody (%x, %o) {\n  %a "
                                         "= load %x[]\n  %b = constant 1 : i32[]\n  %c = add %a, %b\n"
                                         "  store %o[], %c\n  yield\n}\n";
    std::ofstream(path + "/says.tir") << "tir 1\nkernel @says\nin f32[8] whole\nout f32[8] whole\ntext \"{}\"\nbody "
                                         "(%x, %o) {\n  %a = load %x[0]\n  debug_print %a text 0\n"
                                         "  %b = load %x[0:8]\n  store %o[0:8], %b\n  yield\n}\n";
    std::ofstream(path + "/row.tir") << "tir 1\nkernel @row\nin f32[3] whole\nin f32[3] whole\nout f32[3] whole\nbody "
                                        "(%x, %y, %o) {\n  %a = load %x[0:3]\n  %b = load %y[0:3]\n"
                                        "  %c = add %a, %b\n  store %o[0:3], %c\n  yield\n}\n";
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Graph graph(const std::string& text) const { return parse_graph("tessera graph 1\n" + text, path); }
};
/// Of its own: what is logged here would be looked at by every other test.
Device logged(bool log = true) {
  DeviceOptions options;
  options.validation = kValidation;
  options.log_commands = log;
  return Device(options);
}
Array scalar_of(int32_t v) { return Array({}, std::vector<int32_t>{v}); }

void check_same(const std::vector<Array>& got, const std::vector<Array>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i].shape() == wanted[i].shape());
    for (int64_t e = 0; e < got[i].size(); ++e) CHECK(got[i].at(e) == wanted[i].at(e));
  }
}
void check_graph(const Graph& g, const std::vector<Array>& inputs, bool log = true) {
  const Device d = logged(log);
  const CompiledGraph there = load(d, g, {.fuse = false});
  for (int turn = 0; turn < 2; ++turn) check_same(there.run(inputs), interpret(g, inputs));
  check_clean(d);
}

/// A random graph over f32[8] values: calls, some onto their first argument, loops both unrolled and turned by the
/// host, branches, stacks and slices.
class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  std::string text() {
    std::string t = "in %0 f32[8]\nin %1 f32[8]\nin %2 f32[3, 8]\nin %3 i32[]\nin %4 i32[]\n";
    seen_ = {0, 1};
    next_ = 5;
    t += steps(4 + below(5), "", 0);
    for (int i = 0; i < 3; ++i) t += "out %" + std::to_string(any()) + "\n";
    return t;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  size_t any() { return seen_[seen_.size() - 1 - std::min(below(seen_.size()), below(seen_.size()))]; }
  static std::string name(size_t v) { return "%" + std::to_string(v); }

  std::string steps(size_t count, const std::string& indent, int depth) {
    std::string t;
    for (size_t i = 0; i < count; ++i) {
      const size_t kind = depth < 3 ? below(8) : 0;
      t += kind < 5    ? call(indent)
           : kind == 5 ? scan(indent, depth)
           : kind == 6 ? loop(indent, depth)
                       : choose(indent, depth);
    }
    return t;
  }
  std::string call(const std::string& indent) {
    const size_t a = any(), b = any();
    seen_.push_back(next_++);
    return indent + name(seen_.back()) + " = call \"" + (below(2) ? "mean" : "onto") + ".tir\"(" + name(a) + ", " +
           name(b) + ") : f32[8]\n";
  }
  std::string scan(const std::string& indent, int depth) {
    const auto outside = seen_;
    const size_t a = next_++, b = next_++, row = next_++, c = next_++, result = next_++, other = next_++,
                 stack = next_++;
    std::string t = indent + name(result) + ", " + name(other) + ", " + name(stack) + " = repeat 3" +
                    (below(2) ? " reverse" : "") + " : f32[8], f32[8], f32[3, 8] {\n";
    t += indent + "  carry " + name(a) + " f32[8] = " + name(any()) + "\n" + indent + "  carry " + name(b) +
         " f32[8] = " + name(any()) + "\n";
    t += indent + "  slice " + name(row) +
         " f32[8] = " + name(stacked_.empty() || below(2) ? 2 : stacked_[below(stacked_.size())]) + "\n";
    seen_.insert(seen_.end(), {a, b, row});
    t += steps(below(3), indent + "  ", depth + 1) + indent + "  " + name(c) + " = call \"onto.tir\"(" + name(any()) +
         ", " + name(row) + ") : f32[8]\n";
    seen_.push_back(c);
    t += indent + "  out " + name(any()) + "\n" + indent + "  out " + name(any()) + "\n" + indent + "  out " +
         name(any()) + "\n" + indent + "}\n";
    seen_ = outside;
    seen_.insert(seen_.end(), {result, other});
    if (depth == 0) stacked_.push_back(stack);
    return t;
  }
  std::string loop(const std::string& indent, int depth) {
    const auto outside = seen_;
    const size_t n = next_++, a = next_++, b = next_++, test = next_++, n2 = next_++, last = next_++, result = next_++,
                 other = next_++;
    const std::string most = below(2) ? " at_most " + std::to_string(below(5)) : "";
    std::string t = indent + name(last) + ", " + name(result) + ", " + name(other) + " = repeat" + most +
                    " : i32[], f32[8], f32[8] {\n";
    t += indent + "  carry " + name(n) + " i32[] = %3\n";
    t += indent + "  carry " + name(a) + " f32[8] = " + name(any()) + "\n" + indent + "  carry " + name(b) +
         " f32[8] = " + name(any()) + "\n";
    seen_.insert(seen_.end(), {a, b});
    t += steps(below(2), indent + "  ", depth + 2);
    t += indent + "  " + name(test) + " = call \"less.tir\"(" + name(n) + ", %4) : bool[]\n" + indent + "  while " +
         name(test) + "\n";
    t += steps(1 + below(3), indent + "  ", depth + 1);
    t += indent + "  " + name(n2) + " = call \"next.tir\"(" + name(n) + ") : i32[]\n";
    t += indent + "  out " + name(n2) + "\n" + indent + "  out " + name(any()) + "\n" + indent + "  out " +
         name(any()) + "\n" + indent + "}\n";
    seen_ = outside;
    seen_.insert(seen_.end(), {result, other});
    return t;
  }
  std::string choose(const std::string& indent, int depth) {
    const auto outside = seen_;
    const size_t index = next_++, result = next_++, other = next_++;
    std::string t = indent + name(index) + " = call \"index.tir\"(" + name(any()) + ") : i32[]\n" + indent +
                    name(result) + ", " + name(other) + " = switch " + name(index) + " : f32[8], f32[8] {\n";
    for (int branch = 0; branch < 3; ++branch) {
      if (branch > 0) t += indent + "} {\n";
      t += steps(below(3), indent + "  ", depth + 1) + indent + "  out " + name(any()) + "\n" + indent + "  out " +
           name(any()) + "\n";
      seen_ = outside;
    }
    seen_.insert(seen_.end(), {result, other});
    return t + indent + "}\n";
  }

  std::mt19937_64 random_;
  std::vector<size_t> seen_, stacked_;
  size_t next_ = 0;
};

/// Its kernels' lines go to `lines`.
Device printing(std::vector<std::string>& lines) {
  DeviceOptions options;
  options.validation = kValidation, options.log_commands = true;
  options.print = [&](std::string_view line) { lines.emplace_back(line); };
  return Device(options);
}

}  // namespace

TEST_CASE("graphs: random ones on a device as on the interpreter") {
  const Folder folder;
  Device d = logged();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::string text = Random(seed).text();
    CAPTURE(text);
    const Graph g = folder.graph(text);
    const Array rows({3, 8}, [] {
      std::vector<float> v(24);
      for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i) / 8;
      return v;
    }());
    const std::vector<Array> inputs{ramp(8), ramp(8, -3), rows, scalar_of(static_cast<int32_t>(seed % 4)),
                                    scalar_of(3)};
    const CompiledGraph there = load(d, g, {.fuse = false});
    check_same(there.run(inputs), interpret(g, inputs));
    CHECK(there.plan().arena_bytes <= there.plan().unshared_bytes);
    if (seed % 4 == 3) {
      check_clean(d);
      d = logged();
    }
  }
}

TEST_CASE("graphs: loops that are too long to be unrolled are turned by the host, without waiting") {
  const Folder folder;
  const Graph g = folder.graph(
      "in %0 f32[3]\nin %1 f32[1100, 3]\n%2, %3 = repeat 1100 reverse : f32[3], f32[1100, 3] {\n  carry %4 f32[3] = "
      "%0\n  slice %5 f32[3] = %1\n"
      "  %6 = call \"row.tir\"(%4, %5) : f32[3]\n  out %6\n  out %4\n}\nout %2\nout %3\n");
  std::vector<float> rows(3300);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 7);
  check_graph(g, {ramp(3), Array({1100, 3}, rows)}, false);  // a log of them takes seconds to go through
  CHECK(plan(g).nodes.size() == 2);                          // the first carry, and the loop
  CHECK(plan(g, {.unrolled = 1100}).nodes.size() == 1);
}

TEST_CASE("graphs: rows of no whole words, from and to arguments") {
  const Folder folder;
  check_graph(folder.graph("in %0 f32[3]\nin %1 f32[5, 3]\n%2, %3 = repeat 5 : f32[3], f32[5, 3] {\n  carry %4 f32[3] "
                           "= %0\n  slice %5 f32[3] = %1\n  %6 = call \"row.tir\"(%4, %5) : f32[3]\n"
                           "  out %6\n  out %6\n}\nout %3\nout %2\nout %2\n"),
              {ramp(3), Array({5, 3}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})});
}

TEST_CASE("graphs: one recording for all arguments, calls in flight, results as arguments") {
  const Folder folder;
  const Device d = logged();
  const Graph g = folder.graph(
      "in %0 f32[8]\nin %1 f32[8]\n%2 = call \"onto.tir\"(%0, %1) : f32[8]\n%3 = call \"onto.tir\"(%2, %0) : "
      "f32[8]\n%4 = call \"mean.tir\"(%3, %3) : f32[8]\nout %4\nout %1\n");
  const CompiledGraph there = load(d, g, {.fuse = false});
  CHECK(there.plan().nodes.size() == 1);
  std::vector<std::vector<DeviceArray>> given{{DeviceArray(d, ramp(8)), DeviceArray(d, ramp(8, 5))}};
  // nothing waits
  for (int turn = 0; turn < 20; ++turn)
    given.push_back(there(turn % 3 ? given.back() : given[static_cast<size_t>(turn) / 2]));
  std::vector<std::vector<Array>> answers{{ramp(8), ramp(8, 5)}};
  for (int turn = 0; turn < 20; ++turn)
    answers.push_back(interpret(g, turn % 3 ? answers.back() : answers[static_cast<size_t>(turn) / 2]));
  for (size_t turn = 1; turn < given.size(); ++turn)
    check_same({given[turn][0].download(), given[turn][1].download()}, answers[turn]);
  const DeviceArray same(d, ramp(8));
  check_same({there({same, same})[0].download()}, {interpret(g, {ramp(8), ramp(8)})[0]});
  check_clean(d);
}

TEST_CASE("graphs: what a kernel prints in a loop") {
  const Folder folder;
  std::vector<std::string> lines;
  const Device loud = printing(lines);
  const Graph g = folder.graph(
      "in %0 f32[8]\nin %1 f32[8]\n%2 = repeat 3 : f32[8] {\n  carry %3 f32[8] = %0\n  %4 = call \"says.tir\"(%3) : "
      "f32[8]\n  %5 = call \"mean.tir\"(%3, %1) : f32[8]\n  out %5\n}\nout %2\n");
  const CompiledGraph there = load(loud, g);
  CHECK(there.plan().dropped == 0);  // %4 is needed by nobody, but says something
  there.run({ramp(8, 8), ramp(8)});
  CHECK(lines == std::vector<std::string>{"8.0", "4.0", "2.0"});
  check_clean(loud);
}

TEST_CASE("graphs: what prints keeps its order, whatever runs beside it") {
  const Folder folder;
  std::vector<std::string> lines;
  const Device loud = printing(lines);
  const Graph g = folder.graph(
      "in %0 f32[8]\nin %1 f32[8]\n%2 = call \"mean.tir\"(%0, %0) : f32[8]\n%3 = call \"mean.tir\"(%2, %2) : "
      "f32[8]\n%4 = call \"says.tir\"(%3) : f32[8]\n"
      "%5 = call \"says.tir\"(%1) : f32[8]\n%6 = call \"mean.tir\"(%5, %1) : f32[8]\n%7 = call \"mean.tir\"(%1, %1) : "
      "f32[8]\n%8 = call \"mean.tir\"(%7, %1) : f32[8]\nout %4\nout %6\nout %8\n");
  const CompiledGraph there = load(loud, g, {.fuse = false});
  CHECK(there.plan().barriers < there.plan().barriers_as_written);
  check_same({there.run({ramp(8, 8), ramp(8, 3)})[2]}, {ramp(8, 3)});
  CHECK(lines == std::vector<std::string>{"8.0", "3.0"});
  check_clean(loud);
}

TEST_CASE("graphs: memory is planned, and barriers are where they must be" * without_device) {
  const Folder folder;
  const auto of = [&](const std::string& text) { return plan(folder.graph("in %0 f32[8]\nin %1 f32[8]\n" + text)); };
  // A chain needs two places, however long.
  std::string chain = "%2 = call \"mean.tir\"(%0, %1) : f32[8]\n";
  for (int i = 3; i < 12; ++i)
    chain += "%" + std::to_string(i) + " = call \"mean.tir\"(%" + std::to_string(i - 1) + ", %0) : f32[8]\n";
  GraphPlan p = of(chain + "out %11\n");
  CHECK(p.arena_bytes == 128);
  CHECK(p.unshared_bytes == 9 * 64);
  CHECK(p.bytes<GraphPlan::Storage::Output>() == 32);
  CHECK(explain(folder.graph("in %0 f32[8]\nin %1 f32[8]\n" + chain + "out %11\nout %0\n"), p) ==
        "graph: 10 calls of 1 kernel, 0 copies; 0 dropped, since their results are unused\n"
        "waits for the device: none\n"
        "barriers: 9\n"
        "peak memory: 224 bytes\n"
        "  arguments: 64 bytes\n"
        "  constants: 0 bytes\n"
        "  results: 32 bytes\n"
        "  intermediate values and scratch: 128 bytes (576 without sharing)\n");
  // Onto a dead value: no memory and no copy of its own, here all in the result.
  p =
      of("%2 = call \"mean.tir\"(%0, %1) : f32[8]\n%3 = call \"onto.tir\"(%2, %0) : f32[8]\n%4 = call \"onto.tir\"(%3, "
         "%1) : f32[8]\nout %4\n");
  CHECK(p.arena_bytes == 0);
  for (const GraphPlan::Command& c : p.commands) CHECK((c.call() || c.copy()->from == c.copy()->to));
  // Onto one that is needed later, that is the other argument too, or the caller's: with a copy.
  const auto copies = [](const GraphPlan& plan) {
    size_t n = 0;
    for (const GraphPlan::Command& c : plan.commands) n += c.copy() && c.copy()->from != c.copy()->to;
    return n;
  };
  CHECK(copies(of("%2 = call \"mean.tir\"(%0, %1) : f32[8]\n%3 = call \"onto.tir\"(%2, %0) : f32[8]\n%4 = call "
                  "\"mean.tir\"(%3, %2) : f32[8]\nout %4\n")) == 1);
  CHECK(copies(of("%2 = call \"mean.tir\"(%0, %1) : f32[8]\n%3 = call \"onto.tir\"(%2, %2) : f32[8]\nout %3\n")) == 1);
  CHECK(copies(of("%2 = call \"onto.tir\"(%0, %1) : f32[8]\nout %2\n")) == 1);
  CHECK(of("%2 = call \"mean.tir\"(%0, %1) : f32[8]\n%3 = call \"mean.tir\"(%2, %1) : f32[8]\nout %0\n").dropped == 2);
  // Rows of a stacked result are written in place.
  CHECK(copies(of("%2, %3 = repeat 4 : f32[8], f32[4, 8] {\n  carry %4 f32[8] = %0\n  %5 = call \"mean.tir\"(%4, %1) : "
                  "f32[8]\n  out %5\n  out %5\n}\nout %3\n")) == 0);
}

// -- what a value decides

namespace {
/// %2 turns from 0 while less than %1, each adding one to %0's elements' mean with itself; what it is at last.
std::string counting(const std::string& at_most, const std::string& more = "") {
  return "in %0 f32[8]\nin %1 i32[]\nin %2 i32[]\n%3, %4 = repeat " + at_most +
         ": i32[], f32[8] {\n  carry %5 i32[] = %2\n  carry %6 f32[8] = %0\n"
         "  %7 = call \"less.tir\"(%5, %1) : bool[]\n  while %7\n  %8 = call \"next.tir\"(%5) : i32[]\n  %9 = call "
         "\"onto.tir\"(%6, %0) : f32[8]\n" +
         more + "  out %8\n  out %9\n}\nout %3\nout %4\n";
}
size_t waits(const std::vector<GraphPlan::Node>& nodes, const GraphPlan& p) {
  size_t n = 0;
  for (const GraphPlan::Node& node : nodes) n += !p.recorded(node);
  return n;
}
}  // namespace

TEST_CASE("graphs: a count in device memory is no reason to wait") {
  const Folder folder;
  const Device d = logged();
  const Graph g = folder.graph(counting("at_most 20 "));
  const CompiledGraph there = load(d, g, {.fuse = false, .timestamps = true});
  CHECK(waits(there.plan().nodes, there.plan()) == 0);
  CHECK(there.recordings().made == 1);
  for (const int limit : {0, 1, 7, 20, 25, -3}) {
    const std::vector<Array> inputs{ramp(8), scalar_of(limit), scalar_of(0)}, wanted = interpret(g, inputs);
    const size_t before = d.command_log().size();
    std::vector<DeviceArray> arguments;
    for (const Array& a : inputs) arguments.emplace_back(d, a);
    const std::vector<DeviceArray> out = there(arguments);
    size_t submissions = 0;
    for (size_t i = before; i < d.command_log().size(); ++i)
      submissions += d.command_log()[i].is<LogEntry::Submit>() && d.command_log()[i].what == "a graph";
    CHECK(submissions == 1);
    check_same({out[0].download(), out[1].download()}, wanted);
    CHECK(wanted[0].at(0) == std::clamp(limit, 0, 20));
  }
  CHECK(there.trace().size() > 20);
  // Each barrier is needed, and so is what it says of the numbers of workgroups.
  const CommandLog log = d.command_log();
  CHECK(find_unordered(log).empty());
  size_t sized = 0;
  CommandLog blind = log;
  for (LogEntry& e : blind) {
    if (e.command()) sized += e.command()->indirect.size();
    if (LogEntry::Barrier* b = e.barrier()) b->to &= static_cast<StageMask>(~mask(Stage::indirect));
  }
  CHECK(sized > 100);
  const std::vector<std::string> reports = find_unordered(blind);
  REQUIRE(!reports.empty());
  for (const std::string& r : reports) CHECK(r.find(" is sized by bytes ") != std::string::npos);
  check_clean(d);
}

TEST_CASE("graphs: a loop that nothing bounds is looked at after some iterations") {
  const Folder folder;
  const Device d = logged(false);
  for (const char* most : {"", "at_most 1500 "}) {
    const Graph g = folder.graph(counting(most));
    const CompiledGraph there = load(d, g, {.fuse = false});
    CHECK(waits(there.plan().nodes, there.plan()) == 1);
    CHECK(there.plan().nodes.back().loop()->iterations == 16);
    for (const int limit : {0, 1, 15, 16, 17, 40}) {
      const std::vector<Array> inputs{ramp(8), scalar_of(limit), scalar_of(0)};
      check_same(there.run(inputs), interpret(g, inputs));
    }
    if (*most == 0) continue;
    for (const int limit : {1499, 1500, 1501, 5000})
      CHECK(there.run({ramp(8), scalar_of(limit), scalar_of(0)})[0].at(0) == std::min(limit, 1500));
  }
  check_clean(d);
}

TEST_CASE("graphs: loops and branches in one another, decided on the device") {
  const Folder folder;
  const Graph g = folder.graph(
      "in %0 f32[8]\nin %1 i32[]\nin %2 i32[]\n%3, %4 = repeat at_most 5 : i32[], f32[8] {\n  carry %5 i32[] = %2\n  "
      "carry %6 f32[8] = %0\n  %7 = call \"less.tir\"(%5, %1) : bool[]\n  while %7\n"
      "  %8 = call \"next.tir\"(%5) : i32[]\n  %9 = switch %5 : f32[8] {\n    out %6\n  } {\n    %10 = call "
      "\"onto.tir\"(%6, %0) : f32[8]\n    out %10\n  } {\n"
      "    %11, %12 = repeat at_most 3 : i32[], f32[8] {\n      carry %13 i32[] = %5\n      carry %14 f32[8] = %6\n    "
      "  %15 = call \"less.tir\"(%13, %1) : bool[]\n      while %15\n"
      "      %16 = call \"next.tir\"(%13) : i32[]\n      %17 = call \"mean.tir\"(%14, %0) : f32[8]\n      out %16\n    "
      "  out %17\n    }\n    out %12\n  }\n  out %8\n  out %9\n}\nout %3\nout %4\n");
  const Device d = logged();
  const CompiledGraph there = load(d, g, {.fuse = false, .frames_in_flight = 2});
  CHECK(there.plan().gates.size() == 3);
  CHECK(there.recordings().made == 2);
  for (const int start : {-2, 0, 1, 3})
    for (const int limit : {0, 2, 4, 9}) {
      const std::vector<Array> inputs{ramp(8, 8), scalar_of(limit), scalar_of(start)};
      check_same(there.run(inputs), interpret(g, inputs));
    }
  check_clean(d);
}

TEST_CASE("graphs: what the host still decides, and why") {
  const Folder folder;
  const auto why = [&](const std::string& branch, const std::string& second = "%2") {
    const Graph g = folder.graph(
        "in %0 f32[8]\nin %1 i32[]\nin %2 f32[3]\nin %3 f32[5, 3]\n%4, %5 = switch %1 : f32[8], f32[3] {\n" + branch +
        "  out " + second + "\n} {\n  out %0\n  out %2\n}\nout %4\nout %5\n");
    const Device d = logged(false);
    const CompiledGraph there = load(d, g, {.fuse = false});
    std::vector<float> rows(15);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    for (const int i : {0, 1}) {
      const std::vector<Array> inputs{ramp(8), scalar_of(i), ramp(3), Array({5, 3}, rows)};
      check_same(there.run(inputs), interpret(g, inputs));
    }
    check_clean(d);
    for (const GraphPlan::Node& n : there.plan().nodes)
      if (!there.plan().recorded(n)) return n.why + " at " + std::to_string(n.loc.line);
    return std::string("on the device");
  };
  CHECK(why("  %6 = call \"mean.tir\"(%0, %0) : f32[8]\n  out %6\n") == "on the device");
  // nobody needs it
  CHECK(why("  %6 = repeat 5 : f32[3] {\n    carry %7 f32[3] = %2\n    slice %8 f32[3] = %3\n    %9 = call "
            "\"row.tir\"(%7, %8) : f32[3]\n    out %9\n  }\n  out %0\n") == "on the device");
  CHECK(why("  %6, %10 = repeat 5 : f32[3], f32[8] {\n    carry %7 f32[3] = %2\n    carry %11 f32[8] = %0\n    slice "
            "%8 f32[3] = %3\n    %9 = call \"row.tir\"(%7, %8) : f32[3]\n"
            "    %12 = call \"mean.tir\"(%11, %0) : f32[8]\n    out %9\n    out %12\n  }\n  out %10\n",
            "%6") == "a loop works on rows of 12 bytes, which lie at no multiples of 16 at 7");
  CHECK(why("  %6 = repeat 1100 : f32[8] {\n    carry %7 f32[8] = %0\n    %8 = call \"mean.tir\"(%7, %0) : f32[8]\n    "
            "out %8\n  }\n  out %6\n") == "a loop of 1100 iterations becomes more than 1024 commands at 7");
  CHECK(why("  %6 = repeat : i32[] {\n    carry %7 i32[] = %1\n    %8 = call \"less.tir\"(%7, %1) : bool[]\n    while "
            "%8\n    %9 = call \"next.tir\"(%7) : i32[]\n    out %9\n  }\n"
            "  %10 = switch %6 : f32[8] {\n    out %0\n  }\n  out %10\n") ==
        "nothing bounds how often a while loop iterates at 7");
  // A kernel that prints has room for one call's lines.
  std::vector<std::string> lines;
  const Device loud = printing(lines);
  const CompiledGraph there =
      load(loud, folder.graph(counting("at_most 5 ", "  %10 = call \"says.tir\"(%9) : f32[8]\n")), {.fuse = false});
  CHECK(there.plan().nodes.back().why == "says prints or checks in a loop that a value ends");
  there.run({ramp(8, 8), scalar_of(3), scalar_of(0)});
  CHECK(lines == std::vector<std::string>{"8.0", "8.0", "8.0"});
  const CompiledGraph once = load(loud,
                                  folder.graph("in %0 f32[8]\nin %1 i32[]\n%2 = switch %1 : f32[8] {\n  out %0\n} {\n  "
                                               "%3 = call \"says.tir\"(%0) : f32[8]\n  out %3\n}\nout %2\n"),
                                  {.fuse = false});
  CHECK(waits(once.plan().nodes, once.plan()) == 0);
  for (const int i : {0, 1, 0}) once.run({ramp(8, 5), scalar_of(i)});
  CHECK(lines == std::vector<std::string>{"8.0", "8.0", "8.0", "5.0"});
  check_clean(loud);
}

}  // namespace graph_replay_test
