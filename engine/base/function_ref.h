// FunctionRef: a callable that a function is given to call before it returns: a loop's body, what to do at each
// element. It is a pointer to the caller's lambda and one to the code that calls it, so no copy is made and a program
// compiles faster than with std::function. Do not keep one: the lambda ends with the caller's statement. C++26 has
// std::function_ref.
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera {

template <class Signature>
class FunctionRef;

template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, A...>)
  FunctionRef(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))), call_([](void* object, A... a) -> R {
          auto& g = *static_cast<std::add_pointer_t<F>>(object);
          if constexpr (std::is_void_v<R>) std::invoke(g, std::forward<A>(a)...);
          else return std::invoke(g, std::forward<A>(a)...);
        }) {}
  R operator()(A... a) const { return call_(object_, std::forward<A>(a)...); }

 private:
  void* object_;
  R (*call_)(void*, A...);
};

}  // namespace tessera
