#include "codegen/lane/cut.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "codegen/lane/loops.h"
#include "codegen/lane/uniformity.h"
#include "codegen/lane/verify.h"
#include "engine/ir/builder.h"
#include "engine/ir/compact.h"

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

/// A region in which loops are cut takes its time: steps, of which each dispatch runs some. Its *children* are the ops that take steps of their own: loops
/// that are cut and branches around such. What stands before a child runs in the child's first step, what stands after the last one in the region's last step.
/// What that makes for later is kept in scratch from one dispatch to the next. Only pure ops and loads of what nobody writes run in every dispatch.
class Cutter {
 public:
  Cutter(Kernel& k, const Target& target, int64_t share) : k_(k), b_(k), rounds_(most_rounds(k, target)), limit_(target.max_loop_iterations), share_(share) {}

  bool run() {
    guess(k_.body);
    if (!cuttable(k_.body)) return false;
    unit_loop();
    const Extent total = plan(k_.body);
    if (const auto n = total.value(); n && *n > INT32_MAX) return false;
    info_ = analyze_uniformity(k_);
    for (const Op& o : k_.ops) synchronises_ = synchronises_ || o.code == Opcode::barrier || o.code == Opcode::subgroup_reduce || o.code == Opcode::subgroup_shuffle || o.code == Opcode::subgroup_shuffle_xor;
    bytes_ = k_.lane.scratch_bytes;
    prologue_ = b_.new_region({});
    k_.lane.steps_extent = static_cast<int32_t>(k_.lane.extents.size());
    k_.lane.extents.insert(k_.lane.extents.end(), {Extent(0), total});
    k_.lane.extent_is_64.insert(k_.lane.extent_is_64.end(), {false, false});
    first_ = pushed(k_.lane.steps_extent);
    end_ = pushed(k_.lane.steps_extent + 1);
    region(k_.body, first_, end_);
    keep_shared(total);
    auto& ops = k_.region(k_.body).ops;
    const auto& head = k_.region(prologue_).ops;
    ops.insert(ops.begin(), head.begin(), head.end());
    k_.lane.scratch_bytes = (bytes_ + 63) / 64 * 64;
    ir::compact(k_);
    return true;
  }

 private:
  struct Kept { Value ref, index; DType dtype; bool shared = false; };

  // ---- which loops

  std::optional<Extent> cost(RegionId r) const {
    Extent sum = 0;
    for (const OpId id : k_.region(r).ops) {
      const auto c = cost(k_.op(id));
      if (!c) return std::nullopt;
      sum = sum + *c;
    }
    return sum;
  }
  /// Iterations of one execution at most, about; none where data decides.
  std::optional<Extent> cost(const Op& o) const {
    if (o.code == Opcode::while_ || atomic_by_loop(k_, o)) return std::nullopt;
    Extent inside = 0;
    for (const RegionId r : o.regions) {
      const auto c = cost(r);
      if (!c) return std::nullopt;
      inside = inside + *c;
    }
    if (o.code != Opcode::for_ || is_unit_loop(o)) return inside;
    const auto it = rounds_.find(o.regions[0].index);
    if (it == rounds_.end()) return std::nullopt;
    return (it->second + Extent(1)) * (inside + Extent(1));
  }
  /// Loops that run as often as data says, with rounds so long that few of them fit a dispatch: they get as many steps as kDispatches hold, and report when that was not enough.
  /// Another one around such a loop is left as it is, since most of that many dispatches would find nothing to do. True if the region has one.
  bool guess(RegionId r) {
    constexpr int64_t kDispatches = 512, kRoundsThatFit = 64;
    bool any = false;
    for (const OpId id : k_.region(r).ops) {
      const Op& o = k_.op(id);
      bool inside = false;
      for (const RegionId inner : o.regions) inside = guess(inner) || inside;
      any = any || inside;
      if (inside || o.code != Opcode::for_ || is_unit_loop(o) || rounds_.contains(o.regions[0].index)) continue;
      const auto each = cost(o.regions[0]);
      const int64_t n = each ? each->value().value_or(0) : 0;
      if (n <= limit_ / kRoundsThatFit) continue;
      rounds_.insert_or_assign(o.regions[0].index, Extent(kDispatches * std::max<int64_t>(limit_ / n - 2, 1)));
      guessed_.insert(o.regions[0].index);
      any = true;
    }
    return any;
  }
  bool long_one(const Op& o) const {
    const auto c = cost(o);
    return !c || !c->is_static() || *c->value() > share_ || *c->value() < 0;
  }
  bool is_unit_loop(const Op& o) const {
    const Op* by = o.code == Opcode::for_ ? k_.def(o.operands[2]) : nullptr;
    return by && by->code == Opcode::num_workgroups;
  }
  bool cuttable(RegionId r) const {
    return std::any_of(k_.region(r).ops.begin(), k_.region(r).ops.end(), [&](OpId id) { return is_child(k_.op(id)); });
  }
  bool is_child(const Op& o) const {
    if (o.code == Opcode::if_ || is_unit_loop(o)) return std::any_of(o.regions.begin(), o.regions.end(), [&](RegionId r) { return cuttable(r); });
    if (o.code != Opcode::for_ || !long_one(o)) return false;
    const auto step = ir::constant_int(k_, o.operands[2]);
    return step && *step > 0 && rounds_.contains(o.regions[0].index);
  }

  static Extent most(const Extent& a, const Extent& b) { return a == b || b == Extent(1) ? a : a == Extent(1) ? b : Extent::make(Extent::Op::max, a, b); }
  Extent plan(RegionId r) {
    Extent t = 0;
    for (const OpId id : k_.region(r).ops) {
      const Op& o = k_.op(id);
      if (!is_child(o)) continue;
      children_.insert(id.index);
      Extent inside = plan(o.regions[0]);
      for (size_t i = 1; i < o.regions.size(); ++i) inside = most(inside, plan(o.regions[i]));
      start_[id.index] = t;
      t = t + (o.code == Opcode::for_ ? Extent::make(Extent::Op::max, rounds_.at(o.regions[0].index), Extent(1)) * inside : inside);
    }
    return time_[r.index] = t == Extent(0) ? Extent(1) : t;
  }

  /// The loop over units becomes a test: there is a workgroup for each.
  void unit_loop() {
    for (const OpId id : k_.region(k_.body).ops) {
      if (!is_unit_loop(k_.op(id))) continue;
      const Op loop = k_.op(id);
      b_.set_loc(loop.loc);
      auto& ops = k_.region(k_.body).ops;
      const auto at = static_cast<size_t>(std::find(ops.begin(), ops.end(), id) - ops.begin());
      const RegionId aside = b_.new_region({}), none = b_.new_region({});
      b_.set_region(none);
      b_.yield({});
      b_.set_region(aside);
      const Value there = b_.elementwise(Opcode::lt, {loop.operands[0], loop.operands[1]});
      k_.op(id) = {.code = Opcode::if_, .operands = {there}, .regions = {loop.regions[0], none}, .loc = loop.loc};
      auto& body = k_.region(k_.body).ops;
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), k_.region(aside).ops.begin(), k_.region(aside).ops.end());
      std::vector<Value>& args = k_.region(loop.regions[0]).args;
      rename({{args[0].index, loop.operands[0]}}, {});
      args.clear();
      break;
    }
    k_.lane.max_workgroups = 0;
  }

  // ---- numbers

  /// Emits what belongs to no place of the kernel, at its start.
  template <class F>
  Value ahead(F f) {
    const RegionId at = b_.region();
    b_.set_region(prologue_);
    const Value v = f();
    b_.set_region(at);
    return v;
  }
  Value pushed(int32_t i) {
    return ahead([&] {
      Op o{.code = Opcode::extent};
      o.set(ir::Attr::index, i);
      return b_.one(std::move(o), Type::array(DType::i32));
    });
  }
  Value number(const Extent& e) {
    const auto [it, fresh] = numbers_.try_emplace(to_string(e));
    if (!fresh) return it->second;
    if (const auto n = e.value()) return it->second = ahead([&] { return b_.constant_int(DType::i32, *n); });
    k_.lane.extents.push_back(e);
    k_.lane.extent_is_64.push_back(false);
    return it->second = pushed(static_cast<int32_t>(k_.lane.extents.size()) - 1);
  }
  Value i32(int64_t n) { return number(Extent(n)); }
  Value local() {
    if (!local_) local_ = ahead([&] { return b_.one({.code = Opcode::local_index}, Type::array(DType::i32)); });
    return local_;
  }
  Value two(Opcode c, Value a, Value b) { return b_.elementwise(c, {a, b}); }
  Value minus(Value a, const Extent& e) { return e == Extent(0) ? a : two(Opcode::sub, a, number(e)); }
  Value less(Value a, Value b) { return two(Opcode::lt, a, b); }
  Value zero(DType t) {
    const auto [it, fresh] = zeros_.try_emplace(t);
    if (fresh) it->second = ahead([&] { return b_.constant(t, 0); });
    return it->second;
  }

  // ---- what lives on

  Kept keep(Value like, RegionId where) {
    Kept s;
    s.dtype = k_.type(like).dtype;
    // Barriers and subgroup ops ask that their conditions stay the same in a whole group.
    s.shared = synchronises_ && info_of(like) == Uniformity::workgroup && info_.control[where.index] == Uniformity::workgroup;
    const DType as = held(s.dtype);
    const int64_t n = s.shared ? 1 : k_.lane.workgroup_size, size = size_bytes(as);
    bytes_ = (bytes_ + size - 1) / size * size;
    s.ref = ahead([&] {
      Op o{.code = Opcode::alloc_scratch};
      o.set(ir::Attr::offset, bytes_);
      return b_.one(std::move(o), Type::ref(as, {n}, ir::MemorySpace::global));
    });
    s.index = s.shared ? i32(0) : local();
    bytes_ += n * size;
    return s;
  }
  Uniformity info_of(Value v) const { return v.index < info_.values.size() ? info_.values[v.index] : Uniformity::varying; }
  /// Words, so that no two invocations share one.
  static DType held(DType t) { return size_bytes(t) >= 4 ? t : is_float(t) ? DType::f32 : DType::i32; }
  /// Where `there` is false: 0. It was never stored.
  Value load(const Kept& s, Value there) {
    Op o{.code = Opcode::load, .operands = {s.ref}};
    if (there) {
      o.operands.insert(o.operands.end(), {there, zero(held(s.dtype))});
      o.set(ir::Attr::mask, 1);
      o.set(ir::Attr::other, 1);
    }
    ir::Index ix = ir::Index::at(0);
    ix.start_operand = static_cast<int32_t>(o.operands.size());
    o.operands.push_back(s.index);
    o.index = {ix};
    const Value v = b_.one(std::move(o));
    if (held(s.dtype) == s.dtype) return v;
    return s.dtype == DType::boolean ? two(Opcode::ne, v, zero(DType::i32)) : b_.convert(v, s.dtype);
  }
  void store(const Kept& s, Value v) {
    Op o{.code = Opcode::store, .operands = {s.ref, b_.convert(v, held(s.dtype)), s.index}};
    ir::Index ix = ir::Index::at(0);
    ix.start_operand = 2;
    o.index = {ix};
    b_.append(std::move(o));
  }
  void store_all(const std::vector<Kept>& kept, const std::vector<Value>& values) {
    for (size_t i = 0; i < kept.size(); ++i)
      if (!kept[i].shared) store(kept[i], values[i]);
    if (std::none_of(kept.begin(), kept.end(), [](const Kept& s) { return s.shared; })) return;
    barrier();  // others may still have to load what the last dispatch left
    b_.when(two(Opcode::eq, local(), i32(0)), [&] {
      for (size_t i = 0; i < kept.size(); ++i)
        if (kept[i].shared) store(kept[i], values[i]);
    });
  }
  void barrier() {
    if (k_.lane.workgroup_size > 1) b_.append({.code = Opcode::barrier});
  }

  /// Shared memory is gone at the end of a dispatch.
  void keep_shared(const Extent& total) {
    const int64_t words = (k_.lane.shared_bytes + 3) / 4;
    if (words == 0) return;
    k_.lane.shared_bytes = 4 * words;
    bytes_ = (bytes_ + 3) / 4 * 4;
    const auto words_of = [&](Opcode c, int64_t offset, ir::MemorySpace space) {
      return ahead([&] {
        Op o{.code = c};
        o.set(ir::Attr::offset, offset);
        return b_.one(std::move(o), Type::ref(DType::i32, {words}, space));
      });
    };
    const Value shared = words_of(Opcode::alloc_shared, 0, ir::MemorySpace::shared), scratch = words_of(Opcode::alloc_scratch, bytes_, ir::MemorySpace::global);
    bytes_ += 4 * words;
    const auto copy = [&](Value from, Value to) {
      b_.for_loop(local(), i32(words), i32(k_.lane.workgroup_size), {}, [&](Value w, const std::vector<Value>&) {
        store({to, w, DType::i32}, load({from, w, DType::i32}, {}));
        return std::vector<Value>{};
      });
    };
    auto ops = std::move(k_.region(k_.body).ops);
    const OpId last = ops.back();
    ops.pop_back();
    k_.region(k_.body).ops.clear();
    b_.set_region(k_.body);
    b_.set_loc(k_.loc);
    b_.when(less(i32(0), first_), [&] {
      copy(scratch, shared);
      barrier();
    });
    auto& body = k_.region(k_.body).ops;
    body.insert(body.end(), ops.begin(), ops.end());
    b_.when(less(end_, number(total)), [&] {
      barrier();
      copy(shared, scratch);
    });
    k_.region(k_.body).ops.push_back(last);
  }

  // ---- emission

  using Names = std::unordered_map<uint32_t, Value>;
  void rename(const Names& to, const std::unordered_set<uint32_t>& but_in) {
    if (to.empty()) return;
    for (uint32_t i = 0; i < k_.ops.size(); ++i) {
      if (but_in.contains(i)) continue;
      for (Value& v : k_.ops[i].operands)
        if (const auto it = to.find(v.index); it != to.end()) v = it->second;
    }
  }
  void inside(OpId id, std::unordered_set<uint32_t>& ops) const {
    ops.insert(id.index);
    for (const RegionId r : k_.op(id).regions)
      for (const OpId o : k_.region(r).ops) inside(o, ops);
  }

  /// May run in every dispatch, whatever ran before.
  bool repeatable(const Op& o, const std::unordered_set<uint32_t>& guarded, bool& loads) const {
    for (const Value v : o.operands)
      if (guarded.contains(v.index)) return false;
    if (o.code == Opcode::load) {
      const Value root = root_of(k_, o.operands[0]);
      if (!root || k_.def(root) || info_.written[k_.value(root).number]) return false;
      loads = true;
      return true;
    }
    if (o.code == Opcode::if_) {
      for (const RegionId r : o.regions)
        for (const OpId id : k_.region(r).ops)
          if (!repeatable(k_.op(id), guarded, loads)) return false;
      return true;
    }
    return o.code == Opcode::yield || ir::info(o.code).effect == ir::Effect::pure;
  }
  /// Made from ids, sizes, loops' counters and what nobody writes: right at every time. Else what it is before its step may be anything.
  bool stable(const Op& o) const {
    for (const Value v : o.operands)
      if (unstable_.contains(v.index)) return false;
    for (const RegionId r : o.regions)
      for (const OpId id : k_.region(r).ops)
        if (!stable(k_.op(id))) return false;
    return true;
  }
  void unstable(const std::vector<Value>& values) {
    for (const Value v : values) unstable_.insert(v.index);
  }

  void region(RegionId r, Value first, Value end) {
    const std::vector<OpId> ops = std::move(k_.region(r).ops);
    k_.region(r).ops.clear();
    b_.set_region(r);
    const Extent time = time_.at(r.index);
    std::vector<OpId> guarded;
    std::unordered_set<uint32_t> made;  // by those
    for (const OpId id : ops) {
      if (children_.contains(id.index)) {
        const Extent start = start_.at(id.index);
        run_in_step(guarded, r, first, end, start, time, false);
        guarded.clear();
        made.clear();
        child(id, r, minus(first, start), minus(end, start), end, time);
        continue;
      }
      if (k_.op(id).code == Opcode::yield) {
        run_in_step(guarded, r, first, end, time - Extent(1), time, true);
        k_.region(r).ops.push_back(id);
        continue;
      }
      bool loads = false;
      const Op& o = k_.op(id);
      const bool is_stable = stable(o);
      if (repeatable(o, made, loads) && (is_stable || !loads)) {
        k_.region(r).ops.push_back(id);
        if (!is_stable) unstable(o.results);
      } else {
        guarded.push_back(id);
        for (const Value v : o.results) made.insert(v.index);
      }
    }
  }

  /// The ops of region r that run in its step `step` alone; what they make is kept, unless nothing but the region's end uses it.
  void run_in_step(const std::vector<OpId>& ops, RegionId r, Value first, Value end, const Extent& step, const Extent& time, bool last) {
    if (ops.empty()) return;
    std::unordered_set<uint32_t> within;
    std::unordered_map<uint32_t, size_t> made;
    std::vector<Value> in_order;
    for (const OpId id : ops) {
      inside(id, within);
      for (const Value v : k_.op(id).results) made.emplace(v.index, in_order.size()), in_order.push_back(v);
    }
    std::vector<bool> wanted(in_order.size(), false);
    const auto want = [&](Value v, const auto& self) -> void {
      const auto it = made.find(v.index);
      if (it == made.end() || wanted[it->second]) return;
      wanted[it->second] = true;
      if (k_.type(v).is_ref)
        for (const Value x : k_.def(v)->operands) self(x, self);
    };
    for (uint32_t i = 0; i < k_.ops.size(); ++i)
      if (!within.contains(i))
        for (const Value v : k_.ops[i].operands) want(v, want);
    std::vector<Value> live;
    std::vector<Kept> kept;
    for (size_t i = 0; i < in_order.size(); ++i)
      if (wanted[i] && !k_.type(in_order[i]).is_ref) live.push_back(in_order[i]);
    if (!last)
      for (const Value v : live) kept.push_back(keep(v, r));

    b_.set_region(r);
    const Value at = number(step);
    const Value runs = two(Opcode::and_, b_.elementwise(Opcode::not_, {less(at, first)}), less(at, end));
    const RegionId then = b_.new_region({}), otherwise = b_.new_region({});
    k_.region(then).ops = ops;
    b_.set_region(then);
    if (!kept.empty()) b_.when(less(end, number(time)), [&] { store_all(kept, live); });
    b_.yield(live);
    b_.set_region(otherwise);
    std::vector<Value> old;
    const Value before = kept.empty() ? Value{} : less(at, first);
    for (size_t i = 0; i < live.size(); ++i) old.push_back(last ? zero(k_.type(live[i]).dtype) : load(kept[i], before));
    b_.yield(old);
    b_.set_region(r);
    const OpId guard = b_.append({.code = Opcode::if_, .operands = {runs}, .regions = {then, otherwise}});
    inside(guard, within);
    Names names;
    for (size_t i = 0; i < live.size(); ++i) names[live[i].index] = k_.op(guard).results[i];
    unstable(k_.op(guard).results);
    // Refs are made again.
    for (size_t i = 0; i < in_order.size(); ++i) {
      if (!wanted[i] || !k_.type(in_order[i]).is_ref) continue;
      Op o = *k_.def(in_order[i]);
      for (Value& v : o.operands)
        if (const auto it = names.find(v.index); it != names.end()) v = it->second;
      const Value again = b_.one(std::move(o), k_.type(in_order[i]));
      unstable({again});
      names[in_order[i].index] = again;
    }
    rename(names, within);
  }

  /// An op of region r with steps of its own, the first of which is step 0 of `first` and `end`; `region_end` and `time` are the region's.
  void child(OpId id, RegionId r, Value first, Value end, Value region_end, const Extent& time) {
    const Op o = k_.op(id);
    b_.set_region(r);
    b_.set_loc(o.loc);
    std::vector<Kept> kept;
    for (const Value v : o.results) kept.push_back(keep(v, r));
    if (o.code == Opcode::for_) loop(id, r, first, end, kept);
    else branch(id, r, first, end, kept);
    b_.set_region(r);
    unstable(o.results);
    if (!kept.empty()) b_.when(less(region_end, number(time)), [&] { store_all(kept, o.results); });
  }

  void branch(OpId id, RegionId r, Value first, Value end, const std::vector<Kept>& kept) {
    const std::vector<RegionId> regions = k_.op(id).regions;
    k_.region(r).ops.push_back(id);
    for (const RegionId q : regions) {
      region(q, first, end);
      if (kept.empty()) continue;
      const OpId last = k_.region(q).ops.back();
      k_.region(q).ops.pop_back();
      b_.set_region(q);
      const std::vector<Value> results = k_.op(last).operands;
      // A branch that was done in an earlier dispatch.
      const std::vector<Value> now = b_.if_else(less(first, number(time_.at(q.index))), [&] { return results; }, [&] {
        std::vector<Value> old;
        for (const Kept& s : kept) old.push_back(load(s, {}));
        return old;
      });
      k_.op(last).operands = now;
      k_.region(q).ops.push_back(last);
    }
  }

  /// Of a loop. Its bounds may be farther apart than an i32 holds, where its step is long.
  Value rounds_of(Value lower, Value upper, int64_t by) {
    const auto from = ir::constant_int(k_, lower), to = ir::constant_int(k_, upper);
    if (from && to) return i32(*to > *from ? cdiv(*to - *from, by) : 0);
    if (by == 1) return two(Opcode::max, two(Opcode::sub, upper, lower), i32(0));
    const auto wide = [&](Value v) { return b_.convert(v, DType::i64); };
    const Value span = two(Opcode::sub, wide(upper), two(Opcode::add, wide(lower), wide(i32(1))));
    return b_.elementwise(Opcode::select, {less(lower, upper), b_.convert(two(Opcode::add, two(Opcode::div, span, wide(i32(by))), wide(i32(1))), DType::i32), i32(0)});
  }

  void loop(OpId id, RegionId r, Value first, Value end, const std::vector<Kept>& kept) {
    const std::vector<Value> operands = k_.op(id).operands;
    const RegionId body = k_.op(id).regions[0];
    const Value lower = operands[0], upper = operands[1];
    const int64_t by = *ir::constant_int(k_, operands[2]);
    const Extent time = time_.at(body.index);
    const bool whole = time == Extent(1);
    // Rounds begin and end with steps: from the one that holds the first to the one that holds the last.
    Value from = two(Opcode::max, first, i32(0)), to = two(Opcode::max, end, i32(0));
    if (!whole) {
      const Value t = number(time);
      from = two(Opcode::div, from, t);
      to = two(Opcode::add, two(Opcode::div, to, t), b_.elementwise(Opcode::select, {less(i32(0), two(Opcode::rem, to, t)), i32(1), i32(0)}));
    }
    const Value rounds = rounds_of(lower, upper, by);
    if (guessed_.contains(body.index)) {
      k_.lane.report_bytes = std::max<int64_t>(k_.lane.report_bytes, 4);
      Op report{.code = Opcode::report, .operands = {less(number(rounds_.at(body.index)), rounds)}};
      report.set(ir::Attr::mask, Program::kLoopsCut);
      b_.append(std::move(report));
    }
    from = two(Opcode::min, from, rounds);
    to = two(Opcode::min, to, rounds);
    std::vector<Value> init(operands.begin() + 3, operands.end());
    if (!init.empty()) {
      const Value resumed = less(i32(0), first);
      init = b_.if_else(resumed, [&] {
        std::vector<Value> old;
        for (const Kept& s : kept) old.push_back(load(s, {}));
        return old;
      }, [&] { return init; });
    }
    std::vector<Value> now{from, to, i32(1)};
    // What is known of a loop's bounds stays visible.
    if (by == 1) now = {two(Opcode::max, lower, two(Opcode::add, lower, from)), two(Opcode::min, upper, two(Opcode::add, lower, to)), operands[2]};
    now.insert(now.end(), init.begin(), init.end());
    k_.op(id).operands = now;
    k_.region(r).ops.push_back(id);

    const std::vector<Value> args = k_.region(body).args;
    unstable({args.begin() + 1, args.end()});
    const std::vector<OpId> ops = std::move(k_.region(body).ops);
    k_.region(body).ops.clear();
    b_.set_region(body);
    Value round = args[0];
    if (by == 1) {
      if (!whole) round = two(Opcode::sub, args[0], lower);
    } else {
      const Value counter = two(Opcode::add, lower, two(Opcode::mul, args[0], i32(by)));
      std::unordered_set<uint32_t> own;
      for (const OpId x : k_.region(body).ops) own.insert(x.index);
      rename({{args[0].index, counter}}, own);
    }
    if (whole) {
      auto& all = k_.region(body).ops;
      all.insert(all.end(), ops.begin(), ops.end());
      return;
    }
    const Value start = two(Opcode::mul, round, number(time)), f = two(Opcode::sub, first, start), e = two(Opcode::sub, end, start);
    const std::vector<OpId> head = std::move(k_.region(body).ops);
    k_.region(body).ops = ops;
    region(body, f, e);
    auto& all = k_.region(body).ops;
    all.insert(all.begin(), head.begin(), head.end());
    if (args.size() == 1) return;
    // A round that is not done yet leaves what it began with.
    const OpId last = all.back();
    all.pop_back();
    b_.set_region(body);
    const Value unfinished = less(e, number(time));
    std::vector<Value> yields;
    const std::vector<Value> done = k_.op(last).operands;
    for (size_t i = 0; i < done.size(); ++i) yields.push_back(b_.elementwise(Opcode::select, {unfinished, args[1 + i], done[i]}));
    k_.op(last).operands = yields;
    k_.region(body).ops.push_back(last);
  }

  Kernel& k_;
  ir::Builder b_;
  std::unordered_map<uint32_t, Extent> rounds_;  // per loop's region
  std::unordered_set<uint32_t> guessed_;         // those whose number of rounds was
  const int64_t limit_, share_;
  UniformityInfo info_;
  bool synchronises_ = false;
  std::unordered_set<uint32_t> children_, unstable_;
  std::unordered_map<uint32_t, Extent> time_, start_;  // per region, per child in its region
  std::unordered_map<std::string, Value> numbers_;
  std::map<DType, Value> zeros_;
  RegionId prologue_;
  Value first_, end_, local_;
  int64_t bytes_ = 0;
};
}  // namespace

bool cut_loops(Kernel& k, const Target& target, int64_t share) {
  Kernel cut = k;
  if (!Cutter(cut, target, share).run() || !find_lane_problems(cut).empty()) return false;
  k = std::move(cut);
  return true;
}

}  // namespace tessera::lane
