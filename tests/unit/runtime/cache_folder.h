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

namespace tessera::test {

/// TESSERA_CACHE for as long as it lives, and its files of one kind, or of all but one.
struct Cache {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("tessera_cache_" + std::to_string(getpid()));
  Cache() {
    std::filesystem::remove_all(folder);
    setenv("TESSERA_CACHE", folder.c_str(), 1);
  }
  ~Cache() {
    unsetenv("TESSERA_CACHE");
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
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("tessera_cache_stderr_" + std::to_string(getpid()));
  int kept = dup(2);
  Stderr() { if (!std::freopen(file.c_str(), "w", stderr)) std::abort(); }
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

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace tessera::test
