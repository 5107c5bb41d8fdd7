// Function: a callable that is kept, as an index map or a callback is. Copies share what it captures. In place of
// std::function, whose header brings hash tables and sorting with it: a program that includes Tessera compiles faster.
// Do not convert one to a std::function, which takes an empty one for a callable. For a callable that is called before
// a function returns: function_ref.h.
#pragma once
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera {

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
