"""Writes the stored answers in this folder by asking JAX on the CPU (made with JAX 0.10.2). Run by hand, in an
environment with jax, ml_dtypes and mpmath; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_answers.py

elementwise/   every elementwise op on special values. ops.txt lists "KIND DTYPE op op ...": KIND_DTYPE.npy has one row
               per op, and KIND_operands_DTYPE.npy the operands, one row each. convert_DTYPE.npy holds the bytes of the
               conversions to every dtype, in order of the dtypes. What JAX does not define (abs of unsigned integers)
               is not listed. Transcendental ops have "exact" rows too: the answers in f64, by mpmath in 60 digits,
               because JAX's own are up to hundreds of units in the last place off (its cosh is e^(x - ln 2)); NaN where
               an operand is not finite or the answer is zero or infinite.
narrow/        f32.npy, and the conversions to the 8-bit floats of its numbers (f32_to_DTYPE.npy) and of every f16
               (f16_to_DTYPE.npy).
front/         NAME.inI.npy and NAME.outI.npy: functions of the C++ front end that no op stands for, with jax.lax's or
               jax.numpy's answer.
structured/    NAME.tir with NAME.inI.npy and NAME.outI.npy: one op each on odd shapes, the answer from jax.lax or
               jax.numpy.
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

# fmt: off
DTYPES = {
    "bool": np.bool_, "i4": ml_dtypes.int4, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u4": ml_dtypes.uint4, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f32": np.float32, "f64": np.float64,
}
# fmt: on
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
        # fmt: off
        w = [
            0, 1, i.max, i.min, 2, 3, 7, i.bits, i.bits - 1, 5, i.max // 2 + 1, 100, i.max - 1, i.min + 1, 127, 128,
            255, 256, 32767, 32768, 65535, 65536, 65520, 2**24 + 1, 2**31 - 1, 2**31, 2**32 + 5, 2**53 + 1,
            2**62 + 2**54 + 1,
        ]
        # fmt: on
        if i.min < 0:
            w = [-1, -i.bits, -7, *w, -100, -129, -32769, -(2**31) - 1, -(2**40)]
        return np.array([v for v in dict.fromkeys(w) if i.min <= v <= i.max], dtype=t)
    f = ml_dtypes.finfo(t)
    # fmt: off
    w = [
        0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, float(f.max), float(f.smallest_subnormal), -2.5, 0.5, 3.0, 1 / 3,
        float(f.smallest_normal), -float(f.smallest_normal), -float(f.max), -0.5, 1.5, 2.5, -3.7, 0.1, 10.0, -10.0,
        3.1415926, -20.0, 20.0, 80.0, -80.0, 0.999, 1e-3, -1e-3, 1e-5, 255.5, 128.0, -128.5, -129.0, 2147483648.0,
        9.3e18, 1.9e19, -9.3e18, 8388607.5, 0.49999997, 1e6, 1e22, 3e38, -1e6, 65504.0, 65519.0,
        1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1e-40, -1e-41, -0.75, 0.25, 0.70710678, -0.9999, 0.99999994,
        1 - 2.0**-53, 1.0000001, -1.5, 5.0, 1.57079637, -4.71238899, 1e-10, 88.8, 89.4, -104.5, 710.2, -745.5, 2.0**60,
    ]
    # fmt: on
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


# fmt: off
UNARY_FLOAT = {
    "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "floor": lax.floor, "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "sqrt": lax.sqrt, "rsqrt": lax.rsqrt,
    "exp": lax.exp, "exp2": lax.exp2, "log": lax.log, "log2": lambda x: jnp.log2(x), "tanh": lax.tanh, "sin": lax.sin,
    "cos": lax.cos, "erf": lax.erf, "logistic": lax.logistic, "expm1": lax.expm1, "log1p": lax.log1p, "cbrt": lax.cbrt,
    "tan": lax.tan, "asin": lax.asin, "acos": lax.acos, "atan": lax.atan, "sinh": lax.sinh, "cosh": lax.cosh,
    "asinh": lax.asinh, "acosh": lax.acosh, "atanh": lax.atanh, "erf_inv": lax.erf_inv,
}
# fmt: on
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


# fmt: off
EXACT = {
    "exp": mp.exp, "exp2": lambda x: mp.mpf(2) ** x, "log": mp.log, "log2": lambda x: mp.log(x) / mp.log(2),
    "tanh": mp.tanh, "sin": mp.sin, "cos": mp.cos, "erf": mp.erf, "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "expm1": mp.expm1, "log1p": mp.log1p, "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)), "tan": mp.tan,
    "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "asinh": mp.asinh,
    "acosh": mp.acosh, "atanh": mp.atanh, "erf_inv": mp.erfinv, "pow": mp.power, "atan2": mp.atan2,
}
# fmt: on


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


if __name__ == "__main__":  # the parts to write may be named
    PARTS = {"elementwise": elementwise, "narrow": narrow, "front": front, "structured": structured}
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
