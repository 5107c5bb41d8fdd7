// Memory with bounds, poison and the last accesses of each place. An access is ordered after another if its thread has
// seen it: by vector clocks, which barriers, releases and acquires pass on. Copies that run by themselves are agents of
// their own. Read next: machine.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::ptx {

/// An agent is a thread or its copies: the block's number, then the agent's in the block.
constexpr uint32_t kAgentBits = 12, kThreadBits = 10;
/// A thread itself, its copies, and what its copies to memory read: those end earlier.
enum Agent : uint32_t { kSelf, kCopies, kSources, kAgentKinds };
using Row = std::vector<uint32_t>;  // of one block: by agent, the last epoch that was seen
struct Clock {
  std::vector<std::pair<uint32_t, std::shared_ptr<const Row>>> rows;  // by block, ascending
  const Row* find(uint32_t block) const {
    for (const auto& [b, r] : rows)
      if (b == block) return r.get();
    return nullptr;
  }
};
using ClockPtr = std::shared_ptr<const Clock>;
/// What either has seen; null: nothing.
ClockPtr join(const ClockPtr& a, const ClockPtr& b);

struct Touch {
  uint32_t agent = UINT32_MAX, epoch = 0, at = 0;  // at: the instruction
  bool strong = false;                             // atomic, or with an order
  bool of_cta = false;                             // strong for its own block alone
  uint8_t bytes = 0;                               // of a strong access, to one element
  bool none() const { return agent == UINT32_MAX; }
};
struct Cell {
  Touch write, read[2];
};

struct Object {
  std::string name;
  uint64_t base = 0, size = 0;
  bool may_write = true;
  std::vector<uint8_t> bytes, poison;
  uint32_t granule = 2;                             // log2 of the bytes to a cell
  std::vector<std::unique_ptr<Cell[]>> pages;       // none: not watched
  std::vector<Touch> constant;                      // by cell, what .nc has read; empty: nothing
  std::vector<uint8_t> opaque;                      // by 8 bytes: a barrier object; empty: none
  std::unordered_map<uint64_t, ClockPtr> released;  // by offset

  void make(uint64_t n, bool watched);
  Cell& cell(uint64_t i) {
    std::unique_ptr<Cell[]>& page = pages[i >> 8];
    if (!page) page = std::make_unique<Cell[]>(256);
    return page[i & 255];
  }
};

}  // namespace tessera::ptx
