#include "codegen/plan/vector_width.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "codegen/plan/parallel.h"
#include "engine/ir/walk.h"
#include "engine/passes/divisors.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using passes::Divisors;
using Residue = Divisors::Residue;

// Windows farther apart share nothing within an invocation. Many of them share along one axis alone, or they would cost
// more registers than they save loads.
constexpr int64_t kTapsApart = 8, kManyTaps = 16, kMostTaps = 128;

class Widths {
 public:
  Widths(const ir::Kernel& k, const Axes& axes) : k_(k), axes_(axes), divisors_(k), widths_(axes.size(), 1) {}
  std::vector<int> run() {
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      const ir::Op& o = k_.op(id);
      if (o.code == Opcode::load || o.code == Opcode::store) access(o);
    });
    return widths_;
  }

 private:
  void access(const ir::Op& o) {
    const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
    if (ref >= k_.blocks.size() || o.index.empty()) return;
    const ir::BlockMapping& m = k_.blocks[ref];
    const ir::Index& ix = o.index.back();
    const ir::Index::Slice* slice = ix.slice();
    if (m.array_shape.empty() || !slice || slice->step != 1 || slice->size < 2) return;
    if (!m.seen(m.array_shape.size() - 1)) return;
    const ir::Value v = o.code == Opcode::load ? o.results[0] : o.operands[1];
    const ir::AccessDims form = ir::access_dims(k_, o);
    if (form.slice.back() < 0) return;
    const int axis = axes_.of(v, static_cast<size_t>(form.slice.back()));  // of two elements at least: there is one
    const int64_t wanted = 16 / size_bytes(m.dtype);
    const Residue start = ix.is_static() ? Residue::of(ix.constant()) : divisors_.residue(o.operand_of(ix));
    int& width = widths_[static_cast<size_t>(axis)];
    const int64_t aligned = (begin(m, ref) + start).power();
    if (std::min(aligned, rows(m)) >= wanted) width = std::max(width, static_cast<int>(wanted));
  }
  // The element at which the block begins along its last dim.
  Residue begin(const ir::BlockMapping& m, size_t ref) {
    if (m.is_whole()) return {};
    const ir::BlockDim& dim = m.block().back();
    const ir::Value index =
        k_.terminator(m.index_map()).operands[k_.map_result(static_cast<int>(ref), m.array_shape.size() - 1)];
    return divisors_.residue(index) * Residue::of(dim.unit()) - Residue::of(dim.low());
  }
  // Divides the elements from one row to the next.
  static int64_t rows(const ir::BlockMapping& m) {
    const bool one =
        std::all_of(m.array_shape.begin(), m.array_shape.end() - 1, [](const Extent& e) { return e == Extent(1); });
    const auto n = m.array_shape.back().value();
    return one ? Divisors::kMost : n ? Divisors::of(*n) : 1;
  }

  const ir::Kernel& k_;
  const Axes& axes_;
  Divisors divisors_;
  std::vector<int> widths_;
};
}  // namespace

std::vector<bool> tapped_axes(const ir::Kernel& k, const Axes& axes) {
  std::vector<bool> tapped(axes.size(), false);
  const std::vector<bool> stored = stored_memory(k);
  std::vector<int> loads(stored.size(), 0);
  ir::each_op(k, k.body, [&](ir::OpId id) {
    const ir::Op& o = k.op(id);
    if (o.code == Opcode::load) ++loads[static_cast<size_t>(ref_position(k, o.operands[0]))];
  });
  std::map<std::tuple<size_t, size_t, int>, std::pair<int64_t, int64_t>> first;  // per Ref, dim and axis: start, size
  std::map<size_t, std::pair<size_t, int>> last;  // of many taps: per Ref, the last dim along which windows overlap
  ir::each_op(k, k.body, [&](ir::OpId id) {
    const ir::Op& o = k.op(id);
    if (o.code != Opcode::load) return;
    const auto ref = static_cast<size_t>(ref_position(k, o.operands[0]));
    const bool scratch = ref >= k.blocks.size();
    if ((!scratch && stored[ref]) || loads[ref] > kMostTaps) return;
    const ir::AccessDims form = ir::access_dims(k, o);
    // In shared memory, neighbours along the fastest dim are better read by neighbours in a subgroup: no two from one
    // bank.
    for (size_t d = 0; d + (scratch ? 1 : 0) < o.index.size(); ++d) {
      const ir::Index::Slice* slice = o.index[d].slice();
      if (!slice || !o.index[d].is_static() || slice->step != 1 || slice->size < 2) continue;
      const int64_t start = o.index[d].constant();
      const int axis = axes.of(o.results[0], static_cast<size_t>(form.slice[d]));
      const auto it = first.try_emplace({ref, d, axis}, start, slice->size).first;
      const int64_t apart = std::abs(it->second.first - start);
      if (apart <= 0 || apart >= std::min(slice->size, kTapsApart)) continue;
      if (loads[ref] > kManyTaps) last[ref] = std::max(last[ref], {d, axis});
      else tapped[static_cast<size_t>(axis)] = true;
    }
  });
  for (const auto& [ref, where] : last) tapped[static_cast<size_t>(where.second)] = true;
  return tapped;
}

std::vector<int> vector_widths(const ir::Kernel& k, const Axes& axes) { return Widths(k, axes).run(); }

}  // namespace tessera::lowering
