// Ops whose elements move to where data says: they work in the arena slots of their results, into which their operands
// are copied first.
#include <bit>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

// One invocation applies all updates that share the positions of the dims which x follows, in order; different ones
// meet in no element.
void RearrangeEmitter::scatter(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value x = o.operands[0], updates = o.operands[1], v = o.results[0];
  const DType t = k_.type(v).dtype;
  const auto& dims = o.ints(Attr::dims);
  const Shape &s = shape(v), &us = shape(updates);
  Place h = placement_.make(v);
  arena_.order(placement_.arena_reads({x}), {h.slot.range});
  nests_.each(s, axes_.of(v), placement_.reads_registers(x), true, [&](const NestPoint& p) {
    const Value e = elements_.of(x, p.c);
    b_.when(p.valid, [&] { arena_.store(h.slot, p.c, e); });
  });
  if (num_elements(us) > 0 && num_elements(s) > 0) {
    std::vector<Value> read(o.operands.begin() + 1, o.operands.end());
    std::vector<MemoryRange> reads = placement_.arena_reads(read);
    reads.push_back(h.slot.range);
    arena_.order(reads, {h.slot.range});
    std::vector<int> x_dim(us.size(), -1), line_axes(us.size(), kNoAxis);
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] >= 0) x_dim[static_cast<size_t>(dims[d])] = static_cast<int>(d);
    Shape lines = us;
    std::vector<size_t> walked;
    for (size_t d = 0; d < us.size(); ++d) {
      if (x_dim[d] >= 0) line_axes[d] = axes_.of(v, static_cast<size_t>(x_dim[d]));
      else {
        lines[d] = 1;
        walked.push_back(d);
      }
    }
    nests_.flat(lines, line_axes, [&](const NestPoint& p) {
      Coords c = p.c;
      std::function<void(size_t)> walk = [&](size_t i) {
        if (i < walked.size()) {
          nests_.counted(us[walked[i]], [&](Value j) {
            c[walked[i]] = {us[walked[i]] == 1 ? b_.i32(0) : j};
            walk(i + 1);
          });
          return;
        }
        Coords to;
        Value valid = p.valid;
        size_t next = 2;
        for (size_t d = 0; d < dims.size(); ++d) {
          if (dims[d] >= 0) {
            to.push_back(s[d] == 1 ? at(0) : c[static_cast<size_t>(dims[d])]);
            continue;
          }
          const Value given = elements_.of(o.operands[next++], c), n = b_.i32(s[d]);
          const Value position = b_.wrap(given, n), below = b_.lt(position, n);
          valid = b_.both(valid, b_.both(b_.ge_zero(position), below));
          to.push_back({position});
        }
        const Value update = elements_.of(updates, c);
        b_.when(valid, [&] {
          const Value e = o.has(Attr::kind)
                              ? b_.op(static_cast<Opcode>(o.attr(Attr::kind)), {arena_.load(h.slot, to), update}, t)
                              : update;
          arena_.store(h.slot, to, e);
        });
      };
      walk(0);
    });
  }
  arena_.touched(placement_.arena_reads(o.operands), h);
  placement_.of(v) = h;
}

// Batcher's merge exchange (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M), which sorts any
// number of elements: in each pass disjoint pairs are compared, a distance d apart, and a barrier follows. A network is
// not stable, so the elements' first positions are the last key, unless elements with equal keys cannot be told apart.
void RearrangeEmitter::sort(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const auto axis = static_cast<size_t>(o.attr(Attr::axis)), keys = static_cast<size_t>(o.attr(Attr::keys));
  const Shape& s = shape(o.results[0]);
  const std::vector<int> axes = axes_.of(o.results[0]);
  const int64_t n = s[axis];
  bool told_apart = keys < o.operands.size();
  for (Value x : o.operands) told_apart = told_apart || is_float(k_.type(x).dtype);
  std::vector<Place> places;
  for (size_t i = 0; i < o.operands.size(); ++i) {
    const Value x = o.operands[i];
    places.push_back(placement_.make(o.results[i]));
    Slot& slot = places.back().slot;
    arena_.order(placement_.arena_reads({x}), {slot.range});
    nests_.each(s, axes, placement_.reads_registers(x), true, [&](const NestPoint& p) {
      const Value e = elements_.of(x, p.c);
      b_.when(p.valid, [&] { arena_.store(slot, p.c, e); });
    });
  }
  if (n > 1 && num_elements(s) > 0) {
    std::vector<Slot> slots;
    for (const Place& h : places) slots.push_back(h.slot);
    if (told_apart) {
      slots.push_back(arena_.make(DType::i32, s, axes));
      arena_.order({}, {slots.back().range});
      nests_.flat(s, axes,
                  [&](const NestPoint& p) { b_.when(p.valid, [&] { arena_.store(slots.back(), p.c, p.c[axis].v); }); });
    }
    std::vector<MemoryRange> ranges;
    for (const Slot& slot : slots) ranges.push_back(slot.range);
    arena_.loop_barrier();
    Shape pairs = s;
    pairs[axis] = n / 2;
    std::vector<int> pair_axes = axes;
    pair_axes[axis] = kNoAxis;
    // A number that orders as the key does: integers compare exactly whatever a device makes of subnormal floats.
    auto key = [&](const Slot& slot, Value v) {
      DType t = slot.dtype;
      if (!is_float(t)) return v;
      if (bits(t) == 8) v = b_.op(Opcode::convert, {v}, t = DType::f16);  // exact
      const DType i = bits(t) == 16 ? DType::i16 : bits(t) == 32 ? DType::i32 : DType::i64;
      const uint64_t magnitude = (uint64_t{1} << (bits(t) - 1)) - 1;
      const int mantissa = t == DType::f16 ? 10 : t == DType::bf16 ? 7 : t == DType::f32 ? 23 : 52;
      const uint64_t infinity = magnitude >> mantissa << mantissa;
      const auto number = [&](uint64_t bits) { return b_.constant(i, bits); };
      const Value raw = b_.op(Opcode::bitcast, {v}, i), size = b_.op(Opcode::and_, {raw, number(magnitude)}, i);
      const Value turned = b_.op(
          Opcode::select,
          {b_.op(Opcode::lt, {raw, number(0)}, DType::boolean), b_.op(Opcode::sub, {number(0), size}, i), size}, i);
      return b_.op(Opcode::select,
                   {b_.op(Opcode::gt, {size, number(infinity)}, DType::boolean), number(magnitude), turned}, i);
    };
    const int rounds = std::bit_width(static_cast<uint64_t>(n - 1));
    const int64_t half = int64_t{1} << (rounds - 1);
    const Value zero = b_.i32(0), one = b_.i32(1);
    const auto logic = [&](Opcode c, Value a, Value b) { return b_.op(c, {a, b}, DType::boolean); };
    // p, q, r and d as in the book: pairs (i, i + d) where i & p is r.
    nests_.counted(
        int64_t{rounds} * (rounds + 1) / 2, {b_.i32(half), b_.i32(half), zero, b_.i32(half)},
        [&](Value, const Values& state) {
          const Value p = state[0], q = state[1], r = state[2], d = state[3];
          arena_.order(ranges, ranges);
          nests_.flat(pairs, pair_axes, [&](const NestPoint& point) {
            const Value j = point.c[axis].v, low = b_.op(Opcode::and_, {j, b_.sub(p, one)}, DType::i32);
            const Value first = b_.add(b_.sub(b_.mul(j, b_.i32(2)), low), r), second = b_.add(first, d);
            b_.when(b_.both(point.valid, b_.lt(second, b_.i32(n))), [&] {
              Coords at_first = point.c, at_second = point.c;
              at_first[axis] = {first};
              at_second[axis] = {second};
              Values x, y;
              for (const Slot& slot : slots) {
                x.push_back(arena_.load(slot, at_first));
                y.push_back(arena_.load(slot, at_second));
              }
              // Whether the second comes before the first: by the last key, unless an earlier one decides.
              Value before;
              for (size_t i = slots.size(); i-- > 0;) {
                if (i >= keys && !(told_apart && i + 1 == slots.size())) continue;
                const Value a = key(slots[i], x[i]), b = key(slots[i], y[i]);
                const Value less = logic(Opcode::lt, b, a);
                before = before ? logic(Opcode::or_, less, logic(Opcode::and_, logic(Opcode::eq, a, b), before)) : less;
              }
              b_.when(before, [&] {
                for (size_t i = 0; i < slots.size(); ++i) {
                  arena_.store(slots[i], at_first, y[i]);
                  arena_.store(slots[i], at_second, x[i]);
                }
              });
            });
          });
          const Value more = b_.op(Opcode::ne, {q, p}, DType::boolean);
          const auto halved = [&](Value v) { return b_.op(Opcode::shift_right_logical, {v, one}, DType::i32); };
          const auto next = [&](Value within, Value otherwise) { return b_.select(more, within, otherwise); };
          const Value half_p = halved(p), next_p = next(p, half_p), top = b_.i32(half);
          return Values{next_p, next(halved(q), top), next(p, zero), next(b_.sub(q, p), half_p)};
        });
    if (told_apart) arena_.free(slots.back());
  }
  for (size_t i = 0; i < places.size(); ++i) {
    arena_.touched(placement_.arena_reads({o.operands[i]}), places[i]);
    placement_.of(o.results[i]) = places[i];
  }
}

}  // namespace tessera::lowering
