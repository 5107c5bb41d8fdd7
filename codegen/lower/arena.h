// Arena: slots for the values that a workgroup shares, and the order of all accesses to memory that more than one
// invocation touches. Before each access, order() gets the ranges that it reads and writes, and places a barrier where
// one is needed.
#pragma once
#include "codegen/lower/part.h"

namespace tessera::lowering {

class Arena : public Part {
 public:
  using Part::Part;
  Slot make(DType t, const Shape& shape, const std::vector<int>& axes);
  Slot temporary(DType t, int64_t elements);
  void free(Slot& s);
  int64_t peak() const { return allocator_.peak(); }

  Value index(const Slot& s, const Coords& c);
  Value load(const Slot& s, const Coords& c) { return b_.load(s.ref, index(s, c)); }
  void store(const Slot& s, const Coords& c, Value v) { b_.store(s.ref, index(s, c), v); }
  void copy(const Slot& from, const Slot& to);

  void order(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  /// Whatever the accesses so far were.
  void barrier();
  /// The back edge of a loop: the next iteration reuses what this one touched.
  void loop_barrier();
  /// Barriers inside a reduction, product or scan have settled the accesses announced before it, but some of them come
  /// after those barriers.
  void touched(const std::vector<MemoryRange>& reads, const Place& p);
  PendingAccesses& pending() { return pending_; }
  uint64_t order_calls() const { return order_calls_; }  ///< tells a loop that its body touched shared memory
  /// What the first invocation computes, in all of them.
  Value broadcast_from_first(DType t, const std::function<Value()>& compute);

 private:
  ArenaAllocator allocator_;
  PendingAccesses pending_;
  uint64_t order_calls_ = 0;
};

}  // namespace tessera::lowering
