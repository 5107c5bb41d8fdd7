// Sums of products that stay matrices: which values may, how each invocation gets the elements of its layout, and how
// they become matrices again (matrix_sums.h).
#include <algorithm>
#include <numeric>

#include "codegen/lower/emission.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::MatrixUse;
using ir::Opcode;

namespace {
// The element that v consists of.
std::optional<uint64_t> one_element(const ir::Kernel& k, Value v) {
  const ir::Op* o = k.def(v);
  while (o && o->code == Opcode::broadcast) o = k.def(v = o->operands[0]);
  return ir::constant_bits(k, v);
}

}  // namespace

// -- which sums

const MatrixForm* MatrixSums::of(Value v) const {
  const auto it = values_.find(v.index);
  return it == values_.end() ? nullptr : &it->second;
}
const MatrixForm* MatrixSums::of_ref(int ref) const {
  const auto it = refs_in_.find(ref);
  return it == refs_in_.end() ? nullptr : &it->second;
}

// One and the same for all elements along a dim, by what its ops say.
bool MatrixSums::same_along(Value v, size_t dim) const {
  const ir::Op* o = k_.def(v);
  if (!o || placement_.kind(v) != Kind::lazy) return false;
  if (o->code == Opcode::constant) return true;
  if (o->code == Opcode::broadcast) {
    const std::vector<int64_t>& dims = o->ints(Attr::dims);
    const auto from = std::find(dims.begin(), dims.end(), static_cast<int64_t>(dim));
    return from == dims.end() || shape(o->operands[0])[static_cast<size_t>(from - dims.begin())] == 1;
  }
  return ir::is_elementwise(o->code) && std::all_of(o->operands.begin(), o->operands.end(),
                                                    [&](Value x) { return shape(x).empty() || same_along(x, dim); });
}
std::optional<MatrixSums::Scaled> MatrixSums::scaled(Value v, const MatrixForm& f) const {
  const ir::Op* o = k_.def(v);
  if (!o || o->code != Opcode::mul || !is_float(f.dtype) || k_.type(v).dtype != f.dtype ||
      placement_.kind(v) != Kind::lazy || axes_.of(v) != std::vector{f.rows, f.cols})
    return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}})
    if (from_matrices(o->operands[i], f) && same_along(o->operands[1 - i], 1))
      return Scaled{o->operands[i], o->operands[1 - i]};
  return std::nullopt;
}
bool MatrixSums::from_matrices(Value v, const MatrixForm& f) const {
  const MatrixForm* mine = of(v);
  return mine ? *mine == f : scaled(v, f).has_value();
}
bool MatrixSums::holds(Value v, const MatrixForm& f) const { return from_matrices(v, f) || one_element(k_, v); }
// What a dot that starts from these matrices reads of registers.
void MatrixSums::read_by_dot(Value start, const MatrixForm& f, std::vector<Value>& reads) const {
  while (!of(start)) {
    const Scaled s = *scaled(start, f);
    reads.push_back(s.factors);
    start = s.sums;
  }
}
bool MatrixSums::starts_a_dot(Value v, const MatrixForm& f) const {
  const auto begins_with = [&](Value start) {
    while (start != v && !of(start)) {
      const auto s = scaled(start, f);
      if (!s) return false;
      start = s->sums;
    }
    return start == v;
  };
  return std::any_of(k_.ops.begin(), k_.ops.end(), [&](const ir::Op& o) {
    return o.code == Opcode::dot && o.operands.size() == 3 && begins_with(o.operands[2]) &&
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
  if (s_.wide_dot != DotForm::matrix || s_.matrix_lanes) return;  // those are registers anyway
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
    Registers* const held = std::get_if<Registers>(&placement_.of(Value{i}));
    if (!held || !held->regs.empty() || held->sums.empty()) continue;
    held->regs = to_registers(*f, held->sums);
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
  if (o.code == Opcode::dot && o.operands.size() == 3) {
    const auto form = dots_.matrix_form(dots_.shape_of(o));
    if (form && from_matrices(o.operands[2], *form)) {
      read.pop_back();
      read_by_dot(o.operands[2], *form, read);
    }
  }
  settle(read);
}

void MatrixSums::forget(size_t from) {
  for (size_t i = from; i < settled_.size(); ++i) std::get<Registers>(placement_.of(settled_[i])).regs.clear();
  settled_.resize(from);
}

Values MatrixSums::evaluate(Value v, const MatrixForm& f) {
  if (of(v)) return std::get<Registers>(placement_.of(v)).sums;
  if (const auto s = scaled(v, f)) {
    Values sums = evaluate(s->sums, f);
    const Values by = factors(s->factors, f);
    const size_t across = sums.size() / by.size();
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = b_.raw().one({.code = Opcode::matrix_multiply, .operands = {sums[i], by[i / across]}});
    return sums;
  }
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
  x.slot.range.own = 4 * f.shape.m * x.stride;  // own_place()
  x.numbers = b_.alloc(Opcode::alloc_shared, f.dtype, words, x.slot.offset);
  return x;
}
Value MatrixSums::own_row(const MatrixForm& f) {
  const AxisPlan& rows = plan(f.rows);
  return b_.rem(b_.div(invocation_, int64_t{rows.invocation_stride}), int64_t{f.shape.m} / rows.between);
}
int64_t MatrixSums::row_behind(const MatrixForm& f, int r) const {
  const AxisPlan& rows = plan(f.rows);
  return int64_t{r / rows.between} * f.shape.m + int64_t{r % rows.between} * rows.run;
}
int64_t MatrixSums::down(const MatrixForm& f) const { return plan(f.rows).reg / plan(f.rows).between; }
// Where this invocation's row begins, in its subgroup's part; and where its columns do.
Value MatrixSums::own_place(const MatrixForm& f, const Exchange& x) {
  const Value part = b_.mul(x.wave, b_.i32(f.shape.m * x.stride));
  const Value row = own_row(f);
  const Value line = b_.mul(row, b_.i32(x.stride));
  const Value first = b_.add(part, line);
  return b_.add(first, nests_.invocation_start(plan(f.cols)));
}
// body(r, first, at, registers): piece by piece, the matrices `first` columns on, in registers' row r; `at` numbers the
// first of them, `registers` the column registers there.
template <class F> void MatrixSums::each_piece(const MatrixForm& f, const Exchange& x, const F& body) {
  const AxisPlan &rows = plan(f.rows), &cols = plan(f.cols);
  const auto across = static_cast<size_t>(cols.cover() / f.shape.n);
  // What an epilogue has for each column serves all rows before the next columns come.
  for (int64_t first = 0; first < cols.cover(); first += x.columns)
    for (int r = 0; r < rows.reg; ++r) {
      std::vector<std::pair<size_t, int64_t>> registers;  // which, and how far behind the first
      for (int j = 0; j < cols.reg; ++j)
        if (cols.local(j) >= first && cols.local(j) < first + x.columns)
          registers.emplace_back(static_cast<size_t>(r * cols.reg + j), cols.local(j) - first);
      body(static_cast<size_t>(r) * across + static_cast<size_t>(first / f.shape.n), registers);
    }
}

// What a lane holds of the matrices one after another, as this invocation's registers: from(register) is where.
void MatrixSums::each_lane_register(const MatrixForm& f, FunctionRef<void(size_t, size_t, size_t)> body) {
  const auto cols = static_cast<size_t>(plan(f.cols).reg),
             across = static_cast<size_t>(plan(f.cols).cover() / f.shape.n),
             held = static_cast<size_t>(f.shape.n / 4);  // of a row of a matrix
  for (size_t r = 0; r < static_cast<size_t>(plan(f.rows).reg); ++r)
    for (size_t c = 0; c < cols; ++c)
      body(r * cols + c, r / 2 * across + c / held, c % held / 2 * 4 + r % 2 * 2 + c % 2);
}

Values MatrixSums::to_registers(const MatrixForm& f, const Values& sums) {
  Values out(static_cast<size_t>(plan(f.rows).reg * plan(f.cols).reg));
  hand_out(f, sums, [&](size_t r, Value v) { out[r] = v; });
  return out;
}

void MatrixSums::hand_out(const MatrixForm& f, const Values& sums, FunctionRef<void(size_t, Value)> body) {
  if (f.lanes) {
    std::vector<Values> held;
    for (Value m : sums)
      held.push_back(out_.op(b_.raw().append({.code = Opcode::matrix_elements, .operands = {m}})).results);
    each_lane_register(f, [&](size_t r, size_t matrix, size_t e) { body(r, held[matrix][e]); });
    return;
  }
  Exchange x = make_exchange(f);
  const Value own = own_place(f, x);
  each_piece(f, x, [&](size_t at, const auto& registers) {
    put_piece(f, x, sums, at);
    Values piece;
    for (const auto& [r, behind] : registers) piece.push_back(b_.load(x.numbers, b_.add(own, b_.i32(behind))));
    for (size_t i = 0; i < piece.size(); ++i) body(registers[i].first, piece[i]);
  });
  arena_.free(x.slot);
}
void MatrixSums::hand_out_in_loops(const MatrixForm& f, const Values& sums,
                                   FunctionRef<void(size_t, Value, Value)> body) {
  const AxisPlan& cols = plan(f.cols);
  Exchange x = make_exchange(f);
  const Value own = own_place(f, x);
  each_piece(f, x, [&](size_t at, const auto& registers) {
    put_piece(f, x, sums, at);
    const auto width = static_cast<size_t>(cols.vec);
    nests_.counted(static_cast<int64_t>(registers.size() / width), [&](Value i) {
      const Value behind = b_.mul(i, b_.i32(int64_t{cols.vec} * cols.invocations)), from = b_.add(own, behind);
      Values vector;
      for (size_t e = 0; e < width; ++e)
        vector.push_back(b_.load(x.numbers, b_.add(from, b_.i32(registers[e].second))));
      for (size_t e = 0; e < width; ++e) body(registers[e].first, behind, vector[e]);
    });
  });
  arena_.free(x.slot);
}
// The matrices from number `at` on, as many as a piece has, for the subgroup's invocations to read.
void MatrixSums::put_piece(const MatrixForm& f, const Exchange& x, const Values& sums, size_t at) {
  arena_.order({}, {x.slot.range});
  for (int64_t c = 0; c < x.columns / f.shape.n; ++c) {
    const Value first = b_.mul(x.wave, b_.i32(f.shape.m * x.stride)), to = b_.add(first, b_.i32(c * f.shape.n));
    ir::Op o{.code = Opcode::matrix_store, .operands = {x.slot.ref, sums[at + static_cast<size_t>(c)], to}};
    o.set(Attr::stride, x.stride);
    b_.raw().append(std::move(o));
  }
  arena_.order({x.slot.range}, {});
}

// A number for each row, as matrices whose columns are all the same: one for each register of the rows. The invocation
// that holds a row's first columns stores its number where the subgroup loads it.
Values MatrixSums::factors(Value v, const MatrixForm& f) {
  const size_t settled = settled_.size();
  settle({v});
  const AxisPlan& rows = plan(f.rows);
  const int64_t part = int64_t{rows.reg} * f.shape.m;
  arena_.order(placement_.arena_reads({v}), {});
  Values numbers;
  nests_.by_layout({shape(v)[0], 1}, {f.rows, kNoAxis}, false,
                   [&](const NestPoint& p) { numbers.push_back(elements_.of(v, p.c)); });
  Slot slot = arena_.temporary(DType::u32, s_.group / s_.subgroup * part, 4 * part);
  const Value as_numbers = b_.alloc(Opcode::alloc_shared, f.dtype, s_.group / s_.subgroup * part, slot.offset);
  arena_.order({}, {slot.range});
  const Value words = b_.i32(part), first = b_.mul(b_.leaf(Opcode::subgroup_id), words);
  const Value own = b_.add(first, own_row(f));
  b_.when(nests_.first_invocation(nests_.invocation_bits({f.rows})), [&] {
    for (int r = 0; r < rows.reg; ++r)
      b_.store(as_numbers, b_.add(own, b_.i32(r * f.shape.m)), numbers[static_cast<size_t>(r)]);
  });
  arena_.order({slot.range}, {});
  Values matrices;
  for (int r = 0; r < rows.reg; ++r) {
    ir::Op o{.code = Opcode::matrix_load, .operands = {slot.ref, b_.add(first, b_.i32(r * f.shape.m))}};
    o.set(Attr::stride, 0);
    o.set(Attr::kind, static_cast<int64_t>(MatrixUse::accumulator));
    o.set(Attr::reverse, 1);
    matrices.push_back(b_.raw().one(std::move(o), ir::Type::array(f.shape.sum, {f.shape.m, f.shape.n})));
  }
  arena_.free(slot);
  forget(settled);
  return matrices;
}

Value MatrixSums::of_lane(const Values& held, MatrixUse use, DType t, int64_t cols) {
  ir::Op o{.code = Opcode::matrix_of, .operands = held};
  o.set(Attr::kind, static_cast<int64_t>(use));
  return b_.raw().one(std::move(o), ir::Type::array(t, {16, cols}));
}

// Registers of the rows and of the contracted dim, which are a lane's of the left factor, as its matrices: k by k, for
// each of those under each other.
Values MatrixSums::left_of_registers(const MatrixForm& f, const AxisPlan& k, const Values& elements) {
  Values matrices;
  const auto reg = static_cast<size_t>(k.reg), step = static_cast<size_t>(f.shape.k / 4);  // of a row of a matrix
  for (size_t first = 0; first < reg; first += step)
    for (size_t block = 0; block < static_cast<size_t>(down(f)); ++block) {
      Values words;
      for (size_t c = first; c < first + step; c += 2)
        for (size_t r = 2 * block; r < 2 * block + 2; ++r)
          words.push_back(b_.pack({elements[r * reg + c], elements[r * reg + c + 1]}));
      matrices.push_back(of_lane(words, MatrixUse::left, f.shape.a, f.shape.k));
    }
  return matrices;
}

Values MatrixSums::filled(const MatrixForm& f, uint64_t bits) {
  const Value element = b_.constant(f.shape.sum, bits);
  const Value matrix = b_.raw().one({.code = Opcode::matrix_fill, .operands = {element}},
                                    ir::Type::array(f.shape.sum, {f.shape.m, f.shape.n}));
  return Values(static_cast<size_t>(down(f) * (plan(f.cols).cover() / f.shape.n)), matrix);
}

Values MatrixSums::from_registers(const MatrixForm& f, const Values& in) {
  const auto bits = ir::constant_bits(out_, in[0]);
  if (bits && std::all_of(in.begin(), in.end(), [&](Value v) { return v == in[0]; })) return filled(f, *bits);
  Values sums(static_cast<size_t>(down(f) * (plan(f.cols).cover() / f.shape.n)));
  if (f.lanes) {
    std::vector<Values> held(sums.size(), Values(static_cast<size_t>(f.shape.m * f.shape.n / 32)));
    each_lane_register(f, [&](size_t r, size_t matrix, size_t e) { held[matrix][e] = in[r]; });
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = of_lane(held[i], MatrixUse::accumulator, f.shape.sum, f.shape.n);
    return sums;
  }
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
