// The memory of a call: every array, the arenas and the table by themselves at addresses of their own, far apart. Each
// access must lie in one of them, may do what the Program says of it, is aligned as it claims, and meets no access of
// another invocation without a barrier between. It computes nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/judge/reports.h"

namespace tessera::judge {

enum How : uint8_t { kRead, kWrite, kAtomic };

/// The last accesses to some bytes, by How.
struct Cell {
  // within a workgroup: by invocation, kMany: several
  uint32_t epoch[3] = {0, 0, 0}, by[3] = {0, 0, 0}, at[3] = {0, 0, 0};
  // and in it: kMany: several subgroups; the epoch of one's own barriers
  uint32_t subgroup[3] = {0, 0, 0}, own[3] = {0, 0, 0};
  // in the whole dispatch, where its workgroups share the object
  uint32_t group[3] = {kNone, kNone, kNone}, group_at[3] = {0, 0, 0};
  // invocations of the dispatch: private accesses, and writes
  uint32_t alone = kNone, alone_at = 0, writer = kNone;
};

struct Object {
  std::string name;
  uint64_t base = 0, size = 0;
  uint32_t element = 4;  // bytes; elements narrower than a word may be accessed by the words around them
  uint64_t slice = 0;    // bytes that belong to each workgroup; 0: all share the object
  bool may_read = true, may_write = true;
  uint32_t granule = 4;          // bytes to a cell: a power of two
  std::vector<std::byte> bytes;  // rounded up to whole words
  std::vector<uint8_t> poison;   // per byte: the bits that nobody has written
  std::vector<Cell> cells;       // none: only ever read
};

class Memory {
 public:
  explicit Memory(Reports& r) : reports_(r) {}
  /// `bytes` at a random multiple of `alignment`, and of no more.
  Object& add(std::string name, uint64_t bytes, uint64_t alignment, uint64_t random);
  void sort();
  /// What comes now is ordered after all that came before: another dispatch.
  void forget();
  std::vector<std::unique_ptr<Object>> objects;

  struct Reached {
    std::byte* bytes = nullptr;  // null: out of bounds
    uint8_t* poison = nullptr;
  };
  /// `touched`: a bit per byte that the access may change or wants to know.
  Reached buffer(uint32_t at, const Instr& i, How how, const Who& who, uint64_t address, uint32_t bytes,
                 uint32_t touched = ~0u);
  /// Whether that was in an arena: memory that is nobody's before it is written.
  bool reached_slice() const { return last_ < objects.size() && objects[last_]->slice != 0; }
  Reached shared(Object& o, uint32_t at, const Instr& i, How how, const Who& who, uint64_t offset, uint32_t bytes);

 private:
  template <How how> void touch(Object& o, uint32_t at, const Instr& i, const Who& who, uint32_t epoch, uint64_t offset,
                                uint32_t bytes, uint32_t touched);
  void touch(Object& o, uint32_t at, const Instr& i, How how, const Who& who, uint32_t epoch, uint64_t offset,
             uint32_t bytes, uint32_t touched);
  void conflict(const Object& o, const Cell& c, uint32_t at, How how, How other, const Who& who, uint64_t offset);
  void group_conflict(const Object& o, const Cell& c, uint32_t at, How how, How other, const Who& who, uint64_t offset);
  std::string place(uint64_t address, uint32_t bytes) const;

  Reports& reports_;
  std::vector<uint64_t> bases_;  // of objects
  size_t last_ = 0;
};

}  // namespace tessera::judge
