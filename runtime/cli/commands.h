// The commands of the executable `tessera`. Each takes its parsed arguments and prints to stdout; errors are
// exceptions. Read next: main.cpp, which parses and reports.
#pragma once
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/base/array.h"
#include "engine/base/extent.h"
#include "engine/graph/graph.h"
#include "engine/ir/kernel.h"
#include "runtime/device.h"

namespace tessera::cli {

/// A wrong combination of arguments that parsing alone cannot see: exit code 2.
struct UsageError : Error {
  using Error::Error;
};

void devices();
/// The op table, or all that is known of one op.
void ops(const std::string& name);

struct RunArguments {
  std::string file;
  std::vector<std::string> in, out, dims;  // dims: "n=5"
  std::string trace;                       // file for the times of the kernels
  int repeat = 0;                          // time so many calls; 0: none
  std::string device;                      // index, part of a name, "interpreter"; empty: the best
  bool general = false;
  bool debug_info = false;
  std::string lint;  // off, warn, error; empty: TESSERA_LINT, else warn
  // Of the interpreter:
  bool races = false;
  std::string seed;                     // a number, or "random"; empty: grid order
  std::string uninitialised = "nan";    // zero, pattern
  std::string out_of_bounds = "clamp";  // raise
};
void run(const RunArguments& a);

struct CompileArguments {
  std::string file;
  std::string emit;              // ir, lane, spirv, spirv-bin, ptx, mosaic, stablehlo; empty: the code, as text
  std::string codegen = "fast";  // or general
  bool debug_info = false;
  std::string dump;               // empty: nothing; "*": every step; else one step or pass
  std::string output;             // empty: stdout
  std::string target = "device";  // or minimum, lavapipe, gpu, nvidia:CHIP, tpu:CHIP
  std::vector<std::string> dims;  // "n=5", for a TPU and for lints
  std::string lint;               // off, warn, error; empty: TESSERA_LINT, else what the command does
  std::string dot, svg;           // files for a graph's picture
};
void compile(const CompileArguments& a);
void explain(const CompileArguments& a);

struct BundleArguments {
  std::vector<std::string> files;
  std::string output, header, c_header;  // headers: empty: none
  std::string name_space;                // empty: the header's name without its end
  std::string targets = "minimum,lavapipe,gpu";
  std::string tuning;  // file for the target `device`; empty: none
  bool embed = false;  // the bundle's bytes in the headers too
  bool quiet = false;
  int threads = 0;  // 0: one per core
};
void bundle(const BundleArguments& a);

struct TuneArguments {
  std::vector<std::string> files;         // .tir, or folders of them
  std::string output = "tessera.tuning";  // what it has of other kernels and devices stays
  std::vector<std::string> in, dims;      // as of run; without `in` inputs are made up
  std::string device;
  double seconds = 4;  // for each kernel, of measuring
};
void tune(const TuneArguments& a);

/// Whether --trace or --repeat ask for times, which are a device's: UsageError if the interpreter runs.
bool timed(const RunArguments& a);
void require_device_for_times(const RunArguments& a);
/// One call of the kernel.
Graph graph_of(const ir::Kernel& k, const std::vector<Array>& inputs, const DimValues& dims);
/// The results of one call. Then `repeat` calls are timed by the device's own clock, and their times printed to stdout;
/// `trace` gets those of the last call.
std::vector<Array> run_timed(const Device& device, const Graph& graph, const std::vector<Array>& inputs,
                             const RunArguments& a);

/// What --lint says, or TESSERA_LINT, or `otherwise`.
Lint lint_named(const std::string& name, Lint otherwise);

void explain_graph(const CompileArguments& a);  ///< of the graph in the folder a.file
void run_graph(const RunArguments& a);

/// Reads, parses and verifies a tile-level kernel; reports everything wrong with it at once.
ir::Kernel read_kernel(const std::string& file);
/// The same of a text that has been read; `file` stands in messages.
ir::Kernel parse_kernel(const std::string& text, const std::string& file);
/// What a program of tessera_add_kernels has written of a C++ source (engine/call/kernel_list.h): NAME.kernels.
struct KernelFiles {
  std::string source;              // as messages call it
  std::vector<std::string> files;  // .tir
  struct Graph {
    std::string folder;
    std::vector<std::string> names;  // of its arguments, or empty
  };
  std::vector<Graph> graphs = {};
};
bool is_kernel_list(const std::string& file);
KernelFiles read_kernel_list(const std::string& file);
std::string read_text(const std::string& file);
Target target(const std::string& name);
DimValues parse_dims(const std::vector<std::string>& dims);

}  // namespace tessera::cli
