"""Reads NVIDIA's disassembly (nvdisasm -c FILE.cubin) from stdin. A loop's HGMMA that multiplies by registers made
before the loop needs them in every iteration: prints each loop that changes some of them, as ptxas 13.0 lets it. Loops
are the shortest ones: from a label to a branch back to it, without an exit between."""

import re
import sys

PLAIN = re.compile(r"(?:@!?U?P\d+ )?([A-Z0-9_.]+) R(\d+)\b")
NO_RESULT = ("ST", "RED", "BAR", "R2UR", "SYNCS", "UTMA", "HGMMA")


def registers_set(line):
    """Those of an instruction that is no HGMMA: as many as its name says."""
    m = PLAIN.match(line)
    if not m or m[1].startswith(NO_RESULT):
        return ()
    n = 4 if ".128" in m[1] or ".M88.4" in m[1] else 2 if m[1].endswith(".64") or ".WIDE" in m[1] else 1
    return range(int(m[2]), int(m[2]) + n)


def changed(body):
    """Registers of left factors that are read before the loop's body sets them, and that it sets."""
    first, written = set(), set()
    for line in body:
        m = re.match(r"HGMMA\.\S+ R\d+, R(\d+),", line)
        if m:
            first |= set(range(int(m[1]), int(m[1]) + 4)) - written
        written |= set(registers_set(line))
    return sorted(first & written)


def main():
    lines = [re.sub(r"^/\*[0-9a-f]+\*/\s*", "", line.strip()) for line in sys.stdin]
    labels = {line[:-1]: n for n, line in enumerate(lines) if re.fullmatch(r"\.L_x_\d+:", line)}
    loops = []
    for n, line in enumerate(lines):
        m = re.search(r"BRA `\((\.L_x_\d+)\)", line)
        if m and labels.get(m[1], n) < n:
            loops.append((labels[m[1]], n))
    for first, last in loops:
        body = lines[first:last]
        inner = any(
            (a, b) != (first, last) and first <= a and b <= last and any("HGMMA" in x for x in lines[a:b])
            for a, b in loops
        )
        if not inner and not any(x.startswith("EXIT") for x in body):
            bad = changed(body)
            if bad:
                print(f"a loop of {len(body)} lines loses " + ", ".join(f"R{r}" for r in bad))


if __name__ == "__main__":
    main()
