// Loading ahead: what the next step of the innermost sequential axis reads from its input blocks is under way while
// this step computes. Two forms, both in registers that the axis' loop carries: a load whose elements have registers is
// done one step early, and a staged product, which fetches its next chunk while it computes one anyway, behind its last
// chunk fetches the next step's first. In the first step each loads for itself. Nothing else changes: an input that the
// call does not write holds the same at any time. Only for GPUs, where loads take long.
#include <algorithm>

#include "codegen/lower/lowering.h"

namespace tessera::lowering {
using ir::Opcode;

namespace {
constexpr int64_t kMostRegisters = 32;  // carried per invocation by loads; a product's are those of its chunks
}  // namespace

/// Lazy values down to Refs and scalars. False if something else is read: what this step computed.
bool Lowering::readable_early(Value root, std::set<int>& refs, std::set<uint32_t>& scalars) const {
  std::set<uint32_t> seen;
  std::vector<Value> stack{root};
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (k_.type(v).is_ref || !seen.insert(v.index).second) continue;
    const ir::Op* o = k_.def(v);
    const bool scalar = kinds_[v.index] == Kind::scalar;
    if (!o || (!scalar && kinds_[v.index] != Kind::lazy)) return false;
    if (o->code == Opcode::load) {
      const int ref = ref_position(k_, o->operands[0]);
      if (written(ref) || (scalar && ref >= k_.num_prefetch)) return false;
      refs.insert(ref);
    } else if (scalar && !ir::info(o->code).elementwise && o->code != Opcode::constant && !ir::is_grid(o->code)) {
      return false;
    }
    if (scalar) scalars.insert(k_.value(v).def.index);
    stack.insert(stack.end(), o->operands.begin(), o->operands.end());
  }
  return true;
}

void Lowering::choose_loads_ahead() {
  ahead_notes_.assign(k_.blocks.size(), "");
  if (target_.kind != Target::Kind::gpu || s_.general) return;
  for (size_t j = s_.sequential.size(); j-- > 0 && ahead_axis_ < 0;)
    if (k_.grid[static_cast<size_t>(s_.sequential[j])].size.value() != 1)
      ahead_axis_ = s_.sequential[j], ahead_depth_ = j;
  if (ahead_axis_ < 0) return;
  for (int i = k_.num_prefetch; i < k_.num_inputs; ++i) {
    const ir::BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    if (!moves(i) || written(i) || k_.aliased_output(i) >= 0) continue;
    if (b.buffering.count == 1) ahead_notes_[static_cast<size_t>(i)] = "Buffered(1): loaded where it is used";
    else moving_.insert(i);
  }
  // What a wide product reads it fetches itself.
  std::set<uint32_t> in_dots;
  for (const ir::Op& o : k_.ops) {
    if (o.code != Opcode::dot || reads_in_place(o)) continue;
    in_dots.merge(computed_for({o.operands[0], o.operands[1]}));
  }
  int64_t registers = 0;
  for (ir::OpId id : k_.region(k_.body).ops) {
    const ir::Op& o = k_.op(id);
    if (o.code != Opcode::load || !moving_.count(ref_position(k_, o.operands[0]))) continue;
    const Value v = o.results[0];
    std::string& note = ahead_notes_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
    std::set<int> refs;
    Ahead a{id.index, 0, s_.registers(axes_.of(v)), k_.type(v).dtype, {}, {}, {}};
    if (kinds_[v.index] != Kind::lazy || !used_[v.index] || in_dots.count(v.index)) continue;
    const bool early = readable_early(v, refs, a.scalars);
    for (int r : refs)
      if (moves(r)) a.refs.push_back(r);
    if (!early) note = "not loaded ahead: where it is read depends on what the step computes";
    else if (!std::all_of(a.refs.begin(), a.refs.end(), [&](int r) { return moving_.count(r) > 0; }))
      note = "not loaded ahead: it is read together with a block that is not";
    else if (!s_.enumerable(axes_, axes_.of(v))) note = "not loaded ahead: not all of its elements have registers";
    else if (registers + a.count > kMostRegisters)
      note = "not loaded ahead: it takes " + std::to_string(a.count) + " registers per invocation, and " +
             std::to_string(kMostRegisters - registers) + " are left for that";
    else {
      registers += a.count;
      kinds_[v.index] = Kind::registers;
      ahead_.push_back(std::move(a));
    }
  }
}

void Lowering::settle_ahead() {
  // A nest without their layout reads these: they are computed where they are used, like all loads of what nobody
  // writes.
  std::erase_if(ahead_, [&](const Ahead& a) {
    const ir::Op& o = k_.ops[a.op];
    Kind& kind = kinds_[o.results[0].index];
    if (kind == Kind::registers) return false;
    kind = Kind::lazy;
    --misfits_;
    ahead_notes_[static_cast<size_t>(ref_position(k_, o.operands[0]))] =
        "not loaded ahead: what reads it has another layout";
    return true;
  });
  if (!moving_.empty())
    for (ir::OpId id : k_.region(k_.body).ops)
      if (k_.op(id).code == Opcode::dot) dot_ahead(id);
  for (const Ahead& a : ahead_) {
    const ir::Op& o = k_.ops[a.op];
    for (int r : a.refs) {
      const int64_t buffers = k_.blocks[static_cast<size_t>(r)].buffering.count;
      std::string& note = ahead_notes_[static_cast<size_t>(r)];
      note = o.code == Opcode::dot ? "the next step's first chunk is loaded ahead into "
                                   : "the next step's block is loaded ahead into ";
      note += std::to_string(a.count) + (a.count == 1 ? " register" : " registers") + " per invocation";
      if (buffers > 2)
        note += ", one step ahead, as Buffered(2) asks: Buffered(" + std::to_string(buffers) + ") has no more effect";
    }
  }
  std::set<int> read;
  for (const ir::Op& o : k_.ops)
    if (ir::reads_ref(o.code)) read.insert(ref_position(k_, o.operands[0]));
  for (int i : moving_)
    if (std::string& note = ahead_notes_[static_cast<size_t>(i)]; note.empty() && read.count(i))
      note = "not loaded ahead: it is read inside of control flow only, or one element at a time";
}

Lowering::Ahead* Lowering::ahead_of(ir::OpId id, int operand) {
  for (Ahead& a : ahead_)
    if (a.op == id.index && a.operand == operand) return &a;
  return nullptr;
}

Value Lowering::next_step() {
  const auto axis = static_cast<size_t>(ahead_axis_);
  const Value one = b_.i32(1), last = b_.sub(grid_size(axis), one);
  return b_.min(b_.add(pid_[axis], one), last);
}

Value Lowering::in_first_step() { return b_.eq(pid_[static_cast<size_t>(ahead_axis_)], b_.i32(0)); }

Values Lowering::at_step(const Ahead& a, Value step, const std::function<Values()>& f) {
  const auto axis = static_cast<size_t>(ahead_axis_);
  const Value here = std::exchange(pid_[axis], step);
  std::vector<std::pair<Value, Value>> scalars;
  std::vector<std::pair<int, RefState>> windows;
  for (ir::OpId id : k_.region(k_.body).ops) {
    if (!a.scalars.count(id.index)) continue;
    const Value v = k_.op(id).results[0];
    scalars.emplace_back(v, home(v).scalar);
    scalar_op(id);
  }
  for (int r : a.refs) {
    windows.emplace_back(r, refs_[static_cast<size_t>(r)]);
    enter_window(r);
  }
  const uint32_t outer = std::exchange(step_, ++steps_);
  Values result = f();
  step_ = outer;
  for (auto& [r, window] : windows) refs_[static_cast<size_t>(r)] = std::move(window);
  for (const auto& [v, lane] : scalars) home(v).scalar = lane;
  pid_[axis] = here;
  return result;
}

void Lowering::load_ahead(Ahead& a, const ir::Op& o) {
  const Value v = o.results[0];
  const auto load = [&] {
    Values regs;
    layout_nest(shape(v), axes_.of(v), false,
                [&](const NestPoint& p) { regs.push_back(load_element(o, p.c, p.valid)); });
    return regs;
  };
  const Values before = a.regs;
  home(v).regs = b_.if_else(in_first_step(), load, [&] { return before; });
  a.regs = at_step(a, next_step(), load);
}

}  // namespace tessera::lowering
