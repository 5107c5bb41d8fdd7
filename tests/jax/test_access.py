"""Where an access goes whose place is not all inside its Ref: the table "Beyond a Ref" of engine/front/pallas.md, a
kernel per row, at starts from one end of i32 to the other. Elements that JAX's interpreter has as NaN are unspecified,
and may be anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas import primitives as pallas_primitives
from jax._src.state.primitives import ref_addupdate, ref_swap
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import tessera
from support import DEVICES

f32, i32 = jnp.float32, jnp.int32
N = 10
# fmt: off
STARTS = [
    -(2**31), -(2**31) + 3, -25, -15, -14, -13, -11, -10, -9, -5, -4, -3, -2, -1, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    13, 20, 2**31 - 4, 2**31 - 1,
]
# fmt: on


def new(n=4):
    return 100 + jnp.arange(n, dtype=f32)


def at(s, step=3):
    return jnp.arange(4) * step % 7 + s


def ds(s, n=4, stride=None):
    return pl.ds(s, n, stride)


def copied(x, s, o):
    pltpu.sync_copy(x.at[ds(s)], o.at[pl.ds(0, 4)])


def copied_to(x, s, o):
    pltpu.sync_copy(x.at[pl.ds(2, 4)], o.at[ds(s)])


# What a row gives is the first elements of its result; what it stores to is the result itself.
READS = {
    "get an element": lambda x, s: x[s][None],
    "get a slice": lambda x, s: x[ds(s)],
    "get a strided slice": lambda x, s: x[ds(s, 3, 3)],
    "get by an array": lambda x, s: x[at(s)],
    # with both at run time XLA adds up the starts, and moves the sum
    "get a slice of a view": lambda x, s: x.at[pl.ds(2, 6)][ds(s, 3)],
    "load an element": lambda x, s: plgpu.load(x.at[s])[None],
    "load a slice": lambda x, s: plgpu.load(x.at[ds(s)]),
    "load a slice longer than the Ref": lambda x, s: plgpu.load(x.at[pl.ds(0, 16)])[6:],
    "load a slice of a view": lambda x, s: plgpu.load(x.at[ds(s, 6)].at[ds(s, 3)]),
    "load by an array": lambda x, s: plgpu.load(x.at[at(s)]),
    "load by an array under a mask": lambda x, s: plgpu.load(x.at[at(s)], mask=jnp.arange(4) != 1, other=-1.0),
    "load a slice under a mask": lambda x, s: plgpu.load(
        x.at[ds(s)], mask=(jnp.arange(4) + s < N) & (s >= 0) & (s < N), other=-1.0
    ),
}
if jax.__version_info__ >= (0, 12):  # which refuses it when the kernel is traced
    del READS["load a slice longer than the Ref"]
WRITES = {
    "set an element": lambda o, s: o.__setitem__(s, 100.0),
    "set a slice": lambda o, s: o.__setitem__(ds(s), new()),
    "set a strided slice": lambda o, s: o.__setitem__(ds(s, 3, 3), new(3)),
    "set by an array": lambda o, s: o.__setitem__(at(s), new()),
    "store an element": lambda o, s: plgpu.store(o.at[s], 100.0),
    "store a slice": lambda o, s: plgpu.store(o.at[ds(s)], new()),
    "store by an array": lambda o, s: plgpu.store(o.at[at(s)], new()),
    "store by an array under a mask": lambda o, s: plgpu.store(o.at[at(s)], new(), mask=jnp.arange(4) != 1),
    "store a slice under a mask": lambda o, s: plgpu.store(o.at[ds(jnp.maximum(s, 0))], new(), mask=jnp.arange(4) != 1),
    "add to an element": lambda o, s: ref_addupdate(o, s, 100.0),
    "add to a slice": lambda o, s: ref_addupdate(o, (ds(s),), new()),
    "add by an array": lambda o, s: ref_addupdate(o, (at(s) // 2,), new()),
}
BOTH = {
    "swap an element": lambda o, s: ref_swap(o, s, jnp.asarray(100.0))[None],
    "swap a slice": lambda o, s: ref_swap(o, (ds(s),), new()),
    "swap a slice, as load and store": lambda o, s: pallas_primitives.swap(o, (ds(s),), new()),
    "an atomic of an element": lambda o, s: plgpu.atomic_add(o, (s,), o[0] * 5)[None],
    "an atomic of a slice": lambda o, s: plgpu.atomic_add(o, (ds(s),), new()),
    "an atomic by an array": lambda o, s: plgpu.atomic_max(o, (at(s),), new()),
}
COPIES = {"copy from a slice": copied, "copy to a slice": copied_to}


def kernel_of(row):
    def kernel(s_ref, x_ref, o_ref, v_ref):
        s = s_ref[pl.program_id(0)]
        o_ref[...] = x_ref[...]
        v_ref[...] = jnp.full(N, -3, f32)
        if row in COPIES:
            return COPIES[row](x_ref, s, o_ref)
        v = READS[row](x_ref, s) if row in READS else WRITES[row](o_ref, s) if row in WRITES else BOTH[row](o_ref, s)
        if v is not None:
            v_ref[: len(v)] = v

    return kernel


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [*READS, *WRITES, *BOTH, *COPIES])
def test_beyond_a_ref(row, device):
    starts, x = jnp.asarray(STARTS, i32), jnp.arange(N, dtype=f32) + 20
    block, shape = pl.BlockSpec((None, N), lambda i: (i, 0)), jax.ShapeDtypeStruct((len(STARTS), N), f32)

    def call(**kwargs):
        return pl.pallas_call(
            kernel_of(row),
            out_shape=[shape, shape],
            grid=(len(STARTS),),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((N,), lambda i: (0,))],
            out_specs=[block, block],
            **kwargs,
        )(starts, x)

    want = call(interpret=True)
    with tessera.on(device):
        got = call()
    for name, g, w in zip(("memory", "value"), got, want):
        for start, a, b in zip(STARTS, np.asarray(g), np.asarray(w)):
            assert all(np.isnan(q) or p == q for p, q in zip(a, b)), f"{row}: {name} at {start}: {a}, JAX has {b}"


@pytest.mark.parametrize("device", DEVICES)
def test_slices_of_slices(device):
    """Level by level, as JAX defines it. Its interpreter's answers are compiled by XLA, which joins the slices of a
    read into one that lies elsewhere, so they are not asked."""
    starts = np.array(
        [(a, b) for a in (-12, -10, -7, -4, -1, 0, 2, 4, 7, 13) for b in (-9, -6, -2, -1, 0, 2, 4, 7, 2**31 - 1)],
        np.int32,
    )

    def kernel(s_ref, x_ref, o_ref, v_ref):
        a, b = s_ref[pl.program_id(0), 0], s_ref[pl.program_id(0), 1]
        o_ref[...] = x_ref[...]
        v_ref[pl.ds(0, 3)] = o_ref.at[ds(a, 6)][ds(b, 3)]
        v_ref[3] = o_ref.at[ds(a, 6)][b]
        o_ref.at[ds(a, 6)].at[ds(b, 4)][pl.ds(1, 2)] = new(2)

    x = np.arange(N, dtype=np.float32)
    with tessera.on(device):
        memory, value = pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct((len(starts), n), f32) for n in (N, 4)],
            grid=(len(starts),),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((N,), lambda i: (0,))],
            out_specs=[pl.BlockSpec((None, n), lambda i: (i, 0)) for n in (N, 4)],
        )(jnp.asarray(starts), jnp.asarray(x))

    def first(s, n, w):
        return min(max(s + n if s < 0 else s, 0), n - w)

    for (a, b), m, v in zip(starts.astype(int), memory, value):
        outer = first(a, N, 6)
        at, stored = outer + first(b, 6, 3), outer + first(b, 6, 4) + 1
        want = x.copy()
        want[stored : stored + 2] = 100, 101
        np.testing.assert_array_equal(v, [*x[at : at + 3], x[outer + first(b, 6, 1)]], f"{a}, {b}")
        np.testing.assert_array_equal(m, want, f"{a}, {b}")


def test_windows_that_leave_their_ref_by_programs():
    def kernel(x_ref, o_ref, p_ref):
        here = pl.ds(pl.program_id(0) * 4, 4)
        v = plgpu.load(x_ref.at[here])
        o_ref[here] = v
        plgpu.store(p_ref.at[here], v * 2)

    x = jnp.arange(10, dtype=f32)
    for device in DEVICES:
        with tessera.on(device):
            o, p = pl.pallas_call(
                kernel, out_shape=[jax.ShapeDtypeStruct((12,), f32), jax.ShapeDtypeStruct((10,), f32)], grid=(3,)
            )(x)
        np.testing.assert_array_equal(o[:10], x)
        np.testing.assert_array_equal(p, x * 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [4, None, pl.Element(4), pl.Element(4, (2, 1))], ids=str)
def test_blocks_beyond_an_array(dim, device):
    """JAX multiplies a block's number by its size before it wraps: of numbers whose product leaves i32 it makes
    others."""
    starts, x = jnp.asarray([s for s in STARTS if dim != 4 or abs(s) < 2**29], i32), jnp.arange(N, dtype=f32) + 20

    def at_data(i, s):
        return (s[i],)

    def read(s_ref, x_ref, v_ref):
        v_ref[...] = jnp.broadcast_to(x_ref[...], v_ref.shape)

    def write(s_ref, o_ref):
        o_ref[...] = jnp.broadcast_to(100 + jnp.arange(4, dtype=f32) if o_ref.shape else 100.0, o_ref.shape)

    def values(**kwargs):
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(len(starts),),
            in_specs=[pl.BlockSpec((dim,), at_data)],
            out_specs=pl.BlockSpec((None, 4), lambda i, s: (i, 0)),
        )
        return pl.pallas_call(read, out_shape=jax.ShapeDtypeStruct((len(starts), 4), f32), grid_spec=grid, **kwargs)(
            starts, x
        )

    def memory(s, **kwargs):
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(1,), in_specs=[], out_specs=pl.BlockSpec((dim,), at_data)
        )
        return pl.pallas_call(write, out_shape=jax.ShapeDtypeStruct((N,), f32), grid_spec=grid, **kwargs)(s[None])

    want = [values(interpret=True), *(memory(s, interpret=True) for s in starts)]
    with tessera.on(device):
        got = [values(), *(memory(s) for s in starts)]
    for g, w in zip(got, map(np.asarray, want)):
        np.testing.assert_array_equal(np.where(np.isnan(w), w, np.asarray(g)), w)


@pytest.mark.parametrize("device", DEVICES)
def test_masked_windows_stay_where_they_are(device):
    """Before the Ref too: JAX's interpreter takes a negative start for one behind the end, Triton's code does not."""

    def kernel(s_ref, x_ref, o_ref, v_ref):
        s = s_ref[pl.program_id(0)]
        o_ref[...] = x_ref[...]
        inside = (jnp.arange(4) + s >= 0) & (jnp.arange(4) + s < N)
        v_ref[...] = plgpu.load(x_ref.at[ds(s)], mask=inside, other=-1.0)
        plgpu.store(o_ref.at[ds(s)], new(), mask=inside)

    starts, x = np.arange(-5, 12), np.arange(N, dtype=np.float32)
    with tessera.on(device):
        o, v = pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct((len(starts), n), f32) for n in (N, 4)],
            grid=(len(starts),),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((N,), lambda i: (0,))],
            out_specs=[pl.BlockSpec((None, n), lambda i: (i, 0)) for n in (N, 4)],
        )(jnp.asarray(starts, i32), jnp.asarray(x))
    for start, memory, value in zip(starts, np.asarray(o), np.asarray(v)):
        places = start + np.arange(4)
        inside = (places >= 0) & (places < N)
        want = x.copy()
        want[places[inside]] = 100 + np.flatnonzero(inside)
        np.testing.assert_array_equal(memory, want)
        np.testing.assert_array_equal(value, np.where(inside, places, -1))
