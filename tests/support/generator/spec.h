// The frame of a random kernel: its grid, its arrays with their blocks and index maps, what the inputs hold. Generator
// (generator.cpp) writes the body.
#pragma once
#include <vector>

#include "tests/support/generator/generator.h"
#include "tests/support/generator/values.h"

namespace tessera::fuzz {

/// One dim of an index map, as a function of the program ids; emitted into the map's region and, for masks, into the
/// body.
struct DimMap {
  enum class Kind { constant, axis, sum, half, reversed, wrapped, data } kind = Kind::constant;
  int64_t number = 0;    // constant; reversed: the minuend; wrapped: the seed; data: the scalar-prefetch operand
  int64_t a = 0, b = 0;  // axes
  int64_t count = 1;     // values 0 .. count - 1, for the array's size
  int64_t scale = 1;     // times this: elements from one block to the next
  int64_t base = 0;      // and plus this
  std::vector<int64_t> at = {};  // data: per dim of the operand the axis that indexes it
  bool plus = false;             // data: plus the program id on axis b
};

/// A scalar-prefetch operand: what index maps may load.
struct Prefetch {
  Shape shape;
  int64_t largest = 0;
  int64_t permutes = -1;  // it holds a permutation of this axis's program ids
};

struct RefInfo {
  ir::Value ref;
  DType dtype = DType::f32;
  Shape shape;
  int block = -1;         // position in Kernel::blocks; -1: scratch
  Fact fact;              // of what it holds
  bool stateful = false;  // may be read: stores conform to `fact`
  bool readable = false;  // every element was written before
};

class Spec {
 protected:
  explicit Spec(uint64_t seed);
  static std::vector<DType> dtypes(Random& random);
  void grid();
  Extent named(int64_t value);
  int64_t some_size();
  int64_t block_size();
  int64_t most_elements() const;
  /// The vmapped axis, if any, is the first: the kernel does not see it, and index maps use it alone, in array().
  size_t first_visible() const { return vmapped_ ? 1 : 0; }
  size_t visible_axis();
  DimMap dim_map(bool output);
  /// The index as computed from program ids and the Refs of scalar-prefetch operands, which come first in `refs`.
  ir::Value emit(const DimMap& m, const std::vector<ir::Value>& ids, const std::vector<ir::Value>& refs);
  std::vector<ir::Type> map_types() const;
  void prefetch();
  void arrays();
  void refs();
  void array(int i, bool output);
  bool aliased_array(int i);
  void other_block(ir::BlockDim& block, DimMap& map, DimMap& size);
  void halo(ir::BlockDim& block);
  void index_map(ir::BlockMapping& m, const std::vector<DimMap>& maps, const std::vector<DimMap>& sizes);
  void alias_facts();
  void input(DType t, const Shape& shape);
  void wild_input(Array a);
  void declare_parallel();
  bool hangs_over(const RefInfo& r) const;

  // big: blocks of thousands of elements; huge: tens of thousands; many: thousands of tiny programs
  enum class Size { usual, big, huge, many } size_ = Size::usual;
  Case out_;
  Random random_;
  Values values_;
  bool vmapped_ = false;
  bool persistent_ = false;  // some scratch is initialised in the first program only
  bool apart_ = false;       // an index array that holds no position twice has been made since this was false
  std::vector<int64_t> grid_;
  int64_t programs_ = 1;
  int accumulator_ = -1;  // the grid axis of the accumulator in the last scratch Ref
  std::vector<Prefetch> prefetch_;
  std::vector<RefInfo> refs_;
  std::vector<std::vector<DimMap>> maps_, sizes_;  // per block and dim; sizes: of bounded dims
  std::vector<Shape> shapes_;                      // of the arrays
  std::vector<Fact> input_facts_;
};

}  // namespace tessera::fuzz
