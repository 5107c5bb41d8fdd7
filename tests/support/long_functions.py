"""Functions of more than 80 lines, as `file:line lines`: tables and switches over ops may be longer. The files come on stdin."""
import re
import sys

LIMIT = 80
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])+\'|^ *#(?:[^\n\\]|\\.)*', re.S | re.M)
NO_FUNCTION = re.compile(r'^(extern *$|(inline )?namespace|(template *<.*> *)?(struct|class|union|enum)\b[^()]*$)', re.S)
# Long by their nature: a row or a case per op.
TABLE = re.compile(r"std::vector<Row> rows\{|\bswitch \(\w+\.code\)|\bcase (\w+::)*(Opcode|Code|Prim)::")


def functions(text):
    """(first line, last line, text) of each outermost block that is no namespace, class or the like."""
    bare = TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    depth_of_function, start, head = None, 0, 0
    open_blocks = 0
    for m in re.finditer(r"[{};]", bare):
        at = m.start()
        if m[0] == "{":
            statement = bare[head:at].strip()
            if depth_of_function is None and not NO_FUNCTION.search(statement):
                depth_of_function, start = open_blocks, head + len(bare[head:at]) - len(bare[head:at].lstrip())
            open_blocks += 1
        elif m[0] == "}":
            open_blocks -= 1
            if depth_of_function == open_blocks:
                depth_of_function = None
                yield bare.count("\n", 0, start) + 1, bare.count("\n", 0, at) + 1, text[start:at]
        head = at + 1


for name in sys.stdin.read().split():
    if not re.match(r"(engine|codegen|runtime|samples)/.*\.(h|cpp)$", name):
        continue
    for first, last, body in functions(open(name).read()):
        if last - first + 1 > LIMIT and not TABLE.search(body):
            print(f"{name}:{first} {last - first + 1}")
