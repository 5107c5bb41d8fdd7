#include "codegen/plan/indexed.h"

#include <algorithm>
#include <optional>

#include "codegen/plan/axes.h"
#include "engine/ir/builder.h"
#include "engine/ir/moves.h"

namespace tessera::lowering {
namespace {
using ir::Attr;
using ir::Opcode;
using ir::Value;

// What each element of an i32 array adds to something that is the same for all of them: the sum of coef[d] times its
// index along dim d, modulo 2^32. None where that is not known.
std::optional<std::vector<int64_t>> index_form(const ir::Kernel& k, Value v, int depth = 0) {
  const Shape& shape = k.type(v).shape;
  const size_t rank = shape.size();
  std::vector<int64_t> coef(rank, 0);
  if (num_elements(shape) <= 1) return coef;
  const ir::Op* op = k.def(v);
  if (!op || depth > 32) return std::nullopt;
  const auto of = [&](size_t i) { return index_form(k, op->operands[i], depth + 1); };
  const auto scaled = [&](size_t i, int64_t factor) -> std::optional<std::vector<int64_t>> {
    auto f = of(i);
    for (size_t d = 0; f && d < rank; ++d)
      if (__builtin_mul_overflow((*f)[d], factor, &(*f)[d]) || std::abs((*f)[d]) > INT32_MAX) f.reset();
    return f;
  };
  if (op->code == Opcode::constant) return coef;
  if (op->code == Opcode::iota) {
    coef[static_cast<size_t>(op->attr(Attr::axis))] = 1;
    return coef;
  }
  if (op->code == Opcode::neg) return scaled(0, -1);
  if (op->code == Opcode::mul) {
    if (const auto c = ir::constant_int(k, op->operands[1])) return scaled(0, *c);
    if (const auto c = ir::constant_int(k, op->operands[0])) return scaled(1, *c);
    return std::nullopt;
  }
  if (op->code == Opcode::add || op->code == Opcode::sub) {
    auto a = of(0), b = of(1);
    if (!a || !b) return std::nullopt;
    for (size_t d = 0; d < rank; ++d) {
      (*a)[d] += op->code == Opcode::add ? (*b)[d] : -(*b)[d];
      if (std::abs((*a)[d]) > INT32_MAX) return std::nullopt;
    }
    return a;
  }
  const auto dims = ir::move_dims(k, *op);
  const auto from = dims ? of(0) : std::nullopt;
  if (!from) return std::nullopt;
  for (size_t i = 0; i < dims->size(); ++i) {
    const ir::DimSource& source = (*dims)[i];
    if (source.dim < 0) continue;
    int64_t& c = coef[static_cast<size_t>(source.dim)];
    if (__builtin_mul_overflow((*from)[i], source.stride, &c) || std::abs(c) > INT32_MAX) return std::nullopt;
  }
  return coef;
}

// No two elements of the op's index arrays are one position, wrapped or not. An array does for the dims that it depends
// on if its coefficients separate like the digits of a mixed radix, and its span is below the dim's size, so that a
// wrapped position equals no other.
bool distinct(const ir::Kernel& k, const ir::Op& op, const ir::AccessDims& form) {
  std::vector<bool> told(form.array_rank, false);
  for (size_t d = 0; d < op.index.size(); ++d) {
    if (!op.index[d].is_array()) continue;
    const auto coef = index_form(k, op.operand_of(op.index[d]));
    if (!coef) continue;
    std::vector<size_t> order;
    for (size_t i = 0; i < form.array_rank; ++i)
      if ((*coef)[i] != 0 && form.shape[form.array_at + i] > 1) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs((*coef)[a]) < std::abs((*coef)[b]); });
    __int128 span = 0;
    bool separate = true;
    for (size_t i : order) {
      separate = separate && std::abs((*coef)[i]) > span;
      span += __int128{std::abs((*coef)[i])} * (form.shape[form.array_at + i] - 1);
    }
    // A wrapped i32 is 2^32 away, and in an array of more than 2^31 elements that may be an element among those that
    // were not.
    const int64_t n = k.type(op.operands[0]).shape[d];
    if (!separate || span >= n || n > int64_t{1} << 31) continue;
    for (size_t i : order) told[i] = true;
  }
  for (size_t i = 0; i < form.array_rank; ++i)
    if (!told[i] && form.shape[form.array_at + i] > 1) return false;
  return true;
}
}  // namespace

bool must_scatter_in_order(const ir::Kernel& k, const ir::Op& op) {
  if (!ir::writes_ref(op.code)) return false;
  if (op.code == Opcode::store && op.attr_or(ir::Attr::unordered, 0)) return false;
  const ir::AccessDims form = ir::access_dims(k, op);
  return form.arrays && !distinct(k, op, form);
}

bool expand_updates(ir::Kernel& k) {
  bool changed = false;
  for (uint32_t r = 0; r < k.regions.size(); ++r) {
    const std::vector<ir::OpId> list = k.regions[r].ops;
    if (std::none_of(list.begin(), list.end(), [&](ir::OpId id) {
          return k.op(id).code == Opcode::addupdate && !must_scatter_in_order(k, k.op(id));
        }))
      continue;
    changed = true;
    k.regions[r].ops.clear();
    ir::Builder b(k);
    b.set_region({r});
    for (ir::OpId id : list) {
      if (k.op(id).code != Opcode::addupdate || must_scatter_in_order(k, k.op(id))) {
        k.regions[r].ops.push_back(id);
        continue;
      }
      ir::Op store = k.op(id), load = store;
      b.set_loc(store.loc);
      load.code = Opcode::load;
      load.operands.erase(load.operands.begin() + 1);
      for (ir::Index& x : load.index) x.shift(-1);
      const Value held = b.one(std::move(load));
      store.code = Opcode::store;
      store.operands[1] = b.elementwise(Opcode::add, {held, store.operands[1]});
      b.append(std::move(store));
    }
  }
  return changed;
}

}  // namespace tessera::lowering
