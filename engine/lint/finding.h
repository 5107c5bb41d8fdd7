// What the parts of lint.cpp share: where the blocks of a program lie, and how findings are collected.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "engine/base/extent.h"
#include "engine/ir/kernel.h"
#include "engine/passes/programs.h"

namespace tessera::lint {

/// So many programs of a grid are looked at.
inline constexpr int64_t kMostPrograms = 1 << 16;

/// A kernel with its sizes, and the findings so far.
struct Context {
  const ir::Kernel& k;
  std::vector<Shape> arrays;  // of the blocks
  std::vector<int64_t> grid;
  std::vector<std::string> findings;
  std::set<std::string> seen = {};

  /// Each text once.
  void report(const std::string& what, Loc loc, const std::string& note);
  /// "program (i = 2, 0)"
  std::string program(const std::vector<int64_t>& at) const;
  /// "in_specs[0]", "scratch_shapes[1]", "run_scoped[0]".
  std::string ref(ir::Value ref) const;
};

/// Along one dim of an array: the block's elements are start to start + size, of which those in the array count.
struct Place {
  int64_t start = 0, size = 0;
  bool seen = true;     // a dim of the Ref
  bool no_end = false;  // a halo dim: what lies outside of the array is specified as well
};
/// Where block i is for the current program, wrapped and clamped as at run time. Nothing if data decides it.
std::optional<std::vector<Place>> place_of(const Context& c, passes::Programs& programs, size_t i);

/// The elements [first, end) per dim.
struct Box {
  std::vector<std::pair<int64_t, int64_t>> dims;
  bool empty() const;
  bool meets(const Box& o) const;
  auto operator<=>(const Box&) const = default;
};
/// Where the access begins along dim d of its Ref; nothing where it is an array of positions, where data decides, or
/// where the window does not fit (then it moves, or under a mask does not).
std::optional<int64_t> start_of(const ir::Kernel& k, passes::Programs& programs, const ir::Op& op, size_t d);
/// The elements that op may access of a Ref with this shape, whose dims lie in the array as `places` says; a box around
/// them, cut to the array.
Box box_of(const ir::Kernel& k, passes::Programs& programs, const ir::Op& op, const Shape& array,
           const std::vector<Place>& places);

/// A load that sees memory before anything is stored there: if what it finds is stored, that is a finding.
struct EarlyLoad {
  std::vector<int64_t> program;
  ir::OpId load;
  std::string what;
  std::string note;
};
void find_coverage(Context& c, std::vector<EarlyLoad>& early);
void find_unspecified(Context& c, const std::vector<EarlyLoad>& early);

}  // namespace tessera::lint
