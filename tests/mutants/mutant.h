// What the sources in which tests/mutants/plant.py has planted faults ask: is fault n the one that this process is to
// have? Never part of the library.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace tessera::mutants {

constexpr int kMost = 1 << 16;

/// Tells the file TESSERA_MUTANTS_REACHED, if that is set, which faults were passed: each once in a process, at once,
/// since processes may crash.
inline void reached(int n) {
  static const char* const file = std::getenv("TESSERA_MUTANTS_REACHED");
  static bool seen[kMost] = {};
  if (!file || seen[n]) return;
  seen[n] = true;
  char line[16];
  const int length = std::snprintf(line, sizeof line, "%d\n", n);
  const int to = open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (to < 0 || write(to, line, static_cast<size_t>(length)) != length) std::abort();
  close(to);
}

inline bool live(int n) {
  static const int chosen = [] {
    const char* s = std::getenv("TESSERA_MUTANT");
    return s ? std::atoi(s) : 0;
  }();
  if (chosen == 0) reached(n);
  return n == chosen;
}

}  // namespace tessera::mutants
