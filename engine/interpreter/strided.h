// Copies between strided views of memory: every load, store, transpose, slice, broadcast and concatenate of the
// interpreter is one of these. Strides are in elements; 0 repeats. Nothing here knows dtypes, only element sizes, and
// nothing checks bounds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/extent.h"

namespace tessera::interpreter {

inline constexpr size_t kMaxRank = 32;  // what type inference allows
using Strides = std::vector<int64_t>;

/// One element; of a size that is known, copies take one instruction.
inline void copy_element(std::byte* to, const std::byte* from, int64_t bytes) {
  switch (bytes) {
    case 1: *to = *from; break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    default: std::memcpy(to, from, 8);
  }
}

/// Row-major strides of a dense array.
Strides dense_strides(const Shape& shape);
/// to[i] = from[i] for every index i of `shape` (rank entries), planned once for many places. Source and destination
/// must not overlap.
class StridedCopy {
 public:
  StridedCopy(size_t rank, const int64_t* shape, const int64_t* to_strides, const int64_t* from_strides,
              int64_t element_bytes);
  void run(std::byte* to, const std::byte* from) const;

 private:
  using Row = void (*)(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, int64_t n);
  size_t rank_ = 0;
  bool empty_ = false;
  int64_t bytes_;
  Row row_ = nullptr;
  int64_t n_[kMaxRank], to_[kMaxRank], from_[kMaxRank];  // as many as rank_
};
/// n equal elements.
void fill(std::byte* to, int64_t n, uint64_t bits, int64_t element_bytes);
/// True if the elements of `shape` lie one after another in row-major order under `strides`.
bool is_dense(size_t rank, const int64_t* shape, const int64_t* strides);

/// Calls f(index) for every index of `shape` in row-major order; index has rank entries.
template <class F> void for_each_index(size_t rank, const int64_t* shape, F&& f) {
  int64_t index[kMaxRank] = {};
  for (size_t d = 0; d < rank; ++d)
    if (shape[d] == 0) return;
  for (;;) {
    f(static_cast<const int64_t*>(index));
    size_t d = rank;
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tessera::interpreter
