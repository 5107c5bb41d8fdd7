// What the tests of TESSERA_CACHE share.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/process.h"

namespace tessera::test {

/// TESSERA_CACHE for as long as it lives, and its files of one kind, or of all but one.
struct Cache {
  std::filesystem::path folder = temporary_path("cache");
  Cache() {
    std::filesystem::remove_all(folder);
    set_environment("TESSERA_CACHE", folder.string().c_str());
  }
  ~Cache() {
    set_environment("TESSERA_CACHE", nullptr);
    std::error_code missing;
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, missing);
    std::filesystem::remove_all(folder);
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  std::vector<std::filesystem::path> pipelines() const { return files(true); }
  std::vector<std::filesystem::path> all_but_pipelines() const { return files(false); }

 private:
  std::vector<std::filesystem::path> files(bool pipelines) const {
    std::vector<std::filesystem::path> found;
    for (const auto& e : std::filesystem::directory_iterator(folder))
      if ((e.path().extension() == ".pipeline") == pipelines) found.push_back(e.path());
    return found;
  }
};

/// What goes to stderr while it lives.
struct Stderr {
  std::filesystem::path file = temporary_path("cache_stderr");
  int kept = dup(2);
  Stderr() {
    if (!std::freopen(file.string().c_str(), "w", stderr)) std::abort();
  }
  std::string text() {
    std::fflush(stderr);
    dup2(kept, 2);
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  ~Stderr() {
    dup2(kept, 2);
    close(kept);
    std::filesystem::remove(file);
  }
};

}  // namespace tessera::test
