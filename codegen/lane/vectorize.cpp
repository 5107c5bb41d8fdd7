#include "codegen/lane/vectorize.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "engine/ir/builder.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using ir::Value;

class Vectorizer {
 public:
  Vectorizer(ir::Kernel& k, int width) : k_(k), width_(width) {
    for (uint32_t i = 0; i < k.ops.size(); ++i)
      if (k.ops[i].code == Opcode::for_) loop_of_iv_[k.region(k.ops[i].regions[0]).args[0].index] = i;
  }

  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  // The index as base + constant, an empty base for a constant.
  std::pair<Value, int64_t> split(const ir::Op& load) const {
    const ir::Index& ix = load.index[0];
    if (ix.is_static()) return {{}, ix.start};
    Value v = load.operands[static_cast<size_t>(ix.start_operand)];
    int64_t offset = 0;
    for (const ir::Op* o = k_.def(v); o && o->code == Opcode::add; o = k_.def(v)) {
      if (const auto c = ir::constant_int(k_, o->operands[1])) {
        offset += *c;
        v = o->operands[0];
      } else if (const auto d = ir::constant_int(k_, o->operands[0])) {
        offset += *d;
        v = o->operands[1];
      } else break;
    }
    return {v, offset};
  }

  // A power of two, at most 4, that divides an integer value.
  int64_t divisor(Value v) {
    const auto it = divisors_.find(v.index);
    if (it != divisors_.end()) return it->second;
    divisors_[v.index] = 1;
    return divisors_[v.index] = compute_divisor(v);
  }
  static int64_t power(int64_t c) { return c % 4 == 0 ? 4 : c % 2 == 0 ? 2 : 1; }
  int64_t compute_divisor(Value v) {
    if (const auto c = ir::constant_int(k_, v)) return power(*c);
    if (const auto it = loop_of_iv_.find(v.index); it != loop_of_iv_.end()) {
      const ir::Op& loop = k_.ops[it->second];
      return std::min(divisor(loop.operands[0]), divisor(loop.operands[2]));
    }
    const ir::Op* o = k_.def(v);
    if (!o || o->operands.empty()) return 1;
    const auto is = [&](Opcode c) { return o->code == c; };
    if (is(Opcode::add) || is(Opcode::sub) || is(Opcode::min) || is(Opcode::max))
      return std::min(divisor(o->operands[0]), divisor(o->operands[1]));
    if (is(Opcode::mul)) return std::min<int64_t>(4, divisor(o->operands[0]) * divisor(o->operands[1]));
    if (is(Opcode::convert)) return is_float(k_.type(o->operands[0]).dtype) ? 1 : divisor(o->operands[0]);
    if (is(Opcode::select)) return std::min(divisor(o->operands[1]), divisor(o->operands[2]));
    if (is(Opcode::shift_left)) {
      const auto c = ir::constant_int(k_, o->operands[1]);
      return c && *c >= 1 ? std::min<int64_t>(4, divisor(o->operands[0]) << std::min<int64_t>(*c, 2)) : 1;
    }
    return 1;
  }
  int64_t ref_divisor(Value ref) {
    const ir::Op* o = k_.def(ref);
    if (!o) return 4;  // an argument
    return o->code == Opcode::view ? std::min(ref_divisor(o->operands[0]), divisor(o->operands[1])) : 1;
  }

  void walk(ir::RegionId r) {
    using Key = std::pair<uint32_t, uint32_t>;  // ref, base
    std::map<Key, std::map<int64_t, ir::OpId>> group;
    std::unordered_map<uint32_t, std::vector<ir::OpId>> replaced;  // op -> its vector's members
    auto flush = [&] {
      for (auto& [key, loads] : group) {
        const ir::Op& first = k_.op(loads.begin()->second);
        const Value ref = first.operands[0], base = split(first).first;
        const int64_t known = std::min(ref_divisor(ref), base ? divisor(base) : 4);
        for (auto it = loads.begin(); it != loads.end();) {
          std::vector<ir::OpId> members;
          const int64_t at = it->first;
          for (auto j = it; j != loads.end() && j->first == at + static_cast<int64_t>(members.size()) &&
                            static_cast<int>(members.size()) < width_;
               ++j)
            members.push_back(j->second);
          if (static_cast<int>(members.size()) == width_ && known % width_ == 0 && at % width_ == 0) {
            // The earliest of them in program order becomes the vector load.
            for (ir::OpId id : members) replaced[id.index] = members;
            std::advance(it, width_);
          } else {
            ++it;
          }
        }
      }
      group.clear();
    };
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (o.code == Opcode::load && o.index.size() == 1 && o.index[0].kind == ir::Index::Kind::integer &&
          !o.has_mask() && k_.type(o.operands[0]).space == ir::MemorySpace::global &&
          size_bytes(k_.type(o.operands[0]).dtype) == 4) {
        const auto [base, offset] = split(o);
        group[{o.operands[0].index, base.index}].try_emplace(offset, id);
      } else if (ir::writes_ref(o.code) || o.code == Opcode::barrier || !o.regions.empty()) {
        flush();
      }
    }
    flush();
    if (!replaced.empty()) rewrite(r, replaced);
    const std::vector<ir::OpId> ops = k_.region(r).ops;
    for (ir::OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (ir::RegionId x : inner) walk(x);
    }
  }

  void rewrite(ir::RegionId r, const std::unordered_map<uint32_t, std::vector<ir::OpId>>& replaced) {
    std::vector<ir::OpId> ops;
    std::unordered_map<uint32_t, bool> done;
    for (ir::OpId id : k_.region(r).ops) {
      const auto it = replaced.find(id.index);
      if (it == replaced.end()) {
        ops.push_back(id);
        continue;
      }
      const std::vector<ir::OpId>& members = it->second;
      if (done[members[0].index]) continue;
      done[members[0].index] = true;
      // The members keep their result values; the vector load defines them all. Its index is the first member's, or
      // made from this one's.
      ir::Op vector = k_.op(members[0]);
      ir::Index& ix = vector.index[0];
      ix.kind = ir::Index::Kind::slice;
      ix.size = width_;
      if (!ix.is_static() && !(id == members[0])) {
        // An address computed later than this load cannot be used here: form it anew from the shared base.
        const auto [base, offset] = split(k_.op(members[0]));
        ir::Op c{.code = Opcode::constant};
        c.set(ir::Attr::bits, static_cast<int64_t>(static_cast<uint32_t>(offset)));
        const Value cv = define(c, ops, vector.loc);
        Value at = base;
        if (offset != 0) at = define(ir::Op{.code = Opcode::add, .operands = {base, cv}}, ops, vector.loc);
        vector.operands[static_cast<size_t>(ix.start_operand)] = at;
      }
      define_members(vector, members, ops);
    }
    k_.region(r).ops = ops;
    changed_ = true;
  }

  Value define(ir::Op op, std::vector<ir::OpId>& ops, Loc loc) {
    const ir::OpId id{static_cast<uint32_t>(k_.ops.size())};
    const Value v{static_cast<uint32_t>(k_.values.size())};
    op.loc = loc;
    op.results = {v};
    k_.values.push_back({ir::Type::array(DType::i32), id, {}, 0});
    k_.ops.push_back(std::move(op));
    ops.push_back(id);
    return v;
  }

  void define_members(ir::Op vector, const std::vector<ir::OpId>& members, std::vector<ir::OpId>& ops) {
    const ir::OpId id{static_cast<uint32_t>(k_.ops.size())};
    vector.results.clear();
    for (size_t i = 0; i < members.size(); ++i) {
      const Value v = k_.op(members[i]).results[0];
      k_.values[v.index].def = id;
      k_.values[v.index].number = static_cast<uint32_t>(i);
      vector.results.push_back(v);
      k_.op(members[i]).results.clear();
    }
    k_.ops.push_back(std::move(vector));
    ops.push_back(id);
  }

  ir::Kernel& k_;
  int width_;
  bool changed_ = false;
  std::unordered_map<uint32_t, int64_t> divisors_;
  std::unordered_map<uint32_t, uint32_t> loop_of_iv_;
};
}  // namespace

bool vectorize_loads(ir::Kernel& k, int width) { return Vectorizer(k, width).run(); }

}  // namespace tessera::lowering
