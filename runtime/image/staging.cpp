#include "runtime/image/staging.h"

#include <algorithm>

namespace tessera::vulkan {

// Per piece, over all leases.
std::vector<uint64_t> Staging::largest() const {
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& bytes : bytes_) {
    if (all.size() < bytes.size()) all.resize(bytes.size());
    for (size_t k = 0; k < bytes.size(); ++k) all[k] = std::max(all[k], bytes[k]);
  }
  return all;
}

// Pieces that are twice as large as needed are replaced as well: after a smaller window, say.
Staging::Lease::Lease(std::shared_ptr<Staging> staging, const std::shared_ptr<DeviceHeap>& heap,
                      const std::vector<Need>& needs)
    : staging_(std::move(staging)) {
  Staging& s = *staging_;
  const std::lock_guard lock(s.mutex_);
  std::vector<uint64_t>& bytes = s.bytes_.emplace_back();
  bytes_ = std::prev(s.bytes_.end());
  try {
    for (const Need& n : needs) bytes.push_back(n.bytes);
    std::vector<std::shared_ptr<Buffer>> pieces = s.pieces_;
    const std::vector<uint64_t> largest = s.largest();
    pieces.resize(largest.size());
    for (size_t k = 0; k < needs.size(); ++k) {
      std::shared_ptr<Buffer>& piece = pieces[k];
      if (!piece || piece->size() < largest[k] || piece->size() / 2 > largest[k])
        piece = std::make_shared<Buffer>(heap, largest[k], Memory::scratch, needs[k].what);
    }
    s.pieces_ = std::move(pieces);
  } catch (...) {
    s.bytes_.erase(bytes_);
    throw;
  }
}

Staging::Lease::~Lease() {
  const std::lock_guard lock(staging_->mutex_);
  staging_->bytes_.erase(bytes_);
  staging_->pieces_.resize(staging_->largest().size());
}

void Staging::Lease::hold(std::span<std::shared_ptr<Buffer>> pieces) const {
  const std::lock_guard lock(staging_->mutex_);
  std::copy_n(staging_->pieces_.begin(), pieces.size(), pieces.begin());
}

}  // namespace tessera::vulkan
