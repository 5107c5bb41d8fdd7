// A Program as bytes, for files that outlive the process: what the cache on disk holds (runtime/call/disk_cache.h). Only this version of Tessera reads
// them: there is no version in them, and a change of Program changes them. Read next: program.h.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "codegen/program.h"

namespace tessera {

std::string program_to_bytes(const Program& program);
/// Nothing if the bytes are not a Program's: too few, too many, or impossible values. That the bytes are those that were written is the caller's to know.
std::optional<Program> program_from_bytes(std::string_view bytes);

}  // namespace tessera
