// Blocks and the grid. A block that lies inside its array is used where it is; one that hangs over the edge has a private tile, so that its
// overhang is unspecified but keeps what the program stores there, and is written back without it when the grid moves to another block.
#include "engine/interpreter/interpreter.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/interpreter/machine.h"
#include "engine/interpreter/pipes.h"
#include "engine/interpreter/plans.h"

namespace tessera {
namespace {
using namespace interpreter;

struct Block {
  const ir::BlockMapping* mapping = nullptr;
  bool written = false;
  bool snapshot = false;            // an aliased input: a copy of what the block holds when a program starts
  int unspecified = 0;              // of unspecified_bits
  uint64_t owner = 0;               // of the overhang, anew with each program
  std::byte* base = nullptr;
  int64_t bytes = 0;
  Shape array_shape;
  Strides array_strides;
  Shape shape;                      // of the Ref: block dims without squeezed ones
  Strides view_strides, tile_strides;
  std::vector<int64_t> last;        // per dim, the largest index
  // The block that the current program is on:
  bool entered = false, edge = false;
  std::vector<int64_t> index;       // what the index map gave, clamped
  std::byte* first = nullptr;       // its first element in the array
  Shape below, inside;              // per dim of the Ref: positions before the array, and behind those how many lie in it
  std::vector<std::byte> tile;      // if edge

  void copy_tile(bool to_array) {
    if (num_elements(inside) == 0) return;
    const size_t rank = shape.size();
    std::byte* in_tile = tile.data();
    for (size_t d = 0; d < rank; ++d) in_tile += below[d] * tile_strides[d] * bytes;
    if (to_array) copy_strided(rank, inside.data(), first, view_strides.data(), in_tile, tile_strides.data(), bytes);
    else copy_strided(rank, inside.data(), in_tile, tile_strides.data(), first, view_strides.data(), bytes);
  }
  // Overhang becomes the nearest element inside.
  void copy_edges() {
    for_each_index(shape.size(), shape.data(), [&](const int64_t* at) {
      int64_t to = 0, from = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        to += at[d] * tile_strides[d];
        from += std::clamp(at[d], below[d], below[d] + inside[d] - 1) * tile_strides[d];
      }
      if (from != to) std::memcpy(tile.data() + to * bytes, tile.data() + from * bytes, static_cast<size_t>(bytes));
    });
  }
  void write_back() {
    if (entered && edge && written) copy_tile(true);
  }
  void leave() {
    write_back();
    entered = false;
  }
  [[noreturn]] void out_of_bounds(const Machine& m, size_t d, int64_t given, int64_t clamped, bool size) const {
    const auto count = [](int64_t n, const std::string& noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); };
    const ir::BlockDim& dim = mapping->block[d];
    std::string what = (size ? "a slice of " + count(given, "element") : std::to_string(given)) + " along dim " + std::to_string(d) + ", ";
    if (size) what += "whose BoundedSlice has " + std::to_string(dim.size);
    else if (dim.kind == ir::BlockDim::Kind::blocked) what += "which has " + count(last[d] + 1, "block");
    else if (dim.kind == ir::BlockDim::Kind::element) what += "where an Element block of " + std::to_string(dim.size) + " starts at 0 to " + std::to_string(last[d]);
    else what += "which has " + count(array_shape[d], "element");
    throw KernelError(m.kernel->name + ": " + mapping->origin + ": in program " + program_text(*m.kernel, m.grid_point.data()) + " the index map gives " + what, mapping->loc,
                      "unless out-of-bounds accesses raise, it " + std::string(given < 0 && dim.wrap() ? "wraps to " : "is clamped to ") + std::to_string(clamped));
  }
  /// Moves to the block that the index map's results say, which are wrapped once and clamped here.
  void enter(std::vector<int64_t>& wanted, const Machine& m, View& view, Tracked& tracked) {
    for (size_t d = 0, at = 0; d < mapping->block.size(); ++d) {
      const ir::BlockDim& dim = mapping->block[d];
      const auto clamp = [&](int64_t most, bool size) {
        const int64_t given = wanted[at];
        wanted[at] = std::clamp<int64_t>(given < 0 && dim.wrap() ? given + most + dim.wrap() : given, 0, most);
        if (m.raise && given != wanted[at] && (array_shape[d] > 0 || size)) out_of_bounds(m, d, given, wanted[at], size);
        ++at;
      };
      clamp(last[d], false);
      if (dim.kind == ir::BlockDim::Kind::bounded) clamp(dim.size, true);
    }
    // Overhang is fixed within a program only: where the caller chooses what it holds, it starts anew with each.
    if (entered && wanted == index && !(edge && unspecified != 0) && !snapshot) return;
    leave();
    index = wanted;
    entered = true;
    int64_t offset = 0, start_offset = 0;  // of the first element inside, and of the block's first
    below.clear();
    inside.clear();
    bool any = true;
    edge = snapshot;
    for (size_t d = 0, at = 0; d < mapping->block.size(); ++d) {
      const ir::BlockDim& dim = mapping->block[d];
      const int64_t start = index[at] * dim.unit() - dim.low, end = start + (dim.kind == ir::BlockDim::Kind::bounded ? index[at + 1] : dim.size);
      const int64_t from = std::max<int64_t>(start, 0), there = std::max<int64_t>(std::min(end, array_shape[d]) - from, 0);
      at += dim.results();
      edge |= there < dim.size;
      any &= there > 0;
      offset += from * array_strides[d];
      start_offset += start * array_strides[d];
      if (!dim.seen()) continue;
      below.push_back(std::min(from - start, dim.size));
      inside.push_back(there);
    }
    if (!any) std::fill(inside.begin(), inside.end(), 0);
    first = any ? base + offset * bytes : base;
    tracked = {start_offset, view_strides.data(), below.data(), inside.data()};
    if (!edge) {
      view = {first, view_strides.data()};
      return;
    }
    tile.resize(static_cast<size_t>(num_elements(shape) * bytes));
    fill_unspecified(tile.data(), num_elements(shape), mapping->dtype, unspecified, owner);
    if (any) copy_tile(false);
    if (any && unspecified == kEdge) copy_edges();
    else if (inside.empty()) inside.assign(1, 0);  // a rank 0 block of an empty array: nothing to copy either way
    view = {tile.data(), tile_strides.data()};
  }
};

std::vector<bool> written_refs(const ir::Kernel& k) {
  std::vector<bool> written(k.region(k.body).args.size(), false);
  for (const ir::Op& op : k.ops) {
    const ir::Value to = stored_ref(op);
    if (to && k.value(to).region == k.body) written[k.value(to).number] = true;
  }
  return written;
}

int64_t signed_scalar(const Machine& m, const ir::Kernel& k, ir::Value v) {
  const std::byte* p = m.place[v.index];
  return k.type(v).dtype == DType::i64 ? *reinterpret_cast<const int64_t*>(p) : *reinterpret_cast<const int32_t*>(p);
}

int fill_of(const InterpretOptions& options) {
  switch (options.uninitialised) {
    case Uninitialised::nan: return 0;
    case Uninitialised::zero: return 3;
    case Uninitialised::large: return 1;
    case Uninitialised::small: return 2;
    case Uninitialised::edge: return kEdge;
    case Uninitialised::pattern: break;
  }
  return 4 + static_cast<int>(options.seed.value_or(0) % (1u << 30));
}

// Calls f(program) for every program. Without a seed in the grid's order. With one the coordinates of the parallel axes come in an order of
// their own, and each runs all its programs before the next one.
template <class F> void for_each_program(const std::vector<int64_t>& grid, const std::vector<bool>& parallel, std::optional<uint64_t> seed, F&& f) {
  if (!seed) return for_each_index(grid.size(), grid.data(), f);
  std::vector<int64_t> outer(grid), inner(grid);  // the axis' size in one of them, 1 in the other
  for (size_t a = 0; a < grid.size(); ++a) (parallel[a] ? inner : outer)[a] = 1;
  std::vector<int64_t> order(static_cast<size_t>(num_elements(outer)));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  uint64_t random = mix(*seed + 1);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[(random = mix(random + 0x9e3779b97f4a7c15u)) % i]);
  std::vector<int64_t> program(grid.size());
  for (int64_t number : order)
    for_each_index(grid.size(), inner.data(), [&](const int64_t* at) {
      int64_t left = number;
      for (size_t a = grid.size(); a-- > 0;) {
        program[a] = at[a] + left % outer[a];
        left /= outer[a];
      }
      f(program.data());
    });
}
/// The machine comes from take(programs, fill), which may have none, and goes to give_back() when the call has come to its end.
template <class Take, class GiveBack>
std::vector<Array> run_kernel(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options, const Take& take, const GiveBack& give_back) {
  if (k.level != ir::Level::tile) throw SpecError(k.name + ": the interpreter runs tile-level kernels, and this one is lowered", k.loc);
  size_t rank = k.grid.size();
  for (const ir::BlockMapping& b : k.blocks) rank = std::max(rank, b.array_shape.size());
  if (rank > kMaxRank) throw SpecError(k.name + ": an array or the grid has " + std::to_string(rank) + " dims, and the interpreter handles " + std::to_string(kMaxRank), k.loc);
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  const DimValues dims = bind_dims(k, types, options.dims);
  const std::vector<int64_t> grid = bind_grid(k, dims);
  const std::vector<bool> written = written_refs(k);
  const int fill = fill_of(options);
  if (!options.parallel.empty() && options.parallel.size() != grid.size())
    throw SpecError(k.name + ": InterpretOptions::parallel has " + std::to_string(options.parallel.size()) + " axes but the grid has " + std::to_string(grid.size()), k.loc);
  std::vector<bool> parallel(grid.size());
  for (size_t a = 0; a < grid.size(); ++a) parallel[a] = k.grid[a].parallel || k.grid[a].vmapped || (!options.parallel.empty() && options.parallel[a]);

  // Arrays: inputs that the kernel stores to are copies of its own.
  std::vector<Array> arrays(inputs);
  uint64_t owners = 0;
  for (int i = k.num_inputs; i < static_cast<int>(k.blocks.size()); ++i) {
    const DType t = k.blocks[static_cast<size_t>(i)].dtype;
    if (const int from = k.blocks[static_cast<size_t>(i)].alias; from >= 0) {
      const Array& given = inputs[static_cast<size_t>(from)];
      given.bytes();  // still has its elements
      arrays.push_back(given.donated() ? given.take() : given);
      continue;
    }
    Array a(bind_shape(k, i, dims), t);
    fill_unspecified(a.bytes(), a.size(), t, fill, ++owners);
    arrays.push_back(std::move(a));
  }

  std::vector<int32_t> programs;
  for (size_t i = 0; i < grid.size(); ++i)
    if (!k.grid[i].vmapped) programs.push_back(static_cast<int32_t>(grid[i]));
  // Loads may point into memory that the kernel does not store to while they are used.
  std::vector<bool> changes = written;
  bool aliased = false;
  for (int i = 0; i < k.num_inputs; ++i) {
    const int o = k.aliased_output(i);
    if (k.shares_at_once(i)) changes[static_cast<size_t>(i)] = written[static_cast<size_t>(o)];
    aliased |= o >= 0 && written[static_cast<size_t>(o)];
  }
  std::unique_ptr<Machine> machine = take(programs, fill);
  if (!machine) machine.reset(new Machine(make_machine(k, programs, changes, fill, options.observe)));
  Machine& m = *machine;
  m.raise = options.out_of_bounds == OutOfBounds::raise;
  std::optional<Races> races;
  // A detector that only warns leaves copies alone.
  const bool copies = std::any_of(k.ops.begin(), k.ops.end(), [](const ir::Op& op) { return op.code == ir::Opcode::copy_start; });
  if (options.races || (options.warn && aliased && !copies && Races::fits(grid)))
    m.races = &races.emplace(k, grid, options.races ? parallel : std::vector<bool>(grid.size(), false), options.warn);

  std::vector<Block> blocks(k.blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& b = blocks[i];
    b.mapping = &k.blocks[i];
    b.written = written[i];
    b.unspecified = fill;
    b.bytes = size_bytes(b.mapping->dtype);
    b.array_shape = arrays[i].shape();
    b.array_strides = dense_strides(b.array_shape);
    const int output = k.aliased_output(static_cast<int>(i));
    const size_t memory = output >= 0 ? static_cast<size_t>(output) : i;
    b.base = written[memory] ? arrays[memory].bytes() : const_cast<std::byte*>(std::as_const(arrays[memory]).bytes());
    b.snapshot = output >= 0 && written[memory] && !k.shares_at_once(static_cast<int>(i));
    if (races && written[memory] && (options.races || output >= 0 || b.mapping->alias >= 0)) races->follow(i, memory, b.array_shape, b.snapshot);
    if (b.mapping->whole) {
      if (b.snapshot) b.tile.resize(static_cast<size_t>(arrays[i].nbytes()));
      m.views[i] = {b.snapshot ? b.tile.data() : b.base, b.array_strides.data()};
      b.below.assign(b.array_shape.size(), 0);
      m.tracked[i] = {0, b.array_strides.data(), b.below.data(), b.array_shape.data()};
      continue;
    }
    for (size_t d = 0; d < b.mapping->block.size(); ++d) {
      const ir::BlockDim& dim = b.mapping->block[d];
      b.last.push_back(std::max<int64_t>(*ir::last_index(dim, b.array_shape[d]).value(), 0));
      if (!dim.seen()) continue;
      b.shape.push_back(dim.size);
      b.view_strides.push_back(b.array_strides[d]);
    }
    b.tile_strides = dense_strides(b.shape);
  }

  std::vector<std::vector<std::byte>> scratch;
  std::vector<Strides> scratch_strides;
  std::vector<Shape> scratch_below;
  for (const ir::Type& t : k.scratch) {
    scratch.emplace_back(static_cast<size_t>(num_elements(t.shape) * size_bytes(t.dtype)));
    scratch_strides.push_back(dense_strides(t.shape));
  }
  std::optional<Pipes> pipes;
  if (Pipes::needed(k)) m.pipes = &pipes.emplace(m, options.seed);
  const auto forget_scratch = [&](size_t first) {
    for (size_t i = first; i < scratch.size(); ++i) {
      if (ir::is_semaphore(k.scratch[i].space)) std::fill(scratch[i].begin(), scratch[i].end(), std::byte{0});
      else fill_unspecified(scratch[i].data(), num_elements(k.scratch[i].shape), k.scratch[i].dtype, fill, ++owners);
    }
  };
  for (size_t i = 0; i < scratch.size(); ++i) {
    m.views[blocks.size() + i] = {scratch[i].data(), scratch_strides[i].data()};
    scratch_below.emplace_back(k.scratch[i].shape.size(), 0);
    m.tracked[blocks.size() + i] = {0, scratch_strides[i].data(), scratch_below.back().data(), k.scratch[i].shape.data()};
    const bool own = i + static_cast<size_t>(k.num_private_scratch) >= k.scratch.size();
    if (options.races && !own) races->follow(blocks.size() + i, blocks.size() + i, k.scratch[i].shape);
  }
  forget_scratch(0);

  // Where programs come in another order, what they print waits for the others.
  std::map<int64_t, std::vector<std::string>> lines;  // by program number
  int64_t number = 0;
  m.print = [&](std::string line) {
    if (options.seed) lines[number].push_back(std::move(line));
    else print_line(options.print, line);
  };
  const auto say = [&] {
    for (const auto& [program, list] : lines)
      for (const std::string& line : list) print_line(options.print, line);
    lines.clear();
  };
  std::optional<std::pair<int64_t, KernelError>> failed;  // the first check in the order of the programs

  std::vector<int64_t> wanted, own, last_own;  // coordinates that have scratch of their own
  const auto run = [&](const int64_t* program) {
    number = 0;
    for (size_t d = 0; d < grid.size(); ++d) number = number * grid[d] + program[d];
    m.failed.reset();
    own.clear();
    for (size_t d = 0, visible = 0; d < grid.size(); ++d) {
      m.grid_point[d] = program[d];
      if (k.grid[d].vmapped || (options.seed && parallel[d])) own.push_back(program[d]);
      if (!k.grid[d].vmapped) m.program[visible++] = static_cast<int32_t>(program[d]);
    }
    if (own != last_own) {
      if (pipes) pipes->end_of_kernel();
      forget_scratch(0);
      last_own = own;
    } else if (k.num_private_scratch > 0) {
      forget_scratch(k.scratch.size() - static_cast<size_t>(k.num_private_scratch));
    }
    if (races) races->begin(program);
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& b = blocks[i];
      if (b.mapping->whole) {
        if (b.snapshot) std::copy_n(b.base, b.tile.size(), b.tile.data());
        continue;
      }
      const ir::Region& map = k.region(b.mapping->index_map);
      for (size_t d = 0; d < grid.size(); ++d) *reinterpret_cast<int32_t*>(m.place[map.args[d].index]) = static_cast<int32_t>(program[d]);
      m.run(b.mapping->index_map);
      wanted.clear();
      for (ir::Value v : k.terminator(b.mapping->index_map).operands) wanted.push_back(signed_scalar(m, k, v));
      b.owner = ++owners;
      b.enter(wanted, m, m.views[i], m.tracked[i]);
    }
    m.run(k.body);
    for (Block& b : blocks)  // what the next program finds through an aliased input
      if (b.mapping->alias >= 0) b.write_back();
    if (m.failed && (!failed || number < failed->first)) failed.emplace(number, *m.failed);
  };
  try {
    for_each_program(grid, parallel, options.seed, run);
  } catch (...) {
    say();
    if (m.failed && (!failed || number < failed->first)) failed.emplace(number, *m.failed);
    if (failed) throw failed->second;
    throw;
  }
  say();
  if (failed) throw failed->second;
  if (pipes) pipes->end_of_kernel();
  for (Block& b : blocks) b.leave();
  give_back(std::move(machine));
  arrays.erase(arrays.begin(), arrays.begin() + k.num_inputs);
  return arrays;
}
}  // namespace

std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options) {
  return run_kernel(k, inputs, options, [](const auto&, int) { return nullptr; }, [](std::unique_ptr<Machine>) {});
}

std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options, Plans& plans) {
  if (options.observe) return interpret(k, inputs, options);  // which is planned with it
  const auto take = [&](const std::vector<int32_t>& programs, int fill) { return plans.take(programs, fill); };
  return run_kernel(k, inputs, options, take, [&](std::unique_ptr<Machine> machine) { plans.give_back(std::move(machine)); });
}

Plans::Plans() = default;
Plans::~Plans() = default;

std::unique_ptr<Machine> Plans::take(const std::vector<int32_t>& programs, int fill) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(idle_.begin(), idle_.end(), [&](const auto& m) { return m->fill == fill && m->programs == programs; });
  if (it == idle_.end()) return nullptr;
  std::unique_ptr<Machine> machine = std::move(*it);
  idle_.erase(it);
  return machine;
}

void Plans::give_back(std::unique_ptr<Machine> machine) {
  constexpr size_t kMostBytes = size_t{1} << 20, kMost = 16;  // planning takes little beside computing on more
  if (machine->arena.size() > kMostBytes) return;
  machine->races = nullptr;
  machine->pipes = nullptr;
  machine->print = nullptr;
  machine->failed.reset();
  machine->masked_loads = 0;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMost) idle_.push_back(std::move(machine));
}

}  // namespace tessera
