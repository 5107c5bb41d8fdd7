// Cases one after another in a process that may die of one: a driver crashes, a kernel never ends, a GPU is lost to the
// process. Then the case has failed, and another process goes on behind it. The process that calls run_in_workers()
// must not have used a driver: drivers do not fork.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::fuzz {

/// What a worker has come to, in memory that it shares with the process that waits for it.
struct Progress {
  int64_t next = 0;         // the case that is being run, or comes next
  int64_t stage_began = 0;  // on the steady clock, in ns
  bool on_device = false;   // the stage runs on the device: what has a time limit
  bool announced = false;   // the device's name has been printed
  std::array<char, 200> name{}, stage{};

  void begin_case(const std::string& case_name);
  void begin_stage(const std::string& stage_name);
};

/// A worker's exit status, when it is done, when the device is lost to it (it has reported the case), and when there is
/// no device.
constexpr int kDone = 0, kNoDevice = 2, kDeviceLost = 3;

/// `work` runs cases from progress.next on, in a worker, and returns one of these. `died` is told about a case that
/// its process did not survive, or that kept the device for more than `patience` seconds. False: there is no device, or
/// too many workers have died for the rest to be run.
bool run_in_workers(Progress& progress, double patience, const std::function<int()>& work,
                    const std::function<void(const std::string& why)>& died);

/// `bytes` bytes of zeros that this process and its children share.
void* shared_memory(size_t bytes);

}  // namespace tessera::fuzz
