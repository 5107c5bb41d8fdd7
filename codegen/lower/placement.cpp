#include "codegen/lower/placement.h"

#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/keep.h"
#include "engine/base/function.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Family;
using ir::Opcode;

Placement::Placement(Emission& e)
    : Part(e), places_(k_.values.size()), used_(used_values(k_)), streams_(k_.values.size()) {}

void Placement::place() {
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
    // Where invocations share a workgroup, only the one that updates an element has its old value.
    if (o && ir::is_atomic(o->code) && uniform_group()) registers = false;
    kinds_[i] = registers ? Kind::registers : Kind::arena;
  }
  // Before stream_scans(): a prefetched load is in registers, which are made where the load stands. A scan before it
  // cannot do a store that reads them.
  prefetch_.choose();
  if (target_.kind == Target::Kind::gpu && !s_.general && uniform_group()) stream_scans(k_.body);
  spill();
  prefetch_.settle();
  sums_.choose();
}

void Placement::explain_kept(std::vector<std::string>& remarks) const {
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
  remarks.insert(remarks.end(), lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown));
  if (shown < lines.size())
    remarks.push_back("and " + std::to_string(lines.size() - shown) + " more values are kept likewise");
}

std::vector<MemoryRange> Placement::arena_reads(const std::vector<Value>& roots) {
  std::vector<MemoryRange> reads;
  std::set<uint32_t> seen;
  for (Value root : roots)
    each_placed(root, seen, [&](Value v) {
      const Slot* const slot = kinds_[v.index] == Kind::arena ? std::get_if<Slot>(&of(v)) : nullptr;
      if (slot && slot->offset >= 0) reads.push_back(slot->range);
    });
  if (k_.has_threads()) smem_reads(roots, reads);
  return reads;
}

// Memory that the threads of a program share is stored to, but what loads it late is an index function.
void Placement::smem_reads(const std::vector<Value>& roots, std::vector<MemoryRange>& reads) {
  std::set<uint32_t> seen;
  for (Value root : roots)
    ir::walk_back(k_, root, seen, [&](Value v, std::vector<Value>& next) {
      const ir::Op* o = k_.def(v);
      if (kinds_[v.index] != Kind::lazy || !o) return true;
      next.insert(next.end(), o->operands.begin(), o->operands.end());
      if (o->code != Opcode::load) return true;
      const RefState& r = refs_.state(ref_position(k_, o->operands[0]));
      if (r.tracked) reads.push_back(r.range);
      return true;
    });
}

// Single elements do not count: every invocation holds them, so any position may read them.
bool Placement::reads_registers(Value root) {
  bool found = false;
  std::set<uint32_t> seen;
  each_placed(root, seen, [&](Value v) { found = found || (kinds_[v.index] == Kind::registers && has_axes(v)); });
  return found;
}

bool Placement::has_axes(Value v) const {
  const std::vector<int> dims = axes_.of(v);
  return std::any_of(dims.begin(), dims.end(), [](int a) { return a != kNoAxis; });
}

std::set<uint32_t> Placement::computed_for(const std::vector<Value>& roots) const {
  std::set<uint32_t> seen;
  for (Value root : roots) each_placed(root, seen, [](Value) {});
  return seen;
}

bool Placement::registers_along(Value root, int axis) {
  if (axis == kNoAxis) return false;
  for (uint32_t v : computed_for({root})) {
    if (kinds_[v] != Kind::registers) continue;
    const std::vector<int> axes = axes_.of(Value{v});
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return true;
  }
  return false;
}

void Placement::take_back_spill(Value v) {
  kinds_[v.index] = Kind::lazy;
  --spills_;
}

Place Placement::make(Value v) {
  switch (kinds_[v.index]) {
    case Kind::lazy: break;
    case Kind::scalar: return Value{};
    case Kind::registers: return Registers{};
    case Kind::arena: return make_slot(v);
  }
  return {};
}

Slot Placement::make_slot(Value v) { return arena_.make(k_.type(v).dtype, shape(v), axes_.of(v)); }

// An index function that is kept, or in the general form: one nest over its elements, or one for each part of a
// concatenate that is kept.
void Placement::materialize(Value v) {
  const ir::Op& o = *k_.def(v);
  const std::vector<int> axes = axes_.of(v);
  if (kinds_[v.index] == Kind::registers) {
    Values regs;
    arena_.order(arena_reads(o.operands), {});
    nests_.by_layout(shape(v), axes, false, [&](const NestPoint& p) { regs.push_back(elements_.compute(v, o, p.c)); });
    of(v) = Registers{regs};
    return;
  }
  const Slot slot = make_slot(v);
  arena_.order(arena_reads(o.operands), {slot.range});
  const auto fill = [&](const Shape& s, const std::vector<int>& dims, const std::vector<Value>& reads,
                        FunctionRef<std::pair<Coords, Value>(const Coords&)> element_at) {
    const bool layout =
        std::any_of(reads.begin(), reads.end(), [&](Value x) { return !k_.type(x).is_ref && reads_registers(x); });
    nests_.each(s, dims, layout, true, [&](const NestPoint& p) {
      const std::pair<Coords, Value> e = element_at(p.c);
      b_.when(p.valid, [&] { arena_.store(slot, e.first, e.second); });
    });
  };
  const auto axis = o.code == Opcode::concatenate ? static_cast<size_t>(o.attr(Attr::axis)) : 0;
  // A slice of a split axis lies across parts.
  if (o.code != Opcode::concatenate || s_.general || (axes[axis] != kNoAxis && plan(axes[axis]).split))
    fill(shape(v), axes, o.operands, [&](const Coords& c) { return std::pair{c, elements_.compute(v, o, c)}; });
  else {
    int64_t begin = 0;
    for (Value part : o.operands) {
      fill(shape(part), axes_.of(part), {part}, [&](const Coords& c) {
        Coords to = c;
        to[axis] = {b_.add(c[axis].v, b_.i32(begin))};
        return std::pair{to, elements_.of(part, c)};
      });
      begin += shape(part)[axis];
    }
  }
  of(v) = slot;
}

// Evaluates v into a place of the same kind (registers are replaced, an arena slot is overwritten).
void Placement::evaluate_into(Value v, Place& to, const MatrixForm* as) {
  if (Value* scalar = std::get_if<Value>(&to)) {
    *scalar = elements_.scalar(v);
    return;
  }
  if (as) {
    to = Registers{{}, sums_.evaluate(v, *as)};
    return;
  }
  const size_t settled = sums_.settled();
  sums_.settle({v});
  if (Registers* held = std::get_if<Registers>(&to)) {
    Values regs;
    arena_.order(arena_reads({v}), {});
    nests_.by_layout(shape(v), axes_.of(v), false, [&](const NestPoint& p) { regs.push_back(elements_.of(v, p.c)); });
    held->regs = regs;
    sums_.forget(settled);
    return;
  }
  const Slot& slot = std::get<Slot>(to);
  arena_.order(arena_reads({v}), {slot.range});
  nests_.each(shape(v), axes_.of(v), reads_registers(v), true, [&](const NestPoint& p) {
    const Value e = elements_.of(v, p.c);
    b_.when(p.valid, [&] { arena_.store(slot, p.c, e); });
  });
  sums_.forget(settled);
}

void Placement::set_result(Value v, const std::vector<MemoryRange>& reads,
                           FunctionRef<void(FunctionRef<void(const NestPoint&, Value)>)> emit) {
  Place place = make(v);
  Value* const scalar = std::get_if<Value>(&place);
  Registers* const held = std::get_if<Registers>(&place);
  const Slot* const slot = std::get_if<Slot>(&place);
  if (slot) arena_.order(reads, {slot->range});
  else arena_.order(reads, {});
  emit([&](const NestPoint& p, Value x) {
    if (scalar) *scalar = x;
    else if (held) held->regs.push_back(x);
    else b_.when(p.valid, [&] { arena_.store(*slot, p.c, x); });
  });
  arena_.touched(reads, place);
  of(v) = place;
}

void Placement::set_sums(Value v, const std::vector<MemoryRange>& reads, FunctionRef<void(Values&)> emit) {
  Registers held;
  arena_.order(reads, {});
  emit(held.sums);
  arena_.touched(reads, held);
  of(v) = held;
}

std::vector<int> Placement::written_residents(const std::vector<ir::RegionId>& regions) const {
  std::set<int> found;
  for (ir::RegionId r : regions)
    ir::each_op(k_, r, [&](ir::OpId id) {
      const ir::Op& o = k_.op(id);
      if (!ir::writes_ref(o.code)) return;
      const int ref = ref_position(k_, o.operands[0]);
      if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) found.insert(ref);
    });
  return {found.begin(), found.end()};
}

// What a loop or a branch hands on, as values: places, and the Refs in registers that it writes.
Values Placement::pack_carried(const std::vector<Place>& places, const std::vector<int>& residents) const {
  Values v;
  const auto add = [&](const Registers& r) { v.insert(v.end(), r.held().begin(), r.held().end()); };
  for (const Place& place : places) {
    if (const Value* scalar = std::get_if<Value>(&place)) v.push_back(*scalar);
    if (const Registers* held = std::get_if<Registers>(&place)) add(*held);
  }
  for (int r : residents) add(refs_.state(r).registers());
  return v;
}

void Placement::unpack_carried(const Values& v, std::vector<Place>& places, const std::vector<int>& residents) {
  auto next = v.begin();
  const auto set = [&](Registers& r) {
    for (Value& x : r.held()) x = *next++;
  };
  for (Place& place : places) {
    if (Value* scalar = std::get_if<Value>(&place)) *scalar = *next++;
    if (Registers* held = std::get_if<Registers>(&place)) set(*held);
  }
  for (int r : residents) set(refs_.state(r).registers());
}

// An arena value dies after the last op of its region that evaluates it, directly or through lazy values.
void Placement::plan_lifetimes() {
  const std::vector<ir::RegionId> region_of_op = ir::regions_of_ops(k_);

  // Adds the values that an op evaluates, but for those inside of it.
  const auto evaluated = [&](ir::OpId id, std::set<uint32_t>& out) {
    const ir::Op& o = k_.op(id);
    const bool stays_lazy = !o.results.empty() && !k_.type(o.results[0]).shape.empty() &&
                            kinds_[o.results[0].index] == Kind::lazy && o.regions.empty();
    std::set<uint32_t> seen;
    if (!stays_lazy)
      for (Value x : o.operands)
        each_placed(x, seen, [&](Value v) {
          if (kinds_[v.index] == Kind::arena) out.insert(v.index);
        });
  };
  Function<void(ir::RegionId)> walk = [&](ir::RegionId r) {
    std::map<uint32_t, ir::OpId> last;
    for (ir::OpId id : k_.region(r).ops) {
      for (Value v : k_.op(id).results)
        if (!k_.type(v).is_ref && kinds_[v.index] == Kind::arena) last[v.index] = id;
      std::set<uint32_t> used;
      ir::each_op_from(k_, id, [&](ir::OpId inner) { evaluated(inner, used); });
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

void Placement::free_dead_after(ir::OpId id) {
  if (const auto it = dies_after_.find(id.index); it != dies_after_.end())
    for (Value v : it->second)
      if (Slot* slot = std::get_if<Slot>(&of(v))) arena_.free(*slot);
}

// Running sums along axes that do not fit into registers, whose elements go to one store: a strip of them lives in
// registers until it is stored, and only the sum so far outlives it.
void Placement::stream_scans(ir::RegionId r) {
  const std::vector<ir::OpId>& ops = k_.region(r).ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const ir::Op& o = k_.op(ops[i]);
    for (ir::RegionId inner : o.regions) stream_scans(inner);
    if (!ir::is_scan(o.code) || kinds_[o.results[0].index] != Kind::arena) continue;
    const Value v = o.results[0];
    if (shape(v)[static_cast<size_t>(o.attr(Attr::axis))] == 1) continue;  // a copy, which has no strips
    const std::vector<int> axes = axes_.of(v);
    const bool laid_out = std::all_of(axes.begin(), axes.end(), [&](int a) {
      return a == kNoAxis || (plan(a).laid_out && !axes_.axes[static_cast<size_t>(a)].mixed);
    });
    if (!laid_out || !nests_.fits(axes) || num_elements(shape(v)) == 0) continue;
    const ir::OpId store = streamed_store(r, i);
    if (!store || early_.count(store.index)) continue;
    kinds_[v.index] = Kind::registers;
    streams_[v.index] = store;
    early_.insert(store.index);
  }
}

// Where the store's nest would be written out once anyway, in full (RefWindows::inside_and_at_edge).
const ir::Op* Placement::stream_product(ir::OpId dot) {
  const Value v = k_.op(dot).results[0];
  if (kinds_[v.index] != Kind::registers) return nullptr;
  for (uint32_t r = 0; r < k_.regions.size(); ++r) {
    const std::vector<ir::OpId>& ops = k_.regions[r].ops;
    const auto at = std::find(ops.begin(), ops.end(), dot);
    if (at == ops.end()) continue;
    const ir::OpId store = streamed_store({r}, static_cast<size_t>(at - ops.begin()));
    if (!store || early_.count(store.index)) return nullptr;
    const std::set<uint32_t> made = computed_for({k_.op(store).operands[1]});
    if (!RefWindows::written_once(s_.registers(axes_.of(v)) * static_cast<int64_t>(made.size()))) return nullptr;
    early_.insert(store.index);
    return &k_.op(store);
  }
  return nullptr;
}

// The store may be done where the sum stands: nothing between them touches memory, and all that it reads is there.
ir::OpId Placement::streamed_store(ir::RegionId r, size_t scan) const {
  const std::vector<ir::OpId>& ops = k_.region(r).ops;
  const Value v = k_.op(ops[scan]).results[0];
  std::set<uint32_t> between;  // made there, with a place
  for (size_t i = scan + 1; i < ops.size(); ++i) {
    const ir::Op& o = k_.op(ops[i]);
    if (o.code == Opcode::store) {
      const Value stored = o.operands[1];
      const ir::AccessDims form = ir::access_dims(k_, o);
      if (form.arrays || axes_.of(stored) != axes_.of(v) || shape(stored) != shape(v) ||
          s_.residency[static_cast<size_t>(ref_position(k_, o.operands[0]))] == Residency::registers ||
          !used_only_by(v, r, ops[i]))
        return {};
      // Strip by strip the sum would read what it has stored.
      for (uint32_t x : computed_for({k_.op(ops[scan]).operands[0]}))
        if (const ir::Op* load = k_.def({x}); load && load->code == Opcode::load && load->operands[0] == o.operands[0])
          return {};
      std::vector<Value> roots(o.operands.begin() + 1, o.operands.end());
      for (uint32_t x : computed_for(roots))
        if (between.count(x)) return {};
      return ops[i];
    }
    if (!o.regions.empty() || o.results.size() != 1) return {};
    const Kind kind = kinds_[o.results[0].index];
    const bool pure = ir::is_index_function(o.code) || (o.code == Opcode::load && kind == Kind::lazy);
    if (!pure || kind == Kind::arena || kind == Kind::registers) return {};
    if (kind == Kind::scalar) between.insert(o.results[0].index);
  }
  return {};
}

bool Placement::used_only_by(Value v, ir::RegionId r, ir::OpId store) const {
  std::set<uint32_t> made_of{v.index};
  const auto& ops = k_.region(r).ops;
  return !ir::any_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& o = k_.op(id);
    const bool uses =
        std::any_of(o.operands.begin(), o.operands.end(), [&](Value x) { return made_of.count(x.index); });
    if (!uses || id == store) return false;
    const bool lazy = o.results.size() == 1 && kinds_[o.results[0].index] == Kind::lazy &&
                      std::find(ops.begin(), ops.end(), id) != ops.end();
    if (lazy) made_of.insert(o.results[0].index);
    return !lazy;
  });
}

// -- values that cannot stay in registers

// Carried values change place together: what a loop yields is what its region receives and what it results in. Per
// value the next of its group, round and round.
std::vector<Value> Placement::carried_together() const {
  std::vector<Value> next_in_group(k_.values.size());
  for (uint32_t i = 0; i < next_in_group.size(); ++i) next_in_group[i] = {i};
  auto tie = [&](Value a, Value b) { std::swap(next_in_group[a.index], next_in_group[b.index]); };
  for (const ir::Op& o : k_.ops)
    for (size_t i = 0; i < o.results.size() && ir::is_loop(o.code); ++i)
      for (ir::RegionId r : o.regions) tie(o.results[i], k_.region(r).args[ir::first_carried(o) + i]);
  return next_in_group;
}

// A value in registers can be read by a nest over axes that have a common layout. Each axis got its layout where it
// mattered most, so a lighter nest may find two of its axes on the same invocations: the values that it reads then live
// in the arena instead. Packed programs have no arena and no need of this: one invocation holds everything.
void Placement::spill() {
  if (s_.general || !uniform_group()) return;
  next_carried_ = carried_together();
  // A spilled value is evaluated by a nest of its own now, over axes that it had before: nothing new can need it, but
  // one walk may spill what an earlier op of the same walk relied on.
  while (spill_in(k_.body)) {
  }
}

bool Placement::spill_in(ir::RegionId region) {
  bool changed = false;
  for (ir::OpId id : k_.region(region).ops) {
    for (ir::RegionId inner : k_.op(id).regions) changed |= spill_in(inner);
    changed |= spill_for(k_.op(id));
  }
  return changed;
}

// What computing root reads in registers goes to the arena, with what is carried together with it.
bool Placement::to_arena(Value root) {
  std::set<uint32_t> seen;
  std::vector<Value> found;
  each_placed(root, seen, [&](Value v) {
    if (kinds_[v.index] == Kind::registers && has_axes(v)) found.push_back(v);
  });
  for (Value v : found)
    for (Value x = v;;) {
      kinds_[x.index] = Kind::arena;
      ++spills_;
      x = next_carried_[x.index];
      if (x == v) break;
    }
  return !found.empty();
}

// Of what the nests of this op read. True if anything was spilled.
bool Placement::spill_for(const ir::Op& o) {
  bool changed = false;
  // A nest over the dims of `root` (and what has the same dims) reads v.
  const auto read = [&](Value root, Value v) {
    if (!nests_.fits(axes_.of(root))) changed |= to_arena(v);
  };
  const auto where_used = [&] {  // index functions are evaluated there, unless they are kept
    if (o.results.size() != 1 || k_.type(o.results[0]).shape.empty() || kinds_[o.results[0].index] == Kind::lazy)
      return;
    for (Value v : o.operands) {
      read(o.results[0], v);
      // each part has a nest of its own
      if (o.code == Opcode::concatenate && kinds_[o.results[0].index] == Kind::arena) read(v, v);
    }
  };
  switch (ir::family(o.code)) {
    case Family::memory:
      for (Value v : refs_.values_read(o)) {
        // an invocation walks all elements of the arrays
        if (must_scatter_in_order(k_, o) && !in_any_order(k_, o, used_)) changed |= to_arena(v);
        else read(o.code == Opcode::load ? o.results[0] : o.operands[1], v);
      }
      break;
    case Family::contract:  // stages the operand that it cannot read in place, by a nest over that operand
    case Family::reduce:
    case Family::argreduce:
    case Family::print:
    case Family::end:  // into the place of a result or a carried value
    case Family::control:
      for (Value v : o.operands) read(v, v);
      break;
    case Family::scan:  // by layout, or each invocation walks a line
      if (shape(o.results[0])[static_cast<size_t>(o.attr(Attr::axis))] == 1 ||
          s_.enumerable(axes_, axes_.of(o.results[0])))
        read(o.operands[0], o.operands[0]);
      else changed |= to_arena(o.operands[0]);
      break;
    case Family::rearrange:  // each invocation walks lines, or elements as they come
      if (!ir::is_rearranged(o.code)) where_used();
      else
        for (Value v : o.operands) changed |= to_arena(v);
      break;
    case Family::elementwise:
    case Family::source:
    case Family::move:
    case Family::grid:
    case Family::async:
    case Family::thread:
    case Family::launch:
    case Family::ref:
    case Family::group:
    case Family::packed:
    case Family::matrix:
    case Family::report: where_used();
  }
  return changed;
}

}  // namespace tessera::lowering
