// Rewritings of control flow and of accesses: statements in another order, in a loop of one trip, under a condition
// that is true; loops split, unrolled, as while; accesses with dynamic starts, in two parts, with masks, as other ops.
#include <algorithm>
#include <map>
#include <set>

#include "engine/ir/copy.h"
#include "engine/ir/walk.h"
#include "tests/fuzz/rewriter.h"

namespace tessera::fuzz {
using ir::Attr, ir::Index, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

namespace {
// What an op with the ops inside of it uses and touches.
struct Footprint {
  std::set<Value> uses, defines, reads, writes;
  bool fixed = false;  // keeps its place among all fixed ones, and among all that touch memory
};

Footprint footprint(const ir::Kernel& k, OpId id) {
  Footprint f;
  const auto see = [&](OpId o) {
    const Op& op = k.op(o);
    for (const Value v : op.operands) f.uses.insert(v);
    for (const Value v : op.results) f.defines.insert(v);
    for (const RegionId r : op.regions)
      for (const Value v : k.region(r).args) f.defines.insert(v);
    const ir::Effect effect = ir::info(op.code).effect;
    if (effect == ir::Effect::pure || op.code == Opcode::yield) return;
    if (op.code == Opcode::load) f.reads.insert(op.operands[0]);
    else if (op.code == Opcode::store || op.code == Opcode::swap || op.code == Opcode::addupdate)
      f.writes.insert(op.operands[0]);
    else if (op.regions.empty()) f.fixed = true;
  };
  see(id);
  for (const RegionId r : k.op(id).regions) ir::each_op(k, r, see);
  return f;
}

bool meet(const std::set<Value>& a, const std::set<Value>& b, const std::function<bool(Value, Value)>& same) {
  for (const Value x : a)
    for (const Value y : b)
      if (same(x, y)) return true;
  return false;
}

// Whether b must stay behind a.
bool is_bound(const ir::Kernel& k, const Footprint& a, const Footprint& b) {
  const auto equal = [](Value x, Value y) { return x == y; };
  if (meet(a.defines, b.uses, equal)) return true;
  if ((a.fixed && (b.fixed || !b.reads.empty() || !b.writes.empty())) ||
      (b.fixed && (!a.reads.empty() || !a.writes.empty())))
    return true;
  const auto block = [&](Value v) {
    const ir::ValueInfo& info = k.value(v);
    return info.region == k.body && info.number < k.blocks.size() ? static_cast<int>(info.number) : -1;
  };
  const auto same = [&](Value x, Value y) {
    if (x == y) return true;
    const int i = block(x), j = block(y);
    if (i < 0 || j < 0) return false;
    return k.blocks[static_cast<size_t>(i)].alias == j || k.blocks[static_cast<size_t>(j)].alias == i;
  };
  return meet(a.writes, b.reads, same) || meet(a.reads, b.writes, same) || meet(a.writes, b.writes, same);
}
}  // namespace

// Statements that do not need each other in another order.
bool rewrite_order(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  for (const RegionId r : e.regions()) {
    std::vector<OpId> ops = k.region(r).ops;
    const OpId yield = ops.back();
    ops.pop_back();
    if (ops.size() < 2 || ops.size() > 600) continue;
    std::vector<Footprint> f;
    for (const OpId id : ops) f.push_back(footprint(k, id));
    std::vector<int> waits(ops.size(), 0);
    std::vector<std::vector<size_t>> behind(ops.size());
    for (size_t j = 0; j < ops.size(); ++j)
      for (size_t i = 0; i < j; ++i)
        if (is_bound(k, f[i], f[j])) ++waits[j], behind[i].push_back(j);
    std::vector<size_t> ready;
    for (size_t i = 0; i < ops.size(); ++i)
      if (waits[i] == 0) ready.push_back(i);
    const bool last_first = e.random.chance(0.3);
    std::vector<OpId> order;
    while (!ready.empty()) {
      const size_t n = last_first ? ready.size() - 1 : e.random.below(ready.size()), i = ready[n];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(n));
      order.push_back(ops[i]);
      for (const size_t j : behind[i])
        if (--waits[j] == 0) ready.push_back(j);
    }
    any = any || order != ops;
    order.push_back(yield);
    k.region(r).ops = order;
  }
  return any;
}

namespace {
// A part of a region that goes into a region of its own: what it defines and others use.
struct Part {
  RegionId outer;
  size_t first = 0, end = 0;
  std::vector<OpId> ops;
  std::vector<Value> results;
};

std::optional<Part> some_part(Rewriter& e) {
  ir::Kernel& k = e.k;
  std::vector<RegionId> regions;
  for (const RegionId r : e.regions())
    if (k.region(r).ops.size() > 1) regions.push_back(r);
  if (regions.empty()) return std::nullopt;
  Part p;
  p.outer = e.random.pick(regions);
  const size_t n = k.region(p.outer).ops.size() - 1;
  p.first = e.random.below(n);
  p.end = std::min(n, p.first + 1 + e.random.below(e.random.chance(0.5) ? 4 : n));
  if (e.random.chance(0.2)) p.first = 0, p.end = n;
  const auto& ops = k.region(p.outer).ops;
  p.ops.assign(ops.begin() + static_cast<std::ptrdiff_t>(p.first), ops.begin() + static_cast<std::ptrdiff_t>(p.end));
  std::set<OpId, decltype([](OpId a, OpId b) { return a.index < b.index; })> inside(p.ops.begin(), p.ops.end());
  std::set<Value> outside;
  for (const OpId id : ops)
    if (!inside.contains(id)) {
      const Footprint f = footprint(k, id);
      outside.insert(f.uses.begin(), f.uses.end());
    }
  for (const OpId id : p.ops)
    for (const Value v : k.op(id).results)
      if (outside.contains(v)) p.results.push_back(v);
  return p;
}

RegionId region_of(Rewriter& e, const Part& p, const std::vector<Type>& args, const std::vector<Value>& more) {
  ir::Builder b(e.k);
  const RegionId r = b.new_region(args);
  e.k.region(r).ops = p.ops;
  b.set_region(r);
  std::vector<Value> yields = more;
  yields.insert(yields.end(), p.results.begin(), p.results.end());
  b.yield(yields);
  return r;
}
// The op that holds the part, at s; its results, which are the part's.
std::vector<Value> wrapped(Rewriter& e, Spot& s, const Part& part, size_t form, const std::vector<Value>& zeros) {
  ir::Kernel& k = e.k;
  const Part* p = &part;
  std::vector<Type> types{Type::array(DType::i32)};
  for (const Value v : p->results) types.push_back(k.type(v));
  std::vector<Value> results;
  if (form == 0) {
    const int64_t from = e.random.in(-2, 3), step = e.random.in(1, 3);
    const Value lower = e.constant_i32(s, from);
    const Value upper = e.number(s, from + e.random.in(1, step));
    const Value by = e.random.chance(0.7) ? e.constant_i32(s, step) : e.number(s, step);
    Op loop{.code = Opcode::for_, .operands = {lower, upper, by}, .regions = {region_of(e, *p, types, {})}};
    loop.operands.insert(loop.operands.end(), zeros.begin(), zeros.end());
    results = k.op(e.insert(s, std::move(loop))).results;
  } else if (form == 1) {
    const Value yes = e.truth(s);
    ir::Builder b(k);
    const RegionId no = b.new_region({});
    b.set_region(no);
    b.yield(zeros);
    const RegionId then = region_of(e, *p, {}, {});
    results = k.op(e.insert(s, {.code = Opcode::if_, .operands = {yes}, .regions = {then, no}})).results;
  } else if (form == 2) {
    const int64_t cases = e.random.in(2, 3), which = e.random.in(0, cases - 1);
    const Value n = e.number(s, which);
    Op choice{.code = Opcode::switch_, .operands = {n}};
    for (int64_t c = 0; c < cases; ++c) {
      if (c == which) {
        choice.regions.push_back(region_of(e, *p, {}, {}));
        continue;
      }
      ir::Builder b(k);
      const RegionId no = b.new_region({});
      b.set_region(no);
      b.yield(zeros);
      choice.regions.push_back(no);
    }
    results = k.op(e.insert(s, std::move(choice))).results;
  } else if (form == 3) {
    const Value start = e.constant_i32(s, 0), end = e.number(s, 1);
    ir::Builder b(k);
    const RegionId test = b.new_region(types);
    b.set_region(test);
    b.yield({b.elementwise(Opcode::lt, {b.arg(test, 0), end}, DType::boolean)});
    const RegionId body = region_of(e, *p, types, {});
    k.region(body).ops.pop_back();
    b.set_region(body);
    const Value one = b.constant_int(DType::i32, 1);
    std::vector<Value> next{b.elementwise(Opcode::add, {b.arg(body, 0), one})};
    next.insert(next.end(), p->results.begin(), p->results.end());
    b.yield(next);
    Op loop{.code = Opcode::while_, .operands = {start}, .regions = {test, body}};
    loop.operands.insert(loop.operands.end(), zeros.begin(), zeros.end());
    results = k.op(e.insert(s, std::move(loop))).results;
    results.erase(results.begin());
  } else {
    const RegionId r = region_of(e, *p, {}, {});
    results = k.op(e.insert(s, {.code = Opcode::run_scoped, .regions = {r}})).results;
  }
  return results;
}
}  // namespace

// A part of the kernel in a loop of one trip, under a condition that is true, as a case of a switch, or in a scope.
bool rewrite_wrapped(Rewriter& e) {
  ir::Kernel& k = e.k;
  const std::optional<Part> p = some_part(e);
  if (!p) return false;
  for (const OpId id : p->ops)
    if (ir::info(k.op(id).code).effect != ir::Effect::pure && k.has_threads()) return false;
  auto& outer = k.region(p->outer).ops;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(p->first),
              outer.begin() + static_cast<std::ptrdiff_t>(p->end));
  Spot s{p->outer, p->first};
  std::vector<Value> zeros;
  const size_t first = k.ops.size();
  const size_t form = e.random.below(5);
  if (form != 4)
    for (const Value v : p->results) zeros.push_back(e.garbage(s, k.type(v)));
  const std::vector<Value> results = wrapped(e, s, *p, form, zeros);
  // uses outside of the part
  std::set<uint32_t> inside;
  for (const OpId id : p->ops) {
    inside.insert(id.index);
    for (const RegionId r : k.op(id).regions) ir::each_op(k, r, [&](OpId o) { inside.insert(o.index); });
  }
  for (size_t i = 0; i < first; ++i) {
    if (inside.contains(static_cast<uint32_t>(i))) continue;
    for (Value& v : k.ops[i].operands)
      for (size_t r = 0; r < results.size(); ++r)
        if (v == p->results[r]) v = results[r];
  }
  return true;
}

namespace {
std::optional<Spot> some_loop(Rewriter& e, const std::function<bool(const Op&)>& wanted) {
  std::vector<Spot> list;
  for (const Spot& s : e.spots())
    if (e.op_at(s).code == Opcode::for_ && wanted(e.op_at(s))) list.push_back(s);
  if (list.empty()) return std::nullopt;
  return e.random.pick(list);
}

ir::Copier copier(ir::Kernel& k) {
  ir::Copier copy(k, k);
  for (uint32_t v = 0; v < k.values.size(); ++v) copy.map({v}, {v});
  return copy;
}
}  // namespace

// A loop in two, at a number that is known at run time only.
bool rewrite_split_loop(Rewriter& e) {
  ir::Kernel& k = e.k;
  const auto at = some_loop(e, [&](const Op& op) { return ir::constant_int(k, op.operands[2]) == 1; });
  if (!at) return false;
  Spot s = *at;
  const Op loop = e.op_at(s);
  const Value wanted = e.number(s, e.random.in(-1, 6));
  const Value low = e.elementwise(s, Opcode::min, {loop.operands[1], wanted});
  const Value middle = e.elementwise(s, Opcode::max, {loop.operands[0], low});
  ir::Copier copy = copier(k);
  Op front = loop;
  front.results.clear();
  front.regions = {copy.copy(loop.regions[0])};
  front.operands[1] = middle;
  const std::vector<Value> carried = k.op(e.insert(s, std::move(front))).results;
  Op& back = e.op_at(s);
  back.operands[0] = middle;
  for (size_t i = 0; i < carried.size(); ++i) back.operands[3 + i] = carried[i];
  return true;
}

// A loop of up to eight trips as a straight line.
bool rewrite_unrolled(Rewriter& e) {
  ir::Kernel& k = e.k;
  const auto trips = [&](const Op& op) -> int64_t {
    const auto from = ir::constant_int(k, op.operands[0]), to = ir::constant_int(k, op.operands[1]),
               by = ir::constant_int(k, op.operands[2]);
    if (!from || !to || !by || *by < 1) return -1;
    return std::max<int64_t>(0, (*to - *from + *by - 1) / *by);
  };
  const auto at = some_loop(e, [&](const Op& op) { return trips(op) >= 0 && trips(op) <= 8; });
  if (!at) return false;
  const Op loop = e.op_at(*at);
  e.erase(*at);
  Spot s = *at;
  const int64_t from = *ir::constant_int(k, loop.operands[0]), by = *ir::constant_int(k, loop.operands[2]),
                n = trips(loop);
  std::vector<Value> carried(loop.operands.begin() + 3, loop.operands.end());
  for (int64_t i = 0; i < n; ++i) {
    const Value counter = e.random.chance(0.5) ? e.constant_i32(s, from + i * by) : e.number(s, from + i * by);
    ir::Copier copy = copier(k);
    const std::vector<Value> args = k.region(loop.regions[0]).args;
    copy.map(args[0], counter);
    for (size_t c = 0; c < carried.size(); ++c) copy.map(args[c + 1], carried[c]);
    const std::vector<OpId> ops = k.region(loop.regions[0]).ops;
    for (size_t o = 0; o + 1 < ops.size(); ++o) {
      copy.copy(ops[o], s.region);
      auto& list = k.region(s.region).ops;
      const OpId made = list.back();
      list.pop_back();
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(s.at++), made);
    }
    const std::vector<Value> yields = k.op(ops.back()).operands;
    for (size_t c = 0; c < carried.size(); ++c) carried[c] = copy(yields[c]);
  }
  for (size_t c = 0; c < carried.size(); ++c) e.replace_uses(loop.results[c], carried[c], k.ops.size());
  return true;
}

// A loop by ones as a while.
bool rewrite_while(Rewriter& e) {
  ir::Kernel& k = e.k;
  const auto at = some_loop(e, [&](const Op& op) { return ir::constant_int(k, op.operands[2]) == 1; });
  if (!at) return false;
  const Op loop = e.op_at(*at);
  e.erase(*at);
  Spot s = *at;
  ir::Builder b(k);
  std::vector<Type> types;
  for (const Value v : k.region(loop.regions[0]).args) types.push_back(k.type(v));
  const RegionId test = b.new_region(types);
  b.set_region(test);
  b.yield({b.elementwise(Opcode::lt, {b.arg(test, 0), loop.operands[1]}, DType::boolean)});
  const RegionId body = loop.regions[0];
  std::vector<Value> next = k.op(k.region(body).ops.back()).operands;
  k.region(body).ops.pop_back();
  b.set_region(body);
  const Value one = b.constant_int(DType::i32, 1);
  next.insert(next.begin(), b.elementwise(Opcode::add, {b.arg(body, 0), one}));
  b.yield(next);
  Op made{.code = Opcode::while_, .operands = {loop.operands[0]}, .regions = {test, body}};
  made.operands.insert(made.operands.end(), loop.operands.begin() + 3, loop.operands.end());
  const std::vector<Value> results = k.op(e.insert(s, std::move(made))).results;
  for (size_t c = 0; c < loop.results.size(); ++c) e.replace_uses(loop.results[c], results[c + 1], k.ops.size());
  return true;
}

namespace {
bool is_access(const Op& op) {
  return op.code == Opcode::load || op.code == Opcode::store || op.code == Opcode::swap || op.code == Opcode::addupdate;
}

std::vector<Spot> some_accesses(Rewriter& e, size_t most, const std::function<bool(const Op&)>& wanted) {
  std::vector<Spot> list;
  for (const Spot& s : e.spots())
    if (wanted(e.op_at(s))) list.push_back(s);
  e.random.shuffle(list);
  if (list.size() > most) list.resize(most);
  return list;
}
}  // namespace

// Static positions become starts that are known at run time only, or arrays of positions.
bool rewrite_dynamic_index(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  std::vector<OpId> ids;
  for (const Spot& s : some_accesses(
           e, 4, [](const Op& op) { return (is_access(op) || op.code == Opcode::atomic_rmw) && !op.index.empty(); }))
    ids.push_back(k.region(s.region).ops[s.at]);
  for (const OpId id : ids) {
    for (Spot s : e.spots()) {
      if (k.region(s.region).ops[s.at] != id) continue;
      const size_t d = e.random.below(k.op(id).index.size());
      const Index old = k.op(id).index[d];
      if (!old.is_static()) break;
      const bool plain = std::none_of(k.op(id).index.begin(), k.op(id).index.end(),
                                      [](const Index& x) { return !x.slice() || !x.is_static(); });
      Index now = old;
      const size_t operand = k.op(id).operands.size();
      Value start;
      const Index::Slice* slice = old.slice();
      if (slice && plain && e.random.chance(0.4) && slice->size > 0 && k.op(id).code != Opcode::atomic_rmw) {
        Op iota{.code = Opcode::iota};
        iota.set(Attr::axis, 0);
        const Value n = e.one(s, std::move(iota), Type::array(DType::i32, {slice->size}));
        const Value step = e.constant(s, Type::array(DType::i32, {slice->size}), static_cast<uint32_t>(slice->step));
        const Value scaled = e.elementwise(s, Opcode::mul, {n, step});
        const Value from = e.number(s, old.constant());
        const Value all = e.broadcast(s, from, {slice->size});
        start = e.elementwise(s, Opcode::add, {scaled, all});
        now = Index::array(operand);
      } else {
        start = e.number(s, old.constant());
        now.start() = Index::Dynamic{operand};
      }
      k.op(id).operands.push_back(start);
      k.op(id).index[d] = now;
      any = true;
      break;
    }
  }
  return any;
}

// A load or store of a slice in two parts, one behind the other.
bool rewrite_split_access(Rewriter& e) {
  ir::Kernel& k = e.k;
  const auto is_long = [](const Index& x) { return x.is_static() && x.slice() && x.slice()->size > 1; };
  const std::vector<Spot> list = some_accesses(e, 1, [&](const Op& op) {
    if ((op.code != Opcode::load && op.code != Opcode::store) || op.has_mask() || ir::access_dims(k, op).arrays)
      return false;
    return std::any_of(op.index.begin(), op.index.end(), is_long);
  });
  if (list.empty()) return false;
  Spot s = list[0];
  const OpId id = k.region(s.region).ops[s.at];
  const Op op = k.op(id);
  std::vector<size_t> dims;
  for (size_t d = 0; d < op.index.size(); ++d)
    if (is_long(op.index[d])) dims.push_back(d);
  const size_t d = e.random.pick(dims);
  const int dim = ir::access_dims(k, op).slice[d];
  const int64_t n = op.index[d].slice()->size, cut = e.random.in(1, n - 1);
  Op front = op, back = op;
  front.results.clear(), back.results.clear();
  front.index[d].slice()->size = cut;
  *back.index[d].slice() = {op.index[d].constant() + cut * op.index[d].slice()->step, n - cut,
                            op.index[d].slice()->step};
  e.erase(s);
  if (op.code == Opcode::load) {
    const Value a = e.one(s, std::move(front)), b = e.one(s, std::move(back));
    Op join{.code = Opcode::concatenate, .operands = {a, b}};
    join.set(Attr::axis, dim);
    e.replace_uses(op.results[0], e.one(s, std::move(join)), k.ops.size());
    return true;
  }
  const Value v = op.operands[1];
  const auto part = [&](int64_t from, int64_t to) {
    Op slice{.code = Opcode::slice, .operands = {v}};
    Shape shape = k.type(v).shape;
    std::vector<int64_t> start(shape.size(), 0);
    start[static_cast<size_t>(dim)] = from, shape[static_cast<size_t>(dim)] = to;
    slice.set(Attr::start, start);
    slice.set(Attr::limit, shape);
    slice.set(Attr::stride, std::vector<int64_t>(shape.size(), 1));
    return e.one(s, std::move(slice));
  };
  front.operands[1] = part(0, cut);
  back.operands[1] = part(cut, n);
  const bool turned = e.random.chance(0.5);
  e.insert(s, turned ? back : front);
  e.insert(s, turned ? front : back);
  return true;
}

// An access with a mask that is true everywhere.
bool rewrite_masked(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  std::vector<OpId> ids;
  for (const Spot& s : some_accesses(e, 3, [](const Op& op) {
         return is_access(op) && !op.has_mask() && op.code != Opcode::addupdate &&
                std::all_of(op.index.begin(), op.index.end(), [](const Index& x) { return x.is_static(); });
       }))
    ids.push_back(k.region(s.region).ops[s.at]);
  for (const OpId id : ids)
    for (Spot s : e.spots()) {
      if (k.region(s.region).ops[s.at] != id) continue;
      const Type t = k.op(id).code == Opcode::load ? k.type(k.op(id).results[0]) : k.type(k.op(id).operands[1]);
      Value yes = e.truth(s);
      yes = e.broadcast(s, yes, t.shape);
      const bool other = k.op(id).code == Opcode::load && e.random.chance(0.6);
      const Value garbage = other ? e.garbage(s, t) : Value{};
      Op& op = k.op(id);
      op.set(Attr::mask, 1);
      std::vector<Value> more{yes};
      if (other) op.set(Attr::other, 1), more.push_back(garbage);
      op.operands.insert(op.operands.begin() + op.mask_position(), more.begin(), more.end());
      for (Index& x : op.index) x.shift(static_cast<ptrdiff_t>(more.size()));
      any = true;
      break;
    }
  return any;
}

// addupdate as load, add and store; a store as a swap, and the other way.
bool rewrite_swaps(Rewriter& e) {
  ir::Kernel& k = e.k;
  const std::vector<Spot> list = some_accesses(e, 1, [&](const Op& op) {
    if (op.code == Opcode::addupdate) return !ir::access_dims(k, op).arrays;
    return (op.code == Opcode::store || op.code == Opcode::swap) && !op.has_mask() && !ir::access_dims(k, op).arrays;
  });
  if (list.empty()) return false;
  Spot s = list[0];
  const Op op = e.op_at(s);
  if (op.attr_or(Attr::unordered, 0) || op.attr_or(Attr::late, 0)) return false;
  e.erase(s);
  if (op.code == Opcode::store) {
    Op made = op;
    made.code = Opcode::swap;
    e.insert(s, std::move(made));
    return true;
  }
  Op load{.code = Opcode::load, .operands = {op.operands[0]}, .index = op.index};
  const bool used = op.code == Opcode::addupdate || !e.uses(op.results[0]).empty();  // else it reads what nobody wrote
  load.operands.insert(load.operands.end(), op.operands.begin() + 2, op.operands.end());
  for (Index& x : load.index) x.shift(-1);
  if (op.has_mask()) load.set(Attr::mask, 1);
  const Value old = used ? e.one(s, std::move(load)) : Value{};
  Op store = op;
  store.code = Opcode::store;
  store.results.clear();
  if (op.code == Opcode::addupdate) store.operands[1] = e.elementwise(s, Opcode::add, {old, op.operands[1]});
  e.insert(s, std::move(store));
  if (op.code == Opcode::swap && used) e.replace_uses(op.results[0], old, k.ops.size());
  return true;
}

}  // namespace tessera::fuzz
