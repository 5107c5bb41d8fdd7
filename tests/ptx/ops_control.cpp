// Branches, calls and the end of a thread.
#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

void branch(Thread& t, const Instr& i) { t.pc = i.d; }
void indexed(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  const auto& targets = t.m->code.successors[i.pc];
  if (a.poison) t.m->stop(Fault::poison, t, i, "the branch hangs on what nobody has written");
  if (a.bits >= targets.size())
    t.m->stop(Fault::bounds, t, i,
              "there is no target " + std::to_string(a.bits) + " of " + std::to_string(targets.size()));
  t.pc = targets[a.bits];
}
void leave(Thread& t, const Instr&) { t.m->exit(t); }
void ret(Thread& t, const Instr&) {
  if (t.calls.empty()) return t.m->exit(t);
  t.pc = t.calls.back();
  t.calls.pop_back();
}
void trap(Thread& t, const Instr& i) { t.m->stop(Fault::trap, t, i, "it traps"); }
void nothing(Thread&, const Instr&) {}
void nanosleep(Thread& t, const Instr&) { t.quantum = 0; }

/// Parameters and results are memory of the thread: each call's, and each function's. Copies them from one to the
/// other.
void copy_parameters(Thread& t, const Instr& i) {
  const auto& lists = t.m->code.lists;
  for (uint32_t k = 0; k + 2 < i.count; k += 3) {
    const uint32_t from = lists[i.list + k], to = lists[i.list + k + 1], bytes = lists[i.list + k + 2];
    for (uint32_t b = 0; b < bytes; ++b) {
      t.local->bytes[to + b] = t.local->bytes[from + b];
      t.local->poison[to + b] = t.local->poison[from + b];
    }
  }
}
void call(Thread& t, const Instr& i) {
  copy_parameters(t, i);
  if (t.calls.size() > 64) t.m->stop(Fault::undefined, t, i, "calls are too deep: recursion is not known");
  t.calls.push_back(t.pc);
  t.pc = i.e;
}

void decode_call(Decoder& d) {
  Instr& i = *d.i;
  d.take("uni");
  const bool gives = d.operand(0).kind == Operand::params;
  const size_t at = gives ? 1 : 0;
  const std::string callee = d.operand(at).name;
  const Function* f = d.module.find(callee);
  if (!f || d.operands() > at + 2) d.fail("indirect calls are not known");
  static const std::vector<Operand> kNone_;
  const std::vector<Operand>& given = d.operands() > at + 1 ? d.operand(at + 1).parts : kNone_;
  if (given.size() != f->params.size())
    d.fail("\"" + callee + "\" takes " + std::to_string(f->params.size()) + " parameters");
  const auto copy = [&](uint32_t from, uint32_t to) {
    const uint64_t a = d.module.variables[from].size, b = d.module.variables[to].size;
    if (a != b) d.fail("a parameter of \"" + callee + "\" has another size");
    d.append(static_cast<uint32_t>(d.code.offsets[from])), d.append(static_cast<uint32_t>(d.code.offsets[to])),
        d.append(static_cast<uint32_t>(a));
  };
  d.begin_list();
  for (size_t k = 0; k < given.size(); ++k) {
    if (given[k].kind != Operand::variable) d.fail("parameters are variables");
    copy(given[k].index, f->params[k]);
  }
  i.effects = true;
  i.run = call;
  d.calls.push_back({i.pc, callee});
  if (!gives) return;
  // the results are fetched by an instruction of their own
  Instr after = i;
  after.pc = i.pc + 1, after.count = 0;
  after.run = copy_parameters;
  d.code.code.push_back(i);
  d.code.writes.emplace_back();
  d.code.successors.emplace_back();
  i = after;
  const std::vector<Operand>& wanted = d.operand(0).parts;
  if (wanted.size() != f->results.size()) d.fail("\"" + callee + "\" gives another number of results");
  d.begin_list();
  for (size_t k = 0; k < wanted.size(); ++k) copy(f->results[k], wanted[k].index);
}

}  // namespace

void add_control_ops(Opcodes& o) {
  o["bra"] = [](Decoder& d) {
    d.take("uni");
    d.need_operands(1);
    d.jump(d.operand(0).name);
    d.i->run = branch;
  };
  o["brx"] = [](Decoder& d) {
    if (!d.take("idx")) d.fail(".idx is missing");
    d.take("uni");
    d.i->a = d.source(0, Type::b32);
    if (d.operands() != 2) d.fail("a list of targets is expected");
    if (d.operand(1).kind == Operand::vector) {
      for (const Operand& o2 : d.operand(1).parts) d.jump(o2.name);
    } else {
      for (uint32_t scope = d.s->scope; scope != kNone; scope = d.function.scope_parents[scope]) {
        const auto found = d.function.targets[scope].find(d.operand(1).name);
        if (found == d.function.targets[scope].end()) continue;
        for (const std::string& l : found->second) d.jump(l);
        break;
      }
    }
    if (d.code.successors[d.i->pc].empty()) d.fail("there are no such .branchtargets");
    d.i->run = indexed;
  };
  o["call"] = decode_call;
  o["ret"] = [](Decoder& d) { d.take("uni"), d.need_operands(0), d.i->run = ret, d.i->effects = true; };
  o["exit"] = [](Decoder& d) { d.need_operands(0), d.i->run = leave, d.i->effects = true; };
  o["trap"] = [](Decoder& d) { d.need_operands(0), d.i->run = trap, d.i->effects = true; };
  o["brkpt"] = [](Decoder& d) { d.need_operands(0), d.i->run = nothing; };
  o["pmevent"] = [](Decoder& d) { d.take("mask"), d.i->run = nothing; };
  o["nanosleep"] = [](Decoder& d) { d.need_type(), d.i->run = nanosleep; };
}

}  // namespace tessera::ptx
