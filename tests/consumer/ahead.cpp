// Uses Tessera::runtime alone: a kernel that tessera_add_kernels has compiled into the header
// consumer_ahead_kernels.hpp, and no file at run time.
#include <consumer_ahead_kernels.hpp>
#include <iostream>

int main() {
  const tessera::Device device;
  const kernels::scale scale(kernels::bundle(), device);
  const tessera::DeviceArray x(device, tessera::Array({3}, std::vector<float>{1, 2, 3}));
  const kernels::scale::Outputs made = scale({.x = x});
  std::cout << made.scaled->download() << "\n";
  scale({.x = made.scaled}, {.scaled = x});
  std::cout << x.download() << "\n";
  const kernels::gain gain(kernels::bundle(), device);  // of numbers by value
  const tessera::Array louder = gain({.x = x, .by = 0.5f, .plus = -1, .negative = true}).made->download();
  return louder.data<float>()[0] == x.download().data<float>()[0] * -0.5f - 1 ? 0 : 1;
}
