// The demos' window (samples/support/demo.h): under a virtual X server the screen shows the picture that is written; and what is said where there is no display.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "samples/support/picture.h"
#include "tests/samples/screen.h"

using tessera::Array;
using namespace tessera::test;

TEST_CASE("a demo in a window: the screen shows the picture, enlarged, the validation layers silent") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  const Scratch folder;
  const int status = run_on_screen(folder, "ray_march", "--window --size 80 --frames 1 --hold 600 last.png", "last.png");
  INFO(read(folder.at("output.txt")));
  INFO(read(folder.at("log.txt")));
  REQUIRE(status == 0);
  CHECK(read(folder.at("output.txt")) == "");
  const Array picture = sample::read_png(folder.at("last.png")), shown = screen(read(folder.at("shown")), 480, 560);
  REQUIRE(picture.shape() == tessera::Shape{3, 80, 80});
  double worst = 0;
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < 480; ++y)
      for (int64_t x = 0; x < 560; ++x) worst = std::max(worst, std::abs(shown.at((c * 480 + y) * 560 + x) - picture.at((c * 80 + y / 7) * 80 + x / 7)));
  CHECK(worst < 1e-6);
}

TEST_CASE("a demo in a window: without a display it says so") {
  const Scratch folder;
  const Outcome o = run(folder, "env -u DISPLAY -u WAYLAND_DISPLAY", "path_trace", "--window --size 16");
  CHECK(o.code == 1);
  CHECK(o.output == "path_trace: GLFW finds no display: without --window the pictures go to a file\n");
}
