// The verifier: checks the rules of a well-formed kernel, which are listed at the top of verify.cpp. Reports all
// violations at once.
#pragma once
#include <string>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::ir {

struct Problem {
  std::string entity;   // "%12 = add", "in_specs[0]"
  std::string message;  // both sides of the disagreement
  Loc loc;
};
std::vector<Problem> find_problems(const Kernel& k);
/// Throws InternalError with all problems if there are any; `when` says after what ("pass cse").
void verify(const Kernel& k, std::string_view when);
/// The same as TraceError, for a kernel that a person wrote. With the text that it was parsed from, and that text's
/// name, each problem comes with its column and line.
void check(const Kernel& k, std::string_view text = {}, std::string_view file = {});

}  // namespace tessera::ir
