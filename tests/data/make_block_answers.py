"""Writes the stored answers in pallas/ about how arrays are cut into blocks: scalar prefetch, aliases, element blocks,
bounded slices, large grids. As make_answers.py: run by hand, in an environment with jax, ml_dtypes and mpmath.

    JAX_PLATFORMS=cpu python tests/data/make_block_answers.py
"""

import make_answers
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

f32, i32 = jnp.float32, jnp.int32
rng = np.random.default_rng(6)


def call(kernel, shapes, *inputs, **kwargs):
    out = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
    return pl.pallas_call(kernel, out_shape=out, interpret=True, **kwargs)(*inputs)


def write(name, text, inputs, outputs):
    make_answers.write_case("pallas", name, text, inputs, outputs)


def prefetch():
    # Rows by data; a block index beyond the last is clamped to it.
    def gather(rows_ref, scale_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale_ref[1] + rows_ref[pl.program_id(0)]

    rows, scale = np.array([2, 0, 3, 2, 9, 1], np.int32), np.array([3, 10], np.int32)
    x = rng.integers(-50, 50, (4, 5)).astype(np.int32)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(6,),
        in_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (rows[i], 0))],
        out_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (i, 0))],
    )
    write(
        "prefetch_gather",
        """
kernel @prefetch_gather
grid (6)
prefetch i32[6] whole
prefetch i32[2] whole
in i32[4, 5] block (squeezed, 5) map (%i, %rows, %scale) {
  %r = load %rows[%i]
  %0 = constant 0 : i32[]
  yield %r, %0
}
out i32[6, 5] block (squeezed, 5) map (%i, %rows, %scale) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%rows, %scale, %x, %o) {
  %i = program_id axis 0
  %a = load %x[0:5]
  %s = load %scale[1]
  %r = load %rows[%i]
  %sb = broadcast %s dims [] : i32[5]
  %rb = broadcast %r dims [] : i32[5]
  %m = mul %a, %sb
  %b = add %m, %rb
  store %o[0:5], %b
}""",
        [rows, scale, x],
        call(gather, [((6, 5), i32)], rows, scale, x, grid_spec=spec),
    )

    # Output blocks by data: consecutive programs on one block keep its contents, later visits find what earlier ones
    # left, the last block hangs over the edge. The index is computed from two prefetch operands and the program id.
    def groups(to_ref, first_ref, x_ref, o_ref):
        i = pl.program_id(0)

        @pl.when(first_ref[i] == 1)
        def _():
            o_ref[...] = jnp.zeros((2, 3), i32)

        o_ref[...] += x_ref[...]

    to, first = np.array([1, 1, 0, 2, 1, 0, 2], np.int32), np.array([1, 0, 1, 1, 0, 0, 0], np.int8)
    y = rng.integers(-50, 50, (14, 3)).astype(np.int32)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(7,),
        in_specs=[pl.BlockSpec((2, 3), lambda i, to, first: (i, 0))],
        out_specs=[pl.BlockSpec((2, 3), lambda i, to, first: (to[i] + first[i].astype(i32) - first[i].astype(i32), 0))],
    )
    write(
        "prefetch_groups",
        """
kernel @prefetch_groups
grid (7)
prefetch i32[7] whole
prefetch i8[7] whole
in i32[14, 3] block (2, 3) map (%i, %to, %first) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out i32[5, 3] block (2, 3) map (%i, %to, %first) {
  %t = load %to[%i]
  %f = load %first[%i]
  %g = convert %f : i32[]
  %u = add %t, %g
  %v = sub %u, %g
  %0 = constant 0 : i32[]
  yield %v, %0
}
body (%to, %first, %x, %o) {
  %i = program_id axis 0
  %f = load %first[%i]
  %1 = constant 1 : i8[]
  %new = eq %f, %1
  if %new {
    %z = constant 0 : i32[2, 3]
    store %o[0:2, 0:3], %z
  }
  %a = load %o[0:2, 0:3]
  %b = load %x[0:2, 0:3]
  %c = add %a, %b
  store %o[0:2, 0:3], %c
}""",
        [to, first, y],
        call(groups, [((5, 3), i32)], to, first, y, grid_spec=spec),
    )


def aliases():
    # The third of four blocks is visited by nobody and keeps the input's contents.
    def bump(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 100

    x = rng.integers(-50, 50, (4, 6)).astype(np.int32)
    rows = lambda i: (3 * (i // 2) + i % 2 * (1 - i // 2), 0)  # 0, 1, 3
    spec = pl.BlockSpec((1, 6), rows)
    write(
        "alias_unvisited",
        """
kernel @alias_unvisited
grid (3)
in i32[4, 6] block (1, 6) map (%i) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %3 = constant 3 : i32[]
  %h = div %i, %2
  %m = rem %i, %2
  %a = mul %3, %h
  %n = sub %1, %h
  %b = mul %m, %n
  %r = add %a, %b
  yield %r, %0
}
out i32[4, 6] alias 0 block (1, 6) map (%i) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %3 = constant 3 : i32[]
  %h = div %i, %2
  %m = rem %i, %2
  %a = mul %3, %h
  %n = sub %1, %h
  %b = mul %m, %n
  %r = add %a, %b
  yield %r, %0
}
body (%x, %o) {
  %a = load %x[0:1, 0:6]
  %c = constant 100 : i32[1, 6]
  %b = add %a, %c
  store %o[0:1, 0:6], %b
}""",
        [x],
        call(bump, [((4, 6), i32)], x, grid=(3,), in_specs=[spec], out_specs=[spec], input_output_aliases={0: 0}),
    )

    # Numbers count the scalar-prefetch operand. Rows by data are replaced in a table: the output is read, modified and
    # written, the input never read.
    def put(to_ref, v_ref, t_ref, o_ref):
        o_ref[...] = v_ref[...] * 2 + o_ref[...]

    to, v, t = (
        np.array([3, 0, 3], np.int32),
        rng.integers(-9, 9, (3, 5)).astype(np.int32),
        rng.integers(-9, 9, (7, 5)).astype(np.int32),
    )
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(3,),
        in_specs=[pl.BlockSpec((None, 5), lambda i, to: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec((2, 5), lambda i, to: (to[i], 0))],
    )
    write(
        "alias_prefetch",
        """
kernel @alias_prefetch
grid (3)
prefetch i32[3] whole
in i32[3, 5] block (squeezed, 5) map (%i, %to) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
in i32[7, 5] whole
out i32[7, 5] alias 2 block (2, 5) map (%i, %to) {
  %t = load %to[%i]
  %0 = constant 0 : i32[]
  yield %t, %0
}
body (%to, %v, %t, %o) {
  %a = load %v[0:5]
  %2 = constant 2 : i32[5]
  %b = mul %a, %2
  %c = broadcast %b dims [1] : i32[2, 5]
  %d = load %o[0:2, 0:5]
  %e = add %c, %d
  store %o[0:2, 0:5], %e
}""",
        [to, v, t],
        call(put, [((7, 5), i32)], to, v, t, grid_spec=grid_spec, input_output_aliases={2: 0}),
    )

    # No program at all: the output is the input.
    spec = pl.BlockSpec((1, 6), lambda i: (i, 0))
    write(
        "alias_no_programs",
        """
kernel @alias_no_programs
grid (0)
in i32[4, 6] block (1, 6) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out i32[4, 6] alias 0 block (1, 6) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %o) {
  %a = load %x[0:1, 0:6]
  %c = constant 100 : i32[1, 6]
  %b = add %a, %c
  store %o[0:1, 0:6], %b
}""",
        [x],
        call(bump, [((4, 6), i32)], x, grid=(0,), in_specs=[spec], out_specs=[spec], input_output_aliases={0: 0}),
    )

    # Within a program the input is read as it was when the program started, whatever the program stores before it
    # reads.
    def rotate(x_ref, o_ref):
        o_ref[0:1] = x_ref[3:4]
        o_ref[1:4] = x_ref[0:3]

    y = rng.integers(-50, 50, (8,)).astype(np.int32)
    spec = pl.BlockSpec((4,), lambda i: (i,))
    write(
        "alias_read_after_store",
        """
kernel @alias_read_after_store
grid (2)
in i32[8] block (4) map (%i) { yield %i }
out i32[8] alias 0 block (4) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[3:4]
  store %o[0:1], %a
  %b = load %x[0:3]
  store %o[1:4], %b
}""",
        [y],
        call(rotate, [((8,), i32)], y, grid=(2,), in_specs=[spec], out_specs=[spec], input_output_aliases={0: 0}),
    )

    # Blocks of an input that is stored to: later programs on the block see it, the last block hangs over the edge.
    def stored(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        x_ref[0:2] = x_ref[0:2] * 2 + 1

    spec = pl.BlockSpec((3,), lambda i, j: (j,))
    write(
        "stored_input_blocks",
        """
kernel @stored_input_blocks
grid (3, 2)
in i32[5] block (3) map (%i, %j) { yield %j }
out i32[3, 5] block (squeezed, 3) map (%i, %j) { yield %i, %j }
body (%x, %o) {
  %a = load %x[0:3]
  store %o[0:3], %a
  %b = load %x[0:2]
  %2 = constant 2 : i32[2]
  %1 = constant 1 : i32[2]
  %c = mul %b, %2
  %d = add %c, %1
  store %x[0:2], %d
}""",
        [y[:5]],
        call(
            stored,
            [((3, 5), i32)],
            y[:5],
            grid=(3, 2),
            in_specs=[spec],
            out_specs=[pl.BlockSpec((None, 3), lambda i, j: (i, j))],
        ),
    )


def element():
    # Windows of four that overlap by two; the last start is clamped so that the block fits into the array padded to a
    # multiple of four.
    def sums(x_ref, o_ref):
        o_ref[...] = (x_ref[0] + x_ref[3] * 10).reshape(1)

    x = rng.integers(-50, 50, (12,)).astype(np.int32)
    write(
        "element_windows",
        """
kernel @element_windows
grid (7)
in i32[12] block (element(4)) map (%i) {
  %2 = constant 2 : i32[]
  %s = mul %i, %2
  yield %s
}
out i32[7] block (1) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0]
  %b = load %x[3]
  %10 = constant 10 : i32[]
  %c = mul %b, %10
  %d = add %a, %c
  %e = broadcast %d dims [] : i32[1]
  store %o[0:1], %e
}""",
        [x],
        call(
            sums,
            [((7,), i32)],
            x,
            grid=(7,),
            in_specs=[pl.BlockSpec((pl.Element(4),), lambda i: (i * 2,))],
            out_specs=[pl.BlockSpec((1,), lambda i: (i,))],
        ),
    )

    # A stencil with padding before and behind: what it reads there is unspecified, and masked.
    def stencil(x_ref, o_ref):
        i = pl.program_id(0)
        at = jax.lax.broadcasted_iota(jnp.int32, (6,), 0) + i * 4 - 1
        v = jnp.where((at >= 0) & (at < 10), x_ref[...], 0.0)
        o_ref[...] = v[0:4] + 2 * v[1:5] + 4 * v[2:6]

    y = rng.integers(-8, 8, (10,)).astype(np.float32)
    write(
        "element_padding",
        """
kernel @element_padding
grid (3)
in f32[10] block (element(6, 1, 3)) map (%i) {
  %4 = constant 4 : i32[]
  %s = mul %i, %4
  yield %s
}
out f32[10] block (4) map (%i) { yield %i }
body (%x, %o) {
  %i = program_id axis 0
  %4 = constant 4 : i32[]
  %1 = constant 1 : i32[]
  %s = mul %i, %4
  %t = sub %s, %1
  %k = iota axis 0 : i32[6]
  %b = broadcast %t dims [] : i32[6]
  %at = add %k, %b
  %z = constant 0 : i32[6]
  %n = constant 10 : i32[6]
  %p = ge %at, %z
  %q = lt %at, %n
  %in = and %p, %q
  %a = load %x[0:6]
  %zf = constant 0.0 : f32[6]
  %v = select %in, %a, %zf
  %v0 = slice %v[0:4]
  %v1 = slice %v[1:5]
  %v2 = slice %v[2:6]
  %two = constant 2.0 : f32[4]
  %four = constant 4.0 : f32[4]
  %m1 = mul %v1, %two
  %m2 = mul %v2, %four
  %s1 = add %v0, %m1
  %s2 = add %s1, %m2
  store %o[0:4], %s2
}""",
        [y],
        call(
            stencil,
            [((10,), f32)],
            y,
            grid=(3,),
            in_specs=[pl.BlockSpec((pl.Element(6, (1, 3)),), lambda i: (i * 4,))],
            out_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        ),
    )

    # Output blocks that overlap: a program adds to what the one before left in the first half, and stores the second
    # half anew.
    def carry(x_ref, o_ref):
        o_ref[0:2] = jnp.where(pl.program_id(0) > 0, o_ref[0:2], 0) + x_ref[0:2]
        o_ref[2:4] = x_ref[2:4] * 3

    z = rng.integers(-50, 50, (12,)).astype(np.int32)
    spec = pl.BlockSpec((pl.Element(4),), lambda i: (i * 2,))
    write(
        "element_overlap",
        """
kernel @element_overlap
grid (5)
in i32[12] block (element(4)) map (%i) {
  %2 = constant 2 : i32[]
  %s = mul %i, %2
  yield %s
}
out i32[12] block (element(4)) map (%i) {
  %2 = constant 2 : i32[]
  %s = mul %i, %2
  yield %s
}
body (%x, %o) {
  %i = program_id axis 0
  %0 = constant 0 : i32[]
  %p = gt %i, %0
  %pb = broadcast %p dims [] : bool[2]
  %z = constant 0 : i32[2]
  %a = load %o[0:2]
  %b = select %pb, %a, %z
  %c = load %x[0:2]
  %d = add %b, %c
  store %o[0:2], %d
  %e = load %x[2:4]
  %3 = constant 3 : i32[2]
  %f = mul %e, %3
  store %o[2:4], %f
}""",
        [z],
        call(carry, [((12,), i32)], z, grid=(5,), in_specs=[spec], out_specs=[spec]),
    )

    # Padded output blocks beside a squeezed dim and a blocked one: what is stored to the padding is dropped.
    def padded(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    w = rng.integers(-50, 50, (3, 4, 6)).astype(np.int32)
    write(
        "element_padded_output",
        """
kernel @element_padded_output
grid (3, 2)
in i32[3, 4, 6] block (squeezed, 2, 6) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %j, %0
}
out i32[3, 4, 4] block (squeezed, 2, element(6, 1, 2)) map (%i, %j) {
  yield %i, %j, %i
}
body (%x, %o) {
  %a = load %x[0:2, 0:6]
  store %o[0:2, 0:6], %a
}""",
        [w],
        call(
            padded,
            [((3, 4, 4), i32)],
            w,
            grid=(3, 2),
            in_specs=[pl.BlockSpec((None, 2, 6), lambda i, j: (i, j, 0))],
            out_specs=[pl.BlockSpec((None, 2, pl.Element(6, (1, 2))), lambda i, j: (i, j, i))],
        ),
    )


def bounded():
    # JAX has bounded slices in pipelines only, on a TPU, whose kind it asks for while it traces. Two of the 128 columns
    # are kept.
    from jax._src.pallas.mosaic import tpu_info

    tpu_info.get_device_kind, tpu_info.get_num_device_cores = lambda: "TPU v5 lite", lambda: 1

    def slices(start_ref, size_ref, x_ref, o_ref):
        def body(x, o):
            o[...] = x[...] * 3 + 1

        spec = pl.BlockSpec((pl.BoundedSlice(16), 128), lambda i: (pl.ds(start_ref[i], size_ref[i]), 0))
        pltpu.emit_pipeline(body, grid=(5,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)

    start, size = np.array([0, 24, 16, 40, 56], np.int32), np.array([16, 16, 8, 16, 8], np.int32)
    x = rng.integers(-50, 50, (64, 128)).astype(np.int32)
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(1,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY)],
    )
    with jax.enable_x64(False):
        out = pl.pallas_call(
            slices,
            out_shape=[jax.ShapeDtypeStruct((64, 128), i32)],
            grid_spec=grid_spec,
            interpret=pltpu.InterpretParams(),
        )(start, size, x)
    write(
        "bounded_slices",
        """
kernel @bounded_slices
grid (5)
prefetch i32[5] whole
prefetch i32[5] whole
in i32[64, 2] block (bounded(16), 2) map (%i, %start, %size) {
  %s = load %start[%i]
  %n = load %size[%i]
  %0 = constant 0 : i32[]
  yield %s, %n, %0
}
out i32[64, 2] block (bounded(16), 2) map (%i, %start, %size) {
  %s = load %start[%i]
  %n = load %size[%i]
  %0 = constant 0 : i32[]
  yield %s, %n, %0
}
body (%start, %size, %x, %o) {
  %a = load %x[0:16, 0:2]
  %3 = constant 3 : i32[16, 2]
  %1 = constant 1 : i32[16, 2]
  %b = mul %a, %3
  %c = add %b, %1
  store %o[0:16, 0:2], %c
}""",
        [start, size, x[:, :2]],
        [np.asarray(out[0])[:, :2]],
    )


def grids():
    # Six axes; squeezed dims in every position.
    def number(x_ref, o_ref):
        n = 0
        for axis in range(6):
            n = n * 10 + pl.program_id(axis)
        o_ref[...] = x_ref[...] + n

    x = rng.integers(0, 9, (2, 3, 2, 2)).astype(np.int32)
    body = "\n".join(
        f"  %p{a} = program_id axis {a}\n  %m{a} = mul %n{a}, %10\n  %n{a + 1} = add %m{a}, %p{a}" for a in range(6)
    )
    write(
        "grid_of_six_axes",
        f"""
kernel @grid_of_six_axes
grid (2, 1, 3, 2, 1, 2)
in i32[2, 3, 2, 2] block (squeezed, 1, squeezed, 1) map (%a, %b, %c, %d, %e, %f) {{
  yield %a, %c, %d, %f
}}
out i32[2, 3, 2, 2] block (1, squeezed, 1, squeezed) map (%a, %b, %c, %d, %e, %f) {{
  yield %a, %c, %d, %f
}}
body (%x, %o) {{
  %n0 = constant 0 : i32[]
  %10 = constant 10 : i32[]
{body}
  %nb = broadcast %n6 dims [] : i32[1, 1]
  %v = load %x[0:1, 0:1]
  %w = add %v, %nb
  store %o[0:1, 0:1], %w
}}""",
        [x],
        call(
            number,
            [((2, 3, 2, 2), i32)],
            x,
            grid=(2, 1, 3, 2, 1, 2),
            in_specs=[pl.BlockSpec((None, 1, None, 1), lambda a, b, c, d, e, f: (a, c, d, f))],
            out_specs=[pl.BlockSpec((1, None, 1, None), lambda a, b, c, d, e, f: (a, c, d, f))],
        ),
    )


if __name__ == "__main__":
    prefetch()
    aliases()
    element()
    bounded()
    grids()
