// Refs: arguments and scratch through buffer addresses, shared memory as one array of 32-bit words.
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

using ir::MemorySpace;
using ir::Opcode;

ir::Value Emitter::root(ir::Value v) const {
  for (const ir::Op* d = k_.def(v); d && d->code == Opcode::view; d = k_.def(v)) v = d->operands.at(0);
  return v;
}

Emitter::Ref& Emitter::ref(ir::Value v) {
  if (!refs_[v.index])
    throw InternalError(k_.name + ": spirv: ref %" + std::to_string(v.index) + " is no argument, allocation or view");
  return *refs_[v.index];
}

/// What memory holds: bool, 4-bit integers and 8-bit floats as u8, 16-bit floats as u16.
Id Emitter::storage_type(DType t) {
  switch (size_bytes(t)) {
    case 1:
      m_.capability(spv::CapabilityStorageBuffer8BitAccess);
      if (f_.pairs()) m_.capability(spv::CapabilityInt8);  // subword.cpp says why
      return m_.type_uint(8);
    case 2:
      m_.capability(spv::CapabilityStorageBuffer16BitAccess);
      if (f_.pairs()) m_.capability(spv::CapabilityInt16);
      return m_.type_uint(16);
    default: return f_.type(reg_of(t));
  }
}

Emitter::Ref Emitter::global_ref(DType t, V base, bool shared_with_others) {
  Ref r;
  r.space = MemorySpace::global;
  r.dtype = t;
  r.shared_with_others = shared_with_others;
  r.base = base;
  return r;
}

void Emitter::emit_alloc(const ir::Op& op) {
  const DType t = k_.type(op.results.at(0)).dtype;
  const int64_t offset = op.attr(ir::Attr::offset);
  Ref r;
  if (op.code == Opcode::alloc_scratch) {
    const V bytes = f_.make(Reg::u64, k_.lane.scratch_bytes), slice = to_uint(workgroup_index_, Reg::u64) * bytes;
    r = global_ref(t, scratch_ + (slice + Literal(offset)), true);
  } else {
    r.space = MemorySpace::shared;
    r.dtype = t;
    r.shared_with_others = true;
    r.base = f_.make(Reg::u32, static_cast<uint32_t>(offset / 4));
  }
  refs_[op.results[0].index] = r;
}

void Emitter::emit_view(const ir::Op& op) {
  Ref r = ref(op.operands.at(0));
  const V offset = get(op.operands.at(1));
  if (r.space == MemorySpace::shared)
    r.base = r.base + to_uint(offset, Reg::u32) * static_cast<uint32_t>(ir::arena_stride(r.dtype) / 4);
  else r.base = r.base + offset * Literal(size_bytes(r.dtype));
  refs_[op.results.at(0).index] = r;
}

V Emitter::element_index(const ir::Op& op) {
  const ir::Index& i = op.index.at(0);
  if (i.start_operand >= 0) return get(op.operands.at(static_cast<size_t>(i.start_operand)));
  if (i.start > INT32_MAX || i.start < INT32_MIN) return f_.make(Reg::u64, i.start);
  return f_.make(Reg::u32, i.start);
}

// Where an element that begins `index` elements behind a place lies from there, in bytes. An index that is known to be
// at least 0 and to stay below 4 GiB is multiplied in 32 bits: devices add such an offset to a base as they load.
V Emitter::byte_offset(V index, const Bounds& known, int64_t size) {
  if (index.reg == Reg::u64) return index * Literal(size);
  if (within(known, 0, UINT32_MAX / size)) return to_uint(index * Literal(size), Reg::u64);
  return sign_extend(index) * Literal(size);
}

// An index x + constant becomes (base + x) + constant: accesses around one place share the product and sum. It is the
// same address where x + constant has not wrapped. An element's offset is at least 0 and below 2^31 bytes, so only
// elements of one byte leave room to wrap, downwards.
V Emitter::element_address(const ir::Op& op, const Ref& r) {
  const ir::Index& i = op.index.at(0);
  const int64_t size = size_bytes(r.dtype);
  V address = r.base;
  int64_t constant = i.start;
  if (!i.is_static()) {
    constant = 0;
    ir::Value x = op.operands.at(static_cast<size_t>(i.start_operand));
    for (const ir::Op* d = k_.def(x); d && d->code == Opcode::add && !d->operands.empty(); d = k_.def(x)) {
      const auto c = ir::constant_int(k_, d->operands[1]);
      if (!c || std::abs(*c) > INT32_MAX || std::abs(constant + *c) > INT32_MAX / 2) break;
      const int64_t sum = constant + *c;
      if (sum < 0 && size == 1 && k_.type(x).dtype != DType::i64 &&
          !within(ranges_.of(d->operands[0]), INT32_MIN - sum))
        break;
      constant = sum;
      x = d->operands[0];
    }
    const V index = get(x);
    V& known = addresses_[{f_.block, r.base.id, index.id, size}];
    if (!known.id) known = r.base + byte_offset(index, ranges_.of(x), size);
    address = known;
  }
  return constant ? address + Literal(constant * size) : address;
}

Id Emitter::pointer(V address, Id pointee) {
  return m_.op(f_.pairs() ? spv::OpBitcast : spv::OpConvertUToPtr,
               m_.type_pointer(spv::StorageClassPhysicalStorageBuffer, pointee), {address.id});
}
Id Emitter::element_pointer(const ir::Op& op, const Ref& r, Id pointee) {
  return pointer(element_address(op, r), pointee);
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

Emitter::Register Emitter::load(const ir::Op& op, const Ref& r) {
  if (r.space == MemorySpace::shared) {
    const V index = element_index(op);
    const auto word = [&](uint32_t i) {
      const Id p = shared_pointer(r, index, i);
      return V{&f_, m_.op(spv::OpLoad, f_.type(Reg::u32), {p, spv::MemoryAccessNonPrivatePointerMask}), Reg::u32};
    };
    const V low = word(0);
    if (ir::arena_stride(r.dtype) == 8) {
      const V high = to_uint(word(1), Reg::u64) << 32, v = to_uint(low, Reg::u64) | high;
      return {r.dtype == DType::f64 ? floating(v) : v, {}};
    }
    if (r.dtype == DType::boolean) return {ne(low, 0), {}};
    return {is_float(r.dtype) ? floating(low) : low, {}};  // narrow floats lie there as f32
  }
  if (in_words(r.dtype) || r.by_words) return load_part(op, r);
  const Id type = storage_type(r.dtype);
  const Id from = element_pointer(op, r, type);
  const Id loaded = m_.op(spv::OpLoad, type, {from, access_mask(r), static_cast<uint32_t>(size_bytes(r.dtype))});
  if (size_bytes(r.dtype) >= 4) return {{&f_, loaded, reg_of(r.dtype)}, {}};
  const V wide{&f_, m_.op(is_signed_int(r.dtype) ? spv::OpSConvert : spv::OpUConvert, f_.type(Reg::u32), {loaded}),
               Reg::u32};
  return narrow_register(wide, r.dtype);
}

// What an element of 8 or 16 bits is, from what memory holds, extended.
Emitter::Register Emitter::narrow_register(V wide, DType t) {
  if (is_int(t)) return {is_int4(t) ? from_memory_bits(wide, t) : wide, {}};
  return {from_memory_bits(wide, t), t == DType::boolean ? V{} : wide};
}
// What memory is to hold of it, in the low bits.
V Emitter::stored_bits(V value, V raw, DType t) {
  return raw.id ? raw : is_int(t) && !is_int4(t) ? value : memory_bits(value, t);
}

uint32_t Emitter::access_mask(const Ref& r) {
  return spv::MemoryAccessAlignedMask |
         (r.shared_with_others ? static_cast<uint32_t>(spv::MemoryAccessNonPrivatePointerMask) : 0);
}

void Emitter::store(const ir::Op& op, const Ref& r, V value, V raw) {
  if (r.space == MemorySpace::shared) {
    const V index = element_index(op);
    const auto word = [&](uint32_t i, V v) {
      const Id p = shared_pointer(r, index, i);
      m_.op(spv::OpStore, {p, v.id, spv::MemoryAccessNonPrivatePointerMask});
    };
    if (ir::arena_stride(r.dtype) == 8) {
      const V b = bits(value);
      word(0, to_uint(b, Reg::u32));
      word(1, to_uint(b >> 32, Reg::u32));
    } else {
      word(0, r.dtype == DType::boolean ? memory_bits(value, r.dtype) : bits(value));
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
  const Id type = words_type(words), from = element_pointer(op, r, type);
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

void Emitter::emit_vector_load(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  const auto size = static_cast<size_t>(size_bytes(r.dtype));
  const std::vector<V> words = load_words(op, r, op.results.size() * size / 4);
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (size == 8) {
      const V high = to_uint(words[2 * i + 1], Reg::u64) << 32, v = to_uint(words[2 * i], Reg::u64) | high;
      set(op.results[i], r.dtype == DType::f64 ? floating(v) : v);
      continue;
    }
    V v = words[i * size / 4];
    if (size < 4) {
      const auto bits = static_cast<uint32_t>(8 * size);
      const Id first = f_.make(Reg::u32, static_cast<uint32_t>(i * size % 4 * 8)).id,
               count = f_.make(Reg::u32, bits).id;
      const spv::Op extract = is_signed_int(r.dtype) ? spv::OpBitFieldSExtract : spv::OpBitFieldUExtract;
      v = {&f_, m_.op(extract, f_.type(Reg::u32), {v.id, first, count}), Reg::u32};
      const Register x = narrow_register(v, r.dtype);
      set(op.results[i], x.v, x.raw);
    } else {
      set(op.results[i], is_float(r.dtype) ? floating(v) : v);
    }
  }
}

void Emitter::emit_vector_store(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  const auto size = static_cast<size_t>(size_bytes(r.dtype));
  std::vector<V> words;
  for (size_t i = 0; i < static_cast<size_t>(op.index[0].size); ++i) {
    const V value = get(op.operands.at(1 + i)), raw = registers_[op.operands[1 + i].index].raw;
    if (size == 8) {
      const V b = bits(value);
      words.push_back(to_uint(b, Reg::u32));
      words.push_back(to_uint(b >> 32, Reg::u32));
    } else if (size == 4) {
      words.push_back(bits(value));
    } else {
      const size_t at = i * size % 4;
      const V wide = stored_bits(value, raw, r.dtype);
      // the last part of a word needs no mask
      const V part = (at + size < 4 ? wide & ((1u << 8 * size) - 1) : wide) << static_cast<uint32_t>(8 * at);
      if (at == 0) words.push_back(part);
      else words.back() = words.back() | part;
    }
  }
  store_words(op, r, words);
}

void Emitter::emit_load(const ir::Op& op) {
  if (ir::is_vector_access(op)) return emit_vector_load(op);
  const Ref& r = ref(op.operands.at(0));
  const ir::Value result = op.results.at(0);
  if (!op.has_mask()) {
    const Register x = load(op, r);
    set(result, x.v, x.raw);
    return;
  }
  // A masked-out element that nobody names is 0: unspecified, but the same at every use.
  const V other =
      op.has_other() ? get(op.operands.at(static_cast<size_t>(op.other_position()))) : constant(f_, r.dtype, 0);
  const std::vector<V> out = f_.if_else(
      get(op.operands.at(1)), [&] { return std::vector<V>{load(op, r).v}; }, [&] { return std::vector<V>{other}; });
  set(result, out.at(0));
}

void Emitter::emit_store(const ir::Op& op) {
  if (ir::is_vector_access(op)) return emit_vector_store(op);
  const Ref& r = ref(op.operands.at(0));
  const V value = get(op.operands.at(1)), raw = registers_[op.operands[1].index].raw;
  if (!op.has_mask()) return store(op, r, value, raw);
  f_.when(get(op.operands.at(2)), [&] { store(op, r, value, raw); });
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
