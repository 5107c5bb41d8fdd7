// ScheduleChoices: what a search has found faster on one device than what the cost model chooses (`tessera tune`). They
// move the cost model's numbers and nothing else: no choice makes a form legal, so any of them computes the same. Read
// next: plan/schedule.h, which uses them; runtime/call/tuning.h, the file of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// Zeros: as the cost model says.
struct ScheduleChoices {
  /// Invocations that run one program together, on GPUs: a power of two from 1 to 1024, of which a device that has
  /// fewer takes what it has. A caller's compiler parameter num_warps comes first.
  int32_t workgroup = 0;
  int32_t smaller = 0;    ///< tiles and what lies in registers, on GPUs: halved so often, 0 to 2
  int32_t registers = 0;  ///< along one axis, on GPUs: doubled so often, 0 to 2
  int32_t work = 0;       ///< of a unit that nothing in registers sizes: doubled so often, -3 to 3
  int32_t spread = 0;     ///< workgroups that keep the device busy: doubled so often, -3 to 3
  bool operator==(const ScheduleChoices&) const = default;
  double work_factor() const;
};
/// "workgroup=128 work=-1"; "default" where all are zeros.
std::string to_string(const ScheduleChoices& c);
/// What to_string() makes; none of any other text, or of numbers outside these ranges.
std::optional<ScheduleChoices> choices_from(std::string_view text);

}  // namespace tessera
