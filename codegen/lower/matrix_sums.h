// MatrixSums: sums of products that stay matrices of a subgroup from one dot to the next, in scratch, blocks and
// carried values that live in registers. Each row may be multiplied by a factor on the way. Where anything but a dot
// reads them, each invocation gets the elements of its layout through memory of its own subgroup. Read next:
// dot.h.
#pragma once
#include <map>
#include <optional>

#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

// Words behind each row of a tile or of sums, against bank conflicts; rows stay aligned to 16 bytes.
constexpr int64_t kRowPad = 4;
constexpr int64_t kMostColumns = 64;  // of sums that pass through memory at once

/// A tile value as matrices: of these axes' parts, rows by columns of them. A subgroup has whole rows.
struct MatrixForm {
  MatrixShape shape;
  int rows = kNoAxis, cols = kNoAxis;
  DType dtype = DType::f32;
  bool lanes = false;  // the axes' layout is what lanes hold of matrices
  bool operator==(const MatrixForm&) const = default;
};

class MatrixSums : public Part {
 public:
  using Part::Part;
  void choose();                        ///< which values and Refs, once it is decided what lives in registers
  const MatrixForm* of(Value v) const;  ///< null: it is no matrices
  const MatrixForm* of_ref(int ref) const;
  void explain(std::vector<std::string>& remarks) const;

  Values to_registers(const MatrixForm& f, const Values& sums);
  /// The same, each register as soon as it is there: body(number, value).
  void hand_out(const MatrixForm& f, const Values& sums, FunctionRef<void(size_t, Value)> body);
  /// The same by loops over vectors of columns: body(number, behind, value) is for all registers of a piece that are a
  /// whole number of vectors behind register `number`, which for this iteration is `behind` columns (i32).
  void hand_out_in_loops(const MatrixForm& f, const Values& sums, FunctionRef<void(size_t, Value, Value)> body);
  Values from_registers(const MatrixForm& f, const Values& registers);
  Values filled(const MatrixForm& f, uint64_t bits);
  Values left_of_registers(const MatrixForm& f, const AxisPlan& k, const Values& elements);
  /// The matrices of a value that has the form, perhaps with a factor for each row, or is one element everywhere.
  Values evaluate(Value v, const MatrixForm& f);
  /// Whether evaluate() gives it from matrices.
  bool from_matrices(Value v, const MatrixForm& f) const;

  /// Gives registers to what computing `roots` reads; for as long as they are not forgotten, which is done where the
  /// region ends.
  void settle(const std::vector<Value>& roots);
  void settle(const ir::Op& o);
  size_t settled() const { return settled_.size(); }
  void forget(size_t from);
  /// Matrices under each other in each subgroup.
  int64_t down(const MatrixForm& f) const;
  /// The row of the first matrix that this invocation's first register is of, and how far behind it register r is.
  Value own_row(const MatrixForm& f);
  int64_t row_behind(const MatrixForm& f, int r) const;

 private:
  Value of_lane(const Values& held, ir::MatrixUse use, DType t, int64_t cols);
  /// body(register, matrix, element of it)
  void each_lane_register(const MatrixForm& f, FunctionRef<void(size_t, size_t, size_t)> body);
  struct Exchange;
  Exchange make_exchange(const MatrixForm& f);
  Value own_place(const MatrixForm& f, const Exchange& x);
  void put_piece(const MatrixForm& f, const Exchange& x, const Values& sums, size_t at);
  /// An index function that multiplies sums by factors.
  struct Scaled {
    Value sums, factors;
  };
  std::optional<Scaled> scaled(Value v, const MatrixForm& f) const;
  bool same_along(Value v, size_t dim) const;
  Values factors(Value v, const MatrixForm& f);
  void read_by_dot(Value start, const MatrixForm& f, std::vector<Value>& reads) const;
  template <class F> void each_piece(const MatrixForm& f, const Exchange& x, const F& body);

  bool starts_a_dot(Value v, const MatrixForm& f) const;
  bool holds(Value v, const MatrixForm& f) const;  // or is one element everywhere
  void propose();
  bool ref_may(int ref, const MatrixForm& f) const;
  bool value_may(Value v, const MatrixForm& f) const;
  bool carried_may(const ir::Op& loop, size_t i, const MatrixForm& f) const;

  std::map<uint32_t, MatrixForm> values_;
  std::map<int, MatrixForm> refs_in_;
  std::vector<Value> settled_;
};

}  // namespace tessera::lowering
