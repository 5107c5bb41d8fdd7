#include "runtime/outcome.h"

#include "codegen/program.h"
#include "runtime/context.h"

namespace tessera::vulkan {

Outcome::Outcome() = default;
Outcome::~Outcome() = default;

std::unique_ptr<Buffer> Context::report_buffer(uint64_t bytes, const std::string& what) {
  constexpr uint64_t kGranule = 64;
  const uint64_t size = (bytes + kGranule - 1) / kGranule * kGranule;
  {
    std::lock_guard lock(mutex_);
    collect();
    for (auto it = reports_.begin(); it != reports_.end(); ++it) {
      if ((*it)->size() != size) continue;
      std::unique_ptr<Buffer> b = std::move(*it);
      reports_.erase(it);
      return b;
    }
  }
  // The context owns its reports, so they do not own it.
  return std::make_unique<Buffer>(std::shared_ptr<Context>(std::shared_ptr<Context>(), this), size, Memory::download, what);
}

void Context::clear_report(const std::string& what, Buffer& report) {
  const std::vector<std::byte> zeros(report.size());
  recorder_->note_host_write(what, report, report.size());
  report.hazards = {};
  report.host_write(zeros.data(), zeros.size());
}

void Context::follow(std::shared_ptr<Outcome> outcome) { in_flight_.push_back(std::move(outcome)); }

void Context::settle(Outcome& o) {
  for (const auto& input : o.inputs)
    if (!o.error) o.error = input->error;
  o.inputs.clear();
  o.settled = true;
  if (!o.report) return;
  uint32_t words[4] = {};  // reports are of 64 bytes at least
  recorder_->note_host_read("the report of " + o.kernel, *o.report, 0, sizeof words);
  o.report->host_read(words, 0, sizeof words);
  reports_.push_back(std::move(o.report));
  const auto tell = [&](DeviceError error) {
    const auto told = std::make_shared<const DeviceError>(std::move(error));
    if (!o.error) o.error = told;
    untold_.push_back(told);
  };
  if (words[0] & Program::kLoopsCut)  // then waits may fail because of it
    return tell(DeviceError(o.kernel + ": the loops of an invocation ran more than " + std::to_string(o.max_loop_iterations) + " iterations, after which " + name() +
                     " leaves them all: the results are wrong", o.loc, kShorterLoops));
  if ((words[0] & Program::kWaitFailed) && words[1] < o.waits.size()) {
    const WaitSite& site = o.waits[words[1]];
    tell(DeviceError(wait_failed(o.kernel, site, static_cast<int32_t>(words[2]), static_cast<int32_t>(words[3])), site.loc, kSignalFirst));
  }
}

void Context::throw_if_wrong(const std::shared_ptr<Outcome>& outcome) {
  if (!outcome) return;
  std::lock_guard lock(mutex_);
  if (!outcome->error) return;
  std::erase(untold_, outcome->error);
  throw DeviceError(*outcome->error);
}

void Context::throw_untold() {
  std::lock_guard lock(mutex_);
  if (untold_.empty()) return;
  const auto error = untold_.front();
  untold_.pop_front();
  throw DeviceError(*error);
}

}  // namespace tessera::vulkan
