// From a statement to an Instr: operands become slots, modifiers are used up one by one (what is left over is an
// error), and each family of opcodes has its file (ops_*.cpp). Read next: decode.cpp.
#pragma once
#include <map>
#include <string>
#include <unordered_map>

#include "tests/ptx/machine.h"

namespace tessera::ptx {

class Decoder;
using Decode = void (*)(Decoder&);
using Opcodes = std::unordered_map<std::string, Decode>;
void add_integer_ops(Opcodes& o);
void add_float_ops(Opcodes& o);
void add_convert_ops(Opcodes& o);
void add_move_ops(Opcodes& o);
void add_control_ops(Opcodes& o);
void add_memory_ops(Opcodes& o);
void add_atomic_ops(Opcodes& o);
void add_warp_ops(Opcodes& o);
void add_barrier_ops(Opcodes& o);
void add_matrix_ops(Opcodes& o);
void add_mbarrier_ops(Opcodes& o);
void add_wgmma_ops(Opcodes& o);

class Decoder {
 public:
  Decoder(Code& c, const Module& m, const Function& f, uint32_t first_slot)
      : code(c), module(m), function(f), first_slot_(first_slot) {}
  void statement(uint32_t index);

  // ---- modifiers
  /// Whether the word is among the modifiers that are not used up; uses it up.
  bool take(const std::string& word);
  /// Any of them: which one, else -1.
  int take_any(const std::vector<std::string>& words);
  /// The next type among them; `none` if there is none.
  Type type();
  Type need_type();
  Space space(Space otherwise);
  Round rounding(Round otherwise, bool* given = nullptr);
  /// .relaxed, .acquire, .release, .acq_rel, .volatile, .weak, with their scope: flags kAcquire ...
  uint16_t order();
  void ignore(const std::vector<std::string>& words);  // cache operators and hints
  [[noreturn]] void fail(const std::string& what) const;

  // ---- operands
  size_t operands() const { return s->operands.size(); }
  const Operand& operand(size_t k) const;
  void need_operands(size_t n) const;
  /// The slot of a source of so many bits; `t` says how a number is meant.
  uint32_t source(size_t k, Type t, bool any_width = false);
  uint32_t source(const Operand& o, Type t, bool any_width = false);
  /// The slot of a result. `_` is a slot that nobody reads.
  uint32_t result(size_t k, Type t, bool any_width = false);
  uint32_t result(const Operand& o, Type t, bool any_width = false);
  uint32_t predicate(const Operand& o) { return source(o, Type::pred); }
  uint32_t constant(uint64_t bits);
  uint32_t register_width(const Operand& o) const;
  /// [register + offset], [variable + offset]: i->a and i->imm, for the space; param variables of a body become local.
  void address(const Operand& o, Space& space, uint32_t& slot, uint64_t& offset);
  void address(size_t k) { address(operand(k), i->space, i->a, i->imm); }
  /// Appends slots to Code::lists.
  void begin_list() { i->list = static_cast<uint32_t>(code.lists.size()); }
  void append(uint32_t slot) {
    code.lists.push_back(slot);
    i->count = static_cast<uint32_t>(code.lists.size()) - i->list;
  }
  /// Where a label is: fixed up when the whole function is decoded.
  void jump(const std::string& label);
  uint64_t address_of(uint32_t variable, Space* space = nullptr) const;
  uint32_t global_address(uint32_t variable, uint64_t offset);
  /// Narrow elements that an instruction accesses.
  void accesses(uint32_t bytes);

  Code& code;
  const Module& module;
  const Function& function;
  const Statement* s = nullptr;
  Instr* i = nullptr;
  struct Jump {
    uint32_t pc;
    size_t successor;
    std::string label;
    uint32_t scope;
  };
  std::vector<Jump> jumps;
  struct Call {
    uint32_t pc;
    std::string callee;
  };
  std::vector<Call> calls;
  std::vector<uint32_t> places;  // by statement: pc

 private:
  std::vector<bool> used_;
  uint32_t first_slot_;
  std::map<uint64_t, uint32_t> constants_;
  std::map<std::pair<int, int>, uint32_t> specials_;
};

/// Sums of products as tensor cores may make them: exact, or cut off after each of so many.
/// `first` of `n`; into f32, f16 or f64.
double accumulate(const Machine& m, Type into, double c, const double* a, const double* b, size_t n);

enum Order : uint16_t { kStrong = 1, kAcquire = 2, kRelease = 4, kVolatile = 8, kReadOnly = 16 };

/// Before and after an access with an order.
void before_access(Thread& t, const Instr& i, const Access& a, How how);
void after_access(Thread& t, const Instr& i, const Access& a, How how);
/// Registers as addresses.
inline uint64_t address_in(Thread& t, const Instr& i, uint32_t slot, uint64_t offset) {
  const Slot base = t.r[slot];
  if (base.poison) t.m->stop(Fault::poison, t, i, "its address hangs on what nobody has written");
  return base.bits + offset;
}

}  // namespace tessera::ptx
