#include "codegen/lane/known_conditions.h"

#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/lane/prover.h"
#include "engine/ir/builder.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using ir::OpId;
using ir::Value;

class Finder {
 public:
  explicit Finder(const ir::Kernel& k) : k_(k), bounds_(k) {}
  std::vector<KnownCondition> run() {
    region(k_.body);
    return std::move(decisions_);
  }

 private:
  // What is known of conditions in the regions that are open, innermost last. What is decided outside holds inside too.
  using Outcomes = std::unordered_map<uint32_t, std::optional<bool>>;

  void region(ir::RegionId r) {
    for (const OpId id : k_.region(r).ops) {
      if (!conditions_.empty() || !scope_.empty()) uses(id);
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (size_t i = 0; i < inner.size(); ++i) {
        const ir::Op& o = k_.op(id);
        outcomes_.emplace_back();
        if (o.code == Opcode::if_) conditions_.push_back({o.operands[0], i == 0});
        if (o.code == Opcode::for_) {
          scope_.push_back({k_.region(inner[i]).args[0], o.operands[0], o.operands[1], o.operands[2]});
          bounds_.between(scope_.back());
        }
        region(inner[i]);
        if (o.code == Opcode::if_) conditions_.pop_back();
        if (o.code == Opcode::for_) scope_.pop_back();
        outcomes_.pop_back();
      }
    }
  }

  void uses(OpId id) {
    const ir::Op& o = k_.op(id);
    for (size_t i = 0; i < o.operands.size(); ++i) {
      const Value v = o.operands[i];
      if (k_.type(v).is_ref || k_.type(v).dtype != DType::boolean || ir::constant_bits(k_, v)) continue;
      if (const auto holds = outcome(v)) decisions_.push_back({id, i, *holds});
    }
  }

  std::optional<bool> outcome(Value v) {
    for (auto it = outcomes_.rbegin(); it != outcomes_.rend(); ++it)
      if (const auto found = it->find(v.index); found != it->end() && (found->second || it == outcomes_.rbegin()))
        return found->second;
    const std::optional<bool> known = decide(v);
    outcomes_.back().emplace(v.index, known);
    return known;
  }

  std::optional<bool> decide(Value v) {
    const ir::Op* o = k_.def(v);
    if (!o) return std::nullopt;
    if (const auto bits = ir::constant_bits(k_, v)) return *bits != 0;
    if (o->code == Opcode::not_) {
      const auto x = outcome(o->operands[0]);
      return x ? std::optional(!*x) : std::nullopt;
    }
    if (o->code == Opcode::and_ || o->code == Opcode::or_) {
      const bool decisive = o->code == Opcode::or_;
      const auto x = outcome(o->operands[0]), y = outcome(o->operands[1]);
      if (x == decisive || y == decisive) return decisive;
      return x && y ? std::optional(!decisive) : std::nullopt;
    }
    if (o->operands.size() != 2 || !is_int(k_.type(o->operands[0]).dtype)) return std::nullopt;
    const Value x = o->operands[0], y = o->operands[1];
    if (o->code == Opcode::lt) return at_most(x, y, 1);
    if (o->code == Opcode::le) return at_most(x, y, 0);
    if (o->code == Opcode::gt) return at_most(y, x, 1);
    if (o->code == Opcode::ge) return at_most(y, x, 0);
    if (o->code != Opcode::eq && o->code != Opcode::ne) return std::nullopt;
    if (proved(x, y, 1) || proved(y, x, 1)) return o->code == Opcode::ne;
    if (proved(x, y, 0) && proved(y, x, 0)) return o->code == Opcode::eq;
    return std::nullopt;
  }

  /// Whether low + by <= high.
  std::optional<bool> at_most(Value low, Value high, int64_t by) {
    if (proved(low, high, by)) return true;
    if (proved(high, low, 1 - by)) return false;
    return std::nullopt;
  }
  bool proved(Value low, Value high, int64_t by) {
    return bounds_.not_negative({{1, high}, {-1, low}, {-by, {}}}, conditions_, scope_);
  }

  const ir::Kernel& k_;
  lane::Prover bounds_;
  std::vector<lane::Prover::Condition> conditions_;
  std::vector<lane::Prover::Between> scope_;
  std::vector<Outcomes> outcomes_;
  std::vector<KnownCondition> decisions_;
};
}  // namespace

std::vector<KnownCondition> known_conditions(const ir::Kernel& k) { return Finder(k).run(); }

bool fold_known_conditions(ir::Kernel& k) {
  const std::vector<KnownCondition> decisions = known_conditions(k);
  if (decisions.empty()) return false;
  std::vector<OpId> ops = std::move(k.region(k.body).ops);
  k.region(k.body).ops.clear();
  ir::Builder b(k);
  b.set_region(k.body);
  b.set_loc(k.loc);
  const Value never = b.constant_int(DType::boolean, 0), always = b.constant_int(DType::boolean, 1);
  std::vector<OpId>& body = k.region(k.body).ops;
  body.insert(body.end(), ops.begin(), ops.end());
  for (const KnownCondition& d : decisions) k.op(d.op).operands[d.operand] = d.holds ? always : never;
  return true;
}

}  // namespace tessera::lowering
