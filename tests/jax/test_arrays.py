"""tessera.load on all kinds of arrays, tessera.export, and what is copied."""

import os

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tessera
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from support import DEVICES, TIR, python

f32 = jnp.float32
NAMES = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "int4": "i4",
    "uint4": "u4",
    "float16": "f16",
    "int64": "i64",
    "uint8": "u8",
}


@pytest.fixture(params=DEVICES)
def where(request):
    return request.param


def kernel(tmp_path, where, text=TIR):
    path = tmp_path / "kernel.tir"
    path.write_text(text)
    return tessera.load(path, where)


def test_arrays_that_are_not_dense_or_not_writable(where, tmp_path):
    double = kernel(tmp_path, where)
    wide = np.arange(32, dtype=np.float32)
    reversed_, every_other = wide[7::-1], wide[:16:2]
    read_only = wide[:8]
    read_only.flags.writeable = False
    frozen = np.frombuffer(bytes(wide[:8]), np.float32)
    swapped = wide[:8].astype(">f4")
    unaligned = np.frombuffer(b"x" + wide[:8].tobytes(), np.uint8)[1:].view(np.float32)
    for x in (reversed_, every_other, read_only, frozen, swapped, unaligned, list(range(8))):
        if isinstance(x, list):
            x = np.asarray(x, np.float32)
        before = x.copy()
        y = double(x)
        np.testing.assert_array_equal(y, 2 * before)
        np.testing.assert_array_equal(x, before)
        assert y.flags.writeable and y.dtype == np.float32
        y[0] = 5  # the result is the caller's own
    transposed = TIR.replace(
        "f32[8] block (4) map (%i) { yield %i }",
        "f32[2, 4] block (1, 4) map (%i) { %0 = constant 0 : i32\n yield %i, %0 }",
    ).replace("[0:4]", "[0:1, 0:4]")
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(kernel(tmp_path, where, transposed)(x.T), 2 * x.T)


def test_results_outlive_the_call(where, tmp_path):
    double = kernel(tmp_path, where)
    results = [double(np.full(8, i, np.float32)) for i in range(50)]
    assert all((r == 2 * i).all() for i, r in enumerate(results))


@pytest.mark.parametrize("dtype", NAMES)
def test_dtypes(where, dtype, tmp_path):
    t = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    text = TIR.replace("f32", NAMES[dtype]).replace(
        "%b = add %a, %a", "%b = add %a, %a" if "4" not in NAMES[dtype][:2] else "%b = max %a, %a"
    )
    x = np.arange(8).astype(t)
    y = kernel(tmp_path, where, text)(x)
    assert y.dtype == t and y.shape == (8,)
    np.testing.assert_array_equal(y.astype(np.float64), x.astype(np.float64) * (1 if "4" in NAMES[dtype][:2] else 2))


class Tensor:
    """What another library's tensor looks like to us."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return (self.device, 0)


def test_dlpack(where, tmp_path):
    double = kernel(tmp_path, where)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(double(Tensor(x)), 2 * x)
    np.testing.assert_array_equal(double(Tensor(x[::-1])), 2 * x[::-1])
    np.testing.assert_array_equal(double(jnp.asarray(x)), 2 * x)
    with pytest.raises(
        tessera.Error, match="argument 0 is a Tensor on another device than the CPU: copy it to the host first"
    ):
        double(Tensor(x, device=2))
    bf16 = kernel(tmp_path, where, TIR.replace("f32", "bf16"))
    np.testing.assert_array_equal(bf16(jnp.asarray(x, jnp.bfloat16)).astype(np.float32), 2 * x)


def test_torch(where, tmp_path):
    torch = pytest.importorskip("torch")
    double = kernel(tmp_path, where)
    x = torch.arange(8, dtype=torch.float32, requires_grad=True)
    np.testing.assert_array_equal(double(x), 2 * np.arange(8))
    bf16 = kernel(tmp_path, where, TIR.replace("f32", "bf16"))
    np.testing.assert_array_equal(bf16(x.to(torch.bfloat16)).astype(np.float32), 2 * np.arange(8))


def test_nothing_is_copied_between_calls():
    """On a device that shares the host's memory, XLA's arrays are used where they are."""

    def add_one(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    with tessera.on("vulkan"):
        call = pl.pallas_call(add_one, out_shape=jax.ShapeDtypeStruct((1000, 3), f32))
        f = jax.jit(lambda x: call(call(x) * 2))
        x = jnp.ones((1000, 3))
        f(x).block_until_ready()
        before = tessera.stats()
        y = f(f(x)).block_until_ready()
        after = tessera.stats()
    assert after["calls"] == before["calls"] + 4 and after["bytes_copied"] == before["bytes_copied"]
    assert (y == 13).all()


def test_large_numpy_arrays_are_not_copied(tmp_path):
    double = kernel(tmp_path, "vulkan", TIR.replace("[8]", "[80000]").replace("grid (2)", "grid (20000)"))
    memory = np.zeros(80000 + 16, np.float32)
    skip = -memory.ctypes.data % 64 // 4
    x = memory[skip : skip + 80000]
    x[:] = 3
    before = tessera.stats()["bytes_copied"]
    assert (double(x) == 6).all()
    assert tessera.stats()["bytes_copied"] == before


def test_nothing_is_copied_outside_of_jit(tmp_path):
    """NumPy's arrays are used where they are, by kernels and by graphs, and so is the memory that the results come
    in."""
    double = kernel(tmp_path, "vulkan")
    tessera.export(
        lambda x, y: (blocks("first")(blocks("first")(x, y), y), jnp.cos(x)),
        jnp.arange(8.0),
        jnp.ones(8),
        path=tmp_path / "g",
    )
    graph = tessera.load(tmp_path / "g", "vulkan")
    before = tessera.stats()["bytes_copied"]
    kept = []
    for i in range(20):  # arrays come and go, their pages are others' the next time
        x = np.full(8, i, np.float32)
        kept.append((i, double(x), *graph(x, np.ones(8, np.float32))))
        del x
    assert tessera.stats()["bytes_copied"] == before
    for i, y, z, c in kept:
        assert (y == 2 * i).all() and (z == 4 * i + 3).all()
        np.testing.assert_allclose(c, np.cos(np.full(8, i, np.float32)), rtol=1e-5, atol=1e-6)
    # at 4 bytes, which no kernel is compiled for
    graph(np.frombuffer(b"xxxx" + bytes(32), np.float32)[1:], np.ones(8, np.float32))
    assert tessera.stats()["bytes_copied"] == before + 32


# -- export


def blocks(name):
    def body(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + y_ref[...]

    spec = pl.BlockSpec((4,), lambda i: (i,))
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((8,), f32), grid=(2,), in_specs=[spec, spec], out_specs=spec, name=name
    )


TABLE = np.arange(8, dtype=np.float32) * 3


def composed(x, y):
    a = blocks("first")(x, y)
    b = jax.jit(lambda t: jnp.sin(t) + TABLE)(a)
    return blocks("first")(b, x), {"b": b, "same": x}


def test_export_and_load(where, tmp_path):
    x, y = jnp.arange(8.0), jnp.ones(8)
    folder = tmp_path / "composed"
    tessera.export(composed, x, jax.ShapeDtypeStruct((8,), f32), path=folder)
    with tessera.on("interpreter"):
        wanted = jax.tree.leaves(composed(x, y))
    got = tessera.load(folder, where)(np.asarray(x), y)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5)
    files = sorted(f.name for f in folder.iterdir())
    assert files.count("first.tir") == 1 and "graph.txt" in files and "sin.tir" in files
    text = (folder / "graph.txt").read_text()
    assert (
        text.startswith("tessera graph 1\nin %0 f32[8]\nin %1 f32[8]\n")
        and text.count('call "first.tir"') == 2
        and text.count("\nout %") == 3
    )
    with pytest.raises(tessera.Error, match=r"the graph: argument 1 is f32\[7\] but f32\[8\] is expected"):
        tessera.load(folder, where)(np.asarray(x), np.ones(7, np.float32))


def test_a_graph_needs_no_jax(tmp_path):
    folder = tmp_path / "g"
    tessera.export(composed, jnp.arange(8.0), jnp.ones(8), path=folder)
    python(
        f"""
import sys
import numpy as np, tessera
y = tessera.load({str(folder)!r}, "interpreter")(np.arange(8, dtype=np.float32), np.ones(8, np.float32))
assert y[2].tolist() == list(range(8)) and "jax" not in sys.modules
"""
    )


def test_names_of_devices_and_files(tmp_path):
    (tmp_path / "k.tir").write_text(TIR)
    (tmp_path / "bad.tir").write_text("tir 1\nkernel @x\nfoo\n")
    with pytest.raises(tessera.Error, match=r"bad.tir:3:1: expected .* but found 'foo'"):
        tessera.load(tmp_path / "bad.tir", "interpreter")()
    for f in (
        lambda: tessera.load(tmp_path / "k.tir", None),
        lambda: tessera.install(None),
        lambda: tessera.on(0).__enter__(),
    ):
        with pytest.raises(
            tessera.Error,
            match=(
                'tessera: a device is a name, not (None|0)\n  note: "interpreter", "vulkan",'
                ' "vulkan:INDEX-OR-NAME" and "cuda:INDEX" are'
            ),
        ):
            f()
    with pytest.raises(tessera.Error, match='tessera: the device "toaster" is not known\n  note: "interpreter", '):
        tessera.install("toaster", fallback=True)
    for name, shown in (("vulkan:a\0b", r"a\\x00b"), ("vulkan:\udcff", r"\\udcff")):
        with pytest.raises(tessera.Error, match=f'tessera: the device "vulkan:{shown}" is not known\n'):
            tessera.load(tmp_path / "k.tir", name)
    (tmp_path / "binary.tir").write_bytes(b"\x80\xb6\xff\0")
    with pytest.raises(tessera.Error, match=r"binary.tir:1:1: expected 'tir 1' on the first line but found "):
        tessera.load(tmp_path / "binary.tir", "interpreter")()
    with pytest.raises(tessera.Error, match=r"bad.tir:3:1: expected .* but found 'foo'"):
        tessera.load(os.fsencode(tmp_path / "bad.tir"), "interpreter")()
    python(
        f"""
import numpy as np, tessera
double = tessera.load({str(tmp_path / "k.tir")!r})
assert (double(np.ones(8, np.float32)) == 2).all() and tessera.stats()["compiled"] == 0
""",
        TESSERA_DEVICE="interpreter",
    )


def test_compiler_params_of_other_backends_are_kept(tmp_path):
    """For `tessera explain`, which says what is used of them."""
    from jax.experimental.pallas import triton as plgpu

    for params, line in (
        (plgpu.CompilerParams(num_warps=2, num_stages=3), "compiler_params triton (num_stages: 3, num_warps: 2)"),
        (
            pltpu.CompilerParams(vmem_limit_bytes=4096, disable_bounds_checks=True),
            "compiler_params mosaic_tpu (disable_bounds_checks: true, vmem_limit_bytes: 4096)",
        ),
        (pltpu.CompilerParams(dimension_semantics=("parallel",)), ""),
    ):
        call = pl.pallas_call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]),
            out_shape=jax.ShapeDtypeStruct((8,), f32),
            grid=(1,),
            compiler_params=params,
            name="copied",
        )
        tessera.export(call, jnp.ones(8), path=tmp_path)
        assert (
            "".join(
                text
                for text in (tmp_path / "copied.tir").read_text().splitlines()
                if text.startswith("compiler_params")
            )
            == line
        )


def test_a_folder_that_changes(where, tmp_path):
    """What was made from a folder's files is not used for others of the same names."""
    x = np.ones(4, np.float32)
    for k in (2, 3):

        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * k

        call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((4,), f32), name="scale")
        table = np.arange(4, dtype=np.float32) * k
        tessera.export(lambda x: call(x) + table, jnp.ones(4), path=tmp_path / "g")
        np.testing.assert_array_equal(tessera.load(tmp_path / "g", where)(x), k + table)
    (tmp_path / "g" / "scale.tir").rename(tmp_path / "elsewhere")
    with pytest.raises(tessera.Error, match="graph.txt:.*scale.tir: no such file"):
        tessera.load(tmp_path / "g", where)
    (tmp_path / "elsewhere").rename(tmp_path / "g" / "scale.tir")
    np.testing.assert_array_equal(tessera.load(tmp_path / "g", where)(x), 3 + table)


def test_a_folder_that_changes_before_the_first_call(where, tmp_path):
    """A graph is what the folder held when it was loaded."""
    x, folder, graphs = np.ones(4, np.float32), tmp_path / "g", []
    for k in (5, 6, 5, 6):

        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * k

        call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((4,), f32), name="scale")
        tessera.export(call, jnp.ones(4), path=folder)
        graphs.append((k, tessera.load(folder, where)))
    for f in folder.iterdir():
        f.unlink()
    for k, graph in graphs:
        np.testing.assert_array_equal(graph(x), k * x)


def test_a_folder_that_others_have_touched(where, tmp_path):
    x, folder, outside = jnp.ones(4), tmp_path / "g", tmp_path / "outside"
    outside.write_text("somebody's")
    folder.mkdir()
    (folder / "graph.txt").symlink_to(outside)
    tessera.export(jnp.sin, x, path=folder)  # takes the link's place
    assert outside.read_text() == "somebody's" and not (folder / "graph.txt").is_symlink()
    kernel = next(folder.glob("*.tir"))
    kernel.rename(tmp_path / "kernel")
    kernel.symlink_to(tmp_path / "kernel")
    with pytest.raises(
        tessera.Error,
        match=(
            r"graph.txt:\d+: .*.tir: is a symbolic link\n  note: put the file itself there \(cp -L\): nothing outside"
            r" the folder is read"
        ),
    ):
        tessera.load(folder, where)
    kernel.unlink()
    os.mkfifo(kernel)
    with pytest.raises(tessera.Error, match=r"graph.txt:\d+: .*.tir: not a regular file"):
        tessera.load(folder, where)
    (folder / "graph.txt").unlink()
    (folder / "graph.txt").symlink_to(outside)
    with pytest.raises(tessera.Error, match="graph.txt: is a symbolic link"):
        tessera.load(folder, where)


def test_what_export_cannot_write(tmp_path):
    x = jnp.arange(8.0)
    with pytest.raises(
        tessera.Error,
        match=(
            "^tessera.export: cholesky: the primitive cholesky of JAX cannot be imported\n  at .*test_arrays.py:.*\n "
            " note: write it with other operations, or compute it outside of what is exported$"
        ),
    ):
        tessera.export(lambda x: jnp.linalg.cholesky(x[:4].reshape(2, 2)), x, path=tmp_path)
    with pytest.raises(
        tessera.Error,
        match=(
            "tessera.export: argument 0 has the dtype complex64, which kernels cannot hold\n  note: pass the real and"
            " the imaginary part as two arrays"
        ),
    ):
        tessera.export(jnp.real, x.astype(jnp.complex64), path=tmp_path)
    over = jax.shard_map(
        jnp.sin,
        mesh=jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",)),
        in_specs=jax.sharding.PartitionSpec("i"),
        out_specs=jax.sharding.PartitionSpec("i"),
    )
    with pytest.raises(
        tessera.Error, match=r"^tessera.export: shard_map: the primitive shard_map of JAX cannot be imported"
    ) as refused:
        tessera.export(over, x, path=tmp_path)
    assert "graph.py" not in str(refused.value)
    with pytest.raises(
        tessera.Error,
        match=(
            r"tessera.export: complex: outputs\[0\]: the array has the dtype complex64, which kernels cannot hold\n  at"
            r" .*test_arrays.py:"
        ),
    ):
        tessera.export(lambda x: jnp.real(jax.lax.complex(x, x)), x, path=tmp_path)  # the user's line, none of ours


def test_kernels_on_meshes(where, tmp_path):
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)

    def twice(x_ref, y_ref):
        def body(s_ref):
            pltpu.sync_copy(x_ref, s_ref)
            s_ref[...] = s_ref[...] * 2
            pltpu.sync_copy(s_ref, y_ref)

        pl.run_scoped(body, pltpu.VMEM((8,), f32))

    def f(x):
        y = pl.kernel(twice, mesh=mesh, out_type=jax.ShapeDtypeStruct((8,), f32))(x) + 1

        def on_mesh(refs):
            pl.core_map(mesh)(lambda: twice(*refs))

        return pl.run_state(on_mesh)((y, jnp.zeros(8)))

    x = np.arange(8, dtype=np.float32)
    tessera.export(f, x, path=tmp_path / "g")
    y, z = tessera.load(tmp_path / "g", where)(x)
    np.testing.assert_array_equal(y, 2 * x + 1)
    np.testing.assert_array_equal(z, 4 * x + 2)


def test_random_keys_are_their_words(where, tmp_path):
    def f(key, x):
        return blocks("first")(x, jax.random.uniform(key, (8,)) + jax.random.uniform(jax.random.key(1), (8,)))

    key, x = jax.random.key(3), jnp.arange(8.0)
    tessera.export(f, key, x, path=tmp_path / "g")
    with tessera.on("interpreter"):
        wanted = f(key, x)
    np.testing.assert_allclose(
        tessera.load(tmp_path / "g", where)(np.asarray(jax.random.key_data(key)), x), wanted, rtol=1e-6
    )
