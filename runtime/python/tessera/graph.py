"""tessera.export: the kernels of a function as .tir files, and the graph of their calls, to be used without Python (engine/graph.h reads them).

A call of pallas_call is a kernel as it stands. What JAX's own operations compute between the calls becomes kernels too: each equation is traced
as a pallas_call on whole arrays, and imported like any other, so what cannot be imported is an error with the primitive's name and line. Functions
under jit, and the rules of custom derivatives, are part of the function; loops and branches outside of kernels are not supported.
"""

import os
import re

import jax
import numpy as np
from jax._src import core, source_info_util
from jax.experimental import pallas as pl

from tessera import jaxpr as to_json
from tessera._native_library import Error, import_text

_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr",
            "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}
_LOOPS = ("scan", "while", "cond")


def _type(aval):
    return f"{to_json.dtype_name(aval.dtype)}[{', '.join(map(str, aval.shape))}]"


def _place(eqn):
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    return f"{frame.file_name}:{frame.start_line}" if frame else ""


def _line(eqn):
    return f"\n  at {_place(eqn)}" if _place(eqn) else ""


def _as_kernel(eqn):
    """An equation of JAX's own as the pallas_call equations that compute it on whole arrays."""
    def kernel(*refs):
        count = len(eqn.invars)
        values = [r[...] for r in refs[:count]]
        out = eqn.primitive.bind(*values, **eqn.params)
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
        self.lines = []
        self.files = {}  # by text
        self.count = 0

    def name(self):
        self.count += 1
        return f"%{self.count - 1}"

    def file(self, name, text):
        """Its name; equal kernels share one."""
        if text not in self.files:
            stem = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "kernel"
            taken, i, file = set(self.files.values()), 1, stem + ".tir"
            while file in taken:
                i, file = i + 1, f"{stem}_{i + 1}.tir"
            self.files[text] = file
            with open(os.path.join(self.folder, file), "w") as f:
                f.write(text)
        return self.files[text]

    def constant(self, value):
        name = self.name()
        value = np.asarray(value)
        file = f"constant_{name[1:]}.npy"
        np.save(os.path.join(self.folder, file), value)
        self.lines.append(f'const {name} {_type(value)} "{file}"')
        return name

    def call(self, eqn, operands, place=""):
        """`place`: of an equation that is no kernel by itself."""
        names = [self.name() for _ in eqn.outvars]
        params, tables = eqn.params, []
        if params["grid_mapping"].num_dynamic_grid_bounds:
            raise Error(f"tessera.export: {params.get('name') or 'a kernel'}: its grid's size comes with the call, which files cannot hold{_line(eqn)}")
        try:
            module = to_json.describe(**params, tables=tables)
        except to_json.ExportError as error:
            raise Error(f"tessera.export: {error}") from None
        if place:
            module["at"] = place
        text = import_text(to_json.dump(module))
        operands = [*operands, *(self.constant(t) for t in tables)]
        types = ", ".join(_type(v.aval) for v in eqn.outvars)
        self.lines.append(f'{", ".join(names)} = call "{self.file(module["name"], text)}"({", ".join(operands)}) : {types}')
        return names

    def equations(self, jaxpr, consts, arguments):
        env = dict(zip(jaxpr.constvars, consts)) | dict(zip(jaxpr.invars, arguments))

        def read(atom):
            return self.constant(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, core.Literal) else env[atom]
        for eqn in jaxpr.eqns:
            inner = _INLINED.get(eqn.primitive.name)
            if inner in eqn.params:
                sub = eqn.params[inner]
                sub_consts = [self.constant(c) for c in sub.consts] if isinstance(sub, core.ClosedJaxpr) else []
                sub = sub.jaxpr if isinstance(sub, core.ClosedJaxpr) else sub
                results = self.equations(sub, sub_consts, [read(v) for v in eqn.invars])
            elif eqn.primitive.name == "pallas_call":
                results = self.call(eqn, [read(v) for v in eqn.invars])
            elif eqn.primitive.name in _LOOPS and _has_call(eqn):
                raise Error(f"tessera.export: a kernel is called inside {eqn.primitive.name}, which the graph cannot hold{_line(eqn)}"
                            "\n  note: export the function that the loop runs, and loop where it is used")
            else:
                results = self.call(_as_kernel(eqn), [read(v) for v in eqn.invars], _place(eqn))
            env.update(zip(eqn.outvars, results))
        return [read(v) for v in jaxpr.outvars]


def _has_call(eqn):
    return any(e.primitive.name == "pallas_call" or _has_call(e) for j in core.jaxprs_in_params(eqn.params) for e in j.eqns)


def export(fn, *args, path):
    closed = jax.make_jaxpr(fn)(*args)
    os.makedirs(path, exist_ok=True)
    w = _Writer(path)
    arguments = []
    for v in closed.jaxpr.invars:
        arguments.append(w.name())
        w.lines.append(f"in {arguments[-1]} {_type(v.aval)}")
    results = w.equations(closed.jaxpr, [w.constant(c) for c in closed.consts], arguments)
    w.lines += [f"out {r}" for r in results]
    with open(os.path.join(path, "graph.txt"), "w") as f:
        f.write("\n".join(["tessera graph 1", *w.lines]) + "\n")
    return path
