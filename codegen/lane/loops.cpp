#include "codegen/lane/loops.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/ir/builder.h"
#include "engine/ir/walk.h"
#include "engine/passes/ranges.h"

namespace tessera::lane {
using ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Value;

int op_weight(const Kernel& k, const Op& op) {
  if (op.code == Opcode::pow) return 200;
  if (op.code == Opcode::rem)
    return !is_float(k.type(op.results[0]).dtype) ? 1 : size_bytes(k.type(op.results[0]).dtype) == 8 ? 500 : 200;
  if (op.code == Opcode::sin || op.code == Opcode::cos || op.code == Opcode::tan) return 100;
  return ir::info(op.code).transcendental ? 30 : 1;
}

Extent product(const Extent& a, const Extent& b) {
  const auto x = a.value(), y = b.value();
  int64_t xy;
  if (x && y) return __builtin_mul_overflow(*x, *y, &xy) ? kEndless : std::min(xy, kEndless);
  return a * b;
}

namespace {

/// Of a region, inner regions included; a large number if it has loops.
int weight(const Kernel& k, RegionId r) {
  constexpr int kMany = 1 << 20;
  int n = 0;
  const bool many = ir::any_op(k, r, [&](OpId id) {
    const Op& op = k.op(id);
    n += op_weight(k, op);
    return n > kMany || ir::is_loop(op.code) || atomic_by_loop(k, op);
  });
  return many ? kMany : n;
}

using Count = std::optional<Extent>;

Count combine(Extent::Op op, const Count& a, const Count& b) {
  return a && b ? Count(Extent::make(op, *a, *b)) : Count{};
}

class Counter {
 public:
  Counter(const Kernel& k, const Target& target) : k_(k), target_(target), ranges_(k) {}
  std::vector<ProgramLoop> run() {
    region(k_.body, Extent(1), Extent(1), true);
    return std::move(out_);
  }
  std::unordered_map<uint32_t, Extent> max_trip_counts() {
    region(k_.body, Extent(1), Extent(1), true);
    return std::move(trip_counts_);
  }

 private:
  /// An i32 that is the same for every invocation and known when the call is. Sizes that arrive with it are taken not
  /// to wrap.
  Count exact(Value v, int depth = 0) const {
    if (const auto c = ir::constant_int(k_, v)) return Extent(*c);
    const Op* o = k_.def(v);
    if (!o || depth > 6) return {};
    const auto both = [&](Extent::Op op) {
      return combine(op, exact(o->operands[0], depth + 1), exact(o->operands[1], depth + 1));
    };
    Count e;
    if (o->code == Opcode::extent) return k_.lane.extents[static_cast<size_t>(o->attr(ir::Attr::index))];
    if (o->code == Opcode::add) e = both(Extent::Op::add);
    else if (o->code == Opcode::sub) e = both(Extent::Op::sub);
    else if (o->code == Opcode::min) e = both(Extent::Op::min);
    else if (o->code == Opcode::max) e = both(Extent::Op::max);
    const auto fixed = e ? e->value() : std::nullopt;
    return fixed && (*fixed < INT32_MIN || *fixed > INT32_MAX) ? Count{} : e;
  }
  /// An i32 in the first invocation of the first workgroup, if ids and constants make it.
  std::optional<int64_t> first(Value v, int depth = 0) const {
    if (const auto c = ir::constant_int(k_, v)) return c;
    const Op* o = k_.def(v);
    if (!o || depth > 6) return {};
    if (ir::is_launch(o->code)) switch (ir::Launch(o->code)) {
        case ir::Launch::workgroup_index:
        case ir::Launch::local_index:
        case ir::Launch::subgroup_id:
        case ir::Launch::lane_id:
        case ir::Launch::thread_index: return 0;
        case ir::Launch::num_workgroups:
        case ir::Launch::extent: return {};
      }
    if (o->code != Opcode::add && o->code != Opcode::mul) return {};
    const auto a = first(o->operands[0], depth + 1), b = first(o->operands[1], depth + 1);
    if (a == 0 && b == 0) return 0;
    return o->code == Opcode::mul && (a == 0 || b == 0) ? std::optional<int64_t>(0) : std::nullopt;
  }
  /// Such as the test whether there is a unit for this workgroup or invocation: without any, nothing would be
  /// dispatched.
  bool holds_for_the_first(const Op& o) const {
    const Op* test = o.code == Opcode::if_ ? k_.def(o.operands[0]) : nullptr;
    if (!test || test->code != Opcode::lt || first(test->operands[0]) != 0) return false;
    const Count e = exact(test->operands[1]);
    if (!e || e->is_static()) return e && *e->value() > 0;
    return *e == k_.lane.num_units || cdiv(*e, Extent(k_.lane.workgroup_size)) == k_.lane.num_units;
  }
  Count least(Value v) const {
    if (const Count e = exact(v)) return e;
    const auto r = ranges_.of(v);
    return r && r->lo > INT32_MIN ? Count(Extent(r->lo)) : Count{};
  }
  Count most(Value v) const {
    if (const Count e = exact(v)) return e;
    const auto r = ranges_.of(v);
    return r && r->hi < INT32_MAX ? Count(Extent(r->hi)) : Count{};
  }

  void add(const Op& o, const Extent& least, const Count& most) {
    out_.push_back({o.loc ? o.loc : k_.loc, least, most});
  }

  // The region runs `fewest` to `greatest` times.
  void region(RegionId r, const Extent& fewest, const Count& greatest, bool outermost) {
    for (OpId id : k_.region(r).ops) {
      const Op& o = k_.op(id);
      if (o.results.size() == 1 && o.regions.empty())
        ranges_.set(o.results[0], ranges_.compute(o, k_.type(o.results[0])));
      if (o.code == Opcode::for_) for_loop(o, fewest, greatest, outermost);
      else if (o.code == Opcode::while_) while_loop(o, fewest);
      else if (atomic_by_loop(k_, o)) add(o, fewest, {});
      else
        for (size_t i = 0; i < o.regions.size(); ++i)
          region(o.regions[i], i == 0 && holds_for_the_first(o) ? fewest : Extent(0), greatest, false);
    }
  }

  void for_loop(const Op& o, const Extent& fewest, const Count& greatest, bool outermost) {
    const Value lower = o.operands[0], upper = o.operands[1], iv = k_.region(o.regions[0]).args[0];
    ranges_.set(iv, counter_bounds(*ranges_.of(lower), *ranges_.of(upper)));
    const Op* by = k_.def(o.operands[2]);
    if (outermost && by && by->code == Opcode::num_workgroups) {
      add(o, Extent(1), Extent(1));
      return region(o.regions[0], fewest, greatest, false);
    }
    const auto step = ir::constant_int(k_, o.operands[2]);
    const auto trips = [&](const Count& from, const Count& to, int64_t stride) {
      const Count n = combine(Extent::Op::sub, to, from);
      return n ? Count(cdiv(Extent::make(Extent::Op::max, *n, Extent(0)), Extent(stride))) : Count{};
    };
    const Count few = step ? trips(most(lower), least(upper), *step) : Count{};
    Count many = trips(least(lower), most(upper), step.value_or(1));
    // Where data decides, a bound far off says nothing.
    constexpr int64_t kMostGuessed = 1 << 16;
    if (many && few != many && many->value().value_or(0) > kMostGuessed) many.reset();
    if (many && step)
      trip_counts_.insert_or_assign(o.regions[0].index, Extent::make(Extent::Op::max, *many, Extent(0)));
    const int copies = copies_per_iteration(k_, o, target_);
    // Drivers unroll short loops with constant bounds themselves: then only what lies in them counts for sure.
    constexpr int64_t kMayUnroll = 64;
    const bool may_vanish = few && few == many && few->is_static() && *few->value() <= kMayUnroll;
    const Extent own =
        !few || may_vanish
            ? Extent(0)
            : product(fewest, copies > 1 ? Extent::make(Extent::Op::floordiv, *few, Extent(copies)) : *few);
    // Drivers run the body for the iteration whose test fails too, with no invocation in it. A loop of several copies
    // is followed by one for what is left.
    const Count iterations = !many        ? Count{}
                             : copies > 1 ? cdiv(*many, Extent(copies)) + Extent(copies + 1)
                                          : *many + Extent(1);
    const Count all = greatest && iterations ? Count(product(*greatest, *iterations)) : Count{};
    add(o, own, all);
    region(o.regions[0], few ? product(fewest, *few) : Extent(0), all, false);
  }

  void while_loop(const Op& o, const Extent& fewest) {
    add(o, fewest, {});
    region(o.regions[0], fewest, {}, false);
    region(o.regions[1], Extent(0), {}, false);
  }

  const Kernel& k_;
  const Target& target_;
  passes::Ranges ranges_;
  std::vector<ProgramLoop> out_;
  std::unordered_map<uint32_t, Extent> trip_counts_;  // per region of a for
};

// Lavapipe (seen on 22.3) makes invalid LLVM of an atomic of 64 bits whose operand an operation of doubles has made: on
// CPUs without AVX-512 that ends the process. In a loop the operand comes out of a phi, which has no such type.
bool may_be_double(const Kernel& k, Value v) {
  const Op* o = k.def(v);
  if (k.type(v).dtype == DType::f64) return true;
  if (!o || (o->code != Opcode::bitcast && o->code != Opcode::select)) return false;
  return std::any_of(o->operands.begin(), o->operands.end(), [&](Value x) { return may_be_double(k, x); });
}

}  // namespace

// Devices have atomics of 32 and 64-bit integers.
bool atomic_by_loop(const Kernel& k, const Op& o) {
  if (!ir::is_atomic(o.code)) return false;
  const DType t = k.type(o.operands.at(1)).dtype;
  if (size_bytes(t) < 4) return true;
  if (size_bytes(t) == 8 &&
      std::any_of(o.operands.begin() + 1, o.operands.end(), [&](Value v) { return may_be_double(k, v); }))
    return true;
  return is_float(t) && !(o.code == Opcode::atomic_rmw && o.attr(ir::Attr::kind) == static_cast<int64_t>(Opcode::swap));
}

// Loops with constant bounds come here unrolled. On a CPU an iteration costs as much as ten operations, and some
// llvmpipes count them; GPU compilers unroll for themselves. The copies' induction variable must not pass INT32_MAX by
// more than one stride.
int copies_per_iteration(const Kernel& k, const Op& loop, const Target& target) {
  if (target.kind != Target::Kind::cpu && target.max_loop_iterations == 0) return 1;
  const auto step = ir::constant_int(k, loop.operands.at(2));
  if (!step || *step < 1 || *step > INT32_MAX / 16) return 1;
  if (ir::constant_int(k, loop.operands[0]) && ir::constant_int(k, loop.operands[1])) return 1;
  const int ops = weight(k, loop.regions.at(0));
  int factor = 1;
  while (factor < 16 && 2 * factor * ops <= 128) factor *= 2;
  return factor;
}

std::vector<ProgramLoop> count_loops(const Kernel& k, const Target& target) { return Counter(k, target).run(); }
std::unordered_map<uint32_t, Extent> max_trip_counts(const Kernel& k, const Target& target) {
  return Counter(k, target).max_trip_counts();
}

void report_cut_loops(Kernel& k) {
  k.lane.report_bytes = std::max<int64_t>(k.lane.report_bytes, 4);
  const OpId end = k.region(k.body).ops.back();
  k.region(k.body).ops.pop_back();
  ir::Builder b(k);
  b.set_region(k.body);
  b.set_loc(k.loc);
  Op report{.code = Opcode::report, .operands = {b.one({.code = Opcode::loops_cut})}};
  report.set(ir::Attr::mask, Program::kLoopsCut);
  b.append(std::move(report));
  k.region(k.body).ops.push_back(end);
}

}  // namespace tessera::lane
