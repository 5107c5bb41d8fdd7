// Arrays that stay on the device, and calls on them.
#include <utility>

#include "runtime/array/bytes.h"
#include "runtime/launch/arguments.h"
#include "runtime/nvidia/call.h"

namespace tessera {

struct CudaArray::State {
  CudaDevice device;
  Shape shape;
  DType dtype;
  std::mutex mutex;
  std::shared_ptr<cuda::Block> block;  // guarded by mutex; null: no elements, or given away
  std::string taker;                   // the call that it was donated to

  cuda::Context& context() const { return *device.context(); }
  std::string text() const { return describe(shape, dtype); }
  /// Null without elements.
  std::shared_ptr<cuda::Block> memory(const std::string& use) {
    const std::lock_guard lock(mutex);
    if (!taker.empty()) throw SpecError(use + ": the array " + text() + " has been donated to " + taker);
    return block;
  }
};

CudaArray::CudaArray(const CudaDevice& device, Shape shape, DType dtype)
    : state_(new State{device, std::move(shape), dtype, {}, nullptr, {}}) {
  if (const uint64_t bytes = checked_bytes("CudaArray", state_->shape, dtype))
    state_->block = device.context()->allocate(static_cast<int64_t>(bytes), "CudaArray: " + state_->text());
}

CudaArray::CudaArray(const CudaDevice& device, const Array& host) : CudaArray(device, host.shape(), host.dtype()) {
  if (state_->block) device.context()->upload(state_->block->address(), host, "CudaArray: " + state_->text());
}

CudaArray CudaArray::import(const CudaDevice& device, uint64_t address, Shape shape, DType dtype,
                            std::shared_ptr<const void> owner) {
  const uint64_t bytes = checked_bytes("CudaArray", shape, dtype);
  CudaArray a;
  a.state_ = std::shared_ptr<State>(new State{device, std::move(shape), dtype, {}, nullptr, {}});
  const std::string what = "CudaArray::import: " + a.state_->text();
  if (bytes == 0) return a;
  if (address == 0 || address % 16 != 0)
    throw SpecError(what + ": its address " + std::to_string(address) + " is no multiple of 16", {}, "copy it");
  if (bytes % 4 != 0)
    throw SpecError(what + ": it takes " + std::to_string(bytes) + " bytes, no multiple of 4", {},
                    "copy it: atomics reach the word around an element");
  if (!owner) owner = std::make_shared<int>();
  a.state_->block = std::make_shared<cuda::Block>(device.context(), address, bytes, owner);
  return a;
}

CudaArray::State& CudaArray::get(const char* use) const {
  if (number_)
    throw SpecError(std::string(use) + ": a number is given, and no array", {},
                    "numbers are for arguments by value: ts::by_value(dtype) in in_specs");
  if (!state_) throw SpecError(std::string(use) + ": this CudaArray holds no array");
  return *state_;
}
const Shape& CudaArray::shape() const { return get("shape").shape; }
DType CudaArray::dtype() const { return get("dtype").dtype; }
const CudaDevice& CudaArray::device() const { return get("device").device; }
uint64_t CudaArray::address() const {
  const auto block = get("address").memory("address");
  return block ? block->address() : 0;
}

Array CudaArray::download() const {
  State& s = get("download");
  const auto block = s.memory("download");
  Array host(s.shape, s.dtype);
  if (block) s.context().download(host, block->address(), "download: " + s.text());
  return host;
}

CudaArray donate(CudaArray x) {
  x.donated_ = true;
  return x;
}

namespace cuda {
namespace {

/// Where a call ends by an exception, it waits for the stream: copies that are queued read the call's own memory.
struct Settled {
  const Driver& driver;
  StreamHandle* stream;
  bool is_well = false;
  ~Settled() {
    if (!is_well) driver.cuStreamSynchronize(stream);
  }
};

}  // namespace

std::vector<CudaArray> Context::launch(const CudaDevice& device, const Program& program,
                                       const std::vector<CudaArray>& inputs, const DimValues& dims) {
  Types types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string which = program.name + ": argument " + std::to_string(i);
    if (inputs[i].number() && i < program.args.size() && program.args[i].by_value) {
      types.emplace_back(program.args[i].dtype, Shape{});
      continue;
    }
    const CudaArray::State& s = inputs[i].get(which.c_str());
    if (&s.context() != this)
      throw SpecError(which + " is of another CudaDevice, on " + s.context().name() + ", than the call, on " + name(),
                      program.loc, "copy it: CudaArray(device, x.download())");
    types.emplace_back(s.dtype, s.shape);
  }
  Call call(*this, program, types, dims);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].donated_)
      check_donation(program, i, inputs.size(), [&](size_t j) { return inputs[j].state_ == inputs[i].state_; });
  // Held until mutex_ is free again: a Block of another library's memory takes it when it goes.
  std::vector<std::shared_ptr<Block>> blocks(program.args.size());
  std::vector<CudaArray> outputs(call.outputs.size());
  {
    const std::lock_guard lock(mutex_);
    require_alive();
    const Current current(*driver_, handle_);
    Settled settled{*driver_, stream_};
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (program.args[i].by_value) call.addresses[i] = value_of(program, i, inputs[i].number());
      else if ((blocks[i] = inputs[i].state_->memory(program.name + ": argument " + std::to_string(i))))
        call.addresses[i] = blocks[i]->address();
    }
    // A copy of input i at argument `at`, or, donated, its own memory.
    const auto take = [&](size_t i, size_t at) {
      const Address from = call.addresses[i];
      if (inputs[i].donated_) blocks[at] = blocks[i], call.addresses[at] = from;
      else blocks[at] = call.allocate(at, bytes_of(types[i]));
      call.addresses[i] = call.addresses[at];
      call.copy(call.addresses[at], from, bytes_of(types[i]));
    };
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t at = inputs.size() + i;
      if (const int alias = program.args[at].alias; alias >= 0) take(static_cast<size_t>(alias), at);
      else blocks[at] = call.allocate(at, bytes_of(call.outputs[i]));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (program.args[i].written && !program.args[i].by_value && !call.aliased(i)) take(i, i);
    if (!call.is_empty()) {
      call.launch();
      call.read_report();
    }
    settled.is_well = true;
    for (const CudaArray& x : inputs)
      if (x.donated_) {
        const std::lock_guard state(x.state_->mutex);
        x.state_->block = nullptr;
        x.state_->taker = program.name;
      }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [dtype, shape] = call.outputs[i];
    outputs[i].state_ = std::shared_ptr<CudaArray::State>(
        new CudaArray::State{device, shape, dtype, {}, blocks[inputs.size() + i], {}});
  }
  call.tell();
  return outputs;
}

}  // namespace cuda
}  // namespace tessera
