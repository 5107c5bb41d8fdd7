// Every function that makes values from values, on every dtype and shape, run by the interpreter, against answers of
// JAX (matrix.h); and every row of ops.def that makes values has such answers.
#include "tests/support/matrix.h"

#include <doctest/doctest.h>

#include <set>

#include "engine/interpreter/interpreter.h"

namespace matrix_test {
using namespace tessera;
using namespace tessera::test;
using ir::Opcode;

namespace {
// Rows that need no answers here.
const std::map<Opcode, std::string> kElsewhere{
    {Opcode::constant, "has no operands, and is in every kernel"},
    {Opcode::program_id, "is the grid's: tests/data/pallas"},
    {Opcode::num_programs, "is the grid's: tests/data/pallas"},
    {Opcode::size, "is the call's: tests/unit/engine/call/by_value_test.cpp"},
};

/// Whether the row takes operands (iota: results) of dtype t and shape s, and the front end makes it of them.
bool wanted(Opcode op, DType t, const Shape& s) {
  switch (op) {
    case Opcode::broadcast:
    case Opcode::reshape: return true;
    case Opcode::select: return true;
    case Opcode::transpose: return s.size() > 1;  // or it moves nothing
    case Opcode::bitcast: return t != boolean;
    // The front end adds narrow integers in 32 bits, as jnp; in their own dtypes tests/data/structured has them.
    case Opcode::reduce_sum:
    case Opcode::reduce_prod: return (is_float(t) || bits(t) >= 32) && !s.empty();
    case Opcode::iota:
    case Opcode::dot: return t != boolean && !s.empty();
    default: break;  // a new row: every dtype
  }
  if (!ir::is_reduce(op) && !ir::is_argreduce(op) && !ir::is_scan(op)) return !s.empty();
  const bool numbers = ir::info(ir::combining_op(op)).operands == ir::OperandRule::num;
  return (numbers ? t != boolean : !is_float(t)) && !s.empty();
}
}  // namespace

TEST_CASE("matrix: every function on every dtype and shape agrees with JAX, and no row is without answers") {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto t = static_cast<DType>(d);
    const Matrix m = read_matrix(t);
    std::map<Shape, std::vector<const MatrixLine*>> of_shape;
    for (const MatrixLine& line : m.lines) of_shape[line.shape].push_back(&line);
    CHECK(of_shape.size() == 6);
    for (const auto& entry : of_shape) {
      const std::vector<Array> inputs = matrix_inputs(t, entry.first, m);
      const MatrixKernel k = matrix_kernel(t, entry.second, inputs);
      compare_matrix(t, k, interpret(k.kernel, inputs));
      std::set<Opcode> seen;
      for (const ir::Op& op : k.kernel.ops) {
        if (op.results.empty()) continue;
        const ir::Value of = op.operands.empty()         ? op.results[0]
                             : op.code == Opcode::select ? op.operands[1]
                                                         : op.operands[0];
        if (k.kernel.type(of).dtype == t) seen.insert(op.code);
      }
      for (int i = 0; i < ir::kNumOpcodes; ++i) {
        const auto op = static_cast<Opcode>(i);
        const ir::OpInfo& row = ir::info(op);
        const bool makes_values = is_elementwise(op) ? op == Opcode::select || op == Opcode::bitcast
                                                     : row.tile && !row.lane && row.effect == ir::Effect::pure;
        if (!makes_values || kElsewhere.contains(op) || !wanted(op, t, entry.first)) continue;
        CHECK_MESSAGE(seen.contains(op), row.name, " of ", name(t), " ", to_string(entry.first),
                      ": make_matrix_answers.py and matrix.h have no function that makes one");
      }
    }
  }
}

}  // namespace matrix_test
