// CudaTimer: kernels as PTX on NVIDIA's own driver (runtime/nvidia/driver.h), timed by its events around a batch of
// launches in one graph, or stream if that fails. A driver without events (the one of tests/support/cuda) is timed by
// the host's clock, which says little; clock() tells. Read next: main.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"
#include "tests/bench/gpu/time/contender.h"

namespace tessera::bench {

class CudaLoaded;
class CudaState;

/// Of a compiled kernel.
struct CudaCode {
  std::string ptx;
  int registers = 0, local_bytes = 0;  // of a thread, as the driver made it; local memory is what it spills
  int64_t shared_bytes = 0;
  int32_t threads = 0;
};

class CudaTimer {
 public:
  /// The GPU of that name, else the first; null where there is no driver or no GPU. Throws DeviceError if it fails.
  static std::unique_ptr<CudaTimer> open(const std::string& library, const std::string& name);
  std::string name() const;
  int driver_version() const;
  const Target& target() const;
  const char* clock() const;  ///< "events", or "host"

  /// Compiled, and by the driver; on any thread.
  std::shared_ptr<CudaLoaded> load(const ir::Kernel& kernel) const;
  /// The kernel over `sets` sets of arrays with equal contents.
  std::unique_ptr<Contender> contender(std::shared_ptr<CudaLoaded> loaded, const ir::Kernel& kernel,
                                       const std::vector<Array>& inputs, int sets) const;
  static CudaCode code(const CudaLoaded& loaded);
  std::unique_ptr<Contender> copy(int64_t bytes) const;
  int64_t memory_bytes() const;

 private:
  std::shared_ptr<CudaState> state_;
};

}  // namespace tessera::bench
