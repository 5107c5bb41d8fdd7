#include "runtime/trace.h"

#include <cstdio>

namespace tessera {
namespace {
std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}
}  // namespace

// "X": an event with a duration; times are microseconds. Those that overlap go to rows of their own.
std::string chrome_trace(std::span<const TimedCommand> commands) {
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  text += "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": \"tessera\"}}";
  std::vector<double> rows;
  for (const TimedCommand& c : commands) {
    size_t row = 0;
    while (row < rows.size() && rows[row] > c.begin) ++row;
    if (row == rows.size()) rows.push_back(0);
    rows[row] = c.end;
    char times[96];
    std::snprintf(times, sizeof times, "\"ts\": %.3f, \"dur\": %.3f", c.begin / 1000, (c.end - c.begin) / 1000);
    text += ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": " + std::to_string(row) + ", \"name\": " + quoted(c.name) +
            ", \"cat\": \"kernel\", " + times + ", \"args\": {\"bytes\": " + std::to_string(c.bytes) +
            ", \"line\": " + quoted(to_string(c.loc)) + (c.guarded ? ", \"guarded\": true}}" : "}}");
  }
  return text + "\n]}\n";
}

}  // namespace tessera
