// Calls of tile-level kernels on devices: compiled once per device, cached in memory with it, launched on device or
// host arrays. This folder joins the compiler (codegen/) and the runtime; programs that bring compiled Programs use
// launch.h alone. Read next: codegen/compile.h, runtime/launch.h.
#pragma once
#include <memory>
#include <vector>

#include "codegen/compile.h"
#include "engine/call/pallas_call.h"
#include "runtime/compiled_kernel.h"
#include "runtime/cuda.h"
#include "runtime/device_array.h"

namespace tessera {

/// Compiles for the device, unless it has compiled the same kernel before. With options.dump, always compiles. Throws
/// CompileError where the device lacks what the kernel needs. With TESSERA_DUMP set, a kernel that is compiled is also
/// written to that folder, as NAME.tir. With TESSERA_CACHE set, what any process has compiled is taken from that
/// folder, and what this one compiles is put there. With TESSERA_STRICT=1, code is strict whatever the options say.
CompiledKernel load(const Device& device, const ir::Kernel& kernel, const CompileOptions& options = {});

/// Whether TESSERA_STRICT is 1: what CompileOptions::strict is then.
bool strict_by_environment();

/// The same, compiled to find its arguments in a table in memory however few they are: for calls that are recorded once
/// and run with other arguments.
CompiledKernel load_for_table(const Device& device, const ir::Kernel& kernel);

/// What load() has done in this process, for all devices.
struct CompileCounts {
  uint64_t compiled = 0;   // by the compiler
  uint64_t from_disk = 0;  // read from TESSERA_CACHE
};
CompileCounts compile_counts();

/// A kernel for an NVIDIA GPU through NVIDIA's driver: compiled to PTX for the device, unless that has compiled the
/// same kernel before. TESSERA_DUMP, TESSERA_CACHE and TESSERA_STRICT count as in load().
std::shared_ptr<const Program> program_for(const CudaDevice& device, const ir::Kernel& kernel,
                                           const CompileOptions& options = {});
/// And run on arrays of the host (CudaDevice::run).
std::vector<Array> run_on(const CudaDevice& device, const ir::Kernel& kernel, const std::vector<Array>& inputs,
                          const DimValues& dims = {}, const CompileOptions& options = {});

/// A pallas_call on device arrays: traced for their shapes and compiled for `device` at the first call with them. Does
/// not wait.
std::vector<DeviceArray> launch(const Device& device, const PallasCall& call,
                                const std::vector<DeviceArray>& arguments);
/// The same with the sizes of the grid's dynamic axes: launch(device, call, GridSizes{n}, {x, y}). A new size needs no
/// new compilation.
std::vector<DeviceArray> launch(const Device& device, const PallasCall& call, const GridSizes& grid,
                                const std::vector<DeviceArray>& arguments);

}  // namespace tessera
