// The files beside this folder are what the suite's makers give (TESSERA_BLESS=1 rewrites them); and at small sizes
// every kernel is right on the device, and every shader computes what its kernel does.
#include "tests/bench/gpu/suite/suite.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "codegen/compile.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/launch.h"

namespace suite_test {
namespace {
using namespace tessera;
using gpu_suite::Case, gpu_suite::Shader, gpu_suite::Sizes;
namespace fs = std::filesystem;

const fs::path kFolder = "tests/bench/gpu", kShaders = "shaders/gpu";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string table(const std::vector<Case>& cases) {
  std::ostringstream out;
  out << "kernel\tshader\tdefines\tclass\tgroups\tlocal\tinner\tnote\n";
  for (const Case& c : cases)
    for (const Shader& s : c.shaders)
      out << c.name << '\t' << s.file << '\t' << s.defines << '\t' << s.device_class << '\t' << s.groups << '\t'
          << s.local << '\t' << s.inner << '\t' << s.note << '\n';
  return out.str();
}

/// Of each kernel: the tolerance, and the operations that it takes at least (0: bytes bound it).
std::string work_table(const std::vector<Case>& cases) {
  std::ostringstream out;
  out << "kernel\ttolerance\tflops\n";
  for (const Case& c : cases) out << c.name << '\t' << c.tolerance << '\t' << std::llround(c.flops) << '\n';
  return out.str();
}

/// From -1 to 1; integers of all their values, or of 8 bits where they are wider.
Array random_array(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  Array a(shape, dtype);
  for (int64_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<float>(std::uniform_real_distribution<double>(-1, 1)(random));
    uint64_t bits = random() & 255u;
    if (dtype == DType::f16) bits = to_f16_bits(x);
    else if (dtype == DType::bf16) bits = to_bf16_bits(x);
    else if (dtype == DType::f32) bits = std::bit_cast<uint32_t>(x);
    a.set_element_bits(i, bits);
  }
  return a;
}

/// The words of a shader, by whichever glslang there is; none, with its messages on stdout, where it has an error.
const std::vector<uint32_t>& words_of(const Shader& s) {
  static std::map<std::string, std::vector<uint32_t>> known;
  std::vector<uint32_t>& words = known[s.file + " " + s.defines];
  if (!words.empty()) return words;
  char name[] = "/tmp/gpu_suite_XXXXXX";
  const int file = mkstemp(name);
  REQUIRE(file >= 0);
  const std::string command =
      "$(command -v glslangValidator || command -v glslang) -V --target-env vulkan1.2 --quiet " + s.defines + " -o " +
      name + " " + (kShaders / (s.file + ".comp")).string();
  const int code = std::system(command.c_str());
  const std::string bytes = read(name);
  std::remove(name);
  REQUIRE_MESSAGE(code == 0, command);
  words.resize(bytes.size() / 4);
  std::copy_n(bytes.data(), words.size() * 4, reinterpret_cast<char*>(words.data()));
  return words;
}

/// The greatest difference, in units of b's greatest magnitude; infinite where one is no number.
double difference(const Array& a, const Array& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, magnitude = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(a.at(i) - b.at(i));
    if (!(d <= most)) most = d < HUGE_VAL ? d : HUGE_VAL;
    magnitude = std::max(magnitude, std::fabs(b.at(i)));
  }
  return magnitude > 0 ? most / magnitude : most;
}

std::vector<Array> run(const Device& device, const Program& program, const std::vector<Array>& inputs) {
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) arguments.emplace_back(device, a);
  std::vector<Array> outputs;
  for (const DeviceArray& a : launch(device, program, arguments)) outputs.push_back(a.download());
  return outputs;
}

void check(const Case& c, const std::string& by, const std::vector<Array>& got, const std::vector<Array>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = difference(got[i], wanted[i]);
    CHECK_MESSAGE(d <= c.tolerance,
                  c.name << ", output " << i << " by " << by << ": " << d << " above " << c.tolerance);
  }
}

/// Runs each small case's shaders of the classes; with `kernels`, the compiled kernels too.
void check_all(const std::set<std::string>& classes, bool kernels) {
  const Device device;
  for (const Case& c : gpu_suite::suite(Sizes::small)) {
    INFO(c.name);
    const auto chosen = [&](const Shader& s) { return classes.count(s.device_class) > 0; };
    if (!kernels && std::none_of(c.shaders.begin(), c.shaders.end(), chosen)) continue;
    std::vector<Array> inputs;
    for (int i = 0; i < c.kernel.num_inputs; ++i) {
      const ir::BlockMapping& b = c.kernel.blocks[static_cast<size_t>(i)];
      inputs.push_back(random_array(bind_shape(c.kernel, i, {}), b.dtype, static_cast<uint32_t>(i) + 1));
    }
    const std::vector<Array> wanted = interpret(c.kernel, inputs);
    Program program = compile(c.kernel, device.target());
    if (kernels) check(c, "the compiled kernel", run(device, program, inputs), wanted);
    program.scratch_bytes = program.report_bytes = program.shared_bytes = 0;
    program.max_workgroups = program.required_subgroup_size = 0;
    program.units_extent = program.steps_extent = -1;
    program.extents.clear(), program.extent_is_64.clear(), program.loops.clear();
    program.open_ended = program.indirect_table = false;
    for (const Shader& s : c.shaders) {
      if (!chosen(s)) continue;
      program.spirv = words_of(s);
      program.num_units = s.groups;
      program.workgroup_size = s.local;
      check(c, s.file + " " + s.defines, run(device, program, inputs), wanted);
    }
  }
}

}  // namespace

TEST_CASE("suite.tsv and the kernels beside it are what the suite's makers give") {
  const std::vector<Case> cases = gpu_suite::suite(Sizes::full);
  std::map<fs::path, std::string> files = {{kFolder / "suite.tsv", table(cases)},
                                           {kFolder / "work.tsv", work_table(cases)}};
  for (const Case& c : cases) files[kFolder / "kernels" / (c.name + ".tir")] = ir::print(c.kernel);
  REQUIRE(files.size() == cases.size() + 2);
  const char* bless = std::getenv("TESSERA_BLESS");
  const bool rewrite = bless && std::string(bless) == "1";
  for (const auto& [path, text] : files) {
    if (rewrite) std::ofstream(path, std::ios::binary) << text;
#ifndef __clang__  // C++ leaves the order of operands open, and so the order of traced ops; g++'s is stored
    CHECK_MESSAGE(text == read(path), path.string());
#endif
  }
  for (const auto& entry : fs::directory_iterator(kFolder / "kernels")) {
    const bool known = files.count(entry.path()) > 0;
    if (rewrite && !known) fs::remove(entry.path());
    else CHECK_MESSAGE(known, entry.path().string());
  }
}

TEST_CASE("every kernel, and every shader that any device can run, computes what the interpreter does") {
  check_all({"any", "dot4", "lavapipe"}, true);
}

// Debian 12's lavapipe has no matrices: tests/bench/gpu/matrices runs this in a root of Debian 13.
TEST_CASE("every shader with cooperative matrices computes what the interpreter does" * doctest::skip()) {
  check_all({"matrix"}, false);
}

}  // namespace suite_test
