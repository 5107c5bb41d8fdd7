// What each step of compile() says of itself, over all kernels of tests/tir: that it changed the kernel if its text is
// another one, and only then. Passes run again after what says so, and not after what does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/text.h"

namespace steps_test {
using namespace tessera;

TEST_CASE("steps: each says whether it changed the kernel") {
  std::vector<std::filesystem::path> paths;
  for (const auto& e : std::filesystem::directory_iterator("tests/tir"))
    if (e.path().extension() == ".tir") paths.push_back(e.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream in(path);
    const ir::Kernel k = ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}, path.generic_string());
    for (const Target& target : {gpu_target(), lavapipe_target()}) {
      std::string before = ir::print(k);
      size_t scratch = k.scratch.size();
      int lowered = 0;
      CompileOptions o;
      o.dump = [&](std::string_view step, const ir::Kernel& now, bool changed) {
        std::string after = ir::print(now);
        lowered += step == "lower";
        // Scratch that nobody reads any more goes between two steps, and the code that is taken may be none of the last
        // that was tried.
        const bool alone = step != "lower" && step != "lane/loops" && !(step == "lane/join" && lowered > 1) &&
                           (now.scratch.size() == scratch || step == "tile/lower_async");
        if (alone)
          CHECK_MESSAGE(changed == (after != before), path.generic_string(), ", ", target.name, ": ", std::string(step),
                        changed ? std::string(" says that it changed the kernel")
                                : std::string(" does not say that it changed the kernel"));
        before = std::move(after);
        scratch = now.scratch.size();
      };
      try {
        compile(k, target, o);
      } catch (const CompileError&) {
        continue;
      }
    }
  }
}

TEST_CASE("steps: a subgroup's size is asked for where the target promises whole subgroups of it, and then only") {
  std::ifstream in("tests/tir/softmax.tir");
  const ir::Kernel k = ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}, "softmax.tir");
  const auto asked = [&](const std::function<void(Target&)>& change) {
    Target t = gpu_target();
    change(t);
    return compile(k, t).required_subgroup_size;
  };
  for (const int size : {4, 8, 16, 32, 64}) CHECK(asked([&](Target& t) { t.subgroup_size = size; }) == size);
  CHECK(asked([](Target& t) { t.subgroup_size = 1; }) == 0);
  CHECK(asked([](Target& t) { t.subgroup_size = 12; }) == 0);
  CHECK(asked([](Target& t) { t.subgroup_shuffle = false; }) == 0);
  CHECK(asked([](Target& t) { t.can_require_subgroup_size = false; }) == 0);
}

}  // namespace steps_test
