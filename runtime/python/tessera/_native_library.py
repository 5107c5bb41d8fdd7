"""The native library, loaded by ctypes."""

import atexit
import collections
import ctypes
import os
import re
import sys


class Error(RuntimeError):
    """A kernel that Tessera cannot run, or that failed; the message names the kernel and the line."""

    __module__ = "tessera"  # where users find it


class CArray(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
    ]


class CGpuArray(ctypes.Structure):
    _fields_ = [("array", CArray), ("own", ctypes.c_void_p), ("on_gpu", ctypes.c_bool)]


def _open():
    # session.cpp sets it while it opens a device. A name that is there already is set in place, whatever other threads
    # read; empty, Mesa takes it for not set.
    os.environ.setdefault("LP_NUM_THREADS", "")
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native.so")
    if not os.path.exists(file):
        raise ImportError(
            f"tessera: its native library is missing ({file}): install the package (pip install ./runtime/python)"
            " rather than import it from the source tree"
        )
    try:
        lib = ctypes.CDLL(file)
    except OSError as error:
        raise ImportError(
            f"tessera: its native library cannot be loaded: {error}\n  note: pip install --force-reinstall"
            " ./runtime/python builds it for this machine"
        ) from None
    p, z = ctypes.c_char_p, ctypes.c_size_t
    lib.tessera_free.argtypes, lib.tessera_free.restype = [ctypes.c_void_p], None
    lib.tessera_prepare.argtypes, lib.tessera_prepare.restype = [p, z, p, p], ctypes.c_void_p
    lib.tessera_unnamed_cpu_driver.argtypes, lib.tessera_unnamed_cpu_driver.restype = [
        ctypes.POINTER(ctypes.c_void_p)
    ], ctypes.c_void_p
    lib.tessera_devices.argtypes, lib.tessera_devices.restype = [ctypes.POINTER(ctypes.c_void_p)], ctypes.c_void_p
    lib.tessera_device_of_environment.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    lib.tessera_device_of_environment.restype = ctypes.c_void_p
    lib.tessera_submit_nothing.argtypes, lib.tessera_submit_nothing.restype = [p, ctypes.c_int64], ctypes.c_void_p
    lib.tessera_set_printer.argtypes, lib.tessera_set_printer.restype = [ctypes.c_void_p], None
    lib.tessera_stats.argtypes, lib.tessera_stats.restype = [ctypes.POINTER(ctypes.c_uint64)], None
    lib.tessera_run_text.argtypes = [p, z, p, p, ctypes.POINTER(CArray), z, ctypes.POINTER(ctypes.c_void_p)]
    lib.tessera_run_text.restype = ctypes.c_void_p
    _declare_gpu(lib)
    lib.tessera_load_graph.argtypes, lib.tessera_load_graph.restype = [p, z, p, p, p], ctypes.c_void_p
    lib.tessera_run_graph.argtypes = [p, z, p, p, p, ctypes.POINTER(CArray), z, ctypes.POINTER(ctypes.c_void_p)]
    lib.tessera_run_graph.restype = ctypes.c_void_p
    lib.tessera_import_text.argtypes, lib.tessera_import_text.restype = [
        p,
        z,
        ctypes.POINTER(ctypes.c_void_p),
    ], ctypes.c_void_p
    lib.tessera_outputs_count.argtypes, lib.tessera_outputs_count.restype = [ctypes.c_void_p], z
    lib.tessera_output.argtypes, lib.tessera_output.restype = [ctypes.c_void_p, z, ctypes.POINTER(CArray)], None
    lib.tessera_outputs_free.argtypes, lib.tessera_outputs_free.restype = [ctypes.c_void_p], None
    return lib


def _declare_gpu(lib):
    p, z, v = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    for name, arguments, result in (
        ("run_text", [p, z, p, p, ctypes.POINTER(CGpuArray), z, ctypes.POINTER(v)], v),
        ("outputs_count", [v], z),
        ("output", [v, z, ctypes.POINTER(CGpuArray)], None),
        ("outputs_free", [v], None),
        ("free", [v], None),
        ("wait", [v], v),
        ("download", [v, v], v),
        ("stream", [p, ctypes.POINTER(ctypes.c_uint64)], v),
        ("wait_for_stream", [p, ctypes.c_uint64], v),
        ("dlpack", [v, ctypes.c_uint8, ctypes.c_uint8], v),
        ("dlpack_free", [v], None),
    ):
        function = getattr(lib, f"tessera_gpu_{name}")
        function.argtypes, function.restype = arguments, result


native = _open()


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def _print(line):
    # what Python calls stdout: a notebook's cell, say; none in a program without a console
    if (out := sys.stdout) is not None:
        out.write(line.decode(errors="replace") + "\n")


native.tessera_set_printer(ctypes.cast(_print, ctypes.c_void_p))
atexit.register(native.tessera_set_printer, None)  # no Python is called while it ends
counts = collections.Counter()


def check(error):
    """Raises what a function of the library returned, if it is an error."""
    if error:
        text = ctypes.cast(error, ctypes.c_char_p).value.decode(errors="replace")
        native.tessera_free(error)
        raise Error(re.sub(r"\n  note: [^\n]*\bts::[^\n]*", "", text))  # what to write in C++ instead


_KNOWN = '"interpreter", "vulkan", "vulkan:INDEX-OR-NAME" and "cuda:INDEX" are'


def device_name(device):
    """What the library is told. TESSERA_DEVICE=interpreter or cuda:0 means that wherever no other device is named, as
    it does in C++."""
    if not isinstance(device, str):
        raise Error(f"tessera: a device is a name, not {device!r}\n  note: {_KNOWN}")
    if device == "vulkan":
        return _text(native.tessera_device_of_environment)
    if found := re.fullmatch(r"cuda(?::([0-9]{1,9}))?", device, re.ASCII):
        return f"cuda:{int(found[1] or 0)}"
    # at once, and no reason for a fallback
    if device != "interpreter" and not (device.startswith("vulkan:") and device.isprintable()):
        shown = device if device.isprintable() else ascii(device)[1:-1]
        raise Error(f'tessera: the device "{shown}" is not known\n  note: {_KNOWN}')
    return device


def _text(function, *args):
    out = ctypes.c_void_p()
    check(function(*args, ctypes.byref(out)))
    text = ctypes.cast(out, ctypes.c_char_p).value.decode()
    native.tessera_free(out)
    return text


def import_text(module):
    """An exported call (jaxpr.export) as .tir text."""
    data = module.encode()
    return _text(native.tessera_import_text, data, len(data))


def unnamed_cpu_driver():
    """What "vulkan" means, if that is a driver for the CPU that nobody has named; else ""."""
    return _text(native.tessera_unnamed_cpu_driver)


def devices():
    """The devices of this machine, Vulkan's and then those of NVIDIA's driver, a dict each: "device" (to be given to
    install), "name", "kind" ("discrete GPU", "integrated GPU", "virtual GPU", "CPU", "other"; "GPU" for NVIDIA's
    driver), "driver", and what it "lacks" that Tessera needs, "" if it can be used. Raises Error, saying what to
    install, if there is no Vulkan loader or driver, nor one of NVIDIA's."""
    keys = ("device", "name", "kind", "driver", "lacks")
    return [dict(zip(keys, line.split("\t"))) for line in _text(native.tessera_devices).splitlines()]


def stats():
    """How many modules were imported, calls run, bytes copied between JAX's or NumPy's arrays and ours, kernels
    compiled here and read from TESSERA_CACHE, and calls left to JAX's interpreter."""
    out = (ctypes.c_uint64 * 5)()
    native.tessera_stats(out)
    return {
        "modules": out[0],
        "calls": out[1],
        "bytes_copied": out[2],
        "compiled": out[3],
        "from_disk": out[4],
        "fallbacks": counts["fallbacks"],
    }
