"""Switches over ir::Opcode, ir::Family and the families' enums have no default: a new op is then a compile error
wherever it has to be known.

Prints those that have one, but for the few below. Paths to read come on stdin; only sources of engine, codegen and
runtime are read.
"""

import re
import sys

# One switch in each of these knows what some elementwise ops do to numbers, and of the rest nothing, which is always
# right. A comment there says so.
ALLOWED = {"engine/passes/identities.cpp", "engine/passes/interval.cpp", "codegen/lane/prover.cpp"}
with open("engine/ir/opcode.h", encoding="utf-8") as header:
    text = header.read()
ENUMS = ["Opcode", "Family"] + re.findall(r"enum class (\w+) : uint8_t \{\n#define TESSERA_(?!ELEMENTWISE)\w+", text)
if not {"Move", "Group"} <= set(ENUMS):
    print("opcode_switches.py: engine/ir/opcode.h has no enums of families that it finds")


def matching(text, at):
    """The position behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def blank(found):
    return re.sub(r"[^\n]", " ", found.group())


defaults = {}
for path in sys.stdin.read().split():
    if not re.search(r"^(engine|codegen|runtime)/.*\.(h|cpp)$", path):
        continue
    with open(path, encoding="utf-8") as source:
        text = source.read()
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', blank, text, flags=re.S)
    # The innermost first; one that was read is blanked out, so that its cases and its default are not the outer one's.
    for switch in reversed(list(re.finditer(r"\bswitch \(", text))):
        body = text.find("{", matching(text, switch.end() - 1))
        end = matching(text, body)
        cases = re.findall(r"\bcase\s+(?:\w+::)*(\w+)::\w+\s*:(?!:)", text[body:end])
        if set(cases) & set(ENUMS) and re.search(r"\bdefault\s*:", text[body:end]):
            defaults.setdefault(path, []).append(text.count("\n", 0, switch.start()) + 1)
        text = text[: switch.start()] + re.sub(r"[^\n]", " ", text[switch.start() : end]) + text[end:]
for path, lines in defaults.items():
    for line in lines[1 if path in ALLOWED else 0 :]:
        print(f"{path}:{line}: a switch over ops has a default")
for path in sorted(ALLOWED - defaults.keys()):
    print(f"{path}: may have a switch over ops with a default, but has none")
