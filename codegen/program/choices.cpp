#include "codegen/program/choices.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {
struct Choice {
  std::string_view name;
  int32_t ScheduleChoices::* value;
  int32_t least, most;
};
constexpr Choice kChoices[] = {{"workgroup", &ScheduleChoices::workgroup, 1, 1024},
                               {"smaller", &ScheduleChoices::smaller, 0, 2},
                               {"registers", &ScheduleChoices::registers, 0, 2},
                               {"work", &ScheduleChoices::work, -3, 3},
                               {"spread", &ScheduleChoices::spread, -3, 3}};
constexpr std::string_view kDefault = "default";
}  // namespace

double ScheduleChoices::work_factor() const { return std::exp2(work); }

std::string to_string(const ScheduleChoices& c) {
  std::string text;
  for (const Choice& choice : kChoices)
    if (const int32_t v = c.*choice.value; v != 0)
      text += (text.empty() ? "" : " ") + std::string(choice.name) + "=" + std::to_string(v);
  return text.empty() ? std::string(kDefault) : text;
}

std::optional<ScheduleChoices> choices_from(std::string_view text) {
  ScheduleChoices c;
  if (text == kDefault) return c;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    for (const Choice& choice : kChoices) {
      if (!word.starts_with(choice.name) || word.substr(choice.name.size(), 1) != "=") continue;
      const std::string_view number = word.substr(choice.name.size() + 1);
      int32_t v = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), v);
      if (error != std::errc() || v < choice.least || v > choice.most) return std::nullopt;
      c.*choice.value = v;
    }
  }
  // One way to write each: so twice the same, other orders and unknown words are none.
  const bool power = c.workgroup == 0 || std::has_single_bit(static_cast<uint32_t>(c.workgroup));
  if (!power || to_string(c) != text) return std::nullopt;
  return c;
}

}  // namespace tessera
