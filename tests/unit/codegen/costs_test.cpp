// What the code of each kernel of tests/tir costs, on each kind of target, as numbers that mean something: a choice
// that changes speed and no result is seen here and nowhere else. tests/data/costs.tsv has them, costs_random.tsv those
// of the fuzzer's first kernels, costs_cut.tsv those of kernels whose loops are cut into dispatches, costs_tpu.tsv the
// sizes of modules for a TPU. The last column is a number of the code itself: where a change is meant to leave all code
// as it is, no row changes. TESSERA_BLESS=1 writes the tables anew, and the difference belongs in the review of the
// change.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "codegen/lane/unroll.h"
#include "codegen/plan/explain.h"
#include "engine/ir/text.h"
#include "tests/fuzz/random_target.h"
#include "tests/support/generator/generator.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/codegen/table.h"

namespace costs_test {
using namespace tessera;

namespace {

constexpr const char* kPath = "tests/data/costs.tsv";
constexpr const char* kRandomPath = "tests/data/costs_random.tsv";
constexpr const char* kCutPath = "tests/data/costs_cut.tsv";
constexpr const char* kTpuPath = "tests/data/costs_tpu.tsv";
constexpr const char* kTpuColumns = "kernel\ttarget\tlines\tcharacters\tcode\trefused";
constexpr const char* kColumns =
    "kernel\ttarget\tin order\tgroups\tat "
    "most\tinvocations\tsubgroup\tshared\tscratch\tops\tloads\tstores\tatomics\tbarriers\tsubgroup "
    "ops\tloops\tbranches\tregisters\twords\tcode";

const std::string kCutColumns =
    std::string("kernel\titerations at most\tsteps\tloops")
        .append(std::string_view(kColumns).substr(std::string_view("kernel\ttarget").size()));

struct Named {
  std::string name;
  ir::Kernel kernel;
};

std::vector<Named> files() {
  std::vector<std::string> paths;
  for (const char* folder : {"tests/data/pallas", "tests/tir", "tests/tir/samples"})
    for (const auto& e : std::filesystem::directory_iterator(folder))
      if (e.path().extension() == ".tir") paths.push_back(e.path().generic_string());
  std::sort(paths.begin(), paths.end());
  std::vector<Named> all;
  for (const std::string& path : paths) {
    std::ifstream in(path);
    all.push_back({path, ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}, path)});
  }
  return all;
}

std::vector<Named> random_kernels() {
  std::vector<Named> all;
  for (uint64_t seed = 1; seed <= 300; ++seed)
    all.push_back({"seed " + std::to_string(seed), fuzz::generate(seed).kernel});
  return all;
}

/// A number that the same code has again, wherever it stands in its file: two that cost alike and are not the same
/// differ here.
std::string number_of(const Program& p) {
  constexpr uint32_t kOpLine = 8;
  uint32_t n = 0;
  const auto add = [&n](uint32_t word) { n = std::rotl(n, 5) * 0x9e3779b1u ^ word; };
  for (size_t i = 5; i < p.spirv.size(); i += std::max(1u, p.spirv[i] >> 16))
    for (size_t w = 0; (p.spirv[i] & 0xffff) != kOpLine && w < p.spirv[i] >> 16; ++w) add(p.spirv.at(i + w));
  for (const std::string& text : {p.ptx, p.mosaic})
    for (const char c : text) add(static_cast<unsigned char>(c));
  std::ostringstream s;
  s << std::hex << n;
  return s.str();
}

std::string costs(const ir::Kernel& k, const Target& target, bool general) {
  ir::Kernel lanes;
  CompileOptions o;
  o.general = general;
  o.dump = [&](std::string_view, const ir::Kernel& now, bool) {
    if (now.level == ir::Level::lane) lanes = now;
  };
  std::ostringstream s;
  try {
    const Program p = compile(k, target, o);
    const std::vector<bool> parallel = parallel_axes(k);
    for (size_t a = 0; a < parallel.size(); ++a)
      if (!parallel[a]) s << a << " ";
    s << "\t" << to_string(p.num_units) << "\t" << p.max_workgroups << "\t" << p.workgroup_size << "\t"
      << p.required_subgroup_size << "\t" << p.shared_bytes << "\t" << p.scratch_bytes;
    std::map<std::string, int64_t> n;
    int64_t ops = 0;
    for (const ir::Region& r : lanes.regions)
      for (const ir::OpId id : r.ops) {
        ++ops;
        switch (lanes.op(id).code) {
          case ir::Opcode::load: ++n["loads"]; break;
          case ir::Opcode::store: ++n["stores"]; break;
          case ir::Opcode::swap:
          case ir::Opcode::addupdate:
          case ir::Opcode::atomic_rmw:
          case ir::Opcode::atomic_cas: ++n["atomics"]; break;
          case ir::Opcode::barrier: ++n["barriers"]; break;
          case ir::Opcode::subgroup_barrier:
          case ir::Opcode::subgroup_reduce:
          case ir::Opcode::subgroup_scan:
          case ir::Opcode::subgroup_shuffle:
          case ir::Opcode::subgroup_shuffle_xor: ++n["subgroup ops"]; break;
          case ir::Opcode::for_:
          case ir::Opcode::while_: ++n["loops"]; break;
          case ir::Opcode::if_: ++n["branches"]; break;
          default: break;
        }
      }
    s << "\t" << ops;
    for (const char* column : {"loads", "stores", "atomics", "barriers", "subgroup ops", "loops", "branches"})
      s << "\t" << n[column];
    const auto lines = std::count(p.ptx.begin(), p.ptx.end(), '\n');
    s << "\t" << lowering::live_registers(lanes) << "\t"
      << (p.ptx.empty() ? p.spirv.size() : static_cast<size_t>(lines)) << "\t" << number_of(p);
  } catch (const CompileError&) {
    return "CompileError";
  }
  return s.str();
}

std::string row(const std::string&, const ir::Kernel& k, const std::string& name) {
  const std::string now = costs(k, name == "general" ? lavapipe_target() : Target::named(name), name == "general");
  // Without products there is nothing that matrices change.
  if (name == "gpu-matrix" && now == costs(k, gpu_target(), false)) return "";
  return now;
}

/// For a target as random as the kernel: limits and features that no target with a name has together.
std::string random_target_row(const std::string& kernel, const ir::Kernel& k, const std::string&) {
  const uint64_t seed = std::stoull(kernel.substr(kernel.find(' ')));
  return costs(k, fuzz::random_target(seed), false);
}

/// Of a kernel whose loops a driver with so small a limit makes us cut: in how many steps, and what each of its loops
/// is counted as.
std::string cut_row(const std::string&, const ir::Kernel& k, const std::string& name) {
  Target t = lavapipe_target();
  t.max_loop_iterations = std::stoi(name);
  std::string loops;
  try {
    const Program p = compile(k, t, {});
    if (p.steps_extent < 0) return "";
    loops = to_string(p.extents.at(static_cast<size_t>(p.steps_extent) + 1)) + "\t";
    for (size_t i = 0; i < p.loops.size(); ++i)
      loops += (i ? "; " : "") + to_string(p.loops[i].at_least) + " to " +
               (p.loops[i].at_most ? to_string(*p.loops[i].at_most) : "any");
  } catch (const CompileError&) {
    loops = "CompileError\t";
  }
  return loops + "\t" + costs(k, t, false);
}

/// The size of the module for a TPU, or why there is none.
std::string tpu_row(const std::string&, const ir::Kernel& k, const std::string& name) {
  std::string what;
  try {
    const Program p = compile(k, Target::named(name), {});
    what = std::to_string(std::count(p.mosaic.begin(), p.mosaic.end(), '\n')) + "\t" + std::to_string(p.mosaic.size()) +
           "\t" + number_of(p) + "\t";
  } catch (const CompileError& e) {
    what = "\t\t\t" + std::string(e.what());
    what.resize(std::min(what.find('\n'), what.size()));
  }
  return what;
}

/// The rows of one target, of all kernels that there are.
void check(const std::string& name, const char* path, const std::string& columns,
           std::string (*row_of)(const std::string& kernel, const ir::Kernel& k, const std::string& name),
           const std::vector<Named>& kernels = files()) {
  test::Table table(path, columns, 2);
  std::set<std::string> names;
  for (const auto& [kernel, k] : kernels) {
    names.insert(kernel);
    if (const std::string now = row_of(kernel, k, name); !now.empty()) table.add(kernel + "\t" + name, now);
  }
  table.finish([&](const std::string& key) {
    const size_t tab = key.find('\t');
    return key.substr(tab + 1) == name || !names.contains(key.substr(0, tab));
  });
}

}  // namespace

// Skipped under the sanitizers: each compiles every kernel of tir/, or 300 random ones, which takes minutes there;
// other tests do so too.
TEST_CASE("costs of code for the least that Vulkan promises" * doctest::skip(tessera::test::kSanitized)) {
  check("minimum", kPath, kColumns, row);
}
TEST_CASE("costs of code for lavapipe" * doctest::skip(tessera::test::kSanitized)) {
  check("lavapipe", kPath, kColumns, row);
}
TEST_CASE("costs of code for a GPU" * doctest::skip(tessera::test::kSanitized)) { check("gpu", kPath, kColumns, row); }
TEST_CASE("costs of code for a GPU with matrices" * doctest::skip(tessera::test::kSanitized)) {
  check("gpu-matrix", kPath, kColumns, row);
}
TEST_CASE("costs of code for NVIDIA's chips" * doctest::skip(tessera::test::kSanitized)) {
  check("nvidia:sm_90a", kPath, kColumns, row);
}
TEST_CASE("costs of code for a TPU" * doctest::skip(tessera::test::kSanitized)) {
  check("tpu:any", kTpuPath, kTpuColumns, tpu_row);
}
TEST_CASE("costs of the general form" * doctest::skip(tessera::test::kSanitized)) {
  check("general", kPath, kColumns, row);
}
TEST_CASE("costs of random kernels, for the least that Vulkan promises" * doctest::skip(tessera::test::kSanitized)) {
  check("minimum", kRandomPath, kColumns, row, random_kernels());
}
TEST_CASE("costs of random kernels, for lavapipe" * doctest::skip(tessera::test::kSanitized)) {
  check("lavapipe", kRandomPath, kColumns, row, random_kernels());
}
TEST_CASE("costs of random kernels, for a GPU" * doctest::skip(tessera::test::kSanitized)) {
  check("gpu", kRandomPath, kColumns, row, random_kernels());
}
TEST_CASE("costs of random kernels, for a GPU with matrices" * doctest::skip(tessera::test::kSanitized)) {
  check("gpu-matrix", kRandomPath, kColumns, row, random_kernels());
}
TEST_CASE("costs of random kernels, for NVIDIA's chips" * doctest::skip(tessera::test::kSanitized)) {
  check("nvidia:sm_90a", kRandomPath, kColumns, row, random_kernels());
}
TEST_CASE("costs of random kernels, for random targets" * doctest::skip(tessera::test::kSanitized)) {
  check("random", kRandomPath, kColumns, random_target_row, random_kernels());
}
TEST_CASE("costs of code whose loops are cut after few iterations" * doctest::skip(tessera::test::kSanitized)) {
  check("200", kCutPath, kCutColumns, cut_row);
}
TEST_CASE("costs of code whose loops lavapipe cuts" * doctest::skip(tessera::test::kSanitized)) {
  check("65535", kCutPath, kCutColumns, cut_row);
}

}  // namespace costs_test
