#include "runtime/nvidia/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "codegen/program/report.h"
#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/array/bytes.h"
#include "runtime/launch.h"
#include "runtime/launch/arguments.h"
#include "runtime/nvidia/tensors.h"

namespace tessera::cuda {
namespace {

Types types_of(const std::vector<Array>& arrays) {
  Types types;
  for (const Array& a : arrays) types.emplace_back(a.dtype(), a.shape());
  return types;
}

}  // namespace

Call::Call(Context& context, const Program& program, const Types& inputs, const DimValues& dims)
    : outputs(output_types(program, inputs, dims)),
      addresses(program.args.size()),
      c_(context),
      d_(*context.driver_),
      p_(program),
      dims_(bind_dims(program, inputs, dims)),
      count_(workgroups_of(program, dims_, context.info_.memory_bytes / 4)),
      sizes_(extents_of(program, dims_, context.name())) {}

bool Call::aliased(size_t input) const {
  return std::any_of(p_.args.begin(), p_.args.end(),
                     [&](const ProgramArg& a) { return a.alias == static_cast<int>(input); });
}

std::shared_ptr<Block> Call::allocate(size_t i, int64_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<Block> block = c_.allocate_in_turn(bytes, p_.name + ": " + p_.args[i].origin, p_.loc);
  addresses[i] = block->address();
  return block;
}
void Call::copy(Address to, Address from, int64_t bytes) {
  if (bytes > 0 && to != from)
    c_.check(d_.cuMemcpyDtoDAsync_v2(to, from, static_cast<size_t>(bytes), c_.stream_), "cuMemcpyDtoDAsync_v2", p_.name,
             p_.loc);
}
void Call::upload(Address to, const void* from, int64_t bytes) {
  if (bytes > 0)
    c_.check(d_.cuMemcpyHtoDAsync_v2(to, from, static_cast<size_t>(bytes), c_.stream_), "cuMemcpyHtoDAsync_v2", p_.name,
             p_.loc);
}
void Call::download(void* to, Address from, int64_t bytes) {
  if (bytes > 0)
    c_.check(d_.cuMemcpyDtoHAsync_v2(to, from, static_cast<size_t>(bytes), c_.stream_), "cuMemcpyDtoHAsync_v2", p_.name,
             p_.loc);
}

void Call::launch() {
  FunctionHandle* function = c_.function(p_);
  make_room();
  std::vector<std::byte> block = argument_block(p_, addresses, sizes_);
  put_tensors(d_, p_, dims_, addresses, block);
  size_t bytes = block.size();
  void* extra[] = {kLaunchBlock, block.data(), kLaunchBlockBytes, &bytes, kLaunchEnd};
  void* parameters[] = {block.data()};
  const bool tensors = !p_.tensors.empty();
  c_.check(d_.cuLaunchKernel(function, static_cast<unsigned>(count_), 1, 1, static_cast<unsigned>(p_.workgroup_size), 1,
                             1, p_.shared_bytes > kMostStaticShared ? static_cast<unsigned>(p_.shared_bytes) : 0,
                             c_.stream_, tensors ? parameters : nullptr, bytes && !tensors ? extra : nullptr),
           "cuLaunchKernel", p_.name, p_.loc);
  c_.note_queued(p_.name, p_.loc);
}

// The arena, and the report.
void Call::make_room() {
  if (p_.scratch_bytes > 0) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(p_.scratch_bytes, count_, &bytes)) bytes = INT64_MAX / 8 * 4;
    room_for(bytes, "the scratch arena of " + std::to_string(count_) + " workgroups");
  }
  if (p_.report_bytes == 0) return;
  room_ = p_.prints.empty() ? 0 : c_.options_.print_bytes / 4;
  const int64_t bytes = std::max<int64_t>(p_.report_bytes, PrintReport::kRecords * 4) + room_ * 4;
  room_for(bytes, "the report");
  c_.check(d_.cuMemsetD8Async(addresses.back(), 0, static_cast<size_t>(bytes), c_.stream_), "cuMemsetD8Async", p_.name,
           p_.loc);
  capacity_ = static_cast<uint32_t>(room_);
  upload(addresses.back() + PrintReport::kCapacity * 4, &capacity_, sizeof capacity_);
}
void Call::room_for(int64_t bytes, const std::string& what) {
  room_blocks_.push_back(c_.allocate_in_turn(bytes, p_.name + ": " + what, p_.loc));
  addresses.push_back(room_blocks_.back()->address());
}

void Call::read_report() {
  if (p_.report_bytes == 0) return;
  report_.resize(PrintReport::kRecords);
  download(report_.data(), addresses.back(), static_cast<int64_t>(report_.size() * sizeof report_[0]));
  wait();
  if (p_.prints.empty()) return;
  records_.resize(record_words(report_, static_cast<uint64_t>(room_)));
  download(records_.data(), addresses.back() + PrintReport::kRecords * 4,
           static_cast<int64_t>(records_.size() * sizeof records_[0]));
  wait();
}

void Call::tell() {
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

namespace {

/// However a call on host arrays ends, the device is done with their memory before it is the caller's again.
struct Finish {
  const Driver& driver;
  StreamHandle* stream;
  MemoryPool& pool;
  std::vector<std::shared_ptr<Block>>& blocks;
  Call& call;
  ~Finish() {
    driver.cuStreamSynchronize(stream);
    blocks.clear();
    call.give_back_room();
    pool.release(driver);
  }
};

Array kept(const Array& a) { return a.donated() ? a.take() : a; }

std::vector<HostArray> host_arrays(const std::vector<Array>& arrays) {
  std::vector<HostArray> all;
  for (const Array& a : arrays) all.push_back({a.dtype(), a.shape(), const_cast<std::byte*>(a.bytes())});
  return all;
}
Types types_of(std::span<const HostArray> arrays) {
  Types types;
  for (const HostArray& a : arrays) types.emplace_back(a.dtype, a.shape);
  return types;
}
int64_t bytes_of(const HostArray& a) { return size_bytes(a.dtype) * num_elements(a.shape); }

void check_outputs(const Program& p, const Types& made, std::span<const HostArray> wanted) {
  if (made.size() != wanted.size())
    throw SpecError(p.name + ": gives " + plural(made.size(), "output") + " but " + std::to_string(wanted.size()) +
                        (wanted.size() == 1 ? " is expected" : " are expected"),
                    p.loc);
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i].first != wanted[i].dtype || made[i].second != wanted[i].shape)
      throw SpecError(p.name + ": output " + std::to_string(i) + " is " + describe(made[i].second, made[i].first) +
                          " but " + describe(wanted[i].shape, wanted[i].dtype) + " is expected",
                      p.loc);
}

}  // namespace

std::vector<Array> Context::run(const Program& program, const std::vector<Array>& inputs, const DimValues& dims) {
  std::vector<Array> outputs;
  {
    const Call call(*this, program, types_of(inputs), dims);
    for (const auto& [dtype, shape] : call.outputs) outputs.emplace_back(shape, dtype);
    if (call.is_empty()) {
      for (size_t i = 0; i < outputs.size(); ++i)
        if (const int alias = program.args[inputs.size() + i].alias; alias >= 0)
          outputs[i] = kept(inputs[static_cast<size_t>(alias)]);
      return outputs;
    }
  }
  run_into(program, host_arrays(inputs), host_arrays(outputs), dims);
  return outputs;
}

void Context::run_into(const Program& program, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                       const DimValues& dims) {
  Call call(*this, program, types_of(inputs), dims);
  check_outputs(program, call.outputs, outputs);
  if (call.is_empty()) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const int alias = program.args[inputs.size() + i].alias; alias >= 0)
        if (const int64_t bytes = bytes_of(outputs[i]); bytes > 0)
          std::memmove(outputs[i].data, inputs[static_cast<size_t>(alias)].data, static_cast<size_t>(bytes));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    require_alive();
    const Current current(*driver_, handle_);
    function(program);  // what is wrong with the code, before any memory
    std::vector<std::shared_ptr<Block>> blocks;
    const Finish finish{*driver_, stream_, pool_, blocks, call};
    for (size_t i = 0; i < outputs.size(); ++i) {  // an aliased input lies in its output's memory
      const size_t at = inputs.size() + i;
      blocks.push_back(call.allocate(at, bytes_of(outputs[i])));
      if (const int alias = program.args[at].alias; alias >= 0)
        call.addresses[static_cast<size_t>(alias)] = call.addresses[at];
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t bytes = bytes_of(inputs[i]);
      if (program.args[i].by_value) {
        uint64_t bits = 0;
        std::memcpy(&bits, inputs[i].data, static_cast<size_t>(bytes));
        call.addresses[i] = value_of(program, i, Scalar(inputs[i].dtype, bits));
        continue;
      }
      if (call.addresses[i] == 0) blocks.push_back(call.allocate(i, bytes));
      call.upload(call.addresses[i], inputs[i].data, bytes);
    }
    call.launch();
    for (size_t i = 0; i < outputs.size(); ++i)
      call.download(outputs[i].data, call.addresses[inputs.size() + i], bytes_of(outputs[i]));
    call.read_report();
    call.wait();
  }
  call.tell();
}

}  // namespace tessera::cuda
