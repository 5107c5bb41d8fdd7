// TypedArray: a DeviceArray of one dtype and number of dims, so that arguments in the wrong order are an error of the
// C++ compiler if their dtype or rank differs. The headers of tessera bundle use it for arguments and results.
#pragma once
#include <string>
#include <utility>

#include "engine/base/plural.h"
#include "runtime/device_array.h"

namespace tessera {

/// In the place of an output that takes the memory of a donated argument.
struct InPlace {};
inline constexpr InPlace in_place;

template <DType kDType, int kRank> class TypedArray {
 public:
  TypedArray(InPlace) {}  // NOLINT: implicit on purpose
  /// Throws SpecError if the array has another dtype or number of dims. Not from a TypedArray of another type, which
  /// would take two conversions.
  TypedArray(DeviceArray array) : array_(std::move(array)) {  // NOLINT: implicit on purpose
    if (array_.dtype() != kDType || array_.shape().size() != static_cast<size_t>(kRank))
      throw SpecError("TypedArray: the array is " + std::string(name(array_.dtype())) + to_string(array_.shape()) +
                      " but one of " + std::string(name(kDType)) + " with " + plural(kRank, "dim") + " is wanted");
  }
  /// A number, for an input of rank 0 of a graph.
  template <ScalarNumber T>
    requires(kRank == 0)
  TypedArray(T number) : array_(number) {}                // NOLINT: implicit on purpose
  operator const DeviceArray&() const { return array_; }  // NOLINT: implicit on purpose
  const DeviceArray& operator*() const { return array_; }
  const DeviceArray* operator->() const { return &array_; }

 private:
  DeviceArray array_;
};

}  // namespace tessera
