#include "runtime/slices.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/names.h"
#include "runtime/recorder.h"

namespace tessera::vulkan {
namespace {
constexpr int kSlots = 32;  // measurements in flight
constexpr double kWorthMeasuring = 1e6;
constexpr double kTranscendental = 8;  // in arithmetic operations
}  // namespace

std::vector<GroupSlice> slice_workgroups(int64_t count, int64_t per, const std::array<uint32_t, 3>& limits) {
  const auto u32 = [](int64_t v) { return static_cast<uint32_t>(v); };
  per = std::clamp<int64_t>(per, 1, std::max<int64_t>(count, 1));
  std::vector<GroupSlice> slices;
  if (count <= limits[0]) {
    for (int64_t at = 0; at < count; at += per) {
      const int64_t n = std::min(per, count - at);
      slices.push_back({{u32(at), 0, 0}, {u32(n), 1, 1}, at, n});
    }
    return slices;
  }
  // Whole rows: the code numbers workgroups by the dispatch's own extent along x, and a base there would be lost on it.
  const int64_t row = std::clamp<int64_t>(std::max(per, (count + limits[1] - 1) / limits[1]), 1, limits[0]),
                rows = (count + row - 1) / row, rows_per = std::max<int64_t>(per / row, 1);
  for (int64_t at = 0; at < rows; at += rows_per) {
    const int64_t n = std::min(rows_per, rows - at);
    slices.push_back({{0, u32(at), 0}, {u32(row), u32(n), 1}, at * row, n * row});
  }
  return slices;
}

// Bases along y, in steps of the dispatch's own extent along x, reach farther than along x.
std::vector<GroupSlice> slice_units(int64_t count, int64_t per, int64_t workgroups,
                                    const std::array<uint32_t, 3>& limits) {
  const auto u32 = [](int64_t v) { return static_cast<uint32_t>(v); };
  per = std::clamp<int64_t>(std::max(per, (count + limits[1] - 1) / limits[1]), 1, std::max<int64_t>(count, 1));
  const int64_t groups = std::min(per, workgroups);
  per = (per + groups - 1) / groups * groups;
  if (groups > limits[0] || (count - 1) / groups >= limits[1]) return {};
  std::vector<GroupSlice> slices;
  for (int64_t at = 0; at < count; at += per)
    slices.push_back({{0, u32(at / groups), 0}, {u32(groups), 1, 1}, at, std::min(per, count - at)});
  return slices;
}

std::vector<GroupSlice> slice_steps(const std::vector<GroupSlice>& slices, const GroupSlice& all, int64_t total,
                                    int64_t per) {
  std::vector<GroupSlice> cut;
  for (const GroupSlice& s : slices.empty() ? std::vector{all} : slices)
    for (int64_t at = 0; at < total; at += per) {
      cut.push_back(s);
      cut.back().first_step = at;
      cut.back().end_step = std::min(at + per, total);
    }
  return cut;
}

std::vector<GroupSlice> slice_open(const std::vector<GroupSlice>& slices, const GroupSlice& all, int64_t per) {
  std::vector<GroupSlice> open;
  for (const GroupSlice& s : slices.empty() ? std::vector{all} : slices)
    for (int i = 0, next = 4; i < kOpenDispatches; ++i) {
      open.push_back(s);
      GroupSlice& one = open.back();
      one.tells = i + 1 == next || i + 1 == kOpenDispatches;
      one.ends = one.tells || (i + 1) % kTogether == 0;
      if (one.tells) next *= 4;
      one.first_step = (i > 0 ? Program::kGoesOn : 0) | (one.tells ? Program::kTells : 0);
      one.end_step = per;
    }
  return open;
}

void tell_at_the_end(std::vector<GroupSlice>& slices) {
  for (size_t i = 0; i < slices.size(); ++i)
    if (slices[i].tells && (i + 1) % kOpenDispatches != 0) {
      slices[i].tells = false;
      slices[i].first_step &= ~Program::kTells;
    }
}

size_t after_telling(const std::vector<GroupSlice>& slices, size_t told, bool steps_left) {
  const size_t begin = told / kOpenDispatches * kOpenDispatches, end = begin + kOpenDispatches;
  if (!steps_left) return end;
  if (told + 1 < end) return told + 1;
  size_t again = told;
  while (!slices[again - 1].tells) --again;
  return again;
}

std::string text(const std::vector<GroupSlice>& slices, size_t number, bool units) {
  const GroupSlice &s = slices[number], &last = slices.back();
  size_t from = number;
  while (from > 0 && !slices[from - 1].ends) --from;
  const std::string which = from == number ? "slice " : "slices " + std::to_string(from + 1) + " to ";
  return (units ? "units " : "workgroups ") + std::to_string(s.first) + " to " + std::to_string(s.first + s.count - 1) +
         " of " + std::to_string(last.first + last.count) + " (" + which + std::to_string(number + 1) + " of " +
         std::to_string(slices.size()) + ")";
}

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
      compiles_late_(probe.info.target.kind == Target::Kind::cpu) {}

Pace::~Pace() {
  if (pool_) vk_.vkDestroyQueryPool(device_, pool_, vk_.host);
}

double Pace::seconds(double work, const void* code) const {
  const auto it = rates_.find(code);
  return work / (it != rates_.end() ? it->second : rate_);
}

int Pace::begin(Recorder& recorder, double work) {
  if (work < kWorthMeasuring || bits_ == 0 || step_ <= 0) return -1;
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
    if (compiles_late_ && dispatched_.insert(m.code).second) continue;
    const uint64_t mask = bits_ >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits_) - 1;
    // an error here is told by whatever waits next
    if (r == VK_SUCCESS) learn(m.work, static_cast<double>((times[1] - times[0]) & mask) * step_, m.code);
  }
}

// Rates of kernels lie orders of magnitude apart, hence the mean of their logarithms; a kernel's own is its last ones'.
void Pace::learn(double work, double seconds, const void* code) {
  constexpr double kLeast = 1e-7, kMost = 1e3;  // what lies outside was no measurement
  if (!(seconds > kLeast && seconds < kMost) || work <= 0) return;
  const double rate = work / seconds;
  const auto toward = [&](double old, double weight) {
    return std::exp(std::log(old) * (1 - weight) + std::log(rate) * weight);
  };
  rate_ = measured_ ? toward(rate_, 0.2) : rate;
  measured_ = true;
  const auto [it, first] = rates_.emplace(code, rate);
  if (!first) it->second = toward(it->second, 0.5);
}

}  // namespace tessera::vulkan
