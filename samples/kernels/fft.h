// Discrete Fourier transforms of any length along any axis. Complex numbers are pairs: the last dim has 2 elements,
// real and imaginary. A program takes lines of 2048 numbers in all, as arrays with a dim per factor of the length; a
// stage is a product with a small matrix along one of these dims, and one with factors. Longer lines take several
// passes, each of which does to the whole what a stage does to a line; lengths with prime factors above 13 a
// convolution. Stages: Cooley and Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series (1965).
// Passes: Bailey, FFTs in External or Hierarchical Memory (1990). Convolution: Bluestein, A Linear Filtering Approach
// to the Computation of the Discrete Fourier Transform (1970). fft_real.h goes on where this ends.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>

#include "samples/kernels/passes.h"

namespace tessera::kernels {

struct FftParams {
  int64_t axis = -1;     ///< among the dims before the pairs
  bool inverse = false;  ///< e^(+2 pi i jk / n), divided by n
};

namespace fourier {
inline constexpr int64_t kLine = 2048;  // complex numbers of a program: twice 16 KiB
using Complex = std::complex<double>;

inline Complex root(int64_t n, int64_t power, bool inverse) {
  const double turn = 2 * M_PI * static_cast<double>(power % n) / static_cast<double>(n);
  return {std::cos(turn), inverse ? std::sin(turn) : -std::sin(turn)};
}
inline Array table(const std::vector<Complex>& v) {
  std::vector<float> pairs;
  for (const Complex& c : v)
    pairs.push_back(static_cast<float>(c.real())), pairs.push_back(static_cast<float>(c.imag()));
  return Array({static_cast<int64_t>(v.size()), 2}, pairs);
}
/// The stages' radices; none if n has a prime factor above 13.
inline std::vector<int64_t> radices(int64_t n) {
  std::vector<int64_t> r;
  for (const int64_t p : {13, 11, 7, 5, 3, 8, 4, 2})
    for (; n % p == 0; n /= p) r.push_back(p);
  return n == 1 ? r : std::vector<int64_t>{};
}
inline bool smooth(int64_t n) { return n == 1 || !radices(n).empty(); }
/// The greatest divisor of n that is at most `most`.
inline int64_t divisor(int64_t n, int64_t most) {
  int64_t d = std::max<int64_t>(std::min(n, most), 1);
  while (n % d) --d;
  return d;
}

/// Complex values of a kernel.
struct Pair {
  Value re, im;
};
inline Pair operator*(const Pair& a, const Pair& b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

/// One pass along `outer` arrays [n, rest, inner] of complex numbers, to [rest, n, inner]: transforms of n, and if rest
/// is above 1 element k of what stood at place p of the rest times e^(-+2 pi i k p / (n rest)). A transform of n1 n2
/// ... is a pass of n1, one of n2 and so on, each with the lengths yet to come as its rest and those before as a part
/// of its inner ones. Nothing is reversed (Stockham's order).
struct Pass {
  int64_t outer, n, rest, inner;
  bool inverse;
  double scale;
};

/// What a pass multiplies by. Of each stage of radix r its matrix, [2, r, 2, r]: part h of number k by part g of number
/// j; and but for the last one its factors, as [2, 2, r, (radices yet to come)]: part h is x_h [0, h] + x_(1-h) [1, h].
/// Then, for what lies between passes, [.., 2]: every `fine`-th power of the whole's root and, from fine_at on, the
/// first `fine` powers, whose products are all the powers.
struct Factors {
  std::vector<Array> tables;
  int64_t fine = 1, fine_at = 0;
  explicit Factors(const Pass& p) {
    int64_t left = p.n;
    const std::vector<int64_t> stages = radices(p.n);
    for (size_t i = 0; i < stages.size(); ++i) {
      const int64_t r = stages[i];
      std::vector<float> matrix, factors;
      for (int h = 0; h < 2; ++h)
        for (int64_t k = 0; k < r; ++k)
          for (int g = 0; g < 2; ++g)
            for (int64_t j = 0; j < r; ++j) {
              const Complex w = root(r, j * k, p.inverse);
              matrix.push_back(static_cast<float>(h == g ? w.real() : h ? w.imag() : -w.imag()));
            }
      tables.push_back(Array({2, r, 2, r}, matrix));
      if (i + 1 == stages.size()) break;
      for (int of = 0; of < 4; ++of)
        for (int64_t k = 0; k < r; ++k)
          for (int64_t j = 0; j < left / r; ++j) {
            const Complex w = root(left, j * k, p.inverse);
            factors.push_back(static_cast<float>(of < 2 ? w.real() : of == 2 ? -w.imag() : w.imag()));
          }
      Shape shape = {2, 2, r};
      shape.insert(shape.end(), stages.begin() + static_cast<std::ptrdiff_t>(i) + 1, stages.end());
      tables.push_back(Array(shape, factors));
      left /= r;
    }
    if (p.rest == 1) return;
    const int64_t whole = p.n * p.rest;
    std::vector<Complex> powers;
    while (fine * fine < whole) fine *= 2;
    for (int64_t i = 0; i * fine < whole; ++i) powers.push_back(root(whole, i * fine, p.inverse));
    fine_at = static_cast<int64_t>(powers.size());
    for (int64_t i = 0; i < fine; ++i) powers.push_back(root(whole, i, p.inverse));
    tables.push_back(table(powers));
  }
};

inline PallasCall pass_call(const Pass& p, const Factors& f, const Shape& result, Loc loc) {
  const int64_t lines = std::max<int64_t>(kLine / p.n, 1), columns = std::min(p.inner, lines),
                places = columns == p.inner ? divisor(p.rest, lines / columns) : 1;
  const int64_t rows = p.rest * p.inner == 1 ? std::min(p.outer, lines) : 1;
  const std::vector<int64_t> stages = radices(p.n);
  const size_t arguments = 1 + f.tables.size();
  const int64_t fine = f.fine, fine_at = f.fine_at;
  // of a place in a line, the first radix' digit the highest; one dim per stage, so that no stage has to take dims
  // apart
  Shape digits = {rows};
  digits.insert(digits.end(), stages.begin(), stages.end());
  digits.insert(digits.end(), {places, columns});
  const auto kernel = [=](const std::vector<Ref>& refs) {
    const Ref in = refs[0].reshape({p.outer, p.n, p.rest, p.inner, 2}),
              out = refs[arguments].reshape({p.outer, p.rest, p.n, p.inner, 2});
    const Value row = program_id(0) * rows, place = program_id(1) * places, column = program_id(2) * columns;
    // Blocks that hang over do so along rows or along columns, of which one has a single element.
    const auto inside = [&](const Shape& s) -> std::optional<Value> {
      if (p.outer % rows) return row + iota(i32, s, 0) < p.outer;
      if (p.inner % columns) return column + iota(i32, s, 3) < p.inner;
      return std::nullopt;
    };
    const auto line = [&](int half) {
      const RefIndex at = {ds(row, rows), all, ds(place, places), ds(column, columns), half};
      const auto mask = inside({rows, p.n, places, columns});
      return reshape(mask ? load(in, at, {.mask = *mask, .other = 0}) : Value(in[at]), digits);
    };
    Value x = stack({line(0), line(1)});
    for (size_t i = 0; i < stages.size(); ++i) {
      // [2, r, rows, other digits, places, columns]
      x = dot(refs[1 + 2 * i][all], x, {.lhs_contract = {2, 3}, .rhs_contract = {0, static_cast<int64_t>(2 + i)}});
      if (i + 1 < stages.size()) {
        const auto factor = [&](int h) {
          const Value v = refs[2 + 2 * i][h];  // [2, r, radices yet to come]
          Shape shape(i + 3, 1);
          shape[0] = 2, shape[1] = stages[i];
          shape.insert(shape.end(), v.shape().begin() + 2, v.shape().end());
          shape.insert(shape.end(), {1, 1});
          return reshape(v, shape);
        };
        x = x * factor(0) + rev(x, {0}) * factor(1);
      }
      std::vector<int64_t> order = {0};
      for (size_t d = 0; d < digits.size(); ++d)
        order.push_back(static_cast<int64_t>(d == i + 1 ? 1 : d < i + 1 ? d + 2 : d + 1));
      x = transpose(x, order);
    }
    // The first radix' digit of the result is the lowest.
    std::vector<int64_t> order(digits.size() + 1);
    for (size_t d = 0; d < order.size(); ++d)
      order[d] = static_cast<int64_t>(d < 2 || d > stages.size() + 1 ? d : stages.size() + 3 - d);
    x = reshape(transpose(x, order), {2, rows, p.n, places, columns});
    const auto half_of = [&](int64_t h) {
      return squeeze(slice(x, {h, 0, 0, 0, 0}, {h + 1, rows, p.n, places, columns}), {0});
    };
    Pair y = {half_of(0), half_of(1)};
    if (p.rest > 1) {
      const Value power = iota(i32, {p.n, places}, 0) * (place + iota(i32, {p.n, places}, 1));
      const auto factor = [&](const Value& i) {
        return Pair{expand_dims(refs[arguments - 1][{i, 0}], {0, 3}), expand_dims(refs[arguments - 1][{i, 1}], {0, 3})};
      };
      y = y * (factor(power / fine) * factor(power % fine + fine_at));
    }
    if (p.scale != 1) y = {y.re * p.scale, y.im * p.scale};
    for (int half = 0; half < 2; ++half) {
      const RefIndex at = {ds(row, rows), ds(place, places), all, ds(column, columns), half};
      const Value v = transpose(half ? y.im : y.re, {0, 2, 1, 3});
      if (const auto mask = inside({rows, places, p.n, columns})) store(out, at, v, {.mask = *mask});
      else out[at] = v;
    }
  };
  return pallas_call_of(
      arguments + 1, kernel,
      {.out_shape = ShapeDtype(Type(result, f32)),
       .grid = {cdiv(p.outer, rows), p.rest / places, cdiv(p.inner, columns)},
       .out_specs = no_block_spec,
       .name = "fft",
       .compiler_params = tpu::CompilerParams{.dimension_semantics = {"parallel", "parallel", "parallel"}}},
      loc);
}

/// The lengths of the passes of a smooth n: as few and as even as can be, kLine at most.
inline std::vector<int64_t> lengths(int64_t n) {
  std::vector<int64_t> list;
  while (n > kLine) {
    int64_t count = 1;
    for (int64_t most = kLine; most < n; most *= kLine) ++count;
    const double even = std::pow(static_cast<double>(n), 1.0 / static_cast<double>(count));
    int64_t d = std::min(kLine, static_cast<int64_t>(even * (1 - 1e-9)) + 1);
    while (d < kLine && n % d) ++d;
    if (n % d) d = divisor(n, kLine);
    list.push_back(d), n /= d;
  }
  list.push_back(n);
  return list;
}

/// x, as [outer, n, inner] complex numbers whatever its shape, along n, which is smooth and above 1.
template <class A>
A transform(const Passes<A>& passes, A x, int64_t outer, int64_t n, int64_t inner, const Shape& result, bool inverse,
            double scale, Loc loc) {
  int64_t left = n;
  for (const int64_t length : lengths(n)) {
    left /= length;
    const Pass p = {outer, length, left, inner, inverse, left == 1 ? scale : 1};
    const Factors factors(p);
    std::vector<A> arguments = {x};
    for (const Array& t : factors.tables) arguments.push_back(passes.constant(t));
    x = passes.call(pass_call(p, factors, result, loc), arguments)[0];
    inner *= length;
  }
  return x;
}

/// x of [outer, from, inner] pairs times factors [.., 2], zeros beyond `from`, as [outer, to, inner] pairs in shape
/// `result`.
inline PallasCall times_call(int64_t outer, int64_t from, int64_t to, int64_t inner, const Shape& result, Loc loc) {
  const int64_t columns = divisor(inner, 256),
                rows = std::min<int64_t>(std::max<int64_t>(1024 / columns, 1), power_of_two(to));
  return pallas_call(
      [=](Ref x, Ref factors, Ref o) {
        const Value first = program_id(1) * rows, column = program_id(2) * columns,
                    row = first + iota(i32, {rows, columns}, 0);
        const Ref in = x.reshape({outer, from, inner, 2}), out = o.reshape({outer, to, inner, 2});
        const int64_t known = std::min(from, to);
        const auto part = [&](int p) {
          return load(in, {program_id(0), ds(first, rows), ds(column, columns), p}, {.mask = row < known, .other = 0});
        };
        const auto factor = [&](int p) {
          return expand_dims(
              load(factors, {ds(first, rows), p}, {.mask = first + iota(i32, {rows}) < known, .other = 0}), {1});
        };
        const Pair y = Pair{part(0), part(1)} * Pair{factor(0), factor(1)};
        store(out, {program_id(0), ds(first, rows), ds(column, columns), 0}, y.re, {.mask = row < to});
        store(out, {program_id(0), ds(first, rows), ds(column, columns), 1}, y.im, {.mask = row < to});
      },
      {.out_shape = ShapeDtype(Type(result, f32)),
       .grid = {outer, cdiv(to, rows), inner / columns},
       .out_specs = no_block_spec,
       .name = "fft_times",
       .compiler_params = tpu::CompilerParams{.dimension_semantics = {"parallel", "parallel", "parallel"}}},
      loc);
}

/// The transform of a power of two of values on the host.
inline std::vector<Complex> on_host(const std::vector<Complex>& a) {
  const size_t n = a.size();
  if (n == 1) return a;
  std::vector<Complex> even, odd, out(n);
  for (size_t j = 0; j < n; ++j) (j % 2 ? odd : even).push_back(a[j]);
  even = on_host(even), odd = on_host(odd);
  for (size_t k = 0; k < n / 2; ++k) {
    const Complex turned = odd[k] * root(static_cast<int64_t>(n), static_cast<int64_t>(k), false);
    out[k] = even[k] + turned, out[k + n / 2] = even[k] - turned;
  }
  return out;
}

/// jk = (j^2 + k^2 - (k - j)^2) / 2 makes a convolution of the transform, whose length may then be a power of two.
template <class A>
A bluestein(const Passes<A>& passes, const A& x, int64_t outer, int64_t n, int64_t inner, const Shape& result,
            bool inverse, double scale, Loc loc) {
  const int64_t m = power_of_two(2 * n - 1);
  std::vector<Complex> chirp, filter(static_cast<size_t>(m)), last;
  for (int64_t j = 0; j < n; ++j)
    chirp.push_back(root(2 * n, static_cast<int64_t>(static_cast<__int128>(j) * j % (2 * n)), inverse));
  for (int64_t j = 0; j < n; ++j)
    filter[static_cast<size_t>(j)] = filter[static_cast<size_t>((m - j) % m)] =
        std::conj(chirp[static_cast<size_t>(j)]);
  for (const Complex& c : chirp) last.push_back(c * scale);
  const Shape padded = {outer, m, inner, 2};
  A y = passes.call(times_call(outer, n, m, inner, padded, loc), {x, passes.constant(table(chirp))})[0];
  y = transform(passes, y, outer, m, inner, padded, false, 1, loc);
  y = passes.call(times_call(outer, m, m, inner, padded, loc), {y, passes.constant(table(on_host(filter)))})[0];
  y = transform(passes, y, outer, m, inner, padded, true, 1 / static_cast<double>(m), loc);
  return passes.call(times_call(outer, m, n, inner, result, loc), {y, passes.constant(table(last))})[0];
}

inline void check_length(const Checks& c, int64_t n) {
  const int64_t most = n < int64_t{1} << 29 || smooth(n) ? int64_t{1} << 31 : int64_t{1} << 29;
  c.require(n < most,
            "an axis of " + std::to_string(n) + " elements is too long: " +
                (most == int64_t{1} << 31 ? "less than 2^31" : "less than 2^29, as it has prime factors above 13"));
}
/// x, as [outer, n, inner] complex numbers whatever its shape, along n.
template <class A>
A along(const Passes<A>& passes, const A& x, int64_t outer, int64_t n, int64_t inner, const Shape& result, bool inverse,
        Loc loc) {
  if (outer * n * inner == 0 || n == 1) return x;
  const double scale = inverse ? 1 / static_cast<double>(n) : 1;
  return smooth(n) ? transform(passes, x, outer, n, inner, result, inverse, scale, loc)
                   : bluestein(passes, x, outer, n, inner, result, inverse, scale, loc);
}
}  // namespace fourier

/// A bound on fft's error, both in the Euclidean norm: a transform of n numbers is wrong by at most this times its
/// result. In units of u = 2^-24, the product of a stage of radix r has sums of 2r terms and a rounded matrix, whose
/// magnitudes have a norm of at most sqrt(2) r where its own is sqrt(r): (2r + 1) sqrt(2r). A factor is 3 sqrt(2) more,
/// and so are the two between passes, of which there are at most as many as stages. That makes less than 45 log2 r for
/// every r up to 13. A convolution is two transforms of less than 4n numbers, and in between its filter may let parts
/// of the numbers grow to 2.5 times their share. Roundings are not all against us: numbers without a pattern err by
/// sqrt(log2 n) units at most (measured: 1.9 u for 13, 2.4 u for 1024, 3.0 u for 2^20, 3.8 u for 65537 by convolution).
inline double allowed_error(int64_t n) {
  const double u = std::ldexp(1.0, -24);
  return n <= 1 ? 0 : fourier::smooth(n) ? 45 * u * std::log2(n) : 225 * u * std::log2(4.0 * static_cast<double>(n));
}

/// The sums over j of x[j] e^(-2 pi i jk / n) along an axis, as numpy.fft.fft; with `inverse` its inverse, as ifft. x:
/// f32 [..., 2]; the result has its shape. Any length below 2^31, below 2^29 if it has prime factors above 13.
/// SpecError beyond, and for other arguments. Errors: the root of the sum of their squares is at most allowed_error(n)
/// times that of the result's.
template <class A>
A fft(const Passes<A>& passes, const A& x, FftParams params = {}, Loc loc = Loc::here()) {
  const Checks c{"fft", loc};
  const Type t(x);
  c.dtype("x", t, {f32});
  c.require(t.rank() >= 2 && t.shape.back() == 2,
            "x has shape " + tessera::to_string(t.shape) +
                ", not [..., 2] of at least 2 dims: pairs of real and imaginary parts");
  const size_t axis =
      axis_of(c, "the complex dims of x", Type(Shape(t.shape.begin(), t.shape.end() - 1), t.dtype), params.axis);
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d + 1 < t.shape.size(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : t.shape[d];
  fourier::check_length(c, t.shape[axis]);
  return fourier::along(passes, x, outer, t.shape[axis], inner, t.shape, params.inverse, loc);
}
inline Array fft(const Array& x, FftParams params = {}, Loc loc = Loc::here()) { return fft(passes(), x, params, loc); }

/// Along the last two dims before the pairs, as numpy.fft.fft2 (and ifft2).
template <class A>
A fft2(const Passes<A>& passes, const A& x, bool inverse = false, Loc loc = Loc::here()) {
  Checks{"fft2", loc}.require(x.shape().size() >= 3,
                              "x has shape " + tessera::to_string(x.shape()) + ", not [..., rows, columns, 2]");
  return fft(passes, fft(passes, x, {.axis = -1, .inverse = inverse}, loc), {.axis = -2, .inverse = inverse}, loc);
}
inline Array fft2(const Array& x, bool inverse = false, Loc loc = Loc::here()) {
  return fft2(passes(), x, inverse, loc);
}

}  // namespace tessera::kernels
