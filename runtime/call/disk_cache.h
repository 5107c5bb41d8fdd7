// The cache of compiled kernels on disk: with TESSERA_CACHE=FOLDER a kernel is compiled once per machine. The key is
// the build of the compiler, the target, the options and the kernel's text. The files: runtime/submit/cache_file.h.
// Files of other builds stay until the folder is emptied. Internal to runtime/call. Read next: call.h.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "codegen/program/program.h"
#include "codegen/program/target.h"

namespace tessera::disk_cache {

/// All that decides what compilation makes; `kernel` is the options and the kernel's text.
std::string key(const Target& target, std::string_view kernel);
std::optional<Program> read(const std::string& folder, std::string_view key);
void write(const std::string& folder, std::string_view key, const Program& program);

}  // namespace tessera::disk_cache
