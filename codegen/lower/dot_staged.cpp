// Products by stages, for GPUs: chunks of both operands go through shared memory, and the next chunk is on its way into
// registers while one is computed.
#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {

namespace {
// Elements behind each row of a tile, against bank conflicts: as many as one access brings, so that rows stay aligned.
constexpr int64_t kPad = 4;

class StagedDot : public Part {
 public:
  StagedDot(Emission& e, ir::OpId id, const DotShape& d, const DotEmitter::Sink& sink)
      : Part(e),
        d_(d),
        sink_(sink),
        rank_(d.result.size()),
        row_(d.batch + d.rows - 1),
        col_(rank_ - 1),
        rows_(plan(d.result_axes[row_])),
        cols_(plan(d.result_axes[col_])),
        strip_(rank_) {
    lhs_ = {.dim = row_, .value = d.lhs, .plan = &rows_, .element = &d.lhs_at, .early = prefetch_.of(id, 0)};
    rhs_ = {.dim = col_, .value = d.rhs, .plan = &cols_, .element = &d.rhs_at, .early = prefetch_.of(id, 1)};
  }
  void run() {
    lhs_.tile = arena_.temporary(d_.acc, tk_ * (rows_.cover() + kPad));
    rhs_.tile = arena_.temporary(d_.acc, tk_ * (cols_.cover() + kPad));
    // Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile.
    const auto k_fastest = [&](const std::vector<size_t>& dims) { return !dims.empty() && dims.back() >= rank_; };
    deal(lhs_, k_fastest(d_.lhs_dims));
    deal(rhs_, k_fastest(d_.rhs_dims));
    nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
    arena_.free(lhs_.tile);
    arena_.free(rhs_.tile);
  }

 private:
  // An element of a tile that this invocation fetches: the first of `width` neighbours, and how far behind it.
  struct Fetched {
    Value k, free, index, valid;
    int64_t behind = 0;
  };
  struct Operand {
    size_t dim = 0;  // of the result: its free one
    Value value;
    const AxisPlan* plan = nullptr;
    const std::function<Value(const Coords&)>* element = nullptr;
    Prefetch::Load* early = nullptr;  // its first chunk is loaded a step of the grid before
    Slot tile = {};                   // k by free elements
    bool by_k = false;                // a contracted dim is the fastest in memory
    int64_t width = 1;
    std::vector<Fetched> share = {};
  };

  // How many neighbours along the fastest dim an invocation fetches at once: what one access brings, where the tile has
  // as many for each invocation.
  int64_t width_of(const Operand& o) const {
    const int axis = o.by_k ? (d_.k.size() == 1 ? d_.k_axes[0] : kNoAxis) : d_.result_axes[o.dim];
    if (axis == kNoAxis || s_.widths.empty() || s_.widths[static_cast<size_t>(axis)] == 1) return 1;
    const int64_t t = o.plan->cover();
    int64_t w = std::max<int64_t>(16 / size_bytes(k_.type(o.value).dtype), 1);
    while (w > 1 && ((o.by_k ? tk_ : t) % w != 0 || tk_ * t % (w * s_.group) != 0)) w /= 2;
    return w;
  }
  void deal(Operand& o, bool by_k) {
    o.by_k = by_k;
    o.width = width_of(o);
    const int64_t t = o.plan->cover(), n = tk_ * t;
    for (int64_t r = 0; r < cdiv(n, o.width * s_.group); ++r) {
      Value e = b_.add(b_.i32(r * s_.group), invocation_);
      Fetched x;
      if ((r + 1) * s_.group * o.width > n) {  // of width 1
        x.valid = b_.lt(e, b_.i32(n));
        e = b_.min(e, b_.i32(n - 1));
      }
      const int64_t pieces = (by_k ? tk_ : t) / o.width;
      const Value piece = b_.rem(e, pieces), across = b_.div(e, pieces);
      const Value along = b_.mul(piece, b_.i32(o.width));
      x.k = by_k ? along : across;
      x.free = by_k ? across : along;
      const Value row = b_.mul(x.k, b_.i32(t + kPad)), first = b_.add(row, x.free);
      for (x.behind = 0; x.behind < o.width; ++x.behind) {
        x.index = b_.add(first, b_.i32(x.behind * (by_k ? t + kPad : 1)));
        o.share.push_back(x);
      }
    }
  }
  Coords base_coords() {
    Coords c(rank_ + d_.k.size());
    Value unused;
    for (size_t i = 0; i < rank_; ++i)
      c[i] = {nests_.axis_coord(d_.result_axes[i], d_.result[i], strip_[i], 0, unused).v};
    return c;
  }
  // `first` + behind, or the last of n where that is less; neighbours stay neighbours where n does not part them.
  Value at_most(Value first, int64_t behind, int64_t width, int64_t n) {
    const Value back = b_.i32(behind);
    if (width > 1 && n % width == 0) {
      const Value last = b_.i32(n - width);
      return b_.add(b_.min(first, last), back);
    }
    const Value last = b_.i32(n - 1);
    return b_.min(b_.add(first, back), last);
  }
  // This invocation's share of a chunk.
  Values fetch(const Operand& o, Value chunk) {
    Values v;
    const int axis = d_.result_axes[o.dim];
    const int64_t n = d_.result[o.dim];
    const AxisPlan& p = plan(axis);
    const bool overhangs = (p.split ? cdiv(n, p.tile) : 1) * p.strips() * p.cover() != n;
    Value start = nests_.tile_base(axis);
    if (strip_[o.dim]) start = b_.add(start, b_.mul(strip_[o.dim], b_.i32(p.cover())));
    for (const Fetched& x : o.share) {
      const Value back = b_.i32(x.behind);
      Coords c = base_coords();
      const Value free = b_.add(start, x.free);
      if (overhangs) c[o.dim] = {at_most(free, o.by_k ? 0 : x.behind, o.by_k ? 1 : o.width, n)};
      else c[o.dim] = {o.by_k ? free : b_.add(free, back)};
      Value k = b_.add(b_.mul(chunk, b_.i32(tk_)), x.k), inside;
      if (d_.depth % tk_ != 0) {
        const Value own = o.by_k ? b_.add(k, back) : k, depth = b_.i32(d_.depth);
        inside = b_.lt(own, depth);
        k = at_most(k, o.by_k ? x.behind : 0, o.by_k ? o.width : 1, d_.depth);
      } else if (o.by_k) {
        k = b_.add(k, back);
      }
      const Coords u = unravel(k, d_.k);
      for (size_t i = 0; i < d_.k.size(); ++i) c[rank_ + i] = {d_.k[i] == 1 ? b_.i32(0) : u[i].v};
      const Value e = (*o.element)(c);
      v.push_back(inside ? b_.select(inside, e, b_.zero(d_.acc)) : e);
    }
    return v;
  }
  void append_first(Values& carried, const Operand& o) {
    const auto own = [&] { return fetch(o, b_.i32(0)); };
    for (Value x : o.early ? b_.if_else(prefetch_.in_first_step(), own, [&] { return o.early->regs; }) : own())
      carried.push_back(x);
  }
  // The next chunk's loads start after the barrier, so that it does not wait for them. Behind the last one comes the
  // first of the next step where the grid has one and its block may be loaded early; else it fetches itself again.
  // `held`: where its share begins in what the loop carries.
  Values next(const Operand& o, Value chunk, Value last, const Values& in, size_t held) {
    if (o.early) {
      const Value step = b_.select(last, prefetch_.next_step(), pid_[static_cast<size_t>(prefetch_.axis())]);
      return prefetch_.at_step(*o.early, step, [&] {
        const Value following = b_.add(chunk, b_.i32(1));
        return fetch(o, b_.select(last, b_.i32(0), following));
      });
    }
    const auto from = in.begin() + static_cast<std::ptrdiff_t>(held);
    if (chunks_ == 1) return Values(from, from + static_cast<std::ptrdiff_t>(o.share.size()));
    const Value last_chunk = b_.i32(chunks_ - 1);
    return fetch(o, b_.min(b_.add(chunk, b_.i32(1)), last_chunk));
  }
  // Puts the chunk that the loop carries into the tiles, for all to read.
  void put(const Values& in, size_t points) {
    arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
    size_t at_value = points;
    for (const Operand* o : {&lhs_, &rhs_})
      for (const Fetched& x : o->share) {
        const Value v = in[at_value++];
        b_.when(x.valid, [&] { b_.store(o->tile.ref, x.index, v); });
      }
    arena_.order({lhs_.tile.range, rhs_.tile.range}, {});
  }
  void multiply(Values& acc, Value row_start, Value col_start) {
    const auto row = [&](const Operand& o, Value start, int64_t k) {
      Values v;
      for (int r = 0; r < o.plan->reg; ++r)
        v.push_back(b_.load(o.tile.ref, b_.add(start, b_.i32(k * (o.plan->cover() + kPad) + o.plan->local(r)))));
      return v;
    };
    for (int64_t k = 0; k < tk_; ++k) {
      const Values a = row(lhs_, row_start, k);
      const Values b = row(rhs_, col_start, k);
      for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < b.size(); ++j)
          acc[i * b.size() + j] = dots_.multiply_add(a[i], b[j], acc[i * b.size() + j]);
    }
  }
  void one_strip() {
    std::vector<int> counts(rank_, 1);
    counts[row_] = rows_.reg;
    counts[col_] = cols_.reg;
    std::vector<NestPoint> held;
    Values carried;
    each_register(counts, [&](const std::vector<int>& regs) {
      NestPoint p;
      p.regs = regs;
      for (size_t j = 0; j < rank_; ++j)
        p.c.push_back(nests_.axis_coord(d_.result_axes[j], d_.result[j], strip_[j], regs[j], p.valid));
      carried.push_back(d_.start_at(p.c));
      held.push_back(std::move(p));
    });
    const size_t points = held.size();
    append_first(carried, lhs_);
    append_first(carried, rhs_);
    const Value row_start = nests_.invocation_start(rows_), col_start = nests_.invocation_start(cols_);
    carried = nests_.counted(chunks_, carried, [&](Value chunk, const Values& in) {
      Values acc(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(points));
      put(in, points);
      const Value last = b_.eq(chunk, b_.i32(chunks_ - 1));
      const Values next_lhs = next(lhs_, chunk, last, in, points),
                   next_rhs = next(rhs_, chunk, last, in, points + lhs_.share.size());
      multiply(acc, row_start, col_start);
      acc.insert(acc.end(), next_lhs.begin(), next_lhs.end());
      acc.insert(acc.end(), next_rhs.begin(), next_rhs.end());
      return acc;
    });
    const auto behind = carried.begin() + static_cast<std::ptrdiff_t>(points),
               middle = behind + static_cast<std::ptrdiff_t>(lhs_.share.size());
    if (lhs_.early) lhs_.early->regs.assign(behind, middle);
    if (rhs_.early) rhs_.early->regs.assign(middle, carried.end());
    for (size_t i = 0; i < held.size(); ++i) sink_(held[i], carried[i]);
  }

  const DotShape& d_;
  const DotEmitter::Sink& sink_;
  const size_t rank_, row_, col_;  // the dims that have registers
  const AxisPlan &rows_, &cols_;
  const int64_t tk_ = std::min(s_.dot_chunk, d_.depth), chunks_ = cdiv(d_.depth, tk_);
  Operand lhs_, rhs_;
  std::vector<Value> strip_;
};
}  // namespace

void DotEmitter::by_stages(ir::OpId id, const DotShape& d, const Sink& sink) {
  if (num_elements(d.result) > 0) StagedDot(e_, id, d, sink).run();
}

}  // namespace tessera::lowering
