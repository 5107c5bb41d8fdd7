// engine/language.md stays true: its kernel parses, and its table of ops has one row per op, in order, whose example
// has that op.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace readme_test {
using namespace tessera;

namespace {

std::string path() {  // from the repository's root or a build folder in it
  for (const char* up : {"", "../", "../../", "../../../"})
    if (std::ifstream(std::string(up) + "engine/language.md")) return std::string(up) + "engine/language.md";
  return "engine/language.md";
}
std::string read(const std::string& file) {
  std::ifstream in(file);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}
std::string escaped(std::string_view doc) {
  std::string s;
  for (char c : doc) s += c == '|' ? std::string("\\|") : std::string(1, c);
  return s;
}

const std::string kTile = R"(tir 1
kernel @example
grid (4, 8)
in f32[8, 4] whole
in i32[8, 4] whole
out f32[8, 4] whole
scratch ref<semaphore, i32[2]>
scratch ref<dma_semaphore, i32[]>
scratch ref<vmem, f32[4]>
sizes (n, cdiv(n, 8))
text "{} at {}"
text "{:3d}"
body (%x, %y, %o, %sem, %dma, %tile) {
  %a = load %x[0:8, 0:4]
  %b = load %x[0:8, 0:4]
  %c = load %x[0:8, 0:4]
  %m = load %y[0:8, 0:4]
  %n = load %y[0:8, 0:4]
  %i = load %y[0, 0]
  %j = load %y[0, 1]
  %s = constant 1 : i32[]
  %t = lt %i, %j
  %p = lt %a, %b
  %q = lt %b, %a
  %pp = constant true : bool[2]
  %v = load %x[0, 0:4]
  %vv = load %x[0, 0:2]
  %w = load %x[0:4, 0]
)";
const std::string kThreads = R"(tir 1
kernel @example
grid (4 parallel, 2 cluster, 2 thread)
in f16[128, 32] whole
out f16[128, 32] whole
scratch ref<smem, f16[64, 32]>
scratch ref<barrier, i32[2]>
scratch ref<accumulator, f32[64, 16]>
body (%x, %o, %t, %b, %acc) {
  %i = program_id axis 2
)";
const std::string kLane = R"(tir 1
lane kernel @example
workgroup_size 32 subgroup_size 8 shared_bytes 1024 scratch_bytes 1024 report_bytes 4
threads 2 program_bytes 1024 mbarrier 1
extents (n, n: i64)
in f32[n] whole
out f32[n] whole
body (%x, %o) {
  %i = constant 1 : i32[]
  %l = extent index 1 : i64[]
  %f = load %x[%i]
  %g = load %x[%i]
  %h = load %x[%i]
  %b = lt %i, %i
  %n = convert %i : i8[]
  %words = alloc_shared offset 512 : ref<shared, u32[64]>
  %left = matrix_load %words, %i stride [8] kind add : f16[8, 8]
  %right = matrix_load %words, %i stride [8] kind sub : f16[8, 8]
  %sums = matrix_fill %f : f32[8, 8]
  %tall = matrix_fill %f : f32[16, 8]
)";

}  // namespace

TEST_CASE("README: one example per op, with the meaning that ops.def gives") {
  const std::string text = read(path());
  REQUIRE_MESSAGE(!text.empty(), "run from the repository's root");
  size_t at = text.find("| op | example | meaning |");
  REQUIRE(at != std::string::npos);
  std::string blessed = text.substr(0, at);
  std::istringstream lines(text.substr(at));
  std::string line;
  for (int skipped = 0; skipped < 2; ++skipped) std::getline(lines, line), blessed += line + "\n";
  for (int c = 0; c < ir::kNumOpcodes; ++c) {
    const ir::OpInfo& row = ir::info(static_cast<ir::Opcode>(c));
    REQUIRE(std::getline(lines, line));
    const std::string start = "| `" + std::string(row.name) + "` | `";
    const size_t end = line.find("` | ", start.size());
    REQUIRE_MESSAGE(line.starts_with(start), "the table needs a row for ", row.name, " before ", line);
    REQUIRE(end != std::string::npos);
    const std::string example = line.substr(start.size(), end - start.size()),
                      doc = line.substr(end + 4, line.size() - end - 6);
    blessed += line.substr(0, end + 4) + escaped(row.doc) + " |\n";
    if (!std::getenv("TESSERA_BLESS"))
      CHECK_MESSAGE(doc == escaped(row.doc), row.name, ": TESSERA_BLESS=1 takes the meanings from ops.def");
    const bool threads = ir::is_thread_op(static_cast<ir::Opcode>(c));
    const std::string kernel = (threads ? kThreads : row.tile ? kTile : kLane) + "  " + example + "\n}\n";
    CAPTURE(example);
    ir::Kernel k;
    REQUIRE_NOTHROW(k = ir::parse(kernel));
    CHECK_NOTHROW(ir::check(k));
    bool found = false;
    for (ir::OpId o : k.region(k.body).ops) found |= k.op(o).code == static_cast<ir::Opcode>(c);
    CHECK_MESSAGE(found, "no ", row.name);
    const std::string printed = ir::print(k);
    CHECK(ir::print(ir::parse(printed)) == printed);
    CHECK_NOTHROW(passes::optimize(k));
  }
  REQUIRE(std::getline(lines, line));
  CHECK_MESSAGE(line.empty(), "a row too many: ", line);
  blessed += "\n";
  std::ostringstream rest;
  rest << lines.rdbuf();
  if (std::getenv("TESSERA_BLESS")) std::ofstream(path()) << blessed << rest.str();
  else CHECK((blessed + rest.str()).size() == text.size());
}

TEST_CASE("README: its kernel is one") {
  const std::string text = read(path());
  const size_t begin = text.find("tir 1\nkernel @scale");
  REQUIRE(begin != std::string::npos);
  const ir::Kernel k = ir::parse(text.substr(begin, text.find("```", begin) - begin));
  CHECK_NOTHROW(ir::check(k));
  CHECK(k.dim_names() == std::vector<std::string>{"n"});
}

}  // namespace readme_test
