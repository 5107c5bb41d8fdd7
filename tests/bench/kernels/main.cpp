// Times the kernels of samples/kernels at sizes that people run them at: bench_kernels [--ir] [--small] [NAME...]. Per
// kernel: the median of seven calls on the best device, arrays already there, and what that makes of the work it has to
// do. --ir prints the kernels' text form instead, for `tessera explain`;
// --small shrinks the sizes for CPU drivers. No test runs it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "engine/ir/text.h"
#include "samples/kernels/flash_attention.h"
#include "samples/kernels/grouped_matmul.h"
#include "samples/kernels/norm.h"
#include "samples/kernels/paged_attention.h"
#include "samples/kernels/quantized_matmul.h"
#include "samples/kernels/rope.h"

namespace {
namespace ts = tessera;
namespace kn = tessera::kernels;
using kn::Type;

struct Entry {
  std::string name;
  ts::PallasCall call;
  std::vector<Type> inputs;
  double work;                        // operations, or bytes
  const char* unit;                   // of 1e9 of them per second
  std::vector<ts::Array> first = {};  // arguments whose numbers matter; zeros are the others
};

std::vector<Entry> entries(bool small) {
  std::vector<Entry> list;
  const auto bytes = [](const std::vector<Type>& types) {
    double n = 0;
    for (const Type& t : types) n += static_cast<double>(ts::num_elements(t.shape) * ts::size_bytes(t.dtype));
    return n;
  };
  {
    const Type x({small ? 256 : 8192, 4096}, ts::bf16), w({4096}, ts::bf16);
    list.push_back({"rms_norm", kn::rms_norm(x, w), {x, w}, bytes({x, x}), "GB/s"});
    list.push_back({"layer_norm", kn::layer_norm(x, w, w), {x, w, w}, bytes({x, x}), "GB/s"});
  }
  {
    const int64_t length = small ? 512 : 4096, heads = small ? 4 : 32, kv_heads = small ? 2 : 8, d = 128;
    const Type q({1, length, heads, d}, ts::bf16), k({1, length, kv_heads, d}, ts::bf16);
    const double products = 4.0 * static_cast<double>(length * length * heads * d);
    list.push_back({"flash_attention", kn::flash_attention(q, k, k), {q, k, k}, products, "GFLOP/s"});
    list.push_back(
        {"flash_attention_causal", kn::flash_attention(q, k, k, {.causal = true}), {q, k, k}, products / 2, "GFLOP/s"});
  }
  {
    const int64_t batch = small ? 2 : 16, length = small ? 512 : 8192, heads = 32, kv_heads = 8, d = 128, page = 16;
    const Type lengths({batch}, ts::i32), table({batch, length / page}, ts::i32), q({batch, heads, d}, ts::bf16),
        pages({batch * length / page, page, kv_heads, d}, ts::bf16);
    list.push_back(
        {"paged_attention",
         kn::paged_attention(lengths, table, q, pages, pages),
         {lengths, table, q, pages, pages},
         bytes({pages, pages}),
         "GB/s",
         {ts::Array({batch}, std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(length)))}});
    const Type x({1, length, heads, d}, ts::bf16), at({1, length}, ts::i32);
    list.push_back({"rope", kn::rope(x, at), {x, at}, bytes({x, x}), "GB/s"});
  }
  {
    const int64_t m = small ? 256 : 4096, k = small ? 512 : 4096, n = small ? 256 : 4096, groups = 8;
    const Type sizes({groups}, ts::i32), a({m, k}, ts::bf16), b({groups, k, n}, ts::bf16);
    const double products = 2.0 * static_cast<double>(m * k * n);
    list.push_back({"grouped_matmul",
                    kn::grouped_matmul(sizes, a, b),
                    {sizes, a, b},
                    products,
                    "GFLOP/s",
                    {ts::Array({groups}, std::vector<int32_t>(groups, static_cast<int32_t>(m / groups - 1)))}});
    const Type w8({k, n}, ts::i8), w4({k / 2, n}, ts::u8), scales({k / 128, n}, ts::bf16), one({1, k}, ts::bf16);
    list.push_back({"int8_matmul", kn::int8_matmul(a, w8, scales), {a, w8, scales}, products, "GFLOP/s"});
    list.push_back({"int4_matmul", kn::int4_matmul(a, w4, scales), {a, w4, scales}, products, "GFLOP/s"});
    list.push_back({"int8_matmul_one_row", kn::int8_matmul(one, w8, scales), {one, w8, scales}, bytes({w8}), "GB/s"});
    list.push_back({"int4_matmul_one_row", kn::int4_matmul(one, w4, scales), {one, w4, scales}, bytes({w4}), "GB/s"});
  }
  return list;
}

/// Seconds of the median call.
double measure(const Entry& e) {
  const ts::Device& device = ts::default_device();
  std::vector<ts::ShapeDtype> types(e.inputs.begin(), e.inputs.end());
  const ts::CompiledKernel kernel = ts::load(device, e.call.trace(types));
  std::vector<ts::DeviceArray> arguments;
  for (const Type& t : e.inputs)
    arguments.emplace_back(device,
                           arguments.size() < e.first.size() ? e.first[arguments.size()] : ts::Array(t.shape, t.dtype));
  std::vector<double> seconds;
  for (int i = 0; i < 8; ++i) {
    const auto start = std::chrono::steady_clock::now();
    kernel(arguments);
    device.wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin() + 1, seconds.end());  // the first one is the driver's compiler
  return seconds[4];
}

}  // namespace

int main(int argc, char** argv) try {
  bool ir = false, small = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--ir")) ir = true;
    else if (!std::strcmp(argv[i], "--small")) small = true;
    else names.emplace_back(argv[i]);
  }
  for (const Entry& e : entries(small)) {
    if (!names.empty() && std::find(names.begin(), names.end(), e.name) == names.end()) continue;
    if (ir) {
      std::cout << ts::ir::print(e.call.trace(std::vector<ts::ShapeDtype>(e.inputs.begin(), e.inputs.end())));
      continue;
    }
    const double seconds = measure(e);
    std::printf("%-26s %10.3f ms %10.1f %s\n", e.name.c_str(), seconds * 1e3, e.work / seconds / 1e9, e.unit);
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_kernels: %s\n", e.what());
  return 1;
}
