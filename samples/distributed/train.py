"""Trains a small language model on several processes, each with a Vulkan device of its own, with Pallas kernels forward
and backward.

    python samples/distributed/train.py                     # two processes on this machine
    python samples/distributed/train.py --processes 4 --mesh 2x2 --check

`--mesh DATAxMODEL`: DATA copies of the model, each on other texts, and each divided among MODEL processes. On several
hosts, start every process yourself, with what jax.distributed takes:

    python samples/distributed/train.py --coordinator HOST:PORT --processes 8 --process-id 3 --local-rank 1

The loss of every step goes to stdout, at last the times and what was exchanged. The exit status is 1 if a process was
lost, and 3 if a loss is not finite or --check finds a difference.
"""

import argparse
import glob
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
GAVE_UP, WRONG = 4, 3  # exit statuses: another process is lost; the check or the losses are wrong


def arguments():
    def positive(text):
        if not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
        return int(text)

    def mesh(text):
        sizes = text.split("x")
        if len(sizes) != 2 or not all(s.isdigit() and int(s) > 0 for s in sizes):
            raise argparse.ArgumentTypeError(f"{text!r} is not DATAxMODEL, as 2x1")
        return tuple(int(s) for s in sizes)

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--processes", type=positive, default=2, help="in all, on all hosts (%(default)s)")
    p.add_argument(
        "--mesh",
        type=mesh,
        help="DATAxMODEL; their product is --processes (without it, the model is divided among two if that is even)",
    )
    p.add_argument("--steps", type=positive, default=30, help="(%(default)s)")
    p.add_argument("--batch", type=positive, default=8, help="texts in a step, in all (%(default)s)")
    p.add_argument("--length", type=positive, default=64, help="of a text, in bytes (%(default)s)")
    p.add_argument("--layers", type=positive, default=2, help="(%(default)s)")
    p.add_argument("--width", type=positive, default=64, help="of an activation (%(default)s)")
    p.add_argument("--heads", type=positive, default=4, help="(%(default)s)")
    p.add_argument("--hidden", type=positive, default=192, help="columns of the MLP (%(default)s)")
    p.add_argument("--seed", type=int, default=0, help="of the parameters and the texts (%(default)s)")
    p.add_argument(
        "--file", action="append", help="what to learn, byte by byte; may be given again (the pages of samples)"
    )
    p.add_argument(
        "--device",
        help=(
            '"vulkan:0,vulkan:1": one for each process of this host, in the order of their local ranks, again from the'
            ' first where they are more; "interpreter". Without it: the GPUs in turn, or the interpreter if there is'
            " none"
        ),
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="also train the same model whole, by jax.numpy in one process, and compare losses and the first gradient",
    )
    p.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="where process 0 listens; without it all processes are started on this machine",
    )
    p.add_argument("--process-id", type=int, help="of this process, from 0 on")
    p.add_argument(
        "--local-rank",
        type=int,
        default=0,
        help="the number of this process on its host, which chooses its device (%(default)s)",
    )
    o = p.parse_args()
    if o.mesh is None:
        o.mesh = (o.processes // 2, 2) if o.processes % 2 == 0 else (o.processes, 1)
    data, model = o.mesh
    if data * model != o.processes:
        p.error(f"--mesh {data}x{model} is for {data * model} processes, but --processes is {o.processes}")
    for name, size, parts, of in [
        ("--batch", o.batch, data, "copies of the model"),
        ("--heads", o.heads, model, "parts of the model"),
        ("--hidden", o.hidden, model, "parts of the model"),
        ("a vocabulary of", 256, model, "parts of the model"),
        ("--width", o.width, o.heads, "heads"),
    ]:
        if size % parts:
            p.error(f"{name} {size} cannot be divided among {parts} {of}")
    if o.width // o.heads % 2:
        p.error(
            f"--width {o.width} and --heads {o.heads} make heads of {o.width // o.heads} numbers, but rotary positions"
            " need an even number"
        )
    if (o.coordinator is None) != (o.process_id is None):
        p.error("--coordinator and --process-id belong together")
    if o.process_id is not None and not 0 <= o.process_id < o.processes:
        p.error(f"--process-id {o.process_id} is not among the {o.processes} processes")
    return o


# On one machine: start all, and end all when one is lost


def launch(o):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running = []

    def forward(pipe, i):
        for line in pipe:
            if not line.startswith("[Gloo] Rank "):  # that it is connected
                print(f"[{i}] {line}", end="", file=sys.stderr)

    def stop():
        for p in running:
            p.kill()  # JAX takes SIGTERM for a notice to save its work
            p.wait()

    def stopped(number, _):
        stop()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stopped)
    readers = []
    for i in range(o.processes):
        running.append(
            subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    *sys.argv[1:],
                    "--coordinator",
                    f"127.0.0.1:{port}",
                    "--process-id",
                    str(i),
                    "--local-rank",
                    str(i),
                ],
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        )
        readers.append(threading.Thread(target=forward, args=(running[-1].stderr, i), daemon=True))
        readers[-1].start()
    try:
        while any(p.poll() is None for p in running) and not any(p.poll() for p in running):
            time.sleep(0.05)
    except KeyboardInterrupt:
        stop()
        return 130
    lost = [(i, p.returncode) for i, p in enumerate(running) if p.poll()]
    if lost:
        if all(status == GAVE_UP for _, status in lost):  # perhaps because of one that is ending
            time.sleep(0.2)
            lost = [(i, p.returncode) for i, p in enumerate(running) if p.poll()]
        i, status = min(lost, key=lambda found: (found[1] == GAVE_UP, found[0]))
        how = (
            f"was killed by signal {-status} ({signal.Signals(-status).name})"
            if status < 0
            else f"ended with exit status {status}"
        )
        if o.processes > 1:
            how += "; the others are stopped"
        stop()
    for reader in readers:
        reader.join(5)
    if lost and status != WRONG:
        print(f"train.py: process {i} of {o.processes} {how}", file=sys.stderr)
    return (WRONG if status == WRONG else 1) if lost else 0


# One process

out = sys.stdout


def device_of(o):
    import tessera

    if o.device:
        names = o.device.split(",")
        return names[o.local_rank % len(names)]
    try:
        gpus = [d["device"] for d in tessera.devices() if not d["lacks"] and d["kind"].endswith("GPU")]
    except tessera.Error:  # no Vulkan at all
        gpus = []
    return gpus[o.local_rank % len(gpus)] if gpus else "interpreter"


def texts(o):
    import numpy as np

    files = o.file or sorted(glob.glob(str(HERE.parent / "*.md")))
    data = np.frombuffer(b"\n".join(pathlib.Path(f).read_bytes() for f in files), np.uint8)
    if len(data) <= o.length:
        sys.exit(f"train.py: --length {o.length} needs more than {o.length} bytes of text, but there are {len(data)}")

    def batch(step):
        """Tokens and labels [batch, length] of a step, the same in every process."""
        starts = np.random.default_rng([o.seed % 2**32, step]).integers(0, len(data) - o.length, o.batch)
        rows = np.stack([data[s : s + o.length + 1] for s in starts]).astype(np.int32)
        return rows[:, :-1], rows[:, 1:]

    return batch


def work(o):
    global out
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        o.coordinator,
        o.processes,
        o.process_id,
        initialization_timeout=60,
        heartbeat_timeout_seconds=30,
        shutdown_timeout_seconds=120,
    )
    try:
        good = train(o)
        jax.distributed.shutdown()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        print(f"train.py: process {o.process_id} of {o.processes} gives up: {text}", file=sys.stderr, flush=True)
        # not by way of jax.distributed, which would wait for the processes that are gone
        os._exit(GAVE_UP if "Gloo" in text else 1)
    return 0 if good else WRONG


def train(o):
    import jax
    import jax.numpy as jnp
    import kernels
    import model
    import numpy as np
    import tessera
    from jax import lax
    from jax.flatten_util import ravel_pytree
    from jax.sharding import NamedSharding, PartitionSpec as P

    first = o.process_id == 0
    say = lambda text: print(text, file=out, flush=True) if first else None
    device = device_of(o)
    tessera.install(device)
    data, parts = o.mesh
    config = model.Config(o.layers, o.width, o.heads, o.hidden)
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(data, parts), (model.DATA, model.MODEL))
    specs = model.specs(config)
    batch = texts(o)
    whole = model.parameters(config, o.seed)

    def shared(array, spec):
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])

    params = {name: shared(a, specs[name]) for name, a in whole.items()}
    moments = [{name: shared(np.zeros_like(a), specs[name]) for name, a in whole.items()} for _ in range(2)]

    def step(p, m, v, tokens, labels, number):
        loss, gradient = jax.value_and_grad(model.loss)(p, tokens, labels, config)
        flat, tree = ravel_pytree(gradient)  # one sum for all
        summed = model.over(lax.psum, jnp.append(flat, loss), model.DATA) / data
        flat, loss = summed[:-1], summed[-1]
        new = kernels.adam(ravel_pytree(p)[0], ravel_pytree(m)[0], ravel_pytree(v)[0], flat, number)
        return *(tree(x) for x in new), loss, tree(flat)

    mapped = jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(specs, specs, specs, P(model.DATA), P(model.DATA), P()),
            out_specs=(specs, specs, specs, P(), specs),
            check_vma=False,
        )
    )
    say(
        f"mesh {data}x{parts} of {o.processes} processes, {sum(a.size for a in whole.values()):,} parameters; process 0"
        f" runs its kernels on {device}"
    )
    losses, times, gradient = [], [], None
    for i in range(1, o.steps + 1):
        start = time.perf_counter()
        tokens, labels = (shared(a, P(model.DATA)) for a in batch(i))
        params, *moments, loss, g = mapped(params, *moments, tokens, labels, i)
        losses.append(float(loss))
        times.append(time.perf_counter() - start)
        gradient = gradient or g
        say(f"step {i}: loss {losses[-1]:.4f}, {times[-1]:.3f} s")
    good = all(np.isfinite(losses))
    if o.check:
        good &= check(o, config, whole, batch, losses, gathered(gradient), say)
    if len(times) > 1:
        say(f"{np.median(times[1:]) * 1e3:.1f} ms a step (median of {len(times) - 1} after the first, which compiles)")
    for axis, size, what in [(model.DATA, data, "gradients"), (model.MODEL, parts, "activations")]:
        if size > 1:
            ring = 2 * (size - 1) / size * model.traffic[axis]
            say(
                f'sums over "{axis}" ({what}): {model.traffic[axis]:,} bytes a step in each process, of which a ring of'
                f" {size} sends {ring:,.0f}"
            )
    return good


def gathered(tree):
    """The whole arrays, in every process."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def check(o, config, whole, batch, losses, gradient, say):
    """The same steps of the whole model in this process alone."""
    import jax
    import jax.numpy as jnp
    import model
    import numpy as np

    @jax.jit
    def step(p, m, v, tokens, labels, number):
        loss, g = jax.value_and_grad(model.reference_loss)(p, tokens, labels, config)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        a, b = 3e-3 / (1 - 0.9**number), 1 / (1 - 0.99**number)
        return jax.tree.map(lambda p, m, v: p - a * m / (jnp.sqrt(b * v) + 1e-8), p, m, v), m, v, loss, g

    zeros = jax.tree.map(np.zeros_like, whole)
    state, worst, far, first = (whole, zeros, zeros), 0.0, 0.0, None
    for i, loss in enumerate(losses, 1):
        *state, wanted, g = step(*state, *batch(i), i)
        first = first or g
        far = np.maximum(far, abs(float(wanted) - loss) / float(wanted))  # NaN stays
    for name, g in first.items():
        worst = np.maximum(worst, np.abs(np.asarray(g) - np.asarray(gradient[name])).max() / np.abs(g).max())
    # Sums of up to a few hundred terms in another order; an update of Adam divides by the gradient's size, so that
    # roundings grow with the steps.
    good = bool(worst <= 1e-4 and far <= 1e-2)
    say(
        f"against one process without kernels: the first gradient differs by {worst:.2g} of its largest entry (allowed"
        f" 1e-4), the losses by {far:.2g} (allowed 1e-2): {'ok' if good else 'WRONG'}"
    )
    return good


if __name__ == "__main__":
    options = arguments()
    sys.exit(launch(options) if options.process_id is None else work(options))
