// Runs every sample as a program, on the interpreter and on the best Vulkan device with the validation layers on;
// compares the kernels that they compile with tests/tir/samples (TESSERA_BLESS=1 rewrites those); and feeds the blur
// pictures of awkward sizes and kinds.
#include <doctest/doctest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "engine/ir/text.h"
#include "samples/support/demo.h"
#include "samples/support/picture.h"
#include "samples/support/sample.h"
#include "samples/support/text.h"
#include "tests/samples/program.h"

namespace samples_test {

namespace {
using tessera::Array;
using namespace tessera::test;

/// The names in samples.txt, which CMake writes.
std::vector<std::string> samples() {
  std::ifstream in(TESSERA_SAMPLES_BIN "/samples.txt");
  std::vector<std::string> names;
  for (std::string name; std::getline(in, name);) names.push_back(name);
  REQUIRE(names.size() >= 9);
  return names;
}

/// The greatest difference of any entry of the blurred picture from the definition, with the sample's weights.
double blur_error(const Array& before, const Array& after) {
  REQUIRE(before.shape() == after.shape());
  const Array weights = sample::gaussian(37, 6);
  double worst = 0;
  for (int64_t i = 0; i < after.size(); ++i)
    worst = std::max(worst, std::fabs(after.at(i) - sample::blurred_entry(before, weights, i)));
  return worst;
}

constexpr const char* kVulkan = "TESSERA_VALIDATION=1";
constexpr const char* kInterpreter = "TESSERA_DEVICE=interpreter";
// Not of a graph of several kernels, which tests/kernels tests one by one, nor of one of thousands of lines.
bool is_stored(const std::string& sample) {
  return sample != "stable_fluids" && sample != "n_body" && sample != "ray_march" && sample != "path_trace" &&
         sample != "jelly" && sample != "cloth";
}
constexpr double kHalfALevel = 0.5 / 255 + 1e-5;  // a PNG's colours are rounded to 256 levels
}  // namespace

TEST_CASE("every sample is right on the interpreter") {
  const Scratch folder;
  for (const std::string& name : samples()) {
    const Outcome o = run(folder, kInterpreter, name);
    INFO(o.output);
    CHECK_MESSAGE(o.code == 0, name);
    CHECK(o.output.find(" on the interpreter: largest difference ") != std::string::npos);
    CHECK(ends_with(o.output, ": ok\n"));
  }
}

TEST_CASE(
    "every sample is right on Vulkan, without a word from the validation layers, and compiles the kernels of "
    "tests/tir/samples") {
  const Scratch folder;
  const bool bless = std::getenv("TESSERA_BLESS") && std::string(std::getenv("TESSERA_BLESS")) == "1";
  for (const std::string& name : samples()) {
    const Outcome o = run(folder, std::string(kVulkan) + " TESSERA_DUMP='" + folder.path + "'", name);
    INFO(o.output);
    CHECK_MESSAGE(o.code == 0, name);
    CHECK(o.output.find("the interpreter") == std::string::npos);
    CHECK(ends_with(o.output, ": ok\n"));

    if (!is_stored(name)) continue;
    const std::string text = read(folder.at(name + ".tir")), stored = "tests/tir/samples/" + name + ".tir";
    REQUIRE_MESSAGE(!text.empty(), name);
    const std::string printed = tessera::ir::print(tessera::ir::parse(text, name));  // without source lines
    if (bless) std::ofstream(stored, std::ios::binary) << printed;
#ifndef __clang__  // C++ leaves the order of operands open, and so the order of traced ops; g++'s is stored
    CHECK_MESSAGE(printed == read(stored), stored);
#endif
  }
}

TEST_CASE("the check that the samples share sees what is wrong") {
  Array counted({10'000}, tessera::i32);
  for (int32_t i = 0; i < 10'000; ++i) counted.data<int32_t>()[static_cast<size_t>(i)] = i;
  setenv("TESSERA_DEVICE", "interpreter", 1);  // no device is asked for its validation messages
  CHECK(sample::check("iota", counted, {.entries = 0, .row_sums = 0}) == 0);
  counted.data<int32_t>()[4321] += 1;  // no sampled entry, perhaps, but its row's sum
  CHECK(sample::check("iota", counted, {.entries = 0, .row_sums = 0}) == 1);
  Array zeros({10'000}, tessera::i32);
  CHECK(sample::check("iota", zeros, {.entries = 0, .row_sums = 1e9}) == 1);
  Array nans({10'000}, tessera::f32);
  for (float& x : nans.data<float>()) x = NAN;
  CHECK(sample::check("iota", nans, {.entries = 1e9, .row_sums = 1e9}) == 1);
  CHECK(sample::check("nans", nans, [](int64_t) { return 0.0; }, 1e9) == 1);
  CHECK_THROWS_WITH(sample::check("iota", Array({100, 100}, tessera::i32), {.entries = 0, .row_sums = 0}),
                    "the result 100 x 100 has not the shape of the stored answers");
  unsetenv("TESSERA_DEVICE");
}

TEST_CASE("the blur takes pictures of any size") {
  const Scratch folder;
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1}, {1, 300}, {600, 2}, {37, 257}};
  uint32_t seed = 1;
  for (const auto& [h, w] : sizes) {
    Array noise = sample::random({3, h, w}, seed++);
    for (float& x : noise.data<float>()) x = x > 0 ? 1 : 0;  // survives a PNG
    sample::write_png(folder.at("in.png"), noise);
    for (const char* device : {kInterpreter, kVulkan}) {
      std::filesystem::remove(folder.at("out.png"));
      const Outcome o = run(folder, device, "blur", "in.png out.png");
      INFO(o.output);
      REQUIRE(o.code == 0);
      CHECK(blur_error(noise, sample::read_png(folder.at("out.png"))) < kHalfALevel);
    }
  }
}

TEST_CASE("pictures: grey, transparent and of 16 bits, and files that are none") {
  const Scratch folder;
  const auto write = [&](uint32_t format, uint32_t width, const void* pixels) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.format = format;
    image.width = width;
    image.height = 1;
    REQUIRE(png_image_write_to_file(&image, folder.at("in.png").c_str(), 0, pixels, 0, nullptr));
    return sample::read_png(folder.at("in.png"));
  };
  const uint8_t grey[] = {0, 51, 255};
  const Array g = write(PNG_FORMAT_GRAY, 3, grey);
  CHECK(g.shape() == tessera::Shape{3, 1, 3});
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t x = 0; x < 3; ++x) CHECK(g.at(c * 3 + x) == doctest::Approx(grey[x] / 255.0));
  const uint8_t clear_and_red[] = {9, 9, 9, 0, 255, 0, 0, 255};
  const Array a = write(PNG_FORMAT_RGBA, 2, clear_and_red);
  const double white_red[] = {1, 1, 1, 0, 1, 0};
  for (int64_t i = 0; i < 6; ++i) CHECK(a.at(i) == white_red[i]);
  const uint16_t linear[] = {0, 65535, 65535, 65535, 0, 0};  // 16 bits, linear light
  const Array l = write(PNG_FORMAT_LINEAR_RGB, 2, linear);
  const double cyan_red[] = {0, 1, 1, 0, 1, 0};
  for (int64_t i = 0; i < 6; ++i) CHECK(l.at(i) == cyan_red[i]);

  Array odd({3, 1, 2}, std::vector<float>{-1, 2, NAN, 0.5f, 0.2f, 1});
  sample::write_png(folder.at("odd.png"), odd);
  const Array back = sample::read_png(folder.at("odd.png"));
  const double levels[] = {0, 255, 0, 128, 51, 255};
  for (int64_t i = 0; i < 6; ++i) CHECK(std::lround(back.at(i) * 255) == levels[i]);
  CHECK_THROWS_WITH(sample::write_png("flat.png", Array({4, 4}, tessera::f32)),
                    "flat.png: a picture is [3, height, width], not (4, 4)");

  // 65 bytes that would be 10 GB.
  constexpr char kBomb[] =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15\0\0\0\x08IDAT\x78\x9c\x03\0"
      "\0\0\0\x01\x48\x06\x89\xd2\0\0\0\0IEND\xae\x42\x60\x82";
  std::ofstream(folder.at("bomb.png"), std::ios::binary).write(kBomb, sizeof kBomb - 1);
  CHECK_THROWS_WITH(
      sample::read_png(folder.at("bomb.png")),
      (folder.at("bomb.png") + ": a picture of 60000 x 60000 pixels, and at most 67108864 are read").c_str());

  std::ofstream(folder.at("text.png")) << "this is no picture";
  const Outcome text = run(folder, kInterpreter, "blur", "text.png");
  CHECK(text.code == 1);
  CHECK(text.output == "blur: text.png: Not a PNG file\n");
  const Outcome none = run(folder, kInterpreter, "blur", "none.png");
  CHECK(none.code == 1);
  CHECK(none.output == "blur: none.png: no such file\n");
}

TEST_CASE("demos: words over a picture") {
  std::vector<uint8_t> rgba(size_t{4} * 20 * 11, 90);
  sample::draw_text(rgba.data(), 20, 11, 4, 1, 1, "1\nAAAA");  // the second line and its last character are cut off
  std::string rows;
  for (size_t y = 0; y < 11; ++y) {
    for (size_t x = 0; x < 20; ++x) {
      const uint8_t v = rgba[4 * (y * 20 + x)];
      rows += v == 255 ? '#' : v == 30 ? '.' : ' ';
      CHECK(rgba[4 * (y * 20 + x) + 3] == 90);
    }
    rows += '\n';
  }
  CHECK(rows ==
        "                    \n"
        " ......             \n"
        " ...#..             \n"
        " ..##..             \n"
        " ...#..             \n"
        " ...#..             \n"
        " ...#..             \n"
        " ...#..             \n"
        " ..###.             \n"
        " ......             \n"
        " ...................\n");
}

TEST_CASE("demos: their options, and animated PNGs, which are PNGs") {
  const Scratch folder;
  Array red({3, 2, 4}, tessera::f32), white({3, 2, 4}, tessera::f32);
  for (int64_t i = 0; i < red.size(); ++i)
    white.data<float>()[static_cast<size_t>(i)] = 1, red.data<float>()[static_cast<size_t>(i)] = i < 8 ? 1 : 0;
  sample::write_apng(folder.at("a.png"), {red, white, red}, 100);
  const Array first = sample::read_png(folder.at("a.png"));
  for (int64_t i = 0; i < red.size(); ++i) CHECK(first.at(i) == red.at(i));
  const std::string file = read(folder.at("a.png"));
  const auto count = [&](const std::string& type) {
    int n = 0;
    for (size_t at = file.find(type); at != std::string::npos; at = file.find(type, at + 1)) ++n;
    return n;
  };
  CHECK(count("acTL") == 1);
  CHECK(count("fcTL") == 3);
  CHECK(count("fdAT") == 2);
  CHECK(file.find("acTL") < file.find("IDAT"));
  CHECK_THROWS_WITH(sample::write_apng("b.png", {}, 100), "b.png: there is no frame");
  CHECK_THROWS_WITH(sample::write_apng("b.png", {red, Array({3, 2, 2}, tessera::f32)}, 100),
                    "b.png: frame 1 is (3, 2, 2), the first one (3, 2, 4)");

  const Outcome help = run(folder, kInterpreter, "ray_march", "--help");
  CHECK(help.code == 0);
  CHECK(help.output ==
        "ray_march [-o FILE] [--size WxH] [--frames N] [--window] [--hold SECONDS]\nSpheres that melt into each other "
        "over a floor, by sphere tracing.\n"
        "  -o, --output  the PNG file (ray_march.png)\n  --size        columns and rows of pixels (160x160)\n"
        "  --frames      pictures; several make an animated PNG (16)\n"
        "  --window      shows them in a window, with the frames per second; without --frames until it is closed\n"
        "  --hold        seconds that the window stays after the last one (0)\n");
  const std::string usage = "\nusage: ray_march [-o FILE] [--size WxH] [--frames N] [--window] [--hold SECONDS]\n";
  for (const char* wrong : {"0", "12", "12x", "x12", "12x0", "12x8x4", "12x10001"}) {
    const Outcome o = run(folder, kInterpreter, "ray_march", std::string("--size ") + wrong);
    CHECK(o.code == 1);
    CHECK(o.output == std::string("ray_march: --size takes two numbers from 1 to 10000, as 640x360, not \"") + wrong +
                          "\"" + usage);
  }
  const Outcome frames = run(folder, kInterpreter, "ray_march", "--frames 0");
  CHECK(frames.code == 1);
  CHECK(frames.output == "ray_march: --frames takes a number from 1 to 10000, not \"0\"" + usage);
  const Outcome option = run(folder, kInterpreter, "ray_march", "--fast");
  CHECK(option.code == 1);
  CHECK(option.output == "ray_march: unknown option --fast" + usage);
}

}  // namespace samples_test
