"""Prints the lines that are longer than 120 columns in the files that people read or edit. Run from the root; paths to
read come on stdin. A row of a table, and text that a program wrote, may be as long as it is: the lists below say which,
and why.
"""

import re
import sys

LIMIT = 120

NOT_TEXT = r"\.(npy|png)$"
WRITTEN = [  # whole files
    (r"^tests/data/.*\.(json|txt|tir|tsv)$", "written by tests/data/make_*.py and by tests"),
    (r"^tests/bench/gpu/results/", "pages of results, written by tests/bench/gpu/run and join.py"),
    (r"\.tsv$|^tests/mosaic/refused\.txt$", "tables: a row is a line"),
    (r"^CMakePresets\.json$", "JSON cannot continue a string"),
    (r"^LICENSE$", "another's text"),
]
ROWS = [  # lines
    (r"\.def$", r"^ *TESSERA_\w+\(", "a row of a table"),
    (r"\.md$", r"^ *\|", "a row of a table"),
    (r"\.md$", r"^ *(<img |!\[)", "a picture"),
    (r"\.sh$", r"^ *'[^']*'$", "a message that a test expects, to the letter"),
    (r"\.tir$", r"^(?!//)|^//  ", "an op is a line, and so is what a pass printed"),
    (r"\.tir$", r"^// (\w+: )?(in|out) \d+: ", "an array's elements"),
    (r"\.tir$", r"^// (error|note): ", "a message of the compiler's, as it is printed"),
]


def rows(path):
    """What is a row in a file of this name."""
    return [re.compile(line) for name, line, _ in ROWS if re.search(name, path)]


def breakable(line):
    """Whether it can be broken: there is a space in it, behind its indentation, where a shorter line could end."""
    words = line.lstrip(" #/*>-").rstrip()
    start = len(line.rstrip()) - len(words)
    return 0 <= line.find(" ", start, LIMIT + 1)


for path in sys.stdin.read().split("\n"):
    if not path or re.search(NOT_TEXT, path) or any(re.search(name, path) for name, _ in WRITTEN):
        continue
    allowed, in_code = rows(path), False
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if path.endswith(".md") and line.lstrip().startswith("```"):
                in_code = not in_code
            if path.endswith(".tir") and line.startswith("// ---- expected"):
                break  # what follows is the result of a pass
            if len(line) <= LIMIT or in_code or any(row.search(line) for row in allowed) or not breakable(line):
                continue
            print(f"{path}:{number}: {len(line)} columns, {LIMIT} are the most")
