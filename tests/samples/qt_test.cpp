// samples/qt as a program, where this build has Qt: windows under a virtual X server (Xvfb) with a screenshot, resized,
// the validation layers silent; and what it says where it cannot go on.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "samples/support/picture.h"
#include "tests/samples/program.h"
#include "tests/samples/screen.h"

namespace qt_test {

using tessera::Array;
using namespace tessera::test;

namespace {
bool is_built() {
  const bool there = std::filesystem::exists(TESSERA_SAMPLES_BIN "/qt") && has_xvfb();
  if (!there) MESSAGE("this build has no Qt (Debian: qt6-base-dev), or there is no Xvfb: not tested");
  return there;
}
// A picture of a size that no tile divides, written beside the samples' own.
std::string picture(const Scratch& folder) {
  Array a({3, 61, 97}, tessera::f32);
  for (int64_t i = 0; i < a.size(); ++i)
    a.data<float>()[static_cast<size_t>(i)] = static_cast<float>((i * 37 + i / 61 * 5) % 256) / 255;
  sample::write_png(folder.at("in.png"), a);
  return "'" + folder.at("in.png") + "'";
}
}  // namespace

TEST_CASE("qt: a picture through kernels in Qt's frames; the screen shows what they made, also resized") {
  if (!is_built()) return;
  const Scratch folder;
  const std::string in = picture(folder);
  const Array plain = check_on_screen("qt", in + " --plain --save last.png --sharpness 0 --smoothness 0.001", 1);
  REQUIRE(plain.shape() == tessera::Shape{3, 61, 97});
  const Array given = sample::read_png(folder.at("in.png"));
  double worst = 0;  // without smoothing and sharpening it is the picture, up to a rounding
  for (int64_t i = 0; i < given.size(); ++i) worst = std::max(worst, std::abs(plain.at(i) - given.at(i)));
  CHECK(worst < 1.01 / 255);
  const Scratch another;
  REQUIRE(run_on_screen(another, "qt", in + " --plain --save last.png --resize 199x61 --exposure 1", "last.png") == 0);
  CHECK(read(another.at("output.txt")) == "");
  const Array bright = sample::read_png(another.at("last.png")), wide = screen(read(another.at("shown")), 61, 199);
  REQUIRE(bright.shape() == tessera::Shape{3, 61, 97});
  CHECK(bright.at(5) > plain.at(5) + 0.05);
  worst = 0;  // in the middle; beside it is the window's grey
  for (int64_t i = 0; i < wide.size(); ++i) {
    const int64_t column = i % 199 - 51, row = i / 199;
    const double wanted = column < 0 || column >= 97 ? 26 / 255.0 : bright.at(row * 97 + column);
    worst = std::max(worst, std::abs(wide.at(i) - wanted));
  }
  CHECK(worst < 1e-6);
}

TEST_CASE("qt: with sliders, as the interpreter has it") {
  if (!is_built()) return;
  const Scratch folder;
  run_on_screen(folder, "qt", picture(folder) + " --check --exposure -0.5 --contrast 1.5", "none.png");
  CHECK_MESSAGE(ends_with(read(folder.at("output.txt")), "qt: right\n"), read(folder.at("output.txt")));
  CHECK(read(folder.at("status")) == "0\n");
}

TEST_CASE("qt: what it says where it cannot go on") {
  if (!is_built()) return;
  const Scratch folder;
  std::ofstream(folder.at("no.png")) << "no picture";
  const auto check = [&](const std::string& arguments, const std::string& says, const std::string& environment = "") {
    const Outcome o = run(folder, environment + " QT_QPA_PLATFORM=offscreen XDG_RUNTIME_DIR=.", "qt", arguments);
    CHECK(o.code == 1);
    CHECK_MESSAGE(o.output.find("qt: " + says + "\n") != std::string::npos, o.output);
  };
  check("no.png", "no.png is no picture that Qt can read");
  check("a b", "one picture, not 2");
  check("--plain --resize 12x", "\"12x\" is no size: two numbers from 16 to 8192, as 640x360");
  check("--resize 64x64", "--resize is of the window that --plain makes");
}

}  // namespace qt_test
