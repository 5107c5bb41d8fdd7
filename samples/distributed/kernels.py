"""The Pallas kernels of a transformer's training step, forward and backward, as functions that JAX differentiates.

Each takes arrays of any size: blocks that hang over an array's end are masked where their contents would count. Arrays
are float32.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

f32 = jnp.float32
ROWS, TILE, KEYS = 32, 64, 32  # rows of a norm's block, sides of a product's blocks, queries and keys of attention's


def _shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, f32)


def _inside(block, axis, start, size):
    """The block with zeros where its positions along `axis`, from `start` on, are not below `size`."""
    at = start + lax.broadcasted_iota(jnp.int32, block.shape, axis)
    return jnp.where(at < size, block, 0)


# Products


def _product_kernel(a_ref, b_ref, o_ref, sum_ref, *, contract, size):
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    start = step * a_ref.shape[contract[0]]
    a = _inside(a_ref[...], contract[0], start, size)
    b = _inside(b_ref[...], contract[1], start, size)
    sum_ref[...] += lax.dot_general(a, b, (((contract[0],), (contract[1],)), ((), ())), preferred_element_type=f32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = sum_ref[...]


def _product(a, b, contract):
    """The product of two matrices that sums over dim contract[0] of a and contract[1] of b."""
    rows, size, columns = a.shape[1 - contract[0]], a.shape[contract[0]], b.shape[1 - contract[1]]
    tm, tk, tn = min(TILE, rows), min(TILE, size), min(TILE, columns)
    a_spec = (
        pl.BlockSpec((tm, tk), lambda i, j, k: (i, k))
        if contract[0] == 1
        else pl.BlockSpec((tk, tm), lambda i, j, k: (k, i))
    )
    b_spec = (
        pl.BlockSpec((tk, tn), lambda i, j, k: (k, j))
        if contract[1] == 0
        else pl.BlockSpec((tn, tk), lambda i, j, k: (j, k))
    )
    return pl.pallas_call(
        functools.partial(_product_kernel, contract=contract, size=size),
        out_shape=_shape(rows, columns),
        grid=(pl.cdiv(rows, tm), pl.cdiv(columns, tn), pl.cdiv(size, tk)),
        in_specs=[a_spec, b_spec],
        out_specs=pl.BlockSpec((tm, tn), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((tm, tn), f32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name="product",
    )(a, b)


@jax.custom_vjp
def matmul(a, b):
    """a [m, k] times b [k, n]."""
    return _product(a, b, (1, 0))


matmul.defvjp(
    lambda a, b: (_product(a, b, (1, 0)), (a, b)),
    lambda ab, g: (_product(g, ab[1], (1, 1)), _product(ab[0], g, (0, 0))),
)


# Root mean square norm


def _norm_kernel(x_ref, w_ref, o_ref, *, epsilon):
    x = x_ref[...]
    o_ref[...] = x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + epsilon) * w_ref[...]


def _norm_gradient_kernel(x_ref, w_ref, g_ref, dx_ref, dw_ref, *, epsilon, rows):
    start = pl.program_id(0) * x_ref.shape[0]
    x, g = _inside(x_ref[...], 0, start, rows), _inside(g_ref[...], 0, start, rows)
    scale = lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + epsilon)
    gw = g * w_ref[...]
    dx_ref[...] = scale * gw - x * scale**3 * jnp.mean(x * gw, axis=1, keepdims=True)

    @pl.when(pl.program_id(0) == 0)
    def _():
        dw_ref[...] = jnp.zeros_like(dw_ref)

    dw_ref[...] += jnp.sum(g * x * scale, axis=0, keepdims=True)


def _norm_specs(x):
    rows, width = x.shape
    block = min(ROWS, rows)
    return (
        (pl.cdiv(rows, block),),
        pl.BlockSpec((block, width), lambda i: (i, 0)),
        pl.BlockSpec((1, width), lambda i: (0, 0)),
    )


def _norm_forward(x, weight, epsilon):
    grid, of_x, of_w = _norm_specs(x)
    return pl.pallas_call(
        functools.partial(_norm_kernel, epsilon=epsilon),
        out_shape=_shape(*x.shape),
        grid=grid,
        in_specs=[of_x, of_w],
        out_specs=of_x,
        name="rms_norm",
    )(x, weight[None])


def _norm_backward(epsilon, residuals, g):
    x, weight = residuals
    grid, of_x, of_w = _norm_specs(x)
    dx, dw = pl.pallas_call(
        functools.partial(_norm_gradient_kernel, epsilon=epsilon, rows=x.shape[0]),
        out_shape=[_shape(*x.shape), _shape(1, x.shape[1])],
        grid=grid,
        in_specs=[of_x, of_w, of_x],
        out_specs=[of_x, of_w],
        name="rms_norm_gradient",
    )(x, weight[None], g)
    return dx, dw[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x, weight, epsilon=1e-6):
    """The rows of x [n, width] divided by the root of their mean square, times weight [width] (Zhang and Sennrich,
    2019)."""
    return _norm_forward(x, weight, epsilon)


rms_norm.defvjp(lambda x, weight, epsilon: (_norm_forward(x, weight, epsilon), (x, weight)), _norm_backward)


# The gate of an MLP


def _gate_kernel(a_ref, b_ref, o_ref):
    a = a_ref[...]
    o_ref[...] = a * jax.nn.sigmoid(a) * b_ref[...]


def _gate_gradient_kernel(a_ref, b_ref, g_ref, da_ref, db_ref):
    a, b, g = a_ref[...], b_ref[...], g_ref[...]
    s = jax.nn.sigmoid(a)
    da_ref[...] = g * b * s * (1 + a * (1 - s))
    db_ref[...] = g * a * s


def _elementwise(kernel, outputs, name, *arrays):
    rows, width = arrays[0].shape
    block = (min(ROWS, rows), min(4 * TILE, width))
    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        out_shape=[_shape(rows, width)] * outputs,
        grid=(pl.cdiv(rows, block[0]), pl.cdiv(width, block[1])),
        in_specs=[spec] * len(arrays),
        out_specs=[spec] * outputs,
        name=name,
    )(*arrays)


@jax.custom_vjp
def gated(a, b):
    """silu(a) * b, of matrices (SwiGLU: Shazeer, 2020)."""
    return _elementwise(_gate_kernel, 1, "gated", a, b)[0]


gated.defvjp(
    lambda a, b: (gated(a, b), (a, b)),
    lambda ab, g: tuple(_elementwise(_gate_gradient_kernel, 2, "gated_gradient", *ab, g)),
)


# Causal attention, without the matrix of all scores (Dao, 2023: forward and backward over blocks of keys)


def _scores(q_ref, k_ref, scale, size, i, j):
    """The queries and the keys, zeros where there are none, and their scores, -inf where a key is later than the query
    or either does not exist."""
    rows, columns = q_ref.shape[1], k_ref.shape[1]
    q = _inside(q_ref[0], 0, i * rows, size)
    k = _inside(k_ref[0], 0, j * columns, size)
    row = i * rows + lax.broadcasted_iota(jnp.int32, (rows, columns), 0)
    column = j * columns + lax.broadcasted_iota(jnp.int32, (rows, columns), 1)
    s = lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=f32) * scale
    return q, k, jnp.where((column <= row) & (row < size), s, -jnp.inf)


def _attention_kernel(q_ref, k_ref, v_ref, o_ref, lse_ref, most_ref, sum_ref, acc_ref, *, scale, size):
    i, j = pl.program_id(1), pl.program_id(2)

    @pl.when(j == 0)
    def _():
        most_ref[...] = jnp.full_like(most_ref, -1e30)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(j * k_ref.shape[1] < (i + 1) * q_ref.shape[1])  # some key is not later than some query
    def _():
        _, _, s = _scores(q_ref, k_ref, scale, size, i, j)
        most = jnp.maximum(most_ref[...], jnp.max(s, axis=1, keepdims=True))
        p = jnp.exp(s - most)
        shrink = jnp.exp(most_ref[...] - most)
        sum_ref[...] = sum_ref[...] * shrink + jnp.sum(p, axis=1, keepdims=True)
        v = _inside(v_ref[0], 0, j * v_ref.shape[1], size)
        acc_ref[...] = acc_ref[...] * shrink + lax.dot_general(
            p, v, (((1,), (0,)), ((), ())), preferred_element_type=f32
        )
        most_ref[...] = most

    @pl.when(j == pl.num_programs(2) - 1)
    def _():
        o_ref[0] = acc_ref[...] / sum_ref[...]
        lse_ref[0] = most_ref[...] + jnp.log(sum_ref[...])


def _weights(q_ref, k_ref, v_ref, g_ref, lse_ref, delta_ref, scale, size, i, j):
    """The block's weights of attention and the gradient of its scores, with what they are products of."""
    q, k, s = _scores(q_ref, k_ref, scale, size, i, j)
    v = _inside(v_ref[0], 0, j * k_ref.shape[1], size)
    g, lse, delta = (_inside(r[0], 0, i * q_ref.shape[1], size) for r in (g_ref, lse_ref, delta_ref))
    p = jnp.exp(s - lse)
    dp = lax.dot_general(g, v, (((1,), (1,)), ((), ())), preferred_element_type=f32)
    return q, k, g, p, p * (dp - delta) * scale


def _queries_gradient_kernel(q_ref, k_ref, v_ref, g_ref, lse_ref, delta_ref, dq_ref, acc_ref, *, scale, size):
    i, j = pl.program_id(1), pl.program_id(2)

    @pl.when(j == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(j * k_ref.shape[1] < (i + 1) * q_ref.shape[1])
    def _():
        _, k, _, _, ds = _weights(q_ref, k_ref, v_ref, g_ref, lse_ref, delta_ref, scale, size, i, j)
        acc_ref[...] += lax.dot_general(ds, k, (((1,), (0,)), ((), ())), preferred_element_type=f32)

    @pl.when(j == pl.num_programs(2) - 1)
    def _():
        dq_ref[0] = acc_ref[...]


def _keys_gradient_kernel(
    q_ref, k_ref, v_ref, g_ref, lse_ref, delta_ref, dk_ref, dv_ref, dk_acc_ref, dv_acc_ref, *, scale, size
):
    j, i = pl.program_id(1), pl.program_id(2)

    @pl.when(i == 0)
    def _():
        dk_acc_ref[...] = jnp.zeros_like(dk_acc_ref)
        dv_acc_ref[...] = jnp.zeros_like(dv_acc_ref)

    @pl.when(j * k_ref.shape[1] < (i + 1) * q_ref.shape[1])
    def _():
        q, _, g, p, ds = _weights(q_ref, k_ref, v_ref, g_ref, lse_ref, delta_ref, scale, size, i, j)
        dk_acc_ref[...] += lax.dot_general(ds, q, (((0,), (0,)), ((), ())), preferred_element_type=f32)
        dv_acc_ref[...] += lax.dot_general(p, g, (((0,), (0,)), ((), ())), preferred_element_type=f32)

    @pl.when(i == pl.num_programs(2) - 1)
    def _():
        dk_ref[0] = dk_acc_ref[...]
        dv_ref[0] = dv_acc_ref[...]


def _attention_call(kernel, name, arrays, by_query, outputs, scratch):
    """`by_query`: what the second axis of the grid counts; the third, over which sums are kept, counts the other. An
    array is given with its width and whether it belongs to queries."""
    heads, size = arrays[0][0].shape[:2]
    block = min(KEYS, size)

    def spec(width, of_query):
        second = of_query == by_query
        return pl.BlockSpec((1, block, width), lambda h, a, b: (h, a if second else b, 0))

    blocks = pl.cdiv(size, block)
    return pl.pallas_call(
        functools.partial(kernel, size=size),
        grid=(heads, blocks, blocks),
        out_shape=[_shape(heads, size, width) for width in outputs],
        in_specs=[spec(a.shape[2], of_query) for a, of_query in arrays],
        out_specs=[spec(width, by_query) for width in outputs],
        scratch_shapes=[pltpu.VMEM((block, width), f32) for width in scratch],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name=name,
    )(*(a for a, _ in arrays))


def _attention_forward(q, k, v):
    width = q.shape[2]
    kernel = functools.partial(_attention_kernel, scale=width**-0.5)
    o, lse = _attention_call(kernel, "attention", [(q, True), (k, False), (v, False)], True, [width, 1], [1, 1, width])
    return o, (q, k, v, o, lse)


def _attention_backward(residuals, g):
    q, k, v, o, lse = residuals
    width = q.shape[2]
    delta = jnp.sum(g * o, axis=2, keepdims=True)
    arrays = [(q, True), (k, False), (v, False), (g, True), (lse, True), (delta, True)]
    scaled = lambda kernel: functools.partial(kernel, scale=width**-0.5)
    (dq,) = _attention_call(
        scaled(_queries_gradient_kernel), "attention_gradient_of_queries", arrays, True, [width], [width]
    )
    dk, dv = _attention_call(
        scaled(_keys_gradient_kernel), "attention_gradient_of_keys", arrays, False, [width, width], [width, width]
    )
    return dq, dk, dv


@jax.custom_vjp
def attention(q, k, v):
    """Causal attention of [heads, length, width] each: softmax(q k^T / sqrt(width)) v."""
    return _attention_forward(q, k, v)[0]


attention.defvjp(_attention_forward, _attention_backward)


# The loss, of logits whose columns are divided among processes


def _row_statistics_kernel(x_ref, label_ref, most_ref, sum_ref, picked_ref, *, columns):
    j, width = pl.program_id(1), x_ref.shape[1]

    @pl.when(j == 0)
    def _():
        most_ref[...] = jnp.full_like(most_ref, -1e30)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        picked_ref[...] = jnp.zeros_like(picked_ref)

    at = j * width + lax.broadcasted_iota(jnp.int32, x_ref.shape, 1)
    x = jnp.where(at < columns, x_ref[...], -jnp.inf)
    most = jnp.maximum(most_ref[...], jnp.max(x, axis=1, keepdims=True))
    sum_ref[...] = sum_ref[...] * jnp.exp(most_ref[...] - most) + jnp.sum(jnp.exp(x - most), axis=1, keepdims=True)
    picked_ref[...] += jnp.sum(jnp.where((at == label_ref[...]) & (at < columns), x, 0), axis=1, keepdims=True)
    most_ref[...] = most


def _loss_gradient_kernel(x_ref, label_ref, lse_ref, scale_ref, dx_ref):
    at = pl.program_id(1) * x_ref.shape[1] + lax.broadcasted_iota(jnp.int32, x_ref.shape, 1)
    dx_ref[...] = (jnp.exp(x_ref[...] - lse_ref[...]) - jnp.where(at == label_ref[...], 1.0, 0.0)) * scale_ref[...]


def _loss_specs(logits):
    rows, columns = logits.shape
    block = (min(ROWS, rows), min(2 * TILE, columns))
    return (
        (pl.cdiv(rows, block[0]), pl.cdiv(columns, block[1])),
        pl.BlockSpec(block, lambda i, j: (i, j)),
        pl.BlockSpec((block[0], 1), lambda i, j: (i, 0)),
    )


def row_statistics(logits, labels):
    """Per row of logits [n, columns]: the largest one, the sum of exp(logit - that), and the logit of column
    labels[row], 0 where there is no such column."""
    grid, wide, narrow = _loss_specs(logits)
    most, total, picked = pl.pallas_call(
        functools.partial(_row_statistics_kernel, columns=logits.shape[1]),
        out_shape=[_shape(logits.shape[0], 1)] * 3,
        grid=grid,
        in_specs=[wide, narrow],
        out_specs=[narrow] * 3,
        name="row_statistics",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(logits, labels[:, None])
    return most[:, 0], total[:, 0], picked[:, 0]


def loss_gradient(logits, labels, lse, scale):
    """(softmax - one at the label) * scale, with lse [n] the logarithm of the sum of exp over all columns, of all
    processes."""
    grid, wide, narrow = _loss_specs(logits)
    one = pl.BlockSpec((1, 1), lambda i, j: (0, 0))
    return pl.pallas_call(
        _loss_gradient_kernel,
        out_shape=_shape(*logits.shape),
        grid=grid,
        in_specs=[wide, narrow, narrow, one],
        out_specs=wide,
        name="loss_gradient",
    )(logits, labels[:, None], lse[:, None], scale[None, None])


# The optimiser


def _adam_kernel(rate_ref, p_ref, m_ref, v_ref, g_ref, new_p_ref, new_m_ref, new_v_ref, *, b1, b2, epsilon):
    g = g_ref[...]
    m, v = b1 * m_ref[...] + (1 - b1) * g, b2 * v_ref[...] + (1 - b2) * g * g
    new_m_ref[...], new_v_ref[...] = m, v
    new_p_ref[...] = p_ref[...] - rate_ref[0] * m / (jnp.sqrt(v * rate_ref[1]) + epsilon)


def adam(p, m, v, g, step, rate=3e-3, b1=0.9, b2=0.99, epsilon=1e-8):
    """The parameters and both moments after step number `step`, from 1 on (Kingma and Ba, 2015); all are vectors."""
    rates = jnp.stack([rate / (1 - b1**step), 1 / (1 - b2**step)]).astype(f32)
    block = min(4096, p.shape[0])
    spec = pl.BlockSpec((block,), lambda i: (i,))
    return pl.pallas_call(
        functools.partial(_adam_kernel, b1=b1, b2=b2, epsilon=epsilon),
        out_shape=[_shape(*p.shape)] * 3,
        grid=(pl.cdiv(p.shape[0], block),),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)] + [spec] * 4,
        out_specs=[spec] * 3,
        input_output_aliases={1: 0, 2: 1, 3: 2},
        name="adam",
    )(rates, p, m, v, g)
