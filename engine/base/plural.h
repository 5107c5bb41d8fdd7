// Counted nouns in messages.
#pragma once
#include <cstddef>
#include <string>

namespace tessera {

/// "1 array", "2 arrays"; "2 axes" where the plural is no s more.
inline std::string plural(size_t n, const std::string& noun, const std::string& nouns = {}) {
  return std::to_string(n) + " " + (n == 1 ? noun : nouns.empty() ? noun + "s" : nouns);
}
/// "1 array is", "2 arrays are".
inline std::string plural_is(size_t n, const std::string& noun, const std::string& nouns = {}) {
  return plural(n, noun, nouns) + (n == 1 ? " is" : " are");
}

}  // namespace tessera
