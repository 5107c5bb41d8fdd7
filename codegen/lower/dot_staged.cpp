// Products by stages, for GPUs: chunks of both operands go through shared memory, and the next chunk is on its way into
// registers while one is computed. Packed: a word of a tile has four elements of 8 bits along the contracted dims,
// which the device multiplies at once. An operand whose free dim is the fastest in memory arrives in words along that
// dim, and is transposed on the way to the tile.
#include "codegen/lower/dot_staged.h"

#include <algorithm>

namespace tessera::lowering {
using ir::Opcode;

// -- what chunked products have in common

ChunkedDot::ChunkedDot(Emission& e, ir::OpId id, const DotShape& d, const DotEmitter::Sink& sink, int64_t chunk_depth)
    : Part(e),
      d_(d),
      sink_(sink),
      rank_(d.result.size()),
      row_(d.batch + d.rows - 1),
      col_(rank_ - 1),
      rows_(plan(d.result_axes[row_])),
      cols_(plan(d.result_axes[col_])),
      tk_(chunk_depth),
      chunks_(cdiv(d.depth, tk_)),
      strip_(rank_) {
  lhs_ = {.dim = row_, .value = d.lhs, .plan = &rows_, .element = &d.lhs_at, .early = prefetch_.of(id, 0)};
  rhs_ = {.dim = col_, .value = d.rhs, .plan = &cols_, .element = &d.rhs_at, .early = prefetch_.of(id, 1)};
}

std::vector<int> ChunkedDot::counts() const {
  std::vector<int> n(rank_, 1);
  n[row_] = rows_.reg;
  n[col_] = cols_.reg;
  return n;
}

NestPoint ChunkedDot::point(const std::vector<int>& regs) {
  NestPoint p;
  p.regs = regs;
  for (size_t j = 0; j < rank_; ++j)
    p.c.push_back(nests_.axis_coord(d_.result_axes[j], d_.result[j], strip_[j], regs[j], p.valid));
  return p;
}

Value ChunkedDot::item(int64_t r, int64_t n, Fetched& x) {
  const Value e = b_.add(b_.i32(r * s_.group), invocation_);
  if ((r + 1) * s_.group <= n) return e;
  x.valid = b_.lt(e, b_.i32(n));
  return b_.min(e, b_.i32(n - 1));
}

Value ChunkedDot::strip_start(const Operand& o) {
  const Value start = nests_.tile_base(d_.result_axes[o.dim]);
  return strip_[o.dim] ? b_.add(start, b_.mul(strip_[o.dim], b_.i32(o.plan->cover()))) : start;
}

bool ChunkedDot::overhangs(const Operand& o) const {
  const AxisPlan& p = *o.plan;
  return (p.split ? cdiv(d_.result[o.dim], p.tile) : 1) * p.strips() * p.cover() != d_.result[o.dim];
}

Value ChunkedDot::at_most(Value first, int64_t behind, int64_t width, int64_t n) {
  const Value back = b_.i32(behind);
  if (width > 1 && n % width == 0) {
    const Value last = b_.i32(n - width);
    return b_.add(b_.min(first, last), back);
  }
  const Value last = b_.i32(n - 1);
  return b_.min(b_.add(first, back), last);
}

Coords ChunkedDot::base_coords() {
  Coords c(rank_ + d_.k.size());
  Value unused;
  for (size_t i = 0; i < rank_; ++i)
    c[i] = {nests_.axis_coord(d_.result_axes[i], d_.result[i], strip_[i], 0, unused).v};
  return c;
}

Value ChunkedDot::element_at(const Operand& o, Coords c, Value k) {
  const Coords u = unravel(k, d_.k);
  for (size_t i = 0; i < d_.k.size(); ++i) c[rank_ + i] = {d_.k[i] == 1 ? b_.i32(0) : u[i].v};
  return (*o.element)(c);
}

void ChunkedDot::append_first(Values& carried, const Operand& o) {
  const auto own = [&] { return o.ahead.empty() ? fetch(o, b_.i32(0)) : o.ahead; };
  for (Value x : o.early ? b_.if_else(prefetch_.in_first_step(), own, [&] { return o.early->regs; }) : own())
    carried.push_back(x);
}

// The next chunk's loads start after the barrier, so that it does not wait for them. Behind the last one comes the
// first of the next step where the grid has one and its block may be loaded early; else it fetches itself again.
// A single chunk has no loop: nothing reads what it would carry.
Values ChunkedDot::following(const Operand& o, Value chunk, Value last) {
  if (o.early) {
    const Value step = b_.select(last, prefetch_.next_step(), pid_[static_cast<size_t>(prefetch_.axis())]);
    return prefetch_.at_step(*o.early, step, [&] {
      const Value next = b_.add(chunk, b_.i32(1));
      return fetch(o, b_.select(last, b_.i32(0), next));
    });
  }
  if (chunks_ == 1) return Values(held_by(o));
  const Value last_chunk = b_.i32(chunks_ - 1);
  return fetch(o, b_.min(b_.add(chunk, b_.i32(1)), last_chunk));
}

Values ChunkedDot::over_chunks(Values sums) {
  const size_t n = sums.size();
  Values carried = std::move(sums);
  append_first(carried, lhs_);
  append_first(carried, rhs_);
  before_chunks();
  const auto one = [&](Value chunk, const Values& in) {
    put(in, n, chunk);
    if (chunks_ == 1) meanwhile();
    Values next(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(n));
    const Value last = b_.eq(chunk, b_.i32(chunks_ - 1));
    const Values left = following(lhs_, chunk, last), right = following(rhs_, chunk, last);
    multiply(next, chunk);
    next.insert(next.end(), left.begin(), left.end());
    next.insert(next.end(), right.begin(), right.end());
    return next;
  };
  if (first_apart_ && chunks_ > 1) {
    carried = one(b_.i32(0), carried);
    carried = nests_.counted(chunks_ - 1, carried,
                             [&](Value before, const Values& in) { return one(b_.add(before, b_.i32(1)), in); });
  } else {
    carried = nests_.counted(chunks_, carried, one);
  }
  const auto behind = carried.begin() + static_cast<std::ptrdiff_t>(n),
             middle = behind + static_cast<std::ptrdiff_t>(held_by(lhs_));
  if (lhs_.early) lhs_.early->regs.assign(behind, middle);
  if (rhs_.early) rhs_.early->regs.assign(middle, carried.end());
  carried.resize(n);
  return carried;
}

// -- products by stages

namespace {
// Elements behind each row of a tile, against bank conflicts: as many as one access brings, so that rows stay aligned.
constexpr int64_t kPad = 4;

class StagedDot : public ChunkedDot {
 public:
  StagedDot(Emission& e, ir::OpId id, const DotShape& d, const DotEmitter::Sink& sink)
      : ChunkedDot(e, id, d, sink, e.dots.chunk(d)),
        lhs_word_(d.packed ? d.packed->lhs_word : d.acc),
        rhs_word_(d.packed ? d.packed->rhs_word : d.acc) {}
  void run() {
    const int64_t bytes = words_of(lhs_) * ir::arena_stride(lhs_word_) + words_of(rhs_) * ir::arena_stride(rhs_word_);
    double_buffered_ = chunks_ > 1 && s_.double_buffer && 2 * bytes <= target_.shared_bytes * 3 / 8;
    for (Operand* o : {&lhs_, &rhs_})
      o->tile = arena_.temporary(word_of(*o), (double_buffered_ ? 2 : 1) * words_of(*o));
    // Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile.
    const auto k_fastest = [&](const std::vector<size_t>& dims) { return !dims.empty() && dims.back() >= rank_; };
    deal(lhs_, k_fastest(d_.lhs_dims));
    deal(rhs_, k_fastest(d_.rhs_dims));
    nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
    arena_.free(lhs_.tile);
    arena_.free(rhs_.tile);
  }

 private:
  // Of one tile: k by free elements. Where double_buffered_, there are two of them.
  int64_t words_of(const Operand& o) const { return tk_ / per_word_ * (o.plan->cover() + kPad); }
  DType word_of(const Operand& o) const { return &o == &lhs_ ? lhs_word_ : rhs_word_; }
  // Packed along the free dim as they are loaded, and transposed on the way to the tile.
  bool transposed(const Operand& o) const { return d_.packed.has_value() && !o.by_k && o.width > 1; }

  // How many neighbours along the fastest dim an invocation fetches at once: what one access brings, where the tile has
  // as many for each invocation.
  int64_t width_of(const Operand& o) const {
    const int axis = o.by_k ? (d_.k.size() == 1 ? d_.k_axes[0] : kNoAxis) : d_.result_axes[o.dim];
    if (axis == kNoAxis || s_.widths.empty() || s_.widths[static_cast<size_t>(axis)] == 1) return 1;
    if (d_.packed) return packed_width(o);
    const int64_t t = o.plan->cover();
    int64_t w = 16 / size_bytes(k_.type(o.value).dtype);
    while (w > 1 && ((o.by_k ? tk_ : t) % w != 0 || tk_ * t % (w * s_.group) != 0)) w /= 2;
    return w;
  }
  // As many bytes of words along the contracted dim, or of four rows along the free one.
  int64_t packed_width(const Operand& o) const {
    const int64_t words = tk_ / per_word_ * o.plan->cover();
    for (int64_t w = 16; w >= 4; w /= 2)
      if ((o.by_k ? tk_ : o.plan->cover()) % w == 0 && words % ((o.by_k ? w / per_word_ : w) * s_.group) == 0) return w;
    return 1;
  }
  // Blocks of by_k ? 1 x width : width x 4 elements (free x k), one word at least.
  void deal_packed(Operand& o, bool by_k) {
    o.by_k = by_k;
    o.width = width_of(o);
    if (by_k) o.width = std::max(o.width, per_word_);
    const int64_t t = o.plan->cover(), along = (by_k ? tk_ : t) / o.width, n = along * (by_k ? t : tk_ / per_word_);
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Fetched x;
      const Value e = item(r, n, x);
      const Value piece = b_.rem(e, along), across = b_.div(e, along);
      const Value first = b_.mul(piece, b_.i32(o.width));
      x.k = by_k ? first : b_.mul(across, b_.i32(per_word_));
      x.free = by_k ? across : first;
      const Value word = by_k ? b_.mul(piece, b_.i32(o.width / per_word_)) : across;
      x.index = b_.add(b_.mul(word, b_.i32(t + kPad)), x.free);
      o.share.push_back(x);
    }
  }
  int64_t words_of_block(const Operand& o) const { return o.by_k ? o.width / per_word_ : o.width; }

  void deal(Operand& o, bool by_k) {
    if (d_.packed) return deal_packed(o, by_k);
    o.by_k = by_k;
    o.width = width_of(o);
    const int64_t t = o.plan->cover(), n = tk_ * t / o.width;
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Fetched x;
      const Value e = item(r, n, x);
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
  // What the last chunk has behind the end is taken for 0 as it goes to the tile, not as it arrives: nothing waits for
  // it before the chunk before is computed. One operand's zeros do for integers.
  bool to_clear(const Operand& o) const { return k_ends() && (is_float(d_.acc) || &o == &lhs_); }
  Value contracted(const Fetched& x, Value chunk) { return b_.add(b_.mul(chunk, b_.i32(tk_)), x.k); }
  Value cleared(const Fetched& x, Value chunk, int64_t behind, Value v) {
    const Value first = contracted(x, chunk), k = b_.add(first, b_.i32(behind)), depth = b_.i32(d_.depth);
    const Value inside = b_.lt(k, depth);
    return b_.select(inside, v, b_.zero(b_.dtype(v)));
  }
  // The same of a word that goes along the contracted dim.
  Value cleared_bytes(const Fetched& x, Value chunk, int64_t behind, Value word) {
    if (d_.depth % per_word_ == 0) return cleared(x, chunk, behind, word);
    const Value depth = b_.i32(d_.depth), first = contracted(x, chunk), k = b_.add(first, b_.i32(behind));
    const Value left = b_.clamp(b_.sub(depth, k), 0, per_word_);
    const DType t = b_.dtype(word);
    const Value one = b_.constant(t, 1), bits = b_.convert(b_.mul(left, b_.i32(8)), t);
    const Value mask = b_.op(Opcode::sub, {b_.op(Opcode::shift_left, {one, bits}, t), one}, t);
    return b_.op(Opcode::and_, {word, mask}, t);
  }
  // Four signed elements, each plus 128, as unsigned ones; of elements behind the last one, which are 0, too.
  Value moved(Value word) {
    const Value bits = b_.convert(word, DType::u32), sides = b_.constant(DType::u32, 0x80808080);
    return b_.op(Opcode::xor_, {bits, sides}, DType::u32);
  }
  // Which element along the contracted dim a block's word begins with.
  int64_t row_of(const Operand& o, int64_t word) const {
    return transposed(o) ? word / (o.width / per_word_) : o.by_k ? per_word_ * word : 0;
  }

  // This invocation's share of a chunk, packed: a block's words one after another, of neighbours in memory where it is
  // transposed.
  Values fetch_packed(const Operand& o, Value chunk) {
    Values v;
    const int64_t n = d_.result[o.dim];
    const Value start = strip_start(o);
    for (const Fetched& x : o.share) {
      const Value free = b_.add(start, x.free), first = contracted(x, chunk);
      const auto element = [&](int64_t k, int64_t f) {
        Coords c = base_coords();
        c[o.dim] = {overhangs(o) ? at_most(free, f, transposed(o) ? o.width : 1, n) : b_.add(free, b_.i32(f))};
        const Value at = k_ends() ? at_most(first, k, o.by_k ? o.width : 1, d_.depth) : b_.add(first, b_.i32(k));
        return element_at(o, std::move(c), at);
      };
      for (int64_t w = 0; w < words_of_block(o); ++w) {
        // Transposed: a row of neighbours after another. Else words along the contracted dim.
        const int64_t words = o.width / per_word_, k = row_of(o, w);
        Values four;
        for (int64_t i = 0; i < per_word_; ++i)
          four.push_back(transposed(o) ? element(k, w % words * per_word_ + i) : element(k + i, 0));
        v.push_back(b_.pack4(four));
      }
    }
    return v;
  }
  // Of a and b the bytes that the mask has, side by side; or those behind them, `by` bits further up.
  Value beside(Value a, Value b, uint32_t mask, uint32_t by, bool behind) {
    const auto with = [&](Opcode c, Value x, uint32_t number) {
      const Value n = b_.constant(DType::u32, number);
      return b_.op(c, {x, n}, DType::u32);
    };
    Value low = a, high = b;
    if (behind) {
      low = with(Opcode::and_, with(Opcode::shift_right_logical, a, by), mask);
      high = with(Opcode::and_, b, ~mask);
    } else {
      low = with(Opcode::and_, a, mask);
      high = with(Opcode::shift_left, with(Opcode::and_, b, mask), by);
    }
    return b_.op(Opcode::or_, {low, high}, DType::u32);
  }
  // Four words of four bytes each, as a square, transposed.
  Values transpose(const Values& rows) {
    Values pairs, out;  // of rows 0 and 1, of rows 2 and 3: even columns, odd ones
    for (size_t r : {size_t{0}, size_t{2}})
      for (const bool odd : {false, true}) pairs.push_back(beside(rows[r], rows[r + 1], 0x00ff00ff, 8, odd));
    for (const bool second : {false, true})
      for (size_t odd : {size_t{0}, size_t{1}})
        out.push_back(beside(pairs[odd], pairs[2 + odd], 0x0000ffff, 16, second));
    return out;
  }
  // Puts a block's words into the tile.
  void put_block(const Operand& o, const Fetched& x, const Values& words) {
    const int64_t row = o.plan->cover() + kPad;
    const auto store = [&](int64_t at, Value v) { b_.store(o.tile.ref, b_.add(x.index, b_.i32(at)), v); };
    if (!transposed(o)) {
      for (size_t w = 0; w < words.size(); ++w) store(static_cast<int64_t>(w) * row, words[w]);
      return;
    }
    const auto across = static_cast<size_t>(o.width / per_word_);
    for (size_t m = 0; m < across; ++m) {
      Values rows;
      for (size_t k = 0; k < 4; ++k) rows.push_back(b_.convert(words[k * across + m], DType::u32));
      const Values columns = transpose(rows);
      for (size_t i = 0; i < 4; ++i) {
        const Value v = b_.convert(columns[i], word_of(o));
        store(static_cast<int64_t>(4 * m + i), v);
      }
    }
  }
  Values fetch(const Operand& o, Value chunk) override {
    if (d_.packed) return fetch_packed(o, chunk);
    Values v;
    const int64_t n = d_.result[o.dim];
    const Value start = strip_start(o);
    for (const Fetched& x : o.share) {
      const Value back = b_.i32(x.behind);
      Coords c = base_coords();
      const Value free = b_.add(start, x.free);
      if (overhangs(o)) c[o.dim] = {at_most(free, o.by_k ? 0 : x.behind, o.by_k ? 1 : o.width, n)};
      else c[o.dim] = {o.by_k ? free : b_.add(free, back)};
      Value k = contracted(x, chunk);
      if (k_ends()) k = at_most(k, o.by_k ? x.behind : 0, o.by_k ? o.width : 1, d_.depth);
      else if (o.by_k) k = b_.add(k, back);
      v.push_back(element_at(o, std::move(c), k));
    }
    return v;
  }
  size_t values_of(const Operand& o) const override { return d_.packed ? static_cast<size_t>(words_of_block(o)) : 1; }
  void put(const Values& in, size_t at_value, Value chunk) override {
    if (!double_buffered_) arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
    for (const Operand* o : {&lhs_, &rhs_})
      for (Fetched x : o->share) {
        x.index = in_tile(*o, x.index, chunk);
        if (d_.packed) {
          const auto from = in.begin() + static_cast<std::ptrdiff_t>(at_value);
          Values words(from, from + static_cast<std::ptrdiff_t>(words_of_block(*o)));
          at_value += words.size();
          for (size_t w = 0; w < words.size() && to_clear(*o); ++w) {
            const int64_t behind = row_of(*o, static_cast<int64_t>(w));
            words[w] = transposed(*o) ? cleared(x, chunk, behind, words[w]) : cleared_bytes(x, chunk, behind, words[w]);
          }
          if (d_.moved() && o == &lhs_)
            for (Value& word : words) word = moved(word);
          b_.when(x.valid, [&] { put_block(*o, x, words); });
          continue;
        }
        const Value carried = in[at_value++];
        const Value v = to_clear(*o) ? cleared(x, chunk, o->by_k ? x.behind : 0, carried) : carried;
        b_.when(x.valid, [&] { b_.store(o->tile.ref, x.index, v); });
      }
    if (double_buffered_) arena_.barrier();
    else arena_.order({lhs_.tile.range, rhs_.tile.range}, {});
  }
  // Chunks alternate between two tiles, where there is room. Then a chunk needs one barrier, between its stores and its
  // reads: who stores the next but one to the same tile has passed the next one's barrier, and so have all who read.
  Value in_tile(const Operand& o, Value index, Value chunk) {
    if (!double_buffered_) return index;
    const Value buffer = b_.rem(chunk, 2), tile = b_.mul(buffer, b_.i32(words_of(o)));
    return b_.add(index, tile);
  }
  void before_chunks() override {
    row_start_ = nests_.invocation_start(rows_), col_start_ = nests_.invocation_start(cols_);
    if (double_buffered_) arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
  }
  void multiply(Values& acc, Value chunk) override {
    const Value row_start = in_tile(lhs_, row_start_, chunk), col_start = in_tile(rhs_, col_start_, chunk);
    const auto row = [&](const Operand& o, Value start, int64_t k) {
      Values v;
      for (int r = 0; r < o.plan->reg; ++r)
        v.push_back(b_.load(o.tile.ref, b_.add(start, b_.i32(k * (o.plan->cover() + kPad) + o.plan->local(r)))));
      return v;
    };
    for (int64_t k = 0; k < tk_ / per_word_; ++k) {
      const Values a = row(lhs_, row_start, k);
      const Values b = row(rhs_, col_start, k);
      for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < b.size(); ++j)
          acc[i * b.size() + j] = dots_.multiply_add(a[i], b[j], acc[i * b.size() + j], d_.packed.has_value());
      if (!d_.moved()) continue;
      const Value sides = b_.constant(DType::u32, 0x80808080);
      for (size_t j = 0; j < b.size(); ++j) {
        Value& column = acc[a.size() * b.size() + j];
        column = dots_.multiply_add(sides, b[j], column, true);
      }
    }
  }
  void one_strip() {
    // Zeros have no positions: the result's are computed after the loop, and hold no registers in it.
    Values start;
    each_register(counts(), [&](const std::vector<int>& regs) {
      start.push_back(d_.start ? d_.start_at(point(regs).c) : b_.zero(d_.acc));
    });
    const auto columns = static_cast<size_t>(cols_.reg), results = start.size();
    if (d_.moved()) start.resize(results + columns, b_.zero(d_.acc));
    const Values sums = over_chunks(std::move(start));
    if (double_buffered_) arena_.note({lhs_.tile.range, rhs_.tile.range}, {});
    size_t result = 0;
    each_register(counts(), [&](const std::vector<int>& regs) {
      const NestPoint p = point(regs);
      const Value sum = sums[result];
      sink_(p, d_.moved() ? b_.op(Opcode::sub, {sum, sums[results + result % columns]}, d_.acc) : sum);
      ++result;
    });
  }

  const DType lhs_word_, rhs_word_;
  const int64_t per_word_ = DotEmitter::per_word(d_);
  bool double_buffered_ = false;
  Value row_start_, col_start_;  // of this invocation in a tile
};
}  // namespace

void DotEmitter::by_stages(ir::OpId id, const DotShape& d, const Sink& sink) {
  if (num_elements(d.result) > 0) StagedDot(e_, id, d, sink).run();
}

}  // namespace tessera::lowering
