// Atomics of arrays that programs running at once update. 32 and 64-bit integers have instructions, but for 64-bit
// operands that an operation of doubles may have made (may_be_double in codegen/lane/loops.cpp). Everything else is a
// compare-and-swap loop on the word that holds the element (expand/memory.cpp). A word of narrow elements never leaves
// its array's memory, which is rounded up to whole words; neighbours are written back as they were, and a neighbour's
// change makes the swap fail.
#include "codegen/lane/loops.h"
#include "codegen/spirv/builder/instructions.h"
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

using ir::Opcode;

namespace {
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
                m_.op(native(atomic_kind(op), r.dtype), type,
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
  const spv::Op code = native(atomic_kind(op), k_.type(op.operands.at(1)).dtype);
  if (op.code == Opcode::atomic_cas)
    return {
        &f_,
        m_.op(code, type,
              {at, scope, semantics, word(ordered ? kAcquire : kRelaxed), value.id, bits(get(op.operands.at(2))).id}),
        value.reg};
  return {&f_, m_.op(code, type, {at, scope, semantics, value.id}), value.reg};
}

Emitter::AtomicWord Emitter::atomic_word(V address, Reg r, bool used) {
  const Id type = f_.type(r), at = pointer(address, type);
  const auto number = [this](uint32_t x) { return f_.make(Reg::u32, x).id; };
  return {[=, this] { return V{&f_, m_.op(spv::OpAtomicLoad, type, {at, number(kScope), number(kRelaxed)}), r}; },
          [=, this](V now, V expected) {
            return V{&f_,
                     m_.op(spv::OpAtomicCompareExchange, type,
                           {at, number(kScope), number(used ? kAcquireRelease : kRelaxed),
                            number(used ? kAcquire : kRelaxed), now.id, expected.id}),
                     r};
          }};
}

}  // namespace tessera::spirv
