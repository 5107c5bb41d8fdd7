#include "samples/transformer/weights.h"

#include <cmath>
#include <stdexcept>

#include "samples/support/sample.h"

namespace transformer {

SafeTensors made_up(const Config& c, ts::DType dtype) {
  SafeTensors file;
  file.metadata = to_metadata(c);
  uint32_t seed = 1;
  for (const auto& [name, shape] : weight_shapes(c)) {
    const bool norm = shape.size() == 1;
    // of variance 1 / rows
    const double scale = norm ? 0.1 : name == "embedding" ? 1 : std::sqrt(3 / static_cast<double>(shape[0]));
    const ts::Array u = sample::random(shape, seed++);
    ts::Array w(shape, dtype);
    for (int64_t i = 0; i < w.size(); ++i) {
      const double x = (norm ? 1 : 0) + scale * u.at(i);
      if (dtype == ts::f32) w.data<float>()[static_cast<size_t>(i)] = static_cast<float>(x);
      else w.set_element_bits(i, ts::to_narrow_bits(dtype, x));
    }
    file.tensors.emplace(name, std::move(w));
  }
  return file;
}

std::vector<ts::Array> weights_of(const SafeTensors& file, const Config& c) {
  std::vector<ts::Array> list;
  for (const auto& [name, shape] : weight_shapes(c)) {
    const auto at = file.tensors.find(name);
    if (at == file.tensors.end()) throw std::runtime_error("there is no tensor \"" + name + "\"");
    if (at->second.shape() != shape)
      throw std::runtime_error("tensor \"" + name + "\" has shape " + ts::to_string(at->second.shape()) + ", not " +
                               ts::to_string(shape));
    if (!list.empty() && at->second.dtype() != list[0].dtype())
      throw std::runtime_error("tensor \"" + name + "\" is " + std::string(ts::name(at->second.dtype())) +
                               ", but \"embedding\" " + std::string(ts::name(list[0].dtype())));
    list.push_back(at->second);
  }
  return list;
}

}  // namespace transformer
