#include "codegen/lane/carry_stored.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "engine/ir/reference.h"
#include "engine/ir/walk.h"
#include "engine/passes/replacements.h"

namespace tessera::lowering {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

constexpr size_t kMostCarried = 32;  // values of a loop: registers

/// Values of all invocations of a workgroup that hang on local_index alone.
class ByInvocation {
 public:
  explicit ByInvocation(const ir::Kernel& k) : k_(k) {}
  /// Null where it hangs on something else.
  const std::vector<uint64_t>* of(Value v) {
    const auto it = known_.find(v.index);
    if (it != known_.end()) return it->second ? &*it->second : nullptr;
    std::optional<std::vector<uint64_t>> all = compute(v);
    const auto& kept = known_[v.index] = std::move(all);
    return kept ? &*kept : nullptr;
  }

 private:
  std::optional<std::vector<uint64_t>> compute(Value v) {
    const auto n = static_cast<size_t>(k_.lane.workgroup_size);
    if (k_.type(v).is_ref || is_float(k_.type(v).dtype)) return std::nullopt;
    if (const auto bits = ir::constant_bits(k_, v)) return std::vector<uint64_t>(n, *bits);
    const Op* op = k_.def(v);
    if (!op) return std::nullopt;
    std::vector<uint64_t> all(n);
    if (op->code == Opcode::local_index) {
      for (size_t i = 0; i < n; ++i) all[i] = i;
      return all;
    }
    if (!ir::is_elementwise(op->code) || op->operands.size() > 3) return std::nullopt;
    std::vector<const std::vector<uint64_t>*> operands;
    for (const Value o : op->operands) {
      if (is_float(k_.type(o).dtype) || !of(o)) return std::nullopt;
      operands.push_back(of(o));
    }
    const DType from = k_.type(op->operands[op->code == Opcode::select ? 1 : 0]).dtype, to = k_.type(v).dtype;
    for (size_t i = 0; i < n; ++i) {
      uint64_t a[3] = {};
      for (size_t j = 0; j < operands.size(); ++j) a[j] = (*operands[j])[i];
      all[i] = reference::eval(op->code, from, to, a);
    }
    return all;
  }

  const ir::Kernel& k_;
  std::map<uint32_t, std::optional<std::vector<uint64_t>>> known_;  // by value
};

class Carrier {
 public:
  explicit Carrier(ir::Kernel& k) : k_(k), by_invocation_(k), replaced_(k) {}
  bool run() {
    walk(k_.body);
    if (changed_) ir::each_op(k_, k_.body, [&](OpId id) { replaced_.apply(k_.op(id)); });
    return changed_;
  }

 private:
  void walk(RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (k_.op(ops[i]).code == Opcode::for_) loop(ops, i);
      for (const RegionId inner : std::vector<RegionId>(k_.op(ops[i]).regions)) walk(inner);
    }
  }

  static bool plain(const Op& op) {
    return op.index.size() == 1 && !op.index[0].is_static() && !ir::is_vector_access(op) && !op.has_mask() &&
           !op.has(ir::Attr::late);
  }
  static Value place(const Op& op) { return op.operands[static_cast<size_t>(op.index[0].start_operand)]; }

  bool may_overlap(Value a, Value b) const {
    if (a == b) return true;
    const Op *x = k_.def(a), *y = k_.def(b);
    const auto global = [&](Value v) { return k_.type(v).space == ir::MemorySpace::global; };
    if (global(a) != global(b)) return false;
    if (!x || !y || x->code != Opcode::alloc_shared || y->code != Opcode::alloc_shared) return true;
    const auto end = [&](Value v, const Op& o) {
      return o.attr(ir::Attr::offset) + k_.type(v).shape[0] * ir::arena_stride(k_.type(v).dtype);
    };
    return x->attr(ir::Attr::offset) < end(b, *y) && y->attr(ir::Attr::offset) < end(a, *x);
  }

  /// Whether the op, or one inside of it, may change ref's memory otherwise than by a plain store of its own.
  bool disturbs(OpId id, Value ref, bool inner = false) const {
    const Op& op = k_.op(id);
    if (const Value to = ir::stored_ref(op); to && may_overlap(to, ref))
      if (inner || op.code != Opcode::store || to != ref || !plain(op)) return true;
    for (const RegionId r : op.regions)
      for (const OpId x : k_.region(r).ops)
        if (disturbs(x, ref, true)) return true;
    return false;
  }

  struct Stores {
    std::vector<OpId> ops;
    bool apart = false;  // no two invocations, nor two of the stores, have one element
  };
  Stores stores_to(Value ref, const std::vector<OpId>& ops) {
    Stores s;
    std::vector<uint64_t> places;
    for (const OpId id : ops) {
      if (disturbs(id, ref)) return {};
      const Op& op = k_.op(id);
      if (op.code != Opcode::store || op.operands[0] != ref) continue;
      const std::vector<uint64_t>* all = by_invocation_.of(place(op));
      if (!all) return {};
      s.ops.push_back(id);
      places.insert(places.end(), all->begin(), all->end());
    }
    std::sort(places.begin(), places.end());
    s.apart = std::adjacent_find(places.begin(), places.end()) == places.end();
    return s;
  }

  /// What this invocation's element of that index holds where the loop begins, `at` in its block.
  Value first_value(const std::vector<OpId>& block, size_t at, Value ref, Value index,
                    const std::map<uint32_t, OpId>& places) const {
    while (at-- > 0) {
      const Op& op = k_.op(block[at]);
      if (disturbs(block[at], ref)) return {};
      if (op.code != Opcode::store || op.operands[0] != ref) continue;
      if (place(op) == index) return op.operands[static_cast<size_t>(op.value_position())];
      if (!places.contains(place(op).index)) return {};  // another invocation's element may be this one
    }
    return {};
  }

  void loop(const std::vector<OpId>& block, size_t at) {
    const RegionId body = k_.op(block[at]).regions[0];
    const std::vector<OpId> ops = k_.region(body).ops;
    std::vector<Value> refs;
    for (const OpId id : ops)
      if (const Op& op = k_.op(id); op.code == Opcode::load && plain(op)) {
        const Op* from = k_.def(op.operands[0]);
        if (from && from->code == Opcode::alloc_shared &&
            std::find(refs.begin(), refs.end(), op.operands[0]) == refs.end())
          refs.push_back(op.operands[0]);
      }
    size_t carried = k_.op(block[at]).results.size();
    for (const Value ref : refs) {
      const Stores stores = stores_to(ref, ops);
      if (!stores.apart) continue;
      std::map<uint32_t, OpId> places;
      for (const OpId id : stores.ops) places[place(k_.op(id)).index] = id;
      for (const OpId store : stores.ops) {
        const std::vector<OpId> loads = loads_before(store, ops);
        if (loads.empty() || carried >= kMostCarried) continue;
        const Value first = first_value(block, at, ref, place(k_.op(store)), places);
        if (!first) continue;
        carry(block[at], first, store, loads);
        ++carried;
      }
    }
  }

  std::vector<OpId> loads_before(OpId store, const std::vector<OpId>& ops) const {
    std::vector<OpId> loads;
    for (const OpId id : ops) {
      if (id == store) break;
      const Op& op = k_.op(id);
      if (op.code == Opcode::load && plain(op) && op.operands[0] == k_.op(store).operands[0] &&
          place(op) == place(k_.op(store)))
        loads.push_back(id);
    }
    return loads;
  }

  void carry(OpId loop, Value first, OpId store, const std::vector<OpId>& loads) {
    const RegionId body = k_.op(loop).regions[0];
    const ir::Type type = k_.type(k_.op(loads[0]).results[0]);
    const Value arg{static_cast<uint32_t>(k_.values.size())}, result{arg.index + 1};
    k_.values.push_back({type, {}, body, static_cast<uint32_t>(k_.region(body).args.size())});
    k_.values.push_back({type, loop, {}, static_cast<uint32_t>(k_.op(loop).results.size())});
    k_.region(body).args.push_back(arg);
    k_.op(loop).results.push_back(result);
    k_.op(loop).operands.push_back(first);
    const Op& stored = k_.op(store);
    const Value next = stored.operands[static_cast<size_t>(stored.value_position())];
    k_.op(k_.region(body).ops.back()).operands.push_back(next);
    for (const OpId id : loads) replaced_.replace(k_.op(id).results[0], arg);
    changed_ = true;
  }

  ir::Kernel& k_;
  ByInvocation by_invocation_;
  passes::Replacements replaced_;
  bool changed_ = false;
};

}  // namespace

bool carry_stored(ir::Kernel& k) { return k.lane.threads == 1 && Carrier(k).run(); }

}  // namespace tessera::lowering
