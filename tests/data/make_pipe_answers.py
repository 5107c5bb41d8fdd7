"""Writes the stored answers about memory of a kernel's own, semaphores, copies (pallas/pipes_*) and emit_pipeline
(pipelines/), by JAX's TPU interpreter. As make_answers.py: run by hand, in an environment with jax, ml_dtypes and
mpmath.

    JAX_PLATFORMS=cpu python tests/data/make_pipe_answers.py
"""

import make_answers
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic import tpu_info
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

f32, i32 = jnp.float32, jnp.int32
rng = np.random.default_rng(8)
ANY = pl.BlockSpec(memory_space=pl.ANY)
# emit_pipeline asks for a device's tiling even where nothing is lowered for one.
tpu_info.registry["cpu"] = lambda: tpu_info.get_tpu_info_for_chip(tpu_info.ChipVersion.TPU_V5E, 1)


def call(kernel, shapes, *inputs, **kwargs):
    out = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
    return [
        np.asarray(y)
        for y in pl.pallas_call(kernel, out_shape=out, interpret=pltpu.InterpretParams(), **kwargs)(*inputs)
    ]


def write(name, text, inputs, outputs):
    make_answers.write_case("pallas", name, text, inputs, outputs)


def whole_numbers(*shape):
    return rng.integers(-9, 10, shape).astype(np.float32)


def copies():
    # Rows doubled through two buffers, the next one on its way while one is worked on.
    def kernel(x_ref, o_ref, buf, sem):
        def fetch(k):
            return pltpu.make_async_copy(x_ref.at[pl.ds(k * 8, 8)], buf.at[k % 2], sem.at[k % 2])

        fetch(0).start()

        def body(k, _):
            @pl.when(k + 1 < 5)
            def _():
                fetch(k + 1).start()

            fetch(k).wait()
            doubled = buf[k % 2] * 2

            def out(t):
                t[...] = doubled
                pltpu.sync_copy(t, o_ref.at[pl.ds(k * 8, 8)])

            pl.run_scoped(out, pltpu.VMEM((8, 128), f32))
            return 0

        jax.lax.fori_loop(0, 5, body, 0)

    x = whole_numbers(40, 128)
    write(
        "pipes_copies",
        """
kernel @pipes_copies
in f32[40, 128] whole
out f32[40, 128] whole
scratch ref<vmem, f32[2, 8, 128]>
scratch ref<dma_semaphore, i32[2]>
body (%x, %o, %buf, %sem) {
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %two = constant 2 : i32[]
  %five = constant 5 : i32[]
  %eight = constant 8 : i32[]
  copy_start %x[0:8, 0:128] to %buf[0, 0:8, 0:128] with %sem[0]
  for %k = %zero to %five step %one {
    %slot = rem %k, %two
    %next = add %k, %one
    %next_slot = rem %next, %two
    %row = mul %k, %eight
    %next_row = mul %next, %eight
    %more = lt %next, %five
    if %more {
      copy_start %x[ds(%next_row, 8), 0:128] to %buf[%next_slot, 0:8, 0:128] with %sem[%next_slot]
    }
    copy_wait %x[ds(%row, 8), 0:128] to %buf[%slot, 0:8, 0:128] with %sem[%slot]
    %a = load %buf[%slot, 0:8, 0:128]
    %b = add %a, %a
    run_scoped (%t: ref<vmem, f32[8, 128]>, %s: ref<dma_semaphore, i32[]>) {
      store %t[0:8, 0:128], %b
      copy_start %t[0:8, 0:128] to %o[ds(%row, 8), 0:128] with %s[]
      copy_wait %t[0:8, 0:128] to %o[ds(%row, 8), 0:128] with %s[]
    }
  }
}""",
        [x],
        call(
            kernel,
            [((40, 128), f32)],
            x,
            in_specs=[ANY],
            out_specs=[ANY],
            scratch_shapes=[pltpu.VMEM((2, 8, 128), f32), pltpu.SemaphoreType.DMA((2,))],
        ),
    )


def scoped():
    # Fresh memory in a loop and in a branch, one scope in another, a value that comes out, semaphores from program to
    # program.
    def kernel(x_ref, o_ref, sem):
        i = pl.program_id(0)

        def body(k, total):
            def outer(t, n):
                t[...] = x_ref[...] * k.astype(f32)
                n[0] = k + 1

                def inner(u):
                    u[...] = t[...] + n[0].astype(f32)
                    return u[...]

                return pl.run_scoped(inner, pltpu.VMEM((8, 128), f32))

            return total + pl.run_scoped(outer, pltpu.VMEM((8, 128), f32), pltpu.SMEM((1,), i32))

        total = jax.lax.fori_loop(0, 3, body, jnp.zeros((8, 128), f32))
        o_ref[...] = total

        @pl.when(i == 1)
        def _():
            def add(t):
                t[...] = total
                o_ref[...] += t[...]

            pl.run_scoped(add, pltpu.VMEM((8, 128), f32))

        pl.semaphore_signal(sem, 2)

        @pl.when(i == 2)
        def _():
            pl.semaphore_wait(sem, 6)

    x = whole_numbers(24, 128)
    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    write(
        "pipes_scoped",
        """
kernel @pipes_scoped
grid (3)
in f32[24, 128] block (8, 128) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out f32[24, 128] block (8, 128) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
scratch ref<semaphore, i32[]>
body (%x, %o, %sem) {
  %i = program_id axis 0
  %zero = constant 0 : i32[]
  %one = constant 1 : i32[]
  %two = constant 2 : i32[]
  %three = constant 3 : i32[]
  %six = constant 6 : i32[]
  %z = constant 0 : f32[8, 128]
  %total = for %k = %zero to %three step %one carry (%sum = %z) {
    %part = run_scoped (%t: ref<vmem, f32[8, 128]>, %n: ref<smem, i32[1]>) {
      %a = load %x[0:8, 0:128]
      %kf = convert %k : f32[]
      %kb = broadcast %kf dims [] : f32[8, 128]
      %b = mul %a, %kb
      store %t[0:8, 0:128], %b
      %k1 = add %k, %one
      store %n[0], %k1
      %r = run_scoped (%u: ref<vmem, f32[8, 128]>) {
        %c = load %t[0:8, 0:128]
        %m = load %n[0]
        %mf = convert %m : f32[]
        %mb = broadcast %mf dims [] : f32[8, 128]
        %d = add %c, %mb
        store %u[0:8, 0:128], %d
        %e = load %u[0:8, 0:128]
        yield %e
      }
      yield %r
    }
    %next = add %sum, %part
    yield %next
  }
  store %o[0:8, 0:128], %total
  %is_one = eq %i, %one
  if %is_one {
    run_scoped (%v: ref<vmem, f32[8, 128]>) {
      store %v[0:8, 0:128], %total
      %f = load %v[0:8, 0:128]
      %g = load %o[0:8, 0:128]
      %h = add %f, %g
      store %o[0:8, 0:128], %h
    }
  }
  semaphore_signal %sem[], %two
  %is_two = eq %i, %two
  if %is_two {
    semaphore_wait %sem[], %six
  }
}""",
        [x],
        call(
            kernel,
            [((24, 128), f32)],
            x,
            grid=(3,),
            in_specs=[block],
            out_specs=[block],
            scratch_shapes=[pltpu.SemaphoreType.REGULAR],
        ),
    )


def pipelines():
    """Each kernel stands in pipeline_test.cpp too. Whole numbers, so that answers are exact."""

    def keep(name, inputs, outputs):
        for i, x in enumerate(inputs):
            make_answers.save("pipelines", f"{name}.in{i}", x)
        for i, y in enumerate(outputs):
            make_answers.save("pipelines", f"{name}.out{i}", y)

    # The last block hangs over the edge.
    def add(x_ref, y_ref, o_ref):
        def body(x, y, o):
            o[...] = x[...] + y[...] * pl.program_id(0).astype(f32) + pl.num_programs(0)

        block = pl.BlockSpec((16, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(3,), in_specs=[block, block], out_specs=[block])(x_ref, y_ref, o_ref)

    x, y = whole_numbers(40, 128), whole_numbers(40, 128)
    keep("add", [x, y], call(add, [((40, 128), f32)], x, y, in_specs=[ANY, ANY], out_specs=[ANY]))

    # An output that is accumulated over the steps that stay on its block.
    def matmul(x_ref, y_ref, o_ref):
        def body(x, y, o):
            @pl.when(pl.program_id(2) == 0)
            def _():
                o[...] = jnp.zeros((8, 128), f32)

            o[...] += jnp.dot(x[...], y[...])

        pltpu.emit_pipeline(
            body,
            grid=(2, 2, 3),
            in_specs=[pl.BlockSpec((8, 128), lambda i, j, k: (i, k)), pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((8, 128), lambda i, j, k: (i, j))],
        )(x_ref, y_ref, o_ref)

    x, y = whole_numbers(16, 384), whole_numbers(384, 256)
    keep("matmul", [x, y], call(matmul, [((16, 256), f32)], x, y, in_specs=[ANY, ANY], out_specs=[ANY]))

    # Blocks that stay for two steps, a block that never changes, three buffers; inside of a grid.
    def stay(x_ref, y_ref, o_ref):
        outer = pl.program_id(0)

        def body(x, y, o):
            o[...] = x[...] * y[...] + pl.program_id(0).astype(f32) + 10 * outer.astype(f32)

        pltpu.emit_pipeline(
            body,
            grid=(6,),
            in_specs=[
                pl.BlockSpec((8, 128), lambda i: (i // 2, outer), pipeline_mode=pl.Buffered(3)),
                pl.BlockSpec((8, 128), lambda i: (0, 0)),
            ],
            out_specs=[pl.BlockSpec((8, 128), lambda i: (i, outer))],
        )(x_ref, y_ref, o_ref)

    x, y = whole_numbers(24, 256), whole_numbers(8, 128)
    keep("stay", [x, y], call(stay, [((48, 256), f32)], x, y, grid=(2,), in_specs=[ANY, ANY], out_specs=[ANY]))

    # A number of steps that arrives as data.
    def some(n_ref, x_ref, o_ref):
        def fill(t):
            t[...] = jnp.full((32, 128), -1, f32)
            pltpu.sync_copy(t, o_ref)

        pl.run_scoped(fill, pltpu.VMEM((32, 128), f32))

        def body(x, o):
            o[...] = x[...] * 2

        block = pl.BlockSpec((8, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(n_ref[0],), in_specs=[block], out_specs=[block])(x_ref, o_ref)

    x = whole_numbers(32, 128)
    for n in range(4):
        count = np.array([n], np.int32)
        keep(
            f"some{n}",
            [count, x],
            call(
                some,
                [((32, 128), f32)],
                count,
                x,
                in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANY],
                out_specs=[ANY],
            ),
        )


if __name__ == "__main__":
    copies()
    scoped()
    with jax.enable_x64(False):  # emit_pipeline mixes 32-bit grids with 64-bit counters else
        pipelines()
