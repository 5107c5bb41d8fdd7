"""tessera.export: the kernels of a function as .tir files, and the graph of their calls, to be used without Python
(engine/graph/graph.h reads them).

A call of pallas_call is a kernel as it stands. What JAX's own operations compute between the calls becomes kernels too:
each equation is traced as a pallas_call on whole arrays, and imported like any other, so what cannot be imported is an
error with the primitive's name and line. Functions under jit, and the rules of custom derivatives, are part of the
function. A loop or branch around a call is a body of the graph; one without is a kernel.
"""

import os
import re

import jax
import numpy as np
from jax._src import core, source_info_util
from jax._src.random import prng
from jax._src.state import discharge
from jax.experimental import pallas as pl

from tessera import equations, expansions, hook, jax_versions
from tessera import jaxpr as to_json
from tessera._files import write_file
from tessera._native_library import Error, import_text

_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "xla_metadata_call": "jaxpr",
    "program_order": "call_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
    "linear_call": "callee",
}
_CONTROL = ("scan", "while", "cond")
_CALLBACKS = ("debug_callback", "io_callback", "pure_callback")
source_info_util.register_exclusion(__file__)  # lines are the user's


def _type(aval):
    """Random keys are their words."""
    dtype, shape = equations.type_of(aval)
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _place(eqn):
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    return f"{frame.file_name}:{frame.start_line}" if frame else ""


def _as_kernel(eqn):
    """An equation of JAX's own as the pallas_call equations that compute it on whole arrays."""

    def kernel(*refs):
        count = len(eqn.invars)
        values = [r[...] for r in refs[:count]]
        out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
        for r, v in zip(refs[count:], out if eqn.primitive.multiple_results else [out]):
            r[...] = v

    kernel.__name__ = eqn.primitive.name
    out = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    arguments = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    with source_info_util.user_context(eqn.source_info.traceback):  # what is traced has the line of the equation
        return jax.make_jaxpr(pl.pallas_call(kernel, out_shape=out, name=eqn.primitive.name))(*arguments).eqns[-1]


class _Writer:
    def __init__(self, folder):
        self.folder = folder
        self.head = []  # inputs and constants
        self.lines = []
        self.indent = ""
        self.files = {}  # by text
        self.count = 0
        self.around = ""  # the line of the call whose equations are at hand: those of JAX's own functions have none

    def name(self):
        self.count += 1
        return f"%{self.count - 1}"

    def line(self, text):
        self.lines.append(self.indent + text)

    def file(self, name, text):
        """Its name; equal kernels share one."""
        if text not in self.files:
            stem = re.sub(r"[^A-Za-z0-9_-]", "_", name[:160]) or "kernel"
            taken, i, file = set(self.files.values()), 1, stem + ".tir"
            while file in taken:
                i, file = i + 1, f"{stem}_{i + 1}.tir"
            self.files[text] = file
            write_file(self.folder, file, lambda f: f.write(text.encode()))
        return self.files[text]

    def constant(self, value):
        name = self.name()
        value = np.asarray(
            jax.random.key_data(value) if isinstance(getattr(value, "dtype", None), prng.KeyTy) else value
        )
        value = value.astype(equations.wide(value.dtype))
        file = f"constant_{name[1:]}.npy"
        write_file(self.folder, file, lambda f: np.save(f, value))
        self.head.append(f'const {name} {_type(value)} "{file}"')
        return name

    def call(self, eqn, operands, place=None):
        """`place`: of an equation that is no kernel by itself."""
        names = [self.name() for _ in eqn.outvars]
        params, tables = eqn.params, []
        bounds = params["grid_mapping"].num_dynamic_grid_bounds
        sizes = ", ".join(
            f"grid_{i} = {self.size(v.aval, operand)}"
            for i, (v, operand) in enumerate(zip(eqn.invars[:bounds], operands))
        )
        try:
            module = to_json.describe(**params, tables=tables, at=place)
        except equations.ExportError as error:
            raise Error(f"tessera.export: {error}") from None
        try:
            text = import_text(to_json.dump(module))
        except Error as error:  # which tells of JAX's interpreter, where calls are run
            raise Error(
                "tessera.export: "
                + re.sub(
                    r"or leave such calls to JAX's interpreter: [^\n]*",
                    "or compute it outside of what is exported",
                    str(error),
                )
            ) from None
        operands = [*operands, *(self.constant(t) for t in tables)]
        self.line(
            self.result(
                names,
                f'call "{self.file(module["name"], text)}"({", ".join(operands[bounds:])})'
                f'{" with " if bounds else ""}{sizes}',
                [v.aval for v in eqn.outvars],
            )
        )
        return names

    @staticmethod
    def result(names, what, avals):
        return f'{", ".join(names)} = {what} : {", ".join(map(_type, avals))}' if names else what

    def inputs(self, inputs):
        """`carry` and `slice` lines, from (word, name, type, operand)."""
        for word, name, aval, operand in inputs:
            self.line(f"{word} {name} {_type(aval)} = {operand}")

    def body(self, closed, arguments, inputs=()):
        """The lines of one body of a step, after those of its inputs."""
        self.indent += "  "
        self.inputs(inputs)
        outs = self.equations(closed.jaxpr, [self.constant(c) for c in closed.consts], arguments)
        for out in outs:
            self.line(f"out {out}")
        self.indent = self.indent[:-2]

    def scan(self, eqn, operands):
        p = jax_versions.params(eqn)
        body, consts, carries = p["jaxpr"], p["num_consts"], p["num_carry"]
        inputs = [
            (("carry" if i < carries else "slice"), self.name(), v.aval, operand)
            for i, (v, operand) in enumerate(zip(body.jaxpr.invars[consts:], operands[consts:]))
        ]
        names = [self.name() for _ in eqn.outvars]
        self.line(
            self.result(
                names, f"repeat {p['length']}{' reverse' if p['reverse'] else ''}", [v.aval for v in eqn.outvars]
            )
            + " {"
        )
        self.body(body, [*operands[:consts], *(name for _, name, _, _ in inputs)], inputs)
        self.line("}")
        return names

    def while_(self, eqn, operands):
        p = eqn.params
        test, body = p["cond_jaxpr"], p["body_jaxpr"]
        tests, consts = p["cond_nconsts"], p["body_nconsts"]
        inputs = [
            ("carry", self.name(), v.aval, operand)
            for v, operand in zip(body.jaxpr.invars[consts:], operands[tests + consts :])
        ]
        carried = [name for _, name, _, _ in inputs]
        names = [self.name() for _ in eqn.outvars]
        self.line(self.result(names, "repeat", [v.aval for v in eqn.outvars]) + " {")
        self.indent += "  "
        self.inputs(inputs)
        [go_on] = self.equations(test.jaxpr, [self.constant(c) for c in test.consts], [*operands[:tests], *carried])
        self.line(f"while {go_on}")
        self.indent = self.indent[:-2]
        self.body(body, [*operands[tests : tests + consts], *carried])
        self.line("}")
        return names

    def cond(self, eqn, operands):
        names = [self.name() for _ in eqn.outvars]
        self.line(self.result(names, f"switch {operands[0]}", [v.aval for v in eqn.outvars]) + " {")
        for i, branch in enumerate(eqn.params["branches"]):
            if i:
                self.line("} {")
            self.body(branch, operands[1:])
        self.line("}")
        return names

    def run_state(self, eqn, operands):
        """As values, which pl.core_map inside becomes a kernel of."""
        if not all(eqn.params["is_initialized"]):
            raise Error(f"tessera.export: run_state: it makes Refs without values{self.at()}\n  note: give it arrays")
        jaxpr, consts = jax_versions.jaxpr_and_constants(
            discharge.discharge_state(jax_versions.closed(eqn.params["jaxpr"]))
        )
        return self.equations(jaxpr, [self.constant(c) for c in consts], operands)

    def traced(self, f, eqn, operands):
        """Of a function that computes what the equation does."""
        with source_info_util.user_context(eqn.source_info.traceback):
            closed = jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))
        return self.equations(closed.jaxpr, [self.constant(c) for c in closed.consts], operands)

    def size(self, aval, operand):
        """Of a grid's, as graphs have them."""
        closed = jax.make_jaxpr(hook.grid_size)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        return self.equations(closed.jaxpr, [], [operand])[0]

    def equations(self, jaxpr, consts, arguments):
        env = dict(zip(jaxpr.constvars, consts)) | dict(zip(jaxpr.invars, arguments))

        def read(atom):
            return self.constant(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, core.Literal) else env[atom]

        outer = self.around
        for eqn in jaxpr.eqns:
            self.around = _place(eqn) or outer
            env.update(zip(eqn.outvars, self.equation(eqn, [read(v) for v in eqn.invars])))
        self.around = outer
        return [read(v) for v in jaxpr.outvars]

    def equation(self, eqn, operands):
        """The names of its results."""
        name, params = eqn.primitive.name, jax_versions.params(eqn)
        inner = _INLINED.get(name)
        if name in _CALLBACKS:
            raise Error(
                f"tessera.export: {name}: what is exported runs without Python, and so cannot call it{self.at()}\n "
                " note: jax.debug.print can stay; call Python before or behind what is exported"
            )
        if _has_call(eqn) and (f := expansions.expansion(name, params)):
            return self.traced(f, eqn, operands)
        if inner in params:
            sub, consts = jax_versions.jaxpr_and_constants(params[inner])
            return self.equations(sub, [self.constant(c) for c in consts], operands)
        if name == "pallas_call":
            return self.call(eqn, operands)
        if name == "mpmd_map":
            return self.call(eqn.replace(params=hook.params_of_pl_kernel(eqn)), operands)
        if name == "run_state":
            return self.run_state(eqn, operands)
        if name in _CONTROL and _has_call(eqn):
            return {"scan": self.scan, "while": self.while_, "cond": self.cond}[name](eqn, operands)
        if _has_call(eqn):
            raise Error(
                f"tessera.export: {name}: it has kernels inside, which export does not look for there{self.at()}\n "
                " note: call them outside of it"
            )
        return self.call(_as_kernel(eqn), operands, self.around)

    def at(self):
        return f"\n  at {self.around}" if self.around else ""


def _has_call(eqn):
    return any(
        e.primitive.name in ("pallas_call", "mpmd_map", "core_map") or _has_call(e)
        for j in core.jaxprs_in_params(eqn.params)
        for e in j.eqns
    )


def export(fn, *args, path):
    closed = jax.make_jaxpr(fn)(*args)
    os.makedirs(path, exist_ok=True)
    w = _Writer(path)
    arguments = []
    for i, v in enumerate(closed.jaxpr.invars):
        try:
            equations.check_dtype(v.aval.dtype, f"argument {i}")
        except equations.ExportError as error:
            raise Error(f"tessera.export: {error}") from None
        arguments.append(w.name())
        w.head.append(f"in {arguments[-1]} {_type(v.aval)}")
    results = w.equations(closed.jaxpr, [w.constant(c) for c in closed.consts], arguments)
    w.lines += [f"out {r}" for r in results]
    write_file(
        path, "graph.txt", lambda f: f.write(("\n".join(["tessera graph 1", *w.head, *w.lines]) + "\n").encode())
    )
    return path
