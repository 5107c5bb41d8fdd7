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
