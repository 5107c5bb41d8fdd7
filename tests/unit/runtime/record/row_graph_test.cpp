// Loops over the rows of arrays, in graphs that are recorded or of a bundle.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "runtime/interop.h"
#include "runtime/loaded_graph.h"
#include "runtime/record_graph.h"
#include "tests/support/process.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace row_graph_test {
using namespace tessera;
using namespace tessera::test;

namespace {
/// Kernels of two inputs of one shape: their sum, and the same where the output begins as the first.
std::string add(const std::string& type, const std::string& index, const char* alias) {
  return "tir 1\nkernel @add\ngrid ()\nin " + type + " whole\nin " + type + " whole\nout " + type + alias +
         " whole\nbody (%x, %y, %o) {\n  %a = load %x[" + index + "]\n  %b = load %y[" + index +
         "]\n  %c = add %a, %b\n  store %o[" + index + "], %c\n}\n";
}
struct Case {
  const char* what;
  std::string row, index;  // "f32[3]", "0:3"
  Shape shape;             // of a row
  std::string text;        // %0 is a carry, %1 has 4 rows, %2 is i32[]
};
/// R is a row, S are four, T two times four.
std::string with(const std::string& text, const Case& c) {
  std::string out;
  const std::string dims = c.row.substr(c.row.find('[') + 1), name = c.row.substr(0, c.row.find('['));
  const std::string rest = dims == "]" ? "]" : ", " + dims;
  for (const char ch : text)
    if (ch == 'R') out += c.row;
    else if (ch == 'S') out += name + "[4" + rest;
    else if (ch == 'T') out += name + "[2, 4" + rest;
    else out += ch;
  return out;
}
const std::string kScan =
    "tessera graph 1\nin %0 R\nin %1 S\nin %2 i32[]\n%3, %4 = repeat 4 reverse : R, S {\n  carry %5 R = %0\n  slice %6 "
    "R = %1\n  %7 = call \"add.tir\"(%5, %6) : R\n  out %7\n  out %7\n}\nout %3\nout %4\n";
const std::string kInPlace =
    "tessera graph 1\nin %0 R\nin %1 S\nin %2 i32[]\n%3, %4 = repeat 4 : R, S {\n  carry %5 R = %0\n  slice %6 R = "
    "%1\n  "
    "%7 = call \"onto.tir\"(%6, %5) : R\n  %8 = call \"add.tir\"(%7, %6) : R\n  out %8\n  out %7\n}\nout %3\nout %4\n";
const std::string kNested =
    "tessera graph 1\nin %0 R\nin %1 T\nin %2 i32[]\n%3, %4 = repeat 2 : R, T {\n  carry %5 R = %0\n  slice %6 S = %1\n"
    "  %7, %8 = repeat 4 : R, S {\n    carry %9 R = %5\n    slice %10 R = %6\n    %11 = call \"add.tir\"(%9, %10) : R\n"
    "    out %11\n    out %10\n  }\n  out %7\n  out %8\n}\nout %3\nout %4\n";
/// The device decides whether the loop's calls run.
const std::string kBranch =
    "tessera graph 1\nin %0 R\nin %1 S\nin %2 i32[]\n%3, %4 = switch %2 : R, S {\n  out %0\n  out %1\n} {\n  %5, %6 = "
    "repeat 4 : R, S {\n    carry %7 R = %0\n    slice %8 R = %1\n    %9 = call \"onto.tir\"(%7, %8) : R\n    out %9\n"
    "    out %9\n  }\n  out %5\n  out %6\n}\nout %3\nout %4\n";
const std::string kWithin =
    "tessera graph 1\nin %0 R\nin %1 S\nin %2 i32[]\n%3, %4 = repeat 4 : R, S {\n  carry %5 R = %0\n  slice %6 R = "
    "%1\n  "
    "%7 = switch %2 : R {\n    out %6\n  } {\n    %8 = call \"add.tir\"(%5, %6) : R\n    out %8\n  }\n  out %7\n  out "
    "%7\n}\nout %3\nout %4\n";
}  // namespace

TEST_CASE("loops over rows, recorded and in bundles, are what the interpreter makes") {
  auto host = std::make_unique<VulkanHost>();
  {
    DeviceOptions options;
    options.log_commands = true;
    const Device d = Device::import(host->imported(), options);
    const VkCommandBuffer c = host->commands();
    CommandStream stream(d);
    uint64_t frame = 0;
    for (const std::string& text : {kScan, kInPlace, kNested, kBranch, kWithin})
      for (const Case& one :
           {Case{"aligned", "f32[8]", "0:8", {8}, text}, Case{"not aligned", "f32[3]", "0:3", {3}, text},
            Case{"of two dims", "i32[2, 5]", "0:2, 0:5", {2, 5}, text}, Case{"numbers", "i32[]", "", {}, text}}) {
        CAPTURE(one.what);
        CAPTURE(text);
        const TemporaryFolder folder("row_graph");
        folder.write("graph.txt", with(text, one));
        folder.write("add.tir", add(one.row, one.index, ""));
        folder.write("onto.tir", add(one.row, one.index, " alias 0"));
        const Graph g = read_graph(folder.path.string());
        const Bundle bundle = bundled(d, g);
        const LoadedGraph loaded(d, bundle.graph(d, g.name));
        PreparedGraph prepared(d, g, {.calls_per_frame = 1});
        for (const int32_t branch : {0, 1}) {
          std::vector<Array> inputs;
          for (size_t i = 0; i < 2; ++i) {
            const Graph::Type& t = g.values[g.body.inputs[i]];
            Array& a = inputs.emplace_back(t.shape, t.dtype);
            for (int64_t e = 0; e < a.size(); ++e)
              if (t.dtype == f32) a.data<float>()[static_cast<size_t>(e)] = static_cast<float>(e + 1);
              else a.data<int32_t>()[static_cast<size_t>(e)] = static_cast<int32_t>(e + 1);
          }
          inputs.push_back(Array({}, std::vector<int32_t>{branch}));
          const std::vector<Array> wanted = interpret(g, inputs);
          std::vector<DeviceArray> in, out;
          for (const Array& a : inputs) in.emplace_back(d, a);
          for (const Array& a : wanted) out.emplace_back(d, a.shape(), a.dtype());
          host->begin(c);
          stream.begin(c, frame++);
          prepared.record(stream, in, out);
          stream.end();
          host->run(c);
          const std::vector<DeviceArray> by_itself = loaded(in);
          for (size_t i = 0; i < wanted.size(); ++i) {
            const Array a = out[i].download(), b = by_itself[i].download();
            for (int64_t e = 0; e < wanted[i].size(); ++e) {
              CHECK(a.at(e) == wanted[i].at(e));
              CHECK(b.at(e) == wanted[i].at(e));
            }
          }
        }
      }
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  }
  check_silent(std::move(host));
}

TEST_CASE("loops over rows in graphs with run-time sizes are refused" * without_device) {
  const TemporaryFolder folder("row_graph");
  folder.write("graph.txt",
               "tessera graph 1\nin %0 f32[n]\nin %1 f32[4, n]\n%2, %3 = repeat 4 : f32[n], f32[4, n] {\n  carry %4 "
               "f32[n] = %0\n  slice %5 f32[n] = %1\n  %6 = call \"add.tir\"(%4, %5) : f32[n]\n  out %6\n  out %6\n}\n"
               "out %2\nout %3\n");
  folder.write("add.tir",
               "tir 1\nkernel @add\ngrid (cdiv(n, 8))\nin f32[n] block (8) map (%i) { yield %i }\nin f32[n] block (8) "
               "map (%i) { yield %i }\nout f32[n] block (8) map (%i) { yield %i }\nbody (%x, %y, %o) {\n  %a = load "
               "%x[0:8]\n  %b = load %y[0:8]\n  %c = add %a, %b\n  store %o[0:8], %c\n}\n");
  const Graph g = read_graph(folder.path.string());
  CHECK(interpret(g, {Array({2}, std::vector<float>{1, 2}), Array({4, 2}, std::vector<float>(8, 1))})[0].at(1) ==
        6);  // of every size there
  CHECK(error_of<CompileError>([&] { make_graph_program(g); }) ==
        "the graph: a loop works on rows of arrays, and the graph has run-time sizes, as n\n  note: trace it for fixed "
        "sizes, or give whole arrays to the kernels of the loop");
}
}  // namespace row_graph_test
