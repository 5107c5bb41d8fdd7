// What the programs of a grid store, as boxes of elements: outputs with elements that no program stores, memory that is
// read before, and Element blocks that a map puts where none fits. Boxes of stores may be too large and count as stored
// whole, so that what is reported is certain.
#include <algorithm>
#include <map>
#include <set>

#include "engine/base/plural.h"
#include "engine/lint/finding.h"

namespace tessera::lint {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::Value;

// Beyond, nothing is found out: ops looked at, cells of an array, boxes of one memory.
constexpr int64_t kWork = 1 << 22, kBoxes = 1 << 17;

/// Nothing where they are too many to count.
std::optional<int64_t> elements(const Shape& s) {
  int64_t n = 1;
  for (const int64_t d : s) {
    if (d > 0 && n > (int64_t{1} << 62) / d) return {};
    n *= d;
  }
  return n;
}

/// The elements of an array that no box has: how many, and the first.
struct Missing {
  int64_t count = 0;
  std::vector<int64_t> first;
};
/// Nothing where telling is too much work.
std::optional<Missing> missing(const Shape& array, const std::set<Box>& boxes) {
  if (!elements(array)) return {};
  if (*elements(array) == 0) return Missing{};
  // The boxes' bounds cut the array into cells, each of which is stored whole or not at all.
  std::vector<std::vector<int64_t>> bounds;
  int64_t cells = 1;
  for (size_t d = 0; d < array.size(); ++d) {
    std::vector<int64_t> b{0, array[d]};
    for (const Box& box : boxes) b.push_back(box.dims[d].first), b.push_back(box.dims[d].second);
    std::sort(b.begin(), b.end());
    b.erase(std::unique(b.begin(), b.end()), b.end());
    cells *= static_cast<int64_t>(b.size()) - 1;
    if (cells > kWork) return {};
    bounds.push_back(std::move(b));
  }
  std::vector<bool> stored(static_cast<size_t>(cells), false);
  int64_t work = 0;
  const auto each_cell = [&](const Box& box, const auto& f) {
    std::vector<size_t> from, to;
    for (size_t d = 0; d < array.size(); ++d) {
      const auto find = [&](int64_t n) {
        return static_cast<size_t>(std::lower_bound(bounds[d].begin(), bounds[d].end(), n) - bounds[d].begin());
      };
      from.push_back(find(box.dims[d].first)), to.push_back(find(box.dims[d].second));
    }
    for (std::vector<size_t> at = from;;) {
      size_t cell = 0;
      for (size_t d = 0; d < at.size(); ++d) cell = cell * (bounds[d].size() - 1) + at[d];
      f(cell, at);
      ++work;
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == to[d - 1]) --d, at[d] = from[d];
      if (d == 0) return;
    }
  };
  for (const Box& box : boxes) {
    each_cell(box, [&](size_t cell, const auto&) { stored[cell] = true; });
    if (work > kWork) return {};
  }
  Missing m;
  Box all;
  for (const int64_t n : array) all.dims.emplace_back(0, n);
  each_cell(all, [&](size_t cell, const std::vector<size_t>& at) {
    if (stored[cell]) return;
    int64_t n = 1;
    std::vector<int64_t> first;
    for (size_t d = 0; d < at.size(); ++d) {
      n *= bounds[d][at[d] + 1] - bounds[d][at[d]];
      first.push_back(bounds[d][at[d]]);
    }
    if (m.count == 0) m.first = std::move(first);
    m.count += n;
  });
  return m;
}

/// Memory whose contents are unspecified until something is stored there.
struct Memory {
  size_t block = SIZE_MAX;  // of outputs
  Shape shape;
  std::set<Box> stored = {};
  bool unknown = false;  // data decides where its block is: everything may be stored
  bool read_early = false;
};

class Coverage {
 public:
  Coverage(Context& c, std::vector<EarlyLoad>& early) : c_(c), k_(c.k), programs_(c.k, c.grid), early_(early) {
    const std::vector<Value>& args = k_.region(k_.body).args;
    for (size_t i = static_cast<size_t>(k_.num_inputs); i < k_.blocks.size(); ++i)
      if (k_.blocks[i].alias < 0) memory_[args[i]] = {i, c.arrays[i]};
    for (size_t i = 0; i < k_.scratch.size(); ++i)
      if (!ir::is_semaphore(k_.scratch[i].space)) memory_[args[k_.blocks.size() + i]] = {SIZE_MAX, k_.scratch[i].shape};
    for (const Value v : ir::scoped_refs(k_))
      if (!ir::is_semaphore(k_.type(v).space)) memory_[v] = {SIZE_MAX, k_.type(v).shape};
  }
  void find() {
    if (programs_.count() > kMostPrograms) return;
    programs_.each([&] {
      element_blocks();
      run();
      return work_ < kWork;
    });
    if (work_ >= kWork) return;
    for (const auto& [ref, m] : memory_)
      if (m.block != SIZE_MAX && !m.unknown) stored_by_nobody(m);
  }

 private:
  void stored_by_nobody(const Memory& m) {
    const ir::BlockMapping& b = k_.blocks[m.block];
    const auto left = missing(m.shape, m.stored);
    if (!left || left->count == 0) return;
    const int64_t all = *elements(m.shape);
    c_.report(b.origin + ": no program stores " +
                  (left->count == all ? "any of its " + plural(static_cast<size_t>(all), "element")
                                      : std::to_string(left->count) + " of its " + std::to_string(all) + " elements, " +
                                            to_string(left->first) + " the first") +
                  ": what is there comes back",
              b.loc, "store to every block, make the grid cover the array, or alias the output to an input");
  }
  /// The index map's result counts elements, and the block must fit into the padded array.
  void element_blocks() {
    for (size_t i = 0; i < k_.blocks.size(); ++i) {
      const ir::BlockMapping& b = k_.blocks[i];
      if (b.is_whole() ||
          std::none_of(b.block().begin(), b.block().end(), [](const auto& d) { return d.is_element(); }))
        continue;
      const auto given = programs_.map(b);
      if (!given) continue;
      for (size_t d = 0, at = 0; d < b.block().size(); at += b.block()[d++].results()) {
        if (!b.block()[d].is_element() || c_.arrays[i][d] == 0) continue;
        const ir::BlockDim& dim = b.block()[d];
        const int64_t last = *ir::last_index(dim, c_.arrays[i][d]).value(), v = (*given)[at];
        const int64_t there = ir::block_index(dim, v, std::max<int64_t>(last, 0));
        if (there == v || !shifted_.insert({i, d}).second) continue;
        c_.report(b.origin + ": in " + c_.program(programs_.program()) + " the index map gives " + std::to_string(v) +
                      " along dim " + std::to_string(d) + ", where an Element block of " + std::to_string(dim.size()) +
                      " in " + plural(static_cast<size_t>(c_.arrays[i][d]), "element") + " padded by " +
                      std::to_string(dim.low()) + " and " + std::to_string(dim.high()) + " starts at 0 to " +
                      std::to_string(last) + ": it starts at " + std::to_string(there),
                  b.loc, "pad the Element dim so that the last block fits");
      }
    }
  }

  /// The accesses of the current program, in order.
  void run() {
    for (auto& [ref, m] : memory_) {
      if (m.block == SIZE_MAX) continue;
      places_[ref] = place_of(c_, programs_, m.block);
      m.unknown |= !places_[ref];
    }
    for (size_t i = 0; i < static_cast<size_t>(k_.num_private_scratch); ++i)
      forget(k_.region(k_.body).args[k_.blocks.size() + k_.scratch.size() - 1 - i]);
    programs_.visit([&](OpId id, passes::Times times) {
      const Op& op = k_.op(id);
      ++work_;
      if (op.code == Opcode::run_scoped)
        for (const Value v : k_.region(op.regions[0]).args) forget(v);
      access(id, times);
    });
  }
  void forget(Value ref) {
    if (const auto it = memory_.find(ref); it != memory_.end()) it->second.stored.clear();
  }
  void access(OpId id, passes::Times times) {
    const Op& op = k_.op(id);
    if (!ir::accesses_ref(op.code) && op.code != Opcode::copy_start) return;
    if (op.code == Opcode::copy_start) {  // its target may hold all of it; its source is read as a whole
      if (const auto it = memory_.find(op.operands[1]); it != memory_.end()) store(op, it->first, it->second);
      return;
    }
    const auto it = memory_.find(op.operands[0]);
    if (it == memory_.end()) return;
    const bool reads =
        ir::reads_ref(op.code) && !(op.code == Opcode::swap && unused(op)) && !(op.code == Opcode::load && unused(op));
    const bool some = op.results.empty() || num_elements(k_.type(op.results[0]).shape) > 0;
    if (reads && some && times.least > 0 && !op.has_mask()) read(id, it->first, it->second);
    if (ir::writes_ref(op.code)) store(op, it->first, it->second);
  }
  bool unused(const Op& op) {
    if (used_.empty()) {
      used_.resize(k_.values.size());
      for (const Op& o : k_.ops)
        for (const Value v : o.operands) used_[v.index] = true;
    }
    return std::none_of(op.results.begin(), op.results.end(), [&](Value v) { return used_[v.index]; });
  }
  std::optional<Box> box(const Op& op, Value ref, const Memory& m) {
    if (m.block != SIZE_MAX) {
      const auto& places = places_.at(ref);
      return places ? std::optional(box_of(k_, programs_, op, m.shape, *places)) : std::nullopt;
    }
    std::vector<Place> places;
    for (const int64_t n : m.shape) places.push_back({0, n, true});
    return box_of(k_, programs_, op, m.shape, places);
  }
  void store(const Op& op, Value ref, Memory& m) {
    if (m.unknown) return;
    const auto b = box(op, ref, m);
    if (b && !b->empty()) m.stored.insert(*b);
    if (static_cast<int64_t>(m.stored.size()) <= kBoxes) return;
    m.unknown = true;
    m.stored.clear();
  }
  void read(OpId id, Value ref, Memory& m) {
    const Op& op = k_.op(id);
    if (m.read_early || m.unknown) return;
    const auto b = box(op, ref, m);
    if (!b || b->empty() || m.stored.contains(*b)) return;
    work_ += static_cast<int64_t>(m.stored.size());
    if (std::any_of(m.stored.begin(), m.stored.end(), [&](const Box& s) { return s.meets(*b); })) return;
    m.read_early = true;
    const std::string what = c_.ref(ref) + ": " + c_.program(programs_.program()) + " reads it (" +
                             std::string(name(op.code)) + ") before anything is stored there",
                      note =
                          "store what it starts with first; a program that adds to what others left does so once, "
                          "in the first of them";
    // The result of a load or swap may have no use.
    if (op.code == Opcode::load || op.code == Opcode::swap) early_.push_back({programs_.program(), id, what, note});
    else c_.report(what, op.loc, note);
  }

  Context& c_;
  const ir::Kernel& k_;
  passes::Programs programs_;
  std::map<Value, Memory> memory_;
  std::map<Value, std::optional<std::vector<Place>>> places_;
  std::set<std::pair<size_t, size_t>> shifted_;
  std::vector<bool> used_;
  std::vector<EarlyLoad>& early_;
  int64_t work_ = 0;
};
}  // namespace

void find_coverage(Context& c, std::vector<EarlyLoad>& early) { Coverage(c, early).find(); }

}  // namespace tessera::lint
