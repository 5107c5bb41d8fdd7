// Messages that are neither results nor errors: validation messages, caches that are damaged or cannot be written.
// Without a callback they go to stderr. A Device's own messages go to DeviceOptions::log, if that is set; all others,
// of the whole process, to the callback given here.
#pragma once
#include <string>

#include "engine/base/function.h"

namespace tessera {

enum class Severity : unsigned char { info, warning, error };

/// One message, without a line break at its end. Called on whichever thread something happens, one call at a time; it
/// may call nothing of Tessera but log().
using LogCallback = Function<void(Severity, const std::string& message)>;

/// The process' callback; an empty one leads to stderr again. What has begun to use the one before has ended when this
/// returns. Thread-safe.
void set_log(LogCallback callback);
/// Says it: to `own` if that is set, else to the process' callback, else to stderr.
void log(Severity severity, const std::string& message, const LogCallback& own = {});

}  // namespace tessera
