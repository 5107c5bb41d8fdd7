"""Primitives of JAX that are written down as others: each function here computes, in terms of jax.lax, what the
primitive of its name does.

    EXPANSIONS[name](params, *operands)    # traced by equations.py, where they take the primitive's place

Windows (pooling, convolution) become one strided slice per position of the window, general reductions a tree over the
combining function, and the special functions are in special.py or JAX's own.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core, source_info_util
from jax._src.lax import lax as lax_internal
from jax._src.lax import special as jax_special
from jax._src.pallas.mosaic import random as tpu_random
from jax._src.random import prng

from tessera import jax_versions, special

source_info_util.register_exclusion(__file__)  # lines are the user's


# -- random keys


def _random_bits(p, key):
    impl = key.dtype._impl
    if tpu_random.is_pallas_impl(impl):
        return impl.random_bits(key, p["bit_width"], p["shape"]).astype(np.uint32)
    return prng.random_bits_impl_base(
        impl, prng.random_unwrap(key), key.ndim, bit_width=p["bit_width"], shape=p["shape"]
    )


def _random_seed(p, seeds):
    return prng.random_seed_impl_base(seeds, impl=p["impl"]).astype(np.uint32)


def _random_fold_in(p, key, message):
    impl = key.dtype._impl
    if tpu_random.is_pallas_impl(impl):
        return impl.fold_in(key, message)
    return prng.random_fold_in_impl_base(impl, prng.random_unwrap(key), message, key.shape)


def _random_split(p, key):
    impl = key.dtype._impl
    return prng.random_split_impl_base(impl, prng.random_unwrap(key), key.ndim, shape=p["shape"])


# What moves elements about, or compares them, and so does to keys what it does to their words.
# fmt: off
MOVES = {
    "broadcast_in_dim", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice", "eq", "gather", "ne", "reshape",
    "rev", "scatter", "select_n", "slice", "split", "squeeze", "stack", "tile", "transpose", "unstack",
}
# fmt: on


def rounded_to(x, dtype):
    """x converted to a dtype of 2, 4 or 8 bits that kernels lack, as values of the wider one that they have."""
    if dtype.name in ("int2", "uint2"):
        least, most = (-2, 1) if dtype.name == "int2" else (0, 3)
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = jnp.clip(jnp.nan_to_num(x.astype(jnp.float32), nan=0.0), least, most)
        return lax.shift_right_arithmetic(x.astype(jnp.int8) << 6, np.int8(6)) if least else x.astype(jnp.uint8) & 3
    if dtype.name == "float8_e8m0fnu":
        raise NotImplementedError("kernels load, store and move float8_e8m0fnu, but make none")
    info, x = jnp.finfo(dtype), x.astype(jnp.float32)
    most = float(info.max)
    if dtype.name == "float4_e2m1fn":  # no infinities and no NaN
        x = jnp.where(x == x, jnp.clip(x, -most, most), -0.0)
    exponent = jnp.maximum((lax.bitcast_convert_type(x, jnp.int32) >> 23 & 255) - 127, int(info.minexp)) - int(
        info.nmant
    )
    power = lambda n: lax.bitcast_convert_type(n + 127 << 23, jnp.float32)  # noqa: E731
    y = lax.round(x * power(-exponent), lax.RoundingMethod.TO_NEAREST_EVEN) * power(exponent)
    y = jnp.where(jnp.abs(y) > most, jnp.sign(x) * jnp.inf, y)
    y = jnp.where(jnp.isfinite(x), y, x)
    if dtype.name.endswith("fnuz"):  # no infinities and one zero
        y = jnp.where(y == 0, 0.0, jnp.where(jnp.isfinite(y), y, jnp.nan))
    return y.astype(jnp.bfloat16)


def on_words(primitive, params, ranks):
    """Of operands with that many dims of words at their ends (0: no keys)."""
    f = functools.partial(primitive.bind, **params)
    for _ in range(max(ranks)):
        f = jax.vmap(f, in_axes=tuple(-1 if r else None for r in ranks), out_axes=-1)
    if primitive.name not in ("eq", "ne"):
        return f
    words = tuple(range(-max(ranks), 0))
    return lambda *xs: (jnp.all if primitive.name == "eq" else jnp.any)(f(*xs), axis=words)


# -- order


def _order(x):
    """An integer per element that orders as JAX's total order does: -NaN, -inf ... -0, 0 ... inf, NaN."""
    if not jnp.issubdtype(x.dtype, np.floating):
        return x
    bits = lax.bitcast_convert_type(x, np.dtype(f"i{x.dtype.itemsize}"))
    return jnp.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _descending(x):
    return ~_order(x)


def _first(key, x, k, axis):
    """The k elements of x with the least keys, and their positions."""
    _, values, indices = lax.sort(
        (key, x, lax.broadcasted_iota(np.int32, x.shape, axis)), dimension=axis, num_keys=1, is_stable=True
    )
    return lax.slice_in_dim(values, 0, k, axis=axis), lax.slice_in_dim(indices, 0, k, axis=axis)


def _top_k(p, x):
    return _first(_descending(x), x, p["k"], p.get("axis", x.ndim - 1))


def _approx_top_k(p, x):
    if not p["aggregate_to_topk"]:
        raise NotImplementedError("results that are not aggregated are a TPU's")
    return _first(_descending(x) if p["is_max_k"] else _order(x), x, p["k"], p["reduction_dimension"] % x.ndim)


# -- reductions and windows


def _function(jaxpr, consts=()):
    jaxpr, own = jax_versions.jaxpr_and_constants(jaxpr)
    return lambda *args: core.eval_jaxpr(jaxpr, own or consts, *args)


def _elementwise(jaxpr, consts=()):
    """A function of two lists of arrays from a jaxpr of two lists of scalars."""
    f = _function(jaxpr, consts)

    def combine(a, b):
        shape = jnp.broadcast_shapes(*(x.shape for x in (*a, *b)))
        flat = [jnp.broadcast_to(x, shape).reshape(-1) for x in (*a, *b)]
        return [y.reshape(shape) for y in jax.vmap(f)(*flat)]

    return combine


def _tree(combine, operands, inits, axes):
    """Neighbours are combined until one is left, so that the order stays; the initial value comes once, and not at all
    where there are no axes."""
    if not axes:
        return list(operands)
    rest = [d for d in range(operands[0].ndim) if d not in axes]
    shape = [operands[0].shape[d] for d in rest]
    count = int(np.prod([operands[0].shape[d] for d in axes], dtype=np.int64))
    if count:
        xs = [lax.reshape(lax.transpose(x, (*axes, *rest)), (count, *shape)) for x in operands]
    else:
        return [jnp.broadcast_to(i, shape) for i in inits]
    while count > 1:
        half = count // 2
        first, second = ([lax.slice_in_dim(x, k, 2 * half, stride=2) for x in xs] for k in (0, 1))
        joined = combine(first, second)
        xs = [
            lax.concatenate([y, lax.slice_in_dim(x, 2 * half, count)], 0) if count % 2 else y
            for x, y in zip(xs, joined)
        ]
        count = half + count % 2
    xs = [lax.squeeze(x, (0,)) for x in xs]
    return combine([jnp.broadcast_to(i, shape) for i in inits], xs)


def _reduce(p, *args):
    n = len(args) // 2
    return tuple(_tree(_elementwise(p["jaxpr"]), args[:n], args[n:], tuple(p["dimensions"])))


def _reduce_xor(p, x):
    return _tree(lambda a, b: [a[0] ^ b[0]], [x], [jnp.zeros((), x.dtype)], tuple(p["axes"]))[0]


def _pieces(p, x, fill):
    """The elements of x that the windows' positions take, one array of all windows per position, with their places in
    the padded x."""
    rank = x.ndim
    base, window = p.get("base_dilation") or (1,) * rank, p.get("window_dilation") or (1,) * rank
    padded = lax.pad(x, fill, [(low, high, d - 1) for (low, high), d in zip(p["padding"], base)])
    out = [
        max(0, (n - (w - 1) * d - 1) // s + 1) if w else 0
        for n, w, d, s in zip(padded.shape, p["window_dimensions"], window, p["window_strides"])
    ]
    for at in itertools.product(*(range(w) for w in p["window_dimensions"])):
        starts = [a * d for a, d in zip(at, window)]
        if 0 in out:
            yield starts, padded.shape, jnp.zeros(out, x.dtype)
        else:
            limits = [b + (n - 1) * s + 1 for b, n, s in zip(starts, out, p["window_strides"])]
            yield starts, padded.shape, lax.slice(padded, starts, limits, p["window_strides"])


def _windows(p, combine, operands, inits):
    shape_of = [[piece for _, _, piece in _pieces(p, x, i)] for x, i in zip(operands, inits)]
    pieces = list(zip(*shape_of))
    total = [jnp.broadcast_to(i, x.shape) for i, x in zip(inits, pieces[0])]
    for piece in pieces:
        total = combine(total, list(piece))
    return tuple(total)


def _reduce_window(p, *args):
    n = len(args) // 2
    return _windows(p, _elementwise(p["jaxpr"], p["consts"]), args[:n], args[n:])


def _least(dtype):
    return np.array(
        -np.inf if jnp.issubdtype(dtype, np.floating) else False if dtype == np.bool_ else np.iinfo(dtype).min
    ).astype(dtype)


def _greatest(dtype):
    return np.array(
        np.inf if jnp.issubdtype(dtype, np.floating) else True if dtype == np.bool_ else np.iinfo(dtype).max
    ).astype(dtype)


def _reduce_window_of(f, init):
    return lambda p, x: _windows(p, lambda a, b: [f(a[0], b[0])], [x], [init(x.dtype)])[0]


def _selected(p, keys, values):
    """Per window the value at the position whose key is chosen, the first of equals as JAX compares."""
    fill = _least(keys.dtype) if p["select_prim"].name == "ge" else _greatest(keys.dtype)
    best = value = None
    for (_, _, key), v in zip(_pieces(p, keys, fill), values):
        if best is None:
            best, value = key, v
        else:
            stays = p["select_prim"].bind(best, key)
            best, value = jnp.where(stays, best, key), jnp.where(stays, value, v)
    return value


def _select_and_gather_add(p, tangents, operand):
    zero = np.zeros((), tangents.dtype)
    return _selected(p, operand, [piece for _, _, piece in _pieces(p, tangents, zero)])


def _select_and_scatter_add(p, source, operand):
    fill = np.zeros((), operand.dtype)
    places = [(starts, shape) for starts, shape, _ in _pieces(p, operand, fill)]
    chosen = _selected(p, operand, [jnp.full(source.shape, k, np.int32) for k in range(len(places))])
    zero, total = np.zeros((), source.dtype), 0
    for k, (starts, shape) in enumerate(places):
        here = jnp.where(chosen == k, source, zero)
        ends = [
            n - b - (m - 1) * stride - 1 for n, b, m, stride in zip(shape, starts, source.shape, p["window_strides"])
        ]
        total = total + lax.pad(
            here, zero, [(b, e, stride - 1) for b, e, stride in zip(starts, ends, p["window_strides"])]
        )
    return lax.pad(total, zero, [(-low, -high, 0) for low, high in p["padding"]])


# -- products


def _conv(p, x, w):
    """A product per position of the window, of its strided slice of x and its matrix of w, summed in f32 where the
    result is narrower."""
    d = p["dimension_numbers"]
    x, w = lax.transpose(x, d.lhs_spec), lax.transpose(w, d.rhs_spec)
    groups, batches = p["feature_group_count"], p["batch_group_count"]
    n = max(groups, batches)
    wanted = p["preferred_element_type"] or x.dtype
    sums = np.dtype(np.float32) if jnp.issubdtype(wanted, np.floating) and np.dtype(wanted).itemsize < 4 else wanted
    x = x.reshape(batches, x.shape[0] // batches, groups, x.shape[1] // groups, *x.shape[2:])
    x = lax.squeeze(x, (0,)) if groups > 1 else lax.squeeze(x, (2,))
    if groups > 1:
        x = jnp.moveaxis(x, 1, 0)
    w = w.reshape(n, w.shape[0] // n, *w.shape[1:])  # [n, features, channels, window]
    windows = {
        "window_dimensions": (1, 1, 1, *w.shape[3:]),
        "window_strides": (1, 1, 1, *p["window_strides"]),
        "padding": ((0, 0),) * 3 + tuple(p["padding"]),
        "base_dilation": (1, 1, 1, *p["lhs_dilation"]),
        "window_dilation": (1, 1, 1, *p["rhs_dilation"]),
    }
    total = None
    for at, (_, _, piece) in zip(
        itertools.product(*(range(k) for k in w.shape[3:])), _pieces(windows, x, np.zeros((), x.dtype))
    ):
        matrix = lax.squeeze(
            lax.slice(w, (0, 0, 0, *at), (*w.shape[:3], *(a + 1 for a in at))), tuple(range(3, w.ndim))
        )
        # [n, batch, out..., features]
        product = lax.dot_general(
            piece, matrix, (((2,), (2,)), ((0,), (0,))), preferred_element_type=sums, precision=p["precision"]
        )
        total = product if total is None else total + product
    rank = total.ndim
    total = lax.transpose(total, (1, 0, rank - 1, *range(2, rank - 1)))
    total = total.reshape(total.shape[0], -1, *total.shape[3:]).astype(wanted)
    return lax.transpose(total, np.argsort(d.out_spec))


def _mulhi(p, x, y):
    """The upper half of the product, by halves of words: no integer is twice as wide as all of them."""
    bits = x.dtype.itemsize * 8
    if bits < 32:
        wide = np.int32 if jnp.issubdtype(x.dtype, np.signedinteger) else np.uint32
        return (x.astype(wide) * y.astype(wide) >> bits).astype(x.dtype)
    half, mask = bits // 2, (1 << bits // 2) - 1
    unsigned = np.dtype(f"u{bits // 8}")
    a, b = x.astype(unsigned), y.astype(unsigned)
    shift, low = unsigned.type(half), unsigned.type(mask)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    high = a1 * b1 + (middle >> shift) + (a0 * b1 + (middle & low) >> shift)
    if x.dtype != unsigned:  # what a negative factor has added
        high = high - jnp.where(x < 0, b, 0).astype(unsigned) - jnp.where(y < 0, a, 0).astype(unsigned)
    return high.astype(x.dtype)


# -- updates of the user's own


def _scatter_sub(p, x, indices, updates):
    return lax.scatter_add_p.bind(x, indices, -updates, **p)


def updates_freely(p):
    """Whether a scatter combines what was there with what comes by a function of the user's."""
    jaxpr = p["update_jaxpr"] and jax_versions.jaxpr_and_constants(p["update_jaxpr"])[0]
    return bool(jaxpr) and jaxpr.outvars[0] is not jaxpr.invars[1]


def _scatter_apply(p, x, indices, updates):
    """One update at a time, since several may meet in an element."""
    d = p["dimension_numbers"]
    combine = _elementwise(p["update_jaxpr"], p["update_consts"])
    batch = [k for k in range(updates.ndim) if k not in d.update_window_dims]
    if d.operand_batching_dims:
        raise NotImplementedError("a function that combines updates under vmap is not supported")
    starts = indices.reshape(-1, indices.shape[-1])
    windows = lax.transpose(updates, (*batch, *d.update_window_dims))
    windows = windows.reshape(-1, *windows.shape[len(batch) :])
    scatter = lax.ScatterDimensionNumbers(
        tuple(range(windows.ndim - 1)), d.inserted_window_dims, d.scatter_dims_to_operand_dims
    )
    gather = lax.GatherDimensionNumbers(
        tuple(range(windows.ndim - 1)), d.inserted_window_dims, d.scatter_dims_to_operand_dims
    )
    kept = [k for k in range(x.ndim) if k not in d.inserted_window_dims]
    sizes = [1] * x.ndim
    for k, size in zip(kept, windows.shape[1:]):
        sizes[k] = size

    def one(i, y):
        at = lax.dynamic_index_in_dim(starts, i, keepdims=False)
        old = lax.gather(y, at, gather, sizes, mode="clip")
        (new,) = combine([old], [lax.dynamic_index_in_dim(windows, i, keepdims=False)])
        return lax.scatter(y, at, new, scatter, mode=p["mode"])

    return lax.fori_loop(0, windows.shape[0], one, x)


# -- calls and loops


def _over_dims(f):
    """A reduction over axes with names: under vmap they have become dims, which is all that a kernel can see of
    them."""

    def over(p, *xs):
        if any(not isinstance(a, int) for a in p["axes"]) or p["axis_index_groups"] is not None:
            raise NotImplementedError(
                "kernels cannot meet programs on other devices\n  note: call it on the results of the kernel"
            )
        return tuple(f(x, axis=p["axes"]) for x in xs)

    return over


def _linear_solve(p, *args):
    counts, n = p["const_lengths"], len(args) - sum(p["const_lengths"])
    before = counts.matvec + counts.vecmat
    solve = _function(p["jaxprs"].solve)
    return tuple(solve(*args[before : before + counts.solve], *args[len(args) - n :]))


def batched_test(p):
    """Whether a while loop goes on as long as any of several does, as vmap makes them."""
    return bool(jax_versions.jaxpr_and_constants(p["cond_jaxpr"])[0].outvars[0].aval.shape)


def _while(p, *args):
    """Each element keeps its last value once its own test has failed."""
    n, m = p["cond_nconsts"], p["body_nconsts"]
    test, body = _function(p["cond_jaxpr"]), _function(p["body_jaxpr"])
    of_test, of_body, init = args[:n], args[n : n + m], args[n + m :]

    def iteration(carry):
        (on,) = test(*of_test, *carry)
        return [
            lax.select_n(jnp.broadcast_to(on.reshape(on.shape + (1,) * (old.ndim - on.ndim)), old.shape), old, new)
            for old, new in zip(carry, body(*of_body, *carry))
        ]

    return tuple(lax.while_loop(lambda carry: jnp.any(test(*of_test, *carry)[0]), iteration, list(init)))


def _of_jax(name):
    """Asked for when needed: other versions of JAX may lack it."""
    return lambda p, *args: jax_special._up_and_broadcast(getattr(jax_special, name))(*args)


def _random_gamma(p, *args):
    from jax._src.random import core as random_core

    return random_core._gamma_impl(*args, **p)


EXPANSIONS = {
    "approx_top_k": _approx_top_k,
    "bessel_i0e": lambda p, x: special.bessel_i0e(x),
    "bessel_i1e": lambda p, x: special.bessel_i1e(x),
    "call_hi_primitive": lambda p, *args: p["_prim"].expand(*args),
    "conv_general_dilated": _conv,
    "custom_linear_solve": _linear_solve,
    "digamma": lambda p, x: special.digamma(x),
    "eq_to": lambda p, x, y: _order(x) == _order(y),
    "erfc": lambda p, x: special.erfc(x),
    "igamma": _of_jax("igamma_impl"),
    "igamma_grad_a": _of_jax("igamma_grad_a_impl"),
    "igammac": _of_jax("igammac_impl"),
    "le_to": lambda p, x, y: _order(x) <= _order(y),
    "lgamma": lambda p, x: special.lgamma(x),
    "lt_to": lambda p, x, y: _order(x) < _order(y),
    "mulhi": _mulhi,
    "pmax": _over_dims(jnp.max),
    "pmin": _over_dims(jnp.min),
    "polygamma": lambda p, m, x: special.polygamma(m, x),
    "psum": _over_dims(jnp.sum),
    "ragged_dot_general": lambda p, *args: lax_internal._ragged_dot_general_impl(*args, **p),
    "random_bits": _random_bits,
    "random_fold_in": _random_fold_in,
    "random_gamma": _random_gamma,
    "random_seed": _random_seed,
    "random_split": _random_split,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "reduce_window_max": _reduce_window_of(lax.max, _least),
    "reduce_window_min": _reduce_window_of(lax.min, _greatest),
    "reduce_window_sum": _reduce_window_of(lax.add, lambda t: np.zeros((), t)),
    "reduce_xor": _reduce_xor,
    "regularized_incomplete_beta": _of_jax("regularized_incomplete_beta_impl"),
    "scatter": _scatter_apply,
    "scatter-sub": _scatter_sub,
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter_add": _select_and_scatter_add,
    "top_k": _top_k,
    "while": _while,
    "zeta": lambda p, x, q: special.zeta(x, q),
}
# Those that are expanded only sometimes.
WHEN = {"scatter": updates_freely, "while": batched_test}


def expansion(name, params):
    """The function that computes the primitive, or None where the importer has it."""
    f = EXPANSIONS.get(name)
    return f and (functools.partial(f, params) if WHEN.get(name, lambda p: True)(params) else None)
