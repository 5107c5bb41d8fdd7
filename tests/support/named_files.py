"""Comments and pages of engine, codegen and runtime name source files, and the tables of CONTRIBUTING.md files to touch. Prints those that are not where they are looked for.

A name is looked for in the folder of what names it, then from the repository's root, then from engine, codegen and runtime. Only names that some source
file has are looked at: "scan.h" in an example is none. A row of a table in CONTRIBUTING.md begins with whole paths, and all that it names like one is there. Run from the root; paths to read come on stdin.
"""
import os
import re
import sys

paths = sys.stdin.read().split()
sources = [p for p in paths if re.search(r"^(engine|codegen|runtime)/.*\.(h|cpp|def)$", p)]
pages = [p for p in paths if re.search(r"^(engine|codegen|runtime)/.*\.md$", p)]
known = {os.path.basename(p) for p in sources}
for path in sources + pages:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith("#include"):
                continue
            text = line if path in pages else line[line.index("//"):] if "//" in line else ""
            for name in re.findall(r"(?<![\w/.])[\w/]+\.(?:h|cpp|def)\b", text):
                roots = (os.path.dirname(path), "", "engine", "codegen", "runtime")
                if os.path.basename(name) in known and not any(os.path.exists(os.path.join(root, name)) for root in roots):
                    print(f"{path}:{number}: {name}")

rows = 0
with open("CONTRIBUTING.md", encoding="utf-8") as lines:
    for number, line in enumerate(lines, 1):
        if not line.startswith("| `"):
            continue
        rows += 1
        first = re.findall(r"`([^`]+)`", line.split("|")[1])
        others = re.findall(r"`((?:engine|codegen|runtime|tests)/[\w/.]+)`", line)
        for name in dict.fromkeys(first + others):
            if not os.path.exists(name):
                print(f"CONTRIBUTING.md:{number}: {name}")
if rows < 10:
    print(f"CONTRIBUTING.md: only {rows} rows that name files")
