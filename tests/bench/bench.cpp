// bench [--repeats N] FILE.tir...: times each kernel on the device against the hand-written shaders for it, in turns in
// one run, and the compiler from text to SPIR-V. Arrays stay on the device; a time is from the call to the device being
// idle. It judges nothing.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "runtime/launch.h"
#include "tests/bench/baselines.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
/// Processor time of this thread: what compiling takes when nothing else wants the machine.
double thread_ms() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

struct Times {
  std::vector<double> ms;
  double min() const { return *std::min_element(ms.begin(), ms.end()); }
  double max() const { return *std::max_element(ms.begin(), ms.end()); }
  double median() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SpecError("bench: cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Array random_array(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  Array a(shape, dtype);
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = std::uniform_real_distribution<double>(-1, 1)(random);
    uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(100 * x)) &
                    (size_bytes(dtype) == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size_bytes(dtype))) - 1);
    if (dtype == DType::boolean) bits = x > 0;
    else if (dtype == DType::f16) bits = to_f16_bits(static_cast<float>(x));
    else if (dtype == DType::bf16) bits = to_bf16_bits(static_cast<float>(x));
    else if (dtype == DType::f32) bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    else if (dtype == DType::f64) bits = std::bit_cast<uint64_t>(x);
    a.set_element_bits(i, bits);
  }
  return a;
}

Shape shape_of(const std::vector<Extent>& extents, const DimValues& dims) {
  Shape shape;
  for (const Extent& e : extents) shape.push_back(e.eval(dims));
  return shape;
}

struct Contender {
  std::string name;
  Program program;
  double traffic = 1;
  bool same_answer = true;
  std::vector<DeviceArray> inputs;
  Times times;
};

/// The root mean square of the differences between two outputs, relative to that of the first: a picture of chaos may
/// differ in a few points.
double difference(const Array& a, const Array& b) {
  double differences = 0, magnitudes = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    differences += (a.at(i) - b.at(i)) * (a.at(i) - b.at(i));
    magnitudes += a.at(i) * a.at(i);
  }
  return magnitudes > 0 ? std::sqrt(differences / magnitudes) : std::sqrt(differences);
}

void run(const Device& device, const std::string& path, int repeats) {
  const std::string text = read(path);
  const ir::Kernel kernel = ir::parse(text, path);
  Times compiling;
  Program program;
  for (int i = 0; i < 7; ++i) {
    const double start = thread_ms();
    program = compile(ir::parse(text, path), device.target());
    compiling.ms.push_back(thread_ms() - start);
  }

  DimValues dims;  // sizes that arrive with the call: an odd one, so that nothing divides evenly
  for (const std::string& name : kernel.dim_names()) dims[name] = 1021;
  std::vector<DeviceArray> inputs;
  double bytes = 0;
  for (size_t i = 0; i < kernel.blocks.size(); ++i) {
    const ir::BlockMapping& b = kernel.blocks[i];
    const Shape shape = shape_of(b.array_shape, dims);
    bytes += static_cast<double>(num_elements(shape)) * size_bytes(b.dtype);
    if (!kernel.is_output(static_cast<int>(i)))
      inputs.emplace_back(device, random_array(shape, b.dtype, static_cast<uint32_t>(i) + 1));
  }

  std::vector<Contender> contenders;
  contenders.push_back({kernel.name, program, 1, true, inputs, {}});
  for (Baseline& b : baselines(kernel, device.target(), dims)) {
    Contender c{b.shader, std::move(b.program), b.traffic, b.same_answer, {}, {}};
    for (int i : b.inputs) c.inputs.push_back(inputs.at(static_cast<size_t>(i)));
    contenders.push_back(std::move(c));
  }
  std::vector<Array> first;
  for (Contender& c : contenders) {  // warm: pipelines made, answers compared
    const std::vector<DeviceArray> outputs = launch(device, c.program, c.inputs, dims);
    if (!c.same_answer) continue;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (&c == &contenders[0]) first.push_back(outputs[i].download());
      else if (const double d = difference(first.at(i), outputs[i].download()); !(d < 1e-2))
        std::printf("  %s differs from %s: root mean square %g of the values'\n", c.name.c_str(), kernel.name.c_str(),
                    d);
    }
  }
  device.wait();
  for (int r = 0; r < repeats; ++r) {
    for (Contender& c : contenders) {
      // known well enough, and it would take most of the run
      if (r >= 3 && c.times.median() > 10 * contenders[0].times.median()) continue;
      const auto start = Clock::now();
      const std::vector<DeviceArray> outputs = launch(device, c.program, c.inputs, dims);
      device.wait();
      c.times.ms.push_back(ms_since(start));
    }
  }

  const double work = flops(kernel, dims);
  const double ours = contenders[0].times.median();
  for (const Contender& c : contenders) {
    const bool is_ours = &c == &contenders[0];
    const double t = c.times.median() * c.traffic;
    std::printf("%-24s %9.3f %9.3f %9.3f  %6.1f %-8s", (is_ours ? c.name : "  " + c.name).c_str(),
                c.times.min() * c.traffic, t, c.times.max() * c.traffic, work > 0 ? work / t / 1e6 : bytes / t / 1e6,
                work > 0 ? "GFLOP/s" : "GB/s");
    if (is_ours)
      std::printf("  compiled in %.2f ms (%.2f to %.2f)\n", compiling.median(), compiling.min(), compiling.max());
    else std::printf("  ratio %.2f\n", ours / t);
  }
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  int repeats = 15;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--repeats" && i + 1 < argc) repeats = std::max(1, std::atoi(argv[++i]));
    else files.push_back(arg);
  }
  const tessera::Device device;
  std::printf("%s, %s\n", device.info().name.c_str(), device.info().driver.c_str());
  std::printf("%-24s %9s %9s %9s\n", "kernel, then shaders", "min ms", "median", "max");
  int failed = 0;
  for (const std::string& file : files) {
    try {
      tessera::bench::run(device, file, repeats);
    } catch (const tessera::Error& e) {
      std::printf("%s: %s\n", file.c_str(), e.what());
      ++failed;
    }
  }
  std::printf("ratio: the kernel's median time over the shader's; below 1 the kernel is faster\n");
  return failed > 0;
} catch (const tessera::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
