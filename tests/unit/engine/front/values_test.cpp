// Functions of the front end that move, pack and draw values, run by the interpreter, against answers of JAX
// (value_functions.h).
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>

#include "tests/support/answers.h"
#include "tests/support/value_functions.h"

namespace values_test {
using namespace tessera;
using namespace tessera::test;
namespace ts = tessera;

TEST_CASE("values: functions that move, pack and draw agree with JAX") {
  for (const auto& entry : value_functions()) {
    const std::string& name = entry.first;  // clang 14 captures no structured binding
    const ValueFunction& function = entry.second;
    INFO(name);
    const ValueCase c = value_case(name, function);
    const std::vector<Array> got = interpret(c.kernel, c.inputs);
    for (size_t o = 0; o < c.answers.size(); ++o) {
      const DType t = c.answers[o].dtype();
      int failures = 0;
      for (int64_t i = 0; i < c.answers[o].size() && failures < 3; ++i) {
        const uint64_t a = got[o].element_bits(i), b = c.answers[o].element_bits(i);
        if (agrees(t, a, b, function.ulp)) continue;
        ++failures;
        FAIL_CHECK(name, " output ", o, " element ", i, " is ", show(t, a), " but JAX has ", show(t, b));
      }
    }
  }
}

TEST_CASE("values: every stored answer is compared") {
  const ValueFunctions functions = value_functions();
  for (const auto& file : std::filesystem::directory_iterator("tests/data/values")) {
    const std::string name = file.path().filename().string();
    CHECK_MESSAGE(functions.contains(name.substr(0, name.find('.'))), name);
  }
}

namespace {
/// The u32 results of a kernel without inputs.
std::vector<uint32_t> words_of(const Shape& shape, const std::function<Value()>& f) {
  const auto call =
      ts::pallas_call([&](Ref o) { o[ts::all] = f(); }, {.out_shape = {{{shape.begin(), shape.end()}, u32}}});
  const Array a = interpret(call);
  std::vector<uint32_t> w;
  for (int64_t i = 0; i < a.size(); ++i) w.push_back(static_cast<uint32_t>(a.element_bits(i)));
  return w;
}
template <class F> std::string trace_error(F kernel) {
  try {
    ts::pallas_call([=](Ref x, Ref i,
                        Ref o) { kernel(x[ts::all].read(Loc::here()), i[ts::all].read(Loc::here())), o[ts::all] = 0; },
                    {.out_shape = {{{4, 8}, f32}}, .name = "k"})
        .trace({{{4, 8}, f32}, {{4}, i32}});
  } catch (const TraceError& e) {
    const std::string what = e.what();
    const size_t at = what.find("\n  at "), end = what.find('\n', at + 1);  // the line is checked by errors_test.cpp
    return what.substr(0, at) + (end == std::string::npos ? "" : what.substr(end));
  }
  return "no error";
}
}  // namespace

TEST_CASE("random: the vectors published with Random123") {
  using W = std::vector<uint32_t>;
  const auto threefry = [](int64_t k0, int64_t k1, int64_t x0, int64_t x1) {
    return words_of({2}, [=] {
      const auto [a, b] = random::threefry2x32(k0, k1, x0, x1);
      return stack({a, b});
    });
  };
  CHECK(threefry(0, 0, 0, 0) == W{0x6b200159, 0x99ba4efe});
  CHECK(threefry(-1, -1, -1, -1) == W{0x1cb996fc, 0xbb002be7});
  CHECK(threefry(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3) == W{0xc4923a9c, 0x483df7a0});
  const auto philox = [](int64_t k0, int64_t k1, int64_t x0, int64_t x1, int64_t x2, int64_t x3) {
    return words_of({4}, [=] {
      const auto x = random::philox4x32(k0, k1, {x0, x1, x2, x3});
      return stack({x[0], x[1], x[2], x[3]});
    });
  };
  CHECK(philox(0, 0, 0, 0, 0, 0) == W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(-1, -1, -1, -1, -1, -1) == W{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344) ==
        W{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: seeds of 64 bits, and Philox's words in order") {
  const auto key =
      words_of({2}, [] { return random::key(cast(full({}, 5, u64), i64) + cast(full({}, 3, i64) << 32, i64)); });
  CHECK(key == std::vector<uint32_t>{3, 5});
  const auto ten = words_of({10}, [] { return random::philox_bits(zeros({2}, u32), {10}); });
  const auto four = words_of({2, 2}, [] { return random::philox_bits(zeros({2}, u32), {2, 2}); });
  CHECK(std::vector<uint32_t>(ten.begin(), ten.begin() + 4) == four);
  CHECK(four[0] == 0x6627e8d5);
  CHECK(words_of({4}, [] { return random::philox_bits(zeros({2}, u32), {4}, 1); }) != four);
}

TEST_CASE("random: the stateful generator gives each program its own numbers, others each time") {
  const auto call = ts::pallas_call(
      [](Ref o, Ref p) {
        random::prng_seed({7, program_id(0)});
        o[ts::all] = random::prng_random_bits({1, 5});
        p[ts::all] = random::prng_random_bits({1, 5});
      },
      {.out_shape = {{{3, 5}, i32}, {{3, 5}, i32}},
       .grid = {3},
       .out_specs = {{{1, 5}, [](Value i) { return Indices{i, 0}; }},
                     {{1, 5}, [](Value i) { return Indices{i, 0}; }}}});
  const Arrays got = interpret(call), again = interpret(call);
  std::map<uint64_t, int> seen;
  for (size_t o = 0; o < 2; ++o)
    for (int64_t i = 0; i < 15; ++i) {
      ++seen[got[o].element_bits(i)];
      CHECK(got[o].element_bits(i) == again[o].element_bits(i));
    }
  CHECK(seen.size() == 30);
  const auto two = ts::vmap(ts::pallas_call(
      [](Ref seed, Ref o) {
        random::prng_seed(seed[0]);
        o[ts::all] = random::prng_random_bits({4});
      },
      {.out_shape = {{{4}, i32}}}));
  const Array rows = interpret(two, Array({3, 1}, std::vector<int32_t>{1, 2, 1}));
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(rows.element_bits(i) == rows.element_bits(8 + i));
    CHECK(rows.element_bits(i) != rows.element_bits(4 + i));
  }
}

TEST_CASE("values: vmap of what moves") {
  const auto one = ts::pallas_call(
      [](Ref x, Ref i, Ref o, Ref p) {
        const Value v = x[ts::all], index = i[ts::all];
        o[ts::all] = take(v, index, 0, IndexMode::clip) + scalar_of(sort(v), 1);
        p[ts::all] = scatter(v, {index}, 100, Update::add);
      },
      {.out_shape = {{{3}, f32}, {{5}, f32}}});
  const Array x({2, 5}, std::vector<float>{5, 1, 4, 2, 3, 50, 10, 40, 20, 30}),
      i({2, 3}, std::vector<int32_t>{0, 4, 9, 1, 1, -1});
  const Arrays got = interpret(ts::vmap(one), x, i);
  const float first[] = {7, 5, 5, 30, 30, 70};
  const float second[] = {105, 1, 4, 2, 103, 50, 210, 40, 20, 130};
  for (int64_t e = 0; e < 6; ++e) CHECK(reference::to_double(f32, got[0].element_bits(e)) == first[e]);
  for (int64_t e = 0; e < 10; ++e) CHECK(reference::to_double(f32, got[1].element_bits(e)) == second[e]);
}

TEST_CASE("values: errors") {
  const auto check = [](const std::string& got, const std::string& want) { CHECK(got == "k: " + want); };
  const std::string rank_note = "\n  note: all must have one shape";
  check(trace_error([](Value x, Value i) { sort({x, i}); }), "sort: operands have shapes (4, 8) and (4,)" + rank_note);
  check(trace_error([](Value x, Value) { sort(sum(x)); }),
        "sort: the operand is a scalar, which has no axis to sort along");
  check(trace_error([](Value x, Value) { sort(x, {.num_keys = 2}); }), "sort: sorts 1 operand by 2 keys");
  check(trace_error([](Value x, Value) { take(x, x, 0); }), "take: indices must be integers but are f32");
  check(trace_error([](Value x, Value i) { take(x, i, 2); }), "take: axis 2 is out of range for 2 dims");
  check(trace_error([](Value x, Value i) { gather(x, {i, i, i}); }),
        "gather: there are 3 indices but the operand (4, 8) has 2 dims");
  check(trace_error([](Value x, Value i) { gather(x, {i, i}, {1, -1}); }), "gather: axis 1 is listed twice");
  check(trace_error([](Value x, Value i) { gather(x, {i}, {0}, IndexMode::wrap); }),
        "gather: the mode must be nearest or fill\n  note: take() has clip and wrap too");
  check(trace_error([](Value x, Value i) { take_along_axis(x, i, 0); }),
        "take_along_axis: indices of shape (4,) for an operand of shape (4, 8)\n  note: but for axis 0 the sizes must "
        "be equal or 1");
  check(trace_error([](Value x, Value i) { scatter(x > 0, {i}, true, Update::add); }),
        "scatter: bools have neither sums nor products\n  note: cast() them to an integer dtype first");
  check(trace_error([](Value x, Value) { dynamic_slice(x, {0}, {1, 1}); }),
        "dynamic_slice: the operand (4, 8) has 2 dims but there are 1 starts and sizes (1, 1)");
  check(trace_error([](Value x, Value) { dynamic_slice(x, {0, 0}, {1, 9}); }),
        "dynamic_slice: sizes (1, 9) does not fit the operand (4, 8) along dim 1");
  check(trace_error([](Value x, Value) { bitcast(x, u64); }),
        "bitcast: f32[4, 8] as u64: the last dim must have 2 elements, which make one u64");
  check(trace_error([](Value x, Value) { bitcast(x, boolean); }),
        "bitcast: cannot reinterpret f32 as bool\n  note: a bool has no bits of its own; cast() converts");
  check(trace_error([](Value, Value i) { bitcast_along(slice(i, {0}, {3}), u64, 0); }),
        "bitcast_along: dim 0 of (3,) does not divide by 2, which is how many i32 make one u64");
  check(trace_error([](Value x, Value) { pack_elementwise({x}, bf16); }),
        "pack_elementwise: 2 bf16 make one f32 but there are 1 operands");
  check(trace_error([](Value, Value i) { unpack_elementwise(i, 4, i8, i32); }),
        "unpack_elementwise: index 4 is out of range for 4 parts");
  check(trace_error([](Value x, Value i) { stochastic_round(x, i, bf16); }),
        "stochastic_round: the random bits must be u32 but are i32");
  check(trace_error([](Value x, Value) { einshape("a(bc)->abc", x); }),
        "einshape: the sizes of b and c are open, whose product is 8\n  note: give one of them in sizes");
  check(trace_error([](Value x, Value) { einshape("a(bc)->abc", x, {{'b', 3}}); }),
        "einshape: dim 1 of (4, 8) does not split into (bc) with the sizes given, whose product is 3");
  check(trace_error([](Value x, Value) { einshape("ab->a", x); }),
        "einshape: \"ab->a\" drops a dim: the left names ab, the right a");
  check(trace_error([](Value x, Value) { einshape("ab->(ab", x); }), "einshape: \"(ab\" has an unmatched parenthesis");
  check(trace_error([](Value x, Value) { random::split(x); }),
        "split: the key must be u32[2] but is f32[4, 8]\n  note: key() makes one, split() more");
  check(trace_error([](Value, Value i) { random::key(i); }), "key: the seed must be a scalar but has shape (4,)");
  check(trace_error([](Value, Value) { random::uniform(random::key(0), {2}, i32); }),
        "uniform: the dtype must be f16, bf16, f32 or f64 but is i32");
  check(trace_error([](Value, Value) { elementwise_inline_asm("mov"); }),
        "elementwise_inline_asm: assembly is written for one vendor's GPU, and this kernel must run on every one\n  "
        "note: say it with the ops of ops.h");
}

}  // namespace values_test
