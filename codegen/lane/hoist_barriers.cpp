#include "codegen/lane/hoist_barriers.h"

#include <algorithm>
#include <vector>

#include "engine/ir/walk.h"
#include "engine/passes/memory.h"

namespace tessera::lowering {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId;

class Hoister {
 public:
  explicit Hoister(ir::Kernel& k) : k_(k), memory_(k) {}
  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  void walk(RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    std::vector<OpId> out;
    for (const OpId id : ops) {
      for (const RegionId inner : std::vector<RegionId>(k_.op(id).regions)) walk(inner);
      if (k_.op(id).code == Opcode::for_)
        if (const OpId barrier = first_barrier(k_.op(id).regions[0]); barrier && settled(k_.op(id).regions[0])) {
          std::vector<OpId>& body = k_.region(k_.op(id).regions[0]).ops;
          body.erase(std::find(body.begin(), body.end(), barrier));
          out.push_back(barrier);
          changed_ = true;
        }
      out.push_back(id);
    }
    k_.region(r).ops = out;
  }

  bool touches(const Op& op) const {
    if (!op.regions.empty()) return true;
    const ir::Effect effect = ir::info(op.code).effect;
    if (effect == ir::Effect::pure) return false;
    return op.code != Opcode::load || !memory_.read_only(memory_.of(op.operands[0]));
  }
  OpId first_barrier(RegionId body) const {
    for (const OpId id : k_.region(body).ops) {
      if (k_.op(id).code == Opcode::barrier) return id;
      if (touches(k_.op(id))) return {};
    }
    return {};
  }

  /// No iteration touches what another one stores, atomics apart.
  bool settled(RegionId body) const {
    std::vector<bool> updated(memory_.count()), other(memory_.count());
    bool plain = true;
    ir::each_op(k_, body, [&](OpId id) {
      const Op& op = k_.op(id);
      const ir::Effect effect = ir::info(op.code).effect;
      if (!op.regions.empty() || effect == ir::Effect::pure || op.code == Opcode::barrier || op.code == Opcode::yield)
        return;
      if (ir::is_atomic(op.code)) updated[memory_.of(op.operands[0])] = true;
      else if (op.code == Opcode::load) other[memory_.of(op.operands[0])] = true;
      else plain = false;
    });
    for (size_t c = 0; c < updated.size(); ++c) plain = plain && !(updated[c] && other[c]);
    return plain;
  }

  ir::Kernel& k_;
  const passes::MemoryClasses memory_;
  bool changed_ = false;
};

}  // namespace

bool hoist_barriers(ir::Kernel& k) { return k.lane.threads == 1 && Hoister(k).run(); }

}  // namespace tessera::lowering
