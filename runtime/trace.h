// When a device ran what, by its own clock: what CompiledGraph::trace() (runtime/call/graph.h) and
// CommandStream::trace() (runtime/record.h) return, and as a file that a person can look at.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace tessera {

/// When a command was run: nanoseconds from the beginning of the first one.
struct TimedCommand {
  std::string name;  // the kernel's, or "copy"
  Loc loc = {};
  double begin = 0, end = 0;
  int64_t bytes = 0;     // of its arguments
  bool guarded = false;  // the device decided whether it runs; if not, it has next to no time
};

/// For Perfetto and chrome://tracing: the JSON of Chrome's trace event format.
std::string chrome_trace(std::span<const TimedCommand> commands);

}  // namespace tessera
