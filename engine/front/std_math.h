// What a compiler says to std::sqrt(x[all]): one sentence, where the failed overload resolution would list a screen of
// templates. Each is a template that exists for Values and reads of Refs only and always fails to compile, so that no
// program's meaning depends on it; a declaration in namespace std is the only place where such a call looks. The
// functions that kernels call are in ops.h.
#pragma once
#include <concepts>
#include <type_traits>

#include "engine/front/ref.h"

namespace tessera::spec {
template <class T>
concept KernelValue = std::same_as<std::remove_cvref_t<T>, Value> || std::same_as<std::remove_cvref_t<T>, RefItem>;
template <class T>
inline constexpr bool is_number = !KernelValue<T>;
}  // namespace tessera::spec

#define TESSERA_NOT_STD(name, ours)                                                                          \
  template <class T, class... U>                                                                             \
    requires(tessera::spec::KernelValue<T> || (tessera::spec::KernelValue<U> || ...))                        \
  tessera::Value name(T&&, U&&...) {                                                                         \
    static_assert(tessera::spec::is_number<T> && (tessera::spec::is_number<U> && ...),                       \
                  "std::" #name " takes numbers, and a kernel's Values are none while it is traced: " ours); \
    throw;                                                                                                   \
  }
namespace std {  // NOLINT: see above
TESSERA_NOT_STD(sqrt, "call tessera::sqrt")
TESSERA_NOT_STD(cbrt, "call tessera::cbrt")
TESSERA_NOT_STD(exp, "call tessera::exp")
TESSERA_NOT_STD(exp2, "call tessera::exp2")
TESSERA_NOT_STD(expm1, "call tessera::expm1")
TESSERA_NOT_STD(log, "call tessera::log")
TESSERA_NOT_STD(log2, "call tessera::log2")
TESSERA_NOT_STD(log1p, "call tessera::log1p")
TESSERA_NOT_STD(pow, "call tessera::pow")
TESSERA_NOT_STD(sin, "call tessera::sin")
TESSERA_NOT_STD(cos, "call tessera::cos")
TESSERA_NOT_STD(tan, "call tessera::tan")
TESSERA_NOT_STD(asin, "call tessera::asin")
TESSERA_NOT_STD(acos, "call tessera::acos")
TESSERA_NOT_STD(atan, "call tessera::atan")
TESSERA_NOT_STD(atan2, "call tessera::atan2")
TESSERA_NOT_STD(sinh, "call tessera::sinh")
TESSERA_NOT_STD(cosh, "call tessera::cosh")
TESSERA_NOT_STD(tanh, "call tessera::tanh")
TESSERA_NOT_STD(erf, "call tessera::erf")
TESSERA_NOT_STD(abs, "call tessera::abs")
TESSERA_NOT_STD(fabs, "call tessera::abs")
TESSERA_NOT_STD(floor, "call tessera::floor")
TESSERA_NOT_STD(ceil, "call tessera::ceil")
TESSERA_NOT_STD(round, "call tessera::round")
TESSERA_NOT_STD(fmod, "write a % b")
TESSERA_NOT_STD(fmax, "call tessera::maximum")
TESSERA_NOT_STD(fmin, "call tessera::minimum")
TESSERA_NOT_STD(fma, "write a * b + c")
TESSERA_NOT_STD(isnan, "call tessera::is_nan")
TESSERA_NOT_STD(isinf, "call tessera::is_inf")
TESSERA_NOT_STD(isfinite, "call tessera::is_finite")
}  // namespace std
#undef TESSERA_NOT_STD
