"""One table of what bench_gpu_time and peers.py have measured: python3 join.py results.json [peers.json] [--markdown].
Times are medians in milliseconds; a ! marks a wrong result. Ratios of Vulkan's times to CUDA's are without what a
launch of nothing takes in each."""

import argparse
import json
import pathlib


def best(lines):
    """The fastest of some lines that were timed; one that was not, if there is no other."""
    good = [x for x in lines if "median" in x]
    return min(good, key=lambda x: x["median"]) if good else (lines[0] if lines else None)


def ways_of(result):
    """Our kernel on Vulkan, as PTX, the shader for the most special class, and that for any device."""
    lines = result.get("lines", [])
    shaders = [x for x in lines if x["who"] == "shader"]
    special, plain = best([x for x in shaders if x["class"] != "any"]), best(
        [x for x in shaders if x["class"] == "any"]
    )
    return {
        "ours": best([x for x in lines if x["who"] == "ours"]),
        "ptx": best([x for x in lines if x["who"] == "ptx"]),
        "glsl": special or plain,
        "any": plain if special else None,
    }


def milliseconds(line):
    if line is None:
        return "-"
    if "median" not in line:
        return "error"
    return f"{1e3 * line['median']:.4g}" + ("!" if line.get("wrong") else "")


def net(line, floor):
    """Without what a launch of nothing takes, of which a Vulkan dispatch with its barrier takes several times as much
    as a launch in a graph of CUDA's."""
    return max(line["median"] - floor, 0.2 * line["median"])


def ratio(a, b, a_floor=0.0, b_floor=0.0):
    return f"{net(a, a_floor) / net(b, b_floor):.2f}" if a and b and "median" in a and "median" in b else "-"


def rate(result, line):
    """As TFLOP/s where the kernel does much for each byte, else GB/s."""
    if not line or "median" not in line or "bytes" not in result:
        return "-"
    if result.get("flops", 0) > 16 * result["bytes"]:
        return f"{result['flops'] / line['median'] / 1e12:.1f} T"
    return f"{result['bytes'] / line['median'] / 1e9:.0f} G"


# fmt: off
HEAD = (
    "kernel", "ours", "ptx", "glsl", "glsl any", "peer", "ours/glsl", "ptx/glsl", "ours/peer", "ptx/peer", "rate ours",
    "rate ptx", "rate peer", "class", "peer's way",
)
# fmt: on


def table(results, peers):
    by_peer = {row["kernel"]: row for row in peers.get("kernels", [])}
    vulkan, cuda = (
        (results.get("ceilings") or {}).get(name, {}).get("median", 0.0) for name in ("vulkan_little", "cuda_little")
    )
    for result in results["kernels"]:
        ways, peer = ways_of(result), by_peer.get(result["kernel"])
        timed = peer if peer and "median" in peer else None
        yield (
            result["kernel"],
            *(milliseconds(ways[w]) for w in ("ours", "ptx", "glsl", "any")),
            milliseconds(peer) if peer else "-",
            ratio(ways["ours"], ways["glsl"]),
            ratio(ways["ptx"], ways["glsl"], cuda, vulkan),
            ratio(ways["ours"], timed, vulkan, cuda),
            ratio(ways["ptx"], timed),
            rate(result, ways["ours"]),
            rate(result, ways["ptx"]),
            rate(result, timed),
            (ways["glsl"] or {}).get("class", "-"),
            (timed or {}).get("best", "-"),
        )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("results")
    p.add_argument("peers", nargs="?")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    results = json.loads(pathlib.Path(a.results).read_text())
    peers = json.loads(pathlib.Path(a.peers).read_text()) if a.peers else {}
    lines = [HEAD, *table(results, peers)]
    if a.markdown:
        lines.insert(1, ("---", *["---:"] * (len(HEAD) - 3), "---", "---"))
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        return
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    for line in lines:
        print(
            "  ".join(
                cell.ljust(w) if i in (0, len(HEAD) - 2, len(HEAD) - 1) else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths))
            )
        )


if __name__ == "__main__":
    main()
