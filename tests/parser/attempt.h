// What any bytes may do to Tessera: be refused with an error of ours, or be a kernel that prints, is read back,
// verifies, runs on the interpreter and compiles (small ones). Anything else, an InternalError or a foreign exception
// for instance, is a bug; so is a crash, a hang or a sanitizer's report, which the callers see. Called by main.cpp
// (mutations, under any compiler) and by libfuzzer.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::parser {

enum class Reached : uint8_t { refused, parsed, verified, ran, compiled };
struct Attempt {
  Reached reached = Reached::refused;
  std::optional<std::string> bug;
};
/// One kind of code takes a large kernel seconds where the compiler is slow itself: `compiles` says how many of the six
/// are tried, and the text's length which.
Attempt attempt(std::string_view text, size_t compiles = 6);

}  // namespace tessera::parser
