#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {

std::string macros(const std::vector<std::pair<std::string, int64_t>>& values) {
  std::string s;
  for (const auto& [name, value] : values) s += (s.empty() ? "-D" : " -D") + name + "=" + std::to_string(value);
  return s;
}

std::string short_name(DType t) { return std::string(name(t)); }

int64_t kind(DType t) { return t == DType::f32 ? 0 : t == DType::f16 ? 1 : t == DType::bf16 ? 2 : 3; }

std::vector<Case> suite(Sizes sizes) {
  std::vector<Case> cases;
  streams(cases, sizes);
  rows(cases, sizes);
  products(cases, sizes);
  attention(cases, sizes);
  pictures(cases, sizes);
  particles(cases, sizes);
  return cases;
}

}  // namespace tessera::gpu_suite
