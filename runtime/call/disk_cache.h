// The cache of compiled kernels on disk: with TESSERA_CACHE=FOLDER a kernel is compiled once per machine. A file holds its whole key (the build of the
// compiler, the target, the options, the kernel's text) and a checksum, and is put in place by rename, so any number of processes may share a folder. What
// is broken or foreign is ignored and written anew, with a line on stderr; a folder that cannot be written is said once and not tried again.
// It never deletes: files of other builds stay until somebody empties the folder. Internal to runtime/call. Read next: call.h.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "codegen/program.h"
#include "codegen/target.h"

namespace tessera::disk_cache {

/// The folder, or nothing: no cache.
std::optional<std::string> folder();
/// All that decides what compilation makes; `kernel` is the options and the kernel's text.
std::string key(const Target& target, std::string_view kernel);
std::optional<Program> read(const std::string& folder, std::string_view key);
void write(const std::string& folder, std::string_view key, const Program& program);

}  // namespace tessera::disk_cache
