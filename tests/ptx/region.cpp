// Where the sides of a branch meet: the nearest place that every way from it to the end passes.
#include <algorithm>

#include "tests/ptx/machine.h"

namespace tessera::ptx {

namespace {

/// What may run after an instruction; the code's size: the end.
std::vector<uint32_t> next(const Code& c, uint32_t pc) {
  const auto& far = c.successors[pc];
  if (far.empty()) return {pc + 1};
  std::vector<uint32_t> all = far;
  if (c.code[pc].guard != kNone) all.push_back(pc + 1);
  return all;
}

/// What can be reached from `from` without `without`.
std::vector<bool> reach(const Code& c, uint32_t from, uint32_t without) {
  const uint32_t end = static_cast<uint32_t>(c.code.size());
  std::vector<bool> seen(end + 1, false);
  std::vector<uint32_t> work{from};
  while (!work.empty()) {
    const uint32_t at = work.back();
    work.pop_back();
    if (at == without || seen[at]) continue;
    seen[at] = true;
    if (at == end) continue;
    for (const uint32_t n : next(c, at)) work.push_back(n);
  }
  return seen;
}

}  // namespace

Region region_of(const Code& c, uint32_t branch) {
  const uint32_t end = static_cast<uint32_t>(c.code.size());
  // one way to the end: what every way passes lies on it
  std::vector<uint32_t> from(end + 1, kNone), work{branch};
  for (size_t k = 0; k < work.size(); ++k) {
    if (work[k] == end) break;
    for (const uint32_t n : next(c, work[k]))
      if (from[n] == kNone && n != branch) from[n] = work[k], work.push_back(n);
  }
  Region r;
  if (from[end] == kNone) return r;
  std::vector<uint32_t> way;
  for (uint32_t at = end; at != branch; at = from[at]) way.push_back(at);
  std::reverse(way.begin(), way.end());
  for (const uint32_t at : way) {
    const std::vector<bool> seen = reach(c, branch, at);
    if (at != end && seen[end]) continue;
    r.meets = at == end ? kNone : at;
    for (uint32_t pc = 0; pc < end; ++pc) {
      if (!seen[pc] || pc == branch) continue;
      r.effects = r.effects || c.code[pc].effects;
      r.writes.insert(r.writes.end(), c.writes[pc].begin(), c.writes[pc].end());
    }
    return r;
  }
  return r;
}

}  // namespace tessera::ptx
