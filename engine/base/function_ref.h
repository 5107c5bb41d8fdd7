// FunctionRef: a callable that a function is given to call before it returns: a loop's body, what to do at each
// element. It is a pointer to the caller's lambda and one to the code that calls it, so no copy is made and a program
// compiles faster than with std::function. Do not keep one: the lambda ends with the caller's statement. C++26 has
// std::function_ref.
#pragma once
#include <concepts>
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

}  // namespace tessera
