// Samples run as programs, in a folder of their own.
#pragma once
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera::test {

/// A folder of its own per test, gone afterwards.
struct Scratch {
  std::string path = (std::filesystem::temp_directory_path() / "tessera_samples_XXXXXX").string();
  Scratch() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::string at(const std::string& name) const { return path + "/" + name; }
};

inline std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int code;
  std::string output;
};

/// Runs `sample arguments` in the folder, with `environment` before it.
inline Outcome run(const Scratch& folder, const std::string& environment, const std::string& sample,
                   const std::string& arguments = "") {
  const std::string log = folder.at("output.txt");
  const std::string command = "cd '" + folder.path + "' && " + environment + " '" TESSERA_SAMPLES_BIN "/" + sample +
                              "' " + arguments + " >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(log)};
}

inline bool ends_with(const std::string& s, const std::string& end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

}  // namespace tessera::test
