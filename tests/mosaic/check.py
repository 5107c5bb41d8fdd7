"""Emits every kernel of tests/tir for a TPU and judges the modules: jaxlib parses and verifies them, the evaluator
computes them, the interpreter has to agree. What is refused is held in refused.txt, with the first line of each
message, so that what a TPU can do does not shrink unseen; TESSERA_BLESS=1 writes it anew. The evaluator itself is
judged by JAX's own modules (jax_kernels.py).

  check.py TESSERA ROOT [NAME ...]       only the kernels of those names
"""

import os
import pathlib
import re
import sys
import traceback

import evaluator
import jax_kernels
import kernels
import versioned

# Sizes for kernels with run-time sizes.
DIMS = {"n": 21, "m": 5, "n2": 6, "n0": 21, "n1": 9, "rows": 3, "h": 240, "w": 256}
# Of these outputs the interpreter's own fills cannot say which elements nobody wrote, or data decides which programs
# see a block of an output, and those do not follow one another: a TPU does not fetch what the block held.
NOT_COMPARED = {("element_below_the_array", 1), ("windows_that_overlap", 1), ("prefetch_scatter_add", 0)}
# Outputs that are rounded to a narrower dtype on the way, where one last bit of f32 may decide.
ROUNDED = {("matrix_attention", 0): "float16"}
MOST_PROGRAMS = 600


def size_of_grid(body):
    m = re.search(r"iteration_bounds = array<i64: ([^>]*)>", body)
    n = 1
    for b in m.group(1).split(",") if m else []:
        n *= int(b)
    return n


def dims_of(text):
    """--dim options for the sizes that a kernel's header names."""
    header = re.sub(r"//.*", "", text.split("\nbody", 1)[0])
    return [f"{name}={size}" for name, size in DIMS.items() if re.search(rf"[(\[, ]{name}\b(?!:)", header)]


def judge(binary, file, chip, runs):
    """The message of a refusal, and what is wrong."""
    text = file.read_text()
    dims = dims_of(text)
    try:
        call = kernels.Call(kernels.compile(binary, file, chip, dims))
    except kernels.Refused as e:
        first = str(e).split("\n")[0].removeprefix("error: ")
        return first, "" if "internal" not in first else first
    module = evaluator.parse(call.body)
    evaluator.parse(versioned.versioned(call.text))
    if not runs or size_of_grid(call.body) > MOST_PROGRAMS:
        return "", ""
    arrays = kernels.random_inputs(call.inputs, 1)
    want, other = (kernels.interpret(binary, file, arrays, call.outputs, dims, fill) for fill in ("nan", "pattern"))
    got, _ = call.run(module, arrays)
    wrong = []
    for o, (g, w, u) in enumerate(zip(got, want, other, strict=True)):
        d = kernels.difference(g, w, u, rounded=ROUNDED.get((file.stem, o)))
        if d and (file.stem, o) not in NOT_COMPARED:
            wrong.append(f"output {o}: {d}")
    return "", "; ".join(wrong)


def judge_error(binary, file):
    """Of a kernel of errors/, which ends with the message that its target gives: what is wrong."""
    text = file.read_text()
    chip = re.search(r"// tpu:(\w+)", text).group(1)
    code, _, expected = text.partition("// ---- expected\n")
    try:
        kernels.compile(binary, file.name, chip, folder=file.parent)
        return "no error"
    except kernels.Refused as e:
        message = "".join(f"// {line}\n" for line in str(e).split("\n"))
    if os.environ.get("TESSERA_BLESS") == "1":
        file.write_text(code + "// ---- expected\n" + message)
    elif message != expected:
        return f"the message is\n{message}"
    return ""


def main(binary, root, *names):
    root = pathlib.Path(root)
    files = sorted((root / "tests/tir").glob("*.tir")) + sorted((root / "tests/tir/samples").glob("*.tir"))
    passed = failed = 0
    refused = []
    for file in files:
        if names and file.stem not in names:
            continue
        for chip in ("any", "v5e"):
            name = f"{chip} {file.relative_to(root / 'tests/tir').with_suffix('')}"
            try:
                message, wrong = judge(binary, file, chip, chip == "any" or file.parent.name == "samples")
            except Exception as e:
                message, wrong = "", f"{type(e).__name__}: {e}"
                if names:
                    traceback.print_exc()
            if message:
                refused.append(f"{name}: {message}")
            if wrong:
                failed += 1
                print(f"FAILED: {name}: {wrong}", flush=True)
            else:
                passed += 1
    for file in sorted((root / "tests/mosaic/errors").glob("*.tir")):
        wrong = judge_error(binary, file) if not names else ""
        failed, passed = failed + bool(wrong), passed + (not wrong)
        if wrong:
            print(f"FAILED: errors/{file.name}: {wrong}")
    if not names:
        for kernel, d in jax_kernels.judge_evaluator().items():
            failed += 1
            print(f"FAILED: the evaluator on JAX's module of {kernel}: {d}")
        passed += 1
    held = root / "tests/mosaic/refused.txt"
    if not names:
        text = "\n".join(refused) + "\n"
        if os.environ.get("TESSERA_BLESS") == "1":
            held.write_text(text)
        before = held.read_text().splitlines() if held.exists() else []
        for line in sorted(set(before) ^ set(refused)):
            failed += 1
            print(f"FAILED: refused.txt {'lacks' if line in refused else 'has'}: {line}")
        passed += 1
    print(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:]) else 0)
