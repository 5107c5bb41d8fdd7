#include "codegen/plan/parallel.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "codegen/plan/axes.h"
#include "engine/ir/reference.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;

/// Positions 0 to n - 1.
Affine all_positions(int64_t n, const ScalarAnalysis& scalars) {
  return scalars.bounded({0, std::clamp<int64_t>(n - 1, 0, Range::kUnbounded)});
}

// Positions along one dim of a Ref of extent `n` that an index entry touches.
Affine dim_footprint(const ir::Op& op, const ir::Index& ix, int64_t n, ScalarAnalysis& scalars) {
  const ir::Index::Slice* slice = ix.slice();
  const __int128 span = slice ? __int128{std::max<int64_t>(slice->size - 1, 0)} * slice->step : 0;
  const Affine start = ix.is_static() ? scalars.constant(ix.constant()) : scalars.of(op.operand_of(ix));
  const Range r = scalars.range(start);
  // What may need wrapping, clamping or masking can land anywhere.
  if (!ix.is_static() && (op.has_mask() || r.lo < 0 || r.hi + span > n - 1)) return all_positions(n, scalars);
  return scalars.sum(start, scalars.bounded({0, static_cast<int64_t>(std::min<__int128>(span, Range::kUnbounded))}));
}

// Which axes a form separates: programs that differ in such an axis touch different elements. Mixed radix: each
// coefficient must exceed everything the smaller ones and the rest can add up to.
std::vector<bool> separated_axes(const std::vector<int64_t>& coef, Range rest, const ir::Kernel& k) {
  std::vector<bool> separated(coef.size(), false);
  if (!rest.bounded()) return separated;
  std::vector<size_t> order;
  for (size_t a = 0; a < coef.size(); ++a)
    if (coef[a] != 0) order.push_back(a);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(coef[a]) < std::abs(coef[b]); });
  // The smallest coefficient first. One that does not exceed the reach of everything smaller can cancel it: then
  // neither it nor anything smaller tells programs apart ((i, j) -> i + j is injective in each axis and still
  // collides).
  __int128 span = __int128{rest.hi} - rest.lo;
  for (size_t a : order) {
    if (std::abs(coef[a]) > span) separated[a] = true;
    else separated.assign(coef.size(), false);
    const auto n = k.grid[a].size.value();
    span += __int128{std::abs(coef[a])} * (n ? std::max<int64_t>(*n - 1, 0) : INT32_MAX);
  }
  return separated;
}

/// Elements of a Ref: per dim from where to where.
using Box = std::vector<std::pair<int64_t, int64_t>>;

/// All that an access may touch: where a start is data, the whole dim.
Box box_of(const ir::Op& op, const Shape& shape) {
  Box box;
  for (size_t d = 0; d < shape.size(); ++d) {
    const ir::Index& x = op.index[d];
    if (!x.is_static()) box.emplace_back(0, shape[d]);
    else box.emplace_back(x.constant(), x.constant() + x.as_slice().span());
  }
  return box;
}

// Is every read of scratch preceded, within one coordinate of the parallel axes, by a write of all that any op ever
// writes there? What nothing writes holds nothing that another program has left.
class ScratchCheck {
 public:
  ScratchCheck(const ir::Kernel& k, const std::vector<bool>& parallel, ScalarAnalysis& scalars)
      : k_(k), inner_(parallel.size(), false), scalars_(scalars) {
    // Only axes that run inside every parallel one keep a coordinate's programs together: along an outer one, other
    // coordinates' programs come in between and leave their contents.
    for (size_t a = parallel.size(); a-- > 0;) {
      if (k.grid[a].size == Extent(1)) continue;
      if (parallel[a]) break;
      inner_[a] = true;
    }
    find_written();
  }
  bool run() {
    first_ = true;
    std::vector<bool> written(k_.scratch.size(), false);
    if (!walk(k_.body, written)) return false;
    bool more_steps = false;
    for (size_t a = 0; a < inner_.size(); ++a) more_steps = more_steps || inner_[a];
    first_ = false;
    known_.clear();
    return !more_steps || walk(k_.body, written);
  }

  std::vector<KnownScalar> all_known() {
    std::vector<KnownScalar> all;
    for (const bool first : {true, false}) {
      first_ = first;
      known_.clear();
      for (uint32_t v = 0; v < k_.values.size(); ++v)
        if (const auto bits = k_.def({v}) && k_.def({v})->regions.empty() ? known({v}) : std::nullopt)
          all.push_back({{v}, *bits, first ? inner_ : std::vector<bool>()});
    }
    return all;
  }

 private:
  int scratch_of(const ir::Op& op) const {
    return ref_position(k_, op.operands[0]) - static_cast<int>(k_.blocks.size());
  }

  // The bits of an integer or bool scalar when every sequential program id is 0, if that decides it: as the interpreter
  // computes them. Floats prove nothing: devices round some functions differently.
  std::optional<uint64_t> known(ir::Value v) {
    const ir::Type& t = k_.type(v);
    if (!t.is_scalar() || is_float(t.dtype)) return std::nullopt;
    if (const auto c = ir::constant_bits(k_, v)) return c;
    const ir::Op* op = k_.def(v);
    if (!op) return std::nullopt;
    if (op->code == Opcode::program_id) {
      const auto axis = static_cast<size_t>(scalars_.grid_axis(op->attr(ir::Attr::axis)));
      return k_.grid[axis].size == Extent(1) || (first_ && inner_[axis]) ? std::optional<uint64_t>(0) : std::nullopt;
    }
    if (!ir::is_elementwise(op->code)) return std::nullopt;
    const auto [it, fresh] = known_.try_emplace(v.index);
    if (!fresh) return it->second;
    std::vector<uint64_t> operands;
    const bool logic = t.dtype == DType::boolean && (op->code == Opcode::and_ || op->code == Opcode::or_);
    std::optional<uint64_t> result;
    for (ir::Value x : op->operands) {
      const auto b = known(x);
      if (b) operands.push_back(*b);
      if (logic && b == (op->code == Opcode::or_)) result = b;  // decides it alone
    }
    if (!result && operands.size() == op->operands.size())
      result = reference::eval(op->code, k_.type(op->operands.back()).dtype, t.dtype, operands.data());
    return known_[v.index] = result;
  }

  // Per scratch, the smallest box that holds all that is ever written.
  void find_written() {
    written_.resize(k_.scratch.size());
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      const ir::Op& op = k_.op(id);
      if (!ir::writes_ref(op.code) || scratch_of(op) < 0) return;
      const Box box = box_of(op, k_.type(op.operands[0]).shape);
      std::optional<Box>& all = written_[static_cast<size_t>(scratch_of(op))];
      if (!all) all = box;
      for (size_t d = 0; d < box.size(); ++d)
        (*all)[d] = {std::min((*all)[d].first, box[d].first), std::max((*all)[d].second, box[d].second)};
    });
  }
  bool writes_all(const ir::Op& op) const {
    if (op.code != Opcode::store || op.has_mask()) return false;
    const auto one_piece = [](const ir::Index& x) { return x.is_static() && x.as_slice().step == 1; };
    if (!std::all_of(op.index.begin(), op.index.end(), one_piece)) return false;
    const Box box = box_of(op, k_.type(op.operands[0]).shape), &all = *written_[static_cast<size_t>(scratch_of(op))];
    for (size_t d = 0; d < box.size(); ++d)
      if (box[d].first > all[d].first || box[d].second < all[d].second) return false;
    return true;
  }

  bool walk(ir::RegionId r, std::vector<bool>& written) {
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& op = k_.op(id);
      if (ir::accesses_ref(op.code)) {
        const int s = scratch_of(op);
        if (s < 0) continue;
        const auto i = static_cast<size_t>(s);
        if (i + static_cast<size_t>(k_.num_private_scratch) >= k_.scratch.size()) continue;  // every program's own
        if (ir::reads_ref(op.code) && !written[i]) return false;
        if (writes_all(op)) written[i] = true;
      } else if (ir::is_branch(op.code)) {
        const auto choice = known(op.operands[0]);
        if (choice) {
          const int64_t n = static_cast<int64_t>(op.regions.size());
          const int64_t taken =
              op.code == Opcode::if_ ? (*choice ? 0 : 1) : std::clamp<int64_t>(static_cast<int32_t>(*choice), 0, n - 1);
          if (!walk(op.regions[static_cast<size_t>(taken)], written)) return false;
          continue;
        }
        std::vector<bool> all(written.size(), true);
        for (ir::RegionId branch : op.regions) {
          std::vector<bool> w = written;
          if (!walk(branch, w)) return false;
          for (size_t i = 0; i < w.size(); ++i) all[i] = all[i] && w[i];
        }
        written = all;
      } else if (ir::is_loop(op.code)) {
        bool runs = true;  // the first region, at least once: a while's condition does
        if (op.code == Opcode::for_) {
          const auto lower = ir::constant_int(k_, op.operands[0]), upper = ir::constant_int(k_, op.operands[1]);
          runs = lower && upper && *lower < *upper;
        }
        std::vector<bool> w = written;
        for (ir::RegionId body : op.regions) {
          if (!walk(body, w)) return false;
          if (runs && body == op.regions[0]) written = w;
        }
      }
    }
    return true;
  }

  const ir::Kernel& k_;
  std::vector<bool> inner_;
  ScalarAnalysis& scalars_;
  std::vector<std::optional<Box>> written_;  // none: nothing is
  bool first_ = true;
  std::unordered_map<uint32_t, std::optional<uint64_t>> known_;  // so far, for this first_
};

}  // namespace

int ref_position(const ir::Kernel& k, ir::Value ref) {
  if (k.value(ref).def) throw InternalError(k.name + ": a Ref that is no argument of the body or an index map");
  return static_cast<int>(k.ref_position(ref));
}

int memory_of(const ir::Kernel& k, int ref) {
  const int o = ref < k.num_inputs ? k.aliased_output(ref) : -1;
  return o >= 0 ? o : ref;
}

std::vector<bool> stored_memory(const ir::Kernel& k) {
  std::vector<bool> stored(k.region(k.body).args.size(), false);
  ir::each_op(k, k.body, [&](ir::OpId id) {
    if (const ir::Op& op = k.op(id); ir::writes_ref(op.code))
      stored[static_cast<size_t>(ref_position(k, op.operands[0]))] = true;
  });
  for (int i = 0; i < k.num_inputs; ++i)
    if (stored[static_cast<size_t>(memory_of(k, i))]) stored[static_cast<size_t>(i)] = true;
  return stored;
}

namespace {
// Whether input i may be loaded after a store to output o. `stored` says whether that was stored to before, and then
// whether it was after.
bool loads_after_store(const ir::Kernel& k, ir::RegionId r, int i, int o, bool& stored) {
  for (ir::OpId id : k.region(r).ops) {
    const ir::Op& op = k.op(id);
    if (ir::accesses_ref(op.code)) {
      const int ref = ref_position(k, op.operands[0]);
      if (ref == i && stored) return true;
      if (ref == o && ir::writes_ref(op.code)) stored = true;
    }
    bool after = stored;
    for (int round = 0; round < 2; ++round)  // of a loop: what the first iteration stored, the second may load
      for (ir::RegionId inner : op.regions) {
        bool inside = ir::is_branch(op.code) ? stored : after;
        if (loads_after_store(k, inner, i, o, inside)) return true;
        after = after || inside;
      }
    stored = after;
  }
  return false;
}
}  // namespace

bool needs_copy(const ir::Kernel& k, int i) {
  const int o = i < k.num_inputs ? k.aliased_output(i) : -1;
  bool stored = false;
  return o >= 0 && !k.shares_at_once(i) && loads_after_store(k, k.body, i, o, stored);
}

bool may_overlap(const ir::Kernel& k, int i) {
  const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
  return !b.is_whole() && std::any_of(b.block().begin(), b.block().end(), [](const ir::BlockDim& d) {
    return d.is_element() || d.is_bounded() || d.halo();
  });
}

bool always_stored_whole(const ir::Kernel& k, int i) {
  const auto& ops = k.region(k.body).ops;
  return std::any_of(ops.begin(), ops.end(), [&](ir::OpId id) {
    const ir::Op& op = k.op(id);
    return ir::overwrites_ref(op.code) && ref_position(k, op.operands[0]) == i && is_whole_access(k, op);
  });
}

bool same_blocks(const ir::Kernel& k, int a, int b) {
  const ir::BlockMapping &x = k.blocks[static_cast<size_t>(a)], &y = k.blocks[static_cast<size_t>(b)];
  if (x.is_whole() || y.is_whole()) return x.is_whole() && y.is_whole();
  if (x.block() != y.block()) return false;
  // Equal ops in equal order: passes have brought equal maps into one form.
  std::unordered_map<uint32_t, ir::Value> other;
  const ir::Region &p = k.region(x.index_map()), &q = k.region(y.index_map());
  for (size_t n = 0; n < p.args.size(); ++n) other[p.args[n].index] = q.args[n];
  if (p.ops.size() != q.ops.size()) return false;
  for (size_t n = 0; n < p.ops.size(); ++n) {
    const ir::Op &f = k.op(p.ops[n]), &g = k.op(q.ops[n]);
    if (f.code != g.code || f.attrs != g.attrs || f.index != g.index || f.operands.size() != g.operands.size() ||
        f.results.size() != g.results.size())
      return false;
    for (size_t v = 0; v < f.operands.size(); ++v)
      if (other.at(f.operands[v].index) != g.operands[v]) return false;
    for (size_t v = 0; v < f.results.size(); ++v) {
      if (k.type(f.results[v]) != k.type(g.results[v])) return false;
      other[f.results[v].index] = g.results[v];
    }
  }
  return true;
}

bool depends_on_data(const ir::Kernel& k, int i) {
  const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
  if (b.is_whole()) return false;
  const auto& ops = k.region(b.index_map()).ops;
  return std::any_of(ops.begin(), ops.end(), [&](ir::OpId o) { return k.op(o).code == Opcode::load; });
}

std::vector<BlockStart> block_starts(const ir::Kernel& k, int i, ScalarAnalysis& scalars) {
  const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
  std::vector<BlockStart> starts;
  if (b.is_whole()) {
    for (size_t d = 0; d < b.array_shape.size(); ++d) starts.push_back({scalars.constant(0), true, true});
    return starts;
  }
  const ir::Op& yields = k.terminator(b.index_map());
  for (size_t d = 0; d < b.block().size(); ++d) {
    BlockStart s;
    const ir::BlockDim& dim = b.block()[d];
    const size_t at = k.map_result(i, d);
    s.form = scalars.of(yields.operands[at]);
    const Range r = scalars.range(s.form);
    const Extent last = ir::last_index(dim, b.array_shape[d]);
    if (r.lo >= 0) {
      if (const auto n = last.value()) s.in_range = r.hi <= std::max<int64_t>(*n, 0);
      else if (!dim.is_element() && !dim.is_bounded()) {
        const Extent blocks = cdiv(b.array_shape[d], Extent(dim.unit()));
        // A run-time size: in range if the index is one program id whose grid size is this very number of blocks.
        int axis = -1, used = 0;
        for (size_t a = 0; a < s.form.coef.size(); ++a)
          if (s.form.coef[a] != 0) {
            ++used;
            axis = static_cast<int>(a);
          }
        if (used == 0) s.in_range = r.hi == 0;
        if (used == 1 && s.form.coef[static_cast<size_t>(axis)] == 1 && s.form.rest.lo == 0 && s.form.rest.hi == 0)
          s.in_range = k.grid[static_cast<size_t>(axis)].size == blocks;
      }
    }
    const auto extent = b.array_shape[d].value();
    if (dim.is_element() || dim.is_bounded()) {
      // Where the first element lies, once wrapped and clamped.
      const int64_t most = extent ? std::max<int64_t>(*last.value(), 0) : 0;
      const bool wraps = r.lo < 0 && dim.is_element();
      const int64_t lo = (extent && !wraps ? std::clamp<int64_t>(r.lo, 0, most) : 0) - dim.low(),
                    hi = (wraps ? most : std::clamp<int64_t>(r.hi, 0, most)) - dim.low();
      s.nothing_below = lo >= 0;
      s.interior = extent && lo >= 0 && hi <= *extent - dim.size() &&
                   (dim.is_element() || scalars.range(yields.operands[at + 1]).lo >= dim.size());
      starts.push_back(s);
      continue;
    }
    // Every element of a halo block is an element of the array or 0: it has no overhang.
    if (dim.halo()) {
      s.interior = true;
      starts.push_back(s);
      continue;
    }
    // What is clamped lies inside as well, if no block hangs over.
    s.interior = extent ? *extent > 0 && *extent % dim.size() == 0 : s.in_range && dim.size() == 1;
    // one program per element: none runs where the extent is zero
    if (!extent && dim.size() == 1 && s.in_range) s.interior = s.form.varies();
    starts.push_back(s);
  }
  return starts;
}

namespace {
// What the atomics among the accesses to one array require of programs that run at once.
enum class Updates : uint8_t {
  none,     // there are none
  commute,  // nothing: they are all there is, and commute
  racing,   // that they be atomic, if the axis is declared parallel: their order shows, and the kernel gave it up
  // that there be none: float sums keep their order, or the target has no such atomic, or a program must find what it
  // left beyond the edge, or waits for what others do
  ordered,
  // on a driver whose loops end: one after another, they find it done
};
/// Somewhere within a while.
bool in_while(const ir::Kernel& k, ir::OpId id) {
  const auto holds = [&](ir::RegionId r) { return ir::any_op(k, r, [&](ir::OpId o) { return o == id; }); };
  return std::any_of(k.ops.begin(), k.ops.end(), [&](const ir::Op& o) {
    return o.code == Opcode::while_ && std::any_of(o.regions.begin(), o.regions.end(), holds);
  });
}
Updates updates_of(const ir::Kernel& k, const std::vector<const Access*>& accesses, const std::vector<bool>& used,
                   const Target& target, ScalarAnalysis& scalars) {
  bool any = false, all = true, commute = true, ordered = false;
  std::optional<std::pair<int64_t, DType>> kind;
  for (const Access* a : accesses) {
    const ir::Op& op = k.op(a->op);
    if (!ir::is_atomic(op.code)) {
      all = false;
      continue;
    }
    any = true;
    const DType t = k.type(op.operands[1]).dtype;
    if (size_bytes(t) == 8 && !target.int64_atomics) ordered = true;
    if (target.max_loop_iterations > 0 && used[op.results[0].index] && in_while(k, a->op)) ordered = true;
    if (op.code == Opcode::atomic_cas) {
      commute = false;
      continue;
    }
    const int64_t mine = op.attr(ir::Attr::kind);
    if (is_float(t) && mine == static_cast<int64_t>(Opcode::add) && !op.attr_or(ir::Attr::unordered, 0)) ordered = true;
    const std::pair combines{mine, t};
    commute = commute && mine != static_cast<int64_t>(Opcode::swap) && !used[op.results[0].index] &&
              kind.value_or(combines) == combines;
    kind = combines;
  }
  if (!any) return Updates::none;
  if (ordered) return Updates::ordered;
  if (all && commute) return Updates::commute;
  for (const BlockStart& b : block_starts(k, accesses[0]->ref, scalars))
    if (!b.interior) return Updates::ordered;
  return Updates::racing;
}
}  // namespace

std::vector<bool> used_values(const ir::Kernel& k) {
  std::vector<bool> used(k.values.size(), false);
  for (const ir::Op& op : k.ops)
    for (ir::Value v : op.operands) used[v.index] = true;
  return used;
}

std::vector<KnownScalar> known_scalars(const ir::Kernel& k, const std::vector<bool>& parallel,
                                       ScalarAnalysis& scalars) {
  return ScratchCheck(k, parallel, scalars).all_known();
}

namespace {

// One call of plan_parallel(): its steps are its functions, in order. An axis is `proved_` until something is found
// that its programs may both touch; then `why_` says what.
class ParallelProof {
 public:
  ParallelProof(const ir::Kernel& k, ScalarAnalysis& scalars, const Target& target)
      : k_(k),
        scalars_(scalars),
        target_(target),
        rank_(k.grid.size()),
        stored_(stored_memory(k)),
        read_(k.blocks.size(), false),
        meets_(k.blocks.size()),
        bound_(rank_, false),
        proved_(rank_, true),
        why_(rank_, "proved: no output is touched twice along it") {
    for (size_t i = 0; i < k.blocks.size(); ++i) starts_.push_back(block_starts(k, static_cast<int>(i), scalars));
  }

  ParallelPlan run() {
    find_accesses();
    plan_.commuting.assign(k_.blocks.size(), false);
    plan_.concurrent.assign(k_.blocks.size(), false);
    const std::vector<bool> used = used_values(k_);
    for (size_t i = static_cast<size_t>(k_.num_prefetch); i < k_.blocks.size(); ++i) check_output(i, used);
    for (size_t a = 0; a < rank_; ++a)
      if (at_most_one(a)) prove(a, "at most one program");
    check_scratch();
    for (size_t a = 0; a < rank_; ++a)
      if (k_.grid[a].vmapped && !proved_[a]) prove(a, "added by vmap");
    bind_shared_blocks();
    take_declared();
    find_concurrent();
    return std::move(plan_);
  }

 private:
  bool at_most_one(size_t a) const { return k_.grid[a].size == Extent(1) || k_.grid[a].size == Extent(0); }
  void prove(size_t a, std::string why) {
    proved_[a] = true;
    why_[a] = std::move(why);
  }

  void find_accesses() {
    std::vector<ir::OpId> ops;
    ir::each_op(k_, k_.body, [&](ir::OpId id) { ops.push_back(id); });
    const auto blocks = static_cast<int>(k_.blocks.size());
    // blocks: of none
    const auto ref_of = [&](const ir::Op& op) {
      return ir::accesses_ref(op.code) ? ref_position(k_, op.operands[0]) : blocks;
    };
    for (ir::OpId id : ops)
      if (const int ref = ref_of(k_.op(id)); ref < blocks && ir::reads_ref(k_.op(id).code))
        read_[static_cast<size_t>(ref)] = true;
    for (ir::OpId id : ops)
      if (const int ref = ref_of(k_.op(id)); ref < blocks) plan_.accesses.push_back(access(id, ref));
  }

  Access access(ir::OpId id, int ref) {
    const ir::Op& op = k_.op(id);
    const auto i = static_cast<size_t>(ref);
    const ir::BlockMapping& b = k_.blocks[i];
    Access access{id, ref, ir::writes_ref(op.code), {}};
    // An array that the kernel both stores to and reads is kept in a private tile and written back whole, and a copied
    // input is read whole: all of the block counts.
    const bool copied = needs_copy(k_, ref),
               whole_block = (stored_[i] && k_.aliased_output(ref) < 0 && read_[i] && !b.is_whole()) || copied;
    size_t ref_dim = 0;
    for (size_t d = 0; d < b.array_shape.size(); ++d) {
      if (b.is_whole()) {
        const int64_t n = *b.array_shape[d].value();
        access.dims.push_back(copied ? all_positions(n, scalars_) : dim_footprint(op, op.index[d], n, scalars_));
        continue;
      }
      const int64_t block = b.block()[d].size(), unit = b.block()[d].unit(), low = b.block()[d].low();
      const BlockStart& s = starts_[i][d];
      if (b.block()[d].halo()) {  // its edges are read from anywhere
        access.dims.push_back(scalars_.bounded({}));
        ++ref_dim;
        continue;
      }
      const Affine form =
          s.in_range ? scalars_.sum(scalars_.scaled(s.form, unit), scalars_.constant(-low)) : scalars_.bounded({});
      if (!b.block()[d].seen()) {
        access.dims.push_back(form);
        continue;
      }
      const Affine inner =
          whole_block ? all_positions(block, scalars_) : dim_footprint(op, op.index[ref_dim], block, scalars_);
      ++ref_dim;
      access.dims.push_back(scalars_.sum(form, inner));
    }
    return access;
  }

  // Per axis: programs that differ in it access different elements of the array.
  std::vector<bool> separated_by(size_t array, const std::vector<const Access*>& accesses) const {
    std::vector<bool> separated(rank_, false);
    for (size_t d = 0; d < k_.blocks[array].array_shape.size(); ++d) {
      Range rest = accesses[0]->dims[d].rest;
      bool same = true;
      for (const Access* a : accesses) {
        same = same && a->dims[d].coef == accesses[0]->dims[d].coef;
        rest.lo = std::min(rest.lo, a->dims[d].rest.lo);
        rest.hi = std::max(rest.hi, a->dims[d].rest.hi);
      }
      if (!same) continue;
      const std::vector<bool> s = separated_axes(accesses[0]->dims[d].coef, rest, k_);
      for (size_t a = 0; a < rank_; ++a) separated[a] = separated[a] || s[a];
    }
    return separated;
  }

  void check_output(size_t i, const std::vector<bool>& used) {
    std::vector<const Access*> mine;
    bool written = false;
    for (const Access& a : plan_.accesses)
      if (memory_of(k_, a.ref) == static_cast<int>(i)) {
        mine.push_back(&a);
        written = written || a.writes;
      }
    if (!written) return;
    const std::vector<bool> separated = separated_by(i, mine);
    const Updates updates = updates_of(k_, mine, used, target_, scalars_);
    if (updates != Updates::none) {
      meets_[i] = separated;
      meets_[i].flip();
    }
    plan_.commuting[i] = updates == Updates::commute;
    for (size_t a = 0; a < rank_; ++a) {
      if (separated[a] || k_.grid[a].size == Extent(1)) continue;
      if (updates == Updates::commute) {
        if (proved_[a])
          why_[a] =
              "proved: what programs that differ in it both update, they update atomically, in no order that shows";
        continue;
      }
      if (updates == Updates::ordered) bound_[a] = true;
      if (!proved_[a]) continue;
      proved_[a] = false;
      why_[a] = "sequential: " + k_.blocks[i].origin + " is not proved to be touched only once along it" +
                (depends_on_data(k_, static_cast<int>(i)) ? ": its blocks depend on data" : "");
      if (updates == Updates::ordered) why_[a] += "; its atomic updates keep their order";
    }
  }

  void check_scratch() {
    const auto scratch_ok = [&](const std::vector<bool>& p) {
      return k_.scratch.empty() || ScratchCheck(k_, p, scalars_).run();
    };
    if (scratch_ok(proved_)) return;
    const std::string carried = "sequential: scratch may be read before it is written along it";
    for (size_t a = 0; a < rank_; ++a)
      if (proved_[a] && !(k_.grid[a].size == Extent(1))) {
        proved_[a] = false;
        why_[a] = carried;
      }
    // One axis at a time may still be private (a counter along j leaves i parallel only if i resets it).
    for (size_t a = 0; a < rank_; ++a) {
      if (why_[a] != carried) continue;
      std::vector<bool> p = proved_;
      p[a] = true;
      if (scratch_ok(p)) prove(a, "proved: outputs are disjoint along it and scratch is written before it is read");
    }
  }

  // No declaration counts where an axis' programs certainly share a block that they both read and store: TPU kernels
  // accumulate in such outputs, for which each core has memory of its own.
  void bind_shared_blocks() {
    for (auto i = static_cast<size_t>(k_.num_inputs); i < k_.blocks.size(); ++i) {
      if (k_.blocks[i].is_whole() || !stored_[i] || !read_[i] || k_.blocks[i].alias >= 0) continue;
      for (size_t a = 0; a < rank_; ++a)
        bound_[a] =
            bound_[a] || (!proved_[a] && std::all_of(starts_[i].begin(), starts_[i].end(), [&](const BlockStart& s) {
              return s.form.coef[a] == 0 && s.form.rest.lo == s.form.rest.hi;
            }));
    }
  }

  // A block that hangs over the edge and lives in a private tile, which is written whole, though programs that share it
  // may each store a part; -1: none.
  int shared_tile() const {
    int tile = -1;
    for (size_t i = 0; i < k_.blocks.size(); ++i) {
      if (k_.blocks[i].is_whole() || !stored_[i] || !read_[i] || k_.aliased_output(static_cast<int>(i)) >= 0 ||
          always_stored_whole(k_, static_cast<int>(i)))
        continue;
      for (const BlockStart& s : starts_[i])
        if (!s.interior) tile = static_cast<int>(i);
    }
    return tile;
  }

  // Declared axes are parallel by contract where nothing sequential is left, or only single programs: otherwise steps
  // of the sequential axes would have to be ordered across workgroups, and outputs that TPU kernels accumulate in, the
  // same block in all programs (splash attention's), would need a copy for each.
  void take_declared() {
    const int tile = shared_tile();
    bool rest_parallel = true;
    const auto declared = [&](size_t a) {
      return k_.grid[a].parallel || k_.grid[a].role == ir::GridAxis::Role::thread;
    };
    for (size_t a = 0; a < rank_; ++a) rest_parallel = rest_parallel && (proved_[a] || (declared(a) && !bound_[a]));
    for (size_t a = 0; a < rank_; ++a) {
      if (!proved_[a] && declared(a)) {
        if (bound_[a]) why_[a] += ", although it is declared parallel";
        else if (rest_parallel && tile < 0) {
          prove(a, "declared");
          plan_.declared = true;
        } else if (rest_parallel)
          why_[a] += "; declared parallel, but blocks of " + k_.blocks[static_cast<size_t>(tile)].origin +
                     " may hang over the edge, be shared, and be stored in part";
        else
          why_[a] += "; declared parallel, but another axis is sequential and the order between them could not be kept";
      }
      plan_.axes.push_back({proved_[a], why_[a]});
    }
  }

  void find_concurrent() {
    for (size_t i = 0; i < k_.blocks.size(); ++i)
      for (size_t a = 0; a < meets_[i].size(); ++a)
        if (meets_[i][a] && proved_[a] && !k_.grid[a].vmapped && !at_most_one(a)) plan_.concurrent[i] = true;
  }

  const ir::Kernel& k_;
  ScalarAnalysis& scalars_;
  const Target& target_;
  const size_t rank_;
  std::vector<std::vector<BlockStart>> starts_;  // per block and dim
  const std::vector<bool> stored_;               // per block
  std::vector<bool> read_;                       // per block: by the kernel's own accesses
  // per block and axis: programs that differ in it may touch the same elements
  std::vector<std::vector<bool>> meets_;
  std::vector<bool> bound_;  // per axis: no declaration makes it parallel
  std::vector<bool> proved_;
  std::vector<std::string> why_;
  ParallelPlan plan_;
};

}  // namespace

ParallelPlan plan_parallel(const ir::Kernel& k, ScalarAnalysis& scalars, const Target& target) {
  return ParallelProof(k, scalars, target).run();
}

}  // namespace tessera::lowering
