// The arena: memory of one workgroup for values that do not live in registers. It is one budget with lifetimes, either
// in shared memory or, if the live set does not fit there, in a slice of a global scratch buffer. Also the barrier plan
// for it: which accesses of other invocations may still be unordered, so that a workgroup barrier is placed exactly
// before the first access that conflicts.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace tessera::lowering {

class ArenaAllocator {
 public:
  int64_t alloc(int64_t bytes);  ///< first fit, 16-byte granules; returns the offset
  void free(int64_t offset);
  int64_t peak() const { return peak_; }

 private:
  std::map<int64_t, int64_t> used_;  // offset -> bytes
  int64_t peak_ = 0;
};

/// A range of bytes of one memory object: an arena, or an argument (whole).
struct MemoryRange {
  static constexpr int kShared = -1, kScratch = -2;
  int object = 0;  // an argument's position, kShared or kScratch
  int64_t lo = 0, hi = INT64_MAX;
  bool meets(const MemoryRange& o) const { return object == o.object && lo < o.hi && o.lo < hi; }
};

/// Accesses since the last barrier that other invocations may not have seen (writes) or finished (reads).
class PendingAccesses {
 public:
  bool conflicts(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) const;
  void add(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  void clear() {
    reads_.clear();
    writes_.clear();
  }
  bool empty() const { return reads_.empty() && writes_.empty(); }
  void merge(const PendingAccesses& o) { add(o.reads_, o.writes_); }

 private:
  std::vector<MemoryRange> reads_, writes_;
};

}  // namespace tessera::lowering
