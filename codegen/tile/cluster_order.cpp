#include "codegen/tile/cluster_order.h"

#include <algorithm>
#include <cstdlib>

#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr, ir::CopyPlace, ir::MemorySpace, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Value;

namespace {
constexpr int64_t kMost = int64_t{1} << 31;  // i32 would wrap beyond
bool small(int64_t n) { return n > -kMost && n < kMost; }
}  // namespace

ClusterOrder::ClusterOrder(const ir::Kernel& k) : k_(k), accesses_(k.blocks.size()) {
  std::vector<const Op*> loops;
  walk(k.body, loops);
  std::vector<bool> used(k.values.size());
  for (const Op& op : k.ops)
    for (const Value v : op.operands) used[v.index] = true;
  ir::each_op(k, k.body, [&](OpId id) {
    const Op& op = k_.op(id);
    const auto add = [&](const CopyPlace& place, bool writes, bool commutes) {
      const ir::ValueInfo& v = k_.value(place.ref);
      if (v.region == k_.body && v.number < k_.blocks.size())
        accesses_[memory_of(place.ref)].push_back({&op, place, writes, commutes});
    };
    if (ir::accesses_ref(op.code)) {
      const bool rmw = op.code == Opcode::atomic_rmw,
                 swaps = rmw && op.attr(Attr::kind) == static_cast<int64_t>(Opcode::swap);
      add({op.operands[0], 0, op.index.size()}, ir::writes_ref(op.code), rmw && !swaps && !used[op.results[0].index]);
    } else if (op.code == Opcode::copy_gmem_to_smem) {
      add(ir::thread_places(k_, op)[0], false, false);
    } else if (op.code == Opcode::copy_smem_to_gmem) {
      add(ir::thread_places(k_, op)[1], true, op.has(Attr::kind));
    }
  });
}

void ClusterOrder::walk(RegionId r, std::vector<const Op*>& loops) {
  for (const OpId id : k_.region(r).ops) {
    const Op& op = k_.op(id);
    places_[&op] = {places_.size(), loops};
    if (ir::is_thread_barrier_op(op.code) && k_.type(op.operands[0]).space == MemorySpace::cluster_barrier)
      (op.code == Opcode::barrier_wait ? waits_ : arrivals_).push_back(&op);
    if (ir::is_loop(op.code)) loops.push_back(&op);
    for (const RegionId inner : op.regions) walk(inner, loops);
    if (ir::is_loop(op.code)) loops.pop_back();
  }
}

/// Whether one thread may do the second op behind the first.
bool ClusterOrder::may_follow(const Op* first, const Op* second) const {
  const Place &a = places_.at(first), &b = places_.at(second);
  return a.at < b.at || (!a.loops.empty() && !b.loops.empty() && a.loops[0] == b.loops[0]);
}
bool ClusterOrder::ordered(const Access& a, const Access& b) const {
  return std::any_of(arrivals_.begin(), arrivals_.end(), [&](const Op* o) { return may_follow(a.op, o); }) &&
         std::any_of(waits_.begin(), waits_.end(), [&](const Op* o) { return may_follow(o, b.op); });
}

size_t ClusterOrder::memory_of(Value ref) const {
  const auto i = static_cast<int>(k_.value(ref).number);
  const int output = k_.aliased_output(i);
  return static_cast<size_t>(output < 0 ? i : output);
}

std::optional<ClusterOrder::Form> ClusterOrder::form(Value v) {
  if (const auto it = forms_.find(v.index); it != forms_.end()) return it->second;
  std::optional<Form> found;
  if (const auto n = ir::constant_int(k_, v)) found = Form{std::vector<int64_t>(k_.grid.size()), *n};
  else if (const Op* def = k_.def(v)) found = form_of(*def);
  if (found && !(small(found->rest) && std::all_of(found->axes.begin(), found->axes.end(), small))) found.reset();
  forms_[v.index] = found;
  return found;
}
std::optional<ClusterOrder::Form> ClusterOrder::form_of(const Op& op) {
  if (op.code == Opcode::program_id) {
    Form f{std::vector<int64_t>(k_.grid.size()), 0};
    f.axes[static_cast<size_t>(op.attr(Attr::axis))] = 1;
    return f;
  }
  if (op.code != Opcode::add && op.code != Opcode::sub && op.code != Opcode::mul) return std::nullopt;
  std::optional<Form> a = form(op.operands[0]), b = form(op.operands[1]);
  if (!a || !b) return std::nullopt;
  const auto number = [](const Form& f) {
    return std::all_of(f.axes.begin(), f.axes.end(), [](int64_t n) { return n == 0; });
  };
  if (op.code == Opcode::mul) {
    if (!number(*b)) std::swap(a, b);
    if (!number(*b)) return std::nullopt;
    for (int64_t& n : a->axes) n *= b->rest;
    a->rest *= b->rest;
    return a;
  }
  const int64_t sign = op.code == Opcode::add ? 1 : -1;
  for (size_t i = 0; i < a->axes.size(); ++i) a->axes[i] += sign * b->axes[i];
  a->rest += sign * b->rest;
  return a;
}

std::optional<ClusterOrder::Along> ClusterOrder::along(const Access& a, size_t d) {
  const ir::Index& x = a.op->index[a.place.first + d];
  if (x.is_array()) return std::nullopt;
  std::optional<Form> f =
      x.is_static() ? Form{std::vector<int64_t>(k_.grid.size()), x.constant()} : form(a.op->operand_of(x));
  if (!f) return std::nullopt;
  Along found{*f, f->rest, f->rest + x.as_slice().span()};
  // Copies move no window; a load or store does, where it would hang over.
  const int64_t extent = k_.type(a.place.ref).shape[d];
  if (!x.is_static() && !ir::is_thread_copy(a.op->code) && !stays_inside(found, extent)) return std::nullopt;
  return found;
}
bool ClusterOrder::stays_inside(const Along& x, int64_t extent) const {
  int64_t least = x.first, most = x.end;
  for (size_t a = 0; a < k_.grid.size(); ++a) {
    const auto n = k_.grid[a].size.value();
    if (x.form.axes[a] == 0) continue;
    if (!n || !small(*n)) return false;
    const int64_t far = x.form.axes[a] * std::max<int64_t>(*n - 1, 0);
    if (!small(far)) return false;
    (far < 0 ? least : most) += far;
  }
  return least >= 0 && most <= extent;
}

/// Whether no two programs of a cluster touch one element.
bool ClusterOrder::apart(const std::vector<Access>& list) {
  std::vector<Along> dims;
  for (size_t d = 0; d < list[0].place.rank; ++d) {
    std::optional<Along> all;
    bool known = true;
    for (const Access& a : list) {
      const std::optional<Along> one = along(a, d);
      known &= one && (!all || one->form.axes == all->form.axes);
      if (!known) break;
      if (!all) all = one;
      all->first = std::min(all->first, one->first);
      all->end = std::max(all->end, one->end);
    }
    if (known && all) dims.push_back(*all);
  }
  size_t programs = 1;
  for (const ir::GridAxis& g : k_.grid)
    if (g.role == ir::GridAxis::Role::cluster) programs *= static_cast<size_t>(*g.size.value());
  const auto offset = [&](const Along& x, size_t program) {
    int64_t sum = 0;
    for (size_t a = k_.grid.size(); a-- > 0;) {
      if (k_.grid[a].role != ir::GridAxis::Role::cluster) continue;
      const auto n = static_cast<size_t>(*k_.grid[a].size.value());
      sum += x.form.axes[a] * static_cast<int64_t>(program % n);
      program /= n;
    }
    return sum;
  };
  for (size_t p = 0; p < programs; ++p)
    for (size_t q = 0; q < p; ++q)
      if (std::none_of(dims.begin(), dims.end(),
                       [&](const Along& x) { return std::abs(offset(x, p) - offset(x, q)) >= x.end - x.first; }))
        return false;
  return true;
}

std::optional<std::pair<const Op*, const Op*>> ClusterOrder::needed(size_t number) {
  const std::vector<Access>& list = accesses_[number];
  const auto commute = [](const Access& a, const Access& b) {
    return a.commutes && b.commutes && a.op->attr(Attr::kind) == b.op->attr(Attr::kind);
  };
  for (const Access& a : list)
    for (const Access& b : list)
      if ((a.writes || b.writes) && !commute(a, b) && ordered(a, b)) {
        if (apart(list)) return std::nullopt;
        return std::pair{a.op, b.op};
      }
  return std::nullopt;
}

}  // namespace tessera::lowering
