// Callbacks for host memory: every function gets them, and what they give comes back.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"

namespace allocation_test {
using namespace tessera;
using namespace tessera::test;
using namespace tessera::vulkan;

namespace {

const doctest::skip not_under_wine(!kValidation);  // it passes no callbacks on

/// A heap that counts.
struct Heap {
  std::mutex mutex;
  struct Piece {
    size_t size = 0;
    std::align_val_t alignment{1};
  };
  std::map<void*, Piece> alive;
  uint64_t calls = 0, wrong = 0;

  VkAllocationCallbacks callbacks() {
    VkAllocationCallbacks c{};
    c.pUserData = this;
    c.pfnAllocation = [](void* self, size_t size, size_t alignment, VkSystemAllocationScope) {
      return static_cast<Heap*>(self)->allocate(size, alignment);
    };
    c.pfnReallocation = [](void* self, void* old, size_t size, size_t alignment, VkSystemAllocationScope) {
      auto* h = static_cast<Heap*>(self);
      if (!old) return h->allocate(size, alignment);
      void* fresh = size ? h->allocate(size, alignment) : nullptr;
      if (fresh) std::memcpy(fresh, old, std::min(size, h->size_of(old)));
      if (fresh || !size) h->free(old);
      return fresh;
    };
    c.pfnFree = [](void* self, void* memory) { static_cast<Heap*>(self)->free(memory); };
    return c;
  }
  void* allocate(size_t size, size_t alignment) {
    const std::align_val_t at{std::max(alignment, sizeof(void*))};
    void* p = ::operator new(std::max<size_t>(size, 1), at, std::nothrow);
    if (!p) return nullptr;
    const std::lock_guard lock(mutex);
    ++calls;
    alive[p] = {size, at};
    return p;
  }
  size_t size_of(void* p) {
    const std::lock_guard lock(mutex);
    return alive[p].size;
  }
  void free(void* p) {
    if (!p) return;
    const std::lock_guard lock(mutex);
    const auto found = alive.find(p);
    if (found == alive.end()) {
      ++wrong;
      return;
    }
    ::operator delete(p, found->second.alignment);
    alive.erase(found);
  }
};

constexpr const char* kText =
    "tir 1\nkernel @twice\ngrid (cdiv(n, 32))\nin f32[n] block (32) map (%i) { yield %i }\nout f32[n] block (32) map "
    "(%i) { yield %i }\n"
    "body (%x, %o) {\n  %a = load %x[0:32]\n  %b = add %a, %a\n  store %o[0:32], %b\n}\n";

// All that makes objects: arrays of every kind, staging, pipelines, the cache's, tables, scratch, timestamps, host
// memory, a recovery.
void use(const DeviceOptions& options) {
  Device d(options);
  const DeviceArray x(d, ramp(1000));
  CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(1000));
  launch(d, scratch(), {x});
  launch(d, table(), {x, x});
  launch(d, busy(), {DeviceArray(d, ramp(1 << 16))});
  d.wait();
  const Array a = load(d, ir::parse(kText)).run({ramp(100)})[0];
  CHECK(a.at(99) == 198);
}

}  // namespace

TEST_CASE("allocation callbacks: given to every call, and everything comes back" * not_under_wine) {
  const Cache cache;  // with its VkPipelineCaches
  Heap heap;
  {
    VkAllocationCallbacks callbacks = heap.callbacks();
    const Faults watch;
    for (const bool stage : {false, true}) {
      DeviceOptions o;
      o.allocation_callbacks = &callbacks;
      o.always_stage = stage;
      use(o);
    }
    CHECK(watch.without_callbacks() == 0);
    CHECK(watch.alive().empty());
    bool seen_pipeline = false, seen_cache = false;
    for (const Faults::Call& c : watch.calls()) {
      seen_pipeline |= std::string(c.name) == "vkCreateComputePipelines";
      seen_cache |= std::string(c.name) == "vkCreatePipelineCache";
    }
    CHECK(seen_pipeline);
    CHECK(seen_cache);
  }
  CHECK(heap.calls > 100);
  CHECK(heap.alive.empty());
  CHECK(heap.wrong == 0);
}

TEST_CASE("allocation callbacks: copied, and kept by a device that is recovered" * not_under_wine) {
  Heap heap;
  {
    Faults faults;
    DeviceOptions o;
    Device d = [&] {
      VkAllocationCallbacks callbacks = heap.callbacks();
      o.allocation_callbacks = &callbacks;
      return Device(o);
    }();
    faults.fail("vkQueueSubmit2", 0, VK_ERROR_DEVICE_LOST);
    CHECK_THROWS_AS(launch(d, scale(), {DeviceArray(d, ramp(5))}), DeviceError);
    faults.count();
    d.recover();
    CHECK(floats(launch(d, scale(), {DeviceArray(d, ramp(5))})[0]) == scaled_ramp(5));
    CHECK(faults.without_callbacks() == 0);
  }
  CHECK(heap.alive.empty());
  CHECK(heap.wrong == 0);
}

TEST_CASE("allocation callbacks: host memory that runs out is an error that leaves nothing behind" * without_device *
          not_under_wine) {
  Heap heap;
  VkAllocationCallbacks callbacks = heap.callbacks();
  struct Short {
    Heap* heap;
    std::atomic<int> left{0};
  } shortage{&heap};
  callbacks.pUserData = &shortage;
  callbacks.pfnAllocation = [](void* self, size_t size, size_t alignment, VkSystemAllocationScope) -> void* {
    auto* s = static_cast<Short*>(self);
    return s->left-- > 0 ? s->heap->allocate(size, alignment) : nullptr;
  };
  callbacks.pfnReallocation = [](void* self, void* old, size_t size, size_t alignment,
                                 VkSystemAllocationScope) -> void* {
    auto* s = static_cast<Short*>(self);
    if (s->left-- <= 0) return nullptr;
    void* fresh = s->heap->allocate(size, alignment);
    if (old) std::memcpy(fresh, old, std::min(size, s->heap->size_of(old)));
    if (old) s->heap->free(old);
    return fresh;
  };
  callbacks.pfnFree = [](void* self, void* memory) { static_cast<Short*>(self)->heap->free(memory); };
  DeviceOptions o;
  o.allocation_callbacks = &callbacks;
  shortage.left = 0;
  CHECK(error_of<DeviceError>([&] { Device d(o); }) ==
        "vkCreateInstance on the Vulkan loader: VK_ERROR_OUT_OF_HOST_MEMORY");
  CHECK(heap.alive.empty());
  CHECK(heap.wrong == 0);
}

}  // namespace allocation_test
