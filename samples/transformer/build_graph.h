// A graph built call by call: Passes of its values add steps instead of running them. What it makes is compiled and replayed as one (runtime/call/graph.h), or interpreted.
#pragma once
#include <runtime/call/graph.h>

#include <map>
#include <string>
#include <vector>

#include "samples/kernels/passes.h"

namespace transformer {

/// A value of a graph that is being built.
class GraphValue {
 public:
  GraphValue(size_t number, tessera::kernels::Type type) : number_(number), type_(std::move(type)) {}
  const tessera::Shape& shape() const { return type_.shape; }
  tessera::DType dtype() const { return type_.dtype; }
  size_t number() const { return number_; }

 private:
  size_t number_;
  tessera::kernels::Type type_;
};

class GraphBuilder {
 public:
  GraphValue input(const tessera::kernels::Type& type) {
    const GraphValue v = value(type);
    graph_.body.inputs.push_back(v.number());
    return v;
  }
  void output(const GraphValue& v) { graph_.body.outputs.push_back(v.number()); }
  std::vector<GraphValue> call(const tessera::PallasCall& f, const std::vector<GraphValue>& arguments);
  tessera::kernels::Passes<GraphValue> passes();
  const tessera::Graph& graph() const { return graph_; }

 private:
  GraphValue value(const tessera::kernels::Type& type) {
    graph_.values.push_back({type.dtype, type.shape});
    return {graph_.values.size() - 1, type};
  }
  tessera::Graph graph_;
  std::map<std::string, size_t> kernels_;  // by text: layers share theirs
};

}  // namespace transformer
