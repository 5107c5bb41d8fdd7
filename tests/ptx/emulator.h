// Runs PTX on the host and names the first thing that it may not do: a second reader of what the NVIDIA backend writes.
// It shares no code with any emitter. What it is not: a model of time, or of any one chip. Threads run in random order
// between the places where PTX orders them, asynchronous copies land late, memory that nobody has written is poison,
// and approximate instructions are as inexact as they may be. Read next: README.md, machine.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/ptx/syntax.h"

namespace tessera::ptx {

/// Memory of the host that a launch may access, at an address of its own. `bytes` is read before the run and written
/// after it, also after a fault.
struct Buffer {
  std::string name;
  std::span<std::byte> bytes;
  bool may_write = true;
  bool initialised = true;       // else what it holds is poison until it is written
  bool may_hold_poison = false;  // at the end; else bytes that hang on poison are a fault
};

/// A tensor map, as cuTensorMapEncodeTiled makes it: dims and boxes innermost first. In the parameters it takes 128
/// bytes, of which `parameter(tensor)` says the content.
struct TensorMap {
  uint32_t buffer = 0;
  uint64_t offset = 0;  // bytes, of the first element
  Type type = Type::f32;
  std::vector<uint64_t> dims;                  // elements
  std::vector<uint64_t> strides;               // bytes, of dims 1 and up
  std::vector<uint32_t> box;                   // elements
  std::vector<uint32_t> element_strides = {};  // empty: ones
  enum Swizzle : uint8_t { none, b32, b64, b128 } swizzle = none;
  bool nan_fill = false;  // what lies outside is NaN instead of zero
};

struct Launch {
  std::string entry;  // empty: the only one
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t cluster[3] = {0, 0, 0};  // 0: as the entry says, or 1
  uint64_t dynamic_shared = 0;
  /// The parameters' bytes, as the entry lays them out. Where an address or a tensor map belongs, `addresses` says of
  /// which buffer: it is put there.
  std::vector<std::byte> parameters;
  struct Address {
    uint64_t at = 0;  // offset into parameters, or into a buffer
    uint32_t buffer = 0;
    int64_t offset = 0;
    uint32_t in_buffer = kNone;  // kNone: in the parameters
  };
  std::vector<Address> addresses;
  struct Tensor {
    uint64_t at = 0;
    TensorMap map;
  };
  std::vector<Tensor> tensors;
  std::vector<Buffer> buffers;

  uint64_t seed = 0;
  bool races = true;
  bool inexact = true;                            // approximate instructions are off, within what PTX documents
  uint32_t resident = 3;                          // blocks at work at once, where some have to see each other
  uint64_t max_instructions = uint64_t{1} << 32;  // of all threads
  uint64_t max_shared = 227 * 1024;               // of a block

  /// Appends to the parameters, aligned.
  template <class T>
  Launch& scalar(T value) {
    place(&value, sizeof(T), alignof(T));
    return *this;
  }
  /// Adds a buffer and appends its address to the parameters. `bytes` must stay where they are.
  Launch& buffer(Buffer b);
  void place(const void* bytes, size_t size, size_t alignment);
};

// clang-format off
enum class Fault : uint8_t { none, invalid, bounds, alignment, race, poison, deadlock, hang, barrier, divergence,
  undefined, trap };
// clang-format on
const char* name_of(Fault f);

struct Result {
  Fault fault = Fault::none;
  std::string text;  // "out of bounds: line 12: ...", empty without a fault
  uint32_t line = 0;
  uint64_t instructions = 0;  // of all threads
  bool ok() const { return fault == Fault::none; }
};

/// Whether an entry can be run at all: throws Error where it has what is not known.
void check(const Module& module, const std::string& entry);
/// Runs an entry. Throws Error where the module has what is not known.
Result run(const Module& module, const Launch& launch);

}  // namespace tessera::ptx
