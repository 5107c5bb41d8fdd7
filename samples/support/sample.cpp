#include "samples/support/sample.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace sample {
using tessera::Array;

namespace {
constexpr int64_t kSampled = 500;

/// 32 well mixed bits per (seed, i): multiplications and shifts modulo 2^32, as make_answers.py has them.
uint32_t hash(uint32_t seed, uint32_t i) {
  uint32_t x = i * 0x9e3779b1u + seed * 0x85ebca77u;
  for (int round = 0; round < 2; ++round) {
    x ^= x >> 16;
    x *= 0x2c1b3c6du;
    x ^= x >> 13;
  }
  return x ^ (x >> 16);
}

/// Position of the i-th entry that is compared, of an array of `size`.
int64_t sampled(int64_t i, int64_t size) { return hash(0x7e55e7a, static_cast<uint32_t>(i)) % size; }

bool on_interpreter() {
  const char* device = std::getenv("TESSERA_DEVICE");
  return device && std::string(device) == "interpreter";
}

std::string text(const tessera::Shape& shape) {
  std::string s;
  for (int64_t d : shape) s += (s.empty() ? "" : " x ") + std::to_string(d);
  return s;
}

/// Prints the sample's line; both differences are as found (NaN fails).
int report(const std::string& name, const Array& result, double entry, double entry_tolerance,
           const std::string& others, bool others_right) {
  // TESSERA_VALIDATION=1 prints them
  const size_t messages = on_interpreter() ? 0 : tessera::default_device().validation_messages().size();
  const bool right = entry <= entry_tolerance && others_right && messages == 0;
  if (messages) std::printf("%s: the validation layers said %zu things\n", name.c_str(), messages);
  std::printf("%s: %s %s on %s: largest difference %.2g (allowed %.2g)%s: %s\n", name.c_str(),
              std::string(tessera::name(result.dtype())).c_str(), text(result.shape()).c_str(),
              on_interpreter() ? "the interpreter" : tessera::default_device().info().name.c_str(), entry,
              entry_tolerance, others.c_str(), right ? "ok" : "WRONG");
  return right ? 0 : 1;
}

double worse(double a, double b) { return a >= b || std::isnan(a) ? a : b; }  // keeps a NaN
}  // namespace

Array random(const tessera::Shape& shape, uint32_t seed, float scale) {
  Array a(shape, tessera::f32);
  const std::span<float> data = a.data<float>();
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = scale * (static_cast<float>(hash(seed, static_cast<uint32_t>(i)) >> 8) / 8388608.0f - 1);
  return a;
}

int check(const std::string& name, const Array& result, Tolerance tolerance) {
  // The file: the shape, the sampled entries, the row sums, as f64.
  const Array answers = tessera::read_npy(std::string(TESSERA_SAMPLES_DIR) + "/data/" + name + ".npy", tessera::f64);
  const int64_t rank = static_cast<int64_t>(result.shape().size()), columns = result.shape().back();
  const int64_t rows = columns ? result.size() / columns : 0;
  if (answers.size() != rank + kSampled + rows)
    throw tessera::SpecError("the result " + text(result.shape()) + " has not the shape of the stored answers");
  for (int64_t d = 0; d < rank; ++d)
    if (answers.at(d) != static_cast<double>(result.shape()[static_cast<size_t>(d)]))
      throw tessera::SpecError("the result " + text(result.shape()) + " has not the shape of the stored answers");
  double entry = 0, row_sum = 0;
  for (int64_t i = 0; i < kSampled; ++i)
    if (const double answer = answers.at(rank + i); !std::isnan(answer))
      entry = worse(std::fabs(result.at(sampled(i, result.size())) - answer), entry);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += result.at(r * columns + c);
    row_sum = worse(std::fabs(sum - answers.at(rank + kSampled + r)), row_sum);
  }
  char sums[80];
  std::snprintf(sums, sizeof sums, ", of a row's sum %.2g (allowed %.2g)", row_sum, tolerance.row_sums);
  return report(name, result, entry, tolerance.entries, sums, row_sum <= tolerance.row_sums);
}

int check(const std::string& name, const Array& result, const std::function<double(int64_t)>& expected,
          double tolerance) {
  double entry = 0;
  for (int64_t i = 0; i < kSampled && result.size(); ++i) {
    const int64_t position = sampled(i, result.size());
    entry = worse(std::fabs(result.at(position) - expected(position)), entry);
  }
  return report(name, result, entry, tolerance, "", true);
}

int fail(const std::string& name, const std::exception& error) {
  std::printf("%s: %s\n", name.c_str(), error.what());
  return 1;
}

}  // namespace sample
