// The tokens of a PTX text, without comments. An instruction with its modifiers is one word, and so is a special
// register with its component. Read next: parse.cpp.
#pragma once
#include <string>
#include <vector>

#include "tests/ptx/syntax.h"

namespace tessera::ptx {

struct Token {
  enum Kind : uint8_t { word, number, mark, string, end } kind = end;
  std::string text;
  uint32_t line = 0;
  size_t at = 0;  // in the text
};

/// Throws Error.
std::vector<Token> tokenise(const std::string& text);

}  // namespace tessera::ptx
