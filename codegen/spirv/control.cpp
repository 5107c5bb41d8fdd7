// Regions to structured control flow. Carried values are phis.
#include <algorithm>

#include "codegen/lane/loops.h"
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

using ir::Family;
using ir::Opcode;

V Emitter::get(ir::Value v) const {
  const V x = registers_[v.index].v;
  if (!x.id)
    throw InternalError(k_.name + ": spirv: value %" + std::to_string(v.index) + " is used before it is defined");
  return x;
}

std::vector<V> Emitter::get_all(const std::vector<ir::Value>& vs, size_t from) const {
  std::vector<V> out;
  for (size_t i = from; i < vs.size(); ++i) out.push_back(get(vs[i]));
  return out;
}

void Emitter::bound(const ir::Op& op) { ranges_.set(op.results.at(0), ranges_.compute(op, k_.type(op.results[0]))); }

std::vector<V> Emitter::region(ir::RegionId r) {
  for (ir::OpId id : k_.region(r).ops) {
    const ir::Op& op = k_.op(id);
    if (op.code == Opcode::yield) return get_all(op.operands);
    emit(op);
  }
  throw InternalError(k_.name + ": spirv: a region without a yield");
}

/// Whether relaxed code keeps narrow floats unrounded between ops: where rounding takes instructions of its own.
bool Emitter::stays_wide(DType t) const {
  return f_.relaxed && is_narrow_float(t) && !(t == DType::f16 && native_f16(target_));
}

bool Emitter::widens(const ir::Op& op) const {
  if (op.code != Opcode::convert) return false;
  const DType from = k_.type(op.operands[0]).dtype, to = k_.type(op.results[0]).dtype;
  return is_narrow_float(from) && (to == DType::f32 || to == DType::f64);
}

/// Sets a result of relaxed code, which is not rounded yet.
void Emitter::set_wide(ir::Value v, V wide, DType t) {
  Register& r = registers_[v.index];
  r = {.v = wide, .wide = wide};
  if (!seen_values_[v.index]) return;
  if (t != DType::bf16) {
    r.v = normalize(wide, t);
    return;
  }
  r.raw = bf16_bits(wide);
  r.v = from_memory_bits(r.raw, t);
}

/// Sums and products of f16 where the device has them.
bool Emitter::emit_half(const ir::Op& op) {
  const bool sum = op.code == Opcode::add || op.code == Opcode::sub, product = op.code == Opcode::mul;
  if (!sum && !product) return false;
  const Id type = type_f16(f_);
  const V a = get(op.operands[0]), b = get(op.operands[1]);
  const std::array<V, 2> of_a = registers_[op.operands[0].index].factors,
                         of_b = registers_[op.operands[1].index].factors;
  Id r = 0;
  if (sum && (of_a[0].id || of_b[0].id)) {
    const auto [x, y] = of_a[0].id ? of_a : of_b;
    Id factor = half(x), other = half(y), addend = half(of_a[0].id ? b : a);
    if (op.code == Opcode::sub) {
      Id& negated = of_a[0].id ? addend : factor;
      negated = m_.op(spv::OpFNegate, type, {negated});
    }
    r = m_.op(spv::OpExtInst, type, {m_.glsl(), GLSLstd450Fma, factor, other, addend});
  } else {
    const Id x = half(a), y = half(b);
    r = m_.op(product ? spv::OpFMul : op.code == Opcode::add ? spv::OpFAdd : spv::OpFSub, type, {x, y});
    m_.decorate(r, spv::DecorationNoContraction);
  }
  set(op.results[0], from_half(f_, r));
  if (product) registers_[op.results[0].index].factors = {a, b};
  return true;
}

/// Narrow floats stay in f32 from op to op, and a product that is added to something becomes an Fma with it.
bool Emitter::emit_relaxed(const ir::Op& op, DType operand, DType out, const std::vector<Bounds>& ranges) {
  if (!f_.relaxed || !tessera::is_float(out)) return false;
  const auto wide_of = [&](ir::Value v) {
    const Register& r = registers_[v.index];
    return r.wide.id ? r.wide : get(v);
  };
  if (widens(op) && registers_[op.operands[0].index].wide.id) {
    set(op.results[0], unrounded(op.code, DType::f32, out, {wide_of(op.operands[0])}, ranges));
    return true;
  }
  const bool narrow = is_narrow_float(out), wide = stays_wide(out);
  if (operand != out || !takes_unrounded(op.code)) return false;
  if (narrow && !wide) return emit_half(op);
  std::vector<V> a;
  bool any = false;  // is unrounded
  for (ir::Value v : op.operands) {
    any = any || registers_[v.index].wide.id != 0;
    a.push_back(wide_of(v));
  }
  if (op.code == Opcode::select && !any) return false;  // may copy bits
  const auto factors = [&](size_t i) { return registers_[op.operands[i].index].factors; };
  V r;
  if ((op.code == Opcode::add || op.code == Opcode::sub) && (factors(0)[0].id || factors(1)[0].id)) {
    const size_t product = factors(0)[0].id ? 0 : 1;
    const auto [x, y] = factors(product);
    V addend = a[1 - product], factor = x;
    if (op.code == Opcode::sub) {
      if (product == 0) addend = -addend;
      else factor = -factor;
    }
    r = fma(factor, y, addend);
  } else {
    r = unrounded(op.code, operand, out, a, ranges);
  }
  const ir::Value result = op.results[0];
  // What f8e4m3fn cannot hold is NaN in it: a pole shows at once.
  const bool pole = out == DType::f8e4m3fn &&
                    (op.code == Opcode::div || op.code == Opcode::rsqrt || ir::info(op.code).transcendental);
  if (!wide || (!any && ir::info(op.code).keeps_dtype)) set(result, r);
  else if (pole) set(result, normalize(r, out));
  else set_wide(result, r, out);
  if (op.code == Opcode::mul) registers_[result.index].factors = {a[0], a[1]};
  return true;
}

void Emitter::emit_elementwise(const ir::Op& op) {
  const DType operand = k_.type(op.operands.at(op.code == Opcode::select ? 1 : 0)).dtype,
              out = k_.type(op.results.at(0)).dtype;
  std::vector<Bounds> ranges;
  for (ir::Value v : op.operands) ranges.push_back(ranges_.of(v));
  if (emit_relaxed(op, operand, out, ranges)) return bound(op);
  V raw;
  if (op.code == Opcode::select) {
    const V a = registers_[op.operands[1].index].raw, b = registers_[op.operands[2].index].raw;
    if (a.id && b.id) raw = select(get(op.operands[0]), a, b);
  }
  if (op.code == Opcode::bitcast && registers_[op.operands[0].index].raw.id) {
    const V same = registers_[op.operands[0].index].raw;
    return set(op.results[0], from_memory_bits(same, out), is_narrow_float(out) ? same : V{});
  }
  if (op.code == Opcode::bitcast && is_narrow_float(out)) raw = memory_bits(get(op.operands[0]), operand);
  set(op.results[0], elementwise(op.code, operand, out, get_all(op.operands), ranges), raw);
  return bound(op);
}

void Emitter::emit(const ir::Op& op) {
  const Here here(*this, op);
  const auto result = [&](V v) { set(op.results.at(0), v); };
  const auto launch = [&](V v) {
    result(v);
    bound(op);
  };
  switch (ir::family(op.code)) {
    case Family::elementwise: return emit_elementwise(op);
    case Family::source: {
      if (op.code != Opcode::constant) break;
      const DType t = k_.type(op.results.at(0)).dtype;
      const auto bits = static_cast<uint64_t>(op.attr(ir::Attr::bits));
      V raw;
      if (is_narrow_float(t)) raw = f_.make(Reg::u32, static_cast<uint32_t>(bits & 0xffff));
      set(op.results[0], constant(f_, t, bits), raw);
      return bound(op);
    }
    case Family::memory:
      switch (ir::Memory(op.code)) {
        case ir::Memory::load: return emit_load(op);
        case ir::Memory::store: return emit_store(op);
        case ir::Memory::atomic_rmw:
        case ir::Memory::atomic_cas: return emit_atomic(op);
        case ir::Memory::swap:
        case ir::Memory::addupdate: break;
      }
      break;
    case Family::ref:
      switch (ir::RefOp(op.code)) {
        case ir::RefOp::alloc_shared:
        case ir::RefOp::alloc_scratch: return emit_alloc(op);
        case ir::RefOp::view: return emit_view(op);
        case ir::RefOp::report_memory: refs_[op.results.at(0).index] = global_ref(DType::u32, report_, true); return;
      }
      break;
    case Family::control:
      switch (ir::Control(op.code)) {
        case ir::Control::for_: return emit_for(op);
        case ir::Control::while_: return emit_while(op);
        case ir::Control::switch_: return emit_switch(op);
        case ir::Control::if_: return emit_if(op);
        case ir::Control::run_scoped: break;
      }
      break;
    case Family::launch:
      switch (ir::Launch(op.code)) {
        case ir::Launch::workgroup_index: return launch(workgroup_index_);
        case ir::Launch::num_workgroups: return launch(num_workgroups_);
        case ir::Launch::local_index: return launch(local_index_);
        case ir::Launch::subgroup_id: return launch(subgroup_id_);
        case ir::Launch::lane_id: return launch(lane_id_);
        case ir::Launch::extent: return launch(extents_.at(static_cast<size_t>(op.attr(ir::Attr::index))));
      }
      break;
    case Family::group:
      switch (ir::Group(op.code)) {
        case ir::Group::barrier: return emit_barrier();
        case ir::Group::subgroup_reduce: return emit_reduce(op);
        case ir::Group::subgroup_shuffle: {
          const V from = get(op.operands.at(1));
          return result(shuffle_any(op, get(op.operands.at(0)), spv::OpGroupNonUniformShuffle, from));
        }
        case ir::Group::subgroup_shuffle_xor: {
          const V mask = f_.make(Reg::u32, static_cast<uint32_t>(op.attr(ir::Attr::mask)));
          return result(shuffle_any(op, get(op.operands.at(0)), spv::OpGroupNonUniformShuffleXor, mask));
        }
      }
      break;
    case Family::report: return op.code == Opcode::report ? emit_report(op) : result(loops_cut());
    case Family::move:
    case Family::contract:
    case Family::reduce:
    case Family::argreduce:
    case Family::scan:
    case Family::rearrange:
    case Family::grid:
    case Family::print:
    case Family::async:
    case Family::end: break;
  }
  throw InternalError(k_.name + ": spirv: " + std::string(ir::name(op.code)) + " is not a lane-level op", op.loc);
}

void Emitter::emit_if(const ir::Op& op) {
  const V pred = get(op.operands.at(0));
  const size_t n = op.results.size();
  // The memory bits of narrow floats go through too, where both branches have them: an element at an array's edge is
  // loaded in one.
  std::vector<bool> raw(n, true);
  const auto branch = [&](size_t r) {
    std::vector<V> out = region(op.regions.at(r));
    for (size_t i = 0; i < n; ++i) {
      const V bits = registers_[k_.terminator(op.regions[r]).operands[i].index].raw;
      if (!bits.id) raw[i] = false;
      if (const DType t = k_.type(op.results[i]).dtype; is_narrow_float(t))
        out.push_back(bits.id ? bits : f_.make(Reg::u32, 0));
    }
    return out;
  };
  const std::vector<V> out = f_.if_else(pred, [&] { return branch(0); }, [&] { return branch(1); });
  for (size_t i = 0, next = n; i < n; ++i) {
    const DType t = k_.type(op.results[i]).dtype;
    const V bits = is_narrow_float(t) ? out.at(next++) : V{};
    set(op.results[i], out.at(i), raw[i] ? bits : V{});
  }
}

void Emitter::emit_for(const ir::Op& op) {
  const ir::Region& body = k_.region(op.regions.at(0));
  const V lower = get(op.operands.at(0)), upper = get(op.operands.at(1));
  V step = get(op.operands.at(2));
  const Interval first = *ranges_.of(op.operands[0]), last = *ranges_.of(op.operands[1]),
                 stride = *ranges_.of(op.operands[2]);
  if (stride.lo < 1) step = select(slt(step, 1), 1, step);  // a step that data makes 0 must not hang the device
  const int64_t most = std::max<int64_t>(stride.hi, 1);
  const int copies = lane::copies_per_iteration(k_, op, target_);
  // iv + copies * step cannot pass INT32_MAX: comparing iv is enough. Else what is left is compared before the
  // addition, unsigned: from a counter below the end it may be more than INT32_MAX.
  const bool plain = last.hi + copies * most - 1 <= INT32_MAX;
  ranges_.set(body.args.at(0), counter_bounds(first, last));

  std::vector<V> state{lower};
  if (!plain) state.push_back(slt(lower, upper));  // whether an iteration is left
  const size_t carried = state.size();
  for (V v : get_all(op.operands, 3)) state.push_back(v);
  const auto loop = [&](int n) {
    const V more = n > 1 ? step * (n - 1) : step, stepped = n > 1 ? step * n : step;
    state = f_.while_loop(
        state,
        [&](const std::vector<V>& s) {
          const V any = plain ? slt(s[0], upper) : s[1];
          return n > 1 ? any & ((upper - s[0]) > more) : any;
        },
        [&](const std::vector<V>& s) {
          std::vector<V> now = s;
          for (int i = 0; i < n; ++i) {
            set(body.args[0], now[0]);
            for (size_t j = 1; j < body.args.size(); ++j) set(body.args[j], now[carried + j - 1]);
            const std::vector<V> values = region(op.regions[0]);
            std::copy(values.begin(), values.end(), now.begin() + static_cast<std::ptrdiff_t>(carried));
            now[0] = now[0] + step;
          }
          if (!plain) now[1] = (upper - s[0]) > stepped;
          return now;
        });
  };
  if (copies > 1) loop(copies);
  loop(1);
  for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], state[carried + i]);
}

void Emitter::emit_while(const ir::Op& op) {
  const auto bind = [&](ir::RegionId r, const std::vector<V>& state) {
    const ir::Region& g = k_.region(r);
    for (size_t i = 0; i < g.args.size(); ++i) set(g.args[i], state[i]);
    return region(r);
  };
  const std::vector<V> out = f_.while_loop(
      get_all(op.operands), [&](const std::vector<V>& s) { return bind(op.regions.at(0), s).at(0); },
      [&](const std::vector<V>& s) { return bind(op.regions.at(1), s); });
  for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], out[i]);
}

// A driver that has cut a loop leaves every later loop after its first iteration, so a loop that must run twice shows
// it. No number in it is a constant, or the driver's compiler could compute its result: they are taken from the
// report's address, of which only we know that it is a multiple of 64.
V Emitter::loops_cut() {
  const V low = to_uint(report_, Reg::u32), rounds = (low & 31) + 2, wanted = ((low >> 1) & 31) + 2;
  const std::vector<V> done = f_.while_loop(
      {f_.make(Reg::u32, 0)}, [&](const std::vector<V>& s) { return s[0] < rounds; },
      [&](const std::vector<V>& s) { return std::vector<V>{s[0] + 1}; });
  return ne(done[0], wanted);
}

void Emitter::emit_switch(const ir::Op& op) {
  const V selector = get(op.operands.at(0));
  const size_t n = op.regions.size();
  std::vector<Id> labels;
  for (size_t i = 0; i < n; ++i) labels.push_back(m_.fresh());
  const Id merge = m_.fresh();
  // Clamped to [0, n - 1]: below 0 is region 0, anything else not listed is the last.
  const V index = select(slt(selector, 0), 0, selector);
  m_.op(spv::OpSelectionMerge, {merge, spv::SelectionControlMaskNone});
  Words w{index.id, labels.back()};
  for (size_t i = 0; i + 1 < n; ++i) w.insert(w.end(), {static_cast<uint32_t>(i), labels[i]});
  m_.op(spv::OpSwitch, w);
  std::vector<Words> incoming(op.results.size());
  std::vector<Reg> regs(op.results.size());
  for (size_t i = 0; i < n; ++i) {
    f_.begin(labels[i]);
    if (f_.on_block) f_.on_block();
    const std::vector<V> out = region(op.regions[i]);
    for (size_t j = 0; j < incoming.size(); ++j) {
      incoming[j].insert(incoming[j].end(), {out.at(j).id, f_.block});
      regs[j] = out[j].reg;
    }
    f_.branch(merge);
  }
  f_.begin(merge);
  for (size_t j = 0; j < incoming.size(); ++j)
    set(op.results[j], {&f_, m_.op(spv::OpPhi, f_.type(regs[j]), incoming[j]), regs[j]});
  if (f_.on_block) f_.on_block();
}

}  // namespace tessera::spirv
