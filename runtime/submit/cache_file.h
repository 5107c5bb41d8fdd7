// Files of the folder TESSERA_CACHE: a kind, a checksum, the whole key, and bytes. They are put in place by rename, so
// any number of processes may share a folder. Damaged or foreign files are ignored and rewritten, with a line in the
// log (log.h). So are links, and files that a user other than this one or root may have written, because a driver
// executes what it gets. A folder that cannot be written is reported once. Nothing is ever deleted. The contents:
// pipeline_file.h, call/disk_cache.h. Internal to runtime/.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cache_file {

/// The folder, or nothing: no cache.
std::optional<std::string> folder();
/// 32 hexadecimal digits by two hashes of the text.
std::string digest(std::string_view text);
/// FOLDER/DIGEST.KIND. That two keys may share one is no error, since the file holds its key.
std::string path(const std::string& folder, std::string_view kind, std::string_view key);
/// What write() has put there for that key, if it still is what it was. Says in the log if it is not, and no file of
/// that kind for another key.
std::optional<std::string> read(const std::string& folder, std::string_view kind, std::string_view key);
/// `failure` ends the line in the log if the folder cannot be written: "kernels are compiled in every process".
void write(const std::string& folder, std::string_view kind, std::string_view key, std::string_view bytes,
           const std::string& failure);
/// The line in the log for a file whose bytes, though unchanged, are of no use.
void say_broken(const std::string& path);

}  // namespace tessera::cache_file
