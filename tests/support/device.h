// The device that a suite runs on.
#pragma once
#include <doctest/doctest.h>

#include <optional>

#include "runtime/device.h"

namespace tessera::test {

/// The best device; or none, with a message that says why.
inline std::optional<Device> device_if_any() {
  try {
    return Device();
  } catch (const DeviceError& e) {
    MESSAGE("not run on a device: ", std::string(e.what()));
    return std::nullopt;
  }
}

}  // namespace tessera::test
