#include "runtime/call/disk_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>

#include "codegen/program_file.h"
#include "tessera/build_id.h"

namespace tessera::disk_cache {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kMagic = "tessera cache 1\n";

uint64_t fnv(std::string_view s, uint64_t h) {
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3u;
  return h;
}
std::string hex(uint64_t v) {
  char s[17];
  std::snprintf(s, sizeof s, "%016llx", static_cast<unsigned long long>(v));
  return s;
}
// Two hashes make the name; that two keys share one is no error, since the file holds its key.
fs::path file_of(const std::string& folder, std::string_view key) {
  return fs::path(folder) / (hex(fnv(key, 0xcbf29ce484222325u)) + hex(fnv(key, 0x9e3779b97f4a7c15u)) + ".program");
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
// MAGIC, checksum of the rest, bytes of the key, the key, the Program.
Found decode(std::string_view in, std::string_view key, std::optional<Program>& program) {
  if (!in.starts_with(kMagic)) return Found::broken;
  in.remove_prefix(kMagic.size());
  const auto sum = take(in);
  if (!sum || *sum != checksum(in)) return Found::broken;
  const auto size = take(in);
  if (!size || *size > in.size()) return Found::broken;
  if (in.substr(0, *size) != key) return Found::other_key;
  program = program_from_bytes(in.substr(*size));
  return program ? Found::good : Found::broken;
}

void note(const std::string& text) { std::fprintf(stderr, "tessera: TESSERA_CACHE: %s\n", text.c_str()); }
// One that would come with every kernel.
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

std::string key(const Target& target, std::string_view kernel) {
  const auto& [name, kind, max_workgroup_size, max_workgroup_count, shared_bytes, push_constant_bytes, max_buffer_bytes, min_subgroup_size, max_subgroup_size,
               subgroup_size, can_require_subgroup_size, max_loop_iterations, dot_results, compute_units, subgroup_vote, subgroup_arithmetic, subgroup_ballot,
               subgroup_shuffle, int8, int16, int64, float16, float64, int64_atomics, storage8, storage16, vulkan_memory_model_device_scope, rte16, rte32, rte64,
               preserve16, preserve32, preserve64] = target;
  std::string k = std::string("build ") + kBuildId + "\ntarget " + name + "\n";
  for (int64_t v : {int64_t{kind == Target::Kind::cpu}, int64_t{max_workgroup_size}, int64_t{max_workgroup_count}, shared_bytes, int64_t{push_constant_bytes},
                    max_buffer_bytes, int64_t{min_subgroup_size}, int64_t{max_subgroup_size}, int64_t{subgroup_size}, max_loop_iterations, int64_t{dot_results},
                    int64_t{compute_units}})
    k += std::to_string(v) + " ";
  for (bool b : {can_require_subgroup_size, subgroup_vote, subgroup_arithmetic, subgroup_ballot, subgroup_shuffle, int8, int16, int64, float16, float64, int64_atomics,
                 storage8, storage16, vulkan_memory_model_device_scope, rte16, rte32, rte64, preserve16, preserve32, preserve64})
    k += b ? '1' : '0';
  return k + "\n" + std::string(kernel);
}

std::optional<Program> read(const std::string& folder, std::string_view key) {
  const fs::path file = file_of(folder, key);
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::optional<Program> program;
  if (decode(bytes, key, program) == Found::broken) {
    note(file.string() + " is broken or none of ours: it is ignored, and replaced");
    return std::nullopt;
  }
  return program;
}

void write(const std::string& folder, std::string_view key, const Program& program) {
  std::string body;
  put(body, key.size());
  body += key;
  body += program_to_bytes(program);
  std::string bytes(kMagic);
  put(bytes, checksum(body));
  bytes += body;

  static std::atomic<uint64_t> number{0};
  const fs::path file = file_of(folder, key);
  const fs::path temporary = file.string() + "." + std::to_string(getpid()) + "." + std::to_string(++number);
  std::error_code error;
  fs::create_directories(folder, error);
  std::ofstream out(temporary, std::ios::binary);
  out << bytes;
  out.close();
  const bool written = static_cast<bool>(out);
  if (written) fs::rename(temporary, file, error);
  if (written && !error) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  note_once("cannot write to " + folder + ": kernels are compiled in every process");
}

}  // namespace tessera::disk_cache
