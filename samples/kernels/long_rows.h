// Rows that are longer than a program can keep: walked over in chunks, the last of which hangs over the row's end. No
// kernels: norm.h and cross_entropy.h use it.
#pragma once
#include "samples/kernels/support.h"

namespace tessera::kernels::long_rows {

inline constexpr int64_t kLongest = 8192;  // elements that a program of one row keeps
inline constexpr int64_t kChunk = 2048;    // of a longer row

/// Elements [first, first + kChunk) of a row [1, columns] in f32, and which of them there are; the others are `other`.
struct Part {
  Value values, inside;  // [1, kChunk]
};
inline Part part(const Ref& x, const Value& first, int64_t columns, double other = 0) {
  Value inside = first + iota(i32, {1, kChunk}, 1) < columns;
  return {cast(load(x, {all, ds(first, kChunk)}, {.mask = inside, .other = other}), f32), inside};
}
/// f(first element of the chunk, carries...) over the row's chunks.
template <class C, class F>
auto over_chunks(int64_t columns, C carry, F f) {
  return fori_loop(0, cdiv(columns, kChunk), carry, [&](Value j, auto... v) { return f(j * kChunk, v...); });
}
/// o = f(values, first element, which there are), chunk by chunk.
template <class F>
void write_chunks(const Ref& x, const Ref& o, int64_t columns, F f) {
  fori_loop(0, cdiv(columns, kChunk), [&](Value j) {
    const Value first = j * kChunk;
    const Part p = part(x, first, columns);
    store(o, {all, ds(first, kChunk)}, cast(f(p.values, first, p.inside), o.dtype()), {.mask = p.inside});
  });
}

}  // namespace tessera::kernels::long_rows
