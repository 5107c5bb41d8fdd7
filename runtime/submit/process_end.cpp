#include "runtime/submit/process_end.h"

#include <cstdlib>
#include <mutex>
#include <vector>

#include "engine/base/platform.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {
namespace {

struct Contexts {
  std::mutex mutex;
  struct One {
    std::weak_ptr<Context> context;
    int process;
  };
  std::vector<One> in_order;
  std::vector<std::shared_ptr<Context>> left;
};
Contexts& contexts() {
  static auto* const c = new Contexts;  // there to the end
  return *c;
}

// What std::atexit has been told last is called first, as with the destructors of libraries and static objects: each
// call is for the youngest Context that has not had its own.
void end_youngest() {
  Contexts& all = contexts();
  std::shared_ptr<Context> c;
  int process = 0;
  {
    const std::lock_guard lock(all.mutex);
    if (all.in_order.empty()) return;
    c = all.in_order.back().context.lock();
    process = all.in_order.back().process;
    all.in_order.pop_back();
    if (c) all.left.push_back(c);
  }
  if (c) c->end(process == platform::process_id());
}

}  // namespace

std::shared_ptr<Context> end_with_process(std::shared_ptr<Context> context) {
  Contexts& all = contexts();
  const std::lock_guard lock(all.mutex);
  all.in_order.push_back({context, platform::process_id()});
  if (std::atexit(end_youngest) != 0) all.in_order.pop_back();
  return context;
}

}  // namespace tessera::vulkan
