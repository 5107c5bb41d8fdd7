// Every structured op of the tile level stands in a kernel of tests/tir, which the fuzzer's suite runs on the
// lane-level interpreter and tests/device.sh on a device; and every file there is a well-formed kernel. Those of
// tests/tir/threads, kernels of threads, run here with their threads in several orders.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace file_tests_test {
using namespace tessera;

namespace {
std::vector<ir::Kernel> kernels_of_threads() {
  std::vector<ir::Kernel> list;
  for (const auto& entry : std::filesystem::directory_iterator("tests/tir/threads")) {
    if (entry.path().extension() != ".tir") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    CAPTURE(entry.path().string());
    REQUIRE_NOTHROW(list.push_back(ir::parse(text.str(), entry.path().string())));
    CHECK_NOTHROW(ir::check(list.back()));
    CHECK(list.back().has_threads());
  }
  return list;
}
}  // namespace

TEST_CASE("tests/tir/threads: the same results in every order of the threads, no race, and again after the passes") {
  for (const ir::Kernel& k : kernels_of_threads()) {
    CAPTURE(k.name);
    std::vector<Array> inputs;
    DimValues dims;
    for (const std::string& size : k.dim_names()) dims[size] = 7;
    for (int i = 0; i < k.num_inputs; ++i) {
      const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
      Array a(bind_shape(k, i, dims), b.dtype);
      for (int64_t j = 0; j < a.size(); ++j)
        a.set_element_bits(j, reference::from_double(b.dtype, static_cast<double>((j * 7 + i) % 11 - 5)));
      inputs.push_back(std::move(a));
    }
    const std::vector<Array> first = interpret(k, inputs, {.dims = dims, .races = true});
    ir::Kernel passed = k;
    passes::optimize(passed);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(seed);
      const std::vector<Array> again =
          interpret(seed % 2 ? passed : k, inputs,
                    {.dims = dims, .uninitialised = Uninitialised::pattern, .seed = seed, .races = true});
      for (size_t o = 0; o < first.size(); ++o)
        CHECK(std::equal(first[o].bytes(), first[o].bytes() + first[o].nbytes(), again[o].bytes()));
    }
  }
}

TEST_CASE("tests/tir: a kernel for every structured op") {
  std::vector<bool> seen(ir::kNumOpcodes);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/tir")) {
    if (entry.path().extension() != ".tir") continue;
    ++files;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    CAPTURE(entry.path().string());
    ir::Kernel k;
    REQUIRE_NOTHROW(k = ir::parse(text.str(), entry.path().string()));
    CHECK_NOTHROW(ir::check(k));
    CHECK(k.level == ir::Level::tile);
    for (const ir::Op& o : k.ops) seen[static_cast<size_t>(o.code)] = true;
  }
  REQUIRE_MESSAGE(files > 0, "run from the repository's root");
  for (const ir::Kernel& k : kernels_of_threads())
    for (const ir::Op& o : k.ops) seen[static_cast<size_t>(o.code)] = true;
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const ir::OpInfo& row = ir::info(static_cast<ir::Opcode>(i));
    if (row.tile && row.family != ir::Family::elementwise)
      CHECK_MESSAGE(seen[static_cast<size_t>(i)], "no file in tests/tir has the op ", row.name, ": add one");
  }
}

}  // namespace file_tests_test
