// Run-time sizes of graphs: names in the shapes of a graph's inputs, which come with each call. A value's dims are
// expressions of them; so are the sizes of the kernels that are called on it. The same graph serves every size: it is
// traced, fused and planned with numbers that stand for the sizes, and nothing that is made of it depends on these. The
// values that have such sizes go through kernels (pallas_call), element-wise ops, broadcasts and transposes, and
// through loops and branches around them. Read next: graph.h.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/base/bind.h"
#include "engine/graph/graph.h"

namespace tessera {

/// The graph's sizes, in the order in which its inputs name them.
std::vector<std::string> size_names(const Graph& graph);
/// What stands for the size of this position; `other`: another number, which a graph must not depend on.
int64_t stands_for(size_t position, bool other = false);
/// A type with the numbers for its sizes. SpecError if one is missing in them, or a dim is negative.
Graph::Type type_at(DType dtype, const std::vector<Extent>& dims, const DimValues& numbers);
/// Throws SpecError if a size of the graph stands alone as no dim of an input: no call would say what it is.
void check_sizes(const Graph& graph);

/// Blocks of at most 256 elements for an array of any size: rows as far as they go.
std::vector<int64_t> small_blocks(const std::vector<Extent>& dims);

/// The sizes of a kernel that is called on such arguments. SpecError unless its blocks fit them for every value of the
/// graph's sizes.
NamedExtents kernel_sizes(const ir::Kernel& kernel, const std::vector<Graph::Type>& inputs);
/// The type of an argument of that call.
Graph::Type argument_type(const ir::Kernel& kernel, size_t argument, const NamedExtents& sizes,
                          const DimValues& numbers);
/// Whether one of the types has a run-time size.
bool any_sized(const std::vector<Graph::Type>& types);

/// The graph's sizes that such arguments show. SpecError if they do not fit the graph.
DimValues bind_sizes(const Graph& graph, const std::vector<std::pair<DType, Shape>>& arguments);
/// The graph for one value of each size, without run-time sizes.
Graph at_sizes(const Graph& graph, const DimValues& sizes);

}  // namespace tessera
