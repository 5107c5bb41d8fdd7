#include "codegen/lower/arena.h"

#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Opcode;

Slot Arena::make(DType t, const Shape& s, const std::vector<int>& dims) {
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
  slot.offset = allocator_.alloc(slot.bytes);
  slot.range = {s_.scratch_arena ? MemoryRange::kScratch : MemoryRange::kShared, slot.offset,
                slot.offset + std::max<int64_t>(slot.bytes, 1)};
  slot.ref = b_.alloc(s_.scratch_arena ? Opcode::alloc_scratch : Opcode::alloc_shared, t, n, slot.offset);
  return slot;
}

Slot Arena::temporary(DType t, int64_t elements) { return make(t, {elements}, {kNoAxis}); }

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
  if (!reads.empty() || !writes.empty()) ++order_calls_;
  if (pending_.conflicts(reads, writes)) {
    b_.barrier();
    pending_.clear();
  }
  pending_.add(reads, writes);
}

void Arena::barrier() {
  if (!uniform_group()) return;
  b_.barrier();
  pending_.clear();
}

// The back edge of a loop: the next iteration reuses what this one touched.
void Arena::loop_barrier() {
  if (!uniform_group() || pending_.empty()) return;
  b_.barrier();
  pending_.clear();
}

Value Arena::broadcast_from_first(DType t, const std::function<Value()>& compute) {
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
void Arena::touched(const std::vector<MemoryRange>& reads, const Place& h) {
  if (!uniform_group()) return;
  pending_.add(reads, {});
  if (h.kind == Kind::arena) pending_.add({}, {h.slot.range});
}

}  // namespace tessera::lowering
