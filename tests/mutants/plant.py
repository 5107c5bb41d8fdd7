"""Plants faults in a copy of the compiler's sources: plant.py ROOT TREE --count N --seed S [--survivors]

ROOT is the repository, TREE the copy, which is made or brought up to date. Every fault lies in the one build and asks
tessera::mutants::live(n) whether it is the one wanted (mutant.h), so that a fault costs no compilation.
TREE/mutants.tsv lists number, file, line, kind, the code before and after, the whole line, "drawn" or "known",
tab-separated. Known are those of survivors.tsv, with --survivors: no part of a measure.

Faults are chosen by seed over all files of the lowering, the lane level, the emitters and the passes, from every place
where Clang's syntax tree has a comparison, sum or product, a condition, a statement that does something, a small
number, or a returned bool. What is said to people (errors, explain) and what C++ itself needs (loop headers, constant
expressions) is left alone.
"""

import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys

from clang import cindex
from clang.cindex import CursorKind as K, TypeKind

FOLDERS = [
    "codegen/tile",
    "codegen/plan",
    "codegen/lower",
    "codegen/lane",
    "codegen/expand",
    "codegen/nvidia",
    "codegen/spirv",
    "codegen/tpu",
    "engine/passes",
]
ALONE = ["codegen/compile.cpp", "codegen/fit_to_driver.cpp", "codegen/make_program.cpp"]
# Judges of the tests, and text for people.
NOT = re.compile(r"lane/(interpreter|bytecode)|explain|call_remarks|debug_info|disassemble|lower/print\.cpp")
OTHER = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "&&": "",
    "||": "",
}
CONSTANT = {
    K.STATIC_ASSERT,
    K.ENUM_CONSTANT_DECL,
    K.CXX_THROW_EXPR,
    K.TEMPLATE_TYPE_PARAMETER,
    K.TEMPLATE_NON_TYPE_PARAMETER,
}
ASSIGNS = {K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR, K.CALL_EXPR, K.BINARY_OPERATOR}
WORDS_FOR_PEOPLE = re.compile(r"\bfail\(|\bwhy\b|\bnote\b|InternalError|CompileError|\bexplain")

Site = collections.namedtuple("Site", "file line kind begin end before after make")


class Finder:
    """The places of one file."""

    def __init__(self, path, text, unit):
        self.path, self.text, self.sites = path, text, []
        self.lines = text.split(b"\n")
        for c in unit.cursor.get_children():
            if c.location.file and c.location.file.name == str(path):
                self.walk(c, False)

    def code(self, extent):
        return self.text[extent.start.offset : extent.end.offset].decode()

    def add(self, cursor, kind, begin, end, after, make):
        before = self.text[begin:end].decode()
        line = self.lines[cursor.extent.start.line - 1].decode()
        if "\n" in before or WORDS_FOR_PEOPLE.search(line) or line.lstrip().startswith("#"):
            return
        self.sites.append(Site(self.path, cursor.extent.start.line, kind, begin, end, before, after, make))

    def walk(self, c, inside):
        k = c.kind
        if k in CONSTANT or k == K.CASE_STMT and False:
            return
        if k in (
            K.FUNCTION_DECL,
            K.CXX_METHOD,
            K.CONSTRUCTOR,
            K.FUNCTION_TEMPLATE,
            K.LAMBDA_EXPR,
            K.CONVERSION_FUNCTION,
        ):
            head = self.text[c.extent.start.offset : c.extent.start.offset + 200].split(b"{")[0]
            if b"constexpr" in head:
                return
            inside = True
        if k == K.VAR_DECL:
            head = self.text[c.extent.start.offset : c.extent.end.offset].split(b"=")[0]
            if not inside or b"constexpr" in head or b"static" in head:
                return
        if inside and c.extent.start.file and c.extent.start.file.name == str(self.path):
            self.here(c)
        children = list(c.get_children())
        if k == K.FOR_STMT:
            children = children[-1:]
        if k == K.CASE_STMT:
            children = children[1:]
        for child in children:
            self.walk(child, inside)

    def here(self, c):
        k = c.kind
        children = list(c.get_children())
        if k == K.BINARY_OPERATOR and len(children) == 2:
            self.operator(c, children[0], children[1])
        elif k == K.CALL_EXPR and c.spelling.startswith("operator") and len(list(c.get_arguments())) == 2:
            self.operator(c, *c.get_arguments())
        elif k == K.IF_STMT and children and children[0].kind not in (K.DECL_STMT, K.VAR_DECL):
            e = children[0].extent
            for after in ("true", "false"):
                self.add(
                    c,
                    "condition",
                    e.start.offset,
                    e.end.offset,
                    after,
                    lambda n, a, b=after: f"(tessera::mutants::live({n}) ? {b} : static_cast<bool>({a}))",
                )
        elif k == K.COMPOUND_STMT:
            for s in children:
                self.statement(s)
        elif k == K.RETURN_STMT and children and children[0].type.kind == TypeKind.BOOL:
            e = children[0].extent
            code = self.code(e)
            if code not in ("true", "false"):
                self.add(
                    c,
                    "return",
                    e.start.offset,
                    e.end.offset,
                    f"!({code})",
                    lambda n, a: f"(tessera::mutants::live({n}) ? !({a}) : ({a}))",
                )
            else:
                other = "false" if code == "true" else "true"
                self.add(
                    c,
                    "return",
                    e.start.offset,
                    e.end.offset,
                    other,
                    lambda n, a, o=other: f"(tessera::mutants::live({n}) ? {o} : {a})",
                )
        elif k == K.INTEGER_LITERAL:
            e = c.extent
            code = self.code(e)
            if code in ("0", "1", "2", "4", "8", "31", "32", "63", "64"):
                self.add(
                    c,
                    "number",
                    e.start.offset,
                    e.end.offset,
                    str(int(code) + 1),
                    lambda n, a: f"(tessera::mutants::live({n}) ? {int(a) + 1} : {a})",
                )

    def operator(self, c, left, right):
        begin, end = left.extent.end.offset, right.extent.start.offset
        if (
            not 0 < begin < end
            or left.extent.start.offset != c.extent.start.offset
            or right.extent.end.offset != c.extent.end.offset
        ):
            return
        op = self.text[begin:end].decode().strip()
        if op not in OTHER:
            return
        a, b = self.code(left.extent), self.code(right.extent)
        if '"' in a or '"' in b or "to_string" in a + b or ".begin()" in a + b or ".end()" in a + b:
            return
        if op in ("&&", "||"):
            for kept in (a, b):
                self.add(
                    c,
                    "condition",
                    c.extent.start.offset,
                    c.extent.end.offset,
                    kept,
                    lambda n, x, kept=kept: (
                        f"(tessera::mutants::live({n}) ? static_cast<bool>({kept}) : static_cast<bool>({x}))"
                    ),
                )
            return
        other = OTHER[op]
        kind = "comparison" if op in ("<", "<=", ">", ">=", "==", "!=") else "arithmetic"
        self.add(
            c,
            kind,
            c.extent.start.offset,
            c.extent.end.offset,
            f"{a} {other} {b}",
            lambda n, x, a=a, b=b, o=other: f"(tessera::mutants::live({n}) ? ({a} {o} {b}) : ({x}))",
        )

    def statement(self, s):
        inner = s
        while inner.kind == K.UNEXPOSED_EXPR and len(list(inner.get_children())) == 1:
            inner = next(inner.get_children())
        if inner.kind not in ASSIGNS:
            return
        e = s.extent
        if ".reserve(" in self.code(e):  # room alone
            return
        if inner.kind == K.BINARY_OPERATOR and not re.search(r"[^=!<>]=[^=]", self.code(e)):
            return
        self.add(
            s,
            "statement",
            e.start.offset,
            e.end.offset,
            "dropped",
            lambda n, a: f"if (!tessera::mutants::live({n})) {a}",
        )


def find(root, flags, only):
    index = cindex.Index.create()
    sites = []
    files = sorted(
        [f for folder in FOLDERS for f in (root / folder).rglob("*.cpp") if not NOT.search(str(f))]
        + [root / f for f in ALONE]
    )
    if only:
        files = [f for f in files if any((root / part) in [f, *f.parents] for part in only)]
        if not files:
            sys.exit("plant.py: no file to plant faults in lies in " + ", ".join(only))
    for f in files:
        unit = index.parse(str(f), args=flags)
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            sys.exit(f"plant.py: {f}: {errors[0]}")
        sites += Finder(f, f.read_bytes(), unit).sites
    return sites


def known_survivors(root, sites):
    """The places of survivors.tsv that the sources still have; a file's folder may have changed."""
    wanted = set()
    for line in (root / "tests/mutants/survivors.tsv").read_text().split("\n"):
        if line and not line.startswith("#"):
            file, *rest = line.split("\t")[:5]
            wanted.add((pathlib.Path(file).name, *rest))
    names = {key[0] for key in wanted}
    lines = {f: f.read_text().split("\n") for f in {s.file for s in sites} if f.name in names}
    found = {}
    for s in sites:
        key = (s.file.name, s.kind, s.before, s.after, lines[s.file][s.line - 1].strip()) if s.file in lines else None
        if key in wanted and not any(s.file == o.file and s.begin < o.end and o.begin < s.end for o in found.values()):
            found.setdefault(key, s)
    for gone in sorted(wanted - set(found)):
        print("not planted: " + ": ".join(gone))
    return list(found.values())


def choose(sites, count, seed, known=()):
    """Sites, none inside another or in one that is known, one number each: the files take turns by how many sites they
    have."""
    order = random.Random(seed)
    order.shuffle(sites)
    # Kinds are taken in turn, so that many conditions do not crowd out few dropped statements.
    by_kind = collections.defaultdict(list)
    for s in sites:
        by_kind[s.kind].append(s)
    taken = collections.defaultdict(list)
    for s in known:
        taken[s.file].append((s.begin, s.end))
    chosen = []
    while len(chosen) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            while by_kind[kind]:
                s = by_kind[kind].pop()
                if all(s.end <= b or e <= s.begin for b, e in taken[s.file]):
                    taken[s.file].append((s.begin, s.end))
                    chosen.append(s)
                    break
    return sorted(chosen[:count], key=lambda s: (str(s.file), s.begin))


def write(root, tree, numbered):
    """Copies the repository's files, planted, and leaves what has not changed untouched, so that little is compiled
    again."""
    by_file = collections.defaultdict(list)
    for n, s in numbered:
        by_file[s.file].append((n, s))
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    listed = {name for name in git.stdout.split("\n") if (root / name).is_file()}
    for folder in {name.split("/")[0] for name in listed if "/" in name}:  # CMake would build what is gone
        for old in (tree / folder).rglob("*"):
            if old.is_file() and str(old.relative_to(tree)) not in listed:
                old.unlink()
    for name in sorted(listed):
        source, to = root / name, tree / name
        text = source.read_bytes()
        if source in by_file:
            for n, s in sorted(by_file[source], key=lambda x: -x[1].begin):
                text = text[: s.begin] + s.make(n, text[s.begin : s.end].decode()).encode() + text[s.end :]
            text = f'#include "tests/mutants/mutant.h"\n#line 1 "{name}"\n'.encode() + text
        if name == "CMakeLists.txt":  # a fault may be what a warning is about
            text += "\n".join(
                [
                    "set_source_files_properties(",
                    *sorted(str(f.relative_to(root)) for f in by_file),
                    "PROPERTIES COMPILE_OPTIONS -Wno-error)\n",
                ]
            ).encode()
        if to.exists() and to.read_bytes() == text:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(text)
        to.chmod(source.stat().st_mode)


def refused(tree, root, numbered, flags, right):
    """The numbers of the faults that do not compile; right holds those that did, by file."""
    bad = set()
    for f in sorted({s.file for _, s in numbered}):
        name = f.relative_to(root)
        here = {(s.begin, s.end, s.after) for _, s in numbered if s.file == f}
        if here <= right[f]:
            continue
        run = subprocess.run(
            ["g++", *flags, "-w", "-fsyntax-only", "-fmax-errors=0", name], cwd=tree, capture_output=True, text=True
        )
        if run.returncode == 0:
            right[f] |= here
            continue
        lines = {int(m[1]) for m in re.finditer(rf"^{re.escape(str(name))}:(\d+):\d+: error", run.stderr, re.M)}
        here = {n for n, s in numbered if s.file == f and s.line in lines} or {n for n, s in numbered if s.file == f}
        bad |= here
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("root", type=pathlib.Path)
    p.add_argument("tree", type=pathlib.Path)
    p.add_argument("--count", type=int, default=260)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--in", action="append", default=[], dest="only", help="a folder or file: only there")
    p.add_argument("--survivors", action="store_true", help="those of survivors.tsv too")
    p.add_argument("--include", action="append", default=[], help="a folder of generated headers")
    p.add_argument(
        "--headers", default="", help="Clang's own (clang -print-resource-dir), for a libclang that has none"
    )
    a = p.parse_args()
    root = a.root.resolve()
    flags = ["-std=c++20", "-DTESSERA_SPIRV_TOOLS", *(f"-I{i}" for i in a.include)]
    sites = find(root, ["-x", "c++", f"-I{root}", *(["-resource-dir", a.headers] if a.headers else []), *flags], a.only)
    known = known_survivors(root, sites) if a.survivors else []
    spare = choose(sites, a.count * 2, a.seed, known)
    order = random.Random(a.seed + 1)
    order.shuffle(spare)
    chosen = spare[: a.count] + known
    spare = spare[a.count :]
    right = collections.defaultdict(set)
    while True:
        numbered = list(enumerate(sorted(chosen, key=lambda s: (str(s.file), s.begin)), 1))
        write(root, a.tree, numbered)
        bad = refused(a.tree, root, numbered, ["-I.", *flags], right)
        if not bad:
            break
        chosen = [s for n, s in numbered if n not in bad]
        known = [s for s in known if s in chosen]
        while spare and len(chosen) < a.count + len(known):
            chosen.append(spare.pop())
    with open(a.tree / "mutants.tsv", "w") as out:
        for n, s in numbered:
            out.write(
                "\t".join(
                    [
                        str(n),
                        str(s.file.relative_to(root)),
                        str(s.line),
                        s.kind,
                        s.before,
                        s.after,
                        s.file.read_text().split("\n")[s.line - 1].strip(),
                        "known" if s in known else "drawn",
                    ]
                )
                + "\n"
            )
    print(f"{len(numbered)} faults of {len(sites)} places in {len({s.file for _, s in numbered})} files")


main()
