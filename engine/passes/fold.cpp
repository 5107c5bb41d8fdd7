#include <algorithm>
#include <numeric>

#include "engine/ir/moves.h"
#include "engine/ir/walk.h"
#include "engine/passes/folder.h"
#include "engine/passes/passes.h"

namespace tessera::passes {
using ir::Attr, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Type, ir::Value;

bool fold(ir::Kernel& k) { return Folder(k).run(); }

bool Folder::run() {
  for (RegionId r : top_regions(k_)) top_region(r);
  return changed_;
}

void Folder::top_region(RegionId r) {
  constants_.clear();
  constant_values_.clear();
  region(r);
  std::vector<OpId>& list = k_.region(r).ops;
  list.insert(list.begin(), constants_.begin(), constants_.end());
}

void Folder::region(RegionId r) {
  std::vector<OpId> made, *outer = out_;
  out_ = &made;
  ++region_depth_;
  const std::vector<OpId> list = std::move(k_.region(r).ops);
  ops(list);
  k_.region(r).ops = std::move(made);
  --region_depth_;
  out_ = outer;
}

void Folder::ops(const std::vector<OpId>& list) {
  for (OpId id : list) op(id);
}

void Folder::op(OpId id) {
  changed_ |= replaced_.apply(k_.op(id));
  if (k_.op(id).code == Opcode::constant) return constant_op(id);
  if (!k_.op(id).regions.empty()) {
    if (control_flow(id)) {
      changed_ = true;
      return;
    }
    out_->push_back(id);
    return;
  }
  const ir::OpInfo& row = info(k_.op(id).code);
  if (row.effect == ir::Effect::reads || row.effect == ir::Effect::writes) {
    static_starts(k_.op(id));
    drop_mask(k_.op(id));
  }
  if (row.effect == ir::Effect::pure && k_.op(id).results.size() == 1) {
    Op op = std::move(k_.op(id));  // k_.ops may grow meanwhile
    const Value result = op.results[0];
    const Type t = k_.type(result);
    if (const auto by = simplify(op, t)) {
      replaced_.replace(result, *by);
      changed_ = true;
      return;
    }
    ranges_.set(result, ranges_.compute(op, t));
    k_.op(id) = std::move(op);
  }
  out_->push_back(id);
}

void Folder::constant_op(OpId id) {
  const Op& op = k_.op(id);
  const Type& t = k_.type(op.results[0]);
  const auto [it, fresh] =
      constant_values_.try_emplace({t.dtype, static_cast<uint64_t>(op.attr(Attr::bits)), t.shape}, op.results[0]);
  if (!fresh) {
    replaced_.replace(op.results[0], it->second);
    changed_ = true;
    return;
  }
  ranges_.set(op.results[0], ranges_.compute(op, t));
  constants_.push_back(id);
  if (region_depth_ > 1 || !out_->empty()) changed_ = true;  // it moves to the front
}

Value Folder::constant(const Type& t, uint64_t bits, Loc loc) {
  const auto key = std::tuple{t.dtype, bits, t.shape};
  if (const auto it = constant_values_.find(key); it != constant_values_.end()) return it->second;
  const OpId id{static_cast<uint32_t>(k_.ops.size())};
  const Value v{static_cast<uint32_t>(k_.values.size())};
  Op op{.code = Opcode::constant, .results = {v}, .loc = loc};
  op.set(Attr::bits, static_cast<int64_t>(bits));
  k_.values.push_back({t, id, {}, 0});
  ranges_.set(v, ranges_.compute(op, t));
  k_.ops.push_back(std::move(op));
  constants_.push_back(id);
  constant_values_.emplace(key, v);
  return v;
}

Value Folder::make(Op op, const Type& t) {
  if (const auto v = simplify(op, t)) return *v;
  const OpId id{static_cast<uint32_t>(k_.ops.size())};
  const Value v{static_cast<uint32_t>(k_.values.size())};
  op.results = {v};
  k_.values.push_back({t, id, {}, 0});
  ranges_.set(v, ranges_.compute(op, t));
  k_.ops.push_back(std::move(op));
  out_->push_back(id);
  return v;
}

std::optional<Value> Folder::simplify(Op& op, const Type& t) {
  constexpr int kMaxDepth = 32;  // each rewrite is simpler than what it replaces; this bounds the stack on long chains
  if (t.is_ref || depth_ >= kMaxDepth) return std::nullopt;
  ++depth_;
  std::optional<Value> v = is_elementwise(op.code) ? elementwise(op, t) : shape_op(op, t);
  if (!v)
    if (const auto r = ranges_.compute(op, t); r && r->lo == r->hi) {
      const int n = bits(t.dtype);
      v = constant(t, static_cast<uint64_t>(r->lo) & (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1), op.loc);
    }
  --depth_;
  return v;
}

// -- shapes
namespace {
// A move whose result is its operand.
bool is_identity(const ir::Kernel& k, const Op& move, const Type& t) {
  const auto dims = ir::move_dims(k, move);
  if (!dims || k.type(move.operands[0]) != t) return false;
  for (size_t i = 0; i < dims->size(); ++i)
    if (t.shape[i] != 1 && (!(*dims)[i].whole || (*dims)[i].dim != static_cast<int>(i))) return false;
  return true;
}
}  // namespace

std::optional<Value> Folder::shape_op(Op& op, const Type& t) {
  const auto of_splat = [&]() -> std::optional<Value> {
    for (Value v : op.operands)
      if (!bits_of(v) || bits_of(v) != bits_of(op.operands[0])) return std::nullopt;
    return constant(t, *bits_of(op.operands[0]), op.loc);
  };
  if (op.code == Opcode::gather && bits_of(op.operands[0])) return constant(t, *bits_of(op.operands[0]), op.loc);
  if (ir::is_reduce(op.code)) {
    if (op.ints(Attr::axes).empty()) return op.operands[0];
    const Shape& shape = k_.type(op.operands[0]).shape;
    const bool some = std::find(shape.begin(), shape.end(), 0) == shape.end();
    return some && info(ir::combining_op(op.code)).idempotent ? of_splat() : std::nullopt;
  }
  if (!ir::is_move(op.code)) return std::nullopt;
  join_moves(op);
  return is_identity(k_, op, t) ? op.operands[0] : of_splat();
}

/// A broadcast, reshape or transpose of one of its kind becomes one op.
void Folder::join_moves(Op& op) {
  const Op* first = k_.def(op.operands[0]);
  if (!first || first->code != op.code) return;
  if (op.code == Opcode::broadcast) {
    std::vector<int64_t> dims;
    for (int64_t d : first->ints(Attr::dims)) dims.push_back(op.ints(Attr::dims)[static_cast<size_t>(d)]);
    op.set(Attr::dims, std::move(dims));
  } else if (op.code == Opcode::transpose) {
    std::vector<int64_t> perm;
    for (int64_t d : op.ints(Attr::perm)) perm.push_back(first->ints(Attr::perm)[static_cast<size_t>(d)]);
    op.set(Attr::perm, std::move(perm));
  } else if (op.code != Opcode::reshape) {
    return;
  }
  op.operands[0] = first->operands[0];
  changed_ = true;
}

// -- memory
/// A dynamic start that is a constant inside the bounds becomes a static one.
void Folder::static_starts(Op& op) {
  const Shape& shape = k_.type(op.operands[0]).shape;
  for (size_t d = 0; d < op.index.size(); ++d) {
    ir::Index& x = op.index[d];
    if (x.is_static() || x.is_array()) continue;
    const auto at = ir::constant_int(k_, op.operand_of(x));
    if (!at || *at < 0) continue;
    const ir::Index::Slice slice = x.as_slice();
    const __int128 window = slice.size == 0 ? 0 : __int128{slice.size - 1} * slice.step + 1;
    if (shape[d] >= 0 && *at + window > shape[d]) continue;
    const size_t operand = *x.operand();
    x.start() = *at;
    changed_ = true;
    const bool used = std::any_of(op.index.begin(), op.index.end(),
                                  [&](const ir::Index& o) { return !o.is_static() && *o.operand() == operand; });
    if (used) continue;
    op.operands.erase(op.operands.begin() + static_cast<ptrdiff_t>(operand));
    for (ir::Index& o : op.index)
      if (!o.is_static() && *o.operand() > operand) o.shift(-1);
  }
}

/// A mask that leaves nothing out goes where the windows fit: nothing moves without it either.
void Folder::drop_mask(Op& op) {
  if (!op.has_mask() || !is(op.operands[static_cast<size_t>(op.mask_position())], 1)) return;
  const Shape& shape = k_.type(op.operands[0]).shape;
  for (size_t d = 0; d < op.index.size(); ++d) {
    const ir::Index& x = op.index[d];
    if (x.is_static()) continue;
    const auto at = ranges_.of(op.operand_of(x));
    const ir::Index::Slice* slice = x.slice();
    const __int128 span = slice && slice->size > 0 ? __int128{slice->size - 1} * slice->step : 0;
    if (shape[d] < 0 || !at || at->lo < 0 || at->hi + span >= shape[d]) return;
  }
  const int first = op.mask_position(), count = 1 + op.has_other();
  op.operands.erase(op.operands.begin() + first, op.operands.begin() + first + count);
  for (ir::Index& x : op.index) x.shift(-count);
  std::erase_if(op.attrs, [](const auto& a) { return a.first == Attr::mask || a.first == Attr::other; });
  changed_ = true;
}

// -- control flow
/// The region's ops in place of the op that holds it; `results` stand for what it yields.
void Folder::splice(RegionId r, const std::vector<Value>& results) {
  std::vector<OpId> list = std::move(k_.region(r).ops);
  k_.region(r).ops.clear();
  const OpId yield = list.back();
  list.pop_back();
  ops(list);
  for (size_t i = 0; i < results.size(); ++i) replaced_.replace(results[i], k_.op(yield).operands[i]);
}

/// A loop value that every step passes on unchanged is the value it started with.
void Folder::drop_invariant_carries(Op& op) {
  const size_t first_operand = ir::first_init(op), first_arg = ir::first_carried(op);
  const RegionId body = op.regions.back();
  const std::vector<Value>& yields = k_.terminator(body).operands;
  for (size_t i = 0; i < yields.size(); ++i) {
    const Value arg = k_.region(body).args[i + first_arg], init = op.operands[i + first_operand];
    const Value yielded = replaced_(yields[i]);
    if (yielded != arg && yielded != init) continue;
    for (RegionId r : op.regions) replaced_.replace(k_.region(r).args[i + first_arg], init);
    replaced_.replace(op.results[i], init);
  }
}

/// True if the op is gone.
// `choice` holds in the first iteration of a loop only, `otherwise` is what that loop carries, and it carries `first`
// into that iteration: the accumulator's "if k == 0, start from zero", where it starts from zero anyway.
bool Folder::resets_first_iteration(Value choice, Value first, Value otherwise) const {
  const Op* test = k_.def(choice);
  if (!test || test->code != Opcode::eq) return false;
  const RegionId body = k_.value(otherwise).region;
  const auto it = loop_of_body_.find(body.index);
  if (!body || it == loop_of_body_.end()) return false;
  const Op& loop = k_.op(it->second);
  const uint32_t number = k_.value(otherwise).number;
  const auto equal = [&](Value a, Value b) {
    if (a == b) return true;
    const auto x = ir::constant_bits(k_, a), y = ir::constant_bits(k_, b);
    return x && y && *x == *y && k_.type(a) == k_.type(b);
  };
  const Value iv = k_.region(body).args[0];
  const bool at_start = (test->operands[0] == iv && equal(test->operands[1], loop.operands[0])) ||
                        (test->operands[1] == iv && equal(test->operands[0], loop.operands[0]));
  return at_start && number > 0 && equal(loop.operands[number + 2], first);
}

bool Folder::control_flow(OpId id) {
  const Opcode code = k_.op(id).code;
  if (ir::is_branch(code)) {
    const std::vector<Value> results = k_.op(id).results;
    const std::vector<RegionId> regions = k_.op(id).regions;
    const Value choice = k_.op(id).operands[0];
    if (const auto r = ranges_.of(choice);
        r && (r->lo == r->hi || regions.size() == 1 ||
              (code == Opcode::switch_ && (r->hi <= 0 || r->lo >= static_cast<int64_t>(regions.size()) - 1)))) {
      const int64_t last = static_cast<int64_t>(regions.size()) - 1;
      splice(regions[static_cast<size_t>(code == Opcode::if_ ? 1 - r->lo : std::clamp<int64_t>(r->lo, 0, last))],
             results);
      return true;
    }
    for (RegionId r : regions) region(r);
    for (size_t i = 0; i < results.size(); ++i) {
      const Value first = k_.terminator(regions[0]).operands[i];
      const bool same = std::all_of(regions.begin(), regions.end(),
                                    [&](RegionId r) { return k_.terminator(r).operands[i] == first; });
      if (same) replaced_.replace(results[i], first);  // defined outside, since both see it
      else if (code == Opcode::if_ && resets_first_iteration(choice, first, k_.terminator(regions[1]).operands[i]))
        replaced_.replace(results[i], k_.terminator(regions[1]).operands[i]);
    }
    return false;
  }
  if (code == Opcode::for_) {
    const std::vector<Value> operands = k_.op(id).operands, results = k_.op(id).results;
    const RegionId body = k_.op(id).regions[0];
    const Interval lower = *ranges_.of(operands[0]), upper = *ranges_.of(operands[1]);
    if (lower.lo >= upper.hi) {  // never runs
      for (size_t i = 0; i < results.size(); ++i) replaced_.replace(results[i], operands[i + 3]);
      return true;
    }
    const Interval step = *ranges_.of(operands[2]);
    if (lower.lo == lower.hi && lower.hi < upper.lo && upper.hi - lower.lo <= step.lo) {  // runs once
      const std::vector<Value> args = k_.region(body).args;
      replaced_.replace(args[0], operands[0]);
      for (size_t i = 1; i < args.size(); ++i) replaced_.replace(args[i], operands[i + 2]);
      splice(body, results);
      return true;
    }
    // A program that came here would be invalid, so this code is never taken; any step keeps it well formed.
    if (step.hi < 1) {
      const Value one = constant(Type::array(DType::i32), 1, k_.op(id).loc);
      k_.op(id).operands[2] = one;
      changed_ = true;
    }
    drop_invariant_carries(k_.op(id));
    ranges_.set(k_.region(body).args[0], counter_bounds(lower, upper));
    loop_of_body_[body.index] = id;
    region(body);
    return false;
  }
  if (code == Opcode::run_scoped) {
    region(k_.op(id).regions[0]);
    return false;
  }
  const RegionId cond = k_.op(id).regions[0], body = k_.op(id).regions[1];
  drop_invariant_carries(k_.op(id));
  region(cond);
  // never runs
  if (const std::vector<OpId>& list = k_.region(cond).ops; list.size() == 1 && is(k_.terminator(cond).operands[0], 0)) {
    const Op& op = k_.op(id);
    for (size_t i = 0; i < op.results.size(); ++i) replaced_.replace(op.results[i], op.operands[i]);
    return true;
  }
  region(body);
  return false;
}

}  // namespace tessera::passes
