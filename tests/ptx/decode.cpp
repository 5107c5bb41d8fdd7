#include "tests/ptx/decode.h"

#include <algorithm>
#include <bit>

namespace tessera::ptx {

namespace {

const Opcodes& opcodes() {
  static const Opcodes kAll = [] {
    Opcodes o;
    add_integer_ops(o), add_float_ops(o), add_convert_ops(o), add_move_ops(o), add_control_ops(o);
    add_memory_ops(o), add_atomic_ops(o), add_warp_ops(o), add_barrier_ops(o), add_matrix_ops(o), add_mbarrier_ops(o),
        add_wgmma_ops(o);
    return o;
  }();
  return kAll;
}

uint64_t up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

/// Where each variable lies in its space: static shared memory before the dynamic one.
void lay_out(Code& c, const Module& m) {
  c.offsets.assign(m.variables.size(), 0);
  uint64_t shared = 0;
  for (size_t v = 0; v < m.variables.size(); ++v) {
    const Variable& x = m.variables[v];
    if (x.space == Space::shared && x.size) {
      shared = up(shared, x.alignment);
      c.offsets[v] = shared;
      shared += x.size;
    } else if (x.space == Space::constant) {
      c.constant_bytes = up(c.constant_bytes, x.alignment);
      c.offsets[v] = c.constant_bytes;
      c.constant_bytes += x.size;
    } else if (x.space == Space::local || x.space == Space::param) {  // parameters of calls; an entry's are its own
      c.local_bytes = up(c.local_bytes, x.alignment);
      c.offsets[v] = c.local_bytes;
      c.local_bytes += x.size;
    }
  }
  for (size_t v = 0; v < m.variables.size(); ++v)
    if (m.variables[v].space == Space::shared && !m.variables[v].size) shared = up(shared, m.variables[v].alignment);
  for (size_t v = 0; v < m.variables.size(); ++v)
    if (m.variables[v].space == Space::shared && !m.variables[v].size) c.offsets[v] = shared;
  c.shared_static = shared;
  for (size_t p = 0; p < c.entry->params.size(); ++p) c.offsets[c.entry->params[p]] = c.entry->param_offsets[p];
}

}  // namespace

void Decoder::fail(const std::string& what) const { throw Error(s->line, what + ": " + s->text); }

bool Decoder::take(const std::string& word) {
  for (size_t k = 0; k < used_.size(); ++k)
    if (!used_[k] && s->words[k] == word) return used_[k] = true;
  return false;
}
int Decoder::take_any(const std::vector<std::string>& words) {
  for (size_t k = 0; k < words.size(); ++k)
    if (take(words[k])) return static_cast<int>(k);
  return -1;
}
void Decoder::ignore(const std::vector<std::string>& words) {
  while (take_any(words) >= 0) {
  }
}
Type Decoder::type() {
  for (size_t k = 0; k < used_.size(); ++k) {
    const Type t = used_[k] ? Type::none : type_of(s->words[k]);
    if (t == Type::none) continue;
    used_[k] = true;
    return t;
  }
  return Type::none;
}
Type Decoder::need_type() {
  const Type t = type();
  if (t == Type::none) fail("a type is missing");
  return t;
}
Space Decoder::space(Space otherwise) {
  static const std::vector<std::string> kNames = {
      "global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "param::func", "const"};
  static const Space kSpaces[] = {Space::global, Space::shared, Space::shared, Space::shared,  Space::local,
                                  Space::param,  Space::param,  Space::param,  Space::constant};
  for (size_t w = 0; w < used_.size(); ++w) {  // the first one that is there: an instruction may name two
    const auto found = std::find(kNames.begin(), kNames.end(), s->words[w]);
    if (used_[w] || found == kNames.end()) continue;
    used_[w] = true;
    return kSpaces[found - kNames.begin()];
  }
  return otherwise;
}
Round Decoder::rounding(Round otherwise, bool* given) {
  static const std::vector<std::string> kNames = {"rn", "rni", "rz", "rzi", "rm", "rmi", "rp", "rpi", "rna"};
  static const Round kRounds[] = {Round::even, Round::even, Round::zero, Round::zero, Round::down,
                                  Round::down, Round::up,   Round::up,   Round::away};
  const int k = take_any(kNames);
  if (given) *given = k >= 0;
  return k < 0 ? otherwise : kRounds[k];
}
uint16_t Decoder::order() {
  uint16_t flags = 0;
  if (take("acquire")) flags |= kStrong | kAcquire;
  if (take("release")) flags |= kStrong | kRelease;
  if (take("acq_rel")) flags |= kStrong | kAcquire | kRelease;
  if (take("relaxed")) flags |= kStrong;
  if (take("volatile")) flags |= kStrong | kVolatile;
  if (take("mmio")) flags |= kStrong;
  take("weak");
  i->of_cta = take("cta");
  ignore({"cluster", "gpu", "sys"});
  return flags;
}

const Operand& Decoder::operand(size_t k) const {
  if (k >= s->operands.size()) fail("operand " + std::to_string(k + 1) + " is missing");
  return s->operands[k];
}
void Decoder::need_operands(size_t n) const {
  if (s->operands.size() != n)
    fail("there are " + std::to_string(s->operands.size()) + " operands instead of " + std::to_string(n));
}
uint32_t Decoder::register_width(const Operand& o) const {
  return o.kind == Operand::reg ? width_of(function.registers[o.index].type) : 0;
}
uint32_t Decoder::constant(uint64_t bits) {
  const auto [found, is_new] = constants_.insert({bits, code.slots});
  if (is_new) code.constants.push_back({code.slots++, bits});
  return found->second;
}
uint64_t Decoder::address_of(uint32_t v, Space* space) const {
  const Variable& x = module.variables[v];
  Space in = x.space;
  uint64_t base = 0;
  if (in == Space::param &&
      std::find(code.entry->params.begin(), code.entry->params.end(), v) == code.entry->params.end())
    in = Space::local;
  if (in == Space::shared || in == Space::constant) base = kSharedBase;
  if (in == Space::local) base = kLocalBase;
  if (space) *space = in;
  return base + code.offsets[v];
}
uint32_t Decoder::global_address(uint32_t variable, uint64_t offset) {
  code.addresses.push_back({code.slots, variable, offset});
  return code.slots++;
}
uint32_t Decoder::source(size_t k, Type t, bool any_width) { return source(operand(k), t, any_width); }
uint32_t Decoder::source(const Operand& o, Type t, bool any_width) {
  const uint32_t width = width_of(t);
  switch (o.kind) {
    case Operand::reg: {
      const uint32_t has = register_width(o);
      if (has != width && !any_width && has < 128)
        fail("\"" + o.name + "\" has " + std::to_string(has) + " bits instead of " + std::to_string(width));
      if (o.offset) fail("\"" + o.name + "\" with an offset is no operand");
      return first_slot_ + o.index;
    }
    case Operand::integer:
      if (t == Type::f32 || t == Type::f64) fail("a whole number where a float is expected");
      return constant(o.bits & mask_of(width));
    case Operand::real32:
    case Operand::real64: {
      double x = o.kind == Operand::real32 ? std::bit_cast<float>(static_cast<uint32_t>(o.bits))
                                           : std::bit_cast<double>(o.bits);
      if (t == Type::f64) return constant(std::bit_cast<uint64_t>(x));
      if (o.kind == Operand::real32) return constant(o.bits);
      if (width != 32) fail("\"" + o.name + "\" is no number of this type");
      return constant(std::bit_cast<uint32_t>(static_cast<float>(x)));
    }
    case Operand::special: {
      if (o.which == Special::clock || o.which == Special::clock64 || o.which == Special::globaltimer)
        fail("\"" + o.name + "\" may only be moved");
      const auto [found, is_new] = specials_.insert({{static_cast<int>(o.which), o.component}, code.slots});
      if (is_new) code.specials.push_back({code.slots++, o.which, o.component});
      return found->second;
    }
    case Operand::variable:
      if (module.variables[o.index].space == Space::global)
        return global_address(o.index, static_cast<uint64_t>(o.offset));
      return constant((address_of(o.index) + static_cast<uint64_t>(o.offset)) & mask_of(width));
    default: fail("\"" + o.name + "\" is no operand here");
  }
}
uint32_t Decoder::result(size_t k, Type t, bool any_width) { return result(operand(k), t, any_width); }
uint32_t Decoder::result(const Operand& o, Type t, bool any_width) {
  if (o.kind == Operand::sink) return code.slots++;
  if (o.kind != Operand::reg) fail("the result is no register");
  const uint32_t has = register_width(o), width = width_of(t);
  if (has != width && !any_width)
    fail("\"" + o.name + "\" has " + std::to_string(has) + " bits instead of " + std::to_string(width));
  code.writes[i->pc].push_back(first_slot_ + o.index);
  return first_slot_ + o.index;
}
void Decoder::address(const Operand& o, Space& space, uint32_t& slot, uint64_t& offset) {
  const Operand& base = o.kind == Operand::address && !o.parts.empty() ? o.parts[0] : o;
  if (o.kind != Operand::address && space != Space::param) fail("an address in brackets is expected");
  offset = static_cast<uint64_t>(base.offset);
  if (base.kind == Operand::reg) {
    slot = first_slot_ + base.index;
    if (space == Space::param) return;
    if (register_width(base) < 32) fail("\"" + base.name + "\" is too narrow for an address");
  } else if (base.kind == Operand::variable) {
    Space in;
    offset += address_of(base.index, &in);
    slot = in == Space::global ? global_address(base.index, 0) : constant(0);
    if (space == Space::param && in == Space::local) space = Space::local;
    if (space == Space::generic && in != Space::param) space = in;
    if (space == Space::generic && in == Space::param) fail("a parameter is loaded by ld.param");
    if (in != space) fail("\"" + base.name + "\" is in another space");
  } else if (base.kind == Operand::integer) {
    slot = constant(base.bits);
  } else {
    fail("\"" + base.name + "\" is no address");
  }
}
void Decoder::jump(const std::string& label) {
  jumps.push_back({i->pc, code.successors[i->pc].size(), label, s->scope});
  code.successors[i->pc].push_back(kNone);
}
void Decoder::accesses(uint32_t bytes) {
  while (code.granule > 0 && (1u << code.granule) > bytes) --code.granule;
}

void Decoder::statement(uint32_t index) {
  s = &function.code[index];
  used_.assign(s->words.size(), false);
  const auto found = opcodes().find(s->opcode);
  if (found == opcodes().end()) fail("the instruction \"" + s->opcode + "\" is not known");
  places.push_back(static_cast<uint32_t>(code.code.size()));
  Instr instr;
  instr.pc = places.back();
  instr.statement = static_cast<uint32_t>(code.sources.size());
  code.sources.push_back({&function, index});
  code.writes.emplace_back();
  code.successors.emplace_back();
  i = &instr;
  if (s->guard != kNone) instr.guard = first_slot_ + s->guard, instr.guard_not = s->guard_negated;
  found->second(*this);
  for (size_t k = 0; k < used_.size(); ++k)
    if (!used_[k]) fail("\"." + s->words[k] + "\" is not known here");
  code.code.push_back(instr);
}

Code decode(const Module& m, const Function& entry) {
  if (!entry.body) throw Error(entry.line, "\"" + entry.name + "\" has no body");
  Code c;
  c.module = &m, c.entry = &entry;
  lay_out(c, m);
  std::vector<const Function*> functions{&entry};
  std::vector<uint32_t> starts;
  std::vector<std::pair<uint32_t, std::string>> calls;
  for (size_t k = 0; k < functions.size(); ++k) {
    const Function& f = *functions[k];
    const uint32_t first = c.slots;
    c.slots += static_cast<uint32_t>(f.registers.size());
    starts.push_back(static_cast<uint32_t>(c.code.size()));
    Decoder d(c, m, f, first);
    for (uint32_t s = 0; s < f.code.size(); ++s) d.statement(s);
    d.places.push_back(static_cast<uint32_t>(c.code.size()));
    for (const Decoder::Jump& j : d.jumps) {
      const Statement& s = c.statement(c.code[j.pc]);
      const uint32_t at = f.find_label(j.label, j.scope);
      if (at == kNone) throw Error(s.line, "there is no label \"" + j.label + "\": " + s.text);
      c.successors[j.pc][j.successor] = d.places[at];
      if (j.successor == 0) c.code[j.pc].d = d.places[at];
    }
    for (const Decoder::Call& call : d.calls) {
      const Function* callee = m.find(call.callee);
      const Statement& s = c.statement(c.code[call.pc]);
      if (!callee || !callee->body || callee->entry)
        throw Error(s.line, "there is no function \"" + call.callee + "\" with a body: " + s.text);
      if (std::find(functions.begin(), functions.end(), callee) == functions.end()) functions.push_back(callee);
      calls.push_back({call.pc, call.callee});
    }
    // a function that runs off its end returns
    if (f.code.empty() || (f.code.back().opcode != "ret" && f.code.back().opcode != "exit") ||
        f.code.back().guard != kNone || d.places.back() == d.places.front() ||
        std::any_of(d.jumps.begin(), d.jumps.end(),
                    [&](const auto& j) { return c.successors[j.pc][j.successor] == d.places.back(); }))
      throw Error(f.code.empty() ? f.line : f.code.back().line, "\"" + f.name + "\" runs off its end: it lacks a ret");
  }
  for (const auto& [pc, callee] : calls)
    for (size_t k = 0; k < functions.size(); ++k)
      if (functions[k]->name == callee) c.code[pc].e = starts[k];
  return c;
}

}  // namespace tessera::ptx
