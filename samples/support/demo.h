// What the demos share: their options, progress, windows and animated pictures. A demo draws frames, writes them as a
// PNG or, if there are several, an animated PNG, and checks its own numbers; under --window it shows them too. No
// kernels. Read next: picture.h, sample.h, window.h.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "samples/support/picture.h"
#include "samples/support/sample.h"

namespace sample {

struct Demo {
  std::string name, what;  // in one line
  int64_t width, height;   // of the picture, in pixels
  int64_t frames;
  std::string out = "";  // NAME.png
  bool window = false;
  bool endless = false;  // a window without --frames: until it is closed, and nothing is written
  int64_t hold = 0;      // seconds that the window stays after the last frame
};
/// The defaults with what the command line says: [-o FILE] [--size WxH] [--frames N] [--window] [--hold SECONDS].
/// --help prints and exits; on the interpreter (TESSERA_DEVICE) the defaults are smaller. Throws std::runtime_error for
/// anything else, and for a file that cannot be written.
Demo demo_options(int argc, char** argv, Demo defaults);
/// Says on stderr how far it is, if that is a terminal.
void progress(const Demo& demo, int64_t frame);

/// Pictures [3, h, w] as write_png, one after another for ever; readers that know no animation show the first one.
void write_apng(const std::string& path, const std::vector<tessera::Array>& frames, int milliseconds);
/// Writes `frames` to demo.out: a PNG of one, else an animation.
void write_frames(const Demo& demo, const std::vector<tessera::Array>& frames, int milliseconds = 60);

/// Takes a demo's pictures one after another: shows them where that is asked for, says how far it is, and keeps them to
/// be written.
///   for (sample::Player player(demo); player.more();) player.show(draw(player.frame()));
class Player {
 public:
  /// Opens the window, if there is to be one, for pictures of demo.width columns and demo.height rows. Throws
  /// std::runtime_error if there can be none.
  explicit Player(const Demo& demo);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  bool more() const { return open_ && (demo_.endless || frame_ < demo_.frames); }
  int64_t frame() const { return frame_; }  ///< of the next picture, from 0
  void show(const tessera::Array& picture);
  /// Writes the pictures to demo.out, unless the window went on until it was closed, and says so with the frames per
  /// second; and lets the window stay for a while.
  void finish();
  const tessera::Array& first() const { return kept_.at(0); }

 private:
  struct Window;
  Demo demo_;
  int64_t frame_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool open_ = true;
  std::vector<tessera::Array> kept_;
  std::unique_ptr<Window> window_;
};

}  // namespace sample
