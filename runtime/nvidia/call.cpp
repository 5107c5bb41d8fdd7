// One call of a Program: memory for its arrays, the launch, and what came of it. The memory lives as long as the call.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "codegen/program/report.h"
#include "engine/base/bind.h"
#include "runtime/launch.h"
#include "runtime/launch/arguments.h"
#include "runtime/nvidia/context.h"
#include "runtime/nvidia/tensors.h"

namespace tessera::cuda {
namespace {

/// Memory of the device: whole words, since atomics take the word around an element.
class Memory {
 public:
  Memory(const Driver& driver, const std::string& device, int64_t bytes, const std::string& what, Loc loc)
      : driver_(&driver) {
    const auto size = static_cast<size_t>(bytes + 3) / 4 * 4;
    const Status status = driver.cuMemAlloc_v2(&address_, size);
    size_t available = 0, total = 0;
    if (status == kOutOfMemory && driver.cuMemGetInfo_v2(&available, &total) == kSuccess)
      throw DeviceError(what + ": takes " + std::to_string(size) + " bytes, but of the memory of " + device + " " +
                            std::to_string(available) + " of " + std::to_string(total) + " bytes are free",
                        loc);
    driver.check(status, "cuMemAlloc_v2", what, loc);
  }
  Memory(Memory&& m) noexcept : driver_(std::exchange(m.driver_, nullptr)), address_(m.address_) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (driver_) driver_->cuMemFree_v2(address_);
  }
  Address address() const { return address_; }

 private:
  const Driver* driver_;
  Address address_ = 0;
};

/// However a call ends, the device is done with the host's memory and the call's own before they go.
struct Finish {
  const Driver& driver;
  StreamHandle* stream;
  std::vector<Memory>& memory;
  ~Finish() {
    driver.cuStreamSynchronize(stream);
    memory.clear();
  }
};

}  // namespace

class Call {
 public:
  Call(Context& context, const Program& program, const std::vector<Array>& inputs, const DimValues& dims)
      : c_(context), d_(*context.driver_), p_(program), inputs_(inputs) {
    std::vector<std::pair<DType, Shape>> types;
    for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
    dims_ = bind_dims(p_, types, dims);
    for (auto& [dtype, shape] : output_types(p_, types, dims)) outputs_.emplace_back(std::move(shape), dtype);
    count_ = workgroups_of(p_, dims_, c_.info_.memory_bytes / 4);
    sizes_ = extents_of(p_, dims_, c_.name());
  }

  /// Without work for the device: outputs that are aliased to an input have its contents.
  bool is_empty() const { return count_ == 0; }
  std::vector<Array> unchanged() {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (const int alias = p_.args[inputs_.size() + i].alias; alias >= 0)
        outputs_[i] = kept(inputs_[static_cast<size_t>(alias)]);
    return std::move(outputs_);
  }

  /// With the device's context current.
  std::vector<Array> run() {
    FunctionHandle* function = c_.function(p_);
    const Finish finish{d_, c_.stream_, memory_};
    place_arrays();
    std::vector<std::byte> block = argument_block(p_, addresses_, sizes_);
    put_tensors(d_, p_, dims_, addresses_, block);
    size_t bytes = block.size();
    void* extra[] = {kLaunchBlock, block.data(), kLaunchBlockBytes, &bytes, kLaunchEnd};
    void* parameters[] = {block.data()};
    const bool tensors = !p_.tensors.empty();
    d_.check(d_.cuLaunchKernel(function, static_cast<unsigned>(count_), 1, 1, static_cast<unsigned>(p_.workgroup_size),
                               1, 1, p_.shared_bytes > kMostStaticShared ? static_cast<unsigned>(p_.shared_bytes) : 0,
                               c_.stream_, tensors ? parameters : nullptr, bytes && !tensors ? extra : nullptr),
             "cuLaunchKernel", p_.name, p_.loc);
    wait();
    for (size_t i = 0; i < outputs_.size(); ++i) download(outputs_[i], addresses_[inputs_.size() + i]);
    if (p_.report_bytes > 0) read_report();
    wait();
    return std::move(outputs_);
  }

  /// What the kernel printed, said, and what it failed with, thrown.
  void tell() {
    if (report_.empty()) return;
    ReportSites sites = report_sites(p_, dims_, p_.loc);
    sites.options = "CudaOptions";
    if (!p_.prints.empty()) {
      const PrintsRead read = read_prints(sites, report_, records_, c_.options_.print_bytes);
      for (const std::string& line : read.lines) print_line(c_.options_.print, line);
      if (read.failed) throw KernelError(*read.failed);
    }
    if (const auto wait = failed_wait(sites, report_)) throw DeviceError(*wait);
  }

 private:
  static Array kept(const Array& a) { return a.donated() ? a.take() : a; }

  void upload(Address to, const void* from, int64_t bytes) {
    if (bytes > 0)
      d_.check(d_.cuMemcpyHtoDAsync_v2(to, from, static_cast<size_t>(bytes), c_.stream_), "cuMemcpyHtoDAsync_v2",
               p_.name, p_.loc);
  }
  void download(Array& to, Address from) {
    if (to.nbytes() > 0) download(to.bytes(), from, to.nbytes());
  }
  void download(void* to, Address from, int64_t bytes) {
    d_.check(d_.cuMemcpyDtoHAsync_v2(to, from, static_cast<size_t>(bytes), c_.stream_), "cuMemcpyDtoHAsync_v2", p_.name,
             p_.loc);
  }

  Address allocate(int64_t bytes, const std::string& what) {
    memory_.emplace_back(d_, c_.name(), bytes, p_.name + ": " + what, p_.loc);
    return memory_.back().address();
  }

  // Each array's memory, that of an aliased input being its output's; the arena; the report.
  void place_arrays() {
    addresses_.assign(p_.args.size(), 0);
    for (size_t i = inputs_.size(); i < p_.args.size(); ++i) {
      const Array& output = outputs_[i - inputs_.size()];
      if (output.nbytes() > 0) addresses_[i] = allocate(output.nbytes(), p_.args[i].origin);
      if (const int alias = p_.args[i].alias; alias >= 0) addresses_[static_cast<size_t>(alias)] = addresses_[i];
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (p_.args[i].by_value) addresses_[i] = value_of(p_, i, Scalar::of(inputs_[i]));
      if (p_.args[i].by_value || inputs_[i].nbytes() == 0) continue;
      if (addresses_[i] == 0) addresses_[i] = allocate(inputs_[i].nbytes(), p_.args[i].origin);
      upload(addresses_[i], inputs_[i].bytes(), inputs_[i].nbytes());
    }
    if (p_.scratch_bytes > 0) {
      int64_t bytes = 0;
      if (__builtin_mul_overflow(p_.scratch_bytes, count_, &bytes)) bytes = INT64_MAX / 8 * 4;
      addresses_.push_back(allocate(bytes, "the scratch arena of " + std::to_string(count_) + " workgroups"));
    }
    if (p_.report_bytes == 0) return;
    room_ = p_.prints.empty() ? 0 : c_.options_.print_bytes / 4;
    const int64_t bytes = std::max<int64_t>(p_.report_bytes, PrintReport::kRecords * 4) + room_ * 4;
    addresses_.push_back(allocate(bytes, "the report"));
    d_.check(d_.cuMemsetD8Async(addresses_.back(), 0, static_cast<size_t>(bytes), c_.stream_), "cuMemsetD8Async",
             p_.name, p_.loc);
    capacity_ = static_cast<uint32_t>(room_);
    upload(addresses_.back() + PrintReport::kCapacity * 4, &capacity_, sizeof capacity_);
  }

  // Its header, and then as much of its records as it says.
  void read_report() {
    report_.resize(PrintReport::kRecords);
    download(report_.data(), addresses_.back(), static_cast<int64_t>(report_.size() * sizeof report_[0]));
    wait();
    if (p_.prints.empty()) return;
    records_.resize(record_words(report_, static_cast<uint64_t>(room_)));
    if (!records_.empty())
      download(records_.data(), addresses_.back() + PrintReport::kRecords * 4,
               static_cast<int64_t>(records_.size() * sizeof records_[0]));
  }

  // An error here is the kernel's: the driver then refuses all work of the process on this device.
  void wait() {
    const Status status = d_.cuStreamSynchronize(c_.stream_);
    if (status == kSuccess) return;
    c_.lost_ = c_.name() + " is lost since " + p_.name + " failed: " + d_.text(status);
    d_.check(status, "cuStreamSynchronize", p_.name, p_.loc,
             c_.name() + " is lost to this process; a new process can use it");
  }

  Context& c_;
  const Driver& d_;
  const Program& p_;
  const std::vector<Array>& inputs_;
  std::vector<Array> outputs_;
  DimValues dims_;
  int64_t count_ = 0;  // workgroups
  std::vector<int64_t> sizes_;
  std::vector<Memory> memory_;
  std::vector<Address> addresses_;  // per argument, then of the arena, then of the report
  int64_t room_ = 0;                // words for records
  uint32_t capacity_ = 0;           // the same, where the driver copies it from
  std::vector<uint32_t> report_, records_;
};

std::vector<Array> Context::run(const Program& program, const std::vector<Array>& inputs, const DimValues& dims) {
  Call call(*this, program, inputs, dims);
  if (call.is_empty()) return call.unchanged();
  std::vector<Array> outputs;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw DeviceError(program.name + ": " + lost_, program.loc, "a new process can use the device");
    const Current current(*driver_, handle_);
    outputs = call.run();
  }
  call.tell();
  return outputs;
}

}  // namespace tessera::cuda
