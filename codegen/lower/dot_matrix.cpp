// Products by the matrices of a subgroup (Target::matrices), for GPUs. Chunks of both operands go through shared
// memory, packed, each row (of the left operand) and each column (of the right one) with its k behind each other: an
// operand whose memory has them otherwise is turned on its way, so no operand is copied for its order. Where the device
// turns them as it loads matrices (Target::turns_matrices), they lie in the tile as in memory. The next chunk
// is on its way into registers while one is multiplied, and sums stay matrices until all chunks are done, or longer
// (dot_matrix.h): the rows of a matrix lie on the lanes of the subgroup that made it (plan_matrix_dot).
#include <algorithm>
#include <numeric>

#include "codegen/lower/dot_staged.h"
#include "codegen/plan/matrices.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::MatrixUse;
using ir::Opcode;

namespace {
// Words behind each row of a tile or of sums, against bank conflicts; rows stay aligned to 16 bytes.
constexpr int64_t kRowPad = 4;
constexpr int64_t kMostColumns = 64;  // of sums that pass through memory at once

// The element that v consists of.
std::optional<uint64_t> one_element(const ir::Kernel& k, Value v) {
  const ir::Op* o = k.def(v);
  while (o && o->code == Opcode::broadcast) o = k.def(v = o->operands[0]);
  return ir::constant_bits(k, v);
}

// Elements of k in a chunk.
int64_t matrix_depth(const DotShape& d, const MatrixShape& s) {
  return std::min(matrix_chunk(s), cdiv(d.depth, int64_t{s.k}) * s.k);
}

class MatrixDot : public ChunkedDot {
 public:
  /// `start`: matrices to start from, or null: d.start_at. `keep` gets the sums, or null: sink does, one by one.
  MatrixDot(Emission& e, ir::OpId id, const DotShape& d, const MatrixForm& form, const Values* start, Values* keep,
            const DotEmitter::Sink& sink)
      : ChunkedDot(e, id, d, sink, matrix_depth(d, form.shape)),
        form_(form),
        m_(form.shape),
        start_(start),
        keep_(keep) {}
  void run() {
    wave_ = b_.leaf(Opcode::subgroup_id);
    deal(lhs_, dots_.matrix_share(d_, form_, 0));
    deal(rhs_, dots_.matrix_share(d_, form_, 1));
    nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
  }

 private:
  // A tile has words: free elements by k. A share's item is `width` elements that are neighbours in memory, for each of
  // which (by free) or of all (by k) words come. A tile in memory's order has k by words of free elements, and its
  // items come as they are.
  bool in_order(const Operand& o) const { return !o.by_k && dots_.keeps_order(form_); }
  bool whole(const Operand& o) const { return o.by_k || in_order(o); }  // the words of an item lie behind each other
  int64_t words_of(const Operand& o) const { return whole(o) ? o.width / per_ : o.width; }
  int64_t stride(const Operand& o) const { return (in_order(o) ? o.plan->cover() : tk_) / per_ + kRowPad; }
  int64_t tile_words(const Operand& o) const { return (in_order(o) ? tk_ : o.plan->cover()) * stride(o); }
  // Of the tile that is this chunk's turn, the first word; nothing where there is one tile (dot_staged.cpp, in_tile).
  Value tile_start(const Operand& o, Value chunk) {
    if (!turns_) return {};
    const Value turn = b_.rem(chunk, 2);
    return b_.mul(turn, b_.i32(tile_words(o)));
  }
  size_t values_of(const Operand& o) const override { return static_cast<size_t>(words_of(o)); }
  void deal(Operand& o, const DotEmitter::MatrixShare& mine) {
    o.by_k = mine.by_k;
    o.width = mine.width;
    const int64_t n = mine.items;
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Fetched x;
      const Value e = item(r, n, x);
      // Neighbours in the group write neighbours in a row: no two of them one bank.
      const int64_t pieces = in_order(o) ? o.plan->cover() / o.width : o.by_k ? tk_ / o.width : tk_ / per_;
      const Value piece = b_.rem(e, pieces), across = b_.div(e, pieces);
      if (in_order(o)) {
        x.k = across;
        x.free = b_.mul(piece, b_.i32(o.width));
        const Value row = b_.mul(across, b_.i32(stride(o))), word = b_.mul(piece, b_.i32(o.width / per_));
        x.index = b_.add(row, word);
        o.share.push_back(x);
        continue;
      }
      x.k = b_.mul(piece, b_.i32(o.by_k ? o.width : per_));
      x.free = b_.mul(across, b_.i32(o.by_k ? 1 : o.width));
      const Value row = b_.mul(x.free, b_.i32(stride(o)));
      const Value word = b_.mul(piece, b_.i32(o.by_k ? o.width / per_ : 1));
      x.index = b_.add(row, word);
      o.share.push_back(x);
    }
  }
  // The element `k_back` and `free_back` behind the first of an item; zero behind the last k, so that nothing is added.
  Value element(const Operand& o, const Coords& base, Value free0, Value k0, int64_t free_back, int64_t k_back) {
    Coords c = base;
    const int64_t n = d_.result[o.dim];
    if (overhangs(o)) c[o.dim] = {at_most(free0, free_back, o.by_k ? 1 : o.width, n)};
    else c[o.dim] = {b_.add(free0, b_.i32(free_back))};
    Value k, inside;
    if (k_ends()) {
      const Value own = b_.add(k0, b_.i32(k_back)), depth = b_.i32(d_.depth);
      inside = b_.lt(own, depth);
      k = at_most(k0, k_back, o.by_k ? o.width : 1, d_.depth);
    } else {
      k = b_.add(k0, b_.i32(k_back));
    }
    const Value e = element_at(o, std::move(c), k);
    return inside ? b_.select(inside, e, b_.zero(k_.type(o.value).dtype)) : e;
  }
  Values fetch(const Operand& o, Value chunk) override {
    Values words;
    const Value start = strip_start(o);
    const Coords base = base_coords();
    const Value chunk_k = b_.mul(chunk, b_.i32(tk_));
    for (const Fetched& x : o.share) {
      const Value free0 = b_.add(start, x.free), k0 = b_.add(chunk_k, x.k);
      // Element by element in the order of memory, then packed.
      const int64_t lines = whole(o) ? 1 : per_;
      std::vector<Values> all(static_cast<size_t>(lines));
      for (int64_t l = 0; l < lines; ++l)
        for (int64_t i = 0; i < o.width; ++i)
          all[static_cast<size_t>(l)].push_back(element(o, base, free0, k0, o.by_k ? 0 : i, o.by_k ? i : l));
      for (int64_t w = 0; w < words_of(o); ++w) {
        Values parts;
        for (int64_t i = 0; i < per_; ++i)
          parts.push_back(whole(o) ? all[0][static_cast<size_t>(w * per_ + i)]
                                   : all[static_cast<size_t>(i)][static_cast<size_t>(w)]);
        words.push_back(b_.pack(std::move(parts)));
      }
    }
    return words;
  }
  void before_chunks() override {
    if (turns_) arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
  }
  void put(const Values& in, size_t from, Value chunk) override {
    if (!turns_) arena_.order({}, {lhs_.tile.range, rhs_.tile.range});
    for (const Operand* o : {&lhs_, &rhs_}) {
      const Value tile = tile_start(*o, chunk);
      for (const Fetched& x : o->share) {
        const int64_t n = words_of(*o);
        const Value index = tile ? b_.add(x.index, tile) : x.index;
        b_.when(x.valid, [&] {
          for (int64_t w = 0; w < n; ++w) {
            const Value at = b_.add(index, b_.i32(whole(*o) ? w : w * stride(*o)));
            b_.store(o->tile.ref, at, in[from + static_cast<size_t>(w)]);
          }
        });
        from += static_cast<size_t>(n);
      }
    }
    if (turns_) arena_.barrier();
    else arena_.order({lhs_.tile.range, rhs_.tile.range}, {});
  }

  // -- matrices

  Value load(Value ref, Value index, int64_t stride, MatrixUse use, DType t, Shape shape, bool by_columns) {
    ir::Op o{.code = Opcode::matrix_load, .operands = {ref, index}};
    o.set(Attr::stride, stride);
    o.set(Attr::kind, static_cast<int64_t>(use));
    if (by_columns) o.set(Attr::reverse, 1);
    return b_.raw().one(std::move(o), ir::Type::array(t, std::move(shape)));
  }
  int64_t words_to(const Operand& o, int64_t free) const { return in_order(o) ? free / per_ : free * stride(o); }
  // The matrix at `k` of a tile, `free` of its free elements behind the word `first`.
  Value factor(const Operand& o, Value first, int64_t free, int64_t k) {
    const bool left = &o == &lhs_, turned = in_order(o);
    const int64_t row = stride(o), more = words_to(o, free) + (turned ? k * row : k / per_);
    const Value at = first ? b_.add(first, b_.i32(more)) : b_.i32(more);
    return load(o.tile.ref, at, row, left ? MatrixUse::left : MatrixUse::right, left ? m_.a : m_.b,
                left ? Shape{m_.m, m_.k} : Shape{m_.k, m_.n}, left == turned);
  }
  // Matrices of sums: rows[r] of a subgroup are those of its lanes' registers r; across the columns one by one.
  size_t count_across() const { return static_cast<size_t>(cols_.cover() / m_.n); }
  void multiply(Values& sums, Value chunk) override {
    const int64_t waves = rows_.invocations / m_.m;
    const Value first_left = tile_start(lhs_, chunk), first_right = tile_start(rhs_, chunk);
    const Value own = b_.mul(wave_, b_.i32(words_to(lhs_, m_.m)));
    const Value start = first_left ? b_.add(first_left, own) : own;
    for (int64_t k = 0; k < tk_; k += m_.k) {
      Values left;
      for (int r = 0; r < rows_.reg; ++r) left.push_back(factor(lhs_, start, r * waves * m_.m, k));
      for (size_t c = 0; c < count_across(); ++c) {
        const Value right = factor(rhs_, first_right, static_cast<int64_t>(c) * m_.n, k);
        for (size_t r = 0; r < left.size(); ++r) {
          Value& sum = sums[r * count_across() + c];
          sum = b_.raw().one({.code = Opcode::matrix_multiply_add, .operands = {left[r], right, sum}});
        }
      }
    }
  }

  void one_strip() {
    // Zeros know no positions: those are computed behind the loop, and hold no registers in it.
    Values start;
    if (!start_ && d_.start)
      each_register(counts(), [&](const std::vector<int>& regs) { start.push_back(d_.start_at(point(regs).c)); });
    Values sums = start_ ? *start_ : d_.start ? sums_.from_registers(form_, start) : sums_.filled(form_, 0);
    const int64_t words = tile_words(lhs_) + tile_words(rhs_);
    turns_ = chunks_ > 1 && s_.dot_turns && 2 * 4 * words <= target_.shared_bytes * 3 / 8;
    for (Operand* o : {&lhs_, &rhs_}) o->tile = arena_.temporary(DType::u32, (turns_ ? 2 : 1) * tile_words(*o));
    sums = over_chunks(std::move(sums));
    if (turns_) arena_.pending().add({lhs_.tile.range, rhs_.tile.range}, {});
    arena_.free(lhs_.tile);
    arena_.free(rhs_.tile);
    if (keep_) {
      *keep_ = sums;
      return;
    }
    const Values results = sums_.to_registers(form_, sums);
    size_t result = 0;
    each_register(counts(), [&](const std::vector<int>& regs) {
      const NestPoint p = point(regs);
      sink_(p, results[result++]);
    });
  }

  const MatrixForm& form_;
  const MatrixShape m_;
  const Values* start_;
  Values* keep_;
  const int64_t per_ = 4 / size_bytes(m_.a);  // elements in a word
  bool turns_ = false;                        // chunks take turns with two tiles, with one barrier for each
  Value wave_;
};
}  // namespace

std::optional<MatrixForm> DotEmitter::matrix_form(const DotShape& d) const {
  if (!s_.matrix || s_.scratch_arena || !is_wide(d)) return std::nullopt;
  const auto shape = matrix_shape(target_, k_.type(d.lhs).dtype, k_.type(d.rhs).dtype, d.acc);
  if (!shape || !(*shape == *s_.matrix)) return std::nullopt;
  const auto lanes = matrix_lanes(*shape, s_.subgroup);
  const int i = d.result_axes[d.batch + d.rows - 1], j = d.result_axes.back();
  const AxisPlan &rows = plan(i), &cols = plan(j);
  const bool fits = lanes && rows.vec == 1 && rows.invocation_stride == lanes->across &&
                    rows.invocations == shape->m * (s_.group / s_.subgroup) && cols.invocation_stride == 1 &&
                    cols.invocations == lanes->across && cols.cover() % shape->n == 0 && cols.reg % cols.vec == 0;
  if (!fits) return std::nullopt;
  return MatrixForm{*shape, i, j, d.acc};
}

bool DotEmitter::keeps_order(const MatrixForm& form) const {
  return target_.turns_matrices && size_bytes(form.shape.a) == 2;
}

// Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile: as many items for
// each, if there can be.
DotEmitter::MatrixShare DotEmitter::matrix_share(const DotShape& d, const MatrixForm& form, int operand) const {
  const std::vector<size_t>& dims = operand == 0 ? d.lhs_dims : d.rhs_dims;
  MatrixShare x;
  x.by_k = !dims.empty() && dims.back() >= d.result.size();
  const int axis = operand == 0 ? form.rows : form.cols, k = d.k.size() == 1 ? d.k_axes[0] : kNoAxis;
  const int along_axis = x.by_k ? k : axis;
  const bool wide = along_axis != kNoAxis && !s_.widths.empty() && s_.widths[static_cast<size_t>(along_axis)] > 1;
  const int64_t size = size_bytes(form.shape.a), per = 4 / size, tk = matrix_depth(d, form.shape);
  const int64_t free = plan(axis).cover(), along = x.by_k ? tk : free, least = x.by_k || keeps_order(form) ? per : 1;
  const auto items = [&] {
    return x.by_k ? free * (tk / x.width) : free / x.width * (keeps_order(form) ? tk : tk / per);
  };
  x.width = wide ? 16 / size : least;
  while (x.width > least && (along % x.width != 0 || items() % s_.group != 0)) x.width /= 2;
  x.items = items();
  x.words = cdiv(x.items, int64_t{s_.group}) * (x.by_k || keeps_order(form) ? x.width / per : x.width);
  return x;
}

void DotEmitter::by_matrices(ir::OpId id, const DotShape& d, Values* keep, const Sink& sink) {
  if (num_elements(d.result) == 0) return;
  const MatrixForm form = *matrix_form(d), *of_start = d.start ? sums_.of(d.start) : nullptr;
  const bool starts = of_start && *of_start == form;
  MatrixDot(e_, id, d, form, starts ? &placement_.of(d.start).sums : nullptr, keep, sink).run();
}

// -- which sums

const MatrixForm* MatrixSums::of(Value v) const {
  const auto it = values_.find(v.index);
  return it == values_.end() ? nullptr : &it->second;
}
const MatrixForm* MatrixSums::of_ref(int ref) const {
  const auto it = refs_in_.find(ref);
  return it == refs_in_.end() ? nullptr : &it->second;
}

bool MatrixSums::holds(Value v, const MatrixForm& f) const {
  const MatrixForm* mine = of(v);
  return mine ? *mine == f : one_element(k_, v).has_value();
}
bool MatrixSums::starts_a_dot(Value v, const MatrixForm& f) const {
  return std::any_of(k_.ops.begin(), k_.ops.end(), [&](const ir::Op& o) {
    return o.code == Opcode::dot && o.operands.size() == 3 && o.operands[2] == v &&
           dots_.matrix_form(dots_.shape_of(o)) == f;
  });
}

// All that could be: products whose sums have the result's dtype, and where they may go.
void MatrixSums::propose() {
  const auto same = [&](Value a, Value b) { return shape(a) == shape(b) && axes_.of(a) == axes_.of(b); };
  const auto& args = k_.region(k_.body).args;
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& o = k_.op(id);
    if (o.code != Opcode::dot || placement_.kind(o.results[0]) != Kind::registers) return;
    const Value v = o.results[0];
    const auto form = dots_.matrix_form(dots_.shape_of(o));
    if (form && form->dtype == k_.type(v).dtype) values_[v.index] = *form;
  });
  const std::map<uint32_t, MatrixForm> products = values_;
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& o = k_.op(id);
    if (o.code == Opcode::for_)
      for (size_t i = 0; i < o.results.size(); ++i) {
        const Value y = k_.terminator(o.regions[0]).operands[i], arg = k_.region(o.regions[0]).args[1 + i];
        const auto f = products.find(y.index);
        if (f == products.end() || !same(y, arg) || !same(y, o.results[i])) continue;
        values_[arg.index] = values_[o.results[i].index] = f->second;
      }
    if (o.code != Opcode::store || !products.count(o.operands[1].index)) return;
    const int ref = ref_position(k_, o.operands[0]);
    std::vector<int> dims;
    for (size_t d = 0; d < k_.type(args[static_cast<size_t>(ref)]).shape.size(); ++d)
      dims.push_back(axes_.of_ref(ref, d));
    if (s_.residency[static_cast<size_t>(ref)] == Residency::registers && dims == axes_.of(o.operands[1]))
      refs_in_[ref] = products.at(o.operands[1].index);
  });
  for (const ir::Op& o : k_.ops)
    if (o.code == Opcode::load)
      if (const MatrixForm* f = of_ref(ref_position(k_, o.operands[0]))) values_[o.results[0].index] = *f;
}

bool MatrixSums::ref_may(int ref, const MatrixForm& f) const {
  bool starts = false;
  const bool may = !ir::any_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& o = k_.op(id);
    if (!ir::accesses_ref(o.code) || ref_position(k_, o.operands[0]) != ref) return false;
    if (o.code == Opcode::store) return o.has_mask() || !holds(o.operands[1], f);
    if (o.code != Opcode::load || !of(o.results[0])) return true;
    starts = starts || starts_a_dot(o.results[0], f);
    return false;
  });
  return may && starts;
}

bool MatrixSums::carried_may(const ir::Op& loop, size_t i, const MatrixForm& f) const {
  const Value arg = k_.region(loop.regions[0]).args[1 + i], next = k_.terminator(loop.regions[0]).operands[i];
  const auto mine = [&](Value v) { return of(v) && *of(v) == f; };
  return mine(arg) && mine(loop.results[i]) && mine(next) && holds(loop.operands[3 + i], f) && starts_a_dot(arg, f);
}

bool MatrixSums::value_may(Value v, const MatrixForm& f) const {
  if (placement_.kind(v) != Kind::registers) return false;
  const ir::Op* o = k_.def(v);
  if (o && o->code == Opcode::load) return of_ref(ref_position(k_, o->operands[0])) != nullptr;
  if (!o || o->code == Opcode::for_) {
    for (const ir::Op& loop : k_.ops)
      for (size_t i = 0; loop.code == Opcode::for_ && i < loop.results.size(); ++i)
        if (loop.results[i] == v || k_.region(loop.regions[0]).args[1 + i] == v) return carried_may(loop, i, f);
    return false;
  }
  if (o->operands.size() == 3 && !holds(o->operands[2], f)) return false;
  // Something takes the matrices.
  if (starts_a_dot(v, f)) return true;
  return ir::any_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& use = k_.op(id);
    if (use.code == Opcode::store && use.operands[1] == v) return of_ref(ref_position(k_, use.operands[0])) != nullptr;
    for (size_t i = 0; use.code == Opcode::for_ && i < use.results.size(); ++i)
      if (k_.terminator(use.regions[0]).operands[i] == v && of(use.results[i])) return true;
    return false;
  });
}

void MatrixSums::choose() {
  if (s_.wide_dot != DotForm::matrix) return;
  propose();
  for (bool dropped = true; dropped;) {
    dropped = std::erase_if(refs_in_, [&](const auto& r) { return !ref_may(r.first, r.second); }) > 0;
    for (auto it = values_.begin(); it != values_.end();) {
      const bool may = value_may(Value{it->first}, it->second);
      dropped = dropped || !may;
      it = may ? std::next(it) : values_.erase(it);
    }
  }
}

void MatrixSums::explain(std::vector<std::string>& remarks) const {
  if (!values_.empty())
    remarks.push_back("sums stay matrices from one product to the next: in " + std::to_string(refs_in_.size()) +
                      " Refs, and as " + std::to_string(values_.size()) + " values");
}

// -- registers for what reads them

void MatrixSums::settle(const std::vector<Value>& roots) {
  if (values_.empty()) return;
  for (uint32_t i : placement_.computed_for(roots)) {
    const MatrixForm* f = of(Value{i});
    if (!f) continue;
    Place& h = placement_.of(Value{i});
    if (!h.regs.empty() || h.sums.empty()) continue;
    h.regs = to_registers(*f, h.sums);
    settled_.push_back({i});
  }
}

void MatrixSums::settle(const ir::Op& o) {
  if (values_.empty() || ir::is_control(o.code)) return;
  if (o.results.size() == 1 && !k_.type(o.results[0]).shape.empty() && placement_.kind(o.results[0]) == Kind::lazy)
    return;
  std::vector<Value> read = o.operands;
  // A scan by strips does its store itself, which reads more.
  const ir::Op* const store = ir::is_scan(o.code) ? placement_.streams_to(o.results[0]) : nullptr;
  if (store) read.insert(read.end(), store->operands.begin(), store->operands.end());
  if (o.code == Opcode::store && of_ref(ref_position(k_, o.operands[0]))) return;
  if (o.code == Opcode::dot && o.operands.size() == 3 && of(o.operands[2]) &&
      dots_.matrix_form(dots_.shape_of(o)) == *of(o.operands[2]))
    read.pop_back();
  settle(read);
}

void MatrixSums::forget(size_t from) {
  for (size_t i = from; i < settled_.size(); ++i) placement_.of(settled_[i]).regs.clear();
  settled_.resize(from);
}

Values MatrixSums::evaluate(Value v, const MatrixForm& f) {
  if (of(v)) return placement_.of(v).sums;
  const auto bits = one_element(k_, v);
  if (!bits) throw InternalError(k_.name + ": a value that is neither matrices nor one element");
  return filled(f, *bits);
}

// -- between matrices and registers: a subgroup's rows of `columns` sums at a time

struct MatrixSums::Exchange {
  Slot slot;            // as words
  Value numbers, wave;  // the same memory in the sums' dtype; which subgroup this is
  int64_t columns = 0, stride = 0;
};

MatrixSums::Exchange MatrixSums::make_exchange(const MatrixForm& f) {
  const AxisPlan &rows = plan(f.rows), &cols = plan(f.cols);
  Exchange x;
  // Whole matrices and whole rows of invocations, as many as divide the columns: all of them do.
  const int64_t all = cols.cover(), unit = std::lcm(f.shape.n, int64_t{cols.vec} * cols.invocations);
  x.columns = all;
  for (int64_t n = all; n >= unit; n -= unit)
    if (all % n == 0 && (x.columns > kMostColumns || n > x.columns)) x.columns = n;
  x.stride = x.columns + kRowPad;
  const int64_t words = rows.invocations * x.stride;
  x.wave = b_.leaf(Opcode::subgroup_id);
  x.slot = arena_.temporary(DType::u32, words);
  x.numbers = b_.alloc(Opcode::alloc_shared, f.dtype, words, x.slot.offset);
  return x;
}
// Where this invocation's row begins, in its subgroup's part; and where its columns do.
Value MatrixSums::own_place(const MatrixForm& f, const Exchange& x) {
  const AxisPlan& rows = plan(f.rows);
  const Value part = b_.mul(x.wave, b_.i32(f.shape.m * x.stride));
  const Value row = b_.rem(b_.div(invocation_, int64_t{rows.invocation_stride}), int64_t{f.shape.m});
  const Value line = b_.mul(row, b_.i32(x.stride));
  const Value first = b_.add(part, line);
  return b_.add(first, nests_.invocation_start(plan(f.cols)));
}
// body(r, first, at, registers): piece by piece, the matrices `first` columns on, in registers' row r; `at` numbers the
// first of them, `registers` the column registers there.
template <class F> void MatrixSums::each_piece(const MatrixForm& f, const Exchange& x, const F& body) {
  const AxisPlan &rows = plan(f.rows), &cols = plan(f.cols);
  const auto across = static_cast<size_t>(cols.cover() / f.shape.n);
  for (int r = 0; r < rows.reg; ++r)
    for (int64_t first = 0; first < cols.cover(); first += x.columns) {
      std::vector<std::pair<size_t, int64_t>> registers;  // which, and how far behind the first
      for (int j = 0; j < cols.reg; ++j)
        if (cols.local(j) >= first && cols.local(j) < first + x.columns)
          registers.emplace_back(static_cast<size_t>(r * cols.reg + j), cols.local(j) - first);
      body(static_cast<size_t>(r) * across + static_cast<size_t>(first / f.shape.n), registers);
    }
}

Values MatrixSums::to_registers(const MatrixForm& f, const Values& sums) {
  Exchange x = make_exchange(f);
  const Value own = own_place(f, x);
  Values out(static_cast<size_t>(plan(f.rows).reg * plan(f.cols).reg));
  each_piece(f, x, [&](size_t at, const auto& registers) {
    arena_.order({}, {x.slot.range});
    for (int64_t c = 0; c < x.columns / f.shape.n; ++c) {
      const Value first = b_.mul(x.wave, b_.i32(f.shape.m * x.stride)), to = b_.add(first, b_.i32(c * f.shape.n));
      ir::Op o{.code = Opcode::matrix_store, .operands = {x.slot.ref, sums[at + static_cast<size_t>(c)], to}};
      o.set(Attr::stride, x.stride);
      b_.raw().append(std::move(o));
    }
    arena_.order({x.slot.range}, {});
    for (const auto& [r, behind] : registers) out[r] = b_.load(x.numbers, b_.add(own, b_.i32(behind)));
  });
  arena_.free(x.slot);
  return out;
}

Values MatrixSums::filled(const MatrixForm& f, uint64_t bits) {
  const Value element = b_.constant(f.shape.sum, bits);
  const Value matrix = b_.raw().one({.code = Opcode::matrix_fill, .operands = {element}},
                                    ir::Type::array(f.shape.sum, {f.shape.m, f.shape.n}));
  return Values(static_cast<size_t>(plan(f.rows).reg * (plan(f.cols).cover() / f.shape.n)), matrix);
}

Values MatrixSums::from_registers(const MatrixForm& f, const Values& in) {
  const auto bits = ir::constant_bits(out_, in[0]);
  if (bits && std::all_of(in.begin(), in.end(), [&](Value v) { return v == in[0]; })) return filled(f, *bits);
  Values sums(static_cast<size_t>(plan(f.rows).reg * (plan(f.cols).cover() / f.shape.n)));
  Exchange x = make_exchange(f);
  const Value own = own_place(f, x);
  each_piece(f, x, [&](size_t at, const auto& registers) {
    arena_.order({}, {x.slot.range});
    for (const auto& [r, behind] : registers) b_.store(x.numbers, b_.add(own, b_.i32(behind)), in[r]);
    arena_.order({x.slot.range}, {});
    for (int64_t c = 0; c < x.columns / f.shape.n; ++c) {
      const Value first = b_.mul(x.wave, b_.i32(f.shape.m * x.stride)), from = b_.add(first, b_.i32(c * f.shape.n));
      ir::Op o{.code = Opcode::matrix_load, .operands = {x.slot.ref, from}};
      o.set(Attr::stride, x.stride);
      o.set(Attr::kind, static_cast<int64_t>(MatrixUse::accumulator));
      sums[at + static_cast<size_t>(c)] =
          b_.raw().one(std::move(o), ir::Type::array(f.shape.sum, {f.shape.m, f.shape.n}));
    }
  });
  arena_.free(x.slot);
  return sums;
}

}  // namespace tessera::lowering
