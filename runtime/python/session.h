// What the Python package runs: kernels exported from JAX, or .tir text, on the interpreter or a Vulkan device, imported and compiled once per process
// however often and from however many threads they are called. Knows neither Python nor XLA: ffi.cpp gives it XLA's buffers, c_api.cpp Python's.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/array.h"
#include "engine/ir/kernel.h"

namespace tessera::python {

/// A dense row-major array that somebody else owns.
struct Buffer {
  DType dtype;
  Shape shape;
  void* data;
};

/// A module: its text and a key that no other text has (a hash). `device` is "interpreter", or "vulkan" with, behind a colon, an index or a part of
/// a name if wanted.
struct Module {
  std::string_view text, key, device;
};

/// Imports the module and, where its grid is known, compiles it. Throws Error.
void prepare(const Module& module);

/// Runs it. Arguments are the sizes of a dynamic grid (i32 or i64 scalars), then the kernel's inputs; results are overwritten. Throws Error, SpecError if
/// the buffers are not the module's.
void call(const Module& module, std::span<const Buffer> arguments, std::span<const Buffer> results);

/// The same for a kernel as .tir text, which says its shapes for itself.
std::vector<Array> run_text(std::string_view tir, std::string_view device, const std::vector<Array>& inputs);

struct Stats {
  uint64_t modules = 0;       // imported
  uint64_t calls = 0;         // run
  uint64_t bytes_copied = 0;  // between XLA's or NumPy's buffers and arrays of ours
};
Stats stats();

}  // namespace tessera::python
