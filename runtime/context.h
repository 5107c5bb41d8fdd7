// Context: what a Device handle shares: the VkDevice with its function table, the memory allocator, the recorder of
// commands, pipelines, memory whose owner is gone but which the device still uses, and calls whose report is still to
// be read. Buffer: a piece of memory with a device address. Internal to runtime/. Read next: recorder.h.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/outcome.h"
#include "runtime/probe.h"
#include "runtime/recorder.h"
#include "runtime/slices.h"
#include "runtime/vma.h"

namespace tessera {
struct Program;
}

namespace tessera::vulkan {

/// Arrays that others have placed lie at a multiple of it: what vector loads rely on (Program::alignment).
inline constexpr uint64_t kArgumentAlignment = 16;

class Pipeline;
class ImageKit;

enum class Memory : uint8_t {
  array,     // the device's own; mapped too where that costs nothing
  upload,    // written by the host, read by the device: staging, argument tables
  download,  // written by the device, read by the host: staging, reports
  scratch,   // the device's own, for one call
};

/// Owned by whoever holds it; when it goes, its memory is kept until the device has finished the work that uses it.
class Buffer {
 public:
  /// `what` names the asker in the error, "f32[1024, 1024]". size > 0. Throws DeviceError when it is beyond the
  /// device's limits (before asking the driver) or when memory is short even after all work in flight has finished.
  Buffer(std::shared_ptr<Context> context, uint64_t size, Memory kind, const std::string& what);
  /// Memory of the host's own, used in place: `host` to `host + size`, and nothing beyond. Null where the device or its
  /// driver will not have it; then the caller copies. The owner of the memory keeps it until wait_unused() has
  /// returned. (host_import.cpp)
  static std::shared_ptr<Buffer> import_host(std::shared_ptr<Context> context, void* host, uint64_t size);
  /// A range of a host's buffer, which keeps it (import.cpp).
  static std::shared_ptr<Buffer> borrow(std::shared_ptr<Context> context, const ImportedBuffer& from, uint64_t size,
                                        const std::string& what);
  /// In memory that others share, or may (shared_memory.cpp).
  static std::shared_ptr<Buffer> shareable(std::shared_ptr<Context> context, uint64_t size, const std::string& what);
  static std::shared_ptr<Buffer> import_shared(std::shared_ptr<Context> context, const SharedMemory& memory,
                                               uint64_t size, const std::string& what);
  /// Throws SpecError if it is not shareable.
  SharedMemory share() const;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Context& context() const { return *context_; }
  VkBuffer handle() const { return handle_; }
  uint64_t offset() const { return offset_; }    // of the first byte in handle()
  uint64_t address() const { return address_; }  // of it; a multiple of 64, or of 16 if imported
  uint64_t size() const { return size_; }
  bool mapped() const { return mapped_ != nullptr; }
  VkBufferUsageFlags usage() const { return usage_; }
  bool host_reads() const { return host_reads_; }  // mapped, and reading it is fast
  /// Copies through the mapping; the caller knows that the device is done with the bytes.
  void host_write(const void* from, uint64_t size, uint64_t to = 0);
  void host_read(void* to, uint64_t offset, uint64_t size) const;
  bool is_at(const void* host) const { return imported() && mapped_ == host; }
  bool imported() const { return imported_ != VK_NULL_HANDLE; }
  /// Returns when no submission uses it any more, or the device is lost.
  void wait_unused() noexcept;

  const std::string& what() const { return what_; }  // "f32[1024, 1024]"

  Hazards hazards;  // guarded by the context's mutex
  // of the call that its contents come from, if that can fail; guarded by the context's mutex
  std::shared_ptr<Outcome> outcome;

 private:
  VkResult take_from_pool(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment);  // memory_pool.cpp
  VkResult take_from_allocator(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment);
  Buffer(std::shared_ptr<Context> context, uint64_t size) : size_(size), context_(std::move(context)) {}

  uint64_t address_ = 0, size_ = 0, offset_ = 0;  // beside hazards: recording reads both
  std::shared_ptr<Context> context_;
  std::string what_;
  VkBuffer handle_ = VK_NULL_HANDLE;
  VmaAllocation allocation_ = VK_NULL_HANDLE;
  VkDeviceMemory imported_ = VK_NULL_HANDLE;  // instead of allocation_
  MemoryPiece piece_;                         // or this one
  uint64_t other_bytes_ = 0;                  // in Context::other_bytes_
  SharedMemory shared_;                       // of it, if it is shareable: all but the descriptor
  std::byte* mapped_ = nullptr;
  bool host_reads_ = false, borrowed_ = false;
  VkBufferUsageFlags usage_ = ~VkBufferUsageFlags{0};
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create(const DeviceOptions& options);
  static std::shared_ptr<Context> import(const ImportedDevice& device, const DeviceOptions& options);
  bool imported() const { return imported_; }
  VkPhysicalDevice physical() const { return physical_; }
  /// A new one on the same device, with the programs that have been compiled for this one.
  std::shared_ptr<Context> again();
  ~Context();
  /// The process ends: what runs is awaited (unless it runs for another process, which this one is a fork of), and
  /// destructors call nothing of Vulkan's any more, whose libraries end with it. Internal to process_end.cpp.
  void end(bool waits) noexcept;
  bool ended() const { return ended_; }

  const Probe& probe() const { return probe_; }
  const DeviceTable& vk() const { return vk_; }
  VkDevice handle() const { return device_; }
  const std::string& name() const { return probe_.info.name; }
  bool always_stage() const { return options_.always_stage; }
  bool debug_info() const { return options_.debug_info; }
  // a memory type of those bits that imports can have; UINT32_MAX: none
  uint32_t host_import_type(uint32_t allowed) const;
  const Instance& instance() const { return *instance_; }

  /// Guards the recorder, the hazards of all buffers, and the garbage. Never held while waiting.
  std::mutex& mutex() { return mutex_; }
  Recorder& recorder() { return *recorder_; }  // with mutex() held
  Pace& pace() { return *pace_; }              // with mutex() held
  double watchdog_seconds() const { return options_.watchdog_seconds; }
  int64_t memory_bytes() const { return memory_bytes_; }  // of the largest device-local heap, or the limit on it

  /// Throws DeviceError if the device has been lost; without mutex().
  void require_alive();
  /// Waits until the timeline has reached `value`; without mutex().
  void wait(uint64_t value);
  void wait_all();
  /// attempt(), and once more when it finds no memory and all calls in flight, which may hold what is needed, are done.
  template <class F>
  VkResult allocate(const F& attempt) {
    const VkResult r = attempt();
    if (r != VK_ERROR_OUT_OF_DEVICE_MEMORY && r != VK_ERROR_OUT_OF_HOST_MEMORY) return r;
    wait_all();
    return attempt();
  }
  /// The pipeline for a program, made if need be. Throws CompileError if the program exceeds the device's limits.
  const Pipeline& pipeline(const Program& program);
  int64_t allocated_bytes();
  ImageKit& images();

  // Reports (outcome.cpp):
  /// Memory for one; whoever has cleared it, and had a submission write it, hands it on with the call's outcome.
  std::unique_ptr<Buffer> report_buffer(uint64_t bytes, const std::string& what);
  void clear_report(const std::string& what, Buffer& report, int64_t print_bytes);  // with mutex() held
  // of a Program that is open_ended, whose dispatches until now are done; forgets it. With mutex() held
  bool steps_left(Buffer& report);
  // of a call that is done, and whose errors wait() is to tell; without mutex()
  void settle_now(const std::shared_ptr<Outcome>& outcome);
  void follow(std::shared_ptr<Outcome> outcome);  // the call has been submitted; with mutex() held
  /// Throws what went wrong with a call that has been waited for, or with one that its inputs come from.
  void throw_if_wrong(const std::shared_ptr<Outcome>& outcome);
  /// Hands on what settled calls have printed; without mutex().
  void say();
  int64_t print_bytes() const { return print_bytes_; }
  /// Throws the first error of a settled call that nobody has been told of.
  void throw_untold();

  std::atomic<uint64_t> pipelines_made = 0, pipelines_from_disk = 0;

  /// Programs by a key of the caller's, for as long as the device lives: runtime/call keeps compiled kernels here.
  std::mutex programs_mutex;
  std::map<std::string, std::shared_ptr<const Program>, std::less<>> programs;

 private:
  friend class Buffer;
  struct Garbage {
    VkBuffer buffer;
    VmaAllocation allocation;
    VkDeviceMemory imported;
    MemoryPiece piece;
    uint64_t other_bytes;  // of these, if they are the device's
    uint64_t value;        // the timeline's when the device is done with it
    AddressRange range;
  };
  Context(const DeviceOptions& options, const ImportedDevice* imported);
  void choose_device();
  void create_device();
  void take_device(const ImportedDevice& device);
  void create_allocator(int64_t memory_limit);
  VkResult idle();
  void collect();  // frees garbage that the device is done with, and settles what is done; with mutex() held
  void settle(Outcome& o);
  void read_prints(Outcome& o, const std::vector<uint32_t>& header);
  void destroy(const Garbage& g);
  void free_memory(const Garbage& g);
  std::string short_of_memory(uint64_t size, const std::string& what, VkResult r);
  std::string holders();  // a table of what holds most memory
  MemoryRequest pool_request(Memory kind, const VkMemoryRequirements& needs, std::string_view what) const;
  // nothing if all is well; with mutex() held
  std::string wrong_piece(const MemoryRequest& request, const MemoryPiece& piece) const;

  DeviceOptions options_;
  std::unique_ptr<Instance> instance_;
  Probe probe_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  Queue queue_;
  bool imported_ = false;  // device_ is its host's
  std::atomic<bool> ended_ = false;
  DeviceTable vk_;
  VmaAllocator allocator_ = VK_NULL_HANDLE;
  MemoryPool pool_;  // a host's; without functions: memory is the allocator's
  VkPhysicalDeviceMemoryProperties memory_types_{};
  // of the pool's: sizes by place; guarded by mutex_
  std::map<std::pair<VkDeviceMemory, VkDeviceSize>, VkDeviceSize> pieces_;
  int64_t memory_bytes_ = 0;
  std::mutex mutex_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Pace> pace_;
  std::vector<Garbage> garbage_;
  std::unordered_set<const Buffer*> buffers_;  // whose memory is the device's
  // of the device's memory that is none of the allocator's; guarded by mutex_
  uint64_t other_bytes_ = 0;
  std::vector<const Buffer*> borrowed_;             // whose memory is a host's
  std::deque<std::shared_ptr<Outcome>> in_flight_;  // in the order of their submissions
  std::deque<std::shared_ptr<const Error>> untold_;
  std::vector<std::string> lines_;    // printed, and not handed on
  std::recursive_mutex print_mutex_;  // of say(); taken before mutex_
  int64_t print_bytes_ = 0;
  std::vector<std::unique_ptr<Buffer>> reports_;  // idle
  std::mutex pipelines_mutex_;
  std::unordered_multimap<uint64_t, std::unique_ptr<Pipeline>> pipelines_;
  std::unique_ptr<ImageKit> images_;
};

}  // namespace tessera::vulkan
