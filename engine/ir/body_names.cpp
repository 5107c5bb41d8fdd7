#include "engine/ir/lexer.h"
#include "engine/ir/text.h"

namespace tessera::ir {

std::vector<std::string> body_names(std::string_view text) {
  Lexer lexer(text, "");
  Token t = lexer.next();
  while (t.kind != Token::Kind::end && !(t.first_on_line && t.is("body"))) t = lexer.next();
  std::vector<std::string> names;
  for (t = lexer.next(); t.kind != Token::Kind::end && !t.is(")"); t = lexer.next())
    if (t.kind == Token::Kind::value) names.emplace_back(t.text);
  return names;
}

}  // namespace tessera::ir
