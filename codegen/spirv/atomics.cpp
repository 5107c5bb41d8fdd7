// Atomics of arrays that programs running at once update. 32 and 64-bit integers have instructions, but for 64-bit
// operands that an operation of doubles may have made (may_be_double in codegen/lane/loops.cpp). Everything else is a
// loop that tries to swap the word that holds the element until it has not changed meanwhile. A word of narrow
// elements never leaves its array's memory, which is rounded up to whole words; neighbours are written back as they
// were, and a neighbour's change makes the swap fail.
#include "codegen/lane/loops.h"
#include "codegen/spirv/builder/instructions.h"
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

using ir::Opcode;

namespace {
Opcode kind_of(const ir::Op& op) {
  return op.code == Opcode::atomic_cas ? op.code : static_cast<Opcode>(op.attr(ir::Attr::kind));
}

spv::Op native(Opcode kind, DType t) {
  if (kind == Opcode::atomic_cas) return spv::OpAtomicCompareExchange;
  return kind == Opcode::swap
             ? spv::OpAtomicExchange
             : kInstructions.atomic[static_cast<size_t>(kind)].of(is_signed_int(t) ? DType::i32 : DType::u32);
}

// The widest scope that every device has. An update whose old value is unused orders nothing; one that hands it on
// may be a flag or a ticket.
const uint32_t kScope = spv::ScopeQueueFamily;
const uint32_t kRelaxed = spv::MemorySemanticsMaskNone;
const uint32_t kAcquire =
    spv::MemorySemanticsAcquireMask | spv::MemorySemanticsUniformMemoryMask | spv::MemorySemanticsMakeVisibleMask;
const uint32_t kAcquireRelease = spv::MemorySemanticsAcquireReleaseMask | spv::MemorySemanticsUniformMemoryMask |
                                 spv::MemorySemanticsMakeAvailableMask | spv::MemorySemanticsMakeVisibleMask;
}  // namespace

void Emitter::emit_atomic(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  if (r.space == ir::MemorySpace::shared) {
    if (op.code != Opcode::atomic_rmw || !is_int(r.dtype) || size_bytes(r.dtype) != 4)
      throw InternalError(k_.name + ": spirv: " + std::string(ir::name(op.code)) + " of shared memory", op.loc);
    const Id type = f_.type(Reg::u32), at = shared_pointer(r, element_index(op), 0);
    const auto word = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
    // What comes before and after is the barriers' concern.
    return set(op.results.at(0),
               {&f_,
                m_.op(native(kind_of(op), r.dtype), type,
                      {at, word(spv::ScopeWorkgroup), word(kRelaxed), bits(get(op.operands.at(1))).id}),
                Reg::u32});
  }
  if (size_bytes(r.dtype) == 8) {
    need(op, target_.int64_atomics, r.dtype, "shaderBufferInt64Atomics");
    m_.capability(spv::CapabilityInt64Atomics);
  }
  const V address = element_address(op, r);
  if (lane::atomic_by_loop(k_, op)) {
    const Register old = atomic_loop(op, address);
    return set(op.results.at(0), old.v, old.raw);
  }
  const V old = atomic_update(op, address);
  set(op.results.at(0), is_float(k_.type(op.operands.at(1)).dtype) ? floating(old) : old);
}

// By one instruction, on the element's bits.
V Emitter::atomic_update(const ir::Op& op, V address) {
  const V value = bits(get(op.operands.at(1)));
  const Id type = f_.type(value.reg), at = pointer(address, type);
  const auto word = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
  const bool ordered = used_values_[op.results.at(0).index];
  const Id scope = word(kScope), semantics = word(ordered ? kAcquireRelease : kRelaxed);
  const spv::Op code = native(kind_of(op), k_.type(op.operands.at(1)).dtype);
  if (op.code == Opcode::atomic_cas)
    return {
        &f_,
        m_.op(code, type,
              {at, scope, semantics, word(ordered ? kAcquire : kRelaxed), value.id, bits(get(op.operands.at(2))).id}),
        value.reg};
  return {&f_, m_.op(code, type, {at, scope, semantics, value.id}), value.reg};
}

Emitter::Register Emitter::atomic_loop(const ir::Op& op, V address) {
  const DType t = k_.type(op.operands.at(1)).dtype;
  const int64_t size = size_bytes(t);
  const Reg reg = size == 8 ? Reg::u64 : Reg::u32;
  V shift;
  if (size < 4) {
    shift = (to_uint(address, Reg::u32) & 3) << 3;
    address = address & Literal(~uint64_t{3});
  }
  const Id type = f_.type(reg), at = pointer(address, type);
  const auto number = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
  const bool ordered = used_values_[op.results.at(0).index];
  const uint32_t mask = size == 1 ? 0xff : 0xffff;

  const auto element = [&](V word) -> Register {
    if (size >= 4) return {is_float(t) ? floating(word) : word, {}};
    const V low = (word >> shift) & mask;
    return {from_memory_bits(low, t), is_narrow_float(t) ? low : V{}};
  };
  const auto memory = [&](V v, V raw) -> V {
    if (size >= 4) return bits(v);
    return (raw.id ? raw : memory_bits(v, t)) & mask;
  };
  const Opcode kind = kind_of(op);
  const V value = get(op.operands.at(1)), raw = registers_[op.operands[1].index].raw;
  const auto next = [&](V word) -> V {
    const V old = element(word).v;
    V now;
    if (kind == Opcode::swap) now = memory(value, raw);
    else if (kind == Opcode::atomic_cas) {
      const V same =
          elementwise(Opcode::eq, t, DType::boolean, {old, get(op.operands.at(2))}, {values_of(t), values_of(t)});
      const V as_it_was = size < 4 ? (word >> shift) & mask : word;
      now = select(same, memory(value, raw), as_it_was);
    } else {
      now = memory(elementwise(kind, t, t, {old, value}, {values_of(t), values_of(t)}), {});
    }
    if (size >= 4) return now;
    const V in_place = now << shift;
    return (word & ~(f_.make(Reg::u32, mask) << shift)) | in_place;
  };

  const V start{&f_, m_.op(spv::OpAtomicLoad, type, {at, number(kScope), number(kRelaxed)}), reg};
  const std::vector<V> end = f_.while_loop(
      {start, f_.boolean(true)}, [&](const std::vector<V>& s) { return s[1]; },
      [&](const std::vector<V>& s) {
        const V seen{&f_,
                     m_.op(spv::OpAtomicCompareExchange, type,
                           {at, number(kScope), number(ordered ? kAcquireRelease : kRelaxed),
                            number(ordered ? kAcquire : kRelaxed), next(s[0]).id, s[0].id}),
                     reg};
        return std::vector<V>{seen, ne(seen, s[0])};
      });
  return element(end[0]);
}

}  // namespace tessera::spirv
