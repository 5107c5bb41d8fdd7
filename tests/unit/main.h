// What a suite lets go of when its cases have run, before the process ends: devices that several of them share. The
// validation layers of Vulkan 1.4.309 crash if one is destroyed with the objects of static storage.
#pragma once
#include <functional>
#include <vector>

namespace tessera::test {

inline std::vector<std::function<void()>>& at_end() {
  static std::vector<std::function<void()>> functions;
  return functions;
}

}  // namespace tessera::test
