// Tuning files: what `tessera tune` has measured to be faster on a device than the cost model's choices, kernel by
// kernel. The environment's TESSERA_TUNING=FILE has every Device read one; use_tuning() does so from a program. A file
// never makes a first run slow: it is read once, and nothing is measured but by `tessera tune`. What is for another
// device, driver or build of Tessera, or has been changed, is ignored with one line in the log (log.h).
//   tessera tuning 1
//   build ID                                 of the compiler that was measured
//   device NAME DRIVER                       DeviceInfo's; the lines behind it are for this one
//   kernel DIGEST NAME CHOICES BEFORE AFTER  seconds of the device for a call by the cost model's choices and by these
//   end CHECKSUM                             of all lines before
// Tabs stand between the fields. Read next: codegen/program/choices.h, runtime/cli/tune.cpp.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "codegen/program/choices.h"
#include "engine/ir/kernel.h"
#include "runtime/device.h"

namespace tessera {

struct TunedKernel {
  std::string name;  // as file_stem() makes it
  ScheduleChoices choices;
  double before = 0, after = 0;  // seconds
};

struct Tuning {
  using Kernels = std::map<std::string, TunedKernel>;              // by digest
  std::map<std::pair<std::string, std::string>, Kernels> devices;  // by name and driver

  const Kernels* of(const DeviceInfo& device) const;  ///< or null
  Kernels& at(const DeviceInfo& device);
};

/// 32 hexadecimal digits of a kernel's text, without the lines that it is from: which kernel an entry is for.
std::string tuning_digest(const ir::Kernel& kernel);

/// Throws SpecError, whose text begins with `file`, if it cannot be read, is no tuning file, was changed, or is of
/// another build.
Tuning read_tuning(const std::string& file);
/// Whether a file can be read and begins as one, of whatever build, changed or not.
bool is_tuning(const std::string& file);
/// In place of whatever is there. Throws Error "FILE: cannot be written".
void write_tuning(const std::string& file, const Tuning& tuning);

/// For all that is compiled for the device from now on, instead of what TESSERA_TUNING names. Says in the log if it has
/// nothing for this device; `from` is how that line calls it.
void use_tuning(const Device& device, const Tuning& tuning, const std::string& from = "use_tuning");

/// What to compile the kernel with. Internal to runtime/call.
ScheduleChoices tuned_choices(const Device& device, const ir::Kernel& kernel);

}  // namespace tessera
