// Loops of kernels of mosaic_gpu::kernel: nd_loop deals the points of a grid to the programs or threads along named
// axes; emit_pipeline runs a grid inside one thread whose blocks are copied to smem while others are computed on;
// emit_pipeline_warp_specialized gives the copying to a thread of its own.
//   mg::emit_pipeline([&](const mg::PipelineIndices& i, Ref a, Ref b) { mg::wgmma(acc, a, b); mg::wgmma_wait(0); },
//                     {.grid = {k / 64}, .in_specs = {{{64, 64}, [](Value i) { return Indices{0, i}; }}, ...},
//                      .max_concurrent_steps = 4})(a_gmem, b_gmem);
// Blocks may hang over their Ref: zeros are read there, and stores dropped. Read next: mosaic_gpu.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/mosaic_gpu.h"

namespace tessera::mosaic_gpu {

/// Where a thread is in an nd_loop.
struct NDLoopInfo {
  std::vector<Value> index;  ///< the point of the grid
  Value local_index;         ///< how many this thread has had before
  Value num_local_steps;     ///< how many it gets
};
struct NDLoopParams {
  std::vector<std::string> collective_axes = {};  ///< points are dealt along these in turn
  std::vector<int64_t> tiling = {};               ///< the grid's points tile by tile: divides a grid of numbers
};
namespace loops {
control::Values nd_loop(const std::vector<Operand>& grid, const NDLoopParams& params, const control::Operands& init,
                        FunctionRef<control::Operands(const NDLoopInfo&, const control::Values&)> body, Loc loc);
}
/// body(info), without carries.
template <class F>
void nd_loop(std::vector<Operand> grid, NDLoopParams params, F body, Loc loc = Loc::here()) {
  static_assert(std::is_void_v<decltype(body(std::declval<const NDLoopInfo&>()))>,
                "nd_loop: the body returns a value, but the loop has no carry: give its first value before the body");
  loops::nd_loop(
      grid, params, {},
      [&](const NDLoopInfo& info, const control::Values&) {
        body(info);
        return control::Operands{};
      },
      loc);
}
/// body(info, carries...) returns the next carries; init_carry is a Value, a number or a std::tuple of them.
template <class C, class F>
auto nd_loop(std::vector<Operand> grid, NDLoopParams params, C init_carry, F body, Loc loc = Loc::here()) {
  constexpr int n = control::count<C>;
  static_assert(n >= 0, "nd_loop: the carry must be a Value, a number, or a std::tuple of Values and numbers");
  control::Values result = loops::nd_loop(
      grid, params, control::flatten(init_carry, loc),
      [&](const NDLoopInfo& info, const control::Values& v) { return control::call<n>(body, loc, v, info); }, loc);
  return control::unflatten<n, control::is_tuple<C>::value>(result);
}

/// A point of a pipeline's grid.
using PipelineIndices = std::vector<Value>;
/// How an input or output of a pipeline is cut into blocks: numbers and squeezed dims alone.
struct BlockSpec {
  BlockShape block_shape = {};                   ///< absent: the whole Ref
  IndexMap index_map = {};                       ///< absent: zeros
  MemorySpace memory_space = MemorySpace::smem;  ///< any: the body gets the whole Ref
  std::vector<Transform> transforms = {};        ///< of a block
  /// Steps after which the block is copied over, for products that the body leaves under way.
  int64_t delay_release = 0;
  std::vector<std::string> collective_axes = {};  ///< refused so far
  Loc loc = Loc::here();
};
struct PipelineParams {
  std::vector<Operand> grid = {};  ///< the last axis runs fastest
  std::vector<BlockSpec> in_specs = {};
  std::vector<BlockSpec> out_specs = {};
  int64_t max_concurrent_steps = 1;  ///< buffers of each block
  std::vector<Operand> init_carry = {};
};
/// Calls the pipeline of a compute_context with the first carries, once; returns the last ones.
using PipelineCallback = Function<std::vector<Value>(const std::vector<Operand>&)>;
struct WarpSpecializedParams {
  std::vector<Operand> grid = {};
  int64_t memory_registers = 40;  ///< of the thread that copies
  std::vector<BlockSpec> in_specs = {};
  std::vector<BlockSpec> out_specs = {};  ///< with one computing thread alone
  int64_t max_concurrent_steps = 2;
  std::string wg_axis = {};     ///< thread_name
  int64_t num_compute_wgs = 1;  ///< the threads before the one that copies
  /// The body gets a barrier for each input behind its other Refs, at which every computing thread arrives at each
  /// step.
  bool manual_consumed_barriers = false;
  /// Runs in the computing threads around the pipeline, and gives it carries.
  Function<void(const PipelineCallback&)> compute_context = {};
  std::optional<int64_t> memory_thread_idx = std::nullopt;  ///< num_compute_wgs, which is all that is possible
  std::optional<int64_t> pipeline_state = std::nullopt;     ///< JAX's pipelines of pipelines: refused so far
};

namespace pipelines {
struct Body {
  size_t refs, values;
  Function<control::Operands(const PipelineIndices&, const std::vector<Ref>&, const std::vector<Value>&)> call;
};
std::vector<Value> build(const Body& body, const PipelineParams& params, const std::vector<Ref>& refs, Loc loc);
void build_warp_specialized(const Body& body, const WarpSpecializedParams& params, const std::vector<Ref>& refs,
                            Loc loc);

template <class Tuple>
struct Rest;
template <class First, class... P>
struct Rest<std::tuple<First, P...>> {
  static constexpr bool indices = std::same_as<std::remove_cvref_t<First>, PipelineIndices>;
  using Parameters = std::tuple<P...>;
};
template <class F>
Body make_body(F body, Loc loc) {
  static_assert(spec::Countable<F>,
                "emit_pipeline: the body's parameters must be spelled out (not auto), so that they can be counted");
  using First = Rest<typename spec::Signature<F>::Parameters>;
  using P = typename First::Parameters;
  using R = std::remove_cvref_t<typename spec::Signature<F>::Result>;
  constexpr int refs = spec::leading_refs<P>;
  static_assert(First::indices && refs >= 0,
                "emit_pipeline: the body takes PipelineIndices, then Refs, then Values (one per carry)");
  constexpr size_t num_refs = refs < 0 ? 0 : static_cast<size_t>(refs), values = std::tuple_size_v<P> - num_refs;
  static_assert(control::count<R> == static_cast<int>(values),
                "emit_pipeline: the body must return as many Values as it takes");
  return {num_refs, values,
          [body = std::move(body), loc](const PipelineIndices& indices, [[maybe_unused]] const std::vector<Ref>& r,
                                        [[maybe_unused]] const std::vector<Value>& v) -> control::Operands {
            static_cast<void>(loc);
            return [&]<size_t... i, size_t... j>(std::index_sequence<i...>,
                                                 std::index_sequence<j...>) -> control::Operands {
              if constexpr (std::is_void_v<R>) {
                body(indices, r[i]..., v[j]...);
                return {};
              } else {
                return control::flatten<R>(body(indices, r[i]..., v[j]...), loc);
              }
            }(std::make_index_sequence<num_refs>{}, std::make_index_sequence<values>{});
          }};
}
}  // namespace pipelines

/// What the emit functions return: called with the Refs of in_specs and then of out_specs, in gmem.
template <class Params, auto emit_it>
class PipelineOf {
 public:
  PipelineOf(pipelines::Body body, Params params, Loc loc)
      : body_(std::move(body)), params_(std::move(params)), loc_(loc) {}
  template <class... R>
    requires(std::convertible_to<const R&, Ref> && ...)
  auto operator()(const R&... refs) const {
    return emit_it(body_, params_, std::vector<Ref>{refs...}, loc_);
  }

 private:
  pipelines::Body body_;
  Params params_;
  Loc loc_;
};
/// body(indices, inputs..., outputs..., carries...). Called, it returns the last carries. Where a program has several
/// threads, emit_pipeline_warp_specialized is the one to take.
template <class F>
auto emit_pipeline(F body, PipelineParams params, Loc loc = Loc::here()) {
  return PipelineOf<PipelineParams, pipelines::build>(pipelines::make_body(std::move(body), loc), std::move(params),
                                                      loc);
}
/// All threads of a program call it together. With a compute_context the body takes and returns carries.
template <class F>
auto emit_pipeline_warp_specialized(F body, WarpSpecializedParams params, Loc loc = Loc::here()) {
  return PipelineOf<WarpSpecializedParams, pipelines::build_warp_specialized>(
      pipelines::make_body(std::move(body), loc), std::move(params), loc);
}

/// The widest swizzle that rows of so many bits fill. SpecError if there is none.
int64_t find_swizzle(int64_t minor_dim_bits, std::string_view what = {}, Loc loc = Loc::here());

}  // namespace tessera::mosaic_gpu
