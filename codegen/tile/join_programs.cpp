#include "codegen/tile/join_programs.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/ir/builder.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::BlockDim;
using ir::BlockMapping;
using ir::Index;
using ir::Op;
using ir::Opcode;
using ir::Value;

bool depends_on(const ir::Kernel& k, Value v, Value on) {
  std::set<uint32_t> seen;
  return !ir::walk_back(k, v, seen, [&](Value x, std::vector<Value>& next) {
    const Op* o = k.def(x);
    if (o) next.insert(next.end(), o->operands.begin(), o->operands.end());
    return !(x == on) && (!o || o->regions.empty());
  });
}

// Which dim of the block is the axis' program, or -1: none; nothing: it depends on it otherwise.
std::optional<int> dim_along(const ir::Kernel& k, int block, size_t axis) {
  const BlockMapping& m = k.blocks[static_cast<size_t>(block)];
  if (m.is_whole()) return -1;
  const Value id = k.region(m.index_map()).args[axis];
  const int64_t programs = *k.grid[axis].size.value();
  int found = -1;
  for (size_t d = 0; d < m.block().size(); ++d)
    for (size_t r = 0; r < m.block()[d].results(); ++r) {
      const Value v = k.terminator(m.index_map()).operands[k.map_result(block, d) + r];
      if (v == id && found < 0 && m.block()[d].is_blocked() &&
          m.array_shape[d].value() == programs * m.block()[d].size())
        found = static_cast<int>(d);
      else if (depends_on(k, v, id)) return std::nullopt;
    }
  return found;
}
// Of the Ref, which lacks squeezed dims.
size_t ref_dim(const BlockMapping& m, int d) {
  return static_cast<size_t>(
      std::count_if(m.block().begin(), m.block().begin() + d, [](const BlockDim& x) { return x.seen(); }));
}

bool joinable(const ir::Kernel& k, const Op& o, size_t axis) {
  if (!o.regions.empty() || o.code == Opcode::program_id || o.code == Opcode::num_programs || ir::is_print(o.code))
    return false;
  // After lower_async only accesses have Refs, as their first operand.
  const uint32_t ref = ir::accesses_ref(o.code) ? k.ref_position(o.operands[0]) : UINT32_MAX;
  if (ref >= k.blocks.size()) return true;
  const int d = *dim_along(k, static_cast<int>(ref), axis);
  if (d < 0) return true;
  const Index& ix = o.index[ref_dim(k.blocks[ref], d)];
  return ix.is_static();
}
}  // namespace

bool may_join_programs(const ir::Kernel& k, size_t axis) {
  if (k.has_threads() || k.num_prefetch > 0 || !k.grid[axis].size.value()) return false;
  for (size_t i = 0; i < k.blocks.size(); ++i)
    if (!dim_along(k, static_cast<int>(i), axis)) return false;
  const std::vector<ir::OpId>& ops = k.region(k.body).ops;
  return std::all_of(ops.begin(), ops.end(), [&](ir::OpId id) { return joinable(k, k.op(id), axis); });
}

bool moves_along(const ir::Kernel& k, size_t block, size_t axis) {
  return *dim_along(k, static_cast<int>(block), axis) >= 0;
}

void join_programs(ir::Kernel& k, size_t axis, int64_t count, const std::set<uint32_t>& before,
                   const std::set<uint32_t>& after) {
  const int64_t programs = *k.grid[axis].size.value();
  if (programs % count != 0) throw InternalError(k.name + ": programs that cannot be joined");
  std::vector<int> along;
  for (size_t i = 0; i < k.blocks.size(); ++i) along.push_back(*dim_along(k, static_cast<int>(i), axis));
  const std::vector<ir::OpId> ops = std::exchange(k.region(k.body).ops, {});
  const auto put = [&](ir::RegionId r, const std::set<uint32_t>& which) {
    for (const ir::OpId id : ops)
      if (which.count(id.index)) k.region(r).ops.push_back(id);
  };
  ir::Builder b(k);
  b.set_region(k.body);
  put(k.body, before);
  const auto i32 = [&](int64_t n) { return b.constant_int(DType::i32, n); };
  const Value none = i32(0), all = i32(count), one = i32(1);
  b.for_loop(none, all, one, {}, [&](Value program, const std::vector<Value>&) {
    std::vector<Value> begin(k.blocks.size());  // of the program's part of a block
    for (size_t i = 0; i < k.blocks.size(); ++i)
      if (along[i] >= 0)
        begin[i] =
            b.elementwise(Opcode::mul, {program, i32(k.blocks[i].block()[static_cast<size_t>(along[i])].size())});
    for (const ir::OpId id : ops) {
      if (before.count(id.index) || after.count(id.index) || k.op(id).code == Opcode::yield) continue;
      const uint32_t ref = ir::accesses_ref(k.op(id).code) ? k.ref_position(k.op(id).operands[0]) : UINT32_MAX;
      if (ref < k.blocks.size() && along[ref] >= 0) {
        const size_t d = ref_dim(k.blocks[ref], along[ref]);
        const int64_t start = k.op(id).index[d].constant();
        const Value at = start == 0 ? begin[ref] : b.elementwise(Opcode::add, {begin[ref], i32(start)});
        Op& o = k.op(id);
        o.index[d].start() = Index::Dynamic{o.operands.size()};
        o.operands.push_back(at);
      }
      k.region(b.region()).ops.push_back(id);
    }
    return std::vector<Value>{};
  });
  put(k.body, after);
  k.region(k.body).ops.push_back(ops.back());
  k.grid[axis].size = programs / count;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    if (along[i] < 0) continue;
    BlockDim& dim = k.blocks[i].block()[static_cast<size_t>(along[i])];
    dim = {BlockDim::Blocked{dim.size() * count}};
    k.values[k.region(k.body).args[i].index].type = k.block_ref_type(static_cast<int>(i));
  }
}

}  // namespace tessera::lowering
