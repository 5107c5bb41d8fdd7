"""samples/transformer against JAX: the program that this build has made, and samples/transformer/check.py."""

import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "samples" / "transformer" / "check.py"
PROGRAM = (
    pathlib.Path(os.environ.get("TESSERA_BUILD_DIR", pathlib.Path.cwd().parent)).resolve() / "samples" / "transformer"
)


@pytest.mark.skipif(not PROGRAM.exists(), reason="this build has no samples")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_logits(tmp_path, dtype):
    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(PROGRAM, "--tokens", "6", "--dtype", dtype, "--answers", "answers.safetensors")
    # a process of its own: it switches float64 on
    said = run(sys.executable, CHECK, "transformer.safetensors", "answers.safetensors")
    assert said.startswith(f"transformer: {len('In the beginning') + 5} tokens against JAX in float64: ")
    assert said.endswith(": ok\n")
