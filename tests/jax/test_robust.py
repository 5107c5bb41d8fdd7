"""What JAX does around a call (grad, aliases, donation, several devices, threads), what users get wrong, and what goes
wrong by itself: right results, or an exception that says what to do; never a hang or a crash."""

import functools
import os
import shutil
import subprocess
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tessera
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from support import DEVICES, python

f32 = jnp.float32


def whole(*shape, dtype=f32):
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(-4, 5, shape), dtype)


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def times(k, **options):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * k

    return lambda x: pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)


# -- JAX around the call


def test_grad(device):
    @jax.custom_vjp
    def cube(x):
        return times(1)(x) ** 3

    cube.defvjp(lambda x: (cube(x), x), lambda x, g: (times(3)(x * x) * g,))
    x = whole(5)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: cube(x).sum()))(x), 3 * x * x)
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: cube(x).sum()))(whole(3, 5)), 3 * whole(3, 5) ** 2)


def test_arguments_without_tangents(device):
    def scales(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]

    f = pl.pallas_call(scales, out_shape=jax.ShapeDtypeStruct((5,), f32))
    x = whole(5)
    for y in (x + 1, whole(5, dtype=jnp.int32)):
        with pytest.raises(
            tessera.Error,
            match=r"scales.*: the call has 6 Refs, but its kernel takes 5: JAX's jvp makes such calls where an"
            r" argument, of integers say, has no tangent\n  at .*test_robust.py:"
            r"\d+\n  note: give every argument a tangent \(jnp.zeros_like\), or the function around the call a rule of"
            r" its own \(jax.custom_jvp\)",
        ):
            jax.jvp(lambda x: f(x, y), (x,), (x,))
    np.testing.assert_array_equal(jax.jvp(f, (x, x + 1), (x, jnp.zeros_like(x)))[1], x * (x + 1))


def test_aliases(device):
    def add_to(x_ref, y_ref, o_ref):
        o_ref[...] = y_ref[...] + x_ref[...]

    @functools.partial(jax.jit, donate_argnums=1)
    def donated(x, y):
        return call(x, y)

    spec = pl.BlockSpec((4,), lambda i: (i,))
    call = pl.pallas_call(
        add_to,
        out_shape=jax.ShapeDtypeStruct((12,), f32),
        grid=(2,),
        in_specs=[spec, spec],
        out_specs=spec,
        input_output_aliases={1: 0},
    )
    x, y = whole(12), whole(12) + 10
    wanted = np.where(np.arange(12) < 8, x + y, y)  # the last block is visited by no program
    kept = np.array(y)
    np.testing.assert_array_equal(jax.jit(call)(x, y), wanted)
    np.testing.assert_array_equal(call(x, y), wanted)
    np.testing.assert_array_equal(y, kept)
    np.testing.assert_array_equal(donated(x, jnp.array(kept)), wanted)
    np.testing.assert_array_equal(jax.jit(lambda x, y: (call(x, y), y))(x, y)[1], kept)


def test_scan_that_carries_an_aliased_array(device):
    def increment(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    call = pl.pallas_call(increment, out_shape=jax.ShapeDtypeStruct((6,), f32), input_output_aliases={0: 0})
    x = whole(6)
    kept = np.array(x)
    np.testing.assert_array_equal(jax.jit(lambda x: lax.fori_loop(0, 5, lambda _, y: call(y), x))(x), kept + 5)
    np.testing.assert_array_equal(x, kept)


def test_donated_without_alias(device):
    x = whole(6)
    wanted = np.array(x) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, that the memory was of no use
        np.testing.assert_array_equal(jax.jit(times(2), donate_argnums=0)(x), wanted)


def test_dynamic_grids(device):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + n_ref[0]

    @jax.jit
    def call(n, x):
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(n,),
            in_specs=[pl.BlockSpec((2,), lambda i, n: (i,))],
            out_specs=pl.BlockSpec((2,), lambda i, n: (i,)),
        )
        return pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct((8,), jnp.int32), grid_spec=spec, input_output_aliases={1: 0}
        )(n[None], x)

    x = whole(8, dtype=jnp.int32)
    for n in (0, 1, 3, 4):
        np.testing.assert_array_equal(call(jnp.asarray(n, jnp.int32), x), np.where(np.arange(8) < 2 * n, x + n, x))


def test_devices():
    found = tessera.devices()
    assert [d["device"] for d in found] == [f"vulkan:{i}" for i in range(len(found))]
    assert all(sorted(d) == ["device", "driver", "kind", "lacks", "name"] for d in found)
    usable = [d for d in found if not d["lacks"]]
    assert usable and all(
        d["name"] and d["driver"] and d["kind"] in ("discrete GPU", "integrated GPU", "virtual GPU", "CPU", "other")
        for d in usable
    )
    with tessera.on(usable[0]["device"]):
        np.testing.assert_array_equal(jax.jit(times(3))(whole(6)), whole(6) * 3)
    text = python(
        "import tessera\ntry: tessera.devices()\nexcept tessera.Error as e: print(e)",
        VK_ICD_FILENAMES="/none",
        VK_DRIVER_FILES="/none",
    )[0]
    assert text.startswith("there is no Vulkan driver on this machine: install ")


def test_several_devices_of_the_platform(device):
    cpus = jax.devices()
    assert len(cpus) == 2
    for d in cpus:
        y = jax.jit(times(3))(jax.device_put(whole(6), d))
        assert y.devices() == {d}
        np.testing.assert_array_equal(y, whole(6) * 3)
    mesh = jax.sharding.Mesh(np.array(cpus), ("i",))
    spec = jax.sharding.PartitionSpec("i")

    def ring(x):
        return times(2)(lax.ppermute(times(3)(x), "i", [(0, 1), (1, 0)]))

    f = jax.jit(jax.shard_map(ring, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    x = whole(4, 3)
    for _ in range(5):
        np.testing.assert_array_equal(f(x), jnp.roll(x, 2, axis=0) * 6)


def test_positions_along_the_mesh_around_a_call(device):
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(1, 2), ("a", "b"))
    spec = jax.sharding.PartitionSpec("b")

    def over(f, out=spec):
        return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, check_vma=False)

    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = x_ref[...] + lax.axis_index(("a", "b")) * 10

        @pl.when(pl.program_id(0) == 1)
        def _():
            o_ref[...] = x_ref[...] * (lax.axis_index("b") + 3)

    row = pl.BlockSpec((1, 3), lambda i: (i, 0))
    f = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((2, 3), f32), grid=(2,), in_specs=[row], out_specs=row)
    x = whole(4, 3)
    wanted = jnp.stack([x[0], x[1] * 3, x[2] + 10, x[3] * 4])
    np.testing.assert_array_equal(jax.jit(over(f))(x), wanted)
    np.testing.assert_array_equal(over(f)(x), wanted)
    np.testing.assert_array_equal(
        jax.jit(over(lambda x: jax.vmap(f)(x[None])[0] + lax.scan(lambda c, y: (c, f(y)), 0, x[None])[1][0]))(x),
        2 * wanted,
    )

    spec_of_map = pl.BlockSpec((1, 3), lambda i: (lax.axis_index("b"), 0))
    with pytest.raises(
        tessera.Error,
        match="kernel: axis_index: 'b' is an axis of the mesh around the call, where an index map cannot look\n"
        "  at .*test_robust.py:\\d+\n"
        "  note: pass lax.axis_index as a scalar-prefetch operand",
    ):
        jax.jit(over(times(2, grid=(2,), in_specs=[spec_of_map], out_specs=row)))(x)

    def meets(x_ref, o_ref):
        o_ref[...] = lax.psum(x_ref[...], "b")

    with pytest.raises(
        tessera.Error,
        match="meets: psum: kernels cannot meet programs on other devices\n"
        "  note: call it on the results of the kernel\n  at .*test_robust.py:",
    ):
        jax.jit(over(pl.pallas_call(meets, out_shape=jax.ShapeDtypeStruct((2, 3), f32))))(x)


def test_threads_that_trace_and_call_at_once(device):
    wrong = []

    def work(k):
        try:
            with tessera.on(device):
                f = jax.jit(times(k))
                for i in range(5):
                    if not np.array_equal(f(whole(20) + i), (whole(20) + i) * k):
                        wrong.append((k, i))
                # all of them the same, for the first time
                if not np.array_equal(jax.jit(times(1.5))(whole(20)), whole(20) * 1.5):
                    wrong.append(k)
        except Exception as e:  # noqa: BLE001: a thread's is lost otherwise
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2, 6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


# -- the official hook


def test_compiler_params_choose_a_device():
    calls = tessera.stats()["calls"]
    f = times(2, compiler_params=tessera.CompilerParams("interpreter"))
    g = times(2, compiler_params=tessera.CompilerParams("vulkan", dimension_semantics=[]))
    np.testing.assert_array_equal(jax.jit(f)(whole(6)), whole(6) * 2)
    np.testing.assert_array_equal(jax.jit(g)(whole(6)), whole(6) * 2)
    assert tessera.stats()["calls"] == calls + 2
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU backend"):
        times(3)(whole(6))  # those without them are as they were
    with pytest.raises(tessera.Error, match='the device "toaster" is not known'):
        times(2, compiler_params=tessera.CompilerParams("toaster"))(whole(6))
    with pytest.raises(
        tessera.Error,
        match="tessera.CompilerParams runs kernels on JAX's CPU platform only, and this call is lowered for cuda\n"
        "  note: put its arguments on",
    ):
        jax.jit(f).trace(whole(6)).lower(lowering_platforms=("cuda",))


def test_dimension_semantics_are_checked(device):
    with pytest.raises(
        tessera.Error,
        match="kernel: dimension_semantics has the entry 'paralel': parallel, core_parallel, subcore_parallel,"
        " arbitrary and sequential are known\n  at .*test_robust.py:",
    ):
        times(2, grid=(1,), compiler_params=pltpu.CompilerParams(dimension_semantics=("paralel",)))(whole(4))
    with pytest.raises(
        tessera.Error, match="kernel: dimension_semantics has 2 entries for a grid of 1 axis\n  at .*test_robust.py:"
    ):
        times(
            2, grid=(1,), compiler_params=tessera.CompilerParams(device, dimension_semantics=("parallel", "parallel"))
        )(whole(4))
    with pytest.raises(
        tessera.Error,
        match="tessera.CompilerParams: dimension_semantics is 'parallel', but should have an entry per axis of the"
        " grid",
    ):
        tessera.CompilerParams(device, dimension_semantics="parallel")


def test_own_compiler_params_of_a_kernel_on_a_mesh():
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)
    for where in DEVICES:

        @functools.partial(
            pl.kernel,
            mesh=mesh,
            out_type=jax.ShapeDtypeStruct((8,), f32),
            compiler_params=tessera.CompilerParams(where),
        )
        def copy(x_ref, o_ref):
            pltpu.sync_copy(x_ref, o_ref)

        np.testing.assert_array_equal(copy(whole(8)), whole(8))


def test_uninstall_restores_everything():
    program = """
import jax, jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.pallas import pallas_call as module
from jax.experimental import pallas as pl
def rules():
    return mlir._lowerings.get(module.pallas_call_p), module._pallas_call_lowering
before = rules()
import tessera
out = jax.ShapeDtypeStruct((4,), jnp.float32)
f = lambda x: pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), out_shape=out)(x)
for turn in range(2):
    assert rules() == before
    tessera.install("interpreter")
    assert rules() != before and f(jnp.ones(4)).sum() == 8
    with tessera.on("vulkan"):
        assert f(jnp.ones(4)).sum() == 8
    tessera.uninstall()
    tessera.uninstall()
    assert rules() == before
    try:
        f(jnp.ones(4))
        raise SystemExit("it still runs")
    except ValueError as e:
        assert str(e) == "Only interpret mode is supported on CPU backend.", e
"""
    python(program)


def test_uninstall_leaves_what_others_need():
    """What on() says holds until its block ends, in other threads too, and what CompilerParams say for as long as they
    live."""
    python(
        """
import threading
import jax, jax.numpy as jnp, tessera
from jax.experimental import pallas as pl
def double(scale, **options):
    out = jax.ShapeDtypeStruct((4,), jnp.float32)
    f = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * scale), out_shape=out, **options)
    return float(f(jnp.ones(4)).sum())
def refused(*args, **options):
    try: double(*args, **options)
    except ValueError as e: return str(e) == "Only interpret mode is supported on CPU backend."
entered, left = threading.Event(), threading.Event()
def other():
    with tessera.on("interpreter"):
        entered.set()
        left.wait(60)
        found.append(double(2))
found, thread = [], threading.Thread(target=other)
tessera.install("interpreter")
with tessera.on("vulkan"):
    thread.start()
    entered.wait(60)
    tessera.uninstall()
    assert double(3) == 12
assert refused(4)
left.set()
thread.join()
assert found == [8] and refused(5), found
params = tessera.CompilerParams("interpreter")
tessera.uninstall()
assert double(6, compiler_params=params) == 24 and refused(7)
""",
        JAX_PLATFORMS="cpu",
    )


INSTALLS = """
import tessera, warnings
from tessera._native_library import unnamed_cpu_driver
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for device in %s:
        tessera.install(device)
print([(w.filename, str(w.message)) for w in said], unnamed_cpu_driver(), sep="\\n")
"""


def test_install_says_once_that_the_interpreter_is_quicker_than_a_driver_for_the_cpu():
    out, _ = python(INSTALLS % '["vulkan", "interpreter", "vulkan"]', TESSERA_DEVICE="", JAX_PLATFORMS="cpu")
    said, driver = out.splitlines()
    want = [
        (
            "<string>",
            f'tessera: the only Vulkan device is a driver for the CPU, {driver}: tessera.install("interpreter") runs'
            " most kernels faster, TESSERA_DEVICE=vulkan silences this",
        )
    ]
    assert said == str(want if driver else [])


@pytest.mark.parametrize(
    "devices, named", [(["vulkan"], "vulkan"), (["vulkan:0"], ""), (["interpreter"], ""), (["vulkan"], "interpreter")]
)
def test_install_says_nothing_where_a_device_is_named(devices, named):
    out, _ = python(INSTALLS % devices, TESSERA_DEVICE=named, JAX_PLATFORMS="cpu")
    assert out.splitlines()[0] == "[]"


# -- what users get wrong


def test_complex_numbers(device):
    with pytest.raises(
        tessera.Error,
        match=r"kernel: args\[0\]: the array has the dtype complex64, which kernels cannot hold\n"
        r"  at .*test_robust.py:\d+\n"
        "  note: pass the real and the imaginary part as two arrays",
    ):
        times(2)(jnp.ones(4, jnp.complex64))


def test_dtypes_inside_that_kernels_cannot_hold(device):
    def cast(x_ref, o_ref):
        o_ref[...] = jnp.real(x_ref[...].astype(jnp.complex64))

    with pytest.raises(
        tessera.Error,
        match=r"^cast: convert_element_type: the result has the dtype complex64, which kernels cannot hold\n"
        r"  at .*test_robust.py:"
        f"{cast.__code__.co_firstlineno + 1}\n  note: pass the real and the imaginary part as two arrays",
    ):
        pl.pallas_call(cast, out_shape=jax.ShapeDtypeStruct((4,), f32))(whole(4))

    def nothing(x_ref, o_ref, s_ref):
        o_ref[...] = x_ref[...]

    with pytest.raises(
        tessera.Error,
        match=r"^nothing: scratch 0 has the dtype complex64, which kernels cannot hold\n  at .*test_robust.py:\d+",
    ):
        pl.pallas_call(
            nothing, out_shape=jax.ShapeDtypeStruct((4,), f32), scratch_shapes=[pltpu.VMEM((4,), jnp.complex64)]
        )(whole(4))


@pytest.mark.parametrize("callback", ["pure_callback", "io_callback"])
def test_callbacks_in_kernels(device, callback):
    def kernel(x_ref, o_ref):
        if callback == "pure_callback":
            o_ref[...] = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((4,), f32), x_ref[...])
        else:
            o_ref[...] = jax.experimental.io_callback(lambda x: x, jax.ShapeDtypeStruct((4,), f32), x_ref[...])

    with pytest.raises(Exception, match=f"{callback}|[Ee]ffect"):
        pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((4,), f32))(whole(4))
    np.testing.assert_array_equal(times(2)(whole(4)), whole(4) * 2)


def test_an_exception_in_an_index_map(device):
    def broken(i):
        raise KeyError("no such block")

    spec = pl.BlockSpec((2,), broken)
    with pytest.raises(KeyError, match="no such block"):
        times(2, grid=(2,), in_specs=[spec], out_specs=spec)(whole(4))
    np.testing.assert_array_equal(times(2)(whole(4)), whole(4) * 2)


# -- what goes wrong by itself

FORK = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, tessera
where, before = {where!r}, {before!r}
double = tessera.load({path!r}, where)
x = np.arange(8, dtype=np.float32)
if before: assert (tessera.load({path!r}, before)(x) == 2 * x).all()
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        ok = (double(x) == 2 * x).all()
        os._exit(0 if ok else 3)
    except tessera.Error as e:
        print(e, flush=True)
        os._exit(2)
_, status = os.waitpid(child, 0)
print("child:", os.waitstatus_to_exitcode(status))
assert (double(x) == 2 * x).all()
"""


@pytest.mark.parametrize(
    "where,before,child",
    [("interpreter", "interpreter", 0), ("interpreter", "vulkan", 0), ("vulkan", "", 0), ("vulkan", "vulkan", 2)],
)
def test_fork(where, before, child, tmp_path):
    from support import TIR

    (tmp_path / "k.tir").write_text(TIR)
    out, _ = python(FORK.format(where=where, before=before, path=str(tmp_path / "k.tir")))
    assert f"child: {child}\n" in out
    if child == 2:
        assert (
            "tessera: this process was forked from one that had used a Vulkan device, and drivers do not survive"
            " that\n  note: start it by spawn "
            '(multiprocessing.set_start_method("spawn")), make the parent\'s first call after the fork, or use the'
            ' device "interpreter"'
        ) in out


LOST = """
import jax, jax.numpy as jnp, numpy as np, tessera
from jax.experimental import pallas as pl
tessera.install("vulkan")
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2
f = jax.jit(pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8,), jnp.float32)))
x = jnp.arange(8.0)
for turn in range(6):
    try:
        print("right" if (np.asarray(f(x)) == 2 * np.arange(8)).all() else "wrong")
    except Exception as e:  # of which type depends on where JAX waits
        print("lost:", e)
"""


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a compiler")
def test_a_device_that_is_lost(tmp_path):
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support", "lose_device.cpp")
    subprocess.run(
        ["c++", "-std=c++17", "-shared", "-fPIC", source, "-o", tmp_path / "libvulkan.so.1", "-ldl"], check=True
    )
    real = next(
        line.split()[-1]
        for line in subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if line.strip().startswith("libvulkan.so.1")
    )
    # TESSERA_DEVICE: else install() opens and closes Vulkan, and of what is found again by its name the real loader is
    # first.
    out, _ = python(
        LOST, LD_LIBRARY_PATH=str(tmp_path), REAL_VULKAN=real, LOSE_AFTER="2", LOSE_UNTIL="3", TESSERA_DEVICE="vulkan"
    )
    lines = [line for line in out.splitlines() if line.startswith(("right", "wrong", "lost"))]
    assert lines[:2] == ["right", "right"] and lines[3:] == ["right"] * 3, out
    assert (
        "VK_ERROR_DEVICE_LOST" in lines[2]
        and "note: the call's results are lost; the next call starts on a new device" in out
        and out.count("note:") == 1
    ), out


def test_the_source_tree_is_not_the_package():
    folder = os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "runtime", "python"
    )
    python(
        f"""
import sys
sys.path.insert(0, {folder!r})
try:
    import tessera
    raise SystemExit("it imports without its library")
except ImportError as e:
    assert str(e) == ("tessera: its native library is missing (" + {folder!r} + "/tessera/_native.so): install the "
                      "package (pip install ./runtime/python) rather than import it from the source tree"), e
"""
    )
