// Products with columns on lanes: the lanes hold a chunk of k values of each row and hand them round. A shuffle costs
// lavapipe a fifth of a load.
#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Opcode;

namespace {
constexpr size_t kMostLoads = 256;  // of the right operand, written out

class ShuffledDot : public Part {
 public:
  ShuffledDot(Emission& e, const DotShape& d, const DotEmitter::Sink& sink)
      : Part(e),
        d_(d),
        sink_(sink),
        rank_(d.result.size()),
        first_col_(d.batch + d.rows),
        tagged_(d.k.size() == 1 && placement_.registers_along(d.lhs, d.k_axes[0])),
        strip_(rank_) {
    for (int a : d.result_axes) counts_.push_back(a == kNoAxis ? 1 : plan(a).reg);
    const auto cols = counts_.begin() + static_cast<std::ptrdiff_t>(first_col_);
    row_counts_.assign(counts_.begin(), cols);
    col_counts_.assign(cols, counts_.end());
    for (int c : row_counts_) n_rows_ *= static_cast<size_t>(c);
    for (int c : col_counts_) n_cols_ *= static_cast<size_t>(c);
  }
  void run() {
    first_ = nests_.first_invocation(nests_.invocation_bits(d_.result_axes));
    if (num_elements(d_.result) > 0) nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
  }

 private:
  Coords coords(const std::vector<int>& regs, Value& valid) {
    Coords c(rank_ + d_.k.size());
    for (size_t i = 0; i < rank_; ++i)
      c[i] = nests_.axis_coord(d_.result_axes[i], d_.result[i], strip_[i], regs[i], valid);
    return c;
  }
  // number: of the chunk whose elements the lanes hold, or -1
  void set_k(Coords& c, Value k, int number) {
    if (d_.k.size() == 1) {
      c[rank_] = {d_.k[0] == 1 ? b_.i32(0) : k};
      if (number >= 0 && tagged_) c[rank_].axis = d_.k_axes[0], c[rank_].reg = number;
      return;
    }
    const Coords u = unravel(k, d_.k);
    for (size_t i = 0; i < d_.k.size(); ++i) c[rank_ + i] = {d_.k[i] == 1 ? b_.i32(0) : u[i].v};
  }
  // This lane's elements of the left operand, row by row, in the chunk that starts at k0 (a lane value, uniform);
  // number: the chunk's if known.
  Values left(Value k0, int64_t used, int number) {
    Values a;
    Value unused;
    each_register(row_counts_, [&](const std::vector<int>& rr) {
      std::vector<int> regs(rank_, 0);
      std::copy(rr.begin(), rr.end(), regs.begin());
      Coords c = coords(regs, unused);
      Value k = b_.add(k0, lane_);
      if (used < lanes_) k = b_.min(k, b_.i32(d_.depth - 1));
      set_k(c, k, number);
      a.push_back(d_.lhs_at(c));
    });
    return a;
  }
  // Accumulates `used` k values starting at k0, of which the lanes hold a.
  Values chunk(const Values& acc, const Values& a, Value k0, int64_t used) {
    Value unused;
    std::vector<Values> b(static_cast<size_t>(used));
    for (int64_t k = 0; k < used; ++k)
      each_register(col_counts_, [&](const std::vector<int>& cr) {
        std::vector<int> regs(rank_, 0);
        std::copy(cr.begin(), cr.end(), regs.begin() + static_cast<std::ptrdiff_t>(first_col_));
        // Batch dims of the right operand follow the rows' registers; their plans have one register.
        Coords c = coords(regs, unused);
        set_k(c, b_.add(k0, b_.i32(k)), -1);
        b[static_cast<size_t>(k)].push_back(d_.rhs_at(c));
      });
    // Loads are branches in lavapipe's code: with all of them behind it, the arithmetic is one basic block.
    Values next = acc;
    for (size_t row = 0; row < n_rows_; ++row)
      for (int64_t i = 0; i < used; ++i) {
        const Value x = b_.shuffle(a[row], b_.i32(i));
        for (size_t j = 0; j < n_cols_; ++j) {
          Value& e = next[row * n_cols_ + j];
          e = dots_.multiply_add(x, b[static_cast<size_t>(i)][j], e);
        }
      }
    return next;
  }
  // A loop over chunks whose left elements are in registers, which have no dynamic index: selects its own by the bits
  // of the chunk's number.
  Values selected_chunks(const Values& init, int64_t full) {
    std::vector<Values> all;  // per chunk
    for (int64_t i = 0; i < full; ++i) all.push_back(left(b_.i32(i * lanes_), lanes_, static_cast<int>(i)));
    return b_.for_loop(0, full, init, [&](Value i, const Values& in) {
      std::vector<Values> at = all;
      for (int64_t bit = 1; at.size() > 1; bit *= 2) {
        const Value odd =
            b_.op(Opcode::ne, {b_.op(Opcode::and_, {i, b_.i32(bit)}, DType::i32), b_.i32(0)}, DType::boolean);
        std::vector<Values> half;
        for (size_t j = 0; j < at.size(); j += 2) {
          half.push_back(at[j]);
          for (size_t row = 0; row < n_rows_ && j + 1 < at.size(); ++row)
            half.back()[row] = b_.select(odd, at[j + 1][row], at[j][row]);
        }
        at = std::move(half);
      }
      return chunk(in, at[0], b_.mul(i, b_.i32(lanes_)), lanes_);
    });
  }
  // A few chunks are written out; of many, a loop selects its own, or the right operand's loads would be most of the
  // code.
  Values all_chunks(Values acc, int64_t full) {
    if (tagged_ && static_cast<size_t>(full * lanes_) * n_cols_ > kMostLoads) return selected_chunks(acc, full);
    if (!tagged_)
      return nests_.counted(full, acc, [&](Value i, const Values& in) {
        const Value k0 = b_.mul(i, b_.i32(lanes_));
        return chunk(in, left(k0, lanes_, 0), k0, lanes_);
      });
    for (int64_t i = 0; i < full; ++i) {
      const Value k0 = b_.i32(i * lanes_);
      acc = chunk(acc, left(k0, lanes_, static_cast<int>(i)), k0, lanes_);
    }
    return acc;
  }
  void one_strip() {
    std::vector<NestPoint> points;
    Values acc;
    each_register(counts_, [&](const std::vector<int>& regs) {
      NestPoint p;
      p.regs = regs;
      p.valid = first_;
      p.c = coords(regs, p.valid);
      p.c.resize(rank_);
      acc.push_back(d_.start_at(p.c));
      points.push_back(std::move(p));
    });
    const int64_t full = d_.depth / lanes_, rest = d_.depth % lanes_;
    acc = all_chunks(acc, full);
    if (rest) {
      const Value k0 = b_.i32(full * lanes_);
      acc = chunk(acc, left(k0, rest, static_cast<int>(full)), k0, rest);
    }
    for (size_t i = 0; i < points.size(); ++i) sink_(points[i], acc[i]);
  }

  const DotShape& d_;
  const DotEmitter::Sink& sink_;
  const size_t rank_, first_col_;
  const int64_t lanes_ = s_.group;
  const bool tagged_;                                  // the left operand's elements lie in registers along k
  std::vector<int> counts_, row_counts_, col_counts_;  // registers per dim of the result
  size_t n_rows_ = 1, n_cols_ = 1;
  std::vector<Value> strip_;
  Value first_;
};
}  // namespace

void DotEmitter::by_shuffle(const DotShape& d, const Sink& sink) { ShuffledDot(e_, d, sink).run(); }

}  // namespace tessera::lowering
