// Debug info on a device: the driver takes it, results are the same, and no cache mixes code with and without it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"

namespace debug_info_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr const char* kText = R"(tir 1
kernel @waves
grid (cdiv(n, 16))
in f32[n] block (16) map (%i) { yield %i }
out f32[n] block (16) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:16]
  %b = sin %a
  %c = mul %b, %a
  store %o[0:16], %c
}
)";
constexpr const char* kFile = "tests/unit/runtime/waves.tir";  // there is none: only its name is in the code

bool holds(const Program& p, const char* text) {
  const auto* bytes = reinterpret_cast<const char*>(p.spirv.data());
  return std::search(bytes, bytes + 4 * p.spirv.size(), text, text + std::strlen(text)) != bytes + 4 * p.spirv.size();
}
constexpr const char* kSet = "NonSemantic.Shader.DebugInfo.100";

}  // namespace

TEST_CASE("debug info: the same results on a device, under validation") {
  const ir::Kernel k = ir::parse(kText, kFile);
  DeviceOptions options;
  options.validation = kValidation, options.debug_info = true;
  const Device d(options);
  const CompiledKernel with = load(d, k), without = load(device(), k);
  CHECK(holds(with.program(), kSet));
  CHECK(holds(with.program(), kFile));
  CHECK(!holds(without.program(), kSet));
  const Array x = ramp(100, -30);
  const Array a = with.run({x})[0], b = without.run({x})[0];
  CHECK(std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.nbytes())) == 0);
  CHECK(&load(d, k).program() == &with.program());
  check_clean(d);
}

TEST_CASE("debug info: asked for per kernel or by TESSERA_DEBUG_INFO, and in no cache together with other code") {
  const Cache cache;
  const ir::Kernel k = ir::parse(kText, kFile);
  const Device d;
  CompileOptions options;
  options.debug_info = true;
  CHECK(holds(load(d, k, options).program(), kSet));
  // it holds the texts of files, which may have changed by the next time
  CHECK(std::filesystem::exists(cache.folder) == false);
  CHECK(!holds(load(d, k).program(), kSet));
  CHECK(cache.all_but_pipelines().size() == 1);
  set_environment("TESSERA_DEBUG_INFO", "1");
  const Device other;
  set_environment("TESSERA_DEBUG_INFO", nullptr);
  CHECK(holds(load(other, k).program(), kSet));
  CHECK(cache.all_but_pipelines().size() == 1);
  CHECK(load(other, k).run({ramp(5)})[0].shape() == Shape{5});
}

}  // namespace debug_info_test
