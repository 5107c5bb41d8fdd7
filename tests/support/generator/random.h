// The fuzzer's random numbers: the same on every machine for the same seed (std's distributions are not).
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/splitmix64.h"

namespace tessera::fuzz {

class Random {  // splitmix64
 public:
  // The seed goes through the mixer itself: streams that start one step apart would be one stream, shifted.
  explicit Random(uint64_t seed) : state_(mix(seed ^ 0x6a09e667f3bcc908u)) {}
  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
  static uint64_t mix(uint64_t z) { return SplitMix64::mix(z); }
  /// both included
  int64_t in(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }
  template <class T> const T& pick(const std::vector<T>& v) { return v[below(v.size())]; }
  template <class T> void shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace tessera::fuzz
