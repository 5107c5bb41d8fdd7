// Grid to workgroups: one unit of work is one coordinate of the parallel grid axes and one tile of each split axis. The
// other grid axes are loops inside it. Blocks are windows into arrays, placed as soon as the loops that their index map
// needs are open.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"

namespace tessera::lowering {
using ir::Opcode;

void UnitEmitter::run() {
  set_up_kernel();
  placement_.place();
  placement_.plan_lifetimes();
  emit_units();
  b_.raw().yield({});
  b_.finish();
  keep_sizes();
  out_.lane.shared_bytes = s_.scratch_arena ? 0 : arena_.peak();
  out_.lane.scratch_bytes = s_.scratch_arena ? arena_.peak() : 0;
  // Enough workgroups to keep the device busy, and as many as a modest arena allows: each then loops over fewer units.
  constexpr int64_t kArenaBytes = int64_t{64} << 20;
  if (out_.lane.scratch_bytes > 0)
    out_.lane.max_workgroups =
        std::max(int64_t{std::max(target_.compute_units, 1)} * (target_.kind == Target::Kind::cpu ? 2 : 8),
                 std::min<int64_t>(kArenaBytes / out_.lane.scratch_bytes, 4096));
}

// The threads of a program are workgroups of their own, which run at once.
bool UnitEmitter::is_thread_axis(int a) const {
  return k_.grid[static_cast<size_t>(a)].role == ir::GridAxis::Role::thread;
}

void UnitEmitter::set_up_kernel() {
  for (const int a : s_.sequential)
    if (k_.has_threads() && k_.grid[static_cast<size_t>(a)].size.value() != 1)
      throw CompileError(k_.name + ": its threads run at once, but axis " + std::to_string(a) + " of its grid is " +
                             parallel_.axes[static_cast<size_t>(a)].why,
                         k_.loc, "the interpreter runs the kernel: ts::interpret, or --device interpreter");
  out_.name = k_.name;
  out_.loc = k_.loc;
  out_.level = ir::Level::lane;
  out_.num_inputs = k_.num_inputs;
  out_.num_prefetch = k_.num_prefetch;
  std::vector<ir::Type> args;
  for (const ir::BlockMapping& m : k_.blocks) {
    args.push_back(ir::Type::ref(m.dtype, {-1}, ir::MemorySpace::global));
    out_.blocks.push_back(m);
    if (!m.is_whole()) out_.blocks.back().what = ir::BlockMapping::Whole{};
  }
  out_.body = b_.raw().new_region(args);
  b_.raw().set_region(out_.body);
  b_.raw().set_loc(k_.loc);
  out_.lane.workgroup_size = s_.workgroup;
  out_.lane.subgroup_size = s_.shuffles ? s_.subgroup : 0;
  if (!k_.has_threads()) return;
  out_.lane.threads = static_cast<int32_t>(*k_.grid.back().size.value());
  out_.lane.program_bytes = e_.memory.bytes;
  out_.lane.barriers = e_.memory.arrivals;
}

// How many units of work there are, as an expression of the sizes that arrive with the call.
Extent UnitEmitter::count_units() const {
  Extent units = 1;
  constexpr int64_t kMostUnits = int64_t{1} << 30;  // so that the surplus of a folded dispatch has numbers, too
  const auto times = [&](const Extent& n) {
    const auto x = units.value(), y = n.value();
    int64_t both = 0;
    if (x && y && (__builtin_mul_overflow(*x, *y, &both) || both > kMostUnits))
      throw CompileError(k_.name + ": " + std::to_string(*x) + " times " + std::to_string(*y) +
                             " units of work run at once, but at most 1073741824 are numbered, in 32 bits",
                         k_.loc, "use larger blocks");
    units = units * n;
  };
  for (int a : s_.parallel)
    if (!is_thread_axis(a)) times(k_.grid[static_cast<size_t>(a)].size);
  for (int a : s_.split_axes) times(Extent(cdiv(axes_.axes[static_cast<size_t>(a)].extent, plan(a).tile)));
  return units;
}

// Which programs and tiles a unit is, in mixed radix, the last component fastest: grid axes in order, then tiles.
void UnitEmitter::place_unit(Value unit) {
  struct Component {
    Value size;
    Function<void(Value)> set;
  };
  std::vector<Component> components;
  for (int a : s_.parallel) {
    if (is_thread_axis(a)) {
      pid_[static_cast<size_t>(a)] = b_.leaf(Opcode::thread_index);
      continue;
    }
    components.push_back({grid_size(static_cast<size_t>(a)), [this, a](Value v) { pid_[static_cast<size_t>(a)] = v; }});
  }
  for (int a : s_.split_axes)
    components.push_back({b_.i32(cdiv(axes_.axes[static_cast<size_t>(a)].extent, plan(a).tile)),
                          [this, a](Value v) { nests_.set_tile_base(a, b_.mul(v, b_.i32(plan(a).tile))); }});
  for (size_t i = components.size(); i-- > 0;) {
    if (b_.known(components[i].size) == 1) {
      components[i].set(b_.i32(0));
      continue;
    }
    bool more = false;
    for (size_t j = 0; j < i; ++j) more = more || b_.known(components[j].size) != 1;
    const Value mine = more ? b_.rem(unit, components[i].size) : unit;
    b_.between(mine, b_.i32(0), components[i].size);
    components[i].set(mine);
    if (more) unit = b_.div(unit, components[i].size);
  }
}

// Sizes that only ops read, which passes may have folded: calls still give them, on every device.
void UnitEmitter::keep_sizes() {
  std::vector<std::string> shown, read;
  for (const ir::BlockMapping& b : k_.blocks)
    for (const Extent& e : b.array_shape) e.collect_names(shown);
  for (const ir::GridAxis& g : k_.grid) g.size.collect_names(shown);
  for (const Extent& e : out_.lane.extents) e.collect_names(shown);
  for (const Extent& e : k_.sizes) e.collect_names(read);
  for (const std::string& name : read) {
    if (std::find(shown.begin(), shown.end(), name) != shown.end()) continue;
    out_.lane.extents.push_back(dim(name));
    out_.lane.extent_is_64.push_back(false);
  }
}

void UnitEmitter::emit_units() {
  const Extent units = count_units();
  out_.lane.num_units = s_.group == 1 ? cdiv(units, Extent(s_.workgroup)) : units;
  const Value local = b_.leaf(Opcode::local_index);
  invocation_ = s_.group == 1 ? b_.i32(0) : local;
  nests_.prepare();
  if (s_.shuffles) lane_ = b_.leaf(Opcode::lane_id);

  // A loop over units gets an end of its own, which a launch may lower (Program::units_extent).
  const Value total = s_.scratch_arena ? pushed_extent(units, DType::i32) : extent_value(units, DType::i32);
  const auto body = [&](Value unit) {
    // Behind the first invocation's work on the barriers; and behind the program before, where one follows another.
    if (k_.has_threads()) arena_.meet(0, s_.scratch_arena ? static_cast<int64_t>(e_.memory.arrivals.size()) : 0);
    place_unit(unit);
    emit_sequential(0);
  };
  // A dispatch has surplus workgroups only where their number had to be folded, and surplus invocations only where
  // programs are packed.
  const auto known_groups = out_.lane.num_units.value(), known_units = units.value();
  const bool exact = known_groups && *known_groups <= target_.max_workgroup_count && !s_.scratch_arena;
  out_.lane.exact = exact;
  const Value group = b_.leaf(Opcode::workgroup_index);
  // Whether the dispatch is capped depends on the arena, which is known only afterwards; a scratch arena always is.
  if (s_.scratch_arena) {
    b_.for_loop(group, total, b_.leaf(Opcode::num_workgroups), {}, [&](Value u, const Values&) {
      body(u);
      arena_.loop_barrier();
      return Values{};
    });
  } else if (s_.group == 1) {
    const Value unit = b_.add(b_.mul(group, b_.i32(s_.workgroup)), local);
    if (exact && *known_units % s_.workgroup == 0) body(unit);
    else {
      // Of a number that arrives with the call, up to 2^31 - 1: surplus invocations may wrap.
      const Value below = b_.lt(unit, total);
      b_.when(b_.both(known_units ? Value{} : b_.ge_zero(unit), below), [&] { body(unit); });
    }
  } else {
    if (exact) body(group);
    else b_.when(b_.lt(group, total), [&] { body(group); });
  }
}

void UnitEmitter::emit_sequential(size_t depth) {
  refs_.enter(depth);
  if (depth == s_.sequential.size()) control_.region(k_.body);
  else {
    const auto axis = static_cast<size_t>(s_.sequential[depth]);
    emit_steps(axis, depth, grid_size(axis));  // of several programs, or none: an axis of one is parallel
  }
  refs_.leave(depth);
}

void UnitEmitter::emit_steps(size_t axis, size_t depth, Value n) {
  std::vector<int> carried;
  for (int r = 0; r < refs_.count(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (s_.residency[i] == Residency::registers && s_.scope[i] <= static_cast<int>(depth) && refs_.written(r))
      carried.push_back(r);
  }
  const bool prefetches = prefetch_.axis() == static_cast<int>(axis);
  const auto contents = [&] {
    Values v;
    for (int r : carried) {
      const Values& held = refs_.state(r).registers().held();
      v.insert(v.end(), held.begin(), held.end());
    }
    return v;
  };
  const auto set = [&](const Values& v) {
    size_t at = 0;
    for (int r : carried)
      for (Value& x : refs_.state(r).registers().held()) x = v[at++];
  };
  Values init = contents();
  if (prefetches) prefetch_.append_initial(init);
  const PendingAccesses before = arena_.pending();
  const Value one = b_.i32(1);
  const Values after = b_.for_loop(b_.i32(0), n, one, init, [&](Value i, const Values& v) {
    pid_[axis] = i;
    set(v);
    if (prefetches) prefetch_.set_carried(v);
    emit_sequential(depth + 1);
    arena_.loop_barrier();
    Values next = contents();
    if (prefetches) prefetch_.append_carried(next);
    return next;
  });
  arena_.pending() = before;
  set(after);
}

}  // namespace tessera::lowering
