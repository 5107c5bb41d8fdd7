#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "codegen/program/program_file.h"
#include "engine/base/npy.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/submit/cache_file.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"

namespace disk_cache_test {
using namespace tessera;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

const char* kText = R"(tir 1
kernel @thrice
grid (cdiv(n, 4))
in f32[n] block (4) map (%i) { yield %i }
out f32[n] block (4) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:4]
  %b = add %a, %a
  %c = add %a, %b
  store %o[0:4], %c
  yield
}
)";

/// What a new process would do: a Device of its own has compiled nothing yet.
CompileCounts run_once() {
  const CompileCounts before = compile_counts();
  const Device fresh;
  const std::vector<Array> out = load(fresh, ir::parse(kText, "thrice.tir")).run({ramp(6)});
  CHECK(out.at(0).at(5) == 15);
  const CompileCounts after = compile_counts();
  return {after.compiled - before.compiled, after.from_disk - before.from_disk};
}
void check_counts(const CompileCounts& c, uint64_t compiled, uint64_t from_disk) {
  CHECK(c.compiled == compiled);
  CHECK(c.from_disk == from_disk);
}

}  // namespace

TEST_CASE("TESSERA_CACHE: a kernel is compiled once for all devices and processes") {
  const Cache cache;
  check_counts(run_once(), 1, 0);
  REQUIRE(cache.all_but_pipelines().size() == 1);
  check_counts(run_once(), 0, 1);

  // Another form, or another line of source, is another kernel.
  const Device fresh;
  CompileOptions general;
  general.general = true;
  load(fresh, ir::parse(kText, "thrice.tir"), general);
  CHECK(cache.all_but_pipelines().size() == 2);
}

TEST_CASE("TESSERA_CACHE: strict code is other code, by the options as by TESSERA_STRICT") {
  const Cache cache;
  check_counts(run_once(), 1, 0);
  set_environment("TESSERA_STRICT", "0");
  check_counts(run_once(), 0, 1);
  CHECK_FALSE(strict_by_environment());
  set_environment("TESSERA_STRICT", "1");
  CHECK(strict_by_environment());
  check_counts(run_once(), 1, 0);
  set_environment("TESSERA_STRICT", nullptr);
  CHECK(cache.all_but_pipelines().size() == 2);
  const CompileCounts before = compile_counts();
  CompileOptions strict;
  strict.strict = true;
  load(Device(), ir::parse(kText, "thrice.tir"), strict);
  CHECK(compile_counts().compiled == before.compiled);  // that of TESSERA_STRICT, from the folder
}

TEST_CASE("TESSERA_CACHE: broken and foreign files are replaced, with a line on stderr") {
  const Cache cache;
  run_once();
  const fs::path file = cache.all_but_pipelines().at(0);
  const std::string good = contents(file);
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  for (const std::string& bad : {good.substr(0, good.size() / 2), good.substr(0, 7), std::string(),
                                 std::string("somebody else's"), flipped, good + "x"}) {
    CAPTURE(bad.size());
    std::ofstream(file, std::ios::binary) << bad;
    Stderr said;
    check_counts(run_once(), 1, 0);
    CHECK(said.text() ==
          "tessera: TESSERA_CACHE: " + file.string() + " is broken or none of ours: it is ignored, and replaced\n");
    CHECK(contents(file) == good);
  }
  check_counts(run_once(), 0, 1);
}

TEST_CASE("TESSERA_CACHE: another kernel's Program under a kernel's key, with a checksum that is right") {
  const Cache cache;
  run_once();
  const fs::path file = cache.all_but_pipelines().at(0);
  const std::string good = contents(file);
  // The file's own key, which lies behind the magic, the checksum and its size.
  const size_t start = std::string("tessera program 2\n").size() + 16;
  uint64_t size = 0;
  std::memcpy(&size, good.data() + start - 8, 8);
  const std::string own = good.substr(start, size);
  for (const auto& change :
       {+[](Program& p) { p.args[0].dtype = DType::f16; }, +[](Program& p) { p.name = "twice"; },
        +[](Program& p) { p.args.pop_back(); }, +[](Program& p) { p.args[0].shape[0] = Extent(8); }}) {
    Program p = load(Device(), ir::parse(kText, "thrice.tir")).program();
    change(p);
    cache_file::write(cache.folder.string(), "program", own, program_to_bytes(p), "");
    Stderr said;
    check_counts(run_once(), 1, 0);
    CHECK(said.text() ==
          "tessera: TESSERA_CACHE: " + file.string() + " is broken or none of ours: it is ignored, and replaced\n");
    CHECK(contents(file) == good);
  }
}

TEST_CASE("TESSERA_CACHE: a folder that cannot be written is said once") {
  const Cache cache;
  std::ofstream(cache.folder) << "a file, where a folder should be";
  Stderr said;
  check_counts(run_once(), 1, 0);
  check_counts(run_once(), 1, 0);
  CHECK(said.text() == "tessera: TESSERA_CACHE: cannot write to " + cache.folder.string() +
                           ": kernels are compiled in every process\n");
}

TEST_CASE("TESSERA_CACHE: several processes at once") {
  const Cache cache;
  const std::string kernel = cache.folder.string() + ".tir", x = cache.folder.string() + ".npy";
  std::ofstream(kernel) << kText;
  write_npy(x, ramp(6));
  CHECK(run_at_once(3, TESSERA_CLI, "run '" + kernel + "' --in '" + x + "'") == std::vector<int>(3, 0));
  CHECK(cache.all_but_pipelines().size() == 1);
  fs::remove(kernel);
  fs::remove(x);
}

TEST_CASE("programs as bytes") {
  const Program p = load(Device(), ir::parse(kText, "thrice.tir")).program();
  const std::string bytes = program_to_bytes(p);
  const auto back = program_from_bytes(bytes);
  REQUIRE(back);
  CHECK(program_to_bytes(*back) == bytes);
  CHECK(back->spirv == p.spirv);
  CHECK(back->num_units == p.num_units);
  CHECK(to_string(back->loc) == to_string(p.loc));
  for (size_t n = 0; n < bytes.size(); n += 7) CHECK_FALSE(program_from_bytes(bytes.substr(0, n)));
  CHECK_FALSE(program_from_bytes(bytes + '\0'));
}

}  // namespace disk_cache_test
