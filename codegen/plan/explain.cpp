#include "codegen/plan/explain.h"

#include <algorithm>

#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
std::string shape_text(const std::vector<Extent>& s) { return to_string(s); }

/// Where each axis is seen: "dim 1 of in_specs[0] and out_specs[0]", from the accesses that have it; else the shape of
/// a value that has it. Empty for axes of Refs alone, along which nothing is laid out.
std::vector<std::string> axis_names(const ir::Kernel& k, const Axes& axes) {
  std::vector<std::vector<std::string>> seen(axes.size());
  std::vector<std::string> values(axes.size());
  for (const ir::Op& o : k.ops) {
    for (ir::Value v : o.results) {
      const ir::Type& t = k.type(v);
      for (size_t d = 0; d < t.shape.size() && !t.is_ref; ++d)
        if (const int a = axes.of(v, d); a != kNoAxis && values[static_cast<size_t>(a)].empty())
          values[static_cast<size_t>(a)] = "dim " + std::to_string(d) + " of a value " + ir::to_string(t);
    }
    const bool load = o.code == ir::Opcode::load;
    if (!ir::accesses_ref(o.code)) continue;
    const auto ref = static_cast<size_t>(ref_position(k, o.operands[0]));
    const std::string origin =
        ref < k.blocks.size() ? k.blocks[ref].origin : "scratch[" + std::to_string(ref - k.blocks.size()) + "]";
    const ir::Value v = load ? o.results[0] : o.operands[1];
    const ir::AccessDims form = ir::access_dims(k, o);
    for (size_t i = 0; i < o.index.size(); ++i) {
      if (form.slice[i] < 0) continue;
      const int a = axes.of(v, static_cast<size_t>(form.slice[i]));
      const std::string place = "dim " + std::to_string(i) + " of " + origin;
      if (a == kNoAxis) continue;
      std::vector<std::string>& places = seen[static_cast<size_t>(a)];
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  }
  for (size_t a = 0; a < axes.size(); ++a) {
    if (seen[a].empty()) continue;
    values[a].clear();
    for (size_t i = 0; i < seen[a].size() && i < 3; ++i) values[a] += (i ? ", " : "") + seen[a][i];
    if (seen[a].size() > 3) values[a] += ", ...";
  }
  return values;
}

/// Along an axis that every unit walks whole, strip after strip: why it is not split over workgroups.
std::string why_whole(const Axis& x) {
  if (x.splittable || x.reduced || x.contracted) return "";
  if (x.repeats) return ", not split: most of the work lacks it, and each slice would repeat that";
  if (x.mixed) return ", not split: values are read at computed positions along it";
  return x.stored ? ", not split: some access to memory that the call writes lacks it or has another index along it"
                  : "";
}
std::string block_text(const ir::Kernel& k, const Target& target, Plan& plan, size_t i) {
  const Schedule& s = plan.schedule;
  std::string out;
  const ir::BlockMapping& b = k.blocks[i];
  out += "  " + b.origin + ": " + std::string(name(b.dtype)) + " " + shape_text(b.array_shape);
  if (b.is_by_value()) return out + " by value\n";
  if (b.is_whole()) out += " whole";
  else {
    out += " in blocks (";
    for (size_t d = 0; d < b.block().size(); ++d) out += (d ? ", " : "") + ir::to_string(b.block()[d]);
    out += ")";
  }
  if (static_cast<int>(i) < k.num_prefetch) {
    out += "; scalar prefetch\n";
    return out;
  }
  bool interior = true, in_range = true;
  for (const BlockStart& start : block_starts(k, static_cast<int>(i), plan.scalars)) {
    interior = interior && start.interior;
    in_range = in_range && start.in_range;
  }
  if (b.alias >= 0) out += "; starts with " + k.blocks[static_cast<size_t>(b.alias)].origin;
  if (!k.is_output(static_cast<int>(i)) && k.aliased_output(static_cast<int>(i)) < 0 &&
      k.is_stored(static_cast<int>(i)))
    out += "; stored to: the call works on a copy";
  if (!s.prefetch_remarks.empty() && !s.prefetch_remarks[i].empty()) out += "; " + s.prefetch_remarks[i];
  else if (b.buffering.count)
    out += "; Buffered(" + std::to_string(b.buffering.count) + ") asked for, no effect: " +
           (k.is_output(static_cast<int>(i))   ? "stores wait for nothing"
            : s.general                        ? "the general form loads where it stands"
            : target.kind == Target::Kind::cpu ? "nothing is prefetched on a CPU"
                                               : "no axis that stays in order moves the block");
  if (needs_copy(k, static_cast<int>(i)))
    out += "; copied when a program starts, because it is read after a store to its alias";
  if (k.has_halo(static_cast<int>(i))) out += "; a halo: positions outside are moved into the array";
  out += interior ? "; interior, no masks" : "; may hang over the edge, masked";
  if (depends_on_data(k, static_cast<int>(i))) out += in_range ? "; index from data" : "; index from data, clamped";
  if (plan.parallel.concurrent[i]) out += "; updated by programs at once, atomically";
  if (s.residency[i] == Residency::registers) out += "; block kept in registers";
  if (s.residency[i] == Residency::arena && !needs_copy(k, static_cast<int>(i))) out += "; private tile in the arena";
  out += "\n";
  return out;
}

std::string scratch_text(const ir::Kernel& k, const Target& target, const Schedule& s, size_t i, bool loaded) {
  std::string out = "  scratch[" + std::to_string(i) + "]: " + ir::to_string(k.scratch[i]);
  const bool smem = k.scratch[i].space == ir::MemorySpace::smem || ir::is_barrier(k.scratch[i].space);
  if (k.has_threads() && smem) return out + "; common to the program's threads\n";
  out += (s.residency[k.blocks.size() + i] == Residency::registers ? "; in registers" : "; in the arena");
  const bool is_private = i + static_cast<size_t>(k.num_private_scratch) >= k.scratch.size();
  out += is_private ? "; every program's own" : "";
  // What a copy brings into registers is under way until something uses it; elsewhere its stores wait for its loads.
  const bool registers = s.residency[k.blocks.size() + i] == Residency::registers;
  if (loaded && registers) out += "; its loads are under way until it is used";
  if (loaded && !registers && !s.general && target.kind == Target::Kind::gpu)
    out += "; its loads are waited for where they stand: it does not fit registers";
  out += "\n";
  return out;
}

std::string axis_text(const Axis& x, const AxisPlan& p, const std::string& name) {
  if (name.empty() || (!p.laid_out && !x.stored && !x.reduced && !x.contracted)) return "";
  std::string out = "  " + name + ": " + std::to_string(x.extent) +
                    (x.contracted ? " contracted"
                     : x.reduced  ? " reduced"
                     : x.scanned  ? " scanned"
                     : x.mixed    ? " mixed"
                                  : "");
  if (!p.laid_out) out += ", one after another";
  else {
    out += (x.contracted || x.reduced || x.scanned || x.mixed ? ", " : ": ") + std::to_string(p.reg) +
           (p.reg == 1 ? " register x " : " registers x ");
    out += std::to_string(p.invocations) + (p.invocations == 1 ? " invocation" : " invocations");
    if (p.strips() > 1) out += " in " + std::to_string(p.strips()) + " strips";
  }
  if (p.split) out += ", split into " + std::to_string(cdiv(x.extent, p.tile)) + " tiles of " + std::to_string(p.tile);
  else if (p.strips() > 1) out += why_whole(x);
  out += "\n";
  return out;
}

std::string schedule_text(const ir::Kernel& k, const Target& target, const Schedule& s, const ir::Kernel& lanes) {
  std::string out = "  schedule for " + target.name + ": " + (s.general ? "general form, " : "");
  if (s.group > 1) out += "each unit of work on one workgroup of " + std::to_string(s.workgroup) + " invocations";
  else if (!k.grid.empty() && s.parallel.empty()) out += "one invocation runs all programs";
  else out += std::to_string(s.workgroup) + " programs per workgroup, one per invocation";
  out += "; workgroups " + to_string(lanes.lane.num_units) + "\n";
  if (lanes.lane.num_units.value() == 1) out += "  a long call stays whole: it is one workgroup\n";
  if (s.wide_dot == DotForm::shuffle) out += "  dots: columns on lanes, k values handed round by shuffle\n";
  if (s.wide_dot == DotForm::staged) {
    const bool packed =
        ir::any_op(lanes, lanes.body, [&](ir::OpId id) { return lanes.op(id).code == ir::Opcode::dot4; });
    out += "  dots: chunks of " + std::to_string(s.dot_chunk) +
           (packed ? " words, four elements of 8 bits in each," : "") +
           " staged in shared memory, the next one prefetched into registers\n";
  }
  for (const std::string& n : s.remarks) out += "  " + n + "\n";
  return out;
}
}  // namespace

std::string explain(const ir::Kernel& k, const Target& target, Plan& plan, const ir::Kernel& lanes) {
  const Axes& axes = *plan.axes;
  const Schedule& s = plan.schedule;
  std::string out = k.name;
  if (k.loc) out += "  " + to_string(k.loc);
  std::vector<Extent> grid;
  for (const ir::GridAxis& g : k.grid) grid.push_back(g.size);
  out += "   grid " + shape_text(grid) + "\n";
  for (size_t i = 0; i < k.blocks.size(); ++i) out += block_text(k, target, plan, i);
  const std::vector<bool> loaded = loaded_directly(k);
  for (size_t i = 0; i < k.scratch.size(); ++i) out += scratch_text(k, target, s, i, loaded[k.blocks.size() + i]);
  for (size_t a = 0; a < k.grid.size(); ++a)
    out += "  grid axis " + std::to_string(a) + (k.grid[a].name.empty() ? "" : " (" + k.grid[a].name + ")") + ": " +
           (plan.parallel.axes[a].parallel ? "parallel, " : "") + plan.parallel.axes[a].why + "\n";
  if (!k.grid.empty() && s.parallel.empty())
    out += "  no axis is parallel: the call runs in one workgroup, or in one per tile of what is split\n";
  const std::vector<std::string> names = axis_names(k, axes);
  for (size_t a = 0; a < axes.size() && !s.general; ++a) out += axis_text(axes.axes[a], s.plans[a], names[a]);
  return out + schedule_text(k, target, s, lanes);
}

int64_t live_registers(const ir::Kernel& k) {
  // Positions count ops in program order. A value is live from its definition to its last use; one that a loop reads
  // from outside, to the loop's end.
  struct Interval {
    int begin = 0, end = 0;
  };
  struct Loop {
    int begin;
    std::vector<ir::Value> reads;
  };
  std::vector<Interval> live(k.values.size());
  std::vector<Loop> loops;
  int at = 0;
  const auto use = [&](ir::Value v) {
    for (Loop& l : loops)
      if (live[v.index].begin <= l.begin) return l.reads.push_back(v);
    live[v.index].end = at;
  };
  const auto walk = [&](const auto& self, ir::RegionId r) -> void {
    ++at;
    for (ir::Value v : k.region(r).args) live[v.index] = {at, at};
    for (ir::OpId id : k.region(r).ops) {
      const ir::Op& o = k.op(id);
      ++at;
      for (ir::Value v : o.operands) use(v);
      const bool loop = ir::is_loop(o.code);
      if (loop) loops.push_back({at, {}});
      for (ir::RegionId inner : o.regions) self(self, inner);
      if (!o.regions.empty()) ++at;
      if (loop) {
        const Loop done = std::move(loops.back());
        loops.pop_back();
        for (ir::Value v : done.reads) live[v.index].end = at;
      }
      for (ir::Value v : o.results) live[v.index] = {at, at};
    }
  };
  walk(walk, k.body);
  std::vector<int64_t> change(static_cast<size_t>(at) + 1);
  for (size_t v = 0; v < k.values.size(); ++v) {
    const ir::Type& t = k.values[v].type;
    const ir::Op* def = k.def({static_cast<uint32_t>(v)});
    if ((def && def->code == ir::Opcode::constant) || (t.is_ref && !(def && def->code == ir::Opcode::view))) continue;
    const bool matrix = !t.is_ref && t.shape.size() == 2;  // of which each invocation has a part
    const int64_t weight =
        matrix ? cdiv(num_elements(t.shape) * size_bytes(t.dtype), 4 * std::max<int64_t>(k.lane.subgroup_size, 1))
        : t.is_ref || size_bytes(t.dtype) == 8 ? 2
                                               : 1;
    change[static_cast<size_t>(live[v].begin)] += weight;
    change[static_cast<size_t>(live[v].end)] -= weight;
  }
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return most;
}

}  // namespace tessera::lowering
