// The suite as a folder that travels without the sources: kernels/NAME.tir, suite.tsv, work.tsv and
// shaders/KERNEL.N.spv, the shader of the kernel's Nth row (tests/bench/gpu/prepare.py writes one); and arrays to try
// kernels on. Nothing here touches a GPU. Read next: vulkan_timer.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "engine/base/array.h"
#include "engine/ir/kernel.h"

namespace tessera::bench {

struct ShaderRow {
  std::string shader, defines, device_class, note, module;  // module: the path of its SPIR-V
  int64_t groups = 1;
  int32_t local = 1;
  /// The number of a macro, as FM's of -DFM=16; or `otherwise`.
  int macro(const std::string& name, int otherwise) const;
  std::string title() const { return shader + " " + defines; }
};

struct SuiteEntry {
  std::string name, kernel_path;
  std::vector<ShaderRow> shaders;
  double tolerance = 1e-5, flops = 0;
};

std::string read_file(const std::string& path);
/// Those whose name contains one of the parts (all, without parts), in the order of names.
std::vector<SuiteEntry> read_suite(const std::string& folder, const std::vector<std::string>& parts);
std::vector<std::string> split(const std::string& text, char at);

/// How special a row's shader is, where the device can run it (0 any, 1 wave64, 2 dot4, 3 matrix); else -1. As
/// measure.py.
int rank_of(const ShaderRow& row, const Target& target);
extern const char* const kClasses[4];

/// From -1 to 1; integers of 8 bits.
Array random_array(const Shape& shape, DType dtype, uint64_t seed);
/// All its bytes 0xFF: no number, or -1.
Array poisoned(const Shape& shape, DType dtype);
/// The greatest difference, in units of b's greatest magnitude; infinite where one of the two is no number.
double difference(const Array& a, const Array& b);

/// What a kernel reads and writes at least, each array once.
struct Traffic {
  int64_t inputs = 0, outputs = 0;
  int64_t all() const { return inputs + outputs; }
};
Traffic traffic_of(const ir::Kernel& kernel);

}  // namespace tessera::bench
