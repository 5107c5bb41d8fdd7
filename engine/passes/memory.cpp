#include "engine/passes/memory.h"

#include <algorithm>

namespace tessera::passes {
using ir::Op, ir::Opcode;

MemoryClasses::MemoryClasses(const ir::Kernel& k) : k_(k) {
  count_ = static_cast<uint32_t>(k.region(k.body).args.size()) + 2;
  stored_.resize(count_);
  effects_.resize(k.regions.size());
  collect(k.body);
}

uint32_t MemoryClasses::of(ir::Value ref) const {
  for (const Op* op = k_.def(ref); op; op = k_.def(ref)) {
    if (op->code == Opcode::view) ref = op->operands[0];
    else return op->code == Opcode::alloc_shared ? count_ - 2 : count_ - 1;
  }
  const auto at = static_cast<int>(k_.ref_position(ref));
  return static_cast<uint32_t>(k_.shares_at_once(at) ? k_.aliased_output(at) : at);
}

void MemoryClasses::collect(ir::RegionId r) {
  Effects e;
  for (ir::OpId o : k_.region(r).ops) {
    const Op& op = k_.op(o);
    e.barrier |= op.code == Opcode::barrier;
    if (op.code == Opcode::store || op.code == Opcode::swap) {
      const uint32_t c = of(op.operands[0]);
      stored_[c] = true;
      e.stored.push_back(c);
    }
    for (ir::RegionId inner : op.regions) {
      collect(inner);
      const Effects& in = effects_[inner.index];
      e.barrier |= in.barrier;
      e.stored.insert(e.stored.end(), in.stored.begin(), in.stored.end());
    }
  }
  std::sort(e.stored.begin(), e.stored.end());
  e.stored.erase(std::unique(e.stored.begin(), e.stored.end()), e.stored.end());
  effects_[r.index] = std::move(e);
}

}  // namespace tessera::passes
