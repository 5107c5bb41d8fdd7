// The walk over a lane-level kernel that every backend shares: elementwise rows, strict and relaxed, and regions.
#include "codegen/expand/walk.h"

#include <algorithm>

#include "codegen/expand/native.h"
#include "codegen/expand/positive.h"
#include "codegen/lane/loops.h"
#include "engine/base/error.h"
#include "engine/ir/reference.h"
#include "engine/ir/walk.h"

namespace tessera::expand {

using ir::Family;
using ir::Opcode;

Walk::Walk(const ir::Kernel& k, const Target& t, Sink& sink, const char* backend)
    : k_(k),
      target_(t),
      sink_(sink),
      backend_(backend),
      registers_(k.values.size()),
      used_values_(k.values.size()),
      seen_values_(k.values.size()),
      refs_(k.values.size()) {
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& op = k_.op(id);
    const bool rounded = !(ir::is_elementwise(op.code) && takes_unrounded(op.code)) && !widens(op);
    for (ir::Value v : op.operands) {
      used_values_[v.index] = true;
      if (rounded) seen_values_[v.index] = true;
    }
    if (ir::writes_ref(op.code)) written_.insert(root(op.operands.at(0)).index);
    if (ir::is_atomic(op.code) && size_bytes(k_.type(op.operands.at(0)).dtype) < 4)
      by_words_.insert(root(op.operands[0]).index);
  });
}

void Walk::check_limits() const {
  const auto limit = [&](const char* what, int64_t wanted, int64_t has, const char* unit) {
    if (wanted > has)
      throw CompileError(k_.name + ": " + what + ": needs " + std::to_string(wanted) + unit + ", " + target_.name +
                             " has " + std::to_string(has),
                         k_.loc);
  };
  limit("workgroup size", k_.lane.workgroup_size, target_.max_workgroup_size, " invocations");
  limit("shared memory", k_.lane.shared_bytes, target_.shared_bytes, " bytes");
}

void Walk::fail(const ir::Op& op, const std::string& what, const std::string& note) const {
  throw CompileError(k_.name + ": " + std::string(ir::name(op.code)) + ": " + what, op.loc ? op.loc : k_.loc, note);
}

V Walk::get(ir::Value v) const {
  const V x = registers_[v.index].v;
  if (!x.id)
    throw InternalError(k_.name + ": " + backend_ + ": value %" + std::to_string(v.index) +
                        " is used before it is defined");
  return x;
}

std::vector<V> Walk::get_all(const std::vector<ir::Value>& vs, size_t from) const {
  std::vector<V> out;
  for (size_t i = from; i < vs.size(); ++i) out.push_back(get(vs[i]));
  return out;
}

void Walk::bound(const ir::Op& op) { ranges_.set(op.results.at(0), ranges_.compute(op, k_.type(op.results[0]))); }

std::vector<V> Walk::region(ir::RegionId r) {
  for (ir::OpId id : k_.region(r).ops) {
    const ir::Op& op = k_.op(id);
    if (op.code == Opcode::yield) return get_all(op.operands);
    emit(op);
  }
  throw InternalError(k_.name + ": " + backend_ + ": a region without a yield");
}

/// Whether relaxed code keeps narrow floats unrounded between ops: where rounding takes instructions of its own.
bool Walk::stays_wide(DType t) const {
  return sink_.relaxed && is_narrow_float(t) && !(t == DType::f16 && half_arithmetic());
}

bool Walk::widens(const ir::Op& op) const {
  if (op.code != Opcode::convert) return false;
  const DType from = k_.type(op.operands[0]).dtype, to = k_.type(op.results[0]).dtype;
  return is_narrow_float(from) && (to == DType::f32 || to == DType::f64);
}

/// Sets a result of relaxed code, which is not rounded yet.
void Walk::set_wide(ir::Value v, V wide, DType t) {
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

/// The factors of a product, negated: a constant one itself, which takes no instruction.
std::array<V, 2> Walk::negated(ir::Value product) const {
  const V x = registers_[product.index].factors[0], y = registers_[product.index].factors[1];
  const ir::Op& mul = *k_.def(product);
  const auto constant = [&](size_t i) { return ir::constant_bits(k_, mul.operands[i]); };
  const auto minus = [&](size_t i) {
    return literal(x, -reference::to_double(k_.type(mul.operands[i]).dtype, *constant(i)));
  };
  if (constant(0)) return {minus(0), y};
  if (constant(1)) return {x, minus(1)};
  return {-x, y};
}

/// Narrow floats stay in f32 from op to op, and a product that is added to something becomes an Fma with it.
bool Walk::emit_relaxed(const ir::Op& op, DType operand, DType out, const std::vector<Bounds>& ranges) {
  if (!sink_.relaxed || !tessera::is_float(out)) return false;
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
    const bool less = op.code == Opcode::sub && product == 1;
    const auto [x, y] = less ? negated(op.operands[1]) : factors(product);
    V addend = a[1 - product];
    if (op.code == Opcode::sub && product == 0) addend = -addend;
    r = fma(x, y, addend);
  } else if (op.code == Opcode::sqrt && native::applies(a[0]) && sign_of(k_, op.operands[0]) >= Sign::not_negative) {
    r = native::sqrt_of_square(a[0]);
  } else if (op.code == Opcode::rsqrt && native::applies(a[0]) && sign_of(k_, op.operands[0]) == Sign::positive) {
    r = native::rsqrt_of_positive(a[0]);
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

void Walk::emit_elementwise(const ir::Op& op) {
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

void Walk::emit_constant(const ir::Op& op) {
  const DType t = k_.type(op.results.at(0)).dtype;
  const auto bits = static_cast<uint64_t>(op.attr(ir::Attr::bits));
  V raw;
  if (is_narrow_float(t)) raw = sink_.make(Reg::u32, static_cast<uint32_t>(bits & 0xffff));
  set(op.results[0], constant(sink_, t, bits), raw);
  bound(op);
}

void Walk::emit(const ir::Op& op) {
  const auto result = [&](V v) { set(op.results.at(0), v); };
  switch (ir::family(op.code)) {
    case Family::elementwise: return emit_elementwise(op);
    case Family::source:
      if (op.code != Opcode::constant) break;
      return emit_constant(op);
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
        case ir::RefOp::alloc_scratch:
        case ir::RefOp::alloc_program: return emit_alloc(op);
        case ir::RefOp::view: return emit_view(op);
        case ir::RefOp::report_memory: return emit_report_memory(op);
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
    case Family::launch: result(launch_value(op)); return bound(op);
    case Family::group:
      switch (ir::Group(op.code)) {
        case ir::Group::barrier: return emit_barrier(op, false);
        case ir::Group::subgroup_barrier: return emit_barrier(op, true);
        case ir::Group::async_wait: return emit_async_wait(op);
        case ir::Group::program_barrier:
        case ir::Group::mbarrier_arrive:
        case ir::Group::mbarrier_copies:
        case ir::Group::mbarrier_wait: return emit_program_op(op);
        case ir::Group::tensor_load:
        case ir::Group::tensor_wait: return emit_tensor_op(op);
        case ir::Group::subgroup_reduce:
        case ir::Group::subgroup_scan: return emit_reduce(op);
        case ir::Group::subgroup_shuffle: {
          const V from = get(op.operands.at(1));
          return result(shuffle(op, get(op.operands.at(0)), from));
        }
        case ir::Group::subgroup_shuffle_xor: {
          const V v = get(op.operands.at(0));
          sink_.extremes.erase({v.reg, v.id});  // which has to be selected now: what follows takes it
          return result(shuffle_xor(op, v, static_cast<uint32_t>(op.attr(ir::Attr::mask))));
        }
      }
      break;
    case Family::packed: return emit_packed(op);
    case Family::matrix: return op.code == Opcode::pack ? emit_pack(op) : emit_matrix(op);
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
    case Family::thread:
    case Family::end: break;
  }
  throw InternalError(k_.name + ": " + backend_ + ": " + std::string(ir::name(op.code)) + " is not a lane-level op",
                      op.loc);
}

V Walk::dot4(V a, bool a_signed, V b, bool b_signed) {
  const V bits = sink_.make(Reg::u32, 8);
  V sum;
  for (uint32_t i = 0; i < 4; ++i) {
    const V at = sink_.make(Reg::u32, 8 * i);
    const V x = sink_.apply(a_signed ? Prim::extract_sint : Prim::extract_uint, Reg::u32, {a, at, bits});
    const V y = sink_.apply(b_signed ? Prim::extract_sint : Prim::extract_uint, Reg::u32, {b, at, bits});
    const V product = x * y;
    sum = i == 0 ? product : sum + product;
  }
  return sum;
}

void Walk::emit_packed(const ir::Op& op) {
  switch (ir::Packed(op.code)) {
    case ir::Packed::pack4: {
      // Neighbours that one load brought still are in their word; only of such is one the word's part 1.
      const Register first = registers_[op.operands.at(0).index];
      bool together = true;
      for (uint32_t i = 0; i < 4; ++i) {
        const Register& r = registers_[op.operands.at(i).index];
        together = together && r.word.id == first.word.id && r.part == i;
      }
      if (together) return set(op.results.at(0), first.word);
      if (const V turned = transposed(op.operands); turned.id) return set(op.results.at(0), turned);
      V word = get(op.operands[0]) & 0xff;
      for (uint32_t i = 1; i < 4; ++i) {
        const V x = get(op.operands[i]), byte = i == 3 ? x : x & 0xff;  // the last one needs no mask
        word = word | (byte << 8 * i);
      }
      return set(op.results.at(0), word);
    }
    case ir::Packed::dot4: {
      const auto has_sign = [&](size_t i) { return is_signed_int(k_.type(op.operands.at(i)).dtype); };
      const V a = get(op.operands[0]), b = get(op.operands[1]);
      const V products = dot4(a, has_sign(0), b, has_sign(1));
      return set(op.results.at(0), products + get(op.operands.at(2)));
    }
  }
}

void Walk::emit_if(const ir::Op& op) {
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
        out.push_back(bits.id ? bits : sink_.make(Reg::u32, 0));
    }
    return out;
  };
  const std::vector<V> out = sink_.if_else(pred, [&] { return branch(0); }, [&] { return branch(1); });
  for (size_t i = 0, next = n; i < n; ++i) {
    const DType t = k_.type(op.results[i]).dtype;
    const V bits = is_narrow_float(t) ? out.at(next++) : V{};
    set(op.results[i], out.at(i), raw[i] ? bits : V{});
  }
}

void Walk::emit_for(const ir::Op& op) {
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
  // NVIDIA's Vulkan compiler (580.159) counts a plain loop's iterations in signed numbers of 32 bits: of one from -2^31
  // to 0 it makes a single iteration.
  const bool plain = last.hi + copies * most - 1 <= INT32_MAX && last.hi - first.lo <= INT32_MAX;
  ranges_.set(body.args.at(0), counter_bounds(first, last));

  std::vector<V> state{lower};
  if (!plain) state.push_back(slt(lower, upper));  // whether an iteration is left
  const size_t carried = state.size();
  for (V v : get_all(op.operands, 3)) state.push_back(v);
  const auto loop = [&](int n) {
    const V more = n > 1 ? step * (n - 1) : step, stepped = n > 1 ? step * n : step;
    state = sink_.while_loop(
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

void Walk::emit_while(const ir::Op& op) {
  const auto bind = [&](ir::RegionId r, const std::vector<V>& state) {
    const ir::Region& g = k_.region(r);
    for (size_t i = 0; i < g.args.size(); ++i) set(g.args[i], state[i]);
    return region(r);
  };
  const std::vector<V> out = sink_.while_loop(
      get_all(op.operands), [&](const std::vector<V>& s) { return bind(op.regions.at(0), s).at(0); },
      [&](const std::vector<V>& s) { return bind(op.regions.at(1), s); });
  for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], out[i]);
}

}  // namespace tessera::expand
