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
  else r = global_ref(r.dtype, r.base + offset * Literal(size_bytes(r.dtype)), r.shared_with_others);
  refs_[op.results.at(0).index] = r;
}

V Emitter::element_index(const ir::Op& op) {
  const ir::Index& i = op.index.at(0);
  if (i.start_operand >= 0) return get(op.operands.at(static_cast<size_t>(i.start_operand)));
  if (i.start > INT32_MAX || i.start < INT32_MIN) return f_.make(Reg::u64, i.start);
  return f_.make(Reg::u32, i.start);
}

// An index x + constant becomes (base + x) + constant: accesses around one place share the 64-bit product and sum. It
// is the same address where x + constant has not wrapped. An element's offset is at least 0 and below 2^31 bytes, so
// only elements of one byte leave room to wrap, downwards.
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
    if (!known.id) known = r.base + (index.reg == Reg::u64 ? index : sign_extend(index)) * Literal(size);
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
  if (in_words(r.dtype)) return load_part(op, r);
  const Id type = storage_type(r.dtype);
  const uint32_t access = spv::MemoryAccessAlignedMask |
                          (r.shared_with_others ? static_cast<uint32_t>(spv::MemoryAccessNonPrivatePointerMask) : 0);
  const Id loaded =
      m_.op(spv::OpLoad, type, {element_pointer(op, r, type), access, static_cast<uint32_t>(size_bytes(r.dtype))});
  if (size_bytes(r.dtype) >= 4) return {{&f_, loaded, reg_of(r.dtype)}, {}};
  const V wide{&f_, m_.op(is_signed_int(r.dtype) ? spv::OpSConvert : spv::OpUConvert, f_.type(Reg::u32), {loaded}),
               Reg::u32};
  if (is_int(r.dtype)) return {is_int4(r.dtype) ? from_memory_bits(wide, r.dtype) : wide, {}};
  return {from_memory_bits(wide, r.dtype), r.dtype == DType::boolean ? V{} : wide};
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
  if (in_words(r.dtype)) return store_part(op, r, raw.id ? raw : memory_bits(value, r.dtype));
  Id v = value.id;
  if (size_bytes(r.dtype) < 4) {
    const V wide = raw.id ? raw : is_int(r.dtype) && !is_int4(r.dtype) ? value : memory_bits(value, r.dtype);
    v = m_.op(spv::OpUConvert, storage_type(r.dtype), {wide.id});
  }
  const uint32_t access = spv::MemoryAccessAlignedMask |
                          (r.shared_with_others ? static_cast<uint32_t>(spv::MemoryAccessNonPrivatePointerMask) : 0);
  m_.op(spv::OpStore,
        {element_pointer(op, r, storage_type(r.dtype)), v, access, static_cast<uint32_t>(size_bytes(r.dtype))});
}

// Two or four adjacent 32-bit elements in one access, aligned to their total size: a u64 (lavapipe splits vectors into
// scalar loads, not integers) or a vector of four words.
void Emitter::emit_vector_load(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  const uint32_t width = static_cast<uint32_t>(op.results.size());
  const Id type = width == 2 ? f_.type(Reg::u64) : m_.type_vector(f_.type(Reg::u32), 4);
  const uint32_t access = spv::MemoryAccessAlignedMask |
                          (r.shared_with_others ? static_cast<uint32_t>(spv::MemoryAccessNonPrivatePointerMask) : 0);
  const Id loaded = m_.op(spv::OpLoad, type, {element_pointer(op, r, type), access, 4 * width});
  for (uint32_t i = 0; i < width; ++i) {
    V word;
    if (width == 4) word = {&f_, m_.op(spv::OpCompositeExtract, f_.type(Reg::u32), {loaded, i}), Reg::u32};
    else {
      const V pair{&f_, loaded, Reg::u64};
      word = to_uint(i ? pair >> 32 : pair, Reg::u32);
    }
    set(op.results[i], is_float(r.dtype) ? floating(word) : word);
  }
}

void Emitter::emit_load(const ir::Op& op) {
  if (op.index.size() == 1 && op.index[0].kind == ir::Index::Kind::slice) return emit_vector_load(op);
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
