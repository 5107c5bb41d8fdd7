#include "codegen/plan/axes.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/plan/parallel.h"
#include "engine/ir/moves.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Family;
using ir::Opcode;
using ir::Value;

bool is_whole_access(const ir::Kernel& k, const ir::Op& op) {
  const Shape& shape = k.type(op.operands[0]).shape;
  if (op.has_mask()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!(op.index[d] == ir::Index::all(shape[d]))) return false;
  return true;
}

Axes::Axes(const ir::Kernel& k, const std::vector<bool>& resident, bool scans)
    : k_(k), resident_(resident), scans_(scans) {
  size_t n = 0;
  for (const ir::ValueInfo& v : k.values) {
    first_.push_back(n);
    for (int64_t e : v.type.shape) extent_.push_back(e);
    n += v.type.shape.size();
  }
  parent_.resize(n);
  for (size_t i = 0; i < n; ++i) parent_[i] = i;
  mixed_.resize(n);
  reduced_.resize(n);
  contracted_.resize(n);
  scanned_.resize(n);
  stored_.resize(n);
  walk(k.body);
  if (scans && !k.has_threads()) join_stores();  // threads do not do the same

  // A value that has one axis in two dims (x + x^T) cannot be laid out by it.
  for (size_t v = 0; v < k.values.size(); ++v) {
    std::set<size_t> seen;
    for (size_t d = 0; d < k.values[v].type.shape.size(); ++d)
      if (extent_[first_[v] + d] != 1 && !seen.insert(find(first_[v] + d)).second) mixed_[first_[v] + d] = true;
  }
  axis_of_root_.assign(n, kNoAxis);
  for (size_t i = 0; i < n; ++i) {
    if (extent_[i] == 1) continue;
    int& axis = axis_of_root_[find(i)];
    if (axis == kNoAxis) {
      axis = static_cast<int>(axes.size());
      axes.emplace_back();
      axes.back().extent = extent_[i];
    }
    Axis& a = axes[static_cast<size_t>(axis)];
    a.mixed = a.mixed || mixed_[i];
    a.reduced = a.reduced || reduced_[i];
    a.contracted = a.contracted || contracted_[i];
    a.scanned = a.scanned || scanned_[i];
    a.stored = a.stored || stored_[i];
  }
}

// Stores of one shape that share no axis are iterated together where nothing hinders: each alone, neither could be
// split.
void Axes::join_stores() {
  std::set<size_t> bound;  // roots that are more than places of stored elements
  for (size_t i = 0; i < parent_.size(); ++i)
    if (mixed_[i] || reduced_[i] || contracted_[i] || scanned_[i]) bound.insert(find(i));
  const auto roots = [&](Value v) {
    std::vector<size_t> r;
    for (size_t d = 0; d < k_.type(v).shape.size(); ++d) r.push_back(find(node(v, d)));
    return r;
  };
  // Whether some value would have one axis in two dims.
  const auto meet = [&](size_t a, size_t b) {
    for (uint32_t v = 0; v < k_.values.size(); ++v) {
      const std::vector<size_t> r = roots({v});
      if (std::count(r.begin(), r.end(), a) && std::count(r.begin(), r.end(), b)) return true;
    }
    return false;
  };
  std::vector<Value> leaders;
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& o = k_.op(id);
    if (o.code != Opcode::store || k_.type(o.operands[1]).shape.empty()) return;
    const Value v = o.operands[1];
    for (Value leader : leaders) {
      if (k_.type(leader).shape != k_.type(v).shape) continue;
      const std::vector<size_t> a = roots(leader), b = roots(v);
      bool apart = true;
      for (size_t d = 0; d < a.size() && apart; ++d)
        apart = !std::count(b.begin(), b.end(), a[d]) && !bound.count(a[d]) && !bound.count(b[d]) && !meet(a[d], b[d]);
      if (!apart) continue;
      equate_all(v, leader);
      return;
    }
    leaders.push_back(v);
  });
}

size_t Axes::find(size_t n) const {
  while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
  return n;
}
void Axes::equate(size_t a, size_t b) {
  if (extent_[a] == 1 && extent_[b] == 1) return;
  parent_[find(a)] = find(b);
}
void Axes::equate(Value a, size_t i, Value b, size_t j) { equate(node(a, i), node(b, j)); }
void Axes::equate_all(Value a, Value b) {
  for (size_t d = 0; d < k_.type(a).shape.size(); ++d) equate(a, d, b, d);
}

int Axes::of(Value v, size_t dim) const {
  return extent_[node(v, dim)] == 1 ? kNoAxis : axis_of_root_[find(node(v, dim))];
}
int Axes::of_ref(int ref, size_t dim) const { return of(k_.region(k_.body).args[static_cast<size_t>(ref)], dim); }
std::vector<int> Axes::of(Value v) const {
  std::vector<int> r;
  for (size_t d = 0; d < k_.type(v).shape.size(); ++d) r.push_back(of(v, d));
  return r;
}

bool Axes::elementwise_over(int i, int j, bool transcendental) const {
  return ir::any_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& op = k_.op(id);
    if (!ir::is_elementwise(op.code) || (transcendental && !ir::info(op.code).transcendental)) return false;
    const std::vector<int> dims = of(op.results[0]);
    return std::count(dims.begin(), dims.end(), i) > 0 && std::count(dims.begin(), dims.end(), j) > 0;
  });
}

void Axes::walk(ir::RegionId r) {
  for (ir::OpId id : k_.region(r).ops) visit(k_.op(id));
}

void Axes::visit(const ir::Op& op) {
  for (ir::RegionId r : op.regions) walk(r);
  const auto result = [&] { return op.results[0]; };
  switch (ir::family(op.code)) {
    case Family::elementwise:
      for (Value v : op.operands) equate_all(v, result());
      return;
    case Family::move: return move(op);
    case Family::contract: return dot(op);
    case Family::reduce:
    case Family::argreduce: {
      const auto& axes_attr = op.ints(op.has(Attr::axes) ? Attr::axes : Attr::axis);
      size_t d = 0;
      for (size_t i = 0; i < k_.type(op.operands[0]).shape.size(); ++i) {
        if (std::find(axes_attr.begin(), axes_attr.end(), static_cast<int64_t>(i)) != axes_attr.end())
          reduced_[node(op.operands[0], i)] = true;
        else equate(op.operands[0], i, result(), d++);
      }
      return;
    }
    case Family::scan:
      for (size_t d = 0; d < k_.type(result()).shape.size(); ++d) {
        const bool along = static_cast<int64_t>(d) == op.attr(Attr::axis);
        if (along && scans_) scanned_[node(result(), d)] = true;
        if (!along || scans_) {
          equate(op.operands[0], d, result(), d);
          continue;
        }
        mix(op.operands[0], d);
        mix(result(), d);
      }
      return;
    case Family::rearrange: return rearrange(op);
    case Family::memory: {
      const int ref = ref_position(k_, op.operands[0]);
      const bool whole = resident_[static_cast<size_t>(ref)];
      auto value_dims = [&](Value v) {
        if (whole) equate_all(v, op.operands[0]);
      };
      const ir::AccessDims form = ir::access_dims(k_, op);
      for (const ir::Index& x : op.index)
        for (size_t i = 0; x.is_array() && i < form.array_rank; ++i) {
          const Value positions = op.operand_of(x);
          equate(positions, i, op.code == Opcode::load ? result() : op.operands[1], form.array_at + i);
        }
      if (ir::writes_ref(op.code)) {
        const Value stored = op.operands[1];
        value_dims(stored);
        for (size_t d = 0; d < k_.type(stored).shape.size(); ++d) stored_[node(stored, d)] = true;
        if (op.has_mask()) equate_all(op.operands[static_cast<size_t>(op.mask_position())], stored);
      }
      if (!op.results.empty()) {
        value_dims(result());
        if (op.has_mask()) equate_all(op.operands[static_cast<size_t>(op.mask_position())], result());
        if (op.has_other()) equate_all(op.operands[static_cast<size_t>(op.other_position())], result());
        if (op.code != Opcode::load) equate_all(op.operands[1], result());
        if (op.code == Opcode::atomic_cas) equate_all(op.operands[2], result());
      }
      return;
    }
    case Family::control: return control(op);
    case Family::source:
    case Family::grid:
    case Family::print:
    case Family::async:
    case Family::thread:
    case Family::end:
    case Family::launch:
    case Family::ref:
    case Family::group:
    case Family::packed:
    case Family::matrix:
    case Family::report: return;
  }
}

void Axes::move(const ir::Op& op) {
  const std::optional<ir::MoveMap> map = ir::move_map(k_, op);
  if (!map) {
    for (size_t i = 0; i < k_.type(op.operands[0]).shape.size(); ++i) mix(op.operands[0], i);
    return;
  }
  for (const ir::MovePiece& p : map->pieces)
    for (size_t i = 0; i < p.dims.size(); ++i) {
      if (p.dims[i].whole) equate(p.operand, i, op.results[0], static_cast<size_t>(p.dims[i].dim));
      else if (p.dims[i].dim >= 0) mix(p.operand, i);
    }
}

void Axes::dot(const ir::Op& op) {
  const Value result = op.results[0];
  const Value lhs = op.operands[0], rhs = op.operands[1];
  const ir::DotDims dims = ir::dot_dims(k_, op);
  size_t d = 0;
  for (size_t i = 0; i < dims.lhs_batch.size(); ++i, ++d) {
    equate(lhs, static_cast<size_t>(dims.lhs_batch[i]), result, d);
    equate(rhs, static_cast<size_t>(dims.rhs_batch[i]), result, d);
  }
  for (size_t i = 0; i < dims.lhs_contract.size(); ++i) {
    const auto l = static_cast<size_t>(dims.lhs_contract[i]);
    equate(lhs, l, rhs, static_cast<size_t>(dims.rhs_contract[i]));
    contracted_[node(lhs, l)] = true;
  }
  for (int64_t i : dims.lhs_free) equate(lhs, static_cast<size_t>(i), result, d++);
  for (int64_t i : dims.rhs_free) equate(rhs, static_cast<size_t>(i), result, d++);
  if (op.operands.size() == 3)
    for (size_t i = 0; i < k_.type(op.operands[2]).shape.size(); ++i) equate(op.operands[2], i, result, i);
}

void Axes::rearrange(const ir::Op& op) {
  const Value result = op.results[0];
  switch (ir::Rearrange(op.code)) {
    case ir::Rearrange::gather: {
      const auto& dims = op.ints(Attr::dims);
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d] < 0) mix(op.operands[0], d);
        else equate(op.operands[0], d, result, static_cast<size_t>(dims[d]));
      }
      for (size_t i = 1; i < op.operands.size(); ++i) equate_all(op.operands[i], result);
      return;
    }
    case ir::Rearrange::scatter: {
      const Value updates = op.operands[1];
      const auto& dims = op.ints(Attr::dims);
      std::vector<bool> followed(k_.type(updates).shape.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        equate(op.operands[0], d, result, d);
        if (dims[d] < 0) {
          mix(result, d);
          continue;
        }
        equate(updates, static_cast<size_t>(dims[d]), result, d);
        followed[static_cast<size_t>(dims[d])] = true;
      }
      for (size_t d = 0; d < followed.size(); ++d)
        if (!followed[d]) mix(updates, d);
      for (size_t i = 2; i < op.operands.size(); ++i) equate_all(op.operands[i], updates);
      return;
    }
    case ir::Rearrange::sort:
      for (size_t i = 0; i < op.operands.size(); ++i) {
        equate_all(op.operands[i], op.results[i]);
        equate_all(op.results[i], result);
      }
      mix(result, static_cast<size_t>(op.attr(Attr::axis)));
      return;
  }
}

void Axes::control(const ir::Op& op) {
  for (size_t i = 0; i < op.results.size(); ++i)
    for (Value v : ir::flows_into(k_, op, i)) equate_all(v, op.results[i]);
}

}  // namespace tessera::lowering
