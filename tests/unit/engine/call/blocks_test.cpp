// How arrays are cut into blocks, beyond the ordinary: aliases, element and bounded dims, buffer counts, dynamic grids.
// Results, text, vmap, and exact errors. JAX's answers are in tests/data/pallas.
#include <doctest/doctest.h>

#include <sstream>

#include "engine/call/vmap.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace blocks_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Ref, ts::Value;

namespace {
using Ints = std::vector<int32_t>;
ts::Array ints(ts::Shape shape, Ints v) { return {std::move(shape), std::move(v)}; }
ts::Array iota(ts::Shape shape) {
  Ints v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int32_t>(i);
  return ints(std::move(shape), std::move(v));
}
Ints values(const ts::Array& a) {
  const auto s = a.data<int32_t>();
  return {s.begin(), s.end()};
}
/// Every problem that the verifier has with a text.
std::string problems(const std::string& text) {
  std::string s;
  for (const ts::ir::Problem& p : ts::ir::find_problems(ts::ir::parse(text))) s += p.entity + ": " + p.message + "\n";
  return s;
}
}  // namespace

TEST_CASE("aliases: blocks that nobody visits keep the input's contents, and the caller's array stays") {
  const ts::BlockSpec row{{1, 2}, [](Value i) { return ts::Indices{i * 2, 0}; }};
  const auto call = ts::pallas_call([](Ref x, Ref o) { o[all] = x[all] + 100; }, {.out_shape = {{{4, 2}, ts::i32}},
                                                                                  .grid = 2,
                                                                                  .in_specs = row,
                                                                                  .out_specs = row,
                                                                                  .input_output_aliases = {{0, 0}},
                                                                                  .name = "bump"});
  const ts::Array x = iota({4, 2});
  CHECK(values(ts::interpret(call, x)) == Ints{100, 101, 2, 3, 104, 105, 6, 7});
  CHECK(values(x) == values(iota({4, 2})));
  std::ostringstream out;
  out << call.grid_mapping({{{4, 2}, ts::i32}});
  CHECK(out.str().find("out_specs[0]: i32(4, 2) alias 0 in blocks (1, 2)") != std::string::npos);
  const std::string text = ts::ir::print(call.trace({{{4, 2}, ts::i32}}));
  CHECK(text.find("out i32[4, 2] alias 0 block (1, 2) map") != std::string::npos);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
}

TEST_CASE(
    "aliases: a program sees the input as of its start, later programs what earlier ones stored, and the interpreter "
    "warns") {
  const ts::BlockSpec window{{ts::Element{3}}, [](Value i) { return i * 2; }};
  const int line = __LINE__ + 1;
  const auto kernel = [](Ref x, Ref o) {
    o[0] = 0;
    const Value rest = x[ts::ds(0, 2)];
    o[ts::ds(1, 2)] = rest;
  };
  const auto call = ts::pallas_call(kernel, {.out_shape = {{{8}, ts::i32}},
                                             .grid = {{"i", 3}},
                                             .in_specs = window,
                                             .out_specs = window,
                                             .input_output_aliases = {{0, 0}},
                                             .name = "shift"});
  const ts::Array x = ints({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& w) { warnings.push_back(w); };
  CHECK(values(ts::interpret(call, ts::InterpretOptions{.warn = warn}, x)) == Ints{0, 1, 0, 2, 0, 4, 6, 8});
  CHECK(values(ts::interpret(call, x)) == Ints{0, 1, 0, 2, 0, 4, 6, 8});
  REQUIRE(warnings.size() == 1);
  expect(warnings[0],
         "shift: order decides on in_specs[0], element (2,): program (i = 1) loads what program (i = 0) stored" +
             at(line + 2) + "\n  note: that was at " + std::string(__FILE__) + ":" + std::to_string(line + 3) +
             "; in_specs[0] is aliased to out_specs[0]: programs see what earlier ones stored, and with JAX's "
             "interpreter the first contents");
  expect(message([&] { ts::interpret(call, ts::InterpretOptions{.races = true, .parallel = {true}}, x); }),
         "shift: race on out_specs[0], element (2,): program (i = 1) stores what program (i = 0) stored" +
             at(line + 1) + "\n  note: that was at " + std::string(__FILE__) + ":" + std::to_string(line + 3) +
             "; nothing orders programs that differ in axis i");
}

TEST_CASE("aliases: Refs to whole arrays share memory at once") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref o, Ref p) {
        o[0] = 7;
        p[ts::program_id(0)] = x[0] + x[1];
        o[1] = ts::program_id(0);
      },
      {.out_shape = {{{2}, ts::i32}, {{3}, ts::i32}}, .grid = 3, .input_output_aliases = {{0, 0}}, .name = "at_once"});
  const ts::Arrays out = ts::interpret(call, ints({2}, {1, 50}));
  CHECK(values(out[0]) == Ints{7, 2});
  CHECK(values(out[1]) == Ints{57, 7, 8});
}

TEST_CASE("aliases: what does not fit") {
  const auto with = [](std::map<int, int> aliases, ts::ShapeDtype out, int prefetch = 0) {
    ts::PallasCallParams p{.out_shape = std::vector<ts::ShapeDtype>{out, {{2}, ts::f32}},
                           .input_output_aliases = std::move(aliases),
                           .name = "f"};
    if (prefetch) p.grid_spec = ts::GridSpec{.num_scalar_prefetch = prefetch};
    return message([&] { ts::pallas_call([](Ref, Ref, Ref, Ref) {}, p).trace({{{4}, ts::i32}, {{2}, ts::f32}}); });
  };
  const int line = __LINE__ - 2;
  const ts::ShapeDtype four{{4}, ts::i32};
  const std::string place = "f: input_output_aliases: ";
  expect(with({{0, 0}}, four), "no error");
  expect(with({{0, 2}}, four), place + "output 2 does not exist: out_shape has 2 outputs" + at(line));
  expect(with({{0, -1}}, four), place + "output -1 does not exist: out_shape has 2 outputs" + at(line));
  expect(with({{0, 0}, {1, 0}}, four), place + "output 0 is aliased to input 0 and to input 1" + at(line));
  expect(with({{2, 0}}, four), place + "input 2 does not exist: the call has 2 arguments" + at(line));
  expect(with({{-1, 0}}, four), place + "input -1 does not exist: the call has 2 arguments" + at(line));
  expect(with({{0, 0}}, four, 1), place + "input 0 is a scalar-prefetch operand, which is only read" + at(line) +
                                      note("inputs are counted from the first scalar-prefetch operand"));
  expect(with({{0, 0}}, {{4}, ts::u32}),
         place + "input 0 is i32(4,) but output 0 is u32(4,)" + at(line) +
             note("an output has the shape and dtype of the input that it is aliased to"));
  expect(with({{1, 0}}, {{3}, ts::f32}),
         place + "input 1 is f32(2,) but output 0 is f32(3,)" + at(line) +
             note("an output has the shape and dtype of the input that it is aliased to"));
  const int store = __LINE__ + 3;
  const auto stores = ts::pallas_call(
      [](Ref x, Ref o) {
        x[all] = 1;
        o[all] = 2;
      },
      {.out_shape = {four}, .input_output_aliases = {{0, 0}}, .name = "f"});
  expect(message([&] { stores.trace({four}); }),
         "f: store: in_specs[0] is aliased to out_specs[0] and only read" + at(store) + note("store to the output"));
  expect(problems("tir 1\nkernel @k\nprefetch i32[4] whole\nin i32[4] whole\nin f32[2] whole\nout i32[4] alias 0 "
                  "whole\nout i32[4] alias 1 whole\nout i32[4] alias 1 whole\nout i32[4] alias 2 whole\n"
                  "body (%s, %x, %y, %a, %b, %c, %d) {\n  %v = load %x[0:4]\n  store %x[0:4], %v\n}\n"),
         "out_specs[0]: is aliased to input 0, which is none of the 2 inputs from 1 on\n"
         "out_specs[2]: is aliased to in_specs[0] as out_specs[1] is\n"
         "out_specs[3]: is i32(4,) but is aliased to in_specs[1], which is f32(2,)\n"
         "store %1: stores to in_specs[0]: an input that is aliased to out_specs[1] is only read\n");
}

TEST_CASE("donated host arrays give their memory to the output") {
  const auto call = ts::pallas_call([](Ref x, Ref o) { o[0] = x[0] + 1; },
                                    {.out_shape = {{{3}, ts::i32}}, .input_output_aliases = {{0, 0}}, .name = "first"});
  ts::Array x = ints({3}, {1, 2, 3});
  const ts::Array copy = x;
  const ts::Array y = ts::interpret(call, ts::donate(x));
  CHECK(values(y) == Ints{2, 2, 3});
  CHECK(values(copy) == Ints{1, 2, 3});
  CHECK(x.shape() == ts::Shape{3});
  const std::string gone =
      "Array: this i32(3,) has been donated: its memory belongs to the result of the call that it was given to" +
      note("keep a copy where it is needed later, or call without donate()");
  expect(message([&] { x.at(0); }), gone);
  expect(message([&] { x.data<int32_t>(); }), gone);
  expect(message([&] { ts::interpret(call, x); }), gone);
  expect(message([&] { ts::donate(x); }), gone);
  x = ints({3}, {4, 5, 6});
  const std::byte* memory = x.bytes();
  const ts::Array z = ts::interpret(call, ts::donate(x));
  CHECK(std::as_const(z).bytes() == memory);
  CHECK(values(z) == Ints{5, 5, 6});
}

TEST_CASE("vmap of aliases, stored inputs, element and bounded dims; nested, and of what is not batched") {
  const ts::BlockSpec window{{ts::Element{2, {1, 0}}}, [](Value i) { return i; }};
  const auto sums = ts::pallas_call([](Ref x, Ref o) { o[0] = ts::where(ts::program_id(0) == 0, 0, x[0]) + x[1]; },
                                    {.out_shape = {{{3}, ts::i32}},
                                     .grid = 3,
                                     .in_specs = window,
                                     .out_specs = {{{1}, [](Value i) { return i; }}},
                                     .name = "sums"});
  CHECK(values(ts::interpret(sums, ints({3}, {1, 2, 3}))) == Ints{1, 3, 5});
  CHECK(values(ts::interpret(ts::vmap(sums, 1, 1), ints({3, 2}, {1, 10, 2, 20, 3, 30}))) == Ints{1, 10, 3, 30, 5, 50});
  CHECK(values(ts::interpret(ts::vmap(ts::vmap(sums, 0), 1, 1), iota({1, 2, 3}))) == Ints{0, 1, 3, 3, 7, 9});

  const auto first = ts::pallas_call(
      [](Ref, Ref x, Ref o) { o[all] = x[all] + 1; },
      {.out_shape = {{{4}, ts::i32}},
       .grid_spec = ts::GridSpec{.num_scalar_prefetch = 1,
                                 .grid = 1,
                                 .in_specs = {{{ts::BoundedSlice{4}},
                                               [](Value, Ref size) { return ts::Indices{ts::ds(0, Value(size[0]))}; }}},
                                 .out_specs = {{{ts::BoundedSlice{4}},
                                                [](Value, Ref size) { return ts::ds(0, Value(size[0])); }}}},
       .input_output_aliases = {{1, 0}},
       .name = "first"});
  CHECK(values(ts::interpret(first, ints({1}, {3}), iota({4}))) == Ints{1, 2, 3, 3});
  CHECK(values(ts::interpret(ts::vmap(first), ints({3, 1}, {1, 0, 9}), iota({3, 4}))) ==
        Ints{1, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12});
  CHECK(values(ts::interpret(ts::vmap(first, {std::nullopt, 1}, 1), ints({1}, {2}), iota({4, 2}))) ==
        Ints{1, 2, 3, 4, 4, 5, 6, 7});
  CHECK(values(ts::interpret(ts::vmap(first, {0, std::nullopt}), ints({2, 1}, {1, 3}), iota({4}))) ==
        Ints{1, 1, 2, 3, 1, 2, 3, 3});
  CHECK(values(ts::interpret(ts::vmap(first, {0, 1}), ints({2, 1}, {1, 3}), iota({4, 2}))) ==
        Ints{1, 2, 4, 6, 2, 4, 6, 7});
  const auto count = ts::pallas_call(
      [](Ref x, Ref, Ref o) {
        o[0] = x[0];
        x[0] += 1;
      },
      {.out_shape = {{{1}, ts::i32}}, .grid = 2, .name = "count"});
  CHECK(values(ts::interpret(ts::vmap(count, {0, std::nullopt}), ints({2, 1}, {5, 8}), ints({1}, {0}))) == Ints{6, 9});
  CHECK(values(ts::interpret(ts::vmap(count, {std::nullopt, 0}), ints({1}, {5}), ints({2, 1}, {0, 0}))) == Ints{6, 6});
}

TEST_CASE("vmap of whole arrays without elements") {
  const auto call = ts::pallas_call([](Ref x, Ref y, Ref o) { o[all] = y[all] + ts::sum(x[all], {.axis = 0}); },
                                    {.out_shape = {{{2}, ts::i32}}, .name = "none"});
  CHECK(values(ts::interpret(ts::vmap(call), ts::Array({3, 0, 2}, ts::i32), iota({3, 2}))) == Ints{0, 1, 2, 3, 4, 5});
}

TEST_CASE("element and bounded dims: starts and sizes are clamped, or raise") {
  const int line = __LINE__ + 2;
  const auto with = [](ts::BlockShape block, auto map) {
    const ts::BlockSpec spec{block, map};
    return ts::pallas_call([](Ref x, Ref o) { o[all] = x[all]; },
                           {.out_shape = {{{4}, ts::i32}}, .in_specs = {spec}, .out_specs = {{{4}}}, .name = "take"});
  };
  const auto run = [](const ts::PallasCall& call, ts::InterpretOptions o = {.uninitialised = ts::Uninitialised::zero}) {
    return values(ts::interpret(call, o, ints({6}, {1, 2, 3, 4, 5, 6})));
  };
  CHECK(run(with({ts::Element{4}}, [] { return 1; })) == Ints{2, 3, 4, 5});
  CHECK(run(with({ts::Element{4}}, [] { return 7; })) == Ints{5, 6, 0, 0});   // of the array padded to 8
  CHECK(run(with({ts::Element{4}}, [] { return -7; })) == Ints{2, 3, 4, 5});  // from the end of the padded array
  CHECK(run(with({ts::Element{4}}, [] { return -1; })) == Ints{5, 6, 0, 0});
  CHECK(run(with({ts::Element{4}}, [] { return -9; })) == Ints{1, 2, 3, 4});
  CHECK(run(with({ts::Element{4, {3, 0}}}, [] { return -10; })) == Ints{0, 1, 2, 3});
  CHECK(run(with({4}, [] { return -1; })) == Ints{5, 6, 0, 0});
  CHECK(run(with({4}, [] { return -2; })) == Ints{1, 2, 3, 4});
  CHECK(run(with({4}, [] { return -3; })) == Ints{1, 2, 3, 4});
  CHECK(run(with({ts::Element{4, {3, 0}}}, [] { return 0; })) == Ints{0, 0, 0, 1});
  CHECK(run(with({ts::Element{4, {3, 3}}}, [] { return 100; })) == Ints{6, 0, 0, 0});
  CHECK(run(with({ts::Element{4, {9, 1}}}, [] { return 2; })) == Ints{0, 0, 0, 0});
  CHECK(run(with({ts::BoundedSlice{4}}, [] { return ts::ds(1, 2); })) == Ints{2, 3, 0, 0});
  CHECK(run(with({ts::BoundedSlice{4}}, [] { return ts::ds(4, 3); })) == Ints{5, 6, 0, 0});
  CHECK(run(with({ts::BoundedSlice{4}}, [] { return ts::ds(9, 9); })) == Ints{6, 0, 0, 0});
  CHECK(run(with({ts::BoundedSlice{4}}, [] { return ts::ds(-3, -1); })) == Ints{0, 0, 0, 0});
  const ts::InterpretOptions raise{.out_of_bounds = ts::OutOfBounds::raise};
  const auto raises = [&](const std::string& what, int clamped) {
    return "take: in_specs[0]: in program () the index map gives " + what + at(line) +
           note("unless out-of-bounds accesses raise, it is clamped to " + std::to_string(clamped));
  };
  expect(message([&] { run(with({ts::Element{4, {1, 0}}}, [] { return 5; }), raise); }),
         raises("5 along dim 0, where an Element block of 4 starts at 0 to 4", 4));
  expect(message([&] { run(with({4}, [] { return -1; }), raise); }),
         "take: in_specs[0]: in program () the index map gives -1 along dim 0, which has 2 blocks" + at(line) +
             note("unless out-of-bounds accesses raise, it wraps to 1"));
  expect(message([&] { run(with({ts::BoundedSlice{4}}, [] { return ts::ds(6, 1); }), raise); }),
         raises("6 along dim 0, which has 6 elements", 5));
  expect(message([&] { run(with({ts::BoundedSlice{4}}, [] { return ts::ds(0, 5); }), raise); }),
         raises("a slice of 5 elements along dim 0, whose BoundedSlice has 4", 4));
}

TEST_CASE("element and bounded dims: the text, and what does not fit") {
  const std::string text =
      "tir 1\nkernel @k\nin i32[6, 6, n] block (element(4, 1, 2), element(2), bounded(3)) buffered 2 lookahead revisit "
      "any map () {\n  %0 = constant 1 : i32[]\n  yield %0, %0, %0, %0\n}\n"
      "out i32[8] block (8) any buffered 1 revisit immediate map () {\n  %1 = constant 0 : i32[]\n  yield %1\n}\nbody "
      "(%2: ref<vmem, i32[4, 2, 3]>, %3: ref<any, i32[8]>) {}\n";
  const ts::ir::Kernel k = ts::ir::parse(text);
  CHECK(ts::ir::print(k) == text);
  CHECK(ts::ir::find_problems(k).empty());
  std::ostringstream out;
  out << ts::grid_mapping(k);
  CHECK(out.str() ==
        "grid ()\nin_specs[0]: i32(6, 6, n) in blocks (element(4, 1, 2), element(2), bounded(3)), in vmem, buffered 2, "
        "index map () -> (1, 1, 1, 1)\n"
        "out_specs[0]: i32(8,) in blocks (8,), in any, buffered 1, index map () -> (0)\n");
  const auto parse = [](const std::string& clause) {
    return message([&] { ts::ir::parse("tir 1\nkernel @k\n" + clause + "\nbody (%x) {}\n", "f"); });
  };
  expect(parse("in i32[6] block (element(4, 1))"),
         "f:3:30: expected ',' but found ')'\n  in i32[6] block (element(4, 1))\n                               ^");
  expect(parse("in i32[6] block (element(4, -1, 0))"),
         "f:3:29: expected the padding before the array from 0 to 1073741824 but found -1\n  in i32[6] block "
         "(element(4, -1, 0))\n                              ^");
  expect(parse("in i32[6] block (4) buffered 0"),
         "f:3:30: expected a number of buffers from 1 to 9223372036854775807 but found 0\n  in i32[6] block (4) "
         "buffered 0\n                               ^");
  expect(problems("tir 1\nkernel @k\nin i32[6] block (bounded(4)) map () {\n  %0 = constant 1 : i32[]\n  yield "
                  "%0\n}\nout i32[6] block (element(0)) buffered 1 lookahead map () {\n  %0 = constant 1 : i32[]\n  "
                  "yield %0\n}\nbody (%x, %o) {}\n"),
         "in_specs[0]: index map: yields 1 index but the block has 1 dim, of which 1 bounded, with a start and a size "
         "each\n"
         "out_specs[0]: is an output, which cannot look ahead\n"
         "out_specs[0]: block dim 0 has size 0, not at least 1\n");
  const auto with = [](ts::BlockShape block, ts::IndexMap map) {
    const ts::BlockSpec spec{block, map};
    return message([&] {
      ts::pallas_call([](Ref, Ref) {}, {.out_shape = {{{4}, ts::i32}}, .in_specs = {spec}, .name = "take"})
          .trace({{{6}, ts::i32}});
    });
  };
  const int slice = __LINE__ + 1;
  expect(with({4}, [] { return ts::Indices{ts::ds(0, 2)}; }),
         "take: in_specs[0]: the index map's result 0 is a slice, but dim 0 of the block shape (4,) is none that is "
         "sliced" +
             at(slice) + note("a slice is for a BoundedSlice dim"));
  const int index = __LINE__ + 1;
  expect(with({ts::BoundedSlice{4}}, [] { return ts::Indices{0}; }),
         "take: in_specs[0]: the index map's result 0 is one index, but dim 0 of the block shape (BoundedSlice(4),) is "
         "a BoundedSlice" +
             at(index) + note("return ts::ds(start, size) there"));
  const int step = __LINE__ + 1;
  expect(with({ts::BoundedSlice{4}}, [] { return ts::Indices{ts::ds(0, 2, 2)}; }),
         "take: in_specs[0]: the index map's result 0 is a slice with a step" + at(step) +
             note("a BoundedSlice takes adjacent elements"));
}

TEST_CASE("dynamic grids: sizes arrive with the call") {
  const int line = __LINE__ + 1;
  const auto call = ts::pallas_call(
      [](Ref o) { o[0] = ts::num_programs(0) * 10 + ts::num_programs(2); },
      {.out_shape = {{{1}, ts::i32}}, .grid = {ts::dynamic_grid_dim, 2, {"k", ts::dynamic_grid_dim}}, .name = "sizes"});
  CHECK(values(ts::interpret(call, ts::GridSizes{3, 4})) == Ints{34});
  CHECK(values(ts::interpret(call, ts::GridSizes{1, 1})) == Ints{11});
  CHECK(values(ts::interpret(call, ts::GridSizes(ts::DimValues{{"grid0", 2}, {"grid2", 5}}))) == Ints{25});
  CHECK(call.grid_mapping({}).num_dynamic_grid_bounds() == 2);
  expect(message([&] { ts::interpret(call, ts::GridSizes{3}); }),
         "sizes: the call gives 1 grid size but the grid (grid0, 2, grid2) has 2 dynamic axes" + at(line) +
             note("ts::GridSizes has one size per ts::dynamic_grid_dim of the grid"));
  expect(message([&] { ts::interpret(call); }),
         "sizes: grid axis 0: no value for the size \"grid0\" in grid0" + at(line) +
             note("a size is taken from an argument whose shape names it alone, or given with the call"));
  expect(message([&] { ts::interpret(call, ts::GridSizes{-1, 2}); }),
         "sizes: the size grid0 was given as -1" + at(line) + note("sizes must not be negative"));
}

}  // namespace blocks_test
