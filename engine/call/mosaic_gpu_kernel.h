// mosaic_gpu::kernel: makes a kernel of threads callable, as JAX's jax.experimental.pallas.mosaic_gpu.kernel.
//   auto add = ts::mosaic_gpu::kernel([](Ref x, Ref o, Ref tile, Ref barrier) { ... },
//                                     {.out_type = {{{1024}, ts::f32}},
//                                      .scratch_types = {mg::SMEM({256}, ts::f32), mg::Barrier{}},
//                                      .grid = {4}, .grid_names = {"i"}, .num_threads = 2, .thread_name = "wg"});
//   ts::Array y = ts::interpret(add, x);
// Every thread of every program runs the body: the Refs of all inputs (whole, in gmem), of the outputs, and of
// scratch_types, which the threads of a program share. The interpreter and NVIDIA's GPUs (PTX) run all such kernels,
// other devices those whose programs have one thread. Read next: engine/front/mosaic_gpu.h.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call/pallas_call.h"
#include "engine/front/mosaic_gpu.h"

namespace tessera::mosaic_gpu {

/// The parameters of JAX's kernel, in its order.
struct KernelParams {
  ShapeDtypes out_shape = {};  ///< the old name of out_type
  ShapeDtypes out_type = {};   ///< the outputs; none: the kernel has no output
  std::vector<ScratchType> scratch_types = {};
  std::vector<ScratchType> scratch_shapes = {};  ///< the old name of scratch_types
  std::optional<CompilerParams> compiler_params = std::nullopt;
  Grid grid = {};
  std::vector<std::string> grid_names = {};  ///< one per axis of the grid: what axis_index() takes
  std::vector<int64_t> cluster = {};         ///< programs that run together, at each point of the grid
  std::vector<std::string> cluster_names = {};
  std::optional<int64_t> num_threads = std::nullopt;  ///< warpgroups of a program; with thread_name or not at all
  std::optional<std::string> thread_name = std::nullopt;
  Interpret interpret = false;
  bool debug = false;                                     ///< prints the kernel where it is traced
  std::optional<std::string> kernel_name = std::nullopt;  ///< a parameter of Mesh; in messages, else "kernel"
};

namespace kernels {
PallasCall make(spec::KernelFunction body, KernelParams params, Loc loc);
}

/// body: a lambda of Refs. Throws SpecError for parameters that do not fit together.
template <class F>
  requires spec::Countable<F>
PallasCall kernel(F body, KernelParams params = {}, Loc loc = Loc::here()) {
  using P = typename spec::Signature<F>::Parameters;
  constexpr bool refs = spec::all_are<Ref, P>;
  static_assert(refs,
                "mosaic_gpu::kernel: every parameter of a body must be a Ref (inputs, then outputs, then scratch)");
  static_assert(std::is_void_v<typename spec::Signature<F>::Result>,
                "mosaic_gpu::kernel: a body returns nothing; it writes to its output Refs");
  constexpr int n = static_cast<int>(std::tuple_size_v<P>);
  return kernels::make({n,
                        [f = std::move(body)](const std::vector<Ref>& r) {
                          [&]<size_t... i>(std::index_sequence<i...>) {
                            f(r[i]...);
                          }(std::make_index_sequence<static_cast<size_t>(n)>{});
                        }},
                       std::move(params), loc);
}
/// out_shape by position, as in JAX.
template <class F>
  requires spec::Countable<F>
PallasCall kernel(F body, ShapeDtypes out_shape, KernelParams params, Loc loc = Loc::here()) {
  params.out_shape = std::move(out_shape);
  return kernel(std::move(body), std::move(params), loc);
}

/// What kernel() without a body returns: it takes the body.
class Decorator {
 public:
  Decorator(KernelParams params, Loc loc) : params_(std::move(params)), loc_(loc) {}
  template <class F>
    requires spec::Countable<F>
  PallasCall operator()(F body) const {
    return kernel(std::move(body), params_, loc_);
  }

 private:
  KernelParams params_;
  Loc loc_;
};
inline Decorator kernel(KernelParams params, Loc loc = Loc::here()) { return {std::move(params), loc}; }

}  // namespace tessera::mosaic_gpu
