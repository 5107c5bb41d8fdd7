// Where values of the arena lie: first fit in granules of 16 bytes, at a place of one's own choice if that is free, and
// apart from ranges that are still read.
#include "codegen/lane/arena_allocator.h"

#include <doctest/doctest.h>

namespace arena_allocator_test {
using tessera::lowering::ArenaAllocator, tessera::lowering::MemoryRange;

TEST_CASE("arena: room is first fit, in granules of 16 bytes") {
  ArenaAllocator a;
  CHECK(a.alloc(0) == 0);
  CHECK(a.alloc(17) == 16);
  CHECK(a.alloc(16) == 48);
  CHECK(a.peak() == 64);
  a.free(16);
  CHECK(a.alloc(33) == 64);
  CHECK(a.alloc(32) == 16);
  CHECK(a.peak() == 112);
}

TEST_CASE("arena: a place is free up to the next one, and from the end of the one before") {
  ArenaAllocator a;
  CHECK(a.alloc_at(32, 32));
  CHECK(!a.alloc_at(48, 16));
  CHECK(!a.alloc_at(16, 17));
  CHECK(!a.alloc_at(0, 128));
  CHECK(a.alloc_at(64, 16));
  CHECK(a.alloc_at(16, 16));
  CHECK(a.peak() == 80);
  CHECK(a.alloc(17) == 80);
  CHECK(a.alloc(16) == 0);
}

TEST_CASE("arena: room apart from ranges, as far as that is worth its bytes") {
  ArenaAllocator a;
  CHECK(a.alloc_apart(32, {{MemoryRange::kShared, 0, 32}}, 64) == 32);
  CHECK(a.alloc_apart(16, {{MemoryRange::kShared, 0, 32}}, 64) == 0);
  CHECK(a.alloc_apart(16, {{MemoryRange::kShared, 16, 20}}, 80) == 64);
}

}  // namespace arena_allocator_test
