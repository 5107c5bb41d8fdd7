// fold: constants, identities, ranges, choices and loops that are known. The other passes: passes_test.cpp.
#include <doctest/doctest.h>

#include <string>

#include "engine/passes/passes.h"
#include "tests/unit/engine/passes/passes_support.h"

namespace passes_fold_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("fold: a start that is a constant and fits is part of the access, to the array's last element") {
  CHECK(fold("  %c = constant 4 : i32[]\n  %a = load %x[ds(%c, 4)]\n  store %o[ds(%c, 4)], %a\n") ==
        "\n  %5 = load %0[4:8] : f32[4]\n  store %2[4:8], %5\n");
  CHECK(fold("  %c = constant 1 : i32[]\n  %a = load %x[ds(%c, 4, 2)]\n  store %o[0:4], %a\n") ==
        "\n  %5 = load %0[1:8:2] : f32[4]\n  store %2[0:4], %5\n");
  CHECK(fold("  %c = constant 2 : i32[]\n  %a = load %x[ds(%c, 4, 2)]\n  store %o[0:4], %a\n") ==
        "\n  %5 = constant 2 : i32[]\n  %6 = load %0[ds(%5, 4, 2)] : f32[4]\n  store %2[0:4], %6\n");
}

TEST_CASE("fold: constants, whatever their shape, stand once at the front") {
  CHECK(fold(R"(
  %a = constant 2 : i32[8]
  %b = constant 3 : i32[]
  %c = broadcast %b dims [] : i32[8]
  %d = mul %a, %c
  %e = slice %d[0:4]
  %f = concatenate %e, %e axis 0
  store %m[0:8], %f
  %g = convert %a : f32[8]
  %h = sqrt %g
  store %o[0:8], %h
)") == R"(
  %5 = constant 6 : i32[8]
  %6 = constant 1.4142135 : f32[8]
  store %3[0:8], %5
  store %2[0:8], %6
)");
  CHECK(fold(R"(
  %p = constant true : bool[8]
  %a = load %n[0:8]
  %b = constant 7 : i32[8]
  %c = select %p, %a, %b
  store %m[0:8], %c
  %min = constant -2147483648 : i32[8]
  %minus = constant -1 : i32[8]
  %d = div %min, %minus
  store %m[0:8], %d
)") == R"(
  %5 = constant -2147483648 : i32[8]
  %6 = load %1[0:8] : i32[8]
  store %3[0:8], %6
  store %3[0:8], %5
)");
}

TEST_CASE("fold: a mask of true goes where the window fits, and holds it in place elsewhere") {
  const auto ops = [](int factor) {
    return "  %i = program_id axis 0 : i32[]\n  %f = constant " + std::to_string(factor) +
           " : i32[]\n  %at = mul %i, %f\n  %t = constant true : bool[2]\n" +
           "  %z = constant 0.0 : f32[2]\n  %a = load %x[ds(%at, 2)] mask %t other %z : f32[2]\n  store %o[ds(%at, "
           "2)], %a mask %t\n";
  };
  CHECK(fold(ops(2)) == R"(
  %5 = constant 2 : i32[]
  %6 = program_id axis 0 : i32[]
  %7 = mul %6, %5 : i32[]
  %8 = load %0[ds(%7, 2)] : f32[2]
  store %2[ds(%7, 2)], %8
)");
  CHECK(fold(ops(3)).find("store %2[ds(%9, 2)], %10 mask %6\n") != std::string::npos);
}

TEST_CASE("fold: integer identities") {
  const auto r = [](const std::string& op) {
    const std::string s = fold(
        "  %a = load %n[0:8]\n  %0 = constant 0 : i32[8]\n  %1 = constant 1 : i32[8]\n  %5 = constant 5 : i32[8]\n  %7 "
        "= constant 7 : i32[8]\n  %m1 = constant -1 : i32[8]\n" +
        op + "  store %m[0:8], %r\n");
    return s;
  };
  const std::string a = "\n  %5 = load %1[0:8] : i32[8]\n  store %3[0:8], %5\n",
                    zero = "\n  %5 = constant 0 : i32[8]\n  store %3[0:8], %5\n";
  for (const char* op :
       {"add %a, %0", "add %0, %a", "sub %a, %0", "mul %a, %1", "mul %1, %a", "div %a, %1", "or %a, %0", "or %a, %a",
        "and %a, %a", "and %m1, %a", "xor %a, %0", "max %a, %a", "min %a, %a", "shift_left %a, %0",
        "shift_right_logical %a, %0", "shift_right_arithmetic %a, %0"}) {
    CAPTURE(op);
    CHECK(r(std::string("  %r = ") + op + "\n") == a);
  }
  for (const char* op : {"mul %a, %0", "sub %a, %a", "rem %a, %1", "and %a, %0", "xor %a, %a", "rem %a, %a"}) {
    CAPTURE(op);
    CHECK(r(std::string("  %r = ") + op + "\n") == zero);
  }
  CHECK(r("  %t = not %a\n  %r = not %t\n") == a);
  CHECK(r("  %t = neg %a\n  %r = neg %t\n") == a);
  CHECK(r("  %t = add %a, %5\n  %r = sub %t, %5\n") == a);
  CHECK(
      r("  %t = add %5, %a\n  %u = add %t, %7\n  %r = add %1, %u\n") ==
      "\n  %5 = constant 13 : i32[8]\n  %6 = load %1[0:8] : i32[8]\n  %7 = add %6, %5 : i32[8]\n  store %3[0:8], %7\n");
  CHECK(
      r("  %t = mul %5, %a\n  %r = mul %t, %7\n") ==
      "\n  %5 = constant 35 : i32[8]\n  %6 = load %1[0:8] : i32[8]\n  %7 = mul %6, %5 : i32[8]\n  store %3[0:8], %7\n");
  CHECK(r("  %t = sub %a, %5\n  %r = sub %t, %7\n") ==
        "\n  %5 = constant -12 : i32[8]\n  %6 = load %1[0:8] : i32[8]\n  %7 = add %6, %5 : i32[8]\n  store %3[0:8], "
        "%7\n");
  CHECK(r("  %t = convert %a : i64[8]\n  %r = convert %t : i32[8]\n") == a);
  CHECK(
      r("  %t = convert %a : i16[8]\n  %r = convert %t : i32[8]\n") ==
      "\n  %5 = load %1[0:8] : i32[8]\n  %6 = convert %5 : i16[8]\n  %7 = convert %6 : i32[8]\n  store %3[0:8], %7\n");
  // 0 / 0 is -1, and x / x is not 1 for x = 0.
  CHECK(r("  %r = div %a, %a\n") ==
        "\n  %5 = load %1[0:8] : i32[8]\n  %6 = div %5, %5 : i32[8]\n  store %3[0:8], %6\n");
}

TEST_CASE("fold: floats keep their bits") {
  const auto r = [](const std::string& op) {
    return fold(
        "  %a = load %x[0:8]\n  %0 = constant 0.0 : f32[8]\n  %m0 = constant -0.0 : f32[8]\n  %1 = constant 1.0 : "
        "f32[8]\n  %r = " +
        op + "\n  store %o[0:8], %r\n");
  };
  const std::string a = "\n  %5 = load %0[0:8] : f32[8]\n  store %2[0:8], %5\n";
  for (const char* op : {"mul %a, %1", "mul %1, %a", "div %a, %1", "add %a, %m0", "sub %a, %0"}) {
    CAPTURE(op);
    CHECK(r(op) == a);
  }
  // -0 + 0 is 0
  CHECK(r("add %a, %0") ==
        "\n  %5 = constant 0.0 : f32[8]\n  %6 = load %0[0:8] : f32[8]\n  %7 = add %6, %5 : f32[8]\n  store %2[0:8], "
        "%7\n");
  CHECK(r("mul %a, %0") ==
        "\n  %5 = constant 0.0 : f32[8]\n  %6 = load %0[0:8] : f32[8]\n  %7 = mul %6, %5 : f32[8]\n  store %2[0:8], "
        "%7\n");
  // inf - inf
  CHECK(r("sub %a, %a") == "\n  %5 = load %0[0:8] : f32[8]\n  %6 = sub %5, %5 : f32[8]\n  store %2[0:8], %6\n");
}

TEST_CASE("fold: choices and loops that are known") {
  CHECK(fold(R"(
  %p = constant true : bool[]
  %a = load %n[0:8]
  %r = if %p {
    %b = neg %a
    yield %b
  } else { yield %a }
  store %m[0:8], %r
)") == R"(
  %5 = load %1[0:8] : i32[8]
  %6 = neg %5 : i32[8]
  store %3[0:8], %6
)");
  CHECK(fold(R"(
  %i = constant 9 : i32[]
  %a = load %n[0:8]
  %b = load %n[0]
  %r = switch %i case 0 { yield %i } case 1 { yield %b }
  store %m[0], %r
)") == R"(
  %5 = load %1[0] : i32[]
  store %3[0], %5
)");
  CHECK(fold(R"(
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %a = load %n[0:8]
  %r = for %i = %1 to %0 step %1 carry (%c = %a) {
    %d = neg %c
    yield %d
  }
  store %m[0:8], %r
  %r2 = for %i = %0 to %1 step %1 carry (%c = %a) {
    store %m[%i], %1
    %d = neg %c
    yield %d
  }
  store %m[0:8], %r2
)") == R"(
  %5 = constant 1 : i32[]
  %6 = load %1[0:8] : i32[8]
  store %3[0:8], %6
  store %3[0], %5
  %7 = neg %6 : i32[8]
  store %3[0:8], %7
)");
  // A while whose condition is false goes; a carry that every step passes on is its first value.
  CHECK(fold(R"(
  %0 = constant 0 : i32[]
  %r = while (%c = %0) {
    %f = constant false : bool[]
    yield %f
  } do (%c) { yield %c }
  store %m[0], %r
  %l = load %n[1]
  %r2, %k = while (%c = %0, %l2 = %l) {
    %f = lt %c, %l2
    yield %f
  } do (%c, %l2) {
    %d = add %c, %l2
    yield %d, %l2
  }
  store %m[0], %r2
  store %m[1], %k
)") == R"(
  %5 = constant 0 : i32[]
  store %3[0], %5
  %6 = load %1[1] : i32[]
  %7 = while (%8 = %5: i32[]) {
    %9 = lt %8, %6 : bool[]
    yield %9
  } do (%10: i32[]) {
    %11 = add %10, %6 : i32[]
    yield %11
  }
  store %3[0], %7
  store %3[1], %6
)");
}

TEST_CASE("fold: what the first iteration sets to the value that the loop starts from is carried as it is") {
  const std::string loop = R"(
  %a = load %n[0]
  %b = load %n[1]
  %c = load %x[0]
  %z = constant 0.0 : f32[]
  %one = constant 1 : i32[]
  %r = for %i = %a to %b step %one carry (%acc = INIT : f32[]) {
    %first = eq %i, START
    %t = if %first {
      yield %z
    } else {
      yield %acc
    }
    %u = add %t, %c
    yield %u
  }
  store %o[0], %r
)";
  const auto with = [&](std::string s, const char* init, const char* start) {
    s.replace(s.find("INIT"), 4, init);
    s.replace(s.find("START"), 5, start);
    return fold(s).find("if ") == std::string::npos;
  };
  CHECK(with(loop, "%z", "%a"));
  CHECK_FALSE(with(loop, "%c", "%a"));  // starts from something else
  CHECK_FALSE(with(loop, "%z", "%b"));  // not the first iteration
  CHECK_FALSE(with(loop, "%z", "%one"));
}

TEST_CASE("fold: ranges decide comparisons, quotients and remainders of indices") {
  // 0 <= program_id 0 < 4; program_id 1 is not bounded above.
  CHECK(fold(R"(
  %p = program_id axis 0
  %4 = constant 4 : i32[]
  %a = rem %p, %4
  store %m[%a], %a
  %8 = constant 8 : i32[]
  %3 = constant 3 : i32[]
  %q = mul %p, %8
  %i = add %q, %3
  %b = div %i, %8
  store %m[%b], %b
  %c = rem %i, %8
  store %m[%c], %c
  %t = lt %p, %4
  if %t { store %m[0], %4 }
)") == R"(
  %5 = constant 4 : i32[]
  %6 = constant 3 : i32[]
  %7 = program_id axis 0 : i32[]
  store %3[%7], %7
  store %3[%7], %7
  store %3[3], %6
  store %3[0], %5
)");
  CHECK(fold(R"(
  %p = program_id axis 1
  %8 = constant 8 : i32[]
  %q = mul %p, %8
  %b = div %q, %8
  store %m[0], %b
)") == R"(
  %5 = constant 8 : i32[]
  %6 = program_id axis 1 : i32[]
  %7 = mul %6, %5 : i32[]
  %8 = div %7, %5 : i32[]
  store %3[0], %8
)");  // the product may wrap
  CHECK(fold_lane(R"(
  %l = local_index
  %8 = constant 8 : i32[]
  %64 = constant 64 : i32[]
  %row = div %l, %8
  %column = rem %l, %8
  %small = lt %l, %64
  %v = load %x[%row]
  if %small { store %o[%column], %v }
  %e = extent index 0 : i32[]
  %0 = constant 0 : i32[]
  %f = max %e, %0
  %g = rem %f, %64
  store %o[%g], %v
)") == R"(
  %2 = constant 3 : i32[]
  %3 = constant 7 : i32[]
  %4 = constant 63 : i32[]
  %5 = local_index : i32[]
  %6 = shift_right_logical %5, %2 : i32[]
  %7 = and %5, %3 : i32[]
  %8 = load %0[%6] : f32[]
  store %1[%7], %8
  %9 = extent index 0 : i32[]
  %10 = and %9, %4 : i32[]
  store %1[%10], %8
)");
}

TEST_CASE("fold: a dynamic start that is a constant in range becomes static, another keeps its clamp") {
  CHECK(fold(R"(
  %2 = constant 2 : i32[]
  %6 = constant 6 : i32[]
  %a = load %n[ds(%2, 4)]
  %b = load %n[ds(%6, 4)]
  store %m[ds(%2, 4)], %a
  store %m[ds(%6, 4)], %b
  %c = load %n[%6]
  store %m[%2], %c
)") == R"(
  %5 = constant 6 : i32[]
  %6 = load %1[2:6] : i32[4]
  %7 = load %1[ds(%5, 4)] : i32[4]
  store %3[2:6], %6
  store %3[ds(%5, 4)], %7
  %8 = load %1[6] : i32[]
  store %3[2], %8
)");
}

TEST_CASE("fold: shape ops that do nothing, or twice the same") {
  CHECK(fold(R"(
  %a = load %x[0:8]
  %b = reshape %a : f32[2, 4]
  %c = transpose %b perm [1, 0]
  %d = transpose %c perm [1, 0]
  %e = reshape %d : f32[8]
  %f = broadcast %e dims [0] : f32[8]
  %g = slice %f[0:8]
  %h = concatenate %g axis 0
  %i = reduce_sum %h axes []
  store %o[0:8], %i
)") == "\n  %5 = load %0[0:8] : f32[8]\n  store %2[0:8], %5\n");
}

TEST_CASE("fold: bool logic") {
  CHECK(fold(R"(
  %a = load %n[0:8]
  %b = constant 3 : i32[8]
  %t = constant true : bool[8]
  %f = constant false : bool[8]
  %p = lt %a, %b
  %q = and %t, %p
  %r = select %q, %f, %t
  %v = or %r, %f
  %u = select %v, %a, %b
  store %m[0:8], %u
)") == R"(
  %5 = constant 3 : i32[8]
  %6 = load %1[0:8] : i32[8]
  %7 = ge %6, %5 : bool[8]
  %8 = select %7, %6, %5 : i32[8]
  store %3[0:8], %8
)");
}

}  // namespace passes_fold_test
