#include "runtime/call/load_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/launch.h"

namespace tessera {

namespace {
struct Job {
  Device device;
  ir::Kernel kernel;
  CompileOptions options;
  std::promise<CompiledKernel> promise;
};
}  // namespace

struct LoadQueue::State {
  size_t most = 1;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> waiting;
  size_t running = 0;
  bool ends = false;
  std::vector<std::thread> threads;

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || !waiting.empty(); });
      if (waiting.empty()) return;
      {
        Job job = std::move(waiting.front());
        waiting.pop_front();
        ++running;
        lock.unlock();
        try {
          CompiledKernel ready = tessera::load(job.device, job.kernel, job.options);
          prepare(job.device, ready.program());
          lock.lock();
          --running;
          lock.unlock();
          job.promise.set_value(std::move(ready));  // whoever waits for it sees it no longer pending
        } catch (...) {
          if (!lock.owns_lock()) lock.lock();
          --running;
          lock.unlock();
          job.promise.set_exception(std::current_exception());
        }
      }  // what the job holds, a Device perhaps, goes without the lock
      lock.lock();
    }
  }
  void cancel(std::deque<Job>& jobs) {
    for (Job& j : jobs)
      j.promise.set_exception(std::make_exception_ptr(
          CancelledError(j.kernel.name + ": was not compiled: its LoadQueue has been cancelled", j.kernel.loc)));
  }
};

LoadQueue::LoadQueue(int threads) : state_(std::make_unique<State>()) {
  if (threads < 0) throw SpecError("LoadQueue: threads is " + std::to_string(threads) + ", which is below 0");
  state_->most = threads ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
}

LoadQueue::~LoadQueue() {
  cancel();
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  for (std::thread& t : state_->threads) t.join();
}

std::shared_future<CompiledKernel> LoadQueue::load(const Device& device, ir::Kernel kernel, CompileOptions options) {
  Job job{device, std::move(kernel), std::move(options), {}};
  std::shared_future<CompiledKernel> future = job.promise.get_future().share();
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(job));
  if (state_->threads.size() < state_->most && state_->threads.size() < state_->waiting.size() + state_->running)
    state_->threads.emplace_back([s = state_.get()] { s->work(); });
  state_->changed.notify_one();
  return future;
}

void LoadQueue::cancel() {
  std::deque<Job> jobs;
  {
    const std::lock_guard lock(state_->mutex);
    jobs.swap(state_->waiting);
  }
  state_->cancel(jobs);
}

size_t LoadQueue::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.size() + state_->running;
}

std::shared_future<CompiledKernel> load_async(const Device& device, ir::Kernel kernel, CompileOptions options) {
  static LoadQueue queue;
  return queue.load(device, std::move(kernel), std::move(options));
}

}  // namespace tessera
