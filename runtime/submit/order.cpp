#include "runtime/order.h"

#include <algorithm>

namespace tessera {
namespace {

// A device access that later ones may conflict with.
struct Live {
  const LogEntry* command;
  AddressRange range;
  bool write;
  Stage stage;
  StageMask ordered = 0;         // stages in which everything from here on comes after it, and sees what it wrote
  uint64_t submission = 0;       // timeline value at which it is done; 0: not submitted yet
  bool host_barrier = false;     // a barrier towards the host has been recorded after it,
  uint64_t host_submission = 0;  // in this submission; 0: not submitted yet
};

bool overlap(const AddressRange& a, const AddressRange& b) { return a.begin < b.end && b.begin < a.end; }
bool within(const AddressRange& a, const AddressRange& outer) { return outer.begin <= a.begin && a.end <= outer.end; }

class Checker {
 public:
  std::vector<std::string> reports;

  void step(const LogEntry& e) {
    entry_ = &e;
    std::visit([&](const auto& event) { take(event); }, e.event);
  }

 private:
  /// What the entry `does` conflicts with an earlier access.
  void report(const char* does, const AddressRange& range, const Live& earlier, const std::string& missing) {
    reports.push_back(entry_->what + does + "bytes [" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
                      ") that " + earlier.command->what + (earlier.write ? " writes" : " reads") + ", " + missing);
  }

  void take(const LogEntry::Command& c) {
    auto conflicts = [&](const AddressRange& range, bool write, Stage stage) {
      for (const Live& a : live_)
        if ((write || a.write) && overlap(a.range, range) && !(a.ordered & mask(stage)))
          report(write                      ? " writes "
                 : stage == Stage::indirect ? " is sized by "
                                            : " reads ",
                 range, a, "and no barrier orders them");
    };
    for (const AddressRange& r : c.reads) conflicts(r, false, c.stage);
    for (const AddressRange& r : c.indirect) conflicts(r, false, Stage::indirect);
    for (const AddressRange& r : c.writes) conflicts(r, true, c.stage);
    for (const AddressRange& r : c.reads) add(r, false, c.stage);
    for (const AddressRange& r : c.indirect) add(r, false, Stage::indirect);
    for (const AddressRange& r : c.writes) add(r, true, c.stage);
  }

  // An earlier access that this one follows behind a barrier is left out: what comes after this one comes after that
  // one, too. A loop of many dispatches would else keep one for each of them.
  void add(const AddressRange& r, bool write, Stage stage) {
    std::erase_if(live_, [&](const Live& a) {
      return a.command != entry_ && within(a.range, r) && (write || !a.write) && (a.ordered & mask(stage));
    });
    live_.push_back({entry_, r, write, stage});
  }

  // Dependencies chain: what an earlier barrier ordered before a stage in `from` is ordered before `to` as well. What
  // waits for a dispatch's shaders waits for what comes before them in its pipeline (the specification's logically
  // earlier stages), so for the reading of its size.
  void take(const LogEntry::Barrier& b) {
    for (Live& a : live_) {
      const StageMask in = a.stage == Stage::indirect ? mask(Stage::indirect) | mask(Stage::compute) : mask(a.stage);
      if (!((in | a.ordered) & b.from)) continue;
      a.ordered |= b.to & static_cast<StageMask>(~mask(Stage::host));
      if (b.to & mask(Stage::host)) a.host_barrier = true;
    }
  }

  void take(const LogEntry::Submit& s) {
    for (Live& a : live_) {
      if (a.submission == 0) a.submission = s.value;
      if (a.host_barrier && a.host_submission == 0) a.host_submission = s.value;
    }
  }

  void take(const LogEntry::Completed& c) { completed_ = std::max(completed_, c.value); }

  bool done(uint64_t submission) const { return submission != 0 && submission <= completed_; }

  // A barrier towards the host counts once the submission that holds it is done.
  void take(const LogEntry::HostRead& h) {
    for (const Live& a : live_) {
      if (!a.write || !overlap(a.range, h.range)) continue;
      if (!done(a.submission)) report(" reads ", h.range, a, "and nothing has waited for that");
      else if (!done(a.host_submission))
        report(" reads ", h.range, a, "and no barrier has made it visible to the host");
    }
  }

  void take(const LogEntry::HostWrite& h) { replace(" writes ", h.range); }
  void take(const LogEntry::Release& freed) { replace(" frees ", freed.range); }

  // The host overwrites or frees memory: the device must be done with it. A later submission sees what the host wrote
  // before.
  void replace(const char* does, const AddressRange& r) {
    for (const Live& a : live_)
      if (overlap(a.range, r) && !done(a.submission)) report(does, r, a, "and nothing has waited for that");
    std::erase_if(live_, [&](const Live& a) { return within(a.range, r) && done(a.submission); });
  }

  const LogEntry* entry_ = nullptr;  // that is taken
  std::vector<Live> live_;
  uint64_t completed_ = 0;
};

}  // namespace

std::vector<std::string> find_unordered(const CommandLog& log) {
  Checker checker;
  for (const LogEntry& e : log) checker.step(e);
  return std::move(checker.reports);
}

CommandLog submitted_later(const CommandLog& log, uint64_t stream, size_t later) {
  CommandLog moved, result;
  size_t last = 0;
  for (size_t i = 0; i < log.size(); ++i)
    if (log[i].stream == stream) moved.push_back(log[i]), last = i;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].stream != stream) result.push_back(log[i]);
    if (moved.empty() || i < last) continue;
    if (log[i].is<LogEntry::Submit>() && later > 0) --later;
    if (later > 0 && i + 1 < log.size()) continue;
    result.insert(result.end(), moved.begin(), moved.end());
    moved.clear();
  }
  return result;
}

}  // namespace tessera
