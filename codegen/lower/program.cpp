// Grid to workgroups: one unit of work is one coordinate of the parallel grid axes and one tile of each split axis. The
// other grid axes are loops inside it. Blocks are windows into arrays, placed as soon as the loops that their index map
// needs are open.
#include <algorithm>
#include <numeric>

#include "codegen/lower/lowering.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

Lowering::Lowering(const ir::Kernel& k, const Target& target, Plan& plan, ir::Kernel& out)
    : k_(k),
      target_(target),
      axes_(*plan.axes),
      s_(plan.schedule),
      parallel_(plan.parallel),
      scalars_(plan.scalars),
      out_(out),
      b_(out) {}

void Lowering::run() {
  setup_kernel();
  plan_homes();
  plan_lifetimes();
  emit_units();
  b_.raw().yield({});
  b_.finish();
  out_.lane.shared_bytes = s_.scratch_arena ? 0 : arena_.peak();
  out_.lane.scratch_bytes = s_.scratch_arena ? arena_.peak() : 0;
  // Enough workgroups to keep the device busy, and as many as a modest arena allows: each then loops over fewer units.
  constexpr int64_t kArenaBytes = int64_t{64} << 20;
  if (out_.lane.scratch_bytes > 0)
    out_.lane.max_workgroups =
        std::max(int64_t{std::max(target_.compute_units, 1)} * (target_.kind == Target::Kind::cpu ? 2 : 8),
                 std::min<int64_t>(kArenaBytes / out_.lane.scratch_bytes, 4096));
}

void Lowering::setup_kernel() {
  out_.name = k_.name;
  out_.loc = k_.loc;
  out_.level = ir::Level::lane;
  out_.num_inputs = k_.num_inputs;
  out_.num_prefetch = k_.num_prefetch;
  std::vector<ir::Type> args;
  for (const ir::BlockMapping& m : k_.blocks) {
    args.push_back(ir::Type::ref(m.dtype, {-1}, ir::MemorySpace::global));
    ir::BlockMapping whole = m;
    whole.whole = true;
    whole.block.clear();
    whole.index_map = {};
    out_.blocks.push_back(std::move(whole));
  }
  out_.body = b_.raw().new_region(args);
  b_.raw().set_region(out_.body);
  b_.raw().set_loc(k_.loc);
  out_.lane.workgroup_size = s_.workgroup;
  out_.lane.subgroup_size = s_.shuffles ? s_.subgroup : 0;
  homes_.resize(k_.values.size());
  refs_.resize(k_.region(k_.body).args.size());
  pid_.resize(k_.grid.size());
  tile_base_.resize(axes_.size());
  written_ = stored_memory(k_);
  used_ = used_values(k_);
  std::vector<int> accesses(refs_.size(), 0);
  std::vector<bool> fixed(refs_.size(), true);
  for (const ir::Op& o : k_.ops) {
    if (!ir::accesses_ref(o.code)) continue;
    const auto r = static_cast<size_t>(memory_of(k_, ref_position(k_, o.operands[0])));
    accesses[r] += o.code == Opcode::swap ? 2 : 1;
    for (const ir::Index& ix : o.index) fixed[r] = fixed[r] && ix.is_static();
  }
  // One store at fixed positions is all that touches the block: an element of the array always belongs to the same
  // invocation, whichever iteration stores it, because blocks coincide or are disjoint (element and bounded ones may
  // overlap). Nothing needs ordering. Nor do updates that commute, if nothing else touches the array. A swap hands out
  // what it found, to invocations that store nothing as well.
  owned_.assign(refs_.size(), false);
  for (size_t r = static_cast<size_t>(k_.num_inputs); r < k_.blocks.size(); ++r) {
    const bool once =
        written_[r] && accesses[r] == 1 && fixed[r] && !k_.blocks[r].whole && !may_overlap(k_, static_cast<int>(r));
    owned_[r] = once || parallel_.commuting[r];
  }
}

Value Lowering::extent_value(const Extent& e, DType t) {
  if (const auto v = e.value()) return t == DType::i64 ? b_.i64(*v) : b_.i32(*v);
  Value& v = extents_[{to_string(e), t}];
  if (!v) v = pushed_extent(e, t);
  return v;
}

Value Lowering::pushed_extent(const Extent& e, DType t) {
  ir::Op o{.code = Opcode::extent};
  o.set(Attr::index, static_cast<int64_t>(out_.lane.extents.size()));
  out_.lane.extents.push_back(e);
  out_.lane.extent_is_64.push_back(t == DType::i64);
  const ir::RegionId at = b_.raw().region();
  b_.raw().set_region(b_.prologue());
  const Value v = b_.raw().one(std::move(o), ir::Type::array(t));
  b_.raw().set_region(at);
  return v;
}

// e - minus, or INT32_MAX where that is less: the padding of an element dim may bring it beyond 32 bits.
Value Lowering::within_i32(const Extent& e, const ir::BlockDim& dim, Value minus) {
  const auto n = e.value(), m = b_.known(minus);
  if (n && m) return b_.i32(std::min<int64_t>(*n - *m, INT32_MAX));
  if (n ? *n <= INT32_MAX - dim.low : dim.low + dim.high == 0) return b_.sub(extent_value(e, DType::i32), minus);
  const Value most = b_.i64(INT32_MAX), wide = b_.convert(minus, DType::i64);
  return b_.convert(b_.min(b_.sub(extent_value(e, DType::i64), wide), most), DType::i32);
}

void Lowering::emit_units() {
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
  for (int a : s_.parallel) times(k_.grid[static_cast<size_t>(a)].size);
  for (int a : s_.split_axes) times(Extent(cdiv(axes_.axes[static_cast<size_t>(a)].extent, plan(a).tile)));
  out_.lane.num_units = s_.group == 1 ? cdiv(units, Extent(s_.workgroup)) : units;

  const Value local = b_.leaf(Opcode::local_index);
  thread_ = s_.group == 1 ? b_.i32(0) : local;
  for (const AxisPlan& p : s_.plans) {
    if (p.tcount == 1) continue;
    Value& v = thread_coords_[{p.tstride, p.tcount}];
    if (v) continue;
    v = b_.div(thread_, p.tstride);
    if (p.tstride * p.tcount < s_.group) v = b_.rem(v, p.tcount);
  }
  if (s_.shuffles) lane_ = b_.leaf(Opcode::lane_id);

  // A loop over units gets an end of its own, which a launch may lower (Program::units_extent).
  const Value total = s_.scratch_arena ? pushed_extent(units, DType::i32) : extent_value(units, DType::i32);
  auto body = [&](Value unit) {
    // Mixed radix, the last component fastest: grid axes in order, then tiles.
    struct Part {
      Value size;
      std::function<void(Value)> set;
    };
    std::vector<Part> parts;
    for (int a : s_.parallel)
      parts.push_back({grid_size(static_cast<size_t>(a)), [this, a](Value v) { pid_[static_cast<size_t>(a)] = v; }});
    for (int a : s_.split_axes)
      parts.push_back({b_.i32(cdiv(axes_.axes[static_cast<size_t>(a)].extent, plan(a).tile)),
                       [this, a](Value v) { tile_base_[static_cast<size_t>(a)] = b_.mul(v, b_.i32(plan(a).tile)); }});
    for (size_t i = parts.size(); i-- > 0;) {
      if (b_.known(parts[i].size) == 1) {
        parts[i].set(b_.i32(0));
        continue;
      }
      bool more = false;
      for (size_t j = 0; j < i; ++j) more = more || b_.known(parts[j].size) != 1;
      const Value mine = more ? b_.rem(unit, parts[i].size) : unit;
      b_.between(mine, b_.i32(0), parts[i].size);
      parts[i].set(mine);
      if (more) unit = b_.div(unit, parts[i].size);
    }
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
      loop_barrier();
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

void Lowering::emit_sequential(size_t depth) {
  enter_refs(depth);
  if (depth == s_.sequential.size()) region(k_.body);
  else {
    const auto axis = static_cast<size_t>(s_.sequential[depth]);
    const Value n = grid_size(axis);
    if (b_.known(n) == 1) {
      pid_[axis] = b_.i32(0);
      emit_sequential(depth + 1);
    } else {
      std::vector<int> carried;
      Values init;
      for (size_t r = 0; r < refs_.size(); ++r)
        if (s_.residency[r] == Residency::registers && s_.scope[r] <= static_cast<int>(depth) && written_[r]) {
          carried.push_back(static_cast<int>(r));
          init.insert(init.end(), refs_[r].regs.begin(), refs_[r].regs.end());
        }
      const bool loads_ahead = ahead_axis_ == static_cast<int>(axis);
      for (const Ahead& a : ahead_)
        if (loads_ahead) init.insert(init.end(), static_cast<size_t>(a.count), b_.zero(a.dtype));
      auto set = [&](const Values& v) {
        size_t at = 0;
        for (int r : carried)
          for (Value& x : refs_[static_cast<size_t>(r)].regs) x = v[at++];
      };
      const PendingAccesses before = pending_;
      const Value one = b_.i32(1);
      const Values after = b_.for_loop(b_.i32(0), n, one, init, [&](Value i, const Values& v) {
        pid_[axis] = i;
        set(v);
        auto from = v.end();
        for (auto a = ahead_.rbegin(); a != ahead_.rend() && loads_ahead; ++a) {
          a->regs.assign(from - a->count, from);
          from -= a->count;
        }
        emit_sequential(depth + 1);
        loop_barrier();
        Values next;
        for (int r : carried)
          next.insert(next.end(), refs_[static_cast<size_t>(r)].regs.begin(), refs_[static_cast<size_t>(r)].regs.end());
        for (const Ahead& a : ahead_)
          if (loads_ahead) next.insert(next.end(), a.regs.begin(), a.regs.end());
        return next;
      });
      pending_ = before;
      set(after);
    }
  }
  leave_refs(depth);
}

void Lowering::index_map(int i, Values& starts) {
  const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(i)];
  const ir::Region& map = k_.region(m.index_map);
  for (size_t a = 0; a < k_.grid.size(); ++a) home(map.args[a]).scalar = pid_[a] ? pid_[a] : b_.i32(0);
  for (ir::OpId id : map.ops)
    if (k_.op(id).code != Opcode::yield) scalar_op(id);
  for (Value v : k_.terminator(m.index_map).operands) starts.push_back(scalar(v));
}

void Lowering::enter_window(int i) {
  const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(i)];
  RefState& r = refs_[static_cast<size_t>(i)];
  const Value arg = k_.region(k_.body).args[static_cast<size_t>(i)];
  r = RefState{};
  r.dtype = m.dtype;
  r.shape = k_.type(arg).shape;
  const int memory = memory_of(k_, i);
  r.range = {memory, 0, INT64_MAX};
  r.tracked = written_[static_cast<size_t>(i)];
  r.owned = owned_[static_cast<size_t>(i)];
  const Value base = out_.region(out_.body).args[static_cast<size_t>(memory)];
  const size_t rank = m.array_shape.size();
  // A grid axis that is empty with the array shows that no program runs without elements.
  const auto counts = [&](const Extent& e) {
    if (!e.as_name()) return false;
    return std::any_of(k_.grid.begin(), k_.grid.end(), [&](const ir::GridAxis& axis) {
      std::vector<std::string> names;
      axis.size.collect_names(names);
      if (names != std::vector{*e.as_name()}) return false;
      try {
        return axis.size.eval({{names[0], 0}}) <= 0;
      } catch (const SpecError&) {  // divides by it
        return false;
      }
    });
  };
  for (const Extent& e : m.array_shape) {
    if (e == Extent(0)) r.dead = true;
    if (!e.is_static() && !counts(e)) r.may_be_empty = true;
  }
  // Row-major strides; run-time ones are products of extents that the host evaluates.
  std::vector<Extent> stride(rank, 1);
  for (size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * m.array_shape[d];
  if (m.whole) {
    r.ref = base;
    for (size_t d = 0; d < rank; ++d) {
      r.stride.push_back(*stride[d].value());
      r.wide_stride.emplace_back();
      r.limit.emplace_back();
      r.below.emplace_back();
      r.origin.emplace_back();
      r.extent.emplace_back();
      r.limit_divisor.push_back(1);
    }
  } else {
    const std::vector<BlockStart> known = block_starts(k_, i, scalars_);
    Values starts;
    index_map(i, starts);
    Value offset = b_.i64(0);
    for (size_t d = 0; d < rank; ++d) {
      const ir::BlockDim& dim = m.block[d];
      const bool bounded = dim.kind == ir::BlockDim::Kind::bounded;
      Value s = starts[k_.map_result(i, d)];
      if (!known[d].in_range) {
        const Value zero = b_.i32(0), most = within_i32(ir::last_index(dim, m.array_shape[d]), dim, zero);
        if (dim.wrap() && scalars_.range(known[d].form).lo < 0) {
          const Value from_end = b_.add(b_.min(b_.add(s, b_.i32(dim.wrap())), zero), most);
          s = b_.select(b_.lt(s, zero), from_end, s);
        }
        s = b_.max(b_.min(s, most), zero);  // of an empty array: 0
      }
      // Where blocks start is formed in 32 bits.
      const auto last = ir::last_index(dim, m.array_shape[d]).value();
      if (last &&
          __int128{std::clamp<int64_t>(scalars_.range(known[d].form).hi, 0, std::max<int64_t>(*last, 0))} * dim.unit() >
              INT32_MAX)
        throw CompileError(k_.name + ": " + m.origin + ": dim " + std::to_string(d) + " of its array has " +
                               to_string(m.array_shape[d]) +
                               " elements, but at most 2147483647 are numbered, in 32 bits",
                           m.loc, "give the array more dims, of fewer elements each");
      s = b_.mul(s, b_.i32(dim.unit()));
      // from here on it may be negative: the window then begins before the array
      if (dim.low) s = b_.add(s, b_.i32(-dim.low));
      const auto n = stride[d].value();
      // A 64-bit base per block; products that stay below 2^31 are formed in 32 bits first.
      const auto extent = m.array_shape[d].value();
      // whatever the text says
      const auto length =
          static_cast<double>(extent.value_or(0)) + static_cast<double>(dim.low) + static_cast<double>(dim.high);
      if (n && extent && static_cast<double>(*n) * length < INT32_MAX)
        offset = b_.add(offset, b_.convert(b_.mul(s, b_.i32(*n)), DType::i64));
      else {
        const Value by = extent_value(stride[d], DType::i64);
        offset = b_.add(offset, b_.mul(b_.convert(s, DType::i64), by));
      }
      Value limit;
      if (!known[d].interior) limit = within_i32(m.array_shape[d], dim, s);
      if (limit && bounded) limit = b_.min(limit, b_.clamp(starts[k_.map_result(i, d) + 1], 0, dim.size));
      const Value end = extent_value(m.array_shape[d], extent.value_or(0) > INT32_MAX ? DType::i64 : DType::i32);
      // Element 0 of the block is in the array, or is never read in place of another. Both are proved here as in
      // keep_inside(), whatever block_starts() says.
      const bool from_inside = b_.not_negative({{1, s}}, {}),
                 begins = from_inside && b_.not_negative({{1, end}, {-1, s}, {-1, {}}}, {});
      if (!begins) r.may_be_empty = true;
      // Nothing of the block need lie in the array.
      if (limit && (bounded || dim.low || dim.high)) r.may_be_empty = true;
      if (dim.kind == ir::BlockDim::Kind::squeezed) {
        if (limit) r.inside = b_.both(r.inside, b_.lt(b_.i32(0), limit));
        if (!from_inside) r.inside = b_.both(r.inside, b_.ge_zero(s));
        if (!begins && !b_.not_negative({{1, end}, {-1, s}, {-1, {}}}, r.inside))
          r.inside = b_.both(r.inside, b_.lt(b_.convert(s, b_.dtype(end)), end));
        continue;
      }
      r.stride.push_back(n ? *n : -1);
      r.wide_stride.push_back(n ? Value{} : extent_value(stride[d], DType::i64));
      r.limit.push_back(limit);
      r.origin.push_back(s);
      r.extent.push_back(from_inside && b_.not_negative({{1, end}, {-1, s}, {-dim.size, {}}}, {}) ? Value{} : end);
      r.below.push_back(known[d].nothing_below ? Value{} : b_.sub(b_.i32(0), s));
      r.limit_divisor.push_back(
          extent && dim.kind == ir::BlockDim::Kind::blocked ? std::gcd(std::gcd(*extent, dim.size), int64_t{4}) : 1);
    }
    r.ref = b_.view(base, offset);
  }
  int64_t span = 0;
  for (size_t d = 0; d < r.shape.size(); ++d)
    if (r.stride[d] > 0)
      span += std::max<int64_t>(r.shape[d] - 1, 0) * std::min<int64_t>(r.stride[d], int64_t{1} << 40);
  r.narrow = span * size_bytes(m.dtype) < INT32_MAX;
}

namespace {
ir::Op identity_access(const Shape& s) {
  ir::Op o{.code = Opcode::load};
  for (int64_t n : s) o.index.push_back(ir::Index::all(n));
  return o;
}
}  // namespace

void Lowering::enter_refs(size_t depth) {
  const auto& args = k_.region(k_.body).args;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool scratch = i >= k_.blocks.size();
    if (s_.scope[i] != static_cast<int>(depth)) continue;
    if (!scratch) enter_window(static_cast<int>(i));
    const ir::Type& type = k_.type(args[i]);
    std::vector<int> dims;
    for (size_t d = 0; d < type.shape.size(); ++d)
      dims.push_back(s_.residency[i] == Residency::registers ? axes_.of_ref(static_cast<int>(i), d) : kNoAxis);
    RefState& r = refs_[i];
    if (s_.residency[i] == Residency::registers) {
      if (scratch) {
        r.regs.assign(static_cast<size_t>(s_.registers(dims)), b_.zero(type.dtype));
        continue;
      }
      order({r.range}, {});
      const ir::Op all = identity_access(r.shape);
      r.regs.clear();
      layout_nest(r.shape, dims, false,
                  [&](const NestPoint& p) { r.regs.push_back(load_at(r, address(r, all, p.c), p.valid, {})); });
    } else if (s_.residency[i] == Residency::arena) {
      // Kept for the whole kernel: scratch persists from program to program, a private tile until its block is left, an
      // aliased input's copy for one program.
      RefState tile;
      tile.dtype = type.dtype;
      tile.shape = type.shape;
      tile.slot = new_slot(type.dtype, type.shape, dims);
      tile.ref = tile.slot.ref;
      tile.range = tile.slot.range;
      tile.tracked = true;
      int64_t stride = 1;
      tile.stride.assign(type.shape.size(), 1);
      for (size_t d = type.shape.size(); d-- > 0;) {
        tile.stride[d] = stride;
        stride *= type.shape[d];
      }
      tile.limit.resize(type.shape.size());
      tile.below.resize(type.shape.size());
      tile.origin.resize(type.shape.size());
      tile.extent.resize(type.shape.size());
      tile.limit_divisor.assign(type.shape.size(), 1);
      tile.dead = num_elements(type.shape) == 0;
      if (!scratch) {
        const RefState window = r;
        order({window.range}, {tile.range});
        const ir::Op all = identity_access(window.shape);
        flat_nest(window.shape, dims, [&](const NestPoint& p) {
          const Value v = load_at(window, address(window, all, p.c), p.valid, {});
          b_.when(p.valid, [&] { slot_store(tile.slot, p.c, v); });
        });
        windows_[i] = window;
      }
      refs_[i] = tile;
    }
  }
}

void Lowering::leave_refs(size_t depth) {
  const auto& args = k_.region(k_.body).args;
  for (size_t i = 0; i < k_.blocks.size(); ++i) {
    if (s_.scope[i] != static_cast<int>(depth)) continue;
    RefState& r = refs_[i];
    if (needs_copy(k_, static_cast<int>(i))) {  // of an aliased input: its output is what is written
      free_slot(r.slot);
      continue;
    }
    std::vector<int> dims;
    if (s_.residency[i] == Residency::registers) {
      for (size_t d = 0; d < r.shape.size(); ++d) dims.push_back(axes_.of_ref(static_cast<int>(i), d));
      order({}, {r.range});
      const ir::Op all = identity_access(r.shape);
      size_t at = 0;
      layout_nest(r.shape, dims, true,
                  [&](const NestPoint& p) { store_at(r, address(r, all, p.c), r.regs[at++], p.valid); });
    } else if (s_.residency[i] == Residency::arena) {
      dims.assign(k_.type(args[i]).shape.size(), kNoAxis);
      const RefState window = windows_[i];
      order({r.range}, {window.range});
      const ir::Op all = identity_access(window.shape);
      flat_nest(window.shape, dims, [&](const NestPoint& p) {
        const Value v = slot_load(r.slot, p.c);
        store_at(window, address(window, all, p.c), v, p.valid);
      });
      free_slot(r.slot);
    }
  }
}

}  // namespace tessera::lowering
