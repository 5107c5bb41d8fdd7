"""Runs the fast suites on each fault that plant.py has planted: try.py TREE BUILD --jobs N [--seconds S] [--only N,N,...]

A fault is killed when a suite fails, crashes, hangs or needs more than 6 GiB. The suites run from quick to slow and stop at the first failure; a suite that does not pass
a fault's place on the unharmed compiler is not run for it. TREE/results.tsv keeps what is known, so that a run goes on where the last one ended; a fault that
survived with fewer --seconds of random kernels is tried again. Ends with a table, and every survivor that equivalent.tsv does not argue away.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time

FAILED = re.compile(r"FAILED|ERROR:|terminate called")


def suites(build, seconds):
    fuzz, kernels = f"{build}/tests/fuzz", sorted(glob.glob("tests/tir/*.tir") + glob.glob("tests/data/pallas/*.tir"))
    return [
        ("files", [fuzz, "--shrink", "0", *kernels]),
        ("random", [fuzz, "--shrink", "0", "--seed", "1", "--seconds", str(seconds)]),
        ("unit", [f"{build}/tests/test_codegen", "--abort-after=1"]),
    ]


def limits():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, mutant, timeout, reached=None):
    """None if the suite passes, else why it does not."""
    environment = dict(os.environ, TESSERA_MUTANT=str(mutant))
    environment.pop("TESSERA_CACHE", None)  # it knows compilers by their sources, not by their faults
    if reached:
        environment["TESSERA_MUTANTS_REACHED"] = str(reached)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, preexec_fn=limits, text=True, errors="replace")
    slow = threading.Event()

    def stop():
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def late():
        slow.set()
        stop()

    timer = threading.Timer(timeout, late)
    timer.start()
    why = None
    for line in process.stdout:
        if FAILED.search(line):
            why = line.strip()[:160]
            stop()
            break
    process.stdout.read()
    code = process.wait()
    timer.cancel()
    if slow.is_set():
        return f"longer than {timeout:.0f} s"
    return why or (None if code == 0 else f"exit status {code}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("tree", type=pathlib.Path)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=20, help="of random kernels per fault")
    p.add_argument("--only", default="")
    p.add_argument("--report", action="store_true", help="the table of what is known, without running anything")
    a = p.parse_args()
    mutants = [line.rstrip("\n").split("\t") for line in open(a.tree / "mutants.tsv")]
    key = {m[0]: "\t".join([m[1], m[3], m[4], m[5]]) for m in mutants}
    results_file = a.tree / "results.tsv"
    results = {}  # key, line -> (verdict, why)
    if results_file.exists():
        for line in open(results_file):
            n, verdict, seconds, why = line.rstrip("\n").split("\t", 3)
            results[n] = (verdict, float(seconds), why)
    todo = a.only.split(",") if a.only else [m[0] for m in mutants if m[0] not in results or results[m[0]][0] == "survived" and results[m[0]][1] < a.seconds]
    if todo and not a.report:
        stages = []
        for name, command in suites(a.build, a.seconds):
            reached = a.tree / f"reached.{name}"
            reached.unlink(missing_ok=True)
            begin = time.time()
            why = run(command, 0, 1200, reached)
            if why:
                sys.exit(f"mutants: the suite {name} fails without any fault: {why}")
            stages.append((name, command, 60 + 4 * (time.time() - begin), set(open(reached).read().split()) if reached.exists() else set()))
            print(f"{name}: {time.time() - begin:.0f} s without a fault, passes {len(stages[-1][3])} of {len(mutants)} faults", flush=True)

        def one(n):
            why = "no suite passes it"
            for name, command, timeout, reached in stages:
                if n not in reached:
                    continue
                failure = run(command, n, timeout)
                if failure:
                    return n, "killed", f"{name}: {failure}"
                why = "passes all suites"
            return n, "survived", why

        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for done, (n, verdict, why) in enumerate(pool.map(one, todo), 1):
                results[n] = (verdict, a.seconds, why)
                with open(results_file, "a") as out:
                    out.write(f"{n}\t{verdict}\t{a.seconds}\t{why}\n")
                if verdict == "survived":
                    m = mutants[int(n) - 1]
                    print(f"[{done}/{len(todo)}] {n} survived: {m[1]}:{m[2]}: {m[3]}: {m[4]}  ->  {m[5]}  ({why})", flush=True)
                elif sys.stdout.isatty():
                    print(f"[{done}/{len(todo)}] {n} killed by {why}", flush=True)
    equivalent = {}
    known = pathlib.Path(__file__).with_name("equivalent.tsv")
    if known.exists():
        for line in open(known):
            if line.strip() and not line.startswith("#"):
                parts = line.rstrip("\n").split("\t")
                equivalent["\t".join(parts[:4])] = parts[4]
    table = collections.defaultdict(collections.Counter)
    survivors = []
    for m in mutants:
        if m[0] not in results:
            continue
        verdict = results[m[0]][0]
        if verdict == "survived" and key[m[0]] in equivalent:
            verdict = "equivalent"
        folder = str(pathlib.Path(m[1]).parent)
        for row in (folder, "all"):
            table[row][verdict] += 1
        if verdict == "survived":
            survivors.append((m, results[m[0]][2]))
    print("\n| folder | planted | killed | equivalent | survived | killed of those that are not equivalent |\n|---|---|---|---|---|---|")
    for row in sorted(table, key=lambda r: (r == "all", r)):
        t = table[row]
        total, real = sum(t.values()), t["killed"] + t["survived"]
        print(f"| {row} | {total} | {t['killed']} | {t['equivalent']} | {t['survived']} | {100 * t['killed'] / real if real else 100:.0f}% |")
    for m, why in survivors:
        print(f"survived {m[0]}: {m[1]}:{m[2]}: {m[3]}: {m[4]}  ->  {m[5]}  ({why})")


main()
