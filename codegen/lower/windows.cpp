// Blocks are windows into arrays, placed as soon as the loops that their index map needs are open. Last, blocks inside
// their arrays and blocks at an edge: two versions of one nest, of which a workgroup takes one.
#include <algorithm>
#include <numeric>
#include <set>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Opcode;

RefWindows::RefWindows(Emission& e) : Part(e), written_(stored_memory(k_)), states_(k_.region(k_.body).args.size()) {
  find_owned();
  find_widths();
}

// For limit_unit: all loads of a Ref are known before the first one is emitted.
void RefWindows::find_widths() {
  for (const Value ref : k_.region(k_.body).args) widths_.emplace_back(shape(ref).size());
  for (const ir::Op& o : k_.ops) {
    if (!ir::reads_ref(o.code) || o.results.empty()) continue;
    const ir::AccessDims form = ir::access_dims(k_, o);
    auto& widths = widths_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
    for (size_t d = 0; d < o.index.size(); ++d) {
      const int axis = form.slice[d] < 0 ? kNoAxis : axes_.of(o.results[0], static_cast<size_t>(form.slice[d]));
      if (axis != kNoAxis) widths[d].insert(plan(axis).vec);
    }
  }
}

// One store at fixed positions is all that touches the block: an element of the array always belongs to the same
// invocation, whichever iteration stores it, because blocks coincide or are disjoint (element and bounded ones may
// overlap). Nothing needs ordering. Nor do updates that commute, if nothing else touches the array. A swap hands out
// what it found, to invocations that store nothing as well.
void RefWindows::find_owned() {
  std::vector<int> accesses(states_.size(), 0);
  std::vector<bool> fixed(states_.size(), true);
  for (const ir::Op& o : k_.ops) {
    if (!ir::accesses_ref(o.code)) continue;
    const auto r = static_cast<size_t>(memory_of(k_, ref_position(k_, o.operands[0])));
    accesses[r] += o.code == Opcode::swap ? 2 : 1;
    for (const ir::Index& ix : o.index) fixed[r] = fixed[r] && ix.is_static();
  }
  owned_.assign(states_.size(), false);
  for (size_t r = static_cast<size_t>(k_.num_inputs); r < k_.blocks.size(); ++r) {
    const bool once = written_[r] && accesses[r] == 1 && fixed[r] && !k_.blocks[r].is_whole() &&
                      !may_overlap(k_, static_cast<int>(r));
    owned_[r] = once || parallel_.commuting[r];
  }
}

// e - minus, or INT32_MAX where that is less: the padding of an element dim may bring it beyond 32 bits.
Value RefWindows::within_i32(const Extent& e, const ir::BlockDim& dim, Value minus) {
  const auto n = e.value(), m = b_.known(minus);
  if (n && m) return b_.i32(std::min<int64_t>(*n - *m, INT32_MAX));
  if (n ? *n <= INT32_MAX - dim.low() : dim.low() + dim.high() == 0) return b_.sub(extent_value(e, DType::i32), minus);
  const Value most = b_.i64(INT32_MAX), wide = b_.convert(minus, DType::i64);
  return b_.convert(b_.min(b_.sub(extent_value(e, DType::i64), wide), most), DType::i32);
}

void RefWindows::index_map(int i, Values& starts) {
  const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(i)];
  const ir::Region& map = k_.region(m.index_map());
  for (size_t a = 0; a < k_.grid.size(); ++a) placement_.of(map.args[a]) = pid_[a] ? pid_[a] : b_.i32(0);
  for (ir::OpId id : map.ops)
    if (k_.op(id).code != Opcode::yield) elements_.compute_scalar(id);
  for (Value v : k_.terminator(m.index_map()).operands) starts.push_back(elements_.scalar(v));
}

// Whether the array's size e cannot be 0 while a program runs: a grid axis is empty with it.
bool RefWindows::runs_only_with_elements(const Extent& e) const {
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
}

// A launch refuses sizes with which an extent in 32 bits has more. Nothing reads this one.
void RefWindows::refuse_beyond_i32(const Extent& e) {
  ir::LaneInfo& lane = out_.lane;
  for (size_t i = 0; i < lane.extents.size(); ++i)
    if (lane.extents[i] == e && !lane.extent_is_64[i]) return;
  lane.extents.push_back(e);
  lane.extent_is_64.push_back(false);
}

// Where blocks start is formed in 32 bits, and so is where a halo block ends. Of a window that begins behind its array
// it does not matter where (within_i32()).
void RefWindows::check_positions(const ir::BlockMapping& m, size_t d, const BlockStart& known, bool wraps) {
  const ir::BlockDim& dim = m.block()[d];
  const Extent last = ir::last_index(dim, m.array_shape[d]), behind = m.array_shape[d] + dim.low();
  const bool halo = dim.halo(), element = dim.is_element();
  if (!last.is_static()) {
    if (halo) refuse_beyond_i32(cdiv(m.array_shape[d], Extent(dim.unit())) * Extent(dim.unit()) + dim.high());
    if (element && wraps && dim.low() > 0) refuse_beyond_i32(behind);
    return;
  }
  // -1 is the last one
  const int64_t most = std::max<int64_t>(*last.value(), 0),
                reached =
                    halo || (wraps && !element) ? most : std::clamp<int64_t>(scalars_.range(known.form).hi, 0, most);
  if (__int128{reached} * dim.unit() + (halo ? dim.size() : 0) > INT32_MAX ||
      (element && wraps && *behind.value() > INT32_MAX))
    throw CompileError(k_.name + ": " + m.origin + ": dim " + std::to_string(d) + " of its array has " +
                           to_string(m.array_shape[d]) + " elements, but at most 2147483647 are numbered, in 32 bits",
                       m.loc, "give the array more dims, of fewer elements each");
}

// Where the block begins along a dim, in elements: below 0 where the window begins before the array.
Value RefWindows::block_begin(const ir::BlockMapping& m, size_t d, const BlockStart& known, Value index) {
  const ir::BlockDim& dim = m.block()[d];
  Value s = index;
  const bool wraps = !known.in_range && dim.wrap() && scalars_.range(known.form).lo < 0;
  if (!known.in_range) {
    const Value zero = b_.i32(0), most = within_i32(ir::last_index(dim, m.array_shape[d]), dim, zero);
    if (wraps) {
      const Value from_end = b_.add(b_.min(b_.add(s, b_.i32(dim.wrap())), zero), most);
      s = b_.select(b_.lt(s, zero), from_end, s);
    }
    s = b_.max(b_.min(s, most), zero);  // of an empty array: 0
  }
  check_positions(m, d, known, wraps);
  s = b_.mul(s, b_.i32(dim.unit()));
  return dim.low() ? b_.add(s, b_.i32(-dim.low())) : s;
}

// s rows of `stride` elements, i64. Products that stay below 2^31 are formed in 32 bits first.
Value RefWindows::offset_along(const ir::BlockMapping& m, size_t d, const Extent& stride, Value s) {
  const ir::BlockDim& dim = m.block()[d];
  const auto n = stride.value(), extent = m.array_shape[d].value();
  // whatever the text says
  const auto length =
      static_cast<double>(extent.value_or(0)) + static_cast<double>(dim.low()) + static_cast<double>(dim.high());
  if (n && extent && static_cast<double>(*n) * length < INT32_MAX) return b_.convert(b_.mul(s, b_.i32(*n)), DType::i64);
  const Value by = extent_value(stride, DType::i64);
  return b_.mul(b_.convert(s, DType::i64), by);
}

// What accesses need of a block's dim, whose beginning is known. `bound`: how many elements the index map counts.
void RefWindows::add_dim(RefState& r, int i, size_t d, const BlockStart& known, const Extent& stride, Value bound) {
  const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(i)];
  const Value s = r.begins[d];
  const ir::BlockDim& dim = m.block()[d];
  const auto extent = m.array_shape[d].value();
  Value limit;
  if (!known.interior) limit = within_i32(m.array_shape[d], dim, s);
  if (limit && bound) limit = b_.min(limit, b_.clamp(bound, 0, dim.size()));
  const Value end = extent_value(m.array_shape[d], extent.value_or(0) > INT32_MAX ? DType::i64 : DType::i32);
  // Element 0 of the block is in the array, or is never read in place of another. Both are proved here as in
  // keep_inside(), whatever block_starts() says.
  const bool from_inside = b_.not_negative({{1, s}}, {}),
             begins = dim.halo() ? b_.not_negative({{1, end}, {-1, {}}}, {})
                                 : from_inside && b_.not_negative({{1, end}, {-1, s}, {-1, {}}}, {});
  // Nothing of a padded block need lie in the array; where some of it does, its nearest element stands in.
  const bool padded = limit && (bound || dim.low() || dim.high());
  if (!begins || padded) {
    r.may_be_empty = true;
    // CPU drivers: loops with branches are shorter, and faster on lavapipe, than all accesses one behind the other.
    const bool meets =
        target_.kind == Target::Kind::gpu && dim.is_element() && !bound && b_.not_negative({{1, end}, {-1, {}}}, {}) &&
        b_.not_negative({{1, end}, {-1, s}, {-1, {}}}, {}) && b_.not_negative({{1, s}, {dim.size() - 1, {}}}, {});
    if (!meets) r.no_nearest = true;
  }
  if (!dim.seen()) {
    if (limit) r.inside = b_.both(r.inside, b_.lt(b_.i32(0), limit));
    if (!from_inside) r.inside = b_.both(r.inside, b_.ge_zero(s));
    if (!begins && !b_.not_negative({{1, end}, {-1, s}, {-1, {}}}, r.inside))
      r.inside = b_.both(r.inside, b_.lt(b_.convert(s, b_.dtype(end)), end));
    return;
  }
  const auto n = stride.value();
  r.stride.push_back(n ? *n : -1);
  r.wide_stride.push_back(n ? Value{} : extent_value(stride, DType::i64));
  r.halo.push_back(dim.halo());
  r.limit.push_back(limit);
  r.origin.push_back(s);
  r.extent.push_back(from_inside && b_.not_negative({{1, end}, {-1, s}, {-dim.size(), {}}}, {}) ? Value{} : end);
  r.below.push_back(known.nothing_below ? Value{} : b_.sub(b_.i32(0), s));
  int64_t unit = 1;
  if (limit && extent && dim.is_blocked())
    for (const int width : widths_[static_cast<size_t>(i)][r.limit_unit.size()])
      if (std::gcd(*extent, dim.size()) % width == 0) unit = std::max<int64_t>(unit, width);
  r.limit_unit.push_back(unit);
}

void RefWindows::enter_window(int i) {
  const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(i)];
  RefState& r = states_[static_cast<size_t>(i)];
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
  for (const Extent& e : m.array_shape) {
    if (e == Extent(0)) r.dead = true;
    if (!e.is_static() && !runs_only_with_elements(e)) r.may_be_empty = r.no_nearest = true;
  }
  // Row-major strides; run-time ones are products of extents that the host evaluates.
  std::vector<Extent> stride(rank, 1);
  for (size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * m.array_shape[d];
  if (m.is_whole()) {
    r.ref = base;
    r.begins.resize(rank);
    for (const Extent& e : stride) r.stride.push_back(*e.value());
    r.wide_stride.resize(rank);
    r.limit.resize(rank);
    r.below.resize(rank);
    r.origin.resize(rank);
    r.extent.resize(rank);
    r.halo.resize(rank);
    r.limit_unit.assign(rank, 1);
  } else {
    const std::vector<BlockStart> known = block_starts(k_, i, scalars_);
    Values starts;
    index_map(i, starts);
    Value offset = b_.i64(0);  // a 64-bit base per block
    for (size_t d = 0; d < rank; ++d) {
      const size_t at = k_.map_result(i, d);
      const Value s = block_begin(m, d, known[d], starts[at]);
      r.begins.push_back(s);
      const Value along = offset_along(m, d, stride[d], s);
      if (!m.block()[d].halo()) offset = b_.add(offset, along);
      else r.halo_offset = r.halo_offset ? b_.add(r.halo_offset, along) : along;
      const bool bounded = m.block()[d].is_bounded();
      r.bounded = r.bounded || bounded;
      add_dim(r, i, d, known[d], stride[d], bounded ? starts[at + 1] : Value{});
    }
    r.ref = b_.view(base, offset);
  }
  constexpr int64_t kFar = int64_t{1} << 40;
  int64_t span = 0, span_inside = 0;
  for (size_t d = 0, at = 0; d < rank; ++d) {
    if (!m.seen(d)) continue;
    const int64_t by = std::min(r.stride[at], kFar), n = std::max<int64_t>(r.shape[at] - 1, 0);
    // A halo's edge is any element of the array, and 31 bits do not count those of one of unknown size.
    const int64_t most = r.halo[at] ? std::min(m.array_shape[d].value().value_or(kFar), kFar) : n;
    if (by > 0) span_inside += n * by;
    if (by > 0) span += std::min(most, kFar / by) * by;
    ++at;
  }
  r.narrow = span * size_bytes(m.dtype) < INT32_MAX;
  r.narrow_inside = span_inside * size_bytes(m.dtype) < INT32_MAX;
}

namespace {
ir::Op identity_access(const Shape& s) {
  ir::Op o{.code = Opcode::load};
  for (int64_t n : s) o.index.push_back(ir::Index::all(n));
  return o;
}
}  // namespace

void RefWindows::enter(size_t depth) {
  const auto& args = k_.region(k_.body).args;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool scratch = i >= k_.blocks.size();
    if (s_.scope[i] != static_cast<int>(depth)) continue;
    if (!scratch) enter_window(static_cast<int>(i));
    const ir::Type& type = k_.type(args[i]);
    std::vector<int> dims;
    for (size_t d = 0; d < type.shape.size(); ++d)
      dims.push_back(s_.residency[i] == Residency::registers ? axes_.of_ref(static_cast<int>(i), d) : kNoAxis);
    RefState& r = states_[i];
    if (s_.residency[i] == Residency::registers) {
      if (scratch) {
        if (const MatrixForm* f = sums_.of_ref(static_cast<int>(i))) r.place = Registers{{}, sums_.filled(*f, 0)};
        else r.place = Registers{Values(static_cast<size_t>(s_.registers(dims)), b_.zero(type.dtype))};
        continue;
      }
      arena_.order({r.range}, {});
      const ir::Op all = identity_access(r.shape);
      Registers held;
      nests_.by_layout(r.shape, dims, false,
                       [&](const NestPoint& p) { held.regs.push_back(load_at(r, address(r, all, p.c), p.valid, {})); });
      if (const MatrixForm* f = sums_.of_ref(static_cast<int>(i))) held.sums = sums_.from_registers(*f, held.regs);
      r.place = held;
    } else if (s_.residency[i] == Residency::arena) {
      // Kept for the whole kernel: scratch persists from program to program, a private tile until its block is left, an
      // aliased input's copy for one program.
      RefState tile;
      tile.dtype = type.dtype;
      tile.shape = type.shape;
      Slot slot;
      if (!keeps_in_common(i, tile, slot)) slot = arena_.make(type.dtype, type.shape, dims);
      if (slot.ref) tile.place = slot;
      tile.ref = slot.ref;  // none: barriers, whose ops have numbers
      tile.range = slot.range;
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
      tile.halo.resize(type.shape.size());
      tile.dead = num_elements(type.shape) == 0;
      if (!scratch) {
        const RefState window = r;
        arena_.order({window.range}, {tile.range});
        const ir::Op all = identity_access(window.shape);
        nests_.flat(window.shape, dims, [&](const NestPoint& p) {
          const Value v = load_at(window, address(window, all, p.c), p.valid, {});
          b_.when(p.valid, [&] { arena_.store(slot, p.c, v); });
        });
        array_windows_[i] = window;
      }
      states_[i] = tile;
    }
  }
}

// Whether a Ref's memory is common to the threads of a program. Of barriers there is only how they are numbered.
bool RefWindows::keeps_in_common(size_t i, const RefState& tile, Slot& s) {
  const int64_t offset = e_.memory.offset[i];
  if (e_.memory.first_barrier[i] >= 0) return true;
  if (offset < 0) return false;
  const int64_t n = num_elements(tile.shape), bytes = std::max<int64_t>(n * size_bytes(tile.dtype), 1);
  s.offset = offset;
  s.bytes = bytes;
  s.dtype = tile.dtype;
  s.shape = tile.shape;
  s.axes.assign(tile.shape.size(), kNoAxis);
  s.range = {MemoryRange::kProgram, offset, offset + bytes};
  s.ref = b_.alloc(Opcode::alloc_program, tile.dtype, n, offset);
  return true;
}

void RefWindows::leave(size_t depth) {
  const auto& args = k_.region(k_.body).args;
  for (size_t i = 0; i < k_.blocks.size(); ++i) {
    if (s_.scope[i] != static_cast<int>(depth)) continue;
    RefState& r = states_[i];
    if (needs_copy(k_, static_cast<int>(i))) {  // of an aliased input: its output is what is written
      arena_.free(r.slot());
      continue;
    }
    std::vector<int> dims;
    if (s_.residency[i] == Residency::registers) {
      for (size_t d = 0; d < r.shape.size(); ++d) dims.push_back(axes_.of_ref(static_cast<int>(i), d));
      Registers& held = r.registers();
      if (const MatrixForm* f = sums_.of_ref(static_cast<int>(i))) held.regs = sums_.to_registers(*f, held.sums);
      arena_.order({}, {r.range});
      const ir::Op all = identity_access(r.shape);
      size_t at = 0;
      nests_.by_layout(r.shape, dims, true,
                       [&](const NestPoint& p) { store_at(r, address(r, all, p.c), held.regs[at++], p.valid); });
    } else if (s_.residency[i] == Residency::arena) {
      dims.assign(k_.type(args[i]).shape.size(), kNoAxis);
      const RefState window = array_windows_[i];
      arena_.order({r.range}, {window.range});
      const ir::Op all = identity_access(window.shape);
      nests_.flat(window.shape, dims, [&](const NestPoint& p) {
        const Value v = arena_.load(r.slot(), p.c);
        store_at(window, address(window, all, p.c), v, p.valid);
      });
      arena_.free(r.slot());
    }
  }
}

std::vector<int> RefWindows::refs_read(const std::vector<Value>& roots) const {
  std::set<int> refs;
  for (uint32_t v : placement_.computed_for(roots)) {
    const ir::Op* o = k_.def(Value{v});
    if (o && o->code == Opcode::load && placement_.kind(Value{v}) == Kind::lazy)
      refs.insert(ref_position(k_, o->operands[0]));
  }
  return {refs.begin(), refs.end()};
}

// None if every element of the block is known to be in the array.
Value RefWindows::wholly_inside(const RefState& r) {
  Value inside = r.inside;
  for (size_t d = 0; d < r.shape.size(); ++d) {
    const Value s = r.origin[d], last = b_.i32(r.shape[d] - 1);
    if (r.below[d] || (r.extent[d] && !b_.not_negative({{1, s}}, inside))) inside = b_.both(inside, b_.ge_zero(s));
    if (r.limit[d]) inside = b_.both(inside, b_.lt(last, r.limit[d]));
    else if (r.extent[d]) {
      const Value end = b_.convert(b_.add(s, last), b_.dtype(r.extent[d]));
      inside = b_.both(inside, b_.lt(end, r.extent[d]));
    }
  }
  return inside;
}

// Where all of a halo block lies in its array, its positions are those of the array from the block's first element on.
void RefWindows::inside_halo(RefState& r) {
  r.ref = b_.view(r.ref, r.halo_offset);
  r.halo.assign(r.halo.size(), nullptr);
  r.halo_offset = {};
  r.narrow = r.narrow_inside;
}

Values RefWindows::inside_and_at_edge(const std::vector<int>& refs, const std::vector<int>& dims, int64_t size,
                                      FunctionRef<Values(bool edge)> body) {
  const bool halo = std::any_of(refs.begin(), refs.end(), [&](int i) { return bool{state(i).halo_offset}; });
  if ((target_.kind != Target::Kind::gpu && !halo) || s_.general || !uniform_group() || written_once(size))
    return body(false);
  Value inside = nests_.whole_tiles(dims);
  std::vector<int> windows;
  for (int i : refs) {
    const RefState& r = state(i);
    const Slot* const slot = std::get_if<Slot>(&r.place);
    if ((slot && slot->offset >= 0) || r.bounded || r.dead || num_elements(r.shape) == 0) continue;
    const Value mine = wholly_inside(r);
    if (!mine || b_.known(mine) == 0) continue;
    inside = b_.both(inside, mine);
    windows.push_back(i);
  }
  if (!inside || b_.known(inside)) return body(false);
  return b_.if_else(
      inside,
      [&] {
        const std::vector<RefState> outer = states_;
        for (int i : windows) {
          RefState& r = state(i);
          r.limit.assign(r.shape.size(), {});
          r.below.assign(r.shape.size(), {});
          r.inside = {};
          r.may_be_empty = r.no_nearest = false;
          if (r.halo_offset) inside_halo(r);
        }
        Values result = nests_.with_whole_tiles(dims, [&] { return body(false); });
        states_ = outer;
        return result;
      },
      [&] { return body(true); });
}

}  // namespace tessera::lowering
