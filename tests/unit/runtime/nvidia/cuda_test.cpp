// Calls through NVIDIA's driver, on one that runs PTX on the emulator (tests/support/cuda): kernels against the
// interpreter, every function of the driver failing, kernels that end the context, what names a device.
#include "runtime/cuda.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "codegen/make_bundle.h"
#include "engine/base/npy.h"
#include "engine/front.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/bundle.h"
#include "runtime/call/call.h"
#include "tests/unit/runtime/nvidia/fake.h"

#ifdef TESSERA_FAKE_CUDA

namespace cuda_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("cuda: what the driver shows becomes a Target" * without_device) {
  FakeCudaDevice device;
  {
    const Fake fake(device);
    const auto all = list_cuda_devices(fake.options);
    REQUIRE(all.size() == 1);
    CHECK(all[0].name == "A GPU that is none");
    CHECK(all[0].memory_bytes == 1 << 30);
    CHECK(all[0].lacks.empty());
    CHECK(all[0].target.chip == "sm_90a");
    CHECK(all[0].target.compute_units == 4);
    CHECK(all[0].target.shared_bytes == 227 << 10);
  }
  const auto chip = [&](int major, int minor, int version) {
    device.major = major, device.minor = minor, device.driver_version = version;
    const Fake fake(device);
    const CudaDeviceInfo i = list_cuda_devices(fake.options).at(0);
    return i.lacks.empty() ? i.target.chip : i.lacks[0];
  };
  CHECK(chip(8, 0, 12040) == "sm_80");
  CHECK(chip(8, 9, 12040) == "sm_89");
  CHECK(chip(8, 9, 12000) == "sm_87");  // the driver reads no PTX 8.1
  CHECK(chip(10, 0, 12040) == "sm_90");
  CHECK(chip(9, 0, 12000) == "sm_90a");
  CHECK(chip(9, 0, 11080) == "sm_90");
  CHECK(chip(12, 0, 12090) == "sm_120");
  CHECK(chip(13, 0, 13000) == "sm_121");
  CHECK(chip(7, 5, 12040) == "compute capability 8.0 or later (it has 7.5)");
  CHECK(chip(8, 0, 11060) == "a driver of CUDA 11.8 or later (it has 11.6)");

  // Products of 8-bit floats take PTX 8.4, of a driver of CUDA 12.4.
  for (const int version : {12030, 12040}) {
    device.major = 9, device.minor = 0, device.driver_version = version;
    const Fake fake(device);
    const std::vector<MatrixShape> matrices = list_cuda_devices(fake.options).at(0).target.matrices;
    CHECK(std::any_of(matrices.begin(), matrices.end(), [](const MatrixShape& s) { return s.a == DType::f8e5m2; }) ==
          (version == 12040));
  }

  device = {};
  device.count = 0;
  const Fake none(device);
  CHECK(list_cuda_devices(none.options).empty());
  CHECK(error_of<DeviceError>([&] { CudaDevice(0, none.options); }) ==
        "device cuda:0: there is no NVIDIA GPU, or no driver of NVIDIA's (libcuda) for it\n"
        "  note: install NVIDIA's driver, or set TESSERA_DEVICE to a Vulkan device or interpreter");
}

TEST_CASE("cuda: names of devices" * without_device) {
  CHECK(cuda_selected("cuda") == 0);
  CHECK(cuda_selected("cuda:12") == 12);
  CHECK(cuda_selected("CUDA:1") == 1);
  CHECK(cuda_selected("vulkan") == std::nullopt);
  CHECK(cuda_selected("barracuda") == std::nullopt);
  for (const std::string bad : {"cuda:", "cuda:x", "cuda:1x", "cuda:-1"})
    CHECK(error_of<DeviceError>([&] { cuda_selected(bad); }) ==
          "device \"" + bad + "\": a number follows \"cuda:\"\n  note: tessera devices lists the devices");
  const Fake fake;
  CHECK(error_of<DeviceError>([&] { CudaDevice(1, fake.options); }) ==
        "device cuda:1 is none of NVIDIA's devices:\n  cuda:0: A GPU that is none");
  CudaOptions missing;
  missing.library = "libthere_is_none.so";
  CHECK(error_of<DeviceError>([&] { CudaDevice(0, missing); }) ==
        "NVIDIA's driver: there is no library libthere_is_none.so");
}

TEST_CASE("cuda: kernels compute what the interpreter computes" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const std::pair<const char*, DimValues> files[] = {{"add", {}},
                                                     {"matmul", {}},
                                                     {"matmul_acc", {}},
                                                     {"alias_in_place", {}},
                                                     {"dynamic_grid", {{"n", 21}, {"rows", 40}}},
                                                     {"scans", {}},
                                                     {"rank_0", {}},
                                                     {"semaphores", {}},
                                                     {"kept_large", {}},
                                                     {"matrix_square", {}},
                                                     {"scatter_ordered", {}},
                                                     {"reductions", {}},
                                                     {"cumsum_small", {}},
                                                     {"empty_beside_a_grid", {{"n", 0}, {"m", 5}}},
                                                     {"alias_first_input", {}},
                                                     {"atomics_histogram", {}}};
  for (const auto& [name, sizes] : files) {
    const std::string file = name;
    const DimValues dims = sizes;
    CAPTURE(file);
    const ir::Kernel k = kernel_of(file);
    const std::vector<Array> inputs = inputs_of(k, dims);
    const auto zeros = interpret(k, inputs, {.dims = dims, .uninitialised = Uninitialised::zero});
    const auto pattern = interpret(k, inputs, {.dims = dims, .uninitialised = Uninitialised::pattern});
    for (const bool general : {false, true}) {
      CompileOptions options;
      options.general = general;
      const std::vector<Array> got = run_on(device, k, inputs, dims, options);
      REQUIRE(got.size() == zeros.size());
      for (size_t i = 0; i < got.size(); ++i) same(file, got[i], zeros[i], pattern[i]);
    }
  }
}

TEST_CASE("cuda: a bundle holds PTX beside SPIR-V" * without_device) {
  const Fake fake;
  const ir::Kernel k = kernel_of("add");
  const BundleSource sources[] = {{k, std::vector<std::string>(k.blocks.size(), "a")}};
  const std::string bytes = bundle_to_bytes(
      make_bundle(sources, std::vector{minimum_target(), Target::nvidia("sm_80"), Target::nvidia("sm_120")}).file);
  const Bundle bundle(std::as_bytes(std::span(bytes)), "k.tsb");
  const CudaDevice cuda(0, fake.options);
  const std::vector<Array> inputs = inputs_of(k, {{"n", 1000}});
  const std::vector<Array> got = cuda.run(*bundle.program(cuda.target(), k.name), inputs);
  const std::vector<Array> wanted = interpret(k, inputs);
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) same("add", got[i], wanted[i], wanted[i]);
  CHECK(error_of<SpecError>([&] { (void)bundle.program(cuda.target(), "none"); }) ==
        "k.tsb: has no kernel \"none\"\n  note: its kernels are " + k.name);
}

TEST_CASE("cuda: a function under pallas_call, compiled once" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const auto twice =
      pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2; }, {.out_shape = {{{1000}, f32}},
                                                              .grid = {8},
                                                              .in_specs = {{{125}, [](Value i) { return i; }}},
                                                              .out_specs = {{{125}, [](Value i) { return i; }}},
                                                              .name = "twice"});
  const ir::Kernel k = twice.trace({{{1000}, f32}});
  const uint64_t before = compile_counts().compiled;
  for (int n = 0; n < 3; ++n) {
    const Array x = ramp(1000, static_cast<float>(n));
    const Array y = run_on(device, k, {x})[0];
    for (int64_t i = 0; i < 1000; ++i) CHECK(y.at(i) == 2 * x.at(i));
  }
  CHECK(compile_counts().compiled == before + 1);
  CHECK(fake.call<FakeCudaCalls>("fake_cuda_calls")("cuModuleLoadDataEx") == 1);
  CHECK(error_of<SpecError>([&] { run_on(device, k, {ramp(999)}); }).starts_with("twice: argument 0"));
}

TEST_CASE("cuda: an input that the kernel stores to keeps its contents" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const auto sum = pallas_call(
      [](Ref x, Ref o) {
        x[all] = x[all] + 1;
        o[all] = x[all] * 2;
      },
      {.out_shape = {{{9}, f32}}, .name = "sum"});
  const Array x = ramp(9);
  const Array y = run_on(device, sum.trace({{{9}, f32}}), {x})[0];
  for (int64_t i = 0; i < 9; ++i) {
    CHECK(x.at(i) == static_cast<double>(i));
    CHECK(y.at(i) == 2.0 * static_cast<double>(i + 1));
  }
}

TEST_CASE("cuda: prints, and checks that fail" * without_device) {
  const Fake fake;
  std::vector<std::string> lines;
  CudaOptions options = fake.options;
  options.print = [&](const std::string& line) { lines.push_back(line); };
  const auto call = [](float limit) {
    return pallas_call(
        [=](Ref x, Ref o) {
          debug_print("{i}: {}", x[all], named("i", program_id(0)));
          tessera::check(Value(x[all]) < limit, "{} is not below {}", x[all], limit);
          o[all] = x[all];
        },
        {.out_shape = {{{6}, f32}},
         .grid = {3},
         .in_specs = {{{2}, [](Value i) { return i; }}},
         .out_specs = {{{2}, [](Value i) { return i; }}},
         .name = "says"});
  };
  {
    const CudaDevice device(0, options);
    run_on(device, call(100).trace({{{6}, f32}}), {ramp(6)});
    CHECK(lines == std::vector<std::string>{"0: [0. 1.]", "1: [2. 3.]", "2: [4. 5.]"});
    CHECK(error_of<KernelError>([&] {
            run_on(device, call(3).trace({{{6}, f32}}), {ramp(6)});
          }).starts_with("says: check failed in program (1): [2. 3.] is not below 3.0"));
    CHECK(!device.lost());
  }
  options.print_bytes = -1;
  CHECK(error_of<SpecError>([&] { CudaDevice(0, options); }) ==
        "CudaOptions::print_bytes is -1, not between 0 and 1073741824");
  options.print_bytes = 32;
  const CudaDevice small(0, options);
  lines.clear();
  run_on(small, call(100).trace({{{6}, f32}}), {ramp(6)});
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].find(" more lines (") != std::string::npos);
  CHECK(lines[1].find(" found no room in the 32 bytes that a call's messages have: print from fewer programs (in C++ "
                      "CudaOptions::print_bytes gives more room)") != std::string::npos);
}

TEST_CASE("cuda: arrays that stay on the device" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const auto compiled = [&](const ir::Kernel& k) { return compile(k, device.target()); };
  // a chain of calls, nothing of which has been done before the download
  const Program add = compiled(
      pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; }, {.out_shape = {{{9}, f32}}, .name = "add"})
          .trace({{{9}, f32}, {{9}, f32}}));
  {
    CudaArray x(device, ramp(9));
    CHECK(x.shape() == Shape{9});
    CHECK(x.dtype() == DType::f32);
    CHECK(x.nbytes() == 36);
    CHECK(x.address() != 0);
    CHECK(x.device() == device);
    CudaArray sum = x;
    for (int i = 0; i < 5; ++i) sum = device.launch(add, {sum, x})[0];
    x = CudaArray();
    CHECK(fake.call<FakeCudaCalls>("fake_cuda_calls")("cuMemcpyDtoHAsync_v2") == 0);
    const Array got = sum.download();
    for (int64_t i = 0; i < 9; ++i) CHECK(got.at(i) == 6.0 * static_cast<double>(i));
  }
  // inputs keep what they hold, unless they are donated
  const Program twice =
      compiled(pallas_call([](Ref a, Ref o) { o[all] = a[all] + a[all]; },
                           {.out_shape = {{{9}, f32}}, .input_output_aliases = {{0, 0}}, .name = "twice"})
                   .trace({{{9}, f32}}));
  const Program stores = compiled(pallas_call(
                                      [](Ref x, Ref o) {
                                        x[all] = x[all] + 1;
                                        o[all] = x[all] * 2;
                                      },
                                      {.out_shape = {{{9}, f32}}, .name = "stores"})
                                      .trace({{{9}, f32}}));
  const CudaArray x(device, ramp(9)), kept(device, ramp(9));
  CHECK(device.launch(twice, {x})[0].download().at(4) == 8);
  CHECK(device.launch(stores, {x})[0].download().at(4) == 10);
  CHECK(x.download().at(4) == 4);
  const uint64_t place = x.address();
  const CudaArray doubled = device.launch(twice, {donate(x)})[0];
  CHECK(doubled.address() == place);
  CHECK(doubled.download().at(4) == 8);
  CHECK(error_of<SpecError>([&] { x.download(); }) == "download: the array f32[9] has been donated to twice");
  CHECK(error_of<SpecError>([&] { device.launch(twice, {x}); }) ==
        "twice: argument 0: the array f32[9] has been donated to twice");
  CHECK(error_of<SpecError>([&] {
          device.launch(add, {donate(kept), kept});
        }).starts_with("add: argument 0 is donated, but no output is aliased to it"));
  CHECK(kept.download().at(8) == 8);
  // what is no array of the device
  CHECK(error_of<SpecError>([&] { device.launch(add, {kept, CudaArray()}); }) ==
        "add: argument 1: this CudaArray holds no array");
  CHECK(error_of<SpecError>([&] {
          device.launch(add, {kept, 1.0f});
        }).starts_with("add: argument 1: a number is given, and no array"));
  CHECK(error_of<SpecError>([&] { CudaArray(device, {2, -1}, f32); }) ==
        "CudaArray: shape (2, -1) has a negative size");
  const CudaDevice other(0, fake.options);
  CHECK(error_of<SpecError>([&] {
          other.launch(add, {kept, kept});
        }).starts_with("add: argument 0 is of another CudaDevice"));
  // no elements
  const CudaArray none(device, {0, 3}, f32);
  CHECK(none.address() == 0);
  CHECK(none.download().shape() == Shape{0, 3});
  // a print's text is there when the call returns
  std::vector<std::string> lines;
  CudaOptions options = fake.options;
  options.print = [&](const std::string& line) { lines.push_back(line); };
  const CudaDevice printing(0, options);
  const ir::Kernel says = pallas_call(
                              [](Ref a, Ref o) {
                                debug_print("{}", a[all]);
                                o[all] = a[all];
                              },
                              {.out_shape = {{{2}, f32}}, .name = "says"})
                              .trace({{{2}, f32}});
  printing.launch(compile(says, printing.target()), {CudaArray(printing, ramp(2))});
  CHECK(lines == std::vector<std::string>{"[0. 1.]"});
}

TEST_CASE("cuda: kernels of files on arrays that stay on the device" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  for (const char* name : {"matmul_acc", "alias_in_place", "alias_first_input", "scans", "kept_large", "matrix_square",
                           "scatter_ordered", "by_value_words", "empty_beside_a_grid", "dynamic_grid"}) {
    CAPTURE(name);
    const ir::Kernel k = kernel_of(name);
    DimValues dims;
    for (const std::string& n : k.dim_names()) dims[n] = n == "n" && std::string(name) != "dynamic_grid" ? 0 : 21;
    const std::vector<Array> inputs = inputs_of(k, dims);
    const auto zeros = interpret(k, inputs, {.dims = dims, .uninitialised = Uninitialised::zero});
    const auto pattern = interpret(k, inputs, {.dims = dims, .uninitialised = Uninitialised::pattern});
    const Program p = compile(k, device.target());
    for (const bool donated : {false, true}) {
      std::vector<CudaArray> arrays;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const bool goes = donated && std::any_of(p.args.begin(), p.args.end(),
                                                 [&](const ProgramArg& a) { return a.alias == static_cast<int>(i); });
        if (p.args[i].by_value) arrays.push_back(CudaArray(device, inputs[i]));
        else arrays.push_back(goes ? donate(CudaArray(device, inputs[i])) : CudaArray(device, inputs[i]));
      }
      if (std::any_of(p.args.begin(), p.args.end(), [](const ProgramArg& a) { return a.by_value; })) {
        CHECK(error_of<SpecError>([&] { device.launch(p, arrays, dims); }).find("the kernel takes a number by value") !=
              std::string::npos);
        continue;
      }
      const std::vector<CudaArray> got = device.launch(p, arrays, dims);
      REQUIRE(got.size() == zeros.size());
      for (size_t i = 0; i < got.size(); ++i) same(name, got[i].download(), zeros[i], pattern[i]);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!donated) same(name, arrays[i].download(), inputs[i], inputs[i]);
    }
  }
}

TEST_CASE("cuda: memory of another library" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const Program add = compile(
      pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; }, {.out_shape = {{{8}, f32}}, .name = "add"})
          .trace({{{8}, f32}, {{8}, f32}}),
      device.target());
  const CudaArray theirs(device, ramp(8));  // as another library has it
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> alive = owner;
  {
    const CudaArray in_place = CudaArray::import(device, theirs.address(), {8}, f32, std::move(owner));
    CHECK(in_place.address() == theirs.address());
    CudaArray sum;
    {
      const CudaArray again = in_place;
      sum = device.launch(add, {again, in_place})[0];
    }
    CHECK(!alive.expired());
    CHECK(sum.download().at(7) == 14);
  }
  CHECK(alive.expired());
  device.wait();
  CHECK(theirs.download().at(7) == 7);
  CHECK(error_of<SpecError>([&] {
          CudaArray::import(device, theirs.address() + 4, {1}, f32, nullptr);
        }).find("is no multiple of 16\n  note: copy it") != std::string::npos);
  CHECK(error_of<SpecError>([&] { CudaArray::import(device, theirs.address(), {5}, u8, nullptr); }) ==
        "CudaArray::import: u8[5]: it takes 5 bytes, no multiple of 4\n"
        "  note: copy it: atomics reach the word around an element");
}

TEST_CASE("cuda: calls on the device's arrays that fail" * without_device) {
  const Fake fake;
  const ir::Kernel k = kernel_of("alias_in_place");
  const std::vector<Array> inputs = inputs_of(k, {});
  const std::vector<Array> right = interpret(k, inputs);
  for (const char* function : {"cuCtxPushCurrent_v2", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
                               "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"}) {
    CAPTURE(function);
    int failed = 0;
    for (int after = 0;; ++after) {
      std::string error;
      {
        const CudaDevice device(0, fake.options);
        const Program p = compile(k, device.target());
        fake.fail(function, after);
        error = error_of<DeviceError>([&] {
          std::vector<CudaArray> arrays;
          for (const Array& a : inputs) arrays.emplace_back(device, a);
          device.launch(p, arrays)[0].download();
        });
        const bool reached = fake.call<FakeCudaCalls>("fake_cuda_calls")(function) > after;
        fake.fail(nullptr);
        if (!reached) break;
        ++failed;
        CHECK(!device.lost());
      }
      CHECK(fake.live() == 0);
      CHECK(error.find(std::string(function) + ": CUDA_ERROR_INVALID_VALUE") != std::string::npos);
    }
    CHECK(failed > 0);
  }
  // a kernel's fault is told of by what waits next, with what was running
  const CudaDevice device(0, fake.options);
  const CudaArray fine = device.launch(storing_at("4"), {})[0];
  device.launch(storing_at("4096"), {});
  CHECK(error_of<DeviceError>([&] { fine.download(); }) ==
        "cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake); it was running one of "
        "stores, "
        "stores" +
            std::string(kAfterLoss));
  CHECK(device.lost());
  CHECK(
      error_of<DeviceError>([&] { device.wait(); }) ==
      "the device cuda:0 was lost in an earlier call: cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error "
      "700 of the fake); it was running one of stores, stores" +
          std::string(kAfterLoss));
}

TEST_CASE("cuda: what nothing uses is given up for what is wanted" * without_device) {
  FakeCudaDevice little;
  little.memory_bytes = 1000;
  const Fake fake(little);
  const CudaDevice device(0, fake.options);
  for (int64_t n = 100; n < 160; n += 10) CHECK(CudaArray(device, {n}, f32).nbytes() == 4 * n);
  const CudaArray held(device, {100}, f32);
  CHECK(error_of<DeviceError>([&] { CudaArray(device, {200}, f32); }) ==
        "CudaArray: f32[200]: takes 800 bytes, but of the memory of cuda:0 600 of 1000 bytes are free");
}

TEST_CASE("cuda: each function of the driver may fail" * without_device) {
  const Fake fake;
  const ir::Kernel k = kernel_of("kept_large");
  const std::vector<Array> inputs = inputs_of(k, {});
  const std::vector<Array> right = interpret(k, inputs);
  for (const char* function :
       {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
        "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuStreamCreate",
        "cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"}) {
    CAPTURE(function);
    int failed = 0;
    for (int after = 0;; ++after) {
      fake.fail(function, after);
      const std::string error = error_of<DeviceError>([&] {
        const CudaDevice device(0, fake.options);
        run_on(device, k, inputs);
      });
      const bool reached = fake.call<FakeCudaCalls>("fake_cuda_calls")(function) > after;
      CHECK(fake.live() == 0);
      if (!reached) break;
      ++failed;
      const bool at_the_end = std::string(function) == "cuCtxPushCurrent_v2" && error.empty();  // of the device
      const std::string told = std::string(function) + ": CUDA_ERROR_INVALID_VALUE (error 1 of the fake)";
      CHECK((at_the_end || error.find(told) != std::string::npos));
    }
    fake.fail(nullptr);
    if (std::string(function) != "cuFuncSetAttribute") CHECK(failed > 0);
  }
  // a call that fails leaves the device as it was
  const CudaDevice device(0, fake.options);
  fake.fail("cuMemAlloc_v2", 1);
  CHECK(error_of<DeviceError>([&] { run_on(device, k, inputs); }) != "");
  fake.fail(nullptr);
  CHECK(!device.lost());
  same("kept_large", run_on(device, k, inputs)[0], right[0], right[0]);
}

TEST_CASE("cuda: operands whose arrays the driver encodes as tensors" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const ir::Kernel k = kernel_of("matrix_square");
  const std::vector<Array> inputs = inputs_of(k, {});
  const std::vector<Array> right = interpret(k, inputs);
  same("matrix_square", run_on(device, k, inputs)[0], right[0], right[0]);
  CHECK(fake.call<FakeCudaCalls>("fake_cuda_calls")("cuTensorMapEncodeTiled") == 2);
  fake.fail("cuTensorMapEncodeTiled", 1);
  CHECK(error_of<DeviceError>([&] {
          run_on(device, k, inputs);
        }).starts_with("matrix_square: in_specs[1]: cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE"));
  fake.fail(nullptr);
  CHECK(!device.lost());
}

TEST_CASE("cuda: memory that is not there" * without_device) {
  FakeCudaDevice little;
  little.memory_bytes = 1000;
  const Fake fake(little);
  const CudaDevice device(0, fake.options);
  const ir::Kernel k = kernel_of("kept_large");
  CHECK(error_of<DeviceError>([&] { run_on(device, k, inputs_of(k, {})); })
            .starts_with("kept_large: out_specs[0]: takes 24000 bytes, but of the memory of cuda:0 1000 of 1000 bytes "
                         "are free"));
}

TEST_CASE("cuda: calls on the caller's memory" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  for (const char* name : {"add", "alias_in_place", "by_value_words", "scans"}) {
    const ir::Kernel k = kernel_of(name);
    DimValues dims;
    for (const std::string& n : k.dim_names()) dims[n] = 21;
    const std::vector<Array> inputs = inputs_of(k, dims), right = interpret(k, inputs, {.dims = dims});
    std::vector<Array> outputs;
    std::vector<HostArray> from, to;
    for (const Array& a : inputs) from.push_back({a.dtype(), a.shape(), const_cast<std::byte*>(a.bytes())});
    for (const Array& a : right) {
      Array& o = outputs.emplace_back(a.shape(), a.dtype());
      to.push_back({o.dtype(), o.shape(), o.bytes()});
    }
    const auto program = program_for(device, k);
    device.run_into(*program, from, to, dims);
    for (size_t i = 0; i < right.size(); ++i) same(name, outputs[i], right[i], right[i]);
    CHECK(error_of<SpecError>([&] {
            device.run_into(*program, from, {}, dims);
          }).find(right.size() == 1 ? ": gives 1 output but 0 are expected" : " outputs but 0 are expected") !=
          std::string::npos);
  }
  // an output in place of its input
  const ir::Kernel k = kernel_of("alias_in_place");
  std::vector<Array> arrays = inputs_of(k, {});
  const std::vector<Array> right = interpret(k, arrays);
  std::vector<HostArray> from;
  for (Array& a : arrays) from.push_back({a.dtype(), a.shape(), a.bytes()});
  const auto program = program_for(device, k);
  const auto at = static_cast<size_t>(program->args[arrays.size()].alias);
  device.run_into(*program, from, std::span(&from[at], 1));
  same("alias_in_place", arrays[at], right[0], right[0]);
  HostArray wrong = from[at];
  wrong.shape = {3};
  CHECK(error_of<SpecError>([&] { device.run_into(*program, from, std::span(&wrong, 1)); }).find(": output 0 is ") !=
        std::string::npos);
}

TEST_CASE("cuda: code that is none" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  Program p = storing_at("4");
  p.ptx = "no code";
  CHECK(
      error_of<DeviceError>([&] {
        device.run(p, {});
      }).starts_with("stores: cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (error 218 of the fake)\n  note: it says: "));
  p.ptx.clear();
  CHECK(error_of<DeviceError>([&] { device.run(p, {}); }) ==
        "stores: its code is not PTX, and cuda:0 runs no other\n  note: compile it for CudaDevice::target()");
  p = storing_at("4");
  p.workgroup_size = 2048;
  CHECK(error_of<CompileError>([&] {
          device.run(p, {});
        }).starts_with("stores: takes 2048 threads and 0 bytes of shared memory in a block, but cuda:0 has at most "));
}

TEST_CASE("cuda: numbers by value, of every dtype" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  for (const char* name : {"by_value_bytes", "by_value_halves", "by_value_words", "by_value_doubles", "by_value_table",
                           "by_value_decides", "sizes_read"}) {
    const ir::Kernel k = kernel_of(name);
    DimValues dims;
    for (const std::string& n : k.dim_names()) dims[n] = 21;
    const std::vector<Array> inputs = inputs_of(k, dims), right = interpret(k, inputs, {.dims = dims}),
                             got = run_on(device, k, inputs, dims);
    for (size_t i = 0; i < right.size(); ++i) same(name, got[i], right[i], right[i]);
  }
}

TEST_CASE("cuda: several threads call at once" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  const ir::Kernel k = kernel_of("add");
  const std::vector<Array> inputs = inputs_of(k, {});
  const Array right = interpret(k, inputs)[0];
  std::vector<Array> results(8, right);
  std::vector<std::thread> threads;
  for (Array& r : results) threads.emplace_back([&] { r = run_on(device, k, inputs)[0]; });
  for (std::thread& t : threads) t.join();
  for (const Array& r : results) same("add", r, right, right);
}

#ifdef TESSERA_CLI
TEST_CASE("cuda: the command line" * without_device) {
  const TemporaryFolder folder("cuda");
  const std::string drivers = std::filesystem::path(TESSERA_FAKE_CUDA).parent_path().string();
  folder.write("add.tir", contents("tests/tir/add.tir"));
  write_npy(folder.at("a.npy"), ramp(20));
  write_npy(folder.at("b.npy"), ramp(20, 1));
  const auto cli = [&](const std::string& arguments, const std::string& environment = "") {
    return run_program(folder.path, TESSERA_CLI, arguments, "LD_LIBRARY_PATH='" + drivers + "' " + environment);
  };
  REQUIRE(cli("run add.tir --in a.npy --in b.npy --out c.npy --device cuda:0") == 0);
  for (int64_t i = 0; i < 20; ++i) CHECK(read_npy(folder.at("c.npy")).at(i) == 2.0 * static_cast<double>(i) + 1);
  REQUIRE(cli("run add.tir --in a.npy --in b.npy --out d.npy", "TESSERA_DEVICE=cuda") == 0);
  CHECK(read_npy(folder.at("d.npy")).at(3) == 7);
  CHECK(cli("run add.tir --in a.npy --in b.npy --device cuda:0 --repeat 3") != 0);
  CHECK(folder.read("err.txt").find("--trace and --repeat time Vulkan's devices, and cuda:0 is none") !=
        std::string::npos);
  CHECK(cli("run add.tir --in a.npy --in b.npy --device cuda:1") != 0);
  CHECK(folder.read("err.txt").find("device cuda:1 is none of NVIDIA's devices") != std::string::npos);
  cli("devices", "TESSERA_DEVICE=cuda:0");
  CHECK(folder.read("out.txt").find("* cuda:0: A GPU that is none\n     compute capability 9.0, CUDA 12.4, 1.0 GiB, "
                                    "code for sm_90a\n") != std::string::npos);
}
#endif

}  // namespace cuda_test

#endif
