// pallas_call: makes a kernel over blocks callable with arrays.
//   auto add = ts::pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; }, {.out_shape = {{{n}, ts::f32}}});
//   ts::Array z = add(x, y);                    // on the best Vulkan device (links the runtime)
//   ts::Array r = ts::interpret(add, x, y);     // on the host
//   std::cout << add.trace({{{n}, ts::f32}, {{n}, ts::f32}});   // its IR
// The kernel lambda is traced at the first call with given input shapes and dtypes. Read next: front/spec.h, call.h,
// vmap.h.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/array.h"
#include "engine/base/function.h"
#include "engine/base/scalar.h"
#include "engine/call/call.h"
#include "engine/call/compiler_params.h"
#include "engine/call/grid_mapping.h"
#include "engine/front/ref.h"
#include "engine/front/spec.h"
#include "engine/interpreter/interpreter.h"
#include "engine/lint/lint.h"

namespace tessera {

/// The shapes and dtypes of arrays, or absent: {{{m, n}, f16}}, one {shape, dtype} per array.
class ShapeDtypes {
 public:
  ShapeDtypes() = default;
  ShapeDtypes(ShapeDtype one) : list_(std::vector<ShapeDtype>{std::move(one)}) {}  // NOLINT: implicit on purpose
  ShapeDtypes(std::initializer_list<ShapeDtype> list) : list_(std::vector<ShapeDtype>(list)) {}
  ShapeDtypes(std::vector<ShapeDtype> list) : list_(std::move(list)) {}  // NOLINT
  const std::optional<std::vector<ShapeDtype>>& list() const { return list_; }

 private:
  std::optional<std::vector<ShapeDtype>> list_;
};

/// pallas_call's interpret: false, true, or how the interpreter is to run: ts::InterpretOptions{.races = true}.
class Interpret {
 public:
  // NOLINT: implicit on purpose
  Interpret(bool on = false) : options_(on ? std::optional(InterpretOptions{}) : std::nullopt) {}
  Interpret(InterpretOptions options) : options_(std::move(options)) {}  // NOLINT
  const std::optional<InterpretOptions>& options() const { return options_; }

 private:
  std::optional<InterpretOptions> options_;
};

/// What a call takes: an array, or a number for an argument by value.
template <class T>
concept CallArgument = std::convertible_to<const T&, Array> || ScalarNumber<T>;
/// Numbers alone are a call inside of jit; by value they are given as ts::Scalar(x).
template <class... A>
concept CallArguments = (CallArgument<A> && ...) && (sizeof...(A) == 0 || (!std::is_arithmetic_v<A> || ...));

/// The parameters of jax.experimental.pallas.pallas_call, in its order, and in_shape.
struct PallasCallParams {
  ShapeDtypes out_shape = {};                        ///< required
  std::optional<GridSpec> grid_spec = std::nullopt;  ///< instead of grid, in_specs, out_specs and scratch_shapes
  Grid grid = {};
  BlockSpecs in_specs = {};
  BlockSpecs out_specs = {};
  std::vector<ScratchShape> scratch_shapes = {};
  /// Inputs, scalar-prefetch operands counted, to outputs of the same shape and dtype, which start with the input's
  /// contents: blocks that no program visits keep them. Programs see the input as it is when they start. The caller's
  /// array stays as it was (runtime: unless it is donated).
  std::map<int, int> input_output_aliases = {};
  /// Prints to std::cout: where the kernel is traced, its grid mapping and text form; where it is compiled, the
  /// lane-level kernel and the SPIR-V.
  bool debug = false;
  Interpret interpret = false;                     ///< calls run the interpreter
  std::optional<std::string> name = std::nullopt;  ///< in messages and dumps; else "kernel"
  BackendCompilerParams compiler_params = {};
  /// The cost of all programs together; estimate_cost() computes one. vmap multiplies it by the batch.
  std::optional<CostEstimate> cost_estimate = std::nullopt;
  /// "vulkan", or "interpreter", which is as interpret. Pallas's "mosaic_tpu", "triton" and "mosaic_gpu" are
  /// SpecErrors: this build has none of them.
  std::optional<std::string> backend = std::nullopt;
  /// About the kernel, for people and tools: kept in its text form and its Program, shown by `tessera explain`.
  std::map<std::string, std::string> metadata = {};
  /// Ours, not Pallas's: the inputs' shapes and dtypes. Arguments are checked against them, and dims may be run-time
  /// sizes (ts::dim("n")), which out_shape and grid may use too: one traced kernel serves every size. Without it,
  /// extents are the arguments' own.
  ShapeDtypes in_shape = {};
  /// Ours: what becomes of a lint (engine/lint/README.md), looked for once per trace and sizes, never by a launch. Not
  /// said: what TESSERA_LINT says, else warn for debug calls and for those that the interpreter runs, else off.
  std::optional<Lint> lint = std::nullopt;
};

/// What pallas_call and vmap return. Copies share their traces; safe to call from several threads.
class PallasCall {
 public:
  const std::string& name() const;
  Loc loc() const;
  bool interpreted() const { return interpret_options().has_value(); }  ///< calls run the interpreter
  const std::optional<InterpretOptions>& interpret_options() const;

  /// The traced kernel for inputs of these shapes and dtypes (none where in_shape says them). Kept for the next call;
  /// the reference lives as long as a copy of this object. Throws SpecError or TraceError.
  const ir::Kernel& trace(const std::vector<ShapeDtype>& inputs) const&;
  ir::Kernel trace(const std::vector<ShapeDtype>& inputs) &&;
  const ir::Kernel& trace() const&;
  ir::Kernel trace() &&;
  /// trace() for these arguments.
  const ir::Kernel& trace_for(const std::vector<Array>& arguments) const&;
  /// The grid mapping of the traced kernel.
  GridMapping grid_mapping(const std::vector<ShapeDtype>& inputs) const {
    return tessera::grid_mapping(static_cast<const PallasCall&>(*this).trace(inputs));
  }

  /// Looks for lints of a kernel that trace() returned, for a run on the interpreter: once per kernel and sizes.
  void lint_interpreted(const ir::Kernel& kernel, const std::vector<Array>& arguments, const DimValues& sizes) const;
  const std::optional<Lint>& lint() const;

  /// What a call makes of an argument before the kernel gets it: dim d of it becomes dim dims[d] of `shape`, and it
  /// repeats along the other dims. Such are vmap's where every element of the batch needs memory of its own (vmap.h).
  struct Spread {
    Shape shape;
    std::vector<int64_t> dims;
  };
  /// One per argument; all empty but for calls of vmap. Sizes must be static.
  std::vector<std::optional<Spread>> spreads(const std::vector<ShapeDtype>& inputs) const;
  /// Of an argument by value; none of an array.
  std::optional<DType> value_dtype(size_t argument) const;
  /// The array of rank 0 that holds the number which argument i is; SpecError if it does not fit, or i is not by value.
  Array array(size_t i, const Scalar& number) const;
  const Array& array(size_t, const Array& a) const { return a; }
  /// The arguments of a call as arrays: call.arrays(x, 0.5f).
  template <class... A>
    requires(CallArgument<A> && ...)
  std::vector<Array> arrays(const A&... arguments) const {
    std::vector<Array> list;
    list.reserve(sizeof...(A));
    (list.push_back(array(list.size(), arguments)), ...);
    return list;
  }
  /// The arguments as the kernel takes them.
  std::vector<Array> spread(const std::vector<Array>& arguments) const;

  /// Runs on the best Vulkan device, or on the interpreter if the call says interpret.
  Arrays operator()(const std::vector<Array>& arguments) const { return run(*this, arguments); }
  template <class... A>
    requires CallArguments<A...>
  Arrays operator()(const A&... arguments) const {
    return run(*this, arrays(arguments...));
  }
  /// The same with the sizes of the grid's dynamic axes: call(ts::GridSizes{n}, x, y).
  Arrays operator()(const GridSizes& grid, const std::vector<Array>& arguments) const {
    return run(*this, arguments, grid);
  }
  template <class... A>
    requires CallArguments<A...>
  Arrays operator()(const GridSizes& grid, const A&... arguments) const {
    return run(*this, arrays(arguments...), grid);
  }
  /// A Value, number or read among the arguments of a call inside of jit (jit.h), with the user's line.
  struct ValueArgument {
    template <class T>
    // NOLINT
      requires std::convertible_to<T&&, Operand>
    ValueArgument(T&& v, Loc l = Loc::here()) : operand(Operand(std::forward<T>(v)).at(l)) {}
    Operand operand;
  };
  /// Inside of jit: a call in its graph.
  template <class... A>
    requires(std::convertible_to<A &&, Operand> && ...)
  Results operator()(ValueArgument first, A&&... rest) const {
    return in_graph({first.operand, Operand(std::forward<A>(rest))...}, {}, first.operand.loc());
  }
  template <class... A>
    requires(std::convertible_to<A &&, Operand> && ...)
  Results operator()(const GridSizes& grid, ValueArgument first, A&&... rest) const {
    return in_graph({first.operand, Operand(std::forward<A>(rest))...}, grid, first.operand.loc());
  }
  Results in_graph(const std::vector<Operand>& arguments, const GridSizes& grid = {}, Loc loc = Loc::here()) const;
  /// What a call of the traced kernel with these sizes is to be given. SpecError where they are not as many as the grid
  /// has dynamic axes.
  DimValues dims(const ir::Kernel& kernel, const GridSizes& grid) const;

  /// How a call is made from a tracer of whole kernels; for vmap and other transformations.
  struct Parts {
    std::string name = "kernel";
    Loc loc = {};
    std::optional<InterpretOptions> interpret = std::nullopt;
    std::optional<std::vector<ShapeDtype>> in_shape = std::nullopt;
    std::optional<Lint> lint = std::nullopt;
    Function<ir::Kernel(const std::vector<ShapeDtype>&)> trace = {};
    std::vector<std::optional<DType>> values = {};  // of the arguments by value; none behind its end
    // none: nothing is spread
    Function<std::vector<std::optional<Spread>>(const std::vector<ShapeDtype>&)> spreads = {};
  };
  explicit PallasCall(Parts parts);
  const std::optional<std::vector<ShapeDtype>>& in_shape() const;

 private:
  // A template, so that only a program that calls on a device needs the runtime's library.
  template <class Call>
  static Arrays run(const Call& call, const std::vector<Array>& arguments, const GridSizes& grid = {}) {
    const ir::Kernel& k = call.trace_for(arguments);
    const DimValues sizes = call.dims(k, grid);
    if (!call.interpreted()) return Arrays(run_on_default_device(k, call.spread(arguments), sizes));
    InterpretOptions options = *call.interpret_options();
    options.dims.insert(sizes.begin(), sizes.end());
    call.lint_interpreted(k, arguments, options.dims);
    return Arrays(interpret(k, call.spread(arguments), options));
  }
  struct State;
  std::shared_ptr<State> state_;
};

/// Runs on the host, by the reference interpreter.
inline Arrays interpret(const PallasCall& call, const std::vector<Array>& arguments,
                        const InterpretOptions& options = {}) {
  const ir::Kernel& k = call.trace_for(arguments);
  call.lint_interpreted(k, arguments, options.dims);
  return Arrays(interpret(k, call.spread(arguments), options));
}
/// ts::interpret(call, {.races = true}, x, y)
template <class... A>
  requires(CallArgument<A> && ...)
Arrays interpret(const PallasCall& call, const InterpretOptions& options, const A&... arguments) {
  return interpret(call, call.arrays(arguments...), options);
}
template <class... A>
  requires(CallArgument<A> && ...)
Arrays interpret(const PallasCall& call, const A&... arguments) {
  return interpret(call, call.arrays(arguments...));
}

/// ts::interpret(call, ts::GridSizes{n}, x, y)
inline Arrays interpret(const PallasCall& call, const GridSizes& grid, const std::vector<Array>& arguments) {
  const ir::Kernel& k = call.trace_for(arguments);
  const DimValues sizes = call.dims(k, grid);
  call.lint_interpreted(k, arguments, sizes);
  return Arrays(interpret(k, call.spread(arguments), {.dims = sizes}));
}
template <class... A>
  requires(CallArgument<A> && ...)
Arrays interpret(const PallasCall& call, const GridSizes& grid, const A&... arguments) {
  return interpret(call, grid, call.arrays(arguments...));
}

namespace spec {
/// A kernel without its type: how many Refs it takes, and the call.
struct KernelFunction {
  int arity;
  Function<void(const std::vector<Ref>&)> call;
};
PallasCall make_pallas_call(KernelFunction kernel, PallasCallParams params, Loc loc);
}  // namespace spec

/// kernel: a lambda of Refs, first the inputs', then the outputs', then the scratch's. It is run while tracing: what it
/// does with Values is recorded, and the recording runs once per point of the grid. Throws SpecError for parameters
/// that do not fit together.
template <class F>
PallasCall pallas_call(F kernel, PallasCallParams params, Loc loc = Loc::here()) {
  static_assert(spec::Countable<F>,
                "pallas_call: the kernel's parameters must be spelled as Ref (not auto), so that they can be counted");
  if constexpr (spec::Countable<F>) {
    using P = typename spec::Signature<F>::Parameters;
    constexpr bool refs = spec::all_are<Ref, P>;
    static_assert(refs, "pallas_call: every parameter of a kernel must be a Ref (inputs, then outputs, then scratch)");
    static_assert(std::is_void_v<typename spec::Signature<F>::Result>,
                  "pallas_call: a kernel returns nothing; it writes to its output Refs");
    if constexpr (refs) {
      constexpr int n = static_cast<int>(std::tuple_size_v<P>);
      return spec::make_pallas_call({n,
                                     [f = std::move(kernel)](const std::vector<Ref>& r) {
                                       [&]<size_t... i>(std::index_sequence<i...>) {
                                         f(r[i]...);
                                       }(std::make_index_sequence<static_cast<size_t>(n)>{});
                                     }},
                                    std::move(params), loc);
    }
  }
}

}  // namespace tessera
