// The race detector. Programs that differ in a coordinate of a parallel axis are unordered; the others run one after
// another. Two accesses of one element by unordered programs, at least one of which writes, are a race. Scratch is
// private to each coordinate of the parallel axes: there, loading a value that another coordinate stored is the
// mistake. Unordered atomics are no race with each other, but with loads and stores. An aliased input and its output
// are one memory; if there is an order, loading through the input a value that another program stored gives a warning.
// The detector keeps per element a writer, and two readers and two atomics that are unordered.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera::interpreter {

/// "(i = 2, 0)": a program of the grid, axes that have a name with it.
std::string program_text(const ir::Kernel& k, const int64_t* program);
/// "in_specs[0]", "scratch_shapes[1]", "run_scoped[0]": the Ref of that number (machine.h).
std::string ref_text(const ir::Kernel& k, size_t ref);

enum class Touching : uint8_t { load, store, atomic };

class Races {
 public:
  /// Axes of `parallel` are. Throws SpecError if the grid has too many programs to remember.
  Races(const ir::Kernel& k, std::vector<int64_t> grid, std::vector<bool> parallel,
        Function<void(const std::string&)> warn = {});
  /// So many programs can be told apart.
  static bool fits(const std::vector<int64_t>& grid);
  /// Follows body argument `ref`, whose memory is that of argument `memory` (itself, or the output aliased to it) and
  /// has this shape. `snapshot`: a program sees it as of its start.
  void follow(size_t ref, size_t memory, Shape shape, bool snapshot = false);
  bool follows(size_t ref) const { return ref < memory_.size() && !memory_[memory_of_[ref]].elements.empty(); }
  void begin(const int64_t* program);
  /// The current program's op accesses an element (row-major) of ref. Throws KernelError if that is a race.
  void access(const ir::Op& op, size_t ref, int64_t element, Touching how);

 private:
  struct Touch {
    uint32_t program = 0;
    const ir::Op* op = nullptr;
  };  // program is counted from 1
  struct Element {
    Touch writer, before, readers[2], atomics[2];
  };  // before: the writer before the writing program
  struct Memory {
    Shape shape;
    std::vector<Element> elements;
  };
  bool ordered(const Touch& t) const;
  std::vector<int64_t> program(uint32_t number) const;
  void keep(Touch (&list)[2], const ir::Op& op) const;
  std::string accessed(size_t ref, int64_t element, Touching how, const Touch& other, Touching other_how) const;
  void warn_of(const ir::Op& op, size_t ref, int64_t element, const Touch& other);
  [[noreturn]] void report(const ir::Op& op, size_t ref, int64_t element, Touching how, const Touch& other,
                           Touching other_how) const;

  const ir::Kernel& k_;
  std::vector<int64_t> grid_;
  std::vector<bool> parallel_;
  std::vector<int64_t> strides_;  // of program numbers
  std::vector<Memory> memory_;
  std::vector<size_t> memory_of_;  // by position among the body's arguments
  std::vector<bool> snapshot_;
  Function<void(const std::string&)> warn_;
  std::set<const ir::Op*> warned_;
  std::vector<int64_t> current_;
  uint32_t number_ = 0;
};

}  // namespace tessera::interpreter
