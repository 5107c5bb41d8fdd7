#include "codegen/compile.h"

#include <algorithm>

#include "codegen/lane/prover.h"
#include "codegen/lane/cut.h"
#include "codegen/lane/loops.h"
#include "codegen/lane/verify.h"
#include "codegen/lower/accumulate.h"
#include "codegen/lower/call_notes.h"
#include "codegen/lower/explain.h"
#include "codegen/lower/parallel.h"
#include "codegen/lower/scopes.h"
#include "codegen/lower/separate.h"
#include "codegen/lower/squeeze.h"
#include "codegen/lower/uniform.h"
#include "codegen/lower/unroll.h"
#include "codegen/lower/vectorize.h"
#include "codegen/spirv/emit.h"
#include "engine/cost.h"
#include "engine/ir/compact.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"
#include "engine/plural.h"

namespace tessera {

namespace {

// Iterations of one invocation, as far as it is known before a call. A launch may have more workgroups than max_workgroups, and then fewer units
// for each.
LoopTotal iterations(const std::vector<ProgramLoop>& loops, const ir::LaneInfo& lane) {
  const LoopTotal least = total_iterations(loops, 0, nullptr);
  const std::optional<int64_t> all_units = lane.num_units.value();
  LoopTotal total = least;
  total.at_most.reset();
  if (lane.max_workgroups == 0 || all_units) {
    const int64_t units = lane.max_workgroups == 0 ? 0 : cdiv(*all_units, std::clamp<int64_t>(*all_units, 1, lane.max_workgroups));
    const LoopTotal most = total_iterations(loops, units, nullptr);
    total.at_most = most.at_most;
    total.at_most_loc = most.at_most_loc;
  }
  return total;
}

// What ends the loop over units (Program::units_extent), if nothing else reads it.
int32_t units_extent(const ir::Kernel& lanes) {
  if (lanes.lane.max_workgroups == 0) return -1;
  int32_t found = -1;
  for (const ir::Op& o : lanes.ops) {
    if (o.code != ir::Opcode::for_) continue;
    const ir::Op *end = lanes.def(o.operands[1]), *by = lanes.def(o.operands[2]), *from = lanes.def(o.operands[0]);
    if (!by || by->code != ir::Opcode::num_workgroups) continue;
    if (found >= 0 || !from || from->code != ir::Opcode::workgroup_index || !end || end->code != ir::Opcode::extent) return -1;
    found = static_cast<int32_t>(end->attr(ir::Attr::index));
  }
  int reads = 0;
  for (const ir::Op& o : lanes.ops)
    for (const ir::Value v : o.operands)
      if (const ir::Op* d = lanes.def(v); d && d->code == ir::Opcode::extent && d->attr(ir::Attr::index) == found) ++reads;
  return found >= 0 && reads == 1 ? found : -1;
}

// Positions, program ids and the numbers of elements and units of work are i32 in code. Sizes that arrive with a call are checked by its launch.
void check_sizes(const ir::Kernel& k) {
  constexpr int64_t kMost = INT32_MAX;
  const auto fail = [&](const std::string& what, __int128 n, const char* of, Loc loc, const char* hint) {
    const std::string count = n > INT64_MAX ? "more than " + std::to_string(INT64_MAX) : std::to_string(static_cast<int64_t>(n));
    throw CompileError(k.name + ": " + what + " has " + count + " " + of + ", but at most 2147483647 are numbered, in 32 bits", loc ? loc : k.loc, hint);
  };
  const auto product = [&](__int128 n, int64_t by) { return by == 0 ? 0 : n > INT64_MAX / by ? __int128{INT64_MAX} + 1 : n * by; };
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const ir::BlockMapping& b = k.blocks[i];
    for (size_t d = 0; d < b.array_shape.size(); ++d)
      if (const auto n = b.array_shape[d].value(); b.whole && n && *n > kMost) fail(b.origin + ": dim " + std::to_string(d) + " of its array", *n, "elements", b.loc, "give the array more dims, of fewer elements each");
    for (size_t d = 0; d < b.block.size(); ++d)
      if (b.block[d].size > kMost) fail(b.origin + ": dim " + std::to_string(d) + " of its block", b.block[d].size, "elements", b.loc, "use smaller blocks");
  }
  for (const ir::Region& r : k.regions)
    for (const ir::OpId id : r.ops)
      for (const ir::Value v : k.op(id).results) {
        __int128 n = 1;
        for (const int64_t d : k.type(v).shape) n = product(n, d);
        if (!k.type(v).is_ref && n > kMost) fail("a value of shape " + to_string(k.type(v).shape), n, "elements", k.op(id).loc, "use smaller blocks");
      }
  for (size_t i = 0; i < k.scratch.size(); ++i) {
    __int128 n = 1;
    for (const int64_t d : k.scratch[i].shape) n = product(n, d);
    if (n > kMost) fail("scratch[" + std::to_string(i) + "]", n, "elements", k.loc, "use less scratch");
  }
  for (size_t a = 0; a < k.grid.size(); ++a)
    if (const auto n = k.grid[a].size.value(); n && *n > kMost) fail("grid axis " + std::to_string(a), *n, "programs", k.loc, "program ids are i32: use larger blocks, or more axes");
}

// Loops that may run into such a driver's limit.
bool loops_too_close(const ir::Kernel& lanes, const Target& target) {
  if (target.max_loop_iterations == 0) return false;
  const LoopTotal total = iterations(lane::count_loops(lanes, target), lanes.lane);
  return total.at_most ? *total.at_most > target.max_loop_iterations : total.at_least > target.max_loop_iterations / 4;
}

// Iterations that a kernel may take, as far as they are known.
int64_t longest(const ir::Kernel& lanes, const Target& target) {
  const LoopTotal t = iterations(lane::count_loops(lanes, target), lanes.lane);
  return t.at_most.value_or(t.at_least);
}

std::string explain_steps(const Program& p) {
  const std::optional<int64_t> total = p.extents[static_cast<size_t>(p.steps_extent) + 1].value();
  std::string text = "  loops cut: ";
  if (p.open_ended) text += "into dispatches of " + plural(static_cast<size_t>(steps_at_once(p, total.value_or(INT64_MAX), nullptr)), "step") + " each, until all workgroups are done, which data decides";
  else if (!total) text += "into as many dispatches as the sizes of the call ask for";
  else {
    const int64_t each = steps_at_once(p, *total, nullptr);
    text += plural(static_cast<size_t>(cdiv(*total, each)), "dispatch", "dispatches") + " of " + plural(static_cast<size_t>(each), "step") + " each, " + std::to_string(*total) + " in all";
  }
  return text + ", because the driver leaves all loops after " + std::to_string(p.max_loop_iterations) + " iterations\n";
}

// What a proof finds depends on the order in which values are numbered: it is made with the numbers that stay.
bool bound_accesses(ir::Kernel& lanes, const Target& target) {
  ir::compact(lanes);
  bool changed = lane::bound_accesses(lanes, !target.skips_branches);
  bool moved = changed;
  for (int rounds = 0; moved && rounds < 8; ++rounds) {
    ir::compact(lanes);
    moved = lane::bound_accesses(lanes, false);
  }
  return changed;
}

// The dispatches of a kernel whose loops are cut, where constants tell; nothing where loops cannot be cut. `fits`: it is known that a dispatch has most of its iterations for steps.
struct Cut { std::optional<int64_t> dispatches; bool fits, open; };
std::optional<Cut> cut_of(ir::Kernel lanes, const Target& target) {
  const auto cut = lane::cut_loops(lanes, target);
  if (!cut) return std::nullopt;
  Program p;
  p.max_loop_iterations = target.max_loop_iterations;
  p.loops = {{lanes.loc, 0, cut->at_most}};
  p.open_ended = lanes.lane.open_ended;
  const std::optional<int64_t> total = cut->steps.value(), beyond = cut->at_most ? cut->at_most->value() : std::nullopt;
  return Cut{total ? std::optional(cdiv(*total, steps_at_once(p, *total, nullptr))) : std::nullopt, beyond && *beyond < target.max_loop_iterations / 2, lanes.lane.open_ended};
}

// A driver that leaves loops too early: loops that constants prove short are fine, those that they prove too long an error. What arrives with
// a call is checked by its launch; and where neither proves enough, the code reports to the host that its loops were cut. `unbounded`: the same code before its accesses were
// bounded, which is cut into dispatches and bounded then.
void limit_loops(ir::Kernel& lanes, const ir::Kernel& unbounded, const Target& target, Program& program) {
  std::vector<ProgramLoop> loops = lane::count_loops(lanes, target);
  const LoopTotal total = iterations(loops, lanes.lane);
  if (total.at_most && *total.at_most <= target.max_loop_iterations) return;
  ir::Kernel in_steps = unbounded;
  if (const auto cut = lane::cut_loops(in_steps, target)) {
    lanes = std::move(in_steps);
    bound_accesses(lanes, target);
    loops = {{total.at_most_loc ? total.at_most_loc : lanes.loc, 0, cut->at_most}};
  } else if (total.at_least > target.max_loop_iterations) {
    throw CompileError(loops_too_long(lanes.name, total.at_least, "", target.name, target.max_loop_iterations), total.at_least_loc, kShorterLoops);
  }
  lane::report_cut_loops(lanes);
  program.loops = std::move(loops);
  program.max_loop_iterations = target.max_loop_iterations;
}

}  // namespace

Program compile(const ir::Kernel& source, const Target& target, const CompileOptions& options) {
  ir::Kernel k = source;
  ir::verify(k, "input");
  check_sizes(k);
  auto dump = [&](const std::string& step, const ir::Kernel& kernel, bool changed) {
    if (options.dump) options.dump(step, kernel, changed);
  };
  auto optimize = [&](ir::Kernel& kernel, const std::string& level) {
    if (!options.dump) return passes::optimize(kernel);
    passes::optimize(kernel, [&](const passes::Pass& p, const ir::Kernel& now, bool changed) { dump(level + "/" + std::string(p.name), now, changed); });
  };
  Program program;
  // A copy loaded ahead lives in registers: worth it where loads take long and there are many invocations to hold it.
  constexpr int64_t kMostAhead = 4096;
  lowering::Prefetch prefetch{target.kind == Target::Kind::gpu && !options.general ? kMostAhead : 0};
  const bool expanded = lowering::expand_scopes(k, program.waits, &prefetch);
  if (expanded) ir::compact(k);
  dump("tile/scopes", k, expanded);
  optimize(k, "tile");
  if (expanded) {
    lowering::check_waits(k, program.waits);
    if (lowering::drop_unread_scratch(k)) optimize(k, "tile");
  }
  ir::compact(k);
  const bool squeezed = lowering::squeeze_refs(k);
  dump("tile/squeeze", k, squeezed);
  std::string narrow_notes;
  const bool narrowed = !options.general && lowering::narrow_uniform(k, narrow_notes);
  dump("tile/uniform", k, narrowed);
  if (narrowed) {
    ir::compact(k);
    optimize(k, "tile");
    ir::compact(k);
  }
  const bool accumulated = lowering::accumulate_into_dots(k);
  if (accumulated) passes::dce(k);
  dump("tile/accumulate", k, accumulated);
  if (accumulated) ir::compact(k);
  const bool separated = !options.general && lowering::separate_uses(k);
  dump("tile/separate", k, separated);
  if (separated) ir::compact(k);
  for (ir::Op& o : k.ops) {
    if (!ir::is_print(o.code)) continue;
    ProgramPrint p{o.code == ir::Opcode::check, k.texts[static_cast<size_t>(o.attr(ir::Attr::text))], {}, o.loc};
    for (size_t i = p.check; i < o.operands.size(); ++i) p.arguments.emplace_back(k.type(o.operands[i]).dtype, k.type(o.operands[i]).shape);
    o.set(ir::Attr::index, static_cast<int64_t>(program.prints.size()));
    program.prints.push_back(std::move(p));
  }
  for (const ir::GridAxis& axis : k.grid) program.axis_names.push_back(axis.name);
  const auto to_lanes = [&](int smaller, std::string& explain) {
    ir::Kernel lanes = lower(k, target, options, &explain, smaller);
    dump("lower", lanes, true);
    optimize(lanes, "lane");
    ir::compact(lanes);
    const bool unrolled = lowering::unroll_loops(lanes, target.kind == Target::Kind::cpu ? smaller == 1 ? 384 : 192 >> std::max(smaller - 2, 0) : 64);
    dump("lane/unroll", lanes, unrolled);
    if (unrolled) optimize(lanes, "lane");
    return lanes;
  };
  ir::Kernel lanes = to_lanes(0, program.explain);
  // Lavapipe's LLVM makes coroutines of shaders, in time that grows with the square of these: 320 take it a second, 3300 more than a minute.
  constexpr int64_t kMostBranches = 640;
  // Loops where there are no registers, and less unrolled by steps of a half, as many at once as the count asks for and the driver's limit on iterations allows; the last
  // leaves one element to each invocation.
  constexpr int kSmallest = 10;
  // Where loops may be too long as it is, they may become a little longer; and longer than a dispatch's where they can be cut, into no more dispatches than now. Beyond kTooManyBranches the
  // driver's compiler takes more than about 10 s: that is worth some 60 us a dispatch, hidden where each has enough to do.
  constexpr int64_t kTooManyBranches = 1280, kMostDispatches = 512, kWorthADispatch = 200;
  const int64_t first_longest = loops_too_close(lanes, target) ? longest(lanes, target) : 0;
  std::optional<int64_t> dispatches_now;
  const auto too_long = [&](const ir::Kernel& less, int64_t branches) {
    if (first_longest > 0 ? longest(less, target) - first_longest <= first_longest / 4 : !loops_too_close(less, target)) return false;
    if (!dispatches_now) {
      const std::optional<Cut> now = first_longest > 0 ? cut_of(lanes, target) : std::nullopt;
      dispatches_now = now ? now->dispatches.value_or(0) : 0;
    }
    const int64_t most = branches > kTooManyBranches ? std::max({kMostDispatches, longest(lanes, target) / kWorthADispatch, *dispatches_now}) : *dispatches_now;
    const std::optional<Cut> cut = cut_of(less, target);
    return !cut || !cut->fits || (!cut->open && (!cut->dispatches || *cut->dispatches > most));
  };
  for (int smaller = 0, most = target.kind == Target::Kind::cpu && !options.general ? kSmallest : 0; smaller < most;) {
    const int64_t n = lowering::count_branches(lanes);
    if (n <= kMostBranches) break;
    int wanted = smaller == 0 ? 2 : smaller;
    for (int64_t left = n; left > kMostBranches; left /= 4) wanted += 2;
    for (wanted = std::min(wanted, most); wanted > smaller;) {
      std::string explain;
      ir::Kernel less = to_lanes(wanted, explain);
      if (too_long(less, n)) {
        most = --wanted;
        continue;
      }
      lanes = std::move(less);
      smaller = wanted;
      program.explain = explain + (smaller < 3 ? "  nests without registers are loops" : "  unrolled 1/" + std::to_string(1 << (smaller - 2)) + " as far as elsewhere") + ": " + std::to_string(n) +
                        " loads, stores and branches would take a CPU driver's compiler long (the aim is " + std::to_string(kMostBranches) + ")\n";
    }
  }
  // What does not fit shared memory lies in global memory, all of it; smaller tiles are better.
  for (int smaller = 1; smaller <= 2 && target.kind == Target::Kind::gpu && !options.general && lanes.lane.scratch_bytes > 0; ++smaller) {
    std::string explain;
    ir::Kernel less = to_lanes(smaller, explain);
    if (less.lane.scratch_bytes > 0) continue;
    lanes = std::move(less);
    program.explain = explain + "  tiles " + (smaller == 1 ? "half" : "a quarter") + " as wide as elsewhere, so that the arena fits shared memory\n";
  }
  program.explain += narrow_notes + lowering::explain_copies(source, k, program.waits.size(), prefetch);
  // Lavapipe splits vectors of four into scalar loads, but loads 64 bits at once.
  bool wider = target.kind == Target::Kind::gpu && lowering::vectorize_loads(lanes, 4);
  wider = lowering::vectorize_loads(lanes, 2) || wider;
  if (wider) ir::compact(lanes);
  dump("lane/vectorize", lanes, wider);
  const ir::Kernel unbounded = lanes;
  const bool bounded = bound_accesses(lanes, target);
  dump("lane/bounds", lanes, bounded);
  if (target.max_loop_iterations > 0) limit_loops(lanes, unbounded, target, program);
  dump("lane/loops", lanes, program.report_bytes > 0);
  ir::compact(lanes);
  lane::verify_lane(lanes, "lowering");
  program.explain += "  shared " + std::to_string(lanes.lane.shared_bytes) + " B   scratch " + std::to_string(lanes.lane.scratch_bytes) +
                     " B per workgroup   about " + std::to_string(lowering::live_registers(lanes)) + " registers per invocation\n";
  program.explain += lowering::explain_call(source, target);

  program.name = k.name;
  program.loc = k.loc;
  program.metadata = k.call.metadata;
  program.cost_estimate = k.call.cost_estimate ? *k.call.cost_estimate : estimate_cost(source);
  std::vector<bool> read(k.blocks.size(), false), written(k.blocks.size(), false);
  for (const ir::Op& o : k.ops) {
    if (!ir::accesses_ref(o.code)) continue;
    const auto i = static_cast<size_t>(lowering::memory_of(k, lowering::ref_position(k, o.operands[0])));
    if (i >= k.blocks.size()) continue;
    if (ir::reads_ref(o.code)) read[i] = true;
    if (ir::writes_ref(o.code)) written[i] = true;
  }
  for (size_t i = 0; i < k.blocks.size(); ++i)
    program.args.push_back({k.blocks[i].origin, k.blocks[i].dtype, k.blocks[i].array_shape, k.is_output(static_cast<int>(i)), read[i], written[i], k.blocks[i].loc, k.blocks[i].alias});
  for (const ir::GridAxis& axis : k.grid) program.grid.push_back(axis.size);
  program.workgroup_size = lanes.lane.workgroup_size;
  program.required_subgroup_size = lanes.lane.subgroup_size;
  program.shared_bytes = lanes.lane.shared_bytes;
  program.scratch_bytes = lanes.lane.scratch_bytes;
  program.report_bytes = lanes.lane.report_bytes;
  program.max_workgroups = static_cast<int32_t>(lanes.lane.max_workgroups);
  program.num_units = lanes.lane.num_units;
  program.extents = lanes.lane.extents;
  program.extent_is_64 = lanes.lane.extent_is_64;
  program.units_extent = units_extent(lanes);
  program.steps_extent = lanes.lane.steps_extent;
  program.open_ended = lanes.lane.open_ended;
  if (program.steps_extent >= 0) program.explain += explain_steps(program);
  program.indirect_table = program.push_bytes() > target.push_constant_bytes;
  const spirv::SourceReader source_text = options.source ? options.source : spirv::read_source;
  program.spirv = spirv::emit(lanes, target, program.indirect_table, options.debug_info ? &source_text : nullptr);
  return program;
}

std::vector<bool> parallel_axes(const ir::Kernel& source) {
  ir::Kernel k = source;
  std::vector<WaitSite> waits;
  if (lowering::expand_scopes(k, waits)) ir::compact(k);
  lowering::ScalarAnalysis scalars(k);
  Target any;
  any.int64_atomics = true;
  const lowering::ParallelPlan plan = lowering::plan_parallel(k, scalars, any);
  std::vector<bool> axes;
  for (size_t a = 0; a < k.grid.size(); ++a) axes.push_back(plan.is_parallel(a));
  return axes;
}

}  // namespace tessera
