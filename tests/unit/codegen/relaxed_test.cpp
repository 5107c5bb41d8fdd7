// What code for GPUs may do and what it may not (codegen/spirv/precision.md), run by the judge: narrow floats
// that stay in f32, products that fuse with sums. The bounds of single rows: expand_test.cpp.
#include <doctest/doctest.h>
#include <spirv/unified1/GLSL.std.450.h>

#include <cmath>
#include <set>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <utility>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/judge/judge.h"

namespace relaxed_test {
using namespace tessera;

namespace {

/// A kernel of one element per array: inputs %x, %y of `in`, `body` makes %r of `out`.
std::string text(const std::string& in, const std::string& out, const std::string& body) {
  return "tir 1\nkernel @k\nin " + in + "[1] whole any\nin " + in + "[1] whole any\nout " + out +
         "[1] whole any\nbody (%0: ref<any, " + in + "[1]>, %1: ref<any, " + in + "[1]>, %2: ref<any, " + out +
         "[1]>) {\n  %x = load %0[0:1] : " + in + "[1]\n  %y = load %1[0:1] : " + in + "[1]\n" + body +
         "  store %2[0:1], %r\n}\n";
}

Program compiled(const std::string& kernel, bool strict, const Target& target = gpu_target()) {
  CompileOptions options;
  options.strict = strict;
  return compile(ir::parse(kernel, "k.tir"), target, options);
}

/// Every result that some device may give.
std::set<double> results(const Program& p, double x, double y) {
  std::vector<Array> arrays;
  for (const ProgramArg& a : p.args) {
    arrays.emplace_back(Shape{1}, a.dtype);
    if (!a.is_output) arrays.back().set_element_bits(0, reference::from_double(a.dtype, arrays.size() == 1 ? x : y));
  }
  std::set<double> all;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    judge::Options options;
    options.seed = seed;
    const judge::Result r = judge::run(p, arrays, {}, options);
    for (const std::string& s : r.reports) FAIL_CHECK(s);
    all.insert(reference::to_double(r.outputs.at(0).dtype(), r.outputs[0].element_bits(0)));
  }
  return all;
}

int fused(const Program& p) {
  int n = 0;
  for (size_t at = 5; at < p.spirv.size(); at += p.spirv[at] >> spv::WordCountShift)
    n += (p.spirv[at] & spv::OpCodeMask) == spv::OpExtInst && p.spirv[at + 4] == GLSLstd450Fma;
  return n;
}

using Values = std::set<double>;
constexpr double kHalf = 0x1p-8;  // half a unit in the last place of bf16's 1

}  // namespace

TEST_CASE("relaxed: bf16 is not rounded between arithmetic ops, but for whatever looks at it") {
  const auto both = [](const std::string& out, const std::string& body, Values strict, Values relaxed) {
    CAPTURE(body);
    const std::string kernel = text("bf16", out, body);
    CHECK(results(compiled(kernel, true), 1, kHalf) == strict);
    CHECK(results(compiled(kernel, false), 1, kHalf) == relaxed);
  };
  const std::string sum = "  %s = add %x, %y : bf16[1]\n";
  both("bf16", sum + "  %r = add %s, %y : bf16[1]\n", {1}, {1 + 2 * kHalf});
  both("bf16", sum + "  %n = neg %s : bf16[1]\n  %r = sub %y, %n : bf16[1]\n", {1}, {1 + 2 * kHalf});
  both("bf16", sum + "  %m = max %s, %x : bf16[1]\n  %r = add %m, %y : bf16[1]\n", {1}, {1 + 2 * kHalf});
  both("f32", sum + "  %r = convert %s : f32[1]\n", {1}, {1 + kHalf});
  both("bool", sum + "  %r = gt %s, %x : bool[1]\n", {0}, {0});
  both("f32",  // what also a comparison looks at
       sum + "  %g = gt %s, %x : bool[1]\n  %a = convert %s : f32[1]\n  %b = convert %g : f32[1]\n" +
           "  %r = add %a, %b : f32[1]\n",
       {1}, {1 + kHalf});
  both("bf16", sum + "  %r = floor %s : bf16[1]\n", {1}, {1});
  both("i16", sum + "  %r = bitcast %s : i16[1]\n", {0x3f80}, {0x3f80});
}

TEST_CASE("relaxed: a conversion to bf16 rounds, so that a number can be split") {
  const std::string split =
      "  %h = convert %x : bf16[1]\n  %w = convert %h : f32[1]\n  %l = sub %x, %w : f32[1]\n  %r = add %l, %y : "
      "f32[1]\n";
  for (const bool strict : {true, false})
    CHECK(results(compiled(text("f32", "f32", split), strict), 1 + kHalf / 4, 0) == Values{kHalf / 4});
}

TEST_CASE("relaxed: a product fuses with what is added to it or subtracted") {
  // The square of 1 + 2^-12 rounds to 1 + 2^-11; fused, its last bit stays.
  const std::string square = "  %p = mul %x, %x : f32[1]\n";
  for (const std::string op : {"sub %p, %y", "sub %y, %p"}) {
    const std::string kernel = text("f32", "f32", square + "  %r = " + op + " : f32[1]\n");
    const double lost = op == "sub %p, %y" ? 0x1p-24 : -0x1p-24;
    CHECK(results(compiled(kernel, true), 1 + 0x1p-12, 1 + 0x1p-11) == Values{0});
    CHECK(results(compiled(kernel, false), 1 + 0x1p-12, 1 + 0x1p-11) == Values{0, lost});
    CHECK(fused(compiled(kernel, true)) == 0);
    CHECK(fused(compiled(kernel, false)) == 1);
    CHECK(fused(compiled(kernel, false, lavapipe_target())) == 0);
  }
  const std::string added = text("f32", "f32", square + "  %r = add %y, %p : f32[1]\n");
  CHECK(results(compiled(added, false), 1 + 0x1p-12, -(1 + 0x1p-11)) == Values{0, 0x1p-24});
  for (const std::string t : {"f32", "bf16"})
    for (const auto& [op, wanted] : {std::pair<std::string, double>{"add %p, %x", 18},
                                     {"add %y, %p", 20},
                                     {"sub %p, %x", 12},
                                     {"sub %y, %p", -10},
                                     {"add %p, %q", 30},
                                     {"sub %q, %p", 0}}) {
      const std::string sum = op, products = "  %p = mul %x, %y : " + t + "[1]\n  %q = mul %y, %x : " + t + "[1]\n";
      CAPTURE(sum);
      CHECK(results(compiled(text(t, t, products + "  %r = " + sum + " : " + t + "[1]\n"), false), 3, 5) ==
            Values{wanted});
    }
}

TEST_CASE("relaxed: f16 is added and multiplied by the device") {
  const std::string kernel = text("f16", "f16", "  %p = mul %x, %x : f16[1]\n  %r = sub %p, %y : f16[1]\n");
  CHECK(results(compiled(kernel, true), 1 + 0x1p-6, 1 + 0x1p-5) == Values{0});  // the square's last bit is half an ulp
  CHECK(results(compiled(kernel, false), 1 + 0x1p-6, 1 + 0x1p-5) == Values{0, 0x1p-12});
  const std::string swapped = text("f16", "f16", "  %p = mul %x, %x : f16[1]\n  %r = sub %y, %p : f16[1]\n");
  CHECK(results(compiled(swapped, false), 1 + 0x1p-6, 1 + 0x1p-5) == Values{0, -0x1p-12});
  // Whichever operand the product is, and where both are.
  const std::string square = "  %p = mul %x, %x : f16[1]\n";
  for (const auto& [op, lost] : {std::pair{"add %p, %y", 0x1p-12}, std::pair{"add %y, %p", 0x1p-12}}) {
    const std::string added = text("f16", "f16", square + "  %r = " + op + " : f16[1]\n");
    CHECK(results(compiled(added, false), 1 + 0x1p-6, -(1 + 0x1p-5)) == Values{0, lost});
  }
  const std::string two = square + "  %q = mul %y, %y : f16[1]\n";
  CHECK(results(compiled(text("f16", "f16", two + "  %r = add %p, %q : f16[1]\n"), false), 3, 4) == Values{25});
  CHECK(results(compiled(text("f16", "f16", two + "  %r = sub %p, %q : f16[1]\n"), false), 3, 4) == Values{-7});
  const std::string sum = text("f16", "f16", "  %s = add %x, %y : f16[1]\n  %r = add %s, %y : f16[1]\n");
  for (const bool strict : {true, false}) CHECK(results(compiled(sum, strict), 1, 0x1p-11) == Values{1});
  Target plain = gpu_target();
  plain.float16 = false;
  CHECK(results(compiled(sum, false, plain), 1, 0x1p-11) == Values{1 + 0x1p-10});
}

TEST_CASE("relaxed: f8e4m3fn shows at once what it cannot hold, of rows that have poles") {
  const std::string kernel =
      text("f8e4m3fn", "f8e4m3fn", "  %q = div %x, %y : f8e4m3fn[1]\n  %r = min %q, %x : f8e4m3fn[1]\n");
  for (const bool strict : {true, false}) {
    const Values r = results(compiled(kernel, strict), 1, 0);
    CHECK((r.size() == 1 && std::isnan(*r.begin())));
  }
}

// Where a constant is 0 the result is made of bits on devices that do not keep the signs of zeros (strict code, too).
TEST_CASE("strict: sums, products and quotients with a zero have its sign, and NaN where it belongs") {
  const auto word = [](double x) { return reference::from_double(DType::f32, x); };
  struct {
    ir::Opcode op;
    bool first;  // the constant
  } const rows[] = {{ir::Opcode::add, false}, {ir::Opcode::add, true},  {ir::Opcode::sub, false},
                    {ir::Opcode::sub, true},  {ir::Opcode::mul, false}, {ir::Opcode::mul, true},
                    {ir::Opcode::div, true}};
  for (const Target& target : {minimum_target(), lavapipe_target()})
    for (const auto& row : rows)
      for (const bool negative : {false, true}) {
        const std::string zero = negative ? "-0.0" : "0.0", operands = row.first ? "%z, %x" : "%x, %z";
        const Program p =
            compiled(text("f32", "f32",
                          "  %z = constant " + zero + " : f32[1]\n  %r = " + std::string(ir::name(row.op)) + " " +
                              operands + " : f32[1]\n"),
                     true, target);
        for (const double x : {0.0, -0.0, 1.0, -1.0, 0x1p-126, -0x1p-126, 3e38, double(INFINITY), -double(INFINITY)}) {
          std::vector<Array> arrays;
          for (const ProgramArg& a : p.args) arrays.emplace_back(Shape{1}, a.dtype);
          arrays[0].set_element_bits(0, word(x));
          const judge::Result r = judge::run(p, arrays, {}, {});
          for (const std::string& s : r.reports) FAIL_CHECK(s);
          const uint64_t z = word(negative ? -0.0 : 0.0), in[] = {row.first ? z : word(x), row.first ? word(x) : z},
                         want = reference::eval(row.op, DType::f32, DType::f32, in),
                         got = r.outputs.at(0).element_bits(0);
          const bool nan = std::isnan(reference::to_double(DType::f32, want));
          CAPTURE(target.name);
          CAPTURE(std::string(ir::name(row.op)) + " " + operands + " with " + zero);
          CAPTURE(x);
          if (nan) CHECK(std::isnan(reference::to_double(DType::f32, got)));
          else CHECK(got == want);
        }
      }
}

TEST_CASE("relaxed: sums are never reassociated") {
  const std::string lost = "  %s = add %x, %y : f32[1]\n  %t = sub %s, %x : f32[1]\n  %r = sub %y, %t : f32[1]\n";
  for (const bool strict : {true, false})
    CHECK(results(compiled(text("f32", "f32", lost), strict), 0x1p24, 1) == Values{1});
}

TEST_CASE("relaxed: roots of what is proved to be no negative number look at fewer special values") {
  const auto root = [](const std::string& of, const std::string& what) {
    return compiled(text("f32", "f32", of + "  %r = " + what + " %p : f32[1]\n"), false);
  };
  const std::string square = "  %p = mul %x, %x : f32[1]\n", product = "  %p = mul %x, %y : f32[1]\n",
                    sum = "  %s = mul %x, %x : f32[1]\n  %c = constant 0.25 : f32[1]\n  %p = add %s, %c : f32[1]\n",
                    other = "  %s = mul %x, %y : f32[1]\n  %c = constant 0.25 : f32[1]\n  %p = add %s, %c : f32[1]\n",
                    unsure = "  %c = abs %x : f32[1]\n  %s = neg %c : f32[1]\n  %p = div %c, %s : f32[1]\n";
  CHECK(root(square, "sqrt").spirv.size() < root(product, "sqrt").spirv.size());
  CHECK(root(sum, "rsqrt").spirv.size() < root(other, "rsqrt").spirv.size());
  const double inf = HUGE_VAL, nan = std::nan("");
  const auto number = [](const Values& v, double x) { return v.size() == 1 && *v.begin() == x; };
  const auto undefined = [](const Values& v) { return v.size() == 1 && std::isnan(*v.begin()); };
  for (const double x : {0.0, -0.0, 3.0, inf, -inf}) {
    CAPTURE(x);
    CHECK(number(results(root(square, "sqrt"), x, 1), std::fabs(x)));
    CHECK(number(results(root(sum, "rsqrt"), x, 1),
                 x == 3 ? reference::to_double(DType::f32, reference::from_double(DType::f32, 1 / std::sqrt(9.25)))
                 : std::isinf(x) ? 0
                                 : 2));
  }
  CHECK(undefined(results(root(square, "sqrt"), nan, 1)));
  CHECK(undefined(results(root(sum, "rsqrt"), nan, 1)));
  CHECK(undefined(results(root(square, "rsqrt"), nan, 1)));
  CHECK(number(results(root(square, "rsqrt"), 0, 1), inf));
  CHECK(undefined(results(root(unsure, "rsqrt"), 2, 1)));
  CHECK(undefined(results(root(unsure, "sqrt"), 2, 1)));
}

}  // namespace relaxed_test
