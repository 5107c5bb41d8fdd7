#include "runtime/context.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "codegen/program/program.h"
#include "engine/base/error.h"
#include "runtime/image.h"
#include "runtime/names.h"
#include "runtime/pipeline.h"
#include "runtime/process_end.h"

namespace tessera::vulkan {
namespace {

std::string lower(std::string s) {
  for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string listing(const std::vector<Probe>& probes) {
  std::string s;
  for (const Probe& p : probes) {
    s += "\n  " + std::to_string(p.info.index) + ": " + p.info.name;
    for (size_t i = 0; i < p.info.lacks.size(); ++i) s += (i ? ", " : " (lacks ") + p.info.lacks[i];
    if (!p.info.lacks.empty()) s += ")";
  }
  return s;
}

int rank(const std::string& kind) {
  const char* order[] = {"discrete GPU", "integrated GPU", "virtual GPU", "CPU"};
  return static_cast<int>(std::find(order, order + 4, kind) - order);
}

// Kinds in their order; of CPU drivers side by side one that lets loops run to their end, then the newest of the same
// maker's.
bool better(const Probe& a, const Probe& b) {
  if (rank(a.info.kind) != rank(b.info.kind)) return rank(a.info.kind) < rank(b.info.kind);
  if (a.info.target.kind != Target::Kind::cpu || b.info.target.kind != Target::Kind::cpu) return false;
  const bool cut = a.info.target.max_loop_iterations != 0, other_cut = b.info.target.max_loop_iterations != 0;
  if (cut != other_cut) return other_cut;
  return a.driver.vendor == b.driver.vendor && a.driver.device == b.driver.device &&
         a.driver.version > b.driver.version;
}

/// A part of a device's name, or its index, from what people write: Python's "vulkan" and "vulkan:NAME", and Mesa's
/// driver for the CPU by its own name.
std::string named(const std::string& given) {
  std::string s = lower(given);
  if (s == "vulkan") return "";
  if (s.starts_with("vulkan:")) s.erase(0, 7);
  return s == "lavapipe" ? "llvmpipe" : s;
}

size_t choose(const std::vector<Probe>& probes, const DeviceOptions& options) {
  const std::string from_environment = options.select.empty() ? device_in_environment() : "";
  const std::string given = options.select.empty() ? from_environment : options.select;
  const std::string wanted = named(given);
  if (!wanted.empty()) {
    const std::string asked = (from_environment.empty() ? "device \"" : "TESSERA_DEVICE=\"") + given + "\"";
    const bool is_index = wanted.size() < 10 &&
                          std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isdigit(c); });
    for (size_t i = 0; i < probes.size(); ++i) {
      const bool fits = is_index ? probes[i].info.index == std::stoi(wanted)
                                 : lower(probes[i].info.name).find(wanted) != std::string::npos;
      if (!fits) continue;
      if (!probes[i].info.lacks.empty())
        throw DeviceError(asked + " cannot run Tessera; the Vulkan devices are:" + listing(probes));
      return i;
    }
    const bool host = from_environment == "interpreter";
    throw DeviceError(asked + (host ? " runs calls of host arrays on the host, and" : "") +
                      " is none of the Vulkan devices:" + listing(probes));
  }
  size_t best = probes.size();
  for (size_t i = 0; i < probes.size(); ++i)
    if (probes[i].info.lacks.empty() && (best == probes.size() || better(probes[i], probes[best]))) best = i;
  if (best == probes.size())
    throw DeviceError("no Vulkan device can run Tessera:" + listing(probes), {},
                      "update the driver, or set TESSERA_DEVICE=interpreter to run kernels on the host");
  return best;
}

std::vector<Probe> probe_all(const Instance& instance, const std::vector<VkPhysicalDevice>& devices) {
  std::vector<Probe> probes;
  for (VkPhysicalDevice d : devices) probes.push_back(probe(instance, d, static_cast<int>(probes.size())));
  return probes;
}

}  // namespace

// ---- Context

std::shared_ptr<Context> Context::create(const DeviceOptions& options) {
  return end_with_process(std::shared_ptr<Context>(new Context(options, nullptr)));
}
std::shared_ptr<Context> Context::import(const ImportedDevice& device, const DeviceOptions& options) {
  return end_with_process(std::shared_ptr<Context>(new Context(options, &device)));
}

void Context::end(bool waits) noexcept {
  try {
    if (waits && !imported_) wait_all();  // a host's device may be gone
  } catch (...) {                         // the device is lost
  }
  for (bool said = !waits; !said;) try {
      say();
      said = true;
    } catch (...) {  // of the user's callback
    }
  ended_ = true;
}

std::shared_ptr<Context> Context::again() {
  if (imported_)
    throw DeviceError("Device::recover: " + name() +
                      " has been imported: its host makes a new device and imports that");
  DeviceOptions options = options_;
  options.select = std::to_string(probe_.info.index);
  std::shared_ptr<Context> fresh = create(options);
  const std::lock_guard lock(programs_mutex);
  fresh->programs = programs;
  return fresh;
}

Context::Context(const DeviceOptions& options, const ImportedDevice* imported)
    : options_(options), imported_(imported != nullptr) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (options.print_bytes < 0 || options.print_bytes > kMost)
    throw SpecError("DeviceOptions::print_bytes is " + std::to_string(options.print_bytes) + ", not between 0 and " +
                    std::to_string(kMost));
  if (options.memory_limit < 0)
    throw SpecError("DeviceOptions::memory_limit is " + std::to_string(options.memory_limit) + ", which is below 0");
  if (!(options.watchdog_seconds >= 0))
    throw SpecError("DeviceOptions::watchdog_seconds is " + std::to_string(options.watchdog_seconds) +
                    ", which is not 0 or more");
  print_bytes_ = options.print_bytes / 4 * 4;
  options_.debug_info |= environment("TESSERA_DEBUG_INFO") == "1";
  if (imported) take_device(*imported);
  else choose_device();
  options_.allocation_callbacks = instance_->host();  // the caller's own may go
  try {
    if (!imported) create_device();
    create_allocator(options.memory_limit);
    recorder_ = std::make_unique<Recorder>(vk_, device_, queue_, name(), options_.log_commands);
    pace_ = std::make_unique<Pace>(vk_, device_, probe_);
    if (!imported_) {
      name_object(vk_, device_, device_, "Tessera's device");
      name_object(vk_, device_, queue_.handle, "Tessera's queue");
    }
  } catch (...) {
    if (allocator_) vmaDestroyAllocator(allocator_);
    if (!imported_ && device_ && vk_.vkDestroyDevice) vk_.vkDestroyDevice(device_, vk_.host);
    throw;
  }
}

void Context::choose_device() {
  const bool asked = environment("TESSERA_VALIDATION") == "1";
  const Validation validation = asked || (options_.validation && options_.log) ? Validation::print
                                : options_.validation                          ? Validation::collect
                                                                               : Validation::off;
  instance_ = std::make_unique<Instance>(options_.library, validation, options_.debug_info, options_.log,
                                         options_.allocation_callbacks);
  const std::vector<VkPhysicalDevice> devices = instance_->physical_devices();
  std::vector<Probe> probes = probe_all(*instance_, devices);
  const size_t chosen = choose(probes, options_);
  physical_ = devices[chosen];
  probe_ = std::move(probes[chosen]);
}

void Context::create_device() {
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = probe_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &probe_.enable->core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(probe_.extensions.size());
  info.ppEnabledExtensionNames = probe_.extensions.data();
  check(instance_->vk().vkCreateDevice(physical_, &info, instance_->vk().host, &device_), "vkCreateDevice", name());
  vk_ = load_device(instance_->vk(), device_, {probe_.extensions.begin(), probe_.extensions.end()},
                    instance_->debug_utils());
  queue_.family = probe_.queue_family;
  vk_.vkGetDeviceQueue(device_, queue_.family, 0, &queue_.handle);
}

void Context::create_allocator(int64_t memory_limit) {
  memory_bytes_ = probe_.info.memory_bytes;
  if (memory_limit > 0) memory_bytes_ = std::min(memory_bytes_, memory_limit);
  std::vector<VkDeviceSize> limits(VK_MAX_MEMORY_HEAPS,
                                   memory_limit > 0 ? static_cast<VkDeviceSize>(memory_limit) : VK_WHOLE_SIZE);
  VmaVulkanFunctions functions{};
  const InstanceTable& i = instance_->vk();
  functions.vkGetPhysicalDeviceProperties = i.vkGetPhysicalDeviceProperties;
  functions.vkGetPhysicalDeviceMemoryProperties = i.vkGetPhysicalDeviceMemoryProperties;
  functions.vkGetPhysicalDeviceMemoryProperties2KHR = i.vkGetPhysicalDeviceMemoryProperties2;
#define SET(f) functions.f = vk_.f;
  // clang-format off
  SET(vkAllocateMemory) SET(vkFreeMemory) SET(vkMapMemory) SET(vkUnmapMemory) SET(vkFlushMappedMemoryRanges)
  SET(vkInvalidateMappedMemoryRanges)
  SET(vkBindBufferMemory) SET(vkBindImageMemory) SET(vkGetBufferMemoryRequirements)
  SET(vkGetImageMemoryRequirements) SET(vkCreateBuffer) SET(vkDestroyBuffer)
  SET(vkCreateImage) SET(vkDestroyImage) SET(vkCmdCopyBuffer) SET(vkGetDeviceBufferMemoryRequirements)
  SET(vkGetDeviceImageMemoryRequirements)
  // clang-format on
#undef SET
  functions.vkGetBufferMemoryRequirements2KHR = vk_.vkGetBufferMemoryRequirements2;
  functions.vkGetImageMemoryRequirements2KHR = vk_.vkGetImageMemoryRequirements2;
  functions.vkBindBufferMemory2KHR = vk_.vkBindBufferMemory2;
  functions.vkBindImageMemory2KHR = vk_.vkBindImageMemory2;
  VmaDeviceMemoryCallbacks memory{};  // names the blocks
  memory.pUserData = this;
  memory.pfnAllocate = [](VmaAllocator, uint32_t type, VkDeviceMemory block, VkDeviceSize size, void* self) {
    const auto& c = *static_cast<const Context*>(self);
    name_object(c.vk_, c.device_, block,
                "Tessera's memory of type " + std::to_string(type) + ", " + std::to_string(size) + " bytes");
  };
  VmaAllocatorCreateInfo info{};
  if (has_names(vk_)) info.pDeviceMemoryCallbacks = &memory;
  info.flags = VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT;
  if (probe_.memory_budget) info.flags |= VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
  info.physicalDevice = physical_;
  info.device = device_;
  info.instance = instance_->handle();
  info.pVulkanFunctions = &functions;
  // what the allocator may call
  info.vulkanApiVersion = probe_.enable->v13.maintenance4 ? VK_API_VERSION_1_3 : VK_API_VERSION_1_2;
  info.pHeapSizeLimit = limits.data();
  info.pAllocationCallbacks = vk_.host;
  check(vmaCreateAllocator(&info, &allocator_), "vmaCreateAllocator", name());
}

Context::~Context() {
  // Objects may go when the device is idle or lost. Short of memory it is neither.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const VkResult r = imported_ ? idle() : vk_.vkDeviceWaitIdle(device_);
    if (r >= 0 || r == VK_ERROR_DEVICE_LOST) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const auto& o : in_flight_) {
    const bool prints = o->report && !o->prints.empty();
    try {
      if (prints) settle(*o);
    } catch (...) {  // the device is lost
    }
    o->inputs.clear();
    if (o->report) reports_.push_back(std::move(o->report));
  }
  in_flight_.clear();
  for (bool said = false; !said;) try {
      say();
      said = true;
    } catch (...) {  // of the user's callback, which has been given one line more
    }
  reports_.clear();
  for (const Garbage& g : garbage_) free_memory(g);
  pipelines_.clear();
  images_.reset();
  pace_.reset();
  recorder_.reset();
  vmaDestroyAllocator(allocator_);
  if (!imported_) vk_.vkDestroyDevice(device_, vk_.host);
}

// Of an imported device only what is ours: its host may be using the other queues.
VkResult Context::idle() {
  VkSemaphore timeline = recorder_->timeline();
  const uint64_t value = recorder_->submitted();
  const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline, &value};
  const VkResult r = vk_.vkWaitSemaphores(device_, &info, UINT64_MAX);
  return r == VK_TIMEOUT ? VK_ERROR_UNKNOWN : r;
}

void Context::require_alive() {
  const std::lock_guard lock(mutex_);
  recorder_->require_alive();
}

void Context::wait(uint64_t value) {
  {
    const std::lock_guard lock(mutex_);
    recorder_->require_alive();
    if (value == 0) return;
    if (value <= recorder_->known_completed()) return collect();
  }
  VkSemaphore timeline = recorder_->timeline();
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline, &value};
  VkResult r = VK_TIMEOUT;
  // drivers may count in less than 64 bits
  while (r == VK_TIMEOUT) r = vk_.vkWaitSemaphores(device_, &info, UINT64_MAX);
  std::lock_guard lock(mutex_);
  recorder_->check_alive(r, "vkWaitSemaphores");
  recorder_->note_completed(value);
  collect();
}

void Context::wait_all() {
  uint64_t value;
  {
    std::lock_guard lock(mutex_);
    value = recorder_->submitted();
  }
  wait(value);
}

void Context::destroy(const Garbage& g) {
  recorder_->note_release(g.range);
  free_memory(g);
}

void Context::free_memory(const Garbage& g) {
  if (g.allocation) return vmaDestroyBuffer(allocator_, g.buffer, g.allocation);
  other_bytes_ -= g.other_bytes;
  vk_.vkDestroyBuffer(device_, g.buffer, vk_.host);
  if (g.piece.memory == VK_NULL_HANDLE) return vk_.vkFreeMemory(device_, g.imported, vk_.host);
  pieces_.erase({g.piece.memory, g.piece.offset});
  pool_.free(g.piece);
}

void Context::collect() {
  if (garbage_.empty() && in_flight_.empty()) return;
  const uint64_t completed = recorder_->completed();
  pace_->collect(completed);
  for (; !in_flight_.empty() && in_flight_.front()->value <= completed; in_flight_.pop_front())
    settle(*in_flight_.front());
  std::erase_if(garbage_, [&](const Garbage& g) {
    if (g.value > completed) return false;
    destroy(g);
    return true;
  });
}

const Pipeline& Context::pipeline(const Program& program) {
  require_alive();
  check_limits(program, probe_.info.target);  // not part of the key
  const uint64_t key = Pipeline::hash(program);
  const auto find = [&]() -> const Pipeline* {
    for (auto [it, end] = pipelines_.equal_range(key); it != end; ++it)
      if (it->second->is_for(program)) return it->second.get();
    return nullptr;
  };
  {
    std::lock_guard lock(pipelines_mutex_);
    if (const Pipeline* p = find()) return *p;
  }
  auto made = std::make_unique<Pipeline>(*this, program);  // several threads at once, perhaps of the same program
  std::lock_guard lock(pipelines_mutex_);
  if (const Pipeline* p = find()) return *p;
  ++(made->from_disk() ? pipelines_from_disk : pipelines_made);
  return *pipelines_.emplace(key, std::move(made))->second;
}

int64_t Context::allocated_bytes() {
  std::lock_guard lock(mutex_);
  if (!recorder_->lost()) collect();
  VmaTotalStatistics statistics{};
  vmaCalculateStatistics(allocator_, &statistics);
  return static_cast<int64_t>(statistics.total.statistics.allocationBytes + other_bytes_);
}

std::string Context::short_of_memory(uint64_t size, const std::string& what, VkResult r) {
  VmaBudget budgets[VK_MAX_MEMORY_HEAPS] = {};
  vmaGetHeapBudgets(allocator_, budgets);
  uint64_t held = 0, left = 0;
  {
    const std::lock_guard lock(mutex_);
    held = other_bytes_;
  }
  for (const VmaBudget& b : budgets) {
    held += b.statistics.allocationBytes;
    left = std::max(left, b.budget - std::min(b.usage, b.budget));
  }
  if (pool_.allocate)
    return what + ": " + std::to_string(size) + " bytes asked of ImportedDevice::memory on " + name() + ": " +
           to_string(r) + "; Tessera holds " + std::to_string(held) + holders();
  const auto total = static_cast<uint64_t>(memory_bytes_);
  const std::string available = probe_.memory_budget ? std::to_string(std::min(left, total - std::min(held, total)))
                                                     : "at most " + std::to_string(total - std::min(held, total));
  return what + ": " + std::to_string(size) + " bytes asked on " + name() + ": " + to_string(r) + "; of " +
         std::to_string(total) + " bytes " + available + " are available, and Tessera holds " + std::to_string(held) +
         holders();
}

std::string Context::holders() {
  constexpr size_t kLines = 8;
  struct Sum {
    uint64_t bytes = 0, count = 0;
  };
  std::map<std::string, Sum> sums;
  {
    const std::lock_guard lock(mutex_);
    for (const Buffer* b : buffers_) {
      Sum& s = sums[b->what()];
      s.bytes += b->size();
      ++s.count;
    }
    for (const Garbage& g : garbage_) {
      Sum& s = sums["memory that calls in flight still use"];
      s.bytes += g.range.end - g.range.begin;
      ++s.count;
    }
  }
  std::vector<std::pair<std::string, Sum>> lines(sums.begin(), sums.end());
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i) {
    text += (i ? "\n  " : ":\n  ") + std::to_string(lines[i].second.bytes) + " " + lines[i].first;
    if (lines[i].second.count > 1) text += " (" + std::to_string(lines[i].second.count) + " of them)";
  }
  if (lines.size() <= kLines) return text;
  Sum rest;
  for (size_t i = kLines; i < lines.size(); ++i) {
    rest.bytes += lines[i].second.bytes;
    rest.count += lines[i].second.count;
  }
  return text + "\n  " + std::to_string(rest.bytes) + " in " + std::to_string(rest.count) +
         (rest.count == 1 ? " other" : " others");
}

// ---- Buffer

Buffer::Buffer(std::shared_ptr<Context> context, uint64_t size, Memory kind, const std::string& what)
    : size_(size), context_(std::move(context)), what_(what) {
  Context& c = *context_;
  const auto most = static_cast<uint64_t>(c.probe_.info.max_array_bytes);
  if (size > most)
    throw DeviceError(what + " takes " + std::to_string(size) + " bytes but a buffer of " + c.name() + " has at most " +
                      std::to_string(most));

  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  // devices without 8 and 16-bit accesses reach the last elements by whole words
  info.size = (size + 3) & ~uint64_t{3};
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
               VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT;
  constexpr VkDeviceSize kAlignment = 64;
  auto attempt = [&] {
    return c.pool_.allocate ? take_from_pool(kind, info, kAlignment) : take_from_allocator(kind, info, kAlignment);
  };
  {
    std::lock_guard lock(c.mutex_);
    c.recorder_->require_alive();
    c.collect();
  }
  const VkResult r = c.allocate(attempt);
  if (r < 0) throw DeviceError(c.short_of_memory(size, what, r));
  name_object(c.vk_, c.device_, handle_, what_);
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, handle_};
  address_ = c.vk_.vkGetBufferDeviceAddress(c.device_, &address);
  std::lock_guard lock(c.mutex_);
  c.buffers_.insert(this);
}

VkResult Buffer::take_from_allocator(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment) {
  Context& c = *context_;
  VmaAllocationCreateInfo how{};
  how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE;
  switch (kind) {
    case Memory::array:
      if (c.always_stage()) break;
      if (c.probe_.unified) how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
      else if (c.probe_.host_writes_arrays)
        how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT |
                    VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT;
      break;
    case Memory::upload:
      how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
      break;
    case Memory::download:
      how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
      break;
    case Memory::scratch: break;
  }
  VmaAllocationInfo got{};
  if (const VkResult r =
          vmaCreateBufferWithAlignment(c.allocator_, &info, &how, alignment, &handle_, &allocation_, &got);
      r < 0)
    return r;
  VkMemoryPropertyFlags properties = 0;
  vmaGetAllocationMemoryProperties(c.allocator_, allocation_, &properties);
  // Without always_stage, memory that happens to be mappable is mapped only where `how` asked for it.
  mapped_ = static_cast<std::byte*>(got.pMappedData);
  host_reads_ =
      mapped_ && (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) && (kind == Memory::download || c.probe_.unified);
  return VK_SUCCESS;
}

Buffer::~Buffer() {
  Context& c = *context_;
  if (handle_ == VK_NULL_HANDLE || c.ended()) return;
  if (borrowed_) {
    std::lock_guard lock(c.mutex_);
    std::erase(c.borrowed_, this);
    return;
  }
  if (!imported() && !allocation_ && !piece_.memory) {  // an import that failed half way
    c.vk_.vkDestroyBuffer(c.device_, handle_, c.vk_.host);
    return;
  }
  const Context::Garbage g{
      handle_, allocation_, imported_, piece_, other_bytes_, hazards.used_at, {address_, address_ + size_}};
  std::lock_guard lock(c.mutex_);
  c.buffers_.erase(this);
  c.garbage_.push_back(g);
  try {
    c.collect();
  } catch (const DeviceError&) {
    // The device is lost; the garbage goes with the context.
  }
}

void Buffer::host_write(const void* from, uint64_t size, uint64_t to) {
  std::memcpy(mapped_ + to, from, size);
  const VkResult r = !allocation_ ? VK_SUCCESS : vmaFlushAllocation(context_->allocator_, allocation_, to, size);
  if (r < 0) check(r, (what_ + ": vkFlushMappedMemoryRanges").c_str(), context_->name());
}

void Buffer::host_read(void* to, uint64_t offset, uint64_t size) const {
  if (allocation_)
    check(vmaInvalidateAllocation(context_->allocator_, allocation_, offset, size),
          (what_ + ": vkInvalidateMappedMemoryRanges").c_str(), context_->name());
  std::memcpy(to, mapped_ + offset, size);
}

}  // namespace tessera::vulkan

namespace tessera {

std::string device_in_environment() {
  const char* named = std::getenv("TESSERA_DEVICE");
  return named ? named : "";
}

bool interpreter_selected(std::string_view select) {
  return (select.empty() ? device_in_environment() : select) == "interpreter";
}

std::vector<DeviceInfo> list_devices(const DeviceOptions& options) {
  const vulkan::Instance instance(options.library, vulkan::Validation::off);
  std::vector<DeviceInfo> infos;
  for (vulkan::Probe& p : vulkan::probe_all(instance, instance.physical_devices())) infos.push_back(std::move(p.info));
  return infos;
}

DeviceInfo find_device(const DeviceOptions& options) {
  const vulkan::Instance instance(options.library, vulkan::Validation::off);
  const std::vector<vulkan::Probe> probes = vulkan::probe_all(instance, instance.physical_devices());
  return probes[vulkan::choose(probes, options)].info;
}

Device::Device(const DeviceOptions& options) : context_(vulkan::Context::create(options)) {}
const DeviceInfo& Device::info() const { return context_->probe().info; }
void Device::recover() {
  if (lost()) context_ = context_->again();
}
void Device::wait() const {
  context_->wait_all();
  context_->say();
  context_->throw_untold();
}
void Device::submit_nothing() const {
  uint64_t value;
  {
    std::lock_guard lock(context_->mutex());
    value = context_->recorder().submit("nothing", [] {});
  }
  context_->wait(value);
}
bool Device::lost() const {
  std::lock_guard lock(context_->mutex());
  return context_->recorder().lost();
}
std::vector<std::string> Device::validation_messages() const { return context_->instance().messages(); }
int64_t Device::allocated_bytes() const { return context_->allocated_bytes(); }
CommandLog Device::command_log() const {
  std::lock_guard lock(context_->mutex());
  return context_->recorder().log();
}

Device& default_device() {
  // Never destroyed: the driver may be gone by the time that static objects are. Work in flight is awaited, so that no
  // thread of the driver runs while the process ends.
  struct Holder {
    Device* device = new Device();
    ~Holder() {
      try {
        device->wait();
      } catch (const Error&) {
      }
    }
  };
  static Holder holder;
  return *holder.device;
}

}  // namespace tessera
