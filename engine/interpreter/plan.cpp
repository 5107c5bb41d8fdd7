// From ops to steps. Buffers are planned as a compiler would: a value's bytes are given back after its last use in the
// region that defines it, and an elementwise result takes over the buffer of an operand that dies there. Loop carries
// live in the buffers of the loop's results.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "engine/base/function.h"
#include "engine/interpreter/async_copies.h"
#include "engine/interpreter/dot.h"
#include "engine/interpreter/machine.h"
#include "engine/interpreter/rearrange.h"
#include "engine/interpreter/reduce.h"
#include "engine/interpreter/threads.h"
#include "engine/ir/moves.h"
#include "engine/ir/reference.h"
#include "engine/ir/walk.h"

namespace tessera::interpreter {
namespace {
using ir::Attr;
using ir::Control;
using ir::Family;
using ir::Op;
using ir::Opcode;
using ir::RegionId;
using ir::Value;

constexpr int kMaxDepth = 500;                       // nested regions: the machine recurses
constexpr int64_t kHoistedBytes = int64_t{1} << 16;  // constants up to this size are made once per call

/// What an op of the grid family is one of.
std::vector<int32_t> Machine::* numbers_of(Opcode code) {
  return code == Opcode::size ? &Machine::sizes : code == Opcode::program_id ? &Machine::program : &Machine::programs;
}

class Planner {
 public:
  Planner(const ir::Kernel& k, Machine& m, const std::vector<bool>& written) : k_(k), m_(m), written_(written) {
    const size_t n = k.values.size();
    root_.resize(n);
    for (size_t i = 0; i < n; ++i) root_[i] = static_cast<uint32_t>(i);
    lifetime_.assign(n, {});
    last_use_.assign(n, -1);
    offset_.assign(n, -1);
    permanent_.assign(n, false);
    at_.assign(k.regions.size(), -1);
    dying_.resize(k.regions.size());
    m.steps.resize(k.regions.size());
    m.place.assign(n, nullptr);
  }

  void run() {
    try {
      plan();
    } catch (const std::bad_alloc&) {
      no_memory();
    }
  }

 private:
  void plan() {
    for (const ir::BlockMapping& b : k_.blocks)
      if (!b.is_whole()) plan_top(b.index_map(), true);
    plan_top(k_.body, false);
    m_.arena.resize(static_cast<size_t>(top_));
    for (size_t v = 0; v < offset_.size(); ++v)
      if (offset_[v] >= 0) m_.place[v] = m_.arena.data() + offset_[v];
    // Steps know their buffers only now that the arena has its address.
    for (auto& [region, make] : late_) m_.steps[region].push_back(make());
    for (const auto& make : hoisted_) make()(m_);
  }
  // The arena, or a table of positions, is as large as the largest value makes it.
  [[noreturn]] void no_memory() const {
    const Op* of = nullptr;
    Value largest;
    for (const Op& op : k_.ops)
      for (const Value v : op.results)
        if (!type(v).is_ref && (!of || bytes(v) > bytes(largest))) largest = v, of = &op;
    if (!of) throw;
    throw KernelError(
        k_.name + ": this machine has no memory for the interpreter's values: " + std::string(ir::name(of->code)) +
            " gives " + ir::to_string(type(largest)) + ", of " + std::to_string(bytes(largest)) + " bytes",
        of->loc, "compute with smaller blocks, or in a loop over parts of the value");
  }

  using Make = std::function<Step()>;
  const ir::Kernel& k_;
  Machine& m_;
  const std::vector<bool>& written_;
  std::vector<uint32_t> root_;      // by value: the value whose buffer it uses
  std::vector<RegionId> lifetime_;  // by root: the region in which its buffer is taken and given back
  std::vector<int64_t> last_use_;   // by root: position among the ops of that region
  std::vector<int64_t> offset_;     // by value: in the arena, or -1
  std::vector<bool> permanent_;     // by value: made once, before the first program
  std::vector<int64_t> at_;         // by region: the op being visited
  // by region and position of an op: the roots that it uses last
  std::vector<std::vector<std::vector<uint32_t>>> dying_;
  std::map<int64_t, std::vector<int64_t>> free_;  // bytes -> offsets
  int64_t top_ = 0;
  std::vector<std::pair<uint32_t, Make>> late_;
  std::vector<Make> hoisted_;

  const ir::Type& type(Value v) const { return k_.type(v); }
  static int64_t elements(const ir::Type& t) { return num_elements(t.shape); }
  int64_t bytes(Value v) const {
    return (std::max<int64_t>(1, elements(type(v)) * size_bytes(type(v).dtype)) + 63) / 64 * 64;
  }

  void plan_top(RegionId r, bool index_map) {
    find_uses(r, 0);
    for (uint32_t v = 0; v < lifetime_.size(); ++v)
      if (lifetime_[v] && last_use_[v] >= 0 && offset_[v] < 0) {
        auto& list = dying_[lifetime_[v].index];
        list.resize(k_.region(lifetime_[v]).ops.size());
        list[static_cast<size_t>(last_use_[v])].push_back(v);
      }
    if (index_map)
      for (Value v : k_.region(r).args)
        // never given back, so that they may be written before each run
        if (!type(v).is_ref) take(v), permanent_[v.index] = true;
    if (index_map) observe(r, {}, k_.region(r).args);
    plan_region(r);
  }

  // -- lifetimes
  void define(Value v, RegionId r) {
    if (root_[v.index] == v.index) lifetime_[v.index] = r;
  }
  void use(Value v) {
    const uint32_t root = root_[v.index];
    if (lifetime_[root]) last_use_[root] = at_[lifetime_[root].index];
  }
  void find_uses(RegionId r, int depth) {
    if (depth > kMaxDepth)
      throw SpecError(k_.name + ": control flow is nested more than " + std::to_string(kMaxDepth) + " deep", k_.loc);
    const ir::Region& region = k_.region(r);
    for (Value v : region.args) define(v, r);
    for (size_t i = 0; i < region.ops.size(); ++i) {
      const Op& op = k_.op(region.ops[i]);
      at_[r.index] = static_cast<int64_t>(i);
      for (Value v : op.operands) use(v);
      if (op.code == Opcode::reshape) root_[op.results[0].index] = root_[op.operands[0].index];
      for (Value v : op.results) define(v, r);
      if (ir::is_loop(op.code))
        for (RegionId inner : op.regions) {
          const auto& args = k_.region(inner).args;
          const size_t first = ir::first_carried(op);
          for (size_t c = 0; c < op.results.size(); ++c) root_[args[first + c].index] = op.results[c].index;
        }
      for (RegionId inner : op.regions) find_uses(inner, depth + 1);
    }
  }

  // -- buffers
  void append(Value v) {
    offset_[v.index] = top_;
    top_ += bytes(v);
  }
  void take(Value v) {
    auto& list = free_[bytes(v)];
    if (list.empty()) {
      append(v);
    } else {
      offset_[v.index] = list.back();
      list.pop_back();
    }
  }
  void give_back(uint32_t root) {
    if (offset_[root] < 0 || permanent_[root]) return;
    free_[bytes(Value{root})].push_back(offset_[root]);
    lifetime_[root] = {};
  }
  bool dies(Value v, RegionId r, size_t i) const {
    const uint32_t root = root_[v.index];
    return lifetime_[root] == r && last_use_[root] == static_cast<int64_t>(i) && !permanent_[root] &&
           offset_[root] >= 0;
  }

  void plan_region(RegionId r) {
    const ir::Region& region = k_.region(r);
    for (size_t i = 0; i + 1 < region.ops.size(); ++i) {
      const ir::OpId id = region.ops[i];
      if (ir::accesses_ref(k_.op(id).code)) observe(r, id, k_.op(id).operands);
      plan_op(r, i);
      observe(r, id, k_.op(id).results);
    }
    bury(r, region.ops.size() - 1);
  }
  void bury(RegionId r, size_t i) {
    if (dying_[r.index].empty()) return;
    for (uint32_t root : dying_[r.index][i])
      if (lifetime_[root]) give_back(root);
  }

  void observe(RegionId r, ir::OpId at, const std::vector<Value>& values) {
    if (!m_.observe) return;
    for (auto i = values.begin(); i != values.end(); ++i) {
      // once, at its last place: then all before it have been seen, too
      if (type(*i).is_ref || std::find(i + 1, values.end(), *i) != values.end()) continue;
      emit(r, ready([=, v = *i](Machine& m) { m.observe({at, v, m.place[v.index], m.grid_point}); }));
    }
  }
  void emit(RegionId r, Make make) { late_.emplace_back(r.index, std::move(make)); }

  bool hoistable(const Op& op) const {
    if (op.results.size() != 1 || !op.regions.empty() || ir::info(op.code).effect != ir::Effect::pure ||
        op.code == Opcode::program_id)
      return false;
    if (bytes(op.results[0]) > kHoistedBytes) return false;
    return std::all_of(op.operands.begin(), op.operands.end(),
                       [&](Value v) { return permanent_[v.index] && k_.def(v); });
  }

  void plan_op(RegionId r, size_t i) {
    const Op& op = k_.op(k_.region(r).ops[i]);
    const bool hoist = hoistable(op);
    if (op.code == Opcode::reshape) {
      permanent_[op.results[0].index] = hoist;
      const Value from = op.operands[0], to = op.results[0];
      Make make = [=] { return [=](Machine& m) { m.place[to.index] = m.place[from.index]; }; };
      if (hoist) hoisted_.push_back(std::move(make));
      else emit(r, std::move(make));
    } else if (hoist) {
      // Its own buffer, never shared: the hoisted steps run in this order before everything else.
      append(op.results[0]);
      permanent_[op.results[0].index] = true;
      hoisted_.push_back(array_op(op));
    } else {
      const bool in_place = ir::is_elementwise(op.code) && take_over(op, r, i);
      if (!in_place)
        for (Value v : op.results) take(v);
      if (op.regions.empty())
        emit(r, ir::accesses_ref(op.code)   ? memory_op(op)
                : of_threads(op)            ? ready(Threads::step(op))
                : ir::is_async(op.code)     ? ready(async_step(m_, op))
                : ir::is_print(op.code)     ? ready(print_step(k_, op))
                : op.code == Opcode::report ? ready(report_step(op))
                                            : array_op(op));
      else control_flow(op, r);
    }
    bury(r, i);
    for (Value v : op.results)
      if (lifetime_[v.index] == r && last_use_[v.index] < 0) give_back(v.index);
  }
  bool of_threads(const Op& op) const {
    return ir::is_thread_op(op.code) || (ir::is_semaphore_op(op.code) && k_.has_threads());
  }
  bool take_over(const Op& op, RegionId r, size_t i) {
    const Value to = op.results[0];
    for (Value v : op.operands) {
      const uint32_t root = root_[v.index];
      if (!dies(v, r, i) || size_bytes(type(v).dtype) != size_bytes(type(to).dtype) ||
          elements(type(v)) != elements(type(to)))
        continue;
      offset_[to.index] = offset_[root];
      lifetime_[root] = {};  // nothing to give back: the result does
      return true;
    }
    return false;
  }

  // -- steps. A Make is called when every place is known; places of borrowed loads change while the machine runs, so
  // steps read them late.
  Make memory_op(const Op& op) {
    const size_t ref = m_.refs[op.operands[0].index];
    const Op* o = &op;
    return [=, this] {
      std::byte* buffer = o->results.empty() ? nullptr : m_.place[o->results[0].index];
      return memory_step(k_, *o, ref, buffer, ref < written_.size() && !written_[ref], m_.fill);
    };
  }

  static Make ready(Step s) {
    return [s = std::move(s)] { return s; };
  }

  // Kernels that the compiler has rewritten have these.
  static Step report_step(const Op& op) {
    return [o = &op](Machine& m) {
      if (m.place[o->operands[0].index][0] == std::byte{0}) return;
      std::string words;
      for (size_t i = 1; i < o->operands.size(); ++i) words += " " + std::to_string(m.scalar(o->operands[i]));
      throw KernelError(m.kernel->name + ": reports " + std::to_string(o->attr(Attr::mask)) + words, o->loc);
    };
  }

  Make array_op(const Op& op) {
    const std::vector<Value>& o = op.operands;
    const uint32_t to = op.results[0].index, from = o.empty() ? 0 : o[0].index;
    const ir::Type& t = type(op.results[0]);
    const int64_t n = elements(t), size = size_bytes(t.dtype);
    if (ir::is_elementwise(op.code)) {
      const DType operand = type(o.back()).dtype;
      const reference::ArrayFunction f = reference::array_function(op.code, operand, t.dtype);
      if (!f)
        throw InternalError(std::string(ir::name(op.code)) + " of " + std::string(name(operand)) + " has no reference",
                            op.loc);
      const uint32_t a = o[0].index, b = o.size() > 1 ? o[1].index : a, c = o.size() > 2 ? o[2].index : a;
      return ready([=](Machine& m) {
        const void* operands[] = {m.place[a], m.place[b], m.place[c]};
        f(operands, m.place[to], n);
      });
    }
    switch (ir::family(op.code)) {
      case Family::source: {
        if (op.code == Opcode::iota) return iota(op);
        const auto b = static_cast<uint64_t>(op.attr(Attr::bits));
        return ready([=](Machine& m) { fill(m.place[to], n, b, size); });
      }
      case Family::move: return move(op);
      case Family::contract: {
        const bool adds = o.size() == 3;
        return ready([=, a = o[0].index, b = o[1].index, start = o.back().index, plan = plan_dot(k_, op)](Machine& m) {
          dot(plan, m.place[a], m.place[b], adds ? m.place[start] : nullptr, m.place[to]);
        });
      }
      case Family::reduce:
        return ready([=, reduction = Reduction(op.code, type(o[0]).dtype, type(o[0]).shape, op.ints(Attr::axes))](
                         Machine& m) mutable { reduction.run(m.place[from], m.place[to]); });
      case Family::argreduce:
        return ready([=, code = op.code, in = type(o[0]), index = t.dtype, axis = op.attr(Attr::axis)](Machine& m) {
          arg_reduce(code, in, axis, index, m.place[from], m.place[to]);
        });
      case Family::scan:
        return ready([=, code = op.code, in = type(o[0]), axis = op.attr(Attr::axis),
                      reverse = op.attr_or(Attr::reverse, 0) != 0](Machine& m) {
          scan(code, in, axis, reverse, m.place[from], m.place[to]);
        });
      case Family::rearrange: {
        if (op.code == Opcode::sort) return sort_op(op);
        std::vector<uint32_t> indices;
        for (size_t i = op.code == Opcode::gather ? 1 : 2; i < o.size(); ++i) indices.push_back(o[i].index);
        return ready([=, plan = plan_positions(k_, op), updates = o[1].index](Machine& m) {
          std::vector<const int32_t*> at;
          for (const uint32_t i : indices) at.push_back(reinterpret_cast<const int32_t*>(m.place[i]));
          if (plan.scatters) scatter(plan, m.place[from], m.place[updates], at, m.place[to]);
          else gather(plan, m.place[from], at, m.place[to]);
        });
      }
      case Family::grid: {
        std::vector<int32_t> Machine::* const of = numbers_of(op.code);
        const auto i = static_cast<size_t>(op.attr(op.code == Opcode::size ? Attr::index : Attr::axis));
        return ready([=](Machine& m) { std::memcpy(m.place[to], &(m.*of)[i], 4); });
      }
      case Family::elementwise:
      case Family::memory:
      case Family::print:
      case Family::control:
      case Family::async:
      case Family::thread:
      case Family::end:
      case Family::launch:
      case Family::ref:
      case Family::group:
      case Family::packed:
      case Family::matrix:
      case Family::report: break;
    }
    throw InternalError("the interpreter does not run " + std::string(ir::name(op.code)) + " in a tile-level kernel",
                        op.loc);
  }

  Make sort_op(const Op& op) {
    std::vector<SortOperand> list;
    std::vector<std::pair<uint32_t, uint32_t>> places;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      list.push_back({type(op.operands[i]).dtype, nullptr, nullptr});
      places.emplace_back(op.operands[i].index, op.results[i].index);
    }
    return ready([=, shape = type(op.results[0]).shape, axis = op.attr(Attr::axis),
                  keys = static_cast<size_t>(op.attr(Attr::keys))](Machine& m) mutable {
      for (size_t i = 0; i < list.size(); ++i)
        list[i].in = m.place[places[i].first], list[i].out = m.place[places[i].second];
      sort(shape, axis, keys, list);
    });
  }

  Make iota(const Op& op) {
    const ir::Type t = type(op.results[0]);
    const uint32_t to = op.results[0].index;
    const auto axis = static_cast<size_t>(op.attr(Attr::axis));
    std::vector<int64_t> counted(static_cast<size_t>(t.shape[axis]));
    for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<int64_t>(i);
    std::vector<std::byte> line(counted.size() * static_cast<size_t>(size_bytes(t.dtype)));
    const void* source = counted.data();
    reference::eval_array(Opcode::convert, DType::i64, t.dtype, &source, line.data(), t.shape[axis]);
    Strides strides(t.shape.size(), 0);
    strides[axis] = 1;
    return ready([to, line = std::move(line),
                  copy = StridedCopy(t.shape.size(), t.shape.data(), dense_strides(t.shape).data(), strides.data(),
                                     size_bytes(t.dtype))](Machine& m) { copy.run(m.place[to], line.data()); });
  }

  // A strided copy for each piece of a move. (A reshape has its operand's place.)
  Make move(const Op& op) {
    struct Part {
      uint32_t from;
      int64_t from_offset, to_offset;
      StridedCopy copy;
    };
    const ir::MoveMap map = *ir::move_map(k_, op);
    const ir::Type& t = type(op.results[0]);
    const Strides dense = dense_strides(t.shape);
    const int64_t size = size_bytes(t.dtype);
    std::vector<Part> parts;
    for (const ir::MovePiece& p : map.pieces) {
      Shape shape = t.shape;
      int64_t from_offset = 0, to_offset = 0;
      if (map.pieces.size() > 1) {
        shape[map.axis] = p.end - p.begin;
        to_offset = p.begin * dense[map.axis];
      }
      const Strides source = dense_strides(type(p.operand).shape);
      Strides strides(shape.size(), 0);
      for (size_t i = 0; i < p.dims.size(); ++i) {
        const ir::DimSource& d = p.dims[i];
        const bool along = d.dim == static_cast<int>(map.axis);
        from_offset += source[i] * (d.offset + (along ? d.stride * p.begin : 0));
        if (d.dim >= 0) strides[static_cast<size_t>(d.dim)] += source[i] * d.stride;
      }
      parts.push_back({p.operand.index, from_offset * size, to_offset * size,
                       StridedCopy(shape.size(), shape.data(), dense.data(), strides.data(), size)});
    }
    return ready([parts = std::move(parts), to = op.results[0].index](Machine& m) {
      for (const Part& p : parts) p.copy.run(m.place[to] + p.to_offset, m.place[p.from] + p.from_offset);
    });
  }

  // -- control flow
  struct Move {
    uint32_t from, to;
    size_t bytes;
  };
  std::vector<Move> moves(const std::vector<Value>& from, size_t first, const std::vector<Value>& to) const {
    std::vector<Move> list;
    for (size_t c = 0; c < to.size(); ++c)
      list.push_back({from[first + c].index, to[c].index,
                      static_cast<size_t>(elements(type(to[c])) * size_bytes(type(to[c]).dtype))});
    return list;
  }
  // All at once: a source that is also another move's target is saved first (carries that trade places).
  static void perform(Machine& m, const std::vector<Move>& list) {
    std::vector<std::vector<std::byte>> saved(0);
    const auto clashes = [&](size_t i) {
      for (size_t j = 0; j < i; ++j)
        if (m.place[list[j].to] == m.place[list[i].from]) return true;
      return false;
    };
    bool any = false;
    for (size_t i = 1; i < list.size() && !any; ++i) any = clashes(i);
    if (any) {
      for (const Move& x : list) saved.emplace_back(m.place[x.from], m.place[x.from] + x.bytes);
      for (size_t i = 0; i < list.size(); ++i)
        if (list[i].bytes) std::memcpy(m.place[list[i].to], saved[i].data(), list[i].bytes);
      return;
    }
    for (const Move& x : list)
      if (x.bytes && m.place[x.to] != m.place[x.from]) std::memcpy(m.place[x.to], m.place[x.from], x.bytes);
  }

  void control_flow(const Op& op, RegionId r) {
    const Op* o = &op;
    switch (ir::Control(op.code)) {
      case Control::for_: {
        const RegionId body = op.regions[0];
        const auto& args = k_.region(body).args;
        take(args[0]);
        for (size_t c = 0; c < op.results.size(); ++c) offset_[args[c + 1].index] = offset_[op.results[c].index];
        observe(body, {}, {args[0]});
        plan_region(body);
        if (lifetime_[args[0].index]) give_back(args[0].index);
        emit(r, ready([=, enter = moves(op.operands, 3, op.results),
                       next = moves(k_.terminator(body).operands, 0, op.results), iv = args[0].index](Machine& m) {
               const int64_t lower = m.scalar(o->operands[0]), upper = m.scalar(o->operands[1]),
                             step = m.scalar(o->operands[2]);
               if (step <= 0) throw SpecError("for: the step must be positive but is " + std::to_string(step), o->loc);
               perform(m, enter);
               for (int64_t i = lower; i < upper; i += step) {
                 const auto i32 = static_cast<int32_t>(i);
                 std::memcpy(m.place[iv], &i32, 4);
                 m.run(body);
                 perform(m, next);
               }
             }));
        return;
      }
      case Control::while_: {
        const RegionId condition = op.regions[0], body = op.regions[1];
        for (RegionId region : op.regions) {
          for (size_t c = 0; c < op.results.size(); ++c)
            offset_[k_.region(region).args[c].index] = offset_[op.results[c].index];
          plan_region(region);
        }
        emit(r, ready([=, enter = moves(op.operands, 0, op.results),
                       next = moves(k_.terminator(body).operands, 0, op.results),
                       go_on = k_.terminator(condition).operands[0].index](Machine& m) {
               perform(m, enter);
               for (uint32_t steps = 1; m.run(condition), m.place[go_on][0] != std::byte{0}; ++steps) {
                 if (m.threads && steps % 256 == 0) m.threads->let_others_go(m);  // it may wait for what they store
                 m.run(body);
                 perform(m, next);
               }
             }));
        return;
      }
      case Control::if_:
      case Control::switch_: {
        std::vector<std::vector<Move>> leave;
        for (RegionId region : op.regions) {
          plan_region(region);
          leave.push_back(moves(k_.terminator(region).operands, 0, op.results));
        }
        const bool is_if = op.code == Opcode::if_;
        emit(r, ready([=](Machine& m) {
               const auto last = static_cast<int32_t>(o->regions.size()) - 1;
               const auto choice =
                   static_cast<size_t>(is_if ? (m.place[o->operands[0].index][0] == std::byte{0} ? 1 : 0)
                                             : std::clamp(m.scalar(o->operands[0]), 0, last));
               m.run(o->regions[choice]);
               perform(m, leave[choice]);
             }));
        return;
      }
      case Control::run_scoped: {
        const RegionId body = op.regions[0];
        plan_region(body);
        emit(r, ready([=, leave = moves(k_.terminator(body).operands, 0, op.results)](Machine& m) {
               if (m.threads) m.threads->enter(m, *o);
               else m.async->enter(*o);
               m.run(body);
               perform(m, leave);
               if (m.threads) m.threads->leave(m, *o);
               else m.async->leave(*o);
             }));
        return;
      }
    }
    throw InternalError("the interpreter does not run " + std::string(ir::name(op.code)) + " with regions", op.loc);
  }
};
}  // namespace

Machine make_machine(const ir::Kernel& k, std::vector<int32_t> programs, std::vector<int32_t> sizes,
                     const std::vector<bool>& written, int fill, Function<void(const SeenValue&)> observe) {
  Machine m;
  m.observe = std::move(observe);
  m.kernel = &k;
  m.fill = fill;
  m.programs = std::move(programs);
  m.sizes = std::move(sizes);
  m.program.assign(m.programs.size(), 0);
  m.refs.assign(k.values.size(), UINT32_MAX);
  for (size_t v = 0; v < k.values.size(); ++v)
    if (const ir::ValueInfo& info = k.values[v]; info.type.is_ref && !info.def)
      m.refs[v] = k.ref_position({static_cast<uint32_t>(v)});
  auto number = static_cast<uint32_t>(k.region(k.body).args.size());
  m.scoped = ir::scoped_refs(k);
  for (const ir::Value v : m.scoped) m.refs[v.index] = number++;
  m.views.resize(number);
  m.tracked.resize(m.views.size());
  m.grid_point.resize(k.grid.size());
  Planner(k, m, written).run();
  return m;
}

}  // namespace tessera::interpreter
