// One case through everything: the text form, every pass, both forms of code generation on several targets under the
// lane-level interpreter in random orders, the SPIR-V validator, and a device if there is one. The interpreter is right
// by definition.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

struct CheckOptions {
  bool general = true, fast = true;  // forms of code generation
  // targets; cut: lavapipe's, with loops that end after 200 iterations
  bool minimum = true, lavapipe = true, gpu = true, matrix = true, cut = true, random = true, nvidia = true;
  /// Targets hardly change the general form: it is compiled for the minimum, NVIDIA's oldest chip and a random target
  /// alone.
  bool few_general = false;
  uint64_t random_target = 0;  // which random one a kernel gets
  // also run each lane-level kernel without each of its barriers, and count what is reported
  bool delete_barriers = false;
  int orders = 2;  // seeds of the lane-level interpreter per form and target
  // of the lane-level interpreter per run: kernels that need more are counted, not run to the end
  int64_t max_steps = int64_t{1} << 27;
  /// Code for GPUs rounds as the interpreter does. Else it is relaxed (but for the minimum), and the judge's device as
  /// inexact as Vulkan allows: the tolerance that the generator states has room for that, the one of files has not.
  bool strict = false;
  bool passes = true;
  bool judge = true;       // also run the SPIR-V (tests/support/judge)
  int judge_orders = 1;    // its seeds per form and target
  bool optimised = false;  // and once more after spirv-opt
  int64_t judge_steps = int64_t{1} << 26;
  /// Runs the case on a device with ample room for what it prints, or with little; empty: none. `lines` gets what comes
  /// out.
  std::function<std::vector<Array>(const Case&, bool general, bool little_room, std::vector<std::string>& lines)>
      device;
  std::function<void(const std::string& stage)> on_stage;  // sees each stage as it begins
  /// The case is a rewriting of this one (rewrite.h), and this what makes its outputs of the case's.
  const Case* first = nullptr;
  std::function<std::vector<Array>(std::vector<Array>)> original;
  /// Whether it may turn out that the rewriting does not keep what this kernel computes; it is not checked then.
  bool perhaps_another = false;
};

struct Failure {
  std::string stage;  // "pass cse", "fast/minimum: lane interpreter": what a shrunk case must fail again
  std::string message;
};
struct Outcome {
  std::optional<Failure> failure;
  int compile_errors = 0;  // targets that said no
  int unfinished = 0;      // runs of the lane-level interpreter that CheckOptions::max_steps ended
  int another = 0;         // CheckOptions::perhaps_another came true
  int64_t defined = 0, elements = 0;
  int64_t barriers = 0, needed = 0;  // delete_barriers: how many there are, and how many were missed
  int judged = 0, unjudged = 0;      // runs of the judge, and those that its budget ended
  int64_t judge_steps = 0;           // instructions
};

Outcome check(const Case& c, const CheckOptions& options);
/// check() in a process of its own, so that a crash, or more than `seconds` of processor time, is a Failure like
/// others. Not for devices: drivers do not fork.
Outcome check_apart(const Case& c, const CheckOptions& options, int seconds);

}  // namespace tessera::fuzz
