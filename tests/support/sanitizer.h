// TESSERA_ADDRESS_SANITIZER is defined where the address sanitizer watches: g++ says so by a macro, clang++ by a
// feature.
#pragma once

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
}  // namespace tessera::test
