// What tests ask of the operating system: the environment's variables, folders of their own, programs run as processes.
// The same on Linux and Windows.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <vector>
#ifndef _WIN32
#include <sys/wait.h>
#endif

#include "engine/base/platform.h"

namespace tessera::test {

/// Sets a variable of this process' environment; null takes it away.
inline void set_environment(const char* name, const char* value) {
#ifdef _WIN32
  _putenv_s(name, value ? value : "");  // there are no empty ones
#else
  value ? setenv(name, value, 1) : unsetenv(name);
#endif
}

/// A path in the system's folder for such that no other process or call gets.
inline std::filesystem::path temporary_path(const std::string& name) {
  static std::atomic<int> number{0};
  return std::filesystem::temp_directory_path() /
         ("tessera_" + name + "_" + std::to_string(platform::process_id()) + "_" + std::to_string(++number));
}

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A new folder, gone afterwards.
struct TemporaryFolder {
  std::filesystem::path path;
  explicit TemporaryFolder(const std::string& name) : path(temporary_path(name)) {
    std::filesystem::create_directory(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string at(const std::string& name) const { return (path / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) const { return contents(path / name); }
};

/// Runs a program in `folder` and returns its exit code, or -1 if it had none. Arguments are separated by spaces but
/// inside '...'; `environment` is "A=1 B=2". What it prints goes to two files in `folder`.
inline int run_program(const std::filesystem::path& folder, const std::string& program, std::string arguments,
                       const std::string& environment = "", const std::string& out = "out.txt",
                       const std::string& err = "err.txt") {
#ifdef _WIN32
  std::string command = "cd /d \"" + folder.string() + "\"";
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find(' ', at), environment.size());
    if (end > at) command += " && set \"" + environment.substr(at, end - at) + "\"";
    at = end + 1;
  }
  std::replace(arguments.begin(), arguments.end(), '\'', '"');
  command += " && \"" + std::filesystem::absolute(program).make_preferred().string() + "\" " + arguments + " >" + out +
             " 2>" + err;
  return std::system(command.c_str());
#else
  // In builds with the address sanitizer, leaks of the validation layer are none of the program's.
  const int status = std::system(("cd '" + folder.string() + "' && LSAN_OPTIONS=detect_leaks=0 " + environment + " '" +
                                  program + "' " + arguments + " >" + out + " 2>" + err)
                                     .c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
#endif
}

/// The exit codes of several processes of it that run at the same time.
inline std::vector<int> run_at_once(int times, const std::string& program, const std::string& arguments) {
  const TemporaryFolder folder("at_once");
  std::vector<std::future<int>> running;
  for (int i = 0; i < times; ++i)
    running.push_back(std::async(std::launch::async, [&, i] {
      return run_program(folder.path, program, arguments, "", "out" + std::to_string(i), "err" + std::to_string(i));
    }));
  std::vector<int> codes;
  for (auto& r : running) codes.push_back(r.get());
  return codes;
}

}  // namespace tessera::test
