#include "tests/ptx/tokens.h"

#include <algorithm>
#include <cctype>

namespace tessera::ptx {

namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

/// The end of a word: names, joined by dots and double colons.
size_t word_end(const std::string& s, size_t at) {
  size_t i = at + 1;
  while (i < s.size()) {
    if (in_word(s[i])) {
      ++i;
    } else if (s[i] == '.' && i + 1 < s.size() && in_word(s[i + 1])) {
      ++i;
    } else if (s[i] == ':' && i + 2 < s.size() && s[i + 1] == ':' && in_word(s[i + 2])) {
      i += 2;
    } else {
      break;
    }
  }
  return i;
}

size_t number_end(const std::string& s, size_t at) {
  size_t i = at;
  const bool hex = s[at] == '0' && i + 1 < s.size() && !std::isdigit(static_cast<unsigned char>(s[i + 1])) &&
                   s[i + 1] != '.' && s[i + 1] != 'e';
  while (i < s.size()) {
    const bool sign = (s[i] == '-' || s[i] == '+') && i > at && (s[i - 1] == 'e' || s[i - 1] == 'E') && !hex;
    if (!std::isalnum(static_cast<unsigned char>(s[i])) && s[i] != '.' && !sign) break;
    ++i;
  }
  return i;
}

}  // namespace

std::vector<Token> tokenise(const std::string& s) {
  std::vector<Token> all;
  uint32_t line = 1;
  for (size_t i = 0; i < s.size();) {
    const char c = s[i];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (s.compare(i, 2, "//") == 0) {
      i = std::min(s.find('\n', i), s.size());
    } else if (s.compare(i, 2, "/*") == 0) {
      const size_t end = s.find("*/", i + 2);
      if (end == std::string::npos) throw Error(line, "a comment does not end");
      for (; i < end + 2; ++i) line += s[i] == '\n';
    } else if (c == '"') {
      const size_t end = s.find('"', i + 1);
      if (end == std::string::npos) throw Error(line, "a string does not end");
      all.push_back({Token::string, s.substr(i + 1, end - i - 1), line, i});
      i = end + 1;
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      const size_t end = number_end(s, i);
      all.push_back({Token::number, s.substr(i, end - i), line, i});
      i = end;
    } else if (in_word(c) && !(c == '%' && (i + 1 == s.size() || !in_word(s[i + 1]) ||
                                            std::isdigit(static_cast<unsigned char>(s[i + 1]))))) {
      const size_t end = word_end(s, i);
      all.push_back({Token::word, s.substr(i, end - i), line, i});
      i = end;
    } else if (c == '.' && i + 1 < s.size() && in_word(s[i + 1])) {
      const size_t end = word_end(s, i);
      all.push_back({Token::word, s.substr(i, end - i), line, i});
      i = end;
    } else if (s.compare(i, 2, "<<") == 0 || s.compare(i, 2, ">>") == 0) {
      all.push_back({Token::mark, s.substr(i, 2), line, i});
      i += 2;
    } else {
      if (std::string("{}()[]<>,;:+-*/%&|^~!@=").find(c) == std::string::npos)
        throw Error(line, "the character '" + std::string(1, c) + "' is not known");
      all.push_back({Token::mark, std::string(1, c), line, i});
      ++i;
    }
  }
  return all;
}

}  // namespace tessera::ptx
