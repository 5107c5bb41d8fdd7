// An engine's own allocator: all device memory comes from it and goes back, what it refuses is an error with a table,
// and bad answers are named.
#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/call/jit.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace memory_pool_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// Blocks of 4 MiB per memory type, or one as large as what is asked, filled from the front; a block starts again when
/// nothing in it is left.
struct Engine {
  struct Block {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    std::byte* mapped = nullptr;
    VkDeviceSize size = 0, used = 0, pieces = 0;
    uint32_t type = 0;
  };
  VulkanHost& host;
  VkPhysicalDeviceMemoryProperties types{};
  std::mutex mutex;
  std::vector<Block> blocks;
  std::map<std::pair<VkDeviceMemory, VkDeviceSize>, MemoryPiece> alive;
  VkDeviceSize room = VK_WHOLE_SIZE;
  uint64_t asked = 0, wrong = 0;
  std::function<void(MemoryPiece&)> spoil;

  explicit Engine(VulkanHost& h) : host(h) { host.vkGetPhysicalDeviceMemoryProperties(host.physical, &types); }
  ~Engine() {
    for (const Block& b : blocks) host.vkFreeMemory(host.device, b.memory, nullptr);
  }

  MemoryPool pool() {
    return {[this](const MemoryRequest& r, MemoryPiece& p) { return allocate(r, p); },
            [this](const MemoryPiece& p) { free(p); }};
  }
  VkResult allocate(const MemoryRequest& r, MemoryPiece& p) {
    const std::lock_guard lock(mutex);
    ++asked;
    if (r.size > room) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    uint32_t type = 32;
    for (const VkMemoryPropertyFlags wanted : {r.required | r.preferred, r.required})
      for (uint32_t t = 0; t < types.memoryTypeCount && type == 32; ++t)
        if ((r.memory_type_bits >> t & 1) && (types.memoryTypes[t].propertyFlags & wanted) == wanted) type = t;
    if (type == 32) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const auto up = [&](VkDeviceSize offset) { return (offset + r.alignment - 1) / r.alignment * r.alignment; };
    const auto fits = [&](const Block& b) { return b.type == type && up(b.used) + r.size <= b.size; };
    auto b = std::find_if(blocks.begin(), blocks.end(), fits);
    if (b == blocks.end()) {
      Block fresh{.size = std::max<VkDeviceSize>(r.size, 4 << 20), .type = type};
      const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                            VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
      const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, fresh.size, type};
      if (const VkResult v = host.vkAllocateMemory(host.device, &info, nullptr, &fresh.memory); v < 0) return v;
      void* mapped = nullptr;
      if (types.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
        host.vkMapMemory(host.device, fresh.memory, 0, VK_WHOLE_SIZE, 0, &mapped);
      fresh.mapped = static_cast<std::byte*>(mapped);
      b = blocks.insert(blocks.end(), fresh);
    }
    p = {b->memory, up(b->used), r.size, type, b->mapped ? b->mapped + up(b->used) : nullptr, this};
    b->used = p.offset + r.size;
    ++b->pieces;
    if (spoil) spoil(p);
    alive[{p.memory, p.offset}] = p;
    return VK_SUCCESS;
  }
  void free(const MemoryPiece& p) {
    const std::lock_guard lock(mutex);
    const auto it = alive.find({p.memory, p.offset});
    if (it == alive.end() || p.user != this || it->second.size != p.size) {
      ++wrong;
      return;
    }
    alive.erase(it);
    for (Block& b : blocks)
      if (b.memory == p.memory && --b.pieces == 0) b.used = 0;
  }
};

ImportedDevice imported(const VulkanHost& host, Engine& engine) {
  ImportedDevice i = host.imported();
  i.memory = engine.pool();
  return i;
}

}  // namespace

TEST_CASE("all device memory comes from the engine's pool, and goes back") {
  for (const bool stage : {false, true}) {
    CAPTURE(stage);
    vulkan::Faults faults;
    auto host = std::make_unique<VulkanHost>();
    {
      Engine engine(*host);
      {
        DeviceOptions o;
        o.always_stage = stage;
        o.log_commands = true;
        o.print = [](std::string_view) {};
        const Device d = Device::import(imported(*host, engine), o);
        faults.count();
        const DeviceArray x(d, ramp(1000)), big(d, ramp(3 << 20));
        CHECK(d.allocated_bytes() >= 4 * (1000 + (3 << 20)));
        CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(1000));
        CHECK(floats(launch(d, scratch(), {x})[0])[7] == 21);
        launch(d, table(), {x, x});
        CHECK(floats(big) == floats(big.copy()));
        const auto says =
            pallas_call([](Ref a, Ref b) { debug_print("{}", a[tessera::all]), b[tessera::all] = a[tessera::all] * 2; },
                        {.out_shape = {{{8}, f32}}, .name = "says"});
        CHECK(load(d, says.trace({{{8}, f32}})).run({ramp(8)})[0].element_bits(3) == ramp(1, 6).element_bits(0));
        const auto f = jit([&](Tensor a) { return Value(says(says(a))); });
        CHECK(floats(launch(d, f, {DeviceArray(d, ramp(8))})[0])[1] == 4);
        PreparedKernel kernel(d, scratch(), {.frames_in_flight = 2, .dims = {{"n", 1000}}});
        const VkCommandBuffer c = host->commands();
        host->begin(c);
        kernel.record(c, 0, {x, x.copy()});
        host->run(c);
        d.wait();
        for (const vulkan::Faults::Call& call : faults.calls())
          CHECK(std::string_view(call.name) != "vkAllocateMemory");
        CHECK(engine.asked > 10);
        for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
      }
      CHECK(engine.alive.empty());
      CHECK(engine.wrong == 0);
      CHECK(faults.alive().empty());
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("a pool that refuses is asked again, and then it is said who holds what") {
  auto host = std::make_unique<VulkanHost>();
  {
    Engine engine(*host);
    {
      const Device d = Device::import(imported(*host, engine));
      const DeviceArray x(d, ramp(1000));
      engine.room = 5000;
      const uint64_t before = engine.asked;
      CHECK(error_of<DeviceError>([&] { DeviceArray(d, {2000}, f32); }) ==
            "f32[2000]: 8000 bytes asked of ImportedDevice::memory on " + d.info().name +
                ": VK_ERROR_OUT_OF_DEVICE_MEMORY; Tessera holds " + std::to_string(d.allocated_bytes()) +
                ":\n  4000 f32[1000]");
      CHECK(engine.asked == before + 2);
      CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(1000));
      engine.room = 0;
      CHECK_THROWS_AS(launch(d, scale(), {x}), DeviceError);
      engine.room = VK_WHOLE_SIZE;
      const MemoryPool pool = engine.pool();
      ImportedDevice i = imported(*host, engine);
      i.memory.allocate = [&](const MemoryRequest& r, MemoryPiece& p) -> VkResult {
        if (r.what == "f32[7]") throw std::runtime_error("no");
        return r.what == "f32[5]" ? VK_INCOMPLETE : pool.allocate(r, p);
      };
      const Device other = Device::import(i);
      CHECK(error_of<std::runtime_error>([&] { DeviceArray(other, {7}, f32); }) == "no");
      CHECK(error_of<SpecError>([&] { DeviceArray(other, {5}, f32); }) ==
            "f32[5]: ImportedDevice::memory: allocate returned VK_INCOMPLETE\n  note: return VK_SUCCESS, or why there "
            "is no memory");
      CHECK(floats(DeviceArray(other, ramp(8)))[7] == 7);
    }
    CHECK(engine.alive.empty());
  }
  check_silent(std::move(host));
}

TEST_CASE("what is wrong with a pool's answer is said, and it gets its piece back") {
  auto host = std::make_unique<VulkanHost>();
  {
    Engine engine(*host);
    {
      const Device d = Device::import(imported(*host, engine));
      const DeviceArray there(d, ramp(100));
      const MemoryPiece first = engine.alive.begin()->second;
      const auto said = [&](std::function<void(MemoryPiece&)> spoil) {
        engine.spoil = std::move(spoil);
        const std::string text = error_of<SpecError>([&] { DeviceArray(d, {16}, f32); });
        engine.spoil = nullptr;
        return text;
      };
      const std::string gave = "f32[16]: ImportedDevice::memory: allocate gave ";
      CHECK(said([](MemoryPiece& p) { p.memory = VK_NULL_HANDLE; }) == gave + "no VkDeviceMemory");
      CHECK(said([](MemoryPiece& p) { p.size = 60; }) == gave + "60 bytes but 64 bytes were asked");
      CHECK(said([](MemoryPiece& p) { p.offset += 4; }).ends_with(" was asked"));
      CHECK(said([](MemoryPiece& p) { p.offset = 100; }) == gave + "offset 100 but a multiple of 64 was asked");
      CHECK(said([](MemoryPiece& p) { p.memory_type = 31; }).starts_with(gave + "memory of type 31 but one of "));
      CHECK(said([](MemoryPiece& p) { p.mapped = nullptr; }) ==
            gave + "memory that is not mapped but HOST_VISIBLE and HOST_COHERENT was asked");
      CHECK(said([&](MemoryPiece& p) { p.offset = first.offset + 64; }) ==
            gave + "64 bytes at offset " + std::to_string(first.offset + 64) +
                " of a VkDeviceMemory, some of which it has given before and not got back");
      CHECK(floats(there)[99] == 99);
      ImportedDevice i = imported(*host, engine);
      i.memory.free = nullptr;
      CHECK(error_of<SpecError>([&] { Device::import(i); }) ==
            "Device::import: ImportedDevice::memory has allocate but not free");
      i.memory = {};
      i.memory.free = [](const MemoryPiece&) {};
      CHECK(error_of<SpecError>([&] { Device::import(i); }) ==
            "Device::import: ImportedDevice::memory has free but not allocate");
    }
    CHECK(engine.wrong == 0);
  }
  check_silent(std::move(host));
}

}  // namespace memory_pool_test
