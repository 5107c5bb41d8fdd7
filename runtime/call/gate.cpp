#include "runtime/call/gate.h"

#include "engine/call/pallas_call.h"
#include "engine/front/control.h"
#include "engine/front/ops.h"

namespace tessera {

GateKernel gate_kernel(const GraphPlan& plan, const GraphPlan::Command& c) {
  const GraphPlan::Command::SetGate& sets = *c.set_gate();
  const GraphPlan::Gate& gate = plan.gates[sets.gate];
  const bool flag = sets.decides && sets.decides->bytes == 1, own = c.guard && c.guard->gate == sets.gate;
  const int64_t slots = gate.slot_count();
  // Rows of the numbers: which body a slot is of, its number of workgroups, and then how many bodies there are and
  // which one the other state has to be.
  const auto set = [&](Ref decides_ref, Ref around_ref, Ref numbers, Ref state, Ref groups) {
    const Value around = around_ref[{}], decides = decides_ref[{}];
    const Value body = flag ? where(decides, 0, -1) : maximum(minimum(decides, numbers[{2, 0}] - 1), 0);
    const Value now = where(around == numbers[{2, 1}], body, -1);
    state[{}] = now;
    const Value sizes = numbers[{1, all}];
    groups[all] = where(numbers[{0, all}] == now, sizes, 0);
  };
  PallasCallParams params{.out_shape = {{{}, i32}, {{slots}, i32}}, .name = "gate"};
  const std::vector<ShapeDtype> inputs{{{}, flag ? boolean : i32}, {{}, i32}, {{3, slots}, i32}};
  const std::string key = (flag ? "bool " : "i32 ") + std::string(own ? "own " : "") + std::to_string(slots);
  if (!own)
    return {pallas_call([&](Ref decides, Ref around, Ref numbers, Ref state,
                            Ref groups) { set(decides, around, numbers, state, groups); },
                        params)
                .trace(inputs),
            key};
  params.input_output_aliases = {{1, 0}};
  return {pallas_call([&](Ref decides, Ref, Ref numbers, Ref state,
                          Ref groups) { set(decides, state, numbers, state, groups); },
                      params)
              .trace(inputs),
          key};
}

Array gate_numbers(const GraphPlan& plan, const GraphPlan::Command& c,
                   const std::vector<std::array<uint32_t, 3>>& groups) {
  const GraphPlan::Gate& gate = plan.gates[c.set_gate()->gate];
  const int64_t slots = gate.slot_count();
  Array numbers({3, slots}, DType::i32);
  const auto set = [&](int64_t row, int64_t at, int64_t v) {
    numbers.set_element_bits(row * slots + at, static_cast<uint32_t>(v));
  };
  for (int64_t i = 0; i < slots; ++i) {
    const auto member = static_cast<size_t>(i / 3);
    const bool used = member < gate.members.size();
    set(0, i, used ? gate.members[member].body : -2);  // no state
    set(1, i, used ? groups[member][static_cast<size_t>(i % 3)] : 0);
    set(2, i, 0);
  }
  set(2, 0, gate.bodies);
  set(2, 1, c.guard ? c.guard->body : 0);
  return numbers;
}

}  // namespace tessera
