// How long the code of each elementwise op is on each dtype: what is longer than it was, and right, is seen here and
// hardly anywhere else, as few kernels of tests/tir have a given op on a given dtype. tests/data/costs_ops.tsv has the
// words of SPIR-V, or lines of PTX, of a kernel with that op alone; TESSERA_BLESS=1 writes it anew, and the difference
// belongs in the review of the change.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "tests/support/elementwise.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/codegen/table.h"

namespace op_costs_test {
using namespace tessera;

namespace {

/// Of operands of one dtype; a conversion to all others.
ir::Kernel kernel(const std::vector<test::Case>& cases) {
  const ir::OpInfo& row = ir::info(cases[0].op);
  const std::string t(name(cases[0].operand));
  std::string head = "tir 1\nkernel @k\nin bool[1] whole\n", args = "%c", body = "  %p = load %c[0:1]\n", operands;
  const bool select = row.operands == ir::OperandRule::select;
  if (select) operands = "%p";
  for (int i = 0; i < row.arity - (select ? 1 : 0); ++i) {
    const std::string n = std::to_string(i);
    head += "in " + t + "[1] whole\n", args += ", %x" + n, body += "  %a" + n + " = load %x" + n + "[0:1]\n";
    operands += (operands.empty() ? "%a" : ", %a") + n;
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string n = std::to_string(i), type(name(cases[i].result));
    head += "out " + type + "[1] whole\n", args += ", %o" + n;
    body += "  %r" + n + " = " + std::string(row.name) + " " + operands +
            (row.result == ir::ResultRule::other ? " : " + type + "[1]" : "") + "\n  store %o" + n + "[0:1], %r" + n +
            "\n";
  }
  return ir::parse(head + "body (" + args + ") {\n" + body + "}\n", "k.tir");
}

std::string cost(const std::vector<test::Case>& cases, const Target& target) {
  try {
    const Program p = compile(kernel(cases), target, {});
    return std::to_string(p.ptx.empty() ? p.spirv.size()
                                        : static_cast<size_t>(std::count(p.ptx.begin(), p.ptx.end(), '\n')));
  } catch (const CompileError&) {
    return "-";
  }
}

}  // namespace

// Skipped under the sanitizers: it compiles thousands of kernels.
TEST_CASE("costs of ops: each elementwise op on each dtype" * doctest::skip(test::kSanitized)) {
  test::Table table("tests/data/costs_ops.tsv", "op\ttarget\twords, or lines of PTX, by the operands' dtype", 2);
  for (const char* target : {"lavapipe", "gpu", "nvidia:sm_90a"}) {
    const Target t = Target::named(target);
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const auto op = static_cast<ir::Opcode>(i);
      if (!ir::is_elementwise(op) || !ir::info(op).tile) continue;
      std::map<DType, std::vector<test::Case>> by_dtype;
      for (const test::Case& c : test::cases_of(op)) by_dtype[c.operand].push_back(c);
      std::string now;
      for (const auto& [dtype, cases] : by_dtype)
        now += (now.empty() ? "" : " ") + std::string(name(dtype)) + " " + cost(cases, t);
      table.add(std::string(ir::name(op)) + "\t" + target, now);
    }
  }
  table.finish();
}

}  // namespace op_costs_test
