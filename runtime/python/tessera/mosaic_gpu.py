"""Kernels of jax.experimental.pallas.mosaic_gpu: what their mesh says, and the primitives whose places JAX flattens
into trees. JAX's module is not imported here: it needs packages that JAX itself does not (absl), so its classes are
known by their names."""

import dataclasses

import jax
import numpy as np
from jax._src import core

from tessera import equations, jax_versions

_MODULE = "jax._src.pallas.mosaic_gpu"


def _is(x, *names):
    return type(x).__name__ in names and type(x).__module__.startswith(_MODULE)


def is_mesh(mesh):
    return _is(mesh, "Mesh")


def _check_names(axes):
    """vmap's axes have objects for names."""
    if not all(isinstance(name, str) for name in axes):
        raise equations.ExportError(
            "vmap of a kernel of mosaic_gpu is not supported",
            note="loop over the batch, or give the kernel an axis of its grid for it",
        )


def describe_mesh(mesh, compiler_params):
    """How the axes of the call's grid divide: those of the grid, those of the cluster, and the threads."""
    if len(mesh.shape) != len(mesh.grid) + len(mesh.cluster) + (mesh.num_threads is not None):
        raise equations.ExportError(
            "two axes have the same name",
            note="grid_names, cluster_names and thread_name differ, so that axis_index finds one axis",
        )
    for s in getattr(compiler_params, "dimension_semantics", None) or ():
        if s != "parallel":
            raise equations.ExportError(
                f"dimension_semantics has {s!r}, but the programs of plgpu.kernel run at once",
                note="loop inside the body: plgpu.nd_loop, lax.fori_loop",
            )
    _check_names(mesh.shape)
    return {"grid": len(mesh.grid), "cluster": len(mesh.cluster), "threads": mesh.num_threads is not None}


def debug_info(jaxpr):
    """Of the user's body, which JAX has inside a run_scoped of a body of its own."""
    scoped = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "run_scoped"]
    return (scoped[0] if scoped else jaxpr).debug_info


_THREADS = (
    "barrier_arrive",
    "barrier_wait",
    "commit_group",
    "commit_smem",
    "copy_gmem_to_smem",
    "copy_smem_to_gmem",
    "wait_smem_to_gmem",
    "wgmma_ref",
    "wgmma_wait",
    "wgmma_accumulator_deref",
    "wgmma_accumulator_store",
    "set_max_registers",
)


def _has_threads(jaxpr):
    return any(
        jax_versions.primitive(eqn) in _THREADS
        or any(_has_threads(jax_versions.jaxpr_and_constants(j)[0]) for j in core.jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def is_pipeline(*, jaxpr, grid_mapping, compiler_params=None, mesh=None, **_):
    """Whether a pallas_call must be what JAX makes of it on a GPU: it uses what only those kernels have. Others are
    kernels of blocks like any."""
    if mesh is not None or not _is(compiler_params, "CompilerParams"):
        return False
    return (
        any(m.transforms for m in grid_mapping.block_mappings)
        or any(hasattr(a, "inner_aval") and space(a) for a in grid_mapping.scratch_avals)
        or _has_threads(jaxpr)
    )


def as_pipeline(*, jaxpr, grid_mapping, compiler_params, name=None, input_output_aliases=(), metadata=None, **_):
    """The params of the plgpu.kernel that is such a call: a program per point of its parallel axes, with a pipeline
    over the others that calls the kernel's jaxpr."""
    from jax._src.pallas.mosaic_gpu import core as gpu
    from jax._src.pallas.mosaic_gpu import pipeline
    from jax._src.pallas import core as pallas, primitives

    from tessera import hook

    gm, semantics = grid_mapping, compiler_params.dimension_semantics
    if gm.num_index_operands or gm.num_dynamic_grid_bounds or gm.vmapped_dims or input_output_aliases:
        raise equations.ExportError(
            "a pallas_call with GPU memory has no scalar prefetch, aliases, vmap or grid whose size arrives with the"
            " call",
            note="plgpu.kernel has what they are for",
        )
    parallel = [semantics is None or s == "parallel" for s in semantics or gm.grid]
    names = [n if isinstance(n, str) else f"axis_{i}" for i, n in enumerate(gm.grid_names or [None] * len(gm.grid))]
    inputs = gm.block_mappings[: gm.num_inputs]

    def merged(steps):
        steps, programs = iter(steps), iter(range(len(gm.grid)))
        return [primitives.program_id(next(programs)) if p else next(steps) for p in parallel]

    def spec(m):
        jaxpr, consts = jax_versions.jaxpr_and_constants(m.index_map_jaxpr)
        return gpu.BlockSpec(
            m.block_shape,
            lambda *steps: core.eval_jaxpr(jaxpr, consts, *merged(steps)),
            memory_space=m.transformed_block_aval.memory_space,
            transforms=m.transforms,
        )

    def scratch(aval):
        if _is(aval, "WGMMAAbstractAccumulatorRef"):
            return gpu.WGMMAAccumulatorRef(aval.shape, aval.dtype)
        unset = aval.memory_space is None or aval.memory_space is pallas.MemorySpace.DEFAULT
        return pallas.MemoryRef(
            core.ShapedArray(aval.shape, aval.dtype), gpu.MemorySpace.GMEM if unset else aval.memory_space
        )

    def program(*refs):
        def scoped(*own):
            def step(indices, *blocks):
                indices = iter(indices)
                jax_versions.jaxpr_call(
                    jaxpr, *blocks, *own, program_ids=[None if p else next(indices) for p in parallel]
                )

            pipeline.emit_pipeline(
                step,
                grid=tuple(n for n, p in zip(gm.grid, parallel) if not p),
                in_specs=[spec(m) for m in inputs],
                out_specs=[spec(m) for m in gm.block_mappings[gm.num_inputs :]],
                max_concurrent_steps=compiler_params.max_concurrent_steps,
            )(*refs)

        primitives.run_scoped(scoped, *(scratch(a) for a in gm.scratch_avals))

    program.__name__ = name or (jaxpr.debug_info.func_name if jaxpr.debug_info else "kernel")
    arrays = [jax.ShapeDtypeStruct(m.array_aval.shape, m.array_aval.dtype) for m in gm.block_mappings]
    kernel = gpu.kernel(
        program,
        out_type=arrays[gm.num_inputs :],
        grid=tuple(n for n, p in zip(gm.grid, parallel) if p),
        grid_names=tuple(n for n, p in zip(names, parallel) if p),
    )
    found = []

    def walk(j):
        for eqn in j.eqns:
            if eqn.primitive.name == "mpmd_map":
                found.append(eqn)
            for sub in core.jaxprs_in_params(eqn.params):
                walk(jax_versions.jaxpr_and_constants(sub)[0])

    walk(jax.make_jaxpr(kernel)(*arrays[: gm.num_inputs]).jaxpr)
    return hook.params_of_pl_kernel(found[0]) | {
        "compiler_params": dataclasses.replace(compiler_params, dimension_semantics=None),
        "name": program.__name__,
        "metadata": metadata,
    }


def space(aval):
    """The IR's memory space of a Ref that has one of its own here, or None."""
    if _is(aval, "WGMMAAbstractAccumulatorRef"):
        return "accumulator"
    if _is(aval, "AbstractTMEMRef"):
        raise equations.ExportError("tensor memory is Blackwell's", note="accumulators of Hopper's wgmma are plgpu.ACC")
    if _is(aval, "AbstractRefUnion"):
        raise equations.ExportError("a RefUnion is not supported", note="give each its own plgpu.SMEM")
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
    _check_names(flat)
    return flat


def _places(eqn, scope, names, trees):
    """The first operands are Refs, behind them lie the leaves of each one's transforms: (operands, params, what is left
    of the operands)."""
    refs, leaves, params = eqn.invars[: len(names)], list(eqn.invars[len(names) :]), {}
    for name, ref, key in zip(names, refs, trees):
        tree = eqn.params[key]
        count = tree.num_leaves if tree is not None else 0
        transforms = tree.unflatten(leaves[:count]) if tree is not None else ()
        del leaves[:count]
        params[name] = equations.views(transforms, scope)
    return [scope.operand(v) for v in refs], params, leaves


def _number(eqn, scope):
    n = jax_versions.number(eqn)
    params = {k: v for k, v in eqn.params.items() if k != "n"}
    return {"in": [equations.constant(n, np.int32) if isinstance(n, int) else scope.operand(n)], "params": params}


def _copy_gmem_to_smem(eqn, scope):
    if not eqn.params.get("has_barrier", True):
        raise equations.ExportError(
            "copies without a barrier are those of GPUs before Hopper", note="give it a plgpu.Barrier"
        )
    _check_no_predicate(eqn)
    if eqn.params.get("leader_tracked") is not None:
        raise equations.ExportError("copies that a leader tracks feed products of two blocks, which are Blackwell's")
    operands, params, _ = _places(
        eqn,
        scope,
        ("source", "target", "barrier"),
        ("src_transforms_treedef", "dst_transforms_treedef", "barrier_transforms_treedef"),
    )
    return {"in": operands, "params": params | {"collective_axes": _axes(eqn.params.get("collective_axes"))}}


def _copy_smem_to_gmem(eqn, scope):
    operands, params, rest = _places(
        eqn, scope, ("source", "target"), ("src_transforms_treedef", "dst_transforms_treedef")
    )
    params["commit_group"] = bool(eqn.params["commit_group"])
    if eqn.params["has_user_predicate"]:
        params["predicate"] = scope.operand(rest[0])
    if eqn.params["reduction_op"] is not None:
        params["reduction_op"] = str(getattr(eqn.params["reduction_op"], "value", eqn.params["reduction_op"]))
    return {"in": operands, "params": params}


def _check_no_predicate(eqn):
    if eqn.params.get("has_user_predicate"):
        raise equations.ExportError("a predicate is not supported", note="put it under pl.when(predicate)")


def _barrier(eqn, scope):
    _check_no_predicate(eqn)
    operands, params, _ = _places(eqn, scope, ("barrier",), ("transforms_treedef",))
    return {"in": operands, "params": params}


def _wgmma(eqn, scope):
    operands, params, _ = _places(
        eqn, scope, ("accumulator", "a", "b"), ("acc_transforms_tree", "a_transforms_tree", "b_transforms_tree")
    )
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
        raise equations.ExportError(
            f"memory by {type(transforms[more['transforms'].index(None)]).__name__} is not supported"
        )
    if _is(dtype, "BarrierType", "ClusterBarrierType"):
        more |= {
            "num_arrivals": int(dtype.num_arrivals),
            "orders_tensor_core": bool(dtype.orders_tensor_core),
            "collective_axes": _axes(getattr(dtype, "collective_axes", ())),
        }
        if getattr(dtype, "leader_tracked", False):
            raise equations.ExportError(
                "barriers that a leader tracks are of products of two blocks, which are Blackwell's"
            )
    return more


def _run_scoped(eqn, scope):
    params = jax_versions.params(eqn)
    body, _ = jax_versions.jaxpr_and_constants(params["jaxpr"])
    made = (
        body.invars[len(body.invars) - len(params["ref_transforms"]) :]
        if params.get("ref_transforms")
        else body.invars[len(eqn.invars) - len(body.constvars) :]
    )
    transforms = params.get("ref_transforms") or [()] * len(made)
    return {
        "in": [scope.operand(v) for v in eqn.invars],
        "params": {
            "jaxpr": equations.body_of(params["jaxpr"], scope),
            "collective_axes": _axes(params.get("collective_axes")),
            "types": [_scratch(v.aval, t) for v, t in zip(made, transforms)],
        },
    }


def _call(eqn, scope):
    """A kernel's jaxpr inside a pipeline: Refs with what part of each, and the positions along the axes that the
    pipeline steps through."""
    trees, leaves, refs, places = eqn.params["ref_treedefs"], list(eqn.invars), [], []
    for tree in trees:
        ref = tree.unflatten(leaves[: tree.num_leaves])
        del leaves[: tree.num_leaves]
        ref, transforms = ref if isinstance(ref, tuple) else (getattr(ref, "ref", ref), getattr(ref, "transforms", ()))
        refs.append(scope.operand(ref))
        places.append(equations.views(transforms, scope))
    ids = jax.tree.unflatten(eqn.params["program_ids_treedef"], leaves)
    return {
        "in": refs,
        "params": {
            "jaxpr": equations.body_of(eqn.params["jaxpr"], scope),
            "transforms": places,
            "program_ids": [None if i is None else scope.operand(i) for i in ids],
        },
    }


_REFUSED = {
    "async_prefetch": "is not supported",
    "async_store_smem": "is not supported",
    "barrier_test": "is not supported",
    "print_layout": "is not supported",
    "griddepcontrol_wait": "is not supported",
    "griddepcontrol_launch_dependents": "is not supported",
    "inline_mgpu": "is code of JAX's own dialect",
    "try_cluster_cancel": "is Blackwell's",
    "query_cluster_cancel": "is Blackwell's",
    "multimem_store": "is of several devices",
    "multimem_load_reduce": "is of several devices",
    "mgpu_atomic_store": "is not supported; copy_smem_to_gmem has reduction_op",
    "semaphore_signal_multicast": "is of several devices",
    "semaphore_signal_parallel": "is not supported",
}
_EQUATIONS = {
    "jaxpr_call": _call,
    "barrier_arrive": _barrier,
    "barrier_wait": _barrier,
    "copy_gmem_to_smem": _copy_gmem_to_smem,
    "copy_smem_to_gmem": _copy_smem_to_gmem,
    "run_scoped": _run_scoped,
    "set_max_registers": _number,
    "wait_smem_to_gmem": _number,
    "wgmma_ref": _wgmma,
    "wgmma_wait": _number,
}


def equation(eqn, scope):
    """An equation of mosaic_gpu's own, or None."""
    name = jax_versions.primitive(eqn)
    if name in _REFUSED or name.startswith("tcgen05_") or "tmem" in name:
        raise equations.ExportError(_REFUSED.get(name, "is Blackwell's"))
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
    return any(
        isinstance(v.aval, core.AbstractValue) and hasattr(v.aval, "inner_aval") and space(v.aval) for v in body.invars
    )
