#include "codegen/tile/thread_checks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "codegen/tile/cluster_order.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Attr, ir::CopyPlace, ir::MemorySpace, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

class Checks {
 public:
  explicit Checks(const ir::Kernel& k) : k_(k), threads_(*k.grid.back().size.value()) {
    refs_ = k.region(k.body).args;
    const std::vector<Value> scoped = scoped_refs(k);
    refs_.insert(refs_.end(), scoped.begin(), scoped.end());
    for (const Op& op : k.ops) {
      for (const RegionId r : op.regions) owners_[r.index] = &op;
      if (const Value to = ir::stored_ref(op)) stored_.insert(to.index);
    }
    for (size_t i = 0; i < k.blocks.size(); ++i)  // an input in the memory of an output changes with it
      if (const int o = k.aliased_output(static_cast<int>(i)); o >= 0) stored_.insert(k.region(k.body).args[i].index);
  }
  bool share() const { return threads_ > 1 && (first_barrier() || first_shared() || first_meeting()); }
  void run(bool together) const {
    if (threads_ > 1) together ? at_once() : threads();
    for (const Value ref : refs_) programs(ref);
    ir::each_op(k_, k_.body, [&](OpId id) {
      const Op& op = k_.op(id);
      if (op.code == Opcode::copy_gmem_to_smem && op.has(Attr::axes)) shared_copy(op);
    });
  }

 private:
  const ir::Kernel& k_;
  const int64_t threads_;  // of a program
  std::vector<Value> refs_;
  std::map<uint32_t, const Op*> owners_;  // by region
  std::set<uint32_t> stored_;             // Refs that the kernel stores to

  [[noreturn]] void fail(const std::string& what, Loc loc, const std::string& note) const {
    throw CompileError(k_.name + ": " + what, loc ? loc : k_.loc, note);
  }
  static const char* interpreter() { return "the interpreter runs the kernel: ts::interpret, or --device interpreter"; }
  static std::string one_thread() {
    return std::string(
               "for this target kernels of one thread, or of threads that share nothing, are compiled, and for ") +
           "nvidia:sm_80 and newer others too; " + interpreter();
  }
  std::string name_of(Value ref) const {
    const ir::ValueInfo& v = k_.value(ref);
    if (v.region != k_.body) return "run_scoped[" + std::to_string(v.number) + "]";
    if (v.number < k_.blocks.size()) return k_.blocks[v.number].origin;
    return "scratch_types[" + std::to_string(v.number - k_.blocks.size()) + "]";
  }
  static std::string op_text(const Op& op) {
    return std::string(ir::name(op.code)) + (op.loc ? " (" + to_string(op.loc) + ")" : std::string());
  }
  template <class F> const Op* user(Value ref, F wanted) const {
    for (const Op& op : k_.ops)
      if (wanted(op) && std::find(op.operands.begin(), op.operands.end(), ref) != op.operands.end()) return &op;
    return nullptr;
  }
  const Op* user(Value ref) const {
    return user(ref, [](const Op&) { return true; });
  }

  void threads() const {
    const std::string n = "its " + std::to_string(threads_) + " threads ";
    if (const auto wait = first_barrier())
      fail(n + "wait for each other at " + name_of(wait->first) + ", a barrier that is no barrier of a workgroup",
           wait->second->loc, one_thread());
    if (const auto use = first_shared()) fail(n + "share " + name_of(use->first), use->second->loc, one_thread());
    if (const Op* op = first_meeting())
      fail(n + "meet at a run_scoped of memory that they share", op->loc, one_thread());
  }
  using Use = std::optional<std::pair<Value, const Op*>>;
  Use first_barrier() const {
    for (const Value ref : refs_)
      if (ir::is_barrier(k_.type(ref).space))
        if (const Op* wait = user(ref, [](const Op& op) { return op.code == Opcode::barrier_wait; }))
          return std::pair{ref, wait};
    return {};
  }
  Use first_shared() const {
    for (const Value ref : refs_)
      if (k_.type(ref).space == MemorySpace::smem)
        if (const Op* use = user(ref)) return std::pair{ref, use};
    return {};
  }
  const Op* first_meeting() const {
    for (const Op& op : k_.ops)
      if (ir::threads_meet(k_, op) || op.code == Opcode::threads_meet) return &op;
    return nullptr;
  }
  /// What threads that run at once cannot do yet.
  void at_once() const {
    const std::string n = "its " + std::to_string(threads_) + " threads ";
    for (const Value ref : refs_) {
      if (k_.type(ref).space == MemorySpace::cluster_barrier)
        if (const Op* use = user(ref))
          fail(n + "wait for those of other programs at " + name_of(ref) + ", a ClusterBarrier", use->loc,
               std::string("programs of a cluster are compiled where each has one thread; ") + interpreter());
      if (k_.type(ref).space == MemorySpace::smem)
        if (const Op* use = user(ref, [](const Op& op) { return ir::is_atomic(op.code); }))
          fail(n + "update " + name_of(ref) + ", which is in smem, by " + op_text(*use), use->loc,
               std::string("atomics update gmem; ") + interpreter());
    }
  }
  void programs(Value ref) const {
    const Type& t = k_.type(ref);
    const Op* use = user(ref);
    if (!use) return;
    if (is_semaphore(t.space))
      fail("programs wait for each other by " + name_of(ref) + ", a semaphore", use->loc, interpreter());
    const bool scratch = k_.value(ref).region != k_.body || k_.value(ref).number >= k_.blocks.size();
    if (scratch && t.space == MemorySpace::any)
      fail("programs share " + name_of(ref) + ", scratch in gmem", use->loc,
           "give it as an input or an output of the kernel");
    if (t.space == MemorySpace::cluster_barrier) cluster(ref, *use);
  }
  /// A cluster_barrier that orders what programs do to gmem is needed; one that orders their smem is not, where each
  /// program brings its own elements.
  void cluster(Value barrier, const Op& use) const {
    ClusterOrder order(k_);
    for (size_t i = 0; i < k_.blocks.size(); ++i)
      if (const auto ops = order.needed(i))
        fail("programs of a cluster wait for each other at " + name_of(barrier) + ", which may order what they do to " +
                 name_of(k_.region(k_.body).args[i]) + ": " + op_text(*ops->first) +
                 (ops->first == ops->second ? ", in one and in another" : ", and in another " + op_text(*ops->second)),
             use.loc, interpreter());
  }

  // -- copies with axes
  /// Programs that share a copy bring the same elements to the same place, in the same steps of their loops.
  void shared_copy(const Op& copy) const {
    std::set<uint32_t> seen;
    const std::vector<int64_t>& axes = copy.ints(Attr::axes);
    const std::vector<CopyPlace> places = thread_places(k_, copy);
    constexpr const char* kNote = "without collective_axes each brings its own; ";
    for (size_t i = 0; i < places.size(); ++i)
      for (size_t d = 0; d < places[i].rank; ++d) {
        const ir::Index& x = copy.index[places[i].first + d];
        if (x.is_static() || same(copy.operand_of(x), axes, seen)) continue;
        const std::string name = name_of(places[i].ref);
        fail(i == 0   ? "the programs of a cluster may bring different parts of " + name + " to each other"
             : i == 1 ? "the programs of a cluster may bring elements to different parts of " + name
                      : "the programs of a cluster may share a copy that arrives at different barriers of " + name,
             copy.loc, std::string(kNote) + interpreter());
      }
    RegionId at = region_of(copy);
    for (auto it = owners_.find(at.index); it != owners_.end(); it = owners_.find(at.index)) {
      const Op& owner = *it->second;
      for (const Value v : steers(owner))
        if (!same(v, axes, seen))
          fail("the programs of a cluster may do a copy that they share in different steps of their control flow: " +
                   op_text(owner),
               copy.loc, std::string(kNote) + interpreter());
      at = region_of(owner);
    }
  }
  RegionId region_of(const Op& op) const {
    for (uint32_t r = 0; r < k_.regions.size(); ++r)
      for (const OpId id : k_.regions[r].ops)
        if (&k_.op(id) == &op) return RegionId{r};
    return {};
  }
  /// What says which region of a control flow op runs, and how often.
  std::vector<Value> steers(const Op& op) const {
    if (op.code == Opcode::run_scoped) return {};
    if (op.code == Opcode::while_) return k_.terminator(op.regions[0]).operands;
    return {op.operands.begin(), op.operands.begin() + (op.code == Opcode::for_ ? 3 : 1)};
  }
  /// Whether v surely is the same in all programs of a cluster along these axes.
  bool same(Value root, const std::vector<int64_t>& axes, std::set<uint32_t>& seen) const {
    return walk_back(k_, root, seen, [&](Value v, auto& next) {
      const ir::ValueInfo& info = k_.value(v);
      const Op* def = k_.def(v);
      const auto append = [&](const std::vector<Value>& more) { next.insert(next.end(), more.begin(), more.end()); };
      if (!def) {
        const auto it = owners_.find(info.region.index);
        if (it == owners_.end()) return false;
        const Op& owner = *it->second;
        append(steers(owner));
        if (is_loop(owner.code) && info.number >= ir::first_carried(owner))
          append(flows_into(k_, owner, info.number - ir::first_carried(owner)));
        return true;
      }
      if (def->code == Opcode::program_id)
        return std::find(axes.begin(), axes.end(), def->attr(Attr::axis)) == axes.end();
      if (ir::reads_ref(def->code)) {
        const ir::ValueInfo& from = k_.value(def->operands[0]);
        if (from.region != k_.body || from.number >= k_.blocks.size() || stored_.contains(def->operands[0].index))
          return false;
      }
      if (!def->regions.empty()) {
        append(steers(*def));
        append(flows_into(k_, *def, info.number));
      } else {
        append(def->operands);
      }
      return true;
    });
  }
};
}  // namespace

void check_threads(const ir::Kernel& k, bool together) { Checks(k).run(together); }
bool threads_share(const ir::Kernel& k) { return Checks(k).share(); }

}  // namespace tessera::lowering
