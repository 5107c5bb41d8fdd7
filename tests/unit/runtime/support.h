// What the runtime's tests share: hand-made Programs, host arrays, one device under validation, and the checks that
// hold after every test.
#pragma once
#include <doctest/doctest.h>
#include <vulkan/vulkan_core.h>

#include <string>
#include <vector>

#include "runtime/compiled_kernel.h"
#include "runtime/device.h"
#include "runtime/device_array.h"
#include "runtime/launch.h"
#include "tests/support/process.h"

namespace tessera::test {

/// The suite of test cases that need no device, TEST_CASE("..." * without_device): what runs where there is none, by
/// --test-suite="without a device".
static const doctest::test_suite without_device("without a device");

/// Devices are under validation, but for those under Wine, whose loader knows no layers.
#ifdef _WIN32
inline constexpr bool kValidation = false;
inline constexpr const char* kValidate = "";
#else
inline constexpr bool kValidation = true;
inline constexpr const char* kValidate = "TESSERA_VALIDATION=1";
#endif
/// A test case on what the layers say: TEST_CASE("..." * under_validation).
static const doctest::skip under_validation(!kValidation);

/// Whether the device works on the host's own memory: GPUs with memory of their own do not.
bool uses_host_memory(const Device& d);
/// A device with validation layers and the command log on; made at first use.
Device& device();
/// Validation has said nothing, and every conflicting pair of accesses in the log is ordered.
void check_clean(const Device& d);

/// What is submitted next waits until it is opened, and so does all that follows it on the device.
class Gate {
 public:
  explicit Gate(const Device& d);
  ~Gate();  ///< open, and the device is done with it
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  const Device& device_;
  VkSemaphore semaphore_ = VK_NULL_HANDLE;
};

/// The programs of programs.comp.
Program add();
Program scale();
Program scale_shaped(const Shape& shape);  ///< o = 2 a + 1 over all elements of arrays of that shape
Program scratch();
Program table();
/// x * gain + bias + n, of two numbers by value, f32 and i32, and the size n; by blocks of 64.
CompiledKernel blend(const Device& device);
Program busy();
Program subgroup();

Array ramp(int64_t n, float start = 0);
std::vector<float> floats(const DeviceArray& a);
/// Of one dtype and shape, and of equal elements.
bool equal(const Array& a, const Array& b);
/// Of a device that keeps its command log.
DeviceOptions logged();
/// No accesses in the device's command log lack a barrier between them.
void check_sound(const Device& d);
/// What scale() makes of ramp(n), `times` times over.
std::vector<float> scaled_ramp(int64_t n, int times = 1);

/// How far a driver may be from a number that it decodes from sRGB's 8 bits: half a step of the number (as lavapipe's
/// polynomial is), or half a step of the code (as D3D asks, and NVIDIA's is), whichever is more there.
double srgb_tolerance(double number);

/// The text that `f` throws as E; empty if it throws nothing.
template <class E, class F> std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera::test
