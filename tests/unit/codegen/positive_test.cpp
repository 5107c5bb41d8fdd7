// Which values expand/positive.h proves to be no negative numbers: for each op and each sign of its operands. What it
// claims holds for every number of those signs.
#include "codegen/expand/positive.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "engine/ir/reference.h"
#include "engine/ir/text.h"

namespace positive_test {
using namespace tessera;
using expand::Sign;
using ir::Opcode;

namespace {

constexpr std::array kSigns{Sign::any, Sign::not_negative, Sign::positive};

/// %a is what `a` makes of %x, and so on; the sign of what `body` makes of them.
Sign sign(const std::string& body, Sign a = Sign::any, Sign b = Sign::any, const std::string& dtype = "f32") {
  const auto made = [&](const std::string& from, Sign s) {
    const std::string one = "  %one" + from + " = constant 1 : " + dtype + "[]\n", of = " = abs %" + from + "\n";
    return s == Sign::any            ? " = neg %" + from + "\n"
           : s == Sign::not_negative ? of
                                     : " = max %one" + from + ", %" + from + "\n" + one;
  };
  // The constant belongs in front of what takes it.
  const auto named = [&](const std::string& name, const std::string& from, Sign s) {
    std::string text = made(from, s);
    const size_t end = text.find('\n') + 1;
    return text.substr(end) + "  %" + name + text.substr(0, end);
  };
  const std::string array = dtype + "[1] whole\n";
  const ir::Kernel k =
      ir::parse("tir 1\nlane kernel @k\nworkgroup_size 1\nnum_units 1 exact\nin " + array + "in " + array + "out " +
                    array + "body (%u, %v, %o) {\n  %x = load %u[0]\n  %y = load " + "%v[0]\n  %p = lt %x, %y\n" +
                    named("a", "x", a) + named("b", "y", b) + body + "  store %o[0], %r\n}\n",
                "k.tir");
  for (const ir::Op& o : k.ops)
    if (o.code == Opcode::store) return expand::sign_of(k, o.operands[1]);
  FAIL("no store");
  return Sign::any;
}

/// Numbers of that sign, at its edges and beyond.
std::vector<double> numbers(Sign s) {
  std::vector<double> all{0x1p-126, 1, 3e38};
  if (s != Sign::positive) all.insert(all.end(), {0.0, -0.0, 0x1p-149});
  if (s == Sign::any) all.insert(all.end(), {-0x1p-149, -0x1p-126, -1, -3e38});
  return all;
}
bool has(double x, Sign s) {
  return std::isnan(x) || s == Sign::any || (s == Sign::not_negative ? x >= 0 : x >= 0x1p-126);
}

}  // namespace

TEST_CASE("positive: ops of two operands, by the signs of both") {
  const Sign o = Sign::any, n = Sign::not_negative, p = Sign::positive;
  struct Row {
    Opcode op;
    std::array<Sign, 9> want;  // of any, not negative and positive with each of these
  };
  const std::vector<Row> rows{{Opcode::add, {o, o, o, o, n, p, o, p, p}}, {Opcode::sub, {o, o, o, o, o, o, o, o, o}},
                              {Opcode::mul, {o, o, o, o, n, n, o, n, n}}, {Opcode::div, {o, o, o, o, o, n, o, o, n}},
                              {Opcode::max, {o, n, p, n, n, p, p, p, p}}, {Opcode::min, {o, o, o, o, n, n, o, n, p}}};
  for (const Row& row : rows)
    for (size_t i = 0; i < 9; ++i) {
      const Sign a = kSigns[i / 3], b = kSigns[i % 3];
      CAPTURE(std::string(ir::name(row.op)));
      CAPTURE(i);
      CHECK(sign("  %r = " + std::string(ir::name(row.op)) + " %a, %b\n", a, b) == row.want[i]);
      for (const double x : numbers(a))
        for (const double y : numbers(b)) {
          const uint64_t in[] = {reference::from_double(DType::f32, x), reference::from_double(DType::f32, y)};
          const uint64_t r = reference::eval(row.op, DType::f32, DType::f32, in);
          CAPTURE(x);
          CAPTURE(y);
          CHECK(has(reference::to_double(DType::f32, r), row.want[i]));
        }
    }
}

TEST_CASE("positive: a choice is as much as both of its sides") {
  for (const Sign a : kSigns)
    for (const Sign b : kSigns) {
      CAPTURE(static_cast<int>(a));
      CAPTURE(static_cast<int>(b));
      CHECK(sign("  %r = select %p, %a, %b\n", a, b) == std::min(a, b));
    }
}

TEST_CASE("positive: other ops, constants and dtypes") {
  const Sign o = Sign::any, n = Sign::not_negative, p = Sign::positive;
  for (const char* op : {"abs", "exp", "exp2", "logistic"}) CHECK(sign("  %r = " + std::string(op) + " %x\n") == n);
  for (const char* op : {"neg", "log", "sin", "tanh", "floor"})
    for (const Sign a : kSigns) CHECK(sign("  %r = " + std::string(op) + " %a\n", a) == o);
  CHECK(sign("  %r = mul %a, %a\n") == n);
  CHECK(sign("  %r = add %a, %a\n") == o);
  for (const auto& row : std::vector<std::pair<std::string, Sign>>{{"0.25", p},
                                                                   {"1.1754943508222875e-38", p},  // 2^-126
                                                                   {"1.1754942e-38", n},
                                                                   {"1e-45", n},
                                                                   {"0.0", n},
                                                                   {"-0.0", n},
                                                                   {"-1e-45", o},
                                                                   {"-2.0", o},
                                                                   {"nan", o}}) {
    CAPTURE(row.first);
    CHECK(sign("  %r = constant " + row.first + " : f32[]\n") == row.second);
  }
  for (const char* dtype : {"f16", "bf16", "f64"}) CHECK(sign("  %r = abs %x\n", o, o, dtype) == n);
  CHECK(sign("  %r = abs %x\n", o, o, "i32") == o);
}

TEST_CASE("positive: no more than twelve ops are looked at") {
  const auto chain = [](int ops) {
    std::string text = "  %c1 = abs %x\n";
    for (int i = 2; i <= ops; ++i)
      text += "  %c" + std::to_string(i) + " = min %c" + std::to_string(i - 1) + ", %c" + std::to_string(i - 1) + "\n";
    return sign(text + "  %r = min %c" + std::to_string(ops) + ", %c" + std::to_string(ops) + "\n");
  };
  CHECK(chain(11) == Sign::not_negative);
  CHECK(chain(12) == Sign::any);
}

}  // namespace positive_test
