// A lane-level kernel flattened for the lane-level interpreter: one list of instructions with explicit jumps, so that
// an invocation is a program counter and a row of registers, and may stop at any barrier or subgroup op. Internal to
// interpreter.cpp; nothing else reads it.
#pragma once
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "codegen/lane/watched.h"
#include "engine/ir/kernel.h"
#include "engine/ir/reference.h"
#include "engine/passes/interval.h"

namespace tessera::lane {

// clang-format off
enum class Code : uint8_t {
  eval1, eval2, eval3,                                    // aux: an entry of Bytecode::functions
  add_i32, sub_i32, mul_i32, add_i64, mul_i64,            // the same results without the detour
  eq_i32, ne_i32, lt_i32, le_i32, gt_i32, ge_i32, min_i32, max_i32, i32_to_i64,
  add_f32, sub_f32, mul_f32, and_bool, or_bool, not_bool, select,
  // atomic: op is the kind, or atomic_cas; d the value, c what it is compared with
  view, load, store, atomic,
  move, moves,                                            // moves: aux is an entry of Bytecode::moves, all at once
  jump, branch_false, switch_,                            // switch_: aux: the first of d Bytecode::targets
  for_begin, for_head, for_next, iteration,               // iteration: counts one of a while
  report,                                                 // aux: the bits
  within,                                                 // RunOptions::ranges; aux: an entry of Bytecode::claims
  watch,                                                  // RunOptions::watched; aux: an entry of Bytecode::watches
  dot4,                                                   // operand and result are the dtypes of a and b
  tensor_load,                                            // d: an entry of Bytecode::tensors
  // barrier: of a tensor_wait a is the number of its barrier
  barrier, subgroup_barrier, reduce, scan, shuffle, shuffle_xor,
  pack,                                                   // n operands, in a, b, c, d
  // d: an entry of Bytecode::matrices; aux: a sync
  matrix_fill, matrix_load, matrix_store, matrix_elements, matrix_of, multiply, multiply_add,
  end
};
// clang-format on

inline constexpr uint32_t kNone = UINT32_MAX;

struct Instr {
  Code code = Code::end;
  ir::Opcode op = ir::Opcode::yield;  // eval, reduce
  DType operand = DType::f32, result = DType::f32;
  uint32_t dst = kNone, a = kNone, b = kNone, c = kNone, d = kNone;
  uint32_t aux = 0;         // jump target, place, moves, sync or xor mask
  uint32_t source = kNone;  // OpId::index
  uint32_t align = 1;       // load, store: the element's position in its arg or arena must be a multiple
};

/// Memory that loads and stores reach.
struct Place {
  struct Arg {  // its length comes with the call
    uint32_t number;
  };
  struct Arena {  // a part of shared memory, or of scratch
    bool shared;
    int64_t offset;  // bytes
    int64_t length;  // elements
  };
  struct Report {};
  std::variant<Arg, Arena, Report> what;
  DType dtype = DType::f32;
  int64_t stride = 1;  // bytes

  const Arg* arg() const { return std::get_if<Arg>(&what); }
  const Arena* arena() const { return std::get_if<Arena>(&what); }
  bool is_shared() const { return arena() && arena()->shared; }
};

/// What a register must lie in.
struct Claim {
  ir::Value value;
  Interval range;
  int shift = 0;  // 64 - bits
  bool is_signed = false;
};

/// A matrix op. Of a matrix, lane l of the subgroup holds elements l, l + size of the subgroup, ... of its rows, in
/// registers that lie behind each other.
struct MatrixOp {
  /// matrix_load, matrix_store: where the matrix lies.
  struct Memory {
    uint32_t place = 0;
    int64_t stride = 0;  // words
    bool by_columns = false, pieces = false, swizzled = false;
    /// Of what lies at byte `along` of row (or column) `across`, from the matrix's first.
    int64_t word(int64_t across, int64_t along) const {
      if (swizzled)
        return along / 128 * stride + across * 32 + ((along % 128 / 16) ^ (across % 8)) * 4 + along % 16 / 4;
      return pieces ? along / 16 * stride + across * 4 + along % 16 / 4 : across * stride + along / 4;
    }
  };
  /// multiply_add: dtypes of the factors, what is contracted, which are all columns of the left one, and the columns of
  /// the right one. It may take parts: from a row and a column of the right one on, and of a left one of 64 rows the
  /// subgroup's among four.
  struct Product {
    DType a = DType::f32, b = DType::f32;
    int64_t depth = 0, right_cols = 0;
    int64_t right_row = 0, right_col = 0;
    bool of_four = false;
    uint64_t add(DType t, uint64_t sum, uint64_t x, uint64_t y) const;  ///< a sum of dtype t, x of dtype a, y of b
  };
  /// matrix_elements, matrix_of: the registers of a lane's elements, or words.
  struct Lanes {
    std::vector<uint32_t> registers = {};
    bool words = false;
  };
  int64_t rows = 0, cols = 0;  // of the matrix, or of a product's result
  DType dtype = DType::f32;
  std::variant<std::monostate, Memory, Product, Lanes> what = {};
};

/// What a tensor_load copies: `count` boxes, one behind the other, each `box.back()` elements further along.
struct TensorOp {
  uint32_t array = 0, to = 0;  // places
  int64_t count = 1;
  Shape box;
  std::vector<uint32_t> at;  // registers of the first coordinates
};

/// Which iterations of the enclosing loops an invocation is in when it reaches a barrier or subgroup op.
struct Sync {
  std::vector<uint32_t> counters;  // registers
};

struct Bytecode {
  std::vector<Instr> code;
  std::vector<Place> places;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> moves;  // (to, from)
  std::vector<uint32_t> targets;
  std::vector<Sync> syncs;
  std::vector<Claim> claims;
  std::vector<Watch> watches;  // as RunOptions::watched
  std::vector<MatrixOp> matrices;
  std::vector<TensorOp> tensors;
  std::vector<Instr> once;                           // within, of constants
  std::vector<reference::ScalarFunction> functions;  // aux of eval1 to eval3
  std::vector<uint64_t> registers;                   // their initial contents; constants are never written
  // Registers that the machine fills in: by what they hold.
  std::vector<uint32_t> workgroup_index, num_workgroups, local_index, subgroup_id, lane_id;
  std::vector<std::pair<uint32_t, int64_t>> extents;  // (register, index)
  std::vector<bool> written;                          // args that some store reaches
  int64_t scratch_cell = 1;                           // bytes: the least element size in scratch
  bool subgroup_ops = false;
};

/// Throws InternalError where the kernel is too malformed to run (run verify_lane for all that is wrong with it).
Bytecode flatten(const ir::Kernel& k, const std::vector<Bounds>& ranges = {},
                 const std::vector<WatchedSum>& watched = {});

}  // namespace tessera::lane
