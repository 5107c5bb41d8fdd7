// What a TPU refuses, and where the limits are exactly: tests/tir/passes/mosaic has the modules.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "codegen/tpu/mosaic.h"
#include "engine/base/error.h"
#include "engine/ir/text.h"

namespace tpu_test {
using namespace tessera;

namespace {

std::string list(const std::vector<int64_t>& v) {
  std::string s;
  for (const int64_t n : v) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return s;
}
std::string ranges(const std::vector<int64_t>& v) {
  std::string s;
  for (const int64_t n : v) s += (s.empty() ? "0:" : ", 0:") + std::to_string(n);
  return s;
}

/// The module, or why there is none.
std::string module(const std::string& text, const char* chip = "v4") {
  try {
    return tpu::mosaic(tpu::prepare(ir::parse(text)), tpu::chip_named(chip));
  } catch (const CompileError& e) {
    return e.what();
  }
}

/// Copies blocks of an array, one per program.
std::string copy(const std::string& dtype, const std::vector<int64_t>& array, const std::vector<int64_t>& block,
                 const std::string& scratch = "") {
  std::string grid, ids;
  for (size_t d = 0; d < array.size(); ++d) {
    grid += (d ? ", " : "") + std::to_string((array[d] + block[d] - 1) / block[d]);
    ids += (d ? ", %" : "%") + std::string("i") + std::to_string(d);
  }
  const std::string type =
      dtype + "[" + list(array) + "] block (" + list(block) + ") map (" + ids + ") { yield " + ids + " }\n";
  return "tir 1\nkernel @k\ngrid (" + grid + ")\nin " + type + "out " + type + scratch + "body (%x, %o" +
         (scratch.empty() ? "" : ", %s") + ") {\n  %v = load %x[" + ranges(block) + "]\n  store %o[" + ranges(block) +
         "], %v\n}\n";
}
bool aligned(const std::string& dtype, const std::vector<int64_t>& array, const std::vector<int64_t>& block) {
  const std::string said = module(copy(dtype, array, block));
  const bool refused = said.find(" is not aligned\n") != std::string::npos;
  INFO(said);
  REQUIRE(refused != said.starts_with("module {"));
  return !refused;
}

}  // namespace

TEST_CASE("tpu: the last two sizes of a block are multiples of 8 and 128, or the array's") {
  CHECK(aligned("f32", {32, 512}, {8, 128}));
  CHECK(aligned("f32", {32, 512}, {16, 256}));
  CHECK_FALSE(aligned("f32", {32, 512}, {4, 128}));
  CHECK_FALSE(aligned("f32", {32, 512}, {7, 128}));
  CHECK_FALSE(aligned("f32", {32, 512}, {9, 128}));
  CHECK_FALSE(aligned("f32", {32, 512}, {8, 64}));
  CHECK_FALSE(aligned("f32", {32, 512}, {8, 127}));
  CHECK_FALSE(aligned("f32", {32, 512}, {8, 129}));
  CHECK(aligned("f32", {5, 512}, {5, 128}));
  CHECK(aligned("f32", {32, 100}, {8, 100}));
  CHECK_FALSE(aligned("f32", {32, 100}, {8, 50}));
  CHECK(aligned("f32", {6, 32, 512}, {1, 8, 128}));
  CHECK(aligned("f32", {6, 32, 512}, {5, 8, 128}));
  CHECK_FALSE(aligned("f32", {6, 32, 512}, {1, 1, 128}));
  CHECK(module(copy("f32", {32, 512}, {4, 128})) ==
        "k: in_specs[0]: target tpu:v4: block (4, 128) of array (32, 512) is not aligned\n  at <text>:4\n  note: its "
        "last two sizes "
        "must "
        "be multiples of 8 and 128, or those of the array");
}

TEST_CASE("tpu: a block of one dim is a multiple of 1024, a power of two that fills rows of words, or the array") {
  const std::pair<const char*, int64_t> least[] = {
      {"f32", 128}, {"i32", 128}, {"bf16", 256}, {"u16", 256}, {"i8", 512}};
  for (const auto& each : least) {
    const char* const dtype = each.first;
    const int64_t rows = each.second;
    CAPTURE(dtype);
    CHECK(aligned(dtype, {1 << 14}, {rows}));
    CHECK(aligned(dtype, {1 << 14}, {2 * rows}));
    CHECK_FALSE(aligned(dtype, {1 << 14}, {rows / 2}));
    CHECK_FALSE(aligned(dtype, {1 << 14}, {rows + rows / 2}));
    CHECK(aligned(dtype, {1 << 14}, {3072}));
    CHECK_FALSE(aligned(dtype, {1 << 14}, {3073}));
    CHECK_FALSE(aligned(dtype, {1 << 14}, {3072 + 512}));
    CHECK(aligned(dtype, {100}, {100}));
    CHECK(module(copy(dtype, {1 << 14}, {rows / 2})) ==
          "k: in_specs[0]: target tpu:v4: block (" + std::to_string(rows / 2) +
              ") of array (16384,) is not aligned\n  at <text>:4\n  note: of one dim, its size must be the array's, a "
              "multiple of 1024, "
              "or a power of two and at least " +
              std::to_string(rows));
  }
}

// Tiles of 8 rows of words by 128 columns: 4096 bytes. The kernel's two blocks of 8 x 128 words have two buffers each.
TEST_CASE("tpu: VMEM, to the tile") {
  const auto needs = [](const std::string& scratch) {
    const std::string said = module(copy("f32", {16, 128}, {8, 128}, "scratch ref<vmem, " + scratch + ">\n"));
    const std::string before = "k: VMEM: needs ";
    return said.starts_with(before) ? std::stoll(said.substr(before.size())) : 0;
  };
  constexpr int64_t kTile = 4096, kBlocks = 4 * kTile, kVmem = 16 << 20, kRows = (kVmem - kBlocks) / kTile * 8;
  CHECK(needs("f32[" + std::to_string(kRows) + ", 128]") == 0);
  CHECK(needs("f32[" + std::to_string(kRows + 1) + ", 128]") == kVmem + kTile);
  CHECK(needs("f32[" + std::to_string(kRows) + ", 129]") == kBlocks + 2 * kRows / 8 * kTile);
  CHECK(needs("f32[1000000]") == kBlocks + 7813 * kTile);
  CHECK(needs("f32[5000, 1]") == 0);
  CHECK(needs("f32[40000, 1]") == kBlocks + 5000 * kTile);
  CHECK(needs("f32[1400, 9, 129]") == kBlocks + 1400 * 4 * kTile);
  CHECK(needs("f32[2, 700, 17, 1]") == kBlocks + 1400 * 3 * kTile);
  CHECK(needs("bf16[140000, 1]") == kBlocks + 8750 * kTile);
  CHECK(needs("bf16[139985, 1]") == kBlocks + 8750 * kTile);
  CHECK(needs("bf16[139984, 1]") == kBlocks + 8749 * kTile);
  CHECK(needs("i8[280000, 1]") == kBlocks + 8750 * kTile);
  CHECK(needs("i8[279969, 1]") == kBlocks + 8750 * kTile);
  CHECK(needs("i8[279968, 1]") == kBlocks + 8749 * kTile);
}

TEST_CASE("tpu: VMEM holds a block that is its whole array once, and one that moves twice") {
  const auto needs = [](const std::string& block) {
    const std::string said = module("tir 1\nkernel @k\ngrid (2)\nin f32[4096, 896] " + block +
                                    "out f32[16, 128] block (8, 128) map (%i) {\n  %z = constant 0 : i32[]\n  yield "
                                    "%i, %z\n}\nbody (%x, %o) {\n  %v "
                                    "= load %x[0:8, 0:128]\n  store %o[0:8, 0:128], %v\n}\n");
    const std::string before = "k: VMEM: needs ";
    CAPTURE(said);
    CHECK(said.starts_with(before) != said.starts_with("module {"));
    return said.starts_with(before) ? std::stoll(said.substr(before.size())) : 0;
  };
  const auto mapped = [](const std::string& rows, const std::string& columns) {
    return "block (" + rows + ", 896) map (%i) {\n  %z = constant 0 : i32[]\n  yield " + columns + ", %z\n}\n";
  };
  constexpr int64_t kAll = 4096 * 896 * 4, kOutput = 2 * 4096;
  CHECK(needs("whole\n") == 0);
  CHECK(needs(mapped("4096", "%z")) == 0);
  CHECK(needs(mapped("4096", "%i")) == 2 * kAll + kOutput);
  CHECK(needs(mapped("2048", "%i")) == 0);
}

TEST_CASE("tpu: a block that comes back is refused, in grids of up to 2^18 programs") {
  const auto text = [](int64_t rows) {
    return "tir 1\nkernel @k\ngrid (" + std::to_string(rows) +
           ", 2)\nin f32[16, 128] block (8, 128) map (%i, %j) {\n  %z = constant 0 : i32[]\n  yield %j, %z\n}\n"
           "out f32[16, 128] block (8, 128) map (%i, %j) {\n  %z = constant 0 : i32[]\n  yield %j, %z\n}\n"
           "body (%x, %o) {\n  %v = load %x[0:8, 0:128]\n  store %o[0:8, 0:128], %v\n}\n";
  };
  const std::string note =
      "\n  note: programs with one block of an output must follow one another: put the axes that it depends on first";
  CHECK(module(text(1)).starts_with("module {"));
  CHECK(
      module(text(2)) ==
      "k: out_specs[0]: target tpu:v4: block (0, 0) comes back after other blocks, with program (1, 0)\n  at <text>:8" +
          note);
  CHECK(module(text(1 << 17)).ends_with("with program (1, 0)\n  at <text>:8" + note));
  CHECK(module(text((1 << 17) + 1)).starts_with("module {"));
}

TEST_CASE("tpu: the module around a kernel, of one result or more") {
  const auto around = [](int outputs, bool aliased) {
    std::string text = "tir 1\nkernel @k\nin f32[8, 128] whole\n", body = "body (%x", stores;
    for (int i = 0; i < outputs; ++i) {
      const std::string o = ", %o" + std::to_string(i);
      text += "out f32[8, 128] " + std::string(aliased && i + 1 == outputs ? "alias 0 " : "") + "whole\n";
      body += o;
      stores += "  store " + o.substr(2) + "[0:8, 0:128], %v\n";
    }
    const ir::Kernel k = tpu::prepare(ir::parse(text + body + ") {\n  %v = load %x[0:8, 0:128]\n" + stores + "}\n"));
    return tpu::stable_hlo(k, "");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string type = "tensor<8x128xf32>";
  const std::string one = around(1, false), two = around(2, false), three = around(3, true), alone = around(1, true);
  CHECK(has(one, "    %result = stablehlo.custom_call @tpu_custom_call("));
  CHECK(has(one, "} : (" + type + ") -> " + type + "\n    return %result : " + type + "\n"));
  CHECK(has(two, "    %result:2 = stablehlo.custom_call @tpu_custom_call("));
  CHECK(has(two, "} : (" + type + ") -> (" + type + ", " + type + ")\n    return %result#0, %result#1 : "));
  CHECK(has(three, "    %result:3 = stablehlo.custom_call @tpu_custom_call("));
  CHECK(has(three, "output_tuple_indices = [2], operand_index = 0, operand_tuple_indices = []>"));
  CHECK(has(alone, "output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>"));
  CHECK_FALSE(has(two, "output_operand_alias"));
}

// An estimate is advice: it refuses no kernel, and counts where its sizes have values.
TEST_CASE("tpu: a cost estimate in sizes of the call, and in others") {
  const auto bytes = [](const std::string& size) {
    const ir::Kernel k =
        tpu::prepare(ir::parse("tir 1\nkernel @k\ncost_estimate (bytes_accessed: " + size +
                               " * 4)\ngrid (1)\nout f32[n, 128] block (8, 128) map (%i) {\n  yield %i, %i\n}\n"
                               "body (%o) {\n}\n"),
                     {{"n", 8}});
    return k.call.cost_estimate ? k.call.cost_estimate->bytes_accessed.value() : std::nullopt;
  };
  CHECK(bytes("n") == 32);
  CHECK(bytes("m") == std::nullopt);
}

}  // namespace tpu_test
