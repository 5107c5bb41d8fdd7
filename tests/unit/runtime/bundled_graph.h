// A bundle with a graph in it, as tessera bundle makes it, through its bytes.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/make_bundle.h"
#include "runtime/bundle.h"
#include "runtime/call/make_graph_program.h"

namespace tessera::test {

inline BundleFile bundle_file(const Target& target, const Graph& g) {
  RecordableGraph made = make_graph_program(g);
  std::vector<BundleSource> sources;
  for (const ir::Kernel& k : made.kernels) {
    std::vector<std::string> names;
    for (size_t i = 0; i < k.blocks.size(); ++i) names.push_back("a" + std::to_string(i));
    sources.push_back({k, names});
  }
  BundleFile file;
  BundleGraph& graph = file.graphs.emplace_back(BundleGraph{g.name, g.loc, {}, std::move(made.program), {}});
  graph.arguments.resize(graph.program.inputs.size() + graph.program.outputs.size(), "x");
  graph.kernels = make_bundle(sources, std::vector{minimum_target(), target}).file.kernels;
  return file;
}
inline Bundle bundled(const Device& d, const Graph& g) {
  const std::string bytes = bundle_to_bytes(bundle_file(d.target(), g));
  return {std::as_bytes(std::span(bytes)), "graphs.tsb"};
}

}  // namespace tessera::test
