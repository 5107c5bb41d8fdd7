// Arrays, scratch and the report through 64-bit addresses; shared memory by 32-bit ones from the arena's.
#include "codegen/nvidia/emitter.h"
#include "engine/ir/walk.h"

namespace tessera::nvidia {

using ir::MemorySpace;
using ir::Opcode;

namespace {
constexpr const char* store_code(bool of_program) { return of_program ? "st.shared." : "st.global."; }

/// What memory holds, as it comes into a register of 32 bits: bool, 4-bit integers and 8-bit floats as u8, 16-bit
/// floats as u16.
const char* narrow_type(DType t) {
  const bool sgn = is_signed_int(t) && !is_int4(t);
  return size_bytes(t) == 1 ? (sgn ? "s8" : "u8") : (sgn ? "s16" : "u16");
}
}  // namespace

std::string Emitter::load_code(const Ref& r) {
  return r.of_program ? "ld.shared." : r.shared_with_others ? "ld.global." : "ld.global.nc.";
}

// An index of 32 bits becomes an offset of 64 in one product.
V Emitter::byte_offset(V index, const Bounds& known, int64_t size) {
  if (index.reg == Reg::u64 || size == 1 || f_.known(index)) return Walk::byte_offset(index, known, size);
  const bool positive = within(known, 0, UINT32_MAX / size);
  const V bytes = f_.make(Reg::u32, size);
  return f_.op(positive ? "mul.wide.u32" : "mul.wide.s32", Reg::u64, {index, bytes});
}

// x + constant, of whatever was added to an index: 32-bit addresses wrap as indices do.
std::pair<ir::Value, int64_t> Emitter::split_sum(ir::Value x, int64_t constant) const {
  for (const ir::Op* d = k_.def(x); d && d->code == Opcode::add; d = k_.def(x)) {
    const auto c = ir::constant_int(k_, d->operands[1]);
    if (!c || std::abs(*c) > INT32_MAX || std::abs(constant + *c) > INT32_MAX / 16) break;
    constant += *c;
    x = d->operands[0];
  }
  return {x, constant};
}

// `from`: the arena's address, or a place in it.
std::string Emitter::in_arena(V from, const Ref& r, std::optional<ir::Value> index, int64_t start, int64_t more_bytes) {
  const int64_t stride = ir::arena_stride(r.dtype);
  int64_t constant = start;
  V address = from;
  if (index) {
    const auto [x, sum] = split_sum(*index, start);
    constant = sum;
    const V at = get(x);
    V& known = addresses_[{f_.block, from.id, at.id, stride}];
    if (!known.id) known = from + (to_uint(at, Reg::u32) << (stride == 8 ? 3 : 2));
    address = known;
  }
  constant = constant * stride + more_bytes;
  if (const auto base = f_.known(r.base)) constant += static_cast<int64_t>(*base) * 4;
  else address = address + (r.base << 2);
  const std::string offset = constant ? "+" + std::to_string(static_cast<int32_t>(constant)) : "";
  return "[" + f_.in_register(address) + offset + "]";
}

std::string Emitter::shared_address(const ir::Op& op, const Ref& r) {
  const ir::Index& i = op.index.at(0);
  if (i.is_static()) return in_arena(arena_, r, {}, i.constant(), 0);
  return in_arena(arena_, r, op.operand_of(i), 0, 0);
}

Emitter::Register Emitter::load(const ir::Op& op, const Ref& r) {
  const Reg reg = reg_of(r.dtype);
  if (r.space == MemorySpace::shared) {
    const std::string from = shared_address(op, r);
    const V v = f_.fresh(reg == Reg::boolean ? Reg::u32 : reg);
    f_.line(std::string("ld.shared.") + bits_type(v.reg) + " " + f_.operand(v) + ", " + from);
    return {reg == Reg::boolean ? ne(v, 0) : v, {}};  // narrow floats lie there as f32
  }
  if (r.by_words) return load_part(op, r);
  const std::string from = at(element_address(op, r));
  const bool narrow = size_bytes(r.dtype) < 4;
  const V v = f_.fresh(narrow ? Reg::u32 : reg);
  f_.line(load_code(r) + (narrow ? narrow_type(r.dtype) : bits_type(reg)) + " " + f_.operand(v) + ", " + from);
  return narrow ? narrow_register(v, r.dtype) : Register{v, {}};
}

void Emitter::store(const ir::Op& op, const Ref& r, V value, V raw) {
  if (r.space == MemorySpace::shared) {
    const V v = value.reg == Reg::boolean ? memory_bits(value, r.dtype) : value;
    const std::string to = shared_address(op, r);
    return f_.line(std::string("st.shared.") + bits_type(v.reg) + " " + to + ", " + f_.in_register(v));
  }
  if (r.by_words) return store_part(op, r, raw.id ? raw : memory_bits(value, r.dtype));
  const bool narrow = size_bytes(r.dtype) < 4;
  const V v = narrow ? stored_bits(value, raw, r.dtype) : value;
  const std::string to = at(element_address(op, r));
  f_.line(std::string(store_code(r.of_program)) +
          (narrow ? (size_bytes(r.dtype) == 1 ? "b8" : "b16") : bits_type(v.reg)) + " " + to + ", " +
          f_.in_register(v));
}

namespace {
std::string vector_type(size_t words) { return words == 1 ? "b32 " : "v" + std::to_string(words) + ".b32 "; }
}  // namespace

std::vector<V> Emitter::load_words(const ir::Op& op, const Ref& r, size_t words) {
  const bool shared = r.space == MemorySpace::shared;
  const std::string from = shared ? shared_address(op, r) : at(element_address(op, r));
  std::vector<V> all;
  std::string names;
  for (size_t i = 0; i < words; ++i) {
    all.push_back(f_.fresh(Reg::u32));
    names += (i ? ", " : "") + f_.operand(all[i]);
  }
  f_.line((shared ? "ld.shared." : load_code(r)) + vector_type(words) + (words == 1 ? names : "{" + names + "}") +
          ", " + from);
  return all;
}

void Emitter::store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) {
  std::string names;
  for (size_t i = 0; i < words.size(); ++i) names += (i ? ", " : "") + f_.in_register(words[i]);
  const bool shared = r.space == MemorySpace::shared;
  const std::string to = shared ? shared_address(op, r) : at(element_address(op, r));
  f_.line(store_code(shared || r.of_program) + vector_type(words.size()) + to + ", " +
          (words.size() == 1 ? names : "{" + names + "}"));
}

// A late store of what one load of an array that nothing writes has brought, all of it and for nothing else, is a
// cp.async: the registers between them are left out. Others are done at once.
void Emitter::find_copies() {
  std::vector<int> uses(k_.values.size(), 0);
  std::vector<const ir::Op*> stores;
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& op = k_.op(id);
    for (const ir::Value v : op.operands) ++uses[v.index];
    if (op.code == Opcode::store && op.attr_or(ir::Attr::late, 0) && ir::is_vector_access(op)) stores.push_back(&op);
  });
  for (const ir::Op* store : stores) {
    std::vector<ir::Value> elements;
    std::vector<const ir::Op*> packs;
    bool alone = true;
    for (size_t i = 1; i <= static_cast<size_t>(store->index[0].slice()->size); ++i) {
      const ir::Value v = store->operands[i];
      const ir::Op* pack = k_.def(v);
      if (pack && pack->code == Opcode::pack) {
        packs.push_back(pack);
        elements.insert(elements.end(), pack->operands.begin(), pack->operands.end());
        alone = alone && uses[v.index] == 1;
      } else {
        elements.push_back(v);
      }
    }
    for (const ir::Value v : elements) alone = alone && uses[v.index] == 1;
    const ir::Op* load = k_.def(elements[0]);
    if (!alone || !load || load->code != Opcode::load || load->results != elements) continue;
    const ir::Value from = root(load->operands[0]);
    const ir::Type &source = k_.type(load->operands[0]), &target = k_.type(store->operands[0]);
    const bool in_program = is_program(store->operands[0]);
    // In an arena elements have a word each.
    const bool as_they_are = packs.empty()
                                 ? source.dtype == target.dtype && (in_program || size_bytes(source.dtype) == 4)
                                 : packs.size() == static_cast<size_t>(store->index[0].slice()->size);
    if (k_.def(from) || written_.count(from.index) || source.space != MemorySpace::global || !as_they_are) continue;
    copies_[store] = load;
    left_out_.insert(load);
    left_out_.insert(packs.begin(), packs.end());
    copies_to_program_ = copies_to_program_ || in_program;
  }
}

bool Emitter::is_program(ir::Value memory) const {
  const ir::Op* d = k_.def(root(memory));
  return d && d->code == Opcode::alloc_program;
}

void Emitter::emit_copy(const ir::Op& store, const ir::Op& load) {
  const Ref& r = ref(store.operands.at(0));
  const std::string from = at(element_address(load, ref(load.operands.at(0))));
  const std::string to = r.of_program ? at(element_address(store, r)) : shared_address(store, r);
  const int64_t bytes = static_cast<int64_t>(load.results.size()) * size_bytes(k_.type(load.operands[0]).dtype);
  f_.line(std::string("cp.async.") + (bytes == 16 ? "cg" : "ca") + ".shared.global " + to + ", " + from + ", " +
          std::to_string(bytes));
}

void Emitter::emit_async_wait(const ir::Op& op) {
  f_.line("cp.async.commit_group");
  f_.line("cp.async.wait_group " + std::to_string(op.attr(ir::Attr::count)));
}

// Elements of 8 or 16 bits that stand at one place in words that vector accesses have loaded: blocks are transposed so,
// byte by byte, and two words share the first step.
bool Emitter::emit_transposed_pack(const ir::Op& op) {
  const size_t n = op.operands.size();
  if ((op.code != Opcode::pack && op.code != Opcode::pack4) || (n != 2 && n != 4)) return false;
  const uint32_t part = registers_[op.operands[0].index].part;
  std::vector<V> words = words_of_column(op.operands);
  if (words.empty()) return false;
  const auto permuted = [&](V low, V high, uint32_t bytes) {
    return f_.op("prmt.b32", Reg::u32, {low, high, f_.make(Reg::u32, bytes)});
  };
  if (n == 4)
    for (const size_t i : {size_t{0}, size_t{1}}) {
      V& t = transposed_[{f_.block, words[2 * i].id, words[2 * i + 1].id, part / 2}];
      if (!t.id) t = permuted(words[2 * i], words[2 * i + 1], part < 2 ? 0x5140 : 0x7362);
      words[i] = t;
    }
  set(op.results.at(0), permuted(words[0], words[1], part % 2 ? 0x7632 : 0x5410));
  return true;
}

void Emitter::emit_report_memory(const ir::Op& op) {
  refs_[op.results.at(0).index] = global_ref(DType::u32, report_, true);
}

// Several workgroups may report the same, hence atomics.
void Emitter::emit_report(const ir::Op& op) {
  f_.when(get(op.operands.at(0)), [&] {
    const V mask = f_.make(Reg::u32, static_cast<uint32_t>(op.attr(ir::Attr::mask)));
    atomic("or.b32", Reg::u32, at(report_), {mask}, false);
    for (size_t i = 1; i < op.operands.size(); ++i) {
      const V address = report_ + f_.make(Reg::u64, static_cast<uint64_t>(4 * i));
      atomic("exch.b32", Reg::u32, at(address), {to_uint(get(op.operands[i]), Reg::u32)}, false);
    }
  });
}

}  // namespace tessera::nvidia
