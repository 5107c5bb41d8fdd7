// NVIDIA devices that are lost: what the errors say, whichever function of the driver tells of it, and what comes
// after.
#include <optional>

#include "runtime/call/call.h"
#include "tests/unit/runtime/nvidia/fake.h"

#ifdef TESSERA_FAKE_CUDA

namespace cuda_lost_test {
using namespace cuda_test;

TEST_CASE("cuda: a kernel that leaves its memory ends the context" * without_device) {
  const Fake fake;
  const CudaDevice device(0, fake.options);
  CHECK(device.run(storing_at("4"), {})[0].at(1) == 7);
  CHECK(error_of<DeviceError>([&] { device.run(storing_at("4096"), {}); }) ==
        "cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake); it was running stores" +
            std::string(kAfterLoss));
  CHECK(device.lost());
  CHECK(
      error_of<DeviceError>([&] { device.run(storing_at("4"), {}); }) ==
      "the device cuda:0 was lost in an earlier call: cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error "
      "700 of the fake); it was running stores" +
          std::string(kAfterLoss));
}

TEST_CASE("cuda: a lost device says the line of its kernel, and what to do about a display's GPU" * without_device) {
  const Fake fake;
  {
    CudaDevice device(0, fake.options);
    Program p = storing_at("4096");
    p.loc = {"k.tir", 3};
    Program other = storing_at("4");
    other.name = "fine";
    other.loc = {"k.tir", 7};
    CHECK(error_of<DeviceError>([&] { device.run(p, {}); }) ==
          "cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake); it was running stores\n"
          "  at k.tir:3" +
              std::string(kAfterLoss));
    device.recover();
    device.launch(other, {});
    device.launch(p, {});
    CHECK(
        error_of<DeviceError>([&] { device.wait(); }) ==
        "cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake); it was running one of fine "
        "(k.tir:7), stores (k.tir:3)" +
            std::string(kAfterLoss));
  }
  // any function may be the first to tell of it
  for (const char* function : {"cuMemAlloc_v2", "cuLaunchKernel", "cuModuleLoadDataEx", "cuMemcpyDtoHAsync_v2",
                               "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"}) {
    CAPTURE(function);
    CudaDevice device(0, fake.options);
    const CudaArray a(device, ramp(4));
    Program twice = storing_at("4");
    twice.name = "long";
    twice.loc = {"k.tir", 3};
    device.launch(twice, {});
    twice.ptx += "\n";
    fake.fail(function, 0, 702);
    const std::string error = error_of<DeviceError>([&] {
      if (std::string(function) == "cuMemcpyHtoDAsync_v2") (void)CudaArray(device, ramp(4));
      device.launch(twice, {});
      (void)CudaArray(device, {5}, f32);
      (void)a.download();
    });
    fake.fail(nullptr);
    const std::string told = std::string(function) +
                             " on cuda:0: CUDA_ERROR_LAUNCH_TIMEOUT (error 702 of the fake); it was "
                             "running ";
    CHECK(error.starts_with(told));
    CHECK(error.find(
              "\n  note: a GPU that drives a display ends kernels which take seconds: give the kernel less work in "
              "a call, or run it on another GPU; CudaDevice::recover() makes") != std::string::npos);
    CHECK(device.lost());
    CHECK(error_of<DeviceError>([&] {
            (void)a.download();
          }).starts_with("the device cuda:0 was lost in an earlier call: " + told));
  }
  FakeCudaDevice displaying;
  displaying.drives_display = true;
  const Fake other(displaying);
  CHECK(list_cuda_devices(other.options).at(0).ends_long_kernels);
}

TEST_CASE("cuda: a lost device made anew" * without_device) {
  FakeCudaDevice gpu;
  for (const bool recovers : {true, false}) {
    gpu.recovers = recovers;
    const Fake fake(gpu);
    CudaDevice device(0, fake.options);
    const CudaDevice old = device;
    const ir::Kernel k = kernel_of("add");
    const std::vector<Array> inputs = inputs_of(k, {});
    const Array right = run_on(device, k, inputs)[0];
    const CudaArray kept(device, ramp(4));
    device.recover();  // it is not lost
    std::optional<CudaDevice> other;
    if (recovers) other.emplace(0, fake.options);
    CHECK(device == old);
    CHECK(kept.download().at(3) == 3);
    CHECK(error_of<DeviceError>([&] { device.run(storing_at("4096"), {}); }) != "");
    if (!recovers) {
      CHECK(error_of<DeviceError>([&] { device.recover(); }) ==
            "CudaDevice::recover: cuda:0: cuStreamCreate: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake)\n"
            "  note: the driver gives the process no new context (or another library of the process keeps the old "
            "one): a "
            "new process can use the device");
      CHECK(device.lost());
      CHECK(error_of<DeviceError>([&] { CudaDevice(0, fake.options); }) ==
            "cuda:0: cuStreamCreate: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake)\n"
            "  note: a kernel has ended what the process had of the device: a new process can use it");
      continue;
    }
    // another handle of the process holds the old context
    CHECK(error_of<DeviceError>([&] { device.recover(); }) != "");
    CHECK(device.lost());
    other.reset();
    device.recover();
    CHECK(!device.lost());
    CHECK(old.lost());
    CHECK(!(device == old));
    const uint64_t before = compile_counts().compiled;
    same("add", run_on(device, k, inputs)[0], right, right);
    CHECK(compile_counts().compiled == before);
    CHECK(
        error_of<DeviceError>([&] { (void)kept.download(); }).starts_with("the device cuda:0 was lost in an earlier"));
    CHECK(error_of<DeviceError>([&] { old.wait(); }).starts_with("the device cuda:0 was lost in an earlier call: "));
  }
}

}  // namespace cuda_lost_test

#endif
