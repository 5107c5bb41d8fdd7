"""Writes the answers of whole kernels: pallas/NAME.tir with NAME.inI.npy and NAME.outI.npy, the answer from
pallas_call(interpret=True). As make_answers.py: run by hand, in an environment with jax, ml_dtypes and mpmath.
"""

from make_answers import write_case  # first: it sets JAX up

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton


def pallas():
    f32, i32 = jnp.float32, jnp.int32
    rng = np.random.default_rng(4)

    def call(kernel, shapes, *inputs, **kwargs):
        out = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
        return pl.pallas_call(kernel, out_shape=out, interpret=True, **kwargs)(*inputs)

    # Blocks that hang over both edges, and a run-time size.
    x = rng.standard_normal((10, 7)).astype(np.float32)

    def overhang(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + pl.program_id(0).astype(f32)

    block = pl.BlockSpec((4, 4), lambda i, j: (i, j))
    write_case(
        "pallas",
        "overhang",
        """
kernel @overhang
grid (cdiv(m, 4), cdiv(n, 4))
in f32[m, n] block (4, 4) map (%0, %1) { yield %0, %1 }
out f32[m, n] block (4, 4) map (%2, %3) { yield %2, %3 }
body (%4: ref<vmem, f32[4, 4]>, %5: ref<vmem, f32[4, 4]>) {
  %6 = load %4[0:4, 0:4] : f32[4, 4]
  %7 = add %6, %6 : f32[4, 4]
  %8 = program_id axis 0 : i32[]
  %9 = convert %8 : f32[]
  %10 = broadcast %9 dims [] : f32[4, 4]
  %11 = add %7, %10 : f32[4, 4]
  store %5[0:4, 0:4], %11
  yield
}""",
        [x],
        call(overhang, [((10, 7), f32)], x, grid=(3, 2), in_specs=[block], out_specs=[block]),
    )

    # What is beyond the edge is NaN for reads: the row sums of blocks that hang over.
    def edge_sum(x_ref, o_ref):
        o_ref[0, 0] = jnp.sum(x_ref[...])

    write_case(
        "pallas",
        "edge_sum",
        """
kernel @edge_sum
grid (3, 2)
in f32[10, 7] block (4, 4) map (%0, %1) { yield %0, %1 }
out f32[3, 2] block (1, 1) map (%2, %3) { yield %2, %3 }
body (%4: ref<vmem, f32[4, 4]>, %5: ref<vmem, f32[1, 1]>) {
  %6 = load %4[0:4, 0:4] : f32[4, 4]
  %7 = reduce_sum %6 axes [0, 1] : f32[]
  store %5[0, 0], %7
  yield
}""",
        [np.round(x)],
        call(
            edge_sum,
            [((3, 2), f32)],
            np.round(x),
            grid=(3, 2),
            in_specs=[block],
            out_specs=[pl.BlockSpec((1, 1), lambda i, j: (i, j))],
        ),
    )

    # An output block revisited by consecutive programs keeps its contents.
    def revisit(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros((2, 3), i32)

        o_ref[...] += x_ref[...]

    y = rng.integers(-50, 50, (5, 9)).astype(np.int32)
    write_case(
        "pallas",
        "revisit",
        """
kernel @revisit
grid (3, 3)
in i32[5, 9] block (2, 3) map (%0, %1) { yield %0, %1 }
out i32[5, 3] block (2, 3) map (%2, %3) {
  %4 = constant 0 : i32[]
  yield %2, %4
}
body (%5: ref<vmem, i32[2, 3]>, %6: ref<vmem, i32[2, 3]>) {
  %7 = program_id axis 1 : i32[]
  %8 = constant 0 : i32[]
  %9 = eq %7, %8 : bool[]
  if %9 {
    %10 = constant 0 : i32[2, 3]
    store %6[0:2, 0:3], %10
    yield
  } else { yield }
  %11 = load %6[0:2, 0:3] : i32[2, 3]
  %12 = load %5[0:2, 0:3] : i32[2, 3]
  %13 = add %11, %12 : i32[2, 3]
  store %6[0:2, 0:3], %13
  yield
}""",
        [y],
        call(
            revisit,
            [((5, 3), i32)],
            y,
            grid=(3, 3),
            in_specs=[pl.BlockSpec((2, 3), lambda i, j: (i, j))],
            out_specs=[pl.BlockSpec((2, 3), lambda i, j: (i, 0))],
        ),
    )

    # Blocks 0, 1, 0: what the first visit wrote is there on the second.
    def come_back(o_ref):
        i = pl.program_id(0)

        @pl.when(i < 2)
        def _():
            o_ref[...] = jnp.full((2,), i, i32)

        o_ref[...] += 10

    write_case(
        "pallas",
        "come_back",
        """
kernel @come_back
grid (3)
out i32[3] block (2) map (%0) {
  %1 = constant 2 : i32[]
  %2 = rem %0, %1 : i32[]
  yield %2
}
body (%3: ref<vmem, i32[2]>) {
  %4 = program_id axis 0 : i32[]
  %5 = constant 2 : i32[]
  %6 = lt %4, %5 : bool[]
  if %6 {
    %7 = broadcast %4 dims [] : i32[2]
    store %3[0:2], %7
    yield
  } else { yield }
  %8 = load %3[0:2] : i32[2]
  %9 = constant 10 : i32[2]
  %10 = add %8, %9 : i32[2]
  store %3[0:2], %10
  yield
}""",
        [],
        call(come_back, [((3,), i32)], grid=(3,), out_specs=[pl.BlockSpec((2,), lambda i: (i % 2,))]),
    )

    # A K axis of the grid and an accumulator in scratch; whole numbers, so that sums are exact.
    def matmul(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros((4, 5), f32)

        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=f32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(jnp.float16)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in [(8, 9), (9, 10)])
    write_case(
        "pallas",
        "scratch_matmul",
        """
kernel @scratch_matmul
grid (2, 2, 3)
in f16[8, 9] block (4, 3) map (%0, %1, %2) { yield %0, %2 }
in f16[9, 10] block (3, 5) map (%3, %4, %5) { yield %5, %4 }
out f16[8, 10] block (4, 5) map (%6, %7, %8) { yield %6, %7 }
scratch ref<vmem, f32[4, 5]>
body (%10: ref<vmem, f16[4, 3]>, %11: ref<vmem, f16[3, 5]>, %12: ref<vmem, f16[4, 5]>, %13: ref<vmem, f32[4, 5]>) {
  %14 = program_id axis 2 : i32[]
  %15 = constant 0 : i32[]
  %16 = eq %14, %15 : bool[]
  if %16 {
    %17 = constant 0 : f32[4, 5]
    store %13[0:4, 0:5], %17
    yield
  } else { yield }
  %18 = load %13[0:4, 0:5] : f32[4, 5]
  %19 = load %10[0:4, 0:3] : f16[4, 3]
  %20 = load %11[0:3, 0:5] : f16[3, 5]
  %21 = dot %19, %20 lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[4, 5]
  %22 = add %18, %21 : f32[4, 5]
  store %13[0:4, 0:5], %22
  %23 = num_programs axis 2 : i32[]
  %24 = constant 1 : i32[]
  %25 = sub %23, %24 : i32[]
  %26 = eq %14, %25 : bool[]
  if %26 {
    %27 = load %13[0:4, 0:5] : f32[4, 5]
    %28 = convert %27 : f16[4, 5]
    store %12[0:4, 0:5], %28
    yield
  } else { yield }
  yield
}""",
        [a, b],
        call(
            matmul,
            [((8, 10), jnp.float16)],
            a,
            b,
            grid=(2, 2, 3),
            scratch_shapes=[pltpu.VMEM((4, 5), f32)],
            in_specs=[pl.BlockSpec((4, 3), lambda i, j, k: (i, k)), pl.BlockSpec((3, 5), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((4, 5), lambda i, j, k: (i, j))],
        ),
    )

    # A scan over the grid, carried in scratch.
    def scan(x_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            sum_ref[0] = 0

        o_ref[...] = sum_ref[0] + jnp.cumsum(x_ref[...])
        sum_ref[0] += jnp.sum(x_ref[...])

    z = rng.integers(-50, 50, (20,)).astype(np.int32)
    write_case(
        "pallas",
        "scan",
        """
kernel @scan
grid (5)
in i32[20] block (4) map (%0) { yield %0 }
out i32[20] block (4) map (%1) { yield %1 }
scratch ref<smem, i32[1]>
body (%2: ref<vmem, i32[4]>, %3: ref<vmem, i32[4]>, %4: ref<smem, i32[1]>) {
  %5 = program_id axis 0 : i32[]
  %6 = constant 0 : i32[]
  %7 = eq %5, %6 : bool[]
  if %7 {
    store %4[0], %6
    yield
  } else { yield }
  %8 = load %4[0] : i32[]
  %9 = load %2[0:4] : i32[4]
  %10 = cumsum %9 axis 0 : i32[4]
  %11 = broadcast %8 dims [] : i32[4]
  %12 = add %10, %11 : i32[4]
  store %3[0:4], %12
  %13 = reduce_sum %9 axes [0] : i32[]
  %14 = add %8, %13 : i32[]
  store %4[0], %14
  yield
}""",
        [z],
        call(
            scan,
            [((20,), i32)],
            z,
            grid=(5,),
            scratch_shapes=[pltpu.SMEM((1,), i32)],
            in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
            out_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        ),
    )

    # Dynamic starts from -10 to 10 of a ref of 8: they wrap once and are clamped, for reads, writes and integers alike.
    def clamped(x_ref, o_ref, p_ref, q_ref):
        s = pl.program_id(0) - 10
        o_ref[...] = x_ref[pl.ds(s, 4)]
        p_ref[...] = jnp.zeros((8,), i32)
        p_ref[pl.ds(s, 3)] = jnp.arange(1, 4, dtype=i32)
        q_ref[...] = jnp.full((), x_ref[s])

    eight = np.arange(8, dtype=np.int32) * 11
    row = [pl.BlockSpec((None, n), lambda i: (i, 0)) for n in (4, 8)]
    write_case(
        "pallas",
        "clamped_starts",
        """
kernel @clamped_starts
grid (21)
in i32[8] whole
out i32[21, 4] block (squeezed, 4) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
out i32[21, 8] block (squeezed, 8) map (%2) {
  %3 = constant 0 : i32[]
  yield %2, %3
}
out i32[21] block (squeezed) map (%4) { yield %4 }
body (%5: ref<any, i32[8]>, %6: ref<vmem, i32[4]>, %7: ref<vmem, i32[8]>, %8: ref<vmem, i32[]>) {
  %9 = program_id axis 0 : i32[]
  %10 = constant 10 : i32[]
  %11 = sub %9, %10 : i32[]
  %12 = load %5[ds(%11, 4)] : i32[4]
  store %6[0:4], %12
  %13 = constant 0 : i32[8]
  store %7[0:8], %13
  %14 = iota axis 0 : i32[3]
  %15 = constant 1 : i32[3]
  %16 = add %14, %15 : i32[3]
  store %7[ds(%11, 3)], %16
  %17 = load %5[%11] : i32[]
  store %8[], %17
  yield
}""",
        [eight],
        call(
            clamped,
            [((21, 4), i32), ((21, 8), i32), ((21,), i32)],
            eight,
            grid=(21,),
            out_specs=[*row, pl.BlockSpec((None,), lambda i: (i,))],
        ),
    )

    # Strided slices inside the ref (JAX wraps and clamps each element of a strided slice outside it; Tessera clamps the
    # window).
    def strided(x_ref, o_ref, p_ref):
        s = pl.program_id(0)
        o_ref[...] = x_ref[pl.ds(s, 2, stride=3)]
        p_ref[...] = jnp.zeros((8,), i32)
        p_ref[pl.ds(s, 2, stride=3)] = jnp.full((2,), 7, i32)

    write_case(
        "pallas",
        "strided",
        """
kernel @strided
grid (5)
in i32[8] whole
out i32[5, 2] block (squeezed, 2) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
out i32[5, 8] block (squeezed, 8) map (%2) {
  %3 = constant 0 : i32[]
  yield %2, %3
}
body (%4: ref<any, i32[8]>, %5: ref<vmem, i32[2]>, %6: ref<vmem, i32[8]>) {
  %7 = program_id axis 0 : i32[]
  %8 = load %4[ds(%7, 2, 3)] : i32[2]
  store %5[0:2], %8
  %9 = constant 0 : i32[8]
  store %6[0:8], %9
  %10 = constant 7 : i32[2]
  store %6[ds(%7, 2, 3)], %10
  yield
}""",
        [eight],
        call(
            strided,
            [((5, 2), i32), ((5, 8), i32)],
            eight,
            grid=(5,),
            out_specs=[pl.BlockSpec((None, 2), lambda i: (i, 0)), row[1]],
        ),
    )

    # A vector of any length in masked pieces: lanes beyond it are masked out, and nothing shifts.
    def masked(x_ref, o_ref):
        at = pl.program_id(0) * 4
        mask = at + jnp.arange(4, dtype=i32) < 6
        piece = pltriton.load(x_ref.at[pl.ds(at, 4)], mask=mask, other=np.float32(3))
        pltriton.store(o_ref.at[pl.ds(at, 4)], piece * piece, mask=mask)

    w = rng.standard_normal((6,)).astype(np.float32)
    write_case(
        "pallas",
        "masked",
        """
kernel @masked
grid (2)
in f32[6] whole
out f32[6] whole
body (%0: ref<any, f32[6]>, %1: ref<any, f32[6]>) {
  %2 = program_id axis 0 : i32[]
  %3 = constant 4 : i32[]
  %4 = mul %2, %3 : i32[]
  %5 = broadcast %4 dims [] : i32[4]
  %6 = iota axis 0 : i32[4]
  %7 = add %5, %6 : i32[4]
  %8 = constant 6 : i32[4]
  %9 = lt %7, %8 : bool[4]
  %10 = constant 3 : f32[4]
  %11 = load %0[ds(%4, 4)] mask %9 other %10 : f32[4]
  %12 = mul %11, %11 : f32[4]
  store %1[ds(%4, 4)], %12 mask %9
  yield
}""",
        [w],
        call(masked, [((6,), f32)], w, grid=(2,)),
    )

    # Index maps beyond the last block are clamped to it; squeezed dims select one element; blocks nobody writes stay
    # uninitialised.
    def clamp_map(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    six = np.arange(6, dtype=np.int32).reshape(2, 3)
    write_case(
        "pallas",
        "clamped_map",
        """
kernel @clamped_map
grid (5)
in i32[2, 3] block (squeezed, 2) map (%0) { yield %0, %0 }
out i32[6, 2] block (squeezed, 2) map (%1) {
  %2 = constant 0 : i32[]
  yield %1, %2
}
body (%3: ref<vmem, i32[2]>, %4: ref<vmem, i32[2]>) {
  %5 = load %3[0:2] : i32[2]
  store %4[0:2], %5
  yield
}""",
        [six],
        call(
            clamp_map,
            [((6, 2), i32)],
            six,
            grid=(5,),
            in_specs=[pl.BlockSpec((None, 2), lambda i: (i, i))],
            out_specs=[pl.BlockSpec((None, 2), lambda i: (i, 0))],
        ),
    )

    # Loops with carries (one pair trades places), a while loop, conditionals and a clamped switch index.
    def control(n_ref, o_ref):
        n = n_ref[pl.program_id(0)]
        u, v = lax.fori_loop(0, n, lambda i, c: (c[1], c[0] + i), (i32(1), i32(2)))
        o_ref[0] = u
        o_ref[1] = v
        steps, _ = lax.while_loop(
            lambda c: c[1] > 1, lambda c: (c[0] + 1, jnp.where(c[1] % 2 == 0, c[1] // 2, 3 * c[1] + 1)), (i32(0), n)
        )
        o_ref[2] = steps
        o_ref[3] = lax.switch(
            n - 2,
            [lambda: i32(10), lambda: n * 2, lambda: u],
        )

    counts = np.array([0, 1, 2, 3, 7, 27, -5], np.int32)
    write_case(
        "pallas",
        "control",
        """
kernel @control
grid (7)
in i32[7] whole
out i32[7, 4] block (squeezed, 4) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
body (%2: ref<any, i32[7]>, %3: ref<vmem, i32[4]>) {
  %4 = program_id axis 0 : i32[]
  %5 = load %2[%4] : i32[]
  %6 = constant 0 : i32[]
  %7 = constant 1 : i32[]
  %8 = constant 2 : i32[]
  %9, %10 = for %11 = %6 to %5 step %7 carry (%12 = %7: i32[], %13 = %8: i32[]) {
    %14 = add %12, %11 : i32[]
    yield %13, %14
  }
  store %3[0], %9
  store %3[1], %10
  %15, %16 = while (%17 = %6: i32[], %18 = %5: i32[]) {
    %19 = gt %18, %7 : bool[]
    yield %19
  } do (%20: i32[], %21: i32[]) {
    %22 = add %20, %7 : i32[]
    %23 = rem %21, %8 : i32[]
    %24 = eq %23, %6 : bool[]
    %25 = if %24 {
      %26 = div %21, %8 : i32[]
      yield %26
    } else {
      %27 = constant 3 : i32[]
      %28 = mul %21, %27 : i32[]
      %29 = add %28, %7 : i32[]
      yield %29
    }
    yield %22, %25
  }
  store %3[2], %15
  %30 = sub %5, %8 : i32[]
  %31 = switch %30 case 0 {
    %32 = constant 10 : i32[]
    yield %32
  } case 1 {
    %33 = mul %5, %8 : i32[]
    yield %33
  } case 2 { yield %9 }
  store %3[3], %31
  yield
}""",
        [counts],
        call(control, [((7, 4), i32)], counts, grid=(7,), out_specs=[pl.BlockSpec((None, 4), lambda i: (i, 0))]),
    )

    # A kernel that stores to an input: later programs see it, the caller's array does not.
    def count_in_input(x_ref, o_ref):
        o_ref[pl.program_id(0)] = x_ref[0]
        x_ref[0] = x_ref[0] + 1

    five = np.array([5], np.int32)
    write_case(
        "pallas",
        "stored_input",
        """
kernel @stored_input
grid (4)
in i32[1] whole
out i32[4] whole
body (%0: ref<any, i32[1]>, %1: ref<any, i32[4]>) {
  %2 = program_id axis 0 : i32[]
  %3 = load %0[0] : i32[]
  store %1[%2], %3
  %4 = constant 1 : i32[]
  %5 = add %3, %4 : i32[]
  store %0[0], %5
  yield
}""",
        [five],
        call(count_in_input, [((4,), i32)], five, grid=(4,)),
    )


if __name__ == "__main__":
    pallas()
