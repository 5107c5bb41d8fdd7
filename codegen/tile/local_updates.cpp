#include "codegen/tile/local_updates.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/indexed.h"
#include "codegen/tile/join_programs.h"
#include "engine/ir/builder.h"
#include "engine/ir/reference.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Op;
using ir::Opcode;
using ir::Value;

namespace {
constexpr int64_t kUpdatesForEach = 4;   // of an element of memory: below, adding up is no gain
constexpr int64_t kFewestUpdates = 256;  // of an op

class LocalUpdates {
 public:
  LocalUpdates(ir::Kernel& k, const Target& target) : k_(k), target_(target), used_(used_values(k)), b_(k) {}

  bool run() {
    const std::vector<Op>& ops = k_.ops;
    if (std::none_of(ops.begin(), ops.end(), [&](const Op& o) { return wanted(o); })) return false;
    for (const ir::Type& t : k_.scratch) taken_ += num_elements(t.shape) * size_bytes(t.dtype);
    ScalarAnalysis scalars(k_);
    const ParallelPlan plan = plan_parallel(k_, scalars, target_);
    // What is added up touches all of the memory: no program may do anything else to it meanwhile.
    const auto shared = [&](const Op& o) {
      const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
      return plan.concurrent[ref] && plan.commuting[ref];
    };
    const int joined = axis_to_join(plan);
    bool changed = false;
    for (uint32_t r = 0; r < k_.regions.size(); ++r) {
      const std::vector<ir::OpId> list = std::exchange(k_.regions[r].ops, {});
      b_.set_region({r});
      for (const ir::OpId id : list) {
        if (!wanted(k_.op(id)) || !shared(k_.op(id)) || !scratch_for(k_.type(k_.op(id).operands[0]))) {
          k_.regions[r].ops.push_back(id);
          continue;
        }
        rewrite(id, {r});
        changed = true;
      }
    }
    if (joined >= 0 && k_.scratch.size() == 1 && once_.size() == 1) join(static_cast<size_t>(joined));
    return changed;
  }

 private:
  bool wanted(const Op& o) const {
    if (!in_any_order(k_, o, used_) || !must_scatter_in_order(k_, o)) return false;
    if (static_cast<size_t>(ref_position(k_, o.operands[0])) >= k_.blocks.size()) return false;  // scratch already
    const int64_t counters = num_elements(k_.type(o.operands[0]).shape);
    const int64_t updates = num_elements(k_.type(o.operands[1]).shape);
    return updates >= kFewestUpdates && updates / kUpdatesForEach >= counters;
  }

  // The last axis whose programs may be joined before anything is rewritten, where the kernel has no other scratch:
  // all of them count in the same memory.
  int axis_to_join(const ParallelPlan& plan) const {
    if (!k_.scratch.empty()) return -1;
    const auto counts_in_one = [&](size_t axis) {
      return std::none_of(k_.ops.begin(), k_.ops.end(), [&](const Op& o) {
        return wanted(o) && moves_along(k_, static_cast<size_t>(ref_position(k_, o.operands[0])), axis);
      });
    };
    for (size_t a = k_.grid.size(); a-- > 0;)
      if (plan.is_parallel(a) && may_join_programs(k_, a) && counts_in_one(a)) return static_cast<int>(a);
    return -1;
  }
  // As many programs as leave compute units one or two each: each adds what it has counted to memory once.
  void join(size_t axis) {
    int64_t programs = 1, count = 1;
    for (const ir::GridAxis& a : k_.grid) {
      if (!a.size.value()) return;
      programs *= *a.size.value();
    }
    const int64_t least = std::max(3 * target_.compute_units / 2, 16), mine = *k_.grid[axis].size.value();
    while (mine % (2 * count) == 0 && programs / (2 * count) >= least) count *= 2;
    if (count > 1) join_programs(k_, axis, count, once_[0].before, once_[0].after);
  }

  // Refs of one type share a scratch: each update is done with it before the next begins. None where it would not fit.
  Value scratch_for(const ir::Type& ref) {
    const ir::Type t = ir::Type::ref(ref.dtype, ref.shape, ir::MemorySpace::vmem);
    for (const Value v : made_)
      if (k_.type(v) == t) return v;
    const int64_t bytes = num_elements(t.shape) * size_bytes(t.dtype);
    if (bytes > (target_.shared_bytes / 2 - taken_) / 2) return {};
    taken_ += bytes;
    k_.scratch.push_back(t);
    ++k_.num_private_scratch;
    made_.push_back(b_.add_arg(k_.body, t));
    return made_.back();
  }
  Op over_all(Opcode code, Value ref, std::vector<Value> more) const {
    Op o{.code = code, .operands = {ref}};
    o.operands.insert(o.operands.end(), more.begin(), more.end());
    for (const int64_t n : k_.type(ref).shape) o.index.push_back(ir::Index::all(n));
    return o;
  }

  void rewrite(ir::OpId id, ir::RegionId region) {
    const Value ref = k_.op(id).operands[0];
    const auto kind = static_cast<Opcode>(k_.op(id).attr(Attr::kind));
    const Value scratch = scratch_for(k_.type(ref));
    const DType t = k_.type(ref).dtype;
    b_.set_loc(k_.op(id).loc);
    const auto from = static_cast<uint32_t>(k_.ops.size());
    b_.append(over_all(Opcode::store, scratch, {b_.constant(t, reference::identity(kind, t), k_.type(ref).shape)}));
    Once once;
    for (auto i = from; i < k_.ops.size(); ++i) once.before.insert(i);
    k_.op(id).operands[0] = scratch;
    k_.region(region).ops.push_back(id);
    const Value sums = b_.one(over_all(Opcode::load, scratch, {}));
    Op all = over_all(Opcode::atomic_rmw, ref, {sums});
    all.set(Attr::kind, static_cast<int64_t>(kind));
    b_.append(std::move(all));
    for (auto i = from + static_cast<uint32_t>(once.before.size()); i < k_.ops.size(); ++i) once.after.insert(i);
    once_.push_back(std::move(once));
  }
  // What is done once for several programs that are joined.
  struct Once {
    std::set<uint32_t> before, after;  // ops
  };

  ir::Kernel& k_;
  const Target& target_;
  std::vector<bool> used_;
  ir::Builder b_;
  std::vector<Value> made_;
  std::vector<Once> once_;
  int64_t taken_ = 0;  // bytes of all scratch
};
}  // namespace

bool update_locally(ir::Kernel& k, const Target& target) { return LocalUpdates(k, target).run(); }

}  // namespace tessera::lowering
