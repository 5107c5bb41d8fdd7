// What the walk over a lane-level kernel leaves to PTX. Private to codegen/nvidia; emit.h is the entry point.
// emit.cpp: the module's frame, parameters, special registers. memory.cpp, atomics.cpp, group.cpp, program.cpp,
// matrix.cpp: by the op.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/expand/walk.h"
#include "codegen/nvidia/function.h"
#include "engine/passes/divisors.h"

namespace tessera::nvidia {

/// What the walk writes.
struct Code {
  Code(const Target& t, bool relaxed) : f_(t, relaxed) {}
  Function f_;
};

class Emitter final : private Code, public Walk {
 public:
  Emitter(const ir::Kernel& k, const Target& t, bool relaxed, bool lines, int64_t registers)
      : Code(t, relaxed), Walk(k, t, f_, "nvidia"), lines_(lines), registers_live_(registers) {}
  std::string run();

 private:
  // emit.cpp
  void arguments();
  void emit(const ir::Op& op) override;
  V launch_value(const ir::Op& op) override;
  V special(const char* name);
  std::string frame(const std::string& body) const;
  int64_t workgroups_at_once() const;
  bool half_arithmetic() const override { return false; }
  bool emit_half(const ir::Op&) override { return false; }
  V loops_cut() override;
  void emit_switch(const ir::Op& op) override;
  bool large_arena() const;  ///< beyond what a static array may have

  // memory.cpp
  V rounded_pair(V low, V high, DType t) override { return f_.rounded_pair(low, high, t); }
  bool emit_transposed_pack(const ir::Op& op);
  Register load(const ir::Op& op, const Ref& r) override;
  void store(const ir::Op& op, const Ref& r, V value, V raw) override;
  std::vector<V> load_words(const ir::Op& op, const Ref& r, size_t words) override;
  void store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) override;
  V byte_offset(V index, const Bounds& known, int64_t size) override;
  std::string shared_address(const ir::Op& op, const Ref& r);
  bool is_program(ir::Value memory) const;  ///< what the workgroups of a program have in common
  void find_copies();
  void emit_copy(const ir::Op& store, const ir::Op& load);
  void emit_async_wait(const ir::Op& op) override;
  std::pair<ir::Value, int64_t> split_sum(ir::Value x, int64_t constant) const;
  std::string in_arena(V from, const Ref& r, std::optional<ir::Value> index, int64_t start, int64_t more_bytes);
  static std::string load_code(const Ref& r);
  std::string at(V address) { return "[" + f_.in_register(address) + "]"; }
  void emit_report_memory(const ir::Op& op) override;
  void emit_report(const ir::Op& op) override;

  // atomics.cpp
  void emit_atomic(const ir::Op& op) override;
  V atomic(const std::string& code, Reg r, const std::string& place, const std::vector<V>& values, bool used);
  bool adds_floats(const ir::Op& op, DType t) const;
  AtomicWord atomic_word(V address, Reg r, bool used) override;
  Register load_part(const ir::Op& op, const Ref& r);
  void store_part(const ir::Op& op, const Ref& r, V raw);

  // program.cpp
  int64_t shared_bytes() const;
  void begin_program();
  void make_barriers(int64_t first, int64_t count, bool again);
  void meet();
  void emit_program_op(const ir::Op& op) override;
  void begin_tensors();
  void emit_tensor_op(const ir::Op& op) override;
  void emit_tensor_load(const ir::Op& op);
  void arrive(V number);
  void wait(V number);

  // group.cpp
  void emit_barrier(const ir::Op& op, bool of_subgroup) override;
  void emit_reduce(const ir::Op& op) override;
  V shuffle(const ir::Op& op, V v, V lane) override;
  V shuffle_xor(const ir::Op& op, V v, uint32_t mask) override;
  V exchange(const std::string& mode, V v, V lane);

  // matrix.cpp
  /// Which places of a tile a lane's addresses are.
  enum class LanePlaces : uint8_t {
    rows_of_matrices_down,    // of ldmatrix: its four matrices are two under each other, and two beside those
    rows_of_matrices_across,  // two beside each other, and two under those
    words,                    // one word: of row lane / 4, word lane % 4
    elements,                 // its elements, each by itself: rows are of k
    sums,                     // two words: of row lane / 4, words 2 * (lane % 4) and on
    sums_by_columns,          // the same where memory has column behind column
  };
  struct Access {
    LanePlaces places;
    int64_t stride;   // words from row to row
    int64_t element;  // bytes of an element
    auto operator<=>(const Access&) const = default;
  };
  int64_t divisor_of_place(const ir::Op& op);
  Access access_of(const ir::Op& op);
  void place_lanes();
  void emit_matrix(const ir::Op& op) override;
  void emit_fill(const ir::Op& op);
  void emit_matrix_load(const ir::Op& op);
  void emit_sums(const ir::Op& op, V sums, bool store);
  void emit_multiply(const ir::Op& op);
  void emit_elements(const ir::Op& op);
  void emit_matrix_of(const ir::Op& op);
  void emit_multiply_add(const ir::Op& op);
  V descriptor(const ir::Op& load);
  bool is_zeros(ir::Value sums) const;
  void emit_warpgroup(const ir::Op& op);
  bool stands_in(const ir::Region& r, const ir::Op* op) const;
  std::vector<V> left_of_iteration(const ir::Op& op, ir::Value left);
  V sums_of_product(const ir::Op& op, ir::Value sums);
  V factor_register(const ir::Op& op, const Access& access, int64_t row, int64_t k);
  std::string matrix_place(const ir::Op& op, const Access& access, int64_t more_bytes);

  const bool lines_;
  const int64_t registers_live_;
  std::vector<V> extents_;
  V zero_;  // %ctaid.z, of which ptxas does not know that it is 0
  V report_, program_index_, num_workgroups_, local_index_, subgroup_id_, lane_id_, arena_;
  // of programs of several workgroups: the invocation's number in its program, the workgroup's, its named barrier, and
  // where the mbarriers are
  V invocation_, thread_index_, barrier_, barriers_;
  std::vector<V> phases_;  // a bit for each mbarrier, in registers that change: this workgroup has waited an odd number
  std::map<std::string, int> files_;  // of lines
  int64_t argument_bytes_ = 0, tensors_at_ = 0;
  V tensors_;  // address of the arguments
  passes::Divisors divisors_{k_};
  std::map<Access, V> lane_places_;  // each lane's address in the arena, for a tile at its beginning
  std::vector<int> uses_;            // of values
  bool multiplies_f8_ = false;
  std::map<const ir::Op*, const ir::Op*> copies_;  // late stores, and the loads that they do, too
  std::set<const ir::Op*> left_out_;               // what they stand for
  bool copies_to_program_ = false;                 // some of them, to what the workgroups have in common
  bool goes_on_in_lanes_ = false;                  // what products by warpgroups sum
  bool by_warpgroups_ = false;                     // some products read shared memory past the threads' own view of it
  // Of two words, the bytes 2 * third and 2 * third + 1 in turn; by the block that holds them, too.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, V> transposed_;
};

}  // namespace tessera::nvidia
