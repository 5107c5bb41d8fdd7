// samples/limits.md: the numbers of the language are the code's.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "engine/front.h"
#include "engine/ir/text.h"

namespace limits_test {

namespace ts = tessera;
using ts::all, ts::Ref;

namespace {
bool page_says(const std::string& line) {
  static const std::string text = [] {
    std::ifstream in("samples/limits.md");
    return std::string{std::istreambuf_iterator<char>(in), {}};
  }();
  return text.find(line) != std::string::npos;
}
std::string repeated(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}
/// Whether a block of this shape may be declared.
bool fits(const ts::Shape& shape) {
  std::string sizes;
  for (const int64_t n : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(n);
  try {
    ts::ir::parse("tir 1\nkernel @k\nin f32[" + sizes + "] block (" + sizes + ")\nbody (%x) {}\n");
  } catch (const ts::TraceError&) {
    return false;
  }
  return true;
}
bool parses(const std::string& text) {
  try {
    ts::ir::parse(text);
  } catch (const ts::TraceError&) {
    return false;
  }
  return true;
}
}  // namespace

TEST_CASE("limits.md: ranks and elements") {
  CHECK(page_says("| dims of an array, a block or a value | 32 |"));
  CHECK(fits(ts::Shape(32, 1)));
  CHECK_FALSE(fits(ts::Shape(33, 1)));
  CHECK(page_says("| elements of a block or a value | 2^40 |"));
  CHECK(fits({int64_t{1} << 40}));
  CHECK_FALSE(fits({(int64_t{1} << 40) + 1}));
}

TEST_CASE("limits.md: sizes of calls and nesting") {
  CHECK(page_says("expressions of at most 1000 terms, 100 parentheses deep"));
  const auto grid = [](const std::string& size) {
    return parses("tir 1\nkernel @k\ngrid (" + size + ")\nbody () {}\n");
  };
  CHECK(grid(repeated("(", 100) + "n" + repeated(")", 100)));
  CHECK_FALSE(grid(repeated("(", 101) + "n" + repeated(")", 101)));
  CHECK(grid("n" + repeated(" * n", 499)));  // a term is a size or an operation
  CHECK_FALSE(grid("n" + repeated(" * n", 501)));
  CHECK(page_says("| control flow in `.tir` text | 200 regions deep |"));
  const auto nested = [](int n) {
    return parses("tir 1\nkernel @k\nbody () {\n  %t = constant true : bool[]\n" + repeated("if %t {\n", n) +
                  repeated("}\n", n) + "}\n");
  };
  CHECK(nested(199));
  CHECK_FALSE(nested(200));
  CHECK(page_says("| programs along one grid axis | 2^31 - 1 |"));
  const ts::ir::Kernel k = ts::ir::parse("tir 1\nkernel @k\ngrid (n)\nbody () {}\n");
  CHECK(ts::bind_grid(k, {{"n", INT32_MAX}}) == std::vector<int64_t>{INT32_MAX});
  CHECK_THROWS_AS(ts::bind_grid(k, {{"n", int64_t{INT32_MAX} + 1}}), ts::SpecError);
}

}  // namespace limits_test
