// The pass that makes fors of whiles that count.
#include "tests/unit/engine/passes/passes_support.h"

namespace count_test {
using namespace tessera;
using namespace tessera::test;

namespace {

std::string count(const std::string& ops) {
  return apply(passes::count, "tir 1\nkernel @k\nin i32[8] whole any\nout i32[8] whole any\nbody (%n, %m) {\n", ops);
}

}  // namespace

TEST_CASE("count: a while that counts by ones becomes a for, and its counter's last value a maximum") {
  CHECK(count(R"(
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %n0 = load %n[0]
  %r, %last = while (%c = %0, %i = %n0) {
    %f = gt %n0, %i
    yield %f
  } do (%c, %i) {
    %t = add %c, %i
    %j = add %1, %i
    yield %t, %j
  }
  %d = add %r, %last
  store %m[0], %d
)") == R"(
  %2 = constant 0 : i32[]
  %3 = constant 1 : i32[]
  %4 = load %0[0] : i32[]
  %5 = max %4, %4 : i32[]
  %6 = for %7 = %4 to %4 step %3 carry (%8 = %2: i32[]) {
    %9 = add %8, %7 : i32[]
    %10 = add %3, %7 : i32[]
    yield %9
  }
  %11 = add %6, %5 : i32[]
  store %1[0], %11
)");
  // Steps of two may pass the largest number, a bound that moves is none, and a test may ask more than one thing.
  const auto stays = [](const std::string& test, const std::string& next) {
    const std::string after = count(
        "\n  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n  %2 = constant 2 : i32[]\n  %n0 = load %n[0]\n"
        "  %r, %q = while (%i = %0, %k = %n0) {\n    %f = " +
        test + "\n    yield %f\n  } do (%i, %k) {\n    %j = add " + next +
        "\n    %l = sub %k, %1\n    yield %j, %l\n  }\n  store %m[0], %r\n");
    CHECK(after.find(" = while (") != std::string::npos);
  };
  stays("lt %i, %n0", "%i, %2");
  stays("lt %i, %n0", "%k, %1");
  stays("lt %i, %k", "%i, %1");
  stays("le %i, %n0", "%i, %1");
  stays("gt %i, %n0", "%i, %1");
}

}  // namespace count_test
