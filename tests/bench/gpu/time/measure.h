// One kernel, measured in every way that there is: compiled by the threads of a Loader ahead of its turn, compared, and
// timed. Read next: main.cpp, which runs this in a process of its own.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/gpu/time/cuda_timer.h"
#include "tests/bench/gpu/time/suite_files.h"
#include "tests/bench/gpu/time/vulkan_timer.h"

namespace tessera::bench {

struct MeasureOptions {
  TimeOptions time;
  int64_t rotate_bytes = int64_t{160} << 20;  // of arrays to go through before one comes again
  bool cuda = true, all_shaders = true;
  std::string cuda_library, dump;  // dump: a folder for the code of our kernels
};

/// A program that a driver has compiled, or why not.
template <class T> struct Loaded {
  std::shared_ptr<T> program;
  std::string error;
  double ms = 0;
};
struct Ready {
  ir::Kernel kernel;
  Loaded<const Program> ours;
  std::vector<std::pair<const ShaderRow*, Loaded<const Program>>> shaders;  // of the classes that are timed
  Loaded<CudaLoaded> ptx;
};

class Machine {
 public:
  explicit Machine(const MeasureOptions& options);
  nlohmann::json describe() const;
  /// What copies of memory and a kernel that does nothing take.
  nlohmann::json ceilings();
  Ready load(const SuiteEntry& entry) const;  // on any thread
  nlohmann::json measure(const SuiteEntry& entry, const Ready& ready);
  /// Something has gone wrong in a way that may end all work of the process on the device.
  bool broken() const { return cuda_broken_ || (vulkan_ && vulkan_->device().lost()); }

 private:
  struct Line;
  nlohmann::json on_vulkan(const SuiteEntry&, const Ready&, const std::vector<Array>& inputs, int sets,
                           std::vector<Array>& reference, std::string& reference_name);
  nlohmann::json on_cuda(const SuiteEntry&, const Ready&, const std::vector<Array>& inputs, int sets,
                         const std::vector<Array>& reference);
  int64_t memory() const;

  MeasureOptions options_;
  std::unique_ptr<VulkanTimer> vulkan_;
  std::unique_ptr<CudaTimer> cuda_;
  std::string vulkan_error_, cuda_error_;
  bool cuda_broken_ = false;
};

/// Compiles entries in their order on some threads; none: when they are wanted.
class Loader {
 public:
  Loader(const Machine& machine, const std::vector<SuiteEntry>& entries, int threads);
  ~Loader();
  Ready take(size_t i);  // waits

 private:
  const Machine& machine_;
  const std::vector<SuiteEntry>& entries_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Ready>> ready_;
  size_t next_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::bench
