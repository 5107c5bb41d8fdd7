#include "engine/ir/text.h"

#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <random>
#include <string>

#include "engine/ir/builder.h"

namespace text_test {
using namespace tessera;
using ir::parse, ir::print;

namespace {

const std::string kTile = R"(tir 1
kernel @add
grid (i: cdiv(n, 8) parallel, 4, b: n * 2 vmapped)
in f32[n, 1000] block (8, 256) map (%0, %1, %2) { yield %0, %1 }
in "bias" f32[16, 16] whole
in i32[n] block (squeezed) smem map (%3, %4, %5) {
  %6 = constant 1 : i32[]
  %7 = add %3, %6 : i32[]
  yield %7
}
out f32[n, 1000] block (8, 256) map (%8, %9, %10) { yield %8, %9 }
scratch ref<vmem, f32[8, 256]>
body (%11: ref<vmem, f32[8, 256]>, %12: ref<any, f32[16, 16]>, %13: ref<smem, i32[]>, %14: ref<vmem, f32[8, 256]>, %15: ref<vmem, f32[8, 256]>) {
  %16 = program_id axis 1 : i32[]
  %17 = load %11[0:8, 0:256] : f32[8, 256]
  %18 = load %12[3, %16] : f32[]
  %19 = load %13[] : i32[]
  %20 = broadcast %18 dims [] : f32[8, 256]
  %21 = add %17, %20 : f32[8, 256]
  %22 = constant 0 : i32[]
  %23 = constant 4 : i32[]
  %24 = constant 1 : i32[]
  %25, %26 = for %27 = %22 to %23 step %24 carry (%28 = %21: f32[8, 256], %29 = %19: i32[]) {
    %30 = constant true : bool[]
    %31 = if %30 {
      %32 = mul %28, %28 : f32[8, 256]
      yield %32
    } else { yield %28 }
    yield %31, %29
  }
  %33 = while (%34 = %26: i32[]) {
    %35 = lt %34, %23 : bool[]
    yield %35
  } do (%36: i32[]) {
    %37 = add %36, %24 : i32[]
    yield %37
  }
  %38 = switch %33 case 0 { yield %22 } case 1 {
    store %13[], %24
    yield %24
  }
  %39 = constant -0.0 : f32[4, 8]
  %40 = constant true : bool[4, 8]
  store %14[0:7:2, ds(%38, 8, 2)], %39 mask %40
  %41 = swap %15[0:4, ds(%38, 8)], %39 mask %40 other %39 : f32[4, 8]
  %42 = slice %41[0:4, 1:8:3] : f32[4, 3]
  %43 = reduce_sum %42 axes [0, 1] : f32[]
  %44 = dot %41, %39 lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[4, 4]
  %45 = constant false : bool[]
  if %45 {
    store %14[0, 3], %43
  }
}
)";

const std::string kLane = R"(tir 1
lane kernel @"strange \"name\""
workgroup_size 64 subgroup_size 32 shared_bytes 512 scratch_bytes 1024 report_bytes 8 max_workgroups 128
num_units cdiv(n, 64) exact
extents (n, n * m: i64)
in f32[n, m] whole
out f32[n, m] whole
body (%0: ref<global, f32[?]>, %1: ref<global, f32[?]>) {
  %2 = local_index : i32[]
  %3 = load %0[%2] : f32[]
  %4 = alloc_shared offset 128 : ref<shared, f32[64]>
  store %4[%2], %3
  barrier
  %5 = extent index 1 : i64[]
  %6 = view %1, %5 : ref<global, f32[?]>
  %7 = subgroup_reduce %3 kind add : f32[]
  %8 = subgroup_shuffle_xor %7 mask 4 : f32[]
  store %6[%2], %8
  %9 = loops_cut : bool[]
  report %9 mask 5
}
)";

std::string error(const std::string& text) {
  try {
    parse(text, "k.tir");
  } catch (const TraceError& e) {
    return e.what();
  }
  return "no error";
}

const std::string kStart = "tir 1\nkernel @k\nin f32[8] whole\nout f32[8] whole\nbody (%x, %o) {\n";
std::string body_error(const std::string& ops) { return error(kStart + ops + "}\n"); }

}  // namespace

TEST_CASE("text: both levels round-trip") {
  for (const std::string& text : {kTile, kLane}) {
    const ir::Kernel k = parse(text);
    CHECK(print(k) == text);
    const std::string located = print(k, true);
    CHECK(print(parse(located)) == text);
    CHECK(print(parse(located, "other"), true) == located);
  }
}

TEST_CASE("text: everything of a kernel comes back") {
  const ir::Kernel k = parse(kTile, "k.tir");
  CHECK(k.name == "add");
  CHECK(k.level == ir::Level::tile);
  CHECK(to_string(k.loc) == "k.tir:2");
  REQUIRE(k.grid.size() == 3);
  CHECK(k.grid[0] == ir::GridAxis{cdiv(dim("n"), 8), "i", true, false});
  CHECK(k.grid[1] == ir::GridAxis{4, "", false, false});
  CHECK(k.grid[2] == ir::GridAxis{dim("n") * 2, "b", false, true});
  CHECK(k.num_inputs == 3);
  CHECK(k.num_outputs() == 1);
  CHECK(k.blocks[0].origin == "in_specs[0]");
  CHECK(k.blocks[1].origin == "bias");
  CHECK(k.blocks[1].is_whole());
  CHECK(k.blocks[2].block() == std::vector<ir::BlockDim>{{ir::BlockDim::Squeezed{}}});
  CHECK(k.blocks[2].space == ir::MemorySpace::smem);
  CHECK(to_string(k.blocks[2].loc) == "k.tir:6");
  CHECK(k.scratch == std::vector<ir::Type>{ir::Type::ref(f32, {8, 256}, ir::MemorySpace::vmem)});
  const ir::Kernel lane = parse(kLane);
  CHECK(lane.level == ir::Level::lane);
  CHECK(lane.name == "strange \"name\"");
  CHECK(lane.lane.workgroup_size == 64);
  CHECK(lane.lane.subgroup_size == 32);
  CHECK(lane.lane.shared_bytes == 512);
  CHECK(lane.lane.scratch_bytes == 1024);
  CHECK(lane.lane.report_bytes == 8);
  CHECK(lane.lane.max_workgroups == 128);
  CHECK(lane.lane.num_units == cdiv(dim("n"), 64));
  CHECK(lane.lane.exact);
  CHECK(lane.lane.extents == std::vector<Extent>{dim("n"), dim("n") * dim("m")});
  CHECK(lane.lane.extent_is_64 == std::vector<bool>{false, true});
}

// What means nothing for a kind cannot be read.
TEST_CASE("ir: an entry of an index is an integer, a slice or an array") {
  using ir::Index;
  const Index integer = Index::at(3), slice{Index::Slice{Index::Dynamic{2}, 4, 3}}, array = Index::array(5);
  CHECK(integer.is_static());
  CHECK(integer.constant() == 3);
  CHECK(integer.slice() == nullptr);
  CHECK(integer.as_slice() == Index::Slice{3, 1});
  CHECK(*slice.operand() == 2);
  CHECK(slice.slice()->span() == 10);
  CHECK_THROWS(slice.constant());
  CHECK(*array.operand() == 5);
  CHECK_THROWS_AS(array.start(), InternalError);
  CHECK_THROWS_AS(array.as_slice(), InternalError);
  CHECK(Index::all(0).slice()->span() == 0);
  CHECK(Index::all(1) != Index::at(0));
  std::vector<Index> moved{integer, slice, array};
  for (Index& x : moved) x.shift(-2);
  CHECK(moved == std::vector{integer, Index{Index::Slice{Index::Dynamic{0}, 4, 3}}, Index::array(3)});
}

TEST_CASE("ir: a block's dim") {
  using D = ir::BlockDim;
  struct {
    D dim;
    int64_t size, low, high, unit;
    std::string text;
  } const cases[] = {{{D::Blocked{8}}, 8, 0, 0, 8, "8"},
                     {{D::Squeezed{}}, 1, 0, 0, 1, "squeezed"},
                     {{D::Element{8, 1, 2}}, 8, 1, 2, 1, "element(8, 1, 2)"},
                     {{D::BoundedSlice{8}}, 8, 0, 0, 1, "bounded(8)"},
                     {{D::Halo{8, 1, 2, ir::Edge::wrap}}, 11, 1, 2, 8, "halo(8, 1, 2, wrap)"}};
  for (const auto& c : cases) {
    CAPTURE(c.text);
    CHECK(c.dim.size() == c.size);
    CHECK(c.dim.low() == c.low);
    CHECK(c.dim.high() == c.high);
    CHECK(c.dim.unit() == c.unit);
    CHECK(ir::to_string(c.dim) == c.text);
  }
}

TEST_CASE("text: names, missing types and comments by hand") {
  const ir::Kernel k = parse(R"(tir 1
// a kernel as a person writes it
kernel @k
grid (4)
in f32[32] block (8) map (%i) { yield %i }
out f32[32] block (8)
  map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:8]  // kernels/a.py:12
  %b = add %a,
           %a  // not a location
  store %o[ds(0, 8)], %b
})",
                             "hand.tir");
  CHECK(print(k, true) == R"(tir 1
kernel @k  // hand.tir:3
grid (4)
in f32[32] block (8) map (%0) {  // hand.tir:5
  yield %0  // hand.tir:5
}
out f32[32] block (8) map (%1) {  // hand.tir:6
  yield %1  // hand.tir:7
}
body (%2: ref<vmem, f32[8]>, %3: ref<vmem, f32[8]>) {
  %4 = load %2[0:8] : f32[8]  // kernels/a.py:12
  %5 = add %4, %4 : f32[8]  // hand.tir:10
  store %3[0:8], %5  // hand.tir:12
}
)");
}

TEST_CASE("text: literals") {
  using ir::literal, ir::parse_literal;
  CHECK(literal(f32, std::bit_cast<uint32_t>(1.0f)) == "1.0");
  CHECK(literal(f32, std::bit_cast<uint32_t>(0.1f)) == "0.1");
  CHECK(literal(f32, std::bit_cast<uint32_t>(1e10f)) == "1e+10");
  CHECK(literal(f32, 0x80000000) == "-0.0");
  CHECK(literal(f32, 0x7f800000) == "inf");
  CHECK(literal(f32, 0xff800000) == "-inf");
  CHECK(literal(f32, 0x7fc00000) == "nan");
  CHECK(literal(f32, 0x7fc00001) == "0x7fc00001");
  CHECK(literal(i8, 0x80) == "-128");
  CHECK(literal(i64, uint64_t{1} << 63) == "-9223372036854775808");
  CHECK(literal(u64, ~uint64_t{0}) == "18446744073709551615");
  CHECK(literal(boolean, 1) == "true");
  CHECK(parse_literal(f32, "0.5") == std::bit_cast<uint32_t>(0.5f));
  CHECK(parse_literal(f16, "65504") == 0x7bff);
  CHECK_FALSE(parse_literal(f16, "65520"));
  CHECK_FALSE(parse_literal(f32, "1e999"));
  CHECK(parse_literal(f8e4m3fn, "464") == 0x7e);
  CHECK_FALSE(parse_literal(f8e4m3fn, "465"));
  CHECK_FALSE(parse_literal(f8e4m3fn, "inf"));  // it has none
  CHECK(parse_literal(f8e5m2, "-inf") == 0xfc);
  CHECK_FALSE(parse_literal(i4, "8"));
  CHECK(parse_literal(u4, "15") == 15);
  CHECK_FALSE(parse_literal(i8, "128"));
  CHECK(parse_literal(i8, "-128") == 0x80);
  CHECK(parse_literal(i8, "0xff") == 0xff);
  CHECK_FALSE(parse_literal(i8, "0x100"));
  CHECK_FALSE(parse_literal(u8, "-1"));
  CHECK_FALSE(parse_literal(boolean, "1"));
  CHECK_FALSE(parse_literal(f32, "infinity"));
  CHECK_FALSE(parse_literal(f32, ""));
  for (DType t : {f8e4m3fn, f8e5m2, f16, bf16, u4, i4, u8, i8, u16, i16})
    for (uint64_t b = 0; b < uint64_t{1} << bits(t); ++b)
      if (const auto back = parse_literal(t, literal(t, b)); !back || *back != b)
        FAIL_CHECK(name(t), " bits ", b, " print as ", literal(t, b));
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i)
    for (DType t : {f32, f64, i32, u32, i64, u64}) {
      const uint64_t b = bits(t) == 64 ? random() : random() & 0xffffffff;
      if (const auto back = parse_literal(t, literal(t, b)); !back || *back != b)
        FAIL_CHECK(name(t), " bits ", b, " print as ", literal(t, b));
    }
  for (uint64_t b : {uint64_t{1}, uint64_t{0x7fffff}, uint64_t{0x80000001}})
    CHECK(parse_literal(f32, literal(f32, b)) == b);
  CHECK(parse_literal(f64, literal(f64, 1)) == uint64_t{1});
}

TEST_CASE("text: syntax errors") {
  CHECK(error("") == "k.tir:1:1: expected 'tir 1' on the first line but found the end of the file");
  CHECK(error("\x7f"
              "ELF") ==
        "k.tir:1:1: expected 'tir 1' on the first line but found the byte 127\n  \x7f"
        "ELF\n  ^");
  CHECK(error("tir 2\n") ==
        "k.tir:1:5: version 2 of the text form is not known: this build reads version 1\n  tir 2\n      ^");
  CHECK(error("tir 1\nkernal @k\n") == "k.tir:2:1: expected 'kernel' but found 'kernal'\n  kernal @k\n  ^");
  CHECK(error("tir 1\nkernel @k\ngrid (n +)\n") ==
        "k.tir:3:10: expected a size but found ')'\n  grid (n +)\n           ^");
  CHECK(error("tir 1\nkernel @k\ngrid (n +\n") ==
        "k.tir:3:10: expected a size but found the end of the line\n  grid (n +\n           ^");
  CHECK(error("tir 1\nkernel @k\nin f32[8] block (8,\n") ==
        "k.tir:4:1: expected a block size, 'squeezed', 'element', 'bounded' or 'halo' but found the end of the file");
  CHECK(error("tir 1\nkernel @k\ngrid (2, -4)\n") ==
        "k.tir:3:10: grid axis 1: size -4 is negative\n  grid (2, -4)\n           ^");
  CHECK(error("tir 1\nkernel @k\ngrid (4.5)\n") ==
        "k.tir:3:8: expected ',' or ')' but found '.'\n  grid (4.5)\n         ^");
  CHECK(error("tir 1\nkernel @k\nin f32[8] whole block (8)\n") ==
        "k.tir:3:17: expected 'metadata', 'cost_estimate', 'compiler_params', 'grid', 'prefetch', 'in', 'out', "
        "'scratch', 'sizes', 'text' or 'body' but found 'block'\n  in f32[8] whole block (8)\n                  ^");
  CHECK(error("tir 1\nkernel @k\nin f33[8] whole\n") ==
        "k.tir:3:4: expected a dtype but found 'f33'\n  in f33[8] whole\n     ^");
  CHECK(error("tir 1\nkernel @k\nin f32[8]\nbody") ==
        "k.tir:4:1: expected 'whole', 'value' or 'block' but found 'body'\n  body\n  ^");
  CHECK(error("tir 1\nkernel @k\nout f32[8] whole\nin f32[8] whole\n") ==
        "k.tir:4:1: inputs come before outputs\n  in f32[8] whole\n  ^");
  CHECK(error("tir 1\nkernel @k\nworkgroup_size 64\n") ==
        "k.tir:3:1: 'workgroup_size' belongs to lane-level kernels\n  workgroup_size 64\n  ^");
  CHECK(error("tir 1\nkernel @k\nin f32[n] whole\nbody (%x) {}\n") ==
        "k.tir:4:6: in_specs[0]: a Ref without a BlockSpec needs static extents, but the array is (n,)\n  body (%x) "
        "{}\n       ^\n  at k.tir:3\n"
        "  note: give a BlockSpec with a static block shape");
  CHECK(body_error("  %1 = load %x[0:8\n") == "k.tir:7:1: expected ',' or ']' but found '}'\n  }\n  ^");
  CHECK(body_error("  %1 = lod %x[0:8]\n") == "k.tir:6:8: there is no op 'lod'\n    %1 = lod %x[0:8]\n         ^");
  CHECK(body_error("  %1 = load %y[0:8]\n") ==
        "k.tir:6:13: %y is not defined here\n    %1 = load %y[0:8]\n              ^");
  CHECK(body_error("  %1 = load %x[0:8]\n  %1 = load %x[0:8]\n") ==
        "k.tir:7:3: %1 is already defined on line 6\n    %1 = load %x[0:8]\n    ^");
  CHECK(body_error("  %1 = load %x[0:8] masked\n") ==
        "k.tir:6:21: expected the end of the line but found 'masked'\n    %1 = load %x[0:8] masked\n                   "
        "   ^");
  CHECK(body_error("  %1 = constant 300 : i8[]\n") ==
        "k.tir:6:17: '300' is not a constant of i8\n    %1 = constant 300 : i8[]\n                  ^");
  CHECK(body_error("  %1 = constant 300\n") == "k.tir:7:1: expected ':' and the result's type but found '}'\n  }\n  ^");
  CHECK(body_error("  %1 = load %x[99999999999999999999]\n") ==
        "k.tir:6:16: the number 99999999999999999999 does not fit 64 bits\n    %1 = load %x[99999999999999999999]\n    "
        "             ^");
  CHECK(body_error("  %1 = load %x[0:8] : f32[4]\n") ==
        "k.tir:6:23: the result is f32[8], not f32[4]\n    %1 = load %x[0:8] : f32[4]\n                        ^");
  CHECK(body_error("  load %x[0:8]\n") == "k.tir:6:3: load has 1 result but 0 are named\n    load %x[0:8]\n    ^");
  CHECK(body_error("  yield\n  yield\n") ==
        "k.tir:7:3: expected '}' after the yield but found 'yield'\n    yield\n    ^");
  CHECK(body_error("  %1 = iota axis 0 axis 0 : i32[4]\n") ==
        "k.tir:6:20: attribute axis is given twice\n    %1 = iota axis 0 axis 0 : i32[4]\n                     ^");
  CHECK(body_error("  %1 = iota axis 0 : i32[1099511627776, 1099511627776]\n") ==
        "k.tir:6:22: the type is too large: at most 32 dims and 2^40 elements are allowed\n    %1 = iota axis 0 : "
        "i32[1099511627776, 1099511627776]\n                       ^");
  CHECK(body_error("  %1 = load %x[4:2]\n") ==
        "k.tir:6:16: a slice start:stop:step needs start <= stop and a step of at least 1\n    %1 = load %x[4:2]\n     "
        "            ^");
  CHECK(error(kStart) == "k.tir:6:1: expected an op or '}' but found the end of the file");
}

TEST_CASE("text: what infer() refuses carries line, column and source") {
  CHECK(body_error("  %1 = load %x[0:8]\n  %2 = load %x[0:4]\n  %3 = add %1, %2\n") ==
        "k.tir:8:8: add: operands have shapes (8,) and (4,)\n    %3 = add %1, %2\n         ^\n  note: shapes must be "
        "equal or broadcast to one shape");
  CHECK(body_error("  %1 = load %x[4:12] // user.cpp:7\n") ==
        "k.tir:6:8: load: dim 0: slice of 8 from 4 is out of range for 8 elements\n    %1 = load %x[4:12] // "
        "user.cpp:7\n         ^\n  at user.cpp:7");
}

TEST_CASE("text: nesting is bounded") {
  std::string deep = kStart + "%p = constant true : bool[]\n";
  for (int i = 0; i < 100000; ++i) deep += "if %p {\n";
  CHECK(error(deep).starts_with("k.tir:206:7: regions are nested more than 200 deep"));
  CHECK(error("tir 1\nkernel @k\ngrid (" + std::string(100000, '('))
            .starts_with("k.tir:3:108: size expression is nested more than 100 deep"));
  std::string sum = "n";
  for (int i = 0; i < 100000; ++i) sum += " + n";
  CHECK(error("tir 1\nkernel @k\ngrid (" + sum + ")")
            .starts_with("k.tir:3:2013: size expression has more than 1000 terms"));
}

TEST_CASE("text: any mutation parses or throws TraceError, and what parses round-trips") {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string inserts[] = {"%",
                                 "(",
                                 ")",
                                 "{",
                                 "}",
                                 "[",
                                 "]",
                                 ":",
                                 ",",
                                 "=",
                                 "-",
                                 "0",
                                 "9",
                                 "\n",
                                 "//",
                                 "\"",
                                 "0x",
                                 "1e9",
                                 "nan",
                                 "99999999999",
                                 "-1",
                                 "yield ",
                                 "if %0 {",
                                 "ds(",
                                 "mask %1 ",
                                 "?",
                                 "ref<",
                                 "for ",
                                 "@",
                                 "\xff",
                                 std::string(1, '\0'),
                                 "squeezed",
                                 "halo(4, 1, 2, wrap)",
                                 "cdiv(",
                                 "case 2 "};
  int parsed = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = round % 2 ? kTile : kLane;
    for (size_t edits = 1 + pick(3); edits > 0; --edits) {
      const size_t at = pick(text.size());
      switch (pick(5)) {
        case 0: text.erase(at, 1 + pick(4)); break;
        case 1: text.insert(at, inserts[pick(std::size(inserts))]); break;
        case 2: text[at] = static_cast<char>(random()); break;
        case 3: text.insert(at, text.substr(pick(text.size()), 1 + pick(30))); break;
        default: text.resize(pick(20) ? text.size() : at + 1); break;
      }
      if (text.empty()) text = "t";
    }
    try {
      const std::string once = print(parse(text));
      const std::string twice = print(parse(once));
      if (once != twice) FAIL_CHECK("not a fixed point:\n", text, "\n", once, "\n", twice);
      ++parsed;
    } catch (const TraceError&) {
      ++refused;
    } catch (const std::exception& e) {
      FAIL_CHECK("threw something else: ", e.what(), "\n", text);
    }
  }
  CHECK(parsed > 100);
  CHECK(refused > 1000);
}

}  // namespace text_test
