#include "tests/parser/mutate.h"

#include <algorithm>
#include <cctype>

#include "engine/ir/kernel.h"

namespace tessera::parser {
namespace {
using fuzz::Random;

struct Span {
  size_t begin, end;
};
/// Words, values, numbers, and single characters of what remains.
std::vector<Span> tokens(const std::string& s) {
  std::vector<Span> out;
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (size_t i = 0; i < s.size();) {
    size_t n = 1;
    if (s[i] == ' ' || s[i] == '\n') {
      ++i;
      continue;
    }
    if (is_name(s[i]) || s[i] == '%')
      while (i + n < s.size() && is_name(s[i + n])) ++n;
    out.push_back({i, i + n});
    i += n;
  }
  return out;
}
std::vector<Span> lines(const std::string& s) {
  std::vector<Span> out;
  for (size_t i = 0; i < s.size();) {
    const size_t end = std::min(s.find('\n', i), s.size() - 1) + 1;
    out.push_back({i, end});
    i = end;
  }
  return out;
}
std::string part(const std::string& s, Span p) { return s.substr(p.begin, p.end - p.begin); }
bool is_number(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

const std::vector<std::string>& numbers() {
  static const std::vector<std::string> all{"0",
                                            "1",
                                            "2",
                                            "3",
                                            "4",
                                            "5",
                                            "7",
                                            "8",
                                            "9",
                                            "16",
                                            "31",
                                            "32",
                                            "33",
                                            "64",
                                            "127",
                                            "128",
                                            "255",
                                            "256",
                                            "1000",
                                            "4096",
                                            "65535",
                                            "65536",
                                            "2147483647",
                                            "2147483648",
                                            "4294967295",
                                            "4294967296",
                                            "1099511627776",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "18446744073709551616"};
  return all;
}
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> w{"tir",
                               "lane",
                               "kernel",
                               "@",
                               "grid",
                               "in",
                               "out",
                               "prefetch",
                               "scratch",
                               "body",
                               "block",
                               "whole",
                               "squeezed",
                               "element",
                               "bounded",
                               "halo",
                               "clamp",
                               "wrap",
                               "map",
                               "parallel",
                               "vmapped",
                               "any",
                               "vmem",
                               "smem",
                               "global",
                               "shared",
                               "ref",
                               "yield",
                               "case",
                               "else",
                               "do",
                               "to",
                               "step",
                               "carry",
                               "ds",
                               "mask",
                               "other",
                               "cdiv",
                               "floordiv",
                               "min",
                               "max",
                               "inf",
                               "nan",
                               "true",
                               "false",
                               "0x7fc00000",
                               "1.5",
                               "-0.0",
                               "1e400",
                               "-",
                               "?",
                               "(",
                               ")",
                               "[",
                               "]",
                               "{",
                               "}",
                               "<",
                               ">",
                               ",",
                               ":",
                               "=",
                               "\"",
                               "\\",
                               "//",
                               "\n",
                               "%0",
                               "n",
                               "m",
                               "metadata",
                               "cost_estimate",
                               "compiler_params",
                               "workgroup_size",
                               "num_units",
                               "extents",
                               "exact",
                               "triton",
                               "num_warps",
                               "flops"};
    for (int i = 0; i < ir::kNumOpcodes; ++i) w.emplace_back(ir::name(static_cast<ir::Opcode>(i)));
    for (int i = 0; i < kNumDTypes; ++i) w.emplace_back(name(static_cast<DType>(i)));
    for (int i = 0; i < ir::kNumAttrs; ++i) w.emplace_back(ir::name(static_cast<ir::Attr>(i)));
    return w;
  }();
  return all;
}
bool is_dtype(const std::string& s) { return dtype_from_name(s).has_value(); }

std::string other_number(const std::string& old, Random& random) {
  if (random.chance(0.4) && old.size() < 9)
    return std::to_string(std::max(0ll, std::stoll(old) + (random.chance(0.5) ? 1 : -1)));
  return (random.chance(0.1) ? "-" : "") + numbers()[random.below(random.chance(0.7) ? 16 : numbers().size())];
}

void of_tokens(std::string& s, const std::vector<std::string>& others, Random& random) {
  const std::vector<Span> all = tokens(s);
  if (all.empty()) return;
  const Span at = all[random.below(all.size())];
  const std::string old = part(s, at);
  const std::string& from = random.chance(0.5) ? s : random.pick(others);
  const std::vector<Span> theirs = tokens(from);
  switch (random.below(12)) {
    case 0: s.erase(at.begin, at.end - at.begin); return;
    case 1: s.insert(at.begin, random.pick(words()) + " "); return;
    case 2: s.replace(at.begin, at.end - at.begin, random.pick(words())); return;
    case 3: s.insert(at.begin, old + " "); return;
    default: break;
  }
  if (is_number(old)) {
    s.replace(at.begin, at.end - at.begin, other_number(old, random));
    return;
  }
  // Another token of the same kind: a value for a value, a dtype for a dtype.
  std::vector<std::string> alike;
  for (const Span& t : theirs)
    if (const std::string o = part(from, t);
        o != old && (o[0] == '%') == (old[0] == '%') && is_dtype(o) == is_dtype(old) &&
        is_number(o) == is_number(old) &&
        std::isalpha(static_cast<unsigned char>(o[0])) == std::isalpha(static_cast<unsigned char>(old[0])))
      alike.push_back(o);
  if (!alike.empty()) s.replace(at.begin, at.end - at.begin, random.pick(alike));
}

/// Every place of one number or dtype becomes another: shapes change and still fit.
void everywhere(std::string& s, Random& random) {
  std::vector<std::string> kinds;
  for (const Span& t : tokens(s))
    if (const std::string w = part(s, t); is_dtype(w) || is_number(w)) kinds.push_back(w);
  if (kinds.empty()) return;
  const std::string old = random.pick(kinds);
  const std::string now =
      is_number(old) ? other_number(old, random) : std::string(name(static_cast<DType>(random.below(kNumDTypes))));
  std::string out;
  size_t done = 0;
  for (const Span& t : tokens(s)) {
    if (part(s, t) != old) continue;
    out += s.substr(done, t.begin - done) + now;
    done = t.end;
  }
  s = out + s.substr(done);
}

/// Types of results that infer() gives are left out, so that other changes may carry through.
void without_types(std::string& s) {
  std::string out;
  for (const Span& l : lines(s)) {
    std::string line = part(s, l);
    const size_t colon = line.rfind(" : ");
    const bool needed = line.find("= constant") != std::string::npos || line.find("= iota") != std::string::npos ||
                        line.find("= convert") != std::string::npos;
    if (colon != std::string::npos && !needed && line.find("= ") < colon) line = line.substr(0, colon) + "\n";
    out += line;
  }
  s = out;
}

void of_lines(std::string& s, const std::vector<std::string>& others, Random& random) {
  const std::vector<Span> all = lines(s);
  if (all.size() < 3) return;
  const Span at = all[random.below(all.size())], to = all[random.below(all.size())];
  const std::string line = part(s, at);
  switch (random.below(4)) {
    case 0: s.erase(at.begin, at.end - at.begin); return;
    case 1: s.insert(to.begin, line); return;
    case 2: {
      const std::string& from = random.pick(others);
      const std::vector<Span> theirs = lines(from);
      if (!theirs.empty()) s.insert(to.begin, part(from, theirs[random.below(theirs.size())]));
      return;
    }
    default:
      if (at.begin < to.begin) {
        const std::string second = part(s, to);
        s.replace(to.begin, to.end - to.begin, line);
        s.replace(at.begin, at.end - at.begin, second);
      }
  }
}

void of_bytes(std::string& s, Random& random) {
  if (s.empty()) return;
  const size_t at = random.below(s.size()), n = std::min(random.below(12) + 1, s.size() - at);
  switch (random.below(5)) {
    case 0: s[at] = static_cast<char>(random.below(256)); return;
    case 1: s.insert(at, 1, static_cast<char>(random.below(256))); return;
    case 2: s.erase(at, n); return;
    case 3: s.insert(random.below(s.size()), s.substr(at, n)); return;
    default: s.resize(at); return;
  }
}
}  // namespace

std::string mutate(std::string s, const std::vector<std::string>& others, Random& random) {
  if (random.chance(0.5)) without_types(s);
  const int64_t n = random.chance(0.5) ? 1 : random.in(2, 4);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t what = random.in(0, 99);
    if (what < 40) of_tokens(s, others, random);
    else if (what < 70) everywhere(s, random);
    else if (what < 95) of_lines(s, others, random);
    else of_bytes(s, random);
  }
  return s;
}

}  // namespace tessera::parser
