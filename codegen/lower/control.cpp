// Structured control flow. Conditions and loop bounds are scalars, so control flow is uniform in a group.
#include <algorithm>
#include <map>
#include <utility>

#include "codegen/lower/emission.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Family;
using ir::Opcode;

void ControlEmitter::region(ir::RegionId r) {
  const size_t settled = sums_.settled();
  for (ir::OpId id : k_.region(r).ops) {
    // the caller reads its operands; what dies there dies with the region
    if (k_.op(id).code == Opcode::yield) break;
    sums_.settle(k_.op(id));
    op(id);
    placement_.free_dead_after(id);
  }
  sums_.forget(settled);
}

void ControlEmitter::memory_op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  switch (ir::Memory(o.code)) {
    case ir::Memory::load: refs_.load(id); break;
    case ir::Memory::store:
    case ir::Memory::addupdate: refs_.store(o); break;
    case ir::Memory::swap:
      // The old contents first, then the store; the order is kept because the result is never lazy.
      refs_.load(id);
      refs_.store(o);
      break;
    case ir::Memory::atomic_rmw:
    case ir::Memory::atomic_cas: atomics_.update(id); break;
  }
}

void ControlEmitter::control_op(ir::OpId id) {
  switch (ir::Control(k_.op(id).code)) {
    case ir::Control::for_: for_op(id); break;
    case ir::Control::while_: while_op(id); break;
    case ir::Control::if_:
    case ir::Control::switch_: branch_op(id); break;
    case ir::Control::run_scoped: throw InternalError(k_.name + ": run_scoped after scopes", k_.op(id).loc);
  }
}

// Of threads that meet (lower_threads): all invocations of one have done what comes before an arrival.
void ControlEmitter::thread_op(const ir::Op& o) {
  const auto numbered = [&](Value barrier) {
    return e_.memory.first_barrier[static_cast<size_t>(ref_position(k_, barrier))];
  };
  switch (ir::Thread(o.code)) {
    case ir::Thread::barrier_arrive:
    case ir::Thread::barrier_wait: {
      const bool arrives = o.code == Opcode::barrier_arrive;
      const RefState& r = refs_.state(ref_position(k_, o.operands[0]));
      const Value place = refs_.address(r, o, {}).narrow, first = b_.i32(numbered(o.operands[0]));
      const Value number = b_.add(place, first);
      if (o.attr_or(ir::Attr::late, 0)) b_.raw().append({.code = Opcode::mbarrier_copies, .operands = {number}});
      if (arrives) arena_.barrier();
      b_.raw().append({.code = arrives ? Opcode::mbarrier_arrive : Opcode::mbarrier_wait, .operands = {number}});
      return;
    }
    case ir::Thread::threads_meet:
      if (o.operands.empty()) arena_.meet(0, 0);
      for (const Value v : o.operands) arena_.meet(numbered(v), num_elements(k_.type(v).shape));
      return;
    case ir::Thread::copy_gmem_to_smem:
    case ir::Thread::copy_smem_to_gmem:
    case ir::Thread::commit_smem_to_gmem_group:
    case ir::Thread::wait_smem_to_gmem:
    case ir::Thread::commit_smem:
    case ir::Thread::wgmma:
    case ir::Thread::wgmma_wait:
    case ir::Thread::set_max_registers: break;
  }
  throw InternalError(k_.name + ": " + std::string(name(o.code)) + " has no lowering", o.loc);
}

void ControlEmitter::op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Loc outer = b_.raw().loc();
  b_.raw().set_loc(o.loc);
  const auto value = [&] {
    const Value v = o.results.at(0);
    if (placement_.kind(v) == Kind::scalar) elements_.compute_scalar(id);
    else if (placement_.kind(v) != Kind::lazy) placement_.materialize(v);
  };
  switch (ir::family(o.code)) {
    case Family::memory:
      if (!placement_.stored_early(id)) memory_op(id);
      break;
    case Family::print: prints_.emit(o); break;
    case Family::control: control_op(id); break;
    case Family::reduce: reduces_.reduce(id); break;
    case Family::argreduce: reduces_.arg_reduce(id); break;
    case Family::scan: reduces_.scan(id); break;
    case Family::contract: dots_.emit(id); break;
    case Family::rearrange:
      if (o.code == Opcode::scatter) rearranges_.scatter(id);
      else if (o.code == Opcode::sort) rearranges_.sort(id);
      else value();
      break;
    case Family::end: break;
    case Family::report: {
      ir::Op report{.code = Opcode::report};
      for (const Value v : o.operands) report.operands.push_back(elements_.scalar(v));
      report.set(ir::Attr::mask, o.attr(ir::Attr::mask));
      out_.lane.report_bytes = std::max<int64_t>(out_.lane.report_bytes, 4 * static_cast<int64_t>(o.operands.size()));
      b_.raw().append(std::move(report));
      break;
    }
    case Family::thread: thread_op(o); break;
    case Family::elementwise:
    case Family::source:
    case Family::move:
    case Family::grid: value(); break;
    // Of lane level, or taken away before (tile/lower_async.cpp).
    case Family::async:
    case Family::launch:
    case Family::ref:
    case Family::group:
    case Family::packed:
    case Family::matrix: throw InternalError(k_.name + ": " + std::string(name(o.code)) + " has no lowering", o.loc);
  }
  b_.raw().set_loc(outer);
}

// Derived only from what is the same for the whole group without communication: ids, constants, loop counters, scalars
// that were handed out.
bool ControlEmitter::uniform_scalar(Value root) {
  std::set<uint32_t> seen;
  return ir::walk_back(k_, root, seen, [&](Value v, std::vector<Value>& next) {
    const auto also = [&](const std::vector<Value>& values) {
      next.insert(next.end(), values.begin(), values.end());
      return true;
    };
    if (!k_.type(v).is_scalar()) return false;
    const ir::Op* o = k_.def(v);
    const uint32_t number = k_.value(v).number;
    if (!o) {
      const ir::RegionId r = k_.value(v).region;
      for (const ir::Op& loop : k_.ops) {
        if (std::find(loop.regions.begin(), loop.regions.end(), r) == loop.regions.end()) continue;
        const size_t first = ir::first_carried(loop);
        if (number < first) also({loop.operands[0], loop.operands[1], loop.operands[2]});  // the counter
        else also(ir::flows_into(k_, loop, number - first));
      }
      return true;
    }
    if (ir::is_control(o->code)) {
      if (ir::is_branch(o->code)) next.push_back(o->operands[0]);
      return also(ir::flows_into(k_, *o, number));
    }
    if (o->code == Opcode::load) {
      const int ref = ref_position(k_, o->operands[0]);
      if (s_.residency[static_cast<size_t>(ref)] == Residency::registers) {
        // A scalar of scratch, of which each invocation has one: the same in all if what is stored is, since all store
        // it or none.
        if (ref < static_cast<int>(k_.blocks.size())) return false;
        for (const ir::Op& store : k_.ops) {
          if (store.operands.empty() || store.operands[0] != o->operands[0] || store.code == Opcode::load) continue;
          if (store.code != Opcode::store || store.has_mask()) return false;
          next.push_back(store.operands[1]);
        }
        return true;
      }
    } else if (o->code == Opcode::swap || ir::is_atomic(o->code)) {
      return false;
    }
    return also(o->operands);
  });
}

Value ControlEmitter::condition(Value v) {
  const Value lane = elements_.scalar(v);
  if (!uniform_group() || uniform_scalar(v)) return lane;
  return arena_.broadcast_from_first(k_.type(v).dtype, [&] { return lane; });
}

// In the three loops below all yields are evaluated before any carried slot is overwritten: they may read each other's
// old contents.
void ControlEmitter::for_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  const ir::Region& body = k_.region(o.regions[0]);
  const Value lower = condition(o.operands[0]), upper = condition(o.operands[1]), step = condition(o.operands[2]);
  std::vector<Place> carried;
  std::map<size_t, Values> starts;  // of sums that the loop carries in parts
  for (size_t i = 0; i < o.results.size(); ++i) {
    carried.push_back(placement_.make(o.results[i]));
    placement_.evaluate_into(o.operands[3 + i], carried.back(), sums_.of(o.results[i]));
    if (const CarriedSum* sum = reduces_.in_parts(id, i)) {
      Values& parts = std::get<Registers>(carried[i]).regs;
      starts[i] = std::exchange(parts, Values(parts.size(), reduces_.identity(*sum)));
    }
  }
  const std::vector<int> residents = placement_.written_residents(o.regions);
  dots_.keep_left(o.regions[0]);
  Values first = placement_.pack_carried(carried, residents);
  const auto own = static_cast<std::ptrdiff_t>(first.size());
  const auto append = [](Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); };
  append(first, dots_.load_first(o, lower));
  const PendingAccesses before = arena_.pending();
  const Values after = b_.for_loop(lower, upper, step, first, [&](Value iv, const Values& v) {
    arena_.loop_begins();
    placement_.unpack_carried(v, carried, residents);
    placement_.of(body.args[0]) = iv;
    dots_.enter_loop(o, upper, step, Values(v.begin() + own, v.end()));
    for (size_t i = 0; i < carried.size(); ++i) placement_.of(body.args[1 + i]) = carried[i];
    region(o.regions[0]);
    const std::vector<Value> yields = k_.terminator(o.regions[0]).operands;
    std::vector<Place> next;
    for (size_t i = 0; i < carried.size(); ++i) {
      if (yields[i] == body.args[1 + i]) {
        next.push_back(placement_.of(yields[i]));
        continue;
      }
      next.push_back(placement_.make(o.results[i]));
      placement_.evaluate_into(yields[i], next.back(), sums_.of(o.results[i]));
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      const Slot* const to = std::get_if<Slot>(&carried[i]);
      if (!to) {
        carried[i] = next[i];
      } else if (Slot& from = std::get<Slot>(next[i]); from.offset != to->offset) {
        arena_.copy(from, *to);
        arena_.free(from);
      }
    }
    placement_.free_dead_after(body.ops.back());
    arena_.loop_ends();
    Values handed = placement_.pack_carried(carried, residents);
    append(handed, dots_.leave_loop(o));
    return handed;
  });
  dots_.drop_left(o.regions[0]);
  arena_.pending().merge(before);
  placement_.unpack_carried(after, carried, residents);
  for (const auto& [i, start] : starts) {
    Values& parts = std::get<Registers>(carried[i]).regs;
    parts = reduces_.joined(*reduces_.in_parts(id, i), start, parts);
  }
  for (size_t i = 0; i < carried.size(); ++i) placement_.of(o.results[i]) = carried[i];
}

void ControlEmitter::while_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  std::vector<Place> carried;
  for (size_t i = 0; i < o.results.size(); ++i) {
    carried.push_back(placement_.make(o.results[i]));
    placement_.evaluate_into(o.operands[i], carried.back());
  }
  const std::vector<int> residents = placement_.written_residents(o.regions);
  Values init = placement_.pack_carried(carried, residents);
  std::vector<ir::Type> types;
  for (Value v : init) types.push_back(out_.type(v));
  ir::Builder& raw = b_.raw();
  const ir::RegionId outer = raw.region(), cond = raw.new_region(types), body = raw.new_region(types);
  const PendingAccesses before = arena_.pending();

  raw.set_region(cond);
  b_.open();
  placement_.unpack_carried(out_.region(cond).args, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) placement_.of(k_.region(o.regions[0]).args[i]) = carried[i];
  region(o.regions[0]);
  const Value test = condition(k_.terminator(o.regions[0]).operands[0]);
  placement_.free_dead_after(k_.region(o.regions[0]).ops.back());
  arena_.loop_barrier();
  raw.yield({test});
  b_.close();

  raw.set_region(body);
  b_.open();
  placement_.unpack_carried(out_.region(body).args, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) placement_.of(k_.region(o.regions[1]).args[i]) = carried[i];
  region(o.regions[1]);
  const std::vector<Value> yields = k_.terminator(o.regions[1]).operands;
  std::vector<Place> next;
  for (size_t i = 0; i < carried.size(); ++i) {
    next.push_back(placement_.make(o.results[i]));
    placement_.evaluate_into(yields[i], next.back());
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    if (const Slot* to = std::get_if<Slot>(&carried[i])) {
      Slot& from = std::get<Slot>(next[i]);
      arena_.copy(from, *to);
      arena_.free(from);
    } else carried[i] = next[i];
  }
  placement_.free_dead_after(k_.region(o.regions[1]).ops.back());
  arena_.loop_barrier();
  raw.yield(placement_.pack_carried(carried, residents));
  b_.close();

  raw.set_region(outer);
  const Values after = out_.op(raw.append({.code = Opcode::while_, .operands = init, .regions = {cond, body}})).results;
  arena_.pending().merge(before);
  placement_.unpack_carried(after, carried, residents);
  for (size_t i = 0; i < carried.size(); ++i) placement_.of(o.results[i]) = carried[i];
}

void ControlEmitter::branch_op(ir::OpId id) {
  const ir::Op o = k_.op(id);
  const Value choice = condition(o.operands[0]);
  std::vector<Place> results;
  for (Value v : o.results) results.push_back(placement_.make(v));
  const std::vector<int> residents = placement_.written_residents(o.regions);
  std::vector<Values> contents;
  for (int r : residents) contents.push_back(refs_.state(r).registers().held());
  const PendingAccesses before = arena_.pending();
  PendingAccesses after;
  ir::Builder& raw = b_.raw();
  const ir::RegionId outer = raw.region();
  ir::Op out{.code = o.code, .operands = {choice}};
  for (ir::RegionId branch : o.regions) {
    const ir::RegionId to = raw.new_region({});
    out.regions.push_back(to);
    raw.set_region(to);
    b_.open();
    arena_.pending() = before;
    for (size_t i = 0; i < residents.size(); ++i) refs_.state(residents[i]).registers().held() = contents[i];
    region(branch);
    const std::vector<Value> yields = k_.terminator(branch).operands;
    for (size_t i = 0; i < results.size(); ++i) placement_.evaluate_into(yields[i], results[i]);
    placement_.free_dead_after(k_.region(branch).ops.back());
    raw.yield(placement_.pack_carried(results, residents));
    after.merge(arena_.pending());
    b_.close();
  }
  raw.set_region(outer);
  const Values merged = out_.op(raw.append(std::move(out))).results;
  arena_.pending() = after;
  placement_.unpack_carried(merged, results, residents);
  for (size_t i = 0; i < results.size(); ++i) placement_.of(o.results[i]) = results[i];
}

}  // namespace tessera::lowering
