"""A pytest plugin for tests/jax/upstream: lets JAX's own tests of Pallas run on Tessera. JAX's tests come in pairs of
classes, one for devices, which skips itself on the CPU, and one for interpret=True. Chosen is the one with the fewest
skips of its own, and its pallas_calls are those of a device."""

import contextlib
import importlib
import importlib.util
import os
import sys

import jax

DEVICE = os.environ["TESSERA_UPSTREAM_DEVICE"]
INTERPRET = DEVICE == "none"
# of JAX's source tree, which its wheel lacks
HELPERS = ["jax._src.hypothesis_test_util", "jax._src.pallas.pallas_test_util"]

for name in HELPERS:
    path = os.path.join(os.environ["TESSERA_UPSTREAM"], *name.split(".")) + ".py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, last = name.rpartition(".")
    setattr(importlib.import_module(parent), last, module)

from jax._src import config  # noqa: E402
from jax._src import test_util as jtu  # noqa: E402
from jax._src.pallas import pallas_test_util as ptu  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402


class _Gone:
    """An option that JAX 0.12 lacks and 0.11's tests set to what is left of it."""

    value = False

    def __call__(self, value):
        return contextlib.nullcontext()


if not hasattr(config, "jax_pallas_use_mosaic_gpu"):
    config.jax_pallas_use_mosaic_gpu = _Gone()

if not INTERPRET:
    import tessera

    tessera.install(DEVICE)


def _set_up(self):
    if self.INTERPRET:
        self.skipTest("the class for devices runs instead")
    jtu.JaxTestCase.setUp(self)


ptu.PallasTest.setUp = _set_up
ptu.PallasTest.pallas_call = lambda self, *args, **kwargs: pl.pallas_call(*args, **kwargs, interpret=INTERPRET)


def pytest_collection_modifyitems(items):
    chosen = []
    for item in items:
        interpreted = getattr(item.cls, "INTERPRET", None)
        base = getattr(item.module, "PallasBaseTest", None)
        if base is not None:
            call = lambda self, *args, **kwargs: pl.pallas_call(*args, **kwargs, interpret=INTERPRET)
            base.pallas_call = classmethod(call) if isinstance(vars(base).get("pallas_call"), classmethod) else call
        if base is None or issubclass(base, ptu.PallasTest):
            if not interpreted:
                chosen.append(item)
            continue
        # These modules skip their device classes in ways of their own: their interpreted ones run, without being told
        # to interpret.
        if not (isinstance(item.cls, type) and issubclass(item.cls, base) and not interpreted):
            chosen.append(item)
    items[:] = chosen
