"""Runs what is likely to notice on each fault that plant.py has planted: try.py TREE BUILD [--jobs N] [--seconds S]
[--only N,N,...] [--again] [--random N] [--longest S] [--mosaic PYTHON]

An item is one case of test_codegen or of those of test_engine that are about passes, one kernel of tests/tir, some
seeds of the fuzzer, or some kernels as modules for TPUs, which a Python with jaxlib judges: one process. All run once
without a fault, which says how long they take and which faults' places they pass (kept in TREE/items.json until a
program or kernel changes). A fault is tried on the items that pass its place, those first that have killed most in a
second so far, and is killed when one fails, crashes, takes five times as long (and a second) or needs more than 6 GiB.
It survives when all of them, or S seconds' worth, have passed. TREE/results.tsv keeps what is known, so that a run goes
on where the last one ended; a fault that survived with fewer seconds, or with --again, is tried again. Ends with a
table, and every survivor that equivalent.tsv does not argue away.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

FAILED = re.compile(r"FAILED|ERROR:|terminate called")
TABLES = re.compile(r": (costs|pass files)")
SEEDS_AT_ONCE = 12  # of random kernels
KERNELS_AT_ONCE = 10  # as modules for TPUs


def items(build, seeds, mosaic):
    """Name, command, and the files that it depends on."""
    fuzz, found = f"{build}/tests/fuzz", []
    for suite, cases in (("codegen", []), ("engine", ["--source-file=*engine/passes*_test.cpp"])):
        program = f"{build}/tests/test_{suite}"
        listed = subprocess.run([program, "--list-test-cases", *cases], capture_output=True, text=True).stdout
        for case in listed.split("\n"):
            if case and not case.startswith(("[doctest]", "====")):
                found.append(
                    (
                        f"unit {suite}: {case}",
                        [program, "--abort-after=1", "--test-case=" + case.replace(",", "?")],
                        [program],
                    )
                )
    for kernel in sorted(glob.glob("tests/tir/*.tir") + glob.glob("tests/data/pallas/*.tir")):
        found.append((f"files {kernel}", [fuzz, "--shrink", "0", kernel], [fuzz, kernel]))
    for seed in range(1, seeds, SEEDS_AT_ONCE):
        found.append(
            (
                f"random {seed} to {seed + SEEDS_AT_ONCE - 1}",
                [fuzz, "--shrink", "0", "--seed", str(seed), "--count", str(SEEDS_AT_ONCE)],
                [fuzz],
            )
        )
    names = sorted(pathlib.Path(kernel).stem for kernel in glob.glob("tests/tir/*.tir")) if mosaic else []
    for i in range(0, len(names), KERNELS_AT_ONCE):
        some = names[i : i + KERNELS_AT_ONCE]
        found.append(
            (
                f"mosaic {some[0]} to {some[-1]}",
                [mosaic, "tests/mosaic/check.py", f"{build}/tessera", ".", *some],
                [f"{build}/tessera", *(f"tests/tir/{n}.tir" for n in some)],
            )
        )
    return found


def run(command, mutant, seconds, reached=None):
    """None if it passes, else why it does not; and the processor's seconds that it took. On a busy machine those are
    what can be compared."""

    def limits():
        os.setpgid(0, 0)  # not a session, which would have a priority of its own
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))

    environment = dict(os.environ, TESSERA_MUTANT=str(mutant))
    environment.pop("TESSERA_CACHE", None)  # it knows compilers by their sources, not by their faults
    if reached:
        environment["TESSERA_MUTANTS_REACHED"] = str(reached)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=limits,
        text=True,
        errors="replace",
    )
    slow = threading.Event()

    def stop():
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def late():
        slow.set()
        stop()

    timer = threading.Timer(30 + 20 * seconds, late)  # waits, instead of computing
    timer.start()
    why = None
    for line in process.stdout:
        if FAILED.search(line):
            why = line.strip()[:160]
            stop()
            break
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    timer.cancel()
    if slow.is_set() or code in (-signal.SIGXCPU, -signal.SIGKILL) and not why:
        why = f"longer than {seconds:.0f} s"
    return why or (None if code == 0 else f"exit status {code}"), used.ru_utime + used.ru_stime


class Item:
    def __init__(self, name, command, seconds, reached):
        self.name, self.command, self.seconds, self.reached = name, command, seconds, set(reached)
        self.tried = self.killed = 0

    def worth(self):
        # What the first runs say of an item of which this one knows nothing: tables kill half of the faults that they
        # pass, another item few.
        killed, tried = (5, 10) if TABLES.search(self.name) else (0.1, 2)
        return (self.killed + killed) / (self.tried + tried) / (self.seconds + 0.02)


def measure(tree, build, jobs, seeds, mosaic, longest):
    """The items with their times and the faults that they pass, measured where that is not known."""
    known_file = tree / "items.json"
    known = json.load(open(known_file)) if known_file.exists() else {}
    lock = threading.Lock()

    def one(item):
        name, command, files = item
        stamp = max(os.path.getmtime(f) for f in files)
        if known.get(name, [0])[0] != stamp:
            reached = tree / f"reached.{threading.get_ident()}"
            reached.unlink(missing_ok=True)
            why, seconds = run(command, 0, longest, reached)
            if why and seconds < longest:
                return f"mutants: {name} fails without any fault: {why}"
            with lock:
                known[name] = [stamp, seconds, reached.read_text().split() if reached.exists() else []]
                json.dump(known, open(known_file, "w"))
        return Item(name, command, *known[name][1:]) if known[name][1] < longest else None

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        all_items = items(build, seeds, mosaic)
        result = [item for item in pool.map(one, all_items) if item]
    for left_over in tree.glob("reached.*"):
        left_over.unlink()
    for item in result:
        if isinstance(item, str):
            sys.exit(item)
    json.dump({name: known[name] for name, _, _ in all_items}, open(known_file, "w"))
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("tree", type=pathlib.Path)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=40, help="of tests per fault, as long as they take without one")
    p.add_argument("--only", default="")
    p.add_argument(
        "--for",
        dest="turn",
        type=float,
        default=float("inf"),
        help="begin nothing after so many seconds: a turn on a busy machine",
    )
    p.add_argument("--again", action="store_true", help="the survivors")
    p.add_argument("--random", type=int, default=120, help="so many random kernels, by the fuzzer's first seeds")
    p.add_argument("--longest", type=float, default=600, help="leave out what takes more seconds than this")
    p.add_argument("--mosaic", default="", help="a Python with jaxlib")
    p.add_argument("--report", action="store_true", help="the table of what is known, without running anything")
    a = p.parse_args()
    a.tree, a.build = a.tree.resolve(), a.build.resolve()
    mutants = [line.rstrip("\n").split("\t") for line in open(a.tree / "mutants.tsv")]
    key = {m[0]: "\t".join([m[1], *m[3:7]]) for m in mutants}
    results_file = a.tree / "results.tsv"
    results = {}  # number -> (verdict, seconds, why)
    if results_file.exists():
        for line in open(results_file):
            n, verdict, seconds, why = line.rstrip("\n").split("\t", 3)
            results[n] = (verdict, float(seconds), why)
    equivalent = {}
    known = pathlib.Path(__file__).resolve().with_name("equivalent.tsv")
    if known.exists():
        for line in open(known):
            if line.strip() and not line.startswith("#"):
                parts = line.rstrip("\n").split("\t")
                equivalent["\t".join(parts[:5])] = parts[5]
    todo = (
        a.only.split(",")
        if a.only
        else [
            m[0]
            for m in mutants
            if m[0] not in results
            or results[m[0]][0] == "survived"
            and key[m[0]] not in equivalent
            and (a.again or results[m[0]][1] < a.seconds)
        ]
    )
    random.Random(1).shuffle(todo)  # so that what is known early stands for all
    todo.sort(key=lambda n: (n in results, mutants[int(n) - 1][7:] != ["known"]))
    os.chdir(a.tree)  # whose kernels are those that were there when it was built
    if todo and not a.report:
        begin = time.time()
        all_items = measure(a.tree, a.build, a.jobs, a.random, a.mosaic, a.longest)
        for item in all_items:
            item.tried = item.killed = sum(why.startswith(item.name + ": ") for _, _, why in results.values())
        print(
            f"{len(all_items)} items of {sum(i.seconds for i in all_items):.0f} s pass"
            f" {len(set().union(*(i.reached for i in all_items)))} of {len(mutants)} faults"
            f" ({time.time() - begin:.0f} s)",
            flush=True,
        )

        def one(n):
            if time.time() - begin > a.turn:
                return None
            left, why = a.seconds, "no test passes it"
            for item in sorted((i for i in all_items if n in i.reached), key=lambda i: -i.worth()):
                if left < 0:
                    return n, "survived", f"{a.seconds:.0f} s of tests pass"
                left -= item.seconds
                item.tried += 1
                failure, _ = run(item.command, n, 5 * item.seconds + 1)
                if failure:
                    item.killed += 1
                    return n, "killed", f"{item.name}: {failure}"
                why = "all tests that pass it do"
            return n, "survived", why

        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for done, (n, verdict, why) in enumerate(filter(None, pool.map(one, todo)), 1):
                results[n] = (verdict, a.seconds, why)
                with open(results_file, "a") as out:
                    out.write(f"{n}\t{verdict}\t{a.seconds}\t{why}\n")
                if verdict == "survived":
                    m = mutants[int(n) - 1]
                    print(
                        f"[{done}/{len(todo)}] {n} survived: {m[1]}:{m[2]}: {m[3]}: {m[4]}  ->  {m[5]}  ({why})",
                        flush=True,
                    )
                elif sys.stdout.isatty():
                    print(f"[{done}/{len(todo)}] {n} killed by {why}", flush=True)
    kinds = ["unit", "costs", "files", "random", "mosaic"]
    table = collections.defaultdict(collections.Counter)
    survivors = []
    for m in mutants:
        if m[0] not in results:
            continue
        verdict, _, why = results[m[0]]
        if verdict == "survived" and key[m[0]] in equivalent:
            verdict = "equivalent"
        if m[7:] == ["known"]:  # no part of the measure
            if verdict == "survived":
                survivors.append((m, why))
            elif verdict == "killed":
                print(f"no longer survives: {m[1]}: {m[4]}  ->  {m[5]}  ({why})")
            continue
        folder = str(pathlib.Path(m[1]).parent)
        for row in (folder, "all"):
            table[row]["tried"] += 1
            table[row][verdict] += 1
            if verdict == "killed":
                table[row]["costs" if why.startswith("unit codegen: costs ") else why.split()[0]] += 1
        if verdict == "survived":
            survivors.append((m, why))
    print(
        "\n| folder | tried | killed | by "
        + " | by ".join(kinds)
        + " | equivalent | survived | killed of those that are not equivalent |\n|---|"
        + "---|" * (6 + len(kinds))
    )
    for row in sorted(table, key=lambda r: (r == "all", r)):
        t = table[row]
        real = t["killed"] + t["survived"]
        print(
            f"| {row} | {t['tried']} | {t['killed']} | "
            + " | ".join(str(t[k]) for k in kinds)
            + f" | {t['equivalent']} | {t['survived']} | {100 * t['killed'] / real if real else 100:.1f}% |"
        )
    for m, why in survivors:
        print(f"survived {m[0]}: {m[1]}:{m[2]}: {m[3]}: {m[4]}  ->  {m[5]}  ({why})")


main()
