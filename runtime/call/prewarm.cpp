#include "runtime/call/prewarm.h"

#include <optional>

#include "engine/base/in_parallel.h"
#include "runtime/launch.h"

namespace tessera {

std::vector<CompiledKernel> prewarm(const Device& device, std::span<const ir::Kernel> kernels,
                                    const PrewarmOptions& options) {
  if (options.threads < 0)
    throw SpecError("PrewarmOptions::threads is " + std::to_string(options.threads) + ", which is below 0");
  std::vector<std::optional<CompiledKernel>> ready(kernels.size());
  in_parallel(
      kernels.size(), options.threads,
      [&](size_t i) {
        ready[i] = load(device, kernels[i], options.compile);
        prepare(device, ready[i]->program());
      },
      [&](size_t done, size_t i) {
        if (options.progress) options.progress({done, kernels.size(), kernels[i].name});
      });
  std::vector<CompiledKernel> in_order;
  for (auto& k : ready) in_order.push_back(std::move(*k));
  return in_order;
}

}  // namespace tessera
