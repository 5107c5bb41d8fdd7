// The hand-written shaders that kernels are held against, wrapped as Programs: which shaders do the work of which
// kernel, by its name. Read next: bench.cpp.
#pragma once
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/extent.h"
#include "engine/ir/kernel.h"

namespace tessera::bench {

struct Baseline {
  std::string shader;  // its name in shaders/
  Program program;
  // the shader's time is multiplied by this: a copy stands for a kernel that moves `traffic` times its bytes
  double traffic = 1;
  bool same_answer = true;       // its outputs are the kernel's outputs
  std::vector<int> inputs = {};  // which of the kernel's inputs it takes, in order
};

/// Shaders that this target can run for the kernel at these sizes; none where there is no hand-written one.
std::vector<Baseline> baselines(const ir::Kernel& kernel, const Target& target, const DimValues& dims);

/// Floating-point operations of one call where they are what bounds it (products), else 0.
double flops(const ir::Kernel& kernel, const DimValues& dims);

}  // namespace tessera::bench
