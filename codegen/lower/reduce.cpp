// Reductions: per invocation over registers and strips, then over lanes by xor shuffles, then over subgroups through
// shared memory. Each invocation that shares a result ends with the same bits: the shuffle ladder is symmetric and the
// exchange adds in one fixed order. Last, scans (running sums, products, maxima and minima).
#include <algorithm>
#include <array>
#include <bit>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"
#include "engine/ir/reference.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

namespace {
// Of an exchange: from here on reading all of them costs more than a read and shuffles.
constexpr int kManyMembers = 16;
constexpr int kSomeMembers = 4;  // and where an instruction joins them

// One reduction: by layout where its dims have one, each kept element in the invocations that hold it; else each kept
// element by one invocation, or a single one by all.
class Reduction : public Part {
 public:
  using Element = FunctionRef<Values(const Coords&)>;
  using Sink = FunctionRef<void(const NestPoint&, const Values&)>;
  Reduction(Emission& e, const Reduced& of, const Accumulator& acc, Element element, Sink sink)
      : Part(e), of_(of), acc_(acc), element_(element), sink_(sink), strip_(of.shape.size()) {
    for (size_t d = 0; d < shape_.size(); ++d) {
      const int regs = axes_of_[d] == kNoAxis ? 1 : plan(axes_of_[d]).reg;
      if (of.dims[d]) {
        dropped_.push_back(d);
        dropped_axes_.push_back(axes_of_[d]);
        dropped_regs_.push_back(regs);
        count_ *= shape_[d];
        continue;
      }
      kept_.push_back(d);
      kept_shape_.push_back(shape_[d]);
      kept_axes_.push_back(axes_of_[d]);
      kept_regs_.push_back(regs);
    }
  }
  void run() {
    if (num_elements(kept_shape_) == 0) return;
    if (!s_.general && nests_.fits(axes_of_)) {
      first_ = nests_.first_invocation(nests_.invocation_bits(kept_axes_));
      nests_.each_strip(axes_of_, kept_, strip_, [&] { one_kept_strip(); });
      return;
    }
    if (of_.needs_layout) throw InternalError(k_.name + ": a reduction without a layout reads values in registers");
    const auto each = [&](const NestPoint& p) { sink_(p, sequential(p.c)); };
    if (of_.to_registers) nests_.by_layout(kept_shape_, kept_axes_, true, each);
    else if (num_elements(kept_shape_) > 1) nests_.flat(kept_shape_, kept_axes_, each);
    else single();
  }

 private:
  // All of one kept element's operands, one after another, by each invocation that computes the element.
  Values sequential(const Coords& kept_coords) {
    if (count_ == 0) return acc_.identity;
    Coords c(shape_.size());
    for (size_t i = 0; i < kept_.size(); ++i) c[kept_[i]] = kept_coords[i];
    const Function<Values(size_t, const Values&)> loops = [&](size_t i, const Values& a) -> Values {
      if (i == dropped_.size()) return acc_.step(a, element_(c));
      const size_t d = dropped_[i];
      return nests_.counted(shape_[d], a, [&](Value j, const Values& inner) {
        c[d] = {shape_[d] == 1 ? b_.i32(0) : j};
        return loops(i + 1, inner);
      });
    };
    return loops(0, acc_.identity);
  }
  // What an element adds, or nothing where it is not there.
  Values step(const Values& a, const Coords& c, Value valid) {
    Values x = element_(c);
    if (valid)
      for (size_t j = 0; j < x.size(); ++j) x[j] = b_.select(valid, x[j], acc_.neutral[j]);
    return acc_.step(a, x);
  }
  // One result, and perhaps of many elements: dealt out in turn, then joined across the group.
  void single() {
    NestPoint p;
    p.c.assign(kept_.size(), at(0));
    p.regs.assign(kept_.size(), 0);
    p.valid = nests_.first_invocation(0);
    if (s_.general || s_.group == 1 || count_ < s_.group) return sink_(p, sequential(p.c));
    Shape all;
    for (size_t d : dropped_) all.push_back(shape_[d]);
    const Values mine = nests_.counted(cdiv(count_, int64_t{s_.group}), acc_.identity, [&](Value i, const Values& a) {
      const Value turn = b_.add(b_.mul(i, b_.i32(s_.group)), invocation_);
      const Value valid = b_.lt(turn, b_.i32(count_)), e = b_.min(turn, b_.i32(count_ - 1));
      const Coords u = unravel(e, all);
      Coords c(shape_.size(), at(0));
      for (size_t j = 0; j < dropped_.size(); ++j)
        if (shape_[dropped_[j]] != 1) c[dropped_[j]] = u[j];
      return step(a, c, valid);
    });
    std::vector<Values> points{mine};
    reduces_.across_invocations(points, s_.group - 1, acc_);
    sink_(p, points[0]);
  }

  // By layout. Kept strips are outside; inside, one accumulator per kept register; then the reduced strips, then the
  // reduced registers.
  void one_kept_strip() {
    size_t points = 1;
    for (int n : kept_regs_) points *= static_cast<size_t>(n);
    Values init;
    for (size_t i = 0; i < points; ++i) init.insert(init.end(), acc_.identity.begin(), acc_.identity.end());
    const Values total = count_ == 0 ? init : all_strips(init);
    const int bits = of_.in_parts ? 0 : nests_.invocation_bits(dropped_axes_) & (s_.group - 1);
    // Where there are barriers, all points pass them together.
    std::vector<Values> joined(points);
    for (size_t i = 0; i < points; ++i) joined[i] = at_point(total, i);
    const bool together = (bits & ~(s_.shuffles ? s_.subgroup - 1 : 0)) != 0;
    if (together) reduces_.across_invocations(joined, bits, acc_);
    size_t point = 0;
    each_register(kept_regs_, [&](const std::vector<int>& regs) {
      std::vector<Values> one{joined[point++]};
      if (!together) reduces_.across_invocations(one, bits, acc_);
      const Values& r = one[0];
      NestPoint p;
      p.regs = regs;
      p.valid = first_;
      for (size_t j = 0; j < kept_.size(); ++j) p.c.push_back(coord(kept_[j], regs[j], p.valid));
      sink_(p, r);
    });
  }
  Values all_strips(const Values& init) {
    const auto size = s_.registers(axes_of_) * static_cast<int64_t>(placement_.computed_for(of_.reads).size());
    return refs_.inside_and_at_edge(refs_.refs_read(of_.reads), axes_of_, size,
                                    [&](bool) { return reduced_strips(0, init); });
  }
  Values reduced_strips(size_t i, const Values& a) {
    if (i == dropped_.size()) return reduced_registers(a);
    const size_t d = dropped_[i];
    const int64_t n = axes_of_[d] == kNoAxis ? 1 : plan(axes_of_[d]).strips();
    if (n == 1) {
      strip_[d] = {};
      return reduced_strips(i + 1, a);
    }
    return nests_.counted(n, a, [&](Value j, const Values& inner) {
      strip_[d] = j;
      return reduced_strips(i + 1, inner);
    });
  }
  Values reduced_registers(const Values& a) {
    Values next = a;
    each_register(dropped_regs_, [&](const std::vector<int>& reduced) {
      Coords c(shape_.size());
      Value valid;
      for (size_t j = 0; j < dropped_.size(); ++j) c[dropped_[j]] = coord(dropped_[j], reduced[j], valid);
      size_t point = 0;
      each_register(kept_regs_, [&](const std::vector<int>& regs) {
        Value unused;
        for (size_t j = 0; j < kept_.size(); ++j) c[kept_[j]] = coord(kept_[j], regs[j], unused);
        const Values stepped = step(at_point(next, point), c, valid);
        std::copy(stepped.begin(), stepped.end(),
                  next.begin() + static_cast<std::ptrdiff_t>(point++ * acc_.identity.size()));
      });
    });
    return next;
  }
  Values at_point(const Values& all, size_t point) const {
    const auto width = static_cast<std::ptrdiff_t>(acc_.identity.size());
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(point) * width;
    return {from, from + width};
  }
  Coord coord(size_t d, int reg, Value& valid) {
    return nests_.axis_coord(axes_of_[d], shape_[d], strip_[d], reg, valid);
  }

  const Reduced& of_;
  const Shape& shape_ = of_.shape;
  const std::vector<int>& axes_of_ = of_.axes;
  const Accumulator& acc_;
  Element element_;
  Sink sink_;
  std::vector<Value> strip_;
  std::vector<size_t> kept_, dropped_;  // dims
  Shape kept_shape_;
  std::vector<int> kept_axes_, dropped_axes_, kept_regs_, dropped_regs_;
  int64_t count_ = 1;  // elements that one result is made of
  Value first_;
};
}  // namespace

void ReduceEmitter::reduction(const Reduced& of, const Accumulator& acc, FunctionRef<Values(const Coords&)> element,
                              FunctionRef<void(const NestPoint&, const Values&)> sink) {
  Reduction(e_, of, acc, element, sink).run();
}

// Lanes that differ in other bits make other results. For each of these all lanes are joined, those of others with
// what changes nothing; of more than four results shuffles are fewer instructions.
bool ReduceEmitter::by_instructions(std::vector<Values>& points, int bits, const Accumulator& acc) {
  if (points.empty() || !joins_lanes(acc, points[0])) return false;
  const int others = (s_.subgroup - 1) & ~bits;
  if ((bits & (s_.subgroup - 1)) == 0 || std::popcount(static_cast<uint32_t>(others)) > 2) return false;
  const Value mine = others ? b_.op(Opcode::and_, {lane_, b_.i32(others)}, DType::i32) : Value{};
  for (Values& v : points) {
    Value all;
    int result = 0;
    do {
      const Value here = mine ? b_.eq(mine, b_.i32(result)) : Value{};
      const Value joined = joined_lanes(b_, *acc.combiner, here ? b_.select(here, v[0], acc.identity[0]) : v[0]);
      all = all ? b_.select(here, joined, all) : joined;
      result = (result - others) & others;
    } while (result != 0);
    v[0] = all;
  }
  return true;
}
bool ReduceEmitter::joins_lanes(const Accumulator& acc, const Values& v) {
  return s_.shuffles && acc.combiner && v.size() == 1 && lowering::joins_lanes(target_, *acc.combiner, b_.dtype(v[0]));
}

void ReduceEmitter::by_shuffles(std::vector<Values>& points, int bits, const Accumulator& acc) {
  if (by_instructions(points, bits, acc)) return;
  for (int bit = 1; bit < s_.group; bit *= 2) {
    if (!(bits & bit)) continue;
    for (Values& v : points) {
      Values other;
      for (Value x : v) other.push_back(b_.shuffle_xor(x, bit));
      v = acc.merge(v, other);
    }
  }
}

// Many points: the members of a run share them out, each adds up the parts of its own, and everyone reads all sums.
// That is a barrier more, and as many reads fewer as there are points, but one, times members.
void ReduceEmitter::by_shares(Values& points, int stride, int count, const Accumulator& acc) {
  const auto n = static_cast<int>(points.size());
  const int runs = s_.group / count;
  const DType t = b_.dtype(points[0]);
  Slot parts = arena_.temporary(t, int64_t{s_.group} * n), sums = arena_.temporary(t, int64_t{runs} * n);
  arena_.order({}, {parts.range});
  for (int i = 0; i < n; ++i) b_.store(parts.ref, b_.add(invocation_, b_.i32(i * s_.group)), points[size_t(i)]);
  arena_.order({parts.range}, {sums.range});
  const Value member = b_.rem(b_.div(invocation_, stride), count), lane = b_.rem(invocation_, stride);
  const Value above = b_.div(invocation_, int64_t{stride} * count);
  const Value first = b_.add(b_.mul(above, b_.i32(stride * count)), lane);
  const Value number = b_.add(b_.mul(above, b_.i32(stride)), lane), run = b_.mul(number, b_.i32(n));
  for (int i = 0; i < n; i += count) {
    const Value mine = b_.add(member, b_.i32(i));
    const Value there = n - i < count ? b_.lt(mine, b_.i32(n)) : Value{};
    b_.when(there, [&] {
      const Value from = b_.add(b_.mul(mine, b_.i32(s_.group)), first);
      const auto part = [&](int j) { return b_.load(parts.ref, b_.add(from, b_.i32(j * stride))); };
      Values sum{part(0)};
      for (int j = 1; j < count; ++j) sum = acc.merge(sum, {part(j)});
      b_.store(sums.ref, b_.add(run, mine), sum[0]);
    });
  }
  arena_.order({sums.range}, {});
  for (int i = 0; i < n; ++i) points[size_t(i)] = b_.load(sums.ref, b_.add(run, b_.i32(i)));
  arena_.free(parts);
  arena_.free(sums);
}

// One contiguous run of bits of the invocation's number: everyone writes, everyone reads the run's members in order.
// Or, of many members, each lane one of them, where the lanes of a subgroup have the same: the rest is done by
// shuffles.
void ReduceEmitter::by_exchange(std::vector<Values>& points, int stride, int count, bool same_in_lanes,
                                const Accumulator& acc) {
  std::vector<std::vector<Slot>> slots(points.size());
  std::vector<MemoryRange> ranges;
  for (size_t i = 0; i < points.size(); ++i)
    for (Value x : points[i]) {
      slots[i].push_back(arena_.temporary(b_.dtype(x), s_.group));
      ranges.push_back(slots[i].back().range);
      arena_.order({}, {ranges.back()});
      b_.store(slots[i].back().ref, invocation_, x);
    }
  arena_.order(ranges, {});
  Value position;
  if (stride * count == s_.group && stride == 1) position = b_.i32(0);
  else {
    const Value by = b_.i32(stride);
    position = b_.sub(invocation_, b_.mul(b_.rem(b_.div(invocation_, stride), count), by));
  }
  // Of all points at once: where there are many members, a loop over them is one loop.
  const auto member = [&](size_t point, Value j) {
    const Value at = b_.add(position, b_.mul(j, b_.i32(stride)));
    Values x;
    for (const Slot& s : slots[point]) x.push_back(b_.load(s.ref, at));
    return x;
  };
  const size_t width = points[0].size();
  const auto part = [width](const Values& all, size_t point) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(point * width);
    return Values(from, from + static_cast<std::ptrdiff_t>(width));
  };
  const auto merged = [&](const Values& all, Value j) {
    Values next;
    for (size_t i = 0; i < points.size(); ++i) {
      const Values other = member(i, j), v = acc.merge(part(all, i), other);
      next.insert(next.end(), v.begin(), v.end());
    }
    return next;
  };
  const bool joins = joins_lanes(acc, points[0]);
  const bool by_lanes =
      same_in_lanes && count >= (joins ? kSomeMembers : kManyMembers) && count <= s_.subgroup && stride >= s_.subgroup;
  const Value first = by_lanes ? b_.rem(invocation_, count) : b_.i32(0);
  Values all;
  for (size_t i = 0; i < points.size(); ++i)
    for (Value x : member(i, first)) all.push_back(x);
  if (by_lanes) {
    for (size_t i = 0; i < points.size(); ++i) points[i] = part(all, i);
    if (joins) {
      const Value there = count < s_.subgroup ? b_.lt(lane_, b_.i32(count)) : b_.boolean(true);
      for (Values& v : points) v[0] = joined_lanes(b_, *acc.combiner, b_.select(there, v[0], acc.identity[0]));
    } else {
      by_shuffles(points, count - 1, acc);
    }
    for (std::vector<Slot>& of_point : slots)
      for (Slot& s : of_point) arena_.free(s);
    return;
  }
  if (count <= 8) {
    for (int j = 1; j < count; ++j) all = merged(all, b_.i32(j));
  } else {
    all = b_.for_loop(1, count, all, [&](Value j, const Values& a) { return merged(a, j); });
  }
  for (size_t i = 0; i < points.size(); ++i) {
    points[i] = part(all, i);
    for (Slot& s : slots[i]) arena_.free(s);
  }
}

void ReduceEmitter::across_invocations(std::vector<Values>& points, int bits, const Accumulator& acc) {
  bits &= s_.group - 1;
  const int shuffled = s_.shuffles ? bits & (s_.subgroup - 1) : 0;
  by_shuffles(points, shuffled, acc);
  const bool same_in_lanes = target_.kind == Target::Kind::gpu && s_.shuffles && shuffled == s_.subgroup - 1;
  // What is left, one run after the other.
  int rest = bits & ~shuffled;
  while (rest) {
    const int stride = rest & -rest;
    int count = 2;
    while (rest & (stride * count)) count *= 2;
    rest &= ~((count - 1) * stride);
    // as many points at a time as leave most of the shared memory to others
    const size_t each = static_cast<size_t>(s_.group) * 4 * points[0].size();
    const size_t most = std::max<size_t>(static_cast<size_t>(target_.shared_bytes) / 4 / each, 1);
    for (size_t i = 0; i < points.size(); i += most) {
      const size_t end = std::min(i + most, points.size());
      const auto from = points.begin() + static_cast<std::ptrdiff_t>(i);
      std::vector<Values> some(from, points.begin() + static_cast<std::ptrdiff_t>(end));
      const bool joins = same_in_lanes && joins_lanes(acc, points[0]);
      if (points[0].size() == 1 && some.size() >= 4 && count >= 4 && count <= 8 && !joins) {
        Values of_all;
        for (const Values& v : some) of_all.push_back(v[0]);
        by_shares(of_all, stride, count, acc);
        for (size_t p = 0; p < some.size(); ++p) some[p] = {of_all[p]};
      } else {
        by_exchange(some, stride, count, same_in_lanes, acc);
      }
      std::copy(some.begin(), some.end(), from);
    }
  }
}

Reduced ReduceEmitter::reduced_of(Value in, const std::vector<bool>& dims, Value result) {
  return {shape(in), axes_.of(in), dims, placement_.reads_registers(in), placement_.kind(result) == Kind::registers,
          {in}};
}

Accumulator ReduceEmitter::accumulator(const ir::Op& reduce) {
  const Opcode combiner = ir::combining_op(reduce.code);
  const DType a = ir::combiner(combiner)->accumulator(k_.type(reduce.results[0]).dtype);
  Accumulator acc;
  acc.combiner = combiner;
  acc.identity = acc.neutral = {b_.constant(a, reference::identity(combiner, a))};
  acc.step = acc.merge = [this, combiner, a](const Values& x, const Values& y) {
    return Values{b_.op(combiner, {x[0], y[0]}, a)};
  };
  return acc;
}

void ReduceEmitter::reduce(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value in = o.operands[0], v = o.results[0];
  const DType t = k_.type(v).dtype;
  const DType a = ir::combiner(ir::combining_op(o.code))->accumulator(t);
  const Accumulator acc = accumulator(o);
  std::vector<bool> reduced(shape(in).size(), false);
  for (int64_t d : o.ints(Attr::axes)) reduced[static_cast<size_t>(d)] = true;
  Reduced of = reduced_of(in, reduced, v);
  of.in_parts = std::any_of(s_.carried.begin(), s_.carried.end(),
                            [&](const CarriedSum& sum) { return sum.reduce == id && may_stay_in_parts(sum); });
  placement_.set_result(v, placement_.arena_reads({in}), [&](const auto& put) {
    reduction(
        of, acc, [&](const Coords& c) { return Values{b_.convert(elements_.of(in, c), a)}; },
        [&](const NestPoint& p, const Values& r) { put(p, b_.convert(r[0], t)); });
  });
}

// -- sums that a loop carries

// The bits of an invocation's number in which those differ that make a result together.
int ReduceEmitter::bits_of(const ir::Op& reduce) const {
  std::vector<int> dropped;
  for (int64_t d : reduce.ints(Attr::axes)) dropped.push_back(axes_.of(reduce.operands[0], static_cast<size_t>(d)));
  return nests_.invocation_bits(dropped) & (s_.group - 1);
}
bool ReduceEmitter::may_stay_in_parts(const CarriedSum& sum) const {
  const ir::Op &o = k_.op(sum.reduce), &loop = k_.op(sum.loop);
  if (s_.general || !uniform_group() || !nests_.fits(axes_.of(o.operands[0])) || bits_of(o) == 0) return false;
  const std::array<Value, 3> places{o.results[0], loop.results[sum.result],
                                    k_.region(loop.regions[0]).args[1 + sum.result]};
  return std::all_of(places.begin(), places.end(),
                     [&](Value v) { return placement_.kind(v) == Kind::registers && num_elements(shape(v)) > 0; });
}
const CarriedSum* ReduceEmitter::in_parts(ir::OpId loop, size_t result) const {
  for (const CarriedSum& sum : s_.carried)
    if (sum.loop == loop && sum.result == result && may_stay_in_parts(sum)) return &sum;
  return nullptr;
}
Value ReduceEmitter::identity(const CarriedSum& sum) { return accumulator(k_.op(sum.reduce)).identity[0]; }
Values ReduceEmitter::joined(const CarriedSum& sum, const Values& start, const Values& parts) {
  const Accumulator acc = accumulator(k_.op(sum.reduce));
  std::vector<Values> points;
  for (const Value v : parts) points.push_back({v});
  across_invocations(points, bits_of(k_.op(sum.reduce)), acc);
  Values all;
  for (size_t i = 0; i < points.size(); ++i) all.push_back(acc.merge({start[i]}, points[i])[0]);
  return all;
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
        reduced_of(in, reduced, v), acc, [&](const Coords& c) { return Values{elements_.of(in, c), c[axis].v}; },
        [&](const NestPoint& p, const Values& r) { put(p, b_.convert(r[1], r_type)); });
  });
}

namespace {
// By layout: in registers, then over lanes by shuffles, then over subgroups through shared memory. Without one, many
// lines: one invocation walks each. Few long ones: every invocation sums a stretch, the stretches' sums are exchanged,
// and each walks its stretch again from what lies before it.
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
    if (s_.enumerable(axes_, axes_.of(v_))) return by_layout();
    if (const ir::Op* store = placement_.streams_to(v_)) return in_strips(*store);
    if (placement_.kind(v_) != Kind::arena)
      throw InternalError(k_.name + ": a scan outside the arena", k_.def(v_)->loc);
    if (placement_.reads_registers(in_))
      throw InternalError(k_.name + ": a scan of values in registers", k_.def(v_)->loc);
    to_ = placement_.make_slot(v_);
    arena_.order(placement_.arena_reads({in_}), {to_.range});
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
  void write(const Coords& c, Value sum) { arena_.store(to_, c, b_.convert(sum, t_)); }
  Value position(Value i) { return reverse_ ? b_.sub(b_.i32(n_ - 1), i) : i; }

  void copy() {
    placement_.set_result(v_, placement_.arena_reads({in_}), [&](const auto& put) {
      nests_.each(shape_, axes_.of(v_), placement_.kind(v_) == Kind::registers || placement_.reads_registers(in_), true,
                  [&](const NestPoint& p) { put(p, elements_.of(in_, p.c)); });
    });
  }
  // Elements that lie next to each other along the line, in its direction: what an invocation has in a row, and what
  // the invocations that share the line add to it.
  struct Run {
    std::vector<size_t> elements;  // of all_
    Value before, total;           // of the invocations before this one, if any; of all of them
  };

  void by_layout() {
    const AxisPlan& p = plan(axes_.of(v_, axis_));
    placement_.set_result(v_, placement_.arena_reads({in_}), [&](const auto& put) {
      nests_.by_layout(shape_, axes_.of(v_), false, [&](const NestPoint& point) {
        const Value x = read(point.c);
        all_.push_back(point.valid ? b_.select(point.valid, x, identity_) : x);
      });
      std::vector<std::vector<Run>> lines = runs_of_lines(p);
      sum_up_all(p, lines);
      for (std::vector<Run>& line : lines) hand_out(line, {});
      size_t i = 0;
      nests_.by_layout(shape_, axes_.of(v_), placement_.kind(v_) != Kind::registers,
                       [&](const NestPoint& point) { put(point, b_.convert(all_[i++], t_)); });
    });
  }
  // A strip of each line at a time, in registers, from which its elements go to where they are stored.
  void in_strips(const ir::Op& store) {
    const std::vector<int> dims = axes_.of(v_);
    const int64_t strips = plan(dims[axis_]).strips();
    arena_.order(placement_.arena_reads({in_}), {});
    refs_.order_store(store);
    std::vector<size_t> others;
    size_t lines = 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d == axis_) continue;
      others.push_back(d);
      if (dims[d] != kNoAxis) lines *= static_cast<size_t>(plan(dims[d]).reg);
    }
    const Value first = nests_.first_invocation(nests_.invocation_bits(dims));
    std::vector<Value> strip(dims.size());
    nests_.each_strip(dims, others, strip, [&] {
      nests_.counted(strips, Values(lines, identity_), [&](Value j, const Values& sums) {
        const Value last = b_.i32(strips - 1);
        strip[axis_] = reverse_ ? b_.sub(last, j) : j;
        return one_strip(store, strip, first, sums);
      });
    });
    arena_.note(placement_.arena_reads({in_}), {});
    refs_.note_store(store);
  }
  Values one_strip(const ir::Op& store, const std::vector<Value>& strip, Value first, const Values& sums) {
    const std::vector<int> dims = axes_.of(v_);
    std::vector<int> counts;
    for (int a : dims) counts.push_back(a == kNoAxis ? 1 : plan(a).reg);
    std::vector<NestPoint> points;
    all_.clear();
    each_register(counts, [&](const std::vector<int>& regs) {
      NestPoint point;
      for (size_t d = 0; d < dims.size(); ++d)
        point.c.push_back(nests_.axis_coord(dims[d], shape_[d], strip[d], regs[d], point.valid));
      const Value x = read(point.c);
      all_.push_back(point.valid ? b_.select(point.valid, x, identity_) : x);
      points.push_back(std::move(point));
    });
    std::vector<std::vector<Run>> lines = runs_of_lines(plan(dims[axis_]));
    sum_up_all(plan(dims[axis_]), lines);
    Values next;
    for (size_t i = 0; i < lines.size(); ++i) next.push_back(hand_out(lines[i], sums[i]));
    Values regs;
    for (Value x : all_) regs.push_back(b_.convert(x, t_));
    placement_.of(v_) = Registers{regs};
    for (const NestPoint& point : points) {
      const Value e = elements_.of(store.operands[1], point.c);
      refs_.store_element(store, point.c, e, b_.both(first, point.valid));
    }
    return next;
  }
  std::vector<std::vector<Run>> runs_of_lines(const AxisPlan& p) {
    // registers of dims outside and inside of the scanned one
    size_t outer = 1, inner = 1;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (const int a = axes_.of(v_, d); a != kNoAxis && d != axis_)
        (d < axis_ ? outer : inner) *= static_cast<size_t>(plan(a).reg);
    const auto reg = static_cast<size_t>(p.reg), vec = static_cast<size_t>(p.vec);
    std::vector<std::vector<Run>> lines;
    for (size_t o = 0; o < outer; ++o)
      for (size_t i = 0; i < inner; ++i) {
        lines.emplace_back();
        for (size_t r = 0; r < reg; ++r) {
          const size_t along = reverse_ ? reg - 1 - r : r;
          if (r % vec == 0) lines.back().emplace_back();
          lines.back().back().elements.push_back((o * reg + along) * inner + i);
        }
      }
    return lines;
  }
  void sum_up(Run& run) {
    for (size_t i = 1; i < run.elements.size(); ++i)
      all_[run.elements[i]] = combine(all_[run.elements[i - 1]], all_[run.elements[i]]);
    run.total = all_[run.elements.back()];
  }
  void sum_up_all(const AxisPlan& p, std::vector<std::vector<Run>>& lines) {
    for (std::vector<Run>& line : lines)
      for (Run& run : line) sum_up(run);
    if (p.invocations > 1) across(p, lines);
  }
  // What lies before a run: what the line starts from, if anything, its runs before it, then the invocations before
  // this one. The sum of all.
  Value hand_out(std::vector<Run>& line, Value start) {
    for (Run& run : line) {
      Value before = run.before;
      if (start) before = before ? combine(start, before) : start;
      if (before)
        for (size_t e : run.elements) all_[e] = combine(before, all_[e]);
      start = start ? combine(start, run.total) : run.total;
    }
    return start;
  }
  // Over the invocations of a line: those of a subgroup by shuffles, then subgroup after subgroup.
  void across(const AxisPlan& p, std::vector<std::vector<Run>>& lines) {
    const int stride = p.invocation_stride;
    Value place = b_.div(invocation_, stride);
    if (stride * p.invocations < s_.group) place = b_.rem(place, p.invocations);
    if (reverse_) place = b_.sub(b_.i32(p.invocations - 1), place);
    const int near = s_.shuffles && stride < s_.subgroup ? std::min(p.invocations, s_.subgroup / stride) : 1;
    std::vector<Run*> runs;
    for (std::vector<Run>& line : lines)
      for (Run& run : line) runs.push_back(&run);
    const bool joins = near == s_.subgroup && stride == 1 && joins_lanes(target_, combiner_, sum_t_);
    for (Run* run : runs) {
      if (joins) over_whole_subgroup(*run);
      else over_lanes(*run, place, near, stride);
    }
    if (near == p.invocations) return;
    // as many runs at a time as leave most of the shared memory to others
    const size_t most =
        std::max<size_t>(static_cast<size_t>(target_.shared_bytes) / 4 / 8 / static_cast<size_t>(s_.group), 1);
    for (size_t i = 0; i < runs.size(); i += most) {
      const auto from = runs.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = runs.begin() + static_cast<std::ptrdiff_t>(std::min(i + most, runs.size()));
      over_subgroups({from, end}, place, near, p);
    }
  }
  // By instructions of the device, which scan in the order of lanes.
  void over_whole_subgroup(Run& run) {
    const auto turned = [&](Value v) { return reverse_ ? b_.shuffle_xor(v, s_.subgroup - 1) : v; };
    run.before = turned(joined_before(b_, combiner_, turned(run.total), lane_, identity_));
    run.total = joined_lanes(b_, combiner_, run.total);
  }
  // Halves of 1, 2, 4 ... places tell each other their sums; an upper half comes after its lower one.
  void over_lanes(Run& run, Value place, int near, int stride) {
    for (int bit = 1; bit < near; bit *= 2) {
      const Value other = b_.shuffle_xor(run.total, int64_t{bit} * stride);
      const Value mask = b_.i32(bit), zero = b_.i32(0);
      const Value lower = b_.eq(b_.op(Opcode::and_, {place, mask}, DType::i32), zero);
      if (run.before) {
        const Value later = combine(other, run.before);
        run.before = b_.select(lower, run.before, later);
      } else {
        run.before = b_.select(lower, identity_, other);
      }
      run.total = combine(run.total, other);
    }
  }
  // Everyone writes the sum of its part of the line, everyone reads all parts in order.
  void over_subgroups(const std::vector<Run*>& runs, Value place, int near, const AxisPlan& p) {
    const int parts = p.invocations / near;
    const Value part = b_.div(place, near);
    std::vector<Slot> slots;
    std::vector<MemoryRange> ranges;
    for (const Run* run : runs) {
      slots.push_back(arena_.temporary(sum_t_, s_.group));
      ranges.push_back(slots.back().range);
      arena_.order({}, {ranges.back()});
      b_.store(slots.back().ref, invocation_, run->total);
    }
    arena_.order(ranges, {});
    const int step = near * p.invocation_stride;  // from part to part
    Value first = invocation_;
    const Value back = b_.mul(part, b_.i32(reverse_ ? -step : step));
    first = b_.sub(first, back);
    if (near == s_.subgroup && p.invocation_stride == 1 && parts > 2 && parts <= near &&
        joins_lanes(target_, combiner_, sum_t_)) {
      // each lane reads one part
      const Value j = b_.rem(lane_, parts), at = b_.add(first, b_.mul(j, b_.i32(reverse_ ? -step : step)));
      const Value before = b_.lt(lane_, part), there = b_.lt(lane_, b_.i32(parts));
      for (size_t i = 0; i < runs.size(); ++i) {
        const Value x = b_.load(slots[i].ref, at);
        const Value sum = joined_lanes(b_, combiner_, b_.select(before, x, identity_));
        runs[i]->before = runs[i]->before ? combine(sum, runs[i]->before) : sum;
        runs[i]->total = joined_lanes(b_, combiner_, parts < near ? b_.select(there, x, identity_) : x);
        arena_.free(slots[i]);
      }
      return;
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto with = [&](Value j, const Values& sums) {
        const Value at = b_.add(first, b_.mul(j, b_.i32(reverse_ ? -step : step)));
        const Value x = b_.load(slots[i].ref, at);
        const Value total = combine(sums[1], x);
        return Values{b_.select(b_.lt(j, part), total, sums[0]), total};
      };
      Values sums{identity_, identity_};
      if (parts <= 8)
        for (int j = 0; j < parts; ++j) sums = with(b_.i32(j), sums);
      else sums = b_.for_loop(0, parts, sums, with);
      runs[i]->before = runs[i]->before ? combine(sums[0], runs[i]->before) : sums[0];
      runs[i]->total = sums[1];
      arena_.free(slots[i]);
    }
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
  Slot to_;
  Values all_;  // by layout: this invocation's elements
};
}  // namespace

void ReduceEmitter::scan(ir::OpId id) { Scan(e_, k_.op(id)).run(); }

}  // namespace tessera::lowering
