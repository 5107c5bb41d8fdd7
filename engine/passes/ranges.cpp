#include "engine/passes/ranges.h"

#include <algorithm>

namespace tessera::passes {
namespace {
using ir::Attr, ir::Family, ir::Launch, ir::Op, ir::Opcode, ir::Value;
/// Sizes are not negative, so only a difference or a negative constant can be.
bool never_negative(const Extent& e) {
  return std::none_of(e.nodes().begin(), e.nodes().end(), [](const Extent::Node& n) {
    const auto* constant = std::get_if<int64_t>(&n);
    const auto* o = std::get_if<Extent::Operation>(&n);
    return (constant && *constant < 0) || (o && o->op == Extent::Op::sub);
  });
}

/// The grid axis that program_id and num_programs count as `axis`.
const ir::GridAxis* grid_axis(const ir::Kernel& k, int64_t axis) {
  for (const ir::GridAxis& g : k.grid)
    if (!g.vmapped && axis-- == 0) return &g;
  return nullptr;
}

Bounds launch(const ir::Kernel& k, const Op& op, const Interval& all) {
  switch (ir::Launch(op.code)) {
    case Launch::workgroup_index:
      if (const auto n = k.lane.num_units.value(); k.lane.exact && n && *n <= INT32_MAX)
        return Interval{0, std::max<int64_t>(*n, 1) - 1};
      return Interval{0, INT32_MAX};
    case Launch::num_workgroups: return Interval{1, INT32_MAX};
    case Launch::local_index: return Interval{0, k.lane.workgroup_size - 1};
    case Launch::lane_id: return Interval{0, k.lane.subgroup_size ? k.lane.subgroup_size - 1 : 127};
    case Launch::subgroup_id:
      return Interval{
          0, k.lane.subgroup_size ? (k.lane.workgroup_size - 1) / k.lane.subgroup_size : k.lane.workgroup_size - 1};
    case Launch::thread_index: return Interval{0, k.lane.threads - 1};
    case Launch::extent: {
      size_t i = static_cast<size_t>(op.attr(Attr::index));
      if (tells_steps(k.lane, static_cast<int64_t>(i))) i = static_cast<size_t>(k.lane.steps_extent) + 1;
      // a launch may give less
      if (const auto n = i < k.lane.extents.size() ? k.lane.extents[i].value() : std::nullopt;
          n && *n >= 0 && *n <= all.hi)
        return Interval{0, *n};
      return i < k.lane.extents.size() && never_negative(k.lane.extents[i]) ? Interval{0, all.hi} : all;
    }
  }
  return all;
}
}  // namespace

Bounds Ranges::of(Value v) const {
  if (v.index < known_.size() && known_[v.index]) return known_[v.index];
  return values_of(k_.type(v).dtype);
}

void Ranges::set(Value v, Bounds r) {
  if (v.index >= known_.size()) known_.resize(std::max<size_t>(v.index + 1, k_.values.size()));
  known_[v.index] = r;
}

Bounds bounds_of_result(const ir::Kernel& k, const Op& op, const ir::Type& t, FunctionRef<Bounds(Value)> of) {
  const Bounds all = t.is_ref ? std::nullopt : values_of(t.dtype);
  if (t.is_ref || is_float(t.dtype)) return std::nullopt;
  const auto within = [&](int64_t lo, int64_t hi) { return held(t.dtype, lo, hi); };
  const auto operand = [&](size_t i) { return of(op.operands[i]); };
  if (is_elementwise(op.code)) {
    std::vector<Bounds> operands;
    for (Value v : op.operands) operands.push_back(of(v));
    return result_bounds(op.code, k.type(op.operands.back()).dtype, t.dtype, operands);
  }
  switch (ir::family(op.code)) {
    case Family::source: {
      if (op.code == Opcode::iota)
        return within(0, std::max<int64_t>(t.shape[static_cast<size_t>(op.attr(Attr::axis))] - 1, 0));
      const uint64_t b = static_cast<uint64_t>(op.attr(Attr::bits));
      const int shift = 64 - bits(t.dtype);
      if (t.dtype == DType::u64 && b > INT64_MAX) return std::nullopt;
      const int64_t v = is_signed_int(t.dtype) ? static_cast<int64_t>(b << shift) >> shift : static_cast<int64_t>(b);
      return Interval{v, v};
    }
    case Family::scan: {  // what combines two of the range to one of the range combines all
      const Bounds x = operand(0), two = result_bounds(ir::combining_op(op.code), t.dtype, t.dtype, {x, x});
      return x && two && two->lo >= x->lo && two->hi <= x->hi ? x : all;
    }
    case Family::rearrange: return op.code == Opcode::gather ? operand(0) : all;
    case Family::move: {
      Bounds r = operand(0);
      for (size_t i = 1; i < op.operands.size() && r; ++i) {
        const Bounds x = operand(i);
        r = x ? Bounds(Interval{std::min(r->lo, x->lo), std::max(r->hi, x->hi)}) : all;
      }
      return r;
    }
    case Family::argreduce:
      return within(0,
                    std::max<int64_t>(k.type(op.operands[0]).shape[static_cast<size_t>(op.attr(Attr::axis))] - 1, 0));
    case Family::grid: {
      if (op.code == Opcode::size) {
        const auto i = static_cast<size_t>(op.attr(Attr::index));
        if (i >= k.sizes.size()) return all;
        if (const auto n = k.sizes[i].value(); n && *n >= INT32_MIN && *n <= INT32_MAX) return Interval{*n, *n};
        return never_negative(k.sizes[i]) ? Interval{0, INT32_MAX} : all;
      }
      const ir::GridAxis* g = grid_axis(k, op.attr(Attr::axis));
      const bool id = op.code == Opcode::program_id;
      if (!g || !g->size.is_static() || *g->size.value() > INT32_MAX) return Interval{0, INT32_MAX};
      const int64_t n = std::max<int64_t>(*g->size.value(), 0);
      return Interval{id ? 0 : n, id ? std::max<int64_t>(n - 1, 0) : n};
    }
    case Family::launch: return launch(k, op, *all);
    case Family::elementwise:
    case Family::contract:
    case Family::reduce:
    case Family::memory:
    case Family::print:
    case Family::control:
    case Family::async:
    case Family::thread:
    case Family::end:
    case Family::ref:
    case Family::group:
    case Family::packed:
    case Family::matrix:
    case Family::report: break;
  }
  return all;
}

}  // namespace tessera::passes
