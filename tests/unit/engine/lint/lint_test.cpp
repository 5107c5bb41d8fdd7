// The lints: what each says, what silences it, and that what is said of the files of tests/tir is so, by the
// interpreter.
#include "engine/lint/lint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "tests/support/messages.h"

namespace lint_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::note;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
using Texts = std::vector<std::string>;
Texts of(const std::string& tir) { return ts::lints(ts::ir::parse("tir 1\n" + tir, "k.tir"), {}); }
const std::string kStore =
    "\n  note: store to every block, make the grid cover the array, or alias the output to an input";
const std::string kFirst =
    "\n  note: store what it starts with first; a program that adds to what others left does so "
    "once, in the first of them";
const std::string kMask =
    "\n  note: replace them first, as in where(position < size, x, 0), or load with a mask and other";
const std::string kPad = "\n  note: pad the Element dim so that the last block fits";

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}
/// A map from one grid axis to a block's number, or `times` that.
std::string map(int times = 1) {
  return "map (%i) {\n  %n = constant " + std::to_string(times) + " : i32[]\n  %b = mul %i, %n\n  yield %b\n}\n";
}
}  // namespace

TEST_CASE("lints: elements that no program stores") {
  const std::string in = "in f32[10] block (4) " + map(), out = "out f32[10] block (4) " + map();
  const std::string body = "body (%x, %o) {\n  %v = load %x[0:4]\n  store %o[0:4], %v\n}\n";
  CHECK(of("kernel @k\ngrid (3)\n" + in + out + body) == Texts{});
  CHECK(of("kernel @k\ngrid (2)\n" + in + out + body) ==
        Texts{"k: out_specs[0]: no program stores 2 of its 10 elements, (8,) the first: what is there comes back\n  at "
              "k.tir:9" +
              kStore});
  CHECK(of("kernel @k\ngrid (0)\n" + in + out + body) ==
        Texts{"k: out_specs[0]: no program stores any of its 10 elements: what is there comes back\n  at k.tir:9" +
              kStore});
  // Part of each block, by where the program is; and where data decides, anything may be stored.
  const auto part = [&](const std::string& store) {
    return of("kernel @k\ngrid (3)\nin f32[10] block (4) " + map() + "in i32[1] whole\n" + out +
              "body (%x, %n, %o) {\n  %v = load %x[0:2]\n  %i = program_id axis 0\n  %one = constant 1 : i32[]\n"
              "  %d = load %n[0]\n  %c = eq %i, %one\n" +
              store + "}\n");
  };
  CHECK(part("  store %o[0:2], %v\n") ==
        Texts{"k: out_specs[0]: no program stores 4 of its 10 elements, (2,) the first: what is there comes back\n  at "
              "k.tir:10" +
              kStore});
  CHECK(part("  store %o[0:2], %v\n  if %c {\n    store %o[2:4], %v\n  }\n") ==
        Texts{"k: out_specs[0]: no program stores 2 of its 10 elements, (2,) the first: what is there comes back\n  at "
              "k.tir:10" +
              kStore});
  CHECK(part("  store %o[0:2], %v\n  store %o[ds(%i, 2)], %v\n") ==
        Texts{"k: out_specs[0]: no program stores 3 of its 10 elements, (2,) the first: what is there comes back\n  at "
              "k.tir:10" +
              kStore});
  CHECK(part("  store %o[ds(%d, 2)], %v\n") == Texts{});
  CHECK(part("  store %o[0:2], %v\n  for %j = %i to %d step %one {\n    store %o[2:4], %v\n  }\n") == Texts{});
  // No elements, or those of an input.
  CHECK(of("kernel @k\ngrid (2)\nin f32[0] block (4) " + map() + "out f32[0] block (4) " + map() + body) == Texts{});
  CHECK(of("kernel @k\ngrid (2)\n" + in + "out f32[10] alias 0 block (4) " + map() + body) == Texts{});
}

TEST_CASE("lints: memory that is read before anything is stored there") {
  const auto sum = [](const std::string& first, const std::string& after = "") {
    return of("kernel @k\ngrid (3)\nin f32[12] block (4) " + map() +
              "out f32[4] block (4) map (%i) {\n  %z = constant 0 : i32[]\n  yield %z\n}\nscratch ref<vmem, f32[4]>\n"
              "body (%x, %o, %s) {\n  %v = load %x[0:4]\n  %i = program_id axis 0\n  %zero = constant 0 : i32[]\n"
              "  %f = constant 0.0 : f32[4]\n" +
              first + "  addupdate %o[0:4], %v\n" + after + "}\n");
  };
  const std::string early =
      "k: out_specs[0]: program (0) reads it (addupdate) before anything is stored there\n  at k.tir:";
  CHECK(sum("") == Texts{early + "19" + kFirst});
  CHECK(sum("  store %o[0:4], %f\n") == Texts{});
  CHECK(sum("  %c = eq %i, %zero\n  if %c {\n    store %o[0:4], %f\n  }\n") == Texts{});
  CHECK(sum("  %one = constant 1 : i32[]\n  %c = eq %i, %one\n  if %c {\n    store %o[0:4], %f\n  }\n") ==
        Texts{early + "24" + kFirst});
  // In part: what is stored has nothing of what is read.
  CHECK(sum("  %half = constant 0.0 : f32[2]\n  store %o[0:2], %half\n  %w = load %o[2:4]\n  store %o[2:4], %w\n") ==
        Texts{"k: out_specs[0]: program (0) reads it (load) before anything is stored there\n  at k.tir:21" + kFirst});
  CHECK(sum("  store %o[0:4], %f\n", "  %u = load %s[0:4]\n  store %o[0:4], %u\n") ==
        Texts{"k: scratch_shapes[0]: program (0) reads it (load) before anything is stored there\n  at k.tir:21" +
              kFirst});
  CHECK(sum("  store %o[0:4], %f\n", "  %u = load %s[0:4]\n") == Texts{});  // nobody looks at it
}

TEST_CASE("lints: Element blocks that do not fit") {
  const auto tiles = [](int n, const std::string& block) {
    return of("kernel @k\ngrid (" + std::to_string((n + 15) / 16) + ")\nin f32[" + std::to_string(n) + "] block (" +
              block + ") " + map(16) + "out f32[" + std::to_string(n) + "] block (16) " + map() +
              "body (%x, %o) {\n  %v = load %x[0:16]\n  store %o[0:16], %v\n}\n");
  };
  // Tiles of 16 with a halo of 2, as they are obviously written.
  CHECK(tiles(48, "element(20, 2, 2)") == Texts{});
  CHECK(tiles(33, "element(20, 2, 2)") ==
        Texts{"k: in_specs[0]: in program (2) the index map gives 32 along dim 0, where an Element block of 20 in 33 "
              "elements padded by 2 and 2 starts at 0 to 20: it starts at 20\n  at k.tir:4" +
              kPad});
  CHECK(tiles(33, "element(20, 2, 17)") == Texts{});
}

TEST_CASE("lints: overhang that is reduced or contracted") {
  const auto rows = [](const std::string& ops, const std::string& dtype = "f32") {
    return of("kernel @k\ngrid (3)\nin " + dtype + "[10] block (4) " + map() + "out " + dtype + "[3] block (1) " +
              map() + "body (%x, %o) {\n  %v = load %x[0:4]\n" + ops + "  store %o[0:1], %r\n}\n");
  };
  const auto expected = [](const std::string& op, int line) {
    return Texts{"k: in_specs[0]: in program (2) dim 0 of the block has 2 elements beyond the array, and " + op +
                 " takes them in without a mask: what it stores to out_specs[0] is unspecified\n  at k.tir:" +
                 std::to_string(line) + kMask};
  };
  const std::string one = "  %r = reshape %s : f32[1]\n";
  CHECK(rows("  %s = reduce_sum %v axes [0]\n" + one) == expected("reduce_sum", 16));
  CHECK(rows("  %w = mul %v, %v\n  %t = exp %w\n  %s = reduce_max %t axes [0]\n" + one) == expected("reduce_max", 18));
  CHECK(rows("  %s = dot %v, %v lhs_contract [0] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[]\n" + one) ==
        expected("dot", 16));
  // The elements that are there; a choice by position, or by the data itself; a scan, whose first sums see none of it.
  CHECK(rows("  %t = slice %v[0:2]\n  %s = reduce_sum %t axes [0]\n" + one) == Texts{});
  const std::string position = "  %p = iota axis 0 : i32[4]\n  %two = constant 2 : i32[4]\n  %c = lt %p, %two\n";
  const std::string zero = "  %z = constant 0.0 : f32[4]\n";
  CHECK(rows(position + zero + "  %t = select %c, %v, %z\n  %s = reduce_sum %t axes [0]\n" + one) == Texts{});
  CHECK(rows(zero + "  %c = lt %v, %z\n  %t = select %c, %z, %v\n  %s = reduce_sum %t axes [0]\n" + one) ==
        expected("reduce_sum", 19));
  CHECK(rows("  %t = cumsum %v axis 0\n  %r = slice %t[1:2]\n") == Texts{});
  CHECK(rows("  %t = cumsum %v axis 0 reverse 1\n  %r = slice %t[1:2]\n") == expected("cumsum", 16));
  CHECK(rows("  %t = rev %v axes [0]\n  %u = cumsum %t axis 0\n  %r = slice %u[3:4]\n") == expected("cumsum", 17));
  // A mask of integers.
  CHECK(rows("  %p = iota axis 0 : i32[4]\n  %one = constant 1 : i32[4]\n  %m = lt %p, %one\n  %n = convert %m : "
             "i32[4]\n  %t = mul %v, %n\n  %s = reduce_sum %t axes [0]\n  %r = reshape %s : i32[1]\n",
             "i32") == Texts{});
  CHECK(rows("  %s = reduce_sum %v axes [0]\n  %r = reshape %s : i32[1]\n", "i32") == expected("reduce_sum", 16));
}

TEST_CASE("lints: what is beside an array, chosen by data, stored again or for nobody is none") {
  const std::string one = "  %r = reshape %s : f32[1]\n";
  // Groups of two, of which the last program's last two lie beyond both arrays.
  std::string pool =
      "kernel @pool\ngrid (2)\nin f32[12] block (8) " + map() + "out f32[6] block (4) " + map() + "body (%x, %o) {\n";
  for (int g = 0; g < 4; ++g) {
    const std::string n = std::to_string(g);
    pool += "  %v" + n + " = load %x[" + std::to_string(2 * g) + ":" + std::to_string(2 * g + 2) + "]\n  %s" + n +
            " = reduce_sum %v" + n + " axes [0]\n  store %o[" + n + "], %s" + n + "\n";
  }
  CHECK(of(pool + "}\n") == Texts{});
  const auto rows = [](const std::string& ops, const std::string& dtype = "f32") {
    return of("kernel @k\ngrid (3)\nin " + dtype + "[10] block (4) " + map() + "in " + dtype + "[4] whole\nout " +
              dtype + "[3] block (1) " + map() +
              "body (%x, %m, %o) {\n  %v = load %x[0:4]\n  %w = load %m[0:4]\n  %zero = constant 0 : i32[]\n"
              "  %one = constant 1 : i32[]\n  %two = constant 2 : i32[]\n  %i = program_id axis 0\n" +
              ops + "}\n");
  };
  const std::string sum = "  %s = reduce_sum %v axes [0]\n";
  CHECK(rows(sum + "  store %o[0], %s\n").size() == 1);
  CHECK(rows(sum + "  store %o[0], %s\n  %c = eq %i, %two\n  %t = reduce_sum %w axes [0]\n  if %c {\n    store "
                   "%o[0], %t\n  }\n") == Texts{});
  CHECK(rows("  %u = max %v, %w\n  %s = reduce_min %u axes [0]\n  store %o[0], %s\n", "i32") == Texts{});
  CHECK(rows("  %u = max %v, %w\n  %s = reduce_min %u axes [0]\n  store %o[0], %s\n").size() == 1);
  CHECK(rows("  %u = atan2 %v, %w\n  %s = reduce_min %u axes [0]\n  store %o[0], %s\n").size() == 1);
  CHECK(rows("  %u = pow %v, %w\n  %s = reduce_min %u axes [0]\n  store %o[0], %s\n") == Texts{});  // 1 for 0
  // What a loop's first iteration stores or carries, later ones may do otherwise.
  const std::string start = "  %f = constant 0.0 : f32[]\n" + sum;
  CHECK(rows(start + "  %r = for %j = %zero to %one step %one carry (%a = %f) {\n    store %o[0], %a\n    yield %s\n  "
                     "}\n") == Texts{});
  CHECK(rows(start + "  %r = for %j = %zero to %two step %one carry (%a = %f) {\n    yield %s\n  }\n  store %o[0], "
                     "%r\n")
            .size() == 1);
  CHECK(rows(start + "  %r, %q = for %j = %zero to %two step %one carry (%a = %f, %b = %s) {\n    yield %b, %f\n  "
                     "}\n  store %o[0], %r\n") == Texts{});
  // What is read early is for nobody.
  CHECK(rows("  %old = load %o[0]\n  %c = eq %i, %zero\n  %s = reduce_sum %w axes [0]\n  %t = add %old, %s\n"
             "  %r = select %c, %s, %t\n  store %o[0], %s\n") == Texts{});
}

TEST_CASE("lints: of what is large or odd") {
  // Private scratch that is no memory; more boxes than are kept; sizes whose product is none; a long chain of scalars.
  CHECK(of("kernel @k\ngrid (2)\nout f32[8] block (4) " + map() +
           "scratch ref<vmem, f32[8]> private\nscratch ref<dma_semaphore, i32[]> private\n"
           "body (%o, %s, %d) {\n  %v = constant 0.0 : f32[4]\n  store %o[0:4], %v\n}\n") == Texts{});
  std::string many = "kernel @k\ngrid (65536)\nout f32[4194304] block (64) " + map() +
                     "body (%o) {\n  %z = constant 0.0 "
                     ": f32[]\n";
  for (int i = 0; i < 16; ++i) many += "  store %o[" + std::to_string(i) + "], %z\n";
  CHECK(of(many + "}\n") == Texts{});
  const ts::ir::Kernel vast = ts::ir::parse(
      "tir 1\nkernel @k\ngrid (2)\nout f32[n, n] block (4, 4) map (%i) {\n  yield %i, %i\n}\nbody (%o) {\n  %v = "
      "constant 0.0 : f32[4, 4]\n  store %o[0:4, 0:4], %v\n}\n");
  CHECK(ts::lints(vast, {{"n", int64_t{1} << 32}}).empty());
  CHECK(ts::lints(vast, {{"n", 3100000000}}).empty());
  CHECK(ts::lints(vast, {{"n", 8}}).size() == 1);
  std::string chain = "kernel @k\ngrid (1)\nout f32[4] block (4) " + map() +
                      "body (%o) {\n  %i = program_id axis 0\n  %t0 = add %i, %i\n  %z = constant 0.0 : f32[]\n";
  for (int i = 1; i < 60000; ++i) chain += "  %t" + std::to_string(i) + " = add %t" + std::to_string(i - 1) + ", %i\n";
  CHECK(of(chain + "  %v = constant 0.0 : f32[4]\n  store %o[0:4], %v\n  store %o[%t59999], %z\n}\n") == Texts{});
}

TEST_CASE("lints: a product that adds up over the grid") {
  const auto matmul = [](int64_t k, bool mask) {
    return ts::pallas_call(
               [=](Ref x, Ref y, Ref o, Ref sum) {
                 ts::when(ts::program_id(0) == 0, [&] { sum[all] = 0.0f; });
                 Value a = x[all], b = y[all];
                 if (mask) {
                   const Value left = static_cast<int32_t>(k) - ts::program_id(0) * 8;
                   a = ts::where(ts::iota(ts::i32, {8, 8}, 1) < left, a, 0.0f);
                   b = ts::where(ts::iota(ts::i32, {8, 8}, 0) < left, b, 0.0f);
                 }
                 sum[all] += ts::dot(a, b);
                 ts::when(ts::program_id(0) == ts::num_programs(0) - 1, [&] { o[all] = sum[all]; });
               },
               {.out_shape = {{{8, 8}, ts::f32}},
                .grid = {(k + 7) / 8},
                .in_specs = {{{8, 8}, [](Value i) { return ts::Indices{0, i}; }},
                             {{8, 8}, [](Value i) { return ts::Indices{i, 0}; }}},
                .out_specs = {{{8, 8}, [](Value) { return ts::Indices{0, 0}; }}},
                .scratch_shapes = {ts::VMEM({8, 8}, ts::f32)},
                .name = "matmul"})
        .trace({{{8, k}, ts::f32}, {{k, 8}, ts::f32}});
  };
  CHECK(ts::lints(matmul(24, false), {}).empty());
  CHECK(ts::lints(matmul(21, true), {}).empty());
  const Texts found = ts::lints(matmul(21, false), {});
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("matmul: in_specs[0]: in program (2) dim 1 of the block has 3 elements beyond the array, and dot "
                      "takes them in without a mask: what it stores to out_specs[0] is unspecified") == 0);
}

TEST_CASE("lints: integers of one width that meet") {
  const int line = __LINE__ + 1;
  const auto sum = [](Ref x, Ref y, Ref o) { o[all] = ts::cast(x[all] + y[all], ts::i32); };
  const auto add = ts::pallas_call(sum, {.out_shape = {{{4}, ts::i32}}, .name = "add"});
  const Texts found = ts::lints(add.trace({{{4}, ts::i32}, {{4}, ts::u32}}), {});
  REQUIRE(found.size() == 1);
  CHECK(found[0] == "add: add: i32 and u32 meet in i64" + at(line) +
                        note("cast() one of the operands to the other's dtype if that is not meant"));
  CHECK(ts::lints(add.trace({{{4}, ts::i32}, {{4}, ts::i32}}), {}).empty());
  CHECK(ts::lints(add.trace({{{4}, ts::i32}, {{4}, ts::u16}}), {}).empty());
}

TEST_CASE("lints: off, warn, error") {
  const auto half = [](std::optional<ts::Lint> lint, bool run_time_size = false) {
    ts::PallasCallParams p{.out_shape = {{{4}, ts::f32}}, .name = "half", .lint = lint};
    if (run_time_size) {
      p.in_shape = {{{ts::dim("n")}, ts::f32}};
      p.in_specs = {{{4}, [](Value) { return 0; }}};
      p.grid = {1};
    }
    return ts::pallas_call([](Ref x, Ref o) { o[ds(0, 2)] = x[ds(0, 2)]; }, p);
  };
  const ts::Array x = ts::Array({4}, ts::f32);
  const auto says = [&](const auto& f) -> std::string {
    try {
      f();
    } catch (const ts::KernelError& e) {
      return e.what();
    }
    return "";
  };
  const std::string what = "half: out_specs[0]: no program stores 2 of its 4 elements, (2,) the first: what is there ";
  CHECK(says([&] { half(ts::Lint::error).trace_for({x}); }).find(what) == 0);
  CHECK(says([&] { ts::interpret(half(ts::Lint::error), x); }).find(what) == 0);
  CHECK(says([&] { ts::interpret(ts::vmap(half(ts::Lint::error)), ts::Array({3, 4}, ts::f32)); }).find(what) == 0);
  CHECK(says([&] { half(ts::Lint::error, true).trace({{{4}, ts::f32}}); }).empty());  // it has no size yet
  CHECK(says([&] { ts::interpret(half(ts::Lint::off), x); }).empty());
  CHECK(ts::lint_from_name("warn") == ts::Lint::warn);
  CHECK(!ts::lint_from_name("loud"));
}

TEST_CASE("lints of tests/tir: what nobody stores, or is mixed with overhang, depends on unwritten memory") {
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator("tests/tir")) {
    if (file.path().extension() != ".tir") continue;
    const ts::ir::Kernel k = ts::ir::parse(text_of(file.path()), file.path().filename().string());
    if (!ts::has_all_sizes(k, {})) continue;
    const Texts texts = ts::lints(k, {});
    const auto says = [&](const char* what) {
      return std::any_of(texts.begin(), texts.end(),
                         [&](const std::string& t) { return t.find(what) != std::string::npos; });
    };
    if (!says("no program stores") && !says("is unspecified")) continue;
    ++found;
    std::vector<ts::Array> inputs;
    for (int i = 0; i < k.num_inputs; ++i)
      inputs.emplace_back(ts::bind_shape(k, i, {}), k.blocks[static_cast<size_t>(i)].dtype);
    const auto zero = ts::interpret(k, inputs, {.uninitialised = ts::Uninitialised::zero}),
               nan = ts::interpret(k, inputs),
               large = ts::interpret(k, inputs, {.uninitialised = ts::Uninitialised::large});
    bool same = true;
    for (size_t i = 0; i < zero.size(); ++i)
      for (const ts::Array& other : {nan[i], large[i]})
        same &= std::memcmp(zero[i].bytes(), other.bytes(), static_cast<size_t>(other.nbytes())) == 0;
    CHECK_MESSAGE(!same, k.name);
  }
  CHECK(found >= 5);
}

}  // namespace lint_test
