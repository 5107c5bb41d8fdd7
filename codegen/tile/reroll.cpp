#include "codegen/tile/reroll.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/walk.h"
#include "engine/passes/passes.h"

namespace tessera::lowering {
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Value;

namespace {
constexpr size_t kFewest = 4;               // terms that are worth a loop
constexpr int64_t kLargeProduct = 1 << 15;  // multiply-adds of one: staged code, written out for each
using Numbers = std::vector<int64_t>;       // of term 0, 1, ...

// first + by * ((t / every) % below), for term t.
struct Digit {
  int64_t first = 0, by = 0, every = 1, below = 1;
};

std::optional<Digit> digit(const Numbers& starts) {
  const auto n = static_cast<int64_t>(starts.size());
  for (int64_t every = 1; every <= n / 2; ++every) {
    if (n % every != 0) continue;
    for (int64_t below = n / every; below >= 2; --below) {
      if (n / every % below != 0) continue;
      const Digit d{starts[0], starts[static_cast<size_t>(every)] - starts[0], every, below};
      bool all = true;
      for (int64_t t = 0; t < n && all; ++t)
        all = starts[static_cast<size_t>(t)] == d.first + d.by * (t / every % below);
      if (all) return d;
    }
  }
  return std::nullopt;
}

// One sum of products, if it has the form.
class Sum {
 public:
  Sum(ir::Kernel& k, const std::vector<int>& uses, const std::vector<RegionId>& region_of, RegionId region, OpId last)
      : k_(k), uses_(uses), region_of_(region_of), region_(region), last_(last) {}

  bool find() {
    if (!collect() || terms_.size() < kFewest || !large()) return false;
    return same(terms_) && !starts_.empty() && undisturbed();
  }

  void replace() {
    const std::vector<OpId> ops = k_.region(region_).ops;
    const auto at = std::find(ops.begin(), ops.end(), last_);
    const Value sum = k_.op(last_).results[0];
    k_.region(region_).ops.assign(ops.begin(), at);
    ir::Builder b(k_);
    b.set_region(region_);
    b.set_loc(k_.op(last_).loc);
    const Value start = start_ ? start_ : b.constant_int(k_.type(sum).dtype, 0, k_.type(sum).shape);
    const Value zero = b.constant_int(DType::i32, 0), one = b.constant_int(DType::i32, 1),
                end = b.constant_int(DType::i32, static_cast<int64_t>(terms_.size()));
    const Value total = b.for_loop(zero, end, one, {start}, [&](Value counter, const std::vector<Value>& carried) {
      std::map<uint32_t, Value> made;
      const Value term = copy(b, terms_[0], counter, made);
      return std::vector<Value>{b.elementwise(Opcode::add, {carried[0], term})};
    })[0];
    std::vector<OpId>& now = k_.region(region_).ops;
    now.insert(now.end(), at + 1, ops.end());
    for (Op& o : k_.ops)
      for (Value& v : o.operands)
        if (v == sum) v = total;
  }

 private:
  const Op* own(Value v, Opcode c) const {
    const Op* o = k_.def(v);
    return o && o->code == c && uses_[v.index] == 1 && region_of_[k_.value(v).def.index] == region_ ? o : nullptr;
  }
  bool product(Value v) const {
    const Op* o = own(v, Opcode::dot);
    return o && o->operands.size() == 2;
  }
  // From the last sum back to what is no sum with a product.
  bool collect() {
    const Op* sum = &k_.op(last_);
    for (;;) {
      const bool second = product(sum->operands[1]);
      if (!second && !product(sum->operands[0])) return false;
      terms_.push_back(sum->operands[second ? 1 : 0]);
      const Value rest = sum->operands[second ? 0 : 1];
      const Op* before = own(rest, Opcode::add);
      if (before && (product(before->operands[0]) || product(before->operands[1]))) {
        sum = before;
        continue;
      }
      if (product(rest)) terms_.push_back(rest);
      else start_ = rest;
      std::reverse(terms_.begin(), terms_.end());
      return true;
    }
  }
  bool large() const {
    const Op& dot = *k_.def(terms_[0]);
    int64_t work = num_elements(k_.type(terms_[0]).shape);
    for (int64_t d : dot.ints(ir::Attr::lhs_contract)) work *= k_.type(dot.operands[0]).shape[static_cast<size_t>(d)];
    return work >= kLargeProduct;
  }

  // Whether the values, one of each term, are computed alike. Loads may begin at different places.
  bool same(const std::vector<Value>& values) {
    // copy() replaces a value of the first term at every use: it may not be common to all terms at another.
    const uint32_t first_value = values[0].index;
    if (std::all_of(values.begin(), values.end(), [&](Value v) { return v == values[0]; })) {
      fixed_.insert(first_value);
      return !nodes_.count(first_value);
    }
    if (fixed_.count(first_value)) return false;
    const auto [seen, fresh] = nodes_.emplace(values[0].index, values);
    if (!fresh) return seen->second == values;
    const Op* first = k_.def(values[0]);
    if (!first || !first->regions.empty() || first->results.size() != 1) return false;
    for (Value v : values) {
      const Op* o = k_.def(v);
      if (!o || o->code != first->code || o->attrs != first->attrs || o->operands.size() != first->operands.size() ||
          o->index.size() != first->index.size() || k_.type(v) != k_.type(values[0]) ||
          region_of_[k_.value(v).def.index] != region_)
        return false;
    }
    if (first->code == Opcode::load && !same_place(values)) return false;
    for (size_t i = 0; i < first->operands.size(); ++i) {
      std::vector<Value> operands;
      for (Value v : values) operands.push_back(k_.def(v)->operands[i]);
      if (!same(operands)) return false;
    }
    return true;
  }
  // Of one Ref, as same() finds out with the other operands.
  bool same_place(const std::vector<Value>& loads) {
    const Op& first = *k_.def(loads[0]);
    for (size_t d = 0; d < first.index.size(); ++d) {
      Numbers starts;
      for (Value v : loads) {
        ir::Index i = k_.def(v)->index[d];
        starts.push_back(i.is_static() ? i.constant() : 0);
        if (i.is_static() && first.index[d].is_static()) i.start() = first.index[d].start();
        if (i != first.index[d]) return false;
      }
      if (std::all_of(starts.begin(), starts.end(), [&](int64_t s) { return s == starts[0]; })) continue;
      const auto found = digit(starts);
      if (!found || !first.index[d].is_static()) return false;
      starts_[{loads[0].index, d}] = *found;
    }
    return true;
  }
  // Nothing between the first term's ops and the last sum writes, or does anything but compute: the loads may wait.
  bool undisturbed() const {
    std::vector<uint32_t> first;
    for (const auto& [of_first, values] : nodes_)
      for (Value v : values) first.push_back(k_.value(v).def.index);
    bool inside = false;
    for (OpId id : k_.region(region_).ops) {
      if (id == last_) return inside;
      inside = inside || std::find(first.begin(), first.end(), id.index) != first.end();
      const Op& o = k_.op(id);
      const ir::Effect effect = ir::info(o.code).effect;
      if (inside && (!o.regions.empty() || (effect != ir::Effect::pure && effect != ir::Effect::reads))) return false;
    }
    return false;
  }

  // The first term's value anew, for the term that the counter says.
  Value copy(ir::Builder& b, Value v, Value counter, std::map<uint32_t, Value>& made) {
    if (!nodes_.count(v.index)) return v;
    if (const auto found = made.find(v.index); found != made.end()) return found->second;
    Op o = *k_.def(v);
    const ir::Type type = k_.type(v);
    o.results.clear();
    for (Value& operand : o.operands) operand = copy(b, operand, counter, made);
    for (size_t d = 0; d < o.index.size(); ++d) {
      const auto found = starts_.find({v.index, d});
      if (found == starts_.end()) continue;
      o.index[d].start() = ir::Index::Dynamic{o.operands.size()};
      o.operands.push_back(place(b, found->second, counter));
    }
    return made[v.index] = b.one(std::move(o), type);
  }
  Value place(ir::Builder& b, const Digit& d, Value counter) const {
    Value v = counter;
    const auto with = [&](Opcode c, int64_t n) {
      const Value number = b.constant_int(DType::i32, n);
      v = b.elementwise(c, {v, number});
    };
    if (d.every > 1) with(Opcode::div, d.every);
    if (d.every * d.below < static_cast<int64_t>(terms_.size())) with(Opcode::rem, d.below);
    if (d.by != 1) with(Opcode::mul, d.by);
    if (d.first != 0) with(Opcode::add, d.first);
    return v;
  }

  ir::Kernel& k_;
  const std::vector<int>& uses_;
  const std::vector<RegionId>& region_of_;
  const RegionId region_;
  const OpId last_;
  Value start_;  // none: zeros
  std::vector<Value> terms_;
  std::map<uint32_t, std::vector<Value>> nodes_;         // by the first term's value: those of all terms
  std::set<uint32_t> fixed_;                             // the same in all terms
  std::map<std::pair<uint32_t, size_t>, Digit> starts_;  // by the first term's load and its dim
};

}  // namespace

bool reroll_products(ir::Kernel& k) {
  bool changed = false;
  for (bool again = true; again;) {
    again = false;
    std::vector<int> uses(k.values.size(), 0);
    const std::vector<RegionId> region_of = ir::regions_of_ops(k);
    for (size_t i = 0; i < k.ops.size(); ++i)
      for (Value v : k.ops[i].operands) uses[v.index] += region_of[i] ? 1 : 0;
    // The last sum of each chain comes first.
    for (uint32_t i = static_cast<uint32_t>(k.ops.size()); i-- > 0 && !again;) {
      if (k.ops[i].code != Opcode::add || !region_of[i]) continue;
      Sum sum(k, uses, region_of, region_of[i], OpId{i});
      if (!sum.find()) continue;
      sum.replace();
      passes::dce(k);
      again = changed = true;
    }
  }
  return changed;
}

}  // namespace tessera::lowering
