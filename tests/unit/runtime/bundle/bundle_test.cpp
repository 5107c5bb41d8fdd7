// Kernels from a bundle on the device: found, run, prewarmed and reloaded.
#include "runtime/bundle.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "codegen/make_bundle.h"
#include "codegen/program/bundle.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/launch.h"
#include "runtime/typed_array.h"
#include "tests/unit/runtime/support.h"

namespace bundle_test {
using namespace tessera;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

/// y = factor * x, of f32[n]; under that name.
ir::Kernel times(const std::string& name, int factor) {
  return ir::parse("tir 1\nkernel @" + name +
                       "\ngrid (cdiv(n, 64))\nin f32[n] block (64) map (%i) { yield %i }\nout f32[n] block (64) map "
                       "(%i) { yield %i }\nbody (%x, %y) {\n"
                       "  %a = load %x[0:64]\n  %b = constant " +
                       std::to_string(factor) + ".0 : f32[64]\n  %c = mul %a, %b\n  store %y[0:64], %c\n  yield\n}\n",
                   name + ".tir");
}
std::string bundle_of(std::initializer_list<ir::Kernel> kernels) {
  std::vector<BundleSource> sources;
  for (const ir::Kernel& k : kernels) sources.push_back({k, {"x", "y"}});
  const Target targets[] = {minimum_target(), lavapipe_target(), gpu_target()};
  return bundle_to_bytes(make_bundle(sources, targets).file);
}
std::span<const std::byte> bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

struct File {
  std::string path = temporary_path("bundle").string();
  explicit File(const std::string& content) { write(content); }
  ~File() { fs::remove(path); }
  void write(const std::string& content) const { std::ofstream(path, std::ios::binary) << content; }
};

std::vector<float> multiples(int64_t n, float factor) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(factor * static_cast<float>(i));
  return v;
}
std::vector<float> run(const CompiledKernel& k, int64_t n) { return floats(k({DeviceArray(k.device(), ramp(n))})[0]); }

}  // namespace

TEST_CASE("kernels of a bundle run on the device") {
  const Bundle b(bytes(bundle_of({times("twice", 2), times("thrice", 3)})), "k.tsb");
  CHECK(b.kernels() == std::vector<std::string>{"twice", "thrice"});
  const auto arguments = b.arguments("twice");
  REQUIRE(arguments.size() == 2);
  CHECK(arguments[0].name == "x");
  CHECK(arguments[1].is_output);
  CHECK(to_string(arguments[1].shape) == "(n,)");
  const uint64_t compiled = compile_counts().compiled;
  CHECK(run(b.kernel(device(), "twice"), 100) == multiples(100, 2));
  CHECK(run(b.kernel(device(), "thrice"), 70) == multiples(70, 3));
  CHECK(b.kernel(device(), "thrice").run({ramp(5)})[0].at(4) == 12);
  CHECK(compile_counts().compiled == compiled);
  if (device().info().name.starts_with("llvmpipe")) CHECK(b.variant(device(), "twice") == "llvmpipe");
  CHECK(("\n" + b.explain(device(), "twice")).find("\n" + b.variant(device(), "twice") + ": taken: for ") !=
        std::string::npos);
  check_clean(device());
}

TEST_CASE("what is not there, and arguments that do not fit, are errors in words") {
  const Bundle b(bytes(bundle_of({times("twice", 2), times("thrice", 3)})), "k.tsb");
  CHECK(error_of<SpecError>([&] { b.kernel(device(), "four"); }) ==
        "k.tsb: has no kernel \"four\"\n  note: its kernels are twice, thrice");
  CHECK(error_of<SpecError>([&] { b.arguments(""); }) ==
        "k.tsb: has no kernel \"\"\n  note: its kernels are twice, thrice");
  const CompiledKernel k = b.kernel(device(), "twice");
  CHECK(error_of<SpecError>([&] { k.run({}); }) == "twice: takes 1 argument but 0 were given\n  at twice.tir:2");
  CHECK(error_of<SpecError>([&] { k.run({Array({2, 2}, f32)}); }) ==
        "twice: argument 0: shape (2, 2) has 2 dims but the kernel takes (n,) with 1\n  at twice.tir:4");
  CHECK(error_of<SpecError>([&] { k.run({Array({2}, i32)}); }) ==
        "twice: argument 0: dtype is i32 but the kernel takes f32\n  at twice.tir:4");
  CHECK(signature(k.program()) == "(f32[n]) -> (f32[n])");
  CHECK(error_of<SpecError>([&] { checked(k, "(f32[8]) -> (f32[8])"); }) ==
        "twice: the bundle's kernel is (f32[n]) -> (f32[n]) but the header was made for (f32[8]) -> (f32[8])\n  at "
        "twice.tir:2\n  note: use the header that tessera bundle wrote with the bundle");
  CHECK(error_of<BundleError>([] { Bundle("/nowhere/k.tsb"); }) == "/nowhere/k.tsb: cannot be read");
  CHECK(error_of<BundleError>([] { Bundle(fs::temp_directory_path().string()); }) ==
        fs::temp_directory_path().string() + ": cannot be read");
  CHECK(error_of<SpecError>([] { TypedArray<f32, 2>(DeviceArray(device(), {3}, i32)); }) ==
        "TypedArray: the array is i32(3,) but one of f32 with 2 dims is wanted");
  CHECK(error_of<SpecError>([] { TypedArray<f32, 1>(DeviceArray(device(), {3, 1}, f32)); }) ==
        "TypedArray: the array is f32(3, 1) but one of f32 with 1 dim is wanted");
}

TEST_CASE("reload: kernels taken before stay, a bad file changes nothing") {
  const std::string first = bundle_of({times("twice", 2)}),
                    second = bundle_of({times("twice", 20), times("thrice", 3)});
  const File file(first);
  Bundle b(file.path);
  const Bundle copy = b;
  const CompiledKernel old = b.kernel(device(), "twice");
  CHECK_FALSE(b.reload());
  file.write(second);
  const Bundle fixed = b.snapshot();
  CHECK(b.reload());
  CHECK_FALSE(b.reload());
  CHECK(copy.kernels().size() == 2);  // copies share it
  CHECK(fixed.kernels().size() == 1);
  CHECK(run(old, 10) == multiples(10, 2));
  CHECK(run(b.kernel(device(), "twice"), 10) == multiples(10, 20));
  file.write(second.substr(0, 1000));
  CHECK(error_of<BundleError>([&] { b.reload(); }) == file.path + ": is cut off: its kernels take " +
                                                          std::to_string(second.size() - 40) +
                                                          " bytes and it has 960 of them");
  CHECK(run(b.kernel(device(), "thrice"), 10) == multiples(10, 3));
  fs::remove(file.path);
  CHECK(error_of<BundleError>([&] { b.reload(); }) == file.path + ": cannot be read");
  file.write(first);
  CHECK(b.reload());
  CHECK(b.kernels() == std::vector<std::string>{"twice"});
  Bundle from_memory(bytes(first), "k.tsb");
  CHECK_FALSE(from_memory.reload());
  check_clean(device());
}

TEST_CASE("prewarm makes a bundle's pipelines, with progress") {
  const Bundle b(bytes(bundle_of({times("twice", 2), times("thrice", 3), times("four", 4)})), "k.tsb");
  const Device fresh;
  std::vector<std::string> heard;
  prewarm(fresh, b, {.threads = 2, .progress = [&](const Prewarmed& p) {
                       CHECK(p.done == heard.size() + 1);
                       CHECK(p.total == 3);
                       heard.push_back(p.kernel);
                     }});
  CHECK(heard.size() == 3);
  const uint64_t made = pipeline_counts(fresh).made;
  CHECK(made == 3);
  CHECK(run(b.kernel(fresh, "four"), 9) == multiples(9, 4));
  CHECK(pipeline_counts(fresh).made == made);
  CHECK(error_of<SpecError>([&] { prewarm(fresh, b, {.threads = -1}); }) ==
        "BundlePrewarmOptions::threads is -1, which is below 0");
  CHECK(error_of<Error>([&] { prewarm(fresh, b, {.progress = [](const Prewarmed&) { throw Error("stop"); }}); }) ==
        "stop");
}

TEST_CASE("prewarm that fails half way: what is ready stays, and the next time makes the rest") {
  const Bundle b(bytes(bundle_of({times("twice", 2), times("thrice", 3), times("four", 4)})), "k.tsb");
  vulkan::Faults faults;
  const Device fresh;
  faults.fail("vkCreateComputePipelines", 1, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  std::vector<std::string> heard;
  const auto prewarmed = [&] {
    prewarm(fresh, b, {.threads = 1, .progress = [&](const Prewarmed& p) { heard.push_back(p.kernel); }});
  };
  CHECK(error_of<DeviceError>(prewarmed) == "thrice: vkCreateComputePipelines on " + fresh.info().name +
                                                ": VK_ERROR_OUT_OF_DEVICE_MEMORY\n  at thrice.tir:2");
  CHECK(heard == std::vector<std::string>{"twice"});
  CHECK(pipeline_counts(fresh).made == 1);
  heard.clear();
  prewarmed();
  CHECK(heard == std::vector<std::string>{"twice", "thrice", "four"});
  CHECK(pipeline_counts(fresh).made == 3);
  CHECK(run(b.kernel(fresh, "thrice"), 9) == multiples(9, 3));
}

TEST_CASE("a bundle is taken from while another thread reloads it") {
  const std::string first = bundle_of({times("twice", 2)}), second = bundle_of({times("twice", 20)});
  const File file(first);
  Bundle b(file.path);
  std::atomic<bool> stop{false};
  std::jthread reloading([&] {
    for (int i = 0; !stop; ++i) {
      file.write(i % 2 ? first : second);
      try {
        b.reload();
      } catch (const Error&) {  // it was read while it was written
      }
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> y = run(b.kernel(device(), "twice"), 3);
    CHECK((y == multiples(3, 2) || y == multiples(3, 20)));
  }
  stop = true;
}

}  // namespace bundle_test
