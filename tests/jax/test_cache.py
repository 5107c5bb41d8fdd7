"""TESSERA_CACHE through the package: what one process compiles, another only reads. The files themselves are tested in
C++ (disk_cache_test.cpp)."""

import json
import os

import pytest
from support import finish, python

PROGRAM = """
import json
import jax, jax.numpy as jnp, tessera
from jax.experimental import pallas as pl
tessera.install("vulkan")
def scaled(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2.5
def summed(x_ref, o_ref):
    o_ref[0] = jnp.sum(x_ref[...])
x = jnp.arange(8.0)
y = jax.jit(pl.pallas_call(scaled, out_shape=jax.ShapeDtypeStruct((8,), jnp.float32)))(x)
z = pl.pallas_call(summed, out_shape=jax.ShapeDtypeStruct((1,), jnp.float32))(y)
assert z[0] == 70, z
print(json.dumps(tessera.stats()))
"""


def stats(output):
    s = json.loads(output[0])
    return s["compiled"], s["from_disk"]


def test_the_second_process_does_not_compile(tmp_path):
    cache = str(tmp_path / "not" / "there yet")
    assert stats(python(PROGRAM, TESSERA_CACHE=cache)) == (2, 0)
    assert stats(python(PROGRAM, TESSERA_CACHE=cache)) == (0, 2)
    assert stats(python(PROGRAM, TESSERA_CACHE="")) == (2, 0)


def test_broken_files_are_replaced(tmp_path):
    python(PROGRAM, TESSERA_CACHE=str(tmp_path))
    files = sorted(tmp_path.glob("*.program"))
    good = [f.read_bytes() for f in files]
    files[0].write_bytes(good[0][:-9])
    files[1].write_text("none of ours")
    out, err = python(PROGRAM, TESSERA_CACHE=str(tmp_path))
    assert stats((out,)) == (2, 0)
    for f in files:
        assert f"tessera: TESSERA_CACHE: {f} is broken or none of ours: it is ignored, and replaced\n" in err
    assert [f.read_bytes() for f in sorted(tmp_path.glob("*.program"))] == good


def test_a_folder_that_cannot_be_written(tmp_path):
    folder = tmp_path / "file"
    folder.write_text("")
    out, err = python(PROGRAM, TESSERA_CACHE=str(folder))
    assert stats((out,)) == (2, 0)
    assert err.count(f"tessera: TESSERA_CACHE: cannot write to {folder}: kernels are compiled in every process\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    out, err = python(PROGRAM, TESSERA_CACHE=str(tmp_path))
    assert stats((out,)) == (2, 0) and "cannot write to" in err


def test_two_processes_at_once(tmp_path):
    both = [python(PROGRAM, wait=False, TESSERA_CACHE=str(tmp_path)) for _ in range(2)]
    for p in both:
        assert sum(stats(finish(p))) == 2
    assert len(list(tmp_path.glob("*.program"))) == 2
    assert stats(python(PROGRAM, TESSERA_CACHE=str(tmp_path))) == (0, 2)
