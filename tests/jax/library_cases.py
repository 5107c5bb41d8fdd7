"""The cases of tests/jax/libraries: one call of a library's public function each. A case is one line:
case("library/module/what", function, arguments...). Functions are named by text and imported by the process that runs
them; arrays are normal(), ints() and const(), which are made when the case runs. GRAD in front of a function's name
asks for the gradient by all its arrays of floats. Sizes are the smallest at which a kernel takes several steps along
each axis of its grid."""

import dataclasses
import importlib
import inspect
import sys
import types
from collections.abc import Callable

import numpy as np

CASES = {}
GRAD = "grad "


@dataclasses.dataclass
class Case:
    make: Callable
    bound: float | None = None
    jit: bool = True  # False: the function looks at values, and runs op by op
    reference: Callable | None = None  # makes the same call of the library's own implementation without kernels
    reference_jit: bool = True


class Later:
    """A value that is made in the process of the case: it may need JAX or the library."""

    def __init__(self, make, reference=None):
        self.make, self.reference = make, reference


def load(name):
    """The object of "module:attribute.attribute"."""
    module, _, path = name.partition(":")
    value = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def case(name, function, *args, bound=None, jit=True, reference=None, **kwargs):
    """`reference`: a function of the library that takes the arguments and some of the keywords, and looks at values."""

    def now(value):
        if isinstance(value, Later):
            return value.make()
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(map(now, value))
        return value

    def make(function=function):
        derived = isinstance(function, str) and function.startswith(GRAD)
        f = load(function.removeprefix(GRAD)) if isinstance(function, str) else function.make()
        pretend()
        taken = inspect.signature(f).parameters if reference and function == reference else kwargs
        got = [now(a) for a in args], {k: now(v) for k, v in kwargs.items() if k in taken}
        return (gradient(f) if derived else f), *got

    assert name not in CASES, name
    if reference:
        other = reference
    elif isinstance(function, str):
        other = function.replace("_pallas.tpu", "_xla").replace("_pallas.gpu", "_xla")
    else:
        other = Later(function.reference) if function.reference else function
    CASES[name] = Case(make, bound, jit, None if other == function else lambda: make(other), jit and not reference)


def normal(seed, *shape, dtype="float32", scale=1.0):
    def make():
        import jax.numpy as jnp

        return jnp.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, dtype)

    return Later(make)


def uniform(seed, *shape, dtype="float32", low=0.0, high=1.0):
    def make():
        import jax.numpy as jnp

        return jnp.asarray(np.random.default_rng(seed).uniform(low, high, shape), dtype)

    return Later(make)


def ints(seed, low, high, *shape, dtype="int32"):
    def make():
        import jax.numpy as jnp

        return jnp.asarray(np.random.default_rng(seed).integers(low, high, shape), dtype)

    return Later(make)


def const(value, dtype="int32"):
    def make():
        import jax.numpy as jnp

        return jnp.asarray(np.asarray(value), dtype)

    return Later(make)


def made(name, *args, **kwargs):
    """What a class or function of a library makes of constants."""
    return Later(
        lambda: load(name)(
            *[a.make() if isinstance(a, Later) else a for a in args],
            **{k: v.make() if isinstance(v, Later) else v for k, v in kwargs.items()},
        )
    )


def segments(batch, length, size):
    return const(np.broadcast_to(np.arange(length) // size, (batch, length)))


def gradient(f):
    """By all arrays of floats among the arguments, of a sum whose terms differ in weight."""

    def of(*args, **kwargs):
        import jax
        import jax.numpy as jnp

        leaves, tree = jax.tree.flatten((args, kwargs))
        at = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)]

        def weighted(*floats):
            every = list(leaves)
            for i, x in zip(at, floats):
                every[i] = x
            args, kwargs = jax.tree.unflatten(tree, every)
            outs = [o for o in jax.tree.leaves(f(*args, **kwargs)) if jnp.issubdtype(o.dtype, jnp.floating)]
            return sum(
                (o.astype(jnp.float32) * jnp.cos(jnp.arange(o.size, dtype=jnp.float32)).reshape(o.shape)).sum()
                for o in outs
            )

        return jax.grad(weighted, argnums=tuple(range(len(at))))(*[leaves[i] for i in at])

    return of


def pretend():
    """Lets libraries that ask for the machine hear of a TPU or of a GPU for Triton: what they choose by it runs
    everywhere."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas import tpu as pltpu

    if not hasattr(pltpu, "repeat"):  # which JAX 0.10 has removed, and ejkernel 0.0.80 still calls
        pltpu.repeat = lambda x, repeats, axis: jnp.concatenate([x] * repeats, axis)
    for name, module in list(sys.modules.items()):
        if (name.startswith("ejkernel.kernels._pallas") or name == "tokamax._src.pallas.grid") and getattr(
            module, "jax", None
        ) is jax:
            module.jax = _Jax(
                jax, types.SimpleNamespace(device_kind="TPU v5 lite", platform="tpu", id=0, core_count=16)
            )
        if name.startswith("tokamax._src.ops.") and "pallas" in name:
            for thing in list(vars(module).values()):
                if isinstance(thing, type) and thing.__module__ == name and "supported_on" in vars(thing):
                    thing.supported_on = lambda self, device: True


class _Jax(types.ModuleType):
    """The module jax as a library sees it, but for the kind of its devices."""

    def __init__(self, jax, device):
        super().__init__("jax")
        self.__dict__.update(vars(jax))
        self._jax, self.devices, self.local_devices = jax, lambda *_: [device], lambda *_: [device]

    def __getattr__(self, name):
        return getattr(self._jax, name)


BOTH = {"f32": "float32", "bf16": "bfloat16"}

# -- JAX's wheel: what test_library.py leaves

TPU = "jax.experimental.pallas.ops.tpu."
GPU = "jax.experimental.pallas.ops.gpu."


def _flash_sizes():
    n, m = 128, 8
    return made(
        TPU + "flash_attention:BlockSizes",
        block_q=m,
        block_k_major=n,
        block_k=n,
        block_b=1,
        block_q_major_dkv=m,
        block_k_major_dkv=n,
        block_k_dkv=n,
        block_q_dkv=m,
        block_k_major_dq=n,
        block_k_dq=n,
        block_q_dq=m,
    )


for _t, _d in BOTH.items():
    _q, _k, _v = (
        normal(0, 1, 2, 16, 16, dtype=_d),
        normal(1, 1, 2, 256, 16, dtype=_d),
        normal(2, 1, 2, 256, 16, dtype=_d),
    )
    _ids = made(TPU + "flash_attention:SegmentIds", q=segments(1, 16, 9), kv=segments(1, 256, 120))
    for _g, _w in (("", ""), (GRAD, " grad")):
        _f = _g + TPU + "flash_attention:flash_attention"
        case(
            f"jax/tpu.flash_attention/causal {_t}{_w}",
            _f,
            _q,
            _k,
            _v,
            causal=True,
            sm_scale=0.2,
            block_sizes=_flash_sizes(),
        )
        case(
            f"jax/tpu.flash_attention/bias {_t}{_w}",
            _f,
            _q,
            _k,
            _v,
            normal(3, 1, 2, 16, 256),
            sm_scale=0.2,
            block_sizes=_flash_sizes(),
        )
        case(
            f"jax/tpu.flash_attention/segments {_t}{_w}",
            _f,
            _q,
            _k,
            _v,
            segment_ids=_ids,
            sm_scale=0.2,
            block_sizes=_flash_sizes(),
        )
        _q4, _k4, _v4 = (normal(i, 1, 64, 2, 16, dtype=_d) for i in range(3))
        _sizes = made(
            GPU + "attention:BlockSizes",
            block_q=32,
            block_k=32,
            block_q_dkv=32,
            block_kv_dkv=32,
            block_q_dq=32,
            block_kv_dq=32,
        )
        case(
            f"jax/gpu.attention/causal {_t}{_w}",
            _g + GPU + "attention:mha",
            _q4,
            _k4,
            _v4,
            None,
            causal=True,
            block_sizes=_sizes,
        )
        case(
            f"jax/gpu.attention/segments {_t}{_w}",
            _g + GPU + "attention:mha",
            _q4,
            _k4,
            _v4,
            segments(1, 64, 24),
            block_sizes=_sizes,
        )
        for _n in ("layer_norm", "rms_norm"):
            case(
                f"jax/gpu.{_n}/{_t}{_w}",
                f"{_g}{GPU}{_n}:{_n}",
                normal(1, 2, 3, 40, dtype=_d),
                normal(2, 40, dtype=_d),
                normal(3, 40, dtype=_d),
            )
    case(f"jax/gpu.softmax/{_t}", GPU + "softmax:softmax", normal(0, 4, 100, dtype=_d), num_warps=1)
    _decode = normal(0, 2, 8, 32, dtype=_d), normal(1, 2, 128, 2, 32, dtype=_d), normal(2, 2, 128, 2, 32, dtype=_d)
    case(
        f"jax/gpu.decode_attention/gqa {_t}",
        GPU + "decode_attention:gqa",
        *_decode,
        start_idx=const([3, 0]),
        kv_seq_len=const([100, 40]),
        block_k=32,
        k_splits=2,
    )
    _table, _lengths = const([[3, 1, 6, 0], [5, 2, 7, 4]]), const([9, 30])
    _pages = normal(1, 2, 8, 8, 32, dtype=_d), normal(2, 2, 8, 8, 32, dtype=_d)
    case(
        f"jax/gpu.paged_attention/{_t}",
        GPU + "paged_attention:paged_attention",
        normal(0, 2, 8, 32, dtype=_d),
        *_pages,
        _table,
        _lengths,
        pages_per_compute_block=2,
        k_splits=2,
    )
    for _inline in (True, False):
        case(
            f"jax/tpu.paged_attention/{'inline' if _inline else 'grid'} {_t}",
            TPU + "paged_attention:paged_attention",
            normal(0, 2, 8, 32, dtype=_d),
            *_pages,
            _lengths,
            _table,
            pages_per_compute_block=2,
            inline_seq_dim=_inline,
            bound=2e-2,
        )
    case(
        f"jax/tpu.paged_attention/soft cap {_t}",
        TPU + "paged_attention:paged_attention",
        normal(0, 2, 8, 32, dtype=_d),
        *_pages,
        _lengths,
        _table,
        pages_per_compute_block=2,
        attn_logits_soft_cap=3.0,
        bound=2e-2,
    )
    _ragged = (
        normal(0, 24, 4, 128, dtype=_d),
        normal(1, 16, 8, 4, 128, dtype=_d),
        const([20, 13, 30]),
        ints(2, 0, 16, 3, 4),
        const([0, 10, 13, 24]),
        const([3]),
    )
    for _what, _more in {"plain": {}, "window": dict(sliding_window=7), "soft cap": dict(soft_cap=5.0)}.items():
        case(
            f"jax/tpu.ragged_paged_attention/{_what} {_t}",
            TPU + "ragged_paged_attention:ragged_paged_attention",
            *_ragged,
            sm_scale=0.1,
            num_kv_pages_per_block=2,
            num_queries_per_block=8,
            reference=TPU + "ragged_paged_attention:ref_ragged_paged_attention",
            **_more,
        )
    _gmm = normal(0, 64, 24, dtype=_d), normal(1, 4, 24, 16, dtype=_d), const([10, 0, 33, 21])
    for _g, _w in (("", ""), (GRAD, " grad")):
        case(f"jax/tpu.megablox/{_t}{_w}", _g + TPU + "megablox.ops:gmm", *_gmm, "float32", (16, 8, 8))
    case(
        f"jax/tpu.matmul/{_t}",
        TPU + "matmul:matmul",
        normal(0, 64, 48, dtype=_d),
        normal(1, 48, 32, dtype=_d),
        block_shape=(32, 16),
        block_k=16,
    )


def _quantized(seed, dtype):
    def make():
        pages = normal(seed, 2, 8, 8, 32).make()
        return load(TPU + "paged_attention.quantization_utils:quantize_to_int8")(pages)

    return Later(make)


def _quantized_paged(q, k, v, lengths, table, **kwargs):
    utils, attention = importlib.import_module(TPU + "paged_attention.quantization_utils"), load(
        TPU + "paged_attention:paged_attention"
    )
    return attention(q, utils.QuantizedTensor(*k), utils.QuantizedTensor(*v), lengths, table, **kwargs)


case(
    "jax/tpu.paged_attention/int8 pages",
    Later(lambda: _quantized_paged),
    normal(0, 2, 8, 32),
    _quantized(1, "int8"),
    _quantized(2, "int8"),
    const([9, 30]),
    const([[3, 1, 6, 0], [5, 2, 7, 4]]),
    pages_per_compute_block=2,
    bound=2e-2,
)
