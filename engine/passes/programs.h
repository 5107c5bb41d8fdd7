// Programs: what a program's place in the grid decides. Integer scalars that follow from its ids, the branches that it
// takes, how often a loop runs, and where its blocks start; one program after another, at the tile level. Memory
// is not followed: what a kernel loads is unknown. Read next: ranges.h, which bounds the values of all programs at
// once.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::passes {

/// How often a program does something: this often, or if it is not exact, this often at least.
struct Times {
  int64_t least = 1;
  bool exact = true;
};

class Programs {
 public:
  /// `grid` has one size per axis.
  Programs(const ir::Kernel& k, std::vector<int64_t> grid);
  /// How many there are; INT64_MAX for more.
  int64_t count() const { return count_; }
  const std::vector<int64_t>& program() const { return at_; }
  void move_to(std::vector<int64_t> program);
  /// Calls f() for every program, in the grid's order, as long as it returns true.
  template <class F> void each(const F& f) {
    if (count_ == 0) return;
    for (std::vector<int64_t> at(grid_.size(), 0);;) {
      move_to(at);
      if (!f()) return;
      size_t d = grid_.size();
      while (d > 0 && ++at[d - 1] == grid_[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  /// An integer or bool scalar of this program, if its place decides it.
  std::optional<int64_t> value(ir::Value v);
  /// The region that an if or switch takes, counted from 0 (of an if without else, one may not be there).
  std::optional<size_t> taken(const ir::Op& branch);
  /// How often a for runs.
  std::optional<int64_t> iterations(const ir::Op& loop);
  /// What the index map yields, as it is: neither wrapped nor clamped. Nothing if something else decides it.
  std::optional<std::vector<int64_t>> map(const ir::BlockMapping& b);
  /// Calls f(op, times) for every op of the body that this program may do, in order; an op of control flow comes before
  /// its regions. Regions for which `wanted(region)` is false are left out.
  template <class F, class W> void visit(const F& f, const W& wanted) { visit(k_.body, {}, f, wanted); }
  template <class F> void visit(const F& f) {
    visit(f, [](ir::RegionId) { return true; });
  }

 private:
  template <class F, class W> void visit(ir::RegionId r, Times times, const F& f, const W& wanted) {
    if (!wanted(r)) return;
    for (const ir::OpId id : k_.region(r).ops) {
      f(id, times);
      const ir::Op& op = k_.op(id);
      for (size_t i = 0; i < op.regions.size(); ++i)
        if (const Times inner = times_of(op, i, times); inner.least > 0 || !inner.exact)
          visit(op.regions[i], inner, f, wanted);
    }
  }
  /// How often region i of an op runs that itself runs so often; the counter of a loop that runs once becomes known.
  Times times_of(const ir::Op& op, size_t i, Times times);
  std::optional<uint64_t> compute(ir::Value v) const;
  void set(ir::Value v, std::optional<int64_t> n);

  struct Known {
    uint64_t epoch = 0;
    std::optional<uint64_t> bits;
  };
  const ir::Kernel& k_;
  std::vector<int64_t> grid_, at_;
  int64_t count_ = 1;
  uint64_t epoch_ = 0;  // of what is known: of one program
  std::vector<Known> known_;
};

}  // namespace tessera::passes
