// What every Program that compile() makes has, and what the runtime relies on without a look: for Programs that were
// read from a file.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "codegen/program/program_file.h"
#include "engine/base/print_text.h"

namespace tessera {
namespace {

constexpr int64_t kMostReport = 1 << 20;

/// Whole instructions from the header to the end.
bool is_spirv(const std::vector<uint32_t>& words) {
  if (words.size() < 5 || words[0] != 0x07230203) return false;
  for (size_t at = 5; at < words.size();) {
    const size_t n = words[at] >> 16;
    if (n == 0 || n > words.size() - at) return false;
    at += n;
  }
  return true;
}

bool valid_arguments(const Program& p) {
  const auto first_output = std::find_if(p.args.begin(), p.args.end(), [](const ProgramArg& a) { return a.is_output; });
  const auto inputs = first_output - p.args.begin();
  std::vector<bool> aliased(static_cast<size_t>(inputs));
  for (auto it = p.args.begin(); it != p.args.end(); ++it) {
    const ProgramArg& a = *it;
    if (a.is_output != (it >= first_output) || a.alias < -1) return false;
    if (a.by_value && (a.is_output || a.written || !a.shape.empty())) return false;
    if (a.alias == -1) continue;
    if (!a.is_output || a.alias >= inputs || aliased[static_cast<size_t>(a.alias)]) return false;
    const ProgramArg& input = p.args[static_cast<size_t>(a.alias)];
    if (input.by_value || input.dtype != a.dtype || input.shape != a.shape) return false;  // they share memory
    aliased[static_cast<size_t>(a.alias)] = true;
  }
  return true;
}

bool valid_print(const ProgramPrint& print) {
  int64_t words = PrintReport::kHeader;
  for (const auto& [dtype, shape] : print.arguments) {
    int64_t n = size_bytes(dtype) == 8 ? 2 : 1;
    for (const int64_t d : shape)
      if (d < 0 || __builtin_mul_overflow(n, std::max<int64_t>(d, 1), &n) || n > kMostReport) return false;
    words += n;
  }
  return words <= kMostReport && format_problem(print.text, print.arguments).empty();
}

}  // namespace

namespace {
bool valid_tensor(const Program& p, const ProgramTensor& t) {
  constexpr int64_t kMostRank = 5, kMostInBox = 256;
  return t.array >= 0 && t.array < static_cast<int64_t>(p.args.size()) && !t.box.empty() &&
         static_cast<int64_t>(t.box.size()) <= kMostRank &&
         t.box.size() == p.args[static_cast<size_t>(t.array)].shape.size() &&
         std::all_of(t.box.begin(), t.box.end(), [](int64_t n) { return n > 0 && n <= kMostInBox; });
}
}  // namespace

bool is_valid(const Program& p) {
  const auto power_of_two = [](int32_t n) { return n > 0 && std::has_single_bit(static_cast<uint32_t>(n)); };
  if (!p.ptx.empty() ? !p.spirv.empty() : !is_spirv(p.spirv)) return false;
  if (!valid_arguments(p)) return false;
  if (p.workgroup_size < 1 || p.shared_bytes < 0 || p.scratch_bytes < 0 || p.max_workgroups < 0 ||
      p.max_loop_iterations < 0 || p.max_loop_iterations > INT32_MAX)
    return false;
  if (p.required_subgroup_size != 0 &&
      (!power_of_two(p.required_subgroup_size) || p.workgroup_size % p.required_subgroup_size != 0))
    return false;
  if (!power_of_two(p.alignment) || p.alignment > 64) return false;  // the runtime's own arrays lie at multiples of 64
  if (p.extents.size() != p.extent_is_64.size()) return false;
  if (p.units_extent < -1 || p.units_extent >= static_cast<int64_t>(p.extents.size())) return false;
  if (p.units_extent >= 0 && (p.max_workgroups == 0 || p.scratch_bytes == 0)) return false;
  if (p.steps_extent < -1 ||
      (p.steps_extent >= 0 && p.steps_extent + int64_t{1} >= static_cast<int64_t>(p.extents.size())))
    return false;
  if (p.steps_extent >= 0 &&
      p.extent_is_64[static_cast<size_t>(p.steps_extent)] != p.extent_is_64[static_cast<size_t>(p.steps_extent) + 1])
    return false;
  if (p.open_ended && (p.steps_extent < 0 || p.scratch_bytes == 0 || p.report_bytes == 0)) return false;
  if (p.steps_extent >= 0 && (p.max_workgroups > 0 || p.max_loop_iterations == 0)) return false;
  if (p.report_bytes < 0 || p.report_bytes > kMostReport) return false;
  if (!p.prints.empty() && p.report_bytes < 4 * PrintReport::kRecords) return false;
  if (!p.axis_names.empty() && p.axis_names.size() != p.grid.size()) return false;
  if (!std::all_of(p.tensors.begin(), p.tensors.end(), [&](const auto& t) { return valid_tensor(p, t); })) return false;
  return std::all_of(p.prints.begin(), p.prints.end(), valid_print);
}

}  // namespace tessera
