// What a program shows on a screen that is none: a virtual X server (Xvfb) and its frame buffer.
#pragma once
#include <algorithm>
#include <cmath>
#include <tessera/tessera.hpp>

#include "samples/support/picture.h"
#include "tests/samples/program.h"

namespace tessera::test {

inline bool has_xvfb() { return std::system("command -v Xvfb >/dev/null") == 0; }

inline uint32_t big_endian(const std::string& s, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<unsigned char>(s[at + i]);
  return v;
}

// What an X server's frame buffer shows at the upper left, from the file that `Xvfb -fbdir` keeps: X's window dump, 32
// bits per pixel.
inline Array screen(const std::string& xwd, int64_t h, int64_t w) {
  REQUIRE(xwd.size() > 100);
  const size_t pixels = big_endian(xwd, 0) + 12 * size_t{big_endian(xwd, 76)}, line = big_endian(xwd, 48);
  REQUIRE(big_endian(xwd, 44) == 32);
  const bool least_first = big_endian(xwd, 28) == 0;
  Array a({3, h, w}, tessera::f32);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const size_t at = pixels + static_cast<size_t>(y) * line + 4 * static_cast<size_t>(x) +
                          static_cast<size_t>(least_first ? 2 - c : 1 + c);
        REQUIRE(at < xwd.size());
        a.data<float>()[static_cast<size_t>((c * h + y) * w + x)] =
            static_cast<float>(static_cast<unsigned char>(xwd[at])) / 255;
      }
  return a;
}

/// Runs a sample in a folder of its own with the validation layers on, waits until it has written `file`, and leaves a
/// copy of the frame buffer in `shown`, its output in output.txt. The program may go on after that: it is ended. If it
/// has ended by itself, its exit status is in `status`. Gives 0 if the file is there.
inline int run_on_screen(const Scratch& folder, const std::string& sample, const std::string& arguments,
                         const std::string& file) {
  std::ofstream(folder.at("run.sh")) << R"(
mkdir screen
Xvfb -displayfd 3 -screen 0 640x480x24 -fbdir screen 3>display 2>xvfb.txt & server=$!
trap 'kill $server' EXIT
for i in $(seq 100); do [ -s display ] && break; sleep 0.1; done
export DISPLAY=:$(cat display) TESSERA_VALIDATION=1 XDG_RUNTIME_DIR=$PWD
program=$1 file=$2
shift 2
"$program" "$@" > output.txt 2>&1 & program=$!
for i in $(seq 1200); do [ -s "$file" ] && break; kill -0 $program 2>/dev/null || break; sleep 0.1; done
sleep 1
cp screen/Xvfb_screen0 shown
kill -0 $program 2>/dev/null || { wait $program; echo $? > status; exit 1; }
kill $program
)";
  return std::system(("cd '" + folder.path + "' && bash run.sh '" TESSERA_SAMPLES_BIN "/" + sample + "' " + file + " " +
                      arguments + " >log.txt 2>&1")
                         .c_str());
}

/// Runs a sample in a window until it has written last.png, and checks that the screen shows that picture as far as it
/// reaches, each pixel as a square of `times` ones, and that nothing was said. Returns the picture.
inline Array check_on_screen(const std::string& sample, const std::string& arguments, int64_t times) {
  const Scratch folder;
  const int status = run_on_screen(folder, sample, arguments, "last.png");
  INFO(read(folder.at("output.txt")));
  INFO(read(folder.at("log.txt")));
  REQUIRE(status == 0);
  CHECK(read(folder.at("output.txt")) == "");
  Array picture = sample::read_png(folder.at("last.png"));
  REQUIRE(picture.shape().size() == 3);
  const int64_t rows = picture.shape()[1], columns = picture.shape()[2], h = std::min<int64_t>(480, times * rows),
                w = std::min<int64_t>(640, times * columns);
  const Array shown = screen(read(folder.at("shown")), h, w);
  double worst = 0;
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x)
        worst = std::max(
            worst, std::abs(shown.at((c * h + y) * w + x) - picture.at((c * rows + y / times) * columns + x / times)));
  CHECK(worst < 1e-6);
  return picture;
}

}  // namespace tessera::test
