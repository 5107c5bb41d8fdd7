// Products by the matrices of a subgroup (Target::matrices), for GPUs. Chunks of both operands go through shared
// memory, packed, each row (of the left operand) and each column (of the right one) with its k behind each other: an
// operand whose memory has them otherwise is turned on its way, so no operand is copied for its order. The next chunk
// is on its way into registers while one is multiplied, and sums stay matrices until all chunks are done. Then each
// invocation gets the elements that its layout asks for, through memory of its own subgroup: the rows of a matrix lie
// on the lanes of the subgroup that made it (plan_matrix_dot).
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/matrices.h"

namespace tessera::lowering {
using ir::Attr;
using ir::MatrixUse;
using ir::Opcode;

namespace {
// Words behind each row of a tile, against bank conflicts; rows stay aligned to 16 bytes.
constexpr int64_t kRowPad = 4;
constexpr int64_t kMostColumns = 64;  // of sums that leave by memory at once

class MatrixDot : public Part {
 public:
  MatrixDot(Emission& e, const DotShape& d, const MatrixShape& matrix, const DotEmitter::Sink& sink)
      : Part(e),
        d_(d),
        m_(matrix),
        sink_(sink),
        rank_(d.result.size()),
        row_(d.batch + d.rows - 1),
        col_(rank_ - 1),
        rows_(plan(d.result_axes[row_])),
        cols_(plan(d.result_axes[col_])),
        strip_(rank_) {
    lhs_ = {.dim = row_, .value = d.lhs, .plan = &rows_, .element = &d.lhs_at};
    rhs_ = {.dim = col_, .value = d.rhs, .plan = &cols_, .element = &d.rhs_at};
    // Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile.
    lhs_.by_k = !d.lhs_dims.empty() && d.lhs_dims.back() >= rank_;
    rhs_.by_k = !d.rhs_dims.empty() && d.rhs_dims.back() >= rank_;
  }
  void run() {
    wave_ = b_.leaf(Opcode::subgroup_id);
    deal(lhs_);
    deal(rhs_);
    nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
  }

 private:
  // Words of a tile that this invocation fetches: `width` elements that are neighbours in memory, for each of which (by
  // free) or of all (by k) words come.
  struct Fetched {
    Value k, free, index, valid;
  };
  struct Operand {
    size_t dim = 0;  // of the result: its free one
    Value value;
    const AxisPlan* plan = nullptr;
    const std::function<Value(const Coords&)>* element = nullptr;
    Slot tile = {};     // words: free elements by k
    bool by_k = false;  // a contracted dim is the fastest in memory
    int64_t width = 1;
    std::vector<Fetched> share = {};
  };

  int64_t words_of(const Operand& o) const { return o.by_k ? o.width / per_ : o.width; }
  void deal(Operand& o) {
    const int axis = o.by_k ? (d_.k.size() == 1 ? d_.k_axes[0] : kNoAxis) : d_.result_axes[o.dim];
    const bool wide = axis != kNoAxis && !s_.widths.empty() && s_.widths[static_cast<size_t>(axis)] > 1;
    const int64_t free = o.plan->cover(), along = o.by_k ? tk_ : free;
    o.width = wide ? 16 / size_bytes(m_.a) : o.by_k ? per_ : 1;
    // as many items for each invocation, if there can be
    const auto items = [&] { return o.by_k ? free * (tk_ / o.width) : free / o.width * (tk_ / per_); };
    while (o.width > (o.by_k ? per_ : 1) && (along % o.width != 0 || items() % s_.group != 0)) o.width /= 2;
    const int64_t n = items();
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Value e = b_.add(b_.i32(r * s_.group), invocation_);
      Fetched x;
      if ((r + 1) * s_.group > n) {
        x.valid = b_.lt(e, b_.i32(n));
        e = b_.min(e, b_.i32(n - 1));
      }
      // Neighbours in the group write neighbours in k: no two of them one bank.
      const int64_t pieces = o.by_k ? tk_ / o.width : tk_ / per_;
      const Value piece = b_.rem(e, pieces), across = b_.div(e, pieces);
      x.k = b_.mul(piece, b_.i32(o.by_k ? o.width : per_));
      x.free = b_.mul(across, b_.i32(o.by_k ? 1 : o.width));
      const Value row = b_.mul(x.free, b_.i32(stride_));
      const Value word = b_.mul(piece, b_.i32(o.by_k ? o.width / per_ : 1));
      x.index = b_.add(row, word);
      o.share.push_back(x);
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
  // The element `k_back` and `free_back` behind the first of an item; zero behind the last k, so that nothing is added.
  Value element(const Operand& o, const Coords& base, Value free0, Value k0, int64_t free_back, int64_t k_back) {
    Coords c = base;
    const int axis = d_.result_axes[o.dim];
    const int64_t n = d_.result[o.dim];
    const AxisPlan& p = plan(axis);
    const bool overhangs = (p.split ? cdiv(n, p.tile) : 1) * p.strips() * p.cover() != n;
    if (overhangs) c[o.dim] = {at_most(free0, free_back, o.by_k ? 1 : o.width, n)};
    else c[o.dim] = {b_.add(free0, b_.i32(free_back))};
    Value k, inside;
    if (d_.depth % tk_ != 0) {
      const Value own = b_.add(k0, b_.i32(k_back)), depth = b_.i32(d_.depth);
      inside = b_.lt(own, depth);
      k = at_most(k0, k_back, o.by_k ? o.width : 1, d_.depth);
    } else {
      k = b_.add(k0, b_.i32(k_back));
    }
    const Coords u = unravel(k, d_.k);
    for (size_t i = 0; i < d_.k.size(); ++i) c[rank_ + i] = {d_.k[i] == 1 ? b_.i32(0) : u[i].v};
    const Value e = (*o.element)(c);
    return inside ? b_.select(inside, e, b_.zero(k_.type(o.value).dtype)) : e;
  }
  // This invocation's share of a chunk, as words.
  Values fetch(const Operand& o, Value chunk) {
    Values words;
    const AxisPlan& p = *o.plan;
    Value start = nests_.tile_base(d_.result_axes[o.dim]);
    if (strip_[o.dim]) start = b_.add(start, b_.mul(strip_[o.dim], b_.i32(p.cover())));
    const Coords base = base_coords();
    const Value chunk_k = b_.mul(chunk, b_.i32(tk_));
    for (const Fetched& x : o.share) {
      const Value free0 = b_.add(start, x.free), k0 = b_.add(chunk_k, x.k);
      // Element by element in the order of memory, then packed.
      const int64_t lines = o.by_k ? 1 : per_;
      std::vector<Values> all(static_cast<size_t>(lines));
      for (int64_t l = 0; l < lines; ++l)
        for (int64_t i = 0; i < o.width; ++i)
          all[static_cast<size_t>(l)].push_back(element(o, base, free0, k0, o.by_k ? 0 : i, o.by_k ? i : l));
      for (int64_t w = 0; w < words_of(o); ++w) {
        Values parts;
        for (int64_t i = 0; i < per_; ++i)
          parts.push_back(o.by_k ? all[0][static_cast<size_t>(w * per_ + i)]
                                 : all[static_cast<size_t>(i)][static_cast<size_t>(w)]);
        words.push_back(b_.pack(std::move(parts)));
      }
    }
    return words;
  }
  // Puts the chunk that the loop carries into the tiles, for all to read.
  void put(const Values& in, size_t from) {
    arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
    for (const Operand* o : {&lhs_, &rhs_})
      for (const Fetched& x : o->share) {
        const int64_t n = words_of(*o);
        b_.when(x.valid, [&] {
          for (int64_t w = 0; w < n; ++w) {
            const Value at = b_.add(x.index, b_.i32(o->by_k ? w : w * stride_));
            b_.store(o->tile.ref, at, in[from + static_cast<size_t>(w)]);
          }
        });
        from += static_cast<size_t>(n);
      }
    arena_.order({lhs_.tile.range, rhs_.tile.range}, {});
  }

  // -- matrices

  Value load(Value ref, Value index, int64_t stride, MatrixUse use, DType t, Shape shape, bool by_columns) {
    ir::Op o{.code = Opcode::matrix_load, .operands = {ref, index}};
    o.set(Attr::stride, stride);
    o.set(Attr::kind, static_cast<int64_t>(use));
    if (by_columns) o.set(Attr::reverse, 1);
    return b_.raw().one(std::move(o), ir::Type::array(t, std::move(shape)));
  }
  Value at_wave(int64_t each, int64_t more) {
    const Value first = b_.mul(wave_, b_.i32(each));
    return b_.add(first, b_.i32(more));
  }
  // Matrices of sums: rows[r] of a subgroup are those of its lanes' registers r; across the columns one by one.
  size_t count_across() const { return static_cast<size_t>(cols_.cover() / m_.n); }
  void multiply(Values& sums) {
    const int64_t waves = rows_.invocations / m_.m;
    for (int64_t k = 0; k < tk_ / m_.k; ++k) {
      const int64_t word = k * m_.k / per_;
      Values left;
      for (int r = 0; r < rows_.reg; ++r)
        left.push_back(load(lhs_.tile.ref, at_wave(m_.m * stride_, r * waves * m_.m * stride_ + word), stride_,
                            MatrixUse::left, m_.a, {m_.m, m_.k}, false));
      for (size_t c = 0; c < count_across(); ++c) {
        const Value at = b_.i32(static_cast<int64_t>(c) * m_.n * stride_ + word);
        const Value right = load(rhs_.tile.ref, at, stride_, MatrixUse::right, m_.b, {m_.k, m_.n}, true);
        for (size_t r = 0; r < left.size(); ++r) {
          Value& sum = sums[r * count_across() + c];
          sum = b_.raw().one({.code = Opcode::matrix_multiply_add, .operands = {left[r], right, sum}});
        }
      }
    }
  }

  // Between matrices and registers: a subgroup's rows of `columns` sums at a time.
  struct Exchange {
    Slot slot;      // as words
    Value numbers;  // the same memory in the sums' dtype
    int64_t columns, stride;
  };
  Exchange make_exchange() {
    Exchange x;
    x.columns = std::min<int64_t>(cols_.cover(), std::max<int64_t>(kMostColumns, m_.n));
    while (cols_.cover() % x.columns != 0 || x.columns % (int64_t{cols_.vec} * cols_.invocations) != 0) x.columns *= 2;
    x.stride = x.columns + kRowPad;
    const int64_t words = rows_.invocations * x.stride;
    x.slot = arena_.temporary(DType::u32, words);
    x.numbers = b_.alloc(Opcode::alloc_shared, d_.acc, words, x.slot.offset);
    return x;
  }
  // Where this invocation's row begins, in its subgroup's part; and where its columns do.
  Value own_place(const Exchange& x) {
    const Value part = at_wave(m_.m * x.stride, 0);
    const Value row = b_.rem(b_.div(invocation_, int64_t{rows_.invocation_stride}), int64_t{m_.m});
    const Value line = b_.mul(row, b_.i32(x.stride));
    const Value first = b_.add(part, line);
    return b_.add(first, nests_.invocation_start(cols_));
  }
  // f(row register, first column, column registers there): each piece of a subgroup's rows.
  template <class F> void each_piece(const Exchange& x, const F& f) {
    for (int r = 0; r < rows_.reg; ++r)
      for (int64_t first = 0; first < cols_.cover(); first += x.columns) {
        std::vector<int> registers;
        for (int j = 0; j < cols_.reg; ++j)
          if (cols_.local(j) >= first && cols_.local(j) < first + x.columns) registers.push_back(j);
        f(r, first, registers);
      }
  }
  size_t number(int r, int j) const { return static_cast<size_t>(r * cols_.reg + j); }
  Values to_registers(const Values& sums) {
    Exchange x = make_exchange();
    const Value own = own_place(x);
    Values out(static_cast<size_t>(rows_.reg * cols_.reg));
    each_piece(x, [&](int r, int64_t first, const std::vector<int>& registers) {
      arena_.order({}, {x.slot.range});
      for (int64_t c = 0; c < x.columns / m_.n; ++c) {
        const size_t at = static_cast<size_t>(r) * count_across() + static_cast<size_t>(first / m_.n + c);
        ir::Op o{.code = Opcode::matrix_store, .operands = {x.slot.ref, sums[at], at_wave(m_.m * x.stride, c * m_.n)}};
        o.set(Attr::stride, x.stride);
        b_.raw().append(std::move(o));
      }
      arena_.order({x.slot.range}, {});
      for (int j : registers) out[number(r, j)] = b_.load(x.numbers, b_.add(own, b_.i32(cols_.local(j) - first)));
    });
    arena_.free(x.slot);
    return out;
  }
  Values from_registers(const Values& in) {
    Values sums(static_cast<size_t>(rows_.reg) * count_across());
    const ir::Type type = ir::Type::array(m_.sum, {m_.m, m_.n});
    if (std::all_of(in.begin(), in.end(), [&](Value v) { return v == in[0]; }) && is_constant(in[0])) {
      const Value bits = b_.constant(m_.sum, *ir::constant_bits(out_, in[0]));
      const Value filled = b_.raw().one({.code = Opcode::matrix_fill, .operands = {bits}}, type);
      std::fill(sums.begin(), sums.end(), filled);
      return sums;
    }
    Exchange x = make_exchange();
    const Value own = own_place(x);
    each_piece(x, [&](int r, int64_t first, const std::vector<int>& registers) {
      arena_.order({}, {x.slot.range});
      for (int j : registers) b_.store(x.numbers, b_.add(own, b_.i32(cols_.local(j) - first)), in[number(r, j)]);
      arena_.order({x.slot.range}, {});
      for (int64_t c = 0; c < x.columns / m_.n; ++c)
        sums[static_cast<size_t>(r) * count_across() + static_cast<size_t>(first / m_.n + c)] =
            load(x.slot.ref, at_wave(m_.m * x.stride, c * m_.n), x.stride, MatrixUse::accumulator, m_.sum, {m_.m, m_.n},
                 false);
    });
    arena_.free(x.slot);
    return sums;
  }
  bool is_constant(Value v) const { return ir::constant_bits(out_, v).has_value(); }

  void one_strip() {
    std::vector<int> counts(rank_, 1);
    counts[row_] = rows_.reg;
    counts[col_] = cols_.reg;
    std::vector<NestPoint> held;
    Values start;
    each_register(counts, [&](const std::vector<int>& regs) {
      NestPoint p;
      p.regs = regs;
      for (size_t j = 0; j < rank_; ++j)
        p.c.push_back(nests_.axis_coord(d_.result_axes[j], d_.result[j], strip_[j], regs[j], p.valid));
      start.push_back(d_.start_at(p.c));
      held.push_back(std::move(p));
    });
    Values carried = from_registers(start);
    const size_t sums = carried.size();
    lhs_.tile = arena_.temporary(DType::u32, rows_.cover() * stride_);
    rhs_.tile = arena_.temporary(DType::u32, cols_.cover() * stride_);
    for (const Operand* o : {&lhs_, &rhs_})
      for (Value w : fetch(*o, b_.i32(0))) carried.push_back(w);
    carried = nests_.counted(chunks_, carried, [&](Value chunk, const Values& in) {
      put(in, sums);
      Values next(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(sums));
      Values words(in.begin() + static_cast<std::ptrdiff_t>(sums), in.end());
      if (chunks_ > 1) {
        const Value last = b_.i32(chunks_ - 1), following = b_.min(b_.add(chunk, b_.i32(1)), last);
        words = fetch(lhs_, following);
        const Values right = fetch(rhs_, following);
        words.insert(words.end(), right.begin(), right.end());
      }
      multiply(next);
      next.insert(next.end(), words.begin(), words.end());
      return next;
    });
    arena_.free(lhs_.tile);
    arena_.free(rhs_.tile);
    carried.resize(sums);
    const Values results = to_registers(carried);
    for (size_t i = 0; i < held.size(); ++i) sink_(held[i], results[i]);
  }

  const DotShape& d_;
  const MatrixShape m_;
  const DotEmitter::Sink& sink_;
  const size_t rank_, row_, col_;  // the dims that have registers
  const AxisPlan &rows_, &cols_;
  const int64_t per_ = 4 / size_bytes(m_.a);  // elements in a word
  const int64_t tk_ = std::min(matrix_chunk(m_), cdiv(d_.depth, int64_t{m_.k}) * m_.k), chunks_ = cdiv(d_.depth, tk_);
  const int64_t stride_ = tk_ / per_ + kRowPad;  // words of a tile's row
  Operand lhs_, rhs_;
  Value wave_;
  std::vector<Value> strip_;
};
}  // namespace

std::optional<MatrixShape> DotEmitter::matrices_of(const DotShape& d) const {
  if (!s_.matrix || s_.scratch_arena || !is_wide(d)) return std::nullopt;
  const auto shape = matrix_shape(target_, k_.type(d.lhs).dtype, k_.type(d.rhs).dtype, d.acc);
  if (!shape || !(*shape == *s_.matrix)) return std::nullopt;
  const auto lanes = matrix_lanes(*shape, s_.subgroup);
  const AxisPlan &rows = plan(d.result_axes[d.batch + d.rows - 1]), &cols = plan(d.result_axes.back());
  const bool fits = lanes && rows.vec == 1 && rows.invocation_stride == lanes->across &&
                    rows.invocations == shape->m * (s_.group / s_.subgroup) && cols.invocation_stride == 1 &&
                    cols.invocations == lanes->across && cols.cover() % shape->n == 0 && cols.reg % cols.vec == 0;
  return fits ? shape : std::nullopt;
}

void DotEmitter::by_matrices(const DotShape& d, const MatrixShape& matrix, const Sink& sink) {
  if (num_elements(d.result) > 0) MatrixDot(e_, d, matrix, sink).run();
}

}  // namespace tessera::lowering
