// Products. Three forms: *reduce* treats the contraction as a reduction (narrow results: matrix times vector, dots
// within tiny programs); *shuffle* keeps columns on lanes, holds a chunk of k values of each row in the lanes and hands
// them round (lavapipe: a shuffle costs a fifth of a load); *staged* puts chunks of both operands into shared memory,
// prefetching the next chunk into registers (GPUs). Floats accumulate in at least f32, integers modulo the result's
// dtype.
#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

namespace {
// What products of elements of dtype t are summed in.
DType accumulator(DType t) { return is_narrow_float(t) ? DType::f32 : t; }
}  // namespace

Value DotEmitter::multiply_add(Value a, Value b, Value c) {
  const DType t = b_.dtype(c);
  if (is_float(t)) return b_.op(Opcode::fma, {a, b, c}, t);
  return b_.op(Opcode::add, {b_.op(Opcode::mul, {a, b}, t), c}, t);
}

DotShape DotEmitter::shape_of(const ir::Op& o) const {
  const Value v = o.results[0];
  DotShape d;
  d.lhs = o.operands[0];
  d.rhs = o.operands[1];
  if (o.operands.size() == 3) d.start = o.operands[2];
  d.result = shape(v);
  d.result_axes = axes_.of(v);
  const auto &lc = o.ints(Attr::lhs_contract), &rc = o.ints(Attr::rhs_contract), &lb = o.ints(Attr::lhs_batch),
             &rb = o.ints(Attr::rhs_batch);
  d.acc = accumulator(k_.type(v).dtype);
  d.lhs_dims.resize(shape(d.lhs).size());
  d.rhs_dims.resize(shape(d.rhs).size());
  auto contains = [](const std::vector<int64_t>& list, size_t i) {
    return std::find(list.begin(), list.end(), static_cast<int64_t>(i)) != list.end();
  };
  for (size_t i = 0; i < lb.size(); ++i)
    d.lhs_dims[static_cast<size_t>(lb[i])] = d.rhs_dims[static_cast<size_t>(rb[i])] = d.batch++;
  for (size_t i = 0; i < d.lhs_dims.size(); ++i)
    if (!contains(lc, i) && !contains(lb, i)) d.lhs_dims[i] = d.batch + d.rows++;
  for (size_t i = 0; i < d.rhs_dims.size(); ++i)
    if (!contains(rc, i) && !contains(rb, i)) d.rhs_dims[i] = d.batch + d.rows + d.cols++;
  for (size_t i = 0; i < lc.size(); ++i) {
    const auto l = static_cast<size_t>(lc[i]);
    d.lhs_dims[l] = d.rhs_dims[static_cast<size_t>(rc[i])] = d.result.size() + i;
    d.k.push_back(shape(d.lhs)[l]);
    d.k_axes.push_back(axes_.of(d.lhs, l));
    d.depth *= shape(d.lhs)[l];
  }
  return d;
}

bool DotEmitter::is_wide(const DotShape& d) const {
  if (s_.general || s_.wide_dot == DotForm::reduce || d.rows == 0 || d.cols == 0 || d.depth <= 0 ||
      !nests_.fits(d.result_axes))
    return false;
  const int i = d.result_axes[d.batch + d.rows - 1], j = d.result_axes.back();
  if (i == kNoAxis || j == kNoAxis) return false;
  const AxisPlan &pi = plan(i), &pj = plan(j);
  // Another dot may have given registers to a dim that this form walks one element at a time: batch dims, and, staged,
  // further free dims.
  for (size_t r = 0; r < d.result_axes.size(); ++r) {
    const int a = d.result_axes[r];
    if ((r < d.batch || (s_.wide_dot == DotForm::staged && a != i && a != j)) && a != kNoAxis && plan(a).reg != 1)
      return false;
  }
  if (s_.wide_dot == DotForm::shuffle)
    return pj.laid_out && pj.tstride == 1 && pj.tcount == s_.group && s_.group == s_.subgroup && pi.tcount == 1;
  int bits = 0;
  for (int a : d.result_axes)
    if (a != kNoAxis) bits |= (plan(a).tcount - 1) * plan(a).tstride;
  return pi.laid_out && pj.laid_out && (pi.tcount - 1) * pi.tstride + (pj.tcount - 1) * pj.tstride == s_.group - 1 &&
         bits == s_.group - 1;
}

bool DotEmitter::reads_in_place(const ir::Op& dot) const {
  const DotShape d = shape_of(dot);
  std::vector<int> all = d.result_axes;
  all.insert(all.end(), d.k_axes.begin(), d.k_axes.end());
  return !is_wide(d) && nests_.fits(all);
}

int64_t DotEmitter::staged_share(const DotShape& d, int operand) const {
  const AxisPlan& p = plan(d.result_axes[operand == 0 ? d.batch + d.rows - 1 : d.result.size() - 1]);
  return cdiv(std::min(s_.dot_chunk, d.depth) * p.cover(), int64_t{s_.group});
}

void DotEmitter::emit(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value v = o.results[0];
  const DType t = k_.type(v).dtype;
  DotShape d = shape_of(o);
  // An operand goes through the arena first where its own layout cannot give what the form asks for.
  std::vector<std::pair<Value, Place>> staged;
  auto to_arena = [&](Value x) {
    Place h;
    h.kind = Kind::arena;
    h.slot = arena_.make(k_.type(x).dtype, shape(x), axes_.of(x));
    placement_.evaluate_into(x, h);
    staged.emplace_back(x, h);
    return staged.size() - 1;
  };
  const DotForm form = is_wide(d) ? s_.wide_dot : DotForm::reduce;
  bool lhs_staged = false, rhs_staged = false, start_staged = false;
  if (form == DotForm::staged) {
    lhs_staged = placement_.reads_registers(d.lhs);
    rhs_staged = placement_.reads_registers(d.rhs);
  } else if (form == DotForm::shuffle) {
    const bool lanes_hold_k = d.k.size() == 1 && d.k_axes[0] != kNoAxis && plan(d.k_axes[0]).vec == 1 &&
                              d.k_axes[0] != kNoAxis && plan(d.k_axes[0]).tstride == 1 &&
                              plan(d.k_axes[0]).tcount == s_.group && plan(d.k_axes[0]).strips() == 1;
    for (int a : d.k_axes) {
      rhs_staged = rhs_staged || placement_.registers_along(d.rhs, a);
      lhs_staged = lhs_staged || (placement_.registers_along(d.lhs, a) && !lanes_hold_k);
    }
  } else {
    std::vector<int> all = d.result_axes;
    all.insert(all.end(), d.k_axes.begin(), d.k_axes.end());
    if (s_.general || !nests_.fits(all)) {
      lhs_staged = placement_.reads_registers(d.lhs);
      rhs_staged = placement_.reads_registers(d.rhs);
      start_staged = d.start && placement_.reads_registers(d.start);
    }
    // This form computes an element of an operand anew for every row or column that it meets.
    const auto computed_often = [&](Value x, size_t from, size_t dims) {
      constexpr int64_t kOften = 8;
      int64_t times = 1;
      for (size_t i = from; i < from + dims; ++i) times *= d.result[i];
      const std::set<uint32_t> computed = placement_.computed_for({x});
      return times >= kOften && std::any_of(computed.begin(), computed.end(), [&](uint32_t part) {
               const ir::Op* def = placement_.kind(Value{part}) == Kind::lazy ? k_.def(Value{part}) : nullptr;
               return def && ir::info(def->code).transcendental;
             });
    };
    if (target_.kind == Target::Kind::cpu && uniform_group() && !s_.general) {
      lhs_staged = lhs_staged || computed_often(d.lhs, d.batch + d.rows, d.cols);
      rhs_staged = rhs_staged || computed_often(d.rhs, d.batch, d.rows);
    }
  }
  const size_t l_index = lhs_staged ? to_arena(d.lhs) : 0, r_index = rhs_staged ? to_arena(d.rhs) : 0;
  const size_t start_index = start_staged ? to_arena(d.start) : 0;
  d.start_at = [&](const Coords& c) {
    return !d.start       ? b_.zero(d.acc)
           : start_staged ? arena_.load(staged[start_index].second.slot, c)
                          : elements_.of(d.start, c);
  };
  auto reader = [&](Value x, const std::vector<size_t>& dims, bool from_arena, size_t index) {
    return [this, x, &dims, &staged, from_arena, index, acc = d.acc](const Coords& c) {
      Coords in;
      for (size_t p : dims) in.push_back(c[p]);
      for (size_t i = 0; i < in.size(); ++i)
        if (shape(x)[i] == 1) in[i] = at(0);
      return b_.convert(from_arena ? arena_.load(staged[index].second.slot, in) : elements_.of(x, in), acc);
    };
  };
  d.lhs_at = reader(d.lhs, d.lhs_dims, lhs_staged, l_index);
  d.rhs_at = reader(d.rhs, d.rhs_dims, rhs_staged, r_index);
  std::vector<MemoryRange> reads =
      placement_.arena_reads(d.start ? std::vector{d.lhs, d.rhs, d.start} : std::vector{d.lhs, d.rhs});
  for (auto& [x, h] : staged) reads.push_back(h.slot.range);
  placement_.set_result(v, reads, [&](const auto& put) {
    const Sink sink = [&](const NestPoint& p, Value x) { put(p, b_.convert(x, t)); };
    if (form == DotForm::shuffle) by_shuffle(d, sink);
    else if (form == DotForm::staged) by_stages(id, d, sink);
    else by_reduction(d, placement_.kind(v) == Kind::registers, sink);
  });
  for (auto& [x, h] : staged) arena_.free(h.slot);
}

void DotEmitter::by_reduction(const DotShape& d, bool to_registers, const Sink& sink) {
  Shape all = d.result;
  std::vector<int> axes = d.result_axes;
  std::vector<bool> reduced(all.size(), false);
  for (size_t i = 0; i < d.k.size(); ++i) {
    all.push_back(d.k[i]);
    axes.push_back(d.k_axes[i]);
    reduced.push_back(true);
  }
  Accumulator acc;
  acc.identity = {b_.zero(d.acc)};
  acc.neutral = {b_.zero(d.acc), b_.zero(d.acc)};
  acc.step = [&](const Values& a, const Values& x) { return Values{multiply_add(x[0], x[1], a[0])}; };
  acc.merge = [&](const Values& a, const Values& b) { return Values{b_.op(Opcode::add, {a[0], b[0]}, d.acc)}; };
  bool registers = false;
  for (Value x : {d.lhs, d.rhs, d.start})
    registers = registers || (x && nests_.fits(axes) && !s_.general && placement_.reads_registers(x));
  reduces_.reduction(
      all, axes, reduced, registers, to_registers, acc,
      [&](const Coords& c) { return Values{d.lhs_at(c), d.rhs_at(c)}; },
      [&](const NestPoint& p, const Values& r) {
        sink(p, d.start ? b_.op(Opcode::add, {d.start_at(p.c), r[0]}, d.acc) : r[0]);
      });
}

namespace {
// All combinations of registers of the result's dims, the last fastest.
template <class F> void each_register(const std::vector<int>& counts, const F& f) {
  std::vector<int> r(counts.size(), 0);
  for (;;) {
    f(r);
    size_t i = counts.size();
    while (i-- > 0) {
      if (++r[i] < counts[i]) break;
      r[i] = 0;
    }
    if (i == SIZE_MAX) return;
  }
}
}  // namespace

void DotEmitter::by_shuffle(const DotShape& d, const Sink& sink) {
  constexpr size_t kMostLoads = 256;
  const size_t rank = d.result.size(), first_col = d.batch + d.rows;
  const int64_t lanes = s_.group;
  std::vector<int> counts;
  for (int a : d.result_axes) counts.push_back(a == kNoAxis ? 1 : plan(a).reg);
  std::vector<int> row_counts(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(first_col)),
      col_counts(counts.begin() + static_cast<std::ptrdiff_t>(first_col), counts.end());
  size_t n_rows = 1, n_cols = 1;
  for (int c : row_counts) n_rows *= static_cast<size_t>(c);
  for (int c : col_counts) n_cols *= static_cast<size_t>(c);
  std::vector<Value> strip(rank);
  const Value first = nests_.first_invocation([&] {
    int bits = 0;
    for (int a : d.result_axes)
      if (a != kNoAxis) bits |= (plan(a).tcount - 1) * plan(a).tstride;
    return bits;
  }());
  const bool tagged = d.k.size() == 1 && placement_.registers_along(d.lhs, d.k_axes[0]);

  auto coords = [&](const std::vector<int>& regs, Value& valid) {
    Coords c(rank + d.k.size());
    for (size_t i = 0; i < rank; ++i) c[i] = nests_.axis_coord(d.result_axes[i], d.result[i], strip[i], regs[i], valid);
    return c;
  };
  auto set_k = [&](Coords& c, Value k, int number) {  // number: of the chunk whose elements the lanes hold, or -1
    if (d.k.size() == 1) {
      c[rank] = {d.k[0] == 1 ? b_.i32(0) : k};
      if (number >= 0 && tagged) c[rank].axis = d.k_axes[0], c[rank].reg = number;
      return;
    }
    const Coords u = unravel(k, d.k);
    for (size_t i = 0; i < d.k.size(); ++i) c[rank + i] = {d.k[i] == 1 ? b_.i32(0) : u[i].v};
  };
  // This lane's elements of the left operand, row by row, in the chunk that starts at k0 (a lane value, uniform);
  // number: the chunk's if known.
  auto left = [&](Value k0, int64_t used, int number) {
    Values a;
    Value unused;
    each_register(row_counts, [&](const std::vector<int>& rr) {
      std::vector<int> regs(rank, 0);
      std::copy(rr.begin(), rr.end(), regs.begin());
      Coords c = coords(regs, unused);
      Value k = b_.add(k0, lane_);
      if (used < lanes) k = b_.min(k, b_.i32(d.depth - 1));
      set_k(c, k, number);
      a.push_back(d.lhs_at(c));
    });
    return a;
  };
  // Accumulates `used` k values starting at k0, of which the lanes hold a.
  auto chunk = [&](const Values& acc, const Values& a, Value k0, int64_t used) {
    Value unused;
    std::vector<Values> b(static_cast<size_t>(used));
    for (int64_t k = 0; k < used; ++k)
      each_register(col_counts, [&](const std::vector<int>& cr) {
        std::vector<int> regs(rank, 0);
        std::copy(cr.begin(), cr.end(), regs.begin() + static_cast<std::ptrdiff_t>(first_col));
        // Batch dims of the right operand follow the rows' registers; their plans have one register.
        Coords c = coords(regs, unused);
        set_k(c, b_.add(k0, b_.i32(k)), -1);
        b[static_cast<size_t>(k)].push_back(d.rhs_at(c));
      });
    // Loads are branches in lavapipe's code: with all of them behind it, the arithmetic is one basic block.
    Values next = acc;
    for (size_t row = 0; row < n_rows; ++row)
      for (int64_t i = 0; i < used; ++i) {
        const Value x = b_.shuffle(a[row], b_.i32(i));
        for (size_t j = 0; j < n_cols; ++j) {
          Value& e = next[row * n_cols + j];
          e = multiply_add(x, b[static_cast<size_t>(i)][j], e);
        }
      }
    return next;
  };
  auto one_strip = [&] {
    std::vector<NestPoint> points;
    Values acc;
    each_register(counts, [&](const std::vector<int>& regs) {
      NestPoint p;
      p.regs = regs;
      p.valid = first;
      p.c = coords(regs, p.valid);
      p.c.resize(rank);
      acc.push_back(d.start_at(p.c));
      points.push_back(std::move(p));
    });
    const int64_t full = d.depth / lanes, rest = d.depth % lanes;
    // The lanes' registers have no dynamic index. A few chunks are written out; of many, a loop selects its own, or the
    // right operand's loads would be most of the code.
    const auto all_loads = static_cast<size_t>(full * lanes) * n_cols;
    if (tagged && all_loads > kMostLoads) {
      std::vector<Values> all;  // per chunk
      for (int64_t i = 0; i < full; ++i) all.push_back(left(b_.i32(i * lanes), lanes, static_cast<int>(i)));
      acc = b_.for_loop(0, full, acc, [&](Value i, const Values& in) {
        std::vector<Values> at = all;
        for (int64_t bit = 1; at.size() > 1; bit *= 2) {
          const Value odd =
              b_.op(Opcode::ne, {b_.op(Opcode::and_, {i, b_.i32(bit)}, DType::i32), b_.i32(0)}, DType::boolean);
          std::vector<Values> half;
          for (size_t j = 0; j < at.size(); j += 2) {
            half.push_back(at[j]);
            for (size_t row = 0; row < n_rows && j + 1 < at.size(); ++row)
              half.back()[row] = b_.select(odd, at[j + 1][row], at[j][row]);
          }
          at = std::move(half);
        }
        return chunk(in, at[0], b_.mul(i, b_.i32(lanes)), lanes);
      });
    } else if (tagged) {
      for (int64_t i = 0; i < full; ++i) {
        const Value k0 = b_.i32(i * lanes);
        acc = chunk(acc, left(k0, lanes, static_cast<int>(i)), k0, lanes);
      }
    } else {
      acc = nests_.counted(full, acc, [&](Value i, const Values& in) {
        const Value k0 = b_.mul(i, b_.i32(lanes));
        return chunk(in, left(k0, lanes, 0), k0, lanes);
      });
    }
    if (rest) {
      const Value k0 = b_.i32(full * lanes);
      acc = chunk(acc, left(k0, rest, static_cast<int>(full)), k0, rest);
    }
    for (size_t i = 0; i < points.size(); ++i) sink(points[i], acc[i]);
  };
  std::function<void(size_t)> strips = [&](size_t i) {
    if (i == rank) return one_strip();
    const int64_t n = d.result_axes[i] == kNoAxis ? 1 : plan(d.result_axes[i]).strips();
    if (n == 1) {
      strip[i] = {};
      return strips(i + 1);
    }
    nests_.counted(n, [&](Value j) {
      strip[i] = j;
      strips(i + 1);
    });
  };
  if (num_elements(d.result) > 0) strips(0);
}

void DotEmitter::by_stages(ir::OpId id, const DotShape& d, const Sink& sink) {
  if (num_elements(d.result) == 0) return;
  const size_t rank = d.result.size(), row_dim = d.batch + d.rows - 1, col_dim = rank - 1;
  const AxisPlan &pi = plan(d.result_axes[row_dim]), &pj = plan(d.result_axes[col_dim]);
  const int64_t ti = pi.cover(), tj = pj.cover(), tk = std::min(s_.dot_chunk, d.depth), pad = 1;
  const int64_t chunks = cdiv(d.depth, tk);
  Slot a_tile = arena_.temporary(d.acc, tk * (ti + pad)), b_tile = arena_.temporary(d.acc, tk * (tj + pad));
  std::vector<int> counts(rank, 1);
  counts[row_dim] = pi.reg;
  counts[col_dim] = pj.reg;
  std::vector<Value> strip(rank);

  // Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile.
  auto k_fastest = [&](const std::vector<size_t>& dims) { return !dims.empty() && dims.back() >= rank; };
  const bool lhs_k = k_fastest(d.lhs_dims), rhs_k = k_fastest(d.rhs_dims);

  auto base_coords = [&] {
    Coords c(rank + d.k.size());
    Value unused;
    for (size_t i = 0; i < rank; ++i) c[i] = {nests_.axis_coord(d.result_axes[i], d.result[i], strip[i], 0, unused).v};
    return c;
  };
  struct Element {
    Value k, free, index, valid;
  };
  // The elements of a tk x t tile that this invocation fetches.
  auto share = [&](int64_t t, bool by_k) {
    std::vector<Element> mine;
    const int64_t n = tk * t;
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Value e = b_.add(b_.i32(r * s_.group), invocation_);
      Element x;
      if ((r + 1) * s_.group > n) {
        x.valid = b_.lt(e, b_.i32(n));
        e = b_.min(e, b_.i32(n - 1));
      }
      x.k = by_k ? b_.rem(e, tk) : b_.div(e, t);
      x.free = by_k ? b_.div(e, tk) : b_.rem(e, t);
      x.index = b_.add(b_.mul(x.k, b_.i32(t + pad)), x.free);
      mine.push_back(x);
    }
    return mine;
  };
  const std::vector<Element> a_share = share(ti, lhs_k), b_share = share(tj, rhs_k);
  auto fetch = [&](const std::vector<Element>& mine, size_t dim, Value chunk,
                   const std::function<Value(const Coords&)>& operand) {
    Values v;
    const int axis = d.result_axes[dim];
    const int64_t n = d.result[dim];
    Value start = nests_.tile_base(axis);
    if (strip[dim]) start = b_.add(start, b_.mul(strip[dim], b_.i32(plan(axis).cover())));
    for (const Element& x : mine) {
      Coords c = base_coords();
      const Value last = b_.i32(n - 1);
      c[dim] = {b_.min(b_.add(start, x.free), last)};
      Value k = b_.add(b_.mul(chunk, b_.i32(tk)), x.k), inside;
      if (d.depth % tk != 0) {
        inside = b_.lt(k, b_.i32(d.depth));
        k = b_.min(k, b_.i32(d.depth - 1));
      }
      const Coords u = unravel(k, d.k);
      for (size_t i = 0; i < d.k.size(); ++i) c[rank + i] = {d.k[i] == 1 ? b_.i32(0) : u[i].v};
      const Value e = operand(c);
      v.push_back(inside ? b_.select(inside, e, b_.zero(d.acc)) : e);
    }
    return v;
  };
  Prefetch::Load *const a_early = prefetch_.of(id, 0), *const b_early = prefetch_.of(id, 1);
  auto one_strip = [&] {
    const size_t points = static_cast<size_t>(pi.reg) * static_cast<size_t>(pj.reg);
    std::vector<NestPoint> held;
    Values carried;
    each_register(counts, [&](const std::vector<int>& regs) {
      NestPoint p;
      p.regs = regs;
      for (size_t j = 0; j < rank; ++j)
        p.c.push_back(nests_.axis_coord(d.result_axes[j], d.result[j], strip[j], regs[j], p.valid));
      carried.push_back(d.start_at(p.c));
      held.push_back(std::move(p));
    });
    auto first = [&](const Prefetch::Load* early, const std::vector<Element>& mine, size_t dim,
                     const std::function<Value(const Coords&)>& operand) {
      const auto own = [&] { return fetch(mine, dim, b_.i32(0), operand); };
      for (Value x : early ? b_.if_else(prefetch_.in_first_step(), own, [&] { return early->regs; }) : own())
        carried.push_back(x);
    };
    first(a_early, a_share, row_dim, d.lhs_at);
    first(b_early, b_share, col_dim, d.rhs_at);
    const Value tci = nests_.invocation_start(pi), tcj = nests_.invocation_start(pj);
    carried = nests_.counted(chunks, carried, [&](Value chunk, const Values& in) {
      Values acc(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(points));
      arena_.order({}, {a_tile.range, b_tile.range});
      size_t at_value = points;
      auto put = [&](const std::vector<Element>& mine, const Slot& tile) {
        for (const Element& x : mine) {
          const Value v = in[at_value++];
          b_.when(x.valid, [&] { b_.store(tile.ref, x.index, v); });
        }
      };
      put(a_share, a_tile);
      put(b_share, b_tile);
      arena_.order({a_tile.range, b_tile.range}, {});
      // The next chunk's loads start after the barrier, so that it does not wait for them. Behind the last one comes
      // the first of the next step where the grid has one and its block may be loaded early; else it fetches itself
      // again.
      const Value last = b_.eq(chunk, b_.i32(chunks - 1));
      auto next = [&](const Prefetch::Load* early, const std::vector<Element>& mine, size_t dim,
                      const std::function<Value(const Coords&)>& operand, size_t held_at) {
        if (early) {
          const Value step = b_.select(last, prefetch_.next_step(), pid_[static_cast<size_t>(prefetch_.axis())]);
          return prefetch_.at_step(*early, step, [&] {
            const Value following = b_.add(chunk, b_.i32(1));
            return fetch(mine, dim, b_.select(last, b_.i32(0), following), operand);
          });
        }
        if (chunks == 1)
          return Values(in.begin() + static_cast<std::ptrdiff_t>(held_at),
                        in.begin() + static_cast<std::ptrdiff_t>(held_at + mine.size()));
        const Value last_chunk = b_.i32(chunks - 1);
        return fetch(mine, dim, b_.min(b_.add(chunk, b_.i32(1)), last_chunk), operand);
      };
      const Values next_a = next(a_early, a_share, row_dim, d.lhs_at, points),
                   next_b = next(b_early, b_share, col_dim, d.rhs_at, points + a_share.size());
      for (int64_t k = 0; k < tk; ++k) {
        Values a, b;
        for (int r = 0; r < pi.reg; ++r)
          a.push_back(b_.load(a_tile.ref, b_.add(tci, b_.i32(k * (ti + pad) + pi.local(r)))));
        for (int r = 0; r < pj.reg; ++r)
          b.push_back(b_.load(b_tile.ref, b_.add(tcj, b_.i32(k * (tj + pad) + pj.local(r)))));
        for (size_t i = 0; i < a.size(); ++i)
          for (size_t j = 0; j < b.size(); ++j) acc[i * b.size() + j] = multiply_add(a[i], b[j], acc[i * b.size() + j]);
      }
      acc.insert(acc.end(), next_a.begin(), next_a.end());
      acc.insert(acc.end(), next_b.begin(), next_b.end());
      return acc;
    });
    const auto behind = carried.begin() + static_cast<std::ptrdiff_t>(points),
               middle = behind + static_cast<std::ptrdiff_t>(a_share.size());
    if (a_early) a_early->regs.assign(behind, middle);
    if (b_early) b_early->regs.assign(middle, carried.end());
    for (size_t i = 0; i < held.size(); ++i) sink(held[i], carried[i]);
  };
  std::function<void(size_t)> strips = [&](size_t i) {
    if (i == rank) return one_strip();
    const int64_t n = d.result_axes[i] == kNoAxis ? 1 : plan(d.result_axes[i]).strips();
    if (n == 1) {
      strip[i] = {};
      return strips(i + 1);
    }
    nests_.counted(n, [&](Value j) {
      strip[i] = j;
      strips(i + 1);
    });
  };
  strips(0);
  arena_.free(a_tile);
  arena_.free(b_tile);
}

}  // namespace tessera::lowering
