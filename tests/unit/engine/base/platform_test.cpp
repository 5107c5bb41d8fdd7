// What platform.h promises on every system.
#include "engine/base/platform.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "tests/support/process.h"

namespace platform_test {
using namespace tessera;

TEST_CASE("a file takes another's name, also while the old one is being read") {
  const test::TemporaryFolder f("replace");
  f.write("new", "first");
  CHECK(platform::replace_file(f.at("new"), f.at("file")));
  CHECK(f.read("file") == "first");
  for (const std::string text : {"second", "third"}) {
    std::ifstream reader(f.at("file"), std::ios::binary);
    CHECK(reader.get() != EOF);
    f.write("new", text);
    auto replaced = std::async(std::launch::async, [&] { return platform::replace_file(f.at("new"), f.at("file")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    reader.close();
    CHECK(replaced.get());
    CHECK(f.read("file") == text);
    CHECK_FALSE(std::filesystem::exists(f.path / "new"));
  }
  CHECK_FALSE(platform::replace_file(f.at("none"), f.at("file")));
  f.write("new", "fourth");
  CHECK_FALSE(platform::replace_file(f.at("new"), f.at("no folder/file")));
  CHECK(f.read("file") == "third");
}

}  // namespace platform_test
