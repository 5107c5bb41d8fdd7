"""Runs the Python blocks of samples/pallas.md, which the build has collected in the file that the first argument names,
under JAX on the CPU, and saves each block's `result` as NAME.npy in the folder that the second one names."""

import os
import runpy
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402

pallas_call = pl.pallas_call
pl.pallas_call = lambda *args, **kwargs: pallas_call(*args, **{"interpret": True, **kwargs})  # there is no TPU

collected = runpy.run_path(sys.argv[1])
for name, (line, text) in collected["SNIPPETS"].items():
    scope = {}
    exec(collected["NAMES"], scope)
    try:
        exec(compile("\n" * (line - 1) + text, "samples/pallas.md", "exec"), scope)
    except Exception:
        print(f"{name} (samples/pallas.md:{line}) fails:", file=sys.stderr)
        raise
    np.save(os.path.join(sys.argv[2], name + ".npy"), np.asarray(scope["result"]))
