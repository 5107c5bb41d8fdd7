#include "codegen/lane/vectorize.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "engine/ir/builder.h"
#include "engine/passes/divisors.h"
#include "engine/passes/memory.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using ir::Value;
using passes::Divisors;
using Residue = Divisors::Residue;

// Loads move up to the first of their vector, and stores down to the last of theirs. So what comes behind a store must
// not touch what it stores, or ends its vector: accesses of one memory are told apart by constant distances from a
// common index, and memories by their classes (engine/passes/memory.h).
class Vectorizer {
 public:
  Vectorizer(ir::Kernel& k, bool pairs, bool shared)
      : k_(k), pairs_(pairs), shared_(shared), divisors_(k), memory_(k) {}

  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  // The index as base + constant, an empty base for a constant.
  std::pair<Value, int64_t> split(const ir::Op& access) const {
    const ir::Index& ix = access.index[0];
    if (ix.is_static()) return {{}, ix.constant()};
    Value v = access.operand_of(ix);
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

  // Where the Ref begins in its array, in elements; in shared memory, in words of that.
  Residue begin(Value ref) {
    const ir::Op* o = k_.def(ref);
    if (!o) return {};  // an argument
    if (o->code == Opcode::alloc_shared) return Residue::of(o->attr(ir::Attr::offset) / kWord);
    if (o->code == Opcode::alloc_program)  // whose memory begins at a multiple of 16 bytes
      return Residue::of(o->attr(ir::Attr::offset) / size_bytes(k_.type(ref).dtype));
    if (o->code != Opcode::view) return {1, 0};
    const Residue outer = begin(o->operands[0]);
    return outer + divisors_.residue(o->operands[1]);
  }

  struct Key {
    uint32_t ref = 0, base = 0;
    int64_t late = 0;  // stores that may land late
    auto operator<=>(const Key&) const = default;
  };
  using Members = std::map<int64_t, ir::OpId>;  // by offset
  // The accesses to one memory that may still become vectors.
  struct Pending {
    std::map<Key, Members> loads, stores;
  };
  // A vector, at the place of one of its members.
  struct Vector {
    ir::OpId at;
    std::vector<ir::OpId> members;
  };

  static constexpr int64_t kWord = 4;  // bytes between elements of shared memory, but for 64-bit ones
  int64_t most_bytes() const { return pairs_ ? 8 : 16; }
  bool is_shared(Value ref) const { return k_.type(ref).space == ir::MemorySpace::shared; }
  // Bytes from one element to the next.
  int64_t distance(Value ref) const {
    const DType t = k_.type(ref).dtype;
    return is_shared(ref) ? ir::arena_stride(t) : size_bytes(t);
  }
  bool candidate(const ir::Op& o) const {
    if (o.code != Opcode::load && !(!pairs_ && o.code == Opcode::store)) return false;
    if (o.index.size() != 1 || !o.index[0].is_integer() || o.has_mask()) return false;
    const int64_t size = distance(o.operands[0]);
    if (is_shared(o.operands[0])) return shared_ && size == kWord;
    return !pairs_ || size == 4;
  }

  void finish(std::map<Key, Members>& groups, bool stores) {
    for (const auto& [key, members] : groups) {
      const ir::Op& first = k_.op(members.begin()->second);
      const Value ref = first.operands[0], base = split(first).first;
      const Residue from = begin(ref), place = base ? from + divisors_.residue(base) : from;
      const int64_t size = distance(ref);
      for (auto it = members.begin(); it != members.end();) {
        const int64_t at = it->first;
        std::vector<ir::OpId> run;
        for (auto j = it; j != members.end() && j->first == at + static_cast<int64_t>(run.size()) &&
                          static_cast<int64_t>(run.size()) * size < most_bytes();
             ++j)
          run.push_back(j->second);
        int64_t width = most_bytes() / size;
        while (width > 1 && (width > static_cast<int64_t>(run.size()) || (place + Residue::of(at)).power() < width))
          width /= 2;
        std::advance(it, std::max<int64_t>(width, 1));
        if (width < 2 || width * size < 4) continue;
        run.resize(static_cast<size_t>(width));
        const auto by_place = [&](ir::OpId a, ir::OpId b) { return place_.at(a.index) < place_.at(b.index); };
        vectors_.push_back({stores ? *std::max_element(run.begin(), run.end(), by_place)
                                   : *std::min_element(run.begin(), run.end(), by_place),
                            run});
      }
    }
    groups.clear();
  }
  void finish(Pending& p) {
    finish(p.loads, false);
    finish(p.stores, true);
  }
  // Whether an access at `offset` from `key` may touch what one of the groups' members does.
  static bool meets(const std::map<Key, Members>& groups, const Key& key, int64_t offset) {
    for (const auto& [other, members] : groups)
      if (!(other == key) || members.count(offset)) return true;
    return false;
  }

  void walk(ir::RegionId r) {
    std::map<uint32_t, Pending> pending;  // by memory
    place_.clear();
    vectors_.clear();
    const auto finish_all = [&] {
      for (auto& [memory, p] : pending) finish(p);
      pending.clear();
    };
    for (size_t i = 0; i < k_.region(r).ops.size(); ++i) {
      const ir::OpId id = k_.region(r).ops[i];
      const ir::Op& o = k_.op(id);
      place_[id.index] = i;
      if (!candidate(o)) {
        if (ir::is_barrier(o.code) || ir::is_tensor_op(o.code) || o.code == Opcode::async_wait || !o.regions.empty())
          finish_all();
        else if (ir::accesses_ref(o.code)) finish(pending[memory_.of(o.operands[0])]);
        else if (ir::is_matrix(o.code))
          for (const Value v : o.operands)
            if (k_.type(v).is_ref) finish(pending[memory_.of(v)]);
        continue;
      }
      const auto [base, offset] = split(o);
      const Key key{o.operands[0].index, base.index, o.attr_or(ir::Attr::late, 0)};
      Pending& p = pending[memory_.of(o.operands[0])];
      if (meets(p.stores, key, offset)) finish(p);
      (o.code == Opcode::load ? p.loads : p.stores)[key].try_emplace(offset, id);
    }
    finish_all();
    if (!vectors_.empty()) rewrite(r);
    const std::vector<ir::OpId> ops = k_.region(r).ops;
    for (ir::OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (ir::RegionId x : inner) walk(x);
    }
  }

  void rewrite(ir::RegionId r) {
    std::unordered_map<uint32_t, const Vector*> of;  // by member
    for (const Vector& v : vectors_)
      for (ir::OpId id : v.members) of[id.index] = &v;
    std::vector<ir::OpId> ops;
    for (ir::OpId id : std::vector(k_.region(r).ops)) {
      const auto it = of.find(id.index);
      if (it == of.end()) ops.push_back(id);
      else if (it->second->at == id) put(*it->second, ops);
    }
    k_.region(r).ops = ops;
    changed_ = true;
  }

  // The members of a vector load keep their result values; the vector defines them all. Its index is the first
  // member's, or made from the shared base where it stands before that.
  void put(const Vector& v, std::vector<ir::OpId>& ops) {
    ir::Op vector = k_.op(v.members[0]);
    const bool load = vector.code == Opcode::load;
    ir::Index& ix = vector.index[0];
    ix = {ir::Index::Slice{ix.start(), static_cast<int64_t>(v.members.size())}};
    if (load && !ix.is_static() && !(v.at == v.members[0])) {
      const auto [base, offset] = split(vector);
      ir::Op c{.code = Opcode::constant};
      c.set(ir::Attr::bits, static_cast<int64_t>(static_cast<uint32_t>(offset)));
      const Value cv = define(c, ops, vector.loc);
      Value at = base;
      if (offset != 0) at = define(ir::Op{.code = Opcode::add, .operands = {base, cv}}, ops, vector.loc);
      vector.operands[*ix.operand()] = at;
    }
    if (load) return define_members(vector, v.members, ops);
    for (size_t i = 1; i < v.members.size(); ++i)
      vector.operands.insert(vector.operands.begin() + 1 + static_cast<std::ptrdiff_t>(i),
                             k_.op(v.members[i]).operands[1]);
    ix.shift(static_cast<ptrdiff_t>(v.members.size()) - 1);
    ops.push_back({static_cast<uint32_t>(k_.ops.size())});
    k_.ops.push_back(std::move(vector));
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
  const bool pairs_;   // of 32-bit loads, and nothing else
  const bool shared_;  // accesses to shared memory too
  bool changed_ = false;
  std::unordered_map<uint32_t, size_t> place_;  // per op of the region
  std::vector<Vector> vectors_;
  Divisors divisors_;
  const passes::MemoryClasses memory_;
};
}  // namespace

bool vectorize(ir::Kernel& k, const Target& target) {
  const bool cpu = target.kind == Target::Kind::cpu;
  return Vectorizer(k, cpu, !target.chip.empty() || (target.shared_vectors && !cpu)).run();
}

}  // namespace tessera::lowering
