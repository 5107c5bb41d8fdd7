// LoadQueue: compiles kernels on threads of its own and returns a future for each.
//   ts::LoadQueue queue;
//   std::shared_future<ts::CompiledKernel> blur = queue.load(device, kernel);   // returns at once
//   ...
//   blur.get()(inputs);                     // waits if necessary; throws the errors of load()
// prewarm.h is for many kernels that are all needed before the program goes on. Read next: call.h.
#pragma once
#include <future>
#include <memory>

#include "runtime/call/call.h"

namespace tessera {

/// What the future of a kernel throws that was not begun when its queue was cancelled or went.
struct CancelledError : Error {
  using Error::Error;
};

/// Thread-safe. What futures give outlives the queue.
class LoadQueue {
 public:
  /// 0: one thread per core. They are started by the first load(). Throws SpecError if threads < 0.
  explicit LoadQueue(int threads = 0);
  /// Cancels, and returns when what had begun is done.
  ~LoadQueue();
  LoadQueue(const LoadQueue&) = delete;
  LoadQueue& operator=(const LoadQueue&) = delete;

  /// load(device, kernel, options), and the driver's pipeline, on one of the threads, in the order of the calls. Errors
  /// come with the future.
  std::shared_future<CompiledKernel> load(const Device& device, ir::Kernel kernel, CompileOptions options = {});
  /// The futures of kernels that no thread has begun throw CancelledError. load() may be called again.
  void cancel();
  /// Kernels that are waiting or being compiled.
  size_t pending() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// LoadQueue::load on a queue of the process, whose threads end with it.
std::shared_future<CompiledKernel> load_async(const Device& device, ir::Kernel kernel, CompileOptions options = {});

}  // namespace tessera
