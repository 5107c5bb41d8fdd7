// Plans: what interpret() plans for a kernel before it runs, and the memory that its runs need, kept between calls for
// callers that call one kernel often. Read next: interpreter.h.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/base/host_array.h"
#include "engine/interpreter/interpreter.h"

namespace tessera {

namespace interpreter {
class Prepared;
}

/// Of one kernel, which stays where it is and does not change. Any number of threads may use it.
class Plans {
 public:
  Plans();
  ~Plans();

 private:
  friend std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs,
                                      const InterpretOptions& options, Plans& plans);
  friend uint64_t interpret(const ir::Kernel& k, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                            const InterpretOptions& options, Plans& plans);
  // one that is idle and fits, or null
  template <class Fits> std::unique_ptr<interpreter::Prepared> take(const Fits& fits);
  // of a call that has come to its end
  void give_back(std::unique_ptr<interpreter::Prepared> prepared);

  std::mutex mutex_;
  std::vector<std::unique_ptr<interpreter::Prepared>> idle_;
};

/// As without `plans`.
std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options,
                             Plans& plans);

/// The same on memory of the caller's: inputs are only read, outputs overwritten (as far as the kernel got, where it
/// throws). One at the same place as the input that it is aliased to is updated there. Returns the bytes that were
/// copied. SpecError where an output is not the kernel's.
uint64_t interpret(const ir::Kernel& k, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                   const InterpretOptions& options, Plans& plans);

}  // namespace tessera
