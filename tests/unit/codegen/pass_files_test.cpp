// The files of tests/tir/passes: a kernel each, and what its folder's pass or analysis makes of it. What changes there
// is for a reader to review: TESSERA_BLESS=1 writes it.
#include "tests/unit/codegen/pass_files.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "codegen/compile.h"
#include "codegen/lane/verify.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace pass_files_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const std::filesystem::path kRoot = "tests/tir/passes";
constexpr std::string_view kExpected = "// ---- expected";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct File {
  std::string kernel;  // as far as the expected text
  std::vector<std::string> expected;
  PassSettings settings;
};
/// "tir 1", a comment that says what the case shows, and words, before the kernel.
File read(const std::filesystem::path& path) {
  std::ifstream in(path);
  const std::vector<std::string> lines = lines_of(std::string{std::istreambuf_iterator<char>(in), {}});
  const auto comment = [&](size_t i) { return i < lines.size() && lines[i].starts_with("// "); };
  const auto is_word = [&](size_t i) {
    return comment(i) && lines[i].find_first_not_of("abcdefghijklmnopqrstuvwxyz", 3) == lines[i].find(": ", 3);
  };
  if (lines.empty() || lines[0] != "tir 1" || !comment(1) || is_word(1))
    throw std::runtime_error("it does not begin with 'tir 1' and a comment that says what it shows");
  File f;
  std::map<std::string, std::string> words;
  size_t at = 0;
  for (; at < lines.size() && lines[at] != kExpected; ++at) {
    f.kernel += lines[at] + "\n";
    if (at < 2 || !is_word(at)) continue;
    const size_t colon = lines[at].find(": ");
    words[lines[at].substr(3, colon - 3)] = lines[at].substr(colon + 2);
  }
  f.settings = pass_settings(words);
  for (++at; at < lines.size(); ++at) {
    if (!lines[at].starts_with("//"))
      throw std::runtime_error("there is more than comments behind '" + std::string(kExpected) + "'");
    f.expected.push_back(lines[at].size() > 3 ? lines[at].substr(3) : "");
  }
  return f;
}

const PassFolder& folder(const std::string& name) {
  for (const PassFolder& f : pass_folders())
    if (f.name == name) return f;
  throw std::runtime_error("there is no pass '" + name + "'");
}

/// The kernel's text from the body on, and what stands before that if it is another than `before` has.
std::string difference(const std::string& before, const std::string& after) {
  const size_t b = before.find("\nbody ("), a = after.find("\nbody (");
  return before.substr(0, b) == after.substr(0, a) ? after.substr(a + 1) : after;
}
bool is_lane_kernel(const ir::Kernel& k) { return k.level == ir::Level::lane && lane::find_lane_problems(k).empty(); }

std::string run(const PassFolder& f, ir::Kernel k, const PassSettings& settings) {
  ir::verify(k, "parsing");
  std::string remarks;
  for (const std::string& earlier : settings.after) {
    folder(earlier).run(k, settings, remarks);
    ir::verify(k, earlier);
  }
  remarks.clear();
  if (!f.run) return f.print(k, settings);
  const std::string before = ir::print(k);
  const bool sound = is_lane_kernel(k);
  const bool changed = f.run(k, settings, remarks);
  ir::verify(k, f.name);
  const std::string after = ir::print(k);
  CHECK_MESSAGE(changed == (before != after), "the pass says that it ",
                changed ? std::string("changed") : std::string("did not change"), " the kernel");
  CHECK_MESSAGE(ir::print(ir::parse(after)) == after, "what the pass made does not come back from its text");
  if (sound) CHECK_MESSAGE(is_lane_kernel(k), "the lane-level verifier refuses what the pass made");
  if (f.settles) {
    std::string more;
    CHECK_MESSAGE(!f.run(k, settings, more), "the pass finds more to do in what it made");
    CHECK(ir::print(k) == after);
  }
  return changed ? difference(before, after) + remarks : "unchanged";
}

std::vector<std::filesystem::path> files_in(const std::string& name) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(kRoot / name))
    for (const auto& e : std::filesystem::directory_iterator(kRoot / name))
      if (e.path().extension() == ".tir") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  return files;
}

void check(const PassFolder& f, const std::filesystem::path& path, bool bless) {
  const std::string file = path.generic_string();
  CAPTURE(file);
  try {
    const File want = read(path);
    const std::vector<std::string> got =
        lines_of(run(f, ir::parse(want.kernel, path.filename().generic_string()), want.settings));
    if (bless) {
      std::ofstream out(path, std::ios::trunc | std::ios::binary);
      out << want.kernel << kExpected << "\n";
      for (const std::string& line : got) out << (line.empty() ? "//" : "// " + line) << "\n";
      return;
    }
    const auto [g, w] = std::mismatch(got.begin(), got.end(), want.expected.begin(), want.expected.end());
    const std::string got_line = g == got.end() ? "the end" : *g, want_line = w == want.expected.end() ? "the end" : *w;
    const std::ptrdiff_t number = g - got.begin() + 1;
    CHECK_MESSAGE(got == want.expected, "line ", number, " of the expected text\n  was  ", want_line, "\n  is   ",
                  got_line,
                  "\nIf that is meant: TESSERA_BLESS=1 build/tests/test_codegen -tc='pass files*' rewrites it");
  } catch (const std::exception& e) {
    FAIL_CHECK(std::string(e.what()));
  }
}
}  // namespace

TEST_CASE("pass files: what each pass and analysis makes of the kernels of its folder") {
  const bool bless = std::getenv("TESSERA_BLESS") && std::string(std::getenv("TESSERA_BLESS")) == "1";
  for (const PassFolder& f : pass_folders())
    for (const auto& path : files_in(f.name)) check(f, path, bless);
}

TEST_CASE("pass files: every pass has a folder with several cases, one of them where it does nothing") {
  std::set<std::string> names;
  for (const PassFolder& f : pass_folders()) names.insert(f.name);
  for (const auto& e : std::filesystem::directory_iterator(kRoot))
    CHECK_MESSAGE(names.contains(e.path().filename().string()), e.path().generic_string(),
                  " is no folder that pass_folders() knows");
  for (const passes::Pass& p : passes::all())
    CHECK_MESSAGE(names.contains(std::string(p.name)), "the pass ", p.name, " has no folder");
  // compile()'s last step counts loops, and cuts them.
  CompileOptions options;
  options.dump = [&](std::string_view step, const ir::Kernel&, bool) {
    const std::string name(step.substr(step.rfind('/') + 1));
    CHECK_MESSAGE(names.contains(name), "the step ", name, " of compile() has no folder");
  };
  std::ifstream in("tests/tir/matmul.tir");
  compile(ir::parse(std::string{std::istreambuf_iterator<char>(in), {}}), lavapipe_target(), options);

  for (const PassFolder& f : pass_folders()) {
    CAPTURE(f.name);
    const auto files = files_in(f.name);
    CHECK(files.size() >= 3);
    const bool always = f.name == "lower" || f.name == "report_cut";  // change every kernel
    if (f.run && !always)
      CHECK(std::any_of(files.begin(), files.end(),
                        [](const auto& path) { return read(path).expected == std::vector<std::string>{"unchanged"}; }));
  }
}

TEST_CASE("pass files: a word that means nothing is refused") {
  CHECK_THROWS_AS(pass_settings({{"target", "toaster"}}), std::runtime_error);
  CHECK_THROWS_AS(pass_settings({{"budget", "many"}}), std::runtime_error);
  CHECK_THROWS_AS(pass_settings({{"colour", "red"}}), std::runtime_error);
  CHECK_THROWS_AS(folder("nothing"), std::runtime_error);
  CHECK(pass_settings({{"target", "gpu"}, {"iterations", "200"}}).target.max_loop_iterations == 200);
}

}  // namespace pass_files_test
