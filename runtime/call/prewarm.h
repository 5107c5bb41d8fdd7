// prewarm: compiles many kernels in advance, on several threads, down to the driver's pipelines. With TESSERA_CACHE it
// reads them from disk or stores them there.
//   ts::prewarm(device, kernels, {.progress = [](const ts::Prewarmed& p) { show(p.done, p.total, p.kernel); }});
// Read next: call.h.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "runtime/bundle.h"
#include "runtime/call/call.h"

namespace tessera {

struct PrewarmOptions {
  int threads = 0;  ///< 0: one per core
  /// Called on the worker threads, one call at a time. What it throws ends the work, and prewarm() throws it.
  Function<void(const Prewarmed&)> progress = {};
  CompileOptions compile = {};
};

/// The kernels, compiled for the device, in their order; load() and launch() find them there. Returns when all are
/// ready. Throws what the first one that fails throws (in time, not in order), once the threads have finished the
/// kernels that they had begun; SpecError if threads < 0.
std::vector<CompiledKernel> prewarm(const Device& device, std::span<const ir::Kernel> kernels,
                                    const PrewarmOptions& options = {});

}  // namespace tessera
