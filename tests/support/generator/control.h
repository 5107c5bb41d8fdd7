// Random kernels of control flow on a little memory: loops, whiles, branches and switches inside one another, whose
// bounds and conditions are loaded where they are used; loops so long that a driver with a limit cuts them into
// dispatches; atomics at positions of any kind; copies and semaphores that belong to the whole kernel, whose waits are
// further on, in another iteration, or in another program.
#pragma once
#include "tests/support/generator/generator.h"

namespace tessera::fuzz {
Case control(uint64_t seed);
}
