#include "engine/interpreter/plans.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "engine/ir/text.h"

namespace tessera {
namespace {

// What a call leaves in its values, in overhang and in outputs must not reach the next one.
constexpr const char* kKernel = R"(tir 1
kernel @sums
grid (3)
in f32[n] block (4) map (%i) { yield %i }
out f32[n] block (4) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:4]
  %b = load %o[0:4]
  %c = add %a, %b
  store %o[0:4], %a
  %d = load %o[0:4]
  %e = add %a, %d
  %f = max %e, %c
  store %o[0:4], %f
  yield
}
)";

TEST_CASE("plans are kept from call to call, for other sizes and for threads that call at once") {
  const ir::Kernel k = ir::parse(kKernel, "plans");
  Plans plans;
  const auto right = [&](int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
    const std::vector<Array> x{Array({n}, v)};
    const std::vector<Array> got = interpret(k, x, {}, plans), want = interpret(k, x);
    return got.size() == 1 && got[0].shape() == want[0].shape() && std::equal(got[0].bytes(), got[0].bytes() + got[0].nbytes(), want[0].bytes());
  };
  for (const int64_t n : {9, 9, 12, 30, 9}) CHECK(right(n));
  bool all[4] = {};
  std::vector<std::thread> threads;
  for (bool& ok : all)
    threads.emplace_back([&] {
      ok = true;
      for (int i = 0; i < 50; ++i) ok &= right(9 + i % 4);
    });
  for (std::thread& t : threads) t.join();
  for (const bool ok : all) CHECK(ok);
}

}  // namespace
}  // namespace tessera
