#include "codegen/plan/carried_sums.h"

#include <set>

#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Opcode;
using ir::Value;

namespace {
bool runs(const ir::Kernel& k, const ir::Op& loop) {
  const auto from = ir::constant_int(k, loop.operands[0]), to = ir::constant_int(k, loop.operands[1]);
  const auto step = ir::constant_int(k, loop.operands[2]);
  return from && to && step && *step > 0 && *from < *to;
}
}  // namespace

std::vector<CarriedSum> carried_sums(const ir::Kernel& k, bool relaxed) {
  std::vector<CarriedSum> found;
  std::vector<int> uses(k.values.size(), 0);
  std::vector<ir::OpId> loops;
  ir::each_op(k, k.body, [&](ir::OpId id) {
    for (const Value v : k.op(id).operands) ++uses[v.index];
    if (k.op(id).code == Opcode::for_) loops.push_back(id);
  });
  for (const ir::OpId id : loops) {
    const ir::Op& loop = k.op(id);
    const ir::RegionId body = loop.regions[0];
    if (!runs(k, loop)) continue;
    for (size_t i = 0; i < loop.results.size(); ++i) {
      const Value arg = k.region(body).args[1 + i], next = k.terminator(body).operands[i];
      const ir::Op* sum = k.def(next);
      if (!sum || sum->operands.size() != 2 || uses[arg.index] != 1 || uses[next.index] != 1) continue;
      const Value other = sum->operands[sum->operands[0] == arg ? 1 : 0];
      if (sum->operands[0] != arg && sum->operands[1] != arg) continue;
      const ir::Op* reduce = k.def(other);
      if (!reduce || !ir::is_reduce(reduce->code) || uses[other.index] != 1) continue;
      const DType t = k.type(other).dtype;
      if (ir::combining_op(reduce->code) != sum->code || ir::combiner(sum->code)->accumulator(t) != t) continue;
      // What is exact in the kernel's order may leave the range in another.
      if (is_float(t) && (sum->code == Opcode::mul || (sum->code == Opcode::add && !relaxed))) continue;
      for (const ir::OpId inner : k.region(body).ops)
        if (&k.op(inner) == reduce) found.push_back({id, inner, i});
    }
  }
  return found;
}

std::optional<Pairs> pairs_of(const ir::Kernel& k, const Axes& axes, const ir::Op& reduce) {
  const auto some = [&](Value v) {
    std::vector<int> all;
    for (const int a : axes.of(v))
      if (a != kNoAxis) all.push_back(a);
    return all;
  };
  const Value in = reduce.operands[0];
  const std::vector<int> kept = some(reduce.results[0]), all = some(in);
  if (kept.size() != 1 || all.size() != 2) return std::nullopt;
  const Pairs p{kept[0], all[0] == kept[0] ? all[1] : all[0]};
  if (p.kept == p.dropped) return std::nullopt;
  std::set<uint32_t> seen;
  const bool apart = ir::walk_back(k, in, seen, [&](Value v, std::vector<Value>& next) {
    const ir::Op* o = k.def(v);
    if (o && ir::is_index_function(o->code)) {
      next.insert(next.end(), o->operands.begin(), o->operands.end());
      return true;
    }
    return some(v).size() < 2;
  });
  return apart ? std::optional(p) : std::nullopt;
}

}  // namespace tessera::lowering
