"""Asks the chips' compilers about our kernels and about the hand-written shaders for the same work, and shows both.
tests/bench/gpu/run calls it."""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import sys

import analyse
import chips
import machine
import page

KERNELS = machine.HERE / "kernels"


def rows_of(suite):
    with open(suite, newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def shader_path(name):
    """Of a shader of the suite, below the repository's root."""
    for candidate in (f"shaders/gpu/{name}.comp", f"shaders/gpu/{name}", f"shaders/{name}.comp", f"shaders/{name}"):
        if (machine.ROOT / candidate).is_file():
            return candidate
    return None


def subgroup_of(defines):
    """The subgroup size that a shader is written for, if its macros say so (-DWAVE=32)."""
    return next((int(d.split("=")[1]) for d in defines if d.startswith("-DWAVE=")), 0)


class Jobs:
    """Questions to ask, each once, in the order in which they came."""

    def __init__(self):
        self.asked = {}

    def add(self, chip, module, subgroup, name):
        self.asked.setdefault((chip.name, module, subgroup), (chip, module, subgroup, name))

    def show(self, line, error, now):
        if error:
            print(f"{line}: {error}".ljust(110), flush=True)
        elif sys.stdout.isatty():
            print(line[:110].ljust(110), end="\r", flush=True)
        elif now:
            print(line, flush=True)

    def run(self, machines, workers, limit):
        answers = {}
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            futures = {
                pool.submit(machines[c.leg].ask, c, m, s, limit): (key, name)
                for key, (c, m, s, name) in self.asked.items()
            }
            for n, future in enumerate(concurrent.futures.as_completed(futures), 1):
                key, name = futures[future]
                answers[key] = future.result()
                error = answers[key].get("error")
                self.show(f"{n}/{len(futures)} {key[0]}: {name}", error, n % 20 == 0 or n == len(futures))
        return answers


def work_of(row, hand):
    """What the loop's instructions are counted per."""
    kind = {"pair": "roots"}.get(row["inner"].split()[0], row["inner"].split()[0])
    if kind in ("fma", "bytes", "roots"):
        return kind
    loop = (hand or {}).get("loop")
    return "fma" if loop and loop["macs"] * 2 >= loop["instructions"] else "bytes"


def of_class(row, chip):
    """How special a shader is, where it is for this chip; else -1."""
    if row["class"] not in chip.classes:
        return -1
    macros = dict(d[2:].split("=") for d in row["defines"].split() if "=" in d)
    if row["class"] == "matrix" and "FN" in macros:  # a shape that the device has, for the dtype
        shape = tuple(int(macros[m]) for m in ("FM", "FN", "FK"))
        if shape not in (chip.byte_matrices if macros.get("KIND") == "3" else chip.half_matrices):
            return -1
    return chip.classes.index(row["class"])


def straight(summary):
    """Whether a program has no loop that works, and stores all that it computes."""
    return summary.get("has_loop") is False and summary["loop"]["stored_bytes"] > 0


def combine(kernel, chip, ours, hands):
    """One line of the results: ours, the best of the shaders for the best class that the chip has, and what is
    compared."""
    best = None
    for row, answer in hands:
        if "error" in answer:
            continue
        work = work_of(row, analyse.analyse(answer))
        summary = analyse.analyse(answer, work)
        cost = analyse.cost_per_work(summary, work)
        rank = (of_class(row, chip), -(cost if cost is not None else 1e9))
        if best is None or rank > best[0]:
            best = (rank, row, summary, work)
    work = best[3] if best else "bytes"
    our_summary = ours if "error" in ours else analyse.analyse(ours, work if best else "")
    if best and (work == "bytes" or best[1]["inner"] == "-") and straight(our_summary) and straight(best[2]):
        work = "stores"  # what is loaded again for each neighbour is no work
    line = {
        "kernel": kernel,
        "chip": chip.name,
        "work": work,
        "ours": our_summary,
        "hand": best[2] if best else None,
        "shader": f"{best[1]['shader']} {best[1]['defines']}".strip() if best else None,
        "hand_errors": [f"{r['shader']}: {a['error']}" for r, a in hands if "error" in a],
    }
    line.update(compare(line))
    return line


def ratio(a, b):
    return a / b if a is not None and b else None


def compare(line):
    """Ratios of ours to the shader's."""
    ours, hand, work = line["ours"], line["hand"], line["work"]
    if "error" in ours or hand is None:
        return {"loop_ratio": None, "whole_ratio": None}
    a, b = analyse.cost_per_work(ours, work), analyse.cost_per_work(hand, work)
    if b is None:
        a, b = analyse.cost_per_work(ours, "bytes"), analyse.cost_per_work(hand, "bytes")
    return {"loop_ratio": ratio(a, b), "whole_ratio": ratio(ours.get("instructions"), hand.get("instructions"))}


def text(value, digits=2):
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def pair(ours, hand, name, show=text):
    return f"{show((ours or {}).get(name))}/{show((hand or {}).get(name))}"


def share(summary):
    loop = (summary or {}).get("whole")
    value = loop["share_of_128"] if loop else None
    return "-" if value is None else f"{100 * value:.0f}"


def mix(summary):
    """The loop in one line: kinds and widths."""
    loop = (summary or {}).get("loop")
    if not loop:
        return "-"
    parts = []
    for kind, n in loop["kinds"].items():
        widths = loop["widths"].get(kind)
        parts.append(
            f"{kind} {n}"
            + (
                f" ({', '.join(f'{k}x{b}' for b, k in sorted(widths.items(), key=lambda w: int(w[0])))})"
                if widths
                else ""
            )
        )
    return f"{loop['instructions']} instructions: " + ", ".join(parts)


def whole_number(v):
    return "-" if v is None else f"{v:.0f}"


def print_table(lines, detail):
    print(
        f"{'kernel':36} {'chip':10} {'per':5} {'loop o/h':>13} {'ratio':>6} {'whole o/h':>13} {'ratio':>6} "
        f"{'spills':>7} {'registers':>9} {'occupancy':>9} {'128-bit %':>9} {'math %':>7} {'ms':>11}"
    )
    for line in lines:
        ours, hand = line["ours"], line["hand"]
        if "error" in ours:
            print(f"{line['kernel']:36} {line['chip']:10} OURS: {ours['error']}")
            continue
        loops = "/".join(text(s["loop"]["instructions"]) if s and s.get("loop") else "-" for s in (ours, hand))
        math = "/".join(
            (
                f"{100 * s['loop']['math_share']:.0f}"
                if s and s.get("loop") and s["loop"]["math_share"] is not None
                else "-"
            )
            for s in (ours, hand)
        )
        print(
            f"{line['kernel']:36} {line['chip']:10} {line['work']:5} {loops:>13} {text(line['loop_ratio']):>6} "
            f"{pair(ours, hand, 'instructions'):>13} {text(line['whole_ratio']):>6} {pair(ours, hand, 'spills'):>7} "
            f"{pair(ours, hand, 'registers'):>9} {pair(ours, hand, 'occupancy'):>9} "
            f"{share(ours) + '/' + share(hand):>9} {math:>7} {pair(ours, hand, 'pipeline_ms', whole_number):>11}"
        )
        if detail:
            print(f"    ours: {mix(ours)}")
            if hand:
                print(f"    hand: {mix(hand)}  ({line['shader']})")
        for error in line["hand_errors"]:
            print(f"    hand failed: {error}")


def print_matrix(lines):
    """Ratios of the inner loop, a row for each kernel and a column for each chip."""
    names = [c.name for c in chips.CHIPS if any(line["chip"] == c.name for line in lines)]
    print(
        "\ninstructions of the innermost loop for the same work, ours to hand-written; with ! where ours spills, X"
        " where there is no pipeline:"
    )
    print(f"{'':36} " + " ".join(f"{n:>9}" for n in names))
    for kernel in dict.fromkeys(line["kernel"] for line in lines):
        cells = []
        for n in names:
            line = next((x for x in lines if x["kernel"] == kernel and x["chip"] == n), None)
            if line is None:
                cells.append("")
            elif "error" in line["ours"]:
                cells.append("X")
            else:
                cells.append(text(line["loop_ratio"]) + ("!" if line["ours"].get("spills") else ""))
        print(f"{kernel:36} " + " ".join(f"{c:>9}" for c in cells))


def parse_arguments():
    p = argparse.ArgumentParser(prog="tests/bench/gpu/run", add_help=False)
    p.add_argument("--chips", default="")
    p.add_argument("--kernels", default="")
    p.add_argument("--leg", type=int, choices=(1, 2), default=None)
    p.add_argument("--out", default="")
    p.add_argument("--detail", action="store_true")
    p.add_argument("--limit", type=int, default=60)
    p.add_argument("--build", required=True)
    p.add_argument("--debian13", default="")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    known = [c.name for c in chips.CHIPS]
    names = [n for n in a.chips.split(",") if n]
    if wrong := [n for n in names if n not in known]:
        sys.exit(f"tests/bench/gpu/run: there is no chip {wrong[0]}; there are {', '.join(known)}")
    a.chosen = [
        c
        for c in chips.CHIPS
        if (not names or c.name in names) and a.leg in (None, c.leg) and (c.leg == 1 or a.debian13)
    ]
    if not a.chosen:
        sys.exit("tests/bench/gpu/run: no chip is left of those asked for")
    return a


def kernels_of(a):
    """Files by name: those named, else those of the suite whose name contains a part of the filter."""
    files = {pathlib.Path(f).stem: pathlib.Path(f) for f in a.files}
    if not files:
        parts = [k for k in a.kernels.split(",") if k]
        files = {f.stem: f for f in sorted(KERNELS.glob("*.tir")) if not parts or any(k in f.stem for k in parts)}
    if not files:
        sys.exit(f"tests/bench/gpu/run: there is no kernel whose name contains {a.kernels}")
    return files


def write(lines, out):
    """results.json, the page, and the machine code of each innermost loop."""
    (out / "loops").mkdir(parents=True, exist_ok=True)
    for line in lines:
        for who in ("ours", "hand"):
            code = (line[who] or {}).pop("loop_text", None)
            if code:
                (out / "loops" / f"{line['kernel']}.{line['chip']}.{who}.txt").write_text(code + "\n")
    (out / "results.json").write_text(json.dumps(lines, indent=1) + "\n")
    (out / "index.html").write_text(page.page(lines))
    print(f"\nwritten to {out}: index.html, results.json, loops/")


def main():
    a = parse_arguments()
    files, suite = kernels_of(a), rows_of(machine.HERE / "suite.tsv")
    build = pathlib.Path(a.build)
    machines = {leg: machine.Machine(build, a.debian13 if leg == 2 else None) for leg in {c.leg for c in a.chosen}}
    try:
        jobs, hands = Jobs(), {}
        broken = {}
        for kernel, file in files.items():
            for leg, m in machines.items():
                m.put(file, f"{kernel}.tir")
            for number, row in enumerate(r for r in suite if r["kernel"] == kernel):
                defines, path = [d for d in row["defines"].split() if d != "-"], shader_path(row["shader"])
                for leg, m in machines.items():
                    takers = [c for c in a.chosen if c.leg == leg and of_class(row, c) >= 0]
                    if not takers:
                        continue
                    module = f"{kernel}.{number}.spv"
                    error = f"there is no shader {row['shader']}" if path is None else m.compile(path, defines, module)
                    if error:
                        broken[(leg, kernel, number)] = error
                    for c in takers:
                        hands.setdefault((kernel, c.name), []).append((row, leg, number, module, subgroup_of(defines)))
                        if not error:
                            jobs.add(c, module, subgroup_of(defines), f"{kernel} by hand: {row['shader']}")
            for c in a.chosen:
                jobs.add(c, f"{kernel}.tir", 0, kernel)
        answers = jobs.run(machines, max(1, min(os.cpu_count() or 1, 4)), a.limit)
    finally:
        for m in machines.values():
            m.close()

    lines = []
    for kernel in files:
        for c in a.chosen:
            by_hand = [
                (
                    row,
                    (
                        {"error": broken[(leg, kernel, number)]}
                        if (leg, kernel, number) in broken
                        else answers[(c.name, module, subgroup)]
                    ),
                )
                for row, leg, number, module, subgroup in hands.get((kernel, c.name), [])
            ]
            lines.append(combine(kernel, c, answers[(c.name, f"{kernel}.tir", 0)], by_hand))
    print_table(lines, a.detail)
    print_matrix(lines)
    if a.out:
        write(lines, pathlib.Path(a.out))


if __name__ == "__main__":
    main()
