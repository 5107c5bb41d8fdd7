"""Kernels in text form through the TPU backend: the emitted module, and the interpreter's answer to compare it with."""

import base64
import json
import pathlib
import re
import subprocess
import tempfile

import evaluator
import grid
import ml_dtypes
import numpy as np

TENSORS = {
    "ui4": np.dtype(ml_dtypes.uint4),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    **evaluator.DTYPES,
}


class Refused(Exception):
    """The compiler says that a TPU cannot do it: its message."""


def tensors(text):
    """Shapes and dtypes of "tensor<8x128xf32>, tensor<i32>"."""
    found = []
    for t in re.findall(r"tensor<([^>]*)>", text):
        *shape, dtype = t.split("x")
        found.append((tuple(int(n) for n in shape), TENSORS[dtype]))
    return found


class Call:
    """A StableHLO module around one kernel: its arguments, results, aliases and the kernel's module."""

    def __init__(self, text):
        self.text = text
        main = re.search(r"func.func public @main\((.*?)\) -> \((.*?)\) \{", text)
        self.inputs, self.outputs = tensors(main.group(1)), tensors(main.group(2))
        config = re.search(r'backend_config = "(.*?)"', text).group(1)
        config = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), config)
        self.config = json.loads(config)
        self.body = base64.b64decode(self.config["custom_call_config"]["body"]).decode()
        self.aliases = {
            int(o or 0): int(i) for o, i in re.findall(r"output_tuple_indices = \[(\d*)\], operand_index = (\d+)", text)
        }

    def run(self, module, arrays):
        """The outputs of the kernel in `module` on NumPy arrays, by the evaluator."""
        machine = grid.Machine(module)
        operands = [in_call(a) for a in arrays]
        results = []
        for o, (shape, dtype) in enumerate(self.outputs):
            kept = np.dtype(np.int32) if dtype == bool else signless(dtype)
            start = operands[self.aliases[o]] if o in self.aliases else evaluator.poison(shape or (1,), kept)
            results.append(start.copy())
        n = machine.prefetch
        inputs = operands[n:]
        for o, i in self.aliases.items():  # one memory
            inputs[i - n] = results[o]
        machine.run(operands[:n], inputs, results)
        return [
            r.astype(bool).reshape(shape) if dtype == bool else r.view(dtype).reshape(shape)
            for r, (shape, dtype) in zip(results, self.outputs, strict=True)
        ], machine


def signless(dtype):
    if dtype == TENSORS["ui4"]:
        return evaluator.DTYPES["i4"]
    return np.dtype("i%d" % dtype.itemsize) if dtype.kind == "u" else dtype


def in_call(a):
    a = a.astype(np.int32) if a.dtype == bool else a.view(signless(a.dtype))
    return np.ascontiguousarray(a.reshape(a.shape or (1,)))


def tessera(binary, *arguments, folder=None):
    return subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=folder)


def compile(binary, file, chip, dims=(), folder=None):
    done = tessera(
        binary,
        "compile",
        file,
        f"--target=tpu:{chip}",
        "--emit=stablehlo",
        *[f"--dim={d}" for d in dims],
        folder=folder,
    )
    if done.returncode:
        raise Refused(done.stderr.strip())
    return done.stdout


def random_inputs(types, seed):
    rng = np.random.default_rng(seed)
    arrays = []
    for shape, dtype in types:
        if dtype == bool:
            a = rng.integers(0, 2, shape).astype(bool)
        elif evaluator.is_float(dtype):
            a = (rng.standard_normal(shape) * 2).astype(np.float32).astype(dtype)
        else:
            a = rng.integers(0 if dtype.kind == "u" or dtype == TENSORS["ui4"] else -4, 8, shape).astype(dtype)
        arrays.append(np.asarray(a))
    return arrays


def interpret(binary, file, arrays, outputs, dims=(), fill="nan"):
    """The interpreter's outputs; `fill` is what uninitialised memory holds."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        arguments = ["run", file, "--device", "interpreter", "--uninitialised", fill]
        for i, a in enumerate(arrays):
            np.save(folder / f"in{i}.npy", raw(a))
            arguments += ["--in", folder / f"in{i}.npy"]
        for o in range(len(outputs)):
            arguments += ["--out", folder / f"out{o}.npy"]
        for d in dims:
            arguments += ["--dim", d]
        done = tessera(binary, *arguments)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        results = []
        for o, (shape, dtype) in enumerate(outputs):
            a = np.load(folder / f"out{o}.npy")
            if a.dtype != dtype:
                a = a.view(dtype) if a.dtype.itemsize == dtype.itemsize else a.astype(dtype)
            results.append(a.reshape(shape))
        return results


def raw(a):
    """As ml_dtypes' arrays are saved."""
    if a.dtype.kind in "fiub" and a.dtype.isbuiltin:
        return a
    return (
        a.view(f"V{a.dtype.itemsize}") if a.ndim else np.asarray(a).reshape(1).view(f"V{a.dtype.itemsize}").reshape(())
    )


# Relative to the greatest magnitude: sums go in another order, and functions are rounded otherwise.
BOUNDS = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}


def difference(got, want, unspecified, magnitude=0, rounded=None):
    """What is wrong with `got`, or nothing; where `unspecified` differs from `want`, anything is right. `magnitude`:
    that of the terms of a sum, if it is larger than the result's. `rounded`: the narrowest dtype on the way."""

    def as_bytes(a):
        return np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.size, -1) if a.size else np.zeros((0, 1))

    given = np.all(as_bytes(want) == as_bytes(unspecified), axis=1).reshape(want.shape)
    if evaluator.is_float(want.dtype):
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = np.abs(b[np.isfinite(b) & given])
        bound = BOUNDS[rounded or want.dtype.name] * np.maximum(
            np.abs(b), max(magnitude, finite.max() * 0.05 if finite.size else 0)
        )
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b)))
    else:
        wrong = np.asarray(got != want)
    wrong &= given
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} differ, the first at {at}: {got[at]} instead of {want[at]}"
