// Values that are no arithmetic: constants, iota, moves, gathers, and the grid.
#include <algorithm>
#include <numeric>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
using ir::Attr;
using ir::Opcode;

void Emitter::source(const ir::Op& op) {
  const ir::Type& type = k_.type(op.results[0]);
  if (op.code == Opcode::constant)
    return set(op, t_.constant(type.dtype, static_cast<uint64_t>(op.attr(Attr::bits)), type.shape));
  // of two dims at least, and i32
  Shape shape = type.shape;
  auto axis = static_cast<size_t>(op.attr(Attr::axis));
  if (shape.size() == 1) shape.insert(shape.begin(), 1), ++axis;
  const Val i = t_.iota(shape, axis);
  const Val shaped = t_.shape_cast(i, type.shape);
  set(op, convert(shaped, type.dtype));
}

Val Emitter::reshape(const Val& x, const Shape& shape) {
  if (x.shape == shape) return x;
  if (x.shape.empty()) return t_.broadcast(x, shape);
  if (shape.empty()) return t_.extract(x);
  return t_.shape_cast(x, shape);
}

Val Emitter::transpose(const Val& x, const std::vector<int64_t>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  Shape shape;
  for (const int64_t d : perm) shape.push_back(x.shape[static_cast<size_t>(d)]);
  return t_.make(
      "tpu.transpose " + x.name + ", " + list(perm) + " : " + type_of(x) + " -> " + value_type(x.dtype, shape), x.dtype,
      shape);
}

void Emitter::move(const ir::Op& op) {
  const Val& x = value(op.operands.at(0));
  const Shape& shape = k_.type(op.results[0]).shape;
  switch (ir::Move(op.code)) {
    case ir::Move::broadcast: {
      Shape ones(shape.size(), 1);
      const std::vector<int64_t>& dims = op.ints(Attr::dims);
      for (size_t i = 0; i < dims.size(); ++i) ones[static_cast<size_t>(dims[i])] = x.shape[i];
      const Val spread = x.shape.empty() ? x : t_.shape_cast(x, ones);
      return set(op, t_.broadcast(spread, shape));
    }
    case ir::Move::reshape: return set(op, reshape(x, shape));
    case ir::Move::transpose: return set(op, transpose(x, op.ints(Attr::perm)));
    case ir::Move::slice: {
      Val r = x;
      const std::vector<int64_t>&start = op.ints(Attr::start), &limit = op.ints(Attr::limit),
            &stride = op.ints(Attr::stride);
      for (size_t d = 0; d < start.size(); ++d) {
        if (shape[d] > 1 && stride[d] != 1)
          fail(op, "it takes no slices of values with a stride", "load with the stride, from a Ref");
        r = t_.slice(r, d, start[d], std::max<int64_t>(shape[d], limit[d] > start[d] ? 1 : 0));
      }
      return set(op, r);
    }
    case ir::Move::rev: {
      Val r = x;
      for (const int64_t a : op.ints(Attr::axes)) {
        const auto axis = static_cast<size_t>(a);
        if (x.shape[axis] == 1) continue;
        if (x.shape.size() < 2 || axis + 2 < x.shape.size() || bits(x.dtype) != 32)
          fail(op, "it reverses only values of 32 bits, along one of the last two of at least two dims");
        const Val i = t_.iota(x.shape, axis);
        const Val last = t_.integer(DType::i32, x.shape[axis] - 1, x.shape);
        const Val from = t_.binary("arith.subi", last, i);
        r = gather_along(r, from, axis);
      }
      return set(op, r);
    }
    case ir::Move::concatenate: {
      std::vector<Val> parts;
      for (const ir::Value v : op.operands) parts.push_back(value(v));
      return set(op, t_.concatenate(parts, static_cast<size_t>(op.attr(Attr::axis))));
    }
  }
}

Val Emitter::gather_along(const Val& x, const Val& index, size_t axis) {
  return t_.make("tpu.dynamic_gather " + x.name + "[" + index.name + "] in [" + std::to_string(axis) +
                     "] : " + type_of(x) + ", " + type_of(index) + " -> " + value_type(x.dtype, index.shape),
                 x.dtype, index.shape);
}

// What Mosaic has: numpy's take_along_axis, of operands of one shape.
void Emitter::gather(const ir::Op& op) {
  const Val& x = value(op.operands[0]);
  const std::vector<int64_t>& dims = op.ints(Attr::dims);
  const auto along = static_cast<size_t>(std::find(dims.begin(), dims.end(), -1) - dims.begin());
  bool fits = along < dims.size() && std::count(dims.begin(), dims.end(), -1) == 1 &&
              x.shape == k_.type(op.results[0]).shape && dims.size() >= 2 && along + 2 >= dims.size() &&
              bits(x.dtype) == 32;
  for (size_t d = 0; d < dims.size(); ++d) fits &= d == along || dims[d] == static_cast<int64_t>(d);
  if (!fits)
    fail(op, "it gathers only along one of the last two dims, 32-bit elements by an index of the operand's shape",
         "as numpy.take_along_axis does; or copy rows by blocks with scalar prefetch");
  const Val& given = value(op.operands[1]);
  const int64_t n = x.shape[along];
  Val index = given;
  if (!within(ranges_.of(op.operands[1]), 0, n - 1)) {
    const Val zero = t_.integer(DType::i32, 0, given.shape), size = t_.integer(DType::i32, n, given.shape),
              last = t_.integer(DType::i32, n - 1, given.shape);
    const Val negative = t_.compare("slt", given, zero);
    const Val wrapped = t_.binary("arith.addi", given, size);
    const Val once = t_.select(negative, wrapped, given);
    const Val above = t_.binary("arith.maxsi", once, zero);
    index = t_.binary("arith.minsi", above, last);
  }
  set(op, gather_along(x, index, along));
}

void Emitter::grid(const ir::Op& op) {
  if (op.code == Opcode::size)
    return set(op, t_.integer(DType::i32, *k_.sizes[static_cast<size_t>(op.attr(Attr::index))].value()));
  int64_t axis = op.attr(Attr::axis);
  size_t at = 0;
  while (k_.grid[at].vmapped || axis-- > 0) ++at;
  if (op.code == Opcode::program_id) return set(op, program_ids_.at(at));
  set(op, t_.integer(DType::i32, *k_.grid[at].size.value()));
}

}  // namespace tessera::tpu
