// samples/ahead/gray_scott, a program in C on kernels compiled ahead of time: its picture is the interpreter's of the
// same .tir files, on any size; in a window the screen shows it; and what it says where it cannot go on. The validation
// layers are silent throughout.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "samples/support/picture.h"
#include "tests/samples/program.h"
#include "tests/samples/screen.h"

namespace gray_scott_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr const char* kVulkan = "TESSERA_VALIDATION=1";

ir::Kernel kernel(const std::string& name) {
  const std::string file = "samples/ahead/gray_scott_" + name + ".tir";
  return ir::parse(read(file), file);
}

/// [3, h, w] as a PNG's reader gives it.
Array interpreted(int64_t h, int64_t w, int steps, float exposure = 1) {
  Array rates({2, w}, f32);
  for (int64_t x = 0; x < w; ++x) {
    const float part = (static_cast<float>(x) + 0.5f) / static_cast<float>(w);
    rates.data<float>()[static_cast<size_t>(x)] = 0.0300f + 0.0240f * part;
    rates.data<float>()[static_cast<size_t>(w + x)] = 0.0635f - 0.0020f * part;
  }
  InterpretOptions options;
  options.dims = {{"h", h}, {"w", w}};
  Array cells = interpret(kernel("seed"), {}, options)[0];
  const ir::Kernel react = kernel("react");
  for (int s = 0; s < steps; ++s) cells = interpret(react, {rates, cells})[0];
  const Array painted = interpret(kernel("paint"), {cells, Array({}, std::vector<float>{exposure})})[0];
  REQUIRE(painted.shape() == Shape{h, w, 3});
  Array picture({3, h, w}, f32);
  for (int64_t p = 0; p < h * w; ++p)
    for (int64_t c = 0; c < 3; ++c)
      picture.data<float>()[static_cast<size_t>(c * h * w + p)] =
          static_cast<float>(painted.data<uint8_t>()[static_cast<size_t>(3 * p + c)]) / 255;
  return picture;
}

// Each step errs by some units of 2^-24, which moves few numbers across the border between two of 256 levels.
void check_picture(const Array& picture, const Array& expected) {
  REQUIRE(picture.shape() == expected.shape());
  int64_t others = 0;
  double worst = 0;
  for (int64_t i = 0; i < picture.size(); ++i) {
    const double off = std::abs(picture.at(i) - expected.at(i));
    worst = std::max(worst, off), others += off > 0;
  }
  CHECK(worst < 1.01 / 255);
  CHECK(others * 200 < picture.size());
}

}  // namespace

TEST_CASE("gray_scott: the interpreter's picture, on sizes that fit no tile") {
  const Scratch folder;
  struct Case {
    int64_t w, h;
    int steps;
  };
  for (const auto& [w, h, steps] : {Case{70, 43, 40}, {21, 21, 3}, {64, 64, 0}, {1, 1, 2}}) {
    const std::string size = std::to_string(w) + "x" + std::to_string(h);
    CAPTURE(size);
    const Outcome o =
        run(folder, kVulkan, "gray_scott", "--size " + size + " --steps " + std::to_string(steps) + " -o out.png");
    INFO(o.output);
    REQUIRE(o.code == 0);
    CHECK(o.output.starts_with("gray_scott: " + std::to_string(steps) + " steps of " + std::to_string(w) + " x " +
                               std::to_string(h) + " cells on "));
    CHECK(o.output.find(", wrote out.png: ") != std::string::npos);
    CHECK(ends_with(o.output, ": ok\n"));
    check_picture(sample::read_png(folder.at("out.png")), interpreted(h, w, steps));
    if (w != 21) continue;
    REQUIRE(run(folder, kVulkan, "gray_scott", "--size 21x21 --steps 3 --exposure 50 --output out.png").code == 0);
    check_picture(sample::read_png(folder.at("out.png")), interpreted(h, w, steps, 0.5f));
  }
}

TEST_CASE("gray_scott: in a window the screen shows the picture, enlarged") {
  if (!has_xvfb()) {
    MESSAGE("there is no Xvfb: not tested");
    return;
  }
  check_picture(check_on_screen("gray_scott", "--window --size 100x100 --steps 50 --hold 600 -o last.png", 6),
                interpreted(100, 100, 50));
}

TEST_CASE("gray_scott: what it says where it cannot go on") {
  const Scratch folder;
  const std::string usage =
      "usage: gray_scott [-o FILE] [--size WxH] [--steps N] [--exposure PERCENT] [--window] [--hold SECONDS]\n";
  const auto says = [&](const std::string& arguments, const std::string& environment = "") {
    const Outcome o = run(folder, environment, "gray_scott", arguments);
    CHECK(o.code == 1);
    return o.output;
  };
  CHECK(says("--size 12x") == "gray_scott: --size takes two numbers from 1 to 8192, as 640x360, not \"12x\"\n" + usage);
  CHECK(says("--steps") == "gray_scott: --steps takes a number from 0 to 10000000, not \"\"\n" + usage);
  CHECK(says("--step 3") == "gray_scott: unknown option --step\n" + usage);
  CHECK(says("--steps 1 --size 8x8", "TESSERA_DEVICE='no such'")
            .starts_with("gray_scott: TESSERA_DEVICE=\"no such\" is none of the Vulkan devices:\n"));
  CHECK(says("--window", "env -u DISPLAY -u WAYLAND_DISPLAY") ==
        "gray_scott: GLFW finds no display: without --window the pictures go to a file\n");
  CHECK(says("--steps 1 --size 8x8 -o no/such/folder.png").starts_with("gray_scott: no/such/folder.png: "));
  const Outcome help = run(folder, "", "gray_scott", "--help");
  CHECK(help.code == 0);
  CHECK(help.output.starts_with("gray_scott [-o FILE] [--size WxH] "));
}

}  // namespace gray_scott_test
