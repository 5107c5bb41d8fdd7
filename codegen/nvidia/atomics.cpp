// Atomics of arrays that programs running at once update, and of shared memory. Integers of 32 and 64 bits have
// instructions; everything else is a loop that tries to swap the word that holds the element until no other invocation
// has changed it meanwhile. A word of narrow elements never leaves its array's memory, which is rounded up to whole
// words.
#include "codegen/lane/loops.h"
#include "codegen/nvidia/emitter.h"
#include "engine/base/error.h"

namespace tessera::nvidia {

using ir::Opcode;

namespace {
/// "add.u32", "min.s64", "and.b32".
std::string code_of(Opcode kind, DType t) {
  const std::string bits = std::to_string(8 * size_bytes(t));
  if (kind == Opcode::atomic_cas) return "cas.b" + bits;
  if (kind == Opcode::swap) return "exch.b" + bits;
  const char* name = kColumns.atom[static_cast<size_t>(kind)];
  if (kind == Opcode::add) return name + (".u" + bits);
  if (kind == Opcode::max || kind == Opcode::min) return name + std::string(is_signed_int(t) ? ".s" : ".u") + bits;
  return name + (".b" + bits);
}
}  // namespace

/// The old value. An atomic whose old value is unused orders nothing; one whose old value is used may be a flag or a
/// ticket.
V Emitter::atomic(const std::string& code, Reg r, const std::string& place, const std::vector<V>& values, bool used) {
  const V old = f_.fresh(r);
  std::string text = std::string("atom.") + (used ? "acq_rel" : "relaxed") + ".gpu.global." + code + " " +
                     f_.operand(old) + ", " + place;
  for (V v : values) text += ", " + f_.in_register(v);
  f_.line(text);
  return old;
}

/// Relaxed code lets the device add, which flushes subnormals of f32.
bool Emitter::adds_floats(const ir::Op& op, DType t) const {
  return atomic_kind(op) == Opcode::add && (t == DType::f64 || (t == DType::f32 && f_.relaxed));
}

void Emitter::emit_atomic(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  if (r.space == ir::MemorySpace::shared) {
    if (op.code != Opcode::atomic_rmw || !is_int(r.dtype) || size_bytes(r.dtype) != 4)
      throw InternalError(k_.name + ": nvidia: " + std::string(ir::name(op.code)) + " of shared memory", op.loc);
    const std::string place = shared_address(op, r);
    const V old = f_.fresh(Reg::u32);
    // What comes before and after is the barriers' concern.
    f_.line("atom.relaxed.cta.shared." + code_of(atomic_kind(op), r.dtype) + " " + f_.operand(old) + ", " + place +
            ", " + f_.in_register(bits(get(op.operands.at(1)))));
    return set(op.results.at(0), old);
  }
  const V address = element_address(op, r);
  if (const DType t = k_.type(op.operands.at(1)).dtype; adds_floats(op, t)) {
    const V value = get(op.operands[1]);
    const bool used = used_values_[op.results.at(0).index];
    return set(op.results[0], atomic(t == DType::f32 ? "add.f32" : "add.f64", value.reg, at(address), {value}, used));
  }
  if (lane::atomic_by_loop(k_, op)) {
    const Register old = atomic_loop(op, address);
    return set(op.results.at(0), old.v, old.raw);
  }
  const DType t = k_.type(op.operands.at(1)).dtype;
  const V value = bits(get(op.operands.at(1)));
  std::vector<V> values{value};
  if (op.code == Opcode::atomic_cas) values = {value, bits(get(op.operands.at(2)))};
  if (op.code == Opcode::atomic_cas) std::swap(values[0], values[1]);  // what is compared with comes first
  const V old =
      atomic(code_of(atomic_kind(op), t), value.reg, at(address), values, used_values_[op.results.at(0).index]);
  set(op.results.at(0), is_float(t) ? floating(old) : old);
}

Emitter::AtomicWord Emitter::atomic_word(V address, Reg r, bool used) {
  const std::string place = at(address);
  return {[this, place, r] {
            const V word = f_.fresh(r);
            f_.line(std::string("ld.relaxed.gpu.global.") + bits_type(r) + " " + f_.operand(word) + ", " + place);
            return word;
          },
          [this, place, r, used](V now, V expected) {
            return atomic(r == Reg::u64 ? "cas.b64" : "cas.b32", r, place, {expected, now}, used);
          }};
}

namespace {
struct Part {
  V word, shift;  // the address of its word, and of the element's lowest bit there
  uint32_t mask;
};
Part part_of(V address, DType t) {
  const V offset = to_uint(address, Reg::u32) & 3;
  return {address & Literal(~uint64_t{3}), offset << 3, size_bytes(t) == 1 ? 0xffu : 0xffffu};
}
}  // namespace

// Elements in words that atomics of others take as a whole.
Emitter::Register Emitter::load_part(const ir::Op& op, const Ref& r) {
  const Part p = part_of(element_address(op, r), r.dtype);
  const V word = f_.fresh(Reg::u32);
  f_.line("ld.relaxed.gpu.global.b32 " + f_.operand(word) + ", " + at(p.word));
  const V raw = (word >> p.shift) & p.mask;
  return {from_memory_bits(raw, r.dtype), is_narrow_float(r.dtype) ? raw : V{}};
}

void Emitter::store_part(const ir::Op& op, const Ref& r, V raw) {
  const Part p = part_of(element_address(op, r), r.dtype);
  const V others = ~(literal(p.shift, p.mask) << p.shift);
  atomic("and.b32", Reg::u32, at(p.word), {others}, false);
  atomic("or.b32", Reg::u32, at(p.word), {(raw & p.mask) << p.shift}, false);
}

}  // namespace tessera::nvidia
