"""Prints the lines that are longer than 120 columns in the files that people read or edit. Run from the root; paths to
read come on stdin. A row of a table, and text that a program wrote or compares, may be as long as it is: the lists
below say which, and why. So may a line without a space to break it at: a link, a path.
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
    (r"\.tir$", r"^// error: ", "a message that a test expects, to the letter"),
]


def breakable(line):
    """Whether there is a space behind its indentation where a shorter line could end."""
    words = line.lstrip(" #/*>-").rstrip()
    start = len(line.rstrip()) - len(words)
    return line.find(" ", start, LIMIT + 1) >= 0


def may_be_long(path):
    """For each of a file's lines in turn, whether it may be long: in blocks of code on pages, in raw strings of C++
    (clang-format breaks all other lines there), and behind a pass file's kernel, where the pass has written."""
    rows = [re.compile(line) for name, line, _ in ROWS if re.search(name, path)]
    block = False
    line = yield
    while True:
        long = block or any(row.search(line) for row in rows) or not breakable(line)
        if path.endswith(".md") and line.lstrip().startswith("```"):
            block = not block
        elif path.endswith((".cpp", ".h")) and ('R"(' in line or ')"' in line):
            block = 'R"(' in line and line.rfind('R"(') > line.rfind(')"')
            long = True
        elif path.endswith(".tir") and line.startswith("// ---- expected"):
            block = True
        line = yield long


for path in sys.stdin.read().split("\n"):
    if not path or re.search(NOT_TEXT, path) or any(re.search(name, path) for name, _ in WRITTEN):
        continue
    long = may_be_long(path)
    next(long)
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if not long.send(line) and len(line) > LIMIT:
                print(f"{path}:{number}: {len(line)} columns, {LIMIT} are the most")
