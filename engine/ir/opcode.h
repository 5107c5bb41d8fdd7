// The op table in C++: an enumerator and an OpInfo per row of ops.def, and the properties that ops share. Code never
// lists the opcodes of a family: it asks is_scan(op), or switches over a family's own enum (`switch (Move(op.code))`),
// without a default, so that the compiler names every place that a new member affects. A property that only one pass
// needs is kept in that pass. Read next: ops.def (what each op means), kernel.h (the structs that have an opcode).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/base/dtype.h"

namespace tessera::ir {

enum class Opcode : uint8_t {
#define TESSERA_ELEMENTWISE(name, ...) name,
#define TESSERA_STRUCTURED(name, ...) name,
#include "engine/ir/ops.def"
};
inline constexpr int kNumOpcodes = 0
#define TESSERA_ELEMENTWISE(...) +1
#define TESSERA_STRUCTURED(...) +1
#include "engine/ir/ops.def"
    ;

/// elementwise; source (of elements: no operands), move (each element is one of an operand), contract, reduce and
/// argreduce (along axes, to one element or its index), scan (to as many), rearrange (where data says); grid (this
/// program's place in it), memory (a Ref and an index), print (for people), control (regions), async (semaphores and
/// copies), thread (of kernels of threads: barriers, their copies and products), end (of a region); at lane level
/// launch (what is known when the kernel begins), ref (makes one), group (invocations together), packed (elements of 8
/// bits in words), matrix (products that subgroups make), report (to the host).
// clang-format off
enum class Family : uint8_t { elementwise, source, move, contract, reduce, argreduce, scan, rearrange, grid, memory,
  print, control, async, thread, end, launch, ref, group, packed, matrix, report };
// clang-format on
inline constexpr int kNumFamilies = static_cast<int>(Family::report) + 1;
std::string_view name(Family f);

inline constexpr std::array<Family, kNumOpcodes> kFamilies = {
#define TESSERA_ELEMENTWISE(...) Family::elementwise,
#define TESSERA_STRUCTURED(name, family, ...) Family::family,
#include "engine/ir/ops.def"
};
constexpr Family family(Opcode op) { return kFamilies[static_cast<size_t>(op)]; }

// The members of the families that code switches over: Move(op) where is_move(op), and so on.
#define TESSERA_MEMBER(name) name = static_cast<uint8_t>(Opcode::name)
enum class Move : uint8_t {
#define TESSERA_MOVE(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Rearrange : uint8_t {
#define TESSERA_REARRANGE(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Memory : uint8_t {
#define TESSERA_MEMORY(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Control : uint8_t {
#define TESSERA_CONTROL(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Async : uint8_t {
#define TESSERA_ASYNC(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Thread : uint8_t {
#define TESSERA_THREAD(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Launch : uint8_t {
#define TESSERA_LAUNCH(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class RefOp : uint8_t {
#define TESSERA_REF(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Packed : uint8_t {
#define TESSERA_PACKED(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Group : uint8_t {
#define TESSERA_GROUP(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
enum class Matrix : uint8_t {
#define TESSERA_MATRIX(name, ...) TESSERA_MEMBER(name),
#include "engine/ir/ops.def"
};
#undef TESSERA_MEMBER

enum class Level : uint8_t { tile, lane };
enum class Effect : uint8_t { pure, reads, writes, ordered };
enum class OperandRule : uint8_t { num, flt, int_, ibl, any, select, none };
/// Whether the rule allows the dtype (select: of its operands 1 and 2).
constexpr bool takes(OperandRule rule, DType t) {
  switch (rule) {
    case OperandRule::num: return t != DType::boolean;
    case OperandRule::flt: return is_float(t);
    case OperandRule::int_: return is_int(t);
    case OperandRule::ibl: return !is_float(t);
    case OperandRule::any:
    case OperandRule::select:
    case OperandRule::none: return true;
  }
  return true;
}
enum class ResultRule : uint8_t { same, pred, other, structured };

/// One row of ops.def.
struct OpInfo {
  std::string_view name;
  Family family;
  int arity;  // -1 for structured ops
  OperandRule operands;
  ResultRule result;
  bool commutative, associative, idempotent, keeps_dtype, transcendental;
  bool tile, lane;  // legal at that level
  Effect effect;
  double ulp = 0;
  std::string_view doc;
  double relaxed_ulp = ulp;  // on GPUs, unless strict
  std::string_view relaxed_doc = {};
};
const OpInfo& info(Opcode op);
inline std::string_view name(Opcode op) { return info(op).name; }
/// Nothing found: the optional is empty.
std::optional<Opcode> opcode_from_name(std::string_view name);

// -- what computes
constexpr bool is_elementwise(Opcode op) { return family(op) == Family::elementwise; }
inline bool is_comparison(Opcode op) { return info(op).result == ResultRule::pred && info(op).arity == 2; }
constexpr bool is_source(Opcode op) { return family(op) == Family::source; }
constexpr bool is_move(Opcode op) { return family(op) == Family::move; }
/// Of one operand: its elements elsewhere, some of them or often.
constexpr bool is_move_of_one(Opcode op) { return is_move(op) && op != Opcode::concatenate; }
constexpr bool is_reduce(Opcode op) { return family(op) == Family::reduce; }
constexpr bool is_argreduce(Opcode op) { return family(op) == Family::argreduce; }
constexpr bool is_scan(Opcode op) { return family(op) == Family::scan; }
/// Each element of the result by itself, from where its position says: what a lowering may evaluate where it is used.
constexpr bool is_index_function(Opcode op) {
  return is_elementwise(op) || is_source(op) || is_move(op) || op == Opcode::gather;
}
/// Line by line, or as the updates come.
constexpr bool is_rearranged(Opcode op) { return family(op) == Family::rearrange && op != Opcode::gather; }
constexpr bool is_grid(Opcode op) { return family(op) == Family::grid; }

// -- what is done to memory
/// Ops with a Ref and an index: what they do to the elements.
inline bool accesses_ref(Opcode op) { return family(op) == Family::memory; }
inline bool writes_ref(Opcode op) { return info(op).effect == Effect::writes; }
inline bool reads_ref(Opcode op) { return accesses_ref(op) && op != Opcode::store; }
/// Writes what it is given, whatever was there.
constexpr bool overwrites_ref(Opcode op) { return op == Opcode::store || op == Opcode::swap; }
constexpr bool is_atomic(Opcode op) { return op == Opcode::atomic_rmw || op == Opcode::atomic_cas; }
constexpr bool makes_ref(Opcode op) { return family(op) == Family::ref; }
constexpr bool is_alloc(Opcode op) {
  return op == Opcode::alloc_shared || op == Opcode::alloc_scratch || op == Opcode::alloc_program;
}

// -- what keeps its place
constexpr bool is_control(Opcode op) { return family(op) == Family::control; }
constexpr bool is_loop(Opcode op) { return op == Opcode::for_ || op == Opcode::while_; }
constexpr bool is_branch(Opcode op) { return op == Opcode::if_ || op == Opcode::switch_; }
constexpr bool is_async(Opcode op) { return family(op) == Family::async; }
constexpr bool is_copy(Opcode op) { return op == Opcode::copy_start || op == Opcode::copy_wait; }
/// Of those, the ops on semaphores alone.
constexpr bool is_semaphore_op(Opcode op) { return is_async(op) && !is_copy(op); }
/// Of kernels of threads alone: barriers, copies between gmem and smem, wgmma.
constexpr bool is_thread_op(Opcode op) { return family(op) == Family::thread; }
constexpr bool is_thread_copy(Opcode op) { return op == Opcode::copy_gmem_to_smem || op == Opcode::copy_smem_to_gmem; }
constexpr bool is_thread_barrier_op(Opcode op) { return op == Opcode::barrier_arrive || op == Opcode::barrier_wait; }
/// Of those, how many Refs (with wgmma's left operand, which may be a value) an op names, each with an index.
constexpr int num_thread_places(Opcode op) {
  return is_thread_barrier_op(op)                                 ? 1
         : op == Opcode::copy_smem_to_gmem                        ? 2
         : op == Opcode::copy_gmem_to_smem || op == Opcode::wgmma ? 3
                                                                  : 0;
}
/// Writes for people: debug_print and check.
constexpr bool is_print(Opcode op) { return family(op) == Family::print; }
constexpr bool is_launch(Opcode op) { return family(op) == Family::launch; }
constexpr bool is_group(Opcode op) { return family(op) == Family::group; }
/// Words that hold four elements of 8 bits.
constexpr bool is_packed(Opcode op) { return family(op) == Family::packed; }
/// On matrices; pack, which makes what their tiles in memory consist of, belongs to each invocation.
constexpr bool is_matrix(Opcode op) { return family(op) == Family::matrix && op != Opcode::pack; }
constexpr bool is_matrix_access(Opcode op) { return op == Opcode::matrix_load || op == Opcode::matrix_store; }
/// What the workgroups of one program do together.
constexpr bool is_program_op(Opcode op) {
  return op == Opcode::program_barrier || op == Opcode::mbarrier_arrive || op == Opcode::mbarrier_copies ||
         op == Opcode::mbarrier_wait;
}
constexpr bool is_barrier(Opcode op) {
  return op == Opcode::barrier || op == Opcode::subgroup_barrier || is_program_op(op);
}
/// Copies of boxes of arrays to shared memory, which the workgroup begins and waits for together.
constexpr bool is_tensor_op(Opcode op) { return op == Opcode::tensor_load || op == Opcode::tensor_wait; }
constexpr bool is_subgroup_op(Opcode op) {
  return (is_group(op) && op != Opcode::barrier && !is_program_op(op) && !is_tensor_op(op)) || is_matrix(op);
}

// -- how elements become one
/// What changes no element: its bits are reference::identity's.
enum class Identity : uint8_t { zero, one, least, greatest, ones };
/// An elementwise op by which reductions and the like combine elements.
struct Combiner {
  Identity identity;
  bool wide;    // floats narrower than f32 in f32, rounded once
  bool atomic;  // a kind of atomic_rmw
  DType accumulator(DType t) const { return wide && is_narrow_float(t) ? DType::f32 : t; }
};
/// Of an elementwise op; null if nothing is combined by it.
const Combiner* combiner(Opcode op);
/// The elementwise op that combines two elements of a reduction or scan (reduce_sum and cumsum: add), or whose result
/// an argmax finds (max). InternalError for others.
Opcode combining_op(Opcode op);

}  // namespace tessera::ir
