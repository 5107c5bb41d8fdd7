// jit: a C++ function of arrays, traced into a graph (engine/graph/graph.h) of kernels that compiles once and runs as
// one.
//   auto f = ts::jit([](ts::Tensor x, ts::Tensor w) { return ts::maximum(matmul(x, w) + 1.0f, 0.0f); });
//   ts::Array y = f(x, w);                      // on the best Vulkan device (runtime/call/jit.h)
//   ts::DeviceArray z = f(device_x, device_w);  // on that of the DeviceArrays
//   ts::Array r = ts::interpret(f, x, w);       // on the host
// Inside, arrays are Values as in a kernel, and every function of Values works on them: front/ops.h, front/rearrange.h,
// front/random.h, and front/control.h for loops and branches whose bodies may call kernels. A pallas_call called with
// Values is a step of the graph; a jit called with Values becomes part of the graph around it. A function is traced
// once per set of argument shapes and dtypes. Read next: engine/graph/graph.h, jit_graph.cpp.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/function.h"
#include "engine/call/pallas_call.h"
#include "engine/front/control.h"
#include "engine/graph/graph.h"

namespace tessera {

/// An array of a function under jit: its shape and dtype are known, its elements are not.
using Tensor = Value;

/// An array of the host as a constant of the function that is being traced (jnp.asarray). TraceError outside of jit.
Value asarray(const Array& a, Loc loc = Loc::here());

struct JitParams {
  std::optional<std::string> name = std::nullopt;  ///< in messages; else "jit"
};

/// A function under jit without its C++ type: what traces, caches and runs. Copies share their traces; safe to call
/// from several threads.
class Jit {
 public:
  struct Function {
    int arity;  // -1: any
    tessera::Function<std::vector<Operand>(const std::vector<Value>&)> call;
  };
  Jit(Function f, JitParams params, Loc loc);

  const std::string& name() const;
  Loc loc() const;
  /// The graph for arguments of these shapes and dtypes: one kernel per op, and those that are called. A dim may be a
  /// run-time size, f.trace({{{ts::dim("n"), 4}, ts::f32}}): a graph of every size, in which the values that have such
  /// sizes go through kernels, loops and branches alone (graph/sizes.h). Throws SpecError or TraceError.
  const Graph& trace(const std::vector<ShapeDtype>& arguments) const;
  /// Where the runtime keeps what it has made of that trace; freed with the function's last copy. `key` names the
  /// device and how.
  std::shared_ptr<void> compiled(const Graph& traced, const std::string& key,
                                 FunctionRef<std::shared_ptr<void>()> make) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

std::vector<Array> interpret(const Jit& f, const std::vector<Array>& arguments);
/// On the best Vulkan device; TESSERA_DEVICE names another, "interpreter" is interpret(). Defined in
/// runtime/call/jit.cpp.
std::vector<Array> run_on_default_device(const Jit& f, const std::vector<Array>& arguments);
std::vector<ShapeDtype> types_of(const std::vector<Array>& arrays);

namespace jit_ {

template <class T>
inline constexpr bool is_vector = std::is_same_v<T, std::vector<Value>> || std::is_same_v<T, Results>;
/// What a function's Result is with arrays of type A instead of Values.
template <class Result, class A>
auto as_result(std::vector<A> outputs) {
  if constexpr (std::is_same_v<Result, Results> && std::is_same_v<A, Array>) return Arrays(std::move(outputs));
  else if constexpr (is_vector<Result>) return outputs;
  else if constexpr (control::is_tuple<Result>::value)
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return std::array<A, sizeof...(i)>{std::move(outputs.at(i))...};
    }(std::make_index_sequence<std::tuple_size_v<Result>>{});
  else return std::move(outputs.at(0));
}
template <class Result>
inline constexpr bool good_result = is_vector<Result> || (control::count<Result> > 0);
template <class P>
inline constexpr bool takes_vector = false;
template <class P>
inline constexpr bool takes_vector<std::tuple<P>> = spec::takes<std::vector<Value>, P>;

Value argument(const std::string& name, const Operand& o);  ///< of a jit inside another one: a number becomes a scalar
void check_arity(const Jit& f, int arity, size_t given);

template <class T>
concept OnDevice = requires(const T& t) {
  t.device();
  t.donated();
};

}  // namespace jit_

template <class F>
class JitFunction : public Jit {
 public:
  using S = spec::Signature<F>;
  using Result = std::remove_cvref_t<typename S::Result>;
  static constexpr bool any_number = jit_::takes_vector<typename S::Parameters>;

  JitFunction(F f, JitParams params, Loc loc)
      : Jit({any_number ? -1 : static_cast<int>(std::tuple_size_v<typename S::Parameters>),
             [f](const std::vector<Value>& v) { return flatten(call(f, v)); }},
            std::move(params), loc),
        f_(std::move(f)) {}

  /// A Result of Arrays: an Array, a std::array of them for a std::tuple of Values, or a std::vector.
  auto operator()(const std::vector<Array>& arguments) const {
    return jit_::as_result<Result>(run_on_default_device(*this, arguments));
  }
  template <class... A>
    requires(std::convertible_to<const A&, Array> && ...)
  auto operator()(const A&... arguments) const {
    return (*this)(std::vector<Array>{arguments...});
  }
  /// The same on the arrays' device, without waiting (runtime/call/jit.h).
  template <class A, class... More>
    requires(jit_::OnDevice<A> && (std::same_as<A, More> && ...))
  auto operator()(const A& first, const More&... more) const {
    return jit_::as_result<Result>(
        launch(first.device(), static_cast<const Jit&>(*this), std::vector<A>{first, more...}));
  }
  /// Inside of another jit, or of a kernel: the function's own ops.
  template <class... A>
    requires(sizeof...(A) > 0 && (std::convertible_to<A &&, Operand> && ...))
  Result operator()(A&&... arguments) const {
    const std::vector<Value> v{jit_::argument(name(), Operand(std::forward<A>(arguments)))...};
    if constexpr (!any_number)
      static_assert(sizeof...(A) == std::tuple_size_v<typename S::Parameters>,
                    "a function under jit is called with as many arguments as it takes");
    return call(f_, v);
  }

 private:
  static Result call(const F& f, const std::vector<Value>& v) {
    if constexpr (any_number) return f(v);
    else
      return [&]<size_t... i>(std::index_sequence<i...>) -> Result {
        return f(v[i]...);
      }(std::make_index_sequence<std::tuple_size_v<typename S::Parameters>>{});
  }
  static std::vector<Operand> flatten(const Result& r) {
    if constexpr (jit_::is_vector<Result>) return {r.begin(), r.end()};
    else return control::flatten(r, {});
  }
  F f_;
};

template <class F, class... A>
  requires(std::convertible_to<const A&, Array> && ...)
auto interpret(const JitFunction<F>& f, const A&... arguments) {
  return jit_::as_result<typename JitFunction<F>::Result>(
      interpret(static_cast<const Jit&>(f), std::vector<Array>{arguments...}));
}

/// f: a lambda of Tensors, or of one std::vector of them, that returns a Tensor, a std::tuple or a std::vector. It is
/// run while tracing.
template <class F>
auto jit(F f, JitParams params = {}, Loc loc = Loc::here()) {
  static_assert(spec::Countable<F>,
                "jit: the function's parameters must be spelled as Tensor (not auto), so that they can be counted");
  if constexpr (spec::Countable<F>) {
    using S = spec::Signature<F>;
    constexpr bool tensors = jit_::takes_vector<typename S::Parameters> || spec::all_are<Value, typename S::Parameters>;
    constexpr bool results = jit_::good_result<std::remove_cvref_t<typename S::Result>>;
    static_assert(tensors,
                  "jit: every parameter of the function must be a Tensor, or its only one a std::vector of them");
    static_assert(results, "jit: the function returns a Tensor, a std::tuple or a std::vector of Tensors");
    if constexpr (tensors && results) return JitFunction<F>(std::move(f), std::move(params), loc);
  }
}

}  // namespace tessera
