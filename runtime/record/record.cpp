#include "runtime/record.h"

#include "runtime/record/host_stream.h"

namespace tessera {

PreparedKernel::PreparedKernel(const Device& device, std::shared_ptr<const Program> program,
                               const PrepareOptions& options)
    : call_(std::make_unique<vulkan::HostCall>(device, std::move(program), options)) {}
PreparedKernel::PreparedKernel(const Device& device, Program program, const PrepareOptions& options)
    : PreparedKernel(device, std::make_shared<const Program>(std::move(program)), options) {}
PreparedKernel::PreparedKernel(PreparedKernel&&) noexcept = default;
PreparedKernel& PreparedKernel::operator=(PreparedKernel&&) noexcept = default;
PreparedKernel::~PreparedKernel() = default;
const Program& PreparedKernel::program() const { return *call_->program; }
const Shape& PreparedKernel::shape(size_t i) const { return call_->shapes.at(i); }
DType PreparedKernel::dtype(size_t i) const { return call_->program->args.at(i).dtype; }
std::array<uint32_t, 3> PreparedKernel::groups() const {
  return call_->bound.count > 0 ? call_->bound.groups : std::array<uint32_t, 3>{};
}
void PreparedKernel::resize(std::span<const NamedSize> sizes) { call_->resize(sizes); }
Scopes PreparedKernel::scopes() const { return call_->scopes; }
Scopes PreparedKernel::record(VkCommandBuffer commands, uint64_t frame, std::span<const Argument> arguments) {
  vulkan::HostStream& stream = *call_->alone;
  stream.begin(commands, frame);
  try {
    stream.record(*call_, arguments);
  } catch (...) {
    stream.abandon();
    throw;
  }
  stream.end();
  return stream.scopes();
}

CommandStream::CommandStream(const Device& device, const StreamOptions& options)
    : stream_(std::make_unique<vulkan::HostStream>(device, options)) {}
CommandStream::CommandStream(CommandStream&&) noexcept = default;
CommandStream& CommandStream::operator=(CommandStream&&) noexcept = default;
CommandStream::~CommandStream() = default;
void CommandStream::begin(VkCommandBuffer commands, uint64_t frame) { stream_->begin(commands, frame); }
Scopes CommandStream::record(PreparedKernel& kernel, std::span<const Argument> arguments) {
  stream_->record(*kernel.call_, arguments);
  return kernel.call_->scopes;
}
Scopes CommandStream::record(PreparedKernel& kernel, std::span<const DeviceArray> arrays) {
  stream_->record(*kernel.call_, arrays);
  return kernel.call_->scopes;
}
Scopes CommandStream::record_indirect(PreparedKernel& kernel, std::span<const DeviceArray> arrays,
                                      const DeviceArray& groups, uint64_t offset) {
  stream_->record(*kernel.call_, arrays, {groups.memory().get(), offset});
  Scopes s = kernel.call_->scopes;
  s.wait_stages |= vulkan::stage_flags(mask(Stage::indirect));
  s.wait_accesses |= vulkan::access_flags(mask(Stage::indirect), true);
  return s;
}
std::vector<TimedCommand> CommandStream::trace(uint64_t frame) const { return stream_->trace(frame); }
Scopes CommandStream::end() {
  stream_->end();
  return stream_->scopes();
}

}  // namespace tessera
