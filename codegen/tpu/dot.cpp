// Products. tpu.matmul takes matrices, and batches of them along the first dim; other operands are brought to that
// form. Floats accumulate in f32, and f32 itself is multiplied in full. Integers that the matrix unit lacks are
// multiplied by vectors.
#include <algorithm>
#include <optional>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
namespace {
int64_t size_of(const Val& x, const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= x.shape[static_cast<size_t>(d)];
  return n;
}
std::vector<int64_t> joined(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                            const std::vector<int64_t>& c) {
  std::vector<int64_t> all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}
}  // namespace

// (B, M, K) times (B, K, N), elements of dtype t, as a sum along K of a vector of four dims.
Val Emitter::dot_by_sums(const ir::Op& op, const Val& a, const Val& b, const Shape& sizes, DType t) {
  const int64_t batch = sizes[0], m = sizes[1], n = sizes[2], depth = sizes[3];
  const Val aw = convert(a, t), bw = convert(b, t);
  const Val at = t_.shape_cast(aw, {batch, m, depth, 1}), bt = t_.shape_cast(bw, {batch, 1, depth, n});
  const Val as = t_.broadcast(at, {batch, m, depth, n}), bs = t_.broadcast(bt, {batch, m, depth, n});
  const Val products = elementwise(op, ir::Opcode::mul, {as, bs});
  return reduce_wide(op, ir::Opcode::add, products, {2});
}

void Emitter::dot(const ir::Op& op) {
  const Val &x = value(op.operands[0]), &y = value(op.operands[1]);
  const ir::Type& type = k_.type(op.results[0]);
  const ir::DotDims d = ir::dot_dims(op, x.shape.size(), y.shape.size());
  Val a = x, b = y;
  const bool floats = is_float(x.dtype);
  if (is_float8(a.dtype)) a = convert(a, DType::bf16);  // which holds them exactly
  if (is_float8(b.dtype)) b = convert(b, DType::bf16);
  if (a.dtype == DType::f16) a = convert(a, DType::f32);
  if (b.dtype == DType::f16) b = convert(b, DType::f32);
  const int64_t batch = size_of(a, d.lhs_batch), m = size_of(a, d.lhs_free), n = size_of(b, d.rhs_free),
                depth = size_of(a, d.lhs_contract);
  const DType wide = floats ? DType::f32 : DType::i32;
  const bool in_unit = floats || (chip_.int8_products && a.dtype == DType::i8 && b.dtype == DType::i8);
  const bool plain = d.lhs_contract.size() == 1 && d.lhs_free.size() == 1 && d.rhs_free.size() == 1 &&
                     (d.lhs_batch.empty() || (d.lhs_batch == std::vector<int64_t>{0} && d.rhs_batch == d.lhs_batch));
  std::optional<Val> start;  // what the sums begin with
  if (op.operands.size() > 2) start = convert(value(op.operands[2]), wide);
  Val r;
  if (in_unit) {
    std::vector<int64_t> order;
    std::vector<int64_t> lc = d.lhs_contract, rc = d.rhs_contract, lf = d.lhs_free, rf = d.rhs_free, lb = d.lhs_batch,
                         rb = d.rhs_batch;
    Shape shape = type.shape;
    if (!plain) {  // (batch, rows, depth) and (batch, depth, columns)
      const bool batched = !lb.empty();
      const int64_t first = batched ? 1 : 0;
      a = transpose(a, joined(d.lhs_batch, d.lhs_free, d.lhs_contract));
      b = transpose(b, joined(d.rhs_batch, d.rhs_contract, d.rhs_free));
      a = reshape(a, batched ? Shape{batch, m, depth} : Shape{m, depth});
      b = reshape(b, batched ? Shape{batch, depth, n} : Shape{depth, n});
      lb = rb = batched ? std::vector<int64_t>{0} : std::vector<int64_t>{};
      lf = {first}, lc = {first + 1}, rc = {first}, rf = {first + 1};
      shape = batched ? Shape{batch, m, n} : Shape{m, n};
    }
    for (const int64_t i : lb) order.insert(order.end(), {0, i});
    for (const int64_t i : lf) order.insert(order.end(), {0, i});
    for (const int64_t i : rf) order.insert(order.end(), {1, i});
    Val zero = t_.integer(wide, 0, shape);
    if (start) zero = reshape(*start, shape);
    const bool full = a.dtype == DType::f32 || b.dtype == DType::f32;
    r = t_.make("tpu.matmul " + a.name + ", " + b.name + ", " + zero.name +
                    " {dimension_numbers = #tpu.dot_dimension_numbers<" + list(lc) + ", " + list(rc) + ", " + list(lf) +
                    ", " + list(rf) + ", " + list(order) + ", " + list(lb) + ", " + list(rb) + ">" +
                    (full ? ", precision = #tpu.contract_precision<fp32>" : "") + ", transpose_lhs_hint = false} : " +
                    type_of(a) + ", " + type_of(b) + ", " + type_of(zero) + " -> " + value_type(wide, shape),
                wide, shape);
  } else {
    a = transpose(a, joined(d.lhs_batch, d.lhs_free, d.lhs_contract));
    b = transpose(b, joined(d.rhs_batch, d.rhs_contract, d.rhs_free));
    r = dot_by_sums(op, a, b, {batch, m, n, depth}, wide);
    if (start) {
      const Val shaped = reshape(*start, r.shape);
      r = elementwise(op, ir::Opcode::add, {r, shaped});
    }
  }
  const Val shaped = reshape(r, type.shape);
  set(op, convert(shaped, type.dtype));
}

}  // namespace tessera::tpu
