#include "runtime/submit/cache_file.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>

#include "engine/base/platform.h"
#include "engine/base/write_file.h"
#include "runtime/log.h"

namespace tessera::cache_file {
namespace {
namespace fs = std::filesystem;

constexpr uintmax_t kMostBytes = uintmax_t{1} << 28;  // of a file that is read: no kernel's takes a hundredth of that

std::string magic(std::string_view kind) { return "tessera " + std::string(kind) + " 2\n"; }

uint64_t fnv(std::string_view s, uint64_t h) {
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3u;
  return h;
}
std::string hex(uint64_t v) {
  char s[17];
  std::snprintf(s, sizeof s, "%016llx", static_cast<unsigned long long>(v));
  return s;
}
uint64_t checksum(std::string_view s) { return fnv(s, 0xcbf29ce484222325u); }

void put(std::string& out, uint64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }
std::optional<uint64_t> take(std::string_view& in) {
  uint64_t v = 0;
  if (in.size() < sizeof v) return std::nullopt;
  std::memcpy(&v, in.data(), sizeof v);
  in.remove_prefix(sizeof v);
  return v;
}

enum class Found { good, broken, other_key };
// The kind's magic, checksum of the rest, bytes of the key, the key, the bytes.
Found decode(std::string_view in, std::string_view kind, std::string_view key, std::string_view& bytes) {
  const std::string first = magic(kind);
  if (!in.starts_with(first)) return Found::broken;
  in.remove_prefix(first.size());
  const auto sum = take(in);
  if (!sum || *sum != checksum(in)) return Found::broken;
  const auto size = take(in);
  if (!size || *size > in.size()) return Found::broken;
  if (in.substr(0, *size) != key) return Found::other_key;
  bytes = in.substr(*size);
  return Found::good;
}

void note(const std::string& text) { log(Severity::warning, "tessera: TESSERA_CACHE: " + text); }
// One that would come with every file.
void note_once(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(text).second) note(text);
}

}  // namespace

std::optional<std::string> folder() {
  const char* f = std::getenv("TESSERA_CACHE");
  return f && *f ? std::optional<std::string>(f) : std::nullopt;
}

std::string digest(std::string_view text) {
  return hex(fnv(text, 0xcbf29ce484222325u)) + hex(fnv(text, 0x9e3779b97f4a7c15u));
}

std::string path(const std::string& folder, std::string_view kind, std::string_view key) {
  return (fs::path(folder) / (digest(key) + "." + std::string(kind))).string();
}

void say_broken(const std::string& path) { note(path + " is broken or none of ours: it is ignored, and replaced"); }

std::optional<std::string> read(const std::string& folder, std::string_view kind, std::string_view key) {
  const std::string file = path(folder, kind, key);
  // It may be anything: a link, a folder, a pipe, a file without end, code that another user put there.
  using What = platform::Opened::What;
  const platform::Opened opened = platform::open_file(file, false);
  if (opened.what == What::missing) return std::nullopt;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(opened.stream,
                                                               [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  if (opened.foreign) {
    note(file + " belongs to another user, or others may write it: it is ignored, and replaced");
    return std::nullopt;
  }
  std::string all(opened.bytes <= kMostBytes ? static_cast<size_t>(opened.bytes) : 0, '\0');
  if (opened.what != What::file || opened.bytes > kMostBytes ||
      std::fread(all.data(), 1, all.size(), stream.get()) != all.size()) {
    say_broken(file);
    return std::nullopt;
  }
  std::string_view bytes;
  const Found found = decode(all, kind, key, bytes);
  if (found == Found::good) return std::string(bytes);
  if (found == Found::broken) say_broken(file);
  return std::nullopt;
}

void write(const std::string& folder, std::string_view kind, std::string_view key, std::string_view bytes,
           const std::string& failure) {
  std::string body, sum;
  put(body, key.size());
  body += key;
  body += bytes;
  put(sum, checksum(body));
  std::error_code error;
  fs::create_directories(folder, error);
  if (put_file(path(folder, kind, key), {magic(kind), sum, body}, false)) return;
  note_once("cannot write to " + folder + ": " + failure);
}

}  // namespace tessera::cache_file
