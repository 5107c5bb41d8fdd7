// The end of the process: objects of static storage (a function under jit with what it has compiled, an array) may go
// after the driver and the layers, which were opened later than they were made. So whatever Contexts are left when
// those begin to go are awaited, and call nothing from then on. Internal to runtime/.
#pragma once
#include <memory>

namespace tessera::vulkan {

class Context;

/// The same context, which ends when the process does, before the libraries that it has opened. What is left of it then
/// stays in memory.
std::shared_ptr<Context> end_with_process(std::shared_ptr<Context> context);

}  // namespace tessera::vulkan
