"""Functions for test_lax.py: CASES has by name a function of whole arrays and its operands, VULKAN the names of those
that Vulkan runs too."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


f32, bf16, f16 = jnp.float32, jnp.bfloat16, jnp.float16
i32, u32, i8, u8, i16 = jnp.int32, jnp.uint32, jnp.int8, jnp.uint8, jnp.int16
CASES, VULKAN = {}, []
random = np.random.default_rng(0)


def F(*shape, dtype=f32):
    return jnp.asarray(random.standard_normal(shape) * 2, dtype)


def N(*shape, dtype=f32, low=-9, high=9):
    return jnp.asarray(random.integers(low, high, shape), dtype)


def I(*shape, dtype=i32, low=-9, high=9):
    return N(*shape, dtype=dtype, low=low, high=high)


def U(*shape):
    return jnp.asarray(random.integers(0, 2**32, shape, dtype=np.uint32))


def positive(n, least=0.1):
    return jnp.abs(F(n)) + least


def case(name, f, *operands, vulkan=False):
    CASES[name] = f, operands
    if vulkan:
        VULKAN.append(name)


def key(f):
    return lambda words: f(jax.random.wrap_key_data(words))


S = jnp.asarray([0, -0.0, 1, -1, 0.5, -0.5, 2.5, -3.5, 1e-3, 30, -30, jnp.inf, -jnp.inf, jnp.nan], f32)
A, B = jnp.repeat(S, 14), jnp.tile(S, 14)
WORDS = U(2)

# elements
for op in (
    "neg sign floor ceil is_finite exp exp2 log expm1 log1p tanh logistic sin cos tan asin acos atan sinh cosh asinh"
    " acosh atanh abs sqrt rsqrt cbrt square erf erf_inv"
).split():
    case(op, getattr(lax, op), S)
for op in "erfc lgamma digamma bessel_i0e bessel_i1e".split():
    case(op, getattr(lax, op), jnp.concatenate([S, F(20)]), vulkan=True)
for op in "max min atan2 pow nextafter add sub mul div rem eq ne ge gt le lt".split():
    case(op, getattr(lax, op), A, B)
for op in "and or xor".split():
    case(op, getattr(lax, "bitwise_" + op), I(3, 5), I(3, 5))
for op in "shift_left shift_right_arithmetic shift_right_logical".split():
    case(
        op,
        lambda a, n, b, op=getattr(lax, op): (op(a, n), op(b, n.astype(i8))),
        U(40).astype(i32),
        I(40, low=-3, high=40),
        I(40, dtype=i8, low=-128, high=128),
    )
case("not", lax.bitwise_not, I(3, 5))
case(
    "divisions",
    lambda a, b, c, d, x, y: (lax.div(a, b), lax.rem(a, b), a % b, a // b, lax.rem(c, d), x % y, lax.div(c, d)),
    I(7, 9),
    I(7, 9),
    I(7, 9, dtype=u8, low=0),
    I(7, 9, dtype=u8, low=0),
    F(7, 9),
    F(7, 9),
)
case(
    "by_constant_zero",
    lambda x, i: (x / 0, x / -0.0, x % 0, i // 0, i % 0, jnp.nan_to_num(x / 0)),
    S,
    I(9),
    vulkan=True,
)
case(
    "bits",
    lambda x, y, z: (lax.population_count(x), lax.clz(x), lax.clz(y), lax.population_count(z)),
    U(9) >> jnp.arange(9, dtype=u32) * 4,
    I(9, dtype=i8),
    I(9, dtype=i16),
)
case(
    "mulhi",
    lambda x, y, a, b: (lax.mulhi(x, y), lax.mulhi(x.astype(i32), y.astype(i32)), lax.mulhi(a, b)),
    U(9),
    U(9),
    I(9, dtype=i8, low=-128, high=128),
    I(9, dtype=i8, low=-128, high=128),
    vulkan=True,
)
case(
    "pow_int",
    lambda x, y, i: (
        lax.pow(x, y),
        jnp.power(i, jnp.abs(y)),
        i**3,
        lax.integer_pow(i, 0),
        x**3,
        lax.integer_pow(x, -2),
        lax.integer_pow(x, 7),
    ),
    F(9),
    I(9, low=-3, high=4),
    I(9),
)
case("round", lambda x: (lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), jnp.round(x, 2)), S)
case(
    "clamp",
    lambda a, x, b, i: (lax.clamp(a, x, b), lax.clamp(-1.0, x, 1.0), lax.clamp(jnp.int8(-2), i, jnp.int8(3))),
    F(5),
    F(5),
    F(5),
    I(5, dtype=i8),
)
case(
    "select",
    lambda p, a, b, c: (lax.select_n(p, a, b, c), lax.select(p[0] > 0, a, b)),
    I(5, low=0, high=3),
    F(5),
    F(5),
    F(5),
)
case(
    "reduce_precision",
    lambda x: (lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7), lax.reduce_precision(x, 4, 3)),
    S,
)
case(
    "convert",
    lambda x, i: [
        v.astype(t) for v in (x, i) for t in (i32, i8, u8, f16, bf16, jnp.bool_, u32, i16, jnp.int4, jnp.uint4)
    ],
    S,
    I(9) * 100,
)
case(
    "f8",
    lambda x, y: (x + x, x.astype(f32) * 3, -x, jnp.maximum(y, y), jnp.max(y)),
    F(9).astype(jnp.float8_e4m3fn),
    F(9).astype(jnp.float8_e5m2),
)
case("i4", lambda x: (x.astype(i32) + 1, x), I(9, low=-8, high=7).astype(jnp.int4))
case(
    "bitcast",
    lambda x, y: (
        lax.bitcast_convert_type(x, i32),
        lax.bitcast_convert_type(x, u8),
        lax.bitcast_convert_type(x, bf16),
        lax.bitcast_convert_type(y, u32),
        x.view(u8),
    ),
    F(3, 5),
    I(3, 5, 4, dtype=u8, low=0),
)
case(
    "orders",
    lambda a, x: (
        jnp.searchsorted(a, x),
        jnp.searchsorted(a, x, method="sort"),
        jnp.interp(x, a, a * 2),
        jnp.digitize(x, a),
    ),
    jnp.sort(F(9)),
    F(5),
    vulkan=True,
)
case("igamma", lambda a, x: (lax.igamma(a, x), lax.igammac(a, x)), positive(9), positive(9), vulkan=True)
case("gamma_gradients", lambda a, x: (lax.igamma_grad_a(a, x), lax.random_gamma_grad(a, x)), positive(9), positive(9))
case("betainc", lax.betainc, positive(9), positive(9), jnp.asarray(random.uniform(0, 1, 9), f32))
case(
    "digamma_near_poles",
    lax.digamma,
    jnp.asarray([-1e-30, -1e-10, -1e-7, -1e-3, 1e-30, -1.0009765625, -6.0009765625], f32),
    vulkan=True,
)
case(
    "zeta_of_large",
    lax.zeta,
    jnp.asarray([60, 201, 201, 500, 127], f32),
    jnp.asarray([1, 1, 0.9, 2, 0.5], f32),
    vulkan=True,
)
case(
    "zeta",
    lambda x, q: (lax.zeta(x, q), lax.polygamma(jnp.asarray(lax.iota(i32, 4), f32), q[:4])),
    positive(9, 1.5),
    positive(9, 0.5),
    vulkan=True,
)

# products
case(
    "dot",
    lambda a, b, v: (
        a @ b,
        jnp.einsum("ij,jk->ki", a, b),
        jnp.vdot(a[0], b[:, 0]),
        a @ v,
        jnp.outer(v, v),
        jnp.dot(a, b, precision="highest"),
    ),
    N(5, 7),
    N(7, 3),
    N(7),
)
case(
    "dot_batches",
    lambda a, b: (
        jnp.einsum("bij,bkj->bik", a, b),
        jnp.einsum("bij,cjk->bcik", a, jnp.swapaxes(b, 1, 2)),
        jnp.tensordot(a, b, axes=[[0, 2], [0, 2]]),
    ),
    N(2, 5, 7),
    N(2, 3, 7),
)
case(
    "dot_narrow",
    lambda a, b, c, d: (
        lax.dot(a, b),
        lax.dot(a, b, preferred_element_type=i32),
        lax.dot(c, d, preferred_element_type=f32),
    ),
    I(5, 7, dtype=i8),
    I(7, 3, dtype=i8),
    N(5, 7, dtype=bf16),
    N(7, 3, dtype=bf16),
)
case(
    "ragged_dot", lambda a, b, g: lax.ragged_dot(a, b, g), N(6, 4), N(3, 4, 5), jnp.asarray([2, 3, 1], i32), vulkan=True
)
case(
    "conv",
    lambda x, w, a, b: (
        lax.conv(x, w, (1, 1), "SAME"),
        lax.conv(x, w, (2, 3), "VALID"),
        jnp.convolve(a, b, mode="same"),
    ),
    N(2, 3, 6, 7),
    N(4, 3, 3, 2),
    N(17),
    N(5),
    vulkan=True,
)
case(
    "conv_dilated",
    lambda x, w: lax.conv_general_dilated(
        x,
        w,
        (2, 1),
        ((1, 2), (0, -1)),
        lhs_dilation=(1, 2),
        rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    N(2, 6, 7, 3),
    N(3, 2, 3, 4),
    vulkan=True,
)
case(
    "conv_groups",
    lambda x, w, v: (
        lax.conv_general_dilated(x, w, (1,), ((2, 0),), dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=6),
        lax.conv_general_dilated(x, v, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), batch_group_count=2),
    ),
    N(2, 9, 6),
    N(3, 1, 6),
    N(3, 6, 4),
    vulkan=True,
)
case(
    "conv_gradient",
    lambda x, w: jax.grad(lambda x, w: (lax.conv(x, w, (2, 1), "SAME") ** 2).sum(), (0, 1))(x, w),
    N(2, 3, 4, 5, low=-2, high=3),
    N(4, 3, 3, 2, low=-2, high=3),
)
case(
    "conv_integers",
    lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", preferred_element_type=i32),
    I(4, 3, 9, dtype=i8),
    I(5, 3, 3, dtype=i8),
    vulkan=True,
)
case(
    "conv_transpose",
    lambda x, w: lax.conv_transpose(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
    N(2, 5, 3, dtype=bf16),
    N(3, 3, 4, dtype=bf16),
)

# shapes
case(
    "broadcasts",
    lambda x, y: (
        jnp.broadcast_to(x, (3, 5)),
        x[:, None] * jnp.ones((5, 2)),
        jnp.tile(y, (2, 3)),
        jnp.repeat(y, 3, axis=1),
    ),
    F(5),
    F(3, 5),
)
case(
    "joins",
    lambda a, b: (
        jnp.concatenate([a, b, a], 1),
        jnp.stack([a, b], -1),
        *jnp.unstack(a, axis=1),
        *jnp.split(a, [1, 4], 1),
    ),
    F(3, 5),
    F(3, 5),
)
case(
    "pads",
    lambda x: (
        lax.pad(x, jnp.float32(9), [(1, 2, 1), (-1, 0, 2)]),
        jnp.pad(x, 1, mode="edge"),
        jnp.pad(x, 1, mode="reflect"),
    ),
    F(3, 5),
)
case(
    "reshapes",
    lambda x: (
        x.reshape(5, 3),
        x.ravel(),
        x.T,
        lax.rev(x, (0, 1)),
        jnp.rot90(x),
        jnp.moveaxis(x[None], 0, 2),
        jnp.squeeze(x[None]),
        jnp.roll(x, (1, -1), (0, 1)),
    ),
    F(3, 5),
)
case(
    "iota",
    lambda x: (
        x + lax.broadcasted_iota(f32, (3, 5), 1) + jnp.eye(3, 5) + jnp.tri(3, 5),
        jnp.tril(x),
        jnp.trace(x),
        jnp.linspace(0, 1, 5),
    ),
    F(3, 5),
)

# reductions, scans, orders
for op in "cumsum cumprod cummax cummin cumlogsumexp".split():
    case(op, lambda x, op=getattr(lax, op): (op(x, axis=0), op(x, axis=1, reverse=True)), F(5, 7))
for op in "sum prod max min".split():
    case(
        "reduce_" + op,
        lambda x, op=getattr(jnp, op): (op(x), op(x, axis=0), op(x, axis=(0, 2)), op(x, -1, keepdims=True)),
        F(3, 5, 2),
    )
case(
    "reduce_bits",
    lambda x, b: (
        lax.reduce_and(x, (0,)),
        lax.reduce_or(x, (1,)),
        lax.reduce_xor(x, (0,)),
        lax.reduce_xor(b, (0, 1)),
        jnp.all(b, 0),
        jnp.any(b),
    ),
    I(3, 5),
    I(3, 5, low=0, high=2).astype(bool),
    vulkan=True,
)
case(
    "argmax",
    lambda x, s: (
        jnp.argmax(x),
        jnp.argmin(x, 0),
        lax.argmax(x, 1, jnp.int8),
        jnp.argmax(x, axis=1, keepdims=True),
        jnp.argmax(s),
        jnp.argmin(s),
        jnp.nanargmax(s),
    ),
    N(3, 5),
    S,
)
case("reduce", lambda x: lax.reduce(x, np.int32(3), lambda a, b: jnp.maximum(a, b) + 0, (1,)), I(3, 5), vulkan=True)
case(
    "reduce_without_axes",
    lambda x, s: (
        lax.reduce(x, np.int32(3), lambda a, b: a * b + b, ()),
        lax.reduce(s, np.int32(3), lambda a, b: a * b + b, ()),
        lax.reduce_xor(x, ()),
        lax.reduce_xor(s, ()),
    ),
    I(3, 5),
    I(),
    vulkan=True,
)
case(
    "reduce_of_two",
    lambda x, y: lax.reduce(
        (x, y),
        (jnp.float32(-jnp.inf), jnp.int32(-1)),
        lambda a, b: tuple(jnp.where(a[0] >= b[0], p, q) for p, q in zip(a, b)),
        (0, 2),
    ),
    F(3, 5, 3),
    I(3, 5, 3),
    vulkan=True,
)
case(
    "sort",
    lambda x, s, i: (
        jnp.sort(x),
        jnp.sort(x, 0),
        jnp.sort(x, descending=True),
        jnp.argsort(x, 1),
        jnp.sort(s),
        jnp.argsort(i),
        jnp.sort(i > 0),
    ),
    F(3, 5),
    S,
    I(11, dtype=i8),
)
case(
    "sort_operands",
    lambda a, b, c: lax.sort((a, b, c), dimension=1, num_keys=2),
    I(3, 9, low=0, high=2),
    I(3, 9, low=0, high=2),
    F(3, 9),
)
case(
    "top_k",
    lambda x, i, s, u, h: (
        *lax.top_k(x, 3),
        *lax.top_k(i, 3),
        *lax.top_k(s, 14),
        *lax.top_k(u, 4),
        *lax.top_k(h, 4),
        *lax.top_k(x, 2, axis=0),
    ),
    F(3, 7),
    I(11),
    S,
    U(9),
    F(9, dtype=bf16),
    vulkan=True,
)
case("approx_top_k", lambda x: (*lax.approx_max_k(x, 3), *lax.approx_min_k(x, 3)), F(3, 7), vulkan=True)
case(
    "reduce_window",
    lambda x: (
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "VALID"),
        lax.reduce_window(x, 0.0, lax.add, (2, 3), (2, 2), "SAME"),
        lax.reduce_window(x, jnp.inf, lax.min, (2, 3), (1, 1), "SAME"),
        lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"),
        lax.reduce_window(
            x, 0.0, lax.add, (2, 3), (1, 2), ((1, 1), (0, 2)), base_dilation=(2, 1), window_dilation=(1, 2)
        ),
    ),
    F(6, 9),
    vulkan=True,
)
case(
    "pool_gradients",
    lambda x, t: (
        jax.grad(lambda x: (lax.reduce_window(x, 0.0, lax.add, (2, 3), (2, 2), "SAME") ** 2).sum())(x),
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "SAME") ** 2).sum())(x),
        jax.jvp(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 2), "SAME"), (x,), (t,))[1],
    ),
    F(6, 9),
    F(6, 9),
    vulkan=True,
)

# elements at computed positions
case(
    "slices",
    lambda x, y, i: (
        lax.slice(x, (1, 2), (5, 9), (2, 3)),
        x[1:-1, ::-2],
        x[-1],
        lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
        lax.dynamic_index_in_dim(x, i[0], 1),
        lax.dynamic_slice_in_dim(x, i[2], 4, axis=1),
        lax.dynamic_update_slice(x, y, (i[0], i[1])),
        x.at[2].set(1),
        x.at[i[0], 1].add(5),
    ),
    F(6, 9),
    F(2, 3),
    jnp.asarray([5, -2, 20], i32),
)
case(
    "gather",
    lambda x, i, k: (
        x[i],
        x[:, i],
        x[i, i],
        jnp.take(x, i, axis=1),
        x[i[:, None], i],
        jnp.take(x, i, axis=0, mode="clip"),
        jnp.take(x, i * 5, axis=0, mode="fill"),
        jnp.take(x, i, axis=0, mode="wrap"),
        jnp.take_along_axis(x, k, 1),
        x[jnp.abs(i).astype(u8)],
    ),
    F(6, 9),
    jnp.asarray([5, 0, -2], i32),
    I(6, 4, low=0, high=9),
)
case(
    "gather_filled",
    lambda x, b, p, u, n, i: (
        *(x.at[i].get(mode="fill", fill_value=v) for v in (jnp.finfo(bf16).min, np.float16(2), -3)),
        b.at[i].get(mode="fill", fill_value=jnp.finfo(bf16).min),
        *(p.at[i].get(mode="fill", fill_value=v) for v in (np.False_, True, -5)),
        *(u.at[i].get(mode="fill", fill_value=v) for v in (jnp.iinfo(u32).max, -1, np.uint8(9))),
        *(n.at[i].get(mode="fill", fill_value=v) for v in (300, -1, 1.5, np.int32(7))),
    ),
    F(9),
    F(9, dtype=bf16),
    F(9) > 0,
    U(9),
    I(9, dtype=u8, low=0),
    jnp.asarray([0, 20, -1], i32),
    vulkan=True,
)
case(
    "scatter",
    lambda x, i, u: (
        x.at[i].set(u),
        x.at[i].add(u),
        x.at[i].mul(u),
        x.at[i].min(u),
        x.at[i].max(u),
        x.at[i].subtract(u),
        x.at[i, 1:3].set(7),
        x.at[i].divide(2.0),
    ),
    F(6, 9),
    jnp.asarray([5, 0, 2], i32),
    F(3, 9),
    vulkan=True,
)
case(
    "scatter_twice",
    lambda x, i, u: (
        x.at[i].add(u),
        x.at[i].subtract(u),
        x.at[i * 9].add(u, mode="drop"),
        x.at[i * 9].set(u, mode="clip"),
        x.at[i].apply(lambda v: v * 2 + 1),
    ),
    I(6),
    jnp.asarray([5, 0, 5], i32),
    I(3),
    vulkan=True,
)
case(
    "segments",
    lambda x, i: (
        jnp.bincount(i, length=7),
        jax.ops.segment_sum(x, i, num_segments=4),
        jnp.nonzero(i, size=7, fill_value=-1)[0],
        jnp.unique(i, size=9),
    ),
    F(9),
    I(9, low=0, high=5),
)

# calls and loops
case(
    "derivatives",
    lambda x: (
        jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2))(x),
        jax.jvp(jnp.sin, (x,), (x,))[1],
        jax.jacobian(lambda x: x * x[0])(x),
        jax.nn.gelu(x),
        jax.nn.softmax(x),
        jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sum(jnp.sin(x) * x))(x))(x),
    ),
    F(5),
)
case(
    "calls",
    lambda x: (
        lax.composite(lambda x: x * 2, name="a.b")(x),
        jax.custom_derivatives.linear_call(lambda r, x: x * r, lambda r, t: t * r, jnp.float32(2), x),
        lax.custom_linear_solve(lambda v: v * 3, x, lambda mv, b: b / 3, lambda mv, b: b / 3),
        lax.optimization_barrier(x),
        lax.stop_gradient(x),
        lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
        lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x + 2),
    ),
    F(5),
)
case(
    "loops",
    lambda x: (
        lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
        lax.fori_loop(0, 3, lambda i, a: a + i, x),
        lax.scan(lambda c, a: (c + a, c * a), x[0], x),
        lax.scan(lambda c, a: (c + a.sum(), (c, a * 2)), jnp.float32(0), x, reverse=True, unroll=2),
        lax.map(lambda a: a * 2, x),
        lax.associative_scan(jnp.add, x),
        lax.cond(x[0] > 0, lambda x: x, lambda x: -x, x),
        lax.switch(jnp.int32(1), [lambda x: x, lambda x: x * 2, lambda x: x * 3], x),
    ),
    F(5),
)
case(
    "vmap",
    lambda x, n: (
        jax.vmap(lambda a: a / lax.psum(a, "i") + lax.pmax(a, "i") + lax.axis_index("i"), axis_name="i")(x),
        jax.vmap(lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, 1.0))[1])(n),
    ),
    F(7),
    jnp.asarray([1, 4, 2], i32),
    vulkan=True,
)
case(
    "constants",
    lambda x: (
        jax.jit(lambda y: y + np.asarray([1, 2, 4, 7, 9], np.float32))(x),
        jax.jit(lambda y: y * np.full(5, 3, np.float32))(x),
        lax.fori_loop(0, 3, lambda i, a: jax.jit(lambda y: y * np.asarray([1, 2, 4, 7, 9], np.float32))(a), x),
    ),
    F(5),
    vulkan=True,
)

# random numbers
case(
    "random_bits",
    key(
        lambda k: (
            jax.random.uniform(k, (3, 5)),
            jax.random.normal(k, (3, 5)),
            jax.random.randint(k, (5,), 0, 10),
            jax.random.bernoulli(k, 0.3, (7,)),
            jax.random.permutation(k, 7),
            jax.random.categorical(k, jnp.zeros(5)),
            jax.random.truncated_normal(k, -1, 1, (5,)),
        )
    ),
    WORDS,
)
case(
    "random_numbers",
    key(lambda k: (jax.random.exponential(k, (3,)), jax.random.gumbel(k, (3,)), jax.random.laplace(k, (3,)))),
    WORDS,
)
case("random_loops", key(lambda k: (jax.random.gamma(k, 2.0, (3,)), jax.random.poisson(k, 2.0, (3,)))), WORDS)
case(
    "keys",
    lambda w: [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in key(
            lambda k: (
                lambda s: (
                    s[1],
                    s[::-1],
                    jax.random.fold_in(k, 3),
                    jax.random.clone(k),
                    jnp.concatenate([s, s[:1]]),
                    s == k,
                    jnp.where(w[0] > 3, s, s[::-1]),
                    s.reshape(3, 1).T,
                    s[lax.iota(i32, 2)],
                    lax.dynamic_index_in_dim(s, w[0].astype(i32) % 3, 0, keepdims=False),
                    lax.cond(w[0] > 3, lambda a, b: a, lambda a, b: b, s[0], s[1]),
                    s.at[1].set(k),
                    lax.fori_loop(0, 3, lambda i, k: jax.random.split(k)[0], k),
                    jax.vmap(lambda k: jax.random.uniform(k, (4,)))(s),
                    lax.scan(lambda c, k: (c, jax.random.uniform(k, (2,))), 0.0, s)[1],
                )
            )(jax.random.split(k, 3))
        )(w)
    ],
    WORDS,
    vulkan=True,
)
