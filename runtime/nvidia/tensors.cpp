#include "runtime/nvidia/tensors.h"

#include <array>
#include <cstring>

namespace tessera::cuda {
namespace {

TensorType type_of(const Program& p, DType t) {
  if (t == DType::f16) return TensorType::f16;
  if (t == DType::bf16) return TensorType::bf16;
  if (size_bytes(t) == 1) return TensorType::u8;
  throw DeviceError(p.name + ": no tensors of " + std::string(name(t)) + " are encoded", p.loc);
}

}  // namespace

void put_tensors(const Driver& d, const Program& p, const DimValues& dims, const std::vector<Address>& addresses,
                 std::span<std::byte> block) {
  if (p.tensors.empty()) return;
  if (!d.cuTensorMapEncodeTiled)
    throw DeviceError(p.name + ": NVIDIA's driver has no function cuTensorMapEncodeTiled", p.loc,
                      "install a newer driver");
  for (size_t i = 0; i < p.tensors.size(); ++i) {
    const ProgramTensor& t = p.tensors[i];
    const ProgramArg& arg = p.args[static_cast<size_t>(t.array)];
    const size_t rank = arg.shape.size();
    std::array<uint64_t, kMostTensorDims> sizes{}, strides{};  // the last dim first
    std::array<uint32_t, kMostTensorDims> box{}, ones{};
    uint64_t bytes = static_cast<uint64_t>(size_bytes(arg.dtype));
    for (size_t j = 0; j < rank; ++j) {
      sizes[j] = static_cast<uint64_t>(arg.shape[rank - 1 - j].eval(dims));
      bytes *= sizes[j];
      strides[j] = bytes;  // from one to the next along the dim behind it
      box[j] = static_cast<uint32_t>(t.box[rank - 1 - j]);
      ones[j] = 1;
    }
    alignas(Program::kTensorAlignment) std::array<std::byte, Program::kTensorBytes> map{};
    d.check(d.cuTensorMapEncodeTiled(map.data(), type_of(p, arg.dtype), static_cast<unsigned>(rank),
                                     addresses[static_cast<size_t>(t.array)], sizes.data(), strides.data(), box.data(),
                                     ones.data(), kTensorPlain, kTensorSwizzle128, kTensorPromotion128, kTensorZeros),
            "cuTensorMapEncodeTiled", p.name + ": " + arg.origin, p.loc);
    std::memcpy(&block[static_cast<size_t>(p.tensors_at()) + i * map.size()], map.data(), map.size());
  }
}

}  // namespace tessera::cuda
