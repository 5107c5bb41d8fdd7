// The HTML reference that the build makes: every op and documented header is in it, tags are closed, and no link leads
// nowhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "engine/ir/kernel.h"
#include "runtime/cli/reference/markdown.h"

namespace reference_test {
using namespace tessera;
namespace fs = std::filesystem;

namespace {
std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::vector<std::string> values(const std::string& html, const std::string& attribute) {
  std::vector<std::string> out;
  const std::string start = " " + attribute + "=\"";
  for (size_t at = 0; (at = html.find(start, at)) != std::string::npos;) {
    at += start.size();
    out.push_back(html.substr(at, html.find('"', at) - at));
  }
  return out;
}
/// The tags that are open where they should not be; empty if all is well.
std::string unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = html.find('<', at)) != std::string::npos; ++at) {
    const size_t name = at + 1, end = html.find_first_of(" >", name);
    const std::string tag = html.substr(name, end - name);
    if (tag == "!DOCTYPE" || tag == "meta" || tag == "img") continue;
    if (tag[0] != '/') open.push_back(tag);
    else if (open.empty() || open.back() != tag.substr(1))
      return tag + " in " + html.substr(at < 60 ? 0 : at - 60, 120);
    else open.pop_back();
  }
  return open.empty() ? "" : open.back();
}
std::string same(std::string s) { return s; }
}  // namespace

TEST_CASE("reference: whole, closed and linked") {
  const fs::path folder = TESSERA_REFERENCE;
  std::map<std::string, std::string> pages;
  for (const auto& e : fs::directory_iterator(folder))
    if (e.path().extension() == ".html") pages[e.path().filename().string()] = read(e.path());
  REQUIRE(pages.contains("index.html"));
  REQUIRE(pages.contains("api.html"));
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const std::string row = "<tr id=\"" + std::string(ir::name(static_cast<ir::Opcode>(i))) + "\">";
    const size_t at = pages["ops.html"].find(row);
    CHECK_MESSAGE(at != std::string::npos, row);
    CHECK_MESSAGE(pages["ops.html"].substr(at, pages["ops.html"].find("</tr>", at) - at).find("<code></code>") ==
                      std::string::npos,
                  "no example: ", row);
  }
  for (const char* header :
       {"engine/call/pallas_call.h", "engine/front/ops.h", "runtime/device_array.h", "codegen/compile.h"}) {
    CAPTURE(header);
    CHECK(pages["api.html"].find("<h2 id=\"" + reference::anchor(header) + "\">") != std::string::npos);
  }
  CHECK(pages["api.html"].find("<code>Value expm1(Operand x);</code></pre></dt>\n<dd>e^x - 1, accurate near 0</dd>") !=
        std::string::npos);
  for (const auto& entry : pages) {
    const std::string &name = entry.first, &html = entry.second;
    CAPTURE(name);
    CHECK(unbalanced(html) == "");
    for (const char* attribute : {"href", "src"})
      for (const std::string& to : values(html, attribute)) {
        CAPTURE(to);
        const size_t hash = std::min(to.find('#'), to.size());
        const std::string file = to.substr(0, hash).empty() ? name : to.substr(0, hash);
        CHECK(fs::exists(folder / file));
        if (hash == to.size()) continue;
        const std::vector<std::string> ids = values(pages[file], "id");
        CHECK(std::find(ids.begin(), ids.end(), to.substr(hash + 1)) != ids.end());
      }
  }
}

TEST_CASE("reference: Markdown") {
  using reference::to_html;
  CHECK(to_html("# A b\n\ntext with `a < b`\nand *this*, **that**, 2 * 3 * 4\n", same) ==
        "<h1 id=\"a-b\">A b</h1>\n<p>text with <code>a &lt; b</code>\nand <em>this</em>, <strong>that</strong>, 2 * 3 "
        "* 4</p>\n");
  CHECK(to_html("```cpp\nint a[2]; // *x*\n```\n", same) == "<pre><code>int a[2]; // *x*\n</code></pre>\n");
  CHECK(to_html("* one\n  more\n* two\n\nend\n", same) ==
        "<ul>\n<li><p>one\nmore</p>\n</li>\n<li><p>two</p>\n</li>\n</ul>\n<p>end</p>\n");
  CHECK(to_html("1. one\n   ```\n   x\n   ```\n2. two\n", same) ==
        "<ol>\n<li><p>one</p>\n<pre><code>x\n</code></pre>\n</li>\n<li><p>two</p>\n</li>\n</ol>\n");
  CHECK(to_html("| a | b |\n|---|---|\n| `x \\| y` | [z](q.md) |\n", [](const std::string& s) { return s + "!"; }) ==
        "<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td><code>x | y</code></td><td><a "
        "href=\"q.md!\">z</a></td></tr>\n</table>\n");
  const auto blocks = reference::code_blocks("# A\n## B\n```cpp\nx\n```\ntext\n```python\ny\nz\n```\n");
  REQUIRE(blocks.size() == 2);
  CHECK(blocks[0].heading == "B");
  CHECK(blocks[0].line == 4);
  CHECK(blocks[1].language == "python");
  CHECK(blocks[1].text == "y\nz\n");
}

}  // namespace reference_test
