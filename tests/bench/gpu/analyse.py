"""What the machine code of one pipeline does: its instructions by kind, and those of its innermost loop.

Input: the JSON of bench_gpu (ask.cpp). A parser for each kind of disassembly makes a list of Instr; the rest is the
same for all: basic blocks, dominators, natural loops, counts. No parser here knows more of an instruction set than the
mnemonics that decide a kind, a width and where a branch goes; what none of them names is "rest".
"""

import dataclasses
import re

# Kinds of instructions, in the order in which tables show them. "wait" is what only lets time pass or steers the
# instruction fetch (s_waitcnt, nop): it is in no count of instructions.
# fmt: off
KINDS = [
    "matrix", "fma", "float", "int", "shared_load", "shared_store", "global_load", "global_store", "atomic", "scratch",
    "uniform", "lanes", "barrier", "branch", "rest", "wait",
]
# fmt: on


@dataclasses.dataclass
class Instr:
    kind: str
    bits: int = 0  # of memory accesses: what one invocation moves
    # multiply-adds of an invocation; of a matrix instruction those of the whole subgroup, see per_wave
    macs: float = 0
    per_wave: bool = False
    products: int = 0  # of integers, in a multiplication that may be an address's
    slots: int = 1  # issue slots: more where one line repeats
    target: object = None  # of branches: a label
    falls: bool = True  # whether what follows can be next
    text: str = ""


@dataclasses.dataclass
class Label:
    name: object


# ---- AMD: ACO's assembly by LLVM's disassembler, GCN 5 to RDNA 4


def aco_memory(op):
    """The access of a memory instruction as (kind, bits), or None. buffer_* is scratch: arrays are reached by
    addresses."""
    m = re.match(r"(global|flat|ds|scratch|buffer)_(load|store|read|write|atomic)(.*)", op)
    if not m:
        m = re.match(r"ds_(add|sub|min|max|and|or|xor|cmpst|cmpstore|inc|dec|wrxchg|storexchg)", op)
        return ("atomic", 32) if m else None
    space, what, rest = m.groups()
    if what == "atomic":
        return "atomic", 32
    bits = 32
    if w := re.search(r"dwordx(\d)", rest):
        bits = 32 * int(w.group(1))
    elif re.search(r"byte|_[iu]8|_d16_(hi_)?[iu]8|_b8", rest):
        bits = 8
    elif re.search(r"short|_[iub]16|d16", rest):
        bits = 16
    elif w := re.search(r"_b(\d+)", rest):
        bits = int(w.group(1))
    if re.match(r"2addr|2st64|2_|_2addr|2", rest):
        bits *= 2
    kind = {"global": "global", "flat": "global", "ds": "shared"}.get(space)
    if kind is None:
        return "scratch", bits
    return kind + ("_load" if what in ("load", "read") else "_store"), bits


def aco_vector(op):
    """A vector ALU instruction as (kind, multiply-adds, of the whole subgroup)."""
    if re.match(r"v_(wmma|swmmac|mfma|smfmac)", op):
        m = re.search(r"_(\d+)x(\d+)x(\d+)", op)
        return "matrix", float(m.group(1)) * float(m.group(2)) * float(m.group(3)), True
    if m := re.match(r"v_(?:dual_)?dot(\d+)", op):
        return "fma", float(m.group(1)), False
    if re.match(r"v_pk_(fma|fmac|mad)_(f|bf)16", op):
        return "fma", 2, False
    if re.match(
        r"v_(dual_)?(fma|fmac|fmamk|fmaak|mac|mad|madmk|madak|fma_mix|mad_mix)(_|lo_|hi_)?(legacy_)?(f|bf)\d+", op
    ) or re.match(r"v_(fma|mad)_mix", op):
        return "fma", 1, False
    if re.match(r"v_(readlane|writelane|readfirstlane|permlane|mov_b32_dpp|mov_b32_e32_dpp)", op):
        return "lanes", 0, False
    if re.match(r"v_(dual_)?(mov|cndmask|accvgpr|swap|nop|movrel)", op):
        return ("wait" if op == "v_nop" else "rest"), 0, False
    return ("float" if re.search(r"_(f|bf)(8|16|32|64)", op) else "int"), 0, False


def aco_scalar(op, operands):
    if re.match(
        r"s_(waitcnt|wait_|nop|delay_alu|clause|set_inst_prefetch|inst_prefetch|sendmsg|code_end|sleep|setprio"
        r"|round_mode|denorm_mode)",
        op,
    ):
        return "wait"
    if op.startswith("s_barrier"):
        return "barrier"
    if re.match(r"s_(load|buffer_load)", op):
        return "uniform"
    if "saveexec" in op or re.search(r"\bexec", operands):
        return "branch"
    if re.match(r"s_(mov|cselect|cmov)", op):
        return "rest"
    return "float" if re.search(r"_f(16|32)$", op) else "int"


def parse_aco(text):
    out = []
    for line in text.split("\n"):
        line = line.split(";")[0].strip()
        if m := re.match(r"(BB\d+):", line):
            out.append(Label(m.group(1)))
            continue
        op, _, operands = line.partition(" ")
        if not re.match(r"(s|v|ds|global|flat|scratch|buffer)_", op):
            continue
        if re.match(r"s_(c?branch|endpgm|setpc)", op):
            target = operands.split()[0] if "branch" in op else None
            out.append(Instr("branch", target=target, falls=op.startswith("s_cbranch"), text=line))
        elif op.startswith("s_"):
            out.append(Instr(aco_scalar(op, operands), text=line))
        elif "::" in line:  # two in one slot
            parts = [aco_vector(p.strip().split(" ")[0]) for p in line.split("::")]
            kinds = [p[0] for p in parts]
            kind = next(k for k in ("fma", "float", "int", "rest", "lanes", "wait") if k in kinds)
            out.append(Instr(kind, macs=sum(p[1] for p in parts), text=line))
        elif memory := aco_memory(op):
            out.append(Instr(memory[0], bits=memory[1], text=line))
        elif op.startswith("v_"):
            kind, macs, per_wave = aco_vector(op)
            if "_dpp" in op and "mov" in op:
                kind = "lanes"
            products = 2 if re.match(r"v_pk_m(ul|ad)", op) else 1 if re.match(r"v_m(ul|ad)_", op) else 0
            out.append(Instr(kind, macs=macs, per_wave=per_wave, products=products if kind == "int" else 0, text=line))
        else:  # ds_bpermute, ds_swizzle and their like
            out.append(Instr("lanes" if re.match(r"ds_(b?permute|swizzle)", op) else "rest", text=line))
    return out


# ---- NVIDIA: NAK's own assembly


def nak_kind(op):
    """A mnemonic as (kind, bits, multiply-adds, of the whole subgroup)."""
    base = op.split(".")[0]
    if base in ("hmma", "imma", "qgmma"):
        m = re.search(r"\.(?:m(\d+)n(\d+)k(\d+)|(\d+))", op)
        n = 0.0
        if m and m.group(1):
            n = float(m.group(1)) * float(m.group(2)) * float(m.group(3))
        elif m:
            digits = m.group(4)  # 16816: 16 x 8 x 16; 1688: 16 x 8 x 8; 8816: 8 x 8 x 16; 16832: 16 x 8 x 32
            rows = 16 if digits.startswith("16") else 8
            n = rows * 8.0 * float(digits[len(str(rows)) + 1 :])
        return "matrix", 0, n, True
    if m := re.match(r"(ldsm|ld|st|atom|red|atoms|atomg|ldl|stl|lds|sts|ldg|stg)\b", op):
        w = re.search(r"\.[bsuf](\d+)", op)
        bits = int(w.group(1)) if w else 32
        if m.group(1) in ("atom", "red", "atoms", "atomg"):
            return "atomic", bits, 0, False
        what = "load" if m.group(1).startswith("ld") else "store"
        if ".local" in op:
            return "scratch", bits, 0, False
        if m.group(1) == "ldsm":
            return (
                "shared_load",
                32 * int((re.search(r"\.x(\d)", op) or re.match("()(1)?", "")).group(1) or 1),
                0,
                False,
            )
        return ("shared_" if ".shared" in op else "global_") + what, bits, 0, False
    if base in ("ffma", "dfma"):
        return "fma", 0, 1, False
    if base in ("hfma2",):
        return "fma", 0, 2, False
    if base in ("idp", "idp4", "dp4a"):
        return "fma", 0, 4, False
    if re.match(
        r"(f|d)(add|mul|mnmx|set|setp|swzadd)$|h(add|mul|mnmx|set|setp)2$|mufu$|rro$|(f2f|f2i|i2f|f2fp|frnd)$", base
    ):
        return "float", 0, 0, False
    if base in ("ldc", "uldc"):
        return "uniform", 0, 0, False
    if base in ("shfl", "vote", "redux", "match", "r2ur"):
        return "lanes", 0, 0, False
    if base in ("bar", "membar"):
        return "barrier", 0, 0, False
    if base in ("bra", "exit", "bssy", "bsync", "bclear", "break", "warpsync", "brk", "sync", "ssy", "jmp"):
        return "branch", 0, 0, False
    if base in ("nop", "depbar", "cctl", "ccctl"):
        return "wait", 0, 0, False
    if re.match(
        r"u?(iadd\d?|imad|imul|iabs|imnmx|isetp|iset|lop\d?|lea|shf|shl|shr|prmt|popc|flo|bfe|bfi|bmsk|brev|isad|sgxt"
        r"|plop3|psetp)$",
        base,
    ):
        return "int", 0, 0, False
    return "rest", 0, 0, False


def parse_nak(text):
    out = []
    for line in text.split("\n"):
        line = line.split("//")[0].strip()
        if m := re.match(r"block(?:\.u)? \d+ (L\d+) ", line):
            out.append(Label(m.group(1)))
            continue
        if not line or line.startswith("}"):
            continue
        guard = re.match(r"@!?u?p\w+ +", line)
        rest = line[guard.end() :] if guard else line
        if m := re.match(r"[^=\[\]]*= ", rest):  # the registers that it writes
            rest = rest[m.end() :]
        op = rest.split(" ")[0]
        kind, bits, macs, per_wave = nak_kind(op)
        instr = Instr(
            kind, bits=bits, macs=macs, per_wave=per_wave, products=int(op.split(".")[0] in ("imad", "imul")), text=line
        )
        if op == "bra":
            m = re.match(r"bra (\S+) (L\d+)", rest)
            instr.target = m.group(2) if m else rest.split()[-1]
            instr.falls = guard is not None or (m is not None and m.group(1) != "pT")
        elif op == "exit":
            instr.falls = guard is not None
        out.append(instr)
    return out


# ---- Apple: what AGX_MESA_DEBUG=shaders prints, an address and the bytes before each instruction


def agx_width(operands):
    """Bits of `i32, xyzw` among the operands of a load or store."""
    element = re.search(r"\b[iuf](8|16|32)\b", operands)
    mask = re.search(r", ([xyzw]+)\b", operands)
    return (int(element.group(1)) if element else 32) * (len(mask.group(1)) if mask else 1)


def agx_kind(op, operands):
    """As (kind, bits, multiply-adds)."""
    if op in ("lload", "local_load"):
        return "shared_load", agx_width(operands), 0
    if op in ("lstore", "local_store"):
        return "shared_store", agx_width(operands), 0
    if op in ("load", "device_load"):
        return "global_load", agx_width(operands), 0
    if op in ("store", "device_store"):
        return "global_store", agx_width(operands), 0
    if op in ("stack_load", "stack_store", "stack_map"):
        return "scratch", agx_width(operands), 0
    if "atomic" in op:
        return "atomic", 32, 0
    if op in ("ffma", "hfma"):
        return "fma", 0, 1
    if re.match(
        r"(f|h)(add|mul|cmp|min|max|sel)|(exp2|log2|rcp|rsqrt|sqrt|sin|cos|floor|ceil|trunc|rint|roundeven"
        r"|convert|pack|unpack)",
        op,
    ) or (re.match(r"f?csel|cmpsel", op) and re.search(r", f\w+$", operands)):
        return "float", 0, 0
    if "barrier" in op:
        return "barrier", 0, 0
    if op in (
        "if",
        "else",
        "while",
        "pop_exec",
        "push_exec",
        "break",
        "break_if",
        "jmp_any",
        "jmp_none",
        "jmp",
        "stop",
        "if_icmp",
        "while_icmp",
    ):
        return "branch", 0, 0
    if re.match(r"wait|nop|signal|no_varyings|trap", op):
        return "wait", 0, 0
    if re.match(r"simd|shuffle|ballot|quad", op):
        return "lanes", 0, 0
    if re.match(r"mov|ldimm|get_sr|uniform|select", op):
        return "rest", 0, 0
    return "int", 0, 0


def parse_agx(text):
    """The first program of the text: what runs once before all invocations (its preamble) is printed after it."""
    rows, targets = [], set()
    for line in text.split("\n"):
        m = re.match(r" *([0-9a-f]+): ([0-9a-f]{4,}) +(\S+) *(.*)", line)
        if not m:
            continue
        address, op, operands = int(m.group(1), 16), m.group(3), m.group(4).strip()
        if rows and address == 0:
            break
        kind, bits, macs = agx_kind(op, operands)
        instr = Instr(
            kind, bits=bits, macs=macs, products=int(op in ("imadd", "imad", "imul", "imsub")), text=op + " " + operands
        )
        if op.startswith("jmp"):
            instr.target = address + int(operands)
            targets.add(instr.target)
            instr.falls = op != "jmp"
        elif op == "stop":
            instr.falls = False
        rows.append((address, instr))
    out = []
    for address, instr in rows:
        if address in targets:
            out.append(Label(address))
        out.append(instr)
    return out


# ---- Qualcomm: ir3's assembly


def ir3_kind(op):
    """As (kind, bits of an element, multiply-adds)."""
    base, _, rest = op.partition(".")
    element = re.search(r"[usf](8|16|32|64)", rest)
    bits = int(element.group(1)) if element else 32
    if base == "mad" or op.startswith("madsh"):
        return ("fma", 0, 1) if rest.startswith("f") else ("int", 0, 0)
    if re.match(r"dp[24]acc", base):
        return "fma", 0, int(base[2])
    if base in ("ldl", "ldlw", "ldlv"):
        return "shared_load", bits, 0
    if base in ("stl", "stlw"):
        return "shared_store", bits, 0
    if base == "ldg" or op.startswith("ldib") or op.startswith("isam"):
        return "global_load", bits, 0
    if base == "stg" or op.startswith("stib"):
        return "global_store", bits, 0
    if base in ("ldp", "stp"):
        return "scratch", bits, 0
    if base == "atomic":
        return "atomic", bits, 0
    if base in ("ldc", "stc", "stsc"):
        return "uniform", 0, 0
    if base == "bar" or base == "fence":
        return "barrier", 0, 0
    if base in (
        "br",
        "brao",
        "braa",
        "jump",
        "getone",
        "getlast",
        "shps",
        "shpe",
        "end",
        "ret",
        "call",
        "predt",
        "predf",
        "prede",
        "kill",
        "chsh",
        "chmask",
    ):
        return "branch", 0, 0
    if base == "nop":
        return "wait", 0, 0
    if re.match(r"(shfl|brcst|quad_shuffle|movs|ballot|any|all|macc|scan|getfiberid)", base):
        return "lanes", 0, 0
    if base in ("mov", "cov", "sel", "swz", "gat", "sct", "mova", "movmsk"):
        return "rest", 0, 0
    if (
        base in ("add", "mul", "max", "min", "cmps", "sign", "absneg", "floor", "ceil", "rndne", "rndaz", "trunc")
        and rest.startswith("f")
        or base in ("rcp", "rsq", "hrsq", "log2", "hlog2", "exp2", "hexp2", "sin", "cos", "sqrt")
    ):
        return "float", 0, 0
    return "int", 0, 0


def parse_ir3(text):
    out = []
    for line in text.split("\n"):
        line = line.strip()
        if m := re.match(r"(l\d+):", line):
            out.append(Label(m.group(1)))
            continue
        if not line or line[0] in ";@" or line.startswith("Native"):
            continue
        flags = re.match(r"(\([^)]*\) *)*", line).group(0)
        rest = line[len(flags) :]
        if not re.match(r"[a-z]", rest):
            continue
        op, _, operands = rest.partition(" ")
        repeat = re.search(r"\(rpt(\d)\)", flags)
        nops = re.search(r"\(nop(\d)\)", flags)
        slots = 1 + (int(repeat.group(1)) if repeat else 0)
        kind, bits, macs = ir3_kind(op)
        if kind in ("shared_load", "shared_store", "global_load", "global_store", "scratch"):
            count = re.search(r", (\d+)$", operands)
            bits *= int(count.group(1)) if count else 1
        products = slots if kind == "int" and re.match(r"(mad|mul)\.[su]", op) or op.startswith("mull") else 0
        instr = Instr(kind, bits=bits, macs=macs * slots, products=products, slots=slots, text=line)
        if m := re.search(r"#(l\d+)", operands):
            instr.target = m.group(1)
            instr.falls = op != "jump"
        elif op == "end":
            instr.falls = False
        out.append(instr)
        if nops:
            out.append(Instr("wait", slots=int(nops.group(1)), text="nop"))
    return out


# ---- loops


@dataclasses.dataclass
class Loop:
    header: int
    blocks: set
    depth: int = 0


def basic_blocks(program):
    """(blocks as lists of Instr, successors by number)."""
    blocks, names, current = [[]], {}, 0
    ended = False
    for item in program:
        if isinstance(item, Label) or ended:
            if blocks[-1] or isinstance(item, Label):
                if blocks[-1]:
                    blocks.append([])
            ended = False
        if isinstance(item, Label):
            names[item.name] = len(blocks) - 1
        else:
            blocks[-1].append(item)
            ended = item.target is not None or not item.falls
    successors = []
    for i, block in enumerate(blocks):
        next_ones = set()
        last = block[-1] if block else None
        if last is not None and last.target is not None and last.target in names:
            next_ones.add(names[last.target])
        if (last is None or last.falls) and i + 1 < len(blocks):
            next_ones.add(i + 1)
        successors.append(next_ones)
    return blocks, successors


def dominators(successors):
    n = len(successors)
    predecessors = [set() for _ in range(n)]
    for i, s in enumerate(successors):
        for j in s:
            predecessors[j].add(i)
    reached, stack = {0}, [0]
    while stack:
        for j in successors[stack.pop()]:
            if j not in reached:
                reached.add(j)
                stack.append(j)
    dominated_by = {i: set(reached) for i in reached}
    dominated_by[0] = {0}
    changed = True
    while changed:
        changed = False
        for i in sorted(reached - {0}):
            new = set.intersection(*(dominated_by[p] for p in predecessors[i] if p in reached)) | {i}
            if new != dominated_by[i]:
                dominated_by[i], changed = new, True
    return dominated_by, predecessors


def loops_of(successors):
    """Natural loops, those of one header as one, each with its depth."""
    dominated_by, predecessors = dominators(successors)
    loops = {}
    for i, s in enumerate(successors):
        for h in s:
            if i not in dominated_by or h not in dominated_by[i]:
                continue
            body, stack = {h, i}, [i]
            while stack:
                b = stack.pop()
                if b == h:
                    continue
                for p in predecessors[b]:
                    if p in dominated_by and p not in body:
                        body.add(p)
                        stack.append(p)
            loops.setdefault(h, Loop(h, set())).blocks |= body
    all_loops = list(loops.values())
    for a in all_loops:
        a.depth = sum(1 for b in all_loops if a.blocks <= b.blocks)
    return all_loops


def count(instrs, lanes):
    """A summary of some instructions, for subgroups of so many invocations. "macs" are an invocation's
    multiply-adds."""
    kinds = {k: 0 for k in KINDS}
    widths = {k: {} for k in ("shared_load", "shared_store", "global_load", "global_store")}
    macs, products, roots = 0.0, 0, 0
    for i in instrs:
        kinds[i.kind] += i.slots
        products += i.products
        roots += i.slots if i.kind == "float" and "rsq" in i.text else 0
        macs += i.macs / (lanes if i.per_wave else 1)
        if i.kind in widths:
            widths[i.kind][str(i.bits)] = widths[i.kind].get(str(i.bits), 0) + i.slots
    total = sum(n for k, n in kinds.items() if k != "wait")
    if macs == 0 and products * 8 >= total:  # too many to be addresses': a product of integers
        macs = float(products)
    bytes_by_width = {}
    for k in ("global_load", "global_store"):
        for b, n in widths[k].items():
            bytes_by_width[int(b)] = bytes_by_width.get(int(b), 0) + n * int(b) / 8
    moved = sum(bytes_by_width.values())
    return {
        "instructions": total,
        "kinds": {k: n for k, n in kinds.items() if n},
        "widths": {k: w for k, w in widths.items() if w},
        "macs": macs,
        "roots": roots,
        "global_bytes": moved,
        "stored_bytes": sum(int(b) * n / 8 for b, n in widths["global_store"].items()),
        "share_of_128": bytes_by_width.get(128, 0.0) / moved if moved else None,
        "math_share": (kinds["matrix"] + kinds["fma"]) / total if total else None,
        "shared_reads_per_mac": kinds["shared_load"] / macs if macs else None,
    }


def work_in(summary, work):
    """Of some instructions: multiply-adds ("fma"), bytes of global memory ("bytes"), inverse square roots ("roots"),
    bytes stored ("stores"), or ("") all that computes or moves."""
    if work == "fma":
        return summary["macs"]
    if work == "roots":
        return summary["roots"]
    if work == "stores":
        return summary["stored_bytes"]
    if work == "bytes":
        return summary["global_bytes"]
    kinds = ("global_load", "global_store", "shared_load", "shared_store", "atomic")
    return summary["macs"] + sum(summary["kinds"].get(k, 0) for k in kinds)


def hottest_loop(blocks, successors, lanes, work):
    """The loop with most work of its own, what lies in an inner one counted eightfold; None: no loop does any."""
    loops = loops_of(successors)
    best, best_score = None, 0.0
    for loop in loops:
        inner = set().union(*(other.blocks for other in loops if other.blocks < loop.blocks))
        own = [i for b in sorted(loop.blocks - inner) for i in blocks[b]]
        score = work_in(count(own, lanes), work) * 8.0**loop.depth
        if score > best_score:
            best, best_score = loop, score
    return best


def analyse_program(program, lanes, work=""):
    """Whole program and innermost loop; the whole program stands for the loop where there is none."""
    blocks, successors = basic_blocks(program)
    everything = [i for b in blocks for i in b]
    loop = hottest_loop(blocks, successors, lanes, work)
    inner = everything if loop is None else [i for b in sorted(loop.blocks) for i in blocks[b]]
    return {
        "whole": count(everything, lanes),
        "loop": count(inner, lanes),
        "has_loop": loop is not None,
        "loops": len(loops_of(successors)),
        "loop_text": "\n".join(i.text for i in inner),
    }


PARSERS = {"Assembly": parse_aco, "NAK assembly": parse_nak, "IR3 Assembly": parse_ir3, "AGX": parse_agx}

# What each driver calls the figures that a table shows: the first name that it has, or the sum over a list.
STATISTICS = {
    "registers": ["VGPRs", "Number of GPRs", "GPRs", "Registers used"],
    "occupancy": ["Subgroups per SIMD", "Max warps/SM", "Threads", "Max Waves Per Core"],
    "instructions": ["Instructions", "Instruction count", "Instruction Count"],
    "throughput": ["Inverse Throughput", "Static cycle count", "ALU"],
    "code_bytes": ["Code size"],
    "shared": ["LDS size"],
}
SPILLS = ["Spilled SGPRs", "Spilled VGPRs", "Spills to memory", "Spills to reg", "Spills", "STP Count"]


def analyse(answer, work=""):
    """A summary of what bench_gpu wrote, without the texts but that of the loop."""
    out = {k: v for k, v in answer.items() if k != "texts"}
    statistics = answer.get("statistics", {})
    for name, names in STATISTICS.items():
        out[name] = next((statistics[n] for n in names if n in statistics), None)
    found = [statistics[n] for n in SPILLS if n in statistics]
    out["spills"] = sum(found) if found else None
    if out["shared"] is None:
        out["shared"] = answer.get("shared_bytes")
    lanes = answer.get("subgroup_size") or 32
    for name, parser in PARSERS.items():
        if text := answer.get("texts", {}).get(name):
            out.update(analyse_program(parser(text), lanes, work))
            break
    return out


def cost_per_work(summary, work):
    """Instructions of the loop, per invocation and unit of its work; None: it does none of it."""
    loop = summary.get("loop")
    if not loop:
        return None
    done = work_in(loop, work)
    return loop["instructions"] / done if done else None
