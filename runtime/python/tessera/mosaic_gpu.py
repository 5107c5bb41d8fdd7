"""Kernels of jax.experimental.pallas.mosaic_gpu: what their mesh says, and the primitives whose places JAX flattens into trees. JAX's module is not imported
here: it needs packages that JAX itself does not (absl), so its classes are known by their names."""

import jax
from jax._src import core

from tessera import jaxpr, jax_versions

_MODULE = "jax._src.pallas.mosaic_gpu"


def _is(x, *names):
    return type(x).__name__ in names and type(x).__module__.startswith(_MODULE)


def is_mesh(mesh):
    return _is(mesh, "Mesh")


def describe_mesh(mesh):
    """How the axes of the call's grid divide: those of the grid, those of the cluster, and the threads."""
    for name in mesh.shape:
        if not isinstance(name, str):
            raise jaxpr.ExportError("vmap of a kernel of mosaic_gpu is not supported", note="loop over the batch, or give the kernel an axis of its grid for it")
    return {"grid": len(mesh.grid), "cluster": len(mesh.cluster), "threads": mesh.num_threads is not None}


def debug_info(jaxpr):
    """Of the user's body, which JAX has inside a run_scoped of a body of its own."""
    scoped = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "run_scoped"]
    return (scoped[0] if scoped else jaxpr).debug_info


def space(aval):
    """The IR's memory space of a Ref that has one of its own here, or None."""
    if _is(aval, "WGMMAAbstractAccumulatorRef"):
        return "accumulator"
    if _is(aval, "AbstractTMEMRef"):
        raise jaxpr.ExportError("tensor memory is Blackwell's", note="accumulators of Hopper's wgmma are plgpu.ACC")
    if _is(aval, "AbstractRefUnion"):
        raise jaxpr.ExportError("a RefUnion is not supported", note="give each its own plgpu.SMEM")
    dtype = getattr(aval.inner_aval, "dtype", None)
    if _is(dtype, "BarrierType", "ClusterBarrierType"):
        return "barrier" if _is(dtype, "BarrierType") else "cluster_barrier"
    return None


def transform(t):
    """How elements of smem lie, or None: the importer gives the memory its shape before that."""
    if _is(t, "UntilingTransform"):
        return {"untile": [int(n) for n in t.tiling]}
    if _is(t, "UnswizzleRef"):
        return {"unswizzle": int(t.swizzle)}
    return None


def _axes(axes):
    flat = []
    for axis in (axes,) if isinstance(axes, str) else axes or ():
        flat += [axis] if isinstance(axis, str) else axis
    for axis in flat:
        if not isinstance(axis, str):
            raise jaxpr.ExportError("vmap of a kernel of mosaic_gpu is not supported", note="loop over the batch, or give the kernel an axis of its grid for it")
    return flat


def _places(eqn, scope, names, trees):
    """The first operands are Refs, behind them lie the leaves of each one's transforms: (operands, params, what is left of the operands)."""
    refs, leaves, params = eqn.invars[:len(names)], list(eqn.invars[len(names):]), {}
    for name, ref, key in zip(names, refs, trees):
        tree = eqn.params[key]
        count = tree.num_leaves if tree is not None else 0
        transforms = tree.unflatten(leaves[:count]) if tree is not None else ()
        del leaves[:count]
        params[name] = jaxpr.views(transforms, scope)
    return [scope.operand(v) for v in refs], params, leaves


def _copy_gmem_to_smem(eqn, scope):
    if eqn.params.get("leader_tracked") is not None:
        raise jaxpr.ExportError("copies that a leader tracks feed products of two blocks, which are Blackwell's")
    operands, params, _ = _places(eqn, scope, ("source", "target", "barrier"), ("src_transforms_treedef", "dst_transforms_treedef", "barrier_transforms_treedef"))
    return {"in": operands, "params": params | {"collective_axes": _axes(eqn.params.get("collective_axes"))}}


def _copy_smem_to_gmem(eqn, scope):
    operands, params, rest = _places(eqn, scope, ("source", "target"), ("src_transforms_treedef", "dst_transforms_treedef"))
    params["commit_group"] = bool(eqn.params["commit_group"])
    if eqn.params["has_user_predicate"]:
        params["predicate"] = scope.operand(rest[0])
    if eqn.params["reduction_op"] is not None:
        params["reduction_op"] = str(getattr(eqn.params["reduction_op"], "value", eqn.params["reduction_op"]))
    return {"in": operands, "params": params}


def _barrier(eqn, scope):
    operands, params, _ = _places(eqn, scope, ("barrier",), ("transforms_treedef",))
    return {"in": operands, "params": params}


def _wgmma(eqn, scope):
    operands, params, _ = _places(eqn, scope, ("accumulator", "a", "b"), ("acc_transforms_tree", "a_transforms_tree", "b_transforms_tree"))
    for side in "ab":  # a product reads the transpose of an operand; no view of it is made
        if params[side] and params[side][-1] == {"transpose": [1, 0]}:
            params[side].pop()
            params[f"{side}_transposed"] = True
    return {"in": operands, "params": params}


def _load(eqn, scope):
    operands, params, _ = _places(eqn, scope, ("transforms",), ("tree" if "tree" in eqn.params else "args_tree",))
    return {"p": "get", "in": operands, "params": params}


def _scratch(aval, transforms):
    """What the TYPE of a Ref in run_scoped leaves open."""
    dtype, more = getattr(aval.inner_aval, "dtype", None), {"transforms": [transform(t) for t in transforms]}
    if None in more["transforms"]:
        raise jaxpr.ExportError(f"memory by {type(transforms[more['transforms'].index(None)]).__name__} is not supported")
    if _is(dtype, "BarrierType", "ClusterBarrierType"):
        more |= {"num_arrivals": int(dtype.num_arrivals), "orders_tensor_core": bool(dtype.orders_tensor_core), "collective_axes": _axes(getattr(dtype, "collective_axes", ()))}
        if getattr(dtype, "leader_tracked", False):
            raise jaxpr.ExportError("barriers that a leader tracks are of products of two blocks, which are Blackwell's")
    return more


def _run_scoped(eqn, scope):
    params = jax_versions.params(eqn)
    body, _ = jax_versions.jaxpr_and_constants(params["jaxpr"])
    made = body.invars[len(body.invars) - len(params["ref_transforms"]):] if params.get("ref_transforms") else body.invars[len(eqn.invars) - len(body.constvars):]
    transforms = params.get("ref_transforms") or [()] * len(made)
    return {"in": [scope.operand(v) for v in eqn.invars],
            "params": {"jaxpr": jaxpr.body_of(params["jaxpr"], scope), "collective_axes": _axes(params.get("collective_axes")),
                       "types": [_scratch(v.aval, t) for v, t in zip(made, transforms)]}}


_REFUSED = {
    "async_prefetch": "is not supported", "async_store_smem": "is not supported", "barrier_test": "is not supported", "print_layout": "is not supported",
    "griddepcontrol_wait": "is not supported", "griddepcontrol_launch_dependents": "is not supported", "inline_mgpu": "is code of JAX's own dialect",
    "try_cluster_cancel": "is Blackwell's", "query_cluster_cancel": "is Blackwell's", "multimem_store": "is of several devices", "multimem_load_reduce": "is of several devices",
    "semaphore_signal_multicast": "is of several devices", "semaphore_signal_parallel": "is not supported"}
_EQUATIONS = {
    "barrier_arrive": _barrier, "barrier_wait": _barrier, "copy_gmem_to_smem": _copy_gmem_to_smem, "copy_smem_to_gmem": _copy_smem_to_gmem, "run_scoped": _run_scoped,
    "wgmma_ref": _wgmma}


def equation(eqn, scope):
    """An equation of mosaic_gpu's own, or None."""
    name = jax_versions.primitive(eqn)
    if name in _REFUSED or name.startswith("tcgen05_") or "tmem" in name:
        raise jaxpr.ExportError(_REFUSED.get(name, "is Blackwell's"))
    if name == "run_scoped" and not _in_threads(eqn):
        return None
    if name == "load" and "optimized" in eqn.params:
        return _load(eqn, scope)
    return _EQUATIONS[name](eqn, scope) if name in _EQUATIONS else None


def _in_threads(eqn):
    """Whether a run_scoped makes something that only these kernels have."""
    if eqn.params.get("collective_axes") or any(eqn.params.get("ref_transforms") or ()):
        return True
    body, _ = jax_versions.jaxpr_and_constants(eqn.params["jaxpr"])
    return any(isinstance(v.aval, core.AbstractValue) and hasattr(v.aval, "inner_aval") and space(v.aval) for v in body.invars)
