// The kernels that samples/ffmpeg runs on the planes of a video in YCbCr: noise removed over time, then tone mapping.
// Planes are f32 arrays [height, width] of texels from 0 to 1; the chroma planes may be half as large.
#pragma once
#include <tessera/tessera.hpp>

namespace filter {

/// What the texels of a plane mean: luma from `black` to `white`, chroma around `neutral` (ITU-T H.273, in 8 bits).
struct Range {
  double black = 16 / 255.0, white = 235 / 255.0, neutral = 128 / 255.0;
};

/// denoise(least, plane, before) -> the plane, of which each texel is mixed with the same one of `before`, the result
/// of the last frame: `least` of it, a number by value, is new where the 5 x 5 texels around it differ by no more than
/// noise does, and all of it where something has moved; there it is half the mean of those. `least` is 1 for the first
/// frame.
tessera::PallasCall denoise(int64_t height, int64_t width);

/// tone_map(luma, cb, cr) -> the same planes. Luma becomes light by a power of 2.4 (ITU-R BT.1886), is multiplied by
/// `exposure`, and goes through a curve that bends where film does (Narkowicz, 2016) and back; chroma is scaled as the
/// luma of its 2 x 2 texels is.
tessera::PallasCall tone_map(int64_t height, int64_t width, double exposure, Range range);

}  // namespace filter
