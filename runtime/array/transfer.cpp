#include "runtime/array/transfer.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tessera::vulkan {
namespace {

// Of a staged transfer: bytes per piece, and pieces in flight. The host copies one piece while the device copies those
// before it, in pinned memory of 32 MiB, which the allocator keeps between transfers.
constexpr uint64_t kStagingBytes = uint64_t{8} << 20;
constexpr size_t kPieces = 4;

// Through staging memory piece by piece, in the queue's order. Waits only where a piece more than kPieces would be
// needed.
void staged_write(const std::shared_ptr<Context>& context, Buffer& to, const std::byte* from, uint64_t bytes,
                  const std::string& what) {
  std::deque<uint64_t> in_flight;
  for (uint64_t offset = 0; offset < bytes; offset += kStagingBytes) {
    const uint64_t size = std::min(kStagingBytes, bytes - offset);
    if (in_flight.size() == kPieces) {
      context->wait(in_flight.front());
      in_flight.pop_front();
    }
    Buffer piece(context, size, Memory::upload, "staging memory for " + what);
    piece.host_write(from + offset, size);
    std::lock_guard lock(context->mutex());
    in_flight.push_back(context->recorder().submit("the upload of " + what,
                                                   [&] { context->recorder().copy(piece, 0, to, offset, size); }));
  }
}

void staged_read(const std::shared_ptr<Context>& context, Buffer& from, std::byte* to, uint64_t bytes,
                 const std::string& what) {
  struct Piece {
    std::unique_ptr<Buffer> buffer;
    uint64_t value, offset, size;
  };
  std::deque<Piece> in_flight;
  auto finish = [&] {
    Piece p = std::move(in_flight.front());
    in_flight.pop_front();
    context->wait(p.value);
    {
      std::lock_guard lock(context->mutex());
      context->recorder().note_host_read("the download of " + what, *p.buffer, 0, p.size);
    }
    p.buffer->host_read(to + p.offset, 0, p.size);
  };
  for (uint64_t offset = 0; offset < bytes; offset += kStagingBytes) {
    const uint64_t size = std::min(kStagingBytes, bytes - offset);
    if (in_flight.size() == kPieces) finish();
    Piece p{std::make_unique<Buffer>(context, size, Memory::download, "staging memory for " + what), 0, offset, size};
    {
      std::lock_guard lock(context->mutex());
      Buffer* shown[] = {p.buffer.get()};
      p.value = context->recorder().submit("the download of " + what, [&] {
        context->recorder().copy(from, offset, *p.buffer, 0, size);
        context->recorder().show_host(shown);
      });
    }
    in_flight.push_back(std::move(p));
  }
  while (!in_flight.empty()) finish();
}

}  // namespace

void write_bytes(const std::shared_ptr<Context>& context, Buffer& to, const std::byte* from, uint64_t bytes,
                 const std::string& what, FunctionRef<void()> check) {
  std::optional<Turns::Turn> turn;
  {
    std::unique_lock lock(context->mutex());
    turn.emplace(context->turns(), lock, std::vector<Turns::Use>{{&to, true}});
    check();
    Recorder& recorder = context->recorder();
    // What a host has recorded may run at any time, so what it uses is written, and read below, in the queue's order.
    if (to.mapped() && !to.hazards.recorded() &&
        (to.hazards.used_at == 0 || to.hazards.used_at <= recorder.completed())) {
      recorder.note_host_write("the upload of " + what, to, bytes);
      to.hazards = {};
      to.outcome = nullptr;
      to.host_write(from, bytes);  // under the lock: no call may start to use it meanwhile
      return;
    }
    to.outcome = nullptr;
  }
  staged_write(context, to, from, bytes, what);
}

std::shared_ptr<Outcome> read_bytes(const std::shared_ptr<Context>& context, Buffer& from, std::byte* to,
                                    uint64_t bytes, const std::string& what, FunctionRef<void()> check) {
  uint64_t value = 0;
  bool recorded;
  std::shared_ptr<Outcome> outcome;
  std::optional<Turns::Turn> turn;
  {
    std::unique_lock lock(context->mutex());
    turn.emplace(context->turns(), lock, std::vector<Turns::Use>{{&from, false}});
    check();
    outcome = from.outcome;
    recorded = from.hazards.recorded_writes != 0;
    if (from.host_reads() && !recorded && (from.hazards.written_by[0] || from.hazards.written_by[1])) {
      Buffer* shown[] = {&from};
      if (from.hazards.readable_at == 0)
        context->recorder().submit("the download of " + what, [&] { context->recorder().show_host(shown); });
      value = from.hazards.readable_at;
    }
  }
  if (!from.host_reads() || recorded) {
    staged_read(context, from, to, bytes, what);
    return outcome;
  }
  context->wait(value);
  {
    std::lock_guard lock(context->mutex());
    context->recorder().note_host_read("the download of " + what, from, 0, bytes);
  }
  if (!from.is_at(to)) from.host_read(to, 0, bytes);
  return outcome;
}

}  // namespace tessera::vulkan
