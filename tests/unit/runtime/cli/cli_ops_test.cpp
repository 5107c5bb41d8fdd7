// tessera ops, as a user sees it.
#include "engine/ir/kernel.h"
#include "tests/unit/runtime/support.h"

#ifdef TESSERA_CLI

namespace cli_ops_test {
using namespace tessera;

namespace {
std::string out(const std::string& arguments, int code = 0) {
  const test::TemporaryFolder folder("cli_ops");
  CHECK(test::run_program(folder.path, TESSERA_CLI, "ops " + arguments) == code);
  return folder.read("out.txt") + folder.read("err.txt");
}
void expect(const std::string& got, const std::string& want) { CHECK(got == want); }
}  // namespace

TEST_CASE("tessera ops lists every op once, with its meaning" * test::without_device) {
  const std::string all = "\n" + out("");
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const ir::OpInfo& row = ir::info(static_cast<ir::Opcode>(i));
    const size_t at = all.find("\n  " + std::string(row.name) + " ");
    CAPTURE(row.name);
    REQUIRE(at != std::string::npos);
    CHECK(all.find("\n  " + std::string(row.name) + " ", at + 1) == std::string::npos);
    const size_t end = all.find('\n', at + 1);
    CHECK(all.substr(at, end - at).ends_with(row.doc));
    if (!row.tile || row.family != ir::Family::elementwise)
      CHECK(all.substr(at, end - at).find(" " + std::string(ir::name(row.family)) + " ") < 48);
  }
}

TEST_CASE("tessera ops NAME" * test::without_device) {
  expect(out("exp"),
         "exp: e^a\n  elementwise: takes 1 value, floats; gives their dtype; tile and lane level\n  dear: tens of "
         "instructions\n  floats on devices: within 8 units in the last place\n");
  expect(out("add"),
         "add: a + b; integers wrap\n  elementwise: takes 2 values of one dtype, integers or floats; gives their "
         "dtype; tile and lane level\n"
         "  commutative, associative\n  floats on devices: within 1 units in the last place\n");
  expect(out("select"),
         "select: operand 0 (bool) ? operand 1 : operand 2\n  elementwise: takes a bool, then two of any dtype; gives "
         "their dtype; tile and lane level\n");
  expect(out("max"),
         "max: the larger; NaN wins; max(-0, 0) = 0\n  elementwise: takes 2 values of one dtype, integers or floats; "
         "gives their dtype; tile and lane level\n"
         "  commutative, associative, idempotent\n"
         "  floats on devices: exact; on GPUs, unless strict: exact, of -0 and 0 either\n");
  expect(
      out("fma"),
      "fma: a * b + c, fused or not as the device does best: products' accumulation\n  elementwise: takes 3 values "
      "of one dtype, floats; gives their dtype; lane level\n  floats on devices: within 1 units in the last place\n");
  expect(out("rev"),
         "rev: attr axes: the elements in the opposite order along each of them\n  move: tile level, pure\n");
  expect(
      out("barrier"),
      "barrier: execution and memory barrier of the workgroup over shared memory and buffers; with attr late, nothing "
      "was stored to shared memory since the last one but by tensor_load\n  group: lane level, keeps its place\n");
  expect(out("exo", 2), "error: there is no op \"exo\"\n  note: perhaps exp\n");
  expect(out("frobnicate", 2), "error: there is no op \"frobnicate\"\n  note: tessera ops lists them\n");
}

}  // namespace cli_ops_test
#endif
