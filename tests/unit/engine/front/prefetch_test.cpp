// Scalar prefetch: operands that index maps and the kernel load from. The grid mapping, the text form, results, vmap,
// and exact errors.
#include <doctest/doctest.h>

#include <sstream>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace prefetch_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Ref, ts::Value;

namespace {
using Ints = std::vector<int32_t>;
ts::Array ints(ts::Shape shape, Ints v) { return {std::move(shape), std::move(v)}; }
Ints values(const ts::Array& a) {
  const auto s = a.data<int32_t>();
  return {s.begin(), s.end()};
}

/// o[i] = x[rows[i]] * scale + i, over blocks of one row.
ts::PallasCall gather() {
  return ts::pallas_call(
      [](Ref, Ref scale, Ref x, Ref o) {
        // in order: C++ leaves that of operands open
        const Value row = x[all], by = scale[0], scaled = row * by;
        o[all] = scaled + ts::program_id(0);
      },
      {.out_shape = {{{5, 3}, ts::i32}},
       .grid_spec =
           ts::PrefetchScalarGridSpec{
               .num_scalar_prefetch = 2,
               .grid = {5},
               .in_specs = {{{ts::squeezed, 3}, [](Value i, Ref rows, Ref) { return ts::Indices{rows[i], 0}; }}},
               .out_specs = {{{ts::squeezed, 3}, [](Value i) { return ts::Indices{i, 0}; }}}},
       .name = "gather"});
}
const std::vector<ts::ShapeDtype> gather_types{{{5}, ts::i32}, {{1}, ts::i32}, {{4, 3}, ts::i32}};
const ts::Array rows = ints({5}, {2, 0, 3, 2, 9}), scale = ints({1}, {10}),
                x = ints({4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}  // namespace

TEST_CASE("prefetch: index maps load from it, the kernel gets it first, an index beyond the last block is clamped") {
  CHECK(values(ts::interpret(gather(), rows, scale, x)) ==
        Ints{60, 70, 80, 1, 11, 21, 92, 102, 112, 63, 73, 83, 94, 104, 114});
}

TEST_CASE("prefetch: the grid mapping") {
  const ts::GridMapping m = gather().grid_mapping(gather_types);
  CHECK(m.num_index_operands == 2);
  CHECK(m.num_inputs == 1);
  CHECK(m.num_outputs == 1);
  CHECK(m.index_operands.size() == 2);
  CHECK(m.block_mappings.size() == 2);
  CHECK(m.index_map_avals == std::vector<ts::ir::Type>{ts::ir::Type::array(ts::i32),
                                                       ts::ir::Type::ref(ts::i32, {5}, ts::MemorySpace::smem),
                                                       ts::ir::Type::ref(ts::i32, {1}, ts::MemorySpace::smem)});
  CHECK(m.slice_index_ops() == ts::Slice{0, 2});
  CHECK(m.slice_block_ops() == ts::Slice{2, 4});
  CHECK(m.slice_scratch_ops() == ts::Slice{4, 4});
  CHECK(m.in_shapes().size() == 3);
  CHECK(m.in_shapes()[2].shape == std::vector<ts::Extent>{4, 3});
  std::ostringstream out;
  out << m;
  CHECK(out.str() ==
        "grid (5,)\n"
        "scalar_prefetch[0]: i32(5,) whole, in smem\n"
        "scalar_prefetch[1]: i32(1,) whole, in smem\n"
        "in_specs[0]: i32(4, 3) in blocks (squeezed, 3), in vmem, index map (i0, s0, s1) -> (s0[i0], 0)\n"
        "out_specs[0]: i32(5, 3) in blocks (squeezed, 3), in vmem, index map (i0, s0, s1) -> (i0, 0)\n");
  const ts::ir::Kernel k = m.to_kernel("gather", {});
  CHECK(k.num_prefetch == 2);
  CHECK(k.num_inputs == 3);
  std::ostringstream again;
  again << ts::grid_mapping(k);
  CHECK(again.str() == out.str());
  const std::string broken = message([&] { m.replace([](ts::GridMapping& g) { g.num_index_operands = 1; }); });
  CHECK(
      broken.starts_with("gather: the GridMapping breaks its invariants:\n"
                         "  there are 2 index operands but num_index_operands is 1\n"));
  const std::string fewer = message([&] { m.replace([](ts::GridMapping& g) { g.index_map_avals.pop_back(); }); });
  CHECK(
      fewer.find("\n  index_map_avals is not i32[] for each of 1 grid axes and a Ref for each of 2 index operands\n") !=
      std::string::npos);
}

TEST_CASE("prefetch: the text form") {
  const ts::ir::Kernel& k = gather().trace(gather_types);
  const std::string text = ts::ir::print(k);
  CHECK(text ==
        "tir 1\nkernel @gather\ngrid (5)\nprefetch i32[5] whole\nprefetch i32[1] whole\n"
        "in i32[4, 3] block (squeezed, 3) map (%0, %1: ref<smem, i32[5]>, %2: ref<smem, i32[1]>) {\n"
        "  %3 = load %1[%0] : i32[]\n  %4 = constant 0 : i32[]\n  yield %3, %4\n}\n"
        "out i32[5, 3] block (squeezed, 3) map (%5, %6: ref<smem, i32[5]>, %7: ref<smem, i32[1]>) {\n"
        "  %8 = constant 0 : i32[]\n  yield %5, %8\n}\n"
        "body (%9: ref<smem, i32[5]>, %10: ref<smem, i32[1]>, %11: ref<vmem, i32[3]>, %12: ref<vmem, i32[3]>) {\n"
        "  %13 = load %11[0:3] : i32[3]\n  %14 = load %10[0] : i32[]\n  %15 = broadcast %14 dims [] : i32[3]\n  %16 = "
        "mul %13, %15 : i32[3]\n"
        "  %17 = program_id axis 0 : i32[]\n  %18 = broadcast %17 dims [] : i32[3]\n  %19 = add %16, %18 : i32[3]\n"
        "  store %12[0:3], %19\n}\n");
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  // Types may be left out where the kernel gives them; an origin of its own is kept.
  const std::string brief =
      "tir 1\nkernel @k\ngrid (5)\nprefetch \"rows\" i32[5] whole\nout i32[5] block (1) map (%i, %s) {\n  %r = load "
      "%s[%i]\n  yield %r\n}\nbody (%s, %o) {}\n";
  const ts::ir::Kernel again = ts::ir::parse(brief);
  CHECK(ts::ir::find_problems(again).empty());
  CHECK(again.blocks[0].origin == "rows");
  CHECK(again.blocks[0].space == ts::MemorySpace::smem);
  CHECK(message([] {
          ts::ir::parse("tir 1\nkernel @k\nin i32[5] whole\nprefetch i32[5] whole\nbody (%x, %s) {}\n", "f");
        }) == "f:4:1: scalar-prefetch operands come before inputs\n  prefetch i32[5] whole\n  ^");
}

TEST_CASE("prefetch: outputs that come back to a block find what they left") {
  // Sums of x's blocks by group: a group's first block starts it, in any order.
  auto call = ts::pallas_call(
      [](Ref, Ref first, Ref v, Ref o) {
        const Value i = ts::program_id(0);
        ts::when(first[i] != 0, [&] { o[all] = ts::zeros({2}, ts::i32); });
        o[all] += v[all];
      },
      {.out_shape = {{{6}, ts::i32}},
       .grid_spec = ts::GridSpec{.num_scalar_prefetch = 2,
                                 .grid = {5},
                                 .in_specs = {{{2}, [](Value i) { return i; }}},
                                 .out_specs = {{{2}, [](Value i, Ref group, Ref) -> Value { return group[i]; }}}}});
  const ts::Array sums = ts::interpret(call, ints({5}, {1, 0, 1, 2, 0}), ints({5}, {1, 1, 0, 1, 0}),
                                       ints({10}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  CHECK(values(sums) == Ints{12, 14, 6, 8, 7, 8});
}

TEST_CASE("prefetch: vmap batches it like any argument") {
  const auto call = gather();
  const ts::Array both = ints({2, 5}, {2, 0, 3, 2, 9, 0, 1, 1, -3, 2}), scales = ints({1, 2}, {10, 1});
  const ts::Array z = ts::interpret(ts::vmap(call, {0, 1, std::nullopt}), both, scales, x);
  const Ints first = values(ts::interpret(call, rows, scale, x)),
             second = values(ts::interpret(call, ints({5}, {0, 1, 1, -3, 2}), ints({1}, {1}), x));
  Ints wanted = first;
  wanted.insert(wanted.end(), second.begin(), second.end());
  CHECK(z.shape() == ts::Shape{2, 5, 3});
  CHECK(values(z) == wanted);
  std::ostringstream out;
  out << ts::vmap(call, {0, std::nullopt, std::nullopt})
             .grid_mapping({{{2, 5}, ts::i32}, {{1}, ts::i32}, {{4, 3}, ts::i32}});
  CHECK(out.str() ==
        "grid (2 parallel vmapped, 5)\n"
        "scalar_prefetch[0]: i32(2, 5) in blocks (squeezed, 5), in smem, index map (i0, i1) -> (i0, 0)\n"
        "scalar_prefetch[1]: i32(1,) whole, in smem\n"
        "in_specs[0]: i32(4, 3) in blocks (squeezed, 3), in vmem, index map (i0, i1, s0, s1) -> (s0[i1], 0)\n"
        "out_specs[0]: i32(2, 5, 3) in blocks (squeezed, squeezed, 3), in vmem, index map (i0, i1, s0, s1) -> (i0, i1, "
        "0)\n");
  // A whole array that gets a batch sees the prefetch Refs in its new index map too.
  auto whole = ts::pallas_call([](Ref s, Ref y, Ref o) { o[all] = y[all] + s[0]; },
                               {.out_shape = {{{3}, ts::i32}}, .grid_spec = ts::GridSpec{.num_scalar_prefetch = 1}});
  CHECK(values(ts::interpret(ts::vmap(whole, {std::nullopt, 0}), ints({1}, {5}), ints({2, 3}, {1, 2, 3, 4, 5, 6}))) ==
        Ints{6, 7, 8, 9, 10, 11});
}

TEST_CASE("prefetch: errors of the front end") {
  int line = 0;
  const auto with = [&](auto map, ts::GridSpec spec = {.num_scalar_prefetch = 1, .grid = {2}}) {
    spec.in_specs = ts::BlockSpec{{2}, map, ts::MemorySpace::vmem, std::nullopt, ts::Loc::here(__FILE__, line)};
    return message([&] {
      ts::pallas_call([](Ref, Ref v, Ref o) { o[all] = v[all]; },
                      {.out_shape = {{{2}, ts::i32}}, .grid_spec = spec, .name = "k"}, ts::Loc::here(__FILE__, line))
          .trace({{{3}, ts::i32}, {{4}, ts::i32}});
    });
  };
  line = __LINE__ + 1;
  expect(with([](Value, Ref, Ref) { return 0; }),
         "k: in_specs[0]: the index map takes 2 Refs but num_scalar_prefetch is 1" + at(line) +
             note("after its program ids an index map takes one Ref per scalar-prefetch operand, or none"));
  line = __LINE__ + 1;
  expect(with([](Value, Ref s) { return ts::sum(s[all]); }),
         "k: in_specs[0]: index map: load: reads i32[3], but an index map reads single elements" + at(line) +
             note("index every dim with an integer"));
  line = __LINE__ + 2;
  expect(with([](Value i, Ref s) {
           s[i] = 0;
           return i;
         }),
         "k: in_specs[0]: index map: store: a scalar-prefetch operand is only read" + at(line) +
             note("keep what changes in scratch: SMEM({n}, ts::i32)"));
  line = __LINE__ + 1;
  expect(with([](Value, Ref s) { return s[3]; }),
         "k: in_specs[0]: index map: load: dim 0: index 3 is out of range for 3 elements" + at(line));
  line = __LINE__ + 1;
  expect(with([](Value i) { return i; }, {.num_scalar_prefetch = -1}),
         "k: grid_spec: num_scalar_prefetch is -1" + at(line));

  line = __LINE__ + 2;
  const auto plain = [](auto kernel, int prefetch) {
    return ts::pallas_call(
        kernel,
        {.out_shape = {{{2}, ts::i32}}, .grid_spec = ts::GridSpec{.num_scalar_prefetch = prefetch}, .name = "k"});
  };
  const auto one = [](Ref, Ref o) { o[all] = 1; };
  expect(message([&] { plain(one, 1).trace(std::vector<ts::ShapeDtype>{}); }),
         "k: called with 0 arguments but num_scalar_prefetch is 1" + at(line));
  expect(message([&] { plain(one, 1).trace({{{3}, ts::i32}, {{3}, ts::i32}}); }),
         "k: the kernel takes 2 Refs but there are 1 scalar-prefetch operand, 1 input, 1 output and 0 scratch shapes" +
             at(line) +
             note("a kernel takes one Ref per scalar-prefetch operand, then per input, then per output, then per "
                  "scratch shape"));
  expect(message([&] { plain(one, 1).trace({{{ts::dim("n")}, ts::i32}}); }),
         "k: scalar_prefetch[0]: a scalar-prefetch operand needs static extents, but the array is (n,)" + at(line));
  const int store = __LINE__ + 2;
  const auto writes = [](Ref s, Ref o) {
    s[0] += 1;
    o[all] = s[0];
  };
  expect(message([&] { plain(writes, 1).trace({{{3}, ts::i32}}); }),
         "k: store: a scalar-prefetch operand is only read" + at(store) +
             note("keep what changes in scratch: SMEM({n}, ts::i32)"));
  line = __LINE__ + 3;
  const auto through_a_view = [](Ref s, Ref o) {
    o[all] = s.at(ts::range(1, 3))[0];
    ts::swap(s.reshape({3, 1}).at(0), 0, 1);
  };
  expect(message([&] { plain(through_a_view, 1).trace({{{3}, ts::i32}}); }),
         "k: swap: a scalar-prefetch operand is only read" + at(line) +
             note("keep what changes in scratch: SMEM({n}, ts::i32)"));
  line = __LINE__ + 1;
  auto specs = ts::pallas_call([](Ref, Ref, Ref o) { o[all] = 1; },
                               {.out_shape = {{{2}, ts::i32}},
                                .grid_spec = ts::GridSpec{.num_scalar_prefetch = 1, .in_specs = ts::no_block_spec},
                                .name = "k"});
  expect(message([&] {
           ts::pallas_call([](Ref, Ref, Ref o) { o[all] = 1; },
                           {.out_shape = {{{2}, ts::i32}},
                            .grid_spec = ts::GridSpec{.num_scalar_prefetch = 1, .in_specs = {ts::BlockSpec{}}},
                            .name = "k"},
                           ts::Loc::here(__FILE__, line))
               .trace({{{3}, ts::i32}});
         }),
         "k: called with 1 argument but in_specs has 1 BlockSpec and num_scalar_prefetch is 1" + at(line));
  expect(message([&] {
           ts::pallas_call([](Ref, Ref, Ref o) { o[all] = 1; },
                           {.out_shape = {{{2}, ts::i32}},
                            .grid_spec = ts::GridSpec{.num_scalar_prefetch = 1, .in_specs = {ts::BlockSpec{}}},
                            .name = "k",
                            .in_shape = {{{3}, ts::i32}}},
                           ts::Loc::here(__FILE__, line));
         }),
         "k: in_specs has 1 BlockSpec and num_scalar_prefetch is 1 but in_shape has 1 input" + at(line));
}

TEST_CASE("prefetch: problems that the verifier finds") {
  const auto problems = [](const std::string& clauses) {
    std::string s;
    for (const ts::ir::Problem& p : ts::ir::find_problems(ts::ir::parse("tir 1\nkernel @k\ngrid (2)\n" + clauses, "f")))
      s += p.entity + ": " + p.message + "\n";
    return s;
  };
  const std::string out = "out i32[2] block (1) map (%i, %s) ", body = "body (%s, %o) {}\n";
  CHECK(problems("prefetch i32[3] whole\n" + out + "{ yield %i }\n" + body) == "");
  CHECK(problems("prefetch i32[3] whole\nout i32[2] block (1) map (%i) { yield %i }\n" + body) ==
        "out_specs[0]: index map: takes 1 argument but the grid has 1 axis and there is 1 scalar-prefetch operand\n");
  CHECK(problems("prefetch i32[3] whole\nout i32[2] block (1) map (%i, %s: ref<smem, i32[4]>) { yield %i }\n" + body) ==
        "out_specs[0]: index map: %1 is ref<smem, i32[4]> instead of ref<smem, i32[3]>\n");
  CHECK(problems("prefetch i32[3] whole\n" + out +
                 "{\n  %v = load %s[0:1]\n  %r = reshape %v : i32[]\n  yield %r\n}\n" + body) ==
        "out_specs[0]: index map: %2 = load is i32[1]: an index map computes on scalars\n"
        "out_specs[0]: index map: %3 = reshape: an index map may only have elementwise ops, constants, num_programs "
        "and loads of single elements\n");
  CHECK(problems("prefetch i32[3] whole\n" + out + "{\n  store %s[0], %i\n  yield %i\n}\n" + body) ==
        "out_specs[0]: index map: store %1: an index map may only have elementwise ops, constants, num_programs and "
        "loads of single elements\n");
  CHECK(problems("prefetch i32[3] whole\n" + out +
                 "{ yield %i }\nbody (%s, %o) {\n  %c = constant 1 : i32[]\n  store %s[0], %c\n}\n") ==
        "store %2: stores to scalar_prefetch[0]: a scalar-prefetch operand is only read\n");
  // Loads of any dtype, and what computes on them.
  CHECK(problems("prefetch f32[3] whole\n" + out + "{\n  %f = load %s[%i]\n  %r = convert %f : i32[]\n  yield %r\n}\n" +
                 body) == "");
  ts::ir::Kernel k = ts::ir::parse("tir 1\nkernel @k\nprefetch i32[3] whole\nbody (%s) {}\n", "f");
  k.num_prefetch = 2;
  CHECK(ts::ir::find_problems(k)[0].message == "has 2 scalar-prefetch operands but 1 inputs");
  k.num_prefetch = 1;
  k.blocks[0].space = ts::MemorySpace::any;
  CHECK(ts::ir::find_problems(k)[0].message == "is in any but scalar-prefetch operands are in smem");
}

}  // namespace prefetch_test
