// A SPIR-V module decoded for running: straight arrays of instructions on numbered slots. A scalar has one slot, a
// vector or struct of scalars one per component, so that taking one out costs nothing. Phis are moves on the edges
// between blocks. It knows nothing of memory or invocations.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::judge {

constexpr uint32_t kNone = UINT32_MAX;

/// What a slot holds. Integers are zero-extended, floats are their bits. `poison`: the bits that hang on memory nobody
/// has written.
struct Slot {
  uint64_t bits = 0, poison = 0;
};

// clang-format off
enum class Code : uint8_t {
  move,
  // Integers and bools of `width` bits.
  add, sub, mul, udiv, sdiv, umod, srem, smod, and_, or_, xor_, not_, neg, shl, shr, sar, eq, ne, ult, ule, slt, sle,
  umul_extended, smul_extended, add_carry, sub_borrow, sextract, uextract, sdot, udot, sudot, bit_count, bit_reverse,
  uconvert, sconvert,
  // Floats of `width` bits; conversions say the other width in `n`.
  fadd, fsub, fmul, fdiv, fneg, fcompare, is_nan, is_inf, fconvert, f_to_u, f_to_s, u_to_f, s_to_f, glsl,
  select, bitcast, chain,
  load, store, load_shared, store_shared, load_push, input, atomic,
  jump, branch, choose, barrier, subgroup, end, unreachable
};
// clang-format on

/// What `aux` of an fcompare holds: true where the operands are so, these or-ed.
enum Compare : uint32_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

struct Instr {
  Code code = Code::move;
  uint8_t width = 32;  // of the operands, or of one component
  uint8_t n = 1;       // components; fconvert and its like: the result's width
  uint8_t flags = 0;   // of accesses
  uint32_t dst = kNone, a = kNone, b = kNone, c = kNone, aux = 0;
  uint32_t word = 0;  // where it is in the module
};
enum AccessFlags : uint8_t { kNonPrivate = 1, kShared = 2, kPrivateBuffer = 4 };

/// From one block to another.
struct Edge {
  uint32_t target = kNone;        // of the code
  uint32_t first = 0, count = 0;  // moves
  bool clash = false;             // a move's source is another's destination
  bool back = false;
  uint32_t enters = kNone, leaves = kNone;  // loops
};
struct Loop {
  uint32_t parent = kNone;
  std::vector<uint32_t> around;  // the loops that it is in, outermost first
};
struct Choice {
  uint32_t otherwise = 0;  // edges
  std::vector<std::pair<uint32_t, uint32_t>> cases;
};
constexpr uint32_t kBfloat16 = 0, kFloat8E4M3 = 4214, kFloat8E5M2 = 4215;  // FPEncoding
/// An operation on matrices of a subgroup, lane l of which holds elements l, l + its size, ... of the rows.
struct MatrixOp {
  struct Part {
    uint32_t slot = kNone, rows = 0, cols = 0, width = 32;
    bool is_float = false, is_signed = false;
    uint32_t encoding = kNone;  // of a float that is no IEEE one: kBfloat16, kFloat8E4M3, kFloat8E5M2
  };
  Part a, b, c, result;
  uint32_t pointer = kNone, stride = kNone;  // slots
  uint32_t unit = 4;                         // bytes of what the pointer points to
  bool by_columns = false;
};
struct Line {
  uint32_t code = 0;  // from this instruction on
  std::string file;
  uint32_t line = 0;
};

struct Module {
  std::vector<uint32_t> words;
  std::vector<Instr> code;
  std::vector<Edge> edges;
  std::vector<std::pair<uint32_t, uint32_t>> moves;  // destination, source
  std::vector<Loop> loops;
  std::vector<Choice> choices;
  std::vector<std::vector<uint32_t>> loops_around;  // by Instr::aux of barrier and b of subgroup
  std::vector<MatrixOp> matrices;                   // by Instr::c of subgroup
  std::vector<Slot> slots;                          // what each holds at first
  std::vector<Line> lines;
  std::vector<std::string> problems;  // seen without running
  uint32_t local_size[3] = {1, 1, 1};
  uint64_t shared_bytes = 0;
  uint64_t push_bytes = 0;  // that the module declares
  bool waits = false;       // has barriers or subgroup operations
  bool has_atomics = false;
  bool rounds_even[3] = {false, false, false};  // by width 16, 32, 64

  std::string text(uint32_t at) const;  // of the instruction, with its line
};

/// `subgroup_size`: among how many lanes a matrix is dealt.
Module decode(const std::vector<uint32_t>& spirv, uint32_t subgroup_size);
/// SPV_KHR_cooperative_matrix, which some systems' headers do not have.
constexpr uint32_t kTypeMatrix = 4456, kMatrixLoad = 4457, kMatrixStore = 4458, kMatrixMultiplyAdd = 4459,
                   kMatrixFill = 0x10000;  // a CompositeConstruct
/// One instruction, disassembled if SPIRV-Tools are there.
std::string instruction_text(const std::vector<uint32_t>& words, size_t at);

}  // namespace tessera::judge
