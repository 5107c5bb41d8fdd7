// PTX: what a module says beside what it computes, which the fuzzer's suite compares with the interpreter on the
// emulator (tests/support/emulate), and which ptxas reads (tests/ptxas.sh).
#include <doctest/doctest.h>

#include <string>

#include "codegen/compile.h"
#include "codegen/program/program_file.h"
#include "engine/ir/text.h"

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

}  // namespace nvidia_test
