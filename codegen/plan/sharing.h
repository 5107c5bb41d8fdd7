// How the invocations of a GPU's workgroup share a nest: how many of them make one result together where axes are
// dropped, how many elements one access brings, which axis is the fastest in memory. Read next: sharing.cpp;
// schedule.cpp turns the numbers into layouts.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "codegen/plan/axes.h"
#include "codegen/plan/schedule.h"

namespace tessera::lowering {

/// The loops over one root's elements, as far as layouts depend on them.
struct Nest {
  std::vector<int> kept;     // axes of the result, outermost first
  std::vector<int> reduced;  // axes dropped or scanned, outermost first
  std::vector<int> order;    // as the operand has them: the last is the fastest in memory; of a dot: the result's
  const ir::Op* dot = nullptr;
  int64_t bytes = 4;  // of an element as it is read
  double work = 1;
  // the axis that is the fastest in memory of what is read, where that is not the fastest of what is stored
  int transposed = kNoAxis;
};

/// Elements of a row that an invocation keeps from one reduction to the next.
inline constexpr int64_t kInRegisters = 32;
/// Terms of a product that are worth a share of one's own.
inline constexpr int64_t kTermsOfAPart = 8;

/// The axes that there are, in their order.
std::vector<int> drop_none(const std::vector<int>& axes);
ir::Value larger_operand(const ir::Kernel& k, const ir::Op& dot);

class Sharing {
 public:
  using Wanted = std::map<int, int64_t>;  // invocations, by axis; others: as many as it has elements

  /// The schedule is read as it grows; `nests` are all of the kernel's, `placed` the axes of values that have a place
  /// of their own.
  Sharing(const ir::Kernel& k, const Axes& axes, const Target& target, const Schedule& s,
          const std::vector<Nest>& nests, const std::set<int>& placed)
      : k_(k), axes_(axes), target_(target), s_(s), nests_(nests), placed_(placed) {}
  /// All axes of a nest as what it reads has them, the fastest in memory last.
  std::vector<int> order_of(const Nest& n) const;
  /// Of loads behind a value that is stored, the fastest axis, where all have another one than the store (`order`'s
  /// last); else none.
  int transposed_axis(ir::Value stored, const std::vector<int>& order) const;
  /// Elements along its fastest axis that one access brings: of 128 bits where it can.
  int64_t vector_of(int a) const;
  /// Windows overlap along it, as a filter's taps do, and no access brings several of its elements.
  bool only_tapped(int a) const;
  /// Of columns that workgroups share: as many as leave enough of them, but at least a word.
  int64_t vector_of_columns(const Nest& n, int a) const;
  /// Of axes that have no layout yet. All of the group work: invocations that kept axes do not use go to dropped ones.
  Wanted wanted(const Nest& n, const std::vector<int>& order) const;
  /// Layouts of a reduction over pairs whose parts are joined behind a loop: two elements of the kept axis to an
  /// invocation, which shares the others with those of other subgroups. None: the group or the axis is too small.
  std::optional<std::pair<AxisPlan, AxisPlan>> of_pairs(const Pairs& p) const;
  /// Invocations of a group that has two axes to read and store by lines: those along the fastest one, and the others.
  std::pair<int64_t, int64_t> square(const Nest& n, int64_t group) const;
  /// The largest group that keeps a row of this nest in registers, if its rows are read again and the usual one cannot.
  int64_t group_for_rows(const Nest& n, int64_t usual, int64_t limit) const;

 private:
  const Axis& axis(int a) const { return axes_.axes[static_cast<size_t>(a)]; }
  const AxisPlan& plan(int a) const { return s_.plans[static_cast<size_t>(a)]; }
  bool open(int a) const { return a != kNoAxis && !plan(a).laid_out && !axis(a).mixed && axis(a).extent > 0; }
  int64_t units() const;
  int64_t busy() const;
  int64_t results(const Nest& n) const;
  bool read_again(const Nest& n) const;
  int64_t worth_joining(const Nest& n, int64_t size, int64_t mine) const;
  int64_t of_a_row(const Nest& n, int fastest, int64_t rows, int64_t group) const;
  int64_t columns_of(const Nest& n, int fastest, int64_t group) const;
  int64_t of_a_column(const Nest& n, int64_t size, int64_t columns, int64_t rows, int64_t vec, int64_t group) const;

  const ir::Kernel& k_;
  const Axes& axes_;
  const Target& target_;
  const Schedule& s_;
  const std::vector<Nest>& nests_;
  const std::set<int>& placed_;
};

}  // namespace tessera::lowering
