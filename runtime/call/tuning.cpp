#include "runtime/call/tuning.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/base/read_file.h"
#include "engine/base/write_file.h"
#include "engine/ir/text.h"
#include "runtime/log.h"
#include "runtime/submit/cache_file.h"
#include "runtime/submit/context.h"
#include "tessera/build_id.h"

namespace tessera {
namespace {
constexpr std::string_view kFirstLine = "tessera tuning 1";
constexpr const char* kVariable = "TESSERA_TUNING";

using Choices = std::map<std::string, ScheduleChoices, std::less<>>;

/// A field: what would end it is a space there.
std::string field(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  return text;
}
std::pair<std::string, std::string> device_key(const DeviceInfo& d) { return {field(d.name), field(d.driver)}; }

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find('\t', at), line.size());
    all.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

/// Reads what write_tuning() writes, and nothing else.
class Reader {
 public:
  Reader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  Tuning run() {
    if (next() != kFirstLine) fail("is no tuning file: its first line is not \"" + std::string(kFirstLine) + "\"");
    const size_t end = text_.rfind("end\t");
    if (end == std::string_view::npos || text_.substr(end) != "end\t" + cache_file::digest(text_.substr(0, end)) + "\n")
      fail("is damaged, or was changed after it was written");
    const auto build = fields_of(next());
    if (build.size() != 2 || build[0] != "build") wrong_line();
    if (build[1] != kBuildId)
      fail("was measured with another build of Tessera (" + std::string(build[1]) + ", this is " + kBuildId +
           "): run tessera tune again");
    Tuning t;
    Tuning::Kernels* kernels = nullptr;
    while (at_ < end) {
      const auto f = fields_of(next());
      if (f.size() == 3 && f[0] == "device") kernels = &t.devices[{std::string(f[1]), std::string(f[2])}];
      else if (f.size() == 6 && f[0] == "kernel" && kernels) add(*kernels, f);
      else wrong_line();
    }
    return t;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw SpecError(file_ + ": " + what); }
  [[noreturn]] void wrong_line() const { fail("line " + std::to_string(line_) + " is none that tessera tune writes"); }
  std::string_view next() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line = text_.substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    ++line_;
    return line;
  }
  double seconds(std::string_view s) const {
    double v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || end != s.data() + s.size() || !(v >= 0)) wrong_line();
    return v;
  }
  void add(Tuning::Kernels& kernels, const std::vector<std::string_view>& f) const {
    const auto choices = choices_from(f[3]);
    if (!choices) wrong_line();
    kernels[std::string(f[1])] = {std::string(f[2]), *choices, seconds(f[4]), seconds(f[5])};
  }

  const std::string& file_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 0;
};

void say(const Device& device, const std::string& from, const std::string& what) {
  log(Severity::warning, "tessera: " + from + ": " + what + "; kernels are compiled as without it",
      device.context()->log_callback());
}

/// By digest, of a file that is for the device.
Choices choices_of(const Device& device, const Tuning& t, const std::string& from) {
  Choices choices;
  if (const Tuning::Kernels* kernels = t.of(device.info())) {
    for (const auto& [digest, k] : *kernels) choices.emplace(digest, k.choices);
    return choices;
  }
  std::string others;
  for (const auto& [key, kernels] : t.devices)
    others += (others.empty() ? "" : " and ") + key.first + " with the driver " + key.second;
  const auto [name, driver] = device_key(device.info());
  say(device, from,
      "it is for " + (others.empty() ? "no device" : others) + ", not for " + name + " with the driver " + driver);
  return choices;
}

/// With the context's mutex for them held.
Choices choices_of_environment(const Device& device) {
  const char* file = std::getenv(kVariable);
  if (!file || !*file) return {};
  try {
    return choices_of(device, read_tuning(file), std::string(kVariable) + ": " + file);
  } catch (const SpecError& e) {
    say(device, kVariable, e.what());
    return {};
  }
}
}  // namespace

const Tuning::Kernels* Tuning::of(const DeviceInfo& device) const {
  const auto found = devices.find(device_key(device));
  return found == devices.end() ? nullptr : &found->second;
}

Tuning::Kernels& Tuning::at(const DeviceInfo& device) { return devices[device_key(device)]; }

std::string tuning_digest(const ir::Kernel& kernel) { return cache_file::digest(ir::print(kernel)); }

Tuning read_tuning(const std::string& file) {
  const std::string text = InputFile(file).rest();
  return Reader(file, text).run();
}

bool is_tuning(const std::string& file) {
  try {
    return InputFile(file).rest().starts_with(std::string(kFirstLine) + "\n");
  } catch (const SpecError&) {
    return false;
  }
}

void write_tuning(const std::string& file, const Tuning& tuning) {
  std::string text = std::string(kFirstLine) + "\nbuild\t" + kBuildId + "\n";
  for (const auto& [key, kernels] : tuning.devices) {
    text += "device\t" + key.first + "\t" + key.second + "\n";
    for (const auto& [digest, k] : kernels)
      text += "kernel\t" + digest + "\t" + file_stem(k.name) + "\t" + to_string(k.choices) + "\t" + number(k.before) +
              "\t" + number(k.after) + "\n";
  }
  text += "end\t" + cache_file::digest(text) + "\n";
  if (!put_file(file, {text})) throw Error(file + ": cannot be written");
}

void use_tuning(const Device& device, const Tuning& tuning, const std::string& from) {
  vulkan::Context& context = *device.context();
  auto choices = choices_of(device, tuning, from);
  const std::lock_guard lock(context.choices_mutex);
  context.choices = std::move(choices);
}

ScheduleChoices tuned_choices(const Device& device, const ir::Kernel& kernel) {
  vulkan::Context& context = *device.context();
  const std::lock_guard lock(context.choices_mutex);
  if (!context.choices) context.choices = choices_of_environment(device);
  if (context.choices->empty()) return {};
  const auto found = context.choices->find(tuning_digest(kernel));
  return found == context.choices->end() ? ScheduleChoices{} : found->second;
}

}  // namespace tessera
