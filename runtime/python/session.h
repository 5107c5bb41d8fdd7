// The kernels that the Python package runs: exported from JAX, or .tir text, on the interpreter or a Vulkan device.
// Each is imported and compiled once per process, however often and from however many threads it is called. It uses
// neither Python nor XLA: ffi.cpp passes it XLA's buffers, c_api.cpp Python's.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"
#include "runtime/call/host_call.h"

namespace tessera::python {

using Buffer = HostArray;

/// A module: its text and a key that no other text has (a hash). `device` is "interpreter", or "vulkan" with, behind a
/// colon, an index or a part of a name if wanted.
struct Module {
  std::string_view text, key, device;
};

/// Imports the module and, where its grid is known, compiles it. Throws Error.
void prepare(const Module& module);

/// Runs it. Arguments are the sizes of a dynamic grid (i32 or i64 scalars), then the kernel's inputs; results are
/// overwritten. Throws Error, SpecError if the buffers are not the module's.
void call(const Module& module, std::span<const Buffer> arguments, std::span<const Buffer> results);

/// The same for a kernel as .tir text, which says its shapes for itself.
std::vector<Array> run_text(std::string_view tir, std::string_view device, std::span<const Buffer> inputs);

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
