// Memory of run_scoped, semaphores, and the asynchronous copies that are under way. A copy happens when a wait needs
// it, or, with a seed, at a random moment between its start and that wait. Until the semaphore has been waited for
// every copy started on it, no target may be accessed and no source be stored to: InterpretOptions::races reports
// violations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/interpreter/machine.h"

namespace tessera::interpreter {

/// The step of a semaphore op or a copy.
Step async_step(const Machine& m, const ir::Op& op);

class AsyncCopies {
 public:
  static bool needed(const ir::Kernel& k);
  AsyncCopies(Machine& m, std::optional<uint64_t> seed);

  /// Fresh memory for the arguments of a run_scoped; and their end, where semaphores must be 0 and no copy may be left.
  void enter(const ir::Op& scope);
  void leave(const ir::Op& scope);
  /// The same end for the semaphores in scratch.
  void end_of_kernel();

  /// One side of a copy: elements at `first`, strides in elements, of `shape`. `at` is the first one's position in the
  /// Ref, `step` how the position moves (dims[i] is the dim of the Ref that dim i of the shape runs along).
  struct Window {
    size_t ref = 0;
    std::byte* first = nullptr;
    std::vector<int64_t> strides, at, step;
    std::vector<size_t> dims;
  };
  struct Copy {
    const ir::Op* op = nullptr;
    int32_t* counter = nullptr;
    size_t semaphore = 0;               // its Ref
    std::vector<int64_t> semaphore_at;  // which element of it
    Shape shape;                        // without what is clipped
    int64_t element_bytes = 0;
    int64_t bytes = 0;  // that the semaphore counts
    Window from, to;
    std::vector<int64_t> program;
    int64_t moments = 0;  // accesses until it happens; negative: when it is waited for
    bool done = false;
  };
  void start(Copy copy);
  void signal(int32_t* counter, int32_t by) {
    *counter = static_cast<int32_t>(static_cast<uint32_t>(*counter) + static_cast<uint32_t>(by));
  }
  void wait(const ir::Op& op, size_t semaphore, int32_t* counter, const std::vector<int64_t>& position, int32_t amount);

  /// An access to memory is about to happen: copies with a moment of their own may come first.
  void tick();
  bool under_way() const { return !copies_.empty(); }
  /// Throws KernelError if a copy under way writes the element, or reads it and the access writes.
  void access(const ir::Op& op, size_t ref, const std::byte* element, const int64_t* position, size_t rank,
              bool writes) const;

 private:
  struct Use {
    int copies = 0;
    const ir::Op* op = nullptr;
  };
  void perform(Copy& c);
  void check_end(size_t ref, const std::string& where);
  template <class F> static void each_element(const Copy& c, const Window& w, F&& f);
  std::string program() const;

  Machine& m_;
  const ir::Kernel& k_;
  std::optional<uint64_t> random_;
  std::vector<std::vector<std::byte>> memory_;  // by scoped Ref
  std::vector<Strides> strides_;
  std::vector<Copy> copies_;                                  // started, and not known to have ended
  std::unordered_map<int32_t*, int64_t> open_;                // by DMA semaphore: bytes started and not waited for
  std::unordered_map<const std::byte*, Use> written_, read_;  // elements of copies_, if races are looked for
  uint64_t owners_ = uint64_t{1} << 56;                       // beyond those of blocks, scratch and masked loads
};

}  // namespace tessera::interpreter
