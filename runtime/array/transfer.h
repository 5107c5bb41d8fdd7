// Copies bytes between the host and a Buffer: through its mapping if the device is done with it, else through staging
// memory in the queue's order. Internal to runtime/. Read next: device_array.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/function.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {

/// `from` may be changed or gone when this returns. `what` names the array in errors; `check` throws if the memory is
/// its no more, once what other threads do to it is done.
void write_bytes(const std::shared_ptr<Context>& context, Buffer& to, const std::byte* from, uint64_t bytes,
                 const std::string& what, FunctionRef<void()> check);
/// Waits for the commands that write it. Returns the outcome of the call that they are of, if there is one.
std::shared_ptr<Outcome> read_bytes(const std::shared_ptr<Context>& context, Buffer& from, std::byte* to,
                                    uint64_t bytes, const std::string& what, FunctionRef<void()> check);

}  // namespace tessera::vulkan
