// What lane/prover.h proves of an access, what it must not, and what becomes of one that nothing proves.
#include "codegen/lane/prover.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "codegen/lane/interpreter.h"
#include "codegen/lane/verify.h"
#include "engine/base/error.h"
#include "engine/ir/text.h"

namespace prover_test {
using namespace tessera;
namespace {
// Two workgroups of 16 read an array of 8 where `ops` say, %i.
ir::Kernel reads(const std::string& ops, const std::string& before = "", const std::string& after = "") {
  return ir::parse(
      "tir 1\nlane kernel @window\nworkgroup_size 16\nnum_units 2 exact\nextents (n, cdiv(n, 4))\nin i32[8] whole\nin "
      "i32[4] whole\nbody (%x: ref<global, i32[?]>, %y: ref<global, i32[?]>) {\n"
      "  %l = local_index : i32[]\n  %w = workgroup_index : i32[]\n  %d = load %y[0] : i32[]\n  %c0 = constant 0 : "
      "i32[]\n  %c1 = constant 1 : i32[]\n  %c2 = constant 2 : i32[]\n"
      "  %c3 = constant 3 : i32[]\n  %c4 = constant 4 : i32[]\n  %c7 = constant 7 : i32[]\n  %c8 = constant 8 : "
      "i32[]\n  %c9 = constant 9 : i32[]\n  %big = constant 2147483640 : i32[]\n"
      "  %n = extent index 0 : i32[]\n  %m = extent index 1 : i32[]\n" +
          ops + before + "  %r = load %x[%i] : i32[]\n" + after + "}\n",
      "k.tir");
}
bool proved(const std::string& ops, const std::string& before = "", const std::string& after = "") {
  return lane::unproved_accesses(reads(ops, before, after)).empty();
}
// Under a condition %c.
bool proved_if(const std::string& ops) { return proved(ops, "  if %c {\n", "  }\n"); }
}  // namespace

TEST_CASE("bounds: positions that are inside") {
  CHECK(proved("  %i = and %l, %c7\n"));
  CHECK(proved("  %i = min %l, %c7\n"));
  CHECK(proved("  %i = shift_right_logical %l, %c1\n"));
  CHECK(proved("  %i = clamp %c0, %d, %c7\n"));
  CHECK(proved("  %a = max %d, %c0\n  %i = min %a, %c7\n"));
  CHECK(proved("  %a = mul %w, %c4\n  %b = and %l, %c3\n  %i = add %a, %b\n"));
  // what hangs over is clamped
  CHECK(proved("  %a = mul %w, %c4\n  %b = sub %c8, %a\n  %e = sub %b, %c1\n  %f = min %l, %e\n  %i = add %a, %f\n"));
  // digits put together
  CHECK(proved("  %a = rem %l, %c8\n  %q = div %a, %c3\n  %p = rem %a, %c3\n  %b = mul %q, %c3\n  %i = add %b, %p\n"));
  CHECK(proved("  %g = lt %d, %c0\n  %a = add %d, %c8\n  %b = select %g, %a, %d\n  %i = clamp %c0, %b, %c7\n"));
  // w is 0 in the other branch
  CHECK(proved("  %g = eq %w, %c1\n  %a = add %w, %c7\n  %i = select %g, %c0, %a\n"));
  CHECK(proved_if("  %i = add %l, %c0\n  %c = lt %l, %c8\n"));
  CHECK(proved_if("  %i = add %d, %c0\n  %a = lt %d, %c8\n  %b = ge %d, %c0\n  %c = and %a, %b\n"));
  // wrapped or not
  CHECK(proved_if("  %i = add %d, %l\n  %a = lt %i, %c8\n  %b = ge %i, %c0\n  %c = and %a, %b\n"));
  CHECK(proved_if("  %a = add %l, %c0\n  %i = add %a, %c1\n  %b = min %c7, %d\n  %c = lt %a, %b\n"));
  // cdiv(n, 4) - 1
  CHECK(proved_if("  %i = sub %m, %c1\n  %a = le %n, %c8\n  %b = gt %n, %c0\n  %c = and %a, %b\n"));
  // sums from 0 on do not wrap in u32
  CHECK(
      proved("  %a = convert %l : u32[]\n  %b = convert %w : u32[]\n  %u = convert %c7 : u32[]\n  %e = min %a, %u\n  "
             "%f = add %e, %b\n  %g = sub %f, %b\n  %i = convert %g : i32[]\n"));
  // a difference that cannot wrap
  CHECK(proved_if("  %i = sub %d, %l\n  %a = le %l, %d\n  %b = lt %d, %c8\n  %c = and %a, %b\n"));
  CHECK(proved("", "  for %i = %c0 to %c8 step %c1 {\n", "  }\n"));
  CHECK(proved("", "  for %j = %c0 to %c8 step %c2 {\n  %i = add %j, %c1\n", "  }\n"));
}

TEST_CASE("bounds: positions that may be outside") {
  CHECK_FALSE(proved("  %i = add %l, %c0\n"));
  CHECK_FALSE(proved("  %i = min %d, %c7\n"));
  CHECK_FALSE(proved("  %i = max %d, %c0\n"));
  CHECK_FALSE(proved("  %i = rem %d, %c8\n"));  // has the sign of d
  CHECK_FALSE(proved("  %i = min %l, %c8\n"));
  CHECK_FALSE(proved("  %a = add %d, %big\n  %i = min %a, %c7\n"));  // wraps
  CHECK_FALSE(proved("  %a = mul %w, %c4\n  %b = min %l, %c4\n  %i = add %a, %b\n"));
  CHECK_FALSE(proved("  %a = mul %l, %big\n  %b = mul %a, %c4\n  %i = min %b, %c7\n"));
  CHECK_FALSE(proved("  %i = sub %c7, %n\n"));
  CHECK_FALSE(proved_if("  %i = sub %d, %l\n  %a = lt %l, %d\n  %b = le %d, %c8\n  %c = and %a, %b\n"));
  CHECK_FALSE(proved_if("  %i = sub %d, %l\n  %a = le %i, %c7\n  %b = lt %d, %c8\n  %c = and %a, %b\n"));
  CHECK_FALSE(proved_if("  %i = add %d, %c0\n  %c = lt %d, %c8\n"));
  CHECK_FALSE(proved_if("  %i = add %l, %c0\n  %a = lt %l, %c8\n  %c = not %a\n"));
  CHECK_FALSE(proved_if("  %i = add %l, %c0\n  %a = lt %l, %c8\n  %b = lt %d, %c0\n  %c = or %a, %b\n"));
  // a difference below -2147483648 is above 0
  CHECK_FALSE(proved_if("  %i = sub %d, %l\n  %a = lt %d, %c8\n  %b = ge %i, %c0\n  %c = and %a, %b\n"));
  // a sum beyond 2147483647 is below 8
  CHECK_FALSE(proved_if("  %a = max %d, %c0\n  %i = add %a, %l\n  %c = lt %i, %c8\n"));
  CHECK_FALSE(proved("  %c = lt %l, %c8\n  if %c {\n  }\n  %i = add %l, %c0\n"));  // the condition is over
  CHECK_FALSE(proved("", "  for %i = %c0 to %c9 step %c1 {\n", "  }\n"));
  // the loop may have run no iteration
  CHECK_FALSE(proved("  for %j = %c0 to %n step %c1 {\n  }\n  %e = min %n, %c8\n  %i = sub %e, %c1\n"));
}

// What %e may be, neither more nor less: an array of just so many elements holds its positions from the least one on,
// one shorter by an element at either end does not.
TEST_CASE("bounds: intervals are no wider than they need be, and no narrower") {
  const auto holds = [](const std::string& ops, int64_t first, int64_t n) {
    return lane::unproved_accesses(
               ir::parse(
                   "tir 1\nlane kernel @k\nworkgroup_size 16 subgroup_size 4\nnum_units 3 exact\nextents (n)\nin i32[" +
                       std::to_string(n) +
                       "] whole\nin i32[4] whole\nin bool[4] whole\nin u8[4] whole\nin i8[4] whole\n"
                       "in u16[4] whole\nbody (%x: ref<global, i32[?]>, %y, %z, %u, %s, %v) {\n  %l = local_index : "
                       "i32[]\n  %w = workgroup_index : i32[]\n  %d = load %y[0]\n  %c0 = constant 0 : i32[]\n"
                       "  %c1 = constant 1 : i32[]\n  %c2 = constant 2 : i32[]\n  %c3 = constant 3 : i32[]\n  %c5 = "
                       "constant 5 : i32[]\n  %c9 = constant 9 : i32[]\n  %m4 = constant -4 : i32[]\n  %m1 = constant "
                       "-1 : i32[]\n"
                       "  %k = clamp %m4, %d, %c9 : i32[]\n" +
                       ops + "  %first = constant " + std::to_string(first) +
                       " : i32[]\n  %i = sub %e, %first\n  %r = load %x[%i]\n}\n",
                   "k.tir"))
        .empty();
  };
  struct {
    const char* ops;
    int64_t lo, hi;
  } const all[] = {{"  %e = add %l, %c0\n", 0, 15},
                   {"  %e = add %w, %c0\n", 0, 2},
                   {"  %e = lane_id\n", 0, 15},
                   {"  %e = subgroup_id\n", 0, 15},
                   {"  %b = load %u[0]\n  %e = convert %b : i32[]\n", 0, 255},
                   {"  %b = load %s[0]\n  %e = convert %b : i32[]\n", -128, 127},
                   {"  %b = load %v[0]\n  %e = convert %b : i32[]\n", 0, 65535},
                   {"  %e = add %k, %c0\n", -4, 9},
                   {"  %e = add %k, %l\n", -4, 24},
                   {"  %e = sub %l, %k\n", -9, 19},
                   {"  %e = mul %l, %m4\n", -60, 0},
                   {"  %e = mul %k, %c3\n", -12, 27},
                   {"  %e = min %k, %c5\n", -4, 5},
                   {"  %e = max %k, %c5\n", 5, 9},
                   {"  %e = max %k, %m1\n", -1, 9},
                   {"  %e = clamp %c2, %k, %c5\n", 2, 5},
                   {"  %e = clamp %m1, %k, %c5\n", -1, 5},
                   {"  %e = and %l, %c5\n", 0, 5},
                   {"  %e = and %d, %c5\n", 0, 5},
                   {"  %e = and %k, %c9\n", 0, 9},
                   {"  %e = div %l, %c3\n", 0, 5},
                   {"  %e = div %k, %c3\n", -1, 3},
                   {"  %e = div %k, %c2\n", -2, 4},
                   {"  %a = sub %k, %c9\n  %e = div %a, %c2\n", -6, 0},
                   {"  %a = add %w, %c1\n  %e = div %l, %a\n", 0, 15},
                   {"  %a = add %w, %c1\n  %e = div %k, %a\n", -4, 9},
                   {"  %e = rem %l, %c5\n", 0, 4},
                   {"  %e = rem %k, %c9\n", -4, 8},
                   {"  %e = rem %k, %c3\n", -2, 2},
                   {"  %e = rem %d, %c3\n", -2, 2},
                   {"  %a = sub %k, %c9\n  %e = rem %a, %c3\n", -2, 0},
                   {"  %a = min %d, %c0\n  %e = rem %a, %c3\n", -2, 0},
                   {"  %a = max %d, %c0\n  %e = rem %a, %c3\n", 0, 2},
                   {"  %e = rem %w, %c9\n", 0, 2},
                   {"  %e = shift_right_logical %l, %c2\n", 0, 3},
                   {"  %p = lt %d, %c0\n  %e = select %p, %k, %l\n", -4, 15},
                   {"  %p = lt %d, %c0\n  %e = select %p, %c5, %c9\n", 5, 9}};
  for (const auto& x : all) {
    CAPTURE(std::string(x.ops));
    CHECK(holds(x.ops, x.lo, x.hi - x.lo + 1));
    CHECK_FALSE(holds(x.ops, x.lo, x.hi - x.lo));
    CHECK_FALSE(holds(x.ops, x.lo + 1, x.hi - x.lo + 1));
  }
}

TEST_CASE("bounds: numbers of 2^56 and beyond prove nothing, below 0 neither") {
  const auto back = [](const char* there, const char* back_again, int64_t far) {
    return proved("  %a = convert %l : i64[]\n  %far = constant " + std::to_string(far) + " : i64[]\n  %b = " + there +
                  " %a, %far\n  %e = " + back_again + " %b, %far\n  %z = sub %e, %a\n  %i = convert %z : i32[]\n");
  };
  constexpr int64_t kFar = int64_t{1} << 56;
  CHECK(back("add", "sub", kFar - 1));
  CHECK(back("sub", "add", kFar - 1));
  CHECK_FALSE(back("add", "sub", kFar));
  CHECK_FALSE(back("sub", "add", kFar));
}

TEST_CASE("bounds: an access that nothing proves is refused, or bounded") {
  ir::Kernel k = ir::parse(
      "tir 1\nlane kernel @window\nworkgroup_size 16\nnum_units 1 exact\nin i32[8] whole\nout i32[16] whole\nbody (%0: "
      "ref<global, i32[?]>, %1: ref<global, i32[?]>) {\n"
      "  %2 = local_index : i32[]\n  %3 = load %0[%2] : i32[]\n  store %1[%2], %3\n}\n",
      "k.tir");
  CHECK_THROWS_WITH_AS(lane::verify_lane(k, "a test"),
                       "window: the lane-level kernel is not valid after a test\n  %3 = load %0[%2] : i32[]: is not "
                       "proved to lie inside the array (k.tir:9)\n  at k.tir:2",
                       InternalError);
  const std::vector<Array> arrays{Array({8}, std::vector<int32_t>{0, 10, 20, 30, 40, 50, 60, 70}), Array({16}, i32)};
  CHECK_FALSE(lane::run(k, arrays, 1, {}).reports.empty());
  CHECK(lane::bound_accesses(k, false));
  CHECK_FALSE(lane::bound_accesses(k, false));
  CHECK_NOTHROW(lane::verify_lane(k, "a test"));
  const lane::RunResult r = lane::run(k, arrays, 1, {});
  CHECK(r.reports.empty());
  CHECK(r.outputs.at(0).element_bits(7) == 70);
  CHECK(r.outputs.at(0).element_bits(15) == 70);
}

// Of drivers that run branches that nobody takes, and iterations behind a loop's last one.
TEST_CASE("bounds: what nobody takes loads from its array all the same") {
  const auto moved = [](const std::string& ops, const std::string& before, const std::string& after) {
    ir::Kernel k = reads(ops, before, after), again = k;
    CHECK_FALSE(lane::bound_accesses(again, false));
    if (!lane::bound_accesses(k, true)) return false;
    CHECK_NOTHROW(lane::verify_lane(k, "a test"));
    CHECK_FALSE(lane::bound_accesses(k, true));
    return true;
  };
  // every invocation is there
  CHECK_FALSE(moved("  %i = and %l, %c7\n", "", ""));
  // inside whoever takes it
  CHECK_FALSE(moved("  %i = and %l, %c7\n  %c = lt %d, %c0\n", "  if %c {\n", "  }\n"));
  CHECK(moved("  %i = add %l, %c0\n  %c = lt %l, %c8\n", "  if %c {\n", "  }\n"));
  CHECK(moved("  %a = lt %d, %c8\n  %b = ge %d, %c0\n  %c = and %a, %b\n  %i = add %d, %c0\n", "  if %c {\n", "  }\n"));
  // behind the last iteration it is 8
  CHECK(moved("", "  for %i = %c0 to %c8 step %c1 {\n", "  }\n"));
  CHECK(moved("  %e = min %n, %c8\n", "  for %i = %c0 to %e step %c1 {\n", "  }\n"));
  CHECK_FALSE(moved("  %e = min %n, %c8\n", "  for %j = %c0 to %e step %c1 {\n  %i = min %j, %c7\n", "  }\n"));
  CHECK(moved("", "  for %i = %c0 to %n step %c1 {\n  %c = lt %i, %c8\n  if %c {\n", "  }\n  }\n"));
  // no less than the loop's first value, which data says; of i32 the difference might wrap
  const std::string low = "  %m9 = sub %c0, %c9\n  %low = clamp %m9, %d, %c9\n";
  CHECK_FALSE(
      moved(low + "  %from = convert %low : i64[]\n  %most = convert %c7 : i64[]\n",
            "  for %j = %low to %c9 step %c1 {\n  %k = convert %j : i64[]\n  %a = sub %k, %from\n  %b = min %a, "
            "%most\n  %i = convert %b : i32[]\n",
            "  }\n"));
  CHECK(moved(low, "  for %j = %low to %c9 step %c1 {\n  %a = sub %j, %low\n  %i = min %a, %c7\n", "  }\n"));

  // As a driver has it that runs the iteration behind the last one: the loop's body with its counter at 8, and at the
  // first value where there is none.
  ir::Kernel k = ir::parse(
      "tir 1\nlane kernel @rounds\nworkgroup_size 1\nnum_units 1 exact\nin i32[8] whole\nin i32[1] whole\nout i32[1] "
      "whole\nbody (%x: ref<global, i32[?]>, %y: ref<global, i32[?]>, %o: ref<global, i32[?]>) {\n"
      "  %c0 = constant 0 : i32[]\n  %c1 = constant 1 : i32[]\n  %c8 = constant 8 : i32[]\n  %d = load %y[0] : i32[]\n "
      " %e = min %d, %c8\n"
      "  %s = for %i = %c0 to %e step %c1 carry (%a = %c0: i32[]) {\n  %v = load %x[%i] : i32[]\n  %b = add %a, %v\n  "
      "yield %b\n  }\n  store %o[0], %s\n}\n",
      "k.tir");
  CHECK(lane::bound_accesses(k, true));
  for (const int32_t rounds : {0, 1, 8, 9}) {
    const std::vector<Array> arrays{Array({8}, std::vector<int32_t>{1, 2, 4, 8, 16, 32, 64, 128}),
                                    Array({1}, std::vector<int32_t>{rounds}), Array({1}, i32)};
    const lane::RunResult r = lane::run(k, arrays, 2, {});
    CHECK(r.reports.empty());
    CHECK(r.outputs.at(0).element_bits(0) == (uint64_t{1} << std::min(rounds, 8)) - 1);
  }
  const std::string text = ir::print(k);
  const size_t held = text.find("= select");
  REQUIRE(held != std::string::npos);
  CHECK(text.find("= load %0[" + text.substr(text.rfind('%', held), held - 1 - text.rfind('%', held)) + "]") !=
        std::string::npos);
}

// The counter is held to the loop's first value, which is behind the array if there is no iteration: loads are moved
// too.
TEST_CASE("bounds: what nobody takes, in a loop that may begin behind the array") {
  ir::Kernel k = ir::parse(
      "tir 1\nlane kernel @rounds\nworkgroup_size 1\nnum_units 1 exact\nin i32[8] whole\nin i32[1] whole\nout i32[8] "
      "whole\nbody (%x: ref<global, i32[?]>, %y: ref<global, i32[?]>, %o: ref<global, i32[?]>) {\n"
      "  %c0 = constant 0 : i32[]\n  %c1 = constant 1 : i32[]\n  %c8 = constant 8 : i32[]\n  %d = load %y[0] : i32[]\n "
      " %e = max %d, %c0\n  for %i = %e to %c8 step %c1 {\n  %v = load %x[%i] : i32[]\n  store %o[%i], %v\n  }\n}\n",
      "k.tir");
  CHECK(lane::unproved_accesses(k).empty());
  const std::string before = ir::print(k);
  CHECK(lane::bound_accesses(k, true));
  CHECK_NOTHROW(lane::verify_lane(k, "a test"));
  const std::string text = ir::print(k);
  CHECK(before.find("= min") == std::string::npos);
  CHECK(text.find("= min") != std::string::npos);
  for (const int32_t first : {-1, 3, 8, 100}) {
    const std::vector<Array> arrays{Array({8}, std::vector<int32_t>{1, 2, 4, 8, 16, 32, 64, 128}),
                                    Array({1}, std::vector<int32_t>{first}), Array({8}, i32)};
    const lane::RunResult r = lane::run(k, arrays, 2, {});
    CHECK(r.reports.empty());
    for (int32_t i = 0; i < 8; ++i)
      CHECK(r.outputs.at(0).element_bits(i) == (i >= first ? uint64_t{1} << i : uint64_t{0}));
  }
}

}  // namespace prover_test
