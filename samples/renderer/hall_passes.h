// What Tessera's kernels do in a frame of the hall: denoise light and gloss over frames and space, put them on the
// surfaces' colours, smooth edges over frames, bloom, map the tones and enlarge the picture, all recorded into the
// host's command buffer. The kernels are those of samples/kernels/temporal.h, post_processing.h and upscale.h. Read
// next: hall.cpp.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "samples/renderer/scenes.h"

namespace renderer {

/// The host's images of a frame, and its buffers that the host's own shaders read kernels' results from.
struct HallImages {
  const Image *light, *gloss, *guide, *surface, *motion, *screen;
};

class HallPasses {
 public:
  /// `enlarges`: the screen's image has twice the others' size.
  HallPasses(Host& host, const tessera::Device& device, bool raw, bool enlarges);
  ~HallPasses();
  void resize(const HallImages& images);
  /// What the first pass waits for.
  tessera::Scopes scopes() const;
  /// The images are in SHADER_READ_ONLY_OPTIMAL; the screen's becomes TRANSFER_SRC_OPTIMAL.
  tessera::Scopes record(VkCommandBuffer commands, uint64_t frame);
  /// The last a-trous pass once more, by a shader written by hand, into a buffer of its own.
  void record_by_hand(VkCommandBuffer commands);
  /// Of the frame before: f32 [h, w, 4], radiance; and whether there is one.
  VkBuffer picture() const;
  bool has_picture() const { return frames_ > 0; }
  /// The names and times, in ms, of the kernels of the last frame that is known to be done.
  std::vector<std::pair<std::string, double>> times(uint64_t frame) const;
  /// The greatest difference of what the last frame made of its images from the interpreter's, from the same history;
  /// also of the shader by hand, if it ran.
  double check();

 private:
  struct Kernels;
  struct Sized;
  Host& host_;
  tessera::Device device_;
  bool raw_, enlarges_, by_hand_ = false;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Sized> sized_;
  std::unique_ptr<tessera::CommandStream> stream_;
  uint64_t frames_ = 0;  // since the last resize
};

}  // namespace renderer
