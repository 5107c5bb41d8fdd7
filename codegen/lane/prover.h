// Prover: proofs that integers of the lane level are not negative, from the ops that make them alone: constants, sums
// and products with constants, min, max, select, the bounds of loops, conditions that hold, and relations between sizes
// that arrive with the call. It does not use the tile level's analyses, so that no mistake there can lead outside an
// array. Read next: RefWindows::address in lower/accesses.cpp.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lane {

class Prover {
 public:
  /// What holds where a value is made or an access stands: low <= v < end, and v is low plus a multiple of step.
  /// Without an end nothing is known of it.
  struct Between {
    ir::Value v, low, end, step = {};
  };
  /// A bool that is true there, or false.
  struct Condition {
    ir::Value v;
    bool holds;
  };
  using Term = std::pair<int64_t, ir::Value>;  // a factor; no value: 1

  explicit Prover(const ir::Kernel& lanes) : k_(lanes) {}
  /// Holds as long as `v` is in scope: a loop's counter, an invocation's part of the work.
  void between(const Between& b);
  /// Proved: the sum is at least 0 wherever `conditions` hold and the loops of `scope` run. The sum itself is exact,
  /// its values wrap as their dtypes do.
  bool not_negative(const std::vector<Term>& sum, const std::vector<Condition>& conditions,
                    const std::vector<Between>& scope);

 private:
  struct Interval {
    __int128 lo, hi;
  };
  /// Sum of factor * atom, atoms in ascending order, and a constant. Atoms are lane values, or from kSizes on sizes by
  /// their text.
  struct Form {
    std::vector<std::pair<uint32_t, __int128>> terms;
    __int128 constant = 0;
  };
  static constexpr uint32_t kSizes = uint32_t{1} << 31;

  static bool small(const Form& f);
  static Form plus(const Form& a, const Form& b, __int128 factor);
  const Form& form(ir::Value v);
  Form compute(ir::Value v);
  Form exact_or_atom(ir::Value v, Form f);
  std::optional<Form> unwrapped(ir::Value v);
  Form last(const Between& b);
  /// `with` in place of the atom.
  static Form replaced(const Form& f, uint32_t atom, const Form& with);
  std::optional<Form> without_digit(const Form& f, uint32_t atom);
  Interval range(uint32_t atom);
  Interval compute_range(uint32_t atom);
  Interval range(const Form& f);
  Form size(const Extent& e, size_t node);
  uint32_t size_atom(const Extent& e, size_t node);
  const std::vector<Form>& facts(ir::Value condition, bool holds);
  bool prove(const Form& f, const std::vector<const Form*>& facts, int depth);
  /// A sum that is to be proved, and the same without its term c * atom.
  struct Step {
    const Form &sum, &without;
    uint32_t atom;
    __int128 c;
  };
  bool prove_by_maker(const Step& step, const std::vector<const Form*>& facts, int depth);

  const ir::Kernel& k_;
  std::unordered_map<uint32_t, Between> between_;
  std::unordered_map<uint32_t, Form> forms_;
  std::unordered_map<uint32_t, Interval> ranges_;
  std::map<std::string, uint32_t> sizes_;
  std::unordered_map<uint32_t, Interval> size_ranges_;
  std::deque<Form> size_facts_;  // proofs hold pointers while more are added
  std::map<std::pair<uint32_t, bool>, std::vector<Form>> facts_;
  int steps_ = 0;
};

/// Accesses to arrays of static size that are not proved to lie inside of them.
std::vector<ir::OpId> unproved_accesses(const ir::Kernel& lanes);
/// Moves each of `unproved_accesses` to the nearest element of its array: passes may have used facts that the
/// kernel no longer shows. With `speculated` (codegen/bounds.md) all loads that would leave their
/// memory in a branch that is not taken, or in a loop behind its last iteration. True if anything changed.
bool bound_accesses(ir::Kernel& lanes, bool speculated);

}  // namespace tessera::lane
