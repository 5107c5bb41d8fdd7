// Mutates kernels of tests/tir and tries what comes of it (attempt.h), in processes of their own, so that a crash or a
// hang is a failure that is shrunk and printed like others. Without arguments: a short run for the test suite. Clang's
// libFuzzer does the same by coverage (libfuzzer.cpp).
#ifndef TESSERA_LIBFUZZER
#ifndef _WIN32
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

#include "tests/parser/attempt.h"
#include "tests/parser/mutate.h"
#include "tests/support/sanitizer.h"

using namespace tessera;

namespace {
constexpr const char* kUsage =
    "parser [--seed N] [--count N] [--seconds S] [--print] [FILE ...]\n"
    "  --seed, --count   the mutants N, N + 1, ...    --seconds   stop after so long\n"
    "  --print           print the mutants instead of trying them\n"
    "  FILE              try these texts instead of mutants\n";
#if defined(TESSERA_ADDRESS_SANITIZER)
constexpr int kSeconds = 150;    // the same work takes up to ten times as long
constexpr size_t kCompiles = 2;  // so each text is compiled in two of the six ways
#else
constexpr int kSeconds = 20;  // of the processor's time for one text
constexpr size_t kCompiles = 6;
#endif

struct Arguments {
  uint64_t seed = 1;
  int64_t count = 6000;
  double seconds = 60;
  bool print = false;
  std::vector<std::string> files;
};

[[noreturn]] void usage(const std::string& what) {
  std::cerr << "parser: " << what << "\n" << kUsage;
  std::exit(2);
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments a;
  if (argc == 1 && std::getenv("TESSERA_TESTS_ALL")) a.count = 500'000, a.seconds = 1200;
  for (int i = 1; i < argc; ++i) {
    const std::string s = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= argc) usage(s + " wants a value");
      return argv[++i];
    };
    if (s == "--seed") a.seed = std::strtoull(next().c_str(), nullptr, 10);
    else if (s == "--count") a.count = std::strtoll(next().c_str(), nullptr, 10), a.seconds = 1e9;
    else if (s == "--seconds") a.seconds = std::strtod(next().c_str(), nullptr), a.count = INT64_MAX;
    else if (s == "--print") a.print = true;
    else if (s == "--help") {
      std::cout << kUsage;
      std::exit(0);
    } else if (s[0] == '-') usage("unknown option " + s);
    else a.files.push_back(s);
  }
  return a;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) usage("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Shared {           // between the process that tries and the one that watches
  volatile int64_t done;  // texts tried
  int64_t reached[5];
  char bug[4000];
};
/// Tries text(0), text(1), ... in another process until one is a bug, which it returns with shared()->done at its
/// position.
#ifdef _WIN32
Shared* shared() {
  static Shared memory;
  return &memory;
}
// There is no fork: what crashes or hangs ends the suite.
std::optional<std::string> watch(const std::function<std::optional<std::string>(int64_t)>& text, int64_t from) {
  for (int64_t i = from;; ++i) {
    shared()->done = i;
    const auto t = text(i);
    if (!t) return std::nullopt;
    const parser::Attempt a = parser::attempt(*t, kCompiles);
    shared()->reached[static_cast<size_t>(a.reached)]++;
    if (a.bug) return a.bug;
  }
}
#else
Shared* shared() {
  static void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) usage("mmap failed");
  return static_cast<Shared*>(memory);
}

std::optional<std::string> watch(const std::function<std::optional<std::string>(int64_t)>& text, int64_t from) {
  Shared* s = shared();
  s->done = from;
  s->bug[0] = '\0';
  std::cout << std::flush;
  const pid_t child = fork();
  if (child < 0) usage("fork failed");
  if (child == 0) {
#if !defined(TESSERA_ADDRESS_SANITIZER)
    const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30};
    setrlimit(RLIMIT_AS, &memory);
#endif
    for (int64_t i = from;; ++i) {
      const auto t = text(i);
      if (!t) _exit(0);
      const itimerval limit{{0, 0}, {kSeconds, 0}};
      setitimer(ITIMER_PROF, &limit, nullptr);  // its signal ends the process
      const parser::Attempt a = parser::attempt(*t, kCompiles);
      s->reached[static_cast<size_t>(a.reached)]++;
      if (a.bug) {
        std::strncpy(s->bug, a.bug->c_str(), sizeof s->bug - 1);
        _exit(1);
      }
      s->done = i + 1;
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (s->bug[0]) return std::string(s->bug);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) return "takes longer than " + std::to_string(kSeconds) + " s";
  return "crash: " + std::string(WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the process ended");
}
#endif
std::optional<std::string> try_one(const std::string& text) {
  return watch([&](int64_t i) { return i == 0 ? std::optional(text) : std::nullopt; }, 0);
}
std::string stage(const std::string& bug) { return bug.substr(0, std::min(bug.find('\n'), bug.find(':'))); }

/// Without the lines, then the pieces of lines, that the failure does not need.
std::string shrink(std::string text, const std::string& bug, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t piece = text.size() / 2; piece > 0; piece = piece > 40 ? piece / 2 : piece - 1)
    for (size_t at = 0; at + piece <= text.size();) {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) return text;
      std::string less = text;
      less.erase(at, piece);
      const auto now = try_one(less);
      if (now && stage(*now) == stage(bug)) text = std::move(less);
      else at += std::max<size_t>(piece / 2, 1);
    }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments a = parse_arguments(argc, argv);
  std::vector<std::string> seeds;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests"))
    if (entry.path().extension() == ".tir" && entry.path().string().find("/bench/") == std::string::npos)
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // the same order on every machine
  for (const auto& p : paths) seeds.push_back(read(p));
  if (seeds.empty()) usage("there is no .tir file under tests; run it from the repository's root");
  const auto mutant = [&](uint64_t seed) {
    fuzz::Random random(seed);
    return parser::mutate(random.pick(seeds), seeds, random);
  };
  if (a.print) {
    for (int64_t i = 0; i < a.count; ++i) std::cout << mutant(a.seed + static_cast<uint64_t>(i)) << "\n";
    return 0;
  }

  int64_t failed = 0;
  const auto report = [&](const std::string& what, const std::string& text, const std::string& bug) {
    ++failed;
    std::cout << "FAILED: " << what << ": " << bug << "\nshrunk:\n" << shrink(text, bug, 30) << "\n";
  };
  int64_t tried = 0;
  if (!a.files.empty()) {
    for (const std::string& f : a.files) {
      ++tried;
      const std::string text = read(f);
      if (const auto bug = try_one(text)) report(f, text, *bug);
    }
  } else {
    for (size_t i = 0; i < seeds.size(); ++i, ++tried)
      if (const auto bug = try_one(seeds[i])) report(paths[i].string(), seeds[i], *bug);
    const auto start = std::chrono::steady_clock::now();
    std::fill(std::begin(shared()->reached), std::end(shared()->reached), 0);
    int64_t at = 0;
    while (failed < 10) {
      const auto bug = watch(
          [&](int64_t i) -> std::optional<std::string> {
            if (i >= a.count ||
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > a.seconds)
              return std::nullopt;
            return mutant(a.seed + static_cast<uint64_t>(i));
          },
          at);
      at = shared()->done;
      if (!bug) break;
      const uint64_t seed = a.seed + static_cast<uint64_t>(at++);
      report("--seed " + std::to_string(seed) + " --count 1", mutant(seed), *bug);
    }
    tried += at;
    const int64_t* r = shared()->reached;
    std::cout << at << " mutants: " << r[0] << " refused by the parser, " << r[1] << " by the verifier, "
              << r[2] + r[3] + r[4] << " good kernels, of which " << r[3] + r[4] << " ran and " << r[4]
              << " compiled\n";
    if (a.count > 1000 && r[4] < at / 100) {  // the mutations no longer reach what they should
      std::cout << "FAILED: fewer than one mutant in 100 compiled\n";
      ++failed;
    }
  }
  std::cout << tried - failed << " passed, " << failed << " failed\n";
  return failed ? 1 : 0;
}
#endif
