// ChunkedDot: what the products have in common whose operands go through shared memory, chunk by chunk of k. Each
// invocation fetches a share of both operands' next chunk into values that a loop carries, puts them into tiles, and
// multiplies what all have put there. Products by stages (dot_staged.cpp) and by matrices (dot_matrix.cpp) say what a
// share and a tile hold. Read next: dot.h.
#pragma once
#include <vector>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"

namespace tessera::lowering {

class ChunkedDot : public Part {
 protected:
  /// A part of a tile that this invocation fetches: an element or a block of them, and how far it is behind the first
  /// of `width` neighbours.
  struct Fetched {
    Value k, free, index, valid;
    int64_t behind = 0;
  };
  struct Operand {
    size_t dim = 0;  // of the result: its free one
    Value value;
    const AxisPlan* plan = nullptr;
    const Function<Value(const Coords&)>* element = nullptr;
    Prefetch::Load* early = nullptr;  // its first chunk is loaded a step of the grid before
    Slot tile = {};
    bool by_k = false;  // a contracted dim is the fastest in memory
    int64_t width = 1;  // neighbours in memory that are fetched together
    std::vector<Fetched> share = {};
    Values ahead = {};  // its only chunk, where that is loaded already
  };

  ChunkedDot(Emission& e, ir::OpId id, const DotShape& d, const DotEmitter::Sink& sink, int64_t chunk_depth);
  virtual ~ChunkedDot() = default;

  /// This invocation's share of a chunk: for each part of it as many values as values_of() says.
  virtual Values fetch(const Operand& o, Value chunk) = 0;
  virtual size_t values_of(const Operand& o) const = 0;
  /// Puts the shares, which begin at in[from], into the tiles, for all to read.
  virtual void put(const Values& in, size_t from, Value chunk) = 0;
  virtual void multiply(Values& sums, Value chunk) = 0;
  /// What comes between the first fetches and the loop.
  virtual void before_chunks() {}
  /// What starts behind the barrier of the only chunk, before it is multiplied.
  virtual void meanwhile() {}

  /// `sums` and all chunks' products. The first chunk of the next step is on its way behind it, where that is early.
  Values over_chunks(Values sums);
  /// Registers of the result along each of its dims.
  std::vector<int> counts() const;
  NestPoint point(const std::vector<int>& regs);

  /// Item r of this invocation among n that the group shares out; x.valid: there is one.
  Value item(int64_t r, int64_t n, Fetched& x);
  /// Where the operand's part of this strip begins along its free dim.
  Value strip_start(const Operand& o);
  bool overhangs(const Operand& o) const;
  /// Whether the last chunk hangs over.
  bool k_ends() const { return d_.depth % tk_ != 0; }
  /// `first` + behind, or the last of n where that is less; neighbours stay neighbours where n does not part them.
  Value at_most(Value first, int64_t behind, int64_t width, int64_t n);
  /// Coordinates of this strip's first element; the contracted ones are still to come.
  Coords base_coords();
  /// The element at these coordinates and k.
  Value element_at(const Operand& o, Coords c, Value k);

  const DotShape& d_;
  const DotEmitter::Sink& sink_;
  const size_t rank_, row_, col_;  // the dims that have registers
  const AxisPlan &rows_, &cols_;
  const int64_t tk_, chunks_;  // elements of k in a chunk; chunks
  Operand lhs_, rhs_;
  std::vector<Value> strip_;
  /// The first chunk stands before the loop over the others. Mesa's compiler for NVIDIA gives the elements of a matrix
  /// that a loop carries from zeros one register each, wherever one is free, and moves them to four in a row and back
  /// for each product; what a product made stays in a row.
  bool first_apart_ = false;

 private:
  size_t held_by(const Operand& o) const { return o.share.size() * values_of(o); }
  void append_first(Values& carried, const Operand& o);
  Values following(const Operand& o, Value chunk, Value last);
};

}  // namespace tessera::lowering
