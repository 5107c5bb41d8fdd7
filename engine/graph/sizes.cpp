#include "engine/graph/sizes.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/kernel.h"

namespace tessera {

// Odd numbers that are few elements, also where several of them meet in one array.
int64_t stands_for(size_t position, bool other) {
  return other ? 211 + 6 * static_cast<int64_t>(position) : 97 + 2 * static_cast<int64_t>(position);
}

std::vector<std::string> size_names(const Graph& g) {
  std::vector<std::string> names;
  for (const size_t v : g.body.inputs)
    for (const Extent& e : g.values[v].extents) e.collect_names(names);
  return names;
}

Graph::Type type_at(DType dtype, const std::vector<Extent>& dims, const DimValues& numbers) {
  Graph::Type t{dtype, {}};
  for (const Extent& e : dims) {
    t.shape.push_back(e.eval(numbers));
    if (t.shape.back() < 0)
      throw SpecError(to_string(e) + " is " + std::to_string(t.shape.back()) + bindings({e}, numbers), {},
                      "sizes must not be negative");
  }
  if (std::any_of(dims.begin(), dims.end(), [](const Extent& e) { return !e.is_static(); })) t.extents = dims;
  return t;
}

bool any_sized(const std::vector<Graph::Type>& types) {
  return std::any_of(types.begin(), types.end(), [](const Graph::Type& t) { return !t.extents.empty(); });
}

void check_sizes(const Graph& g) {
  for (const std::string& name : size_names(g)) {
    const bool alone = std::any_of(g.body.inputs.begin(), g.body.inputs.end(), [&](size_t v) {
      const std::vector<Extent>& all = g.values[v].extents;
      return std::any_of(all.begin(), all.end(), [&](const Extent& e) { return e.as_name() == name; });
    });
    if (!alone)
      throw SpecError(g.name + ": the size " + name + " stands alone as no dim of an input", g.loc,
                      "a size is taken from an input whose shape names it alone");
  }
}

std::vector<int64_t> small_blocks(const std::vector<Extent>& dims) {
  std::vector<int64_t> block(dims.size(), 1);
  int64_t left = 256;
  for (size_t d = dims.size(); d-- > 0;) {
    block[d] = std::max<int64_t>(std::min(dims[d].value().value_or(left), left), 1);
    left = std::max<int64_t>(left / block[d], 1);
  }
  return block;
}

NamedExtents kernel_sizes(const ir::Kernel& k, const std::vector<Graph::Type>& inputs) {
  NamedExtents sizes;
  const auto misfit = [&](size_t i, const std::string& more) {
    throw SpecError(k.name + ": argument " + std::to_string(i) + " is " + to_string(inputs[i]) +
                        " but the kernel takes " +
                        to_string(Graph::Type{k.blocks[i].dtype, {}, k.blocks[i].array_shape}) + more,
                    k.blocks[i].loc, "it has to fit for every value of the graph's sizes");
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<Extent> dims = inputs[i].dims(), &wanted = k.blocks[i].array_shape;
    if (dims.size() != wanted.size() || inputs[i].dtype != k.blocks[i].dtype) misfit(i, "");
    for (size_t d = 0; d < dims.size(); ++d) {
      const auto name = wanted[d].as_name();
      if (!name) continue;
      const auto it = std::find_if(sizes.begin(), sizes.end(), [&](const auto& named) { return named.first == *name; });
      if (it == sizes.end()) sizes.emplace_back(*name, dims[d]);
      else if (it->second != dims[d])
        misfit(i, ": " + *name + " is " + to_string(dims[d]) + " and " + to_string(it->second));
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<Extent> dims = inputs[i].dims();
    for (size_t d = 0; d < dims.size(); ++d)
      if (const Extent e = substitute(k.blocks[i].array_shape[d], sizes); e != dims[d])
        misfit(i, e.is_static() && k.blocks[i].array_shape[d].is_static()
                      ? ""
                      : ": " + to_string(dims[d]) + " is not " + to_string(e));
  }
  return sizes;
}

Graph::Type argument_type(const ir::Kernel& k, size_t argument, const NamedExtents& sizes, const DimValues& numbers) {
  std::vector<Extent> dims;
  for (const Extent& e : k.blocks[argument].array_shape) dims.push_back(substitute(e, sizes));
  return type_at(k.blocks[argument].dtype, dims, numbers);
}

DimValues bind_sizes(const Graph& g, const std::vector<std::pair<DType, Shape>>& arguments) {
  std::vector<std::pair<DType, std::vector<Extent>>> inputs;
  for (const size_t v : g.body.inputs) inputs.emplace_back(g.values[v].dtype, g.values[v].dims());
  return bind_graph_sizes(g.name, g.loc, inputs, arguments);
}

Graph at_sizes(const Graph& graph, const DimValues& sizes) {
  Graph g = graph;
  for (Graph::Type& t : g.values)
    if (!t.extents.empty()) {
      t.shape = type_at(t.dtype, t.extents, sizes).shape;
      t.extents.clear();
    }
  return g;
}

}  // namespace tessera
