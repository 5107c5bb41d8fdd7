#include "engine/base/print_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "engine/base/number.h"

namespace tessera {
namespace {

std::string printed(const char* format, int precision, double x) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, precision, x);
  return buffer;
}

/// One float: the fewest digits that give it back, and where the point is: 0.d1d2d3... * 10^exponent.
struct Digits {
  bool negative = false;
  std::string digits;
  int exponent = 0;
  double magnitude = 0;
};
Digits shortest(DType t, uint64_t bits) {
  const double x = reference::to_double(t, bits);
  Digits d{std::signbit(x), "0", 1, std::fabs(x)};
  if (x == 0) return d;
  const uint64_t wanted = reference::from_double(t, d.magnitude);
  for (int n = 0; n < 17; ++n) {
    const std::string s = printed("%.*e", n, d.magnitude);
    if (n < 16 && reference::from_double(t, std::strtod(s.c_str(), nullptr)) != wanted) continue;
    const size_t e = s.find('e');
    d.exponent = std::atoi(s.c_str() + e + 1) + 1;
    d.digits.clear();
    for (char c : s.substr(0, e))
      if (c != '.') d.digits += c;
    break;
  }
  while (d.digits.size() > 1 && d.digits.back() == '0') d.digits.pop_back();
  return d;
}
std::string trimmed(std::string s) {  // zeros after the point, which stays
  while (s.back() == '0') s.pop_back();
  return s;
}
/// "-12.5", with at most `most` digits after the point, which is always there.
std::string positional(const Digits& d, int most) {
  std::string s;
  const int n = static_cast<int>(d.digits.size());
  if (n - d.exponent > most) {
    s = trimmed(printed("%.*f", most, d.magnitude));
  } else {
    for (int i = 0; i < std::max(d.exponent, 1); ++i)
      s += d.exponent > 0 && i < n ? d.digits[static_cast<size_t>(i)] : '0';
    s += '.';
    for (int i = d.exponent; i < 0; ++i) s += '0';
    for (int i = std::max(d.exponent, 0); i < n; ++i) s += d.digits[static_cast<size_t>(i)];
    if (d.digits == "0") s = "0.";
  }
  return (d.negative ? "-" : "") + s;
}
struct Scientific {
  std::string whole, fraction, exponent;
};  // "-1", "25", "+07"
Scientific scientific(const Digits& d, int most) {
  std::string digits = d.digits;
  int exponent = d.magnitude == 0 ? 0 : d.exponent - 1;
  if (static_cast<int>(digits.size()) > most + 1) {
    const std::string s = printed("%.*e", most, d.magnitude);
    const size_t e = s.find('e');
    exponent = std::atoi(s.c_str() + e + 1);
    digits.clear();
    for (char c : s.substr(0, e))
      if (c != '.') digits += c;
    while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  }
  std::string power = std::to_string(std::abs(exponent));
  if (power.size() < 2) power = "0" + power;
  return {(d.negative ? "-" : "") + digits.substr(0, 1), digits.substr(1), (exponent < 0 ? "-" : "+") + power};
}

std::string integer_text(DType t, uint64_t bits) {
  return is_signed_int(t)
             ? std::to_string(static_cast<int64_t>(bits << (64 - tessera::bits(t))) >> (64 - tessera::bits(t)))
             : std::to_string(bits);
}
std::string not_finite(double x) { return std::isnan(x) ? "nan" : x < 0 ? "-inf" : "inf"; }
/// Floats that NumPy itself knows; the others (bf16) have the text that ml_dtypes gives them.
bool numpy_float(DType t) { return t == DType::f16 || t == DType::f32 || t == DType::f64; }

std::string scalar_text(DType t, uint64_t bits) {
  if (t == DType::boolean) return bits ? "True" : "False";
  if (is_int(t)) return integer_text(t, bits);
  const double x = reference::to_double(t, bits);
  if (!std::isfinite(x)) return not_finite(x);
  if (!numpy_float(t)) return printed("%.*g", 6, x);
  const Digits d = shortest(t, bits);
  const double limit = t == DType::f16 ? 1e3 : t == DType::f32 ? 1e6 : 1e16;
  if (x == 0 || (d.magnitude < limit && d.magnitude >= 1e-4)) {
    const std::string s = positional(d, 400);
    return s.back() == '.' ? s + "0" : s;
  }
  const Scientific s = scientific(d, 400);
  return s.whole + (s.fraction.empty() ? "" : "." + s.fraction) + "e" + s.exponent;
}

/// How the elements of one array are written so that they line up.
class Elements {
 public:
  Elements(const Array& a, const std::vector<int64_t>& shown) : a_(a), t_(a.dtype()) {
    if (is_int(t_)) {
      for (int64_t i : shown) width_ = std::max(width_, integer_text(t_, a.element_bits(i)).size());
    } else if (numpy_float(t_)) {
      floats(shown);
    }
  }
  std::string text(int64_t i) const {
    const uint64_t bits = a_.element_bits(i);
    if (t_ == DType::boolean) return bits ? " True" : "False";
    if (is_int(t_)) return padded(integer_text(t_, bits), width_);
    if (!numpy_float(t_)) return scalar_text(t_, bits);
    const double x = reference::to_double(t_, bits);
    if (!std::isfinite(x)) return padded(not_finite(x), left_ + right_ + 1);
    const Digits d = shortest(t_, bits);
    if (exponents_) {
      // All digits, of the number itself rather than of its shortest text.
      std::string s = (d.negative ? "-" : "") + printed("%.*e", static_cast<int>(fraction_), d.magnitude);
      if (fraction_ == 0) s.insert(s.find('e'), ".");
      const size_t e = s.find('e');
      std::string power = s.substr(e + 2);
      while (power.size() < exponent_) power = "0" + power;
      return padded(s.substr(0, e + 2) + power, left_ + 1 + right_);
    }
    std::string s = positional(d, static_cast<int>(right_));
    const size_t point = s.find('.');
    s += std::string(right_ - (s.size() - point - 1), ' ');
    return padded(s, left_ + 1 + right_);
  }

 private:
  static std::string padded(const std::string& s, size_t width) {
    return std::string(width > s.size() ? width - s.size() : 0, ' ') + s;
  }
  void floats(const std::vector<int64_t>& shown) {
    const auto rounded = [&](double x) { return reference::to_double(t_, reference::from_double(t_, x)); };
    double most = 0, least = 0;
    std::vector<Digits> all;
    size_t odd = 0;  // width of what is not finite
    for (int64_t i : shown) {
      const double x = reference::to_double(t_, a_.element_bits(i)), m = std::fabs(x);
      if (!std::isfinite(x)) {
        odd = std::max(odd, not_finite(x).size());
        continue;
      }
      all.push_back(shortest(t_, a_.element_bits(i)));
      if (m == 0) continue;
      most = std::max(most, m);
      least = least == 0 ? m : std::min(least, m);
    }
    exponents_ = least != 0 && (most >= (t_ == DType::f16   ? 1e3
                                         : t_ == DType::f32 ? 1e6
                                                            : 1e8) ||
                                least < rounded(1e-4) || rounded(most / least) > 1000);
    for (const Digits& d : all) {
      if (exponents_) {
        const Scientific s = scientific(d, 8);
        left_ = std::max(left_, s.whole.size());
        fraction_ = std::max(fraction_, s.fraction.size());
        exponent_ = std::max(exponent_, s.exponent.size() - 1);
      } else {
        const std::string s = positional(d, 8);
        const size_t point = s.find('.');
        left_ = std::max(left_, point);
        right_ = std::max(right_, s.size() - point - 1);
      }
    }
    if (exponents_) right_ = exponent_ + 2 + fraction_;
    if (odd > left_ + right_ + 1) left_ = odd - right_ - 1;
  }

  const Array& a_;
  DType t_;
  size_t width_ = 0;  // integers
  bool exponents_ = false;
  size_t left_ = 0, right_ = 0, fraction_ = 0, exponent_ = 0;
};

constexpr int64_t kSummarised = 1000, kEdge = 3;
constexpr size_t kLine = 75;

class ArrayText {
 public:
  explicit ArrayText(const Array& a) : a_(a), summarised_(a.size() > kSummarised), elements_(a, shown()) {}
  std::string run() {
    std::vector<int64_t> index;
    return nested(index, " ", kLine);
  }

 private:
  // Along a dim: the first and last few, or all. `gap` is set where some are left out.
  std::vector<int64_t> along(int64_t n, bool& gap) const {
    std::vector<int64_t> at;
    gap = summarised_ && n > 2 * kEdge;
    for (int64_t i = 0; i < n; ++i)
      if (!gap || i < kEdge || i >= n - kEdge) at.push_back(i);
    return at;
  }
  std::vector<int64_t> shown() const {
    std::vector<int64_t> list{0};
    for (int64_t n : a_.shape()) {
      bool gap;
      std::vector<int64_t> next;
      for (int64_t base : list)
        for (int64_t i : along(n, gap)) next.push_back(base * n + i);
      list = std::move(next);
    }
    return list;
  }
  std::string nested(std::vector<int64_t>& index, const std::string& indent, size_t width) const {
    const Shape& shape = a_.shape();
    const size_t axis = index.size(), left = shape.size() - axis;
    if (left == 0) {
      int64_t element = 0;
      for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + index[d];
      return elements_.text(element);
    }
    bool gap;
    const std::vector<int64_t> at = along(shape[axis], gap);
    std::string s, line = indent;
    const auto extend = [&](const std::string& word) {
      if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
        while (!line.empty() && line.back() == ' ') line.pop_back();
        s += line + "\n";
        line = indent;
      }
      line += word;
    };
    for (size_t i = 0; i < at.size(); ++i) {
      const bool last = i + 1 == at.size();
      index.push_back(at[i]);
      const std::string word = nested(index, indent + " ", width - 1);
      index.pop_back();
      const bool skip = gap && i + 1 == static_cast<size_t>(kEdge);
      if (left == 1) {
        extend(word);
        if (!last) line += " ";
        if (skip) extend("..."), line += " ";
      } else {
        const std::string end(left - 1, '\n');
        s += indent + word + (last ? "" : end);
        if (skip) s += indent + "..." + end;
      }
    }
    if (left == 1) s += line;
    return "[" + s.substr(indent.size()) + "]";
  }

  const Array& a_;
  bool summarised_;
  Elements elements_;
};

struct Spec {
  char fill = ' ', align = 0, sign = '-', type = 0;
  int width = 0, precision = -1;
};
std::optional<Spec> parse_spec(std::string_view s) {
  Spec r;
  const auto align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t i = 0;
  if (s.size() > 1 && align(s[1])) r.fill = s[0], r.align = s[1], i = 2;
  else if (!s.empty() && align(s[0])) r.align = s[0], i = 1;
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) r.sign = s[i++];
  if (i < s.size() && s[i] == '0') {
    if (!r.align) r.fill = '0', r.align = '=';
    ++i;
  }
  const auto number = [&](int& n) {
    n = 0;
    const size_t from = i;
    for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) n = std::min(n * 10 + (s[i] - '0'), 100000);
    return i > from && n <= 200;
  };
  if (i < s.size() && s[i] >= '1' && s[i] <= '9' && !number(r.width)) return {};
  if (i < s.size() && s[i] == '.' && (++i, !number(r.precision) || r.precision > 60)) return {};
  if (i + 1 != s.size()) return {};
  r.type = s[i];
  return std::string_view("dboxXeEfgG%").find(r.type) == std::string_view::npos ? std::nullopt : std::optional(r);
}
std::string specified(const Spec& s, DType t, uint64_t bits) {
  bool negative = false;
  std::string digits;
  const bool integer = std::string_view("dboxX").find(s.type) != std::string_view::npos;
  if (integer) {
    uint64_t n = bits;
    if (is_signed_int(t)) {
      const int64_t v = static_cast<int64_t>(bits << (64 - tessera::bits(t))) >> (64 - tessera::bits(t));
      negative = v < 0;
      n = negative ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    }
    const uint64_t base = s.type == 'd' ? 10 : s.type == 'b' ? 2 : s.type == 'o' ? 8 : 16;
    const std::string_view alphabet = s.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do digits += alphabet[n % base];
    while (n /= base);
    std::reverse(digits.begin(), digits.end());
  } else {
    double x = t == DType::boolean ? static_cast<double>(bits) : reference::to_double(t, bits);
    negative = std::signbit(x) && !std::isnan(x);
    x = std::fabs(x);
    const char type = s.type == '%' ? 'f' : s.type;
    const char format[] = {'%', '.', '*', type, 0};
    digits = std::isfinite(x) ? printed(format, s.precision < 0 ? 6 : s.precision, s.type == '%' ? x * 100 : x)
             : type == 'E' || type == 'G' ? (std::isnan(x) ? "NAN" : "INF")
                                          : not_finite(x);
    if (s.type == '%') digits += '%';
  }
  const std::string sign = negative ? "-" : s.sign == '-' ? "" : std::string(1, s.sign);
  const size_t size = sign.size() + digits.size(),
               room = static_cast<size_t>(s.width) > size ? static_cast<size_t>(s.width) - size : 0;
  const auto fill = [&](size_t n) { return std::string(n, s.fill); };
  switch (s.align ? s.align : '>') {
    case '<': return sign + digits + fill(room);
    case '^': return fill(room / 2) + sign + digits + fill(room - room / 2);
    case '=': return sign + fill(room) + digits;
    default: return fill(room) + sign + digits;
  }
}
}  // namespace

std::vector<FormatPiece> cut_format(std::string_view format, std::string& problem) {
  std::vector<FormatPiece> pieces(1);
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      pieces.back().text += c;
      ++i;
    } else if (c == '}') {
      problem = "the format has a '}' without its '{'; a brace by itself is written twice";
      return {};
    } else if (c == '{') {
      const size_t end = format.find('}', i);
      if (end == std::string_view::npos || format.substr(i + 1, end - i - 1).find('{') != std::string_view::npos) {
        problem = "the format has a '{' without its '}'; a brace by itself is written twice";
        return {};
      }
      const std::string_view inside = format.substr(i + 1, end - i - 1);
      const size_t colon = std::min(inside.find(':'), inside.size());
      pieces.back().has_field = true;
      pieces.back().field = inside.substr(0, colon);
      if (colon < inside.size()) pieces.back().spec = inside.substr(colon + 1);
      pieces.emplace_back();
      i = end;
    } else {
      pieces.back().text += c;
    }
  }
  return pieces;
}

std::vector<int> placeholders(const std::vector<FormatPiece>& pieces, const std::vector<std::string>& names,
                              std::string& problem) {
  std::vector<int> at;
  bool counted = false, numbered = false;
  for (const FormatPiece& p : pieces) {
    if (!p.has_field) continue;
    if (p.field.empty()) {
      counted = true;
      at.push_back(static_cast<int>(at.size()));
    } else if (std::all_of(p.field.begin(), p.field.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      numbered = true;
      at.push_back(p.field.size() > 4 ? 9999 : std::atoi(p.field.c_str()));
    } else {
      const auto it = std::find(names.begin(), names.end(), p.field);
      if (it == names.end()) {
        problem = "there is no argument named " + p.field;
        return {};
      }
      at.push_back(static_cast<int>(it - names.begin()));
    }
  }
  if (counted && (numbered || std::any_of(pieces.begin(), pieces.end(),
                                          [](const FormatPiece& p) { return p.has_field && !p.field.empty(); }))) {
    // As in Python, names may stand beside either kind of number; "{}" counts only itself.
    if (numbered) {
      problem = "the format has placeholders with a number and placeholders without";
      return {};
    }
    int next = 0;
    size_t i = 0;
    for (const FormatPiece& p : pieces)
      if (p.has_field && (p.field.empty() ? (at[i] = next++, true) : true)) ++i;
  }
  return at;
}

/// "f32[2, 3]"
static std::string typed(DType dtype, const Shape& shape) {
  std::string dims;
  for (int64_t d : shape) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  return std::string(name(dtype)) + "[" + dims + "]";
}
std::string format_problem(std::string_view format, const std::vector<std::pair<DType, Shape>>& arguments) {
  std::string problem;
  const std::vector<FormatPiece> pieces = cut_format(format, problem);
  const std::vector<int> at = problem.empty() ? placeholders(pieces, {}, problem) : std::vector<int>{};
  if (!problem.empty()) return problem;
  const auto n = static_cast<int>(arguments.size());
  const int wanted = at.empty() ? 0 : *std::max_element(at.begin(), at.end()) + 1;
  if (wanted > n)
    return "the format takes " + std::to_string(wanted) + (wanted == 1 ? " argument" : " arguments") + " but there " +
           (n == 1 ? "is " : "are ") + std::to_string(n);
  for (int i = 0; i < n; ++i)
    if (std::find(at.begin(), at.end(), i) == at.end())
      return "argument " + std::to_string(i) + " is not used by the format";
  size_t next = 0;
  for (const FormatPiece& p : pieces) {
    if (!p.has_field) continue;
    const int i = at[next++];
    const auto& [dtype, shape] = arguments[static_cast<size_t>(i)];
    if (p.spec.empty()) continue;
    if (!shape.empty())
      return "\":" + p.spec + "\" says how a scalar is written but argument " + std::to_string(i) + " is " +
             typed(dtype, shape);
    if (!good_spec(p.spec, dtype)) return "\":" + p.spec + "\" is no way to write " + std::string(name(dtype));
  }
  return "";
}

std::string program_text(const std::vector<std::string>& axis_names, const int64_t* program) {
  std::string s = "(";
  for (size_t a = 0; a < axis_names.size(); ++a)
    s += (a ? ", " : "") + (axis_names[a].empty() ? "" : axis_names[a] + " = ") + std::to_string(program[a]);
  return s + ")";
}

KernelError check_failed(const std::string& kernel, const std::string& program, const std::string& text, Loc loc) {
  return KernelError(kernel + ": check failed in program " + program + ": " + text, loc);
}

void print_line(const PrintCallback& print, const std::string& line) {
  if (print) return print(line);
  const std::string with_end = line + "\n";
  std::fwrite(with_end.data(), 1, with_end.size(), stdout);
  std::fflush(stdout);
}

bool good_spec(std::string_view spec, DType t) {
  if (spec.empty()) return true;
  const auto s = parse_spec(spec);
  if (!s) return false;
  const bool integer = std::string_view("dboxX").find(s->type) != std::string_view::npos;
  return integer ? !is_float(t) && s->precision < 0 : true;
}

std::string format_text(std::string_view format, const std::vector<Array>& arguments) {
  std::string problem, out;
  const std::vector<FormatPiece> pieces = cut_format(format, problem);
  const std::vector<int> at = placeholders(pieces, {}, problem);
  size_t next = 0;
  for (const FormatPiece& p : pieces) {
    out += p.text;
    if (!p.has_field) continue;
    const size_t i = next < at.size() ? static_cast<size_t>(at[next++]) : arguments.size();
    if (i >= arguments.size()) continue;  // the verifier does not let this happen
    const Array& a = arguments[i];
    const auto spec = a.shape().empty() && !p.spec.empty() ? parse_spec(p.spec) : std::nullopt;
    out += spec ? specified(*spec, a.dtype(), a.element_bits(0)) : to_text(a);
  }
  return out;
}

std::string to_text(const Array& a) {
  if (a.shape().empty()) return scalar_text(a.dtype(), a.element_bits(0));
  if (a.size() == 0) return "[]";
  return ArrayText(a).run();
}

}  // namespace tessera
