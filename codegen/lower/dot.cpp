// Products. Four forms: *reduce* treats the contraction as a reduction (narrow results: matrix times vector, dots
// within tiny programs); *shuffle* keeps columns on lanes, holds a chunk of k values of each row in the lanes and hands
// them round (lavapipe: a shuffle costs a fifth of a load); *staged* puts chunks of both operands into shared memory,
// prefetching the next chunk into registers (GPUs); *matrix* does the same for the subgroups' matrices. Floats
// accumulate in at least f32, integers modulo the result's dtype.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

namespace {
// What products of elements of dtype t are summed in. Sums of integers wrap in the result's dtype, whatever wider one
// they were made in.
DType accumulator(DType t) {
  if (is_int(t) && bits(t) < 32) return is_signed_int(t) ? DType::i32 : DType::u32;
  return is_narrow_float(t) ? DType::f32 : t;
}

// Whether an integer of dtype `from`, converted to `to`, keeps its value modulo 2^bits when it is converted further.
bool keeps_value(DType from, DType to, int bits_wanted) {
  return is_int(to) && bits(to) > bits(from) && (bits(to) >= bits_wanted || is_signed_int(to) || !is_signed_int(from));
}
}  // namespace

Value DotEmitter::multiply_add(Value a, Value b, Value c, bool packed) {
  const DType t = b_.dtype(c);
  if (packed) return b_.dot4(a, b, c);
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
  const ir::DotDims dims = ir::dot_dims(k_, o);
  d.acc = accumulator(k_.type(v).dtype);
  d.lhs_dims.resize(shape(d.lhs).size());
  d.rhs_dims.resize(shape(d.rhs).size());
  d.batch = dims.lhs_batch.size();
  d.rows = dims.lhs_free.size();
  d.cols = dims.rhs_free.size();
  const auto place = [](std::vector<size_t>& of, const std::vector<int64_t>& operand_dims, size_t first) {
    for (int64_t i : operand_dims) of[static_cast<size_t>(i)] = first++;
  };
  place(d.lhs_dims, dims.lhs_batch, 0);
  place(d.rhs_dims, dims.rhs_batch, 0);
  place(d.lhs_dims, dims.lhs_free, d.batch);
  place(d.rhs_dims, dims.rhs_free, d.batch + d.rows);
  place(d.lhs_dims, dims.lhs_contract, d.result.size());
  place(d.rhs_dims, dims.rhs_contract, d.result.size());
  for (int64_t i : dims.lhs_contract) {
    const auto l = static_cast<size_t>(i);
    d.k.push_back(shape(d.lhs)[l]);
    d.k_axes.push_back(axes_.of(d.lhs, l));
    d.depth *= shape(d.lhs)[l];
  }
  pack(d);
  return d;
}

// Integers of 8 bits (and 4), wherever they come from, where the device multiplies four at once and the form stages
// them.
void DotEmitter::pack(DotShape& d) const {
  if (bits(d.acc) != 32 || !is_int(d.acc) || s_.wide_dot != DotForm::staged || !is_wide(d)) return;
  const auto narrow = [&](Value v) {
    const ir::Op* o = k_.def(v);
    const bool widened = o && o->code == Opcode::convert && placement_.kind(v) == Kind::lazy;
    const Value x = widened ? o->operands[0] : v;
    const DType t = k_.type(x).dtype;
    if (!is_int(t) || bits(t) > 8 || (widened && !keeps_value(t, k_.type(v).dtype, bits(d.acc)))) return Value{};
    return x;
  };
  const Value lhs = narrow(d.lhs), rhs = narrow(d.rhs);
  if (!lhs || !rhs) return;
  const bool l = is_signed_int(k_.type(lhs).dtype), r = is_signed_int(k_.type(rhs).dtype);
  const bool moved = l && r && !target_.dot4_signed;
  if (!(l && r && !moved ? target_.dot4_signed : l || r ? target_.dot4_mixed : target_.dot4_unsigned)) return;
  d.lhs = lhs;
  d.rhs = rhs;
  d.packed = DotShape::Packed{.lhs_element = l ? DType::i8 : DType::u8,
                              .rhs_element = r ? DType::i8 : DType::u8,
                              .lhs_word = l && !moved ? DType::i32 : DType::u32,
                              .rhs_word = r ? DType::i32 : DType::u32,
                              .moved = moved};
}

int64_t DotEmitter::chunk(const DotShape& d) const {
  const int64_t n = per_word(d);
  return std::min(s_.dot_chunk * n, cdiv(d.depth, n) * n);
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
    if ((r < d.batch || (s_.wide_dot != DotForm::shuffle && a != i && a != j)) && a != kNoAxis && plan(a).reg != 1)
      return false;
  }
  if (s_.wide_dot == DotForm::shuffle)
    return pj.laid_out && pj.invocation_stride == 1 && pj.invocations == s_.group && s_.group == s_.subgroup &&
           pi.invocations == 1;
  const int bits = nests_.invocation_bits(d.result_axes);
  return pi.laid_out && pj.laid_out &&
         (pi.invocations - 1) * pi.invocation_stride + (pj.invocations - 1) * pj.invocation_stride == s_.group - 1 &&
         bits == s_.group - 1;
}

DotForm DotEmitter::form_of(const DotShape& d) const {
  if (!is_wide(d)) return DotForm::reduce;
  return s_.wide_dot == DotForm::matrix && !matrix_form(d) ? DotForm::staged : s_.wide_dot;
}

bool DotEmitter::reads_in_place(const ir::Op& dot) const {
  const DotShape d = shape_of(dot);
  std::vector<int> all = d.result_axes;
  all.insert(all.end(), d.k_axes.begin(), d.k_axes.end());
  return !is_wide(d) && nests_.fits(all);
}

int64_t DotEmitter::staged_share(const DotShape& d, int operand) const {
  if (form_of(d) == DotForm::matrix) return matrix_share(d, *matrix_form(d), operand).words;
  const AxisPlan& p = plan(d.result_axes[operand == 0 ? d.batch + d.rows - 1 : d.result.size() - 1]);
  return cdiv(chunk(d) / per_word(d) * p.cover(), int64_t{s_.group});
}

// An operand that this form computes anew for each of the dims [from, from + dims) of the result, although that is
// dear.
bool DotEmitter::computed_often(const DotShape& d, Value x, size_t from, size_t dims) const {
  constexpr int64_t kOften = 8;
  int64_t times = 1;
  for (size_t i = from; i < from + dims; ++i) times *= d.result[i];
  const std::set<uint32_t> computed = placement_.computed_for({x});
  return times >= kOften && std::any_of(computed.begin(), computed.end(), [&](uint32_t part) {
           const ir::Op* def = placement_.kind(Value{part}) == Kind::lazy ? k_.def(Value{part}) : nullptr;
           return def && ir::info(def->code).transcendental;
         });
}

DotEmitter::Staged DotEmitter::staged_operands(const DotShape& d, DotForm form) const {
  Staged s;
  if (form == DotForm::staged || form == DotForm::matrix) {
    s.lhs = placement_.reads_registers(d.lhs);
    s.rhs = placement_.reads_registers(d.rhs);
    s.tile = form == DotForm::matrix && s.lhs && own_rows(d);
    s.lhs = s.lhs && !s.tile;
  } else if (form == DotForm::shuffle) {
    const bool lanes_hold_k = d.k.size() == 1 && d.k_axes[0] != kNoAxis && plan(d.k_axes[0]).vec == 1 &&
                              plan(d.k_axes[0]).invocation_stride == 1 && plan(d.k_axes[0]).invocations == s_.group &&
                              plan(d.k_axes[0]).strips() == 1;
    for (int a : d.k_axes) {
      s.rhs = s.rhs || placement_.registers_along(d.rhs, a);
      s.lhs = s.lhs || (placement_.registers_along(d.lhs, a) && !lanes_hold_k);
    }
  } else {
    std::vector<int> all = d.result_axes;
    all.insert(all.end(), d.k_axes.begin(), d.k_axes.end());
    if (s_.general || !nests_.fits(all)) {
      s.lhs = placement_.reads_registers(d.lhs);
      s.rhs = placement_.reads_registers(d.rhs);
      s.start = d.start && placement_.reads_registers(d.start);
    }
    if (target_.kind == Target::Kind::cpu && uniform_group()) {
      s.lhs = s.lhs || computed_often(d, d.lhs, d.batch + d.rows, d.cols);
      s.rhs = s.rhs || computed_often(d, d.rhs, d.batch, d.rows);
    }
  }
  return s;
}

// Reads one element of an operand, where it is or from the arena; dims: where its dims are in [result dims..., k
// dims...].
Function<Value(const Coords&)> DotEmitter::reader(Value x, const std::vector<size_t>& dims, const Slot* from,
                                                  DType as) {
  return [this, x, &dims, from, as](const Coords& c) {
    Coords in;
    for (size_t p : dims) in.push_back(c[p]);
    for (size_t i = 0; i < in.size(); ++i)
      if (shape(x)[i] == 1) in[i] = at(0);
    return b_.convert(from ? arena_.load(*from, in) : elements_.of(x, in), as);
  };
}

void DotEmitter::emit(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value v = o.results[0];
  const DType t = k_.type(v).dtype;
  DotShape d = shape_of(o);
  std::vector<Slot> staged;
  auto to_arena = [&](Value x) {
    Place place = arena_.make(k_.type(x).dtype, shape(x), axes_.of(x));
    placement_.evaluate_into(x, place);
    staged.push_back(std::get<Slot>(place));
    return staged.size() - 1;
  };
  const DotForm form = form_of(d);
  const Staged staged_of = staged_operands(d, form);
  const size_t l_index = staged_of.lhs ? to_arena(d.lhs) : 0, r_index = staged_of.rhs ? to_arena(d.rhs) : 0;
  const size_t start_index = staged_of.start ? to_arena(d.start) : 0;
  d.start_at = [&](const Coords& c) {
    if (!d.start) return b_.zero(d.acc);
    return b_.convert(staged_of.start ? arena_.load(staged[start_index], c) : elements_.of(d.start, c), d.acc);
  };
  const auto read_as = [&](Value x, DType DotShape::Packed::* element) {
    return form == DotForm::matrix ? k_.type(x).dtype : d.packed ? (*d.packed).*element : d.acc;
  };
  const Slot *left = staged_of.lhs ? &staged[l_index] : nullptr, *right = staged_of.rhs ? &staged[r_index] : nullptr;
  d.lhs_at = reader(d.lhs, d.lhs_dims, left, read_as(d.lhs, &DotShape::Packed::lhs_element));
  d.rhs_at = reader(d.rhs, d.rhs_dims, right, read_as(d.rhs, &DotShape::Packed::rhs_element));
  if (staged_of.tile && is_left_factor(d))
    d.left = sums_.left_of_registers(*matrix_form(d), plan(d.k_axes[0]), own_elements(d));
  else if (staged_of.tile) d.lhs_tile = to_tile(d);
  std::vector<MemoryRange> reads =
      placement_.arena_reads(d.start ? std::vector{d.lhs, d.rhs, d.start} : std::vector{d.lhs, d.rhs});
  for (const Slot& slot : staged) reads.push_back(slot.range);
  const ir::Op* const store = form == DotForm::matrix && !sums_.of(v) ? placement_.stream_product(id) : nullptr;
  if (store) sums_.settle(store->operands);
  if (store) to_store(id, d, reads, *store);
  else if (sums_.of(v)) placement_.set_sums(v, reads, [&](Values& sums) { by_matrices(id, d, &sums, {}); });
  else
    placement_.set_result(v, reads, [&](const auto& put) {
      const Sink sink = [&](const NestPoint& p, Value x) { put(p, b_.convert(x, t)); };
      if (form == DotForm::shuffle) by_shuffle(d, sink);
      else if (form == DotForm::staged) by_stages(id, d, sink);
      else if (form == DotForm::matrix) by_matrices(id, d, nullptr, sink);
      else by_reduction(d, placement_.kind(v) == Kind::registers, sink);
    });
  for (Slot& slot : staged) arena_.free(slot);
  arena_.free(d.lhs_tile);
}

// A piece of the sums becomes registers, what is made of it is stored, and the next one follows: not all of them are
// registers at once.
void DotEmitter::to_store(ir::OpId id, DotShape& d, const std::vector<MemoryRange>& reads, const ir::Op& store) {
  const Value v = k_.op(id).results[0];
  const std::vector<int> axes = axes_.of(v);
  arena_.order(reads, {});
  refs_.order_store(store);
  placement_.of(v) = Registers{Values(static_cast<size_t>(s_.registers(axes)))};
  d.any_order = true;
  // Written out, code that is run once takes longer to fetch than to run.
  constexpr size_t kMostWrittenOut = 8;  // values
  const std::set<uint32_t> made = placement_.computed_for({store.operands[1]});
  d.in_loops = !store.has_mask() && made.size() > kMostWrittenOut &&
               std::all_of(made.begin(), made.end(),
                           [&](uint32_t x) { return x == v.index || placement_.kind({x}) != Kind::registers; });
  by_matrices(id, d, nullptr, [&](const NestPoint& p, Value x) {
    size_t at = 0;
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] != kNoAxis) at = at * static_cast<size_t>(plan(axes[i]).reg) + static_cast<size_t>(p.regs[i]);
    std::get<Registers>(placement_.of(v)).regs[at] = b_.convert(x, k_.type(v).dtype);
    const Value e = elements_.of(store.operands[1], p.c);
    refs_.store_element(store, p.c, e, p.valid);
  });
  arena_.touched(reads, placement_.of(v));
  refs_.note_store(store);
}

void DotEmitter::by_reduction(const DotShape& d, bool to_registers, const Sink& sink) {
  Reduced all{d.result, d.result_axes, std::vector<bool>(d.result.size(), false)};
  all.to_registers = to_registers;
  for (size_t i = 0; i < d.k.size(); ++i) {
    all.shape.push_back(d.k[i]);
    all.axes.push_back(d.k_axes[i]);
    all.dims.push_back(true);
  }
  Accumulator acc;
  acc.combiner = Opcode::add;
  acc.identity = {b_.zero(d.acc)};
  acc.neutral = {b_.zero(d.acc), b_.zero(d.acc)};
  acc.step = [&](const Values& a, const Values& x) { return Values{multiply_add(x[0], x[1], a[0])}; };
  acc.merge = [&](const Values& a, const Values& b) { return Values{b_.op(Opcode::add, {a[0], b[0]}, d.acc)}; };
  for (Value x : {d.lhs, d.rhs, d.start})
    all.needs_layout = all.needs_layout || (x && nests_.fits(all.axes) && !s_.general && placement_.reads_registers(x));
  reduces_.reduction(
      all, acc, [&](const Coords& c) { return Values{d.lhs_at(c), d.rhs_at(c)}; },
      [&](const NestPoint& p, const Values& r) {
        sink(p, d.start ? b_.op(Opcode::add, {d.start_at(p.c), r[0]}, d.acc) : r[0]);
      });
}

// -- products with columns on lanes: the lanes hold a chunk of k values of each row and hand them round

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

// -- right operands that are loaded ahead

// Whether it is computed from memory that the call does not write, the body's counter and what the loop does not
// change; `scalars`: the body's ops in between.
bool DotEmitter::follows_from(ir::RegionId body, Value root, std::set<uint32_t>& scalars) const {
  const ir::Region& r = k_.region(body);
  std::set<uint32_t> mine;
  for (ir::OpId id : r.ops) mine.insert(id.index);
  std::set<uint32_t> seen;
  return ir::walk_back(k_, root, seen, [&](Value v, std::vector<Value>& next) {
    const ir::Op* o = k_.def(v);
    if (k_.type(v).is_ref) return true;
    const bool scalar = placement_.kind(v) == Kind::scalar;
    if (!o) return scalar && (v == r.args[0] || std::find(r.args.begin(), r.args.end(), v) == r.args.end());
    if (!scalar && placement_.kind(v) != Kind::lazy) return false;
    if (scalar && !mine.count(k_.value(v).def.index)) return true;
    if (o->code == Opcode::load && (scalar || refs_.written(ref_position(k_, o->operands[0])))) return false;
    if (scalar && !ir::is_elementwise(o->code) && o->code != Opcode::constant) return false;
    if (scalar) scalars.insert(k_.value(v).def.index);
    next.insert(next.end(), o->operands.begin(), o->operands.end());
    return true;
  });
}

std::vector<DotEmitter::Ahead> DotEmitter::loaded_ahead(ir::RegionId body) const {
  // Of an invocation: with 32, as of 128 columns, no time was saved on an H100.
  constexpr int64_t kMostWords = 16;
  std::vector<Ahead> products;
  if (s_.wide_dot != DotForm::matrix || !s_.matrix_lanes || k_.has_threads()) return products;
  for (ir::OpId id : k_.region(body).ops) {
    if (k_.op(id).code != Opcode::dot) continue;
    const DotShape d = shape_of(k_.op(id));
    if (form_of(d) != DotForm::matrix || num_elements(d.result) == 0) continue;
    const MatrixForm form = *matrix_form(d);
    const bool strips = std::any_of(d.result_axes.begin(), d.result_axes.end(),
                                    [&](int a) { return a != kNoAxis && plan(a).strips() > 1; });
    Ahead a{id};
    if (!strips && matrix_depth(d, form) >= d.depth && staged_share(d, 1) <= kMostWords && !prefetch_.of(id, 1) &&
        follows_from(body, d.rhs, a.scalars))
      products.push_back(std::move(a));
  }
  return products;
}

Values DotEmitter::load_first(const ir::Op& loop, Value lower) {
  AheadLoop l{loop.regions[0], loaded_ahead(loop.regions[0])};
  if (l.products.empty()) return {};
  const Values words = right_words(l.products[0], l.body, lower);
  ahead_loops_.push_back(std::move(l));
  return words;
}
void DotEmitter::enter_loop(const ir::Op& loop, Value upper, Value step, const Values& carried) {
  if (carried.empty()) return;
  AheadLoop& l = ahead_loops_.back();
  const Value counter = std::get<Value>(placement_.of(k_.region(loop.regions[0]).args[0]));
  const Value next = b_.add(counter, step);
  l.next = b_.select(b_.lt(next, upper), next, counter);
  ahead_[l.products[0].dot.index] = carried;
}
Values DotEmitter::leave_loop(const ir::Op& loop) {
  if (ahead_loops_.empty() || ahead_loops_.back().body != loop.regions[0]) return {};
  Values words = take_ahead(ahead_loops_.back().products[0].dot);
  ahead_loops_.pop_back();
  return words;
}
void DotEmitter::load_ahead(ir::OpId dot) {
  if (ahead_loops_.empty()) return;
  const AheadLoop l = ahead_loops_.back();
  const auto at = std::find_if(l.products.begin(), l.products.end(), [&](const Ahead& a) { return a.dot == dot; });
  if (at == l.products.end()) return;
  const bool last = at + 1 == l.products.end();
  const Ahead& next = last ? l.products.front() : *(at + 1);
  const Value counter = last ? l.next : std::get<Value>(placement_.of(k_.region(l.body).args[0]));
  ahead_[next.dot.index] = right_words(next, l.body, counter);
}
Values DotEmitter::take_ahead(ir::OpId dot) {
  const auto it = ahead_.find(dot.index);
  if (it == ahead_.end()) return {};
  Values words = std::move(it->second);
  ahead_.erase(it);
  return words;
}

}  // namespace tessera::lowering
