#include "support.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/front.h"
#include "programs/ADD.h"
#include "programs/BUSY.h"
#include "programs/SCALE.h"
#include "programs/SCRATCH.h"
#include "programs/SUBGROUP.h"
#include "programs/TABLE.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/interop.h"
#include "runtime/order.h"
#include "runtime/submit/context.h"
#include "tests/unit/main.h"

namespace tessera::test {
namespace {

template <size_t N> Program program(const char* name, const uint32_t (&words)[N], int inputs) {
  Program p;
  p.name = name;
  p.spirv.assign(words, words + N);
  const Extent n = dim("n");
  for (int i = 0; i < inputs; ++i)
    p.args.push_back({"in_specs[" + std::to_string(i) + "]", f32, {n}, false, true, false, {}});
  p.args.push_back({"out_specs[0]", f32, {n}, true, false, true, {}});
  p.workgroup_size = 64;
  p.num_units = cdiv(n, 64);
  p.extents = {n};
  p.extent_is_64 = {false};
  return p;
}

}  // namespace

Device& device() {
  static std::optional<Device> d = [] {
    // An error under a test's Faults: layers are over this device, and none over the test's.
    {
      const vulkan::Faults none;
    }
    DeviceOptions o;
    o.validation = kValidation, o.log_commands = true;
    at_end().emplace_back([] { d.reset(); });
    return Device(o);
  }();
  return *d;
}

void check_clean(const Device& d) {
  d.wait();
  // On a busy machine the layer's own thread may be late, which it then calls a bug of its own.
  for (const std::string& m : d.validation_messages())
    if (m.find("UNASSIGNED-VkSemaphore-state-timeout") == std::string::npos) FAIL_CHECK(m);
  for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
}

bool uses_host_memory(const Device& d) {
  Array large({3 << 20}, f32);
  return DeviceArray::import_host(d, large.bytes(), large.shape(), f32).has_value();
}

Gate::Gate(const Device& d) : device_(d) {
  vulkan::Context& context = *d.context();
  const VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr,
                                       VK_SEMAPHORE_TYPE_TIMELINE, 0};
  const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  REQUIRE(context.vk().vkCreateSemaphore(context.handle(), &info, context.vk().host, &semaphore_) == VK_SUCCESS);
  wait_for(d, semaphore_, 1);
}
Gate::~Gate() {
  vulkan::Context& context = *device_.context();
  context.wait_all();
  context.vk().vkDestroySemaphore(context.handle(), semaphore_, context.vk().host);
}
void Gate::open() {
  vulkan::Context& context = *device_.context();
  const auto signal = reinterpret_cast<PFN_vkSignalSemaphore>(
      context.instance().vk().vkGetDeviceProcAddr(context.handle(), "vkSignalSemaphore"));
  const VkSemaphoreSignalInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, semaphore_, 1};
  REQUIRE(signal(context.handle(), &info) == VK_SUCCESS);
}

Program add() { return program("add", kADD, 2); }
Program scale() { return program("scale", kSCALE, 1); }
Program scale_shaped(const Shape& shape) {
  Program p = scale();
  for (ProgramArg& a : p.args) a.shape.assign(shape.begin(), shape.end());
  p.extents = {num_elements(shape)};
  p.num_units = (num_elements(shape) + 63) / 64;
  return p;
}
Program busy() { return program("busy", kBUSY, 1); }
Program subgroup() { return program("subgroup", kSUBGROUP, 0); }
Program table() {
  Program p = program("table", kTABLE, 2);
  p.indirect_table = true;
  return p;
}
Program scratch() {
  Program p = program("scratch", kSCRATCH, 1);
  p.scratch_bytes = 64 * 4;
  p.max_workgroups = 3;
  p.units_extent = 1;
  p.extents.push_back(p.num_units);
  p.extent_is_64.push_back(false);
  return p;
}

CompiledKernel blend(const Device& device) {
  const auto call = pallas_call(
      [](Ref x, Ref gain, Ref bias, Ref o) {
        const Value shift = bias[all] + dim("n");
        o[all] = x[all] * gain[all] + cast(shift, f32);
      },
      {.out_shape = {{{dim("n")}, f32}},
       .grid = {cdiv(dim("n"), 64)},
       .in_specs = {{{64}, [](Value i) { return i; }}, by_value(f32), by_value(i32)},
       .out_specs = {{{64}, [](Value i) { return i; }}},
       .name = "blend",
       .in_shape = {{{dim("n")}, f32}, {{}, f32}, {{}, i32}}});
  return load(device, call.trace());
}

Array ramp(int64_t n, float start) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(start + static_cast<float>(i));
  return Array({n}, v);
}

bool equal(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.at(i) != b.at(i)) return false;
  return true;
}
DeviceOptions logged() {
  DeviceOptions o;
  o.log_commands = true;
  return o;
}
void check_sound(const Device& d) {
  for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
}
std::vector<float> floats(const DeviceArray& a) {
  const Array host = a.download();
  const auto s = std::as_const(host).data<float>();
  return {s.begin(), s.end()};
}

std::vector<float> scaled_ramp(int64_t n, int times) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) {
    float x = static_cast<float>(i);
    for (int t = 0; t < times; ++t) x = 2 * x + 1;
    v.push_back(x);
  }
  return v;
}

double srgb_tolerance(double number) {
  const double slope = number <= 0.0031308 ? 1 / 12.92 : 2.4 / 1.055 * std::pow(number, 1.4 / 2.4);
  return 0.5 / 255 * std::max(1.0, slope);
}

}  // namespace tessera::test
