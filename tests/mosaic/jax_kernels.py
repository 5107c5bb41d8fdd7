"""Kernels that JAX lowers for TPUs itself. Its modules judge the evaluator, which has to agree with JAX's
interpreter."""

import base64
import json
import re

import evaluator
import grid
import jax
import jax.numpy as jnp
import kernels
import numpy as np
from jax._src.lib.mlir import ir, passmanager
from jax._src.pallas.mosaic import tpu_info
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

# Some kernels ask for the device's kind while they are traced.
tpu_info.registry["cpu"] = lambda: tpu_info.get_tpu_info_for_chip(tpu_info.ChipVersion.TPU_V5E, 1)

f32, bf16, i32 = jnp.float32, jnp.bfloat16, jnp.int32


def normal(shape, dtype=f32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def add():
    def kernel(x, y, o):
        o[...] = x[...] + y[...]

    spec = pl.BlockSpec((256, 128), lambda i: (i, 0))

    def call(x, y, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, f32),
            grid=(4,),
            in_specs=[spec, spec],
            out_specs=spec,
            interpret=interpret,
        )(x, y)

    return call, (normal((1024, 128)), normal((1024, 128), seed=1))


def matmul():
    def kernel(a, b, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += jnp.dot(a[...], b[...], preferred_element_type=f32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)

    def call(a, b, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((256, 256), bf16),
            grid=(2, 2, 2),
            in_specs=[
                pl.BlockSpec((128, 128), lambda i, j, k: (i, k)),
                pl.BlockSpec((128, 128), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((128, 128), lambda i, j, k: (i, j)),
            scratch_shapes=[pltpu.VMEM((128, 128), f32)],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
            interpret=interpret,
        )(a, b)

    return call, (normal((256, 256), bf16), normal((256, 256), bf16, 1))


def gather():
    def kernel(rows, x, o):
        o[...] = x[...] * 2

    def call(rows, x, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((32, 128), f32),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(4,),
                in_specs=[pl.BlockSpec((8, 128), lambda i, r: (r[i], 0))],
                out_specs=pl.BlockSpec((8, 128), lambda i, r: (i, 0)),
            ),
            interpret=interpret,
        )(rows, x)

    return call, (jnp.asarray([3, 0, 7, 3], i32), normal((64, 128)))


def copies():
    def kernel(x, o, buffer, semaphore):
        def copy(i, slot):
            return pltpu.make_async_copy(x.at[pl.ds(8 * i, 8)], buffer.at[slot], semaphore.at[slot])

        copy(0, 0).start()

        def step(i, carry):
            @pl.when(i + 1 < 4)
            def _():
                copy(i + 1, (i + 1) % 2).start()

            copy(i, i % 2).wait()
            return carry + buffer[i % 2]

        o[...] = jax.lax.fori_loop(0, 4, step, jnp.zeros((8, 128), f32))

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((8, 128), f32),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            scratch_shapes=[pltpu.VMEM((2, 8, 128), f32), pltpu.SemaphoreType.DMA((2,))],
            interpret=interpret,
        )(x)

    return call, (normal((32, 128)),)


def pipeline():
    def body(x, y, o):
        o[...] = x[...] * y[...]

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))

    def kernel(x, y, o):
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[spec, spec], out_specs=[spec])(x, y, o)

    def call(x, y, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((32, 128), f32),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            interpret=interpret,
        )(x, y)

    return call, (normal((32, 128)), normal((32, 128), seed=1))


def flash_attention():
    from jax.experimental.pallas.ops.tpu import flash_attention as fa

    def call(q, k, v, interpret=False):
        return fa.flash_attention(
            q, k, v, causal=True, block_sizes=fa.BlockSizes(block_q=128, block_k_major=128, block_k=128, block_b=1)
        )

    return call, tuple(normal((1, 1, 256, 128), seed=s) for s in range(3))


def splash_attention():
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as sk
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as sm

    mask = sm.MultiHeadMask([sm.CausalMask((256, 256))] * 2)
    sizes = sk.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)

    def call(q, k, v, interpret=False):
        return sk.make_splash_mha_single_device(mask, block_sizes=sizes, interpret=interpret)(q, k, v)

    return call, tuple(normal((2, 256, 128), seed=s) for s in range(3))


def megablox():
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    def call(lhs, rhs, sizes, interpret=False):
        return gmm(lhs, rhs, sizes, tiling=(128, 128, 128), preferred_element_type=f32, interpret=interpret)

    return call, (normal((256, 128)), normal((2, 128, 128), seed=1), jnp.asarray([100, 156], i32))


KERNELS = [add, matmul, gather, copies, pipeline, flash_attention, splash_attention, megablox]


def decode(bytecode):
    """The module that JAX put into a custom call, as text."""
    ctx = evaluator.context()
    ctx.allow_unregistered_dialects = True
    with ctx, ir.Location.unknown():
        module = ir.Module.parse(bytecode, ctx)
        passmanager.PassManager.parse("builtin.module(mosaic-serde{serialize=false})").run(module.operation)
        return str(module)


def lowered(call, *arrays):
    """JAX's own modules of a function, in order, and the types of their results."""
    text = jax.jit(call).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    found = []
    for config, results in re.findall(r'@tpu_custom_call.*?backend_config = "((?:[^"\\]|\\.)*)".* -> (.*)', text):
        config = json.loads(re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m.group(1), 16)), config))
        found.append((decode(base64.b64decode(config["custom_call_config"]["body"])), kernels.tensors(results)))
    return found


def plain(module):
    """Without the attribute of a dialect that only the bytecode has."""
    return re.sub(r"attributes \{stable_mosaic.version = \d+ : i64\} ", "", module)


def attention(q, k, v):
    s = jnp.einsum("...qd,...kd->...qk", q, k, precision="highest")
    mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
    return jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(jnp.where(mask, s, -1e30), -1), v, precision="highest")


def judge_evaluator():
    """Runs JAX's own modules, whose operands are the function's arguments; what is wrong, by name."""
    wrong = {}
    for kernel in (add, matmul, gather, copies, pipeline, flash_attention):
        call, arrays = kernel()
        ((module, results),) = lowered(call, *arrays)
        if kernel is flash_attention:
            want = attention(*arrays)
        elif kernel is pipeline:
            want = arrays[0] * arrays[1]
        elif kernel is copies:
            want = arrays[0].reshape(4, 8, 128).sum(0)
        else:
            want = call(*arrays, interpret=True)
        machine = grid.Machine(evaluator.parse(plain(module)))
        outputs = [evaluator.poison(shape, dtype) for shape, dtype in results]
        operands = [np.asarray(a) for a in arrays]
        machine.run(operands[: machine.prefetch], operands[machine.prefetch :], outputs)
        want = np.asarray(want)
        # Scores up to 40, with the rounding of f32, are the exponents of the weights of sums of normal numbers.
        d = kernels.difference(outputs[0], want, want, 4 if kernel is flash_attention else 0)
        if d:
            wrong[kernel.__name__] = d
    return wrong
