// What a call passes to the code, whatever driver runs it: how many workgroups, the sizes that are pushed, and the
// argument block that codegen/program/program.h describes. Internal to runtime/. Read next: bound.h, for Vulkan.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "engine/base/bind.h"
#include "engine/base/function.h"
#include "engine/base/scalar.h"

namespace tessera {

/// What engine/base/bind.h matches arguments with; the program outlives it.
CallSignature call_signature(const Program& program);
/// Workgroups of a call; 0: it has nothing to do. `arena_bytes`: of all their scratch arenas, at most. Throws SpecError
/// where they are more than 2^31 - 1.
int64_t workgroups_of(const Program& program, const DimValues& dims, int64_t arena_bytes);
/// The values of the program's extents, in its order. Throws SpecError for one that the code counts in 32 bits and that
/// has more, and for a size in them that has; CompileError for loops that are too long for the device, which the
/// message names.
std::vector<int64_t> extents_of(const Program& program, const DimValues& dims, const std::string& device);
/// The same into a vector that has room.
void extents_of(const Program& program, const DimValues& dims, const std::string& device, std::vector<int64_t>& into);
/// What argument i's place in the block holds for a number; SpecError if it is by value and none is given, or another
/// dtype's.
uint64_t value_of(const Program& program, size_t i, const std::optional<Scalar>& number);
/// Whether a call may take the memory of argument i: an output is aliased to it, or the kernel stores to it.
bool may_take(const Program& program, size_t i);
/// Of a donated argument i: SpecError if the call may not take its memory, or if another of the inputs is the `same`
/// array.
void check_donation(const Program& program, size_t i, size_t num_inputs, FunctionRef<bool(size_t other)> same);
/// The push-constant block (or the table) in its order: addresses, the arena's and the report's last, then 64-bit
/// extents, then 32-bit ones. Where the program has tensors, room for them follows.
std::vector<std::byte> argument_block(const Program& program, const std::vector<uint64_t>& addresses,
                                      const std::vector<int64_t>& sizes);
/// Of such a block: how many addresses it begins with.
size_t num_addresses(const Program& program);
/// Of such a block: writes what stands behind the addresses. Allocates nothing.
void put_sizes(const Program& program, const std::vector<int64_t>& sizes, std::span<std::byte> into);

}  // namespace tessera
