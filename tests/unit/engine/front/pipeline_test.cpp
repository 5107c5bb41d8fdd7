// emit_pipeline: kernels of tests/data/make_pipe_answers.py against JAX's answers, without races under any order of
// copies; carries, scratch, Refs in place, blocks that are not copied twice; exact errors.
#include <doctest/doctest.h>

#include "engine/base/npy.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "tests/support/messages.h"

namespace pipeline_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
ts::Array read(const std::string& name, ts::DType t = ts::f32) {
  return ts::read_npy("tests/data/pipelines/" + name + ".npy", t);
}
/// Without a seed, and with several, looking for races.
void agrees(const ts::PallasCall& call, const std::string& name, const std::vector<ts::Array>& inputs) {
  INFO(name);
  const ts::Array wanted = read(name + ".out0");
  for (uint64_t seed = 0; seed < 5; ++seed) {
    ts::InterpretOptions o{.races = true};
    if (seed) o.seed = seed;
    const ts::Array got = ts::interpret(call, inputs, o);
    REQUIRE(got.shape() == wanted.shape());
    for (int64_t i = 0; i < got.size(); ++i)
      if (got.element_bits(i) != wanted.element_bits(i)) FAIL("element ", i, " differs with seed ", seed);
  }
}
ts::BlockSpec block(ts::BlockShape shape, ts::IndexMap map) { return {std::move(shape), std::move(map)}; }
const ts::ShapeDtypes eight{{{8}, ts::f32}};
size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t i = text.find(what); i != std::string::npos; i = text.find(what, i + 1)) ++n;
  return n;
}
}  // namespace

TEST_CASE("pipeline: overhang") {
  const ts::BlockSpec rows = block({16, 128}, [](Value i) { return ts::Indices{i, 0}; });
  const auto call = ts::pallas_call(
      [=](Ref x, Ref y, Ref o) {
        ts::emit_pipeline(
            [](Ref a, Ref b, Ref c) {
              c[all] = a[all] + b[all] * ts::cast(ts::program_id(0), ts::f32) + ts::cast(ts::num_programs(0), ts::f32);
            },
            {.grid = {3}, .in_specs = {rows, rows}, .out_specs = {rows}})(x, y, o);
      },
      {.out_shape = {{{40, 128}, ts::f32}}, .name = "add"});
  agrees(call, "add", {read("add.in0"), read("add.in1")});
}

TEST_CASE("pipeline: an output accumulates while the steps stay on it") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref y, Ref o) {
        ts::emit_pipeline(
            [](Ref a, Ref b, Ref c) {
              ts::when(ts::program_id(2) == 0, [&] { c[all] = ts::zeros({8, 128}, ts::f32); });
              c[all] += ts::dot(a[all], b[all]);
            },
            {.grid = {2, 2, 3},
             .in_specs = {block({8, 128}, [](Value i, Value, Value k) { return ts::Indices{i, k}; }),
                          block({128, 128}, [](Value, Value j, Value k) { return ts::Indices{k, j}; })},
             .out_specs = {block({8, 128}, [](Value i, Value j, Value) { return ts::Indices{i, j}; })}})(x, y, o);
      },
      {.out_shape = {{{16, 256}, ts::f32}}, .name = "matmul"});
  agrees(call, "matmul", {read("matmul.in0"), read("matmul.in1")});
}

TEST_CASE("pipeline: blocks that stay, one that never changes, three buffers, inside of a grid") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref y, Ref o) {
        const Value outer = ts::program_id(0);
        ts::BlockSpec stays = block({8, 128}, [=](Value i) { return ts::Indices{i / 2, outer}; });
        stays.pipeline_mode = ts::Buffered{3};
        ts::emit_pipeline(
            [&](Ref a, Ref b, Ref c) { c[all] = a[all] * b[all] + ts::cast(ts::program_id(0) + outer * 10, ts::f32); },
            {.grid = {6},
             .in_specs = {stays, block({8, 128}, [](Value) { return ts::Indices{0, 0}; })},
             .out_specs = {block({8, 128}, [=](Value i) { return ts::Indices{i, outer}; })}})(x, y, o);
      },
      {.out_shape = {{{48, 256}, ts::f32}}, .grid = {2}, .name = "stay"});
  agrees(call, "stay", {read("stay.in0"), read("stay.in1")});
}

TEST_CASE("pipeline: as many steps as the data says, also none") {
  const ts::BlockSpec rows = block({8, 128}, [](Value i) { return ts::Indices{i, 0}; });
  const auto call = ts::pallas_call(
      [=](Ref n, Ref x, Ref o) {
        o[all] = ts::full({32, 128}, -1, ts::f32);
        ts::emit_pipeline([](Ref a, Ref c) { c[all] = a[all] * 2; },
                          {.grid = {Value(n[0])}, .in_specs = {rows}, .out_specs = {rows}})(x, o);
      },
      {.out_shape = {{{32, 128}, ts::f32}}, .name = "some"});
  for (int n = 0; n < 4; ++n)
    agrees(call, "some" + std::to_string(n),
           {read("some" + std::to_string(n) + ".in0", ts::i32), read("some" + std::to_string(n) + ".in1")});
}

TEST_CASE("pipeline: carries, scratch, Refs that are used in place, no pipelining, element offsets") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref o, Ref here) {
        here[all] = x[all];
        const ts::BlockSpec twos = block({2}, [](Value i) { return i; });
        for (const bool sync : {false, true}) {
          const std::vector<Value> sum = ts::emit_pipeline(
              [&](Ref a, Ref b, Ref scratch, Value total) {
                ts::when(ts::program_id(0) == 0, [&] { scratch[0] = 0.0f; });
                scratch[0] += 1;
                b[all] = a[all] + scratch[0];
                return total + ts::sum(a[all]);
              },
              {.grid = {4},
               .in_specs = {twos},
               .out_specs = {twos},
               .scratch_shapes = {ts::SMEM({1}, ts::f32)},
               .init_carry = {0.0f},
               .no_pipelining = sync})(here, o);
          o[all] += sum[0] * 100;
        }
        ts::emit_pipeline([&](Ref a, Ref b) { b[{ds(0, 2)}] = b[{ds(0, 2)}] + a[all]; },
                          {.grid = {7},
                           .in_specs = {block({ts::Element{2}}, [](Value i) { return i; })},
                           .out_specs = {block({8}, {})}})(x, here);
        o[{ds(0, 2)}] = here[{ds(0, 2)}];
      },
      {.out_shape = eight, .scratch_shapes = {ts::VMEM({8}, ts::f32)}, .name = "k"});
  const ts::Array x({8}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  const ts::Array got = ts::interpret(call, {.races = true}, x);
  const auto v = got.data<float>();
  CHECK(std::vector<float>(v.begin() + 2, v.end()) == std::vector<float>{2804, 2805, 2807, 2808, 2810, 2811});
  CHECK(v[0] == 21);
  CHECK(v[1] == 29);
}

// The same grid, specs and body as a pallas_call and as a pipeline inside of one: what the interpreter makes of them is
// the same.
TEST_CASE("pipeline: blocks of every kind mean what they mean in a pallas_call") {
  const auto table = [](Value i, std::vector<int64_t> v) {
    Value r = i * 0 + v[0];
    for (size_t n = 1; n < v.size(); ++n) r = ts::where(i == static_cast<int64_t>(n), ts::zeros({}, ts::i32) + v[n], r);
    return r;
  };
  const auto ragged = [&](Value i) {
    return ts::Indices{ds(table(i, {0, 3, 5, 5, -2, 9}), table(i, {3, 2, 5, 0, 9, 4})), 0};
  };
  const ts::BlockSpec bounded = block({ts::BoundedSlice{5}, 3}, ragged);
  const ts::BlockSpec padded =
      block({ts::Element{4, {1, 2}}, ts::squeezed}, [](Value i) { return ts::Indices{i * 2, 1}; });
  const ts::BlockSpec three = block({ts::Element{3}, 3}, [](Value i) { return ts::Indices{i * 3, 0}; });
  const auto inner = [&](Ref a, Ref e, Ref b, Ref t) {
    const Value i = ts::program_id(0);
    b[all] = a[all] * 2 + ts::cast(i, ts::f32);
    const Value at = i * 2 - 1 + ts::iota(ts::i32, {4}, 0);
    t[all] = ts::zeros({3, 3}, ts::f32) + ts::sum(ts::where((at >= 0) & (at < 10), e[all], 0.0f));
  };
  const ts::ShapeDtypes out{{{10, 3}, ts::f32}, {{10, 3}, ts::f32}};
  const auto plain = ts::pallas_call(inner, {.out_shape = out,
                                             .grid = {6},
                                             .in_specs = {bounded, padded},
                                             .out_specs = {bounded, three},
                                             .input_output_aliases = {{0, 0}},
                                             .name = "plain"});
  ts::Array x({10, 3}, std::vector<float>(30)), y({10, 2}, std::vector<float>(20));
  for (int64_t i = 0; i < 30; ++i) x.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  for (int64_t i = 0; i < 20; ++i) y.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i * i);
  const ts::Arrays wanted = ts::interpret(plain, std::vector{x, y});
  for (const int64_t buffers : {1, 2, 3}) {
    ts::BlockSpec in_rows = bounded, in_padded = padded;
    in_rows.pipeline_mode = in_padded.pipeline_mode = ts::Buffered{buffers};
    const auto call = ts::pallas_call(
        [=](Ref a, Ref e, Ref b, Ref t) {
          ts::emit_pipeline(inner, {.grid = {6}, .in_specs = {in_rows, in_padded}, .out_specs = {bounded, three}})(
              a, e, b, t);
        },
        {.out_shape = out, .input_output_aliases = {{0, 0}}, .name = "piped"});
    for (uint64_t seed = 0; seed < 4; ++seed) {
      ts::InterpretOptions o{.uninitialised = ts::Uninitialised::pattern, .races = true};
      if (seed) o.seed = seed;
      const ts::Arrays got = ts::interpret(call, std::vector{x, y}, o);
      for (size_t n = 0; n < 2; ++n)
        for (int64_t i = 0; i < 30; ++i)
          CHECK_MESSAGE(got[n].element_bits(i) == wanted[n].element_bits(i), "output ", n, " element ", i, " with ",
                        buffers, " buffers and seed ", seed);
    }
  }
}

TEST_CASE("pipeline: what stays is not copied again") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref o) {
        ts::emit_pipeline(
            [](Ref a, Ref b) { b[all] = a[all]; },
            {.grid = {4}, .in_specs = {block({8}, {})}, .out_specs = {block({8}, [](Value) { return 0; })}})(x, o);
      },
      {.out_shape = eight, .name = "k"});
  const std::string text = ts::ir::print(call.trace({{{8}, ts::f32}}));
  CHECK(count(text, "copy_start") == 2);
  CHECK(count(text, "copy_wait") == 2);
}

TEST_CASE("pipeline: exact errors") {
  int line = 0;
  const auto error = [](auto f) {
    return message([&] {
      ts::pallas_call([&](Ref x, Ref o) { f(x, o); }, {.out_shape = eight, .name = "k"}).trace({{{8}, ts::f32}});
    });
  };
  const ts::BlockSpec two{{2}, [](Value i) { return i; }, ts::MemorySpace::vmem, std::nullopt, {}};
  const auto body = [](Ref a, Ref b) { b[all] = a[all]; };
  line = __LINE__ + 2;
  expect(
      error([&](Ref x, Ref o) { ts::emit_pipeline(body, {.grid = {0}, .in_specs = {two}, .out_specs = {two}})(x, o); }),
      "k: emit_pipeline: grid: size 0 of axis 0 is not positive" + at(line));
  line = __LINE__ + 1;
  expect(error([&](Ref x, Ref) { ts::emit_pipeline(body, {.grid = {4}, .in_specs = {two}, .out_specs = {two}})(x); }),
         "k: emit_pipeline: called with 1 Ref but in_specs has 1 BlockSpec and out_specs has 1" + at(line));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline([](Ref) {}, {.grid = {4}, .in_specs = {two}, .out_specs = {two}})(x, o);
         }),
         "k: emit_pipeline: the body takes 1 Ref but there are 1 input, 1 output and 0 scratch shapes" + at(line));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(body, {.grid = {4}, .in_specs = {two}, .out_specs = {two}, .init_carry = {1}})(x, o);
         }),
         "k: emit_pipeline: the body takes 0 Values but init_carry has 1" + at(line));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(body, {.grid = {2, 2}, .in_specs = {two}, .out_specs = {two}})(x, o);
         }),
         "k: emit_pipeline: in_specs[0]: the index map takes 1 argument but the grid has 2 axes" + at(line) +
             note("an index map takes one Value per grid axis"));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(body, {.grid = {4},
                                    .in_specs = {ts::BlockSpec{{2, 2}, {}, ts::MemorySpace::vmem, std::nullopt, {}}},
                                    .out_specs = {two}})(x, o);
         }),
         "k: emit_pipeline: in_specs[0]: block shape (2, 2) has 2 dims but the Ref (8,) has 1" + at(line) +
             note("give one block size per dim of the Ref, or ts::squeezed for a dim that the body should not see"));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(body, {.grid = {4},
                                    .in_specs = {two},
                                    .out_specs = {ts::BlockSpec{
                                        {2}, [](Value i) { return i; }, ts::MemorySpace::vmem, ts::Buffered{3}, {}}}})(
               x, o);
         }),
         "k: emit_pipeline: out_specs[0]: pipeline_mode: Buffered(3) of an output, which has at most 2" + at(line));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(
               body, {.grid = {4}, .in_specs = {two}, .out_specs = {two}, .dimension_semantics = {"core"}})(x, o);
         }),
         "k: emit_pipeline: dimension_semantics \"core\" is unknown" + at(line) +
             note("\"parallel\" and \"arbitrary\" are known"));
  const auto in = [&](ts::BlockShape shape, ts::IndexMap map) {
    return error([&](Ref x, Ref o) {
      ts::emit_pipeline(
          body, {.grid = {4},
                 .in_specs = {ts::BlockSpec{shape, map, ts::MemorySpace::vmem, std::nullopt, ts::Loc{"k.cpp", 1}}},
                 .out_specs = {two}})(x, o);
    });
  };
  const std::string there = "\n  at k.cpp:1";
  expect(in({ts::BoundedSlice{2}}, [](Value i) { return i; }),
         "k: emit_pipeline: in_specs[0]: the index map's result 0 is one index, but dim 0 of the block shape "
         "(BoundedSlice(2),) is a BoundedSlice" +
             there + note("return ts::ds(start, size) there"));
  expect(in({2}, [](Value i) { return ts::Indices{ds(i, 2)}; }),
         "k: emit_pipeline: in_specs[0]: the index map's result 0 is a slice, but dim 0 of the block shape (2,) is "
         "none that is sliced" +
             there + note("a slice is for a BoundedSlice dim"));
  expect(in({ts::BoundedSlice{2}}, {}),
         "k: emit_pipeline: in_specs[0]: dim 0 of the block shape (BoundedSlice(2),) is a BoundedSlice, but there is "
         "no index map" +
             there + note("its index map returns ts::ds(start, size) there"));
  expect(in({ts::BoundedSlice{0}}, [](Value i) { return ts::Indices{ds(i, 2)}; }),
         "k: emit_pipeline: in_specs[0]: block size 0 of dim 0 is not positive" + there);
  expect(in({ts::Element{2, {-1, 0}}}, [](Value i) { return i; }),
         "k: emit_pipeline: in_specs[0]: padding (-1, 0) of dim 0 is negative" + there +
             note("padding counts the elements before and behind the array"));
  expect(in({ts::Halo(2, 1, ts::Edge::clamp)}, [](Value i) { return i; }),
         "k: emit_pipeline: in_specs[0]: dim 0 of the block shape (Halo(2, 1, Edge::clamp),) has a halo, which a "
         "pipeline inside a kernel does not copy" +
             there + note("give the Halo to the call's in_specs, or use Element and masks"));
  line = __LINE__ + 2;
  expect(error([&](Ref x, Ref o) {
           ts::emit_pipeline(body, {.grid = {4}, .in_specs = {two}, .out_specs = {two}, .core_axis = {{0}}})(x, o);
         }),
         "k: emit_pipeline: core_axis: a pipeline runs in one program, and its axes are not dealt to cores" + at(line) +
             note("make it an axis of pallas_call's grid, declared \"parallel\""));
}

}  // namespace pipeline_test
