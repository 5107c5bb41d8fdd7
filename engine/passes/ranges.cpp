#include "engine/passes/ranges.h"

#include <algorithm>

namespace tessera::passes {
namespace {
using ir::Attr, ir::Op, ir::Opcode, ir::Value;
using Wide = __int128;

bool contains(const Range& outer, Wide lo, Wide hi) { return lo >= outer.lo && hi <= outer.hi; }

struct Exact { Wide lo, hi; };
Exact apply(Opcode code, const Range& a, const Range& b) {
  if (code == Opcode::add) return {Wide{a.lo} + b.lo, Wide{a.hi} + b.hi};
  if (code == Opcode::sub) return {Wide{a.lo} - b.hi, Wide{a.hi} - b.lo};
  const Wide corners[] = {Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo, Wide{a.hi} * b.hi};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

/// Sizes are not negative, so only a difference or a negative constant can be.
bool never_negative(const Extent& e) {
  return std::none_of(e.nodes().begin(), e.nodes().end(), [](const Extent::Node& n) { return n.op == Extent::Op::sub || (n.op == Extent::Op::constant && n.value < 0); });
}

/// The grid axis that program_id and num_programs count as `axis`.
const ir::GridAxis* grid_axis(const ir::Kernel& k, int64_t axis) {
  for (const ir::GridAxis& g : k.grid)
    if (!g.vmapped && axis-- == 0) return &g;
  return nullptr;
}
}  // namespace

std::optional<Range> Ranges::all_of(DType t) {
  if (is_float(t) || t == DType::u64) return std::nullopt;
  if (t == DType::boolean) return Range{0, 1};
  if (t == DType::i64) return Range{INT64_MIN, INT64_MAX};
  const int n = bits(t);
  if (is_unsigned_int(t)) return Range{0, (int64_t{1} << n) - 1};
  return Range{-(int64_t{1} << (n - 1)), (int64_t{1} << (n - 1)) - 1};
}

std::optional<Range> Ranges::of(Value v) const {
  if (v.index < known_.size() && known_[v.index]) return known_[v.index];
  return all_of(k_.type(v).dtype);
}

void Ranges::set(Value v, std::optional<Range> r) {
  if (v.index >= known_.size()) known_.resize(std::max<size_t>(v.index + 1, k_.values.size()));
  known_[v.index] = r;
}

bool Ranges::exact(Opcode code, Value a, Value b, DType t) const {
  const auto x = of(a), y = of(b), all = all_of(t);
  if (!x || !y || !all) return false;
  const Exact e = apply(code, *x, *y);
  return contains(*all, e.lo, e.hi);
}

std::optional<Range> Ranges::compute(const Op& op, const ir::Type& t) const {
  const std::optional<Range> all = t.is_ref ? std::nullopt : all_of(t.dtype);
  if (!all) return std::nullopt;
  const auto within = [&](Wide lo, Wide hi) { return contains(*all, lo, hi) ? Range{static_cast<int64_t>(lo), static_cast<int64_t>(hi)} : *all; };
  const auto operand = [&](size_t i) { return of(op.operands[i]); };
  switch (op.code) {
    case Opcode::constant: {
      const uint64_t b = static_cast<uint64_t>(op.attr(Attr::bits));
      const int shift = 64 - bits(t.dtype);
      const int64_t v = is_signed_int(t.dtype) ? static_cast<int64_t>(b << shift) >> shift : static_cast<int64_t>(b);
      return Range{v, v};
    }
    case Opcode::iota: return within(0, std::max<int64_t>(t.shape[static_cast<size_t>(op.attr(Attr::axis))] - 1, 0));
    case Opcode::broadcast: case Opcode::reshape: case Opcode::transpose: case Opcode::slice: case Opcode::rev: case Opcode::gather: case Opcode::cummax:
    case Opcode::cummin: return operand(0);
    case Opcode::concatenate: {
      Range r = *operand(0);
      for (size_t i = 1; i < op.operands.size(); ++i) r = {std::min(r.lo, operand(i)->lo), std::max(r.hi, operand(i)->hi)};
      return r;
    }
    case Opcode::select: return Range{std::min(operand(1)->lo, operand(2)->lo), std::max(operand(1)->hi, operand(2)->hi)};
    case Opcode::add: case Opcode::sub: case Opcode::mul: {
      const Exact e = apply(op.code, *operand(0), *operand(1));
      return within(e.lo, e.hi);
    }
    case Opcode::neg: return within(-Wide{operand(0)->hi}, -Wide{operand(0)->lo});
    case Opcode::abs: {
      const Range a = *operand(0);
      return a.lo >= 0 ? a : within(a.hi <= 0 ? -Wide{a.hi} : Wide{0}, std::max<Wide>(-Wide{a.lo}, a.hi));
    }
    case Opcode::sign: return Range{operand(0)->lo < 0 ? -1 : operand(0)->lo > 0, operand(0)->hi > 0 ? 1 : operand(0)->hi < 0 ? -1 : 0};
    case Opcode::max: return Range{std::max(operand(0)->lo, operand(1)->lo), std::max(operand(0)->hi, operand(1)->hi)};
    case Opcode::min: return Range{std::min(operand(0)->lo, operand(1)->lo), std::min(operand(0)->hi, operand(1)->hi)};
    case Opcode::clamp: {
      const Range low = *operand(0), v = *operand(1), high = *operand(2);
      return Range{std::min(std::max(v.lo, low.lo), high.lo), std::min(std::max(v.hi, low.hi), high.hi)};
    }
    case Opcode::div: {
      const Range a = *operand(0), b = *operand(1);
      if (b.lo < 1) return all;
      const int64_t corners[] = {a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi};
      return Range{*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
    }
    case Opcode::rem: {
      const Range a = *operand(0), b = *operand(1);
      if (b.lo < 1) return all;
      return Range{a.lo >= 0 ? 0 : std::max(a.lo, 1 - b.hi), a.hi <= 0 ? 0 : std::min(a.hi, b.hi - 1)};
    }
    case Opcode::and_: {
      const Range a = *operand(0), b = *operand(1);
      if (a.lo < 0 && b.lo < 0) return all;
      return Range{0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : std::min(a.hi, b.hi)};
    }
    case Opcode::or_: case Opcode::xor_: {
      const Range a = *operand(0), b = *operand(1);
      if (a.lo < 0 || b.lo < 0) return all;
      int64_t top = 1;
      while (top <= std::max(a.hi, b.hi) && top < int64_t{1} << 62) top *= 2;
      return top > std::max(a.hi, b.hi) ? within(0, top - 1) : *all;
    }
    case Opcode::shift_left: {
      const Range a = *operand(0), b = *operand(1);
      if (b.lo != b.hi || b.lo < 0 || b.lo >= bits(t.dtype)) return all;
      return within(Wide{a.lo} * (Wide{1} << b.lo), Wide{a.hi} * (Wide{1} << b.lo));
    }
    case Opcode::shift_right_logical: case Opcode::shift_right_arithmetic: {
      const Range a = *operand(0), b = *operand(1);
      const bool fills = op.code == Opcode::shift_right_arithmetic && is_unsigned_int(t.dtype) && a.hi > all->hi / 2;  // with the top bit
      if (a.lo < 0 || fills) return all;
      return b.lo == b.hi && b.lo >= 0 && b.lo < bits(t.dtype) ? Range{a.lo >> b.lo, a.hi >> b.lo} : Range{0, a.hi};
    }
    case Opcode::convert: {
      const auto a = operand(0);
      if (t.dtype == DType::boolean) return a && (a->lo > 0 || a->hi < 0) ? Range{1, 1} : a && *a == Range{0, 0} ? Range{0, 0} : *all;
      return a ? within(a->lo, a->hi) : *all;
    }
    case Opcode::eq: case Opcode::ne: case Opcode::lt: case Opcode::le: case Opcode::gt: case Opcode::ge: {
      auto a = operand(0), b = operand(1);
      if (!a || !b) return all;
      const auto decided = [](bool yes, bool no) { return yes ? Range{1, 1} : no ? Range{0, 0} : Range{0, 1}; };
      if (op.code == Opcode::gt || op.code == Opcode::ge) std::swap(a, b);
      const bool apart = a->hi < b->lo || b->hi < a->lo, same = a->lo == a->hi && *a == *b;
      if (op.code == Opcode::eq) return decided(same, apart);
      if (op.code == Opcode::ne) return decided(apart, same);
      if (op.code == Opcode::lt || op.code == Opcode::gt) return decided(a->hi < b->lo, a->lo >= b->hi);
      return decided(a->hi <= b->lo, a->lo > b->hi);
    }
    case Opcode::clz: case Opcode::population_count: return within(0, bits(t.dtype));
    case Opcode::argmax: case Opcode::argmin: return within(0, k_.type(op.operands[0]).shape[static_cast<size_t>(op.attr(Attr::axis))] - 1);
    case Opcode::program_id: case Opcode::num_programs: {
      const ir::GridAxis* g = grid_axis(k_, op.attr(Attr::axis));
      const bool id = op.code == Opcode::program_id;
      if (!g || !g->size.is_static() || *g->size.value() > INT32_MAX) return Range{0, INT32_MAX};
      const int64_t n = std::max<int64_t>(*g->size.value(), 0);
      return Range{id ? 0 : n, id ? std::max<int64_t>(n - 1, 0) : n};
    }
    case Opcode::workgroup_index: return Range{0, INT32_MAX};
    case Opcode::num_workgroups: return Range{1, INT32_MAX};
    case Opcode::local_index: return Range{0, k_.lane.workgroup_size - 1};
    case Opcode::lane_id: return Range{0, k_.lane.subgroup_size ? k_.lane.subgroup_size - 1 : 127};
    case Opcode::subgroup_id: return Range{0, k_.lane.subgroup_size ? (k_.lane.workgroup_size - 1) / k_.lane.subgroup_size : k_.lane.workgroup_size - 1};
    case Opcode::extent: {
      const size_t i = static_cast<size_t>(op.attr(Attr::index));
      if (const auto n = i < k_.lane.extents.size() ? k_.lane.extents[i].value() : std::nullopt; n && *n >= 0 && *n <= all->hi) return Range{0, *n};  // a launch may give less
      return i < k_.lane.extents.size() && never_negative(k_.lane.extents[i]) ? Range{0, all->hi} : *all;
    }
    default: return all;
  }
}

}  // namespace tessera::passes
