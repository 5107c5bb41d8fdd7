// Accesses to neighbouring words of shared memory become one of two or four words, where the place is proved aligned:
// the lane level has such accesses of arrays alone (codegen/lane/vectorize.h), and ptxas proves no alignment. Loads
// move up to the first of a vector, and stores down to the last; between them are pure ops alone.
#include <algorithm>

#include "codegen/nvidia/emitter.h"
#include "engine/ir/walk.h"

namespace tessera::nvidia {

using ir::Opcode;

std::pair<std::optional<ir::Value>, int64_t> Emitter::split_index(const ir::Op& op) const {
  const ir::Index& i = op.index.at(0);
  if (i.is_static()) return {std::nullopt, i.start};
  return split_sum(op.operands.at(static_cast<size_t>(i.start_operand)), 0);
}

namespace {
bool is_pure(const ir::Op& op) {
  const ir::Family f = ir::family(op.code);
  return f == ir::Family::elementwise || f == ir::Family::source || f == ir::Family::packed ||
         f == ir::Family::launch || op.code == Opcode::pack;
}
}  // namespace

/// The vectors of one run of accesses, all of one Ref and one kind, with a common index.
void Emitter::join(std::vector<const ir::Op*>& run) {
  std::map<int64_t, const ir::Op*> by_offset;
  for (const ir::Op* o : run) by_offset[split_index(*o).second] = o;
  for (auto it = by_offset.begin(); it != by_offset.end();) {
    size_t n = 1;
    auto end = std::next(it);
    while (end != by_offset.end() && end->first == it->first + static_cast<int64_t>(n) && n < 4) ++n, ++end;
    size_t width = n >= 4 ? 4 : n >= 2 ? 2 : 1;
    while (width > 1 && divisor_of_place(*it->second) % static_cast<int64_t>(width) != 0) width /= 2;
    SharedVector v;
    for (size_t i = 0; i < width; ++i, ++it) v.members.push_back(it->second);
    if (width < 2) continue;
    const auto place = [&](const ir::Op* o) { return std::find(run.begin(), run.end(), o); };
    const auto before = [&](const ir::Op* a, const ir::Op* b) { return place(a) < place(b); };
    const auto [first, last] = std::minmax_element(v.members.begin(), v.members.end(), before);
    v.at = v.members[0]->code == Opcode::load ? *first : *last;
    for (const ir::Op* o : v.members) vector_of_[o] = vectors_.size();
    vectors_.push_back(std::move(v));
  }
  run.clear();
}

void Emitter::find_vectors(ir::RegionId r) {
  std::vector<const ir::Op*> run;
  for (const ir::OpId id : k_.region(r).ops) {
    const ir::Op& o = k_.op(id);
    const bool access = (o.code == Opcode::load || o.code == Opcode::store) && !o.has_mask() && o.index.size() == 1 &&
                        !ir::is_vector_access(o) && k_.type(o.operands.at(0)).space == ir::MemorySpace::shared &&
                        ir::arena_stride(k_.type(o.operands[0]).dtype) == 4;
    if (access) {
      const auto mine = split_index(o);
      const auto joins = [&](const ir::Op* other) {
        const auto its = split_index(*other);
        return other->code == o.code && other->operands[0] == o.operands[0] && its.first == mine.first &&
               its.second != mine.second;
      };
      if (!std::all_of(run.begin(), run.end(), joins)) join(run);
      run.push_back(&o);
    } else if (!is_pure(o)) {
      join(run);
    }
    for (const ir::RegionId inner : o.regions) find_vectors(inner);
  }
  join(run);
}

/// Whether the op is part of a vector, which is written down here at its place.
bool Emitter::emit_in_vector(const ir::Op& op) {
  const auto it = vector_of_.find(&op);
  if (it == vector_of_.end()) return false;
  const SharedVector& v = vectors_[it->second];
  if (v.at != &op) return true;
  const Ref& r = ref(op.operands.at(0));
  const Reg reg = r.dtype == DType::boolean ? Reg::u32 : reg_of(r.dtype);
  std::vector<V> values;
  for (const ir::Op* o : v.members) {
    if (op.code == Opcode::load) values.push_back(f_.fresh(reg));
    else if (const V value = get(o->operands.at(1)); true)
      values.push_back(value.reg == Reg::boolean ? memory_bits(value, r.dtype) : value);
  }
  std::string names;
  for (const V value : values) names += (names.empty() ? "{" : ", ") + f_.in_register(value);
  const std::string type = "shared.v" + std::to_string(values.size()) + "." + bits_type(reg) + " ",
                    place = shared_address(*v.members[0], r);
  if (op.code == Opcode::store) f_.line("st." + type + place + ", " + names + "}");
  else f_.line("ld." + type + names + "}, " + place);
  for (size_t i = 0; op.code == Opcode::load && i < values.size(); ++i)
    set(v.members[i]->results.at(0), r.dtype == DType::boolean ? ne(values[i], 0) : values[i]);
  return true;
}

}  // namespace tessera::nvidia
