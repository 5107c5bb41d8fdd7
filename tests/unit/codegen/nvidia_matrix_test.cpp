// Products by mma.sync and wgmma: which instructions a dot becomes, for which chips and dtypes, and that the emulator
// (tests/ptx, whose fragments are the manual's) notices when one of them is wrong. What products compute in general the
// fuzzer's suite compares with the interpreter.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "codegen/nvidia/emit.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "tests/support/emulate/emulate.h"
#include "tests/support/sanitizer.h"

namespace nvidia_matrix_test {
using namespace tessera;

namespace {

/// [m, k] times [k, n]; of what is turned, [k, m] and [n, k].
std::string product_of(const std::string& t, const std::string& sum, int64_t m, int64_t k, int64_t n, bool left,
                       bool right) {
  const auto dims = [](int64_t a, int64_t b) { return "[" + std::to_string(a) + ", " + std::to_string(b) + "]"; };
  const auto all = [](int64_t a, int64_t b) { return "[0:" + std::to_string(a) + ", 0:" + std::to_string(b) + "]"; };
  const int64_t a = left ? k : m, b = left ? m : k, c = right ? n : k, d = right ? k : n;
  return "tir 1\nkernel @product\nin " + t + dims(a, b) + " whole\nin " + t + dims(c, d) + " whole\nout " + sum +
         dims(m, n) + " whole\nbody (%x, %y, %o) {\n  %a = load %x" + all(a, b) + "\n  %b = load %y" + all(c, d) +
         "\n  %c = dot %a, %b lhs_contract " + (left ? "[0]" : "[1]") + " rhs_contract " + (right ? "[1]" : "[0]") +
         " lhs_batch [] rhs_batch [] : " + sum + dims(m, n) + "\n  store %o" + all(m, n) + ", %c\n}\n";
}
std::string product(const std::string& t, const std::string& sum, int64_t m, int64_t k, int64_t n,
                    bool turned = false) {
  return product_of(t, sum, m, k, n, turned, turned);
}

Program compiled(const std::string& text, const char* chip) {
  return compile(ir::parse(text, "k.tir"), Target::nvidia(chip), {});
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Small whole numbers, of which every sum is exact.
std::vector<Array> numbers(const ir::Kernel& k) {
  std::vector<Array> all;
  uint32_t x = 7;
  for (int i = 0; i < 2; ++i) {
    const DType t = k.blocks.at(static_cast<size_t>(i)).dtype;
    Array a(bind_shape(k, i, {}), t);
    for (int64_t e = 0; e < a.size(); ++e) {
      x = x * 1664525 + 1013904223;
      const int v = static_cast<int>(x >> 29) - (t == DType::u8 ? 0 : 4);
      a.set_element_bits(e, is_float(t) ? to_narrow_bits(t, v) : static_cast<uint64_t>(v) & 0xff);
    }
    all.push_back(std::move(a));
  }
  return all;
}

/// What is wrong with the program's results, or with how it gets them.
std::string wrong(const std::string& text, Program p, const std::string& ptx) {
  const ir::Kernel k = ir::parse(text, "k.tir");
  std::vector<Array> arrays = numbers(k);
  const std::vector<Array> want = interpret(k, arrays);
  arrays.emplace_back(want[0].shape(), want[0].dtype());
  p.ptx = ptx;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulated::Options o;
    o.seed = seed;
    const emulated::Result r = emulated::run(p, arrays, {}, o);
    if (!r.fault.empty()) return r.fault;
    for (int64_t e = 0; e < want[0].size(); ++e)
      if (r.outputs.at(0).at(e) != want[0].at(e)) return "element " + std::to_string(e) + " differs";
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to, size_t which = 0) {
  size_t at = text.find(from);
  for (; which > 0 && at != std::string::npos; --which) at = text.find(from, at + 1);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("nvidia: products of each dtype by mma.sync, on chips that have it") {
  struct Want {
    const char *dtype, *sum, *chip, *version, *code;
  };
  for (const Want& w : {Want{"f16", "f32", "sm_80", "7.8", "m16n8k16.row.col.f32.f16.f16.f32 "},
                        {"bf16", "f32", "sm_80", "7.8", "m16n8k16.row.col.f32.bf16.bf16.f32 "},
                        {"i8", "i32", "sm_80", "7.8", "m16n8k32.row.col.s32.s8.s8.s32 "},
                        {"u8", "u32", "sm_80", "7.8", "m16n8k32.row.col.s32.u8.u8.s32 "},
                        {"f8e4m3fn", "f32", "sm_89", "8.4", "m16n8k32.row.col.f32.e4m3.e4m3.f32 "},
                        {"f8e5m2", "f32", "sm_100a", "8.6", "m16n8k32.row.col.f32.e5m2.e5m2.f32 "}}) {
    CAPTURE(w.dtype);
    for (const bool turned : {false, true}) {
      CAPTURE(turned);
      const std::string text = product(w.dtype, w.sum, 40, 72, 48, turned);
      const Program p = compiled(text, w.chip);
      CHECK(has(p.ptx, std::string("mma.sync.aligned.") + w.code));
      CHECK(has(p.ptx, std::string(".version ") + w.version + "\n"));
      CHECK(has(p.ptx, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 "));
      // Only one of the operands lies with its rows along k in memory, and elements of 16 bits turn on their way.
      CHECK(has(p.ptx, ".trans.") == (w.dtype == std::string("f16") || w.dtype == std::string("bf16")));
      CHECK(wrong(text, p, p.ptx) == "");
    }
  }
  CHECK_FALSE(has(compiled(product("f8e5m2", "f32", 40, 72, 48), "sm_80").ptx, "mma."));
  CHECK_FALSE(has(compiled(product("f32", "f32", 40, 72, 48), "sm_90a").ptx, "mma."));
}

TEST_CASE("nvidia: a changed instruction of a product is noticed") {
  const std::string text = product("f16", "f32", 64, 128, 192);  // in several chunks
  const Program p = compiled(text, "sm_80");
  REQUIRE(wrong(text, p, p.ptx) == "");
  // Two registers of an operand, or both operands' order.
  const size_t mma = p.ptx.find("mma.sync"), end = p.ptx.find(';', mma);
  const std::string one = p.ptx.substr(mma, end - mma);
  std::vector<std::string> lists;
  for (size_t at = one.find('{'); at != std::string::npos; at = one.find('{', at + 1))
    lists.push_back(one.substr(at, one.find('}', at) - at + 1));
  REQUIRE(lists.size() == 4);
  const auto swapped = [](const std::string& list, size_t i, size_t j) {
    std::vector<std::string> names;
    for (size_t at = 1; at < list.size(); at = list.find_first_of(",}", at) + 2)
      names.push_back(list.substr(at, list.find_first_of(",}", at) - at));
    std::swap(names.at(i), names.at(j));
    std::string s;
    for (const std::string& n : names) s += (s.empty() ? "{" : ", ") + n;
    return s + "}";
  };
  struct Swap {
    size_t list, i, j;
  };
  for (const Swap& w : {Swap{1, 1, 2}, {1, 0, 1}, {2, 0, 1}, {0, 1, 2}}) {
    CAPTURE(w.list);
    const std::string other = replaced(one, lists[w.list], swapped(lists[w.list], w.i, w.j));
    CHECK(wrong(text, p, replaced(p.ptx, one, other)) != "");
  }
  // A matrix that is not turned, or turned without need.
  CHECK(wrong(text, p, replaced(p.ptx, ".x4.trans.", ".x4.")) != "");
  CHECK(wrong(text, p, replaced(p.ptx, ".x4.shared", ".x4.trans.shared")) != "");
  // Each barrier: shares that have not landed are read, or are written over while others still read.
  for (const std::string barrier : {"  bar.sync 0;\n", "  bar.warp.sync -1;\n"}) {
    CAPTURE(barrier);
    const size_t barriers = count(p.ptx, barrier);
    REQUIRE(barriers >= 1);
    size_t noticed = 0;
    for (size_t i = 0; i < barriers; ++i) noticed += wrong(text, p, replaced(p.ptx, barrier, "", i)) != "";
    CHECK(noticed == barriers);
  }
  // Rows further apart than they are, by as much as ldmatrix takes, or by less.
  const size_t stride = p.ptx.find(", 80;\n");
  REQUIRE(stride != std::string::npos);
  CHECK(wrong(text, p, replaced(p.ptx, ", 80;\n", ", 96;\n")) != "");
  const std::string fault = wrong(text, p, replaced(p.ptx, ", 80;\n", ", 84;\n"));
  CHECK_MESSAGE(has(fault, "ldmatrix"), fault);
}

TEST_CASE("nvidia: operands that are loaded ahead by cp.async") {
  const std::string text = product("f16", "f32", 64, 256, 128);  // eight chunks
  const Program p = compiled(text, "sm_80");
  REQUIRE(count(p.ptx, "cp.async.cg.shared.global") >= 4);
  CHECK(count(p.ptx, "st.shared.v4") == 0);
  REQUIRE(wrong(text, p, p.ptx) == "");
  const std::string wait = "  cp.async.wait_group 2;\n";
  REQUIRE(count(p.ptx, wait) == 1);
  CHECK(wrong(text, p, replaced(p.ptx, wait, "")) != "");
  CHECK(wrong(text, p, replaced(p.ptx, wait, "  cp.async.wait_group 3;\n")) != "");
  CHECK(wrong(text, p, replaced(p.ptx, "cp.async.commit_group", "// ", count(p.ptx, "cp.async.commit_group") - 1)) !=
        "");
  CHECK(wrong(text, p, replaced(p.ptx, "  bar.sync 0;\n", "")) != "");  // the loop's
  // What needs work on its way comes through registers: an end of k, another dtype, rows that are not aligned.
  CHECK_FALSE(has(compiled(product("f16", "f32", 64, 250, 128), "sm_80").ptx, "cp.async"));
  CHECK_FALSE(has(compiled(product("f16", "f32", 64, 256, 127), "sm_80").ptx, "cp.async.cg.shared.global"));
}

TEST_CASE("nvidia: products by wgmma, of each dtype, at sizes with ends") {
  struct Size {
    int64_t m, k, n;
  };
  size_t n = 0;
  for (const char* dtype : {"f16", "bf16", "i8", "u8"}) {
    CAPTURE(dtype);
    const bool whole = dtype[0] == 'i' || dtype[0] == 'u';
    for (const Size& z : {Size{64, 64, 32}, {64, 256, 128}, {130, 72, 48}, {100, 200, 264}, {128, 333, 77}})
      for (const bool turned : {false, true}) {
        if (!test::sampled(n++)) continue;
        CAPTURE(z.m);
        CAPTURE(turned);
        const std::string text =
            product(dtype, whole ? (dtype[0] == 'i' ? "i32" : "u32") : "f32", z.m, z.k, z.n, turned);
        const Program p = compiled(text, "sm_90a");
        CHECK(has(p.ptx, "wgmma.mma_async.sync.aligned.m64n"));
        CHECK_FALSE(has(p.ptx, "mma.sync."));
        CHECK(wrong(text, p, p.ptx) == "");
      }
  }
  for (const char* chip : {"sm_90", "sm_100a"})
    CHECK_FALSE(has(compiled(product("f16", "f32", 64, 256, 128), chip).ptx, "wgmma"));
  CHECK_FALSE(has(compiled(product("f8e5m2", "f32", 64, 256, 128), "sm_90a").ptx, "wgmma"));
  // Of a workgroup of 1024 each invocation has 64 registers, as many as the sums of 128 columns take.
  std::string large = product("f16", "f32", 8192, 64, 4096);
  CHECK(has(compiled(large, "sm_90a").ptx, "wgmma"));
  large = replaced(large, "@product\n", "@product\ncompiler_params triton (num_warps: 32)\n");
  CHECK_FALSE(has(compiled(large, "sm_90a").ptx, "wgmma"));
}

// Of large products: those have more tiles than a chip has processors, which a chip with one makes of small ones.
TEST_CASE("nvidia: products by wgmma, of several matrices under each other for each warpgroup") {
  struct Size {
    int64_t m, k, n;
  };
  Target one = Target::nvidia("sm_90a");
  one.compute_units = 1;
  size_t n = 0;
  for (const Size& z : {Size{256, 64, 128}, {256, 72, 130}, {260, 32, 256}})
    for (const bool left : {false, true})
      for (const bool right : {false, true}) {
        if (!test::sampled(n++)) continue;
        CAPTURE(z.m);
        CAPTURE(left);
        CAPTURE(right);
        const std::string text = product_of("f16", "f32", z.m, z.k, z.n, left, right);
        const Program p = compile(ir::parse(text, "k.tir"), one, {});
        CHECK(has(p.ptx, "wgmma.mma_async.sync.aligned.m64n128k16"));
        CHECK(wrong(text, p, p.ptx) == "");
      }
}

TEST_CASE("nvidia: a changed instruction of a product by wgmma is noticed") {
  const std::string text = product("f16", "f32", 128, 256, 132);  // rows that no tensor has
  const Program p = compiled(text, "sm_90a");
  REQUIRE(wrong(text, p, p.ptx) == "");
  const auto each = [&](const std::string& line) {
    CAPTURE(line);
    const size_t n = count(p.ptx, line);
    REQUIRE(n >= 1);
    size_t noticed = 0;
    for (size_t i = 0; i < n; ++i) noticed += wrong(text, p, replaced(p.ptx, line, "", i)) != "";
    return n - noticed;
  };
  CHECK(each("  wgmma.fence.sync.aligned;\n") == 0);
  CHECK(each("  wgmma.commit_group.sync.aligned;\n") == 0);
  CHECK(each("  wgmma.wait_group.sync.aligned 0;\n") == 0);
  CHECK(each("  bar.sync 0;\n") == 0);
  CHECK(each("  fence.proxy.async.shared::cta;\n") < count(p.ptx, "  fence.proxy.async.shared::cta;\n"));
  // Which factor is turned, and the order of the registers of the sums.
  const size_t at = p.ptx.find("wgmma.mma_async"), end = p.ptx.find(';', at);
  const std::string one = p.ptx.substr(at, end - at);
  REQUIRE(one.ends_with(", 1, 1, 0, 1"));
  CHECK(wrong(text, p, replaced(p.ptx, one, one.substr(0, one.size() - 4) + "1, 1")) != "");
  CHECK(wrong(text, p, replaced(p.ptx, one, one.substr(0, one.size() - 4) + "0, 0")) != "");
  CHECK(wrong(text, p, replaced(p.ptx, one, one.substr(0, one.size() - 10) + "-1, 1, 0, 1")) != "");
}

TEST_CASE("nvidia: operands that arrive as boxes of arrays") {
  struct Size {
    int64_t m, k, n;
  };
  const std::string load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes";
  size_t n = 0;
  for (const char* dtype : {"f16", "bf16", "i8", "u8"}) {
    CAPTURE(dtype);
    const bool whole = dtype[0] == 'i' || dtype[0] == 'u';
    for (const Size& z : {Size{64, 384, 32}, {72, 128, 48}})
      for (const bool left : {false, true})
        for (const bool right : {false, true}) {
          if (!test::sampled(n++)) continue;
          CAPTURE(z.m);
          CAPTURE(left);
          CAPTURE(right);
          const std::string text =
              product_of(dtype, whole ? (dtype[0] == 'i' ? "i32" : "u32") : "f32", z.m, z.k, z.n, left, right);
          const Program p = compiled(text, "sm_90a");
          // Of bytes the rows have to be of k.
          CHECK(has(p.ptx, load) == (!whole || (!left && right)));
          CHECK(p.tensors.size() == (has(p.ptx, load) ? 2 : 0));
          CHECK(wrong(text, p, p.ptx) == "");
        }
  }
  // Two tiles that fill the shared memory, of three chunks.
  const std::string wide =
      replaced(product("f16", "f32", 256, 192, 32), "@product\n", "@product\ncompiler_params triton (num_warps: 16)\n");
  CHECK(has(compiled(wide, "sm_90a").ptx, load));
  CHECK(wrong(wide, compiled(wide, "sm_90a"), compiled(wide, "sm_90a").ptx) == "");
  // Rows that are not aligned, and an end of k.
  for (const Size& z : {Size{128, 384, 130}, {128, 388, 128}, {128, 352, 128}})
    CHECK_FALSE(has(compiled(product("f16", "f32", z.m, z.k, z.n), "sm_90a").ptx, load));
  CHECK_FALSE(has(compiled(product("f16", "f32", 128, 384, 128), "sm_90").ptx, load));
}

// What hangs over a block's edge is one value: a product takes what a sum of the same elements takes, also where boxes
// of arrays could bring them, which bring zeros. (As a kernel of tests/tir it keeps the compiler of Mesa 26.1's
// lavapipe busy for minutes.)
TEST_CASE("nvidia: a product and a sum of elements beyond an array's end take the same") {
  const std::string text = R"(tir 1
kernel @overhang_of_boxes
grid (2)
in i8[100, 80] block (64, 128) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
in i8[32, 128] block (32, 128) map (%i) {
  %z = constant 0 : i32[]
  yield %z, %z
}
out i32[128, 32] block (64, 32) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
out i32[128, 1] block (64, 1) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
body (%x, %y, %o, %q) {
  %a = load %x[0:64, 0:128] : i8[64, 128]
  %b = load %y[0:32, 0:128] : i8[32, 128]
  %r = dot %a, %b lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : i32[64, 32]
  store %o[0:64, 0:32], %r
  %y0 = load %y[0, 0:128]
  %yi = convert %y0 : i32[128]
  %yb = broadcast %yi dims [1] : i32[64, 128]
  %w = convert %a : i32[64, 128]
  %m = mul %w, %yb
  %s = reduce_sum %m axes [1]
  %sb = broadcast %s dims [0] : i32[64, 1]
  %r0 = load %o[0:64, 0:1]
  %d = sub %r0, %sb
  store %q[0:64, 0:1], %d
}
)";
  const Program p = compiled(text, "sm_90a");
  const ir::Kernel kernel = ir::parse(text, "k.tir");
  std::vector<Array> arrays = numbers(kernel);
  arrays.emplace_back(Shape{128, 32}, DType::i32);
  arrays.emplace_back(Shape{128, 1}, DType::i32);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulated::Options o;
    o.seed = seed;
    const emulated::Result r = emulated::run(p, arrays, {}, o);
    REQUIRE(r.fault == "");
    for (int64_t row = 0; row < 128; ++row) CHECK(r.outputs.at(1).at(row) == 0);
  }
}

TEST_CASE("nvidia: as many barriers as products want lie before the arena") {
  std::string text = R"(tir 1
kernel @many
grid (2)
in f16[128, 256] block (64, 256) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
in f16[33, 256, 64] whole
out f32[128, 64] block (64, 64) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
body (%x, %y, %o) {
  %a = load %x[0:64, 0:256]
)";
  for (int i = 0; i < 33; ++i) {
    const std::string n = std::to_string(i), sum = i ? "%s" + std::to_string(i - 1) : "%e0";
    text += "  %b" + n + " = load %y[" + n + ", 0:256, 0:64]\n  %p" + n + " = dot %a, %b" + n +
            " lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 64]\n  %e" + n + " = abs %p" + n +
            "\n  %s" + n + " = add " + sum + ", %e" + n + "\n";
  }
  const Program p = compiled(text + "  store %o[0:64, 0:64], %s32\n}\n", "sm_90a");  // the lane verifier counts
  CHECK(count(p.ptx, "mbarrier.init") > 128);
}

TEST_CASE("nvidia: a changed instruction of a product by boxes of arrays is noticed") {
  const std::string text = product("f16", "f32", 64, 512, 32);  // eight chunks, which go round the ring
  const Program p = compiled(text, "sm_90a");
  REQUIRE(wrong(text, p, p.ptx) == "");
  CHECK(has(p.explain, "by copies of boxes (TMA)"));
  const auto unnoticed = [&](const std::string& from, const std::string& to) {
    CAPTURE(from);
    const size_t n = count(p.ptx, from);
    REQUIRE(n >= 1);
    size_t noticed = 0;
    for (size_t i = 0; i < n; ++i) noticed += wrong(text, p, replaced(p.ptx, from, to, i)) != "";
    return n - noticed;
  };
  CHECK(unnoticed("  wgmma.commit_group.sync.aligned;\n", "") == 0);
  CHECK(unnoticed("  wgmma.wait_group.sync.aligned 1;\n", "") == 0);  // a tile that is still read is filled
  CHECK(unnoticed("  wgmma.wait_group.sync.aligned 0;\n", "  wgmma.wait_group.sync.aligned 1;\n") == 0);
  CHECK(unnoticed("  wgmma.fence.sync.aligned;\n", "") == 0);
  // The last one stands before memory that no product reads any more.
  CHECK(unnoticed("  bar.sync 0;\n", "") <= 1);
  CHECK(unnoticed("  fence.mbarrier_init.release.cluster;\n  fence.proxy.async.shared::cta;\n", "") == 0);
  // What a barrier is told: bytes, and of which copy.
  const std::string bytes = ", 8192;\n";
  CHECK(unnoticed(bytes, ", 8176;\n") == 0);
  CHECK(unnoticed(bytes, ", 8208;\n") == 0);
  CHECK(unnoticed("mbarrier.init.shared.b64 ", "// ") == 0);
  // A wait that does not wait, and one for the other phase.
  const size_t wait = p.ptx.find("mbarrier.try_wait.parity.shared.b64"), end = p.ptx.find(";\n", wait);
  const size_t again = p.ptx.find("  @!", end), line = p.ptx.find('\n', again);
  REQUIRE(again != std::string::npos);
  CHECK(wrong(text, p, p.ptx.substr(0, again) + p.ptx.substr(line + 1)) != "");
  const size_t parity = p.ptx.rfind(", ", end);
  CHECK(wrong(text, p, p.ptx.substr(0, parity) + ", 1" + p.ptx.substr(end)) != "");
  // Descriptors: no swizzle, half of it, eight rows elsewhere.
  const uint64_t left = uint64_t{1} << 62 | uint64_t{64} << 32 | 1 << 16;
  const uint64_t right = uint64_t{1} << 62 | uint64_t{64} << 32 | 512 << 16;
  for (const uint64_t d : {left, right}) {
    // Of so few columns there is nothing beside a box.
    const std::string is = std::to_string(d);
    CAPTURE(is);
    REQUIRE(has(p.ptx, is));
    CHECK(unnoticed(is, std::to_string(d & ~(uint64_t{1} << 62))) == 0);
    CHECK(unnoticed(is, std::to_string(d | uint64_t{1} << 63)) == 0);
    CHECK(unnoticed(is, std::to_string(d + (uint64_t{1} << 32))) == 0);
  }
  // A box that is smaller than what the barrier is told.
  Program other = p;
  other.tensors.at(0).box.at(0) = 32;
  CHECK(wrong(text, other, p.ptx) != "");
}

TEST_CASE("nvidia: sums that go on in the lanes that hold them") {
  const std::string text = R"(tir 1
kernel @chain
in f16[64, 32] whole
in f16[64, 32] whole
out f32[64, 32] whole
body (%x, %y, %o) {
  %a = load %x[0:64, 0:32]
  %b = load %y[0:64, 0:32]
  %s = dot %a, %b lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[64, 64]
  %m = reduce_max %s axes [1] : f32[64]
  %w = broadcast %m dims [0] : f32[64, 64]
  %p = sub %s, %w
  %l = reduce_sum %p axes [1] : f32[64]
  %h = convert %p : f16[64, 64]
  %c = dot %h, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 32]
  %all = broadcast %l dims [0] : f32[64, 32]
  %r = add %c, %all
  store %o[0:64, 0:32], %r
}
)";
  for (const char* chip : {"sm_80", "sm_90a"}) {
    CAPTURE(chip);
    const Program p = compiled(text, chip);
    const bool four = std::string(chip) == "sm_90a";
    REQUIRE(wrong(text, p, p.ptx) == "");
    // Shared memory has the factors that come from arrays, by 16 bytes, and nothing else.
    CHECK(count(p.ptx, "st.shared.") == count(p.ptx, "st.shared.v4.b32 "));
    CHECK(count(p.ptx, "bar.warp") == count(p.ptx, "mbarrier.try_wait"));  // behind a wait the warp comes together
    CHECK(count(p.ptx, "shfl.sync.bfly") == 2 * 2 * 2);  // two steps, of two rows, for the maximum and the sum
    CHECK(count(p.ptx, "cvt.rn.f16x2.f32") == 16);
    // Each exchange; the halves of a word; which lanes' part of a factor or of a sum a register is.
    for (size_t i = 0; i < 8; ++i) CHECK(wrong(text, p, replaced(p.ptx, "shfl.sync.bfly", "shfl.sync.idx", i)) != "");
    const size_t pair = p.ptx.find("cvt.rn.f16x2.f32 "), pair_end = p.ptx.find(';', pair);
    const std::string one = p.ptx.substr(pair, pair_end - pair);
    const size_t first = one.find(", "), second = one.rfind(", ");
    CHECK(wrong(text, p,
                replaced(p.ptx, one, one.substr(0, first) + one.substr(second) + one.substr(first, second - first))) !=
          "");
    const std::string code = four ? "wgmma.mma_async" : "mma.sync";
    const size_t last = p.ptx.rfind(code), last_end = p.ptx.find(';', last);
    const std::string product = p.ptx.substr(last, last_end - last);
    const size_t left = product.find("}, {") + 4, comma = product.find(", ", left),
                 next = product.find(", ", comma + 2);
    const std::string swapped = product.substr(0, left) + product.substr(comma + 2, next - comma - 2) + ", " +
                                product.substr(left, comma - left) + product.substr(next);
    CHECK(wrong(text, p, replaced(p.ptx, product, swapped)) != "");
  }
}

TEST_CASE("nvidia: a step of attention loads ahead, and its workgroups share a multiprocessor by three") {
  const auto read = [](const std::string& path) {
    std::ifstream in(path);
    REQUIRE_MESSAGE(in, path, ": run from the repository's root");
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  };
  // Values are under way while scores are made, and the next keys while the scores' product with the values is.
  const Program small = compiled(read("tests/tir/attention_halves.tir"), "sm_90a");
  size_t products = 0;
  for (size_t at = small.ptx.find("wgmma.fence"); at != std::string::npos; at = small.ptx.find("wgmma.fence", at + 1)) {
    const size_t barrier = small.ptx.rfind("bar.sync", at);
    REQUIRE(barrier != std::string::npos);
    CHECK(has(small.ptx.substr(barrier, at - barrier), "ld.global.nc."));
    ++products;
  }
  CHECK(products == 2);
  const std::string kernels = "tests/bench/gpu/kernels/";
  CHECK(has(compiled(read(kernels + "flash_f16_d64_4096.tir"), "sm_90a").ptx, "\n.minnctapersm 3\n"));
  CHECK_FALSE(has(compiled(read(kernels + "flash_f16_d128_4096.tir"), "sm_90a").ptx, "minnctapersm"));
  // An epilogue with transcendental functions has its sums in lanes, a plain product's go to rows.
  CHECK_FALSE(has(compiled(read(kernels + "matmul_gelu_f16_4096x1024x4096.tir"), "sm_90a").ptx, "st.shared.v2.f32"));
  CHECK(has(compiled(read(kernels + "matmul_f16_4096x4096x4096.tir"), "sm_90a").ptx, "st.shared.v2.f32"));
}

// -- places that ldmatrix does not take

namespace {

struct Tiles {
  const char *dtype, *sum;
  int64_t left, right, left_stride, right_stride;  // the first words, and words from row to row
  bool left_turned, right_turned;                  // rows are of k
  size_t by_ldmatrix;                              // how many of both
  int64_t sums_stride = 24;
};
/// One product of matrices at any place: the words of %x, taken as they are, go to shared memory, and the sums to %o.
ir::Kernel lane_kernel(const Tiles& t, int64_t k) {
  const auto text = [](int64_t v) { return std::to_string(v); };
  std::string s =
      "tir 1\nlane kernel @tiles\nworkgroup_size 32 subgroup_size 32 shared_bytes 12288\nnum_units 1 exact\nin "
      "u32[2048] "
      "whole\nout " +
      std::string(t.sum) + "[256] whole\nbody (%x: ref<global, u32[?]>, %o: ref<global, " + t.sum +
      "[?]>) {\n  %me = local_index : i32[]\n  %words = alloc_shared offset 0 : ref<shared, u32[2048]>\n  %place = "
      "alloc_shared offset 8192 : ref<shared, u32[1024]>\n  %numbers = alloc_shared offset 8192 : ref<shared, " +
      t.sum + "[1024]>\n";
  for (int i = 0; i < 64; ++i) {
    const std::string n = text(i);
    s += "  %c" + n + " = constant " + text(32 * i) + " : i32[]\n  %i" + n + " = add %me, %c" + n + "\n  %v" + n +
         " = load %x[%i" + n + "]\n  store %words[%i" + n + "], %v" + n + "\n";
  }
  const auto load = [&](const std::string& name, int64_t at, int64_t stride, const std::string& kind, bool reverse,
                        const std::string& shape) {
    s += "  %at_" + name + " = constant " + text(at) + " : i32[]\n  %" + name + " = matrix_load %words, %at_" + name +
         " stride [" + text(stride) + "] kind " + kind + (reverse ? " reverse 1" : "") + " : " + t.dtype + shape + "\n";
  };
  s += "  barrier\n";
  load("left", t.left, t.left_stride, "add", t.left_turned, "[16, " + text(k) + "]");
  load("right", t.right, t.right_stride, "sub", !t.right_turned, "[" + text(k) + ", 16]");
  s += std::string("  %zero = constant ") + (t.sum == std::string("f32") ? "0.0" : "0") + " : " + t.sum +
       "[]\n  %start = matrix_fill %zero : " + t.sum +
       "[16, 16]\n  %sums = matrix_multiply_add %left, %right, %start : " + t.sum +
       "[16, 16]\n  %three = constant 3 : i32[]\n  matrix_store %place, %sums, %three stride [" + text(t.sums_stride) +
       "]\n  barrier\n  %again = matrix_load %place, %three stride [" + text(t.sums_stride) + "] kind mul : " + t.sum +
       "[16, 16]\n  barrier\n  %first = constant 0 : i32[]\n  matrix_store %place, %again, %first stride [16]\n  "
       "barrier\n";
  for (int i = 0; i < 8; ++i) {
    const std::string n = text(i);
    s += "  %r" + n + " = load %numbers[%i" + n + "]\n  store %o[%i" + n + "], %r" + n + "\n";
  }
  return ir::parse(s + "}\n", "tiles.tir");
}

}  // namespace

TEST_CASE("nvidia: matrices anywhere in shared memory, by rows and by columns") {
  const std::vector<Tiles> all = {
      {"f16", "f32", 0, 640, 20, 20, false, false, 2},   // as the lowering has them
      {"f16", "f32", 64, 640, 12, 12, true, true, 2},    // both turned, by ldmatrix
      {"bf16", "f32", 1, 642, 20, 20, false, false, 0},  // no row is aligned
      {"f16", "f32", 4, 640, 9, 11, false, false, 0},    {"f16", "f32", 2, 641, 9, 13, true, true, 0, 17},
      {"i8", "i32", 0, 640, 12, 12, true, true, 0},  // bytes, which ldmatrix does not turn
      {"u8", "u32", 3, 640, 12, 20, true, false, 1, 19}, {"f8e5m2", "f32", 8, 644, 12, 5, false, true, 1},
  };
  for (const Tiles& t : all) {
    CAPTURE(std::string(t.dtype) + " at " + std::to_string(t.left) + ", " + std::to_string(t.right));
    const DType dtype = *dtype_from_name(t.dtype);
    const int64_t k = 32 / size_bytes(dtype);
    const ir::Kernel lanes = lane_kernel(t, k);
    Program p;
    p.name = "tiles";
    p.workgroup_size = 32;
    p.num_units = 1;
    p.args = {{"x", DType::u32, {2048}, false, true, false}, {"o", *dtype_from_name(t.sum), {256}, true, false, true}};
    p.ptx = nvidia::emit(lanes, Target::nvidia("sm_89"), false, false);
    CHECK(count(p.ptx, "ldmatrix") == t.by_ldmatrix);
    std::vector<Array> arrays{Array({2048}, DType::u32), Array({256}, *dtype_from_name(t.sum))};
    uint32_t x = 1;
    for (int64_t e = 0; e < 2048 * 4 / size_bytes(dtype); ++e) {
      x = x * 1664525 + 1013904223;
      const int v = static_cast<int>(x >> 29) - (dtype == DType::u8 ? 0 : 4);
      const uint64_t bits = is_float(dtype) ? to_narrow_bits(dtype, v) : static_cast<uint64_t>(v) & 0xff;
      const int64_t per = 4 / size_bytes(dtype), shift = e % per * 8 * size_bytes(dtype);
      arrays[0].set_element_bits(e / per, arrays[0].element_bits(e / per) | bits << shift);
    }
    const lane::RunResult want = lane::run(lanes, arrays, 1, {});
    for (const std::string& r : want.reports) FAIL_CHECK(r);
    const emulated::Result r = emulated::run(p, arrays, {}, {});
    CHECK(r.fault == "");
    int64_t others = 0;
    for (int64_t e = 0; e < 256; ++e) others += r.outputs.at(0).element_bits(e) != want.outputs.at(0).element_bits(e);
    CHECK(others == 0);
  }
}

TEST_CASE("nvidia: where matrices in views lie is a sum of starts") {
  const auto by_ldmatrix = [](int64_t first, int64_t second, int64_t at) {
    const auto constant = [](const char* name, int64_t v, const char* type) {
      return std::string("  %") + name + " = constant " + std::to_string(v) + " : " + type + "[]\n";
    };
    const std::string text =
        "tir 1\nlane kernel @k\nworkgroup_size 32 subgroup_size 32 shared_bytes 16384\nnum_units 1 exact\nbody () {\n"
        "  %words = alloc_shared offset 0 : ref<shared, u32[4096]>\n" +
        constant("first", first, "i64") + constant("second", second, "i64") + constant("at", at, "i32") +
        constant("far", 2048, "i32") +
        "  %part = view %words, %first\n  %own = view %part, %second\n  %z = constant 0.0 : f32[]\n  %a = matrix_load "
        "%own, %at stride [20] kind add : f16[16, 16]\n  %b = matrix_load %words, %far stride [20] kind sub reverse 1 "
        ": "
        "f16[16, 8]\n  %s = matrix_fill %z : f32[16, 8]\n  %r = matrix_multiply_add %a, %b, %s : f32[16, 8]\n  "
        "barrier\n "
        " %0 = constant 0 : i32[]\n  matrix_store %words, %r, %0 stride [64]\n}\n";
    return count(nvidia::emit(ir::parse(text, "k.tir"), Target::nvidia("sm_80"), false, false), "ldmatrix") == 2;
  };
  CHECK(by_ldmatrix(4, 8, 12));
  CHECK(by_ldmatrix(1, 2, 1));
  CHECK(by_ldmatrix(3, 0, 1));
  CHECK(!by_ldmatrix(1, 0, 1));
  CHECK(!by_ldmatrix(1, 1, 0));
  CHECK(!by_ldmatrix(4, 2, 0));
}

TEST_CASE("nvidia: left factors have 16 rows each, right ones 8 columns") {
  const auto products = [](int64_t rows, int64_t columns) -> std::string {
    const std::string m = std::to_string(rows), n = std::to_string(columns);
    const std::string text =
        "tir 1\nlane kernel @k\nworkgroup_size 32 subgroup_size 32 shared_bytes 16384\nnum_units 1 exact\nbody () {\n"
        "  %words = alloc_shared offset 0 : ref<shared, u32[4096]>\n  %0 = constant 0 : i32[]\n  %far = constant 2048 "
        ": i32[]\n"
        "  %z = constant 0.0 : f32[]\n  %a = matrix_load %words, %0 stride [20] kind add : f16[" +
        m +
        ", 16]\n"
        "  %b = matrix_load %words, %far stride [20] kind sub reverse 1 : f16[16, " +
        n +
        "]\n"
        "  %s = matrix_fill %z : f32[" +
        m + ", " + n +
        "]\n"
        "  %r = matrix_multiply_add %a, %b, %s : f32[" +
        m + ", " + n +
        "]\n"
        "  barrier\n  matrix_store %words, %r, %0 stride [64]\n}\n";
    try {
      return std::to_string(count(nvidia::emit(ir::parse(text, "k.tir"), Target::nvidia("sm_80"), false, false),
                                  "mma.sync.aligned.m16n8k16"));
    } catch (const InternalError& e) {
      return std::string(e.what()).substr(0, std::string(e.what()).find('\n'));
    }
  };
  CHECK(products(16, 8) == "1");
  CHECK(products(16, 24) == "3");
  CHECK(products(48, 8) == "3");
  CHECK(products(24, 16) == "k: nvidia: no matrices of f16[24, 16]");
  CHECK(products(16, 20) == "k: nvidia: no matrices of f16[16, 20]");
}

TEST_CASE("nvidia: sums of a product under way go to another product under way alone") {
  const auto second = [](const std::string& attrs, const std::string& sums, const std::string& behind) -> std::string {
    const std::string text =
        "tir 1\nlane kernel @k\nworkgroup_size 128 subgroup_size 32 shared_bytes 65536\nnum_units 1 exact\nbody () {\n"
        "  %words = alloc_shared offset 0 : ref<shared, u32[16384]>\n  %0 = constant 0 : i32[]\n  %far = constant 8192 "
        ": i32[]\n"
        "  %z = constant 0.0 : f32[]\n  %s = matrix_fill %z : f32[16, 16]\n"
        "  %a = matrix_load %words, %0 stride [264] kind sub pieces 1 : f16[64, 32]\n"
        "  %b = matrix_load %words, %far stride [260] kind add pieces 1 : f16[64, 64]\n"
        "  %c, %d = warpgroup_multiply_add %a, %b, %s, %s count 1 late 1\n"
        "  %e, %f = warpgroup_multiply_add %a, %b, " +
        sums + " count 1" + attrs + "\n" + behind + "}\n";
    try {
      nvidia::emit(ir::parse(text, "k.tir"), Target::nvidia("sm_90a"), false, false);
      return "no error";
    } catch (const InternalError& e) {
      return std::string(e.what()).substr(0, std::string(e.what()).find('\n'));
    }
  };
  const std::string wrong = "k: nvidia: sums are used while products are under way";
  const std::string again = "  %g, %h = warpgroup_multiply_add %a, %b, %c, %d count 1 late 1\n";
  CHECK(second(" late 1", "%c, %d", "") == "no error");
  CHECK(second("", "%c, %d", "") == wrong);
  CHECK(second(" late 1", "%c, %d", again) == wrong);
  CHECK(second("", "%s, %s", "") == "no error");
}

}  // namespace nvidia_matrix_test
