#include "runtime/log.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace tessera {
namespace {

struct State {
  std::recursive_mutex mutex;  // a callback may log
  LogCallback callback;
};
// Never destroyed: the last messages come when static Devices go.
State& state() {
  static auto* s = new State;
  return *s;
}

}  // namespace

void set_log(LogCallback callback) {
  const std::lock_guard lock(state().mutex);
  std::swap(state().callback, callback);
}

void log(Severity severity, const std::string& message, const LogCallback& own) {
  const std::lock_guard lock(state().mutex);
  if (own) return own(severity, message);
  if (const LogCallback callback = state().callback) return callback(severity, message);
  std::fprintf(stderr, "%s\n", message.c_str());
}

}  // namespace tessera
