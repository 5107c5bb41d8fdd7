// samples/renderer as a program: without a window, in windows under a virtual X server (Xvfb) with a screenshot,
// resized while frames are in flight, the validation layers silent throughout; and what it says where it cannot go on.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "samples/support/picture.h"
#include "tests/samples/program.h"
#include "tests/samples/screen.h"

namespace renderer_test {

using tessera::Array;
using namespace tessera::test;

namespace {

constexpr const char* kVulkan = "TESSERA_VALIDATION=1";

// How much of the picture is brighter than `level`.
double brighter(const Array& picture, double level) {
  int64_t n = 0;
  for (int64_t i = 0; i < picture.size(); ++i) n += picture.at(i) > level;
  return static_cast<double>(n) / static_cast<double>(picture.size());
}

}  // namespace

TEST_CASE("renderer: a fluid without a window, resized in the middle, as the interpreter has it") {
  const Scratch folder;
  const Outcome o =
      run(folder, kVulkan, "renderer", "fluid --frames 12 --size 161x90 --resize 120x131 --particles 2000");
  INFO(o.output);
  REQUIRE(o.code == 0);
  CHECK(ends_with(o.output, "the last of 120 x 131 pixels: wrote renderer_fluid.png\nrenderer: right\n"));
  const Array picture = sample::read_png(folder.at("renderer_fluid.png"));
  CHECK(picture.shape() == tessera::Shape{3, 131, 120});
  CHECK(brighter(picture, 0.3) > 0.003);
  CHECK(brighter(picture, 0.3) < 0.7);
}

TEST_CASE(
    "renderer: images drawn by the host, denoised and stored by kernels, as the interpreter has them; resized in the "
    "middle") {
  const Scratch folder;
  for (const char* arguments : {"hall --frames 4 --detail 0.02 --size 97x54 --resize 70x61 --overlay",
                                "hall --raw --frames 4 --detail 0.02 --size 97x54 --resize 70x61",
                                "hall --upscale 2 --frames 4 --detail 0.02 --size 97x54 --resize 70x61"}) {
    const Outcome o = run(folder, kVulkan, "renderer", arguments);
    INFO(o.output);
    REQUIRE(o.code == 0);
    CHECK(ends_with(o.output, "the last of 70 x 61 pixels: wrote renderer_hall.png\nrenderer: right\n"));
    const Array picture = sample::read_png(folder.at("renderer_hall.png"));
    CHECK(picture.shape() == tessera::Shape{3, 61, 70});
    const bool covered = std::string(arguments).ends_with("overlay");  // by words, in a picture this small
    CHECK(brighter(picture, 0.2) > (covered ? 0.05 : 0.3));
    CHECK(brighter(picture, 0.95) < 0.3);
  }
}

TEST_CASE("renderer: in a window, resized with two frames in flight; the screen shows the last picture") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  const Array picture = check_on_screen("renderer",
                                        "fluid --window --no-overlay --frames 12 --size 300x200 --resize 200x160 "
                                        "--particles 2000 --output last.png --hold 600",
                                        1);
  CHECK(picture.shape() == tessera::Shape{3, 160, 200});
  CHECK(brighter(picture, 0.3) > 0.003);
  const Array hall = check_on_screen(
      "renderer", "hall --detail 0.02 --window --frames 8 --size 333x217 --resize 217x333 --output last.png --hold 600",
      1);
  CHECK(hall.shape() == tessera::Shape{3, 333, 217});
  CHECK(brighter(hall, 0.2) > 0.3);
}

TEST_CASE("renderer: a window stays for --hold, also where no picture is written") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  const Scratch folder;
  const auto start = std::chrono::steady_clock::now();
  const int status =
      run_on_screen(folder, "renderer", "fluid --window --frames 2 --size 64x48 --particles 100 --hold 4", "none.png");
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::seconds(4));
  CHECK(status != 0);  // it has ended by itself, and written nothing
  CHECK(read(folder.at("output.txt")) == "renderer: right\n");
}

TEST_CASE("renderer: what it says where it cannot go on") {
  const Scratch folder;
  const auto says = [&](const std::string& environment, const std::string& arguments) {
    return run(folder, environment, "renderer", arguments).output;
  };
  CHECK(says("", "fluid --size 12x").find("\"12x\" is no size: two numbers from 16 to 8192, as 640x360\n") !=
        std::string::npos);
  CHECK(says("", "--window").find("--window and --output are of one scene: renderer fluid, or renderer hall\n") !=
        std::string::npos);
  CHECK(says("", "fluid --frames -1").find("--frames: Value -1 not in range 0 to 1000000\n") != std::string::npos);
  CHECK(says("", "hall --upscale 3").find("--upscale: Value 3 not in range 1 to 2\n") != std::string::npos);
  CHECK(says("", "fluid --frames 3 --resize 20x20")
            .find("--resize comes at half of the frames, of which there are 4 at least, not 3\n") != std::string::npos);
  CHECK(says("", "fluid --window --output a.png")
            .find("--output is of the last frame: in a window it takes --frames\n") != std::string::npos);
  CHECK(says("TESSERA_DEVICE='no such'", "fluid").find("renderer: no device named \"no such\" of ") !=
        std::string::npos);
  CHECK(says("env -u DISPLAY -u WAYLAND_DISPLAY", "fluid --window")
            .find("without --window the pictures go to a file\n") != std::string::npos);
}

}  // namespace renderer_test
