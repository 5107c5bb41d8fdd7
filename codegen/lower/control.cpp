// Where each value lives, how long, and structured control flow. Conditions and loop bounds are scalars, so control
// flow is uniform in a group.
#include <algorithm>

#include "codegen/lower/atomics.h"
#include "codegen/lower/lowering.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/keep.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Family;
using ir::Opcode;

void Lowering::plan_homes() {
  kinds_.assign(k_.values.size(), Kind::lazy);
  const std::vector<bool> index_function = lazy_values(k_);
  for (uint32_t i = 0; i < k_.values.size(); ++i) {
    const Value v{i};
    const ir::Type& t = k_.type(v);
    if (t.is_ref) continue;
    if (t.shape.empty()) {
      kinds_[i] = Kind::scalar;
      continue;
    }
    const ir::Op* o = k_.def(v);
    const bool lazy = s_.general ? o && (ir::family(o->code) == Family::source ||
                                         (o->code == Opcode::broadcast && shape(o->operands[0]).empty()))
                                 : index_function[i] && !s_.kept[i].yes;
    if (lazy) continue;
    if (o && ir::is_rearranged(o->code)) {
      kinds_[i] = Kind::arena;  // whose elements move
      continue;
    }
    bool registers = s_.enumerable(axes_, axes_.of(v));
    if (o && o->code == Opcode::load &&
        s_.residency[static_cast<size_t>(ref_position(k_, o->operands[0]))] == Residency::registers)
      registers = true;
    // Where invocations share a workgroup, only the one that updates an element knows what it was.
    if (o && ir::is_atomic(o->code) && uniform_group()) registers = false;
    kinds_[i] = registers ? Kind::registers : Kind::arena;
  }
  choose_loads_ahead();
  demote_misfits();
  settle_ahead();
}

void Lowering::explain_kept(std::vector<std::string>& notes) const {
  constexpr size_t kMost = 8;  // lines
  std::vector<std::string> lines;
  for (const ir::Op& o : k_.ops) {
    if (s_.general || o.results.size() != 1 || !s_.kept[o.results[0].index].yes) continue;
    const Kept& kept = s_.kept[o.results[0].index];
    std::string line = "kept in " +
                       std::string(kinds_[o.results[0].index] == Kind::registers ? "registers" : "the arena") + ": " +
                       ir::to_string(k_.type(o.results[0])) + ", the result of " + std::string(ir::name(o.code));
    if (o.loc) line += " at " + to_string(o.loc);
    line += ": computing it where it is used would repeat about " + std::to_string(kept.cost) + " operations at " +
            std::to_string(kept.uses) + (kept.uses == Kept::kMostUses ? " positions or more" : " positions");
    lines.push_back(std::move(line));
  }
  const size_t shown = lines.size() > kMost ? kMost - 1 : lines.size();
  notes.insert(notes.end(), lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown));
  if (shown < lines.size())
    notes.push_back("and " + std::to_string(lines.size() - shown) + " more values are kept likewise");
}

// Walks lazy values down to what they read.
namespace {
template <class F> void each_home(const ir::Kernel& k, const std::vector<Kind>& kinds, Value root,
                                  std::set<uint32_t>& seen, const F& f) {
  std::vector<Value> stack{root};
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (k.type(v).is_ref || !seen.insert(v.index).second) continue;
    if (kinds[v.index] != Kind::lazy) {
      f(v);
      continue;
    }
    if (const ir::Op* o = k.def(v))
      for (Value x : o->operands) stack.push_back(x);
  }
}
}  // namespace

std::vector<MemoryRange> Lowering::arena_reads(const std::vector<Value>& roots) {
  std::vector<MemoryRange> reads;
  std::set<uint32_t> seen;
  for (Value root : roots)
    each_home(k_, kinds_, root, seen, [&](Value v) {
      if (kinds_[v.index] == Kind::arena && home(v).slot.offset >= 0) reads.push_back(home(v).slot.range);
    });
  return reads;
}

// Single elements do not count: every invocation holds them, so any position may read them.
bool Lowering::reads_registers(Value root) {
  bool found = false;
  std::set<uint32_t> seen;
  each_home(k_, kinds_, root, seen,
            [&](Value v) { found = found || (kinds_[v.index] == Kind::registers && has_axes(v)); });
  return found;
}

bool Lowering::has_axes(Value v) const {
  const std::vector<int> dims = axes_.of(v);
  return std::any_of(dims.begin(), dims.end(), [](int a) { return a != kNoAxis; });
}

// A value in registers can be read by a nest over axes that have a common layout. Each axis got its layout where it
// mattered most, so a lighter nest may find two of its axes on the same invocations: the values that it reads then live
// in the arena instead. Packed programs have no arena and no need of this: one invocation holds everything.
void Lowering::demote_misfits() {
  if (s_.general || !uniform_group()) return;
  // Carried values change home together: what a loop yields is what its region receives and what it results in.
  std::vector<Value> next_in_group(k_.values.size());
  for (uint32_t i = 0; i < next_in_group.size(); ++i) next_in_group[i] = {i};
  auto tie = [&](Value a, Value b) { std::swap(next_in_group[a.index], next_in_group[b.index]); };
  for (const ir::Op& o : k_.ops)
    for (size_t i = 0; i < o.results.size() && ir::is_loop(o.code); ++i)
      for (ir::RegionId r : o.regions) tie(o.results[i], k_.region(r).args[i + (o.code == Opcode::for_ ? 1 : 0)]);

  bool changed = false;
  auto demote = [&](Value root) {
    std::set<uint32_t> seen;
    std::vector<Value> found;
    each_home(k_, kinds_, root, seen, [&](Value v) {
      if (kinds_[v.index] == Kind::registers && has_axes(v)) found.push_back(v);
    });
    for (Value v : found) {
      changed = true;
      for (Value x = v;;) {
        kinds_[x.index] = Kind::arena;
        ++misfits_;
        x = next_in_group[x.index];
        if (x == v) break;
      }
    }
  };
  // A nest over the dims of `root` (and what has the same dims) reads this value.
  auto use = [&](Value root, Value v) {
    if (!layout_fits(axes_.of(root))) demote(v);
  };
  std::function<void(ir::RegionId)> walk = [&](ir::RegionId region) {
    for (ir::OpId id : k_.region(region).ops) {
      const ir::Op& o = k_.op(id);
      for (ir::RegionId inner : o.regions) walk(inner);
      const auto where_used = [&] {  // index functions are evaluated there, unless they are kept
        if (o.results.size() != 1 || k_.type(o.results[0]).shape.empty() || kinds_[o.results[0].index] == Kind::lazy)
          return;
        for (Value v : o.operands) {
          use(o.results[0], v);
          // each part has a nest of its own
          if (o.code == Opcode::concatenate && kinds_[o.results[0].index] == Kind::arena) use(v, v);
        }
      };
      switch (ir::family(o.code)) {
        case Family::memory:
          for (Value v : values_read(o)) {
            // an invocation walks all elements of the arrays
            if (must_scatter_in_order(k_, o) && !in_any_order(k_, o, used_)) demote(v);
            else use(o.code == Opcode::load ? o.results[0] : o.operands[1], v);
          }
          break;
        case Family::contract:  // stages the operand that it cannot read in place, by a nest over that operand
        case Family::reduce:
        case Family::argreduce:
        case Family::print:
        case Family::end:  // into the home of a result or a carried value
        case Family::control:
          for (Value v : o.operands) use(v, v);
          break;
        case Family::scan:  // each invocation walks a line
          if (shape(o.results[0])[static_cast<size_t>(o.attr(Attr::axis))] > 1) demote(o.operands[0]);
          else use(o.operands[0], o.operands[0]);
          break;
        case Family::rearrange:  // each invocation walks lines, or elements as they come
          if (!ir::is_rearranged(o.code)) {
            where_used();
            break;
          }
          for (Value v : o.operands) demote(v);
          break;
        case Family::elementwise:
        case Family::source:
        case Family::move:
        case Family::grid:
        case Family::pipe:
        case Family::launch:
        case Family::ref:
        case Family::group:
        case Family::report: where_used();
      }
    }
  };
  // A demoted value is evaluated by a nest of its own now, over axes that it had before: nothing new can misfit, but
  // one walk may demote what an earlier op of the same walk relied on.
  do {
    changed = false;
    walk(k_.body);
  } while (changed);
}

// An arena value dies after the last op of its region that evaluates it, directly or through lazy values.
void Lowering::plan_lifetimes() {
  std::vector<ir::RegionId> region_of_op(k_.ops.size());
  for (uint32_t r = 0; r < k_.regions.size(); ++r)
    for (ir::OpId o : k_.regions[r].ops) region_of_op[o.index] = {r};

  // Values evaluated by an op, nested regions included.
  std::function<void(ir::OpId, std::set<uint32_t>&)> evaluated = [&](ir::OpId id, std::set<uint32_t>& out) {
    const ir::Op& o = k_.op(id);
    const bool stays_lazy = !o.results.empty() && !k_.type(o.results[0]).shape.empty() &&
                            kinds_[o.results[0].index] == Kind::lazy && o.regions.empty();
    std::set<uint32_t> seen;
    if (!stays_lazy)
      for (Value x : o.operands)
        each_home(k_, kinds_, x, seen, [&](Value v) {
          if (kinds_[v.index] == Kind::arena) out.insert(v.index);
        });
    for (ir::RegionId r : o.regions)
      for (ir::OpId inner : k_.region(r).ops) evaluated(inner, out);
  };
  std::function<void(ir::RegionId)> walk = [&](ir::RegionId r) {
    std::map<uint32_t, ir::OpId> last;
    for (ir::OpId id : k_.region(r).ops) {
      for (Value v : k_.op(id).results)
        if (!k_.type(v).is_ref && kinds_[v.index] == Kind::arena) last[v.index] = id;
      std::set<uint32_t> used;
      evaluated(id, used);
      for (uint32_t v : used) {
        const ir::OpId def = k_.values[v].def;
        if (def && region_of_op[def.index] == r) last[v] = id;
      }
      for (ir::RegionId inner : k_.op(id).regions) walk(inner);
    }
    for (const auto& [v, id] : last) dies_after_[id.index].push_back({v});
  };
  walk(k_.body);
}

void Lowering::region(ir::RegionId r) {
  for (ir::OpId id : k_.region(r).ops) {
    if (k_.op(id).code == Opcode::yield) return;  // the caller reads its operands; what dies there dies with the region
    op(id);
    free_dead_after(id);
  }
}

void Lowering::memory_op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  switch (ir::Memory(o.code)) {
    case ir::Memory::load: load_op(id); break;
    case ir::Memory::store:
    case ir::Memory::addupdate: store_op(o); break;
    case ir::Memory::swap:
      // The old contents first, then the store; the order is kept because the result is never lazy.
      load_op(id);
      store_op(o);
      break;
    case ir::Memory::atomic_rmw:
    case ir::Memory::atomic_cas: atomic_op(id); break;
  }
}

void Lowering::control_op(ir::OpId id) {
  switch (ir::Control(k_.op(id).code)) {
    case ir::Control::for_: for_op(id); break;
    case ir::Control::while_: while_op(id); break;
    case ir::Control::if_:
    case ir::Control::switch_: branch_op(id); break;
    case ir::Control::run_scoped: throw InternalError(k_.name + ": run_scoped after scopes", k_.op(id).loc);
  }
}

void Lowering::op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Loc outer = b_.raw().loc();
  b_.raw().set_loc(o.loc);
  const auto value = [&] {
    const Value v = o.results.at(0);
    if (kinds_[v.index] == Kind::scalar) scalar_op(id);
    else if (kinds_[v.index] != Kind::lazy) materialize(v);
  };
  switch (ir::family(o.code)) {
    case Family::memory: memory_op(id); break;
    case Family::print: print_op(o); break;
    case Family::control: control_op(id); break;
    case Family::reduce: reduce_op(id); break;
    case Family::argreduce: arg_reduce_op(id); break;
    case Family::scan: scan_op(id); break;
    case Family::contract: dot_op(id); break;
    case Family::rearrange:
      if (o.code == Opcode::scatter) scatter_op(id);
      else if (o.code == Opcode::sort) sort_op(id);
      else value();
      break;
    case Family::end: break;
    case Family::report: {
      ir::Op report{.code = Opcode::report};
      for (const Value v : o.operands) report.operands.push_back(scalar(v));
      report.set(ir::Attr::mask, o.attr(ir::Attr::mask));
      out_.lane.report_bytes = std::max<int64_t>(out_.lane.report_bytes, 4 * static_cast<int64_t>(o.operands.size()));
      b_.raw().append(std::move(report));
      break;
    }
    case Family::elementwise:
    case Family::source:
    case Family::move:
    case Family::grid: value(); break;
    // Of lane level, or taken away before (tile/scopes.cpp).
    case Family::pipe:
    case Family::launch:
    case Family::ref:
    case Family::group: throw InternalError(k_.name + ": " + std::string(name(o.code)) + " has no lowering", o.loc);
  }
  b_.raw().set_loc(outer);
}

Home Lowering::new_home(Value v) {
  Home h;
  h.kind = kinds_[v.index];
  if (h.kind == Kind::arena) h.slot = new_slot(k_.type(v).dtype, shape(v), axes_.of(v));
  return h;
}

// An index function that is kept, or in the general form: one nest over its elements, or one for each part of a
// concatenate that is kept.
void Lowering::materialize(Value v) {
  const ir::Op& o = *k_.def(v);
  Home h = new_home(v);
  const std::vector<int> axes = axes_.of(v);
  if (h.kind == Kind::registers) {
    order(arena_reads(o.operands), {});
    layout_nest(shape(v), axes, false, [&](const NestPoint& p) { h.regs.push_back(compute_element(v, o, p.c)); });
    home(v) = h;
    return;
  }
  order(arena_reads(o.operands), {h.slot.range});
  const auto fill = [&](const Shape& s, const std::vector<int>& dims, const std::vector<Value>& reads,
                        const std::function<std::pair<Coords, Value>(const Coords&)>& element_at) {
    const bool layout =
        std::any_of(reads.begin(), reads.end(), [&](Value x) { return !k_.type(x).is_ref && reads_registers(x); });
    nest(s, dims, layout, true, [&](const NestPoint& p) {
      const std::pair<Coords, Value> e = element_at(p.c);
      b_.when(p.valid, [&] { slot_store(h.slot, e.first, e.second); });
    });
  };
  const auto axis = o.code == Opcode::concatenate ? static_cast<size_t>(o.attr(Attr::axis)) : 0;
  // A slice of a split axis lies across parts.
  if (o.code != Opcode::concatenate || s_.general || (axes[axis] != kNoAxis && plan(axes[axis]).split))
    fill(shape(v), axes, o.operands, [&](const Coords& c) { return std::pair{c, compute_element(v, o, c)}; });
  else {
    int64_t begin = 0;
    for (Value part : o.operands) {
      fill(shape(part), axes_.of(part), {part}, [&](const Coords& c) {
        Coords to = c;
        to[axis] = {b_.add(c[axis].v, b_.i32(begin))};
        return std::pair{to, element(part, c)};
      });
      begin += shape(part)[axis];
    }
  }
  home(v) = h;
}

// Evaluates v into a home of the same kind (registers are replaced, an arena slot is overwritten).
void Lowering::evaluate_into(Value v, Home& to) {
  if (to.kind == Kind::scalar) {
    to.scalar = scalar(v);
    return;
  }
  if (to.kind == Kind::registers) {
    Values regs;
    order(arena_reads({v}), {});
    layout_nest(shape(v), axes_.of(v), false, [&](const NestPoint& p) { regs.push_back(element(v, p.c)); });
    to.regs = regs;
    return;
  }
  order(arena_reads({v}), {to.slot.range});
  nest(shape(v), axes_.of(v), reads_registers(v), true, [&](const NestPoint& p) {
    const Value e = element(v, p.c);
    b_.when(p.valid, [&] { slot_store(to.slot, p.c, e); });
  });
}

void Lowering::copy_slot(const Slot& from, const Slot& to) {
  order({from.range}, {to.range});
  const int64_t n = num_elements(from.shape);
  flat_nest({n}, {kNoAxis}, [&](const NestPoint& p) {
    const Value e = b_.load(from.ref, p.c[0].v);
    b_.when(p.valid, [&] { b_.store(to.ref, p.c[0].v, e); });
  });
}

std::vector<int> Lowering::written_residents(const std::vector<ir::RegionId>& regions) const {
  std::set<int> found;
  std::function<void(ir::RegionId)> walk = [&](ir::RegionId r) {
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (ir::writes_ref(o.code)) {
        const int ref = ref_position(k_, o.operands[0]);
        if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) found.insert(ref);
      }
      for (ir::RegionId inner : o.regions) walk(inner);
    }
  };
  for (ir::RegionId r : regions) walk(r);
  return {found.begin(), found.end()};
}

// What a loop or a branch hands on, as values: homes, and the Refs in registers that it writes.
Values Lowering::gather(const std::vector<Home>& homes, const std::vector<int>& residents) const {
  Values v;
  for (const Home& h : homes) {
    if (h.kind == Kind::scalar) v.push_back(h.scalar);
    if (h.kind == Kind::registers) v.insert(v.end(), h.regs.begin(), h.regs.end());
  }
  for (int r : residents)
    v.insert(v.end(), refs_[static_cast<size_t>(r)].regs.begin(), refs_[static_cast<size_t>(r)].regs.end());
  return v;
}
void Lowering::scatter(const Values& v, std::vector<Home>& homes, const std::vector<int>& residents) {
  auto next = v.begin();
  for (Home& h : homes) {
    if (h.kind == Kind::scalar) h.scalar = *next++;
    if (h.kind == Kind::registers)
      for (Value& x : h.regs) x = *next++;
  }
  for (int r : residents)
    for (Value& x : refs_[static_cast<size_t>(r)].regs) x = *next++;
}

void Lowering::free_dead_after(ir::OpId id) {
  if (const auto it = dies_after_.find(id.index); it != dies_after_.end())
    for (Value v : it->second) free_slot(home(v).slot);
}

// Derived only from what is the same for the whole group without communication: ids, constants, loop counters, scalars
// that were handed out.
bool Lowering::uniform_scalar(Value root) {
  std::set<uint32_t> seen;
  std::vector<Value> stack{root};
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (k_.type(v).is_ref || !seen.insert(v.index).second) continue;
    if (!k_.type(v).is_scalar()) return false;
    const ir::Op* o = k_.def(v);
    const uint32_t number = k_.value(v).number;
    if (!o) {
      // A loop's argument: its bounds or initial value, and what the body yields for it.
      const ir::RegionId r = k_.value(v).region;
      for (const ir::Op& loop : k_.ops) {
        if (std::find(loop.regions.begin(), loop.regions.end(), r) == loop.regions.end()) continue;
        const size_t first = loop.code == Opcode::for_ ? 3 : 0;
        if (loop.code == Opcode::for_ && number == 0) {
          stack.insert(stack.end(), {loop.operands[0], loop.operands[1], loop.operands[2]});
          continue;
        }
        const size_t i = loop.code == Opcode::for_ ? number - 1 : number;
        stack.push_back(loop.operands[first + i]);
        stack.push_back(k_.terminator(loop.regions.back()).operands[i]);
      }
      continue;
    }
    if (ir::is_control(o->code)) {
      const size_t first = o->code == Opcode::for_ ? 3 : 0;
      if (ir::is_loop(o->code)) {
        stack.push_back(o->operands[first + number]);
        stack.push_back(k_.terminator(o->regions.back()).operands[number]);
        continue;
      }
      stack.push_back(o->operands[0]);
      for (ir::RegionId r : o->regions) stack.push_back(k_.terminator(r).operands[number]);
      continue;
    }
    if (o->code == Opcode::load) {
      const int ref = ref_position(k_, o->operands[0]);
      if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) {
        // A scalar of scratch, of which each invocation has one: the same in all if what is stored is, since all store
        // it or none.
        if (ref < static_cast<int>(k_.blocks.size()) || !k_.type(o->operands[0]).shape.empty()) return false;
        for (const ir::Op& store : k_.ops) {
          if (store.operands.empty() || store.operands[0] != o->operands[0] || store.code == Opcode::load) continue;
          if (store.code != Opcode::store || store.has_mask()) return false;
          stack.push_back(store.operands[1]);
        }
        continue;
      }
    } else if (o->code == Opcode::swap || ir::is_atomic(o->code)) {
      return false;
    }
    for (Value x : o->operands)
      if (!k_.type(x).is_ref) stack.push_back(x);
  }
  return true;
}

Value Lowering::condition(Value v) {
  const Value lane = scalar(v);
  if (!uniform_group() || uniform_scalar(v)) return lane;
  return broadcast_from_first(k_.type(v).dtype, [&] { return lane; });
}

// In the three loops below all yields are evaluated before any carried slot is overwritten: they may read each other's
// old contents.
void Lowering::for_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  const ir::Region& body = k_.region(o.regions[0]);
  const Value lower = condition(o.operands[0]), upper = condition(o.operands[1]), step = condition(o.operands[2]);
  std::vector<Home> carried;
  for (size_t i = 0; i < o.results.size(); ++i) {
    carried.push_back(new_home(o.results[i]));
    evaluate_into(o.operands[3 + i], carried.back());
  }
  const std::vector<int> residents = written_residents(o.regions);
  const PendingAccesses before = pending_;
  const Values after = b_.for_loop(lower, upper, step, gather(carried, residents), [&](Value iv, const Values& v) {
    scatter(v, carried, residents);
    home(body.args[0]).scalar = iv;
    for (size_t i = 0; i < carried.size(); ++i) home(body.args[1 + i]) = carried[i];
    region(o.regions[0]);
    const std::vector<Value> yields = k_.terminator(o.regions[0]).operands;
    std::vector<Home> next;
    for (size_t i = 0; i < carried.size(); ++i) {
      if (yields[i] == body.args[1 + i]) {
        next.push_back(home(yields[i]));
        continue;
      }
      next.push_back(new_home(o.results[i]));
      evaluate_into(yields[i], next.back());
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      if (carried[i].kind == Kind::arena) {
        if (next[i].slot.offset != carried[i].slot.offset) {
          copy_slot(next[i].slot, carried[i].slot);
          free_slot(next[i].slot);
        }
      } else {
        carried[i] = next[i];
      }
    }
    free_dead_after(body.ops.back());
    loop_barrier();
    return gather(carried, residents);
  });
  pending_.merge(before);
  scatter(after, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) home(o.results[i]) = carried[i];
}

void Lowering::while_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  std::vector<Home> carried;
  for (size_t i = 0; i < o.results.size(); ++i) {
    carried.push_back(new_home(o.results[i]));
    evaluate_into(o.operands[i], carried.back());
  }
  const std::vector<int> residents = written_residents(o.regions);
  Values init = gather(carried, residents);
  std::vector<ir::Type> types;
  for (Value v : init) types.push_back(out_.type(v));
  ir::Builder& raw = b_.raw();
  const ir::RegionId outer = raw.region(), cond = raw.new_region(types), body = raw.new_region(types);
  const PendingAccesses before = pending_;

  raw.set_region(cond);
  b_.open();
  scatter(out_.region(cond).args, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) home(k_.region(o.regions[0]).args[i]) = carried[i];
  region(o.regions[0]);
  const Value test = condition(k_.terminator(o.regions[0]).operands[0]);
  free_dead_after(k_.region(o.regions[0]).ops.back());
  loop_barrier();
  raw.yield({test});
  b_.close();

  raw.set_region(body);
  b_.open();
  scatter(out_.region(body).args, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) home(k_.region(o.regions[1]).args[i]) = carried[i];
  region(o.regions[1]);
  const std::vector<Value> yields = k_.terminator(o.regions[1]).operands;
  std::vector<Home> next;
  for (size_t i = 0; i < carried.size(); ++i) {
    next.push_back(new_home(o.results[i]));
    evaluate_into(yields[i], next.back());
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    if (carried[i].kind == Kind::arena) {
      copy_slot(next[i].slot, carried[i].slot);
      free_slot(next[i].slot);
    } else carried[i] = next[i];
  }
  free_dead_after(k_.region(o.regions[1]).ops.back());
  loop_barrier();
  raw.yield(gather(carried, residents));
  b_.close();

  raw.set_region(outer);
  const Values after = out_.op(raw.append({.code = Opcode::while_, .operands = init, .regions = {cond, body}})).results;
  pending_.merge(before);
  scatter(after, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) home(o.results[i]) = carried[i];
}

void Lowering::branch_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  const Value choice = condition(o.operands[0]);
  std::vector<Home> results;
  for (Value v : o.results) results.push_back(new_home(v));
  const std::vector<int> residents = written_residents(o.regions);
  std::vector<Values> contents;
  for (int r : residents) contents.push_back(refs_[static_cast<size_t>(r)].regs);
  const PendingAccesses before = pending_;
  PendingAccesses after;
  ir::Builder& raw = b_.raw();
  const ir::RegionId outer = raw.region();
  ir::Op out{.code = o.code, .operands = {choice}};
  for (ir::RegionId branch : o.regions) {
    const ir::RegionId to = raw.new_region({});
    out.regions.push_back(to);
    raw.set_region(to);
    b_.open();
    pending_ = before;
    for (size_t i = 0; i < residents.size(); ++i) refs_[static_cast<size_t>(residents[i])].regs = contents[i];
    region(branch);
    const std::vector<Value> yields = k_.terminator(branch).operands;
    for (size_t i = 0; i < results.size(); ++i) evaluate_into(yields[i], results[i]);
    free_dead_after(k_.region(branch).ops.back());
    raw.yield(gather(results, residents));
    after.merge(pending_);
    b_.close();
  }
  raw.set_region(outer);
  const Values merged = out_.op(raw.append(std::move(out))).results;
  pending_ = after;
  scatter(merged, results, residents);
  for (size_t i = 0; i < results.size(); ++i) home(o.results[i]) = results[i];
}

}  // namespace tessera::lowering
