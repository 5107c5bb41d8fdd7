"""Writes the stored answers in this folder by asking JAX on the CPU (made with JAX 0.10.2). Run by hand, in an
environment with jax, ml_dtypes and mpmath; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_answers.py

elementwise/   every elementwise op on special values. ops.txt lists "KIND DTYPE op op ...": KIND_DTYPE.npy has one row
per op, and
               KIND_operands_DTYPE.npy the operands, one row each. convert_DTYPE.npy holds the bytes of the conversions to every dtype, in
               order of the dtypes. What JAX does not define (abs of unsigned integers) is not listed.
               Transcendental ops have "exact" rows too: the answers in f64, by mpmath in 60 digits, because JAX's own are up to hundreds of
               units in the last place off (its cosh is e^(x - ln 2)); NaN where an operand is not finite or the answer is zero or infinite.
narrow/        f32.npy, and the conversions to the 8-bit floats of its numbers (f32_to_DTYPE.npy) and of every f16
(f16_to_DTYPE.npy). front/         NAME.inI.npy and NAME.outI.npy: functions of the C++ front end that no op stands for,
with jax.lax's or jax.numpy's answer. structured/    NAME.tir with NAME.inI.npy and NAME.outI.npy: one op each on odd
shapes, the answer from jax.lax or jax.numpy. pallas/        the same for whole kernels, the answer from
pallas_call(interpret=True).
"""

import itertools
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath as mp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
HERE = os.path.dirname(os.path.abspath(__file__))

DTYPES = {
    "bool": np.bool_,
    "i4": ml_dtypes.int4,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u4": ml_dtypes.uint4,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
FLOAT8 = ["f8e4m3fn", "f8e5m2"]
INT4 = ["i4", "u4"]
FLOATS = [*FLOAT8, "f16", "bf16", "f32", "f64"]
INTS = [n for n in DTYPES if n[0] in "iu"]


def save(folder, name, array):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    np.save(os.path.join(HERE, folder, name + ".npy"), np.asarray(array, order="C"))


# -- elementwise
def specials(dtype):
    """The values where arithmetic goes wrong, most telling first."""
    t = DTYPES[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        i = ml_dtypes.iinfo(t)
        if dtype in INT4:
            return np.arange(int(i.min), int(i.max) + 1).astype(t)
        w = [
            0,
            1,
            i.max,
            i.min,
            2,
            3,
            7,
            i.bits,
            i.bits - 1,
            5,
            i.max // 2 + 1,
            100,
            i.max - 1,
            i.min + 1,
            127,
            128,
            255,
            256,
            32767,
            32768,
            65535,
            65536,
            65520,
            2**24 + 1,
            2**31 - 1,
            2**31,
            2**32 + 5,
            2**53 + 1,
            2**62 + 2**54 + 1,
        ]
        if i.min < 0:
            w = [-1, -i.bits, -7, *w, -100, -129, -32769, -(2**31) - 1, -(2**40)]
        return np.array([v for v in dict.fromkeys(w) if i.min <= v <= i.max], dtype=t)
    f = ml_dtypes.finfo(t)
    w = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        float(f.max),
        float(f.smallest_subnormal),
        -2.5,
        0.5,
        3.0,
        1 / 3,
        float(f.smallest_normal),
        -float(f.smallest_normal),
        -float(f.max),
        -0.5,
        1.5,
        2.5,
        -3.7,
        0.1,
        10.0,
        -10.0,
        3.1415926,
        -20.0,
        20.0,
        80.0,
        -80.0,
        0.999,
        1e-3,
        -1e-3,
        1e-5,
        255.5,
        128.0,
        -128.5,
        -129.0,
        2147483648.0,
        9.3e18,
        1.9e19,
        -9.3e18,
        8388607.5,
        0.49999997,
        1e6,
        1e22,
        3e38,
        -1e6,
        65504.0,
        65519.0,
        1 + 2.0**-11 + 2.0**-40,
        1 + 2.0**-8 + 2.0**-40,
        1e-40,
        -1e-41,
        -0.75,
        0.25,
        0.70710678,
        -0.9999,
        0.99999994,
        1 - 2.0**-53,
        1.0000001,
        -1.5,
        5.0,
        1.57079637,
        -4.71238899,
        1e-10,
        88.8,
        89.4,
        -104.5,
        710.2,
        -745.5,
        2.0**60,
    ]
    return np.array(w, dtype=np.float64).astype(t)


def with_random(dtype, n):
    s = specials(dtype)
    if dtype in FLOAT8:
        return np.arange(256, dtype=np.uint8).view(DTYPES[dtype])
    if dtype not in FLOATS:
        return s
    rng = np.random.default_rng(1)
    return np.concatenate(
        [
            s,
            (rng.standard_normal(n) * np.exp(rng.standard_normal(n) * 1.5)).astype(DTYPES[dtype]),
            rng.uniform(-1, 1, n).astype(DTYPES[dtype]),
        ]
    )


def random_bits(dtype, shape):
    """Integers of all lengths, floats of all exponents (NaN among them)."""
    t = np.dtype(DTYPES[dtype])
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 16 if dtype in INT4 else 256, (*shape, t.itemsize), np.uint8).view(f"u{t.itemsize}")[..., 0]
    return (bits >> rng.integers(0, 8 * t.itemsize, shape).astype(bits.dtype) if dtype in INTS else bits).view(t)


UNARY_FLOAT = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "exp": lax.exp,
    "exp2": lax.exp2,
    "log": lax.log,
    "log2": lambda x: jnp.log2(x),
    "tanh": lax.tanh,
    "sin": lax.sin,
    "cos": lax.cos,
    "erf": lax.erf,
    "logistic": lax.logistic,
    "expm1": lax.expm1,
    "log1p": lax.log1p,
    "cbrt": lax.cbrt,
    "tan": lax.tan,
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "sinh": lax.sinh,
    "cosh": lax.cosh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": lax.atanh,
    "erf_inv": lax.erf_inv,
}
UNARY_INT = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "not": lax.bitwise_not,
    "clz": lax.clz,
    "population_count": lax.population_count,
}
BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
}
BITS = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
SHIFTS = {
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
}
BINARY_FLOAT = {**BINARY, "pow": lax.pow, "atan2": lax.atan2, "nextafter": lax.nextafter}
BINARY_INT = {**BINARY, **BITS, **SHIFTS, "mulhi": lax.mulhi}
COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}


EXACT = {
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "tanh": mp.tanh,
    "sin": mp.sin,
    "cos": mp.cos,
    "erf": mp.erf,
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "expm1": mp.expm1,
    "log1p": mp.log1p,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "erf_inv": mp.erfinv,
    "pow": mp.power,
    "atan2": mp.atan2,
}


def exact(name, *operands):
    x = [float(o) for o in operands]
    if not all(np.isfinite(x)) or (name in ("pow", "atan2") and x[0] == 0):  # mpmath has no -0
        return np.nan
    # mpmath would take the digits of e^(10^22)
    if name in ("exp", "exp2", "expm1", "sinh", "cosh") and abs(x[0]) > 1e4:
        return np.nan
    try:
        y = EXACT[name](*[mp.mpf(v) for v in x])
        within = not isinstance(y, mp.mpc) and mp.isfinite(y) and mp.mpf(2) ** -1080 < abs(y) < mp.mpf(2) ** 1025
        return float(y) if within else np.nan
    except (ValueError, ZeroDivisionError):
        return np.nan


def elementwise():
    mp.mp.dps = 60
    lines = []

    def rows(kind, dtype, ops, operands):
        done, answers = [], []
        for name, f in ops.items():
            try:
                answers.append(np.asarray(f(*[jnp.asarray(x) for x in operands])))
                done.append(name)
            except (TypeError, ValueError, jax.errors.JaxRuntimeError):
                print(f"JAX has no {name} of {dtype}", file=sys.stderr)
        if not done:
            return
        save("elementwise", f"{kind}_operands_{dtype}", np.stack(operands))
        save("elementwise", f"{kind}_{dtype}", np.stack(answers))
        lines.append(" ".join([kind, dtype, *done]))
        known = [name for name in done if name in EXACT]
        if known:
            save(
                "elementwise",
                f"exact_{kind}_{dtype}",
                np.array([[exact(name, *x) for x in zip(*operands)] for name in known], np.float64),
            )
            lines.append(" ".join(["exact_" + kind, dtype, *known]))

    for d in DTYPES:
        one = with_random(d, 40)
        # XLA on the CPU counts the eight bits of the byte that holds a negative i4, and of products of 4-bit integers
        # its mulhi takes the bits from the eighth up, which are no half of theirs.
        ints = {n: f for n, f in UNARY_INT.items() if (d, n) != ("i4", "population_count")}
        pairs_of_ints = {n: f for n, f in BINARY_INT.items() if d not in INT4 or n != "mulhi"}
        rows("unary", d, UNARY_FLOAT if d in FLOATS else {"not": lax.bitwise_not} if d == "bool" else ints, [one])
        if d in FLOATS:
            rows("finite", d, {"is_finite": lax.is_finite}, [one])
        pairs = np.array(
            list(itertools.product(specials(d)[: 16 if d in INT4 else 11], repeat=2)), dtype=DTYPES[d]
        ).T.copy()
        if d != "bool":
            pairs = np.concatenate([pairs, random_bits(d, (2, 50)), np.random.default_rng(6).choice(one, (2, 80))], 1)
        rows("binary", d, BITS if d == "bool" else BINARY_FLOAT if d in FLOATS else pairs_of_ints, list(pairs))
        rows("compare", d, COMPARE, list(pairs))
        if d != "bool":
            triples = np.random.default_rng(2).choice(specials(d)[: 16 if d in INT4 else 12], (3, 160))
            rows("ternary", d, {"clamp": lax.clamp}, list(triples))
        one = np.concatenate([one, random_bits(d, (60,))]) if d != "bool" else one
        converted = [np.asarray(lax.convert_element_type(jnp.asarray(one), t)) for t in DTYPES.values()]
        save("elementwise", f"convert_operands_{d}", one[None])
        save("elementwise", f"convert_{d}", np.frombuffer(b"".join(c.tobytes() for c in converted), np.uint8))
    with open(os.path.join(HERE, "elementwise", "ops.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


def narrow():
    """To the 8-bit floats from every f16, and from f32 at and beside every tie, at random, and beyond both ends."""
    finite = np.unique(
        np.concatenate([np.arange(256, dtype=np.uint8).view(DTYPES[d]).astype(np.float32) for d in FLOAT8])
    )
    finite = finite[np.isfinite(finite)]
    ties = np.concatenate([(finite[1:] + finite[:-1]) / 2, finite, np.float32([464, -464, 480, 61440, -61440, 65536])])
    rng = np.random.default_rng(9)
    around = [
        ties,
        np.nextafter(ties, np.float32(np.inf)),
        np.nextafter(ties, np.float32(-np.inf)),
        np.ldexp(rng.standard_normal(2000), rng.integers(-22, 18, 2000)).astype(np.float32),
    ]
    f32 = np.concatenate([*around, random_bits("f32", (500,))])
    save("narrow", "f32", f32)
    for d in FLOAT8:
        save("narrow", f"f32_to_{d}", np.asarray(lax.convert_element_type(jnp.asarray(f32), DTYPES[d])))
        f16 = np.arange(65536, dtype=np.uint16).view(np.float16)
        save("narrow", f"f16_to_{d}", np.asarray(lax.convert_element_type(jnp.asarray(f16), DTYPES[d])))


# -- functions of the front end (tests/unit/engine/front/front_answers_test.cpp says by NAME what to call)
def front():
    def case(name, f, *inputs):
        outputs = f(*[jnp.asarray(x) for x in inputs])
        for i, x in enumerate(inputs):
            save("front", f"{name}.in{i}", x)
        for i, y in enumerate(outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            save("front", f"{name}.out{i}", y)

    floats = {d: np.concatenate([with_random(d, 20), random_bits(d, (20,))]) for d in FLOATS}
    for d, formats in {
        "f8e4m3fn": [(4, 1), (3, 2)],
        "f8e5m2": [(4, 1), (2, 2)],
        "f16": [(5, 4), (4, 3), (3, 10)],
        "bf16": [(4, 3), (5, 2)],
        "f32": [(8, 7), (5, 10), (4, 3), (2, 0), (8, 23)],
        "f64": [(8, 23), (11, 20)],
    }.items():
        for e, m in formats:
            case(f"reduce_precision_{d}_{e}_{m}", lambda x: lax.reduce_precision(x, e, m), floats[d])
    for d in ["i8", "u32", "f32"]:
        x = floats["f32"] if d == "f32" else specials(d)
        case(f"square_{d}", lax.square, x)
        for n in [0, 1, 3, 10] + ([-1, -3] if d == "f32" else []):
            case(f"integer_pow_{d}_{n}", lambda x: lax.integer_pow(x, n), x)
    case("reciprocal_f32", lax.reciprocal, floats["f32"])
    for d in FLOATS:
        case(f"is_nan_{d}", jnp.isnan, floats[d])
        case(f"is_inf_{d}", jnp.isinf, floats[d])
    which, cases = np.array([0, 2, 1, 1, 0, 2, 2], np.int32), np.arange(21, dtype=np.float32).reshape(3, 7)
    case("select_n_i32", lambda w, a, b, c: lax.select_n(w, a, b, c), which, *cases)
    case("select_n_bool", lambda w, a, b: lax.select_n(w, a, b), which > 0, *cases[:2])

    x, y = np.arange(30, dtype=np.float32).reshape(2, 5, 3) - 7, np.array(
        [3, -np.inf, 5, np.nan, 5, -0.0, 0.0, np.inf], np.float32
    )
    case("expand_dims", lambda x: jnp.expand_dims(x, (0, -1)), x)
    case("squeeze", lambda x: lax.squeeze(x[None, :, :1], (0, 2)), x)
    case("stack", lambda x: jnp.stack([x, x * 2], -1), x)
    case("split", lambda x: lax.split(x, [1, 0, 4], 1), x)
    case("tile", lambda x: jnp.tile(x, (2, 1, 3)), x[0])
    case("rev", lambda x: lax.rev(x, (0, 2)), x)
    case("roll", lambda x: jnp.roll(x, -7, 1), x)
    for name, pads in {
        "edges": [(1, 2, 0), (0, 1, 0), (2, 0, 0)],
        "interior": [(0, 0, 3), (1, 0, 1), (0, 2, 2)],
        "cut": [(-1, 2, 0), (-2, -1, 1), (3, -4, 0)],
    }.items():
        case(f"pad_{name}", lambda x: lax.pad(x, np.float32(9), pads), x)
    for name, f in {"cumprod": lax.cumprod, "cummax": lax.cummax, "cummin": lax.cummin}.items():
        case(f"{name}_f32", lambda x: [f(x, 1), f(x, 2, True)], x % 4 - 1)
        case(f"{name}_i8", lambda x: [f(x, 0), f(x, 0, True)], specials("i8"))
        case(f"{name}_bf16", lambda x: f(x, 0), (x[0] % 3).astype(ml_dtypes.bfloat16))
    case("cummax_special", lambda x: [lax.cummax(x, 0), lax.cummin(x, 0, True)], y)
    case("cumlogsumexp", lambda x: [lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x, 2, True)], x * 5)
    case("argmax_u8", lambda x: lax.argmax(x, 1, np.uint8), x)
    case("logaddexp", lambda a, b: jnp.logaddexp(a, b), y, y[::-1].copy())


# -- kernels: each has its text, its inputs, and the answers
def write_case(folder, name, text, inputs, outputs):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    with open(os.path.join(HERE, folder, name + ".tir"), "w") as out:
        out.write("tir 1\n" + text.strip() + "\n")
    for i, x in enumerate(inputs):
        save(folder, f"{name}.in{i}", x)
    for i, y in enumerate(outputs):
        save(folder, f"{name}.out{i}", y)


def one_op(name, inputs, lines, outputs):
    """A kernel that loads every input whole into %100, %101, ..., computes `lines` (which define %200, %201, ...) and
    stores those whole."""

    def tir_type(x):
        d = next(n for n, t in DTYPES.items() if t == x.dtype)
        return f"{d}[{', '.join(map(str, x.shape))}]"

    def whole(x):
        return ", ".join(f"0:{n}" for n in x.shape)

    inputs, outputs = [np.asarray(x) for x in inputs], [np.asarray(y) for y in outputs]
    refs = [*inputs, *outputs]
    text = ["kernel @" + name, "grid (1)"]
    text += [f"in {tir_type(x)} whole" for x in inputs] + [f"out {tir_type(y)} whole" for y in outputs]
    text.append("body (" + ", ".join(f"%{i}: ref<any, {tir_type(x)}>" for i, x in enumerate(refs)) + ") {")
    text += [f"  %{100 + i} = load %{i}[{whole(x)}] : {tir_type(x)}" for i, x in enumerate(inputs)]
    text += ["  " + line for line in lines]
    text += [f"  store %{len(inputs) + i}[{whole(y)}], %{200 + i}" for i, y in enumerate(outputs)]
    write_case("structured", name, "\n".join([*text, "  yield", "}"]), inputs, outputs)


def structured():
    rng = np.random.default_rng(3)

    # sums and products of these are exact in every dtype, so answers are exact too
    def whole_numbers(dtype, shape, low=-4, high=5):
        low = 0 if dtype[0] in "ub" and dtype != "bf16" else low
        return rng.integers(low, high, shape).astype(DTYPES[dtype])

    def dot(name, dtype, result, lshape, rshape, contract, batch=((), ())):
        l, r = whole_numbers(dtype, lshape), whole_numbers(dtype, rshape)
        answer = lax.dot_general(
            l, r, (contract, batch), precision=lax.Precision.HIGHEST, preferred_element_type=DTYPES[result]
        )
        attrs = " ".join(
            f"{n} {list(v)}"
            for n, v in [
                ("lhs_contract", contract[0]),
                ("rhs_contract", contract[1]),
                ("lhs_batch", batch[0]),
                ("rhs_batch", batch[1]),
            ]
        )
        one_op(
            name, [l, r], [f"%200 = dot %100, %101 {attrs} : {result}[{', '.join(map(str, answer.shape))}]"], [answer]
        )

    for d in ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u32"]:
        dot(f"dot_{d}", d, d, (3, 5), (5, 7), ((1,), (0,)))
    dot("dot_i8_i32", "i8", "i32", (5, 9), (9, 2), ((1,), (0,)))
    dot("dot_bf16_f32", "bf16", "f32", (4, 33), (17, 33), ((1,), (1,)))
    dot("dot_batch", "f32", "f32", (2, 5, 3, 4), (4, 2, 6, 3), ((3,), (0,)), ((0, 2), (1, 3)))
    dot("dot_two_contracted", "f32", "f32", (3, 4, 5), (5, 2, 3), ((0, 2), (2, 0)))
    dot("dot_outer", "f32", "f32", (3,), (5,), ((), ()))
    dot("dot_vector", "f64", "f64", (7,), (7,), ((0,), (0,)))
    dot("dot_empty", "f32", "f32", (3, 0), (0, 2), ((1,), (0,)))
    dot("dot_large", "f32", "f32", (17, 40), (40, 29), ((1,), (0,)))

    reducers = {
        "reduce_sum": lax.reduce_sum_p,
        "reduce_prod": lax.reduce_prod_p,
        "reduce_max": lax.reduce_max_p,
        "reduce_min": lax.reduce_min_p,
        "reduce_and": lax.reduce_and_p,
        "reduce_or": lax.reduce_or_p,
    }

    def reduce(name, op, x, axes):
        answer = np.asarray(
            reducers[op].bind(
                jnp.asarray(x), axes=axes, **({} if op in ("reduce_and", "reduce_or") else {"out_sharding": None})
            )
        )
        d = next(n for n, t in DTYPES.items() if t == x.dtype)
        one_op(name, [x], [f"%200 = {op} %100 axes {list(axes)} : {d}[{', '.join(map(str, answer.shape))}]"], [answer])

    for d in ["f16", "bf16", "f32", "f64", "i8", "u16", "i32", "u64"]:
        reduce(f"sum_{d}", "reduce_sum", whole_numbers(d, (3, 5, 2)), (1,))
        reduce(f"max_{d}", "reduce_max", whole_numbers(d, (3, 5, 2)), (0, 2))
        reduce(f"min_{d}", "reduce_min", whole_numbers(d, (3, 5)), (0, 1))
    reduce("prod_f32", "reduce_prod", whole_numbers("f32", (3, 5), 1, 4), (1,))
    reduce("prod_i8", "reduce_prod", whole_numbers("i8", (5, 3)), (0,))
    reduce("sum_all", "reduce_sum", whole_numbers("f32", (2, 3, 1, 5)), (0, 1, 2, 3))
    reduce("sum_outer_inner", "reduce_sum", whole_numbers("f32", (2, 3, 5, 3)), (0, 2))
    reduce("sum_long", "reduce_sum", whole_numbers("i32", (3, 301)), (1,))
    reduce("sum_minus_zero", "reduce_sum", np.array([[-0.0, -0.0], [0.0, -0.0]], np.float32), (1,))
    reduce(
        "max_nan",
        "reduce_max",
        np.array([[1, np.nan, 3], [-0.0, 0.0, -1], [-np.inf, -np.inf, -np.inf]], np.float32),
        (1,),
    )
    reduce(
        "min_nan", "reduce_min", np.array([[1, np.nan, 3], [0.0, -0.0, 1], [np.inf, np.inf, np.inf]], np.float32), (1,)
    )
    reduce("max_empty", "reduce_max", np.zeros((2, 0), np.float32), (1,))
    reduce("min_empty_u8", "reduce_min", np.zeros((0, 3), np.uint8), (0,))
    reduce("sum_empty", "reduce_sum", np.zeros((0, 3), np.float32), (0,))
    reduce("and_bool", "reduce_and", rng.integers(0, 4, (5, 3)).astype(bool), (1,))
    reduce("or_bool", "reduce_or", rng.integers(0, 5, (5, 3)) == 0, (1,))
    reduce("and_i32", "reduce_and", rng.integers(-100, 100, (4, 3)).astype(np.int32), (0,))
    reduce("or_u8", "reduce_or", rng.integers(0, 100, (4, 3)).astype(np.uint8), (0,))

    def argument(name, op, x, axis, index):
        answer = {"argmax": lax.argmax, "argmin": lax.argmin}[op](jnp.asarray(x), axis, DTYPES[index])
        one_op(name, [x], [f"%200 = {op} %100 axis {axis} : {index}[{', '.join(map(str, answer.shape))}]"], [answer])

    ties = np.array([[1, 3, 3, -2, -2], [0.0, -0.0, 0.0, -0.0, 0.0], [2, np.nan, 9, np.nan, -9]], np.float32)
    argument("argmax_ties", "argmax", ties, 1, "i32")
    argument("argmin_ties", "argmin", ties, 1, "i32")
    argument("argmax_rows", "argmax", whole_numbers("f16", (5, 3, 2)), 1, "i64")
    argument("argmin_u8", "argmin", whole_numbers("u8", (5, 7)), 0, "u8")
    for d in ["f32", "f16", "i8", "i32"]:
        x = whole_numbers(d, (2, 7, 3), -100 if d == "i8" else -4, 100 if d == "i8" else 5)
        one_op(
            f"cumsum_{d}",
            [x],
            [f"%200 = cumsum %100 axis 1 : {d}[2, 7, 3]", f"%201 = cumsum %100 axis 1 reverse 1 : {d}[2, 7, 3]"],
            [lax.cumsum(jnp.asarray(x), 1), lax.cumsum(jnp.asarray(x), 1, reverse=True)],
        )

    x = rng.standard_normal((3, 5, 2)).astype(np.float32)
    one_op(
        "moves",
        [x],
        [
            "%200 = transpose %100 perm [2, 0, 1] : f32[2, 3, 5]",
            "%201 = slice %100 start [1, 0, 1] limit [3, 5, 2] stride [1, 2, 1] : f32[2, 3, 1]",
            "%202 = broadcast %201 dims [0, 2, 3] : f32[2, 4, 3, 6]",
            "%203 = reshape %100 : f32[6, 5]",
            "%204 = concatenate %100, %100, %100 axis 1 : f32[3, 15, 2]",
        ],
        [
            lax.transpose(x, (2, 0, 1)),
            x[1:3, 0:5:2, 1:2],
            lax.broadcast_in_dim(x[1:3, 0:5:2, 1:2], (2, 4, 3, 6), (0, 2, 3)),
            x.reshape(6, 5),
            lax.concatenate([x, x, x], 1),
        ],
    )
    one_op(
        "iotas",
        [],
        ["%200 = iota axis 1 : i32[2, 3]", "%201 = iota axis 0 : bf16[5]", "%202 = iota axis 0 : u8[3, 2]"],
        [
            lax.broadcasted_iota(np.int32, (2, 3), 1),
            lax.iota(ml_dtypes.bfloat16, 5),
            lax.broadcasted_iota(np.uint8, (3, 2), 0),
        ],
    )

    for d in [*FLOAT8, *INT4]:
        # XLA on the CPU has no products of i4 with wider results
        for to in [d, "f32", "f16", "bf16", "f64"] if d in FLOAT8 else [d]:
            dot(f"dot_{d}_{to}", d, to, (3, 5), (5, 7), ((1,), (0,)))
        x = whole_numbers(d, (3, 5, 2), -1 if d[0] != "u" else 0, 3)
        reduce(f"sum_{d}", "reduce_sum", x, (1,))
        reduce(f"prod_{d}", "reduce_prod", x, (2,))
        reduce(f"max_{d}", "reduce_max", x, (0, 2))
        reduce(f"min_{d}", "reduce_min", x, (0, 1))
        reduce(f"max_empty_{d}", "reduce_max", np.zeros((2, 0), DTYPES[d]), (1,))
        reduce(f"min_empty_{d}", "reduce_min", np.zeros((2, 0), DTYPES[d]), (1,))
        argument(f"argmax_{d}", "argmax", specials(d)[:12].reshape(3, 4), 1, "i32")
        one_op(
            f"cumsum_{d}",
            [x],
            [f"%200 = cumsum %100 axis 1 : {d}[3, 5, 2]", f"%201 = cumsum %100 axis 1 reverse 1 : {d}[3, 5, 2]"],
            [lax.cumsum(jnp.asarray(x), 1), lax.cumsum(jnp.asarray(x), 1, reverse=True)],
        )
        one_op(f"iota_{d}", [], [f"%200 = iota axis 0 : {d}[20]"], [lax.iota(DTYPES[d], 20)])
    every = np.arange(256, dtype=np.uint8)
    one_op(
        "bitcast_f8",
        [every],
        ["%200 = bitcast %100 : f8e4m3fn[256]", "%201 = bitcast %200 : f8e5m2[256]", "%202 = bitcast %201 : i8[256]"],
        [
            lax.bitcast_convert_type(every, DTYPES["f8e4m3fn"]),
            lax.bitcast_convert_type(every, DTYPES["f8e5m2"]),
            every.view(np.int8),
        ],
    )
    nibbles = np.arange(16).astype(DTYPES["u4"])
    one_op(
        "bitcast_i4",
        [nibbles],
        ["%200 = bitcast %100 : i4[16]", "%201 = bitcast %200 : u4[16]"],
        [lax.bitcast_convert_type(jnp.asarray(nibbles), DTYPES["i4"]), nibbles],
    )


def pallas():
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    from jax.experimental.pallas import triton as pltriton

    f32, i32 = jnp.float32, jnp.int32
    rng = np.random.default_rng(4)

    def call(kernel, shapes, *inputs, **kwargs):
        out = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
        return pl.pallas_call(kernel, out_shape=out, interpret=True, **kwargs)(*inputs)

    # Blocks that hang over both edges, and a run-time size.
    x = rng.standard_normal((10, 7)).astype(np.float32)

    def overhang(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + pl.program_id(0).astype(f32)

    block = pl.BlockSpec((4, 4), lambda i, j: (i, j))
    write_case(
        "pallas",
        "overhang",
        """
kernel @overhang
grid (cdiv(m, 4), cdiv(n, 4))
in f32[m, n] block (4, 4) map (%0, %1) { yield %0, %1 }
out f32[m, n] block (4, 4) map (%2, %3) { yield %2, %3 }
body (%4: ref<vmem, f32[4, 4]>, %5: ref<vmem, f32[4, 4]>) {
  %6 = load %4[0:4, 0:4] : f32[4, 4]
  %7 = add %6, %6 : f32[4, 4]
  %8 = program_id axis 0 : i32[]
  %9 = convert %8 : f32[]
  %10 = broadcast %9 dims [] : f32[4, 4]
  %11 = add %7, %10 : f32[4, 4]
  store %5[0:4, 0:4], %11
  yield
}""",
        [x],
        call(overhang, [((10, 7), f32)], x, grid=(3, 2), in_specs=[block], out_specs=[block]),
    )

    # What is beyond the edge is NaN for reads: the row sums of blocks that hang over.
    def edge_sum(x_ref, o_ref):
        o_ref[0, 0] = jnp.sum(x_ref[...])

    write_case(
        "pallas",
        "edge_sum",
        """
kernel @edge_sum
grid (3, 2)
in f32[10, 7] block (4, 4) map (%0, %1) { yield %0, %1 }
out f32[3, 2] block (1, 1) map (%2, %3) { yield %2, %3 }
body (%4: ref<vmem, f32[4, 4]>, %5: ref<vmem, f32[1, 1]>) {
  %6 = load %4[0:4, 0:4] : f32[4, 4]
  %7 = reduce_sum %6 axes [0, 1] : f32[]
  store %5[0, 0], %7
  yield
}""",
        [np.round(x)],
        call(
            edge_sum,
            [((3, 2), f32)],
            np.round(x),
            grid=(3, 2),
            in_specs=[block],
            out_specs=[pl.BlockSpec((1, 1), lambda i, j: (i, j))],
        ),
    )

    # An output block revisited by consecutive programs keeps its contents.
    def revisit(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros((2, 3), i32)

        o_ref[...] += x_ref[...]

    y = rng.integers(-50, 50, (5, 9)).astype(np.int32)
    write_case(
        "pallas",
        "revisit",
        """
kernel @revisit
grid (3, 3)
in i32[5, 9] block (2, 3) map (%0, %1) { yield %0, %1 }
out i32[5, 3] block (2, 3) map (%2, %3) {
  %4 = constant 0 : i32[]
  yield %2, %4
}
body (%5: ref<vmem, i32[2, 3]>, %6: ref<vmem, i32[2, 3]>) {
  %7 = program_id axis 1 : i32[]
  %8 = constant 0 : i32[]
  %9 = eq %7, %8 : bool[]
  if %9 {
    %10 = constant 0 : i32[2, 3]
    store %6[0:2, 0:3], %10
    yield
  } else { yield }
  %11 = load %6[0:2, 0:3] : i32[2, 3]
  %12 = load %5[0:2, 0:3] : i32[2, 3]
  %13 = add %11, %12 : i32[2, 3]
  store %6[0:2, 0:3], %13
  yield
}""",
        [y],
        call(
            revisit,
            [((5, 3), i32)],
            y,
            grid=(3, 3),
            in_specs=[pl.BlockSpec((2, 3), lambda i, j: (i, j))],
            out_specs=[pl.BlockSpec((2, 3), lambda i, j: (i, 0))],
        ),
    )

    # Blocks 0, 1, 0: what the first visit wrote is there on the second.
    def come_back(o_ref):
        i = pl.program_id(0)

        @pl.when(i < 2)
        def _():
            o_ref[...] = jnp.full((2,), i, i32)

        o_ref[...] += 10

    write_case(
        "pallas",
        "come_back",
        """
kernel @come_back
grid (3)
out i32[3] block (2) map (%0) {
  %1 = constant 2 : i32[]
  %2 = rem %0, %1 : i32[]
  yield %2
}
body (%3: ref<vmem, i32[2]>) {
  %4 = program_id axis 0 : i32[]
  %5 = constant 2 : i32[]
  %6 = lt %4, %5 : bool[]
  if %6 {
    %7 = broadcast %4 dims [] : i32[2]
    store %3[0:2], %7
    yield
  } else { yield }
  %8 = load %3[0:2] : i32[2]
  %9 = constant 10 : i32[2]
  %10 = add %8, %9 : i32[2]
  store %3[0:2], %10
  yield
}""",
        [],
        call(come_back, [((3,), i32)], grid=(3,), out_specs=[pl.BlockSpec((2,), lambda i: (i % 2,))]),
    )

    # A K axis of the grid and an accumulator in scratch; whole numbers, so that sums are exact.
    def matmul(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros((4, 5), f32)

        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=f32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(jnp.float16)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in [(8, 9), (9, 10)])
    write_case(
        "pallas",
        "scratch_matmul",
        """
kernel @scratch_matmul
grid (2, 2, 3)
in f16[8, 9] block (4, 3) map (%0, %1, %2) { yield %0, %2 }
in f16[9, 10] block (3, 5) map (%3, %4, %5) { yield %5, %4 }
out f16[8, 10] block (4, 5) map (%6, %7, %8) { yield %6, %7 }
scratch ref<vmem, f32[4, 5]>
body (%10: ref<vmem, f16[4, 3]>, %11: ref<vmem, f16[3, 5]>, %12: ref<vmem, f16[4, 5]>, %13: ref<vmem, f32[4, 5]>) {
  %14 = program_id axis 2 : i32[]
  %15 = constant 0 : i32[]
  %16 = eq %14, %15 : bool[]
  if %16 {
    %17 = constant 0 : f32[4, 5]
    store %13[0:4, 0:5], %17
    yield
  } else { yield }
  %18 = load %13[0:4, 0:5] : f32[4, 5]
  %19 = load %10[0:4, 0:3] : f16[4, 3]
  %20 = load %11[0:3, 0:5] : f16[3, 5]
  %21 = dot %19, %20 lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[4, 5]
  %22 = add %18, %21 : f32[4, 5]
  store %13[0:4, 0:5], %22
  %23 = num_programs axis 2 : i32[]
  %24 = constant 1 : i32[]
  %25 = sub %23, %24 : i32[]
  %26 = eq %14, %25 : bool[]
  if %26 {
    %27 = load %13[0:4, 0:5] : f32[4, 5]
    %28 = convert %27 : f16[4, 5]
    store %12[0:4, 0:5], %28
    yield
  } else { yield }
  yield
}""",
        [a, b],
        call(
            matmul,
            [((8, 10), jnp.float16)],
            a,
            b,
            grid=(2, 2, 3),
            scratch_shapes=[pltpu.VMEM((4, 5), f32)],
            in_specs=[pl.BlockSpec((4, 3), lambda i, j, k: (i, k)), pl.BlockSpec((3, 5), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((4, 5), lambda i, j, k: (i, j))],
        ),
    )

    # A scan over the grid, carried in scratch.
    def scan(x_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            sum_ref[0] = 0

        o_ref[...] = sum_ref[0] + jnp.cumsum(x_ref[...])
        sum_ref[0] += jnp.sum(x_ref[...])

    z = rng.integers(-50, 50, (20,)).astype(np.int32)
    write_case(
        "pallas",
        "scan",
        """
kernel @scan
grid (5)
in i32[20] block (4) map (%0) { yield %0 }
out i32[20] block (4) map (%1) { yield %1 }
scratch ref<smem, i32[1]>
body (%2: ref<vmem, i32[4]>, %3: ref<vmem, i32[4]>, %4: ref<smem, i32[1]>) {
  %5 = program_id axis 0 : i32[]
  %6 = constant 0 : i32[]
  %7 = eq %5, %6 : bool[]
  if %7 {
    store %4[0], %6
    yield
  } else { yield }
  %8 = load %4[0] : i32[]
  %9 = load %2[0:4] : i32[4]
  %10 = cumsum %9 axis 0 : i32[4]
  %11 = broadcast %8 dims [] : i32[4]
  %12 = add %10, %11 : i32[4]
  store %3[0:4], %12
  %13 = reduce_sum %9 axes [0] : i32[]
  %14 = add %8, %13 : i32[]
  store %4[0], %14
  yield
}""",
        [z],
        call(
            scan,
            [((20,), i32)],
            z,
            grid=(5,),
            scratch_shapes=[pltpu.SMEM((1,), i32)],
            in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
            out_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        ),
    )

    # Dynamic starts from -10 to 10 of a ref of 8: they wrap once and are clamped, for reads, writes and integers alike.
    def clamped(x_ref, o_ref, p_ref, q_ref):
        s = pl.program_id(0) - 10
        o_ref[...] = x_ref[pl.ds(s, 4)]
        p_ref[...] = jnp.zeros((8,), i32)
        p_ref[pl.ds(s, 3)] = jnp.arange(1, 4, dtype=i32)
        q_ref[...] = jnp.full((), x_ref[s])

    eight = np.arange(8, dtype=np.int32) * 11
    row = [pl.BlockSpec((None, n), lambda i: (i, 0)) for n in (4, 8)]
    write_case(
        "pallas",
        "clamped_starts",
        """
kernel @clamped_starts
grid (21)
in i32[8] whole
out i32[21, 4] block (squeezed, 4) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
out i32[21, 8] block (squeezed, 8) map (%2) {
  %3 = constant 0 : i32[]
  yield %2, %3
}
out i32[21] block (squeezed) map (%4) { yield %4 }
body (%5: ref<any, i32[8]>, %6: ref<vmem, i32[4]>, %7: ref<vmem, i32[8]>, %8: ref<vmem, i32[]>) {
  %9 = program_id axis 0 : i32[]
  %10 = constant 10 : i32[]
  %11 = sub %9, %10 : i32[]
  %12 = load %5[ds(%11, 4)] : i32[4]
  store %6[0:4], %12
  %13 = constant 0 : i32[8]
  store %7[0:8], %13
  %14 = iota axis 0 : i32[3]
  %15 = constant 1 : i32[3]
  %16 = add %14, %15 : i32[3]
  store %7[ds(%11, 3)], %16
  %17 = load %5[%11] : i32[]
  store %8[], %17
  yield
}""",
        [eight],
        call(
            clamped,
            [((21, 4), i32), ((21, 8), i32), ((21,), i32)],
            eight,
            grid=(21,),
            out_specs=[*row, pl.BlockSpec((None,), lambda i: (i,))],
        ),
    )

    # Strided slices inside the ref (JAX wraps and clamps each element of a strided slice outside it; Tessera clamps the
    # window).
    def strided(x_ref, o_ref, p_ref):
        s = pl.program_id(0)
        o_ref[...] = x_ref[pl.ds(s, 2, stride=3)]
        p_ref[...] = jnp.zeros((8,), i32)
        p_ref[pl.ds(s, 2, stride=3)] = jnp.full((2,), 7, i32)

    write_case(
        "pallas",
        "strided",
        """
kernel @strided
grid (5)
in i32[8] whole
out i32[5, 2] block (squeezed, 2) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
out i32[5, 8] block (squeezed, 8) map (%2) {
  %3 = constant 0 : i32[]
  yield %2, %3
}
body (%4: ref<any, i32[8]>, %5: ref<vmem, i32[2]>, %6: ref<vmem, i32[8]>) {
  %7 = program_id axis 0 : i32[]
  %8 = load %4[ds(%7, 2, 3)] : i32[2]
  store %5[0:2], %8
  %9 = constant 0 : i32[8]
  store %6[0:8], %9
  %10 = constant 7 : i32[2]
  store %6[ds(%7, 2, 3)], %10
  yield
}""",
        [eight],
        call(
            strided,
            [((5, 2), i32), ((5, 8), i32)],
            eight,
            grid=(5,),
            out_specs=[pl.BlockSpec((None, 2), lambda i: (i, 0)), row[1]],
        ),
    )

    # A vector of any length in masked pieces: lanes beyond it are masked out, and nothing shifts.
    def masked(x_ref, o_ref):
        at = pl.program_id(0) * 4
        mask = at + jnp.arange(4, dtype=i32) < 6
        piece = pltriton.load(x_ref.at[pl.ds(at, 4)], mask=mask, other=np.float32(3))
        pltriton.store(o_ref.at[pl.ds(at, 4)], piece * piece, mask=mask)

    w = rng.standard_normal((6,)).astype(np.float32)
    write_case(
        "pallas",
        "masked",
        """
kernel @masked
grid (2)
in f32[6] whole
out f32[6] whole
body (%0: ref<any, f32[6]>, %1: ref<any, f32[6]>) {
  %2 = program_id axis 0 : i32[]
  %3 = constant 4 : i32[]
  %4 = mul %2, %3 : i32[]
  %5 = broadcast %4 dims [] : i32[4]
  %6 = iota axis 0 : i32[4]
  %7 = add %5, %6 : i32[4]
  %8 = constant 6 : i32[4]
  %9 = lt %7, %8 : bool[4]
  %10 = constant 3 : f32[4]
  %11 = load %0[ds(%4, 4)] mask %9 other %10 : f32[4]
  %12 = mul %11, %11 : f32[4]
  store %1[ds(%4, 4)], %12 mask %9
  yield
}""",
        [w],
        call(masked, [((6,), f32)], w, grid=(2,)),
    )

    # Index maps beyond the last block are clamped to it; squeezed dims select one element; blocks nobody writes stay
    # uninitialised.
    def clamp_map(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    six = np.arange(6, dtype=np.int32).reshape(2, 3)
    write_case(
        "pallas",
        "clamped_map",
        """
kernel @clamped_map
grid (5)
in i32[2, 3] block (squeezed, 2) map (%0) { yield %0, %0 }
out i32[6, 2] block (squeezed, 2) map (%1) {
  %2 = constant 0 : i32[]
  yield %1, %2
}
body (%3: ref<vmem, i32[2]>, %4: ref<vmem, i32[2]>) {
  %5 = load %3[0:2] : i32[2]
  store %4[0:2], %5
  yield
}""",
        [six],
        call(
            clamp_map,
            [((6, 2), i32)],
            six,
            grid=(5,),
            in_specs=[pl.BlockSpec((None, 2), lambda i: (i, i))],
            out_specs=[pl.BlockSpec((None, 2), lambda i: (i, 0))],
        ),
    )

    # Loops with carries (one pair trades places), a while loop, conditionals and a clamped switch index.
    def control(n_ref, o_ref):
        n = n_ref[pl.program_id(0)]
        u, v = lax.fori_loop(0, n, lambda i, c: (c[1], c[0] + i), (i32(1), i32(2)))
        o_ref[0] = u
        o_ref[1] = v
        steps, _ = lax.while_loop(
            lambda c: c[1] > 1, lambda c: (c[0] + 1, jnp.where(c[1] % 2 == 0, c[1] // 2, 3 * c[1] + 1)), (i32(0), n)
        )
        o_ref[2] = steps
        o_ref[3] = lax.switch(
            n - 2,
            [lambda: i32(10), lambda: n * 2, lambda: u],
        )

    counts = np.array([0, 1, 2, 3, 7, 27, -5], np.int32)
    write_case(
        "pallas",
        "control",
        """
kernel @control
grid (7)
in i32[7] whole
out i32[7, 4] block (squeezed, 4) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
body (%2: ref<any, i32[7]>, %3: ref<vmem, i32[4]>) {
  %4 = program_id axis 0 : i32[]
  %5 = load %2[%4] : i32[]
  %6 = constant 0 : i32[]
  %7 = constant 1 : i32[]
  %8 = constant 2 : i32[]
  %9, %10 = for %11 = %6 to %5 step %7 carry (%12 = %7: i32[], %13 = %8: i32[]) {
    %14 = add %12, %11 : i32[]
    yield %13, %14
  }
  store %3[0], %9
  store %3[1], %10
  %15, %16 = while (%17 = %6: i32[], %18 = %5: i32[]) {
    %19 = gt %18, %7 : bool[]
    yield %19
  } do (%20: i32[], %21: i32[]) {
    %22 = add %20, %7 : i32[]
    %23 = rem %21, %8 : i32[]
    %24 = eq %23, %6 : bool[]
    %25 = if %24 {
      %26 = div %21, %8 : i32[]
      yield %26
    } else {
      %27 = constant 3 : i32[]
      %28 = mul %21, %27 : i32[]
      %29 = add %28, %7 : i32[]
      yield %29
    }
    yield %22, %25
  }
  store %3[2], %15
  %30 = sub %5, %8 : i32[]
  %31 = switch %30 case 0 {
    %32 = constant 10 : i32[]
    yield %32
  } case 1 {
    %33 = mul %5, %8 : i32[]
    yield %33
  } case 2 { yield %9 }
  store %3[3], %31
  yield
}""",
        [counts],
        call(control, [((7, 4), i32)], counts, grid=(7,), out_specs=[pl.BlockSpec((None, 4), lambda i: (i, 0))]),
    )

    # A kernel that stores to an input: later programs see it, the caller's array does not.
    def count_in_input(x_ref, o_ref):
        o_ref[pl.program_id(0)] = x_ref[0]
        x_ref[0] = x_ref[0] + 1

    five = np.array([5], np.int32)
    write_case(
        "pallas",
        "stored_input",
        """
kernel @stored_input
grid (4)
in i32[1] whole
out i32[4] whole
body (%0: ref<any, i32[1]>, %1: ref<any, i32[4]>) {
  %2 = program_id axis 0 : i32[]
  %3 = load %0[0] : i32[]
  store %1[%2], %3
  %4 = constant 1 : i32[]
  %5 = add %3, %4 : i32[]
  store %0[0], %5
  yield
}""",
        [five],
        call(count_in_input, [((4,), i32)], five, grid=(4,)),
    )


if __name__ == "__main__":  # the parts to write may be named
    for part in sys.argv[1:] or ["elementwise", "narrow", "front", "structured", "pallas"]:
        {"elementwise": elementwise, "narrow": narrow, "front": front, "structured": structured, "pallas": pallas}[
            part
        ]()
