// DotEmitter: products, in the form that the schedule planned or, if a product does not have that form, as reductions.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "codegen/lower/matrix_sums.h"
#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

struct DotShape {
  Value lhs, rhs, start;  // start: none for zeros
  Shape result;           // batch, rows (lhs free), columns (rhs free)
  std::vector<int> result_axes;
  size_t batch = 0, rows = 0, cols = 0;  // how many dims of each
  Shape k;                               // contracted dims
  std::vector<int> k_axes;
  int64_t depth = 1;  // elements contracted
  DType acc = DType::f32;
  /// Four elements of 8 bits along the contracted dims in a word: dtypes of elements (i8, u8) and of words.
  struct Packed {
    DType lhs_element, rhs_element, lhs_word, rhs_word;
    // Both operands are signed, and the device multiplies signed elements by unsigned ones alone: the left tile has
    // each element plus 128. The sums of the right one's columns, 128 times, are made beside the products and
    // subtracted.
    bool moved = false;
  };
  std::optional<Packed> packed;  // staged like that
  bool moved() const { return packed && packed->moved; }
  std::vector<size_t> lhs_dims, rhs_dims;  // operand dim -> position in [result dims..., k dims...]
  // One element of an operand, in the accumulator's dtype, or as it is packed; c: [result dims..., k dims...].
  Function<Value(const Coords&)> lhs_at, rhs_at;
  // What element c of the result starts from; c: [result dims...].
  Function<Value(const Coords&)> start_at;
  // Of a product by matrices: the left operand, packed as its matrices want it, where it was in registers.
  Slot lhs_tile;
  Values left;  // or those matrices
  // The sink takes elements as they come, and where none hangs over, in loops: all read the same of registers.
  bool any_order = false, in_loops = false;
};

class DotEmitter : public Part {
 public:
  using Part::Part;
  void emit(ir::OpId id);
  DotShape shape_of(const ir::Op& o) const;
  bool is_wide(const DotShape& d) const;  ///< it has the form that the schedule planned for wide ones
  DotForm form_of(const DotShape& d) const;
  std::optional<MatrixForm> matrix_form(const DotShape& d) const;  ///< of a product that is made of matrices
  bool reads_in_place(const ir::Op& dot) const;                    ///< its operands, wherever their layout puts them
  /// Elements along the contracted dims that a word of a staged tile holds; those of a chunk.
  static int64_t per_word(const DotShape& d) { return d.packed ? 4 : 1; }
  int64_t chunk(const DotShape& d) const;
  /// How a chunk of an operand is dealt to invocations: items of `width` neighbours in memory, along k or across it.
  struct MatrixShare {
    bool by_k = false;
    int64_t width = 1, items = 0, words = 0;  // words: for each invocation
  };
  bool keeps_order(const MatrixForm& form) const;  ///< tiles may lie as memory has them
  bool by_warpgroups(const MatrixForm& form) const;
  MatrixShare matrix_share(const DotShape& d, const MatrixForm& form, int operand) const;
  /// Elements along the contracted dim that pass through the tiles at once.
  int64_t matrix_depth(const DotShape& d, const MatrixForm& form) const;
  /// Before a loop with this body: makes the left matrices of its products whose left operand it does not change. They
  /// are used in the loop's products, until drop_left() with the same body.
  void keep_left(ir::RegionId body);
  void drop_left(ir::RegionId body);
  const Values* kept_left(ir::OpId dot) const;
  /// Of products in a loop's body, each of one chunk, right operands are loaded while the product before is made; the
  /// first one's while the last one of the iteration before is. These are what the loop carries for that: what the
  /// first iteration finds; this iteration's, before its body; the next one's, behind it.
  Values load_first(const ir::Op& loop, Value lower);
  void enter_loop(const ir::Op& loop, Value upper, Value step, const Values& carried);
  Values leave_loop(const ir::Op& loop);
  void load_ahead(ir::OpId dot);    ///< what is loaded while that one is made
  Values take_ahead(ir::OpId dot);  ///< its own; nothing: it has to load it itself
  /// words of an operand's chunk that each invocation fetches
  int64_t staged_share(const DotShape& d, int operand) const;

  using Sink = Function<void(const NestPoint&, Value)>;
  /// packed: a and b are words of four elements each
  Value multiply_add(Value a, Value b, Value c, bool packed = false);

 private:
  void pack(DotShape& d) const;
  /// Operands that go through the arena first, where their own layout cannot give what the form asks for; `tile`: the
  /// left one at once as its subgroups' matrices.
  struct Staged {
    bool lhs = false, rhs = false, start = false, tile = false;
  };
  Function<Value(const Coords&)> reader(Value x, const std::vector<size_t>& dims, const Slot* from, DType as);
  bool left_stays(ir::OpId dot, const DotShape& d, const std::set<uint32_t>& changed) const;
  bool own_rows(const DotShape& d) const;
  bool is_left_factor(const DotShape& d) const;
  Values own_elements(const DotShape& d);
  Slot to_tile(const DotShape& d);
  Staged staged_operands(const DotShape& d, DotForm form) const;
  bool computed_often(const DotShape& d, Value x, size_t from, size_t dims) const;
  void by_shuffle(const DotShape& d, const Sink& sink);
  void by_stages(ir::OpId id, const DotShape& d, const Sink& sink);
  /// keep: gets the sums as matrices; null: sink gets each
  void by_matrices(ir::OpId id, const DotShape& d, Values* keep, const Sink& sink);
  void to_store(ir::OpId id, DotShape& d, const std::vector<MemoryRange>& reads, const ir::Op& store);
  void by_reduction(const DotShape& d, bool to_registers, const Sink& sink);

  /// A product whose right operand is loaded ahead: from what follows of the loop's counter alone.
  struct Ahead {
    ir::OpId dot;
    std::set<uint32_t> scalars = {};  // ops of the loop's body that say where
  };
  bool follows_from(ir::RegionId body, Value root, std::set<uint32_t>& scalars) const;
  std::vector<Ahead> loaded_ahead(ir::RegionId body) const;
  Values right_words(const Ahead& a, ir::RegionId body, Value counter);
  /// Of the loop around, if it has such products.
  struct AheadLoop {
    ir::RegionId body;
    std::vector<Ahead> products;
    Value next = {};  // the next iteration's counter; the last one's: its own
  };
  std::vector<AheadLoop> ahead_loops_;
  std::map<uint32_t, Values> ahead_;  // by dot
  std::map<uint32_t, Values> left_;   // by dot: k by k, for each register of the rows
};

}  // namespace tessera::lowering
