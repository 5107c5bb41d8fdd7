"""bounds.py --build DIR: what this machine's RADV makes of the kernels here spills no more, and has no more
instructions, than bounds.tsv says.

The same code gives the same figures with the same driver; bounds for other versions of it are passed over, by name.
TESSERA_BLESS=1 writes the figures of the version there is. The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import csv
import os
import pathlib
import sys

import analyse
import chips
import machine

BOUNDS = machine.HERE / "bounds.tsv"
COLUMNS = ["kernel", "chip", "driver", "spills", "instructions"]


def read_bounds():
    if not BOUNDS.exists():
        return []
    with open(BOUNDS, newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def write_bounds(rows):
    with open(BOUNDS, "w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, delimiter="\t", lineterminator="\n")
        out.writeheader()
        out.writerows(sorted(rows, key=lambda r: (r["kernel"], r["chip"], r["driver"])))


def beyond(found, bound):
    """What of a kernel's figures is more than its bounds; "" if nothing is."""
    more = [
        f"{found[name]} {name}, at most {bound[name]}"
        for name in ("spills", "instructions")
        if int(found[name]) > int(bound[name])
    ]
    return "; ".join(more)


def ask_all(build, files, chosen):
    """Figures by (kernel, chip): a row of bounds.tsv, or what was wrong."""
    m = machine.Machine(build)
    try:
        for f in files:
            m.put(f, f.name)
        questions = [(f, c) for f in files for c in chosen]
        with concurrent.futures.ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, 4))) as pool:
            answers = pool.map(lambda q: m.ask(q[1], q[0].name, 0, 60, ("--statistics",)), questions)
            found = {}
            for (f, c), answer in zip(questions, answers):
                if "error" in answer:
                    found[(f.stem, c.name)] = answer["error"]
                else:
                    summary = analyse.analyse(answer)
                    found[(f.stem, c.name)] = {
                        "kernel": f.stem,
                        "chip": c.name,
                        "driver": answer["driver"],
                        "spills": str(summary["spills"]),
                        "instructions": str(summary["instructions"]),
                    }
            return found
    finally:
        m.close()


def main():
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--build", required=True)
    a = p.parse_args()
    chosen = [c for c in chips.CHIPS if c.leg == 1]
    files = sorted((machine.HERE / "kernels").glob("*.tir"))
    if not list(machine.ICDS.glob("radeon_icd*.json")):
        print("skipped: there is no RADV on this machine (Debian: mesa-vulkan-drivers)\n0 passed, 0 failed")
        return
    found = ask_all(pathlib.Path(a.build), files, chosen)
    wrong = {k: v for k, v in found.items() if isinstance(v, str)}
    drivers = {v["driver"] for v in found.values() if not isinstance(v, str)}
    rows = read_bounds()
    if os.environ.get("TESSERA_BLESS") == "1":
        names = {f.stem for f in files}
        rows = [r for r in rows if r["kernel"] in names and r["driver"] not in drivers] + [
            v for v in found.values() if not isinstance(v, str)
        ]
        write_bounds(rows)
    bounds = {(r["kernel"], r["chip"], r["driver"]): r for r in rows}
    known = {r["driver"] for r in rows}
    passed, failed = 0, 0
    for d in sorted(drivers - known):
        print(f"skipped: no bounds for {d}; there are some for {', '.join(sorted(known)) or 'no driver'}")
    for (kernel, chip), figures in found.items():
        if (kernel, chip) in wrong:
            problem = wrong[(kernel, chip)]
        elif figures["driver"] not in known:
            continue
        else:
            bound = bounds.get((kernel, chip, figures["driver"]))
            problem = beyond(figures, bound) if bound else "has no row in bounds.tsv; TESSERA_BLESS=1 writes it"
        passed, failed = passed + (not problem), failed + bool(problem)
        if problem:
            print(f"FAILED {kernel} on {chip}: {problem}")
    stale = sorted({r["kernel"] for r in rows} - {f.stem for f in files})
    if stale:
        failed += 1
        print(f"FAILED bounds.tsv has rows of kernels that are not there: {', '.join(stale)}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
