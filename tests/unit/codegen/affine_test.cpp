// What ScalarAnalysis says of integers, exactly: that it claims nothing wrong is the fuzzer's to see (fuzz/claims.h),
// that it claims enough is seen here. And which grid axes are parallel for it.
#include "codegen/plan/affine.h"

#include <doctest/doctest.h>

#include <string>

#include "codegen/compile.h"
#include "engine/ir/text.h"

namespace affine_test {
using namespace tessera;
namespace {

/// Of %r, behind `ops`, in a grid of 4, n and 1 programs: "2 * p0 + [0, 3]", or the type's name where nothing but that
/// is known.
std::string form(const std::string& ops) {
  const ir::Kernel k = ir::parse(
      "tir 1\nkernel @k\ngrid (4, n, 1)\nin i32[8] whole\nin u8[8] whole\nin bool[8] whole\nin i64[8] whole\nout "
      "i32[8] whole\nbody (%x, %y, %z, %w, %o) {\n"
      "  %p0 = program_id axis 0 : i32[]\n  %p1 = program_id axis 1 : i32[]\n  %p2 = program_id axis 2 : i32[]\n  %c0 "
      "= constant 0 : i32[]\n  %c1 = constant 1 : i32[]\n"
      "  %c3 = constant 3 : i32[]\n  %c4 = constant 4 : i32[]\n  %c5 = constant 5 : i32[]\n  %m2 = constant -2 : "
      "i32[]\n  %big = constant 1000000000 : i32[]\n"
      "  %d = load %x[0]\n  %u = load %y[0]\n  %b = load %z[0]\n  %l = load %w[0]\n" +
          ops + "  store %o[0], %r\n}\n",
      "k.tir");
  lowering::ScalarAnalysis scalars(k);
  const ir::Value r = k.op(k.region(k.body).ops[k.region(k.body).ops.size() - 2]).operands[1];
  const lowering::Affine& a = scalars.of(r);
  std::string s;
  for (size_t i = 0; i < a.coef.size(); ++i)
    if (a.coef[i]) s += std::to_string(a.coef[i]) + " * p" + std::to_string(i) + " + ";
  if (!a.rest.bounded()) return s + "anything";
  if (a.rest.lo == INT32_MIN && a.rest.hi == INT32_MAX) return s + "i32";
  return s + "[" + std::to_string(a.rest.lo) + ", " + std::to_string(a.rest.hi) + "]";
}
}  // namespace

TEST_CASE("affine: forms of sums, products and remainders") {
  CHECK(form("  %r = add %p0, %c0\n") == "1 * p0 + [0, 0]");
  CHECK(form("  %r = add %p1, %c3\n") == "i32");  // of n programs the last one's may wrap
  CHECK(form("  %r = add %p2, %c3\n") == "[3, 3]");
  CHECK(form("  %r = add %p0, %d\n") == "i32");
  CHECK(form("  %a = mul %p0, %c4\n  %r = sub %c3, %a\n") == "-4 * p0 + [3, 3]");
  CHECK(form("  %a = mul %c4, %p0\n  %b1 = mul %p0, %c3\n  %r = sub %a, %b1\n") == "1 * p0 + [0, 0]");
  CHECK(form("  %a = mul %p0, %m2\n  %r = neg %a\n") == "2 * p0 + [0, 0]");
  CHECK(form("  %r = mul %p0, %p0\n") == "[0, 9]");
  CHECK(form("  %r = mul %p0, %big\n") == "i32");  // the last program's wraps
  CHECK(form("  %a = sub %p0, %c1\n  %r = mul %a, %c3\n") == "3 * p0 + [-3, -3]");
  // A remainder is what is divided where that lies below every divisor.
  CHECK(form("  %r = rem %p0, %c4\n") == "1 * p0 + [0, 0]");
  CHECK(form("  %r = rem %p0, %c3\n") == "[0, 2]");
  CHECK(form("  %a = sub %p0, %c1\n  %r = rem %a, %c4\n") == "[-1, 2]");
  CHECK(form("  %a = and %d, %c3\n  %v = add %a, %c4\n  %r = rem %p0, %v\n") == "1 * p0 + [0, 0]");
  CHECK(form("  %a = and %d, %c3\n  %v = add %a, %c3\n  %r = rem %p0, %v\n") == "[0, 3]");
}

TEST_CASE("affine: forms through conversions, and of what is read") {
  CHECK(form("  %r = convert %u : i32[]\n") == "[0, 255]");
  CHECK(form("  %r = convert %b : i32[]\n") == "[0, 1]");
  CHECK(form("  %r = convert %l : i32[]\n") == "i32");
  CHECK(form("  %a = convert %p0 : i64[]\n  %r = convert %a : i32[]\n") == "1 * p0 + [0, 0]");
  CHECK(form("  %a = convert %p0 : u8[]\n  %f = constant 255 : u8[]\n  %v = add %a, %f\n  %r = convert %v : i32[]\n") ==
        "[0, 255]");
  CHECK(form("  %a = convert %p0 : u8[]\n  %f = constant 252 : u8[]\n  %v = add %a, %f\n  %r = convert %v : i32[]\n") ==
        "1 * p0 + [252, 252]");
  CHECK(form("  %a = convert %p0 : bool[]\n  %r = convert %a : i32[]\n") == "[0, 1]");
  CHECK(form("  %a = and %d, %c1\n  %v = convert %a : bool[]\n  %r = convert %v : i32[]\n") == "[0, 1]");
  CHECK(form("  %a = convert %p0 : f32[]\n  %r = convert %a : i32[]\n") == "i32");
  CHECK(form("  %r = and %d, %c5\n") == "[0, 5]");
  CHECK(form("  %r = clamp %c1, %d, %c5\n") == "[1, 5]");
  CHECK(form("  %a = max %d, %m2\n  %r = min %a, %c5\n") == "[-2, 5]");
  CHECK(form("  %r = num_programs axis 0 : i32[]\n") == "[4, 4]");
  CHECK(form("  %r = num_programs axis 1 : i32[]\n") == "[0, 2147483647]");
}

TEST_CASE("affine: arrays have the form of all their elements") {
  const auto reduced = [](const std::string& ops) { return form(ops + "  %r = reduce_max %v axes [0]\n"); };
  CHECK(reduced("  %v = iota axis 0 : i32[8]\n") == "i32");  // nothing is known of reductions
  const auto element = [](const std::string& ops) {
    return form(ops + "  %e = slice %v[1:2]\n  %r = reshape %e : i32[]\n");
  };
  CHECK(element("  %v = iota axis 0 : i32[8]\n") == "[0, 7]");
  CHECK(element("  %i = iota axis 0 : i32[8]\n  %v = rev %i axes [0]\n") == "[0, 7]");
  CHECK(element("  %i = iota axis 0 : i32[1]\n  %v = broadcast %i dims [0] : i32[8]\n") == "[0, 0]");
  CHECK(element("  %a = broadcast %p0 dims [] : i32[8]\n  %i = iota axis 0 : i32[8]\n  %v = add %a, %i\n") ==
        "1 * p0 + [0, 7]");
  CHECK(element(
            "  %a = broadcast %c3 dims [] : i32[4]\n  %i = iota axis 0 : i32[2]\n  %v = concatenate %a, %i axis 0\n") ==
        "[0, 3]");
  CHECK(element(
            "  %a = broadcast %d dims [] : i32[4]\n  %i = iota axis 0 : i32[2]\n  %v = concatenate %i, %a axis 0\n") ==
        "i32");
}

// Which axes of grid (3, 4) are parallel for scratch of one row: s = sequential, p = parallel. Straight from the text:
// no pass and no other step has seen it.
TEST_CASE("affine: scratch that is written before it is read") {
  const auto axes = [](const std::string& shape, const std::string& ops) {
    const ir::Kernel k = ir::parse(
        "tir 1\nkernel @k\ngrid (3, 4)\nin i32[3, 4] block (squeezed, squeezed) map (%i, %j) { yield %i, %j }\nout "
        "i32[3, 4] block (squeezed, squeezed) map (%i, %j) { yield %i, %j }\n"
        "scratch ref<vmem, i32" +
            shape +
            ">\nbody (%x, %o, %s) {\n  %i = program_id axis 0\n  %j = program_id axis 1\n  %c0 = constant 0 : i32[]\n  "
            "%c1 = constant 1 : i32[]\n"
            "  %c2 = constant 2 : i32[]\n  %i0 = eq %i, %c0\n  %j0 = eq %j, %c0\n  %e = load %x[]\n" +
            ops + "}\n",
        "k.tir");
    std::string s;
    for (const bool p : parallel_axes(k)) s += p ? 'p' : 's';
    return s;
  };
  const std::string sum = "  %v = load %s[0]\n  %t = add %v, %e\n  store %s[0], %t\n  store %o[], %t\n";
  CHECK(axes("[1]", "  store %s[0], %e\n" + sum) == "pp");
  CHECK(axes("[1]", sum) == "ss");
  CHECK(axes("[1]", "  if %j0 {\n    store %s[0], %e\n  }\n" + sum) == "ps");
  CHECK(axes("[1]", "  if %i0 {\n    store %s[0], %e\n  }\n" + sum) == "ss");
  CHECK(axes("[2]", "  if %j0 {\n    store %s[0], %e\n  }\n" + sum) == "ps");  // in part, but all that is ever written
  CHECK(axes("[2]", "  if %j0 {\n    store %s[0], %e\n  }\n  store %s[1], %e\n" + sum) == "ss");
  CHECK(axes("[2]", "  if %j0 {\n    %b = broadcast %e dims [] : i32[2]\n    store %s[0:2], %b\n  }\n" + sum) == "ps");
  CHECK(axes("[1, 2]",
             "  if %j0 {\n    %b = broadcast %e dims [] : i32[2]\n    store %s[0, 0:2], %b\n  }\n  %v = load %s[0, "
             "1]\n  store %o[], %v\n") == "ps");
  CHECK(axes("[2]",
             "  if %j0 {\n    %b = broadcast %e dims [] : i32[2]\n    %m = constant true : bool[2]\n    store %s[0:2], "
             "%b mask %m\n  }\n" +
                 sum) == "ss");
  CHECK(axes("[1]", "  if %j0 {\n  } else {\n    store %s[0], %e\n  }\n" + sum) == "ss");
  CHECK(axes("[1]", "  if %j0 {\n    store %s[0], %e\n  } else {\n    store %s[0], %i\n  }\n" + sum) == "pp");
  // The first step does not touch it, later ones read before they write.
  CHECK(axes("[1]", "  if %j0 {\n    store %o[], %e\n  } else {\n" + sum + "  }\n") == "ss");
  // A loop of no known iteration writes nothing for sure, one whose trip count is known does; a while's condition runs
  // once at least, its body perhaps never.
  CHECK(axes("[1]", "  for %k = %c0 to %c2 step %c1 {\n    store %s[0], %e\n  }\n" + sum) == "pp");
  CHECK(axes("[1]", "  for %k = %c0 to %c0 step %c1 {\n    store %s[0], %e\n  }\n" + sum) == "ss");
  CHECK(axes("[1]", "  for %k = %c0 to %e step %c1 {\n    store %s[0], %e\n  }\n" + sum) == "ss");
  CHECK(axes("[1]",
             "  %n = while (%q = %e) {\n    store %s[0], %q\n    %g = gt %q, %c0\n    yield %g\n  } do (%q2) {\n    %h "
             "= sub %q2, %c1\n    yield %h\n  }\n" +
                 sum) == "pp");
  CHECK(axes("[1]",
             "  %n = while (%q = %e) {\n    %g = gt %q, %c0\n    yield %g\n  } do (%q2) {\n    store %s[0], %q2\n    "
             "%h = sub %q2, %c1\n    yield %h\n  }\n" +
                 sum) == "ss");
  CHECK(axes("[1]",
             "  %n = while (%q = %e) {\n    %w = load %s[0]\n    %g = gt %w, %c0\n    yield %g\n  } do (%q2) {\n    %h "
             "= sub %q2, %c1\n    yield %h\n  }\n  store %s[0], %e\n" +
                 sum) == "ss");
}

TEST_CASE("affine: declared axes are parallel where nothing but such axes is left") {
  const auto axes = [](const std::string& grid, const std::string& map) {
    const ir::Kernel k =
        ir::parse("tir 1\nkernel @k\ngrid (" + grid +
                      ")\nin i32[8, 4] block (squeezed, squeezed) map (%i, %j) { yield %i, %j }\nout i32[8, 4] block "
                      "(squeezed, squeezed) map (%i, %j) {\n  %0 = constant 0 : i32[]\n  yield " +
                      map +
                      " }\nout i32[64] whole\nbody (%x, %s, %o) {\n  %e = load %x[]\n  %a = load %s[]\n  %b = add %a, "
                      "%e\n  store %s[], %b\n  store %o[%e], %b\n}\n",
                  "k.tir");
    std::string s;
    for (const bool p : parallel_axes(k)) s += p ? 'p' : 's';
    return s;
  };
  CHECK(axes("8, 4", "%i, %j") == "ss");
  CHECK(axes("8 parallel, 4", "%i, %j") == "ss");
  CHECK(axes("8 parallel, 4 parallel", "%i, %j") == "pp");
  CHECK(axes("8 parallel, 1", "%i, %j") == "pp");
  // All programs of an axis share the block that they add to: it stays in order, and so does the other.
  CHECK(axes("8 parallel, 4 parallel", "%0, %j") == "ss");
  CHECK(axes("8 parallel, 4 parallel", "%i, %0") == "ss");
}

}  // namespace affine_test
