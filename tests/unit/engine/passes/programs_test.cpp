// How many programs a grid has, and where they are one after another.
#include "engine/passes/programs.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/text.h"

namespace programs_test {
using namespace tessera;

TEST_CASE("programs: a grid has as many as its sizes' product, and visits each once, the last axis first") {
  struct {
    std::vector<int64_t> grid;
    int64_t count;
  } const all[] = {{{}, 1},
                   {{1}, 1},
                   {{7}, 7},
                   {{0}, 0},
                   {{2, 3}, 6},
                   {{3, 1, 4}, 12},
                   {{5, 0, 4}, 0},
                   {{int64_t{1} << 31, int64_t{1} << 31}, int64_t{1} << 62},
                   {{int64_t{1} << 31, int64_t{1} << 31, 2}, INT64_MAX},
                   {{int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31}, INT64_MAX},
                   {{int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31, 0}, 0}};
  for (const auto& x : all) {
    std::string grid;
    for (const int64_t n : x.grid) grid += (grid.empty() ? "" : ", ") + std::to_string(n);
    CAPTURE(grid);
    const ir::Kernel k = ir::parse("tir 1\nkernel @k\ngrid (" + grid + ")\nin f32[4] whole\nbody (%x) {\n}\n", "k.tir");
    passes::Programs programs(k, x.grid);
    CHECK(programs.count() == x.count);
    if (x.count > 100) continue;
    std::vector<std::vector<int64_t>> seen;
    programs.each([&] {
      seen.push_back(programs.program());
      return true;
    });
    CHECK(static_cast<int64_t>(seen.size()) == x.count);
    for (size_t i = 1; i < seen.size(); ++i) CHECK(seen[i - 1] < seen[i]);
  }
}

}  // namespace programs_test
