#include "engine/ir/lexer.h"

#include <algorithm>

namespace tessera::ir {
namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_letter(c) || is_digit(c); }

/// Characters of the number that `s` begins with: -12, 1.5e-7, 0x7fc0, -inf; 0 if it begins with none.
size_t number_length(std::string_view s) {
  size_t n = s.starts_with('-') ? 1 : 0;
  if (n && (s.substr(1).starts_with("inf") || s.substr(1).starts_with("nan"))) return 4;
  if (n >= s.size() || !is_digit(s[n])) return 0;
  if (s.substr(n).starts_with("0x")) {
    n += 2;
    while (n < s.size() && is_name(s[n])) ++n;
    return n;
  }
  const auto digits = [&] {
    while (n < s.size() && is_digit(s[n])) ++n;
  };
  digits();
  if (n < s.size() && s[n] == '.') ++n, digits();
  if (n < s.size() && (s[n] == 'e' || s[n] == 'E')) {
    const size_t mantissa = n++;
    if (n < s.size() && (s[n] == '+' || s[n] == '-')) ++n;
    if (n < s.size() && is_digit(s[n])) digits();
    else n = mantissa;
  }
  return n;
}
}  // namespace

void Lexer::comment(std::string_view body) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!body.empty() && blank(body.front())) body.remove_prefix(1);
  while (!body.empty() && blank(body.back())) body.remove_suffix(1);
  const size_t colon = body.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return;
  const std::string_view digits = body.substr(colon + 1);
  if (digits.empty() || digits.size() > 9 || !std::all_of(digits.begin(), digits.end(), is_digit)) return;
  uint32_t line = 0;
  for (char c : digits) line = line * 10 + static_cast<uint32_t>(c - '0');
  locations_[line_] = {intern_file(body.substr(0, colon)), line};
}

Token Lexer::next() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      first_ = true;
    } else if (text_.substr(at_).starts_with("//")) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      comment(text_.substr(at_ + 2, end - at_ - 2));
      at_ = end - 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
  }
  Token t;
  t.offset = at_;
  t.line = line_;
  t.first_on_line = first_;
  first_ = false;
  const std::string_view s = text_.substr(at_);
  if (s.empty()) {
    t.first_on_line = true;
    return t;
  }
  size_t n = 1;
  if (is_letter(s[0])) {
    while (n < s.size() && is_name(s[n])) ++n;
    t.kind = Token::Kind::word;
    t.text = s.substr(0, n);
  } else if (s[0] == '%' && s.size() > 1 && is_name(s[1])) {
    while (n < s.size() && (is_name(s[n]) || s[n] == '.')) ++n;
    t.kind = Token::Kind::value;
    t.text = s.substr(1, n - 1);
  } else if (const size_t digits = number_length(s)) {
    n = digits;
    t.kind = Token::Kind::number;
    t.text = s.substr(0, n);
  } else {
    t.kind = Token::Kind::other;
    if (s[0] == '"') {
      while (n < s.size() && s[n] != '"' && s[n] != '\n')
        n += s[n] == '\\' && n + 1 < s.size() && s[n + 1] != '\n' ? 2 : 1;
      if (n < s.size() && s[n] == '"') {
        ++n;
        t.kind = Token::Kind::string;
        t.text = s.substr(1, n - 2);
      } else {
        n = 1;
      }
    }
    if (t.kind == Token::Kind::other) t.text = s.substr(0, n);
  }
  at_ += n;
  return t;
}

Loc Lexer::location(uint32_t line) const {
  const auto it = locations_.find(line);
  return it != locations_.end() ? it->second : Loc{interned_, line};
}

std::string Lexer::shown(const Token& t) const {
  if (t.kind == Token::Kind::end) return "the end of the file";
  if (t.kind == Token::Kind::other && (t.text[0] < ' ' || t.text[0] > '~'))
    return "the byte " + std::to_string(static_cast<unsigned char>(t.text[0]));
  const size_t around = t.kind == Token::Kind::value ? 1 : t.kind == Token::Kind::string ? 2 : 0;
  return "'" + std::string(rest(t.offset).substr(0, std::min<size_t>(t.text.size() + around, 40))) + "'";
}

void Lexer::fail(size_t offset, const std::string& what, const std::string& more) const {
  offset = std::min(offset, text_.size());
  const std::string_view before = text_.substr(0, offset);
  const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const size_t end = std::min(text_.find('\n', offset), text_.size());
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  constexpr size_t kWidth = 60;  // shown before and after the caret of an overlong line
  const size_t from = offset - begin > kWidth * 2 ? offset - kWidth : begin, to = std::min(end, offset + kWidth * 2);
  std::string shown, caret;
  for (size_t i = from; i < to; ++i) shown += static_cast<unsigned char>(text_[i]) < ' ' ? ' ' : text_[i];
  caret.assign(offset - from, ' ');
  while (!shown.empty() && shown.back() == ' ') shown.pop_back();
  const std::string place = file_ + ":" + std::to_string(line) + ":" + std::to_string(offset - begin + 1);
  throw TraceError(place + ": " + what + (shown.empty() ? "" : "\n  " + shown + "\n  " + caret + "^") + more);
}

void Lexer::fail(size_t offset, const Error& error, const std::string& kernel) const {
  std::string what = error.what();
  const size_t end = std::min(what.find('\n'), what.size());
  std::string more = what.substr(end);
  what.resize(end);
  if (what.starts_with(kernel + ": ")) what.erase(0, kernel.size() + 2);
  const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
  const std::string here =
      "\n  at " + to_string(Loc{interned_, static_cast<uint32_t>(std::count(before.begin(), before.end(), '\n') + 1)});
  if (more == here || more.starts_with(here + "\n")) more.erase(0, here.size());
  fail(offset, what, more);
}

}  // namespace tessera::ir
