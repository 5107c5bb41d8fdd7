#include "codegen/tile/check_sizes.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace tessera::lowering {

void check_sizes(const ir::Kernel& k) {
  constexpr int64_t kMost = INT32_MAX;
  const auto fail = [&](const std::string& what, __int128 n, const char* of, Loc loc, const char* hint) {
    const std::string count =
        n > INT64_MAX ? "more than " + std::to_string(INT64_MAX) : std::to_string(static_cast<int64_t>(n));
    throw CompileError(
        k.name + ": " + what + " has " + count + " " + of + ", but at most 2147483647 are numbered, in 32 bits",
        loc ? loc : k.loc, hint);
  };
  const auto product = [&](__int128 n, int64_t by) {
    return by == 0 ? 0 : n > INT64_MAX / by ? __int128{INT64_MAX} + 1 : n * by;
  };
  constexpr int64_t kMostOfArray = int64_t{1} << 55;  // positions beyond it prove nothing (lane/prover.h)
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const ir::BlockMapping& b = k.blocks[i];
    __int128 all = 1;
    for (const Extent& e : b.array_shape) all = product(all, std::max<int64_t>(e.value().value_or(1), 1));
    if (all > kMostOfArray)
      throw CompileError(
          k.name + ": " + b.origin + ": its array " + to_string(b.array_shape) + " has more than 2^55 elements",
          b.loc ? b.loc : k.loc, "no device holds as much");
    for (size_t d = 0; d < b.array_shape.size(); ++d)
      if (const auto n = b.array_shape[d].value(); b.is_whole() && n && *n > kMost)
        fail(b.origin + ": dim " + std::to_string(d) + " of its array", *n, "elements", b.loc,
             "give the array more dims, of fewer elements each");
      else if (!b.is_whole() && b.block()[d].size() > kMost)
        fail(b.origin + ": dim " + std::to_string(d) + " of its block", b.block()[d].size(), "elements", b.loc,
             "use smaller blocks");
  }
  for (const ir::Region& r : k.regions)
    for (const ir::OpId id : r.ops)
      for (const ir::Value v : k.op(id).results) {
        __int128 n = 1;
        for (const int64_t d : k.type(v).shape) n = product(n, d);
        if (!k.type(v).is_ref && n > kMost)
          fail("a value of shape " + to_string(k.type(v).shape), n, "elements", k.op(id).loc, "use smaller blocks");
      }
  for (size_t i = 0; i < k.scratch.size(); ++i) {
    __int128 n = 1;
    for (const int64_t d : k.scratch[i].shape) n = product(n, d);
    if (n > kMost) fail("scratch[" + std::to_string(i) + "]", n, "elements", k.loc, "use less scratch");
  }
  for (size_t a = 0; a < k.grid.size(); ++a)
    if (const auto n = k.grid[a].size.value(); n && *n > kMost)
      fail("grid axis " + std::to_string(a), *n, "programs", k.loc,
           "program ids are i32: use larger blocks, or more axes");
}

}  // namespace tessera::lowering
