// The result of a call, and the front end's interface to the runtime. engine declares the interface;
// runtime/call/call.cpp defines it, so that the front end, the interpreter and their tests need no Vulkan.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// Runs a traced kernel on the best Vulkan device and waits for its outputs. TESSERA_DEVICE names another;
/// "interpreter" is interpret(). Defined in runtime/call/call.cpp.
std::vector<Array> run_on_default_device(const ir::Kernel& kernel, const std::vector<Array>& arguments,
                                         const DimValues& dims = {});

/// The outputs of a call. A single one converts to Array: `Array z = matmul(x, y);`.
class Arrays {
 public:
  explicit Arrays(std::vector<Array> arrays) : arrays_(std::move(arrays)) {}
  operator Array() const {  // NOLINT: implicit on purpose
    if (arrays_.size() != 1)
      throw SpecError("the call has " + std::to_string(arrays_.size()) + " outputs, not one", {},
                      "take them by index, or by auto [a, b] = ts::unpack<2>(call(...))");
    return arrays_[0];
  }
  size_t size() const { return arrays_.size(); }
  const Array& operator[](size_t i) const {
    if (i >= arrays_.size())
      throw SpecError("output " + std::to_string(i) + " of a call that has " + std::to_string(arrays_.size()));
    return arrays_[i];
  }
  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }

 private:
  std::vector<Array> arrays_;
};

/// auto [values, indices] = unpack<2>(call(x));
template <size_t n>
std::array<Array, n> unpack(const Arrays& a) {
  if (a.size() != n)
    throw SpecError("unpack<" + std::to_string(n) + "> of a call that has " + std::to_string(a.size()) +
                    (a.size() == 1 ? " output" : " outputs"));
  std::array<Array, n> out;
  for (size_t i = 0; i < n; ++i) out[i] = a[i];
  return out;
}

}  // namespace tessera
