"""The text of a random Pallas kernel and of its call, by seed: what random_kernels.py runs. Only values that all right
evaluations agree on reach an output."""

import dataclasses

from random_values import NARROW, R, V, Values, int_range, is_float, shape_text


class Generator(Values):
    # -- Refs
    def place(self, ref, kinds, limit=None):
        """Text of an index of a Ref, and the shape that it takes. kinds: of a dynamic dim."""
        items, shape, dynamic = [], [], False
        array = None
        if "array" in kinds and ref.shape and self.chance(0.3):  # one array for one dim, the others whole or integers
            array = self.r.randrange(len(ref.shape))
        for d, n in enumerate(ref.shape):
            r = self.r.random()
            if d == array:
                k = self.r.choice([1, 2, 3, 5])
                i = self.some((k,), "int32")
                if "distinct" in kinds:
                    i = self.add(
                        f"jnp.arange({k}) * {self.r.choice([1, 2, -1])} + ({self.scalar()})", (k,), "int32", 1e30
                    )
                items.append(i.name)
                shape.append(k)
                dynamic = True
            elif r < 0.35 or array is not None:
                items.append(":")
                shape.append(n)
            elif r < 0.45:
                i = self.r.randrange(n)
                items.append(f"pl.ds({i}, {self.r.randint(1, n - i)})")
                shape.append(int(items[-1].split(", ")[1][:-1]))
            elif r < 0.55 and "integer" in kinds:
                items.append(self.scalar())
                dynamic = True
            elif r < 0.65 and "strided" in kinds and n >= 3:
                k = self.r.randint(1, (n + 1) // 2)
                items.append(f"pl.ds({self.scalar()}, {k}, 2)")
                shape.append(k)
                dynamic = True
            else:
                w = self.r.randint(1, n)
                items.append(
                    f"pl.ds({'jnp.maximum(' + self.scalar() + ', 0)' if 'positive' in kinds else self.scalar()}, {w})"
                )
                shape.append(w)
                dynamic = True
        if "tuple" in kinds:
            items = ["slice(None)" if i == ":" else i for i in items]
        return ", ".join(items) or "...", tuple(shape), dynamic

    def load(self):
        ref = self.r.choice([r for r in self.refs if r.readable])
        info = (ref.dtype, ref.m, ref.q, ref.err)
        if self.chance(0.3) or not ref.shape:
            return self.add(ref.loaded(f"{ref.name}[...]"), ref.shape, *info)
        kind = self.r.random()
        if kind < 0.55 or ref.holds:
            at, s, _ = self.place(ref, ("integer", "strided", "array"))
            return self.add(ref.loaded(f"{ref.name}[{at}]"), s, *info)
        if kind < 0.65:
            at, s, _ = self.place(ref, ())
            return self.add(f"plgpu.load({ref.name}.at[{at}])", s, *info)
        if kind < 0.72:  # XLA joins the slices of other reads into one that lies elsewhere
            outer, inner, s = self.nested(ref)
            return self.add(f"plgpu.load({ref.name}.at[{outer}].at[{inner}])", s, *info)
        if kind < 0.86:
            at, s, _ = self.place(ref, ("positive",))
            mask, other = self.some(s, "bool"), self.constant((), ref.dtype)
            return self.add(
                f"plgpu.load({ref.name}.at[{at}], mask={mask.name}, other={other.name})",
                s,
                ref.dtype,
                max(ref.m, other.m),
                min(ref.q, other.q),
                ref.err,
            )
        at, s, _ = self.place(R(ref.name, ref.shape, ref.dtype, False), ())
        if not s:
            return self.add(f"{ref.name}[...]", ref.shape, *info)
        return self.add(f"{ref.name}.at[{at}][{', '.join(f'{n // 2}:' for n in s)}]", [n - n // 2 for n in s], *info)

    def nested(self, ref):
        """Texts of an index of a Ref and of one of what that takes, and the shape."""
        outer, s, _ = self.place(ref, ())
        inner, s, _ = self.place(R("", s, ref.dtype, False), ("integer",))
        return outer, inner, s

    def note(self, ref, v, adds=False):
        if adds:
            ref.err += v.err
        ref.m, ref.q, ref.err = max(ref.m, v.m), min(ref.q, v.q), max(ref.err, v.err)

    def storable(self, ref, v):
        """Or another: what an 8-bit float makes of it must be known."""
        if not ref.holds or not is_float(ref.dtype):
            return v
        return self.small(v if v.exact else self.cast(self.iota(v.shape, "int32"), ref.dtype), 8.0)

    def store(self, ref=None, whole=False):
        ref = ref or self.r.choice([r for r in self.refs if r.writable])
        if whole or not ref.shape or not ref.filled or self.chance(0.3):
            v = self.storable(ref, self.some(ref.shape, ref.dtype))
            if not ref.filled and self.indent == 2:
                ref.m, ref.q, ref.err = ref.m or v.m, v.q, max(ref.err, v.err)
                ref.filled = True
            self.note(ref, v)
            return self.emit(f"{ref.name}[...] = {ref.stored(v)}")
        if ref.holds and is_float(ref.dtype):
            return self.store(ref, True)
        kind = self.r.random()
        if kind < 0.3 or ref.holds:
            at, s, _ = self.place(ref, ("integer", "strided", "array", "distinct"))
            v = self.some(s, ref.dtype)
            self.note(ref, v)
            return self.emit(f"{ref.name}[{at}] = {ref.stored(v)}")
        if kind < 0.36:
            outer, inner, s = self.nested(ref)
            v = self.some(s, ref.dtype)
            self.note(ref, v)
            return self.emit(f"{ref.name}.at[{outer}][{inner}] = {v.name}")
        if kind < 0.44 and ref.readable:
            at, s, _ = self.place(ref, ("integer", "tuple"))
            v = self.some(s, ref.dtype)
            was = ref.m, ref.q, ref.err
            self.note(ref, v)
            return self.add(f"ref_swap({ref.name}, ({at},), {v.name})", s, ref.dtype, *was)
        if kind < 0.52 and self.copy(ref):
            return None
        if kind < 0.6:
            at, s, _ = self.place(ref, ())
            v = self.some(s, ref.dtype)
            self.note(ref, v)
            return self.emit(f"plgpu.store({ref.name}.at[{at}], {v.name})")
        if kind < 0.75:
            at, s, _ = self.place(ref, ("positive",))
            v, mask = self.some(s, ref.dtype), self.some(s, "bool")
            self.note(ref, v)
            return self.emit(f"plgpu.store({ref.name}.at[{at}], {v.name}, mask={mask.name})")
        if ref.readable and ref.dtype in ("int32", "uint32", "float32") and (ref.dtype != "float32" or ref.err == 0):
            at, s, _ = self.place(ref, ("integer", "tuple"))
            v = self.some(s, ref.dtype)
            op = self.r.choice(["max", "min"] if is_float(ref.dtype) else ["add", "max", "min"])
            if v.exact:
                was = ref.m, ref.q
                self.note(ref, v)
                return self.add(
                    f"plgpu.atomic_{op}({ref.name}, ({at},), {v.name})",
                    s,
                    ref.dtype,
                    *(was if is_float(ref.dtype) else (1e30,)),
                )
        if not is_float(ref.dtype) and ref.dtype != "bool":
            at, s, _ = self.place(ref, ("integer", "array", "tuple"))
            v = self.some(s, ref.dtype)
            return self.emit(f"ref_addupdate({ref.name}, ({at},), {v.name})")
        return self.store(ref, True)

    def copy(self, ref):
        """Of a part of another Ref; False if there is none."""
        others = [
            r
            for r in self.refs
            if r is not ref
            and r.readable
            and r.dtype == ref.dtype
            and not r.holds
            and r.shape
            and len(r.shape) == len(ref.shape)
            and ref.dtype != "bool"
        ]
        if not others:
            return False
        source = self.r.choice(others)
        sizes = [self.r.randint(1, min(a, b)) for a, b in zip(source.shape, ref.shape)]
        of, to = (", ".join(f"pl.ds({self.scalar()}, {n})" for n in sizes) for _ in range(2))
        self.note(ref, V("", (), ref.dtype, source.m, source.q, source.err))
        self.emit(f"pltpu.sync_copy({source.name}.at[{of}], {ref.name}.at[{to}])")
        return True

    # -- control flow
    def body(self, statements):
        mark = len(self.values), list(self.scalars)
        self.indent += 1
        self.depth += 1
        for _ in range(statements):
            self.statement()
        return mark

    def end(self, mark):
        self.indent -= 1
        self.depth -= 1
        del self.values[mark[0] :]
        self.scalars = mark[1]

    def when(self):
        if self.chance(0.5):
            test = f"{self.scalar()} {self.r.choice(['<', '>', '=='])} {self.r.randint(0, 3)}"
        else:
            test = self.some((), "bool").name
        self.emit(f"@pl.when({test})")
        f = self.name("f")
        self.emit(f"def {f}():")
        mark = self.body(self.r.randint(1, 2))
        self.store()
        self.end(mark)

    def scope(self):
        """A Ref of its own."""
        f, t = self.name("f"), R(
            self.name("t"), self.shape(self.r.choice([1, 2])), self.r.choice(["float32", "int32", "bfloat16"]), True
        )
        self.emit(f"def {f}({t.name}):")
        mark = self.body(0)
        self.store(t, True)
        t.filled = True
        self.refs.append(t)
        for _ in range(self.r.randint(1, 4)):
            self.statement()
        v = self.add(f"{t.name}[...]", t.shape, t.dtype, t.m, t.q, t.err, keep=False)
        self.emit(f"return {v.name}")
        self.end(mark)
        self.refs.remove(t)
        self.add(
            f"pl.run_scoped({f}, pltpu.VMEM({shape_text(t.shape)}, jnp.{t.dtype}))", v.shape, v.dtype, v.m, v.q, v.err
        )

    def loop(self):
        c = self.some()
        if is_float(c.dtype) and not c.exact:
            c = self.constant(c.shape, c.dtype)
        if is_float(c.dtype):
            c = self.small(c)
            m, q = 64.0, min(c.q, 1.0)
        else:
            m, q = 1e30, 1.0
        f, i, carry = (
            self.name("f"),
            self.name("i"),
            V(
                self.name("c"),
                c.shape,
                c.dtype,
                m if is_float(c.dtype) else (1 if c.dtype == "bool" else max(int_range(c.dtype))),
                q,
            ),
        )
        whiles = self.chance(0.2)
        self.emit(f"def {f}({i}, {carry.name}):" if not whiles else f"def {f}(s):")
        if whiles:
            self.emit(f"    {i}, {carry.name} = s")
        self.loops += 1
        mark = len(self.values), list(self.scalars)
        self.values.append(carry)
        self.scalars = [*self.scalars, i, i]
        inner = self.body(self.r.randint(1, 3))
        x = self.some(c.shape, c.dtype)
        if c.dtype == "bool":
            new = f"{carry.name} ^ {x.name}"
        elif is_float(c.dtype):
            if not x.exact or x.q < q:  # the carry is a multiple of q
                x = self.cast(self.iota(c.shape, "int32"), c.dtype)
            new = f"jnp.clip({carry.name} + {x.name}, -64, 64)"
        else:
            new = f"{carry.name} * {self.r.choice([1, 1, 3])} + {x.name}"
        self.emit(f"return ({i} + 1, {new})" if whiles else f"return {new}")
        self.end(inner)
        del self.values[mark[0] :]
        self.scalars = mark[1]
        self.loops -= 1
        low, high = self.r.choice([0, 0, 1, "s_ref[1]"]), self.r.choice(
            [2, 5, "s_ref[0]", "s_ref[0]", "s_ref[2]", "p0" if "p0" in self.scalars else "s_ref[0]"]
        )
        if whiles:
            text = f"lax.while_loop(lambda s: s[0] < {high}, {f}, (jnp.asarray({low}, jnp.int32), {c.name}))[1]"
        else:
            text = f"lax.fori_loop({low}, {high}, {f}, {c.name})"
        self.add(text, c.shape, c.dtype, carry.m, carry.q)

    def cond(self):
        a = self.some()
        b, c = self.some(a.shape, a.dtype), self.some(a.shape, a.dtype)
        info = max(a.m, b.m, c.m), min(a.q, b.q, c.q), max(a.err, b.err, c.err)
        if self.chance(0.5):
            return self.add(
                f"lax.cond({self.some((), 'bool').name}, lambda: {a.name}, lambda: {b.name})", a.shape, a.dtype, *info
            )
        return self.add(
            f"lax.switch({self.scalar()}, [lambda: {a.name}, lambda: {b.name}, lambda: {c.name}])",
            a.shape,
            a.dtype,
            *info,
        )

    def statement(self):
        kinds = {
            self.load: 5,
            self.unary: 3,
            self.binary: 5,
            self.where: 2,
            self.reduce: 3,
            self.dot: 1.2,
            self.rearrange: 3,
            self.store: 3,
            self.cond: 0.7,
        }
        if self.depth < 2:
            kinds |= {self.when: 1.2, self.scope: 0.5, self.loop: 2 if self.loops < 2 else 0}
        self.r.choices(list(kinds), list(kinds.values()))[0]()

    # -- the call
    def index_map(self, rank, blocks, dims, grid):
        args = [f"p{i}" for i in range(rank)]
        items = []
        for d, (b, n) in enumerate(zip(blocks, dims)):
            size = 1 if b is None else b
            count = -(-n // max(size, 1)) if not isinstance(b, str) else n
            if not args or self.chance(0.2) or (b == n and self.chance(0.9)):
                items.append(str(self.r.randrange(max(count, 1)) if b != n else 0))
                continue
            axis = d if d < rank and self.chance(0.6) else self.r.randrange(rank)
            p = args[axis]
            items.append(
                self.r.choice(
                    [p] * 8
                    + [
                        f"{p} + 1",
                        f"{p} // 2",
                        f"{p} % 2",
                        f"{grid[axis] - 1} - {p}",
                        f"{p} - 1",
                        f"-{p}",
                        f"abs(s[{p}])",
                        f"s[{p}]",
                        " + ".join(args),
                        f"{p} * 2",
                    ]
                )
            )
        return f"lambda {', '.join([*args, 's'])}: ({''.join(i + ', ' for i in items)})"

    def spec(self, shape, rank, grid):
        self.fits = True
        if self.chance(0.15) or not shape:
            return f"pl.BlockSpec({shape_text(shape)}, lambda *p: {shape_text([0] * len(shape))})", shape
        blocks, seen, texts = [], [], []
        element = self.chance(0.12)
        for d, n in enumerate(shape):
            if self.chance(0.15) and not element:
                blocks.append(None)
                texts.append("None")
                continue
            b = n if self.chance(0.3) else self.r.randint(1, n)
            if element:
                low, high = (
                    (self.r.randint(0, 2), self.r.randint(0, 2)) if self.chance(0.3) and not self.aliased else (0, 0)
                )
                self.padded = self.padded or low + high > 0
                texts.append(f"pl.Element({b}, ({low}, {high}))" if low or high else f"pl.Element({b})")
            else:
                texts.append(str(b))
            blocks.append(b)
            seen.append(b)
            self.fits = self.fits and n % b == 0
        return (
            f"pl.BlockSpec(({''.join(t + ', ' for t in texts)}), {self.index_map(rank, blocks, shape, grid)})",
            tuple(seen),
        )

    def program(self, seed):
        r = self.r
        rank = r.choice([0, 1, 1, 1, 2, 2, 3])
        grid = [r.choice([1, 2, 3, 4]) if rank < 3 else r.choice([1, 2, 3]) for _ in range(rank)]
        arrays, names = [], []
        specs, aliases, fits = {"x": [], "o": []}, {}, []
        for kind, count in (("x", r.randint(1, 3)), ("o", r.randint(1, 2))):
            for i in range(count):
                shape = self.shape(r.choice([1, 2, 2, 3]) if r.random() < 0.97 else 0)
                dtype = self.dtype()
                text, block = self.spec(shape, rank, grid)
                same = [
                    j
                    for j, (_, t, spec) in enumerate(specs["x"])
                    if j not in aliases and t not in NARROW and "pl.Element" not in spec
                ]
                # the input itself is left alone: JAX's interpreter has no memory that two Refs share
                if (
                    kind == "o"
                    and same
                    and len(specs["x"]) - len(aliases) > 1
                    and not self.padded
                    and self.chance(0.35)
                ):
                    j = r.choice(same)
                    aliases[j] = i
                    self.aliased = True
                    source = next(ref for ref in self.refs if ref.name == f"x{j}_ref")
                    self.refs.remove(source)
                    specs["o"].append(specs["x"][j])
                    self.refs.append(
                        dataclasses.replace(source, name=f"o{i}_ref", writable=True, filled=True, readable=fits[j])
                    )
                    names.append(f"o{i}_ref")
                    continue
                readable = kind == "x" or "pl.Element" not in text and (len(block) == 0 or self.fits)
                specs[kind].append((shape, dtype, text))
                m = 1.0 if dtype == "bool" else 8.0
                wide = not is_float(dtype) and dtype != "bool" and r.random() < 0.25
                if wide:
                    m = float(max(int_range(dtype)))
                held = self.r.choice(list(NARROW)) if self.chance(0.1) else ""
                if held:
                    dtype, m, wide = NARROW[held], 16.0, False
                    specs[kind][-1] = shape, held, text
                self.refs.append(
                    R(
                        f"{kind}{i}_ref",
                        block,
                        dtype,
                        kind == "o",
                        m if kind == "x" else 0.0,
                        0.5 if is_float(dtype) and kind == "x" else 1.0,
                        readable=readable,
                        holds=held,
                    )
                )
                fits.append(len(block) == 0 or self.fits)
                names.append(f"{kind}{i}_ref")
                if kind == "x":
                    arrays.append(f"data({len(arrays)}, {shape_text(shape)}, {(held or dtype)!r}, {wide})")
        scratch = []
        for i in range(r.choice([0, 0, 1, 1, 2])):
            shape, dtype = self.shape(r.choice([1, 2])), self.dtype()
            dtype = "int32" if dtype == "bool" else dtype
            scratch.append(f"pltpu.VMEM({shape_text(shape)}, jnp.{dtype})")
            self.refs.append(R(f"t{i}_ref", shape, dtype, True))
            names.append(f"t{i}_ref")
        self.scalars = [f"p{i}" for i in range(rank)] * 2 + ["s_ref[0]", "s_ref[1]", "s_ref[2]", "s_ref[3]"]
        for i in range(rank):
            self.emit(f"p{i} = pl.program_id({i})")
        for ref in self.refs:
            if not ref.writable or ref.filled and self.chance(0.7):
                continue
            if rank and self.chance(0.35):  # set by the first program only, where it lasts
                axis = r.randrange(rank)
                v = self.storable(ref, self.some(ref.shape, ref.dtype))
                self.note(ref, v)
                ref.filled = True
                self.emit(f"@pl.when(p{axis} == 0)")
                self.emit(f"def {self.name('f')}():")
                self.emit(f"    {ref.name}[...] = {ref.stored(v)}")
            else:
                self.store(ref, True)
        self.load()
        for _ in range(self.budget):
            self.statement()
        for ref in self.refs:
            if ref.name.startswith("o") and self.chance(0.7):
                self.store(ref, self.chance(0.5))
        errors = [ref.err for ref in self.refs if ref.name.startswith("o")]
        out = ", ".join(f"jax.ShapeDtypeStruct({shape_text(s)}, jnp.{t})" for s, t, _ in specs["o"])
        scalars = [r.choice([0, 1, 2, 3, 4, 7, 12]), r.choice([-2, 0, 1, 3]), r.randint(0, 20), r.randint(-9, 9)]
        head = f"def make(data, **options):  # seed {seed}\n    def kernel(s_ref, {', '.join(names)}):\n"
        grid_spec = (
            f"pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid={shape_text(grid)},\n       "
            f" in_specs=[{', '.join(t for *_, t in specs['x'])}],\n       "
            f" out_specs=[{', '.join(t for *_, t in specs['o'])}],\n        scratch_shapes=[{', '.join(scratch)}])"
        )
        tail = (
            f"    call = pl.pallas_call(kernel, out_shape=[{out}], grid_spec={grid_spec},"
            f" input_output_aliases={ {j + 1: i for j, i in aliases.items()} }, **options)\n    return call,"
            f" [jnp.asarray({scalars}, jnp.int32), {', '.join(arrays)}]\n"
        )
        return head + "\n".join(self.lines) + "\n", tail, errors


def generate(seed):
    """(head, tail, errors): the program's text in two parts, the kernel's body at the end of the first, and how far
    each output may be off."""
    return Generator(seed).program(seed)
