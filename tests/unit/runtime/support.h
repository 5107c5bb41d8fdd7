// What the runtime's tests share: hand-made Programs, host arrays, one device under validation, and the checks that hold after every test.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_array.h"
#include "runtime/launch.h"

namespace tessera::test {

/// A device with validation layers and the command log on; made at first use.
Device& device();
/// Validation has said nothing, and every conflicting pair of accesses in the log is ordered.
void check_clean(const Device& d);

/// The programs of programs.comp.
Program add();
Program scale();
Program scratch();
Program table();
Program busy();
Program subgroup();

Array ramp(int64_t n, float start = 0);
std::vector<float> floats(const DeviceArray& a);
/// What scale() makes of ramp(n), `times` times over.
std::vector<float> scaled_ramp(int64_t n, int times = 1);

/// The text that `f` throws as E; empty if it throws nothing.
template <class E, class F> std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera::test
