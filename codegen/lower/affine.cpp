#include "codegen/lower/affine.h"

#include <algorithm>

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
  auto mul = [&](int64_t x) { return x <= -kUnbounded || x >= kUnbounded ? (((x > 0) == (f > 0)) ? kUnbounded : -kUnbounded) : clip(static_cast<__int128>(x) * f); };
  const int64_t x = mul(a.lo), y = mul(a.hi);
  return {std::min(x, y), std::max(x, y)};
}
Range type_range(DType t) {
  switch (t) {
    case DType::boolean: return {0, 1};
    case DType::i4: return {-8, 7};
    case DType::u4: return {0, 15};
    case DType::i8: return {-128, 127};
    case DType::u8: return {0, 255};
    case DType::i16: return {-32768, 32767};
    case DType::u16: return {0, 65535};
    case DType::i32: return {INT32_MIN, INT32_MAX};
    case DType::u32: return {0, UINT32_MAX};
    default: return {};
  }
}
bool inside(Range a, Range b) { return a.lo >= b.lo && a.hi <= b.hi; }
}  // namespace

ScalarAnalysis::ScalarAnalysis(const ir::Kernel& k) : k_(k) {
  for (const ir::GridAxis& g : k.grid) {
    const auto n = g.size.value();
    size_.push_back({0, n ? std::max<int64_t>(*n - 1, 0) : INT32_MAX});
  }
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.whole)
      for (size_t a = 0; a < k.grid.size(); ++a) map_arg_axis_[k.region(b.index_map).args[a].index] = static_cast<int>(a);
  for (uint32_t i = 0; i < k.ops.size(); ++i)
    if (k.ops[i].code == Opcode::for_) loop_of_iv_[k.region(k.ops[i].regions[0]).args[0].index] = {i};
}

int ScalarAnalysis::grid_axis(int64_t axis) const {
  for (size_t a = 0; a < k_.grid.size(); ++a)
    if (!k_.grid[a].vmapped && axis-- == 0) return static_cast<int>(a);
  throw InternalError(k_.name + ": program_id beyond the grid's rank");
}

Affine ScalarAnalysis::bounded(Range r) const { return {std::vector<int64_t>(k_.grid.size(), 0), r}; }
Affine ScalarAnalysis::constant(int64_t v) const { return bounded({v, v}); }

Affine ScalarAnalysis::combine(const Affine& a, const Affine& b, int64_t sign) const {
  Affine r = a;
  for (size_t i = 0; i < r.coef.size(); ++i) r.coef[i] += sign * b.coef[i];
  r.rest = add(a.rest, scale(b.rest, sign));
  return r;
}
Affine ScalarAnalysis::scaled(const Affine& a, int64_t f) const {
  Affine r = a;
  for (int64_t& c : r.coef) c = clip(static_cast<__int128>(c) * f);
  r.rest = scale(a.rest, f);
  return r;
}

Range ScalarAnalysis::range(const Affine& a) const {
  Range r = a.rest;
  for (size_t i = 0; i < a.coef.size(); ++i) r = add(r, scale({size_[i].first, size_[i].second}, a.coef[i]));
  return r;
}

const Affine& ScalarAnalysis::of(ir::Value v) {
  const auto it = memo_.find(v.index);
  if (it != memo_.end()) return it->second;
  memo_[v.index] = bounded(type_range(k_.type(v).dtype));  // what a value that depends on itself (a loop's iv) falls back to
  Affine a = compute(v);
  // Arithmetic wraps: a form that may leave the dtype's range says nothing beyond that range.
  const Range limits = type_range(k_.type(v).dtype);
  if (!inside(range(a), limits)) a = bounded(limits);
  return memo_[v.index] = a;
}

Affine ScalarAnalysis::argument(ir::Value v) {
  if (const auto it = map_arg_axis_.find(v.index); it != map_arg_axis_.end()) {
    Affine a = constant(0);
    a.coef[static_cast<size_t>(it->second)] = 1;
    return a;
  }
  if (const auto it = loop_of_iv_.find(v.index); it != loop_of_iv_.end()) {
    const ir::Op& loop = k_.op(it->second);
    const Range lower = range(loop.operands[0]), upper = range(loop.operands[1]);
    return bounded({lower.lo, std::max(add(upper.hi, -1), lower.lo)});
  }
  return bounded({});
}

Affine ScalarAnalysis::compute(ir::Value v) {
  const ir::Op* op = k_.def(v);
  const DType t = k_.type(v).dtype;
  if (is_float(t)) return bounded({});
  if (!op) return argument(v);
  if (const auto c = ir::constant_int(k_, v)) return *c > -kUnbounded && *c < kUnbounded ? constant(*c) : bounded({});
  auto arg = [&](size_t i) -> Affine { return of(op->operands[i]); };
  auto int_operand = [&](size_t i) { return !is_float(k_.type(op->operands[i]).dtype); };
  switch (op->code) {
    case Opcode::program_id: {
      Affine a = constant(0);
      a.coef[static_cast<size_t>(grid_axis(op->attr(ir::Attr::axis)))] = 1;
      return a;
    }
    case Opcode::num_programs: {
      const auto n = k_.grid[static_cast<size_t>(grid_axis(op->attr(ir::Attr::axis)))].size.value();
      return n ? constant(*n) : bounded({0, INT32_MAX});
    }
    case Opcode::add: return combine(arg(0), arg(1), 1);
    case Opcode::sub: return combine(arg(0), arg(1), -1);
    case Opcode::neg: return scaled(arg(0), -1);
    case Opcode::mul:
      if (const auto c = ir::constant_int(k_, op->operands[1]); c && std::abs(*c) < kUnbounded) return scaled(arg(0), *c);
      if (const auto c = ir::constant_int(k_, op->operands[0]); c && std::abs(*c) < kUnbounded) return scaled(arg(1), *c);
      return bounded({});
    case Opcode::convert: return int_operand(0) ? arg(0) : bounded({});
    case Opcode::max: { const Range a = range(arg(0)), b = range(arg(1)); return bounded({std::max(a.lo, b.lo), std::max(a.hi, b.hi)}); }
    case Opcode::min: { const Range a = range(arg(0)), b = range(arg(1)); return bounded({std::min(a.lo, b.lo), std::min(a.hi, b.hi)}); }
    case Opcode::clamp: {
      const Range lo = range(arg(0)), x = range(arg(1)), hi = range(arg(2));
      return bounded({std::min(std::max(x.lo, lo.lo), hi.lo), std::min(std::max(x.hi, lo.hi), hi.hi)});
    }
    case Opcode::select: { const Range a = range(arg(1)), b = range(arg(2)); return bounded({std::min(a.lo, b.lo), std::max(a.hi, b.hi)}); }
    case Opcode::rem: {
      const auto c = ir::constant_int(k_, op->operands[1]);
      const Range a = range(arg(0));
      if (c && *c > 0) {
        if (a.lo >= 0 && a.hi < *c) return arg(0);
        return bounded({a.lo >= 0 ? 0 : 1 - *c, std::min(std::max<int64_t>(a.hi, 0), *c - 1)});
      }
      return bounded({});
    }
    case Opcode::div: {
      const auto c = ir::constant_int(k_, op->operands[1]);
      const Range a = range(arg(0));
      if (c && *c > 0 && a.bounded()) return bounded({a.lo / *c, a.hi / *c});
      return bounded({});
    }
    // Arrays: the form holds every element.
    case Opcode::iota: {
      const Shape& shape = k_.type(v).shape;
      return bounded({0, std::max<int64_t>(shape[static_cast<size_t>(op->attr(ir::Attr::axis))] - 1, 0)});
    }
    case Opcode::broadcast: case Opcode::reshape: case Opcode::transpose: case Opcode::slice: case Opcode::rev: return arg(0);
    case Opcode::concatenate: {
      Range r = range(arg(0));
      for (size_t i = 1; i < op->operands.size(); ++i) {
        const Range x = range(arg(i));
        r = {std::min(r.lo, x.lo), std::max(r.hi, x.hi)};
      }
      return bounded(r);
    }
    default: return bounded({});
  }
}

}  // namespace tessera::lowering
