#include "codegen/program/report.h"

#include <algorithm>

#include "engine/base/print_text.h"

namespace tessera {

ReportSites report_sites(const Program& p, const DimValues& dims, const Loc& longest_loop) {
  ReportSites s{p.name, longest_loop, p.max_loop_iterations, p.prints, {}, {}, p.waits, "DeviceOptions"};
  if (p.prints.empty()) return s;
  s.axis_names = p.axis_names;
  for (const Extent& e : p.grid) s.grid.push_back(e.eval(dims));
  return s;
}

// What the code says of itself: a driver or a bundle that is wrong must not have the host read elsewhere.
uint64_t record_words(std::span<const uint32_t> header, uint64_t room) {
  const bool dropped = header[PrintReport::kDropped] != 0;
  return std::min<uint64_t>(header[dropped ? PrintReport::kEnd : PrintReport::kUsed], room);
}

PrintsRead read_prints(const ReportSites& s, std::span<const uint32_t> header, const std::vector<uint32_t>& records,
                       int64_t print_bytes) {
  PrintsRead read;
  const auto program = [&](uint64_t number) {
    std::vector<int64_t> at(s.grid.size());
    for (size_t a = at.size(); a-- > 0; number /= static_cast<uint64_t>(std::max<int64_t>(s.grid[a], 1)))
      at[a] = static_cast<int64_t>(number % static_cast<uint64_t>(std::max<int64_t>(s.grid[a], 1)));
    return program_text(s.axis_names, at.data());
  };
  for (PrintedLine& line : printed_lines(s.prints, records)) {
    const ProgramPrint& site = s.prints[line.print];
    if (!site.check) read.lines.push_back(std::move(line.text));
    else if (!read.failed)
      read.failed =
          std::make_shared<const KernelError>(check_failed(s.kernel, program(line.program), line.text, site.loc));
  }
  const uint32_t dropped = header[PrintReport::kDropped];
  if (dropped == 0) return read;
  const std::string room =
      " found no room in the " + std::to_string(print_bytes) + " bytes that a call's messages have";
  const uint64_t lost =
      (uint64_t{header[PrintReport::kDroppedWords + 1]} << 32 | header[PrintReport::kDroppedWords]) * 4;
  read.lines.push_back(s.kernel + ": " + std::to_string(dropped) + (dropped == 1 ? " more line" : " more lines") +
                       " (" + std::to_string(lost) + " bytes)" + room + ": print from fewer programs (in C++ " +
                       s.options + "::print_bytes gives more room)");
  if (header[PrintReport::kDroppedChecks] && !read.failed) {
    const auto check = std::find_if(s.prints.begin(), s.prints.end(), [](const ProgramPrint& p) { return p.check; });
    const Loc loc = check == s.prints.end() ? Loc{} : check->loc;
    read.failed = std::make_shared<const KernelError>(
        s.kernel + ": a check failed, but what it says" + room, loc,
        "print from fewer programs; in C++ " + s.options + "::print_bytes gives more room");
  }
  return read;
}

std::optional<DeviceError> failed_wait(const ReportSites& s, std::span<const uint32_t> words) {
  if (!(words[0] & Program::kWaitFailed) || words[1] >= s.waits.size()) return std::nullopt;
  const WaitSite& site = s.waits[words[1]];
  return DeviceError(wait_failed(s.kernel, site, static_cast<int32_t>(words[2]), static_cast<int32_t>(words[3])),
                     site.loc, kSignalFirst);
}

}  // namespace tessera
