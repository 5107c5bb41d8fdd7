"""The vendor's libraries at the suite's work, timed on a GPU with PyTorch: cuBLAS, cuDNN, flash attention and PyTorch's
own kernels. It runs without the rest of the repository:

    python3 peers.py --out FOLDER [--kernels PARTS] [--seconds S]

It writes FOLDER/peers.json; join.py puts it beside the results of bench_gpu_time.

Times are of one call, by CUDA events around a batch of calls that a CUDA graph replays (or plain launches, where a call
cannot be captured: `way` says so), on several sets of arrays in turn where they are small. Of several ways to do one
kernel's work all are kept. What fails is a line."""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

F32, F16, BF16, I8, U8 = torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8
TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "i8": I8, "u8": U8}


def random(shape, dtype):
    """From -1 to 1; integers of all their values."""
    if dtype in (I8, U8):
        return torch.randint(-128 if dtype == I8 else 0, 128 if dtype == I8 else 256, shape, dtype=dtype, device="cuda")
    return (torch.rand(shape, dtype=F32, device="cuda") * 2 - 1).to(dtype)


# Each maker returns the tensors of one set as a dict, and {label: function of the set}.


def axpy(n, t):
    return lambda: {"x": random((n,), t), "y": random((n,), t), "o": random((n,), t)}, {
        "torch.add": lambda s: torch.add(s["y"], s["x"], alpha=0.7, out=s["o"])
    }


def transpose(m, n, t):
    return lambda: {"x": random((m, n), t), "o": random((n, m), t)}, {"copy of t()": lambda s: s["o"].copy_(s["x"].t())}


def softmax(m, n, t):
    return lambda: {"x": random((m, n), t)}, {"softmax": lambda s: torch.softmax(s["x"], 1)}


def layer_norm(m, n, t):
    return lambda: {"x": random((m, n), t), "w": random((n,), t), "b": random((n,), t)}, {
        "layer_norm": lambda s: F.layer_norm(s["x"], (n,), s["w"], s["b"])
    }


def sums(m, n, t, axis):
    return lambda: {"x": random((m, n), t)}, {"sum": lambda s: torch.sum(s["x"], axis, dtype=F32)}


def cumsum(m, n):
    return lambda: {"x": random((m, n), F32), "o": random((m, n), F32)}, {
        "cumsum": lambda s: torch.cumsum(s["x"], 1, out=s["o"])
    }


def matmul(batch, m, k, n, t, transposed=False, gelu=False):
    def arrays():
        lead = (batch,) if batch > 1 else ()
        s = {"x": random((*lead, m, k), t), "y": random((*lead, n, k) if transposed else (*lead, k, n), t)}
        if gelu:
            s["c"] = random((n,), t)
        return s

    def y(s):
        return s["y"].transpose(-1, -2) if transposed else s["y"]

    if t == I8:
        return arrays, {"_int_mm": lambda s: torch._int_mm(s["x"], y(s))}
    if gelu:
        return arrays, {
            "addmm, gelu": lambda s: F.gelu(torch.addmm(s["c"], s["x"], y(s)), approximate="tanh"),
            "_addmm_activation": lambda s: torch._addmm_activation(s["c"], s["x"], y(s), use_gelu=True),
        }
    return arrays, {"matmul": lambda s: torch.matmul(s["x"], y(s))}


def gemv(k, n, transposed):
    def arrays():
        return {"x": random((1, k), F16), "y": random((n, k) if transposed else (k, n), F16)}

    def y(s):
        return s["y"].t() if transposed else s["y"]

    return arrays, {"matmul": lambda s: torch.matmul(s["x"], y(s)), "mv": lambda s: torch.mv(y(s).t(), s["x"][0])}


def flash(t, d, length, causal, heads=16):
    def arrays():
        return {name: random((1, length, heads, d), t) for name in "qkv"}

    def by(backend):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def call(s):
            q, k, v = (s[name].transpose(1, 2) for name in "qkv")
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    names = (
        ["FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"] if t == F16 else ["EFFICIENT_ATTENTION", "MATH"]
    )
    return arrays, {f"sdpa {name.split('_', maxsplit=1)[0].lower()}": by(name) for name in names}


def convolution(images, h, w, c, n, t):
    def arrays():
        x, f = random((images, h + 2, w + 2, c), t).permute(0, 3, 1, 2), random((n, c, 3, 3), t)
        return {"x": x, "f": f.contiguous(memory_format=torch.channels_last), "planes": x.contiguous(), "g": f}

    return arrays, {
        "conv2d, channels last": lambda s: F.conv2d(s["x"], s["f"]),
        "conv2d, planes": lambda s: F.conv2d(s["planes"], s["g"]),
    }


def depthwise(images, h, w, c):
    def arrays():
        x, f = random((images, h + 2, w + 2, c), F32).permute(0, 3, 1, 2), random((c, 1, 3, 3), F32)
        return {"x": x, "f": f, "planes": x.contiguous()}

    return arrays, {
        "conv2d, channels last": lambda s: F.conv2d(s["x"], s["f"], groups=c),
        "conv2d, planes": lambda s: F.conv2d(s["planes"], s["f"], groups=c),
    }


def histogram(n):
    return lambda: {"x": random((n,), U8)}, {
        "histc": lambda s: torch.histc(s["x"], bins=256, min=0, max=255),
        "bincount": lambda s: torch.bincount(s["x"], minlength=256),
    }


def rows():
    """(kernel of the suite, maker's result made late)"""
    yield from (
        (f"axpy_{t}_{n}", lambda t=t, n=n: axpy(n, TYPES[t]))
        for t, n in (("f32", 1 << 24), ("f32", 1_000_003), ("f16", 1 << 24), ("bf16", 1 << 24))
    )
    yield from (
        (f"transpose_{t}_{m}x{n}", lambda t=t, m=m, n=n: transpose(m, n, TYPES[t]))
        for t, m, n in (("f32", 4096, 4096), ("f32", 1000, 777), ("f16", 4096, 4096))
    )
    yield from (
        (f"softmax_{t}_{m}x{n}", lambda t=t, m=m, n=n: softmax(m, n, TYPES[t]))
        for t, m, n in (("f32", 2048, 4096), ("f32", 16384, 512), ("f32", 256, 32768), ("f16", 2048, 4096))
    )
    yield from (
        (f"layer_norm_{t}_{m}x{n}", lambda t=t, m=m, n=n: layer_norm(m, n, TYPES[t]))
        for t, m, n in (("f32", 4096, 4096), ("f32", 8192, 1024), ("f16", 4096, 4096))
    )
    yield from (
        (f"row_sum_{t}_{m}x{n}", lambda t=t, m=m, n=n: sums(m, n, TYPES[t], 1))
        for t, m, n in (("f32", 4096, 4096), ("f32", 262144, 64), ("f16", 4096, 4096))
    )
    yield from ((f"column_sum_{t}_4096x4096", lambda t=t: sums(4096, 4096, TYPES[t], 0)) for t in ("f32", "f16"))
    yield from (
        (f"cumsum_f32_{m}x{n}", lambda m=m, n=n: cumsum(m, n)) for m, n in ((4, 4096), (4096, 4096), (256, 65536))
    )
    for t in ("f32", "f16", "bf16", "i8"):
        for s in (1024, 4096):
            yield f"matmul_{t}_{s}x{s}x{s}", lambda t=t, s=s: matmul(1, s, s, s, TYPES[t])
    for t in ("f32", "f16"):
        yield f"matmul_{t}_8192x4096x64", lambda t=t: matmul(1, 8192, 4096, 64, TYPES[t])
        yield f"matmul_{t}_16x512x512x512", lambda t=t: matmul(16, 512, 512, 512, TYPES[t])
        yield f"matmul_{t}_1000x777x333", lambda t=t: matmul(1, 1000, 777, 333, TYPES[t])
        yield f"matmul_gelu_{t}_4096x1024x4096", lambda t=t: matmul(1, 4096, 1024, 4096, TYPES[t], gelu=True)
    for t in ("f32", "f16", "i8"):
        yield f"matmul_nt_{t}_2048x2048x2048", lambda t=t: matmul(1, 2048, 2048, 2048, TYPES[t], transposed=True)
    yield "gemv_f16_4096x4096", lambda: gemv(4096, 4096, False)
    yield "gemv_nt_f16_4096x4096", lambda: gemv(4096, 4096, True)
    for causal in (False, True):
        for t, d in (("f32", 64), ("f16", 64), ("f16", 128)):
            yield f"flash_{'causal_' if causal else ''}{t}_d{d}_4096", lambda t=t, d=d, causal=causal: flash(
                TYPES[t], d, 4096, causal
            )
    for t in ("f32", "f16"):
        yield f"convolution_{t}_16x64x64x64x64", lambda t=t: convolution(16, 64, 64, 64, 64, TYPES[t])
        yield f"convolution_{t}_16x32x32x256x256", lambda t=t: convolution(16, 32, 32, 256, 256, TYPES[t])
    yield "depthwise_f32_16x128x128x64", lambda: depthwise(16, 128, 128, 64)
    for n in (1 << 24, 1 << 20):
        yield f"histogram_u8_{n}", lambda n=n: histogram(n)


def bytes_of(arrays):
    return sum(a.numel() * a.element_size() for a in arrays.values())


def batch_ms(run):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def captured(call, sets, n):
    """n calls as one graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            call(sets[i % len(sets)])
    return graph


# it waits for the device; a capture that fails spoils the generator of random numbers, too
NEVER_CAPTURED = ("bincount",)


def measure(call, sets, seconds, captures):
    """Seconds of a call: median, least, greatest; and how it was run."""
    side = torch.cuda.Stream()  # warm up on a side stream, as captures want
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for s in (sets * 3)[: max(3, len(sets))]:
            call(s)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    one = max(batch_ms(lambda: [call(s) for s in sets]) / len(sets), 1e-4)
    n = int(min(max(4.0 / one, 1), 200))
    way = "graph"
    try:
        if not captures:
            raise RuntimeError("it cannot be captured")
        graph = captured(call, sets, n)
        run = graph.replay
        run()
        torch.cuda.synchronize()
    except Exception as e:  # a call that synchronises, say
        way = "launches: " + str(e).split("\n", maxsplit=1)[0][:80]
        torch.cuda.synchronize()

        def run():
            for i in range(n):
                call(sets[i % len(sets)])

    start, times = time.monotonic(), []
    while len(times) < 3 or (time.monotonic() - start < seconds and len(times) < 60):
        times.append(batch_ms(run) / n)
    return {
        "median": statistics.median(times) / 1e3,
        "min": min(times) / 1e3,
        "max": max(times) / 1e3,
        "samples": len(times),
        "repeats": n,
        "way": way,
    }


def one_row(name, make, seconds, rotate):
    arrays, calls = make()
    first = arrays()
    count = max(1, min(16, rotate // max(bytes_of(first), 1) + 1))
    sets = [first] + [
        {k: v.clone(memory_format=torch.preserve_format) for k, v in first.items()} for _ in range(count - 1)
    ]
    row = {"kernel": name, "sets": count, "ways": {}}
    for label, call in calls.items():
        try:
            row["ways"][label] = measure(call, sets, seconds, label not in NEVER_CAPTURED)
        except Exception as e:
            row["ways"][label] = {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"}
            try:
                torch.cuda.synchronize()
            except Exception as lost:
                row["error"] = f"the device is lost: {lost}"
                return row
    good = {label: w for label, w in row["ways"].items() if "median" in w}
    if good:
        row["best"] = min(good, key=lambda label: good[label]["median"])
        row["median"] = good[row["best"]]["median"]
    return row


def show(row):
    if "median" not in row:
        print(f"{row['kernel']:36} FAILED {row.get('error') or row['ways']}", flush=True)
        return
    ways = ", ".join(
        f"{label} {1e3 * w['median']:.4g}" if "median" in w else f"{label} FAILED {w['error'][:60]}"
        for label, w in row["ways"].items()
    )
    plain = "" if row["ways"][row["best"]]["way"] == "graph" else "  (launches, no graph)"
    print(f"{row['kernel']:36} {1e3 * row['median']:10.4g} ms  {ways}{plain}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=".")
    p.add_argument("--kernels", default="")
    p.add_argument("--seconds", type=float, default=0.15, help="of each way, about")
    p.add_argument("--rotate-mb", type=int, default=160)
    p.add_argument("--limit", type=float, default=120, help="seconds of all")
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "kernels": [],
    }
    print(f"{report['device']}, torch {report['torch']}, CUDA {report['cuda']}, cuDNN {report['cudnn']}")
    parts, start = [k for k in a.kernels.split(",") if k], time.monotonic()
    for name, make in rows():
        if parts and not any(k in name for k in parts):
            continue
        if time.monotonic() - start > a.limit:
            row = {"kernel": name, "ways": {}, "error": f"not reached: the limit is {a.limit} s"}
        else:
            try:
                row = one_row(name, make, a.seconds, a.rotate_mb << 20)
            except Exception as e:
                row = {"kernel": name, "ways": {}, "error": f"{type(e).__name__}: {str(e)[:300]}"}
        report["kernels"].append(row)
        show(row)
        (out / "peers.json").write_text(json.dumps(report, indent=1) + "\n")
        if "lost" in row.get("error", ""):
            sys.exit(1)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
