"""A small language model of which each process holds a part: its share of the heads, of the MLP's columns and of the
vocabulary's logits.

`loss` is what one process computes, on its part of the parameters and of the batch, with the kernels of kernels.py.
`reference_loss` is the same model by jax.numpy, whole, to compare with. `specs` says along which dim each parameter is
divided.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import kernels
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

# the mesh's axes: processes along "data" see other texts, along "model" hold other parts of the parameters
DATA, MODEL = "data", "model"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 2
    width: int = 64
    heads: int = 4
    hidden: int = 192  # columns of the MLP
    vocabulary: int = 256

    @property
    def head_width(self):
        return self.width // self.heads


_LAYER = {
    "attention_norm": P(),
    "wq": P(None, MODEL),
    "wk": P(None, MODEL),
    "wv": P(None, MODEL),
    "wo": P(MODEL, None),
    "mlp_norm": P(),
    "gate": P(None, MODEL),
    "up": P(None, MODEL),
    "down": P(MODEL, None),
}


def specs(config):
    return {
        "embedding": P(),
        "norm": P(),
        "head": P(None, MODEL),
        **{f"layers.{i}.{name}": spec for i in range(config.layers) for name, spec in _LAYER.items()},
    }


def parameters(config, seed):
    """All of them, the same in every process: name to a NumPy array."""
    random = np.random.default_rng(seed % 2**32)
    w, h = config.width, config.hidden
    shapes = {
        "wq": (w, w),
        "wk": (w, w),
        "wv": (w, w),
        "wo": (w, w),
        "gate": (w, h),
        "up": (w, h),
        "down": (h, w),
        "head": (w, config.vocabulary),
    }

    def made(name):
        kind = name.split(".")[-1]
        if kind.endswith("norm"):
            return np.ones(w, np.float32)
        if kind == "embedding":
            return random.normal(size=(config.vocabulary, w)).astype(np.float32)
        return (random.normal(size=shapes[kind]) / np.sqrt(shapes[kind][0])).astype(np.float32)

    return {name: made(name) for name in specs(config)}


def rotated(x):
    """Rotary positions (Su et al., 2021) of [texts, length, heads, width]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None].astype(x.dtype), jnp.sin(angle)[:, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


# What the processes of one copy of the model exchange (Shoeybi et al., 2019): where an activation that all of them hold
# enters a product by divided columns, its gradient is the sum of theirs; where a product by divided rows leaves, its
# result is.

# bytes that a process gives to sums and maxima over each axis; counted while a step is traced
traffic = {DATA: 0, MODEL: 0}


def over(reduction, x, axis):
    if lax.axis_size(axis) > 1:
        traffic[axis] += x.size * x.dtype.itemsize
    return reduction(x, axis)


@jax.custom_vjp
def enter(x):
    return x


enter.defvjp(lambda x: (x, None), lambda _, g: (over(lax.psum, g, MODEL),))


@jax.custom_vjp
def leave(x):
    return over(lax.psum, x, MODEL)


leave.defvjp(lambda x: (over(lax.psum, x, MODEL), None), lambda _, g: (g,))


def _loss_forward(logits, labels):
    labels = labels - lax.axis_index(MODEL) * logits.shape[1]
    most, sums, picked = kernels.row_statistics(logits, labels)
    top = over(lax.pmax, most, MODEL)
    both = over(lax.psum, jnp.stack([sums * jnp.exp(most - top), picked]), MODEL)
    lse = jnp.log(both[0]) + top
    return jnp.mean(lse - both[1]), (logits, labels, lse)


def _loss_backward(residuals, g):
    logits, labels, lse = residuals
    return kernels.loss_gradient(logits, labels, lse, g / logits.shape[0]), None


@jax.custom_vjp
def cross_entropy(logits, labels):
    """The mean of -log softmax at the labels, with each process's part of the columns."""
    return _loss_forward(logits, labels)[0]


cross_entropy.defvjp(_loss_forward, _loss_backward)


def loss(p, tokens, labels, config):
    """One process's: `p` its part of the parameters, tokens and labels [texts, length] those of its copy of the
    model."""
    texts, length = tokens.shape
    x = p["embedding"][tokens].reshape(texts * length, config.width)

    def heads(h, w):
        return kernels.matmul(h, w).reshape(texts, length, -1, config.head_width)

    def by_head(y):
        return y.transpose(0, 2, 1, 3).reshape(-1, length, config.head_width)

    for i in range(config.layers):
        w = {name: p[f"layers.{i}.{name}"] for name in _LAYER}
        h = enter(kernels.rms_norm(x, w["attention_norm"]))
        o = kernels.attention(
            by_head(rotated(heads(h, w["wq"]))), by_head(rotated(heads(h, w["wk"]))), by_head(heads(h, w["wv"]))
        )
        o = o.reshape(texts, -1, length, config.head_width).transpose(0, 2, 1, 3).reshape(texts * length, -1)
        x = x + leave(kernels.matmul(o, w["wo"]))
        h = enter(kernels.rms_norm(x, w["mlp_norm"]))
        x = x + leave(
            kernels.matmul(kernels.gated(kernels.matmul(h, w["gate"]), kernels.matmul(h, w["up"])), w["down"])
        )
    logits = kernels.matmul(enter(kernels.rms_norm(x, p["norm"])), p["head"])
    return cross_entropy(logits, labels.reshape(-1))


def reference_loss(p, tokens, labels, config):
    """The same model, whole, without kernels, in the parameters' dtype."""
    texts, length = tokens.shape
    product = functools.partial(jnp.matmul, precision="highest")

    def norm(x, weight):
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * weight

    x = p["embedding"][tokens]
    for i in range(config.layers):
        w = {name: p[f"layers.{i}.{name}"] for name in _LAYER}
        h = norm(x, w["attention_norm"])
        q, k, v = (
            product(h, w[name]).reshape(texts, length, config.heads, config.head_width) for name in ("wq", "wk", "wv")
        )
        scores = jnp.einsum("tqhd,tkhd->thqk", rotated(q), rotated(k), precision="highest") / config.head_width**0.5
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf), -1)
        o = jnp.einsum("thqk,tkhd->tqhd", weights, v, precision="highest").reshape(texts, length, config.width)
        x = x + product(o, w["wo"])
        h = norm(x, w["mlp_norm"])
        x = x + product(jax.nn.silu(product(h, w["gate"])) * product(h, w["up"]), w["down"])
    logits = jax.nn.log_softmax(product(norm(x, p["norm"]), p["head"]), -1)
    return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))
