#include "engine/base/bind.h"

#include "engine/interpreter/interpreter.h"

namespace tessera {
namespace {
CallSignature signature(const ir::Kernel& k) {
  CallSignature s{k.name, k.loc, {}, static_cast<size_t>(k.num_inputs), {}, k.dim_names()};
  for (const ir::BlockMapping& b : k.blocks) s.args.push_back({b.origin, b.dtype, b.array_shape, b.loc});
  for (const ir::GridAxis& axis : k.grid) s.grid.push_back(&axis.size);
  return s;
}
}  // namespace

DimValues bind_dims(const ir::Kernel& k, const std::vector<std::pair<DType, Shape>>& inputs, const DimValues& given) {
  return bind_dims(signature(k), inputs, given);
}
Shape bind_shape(const ir::Kernel& k, int block, const DimValues& dims) {
  return bind_shape(signature(k), static_cast<size_t>(block), dims);
}
std::vector<int64_t> bind_grid(const ir::Kernel& k, const DimValues& dims) { return bind_grid(signature(k), dims); }

}  // namespace tessera
