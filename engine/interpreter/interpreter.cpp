// Blocks and the grid. A block that lies inside its array is used where it is; one that hangs over the edge has a
// private tile, so that its overhang is unspecified but keeps what the program stores there, and is written back
// without it when the grid moves to another block.
#include "engine/interpreter/interpreter.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/bind.h"
#include "engine/interpreter/async_copies.h"
#include "engine/interpreter/machine.h"
#include "engine/interpreter/plans.h"
#include "engine/interpreter/threads.h"
#include "engine/ir/text.h"

namespace tessera {
namespace {
using namespace interpreter;

struct Result {
  uint32_t value;
  bool wide;  // an i64
};
int64_t signed_scalar(const Machine& m, Result r) {
  const std::byte* p = m.place[r.value];
  return r.wide ? *reinterpret_cast<const int64_t*>(p) : *reinterpret_cast<const int32_t*>(p);
}

struct Block {
  const ir::BlockMapping* mapping = nullptr;
  bool written = false;
  bool snapshot = false;  // an aliased input: a copy of what the block holds when a program starts
  int unspecified = 0;    // of unspecified_bits
  uint64_t owner = 0;     // of the overhang, anew with each program
  size_t memory = 0;      // the block whose array this is: itself, or the output that is aliased to it
  std::byte* base = nullptr;
  int64_t bytes = 0;  // of an element
  size_t array_bytes = 0;
  uint32_t axes = 0;                 // of the grid, that the index map looks at
  std::vector<ir::Value> arguments;  // the index map's, the grid's axes first
  std::vector<Result> results;
  Shape array_shape;
  Strides array_strides;
  Shape shape;  // of the Ref: block dims without squeezed ones
  Strides view_strides, tile_strides;
  bool dense = false;         // the first are as the second
  bool halo = false;          // some dim is a halo dim
  std::vector<int64_t> last;  // per dim, the largest index
  // The block that the current program is on:
  bool entered = false, edge = false;
  std::vector<int64_t> index;  // what the index map gave, clamped
  std::byte* first = nullptr;  // its first element in the array
  bool has_elements = false;   // there
  // per dim of the Ref: positions before the array, and behind those how many lie in it
  Shape below, inside;
  std::vector<std::byte> tile;  // if edge

  void copy_tile(bool to_array) {
    if (!has_elements) return;
    const size_t rank = shape.size();
    std::byte* in_tile = tile.data();
    for (size_t d = 0; d < rank; ++d) in_tile += below[d] * tile_strides[d] * bytes;
    const int64_t *in_array = view_strides.data(), *of_tile = tile_strides.data();
    if (to_array) StridedCopy(rank, inside.data(), in_array, of_tile, bytes).run(first, in_tile);
    else StridedCopy(rank, inside.data(), of_tile, in_array, bytes).run(in_tile, first);
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
  // What a block with a halo reads: its elements in the array, 0, or, where another dim hangs over, nothing.
  void copy_halo() {
    const size_t rank = array_shape.size();
    std::vector<Shape> from(
        rank);  // per dim of the array and position in the block: the element there, or kOver, kZero
    constexpr int64_t kOver = -1, kZero = -2;
    Shape sizes(rank);
    Strides to_strides(rank);
    for (size_t d = 0, at = 0, seen = 0; d < rank; ++d) {
      const ir::BlockDim& dim = mapping->block()[d];
      const int64_t start = index[at] * dim.unit() - dim.low();
      const bool bounded = dim.is_bounded();
      const ir::BlockDim::Halo* around = dim.halo();
      sizes[d] = dim.size();
      to_strides[d] = dim.seen() ? tile_strides[seen++] : 0;
      for (int64_t i = 0; i < sizes[d]; ++i) {
        int64_t element = start + i;
        if (around) {
          element = ir::edge_position(around->edge, element, array_shape[d]);
          if (element < 0) element = kZero;
        } else if (element < 0 || element >= array_shape[d] || (bounded && i >= index[at + 1])) {
          element = kOver;
          if (unspecified == kEdge && has_elements)  // the nearest one inside
            element = std::clamp<int64_t>(
                start + i, 0, std::min(array_shape[d], bounded ? start + index[at + 1] : array_shape[d]) - 1);
        }
        from[d].push_back(element);
      }
      at += dim.results();
    }
    for_each_index(rank, sizes.data(), [&](const int64_t* at) {
      int64_t to = 0, offset = 0;
      bool over = false, zero = false;
      for (size_t d = 0; d < rank; ++d) {
        const int64_t element = from[d][static_cast<size_t>(at[d])];
        over |= element == kOver, zero |= element == kZero;
        to += at[d] * to_strides[d];
        offset += element * array_strides[d];
      }
      std::byte* const there = tile.data() + to * bytes;
      if (over) return;
      if (zero) std::memset(there, 0, static_cast<size_t>(bytes));
      else copy_element(there, base + offset * bytes, bytes);
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
    const auto count = [](int64_t n, const std::string& noun) {
      return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
    };
    const ir::BlockDim& dim = mapping->block()[d];
    std::string what = (size ? "a slice of " + count(given, "element") : std::to_string(given)) + " along dim " +
                       std::to_string(d) + ", ";
    if (size) what += "whose BoundedSlice has " + std::to_string(dim.size());
    else if (dim.is_blocked() || dim.halo()) what += "which has " + count(last[d] + 1, "block");
    else if (dim.is_element())
      what += "where an Element block of " + std::to_string(dim.size()) + " starts at 0 to " + std::to_string(last[d]);
    else what += "which has " + count(array_shape[d], "element");
    throw KernelError(m.kernel->name + ": " + mapping->origin + ": in program " +
                          program_text(*m.kernel, m.grid_point.data()) + " the index map gives " + what,
                      mapping->loc,
                      "unless out-of-bounds accesses raise, it " +
                          std::string(given < 0 && dim.wrap() ? "wraps to " : "is clamped to ") +
                          std::to_string(clamped));
  }
  /// A program for which the index map gives what it gave for the last one.
  void stay(View& view, Tracked& tracked) {
    if (!(edge && unspecified != 0) && !snapshot) return;  // overhang is fixed within a program only
    write_back();
    move(view, tracked);
  }
  /// Moves to the block that the index map's results say, which are wrapped once and clamped here.
  void enter(const Machine& m, View& view, Tracked& tracked) {
    bool moves = !entered;
    for (size_t d = 0, at = 0; d < mapping->block().size(); ++d) {
      const ir::BlockDim& dim = mapping->block()[d];
      const bool bounded = dim.is_bounded();
      const auto clamp = [&](int64_t most, bool size) {
        const int64_t given = signed_scalar(m, results[at]), clamped = ir::block_index(dim, given, most);
        if (m.raise && given != clamped && (array_shape[d] > 0 || size)) out_of_bounds(m, d, given, clamped, size);
        moves |= index[at] != clamped;
        index[at++] = clamped;
      };
      clamp(last[d], false);
      if (bounded) clamp(dim.size(), true);
    }
    if (!moves) return stay(view, tracked);
    write_back();
    entered = true;
    move(view, tracked);
  }
  void move(View& view, Tracked& tracked) {
    int64_t offset = 0, start_offset = 0;  // of the first element inside, and of the block's first
    size_t seen = 0;
    bool any = true;
    edge = snapshot;
    for (size_t d = 0, at = 0; d < mapping->block().size(); ++d) {
      const ir::BlockDim& dim = mapping->block()[d];
      const int64_t start = index[at] * dim.unit() - dim.low(),
                    end = start + (dim.is_bounded() ? index[at + 1] : dim.size());
      const int64_t from = std::max<int64_t>(start, 0),
                    there = std::max<int64_t>(std::min(end, array_shape[d]) - from, 0);
      at += dim.results();
      edge |= there < dim.size();
      any &= there > 0;
      offset += from * array_strides[d];
      start_offset += start * array_strides[d];
      if (!dim.seen()) continue;
      below[seen] = std::min(from - start, dim.size());
      inside[seen++] = there;
    }
    has_elements = any;
    if (!any) std::fill(inside.begin(), inside.end(), 0);
    first = any ? base + offset * bytes : base;
    tracked = {start_offset, view_strides.data(), below.data(), inside.data()};
    if (!edge) {
      view = {first, view_strides.data(), dense};
      return;
    }
    tile.resize(static_cast<size_t>(num_elements(shape) * bytes));
    fill_unspecified(tile.data(), num_elements(shape), mapping->dtype, unspecified, owner);
    if (halo) copy_halo();
    else if (any) copy_tile(false);
    if (!halo && any && unspecified == kEdge) copy_edges();
    view = {tile.data(), tile_strides.data(), true};
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

// Calls f(program) for every program. Without a seed in the grid's order. With one the coordinates of the parallel axes
// come in an order of their own, and each runs all its programs before the next one.
template <class F> void for_each_program(const std::vector<int64_t>& grid, const std::vector<bool>& parallel,
                                         std::optional<uint64_t> seed, F&& f) {
  if (!seed) return for_each_index(grid.size(), grid.data(), f);
  std::vector<int64_t> outer(grid), inner(grid);  // the axis' size in one of them, 1 in the other
  for (size_t a = 0; a < grid.size(); ++a) (parallel[a] ? inner : outer)[a] = 1;
  std::vector<int64_t> order(static_cast<size_t>(num_elements(outer)));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  uint64_t random = mix(*seed + 1);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[(random = mix(random + 0x9e3779b97f4a7c15u)) % i]);
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

/// The grid axes that an index map looks at, as bits: itself, or by the blocks of prefetched operands that it loads
/// from, which no program stores to.
uint32_t axes_of(const ir::Kernel& k, ir::RegionId map) {
  uint32_t axes = 0;
  const auto& args = k.region(map).args;
  for (size_t a = 0; a < args.size(); ++a) {
    const bool used = std::any_of(k.ops.begin(), k.ops.end(), [&](const ir::Op& op) {
      return std::count(op.operands.begin(), op.operands.end(), args[a]) > 0;
    });
    if (!used) continue;
    if (a < k.grid.size()) axes |= uint32_t{1} << a;
    else if (const ir::BlockMapping& b = k.blocks[a - k.grid.size()]; !b.is_whole()) axes |= axes_of(k, b.index_map());
  }
  return axes;
}
}  // namespace

namespace interpreter {

/// A kernel that is planned for arguments of these types, with the memory that its runs need. It is not moved: the
/// machine points to its blocks' strides.
class Prepared {
 public:
  using Types = std::vector<std::pair<DType, Shape>>;

  Prepared(const ir::Kernel& k, Types types, const InterpretOptions& options)
      : k_(k), types_(std::move(types)), given_(options.dims), fill_(fill_of(options)), written_(written_refs(k)) {
    if (k.level != ir::Level::tile)
      throw SpecError(k.name + ": the interpreter runs tile-level kernels, and this one is lowered", k.loc);
    size_t rank = k.grid.size();
    for (const ir::BlockMapping& b : k.blocks) rank = std::max(rank, b.array_shape.size());
    if (rank > kMaxRank)
      throw SpecError(k.name + ": an array or the grid has " + std::to_string(rank) +
                          " dims, and the interpreter handles " + std::to_string(kMaxRank),
                      k.loc);
    const DimValues dims = bind_dims(k, types_, options.dims);
    grid_ = bind_grid(k, dims);
    parallel_.resize(grid_.size());
    std::vector<int32_t> programs;
    for (size_t i = 0; i < grid_.size(); ++i)
      if (!k.grid[i].vmapped) programs.push_back(static_cast<int32_t>(grid_[i]));
    // Loads may point into memory that the kernel does not store to while they are used.
    std::vector<bool> changes = written_;
    for (int i = 0; i < k.num_inputs; ++i) {
      const int o = k.aliased_output(i);
      if (k.shares_at_once(i)) changes[static_cast<size_t>(i)] = written_[static_cast<size_t>(o)];
      aliased_ |= o >= 0 && written_[static_cast<size_t>(o)];
    }
    std::vector<int32_t> sizes;
    for (const Extent& e : k.sizes) sizes.push_back(bind_size(k.name, k.loc, e, dims));
    if (k.has_threads()) {
      const size_t all = Threads::threads_of(k) * Threads::programs_of(k);
      for (size_t t = 0; t < all; ++t)
        threads_.push_back(make_machine(k, programs, sizes, changes, fill_, options.observe));
    }
    machine_ = make_machine(k, std::move(programs), std::move(sizes), changes, fill_, options.observe);
    copies_ =
        std::any_of(k.ops.begin(), k.ops.end(), [](const ir::Op& op) { return op.code == ir::Opcode::copy_start; });
    has_async_ = AsyncCopies::needed(k);
    make_blocks(dims);
    make_scratch();
  }

  const Shape& shape(size_t block) const { return blocks_[block].array_shape; }
  size_t bytes(size_t block) const { return blocks_[block].array_bytes; }
  bool written(size_t block) const { return written_[block]; }
  /// Inputs (by dtype() and shape()) and options are those that this was planned for.
  template <class Inputs> bool fits(const Inputs& inputs, const InterpretOptions& options) const {
    return !options.observe && fill_ == fill_of(options) && given_ == options.dims &&
           std::equal(inputs.begin(), inputs.end(), types_.begin(), types_.end(),
                      [](const auto& a, const auto& b) { return type_of(a) == b.first && shape_of(a) == b.second; });
  }
  static DType type_of(const Array& a) { return a.dtype(); }
  static DType type_of(const HostArray& a) { return a.dtype; }
  static const Shape& shape_of(const Array& a) { return a.shape(); }
  static const Shape& shape_of(const HostArray& a) { return a.shape; }
  /// Too large to be worth keeping: planning takes little beside computing on so much.
  bool large() const {
    size_t bytes = machine_.arena.size();
    for (const Block& b : blocks_) bytes += b.tile.size();
    for (const auto& s : scratch_) bytes += s.size();
    for (const auto& o : own_) bytes += o.size();
    return bytes > size_t{1} << 20;
  }

  /// Of every block's array in the run to come. An output that is aliased holds what the input does, and where the
  /// kernel stores to it, is the memory of both.
  std::vector<std::byte*> memory;

  void run(const InterpretOptions& options) {
    if (!options.parallel.empty() && options.parallel.size() != grid_.size())
      throw SpecError(k_.name + ": InterpretOptions::parallel has " + std::to_string(options.parallel.size()) +
                          " axes but the grid has " + std::to_string(grid_.size()),
                      k_.loc);
    for (size_t a = 0; a < grid_.size(); ++a)
      parallel_[a] = k_.grid[a].parallel || k_.grid[a].vmapped || (!options.parallel.empty() && options.parallel[a]);
    options_ = &options;
    owners_ = 0;
    Machine& m = machine_;
    m.raise = options.out_of_bounds == OutOfBounds::raise;
    m.masked_loads = 0;
    std::optional<Races> races;
    // A detector that only warns leaves copies alone.
    if (!k_.has_threads() && (options.races || (options.warn && aliased_ && !copies_ && Races::fits(grid_))))
      m.races =
          &races.emplace(k_, grid_, options.races ? parallel_ : std::vector<bool>(grid_.size(), false), options.warn);
    for (size_t i = 0; i < blocks_.size(); ++i) begin(i);
    if (k_.has_threads()) return run_threads();
    if (options.races)
      for (size_t i = 0; i + static_cast<size_t>(k_.num_private_scratch) < scratch_.size(); ++i)
        races->follow(blocks_.size() + i, blocks_.size() + i, k_.scratch[i].shape);
    std::optional<AsyncCopies> async;
    if (has_async_) m.async = &async.emplace(m, options.seed);
    forget_scratch(0);
    m.print = [this](std::string line) {
      if (options_->seed) lines_[number_].push_back(std::move(line));
      else print_line(options_->print, line);
    };
    last_own_.clear();
    first_ = true;
    try {
      for_each_program(grid_, parallel_, options.seed, [&](const int64_t* program) { run_program(program); });
    } catch (...) {
      say();
      note_failure();
      if (failed_) throw failed_->second;
      throw;
    }
    say();
    if (failed_) throw failed_->second;
    if (async) async->end_of_kernel();
    for (Block& b : blocks_) b.leave();
    m.races = nullptr;
    m.async = nullptr;
  }

 private:
  void make_blocks(const DimValues& dims) {
    Machine& m = machine_;
    blocks_.resize(k_.blocks.size());
    own_.resize(k_.blocks.size());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& b = blocks_[i];
      b.mapping = &k_.blocks[i];
      b.written = written_[i];
      b.unspecified = fill_;
      b.bytes = size_bytes(b.mapping->dtype);
      b.array_shape = bind_shape(k_, static_cast<int>(i), dims);
      b.array_strides = dense_strides(b.array_shape);
      b.array_bytes = static_cast<size_t>(num_elements(b.array_shape) * b.bytes);
      const int output = k_.aliased_output(static_cast<int>(i));
      b.memory = output >= 0 ? static_cast<size_t>(output) : i;
      b.snapshot = output >= 0 && written_[b.memory] && !k_.shares_at_once(static_cast<int>(i));
      if (b.mapping->is_whole()) {
        if (b.snapshot) b.tile.resize(b.array_bytes);
        b.below.assign(b.array_shape.size(), 0);
        m.tracked[i] = {0, b.array_strides.data(), b.below.data(), b.array_shape.data()};
        continue;
      }
      b.axes = axes_of(k_, b.mapping->index_map());
      for (const ir::Value v : k_.terminator(b.mapping->index_map()).operands)
        b.results.push_back({v.index, k_.type(v).dtype == DType::i64});
      b.index.resize(b.results.size());
      b.arguments = k_.region(b.mapping->index_map()).args;
      for (size_t d = 0; d < b.mapping->block().size(); ++d) {
        const ir::BlockDim& dim = b.mapping->block()[d];
        b.last.push_back(std::max<int64_t>(*ir::last_index(dim, b.array_shape[d]).value(), 0));
        b.halo = b.halo || dim.halo();
        if (!dim.seen()) continue;
        b.shape.push_back(dim.size());
        b.view_strides.push_back(b.array_strides[d]);
      }
      b.below.resize(b.shape.size());
      b.inside.resize(b.shape.size());
      b.tile_strides = dense_strides(b.shape);
      b.dense = is_dense(b.shape.size(), b.shape.data(), b.view_strides.data());
    }
  }
  void make_scratch() {
    for (const ir::Type& t : k_.scratch) {
      scratch_.emplace_back(static_cast<size_t>(num_elements(t.shape) * size_bytes(t.dtype)));
      scratch_strides_.push_back(dense_strides(t.shape));
      scratch_below_.emplace_back(t.shape.size(), 0);
    }
    for (size_t i = 0; i < scratch_.size(); ++i) {
      machine_.views[blocks_.size() + i] = {scratch_[i].data(), scratch_strides_[i].data(), true};
      machine_.tracked[blocks_.size() + i] = {0, scratch_strides_[i].data(), scratch_below_[i].data(),
                                              k_.scratch[i].shape.data()};
    }
  }

  // Block i at the start of a run. Outputs hold nothing yet; inputs that the kernel stores to are copies of its own.
  void begin(size_t i) {
    Block& b = blocks_[i];
    Machine& m = machine_;
    b.base = memory[b.memory];
    if (k_.is_output(static_cast<int>(i))) {
      if (b.mapping->alias < 0)
        fill_unspecified(b.base, static_cast<int64_t>(b.array_bytes) / b.bytes, b.mapping->dtype, fill_, ++owners_);
    } else if (written_[i]) {
      own_[i].resize(b.array_bytes);
      std::copy_n(b.base, own_[i].size(), own_[i].data());
      b.base = own_[i].data();
    }
    if (m.races && written_[b.memory] && (options_->races || b.memory != i || b.mapping->alias >= 0))
      m.races->follow(i, b.memory, b.array_shape, b.snapshot);
    if (b.mapping->is_whole()) m.views[i] = {b.snapshot ? b.tile.data() : b.base, b.array_strides.data(), true};
    b.entered = false;
  }

  void forget_scratch(size_t first) {
    for (size_t i = first; i < scratch_.size(); ++i) {
      if (ir::is_semaphore(k_.scratch[i].space)) std::fill(scratch_[i].begin(), scratch_[i].end(), std::byte{0});
      else
        fill_unspecified(scratch_[i].data(), num_elements(k_.scratch[i].shape), k_.scratch[i].dtype, fill_, ++owners_);
    }
  }

  void run_program(const int64_t* program) {
    Machine& m = machine_;
    number_ = 0;
    own_coordinates_.clear();
    // the axes along which this program is not where the last one was
    uint32_t moved = first_ || m.observe || (m.async && options_->seed) ? UINT32_MAX : 0;
    first_ = false;
    for (size_t d = 0, visible = 0; d < grid_.size(); ++d) {
      number_ = number_ * grid_[d] + program[d];
      if (m.grid_point[d] != program[d]) moved |= uint32_t{1} << d;
      m.grid_point[d] = program[d];
      if (k_.grid[d].vmapped || (options_->seed && parallel_[d])) own_coordinates_.push_back(program[d]);
      if (!k_.grid[d].vmapped) m.program[visible++] = static_cast<int32_t>(program[d]);
    }
    m.failed.reset();
    if (own_coordinates_ != last_own_) {
      if (m.async) m.async->end_of_kernel();
      forget_scratch(0);
      last_own_ = own_coordinates_;
    } else if (k_.num_private_scratch > 0) {
      forget_scratch(scratch_.size() - static_cast<size_t>(k_.num_private_scratch));
    }
    if (m.races) m.races->begin(program);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& b = blocks_[i];
      if (b.mapping->is_whole()) {
        if (b.snapshot) std::copy_n(b.base, b.tile.size(), b.tile.data());
        continue;
      }
      b.owner = ++owners_;
      if (b.entered && !(b.axes & moved)) {
        b.stay(m.views[i], m.tracked[i]);
        continue;
      }
      for (size_t d = 0; d < grid_.size(); ++d)
        *reinterpret_cast<int32_t*>(m.place[b.arguments[d].index]) = static_cast<int32_t>(program[d]);
      m.run(b.mapping->index_map());
      b.enter(m, m.views[i], m.tracked[i]);
    }
    m.run(k_.body);
    for (Block& b : blocks_)  // what the next program finds through an aliased input
      if (b.mapping->alias >= 0) b.write_back();
    note_failure();
  }

  // The programs of a cluster and their threads at once, cluster by cluster.
  void run_threads() {
    forget_scratch(0);
    for (Machine& m : threads_) {
      m.raise = machine_.raise;
      m.masked_loads = 0;
      std::copy(machine_.views.begin(), machine_.views.end(), m.views.begin());
      m.print = [this](std::string line) { lines_[number_].push_back(std::move(line)); };  // on a thread of its own
    }
    Threads threads(k_, threads_, {options_->races, options_->seed});
    std::vector<int64_t> clusters = grid_;
    std::vector<bool> any_order(grid_.size(), true);
    for (size_t a = 0; a < grid_.size(); ++a)
      if (k_.grid[a].role != ir::GridAxis::Role::grid) clusters[a] = 1;
    try {
      for_each_program(clusters, any_order, options_->seed, [&](const int64_t* program) {
        number_ = 0;
        for (size_t a = 0; a < grid_.size(); ++a) number_ = number_ * clusters[a] + program[a];
        threads.run(program, static_cast<uint64_t>(number_));
        if (!options_->seed) say();
        for (Machine& m : threads_) {
          machine_.failed = std::move(m.failed);
          note_failure();
        }
      });
      say();
      if (failed_) throw failed_->second;
      threads.end_of_kernel();
    } catch (...) {
      say();
      throw;
    }
  }

  void note_failure() {
    if (machine_.failed && (!failed_ || number_ < failed_->first)) failed_.emplace(number_, *machine_.failed);
  }
  // Where programs come in another order, what they print has waited for the others.
  void say() {
    for (const auto& [program, list] : lines_)
      for (const std::string& line : list) print_line(options_->print, line);
    lines_.clear();
  }

  const ir::Kernel& k_;
  const Types types_;  // of the inputs
  const DimValues given_;
  const int fill_;
  const std::vector<bool> written_;
  std::vector<int64_t> grid_;
  bool aliased_ = false, copies_ = false, has_async_ = false;
  Machine machine_;
  std::vector<Machine> threads_;  // of a kernel of threads: those of a cluster
  std::vector<Block> blocks_;
  std::vector<std::vector<std::byte>> own_;  // by block: copies of inputs that the kernel stores to
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<Strides> scratch_strides_;
  std::vector<Shape> scratch_below_;
  // Of a run:
  const InterpretOptions* options_ = nullptr;
  std::vector<bool> parallel_;
  uint64_t owners_ = 0;
  bool first_ = true;                                      // no program has run
  int64_t number_ = 0;                                     // of the program
  std::map<int64_t, std::vector<std::string>> lines_;      // that wait, by program number
  std::optional<std::pair<int64_t, KernelError>> failed_;  // the first check in the order of the programs
  std::vector<int64_t> own_coordinates_, last_own_;        // coordinates that have scratch of their own
};
}  // namespace interpreter

namespace {
// What is not a value has no line of its own: blocks, scratch, and an op's copies of its operands.
template <class F> auto within_memory(const ir::Kernel& k, const F& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    throw KernelError(k.name + ": this machine has no memory for what the interpreter keeps of blocks and scratch",
                      k.loc, "give smaller blocks, or less scratch");
  }
}

template <class Inputs> std::unique_ptr<Prepared> prepare(const ir::Kernel& k, const Inputs& inputs,
                                                          const InterpretOptions& options) {
  Prepared::Types types;
  for (const auto& a : inputs) types.emplace_back(Prepared::type_of(a), Prepared::shape_of(a));
  return within_memory(k, [&] { return std::make_unique<Prepared>(k, std::move(types), options); });
}

std::vector<Array> run_on_arrays(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options,
                                 Prepared& prepared) {
  std::vector<Array> outputs;
  std::vector<std::byte*>& memory = prepared.memory;
  memory.clear();
  for (const Array& a : inputs) memory.push_back(const_cast<std::byte*>(a.bytes()));
  for (size_t i = inputs.size(); i < k.blocks.size(); ++i) {
    if (const int from = k.blocks[i].alias; from >= 0) {
      const Array& given = inputs[static_cast<size_t>(from)];
      outputs.push_back(given.donated() ? given.take() : given);
    } else {
      outputs.emplace_back(prepared.shape(i), k.blocks[i].dtype);
    }
    Array& a = outputs.back();
    memory.push_back(prepared.written(i) || k.blocks[i].alias < 0 ? a.bytes()
                                                                  : const_cast<std::byte*>(std::as_const(a).bytes()));
  }
  within_memory(k, [&] { prepared.run(options); });
  return outputs;
}
}  // namespace

std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options) {
  return run_on_arrays(k, inputs, options, *prepare(k, inputs, options));
}

std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options,
                             Plans& plans) {
  std::unique_ptr<Prepared> prepared = plans.take([&](const Prepared& p) { return p.fits(inputs, options); });
  if (!prepared) prepared = prepare(k, inputs, options);
  std::vector<Array> outputs = run_on_arrays(k, inputs, options, *prepared);
  if (!options.observe) plans.give_back(std::move(prepared));  // which is planned with it
  return outputs;
}

uint64_t interpret(const ir::Kernel& k, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                   const InterpretOptions& options, Plans& plans) {
  std::unique_ptr<Prepared> prepared = plans.take([&](const Prepared& p) { return p.fits(inputs, options); });
  if (!prepared) prepared = prepare(k, inputs, options);
  const size_t results = k.blocks.size() - inputs.size();
  if (outputs.size() != results)
    throw SpecError(k.name + ": gives " + std::to_string(results) + " outputs but " + std::to_string(outputs.size()) +
                    " are expected");
  std::vector<std::byte*>& memory = prepared->memory;
  memory.clear();
  std::vector<std::vector<std::byte>> copies;
  uint64_t copied = 0;
  const auto bytes_of = [&](size_t block) { return prepared->bytes(block); };
  const auto at = [](const HostArray& a) { return static_cast<std::byte*>(a.data); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t bytes = bytes_of(i);
    std::byte* const from = at(inputs[i]);
    // An output in the place of another input than its own would change that under the kernel's hands; and loops of
    // vector code want whole elements.
    bool copy = reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(size_bytes(inputs[i].dtype)) != 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const size_t block = inputs.size() + o;
      copy |= k.blocks[block].alias != static_cast<int>(i) && at(outputs[o]) < from + bytes &&
              from < at(outputs[o]) + bytes_of(block);
    }
    memory.push_back(copy && bytes ? copies.emplace_back(from, from + bytes).data() : from);
    copied += copy ? bytes : 0;
  }
  for (size_t o = 0; o < results; ++o) {
    const ir::BlockMapping& b = k.blocks[inputs.size() + o];
    const HostArray& out = outputs[o];
    if (out.dtype != b.dtype || out.shape != prepared->shape(inputs.size() + o))
      throw SpecError(k.name + ": output " + std::to_string(o) + " is " +
                      ir::to_string(ir::Type::array(b.dtype, prepared->shape(inputs.size() + o))) + " but " +
                      ir::to_string(ir::Type::array(out.dtype, out.shape)) + " is expected");
    memory.push_back(at(out));
    const size_t bytes = bytes_of(inputs.size() + o);
    if (b.alias < 0 || out.data == memory[static_cast<size_t>(b.alias)] || bytes == 0) continue;
    std::memcpy(out.data, memory[static_cast<size_t>(b.alias)], bytes);
    copied += bytes;
  }
  within_memory(k, [&] { prepared->run(options); });
  if (!options.observe) plans.give_back(std::move(prepared));  // which is planned with it
  return copied;
}

Plans::Plans() = default;
Plans::~Plans() = default;

template <class Fits> std::unique_ptr<Prepared> Plans::take(const Fits& fits) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(idle_.begin(), idle_.end(), [&](const auto& p) { return fits(*p); });
  if (it == idle_.end()) return nullptr;
  std::unique_ptr<Prepared> prepared = std::move(*it);
  idle_.erase(it);
  return prepared;
}

void Plans::give_back(std::unique_ptr<Prepared> prepared) {
  constexpr size_t kMost = 16;
  if (prepared->large()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMost) idle_.push_back(std::move(prepared));
}

}  // namespace tessera
