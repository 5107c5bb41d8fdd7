#include "engine/interpreter/strided.h"

#include <algorithm>
#include <cstring>

namespace tessera::interpreter {
namespace {
template <class T> void row(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, int64_t n) {
  T* t = reinterpret_cast<T*>(to);
  const T* f = reinterpret_cast<const T*>(from);
  if (from_stride == 0 && to_stride == 1) std::fill_n(t, n, *f);
  else if (to_stride == 1)
    for (int64_t i = 0; i < n; ++i) t[i] = f[i * from_stride];
  else
    for (int64_t i = 0; i < n; ++i) t[i * to_stride] = f[i * from_stride];
}
using Row = void (*)(std::byte*, int64_t, const std::byte*, int64_t, int64_t);
template <size_t bytes> void dense_row(std::byte* to, int64_t, const std::byte* from, int64_t, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * bytes);
}
Row row_of(int64_t bytes, bool dense) {
  switch (bytes) {
    case 1: return dense ? &dense_row<1> : &row<uint8_t>;
    case 2: return dense ? &dense_row<2> : &row<uint16_t>;
    case 4: return dense ? &dense_row<4> : &row<uint32_t>;
    default: return dense ? &dense_row<8> : &row<uint64_t>;
  }
}
}  // namespace

Strides dense_strides(const Shape& shape) {
  Strides s(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) s[d - 1] = s[d] * std::max<int64_t>(shape[d], 1);
  return s;
}

bool is_dense(size_t rank, const int64_t* shape, const int64_t* strides) {
  int64_t expected = 1;
  for (size_t d = rank; d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

StridedCopy::StridedCopy(size_t rank, const int64_t* shape, const int64_t* to_strides, const int64_t* from_strides,
                         int64_t bytes)
    : bytes_(bytes) {
  // Drops dims of one element and merges a dim into the next where both sides are contiguous over the pair.
  for (size_t d = 0; d < rank; ++d) {
    if (shape[d] == 0) empty_ = true;
    if (shape[d] <= 1) continue;
    if (rank_ && to_[rank_ - 1] == to_strides[d] * shape[d] && from_[rank_ - 1] == from_strides[d] * shape[d]) {
      n_[rank_ - 1] *= shape[d];
    } else {
      n_[rank_++] = shape[d];
    }
    to_[rank_ - 1] = to_strides[d];
    from_[rank_ - 1] = from_strides[d];
  }
  if (rank_) row_ = row_of(bytes, to_[rank_ - 1] == 1 && from_[rank_ - 1] == 1);
}

void StridedCopy::run(std::byte* to, const std::byte* from) const {
  if (empty_) return;
  if (rank_ == 0) return copy_element(to, from, bytes_);
  const size_t r = rank_;
  const int64_t inner = n_[r - 1], its = to_[r - 1], ifs = from_[r - 1];
  if (r == 1) return row_(to, its, from, ifs, inner);
  if (ifs != 1 && from_[r - 2] == 1 && inner >= 16 && n_[r - 2] >= 16) {
    // A transpose: squares of 16 x 16 keep the cache lines of both sides.
    constexpr int64_t kSquare = 16;
    const int64_t rows = n_[r - 2];
    for_each_index(r - 2, n_, [&](const int64_t* i) {
      int64_t t = 0, f = 0;
      for (size_t d = 0; d + 2 < r; ++d) t += i[d] * to_[d], f += i[d] * from_[d];
      for (int64_t y0 = 0; y0 < rows; y0 += kSquare)
        for (int64_t x0 = 0; x0 < inner; x0 += kSquare)
          for (int64_t y = y0; y < std::min(y0 + kSquare, rows); ++y)
            row_(to + (t + y * to_[r - 2] + x0 * its) * bytes_, its, from + (f + y * from_[r - 2] + x0 * ifs) * bytes_,
                 ifs, std::min(kSquare, inner - x0));
    });
    return;
  }
  if (r == 2) {
    for (int64_t y = 0; y < n_[0]; ++y) row_(to + y * to_[0] * bytes_, its, from + y * from_[0] * bytes_, ifs, inner);
    return;
  }
  for_each_index(r - 1, n_, [&](const int64_t* i) {
    int64_t t = 0, f = 0;
    for (size_t d = 0; d + 1 < r; ++d) t += i[d] * to_[d], f += i[d] * from_[d];
    row_(to + t * bytes_, its, from + f * bytes_, ifs, inner);
  });
}

void fill(std::byte* to, int64_t n, uint64_t bits, int64_t bytes) {
  switch (bytes) {
    case 1: std::fill_n(reinterpret_cast<uint8_t*>(to), n, static_cast<uint8_t>(bits)); break;
    case 2: std::fill_n(reinterpret_cast<uint16_t*>(to), n, static_cast<uint16_t>(bits)); break;
    case 4: std::fill_n(reinterpret_cast<uint32_t*>(to), n, static_cast<uint32_t>(bits)); break;
    default: std::fill_n(reinterpret_cast<uint64_t*>(to), n, bits);
  }
}

}  // namespace tessera::interpreter
