#include "engine/interpreter/dot.h"

#include <algorithm>
#include <type_traits>

#include "engine/base/element.h"
#include "engine/interpreter/multiply.h"
#include "engine/interpreter/strided.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
namespace {

// An operand in the product's order and in the accumulator's dtype.
class Factor {
 public:
  Factor(const DotPlan& plan, const DotPlan::Operand& o, const std::byte* operand) : data_(operand) {
    const int64_t n = num_elements(o.shape), bytes = size_bytes(plan.operand);
    if (!is_dense(o.shape.size(), o.shape.data(), o.strides.data())) {
      permuted_.resize(static_cast<size_t>(n * bytes));
      const Strides dense = dense_strides(o.shape);
      StridedCopy(o.shape.size(), o.shape.data(), dense.data(), o.strides.data(), bytes).run(permuted_.data(), data_);
      data_ = permuted_.data();
    }
    if (plan.operand == plan.accumulator) return;
    converted_.resize(static_cast<size_t>(n * size_bytes(plan.accumulator)));
    const void* source = data_;
    reference::eval_array(ir::Opcode::convert, plan.operand, plan.accumulator, &source, converted_.data(), n);
    data_ = converted_.data();
  }
  template <class T> const T* data() const { return reinterpret_cast<const T*>(data_); }

 private:
  const std::byte* data_;  // the operand itself where that is what it is already
  std::vector<std::byte> permuted_, converted_;
};
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
  const auto take = [](const Shape& from, const std::vector<int64_t>& of, DotPlan::Operand& o) {
    const Strides dense = dense_strides(from);
    int64_t product = 1;
    for (int64_t d : of) {
      o.shape.push_back(from[static_cast<size_t>(d)]);
      o.strides.push_back(dense[static_cast<size_t>(d)]);
      product *= from[static_cast<size_t>(d)];
    }
    return product;
  };
  p.batch = take(l.shape, dims.lhs_batch, p.lhs);
  p.m = take(l.shape, dims.lhs_free, p.lhs);
  p.k = take(l.shape, dims.lhs_contract, p.lhs);
  take(r.shape, dims.rhs_batch, p.rhs);
  take(r.shape, dims.rhs_contract, p.rhs);
  p.n = take(r.shape, dims.rhs_free, p.rhs);
  return p;
}

void dot(const DotPlan& p, const std::byte* lhs, const std::byte* rhs, const std::byte* start, std::byte* out) {
  if (p.batch * p.m * p.n == 0) return;
  const Factor a(p, p.lhs, lhs), b(p, p.rhs, rhs);
  std::vector<std::byte> wide, wide_start;  // in the accumulator's dtype
  std::byte* c = out;
  const int64_t elements = p.batch * p.m * p.n;
  if (p.accumulator != p.result) {
    wide.resize(static_cast<size_t>(elements * size_bytes(p.accumulator)));
    c = wide.data();
  }
  with_dtype(p.accumulator, [&](auto t) {
    using M = typename ElementOf<t>::Memory;
    using T = typename std::conditional_t<std::is_integral_v<M>, std::make_unsigned<M>, std::type_identity<M>>::type;
    const Multiply<T> multiply = multiply_codes<T>().front().run;
    for (int64_t i = 0; i < p.batch; ++i)
      multiply(p.m, p.n, p.k, a.data<T>() + i * p.m * p.k, b.data<T>() + i * p.k * p.n,
               reinterpret_cast<T*>(c) + i * p.m * p.n);
  });
  if (start) {
    if (p.accumulator != p.result) {
      wide_start.resize(wide.size());
      const void* source = start;
      reference::eval_array(ir::Opcode::convert, p.result, p.accumulator, &source, wide_start.data(), elements);
      start = wide_start.data();
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
