// in_parallel: runs pieces of work on several threads, until one fails.
#pragma once
#include <cstddef>

#include "engine/base/function.h"

namespace tessera {

/// work(i) for each i < n, on `threads` threads (0: one per core), this one among them. After each, done(number of
/// those finished, i), one call at a time. Throws what the first one that fails (in time) throws, once those that had
/// begun are finished.
void in_parallel(size_t n, int threads, FunctionRef<void(size_t)> work,
                 const Function<void(size_t, size_t)>& done = {});

}  // namespace tessera
