// PTX: what a module says beside what it computes, which the fuzzer's suite compares with the interpreter on the
// emulator (tests/support/emulate), and which ptxas reads (tests/ptxas.sh).
#include <doctest/doctest.h>

#include <string>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "codegen/nvidia/emit.h"
#include "codegen/program/program_file.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/emulate/emulate.h"
#include "tests/support/messages.h"

namespace nvidia_test {
using namespace tessera;

namespace {

constexpr const char* kAdd = R"(tir 1
kernel @add
in f32[20] whole
in f32[20] whole
out f32[20] whole
body (%x, %y, %o) {
  %a = load %x[0:20]
  %b = load %y[0:20]
  %m = mul %a, %b
  %c = add %m, %b
  store %o[0:20], %c
}
)";

Program compiled(const std::string& text, const char* chip, bool strict = false, bool lines = false) {
  CompileOptions o;
  o.strict = strict;
  o.debug_info = lines;
  return compile(ir::parse(text, "k.tir"), Target::nvidia(chip), o);
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::string refused(const std::string& name) {
  try {
    Target::named(name);
  } catch (const CompileError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("nvidia: a module names its chip, its parameters and its workgroup") {
  const Program p = compiled(kAdd, "sm_90a");
  CHECK(p.spirv.empty());
  CHECK(has(p.ptx, ".version 8.0\n.target sm_90a\n.address_size 64\n"));
  CHECK(has(p.ptx,
            ".visible .entry main(\n  .param .align 8 .b8 arguments[" + std::to_string(p.push_bytes()) + "]\n)\n"));
  CHECK(has(p.ptx, ".reqntid " + std::to_string(p.workgroup_size) + ", 1, 1\n"));
  CHECK(compiled(kAdd, "sm_90a").ptx == p.ptx);
  CHECK(has(compiled(kAdd, "sm_80").ptx, ".version 7.8\n.target sm_80\n"));
  CHECK_FALSE(p.indirect_table);
}

TEST_CASE("nvidia: strict code fuses nothing, relaxed code fuses a product with a sum, and neither flushes") {
  const std::string strict = compiled(kAdd, "sm_80", true).ptx, relaxed = compiled(kAdd, "sm_80").ptx;
  CHECK(has(strict, "mul.rn.f32"));
  CHECK(has(strict, "add.rn.f32"));
  CHECK_FALSE(has(strict, "fma."));
  CHECK(has(relaxed, "fma.rn.f32"));
  CHECK_FALSE(has(relaxed, ".ftz"));
}

TEST_CASE("nvidia: lines of the user's file on request") {
  const std::string plain = compiled(kAdd, "sm_80").ptx, lines = compiled(kAdd, "sm_80", false, true).ptx;
  CHECK_FALSE(has(plain, ".loc"));
  CHECK(has(lines, ".loc 1 11 0;"));
  CHECK(has(lines, ".file 1 \"k.tir\"\n"));
}

TEST_CASE("nvidia: a Program with PTX is written and read") {
  const Program p = compiled(kAdd, "sm_80");
  const auto back = program_from_bytes(program_to_bytes(p));
  REQUIRE(back);
  CHECK(back->ptx == p.ptx);
  Program both = p;
  both.spirv = {1};
  CHECK_FALSE(is_valid(both));
}

TEST_CASE("nvidia: unknown targets and chips") {
  CHECK(refused("nvidia:sm_75") ==
        "target nvidia:sm_75: no such chip\n  note: the chips are sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, "
        "sm_100a, "
        "sm_103, sm_120, sm_121");
  CHECK(refused("amd") ==
        "target amd: no such target\n  note: the targets are gpu, gpu-matrix, lavapipe, minimum, nvidia:CHIP as "
        "in nvidia:sm_90a, and tpu:CHIP as in tpu:v5e");
  CHECK(Target::named("nvidia:sm_90a") == Target::nvidia("sm_90a"));
}

TEST_CASE("nvidia: more invocations or shared memory than the chip has are refused") {
  const auto of = [](const std::string& invocations, const std::string& bytes) {
    return tessera::test::message([&] {
      nvidia::emit(
          ir::parse("tir 1\nlane kernel @k\nworkgroup_size " + invocations + " shared_bytes " + bytes +
                    "\nnum_units 1 exact\nout i32[8] whole\nbody (%o) {\n  %l = local_index\n  store %o[%l], %l\n}\n"),
          Target::nvidia("sm_80"), false, false);
    });
  };
  CHECK(of("1024", "166912") == "no error");
  CHECK(of("1056", "0") == "k: workgroup size: needs 1056 invocations, nvidia:sm_80 has 1024\n  at <text>:2");
  CHECK(of("32", "166916") == "k: shared memory: needs 166916 bytes, nvidia:sm_80 has 166912\n  at <text>:2");
}

TEST_CASE("nvidia: what a warp makes of its lanes' numbers, by redux where it has one") {
  struct Case {
    const char *dtype, *kind, *instruction;
  };
  const Case cases[] = {
      {"i32", "add", "redux.sync.add.s32"}, {"u32", "add", "redux.sync.add.u32"}, {"i32", "max", "redux.sync.max.s32"},
      {"u32", "min", "redux.sync.min.u32"}, {"u32", "and", "redux.sync.and.b32"}, {"i8", "add", "redux.sync.add.s32"},
      {"u8", "xor", "redux.sync.xor.b32"},  {"i32", "mul", "shfl.sync.bfly.b32"}, {"i64", "add", "shfl.sync.bfly.b32"},
      {"f32", "max", "shfl.sync.bfly.b32"}, {"f16", "add", "shfl.sync.bfly.b32"}, {"f64", "min", "shfl.sync.bfly.b32"}};
  for (const Case& c : cases) {
    CAPTURE(std::string(c.kind) + " of " + c.dtype);
    const std::string t = c.dtype;
    const ir::Kernel lanes = ir::parse(
        "tir 1\nlane kernel @k\nworkgroup_size 64 subgroup_size 32\nnum_units 1 exact\nin " + t + "[64] whole\nout " +
        t + "[64] whole\nbody (%x, %o) {\n  %l = local_index\n  %a = load %x[%l]\n  %r = subgroup_reduce %a kind " +
        c.kind + "\n  store %o[%l], %r\n}\n");
    const DType dtype = *dtype_from_name(t);
    Program p;
    p.name = "k";
    p.workgroup_size = 64;
    p.num_units = 1;
    p.args = {{"x", dtype, {64}, false, true, false}, {"o", dtype, {64}, true, false, true}};
    p.ptx = nvidia::emit(lanes, Target::nvidia("sm_80"), false, false);
    CHECK(has(p.ptx, c.instruction));
    std::vector<Array> arrays{Array({64}, dtype), Array({64}, dtype)};
    for (int64_t i = 0; i < 64; ++i)
      arrays[0].set_element_bits(i, reference::from_double(dtype, static_cast<double>(i * 7 % 11 + 1)));
    const lane::RunResult want = lane::run(lanes, arrays, 1, {});
    for (const std::string& r : want.reports) FAIL_CHECK(r);
    const emulated::Result r = emulated::run(p, arrays, {}, {});
    CHECK(r.fault == "");
    int64_t others = 0;
    for (int64_t i = 0; i < 64; ++i) others += r.outputs.at(0).element_bits(i) != want.outputs.at(0).element_bits(i);
    CHECK(others == 0);
  }
}

TEST_CASE("nvidia: what turns the sign of a word is no subtraction and no product, which ptxas may lose") {
  const auto of = [](const std::string& t, const std::string& constant, const std::string& op) {
    const std::string ptx = nvidia::emit(
        ir::parse("tir 1\nlane kernel @k\nworkgroup_size 32 shared_bytes 0\nnum_units 1 exact\nin " + t +
                  "[32] whole\nout " + t + "[32] whole\nbody (%x, %o) {\n  %l = local_index\n  %c = constant " +
                  constant + " : " + t + "[]\n  %a = load %x[%l]\n  %r = " + op + "\n  store %o[%l], %r\n}\n"),
        Target::nvidia("sm_80"), false, false);
    std::string found;
    for (const char* code : {"not.b32", "neg.", "sub.", "mul.lo.u32", "mul.lo.u64", "mul.rn.f32"})
      if (has(ptx, code)) found += (found.empty() ? "" : " ") + std::string(code);
    return found;
  };
  for (const std::string t : {"i32", "u32"}) {
    const std::string ones = t == "i32" ? "-1" : "4294967295";
    CHECK(of(t, ones, "mul %a, %c") == "not.b32");
    CHECK(of(t, ones, "mul %c, %a") == "not.b32");
    CHECK(of(t, "3", "mul %c, %a") == "mul.lo.u32");
    CHECK(of(t, "0", "sub %c, %a") == "not.b32");
    CHECK(of(t, "1", "sub %c, %a") == "sub.");
    CHECK(of(t, "0", "neg %a") == "not.b32");
  }
  for (const std::string t : {"i64", "u64"}) {
    CHECK(of(t, "4294967295", "mul %a, %c") == "mul.lo.u64");
    CHECK(of(t, "4294967295", "mul %c, %a") == "mul.lo.u64");
    CHECK(of(t, "0", "sub %c, %a") == "sub.");
    CHECK(of(t, "0", "neg %a") == "neg.");
  }
  CHECK(of("f32", "-1.0", "mul %c, %a") == "mul.rn.f32");
  CHECK(of("f32", "0.0", "sub %c, %a") == "sub.");
  CHECK(of("f32", "0.0", "neg %a") == "neg.");
}

}  // namespace nvidia_test
