// Emitter: the ops of a region of a tile-level kernel as MLIR, one member function per family of ops. It keeps which
// MLIR value stands for which value of the kernel. What a TPU cannot do is a CompileError with the op's line. Read
// next: module.cpp (the functions around it), instructions.def (elementwise ops).
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/tpu/chip.h"
#include "codegen/tpu/text.h"
#include "engine/ir/kernel.h"
#include "engine/passes/ranges.h"

namespace tessera::tpu {

/// A memref. Its shape has dims that the kernel's Ref does not: squeezed ones, and one if the Ref has none.
struct Memory {
  std::string name;
  DType dtype = DType::f32;    // of the Ref; bools lie in memory as i32
  Shape shape = {};            // the memref's
  std::vector<int> dims = {};  // per dim of the memref the Ref's, or -1
  ir::MemorySpace space = ir::MemorySpace::vmem;
};
/// What elements of dtype t are in memory.
inline DType stored(DType t) { return t == DType::boolean ? DType::i32 : t; }
/// "memref<8x128xf32, #tpu.memory_space<vmem>>"
std::string memref_type(const Memory& m);
std::string memref_type(const Memory& m, const Shape& shape);

class Emitter {
 public:
  Emitter(const ir::Kernel& k, const Chip& chip, Text& text) : k_(k), chip_(chip), t_(text), ranges_(k) {}

  void bind(ir::Value v, Val x) { values_[v.index] = std::move(x); }
  void bind(ir::Value ref, Memory m) { memories_[ref.index] = std::move(m); }
  void bound(ir::Value v, Bounds b) { ranges_.set(v, b); }
  /// The values of the grid's axes.
  void set_program_ids(std::vector<Val> ids) { program_ids_ = std::move(ids); }
  /// The ops of a region without the one that ends it, and what that one yields.
  std::vector<Val> region(ir::RegionId r);

  /// What a function of the index map returns for dim d of a block, an array of `extent` elements: clamped to what lies
  /// there. `elements`: it counts elements, of all dims.
  Val block_index(const ir::BlockDim& d, int64_t extent, Val index, ir::Value given, bool elements);
  Val load_all(const Memory& m);
  void store_all(const Memory& m, const Val& v);

  // Sequences for elementwise ops that are no one instruction (expand.cpp, convert.cpp): the table names them.
  using Operands = std::vector<Val>;
  Val expand_div(const ir::Op& op, const Operands& x);
  Val expand_rem(const ir::Op& op, const Operands& x);
  Val expand_maximum(const ir::Op& op, const Operands& x);
  Val expand_minimum(const ir::Op& op, const Operands& x);
  Val expand_neg(const ir::Op& op, const Operands& x);
  Val expand_abs(const ir::Op& op, const Operands& x);
  Val expand_sign(const ir::Op& op, const Operands& x);
  Val expand_log2(const ir::Op& op, const Operands& x);
  Val expand_logistic(const ir::Op& op, const Operands& x);
  Val expand_expm1(const ir::Op& op, const Operands& x);
  Val expand_cbrt(const ir::Op& op, const Operands& x);
  Val expand_asin(const ir::Op& op, const Operands& x);
  Val expand_acos(const ir::Op& op, const Operands& x);
  Val expand_atan(const ir::Op& op, const Operands& x);
  Val expand_sinh(const ir::Op& op, const Operands& x);
  Val expand_cosh(const ir::Op& op, const Operands& x);
  Val expand_compare(const ir::Op& op, const Operands& x);
  Val expand_is_finite(const ir::Op& op, const Operands& x);
  Val expand_not(const ir::Op& op, const Operands& x);
  Val expand_shift(const ir::Op& op, const Operands& x);
  Val expand_mulhi(const ir::Op& op, const Operands& x);
  Val expand_bits(const ir::Op& op, const Operands& x);
  Val expand_select(const ir::Op& op, const Operands& x);
  Val expand_clamp(const ir::Op& op, const Operands& x);
  Val expand_convert(const ir::Op& op, const Operands& x);
  Val expand_bitcast(const ir::Op& op, const Operands& x);
  Val expand_fma(const ir::Op& op, const Operands& x);

 private:
  [[noreturn]] void fail(const ir::Op& op, const std::string& what, const std::string& note = "") const;
  const Val& value(ir::Value v) const;
  const Memory& memory(ir::Value ref) const;
  void set(const ir::Op& op, Val v) { bind(op.results.at(0), std::move(v)); }
  void check_type(const ir::Op& op, const ir::Type& t) const;

  void op(const ir::Op& op);
  void elementwise(const ir::Op& op);
  Val elementwise(const ir::Op& op, ir::Opcode code, const Operands& x);
  Val combine(const ir::Op& op, ir::Opcode code, const Val& a, const Val& b);
  // values.cpp
  void source(const ir::Op& op);
  void move(const ir::Op& op);
  Val reshape(const Val& x, const Shape& shape);
  Val transpose(const Val& x, const std::vector<int64_t>& perm);
  void gather(const ir::Op& op);
  Val gather_along(const Val& x, const Val& index, size_t axis);
  void grid(const ir::Op& op);
  // reduce.cpp
  void reduce(const ir::Op& op);
  Val reduce_wide(const ir::Op& op, ir::Opcode combiner, const Val& x, const std::vector<int64_t>& axes);
  Val reduce_by(const std::string& kind, const Val& x, uint64_t identity, const std::vector<int64_t>& axes);
  Val reduce_in_halves(const ir::Op& op, ir::Opcode combiner, Val x, std::vector<int64_t> axes);
  void argreduce(const ir::Op& op);
  void scan(const ir::Op& op);
  // dot.cpp
  void dot(const ir::Op& op);
  Val dot_by_sums(const ir::Op& op, const Val& a, const Val& b, const Shape& free, DType t);
  // memory.cpp
  struct Window {
    std::vector<Val> starts;                          // i32 scalars, per dim of the memref
    Shape sizes, steps;                               // likewise
    std::vector<std::pair<int64_t, int64_t>> bounds;  // of the starts
    bool inside = true;                               // it certainly lies in its Ref
  };
  enum class Outside { moves, is_error };
  Window window(const ir::Op& op, const Memory& m, size_t first, Outside outside);
  std::vector<std::string> indices(const Window& w);
  Val load(const Memory& m, const Window& w, const Shape& shape);
  void store(const ir::Op& op, const Memory& m, const Window& w, const Val& v, const Val* mask);
  Val from_memory(const Memory& m, const Val& v);
  Val to_memory(const Memory& m, const Val& v);
  void access(const ir::Op& op);
  // control.cpp
  void control(const ir::Op& op);
  void for_loop(const ir::Op& op);
  void while_loop(const ir::Op& op);
  void branches(const ir::Op& op, const Val& choice, size_t first);
  void run_scoped(const ir::Op& op);
  void set_results(const ir::Op& op, const std::string& name);
  std::string results(const ir::Op& op, std::string* name);
  void yield(const std::string& by, const std::vector<Val>& vs);
  void print(const ir::Op& op);
  // async.cpp
  void async(const ir::Op& op);
  Memory part(const ir::Op& op, const ir::CopyPlace& place, bool clip);
  void copy(const ir::Op& op);

  Val convert(const Val& x, DType t);
  Val to_int(const Val& x, DType t);
  Val to_float(const Val& x, DType t);

  const ir::Kernel& k_;
  const Chip& chip_;
  Text& t_;
  passes::Ranges ranges_;
  std::map<uint32_t, Val> values_;
  std::map<uint32_t, Memory> memories_;
  std::vector<Val> program_ids_;
};

}  // namespace tessera::tpu
