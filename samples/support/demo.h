// What the demos share: their options, progress, and animated pictures. A demo draws frames, writes them as a PNG or, if there are several, an animated PNG, and
// checks its own numbers. No kernels. Read next: picture.h, sample.h.
#pragma once
#include <string>
#include <vector>

#include "samples/support/picture.h"
#include "samples/support/sample.h"

namespace sample {

struct Demo {
  std::string name, what;  // in one line
  int64_t size;            // of the picture's longer side, in pixels
  int64_t frames;
  std::string out = "";    // NAME.png
};
/// The defaults with what the command line says: [--size N] [--frames N] [OUT.png]. --help prints and exits; on the interpreter (TESSERA_DEVICE) the defaults are
/// smaller. Throws std::runtime_error for anything else.
Demo demo_options(int argc, char** argv, Demo defaults);
/// Says on stderr how far it is, if that is a terminal.
void progress(const Demo& demo, int64_t frame);

/// Pictures [3, h, w] as write_png, one after another for ever; readers that know no animation show the first one.
void write_apng(const std::string& path, const std::vector<tessera::Array>& frames, int milliseconds);
/// Writes `frames` to demo.out: a PNG of one, else an animation.
void write_frames(const Demo& demo, const std::vector<tessera::Array>& frames, int milliseconds = 60);

}  // namespace sample
