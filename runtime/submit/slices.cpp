#include "runtime/submit/slices.h"

#include <algorithm>
#include <string>

#include "codegen/program/program.h"

namespace tessera::vulkan {

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
    for (int i = 0, next = 1; i < kOpenDispatches; ++i) {
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

}  // namespace tessera::vulkan
