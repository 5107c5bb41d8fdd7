// The tensors of a Program (ProgramTensor), as the driver encodes them for one call: a place in its argument block
// each. Internal to runtime/. Read next: driver.h.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/nvidia/driver.h"

namespace tessera::cuda {

/// Writes those of a call with these addresses of arrays into its argument block, behind all else. Throws DeviceError
/// where the driver has no function for it, or fails.
void put_tensors(const Driver& driver, const Program& program, const DimValues& dims,
                 const std::vector<Address>& addresses, std::span<std::byte> block);

}  // namespace tessera::cuda
