"""A folder that travels to a machine with a GPU: the program that times (bench_gpu_time), the kernels, the tables, each
hand-written shader as SPIR-V, and the scripts for the vendor's libraries and for what its driver compiles.
tests/bench/gpu/run --prepare calls it. shaders/KERNEL.N.spv is the shader of the kernel's Nth row in suite.tsv."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys

import machine
import measure


def compile_all(machines, rows, out):
    """Each shader by the first machine whose glslang can; what none could, as lines."""
    numbers, jobs = {}, []
    for row in rows:
        number = numbers[row["kernel"]] = numbers.get(row["kernel"], -1) + 1
        jobs.append((row, f"{row['kernel']}.{number}.spv"))

    def one(job):
        row, name = job
        path, text = measure.shader_path(row["shader"]), "there is no such shader"
        for m in machines if path else ():
            text = m.compile(path, [d for d in row["defines"].split() if d != "-"], name)
            if not text:
                shutil.copy(m.folder / name, out / name)
                return ""
        return f"{name}: {row['shader']} {row['defines']}: {text}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return len(jobs), [line for line in pool.map(one, jobs) if line]


def main():
    p = argparse.ArgumentParser(prog="tests/bench/gpu/run --prepare", add_help=False)
    p.add_argument("--build", required=True)
    p.add_argument("--debian13", default="")
    p.add_argument("folder")
    a = p.parse_args()
    build, folder = pathlib.Path(a.build), pathlib.Path(a.folder)
    for part in ("kernels", "shaders"):
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    for file in measure.KERNELS.glob("*.tir"):
        shutil.copy(file, folder / "kernels")
    for file in ("suite.tsv", "work.tsv", "peers.py", "join.py", "nvidia_code.py"):
        shutil.copy(machine.HERE / file, folder)
    for program in ("bench_gpu_time", "bench_gpu"):
        shutil.copy(build / "tests" / program, folder)
    machines = [machine.Machine(build)] + (
        [machine.Machine(build, a.debian13)] if a.debian13 and pathlib.Path(a.debian13).is_dir() else []
    )
    try:
        count, broken = compile_all(machines, measure.rows_of(machine.HERE / "suite.tsv"), folder / "shaders")
    finally:
        for m in machines:
            m.close()
    print(
        f"{folder}: {len(list((folder / 'kernels').glob('*.tir')))} kernels, {count - len(broken)} of {count} shaders"
    )
    for line in broken:
        print(f"  not compiled: {line}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
