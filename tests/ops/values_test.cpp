// Functions of the front end that move, pack and draw values (value_functions.h): compiled in both forms and run on a
// device, compared with JAX as values_test.cpp of the unit tests compares the interpreter.
#include <doctest/doctest.h>

#include <optional>

#include "codegen/compile.h"
#include "runtime/call/call.h"
#include "tests/support/answers.h"
#include "tests/support/device.h"
#include "tests/support/value_functions.h"

namespace values_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("ops: functions that move, pack and draw values agree with JAX on a device") {
  const std::optional<Device> device = test::device_if_any();
  if (!device) return;
  for (const auto& entry : value_functions()) {
    const std::string& name = entry.first;  // clang 14 captures no structured binding
    const ValueFunction& function = entry.second;
    const ValueCase c = value_case(name, function);
    const std::vector<Array>& wanted = c.answers;
    // In the general form, what moves as data says; of the rest elementwise_test.cpp and the fuzzer know.
    bool moves = false;
    for (const ir::Op& op : c.kernel.ops)
      moves = moves || op.code == ir::Opcode::gather || op.code == ir::Opcode::scatter || op.code == ir::Opcode::sort;
    for (const bool general : {false, true}) {
      if (general && (!moves || name.starts_with("random_normal"))) continue;
      CompileOptions options;
      options.general = general;
      options.strict = true;
      Target target = device->target();
      // as in elementwise_test.cpp: unrolled code takes LLVM minutes
      if (name.starts_with("random_normal")) target.kind = Target::Kind::gpu;
      const CompiledKernel compiled(*device, std::make_shared<const Program>(compile(c.kernel, target, options)));
      const std::vector<Array> got = compiled.run(c.inputs);
      for (size_t o = 0; o < wanted.size(); ++o) {
        const DType t = wanted[o].dtype();
        int failures = 0;
        for (int64_t i = 0; i < wanted[o].size() && failures < 3; ++i) {
          const uint64_t a = got[o].element_bits(i), b = wanted[o].element_bits(i);
          if (agrees(t, a, b, function.ulp)) continue;
          ++failures;
          FAIL_CHECK(name, std::string(general ? " (general)" : ""), " output ", o, " element ", i, " is ", show(t, a),
                     " but JAX has ", show(t, b));
        }
      }
    }
  }
}

}  // namespace values_test
