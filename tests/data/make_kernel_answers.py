"""Writes kernels/NAME.npy, what JAX (0.10.2, on the CPU, float64 but for what jax.nn.dot_product_attention does in
float32), and numpy.fft, say to the inputs of tests/kernels/jax_test.cpp, which makes the same numbers by the same hash.
Run by hand; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_kernel_answers.py
"""

import os

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def hashes(shape, seed):
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    x = np.uint64(seed << 32) ^ i ^ np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(32)).reshape(shape)


def random(shape, seed, scale=1.0, offset=0.0):
    """test::random of tests/kernels/support.h, for f32."""
    return (
        (offset + scale * (hashes(shape, seed).astype(np.float64) * 2.0**-31 - 1)).astype(np.float32).astype(np.float64)
    )


def integers(shape, seed, low, high):
    return low + (hashes(shape, seed) % np.uint64(high - low + 1)).astype(np.int64)


def write(name, *arrays):
    flat = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])
    np.save(os.path.join(HERE, "kernels", name + ".npy"), flat)
    print(name, flat.size)


def attention():
    q, k, v = random((2, 11, 4, 16), 1, 2), random((2, 11, 2, 16), 2, 2), random((2, 11, 2, 16), 3)
    queries, keys = np.array([11, 6], np.int32), np.array([7, 11], np.int32)
    plain = jax.nn.dot_product_attention(q, k, v)
    causal = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    ragged = jax.nn.dot_product_attention(q, k, v, query_seq_lengths=queries, key_value_seq_lengths=keys)
    # what lies behind a length is unspecified in JAX
    ragged = jnp.where(jnp.arange(11)[None, :, None, None] < queries[:, None, None, None], ragged, 0)
    write("flash_attention", plain, causal, ragged)


def layer_norm():
    x, w, b = random((5, 77), 1, 3, 1), random((77,), 2, 1, 1), random((77,), 3)
    write("layer_norm", jax.nn.standardize(x, epsilon=1e-5) * w + b)


def grouped_matmul():
    lhs, rhs = random((30, 19), 1), random((4, 19, 21), 2)
    write("grouped_matmul", jax.lax.ragged_dot(lhs, rhs, jnp.array([7, 0, 12, 9], jnp.int32)))


def quantized_matmul():
    x, scales = random((9, 48), 1), random((3, 20), 2, 0.01, 0.02)
    weights, packed = integers((48, 20), 3, -128, 127).astype(np.int8), integers((24, 20), 4, 0, 255).astype(np.uint8)
    by_row = np.repeat(scales, 16, 0)
    four = jax.lax.bitcast_convert_type(packed, jnp.int4)  # [24, 20, 2], the lower bits first
    four = four.astype(jnp.float64).transpose(0, 2, 1).reshape(48, 20)
    write("quantized_matmul", x @ (weights * by_row), x @ (four * by_row))


def cross_entropy():
    logits, scale, labels = random((6, 50), 1, 5), random((6,), 2), integers((6,), 3, 0, 49)
    losses = lambda t: -jnp.take_along_axis(jax.nn.log_softmax(t), labels[:, None], 1)[:, 0]  # noqa: E731
    gradient = jax.grad(lambda t: (losses(t) * scale).sum())(logits)
    write("cross_entropy", losses(logits), jax.nn.logsumexp(logits, 1), gradient)


def prefix_sum():
    x = random((2, 2100), 1)
    write("prefix_sum", jnp.cumsum(x, 1), jnp.cumsum(x, 0), jax.lax.cumsum(x, 1, reverse=True))


def orders():
    """Rows with equals, both zeros, infinities and NaNs."""
    x = integers((2, 1100), 1, -40, 40).astype(np.float32) / 4
    x[:, [5, 900]], x[:, [6, 901]], x[:, 7], x[:, [8, 902]] = -0.0, np.nan, -np.inf, np.inf
    return x


def radix_sort():
    x = orders()
    where = jnp.broadcast_to(jnp.arange(1100, dtype=jnp.int32), x.shape)
    write("radix_sort", *jax.lax.sort((x, where), is_stable=True, num_keys=1))


def top_k():
    write("top_k", *jax.lax.top_k(orders(), 17))


def fft():
    def numbers(shape, seed):
        x = random((*shape, 2), seed)
        return x[..., 0] + 1j * x[..., 1]

    pairs = lambda x: np.stack([x.real, x.imag], -1)  # noqa: E731
    # 101 is a prime
    results = [pairs(f(numbers((2, n), n))) for n in (1, 12, 60, 101) for f in (np.fft.fft, np.fft.ifft)]
    results += [pairs(f(numbers((7, 15), 3))) for f in (np.fft.fft2, np.fft.ifft2)]
    results += [pairs(np.fft.rfft(random((2, n), n))) for n in (1, 10, 33)]
    results += [np.fft.irfft(numbers((2, n // 2 + 1), n), n) for n in (1, 10, 33)]
    write("fft", *results)


if __name__ == "__main__":
    for make in (
        attention,
        layer_norm,
        grouped_matmul,
        quantized_matmul,
        cross_entropy,
        prefix_sum,
        radix_sort,
        top_k,
        fft,
    ):
        make()
