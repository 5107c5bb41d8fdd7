"""Puts Tessera where JAX lowers pallas_call on its CPU platform: the kernel is exported, checked and compiled while JAX lowers the function around it,
and called by XLA without Python."""

import contextlib
import dataclasses
import hashlib
import threading
import types
import warnings

import jax
from jax._src import core
from jax._src.interpreters import mlir
from jax._src.pallas import pallas_call as pallas_call_module
from jax._src.pallas.mosaic import tpu_info
from jax._src.random import prng
from jax.extend import pallas as pallas_extend

from tessera import jaxpr
from tessera._native_library import Error, check, counts, device_name, native

_TARGET = "tessera_call"
_lock = threading.Lock()
_stock = pallas_call_module._pallas_call_lowering  # JAX's own rule
_registered = False  # the handler, which stays
_where = jax.make_user_context(None)  # (device, fallback); part of the key under which JAX keeps what it has traced and compiled


@dataclasses.dataclass(frozen=True)
class CompilerParams:
    """compiler_params of one pallas_call: it runs on Tessera's `device` wherever install() and on() point, or point nowhere. dimension_semantics as in
    pltpu.CompilerParams: "parallel" or "arbitrary" per axis of the grid."""
    device: str = "vulkan"
    dimension_semantics: tuple | None = None
    fallback: bool = False

    def __post_init__(self):
        if isinstance(self.dimension_semantics, str):
            raise Error(f"tessera.CompilerParams: dimension_semantics is {self.dimension_semantics!r}, but should have an entry per axis of the grid: "
                        f"({self.dimension_semantics!r},) for one")
        if self.dimension_semantics is not None:
            object.__setattr__(self, "dimension_semantics", tuple(self.dimension_semantics))
        _hook()  # JAX asks the rules that are registered with it on its GPU and TPU platforms only

    def replace(self, **changes):  # which JAX calls for pl.kernel on some meshes
        return dataclasses.replace(self, **changes)


def _other_platform(ctx, *nodes, compiler_params, **params):
    raise Error(f"{params.get('name') or 'pallas_call'}: tessera.CompilerParams runs kernels on JAX's CPU platform only, and this call is lowered for "
                f"{', '.join(ctx.module_context.platforms)}\n  note: put its arguments on jax.devices('cpu')[0]; Tessera uses the GPU through Vulkan from there")


# emit_pipeline and some libraries ask what TPU they are traced for. On the CPU platform they get to hear of one, since any will do: what they choose by
# it (tile sizes, numbers of buffers) runs everywhere.
_CPU = "cpu"


def _tpu():
    return tpu_info.get_tpu_info_for_chip(tpu_info.ChipVersion.TPU_V5E, 1)


def _place(rule):
    mlir.register_lowering(pallas_call_module.pallas_call_p, rule)
    pallas_call_module._pallas_call_lowering = rule  # what pl.kernel and core_map call


def _hook():
    global _registered
    with _lock:
        if not _registered:
            jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(native.tessera_call), platform="cpu")
            pallas_extend.register_lowering_rule(CompilerParams, _other_platform, "gpu")
            _registered = True
        _place(_lower)
        tpu_info.registry.setdefault(_CPU, _tpu)


def params_of_pl_kernel(eqn):
    """The params of the pallas_call that an equation of pl.kernel (mpmd_map) comes to on the CPU platform: what JAX's own rule for it hands on."""
    from jax._src.pallas import mpmd
    found = []
    with _lock:
        before = pallas_call_module._pallas_call_lowering
        pallas_call_module._pallas_call_lowering = lambda ctx, *nodes, interpret, **params: found.append(params)
        try:
            mpmd._mpmd_map_fallback_lowering(types.SimpleNamespace(avals_in=[v.aval for v in eqn.invars]), *eqn.invars, **eqn.params)
        finally:
            pallas_call_module._pallas_call_lowering = before
    return found[0]


def install(device, fallback):
    device = device_name(device)
    _hook()
    _where.set_global((device, fallback))


def uninstall():
    _where.set_global(None)
    with _lock:
        _place(_stock)
        if tpu_info.registry.get(_CPU) is _tpu:
            del tpu_info.registry[_CPU]


@contextlib.contextmanager
def on(device, fallback):
    device = device_name(device)
    _hook()
    with _where((device, fallback)):
        yield


def _lower(ctx, *nodes, interpret, **params):
    where, own = _where.value, params.get("compiler_params")
    if isinstance(own, CompilerParams):
        where = device_name(own.device), own.fallback
    if interpret or where is None or tuple(ctx.module_context.platforms) != ("cpu",):
        return _stock(ctx, *nodes, interpret=interpret, **params)
    device, fallback = where
    tables = []
    try:
        text = jaxpr.export(**params, tables=tables).encode()
        key = hashlib.sha256(text).hexdigest()
        check(native.tessera_prepare(text, len(text), key.encode(), device.encode()))
    except (Error, jaxpr.ExportError) as error:
        if not fallback:
            raise Error(str(error)) from None
        counts["fallbacks"] += 1
        warnings.warn(f"JAX's interpreter runs what Tessera cannot: {error}", stacklevel=2)
        return _stock(ctx, *nodes, interpret=True, **params)
    keys = [a.dtype if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else None for a in params["out_avals"]]
    results = [core.physical_aval(a) if key else a for a, key in zip(params["out_avals"], keys)]
    results = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in results]
    dynamic = params["grid_mapping"].num_dynamic_grid_bounds  # pallas_call does not count the grid's sizes among its operands
    # XLA then gives both the same memory where the argument is not needed any more; else it copies.
    aliases = {dynamic + int(i): int(o) for i, o in params["input_output_aliases"]}

    speaks = any(f'"p": "{p}"'.encode() in text for p in ("debug_print", "check"))  # else XLA leaves a call out whose results nobody uses

    def call(*args):
        args = [jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in args]
        made = jax.ffi.ffi_call(_TARGET, results, input_output_aliases=aliases, has_side_effect=speaks)(*args, *tables, module=text.decode(), key=key, device=device)
        return [prng.random_wrap(a, impl=k._impl) if k else a for a, k in zip(made, keys)]
    return mlir.lower_fun(call, multiple_results=True)(ctx, *nodes)
