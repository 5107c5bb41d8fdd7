#include "tests/fuzz/workers.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <thread>

#ifndef _WIN32
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace tessera::fuzz {
namespace {
constexpr int kMostDeaths = 40;  // of workers: then something is wrong with all of them

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void keep(std::array<char, 200>& to, const std::string& text) {
  const size_t n = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), n, to.begin());
  to[n] = 0;
}
}  // namespace

void Progress::begin_case(const std::string& case_name) {
  keep(name, case_name);
  begin_stage("");
}

void Progress::begin_stage(const std::string& stage_name) {
  on_device = false;
  keep(stage, stage_name);
  stage_began = now();
  on_device = stage_name.find("/device") != std::string::npos;
}

#ifdef _WIN32
void* shared_memory(size_t bytes) { return std::calloc(bytes, 1); }

// no fork: what crashes ends the fuzzer
bool run_in_workers(Progress&, double, const std::function<int()>& work,
                    const std::function<void(const std::string&)>&) {
  return work() == kDone;
}
#else
void* shared_memory(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("fuzz: mmap: " + std::string(std::strerror(errno)));
  return p;
}

bool run_in_workers(Progress& progress, double patience, const std::function<int()>& work,
                    const std::function<void(const std::string&)>& died) {
  for (int deaths = 0; deaths < kMostDeaths; ++deaths) {
    std::cout.flush();
    progress.begin_case("");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fuzz: fork: " + std::string(std::strerror(errno)));
    if (child == 0) {
      const int status = work();
      std::cout.flush();
      _exit(status);  // a driver that has lost its device may not survive its own end
    }
    int status = 0;
    bool killed = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (killed || !progress.on_device || static_cast<double>(now() - progress.stage_began) < patience * 1e9) continue;
      killed = true;
      kill(child, SIGKILL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoDevice) return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kDeviceLost) {
      died(killed ? "no end after " + std::to_string(static_cast<int>(patience)) + " s"
                  : "crash: " + std::string(WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the process ended"));
      ++progress.next;
    }
  }
  std::cout << "fuzz: " << kMostDeaths
            << " processes have died or lost the device: the cases from here on are not run\n";
  return false;
}
#endif

}  // namespace tessera::fuzz
