// What tests of runtime/nvidia share: the driver that runs PTX on the emulator (tests/support/cuda), kernels of files
// and their inputs, and a program that stores where it is told to.
#pragma once
#include <bit>
#include <cmath>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/cuda.h"
#include "tests/support/cuda/control.h"
#include "tests/unit/runtime/support.h"

#ifdef TESSERA_FAKE_CUDA

namespace cuda_test {
using namespace tessera;
using namespace tessera::test;

/// The library that is no driver: one device of compute capability 9.0, and nothing left over from other tests.
struct Fake {
  void* library = platform::open_library(TESSERA_FAKE_CUDA);
  CudaOptions options;
  explicit Fake(const FakeCudaDevice& device = {}) {
    REQUIRE(library);
    options.library = TESSERA_FAKE_CUDA;
    call<FakeCudaDescribe>("fake_cuda_describe")(&device);
    fail(nullptr);
    call<FakeCudaReset>("fake_cuda_reset")();
  }
  ~Fake() {
    fail(nullptr);
    CHECK(live() == 0);
    CHECK(std::string(call<FakeCudaMisuse>("fake_cuda_misuse")()) == "");
    call<FakeCudaReset>("fake_cuda_reset")();
    platform::close_library(library);
  }
  void fail(const char* function, int after = 0, int status = 1) const {
    call<FakeCudaFail>("fake_cuda_fail")(function, after, status);
  }
  int live() const { return call<FakeCudaLive>("fake_cuda_live")(); }
  template <class F> F* call(const char* name) const { return reinterpret_cast<F*>(platform::symbol(library, name)); }
};

inline ir::Kernel kernel_of(const std::string& file) {
  const std::string text = contents("tests/tir/" + file + ".tir");
  REQUIRE(!text.empty());
  return ir::parse(text);
}

inline uint64_t bits_of(DType t, int x) {
  if (t == DType::f64) return std::bit_cast<uint64_t>(static_cast<double>(x));
  if (t == DType::f32) return std::bit_cast<uint32_t>(static_cast<float>(x));
  return is_float(t) ? to_narrow_bits(t, x) : t == DType::boolean ? x % 2 : static_cast<uint64_t>(x);
}
/// Small whole numbers, which every dtype has.
inline std::vector<Array> inputs_of(const ir::Kernel& k, const DimValues& dims) {
  std::vector<Array> all;
  for (int i = 0; i < k.num_inputs; ++i) {
    const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
    Shape shape;
    for (const Extent& e : b.array_shape) shape.push_back(e.eval(dims));
    Array a(shape, b.dtype);
    for (int64_t j = 0; j < a.size(); ++j) a.set_element_bits(j, bits_of(b.dtype, static_cast<int>((j + i) % 3)));
    all.push_back(std::move(a));
  }
  return all;
}

inline void same(const std::string& file, const Array& got, const Array& zeros, const Array& pattern) {
  REQUIRE(got.shape() == zeros.shape());
  REQUIRE(got.dtype() == zeros.dtype());
  for (int64_t i = 0; i < got.size(); ++i) {
    if (zeros.element_bits(i) != pattern.element_bits(i)) continue;  // nothing has written it
    const double a = got.at(i), b = zeros.at(i);
    INFO(file, " element ", i, ": ", a, " and ", b);
    CHECK((a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-3 * (1 + std::abs(b))));
  }
}

/// What an error of a lost device says to do.
inline constexpr const char* kAfterLoss =
    "\n  note: CudaDevice::recover() makes the device usable again where the driver allows that, without the contents "
    "of "
    "its arrays; else a new process can use it";

inline constexpr const char* kWrites = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry main(.param .align 8 .b8 arguments[8])
.reqntid 1, 1, 1
{
  .reg .b64 %a;
  .reg .b32 %v;
  ld.param.u64 %a, [arguments];
  mov.b32 %v, 7;
  st.global.b32 [%a+OFFSET], %v;
  ret;
}
)";
/// A program of one i32[4] output, which stores so many bytes behind the array's first one.
inline Program storing_at(const std::string& offset) {
  Program p;
  p.name = "stores";
  ProgramArg out;
  out.origin = "out_shape[0]";
  out.dtype = DType::i32;
  out.shape = {4};
  out.is_output = out.written = true;
  p.args = {out};
  p.ptx = kWrites;
  p.ptx.replace(p.ptx.find("OFFSET"), 6, offset);
  return p;
}

}  // namespace cuda_test

#endif
