#include "codegen/tile/unfold.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "codegen/plan/affine.h"
#include "codegen/plan/parallel.h"
#include "engine/ir/builder.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Index;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Value;

namespace {

// The dims of `parts` from `dim` on that this dim of `whole` is made of, where all others are the same.
struct Merged {
  size_t dim = 0;
  Shape sizes;
};

std::optional<Merged> merged(const Shape& whole, const Shape& parts) {
  if (parts.size() <= whole.size()) return std::nullopt;
  const size_t more = parts.size() - whole.size();
  for (size_t d = 0; d < whole.size(); ++d) {
    const auto first = parts.begin() + static_cast<std::ptrdiff_t>(d),
               end = first + static_cast<std::ptrdiff_t>(more + 1);
    const Merged m{d, Shape(first, end)};
    if (whole[d] > 1 && num_elements(m.sizes) == whole[d] && std::equal(parts.begin(), first, whole.begin()) &&
        std::equal(end, parts.end(), whole.begin() + static_cast<std::ptrdiff_t>(d + 1)))
      return m;
  }
  return std::nullopt;
}

class Unfolding {
 public:
  explicit Unfolding(ir::Kernel& k) : k_(k), b_(k) {}

  bool run() {
    for (uint32_t r = 0; r < k_.regions.size(); ++r) region({r});
    return changed_;
  }

 private:
  void region(RegionId r) {
    count_uses();
    const std::vector<OpId> ops = k_.region(r).ops;
    k_.region(r).ops.clear();
    b_.set_region(r);
    for (OpId id : ops) {
      b_.set_loc(k_.op(id).loc);
      const size_t made = k_.region(r).ops.size();
      const bool before = std::exchange(changed_, false);
      if (k_.op(id).code == Opcode::load) load(id);
      if (k_.op(id).code == Opcode::store) store(id);
      if (!changed_) k_.region(r).ops.resize(made);  // what was made for an access that stays as it is
      changed_ = changed_ || before;
      k_.region(r).ops.push_back(id);
    }
  }
  void count_uses() {
    users_.assign(k_.values.size(), {});
    for (const ir::Region& r : k_.regions)
      for (OpId id : r.ops)
        for (Value v : k_.op(id).operands) users_[v.index].push_back(id);
  }
  // The only user of v, or none.
  const Op* only_user(Value v) const { return users_[v.index].size() == 1 ? &k_.op(users_[v.index][0]) : nullptr; }

  // Puts a load by arrays before the load that a reshape merges for products.
  void load(OpId id) {
    const Value v = k_.op(id).results[0];
    if (v.index >= users_.size()) return;
    const Op* reshape = only_user(v);
    if (!reshape || reshape->code != Opcode::reshape) return;
    const Value whole = reshape->results[0];
    const std::vector<OpId>& users = users_[whole.index];
    if (users.empty() || !std::all_of(users.begin(), users.end(), [&](OpId u) {
          const Op& o = k_.op(u);
          return o.code == Opcode::dot && (o.operands.size() < 3 || o.operands[2] != whole);
        }))
      return;
    const auto m = merged(k_.type(whole).shape, k_.type(v).shape);
    if (!m || !all_inside(k_.op(id))) return;
    Op o = k_.op(id);
    o.results.clear();
    by_arrays(o, *m);
    const ir::Type type = k_.type(whole);
    if (!in_place_of(o, *m) || ir::infer(k_, o, type)[0] != type) return;
    const Value loaded = b_.one(std::move(o), type);
    for (Op& user : k_.ops)
      for (Value& operand : user.operands)
        if (operand == whole) operand = loaded;
    changed_ = true;
  }

  void store(OpId id) {
    const Op before = k_.op(id);
    const Value v = before.operands[1];
    // What is done to each element of the reshape may be done before it.
    std::vector<OpId> behind;
    Value shaped = v;
    for (const Op* o = k_.def(shaped); o && ir::is_elementwise(o->code) && o->operands.size() == 1 && only_user(shaped);
         o = k_.def(shaped)) {
      behind.push_back(k_.value(shaped).def);
      shaped = o->operands[0];
    }
    const Op* reshape = k_.def(shaped);
    if (!reshape || reshape->code != Opcode::reshape || !only_user(shaped) || read(before.operands[0])) return;
    Value whole = reshape->operands[0];
    const auto m = merged(k_.type(whole).shape, k_.type(v).shape);
    if (!m || !all_inside(before) || !of_product(whole)) return;
    for (auto op = behind.rbegin(); op != behind.rend(); ++op) {
      Op before_it = k_.op(*op);
      const ir::Type type = ir::Type::array(k_.type(before_it.results[0]).dtype, k_.type(whole).shape);
      before_it.operands = {whole};
      before_it.results.clear();
      whole = b_.one(std::move(before_it), type);
    }
    Op o = before;
    o.operands[1] = whole;
    o.set(ir::Attr::unordered, 1);
    by_arrays(o, *m);
    if (!in_place_of(o, *m) || ir::access_dims(k_, o).shape != k_.type(whole).shape) return;
    k_.ops[id.index] = std::move(o);
    changed_ = true;
  }

  // Whether the index arrays make the merged dim where it was: an integer before a slice moves their dim to the front.
  bool in_place_of(const Op& access, const Merged& m) const {
    const ir::AccessDims dims = ir::access_dims(k_, access);
    return dims.array_at == m.dim && dims.array_rank == 1;
  }

  // What is read may live in registers, which whole accesses alone find; so may scratch.
  bool read(Value ref) const {
    const int at = ref_position(k_, ref);
    if (at < 0 || static_cast<size_t>(at) >= k_.blocks.size() || k_.def(ref)) return true;
    return std::any_of(users_[ref.index].begin(), users_[ref.index].end(),
                       [&](OpId u) { return ir::reads_ref(k_.op(u).code); });
  }
  // Made by a product, or carried by a loop, with elementwise ops behind.
  bool of_product(Value v) const {
    std::set<uint32_t> seen;
    bool found = false;
    ir::walk_back(k_, v, seen, [&](Value x, std::vector<Value>& next) {
      const Op* o = k_.def(x);
      if (!o) return true;
      found = found || o->code == Opcode::dot || o->code == Opcode::for_;
      if (ir::is_elementwise(o->code)) next.insert(next.end(), o->operands.begin(), o->operands.end());
      return !found;
    });
    return found;
  }

  bool all_inside(const Op& o) const {
    if (o.has_mask() || (o.code == Opcode::store && o.attr_or(ir::Attr::unordered, 0))) return false;
    ScalarAnalysis scalars(k_);
    for (size_t d = 0; d < o.index.size(); ++d) {
      const Index& ix = o.index[d];
      if (ix.is_array()) return false;
      if (ix.is_static()) continue;
      const Range known = scalars.range(o.operand_of(ix));
      const int64_t span = std::max<int64_t>(ix.as_slice().span() - 1, 0);
      if (known.lo < 0 || known.hi + span >= k_.type(o.operands[0]).shape[d]) return false;
    }
    return true;
  }

  // The index of an access to the parts of a merged dim, by arrays along that dim.
  void by_arrays(Op& o, const Merged& m) {
    const int64_t n = num_elements(m.sizes);
    const ir::AccessDims form = ir::access_dims(k_, o);
    const auto with = [&](Opcode c, Value x, int64_t number) {
      const Value y = b_.constant_int(DType::i32, number, {n});
      return b_.elementwise(c, {x, y});
    };
    Op iota{.code = Opcode::iota};
    iota.set(ir::Attr::axis, 0);
    const Value position = b_.one(std::move(iota), ir::Type::array(DType::i32, {n}));
    int64_t inner = n;
    for (size_t part = 0; part < m.sizes.size(); ++part) {
      inner /= m.sizes[part];
      const auto at = std::find(form.slice.begin(), form.slice.end(), static_cast<int>(m.dim + part));
      const auto d = static_cast<size_t>(at - form.slice.begin());
      Index& ix = o.index[d];
      Value p = position;
      if (inner > 1) p = with(Opcode::div, p, inner);
      if (part > 0) p = with(Opcode::rem, p, m.sizes[part]);
      if (const int64_t step = ix.slice()->step; step != 1) p = with(Opcode::mul, p, step);
      if (ix.is_static()) {
        if (ix.constant() != 0) p = with(Opcode::add, p, ix.constant());
        ix = Index::array(o.operands.size());
        o.operands.push_back(p);
      } else {
        const Value start = b_.broadcast(o.operand_of(ix), {n}, {});
        ix = Index::array(*ix.operand());
        o.operands[*ix.operand()] = b_.elementwise(Opcode::add, {p, start});
      }
    }
  }

  ir::Kernel& k_;
  ir::Builder b_;
  std::vector<std::vector<OpId>> users_;
  bool changed_ = false;
};

}  // namespace

bool unfold_reshapes(ir::Kernel& k) { return Unfolding(k).run(); }

}  // namespace tessera::lowering
