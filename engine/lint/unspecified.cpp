// Unspecified elements that end in a result. A block's overhang is followed through one program that has some, from
// loads to the reduction or product that mixes it with other elements, and on to an element of an output that no op
// stores to afterwards. What a load finds before anything is stored there is followed to any store.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "engine/base/plural.h"
#include "engine/ir/moves.h"
#include "engine/ir/reference.h"
#include "engine/ir/walk.h"
#include "engine/lint/finding.h"

namespace tessera::lint {
namespace {
using ir::Attr, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

/// Along one dim of a value: so many of its first and last elements are overhang of a block.
struct Ends {
  int64_t low = 0, high = 0;
  size_t block = SIZE_MAX;
  size_t dim = 0;  // of the block's Ref
  bool any() const { return low > 0 || high > 0; }
};
/// Where overhang got mixed with other elements.
struct Mixed {
  OpId op;
  Ends ends;
};
/// What is known of a value's elements.
struct State {
  std::vector<Ends> ends;        // by dim; empty: nowhere
  std::optional<Mixed> mixed;    // every element holds some
  bool knows_positions = false;  // made from an iota: what it chooses may be the elements that are there
  bool overhangs() const {
    return std::any_of(ends.begin(), ends.end(), [](const Ends& e) { return e.any(); });
  }
};

Ends join(const Ends& a, const Ends& b) {
  if (!a.any()) return b;
  return {std::max(a.low, b.low), std::max(a.high, b.high), a.block, a.dim};
}

class Overhang {
 public:
  Overhang(Context& c, passes::Programs& programs) : c_(c), k_(c.k), programs_(programs), states_(c.k.values.size()) {}

  /// Follows the current program: overhang, or without it what one load finds.
  void follow(const EarlyLoad* load = nullptr) {
    load_ = load;
    places_.clear();
    for (size_t i = 0; i < k_.blocks.size(); ++i) places_.push_back(place_of(c_, programs_, i));
    std::fill(states_.begin(), states_.end(), State{});
    scratch_.clear();
    stored_.clear();
    region(k_.body, true);
    for (const Stored& x : stored_)
      if (!reported_.contains(x.mixed.op.index) && !stored_later(x)) report(x.mixed, x.ref);
  }
  /// Some input's block of the current program hangs over its array.
  static std::vector<std::pair<size_t, size_t>> hanging(const Context& c, passes::Programs& programs) {
    std::vector<std::pair<size_t, size_t>> found;
    for (size_t i = 0; i < static_cast<size_t>(c.k.num_inputs); ++i) {
      const auto places = place_of(c, programs, i);
      for (size_t d = 0; places && d < places->size(); ++d)
        if (const Place& p = (*places)[d]; p.seen && !p.no_end && (p.start < 0 || p.start + p.size > c.arrays[i][d]))
          found.emplace_back(i, d);
    }
    return found;
  }

 private:
  /// `certain`: the program does all of it.
  void region(RegionId r, bool certain) {
    for (const OpId id : k_.region(r).ops) {
      const Op& op = k_.op(id);
      if (op.regions.empty()) plain(id, certain);
      else if (ir::is_loop(op.code)) loop(op, certain);
      else if (op.code == Opcode::run_scoped) scoped(op, certain);
      else branch(op, certain);
    }
  }
  void scoped(const Op& op, bool certain) {
    for (const Value ref : k_.region(op.regions[0]).args) scratch_.erase(ref);
    region(op.regions[0], certain);
    yields(op, op.regions[0]);
  }
  void yields(const Op& op, RegionId r) {
    const Op& yield = k_.terminator(r);
    for (size_t i = 0; i < op.results.size(); ++i) state(op.results[i]) = state(yield.operands[i]);
  }
  void branch(const Op& op, bool certain) {
    const auto taken = programs_.taken(op);
    for (size_t i = 0; i < op.regions.size(); ++i)
      if (!taken || *taken == i) region(op.regions[i], certain && taken);
    if (taken && *taken < op.regions.size()) yields(op, op.regions[*taken]);
  }
  // What the first iteration stores, a later one may store again; so nothing is reported of a loop that runs more than
  // once. Its results are mixed if every iteration makes them so, whatever was carried into it.
  void loop(const Op& op, bool certain) {
    constexpr int64_t kUnknown = -1;
    const int64_t times = op.code == Opcode::for_ ? programs_.iterations(op).value_or(kUnknown) : kUnknown;
    const RegionId body = op.regions.back();
    const size_t init = ir::first_init(op), first = ir::first_carried(op);
    const size_t carried = op.operands.size() - init;
    const bool once = times == 1;
    for (size_t i = 0; i < carried && times != 0; ++i)
      for (const RegionId r : op.regions)
        state(k_.region(r).args[first + i]) = once ? state(op.operands[init + i]) : State{};
    if (times != 0) {
      for (const RegionId r : op.regions) region(r, certain && once);
      if (!once) scratch_.clear();
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      const Value yielded = k_.terminator(body).operands[i];
      const bool same = times == 0 || yielded == k_.region(body).args[first + i];
      if (same) state(op.results[i]) = state(op.operands[init + i]);
      else
        state(op.results[i]) =
            once ? state(yielded) : State{{}, times > 0 ? state(yielded).mixed : std::nullopt, false};
    }
  }

  void plain(OpId id, bool certain) {
    const Op& op = k_.op(id);
    if (ir::accesses_ref(op.code)) return access(id, certain);
    if (op.code == Opcode::copy_start) forget(op.operands[1], {});
    if (op.results.empty()) return;
    State s;  // of other ops: the trail ends
    if (ir::is_elementwise(op.code)) s = elementwise(op);
    else if (op.code == Opcode::iota) s.knows_positions = true;
    else if (ir::is_move(op.code)) s = move(op);
    else if (op.code == Opcode::dot) s = dot(id);
    else if (ir::is_reduce(op.code)) s = reduce(id, op.ints(Attr::axes));
    else if (ir::is_argreduce(op.code)) s = reduce(id, op.ints(Attr::axis));
    else if (ir::is_scan(op.code)) s = scan(id);
    for (const Value r : op.results) state(r) = s;
  }

  State elementwise(const Op& op) const {
    State s;
    for (const Value v : op.operands) s.knows_positions |= state(v).knows_positions;
    if (s.knows_positions) return s;
    const auto hides = [&](Value v) {  // a comparison with a number, as that of a ReLU, does not
      return !state(v).overhangs() && !state(v).mixed && !(ir::is_comparison(op.code) && is_constant(v));
    };
    if (op.code != Opcode::select && may_hide(op) && std::any_of(op.operands.begin(), op.operands.end(), hides))
      return s;
    for (const Value v : op.operands) {
      const State& o = state(v);
      if (o.mixed && !s.mixed) s.mixed = o.mixed;
      if (o.ends.empty()) continue;
      s.ends.resize(o.ends.size());
      for (size_t d = 0; d < o.ends.size(); ++d) s.ends[d] = join(s.ends[d], o.ends[d]);
    }
    if (op.code != Opcode::select) return s;
    // A choice by the data itself, as that of a ReLU, leaves overhang as it is; any other may remove it.
    const State& by = state(op.operands[0]);
    if (!by.mixed) s.mixed.reset();
    for (size_t d = 0; d < s.ends.size(); ++d)
      if (by.ends.empty() || !by.ends[d].any()) s.ends[d] = {};
    return s;
  }
  /// An operand that is specified may decide the result alone: 0 of a product of integers, all ones of a maximum. A
  /// float's NaN stays NaN in most arithmetic.
  bool may_hide(const Op& op) const {
    if (op.operands.size() < 2) return false;
    if (ir::is_comparison(op.code)) return true;
    const DType t = k_.type(op.operands[0]).dtype;
    if (is_float(t)) return hides_nan(op.code);
    return op.code != Opcode::add && op.code != Opcode::sub && op.code != Opcode::xor_;
  }
  /// As pow does: 1 to the power NaN is 1.
  static bool hides_nan(Opcode code) {
    constexpr uint64_t nan = 0x7fc00000, others[] = {0, 0x3f800000, 0x7f800000};  // 0, 1, infinity
    for (size_t i = 0; i < static_cast<size_t>(ir::info(code).arity); ++i)
      for (const uint64_t other : others) {
        std::array<uint64_t, 3> operands{other, other, other};
        operands[i] = nan;
        const uint64_t result = reference::eval(code, DType::f32, DType::f32, operands.data());
        if ((result & 0x7fffffff) <= others[2]) return true;
      }
    return false;
  }

  bool is_constant(Value v) const {
    const Op* op = k_.def(v);
    while (op && (op->code == Opcode::broadcast || op->code == Opcode::convert)) op = k_.def(op->operands[0]);
    return op && op->code == Opcode::constant;
  }

  State move(const Op& op) const {
    const State& from = state(op.operands[0]);
    State s{{}, from.mixed, from.knows_positions};
    if (op.operands.size() > 1) {
      for (const Value v : op.operands) s.knows_positions |= state(v).knows_positions;
      s.mixed.reset();
      return s;
    }
    const std::optional<std::vector<ir::DimSource>> sources = ir::move_dims(k_, op);
    if (from.ends.empty() || !sources) return s;
    const Shape &in = k_.type(op.operands[0]).shape, &out = k_.type(op.results[0]).shape;
    s.ends.resize(out.size());
    for (size_t d = 0; d < in.size(); ++d)
      if (const ir::DimSource& source = (*sources)[d]; source.dim >= 0) {
        const auto to = static_cast<size_t>(source.dim);
        s.ends[to] = source.whole ? from.ends[d] : moved(from.ends[d], in[d], source, out[to]);
      }
    return s;
  }
  /// Of `size` positions that the source takes from a dim of n.
  static Ends moved(const Ends& e, int64_t n, const ir::DimSource& source, int64_t size) {
    if (!e.any()) return e;
    const auto below = [&](int64_t i) { return source.offset + i * source.stride < e.low; };
    const auto above = [&](int64_t i) { return source.offset + i * source.stride >= n - e.high; };
    const bool up = source.stride > 0;
    Ends left{0, 0, e.block, e.dim};
    for (int64_t i = 0; i < size && (up ? below(i) : above(i)); ++i) ++left.low;
    for (int64_t i = size; i-- > 0 && (up ? above(i) : below(i));) ++left.high;
    return left;
  }

  State reduce(OpId id, const std::vector<int64_t>& axes) const {
    const Op& op = k_.op(id);
    const State& from = state(op.operands[0]);
    State s{{}, from.mixed, false};
    for (size_t d = 0; d < from.ends.size(); ++d) {
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) s.ends.push_back(from.ends[d]);
      else if (from.ends[d].any() && !s.mixed) s.mixed = {id, from.ends[d]};
    }
    return s;
  }
  State scan(OpId id) const {
    const Op& op = k_.op(id);
    State s = state(op.operands[0]);
    if (s.ends.empty()) return s;
    // Elements before the overhang do not see it.
    Ends& e = s.ends[static_cast<size_t>(op.attr(Attr::axis))];
    if (op.attr_or(Attr::reverse, 0) != 0 ? e.high > 0 : e.low > 0) {
      if (!s.mixed) s.mixed = {id, e};
      e = {};
    }
    return s;
  }
  State dot(OpId id) const {
    const Op& op = k_.op(id);
    const State &a = state(op.operands[0]), &b = state(op.operands[1]);
    const ir::DotDims dims = ir::dot_dims(k_, op);
    State s{{}, a.mixed ? a.mixed : b.mixed, false};
    const auto of = [](const State& x, int64_t d) { return x.ends.empty() ? Ends{} : x.ends[static_cast<size_t>(d)]; };
    // A float 0 times what is there may be NaN; of integers one side may be 0 there.
    const bool one_is_enough = is_float(k_.type(op.operands[0]).dtype);
    for (size_t i = 0; i < dims.lhs_contract.size() && !s.mixed; ++i) {
      const Ends x = of(a, dims.lhs_contract[i]), y = of(b, dims.rhs_contract[i]);
      if (one_is_enough ? x.any() || y.any() : x.any() && y.any()) s.mixed = {id, x.any() ? x : y};
    }
    for (size_t i = 0; i < dims.lhs_batch.size(); ++i)
      s.ends.push_back(join(of(a, dims.lhs_batch[i]), of(b, dims.rhs_batch[i])));
    for (const int64_t d : dims.lhs_free) s.ends.push_back(of(a, d));
    for (const int64_t d : dims.rhs_free) s.ends.push_back(of(b, d));
    if (op.operands.size() > 2 && !s.mixed) s.mixed = state(op.operands[2]).mixed;
    return s;
  }

  void access(OpId id, bool certain) {
    const Op& op = k_.op(id);
    const Value ref = op.operands[0];
    const int at = op.value_position();
    const std::optional<Mixed> given = at < 0 ? std::nullopt : state(op.operands[static_cast<size_t>(at)]).mixed;
    State found;
    if (op.code == Opcode::load && certain && !load_) found = loaded(op);
    if (const auto it = scratch_.find(ref); it != scratch_.end() && certain && !op.has_mask()) found.mixed = it->second;
    if (load_ && certain && load_->load == id) found.mixed = Mixed{id, {}};
    for (const Value r : op.results) state(r) = found;
    if (!ir::writes_ref(op.code)) return;
    const bool mixed = given && certain && !op.has_mask(), overwrites = ir::overwrites_ref(op.code);
    const bool block = k_.value(ref).region == k_.body && k_.value(ref).number < k_.blocks.size();
    const auto box = block ? box_in_array(op) : std::nullopt;
    if (load_ && mixed && (!block || (box && !box->empty()))) return report(*given, ref);
    if (mixed && block && box && !box->empty() && (overwrites || op.code == Opcode::addupdate))
      stored_.push_back({ref, *box, *given});
    else if (mixed && !block && is_whole(op)) scratch_[ref] = *given;
    else if (overwrites) forget(ref, box);
  }
  /// What was stored there is not what stays.
  void forget(Value ref, const std::optional<Box>& box) {
    scratch_.erase(ref);
    std::erase_if(stored_, [&](const Stored& x) { return x.ref == ref && (!box || x.box.meets(*box)); });
  }
  bool is_whole(const Op& op) const {
    const Shape& shape = k_.type(op.operands[0]).shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (!(op.index[d] == ir::Index::all(shape[d]))) return false;
    return true;
  }
  /// The elements of the array that a store surely takes; nothing if that is not known.
  std::optional<Box> box_in_array(const Op& op) {
    const size_t i = k_.value(op.operands[0]).number;
    if (!places_[i]) return {};
    for (size_t d = 0; d < op.index.size(); ++d) {
      const ir::Index::Slice* x = op.index[d].slice();
      if ((x && x->step != 1 && x->size > 1) || !start_of(k_, programs_, op, d)) return {};
    }
    return box_of(k_, programs_, op, c_.arrays[i], *places_[i]);
  }
  struct Stored {
    Value ref;
    Box box;
    Mixed mixed;
  };
  /// A program after the current one may store there, too.
  bool stored_later(const Stored& x) {
    const std::vector<int64_t> now = programs_.program();
    const size_t block = k_.value(x.ref).number;
    bool later = programs_.count() > kMostPrograms;
    if (!later)
      programs_.each([&] {
        if (programs_.program() <= now) return true;
        const auto places = place_of(c_, programs_, block);
        later = !places;
        if (places) {
          Box all;
          for (const Place& p : *places) all.dims.emplace_back(p.start, p.start + p.size);
          later = all.meets(x.box);
        }
        return !later;
      });
    programs_.move_to(now);
    return later;
  }
  State loaded(const Op& op) const {
    State s;
    const ir::ValueInfo& info = k_.value(op.operands[0]);
    if (info.region != k_.body || info.number >= k_.blocks.size() || op.has_mask()) return s;
    const size_t block = info.number;
    const auto& places = places_[block];
    const ir::AccessDims form = ir::access_dims(k_, op);
    if (!places || form.arrays || k_.is_stored(static_cast<int>(block))) return s;
    s.ends.resize(form.shape.size());
    for (size_t d = 0, at = 0; d < places->size(); ++d) {
      const Place& p = (*places)[d];
      if (!p.seen) continue;
      const ir::Index::Slice x = op.index[at++].as_slice();
      const int to = form.slice[at - 1];
      const auto start = to < 0 ? std::nullopt : start_of(k_, programs_, op, at - 1);
      if (!start) continue;
      Ends e{0, 0, block, at - 1};
      const auto there = [&](int64_t i) {
        const int64_t n = p.start + *start + i * x.step;
        return *start + i * x.step < p.size && n >= 0 && n < c_.arrays[block][d];
      };
      for (int64_t i = 0; i < x.size && !there(i); ++i) ++e.low;
      if (e.low == x.size) e = {0, e.low, block, at - 1};  // all of it
      else
        for (int64_t i = x.size; i-- > 0 && !there(i);) ++e.high;
      s.ends[static_cast<size_t>(to)] = e;
    }
    if (!s.overhangs()) s.ends.clear();
    return s;
  }

  void report(const Mixed& m, Value to) {
    if (!reported_.insert(m.op.index).second) return;
    if (load_) return c_.report(load_->what, k_.op(m.op).loc, load_->note);
    const Op& op = k_.op(m.op);
    c_.report(c_.k.blocks[m.ends.block].origin + ": in " + c_.program(programs_.program()) + " dim " +
                  std::to_string(m.ends.dim) + " of the block has " +
                  plural(static_cast<size_t>(m.ends.low + m.ends.high), "element") + " beyond the array, and " +
                  std::string(name(op.code)) + " takes them in without a mask: what it stores to " + c_.ref(to) +
                  " is unspecified",
              op.loc, "replace them first, as in where(position < size, x, 0), or load with a mask and other");
  }

  State& state(Value v) { return states_[v.index]; }
  const State& state(Value v) const { return states_[v.index]; }

  Context& c_;
  const ir::Kernel& k_;
  passes::Programs& programs_;
  std::vector<std::optional<std::vector<Place>>> places_;
  std::vector<State> states_;
  std::map<Value, Mixed> scratch_;  // all of it holds some
  std::vector<Stored> stored_;      // of the current program, so far
  const EarlyLoad* load_ = nullptr;
  std::set<uint32_t> reported_;
};
}  // namespace

void find_unspecified(Context& c, const std::vector<EarlyLoad>& early) {
  passes::Programs programs(c.k, c.grid);
  // One program for each set of dims that hang over: the last, in which sums that go on over the grid come to their
  // end.
  std::map<std::vector<std::pair<size_t, size_t>>, std::vector<int64_t>> chosen;
  int64_t seen = 0;
  programs.each([&] {
    const auto hanging = Overhang::hanging(c, programs);
    if (!hanging.empty()) chosen[hanging] = programs.program();
    return ++seen < kMostPrograms && chosen.size() < 64;
  });
  Overhang overhang(c, programs);
  for (const auto& [dims, at] : chosen) {
    programs.move_to(at);
    overhang.follow();
  }
  for (const EarlyLoad& e : early) {
    programs.move_to(e.program);
    overhang.follow(&e);
  }
}

}  // namespace tessera::lint
