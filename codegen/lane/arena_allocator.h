// The arena: memory of one workgroup for values that do not live in registers. It is one budget with lifetimes, either
// in shared memory or, if the live set does not fit there, in a slice of a global scratch buffer. Also the barrier plan
// for it: which accesses of other invocations may still be unordered, so that a barrier is placed exactly before the
// first access that conflicts. It is a barrier of each subgroup where only invocations of one subgroup conflict.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace tessera::lowering {

/// A range of bytes of one memory object: an arena, or an argument (whole).
struct MemoryRange {
  static constexpr int kShared = -1, kScratch = -2, kProgram = -3;
  int object = 0;  // an argument's position, kShared, kScratch, or kProgram: common to a program's workgroups
  int64_t lo = 0, hi = INT64_MAX;
  // Not 0: the bytes of each subgroup's own part, one behind the other from lo on. No subgroup touches another's part.
  int64_t own = 0;
  bool same_parts(const MemoryRange& o) const { return own > 0 && own == o.own && lo == o.lo && object == o.object; }
  bool meets(const MemoryRange& o) const { return object == o.object && lo < o.hi && o.lo < hi; }
};

class ArenaAllocator {
 public:
  int64_t alloc(int64_t bytes);  ///< first fit, 16-byte granules; returns the offset
  /// The same outside of these ranges, if it then ends before `most` or the peak; else anywhere.
  int64_t alloc_apart(int64_t bytes, const std::vector<MemoryRange>& ranges, int64_t most);
  /// Exactly there, if that is free.
  bool alloc_at(int64_t offset, int64_t bytes);
  void free(int64_t offset);
  int64_t peak() const { return peak_; }

 private:
  static int64_t granules(int64_t bytes);
  static int64_t first_fit(const std::map<int64_t, int64_t>& used, int64_t bytes);
  int64_t take(int64_t at, int64_t bytes);
  std::map<int64_t, int64_t> used_;  // offset -> bytes
  int64_t peak_ = 0;
};

/// Accesses since the last barrier that other invocations may not have seen (writes) or finished (reads).
class PendingAccesses {
 public:
  enum class Barrier : uint8_t { none, subgroup, workgroup };
  /// What has to stand before these accesses.
  Barrier wanted(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) const;
  void add(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  /// Behind a barrier of the workgroup, and of each subgroup.
  void clear() {
    reads_.clear();
    writes_.clear();
  }
  void subgroups_meet();
  /// What of shared memory is still to be ordered.
  std::vector<MemoryRange> of_shared() const;
  bool empty() const { return reads_.empty() && writes_.empty(); }
  void merge(const PendingAccesses& o);

 private:
  struct Access {
    MemoryRange range;
    bool met = false;  // a barrier of each subgroup came behind it: parts of its own are settled
  };
  static void append(std::vector<Access>& to, const Access& a);
  std::vector<Access> reads_, writes_;
};

}  // namespace tessera::lowering
