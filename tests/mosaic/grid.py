"""The grid of a Mosaic module, as a TPU's compiler runs it: a block is fetched one program ahead, an output's block is
written when the next program has another one and never fetched; scratch, outputs and what of a block lies outside of
its array hold poison. evaluator.py computes the programs."""

import re

import numpy as np
from evaluator import DYNAMIC, Function, ints, poison, require, type_of


class Window:
    """An input's or output's buffer, and the block of the array that it holds."""

    def __init__(self, array, bounds, transform, low, high, output, ahead):
        self.array, self.bounds, self.transform = array, bounds, transform
        self.low, self.high, self.output, self.ahead = low, high, output, ahead
        self.index = None
        self.buffers = {}
        self.buffer = poison(bounds, array.dtype)

    def place(self, index):
        """The slices of the array and of the buffer where both are."""
        inside, of_buffer = [], []
        for i, size, n, low, high in zip(
            index,
            self.bounds,
            self.array.shape,
            self.low or [None] * len(index),
            self.high or [None] * len(index),
            strict=True,
        ):
            first = i * size if low is None else i - low
            if low is None:
                require(0 <= first < n, f"block {i} of {size} in {n}")
            else:
                require(first >= -low and first + size <= n + high, f"a window at {first} of {size} in {n}, padded")
            lo, hi = max(first, 0), min(first + size, n)
            inside.append(slice(lo, max(hi, lo)))
            of_buffer.append(slice(lo - first, max(hi, lo) - first))
        return tuple(inside), tuple(of_buffer)

    def fetch(self, index):
        buffer = poison(self.bounds, self.array.dtype)
        inside, of_buffer = self.place(index)
        buffer[of_buffer] = self.array[inside]
        return buffer

    def prefetch(self, index):
        if not self.output and index != self.index:
            self.buffers[index] = self.fetch(index)

    def enter(self, index):
        """Of the program that runs next."""
        if index == self.index:
            return
        if self.output:
            self.leave()
            self.place(index)
            self.buffer[...] = poison(self.bounds, self.array.dtype)
        else:
            self.buffer[...] = self.buffers.pop(index) if index in self.buffers else self.fetch(index)
        self.index = index

    def leave(self):
        if self.output and self.index is not None:
            inside, of_buffer = self.place(self.index)
            self.array[inside] = self.buffer[of_buffer]


class Machine:
    def __init__(self, module, bounds=None):
        self.module = module  # which owns the ops
        self.copies, self.counters, self.failed_checks = {}, [], []
        functions = {str(f.attributes["sym_name"]).strip('"'): f.operation for f in module.body.operations}
        self.kernel_op = next(f for f in functions.values() if "tpu.core_type" in f.attributes)
        a = self.kernel_op.attributes
        self.bounds = ints(a["iteration_bounds"]) if "iteration_bounds" in a else []
        dynamic = iter(bounds or [])
        self.bounds = [next(dynamic) if b == DYNAMIC else b for b in self.bounds]
        self.prefetch = ints(a["scalar_prefetch"])[0]
        self.scratch = ints(a["scratch_operands"])[0]
        self.kernel = Function(self.kernel_op, self)
        self.windows = []
        for w in a["window_params"] if "window_params" in a else []:
            if "transform_indices" not in w:
                self.windows.append(None)
                continue
            transform = Function(functions[str(w["transform_indices"]).lstrip("@")], self)
            kind = re.search(r"<\[(.*?)\],? *\[(.*?)\]>", str(w["window_kind"])) if "window_kind" in w else None
            self.windows.append(
                (
                    ints(w["window_bounds"]),
                    transform,
                    kind and ints(kind.group(1)),
                    kind and ints(kind.group(2)),
                    "synchronous" not in str(w),
                )
            )

    def run(self, prefetch, inputs, outputs):
        """Runs the kernel; outputs are changed in place (they start with poison, or an aliased input's contents)."""
        types = [type_of(t.type) for t in self.kernel_op.regions[0].blocks[0].arguments]
        scratch_types = types[len(types) - self.scratch :] if self.scratch else []
        spaces = [str(t.type) for t in self.kernel_op.regions[0].blocks[0].arguments]
        scratch = []
        for (shape, dtype), space in zip(scratch_types, spaces[len(spaces) - self.scratch :], strict=True):
            if "semaphore_mem" in space:
                scratch.append(np.zeros(shape, np.int32))
                self.counters.append(scratch[-1])
            else:
                scratch.append(poison(shape, dtype))
        arrays = list(inputs) + list(outputs)
        if not self.bounds:
            assert not self.windows
            buffers = [a.copy() for a in inputs]
            results = [poison(o.shape, o.dtype) for o in outputs]
            kinds = spaces[self.prefetch :]
            for i, a in enumerate(arrays):
                if "memory_space<any>" in kinds[i]:
                    (buffers if i < len(inputs) else results)[i if i < len(inputs) else i - len(inputs)] = a
            self.kernel([*prefetch, *buffers, *results, *scratch])
            for o, r in zip(outputs, results, strict=True):
                if o is not r:
                    o[...] = r
            return self.finish()
        windows = [
            None if w is None else Window(a, tuple(w[0]), w[1], w[2], w[3], i >= len(inputs), w[4])
            for i, (a, w) in enumerate(zip(arrays, self.windows, strict=True))
        ]
        points = list(np.ndindex(*self.bounds))
        index = [self.indices(windows, p, prefetch) for p in points]
        for n, point in enumerate(points):
            for w, i in zip(windows, index[n], strict=True):
                if w:
                    w.enter(i)
            if n + 1 < len(points):
                for w, i in zip(windows, index[n + 1], strict=True):
                    if w and w.ahead:
                        w.prefetch(i)
            memories = [w.buffer if w else a for w, a in zip(windows, arrays, strict=True)]
            self.kernel([*[np.int32(i) for i in point], *prefetch, *memories, *scratch])
        for w in windows:
            if w:
                w.leave()
        return self.finish()

    def indices(self, windows, point, prefetch):
        grid = [np.int32(i) for i in point]
        return [w and tuple(int(i) for i in w.transform([*grid, *prefetch])) for w in windows]

    def finish(self):
        require(not any(self.copies.values()), "a copy that nobody waited for")
        require(all(not np.any(c) for c in self.counters), "a semaphore that is not 0 at the end")
