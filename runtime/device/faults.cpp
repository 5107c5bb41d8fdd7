#include "runtime/device/faults.h"

#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "engine/base/error.h"

namespace tessera::vulkan {
namespace {

// Functions of the tables have no argument that leads to a Faults, so what they see is the process's. Constructed with
// the first Faults, and kept: a Device made under it may outlive it.
struct State {
  std::mutex mutex;
  bool installed = false;
  std::vector<Faults::Call> calls;
  std::string failing;  // function,
  uint64_t left = 0;    // and its calls before the one that fails
  VkResult result = VK_SUCCESS;
  bool failed = false, lost = false, hides_coherent = false;
  uint64_t without_callbacks = 0;
  int naming = 0, changing = 0;  // calls that are being made now; see device_list()
  uint64_t overlaps = 0;
  std::map<std::string, int64_t> alive;
  VkDevice device = VK_NULL_HANDLE;  // made last
  PFN_vkDeviceWaitIdle wait_idle = nullptr;
};
State& state() {
  static auto* s = new State;
  return *s;
}

bool tells_loss(std::string_view name) {
  return name == "vkQueueSubmit2" || name == "vkWaitSemaphores" || name == "vkGetSemaphoreCounterValue" ||
         name == "vkDeviceWaitIdle" || name == "vkGetQueryPoolResults";
}

// What the call that begins is to return instead of being made; for VK_INCOMPLETE and the like, which are no errors, in
// `afterwards`.
std::optional<VkResult> begin(const char* name, bool returns_result, std::optional<VkResult>& afterwards) {
  State& s = state();
  VkDevice idle = VK_NULL_HANDLE;
  std::optional<VkResult> r;
  {
    const std::lock_guard lock(s.mutex);
    if (!s.installed) return std::nullopt;
    s.calls.push_back({name, returns_result});
    if (!returns_result) return std::nullopt;
    if (std::string_view(name) == "vkCreateDevice") s.lost = false;
    if (!s.failed && s.failing == name && s.left-- == 0) {
      r = s.result;
      s.failed = true;
      s.lost |=
          s.result == VK_ERROR_DEVICE_LOST && s.device != VK_NULL_HANDLE && std::string_view(name) != "vkCreateDevice";
    } else if (s.lost && tells_loss(name)) {
      r = VK_ERROR_DEVICE_LOST;
    }
    if (r && s.lost) idle = s.device;
  }
  if (idle != VK_NULL_HANDLE) s.wait_idle(idle);  // a lost device runs nothing any more
  if (r && *r >= 0) {
    afterwards = r;
    if (*r == VK_INCOMPLETE) return std::nullopt;
  }
  return r;
}

void created(std::string_view what, VkDevice device) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (what == "ComputePipelines") what = "Pipelines";
  ++s.alive[std::string(what)];
  if (device != VK_NULL_HANDLE) s.device = device;
}
void destroyed(std::string_view what) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (what == "Device") s.device = VK_NULL_HANDLE;
  const std::string type(what == "Pipeline" ? "Pipelines" : what);
  if (--s.alive[type] == 0) s.alive.erase(type);
}

// Counts a call as being made, for as long as it is.
class Made {
 public:
  explicit Made(int State::* calls) : calls_(calls) {
    const std::lock_guard lock(state().mutex);
    ++(state().*calls);
    state().overlaps += state().naming > 0 && state().changing > 0;
  }
  ~Made() {
    const std::lock_guard lock(state().mutex);
    --(state().*calls_);
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

 private:
  int State::* calls_;
};

void count_bare() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.without_callbacks;
}

void hide_coherent(VkPhysicalDeviceMemoryProperties& p) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (uint32_t i = 0; i < p.memoryTypeCount && s.installed && s.hides_coherent; ++i)
    p.memoryTypes[i].propertyFlags &= ~VkMemoryPropertyFlags{VK_MEMORY_PROPERTY_HOST_COHERENT_BIT};
}

template <class Name, class F> struct Way;
template <class Name, class R, class... A> struct Way<Name, R(VKAPI_PTR*)(A...)> {
  static inline R(VKAPI_PTR* next)(A...) = nullptr;
  static constexpr std::string_view name = Name::text;

  static VKAPI_ATTR R VKAPI_CALL call(A... a) {
    constexpr bool destroys = name.starts_with("vkDestroy") || name == "vkFreeMemory";
    constexpr bool creates = name.starts_with("vkCreate") || name == "vkAllocateMemory";
    constexpr bool changes = (destroys || creates) && (name.ends_with("Device") || name.ends_with("Instance"));
    std::optional<Made> made;
    if constexpr (changes) made.emplace(&State::changing);
    if constexpr (name == "vkSetDebugUtilsObjectNameEXT") made.emplace(&State::naming);
    std::optional<VkResult> afterwards;
    const std::optional<VkResult> r = begin(Name::text, std::is_same_v<R, VkResult>, afterwards);
    const auto all = std::tie(a...);
    if constexpr ((std::is_same_v<A, const VkAllocationCallbacks*> || ...)) {
      if (std::get<const VkAllocationCallbacks*&>(all) == nullptr) count_bare();
    }
    if constexpr (destroys) {
      constexpr bool first = name == "vkDestroyDevice" || name == "vkDestroyInstance";
      if (std::get<first ? 0 : 1>(all) != VK_NULL_HANDLE) destroyed(name == "vkFreeMemory" ? "Memory" : name.substr(9));
    }
    if constexpr (std::is_same_v<R, VkResult>) {
      if (r) return *r;
      const VkResult got = next(a...);
      if constexpr (creates) {
        VkDevice device = VK_NULL_HANDLE;
        if constexpr (name == "vkCreateDevice") device = *std::get<3>(all);
        if (got >= 0) created(name == "vkAllocateMemory" ? "Memory" : name.substr(8), device);
      }
      return got >= 0 && afterwards ? *afterwards : got;
    } else if constexpr (name == "vkGetPhysicalDeviceMemoryProperties" ||
                         name == "vkGetPhysicalDeviceMemoryProperties2") {
      next(a...);
      if constexpr (name == "vkGetPhysicalDeviceMemoryProperties") hide_coherent(*std::get<1>(all));
      else hide_coherent(std::get<1>(all)->memoryProperties);
    } else {
      return next(a...);
    }
  }
};

bool installed() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.installed;
}

template <class Name, class F> void lead(F& f) {
  if (!f) return;
  if (f == &Way<Name, F>::call) return;
  Way<Name, F>::next = f;
  f = &Way<Name, F>::call;
}

#define X(f)                                \
  struct Name_##f {                         \
    static constexpr const char* text = #f; \
  };
TESSERA_VK_GLOBAL(X)
TESSERA_VK_INSTANCE(X)
TESSERA_VK_DEBUG(X)
TESSERA_VK_DEVICE(X)
TESSERA_VK_DEVICE_OPTIONAL(X)
#undef X

}  // namespace

#define X(f) lead<Name_##f>(table.f);
void intercept(Library& table) {
  if (!installed()) return;
  TESSERA_VK_GLOBAL(X)
}
void intercept(InstanceTable& table) {
  if (!installed()) return;
  const PFN_vkGetDeviceProcAddr lookup = table.vkGetDeviceProcAddr;
  TESSERA_VK_INSTANCE(X)
  TESSERA_VK_DEBUG(X)
  table.vkGetDeviceProcAddr = lookup;  // only looks up
}
void intercept(DeviceTable& table, VkDevice device) {
  if (!installed()) return;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (table.vkDeviceWaitIdle != &Way<Name_vkDeviceWaitIdle, PFN_vkDeviceWaitIdle>::call)
      s.wait_idle = table.vkDeviceWaitIdle;
    s.device = device;  // a host's is not made through here
  }
  TESSERA_VK_DEVICE(X)
  TESSERA_VK_DEVICE_OPTIONAL(X)
}
#undef X

Faults::Faults() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.installed) throw InternalError("there is a Faults already");
  s.installed = true;
  s.alive.clear();
  s.calls.clear();
  s.failing.clear();
  s.failed = s.lost = s.hides_coherent = false;
  s.without_callbacks = s.overlaps = 0;
}
Faults::~Faults() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.installed = false;
}
void Faults::fail(const std::string& function, uint64_t number, VkResult result) {
  count();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.failing = function;
  s.left = number;
  s.result = result;
}
void Faults::hide_coherent_memory(bool hide) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.hides_coherent = hide;
}
void Faults::count() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls.clear();
  s.failing.clear();
  s.failed = s.lost = false;
}
std::vector<Faults::Call> Faults::calls() const {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}
uint64_t Faults::without_callbacks() const {
  const std::lock_guard lock(state().mutex);
  return state().without_callbacks;
}
uint64_t Faults::overlaps() const {
  const std::lock_guard lock(state().mutex);
  return state().overlaps;
}
bool Faults::failed() const {
  const std::lock_guard lock(state().mutex);
  return state().failed;
}
std::map<std::string, int64_t> Faults::alive() const {
  const std::lock_guard lock(state().mutex);
  return state().alive;
}

}  // namespace tessera::vulkan
