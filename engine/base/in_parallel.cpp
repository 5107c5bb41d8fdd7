#include "engine/base/in_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/function.h"

namespace tessera {

void in_parallel(size_t n, int threads, FunctionRef<void(size_t)> work, const Function<void(size_t, size_t)>& done) {
  std::mutex mutex;
  size_t next = 0, finished = 0;
  std::exception_ptr failure;
  const auto loop = [&] {
    for (;;) {
      size_t i;
      {
        const std::lock_guard lock(mutex);
        if (failure || next == n) return;
        i = next++;
      }
      std::exception_ptr failed;
      const auto attempt = [&](const auto& f) {
        try {
          f();
        } catch (...) {
          failed = std::current_exception();
        }
      };
      attempt([&] { work(i); });
      const std::lock_guard lock(mutex);
      ++finished;
      if (done && !failure && !failed) attempt([&] { done(finished, i); });
      if (!failure) failure = failed;
    }
  };
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (size_t t = 1; t < std::min(wanted, n); ++t) others.emplace_back(loop);
    loop();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera
