// The scenes, each of graphics passes of the host's and kernels of Tessera's in one command buffer per frame.
#pragma once
#include <runtime/interop.h>  // what a program with Vulkan of its own includes beside tessera.hpp
#include <runtime/record.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <tessera/tessera.hpp>
#include <utility>
#include <vector>

#include "samples/renderer/host.h"

namespace renderer {

/// A kernel, compiled and made ready for the host's frames.
struct Prepared {
  tessera::PreparedKernel prepared;
  Prepared(const tessera::CompiledKernel& kernel, int calls_per_frame, tessera::DimValues dims = {},
           std::vector<tessera::PrepareOptions::Image> images = {})
      : prepared(kernel.device(), kernel.program(),
                 {.frames_in_flight = Host::kFramesInFlight,
                  .calls_per_frame = calls_per_frame,
                  .dims = std::move(dims),
                  .images = std::move(images)}) {}
};

class CheckedScene : public Scene {
 public:
  /// The greatest difference, relative to values above 1, between what `frames` frames have left on the device and what
  /// the interpreter makes of the same.
  virtual double check(uint64_t frames) = 0;
};

struct FluidOptions {
  int64_t rows, columns;  // of the fluid's grid
  int64_t particles;
};
std::unique_ptr<CheckedScene> make_fluid(Host& host, const tessera::Device& device, FluidOptions options);

/// Columns, arches, cloth and leaves in the light of one ray per pixel, denoised over frames and space, with
/// antialiasing, bloom and tone mapping. `raw` leaves out all but the tone mapping; `by_hand` runs one pass of the
/// denoiser once more, by a shader written by hand; `detail`: of how many triangles; `upscale`: 2 to do
/// all at half the size, and enlarge the picture by a small network.
struct HallOptions {
  bool raw = false, by_hand = false;
  double detail = 1;
  uint32_t upscale = 1;
};
std::unique_ptr<CheckedScene> make_hall_scene(Host& host, const tessera::Device& device, HallOptions options);

inline double worst(const tessera::Array& got, const tessera::Array& expected) {
  double worst = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got.at(i) - expected.at(i)) / std::max(1.0, std::abs(expected.at(i)));
    worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
  }
  return worst;
}

struct Target {
  VkImageView view;
  VkAttachmentLoadOp load;
  VkClearColorValue clear = {};
};
/// vkCmdBeginRendering over the whole images, with viewport and scissor.
void begin_rendering(VkCommandBuffer commands, VkExtent2D size, const std::vector<Target>& colors,
                     VkImageView depth = VK_NULL_HANDLE,
                     VkAttachmentStoreOp keep_depth = VK_ATTACHMENT_STORE_OP_DONT_CARE);

}  // namespace renderer
