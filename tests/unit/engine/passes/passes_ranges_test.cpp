// The ranges of the passes, exactly: that they hold is the fuzzer's to see (fuzz/claims.h) and, op by op, that of the
// last case here; that they are no wider than they need be is seen in the others.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/passes/interval.h"
#include "engine/passes/ranges.h"

namespace passes_ranges_test {
using namespace tessera;
namespace {

/// Of what the last op makes, "[lo, hi]".
std::string last_range(const std::string& text) {
  const ir::Kernel k = ir::parse(text, "k.tir");
  passes::Ranges ranges(k);
  ir::Value last;
  for (const ir::OpId id : k.region(k.body).ops) {
    const ir::Op& o = k.op(id);
    if (o.results.empty()) continue;
    last = o.results[0];
    ranges.set(last, ranges.compute(o, k.type(last)));
  }
  const Bounds r = ranges.of(last);
  return r ? "[" + std::to_string(r->lo) + ", " + std::to_string(r->hi) + "]" : "none";
}
std::string tile(const std::string& ops) {
  return last_range(
      "tir 1\nkernel @k\ngrid (4, n, 0, 2147483648)\nin i32[8] whole\nin u8[8] whole\nbody (%x, %y) {\n  %c = constant "
      "7 : i32[]\n  %l = load %x[0]\n" +
      ops + "}\n");
}
std::string lane(const std::string& ops, const std::string& subgroup = " subgroup_size 8",
                 const std::string& units = "n") {
  return last_range("tir 1\nlane kernel @k\nworkgroup_size 60" + subgroup + "\nnum_units " + units +
                    "\nextents (n, n - 1, 5, cdiv(n, 4): i64, -3)\nin i32[8] whole\nbody (%x) {\n" + ops + "}\n");
}
}  // namespace

TEST_CASE("ranges: of tile-level ops") {
  CHECK(tile("  %r = constant -5 : i32[4]\n") == "[-5, -5]");
  CHECK(tile("  %r = constant 250 : u8[]\n") == "[250, 250]");
  CHECK(tile("  %r = constant -3 : i8[]\n") == "[-3, -3]");
  CHECK(tile("  %r = constant 9223372036854775807 : u64[]\n") == "[9223372036854775807, 9223372036854775807]");
  CHECK(tile("  %r = constant 9223372036854775808 : u64[]\n") == "none");
  CHECK(tile("  %r = constant true : bool[]\n") == "[1, 1]");
  CHECK(tile("  %r = constant 1.0 : f32[]\n") == "none");
  CHECK(tile("  %r = load %y[0:8]\n") == "[0, 255]");
  CHECK(tile("  %r = iota axis 0 : i32[8]\n") == "[0, 7]");
  CHECK(tile("  %r = iota axis 1 : i32[8, 1]\n") == "[0, 0]");
  CHECK(tile("  %r = iota axis 0 : i8[200]\n") == "[-128, 127]");  // it wraps
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = broadcast %a dims [1] : i32[3, 8]\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = reshape %a : i32[2, 4]\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8, 2]\n  %r = transpose %a perm [1, 0]\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = slice %a[2:4]\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = rev %a axes [0]\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = cummax %a axis 0\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = cummin %a axis 0\n") == "[0, 7]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %r = cumsum %a axis 0\n") == "[-2147483648, 2147483647]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %b = constant -2 : i32[3]\n  %d = constant 9 : i32[1]\n  %r = concatenate "
             "%a, %b, %d axis 0\n") == "[-2, 9]");
  CHECK(tile("  %a = iota axis 0 : i32[8]\n  %b = load %x[0:8]\n  %r = concatenate %a, %b axis 0\n") ==
        "[-2147483648, 2147483647]");
  CHECK(tile("  %a = load %x[0:8]\n  %r = argmax %a axis 0 : i32[]\n") == "[0, 7]");
  CHECK(tile("  %a = load %x[3:4]\n  %r = argmin %a axis 0 : i32[]\n") == "[0, 0]");
  CHECK(tile("  %r = program_id axis 0\n") == "[0, 3]");
  CHECK(tile("  %r = program_id axis 1\n") == "[0, 2147483647]");
  CHECK(tile("  %r = program_id axis 2\n") == "[0, 0]");
  CHECK(tile("  %r = program_id axis 3\n") == "[0, 2147483647]");
  CHECK(tile("  %r = num_programs axis 0\n") == "[4, 4]");
  CHECK(tile("  %r = num_programs axis 1\n") == "[0, 2147483647]");
  CHECK(tile("  %r = num_programs axis 2\n") == "[0, 0]");
}

TEST_CASE("ranges: of lane-level ops") {
  CHECK(lane("  %r = workgroup_index\n") == "[0, 2147483647]");
  CHECK(lane("  %r = workgroup_index\n", "", "7") == "[0, 2147483647]");  // surplus ones count on
  CHECK(lane("  %r = workgroup_index\n", "", "7 exact") == "[0, 6]");
  CHECK(lane("  %r = workgroup_index\n", "", "0 exact") == "[0, 0]");
  CHECK(lane("  %r = workgroup_index\n", "", "n exact") == "[0, 2147483647]");
  CHECK(lane("  %r = num_workgroups\n") == "[1, 2147483647]");
  CHECK(lane("  %r = local_index\n") == "[0, 59]");
  CHECK(lane("  %r = lane_id\n") == "[0, 7]");
  CHECK(lane("  %r = lane_id\n", "") == "[0, 127]");
  CHECK(lane("  %r = subgroup_id\n") == "[0, 7]");
  CHECK(lane("  %r = subgroup_id\n", "") == "[0, 59]");
  CHECK(lane("  %r = extent index 0 : i32[]\n") == "[0, 2147483647]");
  CHECK(lane("  %r = extent index 1 : i32[]\n") == "[-2147483648, 2147483647]");
  CHECK(lane("  %r = extent index 2 : i32[]\n") == "[0, 5]");
  CHECK(lane("  %r = extent index 3 : i64[]\n") == "[0, 9223372036854775807]");
  CHECK(lane("  %r = extent index 4 : i32[]\n") == "[-2147483648, 2147483647]");
}

TEST_CASE("ranges: what never wraps, up to the last number of each dtype") {
  const auto never = [](ir::Opcode op, DType t, Bounds a, Bounds b) { return never_wraps(op, t, a, b); };
  const struct {
    DType t;
    int64_t least, most;
  } all[] = {{DType::i8, INT8_MIN, INT8_MAX},   {DType::u8, 0, UINT8_MAX},          {DType::i16, INT16_MIN, INT16_MAX},
             {DType::u16, 0, UINT16_MAX},       {DType::i32, INT32_MIN, INT32_MAX}, {DType::u32, 0, UINT32_MAX},
             {DType::i64, INT64_MIN, INT64_MAX}};
  for (const auto& [dtype, least, most] : all) {
    const DType t = dtype;
    CAPTURE(name(t));
    CHECK(never(ir::Opcode::add, t, Interval{0, most - 1}, Interval{0, 1}));
    CHECK_FALSE(never(ir::Opcode::add, t, Interval{0, most - 1}, Interval{0, 2}));
    CHECK(never(ir::Opcode::sub, t, Interval{least + 1, 5}, Interval{0, 1}));
    CHECK_FALSE(never(ir::Opcode::sub, t, Interval{least + 1, 5}, Interval{0, 2}));
    CHECK(never(ir::Opcode::mul, t, Interval{0, most / 2}, Interval{0, 2}));
    CHECK_FALSE(never(ir::Opcode::mul, t, Interval{0, most / 2 + 1}, Interval{0, 2}));
    CHECK_FALSE(never(ir::Opcode::add, t, {}, Interval{0, 1}));
    CHECK(never(ir::Opcode::add, t, {}, Interval{0, 0}));
  }
}

// Of 8 bits every pair of ends is tried: around 0, the width, and the ends of the dtype.
TEST_CASE("ranges: every result of an op on integers lies in its bounds, which are as narrow as they were") {
  const auto number = [](DType t, uint64_t bits) {
    return is_signed_int(t) ? int64_t{static_cast<int8_t>(bits)} : static_cast<int64_t>(bits & 0xff);
  };
  struct Operand {
    Interval bounds;
    std::vector<uint64_t> values;
  };
  const auto operands = [&](const std::vector<int64_t>& ends) {
    std::vector<Operand> all;
    for (size_t i = 0; i < ends.size(); ++i)
      for (size_t j = i; j < ends.size(); ++j) {
        all.push_back({{ends[i], ends[j]}, {}});
        for (size_t n = i; n <= j; ++n) all.back().values.push_back(static_cast<uint64_t>(ends[n]) & 0xff);
      }
    return all;
  };
  using ir::Opcode;
  const struct {
    Opcode op;
    int64_t width[2];  // of all claims together, for i8 and u8: a claim that gets wider is seen here
  } all[] = {{Opcode::add, {303807, 181766}},
             {Opcode::sub, {302068, 198310}},
             {Opcode::mul, {387364, 216301}},
             {Opcode::neg, {4204, 8925}},
             {Opcode::abs, {4038, 3440}},
             {Opcode::sign, {40, 7}},
             {Opcode::max, {119660, 112939}},
             {Opcode::min, {117130, 57109}},
             {Opcode::div, {368634, 107092}},
             {Opcode::rem, {365283, 118369}},
             {Opcode::clamp, {40679, 5335}},
             {Opcode::not_, {3094, 3440}},
             {Opcode::and_, {241531, 64604}},
             {Opcode::or_, {456023, 142348}},
             {Opcode::xor_, {465404, 217589}},
             {Opcode::shift_left, {488752, 240514}},
             {Opcode::clz, {360, 288}},
             {Opcode::eq, {1281, 608}},
             {Opcode::ne, {1281, 608}},
             {Opcode::lt, {1190, 542}},
             {Opcode::le, {1160, 562}},
             {Opcode::gt, {1160, 562}},
             {Opcode::ge, {1190, 542}},
             {Opcode::population_count, {360, 288}},
             {Opcode::shift_right_logical, {381463, 88557}},
             {Opcode::shift_right_arithmetic, {157093, 166640}}};
  for (const DType t : {DType::i8, DType::u8}) {
    const bool is_signed = t == DType::i8;
    const std::vector<Operand> left = operands(is_signed ? std::vector<int64_t>{-128, -65, -8, -1, 0, 1, 7, 100, 127}
                                                         : std::vector<int64_t>{0, 1, 7, 100, 127, 128, 254, 255}),
                               right = operands(is_signed ? std::vector<int64_t>{-128, -7, -1, 0, 1, 3, 7, 8, 127}
                                                          : std::vector<int64_t>{0, 1, 3, 7, 8, 128, 255});
    for (const auto& entry : all) {
      const Opcode op = entry.op;  // clang 14 captures no structured bindings in CAPTURE's lambda
      const int64_t* const width = entry.width;
      const int arity = ir::info(op).arity;
      const bool compares = op == Opcode::eq || op == Opcode::ne || op == Opcode::lt || op == Opcode::le ||
                            op == Opcode::gt || op == Opcode::ge;
      const DType result = compares ? DType::boolean : t;
      int64_t claimed = 0;
      const Operand one{{is_signed ? -7 : 3, 8}, {static_cast<uint64_t>(is_signed ? -7 : 3) & 0xff, 8}};
      for (const Operand& a : left)
        for (const Operand& b : arity == 1 ? std::vector<Operand>{one} : right) {
          std::vector<Bounds> given{a.bounds};
          if (arity > 1) given.emplace_back(b.bounds);
          if (arity > 2) given.emplace_back(one.bounds);
          const Bounds claim = result_bounds(op, t, result, given);
          claimed += claim ? claim->hi - claim->lo : 255;
          for (const uint64_t x : a.values)
            for (const uint64_t y : b.values)
              for (const uint64_t z : one.values) {
                const uint64_t in[] = {x, y, z}, bits = reference::eval(op, t, result, in);
                const int64_t r = compares ? static_cast<int64_t>(bits & 1) : number(t, bits);
                if (contains(claim, r)) continue;
                FAIL_CHECK(name(t) << " " << ir::name(op) << "(" << number(t, x) << ", " << number(t, y) << ") is " << r
                                   << ", for operands in [" << a.bounds.lo << ", " << a.bounds.hi << "] and ["
                                   << b.bounds.lo << ", " << b.bounds.hi << "] claimed to be in [" << claim->lo << ", "
                                   << claim->hi << "]");
              }
        }
      CAPTURE(name(t));
      CAPTURE(ir::name(op));
      CHECK(claimed == width[is_signed ? 0 : 1]);
    }
  }
}

}  // namespace passes_ranges_test
