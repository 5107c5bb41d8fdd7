#include "codegen/lower/explain.h"

#include <algorithm>

namespace tessera::lowering {
namespace {
std::string shape_text(const std::vector<Extent>& s) { return to_string(s); }
}  // namespace

std::string explain(const ir::Kernel& k, const Target& target, const Axes& axes, const Schedule& s, const ParallelPlan& parallel, ScalarAnalysis& scalars, const ir::Kernel& lanes) {
  std::string out = k.name;
  if (k.loc) out += "  " + to_string(k.loc);
  std::vector<Extent> grid;
  for (const ir::GridAxis& g : k.grid) grid.push_back(g.size);
  out += "   grid " + shape_text(grid) + "\n";
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const ir::BlockMapping& b = k.blocks[i];
    out += "  " + b.origin + ": " + std::string(name(b.dtype)) + " " + shape_text(b.array_shape);
    if (b.whole) out += " whole";
    else {
      out += " in blocks (";
      for (size_t d = 0; d < b.block.size(); ++d) out += (d ? ", " : "") + (b.block[d].kind == ir::BlockDim::Kind::squeezed ? std::string("squeezed") : std::to_string(b.block[d].size));
      out += ")";
    }
    bool interior = true;
    for (const BlockStart& start : block_starts(k, static_cast<int>(i), scalars)) interior = interior && start.interior;
    out += interior ? "; interior, no masks" : "; may hang over the edge, masked";
    if (s.residency[i] == Residency::registers) out += "; block kept in registers";
    if (s.residency[i] == Residency::arena) out += "; private tile in the arena";
    out += "\n";
  }
  for (size_t i = 0; i < k.scratch.size(); ++i)
    out += "  scratch[" + std::to_string(i) + "]: " + ir::to_string(k.scratch[i]) + (s.residency[k.blocks.size() + i] == Residency::registers ? "; in registers" : "; in the arena") + "\n";
  for (size_t a = 0; a < k.grid.size(); ++a)
    out += "  grid axis " + std::to_string(a) + (k.grid[a].name.empty() ? "" : " (" + k.grid[a].name + ")") + ": " + (parallel.axes[a].parallel ? "parallel, " : "") + parallel.axes[a].why + "\n";
  if (!k.grid.empty() && s.parallel.empty()) out += "  no axis is parallel: the call runs in one workgroup per split tile\n";
  for (size_t a = 0; a < axes.size() && !s.general; ++a) {
    const Axis& x = axes.axes[a];
    const AxisPlan& p = s.plans[a];
    if (!p.laid_out && !x.stored && !x.reduced && !x.contracted) continue;
    out += "  axis " + std::to_string(a) + ": " + std::to_string(x.extent) + (x.contracted ? " contracted" : x.reduced ? " reduced" : x.mixed ? " mixed" : " kept");
    if (p.laid_out) out += ", " + std::to_string(p.reg) + " registers x " + std::to_string(p.tcount) + " invocations";
    if (p.strips() > 1) out += " in " + std::to_string(p.strips()) + " strips";
    if (p.split) out += ", split into " + std::to_string(cdiv(x.extent, p.tile)) + " tiles of " + std::to_string(p.tile);
    out += "\n";
  }
  out += "  schedule for " + target.name + ": " + (s.general ? "general form, " : "");
  out += s.group == 1 ? std::to_string(s.workgroup) + " programs per workgroup, one per invocation" : "each unit on one workgroup of " + std::to_string(s.workgroup) + " invocations";
  out += "; units " + to_string(lanes.lane.num_units) + "\n";
  if (s.wide_dot == DotForm::shuffle) out += "  dots: columns on lanes, k values handed round by shuffle\n";
  if (s.wide_dot == DotForm::staged) out += "  dots: chunks of " + std::to_string(s.dot_chunk) + " staged in shared memory, the next one prefetched into registers\n";
  int64_t registers = 0;
  for (uint32_t v = 0; v < k.values.size(); ++v) {
    if (k.values[v].type.is_ref) continue;
    const std::vector<int> dims = axes.of(ir::Value{v});
    if (s.enumerable(axes, dims)) registers = std::max(registers, s.registers(dims));
  }
  out += "  shared " + std::to_string(lanes.lane.shared_bytes) + " B   scratch " + std::to_string(lanes.lane.scratch_bytes) + " B per workgroup   registers of the widest value " + std::to_string(registers) + "\n";
  for (const std::string& n : s.notes) out += "  " + n + "\n";
  return out;
}

}  // namespace tessera::lowering
