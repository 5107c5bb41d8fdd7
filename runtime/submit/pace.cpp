#include "runtime/submit/pace.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/device/names.h"
#include "runtime/submit/recorder.h"

namespace tessera::vulkan {
namespace {
constexpr int kSlots = 32;                             // measurements in flight
constexpr double kWorthMeasuring = 1e6, kLong = 1e-3;  // work; or seconds, as far as they can be estimated
constexpr double kTranscendental = 8;                  // in arithmetic operations
}  // namespace

double work_of(const Program& p, const DimValues& dims) {
  const CostEstimate& c = p.cost_estimate;
  double work = 0;
  for (const auto& [extent, weight] :
       {std::pair{&c.flops, 1.0}, std::pair{&c.transcendentals, kTranscendental}, std::pair{&c.bytes_accessed, 1.0}}) {
    std::vector<std::string> names;
    extent->collect_names(names);
    if (std::any_of(names.begin(), names.end(), [&](const std::string& n) { return !dims.contains(n); })) return 0;
    work += weight * static_cast<double>(extent->eval(dims));
  }
  return work;
}

// The guesses: a scalar operation per cycle and core of a CPU driver, and a GPU's multiprocessor at about a tenth of
// its peak.
Pace::Pace(const DeviceTable& vk, VkDevice device, const Probe& probe)
    : vk_(vk),
      device_(device),
      bits_(probe.timestamp_bits),
      step_(1e-9 * static_cast<double>(probe.timestamp_period)),
      rate_((probe.info.target.kind == Target::Kind::cpu ? 1e9 : 1e10) * std::max(probe.info.target.compute_units, 1)),
      least_(rate_ / 32),
      compiles_late_(probe.info.target.kind == Target::Kind::cpu) {}

Pace::~Pace() {
  if (pool_) vk_.vkDestroyQueryPool(device_, pool_, vk_.host);
}

double Pace::seconds(double work, const void* code) const {
  const auto it = rates_.find(code);
  return work / (it != rates_.end() && it->second > 0 ? it->second : rate_);
}

// However little work it is: a piece of a call that was once measured to be slow shows whether it still is.
int Pace::begin(Recorder& recorder, double work, const void* code) {
  if ((work < kWorthMeasuring && seconds(work, code) < kLong) || bits_ == 0 || step_ <= 0) return -1;
  if (!tried_) {
    tried_ = true;
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 2 * kSlots;
    // then the guess has to do
    if (vk_.vkCreateQueryPool(device_, &info, vk_.host, &pool_) < 0) pool_ = VK_NULL_HANDLE;
    name_object(vk_, device_, pool_, "Tessera's timestamps");
    if (pool_)
      for (int i = 0; i < kSlots; ++i) idle_.push_back(i);
  }
  if (idle_.empty()) return -1;
  const VkCommandBuffer commands = recorder.commands();
  const int slot = idle_.back();
  idle_.pop_back();
  vk_.vkCmdResetQueryPool(commands, pool_, static_cast<uint32_t>(2 * slot), 2);
  vk_.vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, pool_, static_cast<uint32_t>(2 * slot));
  return slot;
}

void Pace::end(Recorder& recorder, int slot) {
  if (slot >= 0)
    vk_.vkCmdWriteTimestamp2(recorder.commands(), VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, pool_,
                             static_cast<uint32_t>(2 * slot + 1));
}

void Pace::submitted(int slot, uint64_t value, double work, const void* code) {
  if (slot < 0) return;
  if (value) in_flight_.push_back({slot, value, work, code});
  else idle_.push_back(slot);
}

void Pace::collect(uint64_t completed) {
  for (; !in_flight_.empty() && in_flight_.front().value <= completed; in_flight_.pop_front()) {
    const Measurement& m = in_flight_.front();
    uint64_t times[2] = {};
    const VkResult r = vk_.vkGetQueryPoolResults(device_, pool_, static_cast<uint32_t>(2 * m.slot), 2, sizeof times,
                                                 times, sizeof times[0], VK_QUERY_RESULT_64_BIT);
    idle_.push_back(m.slot);
    if (rates_.emplace(m.code, 0).second && compiles_late_) continue;
    const uint64_t mask = bits_ >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits_) - 1;
    // an error here is told by whatever waits next
    if (r == VK_SUCCESS) learn(m.work, static_cast<double>((times[1] - times[0]) & mask) * step_, m.code);
  }
}

// Rates of kernels lie orders of magnitude apart, hence the mean of their logarithms; a kernel's own is its last ones'.
// A kernel whose cost is estimated far too low, or one that was measured while the machine had no time for it, says
// nothing of others: theirs has a bound. A graph is cut when it is loaded, by the rate of others, for as long as it
// lives.
void Pace::learn(double work, double seconds, const void* code) {
  constexpr double kLeast = 1e-7, kMost = 1e3;  // what lies outside was no measurement
  if (!(seconds > kLeast && seconds < kMost) || work <= 0) return;
  const double rate = work / seconds;
  const auto toward = [&](double old, double weight) {
    return std::exp(std::log(old) * (1 - weight) + std::log(rate) * weight);
  };
  rate_ = std::max(measured_ ? toward(rate_, 0.2) : rate, least_);
  measured_ = true;
  double& own = rates_[code];
  own = own > 0 ? toward(own, 0.5) : rate;
}

}  // namespace tessera::vulkan
