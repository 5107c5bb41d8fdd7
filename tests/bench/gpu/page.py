"""The results as one HTML file that needs nothing else: a table of ratios, and for each measure a chart of ours beside
the hand-written shader's."""

import html

import analyse
import chips

STYLE = """
:root { --ground: #ffffff; --ink: #1c1f23; --faint: #626a73; --line: #dfe3e8;
  --ours: #2f6fd0; --hand: #a9b1bb; --good: #d9f0e1; --fair: #fbf0cf; --bad: #f8d9d3; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181b; --ink: #e6e8eb; --faint: #9aa3ad; --line: #34383e;
    --ours: #6ba1f0; --hand: #69727d; --good: #1f4a31; --fair: #4d4218; --bad: #5a2a23; } }
body { background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif;
  margin: 2rem auto; max-width: 82rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; } p { max-width: 60rem; }
.faint { color: var(--faint); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .12rem .55rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; } .wide { overflow-x: auto; }
.good { background: var(--good); } .fair { background: var(--fair); } .bad { background: var(--bad); }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg .faint { fill: var(--faint); }
svg .ours { fill: var(--ours); } svg .hand { fill: var(--hand); } svg line { stroke: var(--line); }
.key span { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin: 0 .35em 0 1em; vertical-align: -.05em; }
"""


def cost(summary, line):
    return analyse.cost_per_work(summary, line["work"])


def of_loop(name, factor=1.0):
    def get(summary, _):
        value = (summary.get("loop") or {}).get(name)
        return None if value is None else factor * value

    return get


def of_whole(name, factor=1.0):
    def get(summary, _):
        value = (summary.get("whole") or {}).get(name)
        return None if value is None else factor * value

    return get


def plain(name):
    return lambda summary, _: summary.get(name)


# (heading, what it says, value of a summary and its line, whether less is better, digits)
MEASURES = [
    (
        "Instructions of the innermost loop, per unit of work",
        "For each multiply-add, byte of global memory or pair of bodies, of one invocation. Less is better.",
        cost,
        3,
    ),
    (
        "Share of multiply-adds and matrix instructions in the innermost loop, %",
        "More is better where a kernel is a product.",
        of_loop("math_share", 100),
        0,
    ),
    (
        "Global bytes in accesses of 128 bits, %",
        "Of the whole program, as written, not as often as it runs. More is better.",
        of_whole("share_of_128", 100),
        0,
    ),
    (
        "Instructions of the whole program",
        "As they stand in the code. Less is better where the loops are alike.",
        plain("instructions"),
        0,
    ),
    (
        "Registers",
        "Of an invocation, as each driver counts: VGPRs, GPRs, registers of four words.",
        plain("registers"),
        0,
    ),
    (
        "Spills",
        "Registers, or instructions that store them, as each driver counts. None is the aim.",
        plain("spills"),
        0,
    ),
    (
        "Occupancy",
        (
            "Subgroups of a SIMD, warps of a multiprocessor, invocations, waves of a core, as each driver counts. More"
            " is better."
        ),
        plain("occupancy"),
        0,
    ),
    (
        "Shared memory, bytes",
        "Of a workgroup; where the driver does not say, what our program asks for.",
        plain("shared"),
        0,
    ),
    (
        "The driver's own estimate",
        "ACO's inverse throughput, NAK's static cycles, AGX's arithmetic instructions. Loops count once.",
        plain("throughput"),
        0,
    ),
    (
        "Making the pipeline, ms",
        "Processor time of the driver on the machine that measured. Less is better.",
        plain("pipeline_processor_ms"),
        0,
    ),
]

NAME, CELL, ROW, TOP = 250, 112, 20, 26


def bar(x, y, value, most, kind):
    width = 0 if not most else max(1.0 if value else 0.0, 62 * value / most)
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width:.1f}" height="6" rx="1.5"/>'


def number(value, digits):
    """To so many digits behind the point, fewer of large numbers."""
    if value is None:
        return "–"
    return f"{value:.{max(0, digits - len(str(int(abs(value)))) + 1)}f}"


def chart(lines, kernels, names, get, digits, scale):
    """A row for each kernel, a column for each chip, and two bars at each place, of one scale: `scale`, or the
    larger's."""
    height = TOP + ROW * len(kernels) + 6
    out = [f'<svg width="{NAME + CELL * len(names)}" height="{height}" role="img">']
    for c, name in enumerate(names):
        out.append(f'<text x="{NAME + CELL * c}" y="14" font-weight="600">{name}</text>')
    for r, kernel in enumerate(kernels):
        y = TOP + ROW * r
        out.append(
            f'<line x1="0" x2="{NAME + CELL * len(names)}" y1="{y - 2}" y2="{y - 2}"/><text x="0"'
            f' y="{y + 11}">{html.escape(kernel)}</text>'
        )
        for c, name in enumerate(names):
            line = lines.get((kernel, name))
            if line is None:
                continue
            x = NAME + CELL * c
            ours, hand = (None if not s or "error" in s else get(s, line) for s in (line["ours"], line["hand"]))
            most = scale or max(v for v in (ours, hand, 0) if v is not None)
            tip = f"{kernel} on {name}: ours {number(ours, digits)}, by hand {number(hand, digits)}"
            out.append(
                f"<g><title>{html.escape(tip)}</title>"
                + (bar(x, y + 1, ours, most, "ours") if ours is not None else "")
                + (bar(x, y + 8, hand, most, "hand") if hand is not None else "")
                + f'<text class="faint" x="{x + 66}" y="{y + 11}">{number(ours, digits)}</text></g>'
            )
    return "".join(out) + "</svg>"


def ratio_cell(line):
    if line is None:
        return "<td></td>"
    if "error" in line["ours"]:
        return f'<td class="bad" title="{html.escape(line["ours"]["error"])}">none</td>'
    ratio, spills = line["loop_ratio"], line["ours"].get("spills")
    if ratio is None:
        return "<td>–</td>"
    kind = "good" if ratio <= 1.1 and not spills else "fair" if ratio <= 2 and not spills else "bad"
    return f'<td class="{kind}">{ratio:.2f}{"!" if spills else ""}</td>'


def page(all_lines):
    lines = {(line["kernel"], line["chip"]): line for line in all_lines}
    kernels = list(dict.fromkeys(line["kernel"] for line in all_lines))
    names = [c.name for c in chips.CHIPS if any(line["chip"] == c.name for line in all_lines)]
    out = [
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
            ' content="width=device-width">'
        ),
        (
            f"<title>Machine code of kernels</title><style>{STYLE}</style></head><body><h1>Kernels as four vendors'"
            " compilers see them</h1>"
        ),
        (
            "<p>Ours beside GLSL written by hand for the same work. Nothing has run: the drivers were asked for"
            " statistics and machine code, without a GPU.</p>"
        ),
        "<h2>Instructions of the innermost loop for the same work, ours to hand-written</h2>",
        (
            '<p class="faint">The aim is at most 1.10 and no spills. ! where ours spills; none where the driver makes'
            " no pipeline; – where nothing is compared.</p>"
        ),
        '<div class="wide"><table><tr><th></th>' + "".join(f"<th>{n}</th>" for n in names) + "</tr>",
    ]
    for kernel in kernels:
        out.append(
            f"<tr><td>{html.escape(kernel)}</td>" + "".join(ratio_cell(lines.get((kernel, n))) for n in names) + "</tr>"
        )
    out.append("</table></div>")
    out.append(
        '<p class="key">In the charts:<span style="background:var(--ours)"></span>ours, with its figure<span'
        ' style="background:var(--hand)"></span>by hand. The two bars of a place share a scale; the exact figures are'
        " shown under the pointer.</p>"
    )
    for heading, note, get, digits in MEASURES:
        bars = chart(lines, kernels, names, get, digits, 100 if heading.endswith("%") else None)
        out.append(f'<h2>{heading}</h2><p class="faint">{note}</p><div class="wide">{bars}</div>')
    out.append("<h2>Chips and drivers</h2><table><tr><th>chip</th><th>what</th><th>driver</th></tr>")
    for c in chips.CHIPS:
        driver = next(
            (line["ours"]["driver"] for line in all_lines if line["chip"] == c.name and "driver" in line["ours"]), None
        )
        if driver:
            out.append(f"<tr><td>{c.name}</td><td>{c.label}</td><td>{html.escape(driver)}</td></tr>")
    out.append("</table></body></html>\n")
    return "\n".join(out)
