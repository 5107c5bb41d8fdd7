#include "tests/bench/gpu/time/contender.h"

#include <algorithm>
#include <cstdint>

namespace tessera::bench {

namespace {
/// Runs it until the device is awake; the repeats that a batch of it takes, and the seconds of a run.
std::pair<int, double> warmed(Contender& c, const TimeOptions& o) {
  double one = std::max(c.batch(1), 1e-7), spent = one;
  const auto repeats = [&] {
    return static_cast<int>(std::clamp(o.batch_seconds / one, 1.0, static_cast<double>(o.max_repeats)));
  };
  while (spent < o.warm_seconds) {
    const int n = repeats();
    one = std::max(c.batch(n), 1e-7);
    spent += std::max(one * n, o.warm_seconds / 50);
  }
  return {repeats(), one};
}
}  // namespace

std::vector<Samples> time_in_turns(const std::vector<Contender*>& contenders, const TimeOptions& o) {
  std::vector<Samples> all(contenders.size());
  double round = 0;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const auto [repeats, one] = warmed(*contenders[i], o);
    all[i].repeats = repeats;
    round += one * repeats;
  }
  const int samples = static_cast<int>(
      std::clamp(o.seconds / round, static_cast<double>(o.min_samples), static_cast<double>(o.max_samples)));
  for (int s = 0; s < samples; ++s)
    for (size_t i = 0; i < contenders.size(); ++i) all[i].seconds.push_back(contenders[i]->batch(all[i].repeats));
  return all;
}

int sets_for(int64_t bytes_of_set, int64_t bytes_wanted, int64_t memory) {
  constexpr int64_t kMost = 64;
  const int64_t wanted = std::clamp<int64_t>(bytes_wanted / std::max<int64_t>(bytes_of_set, 1) + 1, 1, kMost);
  const int64_t fit = std::max<int64_t>(memory / 4 / std::max<int64_t>(bytes_of_set, 1), 1);
  return static_cast<int>(std::min(wanted, fit));
}

}  // namespace tessera::bench
