// What was decided and why, for `tessera explain`.
#pragma once
#include <string>

#include "codegen/lower/schedule.h"

namespace tessera::lowering {
std::string explain(const ir::Kernel& k, const Target& target, const Axes& axes, const Schedule& s, const ParallelPlan& parallel, ScalarAnalysis& scalars, const ir::Kernel& lanes);
}  // namespace tessera::lowering
