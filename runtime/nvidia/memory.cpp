#include "runtime/nvidia/memory.h"

#include <utility>

#include "runtime/nvidia/context.h"

namespace tessera::cuda {

Block::Block(std::shared_ptr<Context> context, Address address, size_t bytes, std::shared_ptr<const void> owner)
    : context_(std::move(context)), address_(address), bytes_(bytes), owner_(std::move(owner)) {}
Block::~Block() {
  if (owner_) context_->finish();
  else context_->give_back(address_, bytes_);
}

bool MemoryPool::take(size_t bytes, Address& address) {
  const std::lock_guard lock(mutex_);
  const auto it = free_.find(bytes);
  if (it == free_.end()) return false;
  address = it->second;
  free_.erase(it);
  return true;
}
void MemoryPool::put(Address address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace(bytes, address);
}
void MemoryPool::release(const Driver& driver) {
  const std::lock_guard lock(mutex_);
  for (const auto& [bytes, address] : free_) driver.cuMemFree_v2(address);
  free_.clear();
}

}  // namespace tessera::cuda
