"""JAX's Pallas kernels on Vulkan, or on Tessera's interpreter.

    import tessera
    tessera.install()                   # every pallas_call on JAX's CPU platform now runs on the best Vulkan device
    with tessera.on("interpreter"):     # or only here, and there
        ...
    tessera.uninstall()

    tessera.devices()                     # the devices there are
    tessera.export(fn, x, path="folder")  # the kernels of a function as .tir files, and the graph of their calls
    tessera.load("kernel.tir")(x, y)      # a kernel, or such a folder, without JAX: on NumPy arrays and tensors that
                                          # speak DLPack

Devices are "vulkan" (the best one, or what TESSERA_DEVICE names, "interpreter" and "cuda:0" among it), "vulkan:INDEX"
or "vulkan:PART-OF-ITS-NAME", "cuda:INDEX" (NVIDIA's own driver), and "interpreter".
"""

from tessera._native_library import Error, devices, stats
from tessera.kernels import load

__all__ = ["CompilerParams", "Error", "devices", "export", "install", "load", "on", "stats", "uninstall"]


def __getattr__(name):
    if name == "CompilerParams":  # needs JAX, which load() does without
        from tessera.hook import CompilerParams

        return CompilerParams
    raise AttributeError(f"module 'tessera' has no attribute {name!r}")


def install(device="vulkan", *, fallback=False):
    """Runs every pallas_call of this process on `device` from now on. With fallback=True, a kernel that cannot run
    there is run by JAX's own interpreter instead, with a warning, and counted in stats()["fallbacks"]."""
    from tessera import hook

    hook.install(device, fallback)


def export(fn, *args, path):
    """Writes the kernels that fn calls on args (arrays, or jax.ShapeDtypeStruct) into the folder `path`, as .tir files,
    with graph.txt, which says what is called on what. load(path) runs it without JAX, and C++ without Python
    (tessera::read_graph, engine/graph/graph.h)."""
    from tessera import graph

    return graph.export(fn, *args, path=path)


def uninstall():
    """Puts back what install() replaced."""
    from tessera import hook

    hook.uninstall()


def on(device, *, fallback=False):
    """A context: pallas_calls that are traced and run within it run on `device`."""
    from tessera import hook

    return hook.on(device, fallback)
