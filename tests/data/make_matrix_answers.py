"""Writes matrix/DTYPE.txt, the answers of JAX on the CPU (0.10.2) for every function that makes values from values, on
every dtype that JAX takes and on shapes that go wrong. tests/support/matrix.h has the same functions of the C++ front
end by name, and says what the operands are. Run by hand, as make_answers.py; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_matrix_answers.py [DTYPE SHAPE FUNCTION]

With arguments (f32 3,5,33 cumsum0) it prints the operands and the results of one line. A file begins with the elements
of which operands are made:

    special BITS ...      no subnormal numbers: JAX's CPU backend takes them for zeros where it computes (those of f8
                          excepted)
    subnormal BITS ...    the same and subnormal numbers, for what only moves elements

and goes on with lines SHAPE FUNCTION RESULT ...: a result of up to eight elements is their bits, a longer one #DIGEST
(digest() below).
"""

import sys

import make_answers  # sets JAX up
from make_answers import DTYPES, FLOATS, HERE, INTS

import os

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax._src.pallas.einshape import _einshape

SHAPES = [(), (1,), (7,), (8, 128), (3, 5, 33), (1000,)]
INDICES = np.array([-9, -1, 0, 2, 6, 2**31 - 1], np.int32)
SIGNED = [d for d in INTS if d[0] == "i"]
BITS = {
    d: 1 if d == "bool" else ml_dtypes.iinfo(t).bits if d in INTS else ml_dtypes.finfo(t).bits
    for d, t in DTYPES.items()
}
NAME = {np.dtype(t): d for d, t in DTYPES.items()}


def words(array):
    """The bits of the elements as u64; of every NaN, all ones."""
    a = np.asarray(array)
    d = NAME[a.dtype]
    if d in ("i4", "u4"):
        return a.astype(np.int8).view(np.uint8).ravel().astype(np.uint64) & np.uint64(15)
    w = np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").ravel().astype(np.uint64)
    return np.where(np.isnan(a.astype(np.float64)).ravel(), np.uint64(2**64 - 1), w) if d in FLOATS else w


def digest(w):
    i = np.arange(len(w), dtype=np.uint64)
    mixed = (w ^ (w >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return int((mixed * (np.uint64(2) * i + np.uint64(1)) + i).sum(dtype=np.uint64))


def of_words(d, w):
    t = np.dtype(DTYPES[d])
    if d in ("i4", "u4"):
        v = w.astype(np.int64)
        return np.where((v > 7) & (d == "i4"), v - 16, v).astype(np.int8 if d == "i4" else np.uint8).astype(t)
    return w.astype(f"u{t.itemsize}").view(t)


def special(d):
    t = DTYPES[d]
    if d == "bool":
        return words(np.array([True, False, False])), words(np.array([True, False, False]))
    if d in INTS:
        i = ml_dtypes.iinfo(t)
        v = np.array([int(n) & (2 ** BITS[d] - 1) for n in [0, 1, -1, i.min, i.max, 5, -7, 64, 100]], np.uint64)
        return v, v
    f = ml_dtypes.finfo(t)
    most = np.inf if d != "f8e4m3fn" else 448.0
    v = words(
        np.array(
            [
                1,
                -1,
                0,
                -0.0,
                2.5,
                most,
                -7,
                -most,
                240.0 if d == "f8e4m3fn" else 1000.0,
                0.125,
                -3,
                3,
                float(f.max),
                float(f.smallest_normal),
            ],
            np.float64,
        ).astype(t)
    )
    least = words(np.array([float(f.smallest_subnormal), -float(f.smallest_subnormal)]).astype(t))
    both = np.concatenate([v, least])
    # XLA may move bf16 as f32, flushing them
    return both if d in make_answers.FLOAT8 else v, v if d == "bf16" else both


def operands(d, shape):
    n = int(np.prod(shape))
    i = np.arange(n)
    usual, every = special(d)
    quiet = np.array([np.nan]).astype(DTYPES[d]) if d in FLOATS else None

    def specials(of, first):
        k = i + first
        w = of[k * 5 % len(of)]
        if d in FLOATS:
            w = np.where(k % 101 == 50, quiet.view(f"u{quiet.itemsize}")[0].astype(np.uint64), w)
        return of_words(d, w).reshape(shape)

    signed = d in FLOATS or d in SIGNED
    small = i * 7 % 5 - 2 if signed else i * 7 % 5 % 2
    factor = np.where(i % 97 == 13, 2, np.where((i % 7 == 3) & signed, -1, 1))
    index = np.where(i % 17 == 5, 2**31 - 1, np.where(i % 17 == 11, -(2**31), i * 13 % 29 - 9))
    as_d = lambda v: (v != 0 if d == "bool" else v.astype(np.int8).astype(DTYPES[d])).reshape(shape)
    return {
        "x": specials(usual, 0),
        "y": specials(usual, 11),
        "z": specials(every, 3),
        "n": as_d(small),
        "p": as_d(factor),
        "i": index.astype(np.int32).reshape(shape),
        "j": INDICES,
    }


class Case:
    def __init__(self, d, shape, o):
        self.d, self.t, self.s, self.rank, self.size = d, DTYPES[d], shape, len(shape), int(np.prod(shape))
        for name, value in o.items():
            setattr(self, name, jnp.asarray(value))
        self.w = self.i > 3
        self.functions = {}
        self.moves()
        self.moves_by_indices()
        self.comparisons()
        self.arithmetic()
        self.bits()
        self.random()

    def add(self, name, f):
        self.functions[name] = f

    def moves(self):
        x, y, z, s = self.x, self.y, self.z, self.s
        self.add("broadcast", lambda: [jnp.broadcast_to(z, (2, *s))])
        self.add("reshape", lambda: [z.reshape(self.size, 1)])
        self.add("transpose", lambda: [z.T])
        self.add("slice", lambda: [z[tuple(slice(n // 3, n, 2 if n > 4 else 1) for n in s)]])
        self.add("rev", lambda: [lax.rev(z, range(self.rank))])
        self.add("stack", lambda: [jnp.stack([z, y], -1)])
        self.add("tile", lambda: [jnp.tile(z, 2)])
        self.add("where", lambda: [jnp.where(self.w, z, y)])
        self.add("select_n", lambda: [lax.select_n(lax.clamp(np.int32(0), self.i, np.int32(2)), z, y, x)])
        self.add("pad", lambda: [lax.pad(z, jnp.asarray(1).astype(self.t), [(1, 2, 1)] * self.rank)])
        if self.d != "bool" and self.rank:
            self.add("iota", lambda: [lax.broadcasted_iota(self.t, s, self.rank - 1)])
        for a in range(self.rank):
            self.add(f"concatenate{a}", lambda a=a: [jnp.concatenate([x, z], a)])
            self.add(f"roll{a}", lambda a=a: [jnp.roll(z, 3, a)])
        if self.rank:
            self.add("split", lambda: jnp.split(z, [s[0] // 3], 0))
            equation, sizes = {
                1: ("(ab)->ba", {"b": 8 if s[0] == 1000 else 1}),
                2: ("a(bc)->cab", {"b": 4}),
                3: ("ab(cd)->d(ba)c", {"c": 3}),
            }[self.rank]
            self.add("einshape", lambda: [_einshape(equation, z, **sizes)])

    def moves_by_indices(self):
        x, y, z, s, j = self.x, self.y, self.z, self.s, self.j
        for a in range(self.rank):
            for mode in ("fill", "clip", "wrap"):
                self.add(f"take_{mode}{a}", lambda a=a, mode=mode: [jnp.take(z, j, a, mode=mode)])
            self.add(
                f"take_along_axis{a}",
                lambda a=a: [jnp.take_along_axis(z, self.i, a), jnp.take_along_axis(z, self.i, a, mode="clip")],
            )
            self.add(f"roll_by_value{a}", lambda a=a: [jnp.roll(z, j[0], a)])
        if not self.rank:
            return
        self.add("gather", lambda: [z[j]])
        self.add("scatter_set", lambda: [z.at[j].set(y[j])])
        self.add("scatter_min", lambda: [x.at[j].min(y[j])])
        self.add("scatter_max", lambda: [x.at[j].max(y[j])])
        if self.d != "bool":
            self.add("scatter_add", lambda: [self.n.at[j].add(self.n[j])])
            self.add("scatter_multiply", lambda: [self.p.at[j].multiply(self.p[j])])
        starts, sizes = [j[0], j[3], j[1]][: self.rank], [max(n // 2, 1) for n in s]
        self.add("dynamic_slice", lambda: [lax.dynamic_slice(z, starts, sizes)])
        self.add(
            "dynamic_update_slice", lambda: [lax.dynamic_update_slice(z, lax.slice(y, [0] * self.rank, sizes), starts)]
        )
        self.add("dynamic_index_in_dim", lambda: [lax.dynamic_index_in_dim(z, j[3], 0)])

    def comparisons(self):
        x, y = self.x, self.y
        for a in range(self.rank):
            self.add(f"sort{a}", lambda a=a: [lax.sort(x, a)])
            self.add(f"argsort{a}", lambda a=a: [jnp.argsort(x, a).astype(np.int32)])
            self.add(f"sort_two_keys{a}", lambda a=a: lax.sort((self.w, x, y), a, num_keys=2))
            self.add(f"max{a}", lambda a=a: [jnp.max(x, a)])
            self.add(f"min{a}", lambda a=a: [jnp.min(x, a)])
            if self.d == "bool":
                continue
            self.add(f"argmax{a}", lambda a=a: [lax.argmax(x, a, np.int32)])
            self.add(f"argmin{a}", lambda a=a: [lax.argmin(x, a, np.int32)])
            self.add(f"cummax{a}", lambda a=a: [lax.cummax(x, a, a % 2 == 1)])
            self.add(f"cummin{a}", lambda a=a: [lax.cummin(x, a, a % 2 == 0)])
        self.add("max", lambda: [jnp.max(x)])
        self.add("min", lambda: [jnp.min(x)])
        if self.d not in FLOATS:
            # Of 4-bit integers through 8 bits: JAX's own check of dtypes does not know them.
            wide, most = {"i4": (np.int8, -1), "u4": (np.uint8, 15)}.get(
                self.d,
                (
                    self.t,
                    (
                        True
                        if self.d == "bool"
                        else -1 if self.d in SIGNED else ml_dtypes.iinfo(self.t).max if self.d in INTS else 0
                    ),
                ),
            )
            for name, f, start in ("and", lax.bitwise_and, most), ("or", lax.bitwise_or, 0):
                reduced = lambda axes, f=f, start=start: [
                    lax.reduce(x.astype(wide), np.array(start, wide), f, axes).astype(self.t)
                ]
                self.add(f"reduce_{name}", lambda reduced=reduced: reduced(range(self.rank)))
                for a in range(self.rank):
                    self.add(f"reduce_{name}{a}", lambda a=a, reduced=reduced: reduced([a]))

    def arithmetic(self):
        if self.d == "bool":
            return
        n, p = self.n, self.p
        # where integers add up
        into = (
            {"i": np.int32, "u": np.uint32, "f": self.t}[self.d[0]]
            if BITS[self.d] < 32 and self.d != "bf16"
            else self.t
        )
        for name, x, f, g in ("sum", n, jnp.sum, lax.cumsum), ("prod", p, jnp.prod, lax.cumprod):
            self.add(name, lambda x=x, f=f: [f(x, dtype=into)])
            for a in range(self.rank):
                self.add(f"{name}{a}", lambda x=x, f=f, a=a: [f(x, a, dtype=into)])
                self.add(f"cum{name}{a}", lambda x=x, g=g, a=a: [g(x, a, a % 2 == 1)])
        if self.rank:
            wide = np.float32 if self.d in FLOATS and BITS[self.d] < 32 else self.t
            batch = [0] if self.rank == 3 else []
            self.add(
                "dot",
                lambda: [
                    lax.dot_general(
                        n, p, (([self.rank - 1],) * 2, (batch, batch)), precision="highest", preferred_element_type=wide
                    )
                ],
            )

    def bits(self):
        if self.d == "bool":
            return
        z = self.z
        others = [d for d in DTYPES if d not in ("bool", self.d)]
        same = [d for d in others if BITS[d] == BITS[self.d]]
        for q in others:
            if BITS[q] == BITS[self.d]:
                self.add(f"bitcast_{q}", lambda q=q: [lax.bitcast_convert_type(z, DTYPES[q])])
            elif BITS[q] < BITS[self.d]:
                back = DTYPES[same[-1] if len(same) > 0 else self.d]
                self.add(
                    f"bitcast_{q}",
                    lambda q=q, back=back: [
                        (part := lax.bitcast_convert_type(z, DTYPES[q])),
                        lax.bitcast_convert_type(part, back),
                    ],
                )
        if self.d in INTS:
            u = DTYPES[f"u{BITS[self.d]}"]
            for q in INTS:
                if BITS[q] >= BITS[self.d]:
                    continue
                part = DTYPES[f"u{BITS[q]}"]
                field = lambda v, q=q, part=part: lax.bitcast_convert_type(v.astype(DTYPES[q]), part).astype(u)

                def pack(q=q, field=field):
                    total = jnp.zeros(self.s, u)
                    for k in range(BITS[self.d] // BITS[q]):
                        total = total | (field([z, self.y][k % 2]) << jnp.asarray(k * BITS[q]).astype(u))
                    return [total]

                def unpack(q=q, part=part):
                    word = lax.bitcast_convert_type(z, u) if u != self.t else z
                    return [
                        lax.bitcast_convert_type(
                            (word >> jnp.asarray(BITS[q]).astype(u)).astype(part), DTYPES[q]
                        ).astype(self.t)
                    ]

                self.add(f"pack_{q}", pack)
                self.add(f"unpack_{q}", unpack)
        if self.d == "f32":
            half = lambda f: lax.bitcast_convert_type(f.astype(jnp.bfloat16), np.uint16).astype(np.uint32)
            finite = lambda f: jnp.where(jnp.isnan(f), np.float32(2.5), f)
            random = lax.bitcast_convert_type(self.i, np.uint32)
            self.add("pack_bf16", lambda: [half(finite(self.x)) | half(finite(self.y)) << 16])
            self.add(
                "stochastic_round",
                lambda: [
                    jnp.where(
                        jnp.isfinite(self.x),
                        lax.bitcast_convert_type(
                            (lax.bitcast_convert_type(self.x, np.uint32) + (random & 0xFFFF)) >> 16 << 16, np.float32
                        ),
                        self.x,
                    ).astype(jnp.bfloat16)
                ],
            )

    def random(self):
        key = jax.random.wrap_key_data(jnp.array([0, 42], jnp.uint32))
        if self.d in ("u8", "u16", "u32", "u64"):
            self.add("random_bits", lambda: [jax.random.bits(key, self.s, self.t)])
        if self.d in INTS and BITS[self.d] >= 8:
            self.add("randint", lambda: [jax.random.randint(key, self.s, 3, 100, self.t)])
        if self.d in FLOATS and BITS[self.d] >= 16:
            self.add(
                "uniform",
                lambda: [jax.random.uniform(key, self.s, self.t), jax.random.uniform(key, self.s, self.t, -2.5, 4)],
            )
            if self.size <= 8:
                self.add("normal", lambda: [jax.random.normal(key, self.s, self.t)])
        if self.d == "bool":
            self.add("bernoulli", lambda: [jax.random.bernoulli(key, np.float32(0.25), self.s)])


def answers(d, shape):
    """The results of every function that JAX takes, all in one compilation."""
    given, refused = operands(d, shape), set()
    names = list(Case(d, shape, given).functions)
    for name in names:
        try:
            jax.eval_shape(lambda o: Case(d, shape, o).functions[name](), given)
        except Exception as e:
            print(f"JAX refuses {name} of {d} {shape}: {str(e).splitlines()[0][:160]}")
            refused.add(name)

    def every(o):
        functions = Case(d, shape, o).functions
        return {name: functions[name]() for name in names if name not in refused}

    return jax.jit(every)(given)


def text(name, result):
    """Of the least and the greatest the zeros have no sign: which of -0 and 0 it is XLA leaves to how it vectorises."""
    w = words(result)
    if (
        any(f in name for f in ("min", "max"))
        and not name.startswith("arg")
        and NAME[np.asarray(result).dtype] in FLOATS
    ):
        w = np.where(w == np.uint64(1) << np.uint64(8 * np.asarray(result).dtype.itemsize - 1), np.uint64(0), w)
    return (" ".join(f"{int(v):x}" for v in w) if len(w) <= 8 else f"#{digest(w):x}") or "none"


def write(d):
    lines = [
        f"{name} " + " ".join(f"{int(v):x}" for v in bits) for name, bits in zip(("special", "subnormal"), special(d))
    ]
    for shape in SHAPES:
        dims = ",".join(map(str, shape)) or "-"
        lines += [
            f"{dims} {name} {' | '.join(text(name, r) for r in results)}" for name, results in answers(d, shape).items()
        ]
    os.makedirs(os.path.join(HERE, "matrix"), exist_ok=True)
    with open(os.path.join(HERE, "matrix", d + ".txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        shape = tuple(int(n) for n in sys.argv[2].split(",") if n.isdigit())
        given = operands(sys.argv[1], shape)
        print(given, *Case(sys.argv[1], shape, given).functions[sys.argv[3]](), sep="\n")
    else:
        for d in sys.argv[1:] or DTYPES:
            write(d)
