#include "engine/base/function.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>

using tessera::Function;

namespace {

int twice(int x) { return 2 * x; }

}  // namespace

TEST_CASE("a Function holds what can be called, or nothing") {
  const Function<int(int)> none, null(nullptr), no_pointer(static_cast<int (*)(int)>(nullptr)),
      nothing{std::function<int(int)>()};
  for (const Function<int(int)>& f : {none, null, no_pointer, nothing}) {
    CHECK_FALSE(f);
    CHECK(f == nullptr);
  }
  const Function<int(int)> by_name(twice), by_pointer(&twice), lambda([](int x) { return x + 1; }),
      other(std::function<int(int)>{twice});
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
