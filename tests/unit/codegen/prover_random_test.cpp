// What lane/prover.h claims of random integer code, against the lane-level interpreter: thousands of questions in a
// second, of which the fuzzer asks the same in compiled kernels (tests/README.md, "The fuzzer").
#include <doctest/doctest.h>

#include <cstdlib>

#include "engine/ir/text.h"
#include "tests/support/proofs/lane_integers.h"
#include "tests/support/proofs/proofs.h"
#include "tests/support/sanitizer.h"

namespace prover_random_test {
using namespace tessera;

namespace {
// Data of several widths, sizes, loops and branches to begin with.
const char* const kKernel = R"(tir 1
lane kernel @k
workgroup_size 4
num_units 3
extents (n, cdiv(m, 4), n + m: i64)
in i32[n] whole
in i64[n] whole
in u8[n] whole
out i32[n] whole
body (%x: ref<global, i32[?]>, %w: ref<global, i64[?]>, %b: ref<global, u8[?]>, %y: ref<global, i32[?]>) {
  %g = workgroup_index : i32[]
  %l = local_index : i32[]
  %n = extent index 0 : i32[]
  %m = extent index 1 : i32[]
  %s = extent index 2 : i64[]
  %c0 = constant 0 : i32[]
  %c1 = constant 1 : i32[]
  %c4 = constant 4 : i32[]
  %at = mul %g, %c4
  %i = add %at, %l
  %there = lt %i, %n
  if %there {
    %a = load %x[%i]
    %wide = load %w[%i]
    %byte = load %b[%i]
    for %k = %c0 to %c4 step %c1 {
      %d = add %a, %k
      %last = sub %n, %c1
      %p = min %d, %last
      %q = max %p, %c0
      %v = load %x[%q]
      %near = lt %v, %q
      if %near {
        store %y[%i], %v
      } else {
        %u = rem %q, %c4
        store %y[%i], %u
      }
    }
  }
}
)";
// Small ones, and ends.
Array numbers(DType t, int64_t n, uint64_t seed) {
  Array a({n}, t);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t r = (seed + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u, far = uint64_t{1} << (r >> 58);
    const uint64_t x = r >> 40 & 1 ? (r >> 41) % 16 - 4 : r >> 42 & 1 ? far - (r >> 43) % 3 : r;
    a.set_element_bits(i, bits(t) == 64 ? x : x & ((uint64_t{1} << bits(t)) - 1));
  }
  return a;
}
}  // namespace

TEST_CASE("bounds: claims about random code hold for all that the interpreter computes") {
  const ir::Kernel plain = ir::parse(kKernel, "k.tir");
  const uint64_t seeds = std::getenv("TESSERA_TESTS_ALL") ? 20'000 : test::kSanitized ? 40 : 400;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const ir::Kernel k = fuzz::with_random_integers(plain, seed, 12);
    const fuzz::Proofs proofs(k, seed, 300);
    const auto n = static_cast<int64_t>(seed % 13 + 1);
    const std::vector<Array> arrays{numbers(DType::i32, n, seed), numbers(DType::i64, n, seed),
                                    numbers(DType::u8, n, seed), Array({n}, DType::i32)};
    lane::RunOptions run;
    run.seed = seed, run.watched = proofs.watched(), run.max_steps = int64_t{1} << 20;
    const auto m = seed % 4 == 0 ? INT32_MAX - static_cast<int64_t>(seed % 7) : static_cast<int64_t>(seed % 29);
    const lane::RunResult r = lane::run(k, arrays, 3, {{"n", n}, {"m", m}}, run);
    CHECK_MESSAGE(r.reports.empty(), "seed ", seed, ": ", r.reports.empty() ? "" : r.reports[0]);
    const auto broken = proofs.broken(r.seen);
    REQUIRE_MESSAGE(!broken, "seed ", seed, ": ", *broken, "\n", ir::print(k));
  }
}

}  // namespace prover_random_test
