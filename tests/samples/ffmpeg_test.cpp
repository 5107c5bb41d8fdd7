// samples/ffmpeg as a program, where this build has FFmpeg's libraries: a video made up, one read, odd sizes, the
// validation layers silent; and what it says where it cannot go on. The program compares itself with the interpreter.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "samples/support/picture.h"
#include "tests/samples/program.h"

namespace ffmpeg_test {

using namespace tessera::test;

namespace {
bool is_built() {
  const bool there = std::filesystem::exists(TESSERA_SAMPLES_BIN "/ffmpeg");
  if (!there) MESSAGE("this build has no FFmpeg (Debian: libavformat-dev libswscale-dev pkg-config): not tested");
  return there;
}
}  // namespace

TEST_CASE("ffmpeg: a video of odd sizes is made up, filtered, encoded, and read again") {
  if (!is_built()) return;
  const Scratch folder;
  const char* const validated = "TESSERA_VALIDATION=1";
  Outcome o = run(folder, validated, "ffmpeg", "--size 71x53 --frames 13 --encoder ffv1 -o a.mkv --sheet a.png");
  INFO(o.output);
  REQUIRE(o.code == 0);
  CHECK(o.output.starts_with("13 frames of 71 x 53 on "));
  CHECK(o.output.find("\nluma is ") != std::string::npos);  // and 3 dB less noisy, which the program itself requires
  CHECK(ends_with(o.output, "\nffmpeg: right\n"));
  CHECK(sample::read_png(folder.at("a.png")).shape() == tessera::Shape{3, 2 * 53, 2 * 71});  // of frames 0 and 10
  o = run(folder, validated, "ffmpeg", "a.mkv --encoder ffv1 -o b.mkv --sheet b.png --exposure 0.7");
  REQUIRE(o.code == 0);
  CHECK(o.output.starts_with("13 frames of 71 x 53 on "));
  CHECK(ends_with(o.output, "before and after of some, which the interpreter agrees with: b.png\nffmpeg: right\n"));
  o = run(folder, validated, "ffmpeg", "--size 2x2 --frames 3 -o c.avi");
  CHECK(o.code == 0);
}

TEST_CASE("ffmpeg: what it says where it cannot go on") {
  if (!is_built()) return;
  const Scratch folder;
  std::ofstream(folder.at("no_video.mkv")) << "no video";
  const auto check = [&](const std::string& arguments, const std::string& says) {
    const Outcome o = run(folder, "", "ffmpeg", arguments);
    INFO(arguments);
    CHECK(o.code != 0);
    CHECK_MESSAGE(o.output.find(says) != std::string::npos, o.output);
  };
  check("--size 1x1", "\"1x1\" is no size: two numbers from 2 to 8192, as 640x360\n");
  check("none.mkv", "input: File does not exist: none.mkv\n");
  check("no_video.mkv", "ffmpeg: no_video.mkv: Invalid data found when processing input\n");
  check(
      "--size 8x8 --frames 1 -o a.gif",
      "ffmpeg: a.gif: FFmpeg's encoder gif takes no yuv420p, in which the frames are: name another one by --encoder\n");
  check("--size 8x8 --encoder nobody", "ffmpeg: FFmpeg has no encoder named nobody\n");
  check("--size 8x8 -o none/a.mkv --encoder ffv1", "ffmpeg: none/a.mkv: No such file or directory\n");
}

}  // namespace ffmpeg_test
