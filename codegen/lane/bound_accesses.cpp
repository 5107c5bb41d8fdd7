#include <algorithm>
#include <map>

#include "codegen/lane/prover.h"
#include "codegen/lane/uniformity.h"
#include "engine/ir/builder.h"
#include "engine/ir/walk.h"

namespace tessera::lane {
using ir::Opcode;
using ir::Value;

namespace {
// The elements of the memory that a Ref points into, if that is an arg or an allocation of static size.
std::optional<int64_t> array_size(const ir::Kernel& k, Value root) {
  if (!root) return std::nullopt;
  if (k.def(root)) return k.type(root).shape[0] >= 0 ? std::optional(k.type(root).shape[0]) : std::nullopt;
  int64_t n = 1;
  for (const Extent& e : k.blocks[k.value(root).number].array_shape) {
    const auto size = e.value();
    if (!size || (*size > 0 && n > INT64_MAX / *size)) return std::nullopt;
    n *= *size;
  }
  return n;
}
bool is_arg(const ir::Kernel& k, Value root) { return root && !k.def(root); }

class Walk {
 public:
  explicit Walk(const ir::Kernel& k) : k_(k), bounds_(k), free_(k) { region(k.body); }
  std::vector<ir::OpId> unproved;
  // Loads that need not lie inside where a branch is not taken or a loop has no iteration: those that would if counters
  // had an iteration's value, and the others.
  std::vector<ir::OpId> by_loops, speculated;
  std::vector<ir::OpId> loops;  // around the former

 private:
  void region(ir::RegionId r) {
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (ir::accesses_ref(o.code)) access(id, o);
      if (!o.regions.empty()) around_.push_back(id);
      for (size_t i = 0; i < o.regions.size(); ++i) {
        if (o.code == Opcode::if_) conditions_.push_back({o.operands[0], i == 0});
        if (o.code == Opcode::for_) {
          scope_.push_back({k_.region(o.regions[i]).args[0], o.operands[0], o.operands[1], o.operands[2]});
          bounds_.between(scope_.back());
          // Behind its last iteration a counter is at most 16 steps on (loops.h): where these do not wrap, it is never
          // below the first one.
          if (free_.not_negative({{INT32_MAX, {}}, {-1, o.operands[1]}, {-16, o.operands[2]}}, {}, {}))
            free_.between({scope_.back().v, o.operands[0], {}});
        }
        region(o.regions[i]);
        if (o.code == Opcode::if_) conditions_.pop_back();
        if (o.code == Opcode::for_) scope_.pop_back();
      }
      if (!o.regions.empty()) around_.pop_back();
    }
  }
  void access(ir::OpId id, const ir::Op& o) {
    const Value root = root_of(k_, o.operands[0]);
    const auto n = array_size(k_, root);
    if (n && is_arg(k_, root)) {
      if (o.has_mask()) conditions_.push_back({o.operands[static_cast<size_t>(o.mask_position())], true});
      if (!inside(o, *n, bounds_, conditions_, scope_)) unproved.push_back(id);
      if (o.has_mask()) conditions_.pop_back();
    }
    if (o.code != Opcode::load || (around_.empty() && !o.has_mask()) || !root || (!n && !is_arg(k_, root))) return;
    if (n && inside(o, *n, free_, {}, {})) return;
    if (!n || !inside(o, *n, bounds_, {}, scope_)) return speculated.push_back(id);
    by_loops.push_back(id);
    for (const ir::OpId l : around_)
      if (k_.op(l).code == Opcode::for_ && std::find(loops.begin(), loops.end(), l) == loops.end()) loops.push_back(l);
  }
  bool inside(const ir::Op& o, int64_t n, Prover& bounds, const std::vector<Prover::Condition>& conditions,
              const std::vector<Prover::Between>& scope) const {
    // the access's first element, and how many come from its last one on
    std::vector<Prover::Term> first, behind{{n, {}}};
    const auto at = [&](int64_t factor, Value v) {
      first.emplace_back(factor, v);
      behind.emplace_back(-factor, v);
    };
    const ir::Index& x = o.index[0];
    x.is_static() ? at(x.constant(), {}) : at(1, o.operand_of(x));
    for (const ir::Op* view = k_.def(o.operands[0]); view && view->code == Opcode::view;
         view = k_.def(view->operands[0]))
      at(1, view->operands[1]);
    behind.emplace_back(-x.as_slice().size, Value{});
    return bounds.not_negative(first, conditions, scope) && bounds.not_negative(behind, conditions, scope);
  }

  const ir::Kernel& k_;
  Prover bounds_, free_;  // free_ uses no bounds of loops
  std::vector<Prover::Condition> conditions_;
  std::vector<Prover::Between> scope_;
  std::vector<ir::OpId> around_;
};

// Puts what `make` makes in front of a region.
template <class F> void in_front(ir::Kernel& k, ir::RegionId r, const F& make) {
  const std::vector<ir::OpId> list = std::move(k.regions[r.index].ops);
  k.regions[r.index].ops.clear();
  ir::Builder b(k);
  b.set_region(r);
  make(b);
  k.regions[r.index].ops.insert(k.regions[r.index].ops.end(), list.begin(), list.end());
}
void replace(ir::Kernel& k, const std::vector<ir::OpId>& ops, Value from, Value to) {
  for (const ir::OpId id : ops)
    ir::each_op_from(k, id, [&](ir::OpId inner) {
      std::replace(k.op(inner).operands.begin(), k.op(inner).operands.end(), from, to);
    });
}

// In the body of a loop, its counter where there is an iteration, else the first iteration's.
void hold_counter(ir::Kernel& k, ir::OpId loop) {
  const ir::RegionId body = k.op(loop).regions[0];
  const Value i = k.region(body).args[0], low = k.op(loop).operands[0], end = k.op(loop).operands[1];
  const std::vector<ir::OpId> before = k.region(body).ops;
  Value held;
  in_front(k, body, [&](ir::Builder& b) {
    b.set_loc(k.op(loop).loc);
    // Not the loop's own condition, which a driver's compiler takes for true in the loop: i <= end - 1, which does not
    // wrap where there is an iteration.
    const Value last = b.elementwise(Opcode::sub, {end, b.constant_int(k.type(end).dtype, 1)}),
                trips = b.elementwise(Opcode::lt, {low, end});
    const Value begun = b.elementwise(Opcode::ge, {i, low}), left = b.elementwise(Opcode::le, {i, last});
    held = b.elementwise(Opcode::select,
                         {b.elementwise(Opcode::and_, {b.elementwise(Opcode::and_, {begun, left}), trips}), i, low});
  });
  replace(k, before, i, held);
}

// Moves accesses to the nearest element of their memory, or the last one.
class Mover {
 public:
  explicit Mover(ir::Kernel& k) : k_(k) {}
  void move(const std::vector<ir::OpId>& ids) {
    std::vector<bool> wanted(k_.ops.size(), false);
    in_front(k_, k_.body, [&](ir::Builder& b) {
      for (const ir::OpId id : ids) {
        wanted[id.index] = true;
        last_position(b, k_.op(id));
      }
    });
    for (uint32_t r = 0; r < k_.regions.size(); ++r) {
      const std::vector<ir::OpId> list = std::move(k_.regions[r].ops);
      k_.regions[r].ops.clear();
      ir::Builder b(k_);
      b.set_region({r});
      for (ir::OpId id : list) {
        if (id.index < wanted.size() && wanted[id.index]) move(b, id);
        k_.regions[r].ops.push_back(id);
      }
    }
  }

 private:
  // The greatest position at which such an access lies inside, as an i64; 0 if there is none.
  Value last_position(ir::Builder& b, const ir::Op& o) {
    const Value root = root_of(k_, o.operands[0]);
    const int64_t size = o.index[0].as_slice().size;
    const auto [it, added] = last_.try_emplace({root.index, size});
    if (!added) return it->second;
    if (const auto n = array_size(k_, root))
      return it->second = b.constant_int(DType::i64, std::max<int64_t>(*n - size, 0));
    Value n = b.constant_int(DType::i64, 1);
    for (const Extent& e : std::vector<Extent>(k_.blocks[k_.value(root).number].array_shape))
      n = b.elementwise(Opcode::mul, {n, extent(b, e)});
    return it->second = b.elementwise(Opcode::max, {b.elementwise(Opcode::sub, {n, b.constant_int(DType::i64, size)}),
                                                    b.constant_int(DType::i64, 0)});
  }
  Value extent(ir::Builder& b, const Extent& e) {
    if (const auto n = e.value()) return b.constant_int(DType::i64, *n);
    ir::LaneInfo& lane = k_.lane;
    const auto at = static_cast<size_t>(std::find(lane.extents.begin(), lane.extents.end(), e) - lane.extents.begin());
    if (at == lane.extents.size()) {
      lane.extents.push_back(e);
      lane.extent_is_64.push_back(true);
    }
    ir::Op o{.code = Opcode::extent};
    o.set(ir::Attr::index, static_cast<int64_t>(at));
    return b.convert(b.one(std::move(o), ir::Type::array(lane.extent_is_64[at] ? DType::i64 : DType::i32)), DType::i64);
  }
  void move(ir::Builder& b, ir::OpId id) {
    ir::Op o = k_.op(id);
    b.set_loc(o.loc);
    const Value root = root_of(k_, o.operands[0]), last = last_position(b, o);
    ir::Index& x = o.index[0];
    const auto least = [&](Value at, Value most, DType t) {
      return b.convert(b.elementwise(Opcode::min, {b.convert(at, t), b.convert(most, t)}), k_.type(at).dtype);
    };
    const auto n = array_size(k_, root);
    if (o.operands[0] == root && !x.is_static() && n && *n <= INT32_MAX &&
        k_.type(o.operand_of(x)).dtype == DType::i32) {
      Value& at = o.operands[*x.operand()];
      at = least(at, last, DType::u32);  // what is negative is more than any position
    } else {
      Value at = x.is_static() ? b.constant_int(DType::i64, x.constant()) : b.convert(o.operand_of(x), DType::i64);
      // no Op is held while ops are made
      for (Value ref = o.operands[0]; ref != root; ref = k_.def(ref)->operands[0])
        at = b.elementwise(Opcode::add, {at, k_.def(ref)->operands[1]});
      at = least(at, last, DType::u64);
      if (!x.is_static()) o.operands.erase(o.operands.begin() + static_cast<ptrdiff_t>(*x.operand()));
      x.start() = 0;
      o.operands[0] = b.one({.code = Opcode::view, .operands = {root, at}});
    }
    k_.op(id) = std::move(o);
  }

  ir::Kernel& k_;
  std::map<std::pair<uint32_t, int64_t>, Value> last_;  // by memory and width of the access
};
}  // namespace

std::vector<ir::OpId> unproved_accesses(const ir::Kernel& lanes) { return Walk(lanes).unproved; }

bool bound_accesses(ir::Kernel& k, bool speculated) {
  bool changed = false;
  const auto move = [&](const std::vector<ir::OpId>& ids) {
    if (!ids.empty()) Mover(k).move(ids);
    changed = changed || !ids.empty();
  };
  move(Walk(k).unproved);
  if (!speculated) return changed;
  const ir::Kernel free = k;
  for (const ir::OpId loop : Walk(k).loops) hold_counter(k, loop);
  // Where the first iteration's value is outside, of a loop without iterations, stores would lose their proof.
  if (!Walk(k).unproved.empty()) k = free;
  changed = changed || k.ops.size() != free.ops.size();
  Walk second(k);
  second.speculated.insert(second.speculated.end(), second.by_loops.begin(), second.by_loops.end());
  move(second.speculated);
  return changed;
}

}  // namespace tessera::lane
