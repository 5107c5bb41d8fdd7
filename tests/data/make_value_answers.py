"""Writes values/: NAME.inI.npy and NAME.outI.npy, the answers of JAX on the CPU (0.10.2) for functions of the C++ front
end that move, pack and draw values. tests/support/value_functions.h says by NAME what to call. Run by hand, as
make_answers.py; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_value_answers.py

Operands have no subnormal numbers: JAX's CPU backend sorts them as zeros, while Tessera sorts them as the numbers they
are.
"""

import os

import make_answers  # sets JAX up
from make_answers import DTYPES, FLOATS, INTS, random_bits, save, specials

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath as mp
import numpy as np
from jax import lax
from jax._src.pallas.einshape import _einshape
from jax._src.random.philox4x32 import philox4x32_p

RNG = np.random.default_rng(7)
# make_matrix_answers.py has the others
WIDE = [d for d in DTYPES if d not in [*make_answers.FLOAT8, *make_answers.INT4]]


def case(name, f, *inputs):
    outputs = f(*[jnp.asarray(x) for x in inputs])
    for i, x in enumerate(inputs):
        save("values", f"{name}.in{i}", x)
    for i, y in enumerate(outputs if isinstance(outputs, (list, tuple)) else [outputs]):
        save("values", f"{name}.out{i}", y)


def some(dtype, shape):
    """Special values, many twice, and random ones; no subnormals."""
    x = np.concatenate([specials(dtype), random_bits(dtype, (40,))]) if dtype != "bool" else specials(dtype)
    if dtype in FLOATS:
        x = x[~((np.abs(x) < ml_dtypes.finfo(x.dtype).smallest_normal) & (x != 0))]
    return RNG.choice(x, shape)


def sorting():
    for d in WIDE:
        case(f"sort_{d}", lambda x: [lax.sort(x, a) for a in range(3)], some(d, (3, 5, 33)))
    for n, shape in enumerate([(0,), (1,), (7,), (8, 128), (1000,)]):
        case(f"sort_shape_{n}", lambda x: lax.sort(x), some("f32", shape))
    keys = RNG.integers(0, 3, (5, 40)).astype(np.int8)
    floats = RNG.choice(np.array([0.0, -0.0, 1.5, np.nan, -np.inf], np.float32), (5, 40))
    order = np.arange(200, dtype=np.int32).reshape(5, 40)
    case("sort_two_keys", lambda a, b, c: lax.sort((a, b, c), 1, num_keys=2), keys, floats, order)
    case("sort_one_key", lambda a, b, c: lax.sort((a, b, c), 0, num_keys=1), keys, floats, order)
    case("argsort", lambda x: [jnp.argsort(x, axis=a).astype(np.int32) for a in (0, -1)], floats)


def gathers():
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5) + 0.5
    index = np.array([[-7, -4, -1], [0, 3, 4]], np.int32)
    for mode in ["fill", "clip", "wrap"]:
        for d in ["f32", "i8", "u16", "bool", "bf16"]:
            y = (x.astype(int) % 2 == 0) if d == "bool" else x.astype(DTYPES[d])
            case(
                f"take_{mode}_{d}",
                lambda x, i: [jnp.take(x, i, 1, mode=mode), jnp.take(x, i[0], 0, mode=mode)],
                y,
                index,
            )
    case(
        "take_i64", lambda x, i: jnp.take(x, i, 2, mode="clip"), x, np.array([-(2**40), 2**40, 2**32 + 1, 1], np.int64)
    )
    case("take_scalar", lambda x, i: jnp.take(x, i, 1), x, np.array(2, np.uint8))
    case("take_empty", lambda x, i: [jnp.take(x, i, 0), jnp.take(x[:0], i + 1, 1)], x, np.zeros((0, 2), np.int32))
    along = RNG.integers(-6, 6, (3, 4, 2)).astype(np.int32)
    case(
        "take_along_axis",
        lambda x, i, j: [
            jnp.take_along_axis(x, i, 2),
            jnp.take_along_axis(x, j, 0),
            jnp.take_along_axis(x, j, 0, mode="clip"),
        ],
        x,
        along,
        np.array([[[2], [-1], [5], [-9]]], np.int32),
    )
    i, j = np.array([[2], [-1], [9]], np.int32), np.array([0, -5, 3, 4], np.int32)
    case("gather", lambda x, i, j: [x[i, j], x[:, i], x[i, :, j], x[:, j, i], x[j], x[i, j, j]], x, i, j)
    case("gather_fill", lambda x, i, j: x.at[:, i, j].get(mode="fill"), x, i, j)
    starts = np.array([[0, 0, 0], [-1, 2, 9], [-3, -4, -5], [-9, 1, 1]], np.int32)
    case("dynamic_slice", lambda x, s: [lax.dynamic_slice(x, s[k], (2, 4, 3)) for k in range(4)], x, starts)
    case(
        "dynamic_update_slice",
        lambda x, u, s: [lax.dynamic_update_slice(x, u, s[k]) for k in range(4)],
        x,
        -x[:2, :, :3],
        starts,
    )
    case(
        "dynamic_index",
        lambda x, s: [lax.dynamic_index_in_dim(x, s[0, 0], 1), lax.dynamic_index_in_dim(x, s[3, 0], 2, False)],
        x,
        starts,
    )
    case(
        "roll_by_value",
        lambda x, s: [
            jnp.roll(x, s[1, 2], 1),
            jnp.roll(x, s[3, 0], 2),
            jnp.stack([jnp.roll(x[:, k], s[1, 2] + 3 * k, 1) for k in range(4)], 1),
        ],
        x,
        starts,
    )
    case("argmax_dtypes", lambda x: [lax.argmax(x, 1, t) for t in (np.int8, np.uint8, np.int32, np.int64)], x % 7)
    case(
        "select_n_four",
        lambda w, a: lax.select_n(w, a, a + 1, a + 2, a + 3),
        np.array([3, -1, 2, 9, 0, 1], np.int32),
        np.arange(6, dtype=np.int16),
    )


def scatters():
    i, j = np.array([[2], [-1], [9], [2]], np.int32), np.array([0, -5, 3, 0], np.int32)
    for d in ["f32", "i8", "u32", "bf16", "i64"]:
        x = np.arange(60).reshape(3, 4, 5).astype(DTYPES[d])
        u = RNG.integers(1, 9, (3, 4, 4, 4)).astype(DTYPES[d])
        case(
            f"scatter_{d}",
            lambda x, i, j, u: [
                x.at[i, j].set(u[:, :, 0, :].transpose(1, 2, 0)[..., :1]),
                x.at[:, j, i].set(u[:, :, 0]),
                x.at[:, i].add(u[:, :, :1, :1]),
                x.at[:, j, i].multiply(u[:, :, 0]),
                x.at[j, :, i].min(u[0]),
                x.at[j].max(u[0, 0, 0, :, None, None] * 7),
                x.at[j, i, j].add(1),
            ],
            x,
            i,
            j,
            u,
        )
    case("scatter_bool", lambda x, i: x.at[:, i[:, 0]].set(True), np.zeros((2, 5), bool), i)
    case("scatter_none", lambda x, i: x.at[i].set(x), np.arange(0, dtype=np.float32), np.zeros((0,), np.int32))


def bit_patterns():
    for a, b in [
        ("u8", "u32"),
        ("f32", "u8"),
        ("f32", "bf16"),
        ("bf16", "f32"),
        ("i16", "u64"),
        ("f64", "i16"),
        ("i8", "f16"),
        ("u64", "f32"),
        ("i32", "f32"),
    ]:
        ratio = np.dtype(DTYPES[b]).itemsize // np.dtype(DTYPES[a]).itemsize
        case(
            f"bitcast_{a}_{b}",
            lambda x: lax.bitcast_convert_type(x, DTYPES[b]),
            random_bits(a, (3, 5, max(ratio, 1))) if ratio > 1 else random_bits(a, (3, 5)),
        )

    def rows(x, t):  # what pltpu.bitcast means
        n = np.dtype(t).itemsize // x.dtype.itemsize
        *_, m, k = x.shape
        if n > 1:
            return lax.bitcast_convert_type(jnp.swapaxes(x.reshape(m // n, n, k), 1, 2), t)
        return jnp.swapaxes(lax.bitcast_convert_type(x, t), 1, 2).reshape(-1, k)

    case("bitcast_rows", lambda x: [rows(x, np.uint32), rows(x, np.int8)], random_bits("i16", (8, 3)))
    x, y = random_bits("i32", (7,)), random_bits("i32", (7,))
    case(
        "pack_i32",
        lambda x, y: lax.bitcast_convert_type(x, np.uint32) & 0xFFFF | lax.bitcast_convert_type(y, np.uint32) << 16,
        x,
        y,
    )
    case("unpack_i32", lambda x: [(x << 24) >> 24, (x << 8) >> 24, lax.bitcast_convert_type(x, np.uint32) >> 24], x)
    f, g = np.nan_to_num(some("f32", (40,)), posinf=np.inf, neginf=-np.inf), some("f32", (40,))
    g = np.where(np.isnan(g), np.float32(2.5), g)  # which NaN a conversion makes is not specified
    half = lambda f: lax.bitcast_convert_type(f.astype(jnp.bfloat16), np.uint16).astype(np.uint32)
    case("pack_f32", lambda f, g: half(f) | half(g) << 16, f, g)
    case(
        "stochastic_round",
        lambda f, r: jnp.where(
            jnp.isfinite(f),
            lax.bitcast_convert_type((lax.bitcast_convert_type(f, np.uint32) + (r & 0xFFFF)) >> 16 << 16, np.float32),
            f,
        ).astype(jnp.bfloat16),
        f,
        random_bits("u32", (40,)),
    )
    case(
        "einshape",
        lambda x: [_einshape("a(bc)d->d(ca)b", x, b=2), _einshape("abc->(abc)", x), _einshape("(ab)cd->bac d", x, a=3)],
        np.arange(72, dtype=np.float32).reshape(3, 8, 3),
    )
    case("unstack", lambda x: jnp.unstack(x, axis=1), np.arange(18, dtype=np.int32).reshape(2, 3, 3))


FLOAT8_PAIRS = [
    ("f8e4m3fn", "f8e5m2", "f32"),
    ("f8e5m2", "f8e4m3fn", "bf16"),
    ("f8e4m3fn", "f8e5m2", "f16"),
    ("f8e5m2", "f8e4m3fn", "f64"),
]


def products():
    a, b = RNG.integers(-128, 128, (5, 33)), RNG.integers(-128, 128, (33, 7))
    dot = lambda to: lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=to)
    for l, r, to in [
        ("i8", "i8", "i32"),
        ("i8", "i8", "u32"),
        ("u8", "u8", "i32"),
        ("u8", "i8", "i32"),
        ("i8", "i8", "f32"),
        ("i8", "i8", "i8"),
        ("bool", "bool", "bool"),
        ("bool", "bool", "i32"),
        ("f32", "f32", "bf16"),
        ("f16", "bf16", "f32"),
        ("f32", "f32", "i32"),
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f16"),
        *FLOAT8_PAIRS,
    ]:
        x, y = (
            (a > 60, b > 60)
            if l == "bool"
            else (
                ((a // 8).astype(DTYPES[l]), (b // 8).astype(DTYPES[r]))
                if l[0] == "f" or l[0] == "b"
                else (a.astype(DTYPES[l]), b.astype(DTYPES[r]))
            )
        )
        case(f"dot_{l}_{r}_{to}", dot(DTYPES[to]), x, y)


def worst_normals(key, t):
    """Positions among 131,072 numbers, and JAX's numbers there: the 600 farthest from the exact ones in units in the
    last place, and as many right below a power of two, where a unit is smallest."""
    n = 131072
    z = np.asarray(jax.random.normal(key, (n,), t))
    u = np.asarray(
        jax.random.uniform(key, (n,), t, np.nextafter(np.array(-1, t), np.array(0, t), dtype=t), np.array(1, t)),
        np.float64,
    )
    numbers, back = np.unique(u, return_inverse=True)
    exact = np.array([float(mp.sqrt(2) * mp.erfinv(mp.mpf(x))) for x in numbers])[back]
    fraction, exponent = np.frexp(z.astype(np.float64))
    distance = np.abs(z.astype(np.float64) - exact) / 2.0**exponent
    at = np.sort(
        np.union1d(np.argsort(-distance, kind="stable")[:600], np.argsort(-np.abs(fraction), kind="stable")[:600])
    ).astype(np.int32)
    return at, z[at]


def random():
    jax.config.update("jax_enable_x64", False)  # the default, under which seeds and shapes of keys are asked for
    seeds = np.array([0, 42, -1, 2**31 - 1], np.int32)
    words = jax.random.key_data
    key = lambda s: jax.random.key(s)
    case("random_key", lambda s: jnp.stack([words(key(s[k])) for k in range(4)]), seeds)
    case("random_fold_in", lambda s: jnp.stack([words(jax.random.fold_in(key(s[1]), s[k])) for k in range(4)]), seeds)
    case(
        "random_split",
        lambda s: [
            words(jax.random.split(key(s[1]))),
            words(jax.random.split(key(s[2]), 5)),
            words(jax.random.split(key(s[2]), 0)),
        ],
        seeds,
    )
    jax.config.update("jax_enable_x64", True)
    key = lambda s: jax.random.wrap_key_data(jnp.stack([jnp.uint32(0), s.astype(jnp.uint32)]))
    for d in ["u8", "u16", "u32", "u64"]:
        case(
            f"random_bits_{d}",
            lambda s: [jax.random.bits(key(s[1]), shape, DTYPES[d]) for shape in [(), (7,), (3, 5, 33)]],
            seeds,
        )
    for d in [d for d in WIDE if d in FLOATS]:
        case(
            f"random_uniform_{d}",
            lambda s: [
                jax.random.uniform(key(s[1]), (3, 5, 33), DTYPES[d]),
                jax.random.uniform(key(s[2]), (7,), DTYPES[d], -2.5, 4.0),
            ],
            seeds,
        )
        case(f"random_normal_{d}", lambda s: jax.random.normal(key(s[1]), (8, 128), DTYPES[d]), seeds)
        at, numbers = worst_normals(key(seeds[1]), DTYPES[d])
        case(f"random_normal_worst_{d}", lambda s, i: numbers, seeds, at)
    for d in [d for d in WIDE if d in INTS]:
        high = min(int(np.iinfo(DTYPES[d]).max) + 1, 2**63 - 1)
        case(
            f"random_randint_{d}",
            lambda s: [
                jax.random.randint(key(s[1]), (40,), 3, 100, DTYPES[d]),
                jax.random.randint(key(s[2]), (7,), 0, high, DTYPES[d]),
                jax.random.randint(key(s[2]), (7,), 5, 5, DTYPES[d]),
            ],
            seeds,
        )
    case(
        "random_bernoulli",
        lambda s, p: [
            jax.random.bernoulli(key(s[1]), p, (4, 9)),
            jax.random.bernoulli(key(s[2]), np.float32(0.25), (33,)),
        ],
        seeds,
        np.linspace(0, 1, 9, dtype=np.float32),
    )
    counters = np.concatenate(
        [
            np.zeros((6, 1), np.uint32),
            np.full((6, 1), 2**32 - 1, np.uint32),
            np.array([[0xA4093822], [0x299F31D0], [0x243F6A88], [0x85A308D3], [0x13198A2E], [0x03707344]], np.uint32),
            random_bits("u32", (6, 4)),
        ],
        1,
    )
    case("philox4x32", lambda *x: philox4x32_p.bind(*x), *counters)


if __name__ == "__main__":
    sorting()
    gathers()
    scatters()
    bit_patterns()
    products()
    random()
