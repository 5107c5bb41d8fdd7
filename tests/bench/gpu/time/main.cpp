// bench_gpu_time --folder FOLDER [options]: times the kernels of a suite folder (suite_files.h) on this machine's GPU,
// ours as SPIR-V and as PTX and the hand-written shaders in turns, and compares their results. tests/bench/gpu/run
// --time and README.md there say how it is started. It measures in a process of its own and starts another where that
// dies or hangs: each such kernel is one line. Nothing is judged. Read next: measure.h.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "engine/base/error.h"
#include "tests/bench/gpu/time/measure.h"

namespace tessera::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr const char* kUsage =
    "usage: bench_gpu_time --folder FOLDER [--kernels PARTS] [--out FOLDER] [--seconds-per-kernel S] [--limit S]\n"
    "         [--kernel-limit S] [--jobs N] [--rotate-mb N] [--batch-ms MS] [--samples N] [--no-cuda] [--few-shaders]\n"
    "         [--cuda-library FILE] [--dump FOLDER]\n";

struct Options {
  MeasureOptions measure;
  std::string folder, out;
  std::vector<std::string> parts;
  double limit = 150, kernel_limit = 25;
  int jobs = 8;
  bool worker = false;
  size_t first = 0;  // worker: where to begin
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= argc) throw SpecError("bench_gpu_time: " + a + " takes a value");
      return argv[++i];
    };
    if (a == "--folder") o.folder = next();
    else if (a == "--out") o.out = next();
    else if (a == "--kernels") {
      for (const std::string& part : split(next(), ','))
        if (!part.empty()) o.parts.push_back(part);
    } else if (a == "--seconds-per-kernel") o.measure.time.seconds = std::stod(next());
    else if (a == "--limit") o.limit = std::stod(next());
    else if (a == "--kernel-limit") o.kernel_limit = std::stod(next());
    else if (a == "--jobs") o.jobs = std::stoi(next());
    else if (a == "--rotate-mb") o.measure.rotate_bytes = std::stoll(next()) << 20;
    else if (a == "--batch-ms") o.measure.time.batch_seconds = 1e-3 * std::stod(next());
    else if (a == "--samples") o.measure.time.min_samples = o.measure.time.max_samples = std::stoi(next());
    else if (a == "--no-cuda") o.measure.cuda = false;
    else if (a == "--few-shaders") o.measure.all_shaders = false;
    else if (a == "--cuda-library") o.measure.cuda_library = next();
    else if (a == "--dump") o.measure.dump = next();
    else if (a == "--worker") o.worker = true;
    else if (a == "--first") o.first = std::stoul(next());
    else throw SpecError("bench_gpu_time: unknown option " + a + "\n" + kUsage);
  }
  if (o.folder.empty()) throw SpecError(kUsage);
  return o;
}

void say(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Measures the kernels from the first on, a line of JSON for each step.
int work(const Options& o, std::vector<SuiteEntry> entries) {
  entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(std::min(o.first, entries.size())));
  Machine machine(o.measure);
  say({{"machine", machine.describe()}});
  Loader loader(machine, entries, o.jobs);
  if (o.first == 0) say({{"ceilings", machine.ceilings()}});
  for (size_t i = 0; i < entries.size(); ++i) {
    say({{"begin", o.first + i}});
    json result;
    try {
      const Ready ready = loader.take(i);
      result = machine.measure(entries[i], ready);
    } catch (const std::exception& e) {
      result = {{"kernel", entries[i].name}, {"error", e.what()}};
    }
    say({{"result", result}});
    if (machine.broken()) std::_Exit(0);  // the next one takes a new process
  }
  std::fflush(stdout);
  std::_Exit(0);  // drivers' own ends cost time, and may crash
}

std::string milliseconds(const json& line) {
  if (line.is_null()) return "-";
  if (line.contains("error") || !line.contains("median")) return "error";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g%s", 1e3 * line["median"].get<double>(), line.value("wrong", false) ? "!" : "");
  return text;
}

/// The fastest of a result's shaders: of the class `any`, or of all others; null if there is none.
json fastest(const json& result, bool any) {
  json best;
  for (const json& line : result.value("lines", json::array())) {
    if (line["who"] != "shader" || (line["class"] == "any") != any) continue;
    if (best.is_null() || !best.contains("median") ||
        (line.contains("median") && line["median"].get<double>() < best["median"].get<double>()))
      best = line;
  }
  return best;
}
json line_of(const json& result, const char* who) {
  for (const json& line : result.value("lines", json::array()))
    if (line["who"] == who) return line;
  return {};
}

void print_head() {
  std::printf("%-36s %10s %10s %10s %10s | %6s %6s | %8s %8s  %s\n", "kernel, ms", "ours", "ptx", "glsl", "glsl any",
              "o/glsl", "p/glsl", "ours", "best", "of");
}

void print_row(const json& r) {
  const std::string name = r.value("kernel", "?");
  if (r.contains("error")) {
    std::printf("%-36s FAILED: %s\n", name.c_str(), r["error"].get<std::string>().c_str());
    std::fflush(stdout);
    return;
  }
  json special = fastest(r, false), any = fastest(r, true);
  const json ours = line_of(r, "ours"), ptx = line_of(r, "ptx");
  const json glsl = special.is_null() ? any : special;
  const auto ratio = [&](const json& a, const json& b) {
    char text[32] = "-";
    if (!a.is_null() && !b.is_null() && a.contains("median") && b.contains("median"))
      std::snprintf(text, sizeof text, "%.2f", a["median"].get<double>() / b["median"].get<double>());
    return std::string(text);
  };
  const double bytes = r["bytes"].get<double>(), flops = r["flops"].get<double>();
  const bool by_flops = flops > 16 * bytes;
  double best = 0;
  for (const json* j : std::initializer_list<const json*>{&ours, &ptx, &glsl, &any})
    if (!j->is_null() && j->contains("median") && (best == 0 || (*j)["median"].get<double>() < best))
      best = (*j)["median"].get<double>();
  const auto rate = [&](double seconds) {
    char text[32] = "-";
    if (seconds > 0)
      std::snprintf(text, sizeof text, "%.1f", by_flops ? flops / seconds * 1e-12 : bytes / seconds * 1e-9);
    return std::string(text);
  };
  std::printf("%-36s %10s %10s %10s %10s | %6s %6s | %8s %8s  %s%s%s\n", name.c_str(), milliseconds(ours).c_str(),
              milliseconds(ptx).c_str(), milliseconds(glsl).c_str(), special.is_null() ? "" : milliseconds(any).c_str(),
              ratio(ours, glsl).c_str(), ratio(ptx, glsl).c_str(),
              rate(ours.is_null() ? 0 : ours.value("median", 0.0)).c_str(), rate(best).c_str(),
              by_flops ? "TFLOP/s" : "GB/s", special.is_null() ? "" : ", by ",
              special.is_null() ? "" : special["class"].get<std::string>().c_str());
  for (const json& line : r["lines"]) {
    const std::string who = line["who"] == "shader"
                                ? line["shader"].get<std::string>() + " " + line["defines"].get<std::string>()
                                : line["who"].get<std::string>();
    if (line.contains("error"))
      std::printf("    ERROR in %s: %s\n", who.c_str(), line["error"].get<std::string>().c_str());
    if (line.value("wrong", false))
      std::printf("    WRONG RESULT by %s: %s from %s, above %g\n", who.c_str(), line["difference"].dump().c_str(),
                  r["reference"].get<std::string>().c_str(), r["tolerance"].get<double>());
  }
  std::fflush(stdout);
}

/// A child that measures, and the lines that it says.
class Worker {
 public:
  Worker(int argc, char** argv, size_t first, int jobs) {
    int ends[2];
    if (pipe(ends) != 0) throw SpecError("bench_gpu_time: pipe() failed");
    child_ = fork();
    if (child_ < 0) throw SpecError("bench_gpu_time: fork() failed");
    if (child_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]), close(ends[1]);
      std::vector<std::string> words(argv, argv + argc);
      for (const std::string& s : {std::string("--worker"), std::string("--first"), std::to_string(first),
                                   std::string("--jobs"), std::to_string(jobs)})
        words.push_back(s);
      std::vector<char*> pointers;
      for (std::string& s : words) pointers.push_back(s.data());
      pointers.push_back(nullptr);
      execv("/proc/self/exe", pointers.data());
      std::_Exit(127);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    close(from_);
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  enum class Got : uint8_t { line, end, nothing };
  Got next(std::string& line, double seconds) {
    const auto start = Clock::now();
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Got::line;
      }
      const double left = seconds - seconds_since(start);
      pollfd p{from_, POLLIN, 0};
      if (left <= 0 || poll(&p, 1, static_cast<int>(left * 1000) + 1) <= 0) return Got::nothing;
      char bytes[65536];
      const ssize_t n = read(from_, bytes, sizeof bytes);
      if (n <= 0) return Got::end;
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }
  std::string how_it_ended() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    if (WIFSIGNALED(status)) return std::string("died by signal ") + std::to_string(WTERMSIG(status));
    return "ended with status " + std::to_string(WEXITSTATUS(status));
  }

 private:
  pid_t child_ = 0;
  int from_ = -1;
  std::string buffer_;
};

/// What was measured; kept on disk after each kernel, should anything end the run.
struct Report {
  json all{{"machine", nullptr}, {"ceilings", nullptr}, {"kernels", json::array()}};
  std::string file;
  void add(const json& result) {
    all["kernels"].push_back(result);
    print_row(result);
    write();
  }
  void write() const {
    if (!file.empty()) std::ofstream(file) << all.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  }
};

void take_line(const json& line, Report& report) {
  if (line.contains("machine") && report.all["machine"].is_null()) {
    report.all["machine"] = line["machine"];
    std::printf("%s\n", line["machine"].dump().c_str());
  }
  if (!line.contains("ceilings")) return;
  report.all["ceilings"] = line["ceilings"];
  for (const auto& [name, c] : line["ceilings"].items()) {
    if (c.is_string()) std::printf("%s: %s\n", name.c_str(), c.get<std::string>().c_str());
    else if (c.contains("gb_per_s"))
      std::printf("%s: %.0f GB/s, both ways counted\n", name.c_str(), c["gb_per_s"].get<double>());
    else std::printf("%s: %.2f us a dispatch\n", name.c_str(), 1e6 * c["median"].get<double>());
  }
  print_head();
  std::fflush(stdout);
}

int run(int argc, char** argv, const Options& o, const std::vector<SuiteEntry>& entries) {
  if (entries.empty()) throw SpecError("bench_gpu_time: no kernel's name contains what --kernels says");
  Report report;
  if (!o.measure.dump.empty()) std::filesystem::create_directories(o.measure.dump);
  if (!o.out.empty()) {
    std::filesystem::create_directories(o.out);
    report.file = (std::filesystem::path(o.out) / "results.json").string();
  }
  const auto start = Clock::now();
  size_t current = 0;
  int jobs = o.jobs;
  bool late = false;
  while (current < entries.size() && !late) {
    Worker worker(argc, argv, current, jobs);
    bool begun = false, any = false;  // a kernel; one is done
    for (bool alive = true; alive && current < entries.size();) {
      const double left = o.limit - seconds_since(start);
      std::string text;
      const auto got = worker.next(text, std::min(left, o.kernel_limit));
      if (got == Worker::Got::line) {
        const json line = json::parse(text, nullptr, false);
        if (line.is_discarded()) continue;  // a driver's own words
        take_line(line, report);
        if (line.contains("begin")) begun = true;
        if (line.contains("result")) {
          report.add(line["result"]);
          ++current;
          begun = false;
          any = true;
        }
        continue;
      }
      alive = false;
      const std::string name = entries[current].name;
      if (got == Worker::Got::nothing && left <= o.kernel_limit) {
        late = true;
      } else if (got == Worker::Got::nothing) {
        report.add(
            {{"kernel", name}, {"error", "stopped after " + std::to_string(static_cast<int>(o.kernel_limit)) + " s"}});
        ++current;
      } else if (begun || !any) {
        const std::string end = worker.how_it_ended();
        std::printf("%s: the process %s%s\n", name.c_str(), end.c_str(),
                    jobs > 0 ? "; again, compiling one at a time" : "");
        if (jobs == 0 || !begun) {
          report.add({{"kernel", name}, {"error", "the process " + end}});
          ++current;
        }
        jobs = 0;
      }
    }
  }
  for (; current < entries.size(); ++current)
    report.add(
        {{"kernel", entries[current].name}, {"error", "not reached: the limit is " + std::to_string(o.limit) + " s"}});
  report.all["seconds"] = seconds_since(start);
  report.write();
  std::printf("%.0f s; a ! marks a wrong result. Times are medians.\n", seconds_since(start));
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;
  try {
    const Options o = parse(argc, argv);
    const std::vector<SuiteEntry> entries = read_suite(o.folder, o.parts);
    return o.worker ? work(o, entries) : run(argc, argv, o, entries);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
