// Control flow in kernels: loops with carried values, and branches. Each body is traced once, whatever the data; a C++
// `for` or `if` on ordinary C++ values unrolls or selects while tracing.
//   auto [acc, m] = fori_loop(0, n, std::tuple{acc0, m0},
//                             [&](Value i, Value acc, Value m) { ...; return std::tuple{acc, m}; });
//   Value total = fori_loop(0, n, 0.0f, [&](Value i, Value t) { return t + x[i]; });
//   when(program_id(2) == 0, [&] { acc[all] = zeros({8, 8}); });
// A carry keeps its shape and dtype through the loop (TraceError otherwise); plain numbers take the carry's dtype.
#pragma once
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/ref.h"
#include "engine/front/value.h"

namespace tessera {
namespace control {

template <class T>
concept Carry = std::is_same_v<std::decay_t<T>, Value> || std::is_arithmetic_v<std::decay_t<T>>;
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};

/// How many Values a body returns: void and tuple<> none, a Value or number one, a tuple its length.
template <class T>
struct Count {
  static constexpr int value = Carry<T> ? 1 : -1;
};
template <>
struct Count<void> {
  static constexpr int value = 0;
};
template <class... T>
struct Count<std::tuple<T...>> {
  static constexpr int value = (Carry<T> && ...) ? static_cast<int>(sizeof...(T)) : -1;
};
template <class T>
inline constexpr int count = Count<std::remove_cv_t<std::remove_reference_t<T>>>::value;

using Operands = std::vector<Operand>;
using Values = std::vector<Value>;

// Locs of operands that come back from a body are the loop's own.
template <class T>
Operands flatten(const T& t, Loc loc) {
  if constexpr (is_tuple<T>::value)
    return std::apply([&](const auto&... x) { return Operands{Operand(x, loc)...}; }, t);
  else return Operands{Operand(t, loc)};
}
/// Calls f with `first...` and then the n values, and flattens what it returns.
template <int n, class F, class... First>
Operands call(F& f, Loc loc, const Values& values, const First&... first) {
  return [&]<size_t... i>(std::index_sequence<i...>) -> Operands {
    using Result = decltype(f(first..., values[i]...));
    if constexpr (std::is_void_v<Result>) {
      f(first..., values[i]...);
      return {};
    } else {
      return flatten<std::remove_cv_t<std::remove_reference_t<Result>>>(f(first..., values[i]...), loc);
    }
  }(std::make_index_sequence<n>{});
}
template <size_t>
using ValueAt = Value;
template <class F, class Sequence, class... First>
struct Signature;
template <class F, size_t... i, class... First>
struct Signature<F, std::index_sequence<i...>, First...> {
  static constexpr bool accepts = std::is_invocable_v<F&, First..., ValueAt<i>...>;
  template <class G = F>
  using Result = std::invoke_result_t<G&, First..., ValueAt<i>...>;
};
/// Whether f can be called with First... and then n Values, and how many Values it then returns.
template <class F, int n, class... First>
inline constexpr bool accepts = Signature<F, std::make_index_sequence<static_cast<size_t>(n)>, First...>::accepts;
template <class F, int n, class... First>
inline constexpr int returns =
    count<typename Signature<F, std::make_index_sequence<static_cast<size_t>(n)>, First...>::template Result<>>;

/// n values as the caller spells them: a Value for one (not from a tuple), else a tuple.
template <int n, bool tuple>
auto unflatten([[maybe_unused]] const Values& v) {
  if constexpr (n == 1 && !tuple) return v[0];
  else if constexpr (n > 0 || tuple)
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return std::tuple<ValueAt<i>...>(v[i]...);
    }(std::make_index_sequence<static_cast<size_t>(n)>{});
}

Values for_loop(const Operand& lower, const Operand& upper, const Operands& init,
                FunctionRef<Operands(const Value&, const Values&)> body, Loc loc);
Values while_loop(const Operands& init, FunctionRef<Operand(const Values&)> test,
                  FunctionRef<Operands(const Values&)> body, Loc loc);
/// An if (of a truth value, two branches) or a switch (of an index).
Values switch_(std::string_view op, const Operand& selector, const std::vector<FunctionRef<Operands()>>& branches,
               Loc loc);

}  // namespace control

/// Runs body(i, carries...) for i = lower, lower + 1, ... below upper (i32), each time with what the body returned
/// before; returns the last. carry is a Value, a number or a std::tuple of them.
template <class C, class F>
auto fori_loop(Operand lower, Operand upper, C carry, F body, Loc loc = Loc::here()) {
  constexpr int n = control::count<C>;
  static_assert(n >= 0, "fori_loop: the carry must be a Value, a number, or a std::tuple of Values and numbers");
  if constexpr (n >= 0) {
    static_assert(control::accepts<F, n, Value>,
                  "fori_loop: the body must take the index and then one Value per carry");
    if constexpr (control::accepts<F, n, Value>) {
      constexpr bool same = control::returns<F, n, Value> == n;
      static_assert(
          same,
          "fori_loop: the body must return as many Values as there are carries (one: a Value; several: a std::tuple)");
      control::Values result = control::for_loop(
          lower, upper, control::flatten(carry, loc),
          [&](const Value& i, const control::Values& v) { return control::call<n>(body, loc, v, i); }, loc);
      return control::unflatten<n, control::is_tuple<C>::value>(result);
    }
  }
}
/// Without carries: body(i).
template <class F>
void fori_loop(Operand lower, Operand upper, F body, Loc loc = Loc::here()) {
  static_assert(control::accepts<F, 0, Value>, "fori_loop: the body must take the index, a Value");
  if constexpr (control::accepts<F, 0, Value>) {
    static_assert(
        std::is_void_v<decltype(body(std::declval<Value>()))>,
        "fori_loop: the body returns a value, but the loop has no carry: give its first value before the body");
    control::for_loop(
        lower, upper, {}, [&](const Value& i, const control::Values& v) { return control::call<0>(body, loc, v, i); },
        loc);
  }
}

/// While test(carries...) is true: carries = body(carries...). The test returns a scalar truth value.
template <class C, class Test, class F>
auto while_loop(C carry, Test test, F body, Loc loc = Loc::here()) {
  constexpr int n = control::count<C>;
  static_assert(n >= 0, "while_loop: the carry must be a Value, a number, or a std::tuple of Values and numbers");
  if constexpr (n >= 0) {
    constexpr bool good = control::accepts<Test, n> && control::accepts<F, n>;
    static_assert(good, "while_loop: the test and the body must each take one Value per carry");
    if constexpr (good) {
      static_assert(control::returns<Test, n> == 1, "while_loop: the test must return one Value");
      static_assert(
          control::returns<F, n> == n,
          "while_loop: the body must return as many Values as there are carries (one: a Value; several: a std::tuple)");
      control::Values result = control::while_loop(
          control::flatten(carry, loc), [&](const control::Values& v) { return control::call<n>(test, loc, v).at(0); },
          [&](const control::Values& v) { return control::call<n>(body, loc, v); }, loc);
      return control::unflatten<n, control::is_tuple<C>::value>(result);
    }
  }
}

/// if_true() or if_false(), by a scalar truth value; both return the same shapes and dtypes (nothing, a Value, or a
/// std::tuple).
template <class T, class F>
auto cond(Operand predicate, T if_true, F if_false, Loc loc = Loc::here()) {
  using A = std::remove_cvref_t<decltype(if_true())>;
  using B = std::remove_cvref_t<decltype(if_false())>;
  constexpr int n = control::count<A>;
  static_assert(n >= 0, "cond: a branch must return nothing, a Value, a number, or a std::tuple of them");
  static_assert(n == control::count<B>, "cond: both branches must return the same number of Values");
  if constexpr (n >= 0 && n == control::count<B>) {
    control::Values result = control::switch_(
        "cond", predicate,
        {[&] { return control::call<0>(if_true, loc, {}); }, [&] { return control::call<0>(if_false, loc, {}); }}, loc);
    return control::unflatten<n, control::is_tuple<A>::value>(result);
  }
}

/// branches[index](), the index (an integer scalar) clamped to the branches there are.
template <class F, class... G>
auto switch_(Operand index, F first, G... others) {
  using A = std::remove_cvref_t<decltype(first())>;
  constexpr int n = control::count<A>;
  static_assert(n >= 0, "switch_: a branch must return nothing, a Value, a number, or a std::tuple of them");
  constexpr bool same = ((control::count<decltype(others())> == n) && ...);
  static_assert(same, "switch_: all branches must return the same number of Values");
  if constexpr (n >= 0 && same) {
    const Loc loc = index.loc();
    control::Values result = control::switch_(
        "switch", index,
        {[&] { return control::call<0>(first, loc, {}); }, [&] { return control::call<0>(others, loc, {}); }...}, loc);
    return control::unflatten<n, control::is_tuple<A>::value>(result);
  }
}

/// Runs body() where a scalar truth value is true.
template <class F>
void when(Operand predicate, F body, Loc loc = Loc::here()) {
  static_assert(std::is_void_v<decltype(body())>, "when: the body returns a value that nothing receives; use cond");
  if constexpr (std::is_void_v<decltype(body())>)
    control::switch_("when", predicate,
                     {[&] {
                        body();
                        return control::Operands{};
                      },
                      [] { return control::Operands{}; }},
                     loc);
}

}  // namespace tessera
