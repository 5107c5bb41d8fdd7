#include "engine/interpreter/dot.h"

#include <algorithm>
#include <type_traits>

#include "engine/base/element.h"
#include "engine/interpreter/multiply.h"
#include "engine/interpreter/strided.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
namespace {

// The operand in the order of `shape`, converted; points into the operand itself where that is what it is already.
const std::byte* prepare(const std::byte* operand, const Shape& shape, const Strides& strides, DType from, DType to,
                         std::vector<std::byte>& permuted, std::vector<std::byte>& converted) {
  const int64_t n = num_elements(shape);
  if (!is_dense(shape.size(), shape.data(), strides.data())) {
    permuted.resize(static_cast<size_t>(n * size_bytes(from)));
    const Strides dense = dense_strides(shape);
    copy_strided(shape.size(), shape.data(), permuted.data(), dense.data(), operand, strides.data(), size_bytes(from));
    operand = permuted.data();
  }
  if (from == to) return operand;
  converted.resize(static_cast<size_t>(n * size_bytes(to)));
  const void* source = operand;
  reference::eval_array(ir::Opcode::convert, from, to, &source, converted.data(), n);
  return converted.data();
}
}  // namespace

DotPlan plan_dot(const ir::Kernel& kernel, const ir::Op& op) {
  const ir::Type &l = kernel.type(op.operands[0]), &r = kernel.type(op.operands[1]);
  DotPlan p;
  p.operand = l.dtype;
  p.result = kernel.type(op.results[0]).dtype;
  p.accumulator = is_float(p.operand)     ? (p.result == DType::f64 ? DType::f64 : DType::f32)
                  : p.result == DType::i4 ? DType::i8
                  : p.result == DType::u4 ? DType::u8
                                          : p.result;
  const ir::DotDims dims = ir::dot_dims(kernel, op);
  const auto take = [](const Shape& from, const std::vector<int64_t>& of, Shape& shape, Strides& strides) {
    const Strides dense = dense_strides(from);
    int64_t product = 1;
    for (int64_t d : of) {
      shape.push_back(from[static_cast<size_t>(d)]);
      strides.push_back(dense[static_cast<size_t>(d)]);
      product *= from[static_cast<size_t>(d)];
    }
    return product;
  };
  p.batch = take(l.shape, dims.lhs_batch, p.lhs_shape, p.lhs_strides);
  p.m = take(l.shape, dims.lhs_free, p.lhs_shape, p.lhs_strides);
  p.k = take(l.shape, dims.lhs_contract, p.lhs_shape, p.lhs_strides);
  take(r.shape, dims.rhs_batch, p.rhs_shape, p.rhs_strides);
  take(r.shape, dims.rhs_contract, p.rhs_shape, p.rhs_strides);
  p.n = take(r.shape, dims.rhs_free, p.rhs_shape, p.rhs_strides);
  return p;
}

void dot(const DotPlan& p, const std::byte* lhs, const std::byte* rhs, const std::byte* start, std::byte* out) {
  if (p.batch * p.m * p.n == 0) return;
  std::vector<std::byte> buffers[6];
  const std::byte* a = prepare(lhs, p.lhs_shape, p.lhs_strides, p.operand, p.accumulator, buffers[0], buffers[1]);
  const std::byte* b = prepare(rhs, p.rhs_shape, p.rhs_strides, p.operand, p.accumulator, buffers[2], buffers[3]);
  std::byte* c = out;
  const int64_t elements = p.batch * p.m * p.n;
  if (p.accumulator != p.result) {
    buffers[4].resize(static_cast<size_t>(elements * size_bytes(p.accumulator)));
    c = buffers[4].data();
  }
  with_dtype(p.accumulator, [&](auto t) {
    using M = typename ElementOf<t>::Memory;
    using T = typename std::conditional_t<std::is_integral_v<M>, std::make_unsigned<M>, std::type_identity<M>>::type;
    const Multiply<T> multiply = multiply_codes<T>().front().run;
    for (int64_t i = 0; i < p.batch; ++i)
      multiply(p.m, p.n, p.k, reinterpret_cast<const T*>(a) + i * p.m * p.k,
               reinterpret_cast<const T*>(b) + i * p.k * p.n, reinterpret_cast<T*>(c) + i * p.m * p.n);
  });
  if (start) {
    if (p.accumulator != p.result) {
      buffers[5].resize(buffers[4].size());
      const void* source = start;
      reference::eval_array(ir::Opcode::convert, p.result, p.accumulator, &source, buffers[5].data(), elements);
      start = buffers[5].data();
    }
    const void* operands[] = {c, start};
    reference::eval_array(ir::Opcode::add, p.accumulator, p.accumulator, operands, c, elements);
  }
  if (p.accumulator != p.result) {
    const void* source = c;
    reference::eval_array(ir::Opcode::convert, p.accumulator, p.result, &source, out, elements);
  }
}

}  // namespace tessera::interpreter
