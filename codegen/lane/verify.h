// The lane-level verifier: checks the rules of a lowered kernel beyond those that ir::verify checks of both levels. It
// reports all violations at once and runs nothing; interpreter.h finds errors that depend on the order of invocations
// (races, uninitialised reads). The rules are listed at the top of verify.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/kernel.h"
#include "engine/ir/verify.h"

namespace tessera::lane {

std::vector<ir::Problem> find_lane_problems(const ir::Kernel& k);
/// Throws InternalError with all problems if there are any; `when` says after what ("lowering").
void verify_lane(const ir::Kernel& k, std::string_view when);

/// One op as a message names it: "%12 = add %3, %4", regions left out.
std::string op_text(const ir::Kernel& k, const ir::Op& op);

}  // namespace tessera::lane
