#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tests/unit/runtime/support.h"

namespace device_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// Sets (or unsets) an environment variable for a scope.
class Environment {
 public:
  Environment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    set(value);
  }
  ~Environment() { set(old_ ? old_->c_str() : nullptr); }

 private:
  void set(const char* value) { set_environment(name_.c_str(), value); }
  std::string name_;
  std::optional<std::string> old_;
};

/// What goes to stderr while it lives.
class CapturedStderr {
 public:
  explicit CapturedStderr(std::string& text) : text_(text), file_(std::tmpfile()), saved_(dup(2)) {
    std::fflush(stderr);
    dup2(fileno(file_), 2);
  }
  ~CapturedStderr() {
    std::fflush(stderr);
    dup2(saved_, 2);
    close(saved_);
    std::rewind(file_);
    for (int c; (c = std::fgetc(file_)) != EOF;) text_ += static_cast<char>(c);
    std::fclose(file_);
  }

 private:
  std::string& text_;
  std::FILE* file_;
  int saved_;
};

std::string listing() {
  std::string s;
  for (const DeviceInfo& d : list_devices()) {
    s += "\n  " + std::to_string(d.index) + ": " + d.name;
    for (size_t i = 0; i < d.lacks.size(); ++i) s += (i ? ", " : " (lacks ") + d.lacks[i];
    if (!d.lacks.empty()) s += ")";
  }
  return s;
}

}  // namespace

TEST_CASE("devices are listed with what they can do") {
  const std::vector<DeviceInfo> devices = list_devices();
  REQUIRE(!devices.empty());
  for (size_t i = 0; i < devices.size(); ++i) {
    CHECK(devices[i].index == static_cast<int>(i));
    CHECK(!devices[i].name.empty());
    if (!devices[i].lacks.empty()) continue;
    const Target& t = devices[i].target;
    CHECK(t.name == devices[i].name);
    CHECK(t.max_workgroup_size >= 128);  // what Vulkan 1.3 promises
    CHECK(t.shared_bytes >= 16384);
    CHECK(t.push_constant_bytes >= 128);
    CHECK(t.max_workgroup_count >= 65535);
    CHECK(t.min_subgroup_size <= t.subgroup_size);
    CHECK(t.subgroup_size <= t.max_subgroup_size);
    if (t.min_subgroup_size == t.max_subgroup_size) CHECK(t.can_require_subgroup_size);
    const bool has_32 = t.min_subgroup_size <= 32 && 32 <= t.max_subgroup_size;
    if (t.kind == Target::Kind::gpu && t.can_require_subgroup_size && has_32) CHECK(t.subgroup_size == 32);
    CHECK(t.compute_units >= 1);
    CHECK(t.max_buffer_bytes >= int64_t{1} << 27);
  }
}

TEST_CASE("lavapipe_target() is what lavapipe of Mesa 22.3 reports") {
  for (const DeviceInfo& d : list_devices()) {
    if (d.driver.find("llvmpipe Mesa 22.3") == std::string::npos) continue;
    Target want = lavapipe_target(), got = d.target;
    want.name = got.name;  // depends on LLVM's version and the processor
    want.compute_units = got.compute_units;
    want.max_buffer_bytes = got.max_buffer_bytes;  // depends on the machine's memory
    // on the processor's vectors
    want.subgroup_size = want.min_subgroup_size = want.max_subgroup_size = got.subgroup_size;
    want.max_workgroup_size = 32 * got.subgroup_size;
    want.skips_branches = true;  // lavapipe_target() serves newer ones too
    CHECK(got == want);
    CHECK(d.kind == "CPU");
  }
}

TEST_CASE("TESSERA_DEVICE and the options choose a device by index or name") {
  const std::vector<DeviceInfo> devices = list_devices();
  const std::string name = device().info().name;
  const std::string index = std::to_string(device().info().index);
  std::string shouted = name;
  for (char& c : shouted) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::vector<std::string> ways{name, name.substr(1, 5), shouted, index, "vulkan", "vulkan:" + index, "vulkan:" + name};
  if (name.starts_with("llvmpipe")) ways.insert(ways.end(), {"lavapipe", "vulkan:lavapipe"});
  for (const std::string& wanted : ways) {
    CAPTURE(wanted);
    DeviceOptions o;
    o.select = wanted;
    if (wanted == index) CHECK(Device(o).info().index == device().info().index);
    else CHECK(Device(o).info().name.size() > 0);
    const Environment e("TESSERA_DEVICE", wanted.c_str());
    CHECK(!Device().info().name.empty());
  }
  const Environment e("TESSERA_DEVICE", "no such GPU");
  CHECK(error_of<DeviceError>([] { Device d; }) ==
        "TESSERA_DEVICE=\"no such GPU\" is none of the Vulkan devices:" + listing());
  {
    const Environment host("TESSERA_DEVICE", "interpreter");
    CHECK(error_of<DeviceError>([] { Device d; }) ==
          "TESSERA_DEVICE=\"interpreter\" runs calls of host arrays on the host, and is none of the Vulkan devices:" +
              listing());
  }
  DeviceOptions o;
  o.select = "4711";  // goes before the environment
  CHECK(error_of<DeviceError>([&] { Device d(o); }) == "device \"4711\" is none of the Vulkan devices:" + listing());
  o.select = index;
  CHECK(Device(o).info().name == name);
}

TEST_CASE("a machine without Vulkan gets one sentence saying what to install" * without_device) {
  DeviceOptions o;
  o.library = "libno_such_loader.so";
  const std::string no_loader =
      "there is no Vulkan loader (libno_such_loader.so) on this machine: install it and a driver (Debian and Ubuntu: "
      "apt-get install libvulkan1 mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host";
  CHECK(error_of<DeviceError>([&] { Device d(o); }) == no_loader);
  CHECK(error_of<DeviceError>([&] { list_devices(o); }) == no_loader);
#ifndef _WIN32  // Wine's loader asks this machine's, which has read the environment by now

  const Environment a("VK_DRIVER_FILES", "/nonexistent/driver.json"), b("VK_ICD_FILENAMES", "/nonexistent/driver.json");
  const std::string no_driver =
      "there is no Vulkan driver on this machine: install the one for its GPU, or Mesa's for the CPU (Debian and "
      "Ubuntu: apt-get install mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host";
  CHECK(error_of<DeviceError>([] { Device d; }) == no_driver);
  CHECK(error_of<DeviceError>([] { list_devices(); }) == no_driver);
#endif
}

TEST_CASE("a library that is no Vulkan loader" * without_device) {
  DeviceOptions o;
#ifdef _WIN32
  o.library = "kernel32.dll";
#else
  o.library = "libm.so.6";
#endif
  CHECK(error_of<DeviceError>([&] { Device d(o); }) ==
        o.library + " is not a Vulkan loader: it has no vkGetInstanceProcAddr");
}

TEST_CASE("validation is on where asked for, and its messages are collected" * under_validation) {
  Program p = scale();
  p.args.clear();  // the code reads more push constants than the pipeline's layout has
  {
    DeviceOptions o;
    o.validation = kValidation;
    const Device d(o);
    prepare(d, p);
    REQUIRE(d.validation_messages().size() == 1);
    CHECK(d.validation_messages()[0].find("VUID-VkComputePipelineCreateInfo-layout-") != std::string::npos);
  }
  {
    const Environment e("TESSERA_VALIDATION", "1");
    std::string printed;
    {
      const CapturedStderr capture(printed);  // whoever sets the variable reads the messages there
      const Device d;
      prepare(d, p);
      CHECK(d.validation_messages().size() == 1);
    }
    CHECK(printed.find("VUID-VkComputePipelineCreateInfo-layout-") != std::string::npos);
  }
}

TEST_CASE("the default device is one device") {
  CHECK(&default_device() == &default_device());
  CHECK(floats(launch(default_device(), scale(), {DeviceArray(default_device(), ramp(9))}).at(0)) == scaled_ramp(9));
}

}  // namespace device_test
