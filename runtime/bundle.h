// Bundle: a file of kernels and graphs that `tessera bundle` compiled ahead of time (codegen/program/bundle.h), for
// programs that contain no compiler. For each kernel it finds the variant that suits a device best. The header that
// `tessera bundle --header` writes has a typed struct for each kernel and graph, based on this one. Any number of
// threads may use one Bundle, and copies share it. Read next: compiled_kernel.h, launch.h.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/graph_program.h"
#include "engine/base/function.h"
#include "runtime/compiled_kernel.h"
#include "runtime/device.h"

namespace tessera {

/// A kernel is ready: the `done`th of `total`.
struct Prewarmed {
  size_t done = 0, total = 0;
  std::string kernel;  // one of a graph: "solver: step"
};

/// An array that a kernel of a bundle takes or makes.
struct BundleArgument {
  std::string name;  // the kernel's own, else "in0", "out0"
  DType dtype = DType::f32;
  std::vector<Extent> shape;
  bool is_output = false;
  int alias = -1;         // of an output: the input with whose contents it starts
  bool by_value = false;  // an input that a call passes as a number
};

/// A graph's code for a device: which kernels are called on what, and their Programs, by GraphProgram::Kernel::program.
/// What a LoadedGraph (loaded_graph.h) or a PreparedGraph (record_graph.h) is made of, which checks it. Of a bundle, it
/// keeps the file's contents.
struct GraphCode {
  std::shared_ptr<const GraphProgram> graph;
  std::vector<std::shared_ptr<const Program>> programs;
};

class Bundle {
 public:
  /// Reads a file. Throws BundleError (codegen/program/bundle.h) if it cannot be read, is no bundle, is damaged or of
  /// another version.
  explicit Bundle(const std::string& path);
  /// A copy of a file's bytes; `name` stands in messages.
  Bundle(std::span<const std::byte> bytes, std::string name);

  /// In the order in which they were given to tessera bundle.
  std::vector<std::string> kernels() const;
  /// Inputs, then outputs. Throws SpecError with the names there are if there is no such kernel.
  std::vector<BundleArgument> arguments(std::string_view kernel) const;
  /// The kernel for the device. Throws SpecError with the names there are if there is no such kernel, CompileError with
  /// what each variant needs and the device lacks, BundleError if its code is damaged.
  CompiledKernel kernel(const Device& device, std::string_view name) const;
  /// The Program for a device of that target, for one that is no Vulkan Device: cuda.run(*bundle.program(cuda.target(),
  /// "softmax"), {x}). Throws as kernel().
  std::shared_ptr<const Program> program(const Target& device, std::string_view name) const;
  /// The name of the target whose variant kernel() takes.
  std::string variant(const Device& device, std::string_view kernel) const;
  /// A line for each variant: "gpu: taken: for GPUs, uses int64", "minimum: runs here too: ...", "gpu64: cannot run:
  /// needs subgroups of 64 (it has 8 to 8)".
  std::string explain(const Device& device, std::string_view kernel) const;

  /// Graphs, in the order in which they were given.
  std::vector<std::string> graphs() const;
  /// A graph's code for the device: ts::LoadedGraph g(device, bundle.graph(device, "solver")). Throws as kernel().
  GraphCode graph(const Device& device, std::string_view name) const;
  /// The names of a graph's own kernels, by GraphProgram::Kernel::program.
  std::vector<std::string> kernels(std::string_view graph) const;

  /// Reads the file again if it has changed, and takes its kernels from then on; true if so. Throws BundleError or
  /// Error (SpecError for a graph that does not fit its kernels) if the file cannot be read or is no good bundle; then
  /// all is as before, and the next reload() looks again. Kernels that were taken before stay what they were. Of a
  /// bundle from memory: false.
  bool reload();
  /// The kernels as they are now, which no reload() changes.
  Bundle snapshot() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// "(f32[n, 128], i32[4]) -> (f32[n])"
std::string signature(const Program& program);
std::string signature(const GraphProgram& graph);
/// For the headers of tessera bundle: throws SpecError with both signatures if the kernel or graph has another one than
/// the header was made for.
CompiledKernel checked(CompiledKernel kernel, std::string_view signature);
void check_signature(const GraphProgram& graph, std::string_view signature);
GraphCode checked(GraphCode graph, std::string_view signature);

struct BundlePrewarmOptions {
  int threads = 0;  ///< 0: one per core
  /// Called on the worker threads, one call at a time. What it throws ends the work, and prewarm() throws it.
  Function<void(const Prewarmed&)> progress = {};
};
/// Makes the pipelines of all kernels of the bundle, and of its graphs, on several threads; with TESSERA_CACHE, from
/// disk or to it. Throws what the first one that fails throws (in time, not in order), once the threads have finished
/// the kernels that they had begun; SpecError if threads < 0.
void prewarm(const Device& device, const Bundle& bundle, const BundlePrewarmOptions& options = {});

}  // namespace tessera
