// The kernels of a C++ source that is compiled ahead of time: what is added, what is written, what is refused. The
// build of such sources is tested by tests/consumer.sh.
#include "engine/call/kernel_list.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "engine/front.h"
#include "engine/graph/graph.h"
#include "engine/ir/text.h"

namespace kernel_list_test {
namespace ts = tessera;
using ts::Ref, ts::Value, ts::all, ts::KernelList;

namespace {

ts::PallasCall scale(const char* name = "scale") {
  const ts::BlockSpec block = {{64}, [](Value i) { return i; }};
  return ts::pallas_call([](Ref x, Ref by, Ref o) { o[all] = x[all] * by[all]; },
                         {.out_shape = {{{ts::dim("n")}, ts::f32}},
                          .grid = {ts::cdiv(ts::dim("n"), 64)},
                          .in_specs = {block, ts::by_value(ts::f32)},
                          .out_specs = {block},
                          .name = name,
                          .in_shape = {{{ts::dim("n")}, ts::f32}, {{}, ts::f32}}});
}

}  // namespace

TEST_CASE("what is added is traced, and keeps the arguments' names in its text") {
  KernelList list;
  list.add(scale(), {"x", "by", "scaled"});
  list.add(scale("other"));
  const auto seven = ts::pallas_call([](Ref o) { o[all] = ts::full({8}, 7.0f, ts::f32); },
                                     {.out_shape = {{{8}, ts::f32}}, .name = "seven"});
  list.add_for(seven, {}, {"o"});
  list.add_for(ts::vmap(scale("batch"), {0, std::nullopt}), {{{5, 100}, ts::f32}, {{}, ts::f32}}, {"x", "by", "o"});
  REQUIRE(list.entries().size() == 4);
  CHECK(list.entries()[3].kernel.blocks[1].is_by_value());
  const ts::ir::Kernel& k = list.entries()[0].kernel;
  const std::string text = ts::ir::print(k, true, list.entries()[0].names);
  CHECK(ts::ir::body_names(text) == std::vector<std::string>{"x", "by", "scaled"});
  CHECK(ts::ir::print(ts::ir::parse(text)) == ts::ir::print(k));
  CHECK(ts::ir::print(ts::ir::parse(text), true, {"x", "by", "scaled"}) == text);
}

TEST_CASE("what cannot be added is refused, with kernel, line and what to do") {
  const auto refused = [](auto add) {
    try {
      KernelList list;
      list.add(scale());
      add(list);
    } catch (const ts::Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const ts::Loc here = {"k.cpp", 7};
  const auto same = ts::jit([](ts::Tensor x) { return x; });
  const ts::Graph& graph = same.trace({{{8}, ts::f32}});
  CHECK(refused([&](KernelList& l) { l.add_graph("1st", graph, {}, here); }) ==
        "add_graph(): \"1st\" is no name for a graph\n  at k.cpp:7\n  note: names have letters, digits and _, and do "
        "not begin with a digit");
  CHECK(refused([&](KernelList& l) { l.add_graph("g", graph, {"x"}, here); }) ==
        "g: add_graph() has 1 name but the graph has 1 input and 1 output\n  at k.cpp:7\n  note: give a name for each "
        "input, then for each output, or none");
  CHECK(
      refused([&](KernelList& l) {
        l.add_graph("g", graph, {}, here);
        l.add_graph("g", graph, {}, here);
      }) ==
      "g: a graph of this name was added at k.cpp:7\n  at k.cpp:7\n  note: graphs of a bundle are found by name: give "
      "one of them another");
  const std::string names = "\n  at k.cpp:7\n  note: ";
  CHECK(refused([&](KernelList& l) { l.add(scale("a"), {"x", "by"}, here); }) ==
        "a: add() has 2 names but the kernel has 2 inputs and 1 output" + names +
            "give a name for each input, then for each output, or none");
  CHECK(refused([&](KernelList& l) { l.add(scale("a"), {"x", "by", "2d"}, here); }) ==
        "a: add(): \"2d\" is no name for an argument" + names +
            "names have letters, digits and _, and do not begin with a digit");
  CHECK(refused([&](KernelList& l) { l.add(scale("a"), {"x", "by", "x"}, here); }) ==
        "a: add(): the name \"x\" is there twice" + names + "give each argument a name of its own");
  CHECK(refused([&](KernelList& l) {
          l.add(scale("a"), {}, {"k.cpp", 6});
          l.add(scale("a"), {}, here);
        }) == "a: a kernel of this name was added at k.cpp:6" + names +
                  "kernels of a bundle are found by name: give one of them another .name");
  const auto any =
      ts::pallas_call([](Ref x, Ref o) { o[all] = x[all]; }, {.out_shape = {{{8}, ts::f32}}, .name = "any"});
  CHECK(refused([&](KernelList& l) { l.add(any, {}, here); }) ==
        "any: in_shape is not given, so that its arguments are not known" + names +
            "give .in_shape, with ts::dim(\"n\") for sizes of run time, or the inputs: add_for(call, {{{8}, ts::f32}}, "
            "names)");
  const auto stores = ts::pallas_call(
      [](Ref x, Ref y, Ref o) {
        x[all] = x[all] + y[all];
        o[all] = x[all];
      },
      {.out_shape = {{{8}, ts::f32}}, .name = "stores"});
  const auto batch = ts::vmap(stores, {std::nullopt, 0});
  CHECK(refused([&](KernelList& l) { l.add_for(batch, {{{8}, ts::f32}, {{3, 8}, ts::f32}}, {}, here); }) ==
        "stores: vmap copies an argument of it before each call, which a bundle cannot" + names +
            "map that argument over the batch too (in_axes)");
}

TEST_CASE("the program of tessera_add_kernels writes texts and a list, and leaves no texts of before") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "tessera_kernel_list_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "k");
  std::ofstream(folder / "k" / "old.tir") << "tir 1\n";
  std::filesystem::create_directories(folder / "k" / "old");
  std::ofstream(folder / "k" / "old" / "graph.txt") << "tessera graph 1\n";
  std::string name = "trace", source = "src/k.cpp", list = (folder / "k.kernels").string(),
              texts = (folder / "k").string();
  char* argv[] = {name.data(), source.data(), list.data(), texts.data()};
  CHECK(ts::trace_kernels(
            [](KernelList& l) {
              l.add(scale("a"), {"x", "by", "o"});
              l.add(scale("b"));
              const auto both = ts::jit([](ts::Tensor x, ts::Tensor y) { return std::tuple{x, y}; });
              l.add_graph("both", both.trace({{{8}, ts::f32}, {{}, ts::i32}}), {"x", "y", "p", "q"});
              l.add_graph("plain", both.trace({{{8}, ts::f32}, {{}, ts::i32}}));
            },
            4, argv) == 0);
  std::ifstream in(list);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) ==
        "tessera kernels 1\nsource src/k.cpp\nkernel k/a.tir\nkernel k/b.tir\ngraph k/both\nnames x y p q\ngraph "
        "k/plain\n");
  CHECK(ts::read_graph((folder / "k" / "both").string()).body.inputs.size() == 2);
  CHECK_FALSE(std::filesystem::exists(folder / "k" / "old"));
  CHECK_FALSE(std::filesystem::exists(folder / "k" / "old.tir"));
  CHECK(std::filesystem::exists(folder / "k" / "b.tir"));
  std::filesystem::remove_all(folder);
}

}  // namespace kernel_list_test
