#include "codegen/lane/steps.h"

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/lane/loops.h"
#include "codegen/lane/uniformity.h"
#include "engine/ir/walk.h"

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId;

Extent capped(const Extent& e) {
  const auto v = e.value();
  return v && (*v > kEndless || *v < 0) ? Extent(kEndless) : e;
}
Extent plus(const Extent& a, const Extent& b) { return capped(a + b); }
Extent most(const Extent& a, const Extent& b) {
  const auto x = a.value(), y = b.value();
  if (x && y) return std::max(*x, *y);
  return a == b || y == 0 || y == 1 ? a : x == 0 || x == 1 ? b : Extent::make(Extent::Op::max, a, b);
}

class Planner {
  static constexpr int64_t kMostParts = int64_t{1} << 12;
  static constexpr int64_t kMostRoom = int64_t{1} << 20, kLeastRoom = int64_t{1} << 10;

 public:
  Planner(const Kernel& k, int64_t limit, std::unordered_map<uint32_t, Extent> trip_counts)
      : k_(k), limit_(limit), info_(analyze_uniformity(k)) {
    out_.trip_counts = std::move(trip_counts);
  }

  std::optional<Steps> run() {
    find_open(k_.body);
    if (out_.open) open_up(k_.body);
    Extent total = plan_all();
    // Steps whose iterations data decides would be a dispatch each, however few those are.
    if (unknown_ && !out_.open && total != Extent(0)) total = plan_open(total);
    // Where many short loops follow each other, none of them a long one, shorter ones are cut too.
    while (total != Extent(0) && too_long() && parts_ < kMostParts) {
      parts_ *= 4;
      total = plan_all();
    }
    if (total == Extent(0) || too_long()) return std::nullopt;
    if (const auto n = total.value(); n && !out_.open && *n > Program::kMostSteps) return std::nullopt;
    out_.total = total;
    // What lies around the steps is passed on the way in and out at every depth, a loop that has been unrolled in part
    // as two: its copies and what they leave.
    if (!unknown_) out_.at_most = plus(longest_, Extent(4 * (deepest_ + 1) * (loops_in(k_.body) + 1)));
    return std::move(out_);
  }

 private:
  /// The steps of everything; 0: nothing can be cut.
  Extent plan_all() {
    Steps fresh;
    fresh.open = out_.open, fresh.in_data = std::move(out_.in_data), fresh.trip_counts = std::move(out_.trip_counts);
    out_ = std::move(fresh);
    longest_ = 0, unknown_ = false, deepest_ = 0;
    if (!cuttable(k_.body)) return 0;
    Extent total = plan(k_.body, 0, 0);
    while (out_.open && !numbered(total)) {
      if ((room_ /= 2) < kLeastRoom) return 0;
      for (const uint32_t body : out_.in_data) out_.trip_counts.insert_or_assign(body, Extent(room_));
      total = plan(k_.body, 0, 0);
    }
    return total;
  }
  /// The steps of everything with the loops that data decides among them, where there are some and they can be
  /// numbered.
  Extent plan_open(const Extent& closed) {
    if (!ir::any_op(k_, k_.body, [&](OpId id) { return in_data(k_.op(id)); })) return closed;
    const auto trip_counts = out_.trip_counts;
    out_.open = true;
    open_up(k_.body);
    const Extent open = plan_all();
    if (open != Extent(0) && !too_long()) return open;
    out_.open = false;
    out_.in_data.clear();
    out_.trip_counts = trip_counts;
    return plan_all();
  }
  bool too_long() const {
    const auto n = longest_.value();
    return n && *n > limit_;
  }

  std::optional<Extent> cost(RegionId r) const {
    Extent sum = 0;
    for (const OpId id : k_.region(r).ops) {
      const auto c = cost(k_.op(id));
      if (!c) return std::nullopt;
      sum = plus(sum, *c);
    }
    return sum;
  }
  /// Iterations of one execution at most; none where data decides. A loop has one for its last test, which runs the
  /// body with no invocation in it, and one more if there are copies of the body.
  std::optional<Extent> cost(const Op& o) const {
    if (o.code == Opcode::while_ || atomic_by_loop(k_, o) ||
        (!o.regions.empty() && out_.in_data.contains(o.regions[0].index)))
      return std::nullopt;
    Extent inside = 0;
    for (const RegionId r : o.regions) {
      const auto c = cost(r);
      if (!c) return std::nullopt;
      inside = plus(inside, *c);
    }
    if (o.code != Opcode::for_) return inside;
    const auto it = out_.trip_counts.find(o.regions[0].index);
    if (it == out_.trip_counts.end()) return std::nullopt;
    return product(plus(it->second, Extent(2)), plus(inside, Extent(1)));
  }
  bool has_loop(const Op& o) const { return ir::is_loop(o.code) || atomic_by_loop(k_, o); }
  int64_t loops_in(RegionId r) const {
    int64_t n = 0;
    ir::each_op(k_, r, [&](OpId id) { n += has_loop(k_.op(id)); });
    return n;
  }
  int64_t loops_in(const Op& o) const {
    int64_t n = has_loop(o);
    ir::each_op_inside(k_, o, [&](OpId id) { n += has_loop(k_.op(id)); });
    return n;
  }
  /// About how many iterations it is.
  double guess(const Op& o) const {
    constexpr double kRoundsInData = 64, kRoundsOfSizes = 1024;
    double inside = 0;
    for (const RegionId r : o.regions)
      for (const OpId id : k_.region(r).ops) inside += guess(k_.op(id));
    if (!ir::is_loop(o.code)) return inside;
    const auto it = out_.trip_counts.find(o.regions[0].index);
    const double n = o.code == Opcode::while_ || it == out_.trip_counts.end()
                         ? kRoundsInData
                         : static_cast<double>(it->second.value().value_or(static_cast<int64_t>(kRoundsOfSizes)));
    return (n + 1) * (inside + 1);
  }
  /// As often as data says, but all invocations as often.
  bool in_data(const Op& o) const {
    if (o.code == Opcode::while_) return info_.control[o.regions[1].index] == Uniformity::workgroup;
    if (o.code != Opcode::for_ || out_.trip_counts.contains(o.regions[0].index)) return false;
    const auto step = ir::constant_int(k_, o.operands[2]);
    return step && *step > 0 && info_.control[o.regions[0].index] == Uniformity::workgroup;
  }
  void find_open(RegionId r) {
    out_.open = out_.open || ir::any_op(k_, r, [&](OpId id) {
                  const Op& o = k_.op(id);
                  return in_data(o) && guess(o) > static_cast<double>(limit_);
                });
  }
  /// All that are in data: what is long is so by those inside.
  void open_up(RegionId r) {
    ir::each_op(k_, r, [&](OpId id) {
      if (const Op& o = k_.op(id); in_data(o)) out_.in_data.insert(body_of(o).index);
    });
    ir::each_op(k_, r, [&](OpId id) {
      if (const Op& o = k_.op(id); !o.regions.empty() && out_.in_data.contains(body_of(o).index))
        out_.trip_counts.insert_or_assign(body_of(o).index, Extent(room_));
    });
  }
  /// In 64 bits, with ordinary sizes.
  static bool numbered(const Extent& total) {
    constexpr int64_t kOrdinary = 4096;
    std::vector<std::string> names;
    total.collect_names(names);
    DimValues dims;
    for (const std::string& n : names) dims[n] = kOrdinary;
    try {
      return total.eval(dims) < kEndless;
    } catch (const SpecError&) {
      return false;
    }
  }
  /// Not a small part of what a dispatch runs.
  bool long_one(const Op& o) const {
    const auto c = cost(o);
    return !c || !c->is_static() || *c->value() > limit_ / parts_ || *c->value() < 0;
  }
  bool cuttable(RegionId r) const {
    return std::any_of(k_.region(r).ops.begin(), k_.region(r).ops.end(), [&](OpId id) { return is_child(k_.op(id)); });
  }
  bool is_child(const Op& o) const {
    if (o.code == Opcode::while_) return out_.in_data.contains(body_of(o).index);
    if (ir::is_branch(o.code))
      return std::any_of(o.regions.begin(), o.regions.end(), [&](RegionId r) { return cuttable(r); });
    if (o.code != Opcode::for_ || !long_one(o)) return false;
    return ir::constant_int(k_, o.operands[2]) && out_.trip_counts.contains(o.regions[0].index);
  }

  /// Gives the region its steps, `own` ones before all others.
  Extent plan(RegionId r, Extent own, int64_t depth) {
    deepest_ = std::max(deepest_, depth);
    Extent t = 0;
    for (const OpId id : k_.region(r).ops) {
      const Op& o = k_.op(id);
      if (!is_child(o)) {
        own = plus(own, known(cost(o)));
        continue;
      }
      out_.children.insert(id.index);
      out_.before[id.index] = t;
      longest_ = most(longest_, own);
      t = plus(t, own);
      own = 0;
      out_.start[id.index] = t;
      out_.passing[id.index] = in_passing(o);
      t = plus(t, out_.span[id.index] = ir::is_branch(o.code) ? plan_branches(o, depth) : plan_rounds(o, depth));
    }
    longest_ = most(longest_, own);
    if (own == Extent(0) && t != Extent(0)) {
      out_.tail[r.index] = t - Extent(1);
    } else {
      out_.tail[r.index] = t;
      t = plus(t, own.is_static() && own != Extent(0) ? own : Extent::make(Extent::Op::max, own, Extent(1)));
    }
    return out_.time[r.index] = t;
  }
  /// The iterations, and the last test, which runs the loops in the body with no invocation in them.
  Extent plan_rounds(const Op& o, int64_t depth) {
    const RegionId body = body_of(o);
    const Extent test = o.code == Opcode::while_ ? plus(known(cost(o.regions[0])), Extent(1)) : Extent(1);
    if (cuttable(body)) {
      plan(body, test, depth + 1);
    } else {
      longest_ = most(longest_, out_.time[body.index] = plus(known(cost(body)), test));
      out_.whole.insert(body.index);
    }
    return plus(product(most(out_.trip_counts.at(body.index), Extent(1)), out_.time.at(body.index)), in_passing(o));
  }
  Extent in_passing(const Op& o) const { return Extent(loops_in(o) + (ir::is_branch(o.code) ? 0 : 1)); }
  /// Loops of a branch that is not taken are an iteration each.
  Extent plan_branches(const Op& o, int64_t depth) {
    Extent t = 0;
    for (const RegionId r : o.regions) t = most(t, plan(r, Extent(0), depth));
    return plus(t, in_passing(o));
  }
  Extent known(const std::optional<Extent>& c) {
    unknown_ = unknown_ || !c;
    return c.value_or(Extent(0));
  }

  const Kernel& k_;
  const int64_t limit_;
  const UniformityInfo info_;
  Steps out_;
  int64_t parts_ = 16;        // a loop that takes less than such a part of a dispatch is not cut
  int64_t room_ = kMostRoom;  // for iterations of each loop that is in data
  Extent longest_ = 0;        // of what is not cut
  bool unknown_ = false;      // how long some of it is
  int64_t deepest_ = 0;
};
}  // namespace

std::optional<Steps> plan_steps(const Kernel& k, int64_t limit, std::unordered_map<uint32_t, Extent> trip_counts) {
  return Planner(k, limit, std::move(trip_counts)).run();
}

}  // namespace tessera::lane
