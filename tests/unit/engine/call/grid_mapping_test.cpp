// GridMapping: members, derived properties, calling convention, invariants and printing.
#include "engine/call/grid_mapping.h"

#include <doctest/doctest.h>

#include <sstream>

#include "engine/front.h"
#include "engine/ir/text.h"

namespace grid_mapping_test {

namespace ts = tessera;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::PallasCall matmul() {
  return ts::pallas_call(
      [](Ref a, Ref b, Ref o, Ref acc) {
        ts::when(ts::program_id(2) == 0, [&] { acc[all] = ts::zeros({2, 3}); });
        acc[all] += ts::dot(a[all], b[all]);
        o[all] = acc[all];
      },
      {.out_shape = {{{4, 6}, ts::f32}},
       .grid = {{"i", 2}, {"j", 2}, {"k", 4}},
       .in_specs = {{{2, 2}, [](Value i, Value, Value p) { return ts::Indices{i, p}; }},
                    {{2, 3}, [](Value, Value j, Value p) { return ts::Indices{p + 0, j}; }}},
       .out_specs = {{{2, 3}, [](Value i, Value j, Value) { return ts::Indices{i, j}; }}},
       .scratch_shapes = {ts::VMEM({2, 3}, ts::f32)},
       .name = "matmul",
       .compiler_params = ts::CompilerParams{{"parallel", "parallel", "arbitrary"}}});
}
const std::vector<ts::ShapeDtype> inputs{{{4, 8}, ts::f32}, {{8, 6}, ts::f32}};
std::string text(const ts::GridMapping& m) {
  std::ostringstream out;
  out << m;
  return out.str();
}
std::string broken(const ts::GridMapping& m, void (*change)(ts::GridMapping&)) {
  try {
    m.replace(change);
  } catch (const ts::InternalError& e) {
    const std::string s = e.what(), head = "matmul: the GridMapping breaks its invariants:\n  ";
    REQUIRE(s.starts_with(head));
    return s.substr(head.size(), s.find("\n  at ") - head.size());
  }
  return "nothing";
}
}  // namespace

TEST_CASE("members and derived properties") {
  const ts::GridMapping m = matmul().grid_mapping(inputs);
  CHECK(m.grid == std::vector<ts::Extent>{2, 2, 4});
  CHECK(m.grid_names == std::vector<std::string>{"i", "j", "k"});
  CHECK(m.grid_parallel == std::vector<bool>{true, true, false});
  CHECK(m.block_mappings.size() == 3);
  CHECK(m.block_mappings_output().size() == 1);
  CHECK(m.block_mappings_output()[0].origin == "out_specs[0]");
  CHECK(m.index_map_avals == std::vector<ts::ir::Type>(3, ts::ir::Type::array(ts::i32)));
  CHECK(m.vmapped_dims.empty());
  CHECK(m.scratch_avals == std::vector<ts::ir::Type>{ts::ir::Type::ref(ts::f32, {2, 3}, ts::MemorySpace::vmem)});
  CHECK(m.num_index_operands == 0);
  CHECK(m.num_inputs == 2);
  CHECK(m.num_outputs == 1);
  CHECK(m.num_scratch_operands() == 1);
  CHECK(m.num_dynamic_grid_bounds() == 0);
  CHECK(m.static_grid() == ts::Shape{2, 2, 4});
  CHECK(m.in_shapes().size() == 2);
  CHECK(m.in_shapes()[1].shape == std::vector<ts::Extent>{8, 6});
  CHECK(m.out_shapes()[0].shape == std::vector<ts::Extent>{4, 6});
  CHECK(m.slice_index_ops() == ts::Slice{0, 0});
  CHECK(m.slice_block_ops() == ts::Slice{0, 3});
  CHECK(m.slice_scratch_ops() == ts::Slice{3, 4});
  CHECK(!m.debug);
}

TEST_CASE("printing") {
  CHECK(text(matmul().grid_mapping(inputs)) ==
        "grid (i: 2 parallel, j: 2 parallel, k: 4)\n"
        "in_specs[0]: f32(4, 8) in blocks (2, 2), in vmem, index map (i0, i1, i2) -> (i0, i2)\n"
        "in_specs[1]: f32(8, 6) in blocks (2, 3), in vmem, index map (i0, i1, i2) -> (add(i2, 0), i1)\n"
        "out_specs[0]: f32(4, 6) in blocks (2, 3), in vmem, index map (i0, i1, i2) -> (i0, i1)\n"
        "scratch[0]: ref<vmem, f32[2, 3]>\n");
  const ts::Extent n = ts::dim("n");
  auto call =
      ts::pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[0]; },
                      {.out_shape = {{{n}, ts::f32}},
                       .grid = {ts::cdiv(n, 8)},
                       .in_specs = {{{8}, [](Value i) { return ts::num_programs(0) - i - 1; }}, ts::no_block_spec},
                       .out_specs = {{{8}, [](Value i) { return i; }}},
                       .in_shape = {{{n}, ts::f32}, {{1}, ts::f32}}});
  const ts::GridMapping m = ts::grid_mapping(call.trace());
  CHECK(m.num_dynamic_grid_bounds() == 1);
  CHECK(text(m) ==
        "grid (cdiv(n, 8),)\n"
        "in_specs[0]: f32(n,) in blocks (8,), in vmem, index map (i0) -> (sub(sub(num_programs(axis 0), i0), 1))\n"
        "in_specs[1]: f32(1,) whole, in any\n"
        "out_specs[0]: f32(n,) in blocks (8,), in vmem, index map (i0) -> (i0)\n");
  std::string error;
  try {
    m.static_grid();
  } catch (const ts::SpecError& e) {
    error = e.what();
  }
  CHECK(error.starts_with("kernel: the grid (cdiv(n, 8),) has no static size: cdiv(n, 8) arrives with the call"));
}

TEST_CASE("GridSpec gives the same mapping") {
  auto call = ts::pallas_call([](Ref x, Ref o, Ref) { o[all] = x[all]; },
                              {.out_shape = {{{8}, ts::f32}},
                               .grid_spec = ts::GridSpec{.grid = 2,
                                                         .in_specs = {{{4}, [](Value i) { return i; }}},
                                                         .out_specs = {{{4}, [](Value i) { return i; }}},
                                                         .scratch_shapes = {ts::SMEM({1}, ts::i32)}}});
  CHECK(text(call.grid_mapping({{{8}, ts::f32}})) ==
        "grid (2,)\n"
        "in_specs[0]: f32(8,) in blocks (4,), in vmem, index map (i0) -> (i0)\n"
        "out_specs[0]: f32(8,) in blocks (4,), in vmem, index map (i0) -> (i0)\n"
        "scratch[0]: ref<smem, i32[1]>\n");
}

TEST_CASE("a kernel made from a mapping has that mapping") {
  const ts::GridMapping m = matmul().grid_mapping(inputs);
  const ts::ir::Kernel k = m.to_kernel("matmul", {});
  CHECK(k.region(k.body).args.size() == 4);
  CHECK(k.type(k.region(k.body).args[0]) == ts::ir::Type::ref(ts::f32, {2, 2}, ts::MemorySpace::vmem));
  CHECK(text(ts::grid_mapping(k)) == text(m));
}

TEST_CASE("replace checks the invariants") {
  const ts::GridMapping m = matmul().grid_mapping(inputs);
  CHECK(m.replace([](ts::GridMapping& g) { g.debug = true; }).debug);
  CHECK(!m.debug);
  CHECK(broken(m, [](ts::GridMapping& g) { g.grid_names.pop_back(); }) == "the grid has 3 axes but grid_names has 2");
  CHECK(broken(m, [](ts::GridMapping& g) { g.grid[1] = -2; }) == "grid[1] is -2, which is negative");
  CHECK(broken(m, [](ts::GridMapping& g) { g.vmapped_dims = {1, 1}; }) ==
        "vmapped_dims[1] is 1, which is no later axis of the grid");
  CHECK(broken(m, [](ts::GridMapping& g) { g.num_inputs = 3; }) ==
        "there are 3 block mappings but 3 inputs and 1 outputs");
  CHECK(broken(m, [](ts::GridMapping& g) {
          g.index_map_avals[0] = ts::ir::Type::array(ts::i64);
        }).starts_with("index_map_avals is not i32[] for each of 3 grid axes and a Ref for each of 0 index operands"));
  CHECK(broken(m, [](ts::GridMapping& g) { g.block_mappings[2].block().pop_back(); }) ==
        "block_mappings[2] (out_specs[0]): 1 block dim but the array (4, 6) has 2\n  block_mappings[2] (out_specs[0]): "
        "the index map does "
        "not yield one index per block dim");
  CHECK(broken(m, [](ts::GridMapping& g) { g.block_mappings[0].block()[0] = {ts::ir::BlockDim::Blocked{0}}; }) ==
        "block_mappings[0] (in_specs[0]): block dim 0 has size 0");
  CHECK(broken(m, [](ts::GridMapping& g) { g.block_mappings[0].index_map() = {}; }) ==
        "block_mappings[0] (in_specs[0]): there is no index map");
  CHECK(broken(m, [](ts::GridMapping& g) { g.scratch_avals[0].space = ts::MemorySpace::global; }) ==
        "scratch_avals[0] is ref<global, f32[2, 3]>, no Ref in any, vmem, smem or a semaphore's space");
  CHECK(broken(m, [](ts::GridMapping& g) {
          g.grid_parallel.clear();
          g.num_outputs = 0;
        }) == "the grid has 3 axes but grid_parallel has 0\n  there are 3 block mappings but 2 inputs and 0 outputs");
}

}  // namespace grid_mapping_test
