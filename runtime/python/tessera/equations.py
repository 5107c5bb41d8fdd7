"""The equations of a traced kernel as jaxpr.py writes them: dtypes and types, literals and tables, and each primitive
with its operands and its parameters reduced to plain JSON. What cannot be written down is an ExportError."""

import base64
import dataclasses
import enum
import math
import string

import jax
import numpy as np
from jax._src import core, debugging, source_info_util
from jax._src.pallas import core as pallas_core
from jax._src.random import prng
from jax._src.state import indexing
from jax._src.state import types as state_types

from tessera import expansions, jax_versions, mosaic_gpu


_DTYPES = {
    "bool": "bool",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}
_DTYPES.update({f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (4, 8, 16, 32, 64)})


class ExportError(NotImplementedError):
    """The call uses something that has no place in the format: in what, at which line, and what to do."""

    def __init__(self, what, at="", note=""):
        super().__init__(what + (f"\n  at {at}" if at else "") + (f"\n  note: {note}" if note else ""))
        self.what, self.at, self.note = what, at, note

    def within(self, name, at):
        """The same, of something with a name; the line is the innermost that is known."""
        return ExportError(f"{name}: {self.what}", self.at or at, self.note)


# Dtypes that the IR lacks, and what holds all their values. Kernels load, store, move, compare and convert them; what
# is made of one is rounded to it.
_WIDE = {"int2": np.int8, "uint2": np.uint8} | dict.fromkeys(
    [
        "float4_e2m1fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ],
    jax.dtypes.bfloat16,
)


def wide(dtype):
    """The dtype that stands for this one in kernels."""
    return np.dtype(_WIDE[dtype.name]) if getattr(dtype, "name", None) in _WIDE else dtype


def dtype_name(dtype):
    """As the IR's text form has it; a dtype that the IR lacks keeps JAX's name, and the importer refuses it."""
    dtype = wide(dtype)
    name = getattr(dtype, "name", None) or str(dtype)
    return _DTYPES.get(name, name)


def space_name(space):
    """One of the IR's memory spaces. Where a space is only a wish about speed it is vmem."""
    name = str(getattr(space, "value", space)).lower() if space is not None else ""
    if type(space).__module__.startswith("jax._src.pallas.mosaic_gpu"):
        return "any" if name == "gmem" else "vmem"
    return {"any": "any", "hbm": "any", "smem": "smem", "index": "smem"}.get(name, "vmem")


def check_dtype(dtype, what):
    name = dtype_name(dtype)
    if not isinstance(dtype, (prng.KeyTy, pallas_core.AbstractSemaphoreTy)) and name not in _DTYPES.values():
        raise ExportError(
            f"{what} has the dtype {name}, which kernels cannot hold",
            note="pass the real and the imaginary part as two arrays" if "complex" in name else "",
        )


def _shape(shape, what):
    if not all(isinstance(d, (int, np.integer)) for d in shape):
        raise ExportError(
            f"{what} has the shape {tuple(shape)}: sizes must be known when the call is traced",
            note="export the function once per size (jax.export without symbolic shapes)",
        )
    if max(shape, default=0) >= 2**31 or math.prod(d for d in shape if d) > 2**40:
        raise ExportError(
            f"{what} has the shape {tuple(shape)}: dims have at most {2**31 - 1} elements, arrays {2**40}",
            note="reshape an array whose dim is too long to two dims before the call",
        )
    return [int(d) for d in shape]


def key_shape(dtype):
    """Of a dtype of random keys: the shape of one key's words, dims that every value of that dtype has at its end."""
    return list(dtype._impl.key_shape) if isinstance(dtype, prng.KeyTy) else []


def _word_name(dtype):
    return "u32" if isinstance(dtype, prng.KeyTy) else dtype_name(dtype)


def type_of(aval):
    """[dtype, shape], and for a Ref its memory space behind that. Random keys are their words."""
    if isinstance(aval, state_types.AbstractRef):
        inner = aval.inner_aval
        if isinstance(inner.dtype, pallas_core.AbstractSemaphoreTy):  # a counter
            kind = "dma_semaphore" if "dma" in inner.dtype.name else inner.dtype.name
            return ["i32", _shape(inner.shape, "a semaphore"), kind]
        if own := mosaic_gpu.space(aval):
            return ["i32" if "barrier" in own else dtype_name(inner.dtype), _shape(inner.shape, "a Ref"), own]
        return [
            _word_name(inner.dtype),
            [*_shape(inner.shape, "a Ref"), *key_shape(inner.dtype)],
            space_name(aval.memory_space),
        ]
    if not hasattr(aval, "dtype"):
        return [str(aval), []]
    return [_word_name(aval.dtype), [*_shape(aval.shape, "a value"), *key_shape(aval.dtype)]]


def constant(value, dtype):
    """A literal: its bits as an unsigned number, or of arrays the bytes of all elements, little-endian, in base 64."""
    if isinstance(dtype, prng.KeyTy):
        value, dtype = prng.random_unwrap(value), np.uint32
    array = np.asarray(value, dtype=dtype)
    array = array.astype(wide(array.dtype))
    name = dtype_name(array.dtype)
    check_dtype(array.dtype, "a literal")
    array = (
        np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")
        if array.ndim
        else array.reshape(1).view(f"u{array.dtype.itemsize}")[0]
    )
    data = array & array.dtype.type(15) if name in ("i4", "u4") else array  # NumPy's are extended to a byte
    if array.ndim == 0:
        return {"t": name, "v": int(data)}
    return {"t": name, "shape": list(array.shape), "data": base64.b64encode(data.tobytes()).decode()}


@dataclasses.dataclass(frozen=True)
class Source:
    """What holds for all equations of a call."""

    strip: str  # a prefix to take off the names of source files
    at: str = ""  # the line of what was expanded into the equations at hand
    # gets constants that are arrays of different elements: operands of the call, behind its own
    tables: list | None = None
    in_index_map: bool = False
    grid_names: tuple = ()
    mesh_axes: tuple = ()  # names of axes around the call, of a mesh of JAX's devices

    def line(self, source_info):
        frame = None if self.at else source_info_util.user_frame(source_info.traceback)
        return f"{frame.file_name.removeprefix(self.strip)}:{frame.start_line}" if frame else self.at

    def constant(self, value, dtype):
        if isinstance(dtype, prng.KeyTy):
            value, dtype = prng.random_unwrap(value), np.dtype(np.uint32)
        array = np.asarray(value, dtype)
        array = array.astype(wide(array.dtype))
        if (
            array.ndim == 0
            or array.size == 0
            or dtype_name(array.dtype) not in _DTYPES.values()
            or all(b == array.flat[0].tobytes() for b in (e.tobytes() for e in array.flat))
        ):
            return constant(value, dtype)
        if self.tables is None:
            raise ExportError(
                "a constant is an array of different elements, which only a kernel's body can look into",
                note="pass it as an input",
            )
        return self.table(array)

    def table(self, array):
        self.tables.append(array)
        return {"table": len(self.tables) - 1}


@dataclasses.dataclass(frozen=True)
class MeshAxis:
    """A table that each device computes for itself: its position along an axis of the mesh around the call."""

    name: str
    dtype = np.dtype(np.int32)
    shape = ()


class _Scope:
    """The numbering of one jaxpr's variables: constants, arguments, then every equation's results, in order."""

    def __init__(self, source):
        self.ids, self.count = {}, 0
        self.source = source

    def bind(self, var):
        self.ids[var] = self.count
        self.count += 1

    def operand(self, atom):
        return self.source.constant(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else self.ids[atom]


def _refs_through(eqn):
    """The results of a run_state that are Refs of its operands, by result."""
    if eqn.primitive.name != "run_state":
        return {}
    given = iter(eqn.invars)
    state = [next(given) if initialized else None for initialized in eqn.params["is_initialized"]]
    return {
        v: ref
        for v, ref in zip(eqn.outvars, state)
        if ref is not None and isinstance(ref.aval, state_types.AbstractRef)
    }


def jaxpr_json(jaxpr, source):
    jaxpr, consts = jax_versions.jaxpr_and_constants(jaxpr)
    scope = _Scope(source)
    for v in [*jaxpr.constvars, *jaxpr.invars]:
        scope.bind(v)
    if len(consts) not in (0, len(jaxpr.constvars)):
        raise ExportError("a nested jaxpr lacks its constants")
    equations = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "check" and eqn.params["debug"] and not pallas_core.debug_checks_enabled():
            continue
        e = {"p": jax_versions.primitive(eqn), "at": source.line(eqn.source_info)}
        try:
            e.update(_equation(eqn, scope))
            if e["p"] in _CASTS:  # where values of new dtypes begin
                check_dtype(eqn.outvars[0].aval.dtype, "the result")
            through = _refs_through(eqn)
            if through:
                e["params"]["through"] = [v in through for v in eqn.outvars]
            e["out"] = [
                None if isinstance(v, core.DropVar) else type_of(v.aval) for v in eqn.outvars if v not in through
            ]
        except ExportError as error:
            raise (error if error.at else error.within(e["p"], e["at"])) from None
        scope.ids.update((v, scope.operand(ref)) for v, ref in through.items())
        for i, v in enumerate(v for v in eqn.outvars if v not in through):
            # Each dropped variable needs a number of its own.
            scope.bind((eqn, i) if isinstance(v, core.DropVar) else v)
        equations.append(e)
    result = {
        "args": [type_of(v.aval) for v in [*jaxpr.constvars, *jaxpr.invars]],
        "eqns": equations,
        "out": [scope.operand(v) for v in jaxpr.outvars],
    }
    if consts:
        result["consts"] = [source.constant(c, c.dtype) for c in consts]
    return result


# -- equations


def _index(x, scope):
    if isinstance(x, (core.Literal, core.Var)):
        return scope.operand(x)
    if isinstance(x, (int, np.integer)):
        return constant(x, np.int32 if -(2**31) <= x < 2**31 else np.int64)
    if isinstance(x, (np.ndarray, jax.Array)):
        return scope.source.constant(x, x.dtype)
    raise ExportError(f"an index is a {type(x).__name__}")


def _transform(t, scope, words):
    """Of a Ref whose elements are keys with `words`, the shape of a key's words."""
    if isinstance(t, indexing.NDIndexer):
        items = []
        for x in t.indices:
            if isinstance(x, indexing.Slice):
                items.append({"start": _index(x.start, scope), "size": _index(x.size, scope), "stride": int(x.stride)})
            else:
                items.append(_index(x, scope))
        items += [{"start": constant(0, np.int32), "size": constant(n, np.int32), "stride": 1} for n in words]
        return {"index": items, "array": [d if isinstance(d, int) else _index(d, scope) for d in t.int_indexer_shape]}
    if isinstance(t, state_types.ReshapeTransform):
        return {"reshape": [*_shape(t.shape, "a reshaped Ref"), *words]}
    if isinstance(t, state_types.BitcastTransform):
        return {"bitcast": dtype_name(t.dtype)}
    if isinstance(t, state_types.TransposeTransform):
        return {"transpose": [*t.permutation, *range(len(t.permutation), len(t.permutation) + len(words))]}
    if (lies := mosaic_gpu.transform(t)) is not None:
        return lies
    raise ExportError(f"a view by {type(t).__name__} is not supported")


def views(transforms, scope, ref=None):
    held = [ref.aval.inner_aval.dtype] if ref is not None else []
    for t in transforms:
        if isinstance(t, state_types.BitcastTransform) and (
            narrow := [d.name for d in (*held, t.dtype) if wide(d) != d]
        ):
            raise ExportError(
                f"the bits of {narrow[0]} are not those that memory holds", note="convert the values: astype"
            )
    words = key_shape(ref.aval.inner_aval.dtype) if ref is not None else []
    return [_transform(t, scope, words) for t in transforms if type(t).__name__ not in jax_versions.HINTS]


def _access(eqn, scope):
    """Loads and stores: the Ref and the stored value as operands, and what says where as parameters."""
    name, invars = eqn.primitive.name, eqn.invars
    if name in ("masked_load", "masked_swap", "atomic_rmw"):
        parts = jax.tree.unflatten(eqn.params["args_tree"], invars)
        if name == "masked_load":
            ref, transforms, mask, other = parts
            values = []
        else:
            (ref, transforms, value, mask), other = parts, None
            values = [value]
    else:
        values = [] if name == "get" else [invars[1]]
        ref, mask, other = invars[0], None, None
        transforms = jax.tree.unflatten(eqn.params["tree"], invars[1 + len(values) :])
    if isinstance(ref, (tuple, list)):
        raise ExportError("pl.select_ref stands for the source of a copy only", note="access each Ref under pl.when")
    if not isinstance(ref, core.Var):
        raise ExportError(f"the Ref is a {type(ref).__name__}")
    if wide(held := ref.aval.inner_aval.dtype) != held and name in ("addupdate", "atomic_rmw"):
        raise ExportError(
            f"kernels load, store, move and convert {held.name}, but do not compute with it",
            note="x.astype(jnp.float32) or another wide dtype before",
        )
    params = {"transforms": views(transforms, scope, ref)}
    if mask is not None:
        params["mask"] = scope.operand(mask)
    if other is not None:
        params["other"] = scope.operand(other)
    if name == "atomic_rmw":
        params["atomic_type"] = _plain(eqn.params["atomic_type"], scope)
    return {"in": [scope.operand(v) for v in (ref, *values)], "params": params}


def _ref_and_transforms(x):
    return (x.ref, x.transforms) if isinstance(x, state_types.TransformedRef) else (x, ())


def _copy_of_selected(eqn, scope, source, rest):
    """A copy from one of several Refs (pl.select_ref): a branch for each. All branches see all operands."""
    select, *transforms = source.transforms
    variables = list(dict.fromkeys(v for v in eqn.invars if isinstance(v, core.Var)))
    branches = []
    for ref in source.ref:
        base, first = _ref_and_transforms(ref)
        flat, tree = jax.tree.flatten((state_types.TransformedRef(base, (*first, *transforms)), *rest))
        branch = core.Jaxpr(
            (),
            variables,
            (),
            [eqn.replace(invars=flat, params=eqn.params | {"tree": tree})],
            eqn.effects,
            debug_info=core.DebugInfo("copy", "", (), ()),
        )
        branches.append(jaxpr_json(branch, scope.source))
    index = (
        select.idx
        if isinstance(select.idx, (core.Var, core.Literal))
        else core.Literal(np.int32(select.idx), core.ShapedArray((), np.int32))
    )
    return {
        "p": "cond",
        "in": [scope.operand(index), *(scope.operand(v) for v in variables)],
        "params": {"branches": branches},
    }


def _copy(eqn, scope):
    """dma_start and dma_wait: source, target and semaphore as operands, and what part of each as parameters."""
    source, target, semaphore, source_semaphore, device = eqn.params["tree"].unflatten(eqn.invars)
    if device is not None:
        raise ExportError("copies to other devices are not supported")
    if isinstance(source, state_types.TransformedRef) and isinstance(source.ref, tuple):
        return _copy_of_selected(eqn, scope, source, (target, semaphore, source_semaphore, device))
    if any(isinstance(x, state_types.TransformedRef) and isinstance(x.ref, tuple) for x in (target, semaphore)):
        raise ExportError(
            "pl.select_ref stands for the source of a copy only", note="write the copy once per Ref, each under pl.when"
        )
    if source_semaphore is not None or semaphore is None:
        raise ExportError(
            "copies without a semaphore, or with another one for their source, are not supported: give make_async_copy"
            " one semaphore"
        )
    places = [_ref_and_transforms(x) for x in (source, target, semaphore)]
    params = {k: views(t, scope, ref) for k, (ref, t) in zip(("source", "target", "semaphore"), places)}
    return {
        "in": [scope.operand(ref) for ref, _ in places],
        "params": {**params, "add": bool(eqn.params.get("add", False))},
    }


def _semaphore(eqn, scope):
    ref, transforms, *rest = jax.tree.unflatten(eqn.params["args_tree"], eqn.invars)
    params, values = {"transforms": views(transforms, scope)}, []
    if eqn.primitive.name == "semaphore_signal":
        value, device, core = rest
        if device is not None or core is not None:
            raise ExportError("semaphores of other devices are not supported")
        values = [value]
    elif eqn.primitive.name == "semaphore_wait":
        value, decrement = rest
        params["decrement"] = bool(getattr(decrement, "val", decrement))
        values = [value]
    return {"in": [scope.operand(v) for v in (ref, *values)], "params": params}


def _format(fmt, args, kwargs, scope):
    """A format of Python's and its arguments: placeholders numbered, with what is no value of the kernel written into
    the text."""
    values, text = [], ""
    numbers = iter(range(len(args)))
    for before, field, spec, conversion in string.Formatter().parse(fmt):
        text += before.replace("{", "{{").replace("}", "}}")
        if field is None:
            continue
        if conversion not in (None, "s", "r") or "{" in spec:
            raise ExportError(
                f"the placeholder of {field or 'an argument'} in {fmt!r} has a form that is not supported"
            )
        key = field or next(numbers)
        x = args[int(key)] if str(key).isdigit() else kwargs[key] if key in kwargs else None
        if isinstance(x, (core.Var, core.Literal)):
            text += f"{{{len(values)}:{spec}}}" if spec else f"{{{len(values)}}}"
            values.append(scope.operand(x))
        elif x is None and key not in kwargs:
            raise ExportError(f"the placeholder {{{field}}} of {fmt!r} is not the name of an argument")
        else:
            text += format(x, spec).replace("{", "{{").replace("}", "}}")
    return {"in": values, "params": {"fmt": text}}


def _debug_print(eqn, scope):
    args, kwargs = debugging.merge_callback_args(eqn.params["in_tree"], eqn.invars, eqn.params["static_args"])
    fmt = eqn.params["fmt"]
    if not eqn.params["has_placeholders"]:  # then JAX prints the arguments behind the text
        fmt = " ".join([fmt.replace("{", "{{").replace("}", "}}"), *("{}" for _ in args)])
    return _format(fmt, args, kwargs, scope)


def _check(eqn, scope):
    """A check's operands: whether it failed, then what its message shows."""
    if not eqn.params["debug"]:
        raise ExportError("a check must be made a result by jax.experimental.checkify.checkify, or be pl.debug_check")
    error = jax.tree.unflatten(eqn.params["err_tree"], eqn.invars)
    (failed,), (tree,), (payload,) = error._pred.values(), error._metadata.values(), error._payload.values()
    exception = jax.tree.unflatten(tree, payload)
    e = _format(exception.fmt_string, list(exception.args), exception.kwargs, scope)
    return {"in": [scope.operand(failed), *e["in"]], "params": e["params"]}


# Primitives under which keys are their words already.
_SAME = ("random_clone", "random_unwrap", "random_wrap")


def _expanded(f, eqn, scope, words=False):
    """A primitive as others, all at the line of the one. `words`: keys come to f as their words."""
    arguments = [
        (
            jax.ShapeDtypeStruct((*v.aval.shape, *key_shape(v.aval.dtype)), np.uint32)
            if words and key_shape(v.aval.dtype)
            else jax.ShapeDtypeStruct(v.aval.shape, wide(v.aval.dtype))
        )
        for v in eqn.invars
    ]
    source = dataclasses.replace(scope.source, at=scope.source.line(eqn.source_info))
    try:
        closed = jax.make_jaxpr(f)(*arguments)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ExportError(str(error)) from None
    return {
        "p": "closed_call",
        "in": [scope.operand(v) for v in eqn.invars],
        "params": {"call_jaxpr": jaxpr_json(closed, source)},
    }


def _plain(x, scope):
    """A parameter as JSON, or None for what has no form there (functions, trees, shardings)."""
    if isinstance(x, np.generic) and not isinstance(x, str):  # those of ml_dtypes are no np.floating or np.integer
        for kind, python in ((np.bool_, bool), (np.integer, int), (np.floating, float)):
            if jax.dtypes.issubdtype(x.dtype, kind):
                return _plain(python(x), scope)
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, int) and not isinstance(x, enum.Enum):
        return int(x)
    if isinstance(x, float):
        return repr(float(x))
    if isinstance(x, enum.Enum):
        return x.name.lower()
    if isinstance(x, jax_versions.JAXPRS):
        return jaxpr_json(x, scope.source)
    if (
        isinstance(x, np.dtype)
        or (isinstance(x, type) and issubclass(x, np.generic))
        or hasattr(x, "dtype")
        and isinstance(x, type)
    ):
        return dtype_name(np.dtype(x))
    if isinstance(x, core.AbstractValue):
        return type_of(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {f: _plain(getattr(x, f), scope) for f in x._fields}
    if isinstance(x, (tuple, list)):
        return [_plain(y, scope) for y in x]
    if isinstance(x, dict):
        return {str(k): _plain(v, scope) for k, v in x.items()}
    if isinstance(x, (np.ndarray, jax.Array)):
        return None if x.dtype == object else constant(x, x.dtype)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {f.name: _plain(getattr(x, f.name), scope) for f in dataclasses.fields(x)}
    return None


def _filler(value, dtype):
    """A number for elements of the dtype: a float as text, of integers the bits."""
    value = np.asarray(value)
    if value.shape:
        raise ExportError(f"fill_value is an array of shape {value.shape}, not a number")
    if jax.dtypes.issubdtype(dtype, np.integer) and jax.dtypes.issubdtype(value.dtype, np.integer):
        return int(value) % 2**64
    return bool(value) if dtype == bool else repr(float(value))


_CASTS = ("convert_element_type", "bitcast_convert_type", "bitcast")
# fmt: off
_KEEPS = {
    *expansions.MOVES, "max", "min", "reduce_max", "reduce_min", "sort", "pad", "roll", "select_n", "stop_gradient",
    "optimization_barrier", "name", "broadcast_to", "expand_dims",
}
# fmt: on
_ACCESSES = ("get", "swap", "addupdate", "masked_load", "masked_swap", "atomic_rmw")


def body_of(jaxpr, scope):
    """A jaxpr among an equation's parameters."""
    return jaxpr_json(jaxpr, scope.source)


def _chosen(eqn, scope):
    """A branch in an index map, which only computes: all branches, and a choice among their results."""
    branches, at, types = (
        eqn.params["branches"],
        scope.source.line(eqn.source_info),
        [type_of(v.aval) for v in eqn.outvars],
    )
    count, width = len(eqn.invars), len(types)
    equations = [
        {
            "p": "closed_call",
            "at": at,
            "in": list(range(1, count)),
            "params": {"call_jaxpr": jaxpr_json(b, scope.source)},
            "out": types,
        }
        for b in branches
    ]
    equations += [
        {
            "p": "select_n",
            "at": at,
            "in": [0, *(count + b * width + i for b in range(len(branches)))],
            "params": {},
            "out": [t],
        }
        for i, t in enumerate(types)
    ]
    body = {
        "args": [type_of(v.aval) for v in eqn.invars],
        "eqns": equations,
        "out": [count + len(branches) * width + i for i in range(width)],
    }
    return {"p": "closed_call", "in": [scope.operand(v) for v in eqn.invars], "params": {"call_jaxpr": body}}


def _axis_index(name, scope):
    """Of an axis around the call, which the call gets as an operand."""
    if scope.source.tables is None:
        raise ExportError(
            f"{name!r} is an axis of the mesh around the call, where an index map cannot look",
            note="pass lax.axis_index as a scalar-prefetch operand",
        )
    return {"p": "name", "in": [scope.source.table(MeshAxis(name))], "params": {}}


def _equation(eqn, scope):
    if (
        eqn.primitive.name == "axis_index"
        and (name := eqn.params["axis_name"]) in scope.source.mesh_axes
        and name not in scope.source.grid_names
    ):
        return _axis_index(name, scope)
    if eqn.primitive.name in _ACCESSES:
        return _access(eqn, scope)
    if eqn.primitive.name in ("dma_start", "dma_wait"):
        return _copy(eqn, scope)
    if eqn.primitive.name in ("semaphore_read", "semaphore_signal", "semaphore_wait"):
        return _semaphore(eqn, scope)
    if eqn.primitive.name == "debug_print":
        return _debug_print(eqn, scope)
    if eqn.primitive.name == "check":
        return _check(eqn, scope)
    if eqn.primitive.name == "cond" and scope.source.in_index_map:
        return _chosen(eqn, scope)
    if (e := mosaic_gpu.equation(eqn, scope)) is not None:
        return e
    if eqn.primitive.name in _SAME:
        return {"p": "name", "in": [scope.operand(v) for v in eqn.invars], "params": {}}
    narrow = [
        v.aval.dtype for v in eqn.outvars if wide(getattr(v.aval, "dtype", None)) != getattr(v.aval, "dtype", None)
    ]
    if eqn.primitive.name == "convert_element_type" and narrow:
        return _expanded(lambda x: expansions.rounded_to(x, narrow[0]), eqn, scope)
    if (
        narrow
        and eqn.primitive.name not in _KEEPS
        and not list(core.jaxprs_in_params(eqn.params))
        or "bitcast" in eqn.primitive.name
        and wide(eqn.invars[0].aval.dtype) != eqn.invars[0].aval.dtype
    ):
        raise ExportError(
            f"kernels load, store, move and convert {(narrow or [eqn.invars[0].aval.dtype])[0].name}, but do not"
            " compute with it",
            note="x.astype(jnp.float32) or another wide dtype before",
        )
    if f := expansions.expansion(eqn.primitive.name, eqn.params):
        return _expanded(f, eqn, scope)
    if eqn.primitive.name in expansions.MOVES and any(key_shape(getattr(v.aval, "dtype", None)) for v in eqn.invars):
        return _expanded(
            expansions.on_words(eqn.primitive, eqn.params, [len(key_shape(v.aval.dtype)) for v in eqn.invars]),
            eqn,
            scope,
            words=True,
        )
    if eqn.params.get("collective_axes"):
        raise ExportError("collective axes are not supported")
    params = {k: _plain(v, scope) for k, v in jax_versions.params(eqn).items()}
    if (fill := eqn.params.get("fill_value")) is not None:
        params["fill_value"] = _filler(fill, eqn.outvars[0].aval.dtype)
    return {"in": [scope.operand(v) for v in eqn.invars], "params": {k: v for k, v in params.items() if v is not None}}
