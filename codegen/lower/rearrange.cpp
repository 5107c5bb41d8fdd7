// Ops whose elements move to where data says: they work in the arena slots of their results, into which their operands
// are copied first.
#include <bit>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

// One invocation applies all updates that share the positions of the dims which x follows, in order; different ones
// share no element.
void RearrangeEmitter::scatter(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value x = o.operands[0], updates = o.operands[1], v = o.results[0];
  const DType t = k_.type(v).dtype;
  const auto& dims = o.ints(Attr::dims);
  const Shape &s = shape(v), &us = shape(updates);
  const Slot slot = placement_.make_slot(v);
  arena_.order(placement_.arena_reads({x}), {slot.range});
  nests_.each(s, axes_.of(v), placement_.reads_registers(x), true, [&](const NestPoint& p) {
    const Value e = elements_.of(x, p.c);
    b_.when(p.valid, [&] { arena_.store(slot, p.c, e); });
  });
  if (num_elements(us) > 0 && num_elements(s) > 0) {
    std::vector<Value> read(o.operands.begin() + 1, o.operands.end());
    std::vector<MemoryRange> reads = placement_.arena_reads(read);
    reads.push_back(slot.range);
    arena_.order(reads, {slot.range});
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
      Function<void(size_t)> walk = [&](size_t i) {
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
                              ? b_.op(static_cast<Opcode>(o.attr(Attr::kind)), {arena_.load(slot, to), update}, t)
                              : update;
          arena_.store(slot, to, e);
        });
      };
      walk(0);
    });
  }
  arena_.touched(placement_.arena_reads(o.operands), slot);
  placement_.of(v) = slot;
}

namespace {
// Batcher's merge exchange (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M), which sorts any
// number of elements: in each pass disjoint pairs are compared, a distance d apart, and a barrier follows. A network is
// not stable, so the elements' first positions are the last key, unless elements with equal keys cannot be told apart.
class SortingNetwork : public Part {
 public:
  SortingNetwork(Emission& e, const ir::Op& o)
      : Part(e),
        o_(o),
        axis_(static_cast<size_t>(o.attr(Attr::axis))),
        keys_(static_cast<size_t>(o.attr(Attr::keys))),
        shape_(shape(o.results[0])),
        axes_of_(axes_.of(o.results[0])),
        n_(shape_[axis_]),
        told_apart_(keys_ < o.operands.size()) {
    for (Value x : o.operands) told_apart_ = told_apart_ || is_float(k_.type(x).dtype);
  }
  void run() {
    for (size_t i = 0; i < o_.operands.size(); ++i) copy_operand(i);
    if (n_ > 1 && num_elements(shape_) > 0) {
      if (told_apart_) add_positions();
      exchange();
      if (told_apart_) arena_.free(slots_.back());
    }
    for (size_t i = 0; i < o_.operands.size(); ++i) {
      arena_.touched(placement_.arena_reads({o_.operands[i]}), slots_[i]);
      placement_.of(o_.results[i]) = slots_[i];
    }
  }

 private:
  void copy_operand(size_t i) {
    const Value x = o_.operands[i];
    slots_.push_back(placement_.make_slot(o_.results[i]));
    const Slot& slot = slots_.back();
    arena_.order(placement_.arena_reads({x}), {slot.range});
    nests_.each(shape_, axes_of_, placement_.reads_registers(x), true, [&](const NestPoint& p) {
      const Value e = elements_.of(x, p.c);
      b_.when(p.valid, [&] { arena_.store(slot, p.c, e); });
    });
  }
  void add_positions() {
    slots_.push_back(arena_.make(DType::i32, shape_, axes_of_));
    arena_.order({}, {slots_.back().range});
    nests_.flat(shape_, axes_of_,
                [&](const NestPoint& p) { b_.when(p.valid, [&] { arena_.store(slots_.back(), p.c, p.c[axis_].v); }); });
  }
  // A number that orders as the key does: integers compare exactly whatever a device makes of subnormal floats.
  Value key(const Slot& slot, Value v) {
    DType t = slot.dtype;
    if (!is_float(t)) return v;
    if (bits(t) == 8) v = b_.op(Opcode::convert, {v}, t = DType::f16);  // exact
    const DType i = bits(t) == 16 ? DType::i16 : bits(t) == 32 ? DType::i32 : DType::i64;
    const uint64_t magnitude = (uint64_t{1} << (bits(t) - 1)) - 1;
    const int mantissa = t == DType::f16 ? 10 : t == DType::bf16 ? 7 : t == DType::f32 ? 23 : 52;
    const uint64_t infinity = magnitude >> mantissa << mantissa;
    const auto number = [&](uint64_t bits) { return b_.constant(i, bits); };
    const Value raw = b_.op(Opcode::bitcast, {v}, i), size = b_.op(Opcode::and_, {raw, number(magnitude)}, i);
    const Value ordered =
        b_.op(Opcode::select,
              {b_.op(Opcode::lt, {raw, number(0)}, DType::boolean), b_.op(Opcode::sub, {number(0), size}, i), size}, i);
    return b_.op(Opcode::select,
                 {b_.op(Opcode::gt, {size, number(infinity)}, DType::boolean), number(magnitude), ordered}, i);
  }
  // Whether y comes before x: by the last key, unless an earlier one decides.
  Value comes_before(const Values& y, const Values& x) {
    const auto logic = [&](Opcode c, Value a, Value b) { return b_.op(c, {a, b}, DType::boolean); };
    Value before;
    for (size_t i = slots_.size(); i-- > 0;) {
      if (i >= keys_ && !(told_apart_ && i + 1 == slots_.size())) continue;
      const Value a = key(slots_[i], x[i]), b = key(slots_[i], y[i]);
      const Value less = logic(Opcode::lt, b, a);
      before = before ? logic(Opcode::or_, less, logic(Opcode::and_, logic(Opcode::eq, a, b), before)) : less;
    }
    return before;
  }
  void compare_pair(const NestPoint& point, Value first, Value second) {
    b_.when(b_.both(point.valid, b_.lt(second, b_.i32(n_))), [&] {
      Coords at_first = point.c, at_second = point.c;
      at_first[axis_] = {first};
      at_second[axis_] = {second};
      Values x, y;
      for (const Slot& slot : slots_) {
        x.push_back(arena_.load(slot, at_first));
        y.push_back(arena_.load(slot, at_second));
      }
      b_.when(comes_before(y, x), [&] {
        for (size_t i = 0; i < slots_.size(); ++i) {
          arena_.store(slots_[i], at_first, y[i]);
          arena_.store(slots_[i], at_second, x[i]);
        }
      });
    });
  }
  // p, q, r and d as in the book: pairs (i, i + d) where i & p is r.
  void exchange() {
    std::vector<MemoryRange> ranges;
    for (const Slot& slot : slots_) ranges.push_back(slot.range);
    arena_.loop_barrier();
    Shape pairs = shape_;
    pairs[axis_] = n_ / 2;
    std::vector<int> pair_axes = axes_of_;
    pair_axes[axis_] = kNoAxis;
    const int rounds = std::bit_width(static_cast<uint64_t>(n_ - 1));
    const int64_t half = int64_t{1} << (rounds - 1);
    const Value zero = b_.i32(0), one = b_.i32(1);
    const Values start{b_.i32(half), b_.i32(half), zero, b_.i32(half)};
    nests_.counted(int64_t{rounds} * (rounds + 1) / 2, start, [&](Value, const Values& state) {
      const Value p = state[0], q = state[1], r = state[2], d = state[3];
      arena_.order(ranges, ranges);
      nests_.flat(pairs, pair_axes, [&](const NestPoint& point) {
        const Value j = point.c[axis_].v, low = b_.op(Opcode::and_, {j, b_.sub(p, one)}, DType::i32);
        const Value first = b_.add(b_.sub(b_.mul(j, b_.i32(2)), low), r), second = b_.add(first, d);
        compare_pair(point, first, second);
      });
      const Value more = b_.op(Opcode::ne, {q, p}, DType::boolean);
      const auto halved = [&](Value v) { return b_.op(Opcode::shift_right_logical, {v, one}, DType::i32); };
      const auto next = [&](Value within, Value otherwise) { return b_.select(more, within, otherwise); };
      const Value half_p = halved(p), next_p = next(p, half_p), top = b_.i32(half);
      return Values{next_p, next(halved(q), top), next(p, zero), next(b_.sub(q, p), half_p)};
    });
  }

  const ir::Op& o_;
  const size_t axis_, keys_;
  const Shape& shape_;
  const std::vector<int> axes_of_;
  const int64_t n_;
  bool told_apart_;
  std::vector<Slot> slots_;  // of the results, then perhaps of the positions
};
}  // namespace

void RearrangeEmitter::sort(ir::OpId id) { SortingNetwork(e_, k_.op(id)).run(); }

}  // namespace tessera::lowering
