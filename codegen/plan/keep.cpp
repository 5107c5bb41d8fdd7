// Evaluations are counted before anything is emitted: each op that is computed where it stands asks for its operands'
// elements at symbolic positions, which index functions turn into positions of theirs, just as
// Elements::compute does. A value's uses are the different positions that reach it: what is emitted twice at
// the same position is one value (LaneBuilder).
//
// The bound. A lazy value whose evaluation costs more than kCheap has at most kWorth (kWorthDear) / kCheap + 1 uses, or
// it would be kept. So ops above it ask for it, and for the cheap ones behind it, a bounded number of times; each edge
// of the kernel then stands for a bounded number of evaluations, and the code is linear in the kernel's ops, times the
// elements that an invocation has of each.
#include "codegen/plan/keep.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/plan/axes.h"
#include "codegen/plan/parallel.h"
#include "engine/base/function.h"
#include "engine/ir/moves.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Attr;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::Value;

// In lane ops, roughly: what is cheaper is computed wherever it is used, and how much must be saved before a value is
// stored, waited for and loaded.
constexpr int64_t kCheap = 16, kWorth = 48, kWorthDear = 512;

// Symbolic positions: a term is a number, equal for equal terms.
class Terms {
 public:
  uint32_t term(std::vector<uint32_t> parts) {
    const auto [it, fresh] = numbers_.try_emplace(std::move(parts), static_cast<uint32_t>(terms_.size()));
    if (fresh) terms_.push_back(&it->first);
    return it->second;
  }
  const std::vector<uint32_t>& parts(uint32_t term) const { return *terms_[term]; }

 private:
  std::map<std::vector<uint32_t>, uint32_t> numbers_;
  std::vector<const std::vector<uint32_t>*> terms_;
};

class Choice {
 public:
  Choice(const ir::Kernel& k, const Function<Keeping(Value)>& keeping)
      : k_(k),
        keeping_(keeping),
        lazy_(lazy_values(k)),
        kept_(k.values.size()),
        uses_(k.values.size()),
        meets_(k.values.size()) {}

  std::vector<Kept> run() {
    // How often each would be computed if nothing were kept, and where different positions meet: those are worth
    // keeping, not what lies between.
    backwards(k_.body, [this](Value v) { meet(v); });
    const auto concatenates = [&](const Op& o) {
      return o.code == Opcode::concatenate && o.results.size() == 1 && lazy_[o.results[0].index];
    };
    if (std::none_of(meets_.begin(), meets_.end(), [](int64_t n) { return n > 0; }) &&
        std::none_of(k_.ops.begin(), k_.ops.end(), concatenates))
      return kept_;
    // Operands first, so that the cost of each knows what is kept below it.
    forwards(k_.body);
    // What is kept above takes uses away, or adds some: now all are known, and the costs are at most what they were.
    for (Uses& u : uses_) u.clear();
    backwards(k_.body, [this](Value v) {
      const auto n = static_cast<int64_t>(uses_[v.index].size());
      if (!kept_[v.index].yes) consider(v, n);
      else if (n < 2 && k_.def(v)->code != Opcode::concatenate) kept_[v.index].yes = false;
      kept_[v.index].uses = n;
    });
    return kept_;
  }

 private:
  using Uses = std::map<uint32_t, int64_t>;  // positions (tuples of terms), and of how many each stands for

  // Where an op asks for its operand number `part`.
  uint32_t own_position(OpId id, uint32_t part, size_t rank) {
    std::vector<uint32_t> tuple;
    for (uint32_t d = 0; d < rank; ++d) tuple.push_back(terms_.term({kOwn, id.index, part, d}));
    return terms_.term(std::move(tuple));
  }

  void ask(Value v, uint32_t at, int64_t times) {
    if (!lazy_[v.index]) return;
    Uses& u = uses_[v.index];
    if (static_cast<int64_t>(u.size()) < Kept::kMostUses || u.count(at)) u[at] = std::max(u[at], times);
  }
  // From here on one position stands for all of those.
  void meet(Value v) {
    Uses& u = uses_[v.index];
    if (u.size() < 2) return;
    int64_t all = 0;
    for (const auto& [at, times] : u) all = std::min(all + times, Kept::kMostUses);
    meets_[v.index] = all;
    u = {{own_position(k_.value(v).def, 0, k_.type(v).shape.size()), all}};
  }

  // Calls f for each operand that an op evaluates itself, and where.
  template <class F> void own_reads(OpId id, const F& f) {
    const Op& o = k_.op(id);
    if (ir::is_index_function(o.code) || o.code == Opcode::load) {
      const Value v = o.results[0];
      reads(o, v, own_position(id, 0, k_.type(v).shape.size()), f);
      return;
    }
    if (ir::accesses_ref(o.code)) {
      access_reads(o, own_position(id, 0, k_.type(o.operands[1]).shape.size()), f);
      return;
    }
    for (uint32_t i = 0; i < o.operands.size(); ++i)
      if (!k_.type(o.operands[i]).is_ref) f(o.operands[i], own_position(id, i, k_.type(o.operands[i]).shape.size()));
  }

  // What an access reads for the element at `at` of its value: the value to store, mask, other and index arrays.
  template <class F> void access_reads(const Op& o, uint32_t at, const F& f) {
    const ir::AccessDims form = ir::access_dims(k_, o);
    const std::vector<uint32_t> c = terms_.parts(at);
    for (size_t i = 1; i < o.operands.size(); ++i) {
      const bool array = std::any_of(o.index.begin(), o.index.end(),
                                     [&](const ir::Index& x) { return x.is_array() && *x.operand() == i; });
      if (!array) {
        f(o.operands[i], at);
        continue;
      }
      f(o.operands[i], terms_.term({c.begin() + static_cast<std::ptrdiff_t>(form.array_at),
                                    c.begin() + static_cast<std::ptrdiff_t>(form.array_at + form.array_rank)}));
    }
  }

  // Where a dim of a move's operand is read.
  uint32_t source(const ir::DimSource& s, const std::vector<uint32_t>& c) {
    if (s.dim < 0) return terms_.term({kZero});
    const uint32_t from = c[static_cast<size_t>(s.dim)];
    return s.whole ? from
                   : terms_.term({kMoved, from, static_cast<uint32_t>(s.offset), static_cast<uint32_t>(s.stride)});
  }

  // What an index function reads for its element at `at`; as Elements::compute.
  template <class F> void reads(const Op& o, Value v, uint32_t at, const F& f) {
    if (ir::is_elementwise(o.code)) {
      for (Value x : o.operands) f(x, at);
      return;
    }
    const std::vector<uint32_t> c = terms_.parts(at);
    if (o.code == Opcode::load) return access_reads(o, at, f);
    if (o.code == Opcode::gather) {
      const auto& dims = o.ints(Attr::dims);
      std::vector<uint32_t> in;
      for (uint32_t d = 0; d < dims.size(); ++d)
        in.push_back(dims[d] >= 0 ? c[static_cast<size_t>(dims[d])] : terms_.term({kGathered, number(v), at, d}));
      for (size_t i = 1; i < o.operands.size(); ++i) f(o.operands[i], at);
      return f(o.operands[0], terms_.term(in));
    }
    if (ir::is_move(o.code)) moved(o, v, at, c, f);  // else a constant or an iota
  }
  uint32_t number(Value v) const { return k_.value(v).def.index; }

  // As Elements::moved.
  template <class F> void moved(const Op& o, Value v, uint32_t at, const std::vector<uint32_t>& c, const F& f) {
    std::vector<uint32_t> in;
    const std::optional<ir::MoveMap> map = ir::move_map(k_, o);
    if (!map) {
      for (uint32_t d = 0; d < k_.type(o.operands[0]).shape.size(); ++d)
        in.push_back(terms_.term({kReshaped, number(v), at, d}));
      return f(o.operands[0], terms_.term(in));
    }
    if (const std::vector<const Op*> slices =
            slices_of_one(k_, o, [&](Value part) { return lazy_[part.index] && !kept_[part.index].yes; });
        !slices.empty()) {
      const auto dims = *ir::move_dims(k_, *slices[0]);
      for (size_t d = 0; d < dims.size(); ++d)
        in.push_back(d == map->axis ? terms_.term({kChosen, number(v), c[d]}) : source(dims[d], c));
      return f(slices[0]->operands[0], terms_.term(in));
    }
    for (const ir::MovePiece& p : map->pieces) {
      if (map->pieces.size() > 1 && p.begin == p.end) continue;
      in.clear();
      for (const ir::DimSource& s : p.dims) {
        in.push_back(source(s, c));
        if (map->pieces.size() > 1 && s.dim == static_cast<int>(map->axis))
          in.back() = terms_.term({kClamped, in.back(), static_cast<uint32_t>(p.begin), static_cast<uint32_t>(p.end)});
      }
      f(p.operand, terms_.term(in));
    }
  }

  // Users before what they read.
  void backwards(ir::RegionId r, FunctionRef<void(Value)> decide) {
    const std::vector<OpId>& ops = k_.region(r).ops;
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op& o = k_.op(*id);
      for (auto inner = o.regions.rbegin(); inner != o.regions.rend(); ++inner) backwards(*inner, decide);
      const bool is_lazy = o.results.size() == 1 && lazy_[o.results[0].index];
      if (is_lazy) decide(o.results[0]);
      if (!is_lazy || kept_[o.results[0].index].yes) own_reads(*id, [&](Value x, uint32_t at) { ask(x, at, 1); });
      else
        for (const auto& [at, times] : uses_[o.results[0].index])
          reads(o, o.results[0], at, [&, n = times](Value x, uint32_t position) { ask(x, position, n); });
    }
  }

  void forwards(ir::RegionId r) {
    for (OpId id : k_.region(r).ops) {
      const Op& o = k_.op(id);
      for (ir::RegionId inner : o.regions) forwards(inner);
      if (o.results.size() == 1 &&
          (meets_[o.results[0].index] > 1 || (o.code == Opcode::concatenate && lazy_[o.results[0].index])))
        consider(o.results[0], meets_[o.results[0].index]);
    }
  }

  void consider(Value v, int64_t uses) {
    const Op& o = *k_.def(v);
    if (uses < 2 && o.code != Opcode::concatenate) return;
    const Keeping keeping = keeping_(v);
    const int64_t worth = keeping.dear ? kWorthDear : kWorth, cost = cost_of(v, worth);
    int64_t saved = std::max<int64_t>(uses - 1, 0) * cost;
    // computed where it stands, each element is one part's
    if (o.code == Opcode::concatenate && keeping.in_arena && cost > worth) {
      int64_t all = 0, most = 0;
      for (Value part : o.operands) {
        all += cost_of(part, worth);
        most = std::max(most, cost_of(part, worth));
      }
      saved += all - most;
    }
    if (cost <= kCheap || saved <= worth) return;
    // Not what only moves elements, but what it moves.
    Value from = v;
    while (lazy_[from.index] && ir::is_move_of_one(k_.def(from)->code)) from = k_.def(from)->operands[0];
    if (from == v) {
      kept_[v.index] = {o.code != Opcode::load, uses, cost};
      return;
    }
    const int64_t below = cost_of(from, worth);
    if (cost - below > kCheap) kept_[v.index] = {true, uses, cost};
    else if (2 * below > kCheap && lazy_[from.index] && k_.def(from)->code != Opcode::load)
      kept_[from.index] = {true, uses, below};
  }

  // Of one element, each value counted once per position; up to a limit.
  int64_t cost_of(Value root, int64_t limit) {
    std::set<std::pair<uint32_t, uint32_t>> seen;
    std::vector<std::pair<Value, uint32_t>> stack{
        {root, own_position(k_.value(root).def, 0, k_.type(root).shape.size())}};
    int64_t cost = 0;
    while (!stack.empty() && cost <= limit) {
      const auto [v, at] = stack.back();
      stack.pop_back();
      if (k_.type(v).shape.empty() || !seen.emplace(v.index, at).second) continue;
      if (!lazy_[v.index] || kept_[v.index].yes) {
        cost += 2;
        continue;
      }
      const Op& o = *k_.def(v);
      cost += weight(o);
      reads(o, v, at, [&](Value x, uint32_t position) {
        if (!k_.type(x).is_ref) stack.emplace_back(x, position);
      });
    }
    return cost;
  }
  int64_t weight(const Op& o) const {
    const auto is = [&](std::initializer_list<Opcode> list) {
      return std::find(list.begin(), list.end(), o.code) != list.end();
    };
    if (is({Opcode::constant, Opcode::broadcast, Opcode::transpose})) return 0;
    if (is({Opcode::load, Opcode::reshape, Opcode::div, Opcode::rem})) return 4;
    if (is({Opcode::concatenate, Opcode::gather})) return 3 * static_cast<int64_t>(o.operands.size());
    return ir::info(o.code).transcendental ? 12 : 1;
  }

  enum : uint32_t { kOwn, kZero, kReshaped, kMoved, kChosen, kClamped, kGathered };
  const ir::Kernel& k_;
  const Function<Keeping(Value)>& keeping_;
  const std::vector<bool> lazy_;
  std::vector<Kept> kept_;
  std::vector<Uses> uses_;
  std::vector<int64_t> meets_;  // uses if nothing were kept, of values that different positions meet at
  Terms terms_;
};

}  // namespace

namespace {
// Whether a load of smem, ops[at], may be done where its value is used: nothing that could change the memory, of this
// thread or another, comes between. An op that reads it, or what is computed of it element by element, does so at once.
bool may_load_late(const ir::Kernel& k, const std::vector<ir::OpId>& ops, size_t at) {
  const Value ref = k.op(ops[at]).operands[0];
  std::set<uint32_t> late{k.op(ops[at]).results[0].index};
  const auto uses = [&](const Op& o) {
    return std::any_of(o.operands.begin(), o.operands.end(), [&](Value v) { return late.count(v.index) != 0; });
  };
  bool changed = false;
  for (size_t i = at + 1; i < ops.size(); ++i) {
    const Op& o = k.op(ops[i]);
    const bool used = uses(o) || ir::any_op_inside(k, o, [&](ir::OpId inner) { return uses(k.op(inner)); });
    if (used && (changed || !o.regions.empty() || (ir::writes_ref(o.code) && o.operands[0] == ref))) return false;
    if (used && ir::is_index_function(o.code))
      for (const Value v : o.results) late.insert(v.index);
    changed =
        changed || !o.regions.empty() || ir::is_thread_op(o.code) || (ir::writes_ref(o.code) && o.operands[0] == ref);
  }
  return true;
}

// Of kernels whose threads share smem: the loads of it that need no copy.
void find_late_loads(const ir::Kernel& k, ir::RegionId r, std::vector<bool>& lazy) {
  const std::vector<ir::OpId>& ops = k.region(r).ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& o = k.op(ops[i]);
    for (const ir::RegionId inner : o.regions) find_late_loads(k, inner, lazy);
    if (o.code != Opcode::load || k.type(o.results[0]).shape.empty()) continue;
    if (k.type(o.operands[0]).space == ir::MemorySpace::smem && k.value(o.operands[0]).number >= k.blocks.size())
      lazy[o.results[0].index] = may_load_late(k, ops, i);
  }
}
}  // namespace

std::vector<bool> lazy_values(const ir::Kernel& k) {
  const std::vector<bool> stored = stored_memory(k);
  std::vector<bool> lazy(k.values.size(), false);
  for (const Op& o : k.ops) {
    if (o.results.size() != 1 || k.type(o.results[0]).shape.empty() || k.type(o.results[0]).is_ref) continue;
    bool yes = ir::is_index_function(o.code);
    if (o.code == Opcode::load) {
      const auto ref = static_cast<size_t>(ref_position(k, o.operands[0]));
      yes = !stored[ref] && ref < k.blocks.size();  // scratch has a place of its own even if nothing stores to it
    }
    lazy[o.results[0].index] = yes;
  }
  if (k.has_threads()) find_late_loads(k, k.body, lazy);
  return lazy;
}

std::vector<const Op*> slices_of_one(const ir::Kernel& k, const Op& concatenate, FunctionRef<bool(Value)> lazy) {
  if (concatenate.code != Opcode::concatenate) return {};
  const auto axis = static_cast<size_t>(concatenate.attr(Attr::axis));
  std::vector<const Op*> slices;
  for (Value part : concatenate.operands) {
    const Op* o = k.def(part);
    if (!o || o->code != Opcode::slice || !lazy(part)) return {};
    slices.push_back(o);
    if (o->operands[0] != slices[0]->operands[0]) return {};
    for (size_t d = 0; d < k.type(part).shape.size(); ++d)
      if (d != axis && (o->ints(Attr::start)[d] != slices[0]->ints(Attr::start)[d] ||
                        o->ints(Attr::stride)[d] != slices[0]->ints(Attr::stride)[d]))
        return {};
  }
  return slices;
}

std::vector<Kept> choose_kept(const ir::Kernel& k, const Function<Keeping(Value)>& keeping) {
  return Choice(k, keeping).run();
}

}  // namespace tessera::lowering
