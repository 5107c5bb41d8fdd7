// Bundles as bytes: what is written is read back, and nothing else is.
#include "codegen/program/bundle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <span>

#include "codegen/make_bundle.h"
#include "codegen/program/program_file.h"
#include "engine/ir/text.h"

namespace bundle_test {
using namespace tessera;

namespace {

constexpr const char* kText = R"(tir 1
kernel @rows
grid (cdiv(n, 4), 7)
in f32[n, 128] block (4, 128) map (%i, %j) { yield %i, %j }
out f32[n, 128] block (4, 128) map (%i, %j) { yield %i, %j }
body (%x, %o) {
  %a = load %x[0:4, 0:128]
  %s = reduce_sum %a axes [1]
  %b = broadcast %s dims [0] : f32[4, 128]
  %c = div %a, %b
  store %o[0:4, 0:128], %c
  yield
}
)";
constexpr const char* kWide = R"(tir 1
kernel @wide
out f64[4] whole any
body (%o) {
  %c = constant 2.0 : f64[4]
  store %o[0:4], %c
  yield
}
)";

constexpr const char* kProduct = R"(tir 1
kernel @product
grid (4, 4)
in f16[256, 256] block (64, 256) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
in f16[256, 256] block (256, 64) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %0, %j
}
out f32[256, 256] block (64, 64) map (%i, %j) { yield %i, %j }
body (%x, %y, %o) {
  %a = load %x[0:64, 0:256]
  %b = load %y[0:256, 0:64]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 64]
  store %o[0:64, 0:64], %c
  yield
}
)";

ir::Kernel kernel(const std::string& text) { return ir::parse(text, "rows.tir"); }
BundleFile made() {
  const BundleSource sources[] = {{kernel(kText), {"x", "o"}}};
  const Target targets[] = {minimum_target(), lavapipe_target(), gpu_target()};
  BundleFile file = make_bundle(sources, targets, 2).file;
  BundleGraph& g = file.graphs.emplace_back();
  g.name = "graph", g.loc = {"graph.txt", 1}, g.arguments = {"in0", "in1", "out0"};
  g.kernels = file.kernels;
  using Memory = GraphProgram::Memory;
  const GraphProgram::Type f{DType::f32, {4, 128}}, i{DType::i32, {3, 6}};
  g.program = {"graph",
               g.loc,
               {f, {DType::f32, {}}},
               {f},
               {{0, {{"n", 4}}, 1}},
               {{f, {}}, {i, Array({3, 6}, DType::i32)}},
               {{0, {{Memory::input, 0, false}, {Memory::output, 0, true}}, 1, 12}},
               {{1, {{0, 0}}}},
               {{1, 0, 0}}};
  return file;
}
const std::string& bytes() {
  static const std::string b = bundle_to_bytes(made());
  return b;
}
template <class E, class F> std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}
std::string reading(const std::string& b) {
  return error_of<BundleError>([&] { bundle_from_bytes(b, "k.tsb"); });
}
constexpr size_t kVersionAt = 8, kSizeAt = 16, kSumAt = 24, kLayoutAt = 32, kHeader = 40;
template <class T> std::string with(std::string b, size_t at, T v) {
  char bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  return b.replace(at, sizeof v, bytes, sizeof v);
}

// As codegen/program/bundle.cpp has it, to give mutants a checksum that is right.
std::string sealed(std::string b) {
  if (b.size() < kHeader) return b;
  uint64_t layout;
  std::memcpy(&layout, b.data() + kLayoutAt, 8);
  std::string_view s = std::string_view(b).substr(kHeader);
  b = with(std::move(b), kSizeAt, uint64_t{s.size()});
  s = std::string_view(b).substr(kHeader);
  uint64_t h = layout ^ s.size();
  while (!s.empty()) {
    uint64_t word = 0;
    const size_t n = std::min<size_t>(s.size(), 8);
    std::memcpy(&word, s.data(), n);
    s.remove_prefix(n);
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return with(std::move(b), kSumAt, h);
}

}  // namespace

TEST_CASE("a bundle is read back, and made twice it is the same") {
  const BundleFile b = bundle_from_bytes(bytes(), "k.tsb");
  REQUIRE(b.kernels.size() == 1);
  const BundleKernel& k = b.kernels[0];
  CHECK(k.name == "rows");
  CHECK(to_string(k.loc) == "rows.tir:2");
  CHECK(k.arguments == std::vector<std::string>{"x", "o"});
  REQUIRE(k.variants.size() == 3);
  for (const BundleVariant& v : k.variants) {
    const Program p = program_of(k, v, "k.tsb");
    CHECK(p.spirv.size() > 5);
    CHECK(program_to_bytes(p) == v.program);
  }
  REQUIRE(b.graphs.size() == 1);
  const BundleGraph& g = b.graphs[0];
  CHECK(g.name == "graph");
  CHECK(g.arguments == std::vector<std::string>{"in0", "in1", "out0"});
  CHECK(g.program.inputs.size() == 2);
  CHECK(g.program.kernels[0].dims == std::vector<std::pair<std::string, Extent>>{{"n", 4}});
  CHECK(g.program.calls[0].arguments[1] == GraphProgram::Where{GraphProgram::Memory::output, 0, true});
  CHECK(g.program.own[1].contents->shape() == Shape{3, 6});
  CHECK(bundle_to_bytes(b) == bytes());
  CHECK(bundle_to_bytes(made()) == bytes());
  CHECK(sealed(bytes()) == bytes());
}

TEST_CASE("variants: what each needs, and which is best") {
  const BundleFile b = made();
  const BundleKernel& k = b.kernels[0];
  CHECK(k.variants[0].needs.features == std::vector<std::string>{});
  CHECK(k.variants[0].needs.required_subgroup_size == 0);
  CHECK(best_variant(k, minimum_target(), "k.tsb").target == "minimum");
  CHECK(best_variant(k, lavapipe_target(), "k.tsb").target == "llvmpipe");
  CHECK(best_variant(k, gpu_target(), "k.tsb").target == "gpu");
  Target t = gpu_target();
  t.float64 = false;  // which this kernel does not use
  t.rte64 = t.preserve64 = false;
  const auto& features = k.variants[2].needs.features;
  CHECK(std::find(features.begin(), features.end(), "float64") == features.end());
  CHECK(best_variant(k, t, "k.tsb").target == "minimum");  // gpu sets the rounding of f64 too
  t = gpu_target();
  t.min_subgroup_size = t.max_subgroup_size = t.subgroup_size = 64;
  CHECK(missing(k.variants[2].needs, t) == std::vector<std::string>{"subgroups of 32 (it has 64 to 64)"});
  CHECK(best_variant(k, t, "k.tsb").target == "minimum");
  t = lavapipe_target();
  t.kind = Target::Kind::gpu;  // a GPU that can run it takes code for GPUs
  CHECK(best_variant(k, t, "k.tsb").target != "gpu");
}

TEST_CASE("a device that can run no variant is told why") {
  Target t = lavapipe_target();
  t.max_workgroup_size = 2;
  t.name = "tiny";
  const BundleFile b = made();
  CHECK(error_of<CompileError>([&] { best_variant(b.kernels[0], t, "k.tsb"); }) ==
        "k.tsb: rows: none of its variants runs on tiny: minimum needs 128 invocations per workgroup (it has 2), loops "
        "without end (it leaves them after 65535 iterations); "
        "llvmpipe needs 8 invocations per workgroup (it has 2); gpu needs skips_branches, 256 invocations per "
        "workgroup (it has 2), subgroups of 32 (it has 8 to 8), "
        "loops without end (it leaves them after 65535 iterations)\n  at rows.tir:2\n  note: give tessera bundle a "
        "target that it can run: --targets=minimum,...");
  Needs n;
  n.features = {"float64", "something_new"};
  n.workgroup_size = 2048, n.shared_bytes = 1 << 20, n.push_constant_bytes = 512, n.workgroup_count = 1 << 20,
  n.required_subgroup_size = 16, n.most_subgroup_size = 4, n.loop_iterations = 0;
  Target d = lavapipe_target();
  d.float64 = d.can_require_subgroup_size = false;
  CHECK(missing(n, d) ==
        std::vector<std::string>{
            "float64", "something_new", "2048 invocations per workgroup (it has 256)",
            "1048576 bytes of shared memory (it has 32768)", "512 bytes of push constants (it has 128)",
            "1048576 workgroups in a row (it has 65535)", "subgroups of 16 (it has no way to require a size)",
            "subgroups of at most 4 (it has up to 8)", "loops without end (it leaves them after 65535 iterations)"});
}

TEST_CASE("variants for NVIDIA's driver are taken by its devices alone, the newest that they read") {
  const BundleSource sources[] = {{kernel(kText), {"x", "o"}}};
  const Target all[] = {Target::nvidia("sm_90a"), minimum_target(), Target::nvidia("sm_80"), gpu_target(),
                        Target::nvidia("sm_90")};
  const MadeBundle made = make_bundle(sources, all);
  const BundleKernel& k = made.file.kernels[0];
  REQUIRE(k.variants.size() == 5);
  CHECK(k.variants[2].needs.features == std::vector<std::string>{"ptx sm_80"});
  const auto best = [&](const Target& t) { return best_variant(k, t, "k.tsb").target; };
  CHECK(best(Target::nvidia("sm_80")) == "nvidia:sm_80");
  CHECK(best(Target::nvidia("sm_89")) == "nvidia:sm_80");
  CHECK(best(Target::nvidia("sm_90")) == "nvidia:sm_90");
  CHECK(best(Target::nvidia("sm_90a")) == "nvidia:sm_90a");
  CHECK(best(Target::nvidia("sm_100")) == "nvidia:sm_90");  // sm_90a is for that chip alone
  CHECK(best(gpu_target()) == "gpu");
  Target small = gpu_target();
  small.int64 = false;
  CHECK(best(small) == "minimum");
  CHECK(program_of(k, best_variant(k, Target::nvidia("sm_90a"), "k.tsb"), "k.tsb").ptx.find("sm_90a") !=
        std::string::npos);
  CHECK(explain_variants(k, gpu_target(), "k.tsb")
            .find("nvidia:sm_80: cannot run: needs NVIDIA's driver, for PTX of sm_80\n") != std::string::npos);
  CHECK(explain_variants(k, Target::nvidia("sm_86"), "k.tsb")
            .find("minimum: cannot run: needs Vulkan\nnvidia:sm_80: taken: ") != std::string::npos);
  const MadeBundle newest = make_bundle(sources, std::vector{Target::nvidia("sm_120")});
  CHECK(error_of<CompileError>([&] { best_variant(newest.file.kernels[0], Target::nvidia("sm_90a"), "k.tsb"); }) ==
        "k.tsb: rows: none of its variants runs on nvidia:sm_90a: nvidia:sm_120 needs a chip that reads PTX of sm_120\n"
        "  at rows.tir:2\n  note: give tessera bundle a target that it can run: --targets=nvidia:sm_90a,...");
  CHECK(missing({.features = {"ptx sm_7"}}, Target::nvidia("sm_80")) ==
        std::vector<std::string>{"a chip that reads PTX of sm_7"});
}

TEST_CASE("a variant for matrices is made where there is a product, and taken where the device has them") {
  const BundleSource sources[] = {{kernel(kText), {"x", "o"}}, {kernel(kProduct), {"x", "y", "o"}}};
  const MadeBundle made = make_bundle(sources, std::vector{minimum_target(), gpu_target(), gpu_matrix_target()});
  CHECK(made.file.kernels[0].variants.size() == 2);
  const BundleKernel& k = made.file.kernels[1];
  REQUIRE(k.variants.size() == 3);
  CHECK(best_variant(k, gpu_target(), "k.tsb").target == "gpu");
  CHECK(best_variant(k, gpu_matrix_target(), "k.tsb").target == "gpu-matrix");
  Target device = gpu_matrix_target();
  device.name = "some GPU";
  CHECK(best_variant(k, device, "k.tsb").target == "gpu-matrix");
  device.matrices = {{8, 8, 16, DType::f16, DType::f16, DType::f32}};
  CHECK(best_variant(k, device, "k.tsb").target == "gpu");
  CHECK(explain_variants(k, device, "k.tsb").find("gpu-matrix: cannot run: needs matrix 16x16x16 f16 f16 f32") !=
        std::string::npos);
}

TEST_CASE("products of f8 need a newer driver than the chip") {
  std::string text = kProduct;
  for (size_t at; (at = text.find("f16")) != std::string::npos;) text.replace(at, 3, "f8e4m3fn");
  const BundleSource sources[] = {{kernel(text), {"x", "y", "o"}}};
  const MadeBundle made = make_bundle(sources, std::vector{Target::nvidia("sm_89")});
  const BundleKernel& k = made.file.kernels[0];
  CHECK(k.variants[0].needs.features == std::vector<std::string>{"ptx sm_89", "products of f8"});
  CHECK(missing(k.variants[0].needs, Target::nvidia("sm_89")).empty());
  Target old = Target::nvidia("sm_89");
  std::erase_if(old.matrices, [](const MatrixShape& s) { return s.a == DType::f8e4m3fn || s.a == DType::f8e5m2; });
  CHECK(missing(k.variants[0].needs, old) == std::vector<std::string>{"products of f8"});
}

TEST_CASE("why a variant is taken is said in a line for each") {
  const BundleFile b = made();
  const BundleKernel& k = b.kernels[0];
  Target d = gpu_target();
  d.int64 = false;
  const std::string text = explain_variants(k, d, "k.tsb");
  CHECK(text.starts_with("minimum: taken: for "));
  CHECK(text.find("\ngpu: cannot run: needs int64\n") != std::string::npos);
  CHECK(explain_variants(k, gpu_target(), "k.tsb").find("\ngpu: taken: for GPUs, subgroups of 32, workgroups of ") !=
        std::string::npos);
  CHECK(explain_variants(k, gpu_target(), "k.tsb").starts_with("minimum: runs here too: for GPUs, workgroups of "));
}

TEST_CASE("a target that cannot run a kernel gets no variant of it; if none can, it is an error") {
  const BundleSource sources[] = {{kernel(kWide), {"o"}}};
  const Target both[] = {minimum_target(), gpu_target()};
  const MadeBundle b = make_bundle(sources, both);
  REQUIRE(b.file.kernels[0].variants.size() == 1);
  CHECK(b.file.kernels[0].variants[0].target == "gpu");
  REQUIRE(b.left_out.size() == 1);
  CHECK(b.left_out[0].find("minimum") != std::string::npos);
  CHECK(error_of<CompileError>([&] { make_bundle(sources, std::span(both, 1)); }) == b.left_out[0]);
}

TEST_CASE("what is no bundle, or not this version's, is refused in words") {
  const std::string& b = bytes();
  const std::string size = std::to_string(b.size() - kHeader);
  CHECK(reading("") == "k.tsb: is cut off: it has 0 bytes, and its header alone takes 40");
  CHECK(reading(b.substr(0, 5)) == "k.tsb: is cut off: it has 5 bytes, and its header alone takes 40");
  CHECK(reading(b.substr(0, 39)) == "k.tsb: is cut off: it has 39 bytes, and its header alone takes 40");
  CHECK(reading("\x7f"
                "ELF and more") ==
        "k.tsb: is no bundle of kernels: it does not begin with \"TESSERA\"\n  note: tessera bundle makes bundles, of "
        ".tir files");
  CHECK(reading(with(b, kVersionAt, uint32_t{2})) ==
        "k.tsb: is a bundle of version 2, and this Tessera reads version 1\n  note: use a newer Tessera, or make it "
        "again with this version's tessera bundle");
  CHECK(reading(with(b, kVersionAt, uint32_t{0})) ==
        "k.tsb: is a bundle of version 0, and this Tessera reads version 1\n  note: make it again with this version's "
        "tessera bundle");
  CHECK(reading(with(b, kLayoutAt, uint64_t{1})) ==
        "k.tsb: holds kernels in a form that this build of Tessera does not read\n  note: make it again with this "
        "version's tessera bundle");
  CHECK(reading(b.substr(0, b.size() - 1)) == "k.tsb: is cut off: its kernels take " + size + " bytes and it has " +
                                                  std::to_string(b.size() - kHeader - 1) + " of them");
  CHECK(reading(with(b, kSizeAt, ~uint64_t{0})) ==
        "k.tsb: is cut off: its kernels take 18446744073709551615 bytes and it has " + size + " of them");
  CHECK(reading(b + "xyz") == "k.tsb: goes on for 3 bytes after its end");
  const std::string damaged = "k.tsb: is damaged: its checksum is wrong\n  note: copy it anew, or make it again";
  CHECK(reading(with(b, kSumAt, uint64_t{0})) == damaged);
  for (const size_t at : {kHeader, b.size() / 2, b.size() - 1}) {
    std::string other = b;
    other[at] = static_cast<char>(other[at] ^ 1);
    CHECK(reading(other) == damaged);
  }
  CHECK(reading(sealed(with(b, kHeader, uint64_t{1} << 60))) ==
        "k.tsb: is damaged: its bytes are no kernels, though the checksum is right\n  note: make it again with this "
        "version's tessera bundle");
  BundleFile twice = made();
  twice.kernels.push_back(twice.kernels[0]);
  CHECK(reading(bundle_to_bytes(twice)) ==
        "k.tsb: is damaged: rows is there twice\n  note: make it again with this version's tessera bundle");
  BundleFile empty = made();
  empty.kernels[0].variants.clear();
  CHECK(reading(bundle_to_bytes(empty)) ==
        "k.tsb: is damaged: rows has no code\n  note: make it again with this version's tessera bundle");
  BundleFile other = made();
  other.kernels[0].variants[1].program = "?";
  const BundleFile read = bundle_from_bytes(bundle_to_bytes(other), "k.tsb");
  CHECK(error_of<BundleError>([&] { program_of(read.kernels[0], read.kernels[0].variants[1], "k.tsb"); }) ==
        "k.tsb: is damaged: rows for llvmpipe is no kernel, though the checksum is right\n  note: make it again with "
        "this version's tessera bundle");
}

TEST_CASE("variants of one kernel that take and make other arrays are refused") {
  const auto changed = [](auto change) {
    BundleFile b = made();
    BundleVariant& v = b.kernels[0].variants[2];
    Program p = program_of(b.kernels[0], v, "k.tsb");
    change(p);
    v.program = program_to_bytes(p);
    const BundleFile read = bundle_from_bytes(bundle_to_bytes(b), "k.tsb");
    program_of(read.kernels[0], read.kernels[0].variants[0], "k.tsb");
    return error_of<BundleError>([&] { program_of(read.kernels[0], read.kernels[0].variants[2], "k.tsb"); });
  };
  const std::string again = "\n  note: make it again with this version's tessera bundle";
  CHECK(changed([](Program&) {}) == "");
  CHECK(changed([](Program& p) { p.name = "columns"; }) == "k.tsb: is damaged: rows for gpu is called columns" + again);
  CHECK(changed([](Program& p) { p.args.pop_back(); }) ==
        "k.tsb: is damaged: rows for gpu has 1 array, and 2 arrays are named" + again);
  CHECK(changed([](Program& p) { p.args[0].dtype = i32; }) ==
        "k.tsb: is damaged: rows has as array 0 f32(n, 128) and i32(n, 128), for minimum and for gpu" + again);
  CHECK(changed([](Program& p) { p.args[1].shape[1] = 64; }) ==
        "k.tsb: is damaged: rows has as array 1 f32(n, 128) and f32(n, 64), for minimum and for gpu" + again);
  CHECK(changed([](Program& p) { p.args[0].is_output = true; }) ==
        "k.tsb: is damaged: rows has as array 0 an input and an output of its own, for minimum and for gpu" + again);
  CHECK(changed([](Program& p) { p.args[1].alias = 0; }) ==
        "k.tsb: is damaged: rows has as array 1 an output of its own and an output aliased to input 0, for minimum and "
        "for gpu" +
            again);
}

TEST_CASE("programs that no compiler makes are not read") {
  const BundleFile b = made();
  const Program good = program_of(b.kernels[0], b.kernels[0].variants[0], "k.tsb");
  REQUIRE(is_valid(good));
  int which = 0;
  const auto bad = [&](auto change) {
    Program p = good;
    change(p);
    ++which;
    CAPTURE(which);
    CHECK_FALSE(is_valid(p));
    CHECK_FALSE(program_from_bytes(program_to_bytes(p)));
  };
  bad([](Program& p) { p.spirv[0] = 0; });
  bad([](Program& p) { p.spirv[5] = 0; });
  bad([](Program& p) { p.spirv.back() = 0; });
  bad([](Program& p) { std::swap(p.args[0], p.args[1]); });
  bad([](Program& p) { p.args[1].alias = 1; });
  bad([](Program& p) { p.args[1].alias = 0, p.args[1].dtype = i32; });
  bad([](Program& p) { p.args[1].alias = 0, p.args[1].shape.pop_back(); });
  bad([](Program& p) { p.args[0].alias = 0; });
  bad([](Program& p) { p.workgroup_size = 0; });
  bad([](Program& p) { p.required_subgroup_size = 3; });
  bad([](Program& p) { p.scratch_bytes = -1; });
  bad([](Program& p) { p.max_loop_iterations = int64_t{1} << 31; });
  bad([](Program& p) { p.alignment = 0; });
  bad([](Program& p) { p.extent_is_64.push_back(true); });
  bad([](Program& p) { p.units_extent = 99; });
  bad([](Program& p) { p.steps_extent = 99; });
  bad([](Program& p) { p.steps_extent = -2; });
  bad([](Program& p) { p.units_extent = 0, p.max_workgroups = 1, p.scratch_bytes = 0; });
  bad([](Program& p) { p.report_bytes = int64_t{1} << 40; });
  bad([](Program& p) { p.prints.push_back({false, "{}", {{i32, {}}}, {}}); });
  bad([](Program& p) { p.report_bytes = 64, p.prints.push_back({false, "{}", {{i32, {1 << 30, 1 << 30}}}, {}}); });
  bad([](Program& p) { p.report_bytes = 64, p.prints.push_back({false, "{} {}", {{i32, {}}}, {}}); });
  bad([](Program& p) { p.axis_names = {"i"}; });
}

// Bytes changed, cut out, put in twice and moved, with a checksum that is right: each is read as a bundle or refused,
// in bounded time and memory.
TEST_CASE("mutants of a bundle") {
  const int count = std::getenv("TESSERA_TESTS_ALL") ? 200'000 : 3000;
  int read = 0, programs = 0, refused = 0;
  for (int seed = 1; seed <= count; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    std::string b = bytes();
    const auto place = [&](size_t from) { return from + random() % (b.size() - from); };
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      // Most of a bundle is code, which the reader does not look into: two thirds of the mutants change the 4 KB at its
      // front, or what lies at the graph.
      const size_t graph = b.find("graph.txt"), end = b.size() - kHeader;
      const size_t near[] = {
          kHeader + random() % std::min<size_t>(4096, end), place(kHeader),
          graph == std::string::npos ? place(kHeader) : std::min(graph + random() % 700, b.size() - 1)};
      const size_t at = near[random() % 3];
      switch (random() % 6) {
        case 0: b[at] = static_cast<char>(random()); break;
        case 1: b[at] = static_cast<char>(b[at] ^ (1 << random() % 8)); break;
        case 2: b.erase(at, 1 + random() % 16); break;
        case 3: b.insert(at, b.substr(place(kHeader), 1 + random() % 64)); break;
        case 4: {
          const uint64_t odd[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 63, b.size(), random()};
          const uint64_t v = odd[random() % std::size(odd)];
          std::memcpy(b.data() + at, &v, std::min<size_t>(8, b.size() - at));
          break;
        }
        default: b.resize(at + 1); break;
      }
      if (b.size() <= kHeader + 1) b.resize(kHeader + 8);
    }
    try {
      const BundleFile file = bundle_from_bytes(sealed(std::move(b)), "mutant");
      ++read;
      for (const BundleKernel& k : file.kernels)
        for (const BundleVariant& v : k.variants) {
          const Program p = program_of(k, v, "mutant");
          REQUIRE(is_valid(p));
          (void)missing(v.needs, lavapipe_target());
          ++programs;
        }
      for (const BundleGraph& g : file.graphs)
        for (const BundleKernel& k : g.kernels)
          for (const BundleVariant& v : k.variants) {
            const Program p = program_of(k, v, "mutant");
            REQUIRE(is_valid(p));
          }
    } catch (const BundleError&) {
      ++refused;
    }
  }
  MESSAGE(read << " of " << count << " mutants are bundles, " << programs << " programs");
  CHECK(read + refused >= count);
  CHECK(read > 0);
  CHECK(refused > 0);
}

}  // namespace bundle_test
