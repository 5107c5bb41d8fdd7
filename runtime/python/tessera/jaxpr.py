"""From a traced pallas_call to the JSON that Tessera's C++ importer reads (the format: engine/jax/format.md).

    text = tessera.jaxpr.export(**params)  # of the pallas_call equation: jaxpr, grid_mapping, compiler_params, ...

Nothing here knows what a primitive means: equations are written down as they stand, with parameters reduced to plain
JSON. What the importer cannot read, it refuses with the primitive's name and the line of Python. Only what JAX flattens
into opaque trees (the indices of loads and stores) is unflattened here, because C++ could not. equations.py writes the
equations; here is the call.
"""

import dataclasses
import json

import jax
import numpy as np
from jax._src import core
from jax._src.pallas import core as pallas_core
from jax._src.state import indexing
from jax._src.state import types as state_types

from tessera import jax_versions, mosaic_gpu
from tessera.equations import (
    ExportError,
    Source,
    check_dtype,
    constant,
    dtype_name,
    jaxpr_json,
    key_shape,
    space_name,
    type_of,
)

VERSION = 1


def _stored(jaxpr):
    """The positions of the arguments that the jaxpr writes to."""
    places = set()
    for effect in jaxpr.effects:
        if isinstance(effect, (state_types.WriteEffect, state_types.AccumEffect)):
            at = getattr(effect, "input", None)  # a variable, or in some versions of JAX its position
            places.add(jaxpr.invars.index(at) if isinstance(at, core.Var) else getattr(effect, "input_index", at))
    return places


def accumulates_into_nothing(jaxpr, grid_mapping, aliased):
    """(output, line) of those that the first program adds something to before anybody has stored there: certain cases
    only."""
    first = grid_mapping.num_index_operands + grid_mapping.num_inputs
    unwritten = {v: i for i, v in enumerate(jaxpr.invars[first : first + grid_mapping.num_outputs]) if i not in aliased}
    found, held, sums = [], {}, {}
    uses = {}
    for eqn in jaxpr.eqns:
        for v in eqn.invars:
            if isinstance(v, core.Var):
                uses[v] = uses.get(v, 0) + 1
    for eqn in jaxpr.eqns:
        name, refs = eqn.primitive.name, [v for v in eqn.invars if isinstance(v, core.Var) and v in unwritten]
        for v in eqn.invars:
            if (
                isinstance(v, core.Var)
                and v in held
                and uses[v] == 1
                and name in ("add", "sub", "mul", "max", "min", "add_any")
            ):
                sums[eqn.outvars[0]] = held[v]
        if not refs:
            continue
        ref = refs[0]
        if name == "get" and uses.get(ref, 0) >= 1:
            held[eqn.outvars[0]] = ref, eqn
        elif (
            name == "swap"
            and isinstance(eqn.invars[1], core.Var)
            and sums.get(eqn.invars[1], (None,))[0] is ref
            and uses[eqn.invars[1]] == 1
        ):
            found.append((unwritten.pop(ref), Source("").line(sums[eqn.invars[1]][1].source_info)))
        elif name == "addupdate":
            found.append((unwritten.pop(ref), Source("").line(eqn.source_info)))
        else:
            for r in refs:
                unwritten.pop(r, None)
    return found


_SEMANTICS = ("parallel", "core_parallel", "subcore_parallel", "arbitrary", "sequential")


def _parallel(compiler_params, rank, vmapped):
    """Which grid axes may run in any order. GPU kernels promise that of all axes by being written for a GPU; axes that
    vmap added always are."""
    semantics = getattr(compiler_params, "dimension_semantics", None)
    if semantics is None:
        gpu = type(compiler_params).__module__.startswith(("jax._src.pallas.triton", "jax._src.pallas.mosaic_gpu"))
        return [gpu or i in vmapped for i in range(rank)]
    names = [str(getattr(s, "value", s)) for s in semantics]
    for s in names:
        if s not in _SEMANTICS:
            raise ExportError(
                f"dimension_semantics has the entry {s!r}: {', '.join(_SEMANTICS[:-1])} and {_SEMANTICS[-1]} are known"
            )
    if len(names) not in (rank, rank - len(vmapped)):
        axes = rank - len(vmapped)
        raise ExportError(
            f"dimension_semantics has {len(names)} {'entry' if len(names) == 1 else 'entries'} for a grid of"
            f" {axes} {'axis' if axes == 1 else 'axes'}"
        )
    names = iter(names)
    return [(i in vmapped and len(semantics) != rank) or "parallel" in next(names) for i in range(rank)]


def _backend_params(compiler_params):
    """What else a backend of Pallas's is told, as text by name, but for defaults: `tessera explain` shows it."""
    module = type(compiler_params).__module__.split(".")
    backend = (
        {"mosaic": "mosaic_tpu", "triton": "triton", "mosaic_gpu": "mosaic_gpu"}.get(module[3])
        if module[:3] == ["jax", "_src", "pallas"] and module[3:]
        else None
    )
    if not backend or not dataclasses.is_dataclass(compiler_params):
        return None
    given = {
        f.name: getattr(compiler_params, f.name)
        for f in dataclasses.fields(compiler_params)
        if f.name != "dimension_semantics" and getattr(compiler_params, f.name) not in (None, f.default)
    }
    params = {
        k: str(v).lower() if isinstance(v, bool) else str(v)
        for k, v in given.items()
        if isinstance(v, (bool, str)) or isinstance(v, int) and v > 0
    }
    return {"backend": backend, "params": params} if params else None


def _block_dim(d):
    if d is None or isinstance(d, pallas_core.Squeezed):
        return None
    if isinstance(d, pallas_core.Element):
        return {"element": int(d.block_size), "padding": list(d.padding)}
    if isinstance(d, pallas_core.BoundedSlice):
        return {"bounded": int(d.block_size)}
    return int(getattr(d, "block_size", d))


def _block_indices(m, operands):
    """What an index map returns, per dim; of a slice its start and its size, though JAX's jaxpr returns only those of
    the two that are not constant."""
    indices = []
    for x in jax.tree.unflatten(m.index_map_out_tree, [(o,) for o in operands]):
        if isinstance(x, indexing.Slice) and x.stride != 1:
            raise ExportError(
                f"{m.origin}: the index map returns a slice with the stride {x.stride}, but a block has each element",
                note="pl.ds(start, size)",
            )
        indices += [x.start, x.size] if isinstance(x, indexing.Slice) else [x]
    return [x[0] if isinstance(x, tuple) else constant(x, np.int32) for x in indices]


def _block(m, source):
    if m.transforms:
        raise ExportError(f"{m.origin}: transforms of blocks ({type(m.transforms[0]).__name__}) are not supported")
    words = key_shape(m.array_aval.dtype)
    block = {
        "origin": str(m.origin),
        "array": type_of(m.array_aval),
        "block": [*(_block_dim(d) for d in m.block_shape), *words],
        "space": space_name(m.transformed_block_aval.memory_space),
        "map": jaxpr_json(m.index_map_jaxpr, dataclasses.replace(source, in_index_map=True)),
    }
    block["map"]["out"] = [*_block_indices(m, block["map"]["out"]), *(constant(0, np.int32) for _ in words)]
    if m.pipeline_mode is not None:
        block["buffered"] = getattr(m.pipeline_mode, "buffer_count", 2)
    return block


def describe(*, jaxpr, name=None, at=None, strip="", **params):
    """The call as plain Python data; `strip` is a prefix to take off the names of source files, `at` another line than
    the kernel's own. `tables` gets arrays, operands of the kernel behind its own, and for each of the `mesh_axes` that
    the kernel asks for a MeshAxis."""
    info = mosaic_gpu.debug_info(jaxpr) if mosaic_gpu.is_mesh(params.get("mesh")) else jaxpr.debug_info
    name = name or (info.func_name if info else "kernel")
    if at is None:
        at = (info.func_src_info or "").rpartition(" at ")[2].removeprefix(strip) if info else ""
    try:
        if mosaic_gpu.is_pipeline(jaxpr=jaxpr, **params):
            params |= mosaic_gpu.as_pipeline(jaxpr=jaxpr, **params)
            jaxpr = params.pop("jaxpr")
            params.pop("name")
        return _describe(jaxpr, name, at, strip, **params)
    except ExportError as error:
        raise error.within(name, at) from None


def _describe(
    jaxpr,
    name,
    at,
    strip,
    *,
    grid_mapping,
    input_output_aliases=(),
    compiler_params=None,
    cost_estimate=None,
    metadata=None,
    tables=None,
    mesh=None,
    mesh_axes=(),
    **_,
):
    gm = grid_mapping
    names = jax_versions.grid_names(gm)
    maps = Source(strip, grid_names=tuple(names), mesh_axes=tuple(mesh_axes))
    if jaxpr.constvars:
        raise ExportError("the kernel closes over Refs")
    for m in gm.block_mappings:
        check_dtype(m.array_aval.dtype, f"{m.origin}: the array")
    for i, a in enumerate(gm.index_map_avals[len(gm.grid) :]):
        check_dtype(a.dtype, f"scalar-prefetch operand {i}")
    for i, a in enumerate(gm.scratch_avals):
        if hasattr(a, "dtype"):
            check_dtype(a.dtype, f"scratch {i}")
    rank, vmapped = len(gm.grid), [int(d) for d in gm.vmapped_dims]
    threads = mosaic_gpu.describe_mesh(mesh, compiler_params) if mosaic_gpu.is_mesh(mesh) else None
    refs = len(gm.index_map_avals) - rank + len(gm.block_mappings) + len(gm.scratch_avals)
    if not threads and len(jaxpr.invars) != refs:  # what JAX's rule for jvp makes of some calls
        raise ExportError(
            f"the call has {refs} Refs, but its kernel takes {len(jaxpr.invars)}: JAX's jvp makes such calls where an"
            " argument, of integers say, has no tangent",
            note=(
                "give every argument a tangent (jnp.zeros_like), or the function around the call a rule of its own"
                " (jax.custom_jvp)"
            ),
        )
    module = {
        "tessera": VERSION,
        "name": name,
        "at": at,
        "grid": [int(d) if isinstance(d, (int, np.integer)) else None for d in gm.grid],
        "parallel": [True] * rank if threads else _parallel(compiler_params, rank, vmapped),
        "vmapped": vmapped,
        "prefetch": [type_of(a) for a in gm.index_map_avals[rank:]],
        "num_inputs": int(gm.num_inputs),
        "blocks": [_block(m, maps) for m in gm.block_mappings],
        "scratch": [type_of(a) for a in gm.scratch_avals],
        "aliases": [[int(i), int(o)] for i, o in input_output_aliases],
        "body": jaxpr_json(jaxpr, dataclasses.replace(maps, tables=tables)),
    }
    if threads:
        if input_output_aliases:
            raise ExportError(
                "a kernel of mosaic_gpu has Refs as arguments, which is not supported",
                note="return what it writes: out_type",
            )
        module["mesh"] = threads
    if stored := sorted(i for i in _stored(jaxpr) if i < len(module["prefetch"]) + module["num_inputs"]):
        module["stored"] = stored
    if tables:
        types = [[dtype_name(t.dtype), list(t.shape)] for t in tables]
        module["blocks"][gm.num_inputs : gm.num_inputs] = [
            {"origin": f"constant {i}", "array": t, "block": t[1], "space": "any", "map": {}}
            for i, t in enumerate(types)
        ]
        module["num_inputs"] += len(tables)
        module["tables"] = len(tables)
    if names:
        module["grid_names"] = names
    if given := _backend_params(compiler_params):
        module["compiler_params"] = given
    if metadata:
        module["metadata"] = {str(k): str(v) for k, v in metadata.items()}
    if cost_estimate is not None:
        module["cost"] = {k: int(getattr(cost_estimate, k)) for k in ("flops", "transcendentals", "bytes_accessed")}
    return module


def export(**params):
    """The call as JSON text, one equation per line."""
    return dump(describe(**params))


def dump(module):
    """JSON in which each equation has a line of its own, so that differences can be read."""

    def write(x, indent, key=""):
        if isinstance(x, dict) and ("eqns" in x or "tessera" in x or key == "block"):
            inner = ",\n".join(f"{indent} {json.dumps(k)}: {write(v, indent + ' ', k)}" for k, v in x.items())
            return "{\n" + inner + "}"
        if isinstance(x, dict) and "p" in x and "at" in x:
            return "{" + ", ".join(f"{json.dumps(k)}: {write(v, indent + ' ')}" for k, v in x.items()) + "}"
        if isinstance(x, list) and x and key in ("eqns", "blocks"):
            return (
                "[\n"
                + ",\n".join(f"{indent} {write(y, indent + ' ', 'block' if key == 'blocks' else '')}" for y in x)
                + "]"
            )
        if isinstance(x, dict):
            return "{" + ", ".join(f"{json.dumps(k)}: {write(v, indent)}" for k, v in x.items()) + "}"
        if isinstance(x, list):
            return "[" + ", ".join(write(v, indent) for v in x) + "]"
        return json.dumps(x)

    return write(module, "") + "\n"


def calls(fn, *args):
    """The params of every pallas_call that fn makes on args, in order, those inside jit and loops included."""
    found = []

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "pallas_call":
                found.append(eqn.params)
            else:
                for sub in core.jaxprs_in_params(eqn.params):
                    walk(sub)

    walk(jax.make_jaxpr(fn)(*args).jaxpr)
    return found
