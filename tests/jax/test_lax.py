"""Every primitive of jax.lax that JAX's own interpreter takes in a kernel: whole arrays of odd shapes in, a function of
them out, compared with interpret=True. On Vulkan only what the exporter writes as other primitives
(runtime/python/tessera/expansions.py) and what the suite `ops` has no row for."""

import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core
from jax.experimental import pallas as pl

import tessera
from lax_cases import CASES, VULKAN, f32

# Refused: what other devices, the host or LAPACK would have to do; XLA's own generator; what only stands outside of
# kernels.
REFUSED = set(
    """after_all all_gather all_to_all ppermute psum_invariant reduce_scatter pbroadcast preduced psend precv
    ragged_all_to_all pvary unreduced_psum vary_unreduced_cast_p reduced_vary_cast_p create_token dce_sink ffi_call
    call_exported custom_partitioning global_array_to_host_local_array host_local_array_to_global_array
    inspect_sharding io_callback pure_callback debug_callback cholesky cholesky_update eig eigh geqp3 geqrf hessenberg
    householder_product lu lu_pivots_to_permutation ormqr qr schur svd symmetric_product triangular_solve tridiagonal
    tridiagonal_solve complex conj real imag fft rng_bit_generator rng_uniform philox2x32 philox4x32 threefry4x32
    scaled_dot select_and_scatter dim_as_value dimension_size shape_assertion unreachable all_gather_invariant
    all_gather_reduced unreduced_reduce_scatter dot_product_attention_fwd_wrapper dot_product_attention_bwd_wrapper
    dot_product_attention_fp8_fwd_wrapper dot_product_attention_fp8_bwd_wrapper scaled_matmul_wrapper pallas_call
    mpmd_map core_map shard_map create_linear custom_lin pin unpin stage to_edtype from_edtype empty2 eval_jaxpr tie
    remat_opt call""".split()
)
# Tested in the other files here, or by kernels of JAX's.
ELSEWHERE = set(
    """axis_index bitcast broadcast_to check closed_call copy custom_jvp_call custom_vjp_call debug_print device_put
    empty eq_to iota_2x32_shape layout_constraint multiple_of name pmin random_seed reciprocal reshard
    remove_memory_space roll run_scoped run_state threefry2x32 with_memory_space_constraint custom_vmap_call""".split()
)


def pallas(name, interpret=False):
    f, operands = CASES[name]

    def flat(*args):
        return jax.tree.leaves(f(*args))

    def kernel(*refs):
        for o, v in zip(refs[len(operands) :], flat(*(r[...] for r in refs[: len(operands)])), strict=True):
            o[...] = v

    outs = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in jax.eval_shape(flat, *operands)]
    return pl.pallas_call(kernel, out_shape=outs, interpret=interpret)(*operands)


@pytest.mark.parametrize(("device", "name"), [*(("interpreter", n) for n in CASES), *(("vulkan", n) for n in VULKAN)])
def test_primitives(device, name):
    wants = pallas(name, interpret=True)
    with tessera.on(device):
        gots = pallas(name)
    for i, (got, want) in enumerate(zip(gots, wants, strict=True)):
        assert got.dtype == want.dtype
        if jnp.issubdtype(got.dtype, np.floating):
            # XLA approximates some functions; values are of the order of 1
            tolerance = {4: 2e-5, 2: 1e-2, 1: 0.2}[got.dtype.itemsize]
            np.testing.assert_allclose(
                np.asarray(got, np.float32),
                np.asarray(want, np.float32),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"output {i}",
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"output {i}")


@pytest.mark.parametrize("device", ["interpreter", "vulkan"])
def test_lgamma_beside_its_zeros(device):
    """To the last digits, which XLA's lacks there."""

    def kernel(x_ref, o_ref):
        o_ref[...] = lax.lgamma(x_ref[...])

    x = np.asarray([0.5, 0.9, 0.9999, 1, 1.0001, 1.4616321, 1.999, 2, 2.001, 2.4, 2.5, 2.75], np.float32)
    with tessera.on(device):
        got = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, f32))(x)
    np.testing.assert_allclose(got, [math.lgamma(v) for v in x], rtol=1e-6)


def names(jaxpr):
    return {e.primitive.name for e in jaxpr.eqns} | {
        n for e in jaxpr.eqns for j in core.jaxprs_in_params(e.params) for n in names(j)
    }


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="the lists are of JAX 0.10")
def test_no_primitive_is_forgotten():
    known = {
        p.name
        for name, module in sys.modules.items()
        if name.startswith("jax._src.lax.")
        for p in vars(module).values()
        if isinstance(p, core.Primitive)
    }
    used = set().union(*(names(jax.make_jaxpr(f)(*operands).jaxpr) for f, operands in CASES.values()))
    missing = known - used - REFUSED - ELSEWHERE
    assert not {n for n in missing if not n.endswith(("_start", "_done"))}
    assert not REFUSED & used


def test_what_is_refused_says_where():
    def factor(x_ref, o_ref):
        o_ref[...] = jnp.linalg.cholesky(x_ref[...])

    def meets(x_ref, o_ref):
        o_ref[...] = lax.rng_uniform(0.0, 1.0, (2, 2))

    for kernel, primitive in ((factor, "cholesky"), (meets, "rng_uniform")):
        line = kernel.__code__.co_firstlineno + 1
        with tessera.on("interpreter"), pytest.raises(
            tessera.Error,
            match=(
                rf"^{kernel.__name__}: the primitive {primitive} of JAX cannot be imported\n  at .*test_lax.py:{line}\n"
                r"  note: write it with other operations, or leave such calls to JAX's interpreter:"
                r" tessera.install\(fallback=True\)"
            ),
        ):
            pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((2, 2), f32))(jnp.eye(2))
