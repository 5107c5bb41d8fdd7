#include "runtime/submit/outcome.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "codegen/program/program.h"
#include "engine/base/print_text.h"
#include "runtime/submit/context.h"
#include "runtime/submit/slices.h"

namespace tessera::vulkan {

Outcome::Outcome() = default;
Outcome::~Outcome() = default;

std::shared_ptr<Outcome> outcome_of(const Program& p, const DimValues& dims, const Loc& longest_loop,
                                    std::unique_ptr<Buffer> report) {
  auto outcome = std::make_shared<Outcome>();
  outcome->report = std::move(report);
  outcome->sites = report_sites(p, dims, longest_loop);
  return outcome;
}

std::unique_ptr<Buffer> Context::report_buffer(const Program& p) {
  const auto bytes = static_cast<uint64_t>(p.report_bytes + (p.prints.empty() ? 0 : print_bytes()));
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
  return std::make_unique<Buffer>(std::shared_ptr<Context>(std::shared_ptr<Context>(), this), size, Memory::download,
                                  p.name + ": the report");
}

void Context::clear_report(const std::string& what, Buffer& report, const Program& p) {
  std::vector<uint32_t> header(PrintReport::kRecords, 0);  // 64 bytes, as much as the least report
  header[PrintReport::kCapacity] = static_cast<uint32_t>(p.prints.empty() ? 0 : print_bytes() / 4);
  const uint64_t bytes = header.size() * sizeof header[0];
  recorder_->note_host_write(what, report, bytes);
  // else the next call still has to come after the records of the one before
  if (bytes >= report.size()) report.hazards = {};
  report.host_write(header.data(), bytes);
}

bool Context::steps_left(Buffer& report) {
  uint32_t bits;
  recorder_->note_host_read("a report that steps are left", report, 0, sizeof bits);
  report.host_read(&bits, 0, sizeof bits);
  const bool left = (bits & Program::kUnfinished) != 0;
  bits &= ~Program::kUnfinished;
  recorder_->note_host_write("a report that steps are left", report, sizeof bits);
  report.host_write(&bits, sizeof bits);
  return left && bits == 0;  // what went wrong is not gone on with
}

void Context::follow(std::shared_ptr<Outcome> outcome) { in_flight_.push_back(std::move(outcome)); }

void Context::settle_now(const std::shared_ptr<Outcome>& outcome) {
  const std::lock_guard lock(mutex_);
  settle(*outcome);
}

void Context::settle(Outcome& o) {
  for (const auto& input : o.inputs)
    if (!o.error) o.error = input->error;
  o.inputs.clear();
  if (!o.report) {
    o.settled = true;
    return;
  }
  std::vector<uint32_t> words(o.sites.prints.empty() ? 4 : PrintReport::kRecords);  // reports are of 64 bytes at least
  const uint64_t bytes = words.size() * sizeof words[0];
  recorder_->note_host_read("the report of " + o.sites.kernel, *o.report, 0, bytes);
  o.report->host_read(words.data(), 0, bytes);
  if (!o.sites.prints.empty()) read_prints(o, words);
  o.settled = true;  // not before it has been read: that may fail, and is tried again
  reports_.push_back(std::move(o.report));
  const auto tell = [&](DeviceError error) {
    const auto told = std::make_shared<const DeviceError>(std::move(error));
    if (!o.error) o.error = told;
    untold_.push_back(told);
  };
  if (words[0] & Program::kLoopsCut)  // then waits may fail because of it
    return tell(DeviceError(o.sites.kernel + ": the loops of an invocation ran more than " +
                                std::to_string(o.sites.max_loop_iterations) + " iterations, after which " + name() +
                                " leaves them all: the results are wrong",
                            o.sites.loc, kShorterLoops));
  if (words[0] & Program::kUnfinished)
    return tell(DeviceError(o.sites.kernel + ": its loops run longer than the " +
                                std::to_string(vulkan::kOpenDispatches) + " dispatches that are recorded of it, of " +
                                std::to_string(o.sites.max_loop_iterations) + " iterations each: the results are wrong",
                            o.sites.loc, "call it without recording it: then as many dispatches follow as it takes"));
  if (const auto wait = failed_wait(o.sites, words)) tell(*wait);
}

void Context::read_prints(Outcome& o, const std::vector<uint32_t>& header) {
  const uint64_t room = o.report->size() / sizeof(uint32_t) - PrintReport::kRecords;
  std::vector<uint32_t> records(record_words(header, room));
  if (!records.empty()) {
    const uint64_t from = PrintReport::kRecords * sizeof records[0], bytes = records.size() * sizeof records[0];
    recorder_->note_host_read("the report of " + o.sites.kernel, *o.report, from, bytes);
    o.report->host_read(records.data(), from, bytes);
  }
  PrintsRead read = tessera::read_prints(o.sites, header, records, print_bytes_);
  std::move(read.lines.begin(), read.lines.end(), std::back_inserter(lines_));
  if (!read.failed) return;
  if (!o.error) o.error = read.failed;
  untold_.push_back(read.failed);
}

void Context::say(bool waits) {
  std::unique_lock order(print_mutex_, std::defer_lock);
  if (waits) order.lock();
  else if (!order.try_lock()) return;
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    try {
      print_line(options_.print, lines[i]);
    } catch (...) {  // of the user's callback: the lines after it are said next time
      const std::lock_guard lock(mutex_);
      lines_.insert(lines_.begin(), lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, lines.end());
      throw;
    }
  }
}

namespace {
[[noreturn]] void rethrow(const Error& e) {
  if (const auto* kernel = dynamic_cast<const KernelError*>(&e)) throw KernelError(*kernel);
  throw DeviceError(static_cast<const DeviceError&>(e));
}
}  // namespace

void Context::throw_if_wrong(const std::shared_ptr<Outcome>& outcome) {
  if (!outcome) return;
  std::lock_guard lock(mutex_);
  if (!outcome->error) return;
  std::erase(untold_, outcome->error);
  rethrow(*outcome->error);
}

void Context::throw_untold() {
  std::lock_guard lock(mutex_);
  if (untold_.empty()) return;
  const auto error = untold_.front();
  untold_.pop_front();
  rethrow(*error);
}

}  // namespace tessera::vulkan
