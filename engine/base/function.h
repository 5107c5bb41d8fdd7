// Callables that functions take, in place of std::function, whose header brings hash tables and sorting with it: a
// program that includes Tessera compiles faster.
//   FunctionRef   one that is called before the function returns: a loop's body, what to do at each element
//   Function      one that is kept: an index map, a callback
// Do not convert a Function to a std::function, which takes an empty one for a callable.
#pragma once
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera {

/// A pointer to the caller's lambda and one to the code that calls it: no copy is made. Do not keep one, for the lambda
/// ends with the caller's statement. C++26 has std::function_ref.
template <class Signature>
class FunctionRef;

template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, A...>)
  FunctionRef(F&& f)  // NOLINT: implicit on purpose
      : target_(target(f)), call_([](Target to, A... a) -> R {
          auto& g = *pointer<std::add_pointer_t<F>>(to);
          if constexpr (std::is_void_v<R>) g(std::forward<A>(a)...);
          else return g(std::forward<A>(a)...);
        }) {}
  R operator()(A... a) const { return call_(target_, std::forward<A>(a)...); }

 private:
  union Target {
    void* object;
    void (*function)();
  };
  template <class F> static Target target(F& f) {
    if constexpr (std::is_function_v<F>) return {.function = reinterpret_cast<void (*)()>(&f)};
    else return {.object = const_cast<void*>(static_cast<const void*>(std::addressof(f)))};
  }
  template <class P> static P pointer(Target t) {
    if constexpr (std::is_function_v<std::remove_pointer_t<P>>) return reinterpret_cast<P>(t.function);
    else return static_cast<P>(t.object);
  }
  Target target_;
  R (*call_)(Target, A...);
};

/// Copies share what it captures. Of a null pointer, or an empty std::function, it is empty.
template <class Signature>
class Function;

template <class R, class... A>
class Function<R(A...)> {
 public:
  Function() = default;
  Function(std::nullptr_t) {}  // NOLINT: implicit on purpose
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Function> && std::is_invocable_r_v<R, std::decay_t<F>&, A...>)
  Function(F&& f) {  // NOLINT: implicit on purpose
    using Kept = std::decay_t<F>;
    constexpr bool function = std::is_function_v<std::remove_reference_t<F>>;
    if constexpr (!function && (std::is_pointer_v<Kept> || requires { f.operator bool(); }))
      if (!f) return;  // a null pointer, or an empty std::function
    kept_ = std::shared_ptr<void>(new Kept(std::forward<F>(f)));
    call_ = [](void* kept_f, A... a) -> R {
      auto& g = *static_cast<Kept*>(kept_f);
      if constexpr (std::is_void_v<R>) g(std::forward<A>(a)...);
      else return g(std::forward<A>(a)...);
    };
  }
  R operator()(A... a) const { return call_(kept_.get(), std::forward<A>(a)...); }
  explicit operator bool() const { return call_ != nullptr; }
  bool operator==(std::nullptr_t) const { return call_ == nullptr; }

 private:
  std::shared_ptr<void> kept_;
  R (*call_)(void*, A...) = nullptr;
};

}  // namespace tessera
