#include "engine/base/function_ref.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

namespace function_ref_test {
namespace {
using tessera::FunctionRef;

int twice(FunctionRef<int(int)> f, int x) { return f(f(x)); }
int plus_two(int x) { return x + 2; }
void each(const std::vector<int>& list, FunctionRef<void(int)> f) {
  for (const int x : list) f(x);
}

TEST_CASE("FunctionRef calls the caller's object itself, whose state stays") {
  int calls = 0;
  CHECK(twice([&](int x) { return ++calls, x + 3; }, 1) == 7);
  CHECK(calls == 2);
  // No copy: a lambda that counts for itself.
  auto counter = [n = 0](int) mutable { return ++n; };
  CHECK(twice(counter, 0) == 2);
  CHECK(counter(0) == 3);
  const std::function<int(int)> add = [](int x) { return x + 1; };
  CHECK(twice(add, 5) == 7);
}

TEST_CASE("FunctionRef drops results nobody takes, and passes references and what can only be moved") {
  int sum = 0;
  each({1, 2, 3}, [&](int x) { return sum += x; });
  CHECK(sum == 6);
  const auto identity = [](int& x) -> int& { return x; };
  const FunctionRef<int&(int&)> same = identity;
  same(sum) = 8;
  CHECK(sum == 8);
  const auto take = [](std::unique_ptr<int> p) { return *p; };
  const FunctionRef<int(std::unique_ptr<int>)> taken = take;
  CHECK(taken(std::make_unique<int>(4)) == 4);
  CHECK(twice(plus_two, 1) == 5);
  CHECK(twice(&plus_two, 1) == 5);
  static_assert(!std::is_constructible_v<FunctionRef<void(int)>, void (*)(std::vector<int>)>);
}

TEST_CASE("a copy of a FunctionRef calls the same object") {
  int n = 0;
  const auto add = [&](int x) { n += x; };
  const FunctionRef<void(int)> a = add;
  FunctionRef<void(int)> b = a;
  b(2);
  b = a;
  b(3);
  CHECK(n == 5);
}

}  // namespace
}  // namespace function_ref_test
