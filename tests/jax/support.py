"""What several test files share."""

import os
import subprocess
import sys

DEVICES = ["interpreter", "vulkan"]

TIR = """tir 1
kernel @double
grid (2)
in f32[8] block (4) map (%i) { yield %i }
out f32[8] block (4) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:4]
  %b = add %a, %a
  store %o[0:4], %b
  yield
}
"""


def python(program, *, wait=True, timeout=300, **environment):
    """Runs a program in a Python of its own; a process that hangs is a failure."""
    p = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return finish(p, timeout) if wait else p


def finish(p, timeout=300):
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError("the process hangs") from None
    assert p.returncode == 0, err
    return out, err
