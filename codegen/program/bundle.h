// BundleFile: kernels and graphs compiled ahead of time, each for several targets, as one file (.tsb) that programs
// without a compiler load. Making one: make_bundle.h.
//   magic "TESSERA\n", format version (u32), 0 (u32), bytes of the content (u64), its checksum (u64), program_layout()
//   (u64), the content (program_file.cpp has its fields).
// All numbers are little-endian. A checksum finds damage, not malice: a bundle is code, so load none that you would not
// run. Read next: program.h (what a variant holds), runtime/bundle.h (loading one and calling its kernels).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/graph_program.h"
#include "codegen/program/program.h"
#include "codegen/program/target.h"

namespace tessera {

/// What a device must have to run a Program: read off the code itself, so it requires nothing that the target had and
/// the code does not use.
struct Needs {
  // of Target, by their names there: "int64", "subgroup_shuffle"; "matrix " and a shape; sorted. Of PTX: "ptx sm_80",
  // and where it has such, "products of f8"
  std::vector<std::string> features;
  int32_t workgroup_size = 1;
  int32_t push_constant_bytes = 0;
  int32_t required_subgroup_size = 0;  // 0: any
  int32_t most_subgroup_size = 0;      // the code's steps over a subgroup end there; 0: any size
  // of one dimension: with less, a dispatch may be folded, for which the code is not ready
  int32_t workgroup_count = 1;
  int64_t shared_bytes = 0;
  /// The driver may leave an invocation's loops after so many iterations (Target::max_loop_iterations), because the
  /// code counts them; 0: it must not, -1: the code has none.
  int64_t loop_iterations = -1;
};
/// What of that the device lacks, as texts: "int64", "65536 bytes of shared memory (it has 32768)"; empty: it can run
/// the code.
std::vector<std::string> missing(const Needs& needs, const Target& device);

struct BundleVariant {
  std::string target;  // "gpu"
  bool cpu = false;    // its Target's kind
  Needs needs;
  std::string program;  // program_to_bytes()
};

struct BundleKernel {
  std::string name;
  Loc loc;
  /// The kernel's own names of its arrays, inputs then outputs; where it has none, "in0" and "out0".
  std::vector<std::string> arguments;
  std::vector<BundleVariant> variants;  // one per target, in the order given
};

/// A graph, which runs by itself (runtime/loaded_graph.h) or in a host's command buffers (runtime/record_graph.h).
struct BundleGraph {
  std::string name;
  Loc loc;
  std::vector<std::string> arguments;  // inputs then outputs; "in0" and "out0" where no names were given
  GraphProgram program;
  std::vector<BundleKernel> kernels;  // by GraphProgram::Kernel::program; their names may repeat
};

struct BundleFile {
  // In the order given. Each name, of a kernel or a graph, is there once.
  std::vector<BundleKernel> kernels;
  std::vector<BundleGraph> graphs = {};
};

inline constexpr uint32_t kBundleVersion = 1;

std::string bundle_to_bytes(const BundleFile& bundle);
/// Throws BundleError, whose text begins with `name`, unless the bytes are a bundle that this version reads, from first
/// to last. The Programs inside are not looked at.
BundleFile bundle_from_bytes(std::string_view bytes, const std::string& name);
/// The Program of a variant, which is one of `kernel`. Throws BundleError if it is none, one that no compiler made, or
/// of other arrays than the first variant's.
Program program_of(const BundleKernel& kernel, const BundleVariant& variant, const std::string& name);

/// The variant that suits the device best: of those that it can run, made for a device of its name (`tessera bundle
/// --targets device`), then for the newest of NVIDIA's chips, then for its kind of device, then for its size of
/// subgroups, then what uses most. Throws CompileError, with what each lacks, if it can run none.
const BundleVariant& best_variant(const BundleKernel& kernel, const Target& device, const std::string& name);
/// A line for each variant: whether it is that one, could run too, or what it needs that the device lacks.
std::string explain_variants(const BundleKernel& kernel, const Target& device, const std::string& name);

/// A file that is no bundle, is damaged, or of another version.
struct BundleError : Error {
  using Error::Error;
};

}  // namespace tessera
