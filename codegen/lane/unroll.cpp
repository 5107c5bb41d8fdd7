#include "codegen/lane/unroll.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "codegen/lane/loops.h"
#include "engine/ir/builder.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using ir::Value;

struct Trip {
  int64_t lower, upper, step, count;
};

bool constant_trip(const ir::Kernel& k, const ir::Op& loop, Trip& t) {
  const auto lower = ir::constant_int(k, loop.operands[0]), upper = ir::constant_int(k, loop.operands[1]),
             step = ir::constant_int(k, loop.operands[2]);
  if (!lower || !upper || !step) return false;
  t = {*lower, *upper, *step, *upper > *lower ? cdiv(*upper - *lower, *step) : 0};
  return true;
}

class Unroller {
 public:
  Unroller(ir::Kernel& k, int budget, int counting) : k_(k), b_(k), budget_(budget), counting_(counting) {}
  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  // What a region becomes, in instructions; regions with loops or barriers count as too many.
  int64_t cost(ir::RegionId r) const {
    int64_t n = 0;
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (ir::is_loop(o.code) || ir::is_barrier(o.code)) return INT32_MAX;
      n += lane::op_weight(k_, o);
      for (ir::RegionId inner : o.regions) n += cost(inner);
    }
    return std::min<int64_t>(n, INT32_MAX);
  }

  bool counts(ir::RegionId body) const {
    const std::vector<ir::OpId>& ops = k_.region(body).ops;
    const auto some = [&](const auto& is) { return std::any_of(ops.begin(), ops.end(), is); };
    return some([&](ir::OpId id) { return ir::is_atomic(k_.op(id).code); }) &&
           some([&](ir::OpId id) { return k_.op(id).code == Opcode::load; });
  }

  void walk(ir::RegionId r) {
    const std::vector<ir::OpId> ops = k_.region(r).ops;
    std::vector<ir::OpId> out;
    for (ir::OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (ir::RegionId x : inner) walk(x);
      Trip t;
      if (k_.op(id).code == Opcode::for_ && constant_trip(k_, k_.op(id), t) && t.count > 1) {
        const int64_t body = cost(k_.op(id).regions[0]);
        int64_t factor = std::min<int64_t>(body > 0 ? budget_ / body : 1, t.count);
        if (counts(k_.op(id).regions[0]))
          factor = std::max(factor, std::min({int64_t{4}, body > 0 ? counting_ / body : 1, t.count}));
        if (factor < t.count) {
          factor = std::min<int64_t>(factor, INT32_MAX / t.step);  // the loop's own step is an i32
          while (factor > 1 && t.count % factor != 0 && factor > 8) --factor;
        }
        if (factor > 1) {
          k_.region(r).ops.clear();
          unroll(r, id, t, factor);
          out.insert(out.end(), k_.region(r).ops.begin(), k_.region(r).ops.end());
          changed_ = true;
          continue;
        }
      }
      out.push_back(id);
    }
    k_.region(r).ops = out;
  }

  using Map = std::unordered_map<uint32_t, Value>;
  Value mapped(const Map& m, Value v) const {
    const auto it = m.find(v.index);
    return it == m.end() ? v : it->second;
  }

  // Appends a copy of `from`'s ops (all but the yield) to the builder's region; returns the yielded values.
  std::vector<Value> copy(ir::RegionId from, Map& m) {
    const std::vector<ir::OpId> ops = k_.region(from).ops;
    for (ir::OpId id : ops) {
      ir::Op o = k_.op(id);
      for (Value& v : o.operands) v = mapped(m, v);
      if (o.code == Opcode::yield) return o.operands;
      const std::vector<Value> results = o.results;
      const ir::Type requested = results.empty() ? ir::Type{} : k_.type(results[0]);
      std::vector<ir::RegionId> regions;
      for (ir::RegionId r : o.regions) {
        std::vector<ir::Type> types;
        const std::vector<Value> args = k_.region(r).args;
        for (Value a : args) types.push_back(k_.type(a));
        const ir::RegionId to = b_.new_region(types), at = b_.region();
        for (size_t i = 0; i < args.size(); ++i) m[args[i].index] = k_.region(to).args[i];
        b_.set_region(to);
        b_.yield(copy(r, m));
        b_.set_region(at);
        regions.push_back(to);
      }
      o.regions = regions;
      const ir::OpId made = b_.append(std::move(o), requested);
      for (size_t i = 0; i < results.size(); ++i) m[results[i].index] = k_.op(made).results[i];
    }
    return {};
  }

  void unroll(ir::RegionId r, ir::OpId id, const Trip& t, int64_t factor) {
    const ir::Op loop = k_.op(id);
    b_.set_region(r);
    b_.set_loc(loop.loc);
    const ir::RegionId body = loop.regions[0];
    std::vector<Value> carries(loop.operands.begin() + 3, loop.operands.end());
    auto iteration = [&](Value iv, const std::vector<Value>& in) {
      Map m;
      const std::vector<Value> args = k_.region(body).args;
      m[args[0].index] = iv;
      for (size_t i = 0; i < in.size(); ++i) m[args[1 + i].index] = in[i];
      return copy(body, m);
    };
    const int64_t full = t.count / factor, rest = t.count % factor;
    auto number = [&](int64_t v) { return b_.constant_int(DType::i32, v); };
    if (full == 1) {
      for (int64_t i = 0; i < factor; ++i) carries = iteration(number(t.lower + i * t.step), carries);
    } else {
      // The loop ends behind its last counter, not a stride further, which may be beyond i32.
      const Value lower = number(t.lower), upper = number(t.lower + (full - 1) * factor * t.step + 1),
                  step = number(t.step * factor);
      carries = b_.for_loop(lower, upper, step, carries, [&](Value iv, const std::vector<Value>& in) {
        std::vector<Value> c = in;
        for (int64_t i = 0; i < factor; ++i)
          c = iteration(i == 0 ? iv : b_.elementwise(Opcode::add, {iv, number(i * t.step)}), c);
        return c;
      });
    }
    for (int64_t i = 0; i < rest; ++i) carries = iteration(number(t.lower + (full * factor + i) * t.step), carries);
    // The loop's results stay defined where they were: everything that names them is renamed at the end.
    for (size_t i = 0; i < loop.results.size(); ++i) rename(loop.results[i], carries[i]);
  }

  void rename(Value from, Value to) {
    if (from == to) return;
    for (ir::Op& o : k_.ops)
      for (Value& v : o.operands)
        if (v == from) v = to;
  }

  ir::Kernel& k_;
  ir::Builder b_;
  const int budget_, counting_;
  bool changed_ = false;
};
}  // namespace

bool unroll_loops(ir::Kernel& k, int budget, int counting) { return Unroller(k, budget, counting).run(); }

int64_t count_branches(const ir::Kernel& k) {
  // Ops that passes took out of their regions are still in the table.
  int64_t n = 0;
  ir::each_op(k, k.body, [&](ir::OpId id) { n += ir::accesses_ref(k.op(id).code) || !k.op(id).regions.empty(); });
  return n;
}

}  // namespace tessera::lowering
