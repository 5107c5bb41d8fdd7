// Graphs written to folders and read back: the same function, whatever made it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/platform.h"
#include "engine/front.h"
#include "engine/graph/fuse.h"
#include "engine/graph/write.h"
#include "tests/support/random_jit.h"

namespace graph_write_test {
using namespace tessera;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tessera_graph_write_" + std::to_string(platform::process_id()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  std::string at(const std::string& name) const { return (path / name).string(); }
};
std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::vector<std::string> files(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& f : fs::directory_iterator(folder)) names.push_back(f.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
bool same(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.nbytes() == 0 || std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.nbytes())) == 0);
}
void check_same(const std::vector<Array>& a, const std::vector<Array>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(same(a[i], b[i]));
}
const auto twice = pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2; }, {.out_shape = {{{4}, f32}}, .name = "twice"});
const auto other = pallas_call([](Ref x, Ref o) { o[all] = x[all] * 3; }, {.out_shape = {{{4}, f32}}, .name = "Twice"});

}  // namespace

TEST_CASE("write_graph: a function under jit as text") {
  const Folder folder;
  const auto f = jit([](Tensor x, Tensor p) {
    const Tensor y = fori_loop(0, 3, x, [](Value, Value c) { return Value(twice(c)); });
    const Tensor c = asarray(Array({4}, std::vector<float>{1, 2, 3, 4}));
    return cond(p, [&] { return Value(other(y)); }, [&] { return y + c; });
  });
  const Graph& g = f.trace({{{4}, f32}, {{}, boolean}});
  write_graph(g, folder.at("f"));
  const std::vector<std::string> there = files(folder.at("f"));
  for (const char* name : {"Twice_2.tir", "constant_0.npy", "graph.txt", "twice.tir"})
    CHECK_MESSAGE(std::find(there.begin(), there.end(), name) != there.end(), name);
  const std::string text = read(folder.at("f/graph.txt"));
  CHECK(text.starts_with("tessera graph 1\nin %0 f32[4]\nin %1 bool[]\nconst %2 f32[4] \"constant_0.npy\"\n"));
  CHECK(text.find(" = repeat 3 : f32[4], f32[4] {\n") == std::string::npos);
  CHECK(text.find("switch") != std::string::npos);
  CHECK(read(folder.at("f/twice.tir")).find("graph_write_test.cpp:") != std::string::npos);
  const Graph back = read_graph(folder.at("f"));
  const Array x({4}, std::vector<float>{1, -2, 0.5f, 7});
  for (const bool p : {false, true}) {
    const std::vector<Array> inputs{x, Array({}, std::vector<bool>{p})};
    check_same(interpret(back, inputs), interpret(g, inputs));
  }
}

TEST_CASE("write_graph: random functions, fused and not, read back compute what they did") {
  const Folder folder;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto f = test::random_jit(seed);
    const Graph& traced = f.trace(test::random_jit_arguments());
    const Graph g = seed % 2 ? fuse(traced).graph : traced;
    const std::string first = folder.at(std::to_string(seed)), again = folder.at(std::to_string(seed) + "_again"),
                      third = folder.at(std::to_string(seed) + "_third");
    write_graph(g, first);
    const Graph back = read_graph(first);
    const std::vector<Array> inputs = test::random_jit_inputs(seed);
    check_same(interpret(back, inputs), interpret(g, inputs));
    // Read, kernels stand in the order of their first calls: from then on nothing changes.
    write_graph(back, again);
    write_graph(read_graph(again), third);
    REQUIRE(files(again) == files(third));
    for (const std::string& name : files(again)) CHECK(read(again + "/" + name) == read(third + "/" + name));
  }
}

TEST_CASE("write_graph: constants of every dtype, no steps, and what cannot be written") {
  const Folder folder;
  Graph g;
  for (int t = 0; t < kNumDTypes; ++t) {
    Array a({2, 3}, static_cast<DType>(t));
    for (int64_t i = 0; i < a.nbytes(); ++i)
      reinterpret_cast<unsigned char*>(a.bytes())[i] = static_cast<unsigned char>(i % 2);
    g.values.push_back({a.dtype(), a.shape()});
    g.constants.emplace_back(g.values.size() - 1, std::move(a));
    g.body.outputs.push_back(g.values.size() - 1);
  }
  write_graph(g, folder.at("constants"));
  check_same(interpret(read_graph(folder.at("constants")), {}), interpret(g, {}));
  std::ofstream(folder.at("file")) << "x";
  std::string error;
  try {
    write_graph(g, folder.at("file/below"));
  } catch (const Error& e) {
    error = e.what();
  }
  CHECK(error.starts_with(folder.at("file/below") + ": cannot be made: "));
}

}  // namespace graph_write_test
