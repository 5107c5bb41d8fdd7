"""pipelines.py --build DIR --debian13 ROOT [--chips LIST] [--part N/M] [FILE.tir...]: every kernel makes a pipeline on
every chip, in at most 2 s of processor time. tests/vendors/run calls it.

slow.tsv lists those that take longer: what was measured and why. They may take half as long again. The last line is "N
passed, N failed".
"""

import argparse
import concurrent.futures
import csv
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench" / "gpu"))
import chips  # noqa: E402
import machine  # noqa: E402

LIMIT = 2.0


def parse_arguments():
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--build", required=True)
    p.add_argument("--debian13", required=True)
    p.add_argument("--chips", default="")
    p.add_argument("--part", default="1/1")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    a.chosen = [c for c in chips.CHIPS if c.leg == 2 and (not a.chips or c.name in a.chips.split(","))]
    a.number, a.parts = (int(n) for n in a.part.split("/"))
    tir = machine.ROOT / "tests" / "tir"
    a.files = [pathlib.Path(f) for f in a.files] or sorted(tir.glob("*.tir")) + sorted((tir / "samples").glob("*.tir"))
    return a


def name_of(file):
    return ("samples/" if file.parent.name == "samples" else "") + file.stem


def wrong_with(answer, allowed):
    """What is wrong with an answer; "" for nothing."""
    if "shaderFloat64" in answer.get("refused", ""):
        return ""  # the one dtype that is not emulated
    if "error" in answer:
        return answer["error"]
    seconds = answer["pipeline_processor_ms"] / 1000
    if allowed is None and seconds > LIMIT:
        return f"takes {seconds:.1f} s, and at most {LIMIT:g} s are allowed"
    if allowed is not None and seconds > 1.5 * allowed:
        return f"takes {seconds:.1f} s, and slow.tsv says {allowed:g} s"
    return ""


def main():
    a = parse_arguments()
    with open(HERE / "slow.tsv", newline="") as f:
        slow = {(r["kernel"], r["chip"]): float(r["seconds"]) for r in csv.DictReader(f, delimiter="\t")}
    m = machine.Machine(pathlib.Path(a.build), a.debian13)
    passed, failed, times, no_longer = 0, 0, [], []
    try:
        questions = []
        for n, file in enumerate(a.files):
            module = m.put(file, name_of(file).replace("/", "_") + ".tir")
            # Each kernel on one part of the chips, each chip on one part of the kernels.
            questions += [(file, c, module) for k, c in enumerate(a.chosen) if (n + k) % a.parts == a.number % a.parts]
        with concurrent.futures.ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, 4))) as pool:
            answers = pool.map(lambda q: m.ask(q[1], q[2], 0, 90, ("--plain",)), questions)
            for (file, chip, _), answer in zip(questions, answers):
                allowed = slow.get((name_of(file), chip.name))
                wrong = wrong_with(answer, allowed)
                passed, failed = passed + (not wrong), failed + bool(wrong)
                if wrong:
                    print(f"FAILED {name_of(file)} on {chip.name}: {wrong}", flush=True)
                elif "error" not in answer:
                    times.append((answer["pipeline_processor_ms"] / 1000, name_of(file), chip.name))
                    if allowed is not None and times[-1][0] < 0.5 * LIMIT:
                        no_longer.append(f"{name_of(file)} on {chip.name} takes {times[-1][0]:.1f} s")
    finally:
        m.close()
    slowest = ", ".join(f"{name} on {chip} {s:.1f} s" for s, name, chip in sorted(times, reverse=True)[:5])
    print(
        f"{len(questions)} pipelines of {len(a.files)} kernels on {len(a.chosen)} chips"
        + (f", part {a.part}" if a.parts > 1 else "")
        + f"; the slowest: {slowest}"
    )
    for line in no_longer:
        print(f"slow.tsv is out of date: {line}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
