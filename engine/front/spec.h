// The parameters around a kernel: the grid, how each array is cut into blocks, scratch memory. Plain structs in
// Pallas's words; checked when pallas_call is made or first called, with errors that name the place (in_specs[1]) and
// the line. Read next: engine/call/pallas_call.h (which takes these), engine/call/grid_mapping.h (their canonical
// form).
#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/array.h"
#include "engine/base/function.h"
#include "engine/front/ref.h"

namespace tessera {

using ir::Edge;
using ir::MemorySpace;

/// Elements from `start` on, as many as a Value says: what an index map returns for a BoundedSlice dim.
struct DynamicSlice {
  Operand start, size;
};
DynamicSlice ds(Operand start, const Value& size, Loc l = Loc::here());

/// What an index map returns for one block dim: an index, or for a BoundedSlice dim ts::ds(start, size).
struct BlockIndex {
  Operand start, size;  // size: absent but for slices
  Loc stepped = {};     // of a slice with a step, which is refused
  template <class T>
  // NOLINT: implicit on purpose, all of them
    requires std::convertible_to<T&&, Operand>
  BlockIndex(T&& index, Loc l = Loc::here()) : start(Operand(std::forward<T>(index), l)) {}
  // NOLINT
  BlockIndex(Operand index);              // NOLINT
  BlockIndex(DynamicSlice s);             // NOLINT
  BlockIndex(Ds s, Loc l = Loc::here());  // NOLINT
};

/// What an index map returns: one block index per block dim (an element index for a squeezed one).
struct Indices {
  std::vector<BlockIndex> values;
  Indices(std::initializer_list<BlockIndex> v);
  explicit Indices(std::vector<BlockIndex> v);
};

namespace spec {
/// The parameters of a callable that is not generic: Signature<F>::Parameters is a std::tuple, ::Result the return
/// type.
template <class M>
struct Method;
template <class C, class R, class... P>
struct Method<R (C::*)(P...)> {
  using Result = R;
  using Parameters = std::tuple<P...>;
};
template <class C, class R, class... P>
struct Method<R (C::*)(P...) const> : Method<R (C::*)(P...)> {};
template <class C, class R, class... P>
struct Method<R (C::*)(P...) noexcept> : Method<R (C::*)(P...)> {};
template <class C, class R, class... P>
struct Method<R (C::*)(P...) const noexcept> : Method<R (C::*)(P...)> {};
template <class F>
struct Signature : Method<decltype(&F::operator())> {};
template <class R, class... P>
struct Signature<R (*)(P...)> {
  using Result = R;
  using Parameters = std::tuple<P...>;
};
template <class F>
concept Countable = std::is_pointer_v<F> || requires { &F::operator(); };
/// A parameter of type P takes a T by value or const reference.
template <class T, class P>
inline constexpr bool takes = std::same_as<std::remove_cvref_t<P>, T> && !std::is_rvalue_reference_v<P> &&
                              (!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>);
template <class T, class Tuple>
inline constexpr bool all_are = false;
template <class T, class... P>
inline constexpr bool all_are<T, std::tuple<P...>> = (takes<T, P> && ...);
/// How many Values come first in a tuple of Values and then Refs; -1 for any other tuple.
template <class Tuple>
inline constexpr int leading_values = -1;
template <class... P>
inline constexpr int leading_values<std::tuple<P...>> = [] {
  int values = 0, refs = 0;
  bool good = true;
  ((takes<Value, P> ? (good &= refs == 0, ++values) : takes<Ref, P> ? ++refs : (good = false, 0)), ...);
  return good ? values : -1;
}();
/// How many Refs come first in a tuple of Refs and then Values; -1 for any other tuple.
template <class Tuple>
inline constexpr int leading_refs = -1;
template <class... P>
inline constexpr int leading_refs<std::tuple<P...>> = [] {
  int values = 0, refs = 0;
  bool good = true;
  ((takes<Ref, P> ? (good &= values == 0, ++refs) : takes<Value, P> ? ++values : (good = false, 0)), ...);
  return good ? refs : -1;
}();
}  // namespace spec

/// From program ids to block indices: a lambda that takes one Value per grid axis, then one Ref per scalar-prefetch
/// operand (or none of them), and returns ts::Indices, or a single Value or integer. Absent: all zeros.
class IndexMap {
 public:
  IndexMap() = default;
  template <class F>
    requires(!std::same_as<std::decay_t<F>, IndexMap> && !std::integral<std::decay_t<F>> &&
             !std::same_as<std::decay_t<F>, std::nullopt_t>)
  IndexMap(F f) {  // NOLINT: implicit on purpose
    static_assert(spec::Countable<F>,
                  "an index map's parameters must be spelled as Value (not auto), so that they can be counted");
    if constexpr (spec::Countable<F>) {
      using S = spec::Signature<F>;
      using P = typename S::Parameters;
      using R = std::remove_cvref_t<typename S::Result>;
      constexpr int values = spec::leading_values<P>;
      constexpr bool slice = std::same_as<R, DynamicSlice> || std::same_as<R, Ds>;
      constexpr bool good_result = std::same_as<R, Indices> || std::same_as<R, Value> || std::same_as<R, RefItem> ||
                                   slice || (std::integral<R> && !std::same_as<R, bool>);
      static_assert(values >= 0,
                    "an index map takes one Value per grid axis, then one Ref per scalar-prefetch operand");
      static_assert(good_result, "an index map returns ts::Indices{...}, or one Value or integer");
      if constexpr (values >= 0 && good_result) {
        constexpr size_t num_refs = std::tuple_size_v<P> - static_cast<size_t>(values);
        arity_ = values;
        num_refs_ = static_cast<int>(num_refs);
        call_ = [f = std::move(f)]([[maybe_unused]] const std::vector<Value>& ids,
                                   [[maybe_unused]] const std::vector<Ref>& refs) {
          return [&]<size_t... i, size_t... r>(std::index_sequence<i...>, std::index_sequence<r...>) -> Indices {
            if constexpr (std::same_as<R, Indices>) return f(ids[i]..., refs[r]...);
            else if constexpr (slice) return Indices{BlockIndex(f(ids[i]..., refs[r]...))};
            else if constexpr (std::same_as<R, RefItem>)
              return Indices{BlockIndex(Operand(Value(f(ids[i]..., refs[r]...)), Loc{}))};
            else return Indices{BlockIndex(Operand(f(ids[i]..., refs[r]...), Loc{}))};
          }(std::make_index_sequence<static_cast<size_t>(values)>{}, std::make_index_sequence<num_refs>{});
        };
      }
    }
  }
  using Function = tessera::Function<Indices(const std::vector<Value>&, const std::vector<Ref>&)>;
  /// For a map whose number of parameters is known only at run time.
  static IndexMap of(int arity, int num_refs, Function call);
  bool given() const { return call_ != nullptr; }
  int arity() const { return arity_; }        ///< program ids
  int num_refs() const { return num_refs_; }  ///< scalar-prefetch Refs
  Indices operator()(const std::vector<Value>& program_ids, const std::vector<Ref>& prefetch) const;

 private:
  Function call_;
  int arity_ = 0, num_refs_ = 0;
};

/// A block dim of size one that the kernel does not see. Same as std::nullopt there.
struct Squeezed {};
inline constexpr Squeezed squeezed{};
/// The ordinary kind: a number n means Blocked(n).
struct Blocked {
  int64_t size;
};
/// Indexed by elements rather than blocks: the index map returns the block's first element, in the array with `padding`
/// elements before and behind it, which are read as unspecified and never stored. Blocks may overlap. An index wraps
/// once and is clamped so that the block fits there (then the array is padded up to a multiple of the size).
struct Element {
  int64_t size;
  std::pair<int64_t, int64_t> padding = {0, 0};
};
/// Of a size known at run time, at most this: the index map returns ts::ds(start, size). The kernel sees `size`
/// elements, and those beyond the slice's end are read as unspecified and never stored. The start is clamped to the
/// array's elements, the size to [0, size].
struct BoundedSlice {
  int64_t size;
};
/// A block and what is around it: the index map returns a block's number as for Blocked(size), and the kernel sees
/// `around` elements before that block and behind it as well (as many on both sides, or {before, behind}). Positions
/// outside of the array are read as `edge` says, whatever the array's size, also by a last block that hangs over: no
/// element is unspecified. In an array without elements all are 0. For inputs alone, which the call does not write.
struct Halo {
  Halo(int64_t block_size, int64_t both_sides, Edge e) : Halo(block_size, {both_sides, both_sides}, e) {}
  Halo(int64_t block_size, std::pair<int64_t, int64_t> before_and_behind, Edge e)
      : size(block_size), around(before_and_behind), edge(e) {}
  int64_t size;
  std::pair<int64_t, int64_t> around;
  Edge edge;
};
enum class RevisitMode : uint8_t { immediate, any };
/// How often a block is buffered in a pipeline, and whether an output's block is come back to after others. Hints: what
/// a kernel computes does not depend on them, and blocks may be revisited at any time. On GPUs inputs' blocks are
/// prefetched one step early unless by Buffered(1): `tessera explain`.
struct Buffered {
  int64_t count;
  bool use_lookahead = false;
  std::optional<RevisitMode> revisit = std::nullopt;
};

class BlockDim {
 public:
  using Kind = std::variant<Blocked, Squeezed, Element, BoundedSlice, Halo, Extent>;
  template <std::integral T>
  BlockDim(T size) : BlockDim(Blocked{static_cast<int64_t>(size)}) {}  // NOLINT: implicit on purpose, all of them
  // Not inline, and neither are copies: a program compiles Tessera's headers faster.
  BlockDim(Squeezed);        // NOLINT
  BlockDim(std::nullopt_t);  // NOLINT
  BlockDim(Blocked b);       // NOLINT
  BlockDim(Element e);       // NOLINT
  BlockDim(BoundedSlice b);  // NOLINT
  BlockDim(Halo h);          // NOLINT
  BlockDim(Extent e);        // NOLINT: refused unless static
  BlockDim(const BlockDim&);
  BlockDim(BlockDim&&) noexcept;
  BlockDim& operator=(const BlockDim&);
  BlockDim& operator=(BlockDim&&) noexcept;
  ~BlockDim();
  const Kind& kind() const { return kind_; }

 private:
  Kind kind_;
};
std::string to_string(const std::vector<BlockDim>& block);  ///< "(32, squeezed)"

/// Absent, or one BlockDim per array dim.
class BlockShape {
 public:
  BlockShape() = default;
  BlockShape(std::nullopt_t) {}  // NOLINT: implicit on purpose
  BlockShape(std::initializer_list<BlockDim> dims);
  BlockShape(std::vector<BlockDim> dims);  // NOLINT
  const std::optional<std::vector<BlockDim>>& dims() const { return dims_; }

 private:
  std::optional<std::vector<BlockDim>> dims_;
};

/// How one array is cut into blocks. Without a block shape the block is the whole array; without an index map the
/// indices are zeros.
struct BlockSpec {
  BlockShape block_shape = {};
  IndexMap index_map = {};
  MemorySpace memory_space = MemorySpace::vmem;
  std::optional<Buffered> pipeline_mode = std::nullopt;
  Loc loc = Loc::here();
  bool whole = false;                         ///< set by NoBlockSpec
  std::optional<DType> value = std::nullopt;  ///< set by by_value()
};
/// An argument of rank 0 that calls pass as a number, not as an array: .in_specs = {..., ts::by_value(ts::f32)},
/// call(x, 0.5f). The kernel's Ref has rank 0 and is only read: Value scale = s[all]. Another number compiles nothing.
/// Under vmap with a batch axis, and in jit, where numbers are data, it is an array.
BlockSpec by_value(DType dtype, Loc loc = Loc::here());
/// In place of a BlockSpec, or of a list of them: the kernel's Ref is the whole array, in memory space any.
struct NoBlockSpec {
  operator BlockSpec() const;  // NOLINT: implicit on purpose
};
inline constexpr NoBlockSpec no_block_spec{};

/// in_specs or out_specs: absent (NoBlockSpec for each array) or one per array.
class BlockSpecs {
 public:
  BlockSpecs() = default;
  BlockSpecs(NoBlockSpec);    // NOLINT: implicit on purpose
  BlockSpecs(BlockSpec one);  // NOLINT
  BlockSpecs(std::initializer_list<BlockSpec> specs);
  BlockSpecs(std::vector<BlockSpec> specs);  // NOLINT
  const std::optional<std::vector<BlockSpec>>& list() const { return specs_; }

 private:
  std::optional<std::vector<BlockSpec>> specs_;
};

/// A grid axis whose size arrives with each call: call(ts::GridSizes{n}, x). The kernel is traced and compiled once for
/// all sizes.
struct DynamicGridDim {};
inline constexpr DynamicGridDim dynamic_grid_dim{};
/// The sizes of a grid's dynamic axes, in order; or of named sizes that no argument's shape gives: {{"n", 5}}.
class GridSizes {
 public:
  GridSizes() = default;
  GridSizes(std::initializer_list<int64_t> sizes);
  explicit GridSizes(std::vector<int64_t> sizes);
  explicit GridSizes(DimValues named);
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const DimValues& named() const { return named_; }

 private:
  std::vector<int64_t> sizes_;
  DimValues named_;
};

/// The size of one grid axis: an integer or Extent, with a name if wanted ({"i", 4}). A floating number is refused by
/// pallas_call.
class GridSize {
 public:
  GridSize(DynamicGridDim);  // NOLINT: implicit on purpose
  GridSize(const char* name, DynamicGridDim);
  GridSize(Extent size);  // NOLINT
  template <std::integral T>
  GridSize(T size) : GridSize(Extent(static_cast<int64_t>(size))) {}  // NOLINT
  template <std::floating_point T>
  GridSize(T size) : not_an_integer_(static_cast<double>(size)) {}  // NOLINT
  GridSize(const char* name, Extent size);
  const Extent& size() const { return size_; }
  const std::string& name() const { return name_; }
  const std::optional<double>& not_an_integer() const { return not_an_integer_; }
  bool dynamic() const { return dynamic_; }

 private:
  Extent size_;
  std::string name_;
  std::optional<double> not_an_integer_;
  bool dynamic_ = false;
};
/// The grid's axes, first the outermost. () is one program.
class Grid {
 public:
  Grid() = default;
  Grid(std::initializer_list<GridSize> axes);
  Grid(std::vector<GridSize> axes);  // NOLINT: implicit on purpose
  template <class T>
    requires(std::integral<T> || std::floating_point<T> || std::same_as<T, Extent> || std::same_as<T, DynamicGridDim>)
  Grid(T size) : Grid({GridSize(std::move(size))}) {}  // NOLINT: a grid of one axis
  const std::vector<GridSize>& axes() const { return axes_; }

 private:
  std::vector<GridSize> axes_;
};

/// Memory of the kernel's own: as scratch it lives as long as the call and keeps its contents from program to program,
/// in run_scoped (scope.h) as long as the body runs.
struct ScratchShape {
  Shape shape;
  DType dtype;
  MemorySpace memory_space;
};
ScratchShape VMEM(Shape shape, DType dtype);
ScratchShape SMEM(Shape shape, DType dtype);
ScratchShape ANY(Shape shape, DType dtype);
ScratchShape HBM(Shape shape, DType dtype);
ScratchShape GMEM(Shape shape, DType dtype);

/// Semaphores, one or an array of them. REGULAR ones are signalled and waited for, DMA ones count the bytes of copies.
struct SemaphoreType {
  static ScratchShape REGULAR(Shape shape = {});
  static ScratchShape DMA(Shape shape = {});
  /// For waiting on other devices: always a SpecError, since a kernel runs on one.
  static ScratchShape BARRIER(Shape shape = {}, Loc loc = Loc::here());
};

/// grid, in_specs, out_specs and scratch_shapes in one. The first num_scalar_prefetch arguments of the call are
/// scalar-prefetch operands: whole arrays in smem that the kernel and the index maps may load from. They have no
/// in_specs.
struct GridSpec {
  int num_scalar_prefetch = 0;
  Grid grid = {};
  BlockSpecs in_specs = {};
  BlockSpecs out_specs = {};
  std::vector<ScratchShape> scratch_shapes = {};
};
using PrefetchScalarGridSpec = GridSpec;

}  // namespace tessera
