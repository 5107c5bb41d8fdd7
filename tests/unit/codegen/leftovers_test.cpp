// What steps of the tile level leave without a use: passes or a compaction follow where a step changed a kernel, so
// that later steps, which look at all ops and their uses, do not see it.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "engine/ir/walk.h"

namespace leftovers_test {
using namespace tessera;

namespace {
struct Step {
  std::string name;
  bool changed;
  size_t unused;  // ops in no region
};
/// The steps of the tile level from this one on.
std::vector<Step> from(const std::string& step, const std::string& file) {
  std::ifstream in("tests/tir/" + file + ".tir");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  REQUIRE_MESSAGE(!text.empty(), "run from the repository's root");
  std::vector<Step> steps;
  CompileOptions o;
  o.dump = [&](std::string_view name, const ir::Kernel& k, bool changed) {
    if (!name.starts_with("tile/") || (steps.empty() && name != "tile/" + step)) return;
    size_t used = 0;
    ir::each_op(k, k.body, [&](ir::OpId) { ++used; });
    for (const ir::BlockMapping& b : k.blocks)
      if (!b.is_whole()) ir::each_op(k, b.index_map(), [&](ir::OpId) { ++used; });
    steps.push_back({std::string(name.substr(5)), changed, k.ops.size() - used});
  };
  compile(ir::parse(text, file + ".tir"), gpu_target(), o);
  return steps;
}
}  // namespace

TEST_CASE("leftovers: passes follow steps that leave ops to them, a compaction the others") {
  for (const auto& [step, file] :
       std::vector<std::pair<std::string, std::string>>{{"uniform", "uniform_dims"}, {"reroll", "dot_rerolled"}}) {
    const std::vector<Step> steps = from(step, file);
    REQUIRE(steps.size() > 1);
    CHECK(steps[0].changed);
    CHECK(steps[1].name == "fold");
  }
  for (const auto& [step, file] : std::vector<std::pair<std::string, std::string>>{{"unfold", "passes/unfold/window"},
                                                                                   {"accumulate", "dot_accumulate"}}) {
    const std::vector<Step> steps = from(step, file);
    REQUIRE(steps.size() > 1);
    CHECK(steps[0].changed);
    CHECK(steps[0].unused > 0);
    CHECK_FALSE(steps[1].changed);
    CHECK(steps[1].unused == 0);
  }
}

TEST_CASE("leftovers: a step that has nothing to do says so") {
  bool seen = false;
  CompileOptions o;
  o.dump = [&](std::string_view name, const ir::Kernel&, bool changed) {
    if (name != "lane/end_lives") return;
    seen = true;
    CHECK_FALSE(changed);
  };
  compile(ir::parse("tir 1\nkernel @few\nin f32[8] whole\nout f32[8] whole\nbody (%x, %o) {\n  %v = load %x[0:8]\n  "
                    "%w = exp %v\n  store %o[0:8], %w\n}\n"),
          gpu_target(), o);
  CHECK(seen);
}

}  // namespace leftovers_test
