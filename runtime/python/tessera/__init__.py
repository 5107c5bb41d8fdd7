"""JAX's Pallas kernels on Vulkan, or on Tessera's interpreter.

    import tessera
    tessera.install()                   # every pallas_call on JAX's CPU platform now runs on the best Vulkan device
    with tessera.on("interpreter"):     # or only here, and there
        ...
    tessera.uninstall()

    tessera.load("kernel.tir")(x, y)    # a kernel without JAX, on NumPy arrays

Devices are "vulkan" (the best one, or what TESSERA_DEVICE names), "vulkan:INDEX" or "vulkan:PART-OF-ITS-NAME", and "interpreter".
"""

from tessera._native_library import Error, stats
from tessera.kernels import load

__all__ = ["Error", "install", "load", "on", "stats", "uninstall"]


def install(device="vulkan", *, fallback=False):
    """Runs every pallas_call of this process on `device` from now on. With fallback=True, a kernel that cannot run there is run by JAX's own
    interpreter instead, with a warning, and counted in stats()["fallbacks"]."""
    from tessera import hook
    hook.install(device, fallback)


def uninstall():
    """Puts back what install() replaced."""
    from tessera import hook
    hook.uninstall()


def on(device, *, fallback=False):
    """A context: pallas_calls that are traced and run within it run on `device`."""
    from tessera import hook
    return hook.on(device, fallback)
