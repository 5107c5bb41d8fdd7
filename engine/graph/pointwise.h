// Element-wise kernels of a graph, and how they are merged into the loads and stores of kernels with blocks. Internal
// to fuse.h.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "engine/graph/graph.h"

namespace tessera::fusion {

/// A kernel that loads whole arrays, computes, and stores whole arrays, each once: no grid, no blocks, nothing else
/// that it does to memory.
struct Plain {
  std::map<ir::Value, size_t> loads;  // which input a value is
  std::vector<ir::Value> stored;      // by output
  std::vector<ir::OpId> ops;          // neither loads nor stores
};
std::optional<Plain> plain(const ir::Kernel& k);

/// A call with its arguments as values of the graph; `results` stay those of the call that makes them.
struct Fusion {
  ir::Kernel kernel;
  std::vector<size_t> arguments;
};
/// `producer` (of one output, `value`) computed where the consumer loads it.
std::optional<Fusion> into_loads(const ir::Kernel& producer, const std::vector<size_t>& producer_arguments,
                                 const ir::Kernel& consumer, const std::vector<size_t>& consumer_arguments,
                                 size_t value);
/// `consumer` (of one output) computed where the producer stores output `output`, which is `value`.
std::optional<Fusion> into_stores(const ir::Kernel& producer, const std::vector<size_t>& producer_arguments,
                                  size_t output, size_t value, const ir::Kernel& consumer,
                                  const std::vector<size_t>& consumer_arguments);

/// An element-wise kernel of one output on arrays of any size: by blocks, with names of its own for the sizes. `dims`:
/// those of each input, of which some are no numbers; the kernel is traced with numbers that stand for them. Nothing if
/// it is not element by element, or if no input shows a size of its result.
std::optional<Fusion> by_blocks(const ir::Kernel& k, const std::vector<std::vector<Extent>>& dims);

std::string joined(const std::string& a, const std::string& b);  ///< the name of what two kernels become

}  // namespace tessera::fusion
