// Texts that are wrong in random ways: each is run, refused with an Error, or ends in a fault. None may crash the
// emulator.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/ptx/emulator.h"
#include "tests/ptx/numbers.h"

namespace mutants_test {
using namespace tessera::ptx;

namespace {

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
/// The text in pieces, without its comments: words, numbers, marks, and spaces with them.
std::vector<std::string> pieces(const std::string& text) {
  std::vector<std::string> all;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size() - 1);
    const char c = text[i];
    const bool joins = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%';
    if (joins && !all.empty() && std::isalnum(static_cast<unsigned char>(all.back().back()))) all.back() += c;
    else all.emplace_back(1, c);
  }
  return all;
}
std::string mutant(const std::vector<std::string>& from, Random& r) {
  std::vector<std::string> p = from;
  static const char* const kNumbers[] = {"0", "1",  "-1",        "4294967295", "1048577", "0xffffffffffffffff",
                                         "3", "16", "0f7f800000"};
  for (uint32_t n = 1 + r.below(3); n > 0; --n) {
    const size_t at = r.below(static_cast<uint32_t>(p.size())), other = r.below(static_cast<uint32_t>(p.size()));
    switch (r.below(5)) {
      case 0: p.erase(p.begin() + static_cast<ptrdiff_t>(at)); break;
      case 1: p[at] = p[other]; break;
      case 2: std::swap(p[at], p[other]); break;
      case 3: p.insert(p.begin() + static_cast<ptrdiff_t>(at), p[other]); break;
      default: p[at] = kNumbers[r.below(std::size(kNumbers))];
    }
  }
  std::string text;
  for (const std::string& s : p) text += s;
  return text;
}

}  // namespace

TEST_CASE("mutants of kernels crash nothing") {
  const uint32_t count = std::getenv("TESSERA_TESTS_ALL") ? 5000 : 300;
  uint32_t refused = 0, faults = 0, fine = 0;
  for (const char* name : {"matmul_tma", "bulk_double", "cluster_exchange"}) {
    const std::vector<std::string> from = pieces(read("tests/ptx/kernels/" + std::string(name) + ".ptx"));
    REQUIRE(from.size() > 100);
    Random r{11};
    for (uint32_t k = 0; k < count; ++k) {
      const std::string text = mutant(from, r);
      CAPTURE(text);
      try {
        const Module m = parse(text);
        std::vector<uint32_t> x(4096), y(4096);
        Launch l;
        const bool product = std::string(name) == "matmul_tma";
        l.block[0] = product ? 160 : 128, l.grid[0] = product ? 1 : 2, l.seed = k, l.max_instructions = 100000,
        l.dynamic_shared = product ? 32768 : 0;
        if (product) l.parameters.resize(256);
        l.buffer({.name = "x", .bytes = std::as_writable_bytes(std::span(x))});
        if (product) l.scalar(uint32_t{2});
        else l.buffer({.name = "y", .bytes = std::as_writable_bytes(std::span(y))});
        if (product)
          for (uint32_t t = 0; t < 2; ++t)
            l.tensors.push_back({128 * t,
                                 {.buffer = 0,
                                  .type = Type::f16,
                                  .dims = {128, 32},
                                  .strides = {256},
                                  .box = {64, 64},
                                  .swizzle = TensorMap::b128}});
        const Result result = run(m, l);
        (result.ok() ? fine : faults) += 1;
        CHECK((result.ok() || !result.text.empty()));
      } catch (const Error& e) {
        ++refused;
        CHECK(std::string(e.what()).starts_with("line "));
      }
    }
  }
  CHECK(refused > 100);
  CHECK(faults > 3);
  CHECK(fine > 20);
}

}  // namespace mutants_test
