#include "codegen/plan/affine.h"

#include <algorithm>

#include "engine/passes/ranges.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
constexpr int64_t kUnbounded = Range::kUnbounded;

int64_t clip(__int128 v) {
  if (v <= -kUnbounded) return -kUnbounded;
  if (v >= kUnbounded) return kUnbounded;
  return static_cast<int64_t>(v);
}
int64_t add(int64_t a, int64_t b) {
  if (a <= -kUnbounded || b <= -kUnbounded) return -kUnbounded;
  if (a >= kUnbounded || b >= kUnbounded) return kUnbounded;
  return clip(static_cast<__int128>(a) + b);
}
Range add(Range a, Range b) { return {add(a.lo, b.lo), add(a.hi, b.hi)}; }
Range scale(Range a, int64_t f) {
  if (f == 0) return {0, 0};
  auto mul = [&](int64_t x) {
    return x <= -kUnbounded || x >= kUnbounded ? (((x > 0) == (f > 0)) ? kUnbounded : -kUnbounded)
                                               : clip(static_cast<__int128>(x) * f);
  };
  const int64_t x = mul(a.lo), y = mul(a.hi);
  return {std::min(x, y), std::max(x, y)};
}
Range range_of(const Bounds& b, DType t) {
  if (b) return {clip(b->lo), clip(b->hi)};
  return t == DType::u64 ? Range{0, kUnbounded} : Range{};
}
}  // namespace

ScalarAnalysis::ScalarAnalysis(const ir::Kernel& k) : k_(k) {
  for (const ir::GridAxis& g : k.grid) {
    const auto n = g.size.value();
    size_.push_back({0, n ? std::max<int64_t>(*n - 1, 0) : INT32_MAX - 1});
  }
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.is_whole())
      for (size_t a = 0; a < k.grid.size(); ++a)
        map_arg_axis_[k.region(b.index_map()).args[a].index] = static_cast<int>(a);
  for (uint32_t i = 0; i < k.ops.size(); ++i)
    if (k.ops[i].code == Opcode::for_) loop_of_iv_[k.region(k.ops[i].regions[0]).args[0].index] = {i};
}

int ScalarAnalysis::grid_axis(int64_t axis) const {
  for (size_t a = 0; a < k_.grid.size(); ++a)
    if (!k_.grid[a].vmapped && axis-- == 0) return static_cast<int>(a);
  throw InternalError(k_.name + ": program_id beyond the grid's rank");
}

Affine ScalarAnalysis::bounded(Range r) const { return {std::vector<int64_t>(k_.grid.size(), 0), r}; }
bool ScalarAnalysis::constant_along(ir::Value v, const std::vector<int>& axes) {
  const Affine& f = of(v);
  if (!f.rest.bounded() || f.rest.lo != f.rest.hi) return false;
  return std::all_of(axes.begin(), axes.end(), [&](int a) { return f.coef[static_cast<size_t>(a)] == 0; });
}

Affine ScalarAnalysis::constant(int64_t v) const { return bounded({v, v}); }

Affine ScalarAnalysis::axis(size_t a) const {
  Affine r = constant(0);
  r.coef[a] = size_[a].second > 0;
  return r;
}

Affine ScalarAnalysis::checked(Affine a) const {
  for (int64_t& c : a.coef)
    if (std::abs(c) >= kUnbounded) return bounded({});
  return range(a).bounded() ? a : bounded({});
}
Affine ScalarAnalysis::sum(const Affine& a, const Affine& b, int64_t sign) const {
  Affine r = a;
  for (size_t i = 0; i < r.coef.size(); ++i) r.coef[i] += sign * b.coef[i];
  r.rest = add(a.rest, scale(b.rest, sign));
  return checked(r);
}
Affine ScalarAnalysis::scaled(const Affine& a, int64_t f) const {
  Affine r = a;
  for (int64_t& c : r.coef) c = clip(static_cast<__int128>(c) * f);
  r.rest = scale(a.rest, f);
  return checked(r);
}

Range ScalarAnalysis::range(const Affine& a) const {
  Range r = a.rest;
  for (size_t i = 0; i < a.coef.size(); ++i) r = add(r, scale({size_[i].first, size_[i].second}, a.coef[i]));
  return r;
}

const Affine& ScalarAnalysis::of(ir::Value v) {
  const auto it = memo_.find(v.index);
  if (it != memo_.end()) return it->second;
  const DType t = k_.type(v).dtype;
  const Range all = range_of(values_of(t), t);
  memo_[v.index] = bounded(all);  // what a value that depends on itself (a loop's iv) falls back to
  // Arithmetic wraps: a form that may leave the dtype's values says nothing.
  if (const auto form = linear(v)) {
    const Range r = range(*form);
    if (r.bounded() && r.lo >= all.lo && r.hi <= all.hi) return memo_[v.index] = *form;
  }
  const Affine rest = bounded(range_of(transfer(v), t));
  return memo_[v.index] = rest;
}

// As an affine form of its operands', as if nothing wrapped.
std::optional<Affine> ScalarAnalysis::linear(ir::Value v) {
  if (is_float(k_.type(v).dtype)) return std::nullopt;
  if (const auto it = map_arg_axis_.find(v.index); it != map_arg_axis_.end())
    return axis(static_cast<size_t>(it->second));
  const ir::Op* op = k_.def(v);
  if (!op) return std::nullopt;
  const auto arg = [&](size_t i) -> Affine { return of(op->operands[i]); };
  const auto number = [&](size_t i) -> std::optional<int64_t> {
    const Bounds b = bounds(op->operands[i]);
    return b && b->lo == b->hi ? std::optional(b->lo) : std::nullopt;
  };
  if (ir::is_move_of_one(op->code)) return arg(0);  // of an array: the form holds every element
  if (op->code == Opcode::program_id) return axis(static_cast<size_t>(grid_axis(op->attr(ir::Attr::axis))));
  if (op->code == Opcode::add || op->code == Opcode::sub) {
    const Affine right = arg(1);
    return sum(arg(0), right, op->code == Opcode::add ? 1 : -1);
  }
  if (op->code == Opcode::neg) return scaled(arg(0), -1);
  if (op->code == Opcode::mul) {
    if (const auto c = number(1)) return scaled(arg(0), *c);
    if (const auto c = number(0)) return scaled(arg(1), *c);
  }
  // A bool is whether its operand is 0, which of 0 and 1 is the operand.
  if (op->code == Opcode::convert && !is_float(k_.type(op->operands[0]).dtype)) return arg(0);
  if (op->code == Opcode::rem) {
    const Bounds a = bounds(op->operands[0]), b = bounds(op->operands[1]);
    if (a && b && a->lo >= 0 && a->hi < b->lo) return arg(0);
  }
  return std::nullopt;
}

Bounds ScalarAnalysis::bounds(ir::Value v) {
  const DType t = k_.type(v).dtype;
  if (is_float(t)) return std::nullopt;
  if (const auto bits = ir::constant_bits(k_, v))
    return t == DType::u64 && *bits > INT64_MAX ? std::nullopt
                                                : held(t, *ir::constant_int(k_, v), *ir::constant_int(k_, v));
  const Range r = range(v);
  const Bounds all = values_of(t);
  const Interval most = all.value_or(Interval{0, INT64_MAX});
  if (!all && r.hi >= kUnbounded) return std::nullopt;
  return Interval{r.lo > -kUnbounded ? r.lo : most.lo, r.hi < kUnbounded ? r.hi : most.hi};
}

// What a value may be, from what its operands may be.
Bounds ScalarAnalysis::transfer(ir::Value v) {
  const ir::Type& t = k_.type(v);
  const Bounds all = values_of(t.dtype);
  const ir::Op* op = k_.def(v);
  if (!op) {
    const auto it = loop_of_iv_.find(v.index);
    if (it == loop_of_iv_.end()) return all;
    const ir::Op& loop = k_.op(it->second);
    const Bounds end = bounds(loop.operands[1]);
    return counter_bounds(*bounds(loop.operands[0]), *end);
  }
  if (op->results.size() != 1) return all;
  return passes::bounds_of_result(k_, *op, t, [this](ir::Value x) { return bounds(x); });
}

}  // namespace tessera::lowering
