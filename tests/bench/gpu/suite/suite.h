// The kernels by which generated machine code is held against hand-written GLSL, each as a user of Pallas would write
// it, with the shaders of shaders/gpu that do the same work. They are kept as kernels/NAME.tir and suite.tsv beside
// this folder, with work.tsv; suite_test.cpp writes them, and checks every shader at sizes that a CPU does quickly. It
// measures nothing.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::gpu_suite {

/// A shader of shaders/gpu with its macros, for a class of devices: "any"; "matrix", those with KHR cooperative
/// matrices; "dot4", those with packed 8-bit dot products in hardware; "lavapipe".
struct Shader {
  std::string file, defines;
  std::string device_class = "any";
  int64_t groups = 1;
  int32_t local = 256;
  std::string inner = "-";  // what one pass of the innermost loop does in a workgroup: "fma 16384"
  std::string note = "";
};

struct Case {
  std::string name;
  ir::Kernel kernel;
  std::vector<Shader> shaders;
  // of the greatest difference between two ways to compute it, relative to the greatest magnitude of the output
  double tolerance = 1e-6;
  // floating-point (or integer) operations that the work takes, where these are what bounds it; else 0
  double flops = 0;
};

/// full: what is measured. small: the same makers at sizes for the interpreter, with tails and edges.
enum class Sizes { full, small };

void streams(std::vector<Case>& cases, Sizes sizes);    // axpy, transposes
void rows(std::vector<Case>& cases, Sizes sizes);       // softmax, layer norm, sums, cumsum
void products(std::vector<Case>& cases, Sizes sizes);   // matrix products, with a vector too
void attention(std::vector<Case>& cases, Sizes sizes);  // flash attention
void pictures(std::vector<Case>& cases, Sizes sizes);   // convolutions, bilateral filter, stencils
void particles(std::vector<Case>& cases, Sizes sizes);  // histogram, n-body
std::vector<Case> suite(Sizes sizes);

/// " -DNAME=VALUE" for each, without the first space.
std::string macros(const std::vector<std::pair<std::string, int64_t>>& values);
/// "f16"
std::string short_name(DType t);
/// The number of the dtype in shaders/gpu: 0 f32, 1 f16, 2 bf16, 3 i8.
int64_t kind(DType t);

}  // namespace tessera::gpu_suite
