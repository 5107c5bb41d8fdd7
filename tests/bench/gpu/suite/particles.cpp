#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {

void particles(std::vector<Case>&, Sizes) {}

}  // namespace tessera::gpu_suite
