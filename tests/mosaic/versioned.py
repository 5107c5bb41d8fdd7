"""The versioned form of a StableHLO module that `tessera compile --emit=stablehlo` wrote: the kernel's module in it as
MLIR bytecode of a version of Mosaic's dialect, which later compilers keep accepting. It needs jaxlib.

  versioned.py IN OUT
"""

import base64
import io
import re
import sys

import evaluator
import kernels
from jax._src.lib.mlir import passmanager

VERSION = 11  # what JAX 0.10.2 writes for a TPU's compiler that it does not know


def versioned(text):
    call = kernels.Call(text)
    ctx = evaluator.context()
    ctx.allow_unregistered_dialects = True
    with ctx:
        module = evaluator.parse(call.body, ctx)
        passmanager.PassManager.parse(f"builtin.module(mosaic-serde{{serialize=true target-version={VERSION}}})").run(
            module.operation
        )
        out = io.BytesIO()
        module.operation.write_bytecode(out, desired_version=0)
    body = base64.b64encode(out.getvalue()).decode()
    return re.sub(
        r"\\22body\\22: \\22[^\\]*\\22", lambda _: rf"\22body\22: \22{body}\22, \22serialization_format\22: 1", text
    )


if __name__ == "__main__":
    with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
        target.write(versioned(source.read()))
