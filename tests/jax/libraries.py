"""What tests/jax/libraries runs. The parent starts a process per module of a library, which runs its cases one after
another and answers with a line of JSON per step; a process that dies or takes too long costs the case that it was at,
and the next process goes on behind it."""

import argparse
import json
import math
import os
import selectors
import statistics
import subprocess
import sys
import time

# of a difference relative to the largest value of the result
BOUNDS = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}
TIMED = 0.2  # seconds for a case and a device; the second call is always made
MARK = "@case "  # before each line that is meant for the parent: libraries print too


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--device", action="append", choices=["interpreter", "vulkan"])
    parser.add_argument("--timeout", action="append", type=float)
    parser.add_argument("--results")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", nargs="*")
    return parser.parse_args()


def cases():
    import library_cases
    import library_cases_ejkernel  # noqa: F401
    import library_cases_tokamax  # noqa: F401

    return library_cases.CASES


# -- the child


def flat(call):
    """A function of arrays only, and those: what else is in the call does not change."""
    import jax

    f, args, kwargs = call
    leaves, tree = jax.tree.flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def of_arrays(*arrays):
        every = list(leaves)
        for i, array in zip(at, arrays):
            every[i] = array
        args, kwargs = jax.tree.unflatten(tree, every)
        return f(*args, **kwargs)

    return of_arrays, [leaves[i] for i in at]


def run(make, jit):
    """The results of a case as NumPy arrays, the dtypes that it is about, CPU seconds beyond those of a second call,
    and milliseconds of the quickest of the calls that end within TIMED seconds behind the first."""
    import jax
    import numpy as np

    f, arrays = flat(make())
    dtypes = {str(a.dtype) for a in arrays}
    jitted = jax.jit(f) if jit else f
    cpu = time.process_time()
    made = jax.block_until_ready(jitted(*arrays))
    first = time.process_time() - cpu
    second, wall, until = None, float("inf"), time.perf_counter() + TIMED
    while second is None or time.perf_counter() < until:
        _, arrays = flat(make())  # the call may have taken those it got
        jax.block_until_ready(arrays)
        cpu, start = time.process_time(), time.perf_counter()
        jax.block_until_ready(jitted(*arrays))
        cpu, wall = time.process_time() - cpu, min(wall, time.perf_counter() - start)
        second = cpu if second is None else second
    leaves = [x for x in jax.tree.leaves(made) if x.dtype != jax.dtypes.float0]
    dtypes |= {str(x.dtype) for x in leaves}
    return [np.asarray(x) for x in leaves], dtypes, first - second, 1000 * wall


def difference(got, want):
    """The largest of all results, relative to the largest value of that result; infinite if NaN or infinity is at other
    places."""
    import numpy as np

    worst = 0.0
    if len(got) != len(want):
        return float("inf")
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or g.dtype != w.dtype:
            return float("inf")
        if g.size == 0:
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        if not np.array_equal(np.isnan(g), np.isnan(w)) or not np.array_equal(g[np.isinf(w)], w[np.isinf(w)]):
            return float("inf")
        finite = np.isfinite(w)
        if finite.any():
            most = np.abs(g[finite] - w[finite]).max()
            worst = max(worst, float(most / max(np.abs(w[finite]).max(), 1e-6)) if most else 0.0)
    return worst


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def child(names, devices):
    import contextlib
    import warnings

    # XLA leaves out roundings to narrower floats otherwise, within the judge's kernels too: a judge rounds where the
    # kernel says so.
    os.environ["XLA_FLAGS"] = f"--xla_allow_excess_precision=false {os.environ.get('XLA_FLAGS', '')}"
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    import tessera

    warnings.simplefilter("ignore")
    os.environ.setdefault("TESSERA_DEVICE", "vulkan")
    sys.argv = sys.argv[:1]  # tokamax reads it
    tessera.install("interpreter")  # for the TPU's description only: each run below says where it runs
    place, traced = ["jax"], [0]
    ways = {"jax": True, "jax for TPUs": pltpu.InterpretParams(), "reference": True}
    stock = pl.pallas_call

    def pallas_call(*args, **kwargs):
        traced[0] += 1
        return stock(*args, **{**kwargs, "interpret": ways.get(place[0], False)})

    pl.pallas_call = pallas_call

    def say(**what):
        print(MARK + json.dumps(what), flush=True)

    every = cases()
    for name in names:
        case = every[name]
        want, judged, looser = None, False, 1
        say(name=name, at="start")
        for where in [*ways, *devices]:
            if where in ways and want is not None or where == "reference" and not case.reference:
                continue  # the first that can run it is the judge
            place[0], traced[0] = where, 0
            try:
                with contextlib.nullcontext() if where in ways else tessera.on(where):
                    jax.clear_caches()
                    got, dtypes, cpu, ms = (
                        run(case.reference, case.reference_jit) if where == "reference" else run(case.make, case.jit)
                    )
                if not traced[0] and where != "reference":
                    raise RuntimeError("the function calls no kernel")
            except Exception as error:
                if os.environ.get("TESSERA_LIBRARIES_TRACE"):
                    import traceback

                    traceback.print_exc()
                if where not in ("jax for TPUs", "reference"):  # that of the first says more
                    say(name=name, at=where, is_="refused", text=first_line(error))
                continue
            if where in ways:
                want, judged, looser = got, True, 10 if where == "reference" else 1  # other products, other sums
                if where == "reference":
                    say(name=name, at="reference")
                else:
                    say(name=name, at="jax", is_="right", cpu=cpu, ms=ms, by=where)
                continue
            if want is None:  # no interpreter of JAX runs it: the devices are compared with each other
                want = got
                say(name=name, at=where, is_="unjudged", by=0.0, cpu=cpu, ms=ms)
                continue
            by = difference(got, want)
            bound = case.bound or max([BOUNDS.get(d, 0.0) for d in dtypes], default=0.0) * looser
            verdict = "WRONG" if by > bound else "right" if judged else "unjudged"
            say(name=name, at=where, is_=verdict, by=by, cpu=cpu, ms=ms)
        say(name=name, at="end")


# -- the parent


def lines(process, timeout):
    """The lines of a process for the parent; None at its end or when a case takes longer than `timeout` seconds."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    rest, until = b"", time.monotonic() + timeout
    while True:
        if not selector.select(max(0.0, until - time.monotonic())):
            yield None
            return
        got = os.read(process.stdout.fileno(), 1 << 16)
        if not got:
            yield None
            return
        *whole, rest = (rest + got).split(b"\n")
        for line in whole:
            text = line.decode(errors="replace")
            if text.startswith(MARK):
                line = json.loads(text[len(MARK) :])
                if line["at"] == "start":
                    until = time.monotonic() + timeout
                yield line


def module(names, devices, timeout, report):
    """Runs the cases of one module in as few processes as they allow; report(name, results by place) after each."""
    left = list(names)
    while left:
        command = [sys.executable, __file__, *[x for d in devices for x in ("--device", d)], "--child", *left]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("TESSERA_LIBRARIES_TRACE") else subprocess.DEVNULL,
        )
        try:
            before, here = time.monotonic(), {}
            started = before
            for line in lines(process, timeout):
                now = time.monotonic()
                if line is None:
                    if left:
                        slow = now - started >= timeout and process.poll() is None
                        why = (
                            dict(is_="late", text=f"no answer in {timeout:.0f} s", limit=timeout)
                            if slow
                            else dict(is_="refused", text=f"the process ended with {process.wait()}")
                        )
                        for where in ["jax", *devices]:
                            if where not in here:
                                here[where] = {**why, "seconds": now - before}
                                why, before = {**why, "text": "not reached"}, now
                        report(left.pop(0), here)
                    break
                at = line.pop("at")
                if at == "start":
                    started, here = now, {}
                elif at == "end":
                    report(left.pop(left.index(line["name"])), here)
                elif at != "reference":
                    here[at] = {**line, "seconds": now - before}
                before = now
        finally:
            process.kill()
            process.wait()


def wanted(result, devices, timeout, again):
    """Whether a case with these earlier results, or None, is to be run."""
    if result is None or any(d not in result for d in devices):
        return True
    mine = [result[d] for d in devices]
    return any(
        r["is_"] == "late" and r["limit"] < timeout or again and r["is_"] in ("WRONG", "refused", "unjudged")
        for r in mine
    )


def show(name, result):
    for where, r in result.items():
        if where == "jax" and r["is_"] == "right":
            continue
        text = (
            r["text"] if "text" in r else f"by {r['by']:.1e}, compiled in {r['cpu']:.1f} CPU s, {r['ms']:.1f} ms a call"
        )
        is_ = "cannot be driven" if where == "jax" and r["is_"] == "refused" else r["is_"]
        print(f"{name}: {'JAX' if where == 'jax' else where}: {is_}: {text} ({r['seconds']:.0f} s)", flush=True)


def table(names, devices, found):
    """Prints what was found by library and device, and the slowest; how many passed, and how many failed."""
    passed = failed = 0
    print(
        "\n| library | on | right | wrong | refused | not in time | not run | JAX cannot run "
        "| of those as the library's reference | unlike it | without one, run here | most CPU s to compile |\n|"
        + "---|" * 12
    )
    for library in dict.fromkeys(n.split("/")[0] for n in names):
        mine = [found[n] for n in names if n.split("/")[0] == library and not wanted(found.get(n), devices, 0.0, False)]
        absent = sum(n.split("/")[0] == library for n in names) - len(mine)
        rest, driven = [r for r in mine if r["jax"]["is_"] == "refused"], [
            r for r in mine if r["jax"]["is_"] != "refused"
        ]
        for device in devices:
            counts = [sum(r[device]["is_"] == k for r in driven) for k in ("right", "WRONG", "refused", "late")]
            alone = [sum(r[device]["is_"] == k for r in rest) for k in ("right", "WRONG", "unjudged")]
            most = max([r[device]["cpu"] for r in mine if "cpu" in r[device]], default=0.0)
            print("|", " | ".join(map(str, [library, device, *counts, absent, len(rest), *alone, f"{most:.1f}"])), "|")
            passed += counts[0]
            failed += counts[1] + counts[2]
    for device in devices:
        calls = [
            (r[device]["ms"], r["jax"]["ms"])
            for r in (found[n] for n in names if n in found)
            if r.get(device, {}).get("is_") == "right" and r["jax"].get("by") == "jax"
        ]
        if calls:
            mean = math.exp(statistics.fmean(math.log(ours / jax) for ours, jax in calls))
            print(f"\na call on {device}: {mean:.2f} of its time under interpret=True (geometric mean of {len(calls)})")
    slow = sorted(
        ((r["seconds"], n, where, r["is_"]) for n in names if n in found for where, r in found[n].items()), reverse=True
    )[:20]
    print(
        "\nslowest:",
        *[f"{n} on {'JAX' if where == 'jax' else where}: {seconds:.0f} s, {is_}" for seconds, n, where, is_ in slow],
        sep="\n  ",
    )
    return passed, failed


def main():
    options = parse()
    devices = options.device or ["interpreter", "vulkan"]
    if options.child is not None:
        return child(options.child, devices)
    names = [n for n in cases() if not options.only or any(o in n for o in options.only)]
    if options.list:
        print("\n".join(names))
        return 0
    found = {}
    if options.results and os.path.exists(options.results):
        with open(options.results) as f:
            found = {r["name"]: r["results"] for r in map(json.loads, f)}  # the last line of a case is what holds

    def report(name, result):
        found[name] = result
        show(name, result)
        if options.results:
            with open(options.results, "a") as f:
                f.write(json.dumps(dict(name=name, results=result)) + "\n")

    for round_, timeout in enumerate(options.timeout or [600.0]):
        groups = {}
        for name in sorted(names, key=lambda n: n.endswith(" grad")):  # gradients take longest
            if wanted(found.get(name), devices, timeout, options.again and not round_):
                groups.setdefault((*name.split("/")[:2], name.endswith(" grad")), []).append(name)
        for group in groups.values():
            module(group, devices, timeout, report)

    passed, failed = table(names, devices, found)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
