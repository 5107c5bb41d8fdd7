// A Program as bytes, for files that outlive the process: the cache on disk (runtime/call/disk_cache.h) and bundles
// (bundle.h). The bytes have no version, and a change of the struct Program changes them: program_layout() identifies
// it. Read next: program.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/program/bundle.h"
#include "codegen/program/program.h"

namespace tessera {

std::string program_to_bytes(const Program& program);
/// Nothing if the bytes are not a Program's: too few, too many, or impossible values, so that to launch what comes of
/// it is safe if the code itself is. That the bytes are those that were written is the caller's to know.
std::optional<Program> program_from_bytes(std::string_view bytes);
/// What program_from_bytes() requires of values: nothing in a Program that holds for it makes a launch crash, hang or
/// write outside of its arrays, but the code.
bool is_valid(const Program& program);
/// A number for the order and types of Program's fields: bytes that were written under another one are not read.
uint64_t program_layout();

/// The same for the kernels of a bundle, without what bundle.h puts before them.
std::string kernels_to_bytes(const BundleFile& bundle);
std::optional<BundleFile> kernels_from_bytes(std::string_view bytes);

}  // namespace tessera
