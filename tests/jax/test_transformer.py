"""samples/transformer against JAX: the program that this build has made, and samples/transformer/check.py."""

import importlib.util
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("TESSERA_BUILD_DIR", pathlib.Path.cwd().parent)) / "samples" / "transformer"


@pytest.mark.skipif(not PROGRAM.exists(), reason="this build has no samples")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_logits(tmp_path, dtype):
    spec = importlib.util.spec_from_file_location("check", ROOT / "samples" / "transformer" / "check.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    done = subprocess.run([PROGRAM, "--tokens", "6", "--dtype", dtype, "--answers", "answers.safetensors"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    difference, allowed, wrong, count = check.check(tmp_path / "transformer.safetensors", tmp_path / "answers.safetensors")
    assert count == len("In the beginning") + 5
    assert difference <= allowed
    assert wrong == 0
