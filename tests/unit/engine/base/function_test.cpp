#include "engine/base/function.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace function_test {
namespace {
using tessera::Function;
using tessera::FunctionRef;

int twice(FunctionRef<int(int)> f, int x) { return f(f(x)); }
int plus_two(int x) { return x + 2; }
int doubled(int x) { return 2 * x; }
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

TEST_CASE("a Function holds what can be called, or nothing") {
  const Function<int(int)> none, null(nullptr), no_pointer(static_cast<int (*)(int)>(nullptr)),
      nothing{std::function<int(int)>()};
  for (const Function<int(int)>& f : {none, null, no_pointer, nothing}) {
    CHECK_FALSE(f);
    CHECK(f == nullptr);
  }
  const Function<int(int)> by_name(doubled), by_pointer(&doubled), lambda([](int x) { return x + 1; }),
      other(std::function<int(int)>{doubled});
  CHECK(by_name(4) == 8);
  CHECK(by_pointer(4) == 8);
  CHECK(lambda(4) == 5);
  CHECK(other(4) == 8);
  CHECK(lambda != nullptr);
  const Function<void(int)> no_result(by_name);  // the result is dropped, as std::function drops it
  no_result(4);
}

TEST_CASE("copies of a Function share what it captured, which ends with the last of them") {
  auto kept = std::make_shared<int>(0);
  Function<int()> f([kept, calls = 0]() mutable { return *kept + ++calls; });
  Function<int()> g = f;
  CHECK(f() == 1);
  CHECK(g() == 2);
  f = nullptr;
  CHECK_FALSE(f);
  CHECK(kept.use_count() == 2);
  g = Function<int()>();
  CHECK(kept.use_count() == 1);
}

TEST_CASE("a Function passes references, and moves what it is given by value") {
  const Function<void(std::string&)> append([](std::string& s) { s += "b"; });
  std::string s = "a";
  append(s);
  CHECK(s == "ab");
  const Function<std::unique_ptr<int>(std::unique_ptr<int>)> same([](std::unique_ptr<int> p) { return p; });
  CHECK(*same(std::make_unique<int>(3)) == 3);
}

}  // namespace
}  // namespace function_test
