"""Runs a Mosaic module on NumPy arrays, to judge what a compiler emits without a TPU.

It takes a module that jaxlib's MLIR has parsed and computes what the module promises, no more: fresh memory holds
poison; a copy lands at its wait, and its target is poison until then; each access, conversion, division and shift is
asserted to be defined. It shares no code with the emitter, and is judged itself by what JAX emits (check.py). grid.py
runs the programs of a grid.
"""

import re

import ml_dtypes
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import tpu
from jax._src.lib.mlir import ir

DYNAMIC = -(2**63)


class Undefined(Exception):
    """The module does what nobody has defined."""


def require(condition, what):
    if not condition:
        raise Undefined(what)


def context():
    ctx = mlir.make_ir_context()
    tpu.register_dialect(ctx)
    return ctx


def parse(text, ctx=None):
    module = ir.Module.parse(text, ctx or context())
    module.operation.verify()
    return module


DTYPES = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i1": np.dtype(bool),
    "i4": np.dtype(ml_dtypes.int4),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "!tpu.semaphore": np.dtype(np.int32),
    "!tpu.dma_semaphore": np.dtype(np.int32),
}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def is_float(dtype):
    return dtype.kind == "f" or dtype in (DTYPES["bf16"], DTYPES["f8E4M3FN"], DTYPES["f8E5M2"])


def poison(shape, dtype):
    if is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, True if dtype == bool else -8 if dtype == DTYPES["i4"] else np.iinfo(dtype).min, dtype)


def type_of(t):
    """The shape and dtype of a scalar, vector or memref type."""
    s = str(t)
    m = re.match(r"(?:vector|memref)<((?:\d+x)*)([^,>]+)", s)
    if not m:
        return (), DTYPES[s]
    return tuple(int(n) for n in m.group(1).split("x")[:-1]), DTYPES[m.group(2).strip()]


def ints(attribute):
    s = str(attribute)
    if s.startswith("array<"):
        s = s.split(":", 1)[1] if ":" in s else ""
    return [int(n) for n in re.findall(r"-?\d+(?! *: *i\d)|-?\d+(?= *: *i\d)", re.sub(r":\s*i\d+", "", s))]


def same(a, b):
    return np.array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


class Copy:
    def __init__(self, source, target):
        require(source.shape == target.shape and source.dtype == target.dtype, "a copy between different shapes")
        self.source, self.target, self.before = source, target, source.copy()
        target[...] = poison(target.shape, target.dtype)
        self.poison = target.copy()
        self.bytes = source.size * source.dtype.itemsize

    def land(self):
        require(same(self.source, self.before), "the source of a copy changed before its wait")
        require(same(self.target, self.poison), "the target of a copy was written before its wait")
        self.target[...] = self.before


class Function:
    """One func.func as closures over an environment, a list of values."""

    def __init__(self, op, machine):
        self.machine, self.slots = machine, {}
        block = op.regions[0].blocks[0]
        self.arguments = [self.slot(a) for a in block.arguments]
        self.steps = self.compile(block)

    def __call__(self, arguments):
        env = [None] * len(self.slots)
        for slot, a in zip(self.arguments, arguments, strict=True):
            env[slot] = a
        return self.run(self.steps, env)

    def slot(self, value):
        return self.slots.setdefault(value, len(self.slots))

    def run(self, steps, env):
        result = []
        for step in steps:
            result = step(env)
        return result

    def compile(self, block):
        return [self.step(op.operation) for op in block.operations]

    def step(self, op):
        operands = [self.slot(v) for v in op.operands]
        results = [self.slot(v) for v in op.results]
        name = op.name
        control = getattr(self, name.replace(".", "_"), None)
        if control:
            return control(op, operands, results)
        make = OPS.get(name)
        if make is None:
            raise NotImplementedError(name)
        function = make(op, self.machine)
        if len(results) == 1:
            (result,) = results
            shape, dtype = type_of(op.results[0].type)
            is_memory = str(op.results[0].type).startswith("memref")

            def one(env):
                with np.errstate(all="ignore"):
                    v = function(*[env[o] for o in operands])
                if not is_memory:
                    v = np.asarray(v, dtype)
                    assert v.shape == shape, (name, v.shape, shape)
                else:
                    assert v.shape == shape, (name, v.shape, shape)
                env[result] = v

            return one

        def none(env):
            function(*[env[o] for o in operands])

        return none

    def ends(self, op, operands, results):
        return lambda env: [env[o] for o in operands]

    func_return = scf_yield = tpu_yield = ends

    def set(self, env, slots, values):
        for slot, v in zip(slots, values, strict=True):
            env[slot] = v

    def scf_if(self, op, operands, results):
        regions = [self.compile(r.blocks[0]) if len(r.blocks) else [] for r in op.regions]

        def step(env):
            out = self.run(regions[0 if env[operands[0]] else 1], env)
            if results:
                self.set(env, results, out)

        return step

    def scf_for(self, op, operands, results):
        block = op.regions[0].blocks[0]
        arguments = [self.slot(a) for a in block.arguments]
        body = self.compile(block)

        def step(env):
            lower, upper, by = (int(env[o]) for o in operands[:3])
            require(by > 0, "a step that is not positive")
            carried = [env[o] for o in operands[3:]]
            for i in range(lower, upper, by):
                env[arguments[0]] = np.int32(i)
                self.set(env, arguments[1:], carried)
                out = self.run(body, env)
                carried = out if results else []
            self.set(env, results, carried)

        return step

    def scf_condition(self, op, operands, results):
        return lambda env: [env[o] for o in operands]

    def scf_while(self, op, operands, results):
        before, after = (r.blocks[0] for r in op.regions)
        before_arguments = [self.slot(a) for a in before.arguments]
        after_arguments = [self.slot(a) for a in after.arguments]
        test, body = self.compile(before), self.compile(after)

        def step(env):
            carried = [env[o] for o in operands]
            while True:
                self.set(env, before_arguments, carried)
                goes_on, *values = self.run(test, env)
                if not goes_on:
                    break
                self.set(env, after_arguments, values)
                carried = self.run(body, env)
            self.set(env, results, values)

        return step

    def tpu_region(self, op, operands, results):
        body = self.compile(op.regions[0].blocks[0])

        def step(env):
            out = self.run(body, env)
            self.set(env, results, out if results else [])

        return step


# ---- what the other ops compute: OPS[name](op, machine) makes the function of the operands

OPS = {}


def op(*names):
    def register(make):
        for name in names:
            OPS[name] = make
        return make

    return register


def elementwise(name, function):
    OPS[name] = lambda op, machine: function


def wide(function):
    """Of floats in f64, which the caller rounds once."""
    return lambda *xs: function(*[np.asarray(x, np.float64) for x in xs])


def unsigned(x):
    x = np.asarray(x)
    return x if x.dtype == bool else x.view(UNSIGNED[x.dtype.itemsize])


def signed(x, like):
    return np.asarray(x).astype(UNSIGNED[like.dtype.itemsize]).view(like.dtype) if like.dtype != bool else x


def float_op(function):
    def apply(*xs):
        dtype = np.asarray(xs[0]).dtype
        return np.asarray(function(*[np.asarray(x, np.float32) if dtype.itemsize < 4 else x for x in xs])).astype(dtype)

    return apply


elementwise("arith.addf", float_op(np.add))
elementwise("arith.subf", float_op(np.subtract))
elementwise("arith.mulf", float_op(np.multiply))
elementwise("arith.divf", float_op(np.divide))
elementwise("arith.remf", float_op(np.fmod))
elementwise("arith.negf", lambda a: -a)
elementwise("arith.maximumf", lambda a, b: np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b)))
elementwise("arith.minimumf", lambda a, b: np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b)))
elementwise("arith.addi", lambda a, b: a + b)
elementwise("arith.subi", lambda a, b: a - b)
elementwise("arith.muli", lambda a, b: a * b)
elementwise("arith.maxsi", np.maximum)
elementwise("arith.minsi", np.minimum)
elementwise("arith.maxui", lambda a, b: signed(np.maximum(unsigned(a), unsigned(b)), a))
elementwise("arith.minui", lambda a, b: signed(np.minimum(unsigned(a), unsigned(b)), a))
elementwise("arith.andi", lambda a, b: a & b)
elementwise("arith.ori", lambda a, b: a | b)
elementwise("arith.xori", lambda a, b: a ^ b)


def truncated(a, b, remainder):
    require(np.all(b != 0), "a division by 0")
    info = np.iinfo(a.dtype)
    require(not np.any((a == info.min) & (b == -1)), "the least number divided by -1")
    x, y = np.asarray(a, object), np.asarray(b, object)
    q = np.asarray(abs(x) // abs(y), object)
    q = np.where(np.asarray((a < 0) != (b < 0)), -q, q)
    return np.asarray(x - q * y if remainder else q).astype(a.dtype)


elementwise("arith.divsi", lambda a, b: truncated(a, b, False))
elementwise("arith.remsi", lambda a, b: truncated(a, b, True))


def divided(a, b, remainder):
    require(np.all(b != 0), "a division by 0")
    x, y = unsigned(a), unsigned(b)
    return signed(x % y if remainder else x // y, a)


elementwise("arith.divui", lambda a, b: divided(a, b, False))
elementwise("arith.remui", lambda a, b: divided(a, b, True))


def shifted(function, logical):
    def shift(a, b):
        require(np.all(unsigned(b) < a.dtype.itemsize * 8), "a shift by the width or more")
        return signed(function(unsigned(a), unsigned(b)), a) if logical else function(a, b)

    return shift


elementwise("arith.shli", shifted(np.left_shift, True))
elementwise("arith.shrui", shifted(np.right_shift, True))
elementwise("arith.shrsi", shifted(np.right_shift, False))
elementwise("arith.select", lambda c, a, b: np.where(c, a, b))
elementwise("arith.index_cast", lambda a: a)


@op("arith.cmpi", "arith.cmpf")
def compare(o, machine):
    predicate = str(o.attributes["predicate"]).split(":")[0].strip()
    if o.name == "arith.cmpf":
        names = [
            "false",
            "oeq",
            "ogt",
            "oge",
            "olt",
            "ole",
            "one",
            "ord",
            "ueq",
            "ugt",
            "uge",
            "ult",
            "ule",
            "une",
            "uno",
        ]
        p = names[int(predicate)] if predicate.isdigit() else predicate
        basic = {
            "oeq": np.equal,
            "ogt": np.greater,
            "oge": np.greater_equal,
            "olt": np.less,
            "ole": np.less_equal,
            "une": np.not_equal,
        }
        if p == "one":
            return lambda a, b: (a < b) | (a > b)
        return basic[p]
    names = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
    p = names[int(predicate)] if predicate.isdigit() else predicate
    f = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }[p.lstrip("su") if len(p) == 3 else p]
    return (lambda a, b: f(unsigned(a), unsigned(b))) if p[0] == "u" else f


def result_dtype(o):
    return type_of(o.results[0].type)[1]


@op("arith.extf", "arith.truncf", "arith.sitofp", "arith.extsi", "arith.trunci")
def cast(o, machine):
    dtype = result_dtype(o)
    return lambda a: np.asarray(a).astype(dtype)


@op("arith.extui", "arith.uitofp")
def extend(o, machine):
    dtype = result_dtype(o)
    return lambda a: unsigned(a).astype(dtype)


@op("arith.fptosi", "arith.fptoui")
def to_integer(o, machine):
    dtype = result_dtype(o)
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max

    def convert(a):
        x = np.trunc(np.asarray(a, np.float64))
        require(np.all((x >= lo) & (x <= hi)), "a float beyond the integers that it is converted to")
        return x.astype(dtype)

    return convert


@op("arith.bitcast", "tpu.bitcast")
def bitcast(o, machine):
    dtype = result_dtype(o)
    return lambda a: np.asarray(a).view(dtype)


@op("arith.constant")
def constant(o, machine):
    shape, dtype = type_of(o.results[0].type)
    attribute = o.attributes["value"]
    text = str(attribute)
    if text.startswith("dense<"):
        dense = ir.DenseElementsAttr(attribute)
        require(dense.is_splat, "a constant that is no splat")
        text = re.match(r"dense<(.*)> : ", text).group(1)
    else:
        text = text.split(" :")[0]
    if text in ("true", "false"):
        value = np.asarray(text == "true")
    elif text.startswith("0x"):
        value = np.asarray(int(text, 16), UNSIGNED[dtype.itemsize]).view(dtype)
    else:
        value = np.asarray(float(text) if is_float(dtype) else int(text)).astype(dtype)
    value = np.broadcast_to(value.astype(dtype), shape)
    return lambda: value


for name, function in {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "floor": np.floor,
    "ceil": np.ceil,
    "roundeven": np.round,
    "round": lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a),
    "absf": np.abs,
    "powf": np.power,
    "atan2": np.arctan2,
}.items():
    elementwise("math." + name, wide(function))
elementwise("math.absi", np.abs)


@op("math.erf")
def erf(o, machine):
    import math

    f = np.vectorize(math.erf, otypes=[np.float64])
    return wide(lambda a: f(a) if a.size else a)


@op("math.ctlz", "math.ctpop")
def count(o, machine):
    leading = o.name == "math.ctlz"

    def function(a):
        width = a.dtype.itemsize * 8
        return np.vectorize(
            lambda v: width - int(v).bit_length() if leading else bin(int(v)).count("1"), otypes=[np.int64]
        )(unsigned(a)).astype(a.dtype)

    return function


@op("tpu.weird")
def weird(o, machine):
    return lambda a: ~np.isfinite(np.asarray(a, np.float64))


@op("tpu.iota")
def iota(o, machine):
    shape, dtype = type_of(o.results[0].type)
    (axis,) = ints(o.attributes["dimensions"])
    value = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)
    return lambda: value.astype(dtype)


@op("vector.broadcast")
def broadcast(o, machine):
    shape, _ = type_of(o.results[0].type)
    return lambda a: np.broadcast_to(a, shape)


@op("vector.shape_cast", "tpu.reshape")
def shape_cast(o, machine):
    shape, _ = type_of(o.results[0].type)
    return lambda a: np.reshape(a, shape)


@op("vector.extract")
def extract(o, machine):
    at = tuple(ints(o.attributes["static_position"]))
    return lambda a: a[at]


@op("vector.extract_strided_slice")
def strided_slice(o, machine):
    at = tuple(slice(s, s + n) for s, n in zip(ints(o.attributes["offsets"]), ints(o.attributes["sizes"]), strict=True))
    return lambda a: a[at]


@op("tpu.concatenate")
def concatenate(o, machine):
    (axis,) = ints(o.attributes["dimension"])
    return lambda *xs: np.concatenate(xs, axis)


@op("tpu.transpose", "vector.transpose")
def transpose(o, machine):
    perm = ints(o.attributes["permutation"])
    return lambda a: np.transpose(a, perm)


@op("tpu.dynamic_gather")
def gather(o, machine):
    (axis,) = ints(o.attributes["dimensions"])

    def function(a, i):
        require(np.all((i >= 0) & (i < a.shape[axis])), "a gather from outside")
        return np.take_along_axis(a, i, axis)

    return function


@op("tpu.dynamic_rotate")
def rotate(o, machine):
    (axis,) = ints(o.attributes["dimension"])
    return lambda a, by: np.roll(a, int(by), axis)


@op("tpu.reduce_index")
def reduce_index(o, machine):
    (axis,) = ints(o.attributes["axis"])
    function = np.argmax if "arg_max" in str(o.attributes["kind"]) else np.argmin
    return lambda a: function(np.asarray(a, np.float64), axis)


@op("vector.multi_reduction")
def reduction(o, machine):
    axes = tuple(ints(o.attributes["reduction_dims"]))
    kind = re.search(r"<(\w+)>", str(o.attributes["kind"])).group(1)
    function = {
        "add": np.add,
        "maximumf": np.maximum,
        "minimumf": np.minimum,
        "maxsi": np.maximum,
        "minsi": np.minimum,
    }[kind]

    def reduce(a, start):
        x = np.asarray(a, np.float64) if kind == "add" and is_float(a.dtype) else a
        r = x
        for axis in sorted(axes, reverse=True):
            r = function.reduce(r, axis, dtype=x.dtype)
        return function(r.astype(a.dtype), start)

    return reduce


@op("tpu.matmul")
def matmul(o, machine):
    numbers = [ints(s) for s in re.findall(r"\[([^\]]*)\]", str(o.attributes["dimension_numbers"]))]
    lc, rc, lf, rf, order, lb, rb = numbers

    def multiply(a, b, accumulator):
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        left, right = [None] * a.ndim, [None] * b.ndim
        for i, j in list(zip(lc, rc, strict=True)) + list(zip(lb, rb, strict=True)):
            left[i] = right[j] = next(letters)
        left = [x or next(letters) for x in left]
        right = [x or next(letters) for x in right]
        out = [(left, right)[order[i]][order[i + 1]] for i in range(0, len(order), 2)]
        t = np.float64 if is_float(accumulator.dtype) else np.int64
        r = np.einsum("".join(left) + "," + "".join(right) + "->" + "".join(out), a.astype(t), b.astype(t))
        return (r + accumulator.astype(t)).astype(accumulator.dtype)

    return multiply


# ---- memory


def window(memory, starts, sizes, steps=None):
    at = []
    for n, start, size, step in zip(memory.shape, starts, sizes, steps or [1] * len(sizes), strict=True):
        start, last = int(start), int(start) + (size - 1) * step
        require(start >= 0 and last < n, f"an access at {start} to {last} of {n}")
        at.append(slice(start, last + 1, step))
    return memory[tuple(at)]


@op("vector.load")
def load(o, machine):
    shape, _ = type_of(o.results[0].type)
    return lambda memory, *starts: window(memory, starts, shape).copy()


@op("tpu.strided_load")
def strided_load(o, machine):
    shape, _ = type_of(o.results[0].type)
    steps = ints(o.attributes["strides"])
    return lambda memory, *starts: window(memory, starts, shape, steps).copy()


@op("tpu.vector_store")
def vector_store(o, machine):
    rank = len(type_of(o.operands[1].type)[0])

    def store(value, memory, *rest):
        target = window(memory, rest[:rank], value.shape)
        if len(rest) > rank:
            np.copyto(target, value, where=rest[rank])
        else:
            target[...] = value

    return store


@op("vector.store")
def plain_store(o, machine):
    def store(value, memory, *starts):
        window(memory, starts, value.shape)[...] = value

    return store


@op("tpu.strided_store")
def strided_store(o, machine):
    steps = ints(o.attributes["strides"])
    value_first = str(o.operands[0].type).startswith("vector")

    def store(a, b, *starts):
        value, memory = (a, b) if value_first else (b, a)
        window(memory, starts, value.shape, steps)[...] = value

    return store


@op("memref.load")
def scalar_load(o, machine):
    return lambda memory, *at: window(memory, at, [1] * len(at)).reshape(()).copy()


@op("memref.store")
def scalar_store(o, machine):
    def store(value, memory, *at):
        window(memory, at, [1] * len(at))[...] = value

    return store


@op("memref.alloca")
def alloca(o, machine):
    shape, dtype = type_of(o.results[0].type)
    return lambda: poison(shape, dtype)


@op("tpu.sem_alloc")
def sem_alloc(o, machine):
    shape, _ = type_of(o.results[0].type)

    def allocate():
        counters = np.zeros(shape, np.int32)
        machine.counters.append(counters)
        return counters

    return allocate


@op("tpu.memref_slice")
def memref_slice(o, machine):
    shape, _ = type_of(o.results[0].type)
    return lambda memory, *starts: window(memory, starts, shape)


@op("tpu.memref_squeeze", "tpu.memref_reshape")
def memref_squeeze(o, machine):
    shape, _ = type_of(o.results[0].type)

    def squeeze(memory):
        view = memory.view()
        view.shape = shape  # without a copy, or an error
        return view

    return squeeze


def key(counter):
    assert counter.size == 1
    return counter.__array_interface__["data"][0]


@op("tpu.enqueue_dma")
def enqueue_dma(o, machine):
    assert len(o.operands) == 3, "a copy to another device"

    def start(*operands):
        source, target, semaphore = operands
        machine.copies.setdefault(key(semaphore), []).append(Copy(source, target))

    return start


@op("tpu.wait_dma2")
def wait_dma(o, machine):
    def wait(semaphore, source, target):
        waiting = machine.copies.get(key(semaphore), [])
        need = target.size * target.dtype.itemsize
        while need > 0:
            require(waiting, "a wait for a copy that was not started")
            copy = waiting.pop(0)
            copy.land()
            need -= copy.bytes
        require(need == 0, "a wait for less than a copy")

    return wait


@op("tpu.sem_signal")
def sem_signal(o, machine):
    def signal(semaphore, n):
        semaphore[...] += n

    return signal


@op("tpu.sem_wait")
def sem_wait(o, machine):
    def wait(semaphore, n):
        require(semaphore >= n, "a wait that nothing ends")
        semaphore[...] -= n

    return wait


@op("tpu.sem_read")
def sem_read(o, machine):
    return lambda semaphore: semaphore.copy().reshape(())


@op("tpu.log")
def log(o, machine):
    return lambda *values: None


@op("cf.assert")
def check(o, machine):
    def hold(condition):
        if not condition:
            machine.failed_checks.append(str(o.attributes["msg"]))

    return hold


@op("tpu.trace_start", "tpu.trace_stop", "tpu.delay")
def nothing(o, machine):
    return lambda *xs: None


@op("tpu.iteration_bound")
def iteration_bound(o, machine):
    (at,) = ints(o.attributes["dim"])
    return lambda: machine.bounds[at]
