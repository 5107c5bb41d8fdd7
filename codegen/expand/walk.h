// The walk over one lane-level kernel, as far as backends share it: rows, regions, Refs and the elements of an access,
// on a Sink. A backend derives its emitter and gives what remains: each access, atomics, what invocations do together.
// walk.cpp: ops and regions. memory.cpp: Refs. Read next: elementwise.h, codegen/spirv/emitter.h.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "codegen/expand/elementwise.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"
#include "engine/passes/ranges.h"

namespace tessera::expand {

class Walk {
 public:
  virtual ~Walk() = default;

 protected:
  /// An IR value that is an array element. `raw`, if there, has a narrow float's memory bits: copying keeps NaNs bit
  /// for bit.
  struct Register {
    V v, raw = {};
    // In relaxed code: a narrow float before it is rounded; of a product its factors, for a sum to come.
    V wide = {};
    std::array<V, 2> factors = {};
    // Of an element of 8 or 16 bits that a vector access has loaded: the word that it is part of, and which.
    V word = {};
    uint32_t part = 0;
  };
  struct Ref {
    ir::MemorySpace space = ir::MemorySpace::global;
    DType dtype = DType::f32;
    bool shared_with_others = false;  // global: another invocation may see or make the accesses
    bool by_value = false;            // base is the only element's bits
    bool of_program = false;          // global: in shared memory, elements size_bytes apart
    bool by_words = false;            // others update the words around its elements, of 8 or 16 bits, by atomics
    V base;                           // global: u64 address of element 0; shared: u32 index of its first word
  };

  /// `backend`: its name, for InternalErrors.
  Walk(const ir::Kernel& k, const Target& t, Sink& sink, const char* backend);
  void check_limits() const;  ///< of a workgroup: CompileError

  std::vector<V> region(ir::RegionId r);  ///< emits the ops, gives the yielded values
  virtual void emit(const ir::Op& op);
  [[noreturn]] void fail(const ir::Op& op, const std::string& what, const std::string& note = {}) const;

  // What a backend gives.
  virtual bool half_arithmetic() const = 0;      ///< f16 has instructions of its own, which round
  virtual bool emit_half(const ir::Op& op) = 0;  ///< by those; false: not this op
  virtual V launch_value(const ir::Op& op) = 0;
  virtual Register load(const ir::Op& op, const Ref& r) = 0;
  virtual void store(const ir::Op& op, const Ref& r, V value, V raw) = 0;
  /// A word of two elements of 16 bits, at once from what they were rounded from; no value: not like that.
  virtual V rounded_pair(V, V, DType) { return {}; }
  /// Adjacent elements in one access of one, two or four words, aligned to its size.
  virtual std::vector<V> load_words(const ir::Op& op, const Ref& r, size_t words) = 0;
  virtual void store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) = 0;
  virtual void emit_atomic(const ir::Op& op) = 0;
  /// A word of global memory as atomics see it. `exchange` stores `now` if the word is `expected`, and gives what it
  /// was.
  struct AtomicWord {
    Function<V()> load;
    Function<V(V now, V expected)> exchange;
  };
  /// Of u32 or u64. `used`: the value before the update is, and so orders what comes before and after.
  virtual AtomicWord atomic_word(V address, Reg r, bool used) = 0;
  virtual void emit_report_memory(const ir::Op& op) = 0;
  virtual void emit_report(const ir::Op& op) = 0;
  virtual V loops_cut() = 0;
  virtual void emit_switch(const ir::Op& op) = 0;
  virtual void emit_barrier(const ir::Op& op, bool of_subgroup) = 0;
  /// What the workgroups of one program do together (ir::is_program_op).
  virtual void emit_async_wait(const ir::Op& op) { fail(op, "stores are done at once"); }
  virtual void emit_program_op(const ir::Op& op) { fail(op, "programs are single workgroups"); }
  virtual void emit_tensor_op(const ir::Op& op) { fail(op, "there are no copies of tensors"); }
  virtual void emit_reduce(const ir::Op& op) = 0;
  virtual void emit_matrix(const ir::Op& op) { fail(op, "there are no matrices"); }
  virtual V shuffle(const ir::Op& op, V v, V lane) = 0;
  virtual V shuffle_xor(const ir::Op& op, V v, uint32_t mask) = 0;

  /// The products of the four elements of 8 bits in a and in b, added. Here with an instruction for each step.
  virtual V dot4(V a, bool a_signed, V b, bool b_signed);

  // walk.cpp
  void set(ir::Value v, V x, V raw = {}) { registers_[v.index] = {x, raw}; }
  V get(ir::Value v) const;
  std::vector<V> get_all(const std::vector<ir::Value>& vs, size_t from = 0) const;
  /// The op's result has the bounds that it gets from its operands'.
  void bound(const ir::Op& op);
  void emit_elementwise(const ir::Op& op);
  void emit_constant(const ir::Op& op);
  bool stays_wide(DType t) const;
  void set_wide(ir::Value v, V wide, DType t);
  bool widens(const ir::Op& op) const;  ///< from a narrow float to f32 or f64
  std::array<V, 2> negated(ir::Value product) const;
  bool emit_relaxed(const ir::Op& op, DType operand, DType out, const std::vector<Bounds>& ranges);
  void emit_packed(const ir::Op& op);
  void emit_if(const ir::Op& op);
  void emit_for(const ir::Op& op);
  void emit_while(const ir::Op& op);

  // memory.cpp
  Ref& ref(ir::Value v);
  ir::Value root(ir::Value ref) const;  ///< through views
  Ref global_ref(DType t, V base, bool shared_with_others);
  Ref argument_ref(ir::Value argument, V base);
  void emit_alloc(const ir::Op& op);
  void emit_view(const ir::Op& op);
  void emit_load(const ir::Op& op);
  Register element(const ir::Op& op, const Ref& r);
  void emit_store(const ir::Op& op);
  void emit_vector_load(const ir::Op& op);
  void emit_vector_store(const ir::Op& op);
  void emit_pack(const ir::Op& op);
  /// The words, where all these elements of 8 or 16 bits stand at one place in words that vector accesses have loaded.
  std::vector<V> words_of_column(const std::vector<ir::Value>& elements) const;
  /// The word that four elements of 8 bits make that stand so; no value where they do not.
  V transposed(const std::vector<ir::Value>& elements);
  static Register narrow_register(V wide, DType t);
  static V stored_bits(V value, V raw, DType t);
  virtual V byte_offset(V index, const Bounds& known, int64_t size);
  V word_offset(const ir::Op& op, int64_t size);
  V view_offset(ir::Value offset, int64_t size);
  V element_address(const ir::Op& op, const Ref& r);
  V element_index(const ir::Op& op);
  /// The op that combines what is there with the operand; or atomic_cas.
  static ir::Opcode atomic_kind(const ir::Op& op);
  // Of an atomic by its element's word: the element in it, which begins at bit `shift` if it is narrow, and what the
  // word becomes.
  Register atomic_element(DType t, V word, V shift) const;
  V atomic_result(const ir::Op& op, V word, V shift) const;
  /// An atomic that the backend has no instruction for (lane::atomic_by_loop): its old value.
  Register atomic_loop(const ir::Op& op, V address);

  // A region is emitted once for each copy of its loop. By IR value there is only what the last emission of the value's
  // own region has set anew (registers_, ranges_, refs_); whatever outlives an op besides is a pure function of ids,
  // and keyed by them.
  const ir::Kernel& k_;
  const Target& target_;
  Sink& sink_;
  const std::string backend_;
  std::vector<Register> registers_;
  std::vector<bool> used_values_;  // that some op has as an operand
  std::vector<bool> seen_values_;  // that some op has which does not take them unrounded
  std::set<uint32_t> written_;     // roots of Refs that are stored to
  std::set<uint32_t> by_words_;    // and of those whose elements of 8 or 16 bits have atomics, on the words around them
  passes::Ranges ranges_{k_};
  std::vector<std::optional<Ref>> refs_;
  // the arena's address, where there is one; which arena is the workgroup's; the memory that a program's have in common
  V scratch_, workgroup_index_, program_;
  // base + index * size, by the block, base and index that hold it, and size. An id has one value for good: copies of a
  // loop's body have ids of their own.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, int64_t>, V> addresses_;
  // Likewise, the bytes at even or at odd places of two words, in turn: as halves of a word.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::array<V, 2>> every_second_;
};

}  // namespace tessera::expand
