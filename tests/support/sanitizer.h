// TESSERA_ADDRESS_SANITIZER is defined where the address sanitizer watches: g++ says so by a macro, clang++ by a
// feature.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define TESSERA_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TESSERA_ADDRESS_SANITIZER
#endif
#endif

namespace tessera::test {
/// Whether this program is watched, ten times as slow: cases that only repeat much of what others do once are skipped
/// then.
#if defined(TESSERA_ADDRESS_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
/// Whether to run the nth of many cases that differ little: all of them, but under the sanitizer one in five.
constexpr bool sampled(size_t n) { return !kSanitized || n % 5 == 0; }
}  // namespace tessera::test
