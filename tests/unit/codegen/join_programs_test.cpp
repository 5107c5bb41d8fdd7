// Which programs that count in the same memory are joined: 128 of a GPU's 24 compute units become 64, or stay.
#include "codegen/tile/join_programs.h"

#include <doctest/doctest.h>

#include "codegen/tile/local_updates.h"
#include "tests/support/parsed.h"

namespace join_programs_test {
using namespace tessera;
using tessera::test::parse;

namespace {
/// How many programs are left of 128 that take a row of 1024 bytes each and count them.
int64_t programs_of(const std::string& arguments, const std::string& body) {
  ir::Kernel k = parse("kernel @k\ngrid (128)\ntext \"{}\"\n" + arguments + "out u32[16] whole any\n" + body +
                       "  %i = convert %a : i32[1024]\n  %one = constant 1 : u32[1024]\n"
                       "  %r = atomic_rmw %o[%i], %one kind add\n}\n");
  CHECK(lowering::update_locally(k, gpu_target()));
  return *k.grid[0].size.value();
}
const std::string kRows = "in u8[131072] block (1024) map (%i) { yield %i }\n", kTwo = kRows + kRows;
}  // namespace

TEST_CASE("joined programs: whose ops mean the same in any program, on blocks that follow each other") {
  const std::string load = "  %a = load %x[0:1024]\n";
  CHECK(programs_of(kRows, "body (%x, %o) {\n" + load) == 64);
  // A part of a block, another dim by an index array, and a block that all programs share.
  CHECK(programs_of("in u8[262144] block (2048) map (%i) { yield %i }\n",
                    "body (%x, %o) {\n  %a = load %x[1024:2048]\n") == 64);
  const std::string shared =
      "in u8[4, 1024] block (4, 1024) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %0, %0\n}\n";
  const std::string by_arrays =
      "body (%x, %y, %o) {\n  %1 = constant 1 : i32[1]\n  %b = load %y[%1, 0:1024]\n"
      "  %c = reshape %b : u8[1024]\n" +
      load;
  CHECK(programs_of(kRows + shared, by_arrays) == 64);
  CHECK(
      programs_of(kRows + "in u8[4, 131072] block (4, 1024) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %0, %i\n}\n",
                  by_arrays) == 64);
}

TEST_CASE("joined programs: not where a program knows its number, prints, loops or branches, or has scratch") {
  const std::string load = "  %a = load %x[0:1024]\n", begin = "body (%x, %o) {\n" + load;
  CHECK(programs_of(kRows, begin + "  %p = program_id axis 0\n") == 128);
  CHECK(programs_of(kRows, begin + "  %p = num_programs axis 0\n") == 128);
  CHECK(programs_of(kRows, begin + "  %m = load %x[0]\n  debug_print %m text 0\n") == 128);
  CHECK(programs_of(kRows,
                    "body (%x, %o) {\n  %0 = constant 0 : i32[]\n  %2 = constant 2 : i32[]\n"
                    "  %1 = constant 1 : i32[]\n  %s = load %x[0:1024]\n"
                    "  %a = for %n = %0 to %2 step %1 carry (%c = %s) {\n    %d = load %x[0:1024]\n"
                    "    %e = add %c, %d\n    yield %e\n  }\n") == 128);
  CHECK(programs_of(kRows,
                    "body (%x, %o) {\n  %s = load %x[0:1024]\n  %h = load %x[0]\n  %p = convert %h : bool[]\n"
                    "  %a = if %p {\n    %d = load %x[0:1024]\n    yield %d\n  } else { yield %s }\n") == 128);
  CHECK(programs_of(kRows + "",
                    "scratch ref<vmem, u8[1024]>\nbody (%x, %o, %s) {\n" + load + "  store %s[0:1024], %a\n") == 128);
}

TEST_CASE("joined programs: not where blocks do not follow each other, or are read by data along the axis") {
  const std::string load = "  %a = load %x[0:1024]\n", begin = "body (%x, %o) {\n" + load;
  const auto mapped = [&](const std::string& array, const std::string& map) {
    return programs_of(
        "in u8[" + array + " map (%i) {\n  %0 = constant 0 : i32[]\n  %2 = constant 2 : i32[]\n" + map + "\n}\n",
        begin);
  };
  CHECK(mapped("131072] block (1024)", "  %j = add %i, %0\n  yield %j") == 128);
  CHECK(mapped("262144] block (1024)", "  %j = mul %i, %2\n  yield %j") == 128);
  CHECK(mapped("131072] block (1024)", "  yield %i") == 64);
  CHECK(mapped("131071] block (1024)", "  yield %i") == 128);
  CHECK(mapped("132096] block (1024)", "  yield %i") == 128);
  CHECK(mapped("1024] block (1024)", "  yield %0") == 64);
  const auto two = [&](const std::string& array, const std::string& map) {
    return programs_of(kRows + "in u8[" + array + " map (%i) {\n  %0 = constant 0 : i32[]\n" + map + "\n}\n",
                       "body (%x, %y, %o) {\n  %b = load %y[0, 0:8]\n" + load);
  };
  CHECK(two("128, 1024] block (1, 8)", "  yield %i, %i") == 128);
  CHECK(two("128, 1024] block (1, 8)", "  yield %0, %i") == 64);
  const std::string first = "body (%x, %y, %o) {\n" + load + "  %b = load %y[0]\n  %at = convert %b : i32[]\n";
  CHECK(programs_of(kTwo, first + "  %c = load %y[ds(%at, 8)]\n") == 128);
  CHECK(programs_of(kTwo, first + "  %c = load %y[%at]\n") == 128);
  CHECK(programs_of(kTwo, first + "  %places = constant 3 : i32[8]\n  %c = load %y[%places]\n") == 128);
  CHECK(programs_of(kTwo, first + "  %c = load %y[5]\n") == 64);
}

}  // namespace join_programs_test
