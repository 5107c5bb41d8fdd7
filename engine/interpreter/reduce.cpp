#include "engine/interpreter/reduce.h"

#include <algorithm>
#include <cstring>

#include "engine/base/element.h"
#include "engine/interpreter/strided.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
namespace {
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
};
Around around(const Shape& shape, size_t first, size_t last) {  // the dims [first, last] as one axis
  Around a;
  for (size_t d = 0; d < shape.size(); ++d) (d < first ? a.outer : d > last ? a.inner : a.n) *= shape[d];
  return a;
}

// [outer, n, inner] -> [outer, inner]. `buffer` may be changed: each round combines the first half of the rows with the
// second. Results go to its front, which never overtakes what is read.
void combine_axis(reference::ArrayFunction f, int64_t bytes, int64_t outer, int64_t n, int64_t inner,
                  std::byte* buffer) {
  const int64_t row = inner * bytes;
  for (int64_t o = 0; o < outer; ++o) {
    std::byte* rows = buffer + o * n * row;
    for (int64_t left = n; left > 1;) {
      const int64_t half = left / 2;
      const void* operands[] = {rows, rows + half * row};
      f(operands, rows, half * inner);
      if (left % 2) std::memmove(rows + half * row, rows + (left - 1) * row, static_cast<size_t>(row));
      left = half + left % 2;
    }
    if (o) std::memmove(buffer + o * row, rows, static_cast<size_t>(row));
  }
}
}  // namespace

Reduction::Reduction(ir::Opcode op, DType t, Shape shape, const std::vector<int64_t>& axes)
    : t_(t), elements_(num_elements(shape)), kept_(1) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) kept_ *= shape[d];
  const ir::Opcode by = ir::combining_op(op);
  wide_ = ir::combiner(by)->accumulator(t);
  combine_ = reference::array_function(by, wide_, wide_);
  widen_ = reference::array_function(ir::Opcode::convert, t, wide_);
  narrow_ = reference::array_function(ir::Opcode::convert, wide_, t);
  if (elements_ == 0 || (ir::combiner(by)->wide && is_float(t) && !axes.empty())) {
    identity_.resize(static_cast<size_t>(kept_ * size_bytes(wide_)));
    fill(identity_.data(), kept_, reference::identity(by, wide_), size_bytes(wide_));
  }
  buffer_.resize(static_cast<size_t>(elements_ * size_bytes(wide_)));
  for (size_t i = axes.size(); i-- > 0;) {  // the last group first
    const size_t last = static_cast<size_t>(axes[i]);
    while (i > 0 && axes[i - 1] == axes[i] - 1) --i;
    const size_t first = static_cast<size_t>(axes[i]);
    const Around a = around(shape, first, last);
    groups_.push_back({a.outer, a.n, a.inner});
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(first),
                shape.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  }
}

void Reduction::run(const std::byte* in, std::byte* out) {
  if (kept_ == 0) return;
  const void* source = identity_.data();
  if (elements_) {
    std::byte* const buffer = buffer_.data();
    if (wide_ == t_) std::memcpy(buffer, in, buffer_.size());
    else source = in, widen_(&source, buffer, elements_);
    for (const Group& g : groups_) combine_axis(combine_, size_bytes(wide_), g.outer, g.n, g.inner, buffer);
    if (!identity_.empty()) {  // 0 + -0 = 0
      const void* operands[] = {identity_.data(), buffer};
      combine_(operands, buffer, kept_);
    }
    source = buffer;
  }
  if (wide_ == t_) std::memcpy(out, source, static_cast<size_t>(kept_ * size_bytes(t_)));
  else narrow_(&source, out, kept_);
}

void arg_reduce(ir::Opcode op, const ir::Type& type, int64_t axis, DType index, const std::byte* in, std::byte* out) {
  const Around a = around(type.shape, static_cast<size_t>(axis), static_cast<size_t>(axis));
  const bool greatest = ir::combining_op(op) == ir::Opcode::max;
  std::vector<int64_t> found(static_cast<size_t>(a.outer * a.inner));
  with_dtype(type.dtype, [&](auto c) {
    using E = ElementOf<c>;
    const auto* x = reinterpret_cast<const typename E::Memory*>(in);
    std::vector<typename E::Memory> best(static_cast<size_t>(a.inner));
    for (int64_t o = 0; o < a.outer; ++o) {
      const auto* block = x + o * a.n * a.inner;
      int64_t* where = found.data() + o * a.inner;
      if (a.n) std::copy_n(block, a.inner, best.begin());
      for (int64_t r = 1; r < a.n; ++r)
        for (int64_t i = 0; i < a.inner; ++i) {
          const auto b = E::get(best[static_cast<size_t>(i)]), y = E::get(block[r * a.inner + i]);
          const bool better = b == b && (y != y || (greatest ? y > b : y < b));
          if (better) best[static_cast<size_t>(i)] = block[r * a.inner + i], where[i] = r;
        }
    }
  });
  const void* source = found.data();
  reference::eval_array(ir::Opcode::convert, DType::i64, index, &source, out, a.outer * a.inner);
}

void cumsum(const ir::Type& type, int64_t axis, bool reverse, const std::byte* in, std::byte* out) {
  const Around a = around(type.shape, static_cast<size_t>(axis), static_cast<size_t>(axis));
  with_dtype(type.dtype, [&](auto c) {
    if constexpr (c == DType::boolean) throw InternalError("cumsum of bool");
    using E = ElementOf<c>;
    using C = std::conditional_t<c == DType::boolean, uint8_t, typename E::Compute>;
    const auto* x = reinterpret_cast<const typename E::Memory*>(in);
    auto* y = reinterpret_cast<typename E::Memory*>(out);
    std::vector<C> sum(static_cast<size_t>(a.inner));
    for (int64_t o = 0; o < a.outer; ++o) {
      std::fill(sum.begin(), sum.end(), C{0});
      for (int64_t step = 0; step < a.n; ++step) {
        const int64_t at = (o * a.n + (reverse ? a.n - 1 - step : step)) * a.inner;
        for (int64_t i = 0; i < a.inner; ++i) {
          C& s = sum[static_cast<size_t>(i)];
          if constexpr (std::is_integral_v<C>)
            s = static_cast<C>(static_cast<uint64_t>(s) + static_cast<uint64_t>(E::get(x[at + i])));
          else s = static_cast<C>(s + E::get(x[at + i]));
          y[at + i] = E::put(s);
        }
      }
    }
  });
}

void scan(ir::Opcode op, const ir::Type& type, int64_t axis, bool reverse, const std::byte* in, std::byte* out) {
  const ir::Opcode by = ir::combining_op(op);
  if (by == ir::Opcode::add) return cumsum(type, axis, reverse, in, out);
  const Around a = around(type.shape, static_cast<size_t>(axis), static_cast<size_t>(axis));
  const DType t = type.dtype, wide = ir::combiner(by)->accumulator(t);
  const reference::ArrayFunction f = reference::array_function(by, wide, wide);
  const int64_t row = a.inner * size_bytes(wide);
  if (a.outer * a.n * a.inner == 0) return;
  std::vector<std::byte> running(static_cast<size_t>(row)), next(static_cast<size_t>(row));
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t step = 0; step < a.n; ++step) {
      const int64_t at = (o * a.n + (reverse ? a.n - 1 - step : step)) * a.inner * size_bytes(t);
      const void* source = in + at;
      reference::eval_array(ir::Opcode::convert, t, wide, &source, step ? next.data() : running.data(), a.inner);
      const void* operands[] = {running.data(), next.data()};
      if (step) f(operands, running.data(), a.inner);
      source = running.data();
      reference::eval_array(ir::Opcode::convert, wide, t, &source, out + at, a.inner);
    }
}

}  // namespace tessera::interpreter
