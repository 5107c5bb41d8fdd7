"""What the loop with the products consists of: reads NVIDIA's disassembly (nvdisasm -c FILE.cubin) from stdin, and
prints how many instructions of each kind the innermost loop has that multiplies matrices; of memory and matrices with
their modifiers, of everything else by name."""

import collections
import re
import sys

LABEL = re.compile(r"\s*(\.L\w+):")
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(.*?);")
GUARD = re.compile(r"^@!?U?P\w+\s+")


def instructions(lines):
    """The instructions, and at which of them each label stands."""
    code, labels = [], {}
    for line in lines:
        if m := LABEL.match(line):
            labels[m.group(1)] = len(code)
        elif m := INSTRUCTION.match(line):
            code.append(GUARD.sub("", m.group(1)))
    return code, labels


def loop_of_products(code, labels):
    """The shortest stretch between a branch and where it goes back to that has products."""
    loops = []
    for i, text in enumerate(code):
        m = re.match(r"BRA.*?(\.L\w+)", text)
        if m and labels.get(m.group(1), len(code)) <= i:
            body = code[labels[m.group(1)] : i + 1]
            if any("MMA" in x.split()[0] for x in body):
                loops.append(body)
    return min(loops, key=len) if loops else []


def main():
    code, labels = instructions(sys.stdin)
    loop = loop_of_products(code, labels)
    counts = collections.Counter()
    for text in loop:
        name = text.split()[0]
        counts[name if re.match(r"LD|ST|.*MMA|BAR", name) else name.split(".")[0]] += 1
    print(f"{len(code)} instructions, {len(loop)} in the loop")
    for name, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])):
        print(f"{n:5d} {name}")


if __name__ == "__main__":
    main()
