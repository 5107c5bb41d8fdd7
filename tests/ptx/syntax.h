// The syntax of a PTX module: variables, functions, statements with their operands. Names are resolved, nothing else is
// understood: what an instruction does is decided when it is decoded. Read next: parse.cpp, decode.h.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::ptx {

constexpr uint32_t kNone = UINT32_MAX;

/// What is wrong with a text, and where: "line 12: ...".
struct Error : std::runtime_error {
  Error(uint32_t at, const std::string& what)
      : std::runtime_error("line " + std::to_string(at) + ": " + what), line(at) {}
  uint32_t line;
};

// clang-format off
enum class Type : uint8_t { none, pred, b8, b16, b32, b64, b128, u8, u16, u32, u64, s8, s16, s32, s64, f16, f16x2, bf16,
  bf16x2, tf32, f32, f64, e4m3, e5m2, e4m3x2, e5m2x2, s16x2, u16x2, f32x2, u4, s4, b1 };
// clang-format on
Type type_of(const std::string& name);  // without the dot; none: it is no type
uint32_t width_of(Type t);              // bits
bool is_float(Type t);
bool is_signed(Type t);

enum class Space : uint8_t { generic, reg, global, shared, local, param, constant };

struct Variable {
  std::string name;
  Space space = Space::global;
  Type type = Type::b8;
  uint64_t size = 0, alignment = 1;  // of an external one of unknown size, 0
  bool external = false;
  std::vector<uint8_t> initial;                             // empty: not initialised
  std::vector<std::pair<uint64_t, std::string>> addresses;  // of other variables, as initial values
  uint32_t line = 0;
};

// clang-format off
enum class Special : uint8_t { tid, ntid, ctaid, nctaid, laneid, warpid, nwarpid, smid, nsmid, gridid, clock, clock64,
  globaltimer, lanemask_eq, lanemask_lt, lanemask_le, lanemask_gt, lanemask_ge, warp_size, dynamic_smem_size,
  total_smem_size, clusterid, nclusterid, cluster_ctaid, cluster_nctaid, cluster_ctarank, cluster_nctarank,
  is_explicit_cluster };
// clang-format on

struct Operand {
  enum Kind : uint8_t {
    reg,
    integer,
    real32,
    real64,
    variable,
    label,
    special,
    address,
    vector,
    pair,
    sink,
    params
  } kind = sink;
  bool negated = false;          // !%p, or -%r in some operands
  uint32_t index = kNone;        // of the register in Function::registers, or of the variable in Module::variables
  uint64_t bits = 0;             // of a number
  int64_t offset = 0;            // address, variable
  Special which = Special::tid;  // special
  uint8_t component = 0;         // special
  std::string name;              // as written
  std::vector<Operand> parts;    // vector, pair, params; of an address: its base, and then what else is in the brackets
};

struct Statement {
  std::string opcode;              // before the first dot
  std::vector<std::string> words;  // after it
  uint32_t guard = kNone;
  bool guard_negated = false;
  std::vector<Operand> operands;
  uint32_t line = 0, scope = 0;
  std::string text;
};

struct Register {
  std::string name;
  Type type = Type::b32;
};

struct Function {
  std::string name;
  bool entry = false, body = false;
  std::vector<uint32_t> params, results;  // variables
  uint64_t param_bytes = 0;               // of an entry: params one after the other, aligned
  std::vector<uint64_t> param_offsets;
  std::vector<Register> registers;
  std::vector<Statement> code;
  std::vector<uint32_t> scope_parents;                                             // by scope
  std::vector<std::unordered_map<std::string, uint32_t>> labels;                   // by scope: index into code
  std::vector<std::unordered_map<std::string, std::vector<std::string>>> targets;  // .branchtargets
  uint32_t reqntid[3] = {0, 0, 0}, maxntid[3] = {0, 0, 0}, reqcluster[3] = {0, 0, 0};
  uint32_t maxnreg = 0, line = 0;

  /// The statement that a label stands before, seen from `scope`; kNone: there is none.
  uint32_t find_label(const std::string& name, uint32_t scope) const;
};

struct Module {
  std::string version, target;
  std::vector<Variable> variables;
  std::vector<Function> functions;

  const Function* find(const std::string& name) const;
};

/// Throws Error.
Module parse(const std::string& text);

}  // namespace tessera::ptx
