#include "codegen/tile/lower_threads.h"

#include <algorithm>

#include "codegen/tile/thread_checks.h"
#include "engine/ir/builder.h"
#include "engine/ir/compact.h"
#include "engine/ir/verify.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Attr, ir::CopyPlace, ir::MemorySpace, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;
using Role = ir::GridAxis::Role;

class Lowering {
 public:
  Lowering(const ir::Kernel& k, bool together)
      : k_(k), b_(k_), thread_axis_(static_cast<int64_t>(k.grid.size()) - 1), together_(together) {}

  ir::Kernel run() {
    check_threads(k_, together_);
    const RegionId body = k_.body;
    region(body);
    order_scratch();
    if (*k_.grid.back().size.value() == 1) k_.grid.pop_back();
    for (ir::GridAxis& g : k_.grid) {
      if (together_ && g.role == Role::thread) break;
      g.role = Role::grid;  // threads that share nothing are programs
      g.parallel = true;
    }
    ir::compact(k_);
    ir::verify(k_, "lower_threads");
    return std::move(k_);
  }

 private:
  ir::Kernel k_;
  ir::Builder b_;
  const int64_t thread_axis_;
  const bool together_;         // the threads of a program stay threads
  std::vector<Value> hoisted_;  // Refs of run_scoped that threads share

  // -- regions
  /// How elements lie changes no value.
  Type scratch(const Type& t) const { return Type::ref(t.dtype, t.shape, together_ ? t.space : MemorySpace::vmem); }
  /// Refs of a region: accumulators begin as zeros.
  void enter(RegionId r, std::vector<OpId>& begin) {
    std::vector<OpId> zeros;
    for (const Value v : std::vector<Value>(k_.region(r).args)) {
      Type& t = k_.values[v.index].type;
      if (!t.is_ref) continue;
      const bool block = r == k_.body && k_.value(v).number < k_.blocks.size();
      const bool sum = t.space == MemorySpace::accumulator;
      if (block) continue;  // in gmem, or a number
      if (sum || t.space == MemorySpace::smem) t = scratch(t);
      if (!sum) continue;
      const std::vector<OpId> made = make({}, [&] {
        const Value zero = b_.constant(k_.type(v).dtype, 0, k_.type(v).shape);
        Op store{.code = Opcode::store, .operands = {v, zero}};
        for (const int64_t n : k_.type(v).shape) store.index.push_back(ir::Index::all(n));
        b_.append(std::move(store));
      });
      zeros.insert(zeros.end(), made.begin(), made.end());
    }
    begin.insert(begin.begin(), zeros.begin(), zeros.end());
  }
  template <class F> std::vector<OpId> make(Loc loc, F f) {
    const RegionId some = b_.new_region({});
    b_.set_region(some);
    b_.set_loc(loc ? loc : k_.loc);
    f();
    return std::move(k_.region(some).ops);
  }
  void region(RegionId r) {
    std::vector<OpId> ops;
    if (r != k_.body) ops.reserve(k_.region(r).ops.size());
    const std::vector<OpId> before = k_.region(r).ops;
    std::vector<OpId> begin;
    enter(r, begin);
    ops = std::move(begin);
    for (const OpId id : before) {
      for (const RegionId inner : std::vector<RegionId>(k_.op(id).regions)) region(inner);
      Op& op = k_.op(id);
      if (is_grid(op.code) && op.code != Opcode::size && op.attr(Attr::axis) == thread_axis_ &&
          *k_.grid.back().size.value() == 1) {
        const int64_t n = op.code == Opcode::program_id ? 0 : 1;
        op.code = Opcode::constant;
        op.attrs = {{Attr::bits, {n}}};
      }
      if (op.code == Opcode::run_scoped && together_) hoist(id, ops);
      else if (op.code == Opcode::run_scoped) drop_barriers(op.regions[0]);
      const Op copy = k_.op(id);  // of which hoisting may have moved the original
      if (!is_thread_op(copy.code) || (together_ && orders_threads(copy))) {
        ops.push_back(id);
        continue;
      }
      const std::vector<OpId> made = make(copy.loc, [&] { replace(copy); });
      ops.insert(ops.end(), made.begin(), made.end());
    }
    k_.region(r).ops = std::move(ops);
  }
  static bool orders_threads(const Op& op) {
    return ir::is_thread_barrier_op(op.code) || op.code == Opcode::threads_meet;
  }
  /// What threads share lives as long as the kernel; where it begins, they meet.
  void hoist(OpId scope, std::vector<OpId>& ops) {
    if (!ir::threads_meet(k_, k_.op(scope))) return;
    const Loc loc = k_.op(scope).loc;
    const RegionId r = k_.op(scope).regions[0];
    std::vector<Value> own, barriers;
    for (const Value v : k_.region(r).args) {
      const MemorySpace space = k_.type(v).space;
      const bool shared = space == MemorySpace::smem || is_barrier(space);
      if (is_barrier(space)) barriers.push_back(v);
      if (shared) k_.values[v.index].region = k_.body;
      else k_.values[v.index].number = static_cast<uint32_t>(own.size());
      (shared ? hoisted_ : own).push_back(v);
    }
    k_.region(r).args = own;
    const std::vector<OpId> made = make(loc, [&] { b_.append({.code = Opcode::threads_meet, .operands = barriers}); });
    ops.insert(ops.end(), made.begin(), made.end());
  }
  void drop_barriers(RegionId r) {
    std::vector<Value>& args = k_.region(r).args;
    std::erase_if(args, [&](Value v) { return is_barrier(k_.type(v).space); });
    for (size_t i = 0; i < args.size(); ++i) k_.values[args[i].index].number = static_cast<uint32_t>(i);
  }

  // -- ops
  /// A window with steps moves as a whole; the positions of a load or store with steps move one by one.
  Value fitted(Value start, const ir::Index& x, int64_t extent) {
    const auto number = [&](int64_t n) { return b_.constant_int(DType::i32, n); };
    const int64_t last = std::max<int64_t>(extent - x.as_slice().span(), 0);
    const Value zero = number(0), size = number(extent), most = number(last);
    const Value below = b_.elementwise(Opcode::lt, {start, zero});
    const Value wrapped = b_.elementwise(Opcode::add, {start, size});
    const Value at = b_.elementwise(Opcode::select, {below, wrapped, start});
    return b_.elementwise(Opcode::clamp, {zero, at, most});
  }
  Op access(Opcode code, const Op& of, const CopyPlace& place, std::vector<Value> more) {
    Op op{.code = code, .operands = {place.ref}};
    op.operands.insert(op.operands.end(), more.begin(), more.end());
    bool steps = false;  // along any dim: then the access moves none of its windows
    for (size_t d = 0; d < place.rank; ++d) steps |= of.index[place.first + d].as_slice().step > 1;
    for (size_t d = 0; d < place.rank; ++d) {
      ir::Index x = of.index[place.first + d];
      if (!x.is_static()) {
        Value start = of.operand_of(x);
        if (steps && k_.type(place.ref).space != MemorySpace::any)
          start = fitted(start, x, k_.type(place.ref).shape[d]);
        *x.operand() = op.operands.size();
        op.operands.push_back(start);
      }
      op.index.push_back(x);
    }
    return op;
  }
  bool moves(const Op& of, const CopyPlace& place) const {
    for (size_t d = 0; d < place.rank; ++d)
      if (!of.index[place.first + d].is_static()) return true;
    return false;
  }
  Value yes(const Shape& shape) { return b_.constant(DType::boolean, 1, shape); }
  Value zero(DType t, const Shape& shape) { return b_.constant(t, 0, shape); }

  void replace(const Op& op) {
    const std::vector<CopyPlace> places = thread_places(k_, op);
    switch (ir::Thread(op.code)) {
      case ir::Thread::copy_gmem_to_smem: {
        // Under a mask of true nothing shifts, and elements outside are left out.
        const Shape shape = place_shape(k_, op, places[0]);
        Op load = access(Opcode::load, op, places[0], {});
        if (moves(op, places[0])) {
          const Value mask = yes(shape), other = zero(k_.type(places[0].ref).dtype, shape);
          load = access(Opcode::load, op, places[0], {mask, other});
          load.set(Attr::mask, 1);
          load.set(Attr::other, 1);
        }
        const Value v = b_.one(std::move(load));
        Op store = access(Opcode::store, op, places[1], {v});
        if (together_) store.set(Attr::late, 1);
        b_.append(std::move(store));
        if (!together_) return;
        Op arrival = access(Opcode::barrier_arrive, op, places[2], {});
        arrival.set(Attr::late, 1);
        b_.append(std::move(arrival));
        return;
      }
      case ir::Thread::copy_smem_to_gmem: {
        const Value v = b_.one(access(Opcode::load, op, places[0], {}));
        std::vector<Value> more{v};
        if (moves(op, places[1])) more.push_back(yes(place_shape(k_, op, places[1])));
        const bool combines = op.has(Attr::kind);
        Op store = access(combines ? Opcode::atomic_rmw : Opcode::store, op, places[1], more);
        if (more.size() > 1) store.set(Attr::mask, 1);
        if (combines) store.set(Attr::kind, op.ints(Attr::kind));
        // Copies of other programs may come before or behind.
        if (combines && is_float(k_.type(v).dtype) && op.attr(Attr::kind) == static_cast<int64_t>(Opcode::add))
          store.set(Attr::unordered, 1);
        b_.append(std::move(store));
        return;
      }
      case ir::Thread::wgmma: return product(op, places);
      case ir::Thread::barrier_arrive:
      case ir::Thread::barrier_wait:
      case ir::Thread::commit_smem_to_gmem_group:
      case ir::Thread::wait_smem_to_gmem:
      case ir::Thread::commit_smem:
      case ir::Thread::wgmma_wait:
      case ir::Thread::threads_meet:
      case ir::Thread::set_max_registers: return;
    }
  }
  void product(const Op& op, const std::vector<CopyPlace>& places) {
    const std::vector<int64_t> transposed =
        op.has(Attr::transposed) ? op.ints(Attr::transposed) : std::vector<int64_t>{0, 0};
    const Value lhs = k_.type(op.operands[0]).is_ref ? b_.one(access(Opcode::load, op, places[0], {})) : op.operands[0];
    const Value rhs = b_.one(access(Opcode::load, op, places[1], {}));
    const Value before = b_.one(access(Opcode::load, op, places[2], {}));
    const DType held = k_.type(places[2].ref).dtype, in = is_int(held) ? held : DType::f32;
    Op dot{.code = Opcode::dot, .operands = {lhs, rhs}};
    dot.set(Attr::lhs_contract, transposed[0] != 0 ? 0 : 1);
    dot.set(Attr::rhs_contract, transposed[1] != 0 ? 1 : 0);
    dot.set(Attr::lhs_batch, std::vector<int64_t>{});
    dot.set(Attr::rhs_batch, std::vector<int64_t>{});
    const Value made = b_.one(std::move(dot), Type::array(in, place_shape(k_, op, places[2])));
    const Value start = b_.convert(before, in);
    const Value sum = b_.elementwise(Opcode::add, {start, made});
    b_.append(access(Opcode::store, op, places[2], {b_.convert(sum, held)}));
  }

  // -- scratch: barriers go, where there is nobody to wait for; memory is private to the program
  void order_scratch() {
    std::vector<Value>& args = k_.region(k_.body).args;
    const size_t blocks = k_.blocks.size();
    std::erase_if(args, [&](Value v) {
      const MemorySpace space = k_.type(v).space;
      const bool barrier = together_ ? space == MemorySpace::cluster_barrier : is_barrier(space);
      return k_.type(v).is_ref && k_.value(v).number >= blocks &&
             (barrier || is_semaphore(k_.type(v).space) || k_.type(v).space == MemorySpace::any);
    });
    args.insert(args.end(), hoisted_.begin(), hoisted_.end());
    k_.scratch.clear();
    for (size_t i = 0; i < args.size(); ++i) {
      k_.values[args[i].index].number = static_cast<uint32_t>(i);
      if (i >= k_.blocks.size()) k_.scratch.push_back(k_.type(args[i]));
    }
    k_.num_private_scratch = static_cast<int>(k_.scratch.size());
  }
};
}  // namespace

bool lower_threads(ir::Kernel& k) {
  if (!k.has_threads()) return false;
  k = Lowering(k, false).run();
  return true;
}
bool lower_threads_together(ir::Kernel& k) {
  if (!k.has_threads()) return false;
  k = Lowering(k, threads_share(k)).run();
  return true;
}

}  // namespace tessera::lowering
