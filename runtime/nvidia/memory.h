// Memory of the device that arrays and calls share: what goes is kept for the next that need as much, since work on the
// stream runs in the order in which it was queued. Internal to runtime/. Read next: context.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/base/error.h"
#include "runtime/nvidia/driver.h"

namespace tessera::cuda {

class Context;

/// Some memory of a context, whole words of it (atomics take the word around an element), or memory of another library.
class Block {
 public:
  Block(std::shared_ptr<Context> context, Address address, size_t bytes, std::shared_ptr<const void> owner = {});
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();  ///< gives it back; of another library: lets its owner go when the work that is queued has been done
  Address address() const { return address_; }

 private:
  std::shared_ptr<Context> context_;
  Address address_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;
};

/// The memory that a context has from the driver and nothing uses, by size. Any thread.
class MemoryPool {
 public:
  /// Of exactly so many bytes; false: there is none.
  bool take(size_t bytes, Address& address);
  void put(Address address, size_t bytes);
  /// Gives all of it to the driver; nothing is queued, and the context is current.
  void release(const Driver& driver);

 private:
  std::mutex mutex_;
  std::multimap<size_t, Address> free_;
};

}  // namespace tessera::cuda
