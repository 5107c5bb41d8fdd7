// What kernels of mosaic_gpu::kernel (engine/call/mosaic_gpu_kernel.h) are written with: memory and barriers that the
// threads of a program share, copies between gmem and smem that run beside them, and wgmma. A thread is a warpgroup.
//   namespace mg = tessera::mosaic_gpu;
//   mg::copy_gmem_to_smem(x[{ds(i * 64, 64), all}], tile[slot], full[slot]);    // an arrival of that barrier
//   mg::barrier_wait(full[slot]);
// A part of a Ref is a place here, and is not read. Read next: mosaic_gpu.md (what there is and what is refused),
// mosaic_gpu_pipeline.h (emit_pipeline, nd_loop).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/control.h"
#include "engine/front/scope.h"
#include "engine/front/spec.h"

namespace tessera::mosaic_gpu {

/// Elements lie in tiles of this shape, of the last dims.
struct TilingTransform {
  Shape tiling;
};
/// Elements are swizzled over so many bytes: 16 (not at all), 32, 64 or 128.
struct SwizzleTransform {
  int64_t swizzle;
};
/// How elements of smem lie, which changes no value. wgmma wants tiles of 8 rows and as many bytes as the swizzle.
using Transform = std::variant<TilingTransform, SwizzleTransform>;

/// Threads arrive there and wait for the ends of its phases; each phase has num_arrivals arrivals, copies among them.
/// num_barriers of them are an array: b[i].
struct Barrier {
  int64_t num_arrivals = 1;
  std::variant<int64_t, Shape> num_barriers = int64_t{1};
  bool orders_tensor_core = false;  ///< Blackwell's: refused
};
/// The programs of a cluster that differ along these axes alone arrive and wait together, num_arrivals of each.
struct ClusterBarrier {
  std::vector<std::string> collective_axes = {};
  std::variant<int64_t, Shape> num_barriers = int64_t{1};
  int64_t num_arrivals = 1;
  bool orders_tensor_core = false;  ///< Blackwell's: refused
};

/// Memory, barriers or an accumulator: what scratch_types and run_scoped list.
class ScratchType {
 public:
  ScratchType(ScratchShape s, Loc l = Loc::here());           // NOLINT: implicit on purpose, all of them
  ScratchType(const Barrier& b, Loc l = Loc::here());         // NOLINT
  ScratchType(const ClusterBarrier& b, Loc l = Loc::here());  // NOLINT
  ScratchType(ScratchShape s, std::vector<Transform> transforms, Loc loc);

  MemorySpace space() const { return shape_.memory_space; }
  Loc loc() const { return loc_; }
  /// In a kernel with these axes; `place` is "matmul: scratch_types[1]". SpecError where it does not fit.
  ir::Type type(const ir::Kernel& k, const std::string& place) const;

 private:
  ScratchShape shape_;
  std::vector<Transform> transforms_ = {};
  int64_t arrivals_ = 1;
  std::vector<std::string> axes_ = {};
  bool orders_tensor_core_ = false;
  Loc loc_;
};

/// Memory that the threads of a program share.
inline ScratchType SMEM(Shape shape, DType dtype, std::vector<Transform> transforms = {}, Loc loc = Loc::here()) {
  return {ScratchShape{std::move(shape), dtype, MemorySpace::smem}, std::move(transforms), loc};
}
/// Memory that all programs share.
inline ScratchType GMEM(Shape shape, DType dtype, Loc loc = Loc::here()) {
  return {ScratchShape{std::move(shape), dtype, MemorySpace::any}, {}, loc};
}
/// An accumulator of wgmma, a thread's own: zeros at first. acc[all] waits for the products under way.
inline ScratchType ACC(Shape shape, DType dtype = f32, Loc loc = Loc::here()) {
  return {ScratchShape{std::move(shape), dtype, MemorySpace::accumulator}, {}, loc};
}
inline ScratchType WGMMAAccumulatorRef(Shape shape, DType dtype = f32, Loc loc = Loc::here()) {
  return ACC(std::move(shape), dtype, loc);
}

/// This program's or thread's position along an axis of grid_names, cluster_names or thread_name; of several, in
/// row-major order.
Value axis_index(std::string_view axis, Loc loc = Loc::here());
Value axis_index(const std::vector<std::string>& axes, Loc loc = Loc::here());
Value axis_index(std::initializer_list<const char*> axes, Loc loc = Loc::here());
Value axis_size(std::string_view axis, Loc loc = Loc::here());
Value axis_size(const std::vector<std::string>& axes, Loc loc = Loc::here());
Value axis_size(std::initializer_list<const char*> axes, Loc loc = Loc::here());

/// One arrival. At a ClusterBarrier: in every program along its axes.
void barrier_arrive(Place barrier, Loc loc = Loc::here());
/// Waits for the end of the first phase that this thread has not waited for.
void barrier_wait(Place barrier, Loc loc = Loc::here());

/// What a copy brings from beyond the array: zeros, always; the others allow anything there.
enum class OOBFillMode : uint8_t { zeros, undefined, promise_in_bounds };
struct CopyToSmem {
  /// Each program along these axes of the cluster brings its share of the elements to all of them.
  std::vector<std::string> collective_axes = {};
  OOBFillMode oob_mode = OOBFillMode::zeros;
  /// JAX's leader_tracked and partitioned copies, for Blackwell's products of two blocks: refused.
  std::optional<int64_t> partitioned_axis = std::nullopt;
};
/// Begins to copy, and arrives at the barrier, whose phase ends no earlier than the copy. The barrier is one of this
/// program. Windows may hang over the source.
void copy_gmem_to_smem(Place source, Place target, Place barrier, CopyToSmem params = {}, Loc loc = Loc::here());

struct CopyToGmem {
  Operand predicate = {};  ///< nothing is copied where this is false
  bool commit_group = true;
  /// "add", "min", "max", "and", "or" or "xor": combines with what is there.
  std::optional<std::string> reduction_op = std::nullopt;
};
/// Begins to copy. What was stored to smem needs a commit_smem() before. Windows may hang over the target.
void copy_smem_to_gmem(Place source, Place target, CopyToGmem params = {}, Loc loc = Loc::here());
/// What was stored to smem before is seen by copies and products that begin after it.
void commit_smem(Loc loc = Loc::here());
/// This thread's copies to gmem since the last one are a group.
void commit_smem_to_gmem_group(Loc loc = Loc::here());
/// Waits until at most n of this thread's groups are under way; wait_read_only: until all others have been read.
void wait_smem_to_gmem(int64_t n, bool wait_read_only = false, Loc loc = Loc::here());

/// An operand of wgmma: smem, its transpose, or for the left one a value.
struct Factor {
  Factor(Place p) : place(std::move(p)) {}                           // NOLINT: implicit on purpose, all of them
  Factor(const Ref& r, Loc l = Loc::here()) : place(Place(r, l)) {}  // NOLINT
  Factor(RefItem&& item) : place(Place(std::move(item))) {}          // NOLINT
  Factor(const Value& v) : value(v) {}                               // NOLINT
  std::optional<Place> place;
  std::optional<Value> value;
  bool transposed = false;
};
/// perm is {1, 0}.
Factor transpose_ref(Place ref, const std::vector<int64_t>& perm = {1, 0}, Loc loc = Loc::here());
/// Begins acc += a @ b.
void wgmma(Place acc, Factor a, Factor b, Loc loc = Loc::here());
/// Waits until at most n of this thread's products are under way.
void wgmma_wait(int64_t n, Loc loc = Loc::here());
/// acc[all], once at most wait_n products are under way; only 0 can be told.
Value wgmma_accumulator_load(const Ref& acc, int64_t wait_n = 0, Loc loc = Loc::here());

/// Registers of each invocation of this thread from here on; a hint. action: "increase" or "decrease".
void set_max_registers(int64_t n, std::string_view action, Loc loc = Loc::here());

/// How the elements of a value lie in registers: a hint that changes no value.
enum class Layout : uint8_t { WGMMA, WGMMA_ROW, WGMMA_COL, WG_SPLAT, WG_STRIDED, WGMMA_TRANSPOSED };
inline Value layout_cast(const Value& x, Layout) { return x; }
inline Value load(const Ref& src, RefIndex index, Layout = Layout::WG_STRIDED) {
  return tessera::load(src, std::move(index));
}

struct RunScopedParams {
  /// thread_name: all threads of the program enter together and share the memory. Needed for smem and barriers where
  /// there are several threads; accumulators are each thread's own and take none.
  std::vector<std::string> collective_axes = {};
};
namespace scoped {
control::Values run(const std::vector<ScratchType>& types, size_t refs, const RunScopedParams& params,
                    FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc);
}
/// As tessera::run_scoped, of ScratchTypes.
template <class F>
auto run_scoped(F body, std::vector<ScratchType> types, RunScopedParams params = {}, Loc loc = Loc::here()) {
  static_assert(spec::Countable<F>,
                "run_scoped: the body's parameters must be spelled as Ref (not auto), so that they can be counted");
  using P = typename spec::Signature<F>::Parameters;
  using R = std::remove_cvref_t<typename spec::Signature<F>::Result>;
  constexpr int n = control::count<R>;
  static_assert(spec::all_are<Ref, P>, "run_scoped: every parameter of the body must be a Ref");
  static_assert(n >= 0, "run_scoped: the body must return nothing, a Value, a number, or a std::tuple of them");
  constexpr size_t refs = std::tuple_size_v<P>;
  const control::Values results = scoped::run(
      types, refs, params,
      [&](const std::vector<Ref>& r) { return scope::call(body, r, loc, std::make_index_sequence<refs>{}); }, loc);
  return control::unflatten<n, control::is_tuple<R>::value>(results);
}

/// An argument of what is refused, with the user's line.
struct Anything {
  Anything(Loc l = Loc::here()) : loc(l) {}  // NOLINT: implicit on purpose
  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Anything> && !std::same_as<std::remove_cvref_t<T>, Loc>)
  Anything(const T&, Loc l = Loc::here()) : loc(l) {}  // NOLINT
  Loc loc;
};
/// What Mosaic GPU has for Blackwell, for other devices and for its own dialect: a CompileError that says so.
[[noreturn]] void refuse(std::string_view name, std::string_view why, Loc loc);
// clang-format off
#define TESSERA_REFUSED(name, why)                                                                            \
  [[noreturn]] inline void name(const Anything& first = Loc::here(), const Anything& = {}, const Anything& = {}, \
                                const Anything& = {}, const Anything& = {}, const Anything& = {},              \
                                const Anything& = {}, const Anything& = {}) {                                  \
    refuse(#name, why, first.loc);                                                                             \
  }
TESSERA_REFUSED(tcgen05_mma, "tcgen05 is Blackwell's, and Tessera has Hopper's wgmma")
TESSERA_REFUSED(tcgen05_commit_arrive, "tcgen05 is Blackwell's, and Tessera has Hopper's wgmma")
TESSERA_REFUSED(TMEM, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(commit_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(wait_load_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(async_load_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(async_store_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(async_copy_scales_to_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(async_copy_smem_to_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(async_copy_sparse_metadata_to_tmem, "tensor memory is Blackwell's; accumulators are ACC")
TESSERA_REFUSED(try_cluster_cancel, "clusters are cancelled on Blackwell alone")
TESSERA_REFUSED(query_cluster_cancel, "clusters are cancelled on Blackwell alone")
TESSERA_REFUSED(remote_ref, "memory of other devices: a kernel runs on one")
TESSERA_REFUSED(multicast_ref, "memory of other devices: a kernel runs on one")
TESSERA_REFUSED(multimem_store, "memory of other devices: a kernel runs on one")
TESSERA_REFUSED(multimem_load_reduce, "memory of other devices: a kernel runs on one")
TESSERA_REFUSED(semaphore_signal_multicast, "semaphores of other devices: a kernel runs on one")
TESSERA_REFUSED(inline_mgpu, "code of JAX's own dialect; write it in ops of Tessera")
TESSERA_REFUSED(barrier_test, "not built yet; barrier_wait is")
TESSERA_REFUSED(async_prefetch, "not built yet; copy_gmem_to_smem is")
TESSERA_REFUSED(async_store_smem, "not built yet; store to smem and commit_smem() is")
TESSERA_REFUSED(RefUnion, "not built yet; give each its own SMEM")
TESSERA_REFUSED(cluster_ref, "not built yet; copy_gmem_to_smem has collective_axes")
TESSERA_REFUSED(dynamic_scheduling_loop, "not built yet; nd_loop is")
TESSERA_REFUSED(warp_map, "not built yet; a thread is a warpgroup")
TESSERA_REFUSED(WarpMesh, "not built yet; a thread is a warpgroup")
TESSERA_REFUSED(griddepcontrol_wait, "not built yet; kernels run one after another")
TESSERA_REFUSED(griddepcontrol_launch_dependents, "not built yet; kernels run one after another")
TESSERA_REFUSED(print_layout, "not built yet; layouts are hints here")
#undef TESSERA_REFUSED
// clang-format on

}  // namespace tessera::mosaic_gpu
