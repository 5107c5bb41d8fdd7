// Views of Refs, composed while tracing: an access through x.at(...), x.reshape(...), x.transpose(...) and
// x.bitcast(...) becomes accesses of the Ref that the body got. A Selection says which elements an access takes, as one
// position per dim of a Ref in terms of the access's own dims; carrying it back through a view gives the positions in
// the viewed Ref. Positions that are no slice there become index arrays. ref.cpp makes the first Selection from an
// index and emits the final load or store.
#pragma once
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/front/ref.h"
#include "engine/front/trace.h"

namespace tessera {

/// One step from a Ref to a view of it, and the shape and dtype that it starts from.
struct RefTransform {
  /// Of a dim of the Ref: one position, positions start, start + step, ..., or an array of positions. Dynamic ones are
  /// in range already.
  struct Integer {
    std::variant<int64_t, Value> at;
  };
  struct Slice {
    std::variant<int64_t, Value> start;
    int64_t size, step;
  };
  struct Array {
    Value positions;
  };
  using Dim = std::variant<Integer, Slice, Array>;
  struct Index {
    std::vector<Dim> dims;
  };
  struct Reshape {};
  struct Bitcast {};
  struct Transpose {
    std::vector<int64_t> perm;
  };
  std::variant<Index, Reshape, Bitcast, Transpose> what;
  Shape shape;
  DType dtype;

  bool is_bitcast() const { return std::holds_alternative<Bitcast>(what); }
};

/// A number plus i32 scalars times numbers.
struct Offset {
  int64_t at = 0;
  std::vector<std::pair<ir::Value, int64_t>> terms = {};
  Offset scaled(int64_t factor) const;
  Offset plus(const Offset& o) const;
};

/// Where along one dim of a Ref.
struct Position {
  struct Fixed {
    Offset start = {};
  };
  /// At start + step * the number of the element along `loops` (row-major), one or more of them.
  struct Slice {
    Offset start = {};
    int64_t step = 1;
    std::vector<int> loops = {};
  };
  /// At array[loops].
  struct Array {
    ir::Value array = {};  // i32, a dim per loop
    std::vector<int> loops = {};
  };
  std::variant<Fixed, Slice, Array> what = Fixed{};

  static Position fixed(Offset o) { return {Fixed{std::move(o)}}; }
  static Position slice(Offset start, int64_t step, std::vector<int> loops) {
    return {Slice{std::move(start), step, std::move(loops)}};
  }
  static Position array(ir::Value v, std::vector<int> loops) { return {Array{v, std::move(loops)}}; }
  const Fixed* fixed() const { return std::get_if<Fixed>(&what); }
  Slice* slice() { return std::get_if<Slice>(&what); }
  const Slice* slice() const { return std::get_if<Slice>(&what); }
  const Array* array() const { return std::get_if<Array>(&what); }
  /// Null of an array.
  const Offset* start() const;
  /// None where it is fixed.
  const std::vector<int>& loops() const;
  bool uses(int loop) const;
};

class Selection {
 public:
  /// Of an index as ir::Op has it (entries, dynamic starts and arrays in `starts`) into a Ref of this shape. `masked`
  /// and `writes` say what becomes of positions outside (engine/language.md); `inside` then holds the tests that an
  /// element must pass.
  Selection(Emit& e, const std::vector<ir::Index>& index, const std::vector<ir::Value>& starts, const Shape& shape,
            bool masked, bool writes);

  /// From positions in the view to positions in what it views: all but bitcasts that change the width.
  void undo(const RefTransform& t, const Shape& view, bool writes);
  /// The position along a dim whose elements are `ratio` parts of one of the dim before: that one's, and the part.
  std::pair<Position, Position> split(const Position& p, int64_t size, int64_t ratio);

  Shape sizes() const { return sizes(order); }
  Shape sizes(const std::vector<int>& loops) const;
  /// v, whose dims are `from`, over `to`: transposed and repeated.
  ir::Value expand(ir::Value v, const std::vector<int>& from, const std::vector<int>& to);
  /// The positions as an i32 array over `to`.
  ir::Value positions(const Position& p, const std::vector<int>& to);
  ir::Value reshape(ir::Value v, const Shape& shape);
  /// start + step * p
  static Position affine(Emit& e, const Position& p, const Offset& start, int64_t step);

  /// What an op of IR takes: its index, the operands that this points at, and the loops of the value's dims in order.
  struct Access {
    std::vector<ir::Index> index;
    std::vector<ir::Value> starts;
    std::vector<int> loops;
    Shape shape;
  };
  Access access(bool writes);
  std::vector<int> common(const std::vector<int>& loops) const;  ///< in the order of `order`
  /// v over `over` in the shape of the access's value; nothing may vary along loops that the access has not.
  ir::Value to_memory(ir::Value v, const std::vector<int>& over, const Access& a);
  ir::Value from_memory(ir::Value v, const Access& a) { return expand(reshape(v, sizes(a.loops)), a.loops, order); }
  /// All of `inside` that does not vary along other loops than these, over them; none if there is nothing to hold.
  ir::Value condition(const std::vector<int>& over);
  /// The access at element `i` of a loop that no position uses.
  Selection without(int loop, int64_t i) const;
  /// that part of a value over `loops`
  ir::Value take(ir::Value v, const std::vector<int>& loops, int loop, int64_t i) const;

  std::vector<Position> at;   // per dim of the Ref
  std::vector<int> order;     // the loops of the access, outermost first
  std::vector<int64_t> size;  // by loop
  // bool arrays over loops: what must hold of an element
  std::vector<std::pair<std::vector<int>, ir::Value>> inside = {};

 private:
  int new_loop(int64_t n);
  ir::Value scalar(const Offset& o);
  ir::Value number(int64_t n, const Shape& s = {}) { return e_.builder().constant_int(DType::i32, n, s); }
  ir::Value wrapped(ir::Value v, int64_t n);
  ir::Value clamped(ir::Value v, int64_t most);
  void test(ir::Value v, const std::vector<int>& loops, int64_t n);
  Position settle(const Position& p, int64_t n, bool wrap, bool drop);
  Position compose(ir::Value array, const std::vector<Position>& of);
  ir::Value flat_number(const std::vector<Position>& of, const Shape& shape, const std::vector<int>& loops);
  void undo_index(const RefTransform::Index& t, const Shape& to, bool writes);
  void undo_reshape(const Shape& to, const Shape& view);
  std::vector<Position> regroup(const std::vector<Position>& from, const Shape& view, const Shape& to);
  bool digits(Position::Slice flat, const Shape& to, std::vector<Position>& out);
  std::vector<int> cut(std::vector<int>& loops, int64_t inner);
  int64_t count(const std::vector<int>& loops) const;
  std::vector<int> sorted(const std::vector<Position>& list) const;

  Emit& e_;
};

/// Whether an index of integers and slices is one of `shape`, after integers have become slices of 1 or those integers:
/// a dim of size 1 may be any of the Ref's of which one position is taken.
bool selects(std::vector<ir::Index>& index, const Shape& shape);

}  // namespace tessera
