// tessera run --trace and --repeat: the times at which a device ran what, by its own clock.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>

#include "engine/base/plural.h"
#include "engine/base/write_file.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {
std::string seconds(double nanoseconds) {
  char text[32];
  const auto [unit, factor] = nanoseconds < 1e6   ? std::pair("us", 1e-3)
                              : nanoseconds < 1e9 ? std::pair("ms", 1e-6)
                                                  : std::pair("s", 1e-9);
  std::snprintf(text, sizeof text, "%.3f %s", nanoseconds * factor, unit);
  return text;
}

/// "NAME: median 1.250 us of 21 calls, 1.200 us to 1.700 us"
void print(const std::string& name, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  std::cout << name << ": median " << seconds((times[(n - 1) / 2] + times[n / 2]) / 2) << " of " << plural(n, "call")
            << ", " << seconds(times.front()) << " to " << seconds(times.back()) << "\n";
}

/// By kernel, or "copy", what the commands of each call took together; "all" is from the first one's beginning to the
/// last one's end.
struct Times {
  std::map<std::string, std::vector<double>> by_name;
  std::vector<double> all;
  void add(const std::vector<TimedCommand>& commands) {
    double end = 0;
    std::map<std::string, double> sums;
    for (const TimedCommand& c : commands) {
      end = std::max(end, c.end);
      sums[c.name] += c.end - c.begin;
    }
    all.push_back(end);
    for (const auto& [name, sum] : sums) by_name[name].push_back(sum);
  }
};
}  // namespace

bool timed(const RunArguments& a) { return !a.trace.empty() || a.repeat > 0; }

void require_device_for_times(const RunArguments& a) {
  if (timed(a) && interpreter_selected(a.device))
    throw UsageError(std::string(a.trace.empty() ? "--repeat" : "--trace") +
                     " says when a device ran what, and the interpreter runs here");
}

Graph graph_of(const ir::Kernel& k, const std::vector<Array>& inputs, const DimValues& dims) {
  Graph g;
  g.name = k.name;
  g.loc = k.loc;
  Graph::Step call{.what = Graph::Step::Call{}};
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) {
    types.emplace_back(a.dtype(), a.shape());
    call.arguments.push_back(g.values.size());
    g.values.push_back({a.dtype(), a.shape()});
  }
  const DimValues bound = bind_dims(k, types, dims);
  for (int i = 0; i < k.num_outputs(); ++i) {
    const int block = k.num_inputs + i;
    call.results.push_back(g.values.size());
    g.values.push_back({k.blocks[static_cast<size_t>(block)].dtype, bind_shape(k, block, bound)});
  }
  for (const auto& [name, value] : dims) {
    call.call()->sizes.emplace_back(name, g.values.size());
    g.constants.emplace_back(g.values.size(), Array({}, DType::i64));
    g.constants.back().second.data<int64_t>()[0] = value;
    g.values.push_back({DType::i64, {}});
  }
  g.body.inputs = call.arguments;
  g.body.outputs = call.results;
  g.body.steps.push_back(std::move(call));
  g.kernels.push_back(k);
  return g;
}

std::vector<Array> run_timed(const Device& device, const Graph& graph, const std::vector<Array>& inputs,
                             const RunArguments& a) {
  const CompiledGraph there = load(device, graph, {.timestamps = true});
  std::vector<DeviceArray> arrays;
  for (const Array& x : inputs) arrays.emplace_back(device, x);
  std::vector<Array> results;  // of a call that is not timed: it makes what later ones use again
  for (const DeviceArray& x : there(arrays)) results.push_back(x.download());
  Times times;
  for (int i = 0; i < a.repeat; ++i) {
    there(arrays);
    times.add(there.trace());
  }
  if (!a.trace.empty()) write_file(a.trace, chrome_trace(there.trace()));
  if (times.by_name.size() > 1)
    for (const auto& [name, each] : times.by_name) print(name, each);
  if (!times.all.empty()) print(times.by_name.size() == 1 ? times.by_name.begin()->first : "the call", times.all);
  return results;
}

}  // namespace tessera::cli
