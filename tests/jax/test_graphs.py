"""tessera.export of functions whose kernels are called in loops and branches: the graph on a device and on the
interpreter, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tessera
from jax.experimental import pallas as pl
from support import DEVICES

pytestmark = pytest.mark.parametrize("where", DEVICES)
f32 = jnp.float32


def fused(name="fused", n=8):
    """2x + y in blocks of 4."""

    def body(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + y_ref[...]

    spec = pl.BlockSpec((4,), lambda i: (i,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n,), f32),
        grid=(pl.cdiv(n, 4),),
        in_specs=[spec, spec],
        out_specs=spec,
        name=name,
    )


def check(where, folder, fn, *args):
    """What the graph gives is what fn does; returns the graph's text."""
    tessera.export(fn, *args, path=folder)
    with tessera.on("interpreter"):
        wanted = jax.tree.leaves(fn(*args))
    got = tessera.load(folder, where)(*map(np.asarray, jax.tree.leaves(args)))
    for g, w in zip(got if isinstance(got, tuple) else [got], wanted, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    return (folder / "graph.txt").read_text()


def test_scan(where, tmp_path):
    xs = jnp.arange(40.0).reshape(5, 8) / 8

    def f(c, xs):
        scale = jnp.cos(xs[0])

        def step(c, x):
            y = fused()(c * 0.25, x + scale)
            return y, (y * 2, x[:3])

        return jax.lax.scan(step, c, xs)

    text = check(where, tmp_path, f, jnp.ones(8), xs)
    assert "= repeat 5 : f32[8], f32[5, 8], f32[5, 3] {\n  carry %" in text and "\n  slice %" in text


def test_scan_reversed_and_of_bytes(where, tmp_path):
    """Rows of 3 bytes and of 12: where no row is aligned."""
    xs = jnp.arange(21, dtype=jnp.uint8).reshape(7, 3)

    def f(c, xs):
        def step(c, x):
            y = fused(n=3)(c, x.astype(f32))
            return y * 0.125, (y, x + 1, y[0] > 1)

        return jax.lax.scan(step, c, xs, reverse=True)

    assert "= repeat 7 reverse : " in check(where, tmp_path, f, jnp.zeros(3), xs)


def test_scan_of_nothing(where, tmp_path):
    def f(c, xs):
        return jax.lax.scan(lambda c, x: (fused()(c, x), c), c, xs)

    assert "repeat 0 : f32[8], f32[0, 8] {" in check(where, tmp_path, f, jnp.ones(8), jnp.zeros((0, 8)))


def test_fori_loop(where, tmp_path):
    def f(x):
        return jax.lax.fori_loop(0, 6, lambda i, c: fused()(c * 0.25, c + i), x)

    assert "repeat 6 : " in check(where, tmp_path, f, jnp.arange(8.0))


def test_fori_loop_with_a_bound_of_the_call(where, tmp_path):
    def f(x, n):
        return jax.lax.fori_loop(0, n, lambda i, c: fused()(c * 0.25, c + i), x)

    for n in (0, 4):
        assert "repeat : " in check(where, tmp_path, f, jnp.arange(8.0), jnp.int32(n))


def test_while_loop(where, tmp_path):
    def f(x, most):
        """A kernel in the test too, and a value that the loop closes over."""

        def test(c):
            return fused("in_the_test")(c[1], c[1])[3] < most

        return jax.lax.while_loop(test, lambda c: (c[0] + 1, fused()(c[1], x)), (0, x))

    text = check(where, tmp_path, f, jnp.arange(8.0) / 4, f32(40))
    assert "\n  while %" in text and text.count('call "in_the_test.tir"') == 1
    check(where, tmp_path, f, jnp.arange(8.0) / 4, f32(-1))


def test_carries_that_change_places(where, tmp_path):
    def f(x, y):
        return jax.lax.while_loop(
            lambda c: c[2] < 5, lambda c: (c[1], fused()(c[0], c[1]), c[2] + 1, c[0]), (x, y, 0, x)
        )

    check(where, tmp_path, f, jnp.arange(8.0), jnp.ones(8))

    def g(x, y):
        return jax.lax.fori_loop(0, 5, lambda i, c: (c[1], fused()(c[0], c[1]), c[0]), (x, y, x))

    check(where, tmp_path, g, jnp.arange(8.0), jnp.ones(8))


def test_cond_and_switch(where, tmp_path):
    def f(x, flag, which):
        a = jax.lax.cond(flag > 0, lambda x: fused()(x, x), lambda x: x, x)
        b, c = jax.lax.switch(
            which,
            [lambda x, a: (a, x), lambda x, a: (fused()(a, x), a + 1), lambda x, a: (fused("last")(x, x), x)],
            x,
            a,
        )
        return a, b, c, x

    for flag, which in ((1, 0), (0, 1), (1, 2), (0, -3), (1, 9)):
        text = check(where, tmp_path, f, jnp.arange(8.0), jnp.int32(flag), jnp.int32(which))
    assert text.count("= switch %") == 2 and text.count("} {") == 3


def test_loops_in_branches_in_loops(where, tmp_path):
    def f(x, n):
        def outer(c, row):
            inner = jax.lax.cond(
                row[0] > 2,
                lambda c: jax.lax.fori_loop(0, 3, lambda _, d: fused()(d * 0.5, row), c),
                lambda c: jax.lax.while_loop(lambda d: d[0] < n, lambda d: fused()(d, row + 1), c),
                c,
            )
            return inner, inner.sum()

        return jax.lax.scan(outer, x[0], x)

    check(where, tmp_path, f, jnp.arange(24.0).reshape(3, 8) / 4, f32(9))


def test_a_grid_whose_size_comes_with_the_call(where, tmp_path):
    def f(x, n):
        """Rows from n on are as they were."""

        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] * pl.program_id(0) + pl.num_programs(0)

        spec = pl.BlockSpec((1, 8), lambda i: (i, 0))
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(n * 2,),
            in_specs=[spec],
            out_specs=spec,
            input_output_aliases={0: 0},
            name="some",
        )(x)

    x = jnp.ones((6, 8))
    for n in (0, 1, 3):
        assert '= call "some.tir"(%0) with grid_0 = %' in check(where, tmp_path, f, x, jnp.int32(n))

    def g(x):
        return jax.lax.scan(lambda c, n: (f(c, n), c.sum()), x, jnp.arange(4))

    check(where, tmp_path, g, x)


def twice(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), name="twice")(x)


def test_while_loop_under_vmap(where, tmp_path):
    """Whose test is an array: it goes on as long as any element's does."""

    def f(x, n):
        return jax.vmap(
            lambda x, n: jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, twice(c[1])), (0, x))[1]
        )(x, n)

    check(where, tmp_path / "w", f, jnp.arange(6.0).reshape(3, 2), jnp.asarray([1, 4, 2]))
    check(
        where,
        tmp_path / "f",
        lambda x, n: jax.vmap(lambda x, n: jax.lax.fori_loop(0, n, lambda i, c: twice(c) + i, x))(x, n),
        jnp.arange(6.0).reshape(3, 2),
        jnp.asarray([0, 3, 1]),
    )


def test_constants_of_narrow_dtypes(where, tmp_path):
    for i, dtype in enumerate((jnp.float8_e4m3b11fnuz, jnp.int2, jnp.float8_e4m3fn, jnp.bfloat16, jnp.int4)):
        check(
            where,
            tmp_path / str(i),
            lambda x, dtype=dtype: twice(x) + jnp.asarray([1, 0, -1, 1, -2, 0], dtype).astype(f32),
            jnp.arange(6.0),
        )


def test_calls_of_functions_with_rules(where, tmp_path):
    """Kernels inside of lax.composite, linear_call and custom_linear_solve."""
    linear = jax.custom_derivatives.linear_call
    check(
        where,
        tmp_path / "composite",
        lambda x: jax.lax.composite(lambda x: twice(x) + 1, name="a.b")(x),
        jnp.arange(6.0),
    )
    check(
        where,
        tmp_path / "linear",
        lambda x, k: linear(lambda r, x: twice(x) * r * k, lambda r, t: t * r * k * 2, jnp.float32(3), x),
        jnp.arange(6.0),
        jnp.float32(5),
    )
    check(
        where,
        tmp_path / "solve",
        lambda x: jax.lax.custom_linear_solve(lambda v: v * 2, x, lambda mv, b: twice(b) / 4, lambda mv, b: b / 2),
        jnp.arange(6.0),
    )


@pytest.mark.parametrize("dtype", ["uint32", "int16", "uint8", "int8", "int32"])
def test_a_grid_whose_size_is_of_any_integer_dtype(where, tmp_path, dtype):
    def f(n, x):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + 1

        spec = pl.BlockSpec((2,), lambda i: (i,))
        return pl.pallas_call(
            body,
            grid=(n,),
            in_specs=[spec],
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct((8,), f32),
            input_output_aliases={0: 0},
            name="some",
        )(x)

    n, x = jnp.asarray(3, dtype), jnp.arange(8.0)
    wanted = np.arange(8) + (np.arange(8) < 6)
    with tessera.on(where):
        np.testing.assert_array_equal(jax.jit(f)(n, x), wanted)
    tessera.export(f, n, x, path=tmp_path)
    np.testing.assert_array_equal(tessera.load(tmp_path, where)(np.asarray(n), np.asarray(x)), wanted)


def test_errors_say_what_and_where(where, tmp_path):
    """The line is the user's, also inside of JAX's own functions, whose equations have none."""

    def asks(x):
        return jax.pure_callback(lambda v: v, x, twice(x))

    def makes(x):
        return jax.random.uniform(jax.random.key(1, impl="rbg"), (6,)) + twice(x)

    def maps(x):
        return jax.pmap(twice)(x[None])

    here = r"\n  at .*test_graphs.py:"
    for f, text in (
        (
            asks,
            (
                r"pure_callback: what is exported runs without Python, and so cannot call"
                rf" it{here}{asks.__code__.co_firstlineno + 1}\n  note: "
            ),
        ),
        (
            makes,
            rf"the primitive rng_bit_generator of JAX cannot be imported{here}{makes.__code__.co_firstlineno + 1}\n",
        ),
        (
            maps,
            (
                r"shard_map: it has kernels inside, which export does not look for"
                rf" there{here}{maps.__code__.co_firstlineno + 1}\n  note: call them outside of it$"
            ),
        ),
    ):
        with pytest.raises(tessera.Error, match=text):
            tessera.export(f, jnp.arange(6.0), path=tmp_path)
