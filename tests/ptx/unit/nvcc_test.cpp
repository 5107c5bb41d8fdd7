// The emulator against judges that do not share its mind: NVIDIA's compiler makes PTX of the programs in programs.h,
// and the host's compiler the answers. Where there is no nvcc, these cases say so and test nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/ptx/emulator.h"
#include "tests/ptx/numbers.h"
#include "tests/ptx/unit/programs.h"

namespace nvcc_test {
namespace ptx = tessera::ptx;

namespace {

/// The programs' PTX; empty without nvcc.
std::string compiled(const std::string& options, const std::string& header = "programs.h") {
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) {
    MESSAGE("there is no nvcc: nothing is compared with it");
    return "";
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("ptx_programs_" + std::to_string(std::random_device{}()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "programs.cu") << "#include \""
                                        << std::filesystem::absolute("tests/ptx/unit/" + header).string() << "\"\n";
  const std::string command = "nvcc -w -ptx -fmad=false " + options + " -o '" + (folder / "programs.ptx").string() +
                              "' '" + (folder / "programs.cu").string() + "' 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream text;
  text << std::ifstream(folder / "programs.ptx").rdbuf();
  std::filesystem::remove_all(folder);
  CHECK(status == 0);
  return text.str();
}

struct Answer {
  std::string name;
  u32 (*of)(u32, u32, u32);
};
#define X(name, value) {#name, [](u32 a, u32 b, u32 c) -> u32 { return (void)a, (void)b, (void)c, (value); }},
const Answer kAnswers[] = {PTX_PROGRAMS(X)};
#undef X
struct Function {
  std::string name;
  double (*of)(double);
  double least, most, ulp;
};
double fabsf_(double x) { return std::fabs(x); }
#define expf std::exp
#define logf std::log
#define sinf std::sin
#define cosf std::cos
#define tanhf std::tanh
#define powf(a, b) std::pow(a, static_cast<double>(b))
#define atanf std::atan
#define erff std::erf
#define cbrtf std::cbrt
#define fabsf fabsf_
#define X(name, value, least, most, ulp) {#name, [](double x) -> double { return (value); }, least, most, ulp},
const Function kFunctions[] = {PTX_FUNCTIONS(X)};
#undef X
#undef expf
#undef logf
#undef sinf
#undef cosf
#undef tanhf
#undef powf
#undef atanf
#undef erff
#undef cbrtf
#undef fabsf

/// Words that are special as integers or as floats, and random ones.
std::vector<u32> words(size_t n, u32 seed) {
  static const u32 kSpecial[] = {0,          1,          2,          31,         32,         0x7fffffff,
                                 0x80000000, 0xffffffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001,
                                 0x00800000, 0x807fffff, 0x3f800000, 0xbf800000, 0x7f7fffff, 0x4f000000,
                                 0x4b000001, 0x3f000000, 0xffff,     0x8000,     0xff,       0x80,
                                 0x7ff00000, 0x3ff00000, 0x40490fdb, 0x4b7fffff, 0xcb000001, 0x3effffff};
  ptx::Random r{seed};
  std::vector<u32> x(n);
  for (u32& w : x) {
    const u32 kind = r.below(4);
    w = static_cast<u32>(r.next());
    if (kind == 0) w = kSpecial[r.below(std::size(kSpecial))];
    if (kind == 1) w = 0x3f000000 + (w & 0x80ffffff);  // floats near 1
    if (kind == 2) w >>= w & 31;
  }
  return x;
}
template <class T>
std::span<std::byte> bytes(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

}  // namespace

TEST_CASE("programs by nvcc: their PTX gives what the host gives") {
  for (const char* options : {"-arch=sm_80", "-arch=sm_90 -O0 -Xcicc -O0"}) {
    const std::string text = compiled(options);
    if (text.empty()) return;
    const ptx::Module m = ptx::parse(text);
    for (const Answer& a : kAnswers) {
      CAPTURE(a.name);
      const u32 n = 600;
      std::vector<u32> in = words(3 * n, 5), out(n);
      ptx::Launch l;
      l.entry = a.name, l.grid[0] = 10, l.block[0] = 64, l.max_instructions = 100000000;
      l.buffer({.name = "in", .bytes = bytes(in), .may_write = false})
          .buffer({.name = "out", .bytes = bytes(out), .initialised = false})
          .scalar(n);
      const ptx::Result r = ptx::run(m, l);
      CHECK_MESSAGE(r.ok(), r.text);
      u32 wrong = 0;
      for (u32 i = 0; i < n; ++i) {
        const u32 want = a.of(in[3 * i], in[3 * i + 1], in[3 * i + 2]);
        if (out[i] == want || wrong++ > 3) continue;
        CAPTURE(in[3 * i]);
        CAPTURE(in[3 * i + 1]);
        CAPTURE(in[3 * i + 2]);
        CHECK(out[i] == want);
      }
      CHECK(wrong == 0);
    }
    for (const Function& f : kFunctions) {
      CAPTURE(f.name);
      const u32 n = 500;
      ptx::Random random{3};
      std::vector<float> in(n), out(n);
      for (float& x : in) x = static_cast<float>(f.least + (f.most - f.least) * random.below(1u << 30) * 0x1p-30);
      ptx::Launch l;
      l.entry = f.name, l.grid[0] = 8, l.block[0] = 64, l.max_instructions = 100000000;
      l.buffer({.name = "in", .bytes = bytes(in), .may_write = false})
          .buffer({.name = "out", .bytes = bytes(out), .initialised = false})
          .scalar(n);
      const ptx::Result r = ptx::run(m, l);
      CHECK_MESSAGE(r.ok(), r.text);
      double worst = 0;
      for (u32 i = 0; i < n; ++i) {
        const double want = f.of(in[i]);
        const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
        worst = std::max(worst, std::fabs(out[i] - want) / unit);
      }
      CHECK(worst <= f.ulp);
    }
  }
}

TEST_CASE("programs by nvcc whose threads work together") {
  const std::string text = compiled("-arch=sm_80");
  if (text.empty()) return;
  const ptx::Module m = ptx::parse(text);
  const u32 n = 1000;
  std::vector<u32> in = words(n, 8);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto launch = [&](const char* entry, std::vector<u32>& out, u32 blocks) {
      ptx::Launch l;
      l.entry = entry, l.grid[0] = blocks, l.block[0] = 128, l.seed = seed, l.max_instructions = 100000000,
      l.dynamic_shared = 512;
      l.buffer({.name = "in", .bytes = bytes(in), .may_write = false})
          .buffer({.name = "out", .bytes = bytes(out)})
          .scalar(n);
      return l;
    };
    std::vector<u32> sum(1), scan(n), bins(64), chain(n), ticket(1), sums(8), ready(8);
    ptx::Result r = ptx::run(m, launch("sum_all", sum, 5));
    CHECK_MESSAGE(r.ok(), r.text);
    CHECK(sum[0] == std::accumulate(in.begin(), in.end(), 0u));
    r = ptx::run(m, launch("scan_block", scan, 8));
    CHECK_MESSAGE(r.ok(), r.text);
    CHECK(scan[130] == in[128] + in[129] + in[130]);
    r = ptx::run(m, launch("histogram", bins, 3));
    CHECK_MESSAGE(r.ok(), r.text);
    CHECK(std::accumulate(bins.begin(), bins.end(), 0u) == n);
    CHECK(bins[1] == std::count_if(in.begin(), in.end(), [](u32 x) { return x % 64 == 1; }));
    std::vector<u32> per_warp = in;
    ptx::Launch l;
    l.entry = "scan_chain", l.grid[0] = 32, l.block[0] = 32, l.seed = seed, l.max_instructions = 100000000;
    sums.resize(32), ready.resize(32);
    l.buffer({.name = "in", .bytes = bytes(in), .may_write = false})
        .buffer({.name = "out", .bytes = bytes(chain)})
        .scalar(n);
    l.buffer({.name = "ticket", .bytes = bytes(ticket)})
        .buffer({.name = "sums", .bytes = bytes(sums)})
        .buffer({.name = "ready", .bytes = bytes(ready)});
    r = ptx::run(m, l);
    CHECK_MESSAGE(r.ok(), r.text);
    CHECK(chain[n - 1] == std::accumulate(in.begin(), in.end(), 0u));
  }
}

TEST_CASE("NVIDIA's own barriers and bulk copies have nothing wrong") {
  const std::string text = compiled("-std=c++17 -arch=sm_90", "barriers.h");
  if (text.empty()) return;
  const ptx::Module m = ptx::parse(text);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (const char* entry : {"increment", "mirror"}) {
      std::vector<u32> in(512), out(512);
      std::iota(in.begin(), in.end(), 0u);
      ptx::Launch l;
      l.entry = entry, l.grid[0] = 2, l.block[0] = 256, l.seed = seed, l.max_instructions = 100000000;
      l.buffer({.name = "in", .bytes = bytes(in), .may_write = false})
          .buffer({.name = "out", .bytes = bytes(out), .initialised = false});
      const ptx::Result r = ptx::run(m, l);
      CHECK_MESSAGE(r.ok(), r.text);
      const bool mirrored = std::string(entry) == "mirror";
      CHECK(out[256 + 10] == (mirrored ? 256 + 245 + 5u : 256 + 11u));
    }
  }
}

}  // namespace nvcc_test
