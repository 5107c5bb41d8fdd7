"""Functions, lambdas and constructors of more than six parameters in engine, codegen and runtime.

Each is a line `file:line name parameters`. The files come on stdin. Not meant: the C interface and Python's
(tessera_...), whose callers pass no structs of C++, kernels, which have a Ref for each of their arrays, and macros.
Found in the text and not in Clang's tree as order.sh does: reading the folders that order.sh does not read and the
bodies of all functions there takes a minute instead of three seconds, and needs a clang. Definitions alone are looked
at: a declaration has as many.
"""

import re
import sys

from long_functions import TOKEN

LIMIT = 6
NO_FUNCTION = {
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "constexpr",
    "return",
    "requires",
    "noexcept",
    "decltype",
    "alignas",
    "sizeof",
}
NAME = re.compile(r"(\]|[\w~:]*\w|operator *\S+)\s*$")
# What may stand between a list of parameters and the body.
BEHIND = re.compile(
    r"\s*(?:(?:const|mutable|noexcept|override|final|&&?|->[^;{}()]*|requires\s*\([^;{}]*\))\s*)*([{:])(?!:)"
)
# A constructor's name and what stands before it, from the last end of a statement or a label on.
CONSTRUCTOR = re.compile(r"(?:template\s*<[^;{}]*>\s*)?(?:(?:explicit|inline|constexpr)\s+)*(?:[\w:]+::)?\w+\s*$")


def closing(text, at):
    """The place of the parenthesis that closes the one at `at`, or the end."""
    depth = 0
    for m in re.compile(r"[()]").finditer(text, at):
        depth += 1 if m[0] == "(" else -1
        if depth == 0:
            return m.start()
    return len(text)


def parameters(text):
    """How many a list has."""
    depth, count = 0, 1 if text.strip() not in ("", "void") else 0
    for m in re.finditer(r"->|>=|<=|<<|[(\[{<]|[)\]}>]|,", text):
        if m[0] == "," and depth == 0:
            count += 1
        elif m[0] in "([{<":
            depth += 1
        elif m[0] in ")]}>":
            depth -= 1
    return count


def functions(text):
    """(line, name, its list of parameters) of each definition."""
    bare = TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for m in re.finditer(r"\(", bare):
        name = NAME.search(bare, max(0, m.start() - 200), m.start())
        if not name or name[1] in NO_FUNCTION:
            continue
        end = closing(bare, m.start())
        behind = BEHIND.match(bare, end + 1)
        if not behind:
            continue
        before = bare[max(bare.rfind(c, 0, m.start()) for c in ";{}") + 1 : m.start()]
        before = re.sub(r".*\b(?:public|private|protected)\s*:", "", before, flags=re.S).strip()
        if behind[1] == ":" and not CONSTRUCTOR.fullmatch(before):
            continue  # a ?: or a label
        if re.search(r"(?:[,:]|^)\s*\w+$", before) and re.search(r"\)\s*:[^:]|^\s*,", before):
            continue  # the last initialiser of a constructor
        yield bare.count("\n", 0, m.start()) + 1, "lambda" if name[1] == "]" else name[1], bare[m.start() + 1 : end]


def main():
    for path in sys.stdin.read().split():
        if not re.match(r"(engine|codegen|runtime)/.*\.(h|cpp)$", path):
            continue
        with open(path, encoding="utf-8") as source:
            text = source.read()
        for line, name, of in functions(text):
            count = parameters(of)
            kernel = all(re.fullmatch(r"\s*(const\s+)?(\w+::)?Ref\s*&?\s*\w*\s*", p) for p in of.split(","))
            if count > LIMIT and not kernel and not name.startswith("tessera_"):
                print(f"{path}:{line} {name} {count}")


if __name__ == "__main__":
    main()
