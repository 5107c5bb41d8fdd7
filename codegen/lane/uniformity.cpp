#include "codegen/lane/uniformity.h"

#include <algorithm>

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::RegionId, ir::Value;
using U = Uniformity;

U join(U a, U b) { return std::max(a, b); }

class Analysis {
 public:
  explicit Analysis(const Kernel& k) : k_(k) {
    out_.values.assign(k.values.size(), U::workgroup);
    out_.control.assign(k.regions.size(), U::workgroup);
    const auto& args = k.region(k.body).args;
    out_.written.assign(args.size(), false);
    for (const Op& op : k.ops)
      if (ir::writes_ref(op.code) && !op.operands.empty()) {
        const Value root = root_of(k, op.operands[0]);
        if (const auto it = std::find(args.begin(), args.end(), root); it != args.end())
          out_.written[static_cast<size_t>(it - args.begin())] = true;
      }
    one_subgroup_ = k.lane.subgroup_size > 0 && k.lane.workgroup_size == k.lane.subgroup_size;
    full_subgroups_ = k.lane.subgroup_size > 0 && k.lane.workgroup_size % k.lane.subgroup_size == 0;
  }

  // Values only ever weaken, so repeating until nothing changes ends.
  UniformityInfo run() {
    do {
      changed_ = false;
      region(k_.body, U::workgroup);
    } while (changed_);
    return std::move(out_);
  }

 private:
  U of(Value v) const { return out_.values[v.index]; }
  void weaken(Value v, U u) {
    if (u > out_.values[v.index]) out_.values[v.index] = u, changed_ = true;
  }

  void region(RegionId r, U control) {
    U& mine = out_.control[r.index];
    if (control > mine) mine = control, changed_ = true;
    for (const ir::OpId id : k_.region(r).ops) op(k_.op(id), mine);
  }

  std::vector<Value> yielded(RegionId r) const {
    const auto& ops = k_.region(r).ops;
    return ops.empty() ? std::vector<Value>{} : k_.op(ops.back()).operands;
  }

  // Each of `to` is at most as uniform as the value at its place in `from`, and as `least`.
  void flow(const std::vector<Value>& from, size_t skip_from, const std::vector<Value>& to, size_t skip_to, U least) {
    for (size_t i = 0; i + skip_to < to.size(); ++i)
      weaken(to[i + skip_to], i + skip_from < from.size() ? join(of(from[i + skip_from]), least) : U::varying);
  }

  void op(const Op& o, U control) {
    U all = U::workgroup;
    for (const Value v : o.operands) all = join(all, of(v));
    if (ir::is_control(o.code)) return branches(o, control);
    if (ir::is_launch(o.code)) return launch(o);
    if (ir::is_group(o.code)) return group(o, all);
    if (o.code == Opcode::matrix_elements) return result(o, U::varying);
    if (ir::is_matrix(o.code)) return result(o, U::subgroup);  // of any subgroup's own making
    if (ir::is_atomic(o.code) || o.code == Opcode::loops_cut) return result(o, U::varying);
    if (o.code == Opcode::load)
      return result(o, o.operands.empty() || !place_is_uniform(o.operands[0]) ? U::varying : all);
    // Elementwise ops, views, constants.
    result(o, all);
  }

  void launch(const Op& o) {
    switch (ir::Launch(o.code)) {
      case ir::Launch::workgroup_index:
      case ir::Launch::num_workgroups:
      case ir::Launch::thread_index:
      case ir::Launch::extent: return result(o, U::workgroup);
      case ir::Launch::subgroup_id: return result(o, one_subgroup_ ? U::workgroup : U::subgroup);
      case ir::Launch::local_index:
      case ir::Launch::lane_id: return result(o, U::varying);
    }
  }

  void group(const Op& o, U all) {
    switch (ir::Group(o.code)) {
      case ir::Group::barrier:
      case ir::Group::subgroup_barrier:
      case ir::Group::program_barrier:
      case ir::Group::mbarrier_arrive:
      case ir::Group::mbarrier_copies:
      case ir::Group::mbarrier_wait:
      case ir::Group::tensor_load:
      case ir::Group::tensor_wait:
      case ir::Group::async_wait: return;
      case ir::Group::subgroup_shuffle_xor: return result(o, all);  // among equal values
      case ir::Group::subgroup_reduce:
        // The sum of a workgroup-uniform value over full subgroups is the same in each.
        return result(o, one_subgroup_ || (full_subgroups_ && all == U::workgroup) ? U::workgroup : U::subgroup);
      case ir::Group::subgroup_scan: return result(o, U::varying);
      case ir::Group::subgroup_shuffle: {
        if (o.operands.size() != 2) return result(o, U::varying);
        const U by_lane = join(of(o.operands[1]), one_subgroup_ ? U::workgroup : U::subgroup);
        return result(o, std::min(of(o.operands[0]), by_lane));
      }
    }
  }

  void branches(const Op& o, U control) {
    switch (ir::Control(o.code)) {
      case ir::Control::for_: {
        if (o.operands.size() < 3 || o.regions.size() != 1) return result(o, U::varying);
        const U bounds = join(join(of(o.operands[0]), of(o.operands[1])), of(o.operands[2]));
        const auto& args = k_.region(o.regions[0]).args;
        if (!args.empty()) weaken(args[0], bounds);
        flow(o.operands, 3, args, 1, U::workgroup);
        region(o.regions[0], join(control, bounds));
        flow(yielded(o.regions[0]), 0, args, 1, U::workgroup);
        // Invocations that leave after different trip counts hold carries of different iterations.
        return flow(args, 1, o.results, 0, bounds);
      }
      case ir::Control::while_: {
        if (o.regions.size() != 2) return result(o, U::varying);
        const auto &before = k_.region(o.regions[0]).args, &body = k_.region(o.regions[1]).args;
        flow(o.operands, 0, before, 0, U::workgroup);
        flow(o.operands, 0, body, 0, U::workgroup);
        const auto cond_values = yielded(o.regions[0]);
        const U cond = cond_values.empty() ? U::varying : of(cond_values[0]);
        // Both regions run again only for those whose condition held.
        region(o.regions[0], join(control, cond));
        region(o.regions[1], join(control, cond));
        flow(yielded(o.regions[1]), 0, before, 0, U::workgroup);
        flow(yielded(o.regions[1]), 0, body, 0, U::workgroup);
        return flow(before, 0, o.results, 0, cond);
      }
      case ir::Control::if_:
      case ir::Control::switch_: {
        const U choice = o.operands.empty() ? U::varying : of(o.operands[0]);
        for (const RegionId r : o.regions) {
          region(r, join(control, choice));
          flow(yielded(r), 0, o.results, 0, choice);
        }
        return;
      }
      case ir::Control::run_scoped: return result(o, U::varying);  // not at lane level
    }
  }

  void result(const Op& o, U u) {
    for (const Value v : o.results) weaken(v, u);
  }

  // Memory in which equal places hold equal values for all invocations that load them between two barriers: args that
  // are never written, and the workgroup's own arenas, where the absence of races makes it so. Memory that the dispatch
  // writes may change between two loads.
  bool place_is_uniform(Value ref) const {
    const Value root = root_of(k_, ref);
    if (!root) return false;
    if (const Op* d = k_.def(root)) return ir::is_alloc(d->code);
    const uint32_t n = k_.value(root).number;
    return n < out_.written.size() && !out_.written[n];
  }

  const Kernel& k_;
  UniformityInfo out_;
  bool changed_ = false, one_subgroup_ = false, full_subgroups_ = false;
};
}  // namespace

std::string_view name(Uniformity u) {
  switch (u) {
    case U::workgroup: return "workgroup-uniform";
    case U::subgroup: return "subgroup-uniform";
    case U::varying: return "varying";
  }
  return "";
}

Value root_of(const Kernel& k, Value ref) {
  for (size_t steps = 0; ref.index < k.values.size() && steps <= k.ops.size(); ++steps) {
    const Op* d = k.def(ref);
    if (!d) return k.value(ref).region == k.body ? ref : Value{};
    if (ir::is_alloc(d->code) || d->code == Opcode::report_memory) return ref;
    if (d->code != Opcode::view || d->operands.empty()) return {};
    ref = d->operands[0];
  }
  return {};
}

UniformityInfo analyze_uniformity(const Kernel& k) { return Analysis(k).run(); }

}  // namespace tessera::lane
