// The tokens of the text form, one at a time, and its error layout. Internal to parse.cpp.
// Any bytes are tokens: unknown ones become Token::other, so that only a token that is read can be an error.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/base/error.h"

namespace tessera::ir {

struct Token {
  enum class Kind : uint8_t { end, word, value, number, string, other };  // value: %name; other: one character
  Kind kind = Kind::end;
  std::string_view text;  // value: without the %; string: between the quotes, escapes as written
  size_t offset = 0;      // of its first character
  uint32_t line = 1;
  bool first_on_line = false;
  bool is(std::string_view s) const { return (kind == Kind::word || kind == Kind::other) && text == s; }
};

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file) : text_(text), file_(file), interned_(intern_file(file)) {}
  Token next();
  /// Goes on reading at `offset`, which lies on the current line.
  void seek(size_t offset) {
    at_ = offset;
    first_ = false;
  }
  std::string_view rest(size_t offset) const { return text_.substr(offset); }
  /// A token for messages: its text between quotes, at most 40 characters of it; a byte by its number; or the end.
  std::string shown(const Token& t) const;
  /// What a trailing `// file:line` comment on that line said, else the line itself. Lines up to the last token's are
  /// known.
  Loc location(uint32_t line) const;
  /// Throws TraceError "FILE:LINE:COLUMN: what", the line, a caret under the column, and `more`.
  [[noreturn]] void fail(size_t offset, const std::string& what, const std::string& more = {}) const;
  /// The same for what infer() and others threw about `kernel`, in their layout: "KERNEL: what", "  at LOC", "  note:
  /// NOTE".
  [[noreturn]] void fail(size_t offset, const Error& error, const std::string& kernel) const;

 private:
  void comment(std::string_view body);
  std::string_view text_;
  std::string file_;
  const char* interned_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool first_ = true;
  std::unordered_map<uint32_t, Loc> locations_;
};

}  // namespace tessera::ir
