// Elements of 8 and 16 bits on devices that access buffers by 32-bit words only (no storageBuffer8BitAccess or
// storageBuffer16BitAccess): loads shift the word that holds the element, stores clear and set its bits by atomics, for
// the word's other elements may belong to other invocations, of other workgroups too. Arrays begin at multiples of four
// bytes and their memory ends at one (runtime's Buffer sees to it). Arrays with atomics on such elements are accessed
// so on every device: an atomic takes the whole word, which plain accesses to its other elements must not meet.
#include "codegen/spirv/emitter.h"

namespace tessera::spirv {

bool Emitter::in_words(DType t) const {
  const int64_t size = size_bytes(t);
  // A pair becomes a pointer by a bitcast, which types that are for storage only may not take part in.
  const bool bytes = target_.storage8 && (target_.int8 || !f_.emulates_int64()),
             halves = target_.storage16 && (target_.int16 || !f_.emulates_int64());
  return (size == 1 && !bytes) || (size == 2 && !halves);
}

namespace {
struct Part {
  V word;   // its address
  V shift;  // of the element's lowest bit
  uint32_t mask;
};
Part part_of(V address, DType t) {
  const bool byte = size_bytes(t) == 1;
  const V offset = to_uint(address, Reg::u32) & (byte ? 3 : 2);
  return {address & ~uint64_t{3}, offset << 3, byte ? 0xffu : 0xffffu};
}
}  // namespace

Emitter::Register Emitter::load_part(const ir::Op& op, const Ref& r) {
  const Part p = part_of(element_address(op, r), r.dtype);
  const Id u32 = f_.type(Reg::u32), at = pointer(p.word, u32);
  const auto number = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
  // Where others write to the word meanwhile, what they leave alone is only well defined for atomics.
  const Id word =
      r.shared_with_others
          ? m_.op(spv::OpAtomicLoad, u32, {at, number(spv::ScopeQueueFamily), number(spv::MemorySemanticsMaskNone)})
          : m_.op(spv::OpLoad, u32, {at, spv::MemoryAccessAlignedMask, 4});
  const V raw = (V{&f_, word, Reg::u32} >> p.shift) & p.mask;
  return {from_memory_bits(raw, r.dtype), is_narrow_float(r.dtype) ? raw : V{}};
}

void Emitter::store_part(const ir::Op& op, const Ref& r, V raw) {
  const Part p = part_of(element_address(op, r), r.dtype);
  const Id u32 = f_.type(Reg::u32), at = pointer(p.word, u32);
  const auto number = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
  const auto atomic = [&](spv::Op code, V bits) {
    m_.op(code, u32, {at, number(spv::ScopeQueueFamily), number(spv::MemorySemanticsMaskNone), bits.id});
  };
  atomic(spv::OpAtomicAnd, ~(literal(p.shift, p.mask) << p.shift));
  atomic(spv::OpAtomicOr, (raw & p.mask) << p.shift);
}

}  // namespace tessera::spirv
