// Refs: arguments and scratch through buffer addresses, shared memory as one array of 32-bit words.
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

using ir::MemorySpace;
using ir::Opcode;

/// What memory holds: bool, 4-bit integers and 8-bit floats as u8, 16-bit floats as u16.
Id Emitter::storage_type(DType t) {
  switch (size_bytes(t)) {
    case 1:
      m_.capability(spv::CapabilityStorageBuffer8BitAccess);
      if (f_.emulates_int64()) m_.capability(spv::CapabilityInt8);  // subword.cpp says why
      return m_.type_uint(8);
    case 2:
      m_.capability(spv::CapabilityStorageBuffer16BitAccess);
      if (f_.emulates_int64()) m_.capability(spv::CapabilityInt16);
      return m_.type_uint(16);
    default: return f_.type(reg_of(t));
  }
}

Id Emitter::pointer(V address, Id pointee) {
  return m_.op(f_.emulates_int64() ? spv::OpBitcast : spv::OpConvertUToPtr,
               m_.type_pointer(spv::StorageClassPhysicalStorageBuffer, pointee), {address.id});
}
Id Emitter::element_pointer(const ir::Op& op, const Ref& r, Id pointee) {
  return pointer(element_address(op, r), pointee);
}

// GPUs have a cache and instructions of their own for what is not written, if they are told: NonWritable is of a
// block's member. Lavapipe has none, and its code is smaller without.
Id Emitter::loaded_pointer(const ir::Op& op, const Ref& r, Id pointee) {
  if (r.shared_with_others || target_.kind != Target::Kind::gpu) return element_pointer(op, r, pointee);
  const Id block = element_pointer(op, r, m_.type_read_only(pointee)), first = f_.make(Reg::u32, 0).id;
  return m_.op(spv::OpAccessChain, m_.type_pointer(spv::StorageClassPhysicalStorageBuffer, pointee), {block, first});
}

V Emitter::shared_word(const Ref& r, V index, uint32_t word) {
  const V scaled = ir::arena_stride(r.dtype) == 8 ? to_uint(index, Reg::u32) * 2 : to_uint(index, Reg::u32);
  const V at = r.base + scaled;
  return word ? at + word : at;
}
Id Emitter::shared_pointer(const Ref& r, V index, uint32_t word) {
  const V at = shared_word(r, index, word);
  return m_.op(spv::OpAccessChain, m_.type_pointer(spv::StorageClassWorkgroup, f_.type(Reg::u32)), {arena_, at.id});
}

V Emitter::load_shared_word(const Ref& r, V index, uint32_t word) {
  const Id p = shared_pointer(r, index, word);
  return V{&f_, m_.op(spv::OpLoad, f_.type(Reg::u32), {p, spv::MemoryAccessNonPrivatePointerMask}), Reg::u32};
}
void Emitter::store_shared_word(const Ref& r, V index, uint32_t word, V v) {
  const Id p = shared_pointer(r, index, word);
  m_.op(spv::OpStore, {p, v.id, spv::MemoryAccessNonPrivatePointerMask});
}

Emitter::Register Emitter::load(const ir::Op& op, const Ref& r) {
  if (r.space == MemorySpace::shared) {
    const V index = element_index(op);
    const V low = load_shared_word(r, index, 0);
    if (ir::arena_stride(r.dtype) == 8) {
      const V high = to_uint(load_shared_word(r, index, 1), Reg::u64) << 32, v = to_uint(low, Reg::u64) | high;
      return {r.dtype == DType::f64 ? floating(v) : v, {}};
    }
    if (r.dtype == DType::boolean) return {ne(low, 0), {}};
    return {is_float(r.dtype) ? floating(low) : low, {}};  // narrow floats lie there as f32
  }
  if (in_words(r.dtype) || r.by_words) return load_part(op, r);
  const Id type = storage_type(r.dtype);
  const Id from = loaded_pointer(op, r, type);
  const Id loaded = m_.op(spv::OpLoad, type, {from, access_mask(r), static_cast<uint32_t>(size_bytes(r.dtype))});
  if (size_bytes(r.dtype) >= 4) return {{&f_, loaded, reg_of(r.dtype)}, {}};
  const V wide{&f_, m_.op(is_signed_int(r.dtype) ? spv::OpSConvert : spv::OpUConvert, f_.type(Reg::u32), {loaded}),
               Reg::u32};
  return narrow_register(wide, r.dtype);
}

uint32_t Emitter::access_mask(const Ref& r) {
  return spv::MemoryAccessAlignedMask |
         (r.shared_with_others ? static_cast<uint32_t>(spv::MemoryAccessNonPrivatePointerMask) : 0);
}

void Emitter::store(const ir::Op& op, const Ref& r, V value, V raw) {
  if (r.space == MemorySpace::shared) {
    const V index = element_index(op);
    if (ir::arena_stride(r.dtype) == 8) {
      const V b = bits(value);
      store_shared_word(r, index, 0, to_uint(b, Reg::u32));
      store_shared_word(r, index, 1, to_uint(b >> 32, Reg::u32));
    } else {
      store_shared_word(r, index, 0, r.dtype == DType::boolean ? memory_bits(value, r.dtype) : bits(value));
    }
    return;
  }
  if (in_words(r.dtype) || r.by_words) return store_part(op, r, raw.id ? raw : memory_bits(value, r.dtype));
  Id v = value.id;
  if (size_bytes(r.dtype) < 4) {
    const Id from = stored_bits(value, raw, r.dtype).id, type = storage_type(r.dtype);
    v = m_.op(spv::OpUConvert, type, {from});
  }
  const Id to = element_pointer(op, r, storage_type(r.dtype));
  m_.op(spv::OpStore, {to, v, access_mask(r), static_cast<uint32_t>(size_bytes(r.dtype))});
}

// Adjacent elements in one access of 4, 8 or 16 bytes, aligned to its size, as words: one, two in a u64 (lavapipe
// splits vectors into scalar accesses, not integers), or a vector of four.
Id Emitter::words_type(size_t words) {
  const Id u32 = f_.type(Reg::u32);
  return words == 1 ? u32 : words == 2 ? f_.type(Reg::u64) : m_.type_vector(u32, 4);
}

std::vector<V> Emitter::load_words(const ir::Op& op, const Ref& r, size_t words) {
  if (r.space == MemorySpace::shared) {  // an array of words
    const V index = element_index(op);
    std::vector<V> all;
    for (uint32_t i = 0; i < words; ++i) all.push_back(load_shared_word(r, index, i));
    return all;
  }
  const Id type = words_type(words), from = loaded_pointer(op, r, type);
  const Id loaded = m_.op(spv::OpLoad, type, {from, access_mask(r), static_cast<uint32_t>(4 * words)});
  if (words == 1) return {{&f_, loaded, Reg::u32}};
  if (words == 2) {
    const V pair{&f_, loaded, Reg::u64};
    const V low = to_uint(pair, Reg::u32), high = to_uint(pair >> 32, Reg::u32);
    return {low, high};
  }
  std::vector<V> all;
  for (uint32_t i = 0; i < words; ++i)
    all.push_back({&f_, m_.op(spv::OpCompositeExtract, f_.type(Reg::u32), {loaded, i}), Reg::u32});
  return all;
}

void Emitter::store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) {
  if (r.space == MemorySpace::shared) {
    const V index = element_index(op);
    for (uint32_t i = 0; i < words.size(); ++i) store_shared_word(r, index, i, words[i]);
    return;
  }
  Id all = words[0].id;
  if (words.size() == 2) {
    const V high = to_uint(words[1], Reg::u64) << 32;
    all = (to_uint(words[0], Reg::u64) | high).id;
  } else if (words.size() == 4) {
    all = m_.op(spv::OpCompositeConstruct, words_type(4), {words[0].id, words[1].id, words[2].id, words[3].id});
  }
  const Id to = element_pointer(op, r, words_type(words.size()));
  m_.op(spv::OpStore, {to, all, access_mask(r), static_cast<uint32_t>(4 * words.size())});
}

void Emitter::emit_report_memory(const ir::Op& op) {
  refs_[op.results.at(0).index] = global_ref(DType::u32, report_, true);
}

// Several workgroups may report the same, hence an atomic; the widest scope that every device has is the queue
// family's.
void Emitter::emit_report(const ir::Op& op) {
  f_.when(get(op.operands.at(0)), [&] {
    const Id u32 = f_.type(Reg::u32), at = pointer(report_, u32);
    const auto word = [&](uint32_t x) { return f_.make(Reg::u32, x).id; };
    m_.op(spv::OpAtomicOr, u32,
          {at, word(spv::ScopeQueueFamily), word(spv::MemorySemanticsMaskNone),
           word(static_cast<uint32_t>(op.attr(ir::Attr::mask)))});
    for (size_t i = 1; i < op.operands.size(); ++i) {
      const V address = report_ + f_.make(Reg::u64, 4 * i);
      const Id to = pointer(address, u32);
      m_.op(spv::OpAtomicExchange, u32,
            {to, word(spv::ScopeQueueFamily), word(spv::MemorySemanticsMaskNone),
             to_uint(get(op.operands[i]), Reg::u32).id});
    }
  });
}

}  // namespace tessera::spirv
