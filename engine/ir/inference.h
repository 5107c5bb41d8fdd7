// The rules of type inference as one class over an op; infer.cpp and infer_memory.cpp hold them. Internal to those two.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/plural.h"
#include "engine/ir/builder.h"

namespace tessera::ir {

class Inference {
 public:
  Inference(const Kernel& k, const Op& op, const Type& requested) : k_(k), op_(op), requested_(requested) {}
  std::vector<Type> run();

 private:
  const Kernel& k_;
  const Op& op_;
  const Type& requested_;
  const Type i32_ = Type::array(DType::i32);

  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
    throw TraceError(k_.name + ": " + std::string(name(op_.code)) + ": " + what, op_.loc, note);
  }
  const Type& type(size_t operand) const { return k_.type(op_.operands[operand]); }
  void count(size_t wanted) const;
  void regions(size_t wanted) const;
  /// An operand that must be an array, not a Ref.
  const Type& array(size_t operand) const;
  const std::vector<int64_t>& ints(Attr a) const;
  int64_t attr(Attr a) const;
  int64_t flag(Attr a) const;
  void in_range(const char* what, int64_t v, size_t rank) const;
  void check_requested() const;
  void scalar(size_t operand, DType t, const char* what) const;

  void check_size(const Type& t) const;

  void check_dtype(OperandRule rule, DType t) const;

  std::vector<Type> elementwise() const;
  template <class F> std::string each(size_t first, F print) const {
    std::string s;
    for (size_t i = first; i < op_.operands.size(); ++i)
      s += (i == first ? "" : i + 1 == op_.operands.size() ? " and " : ", ") + print(type(i));
    return s;
  }

  // -- values
  std::vector<Type> constant() const;
  std::vector<Type> iota() const;
  std::vector<Type> broadcast() const;
  std::vector<Type> reshape() const;
  std::vector<Type> transpose() const;
  std::vector<Type> slice() const;
  std::vector<Type> concatenate() const;
  void dims_of(const Type& t, const char* side, const std::vector<int64_t>& contract,
               const std::vector<int64_t>& batch) const;
  std::vector<Type> dot() const;
  std::vector<Type> reduce() const;
  std::vector<Type> argument() const;
  /// Which dim of `at` (a gather's result, a scatter's updates) each dim of x follows, or -1 where the next index
  /// operand tells; true if all is well but for the operands' number, which is checked here too.
  void positions(const Type& x, const Shape& at, size_t first_index, const char* what) const;
  std::vector<Type> gather() const;
  std::vector<Type> scatter() const;
  std::vector<Type> sort() const;
  std::vector<Type> rev() const;
  void sorted_axes(const Type& t) const;
  std::vector<Type> scan() const;
  std::vector<Type> grid_index() const;
  std::vector<Type> size() const;

  // -- memory
  /// Checks everything but the stored value and returns the shape that the index selects.
  Shape access(size_t before_mask, std::optional<DType> as = std::nullopt) const;
  void bounds(size_t d, const Index& x, int64_t dim, bool mask, const std::string& role = {}) const;
  std::vector<Type> load() const;
  Type stored() const;
  std::vector<Type> vector() const;
  void vector_store() const;
  Type atomic() const;

  void text(size_t first) const;

  // -- semaphores and copies
  std::vector<Type> semaphore() const;
  void copy() const;
  std::vector<Type> run_scoped() const;

  // -- kernels of threads
  /// The shapes that the op's index selects of the Refs that it names.
  std::vector<Shape> places(const std::vector<const char*>& roles) const;
  void in_space(size_t operand, const char* role, MemorySpace wanted) const;
  void one_barrier(size_t operand, const Shape& shape) const;
  void cluster_axes(const std::vector<int64_t>& axes) const;
  void copies_elements(const Shape& source, const Shape& target) const;
  void thread_copy() const;
  void wgmma() const;
  void thread_op() const;

  // -- control flow
  const Op& terminator(size_t region) const;
  template <class Values> std::string types(const Values& values) const {
    std::string s = "(";
    for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + to_string(k_.type(values[i]));
    return s + ")";
  }
  std::string types(const std::vector<Type>& list) const;
  bool match(const std::vector<Value>& values, const std::vector<Type>& wanted) const;
  void region_takes(size_t region, const std::vector<Type>& wanted) const;
  void region_yields(size_t region, const std::vector<Type>& wanted) const;
  std::vector<Type> carries(size_t first) const;
  std::vector<Type> for_loop() const;
  std::vector<Type> while_loop() const;
  std::vector<Type> choice(bool is_if) const;

  // -- lane level
  std::vector<Type> alloc(MemorySpace space) const;
  std::vector<Type> subgroup(size_t operands) const;
  std::vector<Type> packed() const;
  std::vector<Type> matrix() const;
  std::vector<Type> warpgroup() const;
  std::vector<Type> of_lanes() const;

  std::vector<Type> structured() const;
};

}  // namespace tessera::ir
