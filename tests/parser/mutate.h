// Mutations of the text form that are likely to reach something: of bytes and tokens, of lines, of all places of one
// number or dtype at once, and with parts of another kernel. The same for the same seed everywhere.
#pragma once
#include <string>
#include <vector>

#include "tests/support/generator/random.h"

namespace tessera::parser {

/// `text` with one to a few mutations; `others` gives parts.
std::string mutate(std::string text, const std::vector<std::string>& others, fuzz::Random& random);

}  // namespace tessera::parser
