#include "engine/interpreter/plans.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "engine/ir/text.h"

namespace tessera::plans_test {
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

std::vector<float> numbers(int64_t n, float first) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}
bool same(const Array& a, const Array& b) {
  return a.shape() == b.shape() && std::equal(a.bytes(), a.bytes() + a.nbytes(), b.bytes());
}

TEST_CASE("plans are kept from call to call, for other sizes and for threads that call at once") {
  const ir::Kernel k = ir::parse(kKernel, "plans");
  Plans plans;
  const auto right = [&](int64_t n) {
    const std::vector<Array> x{Array({n}, numbers(n, 0))};
    const std::vector<Array> got = interpret(k, x, {}, plans), want = interpret(k, x);
    return got.size() == 1 && same(got[0], want[0]);
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

// The first input is aliased to the output, the second only read, the third stored to.
constexpr const char* kInPlace = R"(tir 1
kernel @in_place
grid (3)
in f32[9] block (4) map (%i) { yield %i }
in f32[9] block (4) map (%i) { yield %i }
in f32[4] whole
out f32[9] alias 0 block (4) map (%i) { yield %i }
out f32[9] block (4) map (%i) { yield %i }
body (%x, %y, %z, %o, %p) {
  %a = load %x[0:4]
  %b = load %y[0:4]
  %c = load %z[0:4]
  %d = add %a, %b
  store %o[0:4], %d
  store %z[0:4], %b
  %e = add %c, %b
  store %p[0:4], %e
  yield
}
)";

TEST_CASE("a call on memory of somebody else's gives what one on arrays gives, and copies what it must") {
  const ir::Kernel k = ir::parse(kInPlace, "in_place");
  const std::vector<float> x = numbers(9, 1), y = numbers(9, 100), z = numbers(4, 1000);
  const std::vector<Array> want = interpret(k, {Array({9}, x), Array({9}, y), Array({4}, z)});
  const auto is = [&](const std::vector<float>& got, size_t output) {
    return std::equal(got.begin(), got.end(), want[output].data<float>().begin(), want[output].data<float>().end());
  };
  Plans plans;
  const auto host = [](std::vector<float>& v) { return HostArray{f32, {static_cast<int64_t>(v.size())}, v.data()}; };
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<float> a = x, b = y, c = z, o(9), p(9);
    SUBCASE("apart: what is aliased is copied") {
      CHECK(interpret(k, std::vector{host(a), host(b), host(c)}, std::vector{host(o), host(p)}, {}, plans) == 36);
      CHECK(is(o, 0));
      CHECK(a == x);
    }
    SUBCASE("the output in the place of its input") {
      CHECK(interpret(k, std::vector{host(a), host(b), host(c)}, std::vector{host(a), host(p)}, {}, plans) == 0);
      CHECK(is(a, 0));
    }
    SUBCASE("an output in the place of another input, which the caller gives up") {
      CHECK(interpret(k, std::vector{host(a), host(b), host(c)}, std::vector{host(a), host(b)}, {}, plans) == 36);
      CHECK(is(a, 0));
      CHECK(is(b, 1));
      CHECK(c == z);
      continue;
    }
    CHECK(is(p, 1));
    CHECK(b == y);
    CHECK(c == z);
  }
  std::vector<std::byte> odd(9 * sizeof(float) + 1);  // not at a whole element: copied
  std::memcpy(odd.data() + 1, y.data(), 9 * sizeof(float));
  std::vector<float> d = x, e = z, q(9);
  CHECK(interpret(k, std::vector{host(d), HostArray{f32, {9}, odd.data() + 1}, host(e)}, std::vector{host(d), host(q)},
                  {}, plans) == 36);
  CHECK(is(d, 0));
  CHECK(is(q, 1));
  std::vector<float> a = x, b = y, c = z, o(9), p(8);
  CHECK_THROWS_WITH_AS(interpret(k, std::vector{host(a), host(b), host(c)}, std::vector{host(o)}, {}, plans),
                       "in_place: gives 2 outputs but 1 are expected", SpecError);
  CHECK_THROWS_WITH_AS(interpret(k, std::vector{host(a), host(b), host(c)}, std::vector{host(o), host(p)}, {}, plans),
                       "in_place: output 1 is f32[9] but f32[8] is expected", SpecError);
}

// The index maps look at none, one and both of the axes, and at data.
constexpr const char* kMaps = R"(tir 1
kernel @maps
grid (2, 3)
prefetch i32[2] whole
in f32[7] block (3) map (%i, %j, %s) { yield %j }
in f32[7] block (3) map (%i, %j, %s) {
  %t = load %s[%i]
  yield %t
}
in f32[7] block (3) map (%i, %j, %s) {
  %t = constant 2 : i32[]
  yield %t
}
out f32[2, 9] block (squeezed, 3) map (%i, %j, %s) { yield %i, %j }
body (%s, %x, %y, %z, %o) {
  %a = load %x[0:3]
  %b = load %y[0:3]
  %c = load %z[0:3]
  %d = add %a, %b
  %e = add %d, %c
  store %o[0:3], %e
  yield
}
)";

TEST_CASE(
    "a block whose index map looks at no axis that has moved is the one that it was, and overhang is new with each "
    "program") {
  const ir::Kernel k = ir::parse(kMaps, "maps");
  const std::vector<Array> in{Array({2}, std::vector<int32_t>{1, 0}),
                              Array({7}, std::vector<float>{1, 2, 3, 4, 5, 6, 7}),
                              Array({7}, std::vector<float>{10, 20, 30, 40, 50, 60, 70}),
                              Array({7}, std::vector<float>{100, 200, 300, 400, 500, 600, 700})};
  for (const Uninitialised fill : {Uninitialised::zero, Uninitialised::nan, Uninitialised::pattern}) {
    const std::vector<Array> skipping = interpret(k, in, {.uninitialised = fill});
    int seen = 0;
    // which runs every map for every program
    const std::vector<Array> always =
        interpret(k, in, {.uninitialised = fill, .observe = [&](const SeenValue&) { ++seen; }});
    CHECK(seen > 0);
    CHECK(same(skipping[0], always[0]));
    if (fill != Uninitialised::zero) continue;
    const std::vector<float> want{741, 52, 63, 744, 55, 66, 747, 50, 60, 711, 22, 33, 714, 25, 36, 717, 20, 30};
    CHECK(std::equal(want.begin(), want.end(), skipping[0].data<float>().begin()));
  }
}

}  // namespace
}  // namespace tessera::plans_test
