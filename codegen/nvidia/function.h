// PTX behind the expansions' Sink (codegen/expand/sink.h): each primitive as a line of text. An operand is a register
// or a literal. Values that control flow merges are registers that each side writes. Read next: function.cpp,
// instructions.h.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/expand/sink.h"
#include "codegen/nvidia/instructions.h"
#include "engine/base/function.h"

namespace tessera::nvidia {

using namespace expand;

class Function final : public Sink {
 public:
  Function(const Target& t, bool is_relaxed)
      : Sink(t, is_relaxed), converts_f8_(std::stoi(t.chip.substr(3)) >= 89), names_(1) {}

  V make_bits(Reg r, uint64_t bits) override;
  V boolean(bool v) override { return make_bits(Reg::boolean, v); }
  V apply(Prim p, Reg result, const std::vector<V>& a) override;
  std::array<V, 2> product(V a, V b) override;
  V row(ir::Opcode op, DType operand, Reg result, const std::vector<V>& a) override;
  bool roots_are_total() const override { return true; }
  V power_of_e(V x) override;
  bool converts(DType t) const override;
  V rounded(V v, DType t) override;
  V narrow_bits(V v, DType t) override;
  V rounded_pair(V low, V high, DType t);  ///< a word of both, if both are rounded to t, of 16 bits; else no value
  V widened(V raw, DType t) override;
  std::vector<V> if_else(V c, FunctionRef<std::vector<V>()> then_body,
                         FunctionRef<std::vector<V>()> else_body) override;
  void when(V c, FunctionRef<void()> body) override;
  std::vector<V> while_loop(const std::vector<V>& init, FunctionRef<V(const std::vector<V>&)> cond,
                            FunctionRef<std::vector<V>(const std::vector<V>&)> body) override;

  V fresh(Reg r);  ///< a register that nothing has written
  /// A type of `n` registers at once, which control flow merges as one value: what a lane has of a matrix.
  Reg several(Reg part, uint32_t n);
  const std::vector<V>& parts(V v) const { return parts_.at(v.id); }
  std::string operand(V v) const;                                        ///< its register or literal
  std::string in_register(V v);                                          ///< its register; a literal is moved into one
  std::optional<uint64_t> known(V v) const;                              ///< the bits of a constant
  void line(const std::string& text);                                    ///< an instruction, without its semicolon
  V op(const std::string& code, Reg r, const std::vector<V>& operands);  ///< code result, operands
  void move(V to, V from);
  V in_halves(V v, FunctionRef<V(V)> f);  ///< f of both words of a 64-bit value
  std::string label();                    ///< a new one
  void place(const std::string& label);
  std::string half_register();  ///< a fresh one of 16 bits

  /// All instructions, after the declarations of the registers.
  std::string body() const;

 private:
  V negated(V a);  ///< -a, of 32 bits
  V quotient(Reg r, const std::vector<V>& a);

  const bool converts_f8_;  // has instructions for them
  std::string text_;
  std::vector<std::string> names_;  // by id
  std::map<std::pair<Reg, uint64_t>, V> constants_;
  std::map<uint32_t, uint64_t> bits_;               // of constants, by id
  std::map<std::pair<uint32_t, DType>, V> narrow_;  // of rounded values, the bits that they were made of
  std::map<std::pair<uint32_t, DType>, V> wide_;    // of those of 16 bits, what was rounded
  std::array<uint32_t, 5> registers_{};
  std::vector<std::pair<Reg, uint32_t>> several_;  // from Reg::opaque on
  std::map<uint32_t, std::vector<V>> parts_;       // of values of such types, by id
  uint32_t halves_ = 0, labels_ = 0;
};

const char* bits_type(Reg r);  ///< "b32"

}  // namespace tessera::nvidia
