// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): the same numbers for the
// same seed on every machine. For orders and contents that interpreters choose; not the random numbers of kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

struct SplitMix64 {
  uint64_t state;
  uint64_t next() { return mix(state += 0x9e3779b97f4a7c15u); }
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() % n); }
  template <class T> void shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(static_cast<uint32_t>(i))]);
  }
};

}  // namespace tessera
