// The exact text of every error that the front end gives for bad input.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/front.h"
#include "tests/support/messages.h"

namespace errors_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::note;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
template <class E, class F> std::string message(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another type of error: ") + e.what();
  }
  return "no error";
}
template <class F> std::string spec_error(F f) { return message<ts::SpecError>(f); }
const std::string kBroadcast = note("counted from the last dim, sizes must be equal or 1");
const std::string kCarry = note("a carry keeps its shape and dtype: cast() or broadcast_to() one of them");
const std::string kWhole = note("a branch is taken by the whole program; where() chooses per element");
const std::string kOnePerDim =
    note("give one block size per array dim, or ts::squeezed for a dim that the kernel should not see");
const std::string kIndices = note("return ts::Indices with one index per block dim, squeezed ones too");
const std::string kFloating = note("cast() says how to convert");
const std::string kNotPromoted =
    note("8-bit floats and 4-bit integers are not promoted, as in JAX: cast() one of the operands");
const std::string kInside = note("call it inside the kernel given to pallas_call");
const std::string kElsewhere = note("pass data between kernels through their inputs and outputs");
const std::string kEnded =
    note("a Value lives only while its kernel is traced; make it inside the kernel that uses it");

/// The error of a kernel named "k" on one f32[4, 8] and one i32[4] input and an f32[4, 8] output.
template <class F> std::string trace_error(F kernel) {
  return message<ts::TraceError>([&] {
    ts::pallas_call([=](Ref x, Ref i, Ref o) { kernel(x, i, o); },
                    {.out_shape = {{{4, 8}, ts::f32}}, .grid = {2, 3}, .name = "k"})
        .trace({{{4, 8}, ts::f32}, {{4}, ts::i32}});
  });
}
const auto one = [](Ref x, Ref o) { o[all] = x[all]; };
const std::vector<ts::ShapeDtype> square{{{8, 8}, ts::f32}};
/// Traces the kernel "copy" on f32[8, 8] with the BlockSpecs given.
void copy_with(const ts::Grid& grid, const ts::BlockSpecs& in, const ts::BlockSpecs& out = {}) {
  ts::pallas_call(one, {.out_shape = square, .grid = grid, .in_specs = in, .out_specs = out, .name = "copy"})
      .trace(square);
}
}  // namespace

TEST_CASE("block specs") {
  const int line = __LINE__ + 2;
  const auto with = [](auto block, auto map) {
    const ts::BlockSpec spec{block, map};
    return spec_error([&] { copy_with({2, 2}, spec); });
  };
  using Block = ts::BlockShape;
  const auto ij = [](Value i, Value j) { return ts::Indices{i, j}; };
  expect(with(Block{8}, ij),
         "copy: in_specs[0]: block shape (8,) has 1 dim but the array (8, 8) has 2" + at(line) + kOnePerDim);
  expect(
      with(Block{2, ts::squeezed, 4}, ij),
      "copy: in_specs[0]: block shape (2, squeezed, 4) has 3 dims but the array (8, 8) has 2" + at(line) + kOnePerDim);
  expect(with(Block{8, 0}, ij), "copy: in_specs[0]: block shape (8, 0): size 0 of dim 1 is not positive" + at(line));
  expect(with(Block{ts::dim("n"), 8}, ij),
         "copy: in_specs[0]: block shape (n, 8): size n of dim 0 is known at run time only" + at(line) +
             note("blocks have static sizes; arrays and the grid may have run-time ones"));
  expect(with(Block{ts::Element{0}, 8}, ij),
         "copy: in_specs[0]: block shape (Element(0), 8): size 0 of dim 0 is not positive" + at(line));
  expect(with(Block{ts::Element{8, {1, -2}}, 8}, ij),
         "copy: in_specs[0]: block shape (Element(8, padding=(1, -2)), 8): padding (1, -2) of dim 0 is negative" +
             at(line) + note("padding counts the elements before and behind the array"));
  expect(with(Block{8, ts::BoundedSlice{-1}}, ij),
         "copy: in_specs[0]: block shape (8, BoundedSlice(-1)): size -1 of dim 1 is not positive" + at(line));
  expect(
      with(Block{ts::BoundedSlice{8}, 8}, ts::IndexMap{}),
      "copy: in_specs[0]: dim 0 of the block shape (BoundedSlice(8), 8) is a BoundedSlice, but there is no index map" +
          at(line) + note("its index map returns ts::ds(start, size) there"));
  expect(
      with(Block{4, 4}, [](Value i, Value) { return i; }),
      "copy: in_specs[0]: the index map returns 1 index but the block shape (4, 4) has 2 dims" + at(line) + kIndices);
  expect(
      with(Block{4, 4}, [](Value i, Value j) { return ts::Indices{i, j, 0}; }),
      "copy: in_specs[0]: the index map returns 3 indices but the block shape (4, 4) has 2 dims" + at(line) + kIndices);
  expect(with(Block{4, 4}, [](Value i) { return ts::Indices{i, i}; }),
         "copy: in_specs[0]: the index map takes 1 program id but the grid (2, 2) has 2 axes" + at(line) +
             note("an index map takes one Value per grid axis"));
}

TEST_CASE("index maps") {
  const auto with = [&](auto map) {
    return message<ts::TraceError>([&] {
      ts::pallas_call(
          one, {.out_shape = {{{8, 8}, ts::f32}}, .grid = {2}, .in_specs = ts::BlockSpec{{4, 8}, map}, .name = "copy"})
          .trace(square);
    });
  };
  int line = __LINE__ + 1;
  expect(with([](Value i) { return ts::Indices{ts::cast(i, ts::f32), 0}; }),
         "copy: in_specs[0]: index map: result 0: the block index must be an integer scalar but is f32[]" + at(line));
  line = __LINE__ + 1;
  expect(with([](Value i) { return ts::Indices{i, 0.5}; }),
         "copy: in_specs[0]: index map: result 1: the block index must be an integer but is the number 0.5" + at(line));
  line = __LINE__ + 1;
  expect(with([](Value i) { return ts::Indices{i, ts::iota(ts::i32, {2})}; }),
         "copy: in_specs[0]: index map: result 1: the block index must be an integer scalar but is i32[2]" + at(line));
  line = __LINE__ + 1;
  expect(with([](Value i) { return ts::Indices{i, ts::num_programs(1)}; }),
         "copy: in_specs[0]: index map: num_programs: axis 1 is out of range for a grid of 1 axis" + at(line));
}

TEST_CASE("an index map sees only its program ids") {
  std::optional<Ref> stolen;
  std::optional<Value> value;
  int line = 0;
  const auto inner = [&](auto map) {
    ts::pallas_call(
        one, {.out_shape = {{{8, 8}, ts::f32}}, .grid = {2}, .in_specs = ts::BlockSpec{{4, 8}, map}, .name = "inner"})
        .trace(square);
  };
  auto outer = [&](auto map) {
    return message<ts::TraceError>([&] {
      ts::pallas_call(
          [&](Ref x, Ref o) {
            stolen = x;
            value = x[{0, 0}];
            inner(map);
            o[all] = x[all];
          },
          {.out_shape = {{{8, 8}, ts::f32}}, .name = "outer"})
          .trace(square);
    });
  };
  line = __LINE__ + 1;
  expect(outer([&](Value) { return ts::Indices{(*stolen)[{0, 0}], 0}; }),
         "inner: in_specs[0]: index map: reads a Ref, but an index map sees only its program ids and scalar-prefetch "
         "Refs" +
             at(line) + note("read in the kernel, or give the data as a scalar-prefetch operand"));
  line = __LINE__ + 1;
  expect(outer([&](Value i) { return ts::Indices{i + *value, 0}; }),
         "inner: in_specs[0]: index map: add: a Value of the kernel \"outer\" is used in the trace of another kernel" +
             at(line) + kElsewhere);
  std::optional<Value> first;
  line = __LINE__ + 3;
  const auto keep = [&](Value i) {
    if (!first) first = i;
    return ts::Indices{i + *first, 0};
  };
  const ts::BlockSpec spec{{4, 8}, keep};
  expect(
      message<ts::TraceError>([&] { copy_with(2, spec, spec); }),
      "copy: out_specs[0]: index map: add: a Value is used after the trace that made it has ended" + at(line) + kEnded);
}

TEST_CASE("the grid") {
  int line = __LINE__ + 1;
  expect(spec_error([] { ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .grid = {2, -4}, .name = "copy"}); }),
         "copy: grid: size -4 of axis 1 is negative" + at(line));
  line = __LINE__ + 1;
  expect(spec_error([] { ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .grid = {2.5}, .name = "copy"}); }),
         "copy: grid: size 2.5 of axis 0 is not an integer" + at(line) + note("cdiv(n, block) rounds up"));
  line = __LINE__ + 1;
  expect(spec_error([] { ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .grid = {4.0f}}); }),
         "kernel: grid: size 4.0 of axis 0 is not an integer" + at(line) + note("cdiv(n, block) rounds up"));
  line = __LINE__ + 1;
  expect(spec_error([] { ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .grid = 8 / 3.2, .name = "copy"}); }),
         "copy: grid: size 2.5 of axis 0 is not an integer" + at(line) + note("cdiv(n, block) rounds up"));
  line = __LINE__ + 1;
  expect(spec_error([] { ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .grid = -1, .name = "copy"}); }),
         "copy: grid: size -1 of axis 0 is negative" + at(line));
}

TEST_CASE("parameters that are unknown or do not fit together") {
  int line = __LINE__ + 4;
  const auto with = [](auto change) {
    ts::PallasCallParams p{.out_shape = {{{8}, ts::f32}}, .grid = {2}, .name = "copy"};
    change(p);
    return spec_error([&] { ts::pallas_call(one, p); });
  };
  expect(with([](auto& p) { p.grid_spec = ts::GridSpec{.grid = {2}}; }),
         "copy: grid_spec is given, and grid, in_specs, out_specs or scratch_shapes too" + at(line) +
             note("give them in grid_spec or directly, not both"));
  expect(with([](auto& p) { p.out_shape = {}; }),
         "copy: out_shape is missing" + at(line) +
             note("give the shape and dtype of each output: .out_shape = {{{m, n}, ts::f32}}"));
  expect(with([](auto& p) { p.out_shape = {{{-1}, ts::f32}}; }),
         "copy: out_shape[0]: shape (-1,) has a negative size" + at(line));
  expect(with([](auto& p) { p.in_shape = {{{-1}, ts::f32}}; }),
         "copy: in_shape[0]: shape (-1,) has a negative size" + at(line));
  expect(with([](auto& p) { p.name = "my kernel"; }),
         "kernel: name \"my kernel\" is not a word of letters, digits and _ that starts with no digit" + at(line));
  expect(with([](auto& p) { p.compiler_params = ts::CompilerParams{{"parallel", "arbitrary"}}; }),
         "copy: compiler_params: dimension_semantics has 2 entries but the grid has 1 axis" + at(line));
  expect(with([](auto& p) { p.compiler_params = ts::CompilerParams{{"core_parallel"}}; }),
         "copy: compiler_params: dimension_semantics \"core_parallel\" is unknown" + at(line) +
             note("\"parallel\" and \"arbitrary\" are known"));
  expect(with([](auto& p) { p.out_specs = {ts::BlockSpec{}, ts::BlockSpec{}}; }),
         "copy: out_specs has 2 BlockSpecs but out_shape has 1 output" + at(line));
  expect(with([](auto& p) {
           p.in_specs = {ts::BlockSpec{}};
           p.in_shape = ts::ShapeDtypes(std::vector<ts::ShapeDtype>{});
         }),
         "copy: in_specs has 1 BlockSpec but in_shape has 0 inputs" + at(line));
  expect(with([](auto& p) { p.scratch_shapes = {ts::VMEM({-2}, ts::f32)}; }),
         "copy: scratch_shapes[0]: shape (-2,) has a negative size" + at(line));
  expect(with([](auto& p) { p.scratch_shapes = {{{2}, ts::f32, ts::MemorySpace::global}}; }),
         "copy: scratch_shapes[0]: memory space global is not for scratch" + at(line) +
             note("vmem, smem, any and semaphores are"));
  line = __LINE__ + 1;
  const ts::BlockSpec unbuffered{.pipeline_mode = ts::Buffered{0}};
  expect(spec_error([&] { copy_with(2, unbuffered); }), "copy: in_specs[0]: pipeline_mode has a buffer count of 0" +
                                                            at(line) +
                                                            note("give at least 1, or leave pipeline_mode out"));
  line = __LINE__ + 1;
  const ts::BlockSpec ahead{.pipeline_mode = ts::Buffered{2, true}};
  expect(spec_error([&] { copy_with(2, ts::no_block_spec, ahead); }),
         "copy: out_specs[0]: pipeline_mode: an output cannot look ahead" + at(line) +
             note("use_lookahead is for inputs"));
  line = __LINE__ + 1;
  const ts::BlockSpec shared{.memory_space = ts::MemorySpace::shared};
  expect(spec_error([&] { copy_with(2, shared); }),
         "copy: in_specs[0]: memory space shared is not one that a kernel can ask for" + at(line) +
             note("any, vmem and smem are"));
}

TEST_CASE("arguments") {
  const ts::Array a({8}, ts::f32), b({4, 2}, ts::f32), i({8}, ts::i32);
  int line = __LINE__ + 1;
  auto call = ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .in_specs = {ts::no_block_spec}, .name = "copy"});
  expect(spec_error([&] { ts::interpret(call, a, a); }),
         "copy: called with 2 arguments but in_specs has 1 BlockSpec" + at(line));
  expect(spec_error([&] { ts::interpret(call); }),
         "copy: called with 0 arguments but in_specs has 1 BlockSpec" + at(line));
  line = __LINE__ + 2;
  auto free =
      ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .scratch_shapes = {ts::VMEM({1}, ts::f32)}, .name = "copy"});
  expect(spec_error([&] { ts::interpret(free, a); }),
         "copy: the kernel takes 2 Refs but there are 1 input, 1 output and 1 scratch shape" + at(line) +
             note("a kernel takes one Ref per input, then per output, then per scratch shape"));
  line = __LINE__ + 1;
  auto declared = ts::pallas_call(one, {.out_shape = {{{8}, ts::f32}}, .name = "copy", .in_shape = {{{8}, ts::f32}}});
  expect(spec_error([&] { ts::interpret(declared, a, a); }),
         "copy: called with 2 arguments but in_shape has 1" + at(line));
  expect(spec_error([&] { ts::interpret(declared, i); }),
         "copy: argument 0 is i32(8,) but in_shape[0] is f32(8,)" + at(line));
  expect(spec_error([&] { ts::interpret(declared, b); }),
         "copy: argument 0 is f32(4, 2) but in_shape[0] is f32(8,)" + at(line));
  expect(spec_error([&] { ts::interpret(declared, ts::Array({9}, ts::f32)); }),
         "copy: argument 0 is f32(9,) but in_shape[0] is f32(8,)" + at(line));
  auto two = ts::pallas_call(
      [](Ref o, Ref p) {
        o[all] = 0;
        p[all] = 0;
      },
      {.out_shape = {{{8}, ts::f32}, {{8}, ts::f32}}});
  expect(spec_error([&] { ts::Array z = ts::interpret(two); }),
         "the call has 2 outputs, not one" + note("take them by index, or by auto [a, b] = ts::unpack<2>(call(...))"));
  expect(spec_error([&] { ts::unpack<3>(ts::interpret(two)); }), "unpack<3> of a call that has 2 outputs");
  expect(spec_error([&] { ts::interpret(two)[2]; }), "output 2 of a call that has 2");
}

TEST_CASE("shapes that do not broadcast") {
  int line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref i, Ref o) { o[all] = x[all] + i[all]; }),
         "k: add: shapes (4, 8) and (4,) do not broadcast" + at(line) + kBroadcast);
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::where(x[all] > 0, ts::ones({3}), 2); }),
         "k: where: shapes (4, 8) and (3,) do not broadcast" + at(line) + kBroadcast);
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref o) { o[0] = x[all]; }),
         "k: store: shape (4, 8) does not broadcast to (8,)" + at(line) + kBroadcast);
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::dot(x[all], x[all]); }),
         "k: dot: shapes (4, 8) and (4, 8): 8 columns on the left meet 4 rows on the right" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::dot(x[all], 2); }),
         "k: dot: a scalar operand: shapes (4, 8) and ()" + at(line) + note("use * to scale"));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::dot(ts::cast(x[all], ts::f8e4m3fn), ts::cast(x[all], ts::f8e5m2)); }),
         "k: dot: of f8e4m3fn and f8e5m2 there is no product in either" + at(line) +
             note("set preferred_element_type to f16, bf16, f32 or f64"));
  line = __LINE__ + 2;
  expect(trace_error([](Ref x, Ref, Ref) {
           ts::dot(ts::cast(x[all], ts::f8e5m2), ts::cast(x[all], ts::f8e4m3fn),
                   {.preferred_element_type = ts::f8e5m2});
         }),
         "k: dot: of f8e5m2 and f8e4m3fn there is no product in f8e5m2" + at(line) +
             note("set preferred_element_type to f16, bf16, f32 or f64"));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::reshape(x[all], {5, -1}); }),
         "k: reshape: shape (4, 8) does not divide into (5, -1)" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::transpose(x[all], {0}); }),
         "k: transpose: perm (0,) has 1 entry but the operand (4, 8) has 2 dims" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::sum(x[all], {.axis = 2}); }),
         "k: sum: axis 2 is out of range for 2 dims" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::max(x[all], {.axis = {1, -1}}); }),
         "k: max: axis 1 is listed twice" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref o) { o[all] = x[all] + ts::zeros({3, 1, 1}); }),
         "k: store: shape (3, 4, 8) does not broadcast to (4, 8)" + at(line) + kBroadcast);
}

TEST_CASE("dtypes and numbers") {
  int line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref o) { o[0] = i[0]; }),
         "k: store: the value is i32 but the Ref holds f32" + at(line) + note("cast(value, f32) converts"));
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { i[0] = 2.5; }),
         "k: store: the number 2.5 is floating but i32 is needed" + at(line) + kFloating);
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::cast(i[all], ts::u8) + 300; }),
         "k: add: the number 300 does not fit u8" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::cast(i[all], ts::u64) * -1; }),
         "k: mul: the number -1 does not fit u64" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { i[all] - 0x80000000u; }),
         "k: sub: the number 2147483648 does not fit i32" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::cast(x[all], ts::f8e4m3fn) * x[all]; }),
         "k: mul: f8e4m3fn and f32 have no common dtype" + at(line) + kNotPromoted);
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::cast(i[all], ts::i4) + i[all]; }),
         "k: add: i4 and i32 have no common dtype" + at(line) + kNotPromoted);
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::cast(i[all], ts::u4) + 1.5; }),
         "k: add: u4 and f32 have no common dtype" + at(line) + kNotPromoted);
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::cast(i[all], ts::i4) * 8; }),
         "k: mul: the number 8 does not fit i4" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { x[all] & 1; }),
         "k: and: takes integers or bool but the operand is f32" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { (x[all] > 0) - (x[all] > 1); }),
         "k: sub: takes integers or floats but the operand is bool" + at(line));
  line = __LINE__ + 1;
  expect(trace_error([](Ref, Ref i, Ref) { ts::pow(i[all], i[all]); }),
         "k: pow: the power of i32 Values is not defined" + at(line) +
             note("cast() one side to a float, or give the exponent as a number"));
  line = __LINE__ + 2;
  expect(
      trace_error([](Ref, Ref i, Ref) { ts::pow(i[all], -2); }),
      "k: pow: an integer cannot be raised to the negative power -2" + at(line) + note("cast() it to a float first"));
  line = __LINE__ + 1;
  expect(trace_error([](Ref x, Ref, Ref) { ts::bitcast(x[all], ts::f64); }),
         "k: bitcast: f32[4, 8] as f64: the last dim must have 2 elements, which make one f64" + at(line));
}

TEST_CASE("indices") {
  const auto check = [](auto kernel, int line, const std::string& text, const std::string& more = {}) {
    CHECK(trace_error(kernel) == "k: " + text + at(line) + more);
  };
  check([](Ref x, Ref, Ref o) { o[0] = x[4]; }, __LINE__, "load: dim 0: index 4 is out of range for 4 elements");
  check([](Ref x, Ref, Ref o) { o[0] = x[-5]; }, __LINE__, "load: dim 0: index -5 is out of range for 4 elements");
  check([](Ref, Ref, Ref o) { o[{all, ds(4, 5)}] = 0; }, __LINE__,
        "store: dim 1: ds of 5 elements from 4 is out of range for 8 elements");
  check([](Ref, Ref, Ref o) { o[{all, ds(4, 3, 2)}] = 0; }, __LINE__,
        "store: dim 1: ds of 3 elements with step 2 from 4 is out of range for 8 elements");
  check([](Ref, Ref, Ref o) { o[ds(ts::program_id(0), 5)] = 0; }, __LINE__,
        "store: dim 0: ds of 5 elements does not fit 4 elements");
  check([](Ref, Ref, Ref o) { o[ds(0, -1)] = 0; }, __LINE__, "store: dim 0: ds has the negative size -1");
  check([](Ref, Ref, Ref o) { o[ds(0, 1, 0)] = 0; }, __LINE__, "store: dim 0: the step 0 of ds is not positive");
  check([](Ref, Ref, Ref o) { o[ts::range(0, 4, -1)] = 0; }, __LINE__, "store: dim 0: the step -1 is not positive");
  check([](Ref x, Ref, Ref o) { o[0] = x[{0, 0, 0}]; }, __LINE__,
        "load: the index has 3 entries but the Ref (4, 8) has 2 dims");
  check([](Ref x, Ref, Ref o) { o[0] = x[Value(x[{0, 0}])]; }, __LINE__,
        "load: dim 0: the index must be an integer scalar but is f32[]");
  check([](Ref x, Ref i, Ref o) { o[all] = x[ds(Value(i[all]), 1)]; }, __LINE__,
        "load: dim 0: the start of ds must be an integer scalar but is i32[4]");
  check([](Ref x, Ref, Ref) { ts::load(x, all, {.other = 1}); }, __LINE__, "load: other is given without a mask");
  check([](Ref x, Ref i, Ref) { ts::load(x, 0, {.mask = i[all] > 0}); }, __LINE__,
        "load: shape (4,) does not broadcast to (8,)", kBroadcast);
  check([](Ref, Ref, Ref) { ts::program_id(2); }, __LINE__, "program_id: axis 2 is out of range for a grid of 2 axes");
  check([](Ref, Ref, Ref) { ts::num_programs(-1); }, __LINE__,
        "num_programs: axis -1 is out of range for a grid of 2 axes");
}

TEST_CASE("index arrays and views of Refs") {
  const auto check = [](auto kernel, int line, const std::string& text, const std::string& more = {}) {
    CHECK(trace_error(kernel) == "k: " + text + at(line) + more);
  };
  check([](Ref x, Ref, Ref o) { o[all] = x[Value(x[all])]; }, __LINE__,
        "load: dim 0: an index array must hold integers but is f32[4, 8]");
  check([](Ref x, Ref i, Ref o) { o[all] = x[i[all] > 0]; }, __LINE__,
        "load: dim 0: an index array must hold integers but is bool[4]");
  check([](Ref x, Ref i, Ref) { Value v = x[{i[all], i[ts::range(0, 3)]}]; }, __LINE__,
        "load: dim 1: the index array has shape (3,), which does not broadcast with (4,) of those before");
  check([](Ref x, Ref, Ref o) { o[0] = x[{ts::ellipsis, 0, ts::ellipsis}]; }, __LINE__,
        "load: the index has more than one ellipsis");
  check([](Ref x, Ref, Ref o) { o[0] = x[{0, ts::ellipsis, 0, 0}]; }, __LINE__,
        "load: the index has 3 entries but the Ref (4, 8) has 2 dims");
  check([](Ref x, Ref i, Ref o) { o[0] = ts::load(x, {i[all], 0}, {.mask = x[all] > 0}); }, __LINE__,
        "load: shape (4, 8) does not broadcast to (4,)", kBroadcast);
  check([](Ref, Ref i, Ref o) { ts::addupdate(o, i[all], i[all]); }, __LINE__,
        "addupdate: the value is i32 but the Ref holds f32", note("cast(value, f32) converts"));

  check([](Ref x, Ref, Ref o) { o[0] = x.at(ts::range(1, 3))[2]; }, __LINE__,
        "load: dim 0: index 2 is out of range for 2 elements");
  check([](Ref x, Ref, Ref o) { o[0] = x.at(4)[all]; }, __LINE__, "at: dim 0: index 4 is out of range for 4 elements");
  check([](Ref x, Ref, Ref o) { o[0] = x.at(1)[{0, 0}]; }, __LINE__,
        "load: the index has 2 entries but the Ref (8,) has 1 dim");
  check([](Ref, Ref i, Ref o) { o.at(ds(Value(i[0]), 3))[ds(2, 2)] = 0; }, __LINE__,
        "store: dim 0: ds of 2 elements from 2 is out of range for 3 elements");
  check([](Ref x, Ref, Ref) { x.reshape({5, 7}); }, __LINE__,
        "reshape: the Ref (4, 8) has 32 elements but (5, 7) has 35");
  check([](Ref x, Ref, Ref) { x.reshape({-1, 5}); }, __LINE__,
        "reshape: the Ref (4, 8) has 32 elements, which the sizes of (-1, 5) do not divide");
  check([](Ref x, Ref, Ref) { x.reshape({-1, -1}); }, __LINE__, "reshape: more than one size of (-1, -1) is -1");
  check([](Ref x, Ref, Ref) { x.reshape({-4, -8}); }, __LINE__, "reshape: the size -4 in (-4, -8) is negative");
  check([](Ref x, Ref, Ref) { x.transpose({0, 0}); }, __LINE__,
        "transpose: perm (0, 0) is not a permutation of the dims of (4, 8)");
  check([](Ref x, Ref, Ref) { x.bitcast(ts::boolean); }, __LINE__, "bitcast: bool is not a matter of bits",
        note("cast() converts values"));
  check([](Ref x, Ref, Ref) { x.bitcast(ts::u4); }, __LINE__,
        "bitcast: f32 to u4: 4-bit integers lie one to a byte in memory, whose other bits say nothing",
        note("load the Ref and bitcast() the value"));
  check([](Ref, Ref i, Ref) { i.bitcast(ts::i16); }, __LINE__,
        "bitcast: i32 to i16 changes the width, which joins or parts rows, but the Ref (4,) has 1 dim",
        note("reshape it to 2 dims first"));
  check([](Ref x, Ref, Ref) { x.at(ts::range(0, 3)).bitcast(ts::i64); }, __LINE__,
        "bitcast: dim 0: 3 rows of 32 bits do not make whole rows of 64 bits");
  check([](Ref x, Ref i, Ref) { ts::addupdate(x.bitcast(ts::i16), i[all], 1); }, __LINE__,
        "addupdate: what an index array brings to one element cannot add up through a bitcast of f32 to i16, of "
        "another width",
        note("add into scratch of the Ref's dtype, and bitcast the sum"));
}

TEST_CASE("control flow") {
  const auto check = [](auto kernel, int line, const std::string& text, const std::string& more = {}) {
    CHECK(trace_error(kernel) == "k: " + text + at(line) + more);
  };
  const std::tuple zeros{0, 0.0f};
  check([=](Ref x, Ref,
            Ref) { ts::fori_loop(0, 4, zeros, [&](Value, Value a, Value b) { return std::tuple{a, b + x[0]}; }); },
        __LINE__ - 1, "fori_loop: carry 1 starts as f32[] but the body returns f32[8]", kCarry);
  check([](Ref, Ref, Ref) { ts::fori_loop(0, 4, 0, [&](Value, Value a) { return a * 1.5; }); }, __LINE__,
        "fori_loop: carry 0 starts as i32[] but the body returns f32[]", kCarry);
  check([](Ref, Ref, Ref) { ts::fori_loop(0, 4, 0, [&](Value, Value) { return 1.5; }); }, __LINE__,
        "fori_loop: the number 1.5 is floating but i32 is needed", kFloating);
  check([](Ref x, Ref, Ref) { ts::fori_loop(0, 4, Value(x[0]), [&](Value, Value) { return 1; }); }, __LINE__,
        "fori_loop: carry 0 starts as f32[8] but the body returns a number",
        note("a carry keeps its shape: use full()"));
  check([](Ref x, Ref, Ref) { ts::fori_loop(0, x[{0, 0}], [&](Value) {}); }, __LINE__,
        "fori_loop: the upper bound must be an integer scalar but is f32[]");
  check([](Ref, Ref, Ref) { ts::fori_loop(0, 1ll << 31, [&](Value) {}); }, __LINE__,
        "fori_loop: the number 2147483648 does not fit i32");
  check([](Ref x, Ref, Ref) { ts::while_loop(0, [&](Value) { return x[0] > 0; }, [&](Value i) { return i; }); },
        __LINE__ - 1, "while_loop: what the test returns must be a scalar but has shape (8,)", kWhole);
  check([](Ref x, Ref, Ref) { ts::when(x[all] > 0, [] {}); }, __LINE__,
        "when: the condition must be a scalar but has shape (4, 8)", kWhole);
  check([](Ref x, Ref, Ref) { ts::cond(x[{0, 0}] > 0, [&] { return Value(x[0]); }, [&] { return Value(x[{0, 0}]); }); },
        __LINE__ - 1, "cond: result 0 is f32[8] in branch 0 but f32[] in branch 1",
        note("all branches return the same shapes and dtypes"));
  check([](Ref x, Ref, Ref) { ts::switch_(x[{0, 0}], [] {}, [] {}); }, __LINE__,
        "switch: the index must be an integer scalar but is f32[]");
}

TEST_CASE("a Value used outside its trace") {
  std::optional<Value> kept;
  std::optional<Ref> ref;
  ts::pallas_call(
      [&](Ref x, Ref o) {
        kept = x[all];
        ref = x;
        o[all] = x[all];
      },
      {.out_shape = {{{8, 8}, ts::f32}}, .name = "first"})
      .trace(square);
  int line = __LINE__ + 1;
  expect(message<ts::TraceError>([&] { *kept + 1; }),
         "add: a Value is used after the trace that made it has ended" + at(line) + kEnded);
  line = __LINE__ + 1;
  expect(message<ts::TraceError>([&] { Value v = (*ref)[all]; }),
         "load: no kernel is being traced" + at(line) + kInside);
  line = __LINE__ + 1;
  expect(message<ts::TraceError>([&] { ts::program_id(0); }),
         "program_id: no kernel is being traced" + at(line) + kInside);
  line = __LINE__ + 1;
  expect(trace_error([&](Ref x, Ref, Ref o) { o[all] = x[all] * *kept; }),
         "k: mul: a Value is used after the trace that made it has ended" + at(line) + kEnded);
  line = __LINE__ + 1;
  expect(trace_error([&](Ref, Ref, Ref) { ts::exp(*kept); }),
         "k: exp: a Value is used after the trace that made it has ended" + at(line) + kEnded);
  line = __LINE__ + 1;
  expect(trace_error([&](Ref, Ref, Ref o) { o[all] = (*ref)[all]; }),
         "k: load: a Ref is used after the trace that made it has ended" + at(line) +
             note("a Ref lives only while its kernel is traced; make it inside the kernel that uses it"));
  CHECK(kept->shape() == ts::Shape{8, 8});
}

TEST_CASE("a Value used on another thread") {
  std::string text;
  const int line = __LINE__ + 5;
  ts::pallas_call(
      [&](Ref x, Ref o) {
        Value v = x[all];
        o[all] = v;
        std::thread([&] { text = message<ts::TraceError>([&] { ts::exp(v); }); }).join();
      },
      {.out_shape = {{{8, 8}, ts::f32}}, .name = "first"})
      .trace(square);
  CHECK(text == "exp: a Value of the kernel \"first\" is used on a thread that traces no kernel" + at(line) +
                    note("a kernel is traced by one thread, the one that made the call"));
}

TEST_CASE("a Value used in another kernel's trace, or outside the body that made it") {
  std::string text;
  int line = __LINE__ + 5;
  ts::pallas_call(
      [&](Ref x, Ref o) {
        Value v = x[all];
        o[all] = v;
        text = trace_error([&](Ref, Ref, Ref) { v + 1; });
      },
      {.out_shape = {{{8, 8}, ts::f32}}, .name = "first"})
      .trace(square);
  CHECK(text ==
        "k: add: a Value of the kernel \"first\" is used in the trace of another kernel" + at(line) + kElsewhere);
  const std::string scoped = note("return it from the body to use it outside");
  line = __LINE__ + 4;
  expect(trace_error([](Ref x, Ref, Ref o) {
           std::optional<Value> v;
           ts::when(ts::program_id(0) == 0, [&] { v = x[all]; });
           o[all] = *v;
         }),
         "k: store: a Value is used outside the loop body, branch or index map that made it" + at(line) + scoped);
  line = __LINE__ + 4;
  expect(trace_error([](Ref, Ref, Ref) {
           std::optional<Value> v;
           ts::fori_loop(0, 4, [&](Value i) { v = i; });
           ts::cast(*v, ts::f32);
         }),
         "k: cast: a Value is used outside the loop body, branch or index map that made it" + at(line) + scoped);
  std::optional<Value> leaked;
  line = __LINE__ + 2;
  expect(trace_error([&](Ref, Ref, Ref) {
           ts::cond(
               true,
               [&] {
                 leaked = ts::ones({2});
                 return *leaked;
               },
               [&] { return *leaked; });
         }),
         "k: cond: a Value is used outside the loop body, branch or index map that made it" + at(line) + scoped);
}

TEST_CASE("an error leaves no trace behind") {
  const auto fails = [](Ref o) { ts::when(true, [&] { o[9] = 0; }); };
  CHECK(message<ts::TraceError>([&] { ts::pallas_call(fails, {.out_shape = {{{8}, ts::f32}}}).trace(); }) !=
        "no error");
  CHECK(message<ts::TraceError>([] { ts::program_id(0); }).starts_with("program_id: no kernel is being traced"));
  // Inside a kernel the user may catch an error and go on.
  auto call = ts::pallas_call(
      [](Ref o) {
        try {
          ts::when(true, [&] { o[9] = 0; });
        } catch (const ts::TraceError&) {
        }
        o[all] = 1;
      },
      {.out_shape = {{{1}, ts::f32}}});
  CHECK(ts::interpret(call)[0].at(0) == 1);
}

}  // namespace errors_test
