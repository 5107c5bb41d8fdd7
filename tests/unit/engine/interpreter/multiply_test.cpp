// Every code that this machine has for matrix products, against sums in order.
#include "engine/interpreter/multiply.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

namespace multiply_test {
using namespace tessera;
using interpreter::multiply_codes;
namespace {
template <class T> T number(int64_t i) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u >> 7);
  else return static_cast<T>((i * 7919 % 2001 - 1000) / 1000.0);
}

// Odd sizes around every register tile: 4 or 8 rows, 3 vectors of 16, 32 or 64 bytes.
struct Size {
  int64_t m, k, n;
};
constexpr Size kSizes[] = {{0, 3, 4},   {3, 0, 4},    {3, 4, 0},   {1, 1, 1},   {1, 300, 1},  {1, 64, 130},
                           {5, 33, 13}, {4, 128, 12}, {8, 16, 48}, {9, 31, 49}, {17, 19, 193}};

template <class T> void check_codes() {
  for (const auto& code : multiply_codes<T>())
    for (const Size& size : kSizes) {
      const int64_t m = size.m, k = size.k, n = size.n;
      CAPTURE(code.name);
      CAPTURE(m);
      CAPTURE(k);
      CAPTURE(n);
      std::vector<T> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
          c(static_cast<size_t>(m * n) + 8, T(77));
      for (size_t i = 0; i < a.size(); ++i) a[i] = number<T>(static_cast<int64_t>(i));
      for (size_t i = 0; i < b.size(); ++i) b[i] = number<T>(static_cast<int64_t>(i) + 5);
      code.run(m, n, k, a.data(), b.data(), c.data());
      int64_t wrong = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const T got = c[static_cast<size_t>(i * n + j)];
          if constexpr (std::is_integral_v<T>) {
            uint64_t sum = 0;
            for (int64_t p = 0; p < k; ++p)
              sum += static_cast<uint64_t>(a[static_cast<size_t>(i * k + p)]) *
                     static_cast<uint64_t>(b[static_cast<size_t>(p * n + j)]);
            wrong += got != static_cast<T>(sum);
          } else {
            long double sum = 0, magnitude = 0;
            for (int64_t p = 0; p < k; ++p) {
              const long double term = static_cast<long double>(a[static_cast<size_t>(i * k + p)]) *
                                       static_cast<long double>(b[static_cast<size_t>(p * n + j)]);
              sum += term;
              magnitude += std::fabs(term);
            }
            // k roundings of partial sums, none of which exceeds the sum of the magnitudes.
            wrong += !(std::fabs(static_cast<long double>(got) - sum) <=
                       static_cast<long double>(k) * std::numeric_limits<T>::epsilon() * magnitude);
          }
        }
      CHECK(wrong == 0);
      for (size_t i = static_cast<size_t>(m * n); i < c.size(); ++i) CHECK(c[i] == T(77));
      std::vector<T> again(c.size(), T(77));
      code.run(m, n, k, a.data(), b.data(), again.data());
      CHECK(again == c);
    }
}
}  // namespace

TEST_CASE("multiply: every code of every dtype") {
  check_codes<float>();
  check_codes<double>();
  check_codes<uint8_t>();
  check_codes<uint16_t>();
  check_codes<uint32_t>();
  check_codes<uint64_t>();
}

TEST_CASE("multiply: NaN and infinity reach only their row and column, zero times them too, and what c held does not") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& code : multiply_codes<float>()) {
    CAPTURE(code.name);
    constexpr int64_t n = 40;
    std::vector<float> a(n * n, 0.0f), b(n * n, 1.0f), c(n * n, nan);
    a[3 * n + 5] = inf;
    b[5 * n + 7] = nan;
    b[9 * n + 11] = inf;
    code.run(n, n, n, a.data(), b.data(), c.data());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const float x = c[static_cast<size_t>(i * n + j)];
        if (j == 7 || j == 11) CHECK(std::isnan(x));  // 0 * NaN, 0 * inf
        else CHECK(x == (i == 3 ? inf : 0.0f));
      }
  }
}

TEST_CASE("multiply: there is always a code, and OpenBLAS comes first where it knows the CPU") {
  const auto& codes = multiply_codes<float>();
  REQUIRE(!codes.empty());
  for (size_t i = 0; i < codes.size(); ++i)
    if (codes[i].name.substr(0, 8) == "OpenBLAS")
      CHECK(i == (codes[i].name == "OpenBLAS for Prescott" ? codes.size() - 1 : 0));
  for (const auto& code : multiply_codes<uint32_t>()) CHECK(code.name.substr(0, 8) != "OpenBLAS");
}

}  // namespace multiply_test
