#include "runtime/cli/reference/markdown.h"

#include <algorithm>
#include <cctype>
#include <functional>

namespace tessera::reference {
namespace {

std::vector<std::string> split_lines(std::string_view s) {
  std::vector<std::string> out;
  while (!s.empty()) {
    const size_t end = std::min(s.find('\n'), s.size());
    out.emplace_back(s.substr(0, end));
    s.remove_prefix(std::min(end + 1, s.size()));
  }
  return out;
}
std::string trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return std::string(s);
}
bool is_fence(const std::string& line) { return trimmed(line).starts_with("```"); }
size_t heading_level(const std::string& line) {
  const size_t n = std::min(line.find_first_not_of('#'), line.size());
  return n > 0 && n < line.size() && line[n] == ' ' ? n : 0;
}
/// Where an item's text begins: behind "* " or "12. ", or 0.
size_t item(const std::string& line, bool& numbered) {
  const std::string s = trimmed(line);
  const size_t indent = line.find(s.empty() ? ' ' : s[0]);
  numbered = false;
  if (s.starts_with("* ") || s.starts_with("- ")) return indent + 2;
  size_t n = 0;
  while (n < s.size() && std::isdigit(static_cast<unsigned char>(s[n]))) ++n;
  if (n == 0 || n > 3 || !s.substr(n).starts_with(". ")) return 0;
  numbered = true;
  return indent + n + 2;
}
/// Cells of "| a | b \| c |".
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') cell += line[++i];
    else if (line[i] == '|') out.push_back(trimmed(cell)), cell.clear();
    else cell += line[i];
  }
  return out;
}

class Writer {
 public:
  explicit Writer(const std::function<std::string(std::string)>& link) : link_(link) {}

  std::string blocks(const std::vector<std::string>& lines) {
    std::string out, paragraph;
    const auto flush = [&] {
      if (!paragraph.empty()) out += "<p>" + inline_text(paragraph) + "</p>\n";
      paragraph.clear();
    };
    for (size_t i = 0; i < lines.size(); ++i) {
      bool numbered = false;
      if (is_fence(lines[i])) {
        flush();
        std::string code;
        for (++i; i < lines.size() && !is_fence(lines[i]); ++i) code += lines[i] + "\n";
        out += "<pre><code>" + escape(code) + "</code></pre>\n";
      } else if (const size_t level = heading_level(lines[i])) {
        flush();
        const std::string text = lines[i].substr(level + 1), tag = "h" + std::to_string(level);
        out += "<" + tag + " id=\"" + anchor(text) + "\">" + inline_text(text) + "</" + tag + ">\n";
      } else if (lines[i].starts_with("|")) {
        flush();
        out += "<table>\n";
        for (size_t row = 0; i < lines.size() && lines[i].starts_with("|"); ++i, ++row) {
          if (row == 1) continue;  // |---|
          out += "<tr>";
          for (const std::string& c : cells(lines[i]))
            out += (row ? "<td>" : "<th>") + inline_text(c) + (row ? "</td>" : "</th>");
          out += "</tr>\n";
        }
        --i;
        out += "</table>\n";
      } else if (const size_t text = item(lines[i], numbered)) {
        flush();
        // An item goes on while lines are indented by as much; more items of the same kind make a list.
        const bool list_numbered = numbered;
        const size_t indent = lines[i].find_first_not_of(' ');
        out += list_numbered ? "<ol>\n" : "<ul>\n";
        for (size_t begins = text; i < lines.size();) {
          std::vector<std::string> inner{lines[i].substr(begins)};
          for (++i; i < lines.size() && (lines[i].empty() ? i + 1 < lines.size() && lines[i + 1].starts_with("  ")
                                                          : lines[i].find_first_not_of(' ') > indent);
               ++i)
            inner.push_back(lines[i].substr(std::min(
                lines[i].find_first_not_of(' ') == std::string::npos ? 0 : lines[i].find_first_not_of(' '), begins)));
          out += "<li>" + blocks(inner) + "</li>\n";
          size_t next = i < lines.size() ? item(lines[i], numbered) : 0;
          if (!next || numbered != list_numbered || lines[i].find_first_not_of(' ') != indent) break;
          begins = next;
        }
        --i;
        out += list_numbered ? "</ol>\n" : "</ul>\n";
      } else if (trimmed(lines[i]).empty()) {
        flush();
      } else {
        paragraph += (paragraph.empty() ? "" : "\n") + trimmed(lines[i]);
      }
    }
    flush();
    return out;
  }

 private:
  std::string inline_text(std::string_view s) {
    std::string out;
    for (size_t i = 0; i < s.size();) {
      if (s[i] == '`') {
        const size_t ticks =
            s.find_first_not_of('`', i) == std::string_view::npos ? 1 : s.find_first_not_of('`', i) - i;
        const size_t end = s.find(s.substr(i, ticks), i + ticks);
        if (end != std::string_view::npos) {
          out += "<code>" + escape(s.substr(i + ticks, end - i - ticks)) + "</code>";
          i = end + ticks;
          continue;
        }
      }
      const bool image = s.substr(i).starts_with("![");
      if (image || s[i] == '[') {
        const size_t open = i + (image ? 2 : 1), close = closing(s, open), target = close + 1;
        if (close != std::string_view::npos && target < s.size() && s[target] == '(') {
          const size_t end = s.find(')', target);
          if (end != std::string_view::npos) {
            const std::string to = escape(link_(std::string(s.substr(target + 1, end - target - 1))));
            const std::string_view text = s.substr(open, close - open);
            out += image ? "<img src=\"" + to + "\" alt=\"" + escape(text) + "\">"
                         : "<a href=\"" + to + "\">" + inline_text(text) + "</a>";
            i = end + 1;
            continue;
          }
        }
      }
      if (s[i] == '*') {
        const std::string_view mark = s.substr(i).starts_with("**") ? "**" : "*";
        const size_t end = s.find(mark, i + mark.size());
        const bool opens = i + mark.size() < s.size() && s[i + mark.size()] != ' ';
        if (end != std::string_view::npos && opens && s[end - 1] != ' ') {
          const std::string tag = mark.size() == 2 ? "strong" : "em";
          out += "<" + tag + ">" + inline_text(s.substr(i + mark.size(), end - i - mark.size())) + "</" + tag + ">";
          i = end + mark.size();
          continue;
        }
      }
      out += escape(s.substr(i++, 1));
    }
    return out;
  }
  static size_t closing(std::string_view s, size_t at) {
    for (int depth = 1; at < s.size(); ++at) {
      depth += s[at] == '[' ? 1 : s[at] == ']' ? -1 : 0;
      if (depth == 0) return at;
    }
    return std::string_view::npos;
  }
  const std::function<std::string(std::string)>& link_;
};
}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string anchor(std::string_view heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ') out += '-';
  }
  return out;
}

std::string to_html(std::string_view markdown, const std::function<std::string(std::string)>& link) {
  return Writer(link).blocks(split_lines(markdown));
}

std::vector<CodeBlock> code_blocks(std::string_view markdown) {
  std::vector<CodeBlock> out;
  std::string heading;
  const std::vector<std::string> lines = split_lines(markdown);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (const size_t level = heading_level(lines[i])) heading = lines[i].substr(level + 1);
    if (!is_fence(lines[i])) continue;
    CodeBlock b{heading, trimmed(lines[i]).substr(3), "", static_cast<int>(i) + 2};
    for (++i; i < lines.size() && !is_fence(lines[i]); ++i) b.text += lines[i] + "\n";
    out.push_back(std::move(b));
  }
  return out;
}

}  // namespace tessera::reference
