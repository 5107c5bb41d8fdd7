// Inclusive running sums, products, maxima and minima. Many lines: one invocation walks each. Few long ones: every
// invocation sums a stretch, the stretches' sums are exchanged, and each walks its stretch again from what lies before
// it.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "engine/ir/reference.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

namespace {
class Scan : public Part {
 public:
  Scan(Emission& e, const ir::Op& o)
      : Part(e),
        in_(o.operands[0]),
        v_(o.results[0]),
        axis_(static_cast<size_t>(o.attr(Attr::axis))),
        reverse_(o.attr_or(Attr::reverse, 0) != 0),
        combiner_(ir::combining_op(o.code)),
        t_(k_.type(v_).dtype),
        sum_t_(ir::combiner(combiner_)->accumulator(t_)),
        shape_(shape(v_)),
        lines_(shape_),
        line_axes_(axes_.of(v_)) {
    lines_[axis_] = 1;
    line_axes_[axis_] = kNoAxis;
  }
  void run() {
    identity_ = b_.constant(sum_t_, reference::identity(combiner_, sum_t_));
    if (n_ == 1) return copy();
    if (placement_.kind(v_) != Kind::arena)
      throw InternalError(k_.name + ": a scan outside the arena", k_.def(v_)->loc);
    if (placement_.reads_registers(in_))
      throw InternalError(k_.name + ": a scan of values in registers", k_.def(v_)->loc);
    to_ = placement_.make(v_);
    arena_.order(placement_.arena_reads({in_}), {to_.slot.range});
    if (num_elements(shape_) > 0) {
      if (s_.general || s_.group == 1 || num_elements(lines_) * 2 > s_.group) walk_lines();
      else walk_stretches();
    }
    arena_.touched(placement_.arena_reads({in_}), to_);
    placement_.of(v_) = to_;
  }

 private:
  Value combine(Value x, Value y) { return b_.op(combiner_, {x, y}, sum_t_); }
  Value read(const Coords& c) { return b_.convert(elements_.of(in_, c), sum_t_); }
  void write(const Coords& c, Value sum) { arena_.store(to_.slot, c, b_.convert(sum, t_)); }
  Value position(Value i) { return reverse_ ? b_.sub(b_.i32(n_ - 1), i) : i; }

  void copy() {
    placement_.set_result(v_, placement_.arena_reads({in_}), [&](const auto& put) {
      nests_.each(shape_, axes_.of(v_), placement_.kind(v_) == Kind::registers || placement_.reads_registers(in_), true,
                  [&](const NestPoint& p) { put(p, elements_.of(in_, p.c)); });
    });
  }
  void walk_lines() {
    nests_.flat(lines_, line_axes_, [&](const NestPoint& p) {
      nests_.counted(n_, {identity_}, [&](Value i, const Values& sum) {
        Coords c = p.c;
        c[axis_] = {position(i)};
        const Value next = combine(sum[0], read(c));
        b_.when(p.valid, [&] { write(c, next); });
        return Values{next};
      });
    });
  }
  // The line's coordinates from its number among those of this unit.
  Coords line_coords(Value line, const Shape& part) {
    Coords c = unravel(line, part);
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (lines_[d] == 1) c[d] = at(0);
      else if (part[d] != lines_[d]) {
        const Value last = b_.i32(shape_[d] - 1);
        c[d] = {b_.min(b_.add(c[d].v, nests_.tile_base(line_axes_[d])), last)};
      }
    }
    return c;
  }
  // This invocation's stretch of a line, which starts from `start`; its last sum.
  Value walk_stretch(const Coords& line, Value begin, int64_t stretch, Value start, bool writes) {
    return nests_.counted(stretch, {start}, [&](Value i, const Values& sum) {
      const Value e = b_.add(begin, i), valid = b_.lt(e, b_.i32(n_));
      Coords x = line;
      x[axis_] = {position(b_.min(e, b_.i32(n_ - 1)))};
      const Value next = b_.select(valid, combine(sum[0], read(x)), sum[0]);
      if (writes) b_.when(valid, [&] { write(x, next); });
      return Values{next};
    })[0];
  }
  void walk_stretches() {
    const int64_t stretch = cdiv(n_, int64_t{s_.group});
    Slot sums = arena_.temporary(sum_t_, s_.group);
    Shape part = lines_;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (line_axes_[d] != kNoAxis && plan(line_axes_[d]).split)
        part[d] = std::min(plan(line_axes_[d]).tile, shape_[d]);
    nests_.counted(num_elements(part), [&](Value line) {
      const Coords c = line_coords(line, part);
      const Value begin = b_.mul(invocation_, b_.i32(stretch));
      const Value mine = walk_stretch(c, begin, stretch, identity_, false);
      arena_.order({}, {sums.range});
      b_.store(sums.ref, invocation_, mine);
      arena_.order({sums.range}, {});
      const Value before = b_.for_loop(0, s_.group, {identity_}, [&](Value j, const Values& x) {
        const Value y = b_.load(sums.ref, j), sum = combine(x[0], y);
        return Values{b_.select(b_.lt(j, invocation_), sum, x[0])};
      })[0];
      walk_stretch(c, begin, stretch, before, true);
    });
    arena_.free(sums);
  }

  const Value in_, v_;
  const size_t axis_;
  const bool reverse_;
  const Opcode combiner_;
  const DType t_, sum_t_;
  const Shape& shape_;
  const int64_t n_ = shape_[axis_];
  Shape lines_;  // the shape with one element along the axis
  std::vector<int> line_axes_;
  Value identity_;
  Place to_;
};
}  // namespace

void ReduceEmitter::scan(ir::OpId id) { Scan(e_, k_.op(id)).run(); }

}  // namespace tessera::lowering
