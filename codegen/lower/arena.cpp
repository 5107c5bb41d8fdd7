#include "codegen/lower/arena.h"

#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Opcode;

namespace {
// Of shared memory, for slots that lie apart from what the workgroup may still be reading, instead of waiting for it.
// Products by matrices wait more often for each other than they wait for room.
int64_t room_apart(const Target& t, bool matrices) {
  return matrices ? std::min<int64_t>(t.shared_bytes * 3 / 4, 36 << 10) : t.shared_bytes * 3 / 8;
}
}  // namespace

Slot Arena::make(DType t, const Shape& s, const std::vector<int>& dims) { return make(t, s, dims, 0); }
Slot Arena::make(DType t, const Shape& s, const std::vector<int>& dims, int64_t own) {
  Slot slot;
  slot.dtype = t;
  slot.axes = dims;
  slot.shape = s;
  for (size_t d = 0; d < s.size(); ++d)
    if (d < dims.size() && dims[d] != kNoAxis && plan(dims[d]).split)
      slot.shape[d] = std::min(plan(dims[d]).tile, s[d]);
  const int64_t n = num_elements(slot.shape);
  if (n > INT32_MAX / 8)
    throw CompileError(k_.name + ": a value of shape " + to_string(s) + " is too large for the arena", k_.loc,
                       "use smaller blocks");
  slot.bytes = n * (s_.scratch_arena ? size_bytes(t) : ir::arena_stride(t));
  if (s_.scratch_arena || !s_.slots_apart || !uniform_group() || target_.kind == Target::Kind::cpu || s_.general) {
    slot.offset = allocator_.alloc(slot.bytes);
  } else {
    const std::vector<MemoryRange> taken = pending_.of_shared();
    // Where each subgroup has to wait for itself alone.
    for (const MemoryRange& r : taken)
      if (own > 0 && r.own == own && r.hi - r.lo >= slot.bytes && slot.offset < 0 &&
          allocator_.alloc_at(r.lo, slot.bytes))
        slot.offset = r.lo;
    if (slot.offset < 0)
      slot.offset = allocator_.alloc_apart(slot.bytes, taken, room_apart(target_, s_.matrix.has_value()));
  }
  slot.range = {s_.scratch_arena ? MemoryRange::kScratch : MemoryRange::kShared, slot.offset,
                slot.offset + std::max<int64_t>(slot.bytes, 1), own};
  slot.ref = b_.alloc(s_.scratch_arena ? Opcode::alloc_scratch : Opcode::alloc_shared, t, n, slot.offset);
  return slot;
}

Slot Arena::temporary(DType t, int64_t elements, int64_t own) { return make(t, {elements}, {kNoAxis}, own); }

void Arena::free(Slot& s) {
  if (s.offset >= 0) allocator_.free(s.offset);
  s.offset = -1;
}

Value Arena::index(const Slot& s, const Coords& c) {
  Coords local = c;
  for (size_t d = 0; d < c.size(); ++d)
    if (s.axes[d] != kNoAxis && plan(s.axes[d]).split) local[d].v = b_.sub(c[d].v, nests_.tile_base(s.axes[d]));
  return linear(local, s.shape);
}

void Arena::order(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  if (!uniform_group()) return;
  switch (pending_.wanted(reads, writes)) {
    case PendingAccesses::Barrier::none: break;
    case PendingAccesses::Barrier::subgroup:
      if (s_.group == s_.subgroup) workgroup_barrier();
      else {
        b_.subgroup_barrier();
        pending_.subgroups_meet();
      }
      break;
    case PendingAccesses::Barrier::workgroup: workgroup_barrier();
  }
  note(reads, writes);
}

void Arena::note(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  if (!uniform_group()) return;
  pending_.add(reads, writes);
  for (Head& h : heads_) {
    if (h.ended) continue;
    h.reads.insert(h.reads.end(), reads.begin(), reads.end());
    h.writes.insert(h.writes.end(), writes.begin(), writes.end());
  }
}

void Arena::workgroup_barrier() {
  b_.barrier();
  settled();
}

void Arena::settled() {
  pending_.clear();
  for (Head& h : heads_) h.ended = h.ended || h.depth == b_.depth();
}

void Arena::barrier() {
  if (uniform_group()) workgroup_barrier();
}

void Arena::meet(int64_t first, int64_t count) {
  ir::Op op{.code = Opcode::program_barrier};
  op.set(ir::Attr::index, first);
  op.set(ir::Attr::count, count);
  b_.raw().append(std::move(op));
  settled();
}

void Arena::loop_barrier() {
  if (uniform_group() && !pending_.empty()) workgroup_barrier();
}

void Arena::loop_begins() { heads_.push_back({b_.depth(), {}, {}, false}); }

void Arena::loop_ends() {
  const Head head = std::move(heads_.back());
  heads_.pop_back();
  if (!uniform_group()) return;
  switch (pending_.wanted(head.reads, head.writes)) {
    case PendingAccesses::Barrier::none: break;
    case PendingAccesses::Barrier::subgroup:
      b_.subgroup_barrier();
      pending_.subgroups_meet();
      break;
    case PendingAccesses::Barrier::workgroup: workgroup_barrier();
  }
}

Value Arena::broadcast_from_first(DType t, FunctionRef<Value()> compute) {
  if (!uniform_group()) return compute();
  Slot slot = temporary(t, 1);
  order({}, {slot.range});
  b_.when(nests_.first_invocation(0), [&] {
    const Value computed = compute();
    b_.store(slot.ref, b_.i32(0), computed);
  });
  order({slot.range}, {});
  Value v = b_.load(slot.ref, b_.i32(0));
  free(slot);
  return v;
}

void Arena::copy(const Slot& from, const Slot& to) {
  order({from.range}, {to.range});
  const int64_t n = num_elements(from.shape);
  nests_.flat({n}, {kNoAxis}, [&](const NestPoint& p) {
    const Value e = b_.load(from.ref, p.c[0].v);
    b_.when(p.valid, [&] { b_.store(to.ref, p.c[0].v, e); });
  });
}

// Barriers inside a reduction, product or scan have settled the accesses announced before it, but some of them come
// after those barriers.
void Arena::touched(const std::vector<MemoryRange>& reads, const Place& p) {
  note(reads, {});
  if (const Slot* slot = std::get_if<Slot>(&p)) note({}, {slot->range});
}

}  // namespace tessera::lowering
