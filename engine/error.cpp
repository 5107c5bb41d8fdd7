#include "engine/error.h"

#include <mutex>
#include <set>

namespace tessera {
namespace {
std::string layout(const std::string& what, Loc loc, const std::string& note) {
  std::string text = what;
  if (loc) text += "\n  at " + to_string(loc);
  if (!note.empty()) text += "\n  note: " + note;
  return text;
}
}  // namespace

Error::Error(const std::string& what, Loc loc, const std::string& note) : std::runtime_error(layout(what, loc, note)) {}

std::string to_string(Loc loc) { return loc ? std::string(loc.file) + ":" + std::to_string(loc.line) : std::string(); }

const char* intern_file(std::string_view file) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> files;
  std::lock_guard lock(mutex);
  auto it = files.find(file);
  if (it == files.end()) it = files.emplace(file).first;
  return it->c_str();
}

}  // namespace tessera
