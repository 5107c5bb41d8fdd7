// What a suite lets go of when its cases have run, before the process ends: a device that all of them share. The
// validation layers of Vulkan 1.4.309 crash if one is destroyed with the objects of static storage.
#pragma once

namespace tessera::test {

extern void (*at_end)();

}  // namespace tessera::test
