#include "codegen/lane/arena_allocator.h"

#include <algorithm>

namespace tessera::lowering {

int64_t ArenaAllocator::alloc(int64_t bytes) {
  bytes = std::max<int64_t>((bytes + 15) / 16 * 16, 16);
  int64_t at = 0;
  for (const auto& [offset, size] : used_) {
    if (offset - at >= bytes) break;
    at = offset + size;
  }
  used_[at] = bytes;
  peak_ = std::max(peak_, at + bytes);
  return at;
}
void ArenaAllocator::free(int64_t offset) { used_.erase(offset); }

bool PendingAccesses::conflicts(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) const {
  auto meet = [](const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
    return std::any_of(a.begin(), a.end(), [&](const MemoryRange& x) {
      return std::any_of(b.begin(), b.end(), [&](const MemoryRange& y) { return x.meets(y); });
    });
  };
  return meet(reads, writes_) || meet(writes, writes_) || meet(writes, reads_);
}
void PendingAccesses::add(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  auto append = [](std::vector<MemoryRange>& to, const std::vector<MemoryRange>& from) {
    for (const MemoryRange& r : from)
      if (std::none_of(to.begin(), to.end(),
                       [&](const MemoryRange& x) { return x.object == r.object && x.lo <= r.lo && x.hi >= r.hi; }))
        to.push_back(r);
  };
  append(reads_, reads);
  append(writes_, writes);
}

}  // namespace tessera::lowering
