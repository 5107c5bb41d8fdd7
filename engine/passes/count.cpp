// A while that only counts becomes a for: its trip count is known when it starts, so that ranges, affine
// positions and the cutting of loops into dispatches see it. JAX makes such whiles of every fori_loop with a bound that
// is not a Python number.
//
//   while (i, ...) { yield i < n } do { ...; yield i + 1, ... }, where n is defined outside
#include <algorithm>
#include <optional>

#include "engine/passes/passes.h"
#include "engine/passes/replacements.h"

namespace tessera::passes {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

class Count {
 public:
  explicit Count(ir::Kernel& k) : k_(k), replaced_(k) {}
  bool run() {
    for (RegionId r : top_regions(k_)) region(r);
    return changed_;
  }

 private:
  ir::Kernel& k_;
  Replacements replaced_;
  bool changed_ = false;

  void region(RegionId r) {
    std::vector<OpId> list;
    list.reserve(k_.region(r).ops.size());
    for (const OpId id : k_.region(r).ops) {
      replaced_.apply(k_.op(id));
      if (k_.op(id).code == Opcode::while_) become_for(id, list);
      for (const RegionId inner : std::vector<RegionId>(k_.op(id).regions)) region(inner);
      list.push_back(id);
    }
    k_.region(r).ops = std::move(list);
  }

  /// Which carry counts up to which value, if one does; `one` is what it grows by.
  struct Counter {
    size_t carry;
    Value bound, one;
  };
  std::optional<Counter> counter(const Op& loop) const {
    const ir::Region& test = k_.region(loop.regions[0]);
    const ir::Region& body = k_.region(loop.regions[1]);
    const Op* less = k_.def(k_.terminator(loop.regions[0]).operands[0]);
    if (test.ops.size() != 2 || !less || &k_.op(test.ops[0]) != less ||
        (less->code != Opcode::lt && less->code != Opcode::gt))
      return std::nullopt;
    const bool turned = less->code == Opcode::gt;
    const Value i = less->operands[turned], bound = replaced_(less->operands[!turned]);
    if (k_.value(i).region != loop.regions[0] || k_.value(bound).region == loop.regions[0] ||
        k_.type(i).dtype != DType::i32)
      return std::nullopt;
    const size_t carry = k_.value(i).number;
    const Op* next = k_.def(k_.terminator(loop.regions[1]).operands[carry]);
    if (!next || next->code != Opcode::add) return std::nullopt;
    for (const size_t at : {0, 1})
      if (next->operands[at] == body.args[carry] && ir::constant_int(k_, next->operands[1 - at]) == 1 &&
          outside(next->operands[1 - at], loop.regions[1]))
        return Counter{carry, bound, next->operands[1 - at]};
    return std::nullopt;
  }
  /// fold puts constants at the front of the kernel's body, where all see them.
  bool outside(Value v, RegionId body) const {
    const std::vector<OpId>& ops = k_.region(body).ops;
    return std::find(ops.begin(), ops.end(), k_.value(v).def) == ops.end();
  }

  void become_for(OpId id, std::vector<OpId>& before) {
    const auto c = counter(k_.op(id));
    if (!c) return;
    const auto n = static_cast<std::ptrdiff_t>(c->carry);
    const Value start = k_.op(id).operands[c->carry], last = k_.op(id).results[c->carry];
    // What the counter is in the end: the bound, or the start where that is not below it.
    const Value end{static_cast<uint32_t>(k_.values.size())};
    const OpId max{static_cast<uint32_t>(k_.ops.size())};
    k_.values.push_back({k_.type(start), max, {}, 0});
    k_.ops.push_back(Op{.code = Opcode::max, .operands = {start, c->bound}, .results = {end}, .loc = k_.op(id).loc});
    before.push_back(max);
    replaced_.replace(last, end);

    Op& loop = k_.op(id);
    const RegionId body = loop.regions[1];
    loop.code = Opcode::for_;
    loop.regions = {body};
    loop.operands.erase(loop.operands.begin() + n);
    loop.operands.insert(loop.operands.begin(), {start, c->bound, c->one});
    loop.results.erase(loop.results.begin() + n);
    std::vector<Value>& args = k_.region(body).args;
    std::rotate(args.begin(), args.begin() + n, args.begin() + n + 1);
    std::vector<Value>& yields = k_.op(k_.region(body).ops.back()).operands;
    yields.erase(yields.begin() + n);
    for (size_t i = 0; i < args.size(); ++i) k_.values[args[i].index].number = static_cast<uint32_t>(i);
    for (size_t i = 0; i < loop.results.size(); ++i) k_.values[loop.results[i].index].number = static_cast<uint32_t>(i);
    changed_ = true;
  }
};

}  // namespace

bool count(ir::Kernel& k) { return k.level == ir::Level::tile && Count(k).run(); }

}  // namespace tessera::passes
