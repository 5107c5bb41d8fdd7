// The demos' window (samples/support/demo.h): under a virtual X server the screen shows the picture that is written;
// and what is said where there is no display.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/samples/screen.h"

namespace demo_test {

using tessera::Array;
using namespace tessera::test;

TEST_CASE("demos in windows: the screen shows the picture, enlarged, the validation layers silent") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  struct Case {
    const char* demo;
    int64_t columns, rows, times;
  };
  for (const Case& c : {Case{"ray_march", 80, 61, 7},
                        {"stable_fluids", 48, 35, 11},
                        {"path_trace", 40, 47, 11},
                        {"n_body", 64, 40, 8},
                        {"jelly", 66, 50, 8},
                        {"cloth", 64, 48, 8}}) {
    CAPTURE(c.demo);
    const Array picture = check_on_screen(c.demo,
                                          "--window --size " + std::to_string(c.columns) + "x" +
                                              std::to_string(c.rows) + " --frames 1 --hold 600 -o last.png",
                                          c.times);
    CHECK(picture.shape() == tessera::Shape{3, c.rows, c.columns});
    double brightest = 0;
    for (int64_t i = 0; i < picture.size(); ++i) brightest = std::max(brightest, picture.at(i));
    CHECK(brightest > 0.3);
  }
}

TEST_CASE("demos: pictures of one pixel") {
  const Scratch folder;
  for (const char* demo : {"ray_march", "stable_fluids", "path_trace", "n_body", "jelly", "cloth"}) {
    CAPTURE(demo);
    Outcome o = run(folder, "", demo, "--size 1x1 --frames 1 -o one.png");
    INFO(o.output);
    CHECK(o.code == 0);
    CHECK(o.output.starts_with(std::string(demo) + ": 1 frames of 1 x 1, "));
    CHECK(o.output.find(" per second: wrote one.png\n") != std::string::npos);
    CHECK(sample::read_png(folder.at("one.png")).shape() == tessera::Shape{3, 1, 1});
    std::filesystem::remove(folder.at("one.png"));
  }
}

TEST_CASE("a demo in a window: without a display it says so") {
  const Scratch folder;
  const Outcome o = run(folder, "env -u DISPLAY -u WAYLAND_DISPLAY", "path_trace", "--window --size 16x16");
  CHECK(o.code == 1);
  CHECK(o.output == "path_trace: GLFW finds no display: without --window the pictures go to a file\n");
}

TEST_CASE("demos: a file that cannot be written is known before anything is drawn") {
  const Scratch folder;
  const auto says = [&](const std::string& arguments) {
    const Outcome o = run(folder, "", "stable_fluids", arguments);
    CHECK(o.code == 1);
    return o.output;
  };
  const std::string usage = "usage: stable_fluids [-o FILE] [--size WxH] [--frames N] [--window] [--hold SECONDS]\n";
  CHECK(says("--size 9999x9999 --frames 9999 -o no/such/folder.png") ==
        "stable_fluids: no/such/folder.png: No such file or directory\n");
  CHECK(says("--size 9999x9999 --frames 9999 --output .") == "stable_fluids: .: Is a directory\n");
  CHECK(says("-o a.png -o b.png") == "stable_fluids: pictures go to one file, not to a.png and b.png\n" + usage);
  CHECK(says("--window -o a.png") ==
        "stable_fluids: a window without --frames writes nothing, not a.png either\n" + usage);
  CHECK(says("a.png") == "stable_fluids: \"a.png\" is no option: pictures go to -o a.png\n" + usage);
  CHECK(says("-o") == "stable_fluids: -o takes a file's name\n" + usage);
  CHECK(!std::filesystem::exists(folder.at("a.png")));
}

}  // namespace demo_test
