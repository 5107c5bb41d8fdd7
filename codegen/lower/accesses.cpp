// Refs, the arena and the order of accesses. No index from data reaches memory unchecked: dynamic starts wrap once and
// are clamped so that the window fits (masked accesses test each element instead); a read beyond the array's edge gets
// an element inside, a store is dropped.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/indexed.h"
#include "engine/base/function.h"
#include "engine/passes/divisors.h"

namespace tessera::lowering {
using ir::Index;
using ir::Opcode;

// A dynamic start of a window, which wraps once and is then clamped, unless a mask tests each element.
Value RefWindows::begin_along(const ir::Op& o, size_t d, int64_t n, int64_t span) {
  const Value start = o.operand_of(o.index[d]);
  Value p = elements_.scalar(start);
  const Range known = scalars_.range(start);
  if (o.has_mask() || (known.lo >= 0 && known.hi + span < n)) return p;
  if (known.lo < 0) p = b_.wrap(p, b_.i32(n));
  return b_.clamp(p, 0, std::max<int64_t>(n - 1 - span, 0));
}

Values RefWindows::array_position(const RefState& r, const ir::BlockMapping& m, const ir::Op& o, const Coords& c) {
  const ir::AccessDims form = ir::access_dims(k_, o);
  Values all = r.begins;
  size_t d = 0;  // of the Ref
  for (size_t in_array = 0; in_array < all.size(); ++in_array) {
    if (!m.seen(in_array)) continue;
    const Index& ix = o.index[d];
    const Index::Slice* slice = ix.slice();
    const int64_t span = slice ? std::max<int64_t>(slice->span() - 1, 0) : 0;
    Value p = ix.is_static() ? b_.i32(ix.constant()) : begin_along(o, d, r.shape[d], span);
    if (slice && slice->size > 1) p = b_.add(p, b_.mul(c[static_cast<size_t>(form.slice[d])].v, b_.i32(slice->step)));
    all[in_array] = all[in_array] ? b_.add(all[in_array], p) : p;
    ++d;
  }
  return all;
}

// p, or an element inside the array that stands in for p. Every load must choose the same one, because overhang has one
// value per program: the element at p's place in the last vector of limit_unit elements.
Value RefWindows::inside_limit(const RefState& r, size_t d, Value p, int64_t divisor, const Coord& c) {
  const int64_t unit = r.limit_unit[d];
  if (unit == 1 || (c.axis != kNoAxis && plan(c.axis).vec == unit && divisor % unit == 0))
    return nests_.clamp_along(p, r.limit[d], unit, c.axis, c.reg);
  const Value last = b_.add(r.limit[d], b_.i32(-unit));
  return b_.min(p, b_.add(last, b_.rem(p, unit)));
}

Address RefWindows::address(const RefState& r, const ir::Op& o, const Coords& c, bool clamp, bool reads) {
  Address a;
  a.narrow = b_.i32(0);
  const ir::AccessDims form = ir::access_dims(k_, o);
  for (size_t d = 0; d < o.index.size(); ++d) {
    const Index& ix = o.index[d];
    const int64_t n = r.shape[d];
    const Index::Slice* slice = ix.slice();
    const int64_t span = slice ? std::max<int64_t>(slice->span() - 1, 0) : 0;
    const bool one_by_one = form.per_element && !ix.is_static();
    Value p;
    if (ix.is_static()) p = b_.i32(ix.constant());
    else if (one_by_one) p = position(o, form, d, c, reads, a.valid);
    else p = begin_along(o, d, n, span);
    const size_t own_dim = slice ? static_cast<size_t>(form.slice[d]) : 0;
    if (slice && !one_by_one) p = b_.add(p, slice->size == 1 ? b_.i32(0) : b_.mul(c[own_dim].v, b_.i32(slice->step)));
    if (!ix.is_static() && !one_by_one && o.has_mask()) {
      const Range known = scalars_.range(o.operand_of(ix));
      // a sum beyond INT32_MAX wraps below 0, as span <= INT32_MAX
      if (known.lo < 0 || known.hi + span > INT32_MAX) a.valid = b_.both(a.valid, b_.ge_zero(p));
      if (known.hi + span >= n) a.valid = b_.both(a.valid, b_.lt(p, b_.i32(n)));
    }
    if (r.below[d] && clamp) p = b_.max(p, r.below[d]);
    if (r.limit[d] && clamp) {
      const bool along = slice && slice->size > 1 && slice->step == 1 && ix.is_static();
      p = inside_limit(r, d, p, along ? passes::Divisors::of(ix.constant()) : 1, along ? c[own_dim] : Coord{});
    } else if (r.limit[d]) {
      a.valid = b_.both(a.valid, b_.lt(p, r.limit[d]));
    }
    if (r.below[d] && !clamp) a.valid = b_.both(a.valid, b_.lt(b_.add(r.below[d], b_.i32(-1)), p));
    if (r.halo[d]) p = at_edge(r, d, p, a);
    else keep_inside(r, d, p, a.valid);
    if (r.stride[d] < 0) {
      const Value w = b_.mul(b_.convert(p, DType::i64), r.wide_stride[d]);
      a.wide = a.wide ? b_.add(a.wide, w) : w;
    } else if (r.narrow) {
      a.narrow = b_.add(a.narrow, b_.mul(p, b_.i32(r.stride[d])));
    } else {
      const Value stride = b_.i64(r.stride[d]), w = b_.mul(b_.convert(p, DType::i64), stride);
      a.wide = a.wide ? b_.add(a.wide, w) : w;
    }
  }
  if (r.inside) a.valid = b_.both(a.valid, r.inside);
  return a;
}

void RefWindows::keep_in_block(int64_t n, Value p, Value& valid) {
  if (!b_.not_negative({{1, p}}, valid)) valid = b_.both(valid, b_.ge_zero(p));
  if (!b_.not_negative({{n - 1, {}}, {-1, p}}, valid)) valid = b_.both(valid, b_.lt(p, b_.i32(n)));
}

// The element of the array that position p of a halo block reads. In the end it is clamped, so that no mistake in what
// comes before leads outside; an array that may have no elements is tested for them.
Value RefWindows::at_edge(const RefState& r, size_t d, Value p, Address& a) {
  const ir::BlockDim::Halo& halo = *r.halo[d];
  keep_in_block(r.shape[d], p, a.valid);
  const Value at = b_.add(r.origin[d], p), zero = b_.i32(0);
  if (!r.extent[d]) return at;  // all of the block lies in the array
  const Value end = b_.convert(r.extent[d], DType::i32), last = b_.add(end, b_.i32(-1));
  if (halo.edge == ir::Edge::zero) {
    if (!b_.not_negative({{1, at}}, a.valid)) a.there = b_.both(a.there, b_.ge_zero(at));
    if (!b_.not_negative({{1, last}, {-1, at}}, a.valid)) a.there = b_.both(a.there, b_.lt(at, end));
  }
  const Value inside = b_.max(b_.min(folded(halo, b_.known(end), at, end), last), zero);
  if (!b_.not_negative({{1, last}}, a.exists)) a.exists = b_.both(a.exists, b_.lt(zero, end));
  return inside;
}

// The array continued beyond its edges. What goes round once at most is folded once; an array that may be smaller than
// that takes divisions where it is.
Value RefWindows::folded(const ir::BlockDim::Halo& halo, std::optional<int64_t> extent, Value at, Value end) {
  if (halo.edge == ir::Edge::clamp || halo.edge == ir::Edge::zero) return at;
  // The farthest that the block of a program goes beyond the array, and the least array that is folded once for it.
  const int64_t beyond = std::max(halo.low, halo.size - 1 + halo.high),
                least = beyond + (halo.edge == ir::Edge::reflect ? 1 : 0);
  if (extent) return *extent >= least ? folded_once(halo.edge, at, end) : folded_often(halo.edge, at, end);
  const Value enough = b_.lt(b_.i32(least - 1), end);
  return b_.if_else(
      enough, [&] { return Values{folded_once(halo.edge, at, end)}; },
      [&] { return Values{folded_often(halo.edge, at, end)}; })[0];
}

Value RefWindows::at_mirrored_beginning(ir::Edge edge, Value at) {
  const Value zero = b_.i32(0), mirrored = b_.sub(b_.i32(edge == ir::Edge::symmetric ? -1 : 0), at);
  return b_.select(b_.lt(at, zero), mirrored, at);
}

// No sum here leaves 32 bits.
Value RefWindows::folded_once(ir::Edge edge, Value at, Value end) {
  const Value zero = b_.i32(0);
  if (edge == ir::Edge::wrap) {
    const Value from_end = b_.add(at, end), back = b_.sub(at, end), behind = b_.select(b_.lt(at, zero), from_end, at);
    return b_.select(b_.lt(at, end), behind, back);
  }
  const Value here = at_mirrored_beginning(edge, at), last = b_.add(end, b_.i32(-1));
  const int64_t repeats = edge == ir::Edge::symmetric ? 1 : 0;
  if (const auto n = b_.known(end); n && *n <= INT32_MAX / 2) {
    const Value mirrored = b_.sub(b_.i32(2 * *n - 2 + repeats), here);
    return b_.min(here, mirrored);
  }
  const Value over = b_.sub(here, last), again = b_.i32(repeats), mirrored = b_.add(b_.sub(last, over), again);
  return b_.select(b_.lt(last, here), mirrored, here);
}

Value RefWindows::folded_often(ir::Edge edge, Value at, Value end) {
  if (edge == ir::Edge::wrap) {
    const Value zero = b_.i32(0), n = b_.max(end, b_.i32(1)), rest = b_.rem(at, n), from_end = b_.add(rest, n);
    return b_.select(b_.lt(rest, zero), from_end, rest);
  }
  // 64 bits: a period may be twice the array.
  const bool repeats = edge == ir::Edge::symmetric;
  const Value here = b_.convert(at_mirrored_beginning(edge, at), DType::i64), wide_end = b_.convert(end, DType::i64);
  const Value twice = b_.add(wide_end, wide_end), one = b_.i64(1),
              period = b_.max(repeats ? twice : b_.add(twice, b_.i64(-2)), one), rest = b_.rem(here, period),
              mirrored = b_.sub(repeats ? b_.add(period, b_.i64(-1)) : period, rest);
  return b_.convert(b_.min(rest, mirrored), DType::i32);
}

// Every access to memory that a kernel sees goes through here, dim by dim: its position is proved to lie in the block
// and in the array, or tested. What the rest of lowering believes of it is not asked.
void RefWindows::keep_inside(const RefState& r, size_t d, Value p, Value& valid) {
  if (valid && b_.known(valid) == 0) return;
  keep_in_block(r.shape[d], p, valid);
  if (!r.extent[d]) return;
  const Value s = r.origin[d], end = r.extent[d];
  const auto in_array = [&] {
    const Value in_block = b_.convert(p, DType::i64);
    return b_.add(b_.convert(s, DType::i64), in_block);
  };
  if (!b_.not_negative({{1, s}, {1, p}}, valid)) valid = b_.both(valid, b_.ge_zero(in_array()));
  if (!b_.not_negative({{1, end}, {-1, s}, {-1, p}, {-1, {}}}, valid)) {
    const Value wide_end = b_.convert(end, DType::i64);
    valid = b_.both(valid, b_.lt(in_array(), wide_end));
  }
}

// The element's own position along dim d, wrapped, and clamped or tested: see ir::AccessDims::per_element.
Value RefWindows::position(const ir::Op& o, const ir::AccessDims& form, size_t d, const Coords& c, bool reads,
                           Value& valid) {
  const Index& ix = o.index[d];
  const int64_t n = k_.type(o.operands[0]).shape[d];
  const Value start = o.operand_of(ix);
  Range known = scalars_.range(start);
  Value p;
  if (ix.is_array()) {
    p = elements_.of(start, Coords(c.begin() + static_cast<int64_t>(form.array_at),
                                   c.begin() + static_cast<int64_t>(form.array_at + form.array_rank)));
  } else {
    p = elements_.scalar(start);
    if (const Index::Slice* slice = ix.slice(); slice && slice->size > 1) {
      p = b_.add(p, b_.mul(c[static_cast<size_t>(form.slice[d])].v, b_.i32(slice->step)));
      known.hi += slice->span() - 1;
      if (known.hi > INT32_MAX) known.lo = INT32_MIN;  // the sum may have wrapped
    }
  }
  const bool wraps = !o.has_mask() || ix.is_array() || (form.arrays && ix.is_integer());
  const bool below = known.lo < (wraps ? -n : 0), above = known.hi >= n;
  if (wraps && known.lo < 0) p = b_.wrap(p, b_.i32(n));
  if (reads && !o.has_mask()) return below || above ? b_.clamp(p, 0, std::max<int64_t>(n - 1, 0)) : p;
  if (below) valid = b_.both(valid, b_.ge_zero(p));
  if (above) valid = b_.both(valid, b_.lt(p, b_.i32(n)));
  return p;
}

Value RefWindows::load_at(const RefState& r, const Address& a, Value mask, Value other) {
  if (r.dead) return other ? other : b_.zero(r.dtype);
  const Value valid = b_.both(a.valid, mask);
  const Value instead = other ? other : b_.zero(r.dtype);
  auto plain = [&](Value wide, Value narrow) { return b_.load(wide ? b_.view(r.ref, wide) : r.ref, narrow); };
  if (!valid || b_.known(valid) == 1) return plain(a.wide, a.narrow);
  if (b_.known(valid) == 0) return instead;
  // Element 0 stands in for what is not there, but not where it may not exist or where another slice may be storing it.
  if (r.may_be_empty || r.tracked)
    return b_.if_else(valid, [&] { return Values{plain(a.wide, a.narrow)}; }, [&] { return Values{instead}; })[0];
  const Value narrow = b_.select(valid, a.narrow, b_.i32(0)),
              wide = a.wide ? b_.select(valid, a.wide, b_.i64(0)) : Value{};
  const Value v = plain(wide, narrow);
  return other ? b_.select(valid, v, other) : v;
}

void RefWindows::store_at(const RefState& r, const Address& a, Value v, Value predicate, bool adds, bool late) {
  if (r.dead) return;
  b_.when(b_.both(a.valid, predicate), [&] {
    const Value to = a.wide ? b_.view(r.ref, a.wide) : r.ref;
    b_.store(to, a.narrow, adds ? b_.op(Opcode::add, {b_.load(to, a.narrow), v}, r.dtype) : v, late);
  });
}

std::vector<Value> RefWindows::values_read(const ir::Op& o) const {
  std::vector<Value> r;
  if (o.value_position() >= 0) r.push_back(o.operands[1]);
  if (o.code == Opcode::atomic_cas) r.push_back(o.operands[2]);
  if (o.has_mask()) r.push_back(o.operands[static_cast<size_t>(o.mask_position())]);
  if (o.has_other()) r.push_back(o.operands[static_cast<size_t>(o.other_position())]);
  for (const Index& ix : o.index)
    if (ix.is_array()) r.push_back(o.operand_of(ix));
  return r;
}

Value RefWindows::load_element(const ir::Op& o, const Coords& c, Value valid) {
  const RefState& r = states_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
  // A padding lane's clamped position belongs to another invocation, which may be storing there.
  Value mask = r.tracked ? valid : Value{}, other;
  if (o.has_mask()) mask = b_.both(mask, elements_.of(o.operands[static_cast<size_t>(o.mask_position())], c));
  if (o.has_other()) other = elements_.of(o.operands[static_cast<size_t>(o.other_position())], c);
  // Whoever may not exist, or is written by another slice, must not be read in place of what hangs over.
  Address a = address(r, o, c, !r.tracked && !r.no_nearest, true);
  if (!r.halo_offset) return load_at(r, a, mask, other);
  // What the halo reads as 0 is 0, and what the mask leaves out is `other`.
  const Value chosen = b_.both(a.valid, mask), zero = b_.zero(r.dtype);
  a.valid = b_.both(chosen, a.exists);
  Value v = load_at(r, a, {}, {});
  if (a.there) v = b_.select(a.there, v, zero);
  if (other && chosen) v = b_.select(chosen, v, other);
  return v;
}

void RefWindows::store_element(const ir::Op& o, const Coords& c, Value v, Value predicate) {
  const RefState& r = states_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
  if (o.has_mask()) predicate = b_.both(predicate, elements_.of(o.operands[static_cast<size_t>(o.mask_position())], c));
  store_at(r, address(r, o, c), v, predicate, o.code == Opcode::addupdate, o.attr_or(ir::Attr::late, 0) != 0);
}

// An invocation takes a position along the slices, which differ in memory, and walks the elements of the arrays. Of a
// packed program it has them all.
void RefWindows::in_order(const ir::Op& o, FunctionRef<void(const Coords&, Value)> body) {
  const Value v = o.operands[1];
  const ir::AccessDims form = ir::access_dims(k_, o);
  if (num_elements(form.shape) == 0) return;
  if (!uniform_group()) {
    nests_.by_layout(shape(v), axes_.of(v), true, [&](const NestPoint& p) { body(p.c, p.valid); });
    return;
  }
  Shape slices, arrays;
  std::vector<int> dims;
  for (size_t d = 0; d < form.shape.size(); ++d) {
    if (form.is_array_dim(d)) {
      arrays.push_back(form.shape[d]);
      continue;
    }
    slices.push_back(form.shape[d]);
    dims.push_back(axes_.of(v, d));
  }
  nests_.flat(slices, dims, [&](const NestPoint& p) {
    nests_.counted(num_elements(arrays), [&](Value i) {
      Coords c = p.c;
      const Coords at = unravel(i, arrays);
      c.insert(c.begin() + static_cast<int64_t>(form.array_at), at.begin(), at.end());
      body(c, p.valid);
    });
  });
}

void RefWindows::order_store(const ir::Op& o) {
  const RefState& r = states_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
  const std::vector<MemoryRange> reads = placement_.arena_reads(values_read(o));
  if (r.owned) arena_.order(reads, {});
  else arena_.order(reads, {r.range});
}

void RefWindows::note_store(const ir::Op& o) {
  const RefState& r = states_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
  arena_.note(placement_.arena_reads(values_read(o)), r.owned ? std::vector<MemoryRange>{} : std::vector{r.range});
}

void RefWindows::store(const ir::Op& o) {
  const int ref = ref_position(k_, o.operands[0]);
  RefState& r = states_[static_cast<size_t>(ref)];
  const Value v = o.operands[1];
  const std::vector<Value> roots = values_read(o);
  if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) {
    if (const MatrixForm* f = sums_.of_ref(ref)) {
      r.registers().sums = sums_.evaluate(v, *f);
      return;
    }
    Values regs;
    arena_.order(placement_.arena_reads(roots), {});
    nests_.by_layout(shape(v), axes_.of(v), false, [&](const NestPoint& p) { regs.push_back(elements_.of(v, p.c)); });
    r.registers().regs = regs;
    return;
  }
  order_store(o);
  if (must_scatter_in_order(k_, o))
    return in_order(o, [&](const Coords& c, Value predicate) { store_element(o, c, elements_.of(v, c), predicate); });
  bool layout = false;
  for (Value x : roots) layout = layout || placement_.reads_registers(x);
  if (shape(v).empty()) {
    const Value one = nests_.first_invocation(0);
    store_element(o, {}, elements_.scalar(v), one);
    return;
  }
  std::vector<int> refs = refs_read(roots);
  refs.push_back(ref);
  const std::vector<int> dims = axes_.of(v);
  // at an edge in loops, unless registers are read
  const auto size = layout ? s_.registers(dims) * static_cast<int64_t>(placement_.computed_for(roots).size()) : 0;
  inside_and_at_edge(refs, dims, size, [&](bool edge) {
    const auto store_point = [&](const NestPoint& p) {
      const Value e = elements_.of(v, p.c);
      store_element(o, p.c, e, p.valid);
    };
    nests_.each(shape(v), dims, layout, true, store_point, edge);
    return Values{};
  });
}

void RefWindows::load(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const int ref = ref_position(k_, o.operands[0]);
  RefState& r = states_[static_cast<size_t>(ref)];
  const Value v = o.results[0];
  Place& place = placement_.of(v);
  if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) {
    const Registers& held = r.registers();
    if (placement_.kind(v) != Kind::arena) {
      if (shape(v).empty()) place = held.regs.at(0);
      else if (sums_.of_ref(ref)) place = Registers{{}, held.sums};
      else place = Registers{held.regs};
      return;
    }
    const Slot slot = placement_.make_slot(v);
    arena_.order({}, {slot.range});
    size_t at = 0;
    nests_.by_layout(shape(v), axes_.of(v), true, [&](const NestPoint& p) {
      const Value x = held.regs[at++];
      b_.when(p.valid, [&] { arena_.store(slot, p.c, x); });
    });
    place = slot;
  } else if (Prefetch::Load* early = prefetch_.of(id, 0)) {
    prefetch_.load(*early, o);
  } else {
    std::vector<Value> roots = values_read(o);
    if (o.value_position() >= 0) roots.erase(roots.begin());  // a swap's value is the store's concern
    std::vector<MemoryRange> reads = placement_.arena_reads(roots);
    if (r.tracked) reads.push_back(r.range);
    if (shape(v).empty()) {
      arena_.order(reads, {});
      // A scalar read from memory that the call writes is read once and handed out, so that every invocation has the
      // same value.
      place = r.tracked ? arena_.broadcast_from_first(k_.type(v).dtype, [&] { return load_element(o, {}); })
                        : load_element(o, {});
      return;
    }
    if (placement_.kind(v) == Kind::lazy) return;
    bool layout = false;
    for (Value x : roots) layout = layout || placement_.reads_registers(x);
    const auto by_place = [&](Value halo, int64_t size, FunctionRef<Values(bool)> body) {
      return halo ? inside_and_at_edge({ref}, axes_.of(v), size, body) : body(false);
    };
    if (placement_.kind(v) == Kind::registers) {
      arena_.order(reads, {});
      place = Registers{by_place(r.halo_offset, s_.registers(axes_.of(v)), [&](bool) {
        Values regs;
        nests_.by_layout(shape(v), axes_.of(v), false,
                         [&](const NestPoint& p) { regs.push_back(load_element(o, p.c, p.valid)); });
        return regs;
      })};
    } else {
      const Slot slot = placement_.make_slot(v);
      place = slot;
      arena_.order(reads, {slot.range});
      by_place(r.halo_offset, layout ? s_.registers(axes_.of(v)) : 0, [&](bool edge) {
        const auto load_point = [&](const NestPoint& p) {
          const Value e = load_element(o, p.c, p.valid);
          b_.when(p.valid, [&] { arena_.store(slot, p.c, e); });
        };
        nests_.each(shape(v), axes_.of(v), layout, true, load_point, edge);
        return Values{};
      });
    }
  }
}

}  // namespace tessera::lowering
