"""Writes the stored answers in pallas/ about how arrays are cut into blocks: scalar prefetch. As make_answers.py: run by hand, in an environment
with jax, ml_dtypes and mpmath.

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
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=2, grid=(6,), in_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (rows[i], 0))],
                                        out_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (i, 0))])
    write("prefetch_gather", """
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
}""", [rows, scale, x], call(gather, [((6, 5), i32)], rows, scale, x, grid_spec=spec))

    # Output blocks by data: consecutive programs on one block keep its contents, later visits find what earlier ones left, the last block hangs
    # over the edge. The index is computed from two prefetch operands and the program id.
    def groups(to_ref, first_ref, x_ref, o_ref):
        i = pl.program_id(0)
        @pl.when(first_ref[i] == 1)
        def _():
            o_ref[...] = jnp.zeros((2, 3), i32)
        o_ref[...] += x_ref[...]
    to, first = np.array([1, 1, 0, 2, 1, 0, 2], np.int32), np.array([1, 0, 1, 1, 0, 0, 0], np.int8)
    y = rng.integers(-50, 50, (14, 3)).astype(np.int32)
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=2, grid=(7,), in_specs=[pl.BlockSpec((2, 3), lambda i, to, first: (i, 0))],
                                        out_specs=[pl.BlockSpec((2, 3), lambda i, to, first: (to[i] + first[i].astype(i32) - first[i].astype(i32), 0))])
    write("prefetch_groups", """
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
}""", [to, first, y], call(groups, [((5, 3), i32)], to, first, y, grid_spec=spec))


if __name__ == "__main__":
    prefetch()
