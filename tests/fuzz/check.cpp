#include "tests/fuzz/check.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#ifndef _WIN32
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "codegen/lane/loops.h"
#include "codegen/lane/verify.h"
#include "codegen/program/program_file.h"
#include "codegen/spirv/emit.h"
#include "engine/interpreter/interpreter.h"
#include "engine/interpreter/machine.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lint/lint.h"
#include "engine/passes/passes.h"
#include "tests/fuzz/claims.h"
#include "tests/fuzz/random_target.h"
#include "tests/support/emulate/emulate.h"
#include "tests/support/judge/judge.h"
#include "tests/support/proofs/lane_integers.h"
#include "tests/support/proofs/proofs.h"
#ifdef TESSERA_SPIRV_TOOLS
#include <spirv-tools/libspirv.hpp>
#endif

namespace tessera::fuzz {
namespace {
using ir::Kernel;

// What the interpreter says, and which elements of it are defined: those that are the same whatever unspecified memory
// holds. Uniform values show what hangs on one unspecified element; copies of what is beside it, which compiled code
// loads beyond an array's end, what compares the two; numbers of each place's own show garbage - garbage and the like.
constexpr int kFirstPattern = 5;
constexpr size_t kMostSums = 64;  // of a lane-level kernel, that Proofs looks at
InterpretOptions options(const DimValues& dims, int fill) {
  constexpr Uninitialised kKnown[] = {Uninitialised::nan, Uninitialised::large, Uninitialised::small,
                                      Uninitialised::zero, Uninitialised::edge};
  InterpretOptions o{.dims = dims, .uninitialised = fill < kFirstPattern ? kKnown[fill] : Uninitialised::pattern};
  o.print = [](const std::string&) {};
  o.seed = fill < kFirstPattern ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(fill));
  return o;
}
/// The interpreter's plain run; `lines` receives what the kernel prints.
std::vector<Array> plain_run(const ir::Kernel& k, const Case& c, std::vector<std::string>& lines) {
  return interpret(k, c.inputs, {.dims = c.dims, .print = [&](const std::string& line) { lines.push_back(line); }});
}
struct Reference {
  const Case* c = nullptr;
  std::vector<std::string> lines;
  std::vector<Array> outputs;
  std::vector<std::vector<bool>> defined;  // per output and element
  bool all_defined = true;
  bool lines_defined = true;
  int fills = 1;  // the next options() to try

  explicit Reference(const Case& of) : c(&of), outputs(plain_run(of.kernel, of, lines)) {
    for (const Array& a : outputs) defined.emplace_back(static_cast<size_t>(a.size()), true);
    while (fills < kFirstPattern + 2) look_again();
  }
  void look_again() {
    InterpretOptions filled = options(c->dims, fills++);
    std::vector<std::string> said, before = lines;
    filled.print = [&](const std::string& line) { said.push_back(line); };
    const std::vector<Array> again = interpret(c->kernel, c->inputs, filled);
    std::sort(said.begin(), said.end());  // programs may run in another order
    std::sort(before.begin(), before.end());
    lines_defined = lines_defined && said == before;
    for (size_t o = 0; o < again.size(); ++o)
      for (int64_t i = 0; i < again[o].size(); ++i)
        if (again[o].element_bits(i) != outputs[o].element_bits(i))
          defined[o][static_cast<size_t>(i)] = false, all_defined = false;
  }
  /// A lint that is not so: elements that no program stores hold what memory held. Empty if there is none.
  std::string false_lint() {
    for (const std::string& lint : lints(c->kernel, c->dims)) {
      if (lint.find("no program stores") == std::string::npos) continue;
      while (fills < kFirstPattern + 42 && all_defined) look_again();
      if (all_defined) return "every element is the same whatever memory held, but there is a lint:\n" + lint;
    }
    return {};
  }
  /// Values of few bits agree by chance: before a difference counts, many more runs.
  bool still_defined(size_t output, int64_t element) {
    while (fills < kFirstPattern + 200 && defined[output][static_cast<size_t>(element)]) look_again();
    return defined[output][static_cast<size_t>(element)];
  }
};

std::string show(DType t, uint64_t bits) {
  std::ostringstream s;
  s.precision(9);
  s << reference::to_double(t, bits) << " (0x" << std::hex << bits << ")";
  return s.str();
}

// What else may differ than a case's tolerance says: the sign of zeros in relaxed code, and on a device `ulps`.
struct Leave {
  bool zeros = false;
  double ulps = 0;
};

double ulp_of(DType t, double x) {
  const FloatFormat f = float_format(t);
  return std::isfinite(x)
             ? std::ldexp(1.0, (x == 0 ? f.least_exponent : std::max(std::ilogb(x), f.least_exponent)) - f.mantissa)
             : 0;
}

bool near_enough(DType t, uint64_t wanted, uint64_t got, const Tolerance& may, const Leave& leave) {
  if (wanted == got) return true;
  if (!is_float(t)) return false;
  const double a = reference::to_double(t, wanted), b = reference::to_double(t, got);
  if (std::isnan(a) && std::isnan(b)) return true;
  if (a == b) return leave.zeros || may.absolute > 0;
  return std::abs(a - b) <=
         may.absolute + may.ulps * ulp_of(t, std::max(std::abs(a), may.least)) + leave.ulps * ulp_of(t, a);
}

// Vulkan allows a division 2.5 ulp, and a square root as much, that are exact elsewhere: NVIDIA's take it in code
// without float controls. What has neither, nor rows that are made of them, is the same on every device.
double ulps_of_devices(const Kernel& k) {
  return std::any_of(k.ops.begin(), k.ops.end(),
                     [&](const ir::Op& o) {
                       return ir::is_elementwise(o.code) && ir::info(o.code).ulp > 1 &&
                              is_float(k.type(o.results[0]).dtype);
                     })
             ? 2.5
             : 0;
}

// Nothing if equal where defined.
std::optional<std::string> difference(Reference& r, const std::vector<Array>& got,
                                      const std::vector<Tolerance>& tolerance, const Leave& leave = {}) {
  if (got.size() != r.outputs.size())
    return "there are " + std::to_string(got.size()) + " outputs, but " + std::to_string(r.outputs.size()) +
           " are wanted";
  for (size_t o = 0; o < got.size(); ++o) {
    const Array &a = r.outputs[o], &b = got[o];
    if (a.shape() != b.shape() || a.dtype() != b.dtype())
      return "output " + std::to_string(o) + " has another shape or dtype";
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < a.size(); ++i)
      if (r.defined[o][static_cast<size_t>(i)] &&
          !near_enough(a.dtype(), a.element_bits(i), b.element_bits(i), tolerance.empty() ? Tolerance{} : tolerance[o],
                       leave) &&
          r.still_defined(o, i))
        if (wrong++ == 0) first = i;
    if (wrong)
      return "output " + std::to_string(o) + " of " + to_string(a.shape()) + ": " + std::to_string(wrong) +
             " elements differ, first element " + std::to_string(first) + ": " +
             show(b.dtype(), b.element_bits(first)) + ", but the interpreter has " +
             show(a.dtype(), a.element_bits(first));
  }
  return std::nullopt;
}

std::optional<std::string> validate([[maybe_unused]] const std::vector<uint32_t>& words) {
#ifdef TESSERA_SPIRV_TOOLS
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_3);
  std::string log;
  tools.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t& at, const char* message) {
    log += "word " + std::to_string(at.index) + ": " + message + "\n";
  });
  if (!tools.Validate(words) && !(judge::has_matrices(words) && log.find("Invalid capability") != std::string::npos))
    return log;
#endif
  return std::nullopt;
}

bool has_dot(const Kernel& k) {
  return std::any_of(k.ops.begin(), k.ops.end(), [](const ir::Op& o) { return o.code == ir::Opcode::dot; });
}

// What a target may say no to; any other CompileError of a kernel as they are made here is a fault.
bool may_be_refused(const std::string& message) {
  constexpr const char* kTexts[] = {
      " leaves all loops after ",  // a driver's limit on iterations
      // threads of a program, on targets that run workgroups one by one
      " threads wait for each other at ", " threads share ", " threads meet at ",
      " dtype f64 needs shaderFloat64, which ",  // the one dtype that nothing emulates
  };
  return std::any_of(std::begin(kTexts), std::end(kTexts),
                     [&](const char* text) { return message.find(text) != std::string::npos; });
}

bool has_f64(const Kernel& k) {
  return std::any_of(k.values.begin(), k.values.end(),
                     [](const ir::ValueInfo& v) { return v.type.dtype == DType::f64; });
}

class Checker {
 public:
  Checker(const Case& c, const CheckOptions& options) : case_(c), options_(options) {}

  Outcome run() {
    try {
      begin("verify");
      std::string problems;
      for (const ir::Problem& p : ir::find_problems(case_.kernel)) problems += p.entity + ": " + p.message + "\n";
      if (!problems.empty()) return fail(problems);
      begin("text form");
      const std::string text = ir::print(case_.kernel);
      if (const std::string again = ir::print(ir::parse(text)); again != text)
        return fail("print(parse(text)) differs:\n" + again);
      begin("interpreter");
      reference_.emplace(case_);
      begin("lints");
      if (const std::string wrong = reference_->false_lint(); !wrong.empty()) return fail(wrong);
      for (const auto& d : reference_->defined) {
        out_.elements += static_cast<int64_t>(d.size());
        for (const bool b : d) out_.defined += b;
      }
      if (options_.first && !computes_the_same()) return std::move(out_);
      if (!hold_to_claims("source", case_.kernel, nullptr)) return std::move(out_);
      if (options_.passes && !passes()) return std::move(out_);
      begin("races");  // what lowering takes for parallel is
      const std::vector<Array> in_any_order = interpret(case_.kernel, case_.inputs,
                                                        {.dims = case_.dims,
                                                         .seed = 1,
                                                         .races = true,
                                                         .print = [](const std::string&) {},
                                                         .parallel = parallel_axes(case_.kernel)});
      if (const auto d = difference(*reference_, in_any_order, case_.tolerance)) return fail(*d);
      for (const bool general : {true, false}) {
        if (general ? !options_.general : !options_.fast) continue;
        const std::string form = general ? "general/" : "fast/";
        const bool all = !general || !options_.few_general;
        Target minimum = minimum_target();
        minimum.float64 = has_f64(case_.kernel);  // the one dtype that nothing emulates
        if (options_.minimum && !target(form + "minimum", minimum, general)) return std::move(out_);
        if (options_.lavapipe && all && !target(form + "lavapipe", lavapipe_target(), general)) return std::move(out_);
        if (options_.gpu && all && !target(form + "gpu", gpu_target(), general)) return std::move(out_);
        for (const char* chip : {"sm_80", "sm_90a"}) {  // which differ in how they make products
          const bool old = chip == std::string_view("sm_80");
          if (options_.nvidia && (old ? general || has_dot(case_.kernel) : !general) &&
              !target(form + "nvidia " + chip, Target::nvidia(chip), general))
            return std::move(out_);
        }
        if (options_.matrix && all && !target(form + "matrix", gpu_matrix_target(), general)) return std::move(out_);
        Target cut = lavapipe_target();
        cut.max_loop_iterations = 200;
        if (options_.cut && all && !target(form + "cut", cut, general)) return std::move(out_);
        Target other = random_target(options_.random_target + std::hash<std::string>{}(form + case_.kernel.name));
        other.float64 = minimum.float64;
        if (options_.random && !target(form + "random", other, general)) return std::move(out_);
        if (options_.device) {
          begin(form + "device");
          try {
            std::vector<std::string> lines;
            const Leave leave{.zeros = !options_.strict || case_.relaxed, .ulps = ulps_of_devices(case_.kernel)};
            if (const auto d =
                    difference(*reference_, options_.device(case_, general, false, lines), case_.tolerance, leave))
              return fail(*d);
            if (const auto d = other_lines(lines)) return fail(*d);
            if (!lines.empty() && reference_->lines_defined) {
              begin(form + "device with little room for prints");
              options_.device(case_, general, true, lines = {});
              if (const auto d = lines_missing(lines)) return fail(*d);
            }
          } catch (const CompileError& e) {
            if (!may_be_refused(e.what())) throw;
            ++out_.compile_errors;
          } catch (const DeviceError& e) {  // lavapipe's limit on iterations, noticed while running
            if (std::string(e.what()).find("leaves them all") == std::string::npos) throw;
            ++out_.compile_errors;
          }
        }
      }
    } catch (const std::exception& e) {
      return fail(e.what());
    }
    return std::move(out_);
  }

 private:
  void begin(std::string stage) {
    stage_ = std::move(stage);
    if (options_.on_stage) options_.on_stage(stage_);
  }
  Outcome fail(std::string message) {
    out_.failure = Failure{stage_, std::move(message)};
    return std::move(out_);
  }
  bool failed(std::string message) {
    out_.failure = Failure{stage_, std::move(message)};
    return false;
  }

  // What the kernel computes that this one is a rewriting of.
  bool computes_the_same() {
    begin("rewriting");
    Reference first(*options_.first);
    const auto d = difference(first, options_.original(reference_->outputs), {});
    if (!d) return true;
    out_.another = options_.perhaps_another;
    return out_.another ? false : failed(*d);
  }

  std::optional<std::string> after_passes(const Kernel& k) {
    std::vector<std::string> lines;
    const std::vector<Array> outputs = plain_run(k, case_, lines);
    if (const auto d = other_lines(lines)) return d;
    return difference(*reference_, outputs, {});
  }
  std::optional<std::string> other_lines(const std::vector<std::string>& got) const {
    const std::vector<std::string>& wanted = reference_->lines;
    if (got == wanted || !reference_->lines_defined) return std::nullopt;
    size_t i = 0;
    while (i < got.size() && i < wanted.size() && got[i] == wanted[i]) ++i;
    return "prints " + std::to_string(got.size()) + " lines, but the interpreter " + std::to_string(wanted.size()) +
           "; line " + std::to_string(i) + ": " + (i < got.size() ? got[i] : "none") + ", but the interpreter has " +
           (i < wanted.size() ? wanted[i] : "none");
  }
  // Of the interpreter's lines, in their order, as many as found room; the last line counts the others.
  std::optional<std::string> lines_missing(std::vector<std::string> got) const {
    const std::vector<std::string>& wanted = reference_->lines;
    if (got == wanted) return std::nullopt;
    const std::string last = got.empty() ? "" : got.back();
    if (!got.empty()) got.pop_back();
    size_t at = 0;
    for (const std::string& line : got) {
      while (at < wanted.size() && wanted[at] != line) ++at;
      if (at++ >= wanted.size()) return "prints a line that the interpreter does not have there: " + line;
    }
    const size_t missing = wanted.size() - got.size();
    const std::string said =
        case_.kernel.name + ": " + std::to_string(missing) + (missing == 1 ? " more line (" : " more lines (");
    if (last.compare(0, said.size(), said) != 0)
      return std::to_string(missing) + " lines are missing, but the last line says: " + last;
    return std::nullopt;
  }
  // Passes keep every defined bit, floats included.
  bool passes() {
    for (const passes::Pass& p : passes::all()) {
      begin("pass " + std::string(p.name));
      Kernel k = case_.kernel;
      p.run(k);
      ir::verify(k, stage_);
      if (const auto d = after_passes(k)) return failed(*d + "\nafter the pass:\n" + ir::print(k));
    }
    begin("optimize");
    Kernel k = case_.kernel;
    passes::optimize(k);
    if (const auto d = after_passes(k)) return failed(*d + "\nafter the passes:\n" + ir::print(k));
    return true;
  }

  // Whether no target before this one got the same code: its runs at lane level would be the same, order by order.
  bool is_new_code(Program program, const Kernel& lane, const Target& t) {
    program.explain.clear();
    if (program.steps_extent < 0) program.loops.clear(), program.max_loop_iterations = 0;  // what the launch alone asks
    return seen_.insert(program_to_bytes(program) + std::to_string(t.subgroup_size) + ir::print(lane)).second;
  }

  // What is claimed of the kernel holds for all that it computes, and, as it is lowered for t, its programs may come in
  // any order along the axes that are called parallel.
  bool hold_to_claims(const std::string& name, const Kernel& k, const Target* t) {
    begin(name + ": claims");
    Claims claims(k, case_.dims);
    lowering::ScalarAnalysis scalars(k);
    lowering::ParallelPlan plan;
    std::vector<bool> parallel;
    if (t) {  // scopes are expanded
      plan = lowering::plan_parallel(k, scalars, *t);
      for (size_t a = 0; a < k.grid.size(); ++a) parallel.push_back(plan.is_parallel(a));
      std::string axes;
      for (const bool p : parallel) axes += p ? 'p' : 's';
      if (!seen_.insert(axes + ir::print(k)).second) return true;  // as another target lowers it
      claims.with_parallel(parallel);
    }
    interpret(k, case_.inputs,
              {.dims = case_.dims,
               .print = [](const std::string&) {},
               .observe = [&](const SeenValue& s) { claims.see(s); }});
    if (claims.broken()) return failed(*claims.broken() + "\ntile-level kernel:\n" + ir::print(k));
    if (!t) return true;
    begin(name + ": parallel axes in another order");
    for (int order = 0; order < options_.orders; ++order) {
      InterpretOptions o = options(case_.dims, kFirstPattern + order);
      o.parallel = parallel;
      if (const auto d = difference(*reference_, interpret(k, case_.inputs, o), case_.tolerance)) {
        std::string why;
        for (size_t a = 0; a < k.grid.size(); ++a) why += "axis " + std::to_string(a) + ": " + plan.axes[a].why + "\n";
        return failed(*d + "\n" + why + "tile-level kernel:\n" + ir::print(k));
      }
    }
    return true;
  }

  bool target(const std::string& name, const Target& t, bool general) {
    begin(name + ": compile");
    Kernel lane, tile = case_.kernel;
    std::optional<Kernel> conditions;
    CompileOptions options;
    options.general = general;
    options.strict = (options_.strict && !case_.relaxed) || t.name == minimum_target().name;
    size_t tile_ops = 0, lane_ops = 0, most_ops = 0;
    options.dump = [&](std::string_view step, const Kernel& k, bool changed) {
      // before conditions that are known became constants
      if (step == "lane/known_conditions") conditions = changed ? std::optional<Kernel>(lane) : std::nullopt;
      (k.level == ir::Level::lane ? lane : tile) = k;
      if (k.level != ir::Level::lane)
        for (tile_ops = 0; const ir::Op& op : k.ops)
          tile_ops += op.code == ir::Opcode::dot ? (is_float(k.type(op.results[0]).dtype) ? 48 : 60)
                      : ir::is_scan(op.code) || op.code == ir::Opcode::argmax || op.code == ir::Opcode::argmin ? 8
                      : op.code == ir::Opcode::concatenate ? 8 * op.operands.size()
                      : ir::accesses_ref(op.code)          ? 4
                                                           : 1;
      if (step == "lower") lane_ops = k.ops.size(), most_ops = std::max(most_ops, lane_ops);
    };
    Program program;
    try {
      program = compile(case_.kernel, t, options);
      // as a launch says
      if (program.steps_extent >= 0 && !program.open_ended &&
          program.extents[static_cast<size_t>(program.steps_extent) + 1].eval(case_.dims) > Program::kMostSteps)
        throw CompileError(t.name + " leaves all loops after too few for so many steps");
    } catch (const CompileError& e) {
      if (!may_be_refused(e.what())) throw;
      ++out_.compile_errors;
      return true;
    }
    if (!hold_to_claims(name, tile, &t)) return false;
    const bool is_new = is_new_code(program, lane, t);
    // Code is linear in the kernel's ops: each is emitted for so many elements of an invocation, at so many positions,
    // with so much around it; a product is many, and so is a running sum; an access is
    // an address, a test and a branch around it. What is lowered anew for a CPU driver, because its compiler would take
    // long, may be four times as large at first. A concatenation computes each operand at positions of its own.
    begin(name + ": size");
    const size_t most = 1000 + (t.kind == Target::Kind::cpu && !general ? 192 : 64) * tile_ops;
    if (lane_ops > most || most_ops > 4 * most)
      return failed(std::to_string(std::max(lane_ops, most_ops / 4)) + " ops at lane level of " +
                    std::to_string(tile_ops) + " at tile level: at most " + std::to_string(most) + " are allowed");
    if (is_new && program.ptx.empty() && !is_valid_spirv(name, program, lane, t)) return false;
    const std::vector<Array> arrays = arguments();
    const bool alone = lane.lane.threads == 1;  // the lane-level interpreter runs workgroups one by one
    if (options_.delete_barriers && alone) count_barriers(lane, arrays, t);
    const bool runs = is_new && alone && options_.orders > 0;
    if (runs && conditions && !hold_to_proofs(name, *conditions, arrays, t)) return false;
    if (runs && !on_lanes(name, program, lane, arrays, t)) return false;
    if (!options_.judge) return true;
    return program.ptx.empty() ? judged(name, program, lane, arrays, t) : on_emulator(name, program, arrays);
  }

  // The lane-level interpreter, which is also asked about the prover's claims.
  bool on_lanes(const std::string& name, const Program& program, const Kernel& lane, const std::vector<Array>& arrays,
                const Target& t) {
    const uint64_t seed = std::hash<std::string>{}(name + case_.kernel.name);
    if (!hold_to_proofs(name, with_random_integers(lane, seed, 6), arrays, t, lane.ops.size())) return false;
    begin(name + ": lane interpreter");
    const std::vector<Bounds> ranges = lane_ranges(lane);
    const Proofs proofs(lane, seed, kMostSums);
    for (int order = 0; order < options_.orders; ++order) {
      lane::RunOptions run;
      run.seed = static_cast<uint64_t>(order);
      run.subgroup_size = t.subgroup_size;
      run.max_workgroups = order % 2 ? 1 + order / 2 : 0;
      run.max_steps = options_.max_steps;
      run.print_bytes = print_bytes(program);
      if (program.steps_extent >= 0) run.steps = order == 0 ? steps_of_dispatch(program) : any_steps(program, order);
      run.ranges = ranges;
      run.watched = proofs.watched();
      const lane::RunResult r = lane::run(lane, arrays, case_.kernel.num_inputs, case_.dims, run);
      const std::string where = " (order " + std::to_string(order) + ")\nlane-level kernel:\n";
      if (const auto d = proofs.broken(r.seen)) return failed(*d + where + ir::print(lane));
      if (r.out_of_steps && r.reports.size() == 1) {
        ++out_.unfinished;
        break;
      }
      std::string reports;
      for (const std::string& s : r.reports) {
        // Where the kernel stores unspecified memory, so does its lowering.
        if (!reference_->all_defined && s.find("uninitialised memory") != std::string::npos &&
            s.find("is the stored value of") != std::string::npos)
          continue;
        reports += s + "\n";
      }
      if (!reports.empty()) return failed(reports + where + ir::print(lane));
      if (const auto d = wrong(program, r.outputs, r.report_words)) return failed(*d + where + ir::print(lane));
    }
    return true;
  }

  // What the prover says of a lane-level kernel on its way, or of one that is not the compiler's from op `first` on.
  bool hold_to_proofs(const std::string& name, const Kernel& lane, const std::vector<Array>& arrays, const Target& t,
                      size_t first = 0) {
    begin(name + ": proofs");
    const Proofs proofs(lane, std::hash<std::string>{}(name + case_.kernel.name), kMostSums, first);
    lane::RunOptions run;
    run.subgroup_size = t.subgroup_size;
    run.max_steps = options_.max_steps / 16;
    run.watched = proofs.watched();
    const lane::RunResult r = lane::run(lane, arrays, case_.kernel.num_inputs, case_.dims, run);
    if (const auto d = proofs.broken(r.seen)) return failed(*d + "\nlane-level kernel:\n" + ir::print(lane));
    return true;
  }

  bool is_valid_spirv(const std::string& name, const Program& program, const Kernel& lane, const Target& t) {
    begin(name + ": spirv-val");
    if (const auto log = validate(program.spirv)) return failed(*log);
    begin(name + ": spirv-val with debug info");
    const spirv::SourceReader source = [](const std::string&) { return std::optional<std::string>("random\n"); };
    const auto debug = spirv::emit(lane, t, program.indirect_table, &source, program.relaxed);
    if (const auto log = validate(debug)) return failed(*log);
    return true;
  }

  // The inputs, and what outputs hold before the call: what Uninitialised::small is, so that an element that hangs on
  // it has been seen to.
  std::vector<Array> arguments() const {
    std::vector<Array> arrays = case_.inputs;
    for (const Array& o : reference_->outputs) {
      if (const int from = case_.kernel.blocks[arrays.size()].alias; from >= 0) {
        arrays.push_back(case_.inputs[static_cast<size_t>(from)]);
        continue;
      }
      Array a(o.shape(), o.dtype());
      for (int64_t i = 0; i < a.size(); ++i)
        a.set_element_bits(i, o.dtype() == DType::boolean ? static_cast<uint64_t>(i & 1)
                                                          : interpreter::unspecified_bits(o.dtype(), 2));
      arrays.push_back(std::move(a));
    }
    return arrays;
  }

  // PTX on the emulator.
  bool on_emulator(const std::string& name, const Program& program, const std::vector<Array>& arrays) {
    begin(name + ": emulator");
    emulated::Options run;
    run.all_defined = reference_->all_defined;
    run.print_bytes = print_bytes(program);
    run.max_instructions = options_.judge_steps;
    for (int order = 0; order < options_.judge_orders; ++order) {
      run.seed = std::hash<std::string>{}(name + case_.kernel.name) + static_cast<uint64_t>(order);
      run.max_workgroups = run.seed % 3 == 0 ? 1 + order / 2 : 0;
      const emulated::Result r = emulated::run(program, arrays, case_.dims, run);
      ++out_.judged;
      out_.judge_steps += r.instructions;
      if (r.unfinished) {
        ++out_.unjudged;
        break;
      }
      const std::string where = " (emulator's seed " + std::to_string(run.seed) + ")\n";
      if (!r.fault.empty()) return failed(r.fault + where);
      if (!r.report_words.empty() && r.report_words[0] != 0)
        return failed("the report's first word is " + std::to_string(r.report_words[0]) + where);
      if (const auto d = wrong(program, r.outputs, r.report_words)) return failed(*d + where);
    }
    return true;
  }

  // Room for the interpreter's lines and one more.
  int64_t print_bytes(const Program& program) const {
    int64_t words = 0;
    for (const ProgramPrint& p : program.prints) {
      int64_t n = PrintReport::kHeader;
      for (const auto& [dtype, shape] : p.arguments) n += num_elements(shape) * (size_bytes(dtype) == 8 ? 2 : 1);
      words = std::max(words, n);
    }
    return 4 * words * static_cast<int64_t>(reference_->lines.size() + 1);
  }

  // What it stored and printed, against the interpreter.
  std::optional<std::string> wrong(const Program& program, const std::vector<Array>& outputs,
                                   const std::vector<uint32_t>& report) {
    if (!program.prints.empty()) {
      if (report[PrintReport::kDropped] > 0)
        return "prints more than the interpreter, which prints " + std::to_string(reference_->lines.size()) + " lines";
      std::vector<std::string> lines;
      const auto first = report.begin() + PrintReport::kRecords;
      for (const PrintedLine& line : printed_lines(program.prints, {first, first + report[PrintReport::kUsed]}))
        if (!program.prints[line.print].check) lines.push_back(line.text);
        else return "a check failed: " + line.text;
      if (auto d = other_lines(lines)) return d;
    }
    return difference(*reference_, outputs, case_.tolerance, {.zeros = program.relaxed});
  }

  // Of a program whose loops are cut: as the launch decides, or `wanted`, but into no more than so many dispatches.
  int64_t steps_of_dispatch(const Program& program, int64_t wanted = 0) const {
    constexpr int64_t kMost = 32;
    const int64_t all = program.extents[static_cast<size_t>(program.steps_extent) + 1].eval(case_.dims);
    if (program.open_ended) return steps_at_once(program, all, &case_.dims);
    return std::max(wanted ? wanted : steps_at_once(program, all, &case_.dims), cdiv(all, kMost));
  }

  // Dispatches end behind any step, not only where a launch would end them.
  int64_t any_steps(const Program& program, int order) const {
    const int64_t all = program.extents[static_cast<size_t>(program.steps_extent) + 1].eval(case_.dims),
                  steps = program.open_ended ? 40 * steps_of_dispatch(program) : all;
    const int64_t least = program.open_ended ? cdiv(steps, 160) : steps_of_dispatch(program, 1);
    std::mt19937_64 random(std::hash<std::string>{}(case_.kernel.name) + static_cast<uint64_t>(order));
    const auto more = static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(steps, 1)));
    return std::min(least + more, std::max<int64_t>(all, 1));  // as steps_at_once(), which the code may rely on
  }

  // The same below lane level: the module itself, and what spirv-opt makes of it.
  bool judged(const std::string& name, Program program, const Kernel& lane, const std::vector<Array>& arrays,
              const Target& t) {
    judge::Options run;
    run.subgroup_size = t.subgroup_size;
    run.max_workgroup_count = t.max_workgroup_count;
    run.max_steps = options_.judge_steps;
    run.print_bytes = print_bytes(program);
    run.inexact = program.relaxed;
    run.loops = program.steps_extent >= 0 ? program.loops : lane::count_loops(lane, t);
    if (program.steps_extent >= 0) run.steps = steps_of_dispatch(program);
    for (int order = 0; order < options_.judge_orders + options_.optimised; ++order) {
      const bool optimised = order == options_.judge_orders;
      begin(name + (optimised ? ": spirv-opt" : ": judge"));
      if (optimised) {
        std::optional<std::vector<uint32_t>> words = judge::optimised(program.spirv);
        if (!words) break;
        program.spirv = std::move(*words);
        if (const auto log = validate(program.spirv)) return failed(*log);
        run.loops.reset();  // it unrolls some
      }
      run.seed = std::hash<std::string>{}(name + case_.kernel.name) + static_cast<uint64_t>(order);
      run.max_workgroups = run.seed % 3 == 0 ? 1 + order / 2 : 0;
      const judge::Result r = judge::run(program, arrays, case_.dims, run);
      ++out_.judged;
      out_.judge_steps += r.steps;
      std::string reports;
      for (const std::string& s : r.reports)
        if (reference_->all_defined || (s.find("undefined: the stored value") == std::string::npos &&
                                        s.find("undefined: what is compared") == std::string::npos))
          reports += s + "\n";
      const std::string where = " (judge's seed " + std::to_string(run.seed) + ", target " + t.name + ")\n";
      if (!reports.empty()) return failed(reports + where);
      if (r.unfinished) {
        ++out_.unjudged;
        break;
      }
      if (!r.report_words.empty() && r.report_words[0] != 0)
        return failed("the report's first word is " + std::to_string(r.report_words[0]) + where);
      if (const auto d = wrong(program, r.outputs, r.report_words)) return failed(*d + where);
    }
    return true;
  }

  void count_barriers(const Kernel& lane, const std::vector<Array>& arrays, const Target& t) {
    for (size_t r = 0; r < lane.regions.size(); ++r)
      for (size_t i = 0; i < lane.regions[r].ops.size(); ++i) {
        if (lane.op(lane.regions[r].ops[i]).code != ir::Opcode::barrier) continue;
        Kernel k = lane;
        k.regions[r].ops.erase(k.regions[r].ops.begin() + static_cast<std::ptrdiff_t>(i));
        ++out_.barriers;
        for (uint64_t order = 0; order < 3; ++order) {
          lane::RunOptions run;
          run.seed = order;
          run.subgroup_size = t.subgroup_size;
          run.max_workgroups = order ? 1 : 0;
          run.max_steps = int64_t{1} << 26;
          if (lane::run(k, arrays, case_.kernel.num_inputs, case_.dims, run).reports.empty()) continue;
          ++out_.needed;
          break;
        }
      }
  }

  const Case& case_;
  const CheckOptions& options_;
  std::optional<Reference> reference_;
  std::set<std::string> seen_;  // what has been checked: kernels as they are lowered, and code
  std::string stage_;
  Outcome out_;
};
}  // namespace

Outcome check(const Case& c, const CheckOptions& options) { return Checker(c, options).run(); }

#ifdef _WIN32
// no fork: what crashes ends the suite
Outcome check_apart(const Case& c, const CheckOptions& options, int) { return check(c, options); }
#else
Outcome check_apart(const Case& c, const CheckOptions& options, int seconds) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("fuzz: pipe: " + std::string(std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fuzz: fork: " + std::string(std::strerror(errno)));
  if (child == 0) {
    close(ends[0]);
    // of the processor's time: others may be busy
    const rlimit limit{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds) + 5};
    setrlimit(RLIMIT_CPU, &limit);
    const auto send = [&](char tag, const std::string& text) {
      const std::string line = tag + std::to_string(text.size()) + ":" + text;
      for (size_t done = 0; done < line.size();) {
        const ssize_t n = write(ends[1], line.data() + done, line.size() - done);
        if (n <= 0) _exit(1);
        done += static_cast<size_t>(n);
      }
    };
    CheckOptions o = options;
    o.on_stage = [&](const std::string& stage) { send('s', stage); };
    const Outcome out = check(c, o);
    send('n', std::to_string(out.compile_errors) + " " + std::to_string(out.unfinished) + " " +
                  std::to_string(out.defined) + " " + std::to_string(out.elements) + " " +
                  std::to_string(out.barriers) + " " + std::to_string(out.needed) + " " + std::to_string(out.judged) +
                  " " + std::to_string(out.unjudged) + " " + std::to_string(out.judge_steps) + " " +
                  std::to_string(out.another));
    if (out.failure) send('f', out.failure->message);
    send('e', "");
    _exit(0);
  }
  close(ends[1]);
  std::string all;
  char buffer[65536];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Outcome out;
  std::string stage;
  std::optional<std::string> message;
  bool ended = false;
  for (size_t at = 0; at < all.size();) {
    const size_t colon = all.find(':', at);
    if (colon == std::string::npos) break;
    const size_t length = std::stoul(all.substr(at + 1, colon - at - 1));
    const std::string text = all.substr(colon + 1, length);
    if (all[at] == 's') stage = text;
    else if (all[at] == 'f') message = text;
    else if (all[at] == 'e') ended = true;
    else
      std::istringstream(text) >> out.compile_errors >> out.unfinished >> out.defined >> out.elements >> out.barriers >>
          out.needed >> out.judged >> out.unjudged >> out.judge_steps >> out.another;
    at = colon + 1 + length;
  }
  if (message) out.failure = Failure{stage, *message};
  else if (!ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    out.failure = Failure{stage, "takes longer than " + std::to_string(seconds) + " s"};
  else if (!ended)
    out.failure = Failure{
        stage, "crash: " + std::string(WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the process ended")};
  return out;
}
#endif

}  // namespace tessera::fuzz
