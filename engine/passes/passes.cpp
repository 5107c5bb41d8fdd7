#include "engine/passes/passes.h"

#include <string>

#include "engine/base/function.h"
#include "engine/ir/verify.h"

namespace tessera::passes {

const std::vector<Pass>& all() {
  // Never destroyed: threads may compile until the process has gone.
  static const auto& kPasses =
      *new std::vector<Pass>{{"fold", fold}, {"count", count}, {"cse", cse}, {"licm", licm}, {"dce", dce}};
  return kPasses;
}

void optimize(ir::Kernel& k, const Function<void(const Pass&, const ir::Kernel&, bool)>& after) {
  constexpr int kMaxRounds = 4;
  // Verifying costs as much as a pass: after each one if a dump is wanted or in builds that check, else once at the
  // end.
#ifdef NDEBUG
  const bool each = static_cast<bool>(after);
#else
  const bool each = true;
#endif
  bool changed = true;
  for (int round = 0; round < kMaxRounds && changed; ++round) {
    changed = false;
    for (const Pass& pass : all()) {
      const bool did = pass.run(k);
      changed |= did;
      if (did && each) ir::verify(k, "pass " + std::string(pass.name));
      if (after) after(pass, k, did);
    }
  }
  if (!each) ir::verify(k, "the passes");
}

}  // namespace tessera::passes
