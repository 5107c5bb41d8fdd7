"""The values of random_program.py: what is known of each, and the ops that make them."""

import dataclasses
import random

import numpy as np

MANTISSA = {"float32": 24, "float16": 11, "bfloat16": 8}
INTS = ["int32", "int8", "uint8", "int16", "uint16", "uint32"]
LIMIT = 400.0  # values of floats stay below it: f16's products fit
# dtypes of Refs, and what is computed with instead
NARROW = {"int4": "int32", "uint4": "int32", "float8_e4m3fn": "float32", "float8_e5m2": "float32"}


def is_float(t):
    return t in MANTISSA


def int_range(t):
    n = np.iinfo(t)
    return int(n.min), int(n.max)


@dataclasses.dataclass
class V:
    """A value of the kernel: a multiple of `q` of at most `m` in size, within `err` of what another right evaluation
    gives."""

    name: str
    shape: tuple
    dtype: str
    m: float = 1.0
    q: float = 1.0
    err: float = 0.0

    @property
    def exact(self):
        return self.err == 0


@dataclasses.dataclass
class R:
    """A Ref of the kernel; m, q and err are of what lies in it, as a V's."""

    name: str
    shape: tuple
    dtype: str
    writable: bool
    m: float = 0.0
    q: float = 1.0
    err: float = 0.0
    filled: bool = False
    # JAX's interpreter keeps what programs store beyond an array's edge, which else is unspecified
    readable: bool = True
    holds: str = ""  # the dtype of its elements, where kernels compute in a wider one

    def loaded(self, text):
        return f"({text}).astype(jnp.{self.dtype})" if self.holds else text

    def stored(self, v):
        return f"{v.name}.astype(jnp.{self.holds})" if self.holds else v.name


def shape_text(s):
    return "(" + "".join(f"{d}, " for d in s) + ")"


class Values:
    """Text of values: constants, casts, and ops on what is there."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines, self.indent, self.count = [], 2, 0
        self.values, self.scalars, self.refs = [], [], []
        self.budget = self.r.randint(4, 22)
        self.depth = 0
        self.loops = 0
        self.padded = self.aliased = False  # JAX's interpreter has not both

    # -- text
    def emit(self, line):
        self.lines.append("    " * self.indent + line)

    def name(self, prefix="v"):
        self.count += 1
        return f"{prefix}{self.count}"

    def chance(self, p):
        return self.r.random() < p

    def add(self, text, shape, dtype, m=1.0, q=1.0, err=0.0, keep=True):
        """A new value; what a float's dtype cannot hold exactly is rounded, which JAX does once and others may do
        elsewhere."""
        v = V(self.name(), tuple(shape), dtype, m, q, err)
        if is_float(dtype) and (err or m / q > 2 ** MANTISSA[dtype]):
            v.err = err + m * 2.0 ** (2 - MANTISSA[dtype])
        if not is_float(dtype):
            lo, hi = (0, 1) if dtype == "bool" else int_range(dtype)
            if m > min(hi, -lo if lo else hi):
                v.m = float(max(hi, -lo))
            v.q, v.err = 1.0, 0.0
        self.emit(f"{v.name} = {text}")
        if is_float(dtype) and v.m > LIMIT:
            c = V(self.name(), v.shape, dtype, LIMIT, v.q, v.err)
            self.emit(f"{c.name} = jnp.clip({v.name}, -{LIMIT}, {LIMIT})")
            if LIMIT % v.q:
                c.q = min(v.q, 1.0)
            v = c
        if keep:
            self.values.append(v)
        return v

    # -- choices
    def shape(self, rank=None):
        rank = self.r.choice([0, 1, 1, 2, 2, 2, 3]) if rank is None else rank
        return tuple(
            self.r.choice([1, 2, 3, 4, 5, 7, 8, 9, 13, 16]) if rank < 3 else self.r.choice([1, 2, 3, 4, 5])
            for _ in range(rank)
        )

    def dtype(self):
        return self.r.choice(
            ["float32"] * 6
            + ["int32"] * 4
            + ["bfloat16"] * 2
            + ["float16"] * 2
            + ["bool", "int8", "uint8", "int16", "uint16", "uint32"]
        )

    def any(self, test=lambda v: True):
        found = [v for v in self.values if test(v)]
        return self.r.choice(found[-8:] if self.chance(0.6) else found) if found else None

    def scalar(self):
        """Text of an i32 scalar, small mostly, of any sign."""
        r = self.r.random()
        s = self.r.choice(self.scalars)
        if r < 0.5:
            return s
        if r < 0.75:
            return f"{s} * {self.r.choice([-1, 2, 3, 4, 5])}"
        if r < 0.93:
            return f"{s} + {self.r.choice(self.scalars)} - {self.r.randint(0, 5)}"
        return f"({s} + (2**31 - 6))" if self.chance(0.5) else f"({s} - (2**31 - 1))"

    def constant(self, shape, dtype):
        if dtype == "bool":
            return self.add(f"jnp.full({shape_text(shape)}, {self.chance(0.5)})", shape, "bool", keep=False)
        low = 0 if dtype.startswith("u") else -4
        c = self.r.randint(low, 5)
        return self.add(f"jnp.full({shape_text(shape)}, {c}, jnp.{dtype})", shape, dtype, max(abs(c), 1), keep=False)

    def iota(self, shape, dtype):
        if not shape:
            return self.constant(shape, dtype)
        axis = self.r.randrange(len(shape))
        t = "int32" if dtype == "bool" else dtype
        v = self.add(
            f"lax.broadcasted_iota(jnp.{t}, {shape_text(shape)}, {axis})", shape, t, max(shape[axis] - 1, 1), keep=False
        )
        return self.cast(v, dtype)

    def cast(self, v, dtype):
        if v.dtype == dtype:
            return v
        if dtype == "bool":
            if not v.exact:
                return self.constant(v.shape, "bool")
            return self.add(
                f"{v.name} > {self.r.choice([-1, 0, 1, 2]) if not v.dtype.startswith('u') else 1}", v.shape, "bool"
            )
        if is_float(dtype):
            if v.dtype not in MANTISSA and v.dtype != "bool" and v.m > 64:
                v = self.add(
                    f"lax.rem({v.name}, jnp.full({shape_text(v.shape)}, 17, jnp.{v.dtype}))", v.shape, v.dtype, 16
                )
            return self.add(f"{v.name}.astype(jnp.{dtype})", v.shape, dtype, v.m, v.q, v.err)
        if is_float(v.dtype):
            if not v.exact:
                return self.iota(v.shape, dtype)
            if dtype.startswith("u") or v.m > int_range(dtype)[1]:
                v = self.add(
                    f"jnp.clip({v.name}, {0 if dtype.startswith('u') else -100}, 100)",
                    v.shape,
                    v.dtype,
                    min(v.m, 100),
                    min(v.q, 1),
                )
            return self.add(f"{v.name}.astype(jnp.{dtype})", v.shape, dtype, max(v.m, 1))
        return self.add(
            f"{v.name}.astype(jnp.{dtype})",
            v.shape,
            dtype,
            v.m if v.dtype == "bool" or not dtype.startswith("u") else 1e30,
        )

    def fit(self, v, shape, dtype=None):
        """v as a value of this shape (and dtype)."""
        if dtype is not None:
            v = self.cast(v, dtype)
        if v.shape == shape:
            return v
        if len(v.shape) == len(shape) and all(a >= b for a, b in zip(v.shape, shape)) and self.chance(0.8):
            starts = [self.r.randint(0, a - b) for a, b in zip(v.shape, shape)]
            index = ", ".join(f"{s}:{s + n}" for s, n in zip(starts, shape))
            return self.add(f"{v.name}[{index}]", shape, v.dtype, v.m, v.q, v.err)
        if len(v.shape) <= len(shape) and all(a in (1, b) for a, b in zip(v.shape[::-1], shape[::-1])):
            return self.add(f"jnp.broadcast_to({v.name}, {shape_text(shape)})", shape, v.dtype, v.m, v.q, v.err)
        if np.prod(v.shape) == np.prod(shape):
            return self.add(f"{v.name}.reshape({shape_text(shape)})", shape, v.dtype, v.m, v.q, v.err)
        if 0 in v.shape:
            return self.constant(shape, v.dtype)
        one = self.add(f"jnp.{'any' if v.dtype == 'bool' else 'max'}({v.name})", (), v.dtype, v.m, v.q, v.err)
        return self.add(f"jnp.broadcast_to({one.name}, {shape_text(shape)})", shape, v.dtype, v.m, v.q, v.err)

    def some(self, shape=None, dtype=None):
        """A value of this shape and dtype, from what there is."""
        v = (
            self.any(lambda v: (shape is None or v.shape == shape) and (dtype is None or v.dtype == dtype))
            if self.chance(0.8)
            else None
        )
        v = v or self.any() if self.chance(0.9) else None
        if v is None:
            return (self.iota if self.chance(0.5) else self.constant)(
                shape if shape is not None else self.shape(), dtype or self.dtype()
            )
        return self.fit(v, v.shape if shape is None else shape, dtype)

    # -- ops
    def unary(self):
        v = self.some()
        n, s, t = v.name, v.shape, v.dtype
        if t == "bool":
            return self.add(f"~{n}", s, t)
        if not is_float(t):  # XLA's constant folder has clz of negative numbers below 0
            op = self.r.choice(
                [
                    "-{}",
                    "jnp.abs({})",
                    "~{}",
                    "{} * {}",
                    "lax.population_count({})",
                    "lax.clz({} & jnp.full_like({}, 63))",
                    "jnp.sign({})",
                    "{} << 3",
                    "{} >> 2",
                    "lax.rem({}, jnp.full_like({}, 7))",
                ]
            )
            return self.add(op.replace("{}", n), s, t, 1e30 if op != "lax.rem({}, jnp.full_like({}, 7))" else 6)
        tiny = 2.0 ** (5 - MANTISSA[t])
        if self.chance(0.5):
            op, m, q = self.r.choice(
                [
                    ("-{}", v.m, v.q),
                    ("jnp.abs({})", v.m, v.q),
                    ("{} * 0.5", v.m / 2, v.q / 2),
                    ("{} * 2", v.m * 2, v.q * 2),
                ]
            )
            return self.add(op.format(n), s, t, m, q, v.err)
        if v.exact and self.chance(0.4):
            op = self.r.choice(
                ["jnp.floor({})", "jnp.ceil({})", "jnp.sign({})", "lax.round({}, lax.RoundingMethod.TO_NEAREST_EVEN)"]
            )
            return self.add(op.format(n), s, t, v.m + 1, 1.0)
        op, m = self.r.choice(
            [
                ("jnp.sin({})", 1),
                ("jnp.cos({})", 1),
                ("jnp.tanh({})", 1),
                ("jax.nn.sigmoid({})", 1),
                ("jnp.exp(-jnp.abs({}))", 1),
                ("jnp.log1p(jnp.abs({}))", 7),
                ("1 / (1 + jnp.abs({}))", 1),
                ("jnp.sqrt(1 + jnp.abs({}))", 21),
            ]
        )
        inner = v.m * 2.0 ** (1 - MANTISSA[t]) if op.startswith(("1 /", "jnp.sqrt")) else 0  # 1 + |x| is rounded
        return self.add(op.format(n), s, t, m, 2.0**-30, v.err + inner + m * tiny)

    def binary(self):
        a = self.some()
        b = self.some(a.shape, a.dtype)
        s, t = a.shape, a.dtype
        if t == "bool":
            return self.add(f"{a.name} {self.r.choice('&|^')} {b.name}", s, t)
        if self.chance(0.25) and a.exact and b.exact:
            return self.add(f"{a.name} {self.r.choice(['<', '<=', '==', '!=', '>', '>='])} {b.name}", s, "bool")
        if self.chance(0.3):
            return self.add(
                f"jnp.{self.r.choice(['minimum', 'maximum'])}({a.name}, {b.name})",
                s,
                t,
                max(a.m, b.m),
                min(a.q, b.q),
                max(a.err, b.err),
            )
        if not is_float(t):
            op = self.r.choice(["+", "-", "*", "+", "&", "|", "^", "div", "rem"])
            if op in ("div", "rem"):
                return self.add(f"lax.{op}({a.name}, {b.name})", s, t, max(a.m, b.m, 1) if op == "div" else a.m)
            return self.add(
                f"{a.name} {op} {b.name}", s, t, a.m + b.m if op in "+-" else a.m * b.m if op == "*" else 1e30
            )
        if self.chance(0.35):
            a, b = self.small(a), self.small(b)
            return self.add(
                f"{a.name} * {b.name}", s, t, a.m * b.m, a.q * b.q, a.err * b.m + b.err * a.m + a.err * b.err
            )
        return self.add(f"{a.name} {self.r.choice('+-')} {b.name}", s, t, a.m + b.m, min(a.q, b.q), a.err + b.err)

    def small(self, v, limit=16.0):
        """Of a size whose products stay exact for a while."""
        if v.m <= limit:
            return v
        return self.add(f"jnp.clip({v.name}, -{limit}, {limit})", v.shape, v.dtype, limit, min(v.q, limit), v.err)

    def where(self):
        a = self.some()
        b = self.some(a.shape, a.dtype)
        c = self.some(a.shape, "bool")
        return self.add(
            f"jnp.where({c.name}, {a.name}, {b.name})",
            a.shape,
            a.dtype,
            max(a.m, b.m),
            min(a.q, b.q),
            max(a.err, b.err),
        )

    def reduce(self):
        v = self.some()
        if not v.shape or 0 in v.shape:
            return self.unary()
        axes = sorted(self.r.sample(range(len(v.shape)), self.r.randint(1, len(v.shape))))
        keep = self.chance(0.3)
        s = tuple(1 if i in axes else d for i, d in enumerate(v.shape) if keep or i not in axes)
        tail = f"axis={tuple(axes)}, keepdims={keep}"
        n = int(np.prod([v.shape[i] for i in axes]))
        if v.dtype == "bool":
            return self.add(f"jnp.{self.r.choice(['any', 'all'])}({v.name}, {tail})", s, "bool")
        if self.chance(0.5):
            return self.add(f"jnp.{self.r.choice(['min', 'max'])}({v.name}, {tail})", s, v.dtype, v.m, v.q, v.err)
        if v.exact and self.chance(0.2):
            axis = axes[0]
            s = tuple(d for i, d in enumerate(v.shape) if i != axis)
            return self.add(
                f"jnp.{self.r.choice(['argmax', 'argmin'])}({v.name}, axis={axis}).astype(jnp.int32)",
                s,
                "int32",
                max(v.shape[axis] - 1, 1),
            )
        if is_float(v.dtype):
            v = self.small(v, 8.0)
            return self.add(f"jnp.sum({v.name}, {tail})", s, v.dtype, v.m * n, v.q, self.sum_error(v, n))
        return self.add(f"jnp.sum({v.name}, {tail}, dtype=jnp.{v.dtype})", s, v.dtype, v.m * n)

    def sum_error(self, v, n):
        return n * v.err + (
            0 if v.exact and v.m * n / v.q <= 2 ** MANTISSA[v.dtype] else n * v.m * n * 2.0 ** (1 - MANTISSA[v.dtype])
        )

    def dot(self):
        m, k, n = (self.r.choice([1, 2, 3, 4, 7, 8, 16]) for _ in range(3))
        t = self.r.choice(["float32", "float32", "bfloat16", "float16"])
        a, b = self.small(self.some((m, k), t), 8.0), self.small(self.some((k, n), t), 8.0)
        err = k * (a.err * b.m + b.err * a.m + a.err * b.err)
        exact = a.exact and b.exact and a.m * b.m * k / (a.q * b.q) <= 2**24
        return self.add(
            f"jnp.dot({a.name}, {b.name}, preferred_element_type=jnp.float32)",
            (m, n),
            "float32",
            a.m * b.m * k,
            a.q * b.q,
            err if exact else err + k * k * a.m * b.m * 2.0**-22,
        )

    def rearrange(self):
        v = self.some()
        n, s = v.name, v.shape
        if not s:
            return self.unary()
        axis = self.r.randrange(len(s))
        kind = self.r.choice(
            [
                "transpose",
                "reshape",
                "concatenate",
                "roll",
                "flip",
                "repeat",
                "slice",
                "stack",
                "cumsum",
                "strided",
                "gather",
            ]
        )
        more = (v.dtype, v.m, v.q, v.err)
        if kind == "transpose":
            p = list(range(len(s)))
            self.r.shuffle(p)
            return self.add(f"jnp.transpose({n}, {shape_text(p)})", [s[i] for i in p], *more)
        if kind == "reshape":
            to = self.r.choice([(int(np.prod(s)),), s + (1,), (1,) + s])
            return self.add(f"{n}.reshape({shape_text(to)})", to, *more)
        if kind == "concatenate":
            w = self.some(s, v.dtype)
            to = s[:axis] + (2 * s[axis],) + s[axis + 1 :]
            return self.add(
                f"jnp.concatenate([{n}, {w.name}], {axis})",
                to,
                v.dtype,
                max(v.m, w.m),
                min(v.q, w.q),
                max(v.err, w.err),
            )
        if kind == "stack":
            w = self.some(s, v.dtype)
            return (
                self.add(
                    f"jnp.stack([{n}, {w.name}])", (2, *s), v.dtype, max(v.m, w.m), min(v.q, w.q), max(v.err, w.err)
                )
                if len(s) < 3
                else v
            )
        if kind == "roll":
            return self.add(f"jnp.roll({n}, {self.r.randint(0, s[axis])}, {axis})", s, *more)
        if kind == "flip":
            return self.add(f"jnp.flip({n}, {axis})", s, *more)
        if kind == "repeat":
            to = s[:axis] + (1,) + s[axis:]
            return self.add(f"jnp.expand_dims({n}, {axis})", to, *more) if len(s) < 3 else v
        if kind == "strided" and s[axis] > 1:
            index = ", ".join(":" if i != axis else "::2" for i in range(len(s)))
            return self.add(f"{n}[{index}]", s[:axis] + ((s[axis] + 1) // 2,) + s[axis + 1 :], *more)
        if kind == "cumsum" and v.dtype not in ("bool",):
            if not is_float(v.dtype):
                return self.add(f"lax.cumsum({n}, {axis})", s, v.dtype, 1e30)
            v = self.small(v, 8.0)
            return self.add(f"lax.cumsum({v.name}, {axis})", s, v.dtype, v.m * s[axis], v.q, self.sum_error(v, s[axis]))
        if kind == "gather" and len(s) == 1:
            i = self.some((self.r.choice([2, 3, 5]),), "int32")
            return self.add(f"jnp.take({n}, {i.name}, mode='clip')", i.shape, *more)
        start = self.r.randrange(s[axis])
        stop = self.r.randint(start + 1, s[axis])
        index = ", ".join(":" if i != axis else f"{start}:{stop}" for i in range(len(s)))
        return self.add(f"{n}[{index}]", s[:axis] + (stop - start,) + s[axis + 1 :], *more)
