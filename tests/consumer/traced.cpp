// Uses Tessera::runtime alone: kernels of filters.cpp and scale.tir, in the header filters.hpp.
#include <filters.hpp>
#include <iostream>

int main() {
  const tessera::Device device;
  const tessera::Bundle bundle = filters::bundle();
  const filters::blend blend(bundle, device);
  const tessera::DeviceArray x(device, tessera::Array({3}, std::vector<float>{1, 2, 3}));
  const tessera::DeviceArray y(device, tessera::Array({3}, std::vector<float>{5, 5, 5}));
  std::cout << blend({.x = x, .y = y, .amount = 0.5f, .away = false}).blended->download() << "\n";
  std::cout << blend({.x = x, .y = y, .amount = 0.5f, .away = true}).blended->download() << "\n";
  std::cout << filters::count(bundle, device)({.first = 10}, {.h = 2, .w = 3}).cells->download() << "\n";
  std::cout << filters::scale(bundle, device)({.x = x}).scaled->download() << "\n";
  const tessera::DeviceArray rows(device, tessera::Array({5, 48}, std::vector<float>(240, 3)));
  const tessera::DeviceArray weight(device, tessera::Array({48}, std::vector<float>(48, 2)));
  const tessera::Array normed = filters::rms_norm(bundle, device)({.x = rows, .weight = weight}).normed->download();
  for (const float v : normed.data<float>())
    if (v < 1.99999f || v > 2.00001f) return 1;
  filters::settle settle(bundle, device, {.frames_in_flight = 1});
  return settle.graph.program().calls.size() == 3 ? 0 : 2;
}
