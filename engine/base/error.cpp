#include "engine/base/error.h"

#include <atomic>

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
  // A list that only grows, and no lock: one that some thread holds while another one forks stays locked in the child
  // for ever.
  struct Entry {
    std::string name;
    const Entry* next;
  };
  static std::atomic<const Entry*> newest{nullptr};
  const auto find = [&](const Entry* from, const Entry* to) {
    while (from != to && from->name != file) from = from->next;
    return from == to ? nullptr : from;
  };
  const Entry* seen = newest.load(std::memory_order_acquire);
  if (const Entry* e = find(seen, nullptr)) return e->name.c_str();
  auto* const own = new Entry{std::string(file), seen};
  while (!newest.compare_exchange_weak(own->next, own, std::memory_order_acq_rel, std::memory_order_acquire)) {
    if (const Entry* e = find(own->next, seen)) {
      delete own;
      return e->name.c_str();
    }
    seen = own->next;
  }
  return own->name.c_str();
}

}  // namespace tessera
