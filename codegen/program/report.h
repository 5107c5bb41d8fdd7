// What a call's report (Program::report_bytes) says, read when the call is done: the lines that it printed, and what
// went wrong. The runtimes share it, whatever driver ran the call. Read next: program.h, whose PrintReport is the
// report's layout.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/program/program.h"

namespace tessera {

/// What a report is read with. It needs no Program, which may have gone by then.
struct ReportSites {
  std::string kernel;
  Loc loc;  // of the longest loop
  int64_t max_loop_iterations = 0;
  std::vector<ProgramPrint> prints;
  std::vector<std::string> axis_names;
  std::vector<int64_t> grid;
  std::vector<WaitSite> waits;
  std::string options = "DeviceOptions";  // of which print_bytes gives the messages their room
};
/// Of a call with these sizes; `longest_loop`: its line.
ReportSites report_sites(const Program& program, const DimValues& dims, const Loc& longest_loop);

/// Words of records that a report holds, by its first PrintReport::kRecords words, of `room` words for them.
uint64_t record_words(std::span<const uint32_t> header, uint64_t room);

struct PrintsRead {
  std::vector<std::string> lines;             // in the order of the programs
  std::shared_ptr<const KernelError> failed;  // the first check that did; none: none did
};
/// `records`: the words after the header; `print_bytes`: the room that the user gave.
PrintsRead read_prints(const ReportSites& sites, std::span<const uint32_t> header, const std::vector<uint32_t>& records,
                       int64_t print_bytes);

/// The wait that nothing could satisfy, if the report's first four words tell of one.
std::optional<DeviceError> failed_wait(const ReportSites& sites, std::span<const uint32_t> words);

}  // namespace tessera
