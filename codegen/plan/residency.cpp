#include "codegen/plan/residency.h"

#include <algorithm>
#include <set>

#include "codegen/plan/axes.h"
#include "codegen/plan/parallel.h"
#include "engine/base/function.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Value;

std::vector<int> scopes(const ir::Kernel& k, const std::vector<int>& sequential) {
  const size_t args = k.region(k.body).args.size();
  std::vector<int> scope(args, 0);
  for (size_t i = args - static_cast<size_t>(k.num_private_scratch); i < args; ++i)
    scope[i] = static_cast<int>(sequential.size());
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    if (k.blocks[i].is_whole()) continue;
    const ir::Region& map = k.region(k.blocks[i].index_map());
    std::set<uint32_t> used;
    Function<void(Value)> visit = [&](Value v) {
      if (!used.insert(v.index).second) return;
      if (const ir::Op* op = k.def(v))
        for (Value o : op->operands) visit(o);
    };
    for (Value v : k.terminator(k.blocks[i].index_map()).operands) visit(v);
    for (size_t j = 0; j < sequential.size(); ++j)
      if (used.count(map.args[static_cast<size_t>(sequential[j])].index)) scope[i] = static_cast<int>(j) + 1;
    if (i < static_cast<size_t>(k.num_prefetch)) continue;
    for (size_t p = 0; p < static_cast<size_t>(k.num_prefetch); ++p)  // what it loads from must be there
      if (used.count(map.args[k.grid.size() + p].index)) scope[i] = std::max(scope[i], scope[p]);
  }
  // What a program leaves in an output's block, the next one finds through the input that is aliased to it.
  for (int i = 0; i < k.num_inputs; ++i)
    if (const int o = k.aliased_output(i); o >= 0)
      scope[static_cast<size_t>(o)] = scope[static_cast<size_t>(i)] = static_cast<int>(sequential.size());
  return scope;
}

std::vector<bool> resident_candidates(const ir::Kernel& k) {
  const auto& args = k.region(k.body).args;
  std::vector<bool> whole(args.size(), true), read(args.size(), false);
  ir::each_op(k, k.body, [&](ir::OpId id) {
    const ir::Op& op = k.op(id);
    if (!ir::accesses_ref(op.code)) return;
    const auto r = static_cast<size_t>(ref_position(k, op.operands[0]));
    if (!is_whole_access(k, op) || ir::is_atomic(op.code)) whole[r] = false;
    if (ir::reads_ref(op.code)) read[r] = true;
  });
  // The test of a while hands on no more than whether the loop goes on: registers that it changed would be lost.
  ir::each_op(k, k.body, [&](ir::OpId id) {
    if (k.op(id).code != ir::Opcode::while_) return;
    ir::each_op(k, k.op(id).regions[0], [&](ir::OpId inner) {
      const ir::Op& op = k.op(inner);
      if (ir::writes_ref(op.code)) whole[static_cast<size_t>(ref_position(k, op.operands[0]))] = false;
    });
  });
  const std::vector<bool> stored = stored_memory(k);
  std::vector<bool> candidates(args.size(), false);
  for (size_t i = 0; i < args.size(); ++i) {
    const bool scratch = i >= k.blocks.size();
    const bool block = !scratch && !k.blocks[i].is_whole() && k.aliased_output(static_cast<int>(i)) < 0 &&
                       !k.shares_at_once(k.blocks[i].alias);
    const ir::MemorySpace space = k.type(args[i]).space;
    const bool common = scratch && k.has_threads() && (space == ir::MemorySpace::smem || ir::is_barrier(space));
    candidates[i] = whole[i] && !common && (scratch || (block && read[i] && stored[i]));
  }
  return candidates;
}

}  // namespace tessera::lowering
