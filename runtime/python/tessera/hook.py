"""Puts Tessera where JAX lowers pallas_call on its CPU platform: the kernel is exported, checked and compiled while JAX
lowers the function around it, and called by XLA without Python."""

import contextlib
import dataclasses
import hashlib
import threading
import types
import warnings

import jax
from jax._src import core, effects
from jax._src.interpreters import mlir
from jax._src.lax import parallel
from jax._src.pallas import pallas_call as pallas_call_module
from jax._src.random import prng
from jax.extend import pallas as pallas_extend

from tessera import equations, jax_versions, jaxpr, mosaic_gpu
from tessera.jax_versions import tpu_info
from tessera._native_library import Error, check, counts, device_name, native, unnamed_cpu_driver

_TARGET = "tessera_call"
_lock = threading.Lock()
_stock = pallas_call_module._pallas_call_lowering  # JAX's own rule
_registered = False  # the handler, which stays
# contexts of on() that have been entered, and 1 for CompilerParams that were made: uninstall() leaves them what they
# need
_needed = 0
_going = False  # uninstall() was called, and nothing was installed since
_params_made = False
_looked = False  # for a device that is none of the GPU's
# (device, fallback); part of the key under which JAX keeps what it has traced and compiled
_where = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class CompilerParams:
    """compiler_params of one pallas_call: it runs on Tessera's `device` wherever install() and on() point, or point
    nowhere. dimension_semantics as in pltpu.CompilerParams: "parallel" or "arbitrary" per axis of the grid."""

    device: str = "vulkan"
    dimension_semantics: tuple | None = None
    fallback: bool = False

    def __post_init__(self):
        if isinstance(self.dimension_semantics, str):
            raise Error(
                f"tessera.CompilerParams: dimension_semantics is {self.dimension_semantics!r}, but should have an entry"
                f" per axis of the grid: ({self.dimension_semantics!r},) for one"
            )
        if self.dimension_semantics is not None:
            object.__setattr__(self, "dimension_semantics", tuple(self.dimension_semantics))
        _keep()
        _hook()  # JAX asks the rules that are registered with it on its GPU and TPU platforms only

    def replace(self, **changes):  # which JAX calls for pl.kernel on some meshes
        return dataclasses.replace(self, **changes)


def _other_platform(ctx, *nodes, compiler_params, **params):
    raise Error(
        f"{params.get('name') or 'pallas_call'}: tessera.CompilerParams runs kernels on JAX's CPU platform only, and"
        f" this call is lowered for {', '.join(ctx.module_context.platforms)}\n  note: put its arguments on"
        " jax.devices('cpu')[0]; Tessera uses the GPU through Vulkan from there"
    )


def _tpu():
    return tpu_info.get_tpu_info_for_chip(tpu_info.ChipVersion.TPU_V5E, 1)


class _AnyChip(dict):
    """emit_pipeline and some libraries ask what TPU they are traced for. Whatever the default device is called, they
    get to hear of one, since any will do: what they choose by it (tile sizes, numbers of buffers) runs everywhere."""

    def __contains__(self, kind):
        return True

    def __missing__(self, kind):
        return _tpu


def _place(rule):
    mlir.register_lowering(pallas_call_module.pallas_call_p, rule)
    pallas_call_module._pallas_call_lowering = rule  # what pl.kernel and core_map call


def _keep():
    """CompilerParams hold for their calls, installed or not."""
    global _needed, _params_made
    with _lock:
        _needed, _params_made = _needed + (not _params_made), True


def _hook():
    global _registered, _going
    with _lock:
        _going = False
        if not _registered:
            jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(native.tessera_call), platform="cpu")
            pallas_extend.register_lowering_rule(CompilerParams, _other_platform, "gpu")
            jax_versions.let_export(_TARGET)
            _registered = True
        _place(_lower)
        if not isinstance(tpu_info.registry, _AnyChip):
            tpu_info.registry = _AnyChip(tpu_info.registry)


def params_of_pl_kernel(eqn):
    """The params of the pallas_call that an equation of pl.kernel (mpmd_map) comes to on the CPU platform: what JAX's
    own rule for it hands on."""
    from jax._src.pallas import mpmd

    found = []
    with _lock:
        before = pallas_call_module._pallas_call_lowering
        pallas_call_module._pallas_call_lowering = lambda ctx, *nodes, interpret, **params: found.append(params)
        try:
            mpmd._mpmd_map_fallback_lowering(
                types.SimpleNamespace(avals_in=[v.aval for v in eqn.invars]), *eqn.invars, **eqn.params
            )
        finally:
            pallas_call_module._pallas_call_lowering = before
    return found[0]


def _tell_of_cpu_driver():
    """Once: the interpreter is quicker for most kernels than Vulkan's drivers for the CPU."""
    global _looked
    with _lock:
        first, _looked = not _looked, True
    if first and (driver := unnamed_cpu_driver()):
        warnings.warn(
            f'tessera: the only Vulkan device is a driver for the CPU, {driver}: tessera.install("interpreter") runs'
            " most kernels faster, TESSERA_DEVICE=vulkan silences this",
            stacklevel=4,
        )


def install(device, fallback):
    device = device_name(device)
    if device == "vulkan":
        _tell_of_cpu_driver()
    _hook()
    _where.set_global((device, fallback))


def _leave():
    """Under the lock: puts back JAX's own, once nobody needs ours."""
    if not _going or _needed:
        return
    _place(_stock)
    if isinstance(tpu_info.registry, _AnyChip):
        tpu_info.registry = dict(tpu_info.registry)


def uninstall():
    global _going
    _where.set_global(None)
    with _lock:
        _going = True
        _leave()


@contextlib.contextmanager
def on(device, fallback):
    global _needed
    device = device_name(device)
    with _lock:
        _needed += 1
    try:
        _hook()
        with _where((device, fallback)):
            yield
    finally:
        with _lock:
            _needed -= 1
            _leave()


def grid_size(n):
    """A size that a call gives its grid, as i32 or i64: one that no i32 holds is too large, and not negative."""
    if n.dtype in (jax.numpy.int32, jax.numpy.int64):
        return n
    return (jax.numpy.minimum(n, 2**31 - 1) if n.dtype.itemsize >= 4 else n).astype(jax.numpy.int32)


def _axes_around(ctx):
    """The names of the axes of the mesh whose devices each run the code that is lowered (shard_map, pmap)."""
    return getattr(getattr(ctx.module_context.axis_context, "mesh", None), "axis_names", ())


def _lower(ctx, *nodes, interpret, **params):
    where, own = _where.value, params.get("compiler_params")
    if isinstance(own, CompilerParams):
        where = device_name(own.device), own.fallback
    platforms = tuple(ctx.platforms or ctx.module_context.platforms)
    if interpret or where is None or "cpu" not in platforms:
        return _stock(ctx, *nodes, interpret=interpret, **params)
    if len(platforms) > 1:  # what is exported for several has each platform's own code
        return mlir.lower_per_platform(
            ctx, "pallas_call", {"cpu": _lower}, _stock, effects.no_effects, *nodes, interpret=interpret, **params
        )
    device, fallback = where
    tables = []
    try:
        text = jaxpr.export(**params, tables=tables, mesh_axes=_axes_around(ctx)).encode()
        key = hashlib.sha256(text).hexdigest()
        check(native.tessera_prepare(text, len(text), key.encode(), device.encode()))
    except (Error, equations.ExportError) as error:
        if not fallback or mosaic_gpu.is_mesh(params.get("mesh")):  # JAX's interpreter of blocks has no threads
            raise Error(str(error)) from None
        counts["fallbacks"] += 1
        warnings.warn(f"JAX's interpreter runs what Tessera cannot: {error}", stacklevel=2)
        return _stock(ctx, *nodes, interpret=True, **params)
    for output, at in jaxpr.accumulates_into_nothing(
        params["jaxpr"], params["grid_mapping"], {int(o) for _, o in params["input_output_aliases"]}
    ):
        warnings.warn(
            f"{params.get('name') or params['jaxpr'].debug_info.func_name}: output {output} is read before anything is"
            f" stored there: what it holds then is unspecified\n  at {at}\n  note: store first, under"
            " @pl.when(pl.program_id(axis) == 0) where programs accumulate",
            stacklevel=2,
        )
    keys = [a.dtype if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else None for a in params["out_avals"]]
    results = [core.physical_aval(a) if key else a for a, key in zip(params["out_avals"], keys)]
    results = [jax.ShapeDtypeStruct(a.shape, equations.wide(a.dtype)) for a in results]
    # pallas_call does not count the grid's sizes among its operands
    dynamic = params["grid_mapping"].num_dynamic_grid_bounds
    # XLA then gives both the same memory where the argument is not needed any more; else it copies.
    aliases = {dynamic + int(i): int(o) for i, o in params["input_output_aliases"]}

    # else XLA leaves a call out whose results nobody uses
    speaks = any(f'"p": "{p}"'.encode() in text for p in ("debug_print", "check"))

    def call(*args):
        args = [
            (
                jax.random.key_data(a)
                if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)
                else a.astype(equations.wide(a.dtype))
            )
            for a in args
        ]
        args[:dynamic] = map(grid_size, args[:dynamic])
        behind = [
            parallel.axis_index_p.bind(axis_name=t.name) if isinstance(t, equations.MeshAxis) else t for t in tables
        ]
        made = jax.ffi.ffi_call(_TARGET, results, input_output_aliases=aliases, has_side_effect=speaks)(
            *args, *behind, module=text.decode(), key=key, device=device
        )
        return [
            prng.random_wrap(a, impl=k._impl) if k else a.astype(o.dtype)
            for a, k, o in zip(made, keys, params["out_avals"])
        ]

    return mlir.lower_fun(call, multiple_results=True)(ctx, *nodes)
