// The walk over one lane-level kernel that fills a Module. Private to codegen/spirv; emit.h is the entry point.
// emit.cpp: module set-up, built-ins and arguments. control.cpp: regions. memory.cpp: refs. subgroup.cpp: subgroup ops.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "codegen/spirv/debug_info.h"
#include "codegen/spirv/elementwise.h"
#include "engine/ir/kernel.h"
#include "engine/passes/ranges.h"

namespace tessera::spirv {

class Emitter {
 public:
  /// `source`: of the lines' files, for debug info; null: there is none.
  Emitter(const ir::Kernel& k, const Target& t, bool indirect_table, const SourceReader* source, bool relaxed)
      : k_(k), target_(t), indirect_(indirect_table), source_(source), f_(m_, t, relaxed) {}
  Words run();

 private:
  /// An IR value that is an array element. `raw`, if there, has a narrow float's memory bits: copying keeps NaNs bit
  /// for bit.
  struct Register {
    V v, raw = {};
    // In relaxed code: a narrow float before it is rounded; of a product its factors, for a sum to come.
    V wide = {};
    std::array<V, 2> factors = {};
  };
  struct Ref {
    ir::MemorySpace space = ir::MemorySpace::global;
    DType dtype = DType::f32;
    bool shared_with_others = false;  // another invocation may see or make the accesses: NonPrivatePointer
    bool by_words = false;            // others update the words around its elements, of 8 or 16 bits, by atomics
    V base;                           // global: u64 address of element 0; shared: u32 index of its first word
  };

  // emit.cpp
  void collect();
  void check_limits();
  void check_dtypes(const ir::Op& op);
  void check_dtype(const ir::Op& op, DType t);
  void arguments();
  void built_ins();
  V built_in(spv::BuiltIn b, const char* name);
  V subgroup_size();
  void bases_of_empty_arrays();
  void float_controls();
  /// While it lives, instructions are of the op's line; then again of that before.
  struct Here {
    Here(Emitter& emitter, const ir::Op& op);
    ~Here() { e.here_ = before; }
    Emitter& e;
    Loc before;
  };
  void locate();
  bool uses(ir::Opcode c) const { return used_.count(c) != 0; }
  [[noreturn]] void fail(const ir::Op& op, const std::string& what, const std::string& note = {}) const;
  void need(const ir::Op& op, bool has, DType t, const char* feature) const;

  // control.cpp
  std::vector<V> region(ir::RegionId r);  ///< emits the ops, gives the yielded values
  void emit(const ir::Op& op);
  void emit_elementwise(const ir::Op& op);
  bool stays_wide(DType t) const;
  void set_wide(ir::Value v, V wide, DType t);
  bool emit_half(const ir::Op& op);
  bool widens(const ir::Op& op) const;  ///< from a narrow float to f32 or f64
  bool emit_relaxed(const ir::Op& op, DType operand, DType out, const std::vector<Bounds>& ranges);
  void emit_if(const ir::Op& op);
  void emit_for(const ir::Op& op);
  void emit_while(const ir::Op& op);
  V loops_cut();
  void emit_switch(const ir::Op& op);
  void set(ir::Value v, V x, V raw = {}) { registers_[v.index] = {x, raw}; }
  V get(ir::Value v) const;
  std::vector<V> get_all(const std::vector<ir::Value>& vs, size_t from = 0) const;
  /// The op's result has the bounds that it gets from its operands'.
  void bound(const ir::Op& op);

  // memory.cpp
  Ref& ref(ir::Value v);
  Id storage_type(DType t);
  Ref global_ref(DType t, V base, bool shared_with_others);
  void emit_alloc(const ir::Op& op);
  void emit_view(const ir::Op& op);
  void emit_load(const ir::Op& op);
  Id words_type(size_t words);
  std::vector<V> load_words(const ir::Op& op, const Ref& r, size_t words);
  void store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words);
  void emit_vector_load(const ir::Op& op);
  void emit_vector_store(const ir::Op& op);
  static Register narrow_register(V wide, DType t);
  static V stored_bits(V value, V raw, DType t);
  static uint32_t access_mask(const Ref& r);
  void emit_store(const ir::Op& op);
  void emit_report(const ir::Op& op);
  V byte_offset(V index, const Bounds& known, int64_t size);
  V element_address(const ir::Op& op, const Ref& r);
  V element_index(const ir::Op& op);
  Id pointer(V address, Id pointee);
  Id element_pointer(const ir::Op& op, const Ref& r, Id pointee);

  // subword.cpp
  bool in_words(DType t) const;  ///< the target cannot access elements of t's size
  Register load_part(const ir::Op& op, const Ref& r);
  void store_part(const ir::Op& op, const Ref& r, V raw);
  V shared_word(const Ref& r, V index, uint32_t word);
  Id shared_pointer(const Ref& r, V index, uint32_t word);
  Register load(const ir::Op& op, const Ref& r);
  void store(const ir::Op& op, const Ref& r, V value, V raw);
  ir::Value root(ir::Value ref) const;  ///< through views

  // atomics.cpp
  void emit_atomic(const ir::Op& op);
  V atomic_update(const ir::Op& op, V address);
  Register atomic_loop(const ir::Op& op, V address);

  // subgroup.cpp
  void emit_reduce(const ir::Op& op);
  void emit_barrier();
  V shuffle(const ir::Op& op, V v, spv::Op code, V lane);
  V shuffle_any(const ir::Op& op, V v, spv::Op code, V lane);  ///< of any register

  // A region is emitted once for each copy of its loop. By IR value there is only what the last emission of the value's
  // own region has set anew (registers_, ranges_, refs_); whatever outlives an op besides is a pure function of ids,
  // and keyed by them.
  const ir::Kernel& k_;
  const Target& target_;
  const bool indirect_;
  const SourceReader* source_;
  Module m_;
  Function f_;
  std::set<ir::Opcode> used_;
  std::vector<bool> used_values_;  // that some op has as an operand
  std::vector<bool> seen_values_;  // that some op has which does not take them unrounded
  std::set<uint32_t> written_;     // roots of refs that are stored to
  std::set<uint32_t> by_words_;    // ... and whose elements of 8 or 16 bits get atomics, which take the word around
  std::vector<Register> registers_;
  passes::Ranges ranges_{k_};
  std::vector<std::optional<Ref>> refs_;
  std::vector<V> extents_;
  V scratch_, report_, workgroup_index_, num_workgroups_, local_index_, subgroup_id_, lane_id_, subgroup_size_;
  // base + index * size, by the block, base and index that hold it, and size. An id has one value for good: copies of a
  // loop's body have ids of their own.
  std::map<std::tuple<Id, Id, Id, int64_t>, V> addresses_;
  Id arena_ = 0;  // the Workgroup array of u32
  bool uses_f64_ = false, uses_subgroups_ = false;
  std::optional<DebugInfo> debug_;
  Loc here_;  // of the op that is being emitted
  Loc line_;  // without debug_: of the last OpLine
  Id line_block_ = 0;
};

}  // namespace tessera::spirv
