#include "engine/ir/compact.h"

namespace tessera::ir {
namespace {
class Compactor {
 public:
  explicit Compactor(Kernel& k) : from_(k), value_(k.values.size()) {}

  void run() {
    values_.reserve(from_.values.size());
    ops_.reserve(from_.ops.size());
    std::vector<RegionId*> roots;
    for (BlockMapping& b : from_.blocks)
      if (!b.is_whole()) roots.push_back(&b.index_map());
    roots.push_back(&from_.body);
    for (RegionId* const r : roots)
      if (*r) *r = visit(*r);
    from_.values = std::move(values_);
    from_.ops = std::move(ops_);
    from_.regions = std::move(regions_);
  }

 private:
  Value define(Value old, OpId def, RegionId region, size_t number) {
    const Value v{static_cast<uint32_t>(values_.size())};
    values_.push_back({std::move(from_.values[old.index].type), def, region, static_cast<uint32_t>(number)});
    value_[old.index] = v;
    return v;
  }

  RegionId visit(RegionId old) {
    const RegionId r{static_cast<uint32_t>(regions_.size())};
    regions_.emplace_back();
    const Region source = std::move(from_.region(old));
    for (size_t i = 0; i < source.args.size(); ++i) {
      const Value v = define(source.args[i], {}, r, i);
      regions_[r.index].args.push_back(v);
    }
    for (OpId id : source.ops) {
      Op op = std::move(from_.op(id));  // an op stands in one place
      for (Value& v : op.operands) v = value_[v.index];
      for (RegionId& inner : op.regions) inner = visit(inner);
      const OpId made{static_cast<uint32_t>(ops_.size())};
      for (size_t i = 0; i < op.results.size(); ++i) op.results[i] = define(op.results[i], made, {}, i);
      ops_.push_back(std::move(op));
      regions_[r.index].ops.push_back(made);
    }
    return r;
  }

  Kernel& from_;
  std::vector<Value> value_;
  std::vector<ValueInfo> values_;
  std::vector<Op> ops_;
  std::vector<Region> regions_;
};
}  // namespace

void compact(Kernel& k) { Compactor(k).run(); }

}  // namespace tessera::ir
