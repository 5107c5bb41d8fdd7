// Every elementwise row on every dtype it takes, as blocks of the shapes that go wrong: compiled and run on a device,
// compared with the interpreter; larger shapes as relaxed code for a GPU. A kernel holds many rows; its operands are
// those for which answers_test.cpp has JAX's answers.
#include "tests/support/elementwise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "engine/base/npy.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/builder.h"
#include "engine/ir/verify.h"
#include "runtime/call/call.h"
#include "tests/support/device.h"

namespace elementwise_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const std::vector<Shape> kShapes{{}, {1}, {7}, {8, 128}, {3, 5, 33}, {1000}};

/// Operand `position` of the stored binary operands, then the unary ones, over and over from `first` on.
Array operand(DType t, const Shape& shape, int64_t position, int64_t first) {
  const std::string folder = "tests/data/elementwise/", of = "_operands_" + std::string(name(t)) + ".npy";
  const Array pairs = read_npy(folder + "binary" + of, t), single = read_npy(folder + "unary" + of, t);
  const int64_t n = pairs.shape()[1], all = n + single.shape()[1];
  Array x(shape, t);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t at = (first + i) % all;
    // Unary operands meet each other in another order.
    x.set_element_bits(i, at < n ? pairs.element_bits(position % 2 * n + (at + 17 * (position / 2)) % n)
                                 : single.element_bits((at - n + 29 * position) % single.shape()[1]));
  }
  return x;
}

/// Loads a bool and three operands whole; stores each case's result in an output of its own.
ir::Kernel kernel_of(const std::vector<Case>& cases, DType t, const Shape& shape) {
  ir::Kernel k;
  k.name = "rows_of_" + std::string(name(t));
  ir::Builder b(k);
  k.body = b.new_region({});
  b.set_region(k.body);
  const auto argument = [&](DType d, const std::string& origin) {
    ir::BlockMapping m;
    m.origin = origin;
    m.dtype = d;
    m.array_shape.assign(shape.begin(), shape.end());
    m.what = ir::BlockMapping::Whole{};
    m.space = ir::MemorySpace::any;
    k.blocks.push_back(m);
    return b.add_arg(k.body, ir::Type::ref(d, shape, ir::MemorySpace::any));
  };
  std::vector<ir::Index> all;
  for (const int64_t n : shape) all.push_back(ir::Index::all(n));
  std::vector<ir::Value> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(argument(i == 0 ? boolean : t, "in_specs[" + std::to_string(i) + "]"));
  k.num_inputs = 4;
  std::vector<ir::Value> x;
  std::vector<ir::Value> outputs;
  for (size_t i = 0; i < cases.size(); ++i)
    outputs.push_back(argument(cases[i].result, "out_specs[" + std::to_string(i) + "]"));
  for (const ir::Value r : refs) x.push_back(b.one({.code = Opcode::load, .operands = {r}, .index = all}));
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    std::vector<ir::Value> operands(x.begin() + 1, x.begin() + 1 + ir::info(c.op).arity);
    if (c.op == Opcode::select) operands = {x[0], x[1], x[2]};
    b.append({.code = Opcode::store, .operands = {outputs[i], b.elementwise(c.op, operands, c.result)}, .index = all});
  }
  b.yield({});
  ir::verify(k, "building");
  return k;
}

void run(const Device& device, const std::vector<Case>& cases, DType t, const Shape& shape, int64_t first) {
  const ir::Kernel k = kernel_of(cases, t, shape);
  Array condition(shape, boolean);
  for (int64_t i = 0; i < condition.size(); ++i)
    condition.set_element_bits(i, static_cast<uint64_t>((i * 5 + first) % 3 == 0));
  std::vector<Array> inputs{condition};
  for (int64_t i = 0; i < 3; ++i) inputs.push_back(operand(t, shape, i, first));
  // A CPU driver's cost model unrolls each of the rows tens of times, which takes LLVM minutes; what a row computes
  // hangs on no schedule.
  Target target = device.target();
  if (num_elements(shape) > 8) target.kind = Target::Kind::gpu;
  const auto program = std::make_shared<const Program>(compile(k, target));
  const bool relaxed = program->relaxed;
  const CompiledKernel compiled(device, program);
  const std::vector<Array> wanted = interpret(k, inputs), got = compiled.run(inputs);
  for (size_t c = 0; c < cases.size(); ++c) {
    const int arity = ir::info(cases[c].op).arity;
    int failures = 0;
    for (int64_t i = 0; i < got[c].size(); ++i) {
      uint64_t o[3] = {};
      const size_t at = cases[c].op == Opcode::select ? 0 : 1;
      for (int a = 0; a < arity; ++a) o[a] = inputs[at + static_cast<size_t>(a)].element_bits(i);
      // The interpreter computes by the reference, which is where distances are measured from.
      REQUIRE(wanted[c].element_bits(i) == reference::eval(cases[c].op, t, cases[c].result, o));
      if (got[c].element_bits(i) == wanted[c].element_bits(i)) continue;
      const double off = device_distance(cases[c], o, arity, got[c].element_bits(i), relaxed);
      if (off <= allowed_distance(cases[c], relaxed) || ++failures > 2) continue;
      char text[200];
      std::snprintf(
          text, sizeof text, "element %lld of 0x%llx, 0x%llx, 0x%llx is 0x%llx, but the interpreter has 0x%llx: %g ulp",
          static_cast<long long>(i), static_cast<unsigned long long>(o[0]), static_cast<unsigned long long>(o[1]),
          static_cast<unsigned long long>(o[2]), static_cast<unsigned long long>(got[c].element_bits(i)),
          static_cast<unsigned long long>(wanted[c].element_bits(i)), off);
      FAIL_CHECK(ir::name(cases[c].op), " ", name(t), " to ", name(cases[c].result), " on ", to_string(shape), ": ",
                 text);
    }
  }
}
}  // namespace

TEST_CASE("ops: every elementwise row on every dtype and shape agrees with the interpreter") {
  const std::optional<Device> device = test::device_if_any();
  if (!device) return;
  constexpr size_t kRowsPerKernel = 20;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto t = static_cast<DType>(d);
    std::vector<Case> cases;
    for (int i = 0; i < ir::kNumOpcodes; ++i)
      if (const auto op = static_cast<Opcode>(i); ir::is_elementwise(op) && ir::info(op).tile)
        for (const Case& c : cases_of(op))
          if (c.operand == t) cases.push_back(c);
    for (size_t s = 0; s < kShapes.size(); ++s) {
      // every shape on every other dtype: drivers take long
      if ((s + static_cast<size_t>(d)) % 2 && !std::getenv("TESSERA_TESTS_ALL")) continue;
      for (size_t i = 0; i < cases.size(); i += kRowsPerKernel) {
        CAPTURE(name(t));
        CAPTURE(to_string(kShapes[s]));
        const auto from = cases.begin() + static_cast<std::ptrdiff_t>(i),
                   to = cases.begin() + static_cast<std::ptrdiff_t>(std::min(i + kRowsPerKernel, cases.size()));
        run(*device, {from, to}, t, kShapes[s], static_cast<int64_t>(61 * s));
      }
    }
  }
}

}  // namespace elementwise_test
