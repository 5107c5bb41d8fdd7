#include "runtime/call/graph.h"

#include <algorithm>
#include <iostream>
#include <string_view>

#include "engine/base/npy.h"
#include "engine/base/plural.h"
#include "engine/base/write_file.h"
#include "engine/graph/fuse.h"
#include "engine/graph/picture.h"
#include "engine/graph/sizes.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/cli/commands.h"
#include "runtime/launch.h"

namespace tessera::cli {
void run_graph(const RunArguments& a) {
  if (a.races || !a.seed.empty() || a.uninitialised != "nan" || a.out_of_bounds != "clamp" || a.general ||
      !a.dims.empty())
    throw UsageError("--races, --seed, --uninitialised, --out-of-bounds, --codegen and --dim are of kernels, and " +
                     a.file + " is a graph");
  Graph g = read_graph(a.file);
  const size_t inputs = g.body.inputs.size(), outputs = g.body.outputs.size();
  if (a.in.size() != inputs)
    throw UsageError("the graph takes " + plural(inputs, "input") + " but --in names " + std::to_string(a.in.size()));
  if (!a.out.empty() && a.out.size() != outputs)
    throw UsageError("the graph has " + plural(outputs, "output") + " but --out names " + std::to_string(a.out.size()));
  std::vector<Array> arrays;
  for (size_t i = 0; i < inputs; ++i) arrays.push_back(read_npy(a.in[i], g.values[g.body.inputs[i]].dtype));
  if (!size_names(g).empty()) {
    std::vector<std::pair<DType, Shape>> types;
    for (const Array& x : arrays) types.emplace_back(x.dtype(), x.shape());
    g = at_sizes(g, bind_sizes(g, types));
  }
  std::vector<Array> results;
  if (interpreter_selected(a.device)) {
    require_device_for_times(a);
    results = interpret(g, arrays);
  } else {
    DeviceOptions options;
    options.debug_info = a.debug_info;
    options.select = a.device;
    const Device device(options);
    results = timed(a) ? run_timed(device, g, arrays, a) : load(device, g).run(arrays);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (a.out.empty()) std::cout << "out " << i << " = " << results[i] << "\n";
    else write_npy(a.out[i], results[i]);
  }
}

void explain_graph(const CompileArguments& a) {
  Graph read = read_graph(a.file);
  if (const std::vector<std::string> names = size_names(read); !names.empty()) {
    const DimValues sizes = parse_dims(a.dims);
    for (const std::string& name : names)
      if (!sizes.contains(name))
        throw UsageError("the graph has the run-time size " + name + ": --dim " + name + "=100 explains it for one");
    read = at_sizes(read, sizes);
  }
  const Fused fused = fuse(read);
  const Graph& g = fused.graph;
  const Target t = target(a.target);
  CompileOptions compile_options;
  compile_options.general = a.codegen == "general";
  compile_options.strict = strict_by_environment();
  PlanOptions options;
  std::vector<Program> programs;
  for (const ir::Kernel& k : g.kernels) {
    programs.push_back(tessera::compile(k, t, compile_options));
    options.alignment = std::max<int64_t>(options.alignment, programs.back().alignment);
  }
  options.scratch = [&](const GraphPlan::Command::Call& c) -> int64_t {
    const Program& p = programs[c.kernel];
    if (p.scratch_bytes == 0 || !c.sizes.empty()) return 0;
    const int64_t units = p.num_units.eval(bind_dims(p, c.inputs, c.dims));
    return p.scratch_bytes * (p.max_workgroups > 0 ? std::min<int64_t>(units, p.max_workgroups) : units);
  };
  options.table = [&](const GraphPlan::Command::Call& c) {
    return (static_cast<int64_t>(programs[c.kernel].push_bytes()) + 15) / 16 * 16;
  };
  const GraphPlan p = plan(g, options);
  std::cout << tessera::explain(g, p);
  if (fused.steps > 0)
    std::cout << "fused: " << plural(fused.steps, "call")
              << (fused.steps == 1 ? " is part of another one\n" : " are part of others\n");
  if (!a.dot.empty()) write_file(a.dot, dot(g, p));
  if (!a.svg.empty()) write_file(a.svg, svg(g, p));
}

}  // namespace tessera::cli
