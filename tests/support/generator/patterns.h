// Kernels of the forms that single passes and lowerings wait for, which random statements hardly ever make: a block of
// an output that several programs store to, each its part, inside the array or over its edge; sums of products, as
// convolutions are written; reshapes, transposes and integers beside slices around products; products of bytes; running
// sums and transposes of large blocks; starts with known residues and branches of one condition. Generator adds random
// statements to some of them.
#pragma once
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/generator/accesses.h"

namespace tessera::fuzz {

class Patterns : protected Accesses {
 protected:
  using Accesses::Accesses;
  /// Grid, arrays, and the body but for its end. Outputs that nothing has been stored to are left to the caller.
  void make(Pattern p);
  std::vector<bool> stored_;  // per Ref

 private:
  struct Dim {
    int64_t extent = 1;
    BlockDim block;
    DimMap map = {};
  };
  using Dims = std::vector<Dim>;
  using Indices = std::vector<Index>;

  void axes(const std::vector<int64_t>& sizes);
  Dim all_of(int64_t n) const { return {n, {ir::BlockDim::Blocked{n}}, {}}; }
  Dim along(int64_t axis, int64_t size, int64_t hang);  ///< a block for each program along it
  Dims around(Dims dims, bool output);                  ///< squeezed dims in front, of axes that none has yet
  size_t array_of(DType t, const Dims& dims, bool output, double most = 3);
  void open();  ///< the body, with the program ids
  DType wider(DType t);

  Value load_at(size_t ref, const Indices& index, const std::vector<Value>& starts = {});
  void store_at(size_t ref, const Indices& index, Value v, const std::vector<Value>& starts = {});
  Value mixed(Value v, int64_t ops);  ///< elementwise ops, of one dtype
  Value joined(Value x, Value y);     ///< of one type
  Value into(Value v, DType t);
  Value start_within(int64_t most, int64_t unit);

  void revisits();
  void store_somehow(size_t out, const Indices& at, Value v);
  void revisit(size_t out, const std::vector<size_t>& in, const Indices& place, const Indices& of_inputs);
  void sums();
  struct Source {
    size_t ref = 0;
    int form = 0;  // how the terms' operands lie in the array
    int64_t rows = 1, columns = 1, by = 1, inner = 1, height = 1, constant = 0;
    bool turned = false, rounds = false;  // rounds: a dim in front, at the loop's counter
    int operation = 0;
  };
  Source source(int64_t rows, int64_t columns, int64_t terms, DType t, int64_t rounds);
  Value operand(const Source& s, int64_t term);
  Value term(const Source& a, const Source& b, int64_t left, int64_t right, DType to);
  Value sum_of(const Source& a, const Source& b, int64_t terms, DType to, Value start);
  struct View {
    Indices index;
    Dims dims;
    std::vector<std::pair<size_t, int64_t>> dynamic;  // dims whose start is, and the most it may be
  };
  View view(const Shape& s, const std::vector<int64_t>& few, bool output);
  std::vector<Value> starts(View& v, size_t first);
  Shape in_parts(Shape s);
  Value sign_changed(Value v);
  void reshapes();
  Indices whole(const Dims& dims) const;
  struct Side {
    size_t ref = 0;
    Dims dims;
    int64_t batch = -1, contracted = 0;  // positions; batch -1: none
  };
  Side side(DType t, int64_t free_size, const Dim& depth, int64_t batch, bool turned);
  Value chunk(const Side& left, const Side& right, const Index& along, const std::vector<Value>& start, DType to);
  void bytes();
  void columns();
  Value down(Value v);
  void residues();

  std::map<std::pair<size_t, int64_t>, Value> loaded_;  // by array and term
  Value round_;                                         // the counter of the loop around the sum
};

}  // namespace tessera::fuzz
