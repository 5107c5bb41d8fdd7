// A number of the code, and of what the host is told of it, for kernels that were written for one pass or analysis each
// (tests/tir/passes, tests/tir/threads), for those of tests/tir on targets with limits and features that no target with
// a name has together, and for more random ones: an odd condition that such a kernel is about also meets all other
// steps of compile() here, on every target. tests/data/codes.tsv has them. Where a change is meant to leave all code as
// it is, no row changes; TESSERA_BLESS=1 writes the table anew. What code costs is in costs_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "tests/fuzz/random_target.h"
#include "tests/support/generator/generator.h"
#include "tests/support/sanitizer.h"

namespace codes_test {
using namespace tessera;

namespace {

constexpr const char* kPath = "tests/data/codes.tsv";
constexpr const char* kTargets[] = {"minimum",       "lavapipe", "gpu",    "gpu-matrix",
                                    "nvidia:sm_90a", "tpu:any",  "random", "another random"};
constexpr size_t kColumns = std::size(kTargets);

class Number {
 public:
  void add(uint64_t word) {
    for (const auto half : {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)})
      n_ = std::rotl(n_, 5) * 0x9e3779b1u ^ half;
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  std::string text() const {
    std::ostringstream s;
    s << std::hex << n_;
    return s.str();
  }
  uint32_t value() const { return n_; }

 private:
  uint32_t n_ = 0;
};

/// Without the lines of the kernel's file that the code names.
std::string number_of(const Program& p) {
  constexpr uint32_t kOpLine = 8;
  Number n;
  for (size_t i = 5; i < p.spirv.size(); i += std::max(1u, p.spirv[i] >> 16))
    for (size_t w = 0; (p.spirv[i] & 0xffff) != kOpLine && w < p.spirv[i] >> 16; ++w) n.add(p.spirv.at(i + w));
  n.add(p.ptx), n.add(p.mosaic), n.add(p.stable_hlo);
  for (const int64_t x : {int64_t{p.workgroup_size}, int64_t{p.required_subgroup_size}, p.shared_bytes, p.scratch_bytes,
                          int64_t{p.max_workgroups}, p.report_bytes, p.max_loop_iterations, int64_t{p.units_extent},
                          int64_t{p.steps_extent}, int64_t{p.open_ended}, int64_t{p.indirect_table},
                          int64_t{p.alignment}, p.push_bytes(), p.tensors_at(), int64_t{p.relaxed}})
    n.add(static_cast<uint64_t>(x));
  for (const ProgramArg& a : p.args)
    n.add(a.read + 2 * a.written + 4 * a.by_value), n.add(static_cast<uint64_t>(a.alias));
  for (const Extent& e : p.grid) n.add(to_string(e));
  for (const Extent& e : p.extents) n.add(to_string(e));
  for (const bool b : p.extent_is_64) n.add(b);
  for (const ProgramLoop& l : p.loops) n.add(to_string(l.at_least)), n.add(l.at_most ? to_string(*l.at_most) : "any");
  for (const WaitSite& w : p.waits) n.add(w.op), n.add(w.semaphore), n.add(w.bytes);
  n.add(to_string(p.num_units));
  return n.text();
}

struct Named {
  std::string name;
  ir::Kernel kernel;
  DimValues sizes = {};
};

/// Of these folders and those inside them, at the tile level.
std::vector<Named> files(const std::vector<const char*>& folders) {
  std::vector<std::string> paths;
  for (const char* folder : folders)
    for (const auto& e : std::filesystem::recursive_directory_iterator(folder))
      if (e.path().extension() == ".tir") paths.push_back(e.path().generic_string());
  std::sort(paths.begin(), paths.end());
  std::vector<Named> all;
  for (const std::string& path : paths) {
    std::ifstream in(path);
    ir::Kernel k = ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}, path);
    if (k.level == ir::Level::tile) all.push_back({path, std::move(k), {}});
  }
  return all;
}

Target target(const std::string& name, const std::string& kernel) {
  if (name.find("random") == std::string::npos) return Target::named(name);
  Number seed;
  seed.add(kernel), seed.add(name);
  return fuzz::random_target(seed.value());
}

std::string column(const Named& k, const std::string& name) {
  CompileOptions o;
  for (const std::string& size : k.kernel.dim_names()) o.sizes[size] = k.sizes.contains(size) ? k.sizes.at(size) : 24;
  try {
    return number_of(compile(k.kernel, target(name, k.name), o));
  } catch (const Error& e) {
    const std::string what = e.what();
    Number n;
    n.add(what.substr(0, what.find('\n')));
    return "refused " + n.text();
  }
}

/// One column of the table.
void check(size_t c, const std::vector<Named>& kernels) {
  std::map<std::string, std::vector<std::string>> rows;  // by kernel
  {
    std::ifstream in(kPath);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream parts(line);
      std::string name, part;
      std::getline(parts, name, '\t');
      std::vector<std::string>& row = rows[name];
      while (std::getline(parts, part, '\t')) row.push_back(part);
      row.resize(kColumns);
    }
  }
  const bool bless = std::getenv("TESSERA_BLESS") && std::string(std::getenv("TESSERA_BLESS")) == "1";
  const std::string name = kTargets[c];
  for (const Named& k : kernels) {
    CAPTURE(k.name);
    CAPTURE(name);
    const std::string now = column(k, name);
    std::vector<std::string>& row = rows[k.name];
    row.resize(kColumns);
    if (bless) row[c] = now;
    CHECK_MESSAGE(row[c] == now,
                  "the code has changed. If that is meant: TESSERA_BLESS=1 build/tests/test_codegen "
                  "-tc='costs*'");
  }
  if (!bless) return;
  std::ofstream out(kPath);
  out << "kernel";
  for (const char* t : kTargets) out << "\t" << t;
  out << "\n";
  for (const auto& [kernel, row] : rows) {
    if (kernel.starts_with("tests/") && !std::filesystem::exists(kernel)) continue;
    out << kernel;
    for (const std::string& number : row) out << "\t" << number;
    out << "\n";
  }
}
std::vector<Named> random_kernels(uint64_t first, uint64_t last) {
  std::vector<Named> all;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const auto one = fuzz::generate(seed);
    all.push_back({"seed " + std::to_string(seed), one.kernel, one.dims});
  }
  return all;
}
std::vector<Named> written_for_passes() { return files({"tests/tir/passes", "tests/tir/threads"}); }

}  // namespace

// Skipped under the sanitizers: each compiles hundreds of kernels.
TEST_CASE("costs: numbers of pass files' code for the least that Vulkan promises" * doctest::skip(test::kSanitized)) {
  check(0, written_for_passes());
}
TEST_CASE("costs: numbers of pass files' code for lavapipe" * doctest::skip(test::kSanitized)) {
  check(1, written_for_passes());
}
TEST_CASE("costs: numbers of pass files' code for a GPU" * doctest::skip(test::kSanitized)) {
  check(2, written_for_passes());
}
TEST_CASE("costs: numbers of pass files' code for a GPU with matrices" * doctest::skip(test::kSanitized)) {
  check(3, written_for_passes());
}
TEST_CASE("costs: numbers of pass files' code for NVIDIA's chips" * doctest::skip(test::kSanitized)) {
  check(4, written_for_passes());
}
TEST_CASE("costs: numbers of pass files' code for a TPU" * doctest::skip(test::kSanitized)) {
  check(5, written_for_passes());
}
TEST_CASE("costs: numbers of files' code for random targets" * doctest::skip(test::kSanitized)) {
  check(6, files({"tests/data/pallas", "tests/tir"}));
}
TEST_CASE("costs: numbers of files' code for more random targets" * doctest::skip(test::kSanitized)) {
  check(7, files({"tests/data/pallas", "tests/tir"}));
}
TEST_CASE("costs: numbers of random kernels' code for a TPU" * doctest::skip(test::kSanitized)) {
  check(5, random_kernels(1, 600));
}
TEST_CASE("costs: numbers of more random kernels' code for a GPU with matrices" * doctest::skip(test::kSanitized)) {
  check(3, random_kernels(301, 600));
}
TEST_CASE("costs: numbers of more random kernels' code for NVIDIA's chips" * doctest::skip(test::kSanitized)) {
  check(4, random_kernels(301, 600));
}
TEST_CASE("costs: numbers of random kernels' code for random targets" * doctest::skip(test::kSanitized)) {
  check(6, random_kernels(1, 600));
}

}  // namespace codes_test
