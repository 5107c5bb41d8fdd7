"""samples/distributed: training on several processes of this machine, against the same model in one process without
kernels."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "samples" / "distributed" / "train.py"
SMALL = ["--layers", "1", "--width", "24", "--heads", "2", "--hidden", "20"]


def start(*options):
    return subprocess.Popen(
        [sys.executable, TRAIN, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(p, status, timeout=240):
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.terminate()  # ends its processes too
        p.communicate()
        raise AssertionError("train.py does not end") from None
    assert p.returncode == status, out + err
    return out, err


@pytest.mark.parametrize(
    "mesh, batch, device", [("2x2", 6, "interpreter"), ("1x2", 3, "interpreter,vulkan"), ("3x1", 3, "interpreter")]
)
def test_as_in_one_process(tmp_path, mesh, batch, device):
    text = tmp_path / "text"
    text.write_bytes(b"kernels over blocks, never threads; " * 20)
    data, model = map(int, mesh.split("x"))
    out, _ = ended(
        start(
            "--processes",
            str(data * model),
            "--mesh",
            mesh,
            "--steps",
            "12",
            "--batch",
            str(batch),
            "--length",
            "19",
            "--check",
            "--device",
            device,
            "--file",
            str(text),
            *SMALL,
        ),
        0,
    )
    assert f"mesh {mesh} of {data * model} processes, " in out
    losses = [float(x) for x in re.findall(r"^step \d+: loss ([\d.]+), ", out, re.M)]
    assert len(losses) == 12 and losses[-1] < losses[0] - 1
    assert re.search(r"^against one process without kernels: .*: ok$", out, re.M), out
    assert ('sums over "data"' in out) == (data > 1) and ('sums over "model"' in out) == (model > 1)


def test_a_process_is_lost():
    p = start("--steps", "1000000", "--device", "interpreter", *SMALL)
    late = threading.Timer(240, p.terminate)
    late.start()
    running = any(line.startswith("step 2: ") for line in p.stdout)  # reads no further
    late.cancel()
    assert running, p.stderr.read()
    children = pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()
    lost = [c for c in children if b"--process-id\0001\0" in pathlib.Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(int(lost[0]), signal.SIGKILL)
    since = time.monotonic()
    _, err = ended(p, 1, timeout=60)
    assert time.monotonic() - since < 30
    assert err.endswith("train.py: process 1 of 2 was killed by signal 9 (SIGKILL); the others are stopped\n")
    assert not any(pathlib.Path(f"/proc/{c}").exists() for c in children)


def test_one_process_fails():
    _, err = ended(start("--device", "interpreter,vulkan:no-such-device", *SMALL), 1)
    assert '[1] train.py: process 1 of 2 gives up: Error: device "no-such-device" is none of the Vulkan devices:' in err
    assert err.endswith("train.py: process 1 of 2 ended with exit status 1; the others are stopped\n")


@pytest.mark.parametrize(
    "options, error",
    [
        (["--mesh", "2x2"], "--mesh 2x2 is for 4 processes, but --processes is 2"),
        (["--mesh", "2"], "argument --mesh: '2' is not DATAxMODEL, as 2x1"),
        (["--processes", "3", "--mesh", "3x1"], "--batch 8 cannot be divided among 3 copies of the model"),
        (["--heads", "3"], "--heads 3 cannot be divided among 2 parts of the model"),
        (
            ["--width", "20"],
            "--width 20 and --heads 4 make heads of 5 numbers, but rotary positions need an even number",
        ),
        (["--steps", "0"], "argument --steps: '0' is no number from 1 on"),
        (["--process-id", "0"], "--coordinator and --process-id belong together"),
        (["--coordinator", "localhost:1", "--process-id", "2"], "--process-id 2 is not among the 2 processes"),
    ],
)
def test_options(options, error):
    _, err = ended(start(*options), 2)
    assert err.endswith(f"train.py: error: {error}\n")


def test_too_little_text(tmp_path):
    (tmp_path / "text").write_bytes(b"0123456789")
    _, err = ended(start("--file", str(tmp_path / "text"), "--length", "10", "--processes", "1"), 1)
    assert "train.py: --length 10 needs more than 10 bytes of text, but there are 10\n" in err
