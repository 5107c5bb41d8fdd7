// Copier: copies regions and ops from one kernel into another, or into the same one. Values from outside a region are
// given by map() first. Attributes that refer to the kernel (texts of debug_print) stay as they are.
#pragma once
#include <map>

#include "engine/ir/kernel.h"

namespace tessera::ir {

class Copier {
 public:
  Copier(const Kernel& from, Kernel& to) : from_(from), to_(to) {}

  void map(Value from, Value to) { map_[from] = to; }
  bool knows(Value from) const { return map_.contains(from); }
  Value operator()(Value from) const { return map_.at(from); }

  RegionId copy(RegionId r) {
    const RegionId id{static_cast<uint32_t>(to_.regions.size())};
    to_.regions.emplace_back();
    const std::vector<Value> args = from_.region(r).args;
    for (Value v : args) {
      const Value made = value(v, {}, id);
      to_.region(id).args.push_back(made);
    }
    const std::vector<OpId> ops = from_.region(r).ops;
    for (OpId o : ops) copy(o, id);
    return id;
  }
  /// The op goes to the end of `into`.
  OpId copy(OpId o, RegionId into) {
    Op op = from_.op(o);
    for (Value& v : op.operands) v = map_.at(v);
    for (RegionId& inner : op.regions) inner = copy(inner);
    const OpId made{static_cast<uint32_t>(to_.ops.size())};
    for (Value& v : op.results) v = value(v, made, {});
    to_.ops.push_back(std::move(op));
    to_.region(into).ops.push_back(made);
    return made;
  }

 private:
  Value value(Value v, OpId def, RegionId region) {
    const Value made{static_cast<uint32_t>(to_.values.size())};
    const ValueInfo info{from_.type(v), def, region, from_.value(v).number};
    to_.values.push_back(info);
    map_[v] = made;
    return made;
  }
  const Kernel& from_;
  Kernel& to_;
  std::map<Value, Value> map_;
};

}  // namespace tessera::ir
