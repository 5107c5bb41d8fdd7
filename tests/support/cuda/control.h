// What tests ask of the NVIDIA driver that is none (cuda.cpp): functions that it has beside those of libcuda, found in
// the same library.
#pragma once
#include <cstdint>

extern "C" {
/// The device from now on; before the library is opened by others.
struct FakeCudaDevice {
  int count = 1, major = 9, minor = 0, driver_version = 12040;
  uint64_t memory_bytes = uint64_t{1} << 30;
  bool drives_display = false;
  bool recovers = true;  // a context that a kernel has ended is like new when nobody retains it any more
};
using FakeCudaDescribe = void(const FakeCudaDevice*);  // fake_cuda_describe
/// The call number `after` (0: the next) of that function returns `status` and does nothing. Null: none does.
using FakeCudaFail = void(const char* function, int after, int status);  // fake_cuda_fail
/// How often a function was called since fake_cuda_fail.
using FakeCudaCalls = int(const char* function);  // fake_cuda_calls
/// Modules, streams, allocations and retained contexts that there are, and contexts that are current anywhere.
using FakeCudaLive = int();  // fake_cuda_live
/// What a caller did that the real driver leaves undefined: the first such thing; empty: nothing.
using FakeCudaMisuse = const char*();  // fake_cuda_misuse
/// Forgets that a kernel's fault has ended the context, and what was misused.
using FakeCudaReset = void();  // fake_cuda_reset
}
