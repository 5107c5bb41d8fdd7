// Blocks and the grid. A block that lies inside its array is used where it is; one that hangs over the edge has a private tile, so that its
// overhang is unspecified but keeps what the program stores there, and is written back without it when the grid moves to another block.
#include "engine/interpreter/interpreter.h"

#include <algorithm>

#include "engine/interpreter/machine.h"

namespace tessera {
namespace {
using namespace interpreter;

struct Block {
  const ir::BlockMapping* mapping = nullptr;
  bool written = false;
  int unspecified = 0;              // InterpretOptions::fill
  uint64_t owner = 0;               // of the overhang, anew with each program
  std::byte* base = nullptr;
  int64_t bytes = 0;
  Shape array_shape;
  Strides array_strides;
  Shape shape;                      // of the Ref: block dims without squeezed ones
  Strides view_strides, tile_strides;
  // The block that the current program is on:
  bool entered = false, edge = false;
  std::vector<int64_t> index;
  std::byte* first = nullptr;       // its first element in the array
  Shape inside;                     // how much of `shape` lies in the array
  std::vector<std::byte> tile;      // if edge

  void copy_tile(bool to_array) {
    if (num_elements(inside) == 0) return;
    const size_t rank = shape.size();
    if (to_array) copy_strided(rank, inside.data(), first, view_strides.data(), tile.data(), tile_strides.data(), bytes);
    else copy_strided(rank, inside.data(), tile.data(), tile_strides.data(), first, view_strides.data(), bytes);
  }
  void leave() {
    if (entered && edge && written) copy_tile(true);
    entered = false;
  }
  /// Moves to the block at `wanted`, one index per array dim, which is clamped here.
  void enter(std::vector<int64_t>& wanted, View& view) {
    for (size_t d = 0; d < wanted.size(); ++d) {
      const ir::BlockDim& dim = mapping->block[d];
      const bool squeezed = dim.kind == ir::BlockDim::Kind::squeezed;
      const int64_t count = squeezed ? array_shape[d] : dim.size == 0 ? 1 : cdiv(array_shape[d], dim.size);
      wanted[d] = std::clamp<int64_t>(wanted[d], 0, std::max<int64_t>(count - 1, 0));
    }
    // Overhang is fixed within a program only: where the caller chooses what it holds, it starts anew with each.
    if (entered && wanted == index && !(edge && unspecified != 0)) return;
    leave();
    index = wanted;
    entered = true;
    int64_t offset = 0;
    inside.clear();
    bool any = true;
    edge = false;
    for (size_t d = 0; d < index.size(); ++d) {
      const ir::BlockDim& dim = mapping->block[d];
      const bool squeezed = dim.kind == ir::BlockDim::Kind::squeezed;
      const int64_t size = squeezed ? 1 : dim.size, start = index[d] * size, there = std::clamp<int64_t>(array_shape[d] - start, 0, size);
      edge |= there < size;
      any &= there > 0;
      offset += start * array_strides[d];
      if (!squeezed) inside.push_back(there);
    }
    if (!any) std::fill(inside.begin(), inside.end(), 0);
    first = any ? base + offset * bytes : base;
    if (!edge) {
      view = {first, view_strides.data()};
      return;
    }
    tile.resize(static_cast<size_t>(num_elements(shape) * bytes));
    fill_unspecified(tile.data(), num_elements(shape), mapping->dtype, unspecified, owner);
    if (any) copy_tile(false);
    else if (inside.empty()) inside.assign(1, 0);  // a rank 0 block of an empty array: nothing to copy either way
    view = {tile.data(), tile_strides.data()};
  }
};

std::vector<bool> written_refs(const ir::Kernel& k) {
  std::vector<bool> written(k.region(k.body).args.size(), false);
  for (const ir::Op& op : k.ops)
    if ((op.code == ir::Opcode::store || op.code == ir::Opcode::swap) && !op.operands.empty() && k.value(op.operands[0]).region == k.body)
      written[k.value(op.operands[0]).number] = true;
  return written;
}

int64_t signed_scalar(const Machine& m, const ir::Kernel& k, ir::Value v) {
  const std::byte* p = m.place[v.index];
  return k.type(v).dtype == DType::i64 ? *reinterpret_cast<const int64_t*>(p) : *reinterpret_cast<const int32_t*>(p);
}
}  // namespace

std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options) {
  if (k.level != ir::Level::tile) throw SpecError(k.name + ": the interpreter runs tile-level kernels, and this one is lowered", k.loc);
  size_t rank = k.grid.size();
  for (const ir::BlockMapping& b : k.blocks) rank = std::max(rank, b.array_shape.size());
  if (rank > kMaxRank) throw SpecError(k.name + ": an array or the grid has " + std::to_string(rank) + " dims, and the interpreter handles " + std::to_string(kMaxRank), k.loc);
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  const DimValues dims = bind_dims(k, types, options.dims);
  const std::vector<int64_t> grid = bind_grid(k, dims);
  const std::vector<bool> written = written_refs(k);

  // Arrays: inputs that the kernel stores to are copies of its own.
  std::vector<Array> arrays(inputs);
  uint64_t owners = 0;
  for (int i = k.num_inputs; i < static_cast<int>(k.blocks.size()); ++i) {
    const DType t = k.blocks[static_cast<size_t>(i)].dtype;
    Array a(bind_shape(k, i, dims), t);
    fill_unspecified(a.bytes(), a.size(), t, options.fill, ++owners);
    arrays.push_back(std::move(a));
  }

  std::vector<int32_t> programs;
  for (size_t i = 0; i < grid.size(); ++i)
    if (!k.grid[i].vmapped) programs.push_back(static_cast<int32_t>(grid[i]));
  Machine m = make_machine(k, programs, written, options.fill);

  std::vector<Block> blocks(k.blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& b = blocks[i];
    b.mapping = &k.blocks[i];
    b.written = written[i];
    b.unspecified = options.fill;
    b.bytes = size_bytes(b.mapping->dtype);
    b.array_shape = arrays[i].shape();
    b.array_strides = dense_strides(b.array_shape);
    b.base = written[i] ? arrays[i].bytes() : const_cast<std::byte*>(std::as_const(arrays[i]).bytes());
    if (b.mapping->whole) {
      m.views[i] = {b.base, b.array_strides.data()};
      continue;
    }
    for (size_t d = 0; d < b.mapping->block.size(); ++d)
      if (b.mapping->block[d].kind == ir::BlockDim::Kind::blocked) {
        b.shape.push_back(b.mapping->block[d].size);
        b.view_strides.push_back(b.array_strides[d]);
      }
    b.tile_strides = dense_strides(b.shape);
  }

  std::vector<std::vector<std::byte>> scratch;
  std::vector<Strides> scratch_strides;
  for (const ir::Type& t : k.scratch) {
    scratch.emplace_back(static_cast<size_t>(num_elements(t.shape) * size_bytes(t.dtype)));
    scratch_strides.push_back(dense_strides(t.shape));
  }
  const auto forget_scratch = [&] {
    for (size_t i = 0; i < scratch.size(); ++i) fill_unspecified(scratch[i].data(), num_elements(k.scratch[i].shape), k.scratch[i].dtype, options.fill, ++owners);
  };
  for (size_t i = 0; i < scratch.size(); ++i) m.views[blocks.size() + i] = {scratch[i].data(), scratch_strides[i].data()};
  forget_scratch();

  std::vector<int64_t> wanted, vmapped, last_vmapped;
  for_each_index(grid.size(), grid.data(), [&](const int64_t* program) {
    vmapped.clear();
    for (size_t d = 0, visible = 0; d < grid.size(); ++d) {
      if (k.grid[d].vmapped) vmapped.push_back(program[d]);
      else m.program[visible++] = static_cast<int32_t>(program[d]);
    }
    if (vmapped != last_vmapped) {  // every element of a batch starts with its own scratch
      forget_scratch();
      last_vmapped = vmapped;
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& b = blocks[i];
      if (b.mapping->whole) continue;
      const ir::Region& map = k.region(b.mapping->index_map);
      for (size_t d = 0; d < grid.size(); ++d) *reinterpret_cast<int32_t*>(m.place[map.args[d].index]) = static_cast<int32_t>(program[d]);
      m.run(b.mapping->index_map);
      wanted.clear();
      for (ir::Value v : k.terminator(b.mapping->index_map).operands) wanted.push_back(signed_scalar(m, k, v));
      b.owner = ++owners;
      b.enter(wanted, m.views[i]);
    }
    m.run(k.body);
  });
  for (Block& b : blocks) b.leave();
  arrays.erase(arrays.begin(), arrays.begin() + k.num_inputs);
  return arrays;
}

}  // namespace tessera
