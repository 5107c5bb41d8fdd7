"""Functions of more than 80 lines, as `file:line name lines`, but for test cases, and the tables and switches over ops
below. The files come on stdin."""

import re
import sys

LIMIT = 80
# Long because they have a row or a case per op, instruction or kernel.
ALLOWED = {
    ("engine/ir/infer.cpp", "Inference::structured"),
    ("engine/jax/primitives.cpp", "value_rows"),
    ("engine/passes/identities.cpp", "Folder::integers"),
    ("codegen/lane/interpreter.cpp", "advance"),
    ("codegen/nvidia/function.cpp", "Function::apply"),
    ("codegen/spirv/builder/function.cpp", "Function::apply"),
    ("tests/support/generator/elementwise.cpp", "Values::predict"),
    ("tests/parser/mutate.cpp", "words"),
    ("tests/ptx/ops_integer.cpp", "add_integer_ops"),
    ("tests/support/judge/decoder.h", "declaration"),
    ("tests/support/judge/machine.cpp", "Machine::advance"),
    ("tests/support/judge/module.cpp", "Decoder::emit"),
    ("tests/unit/codegen/schedules_test.cpp", "const Form kForms[] ="),
    ("tests/unit/engine/front/ref_test.cpp", "kernels"),
}
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^ *#(?:[^\n\\]|\\.)*',
    re.S | re.M,
)
NO_FUNCTION = re.compile(
    r"^(extern *$|(inline )?namespace|(template *<.*> *)?(struct|class|union|enum)\b[^()]*$)", re.S
)
NAME = re.compile(r"([\w:~]+|operator *\S+?) *\(")


def functions(text):
    """(first line, last line, name) of each outermost block that is no namespace, class or the like."""
    bare = TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    depth_of_function, start, head = None, 0, 0
    open_blocks = 0
    name = ""
    for m in re.finditer(r"[{};]", bare):
        at = m.start()
        if m[0] == "{":
            statement = bare[head:at].strip()
            if depth_of_function is None and not NO_FUNCTION.search(statement):
                depth_of_function, start = open_blocks, head + len(bare[head:at]) - len(bare[head:at].lstrip())
                found = NAME.search(statement)
                name = found[1] if found else statement
            open_blocks += 1
        elif m[0] == "}":
            open_blocks -= 1
            if depth_of_function == open_blocks:
                depth_of_function = None
                yield bare.count("\n", 0, start) + 1, bare.count("\n", 0, at) + 1, name
        head = at + 1


def main():
    unused = set(ALLOWED)
    for path in sys.stdin.read().split():
        if not re.match(r"(engine|codegen|runtime|samples|tests)/.*\.(h|cpp)$", path):
            continue
        with open(path, encoding="utf-8") as source:
            text = source.read()
        for first, last, name in functions(text):
            lines = last - first + 1
            if lines <= LIMIT or name == "TEST_CASE":
                continue
            if (path, name) in ALLOWED:
                unused.discard((path, name))
            else:
                print(f"{path}:{first} {name} {lines}")
    for path, name in sorted(unused):
        print(f"{path}: {name} may be longer than {LIMIT} lines, but no such function is")


if __name__ == "__main__":
    main()
