// Outcome: whether the result of a call is right. Some calls can tell only when they are done, in the report that their
// code writes (Program::report_bytes). Until then, and forever if the result is wrong, the arrays that they wrote, and
// all arrays computed from those, point at the outcome. A wait for such an array throws the error. Internal to
// runtime/. Read next: context.h, which settles outcomes in order.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/program/report.h"
#include "engine/base/error.h"

namespace tessera::vulkan {

class Buffer;

struct Outcome {
  Outcome();
  ~Outcome();

  // Of the call, while it is in flight:
  uint64_t value = 0;                            // the timeline's when it is done
  std::unique_ptr<Buffer> report;                // none: it may only inherit an error
  std::vector<std::shared_ptr<Outcome>> inputs;  // of what it reads
  ReportSites sites;                             // what the report is read with

  // When it is settled; guarded by the context's mutex:
  bool settled = false;
  std::shared_ptr<const Error> error;  // the first call's on the way from the inputs to here; none: all is well
};

/// Of a call of the program; `longest_loop`: its line, for what the report may say. `report` may be none.
std::shared_ptr<Outcome> outcome_of(const Program& program, const DimValues& dims, const Loc& longest_loop,
                                    std::unique_ptr<Buffer> report);

}  // namespace tessera::vulkan
