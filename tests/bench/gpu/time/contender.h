// Contender: one way to compute a kernel on one device, ready to be run some times in one batch whose time the GPU
// itself takes; and Samples, what came of that. Read next: vulkan_timer.h, cuda_timer.h.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/array.h"

namespace tessera::bench {

class Contender {
 public:
  virtual ~Contender() = default;
  /// Runs it `repeats` times, one after another, on the sets of arrays in turn; seconds for each.
  virtual double batch(int repeats) = 0;
  /// Poisons the outputs of the first set, runs it there once, and returns them.
  virtual std::vector<Array> outputs() = 0;
  /// The last batch was one graph of CUDA's.
  virtual bool by_graph() const { return false; }
};

/// Seconds of a run.
struct Samples {
  std::vector<double> seconds;
  int repeats = 0;  // in each batch
  double part(double p) const {
    if (seconds.empty()) return 0;
    std::vector<double> s = seconds;
    std::sort(s.begin(), s.end());
    return s[std::min(s.size() - 1, static_cast<size_t>(p * static_cast<double>(s.size())))];
  }
  double median() const { return part(0.5); }
};

struct TimeOptions {
  double seconds = 0.5;        // that all contenders together may take, about
  double warm_seconds = 0.03;  // each, before it is measured
  double batch_seconds = 0.004;
  int max_repeats = 400, min_samples = 5, max_samples = 40;
};

/// Times them in turns: a batch of each, and again.
std::vector<Samples> time_in_turns(const std::vector<Contender*>& contenders, const TimeOptions& options);

/// How many sets of arrays of so many bytes to go through, so that no cache keeps one until its turn comes again.
int sets_for(int64_t bytes_of_set, int64_t bytes_wanted, int64_t memory);

}  // namespace tessera::bench
