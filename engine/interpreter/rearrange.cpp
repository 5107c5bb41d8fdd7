#include "engine/interpreter/rearrange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/interpreter/strided.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
namespace {
uint64_t bits_at(const std::byte* from, int64_t bytes) {
  uint64_t v = 0;
  std::memcpy(&v, from, static_cast<size_t>(bytes));
  return v;
}

/// Calls f(offset in x or -1, position) for each element of p.at in row-major order; `clamps`: no index is out of
/// range.
template <class F> void each_position(const Positions& p, const std::vector<const int32_t*>& indices, bool clamps,
                                      F&& f) {
  int64_t i = 0;
  for_each_index(p.at.size(), p.at.data(), [&](const int64_t* at) {
    int64_t offset = 0;
    for (size_t d = 0; d < p.at.size(); ++d) offset += at[d] * p.along[d];
    bool inside = true;
    for (size_t k = 0; k < indices.size(); ++k) {
      int64_t v = indices[k][i];
      const int64_t n = p.indexed[k].extent;
      if (v < 0) v += n;
      if (clamps) v = std::clamp<int64_t>(v, 0, n - 1);
      inside = inside && v >= 0 && v < n;
      offset += v * p.indexed[k].stride;
    }
    f(inside ? offset : -1, i++);
  });
}
}  // namespace

Positions plan_positions(const ir::Kernel& k, const ir::Op& op) {
  const ir::Type& x = k.type(op.operands[0]);
  Positions p;
  p.scatters = op.code == ir::Opcode::scatter;
  p.at = k.type(p.scatters ? op.operands[1] : op.results[0]).shape;
  p.along.assign(p.at.size(), 0);
  p.elements = num_elements(x.shape);
  p.dtype = x.dtype;
  p.bytes = size_bytes(x.dtype);
  p.combines = op.has(ir::Attr::kind);
  if (p.combines) p.kind = static_cast<ir::Opcode>(op.attr(ir::Attr::kind));
  const Strides strides = dense_strides(x.shape);
  const auto& dims = op.ints(ir::Attr::dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0) p.indexed.push_back({x.shape[d], strides[d]});
    else p.along[static_cast<size_t>(dims[d])] = strides[d];
  }
  return p;
}

void gather(const Positions& p, const std::byte* x, const std::vector<const int32_t*>& indices, std::byte* out) {
  const auto bytes = static_cast<size_t>(p.bytes);
  each_position(p, indices, true,
                [&](int64_t offset, int64_t i) { std::memcpy(out + i * p.bytes, x + offset * p.bytes, bytes); });
}

void scatter(const Positions& p, const std::byte* x, const std::byte* updates,
             const std::vector<const int32_t*>& indices, std::byte* out) {
  const auto bytes = static_cast<size_t>(p.bytes);
  std::memcpy(out, x, static_cast<size_t>(p.elements) * bytes);
  each_position(p, indices, false, [&](int64_t offset, int64_t i) {
    if (offset < 0) return;
    std::byte* to = out + offset * p.bytes;
    uint64_t v = bits_at(updates + i * p.bytes, p.bytes);
    if (p.combines) {
      const uint64_t operands[] = {bits_at(to, p.bytes), v, 0};
      v = reference::eval(p.kind, p.dtype, p.dtype, operands);
    }
    std::memcpy(to, &v, bytes);
  });
}

uint64_t sort_key(DType t, uint64_t v) {
  const int n = bits(t);
  if (n < 64) v &= (uint64_t{1} << n) - 1;  // of an int4's byte the upper half says nothing
  if (t == DType::boolean || is_unsigned_int(t)) return v;
  const uint64_t sign = uint64_t{1} << (n - 1);
  if (is_signed_int(t)) return v ^ sign;
  const double x = reference::to_double(t, v);
  if (x != x) return ~uint64_t{0};
  if (x == 0) return sign;
  return v & sign ? ~v & (sign - 1) : v | sign;
}

void sort(const Shape& shape, int64_t axis, size_t keys, const std::vector<SortOperand>& operands) {
  const Strides strides = dense_strides(shape);
  const auto along = static_cast<size_t>(axis);
  const int64_t n = shape[along], stride = strides[along];
  Shape lines = shape;
  lines[along] = n == 0 ? 0 : 1;
  std::vector<std::vector<uint64_t>> key(keys, std::vector<uint64_t>(static_cast<size_t>(n)));
  std::vector<size_t> order(static_cast<size_t>(n));
  for_each_index(lines.size(), lines.data(), [&](const int64_t* at) {
    int64_t base = 0;
    for (size_t d = 0; d < lines.size(); ++d) base += at[d] * strides[d];
    const auto offset = [&](size_t i, DType t) { return (base + static_cast<int64_t>(i) * stride) * size_bytes(t); };
    for (size_t k = 0; k < keys; ++k)
      for (size_t i = 0; i < order.size(); ++i)
        key[k][i] = sort_key(operands[k].dtype,
                             bits_at(operands[k].in + offset(i, operands[k].dtype), size_bytes(operands[k].dtype)));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      for (const auto& k : key)
        if (k[a] != k[b]) return k[a] < k[b];
      return false;
    });
    for (const SortOperand& o : operands)
      for (size_t i = 0; i < order.size(); ++i)
        std::memcpy(o.out + offset(i, o.dtype), o.in + offset(order[i], o.dtype),
                    static_cast<size_t>(size_bytes(o.dtype)));
  });
}

}  // namespace tessera::interpreter
