// Sizes around 2^31: positions, program ids and units of work are i32 in code, so what is larger is refused with its
// number, never cut off.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "codegen/compile.h"
#include "codegen/lane/lane_builder.h"
#include "engine/ir/text.h"

namespace sizes_test {
using namespace tessera;

namespace {
/// The error's text, or "".
std::string refused(const std::string& text, const Target& target = gpu_target()) {
  try {
    compile(ir::parse("tir 1\nkernel @k\n" + text), target);
  } catch (const CompileError& e) {
    return std::string(e.what()).substr(0, std::string(e.what()).find('\n'));
  }
  return "";
}
std::string too_many(const std::string& what, const std::string& n, const std::string& of) {
  return "k: " + what + " has " + n + " " + of + ", but at most 2147483647 are numbered, in 32 bits";
}

std::string blocks(const std::string& grid, const std::string& n, const std::string& block) {
  const std::string map = " block (" + block + ") map (%i) { yield %i }\n";
  return "grid (" + grid + ")\nin i32[" + n + "]" + map + "out i32[" + n + "]" + map +
         "body (%x, %o) {\n  %v = load %x[0:" + block + "]\n  store %o[0:" + block + "], %v\n}\n";
}
std::string whole(const std::string& shape) {
  return "in i32[" + shape +
         "] whole\nin i32[1] whole\nout i32[1] whole\nbody (%x, %p, %o) {\n  %i = load %p[0]\n  %v = load %x[%i, %i]\n "
         " store %o[0], %v\n}\n";
}
std::string units(const std::string& n) {
  return "grid (65536, " + n + ")\nout i32[65536, " + n +
         "] block (1, 1) map (%i, %j) { yield %i, %j }\nbody (%o) {\n  %c = constant 0 : i32[1, 1]\n  store %o[0:1, "
         "0:1], %c\n}\n";
}
std::string value(const std::string& n) {
  return "out i32[1] whole\nbody (%o) {\n  %i = iota axis 0 : i32[" + n +
         "]\n  %v = reduce_sum %i axes [0] : i32[]\n  store %o[0], %v\n}\n";
}
}  // namespace

TEST_CASE("sizes: 2^31 - 1 elements compile, what lies at 2^31 and beyond is refused") {
  CHECK(refused(blocks("4", "2147483647", "8")) == "");
  CHECK(refused(whole("3, 2147483647")) == "");
  CHECK(refused(value("2147483647")) == "");
  CHECK(refused(blocks("536870913", "2147483648", "8")) == "");  // the last block starts at 2^31 - 8
  CHECK(refused(blocks("536870913", "4294967296", "8")) ==
        too_many("in_specs[0]: dim 0 of its array", "4294967296", "elements"));
  for (const std::string n : {"2147483648", "4294967296"}) {
    CHECK(refused(blocks("4", n, "8")) == "");  // no program gets there
    CHECK(refused(blocks("4", "n", n)) == too_many("in_specs[0]: dim 0 of its block", n, "elements"));
    CHECK(refused(whole("3, " + n)) == too_many("in_specs[0]: dim 1 of its array", n, "elements"));
    CHECK(refused(value(n)) == too_many("a value of shape (" + n + ",)", n, "elements"));
  }
}

// An index of -1 is the last one: also where no program id comes near.
TEST_CASE("sizes: what wraps to an element at 2^31 or beyond is refused") {
  const auto from_end = [](const std::string& n, const std::string& block, const std::string& index) {
    return "in u8[" + n + "] block (" + block + ") map () {\n  %i = constant " + index +
           " : i32[]\n  yield %i\n}\nout u8[1] whole\nbody (%x, %o) {\n  %v = load %x[" +
           (block == "squeezed" ? "" : "0") + "]\n  store %o[0], %v\n}\n";
  };
  for (const std::string block : {"squeezed", "8", "element(8)", "element(8, 3, 5)"}) {
    CAPTURE(block);
    CHECK(refused(from_end("2147483640", block, "-1")) == "");
    CHECK(refused(from_end("4294967296", block, "0")) == "");
    CHECK(refused(from_end("4294967296", block, "-1")) ==
          too_many("in_specs[0]: dim 0 of its array", "4294967296", "elements"));
  }
  CHECK(refused(from_end("2147483645", "element(8, 3, 5)", "-1")) ==
        too_many("in_specs[0]: dim 0 of its array", "2147483645", "elements"));
  // Of these the last index lies behind 2^31, where all is padding.
  CHECK(refused(from_end("2147483640", "element(8, 3, 500)", "-1")) == "");
}

TEST_CASE("sizes: programs and units of work") {
  CHECK(refused(blocks("9223372036854775807", "16", "8")) ==
        too_many("grid axis 0", "9223372036854775807", "programs"));
  CHECK(refused(blocks("2147483648", "16", "8")) == too_many("grid axis 0", "2147483648", "programs"));
  CHECK(refused(units("16384")) == "");
  for (const std::string n : {"16385", "32768", "65536"})
    CHECK(refused(units(n)) ==
          "k: 65536 times " + n + " units of work run at once, but at most 1073741824 are numbered, in 32 bits");
}

TEST_CASE("sizes: a constant that is no i32 is an error, sums of constants wrap") {
  ir::Kernel k;
  k.name = "k";
  lowering::LaneBuilder b(k);
  CHECK_THROWS_AS(b.i32(int64_t{1} << 31), InternalError);
  CHECK_THROWS_AS(b.i32(-(int64_t{1} << 31) - 1), InternalError);
  CHECK(b.known(b.add(b.i32(INT32_MAX), b.i32(1))) == INT32_MIN);
  CHECK(b.known(b.mul(b.i64(int64_t{1} << 62), b.i64(2))) == INT64_MIN);
}

TEST_CASE("sizes: offsets are of 64 bits where a block's span passes 2 GiB") {
  const auto views = [](const std::string& type) {
    ir::Kernel lanes;
    CompileOptions o;
    o.dump = [&](std::string_view, const ir::Kernel& now, bool) { lanes = now; };
    compile(ir::parse("tir 1\nkernel @k\nin i32[2] whole\nin " + type +
                          " whole\nout i32[1] whole\nbody (%n, %x, %o) {\n  %i = load %n[0]\n  %j = load %n[1]\n  %v = "
                          "load %x[%i, %j]\n  %w = convert %v : i32[]\n  store %o[0], %w\n}\n",
                      "k.tir"),
            gpu_target(), o);
    return std::count_if(lanes.ops.begin(), lanes.ops.end(),
                         [](const ir::Op& op) { return op.code == ir::Opcode::view; });
  };
  CHECK(views("i8[2, 1024]") == 0);
  CHECK(views("i8[1, 2147483647]") == 0);
  CHECK(views("i8[2, 1073741824]") == 1);
  CHECK(views("i32[512, 1048575]") == 0);
  CHECK(views("i32[513, 1048576]") == 1);
  CHECK(views("f64[257, 1048576]") == 1);
  CHECK(views("i8[65536, 65536]") == 1);
}

TEST_CASE("sizes: arrays of more elements than a proof can number") {
  const auto of = [](const std::string& n) {
    return refused("grid (4)\nin f32[" + n +
                   "] block (2) map (%i) { yield %i }\nout f32[8] block (2) map (%i) { yield %i "
                   "}\nbody (%x, %o) {\n  %v = load %x[0:2]\n  store %o[0:2], %v\n}\n");
  };
  CHECK(of("36028797018963968") == "");
  CHECK(of("36028797018963969") == "k: in_specs[0]: its array (36028797018963969,) has more than 2^55 elements");
}

TEST_CASE("sizes: a value in the arena has fewer elements than an eighth of what 32 bits number") {
  const auto of = [](const std::string& n) {
    const std::string in = "in f32[" + n + "] whole\nout f32[1] whole\nbody (%x, %o) {\n  %v = load %x[0:" + n + "]\n";
    return refused(in + "  %s = cumsum %v axis 0\n  %l = slice %s[0:1]\n  store %o[0:1], %l\n}\n", lavapipe_target());
  };
  CHECK(of("268435455") == "");
  CHECK(of("268435456") == "k: a value of shape (268435456,) is too large for the arena");
}

TEST_CASE("sizes: a launch may lower the number of units where a loop over them alone reads it") {
  const auto extent = [](const std::string& n, bool general, bool skips) {
    const std::string part = n +
                             ", 9, 4, 4096] block (1, 1, 4, 4096) map (%i, %j) {\n  %0 = constant 0 : i32[]\n"
                             "  yield %i, %j, %0, %0\n}\n";
    Target t = gpu_target();
    t.skips_branches = skips;
    CompileOptions o;
    o.general = general;
    const Program p = compile(ir::parse("tir 1\nkernel @k\ngrid (" + n + ", 9)\nin f32[" + part + "out f32[" + part +
                                        "body (%x, %o) {\n  %a = load %x[0, 0, 0:4, 0:4096]\n  %b = mul %a, %a\n"
                                        "  store %o[0, 0, 0:4, 0:4096], %b\n}\n"),
                              t, o);
    if (p.units_extent < 0) return std::string("none");
    return to_string(p.extents.at(static_cast<size_t>(p.units_extent)));
  };
  CHECK(extent("n", true, true) == "n * 9");
  CHECK(extent("n", true, false) == "none");  // addresses of loads in the loop are brought inside by it too
  CHECK(extent("5", true, true) == "45");
  CHECK(extent("5", true, false) == "none");
  CHECK(extent("n", false, true) == "none");  // in registers: no loop
}

}  // namespace sizes_test
