#include <filesystem>
#include <iostream>
#include <optional>
#include <set>

#include "codegen/spirv/emit.h"
#include "engine/base/platform.h"
#include "engine/base/write_file.h"
#include "engine/ir/text.h"
#include "engine/passes/passes.h"
#include "runtime/call/call.h"
#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {

// Prints the steps that --dump-ir asks for, and keeps the last kernel of each level.
struct Watch {
  const std::string& wanted;
  std::set<std::string> steps = {};
  bool printed = false;
  std::optional<ir::Kernel> tile = std::nullopt, lane = std::nullopt;

  void operator()(std::string_view step, const ir::Kernel& k, bool changed) {
    (k.level == ir::Level::tile ? tile : lane) = k;
    if (wanted.empty()) return;
    steps.emplace(step);
    if (wanted != "*" && step != wanted && step.substr(step.find('/') + 1) != wanted) return;
    printed = true;
    std::cerr << "// after " << step << (changed ? "\n" + ir::print(k) : " (unchanged)\n");
  }
  // A name that no step has is a mistake to point out, whatever else was printed.
  void check() const {
    if (wanted.empty() || printed) return;
    std::string names;
    for (const std::string& s : steps) names += (names.empty() ? "" : ", ") + s;
    throw UsageError("--dump-ir=" + wanted + ": there is no such step; the steps are " + names);
  }
};

void write(const std::string& file, const std::string& bytes) {
  if (file.empty()) {
    std::cout << bytes;
    return;
  }
  write_file(file, bytes);
}

// The module for a TPU, in one of its forms.
std::string compile_for_tpu(const CompileArguments& a, Watch& watch) {
  if (!a.emit.empty() && a.emit != "mosaic" && a.emit != "stablehlo" && a.emit != "ir")
    throw UsageError("--emit=" + a.emit + " is not of a TPU: mosaic, stablehlo or ir");
  CompileOptions options;
  options.sizes = parse_dims(a.dims);
  options.lint = lint_named(a.lint, Lint::off);
  options.dump = [&](std::string_view step, const ir::Kernel& after, bool changed) { watch(step, after, changed); };
  const Program program = tessera::compile(read_kernel(a.file), target(a.target), options);
  return a.emit == "ir" ? ir::print(watch.tile.value()) : a.emit == "stablehlo" ? program.stable_hlo : program.mosaic;
}

}  // namespace

void compile(const CompileArguments& a) {
  if (a.target.starts_with("tpu:")) {
    Watch steps{a.dump};
    const std::string module = compile_for_tpu(a, steps);
    steps.check();
    return write(a.output, module);
  }
  if (a.emit == "mosaic" || a.emit == "stablehlo")
    throw UsageError("--emit=" + a.emit + " is of a TPU: --target=tpu:v5e");
  if (a.emit == "spirv-bin" && a.output.empty() && platform::prints_to_terminal())
    throw UsageError("--emit=spirv-bin writes binary: give -o FILE, or pipe stdout");
  ir::Kernel k = read_kernel(a.file);
  Watch watch{a.dump};
  std::string text;
  if (a.emit == "ir") {
    passes::optimize(k, [&](const passes::Pass& p, const ir::Kernel& after, bool changed) {
      watch("tile/" + std::string(p.name), after, changed);
    });
    text = ir::print(k);
  } else {
    CompileOptions options;
    options.general = a.codegen == "general";
    options.strict = strict_by_environment();
    options.debug_info = a.debug_info;
    options.sizes = parse_dims(a.dims);
    options.lint = lint_named(a.lint, Lint::off);
    options.dump = [&](std::string_view step, const ir::Kernel& after, bool changed) { watch(step, after, changed); };
    const Target to = target(a.target);
    const bool ptx = !to.chip.empty();
    if (ptx && a.emit.starts_with("spirv"))
      throw UsageError("--emit=" + a.emit + ": the code for " + to.name + " is PTX: --emit=ptx");
    if (!ptx && a.emit == "ptx")
      throw UsageError("--emit=ptx: is of targets like nvidia:sm_90a, and " + to.name + " is none");
    const Program program = tessera::compile(k, to, options);
    if (a.emit == "lane") text = ir::print(watch.lane.value());
    else if (ptx) text = program.ptx;
    else if (a.emit != "spirv-bin") text = spirv::disassemble(program.spirv);
    else text.assign(reinterpret_cast<const char*>(program.spirv.data()), program.spirv.size() * sizeof(uint32_t));
  }
  watch.check();
  write(a.output, text);
}

void explain(const CompileArguments& a) {
  if (std::filesystem::is_directory(a.file)) return explain_graph(a);
  if (!a.dot.empty() || !a.svg.empty())
    throw UsageError("--dot and --svg are of graphs, and " + a.file + " is a kernel");
  CompileOptions options;
  options.general = a.codegen == "general";
  options.strict = strict_by_environment();
  options.sizes = parse_dims(a.dims);
  options.lint = lint_named(a.lint, Lint::warn);
  std::string text = tessera::compile(read_kernel(a.file), target(a.target), options).explain;
  if (!text.empty() && text.back() != '\n') text += '\n';
  std::cout << text;
}

}  // namespace tessera::cli
