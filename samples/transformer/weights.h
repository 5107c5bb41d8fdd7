// A model's weights in a .safetensors file: made up, and taken out again in the order in which forward() takes them.
#pragma once
#include "samples/transformer/model.h"
#include "samples/transformer/safetensors.h"

namespace transformer {

/// Seeded numbers of a size that keeps activations near 1, in f32, f16 or bf16, and the configuration as metadata.
SafeTensors made_up(const Config& c, tessera::DType dtype);
/// In the order of weight_shapes(), all of one dtype. std::runtime_error where one is missing, or has another shape or
/// dtype.
std::vector<tessera::Array> weights_of(const SafeTensors& file, const Config& c);

}  // namespace transformer
