// The machine that runs a kernel's regions: every op becomes one Step (a closure over places and shapes), every value
// one place in memory, planned once and run for every program. A step works on whole arrays; nothing is looked up by
// name or allocated per element. plan.cpp makes steps and places buffers, memory.cpp and indexed.cpp make the steps of
// loads and stores; interpreter.cpp moves blocks and runs the grid.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "engine/base/splitmix64.h"
#include "engine/interpreter/interpreter.h"
#include "engine/interpreter/races.h"
#include "engine/interpreter/strided.h"
#include "engine/ir/kernel.h"

namespace tessera::interpreter {

struct Machine;
class AsyncCopies;
class Threads;
using Step = std::function<void(Machine&)>;

/// Where a Ref's elements are now; its shape is static.
struct View {
  std::byte* data = nullptr;
  const int64_t* strides = nullptr;  // in elements, one per dim of the Ref
  bool dense = true;                 // they are those of a dense array of its shape
};

/// Where a Ref's elements lie in what Races follows: the array or the scratch. Per dim, but for `inside` of them from
/// `below` on they are overhang.
struct Tracked {
  int64_t first = 0;
  const int64_t* strides = nullptr;
  const int64_t* below = nullptr;
  const int64_t* inside = nullptr;
};

struct Machine {
  const ir::Kernel* kernel = nullptr;
  std::vector<std::byte*> place;  // by value: its elements, dense
  // by value that is a Ref: its number. The body's arguments, then those of run_scoped
  std::vector<uint32_t> refs;
  std::vector<View> views;                   // by a Ref's number
  std::vector<ir::Value> scoped;             // the arguments of run_scoped
  std::vector<std::vector<Step>> steps;      // by region
  std::vector<int32_t> program, programs;    // this program's id and the grid's size, vmapped axes left out
  std::vector<int32_t> sizes;                // Kernel::sizes
  int fill = 0;                              // of unspecified_bits
  bool raise = false;                        // OutOfBounds::raise
  Races* races = nullptr;                    // if they are looked for
  std::vector<Tracked> tracked;              // by a Ref's number, for races
  AsyncCopies* async = nullptr;              // if the kernel has run_scoped, semaphores or copies
  Threads* threads = nullptr;                // of a kernel of threads: this machine is one of them,
  size_t thread = 0;                         // of this number in its cluster
  std::vector<int64_t> grid_point;           // this program, all axes
  uint64_t masked_loads = 0;                 // so far: each leaves other unspecified elements
  Function<void(std::string)> print;         // of debug_print
  Function<void(const SeenValue&)> observe;  // InterpretOptions::observe
  std::optional<KernelError> failed;         // the first check that did
  std::vector<std::byte> arena;              // every value's memory, but for loads that point into a block

  void run(ir::RegionId r) {
    for (const Step& s : steps[r.index]) s(*this);
  }
  int32_t scalar(ir::Value v) const { return *reinterpret_cast<const int32_t*>(place[v.index]); }
};

/// Plans the body and the index maps of k. The program ids of index maps are stored at place[argument]. `written` says
/// for each body argument whether the kernel may store to it.
Machine make_machine(const ir::Kernel& k, std::vector<int32_t> programs, std::vector<int32_t> sizes,
                     const std::vector<bool>& written, int fill, Function<void(const SeenValue&)> observe);

/// The access looks at what is there: all but a store, and a swap whose result is unused, which is one.
bool loads(const ir::Kernel& k, const ir::Op& op);

/// The step of an access to the ref views[ref]. A load may point into the ref instead of copying if `borrow`.
Step memory_step(const ir::Kernel& k, const ir::Op& op, size_t ref, std::byte* result, bool borrow, int fill);

/// The same where positions wrap and are clamped or dropped one by one: AccessDims::per_element.
Step per_element_step(const ir::Kernel& k, const ir::Op& op, size_t ref, int fill);
/// Elements of a Ref of which some lie outside, along one of its dims.
struct Outside {
  size_t ref, dim;
  int64_t extent;  // of the dim
  int64_t first, last;
};
/// Throws the KernelError of OutOfBounds::raise.
[[noreturn]] void out_of_bounds(const Machine& m, const ir::Op& op, const Outside& o, const std::string& note);
/// The owner of unspecified_bits for the masked-out elements of one load.
// beyond the owners of blocks and scratch
inline uint64_t masked_load_owner(Machine& m) { return (uint64_t{1} << 48) + m.masked_loads++; }
/// The place of element i.
uint64_t place_of(uint64_t owner, int64_t i);
/// The step of a debug_print or a check.
Step print_step(const ir::Kernel& k, const ir::Op& op);

/// A hash whose outputs are well mixed.
inline uint64_t mix(uint64_t z) { return SplitMix64::mix(z); }
/// Of unspecified_bits: as 0; overhang is what Uninitialised::edge says.
constexpr int kEdge = -1;
/// What memory holds before its first write, and overhang: NaN, the least integer, or true; others by `fill`: 1, 2, 3:
/// the same everywhere; from 4 on: by this seed. `place` tells places apart where each holds its own.
uint64_t unspecified_bits(DType t, int fill, uint64_t place = 0);
/// n elements of unwritten memory; `owner` tells blocks, scratch and programs apart.
void fill_unspecified(std::byte* to, int64_t n, DType t, int fill, uint64_t owner);

}  // namespace tessera::interpreter
