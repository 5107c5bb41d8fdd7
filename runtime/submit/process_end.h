// The end of the process: objects of static storage (a function under jit with its compiled code, an array) may be
// destroyed after the driver and the layers, which were opened later. So the remaining Contexts are waited for before
// the driver is unloaded, and make no Vulkan calls from then on. Internal to runtime/.
#pragma once
#include <memory>

namespace tessera::vulkan {

class Context;

/// The same context, which ends when the process does, before the libraries that it has opened. What is left of it then
/// stays in memory.
std::shared_ptr<Context> end_with_process(std::shared_ptr<Context> context);

}  // namespace tessera::vulkan
