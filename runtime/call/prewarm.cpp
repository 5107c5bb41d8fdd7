#include "runtime/call/prewarm.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/launch.h"

namespace tessera {

std::vector<CompiledKernel> prewarm(const Device& device, std::span<const ir::Kernel> kernels, const PrewarmOptions& options) {
  if (options.threads < 0) throw SpecError("PrewarmOptions::threads is " + std::to_string(options.threads) + ", which is below 0");
  std::vector<std::optional<CompiledKernel>> ready(kernels.size());
  std::mutex mutex;
  size_t next = 0, done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (;;) {
      size_t i;
      {
        const std::lock_guard lock(mutex);
        if (failure || next == kernels.size()) return;
        i = next++;
      }
      try {
        ready[i] = load(device, kernels[i], options.compile);
        prepare(device, ready[i]->program());
        const std::lock_guard lock(mutex);
        ++done;
        if (options.progress && !failure) options.progress({done, kernels.size(), kernels[i].name});
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  const size_t wanted = options.threads ? static_cast<size_t>(options.threads) : std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> threads;
    for (size_t t = 1; t < std::min(wanted, kernels.size()); ++t) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<CompiledKernel> compiled;
  for (auto& k : ready) compiled.push_back(std::move(*k));
  return compiled;
}

}  // namespace tessera
