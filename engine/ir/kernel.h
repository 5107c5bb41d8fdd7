// The IR: one set of structs for both levels. Tile level: SSA values are dense arrays of static shape, Refs are typed
// references with a memory space, control flow is structured regions with carried values. Lane level (after lowering):
// the same, with scalars only, explicit shared memory, barriers and subgroup ops. Values, ops and regions are indices
// into the Kernel's tables, printed as in the text form. Read next: ops.def (what each op means), opcode.h (which
// family it is of), builder.h (making ops), text.h (the .tir form), verify.h (what is legal where).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/call_info.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/extent.h"
#include "engine/ir/opcode.h"

namespace tessera::ir {

using tessera::to_string;  // of shapes, extents and Locs, beside to_string(Type)

struct Value {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
  bool operator==(const Value&) const = default;
  auto operator<=>(const Value&) const = default;
};
struct OpId {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
  bool operator==(const OpId&) const = default;
};
struct RegionId {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
  bool operator==(const RegionId&) const = default;
};

/// Pallas's spaces at tile level: any (whole array, no block; hbm and gmem are other names of it), vmem (a block or
/// scratch), smem (scalars), semaphore and dma_semaphore (counters that copies and signals raise and waits lower, i32).
/// At lane level: global, shared. In kernels of threads (Kernel::has_threads) smem is memory that the threads of a
/// program share; barrier and cluster_barrier are what threads wait at, accumulator is a thread's own, for wgmma.
// clang-format off
enum class MemorySpace : uint8_t { any, vmem, smem, global, shared, semaphore, dma_semaphore, barrier, cluster_barrier,
                                   accumulator, hbm = any, gmem = any };
// clang-format on
std::string_view name(MemorySpace s);
inline bool is_barrier(MemorySpace s) { return s == MemorySpace::barrier || s == MemorySpace::cluster_barrier; }
inline bool is_semaphore(MemorySpace s) { return s == MemorySpace::semaphore || s == MemorySpace::dma_semaphore; }
/// What scratch and the arguments of run_scoped may be in.
inline bool is_for_scratch(MemorySpace s) { return s != MemorySpace::global && s != MemorySpace::shared; }

/// Memory spaces that only kernels of threads have.
inline bool is_of_threads(MemorySpace s) { return is_barrier(s) || s == MemorySpace::accumulator; }

/// What a Ref of a kernel of threads has beside its type. Of barriers: how many arrivals end a phase, and for a
/// cluster_barrier the cluster axes along which the programs arrive and wait together. Of smem: how the elements lie,
/// which changes no value: in tiles of its last dims, and swizzled over so many bytes.
struct ThreadTraits {
  int64_t arrivals = 1;
  std::vector<int64_t> axes = {};
  Shape tiling = {};
  int64_t swizzle = 0;
  bool operator==(const ThreadTraits&) const = default;
};

/// A dense array of static shape, or a Ref to one. Lane-level Refs are rank 1; -1 stands for a length known at run time
/// only.
struct Type {
  bool is_ref = false;
  DType dtype = DType::f32;
  Shape shape;
  MemorySpace space = MemorySpace::vmem;                 // of Refs
  std::shared_ptr<const ThreadTraits> traits = nullptr;  // of Refs of kernels of threads; null: the usual ones
  static Type array(DType t, Shape s = {}) { return {false, t, std::move(s), MemorySpace::vmem}; }
  static Type ref(DType t, Shape s, MemorySpace m) { return {true, t, std::move(s), m}; }
  bool is_scalar() const { return !is_ref && shape.empty(); }
  bool operator==(const Type& o) const {
    return is_ref == o.is_ref && dtype == o.dtype && shape == o.shape &&
           (!is_ref || (space == o.space && (traits == o.traits || thread_traits() == o.thread_traits())));
  }
  const ThreadTraits& thread_traits() const;
};
/// At most 32 dims and 2^40 elements (the product of the sizes that are not 0): what infer() and parse() accept, so
/// that no product of sizes comes near 64 bits.
bool within_limits(const Shape& shape);
std::string to_string(const Type& t);  ///< "f32[32, 64]", "i32[]", "ref<vmem, f32[32, 64]>"

/// One dim of a Ref access. AccessDims says what that makes of the value.
struct Index {
  /// The i32 scalar in Op::operands[operand].
  struct Dynamic {
    size_t operand;
    bool operator==(const Dynamic&) const = default;
  };
  using Start = std::variant<int64_t, Dynamic>;
  /// One position; the dim is dropped.
  struct Integer {
    Start start;
    bool operator==(const Integer&) const = default;
  };
  /// `size` elements: start, start + step, ...
  struct Slice {
    Start start;
    int64_t size;
    int64_t step = 1;
    /// From the first element to behind the last.
    int64_t span() const { return size == 0 ? 0 : (size - 1) * step + 1; }
    bool operator==(const Slice&) const = default;
  };
  /// The positions that the i32 array in Op::operands[operand] holds; all arrays of an index have one shape.
  struct Array {
    size_t operand;
    bool operator==(const Array&) const = default;
  };
  std::variant<Integer, Slice, Array> what;

  static Index at(Start i) { return {Integer{i}}; }
  static Index all(int64_t size) { return {Slice{0, size}}; }
  static Index array(size_t operand) { return {Array{operand}}; }
  bool is_integer() const { return std::holds_alternative<Integer>(what); }
  bool is_array() const { return std::holds_alternative<Array>(what); }
  const Slice* slice() const { return std::get_if<Slice>(&what); }
  Slice* slice() { return std::get_if<Slice>(&what); }
  /// An integer as the slice of one element; InternalError of an array.
  Slice as_slice() const;
  const Start& start() const;  ///< InternalError of an array
  Start& start() { return const_cast<Start&>(std::as_const(*this).start()); }
  /// The position among the op's operands of a dynamic start or an array, or null. See Op::operand_of().
  const size_t* operand() const;
  size_t* operand() { return const_cast<size_t*>(std::as_const(*this).operand()); }
  bool is_static() const { return !operand(); }
  int64_t constant() const { return std::get<int64_t>(start()); }  ///< the start, if is_static()
  /// The operands that it may point at lie `by` further behind.
  void shift(ptrdiff_t by);
  bool operator==(const Index&) const;
};

// clang-format off
enum class Attr : uint8_t { bits, axis, axes, dims, perm, start, limit, stride, lhs_contract, rhs_contract,
  lhs_batch, rhs_batch,
                            reverse, mask, other, offset, kind, index, clip, unordered, text, keys,
                            count, transposed, read_only, decrease, late, pieces };
// clang-format on
inline constexpr int kNumAttrs = static_cast<int>(Attr::pieces) + 1;
std::string_view name(Attr a);

/// One struct for all ops; what differs is in ops.def. Memory ops' operands lie in this order:
/// ref, value (all but load and semaphore_read), what it is compared with (atomic_cas), mask (if attr mask is 1), other
/// (if attr other is 1), then the dynamic starts and arrays that `index` points at. Of copies: source, target,
/// semaphore, then the starts; `index` is that of the three, one after another.
struct Op {
  Opcode code;
  std::vector<Value> operands = {};
  std::vector<Value> results = {};
  std::vector<RegionId> regions = {};
  std::vector<std::pair<Attr, std::vector<int64_t>>> attrs = {};
  std::vector<Index> index = {};  // memory ops: one entry per dim of the ref; copies: of each of their three refs
  Loc loc = {};

  bool has(Attr a) const;
  const std::vector<int64_t>& ints(Attr a) const;  ///< InternalError if missing
  int64_t attr(Attr a) const { return ints(a).at(0); }
  int64_t attr_or(Attr a, int64_t otherwise) const { return has(a) ? attr(a) : otherwise; }
  /// The dynamic start or array of an entry of `index`; none of a static one.
  Value operand_of(const Index& x) const { return x.is_static() ? Value{} : operands.at(*x.operand()); }
  void set(Attr a, std::vector<int64_t> v);
  void set(Attr a, int64_t v) { set(a, std::vector<int64_t>{v}); }
  // Memory ops:
  bool has_mask() const { return attr_or(Attr::mask, 0) != 0; }
  bool has_other() const { return attr_or(Attr::other, 0) != 0; }
  /// of the stored value
  int value_position() const { return code == Opcode::load || code == Opcode::semaphore_read ? -1 : 1; }
  /// if has_mask()
  int mask_position() const { return code == Opcode::load ? 1 : code == Opcode::atomic_cas ? 3 : 2; }
  int other_position() const { return mask_position() + (has_mask() ? 1 : 0); }  ///< if has_other()
};

/// At the lane level, a load or store of several adjacent elements (codegen/lane/vectorize.h): a load has a result for
/// each, a store a value for each, in the place of its one value.
inline bool is_vector_access(const Op& op) {
  return (op.code == Opcode::load || op.code == Opcode::store) && op.index.size() == 1 && op.index[0].slice();
}
/// The Ref whose elements op stores to, as a copy does to its target; none if it stores to no Ref.
inline Value stored_ref(const Op& op) {
  const size_t at = op.code == Opcode::copy_start || is_thread_copy(op.code) ? 1 : op.code == Opcode::wgmma ? 2 : 0;
  return (writes_ref(op.code) || at > 0) && op.operands.size() > at ? op.operands[at] : Value{};
}

struct ValueInfo {
  Type type;
  OpId def;             // the op it results from, or none for a region argument
  RegionId region;      // the region it is an argument of, or none
  uint32_t number = 0;  // position among the results or arguments
};

/// Arguments and ops in order; the last op is a yield.
struct Region {
  std::vector<Value> args;
  std::vector<OpId> ops;
};

struct GridAxis {
  Extent size;
  std::string name;       // may be empty
  bool parallel = false;  // dimension_semantics says "parallel"
  bool vmapped = false;   // added by vmap: program_id and num_programs do not count it
  /// Of a kernel of threads: behind the grid's own axes those of the cluster, whose programs run together, and last the
  /// threads of a program (warpgroups), which share its smem and barriers.
  enum class Role : uint8_t { grid, cluster, thread };
  Role role = Role::grid;
  bool operator==(const GridAxis&) const = default;
};

/// What is read where a halo block reaches beyond its array: the nearest element, 0, or the array continued by mirrored
/// copies (numpy's reflect, which does not repeat the element at the edge, and symmetric, which does) or by copies.
enum class Edge : uint8_t { clamp, zero, reflect, symmetric, wrap };
std::string_view name(Edge e);
/// The element of an array of `extent` that position `at` of a halo block reads, or -1: none, a 0 is read. An array
/// without elements reads as 0 whatever the edge.
int64_t edge_position(Edge e, int64_t at, int64_t extent);

/// How a dim of an array is cut into blocks, and what the index map yields for it (extent: the array's; below 0,
/// BoundedSlice apart: as many as there are have been added once).
struct BlockDim {
  /// A block's number, clamped to [0, cdiv(extent, size) - 1].
  struct Blocked {
    int64_t size;
    bool operator==(const Blocked&) const = default;
  };
  /// An element's, clamped to [0, extent - 1]: the kernel does not see the dim.
  struct Squeezed {
    bool operator==(const Squeezed&) const = default;
  };
  /// The first element's, clamped so that the block fits into the array padded by `low` and `high`, which is overhang,
  /// and then up to a multiple of the size.
  struct Element {
    int64_t size;
    int64_t low = 0, high = 0;
    bool operator==(const Element&) const = default;
  };
  /// The first element's, clamped to [0, extent - 1], and how many, clamped to [0, size]; the block's other elements
  /// are overhang.
  struct BoundedSlice {
    int64_t size;
    bool operator==(const BoundedSlice&) const = default;
  };
  /// A block's number, as for Blocked. The kernel sees `low` elements before that block and `high` behind it as well;
  /// what lies outside of the array is read as `edge` says.
  struct Halo {
    int64_t size;
    int64_t low = 0, high = 0;
    Edge edge = Edge::clamp;
    bool operator==(const Halo&) const = default;
  };
  std::variant<Blocked, Squeezed, Element, BoundedSlice, Halo> what;

  bool is_blocked() const { return std::holds_alternative<Blocked>(what); }
  bool is_element() const { return std::holds_alternative<Element>(what); }
  bool is_bounded() const { return std::holds_alternative<BoundedSlice>(what); }
  const Halo* halo() const { return std::get_if<Halo>(&what); }
  bool seen() const { return !std::holds_alternative<Squeezed>(what); }
  /// The elements of a block: those that the kernel sees, or one that it does not.
  int64_t size() const;
  /// The elements before and behind that a halo adds to the block or an element dim to the array: a block begins at
  /// index * unit() - low().
  int64_t low() const;
  int64_t high() const;
  /// Array elements from one index to the next.
  int64_t unit() const;
  size_t results() const { return is_bounded() ? 2 : 1; }  // of the index map
  /// A negative index has last_index() and this much added once; 0: it has not.
  int64_t wrap() const { return is_bounded() ? 0 : is_element() ? size() : 1; }
  bool operator==(const BlockDim&) const;
};
/// The index that `given` by an index map means, where `last` is the largest (at least 0): wrapped once, and clamped.
int64_t block_index(const BlockDim& d, int64_t given, int64_t last);
std::string to_string(const BlockDim& d);  ///< "32", "squeezed", "element(4, 1, 2)", "halo(8, 1, 1, zero)": as in text
/// The largest index along a dim of an array; what is below 0 (the array is empty) stands for 0.
Extent last_index(const BlockDim& d, const Extent& extent);

/// How often a block is buffered while programs run one after another, if its BlockSpec says; a hint, no part of what a
/// kernel computes.
struct Buffering {
  enum class Revisit : uint8_t { unsaid, immediate, any };
  int64_t count = 0;  // 0: not said
  bool lookahead = false;
  Revisit revisit = Revisit::unsaid;
  bool operator==(const Buffering&) const = default;
};

/// How one input or output array is cut into blocks.
struct BlockMapping {
  /// The Ref is a block. The index map gets *program_ids (i32, vmapped axes included) and the scalar-prefetch Refs,
  /// from which it may load, and yields one i32 per block dim (two for a bounded one), dim after dim.
  struct Blocks {
    std::vector<BlockDim> dims;
    RegionId index_map;
  };
  /// No BlockSpec: the Ref is the whole array, in memory space any.
  struct Whole {};
  /// An input of rank 0 that the call passes as a number, in no array's memory: in smem, and only loaded.
  struct ByValue {};

  std::string origin;  // "in_specs[0]", "out_specs[1]": for messages
  DType dtype = DType::f32;
  std::vector<Extent> array_shape;
  std::variant<Blocks, Whole, ByValue> what;
  MemorySpace space = MemorySpace::vmem;
  Buffering buffering;
  // outputs: the input (its position among the blocks) with whose contents the array starts, and whose memory it is
  // from then on
  int alias = -1;
  Loc loc;

  /// The Ref has all that there is: no blocks, as a number has none.
  bool is_whole() const { return !std::holds_alternative<Blocks>(what); }
  bool is_by_value() const { return std::holds_alternative<ByValue>(what); }
  /// Dims and index map of the blocks; InternalError if is_whole().
  const std::vector<BlockDim>& block() const { return blocks().dims; }
  std::vector<BlockDim>& block() { return const_cast<Blocks&>(blocks()).dims; }
  const RegionId& index_map() const { return blocks().index_map; }
  RegionId& index_map() { return const_cast<Blocks&>(blocks()).index_map; }
  /// The kernel sees dim d of the array.
  bool seen(size_t d) const { return is_whole() || block()[d].seen(); }

 private:
  const Blocks& blocks() const;
};

/// Boxes of an array that op tensor_load copies: how many elements of each of its dims, in the array's order. The last
/// are 128 bytes.
struct TensorBox {
  int32_t array = 0;  // of the body's arguments
  std::vector<int64_t> box;
  bool operator==(const TensorBox&) const = default;
};

/// What a lane-level kernel needs beyond its body. Body args: one global Ref (rank 1, length -1) per input and output
/// of the tile kernel.
struct LaneInfo {
  int32_t workgroup_size = 1;      // invocations
  int32_t subgroup_size = 0;       // required, with full subgroups; 0: any
  int64_t shared_bytes = 0;        // extent of the alloc_shared offsets
  int64_t scratch_bytes = 0;       // per workgroup, extent of the alloc_scratch offsets
  int64_t report_bytes = 0;        // of the call's report, which op report writes; 0: none
  int64_t max_workgroups = 0;      // 0: launch num_units workgroups; else at most so many (the body loops)
  std::vector<Extent> extents;     // what op extent reads
  std::vector<bool> extent_is_64;  // i64 rather than i32, per extent
  // where loops are cut into dispatches: the extents that are a dispatch's first step (0) and, behind it, its end (all
  // of them)
  int32_t steps_extent = -1;
  // of steps_extent: data decides how many dispatches there are. They are told how (bits: 1 it is not the first, 2 it
  // says whether steps are left), and how many steps
  bool open_ended = false;
  // programs of several workgroups (threads of mosaic_gpu, warpgroups): how many each has, what of shared memory they
  // have in common (extent of the alloc_program offsets), and how many arrivals end a phase of each of its barriers.
  // num_units, workgroup_index and num_workgroups then count programs; the sizes above are those of one workgroup
  int32_t threads = 1;
  int64_t program_bytes = 0;
  std::vector<int32_t> barriers;
  std::vector<TensorBox> tensors;
  Extent num_units = 1;  // workgroups wanted
  bool exact = false;    // no more are launched; else the body handles workgroup_index >= num_units
};

/// What a matrix is in a product (attr kind of matrix_load). The numbers are SPIR-V's.
enum class MatrixUse : uint8_t { left, right, accumulator };

/// Bytes between elements in the shared arena: 4 for every dtype up to 32 bits, else 8.
constexpr int64_t arena_stride(DType t) { return size_bytes(t) == 8 ? 8 : 4; }

/// What tracing noticed and a lint says (engine/lint/README.md).
struct Remark {
  std::string what, note;
  Loc loc;
};

struct Kernel {
  std::string name = "kernel";
  Loc loc;
  Level level = Level::tile;
  std::vector<GridAxis> grid;
  std::vector<BlockMapping> blocks;  // inputs, then outputs
  int num_inputs = 0;
  // the first so many inputs are scalar-prefetch operands: never stored to, whole (or what vmap made of that), in smem
  int num_prefetch = 0;
  std::vector<Type> scratch;         // Ref types
  int num_private_scratch = 0;       // the last so many of scratch are unspecified again at the start of every program
  std::vector<std::string> texts;    // of debug_print and check, by attr text
  std::vector<Extent> sizes;         // tile level only: what op size reads, by attr index
  RegionId body;                     // tile level args: Refs of inputs, outputs, scratch
  LaneInfo lane;                     // lane level only
  CallInfo call;                     // tile level only
  std::vector<Remark> remarks = {};  // tile level only; not in the text form

  std::vector<ValueInfo> values;
  std::vector<Op> ops;
  std::vector<Region> regions;

  /// Where the index map's result for block dim d stands among its results.
  size_t map_result(int block, size_t d) const {
    size_t at = 0;
    for (size_t i = 0; i < d; ++i) at += blocks[static_cast<size_t>(block)].block()[i].results();
    return at;
  }
  /// The body is run by every thread of a program at once: the last axis of the grid counts them.
  bool has_threads() const { return !grid.empty() && grid.back().role == GridAxis::Role::thread; }
  int num_outputs() const { return static_cast<int>(blocks.size()) - num_inputs; }
  const Op& op(OpId o) const { return ops[o.index]; }
  Op& op(OpId o) { return ops[o.index]; }
  const Region& region(RegionId r) const { return regions[r.index]; }
  Region& region(RegionId r) { return regions[r.index]; }
  const ValueInfo& value(Value v) const { return values[v.index]; }
  const Type& type(Value v) const { return values[v.index].type; }
  /// The op that defines v, or null for a region argument.
  const Op* def(Value v) const { return values[v.index].def ? &ops[values[v.index].def.index] : nullptr; }
  const Op& terminator(RegionId r) const { return op(regions[r.index].ops.back()); }
  /// The Ref type a kernel sees for blocks[i]: block dims without squeezed ones, or the whole (static) array.
  Type block_ref_type(int i) const;
  /// "in_specs[0]" style place of argument i is blocks[i].origin; true if i is an output.
  bool is_output(int i) const { return i >= num_inputs; }
  /// The position among the body's arguments that a Ref argument stands for: an index map's Refs are the body's first
  /// ones.
  uint32_t ref_position(Value ref) const {
    const ValueInfo& v = value(ref);
    return v.region == body ? v.number : v.number - static_cast<uint32_t>(grid.size());
  }
  /// Some dim of blocks[i] is a halo dim.
  bool has_halo(int i) const;
  /// Some op stores or copies to body argument i.
  bool is_stored(int i) const;
  /// The output that is aliased to input i, or -1.
  int aliased_output(int i) const;
  /// Input i and the output aliased to it both are whole arrays, or have blocks in space any that never hang over: an
  /// access through one sees at once what went through the other. Otherwise a program sees the input as it was when the
  /// program started.
  bool shares_at_once(int i) const;
  /// What blocks[i] is called if it has no name: "scalar_prefetch[0]", "in_specs[0]", "out_specs[0]".
  std::string usual_origin(int i) const;
  /// What Pallas calls the call in debug output: "matmul for kernel function kernel at samples/matmul.cpp:14"; without
  /// a name of its own "kernel at samples/matmul.cpp:14".
  std::string description() const;
  /// Arguments by value become arrays of rank 0: for callers whose numbers are data on the device.
  void put_values_in_memory();
  /// Names of all run-time sizes in array shapes, grid and sizes, in order of appearance.
  std::vector<std::string> dim_names() const;
};

/// Which dims of an access's value come from which dims of its Ref: one per slice, in order, and those of the arrays'
/// common shape together where the integers and arrays stand, or in front where slices stand between them.
struct AccessDims {
  Shape shape;          // of the value
  bool arrays = false;  // the index has some
  /// Dynamic positions wrap and are clamped, or dropped by stores, one by one and not as a window: where there are
  /// arrays, or a step and a dynamic start.
  bool per_element = false;
  size_t array_at = 0, array_rank = 0;  // the value's dims that they make
  std::vector<int> slice;               // per dim of the Ref: its dim of the value, or -1
  bool is_array_dim(size_t d) const { return d >= array_at && d < array_at + array_rank; }
};
AccessDims access_dims(const Kernel& k, const Op& op);

/// The dims of a product's operands: contracted and batch dims as its attributes give them, pair by pair, and the
/// others of each operand in order. The result's are batch, lhs_free, rhs_free.
struct DotDims {
  std::vector<int64_t> lhs_contract, rhs_contract, lhs_batch, rhs_batch, lhs_free, rhs_free;
};
DotDims dot_dims(const Op& dot, size_t lhs_rank, size_t rhs_rank);
DotDims dot_dims(const Kernel& k, const Op& dot);

/// One of the Refs that a copy names, with its part of the op's index.
struct CopyPlace {
  Value ref;
  size_t first = 0, rank = 0;  // op.index[first, first + rank)
};
/// Of copy_start and copy_wait: source, target, semaphore.
std::array<CopyPlace, 3> copy_places(const Kernel& k, const Op& op);
/// The places of an op on threads, in the order of its operands: a Ref with its part of the index, or a value.
std::vector<CopyPlace> thread_places(const Kernel& k, const Op& op);
/// The shape that a part of an op's index selects, which has no arrays; of a value, its own.
Shape place_shape(const Kernel& k, const Op& op, const CopyPlace& place);
/// What a wgmma sums over.
int64_t wgmma_depth(const Kernel& k, const Op& op);
/// The arguments of every run_scoped of the kernel, in the order of its ops.
std::vector<Value> scoped_refs(const Kernel& k);

/// If v is a constant, its bits (of its dtype, zero-extended).
std::optional<uint64_t> constant_bits(const Kernel& k, Value v);
/// If v is an integer constant, its value as a signed number.
std::optional<int64_t> constant_int(const Kernel& k, Value v);

}  // namespace tessera::ir
