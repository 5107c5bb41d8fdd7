#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/read_file.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "runtime/cli/commands.h"
#include "runtime/device.h"

namespace tessera::cli {

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);  // also of a pipe, if a user says so
  std::string text;
  char part[1 << 16];
  while (in) {
    in.read(part, sizeof part);
    text.append(part, static_cast<size_t>(in.gcount()));
    if (text.size() > kMostText)
      throw Error(file + ": has more than " + std::to_string(kMostText) + " bytes, which is no kernel");
  }
  // not there; or a folder, which opens and fails at the first read
  if (!in.eof()) throw Error(file + ": cannot be read");
  return text;
}

ir::Kernel read_kernel(const std::string& file) { return parse_kernel(read_text(file), file); }

ir::Kernel parse_kernel(const std::string& text, const std::string& file) {
  if (text.starts_with("TESSERA\n"))
    throw SpecError(file + ": is a bundle, of kernels that are compiled already", {},
                    "give the .tir files that it was made of");
  ir::Kernel k = ir::parse(text, file);
  ir::check(k, text, file);
  if (k.level != ir::Level::tile)
    throw SpecError(file + ": is a lane-level kernel, which is what compilation makes", {},
                    "give the tile-level kernel");
  return k;
}

bool is_kernel_list(const std::string& file) { return std::filesystem::path(file).extension() == ".kernels"; }

KernelFiles read_kernel_list(const std::string& file) {
  KernelFiles list;
  std::istringstream lines(read_text(file));
  std::string line;
  int number = 1;
  const auto fail = [&](const std::string& expected) {
    throw SpecError(file + ": line " + std::to_string(number) + ": expected " + expected + ", not " +
                        (lines ? "\"" + line + "\"" : "the end of the file"),
                    {}, "tessera_add_kernels writes this file: build the project again");
  };
  if (!std::getline(lines, line) || line != "tessera kernels 1") fail("\"tessera kernels 1\"");
  for (++number; std::getline(lines, line); ++number) {
    if (line.starts_with("source ") && list.source.empty()) list.source = line.substr(7);
    else if (line.starts_with("kernel ") && !list.source.empty())
      list.files.push_back((std::filesystem::path(file).parent_path() / line.substr(7)).string());
    else if (line.starts_with("graph ") && !list.source.empty())
      list.graphs.push_back({(std::filesystem::path(file).parent_path() / line.substr(6)).string(), {}});
    else if (line.starts_with("names ") && !list.graphs.empty() && list.graphs.back().names.empty()) {
      std::istringstream names(line.substr(6));
      for (std::string name; names >> name;) list.graphs.back().names.push_back(name);
    } else fail(list.source.empty() ? "\"source NAME\"" : "\"kernel FILE.tir\" or \"graph FOLDER\"");
  }
  if (list.files.empty() && list.graphs.empty()) fail("\"kernel FILE.tir\" or \"graph FOLDER\"");
  return list;
}

Target target(const std::string& name) {
  if (name != "device") return Target::named(name);
  try {
    return find_device().target;
  } catch (const DeviceError& e) {
    throw DeviceError(e.what(), {}, "--target minimum or --target lavapipe compile without a device");
  }
}

DimValues parse_dims(const std::vector<std::string>& dims) {
  DimValues values;
  for (const std::string& d : dims) {
    const size_t equals = d.find('=');
    int64_t value = 0;
    const char* end = d.data() + d.size();
    const char* begin = equals == std::string::npos ? end : d.data() + equals + 1;
    const auto [rest, error] = std::from_chars(begin, end, value);
    if (equals == 0 || begin == end || rest != end || error != std::errc())
      throw UsageError("--dim " + d + ": expected NAME=SIZE, as in --dim n=5");
    if (!values.emplace(d.substr(0, equals), value).second)
      throw UsageError("--dim " + d + ": the size is given twice");
  }
  return values;
}

}  // namespace tessera::cli
