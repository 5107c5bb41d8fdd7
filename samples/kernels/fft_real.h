// Fourier transforms of real numbers, by complex ones of half the length: the even and the odd elements are real and
// imaginary parts, and what belongs to each is told apart by symmetry. Odd lengths are transformed as complex numbers.
// Sorensen et al., Real-Valued Fast Fourier Transform Algorithms (1987).
#pragma once
#include <algorithm>
#include <functional>

#include "samples/kernels/fft.h"

namespace tessera::kernels {

namespace fourier {
/// [rows, n] as real numbers or pairs, in shape `result`: element k of a row is `of` the inputs, for a block of k [256]
/// at a time.
using Elements = std::function<Pair(const std::vector<Ref>&, const Value& row, const Value& k)>;
inline PallasCall elements_call(size_t inputs, int64_t rows, int64_t n, bool real, const Shape& result,
                                const Elements& of, Loc loc) {
  const int64_t block = std::min<int64_t>(256, power_of_two(n));
  const auto kernel = [=](const std::vector<Ref>& refs) {
    const Value row = program_id(0), first = program_id(1) * block, k = first + iota(i32, {block});
    const Pair y = of(refs, row, k);
    const Ref out = refs[inputs].reshape({rows, n, real ? 1 : 2});
    for (int half = 0; half < (real ? 1 : 2); ++half)
      store(out, {row, ds(first, block), half}, half ? y.im : y.re, {.mask = k < n});
  };
  return pallas_call_of(inputs + 1, kernel,
                        {.out_shape = ShapeDtype(Type(result, f32)),
                         .grid = {rows, cdiv(n, block)},
                         .out_specs = no_block_spec,
                         .name = "fft_real",
                         .compiler_params = tpu::CompilerParams{.dimension_semantics = {"parallel", "parallel"}}},
                        loc);
}
inline Pair at(const Ref& pairs, const Value& row, const Value& k) { return {pairs[{row, k, 0}], pairs[{row, k, 1}]}; }
inline Pair conjugate(const Pair& a) { return {a.re, -a.im}; }
inline Array roots(int64_t n, int64_t count, bool inverse) {
  std::vector<Complex> w;
  for (int64_t k = 0; k < count; ++k) w.push_back(root(n, k, inverse));
  return table(w);
}
}  // namespace fourier

/// The first n / 2 + 1 numbers of the transform of n real ones along the last axis, as numpy.fft.rfft; the others are
/// their conjugates. x: f32 [..., n] with n at least 1; the result is [..., n / 2 + 1, 2]. Lengths and errors as of
/// fft. SpecError for other arguments.
template <class A>
A rfft(const Passes<A>& passes, const A& x, Loc loc = Loc::here()) {
  const Checks c{"rfft", loc};
  const Type t(x);
  c.dtype("x", t, {f32});
  c.require(t.rank() >= 1 && t.shape.back() >= 1,
            "x has shape " + tessera::to_string(t.shape) + ", not [..., n] with n of at least 1");
  const int64_t n = t.shape.back(), half = n / 2, rows = num_elements(t.shape) / n;
  fourier::check_length(c, n);
  Shape result(t.shape.begin(), t.shape.end() - 1);
  result.insert(result.end(), {half + 1, 2});
  if (rows == 0) return passes.constant(Array(result, f32));
  if (n % 2) {
    const auto complex = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
      return fourier::Pair{refs[0].reshape({rows, n})[{row, k}], zeros(k.shape())};
    };
    const auto first = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
      return fourier::at(refs[0].reshape({rows, n, 2}), row, k);
    };
    const A pairs = passes.call(fourier::elements_call(1, rows, n, false, {rows, n, 2}, complex, loc), {x})[0];
    const A y = fourier::along(passes, pairs, rows, n, 1, {rows, n, 2}, false, loc);
    return passes.call(fourier::elements_call(1, rows, half + 1, false, result, first, loc), {y})[0];
  }
  const A y = fourier::along(passes, x, rows, half, 1, {rows, half, 2}, false, loc);
  const auto apart = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
    using namespace fourier;
    const Ref in = refs[0].reshape({rows, half, 2});
    const Pair one = at(in, row, k % half), other = conjugate(at(in, row, (half - k % half) % half)),
               w = {refs[1][{k, 0}], refs[1][{k, 1}]};
    // by -i
    const Pair even = {(one.re + other.re) * 0.5f, (one.im + other.im) * 0.5f},
               odd = {(one.im - other.im) * 0.5f, (other.re - one.re) * 0.5f};
    const Pair turned = odd * w;
    return Pair{even.re + turned.re, even.im + turned.im};
  };
  return passes.call(fourier::elements_call(2, rows, half + 1, false, result, apart, loc),
                     {y, passes.constant(fourier::roots(n, half + 1, false))})[0];
}
inline Array rfft(const Array& x, Loc loc = Loc::here()) { return rfft(passes(), x, loc); }

/// The n real numbers of which rfft gives x, as numpy.fft.irfft(x, n): the imaginary part of x's first number, and for
/// even n of its last one, do not count. x: f32
/// [..., n / 2 + 1, 2]; the result is [..., n]. SpecError for other arguments.
template <class A>
A irfft(const Passes<A>& passes, const A& x, int64_t n, Loc loc = Loc::here()) {
  const Checks c{"irfft", loc};
  const Type t(x);
  const int64_t half = n / 2;
  c.dtype("x", t, {f32});
  c.require(n >= 1, "n is " + std::to_string(n) + ", not at least 1");
  c.require(t.rank() >= 2 && t.shape.back() == 2 && t.shape[t.shape.size() - 2] == half + 1,
            "x has shape " + tessera::to_string(t.shape) + ", not [..., " + std::to_string(half + 1) +
                ", 2] = [..., n / 2 + 1, 2]");
  fourier::check_length(c, n);
  const int64_t rows = num_elements(t.shape) / (2 * (half + 1));
  Shape result(t.shape.begin(), t.shape.end() - 2);
  result.push_back(n);
  if (rows == 0) return passes.constant(Array(result, f32));
  // The first number's imaginary part, and the last one's, which meets it.
  const auto real_first = [](const fourier::Pair& a, const Value& k) {
    return fourier::Pair{a.re, where(k == 0, 0.0f, a.im)};
  };
  if (n % 2) {
    const auto both = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
      const Ref in = refs[0].reshape({rows, half + 1, 2});
      const fourier::Pair one = fourier::at(in, row, where(k <= half, k, n - k));
      return real_first({one.re, where(k <= half, one.im, -one.im)}, k);
    };
    const auto real = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
      return fourier::at(refs[0].reshape({rows, n, 2}), row, k);
    };
    const A whole = passes.call(fourier::elements_call(1, rows, n, false, {rows, n, 2}, both, loc), {x})[0];
    const A y = fourier::along(passes, whole, rows, n, 1, {rows, n, 2}, true, loc);
    return passes.call(fourier::elements_call(1, rows, n, true, result, real, loc), {y})[0];
  }
  const auto together = [=](const std::vector<Ref>& refs, const Value& row, const Value& k) {
    using namespace fourier;
    const Ref in = refs[0].reshape({rows, half + 1, 2});
    const Pair one = real_first(at(in, row, k), k), other = conjugate(real_first(at(in, row, half - k), k)),
               w = {refs[1][{k, 0}], refs[1][{k, 1}]};
    const Pair odd = Pair{(one.re - other.re) * 0.5f, (one.im - other.im) * 0.5f} * w;
    return Pair{(one.re + other.re) * 0.5f - odd.im, (one.im + other.im) * 0.5f + odd.re};
  };
  const Shape joined = half == 1 ? result : Shape{rows, half, 2};  // of 2 numbers, they are the result
  const A y = passes.call(fourier::elements_call(2, rows, half, false, joined, together, loc),
                          {x, passes.constant(fourier::roots(n, half, true))})[0];
  return fourier::along(passes, y, rows, half, 1, result, true, loc);
}
inline Array irfft(const Array& x, int64_t n, Loc loc = Loc::here()) { return irfft(passes(), x, n, loc); }

}  // namespace tessera::kernels
