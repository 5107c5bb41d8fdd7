"""Comments and pages name source files, folders of pass tests and the files to touch for a change. Prints those that
are not where they are looked for.

A source file that a comment or page of engine, codegen and runtime names is looked for in the folder of what names it,
then from the repository's root, then from engine, codegen and runtime. Only names that some source file has are looked
at: "scan.h" in an example is none. A page's list behind `tests/tir/passes/` has folders of it, and each of them is in
such a list. Any page's path in backticks that begins with a top folder is there, but for patterns (NAME, CASE) and what
a build makes. A row of a table in CONTRIBUTING.md begins with whole paths. Run from the root; paths to read come on
stdin.
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
            text = line if path in pages else line[line.index("//") :] if "//" in line else ""
            for name in re.findall(r"(?<![\w/.])[\w/]+\.(?:h|cpp|def)\b", text):
                roots = (os.path.dirname(path), "", "engine", "codegen", "runtime")
                if os.path.basename(name) in known and not any(
                    os.path.exists(os.path.join(root, name)) for root in roots
                ):
                    print(f"{path}:{number}: {name}")

examples = {p.split("/")[3] for p in paths if re.match(r"tests/tir/passes/\w+/", p)}
named = set()
for path in (p for p in paths if p.endswith(".md")):
    with open(path, encoding="utf-8") as page:
        text = page.read()
    for found in re.finditer(r"`((?:engine|codegen|runtime|shaders|samples|tests)/[\w./-]*)`", text):
        name = found[1]
        if not re.search(r"NAME|CASE|FOLDER", name) and not os.path.exists(name):
            print(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {name}")
    for found in re.finditer(r"`tests/tir/passes/`((?:[,:;]|\s|and as rewrites|and|`\w+`)*)", text):
        for name in re.findall(r"`(\w+)`", found[1]):
            named.add(name)
            if name not in examples:
                print(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: tests/tir/passes/{name}")
for name in sorted(examples - named):
    print(f"tests/tir/passes/{name}: no README of a stage names it")

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
