#include "codegen/lane/cut.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "codegen/lane/loops.h"
#include "codegen/lane/steps.h"
#include "codegen/lane/uniformity.h"
#include "codegen/lane/verify.h"
#include "engine/ir/builder.h"
#include "engine/ir/compact.h"
#include "engine/ir/walk.h"

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

class Cutter {
 public:
  Cutter(Kernel& k) : k_(k), b_(k) {}

  std::optional<CutLoops> run(const Target& target) {
    const auto trip_counts = max_trip_counts(k_, target);
    unit_loop();
    std::optional<Steps> steps = plan_steps(k_, target.max_loop_iterations, trip_counts);
    if (!steps) return std::nullopt;
    steps_ = std::move(*steps);
    const Extent& total = steps_.total;
    if (steps_.open || total.value().value_or(int64_t{INT32_MAX} + 1) > INT32_MAX) step_ = DType::i64;
    info_ = analyze_uniformity(k_);
    for (const Op& o : k_.ops) synchronises_ = synchronises_ || ir::is_group(o.code) || ir::is_matrix(o.code);
    bytes_ = k_.lane.scratch_bytes;
    prologue_ = b_.new_region({});
    k_.lane.steps_extent = static_cast<int32_t>(k_.lane.extents.size());
    k_.lane.open_ended = steps_.open;
    k_.lane.extents.insert(k_.lane.extents.end(), {Extent(0), total});
    k_.lane.extent_is_64.insert(k_.lane.extent_is_64.end(), 2, step_ == DType::i64);
    first_ = pushed(k_.lane.steps_extent);
    end_ = pushed(k_.lane.steps_extent + 1);
    if (steps_.open) begin_open();
    end_ = region(k_.body, first_, end_);
    if (steps_.open) end_open(total);
    const int64_t copied = keep_shared(total);
    auto& ops = k_.region(k_.body).ops;
    const auto& head = k_.region(prologue_).ops;
    ops.insert(ops.begin(), head.begin(), head.end());
    k_.lane.scratch_bytes = (bytes_ + 63) / 64 * 64;
    ir::compact(k_);
    return CutLoops{k_.lane.extents[static_cast<size_t>(k_.lane.steps_extent) + 1],
                    steps_.at_most ? std::optional(*steps_.at_most + Extent(copied)) : std::nullopt};
  }

 private:
  struct Kept {
    Value ref, index;
    DType dtype;
    bool shared = false;
  };

  bool is_unit_loop(const Op& o) const {
    const Op* by = o.code == Opcode::for_ ? k_.def(o.operands[2]) : nullptr;
    return by && by->code == Opcode::num_workgroups;
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
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), k_.region(aside).ops.begin(),
                  k_.region(aside).ops.end());
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
  Value at_start(F f) {
    const RegionId at = b_.region();
    b_.set_region(prologue_);
    const Value v = f();
    b_.set_region(at);
    return v;
  }
  Value pushed(int32_t i) {
    return at_start([&] {
      Op o{.code = Opcode::extent};
      o.set(ir::Attr::index, i);
      return b_.one(std::move(o), Type::array(step_));
    });
  }
  /// Of steps.
  Value number(const Extent& e) {
    const auto [it, fresh] = numbers_.try_emplace(to_string(e));
    if (!fresh) return it->second;
    if (const auto n = e.value()) return it->second = at_start([&] { return b_.constant_int(step_, *n); });
    k_.lane.extents.push_back(e);
    k_.lane.extent_is_64.push_back(step_ == DType::i64);
    return it->second = pushed(static_cast<int32_t>(k_.lane.extents.size()) - 1);
  }
  Value i32(int64_t n) {
    const auto [it, fresh] = words_.try_emplace(n);
    if (fresh) it->second = at_start([&] { return b_.constant_int(DType::i32, n); });
    return it->second;
  }
  Value one_invocation() {
    const Value zero = i32(0);
    return two(Opcode::eq, local(), zero);
  }
  Value none() { return number(Extent(0)); }
  Value local() {
    if (!local_) local_ = at_start([&] { return b_.one({.code = Opcode::local_index}, Type::array(DType::i32)); });
    return local_;
  }
  // Of calls in the same expression only one may make an op: compilers differ in which of two arguments they make
  // first.
  Value two(Opcode c, Value a, Value b) { return b_.elementwise(c, {a, b}); }
  Value minus(Value a, const Extent& e) { return e == Extent(0) ? a : two(Opcode::sub, a, number(e)); }
  Value less(Value a, Value b) { return two(Opcode::lt, a, b); }
  Value zero(DType t) {
    const auto [it, fresh] = zeros_.try_emplace(t);
    if (fresh) it->second = at_start([&] { return b_.constant(t, 0); });
    return it->second;
  }

  // ---- what is kept from step to step

  Kept keep(Value like, RegionId where) {
    // Barriers and subgroup ops need conditions that stay the same in a whole group.
    return room(k_.type(like).dtype, synchronises_ && info_of(like) == Uniformity::workgroup &&
                                         info_.control[where.index] == Uniformity::workgroup);
  }
  Kept room(DType t, bool shared) {
    Kept s;
    s.dtype = t;
    s.shared = shared;
    const DType as = held(s.dtype);
    const int64_t n = s.shared ? 1 : k_.lane.workgroup_size, size = size_bytes(as);
    bytes_ = (bytes_ + size - 1) / size * size;
    s.ref = at_start([&] {
      Op o{.code = Opcode::alloc_scratch};
      o.set(ir::Attr::offset, bytes_);
      return b_.one(std::move(o), Type::ref(as, {n}, ir::MemorySpace::global));
    });
    s.index = s.shared ? i32(0) : local();
    bytes_ += n * size;
    return s;
  }
  Uniformity info_of(Value v) const {
    return v.index < info_.values.size() ? info_.values[v.index] : Uniformity::varying;
  }
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
    o.index = {ir::Index::at(ir::Index::Dynamic{o.operands.size()})};
    o.operands.push_back(s.index);
    const Value v = b_.one(std::move(o));
    if (held(s.dtype) == s.dtype) return v;
    return s.dtype == DType::boolean ? two(Opcode::ne, v, zero(DType::i32)) : b_.convert(v, s.dtype);
  }
  void store(const Kept& s, Value v) {
    Op o{.code = Opcode::store, .operands = {s.ref, b_.convert(v, held(s.dtype)), s.index}};
    o.index = {ir::Index::at(ir::Index::Dynamic{2})};
    b_.append(std::move(o));
  }
  void store_all(const std::vector<Kept>& kept, const std::vector<Value>& values) {
    for (size_t i = 0; i < kept.size(); ++i)
      if (!kept[i].shared) store(kept[i], values[i]);
    if (std::none_of(kept.begin(), kept.end(), [](const Kept& s) { return s.shared; })) return;
    barrier();  // others may still have to load what the last dispatch left
    b_.when(one_invocation(), [&] {
      for (size_t i = 0; i < kept.size(); ++i)
        if (kept[i].shared) store(kept[i], values[i]);
    });
  }
  void barrier() {
    if (k_.lane.workgroup_size > 1) b_.append({.code = Opcode::barrier});
  }

  /// A dispatch is told whether it is the first (bit 0: no) and whether it is to say what is left (bit 1), and how many
  /// steps it has.
  void begin_open() {
    how_ = first_;
    place_ = room(step_, true);
    first_ = at_start([&] { return load(place_, told(1)); });
    end_ = at_start([&] { return two(Opcode::add, first_, end_); });
  }
  void end_open(const Extent& total) {
    const OpId last = k_.region(k_.body).ops.back();
    k_.region(k_.body).ops.pop_back();
    b_.set_region(k_.body);
    b_.set_loc(k_.loc);
    barrier();
    b_.when(one_invocation(), [&] { store(place_, end_); });
    const Value asked = told(2);
    report(two(Opcode::and_, less(end_, number(total)), asked), Program::kUnfinished);
    k_.region(k_.body).ops.push_back(last);
  }
  Value told(int64_t bit) {
    const Value no = none();
    return two(Opcode::ne, two(Opcode::and_, how_, number(Extent(bit))), no);
  }
  void report(Value that, uint32_t bit) {
    k_.lane.report_bytes = std::max<int64_t>(k_.lane.report_bytes, 4);
    Op o{.code = Opcode::report, .operands = {that}};
    o.set(ir::Attr::mask, bit);
    b_.append(std::move(o));
  }

  /// Shared memory is gone at the end of a dispatch.
  /// Returns the iterations of that.
  int64_t keep_shared(const Extent& total) {
    const int64_t words = (k_.lane.shared_bytes + 3) / 4;
    if (words == 0) return 0;
    k_.lane.shared_bytes = 4 * words;
    bytes_ = (bytes_ + 3) / 4 * 4;
    const auto words_of = [&](Opcode c, int64_t offset, ir::MemorySpace space) {
      return at_start([&] {
        Op o{.code = c};
        o.set(ir::Attr::offset, offset);
        return b_.one(std::move(o), Type::ref(DType::i32, {words}, space));
      });
    };
    const Value shared = words_of(Opcode::alloc_shared, 0, ir::MemorySpace::shared),
                scratch = words_of(Opcode::alloc_scratch, bytes_, ir::MemorySpace::global);
    bytes_ += 4 * words;
    const auto copy = [&](Value from, Value to) {
      const Value all_lanes = i32(k_.lane.workgroup_size), count = i32(words);
      b_.for_loop(local(), count, all_lanes, {}, [&](Value w, const std::vector<Value>&) {
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
    b_.when(less(none(), first_), [&] {
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
    return 2 * (cdiv(words, int64_t{k_.lane.workgroup_size}) + 2);
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
    ir::each_op_from(k_, id, [&](OpId o) { ops.insert(o.index); });
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
    if (ir::is_branch(o.code)) {
      for (const RegionId r : o.regions)
        for (const OpId id : k_.region(r).ops)
          if (!repeatable(k_.op(id), guarded, loads)) return false;
      return true;
    }
    return o.code == Opcode::yield || ir::info(o.code).effect == ir::Effect::pure;
  }
  /// Made from ids, sizes, loops' counters and memory that nothing writes: right at every step. Any other op may have
  /// any value before its own step.
  bool stable(const Op& o) const {
    const auto depends = [&](const Op& x) {
      return std::any_of(x.operands.begin(), x.operands.end(), [&](Value v) { return unstable_.contains(v.index); });
    };
    return !depends(o) && !ir::any_op_inside(k_, o, [&](OpId id) { return depends(k_.op(id)); });
  }
  void unstable(const std::vector<Value>& values) {
    for (const Value v : values) unstable_.insert(v.index);
  }

  /// Returns the end, with what was skipped.
  Value region(RegionId r, Value first, Value end) {
    const std::vector<OpId> ops = std::move(k_.region(r).ops);
    k_.region(r).ops.clear();
    const Extent time = steps_.time.at(r.index);
    std::vector<OpId> guarded;
    std::unordered_set<uint32_t> made;  // by those
    for (const OpId id : ops) {
      if (steps_.children.contains(id.index)) {
        const Extent start = steps_.start.at(id.index);
        run_in_step(guarded, r, first, end, steps_.before.at(id.index), false);
        guarded.clear();
        made.clear();
        end = child(id, r, first, end, start, time);
        continue;
      }
      if (k_.op(id).code == Opcode::yield) {
        // A dispatch that runs the region's last step ends the region; one that ends behind an earlier one does not.
        const Extent& tail = steps_.tail.at(r.index);
        run_in_step(guarded, r, first, end, tail, tail == time - Extent(1));
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
    return end;
  }

  /// The ops of region r that run in its step `step` alone; what they make is kept, unless that is the region's last
  /// step, behind which nothing but the region's end uses it.
  void run_in_step(const std::vector<OpId>& ops, RegionId r, Value first, Value end, const Extent& step, bool last) {
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
    const Value before_end = less(at, end),
                runs = two(Opcode::and_, b_.elementwise(Opcode::not_, {less(at, first)}), before_end);
    const RegionId then = b_.new_region({}), otherwise = b_.new_region({});
    k_.region(then).ops = ops;
    b_.set_region(then);
    if (!kept.empty()) b_.when(less(end, number(steps_.time.at(r.index))), [&] { store_all(kept, live); });
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

  /// An op of region r with steps of its own, from `start` on. Returns the region's end.
  Value child(OpId id, RegionId r, Value first, Value region_end, const Extent& start, const Extent& time) {
    const Op o = k_.op(id);
    b_.set_region(r);
    b_.set_loc(o.loc);
    std::vector<Kept> kept;
    for (const Value v : o.results) kept.push_back(keep(v, r));
    const Value from = minus(first, start), to = minus(region_end, start);
    const Value end = ir::is_branch(o.code) ? branch(id, r, from, to, kept)
                      : o.code == Opcode::for_ && (!steps_.open || steps_.whole.contains(o.regions[0].index))
                          ? loop(id, r, from, to, kept)
                          : iterations(id, r, from, to, kept);
    b_.set_region(r);
    if (end != to) region_end = start == Extent(0) ? end : two(Opcode::add, end, number(start));
    unstable(o.results);
    if (!kept.empty()) b_.when(less(region_end, number(time)), [&] { store_all(kept, o.results); });
    return region_end;
  }

  /// Where `done` holds at step `at` of op `id`, the op's remaining steps are skipped: the dispatch ends that much
  /// later. Before the op's first step nothing is done.
  Value skip(OpId id, Value first, Value end, Value done, Value at) {
    const Extent span = steps_.span.at(id.index);
    const Value rest = two(Opcode::add, end, two(Opcode::sub, number(span - steps_.passing.at(id.index)), at));
    const Value later = two(Opcode::max, number(span), rest);
    return b_.elementwise(Opcode::select, {two(Opcode::and_, done, less(first, number(span))), later, end});
  }
  bool agreed(RegionId r) const { return steps_.open && info_.control[r.index] == Uniformity::workgroup; }
  Value add_result(OpId id) {
    const Value v{static_cast<uint32_t>(k_.values.size())};
    k_.values.push_back({Type::array(step_), id, {}, static_cast<uint32_t>(k_.op(id).results.size())});
    k_.op(id).results.push_back(v);
    return v;
  }

  Value branch(OpId id, RegionId r, Value first, Value end, const std::vector<Kept>& kept) {
    const std::vector<RegionId> regions = k_.op(id).regions;
    const bool skips = agreed(regions[0]);
    k_.region(r).ops.push_back(id);
    for (const RegionId q : regions) {
      Value inner = region(q, first, end);
      const OpId last = k_.region(q).ops.back();
      k_.region(q).ops.pop_back();
      const std::vector<OpId> ops = std::move(k_.region(q).ops);
      k_.region(q).ops.clear();
      b_.set_region(q);
      const Value time = number(steps_.time.at(q.index));
      std::vector<Value> now = k_.op(last).operands;
      if (!ops.empty() || !kept.empty()) {
        // A branch that was done in an earlier dispatch does not run again: what its steps made is kept only where a
        // dispatch has ended among them.
        if (skips) now.push_back(inner);
        now = b_.if_else(
            less(first, time),
            [&] {
              k_.region(b_.region()).ops = ops;
              return now;
            },
            [&] {
              std::vector<Value> old;
              for (const Kept& s : kept) old.push_back(load(s, {}));
              if (skips) old.push_back(end);
              return old;
            });
        if (skips) inner = now.back(), now.pop_back();
      }
      if (skips) {
        const Value goes_on = less(none(), end);
        now.push_back(skip(id, first, inner,
                           two(Opcode::and_, b_.elementwise(Opcode::not_, {less(inner, time)}), goes_on), time));
      }
      k_.op(last).operands = now;
      k_.region(q).ops.push_back(last);
    }
    return skips ? add_result(id) : end;
  }

  /// Of a loop. Its bounds may be farther apart than an i32 holds, where its step is long.
  Value trip_count_of(Value lower, Value upper, int64_t by) {
    const auto from = ir::constant_int(k_, lower), to = ir::constant_int(k_, upper);
    if (from && to) return i32(*to > *from ? cdiv(*to - *from, by) : 0);
    if (by == 1) {  // bounds may be so far apart that their difference wraps
      const Value zero = i32(0), some = less(lower, upper), n = two(Opcode::sub, upper, lower);
      const Value wraps = less(n, zero), all = i32(INT32_MAX), most = b_.elementwise(Opcode::select, {wraps, all, n});
      return b_.elementwise(Opcode::select, {some, most, zero});
    }
    const auto wide = [&](Value v) { return b_.convert(v, DType::i64); };
    const Value one = wide(i32(1)), step = wide(i32(by)), most = wide(i32(INT32_MAX)), begin = wide(lower),
                after = two(Opcode::add, begin, one), end = wide(upper), span = two(Opcode::sub, end, after),
                whole = two(Opcode::div, span, step), n = two(Opcode::add, whole, one),
                trips = two(Opcode::min, n, most), narrow = b_.convert(trips, DType::i32), some = less(lower, upper),
                zero = i32(0);
    return b_.elementwise(Opcode::select, {some, narrow, zero});
  }

  /// The first iteration of a dispatch that begins at that step, or with `up` the one that it does not reach.
  /// Iterations that are whole belong to the dispatch of their first step; others begin and end in it.
  Value iteration_at(Value step, const Extent& time, bool up) {
    step = two(Opcode::max, step, none());
    if (time == Extent(1)) return step;
    const Value t = number(time), down = two(Opcode::div, step, t);
    if (!up) return down;
    const Value rest = two(Opcode::rem, step, t);
    return two(Opcode::add, down, b_.elementwise(Opcode::select, {less(none(), rest), number(Extent(1)), none()}));
  }
  std::vector<Value> begin_with(const std::vector<Value>& init, Value first, const std::vector<Kept>& kept) {
    if (init.empty()) return init;
    return b_.if_else(
        less(none(), first),
        [&] {
          std::vector<Value> old;
          for (const Kept& s : kept) old.push_back(load(s, {}));
          return old;
        },
        [&] { return init; });
  }
  /// Of a for, as steps; no more than there is room for.
  Value counted(const Op& o, int64_t by) {
    const Value trips = b_.convert(trip_count_of(o.operands[0], o.operands[1], by), step_);
    const RegionId body = o.regions[0];
    if (!steps_.in_data.contains(body.index)) return trips;
    report(less(number(steps_.trip_counts.at(body.index)), trips), Program::kLoopsCut);
    return two(Opcode::min, trips, number(steps_.trip_counts.at(body.index)));
  }

  /// A for whose iterations, of those of the dispatch, are one after another: all of them, or with what is left of the
  /// first and the last.
  Value loop(OpId id, RegionId r, Value first, Value end, const std::vector<Kept>& kept) {
    const Op o = k_.op(id);
    const RegionId body = o.regions[0];
    const Value lower = o.operands[0], upper = o.operands[1];
    const int64_t by = *ir::constant_int(k_, o.operands[2]);
    const Extent time = steps_.time.at(body.index);
    const bool whole = steps_.whole.contains(body.index);
    const Value trips = counted(o, by);
    const Value from = b_.convert(two(Opcode::min, iteration_at(first, time, whole), trips), DType::i32),
                to = b_.convert(two(Opcode::min, iteration_at(end, time, true), trips), DType::i32);
    const std::vector<Value> init = begin_with({o.operands.begin() + 3, o.operands.end()}, first, kept);
    std::vector<Value> now{from, to, i32(1)};
    // What is known of a loop's bounds stays visible.
    if (by == 1)
      now = {two(Opcode::max, lower, two(Opcode::add, lower, from)),
             two(Opcode::min, upper, two(Opcode::add, lower, to)), o.operands[2]};
    now.insert(now.end(), init.begin(), init.end());
    k_.op(id).operands = now;
    k_.region(r).ops.push_back(id);

    const std::vector<Value> args = k_.region(body).args;
    unstable({args.begin() + 1, args.end()});
    const std::vector<OpId> ops = std::move(k_.region(body).ops);
    k_.region(body).ops.clear();
    b_.set_region(body);
    Value iteration = args[0];
    if (by == 1) {
      if (!whole) iteration = two(Opcode::sub, args[0], lower);
    } else {
      const Value counter = two(Opcode::add, lower, two(Opcode::mul, args[0], i32(by)));
      std::unordered_set<uint32_t> own;
      for (const OpId x : k_.region(body).ops) own.insert(x.index);
      rename({{args[0].index, counter}}, own);
    }
    if (whole) {
      auto& all = k_.region(body).ops;
      all.insert(all.end(), ops.begin(), ops.end());
      if (!agreed(body)) return end;
      b_.set_region(r);
      const Value at = two(Opcode::mul, trips, number(time));
      return skip(id, first, end, less(at, end), at);
    }
    const Value of_iteration = number(time), start = two(Opcode::mul, b_.convert(iteration, step_), of_iteration);
    const Value end_in_round = two(Opcode::sub, end, start), first_in_round = two(Opcode::sub, first, start);
    part_of_round(body, ops, first_in_round, end_in_round, {args.begin() + 1, args.end()});
    return end;
  }

  /// Fills the body of a loop, behind what is in it. An iteration that is not done yet leaves what it began with.
  /// Returns the end.
  Value part_of_round(RegionId body, const std::vector<OpId>& ops, Value first, Value end,
                      const std::vector<Value>& began) {
    const std::vector<OpId> head = std::move(k_.region(body).ops);
    k_.region(body).ops = ops;
    end = region(body, first, end);
    auto& all = k_.region(body).ops;
    all.insert(all.begin(), head.begin(), head.end());
    if (began.empty()) return end;
    const std::vector<Value> done = k_.terminator(body).operands;
    std::vector<Value> yields;
    const OpId last = before_last(body, [&] {
      const Value unfinished = less(end, number(steps_.time.at(body.index)));
      for (size_t i = 0; i < done.size(); ++i)
        yields.push_back(b_.elementwise(Opcode::select, {unfinished, began[i], done[i]}));
    });
    k_.op(last).operands = yields;
    return end;
  }

  /// Emits in front of the yield of a region, where the builder stands. Returns the yield.
  template <class F> OpId before_last(RegionId region, const F& emit) {
    const OpId last = k_.region(region).ops.back();
    k_.region(region).ops.pop_back();
    emit();
    k_.region(region).ops.push_back(last);
    return last;
  }

  /// A loop being cut.
  struct Rounds {
    Op o;  // as it was
    RegionId body;
    Extent time;              // of one iteration
    bool whole;               // its iterations are never parted
    Value first;              // the dispatch's first step in it
    Value most;               // iterations
    std::vector<Type> types;  // of what it carries: what it did, its iteration, the dispatch's end
    bool is_for() const { return o.code == Opcode::for_; }
    int64_t step(const Kernel& k) const { return is_for() ? *ir::constant_int(k, o.operands[2]) : 1; }
    size_t carried() const { return types.size() - 2; }
  };

  /// Whether another iteration is to run in this dispatch.
  RegionId rounds_test(const Rounds& w) {
    const size_t n = w.carried();
    const RegionId test = b_.new_region(w.types);
    b_.set_region(test);
    const auto in_test = k_.region(test).args;
    const Value start = two(Opcode::mul, in_test[n], number(w.time)), more = less(in_test[n], w.most);
    const Value here = two(Opcode::and_, less(start, in_test[n + 1]), more);
    if (w.is_for()) {
      b_.yield({here});
      return test;
    }
    Names names;
    for (size_t i = 0; i < n; ++i) names[k_.region(w.o.regions[0]).args[i].index] = in_test[i];
    rename(names, {});
    const auto asked = [&] {
      std::vector<OpId> ops = k_.region(w.o.regions[0]).ops;
      const OpId last = ops.back();
      ops.pop_back();
      auto& at = k_.region(b_.region()).ops;
      at.insert(at.end(), ops.begin(), ops.end());
      return k_.op(last).operands;
    };
    const auto yes = [&] { return std::vector<Value>{at_start([&] { return b_.constant(DType::boolean, 1); })}; };
    // The test of an iteration that an earlier dispatch began has run already.
    b_.yield(b_.if_else(
        here, [&] { return w.whole ? asked() : b_.if_else(less(start, w.first), yes, asked); },
        [&] { return std::vector<Value>{zero(DType::boolean)}; }));
    return test;
  }

  /// One iteration: the loop's body, or the part of it that this dispatch has.
  void rounds_body(const Rounds& w) {
    const RegionId body = w.body;
    const size_t n = w.carried();
    const std::vector<Value> old = k_.region(body).args;
    k_.region(body).args.clear();
    for (const Type& t : w.types) b_.add_arg(body, t);
    const std::vector<Value> args = k_.region(body).args;
    const std::vector<Value> carried(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(n));
    unstable(carried);
    std::vector<OpId> ops = std::move(k_.region(body).ops);
    k_.region(body).ops.clear();
    b_.set_region(body);
    Names names;
    for (size_t i = 0; i < n; ++i) names[old[old.size() - n + i].index] = carried[i];
    if (w.is_for()) {
      const Value low = w.o.operands[0], step = i32(w.step(k_)),
                  counter = two(Opcode::add, low, two(Opcode::mul, b_.convert(args[n], DType::i32), step));
      names[old[0].index] = two(Opcode::max, low, two(Opcode::min, counter, two(Opcode::sub, w.o.operands[1], i32(1))));
    }
    rename(names, {});
    Value next = args[n + 1];
    if (w.whole) {
      auto& all = k_.region(body).ops;
      all.insert(all.end(), ops.begin(), ops.end());
    } else {
      const Value begun = two(Opcode::mul, args[n], number(w.time));
      const Value end_in_round = two(Opcode::sub, args[n + 1], begun),
                  first_in_round = two(Opcode::sub, w.first, begun);
      next = part_of_round(body, ops, first_in_round, end_in_round, carried);
      before_last(body, [&] { next = two(Opcode::add, next, begun); });
    }
    Value iteration;
    const OpId last = before_last(body, [&] { iteration = two(Opcode::add, args[n], number(Extent(1))); });
    k_.op(last).operands.insert(k_.op(last).operands.end(), {iteration, next});
  }

  /// A for or a while that carries its iteration and the dispatch's end, which what is in it may put off.
  Value iterations(OpId id, RegionId r, Value first, Value end, const std::vector<Kept>& kept) {
    Rounds w{.o = k_.op(id),
             .body = body_of(k_.op(id)),
             .time = {},
             .whole = false,
             .first = first,
             .most = {},
             .types = {}};
    w.time = steps_.time.at(w.body.index);
    w.whole = steps_.whole.contains(w.body.index);
    w.most = w.is_for() ? counted(w.o, w.step(k_)) : number(steps_.trip_counts.at(w.body.index));
    const Value from = two(Opcode::min, iteration_at(first, w.time, w.whole), w.most);
    std::vector<Value> init =
        begin_with({w.o.operands.begin() + (w.is_for() ? 3 : 0), w.o.operands.end()}, first, kept);
    init.insert(init.end(), {from, end});
    for (const Value v : init) w.types.push_back(k_.type(v));
    const RegionId test = rounds_test(w);
    rounds_body(w);

    k_.op(id) = {
        .code = Opcode::while_, .operands = init, .results = w.o.results, .regions = {test, w.body}, .loc = w.o.loc};
    k_.region(r).ops.push_back(id);
    const Value trips = add_result(id), reached = add_result(id);
    b_.set_region(r);
    if (!w.is_for()) {
      const Value begins = less(first, number(steps_.span.at(id.index)));
      report(two(Opcode::and_, two(Opcode::eq, trips, w.most), begins), Program::kLoopsCut);
    }
    if (!agreed(w.body)) return end;
    const Value at = two(Opcode::mul, trips, number(w.time));
    return skip(id, first, reached, less(at, reached), at);
  }

  Kernel& k_;
  ir::Builder b_;
  Steps steps_;
  UniformityInfo info_;
  bool synchronises_ = false;
  std::unordered_set<uint32_t> unstable_;
  DType step_ = DType::i32;
  std::unordered_map<std::string, Value> numbers_;
  std::unordered_map<int64_t, Value> words_;
  std::map<DType, Value> zeros_;
  RegionId prologue_;
  Value first_, end_, how_, local_;
  Kept place_;
  int64_t bytes_ = 0;
};
}  // namespace

std::optional<CutLoops> cut_loops(Kernel& k, const Target& target) {
  Kernel cut = k;
  const std::optional<CutLoops> loops = Cutter(cut).run(target);
  if (!loops || !find_lane_problems(cut).empty()) return std::nullopt;
  k = std::move(cut);
  return loops;
}

}  // namespace tessera::lane
