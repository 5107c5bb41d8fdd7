// Every structured op of the tile level stands in a kernel of tests/tir, which the fuzzer's suite runs on the
// lane-level interpreter and tests/device.sh on a device; and every file there is a well-formed kernel.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace file_tests_test {
using namespace tessera;

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
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const ir::OpInfo& row = ir::info(static_cast<ir::Opcode>(i));
    if (row.tile && !row.elementwise)
      CHECK_MESSAGE(seen[static_cast<size_t>(i)], "no file in tests/tir has the op ", row.name, ": add one");
  }
}

}  // namespace file_tests_test
