// make_bundle: compiles kernels for several targets into a BundleFile, and determines what a program's code needs of a
// device. Read next: bundle.h; runtime/cli/bundle.cpp, which reads the kernels' files and writes the bundle's.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "codegen/program/bundle.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// Of the code, and of what its launch relies on. `target`: for which it was compiled.
Needs needs_of(const Program& program, const Target& target);

struct BundleSource {
  ir::Kernel kernel;
  std::vector<std::string> arguments;  // names of its arrays, inputs then outputs
};

struct MadeBundle {
  BundleFile file;
  std::vector<std::string> left_out;  // what compile() said of kernels that a target cannot run while another one can
};

/// Deterministic, on however many threads (0: one per core). `progress`, if given, hears of each kernel that is done,
/// one call at a time, on any thread. A kernel has no variant for a target that cannot run it; if no target can, throws
/// what compile() does for the last one. Of several that fail the first in the order given is the one thrown. `strict`:
/// as CompileOptions. `choices`, if given, says what a tuning file has of a kernel for a target.
MadeBundle make_bundle(std::span<const BundleSource> sources, std::span<const Target> targets, int threads = 0,
                       const Function<void(size_t done, const std::string& kernel)>& progress = {}, bool strict = false,
                       const Function<ScheduleChoices(const Target&, const ir::Kernel&)>& choices = {});

}  // namespace tessera
