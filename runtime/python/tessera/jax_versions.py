"""What differs between the JAX that the package is made for, 0.10.2 to 0.12: every difference is here, once, so that
nothing else asks for a version."""

import math

import jax
from jax._src import core, effects
from jax._src.pallas import primitives
from jax._src.state.types import TransformedRef

try:
    from jax._src import tpu_info  # since 0.12
except ImportError:
    from jax._src.pallas.mosaic import tpu_info  # noqa: F401

# One class is a jaxpr with and without the values of its constants since 0.11; before, a ClosedJaxpr was a jaxpr and
# those values.
JAXPRS = (core.Jaxpr, getattr(core, "ClosedJaxpr", core.Jaxpr))


def jaxpr_and_constants(jaxpr):
    return getattr(jaxpr, "jaxpr", jaxpr), list(getattr(jaxpr, "consts", ()))


def closed(jaxpr):
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


def primitive(eqn):
    """Its name. Until 0.11 some have the suffix of the variable that they are kept in."""
    return eqn.primitive.name.removesuffix("_p")


def params(eqn):
    """An equation's parameters, as 0.10 has them."""
    p = eqn.params
    # a scan's operands that stay the same, and those that each iteration passes to the next, are counted by trees since
    # 0.11
    if "ft_in" in p:
        constants, carry, _ = p["ft_in"].unpack()
        return {k: v for k, v in p.items() if k not in ("ft_in", "ft_out")} | {
            "num_consts": len(constants),
            "num_carry": len(carry),
        }
    # its constants are operands; since 0.11 the jaxpr has them too
    if eqn.primitive.name == "run_scoped" and hasattr(p["jaxpr"], "with_consts"):
        return p | {"jaxpr": p["jaxpr"].with_consts(())}
    if eqn.primitive.name == "composite" and "call_jaxpr" in p:
        return p | {"jaxpr": p["call_jaxpr"]}
    return p


def number(eqn):
    """The n of an equation of mosaic_gpu that waits for all but n, or sets the registers to n, as a variable or an int.
    Since 0.12 it is a parameter."""
    return eqn.params["n"] if "n" in eqn.params else eqn.invars[0]


def _own_jaxpr_call():
    call = core.Primitive("jaxpr_call")
    call.multiple_results = True

    @call.def_effectful_abstract_eval
    def _(*avals, jaxpr, ref_treedefs, program_ids_treedef):
        return [v.aval for v in jaxpr.outvars], {
            e for e in jaxpr.effects if not isinstance(e, effects.JaxprInputEffect)
        }

    def bind(jaxpr, *refs, program_ids):
        flat = [jax.tree.flatten((r.ref, r.transforms) if isinstance(r, TransformedRef) else r) for r in refs]
        ids, program_ids_treedef = jax.tree.flatten(program_ids)
        return call.bind(
            *[leaf for leaves, _ in flat for leaf in leaves],
            *ids,
            jaxpr=jaxpr,
            ref_treedefs=tuple(tree for _, tree in flat),
            program_ids_treedef=program_ids_treedef,
        )

    return bind


# Calls a kernel's jaxpr on Refs inside a pipeline, with a program id, or None, per axis of the kernel's grid. JAX has
# none since 0.12.
jaxpr_call = getattr(primitives, "_jaxpr_call", None) or _own_jaxpr_call()


def grid_names(grid_mapping):
    """A name per axis of the grid, "" for none. Until 0.11 vmap added axes without an entry for them."""
    names = list(grid_mapping.grid_names or ())
    for axis in grid_mapping.vmapped_dims if names and len(names) < len(grid_mapping.grid) else ():
        names.insert(axis, None)
    return ["" if n is None else str(n) for n in names]


# Views of a Ref that change no address: hints since 0.11.
HINTS = ("AccessAssumptionTransform", "MemorySpaceCastTransform")

# digamma and polygamma(0, .) of zeros of either sign: a pole with a sign since 0.12.
DIGAMMA_AT_ZERO = -math.inf if jax.__version_info__ >= (0, 12) else math.nan


def let_export(target):
    """Lets jax.export serialize calls of this custom call: what it is told has a version (engine/jax), and stays
    readable."""
    from jax._src.export import _export

    getattr(_export, "_CUSTOM_CALL_TARGETS_GUARANTEED_STABLE", set()).add(target)
