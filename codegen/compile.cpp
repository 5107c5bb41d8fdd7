#include "codegen/compile.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "codegen/fit_to_driver.h"
#include "codegen/lane/end_lives.h"
#include "codegen/lane/join_branches.h"
#include "codegen/lane/known_conditions.h"
#include "codegen/lane/unroll.h"
#include "codegen/lane/vectorize.h"
#include "codegen/lane/verify.h"
#include "codegen/lower/lower.h"
#include "codegen/make_program.h"
#include "codegen/nvidia/emit.h"
#include "codegen/plan/call_remarks.h"
#include "codegen/plan/explain.h"
#include "codegen/plan/parallel.h"
#include "codegen/plan/program_memory.h"
#include "codegen/spirv/emit.h"
#include "codegen/tile/accumulate.h"
#include "codegen/tile/check_sizes.h"
#include "codegen/tile/local_updates.h"
#include "codegen/tile/lower_async.h"
#include "codegen/tile/lower_threads.h"
#include "codegen/tile/rematerialize.h"
#include "codegen/tile/reroll.h"
#include "codegen/tile/squeeze.h"
#include "codegen/tile/unfold.h"
#include "codegen/tile/uniform.h"
#include "codegen/tpu/mosaic.h"
#include "engine/ir/compact.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace tessera {
namespace {

// One call of compile(): run() has its steps in order. What each makes goes through dump().
class Compilation {
 public:
  Compilation(const ir::Kernel& source, const Target& target, const CompileOptions& options)
      : source_(source), target_(lowering::target_of_thread(source, target)), options_(options), k_(source) {
    target_.compute_units =
        std::max(static_cast<int32_t>(std::ldexp(target_.compute_units, target_.choices.spread)), 1);
    // Vulkan does not say how a device sums the products of floats in a matrix.
    if (options.strict) std::erase_if(target_.matrices, [](const MatrixShape& s) { return is_float(s.sum); });
  }

  Program run() {
    ir::verify(k_, "input");
    lowering::check_sizes(k_);
    program_.relaxed = gpu() && !options_.strict;
    lower_async();
    simplify_tiles();
    number_prints();
    describe_call(program_, source_, k_);
    Lowered lowered = fit(to_lanes(0));
    program_.explain =
        lowered.explain + uniform_remarks_ + lowering::explain_copies(source_, k_, program_.waits.size(), prefetch_);
    finish_lanes(lowered.lanes);
    describe_dispatch(program_, lowered.lanes);
    explain_program(lowered.lanes);
    emit(lowered.lanes);
    return std::move(program_);
  }

 private:
  // A prefetched copy takes registers: worth it where loads take long and there are many invocations to hold it.
  static constexpr int64_t kMostPrefetched = 4096;

  bool gpu() const { return target_.kind == Target::Kind::gpu; }
  // What every step has made goes through here. It is verified as after a pass: where steps are dumped, and in builds
  // that check; otherwise the passes verify what comes to them, and verify_lane() the last kernel.
  void dump(const std::string& step, const ir::Kernel& kernel, bool changed) const {
#ifdef NDEBUG
    const bool checked = static_cast<bool>(options_.dump);
#else
    const bool checked = true;
#endif
    if (changed && checked) ir::verify(kernel, step);
    if (options_.dump) options_.dump(step, kernel, changed);
  }
  void optimize(ir::Kernel& kernel, const std::string& level) const {
    if (!options_.dump) return passes::optimize(kernel);
    passes::optimize(kernel, [&](const passes::Pass& p, const ir::Kernel& now, bool changed) {
      options_.dump(level + "/" + std::string(p.name), now, changed);
    });
  }

  void lower_async() {
    const bool expanded = lowering::lower_async(k_, program_.waits, &prefetch_);
    if (expanded) ir::compact(k_);
    dump("tile/lower_async", k_, expanded);
    optimize(k_, "tile");
    if (expanded) {
      lowering::check_waits(k_, program_.waits);
      if (lowering::drop_unread_scratch(k_)) optimize(k_, "tile");
    }
    ir::compact(k_);
  }

  // What is done about ops that a step has left without a use.
  enum class Leftovers : uint8_t { none, compact, drop, optimize };
  template <class F> void tile_step(const std::string& name, bool wanted, const F& rewrite, Leftovers leftovers) {
    const bool changed = wanted && rewrite(k_);
    if (changed && leftovers == Leftovers::drop) passes::dce(k_);
    dump("tile/" + name, k_, changed);
    if (!changed || leftovers == Leftovers::none) return;
    ir::compact(k_);
    if (leftovers != Leftovers::optimize) return;
    optimize(k_, "tile");
    ir::compact(k_);
  }
  void simplify_tiles() {
    const bool fast = !options_.general, on_gpu = fast && gpu();
    const auto narrow_uniform = [this](ir::Kernel& k) { return lowering::narrow_uniform(k, uniform_remarks_); };
    tile_step("squeeze", true, lowering::squeeze_refs, Leftovers::none);
    tile_step("uniform", fast && !k_.has_threads(), narrow_uniform, Leftovers::optimize);
    tile_step("reroll", on_gpu, lowering::reroll_products, Leftovers::optimize);
    tile_step("unfold", on_gpu, lowering::unfold_reshapes, Leftovers::drop);
    tile_step(
        "accumulate", true, [this](ir::Kernel& k) { return lowering::accumulate_into_dots(k, target_); },
        Leftovers::drop);
    tile_step(
        "local_updates", on_gpu && !k_.has_threads(),
        [this](ir::Kernel& k) { return lowering::update_locally(k, target_); }, Leftovers::compact);
    tile_step("rematerialize", fast, lowering::rematerialize, Leftovers::compact);
  }

  // Records that the code writes say by number which op they are from.
  void number_prints() {
    for (ir::Op& o : k_.ops) {
      if (!ir::is_print(o.code)) continue;
      ProgramPrint p{o.code == ir::Opcode::check, k_.texts[static_cast<size_t>(o.attr(ir::Attr::text))], {}, o.loc};
      for (size_t i = p.check; i < o.operands.size(); ++i)
        p.arguments.emplace_back(k_.type(o.operands[i]).dtype, k_.type(o.operands[i]).shape);
      o.set(ir::Attr::index, static_cast<int64_t>(program_.prints.size()));
      program_.prints.push_back(std::move(p));
    }
  }

  Lowered to_lanes(int smaller) const {
    Lowered made;
    const int wanted = gpu() ? smaller + target_.choices.smaller : smaller;
    made.lanes = lower(k_, target_, options_.general, wanted, &made.explain, program_.relaxed);
    dump("lower", made.lanes, true);
    optimize(made.lanes, "lane");
    ir::compact(made.lanes);
    const bool carried = gpu() && !options_.general && lowering::carry_stored(made.lanes);
    dump("lane/carry_stored", made.lanes, carried);
    if (carried) {
      optimize(made.lanes, "lane");
      ir::compact(made.lanes);
    }
    const bool hoisted = gpu() && !options_.general && lowering::hoist_barriers(made.lanes);
    dump("lane/hoist_barriers", made.lanes, hoisted);
    const int most = gpu() ? 64 : smaller == 1 ? 384 : 192 >> std::max(smaller - 2, 0);
    const bool unrolled = lowering::unroll_loops(made.lanes, most, gpu() ? 384 : 0);
    dump("lane/unroll", made.lanes, unrolled);
    if (unrolled) optimize(made.lanes, "lane");
    const bool known = gpu() && !options_.general && lowering::fold_known_conditions(made.lanes);
    dump("lane/known_conditions", made.lanes, known);
    if (known) {
      optimize(made.lanes, "lane");
      ir::compact(made.lanes);
    }
    return made;
  }

  Lowered fit(Lowered lowered) const {
    if (options_.general) return lowered;
    const auto again = [this](int smaller) { return to_lanes(smaller); };
    shrink_for_cpu_driver(lowered, target_, again);
    shrink_to_shared_memory(lowered, target_, again);
    return lowered;
  }

  void finish_lanes(ir::Kernel& lanes) {
    const bool joined = gpu() && lowering::join_branches(lanes);
    if (joined) passes::cse(lanes);
    dump("lane/join", lanes, joined);
    const bool wider = lowering::vectorize(lanes, target_);
    if (wider) {
      passes::dce(lanes);
      ir::compact(lanes);
    }
    dump("lane/vectorize", lanes, wider);
    const bool moved = gpu() && !options_.general && end_lives(lanes);
    dump("lane/end_lives", lanes, moved);
    std::optional<ir::Kernel> unbounded;  // a copy takes as long as a pass
    if (target_.max_loop_iterations > 0) unbounded = lanes;
    const bool bounded = bound_accesses(lanes, target_);
    dump("lane/bounds", lanes, bounded);
    if (unbounded) limit_loops(lanes, *unbounded, target_, program_);
    dump("lane/loops", lanes, lanes.lane.report_bytes > 0);
    ir::compact(lanes);
    lane::verify_lane(lanes, "lowering");
  }

  // Where it takes registers off a kernel that has many, more than a few.
  static bool end_lives(ir::Kernel& lanes) {
    constexpr int64_t kMany = 80;
    const int64_t before = lowering::live_registers(lanes);
    if (before <= kMany) return false;
    ir::Kernel moved = lanes;
    if (!lowering::end_lives_early(moved) || 8 * lowering::live_registers(moved) > 7 * before) return false;
    lanes = std::move(moved);
    return true;
  }

  void explain_program(const ir::Kernel& lanes) {
    program_.explain += "  shared " + std::to_string(lanes.lane.shared_bytes) + " B   scratch " +
                        std::to_string(lanes.lane.scratch_bytes) + " B per workgroup   about " +
                        std::to_string(lowering::live_registers(lanes)) + " registers per invocation\n";
    program_.explain += lowering::explain_call(source_, target_);
    if (program_.steps_extent >= 0) program_.explain += explain_steps(program_);
    if (program_.relaxed) program_.explain += "  arithmetic relaxed: as the op table allows for GPUs (not strict)\n";
  }

  void emit(const ir::Kernel& lanes) {
    if (!target_.chip.empty()) {
      program_.ptx =
          nvidia::emit(lanes, target_, program_.relaxed, options_.debug_info, lowering::live_registers(lanes));
      return;
    }
    program_.indirect_table = program_.push_bytes() > target_.push_constant_bytes;
    const spirv::SourceReader source_text = options_.source ? options_.source : spirv::read_source;
    program_.spirv = spirv::emit(lanes, target_, program_.indirect_table, options_.debug_info ? &source_text : nullptr,
                                 program_.relaxed);
  }

  const ir::Kernel& source_;
  Target target_;
  const CompileOptions& options_;
  ir::Kernel k_;  // the tile level, as far as it has come
  lowering::PrefetchedCopies prefetch_{gpu() && !options_.general ? kMostPrefetched : 0};
  std::string uniform_remarks_;
  Program program_;
};

// A TPU's compiler does all that the steps above do; its module is made of the tile level.
Program compile_for_tpu(const ir::Kernel& source, const Target& target, const CompileOptions& options) {
  const tpu::Chip& chip = tpu::chip_named(target.tpu_chip);
  const ir::Kernel k = tpu::prepare(source, options.sizes);
  if (options.dump) options.dump("tile", k, true);
  Program program;
  describe_call(program, source, k);
  program.mosaic = tpu::mosaic(k, chip);
  program.stable_hlo = tpu::stable_hlo(k, program.mosaic);
  return program;
}

}  // namespace

void check_lints(const ir::Kernel& k, const CompileOptions& options) {
  if (options.lint == Lint::off) return;
  if (k.has_threads()) {
    ir::Kernel programs = k;
    lowering::lower_threads(programs);
    if (!programs.has_threads()) check_lints(programs, options);
  } else if (has_all_sizes(k, options.sizes)) {
    check_lints(k, options.sizes, options.lint);
  }
}

Program compile(const ir::Kernel& k, const Target& target, const CompileOptions& options) {
  if (k.has_threads()) {
    ir::Kernel programs = k;
    if (target.chip.empty()) lowering::lower_threads(programs);
    else lowering::lower_threads_together(programs);
    if (options.dump) options.dump("tile/lower_threads", programs, true);
    if (programs.has_threads()) return Compilation(programs, target, options).run();
    return compile(programs, target, options);
  }
  check_lints(k, options);
  if (!target.tpu_chip.empty()) return compile_for_tpu(k, target, options);
  return Compilation(k, target, options).run();
}

std::vector<bool> parallel_axes(const ir::Kernel& source) {
  if (source.has_threads()) return std::vector<bool>(source.grid.size(), true);
  ir::Kernel k = source;
  std::vector<WaitSite> waits;
  if (lowering::lower_async(k, waits)) ir::compact(k);
  lowering::ScalarAnalysis scalars(k);
  Target any;
  any.int64_atomics = true;
  const lowering::ParallelPlan plan = lowering::plan_parallel(k, scalars, any);
  std::vector<bool> axes;
  for (size_t a = 0; a < k.grid.size(); ++a) axes.push_back(plan.is_parallel(a));
  return axes;
}

}  // namespace tessera
