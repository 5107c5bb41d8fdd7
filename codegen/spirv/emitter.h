// The walk over one lane-level kernel that fills a Module. Private to codegen/spirv; emit.h is the entry point.
// emit.cpp: module set-up, built-ins and arguments. control.cpp: regions. memory.cpp: refs. subgroup.cpp: subgroup ops.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "codegen/expand/walk.h"
#include "codegen/spirv/buffer_order.h"
#include "codegen/spirv/builder/function.h"
#include "codegen/spirv/debug_info.h"
#include "engine/ir/kernel.h"

namespace tessera::spirv {

/// What the walk writes.
struct Code {
  Code(const Target& t, bool relaxed) : f_(m_, t, relaxed) {}
  Module m_;
  Function f_;
};

class Emitter final : private Code, public Walk {
 public:
  /// `source`: of the lines' files, for debug info; null: there is none.
  Emitter(const ir::Kernel& k, const Target& t, bool indirect_table, const SourceReader* source, bool relaxed)
      : Code(t, relaxed),
        Walk(k, t, f_, "spirv"),
        indirect_(indirect_table),
        orders_buffers_(barriers_order_buffers(k)),
        source_(source) {}
  Words run();

 private:
  // emit.cpp
  void collect();
  void shared_memory();
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
  void need(const ir::Op& op, bool has, DType t, const char* feature) const;

  void emit(const ir::Op& op) override;
  V launch_value(const ir::Op& op) override;

  // control.cpp
  bool half_arithmetic() const override { return native_f16(target_); }
  bool emit_half(const ir::Op& op) override;
  V loops_cut() override;
  V dot4(V a, bool a_signed, V b, bool b_signed) override;
  void emit_switch(const ir::Op& op) override;

  // memory.cpp
  Id storage_type(DType t);
  Id words_type(size_t words);
  std::vector<V> load_words(const ir::Op& op, const Ref& r, size_t words) override;
  void store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) override;
  static uint32_t access_mask(const Ref& r);
  void emit_report_memory(const ir::Op& op) override;
  void emit_report(const ir::Op& op) override;
  Id pointer(V address, Id pointee);
  Id element_pointer(const ir::Op& op, const Ref& r, Id pointee);
  Id loaded_pointer(const ir::Op& op, const Ref& r, Id pointee);
  Register load(const ir::Op& op, const Ref& r) override;
  void store(const ir::Op& op, const Ref& r, V value, V raw) override;

  // subword.cpp
  bool in_words(DType t) const;  ///< the target cannot access elements of t's size
  Register load_part(const ir::Op& op, const Ref& r);
  void store_part(const ir::Op& op, const Ref& r, V raw);
  V shared_word(const Ref& r, V index, uint32_t word);
  Id shared_pointer(const Ref& r, V index, uint32_t word);
  V shared_vector(const ir::Op& op, const Ref& r, int64_t words);
  Id shared_vector_pointer(const ir::Op& op, const Ref& r, uint32_t words);
  V load_shared_word(const Ref& r, V index, uint32_t word);
  void store_shared_word(const Ref& r, V index, uint32_t word, V v);

  // atomics.cpp
  void emit_atomic(const ir::Op& op) override;
  V atomic_update(const ir::Op& op, V address);
  AtomicWord atomic_word(V address, Reg r, bool used) override;

  // matrix.cpp
  void emit_matrix(const ir::Op& op) override;
  Id component_type(DType t);
  Reg matrix_type(const ir::Type& t, ir::MatrixUse use);
  Id matrix_pointer(const ir::Op& op, V index);

  // subgroup.cpp
  void emit_reduce(const ir::Op& op) override;
  void emit_barrier(const ir::Op& op, bool of_subgroup) override;
  V shuffle(const ir::Op& op, V v, V lane) override { return shuffle_any(op, v, spv::OpGroupNonUniformShuffle, lane); }
  V shuffle_xor(const ir::Op& op, V v, uint32_t mask) override;
  V shuffle_word(const ir::Op& op, V v, spv::Op code, V lane);
  V shuffle_any(const ir::Op& op, V v, spv::Op code, V lane);  ///< of any register

  const bool indirect_;
  const bool orders_buffers_;  // by barriers of the workgroup
  const SourceReader* source_;
  std::set<ir::Opcode> used_;
  std::vector<V> extents_;
  V report_, num_workgroups_, local_index_, subgroup_id_, lane_id_, subgroup_size_;
  Id arena_ = 0;                         // the Workgroup array of u32
  std::map<uint32_t, Id> shared_views_;  // by size: the same memory as vectors, for those accesses that there are
  bool uses_f64_ = false, uses_subgroups_ = false;
  std::optional<DebugInfo> debug_;
  Loc here_;  // of the op that is being emitted
  Loc line_;  // without debug_: of the last OpLine
  Id line_block_ = 0;
};

}  // namespace tessera::spirv
