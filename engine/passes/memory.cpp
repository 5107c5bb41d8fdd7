#include "engine/passes/memory.h"

#include <algorithm>

#include "engine/ir/walk.h"

namespace tessera::passes {
using ir::Op, ir::Opcode;

MemoryClasses::MemoryClasses(const ir::Kernel& k) : k_(k) {
  count_ = static_cast<uint32_t>(k.region(k.body).args.size());
  const bool tile = k.level == ir::Level::tile;  // lane-level kernels are long, and have neither scopes nor copies
  if (tile)
    for (const ir::Value v : scoped_refs(k)) scoped_[v.index] = count_++;
  count_ += 2;
  // A copy may end at any wait behind its start, whichever semaphore that waits for: what it writes changes there.
  if (tile)
    for (const Op& op : k.ops)
      if (op.code == Opcode::copy_start) copied_to_.push_back(of(op.operands[1]));
  if (k.has_threads())  // what other threads store changes at every op that threads meet or order their memory by
    for (const Op& op : k.ops)
      if (const ir::Value ref = ir::stored_ref(op)) copied_to_.push_back(of(ref));
  std::sort(copied_to_.begin(), copied_to_.end());
  copied_to_.erase(std::unique(copied_to_.begin(), copied_to_.end()), copied_to_.end());
  stored_.resize(count_);
  effects_.resize(k.regions.size());
  collect(k.body);
}

uint32_t MemoryClasses::of(ir::Value ref) const {
  for (const Op* op = k_.def(ref); op; op = k_.def(ref)) {
    if (op->code == Opcode::view) ref = op->operands[0];
    else return op->code == Opcode::alloc_shared ? count_ - 2 : count_ - 1;
  }
  if (const auto it = scoped_.find(ref.index); it != scoped_.end()) return it->second;
  const auto at = static_cast<int>(k_.ref_position(ref));
  return static_cast<uint32_t>(k_.shares_at_once(at) ? k_.aliased_output(at) : at);
}

std::vector<uint32_t> MemoryClasses::stores(const Op& op) const {
  if (op.code == Opcode::copy_wait || op.code == Opcode::semaphore_wait || ir::is_thread_op(op.code)) return copied_to_;
  if (k_.level == ir::Level::tile && (op.code == Opcode::semaphore_read || ir::threads_meet(k_, op)) &&
      k_.has_threads())
    return copied_to_;
  if (const ir::Value ref = ir::stored_ref(op)) return {of(ref)};
  return {};
}

void MemoryClasses::collect(ir::RegionId r) {
  Effects e;
  for (ir::OpId o : k_.region(r).ops) {
    const Op& op = k_.op(o);
    e.barrier |= ir::is_barrier(op.code);
    for (const uint32_t c : stores(op)) {
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
