"""The Pallas kernels that ship inside the jax wheel, for GPUs and for TPUs, at shapes that take seconds, against their
own references."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.pallas.ops.gpu import attention, decode_attention, layer_norm, rms_norm, softmax
from jax.experimental.pallas.ops.gpu import paged_attention as gpu_paged
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu import paged_attention as tpu_paged
from jax.experimental.pallas.ops.tpu.random import philox, threefry
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_mask

import tessera
from support import DEVICES

# the package has a function of this name
megablox = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")

f32, i32, u32 = jnp.float32, jnp.int32, jnp.uint32


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def normal(seed, *shape, dtype=f32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def close(got, want, tolerance):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=tolerance, atol=tolerance)


def gradients(f, *args):
    """Of a sum whose terms differ in weight."""

    def weighted(*args):
        out = f(*args)
        return (out * jnp.cos(jnp.arange(out.size, dtype=f32)).reshape(out.shape)).sum()

    return jax.grad(weighted, argnums=tuple(range(len(args))))(*args)


# -- ops/gpu


def test_softmax(device):
    x = normal(0, 3, 50)
    close(softmax.softmax(x, num_warps=1), jax.nn.softmax(x), 1e-6)


@pytest.mark.parametrize("module, name", [(layer_norm, "layer_norm"), (rms_norm, "rms_norm")])
def test_norms(device, module, name):
    f, reference = getattr(module, name), getattr(module, name + "_reference")
    args = normal(1, 1, 3, 20), normal(2, 20) + 1, normal(3, 20)
    close(f(*args), reference(*args), 1e-5)
    close(gradients(f, *args), gradients(reference, *args), 1e-4)


@pytest.mark.parametrize("causal, segments", [(True, False), (False, True)])
def test_mha(device, causal, segments):
    q, k, v = (normal(i, 1, 32, 2, 8) for i in range(3))
    ids = jnp.asarray(np.arange(32)[None] // 12, i32) if segments else None
    n = 16
    sizes = attention.BlockSizes(block_q=n, block_k=n, block_q_dkv=n, block_kv_dkv=n, block_q_dq=n, block_kv_dq=n)
    f = functools.partial(attention.mha, segment_ids=ids, causal=causal, block_sizes=sizes)
    reference = functools.partial(attention.mha_reference, segment_ids=ids, causal=causal)
    close(f(q, k, v), reference(q, k, v), 2e-5)
    if causal:
        close(gradients(f, q, k, v), gradients(reference, q, k, v), 1e-4)


def test_decode_attention(device):
    q, k, v = normal(0, 2, 4, 16), normal(1, 2, 64, 16), normal(2, 2, 64, 16)
    start, length = jnp.asarray([3, 0], i32), jnp.asarray([50, 20], i32)
    got = decode_attention.mqa(q, k, v, start_idx=start, kv_seq_len=length, block_k=16, k_splits=2)
    close(got, decode_attention.mqa_reference(q, k, v, start_idx=start, kv_seq_len=length), 2e-5)
    k, v = normal(3, 2, 64, 2, 16), normal(4, 2, 64, 2, 16)
    got = decode_attention.gqa(q, k, v, kv_seq_len=length, block_k=16, k_splits=2)
    close(got, decode_attention.gqa_reference(q, k, v, kv_seq_len=length), 2e-5)


def pages(size, dim):
    """Keys or values of 2 heads in 8 pages, which pages make up each of 2 sequences, and how long these are."""
    table = jnp.asarray([[3, 1, 6, 0], [5, 2, 7, 4]], i32)
    return normal(1, 2, 8, size, dim), normal(2, 2, 8, size, dim), table, jnp.asarray([size + 1, 3 * size - 1], i32)


def joined(x, table):
    """[batch, tokens, heads, dim] of pages."""
    return jnp.swapaxes(x[:, table].reshape(x.shape[0], table.shape[0], -1, x.shape[-1]), 0, 1).swapaxes(1, 2)


def test_gpu_paged_attention(device):
    q, (k, v, table, lengths) = normal(0, 2, 4, 16), pages(4, 16)
    got = gpu_paged.paged_attention(q, k, v, table, lengths, pages_per_compute_block=2, k_splits=2)
    close(got, gpu_paged.paged_attention_reference(q, joined(k, table), joined(v, table), lengths), 2e-5)


# -- ops/tpu


def test_matmul(device):
    x, y = normal(0, 64, 48), normal(1, 48, 32)
    close(matmul.matmul(x, y, block_shape=(32, 16), block_k=16), x @ y, 2e-5)
    x, y = (jnp.asarray(np.random.default_rng(i).integers(-9, 9, (32, 32)), jnp.int8) for i in range(2))
    got = matmul.matmul(x, y, block_shape=(16, 16), block_k=16, out_dtype=i32)
    close(got, jnp.matmul(x, y, preferred_element_type=i32), 0)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(device, causal):
    q, k, v = normal(0, 1, 1, 16, 8), normal(1, 1, 1, 256, 8), normal(2, 1, 1, 256, 8)
    n, m = 128, 8  # blocks of keys must have multiples of 128
    sizes = flash_attention.BlockSizes(
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
    f = functools.partial(flash_attention.flash_attention, causal=causal, sm_scale=0.2, block_sizes=sizes)
    reference = functools.partial(flash_attention.mha_reference_no_custom_vjp, causal=causal, sm_scale=0.2)
    close(f(q, k, v), reference(q, k, v), 2e-5)
    close(gradients(f, q, k, v), gradients(reference, q, k, v), 1e-4)


def test_megablox(device):
    x, y, sizes, tiling = normal(0, 32, 12), normal(1, 3, 12, 8), jnp.asarray([10, 0, 22], i32), (8, 8, 8)
    got = megablox.gmm(x, y, sizes, tiling=tiling)
    close(got, lax.ragged_dot(x, y, sizes), 2e-5)
    close(megablox.gmm(x, y.swapaxes(1, 2), sizes, tiling=tiling, transpose_rhs=True), got, 2e-5)
    z = normal(2, 32, 8)
    got = megablox.tgmm(x.T, z, sizes, tiling=tiling)
    rows = np.split(np.asarray(x), [10, 10]), np.split(np.asarray(z), [10, 10])
    close(got, jnp.stack([a.T @ b for a, b in zip(*rows)]), 2e-5)


def test_splash_attention(device):
    q, k, v = normal(0, 2, 16, 8), normal(1, 2, 256, 8), normal(2, 2, 256, 8)
    mask = splash_mask.MultiHeadMask(
        [splash_mask.CausalMask((16, 256), 120), splash_mask.LocalMask((16, 256), (64, 20), 140)]
    )
    n, m = 128, 8
    sizes = splash.BlockSizes(
        block_q=m,
        block_kv=n,
        block_kv_compute=n,
        block_q_dkv=m,
        block_kv_dkv=n,
        block_kv_dkv_compute=n,
        block_q_dq=m,
        block_kv_dq=n,
    )
    f = splash.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
    reference = splash.make_masked_mha_reference(mask)
    close(f(q, k, v), reference(q, k, v), 2e-5)
    close(gradients(f, q, k, v), gradients(reference, q, k, v), 1e-4)


@pytest.mark.parametrize("inline", [True, False])
def test_tpu_paged_attention(device, inline):
    q, (k, v, table, lengths) = normal(0, 2, 4, 16), pages(4, 16)
    got = tpu_paged.paged_attention(q, k, v, lengths, table, pages_per_compute_block=2, inline_seq_dim=inline)
    # the kernel rounds keys and values to bf16
    close(got, gpu_paged.paged_attention_reference(q, joined(k, table), joined(v, table), lengths), 2e-2)


def test_random_bits(device):
    key = jnp.asarray([7, 1 << 31], u32)
    got = threefry.plthreefry_random_bits(key, 32, (5, 300))
    want = jax.random.bits(jax.random.wrap_key_data(key), (5, 300), u32)
    np.testing.assert_array_equal(got, want)
    with jax.enable_x64(False):
        counters = jnp.arange(7 * 9, dtype=u32).reshape(7, 9)
        zero = jnp.zeros_like(counters)
        a, b, _, _ = philox.philox_4x32(zero, counters, zero, zero, key[0], key[1])
        np.testing.assert_array_equal(philox.philox_random_bits(key, 32, (7, 9)), a ^ b)
