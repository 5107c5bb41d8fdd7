"""Generated code does not depend on the C++ compiler: no two arguments of one call, and no two operands of one
operator, both make ops or instructions.

C++ leaves their order open: g++ goes from the right, clang from the left. Prints each call that does, with its line;
the remedy is to name one of them first. Not meant: braces, which go from the left, and operators whose order C++17
fixes. Makers are functions that return Values, V or Ids, and reads of a Ref's place. A folder's sources are read
together, as one file that includes them. usage: one_order.py RESOURCE_DIR, of clang; from the root.
"""

import glob
import os
import sys

from clang import cindex
from clang.cindex import CursorKind as K

FOLDERS = [
    "engine/passes",
    "engine/front",
    "engine/call",
    "engine/jax",
    "codegen/tile",
    "codegen/plan",
    "codegen/lower",
    "codegen/lane",
    "codegen/spirv",
    "codegen/spirv/builder",
    "codegen/expand",
    "codegen/nvidia",
    "codegen/tpu",
]
SOURCES = [folder + "/*.cpp" for folder in FOLDERS] + ["runtime/call/gate.cpp"]
MADE = ("tessera::Value", "tessera::ir::Value", "tessera::expand::V", "tessera::ir::OpId", "tessera::tpu::Val")
# the object or the left side first, or the right
ORDERED = {"operator=", "operator<<", "operator>>", "operator[]", "operator()", "operator->"}
SEQUENCED = {"=", "&&", "||", ",", "<<", ">>"}


def by_value(t):
    spelling = t.get_canonical().spelling
    return (
        "&" not in spelling
        and "*" not in spelling
        and (t.spelling.endswith("Id") or any(made in spelling for made in MADE))
    )


def is_maker(call):
    if call.kind != K.CALL_EXPR:
        return False
    callee = call.referenced
    if callee is None:
        return by_value(call.type)
    if callee.kind == K.CONVERSION_FUNCTION:
        return callee.semantic_parent.spelling == "RefItem"
    if callee.kind == K.CONSTRUCTOR:
        return any(a is not None and "RefItem" in a.type.spelling for a in call.get_arguments())
    if callee.kind == K.FUNCTION_TEMPLATE:
        return True
    return callee.kind != K.VAR_DECL and by_value(callee.result_type)


def makes(cursor):
    """Whether evaluating it makes anything; a lambda is only made, not called."""
    return cursor.kind != K.LAMBDA_EXPR and (is_maker(cursor) or any(makes(c) for c in cursor.get_children()))


def unordered(cursor):
    """The parts of a call or an operator that C++ evaluates in any order."""
    if cursor.kind == K.CALL_EXPR:
        callee = cursor.referenced
        if callee is not None and callee.kind == K.CONSTRUCTOR:
            tokens = [t.spelling for t in cursor.get_tokens()]
            if tokens and tokens[-1] == "}":
                return []
        arguments = [a for a in cursor.get_arguments() if a is not None]
        # the arguments of a call through an object are still in any order
        if callee is not None and callee.spelling in ORDERED:
            return arguments[1:] if callee.spelling == "operator()" else []
        return arguments
    if cursor.kind == K.BINARY_OPERATOR:
        left, right = cursor.get_children()
        between = [
            t.spelling
            for t in cursor.get_tokens()
            if left.extent.end.offset <= t.extent.start.offset < right.extent.start.offset
        ]
        return [] if between and between[0] in SEQUENCED else [left, right]
    return []


found = {}


def walk(cursor, folder):
    if sum(map(makes, unordered(cursor))) > 1:
        start = cursor.extent.start
        if start.file is not None:
            found[os.path.normpath(start.file.name), start.line, start.column] = " ".join(
                t.spelling for t in cursor.get_tokens()
            )[:160]
    for child in cursor.get_children():
        file = child.location.file
        if file is None or child.kind == K.NAMESPACE or os.path.normpath(file.name).startswith(folder + "/"):
            walk(child, folder)


flags = ["-x", "c++", "-std=c++20", "-I.", "-isystem", sys.argv[1] + "/include"]
for pattern in SOURCES:
    folder, sources = os.path.dirname(pattern), sorted(glob.glob(pattern))
    if not sources:
        print(f"there is no {pattern}")
    text = "".join(f'#include "{s}"\n' for s in sources)
    unit = cindex.Index.create().parse("one_order.cpp", args=flags, unsaved_files=[("one_order.cpp", text)])
    for problem in unit.diagnostics:
        if problem.severity >= cindex.Diagnostic.Error:
            print(f"{folder} does not compile: {problem}")
    walk(unit.cursor, folder)
for (file, line, _), text in sorted(found.items()):
    print(f"{file}:{line}: {text}")
