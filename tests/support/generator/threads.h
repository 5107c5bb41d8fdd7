// Random kernels of threads (engine/front/mosaic_gpu.md) with one thread per program, which every target compiles:
// copies of windows between gmem and smem, values between smem and smem, clusters that share copies, wgmma.
#pragma once
#include "tests/support/generator/generator.h"

namespace tessera::fuzz {
Case threads(uint64_t seed);
}
