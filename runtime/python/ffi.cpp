// The handler that XLA calls for every pallas_call: XLA's buffers to ours, exceptions to XLA's errors. Its headers come
// with jaxlib.
#include <cfenv>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/python/session.h"
#include "xla/ffi/api/ffi.h"

namespace {
namespace ffi = xla::ffi;
using tessera::DType;
using tessera::python::Buffer;

DType dtype(ffi::DataType t) {
  switch (t) {
    case ffi::DataType::PRED: return DType::boolean;
    case ffi::DataType::S4: return DType::i4;
    case ffi::DataType::U4: return DType::u4;
    case ffi::DataType::S8: return DType::i8;
    case ffi::DataType::S16: return DType::i16;
    case ffi::DataType::S32: return DType::i32;
    case ffi::DataType::S64: return DType::i64;
    case ffi::DataType::U8: return DType::u8;
    case ffi::DataType::U16: return DType::u16;
    case ffi::DataType::U32: return DType::u32;
    case ffi::DataType::U64: return DType::u64;
    case ffi::DataType::F8E4M3FN: return DType::f8e4m3fn;
    case ffi::DataType::F8E5M2: return DType::f8e5m2;
    case ffi::DataType::F16: return DType::f16;
    case ffi::DataType::BF16: return DType::bf16;
    case ffi::DataType::F32: return DType::f32;
    case ffi::DataType::F64: return DType::f64;
    default:
      throw tessera::SpecError("tessera: an argument has XLA's dtype " + std::to_string(static_cast<int>(t)) +
                               ", which kernels cannot hold");
  }
}
void set(Buffer& to, const ffi::AnyBuffer& b) {
  const auto dims = b.dimensions();
  to.dtype = dtype(b.element_type());
  to.shape.assign(dims.begin(), dims.end());
  to.data = b.untyped_data();
}

/// A call's arrays. The lists and their shapes' memory are kept by the thread for its next call.
struct Buffers {
  std::vector<Buffer> arguments, results;
};
class KeptBuffers {
 public:
  KeptBuffers() : buffers_(std::exchange(kept(), {})) {}  // a call inside of this one has others
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;
  ~KeptBuffers() { kept() = std::move(buffers_); }
  Buffers& operator*() { return buffers_; }

 private:
  static Buffers& kept() {
    thread_local Buffers b;
    return b;
  }
  Buffers buffers_;
};

// XLA keeps two 4-bit integers in a byte, the first in its lower half; here each has a byte of its own.
struct Halves {
  std::vector<std::unique_ptr<uint8_t[]>> bytes = {};
  std::vector<std::pair<Buffer, uint8_t*>> results = {};  // ours, and XLA's memory

  void unpack(Buffer& b, bool is_result) {
    if (tessera::bits(b.dtype) != 4) return;
    const auto n = static_cast<size_t>(tessera::num_elements(b.shape));
    uint8_t* const own = bytes.emplace_back(std::make_unique<uint8_t[]>(n)).get();
    auto* const packed = static_cast<uint8_t*>(b.data);
    for (size_t i = 0; !is_result && i < n; ++i) own[i] = packed[i / 2] >> (i % 2 * 4) & 15;
    b.data = own;
    if (is_result) results.emplace_back(b, packed);
  }
  void pack() const {
    for (const auto& [ours, packed] : results) {
      const auto n = static_cast<size_t>(tessera::num_elements(ours.shape));
      const auto* const own = static_cast<const uint8_t*>(ours.data);
      for (size_t i = 0; i < n; i += 2)
        packed[i / 2] = static_cast<uint8_t>((own[i] & 15) | (i + 1 < n ? own[i + 1] << 4 : 0));
    }
  }
};

// XLA's threads take subnormal numbers for zeros, and so would what the interpreter does on them.
#if defined(__x86_64__)
// as <cfenv> would, but for the registers of the x87, which XLA leaves alone and which take long
struct SubnormalsKept {
  unsigned before = _mm_getcsr();
  SubnormalsKept() { _mm_setcsr(0x1f80); }
  SubnormalsKept(const SubnormalsKept&) = delete;
  SubnormalsKept& operator=(const SubnormalsKept&) = delete;
  ~SubnormalsKept() { _mm_setcsr(before); }
};
#else
struct SubnormalsKept {
  std::fenv_t before;
  SubnormalsKept() {
    std::fegetenv(&before);
    std::fesetenv(FE_DFL_ENV);
  }
  SubnormalsKept(const SubnormalsKept&) = delete;
  SubnormalsKept& operator=(const SubnormalsKept&) = delete;
  ~SubnormalsKept() { std::fesetenv(&before); }
};
#endif

ffi::Error run(std::string_view module, std::string_view key, std::string_view device, ffi::RemainingArgs args,
               ffi::RemainingRets rets) {
  const SubnormalsKept here;
  try {
    KeptBuffers kept;
    auto& [arguments, results] = *kept;
    Halves halves;
    arguments.resize(args.size());
    results.resize(rets.size());
    for (size_t i = 0; i < args.size(); ++i)
      set(arguments[i], args.get<ffi::AnyBuffer>(i).value()), halves.unpack(arguments[i], false);
    for (size_t i = 0; i < rets.size(); ++i)
      set(results[i], *rets.get<ffi::AnyBuffer>(i).value()), halves.unpack(results[i], true);
    tessera::python::call({module, key, device}, arguments, results);
    halves.pack();
    return ffi::Error::Success();
  } catch (const tessera::SpecError& e) {
    return ffi::Error::InvalidArgument(e.what());
  } catch (const std::exception& e) {
    return ffi::Error::Internal(e.what());
  }
}
// For the benchmark of a call's overhead.
ffi::Error nothing(ffi::RemainingArgs, ffi::RemainingRets) { return ffi::Error::Success(); }
}  // namespace

#pragma GCC visibility push(default)
XLA_FFI_DEFINE_HANDLER_SYMBOL(tessera_call, run,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("module")
                                  .Attr<std::string_view>("key")
                                  .Attr<std::string_view>("device")
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tessera_nothing, nothing, ffi::Ffi::Bind().RemainingArgs().RemainingRets());
#pragma GCC visibility pop
