// What a TPU cannot do with the blocks of a kernel, found before anything is emitted: dtypes, alignment, blocks that
// come back after others, aliases of other blocks, and too much VMEM.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "codegen/tpu/emitter.h"
#include "codegen/tpu/mosaic.h"
#include "engine/base/error.h"
#include "engine/passes/programs.h"

namespace tessera::tpu {
namespace {
using ir::BlockDim;
using ir::BlockMapping;
using ir::MemorySpace;

[[noreturn]] void fail(const ir::Kernel& k, const Chip& chip, const std::string& place, Loc loc,
                       const std::string& what, const std::string& note = "") {
  throw CompileError(k.name + ": " + place + ": target tpu:" + std::string(chip.name) + ": " + what, loc ? loc : k.loc,
                     note);
}

std::string block_text(const BlockMapping& b) {
  std::string s = "(";
  for (size_t d = 0; d < b.block().size(); ++d) s += (d ? ", " : "") + ir::to_string(b.block()[d]);
  return "block " + s + ") of array " + to_string(b.array_shape);
}

// Lanes and sublanes: the last two sizes of a block are multiples of 128 and 8, or the array's.
void check_alignment(const ir::Kernel& k, const Chip& chip, const BlockMapping& b) {
  const size_t rank = b.block().size();
  if (!chip.limits || b.space == MemorySpace::smem || rank == 0) return;
  const auto fits = [&](size_t d, int64_t multiple) {
    return b.block()[d].size() == *b.array_shape[d].value() || b.block()[d].size() % multiple == 0;
  };
  if (rank == 1) {
    const int64_t size = b.block()[0].size(), least = 128 * (32 / std::max(bits(stored(b.dtype)), 1));
    const bool power = size >= least && (size & (size - 1)) == 0;
    if (!fits(0, 1024) && !power)
      fail(k, chip, b.origin, b.loc, block_text(b) + " is not aligned",
           "of one dim, its size must be the array's, a multiple of 1024, or a power of two and at least " +
               std::to_string(least));
    return;
  }
  if (!fits(rank - 1, 128) || !fits(rank - 2, 8))
    fail(k, chip, b.origin, b.loc, block_text(b) + " is not aligned",
         "its last two sizes must be multiples of 8 and 128, or those of the array");
}

void check_block(const ir::Kernel& k, const Chip& chip, int i) {
  const BlockMapping& b = k.blocks[static_cast<size_t>(i)];
  if (const std::string why = lacks(chip, b.dtype); !why.empty()) fail(k, chip, b.origin, b.loc, why);
  for (const Extent& e : b.array_shape)
    if (*e.value() == 0) fail(k, chip, b.origin, b.loc, "it has no arrays of no elements");
  if (i < k.num_prefetch && !b.is_whole())
    fail(k, chip, b.origin, b.loc, "it takes scalar-prefetch operands whole", "call the kernel without vmap over them");
  if (b.is_whole()) return;
  for (const BlockDim& d : b.block())
    if (d.is_bounded()) fail(k, chip, b.origin, b.loc, "its blocks have fixed sizes, but this is " + block_text(b));
  if (k.has_halo(i))
    fail(k, chip, b.origin, b.loc, "its blocks do not go beyond the array's edges, but this is " + block_text(b),
         "pad the array before the call, and give Element blocks of it");
  for (size_t d = 0; d < b.block().size(); ++d)
    if (b.block()[d].low() + *b.array_shape[d].value() + b.block()[d].high() + b.block()[d].size() > INT32_MAX)
      fail(k, chip, b.origin, b.loc, block_text(b) + " has positions beyond 32 bits");
  check_alignment(k, chip, b);
}

// A TPU's compiler writes an output's block when the next program has another one, and never fetches it again: a block
// that comes back would lose what it held.
void check_revisits(const ir::Kernel& k, const Chip& chip, int i) {
  const BlockMapping& b = k.blocks[static_cast<size_t>(i)];
  if (b.is_whole() || k.grid.empty()) return;
  constexpr int64_t kMostPrograms = int64_t{1} << 18;
  std::vector<int64_t> grid, before;
  for (const ir::GridAxis& a : k.grid) grid.push_back(*a.size.value());
  passes::Programs programs(k, std::move(grid));
  if (programs.count() > kMostPrograms) return;
  std::set<std::vector<int64_t>> seen;
  programs.each([&] {
    const auto given = programs.map(b);
    if (!given) return false;  // data decides
    std::vector<int64_t> index;
    for (size_t d = 0; d < b.block().size(); ++d) {
      const int64_t last = std::max<int64_t>(*ir::last_index(b.block()[d], b.array_shape[d]).value(), 0);
      index.push_back(ir::block_index(b.block()[d], (*given)[k.map_result(i, d)], last));
    }
    if (index != before && !seen.insert(index).second)
      fail(
          k, chip, b.origin, b.loc,
          "block " + to_string(index) + " comes back after other blocks, with program " + to_string(programs.program()),
          "programs with one block of an output must follow one another: put the axes that it depends on first");
    before = std::move(index);
    return true;
  });
}

bool same_blocks(const ir::Kernel& k, const BlockMapping& a, const BlockMapping& b) {
  if (a.is_whole() != b.is_whole()) return false;
  if (a.is_whole()) return true;
  if (a.block() != b.block()) return false;
  const std::vector<ir::Value>&x = k.terminator(a.index_map()).operands, &y = k.terminator(b.index_map()).operands;
  for (size_t i = 0; i < x.size(); ++i) {
    const ir::ValueInfo &u = k.value(x[i]), &v = k.value(y[i]);
    const std::optional<int64_t> cu = ir::constant_int(k, x[i]), cv = ir::constant_int(k, y[i]);
    if (cu && cu == cv) continue;
    if (u.def || v.def || u.number != v.number) return false;
  }
  return true;
}

void check_aliases(const ir::Kernel& k, const Chip& chip, int o) {
  const BlockMapping& b = k.blocks[static_cast<size_t>(o)];
  if (b.alias < 0) return;
  const BlockMapping& a = k.blocks[static_cast<size_t>(b.alias)];
  if (stays_in_hbm(k, o) != stays_in_hbm(k, b.alias) || !same_blocks(k, a, b))
    fail(k, chip, b.origin, b.loc, "it is aliased with " + a.origin + ", whose blocks are others",
         "a TPU fetches no output: give both the same block and an index map of the grid's axes alone");
}

// ---- VMEM

struct User {
  std::string name;
  int64_t bytes;
};

// Of a buffer in VMEM: tiles of 8 x 128 words.
int64_t padded_bytes(DType t, Shape shape) {
  const int64_t packing = std::max<int64_t>(32 / bits(stored(t)), 1);
  if (shape.size() < 2) shape.insert(shape.begin(), 1);
  int64_t n = 1;
  for (size_t d = 0; d + 2 < shape.size(); ++d) n *= shape[d];
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  return n * cdiv(rows, 8 * packing) * cdiv(columns, 128) * 8 * 128 * 4;
}

void check_vmem(const ir::Kernel& k, const Chip& chip) {
  if (chip.vmem_bytes == 0) return;
  std::vector<User> users;
  int64_t all = 0;
  const auto add = [&](const std::string& name, int64_t bytes) {
    users.push_back({name, bytes});
    all += bytes;
  };
  for (int i = k.num_prefetch; i < static_cast<int>(k.blocks.size()); ++i) {
    const BlockMapping& b = k.blocks[static_cast<size_t>(i)];
    if (stays_in_hbm(k, i) || b.space == MemorySpace::smem) continue;
    const bool once = k.grid.empty() || is_trivial(k, i) || b.buffering.count == 1;
    const Shape shape = memory_shape(k, i);
    add(b.origin + "  " + ir::to_string(ir::Type::array(b.dtype, shape)) + (once ? "" : " x 2 buffers"),
        padded_bytes(b.dtype, shape) * (once ? 1 : 2));
  }
  const auto add_scratch = [&](const std::string& name, const ir::Type& t) {
    if (!ir::is_semaphore(t.space) && t.space != MemorySpace::smem)
      add(name + "  " + ir::to_string(ir::Type::array(t.dtype, t.shape)), padded_bytes(t.dtype, t.shape));
  };
  for (size_t i = 0; i < k.scratch.size(); ++i) add_scratch("scratch_shapes[" + std::to_string(i) + "]", k.scratch[i]);
  for (const ir::Value v : ir::scoped_refs(k)) add_scratch("run_scoped", k.type(v));
  if (all <= chip.vmem_bytes) return;
  std::stable_sort(users.begin(), users.end(), [](const User& a, const User& b) { return a.bytes > b.bytes; });
  std::string table = "who uses it:";
  for (const User& u : users) table += "\n    " + std::to_string(u.bytes) + " B  " + u.name;
  throw CompileError(k.name + ": VMEM: needs " + std::to_string(all) + " bytes, tpu:" + std::string(chip.name) +
                         " has " + std::to_string(chip.vmem_bytes),
                     k.loc, table);
}
}  // namespace

void check(const ir::Kernel& k, const Chip& chip) {
  for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) {
    check_block(k, chip, i);
    if (!k.is_output(i) && k.is_stored(i) && !stays_in_hbm(k, i))
      fail(k, chip, k.blocks[static_cast<size_t>(i)].origin, k.blocks[static_cast<size_t>(i)].loc,
           "the kernel stores to this input, which a TPU does not write back", "alias it with an output");
    if (k.is_output(i)) check_revisits(k, chip, i), check_aliases(k, chip, i);
  }
  for (size_t i = 0; i < k.scratch.size(); ++i)
    if (const std::string why = ir::is_semaphore(k.scratch[i].space) ? "" : lacks(chip, k.scratch[i].dtype);
        !why.empty())
      fail(k, chip, "scratch_shapes[" + std::to_string(i) + "]", k.loc, why);
  check_vmem(k, chip);
}

}  // namespace tessera::tpu
