// The demos' window (samples/support/demo.h): under a virtual X server the screen shows the picture that is written; and what is said where there is no display.
#include <doctest/doctest.h>

#include "tests/samples/screen.h"

using tessera::Array;
using namespace tessera::test;

TEST_CASE("a demo in a window: the screen shows the picture, enlarged, the validation layers silent") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  const Array picture = check_on_screen("ray_march", "--window --size 80 --frames 1 --hold 600 last.png", 7);
  CHECK(picture.shape() == tessera::Shape{3, 80, 80});
}

TEST_CASE("a demo in a window: without a display it says so") {
  const Scratch folder;
  const Outcome o = run(folder, "env -u DISPLAY -u WAYLAND_DISPLAY", "path_trace", "--window --size 16");
  CHECK(o.code == 1);
  CHECK(o.output == "path_trace: GLFW finds no display: without --window the pictures go to a file\n");
}
