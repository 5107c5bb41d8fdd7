// Refs, and which elements an access takes. The instructions of the access are a backend's.
#include <array>
#include <cstdlib>

#include "codegen/expand/walk.h"
#include "engine/base/error.h"

namespace tessera::expand {

using ir::MemorySpace;
using ir::Opcode;

ir::Value Walk::root(ir::Value v) const {
  for (const ir::Op* d = k_.def(v); d && d->code == Opcode::view; d = k_.def(v)) v = d->operands.at(0);
  return v;
}

Walk::Ref& Walk::ref(ir::Value v) {
  if (!refs_[v.index])
    throw InternalError(k_.name + ": " + backend_ + ": ref %" + std::to_string(v.index) +
                        " is no argument, allocation or view");
  return *refs_[v.index];
}

Walk::Ref Walk::global_ref(DType t, V base, bool shared_with_others) {
  Ref r;
  r.space = MemorySpace::global;
  r.dtype = t;
  r.shared_with_others = shared_with_others;
  r.base = base;
  return r;
}

Walk::Ref Walk::argument_ref(ir::Value argument, V base) {
  Ref r = global_ref(k_.type(argument).dtype, base, written_.count(argument.index) != 0);
  r.by_words = by_words_.count(argument.index) != 0;
  const uint32_t position = k_.value(argument).number;
  r.by_value = position < k_.blocks.size() && k_.blocks[position].is_by_value();
  return r;
}

void Walk::emit_alloc(const ir::Op& op) {
  const DType t = k_.type(op.results.at(0)).dtype;
  const int64_t offset = op.attr(ir::Attr::offset);
  Ref r;
  if (op.code == Opcode::alloc_scratch) {
    const V bytes = sink_.make(Reg::u64, k_.lane.scratch_bytes), slice = to_uint(workgroup_index_, Reg::u64) * bytes;
    r = global_ref(t, scratch_ + (slice + Literal(offset)), true);
  } else if (op.code == Opcode::alloc_program) {
    r = global_ref(t, program_ + Literal(offset), true);
    r.of_program = true;
  } else {
    r.space = MemorySpace::shared;
    r.dtype = t;
    r.base = sink_.make(Reg::u32, static_cast<uint32_t>(offset / 4));
  }
  refs_[op.results[0].index] = r;
}

// In bytes; multiplied in 32 bits where it was computed in 32 bits and is known to stay below 4 GiB.
V Walk::view_offset(ir::Value offset, int64_t size) {
  const ir::Op* wide = k_.def(offset);
  if (!wide || wide->code != Opcode::convert || k_.type(wide->operands[0]).dtype != DType::i32)
    return get(offset) * Literal(size);
  const ir::Value narrow = wide->operands[0];
  const Bounds& known = ranges_.of(narrow);
  return within(known, 0, UINT32_MAX / size) ? byte_offset(get(narrow), known, size) : get(offset) * Literal(size);
}

void Walk::emit_view(const ir::Op& op) {
  Ref r = ref(op.operands.at(0));
  if (r.by_value) {  // of one element
    refs_[op.results.at(0).index] = r;
    return;
  }
  const V offset = get(op.operands.at(1));
  if (r.space == MemorySpace::shared)
    r.base = r.base + to_uint(offset, Reg::u32) * static_cast<uint32_t>(ir::arena_stride(r.dtype) / 4);
  else r.base = r.base + view_offset(op.operands.at(1), size_bytes(r.dtype));
  refs_[op.results.at(0).index] = r;
}

V Walk::element_index(const ir::Op& op) {
  const ir::Index& i = op.index.at(0);
  if (!i.is_static()) return get(op.operand_of(i));
  const int64_t at = i.constant();
  return sink_.make(at > INT32_MAX || at < INT32_MIN ? Reg::u64 : Reg::u32, at);
}

// Where an element that begins `index` elements behind a place lies from there, in bytes. An index that is known to be
// at least 0 and to stay below 4 GiB is multiplied in 32 bits: devices add such an offset to a base as they load.
V Walk::byte_offset(V index, const Bounds& known, int64_t size) {
  if (index.reg == Reg::u64) return index * Literal(size);
  if (within(known, 0, UINT32_MAX / size)) return to_uint(index * Literal(size), Reg::u64);
  return sign_extend(index) * Literal(size);
}

// The same in words where the device multiplies them itself as it loads: of elements of words, and of narrower ones of
// which an access takes whole words. No value: it does not, or the index may be negative.
V Walk::word_offset(const ir::Op& op, int64_t size) {
  const ir::Index& i = op.index.at(0);
  if (!target_.indexed_addresses || i.is_static() || (size < 4 && !ir::is_vector_access(op))) return {};
  const ir::Value x = op.operand_of(i);
  const V index = get(x);
  if (index.reg != Reg::u32 || !within(ranges_.of(x), 0)) return {};
  const V words = size == 1 ? index >> 2 : size == 2 ? index >> 1 : index;
  return to_uint(words, Reg::u64) << (size == 8 ? 3 : 2);
}

// An index x + constant becomes (base + x) + constant: accesses around one place share the product and sum. It is the
// same address where x + constant has not wrapped. An element's offset is at least 0 and below 2^31 bytes, so only
// elements of one byte leave room to wrap, downwards.
V Walk::element_address(const ir::Op& op, const Ref& r) {
  const ir::Index& i = op.index.at(0);
  const int64_t size = size_bytes(r.dtype);
  if (const V offset = word_offset(op, size); offset.id) return r.base + offset;
  V address = r.base;
  int64_t constant = i.is_static() ? i.constant() : 0;
  if (!i.is_static()) {
    ir::Value x = op.operand_of(i);
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
    V& known = addresses_[{sink_.block, r.base.id, index.id, size}];
    if (!known.id) known = r.base + byte_offset(index, ranges_.of(x), size);
    address = known;
  }
  return constant ? address + Literal(constant * size) : address;
}

// What an element of 8 or 16 bits is, from what memory holds, extended.
Walk::Register Walk::narrow_register(V wide, DType t) {
  if (is_int(t)) return {is_int4(t) ? from_memory_bits(wide, t) : wide, {}};
  return {from_memory_bits(wide, t), t == DType::boolean ? V{} : wide};
}
// What memory is to hold of it, in the low bits.
V Walk::stored_bits(V value, V raw, DType t) {
  return raw.id ? raw : is_int(t) && !is_int4(t) ? value : memory_bits(value, t);
}

void Walk::emit_vector_load(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  if (r.space == MemorySpace::shared) {
    const std::vector<V> words = load_words(op, r, op.results.size());
    for (size_t i = 0; i < words.size(); ++i)
      set(op.results[i], r.dtype == DType::boolean ? ne(words[i], 0)
                         : is_float(r.dtype)       ? floating(words[i])
                                                   : words[i]);
    return;
  }
  const auto size = static_cast<size_t>(size_bytes(r.dtype));
  const std::vector<V> words = load_words(op, r, op.results.size() * size / 4);
  std::array<V, 2> shorts;
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (size == 8) {
      const V high = to_uint(words[2 * i + 1], Reg::u64) << 32, v = to_uint(words[2 * i], Reg::u64) | high;
      set(op.results[i], r.dtype == DType::f64 ? floating(v) : v);
      continue;
    }
    V v = words[i * size / 4];
    if (size == 2 && !is_signed_int(r.dtype)) {
      if (i % 2 == 0) shorts = sink_.shorts(v);
      const V raw = shorts[i % 2];
      if (r.dtype == DType::bf16) {
        set(op.results[i], floating(i % 2 == 0 ? v << 16 : v & 0xffff0000u), raw);
      } else {
        const Register x = narrow_register(raw, r.dtype);
        set(op.results[i], x.v, x.raw);
      }
    } else if (size < 4) {
      const V first = sink_.make(Reg::u32, static_cast<uint32_t>(i * size % 4 * 8)),
              count = sink_.make(Reg::u32, static_cast<uint32_t>(8 * size));
      v = sink_.apply(is_signed_int(r.dtype) ? Prim::extract_sint : Prim::extract_uint, Reg::u32, {v, first, count});
      const Register x = narrow_register(v, r.dtype);
      set(op.results[i], x.v, x.raw);
    } else {
      set(op.results[i], is_float(r.dtype) ? floating(v) : v);
    }
    if (size < 4) {
      registers_[op.results[i].index].word = words[i * size / 4];
      registers_[op.results[i].index].part = static_cast<uint32_t>(i * size % 4 / size);
    }
  }
}

void Walk::emit_vector_store(const ir::Op& op) {
  const Ref& r = ref(op.operands.at(0));
  const bool shared = r.space == MemorySpace::shared;  // where each element has a word
  const auto size = static_cast<size_t>(shared ? ir::arena_stride(r.dtype) : size_bytes(r.dtype));
  std::vector<V> words;
  for (size_t i = 0; i < static_cast<size_t>(op.index[0].slice()->size); ++i) {
    const V value = get(op.operands.at(1 + i)), raw = registers_[op.operands[1 + i].index].raw;
    if (shared && r.dtype == DType::boolean) {
      words.push_back(memory_bits(value, r.dtype));
    } else if (size == 8) {
      const V b = bits(value);
      words.push_back(to_uint(b, Reg::u32));
      words.push_back(to_uint(b >> 32, Reg::u32));
    } else if (size == 4) {
      words.push_back(bits(value));
    } else {
      const size_t at = i * size % 4;
      const V wide = stored_bits(value, raw, r.dtype);
      if (size == 2) {
        if (at != 0)
          if (const V pair = rounded_pair(get(op.operands[i]), value, r.dtype); pair.id) {
            words.back() = pair;
            continue;
          }
        if (at == 0) words.push_back(wide);
        else words.back() = sink_.word_of_shorts(words.back(), wide);
        continue;
      }
      // the last part of a word needs no mask
      const V part = (at + size < 4 ? wide & ((1u << 8 * size) - 1) : wide) << static_cast<uint32_t>(8 * at);
      if (at == 0) words.push_back(part);
      else words.back() = words.back() | part;
    }
  }
  store_words(op, r, words);
}

std::vector<V> Walk::words_of_column(const std::vector<ir::Value>& elements) const {
  const uint32_t part = registers_[elements[0].index].part;
  std::vector<V> words;
  for (const ir::Value v : elements) {
    const Register& r = registers_[v.index];
    if (!r.word.id || r.part != part) return {};
    words.push_back(r.word);
  }
  return words;
}

// Blocks are transposed so. The first step takes every second byte of two words, for two results.
V Walk::transposed(const std::vector<ir::Value>& elements) {
  const std::vector<V> words = words_of_column(elements);
  if (words.size() != 4) return {};
  const uint32_t part = registers_[elements[0].index].part, odd = part % 2;
  const auto half = [&](V low, V high) {
    std::array<V, 2>& halves = every_second_[{sink_.block, low.id, high.id, odd}];
    if (!halves[0].id) {
      const V from_low = (odd ? low >> 8 : low) & 0x00ff00ff, from_high = (odd ? high : high << 8) & 0xff00ff00u;
      halves = sink_.shorts(from_low | from_high);
    }
    return halves[part / 2];
  };
  const V low = half(words[0], words[1]), high = half(words[2], words[3]);
  return sink_.word_of_shorts(low, high);
}

// A word that a vector access has loaded is taken as it is.
void Walk::emit_pack(const ir::Op& op) {
  const DType t = k_.type(op.operands.at(0)).dtype;
  const auto width = static_cast<uint32_t>(8 * size_bytes(t));
  const V loaded = registers_[op.operands[0].index].word;
  bool whole = loaded.id != 0;
  for (uint32_t i = 0; i < op.operands.size(); ++i) {
    const Register& r = registers_[op.operands[i].index];
    whole = whole && r.word.id == loaded.id && r.part == i;
  }
  if (whole) return set(op.results.at(0), loaded);
  if (const V word = transposed(op.operands); word.id) return set(op.results.at(0), word);
  if (op.operands.size() == 2) {
    const V low = get(op.operands[0]), high = get(op.operands[1]);
    if (const V pair = rounded_pair(low, high, t); pair.id) return set(op.results.at(0), pair);
    const V low_bits = stored_bits(low, registers_[op.operands[0].index].raw, t),
            high_bits = stored_bits(high, registers_[op.operands[1].index].raw, t);
    return set(op.results.at(0), sink_.word_of_shorts(low_bits, high_bits));
  }
  V word;
  for (uint32_t i = 0; i < op.operands.size(); ++i) {
    const Register& r = registers_[op.operands[i].index];
    const V all = stored_bits(get(op.operands[i]), r.raw, t);
    // the last part needs no mask
    const V low = i + 1 < op.operands.size() ? all & ((1u << width) - 1) : all;
    const V part = i ? low << (width * i) : low;
    word = word.id ? word | part : part;
  }
  set(op.results.at(0), word);
}

// One element, from where it is: an argument by value has come in a register.
Walk::Register Walk::element(const ir::Op& op, const Ref& r) {
  if (!r.by_value) return load(op, r);
  if (size_bytes(r.dtype) == 8) return {r.dtype == DType::f64 ? floating(r.base) : r.base, {}};
  const V word = to_uint(r.base, Reg::u32);
  if (size_bytes(r.dtype) == 4) return {is_float(r.dtype) ? floating(word) : word, {}};
  if (!is_signed_int(r.dtype) || is_int4(r.dtype)) return narrow_register(word, r.dtype);
  const V first = sink_.make(Reg::u32, 0), count = sink_.make(Reg::u32, static_cast<uint32_t>(8 * size_bytes(r.dtype)));
  return narrow_register(sink_.apply(Prim::extract_sint, Reg::u32, {word, first, count}), r.dtype);
}

void Walk::emit_load(const ir::Op& op) {
  if (ir::is_vector_access(op)) return emit_vector_load(op);
  const Ref& r = ref(op.operands.at(0));
  const ir::Value result = op.results.at(0);
  if (!op.has_mask()) {
    const Register x = element(op, r);
    set(result, x.v, x.raw);
    return;
  }
  // A masked-out element without `other` is 0: unspecified, but the same at every use.
  const V other =
      op.has_other() ? get(op.operands.at(static_cast<size_t>(op.other_position()))) : constant(sink_, r.dtype, 0);
  const std::vector<V> out = sink_.if_else(
      get(op.operands.at(1)), [&] { return std::vector<V>{element(op, r).v}; }, [&] { return std::vector<V>{other}; });
  set(result, out.at(0));
}

void Walk::emit_store(const ir::Op& op) {
  if (ir::is_vector_access(op)) return emit_vector_store(op);
  const Ref& r = ref(op.operands.at(0));
  const V value = get(op.operands.at(1)), raw = registers_[op.operands[1].index].raw;
  if (!op.has_mask()) return store(op, r, value, raw);
  sink_.when(get(op.operands.at(2)), [&] { store(op, r, value, raw); });
}

Opcode Walk::atomic_kind(const ir::Op& op) {
  return op.code == Opcode::atomic_cas ? op.code : static_cast<Opcode>(op.attr(ir::Attr::kind));
}

Walk::Register Walk::atomic_element(DType t, V word, V shift) const {
  if (size_bytes(t) >= 4) return {is_float(t) ? floating(word) : word, {}};
  const V low = (word >> shift) & (size_bytes(t) == 1 ? 0xff : 0xffff);
  return {from_memory_bits(low, t), is_narrow_float(t) ? low : V{}};
}

V Walk::atomic_result(const ir::Op& op, V word, V shift) const {
  const DType t = k_.type(op.operands.at(1)).dtype;
  const bool narrow = size_bytes(t) < 4;
  const uint32_t mask = size_bytes(t) == 1 ? 0xff : 0xffff;
  const auto memory = [&](V v, V raw) -> V {
    if (!narrow) return bits(v);
    return (raw.id ? raw : memory_bits(v, t)) & mask;
  };
  const Opcode kind = atomic_kind(op);
  const V value = get(op.operands.at(1)), raw = registers_[op.operands[1].index].raw;
  const V old = atomic_element(t, word, shift).v;
  V now;
  if (kind == Opcode::swap) now = memory(value, raw);
  else if (kind == Opcode::atomic_cas) {
    const V same =
        elementwise(Opcode::eq, t, DType::boolean, {old, get(op.operands.at(2))}, {values_of(t), values_of(t)});
    const V as_it_was = narrow ? (word >> shift) & mask : word;
    now = select(same, memory(value, raw), as_it_was);
  } else {
    now = memory(elementwise(kind, t, t, {old, value}, {values_of(t), values_of(t)}), {});
  }
  if (!narrow) return now;
  const V in_place = now << shift;
  return (word & ~(sink_.make(Reg::u32, mask) << shift)) | in_place;
}

Walk::Register Walk::atomic_loop(const ir::Op& op, V address) {
  const DType t = k_.type(op.operands.at(1)).dtype;
  const int64_t size = size_bytes(t);
  V shift;
  if (size < 4) {
    shift = (to_uint(address, Reg::u32) & 3) << 3;
    address = address & Literal(~uint64_t{3});
  }
  const AtomicWord word = atomic_word(address, size == 8 ? Reg::u64 : Reg::u32, used_values_[op.results.at(0).index]);
  const V start = word.load();
  const std::vector<V> end = sink_.while_loop(
      {start, sink_.boolean(true)}, [&](const std::vector<V>& s) { return s[1]; },
      [&](const std::vector<V>& s) {
        const V now = atomic_result(op, s[0], shift), seen = word.exchange(now, s[0]);
        return std::vector<V>{seen, ne(seen, s[0])};
      });
  return atomic_element(t, end[0], shift);
}

}  // namespace tessera::expand
