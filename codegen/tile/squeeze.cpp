#include "codegen/tile/squeeze.h"

#include <algorithm>

#include "codegen/plan/parallel.h"

namespace tessera::lowering {
using ir::BlockDim;
using ir::Index;

bool squeeze_refs(ir::Kernel& k) {
  const std::vector<ir::Value>& args = k.region(k.body).args;
  std::vector<std::vector<bool>> unit(args.size());  // per argument and dim of its Ref
  for (size_t i = 0; i < args.size(); ++i) {
    const ir::Type& t = k.type(args[i]);
    if (t.space == ir::MemorySpace::semaphore || ir::is_barrier(t.space)) continue;
    if (i < k.blocks.size()) {
      const ir::BlockMapping& b = k.blocks[i];
      if (b.is_whole() || static_cast<int>(i) < k.num_prefetch) continue;
      // Of an array without elements a squeezed dim has no position, which takes a test in every program.
      for (size_t d = 0; d < b.block().size(); ++d)
        if (b.block()[d].seen())
          unit[i].push_back(b.block()[d].is_blocked() && b.block()[d].size() == 1 &&
                            b.array_shape[d].value().value_or(0) > 0);
    } else {
      for (const int64_t n : t.shape) unit[i].push_back(n == 1);
    }
  }
  for (const ir::Op& op : k.ops) {
    if (!ir::accesses_ref(op.code)) continue;
    std::vector<bool>& u = unit[static_cast<size_t>(ref_position(k, op.operands[0]))];
    const bool arrays = std::any_of(op.index.begin(), op.index.end(), [](const Index& ix) { return ix.is_array(); });
    for (size_t d = 0; d < u.size(); ++d) u[d] = u[d] && !arrays && op.index[d] == Index::at(0);
  }
  // An input and its aliased output are one memory, cut alike.
  for (int i = 0; i < k.num_inputs; ++i)
    if (const int o = k.aliased_output(i); o >= 0) {
      std::vector<bool>&a = unit[static_cast<size_t>(i)], &b = unit[static_cast<size_t>(o)];
      if (a.size() != b.size()) a.clear(), b.clear();
      for (size_t d = 0; d < a.size(); ++d) a[d] = b[d] = a[d] && b[d];
    }
  const auto drop = [](auto& list, const std::vector<bool>& which) {
    size_t to = 0;
    for (size_t d = 0; d < list.size(); ++d)
      if (d >= which.size() || !which[d]) list[to++] = list[d];
    list.resize(to);
  };
  bool changed = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (std::find(unit[i].begin(), unit[i].end(), true) == unit[i].end()) continue;
    changed = true;
    if (i < k.blocks.size()) {
      size_t ref_dim = 0;
      for (BlockDim& d : k.blocks[i].block())
        if (d.seen() && unit[i][ref_dim++]) d = {BlockDim::Squeezed{}};
    } else {
      drop(k.scratch[i - k.blocks.size()].shape, unit[i]);
    }
    drop(k.values[args[i].index].type.shape, unit[i]);
  }
  for (ir::Op& op : k.ops)
    if (ir::accesses_ref(op.code)) drop(op.index, unit[static_cast<size_t>(ref_position(k, op.operands[0]))]);
  return changed;
}

}  // namespace tessera::lowering
