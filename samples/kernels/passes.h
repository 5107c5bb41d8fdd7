// Algorithms of several kernels: prefix sums, sorts, Fourier transforms. They are functions over Passes, which says
// where their calls go: to the default device and back for host arrays, to one Device for device arrays (nothing waits
// in between), or wherever a test or a graph wants them.
//   ts::Array y = ts::kernels::prefix_sum(ts::kernels::passes(), x);
//   ts::DeviceArray d = ts::kernels::prefix_sum(ts::kernels::passes(device), on_device);
// Read next: prefix_sum.h, the simplest.
#pragma once
#include <functional>

#include "samples/kernels/support.h"

namespace tessera::kernels {

template <class A>
struct Passes {
  /// One call: its outputs.
  std::function<std::vector<A>(const PallasCall&, const std::vector<A>&)> call;
  /// A table that the algorithm has computed, as an argument.
  std::function<A(const Array&)> constant;
};

/// Host arrays, on the best device (TESSERA_DEVICE names another).
inline Passes<Array> passes() {
  return {[](const PallasCall& call, const std::vector<Array>& arguments) {
            const Arrays outputs = call(arguments);
            return std::vector<Array>(outputs.begin(), outputs.end());
          },
          [](const Array& table) { return table; }};
}
/// Device arrays of one device; every call starts without waiting for the one before.
inline Passes<DeviceArray> passes(const Device& device) {
  return {[device](const PallasCall& call, const std::vector<DeviceArray>& arguments) {
            return launch(device, call, arguments);
          },
          [device](const Array& table) { return DeviceArray(device, table); }};
}

/// Values of the function that ts::jit is tracing: calls become steps of its graph.
inline Passes<Value> graph_passes() {
  return {[](const PallasCall& call, const std::vector<Value>& arguments) {
            const Results outputs = call.in_graph({arguments.begin(), arguments.end()});
            return std::vector<Value>(outputs.begin(), outputs.end());
          },
          [](const Array& table) { return asarray(table); }};
}

/// axis, counted from the last one if it is negative; SpecError if `what` of this type has no such axis.
inline size_t axis_of(const Checks& c, const std::string& what, const Type& t, int64_t axis) {
  c.require(axis >= -t.rank() && axis < t.rank(),
            "axis " + std::to_string(axis) + " is out of range for " + what + ", " + to_string(t));
  return static_cast<size_t>(axis < 0 ? axis + t.rank() : axis);
}

}  // namespace tessera::kernels
