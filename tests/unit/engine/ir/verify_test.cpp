#include "engine/ir/verify.h"

#include <doctest/doctest.h>

#include <string>

#include "engine/ir/builder.h"
#include "engine/ir/text.h"

namespace verify_test {
using namespace tessera;
using ir::Builder, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {

const std::string kGood = R"(tir 1
kernel @k
grid (4, 2)
in f32[32, n] block (8, squeezed) map (%i, %j) { yield %i, %j }
out f32[32] block (8) map (%i, %j) { yield %i }
scratch ref<vmem, f32[8]>
body (%x, %o, %s) {
  %a = load %x[0:8]
  %b = add %a, %a
  store %o[0:8], %b
}
)";

std::string problems(const ir::Kernel& k) {
  std::string s;
  for (const ir::Problem& p : ir::find_problems(k))
    s += p.entity + ": " + p.message + (p.loc ? " @" + std::to_string(p.loc.line) : "") + "\n";
  return s;
}
std::string replaced(const std::string& from, const std::string& by) {
  std::string text = kGood;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return problems(ir::parse(text.replace(at, from.size(), by), "f"));
}
/// A good kernel, broken by hand.
template <class F> std::string broken(F breaks) {
  ir::Kernel k = ir::parse(kGood, "f");
  breaks(k);
  return problems(k);
}
ir::OpId op(const ir::Kernel& k, size_t i) { return k.region(k.body).ops[i]; }

}  // namespace

TEST_CASE("verify: a good kernel has no problems, and an empty one neither") {
  CHECK(problems(ir::parse(kGood)) == "");
  CHECK(problems(ir::parse("tir 1\nkernel @k\nbody () {}\n")) == "");
  CHECK(problems(ir::parse("tir 1\nkernel @k\ngrid (0)\nin f32[0] block (0) map (%i) { yield %i }\nbody (%x) {}\n")) ==
        "");
}

TEST_CASE("verify: blocks") {
  CHECK(replaced("block (8, squeezed)", "block (8)") ==
        "in_specs[0]: block shape (8,) has 1 dim but the array (32, n) has 2 @4\nin_specs[0]: index map: yields 2 "
        "indices but the block has 1 dim @4\n");
  CHECK(broken([](ir::Kernel& k) { k.blocks[1].block()[0] = {ir::BlockDim::Blocked{0}}; }) ==
        "out_specs[0]: block dim 0 has size 0, not at least 1 @5\nbody: argument %5 is ref<vmem, f32[8]> instead of "
        "ref<vmem, f32[0]> @2\n");
  CHECK(replaced("map (%i, %j) { yield %i }", "map (%i) { yield %i }") ==
        "out_specs[0]: index map: takes 1 program ids but the grid has 2 axes @5\n");
  CHECK(replaced(" map (%i, %j) { yield %i }", "") == "out_specs[0]: has no index map @5\n");
  CHECK(replaced("{ yield %i }", "{ yield %i, %j }") ==
        "out_specs[0]: index map: yields 2 indices but the block has 1 dim @5\n");
  CHECK(replaced("{ yield %i }", "{\n  %t = lt %i, %j\n  yield %t\n}") ==
        "out_specs[0]: index map: yields %4: bool[] instead of i32[] @7\n");
  CHECK(replaced("(%i, %j) { yield %i }", "(%i: i64, %j) { yield %j }") ==
        "out_specs[0]: index map: %2 is i64[] instead of i32[] @5\n");
  CHECK(broken([](ir::Kernel& k) { k.grid[1].size = -2; }) == "grid axis 1: size -2 is negative @2\n");
  CHECK(broken([](ir::Kernel& k) { k.grid[0].size = dim("two words"); }) ==
        "grid axis 0: size name \"two words\" is not an identifier @2\n");
  CHECK(broken([](ir::Kernel& k) { k.num_inputs = 3; }) == "k: has 3 inputs but 2 blocks @2\n");
  CHECK(broken([](ir::Kernel& k) { k.blocks[0].what = ir::BlockMapping::Whole{}; }) ==
        "body: in_specs[0]: a Ref without a BlockSpec needs static extents, but the array is (32, n) @4\n");
}

TEST_CASE("verify: an index map reading what it may not") {
  CHECK(replaced("{ yield %i }", "{\n  %p = program_id axis 0\n  yield %p\n}") ==
        "out_specs[0]: index map: %4 = program_id: an index map may only have elementwise ops, constants, num_programs "
        "and loads of single elements @6\n");
  CHECK(replaced("(%i, %j) { yield %i }", "(%i, %j: ref<smem, i32[4]>) {\n  %p = load %j[%i]\n  yield %p\n}") ==
        "out_specs[0]: index map: %3 is ref<smem, i32[4]> instead of i32[] @5\n");
  CHECK(replaced("{ yield %i }", "{\n  %c = constant 1.5 : f32[2]\n  yield %i\n}") ==
        "out_specs[0]: index map: %4 = constant is f32[2]: an index map computes on scalars @6\n");
  CHECK(broken([](ir::Kernel& k) {  // a value of the body
          k.op(k.region(k.blocks[1].index_map()).ops.back()).operands[0] = k.op(op(k, 0)).results[0];
        }) ==
        "out_specs[0]: index map: yields %7: f32[8] instead of i32[] @5\nyield %7: %7 is not defined before it in its "
        "region or one around it @5\n");
}

TEST_CASE("verify: the body's arguments") {
  CHECK(replaced("(%x, %o, %s)", "(%x, %o, %s: ref<vmem, f32[9]>)") ==
        "body: argument %6 is ref<vmem, f32[9]> instead of ref<vmem, f32[8]> @2\n");
  CHECK(replaced("(%x, %o, %s)", "(%x, %o)") ==
        "body: takes 2 refs but there are 3 inputs, outputs and scratch buffers @2\n");
  CHECK(replaced("ref<vmem, f32[8]>", "ref<global, f32[8]>") ==
        "body: %6: ref<global, f32[8]> belongs to the other level @2\n");
}

TEST_CASE("verify: everything wrong is reported at once, with its line") {
  ir::Kernel k = ir::parse(kGood, "f");
  k.values[k.op(op(k, 0)).results[0].index].type = Type::array(f16, {8});
  k.blocks[1].block()[0] = {ir::BlockDim::Blocked{4}};
  CHECK_THROWS_WITH_AS(ir::verify(k, "pass x"),
                       "k: 3 problems after pass x\n"
                       "  body: argument %5 is ref<vmem, f32[8]> instead of ref<vmem, f32[4]>\n    at f:2\n"
                       "  %7 = load: %7 is f16[8] instead of f32[8]\n    at f:8\n"
                       "  %8 = add: %8 is f32[8] instead of f16[8]\n    at f:9",
                       InternalError);
}

TEST_CASE("verify: tables, regions and scopes") {
  CHECK(broken([](ir::Kernel& k) { k.body = {}; }) == "body: is missing @2\n");
  CHECK(broken([](ir::Kernel& k) { k.region(k.body).ops.pop_back(); }) == "body: does not end in a yield @2\n");
  CHECK(broken([](ir::Kernel& k) { std::swap(k.region(k.body).ops[0], k.region(k.body).ops[1]); }) ==
        "%7 = add: %8 is not defined before it in its region or one around it @9\n");
  CHECK(broken([](ir::Kernel& k) { k.op(op(k, 1)).operands[1] = Value{99}; }) ==
        "%8 = add: operand <value 99> does not exist @9\n");
  CHECK(broken([](ir::Kernel& k) { k.region(k.body).ops.insert(k.region(k.body).ops.begin(), op(k, 0)); }) ==
        "%7 = load: stands in two places @8\n");
  CHECK(broken([](ir::Kernel& k) { k.blocks[1].index_map() = k.body; }) == "body: region 2 is used twice @2\n");
  CHECK(broken([](ir::Kernel& k) { k.blocks[1].index_map() = ir::RegionId{50}; }) ==
        "out_specs[0]: index map: region 50 does not exist @5\n");
  CHECK(broken([](ir::Kernel& k) {
          k.region(k.body).ops.push_back(ir::OpId{1000});
        }).find("body: op 1000 does not exist @2\n") != std::string::npos);
  CHECK(broken([](ir::Kernel& k) { k.values[k.op(op(k, 1)).results[0].index].number = 3; }) ==
        "%8 = add: result 0 is recorded as coming from elsewhere @9\n");
  CHECK(broken([](ir::Kernel& k) { k.op(op(k, 3)).operands.push_back(k.op(op(k, 0)).results[0]); }) ==
        "body: yields values @11\n");
}

TEST_CASE("verify: levels") {
  CHECK(replaced("  %b = add", "  barrier\n  %b = add") == "barrier: is not legal at tile level @9\n");
  ir::Kernel k = ir::parse(R"(tir 1
lane kernel @k
workgroup_size 64 subgroup_size 3 shared_bytes 64 scratch_bytes 8
extents (n)
out f32[8] whole
body (%o) {
  %a = alloc_shared offset 0 : ref<shared, f32[17]>
  %b = alloc_shared offset 2 : ref<shared, f16[4]>
  %c = alloc_scratch offset 0 : ref<global, i8[8]>
  %e = extent index 1 : i32[]
  %f = extent index 0 : i64[]
}
)",
                           "f");
  CHECK(problems(k) ==
        "k: subgroup_size 3 is not 0 or a power of two @2\n"
        "%1 = alloc_shared: takes 17 elements of 4 bytes from byte 0 but the arena has 64 bytes @7\n"
        "%2 = alloc_shared: offset 2 is not a multiple of the element's 4 bytes @8\n"
        "%4 = extent: index 1 is out of range for 1 extents @10\n"
        "%5 = extent: is i64[] but the extent is i32 @11\n");
}

TEST_CASE("verify: check() with the text that was parsed shows the lines") {
  std::string text = kGood;
  text.replace(text.find("yield %i, %j"), 12, "yield %j");
  text.replace(text.find("map (%i, %j) { yield %i }"), 25, "map (%i) {\r\n  yield %i\r\n}  ");
  const auto error = [&](std::string_view source, std::string_view file) -> std::string {
    try {
      ir::check(ir::parse(text, "f.tir"), source, file);
      return "no error";
    } catch (const TraceError& e) {
      return e.what();
    }
  };
  const std::string
      first = "k: 2 problems\n  in_specs[0]: index map: yields 1 index but the block has 2 dims\n    at f.tir:4",
      second = "\n  out_specs[0]: index map: takes 1 program ids but the grid has 2 axes\n    at f.tir:5";
  CHECK(error(text, "f.tir") == first + ":1\n      in f32[32, n] block (8, squeezed) map (%i, %j) { yield %j }" +
                                    second + ":1\n      out f32[32] block (8) map (%i) {");
  CHECK(error({}, {}) == first + second);
  CHECK(error(text, "g.tir") == first + second);
}

}  // namespace verify_test
