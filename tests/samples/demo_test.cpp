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
  for (const Case& c : {Case{"ray_march", 80, 80, 7},
                        {"stable_fluids", 48, 48, 11},
                        {"path_trace", 40, 40, 13},
                        {"n_body", 64, 40, 8}}) {
    CAPTURE(c.demo);
    const Array picture = check_on_screen(
        c.demo, "--window --size " + std::to_string(c.columns) + " --frames 1 --hold 600 last.png", c.times);
    CHECK(picture.shape() == tessera::Shape{3, c.rows, c.columns});
    double brightest = 0;
    for (int64_t i = 0; i < picture.size(); ++i) brightest = std::max(brightest, picture.at(i));
    CHECK(brightest > 0.3);
  }
}

TEST_CASE("demos: pictures of one pixel") {
  const Scratch folder;
  for (const char* demo : {"ray_march", "stable_fluids", "path_trace", "n_body"}) {
    CAPTURE(demo);
    Outcome o = run(folder, "", demo, "--size 1 --frames 1 one.png");
    INFO(o.output);
    CHECK(o.code == 0);
    CHECK(sample::read_png(folder.at("one.png")).shape() == tessera::Shape{3, 1, 1});
    std::filesystem::remove(folder.at("one.png"));
  }
}

TEST_CASE("a demo in a window: without a display it says so") {
  const Scratch folder;
  const Outcome o = run(folder, "env -u DISPLAY -u WAYLAND_DISPLAY", "path_trace", "--window --size 16");
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
  const std::string usage = "usage: stable_fluids [--size N] [--frames N] [--window] [--hold SECONDS] [OUT.png]\n";
  CHECK(says("--size 9999 --frames 9999 no/such/folder.png") ==
        "stable_fluids: no/such/folder.png: No such file or directory\n");
  CHECK(says("--size 9999 --frames 9999 .") == "stable_fluids: .: Is a directory\n");
  CHECK(says("a.png b.png") == "stable_fluids: pictures go to one file, not to a.png and b.png\n" + usage);
  CHECK(says("--window a.png") ==
        "stable_fluids: a window without --frames writes nothing, not a.png either\n" + usage);
  CHECK(!std::filesystem::exists(folder.at("a.png")));
}

}  // namespace demo_test
