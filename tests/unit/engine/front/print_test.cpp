// debug_print and check: formats, NumPy's text of arrays, the interpreter, the text form, and exact errors.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/base/print_text.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"
#include "tests/support/messages.h"

namespace print_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::message;
using ts::all, ts::Array, ts::Ref, ts::Value;

namespace {
using Lines = std::vector<std::string>;
/// The message of tracing a kernel of an i32[4] and an f32[] input.
template <class F> std::string traced(F body) {
  return message([&] {
    ts::pallas_call([&](Ref x, Ref y, Ref o) { body(x, y), o[all] = 0; }, {.out_shape = {{{4}, ts::i32}}, .name = "k"})
        .trace({{{{4}, ts::i32}, {{}, ts::f32}}});
  });
}
template <class T> Array array(ts::Shape shape, std::vector<T> v) { return {std::move(shape), std::move(v)}; }
Lines run(const ts::PallasCall& call, const std::vector<Array>& inputs, ts::InterpretOptions options = {}) {
  Lines lines;
  options.print = [&](const std::string& line) { lines.push_back(line); };
  ts::interpret(call, inputs, options);
  return lines;
}
Array i32_range(ts::Shape shape) {
  std::vector<int32_t> v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>(i);
  return array(std::move(shape), v);
}
}  // namespace

TEST_CASE("print: arrays as NumPy writes them") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(ts::to_text(array<float>({3}, {1.5f, -2, 0.25f})) == "[ 1.5  -2.    0.25]");
  CHECK(ts::to_text(array<int32_t>({2, 2}, {1, -20, 300, 4})) == "[[  1 -20]\n [300   4]]");
  std::vector<float> count(40);
  for (size_t i = 0; i < 40; ++i) count[i] = static_cast<float>(i);
  CHECK(ts::to_text(array({40}, count)) ==
        "[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15. 16. 17.\n 18. 19. 20. 21. 22. 23. 24. 25. "
        "26. 27. 28. 29. 30. 31. 32. 33. 34. 35.\n 36. 37. 38. 39.]");
  CHECK(ts::to_text(i32_range({60, 40})) ==
        "[[   0    1    2 ...   37   38   39]\n [  40   41   42 ...   77   78   79]\n [  80   81   82 ...  117  118  "
        "119]\n ...\n [2280 2281 2282 ... 2317 2318 2319]\n [2320 2321 2322 ... 2357 2358 "
        "2359]\n [2360 2361 2362 ... 2397 2398 2399]]");
  CHECK(ts::to_text(array<float>({4}, {1e-7f, 1, nan, -inf})) == "[1.e-07 1.e+00    nan   -inf]");
  CHECK(ts::to_text(array<int32_t>({0, 3}, {})) == "[]");
  Array half({3}, ts::f16), brain({2}, ts::bf16), flags({1, 2, 1}, ts::boolean);
  half.set_element_bits(0, 0x2e66), half.set_element_bits(1, 0x7bff), half.set_element_bits(2, 0x1419);
  brain.set_element_bits(0, 0x3dcd), brain.set_element_bits(1, 0x4000);
  flags.set_element_bits(0, 1);
  CHECK(ts::to_text(half) == "[1.00e-01 6.55e+04 1.00e-03]");
  CHECK(ts::to_text(brain) == "[0.100098 2]");
  CHECK(ts::to_text(flags) == "[[[ True]\n  [False]]]");
  const auto scalar = [](ts::DType t, uint64_t bits) {
    Array a(ts::Shape{}, t);
    a.set_element_bits(0, bits);
    return ts::to_text(a);
  };
  CHECK(scalar(ts::f32, 0x3dcccccd) == "0.1");
  CHECK(scalar(ts::f32, 0x4b800000) == "1.6777216e+07");
  CHECK(scalar(ts::f64, 0x41e0000000000000) == "2147483648.0");
  CHECK(scalar(ts::f32, 0x80000000) == "-0.0");
  CHECK(scalar(ts::i8, 0x80) == "-128");
  CHECK(scalar(ts::u64, ~uint64_t{0}) == "18446744073709551615");
  CHECK(scalar(ts::boolean, 1) == "True");
}

TEST_CASE("print: formats are Python's") {
  const auto format = [](const std::string& f) {
    return ts::format_text(f, {array<float>({}, {2.5f}), array<int32_t>({}, {-42})});
  };
  CHECK(format("{} and {}") == "2.5 and -42");
  CHECK(format("{1}{0}{1}") == "-422.5-42");
  CHECK(format("{{{}}} {:d}") == "{2.5} -42");
  CHECK(format("{:.3f}|{:06d}") == "2.500|-00042");
  CHECK(format("{:+8.1e}|{:<6d}|") == "+2.5e+00|-42   |");
  CHECK(format("{:*^9.2f}|{:x}") == "**2.50***|-2a");
  CHECK(format("{:.1%} {:b}") == "250.0% -101010");
}

TEST_CASE("print: programs print in order, loops and branches as they go, also where a seed permutes the programs") {
  auto call = ts::pallas_call(
      [](Ref x, Ref o) {
        const Value i = ts::program_id(0);
        ts::debug_print("program {i}: {}", x[all], ts::named("i", i));
        ts::when(i == 1, [&] { ts::debug_print("one"); });
        ts::fori_loop(0, i, [&](Value j) { ts::debug_print("{} of {:d}, {}", j, i, 0.5); });
        o[all] = x[all];
      },
      {.out_shape = {{{6}, ts::i32}},
       .grid = {3},
       .in_specs = {{{2}, [](Value i) { return i; }}},
       .out_specs = {{{2}, [](Value i) { return i; }}},
       .compiler_params = ts::CompilerParams{.dimension_semantics = {"parallel"}}});
  const Lines wanted{"program 0: [0 1]", "program 1: [2 3]", "one",        "0 of 1, 0.5",
                     "program 2: [4 5]", "0 of 2, 0.5",      "1 of 2, 0.5"};
  CHECK(run(call, {i32_range({6})}) == wanted);
  for (uint64_t seed = 1; seed < 5; ++seed) CHECK(run(call, {i32_range({6})}, {.seed = seed}) == wanted);
}

TEST_CASE(
    "print: a check that fails is an error with its program and message, and the first in the order of the programs") {
  int line = 0;
  auto call = ts::pallas_call(
      [&](Ref x, Ref o) {
        line = __LINE__ + 1;
        ts::check(Value(x[all]) < 4, "{} is too large, {{so}}", x[all]);
        ts::debug_print("after");
        o[all] = x[all];
      },
      {.out_shape = {{{8}, ts::i32}},
       .grid = {{"i", 4}},
       .in_specs = {{{2}, [](Value i) { return i; }}},
       .out_specs = {{{2}, [](Value i) { return i; }}},
       .name = "limits",
       .compiler_params = ts::CompilerParams{.dimension_semantics = {"parallel"}}});
  Lines lines;
  ts::InterpretOptions options;
  options.print = [&](const std::string& s) { lines.push_back(s); };
  const auto failed = [&] { return message([&] { ts::interpret(call, {i32_range({8})}, options); }); };
  const std::string got = failed(),
                    wanted = "limits: check failed in program (i = 2): [4 5] is too large, {so}" + at(line);
  CHECK(got == wanted);
  CHECK(lines == Lines(4, "after"));  // the kernel goes on
  for (uint64_t seed = 1; seed < 5; ++seed) {
    options.seed = seed;
    CHECK(failed() == wanted);
  }
}

TEST_CASE("print: the text form, and passes keep every line") {
  const std::string text = R"(tir 1
kernel @k
grid (2)
in i32[4] whole
out i32[4] whole
text "a \"line\"\n{}"
text "{:d} {}"
body (%0: ref<any, i32[4]>, %1: ref<any, i32[4]>) {
  %2 = load %0[0:4] : i32[4]
  %3 = load %0[1] : i32[]
  %4 = constant true : bool[]
  debug_print %2 text 0
  debug_print %2 text 0
  check %4, %3, %2 text 1
  store %1[0:4], %2
}
)";
  ts::ir::Kernel k = ts::ir::parse(text, "k.tir");
  ts::ir::check(k);
  CHECK(ts::ir::print(k) == text);
  ts::passes::optimize(k);
  const std::string after = ts::ir::print(k);
  CHECK(after.find("debug_print") != after.rfind("debug_print"));
  CHECK(after.find("check") != std::string::npos);
}

TEST_CASE("print: errors") {
  int line = 0;
  const auto expect = [&](const std::string& got, const std::string& what) {
    CHECK(got == "k: debug_print: " + what + at(line));
  };
  expect(traced([&](Ref x, Ref) {
           line = __LINE__ + 1;
           ts::debug_print("{} {}", x[all]);
         }),
         "the format takes 2 arguments but there is 1");
  expect(traced([&](Ref x, Ref y) {
           line = __LINE__ + 1;
           ts::debug_print("{0}", x[all], y[all]);
         }),
         "argument 1 is not used by the format");
  expect(traced([&](Ref x, Ref) {
           line = __LINE__ + 1;
           ts::debug_print("{:d}", x[all]);
         }),
         "\":d\" says how a scalar is written but argument 0 is i32[4]");
  expect(traced([&](Ref, Ref y) {
           line = __LINE__ + 1;
           ts::debug_print("{:d}", y[all]);
         }),
         "\":d\" is no way to write f32");
  expect(traced([&](Ref, Ref y) {
           line = __LINE__ + 1;
           ts::debug_print("{:q}", y[all]);
         }),
         "\":q\" is no way to write f32");
  expect(traced([&](Ref x, Ref) {
           line = __LINE__ + 1;
           ts::debug_print("{x}", x[all]);
         }),
         "there is no argument named x");
  expect(traced([&](Ref x, Ref y) {
           line = __LINE__ + 1;
           ts::debug_print("{} {1}", x[all], y[all]);
         }),
         "the format has placeholders with a number and placeholders without");
  expect(traced([&](Ref x, Ref) {
           line = __LINE__ + 1;
           ts::debug_print("{", x[all]);
         }),
         "the format has a '{' without its '}'; a brace by itself is written twice");
  expect(traced([&](Ref x, Ref) {
           line = __LINE__ + 1;
           ts::debug_print("}", x[all]);
         }),
         "the format has a '}' without its '{'; a brace by itself is written twice");
  const std::string got = traced([&](Ref x, Ref) {
    line = __LINE__ + 1;
    ts::check(Value(x[0]), "x");
  });
  CHECK(got == "k: check: the condition is i32, not bool" + at(line));
  const auto parsed = [](const std::string& op) {
    return message([&] {
      ts::ir::parse(
          "tir 1\nkernel @k\nout i32[4] whole\ntext \"{}\"\nbody (%o) {\n  %i = load %o[1]\n  " + op + "\n}\n",
          "k.tir");
    });
  };
  CHECK(parsed("debug_print %i text 1").find("debug_print: text 1 is out of range for 1 text") != std::string::npos);
  CHECK(parsed("debug_print text 0").find("debug_print: the format takes 1 argument but there are 0") !=
        std::string::npos);
  CHECK(parsed("check %i text 0").find("check: the condition must be bool[] but is i32[]") != std::string::npos);
  CHECK(parsed("debug_print %i").find("debug_print: attribute text is missing") != std::string::npos);
}

}  // namespace print_test
