// Refs: arguments and scratch through buffer addresses, shared memory as one array of 32-bit words, and as arrays of
// vectors of them in the same place.
#include <algorithm>
#include <cstdlib>

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
  Words chain{arena_, at.id};
  if (!shared_views_.empty()) chain.insert(chain.begin() + 1, f_.make(Reg::u32, 0).id);
  return m_.op(spv::OpAccessChain, m_.type_pointer(spv::StorageClassWorkgroup, f_.type(Reg::u32)), chain);
}

/// The place of an access in shared memory, in vectors of so many words. Devices add a constant to an address as they
/// load: it stays one, behind the division of the rest.
V Emitter::shared_vector(const ir::Op& op, const Ref& r, int64_t words) {
  constexpr int64_t kFar = int64_t{1} << 24;
  const ir::Index& i = op.index.at(0);
  std::vector<ir::Value> parts;
  int64_t constant = i.is_static() ? i.constant() : 0;
  if (!i.is_static()) {
    ir::Value x = op.operand_of(i);
    for (const ir::Op* d = k_.def(x); d && d->code == Opcode::add; d = k_.def(x)) {
      const auto c = ir::constant_int(k_, d->operands[1]);
      if (!c || std::abs(*c) > kFar || std::abs(constant + *c) > kFar) break;
      constant += *c;
      x = d->operands[0];
    }
    parts.push_back(x);
  }
  const ir::Op* memory = k_.def(op.operands.at(0));
  for (; memory->code == Opcode::view; memory = k_.def(memory->operands[0])) parts.push_back(memory->operands[1]);
  constant += memory->attr(ir::Attr::offset) / 4;
  const uint32_t shift = words == 2 ? 1 : 2;
  if (!std::all_of(parts.begin(), parts.end(), [&](ir::Value v) { return within(ranges_.of(v), 0); }))
    return shared_word(r, element_index(op), 0) >> shift;
  const int64_t rest = (constant % words + words) % words, whole = (constant - rest) / words;
  if (parts.empty()) return f_.make(Reg::u32, static_cast<uint32_t>(whole));
  V sum = to_uint(get(parts[0]), Reg::u32);
  for (size_t p = 1; p < parts.size(); ++p) sum = sum + to_uint(get(parts[p]), Reg::u32);
  if (rest) sum = sum + static_cast<uint32_t>(rest);
  const V vectors = sum >> shift;
  return whole ? vectors + static_cast<uint32_t>(whole) : vectors;
}

/// To so many words, 2 or 4, that begin at a multiple of their number; 0: shared memory is not seen as vectors.
Id Emitter::shared_vector_pointer(const ir::Op& op, const Ref& r, uint32_t words) {
  const auto view = shared_views_.find(words);
  if (view == shared_views_.end()) return 0;
  const V at = shared_vector(op, r, words);
  const Id first = f_.make(Reg::u32, 0).id, vector = m_.type_vector(f_.type(Reg::u32), words);
  return m_.op(spv::OpAccessChain, m_.type_pointer(spv::StorageClassWorkgroup, vector), {view->second, first, at.id});
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
  const auto parts = [&](Id loaded) {
    std::vector<V> all;
    for (uint32_t i = 0; i < words; ++i)
      all.push_back({&f_, m_.op(spv::OpCompositeExtract, f_.type(Reg::u32), {loaded, i}), Reg::u32});
    return all;
  };
  if (r.space == MemorySpace::shared) {
    if (const Id p = shared_vector_pointer(op, r, static_cast<uint32_t>(words))) {
      const Id vector = m_.type_vector(f_.type(Reg::u32), static_cast<uint32_t>(words));
      return parts(m_.op(spv::OpLoad, vector, {p, spv::MemoryAccessNonPrivatePointerMask}));
    }
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
  return parts(loaded);
}

void Emitter::store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) {
  if (r.space == MemorySpace::shared) {
    if (const Id p = shared_vector_pointer(op, r, static_cast<uint32_t>(words.size()))) {
      Words all;
      for (const V& word : words) all.push_back(word.id);
      const Id vector = m_.type_vector(f_.type(Reg::u32), static_cast<uint32_t>(words.size()));
      const Id stored = m_.op(spv::OpCompositeConstruct, vector, all);
      m_.op(spv::OpStore, {p, stored, spv::MemoryAccessNonPrivatePointerMask});
      return;
    }
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
