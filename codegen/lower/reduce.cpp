// Reductions: per invocation over registers and strips, then over lanes by xor shuffles, then over subgroups through
// shared memory. Each invocation that shares a result ends with the same bits: the shuffle ladder is symmetric and the
// exchange adds in one fixed order.
#include <algorithm>
#include <bit>

#include "codegen/lower/emission.h"
#include "engine/ir/reference.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

Values ReduceEmitter::across_invocations(Values v, int bits, const Accumulator& acc) {
  bits &= s_.group - 1;
  if (bits == 0) return v;
  int by_shuffle = s_.shuffles ? bits & (s_.subgroup - 1) : 0;
  for (int bit = 1; bit < s_.group; bit *= 2) {
    if (!(by_shuffle & bit)) continue;
    Values other;
    for (Value x : v) other.push_back(b_.shuffle_xor(x, bit));
    v = acc.merge(v, other);
  }
  // What is left, one contiguous run of bits of the invocation's number after the other: everyone writes, everyone
  // reads the run's members in order.
  int rest = bits & ~by_shuffle;
  while (rest) {
    const int stride = rest & -rest;
    int count = 2;
    while (rest & (stride * count)) count *= 2;
    rest &= ~((count - 1) * stride);
    std::vector<Slot> slots;
    for (Value x : v) {
      slots.push_back(arena_.temporary(b_.dtype(x), s_.group));
      arena_.order({}, {slots.back().range});
      b_.store(slots.back().ref, invocation_, x);
    }
    std::vector<MemoryRange> reads;
    for (const Slot& s : slots) reads.push_back(s.range);
    arena_.order(reads, {});
    Value position;
    if (stride * count == s_.group && stride == 1) position = b_.i32(0);
    else {
      const Value by = b_.i32(stride);
      position = b_.sub(invocation_, b_.mul(b_.rem(b_.div(invocation_, stride), count), by));
    }
    auto member = [&](Value j) {
      Values x;
      for (const Slot& s : slots) x.push_back(b_.load(s.ref, b_.add(position, b_.mul(j, b_.i32(stride)))));
      return x;
    };
    v = member(b_.i32(0));
    if (count <= 8) {
      for (int j = 1; j < count; ++j) v = acc.merge(v, member(b_.i32(j)));
    } else {
      v = b_.for_loop(1, count, v, [&](Value j, const Values& a) { return acc.merge(a, member(j)); });
    }
    for (Slot& s : slots) arena_.free(s);
  }
  return v;
}

void ReduceEmitter::reduction(const Shape& s, const std::vector<int>& dims, const std::vector<bool>& reduced,
                              bool needs_layout, bool to_registers, const Accumulator& acc,
                              const std::function<Values(const Coords&)>& element_of,
                              const std::function<void(const NestPoint&, const Values&)>& sink) {
  Shape kept_shape;
  std::vector<int> kept_axes;
  std::vector<size_t> kept, dropped;
  int64_t count = 1;
  for (size_t d = 0; d < s.size(); ++d) {
    if (reduced[d]) {
      dropped.push_back(d);
      count *= s[d];
      continue;
    }
    kept.push_back(d);
    kept_shape.push_back(s[d]);
    kept_axes.push_back(dims[d]);
  }
  if (num_elements(kept_shape) == 0) return;

  // All of one kept element's operands, one after another, by whoever asks.
  auto sequential = [&](const Coords& kept_coords) {
    Coords c(s.size());
    for (size_t i = 0; i < kept.size(); ++i) c[kept[i]] = kept_coords[i];
    std::function<Values(size_t, const Values&)> loops = [&](size_t i, const Values& a) -> Values {
      if (i == dropped.size()) return acc.step(a, element_of(c));
      return nests_.counted(s[dropped[i]], a, [&](Value j, const Values& inner) {
        c[dropped[i]] = {s[dropped[i]] == 1 ? b_.i32(0) : j};
        return loops(i + 1, inner);
      });
    };
    return count == 0 ? acc.identity : loops(0, acc.identity);
  };

  const bool by_layout = !s_.general && nests_.fits(dims);
  if (!by_layout) {
    if (needs_layout) throw InternalError(k_.name + ": a reduction without a layout reads values in registers");
    if (to_registers) {
      nests_.by_layout(kept_shape, kept_axes, true, [&](const NestPoint& p) { sink(p, sequential(p.c)); });
      return;
    }
    if (num_elements(kept_shape) > 1) {
      nests_.flat(kept_shape, kept_axes, [&](const NestPoint& p) { sink(p, sequential(p.c)); });
      return;
    }
    NestPoint p;
    p.c.assign(kept.size(), at(0));
    p.regs.assign(kept.size(), 0);
    p.valid = nests_.first_invocation(0);
    if (s_.general || s_.group == 1 || count < s_.group) {
      sink(p, sequential(p.c));
      return;
    }
    // One result of many elements: dealt out in turn, then joined across the group.
    Shape all;
    for (size_t d : dropped) all.push_back(s[d]);
    const Values mine = nests_.counted(cdiv(count, int64_t{s_.group}), acc.identity, [&](Value i, const Values& a) {
      Value e = b_.add(b_.mul(i, b_.i32(s_.group)), invocation_), valid;
      if (count % s_.group != 0) {
        valid = b_.lt(e, b_.i32(count));
        e = b_.min(e, b_.i32(count - 1));
      }
      const Coords u = unravel(e, all);
      Coords c(s.size(), at(0));
      for (size_t j = 0; j < dropped.size(); ++j)
        if (s[dropped[j]] != 1) c[dropped[j]] = u[j];
      Values x = element_of(c);
      if (valid)
        for (size_t j = 0; j < x.size(); ++j) x[j] = b_.select(valid, x[j], acc.neutral[j]);
      return acc.step(a, x);
    });
    sink(p, across_invocations(mine, s_.group - 1, acc));
    return;
  }

  int kept_bits = 0, reduced_bits = 0;
  for (size_t d = 0; d < s.size(); ++d)
    if (dims[d] != kNoAxis)
      (reduced[d] ? reduced_bits : kept_bits) |= (plan(dims[d]).tcount - 1) * plan(dims[d]).tstride;
  const Value first = nests_.first_invocation(kept_bits);

  // Kept strips outside; inside, one accumulator per kept register; then the reduced strips, then the reduced
  // registers.
  std::vector<Value> strip(s.size());
  auto regs_of = [&](size_t d) { return dims[d] == kNoAxis ? 1 : plan(dims[d]).reg; };
  auto enumerate = [&](const std::vector<size_t>& which, const std::function<void(const std::vector<int>&)>& f) {
    std::vector<int> r(which.size(), 0);
    for (;;) {
      f(r);
      size_t i = which.size();
      while (i-- > 0) {
        if (++r[i] < regs_of(which[i])) break;
        r[i] = 0;
      }
      if (i == SIZE_MAX) return;
    }
  };
  auto one_kept_strip = [&] {
    size_t points = 1;
    for (size_t d : kept) points *= static_cast<size_t>(regs_of(d));
    const size_t width = acc.identity.size();
    Values init;
    for (size_t i = 0; i < points; ++i) init.insert(init.end(), acc.identity.begin(), acc.identity.end());
    std::function<Values(size_t, const Values&)> loops = [&](size_t i, const Values& a) -> Values {
      if (i < dropped.size()) {
        const size_t d = dropped[i];
        const int64_t n = dims[d] == kNoAxis ? 1 : plan(dims[d]).strips();
        if (n == 1) {
          strip[d] = {};
          return loops(i + 1, a);
        }
        return nests_.counted(n, a, [&](Value j, const Values& inner) {
          strip[d] = j;
          return loops(i + 1, inner);
        });
      }
      Values next = a;
      enumerate(dropped, [&](const std::vector<int>& rr) {
        Coords c(s.size());
        Value valid;
        for (size_t j = 0; j < dropped.size(); ++j)
          c[dropped[j]] = nests_.axis_coord(dims[dropped[j]], s[dropped[j]], strip[dropped[j]], rr[j], valid);
        size_t point = 0;
        enumerate(kept, [&](const std::vector<int>& kr) {
          Value unused;
          for (size_t j = 0; j < kept.size(); ++j)
            c[kept[j]] = nests_.axis_coord(dims[kept[j]], s[kept[j]], strip[kept[j]], kr[j], unused);
          Values x = element_of(c);
          if (valid)
            for (size_t j = 0; j < x.size(); ++j) x[j] = b_.select(valid, x[j], acc.neutral[j]);
          const auto at_point = next.begin() + static_cast<std::ptrdiff_t>(point * width);
          const Values stepped = acc.step({at_point, at_point + static_cast<std::ptrdiff_t>(width)}, x);
          std::copy(stepped.begin(), stepped.end(), at_point);
          ++point;
        });
      });
      return next;
    };
    Values total = count == 0 ? init : loops(0, init);
    size_t point = 0;
    enumerate(kept, [&](const std::vector<int>& kr) {
      const auto at_point = total.begin() + static_cast<std::ptrdiff_t>(point++ * width);
      const Values r = across_invocations({at_point, at_point + static_cast<std::ptrdiff_t>(width)}, reduced_bits, acc);
      NestPoint p;
      p.regs = kr;
      p.valid = first;
      for (size_t j = 0; j < kept.size(); ++j)
        p.c.push_back(nests_.axis_coord(dims[kept[j]], s[kept[j]], strip[kept[j]], kr[j], p.valid));
      sink(p, r);
    });
  };
  std::function<void(size_t)> strips = [&](size_t i) {
    if (i == kept.size()) return one_kept_strip();
    const size_t d = kept[i];
    const int64_t n = dims[d] == kNoAxis ? 1 : plan(dims[d]).strips();
    if (n == 1) {
      strip[d] = {};
      return strips(i + 1);
    }
    nests_.counted(n, [&](Value j) {
      strip[d] = j;
      strips(i + 1);
    });
  };
  strips(0);
}

void ReduceEmitter::reduce(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value in = o.operands[0], v = o.results[0];
  const DType t = k_.type(v).dtype;
  const Opcode combiner = ir::combining_op(o.code);
  const DType a = ir::combiner(combiner)->accumulator(t);
  Accumulator acc;
  acc.identity = acc.neutral = {b_.constant(a, reference::identity(combiner, a))};
  acc.step = acc.merge = [&, combiner, a](const Values& x, const Values& y) {
    return Values{b_.op(combiner, {x[0], y[0]}, a)};
  };
  std::vector<bool> reduced(shape(in).size(), false);
  for (int64_t d : o.ints(Attr::axes)) reduced[static_cast<size_t>(d)] = true;
  placement_.set_result(v, placement_.arena_reads({in}), [&](const auto& put) {
    reduction(
        shape(in), axes_.of(in), reduced, placement_.reads_registers(in), placement_.kind(v) == Kind::registers, acc,
        [&](const Coords& c) { return Values{b_.convert(elements_.of(in, c), a)}; },
        [&](const NestPoint& p, const Values& r) { put(p, b_.convert(r[0], t)); });
  });
}

void ReduceEmitter::arg_reduce(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value in = o.operands[0], v = o.results[0];
  const DType t = k_.type(in).dtype;
  const Opcode extreme = ir::combining_op(o.code), beyond = extreme == Opcode::max ? Opcode::gt : Opcode::lt;
  const auto axis = static_cast<size_t>(o.attr(Attr::axis));
  Accumulator acc;
  acc.identity = acc.neutral = {b_.constant(t, reference::identity(extreme, t)), b_.i32(INT32_MAX)};
  // The first of equals: NaN before everything, then the better value, then the smaller index.
  acc.step = acc.merge = [&, t, beyond](const Values& x, const Values& y) {
    const auto logic = [&](Opcode c, Value p, Value q) { return b_.op(c, {p, q}, DType::boolean); };
    Value better = logic(beyond, y[0], x[0]), same = logic(Opcode::eq, y[0], x[0]);
    if (is_float(t)) {
      const Value xn = logic(Opcode::ne, x[0], x[0]), yn = logic(Opcode::ne, y[0], y[0]);
      better = logic(Opcode::or_, better, logic(Opcode::and_, yn, b_.op(Opcode::not_, {xn}, DType::boolean)));
      same = logic(Opcode::or_, same, logic(Opcode::and_, yn, xn));
    }
    better = logic(Opcode::or_, better, logic(Opcode::and_, same, logic(Opcode::lt, y[1], x[1])));
    return Values{b_.op(Opcode::select, {better, y[0], x[0]}, t),
                  b_.op(Opcode::select, {better, y[1], x[1]}, DType::i32)};
  };
  std::vector<bool> reduced(shape(in).size(), false);
  reduced[axis] = true;
  const DType r_type = k_.type(v).dtype;
  placement_.set_result(v, placement_.arena_reads({in}), [&](const auto& put) {
    reduction(
        shape(in), axes_.of(in), reduced, placement_.reads_registers(in), placement_.kind(v) == Kind::registers, acc,
        [&](const Coords& c) { return Values{elements_.of(in, c), c[axis].v}; },
        [&](const NestPoint& p, const Values& r) { put(p, b_.convert(r[1], r_type)); });
  });
}

// Inclusive running sums, products, maxima and minima. Many lines: one invocation walks each. Few long ones: every
// invocation sums a stretch, the stretches' sums are exchanged, and each walks its stretch again from what lies before
// it.
void ReduceEmitter::scan(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value in = o.operands[0], v = o.results[0];
  const Opcode combiner = ir::combining_op(o.code);
  const DType t = k_.type(v).dtype, a = ir::combiner(combiner)->accumulator(t);
  const auto axis = static_cast<size_t>(o.attr(Attr::axis));
  const bool reverse = o.attr_or(Attr::reverse, 0) != 0;
  const Shape& s = shape(v);
  const int64_t n = s[axis];
  const Value identity = b_.constant(a, reference::identity(combiner, a));
  auto combine = [&](Value x, Value y) { return b_.op(combiner, {x, y}, a); };
  auto read = [&](const Coords& c) { return b_.convert(elements_.of(in, c), a); };
  if (n == 1) {
    placement_.set_result(v, placement_.arena_reads({in}), [&](const auto& put) {
      nests_.each(s, axes_.of(v), placement_.kind(v) == Kind::registers || placement_.reads_registers(in), true,
                  [&](const NestPoint& p) { put(p, elements_.of(in, p.c)); });
    });
    return;
  }
  if (placement_.kind(v) != Kind::arena) throw InternalError(k_.name + ": a scan outside the arena", o.loc);
  if (placement_.reads_registers(in)) throw InternalError(k_.name + ": a scan of values in registers", o.loc);
  Place h = placement_.make(v);
  arena_.order(placement_.arena_reads({in}), {h.slot.range});
  if (num_elements(s) > 0) {
    Shape lines = s;
    lines[axis] = 1;
    std::vector<int> line_axes = axes_.of(v);
    line_axes[axis] = kNoAxis;
    auto position = [&](Value i) { return reverse ? b_.sub(b_.i32(n - 1), i) : i; };
    if (s_.general || s_.group == 1 || num_elements(lines) * 2 > s_.group) {
      nests_.flat(lines, line_axes, [&](const NestPoint& p) {
        nests_.counted(n, {identity}, [&](Value i, const Values& sum) {
          Coords c = p.c;
          c[axis] = {position(i)};
          const Value next = combine(sum[0], read(c));
          b_.when(p.valid, [&] { arena_.store(h.slot, c, b_.convert(next, t)); });
          return Values{next};
        });
      });
    } else {
      const int64_t stretch = cdiv(n, int64_t{s_.group});
      Slot sums = arena_.temporary(a, s_.group);
      Shape part = lines;
      for (size_t d = 0; d < s.size(); ++d)
        if (line_axes[d] != kNoAxis && plan(line_axes[d]).split) part[d] = std::min(plan(line_axes[d]).tile, s[d]);
      nests_.counted(num_elements(part), [&](Value line) {
        Coords c = unravel(line, part);
        for (size_t d = 0; d < s.size(); ++d) {
          if (lines[d] == 1) c[d] = at(0);
          else if (part[d] != lines[d]) {
            const Value last = b_.i32(s[d] - 1);
            c[d] = {b_.min(b_.add(c[d].v, nests_.tile_base(line_axes[d])), last)};
          }
        }
        const Value begin = b_.mul(invocation_, b_.i32(stretch));
        auto walk = [&](const Value& start, bool write) {
          return nests_.counted(stretch, {start}, [&](Value i, const Values& sum) {
            const Value e = b_.add(begin, i), valid = b_.lt(e, b_.i32(n));
            Coords x = c;
            x[axis] = {position(b_.min(e, b_.i32(n - 1)))};
            const Value next = b_.select(valid, combine(sum[0], read(x)), sum[0]);
            if (write) b_.when(valid, [&] { arena_.store(h.slot, x, b_.convert(next, t)); });
            return Values{next};
          })[0];
        };
        const Value mine = walk(identity, false);
        arena_.order({}, {sums.range});
        b_.store(sums.ref, invocation_, mine);
        arena_.order({sums.range}, {});
        const Value before = b_.for_loop(0, s_.group, {identity}, [&](Value j, const Values& x) {
          const Value y = b_.load(sums.ref, j), sum = combine(x[0], y);
          return Values{b_.select(b_.lt(j, invocation_), sum, x[0])};
        })[0];
        walk(before, true);
      });
      arena_.free(sums);
    }
  }
  arena_.touched(placement_.arena_reads({in}), h);
  placement_.of(v) = h;
}

}  // namespace tessera::lowering
