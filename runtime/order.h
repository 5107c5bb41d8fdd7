// The recorder's log as plain data, and the proof that conflicting accesses were ordered. Validation layers do not see
// accesses through buffer addresses, so this is the only check that no barrier between calls is missing. It uses
// nothing of Vulkan and runs afterwards. Read next: submit/recorder.h, which writes the log when
// DeviceOptions::log_commands is set.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tessera {

/// Where an access happens; barriers order masks of these. indirect: where a dispatch's numbers of workgroups are read,
/// before its shaders run.
enum class Stage : uint8_t { compute = 1, transfer = 2, host = 4, indirect = 8 };
using StageMask = uint8_t;
constexpr StageMask mask(Stage s) { return static_cast<StageMask>(s); }

/// Bytes [begin, end) of the device's address space.
struct AddressRange {
  uint64_t begin = 0, end = 0;
};

/// One step of what was recorded, submitted or done by the host, in that order.
struct LogEntry {
  /// A dispatch, copy or fill in `stage`.
  struct Command {
    Stage stage = Stage::compute;
    std::vector<AddressRange> reads = {}, writes = {};
    std::vector<AddressRange> indirect = {};  ///< read in Stage::indirect
  };
  /// A memory barrier: all accesses of stages `from` before it happen before, and are visible to, those of `to` after
  /// it.
  struct Barrier {
    StageMask from = 0, to = 0;
  };
  /// What was recorded since the last submit goes to the queue, which sets the timeline to `value` when it is done.
  struct Submit {
    uint64_t value = 0;
  };
  /// The host has seen the timeline at `value`.
  struct Completed {
    uint64_t value = 0;
  };
  /// The host reads or writes the range through a mapping.
  struct HostRead {
    AddressRange range;
  };
  struct HostWrite {
    AddressRange range;
  };
  /// The memory is freed, and may be used for something else.
  struct Release {
    AddressRange range;
  };
  std::variant<Command, Barrier, Submit, Completed, HostRead, HostWrite, Release> event;
  std::string what = {};  // "dispatch add"
  // of commands and barriers in a host's command buffer, which runs when the host submits it: its number, from 1; 0:
  // our own
  uint64_t stream = 0;

  template <class Event>
  bool is() const {
    return std::holds_alternative<Event>(event);
  }
  Command* command() { return std::get_if<Command>(&event); }
  const Command* command() const { return std::get_if<Command>(&event); }
  Barrier* barrier() { return std::get_if<Barrier>(&event); }
  const Barrier* barrier() const { return std::get_if<Barrier>(&event); }
};
using CommandLog = std::vector<LogEntry>;

/// One sentence per pair of accesses to the same bytes, at least one a write, that nothing orders. Empty: the log is
/// sound.
std::vector<std::string> find_unordered(const CommandLog& log);
/// The log as if the host had submitted that stream after `later` of the submissions that came after its last command
/// (or all, if they are fewer).
CommandLog submitted_later(const CommandLog& log, uint64_t stream, size_t later);

}  // namespace tessera
