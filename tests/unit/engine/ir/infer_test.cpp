#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "engine/ir/builder.h"
#include "engine/ir/text.h"

namespace infer_test {
using namespace tessera;
using ir::Attr, ir::Builder, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {

const std::string kHead =
    "tir 1\nkernel @k\ngrid (4, 2 vmapped)\nin f32[2, 3] whole\nin i32[4] whole\nin f32[0] whole\nout f32[2, 3] "
    "whole\nbody (%x, %n, %z, %o) {\n"
    "  %f23 = load %x[0:2, 0:3]\n  %i4 = load %n[0:4]\n  %i = load %n[0]\n  %p = constant true : bool[]\n  %p23 = "
    "constant true : bool[2, 3]\n";
const std::string kLaneHead =
    "tir 1\nlane kernel @k\nworkgroup_size 8 shared_bytes 64 scratch_bytes 64\nextents (n)\nin f32[8] whole\nout "
    "f32[8] whole\nbody (%x, %o) {\n  %i = local_index\n  %f = load %x[%i]\n";

/// The message for one op, without the place and the source; the type of its result if there is none.
std::string infer(const std::string& op, const std::string& head = kHead) {
  try {
    const ir::Kernel k = ir::parse(head + "  " + op + "\n}\n", "f");
    const auto& ops = k.region(k.body).ops;
    const Op& o = k.op(ops[ops.size() - 2]);
    std::string types;
    for (Value v : o.results) types += (types.empty() ? "" : " ") + to_string(k.type(v));
    return types;
  } catch (const TraceError& e) {
    std::string what = e.what();
    const auto line = std::count(head.begin(), head.end(), '\n') + std::count(op.begin(), op.end(), '\n') + 1;
    const size_t at = what.find(": ") + 2, end = what.find('\n', at);
    if (!what.starts_with("f:" + std::to_string(line) + ":") || end == std::string::npos) return what;
    const size_t note = what.find('\n', what.find('\n', end + 1) + 1);  // after the source line and the caret's
    return what.substr(at, end - at) + (note == std::string::npos ? "" : what.substr(note));
  }
}
std::string lane(const std::string& op) { return infer(op, kLaneHead); }

}  // namespace

TEST_CASE("infer: elementwise ops") {
  CHECK(infer("%r = add %f23, %f23") == "f32[2, 3]");
  CHECK(infer("%r = lt %f23, %f23") == "bool[2, 3]");
  CHECK(infer("%r = is_finite %f23") == "bool[2, 3]");
  CHECK(infer("%r = select %p23, %f23, %f23") == "f32[2, 3]");
  CHECK(infer("%r = clamp %i4, %i4, %i4") == "i32[4]");
  CHECK(infer("%r = convert %f23 : bf16[2, 3]") == "bf16[2, 3]");
  CHECK(infer("%r = bitcast %f23 : u32[2, 3]") == "u32[2, 3]");
  CHECK(infer("%r = eq %p23, %p23") == "bool[2, 3]");
  CHECK(infer("%r = add %f23, %i4") == "add: operands have dtypes f32 and i32\n  note: convert one of them first");
  CHECK(infer("%r = add %i, %i4") ==
        "add: operands have shapes () and (4,)\n  note: shapes must be equal or broadcast to one shape");
  CHECK(infer("%r = add %i4") == "add: takes 2 operands but got 1");
  CHECK(infer("%r = neg %i4, %i4") == "neg: takes 1 operand but got 2");
  CHECK(infer("%r = add %x, %x") == "add: operand 0 is a ref<any, f32[2, 3]>\n  note: load from the ref first");
  CHECK(infer("%r = add %p, %p") == "add: takes integers or floats but the operand is bool");
  CHECK(infer("%r = exp %i4") == "exp: takes floats but the operand is i32");
  CHECK(infer("%r = and %f23, %f23") == "and: takes integers or bool but the operand is f32");
  CHECK(infer("%r = shift_left %p, %p") == "shift_left: takes integers but the operand is bool");
  CHECK(infer("%r = select %i4, %i4, %i4") == "select: the predicate must be bool but is i32");
  CHECK(infer("%r = select %p, %f23, %f23") ==
        "select: operands have shapes (), (2, 3) and (2, 3)\n  note: shapes must be equal or broadcast to one shape");
  CHECK(infer("%r = bitcast %f23 : i16[2, 3]") ==
        "bitcast: cannot reinterpret f32 as i16\n  note: both must have the same width, and neither may be bool");
}

TEST_CASE("infer: making and shaping values") {
  CHECK(infer("%r = iota axis 1 : i32[2, 3]") == "i32[2, 3]");
  CHECK(infer("%r = iota axis 2 : i32[2, 3]") == "iota: axis 2 is out of range for 2 dims");
  CHECK(infer("%r = iota : i32[2]") == "iota: attribute axis is missing");
  CHECK(infer("%r = iota axis [0, 1] : i32[2, 2]") == "iota: attribute axis takes one number but got 2");
  CHECK(infer("%r = iota axis 0 : bool[2]") == "iota: the result must be integers or floats but is bool[2]");
  CHECK(infer("%r = broadcast %i4 dims [1] : i32[2, 4]") == "i32[2, 4]");
  CHECK(infer("%r = broadcast %i4 dims [0] : i32[2, 4]") ==
        "broadcast: shape (4,) does not broadcast to (2, 4) along dims (0,)");
  CHECK(infer("%r = broadcast %f23 dims [1, 0] : f32[3, 2]") == "broadcast: dims (1, 0) do not increase");
  CHECK(infer("%r = broadcast %f23 dims [1] : f32[2, 3]") ==
        "broadcast: the operand (2, 3) has 2 dims but dims lists 1");
  CHECK(infer("%r = reshape %f23 : f32[6]") == "f32[6]");
  CHECK(infer("%r = reshape %f23 : f32[4]") == "reshape: shape (2, 3) has 6 elements but (4,) has 4");
  CHECK(infer("%r = transpose %f23 perm [1, 0]") == "f32[3, 2]");
  CHECK(infer("%r = transpose %f23 perm [1, 1]") ==
        "transpose: perm (1, 1) is not a permutation of the dims of (2, 3)");
  CHECK(infer("%r = slice %f23[0:2:2, 1:3]") == "f32[1, 2]");
  CHECK(infer("%r = slice %i4[4:4]") == "i32[0]");
  CHECK(infer("%r = slice %i4[2:5]") == "slice: dim 0: 2:5:1 is not a slice of 4 elements");
  CHECK(infer("%r = slice %f23[0:2]") ==
        "slice: the operand (2, 3) has 2 dims but start, limit and stride list 1, 1 and 1");
  CHECK(infer("%r = concatenate %f23, %f23 axis 1") == "f32[2, 6]");
  CHECK(infer("%r = concatenate %f23, %i4 axis 0") ==
        "concatenate: operands have dtypes f32 and i32\n  note: convert them to one dtype first");
  CHECK(infer("%r = concatenate %i, %i axis 0") == "concatenate: axis 0 is out of range for 0 dims");
}

TEST_CASE("infer: products and reductions") {
  const std::string dims = " lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch []";
  CHECK(infer("%r = dot %f23, %f23" + dims + " : f32[2, 2]") == "f32[2, 2]");
  CHECK(infer("%r = dot %f23, %f23" + dims + " : f64[2, 2]") == "f64[2, 2]");
  CHECK(infer("%r = dot %f23, %f23 lhs_contract [1] rhs_contract [1] lhs_batch [0] rhs_batch [0] : f32[2]") ==
        "f32[2]");
  CHECK(infer("%s = dot %f23, %f23" + dims + " : f32[2, 2]\n  %r = dot %f23, %f23, %f23" + dims + " : f32[2, 2]") ==
        "dot: adds to f32[2, 3] but the product is f32[2, 2]");
  CHECK(infer("%r = dot %f23, %f23" + dims + " : f16[2, 2]") ==
        "dot: operands of f32 cannot give a result of f16\n  note: the result has the operands' dtype or a wider one "
        "of its kind");
  CHECK(infer("%r = dot %i4, %i4 lhs_contract [0] rhs_contract [0] lhs_batch [] rhs_batch [] : u32[]") ==
        "dot: operands of i32 cannot give a result of u32\n  note: the result has the operands' dtype or a wider one "
        "of its kind");
  CHECK(infer("%r = dot %f23, %f23 lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[2, 2]") ==
        "dot: contracts dim 1 of (2, 3) with dim 0 of (2, 3)");
  CHECK(infer("%r = dot %f23, %f23 lhs_contract [1] rhs_contract [] lhs_batch [] rhs_batch [] : f32[2, 2]") ==
        "dot: contracts 1 dim of the left operand but 0 of the right");
  CHECK(infer("%r = dot %f23, %f23 lhs_contract [1] rhs_contract [1] lhs_batch [1] rhs_batch [0] : f32[2, 2]") ==
        "dot: left dim 1 is listed twice");
  CHECK(infer("%r = reduce_sum %f23 axes [0]") == "f32[3]");
  CHECK(infer("%r = reduce_max %f23 axes [0, 1]") == "f32[]");
  CHECK(infer("%r = reduce_and %p23 axes [1]") == "bool[2]");
  CHECK(infer("%r = reduce_sum %p23 axes [1]") == "reduce_sum: takes integers or floats but the operand is bool");
  CHECK(infer("%r = reduce_or %f23 axes [1]") == "reduce_or: takes integers or bool but the operand is f32");
  CHECK(infer("%r = reduce_sum %f23 axes [1, 0]") == "reduce_sum: axes (1, 0) do not increase");
  CHECK(infer("%r = argmax %f23 axis 1 : i64[2]") == "i64[2]");
  CHECK(infer("%r = argmax %f23 axis 1 : f32[2]") == "argmax: the result must be integers but is f32");
  CHECK(infer("%e = load %z[0:0]\n  %r = reduce_sum %e axes [0]") == "f32[]");
  CHECK(infer("%r = cumsum %f23 axis 1 reverse 1") == "f32[2, 3]");
  CHECK(infer("%r = cumsum %f23 axis 1 reverse 2") == "cumsum: attribute reverse is 2, not 0 or 1");
  CHECK(infer("%r = cummax %f23 axis 2") == "cummax: axis 2 is out of range for 2 dims");
  CHECK(infer("%r = rev %f23 axes [0, 1]") == "f32[2, 3]");
  CHECK(infer("%r = rev %f23 axes [1, 0]") == "rev: axes (1, 0) do not increase");
  CHECK(infer("%r = rev %f23 axes [2]") == "rev: axis 2 is out of range for 2 dims");
  CHECK(infer("%r = program_id axis 0") == "i32[]");
  CHECK(infer("%r = num_programs axis 1") == "num_programs: axis 1 is out of range for a grid of 1 axis");
}

TEST_CASE("infer: gathers, scatters and sorts") {
  CHECK(infer("%r = gather %f23, %i4, %i4 dims [-1, -1]") == "f32[4]");
  CHECK(infer("%r = gather %f23, %i dims [-1, -1]") == "gather: dims (-1, -1) asks for 2 indices but there are 1");
  CHECK(infer("%r = gather %f23, %i, %i dims [-1, -1]") == "f32[]");
  CHECK(infer("%r = gather %f23, %f23, %i4 dims [-1, -1]") == "gather: an index must be i32[2, 3] but is f32[2, 3]");
  CHECK(infer("%r = gather %f23, %i4 dims [-1, 0]") == "gather: dim 1 of (2, 3) cannot follow dim 0 of (4,)");
  CHECK(infer("%r = gather %f23, %i4 dims [-1, 1]") == "gather: result dim 1 is out of range for 1 dim");
  CHECK(infer("%r = gather %f23, %i4 dims [-1]") == "gather: the operand (2, 3) has 2 dims but dims lists 1");
  CHECK(infer("%e = load %z[0:0]\n  %r = gather %e, %i4 dims [-1]") ==
        "gather: reads (4,) elements of (0,), which has none");
  CHECK(infer("%r = gather %f23") == "gather: takes at least 2 operands but got 1");
  CHECK(infer("%r = scatter %i4, %i4, %i4 dims [-1] kind add") == "i32[4]");
  CHECK(infer("%r = scatter %i4, %i, %i dims [-1]") == "i32[4]");
  CHECK(infer("%r = scatter %i4, %f23, %i4 dims [-1]") ==
        "scatter: operands have dtypes i32 and f32\n  note: convert one of them first");
  CHECK(infer("%r = scatter %i4, %i4, %i4 dims [-1] kind sub") ==
        "scatter: kind " + std::to_string(static_cast<int>(ir::Opcode::sub)) + " is not an associative op");
  CHECK(infer("%r = scatter %f23, %f23, %i4 dims [0, 0]") == "scatter: dims (0, 0) asks for 0 indices but there are 1");
  CHECK(infer("%r = scatter %i4, %i4 dims [-1]") == "scatter: takes at least 3 operands but got 2");
  CHECK(infer("%s, %r = sort %f23, %p23 axis 1 keys 1") == "f32[2, 3] bool[2, 3]");
  CHECK(infer("%s, %r = sort %f23, %i4 axis 1 keys 1") ==
        "sort: operands have shapes (2, 3) and (4,)\n  note: all must have one shape");
  CHECK(infer("%r = sort %f23 axis 2 keys 1") == "sort: axis 2 is out of range for 2 dims");
  CHECK(infer("%r = sort %f23 axis 0 keys 2") == "sort: sorts 1 operand by 2 keys");
}

TEST_CASE("infer: memory") {
  CHECK(infer("%r = load %x[1, 0:3]") == "f32[3]");
  CHECK(infer("%r = load %x[%i, ds(%i, 2)]") == "f32[2]");
  CHECK(infer("%r = load %x[0:2, 0:3] mask %p23 other %f23") == "f32[2, 3]");
  CHECK(infer("%r = load %z[0:0]") == "f32[0]");
  CHECK(infer("%r = load %x[0:0:5, 3:3]") == "f32[0, 0]");
  CHECK(infer("%r = load %n[ds(%i, 2, 3)]") == "i32[2]");
  CHECK(infer("%r = load %n[ds(%i, 3, 2)]") == "load: dim 0: slice of 3, step 2 is out of range for 4 elements");
  // masked: each element is tested
  CHECK(infer("%m = constant true : bool[9]\n  %r = load %n[ds(%i, 9)] mask %m") == "i32[9]");
  CHECK(infer("%r = swap %o[0:2, 0:3], %f23") == "f32[2, 3]");
  CHECK(infer("store %o[0:2, 0:3], %f23 mask %p23") == "");
  CHECK(infer("%r = load %i4[0]") == "load: operand 0 must be a ref but is i32[4]");
  CHECK(infer("%r = load %x[0]") == "load: the index has 1 entry but the ref ref<any, f32[2, 3]> has 2 dims");
  CHECK(infer("%r = load %x[2, 0]") == "load: dim 0: index 2 is out of range for 2 elements");
  CHECK(infer("%r = load %x[-1, 0]") == "load: dim 0: index -1 is out of range for 2 elements");
  CHECK(infer("%r = load %n[2:6]") == "load: dim 0: slice of 4 from 2 is out of range for 4 elements");
  CHECK(infer("%r = load %n[ds(0, -1)]") ==
        "load: dim 0: a slice needs a size of at least 0 and a step of at least 1, not -1 and 1");
  CHECK(infer("%r = load %z[%i]") == "load: dim 0: index is out of range for 0 elements");
  CHECK(infer("%r = load %n[%i4]") == "i32[4]");
  CHECK(infer("%r = load %n[ds(%i4, 2)]") == "load: dim 0: a dynamic start must be i32[] but is i32[4]");
  CHECK(infer("%r = load %x[%i4, 0:3]") == "f32[4, 3]");
  CHECK(infer("%r = load %x[0:2, %i4]") == "f32[2, 4]");
  CHECK(infer("%r = load %x[%i4, 1]") == "f32[4]");
  CHECK(infer("%f4 = constant 0.0 : f32[4]\n  %r = swap %o[%i4, %i4], %f4") == "f32[4]");
  CHECK(infer("addupdate %n[%i4], %i4") == "");
  CHECK(infer("%p4 = constant true : bool[4]\n  addupdate %n[0:4], %i4 mask %p4") == "");
  CHECK(infer("addupdate %o[0:4], %p4",
              "tir 1\nkernel @k\nin bool[4] whole\nout bool[4] whole\nbody (%x, %o) {\n  %p4 = load %x[0:4]\n") ==
        "addupdate: bool has no sum\n  note: or it to what is there: store(load | value)");
  CHECK(infer("%r = load %x[%f23, 0]") == "load: dim 0: an index array must be i32 and have dims but is f32[2, 3]");
  CHECK(infer("%j = iota axis 0 : i32[3]\n  %r = load %x[%i4, %j]") ==
        "load: dim 1: the index array has shape (3,) but that of dim 0 has (4,)\n  note: arrays of an index have one "
        "shape");
  CHECK(infer("%r = load %z[%i4]") == "load: dim 0: an index array into 0 elements");
  CHECK(infer("%r = load %n[%i4] mask %p") == "load: the mask must be bool[4] but is bool[]");
  CHECK(infer("store %o[%i4, 0:3], %f23") == "store: the value must be f32[4, 3] but is f32[2, 3]");
  CHECK(infer("%r = load %n[ds(9223372036854775807, 9223372036854775807, 9223372036854775807)]") ==
        "load: dim 0: slice of 9223372036854775807 from 9223372036854775807, step 9223372036854775807 is out of range "
        "for 4 elements");
  CHECK(infer("%r = load %n[0:4] mask %p") == "load: the mask must be bool[4] but is bool[]");
  CHECK(infer("%m = constant true : bool[4]\n  %r = load %n[0:4] mask %m other %i") ==
        "load: other must be i32[4] but is i32[]");
  CHECK(infer("store %n[0:4], %f23") == "store: the value must be i32[4] but is f32[2, 3]");
}

TEST_CASE("infer: control flow") {
  CHECK(infer("%a, %b = for %k = %i to %i step %i carry (%c = %f23, %d = %i4) { yield %c, %d }") == "f32[2, 3] i32[4]");
  CHECK(infer("%a = if %p { yield %i } else { yield %i }") == "i32[]");
  CHECK(infer("%a = switch %i case 0 { yield %i4 }") == "i32[4]");
  CHECK(infer("%a = while (%c = %i) { yield %p } do (%c) { yield %c }") == "i32[]");
  CHECK(infer("%a = for %k = %i to %i step %i carry (%c = %f23) { yield %i4 }") ==
        "for: region 0 must yield (f32[2, 3]) but yields (i32[4])");
  CHECK(infer("%a = for %k = %p to %i step %i carry (%c = %i) { yield %c }") ==
        "for: the lower bound must be i32[] but is bool[]");
  CHECK(infer("%s = constant 0 : i32[]\n  for %k = %i to %i step %s {}") == "for: the step is 0, not positive");
  CHECK(infer("%a = if %i { yield %i } else { yield %i }") == "if: the predicate must be bool[] but is i32[]");
  CHECK(infer("%a = if %p { yield %i } else { yield %p }") ==
        "if: region 0 yields (i32[]) but region 1 yields (bool[])");
  CHECK(infer("%a = if %p { yield %i }") == "if: region 0 yields (i32[]) but region 1 yields ()");
  CHECK(infer("%a = while (%c = %i) { yield %c } do (%d) { yield %d }") ==
        "while: region 0 must yield (bool[]) but yields (i32[])");
  CHECK(infer("%a = switch %p case 0 { yield %i }") == "switch: the index must be i32[] but is bool[]");
}

TEST_CASE("infer: lane level") {
  CHECK(lane("%r = load %x[%i]") == "f32[]");
  CHECK(lane("%r = load %x[5]") == "f32[]");
  CHECK(lane("store %o[%i], %f") == "");
  CHECK(lane("%r, %s = load %x[0:2]") == "f32[] f32[]");
  CHECK(lane("%r, %s, %t, %u = load %x[ds(%i, 4)]") == "f32[] f32[] f32[] f32[]");
  CHECK(lane("%r, %s = load %x[-2:0]") == "load: dim 0: slice of 2 from -2 is out of range for an array");
  CHECK(lane("%r = load %x[-1]") == "load: dim 0: index -1 is out of range for an array");
  CHECK(lane("%r = load %x[0:3]") == "load: a vector access takes 2, 4, 8 or 16 elements with step 1 and no mask");
  CHECK(lane("store %o[0:2], %f") == "store: takes at least 3 operands but got 2");
  CHECK(lane("%r = alloc_shared offset 0 : ref<shared, f32[4]>") == "ref<shared, f32[4]>");
  CHECK(lane("%r = alloc_scratch offset 0 : ref<global, i8[4]>") == "ref<global, i8[4]>");
  CHECK(lane("%r = alloc_shared offset 0 : ref<global, f32[4]>") ==
        "alloc_shared: the result must be a ref of rank 1 to shared memory but is ref<global, f32[4]>");
  CHECK(lane("%r = alloc_shared offset -4 : ref<shared, f32[4]>") == "alloc_shared: the offset -4 is negative");
  CHECK(lane("%r = extent index 0 : i64[]") == "i64[]");
  CHECK(lane("%r = extent index 0 : f32[]") == "extent: the result must be i32[] or i64[] but is f32[]");
  CHECK(lane("%r = view %x, %i") == "view: the offset must be i64[] but is i32[]");
  CHECK(lane("%e = extent index 0 : i64[]\n  %r = view %x, %e") == "ref<global, f32[?]>");
  CHECK(lane("%r = subgroup_reduce %f kind max") == "f32[]");
  CHECK(lane("%r = subgroup_reduce %f kind sub") == "subgroup_reduce: kind 1 is not an associative op");
  CHECK(lane("%r = subgroup_reduce %f kind and") == "subgroup_reduce: takes integers or bool but the operand is f32");
  CHECK(lane("%r = subgroup_scan %f kind add") == "f32[]");
  CHECK(lane("%r = subgroup_scan %f kind or") == "subgroup_scan: takes integers or bool but the operand is f32");
  CHECK(lane("%r = subgroup_shuffle %f, %i") == "f32[]");
  CHECK(lane("%r = subgroup_shuffle_xor %f mask 4") == "f32[]");
  CHECK(lane("barrier") == "");
  CHECK(lane("subgroup_barrier") == "");
  CHECK(lane("%r = loops_cut") == "bool[]");
  CHECK(lane("%r = loops_cut\n  report %r mask 4") == "");
  CHECK(lane("%r = loops_cut\n  report %r mask 0") == "report: the mask 0 is not one of bits 0 to 30");
  CHECK(lane("report %i mask 1") == "report: the condition must be bool[] but is i32[]");
  CHECK(lane("%r = fma %f, %f, %f") == "f32[]");
}

TEST_CASE("infer: every op has a rule: none falls through to an internal error") {
  ir::Kernel k;
  k.name = "k";
  Builder b(k);
  const ir::RegionId r = b.new_region({Type::array(f32, {2}), Type::ref(f32, {2}, ir::MemorySpace::vmem)});
  b.set_region(r);
  for (int c = 0; c < ir::kNumOpcodes; ++c)
    for (size_t operands = 0; operands < 4; ++operands)
      for (size_t first = 0; first < 2; ++first) {
        Op op{.code = static_cast<Opcode>(c)};
        for (size_t i = 0; i < operands; ++i) op.operands.push_back(b.arg(r, (i + first) % 2));
        try {
          ir::infer(k, op);
        } catch (const TraceError&) {
        }
      }
  CHECK_THROWS_WITH_AS(ir::infer(k, {.code = Opcode::neg, .operands = {Value{77}}}),
                       "k: neg: operand 0 is not a value of this kernel", TraceError);
}

}  // namespace infer_test
