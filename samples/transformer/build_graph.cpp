#include "samples/transformer/build_graph.h"

#include <engine/ir/text.h>

namespace transformer {
using tessera::kernels::Type;

std::vector<GraphValue> GraphBuilder::call(const tessera::PallasCall& f, const std::vector<GraphValue>& arguments) {
  std::vector<tessera::ShapeDtype> types;
  for (const GraphValue& a : arguments) types.push_back(Type(a));
  const tessera::ir::Kernel& kernel = f.trace(types);
  const auto [at, is_new] = kernels_.emplace(tessera::ir::print(kernel), graph_.kernels.size());
  if (is_new) graph_.kernels.push_back(kernel);
  tessera::Graph::Step step;
  step.kernel = at->second;
  for (const GraphValue& a : arguments) step.arguments.push_back(a.number());
  std::vector<GraphValue> results;
  for (size_t i = static_cast<size_t>(kernel.num_inputs); i < kernel.blocks.size(); ++i) {
    tessera::Shape shape;
    for (const tessera::Extent& e : kernel.blocks[i].array_shape) shape.push_back(e.eval({}));
    results.push_back(value(Type(shape, kernel.blocks[i].dtype)));
    step.results.push_back(results.back().number());
  }
  graph_.body.steps.push_back(std::move(step));
  return results;
}

tessera::kernels::Passes<GraphValue> GraphBuilder::passes() {
  return {[this](const tessera::PallasCall& f, const std::vector<GraphValue>& arguments) { return call(f, arguments); },
          [this](const tessera::Array& table) {
            const GraphValue v = value(table);
            graph_.constants.emplace_back(v.number(), table);
            return v;
          }};
}

}  // namespace transformer
