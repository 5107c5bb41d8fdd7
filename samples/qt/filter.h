// The kernels of samples/qt. Pictures are f32 [height, width, 4]: red, green, blue and alpha from 0 to 1, encoded as
// sRGB. What a slider sets is a number by value, given with every recorded call.
#pragma once
#include <tessera/tessera.hpp>

namespace filter {

/// bilateral(range, picture) -> the mean of the 7 x 7 texels around each, weighted by distance and by how alike their
/// colours are (Tomasi and Manduchi, 1998): differences of `range` count 0.6 times as much as none.
tessera::PallasCall bilateral(int64_t height, int64_t width);

/// develop(exposure, sharpness, contrast, picture) -> the picture, plus `sharpness` times what differs from its 3 x 3
/// neighbours, its light times 2^exposure, and a curve that is `contrast` times as steep in the middle. 0, 0 and 1
/// leave it as it is, up to roundings.
tessera::PallasCall develop(int64_t height, int64_t width);

}  // namespace filter
