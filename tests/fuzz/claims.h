// What the analyses claim of a kernel's integers, held against the values that the interpreters compute, at every
// evaluation: affine forms, ranges of both levels, blocks that need no clamp or lie inside, index arrays that hold no
// position twice, scalars that are known when scratch is proved to be written first, axes that are proved to be
// parallel; and of all values, along which dims their elements are equal.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/plan/affine.h"
#include "codegen/plan/parallel.h"
#include "engine/interpreter/interpreter.h"
#include "engine/passes/divisors.h"
#include "engine/passes/ranges.h"

namespace tessera::fuzz {

class Claims {
 public:
  /// Of a tile-level kernel with these sizes.
  Claims(const ir::Kernel& k, const DimValues& dims);
  Claims(const Claims&) = delete;
  void see(const SeenValue& s);
  /// And what known_scalars says, with these axes parallel.
  void with_parallel(const std::vector<bool>& axes);
  /// The first that did not hold, in words.
  const std::optional<std::string>& broken() const { return broken_; }

 private:
  struct MapResult {
    int block;
    size_t dim;
  };
  bool within_range(ir::Value v, __int128 x);
  void block(const MapResult& m, int64_t index);
  void positions(const SeenValue& s);
  void known(const SeenValue& s, __int128 x);
  void equal_along_dims(const SeenValue& s);
  std::string name_of(ir::Value v) const;
  void fail(const std::string& what) {
    if (!broken_) broken_ = what;
  }

  const ir::Kernel& k_;
  const std::vector<bool> used_;  // per value
  passes::Ranges ranges_;
  passes::Divisors divisors_;
  std::optional<lowering::ScalarAnalysis> scalars_;
  std::vector<std::vector<bool>> uniform_;                            // per value and dim; none while scopes stand
  std::vector<std::vector<lowering::BlockStart>> starts_;             // per block
  std::vector<Shape> shapes_;                                         // of the arrays
  std::unordered_map<uint32_t, std::vector<MapResult>> map_results_;  // by value: the block indices that it is
  std::unordered_map<uint32_t, std::vector<int64_t>> given_;          // the last elements of an index array, by value
  std::unordered_map<uint32_t, std::vector<lowering::KnownScalar>> known_;  // by value
  std::optional<std::string> broken_;
};

/// The ranges of a lane-level kernel's values, which its interpreter holds them to.
std::vector<Bounds> lane_ranges(const ir::Kernel& k);

}  // namespace tessera::fuzz
