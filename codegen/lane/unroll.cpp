#include "codegen/lane/unroll.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/lane/loops.h"
#include "engine/ir/builder.h"
#include "engine/ir/reference.h"
#include "engine/ir/walk.h"
#include "engine/passes/memory.h"
#include "engine/passes/replacements.h"

namespace tessera::lowering {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

struct Trip {
  int64_t lower, step, count;
};

bool constant_trip(const ir::Kernel& k, const ir::Op& loop, Trip& t) {
  const auto lower = ir::constant_int(k, loop.operands[0]), upper = ir::constant_int(k, loop.operands[1]),
             step = ir::constant_int(k, loop.operands[2]);
  if (!lower || !upper || !step) return false;
  t = {*lower, *step, *upper > *lower ? cdiv(*upper - *lower, *step) : 0};
  return true;
}

class Unroller {
 public:
  Unroller(ir::Kernel& k, int budget, int counting) : k_(k), b_(k), budget_(budget), counting_(counting) {}
  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  // What a region becomes, in instructions; regions with loops or barriers count as too many.
  int64_t cost(ir::RegionId r) const {
    int64_t n = 0;
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (ir::is_loop(o.code) || ir::is_barrier(o.code)) return INT32_MAX;
      n += lane::op_weight(k_, o);
      for (ir::RegionId inner : o.regions) n += cost(inner);
    }
    return std::min<int64_t>(n, INT32_MAX);
  }

  bool counts(ir::RegionId body) const {
    const std::vector<ir::OpId>& ops = k_.region(body).ops;
    const auto some = [&](const auto& is) { return std::any_of(ops.begin(), ops.end(), is); };
    return some([&](ir::OpId id) { return ir::is_atomic(k_.op(id).code); }) &&
           some([&](ir::OpId id) { return k_.op(id).code == Opcode::load; });
  }

  void walk(ir::RegionId r) {
    const std::vector<ir::OpId> ops = k_.region(r).ops;
    std::vector<ir::OpId> out;
    for (ir::OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (ir::RegionId x : inner) walk(x);
      Trip t;
      if (k_.op(id).code == Opcode::for_ && constant_trip(k_, k_.op(id), t) && t.count > 1) {
        const int64_t body = cost(k_.op(id).regions[0]);
        int64_t factor = std::min<int64_t>(body > 0 ? budget_ / body : 1, t.count);
        if (counts(k_.op(id).regions[0]))
          factor = std::max(factor, std::min({int64_t{4}, body > 0 ? counting_ / body : 1, t.count}));
        if (factor < t.count) {
          factor = std::min<int64_t>(factor, INT32_MAX / t.step);  // the loop's own step is an i32
          while (factor > 1 && t.count % factor != 0 && factor > 8) --factor;
        }
        if (factor > 1) {
          k_.region(r).ops.clear();
          unroll(r, id, t, factor);
          out.insert(out.end(), k_.region(r).ops.begin(), k_.region(r).ops.end());
          changed_ = true;
          continue;
        }
      }
      out.push_back(id);
    }
    k_.region(r).ops = out;
  }

  using Map = std::unordered_map<uint32_t, Value>;
  Value mapped(const Map& m, Value v) const {
    const auto it = m.find(v.index);
    return it == m.end() ? v : it->second;
  }

  // Appends a copy of `from`'s ops (all but the yield) to the builder's region; returns the yielded values.
  std::vector<Value> copy(ir::RegionId from, Map& m) {
    const std::vector<ir::OpId> ops = k_.region(from).ops;
    for (ir::OpId id : ops) {
      ir::Op o = k_.op(id);
      for (Value& v : o.operands) v = mapped(m, v);
      if (o.code == Opcode::yield) return o.operands;
      const std::vector<Value> results = o.results;
      const ir::Type requested = results.empty() ? ir::Type{} : k_.type(results[0]);
      std::vector<ir::RegionId> regions;
      for (ir::RegionId r : o.regions) {
        std::vector<ir::Type> types;
        const std::vector<Value> args = k_.region(r).args;
        for (Value a : args) types.push_back(k_.type(a));
        const ir::RegionId to = b_.new_region(types), at = b_.region();
        for (size_t i = 0; i < args.size(); ++i) m[args[i].index] = k_.region(to).args[i];
        b_.set_region(to);
        b_.yield(copy(r, m));
        b_.set_region(at);
        regions.push_back(to);
      }
      o.regions = regions;
      const ir::OpId made = b_.append(std::move(o), requested);
      for (size_t i = 0; i < results.size(); ++i) m[results[i].index] = k_.op(made).results[i];
    }
    return {};
  }

  void unroll(ir::RegionId r, ir::OpId id, const Trip& t, int64_t factor) {
    const ir::Op loop = k_.op(id);
    b_.set_region(r);
    b_.set_loc(loop.loc);
    const ir::RegionId body = loop.regions[0];
    std::vector<Value> carries(loop.operands.begin() + 3, loop.operands.end());
    auto iteration = [&](Value iv, const std::vector<Value>& in) {
      Map m;
      const std::vector<Value> args = k_.region(body).args;
      m[args[0].index] = iv;
      for (size_t i = 0; i < in.size(); ++i) m[args[1 + i].index] = in[i];
      return copy(body, m);
    };
    const int64_t full = t.count / factor, rest = t.count % factor;
    auto number = [&](int64_t v) { return b_.constant_int(DType::i32, v); };
    if (full == 1) {
      for (int64_t i = 0; i < factor; ++i) carries = iteration(number(t.lower + i * t.step), carries);
    } else {
      // The loop ends behind its last counter, not a stride further, which may be beyond i32.
      const Value lower = number(t.lower), upper = number(t.lower + (full - 1) * factor * t.step + 1),
                  step = number(t.step * factor);
      carries = b_.for_loop(lower, upper, step, carries, [&](Value iv, const std::vector<Value>& in) {
        std::vector<Value> c = in;
        for (int64_t i = 0; i < factor; ++i)
          c = iteration(i == 0 ? iv : b_.elementwise(Opcode::add, {iv, number(i * t.step)}), c);
        return c;
      });
    }
    for (int64_t i = 0; i < rest; ++i) carries = iteration(number(t.lower + (full * factor + i) * t.step), carries);
    // The loop's results stay defined where they were: everything that names them is renamed at the end.
    for (size_t i = 0; i < loop.results.size(); ++i) rename(loop.results[i], carries[i]);
  }

  void rename(Value from, Value to) {
    if (from == to) return;
    for (ir::Op& o : k_.ops)
      for (Value& v : o.operands)
        if (v == from) v = to;
  }

  ir::Kernel& k_;
  ir::Builder b_;
  const int budget_, counting_;
  bool changed_ = false;
};

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
  static Value place(const Op& op) { return op.operand_of(op.index[0]); }

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
  bool disturbs(OpId id, Value ref) const {
    const auto changes = [&](const Op& op) {
      const Value to = ir::stored_ref(op);
      return to && may_overlap(to, ref);
    };
    const Op& op = k_.op(id);
    if (changes(op) && (op.code != Opcode::store || ir::stored_ref(op) != ref || !plain(op))) return true;
    return ir::any_op_inside(k_, op, [&](OpId x) { return changes(k_.op(x)); });
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
    const Value index = place(k_.op(store));
    for (const OpId id : ops) {
      if (id == store) break;
      const Op& op = k_.op(id);
      if (op.code == Opcode::load && plain(op) && op.operands[0] == k_.op(store).operands[0] && place(op) == index)
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

class Hoister {
 public:
  explicit Hoister(ir::Kernel& k) : k_(k), memory_(k), used_(k.values.size()) {}
  bool run() {
    ir::each_op(k_, k_.body, [&](OpId id) {
      for (const Value v : k_.op(id).operands) used_[v.index] = true;
    });
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

  /// No iteration touches what another one stores, but by atomics of one kind that come out the same in any order.
  bool settled(RegionId body) const {
    std::vector<std::optional<std::pair<int64_t, DType>>> updated(memory_.count());
    std::vector<bool> loaded(memory_.count());
    bool plain = true;
    ir::each_op(k_, body, [&](OpId id) {
      const Op& op = k_.op(id);
      const ir::Effect effect = ir::info(op.code).effect;
      if (!op.regions.empty() || effect == ir::Effect::pure || op.code == Opcode::barrier || op.code == Opcode::yield)
        return;
      if (op.code == Opcode::load) {
        loaded[memory_.of(op.operands[0])] = true;
        return;
      }
      plain = plain && op.code == Opcode::atomic_rmw && !used_[op.results[0].index];
      if (!plain) return;
      const std::pair<int64_t, DType> kind{op.attr(ir::Attr::kind), k_.type(op.operands[1]).dtype};
      auto& known = updated[memory_.of(op.operands[0])];
      plain = kind.first != static_cast<int64_t>(Opcode::swap) && known.value_or(kind) == kind;
      known = kind;
    });
    for (size_t c = 0; c < updated.size(); ++c) plain = plain && !(updated[c] && loaded[c]);
    return plain;
  }

  ir::Kernel& k_;
  const passes::MemoryClasses memory_;
  std::vector<bool> used_;  // of values: by an op
  bool changed_ = false;
};
}  // namespace

bool unroll_loops(ir::Kernel& k, int budget, int counting) { return Unroller(k, budget, counting).run(); }

int64_t count_branches(const ir::Kernel& k) {
  // Ops that passes took out of their regions are still in the table.
  int64_t n = 0;
  ir::each_op(k, k.body, [&](ir::OpId id) { n += ir::accesses_ref(k.op(id).code) || !k.op(id).regions.empty(); });
  return n;
}

bool carry_stored(ir::Kernel& k) { return k.lane.threads == 1 && Carrier(k).run(); }

bool hoist_barriers(ir::Kernel& k) { return k.lane.threads == 1 && Hoister(k).run(); }

}  // namespace tessera::lowering
