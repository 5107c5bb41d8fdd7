// bench_interpreter [--repeats N] [--jax PYTHON SCRIPT] FILE.tir...: times kernels on the interpreter, in turns with
// JAX's interpret=True if a Python that has it is given (SCRIPT is pallas.py). Sums of the answers are compared; the
// times are not judged.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/interpreter/interpreter.h"
#include "engine/interpreter/multiply.h"
#include "engine/ir/text.h"

namespace tessera::bench {
namespace {

struct Answer {
  double ms = 0, sum = 0;
};

struct Times {
  std::vector<double> ms;
  double median() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void print() const {
    std::printf("  %9.2f %9.2f %9.2f", *std::min_element(ms.begin(), ms.end()), median(),
                *std::max_element(ms.begin(), ms.end()));
  }
};

// The script, which is told the name of a kernel and answers with its time and sum.
class Jax {
 public:
  Jax(const std::string& python, const std::string& script) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) throw Error("bench: no pipe");
    process_ = fork();
    if (process_ == 0) {
      dup2(down[0], STDIN_FILENO);
      dup2(up[1], STDOUT_FILENO);
      for (int end : {down[0], down[1], up[0], up[1]}) close(end);
      execlp(python.c_str(), python.c_str(), script.c_str(), nullptr);
      _exit(127);
    }
    close(down[0]);
    close(up[1]);
    to_ = fdopen(down[1], "w");
    from_ = fdopen(up[0], "r");
    version_ = line();
  }
  Jax(const Jax&) = delete;
  Jax& operator=(const Jax&) = delete;
  ~Jax() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(process_, nullptr, 0);
  }
  const std::string& version() const { return version_; }
  Answer run(const std::string& kernel) {
    std::fprintf(to_, "%s\n", kernel.c_str());
    std::fflush(to_);
    Answer a;
    if (std::sscanf(line().c_str(), "%lf %lf", &a.ms, &a.sum) != 2)
      throw Error("bench: the Python script gave no time for " + kernel);
    return a;
  }

 private:
  std::string line() {
    char text[256];
    if (!std::fgets(text, sizeof text, from_)) throw Error("bench: the Python script ended; its message is above");
    std::string s = text;
    while (!s.empty() && s.back() == '\n') s.pop_back();
    return s;
  }
  pid_t process_ = 0;
  std::FILE *to_ = nullptr, *from_ = nullptr;
  std::string version_;
};

ir::Kernel read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("bench: cannot read " + path);
  return ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}, path);
}

std::vector<Array> ramps(const ir::Kernel& k) {
  std::vector<Array> inputs;
  for (int i = 0; i < k.num_inputs; ++i) {
    Array a(bind_shape(k, i, {}), k.blocks[static_cast<size_t>(i)].dtype);
    const auto x = a.data<float>();
    for (size_t j = 0; j < x.size(); ++j)
      x[j] = static_cast<float>((static_cast<double>(j * 7919 % 2001) - 1000) / 1000);
    inputs.push_back(std::move(a));
  }
  return inputs;
}

Answer run(const ir::Kernel& k, const std::vector<Array>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  const Array out = interpret(k, inputs).at(0);
  Answer a{std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count()};
  for (int64_t i = 0; i < out.size(); ++i) a.sum += out.at(i) * static_cast<double>(i * 31 % 97);
  return a;
}

void compare(const std::string& path, int repeats, Jax* jax) {
  const ir::Kernel k = read(path);
  const std::vector<Array> inputs = ramps(k);
  Times ours, theirs;
  Answer here = run(k, inputs), there;
  for (int r = 0; r < repeats; ++r) {
    ours.ms.push_back(run(k, inputs).ms);
    if (!jax) continue;
    there = jax->run(k.name);
    theirs.ms.push_back(there.ms);
  }
  std::printf("%-18s", k.name.c_str());
  ours.print();
  if (jax) {
    theirs.print();
    std::printf("  %7.1f", theirs.median() / ours.median());
    if (!(std::fabs(here.sum - there.sum) <= 1e-4 * std::fabs(there.sum)))
      std::printf("  the answers differ: sums %.9g and %.9g", here.sum, there.sum);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  int repeats = 15;
  std::vector<std::string> files;
  std::unique_ptr<tessera::bench::Jax> jax;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--repeats" && i + 1 < argc) repeats = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--jax" && i + 2 < argc)
      jax = std::make_unique<tessera::bench::Jax>(argv[i + 1], argv[i + 2]), i += 2;
    else files.push_back(arg);
  }
  std::printf("products: %s\n", std::string(tessera::interpreter::multiply_codes<float>().front().name).c_str());
  std::printf("%-18s  %9s %9s %9s", "interpreter", "min ms", "median", "max");
  if (jax) std::printf("  %9s %9s %9s  %7s", (jax->version() + " ms").c_str(), "median", "max", "ratio");
  std::printf("\n");
  for (const std::string& file : files) tessera::bench::compare(file, repeats, jax.get());
  if (jax)
    std::printf(
        "ratio: the median time of JAX's interpret=True on the CPU over the interpreter's; above 1 the interpreter is "
        "faster\n");
  return 0;
} catch (const tessera::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
