// What lane/prover.h proves by sizes, conditions, counters and digits: neither less than follows, nor more. An array of
// just so many elements holds all positions, and one that is shorter by an element at either end does not.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "codegen/lane/prover.h"
#include "engine/ir/text.h"

namespace prover_exact_test {
using namespace tessera;

namespace {
// An array of `n` elements is read at %e - first, in two programs of 16 that have `extents`: everything is proved to be
// inside.
bool inside(const std::string& extents, const std::string& ops, int64_t first, int64_t n,
            const std::string& before = "", const std::string& after = "") {
  return lane::unproved_accesses(ir::parse("tir 1\nlane kernel @k\nworkgroup_size 16\nnum_units 2 exact\nextents (" +
                                               extents + ")\nin i32[" + std::to_string(n) +
                                               "] whole\nin i32[4] whole\nbody (%x: ref<global, i32[?]>, %y) {\n"
                                               "  %l = local_index : i32[]\n  %d = load %y[0]\n  %t = load %y[1]\n  "
                                               "%c0 = constant 0 : i32[]\n  %c1 = constant 1 : i32[]\n  %c2 = constant "
                                               "2 : i32[]\n  %c3 = constant 3 : i32[]\n  %c4 = constant 4 : i32[]\n"
                                               "  %c5 = constant 5 : i32[]\n  %c7 = constant 7 : i32[]\n  %c8 = "
                                               "constant 8 : i32[]\n  %c12 = constant 12 : i32[]\n  %m4 = constant -4 "
                                               ": i32[]\n  %k = clamp %m4, %d, %c12\n  %u = max %d, %c0\n"
                                               "  %first = constant " +
                                               std::to_string(first) + " : i32[]\n" + ops + before +
                                               "  %i = sub %e, %first\n  %r = load %x[%i]\n" + after + "}\n",
                                           "k.tir"))
      .empty();
}
// What %e is proved to be is [lo, hi], neither more nor less.
void exactly(const std::string& extents, const std::string& ops, int64_t lo, int64_t hi, const std::string& before = "",
             const std::string& after = "") {
  CAPTURE(ops);
  CAPTURE(before);
  CAPTURE(lo);
  CAPTURE(hi);
  CHECK(inside(extents, ops, lo, hi - lo + 1, before, after));
  if (hi == lo) return;
  CHECK_FALSE(inside(extents, ops, lo, hi - lo, before, after));
  CHECK_FALSE(inside(extents, ops, lo + 1, hi - lo + 1, before, after));
}
std::string name_of(const char* what, int64_t i) { return "%" + std::string(what) + std::to_string(i); }
}  // namespace

TEST_CASE("bounds: sizes that arrive with the call, their products and quotients") {
  // A product of two of them is no multiple of either.
  for (const char* product :
       {"n * m", "n * n", "m * cdiv(n, 4)", "cdiv(n, 4) * n", "n * (m + 1)", "(n - n) * m + n * m"}) {
    CAPTURE(std::string(product));
    CHECK_FALSE(inside(product, "  %e = extent index 0 : i32[]\n", 0, 8));
    CHECK_FALSE(inside(product, "  %a = extent index 0 : i32[]\n  %e = min %a, %c7\n", 1, 7));
  }
  CHECK(inside("n - n", "  %e = extent index 0 : i32[]\n", 0, 1));
  CHECK(inside("2 * n - n - n + 3", "  %e = extent index 0 : i32[]\n", 3, 1));
  CHECK_FALSE(inside("2 * n - n + 3", "  %e = extent index 0 : i32[]\n", 3, 1));
  // A multiple is one up to 2147483646 times, on either side.
  for (const int64_t times :
       {int64_t{2}, int64_t{7}, int64_t{INT32_MAX} - 1, int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1})
    for (const bool left : {false, true}) {
      CAPTURE(times);
      CAPTURE(left);
      const std::string t = std::to_string(times), size = left ? t + " * n" : "n * " + t;
      CHECK(inside("n: i64, " + size + ": i64",
                   "  %n = extent index 0 : i64[]\n  %p = extent index 1 : i64[]\n  %times = constant " + t +
                       " : i64[]\n  %q = mul %n, %times\n  %w = sub %p, %q\n  %e = convert %w : i32[]\n",
                   0, 1) == (times < INT32_MAX));
    }
  // What is divided by a constant, rounded up or down: how far it is from what it was, and its own range.
  for (const int64_t by : {2, 3, 4, 7}) {
    const std::string b = std::to_string(by);
    exactly("n: i64, " + b + " * cdiv(n, " + b + "): i64",
            "  %a = extent index 0 : i64[]\n  %q = extent index 1 : i64[]\n  %w = sub %q, %a\n  %far = constant 100 : "
            "i64[]\n  %v = min %w, %far\n  %e = convert %v : i32[]\n",
            0, by - 1);
    exactly(
        "n: i64, " + b + " * floordiv(n, " + b + "): i64",
        "  %a = extent index 0 : i64[]\n  %q = extent index 1 : i64[]\n  %w = sub %a, %q\n  %e = convert %w : i32[]\n",
        0, by - 1);
    exactly("cdiv(n, " + std::to_string(by << 28) + ")", "  %e = extent index 0 : i32[]\n", 0,
            (INT32_MAX + (by << 28) - 1) / (by << 28));
    exactly("floordiv(n, " + std::to_string(by << 28) + ")", "  %e = extent index 0 : i32[]\n", 0,
            INT32_MAX / (by << 28));
  }
  exactly("cdiv(n, " + std::to_string(INT32_MAX) + ")", "  %e = extent index 0 : i32[]\n", 0, 1);
  exactly("floordiv(n, " + std::to_string(INT32_MAX) + ")", "  %e = extent index 0 : i32[]\n", 0, 1);
  // no divisor of that size is looked at
  CHECK_FALSE(
      inside("cdiv(n, " + std::to_string(int64_t{INT32_MAX} + 1) + ")", "  %e = extent index 0 : i32[]\n", 0, 2));
  CHECK(inside("n, cdiv(n, 1)", "  %a = extent index 0 : i32[]\n  %b = extent index 1 : i32[]\n  %e = sub %a, %b\n", 0,
               1));
  CHECK_FALSE(inside("cdiv(n, m)", "  %e = extent index 0 : i32[]\n", 0, 8));
  CHECK_FALSE(inside("cdiv(n - m, 1073741824)", "  %e = extent index 0 : i32[]\n", 0, 3));  // may be below 0
  CHECK_FALSE(inside("n", "  %e = extent index 0 : i32[]\n", 0, 8));
}

TEST_CASE("bounds: what a condition says, and what its opposite does") {
  struct {
    const char* test;
    int64_t lo, hi, not_lo, not_hi;
  } const all[] = {{"lt %k, %c5", -4, 4, 5, 12},    {"le %k, %c5", -4, 5, 6, 12},    {"gt %k, %c5", 6, 12, -4, 5},
                   {"ge %k, %c5", 5, 12, -4, 4},    {"eq %k, %c5", 5, 5, -4, 12},    {"ne %k, %c5", -4, 12, 5, 5},
                   {"lt %c5, %k", 6, 12, -4, 5},    {"le %c5, %k", 5, 12, -4, 4},    {"gt %c5, %k", -4, 4, 5, 12},
                   {"ge %c5, %k", -4, 5, 6, 12},    {"eq %c5, %k", 5, 5, -4, 12},    {"ne %c5, %k", -4, 12, 5, 5},
                   {"ne %k, %c12", -4, 11, 12, 12}, {"ne %k, %m4", -3, 12, -4, -4},  {"eq %k, %c12", 12, 12, -4, 11},
                   {"eq %k, %m4", -4, -4, -3, 12},  {"eq %c12, %k", 12, 12, -4, 11}, {"ne %m4, %k", -3, 12, -4, -4}};
  for (const auto& x : all) {
    const std::string test = "  %e = add %k, %c0\n  %p = " + std::string(x.test) + "\n";
    exactly("n", test, x.lo, x.hi, "  if %p {\n", "  }\n");
    exactly("n", test, x.not_lo, x.not_hi, "  if %p {\n  } else {\n", "  }\n");
    exactly("n", test + "  %q = not %p\n", x.not_lo, x.not_hi, "  if %q {\n", "  }\n");
    exactly("n", test + "  %q = not %p\n  %w = not %q\n", x.lo, x.hi, "  if %w {\n", "  }\n");
    exactly("n", test + "  %q = and %p, %p\n", x.lo, x.hi, "  if %q {\n", "  }\n");
    exactly("n", test + "  %q = or %p, %p\n", x.not_lo, x.not_hi, "  if %q {\n  } else {\n", "  }\n");
  }
  const std::string two = "  %e = add %k, %c0\n  %p = ge %k, %c2\n  %q = lt %k, %c7\n";
  exactly("n", two + "  %w = and %p, %q\n", 2, 6, "  if %w {\n", "  }\n");
  exactly("n", two + "  %w = and %p, %q\n", -4, 12, "  if %w {\n  } else {\n", "  }\n");
  exactly("n", two + "  %w = or %p, %q\n", -4, 12, "  if %w {\n", "  }\n");
  exactly("n", two, 2, 6, "  if %p {\n  if %q {\n", "  }\n  }\n");
  exactly("n", two, -4, 1, "  if %p {\n  } else {\n  if %q {\n", "  }\n  }\n");
  // Of the least of two, and the greatest, whatever they are.
  exactly("n", "  %e = add %k, %c0\n  %a = min %t, %c5\n  %p = lt %k, %a\n", -4, 4, "  if %p {\n", "  }\n");
  exactly("n", "  %e = add %k, %c0\n  %a = max %t, %c5\n  %p = gt %k, %a\n", 6, 12, "  if %p {\n", "  }\n");
  exactly("n", "  %e = add %k, %c0\n  %a = min %c5, %t\n  %b = min %a, %t\n  %p = ge %b, %k\n", -4, 5, "  if %p {\n",
          "  }\n");
  // of the greatest of two it says nothing of either
  exactly("n", "  %e = add %k, %c0\n  %a = max %t, %c5\n  %p = lt %k, %a\n", -4, 12, "  if %p {\n", "  }\n");
  exactly("n", "  %e = add %k, %c0\n  %a = min %t, %c5\n  %p = gt %k, %a\n", -4, 12, "  if %p {\n", "  }\n");
  // Floats and bools say nothing.
  exactly("n", "  %e = add %k, %c0\n  %f = convert %k : f32[]\n  %g = constant 5.0 : f32[]\n  %p = lt %f, %g\n", -4, 12,
          "  if %p {\n", "  }\n");
}

TEST_CASE("bounds: numbers of 64 bits, up to the last ones") {
  // %w may be any of them, for the product wraps.
  for (const std::string t : {"i64", "u64"}) {
    CAPTURE(t);
    const bool is_signed = t == "i64";
    const std::string any = "  %a = convert %d : " + t + "[]\n  %times = constant 8589934592 : " + t +
                            "[]\n  %w = mul %a, %times\n",
                      eighth = any + "  %b = constant 2305843009213693952 : " + t + "[]\n";
    exactly("n", eighth + "  %q = div %w, %b\n  %e = convert %q : i32[]\n", is_signed ? -4 : 0, is_signed ? 3 : 7);
    exactly("n", eighth + "  %v = min %w, %b\n  %q = div %v, %b\n  %e = convert %q : i32[]\n", is_signed ? -4 : 0, 1);
    exactly("n", eighth + "  %v = sub %w, %b\n  %q = div %v, %b\n  %e = convert %q : i32[]\n", is_signed ? -4 : 0,
            is_signed ? 3 : 7);  // which wraps
    // A condition on the largest number, or on half of the unsigned ones, is no contradiction.
    for (const std::string last : {"9223372036854775807", is_signed ? "-9223372036854775808" : "18446744073709551615",
                                   is_signed ? "4611686018427387904" : "9223372036854775808"})
      for (const std::string test : {"lt", "le", "gt", "ge", "eq", "ne"})
        for (const std::string branch : {"  if %p {\n", "  if %p {\n  } else {\n"})
          exactly("n",
                  any + "  %e = add %k, %c0\n  %b = constant " + last + " : " + t + "[]\n  %p = " + test + " %w, %b\n",
                  -4, 12, branch, "  }\n");
  }
}

TEST_CASE("bounds: counters of loops by first value, end and step") {
  for (const auto& [low, end, step, last] : std::vector<std::array<int64_t, 4>>{{0, 8, 1, 7},
                                                                                {0, 8, 3, 6},
                                                                                {1, 8, 3, 7},
                                                                                {2, 8, 3, 5},
                                                                                {0, 9, 8, 8},
                                                                                {0, 8, 8, 0},
                                                                                {0, 8, 9, 0},
                                                                                {7, 8, 5, 7},
                                                                                {-5, 4, 2, 3},
                                                                                {-5, 5, 4, 3},
                                                                                {-6, -1, 4, -2}})
    exactly("n",
            "  %lo = constant " + std::to_string(low) + " : i32[]\n  %hi = constant " + std::to_string(end) +
                " : i32[]\n  %by = constant " + std::to_string(step) + " : i32[]\n",
            low, last, "  for %e = %lo to %hi step %by {\n", "  }\n");
  // Where the end, or the first value, or the step is no constant the counter may be anything up to the end.
  exactly("n", "  %end = clamp %c2, %d, %c8\n", 0, 7, "  for %e = %c0 to %end step %c3 {\n", "  }\n");
  exactly("n", "  %low = clamp %c2, %d, %c5\n", 2, 7, "  for %e = %low to %c8 step %c3 {\n", "  }\n");
  exactly("n", "  %by = clamp %c2, %d, %c5\n", 0, 7, "  for %e = %c0 to %c8 step %by {\n", "  }\n");
  // The counter and its end, however large.
  CHECK(inside("n", "  %n = extent index 0 : i32[]\n", 0, 1,
               "  for %j = %c0 to %n step %c1 {\n  %a = sub %n, %j\n  %b = min %a, %c1\n  %e = sub %b, %c1\n",
               "  }\n"));
  CHECK_FALSE(inside("n", "  %n = extent index 0 : i32[]\n", 0, 1,
                     "  for %j = %c0 to %n step %c1 {\n  %a = sub %n, %j\n  %b = min %a, %c2\n  %e = sub %b, %c2\n",
                     "  }\n"));
}

TEST_CASE("bounds: digits and remainders by what they are made of") {
  exactly("n", "  %q = div %u, %c4\n  %a = mul %q, %c4\n  %e = sub %u, %a\n", 0, 3);
  exactly("n", "  %q = div %u, %c7\n  %a = mul %q, %c7\n  %e = sub %u, %a\n", 0, 6);
  exactly("n", "  %q = div %u, %c4\n  %a = mul %q, %c4\n  %b = sub %a, %u\n  %e = add %b, %c0\n", -3, 0);
  const std::string seven = "  %a = and %u, %c7\n";
  struct {
    const char* upper;
    const char* lower;
    int64_t by;
    bool whole;
  } const digits[] = {{"div %a, %c4", "rem %a, %c4", 4, true},
                      {"shift_right_logical %a, %c2", "and %a, %c3", 4, true},
                      {"shift_right_logical %a, %c2", "rem %a, %c4", 4, true},
                      {"div %a, %c4", "and %a, %c3", 4, true},
                      {"div %a, %c3", "rem %a, %c3", 3, true},
                      {"shift_right_logical %a, %c1", "and %a, %c1", 2, true},
                      {"shift_right_logical %a, %c0", "rem %a, %c1", 1, true},
                      {"shift_right_logical %a, %c1", "rem %a, %c4", 2, false},
                      {"div %a, %c4", "rem %a, %c5", 4, false},
                      {"div %a, %c2", "and %a, %c2", 2, false},
                      {"div %a, %c4", "div %a, %c4", 4, false},
                      {"div %a, %c3", "rem %l, %c3", 3, false}};
  for (const auto& x : digits) {
    CAPTURE(std::string(x.upper));
    CAPTURE(std::string(x.lower));
    // Whole again it is 7 at most; by itself each digit says less.
    const std::string ops = seven + "  %q = " + x.upper + "\n  %p = " + x.lower + "\n  %by = constant " +
                            std::to_string(x.by) +
                            " : i32[]\n  %b = mul %q, %by\n  %s = add %b, %p\n  %e = sub %s, %a\n";
    CHECK(inside("n", ops, 0, 1) == x.whole);
  }
  // below 0 a quotient goes towards 0
  CHECK_FALSE(inside(
      "n", "  %q = div %k, %c4\n  %a = mul %q, %c4\n  %p = and %k, %c3\n  %b = add %a, %p\n  %e = sub %b, %k\n", 0, 1));
  // A remainder by what is not known is less than that.
  const std::string by = "  %by = clamp %c1, %t, %c8\n";
  exactly("n", by + "  %a = rem %u, %by\n  %b = sub %by, %a\n  %e = sub %b, %c1\n", 0, 7);
  CHECK_FALSE(
      inside("n", "  %by = clamp %c0, %t, %c8\n  %a = rem %u, %by\n  %b = sub %by, %a\n  %e = sub %b, %c1\n", 0, 8));
  CHECK_FALSE(inside("n", by + "  %a = rem %u, %by\n  %b = sub %by, %a\n  %e = sub %b, %c2\n", 0, 7));
  // What is clamped lies between its ends, known or not.
  exactly("n", "  %w = min %u, %c7\n  %b = clamp %c0, %d, %w\n  %e = sub %w, %b\n", 0, 7);
  exactly("n", "  %w = min %u, %c3\n  %b = clamp %w, %d, %c7\n  %e = sub %b, %w\n", 0, 7);
  // Where both are selected by one condition, they are chosen together.
  CHECK(inside("n", "  %g = lt %d, %c0\n  %a = select %g, %c3, %c5\n  %b = select %g, %c2, %c4\n  %e = sub %a, %b\n", 1,
               1));
  CHECK_FALSE(inside("n",
                     "  %g = lt %d, %c0\n  %h = lt %t, %c0\n  %a = select %g, %c3, %c5\n  %b = select %h, %c2, %c4\n  "
                     "%e = sub %a, %b\n",
                     1, 1));
}

// A proof ends after so many steps, and so deep: of trees of minimums that need exactly as many.
TEST_CASE("bounds: a proof's budget") {
  std::string ops;
  int64_t made = 0;
  const auto least = [&](const std::string& a, const std::string& b) {
    ops += "  " + name_of("v", made) + " = min " + a + ", " + b + "\n";
    return name_of("v", made++);
  };
  // %z + 1 and %z + 2 lie above %z; a minimum of n minimums of such takes n steps to prove that it does.
  const std::string head = "  %z = clamp %c0, %d, %c7\n  %a = add %z, %c1\n  %b = add %z, %c2\n";
  const auto full = [&](int levels) {  // 2^levels - 1 steps
    std::string v = least("%a", "%b");
    for (int i = 1; i < levels; ++i) v = least(v, v);
    return v;
  };
  const std::function<std::string(int64_t)> tree = [&](int64_t steps) -> std::string {
    if (steps == 0) return "%a";
    int levels = 0;
    while ((int64_t{2} << levels) <= steps) ++levels;  // 1 + (2^levels - 1) <= steps
    return levels == 0 ? least("%a", "%b") : least(full(levels), tree(steps - (int64_t{1} << levels)));
  };
  for (const int64_t steps : {1, 2, 3, 10, 100, 1000, 1499, 1500, 1501, 1502, 2000}) {
    CAPTURE(steps);
    ops = head;
    made = 0;
    const std::string v = tree(steps);
    CHECK(inside("n", ops + "  %e = sub " + v + ", %z\n", 0, 16) == (steps <= 1500));
  }
  for (int depth = 10; depth < 18; ++depth) {
    CAPTURE(depth);
    ops = head;
    made = 0;
    std::string v = least("%a", "%b");
    for (int i = 1; i < depth; ++i) v = least("%a", v);
    CHECK(inside("n", ops + "  %e = sub " + v + ", %z\n", 0, 16) == (depth <= 14));
  }
}

// As deep by whatever it goes: what made a value, digits, the counters of loops, the conditions around.
TEST_CASE("bounds: a proof's depth by every way") {
  struct Chain {
    std::string ops, before, after;  // %e is 0 at least, and 15 at most
  };
  const auto num = [](const char* what, int i) { return name_of(what, i); };
  const std::string head = "  %z = clamp %c0, %d, %c7\n  %a = add %z, %c1\n  %b = add %z, %c2\n";
  // %v0 lies above %z, and so does each that is made of the one before; or below.
  const auto chain = [&](const std::string& first, const std::string& op, const std::string& end) {
    return [=](int n) {
      std::string ops = head + "  %v0 = " + first + "\n";
      for (int i = 1; i <= n; ++i) {
        // the one before, what is greater by 1, and a condition of its own
        std::string made = "  NEXT = add BEFORE, %c1\n  IF = lt %t, %c5\n  " + num("v", i) + " = " + op + "\n";
        for (const auto& [name, is] :
             {std::pair{"BEFORE", num("v", i - 1)}, std::pair{"NEXT", num("w", i)}, std::pair{"IF", num("g", i)}})
          for (size_t at; (at = made.find(name)) != std::string::npos;)
            made.replace(at, std::string_view(name).size(), is);
        ops += made;
      }
      return Chain{ops + "  %e = sub " + (end == "above" ? num("v", n) + ", %z" : "%z, " + num("v", n)) + "\n", "", ""};
    };
  };
  const std::map<std::string, std::function<Chain(int)>> ways = {
      {"min", chain("add %z, %c1", "min %a, BEFORE", "above")},
      {"max", chain("sub %z, %c1", "max %z, BEFORE", "below")},
      {"clamp by its end", chain("add %z, %c1", "clamp %b, %d, BEFORE", "above")},
      {"clamp by its beginning", chain("add %z, %c1", "clamp BEFORE, %d, %b", "above")},
      {"clamp from below", chain("add %z, %c0", "clamp %c0, %d, BEFORE", "below")},
      {"select", chain("add %z, %c1", "select IF, %a, BEFORE", "above")},
      {"rem", chain("add %z, %c0", "rem %u, NEXT", "below")},
      {"div", chain("add %z, %c0", "div BEFORE, %c1", "below")},
      {"digits",
       [&](int n) {
         std::string ops = "  %s0 = add %c0, %c0\n";
         for (int i = 1; i <= n; ++i) {
           const std::string x = num("x", i), q = num("q", i), p = num("p", i), a = num("a", i), b = num("b", i),
                             c = num("d", i), w = num("w", i);
           ops += "  " + w + " = load %y[2]\n  " + x + " = clamp %c0, " + w + ", %c12\n  " + q + " = div " + x +
                  ", %c3\n  " + p + " = rem " + x + ", %c3\n  " + a + " = mul " + q + ", %c3\n  " + b + " = add " + a +
                  ", " + p + "\n  " + c + " = sub " + b + ", " + x + "\n  " + num("s", i) + " = add " +
                  num("s", i - 1) + ", " + c + "\n";
         }
         return Chain{ops + "  %e = add " + num("s", n) + ", %c0\n", "", ""};
       }},
      {"counters",
       [&](int n) {
         Chain r{head, "", ""};
         std::string end = "%a";
         for (int i = 1; i <= n; ++i) {
           r.before += "  for " + num("i", i) + " = %c0 to " + end + " step %c1 {\n";
           r.before += "  " + num("f", i) + " = add " + num("i", i) + ", %c1\n";
           end = num("f", i);
           r.after += "  }\n";
         }
         r.before += "  %e = sub %z, " + num("i", n) + "\n";
         return r;
       }},
      {"conditions",
       [&](int n) {
         Chain r{"", "", ""};
         for (int i = 0; i <= n; ++i) {
           r.ops += "  " + num("w", i) + " = load %y[2]\n  " + num("x", i) + " = and " + num("w", i) + ", %c7\n";
           if (i == 0) continue;
           r.ops += "  " + num("p", i) + " = le " + num("x", i - 1) + ", " + num("x", i) + "\n";
           r.before += "  if " + num("p", i) + " {\n";
           r.after += "  }\n";
         }
         r.ops += "  %e = sub " + num("x", n) + ", %x0\n";
         return r;
       }},
  };
  for (const auto& way : ways)
    for (const int depth : {1, 2, 13, 14, 15, 16, 20}) {
      CAPTURE(way.first);
      CAPTURE(depth);
      const Chain c = way.second(depth);
      CHECK(inside("n", c.ops, 0, 16, c.before, c.after) == (depth <= 14));
    }
}

}  // namespace prover_exact_test
