// Metamorphic rewritings: a case becomes another whose outputs are the same, or hold the same elements at known places.
// A mistake of the compiler that depends on a kernel's form then shows as a difference from the interpreter, which the
// two forms share; one of the interpreter as a difference between the two. What each rewriting does is listed in
// rewrite.cpp.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

struct Rewritten {
  Case c;
  /// From the outputs of the rewritten case those of the first.
  std::function<std::vector<Array>(std::vector<Array>)> original;
  std::string what;              // "sizes, axis"
  bool perhaps_another = false;  // CheckOptions::perhaps_another
};

/// Names of all rewritings.
const std::vector<std::string>& rewritings();
/// Applies `name`, or where it is empty one to three that `seed` chooses, at places that it chooses. Nothing if none
/// applies.
std::optional<Rewritten> rewrite(const Case& c, const std::string& name, uint64_t seed);

}  // namespace tessera::fuzz
