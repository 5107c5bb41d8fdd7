#include <algorithm>
#include <optional>

#include "tests/unit/main.h"
#include "tests/unit/runtime/support.h"

namespace device_array_test {
using namespace tessera;
using namespace tessera::test;

namespace {
Array bytes(DType dtype, Shape shape) {
  Array a(std::move(shape), dtype);
  std::byte* p = a.bytes();
  for (int64_t i = 0; i < a.nbytes(); ++i) p[i] = static_cast<std::byte>(dtype == boolean ? i % 2 : i * 37 % 251);
  return a;
}
bool same(const Array& a, const Array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::equal(a.bytes(), a.bytes() + a.nbytes(), b.bytes());
}
Device& staging_device() {
  static std::optional<Device> d = [] {
    DeviceOptions o;
    o.validation = kValidation, o.log_commands = o.always_stage = true;
    at_end().emplace_back([] { d.reset(); });
    return Device(o);
  }();
  return *d;
}
}  // namespace

TEST_CASE("arrays of every dtype survive the trip to the device") {
  for (Device* d : {&device(), &staging_device()})
    for (int t = 0; t < kNumDTypes; ++t) {
      const DType dtype = static_cast<DType>(t);
      CAPTURE(t);
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 0, 5}, Shape{7, 3}, Shape{1001}}) {
        const Array host = bytes(dtype, shape);
        const DeviceArray a(*d, host);
        CHECK(same(a.download(), host));
        CHECK(same(a.copy().download(), host));
      }
    }
  check_clean(device());
  check_clean(staging_device());
}

TEST_CASE("transfers larger than a piece of staging memory") {
  const Array host = bytes(u8, {3, 45 << 20});
  const DeviceArray a(staging_device(), host);
  CHECK(same(a.download(), host));
  check_clean(staging_device());
}

TEST_CASE("staged arrays go through calls") {
  DeviceArray x(staging_device(), ramp(1000));
  for (int i = 0; i < 3; ++i) x = launch(staging_device(), scale(), {x}).at(0);
  CHECK(floats(x) == scaled_ramp(1000, 3));
  check_clean(staging_device());
}

TEST_CASE("write replaces the contents for later calls only") {
  for (Device* d : {&device(), &staging_device()}) {
    DeviceArray x(*d, ramp(100000));
    const DeviceArray before = launch(*d, busy(), {x}).at(0);
    x.write(ramp(100000, 5));  // the call may still read x
    const DeviceArray after = launch(*d, scale(), {x}).at(0);
    CHECK(floats(before)[10] == 21);
    CHECK(floats(after)[10] == 31);
    x.write(before);
    x.write(x);
    CHECK(floats(x)[10] == 21);
    check_clean(*d);
  }
}

TEST_CASE("copies are handles to the same memory, copy() is not") {
  DeviceArray a(device(), ramp(4));
  const DeviceArray handle = a, other = a.copy();
  a.write(ramp(4, 10));
  CHECK(floats(handle) == std::vector<float>{10, 11, 12, 13});
  CHECK(floats(other) == std::vector<float>{0, 1, 2, 3});
  check_clean(device());
}

TEST_CASE("memory of a freed array is kept until the calls in flight are done") {
  Device d = device();
  d.wait();
  const int64_t before = d.allocated_bytes();
  DeviceArray x(d, ramp(100000));
  const DeviceArray o = launch(d, busy(), {x}).at(0);
  x.free();
  {
    DeviceArray gone(d, ramp(100000, 1));
    launch(d, busy(), {gone});  // its output goes at once, too
  }
  // Arrays made now must not land on the memory that the calls still use.
  for (int i = 0; i < 4; ++i) DeviceArray(d, Array({100000}, f32));
  CHECK(floats(o) == scaled_ramp(100000));
  d.wait();
  CHECK(d.allocated_bytes() - before <= 100000 * 4 + (1 << 16));
  check_clean(d);
}

TEST_CASE("arrays outlive the Device object, and a Device its calls") {
  DeviceArray o;
  {
    const Device d;
    o = launch(d, busy(), {DeviceArray(d, ramp(5000))}).at(0);
  }
  CHECK(floats(o) == scaled_ramp(5000));
  {
    const Device d;
    launch(d, busy(), {DeviceArray(d, ramp(5000))});
  }
}

TEST_CASE("using an array that is not there") {
  DeviceArray a(device(), ramp(4));
  DeviceArray handle = a;
  a.free();
  const std::string freed = "the device array f32[4] has been freed";
  CHECK_FALSE(a.valid());
  CHECK_FALSE(handle.valid());
  CHECK(error_of<SpecError>([&] { handle.download(); }) == "download: " + freed);
  CHECK(error_of<SpecError>([&] { handle.write(ramp(4)); }) == "write: " + freed);
  CHECK(error_of<SpecError>([&] { handle.copy(); }) == "write: " + freed);
  CHECK(error_of<SpecError>([&] { launch(device(), scale(), {handle}); }) == "scale: argument 0: " + freed);
  handle.free();  // twice is once

  DeviceArray from(device(), ramp(4));
  const DeviceArray to = std::move(from);
  const std::string empty = "this DeviceArray holds no array: it was never given one, or has been moved from";
  CHECK(error_of<SpecError>([&] { from.download(); }) == "download: " + empty);
  CHECK(error_of<SpecError>([&] { from.shape(); }) == "shape: " + empty);
  CHECK(error_of<SpecError>([&] { from.free(); }) == "free: " + empty);
  CHECK_FALSE(from.valid());
  CHECK(to.valid());
  check_clean(device());
}

TEST_CASE("shapes and dtypes of writes, and sizes that no device has") {
  DeviceArray a(device(), ramp(4));
  CHECK(error_of<SpecError>([&] { a.write(ramp(5)); }) == "write: the array is f32[5] but the device array is f32[4]");
  CHECK(error_of<SpecError>([&] { a.write(DeviceArray(device(), Array({4}, i32))); }) ==
        "write: the array is i32[4] but the device array is f32[4]");
  CHECK(error_of<SpecError>([&] { a.write(DeviceArray(staging_device(), ramp(4))); }) ==
        "write: the array is on another Device\n  note: download it, then write the host array");
  CHECK(error_of<SpecError>([&] { DeviceArray(device(), {3, -1}, f32); }) ==
        "DeviceArray: shape (3, -1) has a negative size");

  const int64_t most = device().info().max_array_bytes;
  CHECK(error_of<DeviceError>([&] { DeviceArray(device(), {most + 1}, u8); }) ==
        "u8[" + std::to_string(most + 1) + "] takes " + std::to_string(most + 1) + " bytes but a buffer of " +
            device().info().name + " has at most " + std::to_string(most));
  const int64_t huge = int64_t{1} << 40;
  CHECK(error_of<DeviceError>([&] { DeviceArray(device(), {huge, huge}, f32); }) ==
        "f32[1099511627776, 1099511627776] takes more bytes than a 64-bit number counts");
  check_clean(device());
}

TEST_CASE("short of memory: calls in flight are awaited first, then the error says what is held") {
  DeviceOptions o;
  o.validation = kValidation;
  o.memory_limit = 64 << 20;
  const Device d(o);
  constexpr int64_t n = 6 << 20;
  DeviceArray a(d, ramp(n));
  const std::string held = std::to_string(d.allocated_bytes());
  const std::string bytes = std::to_string(17 * 4 << 20);
  const std::string said = error_of<DeviceError>([&] { DeviceArray(d, {17 << 20}, f32); });  // no heap has it
  const std::string first = "f32[17825792]: " + bytes + " bytes asked on " + d.info().name +
                            ": VK_ERROR_OUT_OF_DEVICE_MEMORY; of 67108864 bytes ",
                    last = " are available, and Tessera holds " + held + ":\n  25165824 f32[6291456]";
  CHECK(said.starts_with(first));
  CHECK(said.ends_with(last));
  // the driver's word for it, where it has one
  const std::string available = said.substr(first.size(), said.size() - first.size() - last.size());
  CHECK(available.find_first_not_of("0123456789") == (available.starts_with("at most ") ? 0 : std::string::npos));
  DeviceArray b = launch(d, busy(), {a}).at(0);
  a.free();
  // b and c fit only once a is gone, which the first call still reads
  const DeviceArray c = launch(d, scale(), {b}).at(0);
  CHECK(floats(c)[5] == 23);
  CHECK(d.validation_messages().empty());
}

}  // namespace device_array_test
