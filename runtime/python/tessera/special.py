"""Special functions in terms of jax.lax, for kernels: JAX leaves these to XLA. f16 and bf16 are computed in f32; f64
with more terms.

Chebyshev series are fitted when first used, from definitions that converge quickly in float64, so that no table stands
here.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import source_info_util

from tessera.jax_versions import DIGAMMA_AT_ZERO

source_info_util.register_exclusion(__file__)  # lines are the user's

# B(2k) / (2k)!, k = 1, 2, ...: Bernoulli numbers
_BERNOULLI = [
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
]


def _in_f32(f):
    """Computes narrower floats in f32."""

    @functools.wraps(f)
    def g(*xs):
        dtype = xs[0].dtype
        if np.dtype(dtype).itemsize >= 4:
            return f(*xs)
        return f(*(x.astype(np.float32) for x in xs)).astype(dtype)

    return g


def _number(x, v):
    return np.asarray(v, x.dtype)


@functools.cache
def _chebyshev(f, low, high, degree):
    at = np.polynomial.chebyshev.chebpts1(degree + 1)
    values = [f(low + (high - low) * (t + 1) / 2) for t in at]
    return tuple(np.polynomial.chebyshev.chebfit(at, values, degree))


def _series(t, coefficients):
    """A Chebyshev series at t in [-1, 1], by Clenshaw's recurrence."""
    b1 = b2 = jnp.zeros_like(t)
    for c in coefficients[:0:-1]:
        b1, b2 = 2 * t * b1 - b2 + _number(t, c), b1
    return t * b1 - b2 + _number(t, coefficients[0])


# -- the error function's complement


def _scaled_erfc(x):
    """exp(x^2) erfc(x), x >= 0"""
    if x < 4:
        return math.exp(x * x) * math.erfc(x)
    tail = x
    for k in range(60, 0, -1):  # the continued fraction of Laplace
        tail = x + k / 2 / tail
    return 1 / (tail * math.sqrt(math.pi))


def _erfc_of(t):
    """x = 3 (1 + t) / (1 - t), which takes [-1, 1) to all x >= 0; times x + 3, which stays finite"""
    x = 3 * (1 + t) / (1 - t) if t < 1 else 1e30
    return _scaled_erfc(x) * (x + 3) if x < 1e15 else 1 / math.sqrt(math.pi)


@_in_f32
def erfc(x):
    a = jnp.minimum(lax.abs(x), _number(x, 30))  # beyond it is 0
    t = (a - 3) / (a + 3)
    # whose square is exact
    high = lax.reduce_precision(a, 8, 10) if x.dtype == np.float32 else lax.reduce_precision(a, 11, 24)
    tail = (
        _series(t, _chebyshev(_erfc_of, -1, 1, 14 if x.dtype == np.float32 else 36))
        / (a + 3)
        * lax.exp(-high * high)
        * lax.exp((high - a) * (high + a))
    )
    far = jnp.where(x < 0, 2 - tail, tail)
    return jnp.where(lax.abs(x) < 0.5, 1 - lax.erf(x), jnp.where(x != x, x, far))


# -- Bessel functions


def _scaled_bessel(order, x):
    """exp(-x) I(x) by the integral over the circle, on which the trapezoidal rule converges at once."""
    n = 64 + int(12 * math.sqrt(x))
    angles = (np.arange(n) + 0.5) * math.pi / n
    return float(np.mean(np.exp(x * (np.cos(angles) - 1)) * np.cos(order * angles)))


def _bessel(order):
    def near(x):
        return _scaled_bessel(order, x) / x**order if x else 0.5**order

    def far(u):  # of 8 / x
        x = 8 / max(u, 1e-5)
        return _scaled_bessel(order, x) * math.sqrt(x)

    @_in_f32
    def f(x):
        a = lax.abs(x)
        degrees = (18, 8) if x.dtype == np.float32 else (34, 26)
        small, large = jnp.minimum(a, _number(x, 8)), jnp.maximum(a, _number(x, 8))
        y = _series(small / 4 - 1, _chebyshev(near, 0, 8, degrees[0])) * (
            lax.clamp(_number(x, -8), x, _number(x, 8)) if order else 1
        )
        z = _series(16 / large - 1, _chebyshev(far, 0, 1, degrees[1])) / lax.sqrt(large)
        return jnp.where(a <= 8, y, jnp.where(x < 0, -z, z) if order else z)

    return f


bessel_i0e, bessel_i1e = _bessel(0), _bessel(1)


# -- the gamma function


def _shifted(x):
    """x moved up by steps of 1 to where asymptotic series hold, and the steps on the way: (z, steps, whether it was
    moved)"""
    n = 8 if x.dtype == np.float32 else 12
    low = x < n
    return jnp.where(low, x + n, x), [jnp.where(low, x + i, 1) for i in range(n)], low


def _lgamma_by_zeros(x):
    """lgamma over (x - 1) (x - 2), which are its zeros"""
    return np.euler_gamma if x == 1 else 1 - np.euler_gamma if x == 2 else math.lgamma(x) / ((x - 1) * (x - 2))


@_in_f32
def lgamma(x):
    reflected = x < 0.5
    a = jnp.where(reflected, 1 - x, x)
    # Below n moved down by steps of 1 to at most 2.5, where a series has all digits also beside the zeros; above, an
    # asymptotic one.
    n, degree = (8, 20) if x.dtype == np.float32 else (12, 42)
    z = jnp.maximum(a, _number(x, n))
    steps = [a - i >= 1.5 for i in range(1, n)]
    product = functools.reduce(lax.mul, [jnp.where(s, a - i, 1) for i, s in enumerate(steps, 1)])
    r = a - sum(s.astype(x.dtype) for s in steps)
    low = (r - 1) * (r - 2) * _series(r - 1.5, _chebyshev(_lgamma_by_zeros, 0.5, 2.5, degree)) + lax.log(product)
    inverse = 1 / z
    tail = jnp.zeros_like(z)
    for k, b in reversed(list(enumerate(_BERNOULLI[: 4 if x.dtype == np.float32 else 8], 1))):
        tail = tail * inverse * inverse + _number(x, b * math.factorial(2 * k - 2))
    value = (z - 0.5) * (lax.log(z) - 1) + _number(x, math.log(2 * math.pi) / 2 - 0.5) + tail * inverse
    value = jnp.where(a < n, low, value)
    fraction = lax.abs(x) - lax.floor(lax.abs(x))
    sine = lax.sin(_number(x, math.pi) * jnp.where(fraction > 0.5, 1 - fraction, fraction))
    mirrored = _number(x, math.log(math.pi)) - lax.log(sine) - value
    mirrored = jnp.where((sine == 0) | (lax.abs(x) == np.inf), _number(x, np.inf), mirrored)
    return jnp.where(x != x, x, jnp.where(x == np.inf, x, jnp.where(reflected, mirrored, value)))


@_in_f32
def digamma(x):
    reflected = x < 0.5
    a = jnp.where(reflected, 1 - x, x)
    z, steps, low = _shifted(a)
    inverse = 1 / z
    tail = jnp.zeros_like(z)
    for k, b in reversed(list(enumerate(_BERNOULLI[: 4 if x.dtype == np.float32 else 8], 1))):
        tail = (tail + _number(x, b * math.factorial(2 * k - 1))) * inverse * inverse
    value = lax.log(z) - 0.5 * inverse - tail - jnp.where(low, sum(1 / s for s in steps), 0)
    # the tangent has the period 1; exact, also close to a pole
    fraction = x - lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)
    mirrored = value - _number(x, math.pi) / lax.tan(_number(x, math.pi) * fraction)
    mirrored = jnp.where((fraction == 0) | (x == -np.inf), _number(x, np.nan), mirrored)
    mirrored = jnp.where(x == 0, _number(x, DIGAMMA_AT_ZERO), mirrored)
    return jnp.where(x != x, x, jnp.where(reflected, mirrored, jnp.where(x == np.inf, x, value)))


@_in_f32
def zeta(x, q):
    """Hurwitz's, by the sum of Euler and Maclaurin: sum of (q + k)^-x over k >= 0."""
    n = 9 if x.dtype == np.float32 else 14
    total = sum(lax.pow(q + i, -x) for i in range(n))
    a = q + n
    power = lax.pow(a, -x)
    total = total + power * a / (x - 1) + 0.5 * power
    term = x * (power / a)
    for k, b in enumerate(_BERNOULLI, 1):  # a power that is 0 leaves nothing to add, however large the factors
        total = jnp.where(term == 0, total, total + _number(x, b) * term)
        term = term * ((x + (2 * k - 1)) / a) * ((x + 2 * k) / a)
    whole = lax.floor(q) == q
    total = jnp.where(
        (q <= 0) & whole, jnp.where((x % 2 == 0) | (q == 0), _number(x, np.inf), _number(x, np.nan)), total
    )
    total = jnp.where((q <= 0) & ~whole & (lax.floor(x) != x), _number(x, np.nan), total)
    return jnp.where(x == 1, _number(x, np.inf), jnp.where(x < 1, _number(x, np.nan), total))


@_in_f32
def polygamma(m, x):
    sign = jnp.where(m % 2 == 0, -1, 1).astype(x.dtype)
    value = sign * lax.exp(lgamma(m + 1)) * zeta(m + 1, x)
    return jnp.where(m == 0, digamma(x), jnp.where((m < 0) | (lax.floor(m) != m), _number(x, np.nan), value))
