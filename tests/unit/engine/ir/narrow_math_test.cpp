#include "engine/ir/narrow_math.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "engine/ir/reference.h"

namespace narrow_math_test {
using namespace tessera;

namespace {

double logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }
/// How many floats lie between a and b.
int64_t apart(float a, float b) {
  auto place = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(place(a) - place(b));
}

}  // namespace

TEST_CASE("functions of narrow floats: near the C library's, and one element as many") {
  struct Row {
    const char* name;
    double (*narrow)(double);
    void (*array)(const float*, float*, int64_t);
    double (*library)(double);
  };
  const Row rows[] = {
      {"exp", [](double x) { return narrow::exp(x); }, narrow::exp_array, [](double x) { return std::exp(x); }},
      {"exp2", [](double x) { return narrow::exp2(x); }, narrow::exp2_array, [](double x) { return std::exp2(x); }},
      {"log", [](double x) { return narrow::log(x); }, narrow::log_array, [](double x) { return std::log(x); }},
      {"log2", [](double x) { return narrow::log2(x); }, narrow::log2_array, [](double x) { return std::log2(x); }},
      {"tanh", [](double x) { return narrow::tanh(x); }, narrow::tanh_array, [](double x) { return std::tanh(x); }},
      {"logistic", [](double x) { return narrow::logistic(x); }, narrow::logistic_array, logistic},
  };
  std::vector<float> x;  // of all floats, infinities, NaNs, zeros and subnormals among them
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 40009)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) / 16);
  for (float v : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 88.72284f, 88.72283f, -103.97208f, -103.97209f,
                  128.0f, 127.99999f, -150.0f, 1e-45f, 0.00390625f})
    x.push_back(v);
  for (const Row& r : rows) {
    CAPTURE(std::string(r.name));
    std::vector<float> y(x.size()), in_place = x;
    r.array(x.data(), y.data(), static_cast<int64_t>(x.size()));
    r.array(in_place.data(), in_place.data(), static_cast<int64_t>(x.size()));
    int wrong = 0, unequal = 0, away = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto wanted = static_cast<float>(r.library(static_cast<double>(x[i])));
      unequal += !same(y[i], static_cast<float>(r.narrow(static_cast<double>(x[i])))) || !same(y[i], in_place[i]);
      if (same(y[i], wanted)) continue;
      ++away;
      wrong += y[i] != y[i] || wanted != wanted || apart(y[i], wanted) > 1;
    }
    CHECK(unequal == 0);
    CHECK(wrong == 0);
    CHECK(away <= 2);  // of 111,000
  }
}

TEST_CASE("functions of narrow floats are what the table of ops has") {
  const uint64_t x[] = {std::bit_cast<uint32_t>(0.7f)};
  CHECK(reference::eval(ir::Opcode::exp, DType::f32, DType::f32, x) ==
        std::bit_cast<uint32_t>(static_cast<float>(narrow::exp(0.7f))));
  const float in[] = {-3, 0.5f, 2};
  float out[3];
  const void* operands[] = {in};
  reference::eval_array(ir::Opcode::tanh, DType::f32, DType::f32, operands, out, 3);
  for (int i = 0; i < 3; ++i) CHECK(same(out[i], static_cast<float>(narrow::tanh(in[i]))));
}

}  // namespace narrow_math_test
