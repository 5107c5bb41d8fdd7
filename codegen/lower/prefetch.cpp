// Prefetching: what the next step of the innermost sequential axis reads from its input blocks is under way while
// this step computes. Two forms, both in registers that the axis' loop carries: a load whose elements have registers is
// done one step early, and a staged product, which fetches its next chunk while it computes one anyway, behind its last
// chunk fetches the next step's first. In the first step each loads for itself. Nothing else changes: an input that the
// call does not write holds the same at any time. Only for GPUs, where loads take long.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Opcode;

namespace {
constexpr int64_t kMostRegisters = 32;  // carried per invocation by loads; a product's are those of its chunks
}  // namespace

/// Lazy values down to Refs and scalars. False if something else is read: what this step computed.
bool Prefetch::readable_early(Value root, std::set<int>& refs, std::set<uint32_t>& scalars) const {
  std::set<uint32_t> seen;
  return ir::walk_back(k_, root, seen, [&](Value v, std::vector<Value>& next) {
    const ir::Op* o = k_.def(v);
    const bool scalar = placement_.kind(v) == Kind::scalar;
    if (!o || (!scalar && placement_.kind(v) != Kind::lazy)) return false;
    if (o->code == Opcode::load) {
      const int ref = ref_position(k_, o->operands[0]);
      if (refs_.written(ref) || (scalar && ref >= k_.num_prefetch)) return false;
      refs.insert(ref);
    } else if (scalar && !ir::is_elementwise(o->code) && o->code != Opcode::constant && !ir::is_grid(o->code)) {
      return false;
    }
    if (scalar) scalars.insert(k_.value(v).def.index);
    next.insert(next.end(), o->operands.begin(), o->operands.end());
    return true;
  });
}

void Prefetch::choose() {
  remarks_.assign(k_.blocks.size(), "");
  if (target_.kind != Target::Kind::gpu || s_.general) return;
  for (size_t j = s_.sequential.size(); j-- > 0 && axis_ < 0;)
    if (k_.grid[static_cast<size_t>(s_.sequential[j])].size.value() != 1) axis_ = s_.sequential[j], depth_ = j;
  if (axis_ < 0) return;
  for (int i = k_.num_prefetch; i < k_.num_inputs; ++i) {
    const ir::BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    if (!moves(i) || refs_.written(i) || k_.aliased_output(i) >= 0) continue;
    if (b.buffering.count == 1) remarks_[static_cast<size_t>(i)] = "Buffered(1): loaded where it is used";
    else moving_.insert(i);
  }
  // What a wide product reads it fetches itself.
  std::set<uint32_t> in_dots;
  for (const ir::Op& o : k_.ops) {
    if (o.code != Opcode::dot || dots_.reads_in_place(o)) continue;
    in_dots.merge(placement_.computed_for({o.operands[0], o.operands[1]}));
  }
  int64_t registers = 0;
  for (ir::OpId id : k_.region(k_.body).ops) {
    const ir::Op& o = k_.op(id);
    if (o.code != Opcode::load || !moving_.count(ref_position(k_, o.operands[0]))) continue;
    const Value v = o.results[0];
    std::string& remark = remarks_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
    std::set<int> refs;
    Load a{id.index, 0, s_.registers(axes_.of(v)), k_.type(v).dtype, {}, {}, {}};
    if (placement_.kind(v) != Kind::lazy || !placement_.used(v) || in_dots.count(v.index)) continue;
    const bool early = readable_early(v, refs, a.scalars);
    for (int r : refs)
      if (moves(r)) a.refs.push_back(r);
    if (!early) remark = "not prefetched: where it is read depends on what the step computes";
    else if (!std::all_of(a.refs.begin(), a.refs.end(), [&](int r) { return moving_.count(r) > 0; }))
      remark = "not prefetched: it is read together with a block that is not";
    else if (!s_.enumerable(axes_, axes_.of(v))) remark = "not prefetched: not all of its elements have registers";
    else if (registers + a.count > kMostRegisters)
      remark = "not prefetched: it takes " + std::to_string(a.count) + " registers per invocation, and " +
               std::to_string(kMostRegisters - registers) + " are left for that";
    else {
      registers += a.count;
      placement_.put_in_registers(v);
      loads_.push_back(std::move(a));
    }
  }
}

/// Which operands of a product at the body's top are staged from blocks that move with the axis.
void Prefetch::choose_staged(ir::OpId id) {
  const DotShape d = dots_.shape_of(k_.op(id));
  std::string why;
  const DotForm form = dots_.form_of(d);
  if (form != DotForm::staged && form != DotForm::matrix) why = "not prefetched: the product is too narrow to stage it";
  for (int a : d.result_axes)
    if (a != kNoAxis && plan(a).strips() > 1) why = "not prefetched: the product is done in strips";
  for (int operand = 0; operand < 2; ++operand) {
    const DType word = form == DotForm::matrix ? DType::u32
                       : !d.packed             ? d.acc
                       : operand == 0          ? d.packed->lhs_word
                                               : d.packed->rhs_word;
    Load a{id.index, operand, 0, word, {}, {}, {}};
    std::set<int> refs;
    const bool early = readable_early(operand == 0 ? d.lhs : d.rhs, refs, a.scalars);
    for (int r : refs)
      if (moves(r)) a.refs.push_back(r);
    const bool all = std::all_of(a.refs.begin(), a.refs.end(), [&](int r) { return moving_.count(r) > 0; });
    if (why.empty() && early && all && !a.refs.empty() && num_elements(d.result) > 0) {
      a.count = dots_.staged_share(d, operand);
      loads_.push_back(std::move(a));
      continue;
    }
    const std::string reason = !why.empty() ? why
                               : early      ? "not prefetched: the product reads it together with a block that is not"
                                            : "not prefetched: where it is read depends on what the step computes";
    for (int r : a.refs)
      // or a load of its own says why
      if (std::string& remark = remarks_[static_cast<size_t>(r)]; remark.empty()) remark = reason;
  }
}

void Prefetch::settle() {
  // A nest without their layout reads these: they are computed where they are used, like all loads of memory that
  // the kernel does not write.
  std::erase_if(loads_, [&](const Load& a) {
    const ir::Op& o = k_.ops[a.op];
    if (placement_.kind(o.results[0]) == Kind::registers) return false;
    placement_.take_back_spill(o.results[0]);
    remarks_[static_cast<size_t>(ref_position(k_, o.operands[0]))] = "not prefetched: what reads it has another layout";
    return true;
  });
  if (!moving_.empty())
    for (ir::OpId id : k_.region(k_.body).ops)
      if (k_.op(id).code == Opcode::dot) choose_staged(id);
  for (const Load& a : loads_) {
    const ir::Op& o = k_.ops[a.op];
    for (int r : a.refs) {
      const int64_t buffers = k_.blocks[static_cast<size_t>(r)].buffering.count;
      std::string& remark = remarks_[static_cast<size_t>(r)];
      remark = o.code == Opcode::dot ? "the next step's first chunk is prefetched into "
                                     : "the next step's block is prefetched into ";
      remark += std::to_string(a.count) + (a.count == 1 ? " register" : " registers") + " per invocation";
      if (buffers > 2)
        remark += ", one step early, as Buffered(2) asks: Buffered(" + std::to_string(buffers) + ") has no more effect";
    }
  }
  std::set<int> read;
  for (const ir::Op& o : k_.ops)
    if (ir::reads_ref(o.code)) read.insert(ref_position(k_, o.operands[0]));
  for (int i : moving_)
    if (std::string& remark = remarks_[static_cast<size_t>(i)]; remark.empty() && read.count(i))
      remark = "not prefetched: it is read inside of control flow only, or one element at a time";
}

Prefetch::Load* Prefetch::of(ir::OpId id, int operand) {
  for (Load& a : loads_)
    if (a.op == id.index && a.operand == operand) return &a;
  return nullptr;
}

Value Prefetch::next_step() {
  const auto axis = static_cast<size_t>(axis_);
  const Value one = b_.i32(1), last = b_.sub(grid_size(axis), one);
  return b_.min(b_.add(pid_[axis], one), last);
}

Value Prefetch::in_first_step() { return b_.eq(pid_[static_cast<size_t>(axis_)], b_.i32(0)); }

Values Prefetch::at_step(const Load& a, Value step, FunctionRef<Values()> f) {
  const auto axis = static_cast<size_t>(axis_);
  const Value here = std::exchange(pid_[axis], step);
  std::vector<std::pair<Value, Place>> scalars;
  std::vector<std::pair<int, RefState>> windows;
  for (ir::OpId id : k_.region(k_.body).ops) {
    if (!a.scalars.count(id.index)) continue;
    const Value v = k_.op(id).results[0];
    scalars.emplace_back(v, placement_.of(v));
    elements_.compute_scalar(id);
  }
  for (int r : a.refs) {
    windows.emplace_back(r, refs_.state(r));
    refs_.enter_window(r);
  }
  Values result = elements_.in_another_step(f);
  for (auto& [r, window] : windows) refs_.state(r) = std::move(window);
  for (const auto& [v, here_is] : scalars) placement_.of(v) = here_is;
  pid_[axis] = here;
  return result;
}

void Prefetch::load(Load& a, const ir::Op& o) {
  const Value v = o.results[0];
  const auto load = [&] {
    Values regs;
    nests_.by_layout(shape(v), axes_.of(v), false,
                     [&](const NestPoint& p) { regs.push_back(refs_.load_element(o, p.c, p.valid)); });
    return regs;
  };
  const Values before = a.regs;
  placement_.of(v) = Registers{b_.if_else(in_first_step(), load, [&] { return before; })};
  a.regs = at_step(a, next_step(), load);
}

void Prefetch::append_initial(Values& carried) {
  for (const Load& a : loads_) carried.insert(carried.end(), static_cast<size_t>(a.count), b_.zero(a.dtype));
}

void Prefetch::append_carried(Values& carried) const {
  for (const Load& a : loads_) carried.insert(carried.end(), a.regs.begin(), a.regs.end());
}

void Prefetch::set_carried(const Values& carried) {
  auto from = carried.end();
  for (auto a = loads_.rbegin(); a != loads_.rend(); ++a) {
    a->regs.assign(from - a->count, from);
    from -= a->count;
  }
}

}  // namespace tessera::lowering
