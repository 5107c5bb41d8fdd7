// Pictures as f32 arrays [3, height, width] of colours from 0 to 1, read from and written to PNG files by libpng.
#pragma once
#include <string>
#include <tessera/tessera.hpp>

namespace sample {

/// Any PNG; transparent parts are laid on white. Throws std::runtime_error with the file's name and what libpng says.
tessera::Array read_png(const std::string& path);
/// 8 bits per colour; values outside 0 to 1 are clamped, NaN is 0.
void write_png(const std::string& path, const tessera::Array& picture);
/// Such a picture of the first three of an image's channels, f32[height, width, 4].
tessera::Array planes(const tessera::Array& image);

/// f32 weights [taps] of a Gaussian bell in the middle that add up to 1; sigma in elements.
tessera::Array gaussian(int taps, double sigma);
/// One entry of a picture blurred along both sides by the same weights, the edge going on beyond the picture: straight
/// from the definition.
double blurred_entry(const tessera::Array& picture, const tessera::Array& weights, int64_t position);

}  // namespace sample
