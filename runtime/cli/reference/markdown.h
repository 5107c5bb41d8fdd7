// Markdown to HTML, for the subset that this repository's pages use: headings, paragraphs, lists, tables, fenced code,
// inline code, emphasis, links and images. It also extracts the fenced code, for tests that run it.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::reference {

std::string escape(std::string_view text);  ///< & < > " for HTML
/// The anchor of a heading: "Scalar prefetch" is scalar-prefetch.
std::string anchor(std::string_view heading);
/// `link` turns the targets of links and images.
std::string to_html(std::string_view markdown, const std::function<std::string(std::string)>& link);

struct CodeBlock {
  std::string heading;   // the nearest one before it
  std::string language;  // what stands behind the fence
  std::string text;
  int line;  // of its first line
};
std::vector<CodeBlock> code_blocks(std::string_view markdown);

}  // namespace tessera::reference
