#include "codegen/lane/end_lives.h"

#include <algorithm>
#include <vector>

#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::OpId;
using ir::Value;

class Mover {
 public:
  explicit Mover(ir::Kernel& k) : k_(k), uses_(k.values.size(), 0), users_(k.values.size()), made_(k.values.size()) {
    count(k.body);
  }
  bool run() {
    for (const Value v : k_.region(k_.body).args) made_[v.index] = true;
    walk(k_.body);
    return changed_;
  }

 private:
  void count(ir::RegionId r) {
    ir::each_op(k_, r, [&](OpId id) {
      for (const Value v : k_.op(id).operands) ++uses_[v.index];
    });
  }
  bool constant(Value v) const {
    const ir::Op* o = k_.def(v);
    return o && o->code == ir::Opcode::constant;
  }
  // How many of its operands nothing else looks at any more.
  bool ends_a_life(const ir::Op& o, Value but = {}) const {
    return std::any_of(o.operands.begin(), o.operands.end(), [&](Value v) {
      return !(v == but) && !constant(v) && mine_[v.index] &&
             uses_[v.index] == std::count(o.operands.begin(), o.operands.end(), v);
    });
  }
  bool ready(const ir::Op& o, Value but = {}) const {
    return std::all_of(o.operands.begin(), o.operands.end(), [&](Value v) { return v == but || made_[v.index]; });
  }
  // Of a product that only a sum reads, which is there but for it and dies in the next sum: the two need no register,
  // and look at what the product is made of once less.
  bool goes_on(const ir::Op& o) const {
    const Value v = o.results[0];
    if (o.code != ir::Opcode::mul || uses_[v.index] != 1 || users_[v.index].size() != 1) return false;
    const ir::Op& sum = k_.op(users_[v.index][0]);
    return (sum.code == ir::Opcode::add || sum.code == ir::Opcode::sub) && ready(sum, v) && ends_a_life(sum, v);
  }

  void walk(ir::RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    mine_.assign(k_.values.size(), false);
    std::vector<bool> done(k_.ops.size(), false);
    std::vector<Value> touched;
    for (const OpId id : ops) {
      const ir::Op& o = k_.op(id);
      for (const Value v : o.results) mine_[v.index] = true;
      if (!ir::is_elementwise(o.code)) continue;
      for (const Value v : o.operands) {
        if (users_[v.index].empty()) touched.push_back(v);
        if (!constant(v)) users_[v.index].push_back(id);
      }
    }
    std::vector<OpId> out, waiting;
    out.reserve(ops.size());
    // `waiting`: one of whose operands is made, or looked at by few others any more.
    const auto emit = [&](OpId id) {
      done[id.index] = true;
      out.push_back(id);
      const ir::Op& o = k_.op(id);
      for (const Value v : o.operands) {
        --uses_[v.index];
        if (mine_[v.index] && uses_[v.index] <= 2)
          waiting.insert(waiting.end(), users_[v.index].begin(), users_[v.index].end());
      }
      for (const Value v : o.results) {
        made_[v.index] = true;
        waiting.insert(waiting.end(), users_[v.index].begin(), users_[v.index].end());
      }
    };
    for (const OpId id : ops) {
      if (done[id.index]) continue;
      emit(id);
      while (!waiting.empty()) {
        const OpId next = waiting.back();
        waiting.pop_back();
        if (done[next.index] || !ready(k_.op(next)) || !(ends_a_life(k_.op(next)) || goes_on(k_.op(next)))) continue;
        emit(next);
      }
    }
    for (const Value v : touched) users_[v.index].clear();
    changed_ = changed_ || out != ops;
    k_.region(r).ops = std::move(out);
    for (const OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (const ir::RegionId x : inner) {
        for (const Value v : k_.region(x).args) made_[v.index] = true;
        walk(x);
      }
    }
  }

  ir::Kernel& k_;
  std::vector<int64_t> uses_;             // that are left, per value
  std::vector<std::vector<OpId>> users_;  // elementwise ones of the region, per value
  std::vector<bool> made_, mine_;         // per value: before this place; in this region
  bool changed_ = false;
};
}  // namespace

bool end_lives_early(ir::Kernel& k) { return Mover(k).run(); }

}  // namespace tessera::lowering
