// The kernels that the Python package runs: exported from JAX, or .tir text, on the interpreter, a Vulkan device or
// NVIDIA's driver. Each is imported and compiled once per process, however often and from however many threads it is
// called. It uses neither Python nor XLA: ffi.cpp passes it XLA's buffers, c_api.cpp Python's.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"
#include "runtime/call/host_call.h"
#include "runtime/cuda.h"

namespace tessera::python {

using Buffer = HostArray;

/// A module: its text and a key that no other text has (a hash). `device` is "interpreter", "cuda:" and an index, or
/// "vulkan" with, behind a colon, an index or a part of a name if wanted.
struct Module {
  std::string_view text, key, device;
};

/// Imports the module and, where its grid is known, compiles it. Throws Error.
void prepare(const Module& module);

/// Runs it. Arguments are the sizes of a dynamic grid (i32 or i64 scalars), then the kernel's inputs; results are
/// overwritten. Throws Error, SpecError if the buffers are not the module's.
void call(const Module& module, std::span<const Buffer> arguments, std::span<const Buffer> results);

/// The same for a kernel as .tir text, which says its shapes for itself.
struct TextFile {
  std::string_view text, path;  // the path is for messages
};
std::vector<Array> run_text(const TextFile& file, std::string_view device, std::span<const Buffer> inputs);

/// Arguments of a call whose results stay on an NVIDIA GPU: an array of ours, memory there of another library (`data`
/// is its address), or one of the host's, which is copied.
struct GpuBuffer {
  Buffer buffer;
  bool on_gpu = false;
  const CudaArray* own = nullptr;
};
/// A kernel as .tir text on them, `device` being "cuda:N". It returns when the call is queued, or where another
/// library's memory is used, when it is done.
std::vector<CudaArray> run_text_on_gpu(const TextFile& file, std::string_view device,
                                       std::span<const GpuBuffer> inputs);
/// The calls that make it, done; its elements, on the host.
void wait_for(const CudaArray& array);
Array download(const CudaArray& array);
/// The driver's stream of all calls there; what another library has queued in a stream of its own, done.
uint64_t gpu_stream(std::string_view device);
void wait_for_gpu_stream(std::string_view device, uint64_t stream);

/// And for a graph (engine/graph/graph.h): the text of its graph.txt, its folder, and a key that no other contents of
/// the folder's files have. They are read by load_graph(), which needs no device; by run_graph() only where it has not
/// been called.
struct GraphFiles {
  std::string_view text, folder, key;
};
void load_graph(const GraphFiles& files, std::string_view device);
std::vector<Array> run_graph(const GraphFiles& files, std::string_view device, std::span<const Buffer> inputs);

/// An exported call as .tir text.
std::string import_text(std::string_view module);

/// The devices that there are, a line each: "vulkan:0" or "cuda:0", name, kind, driver and what it lacks, with tabs
/// between them.
std::string devices();

/// The device that TESSERA_DEVICE means where none is named: "interpreter", "cuda:N", or "vulkan".
std::string device_of_environment();

/// The device that "vulkan" means, if that is a driver for the CPU, which is so where there is no other, and
/// TESSERA_DEVICE names none; else nothing.
std::string unnamed_cpu_driver();

/// Submits nothing to a device and waits for it, `times` times: for the benchmark of a call's overhead.
void submit_nothing(std::string_view device, int64_t times);

/// Takes the lines that kernels print (the graphs' ones excepted); null: they go to stdout. For the whole process.
using Printer = void (*)(const char* line);
void set_printer(Printer printer);

struct Stats {
  uint64_t modules = 0;       // imported
  uint64_t calls = 0;         // run
  uint64_t bytes_copied = 0;  // between XLA's or NumPy's buffers and arrays of ours
  uint64_t compiled = 0;      // kernels, for devices, by this process
  uint64_t from_disk = 0;     // and those that it found in TESSERA_CACHE
};
Stats stats();

}  // namespace tessera::python
