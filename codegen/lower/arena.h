// Arena: slots for the values that a workgroup shares, and the order of all accesses to memory that more than one
// invocation touches. Before each access, order() gets the ranges that it reads and writes, and places a barrier where
// one is needed.
#pragma once
#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

class Arena : public Part {
 public:
  using Part::Part;
  Slot make(DType t, const Shape& shape, const std::vector<int>& axes);
  /// own: not 0 for the bytes of each subgroup's part, which no other subgroup touches (MemoryRange::own)
  Slot temporary(DType t, int64_t elements, int64_t own = 0);
  void free(Slot& s);
  int64_t peak() const { return allocator_.peak(); }

  Value index(const Slot& s, const Coords& c);
  Value load(const Slot& s, const Coords& c) { return b_.load(s.ref, index(s, c)); }
  void store(const Slot& s, const Coords& c, Value v) { b_.store(s.ref, index(s, c), v); }
  void copy(const Slot& from, const Slot& to);

  void order(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  /// Adds accesses that order() has not been given and that need no barrier now.
  void note(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  /// Whatever the accesses so far were.
  void barrier();
  /// Of all threads of the program, and of their memory; `count` of its barriers, from `first` on, begin anew.
  void meet(int64_t first, int64_t count);
  /// The back edge of a loop: the next iteration reuses what this one touched.
  void loop_barrier();
  /// The same of a loop whose body began with loop_begins(), where a barrier stands only if the next iteration needs
  /// it: if its accesses before its first barrier conflict with those of this iteration after the last one. All its
  /// other accesses come after a barrier of its own.
  void loop_begins();
  void loop_ends();
  /// Barriers inside a reduction, product or scan have settled the accesses announced before it, but some of them come
  /// after those barriers.
  void touched(const std::vector<MemoryRange>& reads, const Place& p);
  PendingAccesses& pending() { return pending_; }
  /// What the first invocation computes, in all of them.
  Value broadcast_from_first(DType t, FunctionRef<Value()> compute);

 private:
  Slot make(DType t, const Shape& shape, const std::vector<int>& axes, int64_t own);
  // What a loop's body touches before its first barrier that no branch or loop inside of it surrounds.
  struct Head {
    size_t depth = 0;  // of the body
    std::vector<MemoryRange> reads, writes;
    bool ended = false;
  };
  void workgroup_barrier();
  void settled();  // all accesses so far

  ArenaAllocator allocator_;
  PendingAccesses pending_;
  std::vector<Head> heads_;  // of the loops that are being emitted
};

}  // namespace tessera::lowering
