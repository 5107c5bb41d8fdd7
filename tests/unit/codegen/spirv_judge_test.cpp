// The judge below lane level (tests/support/judge): right modules pass, and each thing that a module may not do is
// reported, on modules written by hand and on compiled ones that were changed. So it cannot go blind unnoticed.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <spirv/unified1/spirv.hpp>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/base/error.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "tests/support/judge/judge.h"
#ifdef TESSERA_SPIRV_TOOLS
#include <spirv-tools/libspirv.hpp>
#endif

namespace spirv_judge_test {
using namespace tessera;

namespace {

#ifdef TESSERA_SPIRV_TOOLS
// u32 x[16] in, u32 o[16] out, 8 invocations to a workgroup, which have 16 words of shared memory. %i: the element of
// this invocation.
constexpr const char* kBefore = R"(
OpCapability Shader
OpMemoryModel PhysicalStorageBuffer64 Vulkan
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 8 1 1
OpDecorate %group_id BuiltIn WorkgroupId
OpDecorate %local BuiltIn LocalInvocationIndex
OpDecorate %sub_id BuiltIn SubgroupId
OpDecorate %lane_id BuiltIn SubgroupLocalInvocationId
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
OpMemberDecorate %block 1 Offset 8
OpDecorate %fs NoContraction
%glsl = OpExtInstImport "GLSL.std.450"
%void = OpTypeVoid
%fn = OpTypeFunction %void
%bool = OpTypeBool
%u16 = OpTypeInt 16 0
%u32 = OpTypeInt 32 0
%u64 = OpTypeInt 64 0
%f16 = OpTypeFloat 16
%f32 = OpTypeFloat 32
%f64 = OpTypeFloat 64
%v2 = OpTypeVector %u32 2
%v3 = OpTypeVector %u32 3
%v4 = OpTypeVector %u32 4
%pair = OpTypeStruct %u32 %u32
%true = OpConstantTrue %bool
%0 = OpConstant %u32 0
%1 = OpConstant %u32 1
%2 = OpConstant %u32 2
%3 = OpConstant %u32 3
%4 = OpConstant %u32 4
%5 = OpConstant %u32 5
%7 = OpConstant %u32 7
%8 = OpConstant %u32 8
%16 = OpConstant %u32 16
%31 = OpConstant %u32 31
%32 = OpConstant %u32 32
%all = OpConstant %u32 4294967295
%least = OpConstant %u32 2147483648
%seven_bits = OpConstant %u32 1088421888
%big = OpConstant %u64 1099511627777
%d0 = OpConstant %u64 0
%d1 = OpConstant %u64 1
%d4 = OpConstant %u64 4
%d8 = OpConstant %u64 8
%d60 = OpConstant %u64 60
%d64 = OpConstant %u64 64
%f0 = OpConstant %f32 0
%f1 = OpConstant %f32 1
%f3 = OpConstant %f32 3
%f2_5 = OpConstant %f32 2.5
%fhuge = OpConstant %f32 5e9
%fminus = OpConstant %f32 -1.5
%g1 = OpConstant %f64 1
%both = OpConstant %u32 25416
%shared_only = OpConstant %u32 24840
%buffers_only = OpConstant %u32 24648
%p_in3 = OpTypePointer Input %v3
%p_in = OpTypePointer Input %u32
%p_push64 = OpTypePointer PushConstant %u64
%p32 = OpTypePointer PhysicalStorageBuffer %u32
%p16 = OpTypePointer PhysicalStorageBuffer %u16
%p64 = OpTypePointer PhysicalStorageBuffer %u64
%p_v2 = OpTypePointer PhysicalStorageBuffer %v2
%p_v4 = OpTypePointer PhysicalStorageBuffer %v4
%block = OpTypeStruct %u64 %u64
%p_block = OpTypePointer PushConstant %block
%arena_type = OpTypeArray %u32 %16
%p_arena = OpTypePointer Workgroup %arena_type
%p_word = OpTypePointer Workgroup %u32
%push = OpVariable %p_block PushConstant
%group_id = OpVariable %p_in3 Input
%local = OpVariable %p_in Input
%sub_id = OpVariable %p_in Input
%lane_id = OpVariable %p_in Input
%arena = OpVariable %p_arena Workgroup
%main = OpFunction %void None %fn
%entry = OpLabel
%l = OpLoad %u32 %local
%lane = OpLoad %u32 %lane_id
%group3 = OpLoad %v3 %group_id
%group = OpCompositeExtract %u32 %group3 0
%first = OpIMul %u32 %group %8
%i = OpIAdd %u32 %first %l
%x_at = OpAccessChain %p_push64 %push %0
%x = OpLoad %u64 %x_at
%o_at = OpAccessChain %p_push64 %push %1
%o = OpLoad %u64 %o_at
%i64 = OpUConvert %u64 %i
%bytes = OpIMul %u64 %i64 %d4
%xa = OpIAdd %u64 %x %bytes
%oa = OpIAdd %u64 %o %bytes
%xp = OpConvertUToPtr %p32 %xa
%op = OpConvertUToPtr %p32 %oa
%v = OpLoad %u32 %xp Aligned 4
%word = OpAccessChain %p_word %arena %l
)";

struct Run {
  Program program;
  judge::Options options;
  std::vector<Array> arrays;

  explicit Run(const std::string& body, int64_t units = 2) {
    spvtools::SpirvTools tools(SPV_ENV_UNIVERSAL_1_6);
    std::string log;
    tools.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t& at, const char* message) {
      log += std::to_string(at.line) + ": " + message + "\n";
    });
    const bool fine = tools.Assemble(kBefore + body + "\nOpReturn\nOpFunctionEnd\n", &program.spirv);
    REQUIRE_MESSAGE(fine, log << body);
    program.name = "k";
    ProgramArg in{"x", DType::u32, {16}, false, true, false}, out{"o", DType::u32, {16}, true, true, true};
    program.args = {in, out};
    program.workgroup_size = 8;
    program.shared_bytes = 64;
    program.num_units = units;
    options.subgroup_size = 4;
    Array a({16}, DType::u32), b({16}, DType::u32);
    for (int64_t i = 0; i < 16; ++i) a.set_element_bits(i, static_cast<uint64_t>(10 + i)), b.set_element_bits(i, 7);
    arrays = {a, b};
  }
  judge::Result result(uint64_t seed = 0) {
    options.seed = seed;
    return judge::run(program, arrays, {}, options);
  }
  /// What is reported in several orders.
  std::string reports() {
    std::string all;
    for (uint64_t seed = 0; seed < 8; ++seed)
      for (const std::string& s : result(seed).reports) all += s + "\n";
    return all;
  }
  std::vector<uint64_t> outputs() {
    const judge::Result r = result();
    for (const std::string& s : r.reports) FAIL_CHECK(s);
    std::vector<uint64_t> v;
    for (int64_t i = 0; i < r.outputs.at(0).size(); ++i) v.push_back(r.outputs[0].element_bits(i));
    return v;
  }
};

bool says(const std::string& report, const std::string& what) {
  const bool found = report.find(what) != std::string::npos;
  if (!found) MESSAGE("said: ", report, "\nwanted: ", what);
  return found;
}
/// o[0] after a workgroup of which every invocation computes %r and stores it in its element.
uint64_t value_of(const std::string& body) {
  return Run(body + "\nOpStore %op %r Aligned|NonPrivatePointer 4", 1).outputs()[0];
}
#endif

}  // namespace

#ifdef TESSERA_SPIRV_TOOLS
TEST_SUITE_BEGIN("judge");

TEST_CASE("a right module passes and computes") {
  Run add("%r = OpIAdd %u32 %v %5\nOpStore %op %r Aligned|NonPrivatePointer 4");
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const judge::Result r = add.result(seed);
    CHECK(r.reports.empty());
    for (int64_t i = 0; i < 16; ++i) CHECK(r.outputs[0].element_bits(i) == static_cast<uint64_t>(15 + i));
  }
}

TEST_CASE("every access lies in an array that it may touch, and is aligned") {
  const auto load = [](const std::string& address, const std::string& type = "%u32",
                       const std::string& pointer = "%p32", const std::string& align = "4") {
    return Run(address + "\n%at = OpConvertUToPtr " + pointer + " %a\n%r = OpLoad " + type + " %at Aligned " + align)
        .reports();
  };
  CHECK(says(load("%a = OpIAdd %u64 %x %d64"), "out of bounds: 4 bytes at byte 64 of x, which has 64, in `%"));
  CHECK(says(load("%a = OpISub %u64 %x %d4"), "out of bounds: 4 bytes at byte -4 of x"));
  CHECK(says(load("%a = OpIAdd %u64 %x %big"), "out of bounds"));
  CHECK(says(load("%a = OpIAdd %u64 %x %d1"), "not aligned to 4: 4 bytes at byte 1 of x"));
  CHECK(says(load("%a = OpIAdd %u64 %x %d60", "%u64", "%p64"), "out of bounds: 8 bytes at byte 60 of x"));
  CHECK(says(load("%a = OpIAdd %u64 %x %d8", "%v4", "%p_v4", "16"), "not aligned to 16"));
  CHECK(load("%a = OpIAdd %u64 %x %d0", "%v4", "%p_v4", "16").empty());
  CHECK(load("%a = OpIAdd %u64 %x %d8", "%v2", "%p_v2", "8").empty());
  CHECK(says(Run("OpStore %xp %v Aligned 4").reports(), "x is written, but its Program does not say so"));
  Run unread("%r = OpLoad %u32 %op Aligned 4");
  unread.program.args[1].read = false;
  CHECK(says(unread.reports(), "o is read, but its Program does not say so"));
  CHECK(says(Run("%far = OpAccessChain %p_word %arena %16\nOpStore %far %v NonPrivatePointer").reports(),
             "out of bounds: 4 bytes at byte 64 of shared memory, which has 64"));
  CHECK(says(Run("%far = OpAccessChain %p_word %arena %all\nOpStore %far %v NonPrivatePointer").reports(),
             "out of bounds: 4 bytes at byte -4 of shared memory"));
}

TEST_CASE("parts of a word may be reached through it, what lies behind an array may not be changed") {
  const auto narrow = [](const std::string& body) {
    Run r(
        "%last = OpIEqual %bool %i %0\nOpSelectionMerge %done None\nOpBranchConditional %last %yes %done\n%yes = "
        "OpLabel\n" +
            body + "\nOpBranch %done\n%done = OpLabel",
        1);
    r.program.args[0].dtype = r.program.args[1].dtype = DType::u16;
    r.program.args[0].shape = r.program.args[1].shape = {31};
    r.arrays = {Array({31}, DType::u16), Array({31}, DType::u16)};
    return r.reports();
  };
  const std::string word = "%a = OpIAdd %u64 %o %d60\n%at = OpConvertUToPtr %p32 %a\n";
  CHECK(narrow(word + "%r = OpAtomicLoad %u32 %at %5 %0").empty());
  CHECK(says(narrow(word + "%r = OpAtomicOr %u32 %at %5 %0 %all"), "what lies behind o is changed"));
  CHECK(says(narrow("%a = OpIAdd %u64 %o %d64\n%at = OpConvertUToPtr %p32 %a\n%r = OpAtomicLoad %u32 %at %5 %0"),
             "out of bounds"));
}

TEST_CASE("conflicts: a barrier must lie between, of the right kind") {
  // Everybody stores its word of shared memory and reads its neighbour's.
  const auto shared = [](const std::string& barrier) {
    return Run("OpStore %word %v NonPrivatePointer\n" + barrier + R"(
%n = OpIAdd %u32 %l %1
%m = OpBitwiseAnd %u32 %n %7
%there = OpAccessChain %p_word %arena %m
%r = OpLoad %u32 %there NonPrivatePointer
OpStore %op %r Aligned|NonPrivatePointer 4)");
  };
  CHECK(shared("OpControlBarrier %2 %2 %both").outputs()[0] == 11);
  CHECK(shared("OpControlBarrier %2 %2 %shared_only").reports().empty());
  CHECK(says(shared("").reports(), "conflict without a barrier between: byte "));
  CHECK(says(shared("OpControlBarrier %2 %2 %buffers_only").reports(), "of shared memory is "));
  // A subgroup's own barrier: some neighbours are another's.
  CHECK(says(shared("OpControlBarrier %3 %3 %both").reports(), "conflict without a barrier between: byte "));
  CHECK(says(shared("OpControlBarrier %2 %2 %0").reports(), "conflict without a barrier between"));
  // The same through the output.
  const auto global = [](const std::string& barrier, const std::string& access = "Aligned|NonPrivatePointer 4") {
    return Run("OpStore %op %v Aligned|NonPrivatePointer 4\n" + barrier + R"(
%n = OpIAdd %u32 %l %1
%m = OpBitwiseAnd %u32 %n %7
%j = OpIAdd %u32 %first %m
%j64 = OpUConvert %u64 %j
%jb = OpIMul %u64 %j64 %d4
%ja = OpIAdd %u64 %o %jb
%there = OpConvertUToPtr %p32 %ja
%r = OpLoad %u32 %there )" +
               access);
  };
  CHECK(global("OpControlBarrier %2 %2 %both").reports().empty());
  CHECK(says(global("").reports(), "of o is "));
  CHECK(says(global("OpControlBarrier %2 %2 %shared_only").reports(), "conflict without a barrier between: byte "));
  CHECK(says(global("OpControlBarrier %2 %2 %both", "Aligned 4").reports(), "not NonPrivatePointer: byte "));
  // Two workgroups.
  CHECK(says(Run("%at = OpConvertUToPtr %p32 %o\n%one = OpIEqual %bool %l %0\nOpSelectionMerge %done "
                 "None\nOpBranchConditional %one %yes %done\n%yes = OpLabel\n"
                 "OpStore %at %v Aligned|NonPrivatePointer 4\nOpBranch %done\n%done = OpLabel")
                 .reports(),
             "conflict between workgroups: byte 0 of o"));
  // Atomics do not disturb one another.
  const std::string at = "%at = OpConvertUToPtr %p32 %o\n";
  Run sum(at + "%r = OpAtomicIAdd %u32 %at %5 %0 %1");
  CHECK(sum.outputs()[0] == 7 + 16);
  CHECK(says(Run(at + "%r = OpAtomicIAdd %u32 %at %2 %0 %1").reports(), "an atomic whose scope is narrower"));
  CHECK(
      says(Run(at + "%r = OpAtomicIAdd %u32 %at %5 %0 %1\n%s = OpLoad %u32 %at Aligned|NonPrivatePointer 4").reports(),
           "conflict"));
}

TEST_CASE("a loop that swaps until nobody came between loses nothing; one that does not look loses updates") {
  const auto loop = [](const std::string& expected) {
    return Run(
        "%at = OpConvertUToPtr %p32 %o\n%start = OpAtomicLoad %u32 %at %5 %0\nOpBranch %head\n%head = OpLabel\n%old = "
        "OpPhi %u32 %start %entry %seen %next\n"
        "OpLoopMerge %done %next None\nOpBranch %body\n%body = OpLabel\n%now = OpIAdd %u32 %old %1\n%seen = "
        "OpAtomicCompareExchange %u32 %at %5 %0 %0 %now " +
        expected + "\n%again = OpINotEqual %bool %seen " + expected +
        "\nOpBranch %next\n%next = OpLabel\nOpBranchConditional %again %head %done\n%done = OpLabel");
  };
  bool lost = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const judge::Result right = loop("%old").result(seed);
    CHECK(right.reports.empty());
    CHECK(right.outputs[0].element_bits(0) == 7 + 16);
    CHECK(right.most_iterations >= 1);
    Run blind(
        "%at = OpConvertUToPtr %p32 %o\n%old = OpAtomicLoad %u32 %at %5 %0\n%now = OpIAdd %u32 %old %1\n%r = "
        "OpAtomicExchange %u32 %at %5 %0 %now");
    lost |= blind.result(seed).outputs[0].element_bits(0) != 7 + 16;
  }
  CHECK(lost);
}

TEST_CASE("memory that nobody wrote may not reach an output, an address or a condition of a store") {
  const std::string read = "%u = OpLoad %u32 %word NonPrivatePointer\n";
  const std::string store = "\nOpStore %op %r Aligned|NonPrivatePointer 4";
  CHECK(says(Run(read + "%r = OpIAdd %u32 %u %1" + store).reports(),
             "undefined: the stored value hangs on uninitialised memory"));
  CHECK(says(Run(read + "%t = OpBitwiseAnd %u32 %u %1\n%r = OpIMul %u32 %t %3" + store).reports(), "the stored value"));
  CHECK(
      says(Run(read + "%c = OpIEqual %bool %u %1\n%r = OpSelect %u32 %c %1 %2" + store).reports(), "the stored value"));
  CHECK(says(
      Run(read +
          "%t = OpBitwiseAnd %u32 %u %7\n%at = OpAccessChain %p_word %arena %t\n%r = OpLoad %u32 %at NonPrivatePointer")
          .reports(),
      "the address"));
  CHECK(says(Run(read +
                 "%c = OpULessThan %bool %u %least\nOpSelectionMerge %done None\nOpBranchConditional %c %yes "
                 "%done\n%yes = OpLabel" +
                 "\nOpStore %op %v Aligned|NonPrivatePointer 4" + "\nOpBranch %done\n%done = OpLabel")
                 .reports(),
             "whether this is done"));
  CHECK(says(Run(read +
                 "%c = OpIEqual %bool %u %1\nOpSelectionMerge %done None\nOpBranchConditional %c %yes %no\n%yes = "
                 "OpLabel\nOpBranch %done\n%no = OpLabel\nOpBranch %done\n"
                 "%done = OpLabel\n%r = OpPhi %u32 %1 %yes %2 %no" +
                 store)
                 .reports(),
             "the stored value"));
  // What does not hang on it is fine: other bits, the other side of a select, what is multiplied away.
  CHECK(Run(read +
            "%t = OpShiftLeftLogical %u32 %u %16\n%s = OpBitwiseOr %u32 %t %5\n%m = OpISub %u32 %16 %1\n%r = "
            "OpBitwiseAnd %u32 %s %m" +
            store)
            .outputs()[0] == 5);
  CHECK(Run(read + "%r = OpSelect %u32 %true %v %u" + store).outputs()[0] == 10);
  CHECK(Run(read + "%c = OpIEqual %bool %u %1\n%r = OpSelect %u32 %c %v %v" + store).outputs()[0] == 10);
}

TEST_CASE("what is undefined is reported where it happens, or where its result is used") {
  const auto report = [](const std::string& body) { return Run(body).reports(); };
  CHECK(says(report("%r = OpUDiv %u32 %v %0"), "undefined: division by 0, in `%"));
  CHECK(says(report("%r = OpUMod %u32 %v %0"), "undefined: division by 0"));
  CHECK(says(report("%r = OpSDiv %u32 %v %0"), "undefined: division by 0"));
  CHECK(says(report("%r = OpSDiv %u32 %least %all"), "undefined: the least integer divided by -1"));
  CHECK(says(report("%r = OpSRem %u32 %all %3"), "undefined: a remainder of negative numbers"));
  CHECK(says(report("%r = OpConvertFToS %u32 %fhuge"), "undefined: a float that the integer cannot hold"));
  CHECK(says(report("%r = OpConvertFToU %u32 %fhuge"), "undefined: a float that the unsigned integer cannot hold"));
  CHECK(says(report("%r = OpConvertFToU %u32 %fminus"), "undefined: a float that the unsigned integer cannot hold"));
  CHECK(report("%r = OpShiftLeftLogical %u32 %v %32").empty());
  CHECK(says(report("%r = OpShiftLeftLogical %u32 %v %32\nOpStore %op %r Aligned|NonPrivatePointer 4"),
             "an undefined result"));
  CHECK(says(report("%r = OpBitFieldSExtract %u32 %v %31 %2\nOpStore %op %r Aligned|NonPrivatePointer 4"),
             "an undefined result"));
  CHECK(says(report("%r = OpGroupNonUniformShuffle %u32 %3 %v %8\nOpStore %op %r Aligned|NonPrivatePointer 4"),
             "an undefined result"));
  CHECK(says(report("%r = OpFAdd %f32 %f1 %f1"), "may be contracted"));
}

TEST_CASE("barriers and subgroup operations want everybody at one place, in one iteration") {
  const auto in_branch = [](const std::string& what) {
    return "%c = OpULessThan %bool %l %3\nOpSelectionMerge %done None\nOpBranchConditional %c %yes %done\n%yes = "
           "OpLabel\n" +
           what + "\nOpBranch %done\n%done = OpLabel";
  };
  CHECK(says(Run(in_branch("OpControlBarrier %2 %2 %both")).reports(), "divergence in workgroup "));
  CHECK(says(Run(in_branch("%r = OpGroupNonUniformShuffleXor %u32 %3 %v %1")).reports(), "divergence in workgroup "));
  const auto rounds = [](const std::string& n) {
    return "OpBranch %head\n%head = OpLabel\n%k = OpPhi %u32 %0 %entry %k1 %next\nOpLoopMerge %done %next "
           "None\nOpBranch %test\n%test = OpLabel\n%more = OpULessThan %bool %k " +
           n +
           "\nOpBranchConditional %more %body %done\n%body = OpLabel\nOpControlBarrier %2 %2 %both\nOpBranch "
           "%next\n%next = OpLabel\n%k1 = OpIAdd %u32 %k %1\nOpBranch %head\n%done = OpLabel";
  };
  CHECK(Run(rounds("%3")).reports().empty());
  CHECK(says(Run(rounds("%l")).reports(), "divergence in workgroup "));
}

TEST_CASE("subgroup operations") {
  const std::string store = "\nOpStore %op %r Aligned|NonPrivatePointer 4";
  const auto first = [&](const std::string& body) {  // in lane 1 of a subgroup of four that counts its lanes
    Run run("%mine = OpIAdd %u32 %lane %5\n" + body +
                "\n%is = OpIEqual %bool %lane %1\n%sub = OpLoad %u32 %sub_id\n%one = OpIEqual %bool %sub %0\n%w = "
                "OpLogicalAnd %bool %is %one\n"
                "%at = OpConvertUToPtr %p32 %o\nOpSelectionMerge %done None\nOpBranchConditional %w %yes %done\n%yes = "
                "OpLabel\nOpStore %at %r Aligned|NonPrivatePointer 4\nOpBranch %done\n%done = OpLabel",
            1);
    return run.outputs()[0];
  };
  CHECK(first("%r = OpGroupNonUniformShuffleXor %u32 %3 %mine %2") == 8);
  CHECK(first("%r = OpGroupNonUniformShuffle %u32 %3 %mine %0") == 5);
  CHECK(first("%r = OpGroupNonUniformBroadcast %u32 %3 %mine %3") == 8);
  CHECK(first("%r = OpGroupNonUniformBroadcastFirst %u32 %3 %mine") == 5);
  CHECK(first("%r = OpGroupNonUniformIAdd %u32 %3 Reduce %mine") == 26);
  CHECK(first("%r = OpGroupNonUniformIAdd %u32 %3 InclusiveScan %mine") == 11);
  CHECK(first("%r = OpGroupNonUniformIAdd %u32 %3 ExclusiveScan %mine") == 5);
  CHECK(first("%s = OpGroupNonUniformSMax %u32 %3 ExclusiveScan %mine\n%r = OpGroupNonUniformUMax %u32 %3 Reduce %s") ==
        0x80000000u);
  CHECK(first("%r = OpGroupNonUniformSMax %u32 %3 Reduce %mine") == 8);
  CHECK(first("%r = OpGroupNonUniformBitwiseXor %u32 %3 Reduce %mine") == (5 ^ 6 ^ 7 ^ 8));
  CHECK(first("%e = OpGroupNonUniformElect %bool %3\n%r = OpSelect %u32 %e %1 %2") == 2);
  CHECK(first("%odd = OpBitwiseAnd %u32 %lane %1\n%c = OpIEqual %bool %odd %1\n%b = OpGroupNonUniformBallot %v4 %3 "
              "%c\n%r = OpCompositeExtract %u32 %b 0") == 0b1010);
  CHECK(first("%c = OpULessThan %bool %lane %3\n%a = OpGroupNonUniformAll %bool %3 %c\n%b = OpGroupNonUniformAny %bool "
              "%3 %c\n%s = OpSelect %u32 %a %1 %0\n%t = OpSelect %u32 %b %2 %0\n%r = OpIAdd %u32 %s %t") == 2);
}

TEST_CASE("iterations are counted as drivers count them") {
  // for k in 0..n { for j in 0..m {} }
  const auto nested = [](const std::string& n, const std::string& m) {
    return Run(
        "OpBranch %head\n%head = OpLabel\n%k = OpPhi %u32 %0 %entry %k1 %next\nOpLoopMerge %done %next None\nOpBranch "
        "%test\n%test = OpLabel\n%more = OpULessThan %bool %k " +
        n +
        "\nOpBranchConditional %more %body %done\n%body = OpLabel\nOpBranch %head2\n%head2 = OpLabel\n%j = OpPhi %u32 "
        "%0 %body %j1 %next2\nOpLoopMerge %done2 %next2 None\nOpBranch %test2\n"
        "%test2 = OpLabel\n%more2 = OpULessThan %bool %j " +
        m +
        "\nOpBranchConditional %more2 %body2 %done2\n%body2 = OpLabel\nOpBranch %next2\n%next2 = OpLabel\n%j1 = OpIAdd "
        "%u32 %j %1\n"
        "OpBranch %head2\n%done2 = OpLabel\nOpBranch %next\n%next = OpLabel\n%k1 = OpIAdd %u32 %k %1\nOpBranch "
        "%head\n%done = OpLabel");
  };
  for (const int n : {1, 2, 5, 7, 8, 16, 31, 32}) {  // each time that the inner loop is passed counts
    CHECK(nested("%" + std::to_string(n), "%5").result().most_iterations == n + 1 + n * 6 + 1);
    CHECK(nested("%5", "%" + std::to_string(n)).result().most_iterations == 6 + 5 * (n + 1) + 1);
  }
  CHECK(nested("%3", "%5").result().most_iterations == 4 + 3 * 6 + 1);  // the last test passes the inner loop, too
  CHECK(nested("%0", "%5").result().most_iterations == 1 + 1);
  CHECK(nested("%3", "%lane").result().most_iterations == 4 + 3 * 4 + 1);  // the slowest of four lanes
  CHECK(nested("%lane", "%3").result().most_iterations == 4 + 3 * 4 + 1);
  Run counted = nested("%3", "%5");
  counted.options.loops = std::vector<ProgramLoop>{{{}, 0, Extent(10)}};
  CHECK(says(counted.reports(), "a subgroup runs 23 loop iterations, but at most 10 are counted"));
  counted.options.loops = std::vector<ProgramLoop>{{{}, 24, {}}};
  CHECK(says(counted.reports(), "no subgroup runs more than 23 loop iterations, but at least 24 are counted"));
  counted.options.loops = std::vector<ProgramLoop>{{{}, 23, Extent(23)}};
  CHECK(counted.reports().empty());
  // A branch that is not taken passes its loop.
  Run endless(
      "OpBranch %head\n%head = OpLabel\nOpLoopMerge %done %next None\nOpBranch %next\n%next = "
      "OpLabel\nOpBranchConditional %true %head %done\n%done = OpLabel");
  endless.options.max_steps = 1000;
  CHECK(endless.result().unfinished);
}

TEST_CASE("arithmetic") {
  const auto u = [](const std::string& op) { return value_of("%r = " + op); };
  CHECK(u("OpISub %u32 %3 %5") == 0xfffffffeu);
  CHECK(u("OpIMul %u32 %all %5") == 0xfffffffbu);
  CHECK(u("OpUDiv %u32 %all %3") == 0x55555555u);
  CHECK(u("OpSDiv %u32 %all %1") == 0xffffffffu);
  CHECK(u("OpUMod %u32 %all %16") == 15);
  CHECK(u("OpSNegate %u32 %3") == 0xfffffffdu);
  CHECK(u("OpNot %u32 %3") == 0xfffffffcu);
  CHECK(u("OpBitwiseXor %u32 %3 %5") == 6);
  CHECK(u("OpShiftLeftLogical %u32 %3 %31") == 0x80000000u);
  CHECK(u("OpShiftRightLogical %u32 %least %31") == 1);
  CHECK(u("OpShiftRightArithmetic %u32 %least %31") == 0xffffffffu);
  CHECK(u("OpBitFieldSExtract %u32 %7 %0 %3") == 0xffffffffu);
  CHECK(u("OpBitFieldUExtract %u32 %all %4 %3") == 7);
  CHECK(u("OpBitCount %u32 %all") == 32);
  CHECK(u("OpBitReverse %u32 %1") == 0x80000000u);
  CHECK(u("OpExtInst %u32 %glsl FindUMsb %16") == 4);
  CHECK(u("OpExtInst %u32 %glsl FindUMsb %0") == 0xffffffffu);
  const auto condition = [](const std::string& op) { return value_of("%c = " + op + "\n%r = OpSelect %u32 %c %1 %0"); };
  CHECK(condition("OpULessThan %bool %3 %all") == 1);
  CHECK(condition("OpSLessThan %bool %3 %all") == 0);
  CHECK(condition("OpSLessThanEqual %bool %all %3") == 1);
  CHECK(condition("OpUGreaterThan %bool %all %3") == 1);
  CHECK(condition("OpUGreaterThanEqual %bool %3 %3") == 1);
  CHECK(condition("OpLogicalNotEqual %bool %true %true") == 0);
  CHECK(condition("OpFOrdLessThan %bool %f1 %f3") == 1);
  CHECK(condition("OpFUnordLessThan %bool %f3 %f1") == 0);
  const std::string nan = "%s = OpExtInst %f32 %glsl Sqrt %fminus\n%c = ";
  const auto with_nan = [&](const std::string& op) { return value_of(nan + op + "\n%r = OpSelect %u32 %c %1 %0"); };
  CHECK(with_nan("OpFOrdEqual %bool %s %s") == 0);
  CHECK(with_nan("OpFUnordNotEqual %bool %s %s") == 1);
  CHECK(with_nan("OpFUnordLessThan %bool %s %f1") == 1);
  CHECK(with_nan("OpIsNan %bool %s") == 1);
  const auto f = [](const std::string& op) { return value_of("%fs = " + op + "\n%r = OpBitcast %u32 %fs"); };
  const auto bits = [](float x) { return uint64_t{std::bit_cast<uint32_t>(x)}; };
  CHECK(f("OpFAdd %f32 %f1 %f3") == bits(4));
  CHECK(f("OpFSub %f32 %f1 %f3") == bits(-2));
  CHECK(f("OpFMul %f32 %f2_5 %f3") == bits(7.5));
  CHECK(f("OpFDiv %f32 %f1 %f3") == bits(1.0f / 3));
  CHECK(f("OpFNegate %f32 %f0") == 0x80000000u);
  CHECK(f("OpExtInst %f32 %glsl RoundEven %f2_5") == bits(2));
  CHECK(f("OpExtInst %f32 %glsl Floor %fminus") == bits(-2));
  CHECK(f("OpExtInst %f32 %glsl Ceil %fminus") == bits(-1));
  CHECK(f("OpExtInst %f32 %glsl Trunc %fminus") == bits(-1));
  CHECK(f("OpExtInst %f32 %glsl FAbs %fminus") == bits(1.5));
  CHECK(f("OpExtInst %f32 %glsl Fma %f2_5 %f3 %f1") == bits(8.5));
  CHECK(f("OpExtInst %f32 %glsl Exp2 %f3") == bits(8));
  CHECK(f("OpConvertUToF %f32 %7") == bits(7));
  CHECK(f("OpConvertSToF %f32 %all") == bits(-1));
  CHECK(u("OpConvertFToU %u32 %f2_5") == 2);
  CHECK(u("OpConvertFToS %u32 %fminus") == 0xffffffffu);
  CHECK(value_of("%h = OpFConvert %f16 %f2_5\n%b = OpBitcast %u16 %h\n%r = OpUConvert %u32 %b") == 0x4100);
  CHECK(value_of("%w = OpFConvert %f64 %f2_5\n%b = OpBitcast %v2 %w\n%r = OpCompositeExtract %u32 %b 1") ==
        0x40040000u);
  // 64 bits, as one integer and as two words.
  CHECK(value_of("%w = OpSConvert %u64 %all\n%s = OpShiftRightArithmetic %u64 %w %d4\n%b = OpBitcast %v2 %s\n%r = "
                 "OpCompositeExtract %u32 %b 1") == 0xffffffffu);
  CHECK(value_of("%w = OpIAdd %u64 %big %big\n%h = OpShiftRightLogical %u64 %w %32\n%r = OpUConvert %u32 %h") == 512);
  CHECK(value_of("%p = OpUMulExtended %pair %all %all\n%r = OpCompositeExtract %u32 %p 1") == 0xfffffffeu);
  CHECK(value_of("%p = OpIAddCarry %pair %all %2\n%a = OpCompositeExtract %u32 %p 0\n%c = OpCompositeExtract %u32 %p "
                 "1\n%t = OpShiftLeftLogical %u32 %c %4\n%r = OpBitwiseOr %u32 %t %a") == 17);
  CHECK(value_of("%w = OpCompositeConstruct %v2 %5 %7\n%i0 = OpCompositeInsert %v2 %3 %w 1\n%m = OpVectorShuffle %v2 "
                 "%i0 %w 1 2\n%a = OpCompositeExtract %u32 %m 0\n%b = OpCompositeExtract %u32 %m 1\n"
                 "%t = OpShiftLeftLogical %u32 %a %4\n%r = OpBitwiseOr %u32 %t %b") == 0x35);
  // An address made of two words.
  CHECK(value_of("%w = OpBitcast %v2 %xa\n%a = OpCompositeExtract %u32 %w 0\n%b = OpCompositeExtract %u32 %w 1\n%again "
                 "= OpCompositeConstruct %v2 %a %b\n%at = OpBitcast %p32 %again\n%r = OpLoad %u32 %at Aligned 4") ==
        10);
  CHECK(value_of("OpSelectionMerge %done None\nOpSwitch %5 %other 3 %three 5 %five\n%three = OpLabel\nOpBranch "
                 "%done\n%five = OpLabel\nOpBranch %done\n%other = OpLabel\nOpBranch %done\n%done = OpLabel\n"
                 "%r = OpPhi %u32 %1 %three %2 %five %3 %other") == 2);
}

TEST_CASE("what the judge does not know is an error with its name") {
  CHECK_THROWS_WITH_AS(Run("%r = OpExtInst %f32 %glsl Sin %f1").result(), doctest::Contains("judge: does not know `"),
                       InternalError);
  CHECK_THROWS_WITH_AS(Run("OpMemoryBarrier %2 %both").result(), doctest::Contains("OpMemoryBarrier"), InternalError);
}

namespace {

// Compiled modules, changed.
struct Compiled {
  ir::Kernel kernel;
  Program program;
  ir::Kernel lane;
  std::vector<Array> arrays, wanted;
  Target target;

  Compiled(const std::string& text, const Target& t, bool general) : kernel(ir::parse(text, "k.tir")), target(t) {
    CompileOptions o;
    o.general = general;
    o.dump = [&](std::string_view, const ir::Kernel& k, bool) {
      if (k.level == ir::Level::lane) lane = k;
    };
    program = compile(kernel, t, o);
    std::vector<Array> inputs;
    for (const ProgramArg& a : program.args) {
      Shape shape;
      for (const Extent& e : a.shape) shape.push_back(*e.value());
      Array x(shape, a.dtype);
      for (int64_t i = 0; i < x.size(); ++i)
        x.set_element_bits(i, a.dtype == DType::f32 ? std::bit_cast<uint32_t>(static_cast<float>(i * 7 % 13))
                                                    : static_cast<uint64_t>(i * 7 % 13));
      if (!a.is_output) inputs.push_back(x);
      arrays.push_back(std::move(x));
    }
    wanted = interpret(kernel, inputs);
  }
  /// "" if the module is right in every order.
  std::string judged(const std::vector<uint32_t>& words, int seeds = 4) const {
    Program p = program;
    p.spirv = words;
    for (int seed = 0; seed < seeds; ++seed) {
      judge::Options o;
      o.seed = static_cast<uint64_t>(seed);
      o.subgroup_size = target.subgroup_size;
      o.max_steps = 1 << 24;
      const judge::Result r = judge::run(p, arrays, {}, o);
      if (!r.reports.empty()) return r.reports[0];
      if (r.unfinished) return "unfinished";
      for (size_t i = 0; i < wanted.size(); ++i)
        for (int64_t e = 0; e < wanted[i].size(); ++e)
          if (wanted[i].element_bits(e) != r.outputs[i].element_bits(e)) return "wrong";
    }
    return "";
  }
};

constexpr const char* kColumns = R"(tir 1
kernel @columns
grid (3)
in i32[12, 40] block (4, 40) map (%i) { %0 = constant 0 : i32[]
 yield %i, %0 }
out i32[12, 40] block (4, 40) map (%i) { %0 = constant 0 : i32[]
 yield %i, %0 }
scratch ref<vmem, i32[40, 4]>
body (%x, %o, %s) {
  %a = load %x[0:4, 0:40]
  %t = transpose %a perm [1, 0]
  store %s[0:40, 0:4], %t
  %b = load %s[0:40, 0:4]
  %c = reduce_sum %b axes [0]
  %d = reshape %c : i32[4, 1]
  %e = broadcast %d dims [0, 1] : i32[4, 40]
  %f = add %a, %e
  store %o[0:4, 0:40], %f
}
)";

std::vector<size_t> positions(const std::vector<uint32_t>& words, const std::function<bool(spv::Op)>& wanted) {
  std::vector<size_t> at;
  for (size_t i = 5; i < words.size(); i += words[i] >> 16)
    if (wanted(static_cast<spv::Op>(words[i] & 0xffff))) at.push_back(i);
  return at;
}

}  // namespace

TEST_CASE("compiled modules: without a barrier, with addresses moved or operands swapped") {
  size_t changed = 0, survived = 0, all_noticed = 0, moved = 0, moved_survived = 0;
  for (const Target& t : {minimum_target(), lavapipe_target(), gpu_target()})
    for (const bool general : {true, false}) {
      CAPTURE(t.name);
      CAPTURE(general);
      const Compiled c(kColumns, t, general);
      const std::vector<uint32_t>& words = c.program.spirv;
      CHECK(c.judged(words).empty());
      // Each barrier becomes OpNops: that is noticed where the lane-level interpreter misses the same one.
      std::vector<std::pair<size_t, size_t>> lane_barriers;  // region, op
      for (size_t r = 0; r < c.lane.regions.size(); ++r)
        for (size_t i = 0; i < c.lane.regions[r].ops.size(); ++i)
          if (c.lane.op(c.lane.regions[r].ops[i]).code == ir::Opcode::barrier) lane_barriers.push_back({r, i});
      const std::vector<size_t> barriers = positions(words, [](spv::Op op) { return op == spv::OpControlBarrier; });
      size_t lane_noticed = 0, noticed = 0;
      for (const auto& [r, i] : lane_barriers) {
        ir::Kernel k = c.lane;
        k.regions[r].ops.erase(k.regions[r].ops.begin() + static_cast<std::ptrdiff_t>(i));
        lane_noticed +=
            !lane::run(k, c.arrays, c.kernel.num_inputs, {}, {.subgroup_size = t.subgroup_size}).reports.empty();
      }
      for (const size_t at : barriers) {
        std::vector<uint32_t> w = words;
        for (size_t i = 0; i < 4; ++i) w[at + i] = 1u << 16 | spv::OpNop;
        noticed += !c.judged(w).empty();
      }
      CHECK(noticed >= lane_noticed);
      all_noticed += noticed;
      for (const size_t at : positions(words, [](spv::Op op) {
             return op == spv::OpISub || op == spv::OpULessThan || op == spv::OpSLessThan ||
                    op == spv::OpShiftLeftLogical;
           })) {
        std::vector<uint32_t> w = words;
        if (w[at + 3] == w[at + 4]) continue;
        std::swap(w[at + 3], w[at + 4]);
        ++changed;
        survived += c.judged(w, 2).empty();
      }
      // Each pointer into a buffer is made of another address: that of the pointer before.
      const std::vector<size_t> pointers =
          positions(words, [&](spv::Op op) { return op == (t.int64 ? spv::OpConvertUToPtr : spv::OpBitcast); });
      for (size_t i = 1; i < pointers.size(); ++i) {
        std::vector<uint32_t> w = words;
        if (w[pointers[i] + 1] != w[pointers[i - 1] + 1] || w[pointers[i] + 3] == w[pointers[i - 1] + 3]) continue;
        w[pointers[i] + 3] = w[pointers[i - 1] + 3];
        ++moved;
        try {
          moved_survived += c.judged(w, 2).empty();
        } catch (const InternalError&) {  // computed in a branch: not there
        }
      }
    }
  CHECK(all_noticed > 3);
  CHECK(moved > 10);
  CHECK(moved_survived == 0);
  CHECK(changed > 10);
  CHECK_MESSAGE(survived <= changed / 2, survived << " of " << changed);  // guards of what cannot happen here survive
}

TEST_CASE("compiled modules: a constant that is one more is noticed where it counts") {
  const Compiled c(kColumns, lavapipe_target(), false);
  size_t changed = 0, survived = 0;
  const std::vector<uint32_t>& words = c.program.spirv;
  for (const size_t at : positions(words, [](spv::Op op) { return op == spv::OpConstant; })) {
    std::vector<uint32_t> w = words;
    ++w[at + 3];
    ++changed;
    std::string said;
    try {
      said = c.judged(w, 2);
    } catch (const std::exception& e) {
      said = e.what();  // a scope, a member or the size of an array that is none now
    }
    survived += said.empty();
  }
  CHECK(changed > 5);
  CHECK_MESSAGE(survived * 2 <= changed, survived << " of " << changed);  // guards, again
}

TEST_CASE("compiled modules: shared memory is words and vectors in one place") {
  Target target = gpu_target();
  target.shared_vectors = true;
  const Compiled c(R"(tir 1
kernel @product
in f32[64, 64] whole
in f32[64, 64] whole
out f32[64, 64] whole
body (%x, %y, %o) {
  %a = load %x[0:64, 0:64]
  %b = load %y[0:64, 0:64]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 64]
  store %o[0:64, 0:64], %c
}
)",
                   target, false);
  const std::vector<uint32_t>& words = c.program.spirv;
  CHECK(c.judged(words, 2).empty());
  const auto is_view = [&](size_t at) { return words[at + 2] == spv::DecorationAliased; };
  std::vector<size_t> views = positions(words, [](spv::Op op) { return op == spv::OpDecorate; });
  std::erase_if(views, [&](size_t at) { return !is_view(at); });
  REQUIRE(views.size() > 1);
  // Of another size of element; or not said to share their place.
  std::vector<uint32_t> w = words;
  for (size_t i = 0; i < 3; ++i) w[views[0] + i] = 1u << 16 | spv::OpNop;
  CHECK_THROWS(c.judged(w, 1));
  w = words;
  for (const size_t at : positions(words, [](spv::Op op) { return op == spv::OpDecorate; }))
    if (w[at + 2] == spv::DecorationArrayStride && w[at + 3] == 16) w[at + 3] = 32;
  CHECK_THROWS(c.judged(w, 1));
}

TEST_SUITE_END();
#endif

}  // namespace spirv_judge_test
