// The table of pass_files.h: one entry per pass, and a printer for each analysis. An analysis is the kernel's body with
// what is known of each line behind a semicolon.
#include "tests/unit/codegen/pass_files.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "codegen/fit_to_driver.h"
#include "codegen/lane/cut.h"
#include "codegen/lane/end_lives.h"
#include "codegen/lane/join_branches.h"
#include "codegen/lane/known_conditions.h"
#include "codegen/lane/loops.h"
#include "codegen/lane/steps.h"
#include "codegen/lane/uniformity.h"
#include "codegen/lane/unroll.h"
#include "codegen/lane/vectorize.h"
#include "codegen/lower/lower.h"
#include "codegen/plan/affine.h"
#include "codegen/plan/axes.h"
#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/keep.h"
#include "codegen/plan/parallel.h"
#include "codegen/plan/residency.h"
#include "codegen/plan/schedule.h"
#include "codegen/plan/vector_width.h"
#include "codegen/spirv/buffer_order.h"
#include "codegen/tile/accumulate.h"
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
#include "engine/ir/text.h"
#include "engine/passes/divisors.h"
#include "engine/passes/passes.h"
#include "engine/passes/ranges.h"

namespace tessera::test {
namespace {
using ir::Kernel, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

std::string body_of_text(const std::string& text) { return text.substr(text.find("\nbody (") + 1); }

/// The body's text, with a note behind each op for which there is one.
std::string annotated(Kernel k, const std::function<std::string(OpId)>& note) {
  constexpr std::string_view kMark = "  // @:";
  for (uint32_t i = 0; i < k.ops.size(); ++i) k.ops[i].loc = {"@", i};
  std::istringstream lines(body_of_text(ir::print(k, true)));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(kMark);
    if (at == std::string::npos) {
      out += line + "\n";
      continue;
    }
    const std::string text = line.substr(0, at),
                      said = note({static_cast<uint32_t>(std::stoul(line.substr(at + kMark.size())))});
    const bool yields_nothing =
        text.find_first_not_of(' ') != std::string::npos && text.substr(text.find_first_not_of(' ')) == "yield";
    if (!yields_nothing) out += text + (said.empty() ? "" : "  ; " + said) + "\n";
  }
  return out;
}
/// One note for each result of an op, and for a loop one for its counter.
std::string annotated_values(const Kernel& k, const std::function<std::string(Value)>& note) {
  return annotated(k, [&](OpId id) {
    const Op& o = k.op(id);
    std::string s;
    const auto add = [&](const std::string& one) {
      if (!one.empty()) s += (s.empty() ? "" : ", ") + one;
    };
    for (const Value v : o.results) add(note(v));
    if (o.code == Opcode::for_) {
      const std::string counter = note(k.region(o.regions[0]).args[0]);
      if (!counter.empty()) add("counter " + counter);
    }
    return s;
  });
}
bool is_number(const Kernel& k, Value v) {
  return !k.type(v).is_ref && !is_float(k.type(v).dtype) && !ir::constant_bits(k, v);
}

std::string interval(int64_t lo, int64_t hi, DType t) {
  if (const Bounds all = values_of(t); all && all->lo == lo && all->hi == hi) return "any " + std::string(name(t));
  return lo == hi ? std::to_string(lo) : "[" + std::to_string(lo) + ", " + std::to_string(hi) + "]";
}
std::string form(const lowering::Affine& a, DType t) {
  std::string s;
  for (size_t i = 0; i < a.coef.size(); ++i)
    if (a.coef[i] != 0)
      s += (a.coef[i] == 1 ? "" : std::to_string(a.coef[i]) + " * ") + "p" + std::to_string(i) + " + ";
  if (!a.rest.bounded()) return s + "anything";
  if (!s.empty() && a.rest.lo == 0 && a.rest.hi == 0) return s.substr(0, s.size() - 3);
  return s + interval(a.rest.lo, a.rest.hi, t);
}
std::string axes_text(const std::vector<bool>& axes) {
  std::string s;
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a]) s += (s.empty() ? "" : ", ") + std::to_string(a);
  return s.empty() ? "none" : s;
}

std::string print_affine(const Kernel& k, const PassSettings&) {
  lowering::ScalarAnalysis scalars(k);
  return annotated_values(k, [&](Value v) { return is_number(k, v) ? form(scalars.of(v), k.type(v).dtype) : ""; });
}

std::string print_ranges(const Kernel& k, const PassSettings&) {
  passes::Ranges ranges(k);
  const auto walk = [&](const auto& self, RegionId r) -> void {
    for (const OpId id : k.region(r).ops) {
      const Op& o = k.op(id);
      if (o.results.size() == 1 && o.regions.empty()) ranges.set(o.results[0], ranges.compute(o, k.type(o.results[0])));
      if (o.code == Opcode::for_)
        ranges.set(k.region(o.regions[0]).args[0],
                   counter_bounds(*ranges.of(o.operands[0]), *ranges.of(o.operands[1])));
      for (const RegionId inner : o.regions) self(self, inner);
    }
  };
  walk(walk, k.body);
  return annotated_values(k, [&](Value v) -> std::string {
    if (!is_number(k, v)) return "";
    const Bounds b = ranges.of(v);
    return b ? interval(b->lo, b->hi, k.type(v).dtype) : "any " + std::string(name(k.type(v).dtype));
  });
}

std::string print_divisors(const Kernel& k, const PassSettings&) {
  passes::Divisors divisors(k);
  return annotated_values(
      k, [&](Value v) { return is_number(k, v) ? "multiple of " + std::to_string(divisors.of(v)) : std::string(); });
}

std::string print_parallel(const Kernel& k, const PassSettings& s) {
  lowering::ScalarAnalysis scalars(k);
  const lowering::ParallelPlan plan = lowering::plan_parallel(k, scalars, s.target);
  std::string out;
  for (size_t a = 0; a < plan.axes.size(); ++a)
    out += "axis " + std::to_string(a) + ": " + (plan.axes[a].parallel ? "parallel, " : "") + plan.axes[a].why + "\n";
  if (plan.declared) out += "by declaration alone\n";
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    out += k.blocks[i].origin + ":";
    for (const lowering::BlockStart& b : lowering::block_starts(k, static_cast<int>(i), scalars))
      out += " [" + form(b.form, DType::i32) + (b.in_range ? "" : ", clamped") + (b.interior ? "" : ", may hang over") +
             (b.nothing_below ? "" : ", may begin before") + "]";
    if (plan.commuting[i]) out += " updates commute";
    if (plan.concurrent[i]) out += " updated at once";
    if (lowering::needs_copy(k, static_cast<int>(i))) out += " copied at the start";
    if (const int o = k.aliased_output(static_cast<int>(i)); o >= 0)
      out += lowering::same_blocks(k, static_cast<int>(i), o) ? ", the same blocks as its output"
                                                              : ", other blocks than its output";
    out += "\n";
  }
  for (const lowering::Access& a : plan.accesses) {
    out += std::string(ir::name(k.op(a.op).code)) + " " + k.blocks[static_cast<size_t>(a.ref)].origin + ":";
    for (const lowering::Affine& d : a.dims) out += " [" + form(d, DType::u64) + "]";
    out += "\n";
  }
  return out;
}

std::string print_known(const Kernel& k, const PassSettings& s) {
  lowering::ScalarAnalysis scalars(k);
  const lowering::ParallelPlan plan = lowering::plan_parallel(k, scalars, s.target);
  std::vector<bool> parallel;
  for (size_t a = 0; a < plan.axes.size(); ++a) parallel.push_back(plan.is_parallel(a));
  const auto known = lowering::known_scalars(k, parallel, scalars);
  std::string out = "parallel axes: " + axes_text(parallel) + "\n";
  return out + annotated_values(k, [&](Value v) {
           std::string always, first;
           for (const lowering::KnownScalar& x : known)
             if (x.v == v && !ir::constant_bits(k, v))
               (x.at_first.empty() ? always : first) =
                   ir::literal(k.type(v).dtype, x.bits) +
                   (x.at_first.empty() ? "" : " where the ids of axes " + axes_text(x.at_first) + " are 0");
           return always.empty() ? first : always;
         });
}

std::string print_axes(const Kernel& k, const PassSettings& settings) {
  const std::vector<bool> resident = lowering::resident_candidates(k);
  const lowering::Axes axes(k, resident, settings.target.kind == Target::Kind::gpu);
  std::map<int, int> number;  // in order of appearance
  const auto named = [&](int a) {
    return a == lowering::kNoAxis
               ? std::string("-")
               : "a" + std::to_string(number.try_emplace(a, static_cast<int>(number.size())).first->second);
  };
  const auto dims = [&](Value v) {
    std::string s;
    for (const int a : axes.of(v)) s += (s.empty() ? "" : " ") + named(a);
    return s;
  };
  std::string out = annotated_values(k, [&](Value v) { return k.type(v).is_ref ? std::string() : dims(v); });
  for (size_t i = 0; i < resident.size(); ++i)
    if (resident[i])
      out += "argument " + std::to_string(i) + " may live in registers: " + dims(k.region(k.body).args[i]) + "\n";
  std::map<int, int> in_order;
  for (const auto& [a, n] : number) in_order[n] = a;
  for (const auto& [n, a] : in_order) {
    const lowering::Axis& x = axes.axes[static_cast<size_t>(a)];
    out += "a" + std::to_string(n) + ": " + std::to_string(x.extent) + (x.mixed ? ", mixed" : "") +
           (x.reduced ? ", reduced" : "") + (x.contracted ? ", contracted" : "") + (x.stored ? ", stored" : "") + "\n";
  }
  return out;
}

/// Of what is loaded and stored, dim by dim.
std::string print_widths(const Kernel& k, const PassSettings&) {
  const lowering::Axes axes(k, lowering::resident_candidates(k), true);
  const std::vector<int> widths = lowering::vector_widths(k, axes);
  return annotated(k, [&](OpId id) {
    const Op& o = k.op(id);
    std::string s;
    if (!ir::accesses_ref(o.code)) return s;
    for (const int a : axes.of(o.results.empty() ? o.operands[1] : o.results[0]))
      s += (s.empty() ? "widths " : " ") +
           (a == lowering::kNoAxis ? std::string("-") : std::to_string(widths[static_cast<size_t>(a)]));
    return s;
  });
}

std::string print_schedule(const Kernel& k, const PassSettings& s) {
  std::string explain;
  lower(k, s.target, s.general, 0, &explain, s.target.kind == Target::Kind::gpu);
  return explain;
}

/// The module for a TPU, or why there is none.
std::string print_mosaic(const Kernel& k, const PassSettings& s) {
  try {
    return tpu::mosaic(tpu::prepare(k), tpu::chip_named(s.chip));
  } catch (const CompileError& e) {
    return "refused: " + std::string(e.what()) + "\n";
  }
}

std::string print_kept(const Kernel& k, const PassSettings& s) {
  const std::vector<bool> lazy = lowering::lazy_values(k);
  const std::vector<lowering::Kept> kept =
      lowering::choose_kept(k, [&](Value) { return lowering::Keeping{s.in_arena, s.dear}; });
  return annotated_values(k, [&](Value v) -> std::string {
    if (k.type(v).is_ref || k.type(v).shape.empty()) return "";
    if (!lazy[v.index]) return "evaluated where it stands";
    const lowering::Kept& x = kept[v.index];
    return x.yes ? "kept: uses " + std::to_string(x.uses) + ", each costs " + std::to_string(x.cost) : "lazy";
  });
}

std::string print_uniform_dims(const Kernel& k, const PassSettings&) {
  const auto uniform = lowering::uniform_dims(k);
  const auto of = [&](Value v) {
    std::string s;
    for (size_t d = 0; d < uniform[v.index].size(); ++d)
      if (uniform[v.index][d] && k.type(v).shape[d] > 1)
        s += (s.empty() ? "the same along " : ", ") + std::to_string(d);
    return s;
  };
  std::string out = annotated_values(k, [&](Value v) { return ir::constant_bits(k, v) ? std::string() : of(v); });
  const auto& args = k.region(k.body).args;
  for (size_t i = k.blocks.size(); i < args.size(); ++i)
    out += "scratch[" + std::to_string(i - k.blocks.size()) +
           "]: " + (of(args[i]).empty() ? "differs along all" : of(args[i])) + "\n";
  return out;
}

std::string print_loops(const Kernel& source, const PassSettings& s) {
  Kernel k = source;
  for (uint32_t i = 0; i < k.ops.size(); ++i) k.ops[i].loc = {"@", i};
  const std::vector<ProgramLoop> loops = lane::count_loops(k, s.target);
  const auto trips = lane::max_trip_counts(k, s.target);
  return annotated(k, [&](OpId id) {
    std::string t;
    for (const ProgramLoop& l : loops)
      if (l.loc.line == id.index)
        t += "iterations " + to_string(l.at_least) + " to " + (l.at_most ? to_string(*l.at_most) : "any");
    const Op& o = k.op(id);
    if (o.code != Opcode::for_) return t;
    const auto most = trips.find(o.regions[0].index);
    t += most == trips.end() ? ", trip count unknown" : ", trip count at most " + to_string(most->second);
    if (const int copies = lane::copies_per_iteration(k, o, s.target); copies > 1)
      t += ", " + std::to_string(copies) + " copies";
    return t;
  });
}

std::string print_buffer_order(const Kernel& k, const PassSettings&) {
  return std::string("barriers order ") + (spirv::barriers_order_buffers(k) ? "buffers, too" : "shared memory") + "\n";
}

std::string print_uniformity(const Kernel& k, const PassSettings&) {
  const lane::UniformityInfo info = lane::analyze_uniformity(k);
  const auto short_name = [](lane::Uniformity u) {
    return std::string(u == lane::Uniformity::workgroup  ? "workgroup"
                       : u == lane::Uniformity::subgroup ? "subgroup"
                                                         : "varying");
  };
  return annotated(k, [&](OpId id) {
    const Op& o = k.op(id);
    std::string s;
    if (o.code == Opcode::constant) return s;
    for (const Value v : o.results) s += (s.empty() ? "" : ", ") + short_name(info.values[v.index]);
    if (o.code == Opcode::for_)
      s += (s.empty() ? "" : ", ") + ("counter " + short_name(info.values[k.region(o.regions[0]).args[0].index]));
    if (!o.regions.empty())
      s += (s.empty() ? "" : ", ") + ("runs for " + short_name(info.control[o.regions.back().index]));
    return s;
  });
}

std::string print_steps(const Kernel& k, const PassSettings& s) {
  const auto plan = lane::plan_steps(k, s.target.max_loop_iterations, lane::max_trip_counts(k, s.target));
  if (!plan) return "no loop can be cut";
  const auto at = [](const std::unordered_map<uint32_t, Extent>& m, uint32_t i) {
    return m.count(i) ? to_string(m.at(i)) : std::string("-");
  };
  std::string out = "steps " + to_string(plan->total) + ", iterations beyond them " +
                    (plan->at_most ? "at most " + to_string(*plan->at_most) : "any") +
                    (plan->open ? ", open-ended" : "") + "\n";
  const auto region = [&](RegionId r) {
    return "takes " + at(plan->time, r.index) +
           (plan->tail.count(r.index) ? ", tail in " + at(plan->tail, r.index) : "") +
           (plan->whole.count(r.index) ? ", whole" : "");
  };
  out += "body: " + region(k.body) + "\n";
  return out + annotated(k, [&](OpId id) {
           if (!plan->children.count(id.index)) return std::string();
           const Op& o = k.op(id);
           std::string t = "before " + at(plan->before, id.index) + ", start " + at(plan->start, id.index) + ", span " +
                           at(plan->span, id.index) + ", passing " + at(plan->passing, id.index);
           for (const RegionId r : o.regions)
             if (plan->time.count(r.index))
               t += "; " + std::string(o.code == Opcode::if_ ? "side " : "iteration ") + region(r) +
                    (plan->in_data.count(r.index) ? ", trip count in data" : "");
           return t;
         });
}

// -- passes
template <bool (*F)(Kernel&)> bool plain(Kernel& k, const PassSettings&, std::string&) { return F(k); }

bool run_lower_async(Kernel& k, const PassSettings& s, std::string& remarks) {
  std::vector<WaitSite> sites;
  lowering::PrefetchedCopies prefetch{s.prefetch};
  const bool changed = lowering::lower_async(k, sites, &prefetch);
  if (changed) ir::compact(k);
  for (size_t i = 0; i < sites.size(); ++i)
    remarks += "wait " + std::to_string(i) + ": " + sites[i].op + " of " + sites[i].semaphore +
               (sites[i].bytes ? ", bytes" : "") + "\n";
  if (!prefetch.copies.empty()) remarks += "prefetched: " + std::to_string(prefetch.copies.size()) + "\n";
  for (const auto& [op, why] : prefetch.refused) remarks += "not prefetched: " + why + "\n";
  return changed;
}
bool run_uniform(Kernel& k, const PassSettings&, std::string& remarks) {
  const bool changed = lowering::narrow_uniform(k, remarks);
  if (changed) ir::compact(k);
  return changed;
}
bool run_unfold(Kernel& k, const PassSettings&, std::string&) {
  const bool changed = lowering::unfold_reshapes(k);
  if (changed) passes::dce(k);
  return changed;
}
bool run_reroll(Kernel& k, const PassSettings&, std::string&) { return lowering::reroll_products(k); }

bool run_local_updates(Kernel& k, const PassSettings& s, std::string&) { return lowering::update_locally(k, s.target); }
bool run_accumulate(Kernel& k, const PassSettings& s, std::string&) {
  const bool changed = lowering::accumulate_into_dots(k, s.target);
  if (changed) passes::dce(k);
  return changed;
}
bool run_atomics(Kernel& k, const PassSettings& s, std::string&) {
  const std::string before = ir::print(k);
  lowering::expand_atomics(k, s.target);
  return ir::print(k) != before;
}
bool run_unroll(Kernel& k, const PassSettings& s, std::string& remarks) {
  ir::compact(k);
  const bool changed = lowering::unroll_loops(k, s.budget, s.target.kind == Target::Kind::gpu ? 384 : 0);
  remarks += "branches: " + std::to_string(lowering::count_branches(k)) + "\n";
  return changed;
}
bool run_vectorize(Kernel& k, const PassSettings& s, std::string&) { return lowering::vectorize(k, s.target); }
bool run_bounds(Kernel& k, const PassSettings& s, std::string&) { return bound_accesses(k, s.target); }
bool run_cut(Kernel& k, const PassSettings& s, std::string& remarks) {
  const auto cut = lane::cut_loops(k, s.target);
  if (cut)
    remarks += "steps " + to_string(cut->steps) + ", iterations beyond them " +
               (cut->at_most ? "at most " + to_string(*cut->at_most) : "any") + "\n";
  return cut.has_value();
}
bool run_report(Kernel& k, const PassSettings&, std::string&) {
  lane::report_cut_loops(k);
  return true;
}
bool run_lower(Kernel& k, const PassSettings& s, std::string&) {
  k = lower(k, s.target, s.general, 0, nullptr, s.target.kind == Target::Kind::gpu);
  if (!s.raw) passes::optimize(k);
  ir::compact(k);
  return true;
}
}  // namespace

PassSettings pass_settings(const std::map<std::string, std::string>& words) {
  PassSettings s;
  s.target = lavapipe_target();
  s.target.max_loop_iterations = 0;
  const auto wrong = [](const std::string& word, const std::string& value) {
    return std::runtime_error("'// " + word + ": " + value +
                              "' is nothing that a file of tests/tir/passes can ask for");
  };
  const auto number = [&](const std::string& word, const std::string& value) {
    if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) throw wrong(word, value);
    return std::stoi(value);
  };
  if (const auto it = words.find("target"); it != words.end()) {  // first: others change it
    if (it->second == "minimum") s.target = minimum_target();
    else if (it->second == "gpu") s.target = gpu_target();
    else if (it->second == "gpu-matrix") s.target = gpu_matrix_target();
    else if (it->second.starts_with("nvidia:")) s.target = Target::nvidia(it->second.substr(7));
    else if (it->second != "lavapipe") throw wrong("target", it->second);
  }
  for (const auto& [word, value] : words) {
    if (word == "target") continue;
    else if (word == "after") {
      std::istringstream names(value);
      for (std::string n; names >> n;) s.after.push_back(n);
    } else if (word == "chip") s.chip = value;
    else if (word == "budget") s.budget = number(word, value);
    else if (word == "prefetch") s.prefetch = number(word, value);
    else if (word == "iterations") s.target.max_loop_iterations = number(word, value);
    else if (word == "subgroup")
      s.target.subgroup_size = s.target.min_subgroup_size = s.target.max_subgroup_size = number(word, value);
    else if (word == "form" && value == "general") s.general = true;
    else if (word == "passes" && value == "none") s.raw = true;
    else if (word == "branches" && value == "skipped") s.target.skips_branches = true;
    else if (word == "shared" && value == "vectors") s.target.shared_vectors = true;
    else if (word == "subgroups" && value == "reduced") s.target.subgroup_reductions = true;
    else if (word == "matrices" && value == "transposed") s.target.transposes_matrices = true;
    else if (word == "keeping" && value == "arena") s.in_arena = true;
    else if (word == "keeping" && value == "dear") s.dear = true;
    else throw wrong(word, value);
  }
  return s;
}

const std::vector<PassFolder>& pass_folders() {
  static const auto& kFolders = *new std::vector<PassFolder>{
      {"fold", plain<passes::fold>, {}, false},
      {"count", plain<passes::count>, {}, true},
      {"cse", plain<passes::cse>, {}, true},
      {"licm", plain<passes::licm>, {}, true},
      {"dce", plain<passes::dce>, {}, true},
      {"lower_threads", plain<lowering::lower_threads>, {}, true},
      {"lower_threads_together", plain<lowering::lower_threads_together>, {}, false},
      {"lower_async", run_lower_async, {}, true},
      {"unread_scratch", plain<lowering::drop_unread_scratch>, {}, false},
      {"squeeze", plain<lowering::squeeze_refs>, {}, true},
      {"uniform", run_uniform, {}, false},
      {"accumulate", run_accumulate, {}, true},
      {"local_updates", run_local_updates, {}, true},
      {"reroll", run_reroll, {}, true},
      {"unfold", run_unfold, {}, true},
      {"rematerialize", plain<lowering::rematerialize>, {}, false},
      {"updates", plain<lowering::expand_updates>, {}, true},
      {"atomics", run_atomics, {}, true},
      {"lower", run_lower, {}, false},
      {"hoist_barriers", plain<lowering::hoist_barriers>, {}, false},
      {"carry_stored", plain<lowering::carry_stored>, {}, false},
      {"unroll", run_unroll, {}, false},
      {"join", plain<lowering::join_branches>, {}, false},
      {"known_conditions", plain<lowering::fold_known_conditions>, {}, false},
      {"vectorize", run_vectorize, {}, false},
      {"end_lives", plain<lowering::end_lives_early>, {}, false},
      {"bounds", run_bounds, {}, false},
      {"cut", run_cut, {}, false},
      {"report_cut", run_report, {}, false},
      {"affine", {}, print_affine, false},
      {"ranges", {}, print_ranges, false},
      {"divisors", {}, print_divisors, false},
      {"parallel", {}, print_parallel, false},
      {"known", {}, print_known, false},
      {"axes", {}, print_axes, false},
      {"widths", {}, print_widths, false},
      {"schedule", {}, print_schedule, false},
      {"kept", {}, print_kept, false},
      {"uniform_dims", {}, print_uniform_dims, false},
      {"loops", {}, print_loops, false},
      {"steps", {}, print_steps, false},
      {"uniformity", {}, print_uniformity, false},
      {"buffer_order", {}, print_buffer_order, false},
      {"mosaic", {}, print_mosaic, false},
  };
  return kFolders;
}

}  // namespace tessera::test
