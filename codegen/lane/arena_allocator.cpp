#include "codegen/lane/arena_allocator.h"

#include <algorithm>

namespace tessera::lowering {

int64_t ArenaAllocator::granules(int64_t bytes) { return std::max<int64_t>((bytes + 15) / 16 * 16, 16); }
int64_t ArenaAllocator::first_fit(const std::map<int64_t, int64_t>& used, int64_t bytes) {
  int64_t at = 0;
  for (const auto& [offset, size] : used) {
    if (offset - at >= bytes) break;
    at = std::max(at, offset + size);
  }
  return at;
}
int64_t ArenaAllocator::take(int64_t at, int64_t bytes) {
  used_[at] = bytes;
  peak_ = std::max(peak_, at + bytes);
  return at;
}
int64_t ArenaAllocator::alloc(int64_t bytes) {
  bytes = granules(bytes);
  return take(first_fit(used_, bytes), bytes);
}
int64_t ArenaAllocator::alloc_apart(int64_t bytes, const std::vector<MemoryRange>& ranges, int64_t most) {
  bytes = granules(bytes);
  std::map<int64_t, int64_t> used = used_;
  for (const MemoryRange& r : ranges) {
    int64_t& size = used[r.lo];
    size = std::max(size, granules(r.hi - r.lo));
  }
  const int64_t at = first_fit(used, bytes);
  return take(at + bytes <= std::max(most, peak_) ? at : first_fit(used_, bytes), bytes);
}
bool ArenaAllocator::alloc_at(int64_t offset, int64_t bytes) {
  const bool taken = std::any_of(used_.begin(), used_.end(), [&](const auto& u) {
    return u.first < offset + granules(bytes) && offset < u.first + u.second;
  });
  if (!taken) take(offset, granules(bytes));
  return !taken;
}
void ArenaAllocator::free(int64_t offset) { used_.erase(offset); }

PendingAccesses::Barrier PendingAccesses::wanted(const std::vector<MemoryRange>& reads,
                                                 const std::vector<MemoryRange>& writes) const {
  Barrier all = Barrier::none;
  const auto meet = [&](const std::vector<MemoryRange>& now, const std::vector<Access>& before) {
    for (const MemoryRange& x : now)
      for (const Access& y : before) {
        if (!x.meets(y.range)) continue;
        const Barrier one = !x.same_parts(y.range) ? Barrier::workgroup : y.met ? Barrier::none : Barrier::subgroup;
        all = std::max(all, one);
      }
  };
  meet(reads, writes_);
  meet(writes, writes_);
  meet(writes, reads_);
  return all;
}
void PendingAccesses::append(std::vector<Access>& to, const Access& a) {
  const auto covers = [&](const Access& x) {
    if (x.range.object != a.range.object || x.range.lo > a.range.lo || x.range.hi < a.range.hi) return false;
    return x.range.own == 0 || (x.range.same_parts(a.range) && (!x.met || a.met));
  };
  if (std::none_of(to.begin(), to.end(), covers)) to.push_back(a);
}
void PendingAccesses::add(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes) {
  for (const MemoryRange& r : reads) append(reads_, {r});
  for (const MemoryRange& r : writes) append(writes_, {r});
}
void PendingAccesses::merge(const PendingAccesses& o) {
  for (const Access& a : o.reads_) append(reads_, a);
  for (const Access& a : o.writes_) append(writes_, a);
}
void PendingAccesses::subgroups_meet() {
  for (Access& a : reads_) a.met = true;
  for (Access& a : writes_) a.met = true;
}
std::vector<MemoryRange> PendingAccesses::of_shared() const {
  std::vector<MemoryRange> found;
  for (const std::vector<Access>* all : {&reads_, &writes_})
    for (const Access& a : *all)
      if (a.range.object == MemoryRange::kShared) found.push_back(a.range);
  return found;
}

}  // namespace tessera::lowering
